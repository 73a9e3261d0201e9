//! The unix socket, made again when its file is removed: whoever clears /run would lock every client out.
//!
//! Invariants: no moment shows the socket with a wider mode than it is to have, and a client finds either the old socket or a
//! working one.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Group;

use crate::clock::Moment;
use crate::directory_watch::DirectoryWatch;

/// Members of this group of the node may use the socket, as root may.
const GROUP: &str = "podprobe";

/// How long a socket that was removed stays away.
const REBIND_PAUSE: Duration = Duration::from_millis(100);

/// The socket and the watch on its file.
pub(super) struct UnixDoor {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of the socket's file.
    file: (u64, u64),
    /// Without room in inotify the file is looked for now and then.
    watch: DirectoryWatch,
    /// Why the socket could not be made again, as last logged.
    problem: String,
}

impl UnixDoor {
    /// Listens at `path`. A file that is in the way is replaced: the caller holds the daemon's lock, so it is what an
    /// earlier daemon left behind.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let listener = bind(path)?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            file: inode(path)?,
            watch: DirectoryWatch::new(path.to_owned(), |_| false),
            problem: String::new(),
        })
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Readable when its directory has changed.
    pub(super) fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.fd()
    }

    /// Watched before it is looked for, so that a removal at any moment is seen. True when it must be looked for again.
    pub(super) fn keep(&mut self) -> bool {
        self.watch.drain();
        let watched = self.watch.ensure(Moment::now());
        if inode(&self.path).is_ok_and(|file| file == self.file) {
            return false;
        }
        // Whoever removes the directory is let finish: a new file would be in its way.
        std::thread::park_timeout(REBIND_PAUSE);
        let bound = bind(&self.path).and_then(|listener| {
            self.file = inode(&self.path)?;
            self.listener = listener;
            Ok(())
        });
        match bound {
            Ok(()) => {
                self.problem.clear();
                log::warn!("{} was removed; it is made again", self.path.display());
            }
            Err(e) => {
                let problem = format!("cannot listen on {}: {e}", self.path.display());
                if self.problem != problem {
                    log::error!("{problem}; clients cannot reach the daemon until this works");
                }
                self.problem = problem;
            }
        }
        watched.is_ok()
    }

    /// When the socket's file is looked for again without a word of the watch.
    pub(super) fn retry_at(&self) -> Option<Moment> {
        self.watch.retry_at()
    }

    /// Removes the socket, unless its file is another's by now.
    pub(super) fn remove(&self) {
        if inode(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds beside the final name and renames. The name beside is short: a socket's path has 107 bytes at most.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let fresh = path.with_extension("new");
    remove_if_there(&fresh)?;
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    // A node without the group, or one whose file of groups cannot be read, has a socket for root alone.
    if let Ok(Some(group)) = Group::from_name(GROUP)
        && chown(&fresh, None, Some(group.gid.as_raw())).is_ok()
    {
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o660))?;
    }
    std::fs::rename(&fresh, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}
