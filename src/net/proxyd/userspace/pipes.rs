//! Pipes for splice(2), which are used again.
//!
//! Invariants: a pipe that is given back is empty.

use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

/// How many unused pipes are kept.
const IDLE: usize = 4;
/// How many pipes there are at most. A connection that gets none copies.
const MOST: usize = 512;
/// Bytes that a pipe is asked to hold.
pub const SIZE: usize = 256 * 1024;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    /// The end to read from.
    pub read: OwnedFd,
    /// The end to write to.
    pub write: OwnedFd,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Pipes {
    idle: Vec<Pipe>,
    used: usize,
}

impl Pipes {
    /// Returns an empty pipe, or `None` if no more can be had.
    pub fn take(&mut self) -> Option<Pipe> {
        if self.used >= MOST {
            return None;
        }
        let pipe = self.idle.pop().or_else(make)?;
        self.used += 1;
        Some(pipe)
    }

    /// Takes a pipe back. A pipe that is not empty is closed.
    pub fn give_back(&mut self, pipe: Pipe, empty: bool) {
        self.used -= 1;
        if empty && self.idle.len() < IDLE {
            self.idle.push(pipe);
        }
    }
}

fn make() -> Option<Pipe> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).ok()?;
    // Beyond fs.pipe-user-pages-soft it keeps its size.
    let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(SIZE as i32));
    Some(Pipe { read, write })
}
