//! Binds a path below a volume, or a whole volume with its mounts, before the shim creates the container.
//!
//! Invariants: the path is resolved in the mount namespace in which the container's mounts are made. A Bidirectional
//! mount is the exception: it is resolved in the node's namespace. A path never leaves its volume: the kernel resolves
//! it with the volume as the root (`openat2`, RESOLVE_IN_ROOT), and the descriptor is bound, not the path.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, umask};

use super::state::SubPath;
use crate::base::paths::directories::make_private;
use crate::base::sys::mount_tree::MountTree;
use crate::base::sys::mountinfo::{self, Mount};
use crate::engine::runtime::Propagation;

/// Opens `path` as if `root` were `/`. No symlink leads out of `root`, whether it is absolute or has `..`.
fn open_in_root(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how)
}

/// Resolves a sub path safely, and makes its missing parts with the volume's own mode. The set-group-id bit comes from
/// the directory above.
fn resolve(volume: &Path, path: &Path) -> io::Result<OwnedFd> {
    let mut flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    // Without a sub path the volume itself is bound, and may be a file.
    flags.set(OFlag::O_DIRECTORY, !path.as_os_str().is_empty());
    let root = openat2(AT_FDCWD, volume, OpenHow::new().flags(flags))?;
    if path.as_os_str().is_empty() {
        return Ok(root);
    }
    let mode = Mode::from_bits_truncate(fstat(&root)?.st_mode & 0o1777);
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
                make_directory(&at, name, mode)?;
                open_in_root(&root, &done)?
            }
            other => other?,
        };
    }
    Ok(at)
}

/// Resolves a sub path of an image, which must be a directory. Nothing is made, because an image is read-only. The
/// errors are containerd's.
fn resolve_in_image(image: &Path, path: &Path) -> io::Result<OwnedFd> {
    let root = openat2(
        AT_FDCWD,
        image,
        OpenHow::new().flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC),
    )?;
    let found = open_in_root(&root, path).map_err(|e| {
        let why = e.desc().to_lowercase();
        io::Error::other(format!("openat {}: {why}", path.display()))
    })?;
    match is_directory(&found)? {
        true => Ok(found),
        false => Err(io::Error::other(format!(
            "only directory subpath is supported, subpath: {path:?}"
        ))),
    }
}

fn is_directory(file: &OwnedFd) -> Result<bool, Errno> {
    let kind = SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT;
    Ok(kind == SFlag::S_IFDIR)
}

/// Makes a directory with this mode whatever the umask, as the kubelet does: a volume of a group stays writable for the
/// group. The shim has only one thread, so the change of the umask affects no other thread.
fn make_directory(at: &OwnedFd, name: &OsStr, mode: Mode) -> Result<(), Errno> {
    let old = umask(Mode::empty());
    let made = mkdirat(at, name, mode);
    umask(old);
    made
}

/// Copies a Bidirectional mount of the node: later mounts on the node appear in the copy, and later mounts in the copy
/// appear on the node. Must be called in the node's mount namespace. Returns `None` for every other propagation.
///
/// # Errors
/// Returns containerd's error if the path is not in a shared mount.
pub(super) fn of_node(s: &SubPath) -> io::Result<Option<MountTree>> {
    if s.propagation != Propagation::Bidirectional {
        return Ok(None);
    }
    let source = resolve(&s.volume, &s.path)?;
    check_mount(&source, "shared", |m| m.shared)?;
    MountTree::copy(&source).map(Some)
}

fn check_mount(path: &OwnedFd, wanted: &str, fits: impl Fn(&Mount) -> bool) -> io::Result<()> {
    let real = fs::read_link(by_fd(path))?;
    let mounts = mountinfo::read()?;
    let around = mounts.iter().filter(|m| real.starts_with(&m.at));
    // The path lies in the mount with the longest mount point. Of several mounts at that point the last one counts,
    // because it covers the others.
    match around.max_by_key(|m| m.at.components().count()) {
        Some(mount) if fits(mount) => Ok(()),
        mount => Err(io::Error::other(format!(
            "path {real:?} is mounted on {:?} but it is not a {wanted} mount",
            mount.map_or(Path::new("/"), |m| &m.at)
        ))),
    }
}

