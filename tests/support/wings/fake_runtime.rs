//! A runtime for unit tests. It runs nothing: it remembers the configurations it receives. A container starts or ends
//! only when a call or a test makes it do so.
#![allow(dead_code, reason = "each wing takes what it needs")]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use crate::api::pod::ResourceRequirements;
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;
use crate::base::locks::Locked;
use crate::engine::runtime::{
    AttachRequest, ContainerConfig, ContainerId, ContainerRoot, ContainerStatus, ExecOutcome,
    ExecRequest, Labels, Listing, NetworkNamespace, PodResources, Resources, Runtime,
    RuntimeContainerStatus, RuntimeError, RuntimeState, SandboxConfig, SandboxStatus, Session,
    Started,
};

/// Answers an exec, from the container's name and the command.
type OnExec = dyn Fn(&str, &[String]) -> Result<ExecOutcome, RuntimeError> + Send + Sync;
/// Answers an exec with streams, from the container's name and the request.
type OnExecStream = dyn Fn(&str, &ExecRequest) -> Result<Started, RuntimeError> + Send + Sync;
/// Attaches a client, from the container's name and the request.
type OnAttach = dyn Fn(&str, AttachRequest) -> Result<Box<dyn Session>, RuntimeError> + Send + Sync;
/// Runs before each listing, with the UID of the pod that the caller asks for; None means all pods. An error makes the
/// listing fail.
type OnList = dyn Fn(Option<&str>, &mut FakeState) -> Result<(), RuntimeError> + Send + Sync;

/// A runtime that runs nothing and remembers the configurations it receives.
#[derive(Default)]
pub(crate) struct FakeRuntime {
    state: Mutex<FakeState>,
    on_exec: Option<Box<OnExec>>,
    on_exec_stream: Option<Box<OnExecStream>>,
    on_attach: Option<Box<OnAttach>>,
    on_list: Option<Box<OnList>>,
}

/// State of a fake runtime: the calls and objects it remembers, and the failures it must produce.
#[derive(Default)]
pub(crate) struct FakeState {
    /// The containers, newest first.
    pub(crate) containers: Vec<ContainerStatus>,
    /// The sandboxes, newest first.
    pub(crate) sandboxes: Vec<SandboxStatus>,
    /// The calls, in order.
    pub(crate) calls: Vec<String>,
    /// Every container configuration that the runtime was given.
    pub(crate) configs: Vec<ContainerConfig>,
    /// Every sandbox configuration that the runtime was given.
    pub(crate) sandbox_configs: Vec<SandboxConfig>,
    /// Errors for coming creations of containers. Each creation takes the first error from the queue and fails with it.
    /// If the queue is empty, the creation succeeds.
    pub(crate) create_errors: VecDeque<RuntimeError>,
    /// Errors for coming updates of containers, one for each.
    pub(crate) update_errors: VecDeque<RuntimeError>,
    /// The results of the next updates of pods; None means success.
    pub(crate) pod_update_errors: VecDeque<Option<RuntimeError>>,
    /// Errors for coming starts of containers. Each start takes the first error from the queue and fails with it. If
    /// the queue is empty, the start succeeds.
    pub(crate) start_errors: VecDeque<RuntimeError>,
    /// Error with which every creation of a sandbox fails; None lets every creation succeed.
    pub(crate) sandbox_error: Option<RuntimeError>,
    /// Error with which every stop of a container fails; None lets every stop succeed.
    pub(crate) stop_error: Option<RuntimeError>,
    /// True if a stop that fails with `stop_error` also cancels the caller's [`Cancel`].
    pub(crate) cancel_in_stop: bool,
    next_id: u32,
}

impl FakeState {
    fn id(&mut self) -> ContainerId {
        self.next_id += 1;
        ContainerId::new("fake", &self.next_id.to_string())
    }

    fn container(&mut self, id: &ContainerId) -> Result<&mut ContainerStatus, RuntimeError> {
        let found = self.containers.iter_mut().find(|c| c.id == *id);
        found.ok_or_else(|| RuntimeError::failed(format!("no container {id}")))
    }
}

/// Marks a container as ended now, with this exit code.
pub(crate) fn end(c: &mut ContainerStatus, code: i32) {
    (c.state, c.exit_code) = (RuntimeState::Exited, code);
    (c.finished, c.finished_at) = (Some(Moment::now()), Some(SystemTime::now()));
}

