//! Carries out a sync in the order of kubelet-probes 8.4: kill, volumes, sandbox. The steps for each container are:
//! image, configuration, create, start, postStart.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::killing::CANCELLED;
use super::syncer::{Problems, Syncer};
use crate::api::pod::VolumeMount;
use crate::api::{Container, HookKind, Pod, PodStatus};
use crate::base::cancel::Cancel;
use crate::base::clock::{Moment, go_duration};
use crate::base::locks::Locked;
use crate::engine::images::manager::ImageEvent;
use crate::engine::runtime::{
    ContainerId, ImageSpec, RuntimeError, RuntimePodStatus, RuntimeState,
};
use crate::pods::actions::{self, KillReason, PodActions, ToKill};
use crate::pods::container_config::{DnsWarning, ImageVolumes};
use crate::pods::events::EventType;
use crate::pods::kuberuntime::{StartError, StartErrorReason};
use crate::pods::lifecycle::{Failure, HookError, HookSubject};
use crate::pods::status::newest_number;
use crate::pods::volumes::{MountedVolumes, Outdated, VolumeError};

/// The number of instances that are kept of a container: the newest instance and the instance before it.
const KEPT_INSTANCES: usize = 2;

/// The sandbox and the volumes in which a pod's containers start.
struct ReadySandbox {
    id: ContainerId,
    volumes: MountedVolumes,
    /// The images of volumes by volume name. A sync ensures each image once for all containers that mount it.
    images: BTreeMap<String, Result<ImageSpec, StartError>>,
}

impl Syncer {
    /// Carries out the actions: kill, volumes, sandbox, start, in the order of kubelet-probes 8.4.
    pub(super) fn carry_out(
        &self,
        pod: &Arc<Pod>,
        runtime: Arc<RuntimePodStatus>,
        actions: &PodActions,
        problems: &mut Problems<'_>,
    ) {
        let Some(runtime) = self.kill_first(pod, runtime, actions, problems) else {
            return;
        };
        if !actions.starts() {
            return;
        }
        let Some(volumes) = self.volumes(pod, actions.create_sandbox, problems) else {
            return;
        };
        let sandbox = match actions.create_sandbox {
            true => {
                let created = self.create_sandbox(pod, actions.attempt, &volumes, problems);
                created.inspect(|_| self.forget_sandboxes(&runtime))
            }
            false => runtime.sandboxes.first().map(|s| s.id.clone()),
        };
        let Some(id) = sandbox else {
            return;
        };
        let is_new = !runtime.containers.iter().any(|c| c.sandbox == id);
        if self.fill_volumes(pod, &id, &volumes, is_new, problems) {
            let mut sandbox = ReadySandbox {
                id,
                volumes,
                images: BTreeMap::new(),
            };
            self.start_all(pod, &mut sandbox, &runtime, actions, problems);
        }
    }

    /// Kills the pod or single containers. Before a new sandbox, removes the init containers, so that they run again.
    /// Returns the runtime's status after that, or `None` if something failed.
    fn kill_first(
        &self,
        pod: &Arc<Pod>,
        mut runtime: Arc<RuntimePodStatus>,
        actions: &PodActions,
        problems: &mut Problems<'_>,
    ) -> Option<Arc<RuntimePodStatus>> {
        if actions.kill_pod {
            if actions.create_sandbox && !runtime.sandboxes.is_empty() {
                self.say_that_the_sandbox_changes(pod, &runtime);
            }
            self.kill_pod(pod, &runtime, None, problems);
        } else {
            self.kill_all(pod, &actions.kill, None, problems);
        }
        if !problems.errors.is_empty() {
            return None;
        }
        if actions.kill_pod || !actions.kill.is_empty() {
            // A killed container has a finish time now. The back-off counts from this time (lessons E2).
            match self.runtime().pod_status(pod.uid()) {
                Ok(fresh) => runtime = Arc::new(fresh),
                Err(e) => {
                    problems.add(e.message);
                    return None;
                }
            }
        }
        if actions.create_sandbox {
            match self.purge_init_containers(pod, &runtime) {
                Ok(left) => runtime = Arc::new(left),
                Err(e) => {
                    problems.add(e.message);
                    return None;
                }
            }
        }
        Some(runtime)
    }

