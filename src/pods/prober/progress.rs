//! The phase of a network probe, and its steps for the trace.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use super::outcome::Phase;
use super::trace::note;
use crate::base::wire::observer::{self, Observer};

/// The progress of one probe: its phase, and the notes of its connections as steps of the trace.
pub(super) struct Progress<'a> {
    phase: Cell<Phase>,
    /// The observer of sockets, which is called with each opened socket.
    sockets: &'a dyn Observer,
}

impl<'a> Progress<'a> {
    /// Makes the progress of a probe that has not begun.
    pub(super) fn new() -> Self {
        Self::with_sockets(&())
    }

    /// Makes the progress of a probe that has not begun. Each opened socket is passed to `sockets`.
    pub(super) fn with_sockets(sockets: &'a dyn Observer) -> Self {
        Self {
            phase: Cell::new(Phase::Prepare),
            sockets,
        }
    }

    /// Returns the phase that began last.
    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }
}

impl Observer for Progress<'_> {
    fn opened(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.opened(socket)
    }

    fn begin(&self, phase: observer::Phase) {
        self.phase.set(match phase {
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
