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
    /// Name of the container: a DNS label, unique in the pod.
    pub name: String,
    /// Reference of the container's image, such as a name with a tag.
    pub image: String,
    /// When to pull the image: `Always`, `IfNotPresent` or `Never`. The default is Always for the tag `latest` or an
    /// image without tag, else IfNotPresent.
    pub image_pull_policy: String,
    /// Command of the container, which replaces the image's entrypoint; `$(VAR)` is expanded.
    pub command: Vec<String>,
    /// Arguments of the command, which replace the image's cmd; `$(VAR)` is expanded.
    pub args: Vec<String>,
    /// Working directory of the container, which replaces that of the image.
    pub working_dir: String,
    /// Ports of the container. The port names in probes and hooks are looked up in this list. Host ports may not
    /// conflict.
    pub ports: Vec<ContainerPort>,
    /// Environment variables. `$(VAR)` in a value is replaced by the value of an earlier variable.
    pub env: Vec<EnvVar>,
    /// ConfigMaps and Secrets that become variables, one for each key. A variable in `env` replaces the variable of
    /// the same name from these objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Limits and requests of resources.
    pub resources: ResourceRequirements,
    /// Rules that say which resources the container takes only when it starts; it takes all others while it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resize_policy: Vec<ContainerResizePolicy>,
    /// Volumes that the container mounts, with their paths.
    pub volume_mounts: Vec<VolumeMount>,
    /// Block volumes of the container. Podprobe has no block volumes, so each entry refuses the pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_devices: Vec<VolumeDevice>,
    /// Restart policy of the container, which replaces the pod's. An init container with the policy Always is a
    /// sidecar.
    #[serde(
        deserialize_with = "own_restart_policy",
        skip_serializing_if = "Option::is_none"
    )]
    pub restart_policy: Option<RestartPolicy>,
    /// Rules that replace the restart policy for some exit codes. The first rule that matches decides. At most 20
    /// rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart_policy_rules: Vec<RestartRule>,
    /// Probe that restarts the container when the probe fails.
    pub liveness_probe: Option<Probe>,
    /// Probe that decides about traffic: the container gets traffic only while the probe succeeds.
    pub readiness_probe: Option<Probe>,
    /// Probe that tells whether the container has started. Liveness and readiness are not probed until this probe has
    /// succeeded. If this probe fails, the container is restarted.
    pub startup_probe: Option<Probe>,
    /// Hooks that run after the container's start and before its end, and the signal that ends the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// Path of the termination message file in the container; default `/dev/termination-log`.
    pub termination_message_path: String,
    /// Where the termination message comes from: `File` (default) or `FallbackToLogsOnError`.
    pub termination_message_policy: String,
    /// Security settings: what the container may do.
    pub security_context: SecurityContext,
    /// True if the container's standard input stays open; otherwise the input is /dev/null.
    pub stdin: bool,
    /// True if the container's standard input ends when the first client that was attached to it leaves. The field has
    /// no effect if the container has a terminal.
    pub stdin_once: bool,
    /// True if the container gets a terminal. Its output is then a single stream.
    pub tty: bool,
}

impl Container {
    /// True if the container's own restart policy is Always; an init container with this policy is a sidecar.
    pub fn always_restarts(&self) -> bool {
        self.restart_policy == Some(RestartPolicy::Always)
    }

    /// Returns the absolute path of the termination message file in the container. A relative
    /// `terminationMessagePath` starts at the root.
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

    /// Returns the probe of that type, if the container has one.
    pub fn probe(&self, probe_type: ProbeType) -> Option<&Probe> {
        match probe_type {
            ProbeType::Startup => self.startup_probe.as_ref(),
            ProbeType::Readiness => self.readiness_probe.as_ref(),
            ProbeType::Liveness => self.liveness_probe.as_ref(),
        }
    }
}

/// A rule about one resource of a container that changes while it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResizePolicy {
    /// Name of the resource: `cpu` or `memory`.
    pub resource_name: String,
    /// `NotRequired`, or `RestartContainer` if the container takes another amount only when it starts.
    pub restart_policy: String,
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Name of the port: an IANA service name, unique in the container. It may be empty.
    pub name: String,
    /// Port of the container, 1–65535.
    pub container_port: i32,
    /// Port of the node that leads to the container, 1–65535; 0 means that there is none.
    pub host_port: i32,
    /// Address of the node for `hostPort`; empty means every address.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// Protocol of the port: TCP (default), UDP or SCTP.
    pub protocol: String,
}

/// `resources` of a container: its limits and requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    /// Limits by resource. `cpu`, `memory` and `hugepages-<size>` are enforced. `ephemeral-storage` is accepted, but
    /// not enforced. Any other name refuses the pod.
    pub limits: BTreeMap<String, Quantity>,
    /// Requests by resource; default the limits. The request of cpu becomes the cpu shares or weight of the cgroup.
    /// Requests of other resources are only counted.
    pub requests: BTreeMap<String, Quantity>,
}
