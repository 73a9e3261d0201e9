//! Kills containers: single containers, or all containers of a pod at once, with sidecars in their turn
//! (kubelet-probes 8.5).

use std::time::Duration;

use super::begun_stops::{BegunStop, Stop, StopStage};
use super::syncer::{Problems, Syncer};
use super::turns::{Ended, Turns};
use crate::api::{HookKind, Pod};
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;
use crate::engine::runtime::{RuntimeError, RuntimePodStatus, RuntimeState};
use crate::pods::actions::{
    self, KillReason, ToKill, grace_of, kill_grace_period, left_of, stop_grace,
};
use crate::pods::events::EventType;
use crate::pods::lifecycle::{Failure, HookError, HookSubject};

/// The error text of a cancelled run. The text is never shown, because a cancelled run is not an error.
pub(super) const CANCELLED: &str = "cancelled";
/// The stack size in bytes of a thread that only waits for one container to end.
const KILL_STACK: usize = 256 * 1024;

/// The reason why a container was not killed.
#[derive(Debug, thiserror::Error)]
enum KillError {
    /// The run was cancelled before the container ended.
    #[error("{CANCELLED}")]
    Cancelled,
    /// The runtime could not stop the container.
    #[error("cannot stop container {container}: {source}")]
    Stop {
        container: String,
        source: RuntimeError,
    },
    /// The thread that kills the container panicked.
    #[error("killing panicked")]
    Panicked,
}

impl Syncer {
    /// Kills every running container at once, sidecars in their turn, and then stops the sandboxes (8.5).
    pub(super) fn kill_pod(
        &self,
        pod: &Pod,
        runtime: &RuntimePodStatus,
        grace: Option<i64>,
        problems: &mut Problems<'_>,
    ) {
        let alive = runtime
            .containers
            .iter()
            .filter(|c| c.state != RuntimeState::Exited);
        let kills: Vec<ToKill> = alive
            .map(|c| ToKill {
                id: c.id.clone(),
                name: c.name.clone(),
                message: format!("Stopping container {}", c.name),
                reason: KillReason::None,
            })
            .collect();
        self.kill_in_turn(pod, &kills, grace, problems);
        // A container that still runs needs its network and its volumes.
        if problems.cancel.is_cancelled() {
            return;
        }
        for sandbox in &runtime.sandboxes {
            if let Err(e) = self.runtime().stop_sandbox(&sandbox.id) {
                self.event(
                    pod,
                    "",
                    EventType::Warning,
                    "FailedKillPod",
                    &format!("error killing pod: {e}"),
                );
                problems.add(e.message);
            }
        }
    }

    /// Kills containers in parallel. Returns when the slowest container has ended.
    pub(super) fn kill_all(
        &self,
        pod: &Pod,
        kills: &[ToKill],
        grace: Option<i64>,
        problems: &mut Problems<'_>,
    ) {
        self.kill_each(pod, kills, grace, None, problems);
    }

    /// Kills containers in parallel, each in its turn. A sidecar first waits for the containers that must end before
    /// it, at most for its grace period.
    fn kill_in_turn(
        &self,
        pod: &Pod,
        kills: &[ToKill],
        grace: Option<i64>,
        problems: &mut Problems<'_>,
    ) {
        let turns = Turns::new(kills.iter().map(|k| k.name.as_str()));
        self.kill_each(pod, kills, grace, Some(&turns), problems);
    }

    fn kill_each(
        &self,
        pod: &Pod,
        kills: &[ToKill],
        grace: Option<i64>,
        turns: Option<&Turns>,
        problems: &mut Problems<'_>,
    ) {
        let cancel = problems.cancel;
        let errors: Vec<KillError> = match kills {
            [] => return,
            [one] => self
                .kill(pod, one, grace, None, cancel)
                .err()
                .into_iter()
                .collect(),
            many => std::thread::scope(|scope| {
                let spawn = |kill| {
                    let thread = std::thread::Builder::new()
                        .name("kill".into())
                        .stack_size(KILL_STACK);
                    thread
                        .spawn_scoped(scope, move || self.kill(pod, kill, grace, turns, cancel))
                        .map_err(|e| (kill, e))
                };
                let threads: Vec<_> = many.iter().map(spawn).collect();
                let end = |t: Result<
                    std::thread::ScopedJoinHandle<'_, Result<(), KillError>>,
                    (&ToKill, std::io::Error),
                >| match t {
                    Ok(handle) => handle.join().unwrap_or(Err(KillError::Panicked)),
                    // no thread could be started: this container is killed on this thread, without waiting for its turn
                    Err((kill, _)) => {
                        let _ended = turns.map(|turns| Ended(turns, &kill.name));
                        self.kill(pod, kill, grace, None, cancel)
                    }
                };
                threads.into_iter().filter_map(|t| end(t).err()).collect()
            }),
        };
        errors.iter().for_each(|e| problems.add(e.to_string()));
    }

