//! What the daemon does not do for a client, case by case, and the status with which the server says so.
//!
//! Invariants: pure. A status follows from the case alone; the sentence is for people.

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

/// A request for a pod or a probe that the daemon does not fulfil.
#[derive(Debug, Error)]
pub enum RequestError {
    /// There is no such pod any more.
    #[error("the pod is gone")]
    PodGone,
    /// There is no such pod any more, or it is ending: what was asked for begins in no such pod.
    #[error("the pod is gone, or is ending")]
    PodGoneOrEnding,
    /// The pod's worker has ended since, or ends the pod.
    #[error("the pod has ended, or is ending")]
    PodEnded,
    /// The node has not admitted the pod, so there is nothing to end.
    #[error("the pod does not run ({reason}); remove {file}, and it is gone")]
    NotAdmitted {
        /// The reason of the pod's status.
        reason: String,
        /// The file that the pod comes from.
        file: String,
    },
    /// The pod has ended by itself.
    #[error("the pod has ended already ({how}); remove {file}, and it is gone")]
    EndedAlready {
        /// The reason of the pod's status, or its phase.
        how: String,
        /// The file that the pod comes from.
        file: String,
    },
    /// The pod has no container of that name.
    #[error("pod {pod} has no container {container}")]
    NoContainer {
        /// The name of the pod.
        pod: String,
        /// The name that was asked for.
        container: String,
    },
    /// The pod has none of the probes that were asked for.
    #[error("pod {0} has no such probe")]
    NoProbe(String),
    /// The container with this name is an init container that is no sidecar.
    #[error("cannot restart init container {0}: it runs once, before the others")]
    InitContainer(String),
    /// None of the containers that were asked for would start again.
    #[error("{}", listed(.0))]
    NotRestarted(Vec<NotRestarted>),
    /// No pause lasts so long, or so short.
    #[error("a pause lasts from 1s to 168h, not {}", go_duration(*.0))]
    PauseLength(Duration),
    /// No grace period has so many seconds.
    #[error("a grace period is 0 to {MAX_GRACE} seconds, not {0}")]
    GracePeriod(i64),
    /// The disk does not take the mark that the pod is deleted.
    #[error(
        "cannot write {}: {cause}; the pod runs on, because the next daemon would not know that it is deleted; remove {file} instead",
        path.display()
    )]
    DeletionNotWritten {
        /// The file of the mark.
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
    /// No client may set this condition.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// The pod has no room for another condition.
    #[error(transparent)]
    TooManyConditions(#[from] TooManyConditions),
    /// The runtime does not say what runs.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl RequestError {
    /// Returns the status of the answer: the request was understood, and cannot be fulfilled.
    pub fn status(&self) -> u16 {
        match self {
            Self::PodGone
            | Self::PodGoneOrEnding
            | Self::PodEnded
            | Self::NotAdmitted { .. }
            | Self::EndedAlready { .. }
            | Self::NoContainer { .. }
            | Self::NoProbe(_)
            | Self::InitContainer(_)
            | Self::NotRestarted(_)
            | Self::PauseLength(_)
            | Self::GracePeriod(_)
            | Self::DeletionNotWritten { .. }
            | Self::ProbeNotRun(_)
            | Self::Condition(_)
            | Self::TooManyConditions(_)
            | Self::Runtime(_) => 422,
        }
    }
}

/// A container that would not start again.
#[derive(Debug, Error)]
#[error("cannot restart container {container}: {why}")]
pub struct NotRestarted {
    /// The name of the container.
    pub container: String,
    /// The reason.
    pub why: CannotRestart,
}

fn listed(all: &[NotRestarted]) -> String {
    let all: Vec<String> = all.iter().map(NotRestarted::to_string).collect();
    all.join("; ")
}

/// A container, or a port of a pod, that a client cannot be connected with. The sentences are the kubelet's where the kubelet
/// has some.
#[derive(Debug, Error)]
pub enum Unreachable {
    /// There is no such pod.
    #[error("pod does not exist")]
    NoPod,
    /// The pod has no container of that name.
    #[error("container {container} is not valid for pod {pod}: its containers are [{}]", containers.join(" "))]
    NoContainer {
        /// The name that was asked for.
        container: String,
        /// The name of the pod.
        pod: String,
        /// The names of its containers.
        containers: Vec<String>,
    },
    /// The container does not run now.
    #[error("container not found (\"{container}\"): it does not run now{}", reason(waiting.as_ref()))]
    NotRunning {
        /// The name of the container.
        container: String,
        /// The reason why it waits, if it does.
        waiting: Option<String>,
    },
    /// The runtime cannot do it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// There is no connection to the port.
    #[error(transparent)]
    Port(#[from] DialError),
    /// The node has no descriptor or no thread left that would notice that the client leaves.
    #[error("cannot follow the client: {0}")]
    ClientNotFollowed(#[source] io::Error),
}

impl Unreachable {
    /// Returns the status of the answer.
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

/// A summary of what pods and the node use that cannot be given.
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
    /// Returns the status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::Cgroups(_) | Self::Json(_) => 500,
        }
    }
}
