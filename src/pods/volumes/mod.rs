//! Volumes: the types of volumes, and the way in which each makes a directory on the node.
//!
//! Invariants: each type of volume is one implementor of [`VolumeType`], in a file of its own and in the list of
//! [`Volumes::new`]. No code outside this module depends on the type of a volume. A volume lives in the directory
//! `<pod>/volumes/<type>/<name>` until its pod has finished. A volume may be set up again without harm.
//!
//! The content of a volume of objects is in a tmpfs that the sandbox mounts in its own mount namespace. So the content
//! is never on a disk and never visible on the node. The content is written from outside, below
//! [`crate::engine::runtime::Runtime::volumes_root`], before the containers start and whenever the content changes.

mod atomic_writer;
mod below;
mod claim;
mod config_map;
mod downward_api;
mod empty_dir;
mod error;
mod host_path;
mod image;
mod mounted;
mod nested;
mod ownership;
mod payload;
mod projected;
mod secret;
mod usage;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

pub use error::{ContentError, HostPathError, PathRule, SetUpError, VolumeError};
pub use mounted::{MountedVolumes, Outdated};
pub use payload::Payload;
pub use usage::{Usage, Walk};

use crate::api::Pod;
use crate::api::field_ref::Allocatable;
use crate::api::objects::ObjectSet;
use crate::api::pod::{ImageVolume, Volume};
use crate::api::quantity::Quantity;
use crate::base::paths::directories::make_private;
use crate::base::remove_tree::remove_tree;
use crate::engine::runtime::Tmpfs;
use mounted::Content;
use ownership::FsGroup;

/// The inputs from which a volume is made.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The objects that the pod refers to.
    pub objects: &'a ObjectSet,
    /// The node's resources, for the limits in a downwardAPI volume.
    pub allocatable: Allocatable,
    /// The name of the node.
    pub node_name: &'a str,
    /// The labels of the node, by which the volume of a claim chooses its nodes.
    pub node_labels: &'a BTreeMap<String, String>,
    /// The directory that has the directories of all claims.
    pub claims: &'a Path,
}

/// A type of volume (the kubelet's volume plugin).
pub trait VolumeType: Send + Sync {
    /// Returns the name of the type in Kubernetes, for example `kubernetes.io/empty-dir`.
    fn plugin_name(&self) -> &'static str;

    /// Tells whether the volume is of this type.
    fn supports(&self, volume: &Volume) -> bool;

    /// Makes the volume ready for containers. `dir` is the volume's own directory, which may not exist yet. The
    /// function may be called again, and the data of containers then stays.
    ///
    /// # Errors
    /// Returns [`SetUpError`] if the volume is not ready. The pod waits with ContainerCreating, and the set-up is tried
    /// again.
    fn set_up(&self, of: &Context<'_>, volume: &Volume, dir: &Path) -> Result<SetUp, SetUpError>;

    /// Returns the files of a volume of objects, or the reason why it has no files. Returns `None` for other types of
    /// volumes.
    fn content(&self, _: &Context<'_>, _: &Volume) -> Option<Result<Payload, ContentError>> {
        None
    }

    /// Returns the image that the runtime mounts instead of a path on the node. Returns `None` for other types of
    /// volumes.
    fn image<'v>(&self, _: &'v Volume) -> Option<&'v ImageVolume> {
        None
    }

    /// True if every mount of the volume is read-only.
    fn is_read_only(&self, _: &Volume) -> bool {
        false
    }

    /// Tells whether the files of the volume are given to the pod's `fsGroup`.
    fn takes_group(&self, _: &Volume) -> bool {
        false
    }

    /// Returns the size limit of the volume on the disk. Returns `None` if there is no limit, or if the file system
    /// enforces the limit.
    fn size_limit<'v>(&self, _: &'v Volume) -> Option<&'v Quantity> {
        None
    }

    /// Removes the volume if it belongs only to the pod. Called when the pod has finished. `dir` may not exist.
    ///
    /// # Errors
    /// Returns an error if the volume could not be removed. The removal is tried again.
    fn tear_down(&self, dir: &Path) -> io::Result<()> {
        remove_tree(dir)
    }
}

/// A volume that is ready for containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUp {
    /// The path that containers mount.
    pub source: PathBuf,
    /// The tmpfs that the sandbox first mounts at `source`, if there is one.
    pub tmpfs: Option<Tmpfs>,
    /// True if the files stay as they are although volumes of this type are given to the pod's `fsGroup`.
    pub keeps_group: bool,
    /// The reason why no new sandbox may use the volume yet. A running sandbox is not ended for this reason.
    pub missing: Option<ContentError>,
}

impl SetUp {
    /// Makes a volume with this path.
    fn at(source: PathBuf) -> Self {
        Self {
            source,
            tmpfs: None,
            keeps_group: false,
            missing: None,
        }
    }

    /// Makes a volume with content that is written into memory. Makes the directory `dir`. The mode of the tmpfs is the
    /// kubelet's: 1777 with `is_sticky`, else 0777.
    fn in_memory(dir: &Path, is_sticky: bool) -> Result<Self, SetUpError> {
        make_private(dir).map_err(|e| SetUpError::make(dir, e))?;
        let tmpfs = Tmpfs {
            path: dir.to_owned(),
            size: None,
            page_size: None,
            is_sticky,
        };
        Ok(Self {
            tmpfs: Some(tmpfs),
            ..Self::at(dir.to_owned())
        })
    }
}

