//! The pure machine of one probe worker: what a step does before and after its handler (kubelet-probes 2.3–2.5).
//!
//! Invariants: no thread, clock, lock or channel; what is to be cached is returned as data. A result is only ever set
//! for the id the worker holds. On hold no handler runs, until a new container id. All run lengths start anew with a
//! new container id (lessons A6, against v1.36 where a readiness streak is carried over). Delays are counted on the
//! boot clock (lessons B5).

use std::time::Duration;

use crate::api::pod::RestartPolicy;
use crate::api::{ContainerStatus, PodStatus, Probe, ProbeType};
use crate::clock::Moment;
use crate::prober::results::ProbeResult;
use crate::prober::should_restart;
use crate::runtime::ContainerId;

/// A container that started this long before the manager has been there before it (kubelet-probes 2.4).
pub const OLDER_MARGIN: Duration = Duration::from_secs(10);

/// What a step looks at.
pub struct StepInputs<'a> {
    /// The stored API status of the pod.
    pub status: Option<&'a PodStatus>,
    /// The pod's restart policy.
    pub pod_restart_policy: RestartPolicy,
    /// The worker's pod object carries a deletion timestamp.
    pub deletion_timestamp: bool,
    /// When the manager was made.
    pub manager_started: Moment,
    /// When a running container started; None when nobody knows (yet).
    pub container_started: &'a dyn Fn(&ContainerId) -> Option<Moment>,
    /// Readiness and started of this container were restored from an earlier daemon, so it is older than the manager.
    pub restored: &'a dyn Fn(&ContainerId) -> bool,
}

/// A change of the result cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Store and, when it is a change, send.
    Set(ContainerId, ProbeResult),
    /// Forget.
    Remove(ContainerId),
}

/// What follows the first half of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for the next tick.
    Continue,
    /// Wait for the next tick; the stored status may not have caught up with what is known elsewhere (rows 1, 3, 6, 10).
    Lagging,
    /// Wait for the end of the initial delay (row 8).
    Delayed(Moment),
    /// End the worker.
    Exit,
    /// Run the handler against this instance and call [`Worker::after`].
    Probe(ContainerId),
}

/// The first half of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// Cache changes, in order.
    pub actions: Vec<Action>,
    /// What follows.
    pub next: Next,
}

/// What the handler said. An error is no verdict: it changes nothing (row 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The prober's Success.
    Success,
    /// The prober's Failure without an error.
    Failure,
    /// Nothing can be said of the container.
    Error,
}

/// A worker's state (kubelet-probes 2.1).
#[derive(Clone, Debug)]
pub struct Worker {
    probe_type: ProbeType,
    container: String,
    initial_delay: Duration,
    success_threshold: u32,
    failure_threshold: u32,
    id: Option<ContainerId>,
    /// When this instance was first seen; stands in for a start time nobody knows.
    seen: Moment,
    last: ProbeResult,
    run: u32,
    on_hold: bool,
}

/// The seed of a new container (kubelet-probes 2.1).
pub fn initial_value(probe_type: ProbeType) -> ProbeResult {
    match probe_type {
        ProbeType::Liveness => ProbeResult::Success,
        ProbeType::Readiness => ProbeResult::Failure,
        ProbeType::Startup => ProbeResult::Unknown,
    }
}

/// Whether a container that started then was there before the manager (kubelet-probes 2.4, 4.4).
pub fn is_older(started: Moment, manager_started: Moment) -> bool {
    started + OLDER_MARGIN < manager_started
}

impl Worker {
    /// A worker for one probe of one container; the probe's numbers are fixed from here on.
    pub fn new(probe_type: ProbeType, container: &str, probe: &Probe) -> Self {
        Self {
            probe_type,
            container: container.into(),
            initial_delay: probe.initial_delay(),
            success_threshold: probe.success_threshold.max(1) as u32,
            failure_threshold: probe.failure_threshold.max(1) as u32,
            id: None,
            seen: Moment::default(),
            last: ProbeResult::Success,
            run: 0,
            on_hold: false,
        }
    }

