//! Probes that a person has paused. The worker of a paused probe keeps the cached result and runs no handler until the
//! pause is over.
//!
//! Invariants: a pause ends by itself, by the boot clock, at most [`MAX_PAUSE`] after it was made. After a reboot the
//! wall clock shows how much is left of a pause, but never more than its length. A pause belongs to a pod's UID and is
//! removed with the pod. The file of the pauses is a copy of the pauses in memory and is replaced as a whole. Another
//! version of podprobe keeps the pauses. If the file is lost or damaged, only the pauses are lost.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::api::{PodUid, ProbeType};
use crate::base::clock::{Moment, Time, boot_id, go_duration};
use crate::base::locks::Locked;
use crate::base::{atomic_file, record_file};

/// The longest pause: a week.
pub const MAX_PAUSE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The shortest pause: a second.
pub const MIN_PAUSE: Duration = Duration::from_secs(1);

/// The key of a probe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeKey {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The name of the container.
    pub container: String,
    /// The type of the probe.
    pub probe_type: ProbeType,
}

/// A paused probe as a person sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PausedProbe {
    /// The name of the container with the paused probe.
    pub container: String,
    /// The type of the paused probe.
    pub probe_type: ProbeType,
    /// The time at which the probe runs again, by the wall clock.
    pub until: Time,
}

/// A pause of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    until: Moment,
    made: Time,
    length: Duration,
}

#[derive(Default)]
struct State {
    pauses: BTreeMap<ProbeKey, Pause>,
    /// True if the pauses in memory have changed since the file was written.
    dirty: bool,
}

/// The pauses of all pods.
#[derive(Default)]
pub struct Pauses {
    state: Mutex<State>,
    /// True if there may be pauses.
    any: AtomicBool,
    file: OnceLock<PathBuf>,
    /// The lock that is held while the file is written, so that an older copy never replaces a newer one.
    writing: Mutex<()>,
}

impl Pauses {
    /// Takes over the pauses of an earlier daemon from `file`, and writes all later copies to this file. Called once.
    pub fn open(&self, file: PathBuf) {
        let now = Moment::now();
        let restored = read(&file, now, Time::now());
        for (key, pause) in &restored {
            let left = go_duration(Duration::from_secs(pause.until.since(now).as_secs()));
            log::info!(
                "the {} probe of container {} in pod {} is paused for another {left}",
                key.probe_type,
                key.container,
                key.uid
            );
        }
        let _ = self.file.set(file);
        self.change(|state| state.pauses.extend(restored));
    }

    /// Pauses probes from `now` on. A second pause of the same probe replaces the first.
    pub fn pause(&self, keys: impl IntoIterator<Item = ProbeKey>, length: Duration, now: Moment) {
        let length = length.clamp(MIN_PAUSE, MAX_PAUSE);
        let pause = Pause {
            until: now + length,
            made: Time::now(),
            length,
        };
        self.change(|state| {
            state
                .pauses
                .extend(keys.into_iter().map(|key| (key, pause)));
            state.dirty = true;
        });
    }

    /// Ends pauses. Returns the keys of the pauses that were not over yet.
    pub fn resume(&self, keys: &[ProbeKey], now: Moment) -> Vec<ProbeKey> {
        self.change(|state| {
            let ended: Vec<_> = keys
                .iter()
                .filter(|key| state.pauses.remove(key).is_some_and(|p| p.until > now))
                .cloned()
                .collect();
            state.dirty |= !ended.is_empty();
            ended
        })
    }

    /// True if there may be pauses. If false, no probe is paused, so a worker need not take the lock or make a key.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Tells whether a pause keeps the probe from running now.
    pub fn covers(
        &self,
        uid: &PodUid,
        container: &str,
        probe_type: ProbeType,
        now: Moment,
    ) -> bool {
        let state = self.state();
        let key = ProbeKey {
            uid: uid.clone(),
            container: container.into(),
            probe_type,
        };
        state.pauses.get(&key).is_some_and(|p| p.until > now)
    }

    /// Returns the paused probes of a pod.
    pub fn of(&self, uid: &PodUid, now: Moment) -> Vec<PausedProbe> {
        let state = self.state();
        let mine = state
            .pauses
            .iter()
            .filter(|(key, p)| key.uid == *uid && p.until > now);
        let until = |p: &Pause| Time::from(SystemTime::now() + p.until.since(now));
        mine.map(|(key, p)| PausedProbe {
            container: key.container.clone(),
            probe_type: key.probe_type,
            until: until(p),
        })
        .collect()
    }

