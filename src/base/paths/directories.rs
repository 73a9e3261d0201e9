//! The table of directories that podprobe makes on the node, each with its mode.
//!
//! Invariants: a directory that is not in the table is made with mode 0700. Volumes, claims, layers and containers have
//! content of containers, with users and modes that mean nothing on the node. Therefore a directory above each of them lets
//! only root through. Otherwise a set-user-id program from a container would run as root for every user of the node.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::Layout;

/// A row of the table of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Path of the directory below the root. `*` stands for any name.
    pub path: &'static str,
    /// The mode with which podprobe makes the directory.
    pub mode: u32,
    /// The party that decides about the directory's mode later.
    pub keeper: Keeper,
}

/// The report about an existing directory that let other users of the node in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WasOpen {
    /// True if the directory is closed now.
    pub is_closed: bool,
    /// Text that says what has happened, or what a person has to do.
    pub text: String,
}

/// The party that decides about the mode of an existing directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The daemon. Each start makes the directory, or removes the mode bits that the table does not allow.
    Daemon,
    /// The part of podprobe that makes the directory when it is needed. The mode is not checked later.
    Part,
    /// People. Once the directory exists, podprobe leaves its mode alone.
    People,
    /// A container or an image, which also owns the content of the directory. The content is not in the table.
    Content,
}

use Keeper::{Content, Daemon, Part, People};

const fn row(path: &'static str, mode: u32, keeper: Keeper) -> Directory {
    Directory { path, mode, keeper }
}

/// All directories that podprobe makes. Users of the node can enter `/run/podprobe` and `/var/lib/podprobe`, but not
/// list them. These two directories hold the socket, the dropped images and the profiles, which users need.
pub const DIRECTORIES: &[Directory] = &[
    row("etc", 0o755, People),
    row("etc/podprobe", 0o755, People),
    row("etc/podprobe/pods", 0o700, People),
    row("run", 0o755, People),
    row("run/podprobe", 0o711, Daemon),
    row("run/podprobe/sandboxes", 0o700, Daemon),
    row("run/podprobe/sandboxes/*", 0o700, Part),
    row("run/podprobe/containers", 0o700, Daemon),
    row("run/podprobe/containers/*", 0o700, Part),
    row("run/podprobe/containers/*/bundle", 0o700, Part),
    row("run/podprobe/containers/*/images", 0o700, Part),
    row("run/podprobe/containers/*/images/*", 0o700, Part),
    row("run/podprobe/containers/*/images/*/*", 0o700, Content),
    row("run/podprobe/containers/*/rootfs", 0o700, Part),
    row("run/podprobe/containers/*/subpaths", 0o700, Part),
    row("run/podprobe/containers/*/subpaths/*", 0o700, Part),
    row("run/podprobe/exits", 0o700, Daemon),
    row("run/podprobe/oci", 0o700, Daemon),
    row("run/podprobe/oci/*", 0o711, Content),
    row("run/podprobe/proxy", 0o700, Part),
    row("run/podprobe/statuses", 0o700, Daemon),
    row("var", 0o755, People),
    row("var/lib", 0o755, People),
    row("var/lib/podprobe", 0o711, Daemon),
    row("var/lib/podprobe/claims", 0o700, Daemon),
    row("var/lib/podprobe/claims/*", 0o700, Part),
    row("var/lib/podprobe/claims/*/*", 0o777, Content),
    row("var/lib/podprobe/cni", 0o700, Part),
    row("var/lib/podprobe/cni/*", 0o700, Part),
    row("var/lib/podprobe/cluster", 0o700, Daemon),
    row("var/lib/podprobe/cluster/pods", 0o700, Daemon),
    row("var/lib/podprobe/cluster/objects", 0o700, Daemon),
    row("var/lib/podprobe/containers", 0o700, Daemon),
    row("var/lib/podprobe/containers/*", 0o700, Part),
    row("var/lib/podprobe/containers/*/upper", 0o755, Content),
    row("var/lib/podprobe/containers/*/work", 0o700, Content),
    row("var/lib/podprobe/images", 0o700, Part),
    row("var/lib/podprobe/images/images", 0o700, Part),
    row("var/lib/podprobe/images/layers", 0o700, Part),
    row("var/lib/podprobe/images/layers/*", 0o755, Content),
    row("var/lib/podprobe/images/pulls", 0o700, Part),
    row("var/lib/podprobe/images/tmp", 0o700, Part),
    row("var/lib/podprobe/images.d", 0o755, People),
    row("var/lib/podprobe/last-good", 0o700, Part),
    row("var/lib/podprobe/last-good-url", 0o700, Part),
    row("var/lib/podprobe/pods", 0o700, Daemon),
    row("var/lib/podprobe/pods/*", 0o750, Part),
    row("var/lib/podprobe/pods/*/containers", 0o700, Part),
    row("var/lib/podprobe/pods/*/containers/*", 0o700, Part),
    row("var/lib/podprobe/pods/*/log-links", 0o700, Part),
    row("var/lib/podprobe/pods/*/volumes", 0o700, Part),
    row("var/lib/podprobe/pods/*/volumes/*", 0o700, Part),
    row("var/lib/podprobe/pods/*/volumes/*/*", 0o777, Content),
    row("var/lib/podprobe/seccomp", 0o755, People),
    row("var/lib/podprobe/workloads", 0o700, Daemon),
    row("var/lib/podprobe/workloads/pods", 0o700, Daemon),
    row("var/log", 0o755, People),
    row("var/log/containers", 0o755, People),
    row("var/log/pods", 0o755, People),
    row("var/log/pods/*", 0o755, Part),
    row("var/log/pods/*/*", 0o755, Part),
];

