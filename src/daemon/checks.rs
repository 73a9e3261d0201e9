//! The named checks of `/healthz`, `/livez` and `/readyz`. The checks tell whether the daemon makes progress, and what
//! would prevent the progress.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};

use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use thiserror::Error;

use super::backend::DaemonBackend;
use crate::base::clock::Moment;
use crate::base::sys::wide;
use crate::face::server::Health;
use crate::face::server::health::Check;

/// Least free space on a disk, in bytes. With less space nothing can be written reliably.
const LEAST_FREE: u64 = 1 << 20;

/// The reasons for which a check of the node fails.
#[derive(Debug, Error)]
pub(super) enum CheckError {
    #[error(
        "the node has no thread left: {0}; pids.max of the daemon's cgroup or the kernel's threads-max is reached"
    )]
    NoThread(#[source] io::Error),
    #[error("cannot look at {}: {}", dir.display(), cause.desc())]
    Unseen { dir: PathBuf, cause: Errno },
    #[error("{}: {why}", dir.display())]
    NoRoom { dir: PathBuf, why: NoRoom },
}

/// The reasons for which nothing more can be written to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum NoRoom {
    #[error("the file system is read-only")]
    ReadOnly,
    #[error("the file system is full")]
    Full,
    #[error("the file system has no inode left")]
    NoInode,
}

/// Smallest stack of a thread, in bytes.
const CHECK_STACK: usize = 16 << 10;

impl Health for DaemonBackend {
    /// Runs the checks. A restart of the daemon can repair the sync loop, PLEG and the other long-lived threads, so
    /// their checks count for liveness. A restart cannot repair the runtime, the disk or a lack of threads.
    fn checks(&self) -> Vec<Check> {
        let now = Moment::now();
        let check = |name, failure, is_liveness| Check {
            name,
            failure,
            is_liveness,
        };
        let sync_loop = self.heartbeat.stalled(self.started, now);
        let runtime = self.kuberuntime.runtime().check();
        vec![
            check("ping", None, true),
            check("syncloop", sync_loop, true),
            check("pleg", why(self.pleg.health(now)), true),
            check("threads", why(self.roster.health(now)), true),
            check("runtime", why(runtime), false),
            check("disk", why(self.disk()), false),
            check("new-threads", why(new_thread()), false),
        ]
    }

    fn panicked(&self) {
        self.counted.server_panics.fetch_add(1, Ordering::Relaxed);
    }
}

fn why<E: Display>(result: Result<(), E>) -> Option<String> {
    result.err().map(|e| e.to_string())
}

impl DaemonBackend {
    /// Checks the file systems of statuses and images, of the shims' records, and of logs.
    fn disk(&self) -> Result<(), CheckError> {
        let layout = &self.layout;
        let all = [layout.lib_dir(), layout.run_dir(), layout.logs_dir()];
        all.iter().try_for_each(|dir| has_room(dir))
    }
}

/// Function that starts a thread. A test passes a function that fails.
type Spawn = fn(Builder, fn()) -> io::Result<JoinHandle<()>>;

/// Checks that the node can start one more thread, as the check `new-threads` does.
pub(super) fn new_thread() -> Result<(), CheckError> {
    has_thread(Builder::spawn)
}

/// Checks that the node can start one more thread. If the node cannot, no pod starts, and the daemon only answers
/// requests for health.
fn has_thread(spawn: Spawn) -> Result<(), CheckError> {
    let thread = Builder::new().name("check".into());
    let ended = spawn(thread.stack_size(CHECK_STACK), || {});
    let ended = ended.map_err(CheckError::NoThread)?;
    // The thread does nothing, so it ends within microseconds.
    let _ = ended.join();
    Ok(())
}

fn has_room(dir: &Path) -> Result<(), CheckError> {
    let of = || dir.to_owned();
    let found = statvfs(dir).map_err(|cause| CheckError::Unseen { dir: of(), cause })?;
    judge(
        found.flags().contains(FsFlags::ST_RDONLY),
        found.blocks_free() * wide::<_, u64>(found.fragment_size()),
        (found.files(), found.files_free()),
    )
    .map_err(|why| CheckError::NoRoom { dir: of(), why })
}

/// Checks that a file system can be written to. `free` is the free space in bytes. `inodes` are the number of all
/// inodes and the number of free inodes. Both numbers are 0 if the file system makes inodes as it needs them.
fn judge(is_read_only: bool, free: u64, inodes: (u64, u64)) -> Result<(), NoRoom> {
    match (is_read_only, free, inodes) {
        (true, ..) => Err(NoRoom::ReadOnly),
        (_, free, _) if free < LEAST_FREE => Err(NoRoom::Full),
        (.., (1.., 0)) => Err(NoRoom::NoInode),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_left_is_named() {
        assert!(has_thread(Builder::spawn).is_ok());
        let none = has_thread(|_, _| Err(io::ErrorKind::WouldBlock.into()));
        let why = none.unwrap_err().to_string();
        assert!(why.starts_with("the node has no thread left: "), "{why}");
    }

    #[test]
    fn a_disk_that_takes_nothing_is_named() {
        assert_eq!(judge(false, LEAST_FREE, (10, 1)), Ok(()));
        assert_eq!(judge(false, LEAST_FREE, (0, 0)), Ok(()), "btrfs");
        assert_eq!(judge(true, LEAST_FREE, (10, 1)), Err(NoRoom::ReadOnly));
        assert_eq!(judge(false, LEAST_FREE - 1, (10, 1)), Err(NoRoom::Full));
        assert_eq!(judge(false, LEAST_FREE, (10, 0)), Err(NoRoom::NoInode));
        let missing = has_room(Path::new("/proc/nowhere")).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "cannot look at /proc/nowhere: No such file or directory"
        );
    }
}
