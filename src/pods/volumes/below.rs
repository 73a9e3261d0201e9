//! Opens files below a directory to which containers may also write.
//!
//! Invariants: the kernel resolves every path below a descriptor. Inside a volume no link of any kind and no mount is
//! followed. Opening never waits for another process, not even with a FIFO.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

/// Opens the directory of a volume. `path` is resolved as by a process with the root directory `root`.
pub(super) fn open_volume(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    Ok(openat2(root, path, how)?)
}

/// Opens a path below a directory. A new file gets `mode`.
pub(super) fn open(
    dir: impl AsFd,
    path: impl AsRef<Path>,
    flags: OFlag,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let beneath = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_XDEV;
    // An open with O_PATH never waits, and the kernel accepts neither O_NONBLOCK nor O_NOCTTY with O_PATH.
    let no_wait = match flags.contains(OFlag::O_PATH) {
        true => OFlag::empty(),
        false => OFlag::O_NONBLOCK | OFlag::O_NOCTTY,
    };
    let how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | no_wait)
        .mode(mode)
        .resolve(beneath);
    Ok(openat2(dir, path.as_ref(), how)?)
}

/// Opens the directory at a path below another directory.
pub(super) fn open_dir(dir: impl AsFd, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    open(dir, path, flags, Mode::empty())
}

/// Returns at most `limit` names of a directory, without `.` and `..`.
pub(super) fn names(dir: impl AsFd, limit: usize) -> io::Result<Vec<OsString>> {
    let mut entries = Dir::from_fd(open_dir(dir, ".")?)?;
    let names = entries.iter().map(|entry| {
        let entry = entry?;
        Ok(OsString::from_vec(entry.file_name().to_bytes().to_vec()))
    });
    let own = |name: &io::Result<OsString>| !matches!(name, Ok(n) if n == "." || n == "..");
    names.filter(own).take(limit).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    /// No path leads through a link, although a container can put a link in place of a directory at any moment.
    #[test]
    fn no_path_leads_through_a_link_or_out_of_the_directory() {
        let (volume, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| volume.path().join(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/f"), "").unwrap();
        fs::write(outside.path().join("f"), "").unwrap();
        symlink("d/f", at("file-link")).unwrap();
        symlink("d", at("dir-link")).unwrap();
        symlink(outside.path(), at("out")).unwrap();
        let dir = File::open(volume.path()).unwrap();
        let read = |path: &str| open(&dir, path, OFlag::O_RDONLY, Mode::empty());
        assert!(read("d/f").is_ok());
        let leading_out = format!("{}/f", outside.path().display());
        for path in [
            "file-link",
            "dir-link/f",
            "out/f",
            "d/../d/f",
            "../x",
            &leading_out,
        ] {
            let inside = path == "d/../d/f";
            assert_eq!(read(path).is_ok(), inside, "{path}");
        }
        assert!(open_dir(&dir, "dir-link").is_err());
        assert!(open_dir(&dir, "d").is_ok());
    }

    #[test]
    fn a_fifo_opens_at_once() {
        let volume = tempfile::tempdir().unwrap();
        let mode = Mode::from_bits_truncate(0o600);
        nix::unistd::mkfifo(&volume.path().join("fifo"), mode).unwrap();
        let dir = File::open(volume.path()).unwrap();
        assert!(open(&dir, "fifo", OFlag::O_RDONLY, Mode::empty()).is_ok());
    }
}
