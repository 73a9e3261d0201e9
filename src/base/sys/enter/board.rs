//! Two pages of memory that the daemon, the spawner and the children of one command share. Later commands use the pages
//! again.
//!
//! Invariant: the process ids are on a page of their own. A process that the container may trace does not have this page.
//! The container therefore cannot choose which processes the daemon kills and reaps.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::report::Report;

use crate::base::locks::Locked;

/// Size in bytes of one of the two pages. It is large enough for kernels with large pages.
const PAGE: usize = 64 << 10;
const SIZE: usize = 2 * PAGE;

/// Largest number of unused boards that are kept. Each board takes 8 KiB. A command that finds no unused board makes a
/// new board.
const KEPT: usize = 4;

static POOL: Mutex<Vec<Board>> = Mutex::new(Vec::new());

/// The first of the two shared pages: the process ids of the children. A new page is all zeros.
#[repr(C)]
struct Processes {
    first: AtomicI32,
    second: AtomicI32,
    /// 1 if the first child has seen that the second child executed a file or ended.
    seen_off: AtomicU32,
}

/// The second of the two shared pages: how far the command's children have come. A new page is all zeros.
#[repr(C)]
struct Progress {
    /// A report in the encoding of [`Report::encode`]; 0 means that there is none.
    report: AtomicU64,
    /// 1 if the second child's next step is execve.
    ready: AtomicU32,
}

/// The mapping of both pages in this process.
pub(super) struct Pages(NonNull<u8>);

// SAFETY: the address of a mapping of this process, used only by the owner of the value, and only with atomics.
unsafe impl Send for Pages {}

impl Pages {
    pub(super) fn map(fd: BorrowedFd<'_>) -> nix::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice collides with no other.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SIZE,
                access,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        NonNull::new(at.cast()).map(Self).ok_or(Errno::EFAULT)
    }

    fn processes(&self) -> &Processes {
        // SAFETY: the mapping is page aligned, readable and writable, and lives as long as `self`. The file keeps this
        // size forever (it is sealed). All zeros is a valid value. All processes use atomics only.
        unsafe { self.0.cast().as_ref() }
    }

    fn progress(&self) -> &Progress {
        // SAFETY: the same mapping as in `processes`, valid for the same reasons; the second page begins within it.
        unsafe { self.0.byte_add(PAGE).cast().as_ref() }
    }

    /// Returns the place to which the kernel writes the first child's process id.
    pub(super) fn first(&self) -> &AtomicI32 {
        &self.processes().first
    }

    /// Returns the place to which the kernel writes the second child's process id.
    pub(super) fn second(&self) -> &AtomicI32 {
        &self.processes().second
    }

    /// Records that the first child has seen the second child execute a file or end.
    pub(super) fn set_seen_off(&self) {
        self.processes().seen_off.store(1, Ordering::Release);
    }

    /// Tells whether no child uses the spawner's memory any more. Call it when the first child has ended. The result is
    /// false if the first child was killed while it waited, because the second child may still be about to execute its
    /// file.
    pub(super) fn memory_is_left(&self) -> bool {
        let failed = self.progress().report.load(Ordering::Acquire) != 0;
        let alone = self.second().load(Ordering::Acquire) == 0;
        failed || alone || self.processes().seen_off.load(Ordering::Acquire) != 0
    }

    pub(super) fn report(&self, report: Report) {
        self.progress()
            .report
            .store(report.encode(), Ordering::Release);
    }

    pub(super) fn set_ready(&self) {
        self.progress().ready.store(1, Ordering::Release);
    }

    /// Keeps the first page, with the process ids, out of the copies of this memory that children get.
    pub(super) fn keep_processes(&self) -> nix::Result<()> {
        // SAFETY: the first page is a whole part of our mapping; nothing is unmapped or changed in this process.
        Errno::result(unsafe { libc::madvise(self.0.as_ptr().cast(), PAGE, libc::MADV_DONTFORK) })
            .map(drop)
    }

    fn clear(&self) {
        let (processes, progress) = (self.processes(), self.progress());
        processes.first.store(0, Ordering::Relaxed);
        processes.second.store(0, Ordering::Relaxed);
        processes.seen_off.store(0, Ordering::Relaxed);
        progress.report.store(0, Ordering::Relaxed);
        progress.ready.store(0, Ordering::Relaxed);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

/// The daemon's access to the two pages: shows how far a command has come.
pub struct Board {
    fd: OwnedFd,
    pages: Pages,
}

impl Board {
    /// Takes an unused board that was kept for later commands, or makes a new board.
    ///
    /// # Errors
    /// Returns the system's error if no descriptors or no memory are left.
    pub fn take() -> nix::Result<Self> {
        let kept = POOL.locked().pop();
        kept.map_or_else(Self::new, Ok)
    }

    fn new() -> nix::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create(c"nsexec-board", flags)?;
        nix::unistd::ftruncate(&fd, SIZE as i64)?;
        // A sealed file cannot be made shorter by another process that maps it.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
        let pages = Pages::map(fd.as_fd())?;
        Ok(Self { fd, pages })
    }

    /// Returns the first child's process id; None before the first child exists.
    pub fn first(&self) -> Option<i32> {
        Some(self.pages.first().load(Ordering::Acquire)).filter(|p| *p > 0)
    }

    /// Returns the process id of the second child, which becomes the command; None before the second child exists.
    pub fn second(&self) -> Option<i32> {
        Some(self.pages.second().load(Ordering::Acquire)).filter(|p| *p > 0)
    }

    /// Tells whether the second child has come to its last step, execve.
    pub fn ready(&self) -> bool {
        self.pages.progress().ready.load(Ordering::Acquire) != 0
    }

    /// Returns the report of the step that failed; None if no step has failed.
    pub fn report(&self) -> Option<Report> {
        Report::decode(self.pages.progress().report.load(Ordering::Acquire))
    }

    /// Keeps the board for a later command. Call it only if both children have ended or executed a file, and if the
    /// container could not trace the second child. Otherwise a process may still use the pages.
    pub fn give_back(self) {
        self.pages.clear();
        let mut pool = POOL.locked();
        if pool.len() < KEPT {
            pool.push(self);
        }
    }
}

impl AsFd for Board {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
