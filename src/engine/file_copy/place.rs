//! Opens the files that a copy reads or writes: a path from a root first, then one name at a time.
//!
//! Invariants: [`look`] opens nothing and follows no link. A file that [`look`] has found is opened through the
//! descriptor that [`look`] returns, so that nobody can exchange the file in between.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::sys::statfs::fstatfs;

/// Number of times that a lookup is repeated if a rename has disturbed it.
const TRIES: usize = 100;

/// The directory at which a path starts.
pub enum Root {
    /// The directories that this process sees. A path is resolved as in every program.
    Node,
    /// The root directory of a container: no path leads out of it.
    Container(OwnedFd),
}

impl Root {
    /// Opens the file at `path` and follows links. With `O_NOFOLLOW` in `flags`, a link at the end of the path is not
    /// followed.
    pub(super) fn open(&self, path: &[u8], flags: OFlag) -> Result<OwnedFd, Errno> {
        let (path, flags) = (Path::new(OsStr::from_bytes(path)), flags | OFlag::O_CLOEXEC);
        let Self::Container(root) = self else {
            return openat(AT_FDCWD, path, flags, Mode::empty());
        };
        let how = OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let mut tries = 0;
        loop {
            match openat2(root, path, how) {
                Err(Errno::EAGAIN) if tries < TRIES => tries += 1,
                opened => return opened,
            }
        }
    }

    /// Returns a descriptor of the directory at `path`. The names in the directory cannot be read through this
    /// descriptor (`O_PATH`).
    pub(super) fn dir(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open(path, OFlag::O_PATH | OFlag::O_DIRECTORY)
    }
}

/// A file that [`look`] has found: a descriptor (`O_PATH`) and the file's status.
pub(super) struct Found {
    pub(super) fd: OwnedFd,
    pub(super) stat: FileStat,
}

/// Kinds of files, as a copy distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    File,
    Directory,
    Symlink,
    /// A kind of file that is not copied. The text names the kind.
    Other(&'static str),
}

/// Finds the file `name` in the directory `dir`; `name` is a single path component. The function opens nothing and
/// follows no link.
pub(super) fn look(dir: impl AsFd, name: &[u8]) -> Result<Found, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Found::of(openat(dir, name, flags, Mode::empty())?)
}

impl Found {
    pub(super) fn of(fd: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self { fd, stat })
    }

    pub(super) fn sort(&self) -> Sort {
        match self.stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => Sort::File,
            libc::S_IFDIR => Sort::Directory,
            libc::S_IFLNK => Sort::Symlink,
            libc::S_IFIFO => Sort::Other("a FIFO"),
            libc::S_IFSOCK => Sort::Other("a socket"),
            _ => Sort::Other("a device"),
        }
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Opens a directory so that its names can be read.
    pub(super) fn open_dir(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.fd, ".", flags, Mode::empty())
    }

    /// Returns the target of a symbolic link.
    pub(super) fn target(&self) -> Result<Vec<u8>, Errno> {
        Ok(readlinkat(&self.fd, "")?.into_vec())
    }
}

/// Numbers (`f_type`) of the file systems that hold files of the kernel: proc, sysfs, cgroup, cgroup2, debugfs,
/// tracefs, securityfs, bpf, pstore, efivarfs, configfs, selinuxfs, smackfs. In these file systems the daemon may do
/// more than a container.
const KERNEL: [u32; 13] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0x6165_676c,
    0xde5e_81e4,
    0x6265_6570,
    0xf97c_ff8c,
    0x4341_5d53,
];

/// Tells whether the file belongs to one of the kernel's own file systems.
pub(super) fn is_kernel(fd: &impl AsFd) -> Result<bool, Errno> {
    // The integer type of `f_type` differs between architectures.
    let magic = fstatfs(fd)?.filesystem_type().0 as u32;
    Ok(KERNEL.contains(&magic))
}
