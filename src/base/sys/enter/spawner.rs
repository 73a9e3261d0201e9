//! The spawner's loop. For each message it starts one first child, which has the daemon as its parent, and sends one answer
//! when the start is over.
//!
//! Invariants:
//! - The spawner has one thread, and waits while a child uses its memory.
//! - When the next message comes, only numbers are left in memory from the message before. A container that may trace the
//!   processes entering it therefore cannot read the environment of another container there.

use std::ffi::{CStr, c_char};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send};
use nix::sys::stat::{Mode, fstat};

use super::board::Pages;
use super::first::first;
use super::orders::Received;
use super::report::{Report, Step};
use super::rights::unbound;
use super::shared_steps::exit;
use super::{MESSAGE_LIMIT, Start};
use crate::base::sys::harden_process;
use crate::base::sys::process::reset_signals;
use crate::base::sys::raw::{self, CloneArgs};

/// `CLONE_INTO_CGROUP`, which does not fit into the type that libc gives it.
const INTO_CGROUP: u64 = 1 << 33;

/// Size in bytes of a child's stack. Its deepest frame holds a path of 4 KiB.
const STACK: usize = 64 << 10;
const GUARD: usize = 64 << 10;

/// Descriptors for one command, in the order in which the daemon sends them.
pub(super) struct Descriptors {
    pub(super) container: OwnedFd,
    pub(super) root: OwnedFd,
    board: OwnedFd,
    /// Descriptors for stdin, stdout and stderr, according to [`Stdio`](super::Stdio).
    pub(super) stdio: Vec<OwnedFd>,
    /// A file with the message, if the message is too long for the socket.
    message: Option<OwnedFd>,
    /// Directory of the v2 cgroup to start the first child in. The spawner opens the directory itself.
    pub(super) born: Option<OwnedFd>,
}

impl Descriptors {
    /// Assigns the received descriptors to their fields. Returns None if descriptors are missing. If `long` is true,
    /// the message did not fit into the socket, and the last descriptor is a file with the message.
    fn of(mut all: Vec<OwnedFd>, long: bool) -> Option<Self> {
        let message = if long { Some(all.pop()?) } else { None };
        let mut all = all.into_iter();
        Some(Self {
            container: all.next()?,
            root: all.next()?,
            board: all.next()?,
            stdio: all.collect(),
            message,
            born: None,
        })
    }
}

/// Serves messages until the daemon closes its end of the socket. The socket must not be one of descriptors 0 to 2.
///
/// # Errors
/// Returns the system's error if memory cannot be mapped, or if the descriptor is not a socket.
pub fn serve(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Children and commands inherit the signal actions.
    reset_signals();
    let (inbox, stacks) = (
        Mapping::new(MESSAGE_LIMIT)?,
        Mapping::new(2 * (GUARD + STACK))?,
    );
    for guard in [0, GUARD + STACK] {
        stacks.forbid(guard, GUARD)?;
    }
    loop {
        // SAFETY: the last message, and every reference into it, is gone before the next message is received.
        let buffer = unsafe { inbox.bytes() };
        let Some((len, fds)) = receive(socket, buffer)? else {
            return Ok(());
        };
        if let Some(fds) = Descriptors::of(fds, len == super::LONG.len()) {
            start(socket, &buffer[..len], fds, &stacks)?;
        }
        buffer[..len].fill(0);
        // A child's change of uid sets the dumpable flag of the shared memory to fs.suid_dumpable. If that is 1, the
        // user of the command could read the memory.
        harden_process();
        send(socket.as_raw_fd(), &[0], MsgFlags::MSG_NOSIGNAL)?;
    }
}

/// Receives a message: its length in bytes and its descriptors. Returns None when the daemon has closed the socket.
fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = nix::cmsg_space!([libc::c_int; 7]);
    let (mut fds, mut slices) = (Vec::new(), [IoSliceMut::new(buffer)]);
    let got = loop {
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    for message in got.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = message {
            // SAFETY: the kernel has just made these descriptors, and no other code knows them.
            fds.extend(
                received
                    .into_iter()
                    .map(|f| unsafe { OwnedFd::from_raw_fd(f) }),
            );
        }
    }
    // Every message has at least one byte, so 0 means that the daemon has closed the socket.
    Ok(Some((got.bytes, fds)).filter(|(len, _)| *len > 0))
}

/// Starts the first child. If that fails, writes the reason to the board.
fn start(
    socket: BorrowedFd<'_>,
    message: &[u8],
    mut fds: Descriptors,
    stacks: &Mapping,
) -> io::Result<()> {
    let pages = Pages::map(fds.board.as_fd())?;
    let long = fds.message.take().map(Mapping::of).transpose()?;
    // SAFETY: nothing writes to the mapping: it is a private copy, and the daemon has sealed the file.
    let message = long.as_ref().map_or(message, |m| unsafe { m.bytes() });
    let started = match Received::decode(message) {
        Some(orders) if orders.stdio.descriptors() == fds.stdio.len() => {
            start_first(socket, orders, fds, &pages, stacks)
        }
        _ => Err(Report {
            step: Step::Clone,
            index: 0,
            errno: Errno::EBADMSG,
        }),
    };
    if let Err(report) = started {
        pages.report(report);
    }
    Ok(())
}

