//! The mark of a pod that was evicted, deleted or held, and the file of the mark. All functions are pure except the functions
//! that read, write and remove the file.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::atomic_file;
use crate::base::clock::{self, Moment};
use crate::base::record_file;
use crate::pods::admission::{NODE_DRAINED, NODE_SHUTDOWN};
use crate::pods::status::{DELETED, EVICTED, TERMINATED};

/// The mark of an evicted, deleted or held pod. The mark is on the disk from the decision to end the pod until the pod starts
/// anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mark {
    /// The message in the pod's status: the reason for the eviction or deletion.
    pub(super) message: String,
    pub(super) stage: Stage,
    /// The request of a person who has deleted the pod. `None` means that a volume has exceeded its limit, or that the pod
    /// is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deletion: Option<Deletion>,
    /// The hold of a pod that ends with all pods of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<Hold>,
}

/// The order for which a pod ends with all pods of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeldFor {
    /// A person drains the node.
    Drain,
    /// The node shuts down. The next boot ends the hold.
    Shutdown,
}

/// The hold of a pod that ends with all pods of the node, and starts again when the node takes pods again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hold {
    pub(super) why: HeldFor,
    /// The grace period in seconds. `None` means the pod's own grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) grace: Option<i64>,
    /// True if the pod starts again on this node. A pod of an API server does not: its controller makes another.
    pub(super) comes_back: bool,
    /// True if the node takes pods again already, so that the pod starts as soon as it has ended.
    #[serde(skip)]
    pub(super) is_over: bool,
}

/// The request of a person who deletes a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Deletion {
    /// The hash of the deleted pod's content. The deletion does not apply to any other content of the pod's file.
    pub(super) content: String,
    /// The grace period in seconds. `None` means the pod's own grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) grace: Option<i64>,
    /// True if the pod's file has already changed, so that the pod starts anew as soon as it has ended.
    #[serde(skip)]
    pub(super) is_over: bool,
}

/// The stage that an eviction or deletion has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Stage {
    /// The pod's containers are being stopped and its volumes are being emptied.
    Ending,
    /// The pod ended at `since` and starts anew after the delay.
    Waiting { since: Moment, delay: Duration },
    /// The pod does not start again.
    ForGood,
    /// The pod has ended, and starts again when the node takes pods again.
    Held,
}

/// The content of the file of a mark.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    /// The id of the boot in which the moments of the mark are valid.
    boot_id: String,
    #[serde(flatten)]
    mark: Mark,
}

impl Mark {
    pub(super) fn ending(message: String) -> Self {
        Self {
            message,
            stage: Stage::Ending,
            deletion: None,
            hold: None,
        }
    }

    /// Makes the mark of a pod that ends with all pods of the node.
    pub(super) fn held(hold: Hold) -> Self {
        let message = match hold.why {
            HeldFor::Drain => "The node is drained; podprobe uncordon starts the pod again.",
            // The kubelet's words.
            HeldFor::Shutdown => "Pod was terminated in response to imminent node shutdown.",
        };
        Self {
            hold: Some(hold),
            ..Self::ending(message.to_owned())
        }
    }

    /// Returns the reason in the pod's status.
    pub(super) fn reason(&self) -> &'static str {
        match (&self.deletion, &self.hold) {
            (Some(_), _) => DELETED,
            (None, None) => EVICTED,
            (None, Some(hold)) if !hold.comes_back => TERMINATED,
            (None, Some(hold)) => match hold.why {
                HeldFor::Drain => NODE_DRAINED,
                HeldFor::Shutdown => NODE_SHUTDOWN,
            },
        }
    }

    /// Returns the reason why the pod's containers start again.
    pub(super) fn cause(&self) -> String {
        match (&self.deletion, self.hold.as_ref().map(|hold| hold.why)) {
            (Some(_), _) => "the pod was deleted, and its file has changed since".into(),
            (None, None) => format!("the pod was evicted: {}", self.message.trim_end()),
            (None, Some(HeldFor::Drain)) => "the node was drained, and takes pods again".into(),
            (None, Some(HeldFor::Shutdown)) => "the node was shut down".into(),
        }
    }

    /// Ends the hold of the pod, which starts again as soon as it has ended.
    pub(super) fn release_hold(&mut self, now: Moment) {
        let Some(hold) = self.hold.as_mut().filter(|hold| hold.comes_back) else {
            return;
        };
        hold.is_over = true;
        if self.stage == Stage::Held {
            self.stage = Stage::no_wait(now);
        }
    }

    /// True if the delay has passed, so that the pod may start anew.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        match self.stage {
            Stage::Waiting { since, delay } => now.since(since) >= delay,
            Stage::Ending | Stage::ForGood | Stage::Held => false,
        }
    }

    /// Adapts the mark to this boot. A pod that ended in an earlier boot does not wait, as with the delays of
    /// [`crate::pods::actions::BackOff`]. The shutdown of an earlier boot is over.
    fn in_boot(self, same: bool, now: Moment) -> Self {
        let is_over = |hold: &Hold| hold.why == HeldFor::Shutdown && hold.comes_back;
        let stage = match self.stage {
            stage if same => stage,
            Stage::Waiting { .. } => Stage::no_wait(now),
            Stage::Ending | Stage::Held if self.hold.as_ref().is_some_and(is_over) => {
                Stage::no_wait(now)
            }
            stage => stage,
        };
        Self { stage, ..self }
    }
}

