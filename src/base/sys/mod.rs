//! The only place with `unsafe` code: system calls for which there is no safe wrapper, and the processes that enter a
//! container (exec-in-container 3). This module also has the readers of `/proc` files that several parts use.
//!
//! Invariants: every unsafe block says why it is sound. The functions make no decisions: each makes its system call and
//! returns the errno.
#![allow(unsafe_code)]

pub mod bpf;
pub mod calls;
pub mod cgroup;
pub mod cgroup_mounts;
pub mod cgroup_tree;
pub mod enter;
pub mod exe;
pub mod listening;
pub mod mount_tree;
pub mod mountinfo;
pub mod process;
mod raw;
pub mod socket;
pub mod stack;
pub mod task;
pub mod terminal;
pub mod xattr;

use nix::errno::Errno;

/// Widens a number of the C library to 64 bits, because its type is narrower on a 32-bit machine.
pub fn wide<N: Into<W>, W>(number: N) -> W {
    number.into()
}

/// Makes this process non-dumpable (exec-in-container 4). A process without CAP_SYS_PTRACE in podprobe's user namespace
/// can then not trace this process, read its memory or open its `/proc/PID/exe`, not even with the same uid. A child's
/// change of uid may make this process dumpable again if `fs.suid_dumpable` is 1. Therefore every exec calls this
/// function again. The call never fails on Linux.
pub fn harden_process() {
    // SAFETY: PR_SET_DUMPABLE takes integers only and touches no memory of this process.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// Lets the kernel kill this process when the thread that started it ends. Returns false if `parent` has ended already.
pub fn die_with_parent(parent: i32) -> bool {
    // SAFETY: PR_SET_PDEATHSIG takes integers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    nix::unistd::getppid().as_raw() == parent
}

/// Returns the permitted capabilities of the calling thread as a bit mask.
pub fn permitted_capabilities() -> Result<u64, Errno> {
    let header = raw::CapHeader {
        version: raw::CAP_VERSION_3,
        pid: 0,
    };
    let mut data = [raw::CapData::default(); 2];
    // SAFETY: version 3 reads one header and writes two data structures, which is what both pointers refer to.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &header, data.as_mut_ptr()) })?;
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}
