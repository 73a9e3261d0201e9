//! Publishing of pod statuses: what a node sends to the API server about a pod, and when (kubelet-probes 9.7).
//!
//! Invariants: this module is pure. It sends nothing and reads no clock. [`api_form()`] makes the status that a kubelet
//! would send, [`merge()`] puts it over the status that the API server has, [`patch()`] is the difference between the two,
//! and a [`Publication`] says which request of a pod is next.

mod api_form;
mod merge;
mod patch;
mod publication;
mod same;
#[cfg(test)]
mod tests;

pub use api_form::api_form;
pub use merge::{Deletion, Revived, merge};
pub use patch::patch;
pub use publication::{Next, Publication, Resync};

pub use crate::pods::workers::WorkerStage;

use serde_json::{Map, Value};

use crate::api::PodStatus;
use crate::api::pod::PodSpec;

/// A JSON object, such as the status of a pod.
pub type Object = Map<String, Value>;

/// A pod as this node publishes it.
#[derive(Clone, Copy, Debug)]
pub struct PodView<'a> {
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub name: &'a str,
    /// UID of the pod in the API server. The view of a static pod has the UID of the mirror pod.
    pub uid: &'a str,
    /// True if the API server has a mirror pod, because the pod is static.
    pub mirror: bool,
    /// `metadata.generation` of the API object that the status was made from; None if that is not known.
    pub generation: Option<i64>,
    /// Spec of the pod.
    pub spec: &'a PodSpec,
    /// Latest status of the pod on this node.
    pub status: &'a PodStatus,
    /// Version of `status`: another number for each change.
    pub version: u64,
    /// Progress of the pod's worker.
    pub stage: WorkerStage,
    /// Addresses of the node, primary first; empty while they are not known.
    pub host_ips: &'a [String],
    /// Latest copy of the API object that a watch has delivered; None if the watch has no object of this name.
    pub copy: Option<&'a Value>,
}

/// True if a phase is Succeeded or Failed.
pub fn is_terminal(phase: Option<&Value>) -> bool {
    matches!(phase.and_then(Value::as_str), Some("Succeeded" | "Failed"))
}

/// Returns the status of an API object. The status is empty if the object has none.
fn status_of(object: &Value) -> Object {
    object["status"].as_object().cloned().unwrap_or_default()
}
