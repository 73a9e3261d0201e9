//! The thread of one worker: waits for tick, trigger or stop, runs a step, applies what the machine decided.
//!
//! Invariants: steps never overlap. Stop wins over everything that is ready with it. A panic in a step costs that step;
//! one outside, or one that leaves the thread in a foreign network namespace, costs the thread: the worker goes on with
//! its state on a fresh one. On leaving the cached result goes first, then the entry in the manager's table.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::cadence::{Cadence, max_jitter};
use super::history::Runs;
use super::mailbox::{Mailbox, Told};
use super::manager::{Key, Shared};
use super::metrics::{Recorded, Series};
use super::outcome::Outcome;
use super::prober::{Memory, Subject};
use super::results::ProbeResult;
use super::sight::View;
use super::worker::{Action, Next, StepInputs, Worker};
use crate::api::{Pod, Probe, ProbeType};
use crate::clock::{Moment, Time, go_duration, random_fraction};
use crate::runtime::ContainerId;
use crate::wire::dial::namespace_lost;

/// Stack of a worker's thread: 128 KiB. tests/prober_net.rs measures what a probe needs of it; frames of a debug build
/// are several times as large.
pub const STACK_SIZE: usize = if cfg!(debug_assertions) { 256 } else { 128 } * 1024;

/// A trigger comes while the status that caused it is still being stored: it is looked for this often …
const CHASE_STEPS: u32 = 100;
/// … at this distance.
const CHASE_PAUSE: Duration = Duration::from_millis(10);

/// The instance a worker has last seen; the manager nudges a worker that has not seen a new one.
pub(super) type Seen = Arc<Mutex<Option<ContainerId>>>;

/// A wish for a step now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The container has no Success: probe (kubelet-probes 4.3). For readiness.
    Probe(ContainerId),
    /// There is a new instance; void once the worker has seen it and does not wait for its status to catch up.
    Notice(ContainerId),
}

/// A worker with everything its thread needs.
pub(super) struct Job {
    shared: Arc<Shared>,
    pub(super) key: Key,
    pod: Arc<Pod>,
    recorded: Recorded,
    runs: Runs,
    worker: Worker,
    view: View,
    /// Of the view and of the run before.
    memory: Memory,
    period: Duration,
    cadence: Cadence,
    mailbox: Arc<Mailbox<Trigger>>,
    seen: Seen,
    /// An extra step, and whether the cadence starts anew with it.
    wake: Option<(Moment, bool)>,
    chase: Option<(ContainerId, u32)>,
    /// The instant of the step, where it has one: not that of a trigger.
    due: Option<Moment>,
    /// The last step found a status that may not have caught up.
    lagging: bool,
    started: bool,
}

impl Job {
    /// A worker that has not run yet. Boxed, so that no copy of it stays behind in the frames that hand it on.
    pub(super) fn new(
        shared: Arc<Shared>,
        key: Key,
        pod: Arc<Pod>,
        probe: &Probe,
        mailbox: Arc<Mailbox<Trigger>>,
        seen: Seen,
    ) -> Box<Self> {
        let worker = Worker::new(key.probe_type, probe);
        let runs = shared
            .history
            .runs(&key.uid, &key.container, key.probe_type);
        let recorded = shared.metrics.add(Series {
            pod: pod.reference(),
            container: key.container.clone(),
            probe_type: key.probe_type,
        });
        let (period, cadence) = (probe.period(), Cadence::new(probe.period(), Moment::now()));
        Box::new(Self {
            shared,
            key,
            pod,
            recorded,
            runs,
            worker,
            view: View::default(),
            memory: Memory::default(),
            period,
            cadence,
            mailbox,
            seen,
            wake: None,
            chase: None,
            due: None,
            lagging: false,
            started: false,
        })
    }

    /// Starts the thread: `startup:<container>`, `readiness:…`, `liveness:…`; the kernel shows the first 15 bytes.
    ///
    /// # Errors
    /// No thread can be made; the worker is lost.
    pub(super) fn spawn(self: Box<Self>) -> io::Result<JoinHandle<()>> {
        Builder::new()
            .name(self.key.thread_name())
            .stack_size(STACK_SIZE)
            .spawn(move || self.main())
    }