/// Returns a container status with these values, and defaults in all other fields.
pub(crate) fn container_status(id: &str, labels: Labels, state: RuntimeState) -> ContainerStatus {
    ContainerStatus {
        id: id.into(),
        sandbox: ContainerId::default(),
        metadata: Default::default(),
        state,
        image: String::new(),
        image_id: String::new(),
        created_at: SystemTime::UNIX_EPOCH,
        started_at: None,
        started: None,
        finished_at: None,
        finished: None,
        exit_code: 0,
        signal: None,
        reason: String::new(),
        message: String::new(),
        pid: None,
        log_path: Default::default(),
        user: None,
        resources: None,
        labels: Arc::new(labels),
        annotations: Arc::default(),
    }
}

/// Returns the status of a container as the pod workers see it, with defaults in all other fields.
pub(crate) fn runtime_container_status(
    name: &str,
    id: &str,
    state: RuntimeState,
    exit_code: i32,
) -> RuntimeContainerStatus {
    RuntimeContainerStatus {
        id: id.into(),
        name: name.into(),
        sandbox: "sandbox".into(),
        state,
        attempt: 0,
        image: String::new(),
        image_id: String::new(),
        hash: 0,
        created_at: SystemTime::UNIX_EPOCH,
        started_at: None,
        started: None,
        finished_at: None,
        finished: None,
        exit_code,
        signal: None,
        reason: String::new(),
        message: String::new(),
        pid: None,
        log_path: Default::default(),
        user: None,
        resources: None,
    }
}

impl FakeRuntime {
    /// Makes a runtime in which `answer` answers every exec.
    pub(crate) fn with_exec(
        answer: impl Fn(&str, &[String]) -> Result<ExecOutcome, RuntimeError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            on_exec: Some(Box::new(answer)),
            ..Self::default()
        }
    }

    /// Makes a runtime that calls `before` before each listing. The listing fails if `before` returns an error.
    pub(crate) fn with_list(
        before: impl Fn(Option<&str>, &mut FakeState) -> Result<(), RuntimeError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            on_list: Some(Box::new(before)),
            ..Self::default()
        }
    }

    /// Lets `answer` answer every exec with streams, most often with a [`FakeSession`].
    #[must_use]
    pub(crate) fn on_exec_stream(
        mut self,
        answer: impl Fn(&str, &ExecRequest) -> Result<Started, RuntimeError> + Send + Sync + 'static,
    ) -> Self {
        self.on_exec_stream = Some(Box::new(answer));
        self
    }

    /// Lets `answer` answer every attach, most often with a [`FakeSession`].
    #[must_use]
    pub(crate) fn on_attach(
        mut self,
        answer: impl Fn(&str, AttachRequest) -> Result<Box<dyn Session>, RuntimeError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.on_attach = Some(Box::new(answer));
        self
    }

    /// Remembers a call, and returns the container's name.
    fn called(&self, id: &ContainerId, verb: &str, what: &str) -> Result<String, RuntimeError> {
        let mut s = self.state();
        let name = s.container(id)?.metadata.name.clone();
        s.calls
            .push(format!("{verb} {name} {what}").trim_end().to_owned());
        Ok(name)
    }

    /// Locks the runtime's state and returns it.
    pub(crate) fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.locked()
    }
}

impl Runtime for FakeRuntime {
    fn check(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn list(&self, pod: Option<&str>) -> Result<Listing, RuntimeError> {
        let mut s = self.state();
        if let Some(before) = &self.on_list {
            before(pod, &mut s)?;
        }
        let uid = |labels: &Labels| labels.get(crate::engine::runtime::labels::POD_UID).cloned();
        let wanted = |of: Option<String>| pod.is_none_or(|p| of.as_deref() == Some(p));
        let mut listing = Listing {
            sandboxes: s.sandboxes.clone(),
            containers: s.containers.clone(),
        };
        listing
            .sandboxes
            .retain(|s| wanted(Some(s.metadata.uid.clone())));
        listing.containers.retain(|c| wanted(uid(&c.labels)));
        Ok(listing)
    }

    fn run_sandbox(&self, config: &SandboxConfig) -> Result<ContainerId, RuntimeError> {
        let mut s = self.state();
        s.calls.push(format!("sandbox {}", config.metadata.attempt));
        s.sandbox_configs.push(config.clone());
        if let Some(e) = s.sandbox_error.clone() {
            return Err(e);
        }
        let status = SandboxStatus {
            id: s.id(),
            metadata: config.metadata.clone(),
            ready: true,
            network: config.namespaces.network,
            created_at: SystemTime::now(),
            ips: vec!["127.0.0.1".parse().expect("an address")],
        };
        let id = status.id.clone();
        s.sandboxes.insert(0, status);
        Ok(id)
    }

    fn stop_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let mut s = self.state();
        s.calls.push("stop sandbox".into());
        let found = s.sandboxes.iter_mut().filter(|s| s.id == *id);
        found.for_each(|s| s.ready = false);
        Ok(())
    }

