//! `status` of a v1 Pod: the types, in the API's names and JSON form. [`crate::pods::status`] decides
//! their values.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::pod::ResourceRequirements;
use super::quantity::Quantity;
use crate::base::clock::Time;

/// `status.phase` (kubelet-probes 9.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodPhase {
    /// Accepted; not every container has started.
    #[default]
    Pending,
    /// Every container was started, and at least one runs or will run.
    Running,
    /// All containers ended with 0 and none will start again.
    Succeeded,
    /// All containers ended, one or more with an error, and none will start again.
    Failed,
    /// Never set by podprobe.
    Unknown,
}

impl PodPhase {
    /// True if the phase is Succeeded or Failed, which a pod never leaves (kubelet-probes 9.2).
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for PodPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Phase of the pod's life.
    pub phase: PodPhase,
    /// Conditions in the order of kubelet-probes 9.4.
    pub conditions: Vec<PodCondition>,
    /// Message about the pod, a sentence for a person; an empty message is left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Reason of the pod's state, one word for a program; an empty reason is left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The sandbox's primary address; empty until there is one.
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// All addresses of the pod, primary first.
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<PodIp>,
    /// Start time of the pod: set with the first status, never changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Init containers in spec order; None until known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Regular containers by name (kubelet-probes 9.3 S9).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Guaranteed, Burstable or BestEffort.
    #[serde(rename = "qosClass", skip_serializing_if = "String::is_empty")]
    pub qos_class: String,
}

/// The reason why a pod that is being stopped is not ready.
pub const POD_TERMINATING: &str = "PodTerminating";

impl PodStatus {
    /// The condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.conditions.iter().find(|c| c.type_ == type_)
    }

    /// True if the pod's Ready condition is True.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|c| c.status == "True")
    }

    /// True if the pod is being stopped.
    pub fn is_terminating(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|c| c.type_ == "Ready" && c.reason == POD_TERMINATING)
    }

    /// The status of the container of that name: regular first, then init (kubelet-probes 2.3 row 3).
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.container_statuses
            .iter()
            .chain(&self.init_container_statuses)
            .find(|c| c.name == name)
    }
}

/// An entry of `status.podIPs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodIp {
    /// The address.
    pub ip: String,
}

/// A pod condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition {
    /// `Ready`, `ContainersReady`, …
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Changes only with `status`.
    pub last_transition_time: Option<Time>,
    /// Reason of the condition's status, one word; an empty reason is left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message about the condition, a sentence; an empty message is left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The status of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// The container's name.
    pub name: String,
    /// Current state of the container.
    pub state: ContainerState,
    /// End of the container's previous instance.
    pub last_state: ContainerState,
    /// True if the container is ready for traffic.
    pub ready: bool,
    /// Number of instances before this one.
    pub restart_count: u32,
    /// Image name as the spec has it.
    pub image: String,
    /// Image id that the image name resolved to.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// Container id, `podprobe://<id>`; empty until there is one.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// True if the startup probe has passed; without a startup probe, true if the container runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
    /// The requests that were granted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated_resources: BTreeMap<String, Quantity>,
    /// The resources in effect; None until it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Mounts of the container's volumes, in the order of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMountStatus>,
    /// User that the first process was started as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<ContainerUser>,
}

/// `user` of a container status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerUser {
    /// User and groups on Linux.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxContainerUser>,
}

/// `user.linux` of a container status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinuxContainerUser {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// The other groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supplemental_groups: Vec<u32>,
}

/// An entry of `volumeMounts` of a container status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMountStatus {
    /// The volume.
    pub name: String,
    /// Path of the mount in the container.
    pub mount_path: String,
    /// True if the mount is not writable.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// `Disabled` for a read-only mount: mounts below it may be writable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive_read_only: Option<String>,
}

/// The state of a container: waiting, running or terminated. At most one is set; none set means nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Not running yet, or held back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<ContainerStateWaiting>,
    /// Running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<ContainerStateRunning>,
    /// Ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<ContainerStateTerminated>,
}

/// `state.waiting`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStateWaiting {
    /// `ContainerCreating`, `CrashLoopBackOff`, `ErrImageNeverPull`, …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Reason for waiting and what to do, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// `state.running`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStateRunning {
    /// Wall clock.
    pub started_at: Option<Time>,
}

/// `state.terminated`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStateTerminated {
    /// Exit code of the container: 128 + signal when a signal ended it.
    pub exit_code: i32,
    /// Never set, as in the kubelet; the exit code shows the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerStatusUnknown`, `StartError`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Termination message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The id of the instance.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}