    /// Drops the pauses that are over, or whose pod is not in `alive`. Returns the pods of the dropped pauses.
    pub fn tidy(&self, alive: &HashSet<PodUid>, now: Moment) -> BTreeSet<PodUid> {
        self.change(|state| {
            let mut gone = BTreeSet::new();
            state.pauses.retain(|key, p| {
                let stays = p.until > now && alive.contains(&key.uid);
                if !stays {
                    gone.insert(key.uid.clone());
                }
                stays
            });
            state.dirty |= !gone.is_empty();
            gone
        })
    }

    /// Writes the file if the pauses in memory have changed since the last write.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. The pauses then stay in memory, and the next call tries again.
    pub fn save(&self) -> io::Result<()> {
        let _writing = self.writing.locked();
        let (Some(file), Some(content)) = (self.file.get(), self.copy_if_dirty()) else {
            return Ok(());
        };
        let written = record_file::to_bytes(&content);
        let written = written.and_then(|b| atomic_file::replace(file, &b));
        written.inspect_err(|_| self.state().dirty = true)
    }

    fn copy_if_dirty(&self) -> Option<Content> {
        let mut state = self.state();
        let record = |(key, p): (&ProbeKey, &Pause)| Record {
            key: key.clone(),
            until: p.until,
            made: p.made,
            seconds: p.length.as_secs(),
        };
        std::mem::take(&mut state.dirty).then(|| Content {
            boot_id: boot_id(),
            pauses: state.pauses.iter().map(record).collect(),
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let value = change(&mut state);
        self.any.store(!state.pauses.is_empty(), Ordering::Release);
        value
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

/// The content of the file. Without its boot id, the wall clock says what is left of a pause.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    #[serde(default)]
    boot_id: String,
    pauses: Vec<Record>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    #[serde(flatten)]
    key: ProbeKey,
    until: Moment,
    made: Time,
    seconds: u64,
}

impl Record {
    /// Returns the pause with the time that is left at `now`, or `None` if the pause is over. In another boot `until`
    /// has no meaning. If the wall clock is earlier than the pause, as on a board without a battery, the passed time is
    /// unknown and counts as zero.
    fn restore(self, same_boot: bool, now: Moment, wall: Time) -> Option<(ProbeKey, Pause)> {
        let length = Duration::from_secs(self.seconds).min(MAX_PAUSE);
        let passed = Duration::from_secs(
            wall.unix_seconds()
                .saturating_sub(self.made.unix_seconds())
                .max(0) as u64,
        );
        let left = if same_boot {
            self.until.since(now).min(length)
        } else {
            length.saturating_sub(passed)
        };
        (!left.is_zero()).then(|| {
            (
                self.key,
                Pause {
                    until: now + left,
                    made: self.made,
                    length,
                },
            )
        })
    }
}

fn read(file: &Path, now: Moment, wall: Time) -> Vec<(ProbeKey, Pause)> {
    let place = file.parent().zip(file.file_name().and_then(|n| n.to_str()));
    let content = place.and_then(|(dir, name)| record_file::read::<Content>(dir, name));
    let Some(content) = content else {
        return Vec::new();
    };
    let same_boot = content.boot_id == boot_id();
    let pauses = content.pauses.into_iter();
    pauses
        .filter_map(|r| r.restore(same_boot, now, wall))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_boot(Duration::from_secs(1000));
    const MINUTE: Duration = Duration::from_secs(60);

    fn key(uid: &str) -> ProbeKey {
        ProbeKey {
            uid: uid.into(),
            container: "c".into(),
            probe_type: ProbeType::Liveness,
        }
    }

    fn covers(p: &Pauses, uid: &str, now: Moment) -> bool {
        p.covers(&uid.into(), "c", ProbeType::Liveness, now)
    }

    #[test]
    fn a_pause_covers_its_probe_until_it_is_over() {
        let p = Pauses::default();
        p.pause([key("u")], MINUTE, NOW);
        assert!(covers(&p, "u", NOW) && covers(&p, "u", NOW + MINUTE - Duration::from_nanos(1)));
        assert!(!covers(&p, "u", NOW + MINUTE) && !covers(&p, "v", NOW));
        assert!(
            !p.covers(&"u".into(), "c", ProbeType::Readiness, NOW)
                && !p.covers(&"u".into(), "d", ProbeType::Liveness, NOW)
        );
        assert_eq!(
            (
                p.of(&"u".into(), NOW).len(),
                p.of(&"u".into(), NOW + MINUTE).len(),
                p.of(&"v".into(), NOW).len()
            ),
            (1, 0, 0)
        );
        assert_eq!(p.resume(&[key("u"), key("v")], NOW), [key("u")]);
        assert!(!covers(&p, "u", NOW));
        assert_eq!(p.resume(&[key("u")], NOW), []);
    }

    #[test]
    fn lengths_are_bounded() {
        let p = Pauses::default();
        p.pause([key("u")], Duration::MAX, NOW);
        assert!(covers(&p, "u", NOW + MAX_PAUSE - MINUTE) && !covers(&p, "u", NOW + MAX_PAUSE));
    }

    #[test]
    fn what_is_over_or_of_no_pod_goes() {
        let p = Pauses::default();
        p.pause([key("u"), key("v")], MINUTE, NOW);
        let both = HashSet::from(["u".into(), "v".into()]);
        let tidied = |alive: &HashSet<PodUid>, now| Vec::from_iter(p.tidy(alive, now));
        let only_v = HashSet::from(["v".into()]);
        assert_eq!(tidied(&both, NOW), []);
        assert_eq!(tidied(&only_v, NOW), ["u".into()]);
        assert!(!covers(&p, "u", NOW) && covers(&p, "v", NOW));
        assert_eq!(tidied(&both, NOW + MINUTE), ["v".into()]);
        assert!(p.state().pauses.is_empty());
    }

    #[test]
    fn the_file_carries_pauses_to_the_next_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pauses.json");
        let p = Pauses::default();
        p.open(file.clone());
        p.save().unwrap();
        assert!(!file.exists(), "nothing to say");
        p.pause([key("u"), key("v")], MINUTE, Moment::now());
        p.save().unwrap();
        let next = Pauses::default();
        next.open(file.clone());
        assert!(covers(&next, "u", Moment::now()) && !covers(&next, "u", Moment::now() + MINUTE));
        next.resume(&[key("u")], Moment::now());
        next.tidy(&HashSet::from(["u".into()]), Moment::now());
        next.save().unwrap();
        let last = Pauses::default();
        last.open(file.clone());
        assert!(!covers(&last, "u", Moment::now()) && !covers(&last, "v", Moment::now()));
        for damaged in ["", "{", "{\"bootId\": \"\"}"] {
            std::fs::write(&file, damaged).unwrap();
            let next = Pauses::default();
            next.open(file.clone());
            assert!(next.state().pauses.is_empty());
            let aside = dir.path().join("pauses.json.corrupt");
            assert_eq!(std::fs::read_to_string(aside).unwrap(), damaged);
        }
    }

    #[test]
    fn a_disk_that_takes_nothing_is_tried_again() {
        let p = Pauses::default();
        p.open("/proc/nowhere/pauses.json".into());
        p.pause([key("u")], MINUTE, Moment::now());
        assert!(p.save().is_err() && p.save().is_err());
        assert!(covers(&p, "u", Moment::now()));
    }

    /// Checks what is left of a pause of an hour that was made at 10000 s on the wall clock and ends at 5000 s of its
    /// boot.
    #[track_caller]
    fn check_restored(same_boot: bool, boot_seconds: u64, wall_seconds: u64, left: Option<u64>) {
        let at = |s| Time::from(SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        let until = Moment::from_boot(Duration::from_secs(5000));
        let record = Record {
            key: key("u"),
            until,
            made: at(10_000),
            seconds: 3600,
        };
        let now = Moment::from_boot(Duration::from_secs(boot_seconds));
        let got = record
            .restore(same_boot, now, at(wall_seconds))
            .map(|(_, p)| p.until.since(now).as_secs());
        assert_eq!(got, left);
    }

    #[test]
    fn the_boot_clock_counts_within_a_boot_and_the_wall_clock_across() {
        check_restored(true, 4000, 99_999, Some(1000));
        check_restored(true, 5000, 10_000, None);
        check_restored(true, 0, 10_000, Some(3600));
        check_restored(false, 10, 10_600, Some(3000));
        check_restored(false, 10, 13_600, None);
        check_restored(false, 10, 99_999, None);
        check_restored(false, 10, 0, Some(3600));
    }
}
