//! Makes the configurations of a pod's sandbox and containers for a runtime: the kubelet's `generatePodSandboxConfig`
//! and `generateContainerConfig`.
//!
//! Invariants: this module is pure. A configuration depends only on the [`Inputs`]. Files, volumes and images already
//! exist. If a configuration cannot express a request of a pod, that is an error. No request is ever left out.

mod dns;
mod environment;
mod error;
mod host_names;
mod node;
mod resources;
mod security;
mod volume_mount;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use dns::{ClusterDns, DnsWarning, resolver};
pub use environment::{EnvironmentError, needs_pod_ips};
pub use error::ConfigError;
pub use host_names::{HostNameError, HostNames, host_names};
pub use node::{NodeFacts, huge_pages, huge_pages_by_size, kernel_version};
pub use resources::{ResourceError, larger, pod_resources, resources};
pub use security::{NonRootBreach, SecurityError};
pub use volume_mount::MountError;

use crate::api::field_ref::PodFacts;
use crate::api::objects::ObjectSet;
use crate::api::pod::{ContainerPort, EGRESS_BANDWIDTH, INGRESS_BANDWIDTH};
use crate::api::quantity::Quantity;
use crate::api::service::Protocol;
use crate::api::sysctls::normalized;
use crate::api::{Container, Pod};
use crate::engine::runtime::{
    ContainerConfig, ContainerMetadata, ImageSpec, Labels, Mount, NamespaceMode, NamespaceOptions,
    SandboxConfig, SandboxMetadata, TerminationMessage, labels,
};
use crate::net::network::etc_files::EtcFiles;
use crate::net::network::{Bandwidth, PortMapping};
use crate::pods::volumes::MountedVolumes;

/// The daemon's settings for the resources of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourcePolicy {
    /// The largest number of processes and threads of a pod. `None` means no limit.
    pub pod_pids_limit: Option<i64>,
    /// True if the kernel kills only one process of a container for lack of memory, and not all of them. `None` means
    /// that the node's cgroups decide.
    pub single_process_oom_kill: Option<bool>,
    /// The rule for which containers may be swapped out.
    pub swap: SwapBehavior,
}

/// The values of the setting `memorySwap.swapBehavior`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwapBehavior {
    /// No container may be swapped out.
    #[default]
    NoSwap,
    /// Containers of burstable pods may be swapped out in part.
    LimitedSwap,
}

/// A text does not name a swap behavior.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no swap behavior; it is NoSwap or LimitedSwap")]
pub struct SwapBehaviorError(String);

impl FromStr for SwapBehavior {
    type Err = SwapBehaviorError;

    fn from_str(s: &str) -> Result<Self, SwapBehaviorError> {
        match s {
            "" | "NoSwap" => Ok(Self::NoSwap),
            "LimitedSwap" => Ok(Self::LimitedSwap),
            _ => Err(SwapBehaviorError(s.to_owned())),
        }
    }
}

/// The inputs of a sandbox's configuration.
pub struct SandboxInputs<'a> {
    /// The pod, validated and with defaults.
    pub pod: &'a Pod,
    /// The number of sandboxes that the pod had before this one.
    pub attempt: u32,
    /// The host name that processes see: [`HostNames::kernel`].
    pub hostname: &'a str,
    /// The name of the runtime; empty means the default runtime.
    pub runtime_handler: String,
    /// The directory of the pod's logs.
    pub log_directory: PathBuf,
    /// The cgroup of the pod.
    pub cgroup_parent: String,
    /// The resource settings of the daemon's configuration.
    pub resource_policy: ResourcePolicy,
    /// The pod's volumes.
    pub volumes: &'a MountedVolumes,
}

/// Makes the configuration of a pod's sandbox.
pub fn sandbox(i: &SandboxInputs<'_>) -> SandboxConfig {
    let m = &i.pod.metadata;
    SandboxConfig {
        metadata: SandboxMetadata {
            name: m.name.clone(),
            namespace: m.namespace.clone(),
            uid: m.uid.to_string(),
            attempt: i.attempt,
        },
        hostname: i.hostname.to_owned(),
        log_directory: i.log_directory.clone(),
        cgroup_parent: i.cgroup_parent.clone(),
        resources: pod_resources(i.pod, i.resource_policy),
        namespaces: namespaces(i.pod),
        runtime_handler: i.runtime_handler.clone(),
        sysctls: sysctls(i.pod),
        tmpfs: i.volumes.tmpfs().to_vec(),
        port_mappings: port_mappings(i.pod),
        bandwidth: bandwidth(i.pod),
        labels: pod_labels(i.pod),
    }
}

