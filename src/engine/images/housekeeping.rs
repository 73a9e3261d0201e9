//! Keeps the image store in order. Loads archives that are dropped into a directory, and removes unused images. Images
//! that were pulled are removed only when the disk is full. The thread also reports changes of image names, including
//! changes by other processes.
//!
//! Invariants: an inotify event is only a hint, and the listing of the directory decides. A problem is logged when it
//! begins, changes and ends. An archive that is still being written is loaded later. A stop takes effect between two
//! archives: the thread finishes the archive that it is unpacking. If the process ends first, the unpacked files stay
//! in the store's `tmp/`, which the next writer empties.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::dropped::DropReport;
use super::error::ImageError;
use super::files::NAMES;
use super::image_gc::{ImageGcPolicy, ImageUses};
use super::in_use::ImagesInUse;
use super::store::{ImageStore, LoadedImage};
use crate::base::clock::{Moment, go_duration};
use crate::base::directory_watch::{DirectoryWatch, Hints};
use crate::base::live::Live;
use crate::base::threads::Roster;

/// Stack size of the keeper's thread in bytes.
const STACK: usize = 2 << 20;
/// Longest time until the directory of dropped archives is listed again if no event comes.
const CHECK: Duration = Duration::from_secs(20);
/// Time between two searches for unused images.
const PRUNE: Duration = Duration::from_secs(600);
/// Time between two looks at the disk (the kubelet's `ImageGCPeriod`).
const GARBAGE: Duration = Duration::from_secs(300);
/// A file that was written less than this time ago counts as still being written, unless an event showed that it is
/// complete.
const SETTLED: Duration = Duration::from_secs(2);

/// The settings and callbacks of an image keeper.
pub struct ImageKeeperConfig {
    /// The image store.
    pub store: ImageStore,
    /// Directory for dropped archives; created if it is missing.
    pub drop_dir: PathBuf,
    /// Returns the images and layers that containers use. The keeper's thread calls this function while the store is
    /// locked.
    pub in_use: Box<dyn Fn() -> ImagesInUse + Send>,
    /// The policy that decides which pulled images are removed when the disk is full.
    pub gc: Live<ImageGcPolicy>,
    /// Called on the keeper's thread when the image names in the store have changed. The keeper or another process
    /// (`podprobe image import`) may have changed them. The function must not block.
    pub on_change: Box<dyn Fn() + Send>,
}

/// Handle of the thread of an image keeper.
pub struct ImageKeeper {
    stopped: Arc<AtomicBool>,
    wake: Arc<EventFd>,
    thread: JoinHandle<()>,
}

impl ImageKeeper {
    /// Starts the keeper's thread `images`. The thread begins at once: it loads dropped archives and removes unused
    /// images.
    ///
    /// # Errors
    /// Returns an error if there are no descriptors left, or if the thread cannot be started.
    pub fn spawn(config: ImageKeeperConfig, roster: &Roster) -> io::Result<Self> {
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let stopped = Arc::new(AtomicBool::new(false));
        let drop_dir = std::path::absolute(&config.drop_dir)?;
        let mut worker = Worker {
            watch: DirectoryWatch::new(drop_dir.clone(), is_not_hidden),
            names: DirectoryWatch::new(config.store.dir().to_owned(), is_not_hidden),
            drop_dir,
            config,
            stopped: stopped.clone(),
            wake: wake.clone(),
            problems: Problems::default(),
            pruned: None,
            uses: ImageUses::default(),
            collected: None,
        };
        let thread = roster.spawn("images", STACK, move |_, _| {
            worker.rounds();
            ControlFlow::Break(())
        })?;
        Ok(Self {
            stopped,
            wake,
            thread,
        })
    }

    /// Asks the thread to end. Never blocks, and may be called more than once.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let _ = self.wake.write(1);
    }

    /// Tells whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits after [`ImageKeeper::stop`] until the thread has ended, at most for `limit`, because the thread may be
    /// unpacking an archive. Returns false if the thread is still running. The process may end all the same, and the
    /// next keeper loads the archive.
    pub fn join(self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        // `join` does not wait, because the thread has ended. It does not fail, because the thread catches its own
        // panics.
        self.thread.is_finished() && self.thread.join().is_ok()
    }
}

