//! The thread of one worker: waits for a tick, a trigger or a stop, runs a step, and applies the decision of the state
//! machine.
//!
//! Invariants: steps never overlap. A stop takes precedence over everything else that is ready. A panic in a step ends
//! only this step. A panic elsewhere, or one that leaves the thread in a foreign network namespace, ends the thread.
//! The worker then continues with its state on a new thread. When a worker ends, its cached result is removed first,
//! then its entry in the manager's table.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::cadence::{Cadence, max_jitter};
use super::container_view::StatusView;
use super::context::{Context, ProbeRecord, WorkerKey};
use super::mailbox::{Mailbox, Woken};
use super::outcome::Outcome;
use super::prober::{Memory, Subject};
use super::results::ProbeResult;
use super::worker::{Action, Next, StepInputs, Streak, Worker};
use crate::api::{Pod, Probe};
use crate::base::clock::{Moment, go_duration, random_fraction};
use crate::base::locks::Locked;
use crate::base::wire::dial::{come_home, namespace_lost};
use crate::engine::runtime::ContainerId;

/// The stack size of a worker's thread in bytes: 128 KiB. The test tests/kubelet/prober_net.rs measures how much of the
/// stack a probe needs. Frames of a debug build are several times as large, so the stack of a debug build has 256 KiB.
pub const STACK_SIZE: usize = if cfg!(debug_assertions) { 256 } else { 128 } * 1024;

/// The instance that a worker has seen last. The manager triggers a worker that has not seen the newest instance.
pub(super) type LastInstance = Arc<Mutex<Option<ContainerId>>>;

/// A trigger: the worker must run a step now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The container has no Success yet, so its readiness worker must probe now (kubelet-probes 4.3).
    Probe(ContainerId),
    /// There is a new instance. The trigger has no effect once the worker has seen the instance.
    Notice(ContainerId),
}

/// The reason why the thread of a worker ends.
pub(super) enum ThreadEnd {
    /// The worker has ended for good.
    WorkerOver(WorkerKey),
    /// The thread cannot continue. The worker continues on another thread.
    ThreadLost(Box<Job>),
}

/// The function that is called at the end of a worker's thread, as the last action of the thread.
pub(super) type OnEnd = Arc<dyn Fn(ThreadEnd) + Send + Sync>;

/// A worker with everything its thread needs.
pub(super) struct Job {
    context: Arc<Context>,
    pub(super) key: WorkerKey,
    pod: Arc<Pod>,
    on_end: OnEnd,
    record: Box<dyn ProbeRecord>,
    worker: Worker,
    view: StatusView,
    /// The state of the probe that is kept from run to run.
    memory: Memory,
    period: Duration,
    cadence: Cadence,
    mailbox: Arc<Mailbox<Trigger>>,
    last_instance: LastInstance,
    /// The count that the record of the instance has.
    written: Option<Streak>,
    /// The end of the initial delay. A step is due at that time, and the cadence restarts with this step.
    delayed_until: Option<Moment>,
    /// The time at which the step was due. `None` means that a trigger caused the step.
    due: Option<Moment>,
    started: bool,
}

impl Job {
    /// Makes a worker that has not run yet. The worker is boxed, so the stack frames that pass it on keep no copy of
    /// it.
    pub(super) fn new(
        context: Arc<Context>,
        key: WorkerKey,
        pod: Arc<Pod>,
        probe: &Probe,
        mailbox: Arc<Mailbox<Trigger>>,
        last_instance: LastInstance,
        on_end: OnEnd,
    ) -> Box<Self> {
        let worker = Worker::new(key.probe_type, probe);
        let record = context
            .records
            .open(&pod.reference(), &key.container, key.probe_type);
        let (period, cadence) = (probe.period(), Cadence::new(probe.period(), Moment::now()));
        Box::new(Self {
            context,
            key,
            pod,
            on_end,
            record,
            worker,
            view: StatusView::default(),
            memory: Memory::default(),
            period,
            cadence,
            mailbox,
            last_instance,
            written: None,
            delayed_until: None,
            due: None,
            started: false,
        })
    }

    /// Starts the thread with the name `startup:<container>`, `readiness:<container>` or `liveness:<container>`. The
    /// kernel shows the first 15 bytes of the name.
    ///
    /// # Errors
    /// Returns an error if no thread can be started. The worker is then lost.
    pub(super) fn spawn(self: Box<Self>) -> io::Result<JoinHandle<()>> {
        Builder::new()
            .name(self.key.thread_name())
            .stack_size(STACK_SIZE)
            .spawn(move || self.main())
    }

