//! The directory of the proxy process: its lock, its record, and its last table.
//!
//! Invariants: at most one proxy process has the lock of a directory. Each file is replaced as a whole. Nothing in the
//! directory outlives the boot: the process does not wait until its files are on the disk, and it does not use a table
//! from another boot.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde::{Deserialize, Serialize};

use super::message::Configuration;
use crate::base::aside::{lock_file, rename_over};
use crate::base::clock::boot_id;
use crate::base::json;
use crate::base::sys::task::Process;

/// The unix socket on which the proxy process takes requests of the daemon.
pub const SOCKET: &str = "control.sock";
/// The record of the process that serves as proxy process.
pub const RECORD: &str = "state.json";
/// The record of a new process that is about to take over.
const NEXT_RECORD: &str = "state.next";
/// The last configuration of the proxy process.
pub const TABLE: &str = "table.json";
/// The addresses that the proxy process has added to the node.
pub const ADDRESSES: &str = "addresses.json";
const LOCK: &str = "lock";
/// The file of [`Orders`].
pub const ORDERS: &str = "role.json";

/// Orders to the proxy process. The daemon writes them before it starts that process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// The cgroup to which the proxy process moves. If the text is empty, the process stays in its cgroup.
    pub cgroup: String,
}

/// The record of the proxy process of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The boot in which the record was written.
    pub boot_id: String,
    /// The process itself.
    pub process: Process,
    /// The version of the process's program.
    #[serde(default)]
    pub version: String,
    /// True if the process can hand its work over to another process.
    #[serde(default)]
    pub hands_over: bool,
}

impl Record {
    /// Returns the record of the proxy process that runs for a directory; None if no such process runs.
    pub fn running(dir: &Path) -> Option<Self> {
        let record = Self::read(dir)?;
        (record.boot_id == boot_id() && record.process.alive()).then_some(record)
    }

    /// Returns the record of this process; None without /proc.
    fn own() -> Option<Self> {
        Some(Self {
            boot_id: boot_id(),
            process: Process::of(std::process::id() as i32)?,
            version: env!("CARGO_PKG_VERSION").into(),
            hands_over: true,
        })
    }

    /// Reads the record of a directory. Its process may have ended without removing the record.
    pub fn read(dir: &Path) -> Option<Self> {
        json::from_slice(&fs::read(dir.join(RECORD)).ok()?).ok()
    }
}

/// The directory of the proxy process, with its lock.
pub struct Home {
    dir: PathBuf,
    /// The lock file. Every process with a descriptor of this file has the lock. The lock is released when the last
    /// such descriptor is closed.
    lock: File,
    watch: Option<Inotify>,
}

impl Home {
    /// Takes the directory for this process, and makes it if it is missing.
    ///
    /// # Errors
    /// Returns the error if another proxy process has the directory, or if the directory cannot be written.
    pub fn take(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock = lock_file(&dir.join(LOCK))?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::Error(e) => e,
            TryLockError::WouldBlock => {
                let text = format!("another process has {}", dir.display());
                io::Error::new(io::ErrorKind::WouldBlock, text)
            }
        })?;
        let home = Self {
            dir: dir.to_owned(),
            lock,
            watch: None,
        };
        home.prepare_record()?;
        home.publish_record()?;
        Ok(home)
    }

    /// Takes the directory with a lock that another process has given. The other process's record stays until
    /// [`Self::publish_record`].
    pub fn inherit(dir: &Path, lock: OwnedFd) -> Self {
        Self {
            dir: dir.to_owned(),
            lock: lock.into(),
            watch: None,
        }
    }

    /// Returns the lock, for a process that takes over.
    ///
    /// # Errors
    /// Returns the error if no descriptor is left.
    pub fn lock(&self) -> io::Result<OwnedFd> {
        Ok(self.lock.try_clone()?.into())
    }

    /// Writes a record of this process beside the record in force.
    ///
    /// # Errors
    /// Returns the error if the directory cannot be written.
    pub fn prepare_record(&self) -> io::Result<()> {
        let record = Record::own().ok_or_else(|| io::Error::other("/proc is not mounted"))?;
        write(
            &self.dir.join(NEXT_RECORD),
            &[&serde_json::to_vec(&record)?],
        )
    }

    /// Replaces the record in force by the prepared record.
    ///
    /// # Errors
    /// Returns the error if the directory is gone.
    pub fn publish_record(&self) -> io::Result<()> {
        rename_over(&self.dir.join(NEXT_RECORD), &self.dir.join(RECORD))
    }

    /// Leaves the directory to another proxy process. That process may start while this process still has connections.
    pub fn leave(self) {
        for name in [SOCKET, RECORD] {
            let _ = fs::remove_file(self.dir.join(name));
        }
    }

    /// Returns the path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the orders that the daemon has left; empty if there are no orders.
    pub fn orders(&self) -> Orders {
        let bytes = fs::read(self.dir.join(ORDERS)).unwrap_or_default();
        json::from_slice(&bytes).unwrap_or_default()
    }

    /// Begins to watch the directory for files that are removed or written, see [`Self::watched`]. Does nothing if inotify
    /// fails.
    pub fn watch(&mut self) {
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        let Ok(inotify) = Inotify::init(flags) else {
            return;
        };
        let gone = AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CLOSE_WRITE;
        if inotify.add_watch(&self.dir, gone).is_ok() {
            self.watch = Some(inotify);
        }
    }

    /// Returns a descriptor that becomes readable when a file of the directory is removed or written; None without a
    /// watch.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Reads the events of the watch. Returns true if the socket, the record or the lock file is not this process's any
    /// more. Without them the daemon would start another process beside this one.
    pub fn is_damaged(&self) -> bool {
        while self
            .watch
            .as_ref()
            .is_some_and(|w| w.read_events().is_ok_and(|events| !events.is_empty()))
        {}
        let found_by = |record: Record| (record.boot_id, record.process);
        let recorded = Record::read(&self.dir).map(found_by);
        let has_record = recorded == Record::own().map(found_by);
        let file = |file: &fs::Metadata| (file.dev(), file.ino());
        let own = self.lock.metadata().map(|own| file(&own));
        let named = fs::metadata(self.dir.join(LOCK)).map(|named| file(&named));
        let has_lock = own
            .ok()
            .zip(named.ok())
            .is_some_and(|(own, named)| own == named);
        !(self.dir.join(SOCKET).exists() && has_record && has_lock)
    }

    /// Returns the configuration that an earlier proxy process has kept; `None` if there is no configuration from this
    /// boot.
    pub fn last(&self) -> Option<Configuration> {
        let bytes = fs::read(self.dir.join(TABLE)).ok()?;
        let last: Configuration = json::from_slice(&bytes).ok()?;
        (last.boot_id == boot_id()).then_some(last)
    }

    /// Writes the configuration to the directory. A proxy process that is started again reads it.
    ///
    /// # Errors
    /// Returns the error if the directory cannot be written. The file keeps the old configuration in this case.
    pub fn keep(&self, configuration: &Configuration) -> io::Result<()> {
        replace(
            &self.dir.join(TABLE),
            &[&serde_json::to_vec(configuration)?],
        )
    }
}

/// Replaces a file that only its owner may read. The content is not synced to the disk, so the directory must not
/// outlive the boot.
///
/// # Errors
/// Returns the error if the file cannot be written. The file keeps its old content in this case.
pub fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut temporary = path.to_owned();
    temporary.set_extension("tmp");
    write(&temporary, parts)?;
    rename_over(&temporary, path)
}

fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))
}
