//! A sync's acts, in the order of kubelet-probes 8.4: kill, create the sandbox, start.

use std::sync::Arc;

use super::syncer::{Problems, Syncer};
use crate::api::{Container, Pod, PodStatus};
use crate::clock::{Moment, go_duration};
use crate::events::EventType;
use crate::pod_actions::{self, PodActions};
use crate::runtime::{ContainerId, RuntimePodStatus, RuntimeState, StartErrorReason};

/// Instances of a container kept: the newest and the one before it.
const KEPT_INSTANCES: usize = 2;

impl Syncer {
    /// Kill, create the sandbox, start: the order of kubelet-probes 8.4.
    pub(super) fn carry_out(
        &self,
        pod: &Arc<Pod>,
        mut runtime: Arc<RuntimePodStatus>,
        actions: &PodActions,
        problems: &mut Problems<'_>,
    ) {
        if actions.kill_pod {
            if actions.create_sandbox && !runtime.sandboxes.is_empty() {
                let text = "Pod sandbox changed, it will be killed and re-created.";
                self.event(pod, "", EventType::Normal, "SandboxChanged", text);
                let init = |name: &str| pod.spec.init_containers.iter().any(|c| c.name == name);
                for c in runtime
                    .containers
                    .iter()
                    .filter(|c| c.state != RuntimeState::Exited || init(&c.name))
                {
                    self.deps
                        .probes
                        .renewing(pod, &c.name, "the pod's sandbox was made anew");
                }
            }
            self.kill_pod(pod, &runtime, None, problems);
        } else {
            self.kill_all(pod, &actions.kill, None, problems);
        }
        if !problems.errors.is_empty() {
            return;
        }
        if actions.kill_pod || !actions.kill.is_empty() {
            // what was killed has a finish time now: the back-off counts from it (lessons E2)
            match self.deps.runtime.pod_status(pod.uid()) {
                Ok(fresh) => runtime = Arc::new(fresh),
                Err(e) => return problems.add(e.message),
            }
        }
        if actions.create_sandbox {
            match self.purge_init_containers(pod, &runtime) {
                Ok(left) => runtime = Arc::new(left),
                Err(e) => return problems.add(e),
            }
        }
        let sandbox = match actions.create_sandbox {
            true => {
                let created = self.create_sandbox(pod, actions.attempt, problems);
                created.inspect(|_| self.forget_sandboxes(&runtime))
            }
            false => runtime.sandboxes.first().map(|s| s.id.clone()),
        };
        if let Some(sandbox) = sandbox {
            self.start_all(pod, &sandbox, &runtime, actions, problems);
        }
    }

    /// Init containers, then regular ones, in order. A plain init container that does not start ends the list; a sidecar
    /// is passed over and tried again at the next sync.
    fn start_all(
        &self,
        pod: &Pod,
        sandbox: &ContainerId,
        runtime: &RuntimePodStatus,
        actions: &PodActions,
        problems: &mut Problems<'_>,
    ) {
        for container in actions
            .init_start
            .iter()
            .filter_map(|i| pod.spec.init_containers.get(*i))
        {
            if !self.start(pod, sandbox, container, runtime, problems)
                && !container.always_restarts()
            {
                return;
            }
        }
        for container in actions
            .start
            .iter()
            .filter_map(|i| pod.spec.containers.get(*i))
        {
            self.start(pod, sandbox, container, runtime, problems);
        }
    }

    /// Initialisation starts anew with the sandbox, so what it came to before must not be taken for this one's. Returns
    /// what the runtime still knows.
    fn purge_init_containers(
        &self,
        pod: &Pod,
        runtime: &RuntimePodStatus,
    ) -> Result<RuntimePodStatus, String> {
        let mut left = runtime.clone();
        let init = |name: &str| pod.spec.init_containers.iter().any(|c| c.name == name);
        for old in left.containers.extract_if(.., |c| init(&c.name)) {
            self.deps
                .runtime
                .remove_container(&old.id)
                .map_err(|e| e.message)?;
        }
        Ok(left)
    }

    fn create_sandbox(
        &self,
        pod: &Pod,
        attempt: u32,
        problems: &mut Problems<'_>,
    ) -> Option<ContainerId> {
        match self.deps.runtime.run_pod_sandbox(pod, attempt) {
            Ok(id) => Some(id),
            Err(e) => {
                let text = format!("Failed to create pod sandbox: {e}");
                self.event(pod, "", EventType::Warning, "FailedCreatePodSandBox", &text);
                for container in pod.spec.all_containers() {
                    self.remember(pod.uid(), &container.name, e.reason.as_str(), &text);
                }
                problems.add(text);
                None
            }
        }
    }