    fn main(mut self: Box<Self>) {
        let on_end = self.on_end.clone();
        match catch_unwind(AssertUnwindSafe(|| self.run())) {
            Ok(()) => on_end(ThreadEnd::WorkerOver(self.key)),
            Err(panic) => {
                log::error!(
                    "{} panicked and is started again: {}",
                    self.key.thread_name(),
                    panic_text(&*panic)
                );
                self.context.count_panic();
                // The next thread is started from this thread and inherits its network namespace.
                if !come_home() {
                    log::error!("the next thread of it is in a foreign network namespace, too");
                }
                on_end(ThreadEnd::ThreadLost(self));
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
        self.record.close();
        if let Some(id) = self.worker.container_id() {
            self.context.results.of(self.key.probe_type).remove(id);
        }
    }

    /// Waits for the start jitter (kubelet-probes 2.2 step 2). Returns false if a stop came during the wait (O6).
    fn wait_for_jitter(&mut self) -> bool {
        let now = Moment::now();
        let limit = max_jitter(
            self.period,
            now.since(self.context.started),
            self.container_is_older(),
        );
        let jitter = limit.mul_f64(random_fraction());
        let go_on = !self.mailbox.wait_for_stop(jitter);
        self.cadence.reset(now + jitter);
        self.due = Some(now + jitter);
        go_on
    }

    fn container_is_older(&self) -> bool {
        let status = self.context.statuses.pod_status(&self.key.uid);
        let entry = status
            .as_deref()
            .and_then(|s| s.container(&self.key.container))
            .filter(|c| c.state.running.is_some());
        let Some(id) = entry.map(|c| ContainerId::from(c.container_id.as_str())) else {
            return false;
        };
        self.context.is_restored(&id)
            || self
                .context
                .statuses
                .started_moment(&self.key.uid, &id)
                .is_some_and(|s| s < self.context.started)
    }

    /// Waits for the next step. Returns false if the worker must end.
    #[inline(never)]
    fn wait(&mut self) -> bool {
        let free = Moment::now();
        let mut now = free;
        self.due = None;
        loop {
            if self.mailbox.is_stopped() {
                return false;
            }
            if let Some(at) = self.delayed_until.take_if(|at| *at <= now) {
                self.cadence.reset(now);
                self.due = Some(at.max(free));
                return true;
            }
            if let Some(due) = self.cadence.take(now) {
                // The ticks that were missed during a long run do not count as late.
                self.due = Some(due.max(free));
                return true;
            }
            let next = self.cadence.next();
            let until = self.delayed_until.map_or(next, |at| at.min(next));
            match self.mailbox.wait(until.since(now)) {
                Woken::Stop => return false,
                Woken::Trigger(Trigger::Notice(id)) if self.worker.container_id() == Some(&id) => {}
                // The trigger was sent while the probe that returned Success was still running. After a Success no sync
                // sends a trigger.
                Woken::Trigger(Trigger::Probe(id))
                    if self.context.results.readiness.get(&id) == Some(ProbeResult::Success) => {}
                Woken::Trigger(_) => {
                    self.cadence.reset(Moment::now());
                    return true;
                }
                Woken::TimeUp => {}
            }
            now = Moment::now();
        }
    }

    /// Kubelet-probes 2.6: runs a step. A panic in the step is caught, logged and counted, and the worker continues.
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
                self.context.count_panic();
                true
            }
        }
    }

    fn step(&mut self) -> bool {
        let context = &*self.context;
        if self.view.refresh(
            &*context.statuses,
            &self.key.uid,
            &self.pod.spec,
            &self.key.container,
        ) {
            self.memory.forget_prepared();
        }
        let inputs = StepInputs {
            container: &self.view.container,
            deletion_timestamp: self.pod.metadata.deletion_timestamp.is_some(),
            manager_started: context.started,
            container_started: &|id| context.statuses.started_moment(&self.key.uid, id),
            restored: &|id| context.is_restored(id),
        };
        let before = self.worker.before(Moment::now(), &inputs);
        let mut not_before = None;
        if before.adopted {
            *self.last_instance.locked() = self.worker.container_id().cloned();
            not_before = self.go_on_with_streak();
        }
        for action in before.actions {
            self.apply(action, None);
        }
        self.delayed_until = None;
        match before.next {
            Next::Exit => return false,
            Next::Continue => {}
            Next::Delayed(until) => self.delayed_until = Some(until),
            Next::Probe(_) if not_before > Some(Moment::now()) => self.delayed_until = not_before,
            Next::Probe(id) => self.probe(&id),
        }
        true
    }

    fn probe(&mut self, id: &ContainerId) {
        if self.is_paused() {
            return;
        }
        if let Some(due) = self.due {
            self.record.begun(Moment::now().since(due));
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
            self.context
                .prober
                .probe(self.key.probe_type, subject, &mut self.memory);
        self.record.ran(verdict, &outcome);
        if self.is_paused() {
            // The probe was paused while it ran: the state stays as it was when the pause began.
            return;
        }
        if let Some(action) = self.worker.after(verdict) {
            self.apply(action, Some(&outcome));
        }
        self.note_streak(id);
    }

    /// Goes on with the results in a row that an earlier daemon has counted for this instance. Returns the time at which
    /// the next result is due: results that count together are a period apart.
    fn go_on_with_streak(&mut self) -> Option<Moment> {
        let id = self.worker.container_id()?;
        let (streaks, of) = (&self.context.streaks, self.key.probe_type);
        let left = streaks.left(id, of, self.period, Moment::now());
        self.written = left.map(|(streak, _)| streak);
        let (streak, at) = left?;
        self.worker.go_on(streak);
        Some(at + self.period)
    }

    fn note_streak(&mut self, id: &ContainerId) {
        let streak = self.worker.open_streak();
        if streak != self.written {
            self.context.streaks.note(id, self.key.probe_type, streak);
            self.written = streak;
        }
    }

    fn is_paused(&self) -> bool {
        let pauses = &self.context.pauses;
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
        let cache = self.context.results.of(self.key.probe_type);
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
                    self.key.probe_type.word()
                );
                let old = old.map_or_else(|| "none".to_owned(), |o| o.to_string());
                // At level info the log has the first of the runs that led to this change.
                match outcome {
                    Some(o) => log::debug!(
                        "probe {name}: {old} -> {result} after {} ({}) {}",
                        go_duration(round(o.duration)),
                        o.phase,
                        o.cause()
                    ),
                    None => log::debug!(
                        "probe {name}: {old} -> {result} (container {})",
                        &id.as_str()[..id.as_str().len().min(12)]
                    ),
                }
            }
        }
    }
}

/// Rounds to microseconds. More digits are not useful.
fn round(d: Duration) -> Duration {
    Duration::from_micros(d.as_micros().try_into().unwrap_or(u64::MAX))
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
