//! The form `get probes`: lists each probe of each container, with its action and its last result.
//!
//! Invariants: pure.

use serde_json::{Value, json};

use super::Get;
use super::item::{Found, Item};
use crate::api::Probe;
use crate::base::clock::{Time, go_duration};
use crate::base::json;
use crate::cli::describe::history::rounded;
use crate::cli::probe_names::{self, NamedProbe, ProbeSelector};
use crate::cli::probe_text::probe_text;
use crate::cli::terminal::one_line;
use crate::cli::{columns, human, names};
use crate::face::views::{PodView, Snapshot};
use crate::pods::history::{MAX_RUNS, PodHistory, Run, RunOutcome};

const NONE: &str = "<none>";

/// The requested pods, each with its probes, and an error for each name that was not found.
pub struct Asked<'a> {
    pods: Vec<(&'a PodView, Vec<NamedProbe>)>,
    missing: Vec<String>,
}

/// Selects the probes of all pods. If names are given, selects the probes for which each name
/// `POD[/CONTAINER[/TYPE]]` stands.
pub fn ask<'a>(get: &Get, snapshot: &'a Snapshot) -> Asked<'a> {
    let mut asked = Asked {
        pods: Vec::new(),
        missing: Vec::new(),
    };
    if get.names.is_empty() {
        let pods = names::in_namespace(snapshot, get.namespace.as_deref());
        let pods = pods.filter(|p| get.has_labels(&p.object));
        asked.pods = pods.map(|p| (p, probe_names::all(p))).collect();
    }
    for name in &get.names {
        let parsed = parse(name, get.namespace.clone());
        match parsed.and_then(|wanted| probe_names::select(snapshot, &wanted)) {
            Ok(found) => asked.pods.push(found),
            Err(why) => asked.missing.push(why),
        }
    }
    asked
}

fn parse(name: &str, namespace: Option<String>) -> Result<ProbeSelector, String> {
    let mut parts = name.splitn(3, '/');
    let pod: Vec<&str> = parts.by_ref().take(2).collect();
    let probe_type = parts.next().map(str::to_owned);
    probe_names::parse(&pod.join("/"), probe_type.as_ref(), namespace)
}

impl Asked<'_> {
    /// Returns the rows of the probes. `history` returns the history of a pod by its UID.
    ///
    /// # Errors
    /// Returns the error of `history`.
    pub fn found<E>(
        self,
        mut history: impl FnMut(&str) -> Result<PodHistory, E>,
        now: Time,
    ) -> Result<Found, E> {
        let mut found = Found {
            missing: self.missing,
            ..Found::default()
        };
        for (pod, probes) in self.pods.iter().filter(|(_, probes)| !probes.is_empty()) {
            let history = history(pod.uid())?;
            found
                .items
                .extend(probes.iter().map(|probe| item(pod, probe, &history, now)));
        }
        Ok(found)
    }
}

/// The definition of one probe, its kept runs, and the end of its pause.
struct Known<'a> {
    probe: Option<Probe>,
    runs: Vec<&'a Run>,
    paused: Option<Time>,
}

impl<'a> Known<'a> {
    fn new(pod: &PodView, (container, probe_type): &NamedProbe, history: &'a PodHistory) -> Self {
        let mut kept = history.probes.iter();
        let kept = kept.find(|p| p.container == *container && p.probe_type == *probe_type);
        let mut paused = pod.paused.iter();
        let paused = paused.find(|p| p.container == *container && p.probe_type == *probe_type);
        Self {
            probe: json::from_value(pod.probe(container, *probe_type)).ok(),
            runs: kept.into_iter().flat_map(|p| &p.runs).collect(),
            paused: paused.map(|p| p.until),
        }
    }

