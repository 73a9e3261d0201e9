//! `status` of a v1 Pod: the types, in the API's names and JSON form. `crate::pods::status` decides their values.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::pod::ResourceRequirements;
use super::quantity::Quantity;
use crate::base::clock::Time;

/// `status.phase`: how far the pod's life is (kubelet-probes 9.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodPhase {
    /// The pod is accepted, but not every container has started.
    #[default]
    Pending,
    /// Every container was started, and at least one runs or will run.
    Running,
    /// All containers ended with exit code 0, and none will start again.
    Succeeded,
    /// All containers ended, at least one with an error, and none will start again.
    Failed,
    /// The phase is unknown. Podprobe never sets it.
    Unknown,
}

impl PodPhase {
    /// True if the phase is Succeeded or Failed, which a pod never leaves (kubelet-probes 9.2).
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// Returns the API's word for the phase.
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

/// `status` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Phase of the pod's life.
    pub phase: PodPhase,
    /// Conditions in the order of kubelet-probes 9.4.
    pub conditions: Vec<PodCondition>,
    /// Generation of the spec that the status was made from; left out for a pod that does not come from an API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Message about the pod, a sentence for a person; an empty message is left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Reason of the pod's state, one word for a program; an empty reason is left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Primary address of the pod's sandbox; empty until the sandbox has one.
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// All addresses of the pod, primary first.
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<PodIp>,
    /// Start time of the pod: set with the first status, never changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Statuses of the init containers, in spec order; empty until they are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Statuses of the regular containers, sorted by name (kubelet-probes 9.3 S9).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Statuses of the ephemeral containers, in spec order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
    /// Quality-of-service class: Guaranteed, Burstable or BestEffort.
    #[serde(rename = "qosClass", skip_serializing_if = "String::is_empty")]
    pub qos_class: String,
}

/// Reason in the Ready condition of a pod that is being stopped.
pub const POD_TERMINATING: &str = "PodTerminating";

impl PodStatus {
    /// Returns the condition of that type.
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

    /// Returns the status of the container of that name. Regular containers are searched first, then init containers
    /// (kubelet-probes 2.3 row 3), then ephemeral ones.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.container_statuses
            .iter()
            .chain(&self.init_container_statuses)
            .chain(&self.ephemeral_container_statuses)
            .find(|c| c.name == name)
    }
}

/// An entry of `status.podIPs`: an address of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodIp {
    /// IP address of the pod.
    pub ip: String,
}

/// A condition of a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition {
    /// Type of the condition, such as `Ready` or `ContainersReady`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    /// Time at which `status` changed last.
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
    /// How the previous instance of the container ended.
    pub last_state: ContainerState,
    /// True if the container is ready for traffic.
    pub ready: bool,
    /// Number of instances of the container before the current one.
    pub restart_count: u32,
    /// Name of the image, as the spec has it.
    pub image: String,
    /// Id of the image that the name resolved to.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// Id of the container, `podprobe://<id>`; empty until the container has one.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// True if the startup probe has passed. Without a startup probe, true if the container runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
    /// Requests of resources that were granted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated_resources: BTreeMap<String, Quantity>,
    /// Resources that are in effect; None until the container was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Mounts of the container's volumes, in the order of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMountStatus>,
    /// User and groups that the first process was started with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<ContainerUser>,
}

/// `user` of a container status: the user of the first process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerUser {
    /// User and groups on Linux.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxContainerUser>,
}

/// `user.linux` of a container status: user and groups on Linux.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinuxContainerUser {
    /// Numeric id of the user.
    pub uid: u32,
    /// Numeric id of the primary group.
    pub gid: u32,
    /// Ids of the groups in addition to the primary group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supplemental_groups: Vec<u32>,
}

/// An entry of `volumeMounts` of a container status: a mounted volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMountStatus {
    /// Name of the volume.
    pub name: String,
    /// Path of the mount in the container.
    pub mount_path: String,
    /// True if the mount is not writable.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Rule for mounts below a read-only mount: `Enabled` if they are read-only too, `Disabled` if they may be
    /// writable. None for a mount that is writable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive_read_only: Option<String>,
}

/// The state of a container: waiting, running or terminated. At most one of the fields is set. If none is set, the
/// state is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Set if the container does not run yet, or waits before its next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<ContainerStateWaiting>,
    /// Set if the container runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<ContainerStateRunning>,
    /// Set if the container has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<ContainerStateTerminated>,
}

/// `state.waiting` of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStateWaiting {
    /// Reason for waiting, such as `ContainerCreating`, `CrashLoopBackOff` or `ErrImageNeverPull`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Sentence that says why the container waits and what to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// `state.running` of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStateRunning {
    /// Start of the instance, by the wall clock.
    pub started_at: Option<Time>,
}

/// `state.terminated` of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStateTerminated {
    /// Exit code of the container. It is 128 + signal if a signal ended the container.
    pub exit_code: i32,
    /// Always None, as in the kubelet. The exit code shows the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Reason of the end: `Completed`, `Error`, `OOMKilled`, `ContainerStatusUnknown` or `StartError`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Termination message of the container.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Start of the instance, by the wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// End of the instance, by the wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Id of the instance that ended.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}
