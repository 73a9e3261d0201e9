//! Frees memory of this thread's stack.

use nix::errno::Errno;
use nix::unistd::{SysconfVar, sysconf};

/// Gives the stack's pages below the caller's frame back to the kernel. Call this function in a thread that is about to
/// wait for long. Otherwise the thread's stack keeps the memory of its deepest call, and each pod has such a thread. A
/// page that is needed again costs a page fault of about a microsecond.
#[inline(never)]
pub fn give_back() -> Result<(), Errno> {
    let page = sysconf(SysconfVar::PAGE_SIZE)?.map_or(4096, |size| size as usize);
    let here = 0_u8;
    // This function is never inlined, so that `here` is in a small frame of its own. That frame and the frames of the
    // functions called from it stay within the page of `here` and the page below.
    let end = (&raw const here as usize & !(page - 1)) - page;
    let low = lowest()?.next_multiple_of(page);
    if low >= end {
        return Ok(());
    }
    // SAFETY: `low..end` is the part of this thread's own stack that lies at least a page below this frame. The stack
    // grows down, so no live variable is there, and no reference leads there. The kernel fills the pages with zeros
    // when they are touched again.
    let freed = unsafe { libc::madvise(low as *mut libc::c_void, end - low, libc::MADV_DONTNEED) };
    Errno::result(freed).map(drop)
}

/// Returns the lowest address of this thread's stack.
fn lowest() -> Result<usize, Errno> {
    let failed = |code| match code {
        0 => Ok(()),
        code => Err(Errno::from_raw(code)),
    };
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: the call writes the attributes of this thread through the pointer, which is valid for the call.
    failed(unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) })?;
    let (mut address, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes were initialised above; both results are written through pointers to locals.
    let read = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut address, &mut size) };
    // SAFETY: the attributes were initialised above, and are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    failed(read)?;
    Ok(address as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::used_stack::{resident, touch};

    #[test]
    fn a_thread_keeps_its_values_and_not_the_memory_of_its_deepest_call() {
        let thread = std::thread::Builder::new().stack_size(512 << 10);
        let run = || {
            let kept = std::hint::black_box([7_u8; 3000]);
            let here = kept.as_ptr() as usize;
            touch();
            let before = resident(here);
            give_back().unwrap();
            let after = resident(here);
            assert!(before >= 200 && after + 180 < before, "{before} {after}");
            touch();
            assert_eq!(kept, [7; 3000]);
        };
        thread.spawn(run).unwrap().join().unwrap();
    }
}
