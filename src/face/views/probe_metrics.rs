//! The metrics of probes (kubelet-probes 2.7). Under names of podprobe's own there are metrics that the kubelet does
//! not have: durations of failures, and runs that errored.
//!
//! Invariant: the series of a probe are removed with its worker, as in the kubelet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::api::{PodRef, ProbeType};
use crate::base::locks::Locked;
use crate::base::metrics::{Family, Histogram, Kind, pairs};
use crate::pods::prober::worker::Verdict;

/// The labels of a probe's series as text, made once. Series are written in the order of their labels.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Series {
    /// The labels of the container: `container="…",namespace="…",pod="…"`.
    place: String,
    probe_type: ProbeType,
    /// The label of the pod's UID: `,pod_uid="…"`.
    uid: String,
}

#[derive(Clone, Default)]
struct Numbers {
    successful: u64,
    failed: u64,
    errored: u64,
    successes: Histogram,
    failures: Histogram,
}

/// The place where a worker counts its runs. Each place has a lock of its own, so that no worker searches among a
/// thousand probes.
pub struct Recorded {
    series: Arc<Series>,
    numbers: Arc<Mutex<Numbers>>,
    all: AllSeries,
}

type AllSeries = Arc<Mutex<BTreeMap<Arc<Series>, Arc<Mutex<Numbers>>>>>;

impl Recorded {
    /// Removes the series of a worker that has ended.
    pub fn remove(&self) {
        lock(&self.all).remove(&self.series);
    }

    /// Counts a run of the probe. `duration` includes the retries of the run.
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
    mutex.locked()
}

/// The counts of all probes.
#[derive(Default)]
pub struct ProbeMetrics {
    series: AllSeries,
}

impl ProbeMetrics {
    /// Returns the place where a worker counts its runs from now on.
    pub fn add(&self, pod: &PodRef, container: &str, probe_type: ProbeType) -> Recorded {
        let series = Arc::new(Series::new(pod, container, probe_type));
        let numbers = self.lock().entry(series.clone()).or_default().clone();
        Recorded {
            series,
            numbers,
            all: self.series.clone(),
        }
    }

    /// Appends all metric families in the text format.
    pub fn write(&self, out: &mut String) {
        let all = self.copied();
        kubelet_s(out, &all);
        ours(out, &all);
    }

    /// Appends only the metric families that the kubelet has too.
    pub fn write_kubelet_s(&self, out: &mut String) {
        kubelet_s(out, &self.copied());
    }

    fn copied(&self) -> Vec<(Arc<Series>, Numbers)> {
        // Only the list is copied under its lock, so that no worker waits while the text is written.
        let all: Vec<_> = self
            .lock()
            .iter()
            .map(|(series, n)| (series.clone(), n.clone()))
            .collect();
        let each = all.into_iter();
        each.map(|(series, n)| (series, lock(&n).clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<Series>, Arc<Mutex<Numbers>>>> {
        lock(&self.series)
    }
}

fn kubelet_s(out: &mut String, all: &[(Arc<Series>, Numbers)]) {
    let help =
        "Cumulative number of a liveness, readiness or startup probe for a container by result.";
    let mut family = Family::new(out, "prober_probe_total", Kind::Counter, help);
    for (series, numbers) in all {
        // client_golang has a series only from its first increment on.
        for (result, n) in [
            (",result=\"failed\"", numbers.failed),
            (",result=\"successful\"", numbers.successful),
        ] {
            if n > 0 {
                let pairs = [
                    series.place.as_str(),
                    &series.uid,
                    series.probe_pair(),
                    result,
                ];
                family.value_of(&pairs, n);
            }
        }
    }
    let name = "prober_probe_duration_seconds";
    let help = "Duration in seconds for a probe response.";
    durations(Family::new(out, name, Kind::Histogram, help), all, |n| {
        &n.successes
    });
}

fn ours(out: &mut String, all: &[(Arc<Series>, Numbers)]) {
    let help = "Cumulative number of probes that did not work themselves and so said nothing of the container.";
    let mut family = Family::new(
        out,
        "podprobe_prober_probe_errors_total",
        Kind::Counter,
        help,
    );
    for (series, numbers) in all.iter().filter(|(_, n)| n.errored > 0) {
        let pairs = [series.place.as_str(), &series.uid, series.probe_pair()];
        family.value_of(&pairs, numbers.errored);
    }
    let name = "podprobe_prober_probe_failure_duration_seconds";
    let help = "Duration in seconds of probes that failed, which prober_probe_duration_seconds leaves out.";
    durations(Family::new(out, name, Kind::Histogram, help), all, |n| {
        &n.failures
    });
}

/// Writes durations without the UID, as 2.7 describes. Two pods of the same name, one after the other, share a series
/// for a moment. The series of the two pods are neighbours in `all`.
fn durations(
    mut family: Family<'_>,
    all: &[(Arc<Series>, Numbers)],
    of: impl Fn(&Numbers) -> &Histogram,
) {
    let same = |a: &Series, b: &Series| a.place == b.place && a.probe_type == b.probe_type;
    for namesakes in all.chunk_by(|(a, _), (b, _)| same(a, b)) {
        let (series, numbers) = &namesakes[0];
        let pairs = [series.place.as_str(), series.probe_pair()];
        match namesakes {
            [_] if of(numbers).is_empty() => {}
            [_] => family.histogram_of(&pairs, of(numbers)),
            several => {
                let mut sum = Histogram::default();
                several.iter().for_each(|(_, n)| sum.merge(of(n)));
                if !sum.is_empty() {
                    family.histogram_of(&pairs, &sum);
                }
            }
        }
    }
}

impl Series {
    fn new(pod: &PodRef, container: &str, probe_type: ProbeType) -> Self {
        let place = [
            ("container", container),
            ("namespace", &pod.namespace),
            ("pod", &pod.name),
        ];
        Self {
            place: pairs(&place),
            probe_type,
            uid: format!(",{}", pairs(&[("pod_uid", pod.uid.as_str())])),
        }
    }

    fn probe_pair(&self) -> &'static str {
        match self.probe_type {
            ProbeType::Startup => ",probe_type=\"Startup\"",
            ProbeType::Readiness => ",probe_type=\"Readiness\"",
            ProbeType::Liveness => ",probe_type=\"Liveness\"",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(m: &ProbeMetrics, uid: &str, probe_type: ProbeType) -> Recorded {
        let pod = PodRef {
            namespace: "ns".into(),
            name: "web".into(),
            uid: uid.into(),
        };
        m.add(&pod, "c", probe_type)
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
        let recorded = add(&m, "u", ProbeType::Liveness);
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
    fn the_types_of_a_probe_have_the_names_that_the_api_gives_them() {
        for probe_type in ProbeType::ALL {
            let m = ProbeMetrics::default();
            let recorded = add(&m, "u\"1", probe_type);
            recorded.record(Verdict::Error, Duration::ZERO);
            let labels = r#"container="c",namespace="ns",pod="web",pod_uid="u\"1",probe_type="#;
            let name = "podprobe_prober_probe_errors_total";
            check(&m, &format!("{name}{{{labels}\"{probe_type}\"}} 1"), true);
        }
    }

    #[test]
    fn f2_series_name_their_pod_and_go_with_their_worker() {
        let m = ProbeMetrics::default();
        let [u, v] = ["u", "v"].map(|uid| add(&m, uid, ProbeType::Readiness));
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
