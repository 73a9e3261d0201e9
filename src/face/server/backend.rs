//! The calls that the server makes to the daemon, grouped by the part of the daemon that answers them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::containers::ContainerName;
use super::error::{RequestError, SummaryError, Unreachable};
use super::health::Check;
use super::protocol::{
    ConditionSet, DeleteTarget, Deleted, DrainRequest, NodeOrders, PauseTarget, ProbeTarget,
    RestartTarget, UncordonRequest,
};
use crate::api::PodUid;
use crate::api::conditions::ConditionChange;
use crate::api::objects::ObjectKind;
use crate::api::review::{NoReview, User};
use crate::base::cancel::Cancel;
use crate::base::wire::socket::Socket as PortSocket;
use crate::engine::runtime::{
    AttachRequest, ContainerRoot, ExecOutcome, ExecRequest, Session, Started,
};
use crate::face::views::ProbeReport;
use crate::face::views::{PodView, Snapshot, SnapshotUpdate};
use crate::net::services::view::ServiceView;
use crate::pods::events::EventList;
use crate::pods::history::PodHistory;
use crate::workloads::view::{ChangeRequest, Changed, WorkloadList};

/// The kubelet's registries of metrics, except the one at `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registry {
    /// The registry at `/metrics/probes`.
    Probes,
    /// The registry at `/metrics/resource`.
    Resource,
    /// The registry at `/metrics/cadvisor`.
    Cadvisor,
}

/// The files of a running container.
pub struct ContainerFiles {
    /// The container's root directory.
    pub root: ContainerRoot,
    /// User and group of the container's first process; None if the runtime does not report them.
    pub owner: Option<(u32, u32)>,
}

/// The source of the server's answers: the daemon, or a test.
pub trait Backend: Shown + Requests + Containers + Metrics + Resources + Health + Reviews {}

impl<T: Shown + Requests + Containers + Metrics + Resources + Health + Reviews> Backend for T {}

/// The part of the backend that shows clients pods, services and objects.
pub trait Shown: Send + Sync {
    /// Returns the state as it is known now. Waits only right after the daemon's start, until the pod files have been
    /// read.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Waits up to `ceiling` for a change after `version`, and returns the changes, if there are any. A client whose
    /// version is too old gets the complete state.
    fn watch(&self, version: u64, ceiling: Duration) -> SnapshotUpdate;

    /// Waits up to `ceiling` for an event after the version `after`, and returns the events after this version. The
    /// list is empty if there was no event. If `after` is None, returns all events at once.
    fn events(&self, after: Option<u64>, ceiling: Duration) -> EventList;

    /// Returns the kept history of a pod's probes and restarts; empty for an unknown pod.
    fn history(&self, uid: &PodUid) -> PodHistory;

    /// Returns a pod by its full name, without its events; None if there is no such pod.
    fn pod(&self, name: &ContainerName) -> Option<Arc<PodView>>;

    /// Returns the pods that the runtime has, as v1 objects with the fields that the runtime knows.
    fn running_pods(&self) -> Vec<Value>;

    /// Returns every service, sorted by namespace and name; None if a daemon that has just started does not know them yet.
    fn services(&self) -> Option<Vec<ServiceView>>;

    /// Waits up to `ceiling` for a list of workloads that is newer than the version `after`, and returns the list. If
    /// `after` is None, waits only while the daemon has just started and has not looked at its workloads yet.
    fn workloads(&self, after: Option<u64>, ceiling: Duration) -> WorkloadList;

    /// Returns every object of a kind that pods refer to, in the form that an API server gives it, sorted by namespace
    /// and name. Secrets contain their values.
    fn objects(&self, kind: ObjectKind) -> Vec<Value>;

    /// Returns the configuration in force, without passwords.
    fn config(&self) -> Value;

    /// Returns the daemon's version.
    fn version(&self) -> String;
}

/// The part of the backend that acts on pods and probes for clients.
pub trait Requests: Send + Sync {
    /// Runs a probe now, and returns the report of the run. The call takes at most three times the probe's timeout.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such probe, or if it cannot be run.
    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, RequestError>;

    /// Pauses probes for the time `length`, and returns their names.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such probe, or if the time is out of range.
    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, RequestError>;

    /// Resumes paused probes, and returns the names of the probes that were paused.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such probe.
    fn resume(&self, target: &PauseTarget) -> Result<Vec<String>, RequestError>;

    /// Asks the pod's worker to kill containers and start them again. Returns the names of the containers at once.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such container, or if the container would not start again.
    fn restart(&self, target: &RestartTarget) -> Result<Vec<String>, RequestError>;

