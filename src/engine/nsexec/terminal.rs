//! Opens a terminal in the container's own file system for terminals, from outside of the container
//! (exec-in-container 8).
//!
//! Invariants: the container may have replaced a file, and opening a device can have effects. So a file is checked
//! before it is opened, and only the file that was checked is opened. No terminal of the node is made for a container
//! (deviations: session-terminal).

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, stat};
use nix::sys::statfs::fstatfs;

use super::error::ExecError;
use super::facts::host_proc;
use crate::base::sys::terminal::{set_size, slave_of, unlock};
use crate::engine::runtime::TerminalSize;

/// Type of a file system for terminals (`DEVPTS_SUPER_MAGIC`).
const DEVPTS: i64 = 0x1cd1;
/// Path of the terminal multiplexer in a container. `/dev/ptmx` is not used, because in a container it is a link.
const PTMX: &str = "dev/pts/ptmx";
/// Mode of a terminal's file: only the owner reads, and only the owner and the group write. The mount gives the file to
/// the group with gid 5, which expects this mode.
const MODE: u32 = 0o620;

/// Both ends of a terminal.
pub(super) struct Terminal {
    /// Master of the terminal. Reads from it and writes to it do not block.
    pub(super) master: OwnedFd,
    pub(super) slave: OwnedFd,
}

/// Makes a terminal below the container's root directory.
pub(super) fn open(root: &OwnedFd, size: Option<TerminalSize>) -> Result<Terminal, ExecError> {
    let master = multiplexer(root)?;
    let made = unlock(&master).and_then(|()| slave_of(&master));
    let slave = made.and_then(|slave| {
        fchmod(&slave, Mode::from_bits_truncate(MODE))?;
        if let Some(size) = size {
            set_size(&master, (size.width, size.height))?;
        }
        Ok(slave)
    });
    let slave = slave.map_err(|e| refused(e.desc()))?;
    Ok(Terminal {
        master,
        slave: slave.into(),
    })
}

fn refused(why: impl Into<String>) -> ExecError {
    ExecError::Terminal(why.into())
}

fn multiplexer(root: &OwnedFd) -> Result<OwnedFd, ExecError> {
    let resolve = ResolveFlag::RESOLVE_IN_ROOT
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(resolve);
    let found = openat2(root, PTMX, how).map_err(|e| match e {
        Errno::ENOENT | Errno::ENOTDIR => refused("it has no /dev/pts/ptmx"),
        Errno::ELOOP => refused("its /dev/pts/ptmx is behind a link"),
        e => refused(format!(
            "its /dev/pts/ptmx cannot be looked at: {}",
            e.desc()
        )),
    })?;
    check(&found)?;
    let proc = host_proc().map_err(|e| ExecError::os("cannot open /proc", e))?;
    let path = format!("self/fd/{}", found.as_raw_fd());
    let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    openat(proc, path.as_str(), flags, Mode::empty()).map_err(|e| refused(e.desc()))
}

fn check(found: &OwnedFd) -> Result<(), ExecError> {
    let failed = |e: Errno| refused(e.desc());
    let file = fstat(found).map_err(failed)?;
    let magic = fstatfs(found).map_err(failed)?.filesystem_type().0 as i64;
    if magic != DEVPTS || !is_multiplexer(&file) {
        return Err(refused("its /dev/pts/ptmx is something else"));
    }
    if stat("/dev/pts").is_ok_and(|ours| ours.st_dev == file.st_dev) {
        return Err(refused("its /dev/pts is the node's"));
    }
    Ok(())
}

fn is_multiplexer(file: &FileStat) -> bool {
    file.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits()
        && file.st_rdev == libc::makedev(5, 2)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::mknod;

    use super::*;
    use crate::skip::is_root;

    #[track_caller]
    fn check_refused(make: impl FnOnce(&std::path::Path), why: &str) {
        let dir = tempfile::tempdir().unwrap();
        let pts = dir.path().join("dev/pts");
        std::fs::create_dir_all(&pts).unwrap();
        make(&pts);
        let root = File::open(dir.path()).unwrap().into();
        let e = open(&root, None).err().expect("no terminal").to_string();
        assert!(e.contains(why), "{e}");
    }

    #[test]
    fn what_is_no_multiplexer_is_not_opened() {
        check_refused(|_| {}, "it has no /dev/pts/ptmx");
        check_refused(
            |pts| std::fs::remove_dir(pts).unwrap(),
            "it has no /dev/pts/ptmx",
        );
        // A process that opened this FIFO would block.
        let fifo = |pts: &std::path::Path| {
            nix::unistd::mkfifo(&pts.join("ptmx"), Mode::S_IRWXU).unwrap();
        };
        check_refused(fifo, "is something else");
        let link = |pts: &std::path::Path| symlink("/dev/ptmx", pts.join("ptmx")).unwrap();
        check_refused(link, "is behind a link");
    }

    /// A multiplexer is not opened if it does not lie on a file system for terminals. In this test, a file with the
    /// device number of a multiplexer lies on another kind of file system.
    #[test]
    fn a_multiplexer_that_is_not_in_a_file_system_of_terminals_is_not_opened() {
        if !is_root() {
            return;
        }
        let make = |pts: &std::path::Path| {
            let number = libc::makedev(5, 2);
            mknod(&pts.join("ptmx"), SFlag::S_IFCHR, Mode::S_IRWXU, number).unwrap();
        };
        check_refused(make, "is something else");
    }

    #[test]
    fn no_terminal_of_the_node_is_made() {
        let root = File::open("/").unwrap().into();
        let e = open(&root, None).err().expect("no terminal").to_string();
        assert!(e.contains("its /dev/pts is the node's"), "{e}");
    }
}
