//! A session that a test controls. Each stream is one end of a socket pair, and the test has the other end.
#![allow(dead_code, reason = "each wing takes what it needs")]

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use crate::engine::runtime::{Session, SessionEnd, TerminalSize};

use crate::base::locks::Locked;

/// A session that a test controls through its [`Script`].
pub(crate) struct FakeSession {
    stdin: Option<UnixStream>,
    stdout: Option<UnixStream>,
    stderr: Option<UnixStream>,
    ended: UnixStream,
    seen: Arc<Mutex<Seen>>,
}

/// Requests that a session received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Every terminal size that the session received, in order.
    pub(crate) sizes: Vec<TerminalSize>,
    /// True if the session's input was closed.
    pub(crate) stdin_closed: bool,
    /// True if the session was finished or dropped.
    pub(crate) is_over: bool,
    end: Option<SessionEnd>,
}

/// The test's side of a session.
pub(crate) struct Script {
    /// The stream on which the test reads the client's input. The stream ends when the client's input ends.
    pub(crate) stdin: UnixStream,
    /// The stream to which the test writes the session's output. Dropping it ends the output.
    pub(crate) stdout: UnixStream,
    /// The stream to which the test writes the session's error output. Dropping it ends the error output.
    pub(crate) stderr: UnixStream,
    ended: UnixStream,
    seen: Arc<Mutex<Seen>>,
}

impl FakeSession {
    /// Makes a session and its script. The three flags say whether the session has stdin, stdout and stderr.
    pub(crate) fn pair([stdin, stdout, stderr]: [bool; 3]) -> (Box<Self>, Script) {
        let pair = || {
            let (ours, theirs) = UnixStream::pair().expect("two descriptors are left");
            ours.set_nonblocking(true).expect("it is a socket");
            (ours, theirs)
        };
        let [(i, i2), (o, o2), (e, e2), (ended, ended2)] = [pair(), pair(), pair(), pair()];
        let seen = Arc::<Mutex<Seen>>::default();
        let session = Self {
            stdin: stdin.then_some(i),
            stdout: stdout.then_some(o),
            stderr: stderr.then_some(e),
            ended,
            seen: seen.clone(),
        };
        let script = Script {
            stdin: i2,
            stdout: o2,
            stderr: e2,
            ended: ended2,
            seen,
        };
        (Box::new(session), script)
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.locked());
    }
}

impl Script {
    /// Ends the command or the container with `end`. The session can still read output that was written before.
    pub(crate) fn end(&mut self, end: SessionEnd) {
        self.end_later(end);
        // A session that is already dropped need not learn of its end.
        let _ = self.ended.write_all(b".");
    }

    /// Sets the end that the session reports when it is finished. The session does not end now.
    pub(crate) fn end_later(&mut self, end: SessionEnd) {
        self.seen.locked().end = Some(end);
    }

    /// Returns a copy of the requests that the session has received up to now.
    pub(crate) fn seen(&self) -> Seen {
        let seen = self.seen.locked();
        seen.clone()
    }
}

impl Session for FakeSession {
    fn stdin(&self) -> Option<BorrowedFd<'_>> {
        self.stdin.as_ref().map(AsFd::as_fd)
    }

    fn stdout(&self) -> Option<BorrowedFd<'_>> {
        self.stdout.as_ref().map(AsFd::as_fd)
    }

    fn stderr(&self) -> Option<BorrowedFd<'_>> {
        self.stderr.as_ref().map(AsFd::as_fd)
    }

    fn close_stdin(&mut self) {
        self.stdin = None;
        self.change(|seen| seen.stdin_closed = true);
    }

    fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    fn resize(&self, size: TerminalSize) {
        self.change(|seen| seen.sizes.push(size));
    }

    fn finish(self: Box<Self>) -> SessionEnd {
        let end = self.seen.locked().end;
        end.unwrap_or(SessionEnd::Unknown)
    }
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.change(|seen| seen.is_over = true);
    }
}
