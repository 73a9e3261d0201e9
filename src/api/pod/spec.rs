//! The spec of a pod, and the walk over its containers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::container::Container;
use super::names::{HostAlias, PodDnsConfig};
use super::placement::{Affinity, Toleration};
use super::restart::RestartPolicy;
use super::security::PodSecurityContext;
use super::volumes::Volume;
use crate::api::quantity::Quantity;

/// `spec` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Containers that run before the regular ones, in order: a plain one to its end, a sidecar
    /// until it has started.
    pub init_containers: Vec<Container>,
    /// The regular containers; at least one.
    pub containers: Vec<Container>,
    /// Volumes the containers mount.
    pub volumes: Vec<Volume>,
    /// Default Always.
    pub restart_policy: RestartPolicy,
    /// Seconds between TERM and KILL; default 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// 1–2147483647 seconds since the start time.
    pub active_deadline_seconds: Option<i64>,
    /// The containers share the node's network.
    pub host_network: bool,
    /// The containers see the node's processes.
    #[serde(rename = "hostPID")]
    pub host_pid: bool,
    /// The containers see one another's processes; not with `hostPID`.
    pub share_process_namespace: bool,
    /// The containers get variables of the services of their namespace; decoded pods have true as the default.
    pub enable_service_links: bool,
    /// The containers share the node's System V IPC.
    #[serde(rename = "hostIPC")]
    pub host_ipc: bool,
    /// Name of the node. The file source sets it to the daemon's node name.
    pub node_name: String,
    /// The containers' host name; default the pod's name.
    pub hostname: String,
    /// Subdomain of the host name. With a cluster domain, the host name's domain is
    /// `<subdomain>.<namespace>.svc.<clusterDomain>`.
    pub subdomain: String,
    /// The containers' host name is the host name with its domain.
    #[serde(rename = "setHostnameAsFQDN")]
    pub set_hostname_as_fqdn: bool,
    /// The containers' host name, whatever `hostname` and `subdomain` say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname_override: Option<String>,
    /// Name of the configured runtime that runs the pod; None is the daemon's own runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// Conditions that must be True too before the pod is ready (kubelet-probes 9.4).
    pub readiness_gates: Vec<PodReadinessGate>,
    /// Secrets with logins of the registries that the images come from.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Further lines of the containers' /etc/hosts.
    pub host_aliases: Vec<HostAlias>,
    /// Resolver that the containers use: `ClusterFirst` (default), `ClusterFirstWithHostNet`, `Default` or `None`.
    pub dns_policy: String,
    /// Added to what the policy gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_config: Option<PodDnsConfig>,
    /// Defaults for the containers.
    pub security_context: PodSecurityContext,
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Affinity of the pod; only the required rules on the node have an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Validated only: a static pod is never evicted for a taint.
    pub tolerations: Vec<Toleration>,
    /// The operating system that the node must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<PodOs>,
    /// Resources that the pod costs the node besides its containers; an API server takes them from the runtime class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: BTreeMap<String, Quantity>,
    /// Resolved from the class by the decoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// `system-node-critical` and `system-cluster-critical` are known.
    pub priority_class_name: String,
}

/// `readinessGates[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodReadinessGate {
    /// The type of the condition, a qualified name such as `example.com/registered`.
    pub condition_type: String,
}

/// `os`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodOs {
    /// `linux` or `windows`.
    pub name: String,
}

/// The list of the spec that a container is in (the kubelet's `podutil.ContainerType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerType {
    /// `spec.initContainers`, sidecars included.
    Init,
    /// `spec.containers`.
    Regular,
}

impl ContainerType {
    /// The field of the spec.
    pub fn list(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Regular => "containers",
        }
    }
}

/// A container and its place in the spec.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Kind of the container, which tells the list that it is in.
    pub kind: ContainerType,
    /// Index of the container in that list.
    pub index: usize,
    /// The container.
    pub container: &'a Container,
}

impl Listed<'_> {
    /// Returns the container's path as errors print it: `spec.initContainers[0]`.
    pub fn path(&self) -> String {
        format!("spec.{}[{}]", self.kind.list(), self.index)
    }
}

impl PodSpec {
    /// Every container with its place: init containers, then regular ones, each in spec order. It is the one walk over all
    /// containers: a further list of containers is added here.
    pub fn listed(&self) -> impl DoubleEndedIterator<Item = Listed<'_>> + Clone {
        let init = (ContainerType::Init, &self.init_containers);
        let regular = (ContainerType::Regular, &self.containers);
        [init, regular].into_iter().flat_map(|(kind, list)| {
            let places = list.iter().enumerate();
            places.map(move |(index, container)| Listed {
                kind,
                index,
                container,
            })
        })
    }

    /// Every container in the order of [`Self::listed`], without its place.
    pub fn all_containers(&self) -> impl DoubleEndedIterator<Item = &Container> + Clone {
        self.listed().map(|listed| listed.container)
    }

    /// The container of this name and its place: names are unique among all containers.
    pub fn find(&self, name: &str) -> Option<Listed<'_>> {
        self.listed().find(|listed| listed.container.name == name)
    }

    /// True if the container of that name is an init container; a sidecar is one.
    pub fn is_init(&self, name: &str) -> bool {
        let found = self.find(name);
        found.is_some_and(|listed| listed.kind == ContainerType::Init)
    }

    /// The init containers that go on running beside the regular ones, in spec order.
    pub fn sidecars(&self) -> impl DoubleEndedIterator<Item = &Container> {
        self.init_containers.iter().filter(|c| c.always_restarts())
    }

    /// True if the container of that name is a sidecar.
    pub fn is_sidecar(&self, name: &str) -> bool {
        self.sidecars().any(|c| c.name == name)
    }
}

/// Names an object in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalObjectReference {
    /// Name of the object; an empty name is allowed and names nothing.
    pub name: String,
}
