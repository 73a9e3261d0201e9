//! The actions of clients inside of containers: commands, attached clients, connections to ports.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::backend::DaemonBackend;
use crate::api::Pod;
use crate::base::cancel::Cancel;
use crate::base::wire::socket::Socket as PortSocket;
use crate::engine::runtime::{
    AttachRequest, ContainerId, ExecOutcome, ExecRequest, LinuxUser, RuntimeState, Session, Started,
};
use crate::face::server::containers::ContainerName;
use crate::face::server::{ContainerFiles, Containers, Unreachable};
use crate::pods::kuberuntime::port_forward;

impl DaemonBackend {
    /// Returns the pod of that name. A pod that is being removed counts until it is gone. Right after the daemon's start
    /// this waits until the pod is known, or every source has said its pods.
    pub(super) fn named_pod(&self, name: &ContainerName) -> Result<Arc<Pod>, Unreachable> {
        let is_it = |pod: &Pod| {
            pod.metadata.namespace == name.namespace
                && pod.metadata.name == name.pod
                && name
                    .uid
                    .as_deref()
                    .is_none_or(|uid| uid == pod.uid().as_str())
        };
        let find = || self.shown(is_it).into_iter().next();
        self.wait_for_sources(|| find().is_some());
        find().map(|(pod, _)| pod).ok_or(Unreachable::NoPod)
    }

    /// Returns the id of the container's instance that runs now. The runtime is asked, because PLEG's cache is up to a
    /// second old.
    fn running(&self, name: &ContainerName) -> Result<ContainerId, Unreachable> {
        self.running_as(name).map(|(id, _)| id)
    }

    /// Returns the instance that runs now, and the user of its first process.
    fn running_as(
        &self,
        name: &ContainerName,
    ) -> Result<(ContainerId, Option<LinuxUser>), Unreachable> {
        let pod = self.named_pod(name)?;
        let status = self.kuberuntime.runtime().pod_status(pod.uid())?;
        let container = status.container(&name.container);
        match container {
            Some(c) if c.state == RuntimeState::Running => Ok((c.id.clone(), c.user.clone())),
            _ => Err(self.not_running(&pod, &name.container)),
        }
    }

    fn not_running(&self, pod: &Pod, container: &str) -> Unreachable {
        let names = || pod.spec.all_containers().map(|c| &c.name);
        if !names().any(|name| name == container) {
            return Unreachable::NoContainer {
                container: container.to_owned(),
                pod: pod.metadata.name.clone(),
                containers: names().cloned().collect(),
            };
        }
        let status = self.pods.statuses.get(pod.uid()).unwrap_or_default();
        let waiting = status
            .container(container)
            .and_then(|c| c.state.waiting.as_ref());
        Unreachable::NotRunning {
            container: container.to_owned(),
            waiting: waiting.map(|w| w.reason.to_string()),
        }
    }
}

impl Containers for DaemonBackend {
    fn exec(&self, name: &ContainerName, request: &ExecRequest) -> Result<Started, Unreachable> {
        let id = self.running(name)?;
        Ok(self.kuberuntime.runtime().exec_stream(&id, request)?)
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
        Ok(runtime.exec(&id, command, limit, output, Some(cancel))?)
    }

    fn attach(
        &self,
        name: &ContainerName,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, Unreachable> {
        let id = self.running(name)?;
        Ok(self.kuberuntime.runtime().attach(&id, request)?)
    }

    fn files(&self, name: &ContainerName) -> Result<ContainerFiles, Unreachable> {
        let (id, user) = self.running_as(name)?;
        let root = self.kuberuntime.runtime().container_root(&id);
        Ok(ContainerFiles {
            root: root?,
            owner: user.map(|u| (u.uid, u.gid)),
        })
    }

    fn dial(&self, name: &ContainerName, port: u16) -> Result<PortSocket, Unreachable> {
        let pod = self.named_pod(name)?;
        let runtime = self.kuberuntime.runtime();
        Ok(port_forward(&**runtime, pod.uid().as_str(), port)?)
    }

    fn log_dir(&self) -> PathBuf {
        let pods = self.layout.logs_dir();
        pods.parent().map_or(pods.clone(), Path::to_owned)
    }
}