/// Returns the row of the table for `below`, a path relative to the root.
pub fn row_of(below: &Path) -> Option<&'static Directory> {
    DIRECTORIES.iter().find(|row| {
        let mut names = below.iter();
        let mut words = row.path.split('/');
        let all = words.all(|word| names.next().is_some_and(|n| word == "*" || n == word));
        all && names.next().is_none()
    })
}

impl Layout {
    /// Makes a directory below the root and its missing parents, with the modes of the table. Existing directories keep
    /// their mode.
    ///
    /// # Errors
    /// Returns the system's error, with the path of the directory that cannot be made.
    pub fn make(&self, path: &Path) -> io::Result<()> {
        let cannot = |path: &Path, e: io::Error| {
            io::Error::new(e.kind(), format!("cannot make {}: {e}", path.display()))
        };
        fs::create_dir_all(self.root()).map_err(|e| cannot(self.root(), e))?;
        let below = path.strip_prefix(self.root()).unwrap_or(path);
        let mut at = self.root().to_owned();
        let mut done = PathBuf::new();
        for name in below {
            at.push(name);
            done.push(name);
            let mode = row_of(&done).map_or(0o700, |row| row.mode);
            make_one(&at, mode).map_err(|e| cannot(&at, e))?;
        }
        Ok(())
    }

    /// Makes the daemon's directories, and removes from existing ones the mode bits that the table does not allow.
    /// Returns a report for each directory that had such bits. Older versions of podprobe made some directories too
    /// open.
    ///
    /// # Errors
    /// Returns the system's error, with the path of the directory that cannot be made.
    pub fn make_directories(&self) -> io::Result<Vec<WasOpen>> {
        let mut open = Vec::new();
        for row in DIRECTORIES.iter().filter(|row| row.keeper == Daemon) {
            let path = self.root().join(row.path);
            self.make(&path)?;
            open.extend(close(&path, row.mode));
        }
        Ok(open)
    }
}

/// Makes one directory with exactly this mode, independent of the umask. An existing directory is left as it is.
fn make_one(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        // A link to a directory counts as a directory. On a read-only file system, the call may fail with EROFS
        // although the directory exists.
        Err(_) if path.is_dir() => Ok(()),
        Err(e) => Err(e),
    }
}

