//! The phase of a network probe, and its steps for the trace.

use std::cell::Cell;
use std::fmt;

use super::outcome::Phase;
use super::trace::note;
use crate::wire::observer::{self, Observer};

/// The phase of one probe; the notes of the wire become steps of the trace.
pub(super) struct Progress(Cell<Phase>);

impl Progress {
    /// A probe that has not begun.
    pub(super) fn new() -> Self {
        Self(Cell::new(Phase::Prepare))
    }

    /// The last phase that began.
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
