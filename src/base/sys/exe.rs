//! Runs this program from a file that nobody can write to (CVE-2019-5736, exec-in-container 4).
//!
//! If the command of a container is `/proc/self/exe`, or a script with that interpreter, the command runs the program
//! that has set up or entered the container. The container can keep a handle of that program's file, and open the file
//! for writing once the program no longer runs, at the latest after an upgrade. If the program was started from a
//! detached read-only mount, such an open always fails with EROFS. Every process started by `/proc/self/exe` inherits
//! the protection.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::fcntl::AtFlags;
use nix::sys::statvfs::{FsFlags, statvfs};

use super::mount_tree::MountAttr;

/// Executes this program again through a read-only mount, with the same arguments and environment. Returns at once if
/// the program already runs from a read-only mount. Call it before there is a second thread or any state that an execve
/// would lose.
///
/// # Errors
/// Returns the system's error if the kernel is older than 5.12 or CAP_SYS_ADMIN is missing. The file is then protected only
/// by the process being non-dumpable, and by ETXTBSY while the program runs.
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

/// Variables that the processes of podprobe itself use. PATH finds runtimes and plugins.
const KEPT: [&str; 2] = ["PATH", "RUST_BACKTRACE"];

/// Returns a command that runs `program`, which is this program, in one of its roles. The process has nothing of what the
/// daemon was started with, such as the socket and the credentials that a service manager gives: it outlives the daemon, and
/// containers may see its environment.
pub fn role(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg0("podprobe").env_clear();
    let kept = KEPT
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.envs(kept);
    command
}

/// Opens /proc/self/exe through a read-only mount that is in no namespace. Needs CAP_SYS_ADMIN and Linux 5.12.
fn open_read_only() -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path is a static C string. open_tree takes no other pointer.
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
    // SAFETY: the kernel has just made this descriptor, and no other code owns it.
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
