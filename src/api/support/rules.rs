//! The table of the fields that no type reads: every object of a pod, with a rule for each such field.
//!
//! The names of fields are those of core/v1. A field that is neither in the table nor read by a type is unknown.

use serde_json::Value;

use super::fields;
use crate::api::pod::*;
use crate::api::source::PodSource;

/// A rule for a field that no type reads.
pub(super) enum Rule {
    /// The field has no meaning for a container, so podprobe does not warn.
    Fine,
    /// The field does not change what a container sees or may do. A warning gives this reason.
    Warn(&'static str),
    /// The field has no meaning for a container, and without an API server it does not give what a reader expects. A warning
    /// gives this reason for the pods of all other sources.
    WarnWithoutApi(&'static str),
    /// The field changes nothing. A warning gives this reason, unless the function returns true for the value.
    WarnUnless(fn(&Value) -> bool, &'static str),
    /// The field refuses the pod unless its value is false or empty.
    Refuse(&'static str),
    /// The field refuses the pod unless it has one of these values.
    Only(&'static [&'static str], &'static str),
    /// The field refuses the pod even if it is empty, because its presence has a meaning.
    Source(&'static str),
    /// The field names an object of the API, and the node has no such objects. The field refuses the pod unless its
    /// value is false or empty.
    Reference(&'static str),
    /// The field names an object of the API, and the node has no such objects. The field refuses the pod even if its
    /// value is empty.
    ReferenceSource(&'static str),
}

/// The level of an object inside of a pod: its path, the fields that a type reads, and rules for the other fields.
pub(super) struct Level {
    /// Path of the object without indexes. `probe` stands for each of the three probes, `hook` for both hooks, and
    /// `containers` also for init containers.
    pub(super) at: &'static str,
    read: fn() -> &'static [&'static str],
    rest: &'static [(&'static str, Rule)],
    /// True if an unknown field refuses the pod.
    pub(super) strict: bool,
}

impl Level {
    /// Returns the names of the fields that a type reads.
    pub(super) fn fields(&self) -> &'static [&'static str] {
        (self.read)()
    }

    /// Returns the names of all known fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields()
            .iter()
            .copied()
            .chain(self.rest.iter().map(|(name, _)| *name))
    }

    /// Returns the rule for a field that no type reads.
    pub(super) fn rule(&self, name: &str) -> Option<&'static Rule> {
        self.rest
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, rule)| rule)
    }
}

const NOT_SCHEDULED: &str = "a pod here is on its node already, nothing is scheduled";
const NO_SERVICE_ACCOUNT: &str =
    "there is no API server, so the containers get no token of a service account";
const NO_SELINUX: &str =
    "podprobe sets no SELinux labels; a kernel without SELinux, as most have, knows none either";
const NO_WINDOWS: &str = "podprobe runs Linux containers";
const OTHER_VOLUME: &str = "volumes of this type are not supported: emptyDir, hostPath, configMap, secret, downwardAPI, projected, persistentVolumeClaim and image are";

const TOP: &[(&str, Rule)] = &[("status", Rule::Fine)];

const METADATA: &[(&str, Rule)] = &[
    ("generateName", Rule::Fine),
    ("creationTimestamp", Rule::Fine),
    ("resourceVersion", Rule::Fine),
    ("selfLink", Rule::Fine),
    ("clusterName", Rule::Fine),
    ("ownerReferences", Rule::Fine),
    ("finalizers", Rule::Fine),
    ("managedFields", Rule::Fine),
];

