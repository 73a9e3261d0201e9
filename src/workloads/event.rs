//! Events of controllers, with upstream's reasons (workloads 1.9).

/// The type of an event: the usual course, or something wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The usual course.
    Normal,
    /// Something is wrong.
    Warning,
}

/// An event about a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerEvent {
    /// Type of the event.
    pub kind: EventKind,
    /// Reason of the event, one word of upstream's.
    pub reason: &'static str,
    /// Message, a sentence for a person.
    pub message: String,
}

impl ControllerEvent {
    /// Makes an event about the usual course.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind: EventKind::Normal,
            reason,
            message: message.into(),
        }
    }

    /// Makes an event about something that is wrong.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind: EventKind::Warning,
            reason,
            message: message.into(),
        }
    }
}
