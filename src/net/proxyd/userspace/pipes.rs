//! Pipes for splice(2). A pipe is used for one connection after another.
//!
//! Invariants: a kept pipe is empty.

use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

/// Number of unused pipes that are kept.
const IDLE: usize = 4;
/// Largest number of pipes in use. A connection without a pipe copies its bytes.
const MOST: usize = 512;
/// Capacity in bytes that is requested for a pipe.
pub const SIZE: usize = 256 * 1024;

/// A pipe for splice(2).
#[derive(Debug)]
pub struct Pipe {
    /// The end to read from.
    pub read: OwnedFd,
    /// The end to write to.
    pub write: OwnedFd,
}

/// The pipes of all connections.
#[derive(Debug, Default)]
pub struct Pipes {
    idle: Vec<Pipe>,
    used: usize,
}

impl Pipes {
    /// Returns an empty pipe; `None` if too many pipes are in use, or if no pipe can be made.
    pub fn take(&mut self) -> Option<Pipe> {
        if self.used >= MOST {
            return None;
        }
        let pipe = self.idle.pop().or_else(make)?;
        self.used += 1;
        Some(pipe)
    }

    /// Takes a pipe back. The pipe is closed if it is not empty, or if enough unused pipes are kept.
    pub fn give_back(&mut self, pipe: Pipe, empty: bool) {
        self.used -= 1;
        if empty && self.idle.len() < IDLE {
            self.idle.push(pipe);
        }
    }
}

fn make() -> Option<Pipe> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).ok()?;
    // Beyond fs.pipe-user-pages-soft the call fails, and the pipe keeps its default size.
    let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(SIZE as i32));
    Some(Pipe { read, write })
}
