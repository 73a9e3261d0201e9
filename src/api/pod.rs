//! The typed view of a v1 Pod: exactly the fields podprobe acts on or validates, in the API's names.
//!
//! A field that is missing here is not acted on: [`super::decode`] reports it by path, and
//! [`super::support`] decides whether it refuses the pod or only warns. So adding a field here is a
//! promise to act.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{self, IgnoredAny, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::quantity::Quantity;
use super::raw_object::RawObject;
use super::source::PodSource;
use crate::base::pod_uid::PodUid;

/// The annotation of how much a pod may receive, in bits a second.
pub const INGRESS_BANDWIDTH: &str = "kubernetes.io/ingress-bandwidth";
/// The annotation of how much it may send.
pub const EGRESS_BANDWIDTH: &str = "kubernetes.io/egress-bandwidth";

mod names;

pub use names::{HostAlias, PodDnsConfig, PodDnsConfigOption};

/// Names a pod in texts: prints as `<name>_<namespace>(<uid>)`, the kubelet's form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`, with the node suffix for static pods.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: PodUid,
}

impl PodRef {
    /// `<name>_<namespace>`, the key under which static pods start one at a time (kubelet-probes 8.1).
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.name, self.namespace)
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}({})", self.name, self.namespace, self.uid)
    }
}

/// A v1 Pod: the typed view, and the raw object it was read from (defaults and static-pod fields applied to both).
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Name, namespace, UID, labels, annotations.
    pub metadata: ObjectMeta,
    /// The spec: what to run. Pods that differ in their metadata only share one spec.
    pub spec: Arc<PodSpec>,
    /// The whole object as JSON, every field the user wrote included; `status` in it is not kept current.
    pub raw: RawObject,
}

impl Pod {
    /// The spec, to change it. Pods that share it keep theirs.
    pub fn spec_mut(&mut self) -> &mut PodSpec {
        Arc::make_mut(&mut self.spec)
    }

    /// The pod's UID.
    pub fn uid(&self) -> &PodUid {
        &self.metadata.uid
    }

    /// Name, namespace and UID for texts and events.
    pub fn reference(&self) -> PodRef {
        PodRef {
            namespace: self.metadata.namespace.as_str().into(),
            name: self.metadata.name.as_str().into(),
            uid: self.metadata.uid.clone(),
        }
    }

    /// `<name>_<namespace>`.
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.metadata.name, self.metadata.namespace)
    }

    /// Returns the source that the pod comes from, by its annotation.
    pub fn source(&self) -> PodSource {
        PodSource::of_annotations(&self.metadata.annotations)
    }

    /// The container of this name, regular or init: names are unique among all containers.
    pub fn container(&self, name: &str) -> Option<&Container> {
        Some(self.spec.find(name)?.container)
    }

    /// The path of a container in the form of an event: `spec.initContainers{name}`, or
    /// `spec.containers{name}`.
    pub fn field_path(&self, container: &str) -> String {
        let found = self.spec.find(container);
        let list = found
            .map_or(ContainerType::Regular, |listed| listed.kind)
            .list();
        format!("spec.{list}{{{container}}}")
    }
}

/// `metadata` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// DNS subdomain, at most 253 characters.
    pub name: String,
    /// DNS label; `default` when a file leaves it out.
    pub namespace: String,
    /// Given in the file, or derived from its content, path and node.
    pub uid: PodUid,
    /// Labels, as written.
    pub labels: BTreeMap<String, String>,
    /// Annotations, as written plus `kubernetes.io/config.*`.
    pub annotations: BTreeMap<String, String>,
    /// Time of the deletion. Only an API server sets it; a static pod never carries one.
    pub deletion_timestamp: Option<String>,
    /// Grace period of the deletion in seconds. Only an API server sets it.
    pub deletion_grace_period_seconds: Option<i64>,
}

/// The parts of a v1 Pod that are read. `status` is known and not read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodObject {
    // Checked before typing; here so that they count as read.
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredText,
    #[serde(rename = "kind")]
    _kind: IgnoredText,
    pub(super) metadata: ObjectMeta,
    pub(super) spec: PodSpec,
}

/// A value that is read only to count as read.
#[derive(Debug, Default)]
pub(crate) struct IgnoredText;

impl<'de> Deserialize<'de> for IgnoredText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IgnoredAny).map(|_| Self)
    }
}

