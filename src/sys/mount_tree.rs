//! Mounts that are in no namespace: copies of what is mounted below a path, changed before anybody sees them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
pub(super) struct MountAttr {
    pub(super) attr_set: u64,
    pub(super) attr_clr: u64,
    pub(super) propagation: u64,
    pub(super) userns_fd: u64,
}

/// A copy of a mount with everything that is mounted below it. It ends with the descriptor unless it is attached.
pub struct MountTree(OwnedFd);

impl MountTree {
    /// A copy of what `path`, a descriptor of it, leads to. Each mount keeps its propagation.
    ///
    /// # Errors
    /// The kernel's; EPERM without CAP_SYS_ADMIN.
    pub fn copy(path: &impl AsFd) -> io::Result<Self> {
        let flags = libc::OPEN_TREE_CLONE
            | libc::OPEN_TREE_CLOEXEC
            | libc::AT_EMPTY_PATH as libc::c_uint
            | libc::AT_RECURSIVE as libc::c_uint;
        let fd = path.as_fd().as_raw_fd();
        // SAFETY: the empty path is a static C string, and the descriptor is open during the call.
        let fd = unsafe { libc::syscall(libc::SYS_open_tree, fd, c"".as_ptr(), flags) };
        let fd = Errno::result(fd)?;
        // SAFETY: the kernel just gave us this descriptor and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Makes every mount of it read-only.
    ///
    /// # Errors
    /// ENOSYS before Linux 5.12.
    pub fn make_read_only(&self) -> io::Result<()> {
        let attr = MountAttr {
            attr_set: libc::MOUNT_ATTR_RDONLY,
            attr_clr: 0,
            propagation: 0,
            userns_fd: 0,
        };
        // SAFETY: the empty path is a static C string, `attr` lives through the call and its size is passed with it.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                self.0.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
                &raw const attr,
                size_of::<MountAttr>(),
            )
        };
        Ok(Errno::result(done).map(drop)?)
    }

    /// Mounts it at `target` in the caller's namespace.
    ///
    /// # Errors
    /// The kernel's; a missing target.
    pub fn attach(&self, target: &Path) -> io::Result<()> {
        let target = std::ffi::CString::new(target.as_os_str().as_bytes())?;
        // SAFETY: both paths are C strings that live through the call, and the descriptor is open.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                self.0.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_FDCWD,
                target.as_ptr(),
                libc::MOVE_MOUNT_F_EMPTY_PATH,
            )
        };
        Ok(Errno::result(done).map(drop)?)
    }
}