/// Reason why the disk stays too full.
#[derive(Debug, thiserror::Error)]
enum FullDiskError {
    /// The store cannot be read or changed.
    #[error(transparent)]
    Store(#[from] ImageError),
    /// No image is left that may be removed, and the disk is still too full.
    #[error(
        "the disk of {} is at least {high_percent} % full, and no image can be removed: those left are in use, were loaded by hand, \
         or came less than {} ago; remove some with `podprobe image rm`, or make room",
        .store.display(),
        go_duration(*.min_age)
    )]
    NothingToRemove {
        /// Directory of the image store.
        store: PathBuf,
        high_percent: u8,
        /// Time for which an image must have been on the node before it may be removed.
        min_age: Duration,
    },
}

/// The present problems. The key is a path, or one of the subjects [`PRUNING`] and [`DISK`].
#[derive(Debug, Default)]
struct Problems(BTreeMap<String, String>);

impl Problems {
    /// Replaces the problems that have a subject accepted by `about`. `now` has the new problems. Returns two lists of
    /// log lines: one about new and changed problems, and one about problems that have ended.
    fn replace(
        &mut self,
        about: impl Fn(&str) -> bool,
        now: Vec<(String, String)>,
    ) -> [Vec<String>; 2] {
        let mut lines = Vec::new();
        let mut old = std::mem::take(&mut self.0);
        for (subject, text) in now {
            if old.remove(&subject).as_ref() != Some(&text) {
                lines.push(format!("{subject}: {text}"));
            }
            self.0.insert(subject, text);
        }
        let (over, others) = old
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(subject, _)| about(subject));
        self.0.extend(others);
        [
            lines,
            over.into_keys()
                .map(|subject| format!("{subject}: no problem any more"))
                .collect(),
        ]
    }
}

/// The subject for a failed removal of unused images. Except this subject and [`DISK`], all subjects are paths.
const PRUNING: &str = "unused images";
/// The subject for a disk that stays too full.
const DISK: &str = "images on a full disk";

struct Worker {
    config: ImageKeeperConfig,
    drop_dir: PathBuf,
    watch: DirectoryWatch,
    names: DirectoryWatch,
    stopped: Arc<AtomicBool>,
    wake: Arc<EventFd>,
    problems: Problems,
    pruned: Option<Moment>,
    uses: ImageUses,
    collected: Option<Moment>,
}

impl Worker {
    fn rounds(&mut self) {
        let mut complete = Hints::default();
        while !self.is_stopped() {
            self.watch();
            let mut deadline = Moment::now() + CHECK;
            if self.load(&complete) {
                deadline = deadline.min(Moment::now() + SETTLED);
            }
            let prune = |last: Moment| last + PRUNE;
            if self.is_due(self.pruned.map(prune)) {
                self.prune();
            }
            let collect = |last: Moment| last + GARBAGE;
            if self.is_due(self.collected.map(collect)) {
                self.collect_garbage();
            }
            let others = [
                self.pruned.map(prune),
                self.collected.map(collect),
                self.watch.retry_at(),
            ];
            complete = self.wait(
                others.into_iter().flatten().fold(deadline, Moment::min),
                |hints| hints.relist,
            );
        }
    }

