//! The statuses of the last daemon, on disk: so that readiness, start times and restart counts survive its restart.
//!
//! Invariants: it is a cache; a missing, old or corrupt file costs history and nothing else. Replaced atomically
//! (temporary file, fsync, rename), at most once in [`INTERVAL`]; a disk that is full is said once.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use serde::{Deserialize, Serialize};

use crate::api::{PodStatus, PodUid};
use crate::clock::{self, Moment, Time};
use crate::notifier::Notifier;
use crate::status::{Ages, StatusManager};

/// Shortest time between two writes.
const INTERVAL: Duration = Duration::from_secs(2);
/// Stack of the thread: it serialises a map.
const STACK: usize = 256 * 1024;

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    statuses: HashMap<PodUid, PodStatus>,
    /// What the moments in `ages` belong to.
    #[serde(default)]
    boot_id: String,
    #[serde(default)]
    ages: Ages,
}

/// What the file says.
#[derive(Debug, Default, PartialEq)]
pub struct Restored {
    /// The last status of each pod.
    pub statuses: HashMap<PodUid, PodStatus>,
    /// How long they have been active.
    pub ages: Ages,
}

const VERSION: u32 = 1;

/// Reads the file; a bad one is set aside as `*.corrupt` and logged (lessons F4).
pub fn read(path: &Path) -> Restored {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Restored::default(),
        Err(e) => {
            log::warn!("cannot read {}: {e}; going on without the last daemon's statuses", path.display());
            return Restored::default();
        }
    };
    match serde_json::from_slice::<Content>(&bytes) {
        Ok(content) if content.version == VERSION => {
            let Content { statuses, boot_id, ages, .. } = content;
            let ages = ages.restored(boot_id == clock::boot_id(), &statuses, Moment::now(), Time::now());
            Restored { statuses, ages }
        }
        Ok(content) => {
            log::warn!("{} has version {}, not {VERSION}; going on without it", path.display(), content.version);
            Restored::default()
        }
        Err(e) => {
            let aside = path.with_extension("json.corrupt");
            log::warn!("{} is damaged ({e}); it is kept as {} and its content is done without", path.display(), aside.display());
            let _ = fs::rename(path, aside);
            Restored::default()
        }
    }
}

fn write(path: &Path, statuses: &StatusManager) -> io::Result<()> {
    let ages = statuses.ages();
    let statuses = statuses.all().into_iter().map(|(uid, s)| (uid, PodStatus::clone(&s))).collect();
    replace(path, &serde_json::to_vec(&Content { version: VERSION, statuses, boot_id: clock::boot_id(), ages })?)
}

/// Replaces a file atomically: the name always leads to the old content or to all of the new.
///
/// # Errors
/// The disk does not take it; the old content is as before.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("json.tmp");
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Keeps the file current until `stop` closes, and writes it once more then. `also` is called at each turn: for other
/// small files.
///
/// # Errors
/// No thread is left.
pub fn spawn(
    path: PathBuf,
    statuses: Arc<StatusManager>,
    notifier: Arc<Notifier>,
    stop: Receiver<()>,
    mut also: impl FnMut() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("checkpoint".into()).stack_size(STACK).spawn(move || {
        let (mut written, mut failed) = (None, false);
        loop {
            let stopped = stop.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Disconnected);
            let version = notifier.version();
            if written != Some(version) {
                match write(&path, &statuses) {
                    Ok(()) => (written, failed) = (Some(version), false),
                    Err(e) if !failed => {
                        log::warn!("cannot write {}: {e}; statuses are kept in memory, trying again", path.display());
                        failed = true;
                    }
                    Err(_) => {}
                }
            }
            also();
            if stopped {
                return;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;
    use crate::api::PodPhase;

    fn statuses(phase: PodPhase) -> HashMap<PodUid, PodStatus> {
        HashMap::from([("u".into(), PodStatus { phase, ..PodStatus::default() })])
    }

    fn written_by(dir: &Path, phase: PodPhase) -> PathBuf {
        let path = dir.join("checkpoint.json");
        let notifier = Arc::new(Notifier::default());
        let manager = Arc::new(StatusManager::new(statuses(phase), notifier.clone()));
        let (stop, stopped) = bounded(0);
        let thread = spawn(path.clone(), manager, notifier, stopped, || ()).unwrap();
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
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "termination messages are the container's own");
    }

    #[test]
    fn f4_a_damaged_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = written_by(dir.path(), PodPhase::Running);
        let whole = fs::read(&path).unwrap();
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(read(&path) == Restored::default(), "{length} bytes of {}", whole.len());
            assert!(!path.exists() && dir.path().join("checkpoint.json.corrupt").exists());
        }
        assert!(read(&path) == Restored::default(), "a missing file is fine");
    }

    #[test]
    fn a_directory_that_cannot_be_written_ends_nothing() {
        written_by(Path::new("/proc/nowhere"), PodPhase::Running);
    }
}
