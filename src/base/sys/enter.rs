//! The processes that enter a container and become the command (exec-in-container 3, steps 3 to 13).
//!
//! The *spawner* is a small process of one thread. For each message of the daemon it starts the *first child*, which
//! joins the container's cgroups and namespaces and drops every privilege; that one starts the *second child*, which is
//! in the container's process namespace and becomes the command. Both are children of the daemon, not of the spawner: the
//! daemon kills and reaps them.
//!
//! The children share the spawner's memory, because a copy of it costs more than all the rest of the start. Where the
//! container may trace what is in it they are copies.
//!
//! Invariants:
//! - No process that shares memory with the daemon is ever in a cgroup of the container: when that one is out of memory
//!   the kernel kills everyone who shares the memory of whom it picks, and with `memory.oom.group` it picks everyone. The
//!   spawner may be killed so, and only the command that it starts at the time is concerned.
//! - Of the processes that share one memory a single one runs: each waits for the one it started (CLONE_VFORK). Where
//!   somebody kills the first child as it waits, the spawner ends, and leaves the memory to the second.
//! - The children allocate nothing, take no lock and write to nothing but their stacks and the board: they may be killed at
//!   any instruction, and the spawner goes on with the memory that they leave.
//! - CLONE_VFORK also keeps `oom_score_adj` apart: the kernel gives a new one to everyone who shares the memory, but not
//!   when it is set for a process whose parent waits in it.
//! - The memory is not dumpable while a child is in view of the container, and holds nothing of another container.
//! - The second child is the only one that the container can see, and by then it holds no privilege that the container
//!   lacks and no descriptor but its own stdio: everything is dropped in the first.
//! - What a child has to say it writes on a page shared with the daemon. That the start is over says the spawner.

mod board;
mod first;
mod orders;
mod report;
mod rights;
mod second;
mod shared_steps;
mod spawner;

use std::ffi::c_char;
use std::os::fd::BorrowedFd;

pub use board::Board;
pub use orders::{Orders, Stdio};
pub use report::{Report, Step};
pub use rights::{drop_to, take_on};
pub use spawner::serve;

/// The longest message that goes through the socket, in bytes; a longer one is a file, sent with the other descriptors.
pub const MESSAGE_LIMIT: usize = 128 << 10;

/// In place of a message that is a file. No other message is as short.
pub const LONG: [u8; 1] = [0];

/// Everything that the children work with.
struct Start<'a> {
    orders: orders::Received<'a>,
    fds: spawner::Descriptors,
    /// The socket between the daemon and the spawner.
    socket: BorrowedFd<'a>,
    pages: &'a board::Pages,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    /// Capabilities that are in our bounding set and not in the container's.
    unbound: u64,
    /// True if the first child was not born in its v2 cgroup.
    unborn: bool,
    /// The end of the second child's stack.
    stack_end: *mut u8,
}

#[cfg(test)]
pub(crate) use spawner::forbid_clone3;
