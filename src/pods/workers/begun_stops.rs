//! The stops of containers, each in a record beside those of its container, for a daemon that follows one that was killed
//! (deviations: `stop-goes-on`).
//!
//! Invariants: what is about to be done is in the record before the container notices it. The record goes with the
//! container. An earlier daemon's stop is taken up once: a stop that this daemon begins after that, or begins again, has
//! its whole grace period.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::base::boot_record;
use crate::base::clock::Moment;
use crate::base::locks::Locked;
use crate::base::paths::Layout;
use crate::engine::runtime::{ContainerId, RuntimePodStatus, RuntimeState};

/// The name of the record.
const STOP: &str = "stop.json";

/// How far a stop has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopStage {
    /// The preStop hook runs, if there is one.
    #[default]
    Begun,
    /// The hook is done. The container may wait for its turn.
    HookDone,
    /// The container has got the stop signal, or is about to get it.
    Signalled,
}

/// A stop that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The time at which the stop began, and with it the preStop hook.
    pub since: Moment,
    /// How far the stop has come.
    #[serde(default)]
    pub stage: StopStage,
}

/// A stop that a daemon has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunStop {
    /// The stop.
    pub stop: Stop,
    /// The end of the grace period.
    pub until: Moment,
}

/// The stops that an earlier daemon has begun, and the records for the next one.
pub struct BegunStops {
    /// The directory that has a directory for each container.
    containers: PathBuf,
    /// The stops that this daemon has not taken up, by the names of the containers' directories.
    earlier: Mutex<HashMap<String, BegunStop>>,
}

impl BegunStops {
    /// Reads what an earlier daemon has left. A record that cannot be read costs what it says: the container has its
    /// grace period again.
    pub fn open(layout: &Layout) -> Self {
        let containers = layout.containers();
        let dirs = fs::read_dir(&containers).into_iter().flatten().flatten();
        let stops = dirs.filter_map(|dir| {
            let begun = boot_record::read(&dir.path(), STOP)?;
            Some((dir.file_name().into_string().ok()?, begun))
        });
        Self {
            earlier: Mutex::new(stops.collect()),
            containers,
        }
    }

    /// Returns the running containers of a pod whose stop an earlier daemon has begun, and this one has not taken up.
    pub fn of(&self, runtime: &RuntimePodStatus) -> Vec<ContainerId> {
        let earlier = self.earlier.locked();
        let is_begun = |id: &ContainerId| earlier.contains_key(id.as_str());
        let containers = runtime.containers.iter();
        let begun = containers.filter(|c| c.state == RuntimeState::Running && is_begun(&c.id));
        begun.map(|c| c.id.clone()).collect()
    }

    /// Returns the stop of this container that an earlier daemon has begun. From now on it is a stop of this daemon.
    pub fn take_up(&self, id: &ContainerId) -> Option<BegunStop> {
        self.earlier.locked().remove(id.as_str())
    }

    /// Writes how far the stop of a container has come.
    pub fn note(&self, id: &ContainerId, begun: BegunStop) {
        let dir = self.containers.join(id.as_str());
        if let Err(e) = boot_record::write(&dir, STOP, &begun) {
            log::warn!(
                "cannot write that container {id} is being stopped: {e}; if the daemon is killed meanwhile, the next one \
                 gives it its grace period again"
            );
        }
    }
}