    fn last(&self) -> Option<&'a Run> {
        self.runs.last().copied()
    }

    /// Returns the latest runs that have the same outcome as the last run, newest first.
    fn streak(&self) -> impl Iterator<Item = &'a Run> + '_ {
        let last = self.last().map(|r| r.outcome);
        let same = move |r: &&&Run| Some(r.outcome) == last;
        self.runs.iter().rev().take_while(same).copied()
    }

    /// Returns the time since when the outcome has been the same. The flag is true if all kept runs have this
    /// outcome. In this case the real time may be earlier.
    fn since(&self) -> Option<(Time, bool)> {
        let first = self.streak().last()?;
        Some((first.time, self.streak().count() >= MAX_RUNS))
    }

    /// Returns the number of consecutive failures. A run that could not be judged does not count, as in a
    /// kubelet.
    fn failures(&self) -> usize {
        let judged = self
            .runs
            .iter()
            .rev()
            .filter(|r| r.outcome != RunOutcome::Errored);
        judged
            .take_while(|r| r.outcome == RunOutcome::Failure)
            .count()
    }

    fn threshold(&self) -> i32 {
        self.probe.as_ref().map_or(0, |p| p.failure_threshold)
    }

    /// Describes the action of the probe, without its periods and thresholds.
    fn does(&self) -> String {
        let text = self.probe.as_ref().map(probe_text).unwrap_or_default();
        let does = text.split(" delay=").next();
        one_line(does.unwrap_or_default())
    }
}

fn item(pod: &PodView, probe: &NamedProbe, history: &PodHistory, now: Time) -> Item {
    let known = Known::new(pod, probe, history);
    let (container, probe_type) = probe;
    Item {
        namespace: columns::namespace(pod).into(),
        name: format!("{}/{}", columns::name(pod), probe_names::spelled(probe)),
        cells: [
            columns::name(pod).to_owned(),
            container.clone(),
            probe_type.word().to_owned(),
        ]
        .into_iter()
        .chain(cells(&known, now))
        .collect(),
        object: object(pod, probe, &known),
        visible: String::new(),
    }
}

fn cells(known: &Known<'_>, now: Time) -> [String; 7] {
    let none = || NONE.to_owned();
    let last = known.last();
    [
        last.map_or_else(none, |r| r.outcome.as_str().into()),
        known.since().map_or_else(none, |(since, is_longer)| {
            let mark = if is_longer { ">" } else { "" };
            format!("{mark}{}", human::since(Some(since), now))
        }),
        last.map_or_else(none, |r| latency(r.micros)),
        format!("{}/{}", known.failures(), known.threshold()),
        known
            .paused
            .map_or_else(none, |until| human::since(Some(now), until)),
        known.does(),
        last.map_or_else(none, |r| one_line(r.output.trim())),
    ]
}

fn latency(micros: u64) -> String {
    go_duration(std::time::Duration::from_micros(rounded(micros)))
}

