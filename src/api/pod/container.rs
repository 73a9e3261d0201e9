//! A container of a pod, with its ports and resources.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::environment::{EnvFromSource, EnvVar};
use super::lifecycle::{Hook, HookKind, Lifecycle};
use super::probes::{Probe, ProbeType};
use super::restart::{RestartPolicy, RestartRule, own_restart_policy};
use super::security::SecurityContext;
use super::volumes::{VolumeDevice, VolumeMount, below_root};
use crate::api::quantity::Quantity;

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// DNS label, unique in the pod.
    pub name: String,
    /// Image reference, resolved among the loaded images.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`. Default Always for `:latest` or no tag, else IfNotPresent.
    pub image_pull_policy: String,
    /// Replaces the image's entrypoint; `$(VAR)` is expanded.
    pub command: Vec<String>,
    /// Replaces the image's cmd; `$(VAR)` is expanded.
    pub args: Vec<String>,
    /// Replaces the image's working directory.
    pub working_dir: String,
    /// Ports, for named lookup and host port conflicts.
    pub ports: Vec<ContainerPort>,
    /// Variables; `$(VAR)` is expanded against earlier ones.
    pub env: Vec<EnvVar>,
    /// Whole objects as variables, which `env` wins over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Limits and requests.
    pub resources: ResourceRequirements,
    /// Volumes at paths.
    pub volume_mounts: Vec<VolumeMount>,
    /// Block volumes at paths. No volume is one here, so each entry refuses the pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_devices: Vec<VolumeDevice>,
    /// Wins over the pod's; Always makes a sidecar of an init container.
    #[serde(
        deserialize_with = "own_restart_policy",
        skip_serializing_if = "Option::is_none"
    )]
    pub restart_policy: Option<RestartPolicy>,
    /// Exceptions from its restart policy by exit code; the first that matches decides. At most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart_policy_rules: Vec<RestartRule>,
    /// A failure restarts the container.
    pub liveness_probe: Option<Probe>,
    /// The container gets traffic only while it succeeds.
    pub readiness_probe: Option<Probe>,
    /// The other two probes wait for its success; a failure restarts the container.
    pub startup_probe: Option<Probe>,
    /// Hooks that run after the container's start and before its end, and the signal that ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// Default `/dev/termination-log`.
    pub termination_message_path: String,
    /// `File` (default) or `FallbackToLogsOnError`.
    pub termination_message_policy: String,
    /// Security settings: what the container may do.
    pub security_context: SecurityContext,
    /// True keeps the container's standard input open; otherwise the input is /dev/null.
    pub stdin: bool,
    /// True ends the container's standard input with the first client that has attached to it. Nothing attaches yet, so
    /// the input stays open.
    pub stdin_once: bool,
    /// True gives the container a terminal; its output is then one stream.
    pub tty: bool,
}

impl Container {
    /// True if the container's own restart policy is Always; an init container with this policy is a sidecar.
    pub fn always_restarts(&self) -> bool {
        self.restart_policy == Some(RestartPolicy::Always)
    }

    /// The absolute path of the message file in the container; a relative `terminationMessagePath` is taken from the root.
    pub fn termination_message_destination(&self) -> Cow<'_, str> {
        below_root(&self.termination_message_path)
    }

    /// Returns the container's hook of that kind, if there is one.
    pub fn hook(&self, kind: HookKind) -> Option<&Hook> {
        let lifecycle = self.lifecycle.as_ref()?;
        match kind {
            HookKind::PostStart => lifecycle.post_start.as_ref(),
            HookKind::PreStop => lifecycle.pre_stop.as_ref(),
        }
    }

    /// Returns the stop signal that the spec gives the container.
    pub fn stop_signal(&self) -> Option<&str> {
        self.lifecycle.as_ref()?.stop_signal.as_deref()
    }

    /// The probe of that type, if the container has one.
    pub fn probe(&self, probe_type: ProbeType) -> Option<&Probe> {
        match probe_type {
            ProbeType::Startup => self.startup_probe.as_ref(),
            ProbeType::Readiness => self.readiness_probe.as_ref(),
            ProbeType::Liveness => self.liveness_probe.as_ref(),
        }
    }
}

/// A container port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// IANA service name, unique in the container; may be empty.
    pub name: String,
    /// Port of the container, 1–65535.
    pub container_port: i32,
    /// Port of the node that leads to the container: 0 (none) or 1–65535.
    pub host_port: i32,
    /// Address of the node for `hostPort`; empty means every address.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// TCP (default), UDP or SCTP.
    pub protocol: String,
}

/// `resources`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    /// `cpu`, `memory` and `hugepages-<size>` are enforced, `ephemeral-storage` is not; any other name refuses the pod.
    pub limits: BTreeMap<String, Quantity>,
    /// cpu becomes shares or weight; others are counted only. Default: the limits.
    pub requests: BTreeMap<String, Quantity>,
}