const SPEC: &[(&str, Rule)] = &[
    // deviations: service-accounts
    (
        "serviceAccountName",
        Rule::WarnWithoutApi(NO_SERVICE_ACCOUNT),
    ),
    ("serviceAccount", Rule::WarnWithoutApi(NO_SERVICE_ACCOUNT)),
    (
        "automountServiceAccountToken",
        Rule::WarnWithoutApi(NO_SERVICE_ACCOUNT),
    ),
    ("resourceClaims", Rule::Reference("resourceclaims")),
    (
        "resources",
        Rule::Refuse("limits of the whole pod are not supported: give each container its own"),
    ),
    (
        "hostUsers",
        Rule::Only(
            &["true"],
            "user namespaces are not supported: the containers' users are the node's",
        ),
    ),
    (
        "schedulingGates",
        Rule::Refuse("a pod with nodeName may not have scheduling gates, and a pod here has one"),
    ),
    ("topologySpreadConstraints", Rule::Warn(NOT_SCHEDULED)),
    (
        "schedulerName",
        Rule::WarnUnless(|name| name == "default-scheduler", NOT_SCHEDULED),
    ),
    ("schedulingGroup", Rule::Warn(NOT_SCHEDULED)),
    ("workloadRef", Rule::Warn(NOT_SCHEDULED)),
    (
        "preemptionPolicy",
        Rule::WarnUnless(
            |policy| policy == "PreemptLowerPriority",
            "pods are not evicted for one another",
        ),
    ),
];

const AFFINITY: &[(&str, Rule)] = &[
    ("podAffinity", Rule::Warn(NOT_SCHEDULED)),
    ("podAntiAffinity", Rule::Warn(NOT_SCHEDULED)),
];

const NODE_AFFINITY: &[(&str, Rule)] = &[(
    "preferredDuringSchedulingIgnoredDuringExecution",
    Rule::Warn(NOT_SCHEDULED),
)];

const POD_SECURITY: &[(&str, Rule)] = &[
    ("seLinuxOptions", Rule::Warn(NO_SELINUX)),
    ("seLinuxChangePolicy", Rule::Warn(NO_SELINUX)),
    ("windowsOptions", Rule::Warn(NO_WINDOWS)),
];

/// The fields of a container that an ephemeral one never has, because an API server refuses them.
const EPHEMERAL: &[(&str, Rule)] = &[
    ("ports", Rule::Fine),
    ("livenessProbe", Rule::Fine),
    ("readinessProbe", Rule::Fine),
    ("startupProbe", Rule::Fine),
    ("lifecycle", Rule::Fine),
    ("resources", Rule::Fine),
    ("resizePolicy", Rule::Fine),
    ("restartPolicy", Rule::Fine),
    ("restartPolicyRules", Rule::Fine),
    ("volumeDevices", Rule::Fine),
];

const VALUE_FROM: &[(&str, Rule)] = &[(
    "fileKeyRef",
    Rule::Source("not supported: write the variable into env, or into a ConfigMap"),
)];

const RESOURCES: &[(&str, Rule)] = &[("claims", Rule::Reference("resourceclaims"))];

const SECURITY: &[(&str, Rule)] = &[
    (
        "procMount",
        Rule::Only(
            &["", "Default"],
            "`hostUsers` must be false to use `Unmasked`, and user namespaces are not supported: only \"Default\" is",
        ),
    ),
    ("seLinuxOptions", Rule::Warn(NO_SELINUX)),
    ("windowsOptions", Rule::Warn(NO_WINDOWS)),
];

const SECCOMP: &[(&str, Rule)] = &[];

const VOLUME: &[(&str, Rule)] = &[
    ("csi", Rule::ReferenceSource("csidrivers (via CSI volumes)")),
    (
        "glusterfs",
        Rule::ReferenceSource("endpoints (via glusterFS volumes)"),
    ),
    (
        "ephemeral",
        Rule::ReferenceSource("persistentvolumeclaims (via ephemeral volumes)"),
    ),
    (
        "azureFile",
        Rule::ReferenceSource("secrets (via azureFile volumes)"),
    ),
    ("nfs", Rule::Source(OTHER_VOLUME)),
    ("iscsi", Rule::Source(OTHER_VOLUME)),
    ("rbd", Rule::Source(OTHER_VOLUME)),
    ("cephfs", Rule::Source(OTHER_VOLUME)),
    ("cinder", Rule::Source(OTHER_VOLUME)),
    ("fc", Rule::Source(OTHER_VOLUME)),
    ("flexVolume", Rule::Source(OTHER_VOLUME)),
    ("flocker", Rule::Source(OTHER_VOLUME)),
    ("gitRepo", Rule::Source(OTHER_VOLUME)),
    ("azureDisk", Rule::Source(OTHER_VOLUME)),
    ("awsElasticBlockStore", Rule::Source(OTHER_VOLUME)),
    ("gcePersistentDisk", Rule::Source(OTHER_VOLUME)),
    ("photonPersistentDisk", Rule::Source(OTHER_VOLUME)),
    ("portworxVolume", Rule::Source(OTHER_VOLUME)),
    ("quobyte", Rule::Source(OTHER_VOLUME)),
    ("scaleIO", Rule::Source(OTHER_VOLUME)),
    ("storageos", Rule::Source(OTHER_VOLUME)),
    ("vsphereVolume", Rule::Source(OTHER_VOLUME)),
];

