//! This program as nobody can write to it (CVE-2019-5736, exec-in-container 4).
//!
//! A container whose command is `/proc/self/exe`, or a script with that interpreter, runs the program that set it up or
//! entered it. It may keep a handle of that file and open it for writing when it runs no more: after an upgrade, at the
//! latest. Through a detached read-only mount it gets EROFS, for ever. Every role started by `/proc/self/exe` inherits it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::fcntl::AtFlags;
use nix::sys::statvfs::{FsFlags, statvfs};

use super::mount_tree::MountAttr;

/// Executes this program again, arguments and environment the same, through a read-only mount; returns at once when it
/// runs from one already. To be called before there is a second thread or anything that an execve would lose.
///
/// # Errors
/// Returns the system's error if the kernel is older than 5.12 or CAP_SYS_ADMIN is missing; then non-dumpability, and
/// ETXTBSY while the program runs, are all that protects the file.
pub fn run_sealed() -> io::Result<()> {
    if statvfs("/proc/self/exe").is_ok_and(|s| s.flags().contains(FsFlags::ST_RDONLY)) {
        return Ok(());
    }
    let exe = open_read_only()?;
    let args: Vec<CString> = std::env::args_os()
        .map(|a| CString::new(a.into_vec()))
        .collect::<Result<_, _>>()?;
    let pair = |(k, v): (std::ffi::OsString, std::ffi::OsString)| {
        CString::new([k.as_bytes(), b"=", v.as_bytes()].concat())
    };
    let env: Vec<CString> = std::env::vars_os().map(pair).collect::<Result<_, _>>()?;
    match nix::unistd::execveat(exe.as_fd(), c"", &args, &env, AtFlags::AT_EMPTY_PATH) {
        Ok(never) => match never {},
        Err(e) => Err(e.into()),
    }
}

/// /proc/self/exe by way of a read-only mount of its own that is in no namespace. Needs CAP_SYS_ADMIN and Linux 5.12.
fn open_read_only() -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path is a static C string; open_tree takes no other pointer.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            c"/proc/self/exe".as_ptr(),
            flags,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let attr = MountAttr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the empty path is a static C string, `attr` lives through the call and its size is passed with it.
    let r = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(fd)
    }
}
