//! Events about what was done for a StatefulSet, with upstream's words (stateful_pod_control.go: recordPodEvent,
//! recordClaimEvent).
//!
//! Invariants: pure.

use super::PodCreation;
use super::claims::ClaimCreation;
use crate::workloads::event::ControllerEvent;
use crate::workloads::set_actions::PodDeletion;

/// Returns the event about a pod that was made, or that could not be made because of an error.
pub fn creation_event(set: &str, creation: &PodCreation, error: Option<&str>) -> ControllerEvent {
    let what = format!("Create Pod {} in StatefulSet {set}", creation.identity.name);
    match error {
        None => ControllerEvent::normal("SuccessfulCreate", format!("{what} successful")),
        Some(error) => {
            ControllerEvent::warning("FailedCreate", format!("{what} failed error: {error}"))
        }
    }
}

/// Returns the event about a pod that was deleted, or that could not be deleted because of an error.
pub fn deletion_event(set: &str, deletion: &PodDeletion, error: Option<&str>) -> ControllerEvent {
    let what = format!("Delete Pod {} in StatefulSet {set}", deletion.pod);
    match error {
        None => ControllerEvent::normal("SuccessfulDelete", format!("{what} successful")),
        Some(error) => {
            ControllerEvent::warning("FailedDelete", format!("{what} failed error: {error}"))
        }
    }
}

/// Returns the event about a claim that was made, or that could not be made because of an error.
pub fn claim_event(set: &str, creation: &ClaimCreation, error: Option<&str>) -> ControllerEvent {
    let ClaimCreation { claim, pod, .. } = creation;
    match error {
        None => ControllerEvent::normal(
            "SuccessfulCreate",
            format!("Create Claim {claim} Pod {pod} in StatefulSet {set} success"),
        ),
        Some(error) => ControllerEvent::warning(
            "FailedCreate",
            format!(
                "Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {error}"
            ),
        ),
    }
}