/// Reads the bandwidth limits from the pod's annotations, which validation has checked. A fraction of a bit counts as a
/// whole bit.
fn bandwidth(pod: &Pod) -> Bandwidth {
    let rate = |key: &str| {
        let text = pod.metadata.annotations.get(key)?;
        let value = Quantity(text.clone()).value()?;
        u64::try_from(value).ok()
    };
    Bandwidth {
        ingress: rate(INGRESS_BANDWIDTH),
        egress: rate(EGRESS_BANDWIDTH),
    }
}

/// Returns the port mappings of every container that requests a port of the node. A pod in the node's network has no
/// mappings, because its ports are the node's.
fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    if pod.spec.host_network {
        return Vec::new();
    }
    let ports = pod.spec.all_containers().flat_map(|c| &c.ports);
    let mapping = |port: &ContainerPort| {
        Some(PortMapping {
            host_ip: port
                .host_ip
                .parse()
                .ok()
                .filter(|ip: &IpAddr| !ip.is_unspecified()),
            host_port: u16::try_from(port.host_port).ok().filter(|n| *n > 0)?,
            container_port: u16::try_from(port.container_port).ok()?,
            protocol: match port.protocol.as_str() {
                "UDP" => Protocol::Udp,
                "TCP" => Protocol::Tcp,
                _ => return None,
            },
        })
    };
    ports.filter_map(mapping).collect()
}

fn sysctls(pod: &Pod) -> Vec<(String, String)> {
    let all = pod.spec.security_context.sysctls.iter();
    all.map(|s| (normalized(&s.name), s.value.clone()))
        .collect()
}

fn namespaces(pod: &Pod) -> NamespaceOptions {
    let s = &pod.spec;
    let of_node = |node, otherwise| if node { NamespaceMode::Node } else { otherwise };
    NamespaceOptions {
        network: of_node(s.host_network, NamespaceMode::Pod),
        ipc: of_node(s.host_ipc, NamespaceMode::Pod),
        pid: match s.share_process_namespace {
            true => NamespaceMode::Pod,
            false => of_node(s.host_pid, NamespaceMode::Container),
        },
    }
}

/// The images of volumes, by the name of the volume.
pub type ImageVolumes = BTreeMap<String, ImageSpec>;

/// The inputs of a container's configuration.
pub struct Inputs<'a> {
    /// The pod, validated and with defaults.
    pub pod: &'a Pod,
    /// The container of the pod that is configured.
    pub container: &'a Container,
    /// The number of instances that the container had before this one.
    pub attempt: u32,
    /// The id of the container's image, `sha256:…`.
    pub image_id: &'a str,
    /// The user of the image as `user[:group]`, in names or numbers. An empty text means root.
    pub image_user: &'a str,
    /// The pod's volumes.
    pub volumes: &'a MountedVolumes,
    /// The images of the volumes that the container mounts, by the name of the volume.
    pub image_volumes: &'a ImageVolumes,
    /// The generated files of /etc, which the pod's containers share.
    pub etc_files: &'a EtcFiles,
    /// The file for the container's termination message, if the container has one.
    pub termination_log: Option<PathBuf>,
    /// The directory of the seccomp profiles of type `Localhost`.
    pub seccomp_profiles: &'a Path,
    /// The facts of the node.
    pub node: &'a NodeFacts,
    /// The resource settings of the daemon's configuration.
    pub resource_policy: ResourcePolicy,
    /// The objects that the pod refers to.
    pub objects: &'a ObjectSet,
    /// The variables of services, in their order.
    pub services: &'a [(String, String)],
    /// The pod's addresses, the primary one first. The list may be empty if [`needs_pod_ips`] returns false.
    pub pod_ips: &'a [IpAddr],
}