    fn main(mut self: Box<Self>) {
        let shared = self.shared.clone();
        match catch_unwind(AssertUnwindSafe(|| self.run())) {
            Ok(()) => shared.ended(&self.key),
            Err(panic) => {
                log::error!(
                    "{} panicked and is started again: {}",
                    self.key.thread_name(),
                    panic_text(&*panic)
                );
                shared.count_panic();
                shared.restart(self);
            }
        }
    }

    fn run(&mut self) {
        let mut go_on = if self.started {
            self.wait()
        } else {
            self.wait_for_jitter()
        };
        self.started = true;
        while go_on {
            go_on = self.guarded_step() && self.wait();
        }
        self.shared.metrics.remove(&self.recorded);
        if let Some(id) = self.worker.container_id() {
            self.shared.results.of(self.key.probe_type).remove(id);
        }
    }

    /// kubelet-probes 2.2 step 2; a stop ends it (O6).
    fn wait_for_jitter(&mut self) -> bool {
        let now = Moment::now();
        let limit = max_jitter(
            self.period,
            now.since(self.shared.started),
            self.container_is_older(),
        );
        let jitter = limit.mul_f64(random_fraction());
        let go_on = !self.mailbox.wait_for_stop(jitter);
        self.cadence.reset(now + jitter);
        self.due = Some(now + jitter);
        go_on
    }

    fn container_is_older(&self) -> bool {
        let status = self.shared.statuses.pod_status(&self.key.uid);
        let entry = status
            .as_deref()
            .and_then(|s| s.container(&self.key.container))
            .filter(|c| c.state.running.is_some());
        let Some(id) = entry.map(|c| ContainerId::from(c.container_id.as_str())) else {
            return false;
        };
        self.shared.is_restored(&id)
            || self
                .shared
                .statuses
                .started_moment(&self.key.uid, &id)
                .is_some_and(|s| s < self.shared.started)
    }

    /// Waits for the next step; false when it is to end.
    #[inline(never)]
    fn wait(&mut self) -> bool {
        let free = Moment::now();
        let mut now = free;
        self.due = None;
        loop {
            if self.mailbox.is_stopped() {
                return false;
            }
            if let Some((at, reset)) = self.wake.take_if(|(at, _)| *at <= now) {
                if reset {
                    self.cadence.reset(now);
                    self.due = Some(at.max(free));
                }
                return true;
            }
            if let Some(due) = self.cadence.take(now) {
                // A run that outlasts its period is not late for what it missed itself.
                self.due = Some(due.max(free));
                return true;
            }
            let until = self
                .wake
                .map_or(self.cadence.next(), |(at, _)| at.min(self.cadence.next()));
            match self.mailbox.wait(until.since(now)) {
                Told::Stop => return false,
                Told::Trigger(Trigger::Notice(id))
                    if !self.lagging && self.worker.container_id() == Some(&id) => {}
                // sent while the probe that found Success was still running: once that is known no sync triggers
                Told::Trigger(Trigger::Probe(id))
                    if self.shared.results.readiness.get(&id) == Some(ProbeResult::Success) => {}
                Told::Trigger(Trigger::Probe(id) | Trigger::Notice(id)) => {
                    self.cadence.reset(Moment::now());
                    self.chase = Some((id, CHASE_STEPS));
                    return true;
                }
                Told::Nothing => {}
            }
            now = Moment::now();
        }
    }

    /// Kubelet-probes 2.6: a panic is logged, counted and otherwise a "continue".
    #[inline(never)]
    fn guarded_step(&mut self) -> bool {
        match catch_unwind(AssertUnwindSafe(|| self.step())) {
            Ok(go_on) => go_on,
            Err(panic) if namespace_lost() => resume_unwind(panic),
            Err(panic) => {
                log::error!(
                    "a step of {} panicked: {}",
                    self.key.thread_name(),
                    panic_text(&*panic)
                );
                self.shared.count_panic();
                true
            }
        }
    }

