//! The node as the link to a cluster tells of it, and the start of the link.

use std::sync::Arc;

use super::backend::DaemonBackend;
use super::machine;
use crate::api::review::{NoReview, User};
use crate::base::clock::boot_id;
use crate::cluster::link::NodeSource;
use crate::cluster::node::facts::{EXTEND_WEB_SOCKETS, NodeFacts, NodeImage, Resources};
use crate::cluster::node::status::Health;
use crate::engine::stats::Disk;
use crate::face::server::{Health as _, Reviews};
use crate::pods::admission::{Closed, node_labels};
use crate::pods::container_config::huge_pages_by_size;

/// The version of Kubernetes whose kubelet podprobe stands for. A control plane refuses a node whose version is too far from
/// its own.
const KUBELET_VERSION: &str = "v1.36.2";

/// The node, asked for by the link at each computation of its status.
pub(super) struct ClusterNode(pub(super) Arc<DaemonBackend>);

impl Reviews for DaemonBackend {
    fn user_of(&self, token: &str) -> Result<Option<User>, NoReview> {
        self.reviews.user_of(token)
    }

    fn may(&self, user: &User, verb: &str, subresource: &str) -> Result<bool, NoReview> {
        self.reviews.may(user, verb, subresource)
    }
}

impl NodeSource for ClusterNode {
    fn facts(&self) -> NodeFacts {
        let Self(backend) = self;
        let (settings, node) = (backend.settings.get(), backend.node.get());
        // The labels of the Node object may differ.
        let own = node_labels(&node.name, &settings.node_labels);
        let label = |key: &str| own.get(key).cloned().unwrap_or_default();
        let (capacity, allocatable) = self.resources();
        NodeFacts {
            name: node.name.clone(),
            hostname: label("kubernetes.io/hostname"),
            addresses: vec![settings.node_ip.to_string()],
            operating_system: "linux".to_owned(),
            architecture: label("kubernetes.io/arch"),
            kernel_version: machine::kernel_release(),
            os_image: machine::os_name(),
            machine_id: machine::machine_id(),
            system_uuid: machine::system_uuid(),
            boot_id: boot_id(),
            container_runtime_version: concat!("podprobe://", env!("CARGO_PKG_VERSION")).to_owned(),
            kubelet_version: KUBELET_VERSION.to_owned(),
            port: settings.port.unwrap_or_default(),
            capacity,
            allocatable,
            images: self.images(),
            declared_features: vec![EXTEND_WEB_SOCKETS.to_owned()],
            labels: settings.node_labels.clone(),
            taints: settings.register_with_taints.clone(),
        }
    }

    fn health(&self) -> Health {
        // A kubelet tells of the runtime and of the network in the same way.
        let failures = self.0.checks().into_iter();
        let failures = failures.filter_map(|check| {
            let why = check.failure?;
            Some(format!("{}: {why}", check.name))
        });
        // The kubelet's words.
        let shuts_down = self.0.drain.closed() == Some(Closed::ShuttingDown);
        let failures = failures.chain(shuts_down.then(|| "node is shutting down".to_owned()));
        Health {
            not_ready: failures.collect(),
            ..Health::default()
        }
    }
}

impl ClusterNode {
    /// Returns the resources of the node, and the part of them that pods may request.
    fn resources(&self) -> (Resources, Resources) {
        let Self(backend) = self;
        let node = backend.node.get();
        let amount = |value: i64| u64::try_from(value).unwrap_or_default();
        let disk = Disk::of(&backend.layout.lib_dir());
        let capacity = Resources {
            cpu_millis: amount(node.cpu_milli),
            memory: amount(node.memory),
            ephemeral_storage: disk.map(|disk| disk.capacity).unwrap_or_default(),
            pods: node.max_pods as u64,
            huge_pages: huge_pages_by_size(),
        };
        let in_pages: u64 = capacity.huge_pages.values().sum();
        let allocatable = Resources {
            memory: capacity.memory.saturating_sub(in_pages),
            ..capacity.clone()
        };
        (capacity, allocatable)
    }

    /// The images in the store, each with its names.
    fn images(&self) -> Vec<NodeImage> {
        let mut images: Vec<NodeImage> = Vec::new();
        for record in self.0.store.list().unwrap_or_default() {
            let at = images.iter().position(|image| image.id == record.id);
            let at = at.unwrap_or_else(|| {
                images.push(NodeImage {
                    id: record.id.clone(),
                    size: record.size,
                    ..NodeImage::default()
                });
                images.len() - 1
            });
            let Some(name) = record.name else { continue };
            match name.contains('@') {
                true => images[at].digests.push(name),
                false => images[at].tags.push(name),
            }
        }
        images
    }
}
