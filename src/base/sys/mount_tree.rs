//! Mounts that are in no namespace yet: new file systems, and copies of mounts. podprobe changes such mounts before any
//! other process can see them.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
#[derive(Default)]
pub(super) struct MountAttr {
    pub(super) attr_set: u64,
    pub(super) attr_clr: u64,
    pub(super) propagation: u64,
    pub(super) userns_fd: u64,
}

/// Attributes of a mount (`MOUNT_ATTR_*`): what it forbids, and whether it records access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Nothing can be written.
    pub const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
    /// The set-user-id and set-group-id bits of programs do nothing.
    pub const NO_SUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    /// Devices cannot be opened.
    pub const NO_DEV: Self = Self(libc::MOUNT_ATTR_NODEV);
    /// Programs cannot be executed.
    pub const NO_EXEC: Self = Self(libc::MOUNT_ATTR_NOEXEC);
    /// Files do not record when they were read.
    pub const NO_ATIME: Self = Self(libc::MOUNT_ATTR_NOATIME);
    /// Files always record when they were read.
    pub const STRICT_ATIME: Self = Self(libc::MOUNT_ATTR_STRICTATIME);
    /// Directories do not record when they were read.
    pub const NO_DIR_ATIME: Self = Self(libc::MOUNT_ATTR_NODIRATIME);

    /// Returns the union of two sets of attributes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The propagation between a copied mount and its original: whether a mount that is later made below one of the two
/// also appears below the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// No propagation.
    Private,
    /// Propagation from the original to the copy.
    Slave,
    /// Propagation in both directions.
    Shared,
}

/// A mount with all mounts below it. A tree that is not attached is unmounted when its descriptor is closed.
pub struct MountTree(OwnedFd);

impl AsFd for MountTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl MountTree {
    /// Copies the mount that the descriptor `path` leads to, with all mounts below it. Each mount keeps its propagation.
    ///
    /// # Errors
    /// Returns the kernel's error; EPERM without CAP_SYS_ADMIN.
    pub fn copy(path: &impl AsFd) -> io::Result<Self> {
        Self::open(path, libc::AT_RECURSIVE as libc::c_uint)
    }

    /// Copies the mount that the descriptor `path` leads to, without the mounts below it.
    ///
    /// # Errors
    /// Returns the kernel's error, as [`Self::copy`] does.
    pub fn copy_one(path: &impl AsFd) -> io::Result<Self> {
        Self::open(path, 0)
    }

    fn open(path: &impl AsFd, recursive: libc::c_uint) -> io::Result<Self> {
        let flags = libc::OPEN_TREE_CLONE
            | libc::OPEN_TREE_CLOEXEC
            | libc::AT_EMPTY_PATH as libc::c_uint
            | recursive;
        let fd = path.as_fd().as_raw_fd();
        // SAFETY: the empty path is a static C string, and the descriptor is open during the call.
        let fd = unsafe { libc::syscall(libc::SYS_open_tree, fd, c"".as_ptr(), flags) };
        Ok(Self(owned(fd)?))
    }

