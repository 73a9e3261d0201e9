//! The client of a session, as a test plays it.

use std::fs;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use podprobe::engine::runtime::{Session, SessionEnd};

use super::CEILING;

/// Whoever has a session.
pub(crate) struct Client {
    pub(crate) session: Box<dyn Session>,
    /// Output that nobody has asked for yet.
    pub(crate) said: String,
}

#[track_caller]
pub(crate) fn await_readable(fds: &[BorrowedFd<'_>]) {
    let mut fds: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::new(*fd, PollFlags::POLLIN))
        .collect();
    let limit = PollTimeout::try_from(CEILING).unwrap();
    assert!(poll(&mut fds, limit).unwrap() > 0, "nothing came");
}

/// What is there now; false at the end.
pub(crate) fn read_now(fd: BorrowedFd<'_>, into: &mut String) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match nix::unistd::read(fd, &mut bytes) {
            Ok(0) | Err(Errno::EIO) => return false,
            Ok(n) => into.push_str(&String::from_utf8_lossy(&bytes[..n])),
            Err(Errno::EAGAIN) => return true,
            Err(e) => panic!("{e}"),
        }
    }
}

impl Client {
    pub(crate) fn of(session: Box<dyn Session>) -> Self {
        Self {
            session,
            said: String::new(),
        }
    }

    #[track_caller]
    pub(crate) fn write(&self, text: &str) {
        let stdin = self.session.stdin().expect("it takes input");
        assert_eq!(nix::unistd::write(stdin, text.as_bytes()), Ok(text.len()));
    }

    /// Reads the output until it has this text; what came before.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let (until, mut is_open) = (Instant::now() + CEILING, true);
        loop {
            if let Some(at) = self.said.find(text) {
                let mut before: String = self.said.drain(..at + text.len()).collect();
                before.truncate(at);
                return before;
            }
            assert!(
                is_open && Instant::now() < until,
                "no {text:?} in {:?}",
                self.said
            );
            let out = self.session.stdout().expect("there is output");
            await_readable(&[out]);
            is_open = read_now(out, &mut self.said);
        }
    }

    /// Waits for the end, and reads what is left.
    #[track_caller]
    pub(crate) fn end(mut self) -> (SessionEnd, String, String) {
        await_readable(&[self.session.ended()]);
        let mut errors = String::new();
        if let Some(out) = self.session.stdout() {
            read_now(out, &mut self.said);
        }
        if let Some(err) = self.session.stderr() {
            read_now(err, &mut errors);
        }
        (self.session.finish(), self.said, errors)
    }

    #[track_caller]
    pub(crate) fn check(self, code: i32, output: &str, errors: &str) {
        let expected = (
            SessionEnd::Exited(code),
            output.to_owned(),
            errors.to_owned(),
        );
        assert_eq!(self.end(), expected);
    }
}

/// Number of descriptors of this process. A test that counts them runs in a process of its own.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