/// The rule that tells when a container that ended is started again (kubelet-probes 8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// After every exit; an empty text means the same.
    #[default]
    #[serde(alias = "")]
    Always,
    /// After an exit with a code other than 0.
    OnFailure,
    /// Never.
    Never,
}

/// `spec` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Containers that run before the regular ones, in order: a plain one to its end, a sidecar
    /// until it has started.
    pub init_containers: Vec<Container>,
    /// The regular containers; at least one.
    pub containers: Vec<Container>,
    /// Volumes the containers mount.
    pub volumes: Vec<Volume>,
    /// Default Always.
    pub restart_policy: RestartPolicy,
    /// Seconds between TERM and KILL; default 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// 1–2147483647 seconds since the start time.
    pub active_deadline_seconds: Option<i64>,
    /// The containers share the node's network.
    pub host_network: bool,
    /// The containers see the node's processes.
    #[serde(rename = "hostPID")]
    pub host_pid: bool,
    /// The containers see one another's processes; not with `hostPID`.
    pub share_process_namespace: bool,
    /// The containers get variables of the services of their namespace; decoded pods have true as the default.
    pub enable_service_links: bool,
    /// The containers share the node's System V IPC.
    #[serde(rename = "hostIPC")]
    pub host_ipc: bool,
    /// Name of the node. The file source sets it to the daemon's node name.
    pub node_name: String,
    /// The containers' host name; default the pod's name.
    pub hostname: String,
    /// Subdomain of the host name. With a cluster domain, the host name's domain is
    /// `<subdomain>.<namespace>.svc.<clusterDomain>`.
    pub subdomain: String,
    /// The containers' host name is the host name with its domain.
    #[serde(rename = "setHostnameAsFQDN")]
    pub set_hostname_as_fqdn: bool,
    /// The containers' host name, whatever `hostname` and `subdomain` say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname_override: Option<String>,
    /// Name of the configured runtime that runs the pod; None is the daemon's own runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// Conditions that must be True too before the pod is ready (kubelet-probes 9.4).
    pub readiness_gates: Vec<PodReadinessGate>,
    /// Secrets with logins of the registries that the images come from.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Further lines of the containers' /etc/hosts.
    pub host_aliases: Vec<HostAlias>,
    /// Resolver that the containers use: `ClusterFirst` (default), `ClusterFirstWithHostNet`, `Default` or `None`.
    pub dns_policy: String,
    /// Added to what the policy gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_config: Option<PodDnsConfig>,
    /// Defaults for the containers.
    pub security_context: PodSecurityContext,
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Affinity of the pod; only the required rules on the node have an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Validated only: a static pod is never evicted for a taint.
    pub tolerations: Vec<Toleration>,
    /// The operating system that the node must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<PodOs>,
    /// Resources that the pod costs the node besides its containers; an API server takes them from the runtime class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: BTreeMap<String, Quantity>,
    /// Resolved from the class by the decoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// `system-node-critical` and `system-cluster-critical` are known.
    pub priority_class_name: String,
}

/// `affinity`: only the required rules on the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Rules on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
}

/// `nodeAffinity`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// The pod is rejected on a node that does not match.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeSelector>,
}

/// Matches a node that any of its terms matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Terms of the selector; at least one.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Matches a node that all of its requirements match; without any it matches none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on the node's labels.
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on the node's fields; the only field is `metadata.name`.
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// A requirement on a label or a field of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorRequirement {
    /// Label or field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values to compare with: none for Exists and DoesNotExist, a single one for Gt and Lt.
    pub values: Vec<String>,
}

/// `tolerations[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Key of the tolerated taint; empty means every taint.
    pub key: String,
    /// `Equal` (also when empty) or `Exists`.
    pub operator: String,
    /// Value of the tolerated taint.
    pub value: String,
    /// Effect of the tolerated taint: empty (every effect), `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Seconds for which the pod tolerates the taint; allowed with NoExecute only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// `readinessGates[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodReadinessGate {
    /// The type of the condition, a qualified name such as `example.com/registered`.
    pub condition_type: String,
}

/// `os`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodOs {
    /// `linux` or `windows`.
    pub name: String,
}

/// The list of the spec that a container is in (the kubelet's `podutil.ContainerType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerType {
    /// `spec.initContainers`, sidecars included.
    Init,
    /// `spec.containers`.
    Regular,
}