    /// Makes a new file system of type `kind`. Each option has a name and may have a value.
    ///
    /// # Errors
    /// Returns the kernel's error: ENODEV for an unknown type, EINVAL for an unknown option, EPERM without CAP_SYS_ADMIN.
    pub fn new(
        kind: &str,
        options: &[(&str, Option<&str>)],
        attributes: Attributes,
    ) -> io::Result<Self> {
        let kind = CString::new(kind)?;
        // SAFETY: the name is a C string that lives through the call.
        let context = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), CLOSE_ON_EXEC) };
        let context = owned(context)?;
        for (name, value) in options {
            let (name, value) = (CString::new(*name)?, value.map(CString::new).transpose()?);
            match value {
                Some(value) => configure(&context, SET_STRING, Some(&name), Some(&value))?,
                None => configure(&context, SET_FLAG, Some(&name), None)?,
            }
        }
        configure(&context, CREATE, None, None)?;
        // SAFETY: the call takes numbers only, and the context is open.
        let mount = unsafe {
            libc::syscall(
                libc::SYS_fsmount,
                context.as_raw_fd(),
                CLOSE_ON_EXEC,
                attributes.0 as libc::c_uint,
            )
        };
        Ok(Self(owned(mount)?))
    }

    /// Makes every mount of the tree read-only.
    ///
    /// # Errors
    /// Returns the kernel's error: ENOSYS before Linux 5.12.
    pub fn make_read_only(&self) -> io::Result<()> {
        let attr = MountAttr {
            attr_set: libc::MOUNT_ATTR_RDONLY,
            ..MountAttr::default()
        };
        change(&self.0, &attr, libc::AT_RECURSIVE)
    }

    /// Adds attributes to the topmost mount of the tree.
    ///
    /// # Errors
    /// Returns the kernel's error, as [`Self::make_read_only`] does.
    pub fn add(&self, attributes: Attributes) -> io::Result<()> {
        add_attributes(&self.0, attributes)
    }

    /// Sets the propagation between every mount of the tree and the mount that it was copied from.
    ///
    /// # Errors
    /// Returns the kernel's error, as [`Self::make_read_only`] does.
    pub fn tie(&self, ties: Ties) -> io::Result<()> {
        let attr = MountAttr {
            propagation: match ties {
                Ties::Private => super::wide(libc::MS_PRIVATE),
                Ties::Slave => super::wide(libc::MS_SLAVE),
                Ties::Shared => super::wide(libc::MS_SHARED),
            },
            ..MountAttr::default()
        };
        change(&self.0, &attr, libc::AT_RECURSIVE)
    }

    /// Mounts the tree on `target`, a descriptor of a directory in the caller's namespace. If the tree is a file, `target`
    /// must be a file too.
    ///
    /// # Errors
    /// Returns the kernel's error: ENOTDIR if only one of the two is a directory.
    pub fn attach_on(&self, target: &impl AsFd) -> io::Result<()> {
        // SAFETY: both paths are static C strings, and both descriptors are open.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                self.0.as_raw_fd(),
                c"".as_ptr(),
                target.as_fd().as_raw_fd(),
                c"".as_ptr(),
                libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH,
            )
        };
        Ok(Errno::result(done).map(drop)?)
    }

    /// Mounts the tree at `target` in the caller's namespace.
    ///
    /// # Errors
    /// Returns the kernel's error, for example ENOENT if the target is missing.
    pub fn attach(&self, target: &Path) -> io::Result<()> {
        let target = CString::new(target.as_os_str().as_bytes())?;
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

/// Adds attributes to the mount that has its root at the descriptor `path`.
///
/// # Errors
/// Returns the kernel's error: EINVAL if `path` is not the root of a mount, ENOSYS before Linux 5.12.
pub fn add_attributes(path: &impl AsFd, attributes: Attributes) -> io::Result<()> {
    let attr = MountAttr {
        attr_set: attributes.0,
        attr_clr: match attributes.0 & libc::MOUNT_ATTR__ATIME {
            0 => 0,
            _ => libc::MOUNT_ATTR__ATIME,
        },
        ..MountAttr::default()
    };
    change(path, &attr, 0)
}

fn change(path: &impl AsFd, attr: &MountAttr, recursive: libc::c_int) -> io::Result<()> {
    // SAFETY: the empty path is a static C string, `attr` lives through the call and its size is passed with it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            path.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    Ok(Errno::result(done).map(drop)?)
}

/// `FSOPEN_CLOEXEC` and `FSMOUNT_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_uint = 1;
/// `FSCONFIG_SET_FLAG`.
const SET_FLAG: libc::c_uint = 0;
/// `FSCONFIG_SET_STRING`.
const SET_STRING: libc::c_uint = 1;
/// `FSCONFIG_CMD_CREATE`.
const CREATE: libc::c_uint = 6;

fn configure(
    context: &OwnedFd,
    command: libc::c_uint,
    name: Option<&CStr>,
    value: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: both texts are C strings that live through the call, or null if the command takes none.
    let done = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            command,
            pointer(name),
            pointer(value),
            0,
        )
    };
    Ok(Errno::result(done).map(drop)?)
}

/// Takes ownership of the descriptor that a system call has just returned.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = Errno::result(result)?;
    // SAFETY: the kernel has just made this descriptor, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
