//! The children's stacks and the page on which they say how far they came, kept for later commands: mapping, touching
//! and unmapping them anew costs a command 15 µs, and more with every thread of ours.
//!
//! Invariant: a piece of memory is given back only when no child uses it any more; see [`super::Entering::release`].

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;

/// A child's deepest frame has a path of 4 KiB.
pub(super) const STACK: usize = 64 << 10;
const GUARD: usize = 64 << 10;
/// One page, of kernels with large ones.
const BOARD: usize = 64 << 10;
const SIZE: usize = 2 * (GUARD + STACK) + BOARD;

/// Pieces that are kept, some 20 KiB each; more commands at once map their own.
const KEPT: usize = 4;

static POOL: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

/// What the children tell, on a page shared also with a child that has a copy of all else. All zeros before.
pub(super) struct Board {
    /// The step that failed; see [`super::Report`].
    pub(super) report: AtomicU64,
    /// 1 when the next thing is execve.
    pub(super) ready: AtomicU32,
    /// 1 when the one that waits for a word may go on.
    pub(super) go: AtomicU32,
}

/// Two stacks, each above a guard, then the board.
pub(super) struct Memory(*mut u8);

// SAFETY: an address of a mapping of this process, used by whoever owns the value.
unsafe impl Send for Memory {}

impl Memory {
    /// A piece that was given back, or a new one. ENOMEM and what else mmap says.
    pub(super) fn take() -> Result<Self, Errno> {
        let kept = POOL.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let memory = kept.map_or_else(Self::map, Ok)?;
        let board = memory.board();
        board.report.store(0, Ordering::Relaxed);
        board.ready.store(0, Ordering::Relaxed);
        board.go.store(0, Ordering::Relaxed);
        Ok(memory)
    }

    fn map() -> Result<Self, Errno> {
        let anonymous = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping anywhere collides with nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SIZE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | anonymous,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let memory = Memory(base.cast());
        for n in 0..2 {
            // SAFETY: both ranges lie inside the mapping made above, page aligned for pages of up to 64 KiB.
            Errno::result(unsafe { libc::mprotect(memory.stack(n).cast(), STACK, access) })?;
        }
        let board = memory.0.wrapping_add(SIZE - BOARD);
        // SAFETY: replaces the last part of the mapping made above, which nobody knows yet.
        let mapped = unsafe {
            libc::mmap(
                board.cast(),
                BOARD,
                access,
                libc::MAP_SHARED | libc::MAP_FIXED | anonymous,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            Err(Errno::last())
        } else {
            Ok(memory)
        }
    }

    /// The lowest address of stack `n`, 0 or 1.
    pub(super) fn stack(&self, n: usize) -> *mut u8 {
        self.0.wrapping_add(n * (GUARD + STACK) + GUARD)
    }

    pub(super) fn board(&self) -> &Board {
        // SAFETY: mapped readable and writable, zeroed by the kernel, aligned, and never accessed but by atomics.
        unsafe { &*self.0.wrapping_add(SIZE - BOARD).cast::<Board>() }
    }

    /// For the next command. No child may use it any more.
    pub(super) fn give_back(self) {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < KEPT {
            pool.push(self);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; its owner saw both children end or leaked it instead.
        unsafe { libc::munmap(self.0.cast(), SIZE) };
    }
}
