//! The thread of one worker: waits for tick, trigger or stop, runs a step, applies what the machine decided.
//!
//! Invariants: steps never overlap. A stop takes precedence over everything else that is ready. A
//! panic in a step ends only this step. A panic elsewhere, or one that leaves the thread in a
//! foreign network namespace, ends the thread; the worker continues with its state on a new thread.
//! At the end of a worker its cached result is removed first, then its entry in the manager's
//! table.

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
use super::worker::{Action, Next, StepInputs, Worker};
use crate::api::{Pod, Probe};
use crate::base::clock::{Moment, go_duration, random_fraction};
use crate::base::locks::Locked;
use crate::base::wire::dial::{come_home, namespace_lost};
use crate::engine::runtime::ContainerId;

/// Stack of a worker's thread: 128 KiB. tests/kubelet/prober_net.rs measures what a probe needs of it; frames of a debug build
/// are several times as large.
pub const STACK_SIZE: usize = if cfg!(debug_assertions) { 256 } else { 128 } * 1024;

/// The instance that a worker has seen last; the manager triggers a worker that has not seen the
/// newest one.
pub(super) type LastInstance = Arc<Mutex<Option<ContainerId>>>;

/// A trigger: a step must run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The container has no Success yet: probe now (kubelet-probes 4.3). For readiness.
    Probe(ContainerId),
    /// There is a new instance; no effect once the worker has seen it.
    Notice(ContainerId),
}

/// How the thread of a worker ends.
pub(super) enum ThreadEnd {
    /// The worker is over.
    WorkerOver(WorkerKey),
    /// The thread cannot continue; the worker can, on another thread.
    ThreadLost(Box<Job>),
}

/// Called at the end of a worker's thread, as its last action.
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
    /// The memory of the last look and of the last run.
    memory: Memory,
    period: Duration,
    cadence: Cadence,
    mailbox: Arc<Mailbox<Trigger>>,
    last_instance: LastInstance,
    /// The end of the initial delay: a step is due then, and the cadence restarts with it.
    delayed_until: Option<Moment>,
    /// The time at which the step was due; `None` for a trigger.
    due: Option<Moment>,
    started: bool,
}

impl Job {
    /// A worker that has not run yet. Boxed, so that no copy of it stays behind in the frames that hand it on.
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
            delayed_until: None,
            due: None,
            started: false,
        })
    }

    /// Starts the thread, named `startup:<container>`, `readiness:…`, `liveness:…`; the kernel
    /// shows the first 15 bytes.
    ///
    /// # Errors
    /// Returns an error if no thread can be started; the worker is lost.
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
                // The next thread is started on this one, and would be lost with it.
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

    /// kubelet-probes 2.2 step 2; a stop ends it (O6).
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

    /// Waits for the next step; returns false when the worker must end.
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
                // The ticks that a long run itself missed do not count as late.
                self.due = Some(due.max(free));
                return true;
            }
            let next = self.cadence.next();
            let until = self.delayed_until.map_or(next, |at| at.min(next));
            match self.mailbox.wait(until.since(now)) {
                Woken::Stop => return false,
                Woken::Trigger(Trigger::Notice(id)) if self.worker.container_id() == Some(&id) => {}
                // this trigger was sent while the probe that found Success still ran; with a
                // Success no sync triggers
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
        if before.adopted {
            *self.last_instance.locked() = self.worker.container_id().cloned();
        }
        for action in before.actions {
            self.apply(action, None);
        }
        self.delayed_until = None;
        match before.next {
            Next::Exit => return false,
            Next::Continue => {}
            Next::Delayed(until) => self.delayed_until = Some(until),
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
            // the probe was paused while it ran: the state stays as it was at the pause
            return;
        }
        if let Some(action) = self.worker.after(verdict) {
            self.apply(action, Some(&outcome));
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
                // The log at level info has the first of the runs that led here.
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

/// Rounded to microseconds; more digits are not useful.
fn round(d: Duration) -> Duration {
    Duration::from_micros(d.as_micros().try_into().unwrap_or(u64::MAX))
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