impl ContainerType {
    /// The field of the spec.
    pub fn list(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Regular => "containers",
        }
    }
}

/// A container and its place in the spec.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Kind of the container, which tells the list that it is in.
    pub kind: ContainerType,
    /// Index of the container in that list.
    pub index: usize,
    /// The container.
    pub container: &'a Container,
}

impl Listed<'_> {
    /// Returns the container's path as errors print it: `spec.initContainers[0]`.
    pub fn path(&self) -> String {
        format!("spec.{}[{}]", self.kind.list(), self.index)
    }
}

impl PodSpec {
    /// Every container with its place: init containers, then regular ones, each in spec order. It is the one walk over all
    /// containers: a further list of containers is added here.
    pub fn listed(&self) -> impl DoubleEndedIterator<Item = Listed<'_>> + Clone {
        let init = (ContainerType::Init, &self.init_containers);
        let regular = (ContainerType::Regular, &self.containers);
        [init, regular].into_iter().flat_map(|(kind, list)| {
            let places = list.iter().enumerate();
            places.map(move |(index, container)| Listed {
                kind,
                index,
                container,
            })
        })
    }

    /// Every container in the order of [`Self::listed`], without its place.
    pub fn all_containers(&self) -> impl DoubleEndedIterator<Item = &Container> + Clone {
        self.listed().map(|listed| listed.container)
    }

    /// The container of this name and its place: names are unique among all containers.
    pub fn find(&self, name: &str) -> Option<Listed<'_>> {
        self.listed().find(|listed| listed.container.name == name)
    }

    /// True if the container of that name is an init container; a sidecar is one.
    pub fn is_init(&self, name: &str) -> bool {
        let found = self.find(name);
        found.is_some_and(|listed| listed.kind == ContainerType::Init)
    }

    /// The init containers that go on running beside the regular ones, in spec order.
    pub fn sidecars(&self) -> impl DoubleEndedIterator<Item = &Container> {
        self.init_containers.iter().filter(|c| c.always_restarts())
    }

    /// True if the container of that name is a sidecar.
    pub fn is_sidecar(&self, name: &str) -> bool {
        self.sidecars().any(|c| c.name == name)
    }
}

/// `spec.securityContext`: defaults for every container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSecurityContext {
    /// Numeric user, 0–2147483647.
    pub run_as_user: Option<i64>,
    /// Numeric group, 0–2147483647.
    pub run_as_group: Option<i64>,
    /// Refuses to start a container whose user is 0.
    pub run_as_non_root: Option<bool>,
    /// Further groups of each container's first process.
    pub supplemental_groups: Vec<i64>,
    /// `Merge` (default): the groups that the image gives its user come to them. `Strict`: they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_groups_policy: Option<String>,
    /// The group of every volume but hostPath, and a further group of each container; 0–2147483647.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// `Always` (default), or `OnRootMismatch`: a volume whose root has the group is left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group_change_policy: Option<String>,
    /// Default `Unconfined`.
    pub seccomp_profile: Option<SeccompProfile>,
    /// Default: the runtime's own where the node has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<AppArmorProfile>,
    /// Kernel parameters of the pod's own namespaces.
    pub sysctls: Vec<Sysctl>,
}

/// `sysctls[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sysctl {
    /// Name of the parameter, with dots or slashes between its parts.
    pub name: String,
    /// Value of the parameter, as the kernel takes it.
    pub value: String,
}

/// `seccompProfile`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompProfile {
    /// `Unconfined`, `RuntimeDefault` or `Localhost`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `Localhost`: path of the profile below the seccomp directory of the root, without `..`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
}

/// `appArmorProfile`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppArmorProfile {
    /// `Unconfined`, `RuntimeDefault` or `Localhost`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `Localhost`: the name of a profile that is loaded on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
}

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

/// Unlike the pod's policy, a container's own policy may not be empty: read as Always it would make
/// a sidecar.
fn own_restart_policy<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<RestartPolicy>, D::Error> {
    #[derive(Deserialize)]
    enum Own {
        Always,
        OnFailure,
        Never,
    }
    let own = Option::<Own>::deserialize(from)?;
    Ok(own.map(|own| match own {
        Own::Always => RestartPolicy::Always,
        Own::OnFailure => RestartPolicy::OnFailure,
        Own::Never => RestartPolicy::Never,
    }))
}

