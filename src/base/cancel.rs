//! A flag that ends the waits of several threads, because a run must end early or because the daemon ends.
//!
//! Invariants: once set, the flag stays set. The first wait makes an eventfd, which the flag then keeps. Each tied
//! socket costs one more descriptor until it is no longer tied. [`Cancel::cancel`] never waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{Shutdown, shutdown};

use crate::base::locks::Locked;

/// Time between two looks at the flag, for a wait that got no descriptor to poll.
const LOOK: Duration = Duration::from_millis(50);

/// A flag that several threads share. Setting it ends their waits and shuts down the sockets tied to it.
#[derive(Debug, Default)]
pub struct Cancel {
    cancelled: AtomicBool,
    event: OnceLock<EventFd>,
    tied: Mutex<Vec<OwnedFd>>,
}

impl Cancel {
    /// Sets the flag: ends all waits, including waits that begin later.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.tell();
        self.sockets().iter().for_each(hang_up);
    }

    /// Tells whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Returns a descriptor that becomes readable when the flag is set, and stays readable. Poll it; do not read it.
    ///
    /// # Errors
    /// Returns the system's error if no descriptors are left.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        if self.event.get().is_none() {
            let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
            // Another thread may have made the eventfd first.
            let _ = self.event.set(event);
        }
        if self.is_cancelled() {
            self.tell();
        }
        Ok(self.event.get().expect("set above").as_fd())
    }

    /// Waits until the flag is set, but at most for `limit`. Returns true if the flag is set.
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now().checked_add(limit);
        let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        while !self.is_cancelled() && left() != Some(Duration::ZERO) {
            let left = left().unwrap_or(Duration::MAX);
            match self.fd() {
                Ok(event) => {
                    // Rounded up: poll counts in milliseconds, and a thread that woke early would only spin.
                    let left = left.saturating_add(Duration::from_micros(999));
                    let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                    let _ = poll(&mut [PollFd::new(event, PollFlags::POLLIN)], left);
                }
                Err(_) => std::thread::sleep(left.min(LOOK)),
            }
        }
        self.is_cancelled()
    }

    /// Ties a socket to the flag. Until [`Tied`] is dropped, setting the flag shuts the socket down. A thread that
    /// connects, reads or writes then gets an error or an end of file.
    ///
    /// # Errors
    /// Returns ECANCELED if the flag is set already, or the system's error if no descriptors are left.
    pub fn tie(&self, socket: BorrowedFd<'_>) -> io::Result<Tied<'_>> {
        let socket = socket.try_clone_to_owned()?;
        let fd = socket.as_raw_fd();
        self.sockets().push(socket);
        let tied = Tied { cancel: self, fd };
        // The flag is read after the push, so that a cancellation either finds the socket in the list or is seen by
        // this read.
        match self.is_cancelled() {
            true => Err(Errno::ECANCELED.into()),
            false => Ok(tied),
        }
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.tied.locked()
    }

    fn tell(&self) {
        // A write to an eventfd fails only if its counter would exceed 2^64 - 2.
        let _ = self.event.get().map(|e| e.write(1));
    }
}

/// A socket that a cancellation shuts down.
#[derive(Debug)]
pub struct Tied<'a> {
    cancel: &'a Cancel,
    fd: i32,
}

impl Drop for Tied<'_> {
    fn drop(&mut self) {
        self.cancel.sockets().retain(|s| s.as_raw_fd() != self.fd);
    }
}

fn hang_up(socket: &OwnedFd) {
    // The shutdown fails if the socket is not connected yet. A connect after the failed shutdown ends at its own
    // deadline.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

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

    #[test]
    fn a_wait_takes_its_time_or_ends_with_the_cancellation() {
        let cancel = Cancel::default();
        let short = Duration::from_millis(5);
        let begun = Instant::now();
        assert!(!cancel.wait(short) && begun.elapsed() >= short);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| cancel.wait(Duration::MAX));
            cancel.cancel();
            assert!(waits.join().unwrap());
        });
        assert!(cancel.wait(Duration::ZERO));
    }

    #[test]
    fn a_tied_socket_ends_with_the_cancellation() {
        let cancel = Cancel::default();
        let (mut near, _far) = UnixStream::pair().unwrap();
        let (mut untied, far) = UnixStream::pair().unwrap();
        // With this time limit, the test fails instead of hanging if nothing ends the read.
        near.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        drop(cancel.tie(untied.as_fd()).unwrap());
        std::thread::scope(|scope| {
            let _tied = cancel.tie(near.as_fd()).unwrap();
            let reads = scope.spawn(|| near.read(&mut [0; 1]));
            cancel.cancel();
            assert_eq!(reads.join().unwrap().unwrap(), 0);
        });
        assert!(cancel.tie(untied.as_fd()).is_err(), "it is over");
        std::io::Write::write_all(&mut &far, b"x").unwrap();
        assert_eq!(untied.read(&mut [0; 1]).unwrap(), 1);
        assert!(cancel.sockets().is_empty());
    }
}
