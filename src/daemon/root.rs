//! Makes the directories of the root and takes the root's lock, so that a root has one daemon.

use std::fs::File;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use super::error::DaemonError;
use crate::base::paths::Layout;

/// Longest wait of a new daemon for the lock of the root. After the death of the last daemon the lock is free sooner;
/// a daemon that keeps running holds the lock longer.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
/// Time between two tries to take the lock.
const LOCK_STEP: Duration = Duration::from_millis(20);

/// Makes the directories and takes the lock, which is held until the returned value is dropped. The lock is on the
/// directory `/var/lib/podprobe` itself. Nobody clears this directory while the daemon runs, as may happen to /run,
/// and the directory may be read-only.
pub(super) fn prepare(layout: &Layout) -> Result<Flock<File>, DaemonError> {
    let made = layout.make(&layout.logs_dir());
    let closed = made.and_then(|()| layout.make_directories());
    for dir in closed.map_err(DaemonError::Directory)? {
        match dir.is_closed {
            true => log::info!("{}", dir.text),
            false => log::warn!("{}", dir.text),
        }
    }
    let path = layout.lib_dir();
    let file = File::open(&path).map_err(|cause| DaemonError::LockNotOpened { path, cause })?;
    let lock = take_lock(file, LOCK_PATIENCE);
    lock.ok_or_else(|| DaemonError::RootInUse(layout.root().to_owned()))
}

/// Takes the lock, or returns None after `patience`. The lock of a killed daemon is not free at once. The kernel
/// takes time to end the daemon, and a child process that the daemon was starting ends even later.
fn take_lock(mut file: File, patience: Duration) -> Option<Flock<File>> {
    let deadline = Instant::now() + patience;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err(_) if Instant::now() >= deadline => return None,
            Err((file, _)) => file,
        };
        std::thread::sleep(LOCK_STEP);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crossbeam_channel::bounded;

    use super::*;

    fn open_at(dir: &Path) -> File {
        File::create(dir.join("lock")).unwrap()
    }

    #[test]
    fn the_lock_of_a_daemon_that_is_just_ending_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let old = take_lock(open_at(dir.path()), Duration::ZERO).unwrap();
        assert!(take_lock(open_at(dir.path()), Duration::ZERO).is_none());
        let (waits, waiting) = bounded(0);
        let new = std::thread::spawn(move || {
            waits.send(()).unwrap();
            take_lock(open_at(dir.path()), Duration::from_secs(60)).is_some()
        });
        waiting.recv().unwrap();
        drop(old);
        assert!(new.join().unwrap());
    }
}