/// A rule of `restartPolicyRules` (kubelet-probes 8.2, 8.6).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartRule {
    /// `Restart`, or `RestartAllContainers` for the whole pod.
    pub action: String,
    /// The exit codes that the rule is for; required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_codes: Option<RestartExitCodes>,
}

/// `exitCodes` of a restart rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartExitCodes {
    /// `In` or `NotIn`.
    pub operator: String,
    /// Exit codes to compare with, at most 255 of them.
    pub values: Vec<i32>,
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

/// An environment variable with a literal value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Printable ASCII without `=`.
    pub name: String,
    /// May hold `$(VAR)`.
    pub value: String,
    /// Source of the value, if `value` does not give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// `valueFrom` of a variable: exactly one of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVarSource {
    /// A field of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
    /// A limit or request of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldSelector>,
    /// A key of a ConfigMap in the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeySelector>,
    /// A key of a Secret in the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeySelector>,
}

/// `fieldRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectFieldSelector {
    /// `v1`, which is the default.
    pub api_version: String,
    /// `metadata.name`, `metadata.labels['x']`, `status.podIP`, …
    pub field_path: String,
}

/// `resourceFieldRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFieldSelector {
    /// Name of the container. In a variable an empty name means the container itself; in a volume the name is required.
    pub container_name: String,
    /// `limits.cpu`, `requests.memory`, …
    pub resource: String,
    /// The unit of the value; 1 when it is missing or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Quantity>,
}

/// `configMapKeyRef` and `secretKeyRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeySelector {
    /// Name of the object.
    pub name: String,
    /// Key in the object's data.
    pub key: String,
    /// True if a missing object or key leaves the variable out.
    pub optional: Option<bool>,
}

/// Names an object in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalObjectReference {
    /// Name of the object; an empty name is allowed and names nothing.
    pub name: String,
}

/// An entry of `envFrom`: exactly one of the two references.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvFromSource {
    /// Put before each key.
    pub prefix: String,
    /// Every key of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ObjectReference>,
    /// Every key of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<ObjectReference>,
}

/// `configMapRef` and `secretRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Name of the object.
    pub name: String,
    /// True if the object may be missing.
    pub optional: Option<bool>,
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

/// The absolute form of a path that the API allows to be relative: it starts at the root.
fn below_root(path: &str) -> Cow<'_, str> {
    if path.is_empty() || path.starts_with('/') {
        path.into()
    } else {
        format!("/{path}").into()
    }
}

/// A volume at a path in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// Name of a volume of the pod.
    pub name: String,
    /// Path in the container, as written: see [`VolumeMount::destination`].
    pub mount_path: String,
    /// Default false.
    pub read_only: bool,
    /// Path below the volume, without `..`; empty is the volume itself.
    pub sub_path: String,
    /// Path below the volume in which `$(VAR)` is expanded; excludes `subPath`.
    pub sub_path_expr: String,
    /// `None` (default), `HostToContainer`, or `Bidirectional` in a privileged container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_propagation: Option<String>,
    /// `Disabled` (default), `IfPossible` or `Enabled`: whether read-only counts for the mounts below the volume too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive_read_only: Option<String>,
}

impl VolumeMount {
    /// The absolute path in the container; a relative `mountPath` is taken from the root.
    pub fn destination(&self) -> Cow<'_, str> {
        below_root(&self.mount_path)
    }
}

/// A block volume at a path in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeDevice {
    /// Name of a persistentVolumeClaim of the pod.
    pub name: String,
    /// Path in the container, without `..`.
    pub device_path: String,
}

/// A volume: exactly one of its sources. Without one it is an emptyDir (kubelet-probes 1.1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// DNS label, unique in the pod.
    pub name: String,
    /// A directory that lives as long as the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
    /// A path of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<HostPath>,
    /// Keys of a ConfigMap as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolume>,
    /// Keys of a Secret as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolume>,
    /// Fields of the pod as files.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardApiVolume>,
    /// Several sources in one directory: ConfigMaps, Secrets and fields of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projected: Option<ProjectedVolume>,
    /// A directory that outlives the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// The files of an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageVolume>,
}

