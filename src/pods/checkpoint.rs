//! The checkpoint file: the statuses of the last daemon on disk. With the file, start times, restart counts and ends for
//! good survive a power cut. (Between two daemons of one boot the [`KeptStatuses`] are newer.)
//!
//! Invariants: if the file is missing, old or corrupt, only history and the conditions that clients have set are lost.
//! The file is replaced atomically (temporary file, fsync, rename). A new phase of a pod is written at once, but in the
//! long run at most once in [`INTERVAL`]; any other change within [`LAZY`], because flash memory wears out. The file is
//! also written whenever a client waits for the write. A full disk is logged once.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};
use serde::{Deserialize, Serialize};

use crate::api::{PodPhase, PodStatus, PodUid};
use crate::base::aside::{CORRUPT, is_no_file, move_aside};
use crate::base::atomic_file;
use crate::base::change_feed::Aspect;
use crate::base::clock::{self, Moment, Time};
use crate::base::json;
use crate::base::locks::Locked;
use crate::base::threads::Roster;
#[cfg(doc)]
use crate::pods::status::KeptStatuses;
use crate::pods::status::{Ages, StatusManager};

/// The time between two looks at the phases when many statuses change, and the longest wait of the writing thread.
const INTERVAL: Duration = Duration::from_secs(2);
/// The shortest time between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// The number of looks that may follow one another after [`PAUSE`]. One more look is allowed for each [`INTERVAL`]
/// that has passed.
const BURST: u32 = 30;
/// The time within which a change that is no new phase is written.
const LAZY: Duration = Duration::from_secs(30);
/// The stack size in bytes of the thread that writes the file. The thread serialises a map.
const STACK: usize = 256 * 1024;

/// The content of the file. `Status` is a [`PodStatus`] when the file is read. When the file is written, `Status` is a
/// shared status, because copies at every change would be most of the daemon's allocations.
#[derive(Serialize, Deserialize)]
struct Content<Status> {
    version: u32,
    statuses: HashMap<PodUid, Status>,
    /// The id of the boot in which the moments in `ages` are valid.
    #[serde(default)]
    boot_id: String,
    #[serde(default)]
    ages: Ages,
    /// True if the daemon that wrote the file also wrote [`KeptStatuses`]. Those that it finds otherwise are older than
    /// the file.
    #[serde(default)]
    keeps_statuses: bool,
}

/// The content of the file, as a new daemon has read it.
#[derive(Debug, Default, PartialEq)]
pub struct Restored {
    /// The last status of each pod.
    pub statuses: HashMap<PodUid, PodStatus>,
    /// The time that each pod has been active.
    pub ages: Ages,
    /// True if the node was restarted after the file was written, so that no container of these statuses runs.
    pub rebooted: bool,
    /// True if [`KeptStatuses`] on the node are older than these.
    pub is_newest: bool,
}

const VERSION: u32 = 1;

/// Reads the file. A bad file is renamed to `*.corrupt` and logged (lessons F4).
pub fn read(path: &Path) -> Restored {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Restored::default(),
        Err(e) if is_no_file(&e) => {
            set_aside(path, &e);
            return Restored::default();
        }
        Err(e) => {
            log::warn!(
                "cannot read {}: {e}; going on without the last daemon's statuses",
                path.display()
            );
            return Restored::default();
        }
    };
    match json::from_slice::<Content<PodStatus>>(&bytes) {
        Ok(content) if content.version == VERSION => {
            let Content {
                statuses,
                boot_id,
                ages,
                keeps_statuses,
                ..
            } = content;
            let same_boot = boot_id == clock::boot_id();
            let ages = ages.restored(same_boot, &statuses, Moment::now(), Time::now());
            Restored {
                statuses,
                ages,
                rebooted: !same_boot,
                is_newest: same_boot && !keeps_statuses,
            }
        }
        Ok(content) => {
            // Another version of podprobe may run on this node again, and this version would overwrite its file.
            let aside = path.with_extension(format!("json.version-{}", content.version));
            log::warn!(
                "{} has version {}, and this podprobe reads version {VERSION}; it is kept as {}; going on without the last \
                 daemon's statuses",
                path.display(),
                content.version,
                aside.display()
            );
            if let Err(e) = fs::rename(path, &aside) {
                log::warn!("cannot keep {}: {e}", path.display());
            }
            Restored::default()
        }
        Err(e) => {
            set_aside(path, &e);
            Restored::default()
        }
    }
}

fn set_aside(path: &Path, damage: &dyn std::error::Error) {
    let aside = match move_aside(path, CORRUPT) {
        Ok(aside) => format!("it is kept as {}", aside.display()),
        Err(e) => format!("it cannot be moved aside: {e}"),
    };
    log::warn!(
        "{} is damaged ({damage}); {aside}; going on without what only it has of the last daemon",
        path.display()
    );
}

