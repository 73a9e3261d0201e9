//! The processes that enter a container and become the command (exec-in-container 3, steps 3 to 13).
//!
//! The *spawner* is a small process with one thread. For each message from the daemon it starts the *first child*. The
//! first child joins the container's cgroups and namespaces, drops every privilege, and starts the *second child*. The
//! second child is in the container's process namespace and becomes the command. Both children have the daemon as their
//! parent, not the spawner: the daemon kills and reaps them.
//!
//! The children share the spawner's memory, because copying it would cost more than all other steps of the start. If
//! the container may trace the processes in it, the children are copies.
//!
//! Invariants:
//! - No process that shares memory with the daemon is ever in a cgroup of the container. If that cgroup is out of
//!   memory, the kernel kills a process and all processes that share its memory; with `memory.oom.group` it kills all
//!   processes of the cgroup. The spawner may be killed in this way, and only the command that it is starting is lost.
//! - Among the processes that share one memory, only one runs at a time: each waits for the process that it has started
//!   (CLONE_VFORK). If somebody kills the first child while it waits, the spawner ends and leaves the memory to the
//!   second child.
//! - The children do not allocate, take no lock, and write only to their stacks and the board. They may be killed at any
//!   instruction, and the spawner then goes on with the memory that they leave.
//! - CLONE_VFORK also keeps `oom_score_adj` apart. A new value applies to all processes that share the memory, but not
//!   if the value is set for a process whose parent waits for it with CLONE_VFORK.
//! - The memory is not dumpable while the container can see a child, and it holds nothing of another container.
//! - The container can see only the second child. The first child drops everything, so the second child has no
//!   privilege that the container lacks and no descriptor except its stdio.
//! - A child reports by writing to a page that it shares with the daemon. The spawner reports that the start is over.

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

/// Largest size in bytes of a message through the socket. A longer message is sent as a file, by its descriptor.
pub const MESSAGE_LIMIT: usize = 128 << 10;

/// The message that goes through the socket if the real message is sent as a file. No real message is as short as this.
pub const LONG: [u8; 1] = [0];

/// All data that the children work with.
struct Start<'a> {
    orders: orders::Received<'a>,
    fds: spawner::Descriptors,
    /// The socket between the daemon and the spawner.
    socket: BorrowedFd<'a>,
    pages: &'a board::Pages,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    /// Capabilities that are in the spawner's bounding set but not in the container's, one bit for each.
    unbound: u64,
    /// True if the first child was not started in its v2 cgroup, and has to join that cgroup.
    unborn: bool,
    /// The end of the second child's stack.
    stack_end: *mut u8,
}
