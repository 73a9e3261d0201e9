//! What a runtime has of each pod: its listing, grouped by the labels of the containers (kubelet `kubecontainer.PodStatus`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use super::{
    ContainerId, ContainerStatus, LinuxUser, Listing, NamespaceMode, NetworkNamespace, Runtime,
    RuntimeError, RuntimeState, SandboxStatus, labels,
};
use crate::api::PodUid;
use crate::clock::Moment;

/// One instance of a container as the runtime sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeContainerStatus {
    /// Which instance.
    pub id: ContainerId,
    /// The container's name in the pod spec.
    pub name: String,
    /// The sandbox it was created in.
    pub sandbox: ContainerId,
    /// What it does.
    pub state: RuntimeState,
    /// Number of instances before this one (the restart count).
    pub attempt: u32,
    /// Image as in the spec.
    pub image: String,
    /// What it resolved to (`sha256:…`).
    pub image_id: String,
    /// Spec hash at creation: name and image (kubelet-probes 8.3).
    pub hash: u32,
    /// Wall clock, display only.
    pub created_at: SystemTime,
    /// Wall clock, display only.
    pub started_at: Option<SystemTime>,
    /// Boot clock, for the initial delay; None when the record is of an earlier boot.
    pub started: Option<Moment>,
    /// Wall clock, display only.
    pub finished_at: Option<SystemTime>,
    /// Boot clock, for the crash-loop back-off; None when the record is of an earlier boot.
    pub finished: Option<Moment>,
    /// Exit code, 128 + signal when a signal ended it; 0 unless exited.
    pub exit_code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerCannotRun`, `ContainerStatusUnknown`; empty unless exited.
    pub reason: String,
    /// Termination message (kubelet-probes 8.8).
    pub message: String,
    /// Host pid of the first process while it runs.
    pub pid: Option<i32>,
    /// The log file of this instance.
    pub log_path: PathBuf,
    /// Whom its first process was started as; None where the runtime does not say.
    pub user: Option<LinuxUser>,
}

/// A pod's sandbox: the holder of its namespaces.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeSandboxStatus {
    /// Which one.
    pub id: ContainerId,
    /// Sandboxes of this pod before it.
    pub attempt: u32,
    /// Its holder lives.
    pub ready: bool,
    /// It has no network namespace of its own.
    pub host_network: bool,
    /// Wall clock.
    pub created_at: SystemTime,
    /// The pod's addresses, primary first.
    pub ips: Vec<IpAddr>,
}

/// Everything the runtime knows of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimePodStatus {
    /// Which pod.
    pub uid: PodUid,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// Newest first by creation.
    pub containers: Vec<RuntimeContainerStatus>,
    /// Newest first by attempt.
    pub sandboxes: Vec<RuntimeSandboxStatus>,
}

impl RuntimePodStatus {
    /// The newest instance of a container.
    pub fn container(&self, name: &str) -> Option<&RuntimeContainerStatus> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The addresses of the newest sandbox.
    pub fn ips(&self) -> &[IpAddr] {
        self.sandboxes.first().map_or(&[], |s| &s.ips)
    }

    /// Whether any container or sandbox of the pod still lives.
    pub fn is_running(&self) -> bool {
        self.containers
            .iter()
            .any(|c| c.state == RuntimeState::Running)
            || self.sandboxes.iter().any(|s| s.ready)
    }
}

impl dyn Runtime + '_ {
    /// Every pod that has a sandbox or a container, dead ones too.
    pub fn list_pods(&self) -> Result<Vec<RuntimePodStatus>, RuntimeError> {
        self.list(None).map(by_pod)
    }

    /// One pod, afresh; an unknown UID gives an empty status.
    pub fn pod_status(&self, uid: &PodUid) -> Result<RuntimePodStatus, RuntimeError> {
        let found = by_pod(self.list(Some(uid.as_str()))?).into_iter().next();
        Ok(found.unwrap_or_else(|| RuntimePodStatus {
            uid: uid.clone(),
            ..Default::default()
        }))
    }

    /// The network of a pod's newest sandbox; None when the pod uses the node's network.
    pub fn network_namespace(
        &self,
        uid: &PodUid,
    ) -> Result<Option<NetworkNamespace>, RuntimeError> {
        self.pod_network(uid.as_str())
    }
}

/// Pods in the order of their UIDs; of each the newest containers and sandboxes first. A container without the labels of a
/// pod was made by somebody else and is left out.
fn by_pod(listing: Listing) -> Vec<RuntimePodStatus> {
    let mut pods = BTreeMap::new();
    for s in listing.sandboxes {
        let m = s.metadata.clone();
        pod_of(&mut pods, &m.uid, &m.name, &m.namespace)
            .sandboxes
            .push(sandbox_status(s));
    }
    for c in listing.containers {
        let label = |key| c.labels.get(key);
        let (Some(uid), Some(name), Some(namespace)) = (
            label(labels::POD_UID),
            label(labels::POD_NAME),
            label(labels::POD_NAMESPACE),
        ) else {
            continue;
        };
        pod_of(&mut pods, uid, name, namespace)
            .containers
            .push(container_status(&c));
    }
    let mut pods: Vec<RuntimePodStatus> = pods.into_values().collect();
    for p in &mut pods {
        p.containers.sort_by(|a, b| {
            (b.created_at, b.attempt, &b.id).cmp(&(a.created_at, a.attempt, &a.id))
        });
        p.sandboxes.sort_by(|a, b| {
            (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id))
        });
    }
    pods
}

fn pod_of<'a>(
    pods: &'a mut BTreeMap<String, RuntimePodStatus>,
    uid: &str,
    name: &str,
    namespace: &str,
) -> &'a mut RuntimePodStatus {
    pods.entry(uid.to_owned())
        .or_insert_with(|| RuntimePodStatus {
            uid: uid.into(),
            name: name.into(),
            namespace: namespace.into(),
            ..Default::default()
        })
}

fn sandbox_status(s: SandboxStatus) -> RuntimeSandboxStatus {
    RuntimeSandboxStatus {
        id: s.id,
        attempt: s.metadata.attempt,
        ready: s.ready,
        host_network: s.network == NamespaceMode::Node,
        created_at: s.created_at,
        ips: s.ips,
    }
}

fn container_status(c: &ContainerStatus) -> RuntimeContainerStatus {
    let hash = c.annotations.get(labels::CONTAINER_HASH);
    RuntimeContainerStatus {
        hash: hash
            .and_then(|h| u32::from_str_radix(h, 16).ok())
            .unwrap_or(0),
        name: c.metadata.name.clone(),
        attempt: c.metadata.attempt,
        id: c.id.clone(),
        sandbox: c.sandbox.clone(),
        state: c.state,
        image: c.image.clone(),
        image_id: c.image_id.clone(),
        created_at: c.created_at,
        started_at: c.started_at,
        started: c.started,
        finished_at: c.finished_at,
        finished: c.finished,
        exit_code: c.exit_code,
        signal: c.signal,
        reason: match c.reason.as_str() {
            // The runtime's word for an end that nobody saw.
            "Unknown" => "ContainerStatusUnknown".into(),
            reason => reason.into(),
        },
        message: c.message.clone(),
        pid: c.pid,
        log_path: c.log_path.clone(),
        user: c.user.clone(),
    }
}
