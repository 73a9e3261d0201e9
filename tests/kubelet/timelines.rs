//! The timelines of kubelet-probes 13 on the real daemon with real containers: which probe ran
//! when, its result and the effect. Each probe records its runs itself, inside the container and on
//! the boot clock, with the start of its instance, so the tests do not depend on the daemon's
//! records or clock. A wrong rule shows in the sequence and in the counts; times are compared with
//! [`tolerance`], so that a busy machine does not matter.

use std::fs;

use podprobe::engine::shims::RuntimeChoice;
use podprobe::face::views::PodView;
use podprobe::pods::history::{PodHistory, RunOutcome};
use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::{Day, FOREVER, NODE, Watcher, find};

/// Pods come to stand within this after what lets them: a start, a listing and a sync, on a busy machine.
const SOON: f64 = 0.9;

/// Seconds within which a run lies of its due time. A busy machine may need some of it for a shell;
/// it stays below half a period, so that a run left out or one too many shows.
fn tolerance(period: f64) -> f64 {
    0.4 * period
}

/// A run as its command saw it.
#[derive(Clone, Debug, PartialEq)]
struct Ran {
    kind: String,
    ok: bool,
    /// Seconds of the boot clock.
    at: f64,
    /// Seconds of the boot clock at which the container's first process was made.
    start: f64,
}

impl Ran {
    /// Seconds since the container's start.
    fn age(&self) -> f64 {
        self.at - self.start
    }

    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, ok, at, ticks] = words[..] else {
            panic!("{line:?}")
        };
        let start = ticks.parse::<f64>().unwrap() / 100.0;
        Self {
            kind: kind.into(),
            ok: ok == "ok",
            at: at.parse().unwrap(),
            start,
        }
    }
}

/// A probe whose command notes its run and then finds what `verdict` says, a shell condition; `more` goes over it.
fn probe(pod: &str, kind: &str, verdict: &str, more: Value) -> Value {
    let script = format!(
        "if {verdict}; then r=ok; else r=no; fi; read up rest </proc/uptime; set -- $(cat /proc/1/stat)\n\
         echo {kind} $r $up ${{22}} >>/starts/{pod}.runs; [ $r = ok ]"
    );
    let mut probe = json!({"exec": {"command": ["/bin/sh", "-c", script]}, "timeoutSeconds": 10});
    probe
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    probe
}

/// Every run so far, in the order of the notes.
fn runs(day: &Day, pod: &str) -> Vec<Ran> {
    let text = fs::read_to_string(day.node.dir.path().join(format!("starts/{pod}.runs")))
        .unwrap_or_default();
    text.lines().map(Ran::parse).collect()
}

/// The runs of each instance of the container.
fn instances(runs: &[Ran]) -> Vec<Vec<Ran>> {
    runs.chunk_by(|a, b| a.start == b.start)
        .map(<[Ran]>::to_vec)
        .collect()
}

/// `startup+ liveness-`: what ran, and what it found.
fn words(runs: &[Ran]) -> String {
    let word = |r: &Ran| format!("{}{}", r.kind, if r.ok { "+" } else { "-" });
    runs.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn of(runs: &[Ran], kind: &str) -> Vec<Ran> {
    runs.iter().filter(|r| r.kind == kind).cloned().collect()
}

/// They follow one another at that period: late by the tolerance at most, none left out, none too many. A late run does
/// not move the next.
#[track_caller]
fn assert_period(runs: &[Ran], period: f64) {
    let phases: Vec<f64> = runs
        .iter()
        .enumerate()
        .map(|(i, r)| r.at - i as f64 * period)
        .collect();
    let (least, most) = phases
        .iter()
        .fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(*p), b.max(*p)));
    assert!(
        most - least <= tolerance(period),
        "not every {period} s: {runs:#?}"
    );
}

#[track_caller]
fn assert_within(what: &str, value: f64, least: f64, most: f64, runs: &[Ran]) {
    assert!(
        (least..=most).contains(&value),
        "{what}: {value} s, not {least} to {most} s: {runs:#?}"
    );
}

fn history(day: &Day, pod: &str) -> PodHistory {
    let uid = day.wait("the pod", |s| {
        find(s, pod).map(|p| p.object["metadata"]["uid"].as_str().unwrap().to_owned())
    });
    day.history(&uid)
}

