//! The spec of a pod, and the iterator over all its containers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::container::Container;
use super::ephemeral::EphemeralContainer;
use super::names::{HostAlias, PodDnsConfig};
use super::placement::{Affinity, Toleration};
use super::restart::RestartPolicy;
use super::security::PodSecurityContext;
use super::volumes::Volume;
use crate::api::quantity::Quantity;

/// `spec` of a pod: its containers, its volumes, and the settings of the whole pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Containers that start before the regular ones, in order. A plain init container runs to its end before the
    /// next one starts; a sidecar only has to have started.
    pub init_containers: Vec<Container>,
    /// Regular containers of the pod; at least one.
    pub containers: Vec<Container>,
    /// Containers that people have added to the running pod. Only a pod of an API server has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_containers: Vec<EphemeralContainer>,
    /// Volumes that the containers may mount.
    pub volumes: Vec<Volume>,
    /// Rule that tells when an ended container is started again; default Always.
    pub restart_policy: RestartPolicy,
    /// Time between TERM and KILL in seconds; default 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// Longest life of the pod in seconds, counted from its start time: 1–2147483647.
    pub active_deadline_seconds: Option<i64>,
    /// True if the containers share the node's network.
    pub host_network: bool,
    /// True if the containers see the node's processes.
    #[serde(rename = "hostPID")]
    pub host_pid: bool,
    /// True if the containers see one another's processes. Not allowed together with `hostPID`.
    pub share_process_namespace: bool,
    /// True if the containers get environment variables for the services of their namespace. Decoded pods have true
    /// as the default.
    pub enable_service_links: bool,
    /// True if the containers share the node's System V IPC.
    #[serde(rename = "hostIPC")]
    pub host_ipc: bool,
    /// Name of the node. The file source sets it to the daemon's node name.
    pub node_name: String,
    /// Host name of the containers; default the pod's name.
    pub hostname: String,
    /// Subdomain of the host name. With a cluster domain, the host name's domain is
    /// `<subdomain>.<namespace>.svc.<clusterDomain>`.
    pub subdomain: String,
    /// True if the containers' host name includes the domain of the pod.
    #[serde(rename = "setHostnameAsFQDN")]
    pub set_hostname_as_fqdn: bool,
    /// Host name of the containers that replaces `hostname`, `subdomain` and the pod's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname_override: Option<String>,
    /// Name of the configured runtime that runs the pod; None means the daemon's own runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// Conditions that must also be True before the pod is ready (kubelet-probes 9.4).
    pub readiness_gates: Vec<PodReadinessGate>,
    /// Secrets with the logins for the registries that the images are pulled from.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Extra lines in the containers' /etc/hosts.
    pub host_aliases: Vec<HostAlias>,
    /// Resolver that the containers use: `ClusterFirst` (default), `ClusterFirstWithHostNet`, `Default` or `None`.
    pub dns_policy: String,
    /// Resolver settings that are added to those of `dnsPolicy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_config: Option<PodDnsConfig>,
    /// Security settings of the pod, and defaults for its containers.
    pub security_context: PodSecurityContext,
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Affinity of the pod; only the required rules on the node have an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Tolerations of the pod, which are only validated: a static pod is never evicted because of a taint.
    pub tolerations: Vec<Toleration>,
    /// The operating system that the node must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<PodOs>,
    /// Resources that the pod costs the node besides its containers. In a cluster, an API server copies these
    /// resources from the runtime class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: BTreeMap<String, Quantity>,
    /// Priority of the pod. If the file gives none, the decoder takes the priority of `priorityClassName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Name of the priority class. The known names are `system-node-critical` and `system-cluster-critical`.
    pub priority_class_name: String,
}

/// `readinessGates[]`: a condition that the pod needs before it is ready.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodReadinessGate {
    /// The type of the condition, a qualified name such as `example.com/registered`.
    pub condition_type: String,
}

/// `os`: the operating system that the pod needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodOs {
    /// Name of the operating system: `linux` or `windows`.
    pub name: String,
}

/// List of the spec that a container is in (the kubelet's `podutil.ContainerType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerType {
    /// The container is in `spec.initContainers`. Sidecars are in this list too.
    Init,
    /// The container is in `spec.containers`.
    Regular,
    /// The container is in `spec.ephemeralContainers`.
    Ephemeral,
}

impl ContainerType {
    /// Returns the name of the list in the spec.
    pub fn list(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Regular => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }
}

/// A container with its place in the spec.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// List of the spec that the container is in.
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
    /// Iterates over all containers with their places: init containers first, then regular ones, then ephemeral ones, each
    /// list in spec order. Every other function that visits all containers uses this one, so a new list of containers is
    /// added only here.
    pub fn listed(&self) -> impl DoubleEndedIterator<Item = Listed<'_>> + Clone {
        let ephemeral = self.ephemeral_containers.iter().enumerate();
        let ephemeral = ephemeral.map(|(index, ephemeral)| Listed {
            kind: ContainerType::Ephemeral,
            index,
            container: &ephemeral.container,
        });
        let init = (ContainerType::Init, &self.init_containers);
        let regular = (ContainerType::Regular, &self.containers);
        let lasting = [init, regular].into_iter().flat_map(|(kind, list)| {
            let places = list.iter().enumerate();
            places.map(move |(index, container)| Listed {
                kind,
                index,
                container,
            })
        });
        lasting.chain(ephemeral)
    }

    /// Iterates over the init containers and the regular ones: those of which the pod is made, whatever people add to it.
    pub fn lasting_containers(&self) -> impl DoubleEndedIterator<Item = &Container> + Clone {
        self.init_containers.iter().chain(&self.containers)
    }

    /// Iterates over all containers in the order of [`Self::listed`], without their places.
    pub fn all_containers(&self) -> impl DoubleEndedIterator<Item = &Container> + Clone {
        self.listed().map(|listed| listed.container)
    }

    /// Returns the container of this name and its place. Names are unique among all containers of a pod.
    pub fn find(&self, name: &str) -> Option<Listed<'_>> {
        self.listed().find(|listed| listed.container.name == name)
    }

    /// True if the container of that name is an init container. Sidecars are init containers too.
    pub fn is_init(&self, name: &str) -> bool {
        let found = self.find(name);
        found.is_some_and(|listed| listed.kind == ContainerType::Init)
    }

    /// Iterates in spec order over the sidecars: the init containers that keep running beside the regular containers.
    pub fn sidecars(&self) -> impl DoubleEndedIterator<Item = &Container> {
        self.init_containers.iter().filter(|c| c.always_restarts())
    }

    /// True if the container of that name is a sidecar.
    pub fn is_sidecar(&self, name: &str) -> bool {
        self.sidecars().any(|c| c.name == name)
    }
}

/// Reference to an object in the pod's namespace, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalObjectReference {
    /// Name of the object; an empty name is allowed and names nothing.
    pub name: String,
}