/// Makes a directory with mode 0700, and its missing parents.
///
/// # Errors
/// Returns the system's error if a directory cannot be made.
pub fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Removes the permission bits beyond `mode` from a directory, and returns a report if the directory had such bits. A
/// link is only reported, because its target belongs to somebody else.
fn close(path: &Path, mode: u32) -> Option<WasOpen> {
    let shown = path.display();
    let found = fs::metadata(path).ok()?.mode() & 0o7777;
    let kept = found & !(0o777 & !mode);
    if kept == found {
        return None;
    }
    let file = match path.is_symlink() {
        true => Err(io::Error::other("it is a link")),
        false => File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path),
    };
    let closed = file.and_then(|dir| dir.set_permissions(Permissions::from_mode(kept)));
    let text = match &closed {
        Ok(()) => format!(
            "users of this node could enter {shown}: its mode was {found:04o} and is {kept:04o} now"
        ),
        Err(e) => format!(
            "{shown} lets users of this node in, and its mode {found:04o} cannot be changed ({e}): \
             run `chmod {kept:04o} {shown}`"
        ),
    };
    Some(WasOpen {
        is_closed: closed.is_ok(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().join("root"));
        (dir, layout)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_made_has_the_mode_of_the_table() {
        let (_dir, layout) = layout();
        assert_eq!(layout.make_directories().unwrap(), []);
        for row in DIRECTORIES.iter().filter(|row| row.keeper == Daemon) {
            assert_eq!(
                mode(&layout.root().join(row.path)),
                row.mode,
                "{}",
                row.path
            );
        }
        let deep = layout.claims().join("default/db");
        layout.make(&deep).unwrap();
        assert_eq!(mode(&layout.claims().join("default")), 0o700);
        assert_eq!(mode(&deep), 0o777);
        let unknown = layout.lib_dir().join("new");
        layout.make(&unknown).unwrap();
        assert_eq!(mode(&unknown), 0o700);
    }

    #[test]
    fn a_directory_that_an_older_daemon_left_open_is_closed_once() {
        let (_dir, layout) = layout();
        fs::create_dir_all(layout.claims().join("default/db")).unwrap();
        for (path, mode) in [(layout.claims(), 0o755), (layout.lib_dir(), 0o2755)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let said = layout.make_directories().unwrap();
        assert!(
            said.len() == 2 && said.iter().all(|dir| dir.is_closed),
            "{said:?}"
        );
        assert_eq!(
            (mode(&layout.claims()), mode(&layout.lib_dir())),
            (0o700, 0o2711)
        );
        assert_eq!(layout.make_directories().unwrap(), []);
    }

    /// A directory with fewer bits than in the table keeps its mode, because a person may have removed the bits.
    #[test]
    fn a_closed_directory_stays_closed() {
        let (_dir, layout) = layout();
        fs::create_dir_all(layout.lib_dir()).unwrap();
        fs::set_permissions(layout.lib_dir(), Permissions::from_mode(0o700)).unwrap();
        layout.make_directories().unwrap();
        assert_eq!(mode(&layout.lib_dir()), 0o700);
    }

    /// A link in place of a directory is reported, and the mode of its target stays. People put claims on another disk
    /// by means of a link.
    #[test]
    fn where_a_link_leads_to_is_left_and_named() {
        let (dir, layout) = layout();
        let disk = dir.path().join("disk");
        layout.make(&layout.lib_dir()).unwrap();
        fs::create_dir(&disk).unwrap();
        fs::set_permissions(&disk, Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(&disk, layout.claims()).unwrap();
        let said = layout.make_directories().unwrap();
        let named = |dir: &WasOpen| !dir.is_closed && dir.text.contains("run `chmod 0700");
        assert!(said.len() == 1 && named(&said[0]), "{said:?}");
        assert_eq!(mode(&disk), 0o755);
    }

    /// Each directory with content of containers lies below a directory that lets no other user through.
    #[test]
    fn content_is_closed_to_users() {
        let closed = |path: &Path| {
            let above = path.ancestors().filter_map(row_of);
            above
                .filter(|row| row.path != path.to_str().unwrap())
                .any(|row| row.mode & 0o007 == 0)
        };
        for row in DIRECTORIES.iter().filter(|row| row.keeper == Content) {
            assert!(closed(Path::new(row.path)), "{}", row.path);
        }
    }
}
