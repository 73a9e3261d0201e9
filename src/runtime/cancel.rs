//! A wish that waits end, for every thread that shares it: a run that is overtaken, a daemon that ends.
//!
//! Invariants: once cancelled it stays so. It costs a descriptor only when somebody waits.

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
    /// Ends the waits, those to come too.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.tell();
    }

    /// Whether waits are to end.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Becomes readable, for good, with the cancellation. To poll, not to read.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        if self.event.get().is_none() {
            let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
            // another thread may have been faster
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
