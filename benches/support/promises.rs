//! What must hold at any moment of a soak: that a status says what its probes have found, that a failed container ends,
//! that every probe goes on.
//!
//! The rules are those of the worker (thresholds, a new instance starts anew), told again in terms of the history that
//! the daemon shows, which has whole seconds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use podprobe::api::{ContainerStatus, ProbeType};
use podprobe::face::views::{PodView, Snapshot};
use podprobe::pods::history::{PodHistory, Run, RunOutcome};
use serde_json::Value;

use super::node::Node;

/// A status may be so many seconds behind the probe that decided it.
const LAG: i64 = 5;
/// And the end of a container behind the probe that failed: the grace period, and more than one to end in the pod.
const KILL_LAG: i64 = 15;

/// What the daemon shows at one moment.
pub(crate) struct Moment {
    pub(crate) at: i64,
    pub(crate) snapshot: Arc<Snapshot>,
    /// By the pod's UID.
    histories: HashMap<String, PodHistory>,
    pub(crate) metrics: String,
    /// Runs of each probe, by pod, container and type.
    pub(crate) runs: BTreeMap<(String, String, String), u64>,
}

impl Moment {
    pub(crate) fn now(node: &Node) -> Self {
        let metrics = node.client().metrics().unwrap();
        let snapshot = node.snapshot();
        let at = (super::unix_ns() / 1_000_000_000) as i64;
        let history = |p: &Arc<PodView>| {
            let uid = uid(p);
            let history = node.client().history(uid.as_str().into());
            (uid, history.unwrap())
        };
        Self {
            at,
            histories: snapshot.pods.iter().map(history).collect(),
            runs: runs(&metrics),
            snapshot,
            metrics,
        }
    }

    fn containers(&self) -> impl Iterator<Item = (&Arc<PodView>, &ContainerStatus)> {
        self.snapshot
            .pods
            .iter()
            .flat_map(|p| p.status.container_statuses.iter().map(move |c| (p, c)))
    }

    /// Sum of a status over all containers.
    pub(crate) fn count(&self, of: impl Fn(&ContainerStatus) -> u64) -> u64 {
        self.containers().map(|(_, c)| of(c)).sum()
    }

    /// The value of a metric without labels.
    pub(crate) fn gauge(&self, name: &str) -> f64 {
        let of = |l: &str| {
            l.strip_prefix(name)
                .and_then(|v| v.strip_prefix(' ')?.parse().ok())
        };
        self.metrics
            .lines()
            .find_map(of)
            .unwrap_or_else(|| panic!("no metric {name}"))
    }

    /// The sum of all series of a metric with that label.
    pub(crate) fn sum(&self, name: &str, label: &str) -> u64 {
        series(&self.metrics)
            .filter(|(n, labels, _)| *n == name && labels.contains(label))
            .map(|(_, _, v)| v)
            .sum()
    }

    /// What errored probes said, container ids left out.
    pub(crate) fn errors(&self) -> BTreeSet<String> {
        let runs = self
            .histories
            .values()
            .flat_map(|h| &h.probes)
            .flat_map(|p| &p.runs);
        let errored = runs.filter(|r| r.outcome == RunOutcome::Errored);
        let is_id = |word: &str| {
            word.len() > 30
                && word
                    .trim_end_matches(':')
                    .chars()
                    .all(|c| c.is_ascii_hexdigit())
        };
        let text = |r: &Run| {
            r.output
                .split(' ')
                .map(|w| if is_id(w) { "…" } else { w })
                .collect::<Vec<_>>()
                .join(" ")
        };
        errored.map(text).collect()
    }

