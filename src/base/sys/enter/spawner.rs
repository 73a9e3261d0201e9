//! The spawner's loop: one message, one first child, which is the daemon's own child and none of the spawner's, and one
//! answer when the start is over.
//!
//! Invariants:
//! - The spawner has one thread, and waits while a child uses its memory.
//! - When the next message comes nothing of the one before is left in its memory but numbers: a container that may trace
//!   what enters it reads no other container's environment there.

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

/// `CLONE_INTO_CGROUP`, which does not fit libc's type of it.
const INTO_CGROUP: u64 = 1 << 33;

/// A child's deepest frame has a path of 4 KiB.
const STACK: usize = 64 << 10;
const GUARD: usize = 64 << 10;

/// Descriptors of one command, in the order in which they are sent.
pub(super) struct Descriptors {
    pub(super) container: OwnedFd,
    pub(super) root: OwnedFd,
    board: OwnedFd,
    /// See [`Stdio`](super::Stdio).
    pub(super) stdio: Vec<OwnedFd>,
    /// A message that is too long for the socket.
    message: Option<OwnedFd>,
    /// Directory of the v2 cgroup to be born in; opened here.
    pub(super) born: Option<OwnedFd>,
}

impl Descriptors {
    /// Sorts the received descriptors; None if some are missing. The message is a file among them if it is `long`;
    /// otherwise it came through the socket.
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

/// Serves messages until the daemon has closed its end. The socket is none of descriptors 0 to 2.
///
/// # Errors
/// Returns the system's error if memory cannot be mapped, or the descriptor is no socket.
pub fn serve(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Children and commands inherit it.
    reset_signals();
    let (inbox, stacks) = (
        Mapping::new(MESSAGE_LIMIT)?,
        Mapping::new(2 * (GUARD + STACK))?,
    );
    for guard in [0, GUARD + STACK] {
        stacks.forbid(guard, GUARD)?;
    }
    loop {
        // SAFETY: the last message, and all that led into it, is gone when the next is received.
        let buffer = unsafe { inbox.bytes() };
        let Some((len, fds)) = receive(socket, buffer)? else {
            return Ok(());
        };
        if let Some(fds) = Descriptors::of(fds, len == super::LONG.len()) {
            start(socket, &buffer[..len], fds, &stacks)?;
        }
        buffer[..len].fill(0);
        // A change of uid makes the memory readable for that user where fs.suid_dumpable is 1, and so ours.
        harden_process();
        send(socket.as_raw_fd(), &[0], MsgFlags::MSG_NOSIGNAL)?;
    }
}

/// The length of a message and its descriptors; None at the end.
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
            // SAFETY: the kernel just made these descriptors for us.
            fds.extend(
                received
                    .into_iter()
                    .map(|f| unsafe { OwnedFd::from_raw_fd(f) }),
            );
        }
    }
    // No message is empty.
    Ok(Some((got.bytes, fds)).filter(|(len, _)| *len > 0))
}

/// Starts the first child, or says on the board why there is none.
fn start(
    socket: BorrowedFd<'_>,
    message: &[u8],
    mut fds: Descriptors,
    stacks: &Mapping,
) -> io::Result<()> {
    let pages = Pages::map(fds.board.as_fd())?;
    let long = fds.message.take().map(Mapping::of).transpose()?;
    // SAFETY: the mapping is written to by nobody: it is a private copy, and the daemon has sealed the file.
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
        // Somebody killed the first child. What the second may still read stays as it is.
        exit();
    }
    cloned.map_err(|errno| Report {
        step: Step::Clone,
        index: 0,
        errno,
    })
}

/// Starts the first child and waits for its end. In its v2 cgroup where clone3 lets us; else it joins by itself, and an
/// error shows there: in some containers clone3 is forbidden (ENOSYS, EPERM).
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
    // SAFETY: the stack is used by nobody else; `s` stays, and this process waits in the call until the child has ended
    // (CLONE_VFORK); the kernel writes one int to a page shared with the daemon.
    let mut pid = unsafe { raw::clone(libc::SYS_clone3, given, first, arg.cast()) };
    if pid < 0 {
        s.unborn = true;
        let (end, first_pid) = (stacks.end(GUARD + STACK), s.pages.first().as_ptr());
        let given = [flags as usize, end as usize, first_pid as usize, 0, 0];
        let arg: *const Start<'_> = s;
        // SAFETY: as above; no child came of the first call.
        pid = unsafe { raw::clone(libc::SYS_clone, given, first, arg.cast()) };
    }
    Errno::result(pid)
        .map(drop)
        .map_err(|_| Errno::from_raw(-pid as i32))
}

/// Private memory of our own.
struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> nix::Result<Self> {
        Self::map(len, libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    /// A copy of a file.
    fn of(file: OwnedFd) -> io::Result<Self> {
        let len = usize::try_from(fstat(&file)?.st_size).map_err(io::Error::other)?;
        Ok(Self::map(len, 0, file.as_raw_fd())?)
    }

    fn map(len: usize, flags: i32, fd: i32) -> nix::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_PRIVATE;
        // SAFETY: a new mapping anywhere collides with nothing.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let at = NonNull::new(at.cast()).ok_or(Errno::EFAULT)?;
        Ok(Self { at, len })
    }

    /// # Safety
    /// Nobody else uses it meanwhile.
    #[expect(clippy::mut_from_ref, reason = "the caller's promise")]
    unsafe fn bytes(&self) -> &mut [u8] {
        // SAFETY: mapped, readable and writable, as long as `self` lives; every byte is a valid one.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// The address that many bytes above its begin.
    fn end(&self, bytes: usize) -> *mut u8 {
        self.at.as_ptr().wrapping_add(bytes)
    }

    fn forbid(&self, from: usize, len: usize) -> nix::Result<()> {
        // SAFETY: the range is a part of our mapping that nobody uses, page aligned for pages of up to 64 KiB.
        Errno::result(unsafe { libc::mprotect(self.end(from).cast(), len, libc::PROT_NONE) })
            .map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Makes clone3 fail in the calling thread and in what it starts, for good, as it does in some containers.
#[cfg(test)]
pub(crate) fn forbid_clone3() {
    let statement = |code: u32, k: u32, jt: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_clone3 as u32,
            1,
        ),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
            0,
        ),
    ];
    crate::base::sys::process::apply_seccomp(&program, 0).unwrap();
}