    fn say_that_the_sandbox_changes(&self, pod: &Arc<Pod>, runtime: &RuntimePodStatus) {
        let text = "Pod sandbox changed, it will be killed and re-created.";
        self.event(pod, "", EventType::Normal, "SandboxChanged", text);
        let affected = runtime
            .containers
            .iter()
            .filter(|c| c.state != RuntimeState::Exited || pod.spec.is_init(&c.name));
        for c in affected {
            let cause = "the pod's sandbox was made anew";
            self.deps.probes.renewing(pod, &c.name, cause);
        }
    }

    /// Makes the pod's directory and volumes. Until the volumes are ready the pod waits with ContainerCreating. Missing
    /// objects are checked only for a new sandbox: a pod with a sandbox has already had all objects of its volumes.
    fn volumes(
        &self,
        pod: &Pod,
        for_new_sandbox: bool,
        problems: &mut Problems<'_>,
    ) -> Option<MountedVolumes> {
        let kuberuntime = &self.deps.kuberuntime;
        if let Err(e) = kuberuntime.make_pod_dir(pod) {
            let text = format!("error making pod data directories: {e}");
            let reason = "FailedToMakePodDataDirectories";
            self.event(pod, "", EventType::Warning, reason, &text);
            problems.add(text);
            return None;
        }
        kuberuntime.wait_for_objects(pod, problems.cancel);
        if problems.cancel.is_cancelled() {
            return None;
        }
        let volumes = kuberuntime.set_up_volumes(pod).and_then(|volumes| {
            if for_new_sandbox {
                volumes.check()?;
            }
            Ok(volumes)
        });
        let failed = |e: VolumeError| self.failed_mount(pod, e.to_string(), problems);
        volumes.map_err(failed).ok()
    }

    fn failed_mount(&self, pod: &Pod, text: String, problems: &mut Problems<'_>) {
        self.event(pod, "", EventType::Warning, "FailedMount", &text);
        problems.add(text);
    }

    /// Writes the content of a sandbox's volumes. Returns true if containers can start. Older content is good enough
    /// for a start.
    fn fill_volumes(
        &self,
        pod: &Pod,
        sandbox: &ContainerId,
        volumes: &MountedVolumes,
        is_new: bool,
        problems: &mut Problems<'_>,
    ) -> bool {
        let filled = self.deps.kuberuntime.fill_volumes(sandbox, volumes, is_new);
        match filled {
            Ok(outdated) => {
                self.say_outdated(pod, outdated.iter().filter(|o| o.usable));
                let mut unusable = outdated.into_iter().filter(|o| !o.usable).peekable();
                let can_start = unusable.peek().is_none();
                unusable.for_each(|o| self.failed_mount(pod, o.error.to_string(), problems));
                can_start
            }
            Err(e) => {
                self.failed_mount(pod, e.message, problems);
                false
            }
        }
    }

    /// Brings the volumes of a running pod up to date. A volume that cannot be updated keeps its old content and has an
    /// event. The next sync tries again.
    pub(super) fn update_volumes(&self, pod: &Pod, runtime: &RuntimePodStatus) {
        let Some(sandbox) = runtime.sandboxes.first().filter(|s| s.ready) else {
            return;
        };
        match self.deps.kuberuntime.update_volumes(pod, &sandbox.id) {
            Ok(outdated) => self.say_outdated(pod, outdated.iter()),
            Err(e) => log::warn!("cannot update the volumes of pod {}: {e}", pod.reference()),
        }
    }

