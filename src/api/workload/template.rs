//! The templates of pods and claims.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::api::pod::{ObjectMeta, PodSpec};
use crate::api::raw_object::RawObject;

/// `template`: the pod that a workload makes. Only the labels, annotations and finalizers of its metadata and its spec
/// count (workloads 1.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// Labels and annotations of the pods.
    pub metadata: ObjectMeta,
    /// Spec of the pods, with its defaults.
    pub spec: Arc<PodSpec>,
    /// The template as it was written, without defaults and without nulls. Pods are made of this text.
    #[serde(skip)]
    pub written: Arc<RawObject>,
}

/// An entry of `volumeClaimTemplates`: a claim that each pod of a StatefulSet has for itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimTemplate {
    /// Name, labels and annotations of the claims. The name is also the name of the volume.
    pub metadata: ObjectMeta,
}
