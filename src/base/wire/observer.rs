//! The trait with which a caller observes an exchange.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// A phase of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opening the connection.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Sending the request.
    Write,
    /// Waiting for the answer, or reading it.
    Read,
}

/// Observes an exchange: its phases, its socket and its steps. The observer `()` ignores all of them.
pub trait Observer {
    /// Is called when a phase begins.
    fn begin(&self, phase: Phase);

    /// Is called with a new socket before it is connected.
    ///
    /// # Errors
    /// Returns the system's error if the socket must not be connected. The exchange then ends.
    fn opened(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Is called after a step. The text is formatted only if the observer writes the text, so an observer that ignores
    /// notes costs nothing.
    fn note(&self, step: fmt::Arguments<'_>);
}

impl Observer for () {
    fn begin(&self, _: Phase) {}

    fn note(&self, _: fmt::Arguments<'_>) {}
}
