//! A flag that ends waits, shared by several threads: for a run that must end early, or for the end
//! of the daemon.
//!
//! Invariants: once cancelled it stays cancelled. It uses a descriptor only while a thread waits
//! for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// See the module.
#[derive(Debug, Default)]
pub struct Cancel {
    cancelled: AtomicBool,
    event: OnceLock<EventFd>,
}

impl Cancel {
    /// Ends all waits, also later ones.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.tell();
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// A descriptor that becomes readable with the cancellation and stays readable. Poll it; do not
    /// read it.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        if self.event.get().is_none() {
            let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
            // another thread may have set it first
            let _ = self.event.set(event);
        }
        if self.is_cancelled() {
            self.tell();
        }
        Ok(self.event.get().expect("set above").as_fd())
    }

    fn tell(&self) {
        // it cannot fail before 2^64 - 1 of them
        let _ = self.event.get().map(|e| e.write(1));
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn readable(cancel: &Cancel) -> bool {
        poll(
            &mut [PollFd::new(cancel.fd().unwrap(), PollFlags::POLLIN)],
            PollTimeout::ZERO,
        )
        .unwrap()
            == 1
    }

    #[test]
    fn a_wait_ends_whether_it_began_before_or_after() {
        let before = Cancel::default();
        assert!(!readable(&before) && !before.is_cancelled());
        before.cancel();
        assert!(readable(&before) && readable(&before), "for good");
        let after = Cancel::default();
        after.cancel();
        assert!(readable(&after) && after.is_cancelled());
    }
}
