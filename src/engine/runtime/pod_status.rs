//! The runtime status of each pod (kubelet `kubecontainer.PodStatus`): the runtime's listing, grouped by pod. The
//! labels of a container name its pod.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::{
    ContainerId, ContainerStatus, LinuxUser, Listing, NamespaceMode, NetworkNamespace, Runtime,
    RuntimeError, RuntimeState, SandboxStatus, labels,
};
use crate::api::PodUid;
use crate::api::pod::ResourceRequirements;
use crate::base::clock::Moment;

/// An instance of a container as the runtime sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeContainerStatus {
    /// The id of the instance.
    pub id: ContainerId,
    /// The container's name in the pod spec.
    pub name: String,
    /// The sandbox that the instance was created in.
    pub sandbox: ContainerId,
    /// State of the instance.
    pub state: RuntimeState,
    /// Number of instances before this instance (the restart count).
    pub attempt: u32,
    /// Image reference as in the pod spec.
    pub image: String,
    /// The image id that the reference resolved to (`sha256:…`).
    pub image_id: String,
    /// Hash of the name and image in the spec at creation (kubelet-probes 8.3).
    pub hash: u32,
    /// Time of the creation by the wall clock, for display only.
    pub created_at: SystemTime,
    /// Time of the start by the wall clock, for display only; None until the container has started.
    pub started_at: Option<SystemTime>,
    /// Time of the start by the boot clock, for the initial delay; None if the record is from an earlier boot.
    pub started: Option<Moment>,
    /// Time of the end by the wall clock, for display only; None until the container has ended.
    pub finished_at: Option<SystemTime>,
    /// Time of the end by the boot clock, for the crash-loop back-off; None if the record is from an earlier boot.
    pub finished: Option<Moment>,
    /// Exit code; 128 + signal if a signal ended the process, 0 while the container has not exited.
    pub exit_code: i32,
    /// Number of the signal that ended the first process, if a signal ended it.
    pub signal: Option<i32>,
    /// Reason of the end: `Completed`, `Error`, `OOMKilled`, `StartError` or `ContainerStatusUnknown`. Empty while the
    /// container has not exited.
    pub reason: String,
    /// Termination message of the container (kubelet-probes 8.8).
    pub message: String,
    /// Pid of the first process on the node, while the process runs.
    pub pid: Option<i32>,
    /// The log file of this instance.
    pub log_path: PathBuf,
    /// User and groups with which the first process was started; None if the runtime does not report them.
    pub user: Option<LinuxUser>,
    /// Resources in effect; None for a container of an older podprobe.
    pub resources: Option<Arc<ResourceRequirements>>,
}

/// The status of a pod's sandbox, which holds the pod's namespaces.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeSandboxStatus {
    /// The id of the sandbox.
    pub id: ContainerId,
    /// Number of sandboxes of this pod before this sandbox.
    pub attempt: u32,
    /// True if the sandbox is alive, its network is set up, and containers can be created in it.
    pub ready: bool,
    /// True if the sandbox uses the node's network.
    pub host_network: bool,
    /// Time of the creation by the wall clock.
    pub created_at: SystemTime,
    /// The pod's addresses, primary first.
    pub ips: Vec<IpAddr>,
}

/// The containers and sandboxes that the runtime has for a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimePodStatus {
    /// UID of the pod (`metadata.uid`).
    pub uid: PodUid,
    /// Name of the pod (`metadata.name`).
    pub name: String,
    /// Namespace of the pod (`metadata.namespace`).
    pub namespace: String,
    /// Instances of the pod's containers, newest first by time of creation.
    pub containers: Vec<RuntimeContainerStatus>,
    /// Sandboxes of the pod, newest first by attempt.
    pub sandboxes: Vec<RuntimeSandboxStatus>,
}

impl RuntimePodStatus {
    /// Returns the newest instance of a container; None if the container has no instance.
    pub fn container(&self, name: &str) -> Option<&RuntimeContainerStatus> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// Returns the addresses of the newest sandbox; empty if the pod has no sandbox.
    pub fn ips(&self) -> &[IpAddr] {
        self.sandboxes.first().map_or(&[], |s| &s.ips)
    }

    /// Tells whether any container of the pod runs or any sandbox is alive.
    pub fn is_running(&self) -> bool {
        self.containers
            .iter()
            .any(|c| c.state == RuntimeState::Running)
            || self.sandboxes.iter().any(|s| s.ready)
    }
}