    /// Those that the new one replaces: stopped before it was made, and nobody asks for them any more.
    fn forget_sandboxes(&self, runtime: &RuntimePodStatus) {
        for old in &runtime.sandboxes {
            if let Err(e) = self.deps.runtime.remove_pod_sandbox(&old.id) {
                log::warn!("cannot remove an ended sandbox: {e}; it goes with the pod");
            }
        }
    }

    /// Back-off, then the start of one container; whether it was started.
    fn start(
        &self,
        pod: &Pod,
        sandbox: &ContainerId,
        container: &Container,
        runtime: &RuntimePodStatus,
        problems: &mut Problems<'_>,
    ) -> bool {
        if problems.cancel.is_cancelled() {
            return false;
        }
        if let Err(held) = self.check_back_off(pod, container, runtime) {
            let name = &container.name;
            let of = pod.reference();
            let event = format!("Back-off restarting failed container {name} in pod {of}");
            self.event(pod, name, EventType::Warning, "BackOff", &event);
            let delay = go_duration(held.delay);
            let message = format!("back-off {delay} restarting failed container={name} pod={of}");
            self.remember(
                pod.uid(),
                name,
                StartErrorReason::CrashLoopBackOff.as_str(),
                &message,
            );
            problems.held_until(held.retry_at);
            return false;
        }
        self.prune(container, runtime);
        let attempt = next_attempt(
            container,
            runtime,
            self.deps.statuses.get(pod.uid()).as_deref(),
        );
        let result = self
            .deps
            .runtime
            .start_container(pod, sandbox, container, attempt);
        let started = result.is_ok();
        match result {
            Ok(_) => {
                self.failures
                    .lock()
                    .expect("no panic while the lock is held")
                    .remove(&(pod.uid().clone(), container.name.clone()));
                if attempt > 0 {
                    self.deps.probes.restarted(
                        pod,
                        &container.name,
                        attempt,
                        runtime.container(&container.name),
                    );
                }
                self.event(
                    pod,
                    &container.name,
                    EventType::Normal,
                    "Created",
                    "Container created",
                );
                self.event(
                    pod,
                    &container.name,
                    EventType::Normal,
                    "Started",
                    "Container started",
                );
            }
            Err(e) => {
                self.event(
                    pod,
                    &container.name,
                    EventType::Warning,
                    "Failed",
                    &format!("Error: {e}"),
                );
                self.remember(pod.uid(), &container.name, e.reason.as_str(), &e.message);
                problems.add(format!("cannot start container {}: {e}", container.name));
            }
        }
        started
    }

    fn check_back_off(
        &self,
        pod: &Pod,
        container: &Container,
        runtime: &RuntimePodStatus,
    ) -> Result<(), pod_actions::Held> {
        self.back_off
            .lock()
            .expect("no panic while the lock is held")
            .check(&pod.reference(), container, runtime, Moment::now())
    }

    /// Removes all but the newest ended instance, so that with the new one [`KEPT_INSTANCES`] are left.
    fn prune(&self, container: &Container, runtime: &RuntimePodStatus) {
        let ended = runtime
            .containers
            .iter()
            .filter(|c| c.name == container.name && c.state != RuntimeState::Running);
        for old in ended.skip(KEPT_INSTANCES - 1) {
            if let Err(e) = self.deps.runtime.remove_container(&old.id) {
                log::warn!(
                    "cannot remove an ended instance of container {}: {e}; trying again at its next restart",
                    container.name
                );
            }
        }
    }
}

/// Newest known instance + 1 (8.4, last paragraph). Where the runtime knows none, the status before tells: it has counted
/// a container that vanished already (9.3 S3), one that ended not yet.
fn next_attempt(container: &Container, runtime: &RuntimePodStatus, old: Option<&PodStatus>) -> u32 {
    let newest = runtime
        .containers
        .iter()
        .filter(|c| c.name == container.name)
        .map(|c| c.attempt)
        .max();
    let counted = || {
        let before = old?.container(&container.name)?;
        Some(before.restart_count + u32::from(!before.container_id.is_empty()))
    };
    newest.map(|n| n + 1).or_else(counted).unwrap_or(0)
}
