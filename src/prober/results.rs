//! The result caches: one per probe type, keyed by container id; a change is sent to the sync loop (kubelet-probes 4.1).

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use crossbeam_channel::Sender;

use crate::api::PodUid;
use crate::runtime::ContainerId;

/// Capacity of each update channel: sending blocks a worker when the sync loop is this far behind.
pub const UPDATES_CAPACITY: usize = 20;

/// What is cached for a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// Not known yet: the seed of startup.
    Unknown,
    /// At or above successThreshold.
    Success,
    /// At or above failureThreshold.
    Failure,
}

impl ProbeResult {
    /// The metric's number: Success 0, Failure 1, others -1.
    pub fn as_number(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Unknown => -1,
        }
    }
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "Success",
            Self::Failure => "Failure",
            Self::Unknown => "UNKNOWN",
        })
    }
}

/// A change, for the sync loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Which instance.
    pub container: ContainerId,
    /// The new value.
    pub result: ProbeResult,
    /// Of which pod.
    pub pod: PodUid,
}

/// One probe type's cache. The lock is never held while sending.
pub struct Manager {
    cache: Mutex<HashMap<ContainerId, ProbeResult>>,
    updates: Sender<Update>,
}

impl Manager {
    /// A cache that sends its changes to `updates`.
    pub fn new(updates: Sender<Update>) -> Self {
        Self { cache: Mutex::default(), updates }
    }

    /// The value, if there is one.
    pub fn get(&self, id: &ContainerId) -> Option<ProbeResult> {
        self.lock().get(id).copied()
    }

    /// Stores; when it was absent or differs, sends it. Blocks while the channel is full; a closed one (the daemon
    /// ends) drops it.
    pub fn set(&self, id: &ContainerId, result: ProbeResult, pod: &PodUid) {
        if self.lock().insert(id.clone(), result) == Some(result) {
            return;
        }
        let _ = self.updates.send(Update { container: id.clone(), result, pod: pod.clone() });
    }

    /// Deletes; sends nothing. A later set of the same value counts as new.
    pub fn remove(&self, id: &ContainerId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ContainerId, ProbeResult>> {
        self.cache.lock().expect("no panic while the lock is held")
    }
}