impl dyn Runtime + '_ {
    /// Returns the status of every pod that has a sandbox or a container, dead ones too.
    pub fn list_pods(&self) -> Result<Vec<RuntimePodStatus>, RuntimeError> {
        self.list(None).map(by_pod)
    }

    /// Returns the status of one pod, read from the runtime now. The status is empty if the UID is unknown.
    pub fn pod_status(&self, uid: &PodUid) -> Result<RuntimePodStatus, RuntimeError> {
        let found = by_pod(self.list(Some(uid.as_str()))?).into_iter().next();
        Ok(found.unwrap_or_else(|| RuntimePodStatus {
            uid: uid.clone(),
            ..Default::default()
        }))
    }

    /// Returns the network of a pod's newest sandbox; None if the pod uses the node's network.
    pub fn network_namespace(
        &self,
        uid: &PodUid,
    ) -> Result<Option<NetworkNamespace>, RuntimeError> {
        self.pod_network(uid.as_str())
    }
}

/// Groups a listing by pod, in the order of the UIDs, with the newest containers and sandboxes first. A container
/// without the labels of a pod is left out, because another program made it.
fn by_pod(listing: Listing) -> Vec<RuntimePodStatus> {
    let mut pods = BTreeMap::new();
    for s in listing.sandboxes {
        let m = s.metadata.clone();
        pod_of(&mut pods, &m.uid, &m.name, &m.namespace)
            .sandboxes
            .push(sandbox_status(s));
    }
    for c in listing.containers {
        let of_container = c.labels.clone();
        let label = |key| of_container.get(key);
        let (Some(uid), Some(name), Some(namespace)) = (
            label(labels::POD_UID),
            label(labels::POD_NAME),
            label(labels::POD_NAMESPACE),
        ) else {
            continue;
        };
        pod_of(&mut pods, uid, name, namespace)
            .containers
            .push(container_status(c));
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

fn container_status(c: ContainerStatus) -> RuntimeContainerStatus {
    let hash = c.annotations.get(labels::CONTAINER_HASH);
    RuntimeContainerStatus {
        hash: hash
            .and_then(|h| u32::from_str_radix(h, 16).ok())
            .unwrap_or(0),
        name: c.metadata.name,
        attempt: c.metadata.attempt,
        id: c.id,
        sandbox: c.sandbox,
        state: c.state,
        image: c.image,
        image_id: c.image_id,
        created_at: c.created_at,
        started_at: c.started_at,
        started: c.started,
        finished_at: c.finished_at,
        finished: c.finished,
        exit_code: c.exit_code,
        signal: c.signal,
        reason: match c.reason.as_str() {
            // `Unknown` is the runtime's reason for an end that nobody recorded.
            "Unknown" => "ContainerStatusUnknown".into(),
            _ => c.reason,
        },
        message: c.message,
        pid: c.pid,
        log_path: c.log_path,
        user: c.user,
        resources: c.resources,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::engine::runtime::{Labels, SandboxMetadata};
    use crate::fake_runtime::container_status as status;

    fn labels(uid: &str) -> Labels {
        let all = [
            (labels::POD_UID, uid),
            (labels::POD_NAME, "web"),
            (labels::POD_NAMESPACE, "default"),
        ];
        all.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    fn sandbox(uid: &str, attempt: u32) -> SandboxStatus {
        SandboxStatus {
            id: attempt.to_string().as_str().into(),
            metadata: SandboxMetadata {
                name: "web".into(),
                namespace: "default".into(),
                uid: uid.into(),
                attempt,
            },
            ready: true,
            network: NamespaceMode::Node,
            created_at: SystemTime::UNIX_EPOCH,
            ips: vec![],
        }
    }

    #[test]
    fn a_listing_is_grouped_by_pods_the_newest_first_and_strangers_are_left_out() {
        let old = status("old", labels("u1"), RuntimeState::Exited);
        let mut new = status("new", labels("u1"), RuntimeState::Running);
        new.created_at += Duration::from_secs(1);
        let listing = Listing {
            sandboxes: vec![sandbox("u1", 0), sandbox("u1", 1), sandbox("u2", 0)],
            containers: vec![
                old,
                new,
                status("stranger", Labels::new(), RuntimeState::Running),
            ],
        };
        let pods = by_pod(listing);
        let uids: Vec<_> = pods.iter().map(|p| p.uid.as_str()).collect();
        assert_eq!(uids, ["u1", "u2"]);
        let ids: Vec<_> = pods[0].containers.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids, ["new", "old"]);
        let attempts: Vec<_> = pods[0].sandboxes.iter().map(|s| s.attempt).collect();
        assert_eq!(attempts, [1, 0]);
        assert!(pods[0].sandboxes[0].host_network && pods[1].containers.is_empty());
    }

    #[test]
    fn what_the_pod_level_wrote_into_a_container_is_read_again() {
        let mut c = status("a", labels("u1"), RuntimeState::Exited);
        let hash = (labels::CONTAINER_HASH.to_owned(), "beef".to_owned());
        c.annotations = Arc::new([hash].into());
        c.reason = "Unknown".into();
        let read = container_status(c);
        assert_eq!(
            (read.hash, read.reason.as_str()),
            (0xbeef, "ContainerStatusUnknown")
        );
    }
}
