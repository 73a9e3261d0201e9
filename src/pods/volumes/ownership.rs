//! `fsGroup`: gives the files of a volume to a group (the kubelet's `SetVolumeOwnership`).
//!
//! Invariants: a file is changed through its descriptor, so no link and no mount is followed, even if another pod
//! changes the volume at the same time. The use of memory and descriptors depends only on the depth of a volume. The
//! depth is bounded.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstat};
use nix::unistd::{Gid, fchownat};

use super::below::{open, open_dir};
use crate::api::Pod;

/// The permission bits that the group gets on a file.
const FILE: u32 = 0o660;
/// The permission bits that the group gets on a directory. New files in the directory also get the group.
const DIRECTORY: u32 = 0o2770;
/// The greatest depth of nested directories.
const MAX_DEPTH: usize = 128;

/// The `fsGroup` of a pod with its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FsGroup {
    /// The id of the group.
    pub(super) gid: Gid,
    /// True for `fsGroupChangePolicy: OnRootMismatch`.
    on_root_mismatch: bool,
}

impl FsGroup {
    /// Returns the pod's group, or `None` if the pod has no group.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let context = &pod.spec.security_context;
        let gid = u32::try_from(context.fs_group?).ok()?;
        let policy = context.fs_group_change_policy.as_deref();
        Some(Self {
            gid: Gid::from_raw(gid),
            on_root_mismatch: policy == Some("OnRootMismatch"),
        })
    }

    /// Gives all files of a volume to the group. With `OnRootMismatch` nothing is changed if the root directory of the
    /// volume already belongs to the group.
    ///
    /// # Errors
    /// Returns the first error if a file could not be changed. All other files are changed, except the root directory.
    pub(super) fn take(self, volume: &OwnedFd) -> io::Result<()> {
        let root = fstat(volume)?;
        let mode = root.st_mode & DIRECTORY;
        if self.on_root_mismatch && root.st_gid == self.gid.as_raw() && mode == DIRECTORY {
            return Ok(());
        }
        // The root directory comes last. With OnRootMismatch its group shows that an earlier run has changed all files.
        self.take_inside(volume, MAX_DEPTH)?;
        self.take_one(volume, &root)
    }

    fn take_inside(self, dir: &OwnedFd, depth: usize) -> io::Result<()> {
        if depth == 0 {
            let text = format!("its directories are more than {MAX_DEPTH} deep");
            return Err(io::Error::other(text));
        }
        let mut result = Ok(());
        let mut entries = Dir::from_fd(open_dir(dir, ".")?)?;
        for entry in entries.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if ![c".", c".."].contains(&name) {
                result = result.and(self.take_entry(dir, name, depth));
            }
        }
        result
    }

    fn take_entry(self, dir: &OwnedFd, name: &CStr, depth: usize) -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let name = std::ffi::OsStr::from_bytes(name.to_bytes());
        let file = match open(dir, name, OFlag::O_PATH, Mode::empty()) {
            // The file is gone, or another file system is mounted there. Such a mount does not belong to this volume.
            Err(e) if [Some(libc::ENOENT), Some(libc::EXDEV)].contains(&e.raw_os_error()) => {
                return Ok(());
            }
            file => file?,
        };
        let stat = fstat(&file)?;
        let inside = match kind(&stat) == SFlag::S_IFDIR {
            true => open_dir(&file, ".").and_then(|dir| self.take_inside(&dir, depth - 1)),
            false => Ok(()),
        };
        inside.and(self.take_one(&file, &stat))
    }

    fn take_one(self, file: &OwnedFd, stat: &FileStat) -> io::Result<()> {
        if stat.st_gid != self.gid.as_raw() {
            fchownat(file, "", None, Some(self.gid), AtFlags::AT_EMPTY_PATH)?;
        }
        let more = match kind(stat) {
            SFlag::S_IFLNK => return Ok(()),
            SFlag::S_IFDIR => DIRECTORY,
            _ => FILE,
        };
        // The change of the group may have cleared the set-group-id bit of a file. The bit stays cleared.
        let mode = fstat(file)?.st_mode & 0o7777;
        if mode | more == mode {
            return Ok(());
        }
        chmod(file, mode | more)
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Changes the mode of a descriptor. The descriptor may be opened with O_PATH, which fchmod does not accept.
fn chmod(file: impl AsFd, mode: u32) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let mode = Mode::from_bits_truncate(mode);
    match fchmodat(AT_FDCWD, path.as_str(), mode, FchmodatFlags::FollowSymlink) {
        Err(Errno::ENOENT) => Err(io::Error::other("/proc is not mounted")),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::test_pods;

    fn group(policy: &str) -> FsGroup {
        let context = json!({"fsGroup": 4711, "fsGroupChangePolicy": policy});
        let pod = test_pods::pod("p").spec(json!({"securityContext": context}));
        FsGroup::of(&pod.build()).unwrap()
    }

    fn owner(path: &Path) -> (u32, u32) {
        let found = fs::symlink_metadata(path).unwrap();
        (found.gid(), found.mode() & 0o7777)
    }

    fn with_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn take(group: FsGroup, dir: &Path) -> io::Result<()> {
        group.take(&File::open(dir).unwrap().into())
    }

    #[test]
    fn every_file_gets_the_group_and_no_link_is_followed() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let (volume, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| volume.path().join(name);
        fs::create_dir_all(at("d/e")).unwrap();
        fs::write(at("d/e/f"), "x").unwrap();
        fs::write(outside.path().join("g"), "x").unwrap();
        symlink(outside.path().join("g"), at("d/link")).unwrap();
        symlink(outside.path(), at("dir-link")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
        with_mode(&at("d/e/f"), 0o400);
        with_mode(&at("d/e"), 0o700);
        with_mode(volume.path(), 0o700);
        let before = owner(&outside.path().join("g"));
        take(group("Always"), volume.path()).unwrap();
        assert_eq!(owner(&at("d/e/f")), (4711, 0o660));
        assert_eq!(owner(&at("d/e")), (4711, 0o2770));
        assert_eq!(owner(&at("fifo")), (4711, 0o660));
        assert_eq!(owner(&at("d/link")).0, 4711);
        assert_eq!(owner(volume.path()), (4711, 0o2770));
        assert_eq!(owner(&outside.path().join("g")), before);
    }

    #[test]
    fn on_root_mismatch_leaves_a_volume_of_the_group_alone() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let volume = tempfile::tempdir().unwrap();
        let file = volume.path().join("f");
        take(group("OnRootMismatch"), volume.path()).unwrap();
        fs::write(&file, "x").unwrap();
        with_mode(&file, 0o600);
        take(group("OnRootMismatch"), volume.path()).unwrap();
        assert_eq!(owner(&file).1, 0o600);
        take(group("Always"), volume.path()).unwrap();
        assert_eq!(owner(&file), (4711, 0o660));
        with_mode(&file, 0o600);
        with_mode(volume.path(), 0o770);
        take(group("OnRootMismatch"), volume.path()).unwrap();
        assert_eq!(owner(&file), (4711, 0o660));
    }

    #[test]
    fn a_volume_deeper_than_the_bound_says_so_and_is_not_taken_for_done() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let volume = tempfile::tempdir().unwrap();
        fs::create_dir_all(volume.path().join("d/".repeat(MAX_DEPTH + 1))).unwrap();
        for _ in 0..2 {
            let error = take(group("OnRootMismatch"), volume.path()).unwrap_err();
            assert_eq!(error.to_string(), "its directories are more than 128 deep");
        }
        assert_eq!(owner(&volume.path().join("d")).0, 4711, "the rest is given");
    }

    #[test]
    fn a_pod_without_a_group_has_none() {
        assert_eq!(FsGroup::of(&test_pods::pod("p").build()), None);
    }
}
