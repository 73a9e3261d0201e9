//! The unix socket. The socket is made again when its file is removed. Otherwise a program that cleans /run would lock
//! every client out.
//!
//! Invariants: the socket never has a wider mode than it should, not even for a moment. A client finds either the old
//! socket or a working new one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::Group;

use crate::base::aside::rename_over;
use crate::base::clock::Moment;
use crate::base::directory_watch::DirectoryWatch;

/// The group of the node that may use the socket, like root.
const GROUP: &str = "podprobe";

/// The time between the removal of the socket and the first attempt to make it again.
const REBIND_PAUSE: Duration = Duration::from_millis(100);
/// The time between two attempts to make the socket again.
const RETRY: Duration = Duration::from_secs(1);
/// Number of clients that may wait to be accepted.
const BACKLOG: i32 = 128;

/// The unix socket, and the watch on its file.
pub(super) struct UnixDoor {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of the socket's file.
    file: (u64, u64),
    /// The watch on the socket's directory. If inotify has no room for the watch, the file is checked at intervals.
    watch: DirectoryWatch,
    /// The moment of the next attempt to make the removed socket again; None while the socket is there.
    again_at: Option<Moment>,
    /// The reason why the socket could not be made again, as last logged; empty if no problem was logged.
    problem: String,
}

impl UnixDoor {
    /// Listens at `path`. A file that is already there is replaced. The caller holds the daemon's lock, so such a file
    /// is left from an earlier daemon.
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

    /// Returns the descriptor that becomes readable when the socket's directory has changed; None without a watch.
    pub(super) fn watch_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.fd()
    }

    /// Makes the socket again if its file was removed. Returns true if the file must be checked again at once. The
    /// watch is set before the check, so that no removal is missed.
    pub(super) fn keep(&mut self, now: Moment) -> bool {
        self.watch.drain();
        let watched = self.watch.ensure(now);
        if inode(&self.path).is_ok_and(|file| file == self.file) {
            self.again_at = None;
            return false;
        }
        // The socket is made again only after a pause. A new file would disturb a program that is removing the
        // directory.
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

    /// Returns the moment at which the socket's file is checked again even if the watch reports nothing; None if no
    /// such check is needed.
    pub(super) fn retry_at(&self) -> Option<Moment> {
        self.again_at.into_iter().chain(self.watch.retry_at()).min()
    }

    /// Removes the socket, unless the file belongs to another daemon by now.
    pub(super) fn remove(&self) {
        if inode(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds the socket under a temporary name, and then renames it. The temporary name is short, because the path of a
/// socket has at most 107 bytes.
fn bind(path: &Path, group: &str) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let fresh = path.with_extension("new");
    remove_if_there(&fresh)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // The mode is set before the bind, so that the file has it from the first moment on, whatever the umask is.
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(&fresh)?)?;
    listen(&socket, Backlog::new(BACKLOG)?)?;
    // If the node has no such group, or its file of groups cannot be read, the socket is for root alone.
    if let Ok(Some(group)) = Group::from_name(group)
        && chown(&fresh, None, Some(group.gid.as_raw())).is_ok()
    {
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o660))?;
    }
    rename_over(&fresh, path)?;
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