impl Volume {
    /// True if the volume names its source.
    pub fn has_source(&self) -> bool {
        let of_the_node =
            self.empty_dir.is_some() || self.host_path.is_some() || self.image.is_some();
        let of_objects = self.config_map.is_some()
            || self.secret.is_some()
            || self.downward_api.is_some()
            || self.projected.is_some()
            || self.persistent_volume_claim.is_some();
        of_the_node || of_objects
    }
}

/// A key of an object as a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyToPath {
    /// The key.
    pub key: String,
    /// Path below the volume: relative, without `..`, and not beginning with `..`.
    pub path: String,
    /// Permission bits, 0–511 (0777); the volume's `defaultMode` when it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i32>,
}

/// `configMap` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapVolume {
    /// A ConfigMap of the pod's namespace.
    pub name: String,
    /// Keys that become files; empty means all, each as a file of its name.
    pub items: Vec<KeyToPath>,
    /// Permission bits, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
    /// True if the ConfigMap, or a key of `items`, may be missing.
    pub optional: Option<bool>,
}

/// `secret` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretVolume {
    /// A Secret of the pod's namespace.
    pub secret_name: String,
    /// Keys of the Secret that become files; empty means all, each as a file of its name.
    pub items: Vec<KeyToPath>,
    /// Permission bits of the files; same meaning and default as in a ConfigMap volume.
    pub default_mode: Option<i32>,
    /// True if the Secret, or a key of `items`, may be missing.
    pub optional: Option<bool>,
}

/// `downwardAPI` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiVolume {
    /// Files of the volume.
    pub items: Vec<DownwardApiFile>,
    /// Permission bits, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
}

/// A file of a downwardAPI volume: exactly one of the two references.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiFile {
    /// Path below the volume, as of a key.
    pub path: String,
    /// `metadata.name`, `namespace`, `uid`, `labels` or `annotations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
    /// A limit or request of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldSelector>,
    /// Permission bits; the volume's `defaultMode` when it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i32>,
}

/// `projected` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectedVolume {
    /// Sources in order: a later one replaces a file of an earlier one.
    pub sources: Vec<VolumeProjection>,
    /// Permission bits, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
}

/// A source of a projected volume: one of its three fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeProjection {
    /// Keys of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ObjectProjection>,
    /// Keys of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<ObjectProjection>,
    /// Fields of the pod.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardApiProjection>,
}

/// `configMap` and `secret` of a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectProjection {
    /// An object of the pod's namespace.
    pub name: String,
    /// Keys that become files; empty means all.
    pub items: Vec<KeyToPath>,
    /// True if the object, or a key of `items`, may be missing.
    pub optional: Option<bool>,
}

/// `downwardAPI` of a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiProjection {
    /// Files that this source adds to the projected volume.
    pub items: Vec<DownwardApiFile>,
}

/// `persistentVolumeClaim` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    /// A PersistentVolumeClaim of the pod's namespace.
    pub claim_name: String,
    /// True makes every mount of the claim read-only.
    pub read_only: bool,
}

/// `image` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageVolume {
    /// The image, named as that of a container.
    pub reference: String,
    /// `Always` (default for `:latest` and without a tag), `IfNotPresent` (default otherwise) or `Never`.
    pub pull_policy: String,
}

/// `emptyDir`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EmptyDir {
    /// Medium of the files: empty (the node's disk), `Memory` (a tmpfs), or `HugePages` and `HugePages-<size>` (a
    /// hugetlbfs).
    pub medium: String,
    /// Limit of the volume's size. A volume in memory takes no more than this; a pod whose volume on the disk is over
    /// it is evicted. 0 is no limit.
    pub size_limit: Option<Quantity>,
}

/// `hostPath`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostPath {
    /// Path on the node without `..`, as written: see [`HostPath::on_node`].
    pub path: String,
    /// Type that the path must have: empty (no check), DirectoryOrCreate, Directory, FileOrCreate, File, Socket,
    /// CharDevice, BlockDevice.
    #[serde(rename = "type")]
    pub type_: String,
}

impl HostPath {
    /// The absolute path on the node; a relative `path` is taken from the root.
    pub fn on_node(&self) -> Cow<'_, str> {
        below_root(&self.path)
    }
}

