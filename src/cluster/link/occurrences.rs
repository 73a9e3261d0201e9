//! The events that happen on the node, one by one, on their way to the link.
//!
//! Invariants: whoever records an event waits for nobody. At most [`MOST`] wait; then the oldest is dropped, which is said
//! once for all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::base::bell::Bell;
use crate::base::locks::Locked;
use crate::cluster::events::Occurrence;
use crate::pods::events::{Event, Recorder};

/// Largest number of events that wait for the link, which takes them at each of its rounds.
const MOST: usize = 1000;

/// The events that wait.
pub(super) struct Occurrences {
    waiting: Mutex<VecDeque<Occurrence>>,
    bell: Arc<Bell>,
}

impl Occurrences {
    /// Begins to collect the events of pods that `recorder` gets.
    pub(super) fn tap(recorder: &Recorder, bell: Arc<Bell>) -> Arc<Self> {
        let occurrences = Arc::new(Self {
            waiting: Mutex::default(),
            bell,
        });
        let tapped = occurrences.clone();
        recorder.tap(move |event| tapped.add(event));
        occurrences
    }

    fn add(&self, event: &Event) {
        // The API server does not know the controllers of this node.
        if event.kind != "Pod" {
            return;
        }
        let mut waiting = self.waiting.locked();
        if waiting.len() >= MOST {
            waiting.pop_front();
        }
        waiting.push_back(Occurrence {
            kind: event.kind.clone(),
            namespace: event.namespace.clone(),
            name: event.pod.clone(),
            uid: event.uid.clone(),
            resource_version: String::new(),
            field_path: event.field_path.clone(),
            type_: event.type_,
            reason: event.reason.clone(),
            message: event.message.clone(),
        });
        drop(waiting);
        self.bell.ring();
    }

    /// Takes all that wait, the oldest first.
    pub(super) fn take(&self) -> VecDeque<Occurrence> {
        std::mem::take(&mut *self.waiting.locked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodRef;
    use crate::pods::events::{EventType, Involved};

    #[test]
    fn each_event_of_a_pod_is_taken_once_and_the_oldest_give_way() {
        let recorder = Recorder::default();
        let bell = Arc::new(Bell::new().unwrap());
        let occurrences = Occurrences::tap(&recorder, bell);
        let pod = PodRef {
            namespace: "default".into(),
            name: "web".into(),
            uid: "u".into(),
        };
        let workload = Involved {
            kind: "Deployment",
            object: &pod,
        };
        recorder.record_workload(&workload, EventType::Normal, "ScalingReplicaSet", "up");
        for number in 0..=MOST {
            let text = format!("message {}", number.min(1));
            recorder.record(
                &pod,
                "spec.containers{c}",
                EventType::Warning,
                "BackOff",
                &text,
            );
        }
        let taken = occurrences.take();
        assert_eq!(taken.len(), MOST, "equal events are not counted here");
        assert_eq!(taken[0].message, "message 1");
        assert_eq!(taken[0].field_path, "spec.containers{c}");
        assert_eq!(occurrences.take().len(), 0);
    }
}
