//! The directory of the role: its lock, its record, the last table.
//!
//! Invariants: at most one role has the lock of a directory. Each file is replaced as a whole. Nothing in it outlives
//! the boot: its content is not waited for to be on the disk, and the table of another boot is not used.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde::{Deserialize, Serialize};

use super::message::Configuration;
use crate::base::clock::boot_id;
use crate::base::sys::task::Process;

/// The unix socket on which the daemon speaks.
pub const SOCKET: &str = "control.sock";
/// The record of which process the role is.
pub const RECORD: &str = "state.json";
/// The record of a process that is about to be the role.
const NEXT_RECORD: &str = "state.next";
/// The configuration by which the role works.
pub const TABLE: &str = "table.json";
/// The addresses that the role has added to the node.
pub const ADDRESSES: &str = "addresses.json";
/// The file of `Orders`, which the daemon writes before the role starts.
pub const ORDERS: &str = "role.json";

/// Orders of the daemon to the role, which the daemon writes before it starts the role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// The cgroup to which the role moves; if this is empty, the role stays where it is.
    pub cgroup: String,
}

/// Record of the process that runs the role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The boot to which the record belongs.
    pub boot_id: String,
    /// The process.
    pub process: Process,
    /// The version of the program.
    #[serde(default)]
    pub version: String,
    /// True if the process can give its work to another process.
    #[serde(default)]
    pub hands_over: bool,
}

impl Record {
    /// The role that runs for a directory.
    pub fn running(dir: &Path) -> Option<Self> {
        let record = Self::read(dir)?;
        (record.boot_id == boot_id() && record.process.alive()).then_some(record)
    }

    /// The role that runs for a directory, or did so last and did not leave it.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join(RECORD)).ok()?).ok()
    }
}

/// See the module.
pub struct Home {
    dir: PathBuf,
    /// Belongs to every process that has a descriptor of it, and is released with the last of them.
    lock: File,
    watch: Option<Inotify>,
}

impl Home {
    /// Takes the directory, which is made where it is missing, for this process.
    ///
    /// # Errors
    /// Returns the error if another role has the directory, or if the directory cannot be written.
    pub fn take(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(dir.join("lock"))?;
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

    /// The directory with the lock that another process gave. Its record stays that of the other one until
    /// [`Self::publish_record`].
    pub fn inherit(dir: &Path, lock: OwnedFd) -> Self {
        Self {
            dir: dir.to_owned(),
            lock: lock.into(),
            watch: None,
        }
    }

    /// The lock, for a process that takes over.
    ///
    /// # Errors
    /// Returns the error if no descriptor is left.
    pub fn lock(&self) -> io::Result<OwnedFd> {
        Ok(self.lock.try_clone()?.into())
    }

    /// Writes a record of this process beside the record that counts.
    ///
    /// # Errors
    /// Returns the error if the directory cannot be written.
    pub fn prepare_record(&self) -> io::Result<()> {
        let process = Process::of(std::process::id() as i32);
        let record = Record {
            boot_id: boot_id(),
            process: process.ok_or_else(|| io::Error::other("/proc is not mounted"))?,
            version: env!("CARGO_PKG_VERSION").into(),
            hands_over: true,
        };
        write(
            &self.dir.join(NEXT_RECORD),
            &[&serde_json::to_vec(&record)?],
        )
    }

    /// Puts the record that was prepared in the place of the one that counts.
    ///
    /// # Errors
    /// Returns the error if the directory has gone.
    pub fn publish_record(&self) -> io::Result<()> {
        fs::rename(self.dir.join(NEXT_RECORD), self.dir.join(RECORD))
    }

    /// Leaves the directory to another role, which may start while this one still has connections.
    pub fn leave(self) {
        for name in [SOCKET, RECORD] {
            let _ = fs::remove_file(self.dir.join(name));
        }
    }

    /// Returns the path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads the orders that the daemon has left for the role; they are empty if there are none.
    pub fn orders(&self) -> Orders {
        let bytes = fs::read(self.dir.join(ORDERS)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Begins to tell on [`Self::watched`] when a file of the directory has gone. Without inotify nothing is told.
    pub fn watch(&mut self) {
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        let Ok(inotify) = Inotify::init(flags) else {
            return;
        };
        let gone = AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM;
        if inotify.add_watch(&self.dir, gone).is_ok() {
            self.watch = Some(inotify);
        }
    }

    /// Returns a descriptor that becomes readable when a file of the directory has gone.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Reads the events of the watch, and returns true if the socket or the record is gone.
    pub fn is_damaged(&self) -> bool {
        while self
            .watch
            .as_ref()
            .is_some_and(|w| w.read_events().is_ok_and(|events| !events.is_empty()))
        {}
        !(self.dir.join(SOCKET).exists() && self.dir.join(RECORD).exists())
    }

    /// The configuration that a role before this one has kept, if it is of this boot.
    pub fn last(&self) -> Option<Configuration> {
        let bytes = fs::read(self.dir.join(TABLE)).ok()?;
        let last: Configuration = serde_json::from_slice(&bytes).ok()?;
        (last.boot_id == boot_id()).then_some(last)
    }

    /// Keeps the configuration for a role that is started again.
    ///
    /// # Errors
    /// Returns the error if the directory cannot be written; the last configuration then stays.
    pub fn keep(&self, configuration: &Configuration) -> io::Result<()> {
        replace(
            &self.dir.join(TABLE),
            &[&serde_json::to_vec(configuration)?],
        )
    }
}

/// Replaces a file that only its owner may read, in a directory that does not outlive the boot.
///
/// # Errors
/// Returns the error if the file cannot be written; the old content then stays.
pub fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut temporary = path.to_owned();
    temporary.set_extension("tmp");
    write(&temporary, parts)?;
    fs::rename(temporary, path)
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