    /// Ends a pod until its file changes. Returns when the deletion is on disk. At this time the pod may still be
    /// ending.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such pod, if the pod has ended, or if the deletion cannot be written to
    /// the disk.
    fn delete(&self, target: &DeleteTarget) -> Result<Deleted, RequestError>;

    /// Reads the configuration again, and puts what can change at once into force. Returns a line with the number of changed
    /// keys, and a line for each of them.
    ///
    /// # Errors
    /// Returns [`RequestError`] if the configuration cannot be used. The old one stays in force then.
    fn reload(&self) -> Result<Vec<String>, RequestError>;

    /// Returns the orders that hold for all pods of the node.
    fn node_orders(&self) -> NodeOrders;

    /// Lets no new pod start. Returns when the order is on disk.
    ///
    /// # Errors
    /// Returns [`RequestError`] in a cluster, or if the order cannot be written to the disk.
    fn cordon(&self) -> Result<NodeOrders, RequestError>;

    /// Lets pods start again. Returns when the change is on disk.
    ///
    /// # Errors
    /// Returns [`RequestError`] in a cluster, or if the record of the order stays on the disk.
    fn uncordon(&self, request: &UncordonRequest) -> Result<NodeOrders, RequestError>;

    /// Ends all pods in order, and lets none start. Returns when the order is on disk. At this time the pods are still
    /// ending.
    ///
    /// # Errors
    /// Returns [`RequestError`] in a cluster, unless the node shuts down, or if the order cannot be written to the disk or
    /// no thread can be started.
    fn drain(&self, request: &DrainRequest) -> Result<NodeOrders, RequestError>;

    /// Changes a workload. Returns when the change is on disk.
    ///
    /// # Errors
    /// Returns [`RequestError`] if there is no such workload, or if it does not allow the change.
    fn change_workload(&self, request: &ChangeRequest) -> Result<Changed, RequestError>;

    /// Sets or removes a condition of a pod. Returns when the change is on disk, or cannot be written.
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

    /// Runs a command to its end. `bounds` has the longest time, and the largest number of bytes that are kept of the
    /// command's output. The command is killed when `cancel` is cancelled.
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

    /// Returns the files of a container.
    ///
    /// # Errors
    /// Returns [`Unreachable`] if there is no such container, or if it does not run.
    fn files(&self, name: &ContainerName) -> Result<ContainerFiles, Unreachable>;

    /// Connects to a port of a pod, from inside of the pod.
    ///
    /// # Errors
    /// Returns [`Unreachable`] if there is no such pod, or if nothing listens on the port.
    fn dial(&self, name: &ContainerName, port: u16) -> Result<PortSocket, Unreachable>;

    /// Returns the directory of the node's logs.
    fn log_dir(&self) -> PathBuf;
}

/// The part of the backend that has the daemon's metrics.
pub trait Metrics: Send + Sync {
    /// Returns every metric, in the Prometheus text format.
    fn metrics(&self) -> String;
}

/// The part of the backend that reports the resources that pods and the node use, in the form of the kubelet's
/// endpoints.
pub trait Resources: Send + Sync {
    /// Returns the metrics of the kubelet's registry `registry`.
    fn metrics_of(&self, registry: Registry) -> String;

    /// Returns the body of `/stats/summary`.
    ///
    /// # Errors
    /// Returns [`SummaryError`] if nothing can be read.
    fn stats_summary(&self, only_cpu_and_memory: bool) -> Result<String, SummaryError>;
}

/// The part of the backend that reports the daemon's health.
pub trait Health: Send + Sync {
    /// Returns the daemon's health checks, for `/healthz`. Takes at most a few milliseconds.
    fn checks(&self) -> Vec<Check>;

    /// Counts a panic of the server. The panic was caught, so the server goes on.
    fn panicked(&self);
}

/// The part of the backend that asks the cluster's API server about clients. It is not asked on a node that stands alone.
pub trait Reviews: Send + Sync {
    /// Returns the user of a token; None if the token is not valid. Waits for ten seconds at most.
    ///
    /// # Errors
    /// Returns [`NoReview`] if the API server cannot be asked.
    fn user_of(&self, token: &str) -> Result<Option<User>, NoReview>;

    /// Returns true if the user may do what `verb` says with this node's `subresource`. Waits for ten seconds
    /// at most.
    ///
    /// # Errors
    /// Returns [`NoReview`] if the API server cannot be asked.
    fn may(&self, user: &User, verb: &str, subresource: &str) -> Result<bool, NoReview>;
}
