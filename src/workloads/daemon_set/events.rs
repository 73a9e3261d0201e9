//! Events about what was done for a DaemonSet, with upstream's words (controller_utils.go: RealPodControl).
//!
//! Invariants: pure.

use crate::workloads::event::ControllerEvent;

/// Returns the event about a pod that was made, or that could not be made because of an error.
pub fn creation_event(pod: &str, error: Option<&str>) -> ControllerEvent {
    match error {
        None => ControllerEvent::normal("SuccessfulCreate", format!("Created pod: {pod}")),
        Some(error) => ControllerEvent::warning("FailedCreate", format!("Error creating: {error}")),
    }
}

/// Returns the event about a pod that was deleted, or that could not be deleted because of an error.
pub fn deletion_event(pod: &str, error: Option<&str>) -> ControllerEvent {
    match error {
        None => ControllerEvent::normal("SuccessfulDelete", format!("Deleted pod: {pod}")),
        Some(error) => ControllerEvent::warning("FailedDelete", format!("Error deleting: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_words_of_kubernetes() {
        #[track_caller]
        fn check(event: ControllerEvent, reason: &str, message: &str) {
            assert_eq!((event.reason, &*event.message), (reason, message));
        }
        check(
            creation_event("x", None),
            "SuccessfulCreate",
            "Created pod: x",
        );
        check(
            creation_event("x", Some("no")),
            "FailedCreate",
            "Error creating: no",
        );
        check(
            deletion_event("x", None),
            "SuccessfulDelete",
            "Deleted pod: x",
        );
        check(
            deletion_event("x", Some("no")),
            "FailedDelete",
            "Error deleting: no",
        );
    }
}