fn by_fd(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Binds a sub path at its target, in the shim's own mount namespace. The parameter `of_node` is the result of the
/// function [`of_node`].
pub(super) fn bind(s: &SubPath, of_node: Option<MountTree>) -> io::Result<()> {
    let source = match s.image.is_empty() {
        true => resolve(&s.volume, &s.path)?,
        false => resolve_in_image(&s.volume, &s.path)?,
    };
    make_target(s, &source)?;
    if let Some(tree) = of_node {
        return tree.attach(&s.target);
    }
    if s.propagation == Propagation::HostToContainer {
        check_mount(&source, "shared or slave", |m| m.shared || m.slave)?;
    }
    if s.read_only {
        let tree = MountTree::copy(&source)?;
        tree.make_read_only()?;
        return tree.attach(&s.target);
    }
    mount(
        Some(by_fd(&source).as_str()),
        &s.target,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )?;
    Ok(())
}

/// Makes the empty directory or file on which the sub path is mounted.
fn make_target(s: &SubPath, source: &OwnedFd) -> io::Result<()> {
    if let Some(parent) = s.target.parent() {
        make_private(parent)?;
    }
    if is_directory(source)? {
        make_private(&s.target)
    } else {
        File::create(&s.target).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Missing directories of a sub path get the volume's mode, whatever the umask. The volume of a group has mode
    /// 2775, or 3777 in memory. A umask of 022 would keep the group out of new directories.
    #[test]
    fn what_is_made_of_a_sub_path_has_the_mode_of_the_volume() {
        for of_volume in [0o2775, 0o3777, 0o1777, 0o755] {
            let volume = tempfile::tempdir().unwrap();
            fs::set_permissions(volume.path(), fs::Permissions::from_mode(of_volume)).unwrap();
            resolve(volume.path(), Path::new("a/b")).unwrap();
            for made in ["a", "a/b"] {
                let made = fs::metadata(volume.path().join(made)).unwrap();
                assert_eq!(made.permissions().mode() & 0o7777, of_volume);
            }
        }
    }

    /// The image's own links never lead out of the image, and nothing is made in the image.
    #[test]
    fn a_sub_path_of_an_image_is_a_directory_that_is_there() {
        let (image, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| image.path().join(name);
        fs::create_dir_all(at("d/e")).unwrap();
        fs::write(at("f"), "").unwrap();
        let links = [
            ("inside", "/d/e"),
            ("up", "../../../../d"),
            ("round", "round"),
        ];
        for (name, to) in links {
            std::os::unix::fs::symlink(to, at(name)).unwrap();
        }
        std::os::unix::fs::symlink(outside.path(), at("out")).unwrap();
        let found = |path: &str| {
            let found = resolve_in_image(image.path(), Path::new(path));
            let real = found.map(|file| fs::read_link(by_fd(&file)).unwrap());
            real.map_err(|e| e.to_string())
        };
        for (path, real) in [
            ("d/e", "d/e"),
            ("inside", "d/e"),
            ("up", "d"),
            ("d/../d", "d"),
        ] {
            assert_eq!(found(path), Ok(at(real)), "{path}");
        }
        for (path, why) in [
            ("none", "openat none: no such file or directory"),
            ("d/none", "openat d/none: no such file or directory"),
            ("out", "openat out: no such file or directory"),
            ("f/x", "openat f/x: not a directory"),
            ("round", "openat round: too many symbolic links encountered"),
            ("f", "only directory subpath is supported, subpath: \"f\""),
        ] {
            assert_eq!(found(path), Err(why.to_owned()));
        }
        assert!(!at("none").exists());
    }
}