    fn is_due(&self, at: Option<Moment>) -> bool {
        at.is_none_or(|at| Moment::now() >= at) && !self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Watches the directory of dropped archives, and the store. The caller lists the directory only after this call,
    /// so a change after the listing gives an event.
    fn watch(&mut self) {
        let dir = self.drop_dir.display().to_string();
        let made =
            std::fs::create_dir_all(&self.drop_dir).map_err(|e| format!("cannot create it: {e}"));
        let watched = self
            .watch
            .ensure(Moment::now())
            .map_err(|e| format!("{e}; archives are found at the next look"));
        // A failure to watch the names is ignored: the watch is only a hint, because a pod that waits for an image
        // tries again by itself.
        let _ = self.names.ensure(Moment::now());
        if self.watch.retry_at().is_none() || watched.is_err() {
            let problem = made.and(watched).err().map(|text| (dir.clone(), text));
            self.tell(|subject| subject == dir, problem.into_iter().collect());
        }
    }

    fn tell(&mut self, about: impl Fn(&str) -> bool, now: Vec<(String, String)>) {
        let [wrong, over] = self.problems.replace(about, now);
        wrong.iter().for_each(|line| log::warn!("{line}"));
        over.iter().for_each(|line| log::info!("{line}"));
    }

    /// Loads the archives that are complete. Returns true if an archive is still being written and must be loaded
    /// later.
    fn load(&mut self, complete: &Hints) -> bool {
        let left = Cell::new(false);
        let later = |path: &Path| {
            let writing = is_being_written(path, &complete.dirty);
            left.set(left.get() || writing);
            writing || self.is_stopped()
        };
        let report = self
            .config
            .store
            .load_dropped_except(&self.drop_dir, &later);
        let report = report.unwrap_or_else(|e| DropReport {
            loaded: Vec::new(),
            problems: vec![(self.drop_dir.join("*"), e.to_string())],
        });
        for (path, image) in &report.loaded {
            log::info!("loaded {} from {}", described(image), path.display());
            image
                .warnings
                .iter()
                .for_each(|warning| log::warn!("{}: {warning}", path.display()));
        }
        let below = self.drop_dir.clone();
        let problems = report
            .problems
            .into_iter()
            .map(|(path, text)| (path.display().to_string(), text))
            .collect();
        self.tell(
            |subject| ![PRUNING, DISK].contains(&subject) && Path::new(subject) != below,
            problems,
        );
        if !report.loaded.is_empty() {
            // The change is reported directly, and not by the watch on the store, which may be missing.
            (self.config.on_change)();
        }
        left.get()
    }

    fn prune(&mut self) {
        self.pruned = Some(Moment::now());
        let problem = match self.config.store.prune(&*self.config.in_use) {
            Ok(removed) => {
                removed.images.iter().for_each(|id| {
                    log::info!("removed image {id}: it has no name and no container uses it")
                });
                None
            }
            Err(e) => Some((PRUNING.to_owned(), e.to_string())),
        };
        self.tell(|subject| subject == PRUNING, problem.into_iter().collect());
    }

    fn collect_garbage(&mut self) {
        self.collected = Some(Moment::now());
        let problem = self.free_disk().err();
        let problem = problem.map(|e| (DISK.to_owned(), e.to_string()));
        self.tell(|subject| subject == DISK, problem.into_iter().collect());
    }

    /// Notes which images are in use now, and removes some images if the disk is too full.
    fn free_disk(&mut self) -> Result<(), FullDiskError> {
        let (store, policy) = (&self.config.store, self.config.gc.get());
        let now = Moment::now();
        let pulled = store.pulled()?;
        let used = match pulled.is_empty() {
            true => ImagesInUse::default(),
            false => (self.config.in_use)(),
        };
        let images = pulled.into_iter().map(|id| {
            let is_used = used.image(&id);
            (id, is_used)
        });
        self.uses.look(now, images);
        let before = store.disk()?;
        let Some(wanted) = policy.wanted(before) else {
            return Ok(());
        };
        let mut disk = before;
        for id in self.uses.removable(now, &policy) {
            if disk.available >= wanted {
                return Ok(());
            }
            if let Some(removed) = store.remove_pulled(&id, &*self.config.in_use)? {
                let (names, percent) = (removed.names.join(", "), disk.percent());
                log::info!(
                    "removed image {names} ({id}): the disk is {percent} % full, and no container uses it"
                );
            }
            disk = store.disk()?;
        }
        match disk.available >= wanted {
            true => Ok(()),
            false => Err(FullDiskError::NothingToRemove {
                store: store.dir().to_owned(),
                high_percent: policy.high_percent,
                min_age: policy.min_age,
            }),
        }
    }

    /// Waits until the deadline, a stop, or an event for which `reason` returns true. Returns the hints of this event.
    fn wait(&mut self, deadline: Moment, reason: impl Fn(&Hints) -> bool) -> Hints {
        loop {
            let left = deadline.since(Moment::now());
            if left.is_zero() || self.is_stopped() {
                return Hints::default();
            }
            // The time is rounded up: a timeout that ends before the deadline would make this loop spin.
            let timeout =
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            let mut fds = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
            let watched = [self.watch.fd(), self.names.fd()];
            fds.extend(
                watched
                    .into_iter()
                    .flatten()
                    .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
            );
            // After EINTR and similar errors the caller checks the deadline and the stop again.
            let _ = poll(&mut fds, timeout);
            let names = self.names.drain();
            if names.overflow || names.dirty.contains(OsStr::new(NAMES)) {
                (self.config.on_change)();
            }
            let hints = self.watch.drain();
            if reason(&hints) {
                return hints;
            }
        }
    }
}

fn is_not_hidden(name: &OsStr) -> bool {
    !name.as_encoded_bytes().starts_with(b".")
}

/// Tells whether a program is still writing the file. `complete` has the names of files that are complete according to
/// an event. A file with a modification time in the future counts as complete, because the wall clock may have jumped.
fn is_being_written(path: &Path, complete: &BTreeSet<OsString>) -> bool {
    if path.file_name().is_some_and(|name| complete.contains(name)) {
        return false;
    }
    let modified = path.metadata().and_then(|m| m.modified());
    modified.is_ok_and(|at| {
        SystemTime::now()
            .duration_since(at)
            .is_ok_and(|age| age < SETTLED)
    })
}

fn described(image: &LoadedImage) -> String {
    let names = if image.names.is_empty() {
        "an image without a name".to_owned()
    } else {
        image.names.join(", ")
    };
    format!("{names} ({}, {} bytes)", image.id, image.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_said_when_it_is_new_or_other_and_when_it_is_over() {
        let mut problems = Problems::default();
        let mut check = |about: &str, now: &[(&str, &str)], wrong: &[&str], over: &[&str]| {
            let now = now
                .iter()
                .map(|(s, t)| (s.to_string(), t.to_string()))
                .collect();
            assert_eq!(
                problems.replace(|s| s.starts_with(about), now),
                [wrong, over]
            );
        };
        check(
            "/d",
            &[("/d/a", "bad"), ("/d/b", "bad")],
            &["/d/a: bad", "/d/b: bad"],
            &[],
        );
        check(
            "/d",
            &[("/d/a", "bad"), ("/d/b", "worse")],
            &["/d/b: worse"],
            &[],
        );
        check("unused", &[("unused", "full")], &["unused: full"], &[]);
        check(
            "/d",
            &[("/d/b", "worse")],
            &[],
            &["/d/a: no problem any more"],
        );
        check("unused", &[], &[], &["unused: no problem any more"]);
        check(
            "/d",
            &[("/d/a", "bad"), ("/d/b", "worse")],
            &["/d/a: bad"],
            &[],
        );
    }

    #[test]
    fn only_a_file_written_just_now_without_an_event_is_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        let file = std::fs::File::create(&path).unwrap();
        let check = |modified: SystemTime, expected: bool| {
            file.set_modified(modified).unwrap();
            assert_eq!(is_being_written(&path, &BTreeSet::new()), expected);
            assert!(!is_being_written(&path, &BTreeSet::from(["a.tar".into()])));
        };
        check(SystemTime::now(), true);
        check(SystemTime::now() - SETTLED, false);
        check(SystemTime::now() + Duration::from_secs(3600), false);
        assert!(!is_being_written(
            &dir.path().join("gone"),
            &BTreeSet::new()
        ));
    }
}
