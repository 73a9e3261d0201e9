//! How far a network probe has come, and its steps for whoever records them.

use std::cell::Cell;
use std::fmt;

use super::outcome::Phase;
use super::trace::note;
use crate::wire::observer::{self, Observer};

/// The phase of one probe; what the wire tells of it becomes steps of the trace.
pub(super) struct Progress(Cell<Phase>);

impl Progress {
    /// Nothing has begun.
    pub(super) fn new() -> Self {
        Self(Cell::new(Phase::Prepare))
    }

    /// What was begun last.
    pub(super) fn phase(&self) -> Phase {
        self.0.get()
    }
}

impl Observer for Progress {
    fn begin(&self, phase: observer::Phase) {
        self.0.set(match phase {
            observer::Phase::Connect => Phase::Connect,
            observer::Phase::Tls => Phase::Tls,
            observer::Phase::Write => Phase::Send,
            observer::Phase::Read => Phase::Read,
        });
    }

    fn note(&self, step: fmt::Arguments<'_>) {
        note(|| step.to_string());
    }
}
