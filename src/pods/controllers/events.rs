//! Records the events of controllers, each with the object that it is about.

use crate::api::PodRef;
use crate::pods::events::{EventType, Involved, Recorder};
use crate::workloads::{ControllerEvent, EventKind, Owner};

/// Records the events of a step.
pub(super) fn record(events: &[(Owner, ControllerEvent)], recorder: &Recorder) {
    for (about, event) in events {
        let object = PodRef {
            namespace: about.namespace.as_str().into(),
            name: about.name.as_str().into(),
            uid: about.uid.as_str().into(),
        };
        let involved = Involved {
            kind: &about.kind,
            object: &object,
        };
        let type_ = match event.kind {
            EventKind::Normal => EventType::Normal,
            EventKind::Warning => EventType::Warning,
        };
        recorder.record_workload(&involved, type_, event.reason, &event.message);
    }
}
