//! The thread of the file source: waits for inotify, the re-listing time or the stop, then lists, reads and sends
//! (kubelet-probes 6.3).
//!
//! Invariants: the thread never waits for a file (it opens no FIFO and reads nothing past [`MAX_FILE_SIZE`]). The
//! thread holds the content of only one file at a time. The meaning of a listing is decided by [`super::files`]. If a
//! last good version cannot be written, this is logged and the pods keep running.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use crossbeam_channel::{Receiver, Sender, bounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::files::{Files, Listing, Step, is_pod_file};
use super::outlet::{Ended, Outlet};
use super::read::{MAX_FILE_SIZE, kind, read_limited};
use super::reading::{ContentError, Decode, Reading, Signature};
use super::versions::Versions;
use crate::api::PodSource;
use crate::base::clock::Moment;
use crate::base::directory_watch::{DirectoryWatch, Hints, WatchError};
use crate::base::threads::Roster;

/// The stack size of the thread in bytes.
const STACK: usize = 2 << 20;
/// The time between two checks for a missing path, and the pause after a panic.
const RETRY: Duration = Duration::from_secs(1);

/// The age below which a change counts as recent. A file that was changed recently may change again while its times
/// stay the same.
const SETTLED: Duration = Duration::from_millis(50);

/// The settings and connections of a file source.
pub struct FileSourceConfig {
    /// A directory or one file. Symbolic links are followed. A relative path starts at the working directory when the
    /// source is started.
    pub path: PathBuf,
    /// The time between two listings (`fileCheckFrequency`).
    pub check_frequency: Duration,
    /// The directory of the last good versions, for this source alone. A missing directory is created.
    pub last_good: PathBuf,
    /// The pods that an earlier daemon ran. If two files have the same pod, the file of a running pod counts.
    pub running: HashSet<crate::api::PodUid>,
    /// Turns the bytes of a file into pods.
    pub decode: Decode,
    /// The outlet to which the source sends pods, objects and problems.
    pub outlet: Outlet,
}

/// A running file source.
pub struct FileSource {
    wake: Arc<EventFd>,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl FileSource {
    /// Starts the thread `pod-files`, which makes its first listing at once.
    ///
    /// # Errors
    /// Returns an error if there are no descriptors left, or the thread cannot be started.
    pub fn spawn(config: FileSourceConfig, roster: &Roster) -> io::Result<Self> {
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let (stop, stopped) = bounded(1);
        let path = std::path::absolute(&config.path)?;
        let mut worker = Worker {
            watch: DirectoryWatch::new(path.clone(), is_pod_file),
            versions: Versions::new(
                Files::new(path.clone(), config.running),
                std::path::absolute(&config.last_good)?,
                config.decode,
            ),
            check_frequency: config.check_frequency,
            outlet: config.outlet,
            path,
            wake: Arc::clone(&wake),
            stopped,
            watch_error: None,
        };
        let thread = roster.spawn("pod-files", STACK, move |_, _| {
            // The worker survives a panic with its whole state, so that no last good version is lost.
            worker.rounds();
            ControlFlow::Break(())
        })?;
        Ok(Self { wake, stop, thread })
    }

    /// Requests the end of the thread. Never blocks, and may be called again.
    pub fn stop(&self) {
        let _ = self.stop.try_send(());
        let _ = self.wake.write(1);
    }

    /// True if the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread, which ends soon after [`FileSource::stop`].
    pub fn join(self) {
        // The thread catches all panics itself.
        let _ = self.thread.join();
    }
}

struct Worker {
    check_frequency: Duration,
    outlet: Outlet,
    path: PathBuf,
    versions: Versions,
    watch: DirectoryWatch,
    watch_error: Option<WatchError>,
    wake: Arc<EventFd>,
    stopped: Receiver<()>,
}

impl Worker {
    fn rounds(&mut self) {
        let mut hints = Hints {
            overflow: true,
            ..Hints::default()
        };
        loop {
            self.watch();
            let now = Moment::now();
            let listing = self.list(&hints);
            let missing = matches!(listing, Listing::Missing(_));
            self.restore(&listing);
            let step = self.versions.files.step(now, listing);
            let deadline = [
                step.wake,
                missing.then_some(now + RETRY),
                self.watch.retry_at(),
            ];
            let deadline = deadline
                .into_iter()
                .flatten()
                .fold(now + self.check_frequency, Moment::min);
            let published = self.publish(step);
            // The versions are kept after the pods are sent, so a slow disk delays no pod.
            self.versions.keep();
            if published.is_err() {
                return;
            }
            hints = match self.wait(deadline) {
                Ok(hints) => hints,
                Err(Ended) => return,
            };
        }
    }

    /// Restores the last good versions at the first successful listing. A missing or unreadable path does not show
    /// which files there will be, so such a listing does not count.
    fn restore(&mut self, listing: &Listing) {
        let readings: Vec<(&Path, &Reading)> = match listing {
            Listing::Missing(_) | Listing::Unreadable(_) => return,
            Listing::Dir(files) => files
                .iter()
                .map(|(path, reading)| (path.as_path(), reading))
                .collect(),
            Listing::File(reading) => vec![(&self.path, reading)],
        };
        self.versions.restore(&readings);
    }

