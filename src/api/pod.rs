//! The typed view of a v1 Pod: exactly the fields that podprobe acts on or validates, in the API's names.
//!
//! Podprobe does not act on a field that is missing here: [`super::decode`] reports the field by its path, and
//! [`super::support`] decides whether the field refuses the pod or only causes a warning. So a new field here is a
//! promise to act on it.

mod actions;
mod container;
mod environment;
mod ephemeral;
mod lifecycle;
mod names;
mod placement;
mod probes;
mod restart;
mod security;
mod spec;
mod volumes;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use actions::{
    ExecAction, GrpcAction, HttpGetAction, HttpHeader, IntOrString, SleepAction, TcpSocketAction,
};
pub use container::{Container, ContainerPort, ContainerResizePolicy, ResourceRequirements};
pub use environment::{
    EnvFromSource, EnvVar, EnvVarSource, KeySelector, ObjectFieldSelector, ObjectReference,
    ResourceFieldSelector,
};
pub use ephemeral::EphemeralContainer;
pub use lifecycle::{Hook, HookKind, Lifecycle};
pub use names::{HostAlias, PodDnsConfig, PodDnsConfigOption};
pub use placement::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};
pub use probes::{Handler, Probe, ProbeType};
pub use restart::{RestartExitCodes, RestartPolicy, RestartRule};
pub use security::{
    AppArmorProfile, Capabilities, PodSecurityContext, SeccompProfile, SecurityContext, Sysctl,
};
pub use spec::{ContainerType, Listed, LocalObjectReference, PodOs, PodReadinessGate, PodSpec};
pub use volumes::{
    ClaimVolume, ConfigMapVolume, DownwardApiFile, DownwardApiProjection, DownwardApiVolume,
    EmptyDir, HostPath, ImageVolume, KeyToPath, ObjectProjection, ProjectedVolume, SecretVolume,
    ServiceAccountTokenProjection, Volume, VolumeDevice, VolumeMount, VolumeProjection,
};

use super::lazy_object::Parts;
use super::raw_object::RawObject;
use super::source::PodSource;
use crate::base::pod_uid::PodUid;

/// Annotation that limits the traffic that a pod receives, in bits a second.
pub const INGRESS_BANDWIDTH: &str = "kubernetes.io/ingress-bandwidth";

/// Annotation that limits the traffic that a pod sends, in bits a second.
pub const EGRESS_BANDWIDTH: &str = "kubernetes.io/egress-bandwidth";

/// Namespace, name and UID of a pod, for texts and events. Prints as `<name>_<namespace>(<uid>)`, the kubelet's form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// Name of the pod (`metadata.name`). The name of a static pod ends with the node's name.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: PodUid,
}

impl PodRef {
    /// Returns `<name>_<namespace>`. Static pods with the same full name start one at a time (kubelet-probes 8.1).
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.name, self.namespace)
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}({})", self.name, self.namespace, self.uid)
    }
}

/// A v1 Pod: the typed view, and the raw object that it was read from. Defaults and the fields of static pods are in
/// both.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Name, namespace, UID, labels and annotations of the pod.
    pub metadata: ObjectMeta,
    /// Spec of the pod: what to run. Clones of the pod share the spec until [`Pod::spec_mut`] changes the spec of one
    /// of them.
    pub spec: Arc<PodSpec>,
    /// The whole object as JSON, with every field that the user wrote. Its `status` is not kept up to date.
    pub raw: RawObject,
}

impl Parts for Pod {
    fn object(&self) -> Value {
        self.raw.value()
    }
}

impl Pod {
    /// Returns the spec, to change it. Other pods that share the spec keep the old spec.
    pub fn spec_mut(&mut self) -> &mut PodSpec {
        Arc::make_mut(&mut self.spec)
    }

    /// The pod's UID.
    pub fn uid(&self) -> &PodUid {
        &self.metadata.uid
    }

    /// Returns name, namespace and UID of the pod, for texts and events.
    pub fn reference(&self) -> PodRef {
        PodRef {
            namespace: self.metadata.namespace.as_str().into(),
            name: self.metadata.name.as_str().into(),
            uid: self.metadata.uid.clone(),
        }
    }

    /// Returns `<name>_<namespace>`.
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.metadata.name, self.metadata.namespace)
    }

    /// Returns the source that the pod comes from, by its annotation.
    pub fn source(&self) -> PodSource {
        PodSource::of_annotations(&self.metadata.annotations)
    }

    /// Returns the regular or init container of this name. Names are unique among all containers of a pod.
    pub fn container(&self, name: &str) -> Option<&Container> {
        Some(self.spec.find(name)?.container)
    }

    /// Returns the path of a container as events write it: `spec.initContainers{name}` or `spec.containers{name}`.
    pub fn field_path(&self, container: &str) -> String {
        let found = self.spec.find(container);
        let list = found
            .map_or(ContainerType::Regular, |listed| listed.kind)
            .list();
        format!("spec.{list}{{{container}}}")
    }
}

/// `metadata` of a pod: names, UID, labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name of the pod: a DNS subdomain of at most 253 characters.
    pub name: String,
    /// Namespace of the pod: a DNS label. It is `default` if the file has no namespace.
    pub namespace: String,
    /// UID of the pod. If the file gives no UID, the UID is derived from the pod's content and origin.
    pub uid: PodUid,
    /// Labels, as written.
    pub labels: BTreeMap<String, String>,
    /// Annotations as written, and those of podprobe itself (`kubernetes.io/config.*`).
    pub annotations: BTreeMap<String, String>,
    /// Generation of the spec: another number for each change. Only an API server sets it.
    pub generation: Option<i64>,
    /// Time of the deletion. Only an API server sets it; a static pod never carries one.
    pub deletion_timestamp: Option<String>,
    /// Grace period of the deletion in seconds. Only an API server sets it.
    pub deletion_grace_period_seconds: Option<i64>,
}

/// Fields of a v1 Pod that podprobe reads. The field `status` is known, but its value is ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodObject {
    // The decoder checks `apiVersion` and `kind` before it reads this type. The type has both fields, because the
    // decoder reports fields that no type has as unread.
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredText,
    #[serde(rename = "kind")]
    _kind: IgnoredText,
    pub(super) metadata: ObjectMeta,
    pub(super) spec: PodSpec,
}

/// Placeholder that ignores the value of a field and makes the field count as read.
#[derive(Debug, Default)]
pub(crate) struct IgnoredText;

impl<'de> Deserialize<'de> for IgnoredText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IgnoredAny).map(|_| Self)
    }
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