/// Name of the objects whose tokens a `serviceAccountToken` source asks for, with the way out.
pub(super) const SERVICE_ACCOUNTS: &str = "serviceaccounts (via projected volumes): only an API server issues their tokens, and there is none; remove the volume and its volumeMounts";

const PROJECTION: &[(&str, Rule)] = &[
    (
        "clusterTrustBundle",
        Rule::ReferenceSource(
            "clustertrustbundles: only an API server has them, and there is none",
        ),
    ),
    (
        "podCertificate",
        Rule::ReferenceSource("podcertificates: only an API server issues them, and there is none"),
    ),
];

/// Returns the level of an object whose unknown fields only cause warnings.
const fn open(
    at: &'static str,
    read: fn() -> &'static [&'static str],
    rest: &'static [(&'static str, Rule)],
) -> Level {
    Level {
        at,
        read,
        rest,
        strict: false,
    }
}

/// Returns the level of an object whose unknown fields refuse the pod.
const fn strict(
    at: &'static str,
    read: fn() -> &'static [&'static str],
    rest: &'static [(&'static str, Rule)],
) -> Level {
    Level {
        at,
        read,
        rest,
        strict: true,
    }
}

/// The levels of all objects of a pod.
pub(super) static LEVELS: [Level; 79] = [
    open("", fields::of::<PodObject>, TOP),
    open("metadata", fields::of::<ObjectMeta>, METADATA),
    open("spec", fields::of::<PodSpec>, SPEC),
    open("spec.affinity", fields::of::<Affinity>, AFFINITY),
    open(
        "spec.affinity.nodeAffinity",
        fields::of::<NodeAffinity>,
        NODE_AFFINITY,
    ),
    strict(
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        fields::of::<NodeSelector>,
        &[],
    ),
    strict(
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]",
        fields::of::<NodeSelectorTerm>,
        &[],
    ),
    strict(
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[]",
        fields::of::<NodeSelectorRequirement>,
        &[],
    ),
    strict(
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchFields[]",
        fields::of::<NodeSelectorRequirement>,
        &[],
    ),
    strict("spec.hostAliases[]", fields::of::<HostAlias>, &[]),
    strict("spec.dnsConfig", fields::of::<PodDnsConfig>, &[]),
    strict(
        "spec.dnsConfig.options[]",
        fields::of::<PodDnsConfigOption>,
        &[],
    ),
    strict("spec.readinessGates[]", fields::of::<PodReadinessGate>, &[]),
    open("spec.tolerations[]", fields::of::<Toleration>, &[]),
    strict(
        "spec.imagePullSecrets[]",
        fields::of::<LocalObjectReference>,
        &[],
    ),
    open("spec.os", fields::of::<PodOs>, &[]),
    strict(
        "spec.securityContext",
        fields::of::<PodSecurityContext>,
        POD_SECURITY,
    ),
    strict("spec.securityContext.sysctls[]", fields::of::<Sysctl>, &[]),
    strict(
        "spec.securityContext.appArmorProfile",
        fields::of::<AppArmorProfile>,
        &[],
    ),
    strict(
        "spec.securityContext.seccompProfile",
        fields::of::<SeccompProfile>,
        SECCOMP,
    ),
    open("spec.containers[]", fields::of::<Container>, &[]),
    open(
        "spec.containers[].resizePolicy[]",
        fields::of::<ContainerResizePolicy>,
        &[],
    ),
    open(
        "spec.ephemeralContainers[]",
        fields::of::<EphemeralContainer>,
        EPHEMERAL,
    ),
    open(
        "spec.containers[].ports[]",
        fields::of::<ContainerPort>,
        &[],
    ),
    open("spec.containers[].env[]", fields::of::<EnvVar>, &[]),
    strict(
        "spec.containers[].env[].valueFrom",
        fields::of::<EnvVarSource>,
        VALUE_FROM,
    ),
    strict(
        "spec.containers[].env[].valueFrom.fieldRef",
        fields::of::<ObjectFieldSelector>,
        &[],
    ),
    strict(
        "spec.containers[].env[].valueFrom.resourceFieldRef",
        fields::of::<ResourceFieldSelector>,
        &[],
    ),
    strict(
        "spec.containers[].env[].valueFrom.configMapKeyRef",
        fields::of::<KeySelector>,
        &[],
    ),
    strict(
        "spec.containers[].env[].valueFrom.secretKeyRef",
        fields::of::<KeySelector>,
        &[],
    ),
    strict(
        "spec.containers[].envFrom[]",
        fields::of::<EnvFromSource>,
        &[],
    ),
    strict(
        "spec.containers[].envFrom[].configMapRef",
        fields::of::<ObjectReference>,
        &[],
    ),
    strict(
        "spec.containers[].envFrom[].secretRef",
        fields::of::<ObjectReference>,
        &[],
    ),
    strict(
        "spec.containers[].resources",
        fields::of::<ResourceRequirements>,
        RESOURCES,
    ),
    strict(
        "spec.containers[].volumeMounts[]",
        fields::of::<VolumeMount>,
        &[],
    ),
    strict(
        "spec.containers[].volumeDevices[]",
        fields::of::<VolumeDevice>,
        &[],
    ),
    strict(
        "spec.containers[].securityContext",
        fields::of::<SecurityContext>,
        SECURITY,
    ),
    strict(
        "spec.containers[].securityContext.capabilities",
        fields::of::<Capabilities>,
        &[],
    ),
    strict(
        "spec.containers[].securityContext.appArmorProfile",
        fields::of::<AppArmorProfile>,
        &[],
    ),
    strict(
        "spec.containers[].securityContext.seccompProfile",
        fields::of::<SeccompProfile>,
        SECCOMP,
    ),
    strict(
        "spec.containers[].restartPolicyRules[]",
        fields::of::<RestartRule>,
        &[],
    ),
    strict(
        "spec.containers[].restartPolicyRules[].exitCodes",
        fields::of::<RestartExitCodes>,
        &[],
    ),
    strict("spec.containers[].probe", fields::of::<Probe>, &[]),
    strict(
        "spec.containers[].probe.exec",
        fields::of::<ExecAction>,
        &[],
    ),
    strict(
        "spec.containers[].probe.httpGet",
        fields::of::<HttpGetAction>,
        &[],
    ),
    strict(
        "spec.containers[].probe.httpGet.httpHeaders[]",
        fields::of::<HttpHeader>,
        &[],
    ),
    strict(
        "spec.containers[].probe.tcpSocket",
        fields::of::<TcpSocketAction>,
        &[],
    ),
    strict(
        "spec.containers[].probe.grpc",
        fields::of::<GrpcAction>,
        &[],
    ),
    strict("spec.containers[].lifecycle", fields::of::<Lifecycle>, &[]),
    strict("spec.containers[].lifecycle.hook", fields::of::<Hook>, &[]),
    strict(
        "spec.containers[].lifecycle.hook.exec",
        fields::of::<ExecAction>,
        &[],
    ),
    strict(
        "spec.containers[].lifecycle.hook.httpGet",
        fields::of::<HttpGetAction>,
        &[],
    ),
    strict(
        "spec.containers[].lifecycle.hook.httpGet.httpHeaders[]",
        fields::of::<HttpHeader>,
        &[],
    ),
    strict(
        "spec.containers[].lifecycle.hook.tcpSocket",
        fields::of::<TcpSocketAction>,
        &[],
    ),
    strict(
        "spec.containers[].lifecycle.hook.sleep",
        fields::of::<SleepAction>,
        &[],
    ),
    strict("spec.volumes[]", fields::of::<Volume>, VOLUME),
    strict("spec.volumes[].emptyDir", fields::of::<EmptyDir>, &[]),
    strict("spec.volumes[].hostPath", fields::of::<HostPath>, &[]),
    strict(
        "spec.volumes[].configMap",
        fields::of::<ConfigMapVolume>,
        &[],
    ),
    strict(
        "spec.volumes[].configMap.items[]",
        fields::of::<KeyToPath>,
        &[],
    ),
    strict("spec.volumes[].secret", fields::of::<SecretVolume>, &[]),
    strict(
        "spec.volumes[].secret.items[]",
        fields::of::<KeyToPath>,
        &[],
    ),
    strict(
        "spec.volumes[].downwardAPI",
        fields::of::<DownwardApiVolume>,
        &[],
    ),
    strict(
        "spec.volumes[].downwardAPI.items[]",
        fields::of::<DownwardApiFile>,
        &[],
    ),
    strict(
        "spec.volumes[].downwardAPI.items[].fieldRef",
        fields::of::<ObjectFieldSelector>,
        &[],
    ),
    strict(
        "spec.volumes[].downwardAPI.items[].resourceFieldRef",
        fields::of::<ResourceFieldSelector>,
        &[],
    ),
    strict(
        "spec.volumes[].projected",
        fields::of::<ProjectedVolume>,
        &[],
    ),
    strict(
        "spec.volumes[].projected.sources[]",
        fields::of::<VolumeProjection>,
        PROJECTION,
    ),
    strict(
        "spec.volumes[].projected.sources[].configMap",
        fields::of::<ObjectProjection>,
        &[],
    ),
    strict(
        "spec.volumes[].projected.sources[].configMap.items[]",
        fields::of::<KeyToPath>,
        &[],
    ),
    strict(
        "spec.volumes[].projected.sources[].secret",
        fields::of::<ObjectProjection>,
        &[],
    ),
    strict(
        "spec.volumes[].projected.sources[].secret.items[]",
        fields::of::<KeyToPath>,
        &[],
    ),
    strict(
        "spec.volumes[].projected.sources[].downwardAPI",
        fields::of::<DownwardApiProjection>,
        &[],
    ),
    strict(
        "spec.volumes[].projected.sources[].serviceAccountToken",
        fields::of::<ServiceAccountTokenProjection>,
        &[],
    ),
    strict(
        "spec.volumes[].projected.sources[].downwardAPI.items[]",
        fields::of::<DownwardApiFile>,
        &[],
    ),
    strict(
        "spec.volumes[].projected.sources[].downwardAPI.items[].fieldRef",
        fields::of::<ObjectFieldSelector>,
        &[],
    ),
    strict(
        "spec.volumes[].projected.sources[].downwardAPI.items[].resourceFieldRef",
        fields::of::<ResourceFieldSelector>,
        &[],
    ),
    strict(
        "spec.volumes[].persistentVolumeClaim",
        fields::of::<ClaimVolume>,
        &[],
    ),
    strict("spec.volumes[].image", fields::of::<ImageVolume>, &[]),
];

/// True if a value asks for nothing: it is null, false, empty, or an object whose members all ask for nothing.
pub(super) fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(asks_for_nothing),
    }
}

/// Returns why a pod of this source may not reference the object that `what` names (kubelet-probes 1.6).
pub(super) fn no_reference(source: PodSource, what: &str) -> String {
    if source.is_static() {
        format!("static pods may not reference {what}")
    } else {
        format!("not supported: references to {what}")
    }
}
