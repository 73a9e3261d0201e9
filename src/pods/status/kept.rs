//! The status of each pod in a file of its own, for a daemon that follows one that was killed.
//!
//! Invariants: a status is in its file before anybody is told of it. So the next daemon knows everything that people, the
//! data path and the API server were told. The files are not synced, for they outlive the daemon and not the boot: after a
//! boot no container of them runs, and the checkpoint has what is needed then. A file that cannot be written is removed,
//! because an old status would be taken for the newest.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::api::{PodStatus, PodUid};
use crate::base::aside::remove_any;
use crate::base::paths::Layout;
use crate::base::{clock, record_file};

const SUFFIX: &str = ".json";

/// The directory of the files.
pub struct KeptStatuses {
    layout: Layout,
    directory: PathBuf,
    boot_id: String,
    /// True if the last write failed, which is in the log.
    has_failed: AtomicBool,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct Kept<Status> {
    /// The id of the boot in which the containers of the status run.
    boot_id: String,
    status: Status,
}

impl KeptStatuses {
    /// Makes the keeper of the directory in this layout. The directory need not exist.
    pub fn new(layout: &Layout) -> Self {
        Self {
            layout: layout.clone(),
            directory: layout.statuses(),
            boot_id: clock::boot_id(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Reads the statuses that the last daemon has kept since the node booted. Removes those of an earlier boot, and those
    /// that cannot be read: the checkpoint has an older status of the same pod.
    pub fn read(&self) -> HashMap<PodUid, PodStatus> {
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut statuses = HashMap::new();
        for name in names {
            let kept = match name.ends_with(SUFFIX) {
                true => record_file::read::<Kept<PodStatus>>(&self.directory, &name),
                false => None,
            };
            match kept.filter(|kept| kept.boot_id == self.boot_id) {
                Some(kept) => {
                    let uid = PodUid::from(name.trim_end_matches(SUFFIX));
                    statuses.insert(uid, kept.status);
                }
                None => self.remove(&name),
            }
        }
        statuses
    }

    /// Removes all files.
    pub fn clear(&self) {
        let _ = fs::remove_dir_all(&self.directory);
    }

    /// True if there is a status of the pod.
    pub(super) fn has(&self, uid: &PodUid) -> bool {
        self.directory.join(format!("{uid}{SUFFIX}")).is_file()
    }

    /// Writes the status of a pod.
    pub(super) fn keep(&self, uid: &PodUid, status: &PodStatus) {
        let name = format!("{uid}{SUFFIX}");
        let kept = Kept {
            boot_id: self.boot_id.clone(),
            status,
        };
        let write = || record_file::write(&self.directory, &name, &kept, false);
        let written = write().or_else(|e| match e.kind() {
            // Somebody has removed the directory, or this is the first status.
            io::ErrorKind::NotFound => self.layout.make(&self.directory).and_then(|()| write()),
            _ => Err(e),
        });
        let has_failed = written.is_err();
        if has_failed {
            self.remove(&name);
        }
        if let (Err(e), false) = (written, self.has_failed.swap(has_failed, Ordering::Relaxed)) {
            log::warn!(
                "cannot keep statuses in {}: {e}; a daemon that follows a killed one begins with those of the checkpoint",
                self.directory.display()
            );
        }
    }

    /// Removes the status of a pod that is gone.
    pub(super) fn forget(&self, uid: &PodUid) {
        self.remove(&format!("{uid}{SUFFIX}"));
    }

    fn remove(&self, name: &str) {
        let _ = remove_any(&self.directory.join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodPhase;

    fn status(phase: PodPhase) -> PodStatus {
        PodStatus {
            phase,
            ..PodStatus::default()
        }
    }

    fn keeper(dir: &std::path::Path) -> KeptStatuses {
        KeptStatuses::new(&Layout::new(dir))
    }

    fn names(kept: &KeptStatuses) -> Vec<String> {
        let entries = fs::read_dir(&kept.directory).into_iter().flatten();
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        entries.map(name).collect()
    }

    #[test]
    fn the_newest_status_of_each_pod_is_read_back_until_the_pod_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let kept = keeper(dir.path());
        assert_eq!(kept.read(), HashMap::new());
        let (a, b) = (PodUid::from("a"), PodUid::from("b"));
        kept.keep(&a, &status(PodPhase::Pending));
        kept.keep(&a, &status(PodPhase::Running));
        kept.keep(&b, &status(PodPhase::Failed));
        let wanted = [
            (a.clone(), status(PodPhase::Running)),
            (b.clone(), status(PodPhase::Failed)),
        ];
        assert_eq!(keeper(dir.path()).read(), HashMap::from(wanted));
        kept.forget(&b);
        assert_eq!(keeper(dir.path()).read().len(), 1);
        kept.clear();
        assert_eq!(kept.read(), HashMap::new());
        // The directory is made again.
        kept.keep(&a, &status(PodPhase::Running));
        assert_eq!(kept.read().len(), 1);
    }

    #[test]
    fn a_status_of_another_boot_is_not_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let before = KeptStatuses {
            boot_id: "another boot".into(),
            ..keeper(dir.path())
        };
        before.keep(&PodUid::from("a"), &status(PodPhase::Running));
        assert_eq!(keeper(dir.path()).read(), HashMap::new());
        assert_eq!(names(&before), [""; 0]);
    }

    #[test]
    fn what_cannot_be_read_costs_its_own_pod_only() {
        let dir = tempfile::tempdir().unwrap();
        let kept = keeper(dir.path());
        for name in ["a", "b", "c", "d"] {
            kept.keep(&PodUid::from(name), &status(PodPhase::Running));
        }
        let file = |name: &str| kept.directory.join(name);
        fs::write(file("a.json"), "{").unwrap();
        fs::remove_file(file("b.json")).unwrap();
        fs::create_dir_all(file("b.json/below")).unwrap();
        fs::write(file("c.json.4711.tmp"), "{").unwrap();
        let mut read: Vec<_> = kept.read().into_keys().collect();
        read.sort();
        assert_eq!(read, [PodUid::from("c"), PodUid::from("d")]);
        assert_eq!(kept.read().len(), 2);
        assert_eq!(names(&kept).len(), 2, "{:?}", names(&kept));
    }

    /// An older status in its place would be taken for the newest.
    #[test]
    fn a_status_that_cannot_be_written_is_no_status() {
        let dir = tempfile::tempdir().unwrap();
        let kept = keeper(dir.path());
        let uid = PodUid::from("a");
        kept.keep(&uid, &status(PodPhase::Pending));
        let obstacle = format!("a.json.{}.tmp", std::process::id());
        fs::create_dir(kept.directory.join(&obstacle)).unwrap();
        kept.keep(&uid, &status(PodPhase::Running));
        assert_eq!(names(&kept), std::slice::from_ref(&obstacle));
        fs::remove_dir(kept.directory.join(obstacle)).unwrap();
        kept.keep(&uid, &status(PodPhase::Running));
        assert_eq!(kept.read()[&uid].phase, PodPhase::Running);
    }
}
