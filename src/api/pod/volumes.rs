//! The volumes of a pod, their sources, and where containers mount them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::environment::{ObjectFieldSelector, ResourceFieldSelector};
use crate::api::quantity::Quantity;

/// The absolute form of a path that the API allows to be relative: it starts at the root.
pub(super) fn below_root(path: &str) -> Cow<'_, str> {
    if path.is_empty() || path.starts_with('/') {
        path.into()
    } else {
        format!("/{path}").into()
    }
}

/// A volume at a path in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// Name of a volume of the pod.
    pub name: String,
    /// Path in the container, as written: see [`VolumeMount::destination`].
    pub mount_path: String,
    /// Default false.
    pub read_only: bool,
    /// Path below the volume, without `..`; empty is the volume itself.
    pub sub_path: String,
    /// Path below the volume in which `$(VAR)` is expanded; excludes `subPath`.
    pub sub_path_expr: String,
    /// `None` (default), `HostToContainer`, or `Bidirectional` in a privileged container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_propagation: Option<String>,
    /// `Disabled` (default), `IfPossible` or `Enabled`: whether read-only counts for the mounts below the volume too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive_read_only: Option<String>,
}

impl VolumeMount {
    /// The absolute path in the container; a relative `mountPath` is taken from the root.
    pub fn destination(&self) -> Cow<'_, str> {
        below_root(&self.mount_path)
    }
}

/// A block volume at a path in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeDevice {
    /// Name of a persistentVolumeClaim of the pod.
    pub name: String,
    /// Path in the container, without `..`.
    pub device_path: String,
}

/// A volume: exactly one of its sources. Without one it is an emptyDir (kubelet-probes 1.1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// DNS label, unique in the pod.
    pub name: String,
    /// A directory that lives as long as the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
    /// A path of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<HostPath>,
    /// Keys of a ConfigMap as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolume>,
    /// Keys of a Secret as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolume>,
    /// Fields of the pod as files.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardApiVolume>,
    /// Several sources in one directory: ConfigMaps, Secrets and fields of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projected: Option<ProjectedVolume>,
    /// A directory that outlives the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// The files of an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageVolume>,
}

impl Volume {
    /// True if the volume names its source.
    pub fn has_source(&self) -> bool {
        let of_the_node =
            self.empty_dir.is_some() || self.host_path.is_some() || self.image.is_some();
        let of_objects = self.config_map.is_some()
            || self.secret.is_some()
            || self.downward_api.is_some()
            || self.projected.is_some()
            || self.persistent_volume_claim.is_some();
        of_the_node || of_objects
    }
}

/// A key of an object as a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyToPath {
    /// The key.
    pub key: String,
    /// Path below the volume: relative, without `..`, and not beginning with `..`.
    pub path: String,
    /// Permission bits, 0–511 (0777); the volume's `defaultMode` when it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i32>,
}

/// `configMap` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapVolume {
    /// A ConfigMap of the pod's namespace.
    pub name: String,
    /// Keys that become files; empty means all, each as a file of its name.
    pub items: Vec<KeyToPath>,
    /// Permission bits, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
    /// True if the ConfigMap, or a key of `items`, may be missing.
    pub optional: Option<bool>,
}

/// `secret` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretVolume {
    /// A Secret of the pod's namespace.
    pub secret_name: String,
    /// Keys of the Secret that become files; empty means all, each as a file of its name.
    pub items: Vec<KeyToPath>,
    /// Permission bits of the files; same meaning and default as in a ConfigMap volume.
    pub default_mode: Option<i32>,
    /// True if the Secret, or a key of `items`, may be missing.
    pub optional: Option<bool>,
}

/// `downwardAPI` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiVolume {
    /// Files of the volume.
    pub items: Vec<DownwardApiFile>,
    /// Permission bits, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
}

/// A file of a downwardAPI volume: exactly one of the two references.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiFile {
    /// Path below the volume, as of a key.
    pub path: String,
    /// `metadata.name`, `namespace`, `uid`, `labels` or `annotations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
    /// A limit or request of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldSelector>,
    /// Permission bits; the volume's `defaultMode` when it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i32>,
}

/// `projected` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectedVolume {
    /// Sources in order: a later one replaces a file of an earlier one.
    pub sources: Vec<VolumeProjection>,
    /// Permission bits, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
}

/// A source of a projected volume: one of its three fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeProjection {
    /// Keys of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ObjectProjection>,
    /// Keys of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<ObjectProjection>,
    /// Fields of the pod.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardApiProjection>,
}

/// `configMap` and `secret` of a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectProjection {
    /// An object of the pod's namespace.
    pub name: String,
    /// Keys that become files; empty means all.
    pub items: Vec<KeyToPath>,
    /// True if the object, or a key of `items`, may be missing.
    pub optional: Option<bool>,
}

/// `downwardAPI` of a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiProjection {
    /// Files that this source adds to the projected volume.
    pub items: Vec<DownwardApiFile>,
}

/// `persistentVolumeClaim` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    /// A PersistentVolumeClaim of the pod's namespace.
    pub claim_name: String,
    /// True makes every mount of the claim read-only.
    pub read_only: bool,
}

/// `image` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageVolume {
    /// The image, named as that of a container.
    pub reference: String,
    /// `Always` (default for `:latest` and without a tag), `IfNotPresent` (default otherwise) or `Never`.
    pub pull_policy: String,
}

/// `emptyDir`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EmptyDir {
    /// Medium of the files: empty (the node's disk), `Memory` (a tmpfs), or `HugePages` and `HugePages-<size>` (a
    /// hugetlbfs).
    pub medium: String,
    /// Limit of the volume's size. A volume in memory takes no more than this; a pod whose volume on the disk is over
    /// it is evicted. 0 is no limit.
    pub size_limit: Option<Quantity>,
}

/// `hostPath`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostPath {
    /// Path on the node without `..`, as written: see [`HostPath::on_node`].
    pub path: String,
    /// Type that the path must have: empty (no check), DirectoryOrCreate, Directory, FileOrCreate, File, Socket,
    /// CharDevice, BlockDevice.
    #[serde(rename = "type")]
    pub type_: String,
}

impl HostPath {
    /// The absolute path on the node; a relative `path` is taken from the root.
    pub fn on_node(&self) -> Cow<'_, str> {
        below_root(&self.path)
    }
}