    fn step(&mut self) -> bool {
        let shared = &*self.shared;
        if self.view.refresh(
            &*shared.statuses,
            &self.key.uid,
            &self.pod.spec,
            &self.key.container,
        ) {
            self.memory.forget_prepared();
        }
        let inputs = StepInputs {
            sight: &self.view.sight,
            deletion_timestamp: self.pod.metadata.deletion_timestamp.is_some(),
            manager_started: shared.started,
            container_started: &|id| shared.statuses.started_moment(&self.key.uid, id),
            restored: &|id| shared.is_restored(id),
        };
        let before = self.worker.before(Moment::now(), &inputs);
        if before.adopted {
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) =
                self.worker.container_id().cloned();
        }
        for action in before.actions {
            self.apply(action, None);
        }
        self.wake = None;
        self.lagging = before.next == Next::Lagging;
        match before.next {
            Next::Exit => return false,
            Next::Continue | Next::Lagging => {}
            Next::Delayed(until) => self.wake = Some((until, true)),
            Next::Probe(id) => self.probe(&id),
        }
        self.chase();
        true
    }

    /// While the status that caused a trigger is not stored yet: look again soon, a few times.
    fn chase(&mut self) {
        let Some((id, left)) = self.chase.take().filter(|(_, left)| *left > 0) else {
            return;
        };
        let held_back = self.lagging && self.key.probe_type == ProbeType::Readiness;
        if held_back || self.worker.container_id() != Some(&id) {
            self.chase = Some((id, left - 1));
            // the run that this leads to is the triggered one: ticks count from it (kubelet-probes 13.1)
            self.wake = Some((Moment::now() + CHASE_PAUSE, true));
        }
    }

    fn probe(&mut self, id: &ContainerId) {
        if self.is_paused() {
            return;
        }
        if let Some(due) = self.due {
            self.shared
                .metrics
                .lateness
                .observe(Moment::now().since(due));
        }
        let Some(status) = &self.view.status else {
            return;
        };
        let subject = Subject {
            pod: &self.pod,
            status,
            container: &self.key.container,
            id,
        };
        let (verdict, outcome) =
            self.shared
                .prober
                .probe(self.key.probe_type, subject, &mut self.memory);
        self.recorded.record(verdict, outcome.all_tries);
        self.runs.record(&outcome, Time::now());
        if self.is_paused() {
            // paused while it ran: the state is as the person who paused it saw it
            return;
        }
        if let Some(action) = self.worker.after(verdict) {
            self.apply(action, Some(&outcome));
        }
    }

    fn is_paused(&self) -> bool {
        let pauses = &self.shared.pauses;
        pauses.any()
            && pauses.covers(
                &self.key.uid,
                &self.key.container,
                self.key.probe_type,
                Moment::now(),
            )
    }

    #[inline(never)]
    fn apply(&self, action: Action, outcome: Option<&Outcome>) {
        let cache = self.shared.results.of(self.key.probe_type);
        match action {
            Action::Remove(id) => cache.remove(&id),
            Action::Set(id, result) => {
                let old = cache.set(&id, result, &self.key.uid);
                if old == Some(result) {
                    return;
                }
                let name = format!(
                    "{}/{} {}",
                    self.pod.metadata.name,
                    self.key.container,
                    self.key.probe_type.as_str().to_lowercase()
                );
                let old = old.map_or_else(|| "none".to_owned(), |o| o.to_string());
                match outcome {
                    Some(o) => log::info!(
                        "probe {name}: {old} -> {result} after {} ({})",
                        go_duration(round(o.duration)),
                        o.cause()
                    ),
                    None => log::info!(
                        "probe {name}: {old} -> {result} (container {})",
                        &id.as_str()[..id.as_str().len().min(12)]
                    ),
                }
            }
        }
    }
}

/// To microseconds: more digits say nothing.
fn round(d: Duration) -> Duration {
    Duration::from_micros(d.as_micros().try_into().unwrap_or(u64::MAX))
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