/// The daemon has kept the same runs with the same results.
#[track_caller]
fn assert_kept(day: &Day, pod: &str, kind: &str) {
    let noted = of(&runs(day, pod), kind);
    let kept = history(day, pod)
        .probes
        .into_iter()
        .find(|h| h.probe_type.as_str().eq_ignore_ascii_case(kind))
        .unwrap()
        .runs;
    let kept: Vec<bool> = kept
        .iter()
        .map(|r| r.outcome == RunOutcome::Success)
        .collect();
    // the last one may be under way
    assert!(
        noted.len() - kept.len().min(noted.len()) <= 1,
        "{kept:?} {noted:#?}"
    );
    assert!(
        kept.iter().zip(&noted).all(|(k, n)| *k == n.ok),
        "{kept:?} {noted:#?}"
    );
}

fn causes(day: &Day, pod: &str) -> Vec<String> {
    history(day, pod)
        .restarts
        .into_iter()
        .map(|r| r.cause)
        .collect()
}

fn wait_runs(day: &Day, pod: &str, kind: &str, count: usize) {
    support::wait_until(&format!("{count} runs of {kind}"), || {
        of(&runs(day, pod), kind).len() >= count
    });
}

/// 13.1. The pod's init container keeps the worker ticking for half a period before there is anything to probe: what
/// follows the first run shows whether the cadence began anew with it.
#[test]
fn readiness_alone() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let period = json!({"periodSeconds": 2});
        let mut pod = day.pod(
            "web",
            FOREVER,
            json!({"readinessProbe": probe("web", "readiness", "true", period)}),
        );
        let wait = json!({"name": "i", "image": "busybox:test", "imagePullPolicy": "Never", "command": ["/bin/sleep", "1"]});
        pod["spec"]["initContainers"] = json!([wait]);
        day.put("web", pod);
        day.wait_ready("web");
        let first = runs(&day, "web");
        assert_eq!(
            words(&first),
            "readiness+",
            "ready by the first run and not before"
        );
        assert_within("the first run", first[0].age(), 0.0, SOON, &first);
        wait_runs(&day, "web", "readiness", 4);
        let all = runs(&day, "web");
        assert_eq!(words(&all), "readiness+ readiness+ readiness+ readiness+");
        assert_period(&all, 2.0);
        assert_kept(&day, "web", "readiness");
        assert!(causes(&day, "web").is_empty());
        day.end();
    });
}

/// 13.2. The container takes more than a period to end: were the worker not on hold, it would probe a dying container.
#[test]
fn liveness_failing_from_the_start() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let numbers = json!({"periodSeconds": 1, "failureThreshold": 3, "initialDelaySeconds": 2});
        let script = "trap 'sleep 1.3; exit 0' TERM\nsleep 100000 & wait";
        let mut pod = day.pod(
            "sick",
            script,
            json!({"livenessProbe": probe("sick", "liveness", "false", numbers)}),
        );
        pod["spec"]["terminationGracePeriodSeconds"] = 20.into();
        day.put("sick", pod);
        assert_eq!(
            day.wait_event("sick", "Killing"),
            "Container c failed liveness probe, will be restarted"
        );
        let why = "Back-off restarting failed container";
        assert!(day.wait_event("sick", "BackOff").starts_with(why));
        let all = runs(&day, "sick");
        let each = instances(&all);
        assert_eq!(
            each.iter().map(|i| words(i)).collect::<Vec<_>>(),
            ["liveness- liveness- liveness-"; 2]
        );
        for instance in &each {
            assert_within("the first run", instance[0].age(), 2.0, 2.0 + SOON, &all);
            assert_period(instance, 1.0);
        }
        assert_within(
            "from the last failure to the next instance",
            each[1][0].start - each[0][2].at,
            1.3,
            1.3 + 2.0 * SOON,
            &all,
        );
        assert_kept(&day, "sick", "liveness");
        let causes = causes(&day, "sick");
        assert!(
            causes.len() == 1 && causes[0].starts_with("failed liveness probe"),
            "{causes:?}"
        );
        day.end();
    });
}