    /// Statuses that do not say what the probes have found, and containers that failed and go on.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.containers()
            .flat_map(|(pod, c)| self.broken_of(pod, c))
            .collect()
    }

    fn broken_of(&self, pod: &PodView, c: &ContainerStatus) -> Vec<String> {
        let Some(since) = c
            .state
            .running
            .as_ref()
            .and_then(|r| r.started_at)
            .map(|t| t.unix_seconds())
        else {
            let lie = c
                .ready
                .then(|| format!("{}: ready and not running", label(pod, c)));
            return lie.into_iter().collect();
        };
        let of = |t| self.verdict(pod, c, t, since);
        let mut broken = Vec::new();
        let mut say = |what: &str, found: Option<Found>| {
            broken.push(format!("{}: {what}, its probe {found:?}", label(pod, c)))
        };
        match of(ProbeType::Readiness) {
            Some(f) if f.success != c.ready && f.since + LAG < self.at => {
                say(if c.ready { "ready" } else { "not ready" }, Some(f))
            }
            None if c.ready
                && self
                    .runs_of(pod, c, ProbeType::Readiness, since - 1)
                    .is_empty()
                && since + LAG < self.at =>
            {
                say("ready", None);
            }
            _ => {}
        }
        match of(ProbeType::Startup) {
            Some(f) if f.success && c.started != Some(true) && f.since + LAG < self.at => {
                say("not started", Some(f))
            }
            Some(f) if !f.success && f.since + KILL_LAG < self.at => say("still running", Some(f)),
            _ => {}
        }
        match of(ProbeType::Liveness) {
            Some(f) if !f.success && f.since + KILL_LAG < self.at => say("still running", Some(f)),
            _ => {}
        }
        broken
    }

    /// What the runs of this instance make of it; None when they do not suffice.
    fn verdict(
        &self,
        pod: &PodView,
        c: &ContainerStatus,
        t: ProbeType,
        since: i64,
    ) -> Option<Found> {
        let key = format!("{}Probe", t.as_str().to_lowercase());
        let spec = pod.object["spec"]["containers"]
            .as_array()?
            .iter()
            .find(|s| s["name"] == c.name.as_str())?;
        let threshold = |name: &str, default| {
            spec[&key]
                .get(name)
                .and_then(Value::as_u64)
                .unwrap_or(default)
        };
        let (success, failure) = (
            threshold("successThreshold", 1),
            threshold("failureThreshold", 3),
        );
        let (mut run, mut last, mut found) = (0, None, None::<Found>);
        // Of the second in which it started some may be of the instance before.
        for r in self
            .runs_of(pod, c, t, since)
            .into_iter()
            .filter(|r| r.outcome != RunOutcome::Errored)
        {
            let good = r.outcome != RunOutcome::Failure;
            run = if last == Some(good) { run + 1 } else { 1 };
            last = Some(good);
            if run >= if good { success } else { failure }
                && found.is_none_or(|f| f.success != good)
            {
                found = Some(Found {
                    success: good,
                    since: r.time.unix_seconds() + 1,
                });
            }
        }
        found
    }

    /// The runs after that second.
    fn runs_of(&self, pod: &PodView, c: &ContainerStatus, t: ProbeType, after: i64) -> Vec<&Run> {
        let probes = self
            .histories
            .get(&uid(pod))
            .map(|h| h.probes.as_slice())
            .unwrap_or_default();
        let own = probes
            .iter()
            .find(|p| p.container == c.name && p.probe_type == t);
        own.into_iter()
            .flat_map(|p| &p.runs)
            .filter(|r| r.time.unix_seconds() > after)
            .collect()
    }

    /// A container whose liveness has just failed waits for its end without being probed.
    fn is_on_hold(&self, pod: &PodView, c: &ContainerStatus) -> bool {
        let runs = self.runs_of(pod, c, ProbeType::Liveness, self.at - KILL_LAG);
        runs.last()
            .is_some_and(|r| r.outcome == RunOutcome::Failure)
    }

    /// Readiness and liveness probes that have run fewer than `least` times since, though their container has been
    /// started all the time.
    pub(crate) fn stuck(&self, before: &Self, least: u64) -> Vec<String> {
        let started = |c: &ContainerStatus| c.started == Some(true) && c.state.running.is_some();
        let same = |(pod, c): &(&Arc<PodView>, &ContainerStatus)| {
            started(c)
                && before.containers().any(|(p, b)| {
                    uid(p) == uid(pod) && b.container_id == c.container_id && started(b)
                })
        };
        let mut stuck = Vec::new();
        for (pod, c) in self.containers().filter(same) {
            for t in ["Readiness", "Liveness"] {
                let key = (name(pod).to_owned(), c.name.clone(), t.to_owned());
                let of = |m: &Self| m.runs.get(&key).copied().unwrap_or(0);
                let more = of(self) - of(before);
                if more < least && !(t == "Liveness" && self.is_on_hold(pod, c)) {
                    stuck.push(format!(
                        "{} {t}: {more} runs in {} s",
                        label(pod, c),
                        self.at - before.at
                    ));
                }
            }
        }
        stuck
    }
}

/// What a probe has found, and since when.
#[derive(Clone, Copy, Debug)]
struct Found {
    success: bool,
    since: i64,
}

fn uid(p: &PodView) -> String {
    p.object["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn name(p: &PodView) -> &str {
    p.object["metadata"]["name"].as_str().unwrap_or_default()
}

fn label(p: &PodView, c: &ContainerStatus) -> String {
    format!("{}/{}", name(p), c.name)
}

/// Name, labels and value of each sample that is a whole number.
fn series(metrics: &str) -> impl Iterator<Item = (&str, &str, u64)> {
    metrics.lines().filter_map(|l| {
        let (name, rest) = l.split_once('{')?;
        let (labels, value) = rest.rsplit_once("} ")?;
        Some((name, labels, value.parse().ok()?))
    })
}

fn runs(metrics: &str) -> BTreeMap<(String, String, String), u64> {
    let mut runs = BTreeMap::new();
    for (name, labels, value) in series(metrics) {
        if ["prober_probe_total", "podprobe_prober_probe_errors_total"].contains(&name) {
            let of = |key: &str| {
                labels
                    .split(',')
                    .find_map(|l| l.strip_prefix(key)?.strip_prefix("=\"")?.strip_suffix('"'))
                    .unwrap_or_default()
            };
            *runs
                .entry((
                    of("pod").into(),
                    of("container").into(),
                    of("probe_type").into(),
                ))
                .or_default() += value;
        }
    }
    runs
}