    /// The instance it watches.
    pub fn container_id(&self) -> Option<&ContainerId> {
        self.id.as_ref()
    }

    /// Whether it waits for a new instance.
    pub fn on_hold(&self) -> bool {
        self.on_hold
    }

    /// Length of the current run of equal results.
    pub fn run(&self) -> u32 {
        self.run
    }

    /// Rows 1–10 of kubelet-probes 2.3.
    pub fn before(&mut self, now: Moment, inputs: &StepInputs<'_>) -> Before {
        let mut actions = Vec::new();
        let next = self.look(now, inputs, &mut actions);
        Before { actions, next }
    }

    fn look(&mut self, now: Moment, inputs: &StepInputs<'_>, actions: &mut Vec<Action>) -> Next {
        let Some(status) = inputs.status else { return Next::Lagging };
        if status.phase.is_terminal() {
            return Next::Exit;
        }
        let Some(container) = status.container(&self.container).filter(|c| !c.container_id.is_empty()) else { return Next::Lagging };
        let id = ContainerId::from(container.container_id.as_str());
        if self.id.as_ref() != Some(&id) {
            self.adopt(id.clone(), container, now, inputs, actions);
        }
        if self.on_hold {
            return Next::Continue;
        }
        if container.state.running.is_none() {
            actions.push(Action::Set(id, ProbeResult::Failure));
            return not_running(container, inputs.pod_restart_policy);
        }
        if inputs.deletion_timestamp && self.probe_type != ProbeType::Readiness {
            actions.push(Action::Set(id, ProbeResult::Success));
            return Next::Exit;
        }
        let started = (inputs.container_started)(&id).unwrap_or(self.seen);
        if now.since(started).as_secs() < self.initial_delay.as_secs() {
            return Next::Delayed(started + self.initial_delay);
        }
        match (container.started.unwrap_or(false), self.probe_type) {
            (true, ProbeType::Startup) => Next::Continue,
            (false, ProbeType::Liveness | ProbeType::Readiness) => Next::Lagging,
            _ => Next::Probe(id),
        }
    }

    /// Row 4: a new container id (kubelet-probes 2.4).
    fn adopt(&mut self, id: ContainerId, container: &ContainerStatus, now: Moment, inputs: &StepInputs<'_>, actions: &mut Vec<Action>) {
        if let Some(old) = self.id.replace(id.clone()) {
            actions.push(Action::Remove(old));
        }
        let started = (inputs.container_started)(&id);
        let older = container.state.running.is_some()
            && ((inputs.restored)(&id) || started.is_some_and(|s| is_older(s, inputs.manager_started)));
        if !older {
            actions.push(Action::Set(id, initial_value(self.probe_type)));
        }
        self.seen = now;
        self.on_hold = false;
        self.run = 0;
    }

    /// Rows 11–16 of kubelet-probes 2.3: what the handler's verdict changes. Only after [`Next::Probe`].
    pub fn after(&mut self, verdict: Verdict) -> Option<Action> {
        let (result, threshold) = match verdict {
            Verdict::Success => (ProbeResult::Success, self.success_threshold),
            Verdict::Failure => (ProbeResult::Failure, self.failure_threshold),
            Verdict::Error => return None,
        };
        self.run = if result == self.last { self.run.saturating_add(1) } else { 1 };
        self.last = result;
        if self.run < threshold {
            return None;
        }
        let failed_liveness = self.probe_type == ProbeType::Liveness && result == ProbeResult::Failure;
        if failed_liveness || self.probe_type == ProbeType::Startup {
            self.on_hold = true;
            self.run = 0;
        }
        self.id.clone().map(|id| Action::Set(id, result))
    }
}

/// Kubelet-probes 2.5: a worker ends with a container that ended for good.
fn not_running(container: &ContainerStatus, policy: RestartPolicy) -> Next {
    match &container.state.terminated {
        Some(end) if !should_restart(policy, end.exit_code) => Next::Exit,
        _ => Next::Lagging,
    }
}