    fn kill(
        &self,
        pod: &Pod,
        kill: &ToKill,
        grace: Option<i64>,
        turns: Option<&Turns>,
        cancel: &Cancel,
    ) -> Result<(), KillError> {
        // `_ended` is also dropped on failure and on panic, so that the containers that wait for this container
        // continue
        let _ended = turns.map(|turns| Ended(turns, &kill.name));
        self.deps.probes.killing(pod, kill);
        self.event(pod, &kill.name, EventType::Normal, "Killing", &kill.message);
        let own = || kill_grace_period(pod, pod.container(&kill.name), kill.reason);
        let given = grace_of(grace.unwrap_or_else(own));
        let (stop, left) = self.stop_to_go_on_with(pod, kill, given);
        let left = match stop.stage {
            StopStage::Signalled => left,
            _ => self.before_the_signal(pod, kill, stop, left, turns, cancel)?,
        };
        self.note(kill, stop, left, StopStage::Signalled);
        self.runtime()
            .stop_container(&kill.id, left, cancel)
            .map_err(|e| {
                if cancel.is_cancelled() {
                    return KillError::Cancelled;
                }
                self.event(
                    pod,
                    &kill.name,
                    EventType::Warning,
                    "FailedKillPod",
                    &format!("error killing pod: {e}"),
                );
                KillError::Stop {
                    container: kill.name.clone(),
                    source: e,
                }
            })
    }

    /// Returns the stop as far as an earlier daemon has brought it, or a new one, and what is left of its grace period.
    fn stop_to_go_on_with(&self, pod: &Pod, kill: &ToKill, given: Duration) -> (Stop, Duration) {
        let now = Moment::now();
        let Some(begun) = self.deps.stops.take_up(&kill.id) else {
            let (since, stage) = (now, StopStage::Begun);
            return (Stop { since, stage }, given);
        };
        let left = begun.until.since(now);
        let left = match pod.container(&kill.name) {
            Some(_) => left.min(given),
            // Of a pod whose file is gone only this stop knows the grace period.
            None => left,
        };
        (begun.stop, left)
    }

    /// Runs the hook, unless it is done, and waits for the container's turn. Returns the grace period that is left for the
    /// stop signal.
    fn before_the_signal(
        &self,
        pod: &Pod,
        kill: &ToKill,
        stop: Stop,
        mut left: Duration,
        turns: Option<&Turns>,
        cancel: &Cancel,
    ) -> Result<Duration, KillError> {
        self.note(kill, stop, left, stop.stage);
        // The hook runs first, so that the hooks of all containers run while sidecars wait for their turn.
        if stop.stage == StopStage::Begun {
            left = left_of(left, self.pre_stop(pod, kill, stop.since, left, cancel));
        }
        if let Some(turns) = turns.filter(|_| !left.is_zero() && !cancel.is_cancelled()) {
            self.note(kill, stop, left, StopStage::HookDone);
            let before = actions::ends_after(&pod.spec, &kill.name);
            left = left_of(left, turns.wait(&before, left));
        }
        // a cancellation may have ended the hook or the wait
        match cancel.is_cancelled() {
            true => Err(KillError::Cancelled),
            false => Ok(stop_grace(left)),
        }
    }

    /// Writes down for the next daemon how far a stop has come.
    fn note(&self, kill: &ToKill, stop: Stop, left: Duration, stage: StopStage) {
        let begun = BegunStop {
            stop: Stop { stage, ..stop },
            until: Moment::now() + left,
        };
        self.deps.stops.note(&kill.id, begun);
    }

    /// Runs the container's preStop hook, at most for the grace period. Does not run the hook if the grace period is
    /// zero. Returns the time that the hook took. The container is stopped afterwards, even if the hook failed.
    fn pre_stop(
        &self,
        pod: &Pod,
        kill: &ToKill,
        since: Moment,
        grace: Duration,
        cancel: &Cancel,
    ) -> Duration {
        let Some(container) = pod.container(&kill.name).filter(|_| !grace.is_zero()) else {
            return Duration::ZERO;
        };
        let subject = HookSubject {
            pod,
            container,
            id: &kill.id,
        };
        let began = Moment::now();
        let ran = began.since(since);
        if let Err(e) = self.deps.hooks.pre_stop(subject, grace, ran, cancel) {
            self.hook_failed(HookKind::PreStop, subject, &e);
        }
        Moment::now().since(began)
    }

    /// Reports a failed hook. The log has the whole text. The event leaves out the hook's output, because the output
    /// may be a secret.
    pub(super) fn hook_failed(&self, kind: HookKind, subject: HookSubject<'_>, e: &HookError) {
        let HookSubject { pod, container, .. } = subject;
        if let HookError::Failed(Failure { text, .. }) = e {
            let (of, name, hook) = (pod.reference(), &container.name, kind.field());
            log::warn!("pod {of}, container {name}: {hook}: {text}");
        }
        if let Some((reason, text)) = e.event(kind) {
            self.event(pod, &container.name, EventType::Warning, reason, &text);
        }
    }
}