/// The writer of the file.
pub struct Checkpoint {
    path: PathBuf,
    statuses: Arc<StatusManager>,
    /// The last write, or `None` before the first one. This lock is held while the file is written, so that an older
    /// copy never replaces a newer one.
    written: Mutex<Option<Written>>,
}

/// A write of the file.
#[derive(Clone)]
struct Written {
    /// The version of the statuses.
    version: u64,
    phases: HashMap<PodUid, PodPhase>,
    at: Moment,
}

impl Checkpoint {
    /// Makes a writer for the file at `path`. Writes nothing yet.
    pub fn new(path: PathBuf, statuses: Arc<StatusManager>) -> Self {
        Self {
            path,
            statuses,
            written: Mutex::default(),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file if a status has changed since the last write. Returns true if the file was written. All changes
    /// that were made before the call are on disk after the call.
    ///
    /// # Errors
    /// Returns the disk's error if the file cannot be written. The old file then stays.
    pub fn save(&self) -> io::Result<bool> {
        self.save_if(|_, _| true)
    }

    /// Writes the file like [`Self::save`] if a pod has a new phase, or if the last write is older than [`LAZY`].
    fn save_what_is_due(&self, now: Moment) -> io::Result<bool> {
        self.save_if(|written, statuses| {
            now.since(written.at) >= LAZY || written.phases != phases(statuses)
        })
    }

    fn save_if(
        &self,
        is_due: impl FnOnce(&Written, &HashMap<PodUid, Arc<PodStatus>>) -> bool,
    ) -> io::Result<bool> {
        let mut written = self.written();
        // The version is read before the statuses, so that a change in between is written again.
        let version = self.statuses.feed().version_of(Aspect::Status);
        if written.as_ref().is_some_and(|w| w.version == version) {
            return Ok(false);
        }
        let statuses = self.statuses.all();
        if written.as_ref().is_some_and(|w| !is_due(w, &statuses)) {
            return Ok(false);
        }
        let phases = phases(&statuses);
        self.write(statuses)?;
        *written = Some(Written {
            version,
            phases,
            at: Moment::now(),
        });
        Ok(true)
    }

    fn write(&self, statuses: HashMap<PodUid, Arc<PodStatus>>) -> io::Result<()> {
        let content = Content {
            version: VERSION,
            statuses,
            boot_id: clock::boot_id(),
            ages: self.statuses.ages(),
            keeps_statuses: true,
        };
        atomic_file::replace_with(&self.path, |file| {
            let mut out = BufWriter::new(file);
            serde_json::to_writer(&mut out, &content)?;
            out.flush()
        })
    }

    fn written(&self) -> MutexGuard<'_, Option<Written>> {
        self.written.locked()
    }
}

fn phases(statuses: &HashMap<PodUid, Arc<PodStatus>>) -> HashMap<PodUid, PodPhase> {
    let of = |(uid, status): (&PodUid, &Arc<PodStatus>)| (uid.clone(), status.phase);
    statuses.iter().map(of).collect()
}

/// True if a failed write is logged as a warning. Of several failures in a row only the first is logged as a warning. A
/// failed write at the daemon's end is not logged as a warning: nothing tries that write again, and the next daemon
/// looks at the containers.
fn is_told(at_the_end: bool, failed_before: bool) -> bool {
    !at_the_end && !failed_before
}

/// The pace of the looks. A few looks follow one another at once, so that a pod that has ended for good does not run again
/// after a power cut. When there are many changes, one look follows each [`INTERVAL`].
struct Pace {
    left: u32,
    refilled: Moment,
}

impl Pace {
    fn new(now: Moment) -> Self {
        Self {
            left: BURST,
            refilled: now,
        }
    }

    /// Returns the time to wait between a look that has just ended and the next one.
    fn pause(&mut self, now: Moment) -> Duration {
        let more = u32::try_from(now.since(self.refilled).as_nanos() / INTERVAL.as_nanos())
            .unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(BURST);
        self.refilled = self.refilled + INTERVAL.saturating_mul(more);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                PAUSE
            }
            None => INTERVAL,
        }
    }
}