impl Stage {
    /// Makes the stage of a pod that may start anew at once.
    pub(super) fn no_wait(now: Moment) -> Self {
        Self::Waiting {
            since: now,
            delay: Duration::ZERO,
        }
    }
}

/// Reads the mark from its file. Returns `None` if there is no file.
///
/// # Errors
/// Returns an error if the file cannot be read, or is damaged.
pub(super) fn read(path: &Path) -> io::Result<Option<Mark>> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let Record { boot_id, mark } = record_file::parse(&path.display().to_string(), &bytes)?;
    Ok(Some(
        mark.in_boot(boot_id == clock::boot_id(), Moment::now()),
    ))
}

/// Writes the mark to its file. The file is on the disk when this function returns.
///
/// # Errors
/// Returns an error if the file cannot be written. An older file then stays.
pub(super) fn write(path: &Path, mark: &Mark) -> io::Result<()> {
    let record = Record {
        boot_id: clock::boot_id(),
        mark: mark.clone(),
    };
    atomic_file::replace(path, &record_file::to_bytes(&record)?)
}

/// Removes the file of a mark. A missing file is not an error.
///
/// # Errors
/// Returns an error if the file still exists.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn waiting() -> Mark {
        let stage = Stage::Waiting {
            since: at(100),
            delay: Duration::from_secs(10),
        };
        Mark {
            stage,
            ..Mark::ending("why".into())
        }
    }

    #[test]
    fn only_what_has_waited_starts_anew() {
        let over = |stage, now| Mark { stage, ..waiting() }.is_over(at(now));
        assert!(!over(waiting().stage, 109) && over(waiting().stage, 110));
        assert!(!over(Stage::Ending, 999) && !over(Stage::ForGood, 999));
    }

    #[test]
    fn a_mark_is_read_back_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("evicted.json");
        assert_eq!(read(&path).unwrap(), None);
        let stages = [Stage::Ending, waiting().stage, Stage::ForGood, Stage::Held];
        let marks = stages.map(|stage| Mark { stage, ..waiting() });
        for mark in marks.into_iter().chain([held(HeldFor::Drain)]) {
            write(&path, &mark).unwrap();
            assert_eq!(read(&path).unwrap(), Some(mark));
        }
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(read(&path).is_err(), "{length} bytes");
        }
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(read(&path).unwrap(), None);
    }

    #[test]
    fn no_wait_outlasts_the_boot() {
        assert!(waiting().in_boot(false, at(3)).is_over(at(3)));
        assert_eq!(waiting().in_boot(true, at(103)), waiting());
        let ending = Mark::ending("why".into());
        assert_eq!(ending.clone().in_boot(false, at(3)), ending);
    }

    fn held(why: HeldFor) -> Mark {
        Mark::held(Hold {
            why,
            grace: Some(3),
            comes_back: true,
            is_over: false,
        })
    }

    #[test]
    fn a_shutdown_ends_with_the_boot_and_a_drain_does_not() {
        for stage in [Stage::Ending, Stage::Held] {
            let after = |why, same| {
                let mark = Mark { stage, ..held(why) }.in_boot(same, at(3));
                (mark.stage == stage, mark.is_over(at(3)))
            };
            assert_eq!(after(HeldFor::Shutdown, false), (false, true), "{stage:?}");
            assert_eq!(after(HeldFor::Shutdown, true), (true, false), "{stage:?}");
            assert_eq!(after(HeldFor::Drain, false), (true, false), "{stage:?}");
        }
        let mut of_api = held(HeldFor::Shutdown);
        of_api.hold.as_mut().unwrap().comes_back = false;
        of_api.stage = Stage::ForGood;
        assert_eq!(of_api.clone().in_boot(false, at(3)), of_api);
    }
}
