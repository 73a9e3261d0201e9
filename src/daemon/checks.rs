//! The named checks of `/healthz`, `/livez` and `/readyz`: whether the daemon makes progress, and what would keep it from that.

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

/// Least free space in bytes: with less, nothing can be written reliably.
const LEAST_FREE: u64 = 1 << 20;

/// A check of the node that fails.
#[derive(Debug, Error)]
enum CheckError {
    #[error(
        "the node has no thread left: {0}; pids.max of the daemon's cgroup or the kernel's threads-max is reached"
    )]
    NoThread(#[source] io::Error),
    #[error("cannot look at {}: {}", dir.display(), cause.desc())]
    Unseen { dir: PathBuf, cause: Errno },
    #[error("{}: {why}", dir.display())]
    NoRoom { dir: PathBuf, why: NoRoom },
}

/// A file system that takes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum NoRoom {
    #[error("the file system is read-only")]
    ReadOnly,
    #[error("the file system is full")]
    Full,
    #[error("the file system has no inode left")]
    NoInode,
}

/// The least that a thread may have.
const CHECK_STACK: usize = 16 << 10;

impl Health for DaemonBackend {
    /// A restart can mend what has stopped to go on: the sync loop, PLEG and the other long-lived threads. The disk and the runtime it cannot.
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
            check("new-threads", why(has_thread(Builder::spawn)), false),
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
    /// The file systems of statuses and images, of the shims' records, and of logs.
    fn disk(&self) -> Result<(), CheckError> {
        let layout = &self.layout;
        let all = [layout.lib_dir(), layout.run_dir(), layout.logs_dir()];
        all.iter().try_for_each(|dir| has_room(dir))
    }
}

/// How a thread is started; tests have one that fails.
type Spawn = fn(Builder, fn()) -> io::Result<JoinHandle<()>>;

/// Checks that the node gives one more thread. Without it no pod starts, and the daemon answers requests for health only.
fn has_thread(spawn: Spawn) -> Result<(), CheckError> {
    let thread = Builder::new().name("check".into());
    let ended = spawn(thread.stack_size(CHECK_STACK), || {});
    let ended = ended.map_err(CheckError::NoThread)?;
    // It does nothing, so it is there for microseconds.
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

/// `inodes` are all and the free ones; a file system that makes them as it needs them has none.
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
