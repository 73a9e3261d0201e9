//! The processes that enter a container and become the command (exec-in-container 3, steps 3 to 13).
//!
//! The *spawner* is a small process of one thread, started once. For each message of the daemon it makes the *first
//! child*, a copy of itself, which joins the container's cgroups and namespaces and drops every privilege; that one makes
//! the *second child*, which is in the container's process namespace and becomes the command. Both are children of the
//! daemon, not of the spawner: the daemon kills and reaps them.
//!
//! Invariants:
//! - No process that shares memory with the daemon or with the spawner is ever in a cgroup of the container: when that
//!   one is out of memory the kernel kills everyone who shares the memory of whom it picks, and with
//!   `memory.oom.group` it picks everyone.
//! - The second child is the only one that the container can see, and by then it holds no privilege that the container
//!   lacks and no descriptor of the daemon's but its own stdio: everything is dropped in the first.
//! - What a child has to say it writes on a page shared with the daemon. That the start is over shows in the end of the
//!   first child, which waits in the kernel until the second has executed a file or ended, however it ends.

mod board;
mod first;
mod orders;
mod report;
mod second;
mod spawner;

use std::ffi::c_char;
use std::os::fd::BorrowedFd;

pub use board::Board;
pub use orders::Orders;
pub use report::{Report, Step};
pub use spawner::serve;

/// The longest message that goes through the socket, in bytes; a longer one is a file, sent with the other descriptors.
pub const MESSAGE_LIMIT: usize = 128 << 10;

/// What the children work with.
struct Start<'a> {
    orders: orders::Received<'a>,
    fds: spawner::Descriptors,
    /// Between the daemon and the spawner.
    socket: BorrowedFd<'a>,
    pages: &'a board::Pages,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    /// Capabilities that are in our bounding set and not in the container's.
    unbound: u64,
    /// The first child was not born in its v2 cgroup.
    unborn: bool,
    /// Of the second child's stack.
    stack_end: *mut u8,
}

#[cfg(test)]
pub(crate) use spawner::forbid_clone3;
