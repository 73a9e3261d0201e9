//! The errors for requests that the daemon does not carry out, and the HTTP status of each.
//!
//! Invariants: pure. The status depends on the case alone. The sentence is for people.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::protocol::MAX_GRACE;
use crate::api::conditions::ConditionError;
use crate::base::clock::go_duration;
use crate::base::wire::dial::DialError;
use crate::engine::runtime::{RuntimeError, RuntimeErrorKind};
use crate::pods::actions::CannotRestart;
use crate::pods::prober::now::ProbeNowError;
use crate::pods::status::TooManyConditions;
use crate::workloads::view::ChangeError;

/// The reasons why a request for a pod or a probe is not carried out.
#[derive(Debug, Error)]
pub enum RequestError {
    /// There is no such pod any more.
    #[error("the pod is gone")]
    PodGone,
    /// There is no such pod any more, or the pod is ending. Nothing new can begin in it.
    #[error("the pod is gone, or is ending")]
    PodGoneOrEnding,
    /// The pod's worker has ended in the meantime, or is ending the pod.
    #[error("the pod has ended, or is ending")]
    PodEnded,
    /// The node has not admitted the pod, so there is nothing to end.
    #[error("the pod does not run ({reason}); remove {file}, and it is gone")]
    NotAdmitted {
        /// The reason in the pod's status.
        reason: String,
        /// The file that the pod comes from.
        file: String,
    },
    /// The pod comes from the API server, which would not know of a deletion here.
    #[error(
        "the pod comes from the API server; delete it there: kubectl delete pod -n {namespace} {name}"
    )]
    OfTheApiServer {
        /// The namespace of the pod.
        namespace: String,
        /// The name of the pod.
        name: String,
    },
    /// The pod has ended by itself.
    #[error("the pod has ended already ({how}); remove {file}, and it is gone")]
    EndedAlready {
        /// The reason in the pod's status, or its phase.
        how: String,
        /// The file that the pod comes from.
        file: String,
    },
    /// The pod has no container of that name.
    #[error("pod {pod} has no container {container}")]
    NoContainer {
        /// The name of the pod.
        pod: String,
        /// The name of the container that was asked for.
        container: String,
    },
    /// The pod has none of the probes that were asked for.
    #[error("pod {0} has no such probe")]
    NoProbe(String),
    /// The container with this name is an init container, but no sidecar.
    #[error("cannot restart init container {0}: it runs once, before the others")]
    InitContainer(String),
    /// None of the containers that were asked for would start again.
    #[error("{}", listed(.0))]
    NotRestarted(Vec<NotRestarted>),
    /// The new configuration cannot be used.
    #[error("{0}; the configuration that is in force stays")]
    Configuration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The daemon was not started from a configuration.
    #[error("this daemon was started without a configuration that it could read again")]
    NoConfiguration,
    /// The scheduler of the cluster decides which pods the node gets.
    #[error("the node belongs to a cluster; ask there: kubectl {verb} {node}")]
    InCluster {
        /// The verb of kubectl.
        verb: &'static str,
        /// The name of the node.
        node: String,
    },
    /// An order for all pods of the node cannot be brought into force.
    #[error("cannot {what}: {cause}")]
    NodeOrder {
        /// The order, such as `drain the node`.
        what: &'static str,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The length of the pause is out of range.
    #[error("a pause lasts from 1s to 168h, not {}", go_duration(*.0))]
    PauseLength(Duration),
    /// The number of seconds is out of range for a grace period.
    #[error("a grace period is 0 to {MAX_GRACE} seconds, not {0}")]
    GracePeriod(i64),
    /// The mark that the pod is deleted cannot be written to the disk.
    #[error(
        "cannot write {}: {cause}; the pod runs on, because the next daemon would not know that it is deleted; remove {file} instead",
        path.display()
    )]
    DeletionNotWritten {
        /// The file that holds the mark.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
        /// The file that the pod comes from.
        file: String,
    },
    /// The prober cannot run the probe.
    #[error(transparent)]
    ProbeNotRun(#[from] ProbeNowError),
    /// Clients may not set this condition.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// The pod has no room for another condition.
    #[error(transparent)]
    TooManyConditions(#[from] TooManyConditions),
    /// The workload is not changed.
    #[error(transparent)]
    Workload(#[from] ChangeError),
    /// The runtime does not report which containers run.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl RequestError {
    /// Returns the HTTP status of the answer, always 422: the request was understood, and cannot be fulfilled.
    pub fn status(&self) -> u16 {
        match self {
            Self::PodGone
            | Self::PodGoneOrEnding
            | Self::PodEnded
            | Self::NotAdmitted { .. }
            | Self::EndedAlready { .. }
            | Self::OfTheApiServer { .. }
            | Self::NoContainer { .. }
            | Self::NoProbe(_)
            | Self::InitContainer(_)
            | Self::NotRestarted(_)
            | Self::Configuration(_)
            | Self::NoConfiguration
            | Self::InCluster { .. }
            | Self::NodeOrder { .. }
            | Self::PauseLength(_)
            | Self::GracePeriod(_)
            | Self::DeletionNotWritten { .. }
            | Self::ProbeNotRun(_)
            | Self::Condition(_)
            | Self::TooManyConditions(_)
            | Self::Workload(_)
            | Self::Runtime(_) => 422,
        }
    }
}

/// A container would not start again.
#[derive(Debug, Error)]
#[error("cannot restart container {container}: {why}")]
pub struct NotRestarted {
    /// The name of the container.
    pub container: String,
    /// The reason why the container would not start again.
    pub why: CannotRestart,
}

fn listed(all: &[NotRestarted]) -> String {
    let all: Vec<String> = all.iter().map(NotRestarted::to_string).collect();
    all.join("; ")
}

/// The reasons why a client cannot be connected with a container, or with a port of a pod. If the kubelet has a
/// sentence for a reason, the text is the kubelet's sentence.
#[derive(Debug, Error)]
pub enum Unreachable {
    /// There is no such pod.
    #[error("pod does not exist")]
    NoPod,
    /// The pod has no container of that name.
    #[error("container {container} is not valid for pod {pod}: its containers are [{}]", containers.join(" "))]
    NoContainer {
        /// The name of the container that was asked for.
        container: String,
        /// The name of the pod.
        pod: String,
        /// The names of the pod's containers.
        containers: Vec<String>,
    },
    /// The container does not run now.
    #[error("container not found (\"{container}\"): it does not run now{}", reason(waiting.as_ref()))]
    NotRunning {
        /// The name of the container.
        container: String,
        /// The reason why the container waits; None if it does not wait.
        waiting: Option<String>,
    },
    /// The runtime cannot connect the client.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The connection to the port failed.
    #[error(transparent)]
    Port(#[from] DialError),
    /// The node has no descriptor or no thread left to notice when the client leaves.
    #[error("cannot follow the client: {0}")]
    ClientNotFollowed(#[source] io::Error),
}

impl Unreachable {
    /// Returns the HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::NoPod | Self::NoContainer { .. } => 404,
            Self::NotRunning { .. } => 409,
            Self::Runtime(e) if e.kind == RuntimeErrorKind::NotRunning => 409,
            Self::Runtime(_) | Self::Port(_) | Self::ClientNotFollowed(_) => 500,
        }
    }
}

fn reason(waiting: Option<&String>) -> String {
    waiting.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// The reasons why the summary of the resources of pods and the node cannot be given.
#[derive(Debug, Error)]
pub enum SummaryError {
    /// The resources that pods use cannot be read.
    #[error("cannot read the cgroups of pods: {0}")]
    Cgroups(#[source] io::Error),
    /// The summary cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl SummaryError {
    /// Returns the HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::Cgroups(_) | Self::Json(_) => 500,
        }
    }
}