fn pointers(texts: &[&CStr]) -> Vec<*const c_char> {
    let pointers = texts.iter().map(|s| s.as_ptr());
    pointers.chain([std::ptr::null()]).collect()
}

fn start_first(
    socket: BorrowedFd<'_>,
    orders: Received<'_>,
    mut fds: Descriptors,
    pages: &Pages,
    stacks: &Mapping,
) -> Result<(), Report> {
    if let Some(dir) = orders.born {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = open(dir, flags, Mode::empty()).map_err(|errno| Report {
            step: Step::Cgroup,
            index: orders.cgroups.len(),
            errno,
        });
        fds.born = Some(opened?);
    }
    let mut s = Start {
        argv: pointers(&orders.argv),
        envp: pointers(&orders.envp),
        unbound: unbound(&orders),
        unborn: false,
        stack_end: stacks.end(2 * (GUARD + STACK)),
        orders,
        fds,
        socket,
        pages,
    };
    let cloned = clone_first(&mut s, stacks);
    if !s.orders.traceable && !s.pages.memory_is_left() {
        // Somebody killed the first child. The second child may still read the spawner's memory. The spawner ends, so
        // it does not change that memory.
        exit();
    }
    cloned.map_err(|errno| Report {
        step: Step::Clone,
        index: 0,
        errno,
    })
}

/// Starts the first child and waits for its end. With clone3 the child starts in its v2 cgroup. Some containers forbid
/// clone3 (ENOSYS, EPERM). Without clone3, the child joins the cgroup by itself, and reports an error of that step.
fn clone_first(s: &mut Start<'_>, stacks: &Mapping) -> nix::Result<()> {
    let mut flags = libc::CLONE_PARENT | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;
    if !s.orders.traceable {
        flags |= libc::CLONE_VM;
    }
    let mut args = CloneArgs {
        flags: flags as u64,
        parent_tid: s.pages.first().as_ptr() as u64,
        stack: stacks.end(GUARD) as u64,
        stack_size: STACK as u64,
        ..CloneArgs::default()
    };
    if let Some(born) = &s.fds.born {
        args.flags |= INTO_CGROUP;
        args.cgroup = born.as_raw_fd() as u64;
    }
    let given = [&raw const args as usize, size_of::<CloneArgs>(), 0, 0, 0];
    let arg: *const Start<'_> = s;
    // SAFETY: no other code uses the stack. `s` stays valid, because this process waits in the call until the child has
    // ended (CLONE_VFORK). The kernel writes one int to a page shared with the daemon.
    let mut cloned = unsafe { raw::clone(libc::SYS_clone3, given, first, arg.cast()) };
    if cloned.is_err() {
        s.unborn = true;
        let (end, first_pid) = (stacks.end(GUARD + STACK), s.pages.first().as_ptr());
        let given = [flags as usize, end as usize, first_pid as usize, 0, 0];
        let arg: *const Start<'_> = s;
        // SAFETY: the conditions for clone3 above hold, because no child came of that call.
        cloned = unsafe { raw::clone(libc::SYS_clone, given, first, arg.cast()) };
    }
    cloned
}

/// Private memory of this process.
struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> nix::Result<Self> {
        Self::map(len, libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    /// Maps a private copy of a file.
    fn of(file: OwnedFd) -> io::Result<Self> {
        let len = usize::try_from(fstat(&file)?.st_size).map_err(io::Error::other)?;
        Ok(Self::map(len, 0, file.as_raw_fd())?)
    }

    fn map(len: usize, flags: i32, fd: i32) -> nix::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_PRIVATE;
        // SAFETY: a new mapping at an address of the kernel's choice collides with no other.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let at = NonNull::new(at.cast()).ok_or(Errno::EFAULT)?;
        Ok(Self { at, len })
    }

    /// # Safety
    /// No other code uses the mapping while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the caller's promise")]
    unsafe fn bytes(&self) -> &mut [u8] {
        // SAFETY: the memory is mapped, readable and writable, as long as `self` lives. Every byte is a valid value.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// Returns the address that is `bytes` above the start of the mapping.
    fn end(&self, bytes: usize) -> *mut u8 {
        self.at.as_ptr().wrapping_add(bytes)
    }

    fn forbid(&self, from: usize, len: usize) -> nix::Result<()> {
        // SAFETY: the range is an unused part of this mapping, page aligned for pages of up to 64 KiB.
        Errno::result(unsafe { libc::mprotect(self.end(from).cast(), len, libc::PROT_NONE) })
            .map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}