    /// Makes sure that the path is watched. This function is called before the listing, so that a change in between
    /// gives an event.
    fn watch(&mut self) {
        match self.watch.ensure(Moment::now()) {
            Ok(()) if self.watch.retry_at().is_none() => self.watch_error = None,
            Ok(()) => {}
            Err(e) => {
                if self.watch_error.as_ref() != Some(&e) {
                    log::warn!("{e}; changes are seen at the next re-listing");
                }
                self.watch_error = Some(e);
            }
        }
    }

    /// Waits until there is a reason to list again.
    fn wait(&mut self, deadline: Moment) -> Result<Hints, Ended> {
        loop {
            let left = deadline.since(Moment::now());
            if left.is_zero() {
                return Ok(Hints::default());
            }
            // The time is rounded up, because a wake-up that is a little early would cause a busy loop.
            let timeout =
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            let mut fds = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
            fds.extend(self.watch.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            // After EINTR and similar errors the deadline and the stop are checked again.
            let _ = poll(&mut fds, timeout);
            if self.stopped.try_recv().is_ok() {
                return Err(Ended);
            }
            let hints = self.watch.drain();
            if hints.relist {
                return Ok(hints);
            }
        }
    }

    fn publish(&self, step: Step) -> Result<(), Ended> {
        step.log.iter().for_each(|line| log::warn!("{line}"));
        step.mended.iter().for_each(|line| log::info!("{line}"));
        self.outlet.publish(PodSource::File, step, &self.stopped)
    }

    fn list(&mut self, hints: &Hints) -> Listing {
        let path = self.path.clone();
        let shown = path.display();
        match path.metadata() {
            Err(e) if is_missing(&e) => Listing::Missing(format!(
                "cannot read pods from {shown}: it does not exist; create it"
            )),
            Err(e) => Listing::Unreadable(format!(
                "cannot read pods from {shown}: {e}; all pods stay as they are"
            )),
            Ok(m) if m.is_dir() => self.list_dir(hints).unwrap_or_else(|e| {
                if is_missing(&e) {
                    return Listing::Missing(format!(
                        "cannot read pods from {shown}: it does not exist; create it"
                    ));
                }
                Listing::Unreadable(format!(
                    "cannot list {shown}: {e}; all pods stay as they are"
                ))
            }),
            Ok(m) if m.is_file() => match self.read(&path, true) {
                Some(reading) => Listing::File(reading),
                None => Listing::Missing(format!(
                    "cannot read pods from {shown}: it does not exist; create it"
                )),
            },
            Ok(m) => Listing::Unreadable(format!(
                "cannot read pods from {shown}: it is {}; name a directory or a file",
                kind(&m)
            )),
        }
    }

    fn list_dir(&mut self, hints: &Hints) -> io::Result<Listing> {
        let mut names: BTreeSet<OsString> = BTreeSet::new();
        for entry in fs::read_dir(&self.path)? {
            names.insert(entry?.file_name());
        }
        names.retain(|name| is_pod_file(name));
        let mut read = |name: &OsString| {
            let path = self.path.join(name);
            let reading = self.read(&path, hints.overflow || hints.dirty.contains(name))?;
            Some((path, reading))
        };
        Ok(Listing::Dir(names.iter().filter_map(&mut read).collect()))
    }

    /// Reads a file. Returns `None` if the file was removed after the listing.
    fn read(&mut self, path: &Path, even_if_known: bool) -> Option<Reading> {
        let meta = match path.metadata() {
            Ok(meta) => meta,
            Err(e) if is_missing(&e) => {
                path.symlink_metadata().ok()?;
                return Some(Reading::Failed(
                    "cannot follow the symbolic link: its target does not exist".into(),
                ));
            }
            Err(e) => return Some(Reading::Failed(format!("cannot read the file: {e}"))),
        };
        if !meta.is_file() {
            return Some(Reading::Skipped(kind(&meta)));
        }
        let wanted = self.versions.files.wants(path, &signature(&meta));
        if !even_if_known && !self.versions.lacks(path) && !wanted {
            return Some(Reading::Unchanged);
        }
        match read_limited(path, MAX_FILE_SIZE) {
            Ok((meta, bytes)) => {
                let signature = is_settled(&meta, SystemTime::now()).then(|| signature(&meta));
                let empty = ContentError::EmptyFile;
                Some(self.versions.read(path, signature, &bytes, empty))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => Some(Reading::Failed(format!("cannot read the file: {e}"))),
        }
    }
}

fn is_missing(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn signature(m: &fs::Metadata) -> Signature {
    Signature {
        inode: (m.dev(), m.ino()),
        size: m.len(),
        mtime: (m.mtime(), m.mtime_nsec()),
        ctime: (m.ctime(), m.ctime_nsec()),
    }
}

fn is_settled(m: &fs::Metadata, now: SystemTime) -> bool {
    let changed = Duration::new(
        m.ctime().max(0) as u64,
        m.ctime_nsec().clamp(0, 999_999_999) as u32,
    );
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    now.checked_sub(changed).is_some_and(|age| age >= SETTLED)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
