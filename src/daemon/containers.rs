//! What clients do inside containers: commands, attached clients, connections to ports.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::backend::DaemonBackend;
use crate::api::Pod;
use crate::base::cancel::Cancel;
use crate::base::wire::socket::Socket as PortSocket;
use crate::engine::runtime::{
    AttachRequest, ContainerId, ExecOutcome, ExecRequest, LinuxUser, RuntimeError,
    RuntimeErrorKind, RuntimeState, Session, Started,
};
use crate::face::server::containers::{ContainerName, Unreachable};
use crate::face::server::{ContainerFiles, Containers};
use crate::pods::kuberuntime::port_forward;

impl DaemonBackend {
    /// The pod of that name; one that is being removed counts until it is gone.
    pub(super) fn named_pod(&self, name: &ContainerName) -> Result<Arc<Pod>, Unreachable> {
        let is_it = |pod: &Pod| {
            pod.metadata.namespace == name.namespace
                && pod.metadata.name == name.pod
                && name
                    .uid
                    .as_deref()
                    .is_none_or(|uid| uid == pod.uid().as_str())
        };
        let found = self.shown(is_it).into_iter().next();
        found.map(|(pod, _)| pod).ok_or_else(Unreachable::no_pod)
    }

    /// The instance that runs now. The runtime is asked, because PLEG's cache is up to a second old.
    fn running(&self, name: &ContainerName) -> Result<ContainerId, Unreachable> {
        self.running_as(name).map(|(id, _)| id)
    }

    /// Returns the instance that runs now, and the user of its first process.
    fn running_as(
        &self,
        name: &ContainerName,
    ) -> Result<(ContainerId, Option<LinuxUser>), Unreachable> {
        let pod = self.named_pod(name)?;
        let status = self.kuberuntime.runtime().pod_status(pod.uid());
        let status = status.map_err(|e| unreachable(&e))?;
        let container = status.container(&name.container);
        match container {
            Some(c) if c.state == RuntimeState::Running => Ok((c.id.clone(), c.user.clone())),
            _ => Err(self.not_running(&pod, &name.container)),
        }
    }

    fn not_running(&self, pod: &Pod, container: &str) -> Unreachable {
        let names: Vec<&str> = pod.spec.all_containers().map(|c| c.name.as_str()).collect();
        if !names.contains(&container) {
            return Unreachable::not_found(format!(
                "container {container} is not valid for pod {}: its containers are [{}]",
                pod.metadata.name,
                names.join(" ")
            ));
        }
        let status = self.pods.statuses.get(pod.uid()).unwrap_or_default();
        let waiting = status
            .container(container)
            .and_then(|c| c.state.waiting.as_ref())
            .map(|w| format!(": {}", w.reason));
        let why = waiting.unwrap_or_default();
        Unreachable {
            status: 409,
            text: format!("container not found (\"{container}\"): it does not run now{why}"),
        }
    }
}

impl Containers for DaemonBackend {
    fn exec(&self, name: &ContainerName, request: &ExecRequest) -> Result<Started, Unreachable> {
        let id = self.running(name)?;
        let started = self.kuberuntime.runtime().exec_stream(&id, request);
        started.map_err(|e| unreachable(&e))
    }

    fn run(
        &self,
        name: &ContainerName,
        command: &[String],
        (limit, output): (Duration, usize),
        cancel: &Cancel,
    ) -> Result<ExecOutcome, Unreachable> {
        let id = self.running(name)?;
        let runtime = self.kuberuntime.runtime();
        let outcome = runtime.exec(&id, command, limit, output, Some(cancel));
        outcome.map_err(|e| unreachable(&e))
    }

    fn attach(
        &self,
        name: &ContainerName,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, Unreachable> {
        let id = self.running(name)?;
        let attached = self.kuberuntime.runtime().attach(&id, request);
        attached.map_err(|e| unreachable(&e))
    }

    fn files(&self, name: &ContainerName) -> Result<ContainerFiles, Unreachable> {
        let (id, user) = self.running_as(name)?;
        let root = self.kuberuntime.runtime().container_root(&id);
        Ok(ContainerFiles {
            root: root.map_err(|e| unreachable(&e))?,
            owner: user.map(|u| (u.uid, u.gid)),
        })
    }

    fn dial(&self, name: &ContainerName, port: u16) -> Result<PortSocket, Unreachable> {
        let pod = self.named_pod(name)?;
        let runtime = self.kuberuntime.runtime();
        port_forward(&**runtime, pod.uid().as_str(), port)
            .map_err(|e| Unreachable::failed(e.to_string()))
    }

    fn log_dir(&self) -> PathBuf {
        let pods = self.layout.logs_dir();
        pods.parent().map_or(pods.clone(), Path::to_owned)
    }
}

fn unreachable(e: &RuntimeError) -> Unreachable {
    match e.kind {
        RuntimeErrorKind::NotRunning => Unreachable {
            status: 409,
            text: e.message.clone(),
        },
        _ => Unreachable::failed(e.message.clone()),
    }
}
