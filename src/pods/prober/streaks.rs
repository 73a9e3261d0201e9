//! Equal results in a row that have not changed anything yet, each in a record beside those of its container, for a daemon
//! that follows one that was killed (deviations: `streaks-go-on`).
//!
//! Invariants: a record says what the last run has made of the count. Without a count there is no record, so a probe that
//! stays as it is writes nothing. The record goes with the container.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::results::ProbeResult;
use super::worker::{OLDER_MARGIN, Streak};
use crate::api::ProbeType;
use crate::base::aside::remove_any;
use crate::base::boot_record;
use crate::base::clock::Moment;
use crate::base::paths::Layout;
use crate::engine::runtime::ContainerId;

/// The place of the records.
#[derive(Default)]
pub struct Streaks {
    /// The directory that has a directory for each container; `None` where nothing is kept.
    containers: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    /// True if the results are failures.
    failed: bool,
    /// The number of results.
    run: u32,
    /// The time of the last result.
    at: Moment,
}

impl Streaks {
    /// Returns the place of the records of this layout.
    pub fn new(layout: &Layout) -> Self {
        Self {
            containers: Some(layout.containers()),
        }
    }

    /// Returns the count that an earlier daemon has left for this probe, and the time of the last result. A count whose last
    /// result is older than two periods, and the time that a daemon takes to start, is not one in a row.
    pub(super) fn left(
        &self,
        id: &ContainerId,
        probe_type: ProbeType,
        period: Duration,
        now: Moment,
    ) -> Option<(Streak, Moment)> {
        let dir = self.containers.as_ref()?.join(id.as_str());
        let record: Record = boot_record::read(&dir, &name(probe_type))?;
        let is_recent = now.since(record.at) <= period * 2 + OLDER_MARGIN;
        let result = match record.failed {
            true => ProbeResult::Failure,
            false => ProbeResult::Success,
        };
        let run = record.run;
        is_recent.then_some((Streak { result, run }, record.at))
    }

    /// Writes the count of a probe, or removes the record if there is none. A container whose directory is gone needs no
    /// record. A count that cannot be written begins anew under the next daemon.
    pub(super) fn note(&self, id: &ContainerId, probe_type: ProbeType, streak: Option<Streak>) {
        let Some(containers) = &self.containers else {
            return;
        };
        let (dir, name) = (containers.join(id.as_str()), name(probe_type));
        let Some(Streak { result, run }) = streak else {
            let _ = remove_any(&dir.join(name));
            return;
        };
        let record = Record {
            failed: result == ProbeResult::Failure,
            run,
            at: Moment::now(),
        };
        if let Err(e) = boot_record::write(&dir, &name, &record) {
            log::debug!("cannot write the results in a row of container {id}: {e}");
        }
    }
}

fn name(probe_type: ProbeType) -> String {
    format!("probe-{}.json", probe_type.word())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    fn streak(result: ProbeResult, run: u32) -> Streak {
        Streak { result, run }
    }

    #[test]
    fn a_count_is_found_again_until_it_is_over_or_old() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let id = ContainerId::from("c");
        let left = |probe_type, later| {
            let now = Moment::now() + Duration::from_secs(later);
            let left = Streaks::new(&layout).left(&id, probe_type, PERIOD, now);
            assert!(left.is_none_or(|(_, at)| at <= Moment::now()));
            left.map(|(streak, _)| streak)
        };
        let streaks = Streaks::new(&layout);
        let three = Some(streak(ProbeResult::Failure, 3));
        // The container is gone.
        streaks.note(&id, ProbeType::Liveness, three);
        assert_eq!(left(ProbeType::Liveness, 0), None);
        fs::create_dir_all(layout.containers().join("c")).unwrap();
        streaks.note(&id, ProbeType::Liveness, three);
        let two = Some(streak(ProbeResult::Success, 2));
        streaks.note(&id, ProbeType::Readiness, two);
        assert_eq!(left(ProbeType::Liveness, 0), three);
        assert_eq!(left(ProbeType::Readiness, 0), two);
        assert_eq!(left(ProbeType::Startup, 0), None);
        assert_eq!(left(ProbeType::Liveness, 29), three);
        assert_eq!(left(ProbeType::Liveness, 31), None);
        streaks.note(&id, ProbeType::Liveness, None);
        assert_eq!(left(ProbeType::Liveness, 0), None);
    }
}
