//! An inotify watch on a path and on its parent directory. The watch only reports when the path must be listed again.
//!
//! Invariants: an event is only a hint. After a lost event, a full queue or a failed watch, the caller finds the change
//! at its next listing. A watch that failed is set up again as soon as inotify has room.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::base::clock::Moment;

/// First wait after a watch could not be set up. Each further failure doubles the wait, up to [`MAX_RETRY`]
/// (kubelet-probes 6.3).
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest wait after a watch could not be set up.
const MAX_RETRY: Duration = Duration::from_secs(20);

/// Events to watch for. A file counts when it is complete: closed after writing, or renamed or linked into place.
/// `IN_MODIFY` is therefore left out.
const MASK: AddWatchFlags = AddWatchFlags::IN_CLOSE_WRITE
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_CREATE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF);

/// Hints at what the caller must read again, from the events since the last call.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// True if the path must be listed again.
    pub relist: bool,
    /// Names of files that may have new content although their signature is the same.
    pub dirty: BTreeSet<OsString>,
    /// True if events were lost. Every file may then have new content.
    pub overflow: bool,
}

/// The watch that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The watched path itself.
    Path,
    /// The parent directory of the watched path.
    Parent,
    /// A watch that is no longer used.
    Old,
}

impl Hints {
    /// Adds an event. `base` is the name of the watched path in its parent directory. `counts` says whether a name in
    /// the path matters to the caller. `is_link` says whether a name is a link now. A link is complete when it is made,
    /// but a new plain file is still being written and gets an `IN_CLOSE_WRITE` later.
    fn add(
        &mut self,
        place: Place,
        mask: AddWatchFlags,
        name: Option<&OsStr>,
        base: &OsStr,
        counts: fn(&OsStr) -> bool,
        is_link: impl Fn(&OsStr) -> bool,
    ) {
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            (self.relist, self.overflow) = (true, true);
            return;
        }
        let about_self = AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_IGNORED
            | AddWatchFlags::IN_UNMOUNT;
        let Some(name) = name else {
            // An event without a name is about the watched path itself, which may be a single file that was written.
            if place != Place::Old && mask.intersects(about_self | AddWatchFlags::IN_CLOSE_WRITE) {
                self.relist = true;
                self.dirty.insert(base.to_owned());
            }
            return;
        };
        let counts = match place {
            Place::Old => false,
            Place::Parent => name == base,
            // `..data`, the link that the volumes of Kubernetes swap, has a name that does not count. A swap of this
            // link still changes the content of files with names that count.
            Place::Path => counts(name) || mask.intersects(AddWatchFlags::IN_MOVED_TO),
        };
        let being_written =
            place == Place::Path && mask.contains(AddWatchFlags::IN_CREATE) && !is_link(name);
        if counts && !being_written {
            self.relist = true;
            self.dirty.insert(name.to_owned());
        }
    }
}

/// An inode with a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    descriptor: WatchDescriptor,
    inode: (u64, u64),
}

/// A watch could not be set up. The error displays as `cannot watch <path>: <cause>`, and names an inotify limit that
/// is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchError {
    path: PathBuf,
    cause: Errno,
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot watch {}: ", self.path.display())?;
        // The kernel's own texts, "No space left on device" and "Too many open files", would mislead.
        match self.cause {
            Errno::ENOSPC => f.write_str(
                "the inotify limit fs.inotify.max_user_watches is used up; raise it with sysctl",
            ),
            Errno::EMFILE => f.write_str(
                "the inotify limit fs.inotify.max_user_instances is used up, or this process has no descriptor left; \
                 raise the limit with sysctl",
            ),
            cause => f.write_str(cause.desc()),
        }
    }
}

impl std::error::Error for WatchError {}

/// The watches on a path and its parent.
pub struct DirectoryWatch {
    path: PathBuf,
    counts: fn(&OsStr) -> bool,
    init: fn() -> Result<Inotify, Errno>,
    inotify: Option<Inotify>,
    own: Option<Watched>,
    parent: Option<Watched>,
    retry: Duration,
    retry_at: Option<Moment>,
}