    fn say_outdated<'o>(&self, pod: &Pod, outdated: impl Iterator<Item = &'o Outdated>) {
        for volume in outdated {
            let text = volume.error.to_string();
            self.event(pod, "", EventType::Warning, "FailedMount", &text);
        }
    }

    /// Starts ephemeral containers, then init containers, then regular containers, in order. If a plain init container
    /// does not start, the containers after it are not started. A sidecar that does not start is skipped, and tried again
    /// at the next sync.
    fn start_all(
        &self,
        pod: &Pod,
        sandbox: &mut ReadySandbox,
        runtime: &RuntimePodStatus,
        actions: &PodActions,
        problems: &mut Problems<'_>,
    ) {
        for container in actions
            .ephemeral_start
            .iter()
            .filter_map(|i| pod.spec.ephemeral_containers.get(*i))
        {
            self.start(pod, sandbox, &container.container, runtime, problems);
        }
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

    /// Removes the init containers of the old sandbox, so that their ends do not count for the new sandbox. Returns the
    /// runtime's status without the removed containers.
    fn purge_init_containers(
        &self,
        pod: &Pod,
        runtime: &RuntimePodStatus,
    ) -> Result<RuntimePodStatus, RuntimeError> {
        let mut left = runtime.clone();
        for old in left
            .containers
            .extract_if(.., |c| pod.spec.is_init(&c.name))
        {
            self.deps
                .kuberuntime
                .remove_container(runtime, &old.name, &old.id)?;
        }
        Ok(left)
    }

    /// Creates the sandbox. If that fails, the containers wait with ContainerCreating, and an event has the cause.
    fn create_sandbox(
        &self,
        pod: &Pod,
        attempt: u32,
        volumes: &MountedVolumes,
        problems: &mut Problems<'_>,
    ) -> Option<ContainerId> {
        let mut warn = |w: DnsWarning| {
            self.event(pod, "", EventType::Warning, w.reason, &w.message);
        };
        self.deps.metrics.sandbox();
        match self
            .deps
            .kuberuntime
            .run_sandbox(pod, attempt, volumes, &mut warn)
        {
            Ok(id) => Some(id),
            Err(e) => {
                self.deps.metrics.sandbox_failed();
                let text = format!("Failed to create pod sandbox: {e}");
                self.event(pod, "", EventType::Warning, "FailedCreatePodSandBox", &text);
                self.forget_failures(pod.uid());
                problems.add(text);
                None
            }
        }
    }

    /// Removes the old sandboxes, which were stopped before the new sandbox was made, from the runtime.
    fn forget_sandboxes(&self, runtime: &RuntimePodStatus) {
        for old in &runtime.sandboxes {
            if let Err(e) = self.runtime().remove_sandbox(&old.id) {
                log::warn!("cannot remove an ended sandbox: {e}; it goes with the pod");
            }
        }
    }

    /// Starts one container unless its back-off holds it back. Returns true if the container was started.
    fn start(
        &self,
        pod: &Pod,
        sandbox: &mut ReadySandbox,
        container: &Container,
        runtime: &RuntimePodStatus,
        problems: &mut Problems<'_>,
    ) -> bool {
        if problems.cancel.is_cancelled() || self.is_held_back(pod, container, runtime, problems) {
            return false;
        }
        self.prune(container, runtime);
        let attempt = next_attempt(
            container,
            runtime,
            self.deps.statuses.get(pod.uid()).as_deref(),
            || self.deps.kuberuntime.newest_log(pod, &container.name),
        );
        let is_init = pod.spec.is_init(&container.name);
        self.deps.metrics.container(is_init);
        match self.start_steps(pod, sandbox, container, attempt, problems.cancel) {
            Ok(()) => {
                self.failures
                    .locked()
                    .remove(&(pod.uid().clone(), container.name.clone()));
                if attempt > 0 {
                    // The end of an instance that is lost is not known.
                    let before = runtime.container(&container.name);
                    let before = before.filter(|before| before.attempt + 1 == attempt);
                    self.deps
                        .probes
                        .restarted(pod, &container.name, attempt, before);
                }
                true
            }
            Err(_) if problems.cancel.is_cancelled() => {
                problems.add(CANCELLED.to_owned());
                false
            }
            Err(e) => {
                self.deps
                    .metrics
                    .container_failed(is_init, e.reason.as_str());
                self.remember(pod.uid(), &container.name, e.reason.as_str(), &e.message);
                if let Some(at) = e.retry_at {
                    problems.held_until(at);
                }
                problems.add(format!("cannot start container {}: {e}", container.name));
                false
            }
        }
    }

    /// Runs the steps of a start (image, configuration, create, start, hook), and writes the events of these steps.
    fn start_steps(
        &self,
        pod: &Pod,
        sandbox: &mut ReadySandbox,
        container: &Container,
        attempt: u32,
        cancel: &Cancel,
    ) -> Result<(), StartError> {
        let kuberuntime = &self.deps.kuberuntime;
        let name = &container.name;
        let failed = |e: StartError| {
            let text = format!("Error: {e}");
            self.event(pod, name, EventType::Warning, "Failed", &text);
            e
        };
        let done = |reason, text| self.event(pod, name, EventType::Normal, reason, text);

        let image_volumes = self.image_volumes(pod, sandbox, container, cancel)?;
        let image = kuberuntime.image(pod, container, cancel, &mut |e| {
            self.image_event(pod, name, &e);
        });
        let image = image.map_err(failed)?;
        let volumes = &sandbox.volumes;
        self.wait_for_services(cancel)?;
        let config = kuberuntime
            .container_config(pod, container, attempt, &image, volumes, &image_volumes)
            .map_err(failed)?;
        let id = kuberuntime
            .create_container(pod, &sandbox.id, &config, volumes)
            .map_err(failed)?;
        done("Created", "Container created");
        kuberuntime
            .start_container(pod, &config, &id)
            .map_err(failed)?;
        done("Started", "Container started");
        self.post_start(pod, container, &id, cancel)
    }

    /// Waits until the services are known, because a container keeps the variables that it starts with.
    fn wait_for_services(&self, cancel: &Cancel) -> Result<(), StartError> {
        self.deps.kuberuntime.services().wait(cancel);
        match cancel.is_cancelled() {
            true => Err(StartError::new(
                StartErrorReason::CreateContainerConfigError,
                CANCELLED,
            )),
            false => Ok(()),
        }
    }

    /// Returns the images of the volumes that a container mounts. Each image that cannot be obtained gets its own
    /// event. The error of the last such image is the reason why the container waits (kubelet-volumes 9).
    fn image_volumes(
        &self,
        pod: &Pod,
        sandbox: &mut ReadySandbox,
        container: &Container,
        cancel: &Cancel,
    ) -> Result<ImageVolumes, StartError> {
        let mut ready = ImageVolumes::new();
        let mut failed = None;
        for VolumeMount { name, .. } in &container.volume_mounts {
            let Some(volume) = sandbox.volumes.image(name) else {
                continue;
            };
            let ensure = || {
                let record = &mut |e: ImageEvent| self.image_event(pod, "", &e);
                let kuberuntime = &self.deps.kuberuntime;
                kuberuntime.volume_image(pod, volume, cancel, record)
            };
            let ensured = sandbox.images.entry(name.clone()).or_insert_with(ensure);
            match ensured.clone() {
                Ok(image) => drop(ready.insert(name.clone(), image)),
                Err(e) => {
                    let text = format!("Error: {e}");
                    self.event(pod, &container.name, EventType::Warning, "Failed", &text);
                    failed = Some(e);
                }
            }
        }
        failed.map_or(Ok(ready), Err)
    }

    /// Records the event of an image. If `container` is empty, the event is an event of the pod.
    fn image_event(&self, pod: &Pod, container: &str, e: &ImageEvent) {
        let type_ = match e.warning {
            true => EventType::Warning,
            false => EventType::Normal,
        };
        self.event(pod, container, type_, e.reason, &e.message);
    }

    /// Runs the postStart hook. If the hook fails, the container is killed. If the hook was cancelled, the container is
    /// left alone.
    fn post_start(
        &self,
        pod: &Pod,
        container: &Container,
        id: &ContainerId,
        cancel: &Cancel,
    ) -> Result<(), StartError> {
        let subject = HookSubject { pod, container, id };
        let Err(e) = self.deps.hooks.post_start(subject, cancel) else {
            return Ok(());
        };
        self.hook_failed(HookKind::PostStart, subject, &e);
        let failed = |cause| Err(StartError::new(StartErrorReason::PostStartHookError, cause));
        let HookError::Failed(Failure { text: cause, .. }) = e else {
            return failed(String::new());
        };
        let kill = ToKill {
            id: id.clone(),
            name: container.name.clone(),
            message: "FailedPostStartHook".into(),
            reason: KillReason::None,
        };
        let mut problems = Problems::new(cancel);
        self.kill_all(pod, &[kill], None, &mut problems);
        failed(cause)
    }

    /// Tells whether the crash-loop back-off keeps the container from starting now. A container whose restart was
    /// requested is not held back. Such a restart is not a crash, so the container's delay does not grow.
    fn is_held_back(
        &self,
        pod: &Pod,
        container: &Container,
        runtime: &RuntimePodStatus,
        problems: &mut Problems<'_>,
    ) -> bool {
        if self.deps.restarts.is_asked(pod.uid(), &container.name) {
            return false;
        }
        let Err(held) = self.check_back_off(pod, container, runtime) else {
            return false;
        };
        let name = &container.name;
        let of = pod.reference();
        let event = format!("Back-off restarting failed container {name} in pod {of}");
        self.event(pod, name, EventType::Warning, "BackOff", &event);
        let delay = go_duration(held.delay);
        let message = format!("back-off {delay} restarting failed container={name} pod={of}");
        let reason = StartErrorReason::CrashLoopBackOff.as_str();
        self.remember(pod.uid(), name, reason, &message);
        problems.held_until(held.retry_at);
        true
    }

    fn check_back_off(
        &self,
        pod: &Pod,
        container: &Container,
        runtime: &RuntimePodStatus,
    ) -> Result<(), actions::Held> {
        self.back_off
            .locked()
            .check(&pod.reference(), container, runtime, Moment::now())
    }

    /// Removes all ended instances except the newest, so that [`KEPT_INSTANCES`] are left after the start of the new
    /// instance.
    fn prune(&self, container: &Container, runtime: &RuntimePodStatus) {
        let ended = runtime
            .containers
            .iter()
            .filter(|c| c.name == container.name && c.state != RuntimeState::Running);
        for old in ended.skip(KEPT_INSTANCES - 1) {
            let removed = self
                .deps
                .kuberuntime
                .remove_container(runtime, &old.name, &old.id);
            if let Err(e) = removed {
                log::warn!(
                    "cannot remove an ended instance of container {}: {e}; trying again at its next restart",
                    container.name
                );
            }
        }
    }
}