/// `securityContext` of a container; each field wins over the pod's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityContext {
    /// Added to and dropped from containerd's default set; names in any case, with or without `CAP_`, or `ALL`.
    pub capabilities: Capabilities,
    /// True gives the container all capabilities and all devices, and masks nothing.
    pub privileged: Option<bool>,
    /// Numeric user.
    pub run_as_user: Option<i64>,
    /// Numeric group.
    pub run_as_group: Option<i64>,
    /// Refuses user 0.
    pub run_as_non_root: Option<bool>,
    /// The root file system is mounted read-only.
    pub read_only_root_filesystem: Option<bool>,
    /// false sets no_new_privs.
    pub allow_privilege_escalation: Option<bool>,
    /// Default the pod's; a privileged container has none.
    pub seccomp_profile: Option<SeccompProfile>,
    /// Default the pod's; a privileged container has only one that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<AppArmorProfile>,
}

/// `capabilities`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// Added, after the drops.
    pub add: Vec<String>,
    /// Dropped.
    pub drop: Vec<String>,
}

/// The three probes of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProbeType {
    /// The other two probes wait until it has succeeded once.
    Startup,
    /// Decides whether the container gets traffic.
    Readiness,
    /// Decides whether the container is restarted.
    Liveness,
}

impl ProbeType {
    /// All types of probes, in the order in which workers are added (kubelet-probes 4.2 A2).
    pub const ALL: [ProbeType; 3] = [
        ProbeType::Startup,
        ProbeType::Readiness,
        ProbeType::Liveness,
    ];

    /// `Startup`, `Readiness`, `Liveness`: the form of events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ProbeType::Startup => "Startup",
            ProbeType::Readiness => "Readiness",
            ProbeType::Liveness => "Liveness",
        }
    }

    /// Returns the lower-case word, as commands and messages use it: `startup`, `readiness` or `liveness`.
    pub fn word(self) -> &'static str {
        match self {
            ProbeType::Startup => "startup",
            ProbeType::Readiness => "readiness",
            ProbeType::Liveness => "liveness",
        }
    }
}

impl fmt::Display for ProbeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A probe: when to probe and how. Numbers are after defaults (kubelet-probes 1.1); negative ones never pass validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// Seconds after the container's start; default 0.
    pub initial_delay_seconds: i32,
    /// Timeout in seconds; default 1.
    pub timeout_seconds: i32,
    /// Period in seconds; default 10.
    pub period_seconds: i32,
    /// Initial delay in milliseconds, 0 or at least 10; used instead of the seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_delay_milliseconds: Option<i32>,
    /// Timeout in milliseconds, at least 10; counts instead of the seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_milliseconds: Option<i32>,
    /// Period in milliseconds, at least 10; counts instead of the seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_milliseconds: Option<i32>,
    /// Successes in a row; default 1.
    pub success_threshold: i32,
    /// Failures in a row; default 3.
    pub failure_threshold: i32,
    /// Grace period in seconds, for liveness and startup probes only: it replaces the pod's grace period when the probe
    /// kills (kubelet-probes 8.5).
    pub termination_grace_period_seconds: Option<i64>,
    /// Run a command in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// GET a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGetAction>,
    /// Open a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocketAction>,
    /// Call grpc.health.v1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcAction>,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            initial_delay_seconds: 0,
            timeout_seconds: 1,
            period_seconds: 10,
            initial_delay_milliseconds: None,
            timeout_milliseconds: None,
            period_milliseconds: None,
            success_threshold: 1,
            failure_threshold: 3,
            termination_grace_period_seconds: None,
            exec: None,
            http_get: None,
            tcp_socket: None,
            grpc: None,
        }
    }
}