/// 13.3. The first instance fails its startup probe for good, the second one passes it at the third run.
#[test]
fn startup_with_liveness_and_readiness() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let every = |n: i32| json!({"periodSeconds": 1, "failureThreshold": n});
        let sixth = "[ $(cat /starts/slow.runs | grep -c startup) -ge 5 ]";
        let probes = json!({
            "startupProbe": probe("slow", "startup", sixth, every(3)),
            "livenessProbe": probe("slow", "liveness", "true", every(1)),
            "readinessProbe": probe("slow", "readiness", "true", every(1)),
        });
        let watcher = Watcher::spawn(&day);
        day.put("slow", day.pod("slow", FOREVER, probes));
        assert_eq!(
            day.wait_event("slow", "Killing"),
            "Container c failed startup probe, will be restarted"
        );
        day.wait_ready("slow");
        wait_runs(&day, "slow", "liveness", 3);
        wait_runs(&day, "slow", "readiness", 3);
        let all = runs(&day, "slow");
        let each = instances(&all);
        assert_eq!(
            (each.len(), words(&each[0]).as_str()),
            (2, "startup- startup- startup-")
        );
        let (before, after) = each[1].split_at(3);
        assert_eq!(words(before), "startup- startup- startup+");
        assert!(
            of(after, "startup").is_empty() && after.iter().all(|r| r.ok),
            "{after:#?}"
        );
        for instance in [&each[0][..], before] {
            assert_within("the first run", instance[0].age(), 0.0, SOON, &all);
            assert_period(instance, 1.0);
        }
        let (liveness, readiness) = (of(after, "liveness"), of(after, "readiness"));
        assert_within(
            "readiness, by the sync that follows",
            readiness[0].at - before[2].at,
            0.0,
            SOON,
            &all,
        );
        assert_within(
            "liveness, at its next tick",
            liveness[0].at - before[2].at,
            0.0,
            1.0 + SOON,
            &all,
        );
        [&liveness, &readiness]
            .into_iter()
            .for_each(|r| assert_period(r, 1.0));
        assert_kept(&day, "slow", "startup");
        let causes = causes(&day, "slow");
        assert!(
            causes.len() == 1 && causes[0].starts_with("failed startup probe"),
            "{causes:?}"
        );
        for snapshot in watcher.seen() {
            let Some(status) =
                find(&snapshot, "slow").and_then(|p| p.status.container("c").cloned())
            else {
                continue;
            };
            assert!(
                !status.ready || (status.started == Some(true) && status.restart_count == 1),
                "{status:#?}"
            );
        }
        day.end();
    });
}

/// kubelet-probes 13.4, and lessons A4: that a pod is not ready in the end proves nothing, since its death makes it so. Here its probe
/// does, while the container still runs and when the probe has said so; liveness, which would fail as well, has stopped.
#[test]
fn a4_readiness_fails_by_its_probe_while_the_pod_ends() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let starts = node.dir.path().join("starts");
        let every = json!({"periodSeconds": 1, "failureThreshold": 1});
        let probes = json!({
            "livenessProbe": probe("old", "liveness", "[ ! -e /starts/going ]", every.clone()),
            "readinessProbe": probe("old", "readiness", "[ ! -e /starts/sick ]", every),
        });
        let script = "trap ': >/starts/going' TERM\nuntil [ -e /starts/over ]; do sleep 0.1; done";
        let mut pod = day.pod("old", script, probes);
        pod["spec"]["terminationGracePeriodSeconds"] = 3600.into();
        day.put("old", pod);
        day.wait_ready("old");
        wait_runs(&day, "old", "liveness", 2);
        let process = day.process("old");
        let watcher = Watcher::spawn(&day);
        day.delete("old");
        support::wait_until("its TERM", || starts.join("going").exists());
        let before = runs(&day, "old");
        let more = |n| of(&before, "readiness").len() + n;
        wait_runs(&day, "old", "readiness", more(3));
        let container_ready = |p: &PodView| p.status.container_statuses.iter().any(|c| c.ready);
        let view = |s: &podprobe::face::views::Snapshot| {
            find(s, "old").map(|p| (p.terminating, p.status.is_ready(), container_ready(p)))
        };
        let now = view(&day.snapshot().unwrap());
        assert_eq!(
            now,
            Some((true, false, true)),
            "it ends and has left readiness (lessons A8), though its probe says that it is ready"
        );
        fs::write(starts.join("sick"), "").unwrap();
        day.wait("the container's Ready to leave", |s| {
            view(s).filter(|(_, _, ready)| !ready)
        });
        assert!(process.alive(), "its probe has said so, not its end");
        let said = |s: &podprobe::face::views::Snapshot| {
            find(s, "old")?
                .events
                .iter()
                .find(|e| e.message.starts_with("Readiness probe failed"))
                .map(drop)
        };
        day.wait("the event of readiness", said);
        let while_ending = runs(&day, "old")[before.len()..].to_vec();
        assert!(
            of(&while_ending, "liveness").len() <= 1,
            "but the one under way none runs: {while_ending:#?}"
        );
        let readiness = of(&while_ending, "readiness");
        let first = readiness.iter().position(|r| !r.ok).unwrap();
        assert!(
            first >= 2 && readiness[first..].iter().all(|r| !r.ok),
            "{while_ending:#?}"
        );
        fs::write(starts.join("over"), "").unwrap();
        day.wait_gone("old");
        let restarts = watcher
            .seen()
            .iter()
            .filter_map(|s| {
                find(s, "old")?
                    .status
                    .container("c")
                    .map(|c| c.restart_count)
            })
            .max();
        assert_eq!(
            (restarts, day.starts("old").len()),
            (Some(0), 1),
            "{}",
            day.log()
        );
        day.end();
    });
}

