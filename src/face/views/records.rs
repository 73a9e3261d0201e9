//! The records of all probe runs for people: history, metrics and lateness.

use std::sync::Arc;
use std::time::Duration;

use super::lateness::Lateness;
use super::probe_metrics::{ProbeMetrics, Recorded};
use crate::api::{PodRef, ProbeType};
use crate::base::clock::Time;
use crate::pods::history::{History, Runs};
use crate::pods::prober::context::{ProbeRecord, ProbeRecords};
use crate::pods::prober::outcome::Outcome;
use crate::pods::prober::worker::Verdict;

/// The records of all probe runs for people.
#[derive(Default)]
pub struct Records {
    /// The last runs of each probe, and the causes of restarts.
    pub history: History,
    /// The numbers of results and durations of each worker's probes.
    pub metrics: ProbeMetrics,
    /// The lateness of all probes together.
    pub lateness: Arc<Lateness>,
}

impl Records {
    /// Appends all metric families in the text format.
    pub fn write_metrics(&self, out: &mut String) {
        self.metrics.write(out);
        self.lateness.write(out);
    }
}

impl ProbeRecords for Records {
    fn open(&self, pod: &PodRef, container: &str, probe_type: ProbeType) -> Box<dyn ProbeRecord> {
        Box::new(OfOneProbe {
            runs: self.history.runs(&pod.uid, container, probe_type),
            recorded: self.metrics.add(pod, container, probe_type),
            lateness: self.lateness.clone(),
        })
    }
}

struct OfOneProbe {
    runs: Runs,
    recorded: Recorded,
    lateness: Arc<Lateness>,
}

impl ProbeRecord for OfOneProbe {
    fn begun(&self, late: Duration) {
        self.lateness.observe(late);
    }

    fn ran(&self, verdict: Verdict, outcome: &Outcome) {
        self.recorded.record(verdict, outcome.all_tries);
        self.runs.record(outcome, Time::now());
    }

    fn close(&self) {
        self.recorded.remove();
    }
}
