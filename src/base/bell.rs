//! A bell: a descriptor that one thread polls, and that other threads ring.
//!
//! Invariants: a ring never blocks, and is not lost. Several rings before [`Bell::still`] count as one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// A bell that wakes the thread which polls it.
#[derive(Debug)]
pub struct Bell(EventFd);

impl Bell {
    /// Makes a bell that is still.
    ///
    /// # Errors
    /// Returns the system's error if no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(EventFd::from_flags(flags)?))
    }

    /// Makes the descriptor readable.
    pub fn ring(&self) {
        // A write fails only if the counter would exceed 2^64 - 2. The descriptor is readable then anyway.
        let _ = self.0.write(1);
    }

    /// Waits until the bell rings, but at most until `until`.
    pub fn wait(&self, until: Instant) {
        // poll(2) counts whole milliseconds, so it gets one more.
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        // An interruption ends the wait early, as a ring does.
        let _ = poll(&mut fds, left);
    }

    /// Makes the descriptor unreadable until the next ring. To be called before the thread looks for what is new, so that
    /// no ring after the look is lost.
    pub fn still(&self) {
        // A read fails only if the bell is still.
        let _ = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(bell: &Bell) -> bool {
        let mut fds = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn a_bell_rings_until_it_is_stilled() {
        let bell = Bell::new().unwrap();
        assert!(!rings(&bell));
        bell.still();
        bell.ring();
        bell.ring();
        assert!(rings(&bell));
        assert!(rings(&bell));
        bell.still();
        assert!(!rings(&bell), "two rings count as one");
    }
}
