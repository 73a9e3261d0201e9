//! The outlet to which the sources send pods, workloads, objects and problems.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crossbeam_channel::{Receiver, Sender, select};

use super::files::Step;
use super::merge::{PodConfig, PodUpdate};
use super::states::{FileStates, PodFile};
use super::workload_store::WorkloadStore;
use crate::api::{Pod, PodSource, PodUid};
use crate::pods::events::{EventType, Recorder};
use crate::pods::objects::Objects;

/// The outlet to which all sources send. The sources share one outlet.
#[derive(Clone)]
pub struct Outlet {
    /// The merge of the sets of all sources.
    pub config: Arc<PodConfig>,
    /// The store of objects that are not pods.
    pub objects: Arc<Objects>,
    /// The store of workloads.
    pub workloads: Arc<WorkloadStore>,
    /// The channel for updates. A source waits while the channel is full, and ends if the channel is closed.
    pub updates: Sender<PodUpdate>,
    /// The state of the pod files, which clients see.
    pub states: Arc<FileStates>,
    /// The recorder of events. The recorder gets an event for each pod that the merge drops.
    pub events: Arc<Recorder>,
}

/// The end of a source: it was stopped, or the channel for its updates is closed.
pub struct Ended;

impl Outlet {
    /// Sends the changes of a step. The caller writes the log lines of the step.
    pub(super) fn publish(
        &self,
        source: PodSource,
        step: Step,
        stopped: &Receiver<()>,
    ) -> Result<(), Ended> {
        self.states.replace(source, step.pods, step.problems);
        // The objects come before the pods, so that a new pod finds the objects that it refers to.
        if let Some(objects) = step.objects {
            self.objects.replace(source, objects);
        }
        if let Some(workloads) = step.workloads {
            self.workloads.replace(source, workloads);
        }
        let Some(set) = step.set else { return Ok(()) };
        self.send(source, set, stopped)
    }

    /// Sends the pods that controllers have made, each with the file of its workload.
    ///
    /// # Errors
    /// Returns [`Ended`] if the source was stopped, or nobody takes its pods any more.
    pub fn publish_made(
        &self,
        set: Vec<Arc<Pod>>,
        files: BTreeMap<PodUid, PodFile>,
        stopped: &Receiver<()>,
    ) -> Result<(), Ended> {
        self.states
            .replace(PodSource::Controller, files, Vec::new());
        self.send(PodSource::Controller, set, stopped)
    }

    /// Sends the pods of the API server that this node should run.
    ///
    /// # Errors
    /// Returns [`Ended`] if the source was stopped, or nobody takes its pods any more.
    pub fn publish_api(&self, set: Vec<Arc<Pod>>, stopped: &Receiver<()>) -> Result<(), Ended> {
        self.send(PodSource::Api, set, stopped)
    }

    fn send(
        &self,
        source: PodSource,
        set: Vec<Arc<Pod>>,
        stopped: &Receiver<()>,
    ) -> Result<(), Ended> {
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