/// Makes the configuration of a container.
///
/// # Errors
/// Returns [`ConfigError`] if there is no configuration. Examples are a mount of a volume that the pod does not have, a
/// bad quantity, `runAsNonRoot` for an image that runs as root, and a variable from a missing object.
pub fn container(i: &Inputs<'_>) -> Result<ContainerConfig, ConfigError> {
    let c = i.container;
    let variables = environment::Sources {
        pod: i.pod,
        container: c,
        objects: i.objects,
        facts: &PodFacts {
            host_ips: i.node.host_ips.clone(),
            pod_ips: i.pod_ips.iter().map(ToString::to_string).collect(),
            allocatable: i.node.allocatable,
        },
        services: i.services,
    }
    .variables()?;
    Ok(ContainerConfig {
        processes_of: None,
        metadata: ContainerMetadata {
            name: c.name.clone(),
            attempt: i.attempt,
        },
        image: ImageSpec {
            id: i.image_id.to_owned(),
            name: c.image.clone(),
        },
        command: environment::expand_words(&c.command, &variables),
        args: environment::expand_words(&c.args, &variables),
        working_dir: c.working_dir.clone(),
        mounts: mounts(i, &variables)?,
        env: variables,
        resources: resources(i.pod, c, i.node, i.resource_policy)?,
        requirements: c.resources.clone(),
        security: security::security(i)?,
        stdin: c.stdin,
        stdin_once: c.stdin_once,
        tty: c.tty,
        log_path: format!("{}/{}.log", c.name, i.attempt).into(),
        stop_signal: c.stop_signal().map(str::to_owned),
        termination_message: i.termination_log.clone().map(|file| TerminationMessage {
            file,
            fall_back_to_log: c.termination_message_policy == "FallbackToLogsOnError",
        }),
        labels: container_labels(i.pod, c),
        annotations: Labels::from([(
            labels::CONTAINER_HASH.to_owned(),
            format!("{:x}", spec_hash(c)),
        )]),
    })
}

fn pod_labels(pod: &Pod) -> Labels {
    let m = &pod.metadata;
    let own = [
        (labels::POD_NAME, m.name.as_str()),
        (labels::POD_NAMESPACE, &m.namespace),
        (labels::POD_UID, m.uid.as_str()),
    ];
    own.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn container_labels(pod: &Pod, container: &Container) -> Labels {
    let mut all = pod_labels(pod);
    all.insert(labels::CONTAINER_NAME.to_owned(), container.name.clone());
    all
}

/// Returns the hash of a container's name and image (FNV-1a, 32 bits). If the hash changes, the container is replaced
/// (kubelet-probes 8.3).
pub fn spec_hash(container: &Container) -> u32 {
    let text = serde_json::json!({"name": container.name, "image": container.image}).to_string();
    text.bytes().fold(0x811c_9dc5, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    })
}

/// Returns the mounts of a container: its volumes, then the generated files that no volume covers.
fn mounts(i: &Inputs<'_>, variables: &[(String, String)]) -> Result<Vec<Mount>, MountError> {
    let c = i.container;
    let mut all = Vec::with_capacity(c.volume_mounts.len() + 4);
    for m in &c.volume_mounts {
        all.push(volume_mount::mount(i, m, variables)?);
    }
    let read_only_root = c.security_context.read_only_root_filesystem == Some(true);
    let last_words = c.termination_message_destination();
    let generated = [
        (Some(&i.etc_files.hosts), "/etc/hosts", false),
        // The containers of the pod share the next two files, so a container with a read-only root must not write these
        // files either.
        (Some(&i.etc_files.hostname), "/etc/hostname", read_only_root),
        (
            Some(&i.etc_files.resolv_conf),
            "/etc/resolv.conf",
            read_only_root,
        ),
        (i.termination_log.as_ref(), last_words.as_ref(), false),
    ];
    for (file, path, read_only) in generated {
        let taken = |m: &Mount| Path::new(&m.container_path) == Path::new(path);
        if let Some(file) = file.filter(|_| !all.iter().any(taken)) {
            all.push(Mount {
                host_path: file.clone(),
                container_path: path.to_owned(),
                read_only,
                ..Default::default()
            });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod oci_spec_tests;
#[cfg(test)]
mod tests;