/// Returns the attempt number of the next instance: the newest known number + 1 (8.4, last paragraph), also where the
/// newest instance is known from the last status alone. If the runtime knows no instance, the last status decides. The
/// count in this status already includes a container that vanished (9.3 S3), but not a container that ended. If the
/// status has no instance either, the newest log decides. An instance that could not be started counts, as in the
/// kubelet. An instance that could not be created does not count, nor one whose daemon ended before the start: its shim
/// takes it back (deviations: `never-started`).
fn next_attempt(
    container: &Container,
    runtime: &RuntimePodStatus,
    old: Option<&PodStatus>,
    newest_log: impl FnOnce() -> Option<u32>,
) -> u32 {
    let newest = runtime
        .containers
        .iter()
        .filter(|c| c.name == container.name)
        .max_by_key(|c| c.attempt);
    let before = old.and_then(|old| old.container(&container.name));
    let counted = || {
        let before = before?;
        let next = before.restart_count + u32::from(!before.container_id.is_empty());
        (next > 0).then_some(next)
    };
    let logged = || Some(newest_log()? + 1);
    newest
        .map(|newest| newest_number(newest, before) + 1)
        .or_else(counted)
        .or_else(logged)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::runtime::RuntimeState;
    use crate::fake_runtime::runtime_container_status;

    #[test]
    fn the_next_number_follows_an_instance_that_is_lost() {
        let container: Container = serde_json::from_value(json!({"name": "a"})).unwrap();
        let mut left = runtime_container_status("a", "1", RuntimeState::Exited, 3);
        left.attempt = 4;
        let runtime = RuntimePodStatus {
            containers: vec![left],
            ..RuntimePodStatus::default()
        };
        let status = |count: u32| PodStatus {
            container_statuses: vec![
                serde_json::from_value(
                    json!({"name": "a", "restartCount": count, "containerID": "fake://1",
                    "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}),
                )
                .unwrap(),
            ],
            ..PodStatus::default()
        };
        let next = |old: Option<&PodStatus>| next_attempt(&container, &runtime, old, || Some(9));
        assert_eq!(next(None), 5);
        assert_eq!(next(Some(&status(4))), 5);
        assert_eq!(next(Some(&status(5))), 6);
    }
}
