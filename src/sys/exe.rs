//! A handle of this program that nobody can write through (CVE-2019-5736).
//!
//! A container whose command is `/proc/self/exe` runs the program that set it up, and may then open that file for
//! writing from outside of the running process. Through a detached read-only mount it gets EROFS.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// /proc/self/exe by way of a read-only mount of its own that is in no namespace. Needs CAP_SYS_ADMIN and Linux 5.12.
pub fn open_read_only() -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path is a static C string; open_tree takes no other pointer.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, c"/proc/self/exe".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let attr = MountAttr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the empty path is a static C string, `attr` lives through the call and its size is passed with it.
    let r = unsafe {
        libc::syscall(libc::SYS_mount_setattr, fd.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, &raw const attr, size_of::<MountAttr>())
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}
