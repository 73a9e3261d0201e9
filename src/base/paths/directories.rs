//! The directories that podprobe makes on the node, each with its mode: one table, below the root.
//!
//! Invariants: a directory that is not in the table is for root alone. What is inside of a volume, a claim, a layer or a
//! container belongs to containers; their users and modes mean nothing on the node, so a directory above each of them lets
//! nobody but root through. Otherwise a program that a container has made with the set-user-id bit runs as root for every
//! user of the node.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::Layout;

/// A directory of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Path of the directory below the root. `*` stands for any name.
    pub path: &'static str,
    /// The mode that the directory is made with.
    pub mode: u32,
    /// The keeper, which decides about the directory's mode later.
    pub keeper: Keeper,
}

/// A directory that let users of the node in.
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
    /// podprobe: each start of the daemon makes it, and takes away what the table does not allow.
    Daemon,
    /// podprobe, which makes it when it is needed.
    Part,
    /// People: the directory is theirs from the moment it is there.
    People,
    /// A container or an image. The content of the directory is theirs, too, and is not in the table.
    Content,
}

use Keeper::{Content, Daemon, Part, People};

const fn row(path: &'static str, mode: u32, keeper: Keeper) -> Directory {
    Directory { path, mode, keeper }
}

/// Every directory. `/run/podprobe` and `/var/lib/podprobe` let users through to the socket, to dropped images and to
/// profiles, and show none of them a list.
pub const DIRECTORIES: &[Directory] = &[
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
    row("var", 0o755, People),
    row("var/lib", 0o755, People),
    row("var/lib/podprobe", 0o711, Daemon),
    row("var/lib/podprobe/claims", 0o700, Daemon),
    row("var/lib/podprobe/claims/*", 0o700, Part),
    row("var/lib/podprobe/claims/*/*", 0o777, Content),
    row("var/lib/podprobe/cni", 0o700, Part),
    row("var/lib/podprobe/cni/*", 0o700, Part),
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
    row("var/log", 0o755, People),
    row("var/log/containers", 0o755, People),
    row("var/log/pods", 0o755, People),
    row("var/log/pods/*", 0o755, Part),
    row("var/log/pods/*/*", 0o755, Part),
];

/// Returns the entry for `below`, a path relative to the root, in the table of directories.
pub fn row_of(below: &Path) -> Option<&'static Directory> {
    DIRECTORIES.iter().find(|row| {
        let mut names = below.iter();
        let mut words = row.path.split('/');
        let all = words.all(|word| names.next().is_some_and(|n| word == "*" || n == word));
        all && names.next().is_none()
    })
}

impl Layout {
    /// Makes a directory below the root, and those above it that are missing, with the modes of the table. What is there
    /// keeps its mode.
    ///
    /// # Errors
    /// Returns the path that could not be made.
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

    /// Makes the directories of the daemon, and takes from those that are there what the table does not allow: an older
    /// podprobe has left some of them open. Returns those.
    ///
    /// # Errors
    /// Returns the path that could not be made.
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

/// The mode is exact, whatever the umask is.
fn make_one(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        // A link to a directory is one, too. Where a read-only file system says so first, it is there nonetheless.
        Err(_) if path.is_dir() => Ok(()),
        Err(e) => Err(e),
    }
}

/// Makes a directory that only root enters, and those above it that are missing.
///
/// # Errors
/// Returns the system's error if a directory cannot be made.
pub fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Takes the bits beyond `mode`. A link is left as it is: where it leads to is another's.
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
            "{shown} let users of this node in: its mode was {found:04o} and is {kept:04o} now"
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

    /// A person who wants less than the table has it.
    #[test]
    fn a_closed_directory_stays_closed() {
        let (_dir, layout) = layout();
        fs::create_dir_all(layout.lib_dir()).unwrap();
        fs::set_permissions(layout.lib_dir(), Permissions::from_mode(0o700)).unwrap();
        layout.make_directories().unwrap();
        assert_eq!(mode(&layout.lib_dir()), 0o700);
    }

    /// People put claims on another disk by a link.
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

    /// Content of containers lies below a directory that lets nobody through.
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