/// Returns a probe in the form of an API object, which `jsonpath` and `custom-columns` can read.
fn object(pod: &PodView, probe: &NamedProbe, known: &Known<'_>) -> Value {
    let (container, probe_type) = probe;
    let (name, namespace) = (columns::name(pod), columns::namespace(pod));
    let mut status = json!({"failures": known.failures(), "failureThreshold": known.threshold()});
    if let (Some(last), Some((since, _))) = (known.last(), known.since()) {
        status["result"] = last.outcome.as_str().into();
        status["since"] = json!(since);
        status["time"] = json!(last.time);
        status["latencyMicroseconds"] = last.micros.into();
        status["output"] = (*last.output).into();
    }
    if let Some(until) = known.paused {
        status["pausedUntil"] = json!(until);
    }
    let own = format!("{name}/{}", probe_names::spelled(probe));
    json!({"apiVersion": "podprobe/v1", "kind": "Probe", "metadata": {"name": own, "namespace": namespace},
        "spec": {"pod": name, "container": container, "type": probe_type.word(), "probe": pod.probe(container, *probe_type)},
        "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let http = json!({"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "failureThreshold": 3});
        let tcp = json!({"tcpSocket": {"port": 1}, "failureThreshold": 1});
        let containers = json!([{"name": "web", "readinessProbe": http, "livenessProbe": tcp}, {"name": "bare"}]);
        let paused =
            json!([{"container": "web", "probeType": "Liveness", "until": "2026-01-01T00:31:00Z"}]);
        serde_json::from_value(json!({"version": 1, "nodeName": "edge", "problems": [], "pods": [{
            "object": {"metadata": {"name": "app-edge", "namespace": "default", "uid": "u"}, "spec": {"containers": containers}},
            "status": {}, "file": "", "warnings": [], "terminating": false, "logDir": "", "events": [], "paused": paused}]}))
        .unwrap()
    }

    /// Makes a history of the readiness probe. The runs are 10 s apart, and the last run was 10 s ago.
    fn history(outcomes: &[&str]) -> PodHistory {
        let at = |before: usize| {
            let seconds = 650 - 10 * before;
            format!("2026-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60)
        };
        let run = |(n, outcome): (usize, &&str)| json!({"time": at(outcomes.len() - 1 - n), "micros": 1_234_567, "outcome": outcome, "output": " no\nway "});
        let runs: Vec<Value> = outcomes.iter().enumerate().map(run).collect();
        serde_json::from_value(json!({"probes": [{"container": "web", "probeType": "Readiness", "runs": runs}], "restarts": []})).unwrap()
    }

    fn now() -> Time {
        serde_json::from_value(json!("2026-01-01T00:11:00Z")).unwrap()
    }

    fn found(names: &[&str], outcomes: &[&str]) -> Found {
        let get = Get {
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            ..Get::default()
        };
        let history = history(outcomes);
        let found = ask(&get, &snapshot()).found(|_| Ok::<_, ()>(history.clone()), now());
        found.unwrap()
    }

    #[track_caller]
    fn check(outcomes: &[&str], expected: [&str; 7]) {
        let found = found(&["app/web/readiness"], outcomes);
        assert_eq!(found.items[0].cells[3..], expected);
    }

    #[test]
    fn a_row_says_what_came_of_the_probe_and_since_when() {
        let does = "http-get http://:8080/healthz";
        check(&[], [NONE, NONE, NONE, "0/3", NONE, does, NONE]);
        check(
            &["success"],
            ["success", "10s", "1.2s", "0/3", NONE, does, "no way"],
        );
        check(
            &["failure", "success", "success"],
            ["success", "20s", "1.2s", "0/3", NONE, does, "no way"],
        );
        check(
            &["success", "failure", "failure"],
            ["failure", "20s", "1.2s", "2/3", NONE, does, "no way"],
        );
        check(
            &["failure", "errored", "failure"],
            ["failure", "10s", "1.2s", "2/3", NONE, does, "no way"],
        );
        check(
            &["failure", "errored"],
            ["errored", "10s", "1.2s", "1/3", NONE, does, "no way"],
        );
        let whole = ["success"; MAX_RUNS];
        check(
            &whole,
            ["success", ">5m20s", "1.2s", "0/3", NONE, does, "no way"],
        );
    }

    #[test]
    fn each_probe_has_a_row_and_a_pause_is_shown() {
        let all = found(&[], &["success"]);
        let names: Vec<&str> = all.items.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["app-edge/web/readiness", "app-edge/web/liveness"]);
        assert_eq!(
            all.items[1].cells[3..9],
            [NONE, NONE, NONE, "0/1", "20m", "tcp-socket :1"]
        );
        assert_eq!(found(&["app/web/liveness"], &[]).items.len(), 1);
        assert_eq!(found(&["app/web"], &[]).items.len(), 2);
        let missing = |name: &str| found(&[name], &[]).missing.join("|");
        assert_eq!(
            missing("ap"),
            "pods \"ap\" not found\ndid you mean \"app\"?"
        );
        assert_eq!(missing("app/bare"), "container \"bare\" has no probe");
        assert_eq!(
            missing("app/web/x"),
            "unknown probe type 'x'; there are startup, readiness and liveness"
        );
    }

    #[test]
    fn the_object_has_the_probe_and_its_result() {
        let object = &found(&["app/web/readiness"], &["success", "failure"]).items[0].object;
        assert_eq!(object["spec"]["probe"]["failureThreshold"], 3);
        let expected = json!({"failures": 1, "failureThreshold": 3, "result": "failure", "since": "2026-01-01T00:10:50Z",
            "time": "2026-01-01T00:10:50Z", "latencyMicroseconds": 1_234_567, "output": " no\nway "});
        assert_eq!(object["status"], expected);
        let paused = &found(&["app/web/liveness"], &[]).items[0].object;
        assert_eq!(paused["status"]["pausedUntil"], "2026-01-01T00:31:00Z");
    }
}