impl DirectoryWatch {
    /// Makes a watcher that watches nothing until [`DirectoryWatch::ensure`]. If `counts` returns false for a name in
    /// the directory, the watcher ignores events of this name, except renames into place.
    pub fn new(path: PathBuf, counts: fn(&OsStr) -> bool) -> Self {
        Self::with_inotify(path, counts, || {
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
        })
    }

    /// Makes a watcher like [`DirectoryWatch::new`], with the inotify instance that `init` makes.
    pub fn with_inotify(
        path: PathBuf,
        counts: fn(&OsStr) -> bool,
        init: fn() -> Result<Inotify, Errno>,
    ) -> Self {
        Self {
            path,
            counts,
            init,
            inotify: None,
            own: None,
            parent: None,
            retry: FIRST_RETRY,
            retry_at: None,
        }
    }

    /// Returns the descriptor to poll for reading; None until [`DirectoryWatch::ensure`] has made it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Returns when to call [`DirectoryWatch::ensure`] again at the latest; None if the last call of `ensure`
    /// succeeded.
    pub fn retry_at(&self) -> Option<Moment> {
        self.retry_at
    }

    /// Sets the watches to the inodes that the paths have now. Call it before each listing. A missing path is not an error.
    /// After an error, calls before [`DirectoryWatch::retry_at`] do nothing.
    ///
    /// # Errors
    /// Returns a [`WatchError`] with the path that cannot be watched, and the cause. Usually an inotify limit is used up.
    pub fn ensure(&mut self, now: Moment) -> Result<(), WatchError> {
        if self.retry_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        let ensured = self.try_ensure();
        if ensured.is_ok() {
            (self.retry, self.retry_at) = (FIRST_RETRY, None);
        } else {
            self.retry_at = Some(now + self.retry);
            self.retry = (self.retry * 2).min(MAX_RETRY);
        }
        ensured.map_err(|(path, cause)| WatchError { path, cause })
    }

    fn try_ensure(&mut self) -> Result<(), (PathBuf, Errno)> {
        if self.inotify.is_none() {
            let inotify = (self.init)().map_err(|e| (self.path.clone(), e))?;
            self.inotify = Some(inotify);
        }
        let inotify = self.inotify.as_ref().expect("made above");
        let parent = self.path.parent().map(Path::to_owned);
        let up = parent.map_or(Ok(()), |parent| rewatch(inotify, &mut self.parent, &parent));
        rewatch(inotify, &mut self.own, &self.path).and(up)
    }

    /// Reads all waiting events, and returns the hints that follow from them.
    pub fn drain(&mut self) -> Hints {
        let mut hints = Hints::default();
        let base = self.path.file_name().unwrap_or_default();
        let is_link = |name: &OsStr| {
            self.path
                .join(name)
                .symlink_metadata()
                .is_ok_and(|m| m.is_symlink() || m.nlink() > 1)
        };
        while let Some(events) = self.inotify.as_ref().and_then(|i| i.read_events().ok()) {
            for event in &events {
                hints.add(
                    self.place(event),
                    event.mask,
                    event.name.as_deref(),
                    base,
                    self.counts,
                    is_link,
                );
                let ends = event
                    .mask
                    .intersects(AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_UNMOUNT);
                for watched in [&mut self.own, &mut self.parent] {
                    watched.take_if(|w| ends && w.descriptor == event.wd);
                }
            }
        }
        hints
    }

    fn place(&self, event: &InotifyEvent) -> Place {
        let is = |w: &Option<Watched>| w.is_some_and(|w| w.descriptor == event.wd);
        if is(&self.own) {
            Place::Path
        } else if is(&self.parent) {
            Place::Parent
        } else {
            Place::Old
        }
    }
}