    fn remove_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let mut s = self.state();
        s.calls.push("remove sandbox".into());
        s.sandboxes.retain(|s| s.id != *id);
        Ok(())
    }

    fn create_container(
        &self,
        sandbox: &ContainerId,
        config: &ContainerConfig,
        _: &SandboxConfig,
    ) -> Result<ContainerId, RuntimeError> {
        let mut s = self.state();
        let (name, attempt) = (&config.metadata.name, config.metadata.attempt);
        s.calls.push(format!("create {name} {attempt}"));
        s.configs.push(config.clone());
        if let Some(e) = s.create_errors.pop_front() {
            return Err(e);
        }
        let id = s.id();
        let status = ContainerStatus {
            id: id.clone(),
            sandbox: sandbox.clone(),
            metadata: config.metadata.clone(),
            image: config.image.name.clone(),
            image_id: config.image.id.clone(),
            created_at: SystemTime::now(),
            resources: Some(Arc::new(config.requirements.clone())),
            annotations: Arc::new(config.annotations.clone()),
            ..container_status("", config.labels.clone(), RuntimeState::Created)
        };
        s.containers.insert(0, status);
        Ok(id)
    }

    fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let mut s = self.state();
        let error = s.start_errors.pop_front();
        let c = s.container(id)?;
        let call = format!("start {} {}", c.metadata.name, c.metadata.attempt);
        match &error {
            Some(_) => {
                end(c, 128);
                c.reason = "StartError".into();
            }
            None => {
                c.state = RuntimeState::Running;
                (c.started, c.started_at) = (Some(Moment::now()), Some(SystemTime::now()));
            }
        }
        s.calls.push(call);
        error.map_or(Ok(()), Err)
    }

    fn stop_container(
        &self,
        id: &ContainerId,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), RuntimeError> {
        let mut s = self.state();
        s.calls.push(format!("stop {id} {}", grace.as_secs()));
        if let Some(e) = s.stop_error.clone() {
            if s.cancel_in_stop {
                cancel.cancel();
            }
            return Err(e);
        }
        end(s.container(id)?, 137);
        Ok(())
    }

    fn update_pod(&self, _: &str, resources: &PodResources) -> Result<(), RuntimeError> {
        let memory = resources.limits.memory_limit.unwrap_or_default();
        let mut s = self.state();
        s.calls.push(format!("update pod {memory}"));
        let error = s.pod_update_errors.pop_front().flatten();
        error.map_or(Ok(()), Err)
    }

    fn update_container(
        &self,
        id: &ContainerId,
        resources: &Resources,
        requirements: &ResourceRequirements,
    ) -> Result<(), RuntimeError> {
        let mut s = self.state();
        let memory = resources.limits.memory_limit.unwrap_or_default();
        s.calls.push(format!("update {id} {memory}"));
        if let Some(e) = s.update_errors.pop_front() {
            return Err(e);
        }
        s.container(id)?.resources = Some(Arc::new(requirements.clone()));
        Ok(())
    }

    fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let mut s = self.state();
        s.calls.push(format!("remove {id}"));
        s.containers.retain(|c| c.id != *id);
        Ok(())
    }

    fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        _: Duration,
        _: usize,
        _: Option<&Cancel>,
    ) -> Result<ExecOutcome, RuntimeError> {
        let name = self.called(id, "exec", &command.join(" "))?;
        match &self.on_exec {
            Some(answer) => answer(&name, command),
            None => Err(RuntimeError::failed("this runtime executes nothing")),
        }
    }

    fn exec_stream(
        &self,
        id: &ContainerId,
        request: &ExecRequest,
    ) -> Result<Started, RuntimeError> {
        let name = self.called(id, "exec stream", &request.command.join(" "))?;
        match &self.on_exec_stream {
            Some(answer) => answer(&name, request),
            None => Err(RuntimeError::failed("this runtime executes nothing")),
        }
    }

    fn attach(
        &self,
        id: &ContainerId,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, RuntimeError> {
        let name = self.called(id, "attach", "")?;
        match &self.on_attach {
            Some(answer) => answer(&name, request),
            None => Err(RuntimeError::failed("this runtime attaches nobody")),
        }
    }

    fn volumes_root(&self, _: &ContainerId) -> Result<OwnedFd, RuntimeError> {
        let root = std::fs::File::open("/").map(OwnedFd::from);
        root.map_err(|e| RuntimeError::failed(e.to_string()))
    }

    fn container_root(&self, _: &ContainerId) -> Result<ContainerRoot, RuntimeError> {
        Err(RuntimeError::failed("this runtime has no files"))
    }

    fn pod_network(&self, _: &str) -> Result<Option<NetworkNamespace>, RuntimeError> {
        Ok(None)
    }

    fn interrupt(&self) {}
}
