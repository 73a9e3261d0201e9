//! The history of each pod: the last results of its probes, and the causes of its containers' restarts.
//!
//! Invariants: the history is for people, and nothing is decided from it. The history is in memory and bounded:
//! [`MAX_RUNS`] runs for each probe, [`MAX_OUTPUT`] bytes of output for each run, [`MAX_RESTARTS`] restarts for each
//! pod. The history of a pod outlives the instances of a container, and is dropped with the pod.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::api::{PodUid, ProbeType};
use crate::base::clock::Time;
use crate::base::locks::Locked;
use crate::base::text::{head, micros};
use crate::engine::runtime::{ContainerId, RuntimeContainerStatus};
use crate::pods::actions::{KillReason, ToKill};
use crate::pods::prober::outcome::{HandlerResult, Outcome, Phase};

/// Number of runs that are kept for each probe.
pub const MAX_RUNS: usize = 32;
/// Number of bytes of a probe's output that are kept.
pub const MAX_OUTPUT: usize = 256;
/// The cause of the first start of a container after the node was down.
pub const NODE_RESTARTED: &str = "the node was restarted";
/// Number of restarts that are kept for each pod.
pub const MAX_RESTARTS: usize = 10;

/// The outcome of a probe's run. *Errored* says nothing about the container, because the probe itself did not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunOutcome {
    /// The probe has succeeded.
    Success,
    /// The run counts as a success, but there is an event.
    Warning,
    /// The probe has failed.
    Failure,
    /// The probe could not be run, so nothing is known about the container.
    Errored,
}

impl RunOutcome {
    /// Returns `success`, `warning`, `failure` or `errored`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Warning => "warning",
            Self::Failure => "failure",
            Self::Errored => "errored",
        }
    }
}

impl From<&Outcome> for RunOutcome {
    fn from(o: &Outcome) -> Self {
        match (&o.error, o.result) {
            (Some(_), _) => Self::Errored,
            (None, HandlerResult::Success) => Self::Success,
            (None, HandlerResult::Warning) => Self::Warning,
            (None, HandlerResult::Failure | HandlerResult::Unknown) => Self::Failure,
        }
    }
}

/// A single run of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The time at which the run ended, wall clock.
    pub time: Time,
    /// The time that the last try of the run took, in microseconds.
    pub micros: u64,
    /// The outcome of the run.
    pub outcome: RunOutcome,
    /// The phase that the run reached, if the run did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The beginning of the output, failure text or error of the run. If the text is the same as that of the run
    /// before, as in most runs, both runs share its memory.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub output: Arc<str>,
}

impl Run {
    /// Makes the run with this outcome, which ended at `time`. `before` is the previous run; None for the first run.
    fn new(outcome: &Outcome, time: Time, before: Option<&Run>) -> Self {
        let result = RunOutcome::from(outcome);
        let phase =
            matches!(result, RunOutcome::Failure | RunOutcome::Errored).then_some(outcome.phase);
        let said = head(
            outcome.error.as_deref().unwrap_or(&outcome.output),
            MAX_OUTPUT,
        );
        let output = before
            .filter(|b| *b.output == *said)
            .map_or_else(|| said.into(), |b| b.output.clone());
        Self {
            time,
            micros: micros(outcome.duration),
            outcome: result,
            phase,
            output,
        }
    }
}

/// The place where the runs of one probe are kept. Each place has a lock of its own, so that no worker searches among a
/// thousand probes.
#[derive(Clone, Default)]
pub struct Runs(Arc<Mutex<VecDeque<Run>>>);

impl Runs {
    /// Records a run of the probe.
    pub fn record(&self, outcome: &Outcome, time: Time) {
        let mut runs = self.lock();
        let run = Run::new(outcome, time, runs.back());
        keep(&mut runs, run, MAX_RUNS);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Run>> {
        self.0.locked()
    }
}

/// The last runs of one probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeHistory {
    /// The name of the container.
    pub container: String,
    /// The type of the probe.
    pub probe_type: ProbeType,
    /// The runs, oldest first.
    pub runs: VecDeque<Run>,
}

/// A restart of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// The time at which the new instance started, wall clock.
    pub time: Time,
    /// The name of the container.
    pub container: String,
    /// The number of the new instance. The first instance has 0.
    pub attempt: u32,
    /// The reason why there is a new instance.
    pub cause: String,
}

/// The history of a pod: the runs of its probes, and its restarts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodHistory {
    /// The last runs of each probe, sorted by container and type.
    pub probes: Vec<ProbeHistory>,
    /// The restarts, oldest first.
    pub restarts: VecDeque<Restart>,
}

