//! The metrics of probes (kubelet-probes 2.7), and what the kubelet leaves out under names of our own: durations of
//! failures, and runs that errored.
//!
//! Invariant: the series of a probe go with its worker, as the kubelet deletes them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::{PodRef, ProbeType};
use crate::metrics::{Family, Histogram, Kind};
use crate::prober::worker::Verdict;

/// Of which probe a series is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    /// The pod.
    pub pod: PodRef,
    /// Its container.
    pub container: String,
    /// Which of its probes.
    pub probe_type: ProbeType,
}

#[derive(Clone, Default)]
struct Numbers {
    successful: u64,
    failed: u64,
    errored: u64,
    successes: Histogram,
    failures: Histogram,
}

/// Where one worker counts: a lock of its own, and no search among a thousand.
pub struct Recorded {
    series: Arc<Series>,
    numbers: Arc<Mutex<Numbers>>,
    all: AllSeries,
}

type AllSeries = Arc<Mutex<BTreeMap<Arc<Series>, Arc<Mutex<Numbers>>>>>;

impl Recorded {
    /// The worker has ended, and its series go.
    pub fn remove(&self) {
        lock(&self.all).remove(&self.series);
    }

    /// A probe has run; `duration` includes its retries.
    pub fn record(&self, verdict: Verdict, duration: Duration) {
        let mut numbers = lock(&self.numbers);
        match verdict {
            Verdict::Success => {
                numbers.successful += 1;
                numbers.successes.observe(duration);
            }
            Verdict::Failure => {
                numbers.failed += 1;
                numbers.failures.observe(duration);
            }
            Verdict::Error => numbers.errored += 1,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The numbers of all probes.
#[derive(Default)]
pub struct ProbeMetrics {
    series: AllSeries,
}

impl ProbeMetrics {
    /// The numbers of a worker, which it counts in from now on.
    pub fn add(&self, series: Series) -> Recorded {
        let series = Arc::new(series);
        let numbers = self.lock().entry(series.clone()).or_default().clone();
        Recorded {
            series,
            numbers,
            all: self.series.clone(),
        }
    }

    /// Appends all families in the text format.
    pub fn write(&self, out: &mut String) {
        // Only the list is copied under the lock, so that no worker waits for the text to be written.
        let all: Vec<_> = self
            .lock()
            .iter()
            .map(|(series, n)| (series.clone(), n.clone()))
            .collect();
        let all: Vec<_> = all
            .into_iter()
            .map(|(series, n)| (series, lock(&n).clone()))
            .collect();
        counters(out, &all);
        let name = "prober_probe_duration_seconds";
        let help = "Duration in seconds for a probe response.";
        durations(Family::new(out, name, Kind::Histogram, help), &all, |n| {
            &n.successes
        });
        let name = "podprobe_prober_probe_failure_duration_seconds";
        let help = "Duration in seconds of probes that failed, which prober_probe_duration_seconds leaves out.";
        durations(Family::new(out, name, Kind::Histogram, help), &all, |n| {
            &n.failures
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<Series>, Arc<Mutex<Numbers>>>> {
        lock(&self.series)
    }
}

fn counters(out: &mut String, all: &[(Arc<Series>, Numbers)]) {
    let help =
        "Cumulative number of a liveness, readiness or startup probe for a container by result.";
    let mut family = Family::new(out, "prober_probe_total", Kind::Counter, help);
    for (series, numbers) in all {
        // client_golang has a series from its first increment on
        for (result, n) in [
            ("failed", numbers.failed),
            ("successful", numbers.successful),
        ]
        .into_iter()
        .filter(|(_, n)| *n > 0)
        {
            let labels = [
                series.labels().as_slice(),
                &[("result", result), ("pod_uid", series.pod.uid.as_str())],
            ]
            .concat();
            family.value(&labels, n);
        }
    }
    let help = "Cumulative number of probes that did not work themselves and so said nothing of the container.";
    let mut family = Family::new(
        out,
        "podprobe_prober_probe_errors_total",
        Kind::Counter,
        help,
    );
    for (series, numbers) in all.iter().filter(|(_, n)| n.errored > 0) {
        let labels = [
            series.labels().as_slice(),
            &[("pod_uid", series.pod.uid.as_str())],
        ]
        .concat();
        family.value(&labels, numbers.errored);
    }
}

/// Without the UID, as 2.7 has it: two pods that follow one another under a name share a series for a moment.
fn durations(
    mut family: Family<'_>,
    all: &[(Arc<Series>, Numbers)],
    of: impl Fn(&Numbers) -> &Histogram,
) {
    let mut merged: BTreeMap<[(&str, &str); 4], Histogram> = BTreeMap::new();
    for (series, numbers) in all.iter().filter(|(_, n)| !of(n).is_empty()) {
        merged
            .entry(series.labels())
            .or_default()
            .merge(of(numbers));
    }
    merged
        .iter()
        .for_each(|(labels, h)| family.histogram(labels, h));
}

impl Series {
    fn labels(&self) -> [(&str, &str); 4] {
        [
            ("container", &self.container),
            ("namespace", &self.pod.namespace),
            ("pod", &self.pod.name),
            ("probe_type", self.probe_type.as_str()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(uid: &str, probe_type: ProbeType) -> Series {
        Series {
            pod: PodRef {
                namespace: "ns".into(),
                name: "web".into(),
                uid: uid.into(),
            },
            container: "c".into(),
            probe_type,
        }
    }

    fn text(m: &ProbeMetrics) -> String {
        let mut out = String::new();
        m.write(&mut out);
        out
    }

    #[track_caller]
    fn check(m: &ProbeMetrics, line: &str, there: bool) {
        let text = text(m);
        assert_eq!(text.lines().any(|l| l == line), there, "{line}\n{text}");
    }

    #[test]
    fn results_durations_and_errors_have_series_of_their_own() {
        let m = ProbeMetrics::default();
        let recorded = m.add(series("u", ProbeType::Liveness));
        assert_eq!(text(&m), "", "nothing before the first run");
        let record = |verdict, ms| recorded.record(verdict, Duration::from_millis(ms));
        record(Verdict::Success, 20);
        record(Verdict::Success, 2);
        record(Verdict::Failure, 700);
        record(Verdict::Error, 9000);
        let of = r#"container="c",namespace="ns",pod="web""#;
        check(
            &m,
            &format!(
                r#"prober_probe_total{{{of},pod_uid="u",probe_type="Liveness",result="successful"}} 2"#
            ),
            true,
        );
        check(
            &m,
            &format!(
                r#"prober_probe_total{{{of},pod_uid="u",probe_type="Liveness",result="failed"}} 1"#
            ),
            true,
        );
        check(
            &m,
            &format!(
                r#"podprobe_prober_probe_errors_total{{{of},pod_uid="u",probe_type="Liveness"}} 1"#
            ),
            true,
        );
        let duration = |name: &str, le: &str| {
            format!(r#"{name}_bucket{{{of},probe_type="Liveness",le="{le}"}} "#)
        };
        check(
            &m,
            &(duration("prober_probe_duration_seconds", "0.01") + "1"),
            true,
        );
        check(
            &m,
            &(duration("prober_probe_duration_seconds", "+Inf") + "2"),
            true,
        );
        check(
            &m,
            &(duration("podprobe_prober_probe_failure_duration_seconds", "0.5") + "0"),
            true,
        );
        check(
            &m,
            &(duration("podprobe_prober_probe_failure_duration_seconds", "+Inf") + "1"),
            true,
        );
        assert!(text(&m).starts_with(
            "# HELP prober_probe_total Cumulative number of a liveness, readiness or startup probe"
        ));
    }

    #[test]
    fn f2_series_name_their_pod_and_go_with_their_worker() {
        let m = ProbeMetrics::default();
        let [u, v] = ["u", "v"].map(|uid| m.add(series(uid, ProbeType::Readiness)));
        [&u, &v]
            .into_iter()
            .for_each(|r| r.record(Verdict::Success, Duration::ZERO));
        let count = r#"prober_probe_duration_seconds_count{container="c",namespace="ns",pod="web",probe_type="Readiness"} "#;
        check(&m, &format!("{count}2"), true);
        u.remove();
        check(&m, &format!("{count}1"), true);
        assert!(!text(&m).contains("pod_uid=\"u\""));
        v.remove();
        assert_eq!(text(&m), "");
    }
}
