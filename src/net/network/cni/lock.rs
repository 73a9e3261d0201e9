//! A lock in the file system that lets only one plugin run for a sandbox at a time (cni-plugins 5.2). A running
//! plugin has the lock file open as its standard input. So if the daemon is killed, the lock is held as long as
//! the plugin runs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::Slow;
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;

/// The time between two tries to get a lock that another process holds.
const AGAIN: Duration = Duration::from_millis(20);

/// The lock of one sandbox. Dropping the value releases the lock, even if a plugin still has the lock file open.
#[derive(Debug)]
pub(super) struct SandboxLock {
    file: Flock<File>,
    path: PathBuf,
}

impl SandboxLock {
    /// Waits for the lock of the sandbox `id`, for at most `limit`. Returns None if another process still holds
    /// the lock after `limit`.
    ///
    /// # Errors
    /// Returns an error if the lock file cannot be made, or if the wait was cancelled.
    pub(super) fn take(
        dir: &Path,
        id: &str,
        limit: Duration,
        slow: Slow<'_>,
        cancel: &Cancel,
    ) -> io::Result<Option<Self>> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        let path = dir.join(id);
        let began = Moment::now();
        let until = began + limit;
        let mut says = Some(began + slow.after);
        loop {
            match try_lock(&path)? {
                Some(file) => return Ok(Some(Self { file, path })),
                None if Moment::now() >= until => return Ok(None),
                None if cancel.wait(AGAIN) => return Err(Errno::ECANCELED.into()),
                None if says.take_if(|at| Moment::now() >= *at).is_some() => (slow.say)(),
                None => {}
            }
        }
    }

    /// Writes `content` into the lock file, and returns the lock file as standard input for a plugin. A plugin
    /// that has the lock file open holds the lock.
    pub(super) fn input(&self, content: &[u8]) -> io::Result<File> {
        let file = &*self.file;
        let written = file.set_len(0).and_then(|()| file.write_all_at(content, 0));
        match written {
            Ok(()) => {
                let file = file.try_clone()?;
                io::Seek::rewind(&mut &file)?;
                Ok(file)
            }
            // The write fails if the disk is full. A full disk must not prevent the release of a network, so the
            // plugin gets an input in memory.
            Err(_) => unlocked_input(content),
        }
    }

    /// Removes the lock files that no process holds, except the lock files of the sandboxes in `but`.
    pub(super) fn sweep(dir: &Path, but: &[&str]) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let stale = name.to_str().is_none_or(|name| !but.contains(&name));
            if let (true, Ok(Some(_held))) = (stale, try_lock(&entry.path())) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Releases the lock and removes the lock file. The caller has released everything of the sandbox.
    pub(super) fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for SandboxLock {
    fn drop(&mut self) {
        // The content of the lock file may be secret, and nobody needs it any more.
        let _ = self.file.set_len(0);
    }
}

/// Returns a file in memory, as the standard input for a plugin that runs without the lock.
pub(super) fn unlocked_input(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"cni-request", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(content)?;
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

fn try_lock(path: &Path) -> io::Result<Option<Flock<File>>> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    lock_opened(options.mode(0o600).open(path)?, path)
}

fn lock_opened(file: File, path: &Path) -> io::Result<Option<Flock<File>>> {
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => file,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, e)) => return Err(e.into()),
    };
    // The previous holder may have removed the lock file before this process locked it. The lock on a removed file
    // is of no use.
    let same = fs::metadata(path).is_ok_and(|there| {
        let ours = file.metadata();
        ours.is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    });
    Ok(same.then_some(file))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    const SILENT: Slow<'_> = Slow {
        after: Duration::from_secs(60),
        say: &|| (),
    };

    /// A wait that takes long is logged once. The test holds the lock until the message is logged.
    #[test]
    fn of_a_wait_that_takes_long_it_is_said_once() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::cell::RefCell::new(take(dir.path(), Duration::ZERO));
        assert!(held.borrow().is_some());
        let said = std::cell::Cell::new(0);
        let say = || {
            said.set(said.get() + 1);
            held.take();
        };
        let (after, limit) = (Duration::from_millis(10), Duration::from_secs(60));
        let slow = Slow { after, say: &say };
        let taken = SandboxLock::take(dir.path(), "a", limit, slow, &Cancel::default());
        assert!(taken.unwrap().is_some());
        assert_eq!(said.get(), 1);
    }

    fn take(dir: &Path, limit: Duration) -> Option<SandboxLock> {
        SandboxLock::take(dir, "a", limit, SILENT, &Cancel::default()).unwrap()
    }

    #[test]
    fn a_lock_has_one_holder_and_its_file_goes_when_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let first = take(dir.path(), Duration::ZERO).unwrap();
        assert!(take(dir.path(), Duration::ZERO).is_none());
        assert!(
            SandboxLock::take(dir.path(), "b", Duration::ZERO, SILENT, &Cancel::default())
                .unwrap()
                .is_some()
        );
        first.remove();
        assert!(!dir.path().join("a").exists());
        assert!(take(dir.path(), Duration::ZERO).is_some());
    }

    #[test]
    fn the_lock_of_a_file_that_was_removed_meanwhile_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let first = take(dir.path(), Duration::ZERO).unwrap();
        let [before_removal, before_the_next] = [(); 2].map(|()| File::open(&path).unwrap());
        first.remove();
        assert!(lock_opened(before_removal, &path).unwrap().is_none());
        let _next = take(dir.path(), Duration::ZERO).unwrap();
        assert!(lock_opened(before_the_next, &path).unwrap().is_none());
    }

    #[test]
    fn a_plugin_holds_the_lock_of_a_daemon_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take(dir.path(), Duration::ZERO).unwrap();
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("60").stdin(lock.input(b"request").unwrap());
        let mut plugin = sleep.spawn().unwrap();
        drop(sleep);
        // The test acts like a killed daemon: the daemon's descriptors are closed, but the lock is not released.
        nix::unistd::close(lock.file.as_raw_fd()).unwrap();
        std::mem::forget(lock);
        let held = take(dir.path(), Duration::ZERO).is_none();
        plugin.kill().unwrap();
        plugin.wait().unwrap();
        assert!(held);
        assert!(take(dir.path(), Duration::from_secs(60)).is_some());
    }

    #[test]
    fn files_of_sandboxes_that_are_gone_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let _held = take(dir.path(), Duration::ZERO).unwrap();
        SandboxLock::sweep(dir.path(), &["b"]);
        let left = ["a", "b", "c"].map(|name| dir.path().join(name).exists());
        assert_eq!(left, [true, true, false]);
    }

    #[test]
    fn a_wait_for_a_lock_ends_with_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let _held = take(dir.path(), Duration::ZERO);
        let cancel = Cancel::default();
        cancel.cancel();
        let waited = SandboxLock::take(dir.path(), "a", Duration::from_secs(60), SILENT, &cancel);
        assert_eq!(waited.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    }
}