/// 8.1: a container that failed its liveness probe may take ten minutes to end, its removed pod may not.
#[test]
fn a_removal_does_not_wait_for_a_kill_under_way() {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let numbers = json!({"periodSeconds": 1, "failureThreshold": 1, "terminationGracePeriodSeconds": 600});
        // The first process of a container ignores a signal that it has no trap for yet, so the
        // probe fails only after that.
        let script =
            "trap 'echo >>/starts/terms' TERM\necho >/starts/trapped\nwhile :; do sleep 0.1; done";
        let verdict = "[ ! -e /starts/trapped ]";
        let mut pod = day.pod(
            "stuck",
            script,
            json!({"livenessProbe": probe("stuck", "liveness", verdict, numbers)}),
        );
        pod["spec"]["terminationGracePeriodSeconds"] = 2.into();
        day.put("stuck", pod);
        let terms = || {
            fs::read_to_string(node.dir.path().join("starts/terms"))
                .unwrap_or_default()
                .lines()
                .count()
        };
        support::wait_until("the kill", || terms() == 1);
        day.delete("stuck");
        day.wait_gone("stuck");
        assert_eq!(terms(), 2, "each kill begins with the signal");
        day.end();
    });
}

/// 13.6. Another daemon finds the pod as it is: startup is not asked again, nothing is not ready for a moment, and the
/// probes go on, each after a part of its period.
#[test]
fn a_new_daemon_with_a_running_pod() {
    support::on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        let every = json!({"periodSeconds": 1, "failureThreshold": 1});
        let kinds = ["startup", "liveness", "readiness"];
        let probes = kinds.map(|kind| {
            (
                format!("{kind}Probe"),
                probe("kept", kind, "true", every.clone()),
            )
        });
        day.put(
            "kept",
            day.pod("kept", FOREVER, Value::Object(probes.into_iter().collect())),
        );
        day.wait_ready("kept");
        wait_runs(&day, "kept", "liveness", 2);
        support::wait_until("the checkpoint to hold it", || {
            let text = fs::read_to_string(node.layout.checkpoint()).unwrap_or_default();
            text.contains("\"type\":\"Ready\",\"status\":\"True\"")
        });
        let before = runs(&day, "kept");
        let watcher = Watcher::spawn(&day);
        day.crash();
        let counts = |kind| of(&runs(&day, "kept")[before.len()..], kind).len();
        support::wait_until("the probes to go on", || {
            counts("liveness") >= 3 && counts("readiness") >= 3
        });
        let after = runs(&day, "kept")[before.len()..].to_vec();
        assert_eq!(of(&after, "startup"), [], "{after:#?}");
        assert_eq!(instances(&runs(&day, "kept")).len(), 1);
        for kind in ["liveness", "readiness"] {
            assert_period(&of(&after, kind), 1.0);
        }
        let full = format!("kept-{NODE}");
        for pod in watcher
            .seen()
            .iter()
            .flat_map(|s| s.pods.clone())
            .filter(|p| p.object["metadata"]["name"] == full)
        {
            assert!(pod.status.is_ready(), "{:#?}\n{}", pod.status, day.log());
        }
        day.end();
    });
}
