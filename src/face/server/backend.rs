//! What the server asks of the daemon, in the parts in which the daemon answers it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::containers::ContainerName;
use super::error::{RequestError, SummaryError, Unreachable};
use super::health::Check;
use super::protocol::{
    ConditionSet, DeleteTarget, Deleted, PauseTarget, ProbeTarget, RestartTarget,
};
use crate::api::PodUid;
use crate::api::conditions::ConditionChange;
use crate::api::objects::ObjectKind;
use crate::base::cancel::Cancel;
use crate::base::wire::socket::Socket as PortSocket;
use crate::engine::runtime::{
    AttachRequest, ContainerRoot, ExecOutcome, ExecRequest, Session, Started,
};
use crate::face::views::ProbeReport;
use crate::face::views::history::PodHistory;
use crate::face::views::{PodView, Snapshot, SnapshotUpdate};
use crate::net::services::view::ServiceView;
use crate::pods::events::EventList;

/// The kubelet's registries of metrics besides its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registry {
    /// `/metrics/probes`.
    Probes,
    /// `/metrics/resource`.
    Resource,
    /// `/metrics/cadvisor`.
    Cadvisor,
}

/// The files of a running container.
pub struct ContainerFiles {
    /// The container's root directory.
    pub root: ContainerRoot,
    /// User and group of the container's first process; None where the runtime does not say.
    pub owner: Option<(u32, u32)>,
}

/// Where the answers come from: the daemon, or a test.
pub trait Backend: Shown + Requests + Containers + Metrics + Resources + Health {}

impl<T: Shown + Requests + Containers + Metrics + Resources + Health> Backend for T {}

/// The part of the backend that shows clients pods, services and objects.
pub trait Shown: Send + Sync {
    /// Returns the state known now. Waits only right after the daemon's start, until the pod files have been read.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Waits up to `ceiling` for a change after `version`, and returns the changes, if there are any. A reader that is too
    /// far behind gets a complete update.
    fn watch(&self, version: u64, ceiling: Duration) -> SnapshotUpdate;

    /// Returns the events after that version as soon as there is one, or none after `ceiling`. Without a version it returns
    /// all events at once.
    fn events(&self, after: Option<u64>, ceiling: Duration) -> EventList;

    /// Returns the history kept of a pod's probes and restarts; empty for an unknown pod.
    fn history(&self, uid: &PodUid) -> PodHistory;

    /// Returns a pod by its full name, without its events; None when there is no such pod.
    fn pod(&self, name: &ContainerName) -> Option<Arc<PodView>>;

    /// The pods that the runtime has, as v1 objects with what it knows of them.
    fn running_pods(&self) -> Vec<Value>;

    /// Every service, in the order of namespace and name.
    fn services(&self) -> Vec<ServiceView>;

    /// Every object of a kind that pods refer to, as an API server has it, in the same order. Those of Secrets hold their
    /// values.
    fn objects(&self, kind: ObjectKind) -> Vec<Value>;

    /// The configuration in force, without passwords.
    fn config(&self) -> Value;

    /// The daemon's version.
    fn version(&self) -> String;
}

/// The part of the backend that acts on pods and probes for clients.
pub trait Requests: Send + Sync {
    /// Runs a probe now; returns when it has run, after three times its timeout at most.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such probe, or if it cannot be run.
    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, RequestError>;

    /// Pauses probes for so long; gives their names.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such probe, or if the time is out of range.
    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, RequestError>;

    /// Lets paused probes go on; gives the names of those that were paused.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such probe.
    fn resume(&self, target: &PauseTarget) -> Result<Vec<String>, RequestError>;

    /// Has containers killed and started again by the pod's worker; gives their names at once.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such container, or if it would not start again.
    fn restart(&self, target: &RestartTarget) -> Result<Vec<String>, RequestError>;

    /// Ends a pod until its file changes; returns when that is on disk, and the pod may still be ending.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such pod, if it has ended, or if the disk does not take the change.
    fn delete(&self, target: &DeleteTarget) -> Result<Deleted, RequestError>;

    /// Sets or removes a condition of a pod; returns when it is on disk, or cannot be.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such pod, or if it cannot have this condition.
    fn set_condition(
        &self,
        uid: &PodUid,
        change: &ConditionChange,
    ) -> Result<ConditionSet, RequestError>;
}

/// The part of the backend that lets clients act inside of containers and pods.
pub trait Containers: Send + Sync {
    /// Starts a command with streams in a container.
    ///
    /// # Errors
    /// Returns [`Unreachable`] if there is no such container, or if it does not run.
    fn exec(&self, name: &ContainerName, request: &ExecRequest) -> Result<Started, Unreachable>;

    /// Runs a command to its end. `bounds` are the longest time, and the most bytes that are kept of what the command
    /// writes. The command is killed when `cancel` is cancelled.
    ///
    /// # Errors
    /// Returns [`Unreachable`] if there is no such container, or if it does not run.
    fn run(
        &self,
        name: &ContainerName,
        command: &[String],
        bounds: (Duration, usize),
        cancel: &Cancel,
    ) -> Result<ExecOutcome, Unreachable>;

    /// Attaches to a container's own process.
    ///
    /// # Errors
    /// Returns [`Unreachable`] if there is no such container, or if it does not run.
    fn attach(
        &self,
        name: &ContainerName,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, Unreachable>;

    /// The files of a container.
    ///
    /// # Errors
    /// Returns [`Unreachable`] if there is no such container, or if it does not run.
    fn files(&self, name: &ContainerName) -> Result<ContainerFiles, Unreachable>;

    /// Connects to a port of a pod, from inside of it.
    ///
    /// # Errors
    /// Returns [`Unreachable`] if there is no such pod, or if nobody listens there.
    fn dial(&self, name: &ContainerName, port: u16) -> Result<PortSocket, Unreachable>;

    /// The directory of the node's logs.
    fn log_dir(&self) -> PathBuf;
}

/// The part of the backend that has the daemon's metrics.
pub trait Metrics: Send + Sync {
    /// Every metric, in the Prometheus text format.
    fn metrics(&self) -> String;
}

/// The part of the backend that tells what pods and the node use, as the kubelet's endpoints say it.
pub trait Resources: Send + Sync {
    /// The metrics of one of the kubelet's other registries.
    fn metrics_of(&self, registry: Registry) -> String;

    /// The body of `/stats/summary`.
    ///
    /// # Errors
    /// Returns [`SummaryError`] if nothing can be read.
    fn stats_summary(&self, only_cpu_and_memory: bool) -> Result<String, SummaryError>;
}

/// How the daemon is.
pub trait Health: Send + Sync {
    /// How the daemon is, for `/healthz`. Takes at most milliseconds.
    fn checks(&self) -> Vec<Check>;

    /// Counts a panic of the server that was caught.
    fn panicked(&self);
}
