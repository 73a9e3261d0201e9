//! The volumes of a pod, their sources, and the places where containers mount them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::environment::{ObjectFieldSelector, ResourceFieldSelector};
use crate::api::quantity::Quantity;

/// Returns the absolute form of a path. The API allows a relative path, which starts at the root.
pub(super) fn below_root(path: &str) -> Cow<'_, str> {
    if path.is_empty() || path.starts_with('/') {
        path.into()
    } else {
        format!("/{path}").into()
    }
}

/// A mount of a volume in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    /// Name of a volume of the pod.
    pub name: String,
    /// Path in the container, as written. [`VolumeMount::destination`] returns its absolute form.
    pub mount_path: String,
    /// True if the mount is read-only; default false.
    pub read_only: bool,
    /// Path below the volume that is mounted, without `..`. Empty means the whole volume.
    pub sub_path: String,
    /// Path below the volume that is mounted; `$(VAR)` in it is expanded. Not allowed together with `subPath`.
    pub sub_path_expr: String,
    /// Propagation of mounts: `None` (default), `HostToContainer`, or `Bidirectional` in a privileged container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_propagation: Option<String>,
    /// Rule for mounts below a read-only mount: `Disabled` (default), `IfPossible` or `Enabled`. The rule decides
    /// whether the mounts below are read-only too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive_read_only: Option<String>,
}

impl VolumeMount {
    /// Returns the absolute path in the container. A relative `mountPath` starts at the root.
    pub fn destination(&self) -> Cow<'_, str> {
        below_root(&self.mount_path)
    }
}

/// A block volume at a path in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeDevice {
    /// Name of a volume of the pod that is a persistentVolumeClaim.
    pub name: String,
    /// Path in the container, without `..`.
    pub device_path: String,
}

/// A volume of a pod with exactly one source. A volume without a source is an emptyDir (kubelet-probes 1.1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Name of the volume: a DNS label, unique in the pod.
    pub name: String,
    /// Source: an empty directory that lives as long as the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
    /// Source: a path of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<HostPath>,
    /// Source: keys of a ConfigMap as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolume>,
    /// Source: keys of a Secret as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolume>,
    /// Source: fields of the pod as files.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardApiVolume>,
    /// Source: several ConfigMaps, Secrets and fields of the pod in one directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projected: Option<ProjectedVolume>,
    /// Source: a directory that outlives the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// Source: the files of an image.
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

/// A key of an object that becomes a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyToPath {
    /// Name of the key.
    pub key: String,
    /// Path of the file below the volume. It is relative, contains no `..` and does not begin with `..`.
    pub path: String,
    /// Permission bits of the file, 0–511 (0777). If they are missing, the file has the volume's `defaultMode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i32>,
}

/// `configMap` of a volume: keys of a ConfigMap as files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapVolume {
    /// Name of a ConfigMap in the pod's namespace.
    pub name: String,
    /// Keys that become files. An empty list means all keys, each as a file with the name of the key.
    pub items: Vec<KeyToPath>,
    /// Permission bits of the files, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
    /// True if the ConfigMap, or a key of `items`, may be missing.
    pub optional: Option<bool>,
}

/// `secret` of a volume: keys of a Secret as files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretVolume {
    /// Name of a Secret in the pod's namespace.
    pub secret_name: String,
    /// Keys of the Secret that become files. An empty list means all keys, each as a file with the name of the key.
    pub items: Vec<KeyToPath>,
    /// Permission bits of the files, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
    /// True if the Secret, or a key of `items`, may be missing.
    pub optional: Option<bool>,
}

/// `downwardAPI` of a volume: fields of the pod as files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiVolume {
    /// Files of the volume.
    pub items: Vec<DownwardApiFile>,
    /// Permission bits of the files, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
}

/// A file of a downwardAPI volume. Exactly one of the two references is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiFile {
    /// Path of the file below the volume. It is relative, contains no `..` and does not begin with `..`.
    pub path: String,
    /// Reference to a field of the pod: `metadata.name`, `namespace`, `uid`, `labels` or `annotations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
    /// Reference to a limit or request of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldSelector>,
    /// Permission bits of the file. If they are missing, the file has the volume's `defaultMode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i32>,
}

/// `projected` of a volume: several sources in one directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectedVolume {
    /// Sources in order. A later source replaces files of an earlier one that have the same path.
    pub sources: Vec<VolumeProjection>,
    /// Permission bits of the files, 0–511 (0777); default 420 (0644).
    pub default_mode: Option<i32>,
}

/// A source of a projected volume. Exactly one of the four fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeProjection {
    /// Keys of a ConfigMap as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ObjectProjection>,
    /// Keys of a Secret as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<ObjectProjection>,
    /// Fields of the pod as files.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardApiProjection>,
    /// A token of the pod's service account as a file. Only a pod of an API server has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_token: Option<ServiceAccountTokenProjection>,
}

/// `serviceAccountToken` of a projected volume: a token that an API server issues for this pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAccountTokenProjection {
    /// Audience of the token. Empty means the API server.
    pub audience: String,
    /// Life of the token in seconds, 600 to 2^32; default 3600. The API server may issue one with another life.
    pub expiration_seconds: i64,
    /// Path of the file, relative to the volume.
    pub path: String,
}

/// `configMap` or `secret` of a projected volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectProjection {
    /// Name of an object in the pod's namespace.
    pub name: String,
    /// Keys that become files. An empty list means all keys.
    pub items: Vec<KeyToPath>,
    /// True if the object, or a key of `items`, may be missing.
    pub optional: Option<bool>,
}

/// `downwardAPI` of a projected volume: fields of the pod as files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiProjection {
    /// Files that this source adds to the projected volume.
    pub items: Vec<DownwardApiFile>,
}

/// `persistentVolumeClaim` of a volume: a directory that outlives the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    /// Name of a PersistentVolumeClaim in the pod's namespace.
    pub claim_name: String,
    /// True if every mount of the claim is read-only.
    pub read_only: bool,
}

/// `image` of a volume: the files of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageVolume {
    /// Image, in the form that a container names its image.
    pub reference: String,
    /// When to pull the image: `Always` (default for `:latest` and images without tag), `IfNotPresent` (default
    /// otherwise) or `Never`.
    pub pull_policy: String,
}

/// `emptyDir` of a volume: a directory that lives as long as the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EmptyDir {
    /// Medium of the files: empty (the node's disk), `Memory` (a tmpfs), or `HugePages` and `HugePages-<size>` (a
    /// hugetlbfs).
    pub medium: String,
    /// Largest size of the volume; 0 means no limit. A volume in memory cannot grow beyond the limit. A pod is
    /// evicted if its volume on the disk grows beyond the limit.
    pub size_limit: Option<Quantity>,
}

/// `hostPath` of a volume: a path of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostPath {
    /// Path on the node, as written and without `..`. [`HostPath::on_node`] returns its absolute form.
    pub path: String,
    /// Type that the path must have: empty (no check), DirectoryOrCreate, Directory, FileOrCreate, File, Socket,
    /// CharDevice or BlockDevice.
    #[serde(rename = "type")]
    pub type_: String,
}

impl HostPath {
    /// Returns the absolute path on the node. A relative `path` starts at the root.
    pub fn on_node(&self) -> Cow<'_, str> {
        below_root(&self.path)
    }
}
