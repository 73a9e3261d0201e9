//! Where the sources send what they have found.

use std::sync::Arc;
use std::time::SystemTime;

use crossbeam_channel::{Receiver, Sender, select};

use super::files::Step;
use super::merge::{PodConfig, PodUpdate};
use super::states::FileStates;
use crate::api::PodSource;
use crate::pods::events::{EventType, Recorder};
use crate::pods::objects::Objects;

/// Shared by all sources.
#[derive(Clone)]
pub struct Outlet {
    /// The merge of the sets of all sources.
    pub config: Arc<PodConfig>,
    /// The store of objects beside pods.
    pub objects: Arc<Objects>,
    /// The channel for updates. A source waits while the channel is full, and ends when it is closed.
    pub updates: Sender<PodUpdate>,
    /// The state of the files that clients see.
    pub states: Arc<FileStates>,
    /// The events for pods that the merge drops.
    pub events: Arc<Recorder>,
}

/// The end of a source: it was told to end, or nobody takes its updates any more.
pub(super) struct Ended;

impl Outlet {
    /// Sends what has changed. The log lines of the step are the caller's.
    pub(super) fn publish(
        &self,
        source: PodSource,
        step: Step,
        stopped: &Receiver<()>,
    ) -> Result<(), Ended> {
        self.states.replace(source, step.pods, step.problems);
        // Before the pods, so that a new pod finds what it refers to.
        if let Some(objects) = step.objects {
            self.objects.replace(source, objects);
        }
        let Some(set) = step.set else { return Ok(()) };
        let merged = self.config.merge(source, set, SystemTime::now());
        for (pod, text) in &merged.dropped {
            self.events
                .record(pod, "", EventType::Warning, "FailedValidation", text);
        }
        merged.updates.into_iter().try_for_each(|update| {
            select! {
                send(self.updates, update) -> sent => sent.map_err(|_| Ended),
                recv(stopped) -> _ => Err(Ended),
            }
        })
    }
}