/// Starts the thread that keeps the file current until `stop` closes, and then writes the file once more. The caller
/// that closes `stop` must also wake the thread by the feed. `save_others` writes other small files. The thread calls
/// `save_others` after each turn of its loop, at least once in [`INTERVAL`].
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub fn spawn(
    checkpoint: Arc<Checkpoint>,
    stop: Receiver<()>,
    mut save_others: impl FnMut() + Send + 'static,
    roster: &Roster,
) -> io::Result<JoinHandle<()>> {
    let (mut failed, mut pace) = (false, Pace::new(Moment::now()));
    // The version of the statuses at the last look.
    let mut seen = None;
    roster.spawn("checkpoint", STACK, move |pulse, _| {
        let feed = checkpoint.statuses.feed();
        let is_stopped = || stop.try_recv() == Err(TryRecvError::Disconnected);
        if let (Some(version), false) = (seen, is_stopped()) {
            pulse.rest(|| feed.wait_newer_of(Aspect::Status, version, INTERVAL));
        }
        // `stop` is looked at before the write, so that a change before the stop is still written.
        let stopped = is_stopped();
        let version = feed.version_of(Aspect::Status);
        let is_new = seen.replace(version) != Some(version);
        let saved = match stopped {
            true => checkpoint.save(),
            false => checkpoint.save_what_is_due(Moment::now()),
        };
        let pause = match saved {
            Ok(_) => {
                failed = false;
                if is_new {
                    pace.pause(Moment::now())
                } else {
                    Duration::ZERO
                }
            }
            Err(e) => {
                if is_told(stopped, std::mem::replace(&mut failed, true)) {
                    let path = checkpoint.path.display();
                    log::warn!(
                        "cannot write {path}: {e}; statuses are kept in memory, trying again"
                    );
                }
                INTERVAL
            }
        };
        save_others();
        if stopped {
            return ControlFlow::Break(());
        }
        let _ = pulse.rest(|| stop.recv_timeout(pause));
        ControlFlow::Continue(())
    })
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    fn statuses(phase: PodPhase) -> HashMap<PodUid, PodStatus> {
        HashMap::from([(
            "u".into(),
            PodStatus {
                phase,
                ..PodStatus::default()
            },
        )])
    }

    fn pod() -> crate::api::Pod {
        crate::api::Pod {
            metadata: serde_json::from_value(serde_json::json!({"uid": "u"})).unwrap(),
            spec: Default::default(),
            raw: Default::default(),
        }
    }

    /// Returns the path, the checkpoint and the statuses of a daemon with a pod in this phase.
    fn daemon(dir: &Path, phase: PodPhase) -> (PathBuf, Arc<Checkpoint>, Arc<StatusManager>) {
        let path = dir.join("checkpoint.json");
        let manager = Arc::new(StatusManager::new(statuses(phase), Arc::default()));
        let checkpoint = Arc::new(Checkpoint::new(path.clone(), manager.clone()));
        (path, checkpoint, manager)
    }

    fn written_by(dir: &Path, phase: PodPhase) -> PathBuf {
        let (path, checkpoint, _) = daemon(dir, phase);
        let (stop, stopped) = bounded(0);
        let thread = spawn(checkpoint, stopped, || (), &Roster::default()).unwrap();
        drop(stop);
        thread.join().unwrap();
        path
    }

    #[test]
    fn the_last_statuses_are_written_at_the_end_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = written_by(dir.path(), PodPhase::Running);
        assert_eq!(read(&path).statuses, statuses(PodPhase::Running));
        written_by(dir.path(), PodPhase::Failed);
        assert_eq!(read(&path).statuses, statuses(PodPhase::Failed));
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(
            mode & 0o777,
            0o600,
            "termination messages are the container's own"
        );
    }

    #[test]
    fn the_file_of_another_version_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint.json");
        let newer = r#"{"version": 7, "statuses": {}, "new": 1}"#;
        fs::write(&path, newer).unwrap();
        assert_eq!(read(&path), Restored::default());
        written_by(dir.path(), PodPhase::Running);
        let kept = fs::read_to_string(dir.path().join("checkpoint.json.version-7"));
        assert_eq!(kept.unwrap(), newer);
    }

    #[test]
    fn few_writes_follow_at_once_and_many_at_intervals() {
        let at = |ms| Moment::from_boot(Duration::from_millis(ms));
        let mut pace = Pace::new(at(0));
        assert!((0..BURST).all(|_| pace.pause(at(1)) == PAUSE));
        assert_eq!(
            (pace.pause(at(2)), pace.pause(at(1999))),
            (INTERVAL, INTERVAL)
        );
        assert_eq!(
            (pace.pause(at(2000)), pace.pause(at(2001))),
            (PAUSE, INTERVAL)
        );
        assert!((0..BURST).all(|_| pace.pause(at(3_600_000)) == PAUSE));
        assert_eq!(pace.pause(at(3_600_000)), INTERVAL);
    }

    #[test]
    fn a_panic_costs_a_turn_and_the_file_is_kept_current() {
        let dir = tempfile::tempdir().unwrap();
        let (path, checkpoint, _) = daemon(dir.path(), PodPhase::Pending);
        let (stop, stopped) = bounded(0);
        let (turns, turned) = bounded(100);
        // Poisons the lock, as a writer that panicked does.
        let poisoned = checkpoint.clone();
        let panicked = std::thread::spawn(move || {
            let _written = poisoned.written();
            panic!("made up");
        });
        assert!(panicked.join().is_err());
        let mut panics = true;
        let roster = Roster::default();
        let save_others = move || {
            assert!(!std::mem::take(&mut panics), "made up");
            let _ = turns.try_send(());
        };
        let thread = spawn(checkpoint, stopped, save_others, &roster).unwrap();
        turned.recv().unwrap();
        assert_eq!(roster.panics(), [("checkpoint", 1)]);
        assert_eq!(read(&path).statuses, statuses(PodPhase::Pending));
        drop(stop);
        thread.join().unwrap();
    }

    /// A pod that has ended for good does not run again after a power cut.
    #[test]
    fn a_new_phase_is_on_disk_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (path, checkpoint, manager) = daemon(dir.path(), PodPhase::Pending);
        let (stop, stopped) = bounded(0);
        let (turns, turned) = bounded(100);
        let thread = spawn(
            checkpoint,
            stopped,
            move || {
                let _ = turns.try_send(Moment::now());
            },
            &Roster::default(),
        )
        .unwrap();
        turned.recv().unwrap();
        let pod = pod();
        let changed = Moment::now();
        manager.set(&pod, statuses(PodPhase::Running).remove(pod.uid()).unwrap());
        let seen = turned.recv().unwrap();
        assert_eq!(read(&path).statuses, statuses(PodPhase::Running));
        assert!(seen.since(changed) < INTERVAL, "{:?}", seen.since(changed));
        drop(stop);
        manager.feed().wake();
        thread.join().unwrap();
    }

    #[test]
    fn a_change_that_is_no_new_phase_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let (path, checkpoint, manager) = daemon(dir.path(), PodPhase::Running);
        assert!(checkpoint.save_what_is_due(Moment::now()).unwrap());
        let written = checkpoint.written().clone().unwrap().at;
        let status = PodStatus {
            phase: PodPhase::Running,
            message: "changed".into(),
            ..PodStatus::default()
        };
        manager.set(&pod(), status.clone());
        let at = |after| checkpoint.save_what_is_due(written + after).unwrap();
        assert!(!at(LAZY - Duration::from_nanos(1)));
        assert_eq!(read(&path).statuses, statuses(PodPhase::Running));
        assert!(at(LAZY));
        assert_eq!(read(&path).statuses, HashMap::from([("u".into(), status)]));
        // A file without the mark is of a daemon that kept no statuses elsewhere.
        assert!(!read(&path).is_newest);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(",\"keeps_statuses\":true", "")).unwrap();
        assert!(read(&path).is_newest);
    }

    /// A save writes every change to the disk at once, and writes nothing if there is no change. A client that changes
    /// something gets its answer after a save.
    #[test]
    fn what_is_saved_is_on_disk_at_once_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let (path, checkpoint, manager) = daemon(dir.path(), PodPhase::Pending);
        assert!(checkpoint.save().unwrap());
        assert!(!checkpoint.save().unwrap(), "nothing is new");
        manager.set(
            &pod(),
            statuses(PodPhase::Running).remove(pod().uid()).unwrap(),
        );
        fs::remove_file(&path).unwrap();
        assert!(checkpoint.save().unwrap());
        assert_eq!(read(&path).statuses, statuses(PodPhase::Running));
        let nowhere = Checkpoint::new("/proc/nowhere/checkpoint.json".into(), manager);
        assert!(nowhere.save().is_err() && nowhere.save().is_err());
    }

    #[test]
    fn f4_a_damaged_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = written_by(dir.path(), PodPhase::Running);
        let whole = fs::read(&path).unwrap();
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(
                read(&path) == Restored::default(),
                "{length} bytes of {}",
                whole.len()
            );
            assert!(!path.exists() && dir.path().join("checkpoint.json.corrupt").exists());
        }
        assert!(read(&path) == Restored::default(), "a missing file is fine");
        fs::create_dir_all(path.join("below")).unwrap();
        assert!(read(&path) == Restored::default());
        assert!(dir.path().join("checkpoint.json.corrupt/below").exists());
        written_by(dir.path(), PodPhase::Running);
        assert_eq!(read(&path).statuses, statuses(PodPhase::Running));
    }

    #[test]
    fn a_write_that_is_not_tried_again_says_nothing_of_it() {
        assert!(is_told(false, false));
        assert!(!is_told(false, true));
        assert!(!is_told(true, false));
    }

    #[test]
    fn a_directory_that_cannot_be_written_ends_nothing() {
        written_by(Path::new("/proc/nowhere"), PodPhase::Running);
    }
}