#[derive(Default)]
struct Record {
    /// The runs of each probe, by container and type.
    probes: BTreeMap<String, BTreeMap<ProbeType, Runs>>,
    restarts: VecDeque<Restart>,
    /// The last killed instance of each container, and the reason, by container.
    kills: HashMap<String, (ContainerId, String)>,
    /// Causes of the next starts of containers, by container. Only causes outside of the container are here.
    renewals: HashMap<String, String>,
}

/// The histories of all pods.
#[derive(Default)]
pub struct History(Mutex<HashMap<PodUid, Record>>);

impl History {
    /// Returns the place where a probe's runs are kept. A new worker of the probe goes on with the runs of the previous
    /// worker.
    pub fn runs(&self, uid: &PodUid, container: &str, probe_type: ProbeType) -> Runs {
        let mut all = self.lock();
        let probes = &mut all.entry(uid.clone()).or_default().probes;
        probes
            .entry(container.into())
            .or_default()
            .entry(probe_type)
            .or_default()
            .clone()
    }

    /// Notes that a container is about to be killed. The reason and the last output of its probe are kept as the cause
    /// of the restart.
    pub fn killing(&self, uid: &PodUid, kill: &ToKill) {
        let mut all = self.lock();
        let record = all.entry(uid.clone()).or_default();
        let cause = record.cause_of_kill(kill);
        record
            .kills
            .insert(kill.name.clone(), (kill.id.clone(), cause));
    }

    /// Notes that a container is about to start again for a reason outside of the container. `cause` becomes the cause
    /// of the next restart.
    pub fn renewing(&self, uid: &PodUid, container: &str, cause: &str) {
        self.lock()
            .entry(uid.clone())
            .or_default()
            .renewals
            .insert(container.into(), cause.into());
    }

    /// Records that a new instance of a container has started. `before` is the instance that it replaces; None if that
    /// instance is no longer known.
    pub fn restarted(
        &self,
        uid: &PodUid,
        container: &str,
        attempt: u32,
        before: Option<&RuntimeContainerStatus>,
        time: Time,
    ) {
        let mut all = self.lock();
        let record = all.entry(uid.clone()).or_default();
        let killed = record
            .kills
            .remove(container)
            .filter(|(id, _)| before.is_some_and(|b| b.id == *id))
            .map(|(_, why)| why);
        let renewed = record.renewals.remove(container);
        // The runtime's record of the container outlives a reboot if /run is on a disk.
        let renewed = match before.is_some_and(ended_with_the_node) {
            true => Some(NODE_RESTARTED.into()),
            false => renewed,
        };
        let cause = match (before.map(end), renewed.clone().or(killed)) {
            (None, Some(why)) if renewed.is_some() => why,
            (Some(end), Some(why)) => format!("{why} ({end})"),
            (Some(end), None) => format!("ended by itself: {end}"),
            (None, _) => "nothing is known of the instance before".into(),
        };
        keep(
            &mut record.restarts,
            Restart {
                time,
                container: container.into(),
                attempt,
                cause,
            },
            MAX_RESTARTS,
        );
    }

    /// Returns the runs and restarts that are kept of a pod; empty for an unknown pod.
    pub fn get(&self, uid: &PodUid) -> PodHistory {
        let all = self.lock();
        let Some(record) = all.get(uid) else {
            return PodHistory::default();
        };
        let all_runs = record
            .probes
            .iter()
            .flat_map(|(container, types)| types.iter().map(move |(t, runs)| (container, t, runs)));
        let probes = all_runs.map(|(container, probe_type, runs)| ProbeHistory {
            container: container.clone(),
            probe_type: *probe_type,
            runs: runs.lock().clone(),
        });
        PodHistory {
            probes: probes.filter(|p| !p.runs.is_empty()).collect(),
            restarts: record.restarts.clone(),
        }
    }

