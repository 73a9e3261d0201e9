//! A path below a mount's source, bound by the shim before the container is created.
//!
//! Invariants: it is resolved in the mount namespace that the container's mounts are made in, and never leaves its volume:
//! the kernel resolves it with the volume as the root (`openat2`, RESOLVE_IN_ROOT), and what is bound is the descriptor,
//! not the path.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};

use super::state::SubPath;

/// Opens `path` as if `root` were `/`: no symlink, absolute or with `..`, leads out of it.
fn open_in_root(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how)
}

/// Resolves a sub path safely and makes what is missing of it, with the volume's own mode.
fn resolve(volume: &Path, path: &Path) -> io::Result<OwnedFd> {
    let root = openat2(
        AT_FDCWD,
        volume,
        OpenHow::new().flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC),
    )?;
    let mode = Mode::from_bits_truncate(fstat(&root)?.st_mode & 0o777);
    let mut done = PathBuf::new();
    let mut at = open_in_root(&root, Path::new("."))?;
    for part in path.components() {
        let Component::Normal(name) = part else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a subPath is relative and has no '..'",
            ));
        };
        done.push(name);
        at = match open_in_root(&root, &done) {
            Err(Errno::ENOENT) => {
                mkdirat(&at, name, mode)?;
                open_in_root(&root, &done)?
            }
            other => other?,
        };
    }
    Ok(at)
}

/// Binds a sub path at its target, in the shim's own mount namespace.
pub(super) fn bind(s: &SubPath) -> io::Result<()> {
    let source = resolve(&s.volume, &s.path)?;
    if let Some(parent) = s.target.parent() {
        fs::create_dir_all(parent)?;
    }
    let is_dir =
        SFlag::from_bits_truncate(fstat(&source)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
    if is_dir {
        fs::create_dir_all(&s.target)?
    } else {
        File::create(&s.target).map(drop)?
    }
    let by_fd = format!("/proc/self/fd/{}", source.as_raw_fd());
    mount(
        Some(by_fd.as_str()),
        &s.target,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )?;
    Ok(())
}