/// The one handler of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Handler<'a> {
    /// Run a command in the container.
    Exec(&'a ExecAction),
    /// GET a URL.
    HttpGet(&'a HttpGetAction),
    /// Open a connection.
    TcpSocket(&'a TcpSocketAction),
    /// Call grpc.health.v1.
    Grpc(&'a GrpcAction),
}

impl Probe {
    /// The handler; the first present in the order exec, httpGet, tcpSocket, grpc. None never passes validation.
    pub fn handler(&self) -> Option<Handler<'_>> {
        let exec = self.exec.as_ref().map(Handler::Exec);
        exec.or(self.http_get.as_ref().map(Handler::HttpGet))
            .or(self.tcp_socket.as_ref().map(Handler::TcpSocket))
            .or(self.grpc.as_ref().map(Handler::Grpc))
    }

    /// Time between two probes.
    pub fn period(&self) -> Duration {
        time(self.period_milliseconds, self.period_seconds)
    }

    /// Returns the longest time of one try.
    pub fn timeout(&self) -> Duration {
        time(self.timeout_milliseconds, self.timeout_seconds)
    }

    /// Time from the container's start to its first probe.
    pub fn initial_delay(&self) -> Duration {
        time(self.initial_delay_milliseconds, self.initial_delay_seconds)
    }
}

/// The milliseconds if they are given, else the seconds.
fn time(milliseconds: Option<i32>, seconds: i32) -> Duration {
    match milliseconds {
        Some(milliseconds) => Duration::from_millis(milliseconds.max(0) as u64),
        None => Duration::from_secs(seconds.max(0) as u64),
    }
}

/// `lifecycle` (kubelet-probes 8.5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lifecycle {
    /// Runs after the container has started. If it fails, the container is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_start: Option<Hook>,
    /// Runs before the container is told to stop, within the grace period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<Hook>,
    /// `SIGUSR1`, `SIGRTMIN+3`; replaces the stop signal of the image. Needs `spec.os.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

/// The two hooks of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookKind {
    /// After the start.
    PostStart,
    /// Before the stop signal.
    PreStop,
}

impl HookKind {
    /// Both kinds, in the order of the API's errors.
    pub const ALL: [Self; 2] = [Self::PostStart, Self::PreStop];

    /// Returns the name of the hook's field in `lifecycle`.
    pub fn field(self) -> &'static str {
        match self {
            Self::PostStart => "postStart",
            Self::PreStop => "preStop",
        }
    }
}

/// A hook: exactly one of its fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hook {
    /// Run a command in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// GET a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGetAction>,
    /// Valid, but it always fails: the API keeps the field for old objects only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocketAction>,
    /// Wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepAction>,
}

/// `sleep` of a hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SleepAction {
    /// Seconds to sleep, from 0 to the grace period of the pod.
    pub seconds: i64,
}

/// `exec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecAction {
    /// Run directly, no shell.
    pub command: Vec<String>,
}

/// A port given as a number or as a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A name, or digits (kubelet-probes 3.3).
    String(String),
}

impl<'de> Deserialize<'de> for IntOrString {
    /// Written by hand, because the error of a derived untagged enum does not say what was
    /// expected.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Port;
        impl Visitor<'_> for Port {
            type Value = IntOrString;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port number or the name of a port")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<IntOrString, E> {
                i32::try_from(number)
                    .map(IntOrString::Int)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<IntOrString, E> {
                i32::try_from(number)
                    .map(IntOrString::Int)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
        }
        deserializer.deserialize_any(Port)
    }
}

impl Default for IntOrString {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => n.fmt(f),
            Self::String(s) => s.fmt(f),
        }
    }
}

/// `httpGet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpGetAction {
    /// Default `/`.
    pub path: String,
    /// Number or name of a port of the same container.
    pub port: IntOrString,
    /// Default the pod's IP.
    pub host: String,
    /// `HTTP` (default) or `HTTPS`.
    pub scheme: String,
    /// Headers of the request, in order; repeats are allowed.
    pub http_headers: Vec<HttpHeader>,
}

/// A header of `httpGet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpHeader {
    /// `[-A-Za-z0-9]+`.
    pub name: String,
    /// Value of the header, which is not validated.
    pub value: String,
}

/// `tcpSocket`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpSocketAction {
    /// Number or name of a port of the same container.
    pub port: IntOrString,
    /// Default the pod's IP.
    pub host: String,
}

/// `grpc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcAction {
    /// Port of the server, 1–65535.
    pub port: i32,
    /// Name of the service to ask about; default the empty name.
    pub service: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_is_taken_from_the_root() {
        for (written, absolute) in [("a/b", "/a/b"), ("/a", "/a"), ("", "")] {
            let mount = VolumeMount {
                mount_path: written.into(),
                ..Default::default()
            };
            let host = HostPath {
                path: written.into(),
                ..Default::default()
            };
            let container = Container {
                termination_message_path: written.into(),
                ..Default::default()
            };
            assert_eq!(mount.destination(), absolute);
            assert_eq!(host.on_node(), absolute);
            assert_eq!(container.termination_message_destination(), absolute);
        }
    }
}
