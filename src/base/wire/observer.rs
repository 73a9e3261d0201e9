//! What a caller can observe during an exchange.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// The phase of an exchange.
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

/// Observes each phase and each step. The unit type ignores all of them.
pub trait Observer {
    /// Tells that a phase begins.
    fn begin(&self, phase: Phase);

    /// Sees a new socket before it is connected.
    ///
    /// # Errors
    /// Returns the system's error if the socket may not be connected: the exchange does not go on.
    fn opened(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Tells of a step. The text is made only when it is written out, so an observer that drops it costs nothing.
    fn note(&self, step: fmt::Arguments<'_>);
}

impl Observer for () {
    fn begin(&self, _: Phase) {}

    fn note(&self, _: fmt::Arguments<'_>) {}
}