    /// Drops the histories of all pods that are not in `alive`.
    pub fn retain(&self, alive: &HashSet<PodUid>) {
        self.lock().retain(|uid, _| alive.contains(uid));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, Record>> {
        self.0.locked()
    }
}

impl Record {
    /// Returns the cause of a kill, for example `failed liveness probe: HTTP probe failed with statuscode: 500`.
    fn cause_of_kill(&self, kill: &ToKill) -> String {
        let text = kill
            .message
            .strip_suffix(", will be restarted")
            .unwrap_or(&kill.message);
        let text = text
            .strip_prefix(&format!("Container {} ", kill.name))
            .unwrap_or(text);
        let probe_type = match kill.reason {
            KillReason::LivenessProbe => ProbeType::Liveness,
            KillReason::StartupProbe => ProbeType::Startup,
            _ => return text.to_owned(),
        };
        let runs = self
            .probes
            .get(&kill.name)
            .and_then(|types| types.get(&probe_type))
            .map(Runs::lock);
        let failed = runs
            .as_ref()
            .and_then(|runs| runs.iter().rev().find(|r| r.outcome == RunOutcome::Failure));
        match failed
            .map(|r| r.output.trim())
            .filter(|said| !said.is_empty())
        {
            Some(said) => format!("{text}: {said}"),
            None => text.to_owned(),
        }
    }
}

/// Returns true if the container ran when the node went down. The end of such a container was not seen.
fn ended_with_the_node(c: &RuntimeContainerStatus) -> bool {
    c.reason == "ContainerStatusUnknown" && c.started_at.is_some() && c.started.is_none()
}

fn keep<T>(list: &mut VecDeque<T>, item: T, limit: usize) {
    if list.len() >= limit {
        list.pop_front();
    }
    list.push_back(item);
}

/// Returns the words for the end of an instance.
fn end(c: &RuntimeContainerStatus) -> String {
    let how = match c.signal {
        Some(signal) => format!("exit code {}, signal {signal}", c.exit_code),
        None => format!("exit code {}", c.exit_code),
    };
    match c.reason.as_str() {
        "" | "Error" | "Completed" => how,
        reason => format!("{reason}, {how}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::engine::runtime::RuntimeState;

    fn failed(output: &str) -> Outcome {
        Outcome::new(HandlerResult::Failure, output, Phase::Read)
    }

    fn ended(
        id: &str,
        exit_code: i32,
        signal: Option<i32>,
        reason: &str,
    ) -> RuntimeContainerStatus {
        RuntimeContainerStatus {
            sandbox: Default::default(),
            id: id.into(),
            name: "c".into(),
            attempt: 0,
            state: RuntimeState::Exited,
            image: String::new(),
            image_id: String::new(),
            hash: 0,
            created_at: SystemTime::now(),
            started_at: None,
            started: None,
            finished_at: None,
            finished: None,
            exit_code,
            signal,
            reason: reason.into(),
            message: String::new(),
            pid: None,
            log_path: Default::default(),
            user: None,
            resources: None,
        }
    }

    fn kill(id: &str, message: &str, reason: KillReason) -> ToKill {
        ToKill {
            id: id.into(),
            name: "c".into(),
            message: message.into(),
            reason,
        }
    }

    #[track_caller]
    fn check_run(outcome: Outcome, result: RunOutcome, phase: Option<Phase>, output: &str) {
        let run = Run::new(&outcome, Time::now(), None);
        assert_eq!(
            (run.outcome, run.phase, &*run.output),
            (result, phase, output)
        );
    }

    #[test]
    fn a_run_says_how_far_it_got_when_it_failed_only() {
        let outcome = |result| Outcome::new(result, "said", Phase::Read);
        check_run(
            outcome(HandlerResult::Success),
            RunOutcome::Success,
            None,
            "said",
        );
        check_run(
            outcome(HandlerResult::Warning),
            RunOutcome::Warning,
            None,
            "said",
        );
        check_run(
            outcome(HandlerResult::Failure),
            RunOutcome::Failure,
            Some(Phase::Read),
            "said",
        );
        check_run(
            outcome(HandlerResult::Unknown),
            RunOutcome::Failure,
            Some(Phase::Read),
            "said",
        );
        check_run(
            Outcome::error("no descriptors", Phase::ExecStart),
            RunOutcome::Errored,
            Some(Phase::ExecStart),
            "no descriptors",
        );
        let long = "é".repeat(200);
        check_run(
            Outcome::new(HandlerResult::Failure, format!("x{long}"), Phase::Run),
            RunOutcome::Failure,
            Some(Phase::Run),
            &format!("x{}", &long[..254]),
        );
    }

    #[test]
    fn the_oldest_run_goes() {
        let (h, uid) = (History::default(), PodUid::from("u"));
        for i in 0..MAX_RUNS + 3 {
            h.runs(&uid, "c", ProbeType::Liveness)
                .record(&failed(&i.to_string()), Time::now());
        }
        h.runs(&uid, "c", ProbeType::Readiness)
            .record(&failed("other"), Time::now());
        h.runs(&uid, "c", ProbeType::Startup);
        let probes = h.get(&uid).probes;
        let kept = |t| {
            probes
                .iter()
                .find(|p| p.probe_type == t && p.container == "c")
                .map(|p| (p.runs.len(), p.runs[0].output.clone()))
        };
        assert_eq!(kept(ProbeType::Liveness), Some((MAX_RUNS, "3".into())));
        assert_eq!(kept(ProbeType::Readiness), Some((1, "other".into())));
        assert_eq!(kept(ProbeType::Startup), None, "it has not run");
        h.retain(&HashSet::from(["v".into()]));
        assert_eq!(h.get(&uid), PodHistory::default());
    }

    #[test]
    fn runs_that_say_the_same_share_their_text() {
        let runs = Runs::default();
        ["a", "a", "b"]
            .into_iter()
            .for_each(|said| runs.record(&failed(said), Time::now()));
        let kept = runs.lock();
        assert!(Arc::ptr_eq(&kept[0].output, &kept[1].output));
        assert_eq!(&*kept[2].output, "b");
    }

    #[track_caller]
    fn check_cause(killed: Option<ToKill>, before: Option<RuntimeContainerStatus>, expected: &str) {
        let (h, uid) = (History::default(), PodUid::from("u"));
        let runs = h.runs(&uid, "c", ProbeType::Liveness);
        runs.record(&failed("statuscode: 500"), Time::now());
        runs.record(&Outcome::error("later", Phase::Prepare), Time::now());
        killed.iter().for_each(|k| h.killing(&uid, k));
        h.restarted(&uid, "c", 1, before.as_ref(), Time::now());
        assert_eq!(h.get(&uid).restarts[0].cause, expected);
    }

    #[test]
    fn a_restart_has_its_cause() {
        let liveness = kill(
            "a",
            "Container c failed liveness probe, will be restarted",
            KillReason::LivenessProbe,
        );
        let startup = kill(
            "a",
            "Container c failed startup probe, will be restarted",
            KillReason::StartupProbe,
        );
        let changed = kill(
            "a",
            "Container c definition changed, will be restarted",
            KillReason::None,
        );
        let killed = ended("a", 137, Some(9), "Error");
        check_cause(
            Some(liveness.clone()),
            Some(killed.clone()),
            "failed liveness probe: statuscode: 500 (exit code 137, signal 9)",
        );
        check_cause(
            Some(liveness.clone()),
            None,
            "nothing is known of the instance before",
        );
        check_cause(
            Some(startup),
            Some(killed.clone()),
            "failed startup probe (exit code 137, signal 9)",
        );
        check_cause(
            Some(changed),
            Some(killed),
            "definition changed (exit code 137, signal 9)",
        );
        // The container ran when the node went down. Its record is from another boot, and has no end.
        let mut cut = ended("a", 137, None, "ContainerStatusUnknown");
        (cut.started_at, cut.started) = (Some(SystemTime::UNIX_EPOCH), None);
        check_cause(
            None,
            Some(cut),
            "the node was restarted (ContainerStatusUnknown, exit code 137)",
        );
        // The kill of another instance is not the cause of this restart.
        check_cause(
            Some(liveness),
            Some(ended("b", 0, None, "Completed")),
            "ended by itself: exit code 0",
        );
        check_cause(
            None,
            Some(ended("a", 137, Some(9), "OOMKilled")),
            "ended by itself: OOMKilled, exit code 137, signal 9",
        );
    }

    #[test]
    fn a_restart_with_the_others_has_their_cause_once() {
        let (h, uid) = (History::default(), PodUid::from("u"));
        let cause = |n: usize| h.get(&uid).restarts[n].cause.clone();
        h.renewing(&uid, "c", "all restart");
        h.killing(&uid, &kill("a", "Stopping container c", KillReason::None));
        h.restarted(&uid, "c", 1, None, Time::now());
        h.restarted(&uid, "c", 2, None, Time::now());
        h.renewing(&uid, "c", "all restart");
        h.restarted(
            &uid,
            "c",
            3,
            Some(&ended("a", 137, Some(9), "Error")),
            Time::now(),
        );
        assert_eq!(
            (cause(0), cause(1)),
            (
                "all restart".into(),
                "nothing is known of the instance before".into()
            )
        );
        assert_eq!(cause(2), "all restart (exit code 137, signal 9)");
    }

    #[test]
    fn the_last_restarts_are_kept() {
        let (h, uid) = (History::default(), PodUid::from("u"));
        for attempt in 1..=MAX_RESTARTS as u32 + 2 {
            h.restarted(&uid, "c", attempt, None, Time::now());
        }
        let attempts: Vec<u32> = h.get(&uid).restarts.iter().map(|r| r.attempt).collect();
        assert_eq!(attempts, (3..=12).collect::<Vec<_>>());
    }
}
