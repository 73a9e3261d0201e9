//! The named checks of `/healthz`, `/livez` and `/readyz`: whether the daemon makes progress, and what would keep it from that.

use std::path::Path;
use std::sync::atomic::Ordering;

use nix::sys::statvfs::{FsFlags, statvfs};

use super::backend::DaemonBackend;
use crate::base::clock::Moment;
use crate::base::sys::wide;
use crate::face::server::Health;
use crate::face::server::health::Check;

/// Least free space in bytes: with less, nothing can be written reliably.
const LEAST_FREE: u64 = 1 << 20;

/// The least that a thread may have.
const CHECK_STACK: usize = 16 << 10;

impl Health for DaemonBackend {
    /// A restart can mend what has stopped to go on: the sync loop, PLEG and the other long-lived threads. The disk and the runtime it cannot.
    fn checks(&self) -> Vec<Check> {
        let now = Moment::now();
        let check = |name, result, is_liveness| Check {
            name,
            result,
            is_liveness,
        };
        let sync_loop = self.heartbeat.stalled(self.started, now);
        let threads = self.roster.health(now).map_err(|e| e.to_string());
        let runtime = self.kuberuntime.runtime().check();
        vec![
            check("ping", Ok(()), true),
            check("syncloop", sync_loop.map_or(Ok(()), Err), true),
            check(
                "pleg",
                self.pleg.health(now).map_err(|e| e.to_string()),
                true,
            ),
            check("threads", threads, true),
            check("runtime", runtime.map_err(|e| e.to_string()), false),
            check("disk", self.disk(), false),
            check(
                "new-threads",
                has_thread(std::thread::Builder::spawn),
                false,
            ),
        ]
    }

    fn panicked(&self) {
        self.counted.server_panics.fetch_add(1, Ordering::Relaxed);
    }
}

impl DaemonBackend {
    /// The file systems of statuses and images, of the shims' records, and of logs.
    fn disk(&self) -> Result<(), String> {
        let layout = &self.layout;
        let all = [layout.lib_dir(), layout.run_dir(), layout.logs_dir()];
        all.iter().try_for_each(|dir| has_room(dir))
    }
}

/// How a thread is started; tests have one that fails.
type Spawn = fn(std::thread::Builder, fn()) -> std::io::Result<std::thread::JoinHandle<()>>;

/// Checks that the node gives one more thread. Without it no pod starts, and the daemon answers requests for health only.
fn has_thread(spawn: Spawn) -> Result<(), String> {
    let thread = std::thread::Builder::new().name("check".into());
    let ended = spawn(thread.stack_size(CHECK_STACK), || {});
    let ended = ended.map_err(|e| {
        format!("the node has no thread left: {e}; pids.max of the daemon's cgroup or the kernel's threads-max is reached")
    })?;
    // It does nothing, so it is there for microseconds.
    let _ = ended.join();
    Ok(())
}

fn has_room(dir: &Path) -> Result<(), String> {
    let of = dir.display();
    let found = statvfs(dir).map_err(|e| format!("cannot look at {of}: {}", e.desc()))?;
    judge(
        found.flags().contains(FsFlags::ST_RDONLY),
        found.blocks_free() * wide::<_, u64>(found.fragment_size()),
        (found.files(), found.files_free()),
    )
    .map_err(|what| format!("{of}: {what}"))
}

/// `inodes` are all and the free ones; a file system that makes them as it needs them has none.
fn judge(is_read_only: bool, free: u64, inodes: (u64, u64)) -> Result<(), &'static str> {
    match (is_read_only, free, inodes) {
        (true, ..) => Err("the file system is read-only"),
        (_, free, _) if free < LEAST_FREE => Err("the file system is full"),
        (.., (1.., 0)) => Err("the file system has no inode left"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_left_is_named() {
        assert_eq!(has_thread(std::thread::Builder::spawn), Ok(()));
        let none = has_thread(|_, _| Err(std::io::ErrorKind::WouldBlock.into()));
        let why = none.unwrap_err();
        assert!(why.starts_with("the node has no thread left: "), "{why}");
    }

    #[test]
    fn a_disk_that_takes_nothing_is_named() {
        assert_eq!(judge(false, LEAST_FREE, (10, 1)), Ok(()));
        assert_eq!(judge(false, LEAST_FREE, (0, 0)), Ok(()), "btrfs");
        assert_eq!(
            judge(true, LEAST_FREE, (10, 1)),
            Err("the file system is read-only")
        );
        assert_eq!(
            judge(false, LEAST_FREE - 1, (10, 1)),
            Err("the file system is full")
        );
        assert_eq!(
            judge(false, LEAST_FREE, (10, 0)),
            Err("the file system has no inode left")
        );
        let missing = has_room(Path::new("/proc/nowhere")).unwrap_err();
        assert_eq!(
            missing,
            "cannot look at /proc/nowhere: No such file or directory"
        );
    }
}
