//! The system call `clone` without libc, which cannot pass all arguments of the kernel, and structures that libc lacks.

use std::arch::asm;
use std::ffi::c_void;

use nix::errno::Errno;

// These calls take user and group ids of 32 bits. On arm, the calls with the plain names take 16 bits, and 65536 would
// become 0.
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

/// `struct __user_cap_data_struct`. Version 3 of the call takes two of them, the low word first.
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

/// Makes the system call `clone` (flags, end of the stack, address for CLONE_PIDFD or CLONE_PARENT_SETTID, 0, 0) or
/// `clone3` (a [`CloneArgs`], its size, 0, 0, 0). The child has a stack of its own and calls `entry(arg)` on it.
///
/// # Errors
/// Returns the system's error if there is no child.
///
/// # Safety
/// The stack's end is 16-byte aligned, and no other code uses the stack. With CLONE_VM, the stack, `arg` and everything
/// that `arg` leads to live until the child has ended or executed a file, and the caller waits for that (CLONE_VFORK).
/// Memory that the flags let the kernel write to is writable.
pub(super) unsafe fn clone(
    n: libc::c_long,
    a: [usize; 5],
    entry: extern "C" fn(*const c_void) -> !,
    arg: *const c_void,
) -> nix::Result<()> {
    let ret: isize;
    // SAFETY: in the parent this is a plain system call. The child starts with the same registers and an empty stack,
    // aligned as a call needs it, and never leaves the block. The values that it reads after the call are in registers
    // named here. If the compiler chose the registers, it might choose rbp, which the block clears first.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r13", "call r12", "ud2", "2:",
            in("r13") arg, in("r12") entry, inlateout("rax") n as isize => ret, in("rdi") a[0], in("rsi") a[1],
            in("rdx") a[2], in("r10") a[3], in("r8") a[4], out("rcx") _, out("r11") _);
    }
    // SAFETY: the same reasons as on x86_64. The frame pointer, which the block clears, is x29.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x30, xzr", "mov x0, x9", "blr x10", "brk 1", "2:",
            in("x9") arg, in("x10") entry, in("x8") n, inlateout("x0") a[0] as isize => ret, in("x1") a[1],
            in("x2") a[2], in("x3") a[3], in("x4") a[4], out("x30") _);
    }
    // SAFETY: the same reasons as on x86_64. The frame pointer is r11. LLVM may use r7, which has the number of the system
    // call. The block therefore restores it.
    #[cfg(target_arch = "arm")]
    unsafe {
        asm!("mov r8, r7", "mov r7, r12", "svc 0", "mov r7, r8", "cmp r0, #0", "bne 2f", "mov r11, #0", "mov lr, #0",
            "mov r0, r9", "blx r10", "udf #0", "2:",
            in("r9") arg, in("r10") entry, in("r12") n, inlateout("r0") a[0] as isize => ret, in("r1") a[1],
            in("r2") a[2], in("r3") a[3], in("r4") a[4], out("r8") _, out("lr") _);
    }
    match ret {
        ..0 => Err(Errno::from_raw(-ret as i32)),
        _ => Ok(()),
    }
}
