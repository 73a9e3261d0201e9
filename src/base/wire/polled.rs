//! The byte stream below HTTP/2: a nonblocking connection with one deadline, which checks the server's first frame.
//!
//! Invariants: one turn of the link's loop reads at most [`TURN_BYTES`]. So the loop checks the deadline and the
//! received data even if a server never pauses.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Connection;
use super::dial::round_up;
use super::socket::left_until;
use crate::base::locks::Locked;

/// Largest number of bytes that one turn of the link's loop reads: a frame of the largest size.
const TURN_BYTES: usize = 16 * 1024;
/// Longest sleep after a turn in which no operation has to wait for the socket.
const LOOK: Duration = Duration::from_secs(1);
/// Size in bytes of the head of a frame: length, type, flags, stream.
const FRAME_HEAD: u64 = 9;
const SETTINGS: u8 = 4;

/// A connection that is shared by h2 and its driver. Both are on one thread, so no lock is ever waited for.
pub(super) struct Polled(Mutex<State>);

struct State {
    connection: Connection,
    deadline: Instant,
    /// Readiness that the uncompleted operations of the present turn wait for.
    blocked: PollFlags,
    left_in_turn: usize,
    /// Number of bytes that were read so far.
    bytes_read: u64,
    first_frame: FirstFrame,
}

impl Polled {
    pub(super) fn new(mut connection: Connection, deadline: Instant) -> io::Result<Arc<Self>> {
        connection.set_nonblocking()?;
        Ok(Arc::new(Self(Mutex::new(State {
            connection,
            deadline,
            blocked: PollFlags::empty(),
            left_in_turn: TURN_BYTES,
            bytes_read: 0,
            first_frame: FirstFrame::default(),
        }))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }

    pub(super) fn set_deadline(&self, deadline: Instant) {
        self.state().deadline = deadline;
    }

    pub(super) fn expired(&self) -> bool {
        Instant::now() >= self.state().deadline
    }

    /// Tells whether the server's settings were received. Only an HTTP/2 server sends settings.
    pub(super) fn greeted(&self) -> bool {
        self.state().first_frame == FirstFrame::Complete
    }

    /// Number of bytes that were read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.state().bytes_read
    }

    pub(super) fn begin_turn(&self) {
        let mut state = self.state();
        state.blocked = PollFlags::empty();
        state.left_in_turn = TURN_BYTES;
    }

    /// Waits until an operation of the turn can complete, but at most until the deadline.
    pub(super) fn wait(&self) {
        let state = self.state();
        let Some(left) = left_until(state.deadline) else {
            return;
        };
        if state.blocked.is_empty() {
            // Without a waiting operation, poll would return at once if the other side has hung up. The sleep is short,
            // because another thread may end the connection.
            return std::thread::sleep(left.min(LOOK));
        }
        state.poll(&[], left);
    }

    /// Waits until an operation of the turn can complete or `bell` can be read, but at most until `until`.
    pub(super) fn wait_with(&self, bell: BorrowedFd<'_>, until: Instant) {
        let left = left_until(until).unwrap_or_default();
        let bell = PollFd::new(bell, PollFlags::POLLIN);
        self.state().poll(&[bell], left);
    }

    /// Tries an operation on the connection. If the operation would block, records the readiness that the operation
    /// waits for.
    fn attempt<T>(
        &self,
        wait_for: PollFlags,
        mut io: impl FnMut(&mut Connection) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.state();
        loop {
            match io(&mut state.connection) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    state.blocked |= wait_for;
                    return Poll::Pending;
                }
                done => return Poll::Ready(done),
            }
        }
    }
}

impl State {
    /// Waits for the connection, if an operation waits for it, and for the others.
    fn poll(&self, others: &[PollFd<'_>], left: Duration) {
        let mut fds = others.to_vec();
        // Without a waiting operation, poll would return at once if the other side has hung up.
        if !self.blocked.is_empty() {
            fds.push(PollFd::new(self.connection.as_fd(), self.blocked));
        }
        // Errors are ignored: the next turn notices an interruption or a broken connection.
        let _ = poll(&mut fds, round_up(left));
    }

    fn count(&mut self, bytes: &[u8]) {
        self.first_frame = self.first_frame.after(bytes);
        self.left_in_turn -= bytes.len();
        self.bytes_read += bytes.len() as u64;
    }
}

/// The part of the connection that h2 owns.
pub(super) struct PolledStream(pub(super) Arc<Polled>);

impl AsyncRead for PolledStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = &self.0;
        let room = polled.state().left_in_turn.min(buf.remaining());
        if room == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let part = buf.initialize_unfilled_to(room);
        let n = std::task::ready!(polled.attempt(PollFlags::POLLIN, |c| c.read(part)))?;
        let mut state = polled.state();
        state.count(&part[..n]);
        if state.first_frame == FirstFrame::Wrong {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the first frame of the server is not one of settings",
            )));
        }
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PolledStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.attempt(PollFlags::POLLOUT, |c| c.write(buf))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.attempt(PollFlags::POLLOUT, |c| c.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The part of the server's first frame that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstFrame {
    /// The number of received bytes, and the length in bytes of the frame after its head, as far as it is known.
    Partial(u64, u64),
    Complete,
    /// The frame is not a settings frame.
    Wrong,
}

impl Default for FirstFrame {
    fn default() -> Self {
        Self::Partial(0, 0)
    }
}

impl FirstFrame {
    fn after(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            let Self::Partial(seen, length) = self else {
                return self;
            };
            self = match seen {
                0..3 => Self::Partial(seen + 1, length << 8 | u64::from(*byte)),
                3 if *byte != SETTINGS => Self::Wrong,
                _ if seen + 1 >= FRAME_HEAD && seen + 1 == FRAME_HEAD + length => Self::Complete,
                _ => Self::Partial(seen + 1, length),
            };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_frame_is_one_of_settings_and_complete() {
        let check = |bytes: &[u8], expected: FirstFrame| {
            for size in 1..=bytes.len().max(1) {
                let got = bytes
                    .chunks(size)
                    .fold(FirstFrame::default(), FirstFrame::after);
                assert_eq!(got, expected, "{bytes:?} in pieces of {size}");
            }
        };
        check(&[], FirstFrame::Partial(0, 0));
        check(&[0, 0, 0, 4, 0, 0, 0, 0], FirstFrame::Partial(8, 0));
        check(&[0, 0, 0, 4, 0, 0, 0, 0, 0], FirstFrame::Complete);
        check(
            &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0],
            FirstFrame::Partial(14, 6),
        );
        check(
            &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9],
            FirstFrame::Complete,
        );
        check(
            &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9, 9, 9],
            FirstFrame::Complete,
        );
        check(b"HTTP/1.1 400 Bad Request", FirstFrame::Wrong);
        check(&[0, 0, 8, 7, 0, 0, 0, 0, 0], FirstFrame::Wrong);
    }
}