/// A volume on the disk that has a size limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedVolume {
    /// The name of the volume in the pod.
    pub name: String,
    /// The directory of the volume, which may not exist yet.
    pub dir: PathBuf,
    /// The limit in bytes, at least 1.
    pub limit: u64,
    /// The limit as written in the spec.
    pub written: String,
}

/// The types of volumes that this node supports.
pub struct Volumes {
    /// The types in order. The first type that supports a volume is its type.
    types: Vec<Box<dyn VolumeType>>,
}

impl Default for Volumes {
    fn default() -> Self {
        Self::new()
    }
}

impl Volumes {
    /// Makes the list with every type.
    pub fn new() -> Self {
        Self {
            types: vec![
                Box::new(host_path::HostPathVolume),
                Box::new(config_map::ConfigMapVolume),
                Box::new(secret::SecretVolume),
                Box::new(downward_api::DownwardApiVolume),
                Box::new(projected::ProjectedVolume),
                Box::new(claim::ClaimVolume),
                Box::new(image::ImageVolume),
                Box::new(empty_dir::EmptyDirVolume),
            ],
        }
    }

    /// Adds a type that is tried before the types in the list.
    #[must_use]
    pub fn with(mut self, more: Box<dyn VolumeType>) -> Self {
        self.types.insert(0, more);
        self
    }

    /// Returns the kubelet's name for the type of a volume, or `None` if no type supports the volume.
    pub fn plugin_name(&self, volume: &Volume) -> Option<&'static str> {
        Some(self.type_of(volume)?.plugin_name())
    }

    /// Makes every volume of a pod ready. `pod_dir` is the pod's directory. If a new sandbox must not be made yet,
    /// [`MountedVolumes::check`] returns the reason.
    ///
    /// # Errors
    /// Returns the error of the first volume that is not ready.
    pub fn set_up(&self, of: &Context<'_>, pod_dir: &Path) -> Result<MountedVolumes, VolumeError> {
        let mut mounted = MountedVolumes::new(FsGroup::of(of.pod));
        for volume in &of.pod.spec.volumes {
            let error = |cause: SetUpError| VolumeError::new(&volume.name, cause);
            let t = self.type_of(volume);
            let t = t.ok_or(SetUpError::NoType).map_err(error)?;
            let dir = directory(t, volume, pod_dir);
            let ready = t.set_up(of, volume, &dir).map_err(error)?;
            mounted.add(volume, ready, t);
        }
        mounted.contents = self.contents(of, pod_dir);
        Ok(mounted)
    }

    /// Returns the volumes of objects with the files that they should have. Most pods have no such volumes.
    pub fn update(&self, of: &Context<'_>, pod_dir: &Path) -> MountedVolumes {
        let mut mounted = MountedVolumes::new(FsGroup::of(of.pod));
        mounted.contents = self.contents(of, pod_dir);
        mounted
    }

    fn contents(&self, of: &Context<'_>, pod_dir: &Path) -> Vec<Content> {
        let volumes = of.pod.spec.volumes.iter();
        let content = |volume: &Volume| {
            let t = self.type_of(volume)?;
            Some(Content {
                volume: volume.name.clone(),
                dir: directory(t, volume, pod_dir),
                mount_points: nested::mount_points(of.pod, &volume.name),
                payload: t.content(of, volume)?.and_then(Payload::checked),
            })
        };
        volumes.filter_map(content).collect()
    }

    /// Removes the volumes that belong only to the pod. Called when no container of the pod runs any more.
    ///
    /// # Errors
    /// Returns an error if a volume could not be removed. All other volumes of the pod are removed.
    pub fn tear_down(&self, pod: &Pod, pod_dir: &Path) -> io::Result<()> {
        let mut result = Ok(());
        for volume in &pod.spec.volumes {
            if let Some(t) = self.type_of(volume) {
                result = result.and(t.tear_down(&directory(t, volume, pod_dir)));
            }
        }
        result
    }

    /// Returns the volumes with a size limit that only a measurement can enforce. Most pods have no such volumes.
    pub fn limited(&self, pod: &Pod, pod_dir: &Path) -> Vec<LimitedVolume> {
        let limited = |volume: &Volume| {
            let t = self.type_of(volume)?;
            let quantity = t.size_limit(volume)?;
            Some(LimitedVolume {
                name: volume.name.clone(),
                dir: directory(t, volume, pod_dir),
                limit: positive(quantity)?,
                written: quantity.0.clone(),
            })
        };
        pod.spec.volumes.iter().filter_map(limited).collect()
    }

    fn type_of(&self, volume: &Volume) -> Option<&dyn VolumeType> {
        let mut all = self.types.iter().map(|t| &**t);
        all.find(|t| t.supports(volume))
    }
}

/// Returns a limit in bytes. 0 means no limit, as in the kubelet.
fn positive(limit: &Quantity) -> Option<u64> {
    let bytes = limit.value().and_then(|n| u64::try_from(n).ok());
    bytes.filter(|&n| n > 0)
}

/// Returns a path such as `<pod>/volumes/kubernetes.io~empty-dir/<name>`.
fn directory(t: &dyn VolumeType, volume: &Volume, pod_dir: &Path) -> PathBuf {
    let plugin = t.plugin_name().replace('/', "~");
    pod_dir.join("volumes").join(plugin).join(&volume.name)
}

#[cfg(test)]
mod tests;