/// Moves a watch to the inode that `path` has now.
fn rewatch(
    inotify: &Inotify,
    watched: &mut Option<Watched>,
    path: &Path,
) -> Result<(), (PathBuf, Errno)> {
    let inode = path.metadata().ok().map(|m| (m.dev(), m.ino()));
    if watched.map(|w| w.inode) == inode {
        return Ok(());
    }
    if let Some(old) = watched.take() {
        // The call fails if the inode is gone, because the kernel has then removed the watch already.
        let _ = inotify.rm_watch(old.descriptor);
    }
    let Some(inode) = inode else { return Ok(()) };
    match inotify.add_watch(path, MASK) {
        Ok(descriptor) => *watched = Some(Watched { descriptor, inode }),
        Err(Errno::ENOENT | Errno::ENOTDIR) => {}
        Err(e) => return Err((path.to_owned(), e)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_hidden(name: &OsStr) -> bool {
        !name.as_encoded_bytes().starts_with(b".")
    }

    #[track_caller]
    fn check(
        place: Place,
        mask: AddWatchFlags,
        name: Option<&str>,
        link: bool,
        expected: Option<&[&str]>,
    ) {
        let mut hints = Hints::default();
        hints.add(
            place,
            mask,
            name.map(OsStr::new),
            OsStr::new("pods"),
            not_hidden,
            |_| link,
        );
        assert_eq!(
            hints.relist.then(|| hints
                .dirty
                .iter()
                .map(|n| n.to_str().unwrap())
                .collect::<Vec<_>>()),
            expected.map(<[&str]>::to_vec)
        );
    }

    #[test]
    fn which_events_count() {
        use AddWatchFlags as F;
        check(
            Place::Path,
            F::IN_MOVED_TO,
            Some("a.json"),
            false,
            Some(&["a.json"]),
        );
        check(
            Place::Path,
            F::IN_CLOSE_WRITE,
            Some("a.json"),
            false,
            Some(&["a.json"]),
        );
        check(
            Place::Path,
            F::IN_DELETE,
            Some("a.json"),
            false,
            Some(&["a.json"]),
        );
        check(Place::Path, F::IN_CREATE, Some("a.json"), false, None);
        check(
            Place::Path,
            F::IN_CREATE,
            Some("a.json"),
            true,
            Some(&["a.json"]),
        );
        check(Place::Path, F::IN_CLOSE_WRITE, Some(".a.swp"), false, None);
        check(
            Place::Path,
            F::IN_MOVED_TO,
            Some("..data"),
            false,
            Some(&["..data"]),
        );
        check(Place::Path, F::IN_DELETE_SELF, None, false, Some(&["pods"]));
        check(Place::Path, F::IN_CLOSE_WRITE, None, false, Some(&["pods"]));
        check(
            Place::Parent,
            F::IN_CREATE,
            Some("pods"),
            false,
            Some(&["pods"]),
        );
        check(Place::Parent, F::IN_CREATE, Some("other"), false, None);
        check(Place::Old, F::IN_MOVED_TO, Some("a.json"), false, None);
        check(Place::Old, F::IN_DELETE_SELF, None, false, None);
    }

    #[test]
    fn a_full_queue_reads_everything_again() {
        let mut hints = Hints::default();
        hints.add(
            Place::Old,
            AddWatchFlags::IN_Q_OVERFLOW,
            None,
            OsStr::new("pods"),
            not_hidden,
            |_| false,
        );
        assert!(hints.relist && hints.overflow);
    }

    #[test]
    fn a_watch_follows_the_path_to_its_new_inode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pods");
        let mut watch = DirectoryWatch::new(path.clone(), not_hidden);
        watch.ensure(Moment::default()).unwrap();
        assert_eq!(watch.own, None);
        std::fs::create_dir(&path).unwrap();
        assert!(watch.drain().relist, "the parent tells");
        watch.ensure(Moment::default()).unwrap();
        let first = watch.own.unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(watch.drain().relist);
        watch.ensure(Moment::default()).unwrap();
        assert_ne!(watch.own.unwrap(), first);
        std::fs::write(path.join("a"), "").unwrap();
        assert!(watch.drain().dirty.contains(OsStr::new("a")));
    }

    #[test]
    fn a_used_up_limit_is_named() {
        let text = |cause| {
            let path = "/pods".into();
            WatchError { path, cause }.to_string()
        };
        assert_eq!(
            text(Errno::ENOSPC),
            "cannot watch /pods: the inotify limit fs.inotify.max_user_watches is used up; raise it with sysctl"
        );
        assert!(text(Errno::EMFILE).contains("fs.inotify.max_user_instances"));
        assert_eq!(text(Errno::EACCES), "cannot watch /pods: Permission denied");
    }
}
