//! `clone` without libc, whose own cannot pass all that the kernel takes, and structures that libc lacks.

use std::arch::asm;
use std::ffi::c_void;

// The calls that take user and group ids of 32 bits: on arm those of the plain names take 16, and 65536 would be 0.
#[cfg(not(target_arch = "arm"))]
pub(super) use libc::{SYS_setgroups, SYS_setresgid, SYS_setresuid};
#[cfg(target_arch = "arm")]
pub(super) use libc::{
    SYS_setgroups32 as SYS_setgroups, SYS_setresgid32 as SYS_setresgid,
    SYS_setresuid32 as SYS_setresuid,
};

/// `_LINUX_CAPABILITY_VERSION_3`.
pub(super) const CAP_VERSION_3: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
pub(super) struct CapHeader {
    pub(super) version: u32,
    pub(super) pid: i32,
}

/// `struct __user_cap_data_struct`; version 3 has two, low word first.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CapData {
    pub(super) effective: u32,
    pub(super) permitted: u32,
    pub(super) inheritable: u32,
}

/// `struct clone_args` of clone3.
#[repr(C)]
#[derive(Default)]
pub(super) struct CloneArgs {
    pub(super) flags: u64,
    pub(super) pidfd: u64,
    pub(super) child_tid: u64,
    pub(super) parent_tid: u64,
    pub(super) exit_signal: u64,
    pub(super) stack: u64,
    pub(super) stack_size: u64,
    pub(super) tls: u64,
    pub(super) set_tid: u64,
    pub(super) set_tid_size: u64,
    pub(super) cgroup: u64,
}

/// `clone` (flags, end of the stack, where CLONE_PIDFD or CLONE_PARENT_SETTID writes, 0, 0) or `clone3` (a [`CloneArgs`],
/// its size, 0, 0, 0), with a stack of its own: the child calls `entry(arg)` there. Returns the child's pid, or `-errno`.
///
/// # Safety
/// The stack has a 16-byte aligned end and is memory that nobody else uses. With CLONE_VM it, `arg` and what `arg` leads
/// to live until the child has ended or executed a file, and the caller waits for that (CLONE_VFORK). What the flags let
/// the kernel write to is writable.
pub(super) unsafe fn clone(
    n: libc::c_long,
    a: [usize; 5],
    entry: extern "C" fn(*const c_void) -> !,
    arg: *const c_void,
) -> isize {
    let ret: isize;
    // SAFETY: in the parent this is a plain system call. The child starts with our registers and an empty stack, aligned as
    // a call needs it, and never comes back out of the block. What it reads after the call is in registers named here: left
    // to the compiler one of them may be rbp, which is cleared before.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r13", "call r12", "ud2", "2:",
            in("r13") arg, in("r12") entry, inlateout("rax") n as isize => ret, in("rdi") a[0], in("rsi") a[1],
            in("rdx") a[2], in("r10") a[3], in("r8") a[4], out("rcx") _, out("r11") _);
    }
    // SAFETY: as above; here the frame pointer, which is cleared, is x29.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x30, xzr", "mov x0, x9", "blr x10", "brk 1", "2:",
            in("x9") arg, in("x10") entry, in("x8") n, inlateout("x0") a[0] as isize => ret, in("x1") a[1],
            in("x2") a[2], in("x3") a[3], in("x4") a[4], out("x30") _);
    }
    // SAFETY: as above; the frame pointer is r11. r7, which has the number of the call, may be LLVM's own and is put back.
    #[cfg(target_arch = "arm")]
    unsafe {
        asm!("mov r8, r7", "mov r7, r12", "svc 0", "mov r7, r8", "cmp r0, #0", "bne 2f", "mov r11, #0", "mov lr, #0",
            "mov r0, r9", "blx r10", "udf #0", "2:",
            in("r9") arg, in("r10") entry, in("r12") n, inlateout("r0") a[0] as isize => ret, in("r1") a[1],
            in("r2") a[2], in("r3") a[3], in("r4") a[4], out("r8") _, out("lr") _);
    }
    ret
}
