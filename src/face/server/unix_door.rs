//! The unix socket, made again when its file is removed: whoever clears /run would lock every client out.
//!
//! Invariants: no moment shows the socket with a wider mode than it is to have, and a client finds either the old socket or a
//! working one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::Group;

use crate::base::clock::Moment;
use crate::base::directory_watch::DirectoryWatch;

/// Members of this group of the node may use the socket, as root may.
const GROUP: &str = "podprobe";

/// How long a socket that was removed stays away.
const REBIND_PAUSE: Duration = Duration::from_millis(100);
/// The time until the next try after the socket could not be made.
const RETRY: Duration = Duration::from_secs(1);
/// How many clients may wait to be let in.
const BACKLOG: i32 = 128;

/// The socket and the watch on its file.
pub(super) struct UnixDoor {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of the socket's file.
    file: (u64, u64),
    /// The watch on the directory. Without room in inotify the file is looked for now and then.
    watch: DirectoryWatch,
    /// The moment at which the socket that was removed is made again.
    again_at: Option<Moment>,
    /// The reason why the socket could not be made again, as last logged.
    problem: String,
}

impl UnixDoor {
    /// Listens at `path`. A file that is in the way is replaced: the caller holds the daemon's lock, so it is what an
    /// earlier daemon left behind.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let listener = bind(path, GROUP)?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            file: inode(path)?,
            watch: DirectoryWatch::new(path.to_owned(), |_| false),
            again_at: None,
            problem: String::new(),
        })
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Returns the descriptor that becomes readable when the socket's directory has changed.
    pub(super) fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.fd()
    }

    /// Watched before it is looked for, so that a removal at any moment is seen. True when it must be looked for again.
    pub(super) fn keep(&mut self, now: Moment) -> bool {
        self.watch.drain();
        let watched = self.watch.ensure(now);
        if inode(&self.path).is_ok_and(|file| file == self.file) {
            self.again_at = None;
            return false;
        }
        // Whoever removes the directory is let finish: a new file would be in its way.
        let again_at = *self.again_at.get_or_insert(now + REBIND_PAUSE);
        if now < again_at {
            return false;
        }
        self.again_at = Some(now + RETRY);
        let bound = self.bind_again();
        match &bound {
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
        bound.is_ok() && watched.is_ok()
    }

    fn bind_again(&mut self) -> io::Result<()> {
        let listener = bind(&self.path, GROUP)?;
        self.file = inode(&self.path)?;
        self.listener = listener;
        Ok(())
    }

    /// Returns when the socket's file is looked for again without a word of the watch.
    pub(super) fn retry_at(&self) -> Option<Moment> {
        self.again_at.into_iter().chain(self.watch.retry_at()).min()
    }

    /// Removes the socket, unless its file is another's by now.
    pub(super) fn remove(&self) {
        if inode(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds beside the final name and renames. The name beside is short: a socket's path has 107 bytes at most.
fn bind(path: &Path, group: &str) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let fresh = path.with_extension("new");
    remove_if_there(&fresh)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // Its file has this mode from the first moment on, whatever the umask is.
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(&fresh)?)?;
    listen(&socket, Backlog::new(BACKLOG)?)?;
    // A node without the group, or one whose file of groups cannot be read, has a socket for root alone.
    if let Ok(Some(group)) = Group::from_name(group)
        && chown(&fresh, None, Some(group.gid.as_raw())).is_ok()
    {
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o660))?;
    }
    std::fs::rename(&fresh, path)?;
    Ok(socket.into())
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

#[cfg(test)]
mod tests;
