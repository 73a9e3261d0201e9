//! Volumes: the types of volumes, and how each makes a directory on the node.
//!
//! Invariants: a type of volume is one implementor of [`VolumeType`], in a file of its own and in
//! the list of [`Volumes::new`]; nothing outside this module asks which type a volume has. A volume
//! lives in the directory `<pod>/volumes/<type>/<name>` until its pod has finished. Setting up a
//! volume again does no harm.

mod empty_dir;
mod host_path;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::api::Pod;
use crate::api::pod::Volume;
use crate::remove_tree::remove_tree;
use crate::runtime::Tmpfs;

/// A type of volume (the kubelet's volume plugin).
pub trait VolumeType: Send + Sync {
    /// As in Kubernetes, `kubernetes.io/empty-dir`.
    fn plugin_name(&self) -> &'static str;

    /// Whether the volume is of this type.
    fn supports(&self, volume: &Volume) -> bool;

    /// Makes the volume ready for containers; `dir` is its own directory, which may not exist yet.
    /// Idempotent: data of containers stays.
    ///
    /// # Errors
    /// The cause, for people. The pod waits with ContainerCreating, and the set-up is tried again.
    fn set_up(&self, volume: &Volume, dir: &Path) -> Result<SetUp, String>;

    /// Removes the volume if it belongs only to the pod. Called when the pod has finished; `dir`
    /// may not exist.
    ///
    /// # Errors
    /// The volume could not be removed; this is tried again.
    fn tear_down(&self, dir: &Path) -> io::Result<()> {
        remove_tree(dir)
    }
}

/// A volume that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUp {
    /// The path that containers mount.
    pub source: PathBuf,
    /// A tmpfs that the sandbox mounts there first.
    pub tmpfs: Option<Tmpfs>,
}

/// The volumes of one pod, ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedVolumes {
    sources: BTreeMap<String, PathBuf>,
    tmpfs: Vec<Tmpfs>,
}

impl MountedVolumes {
    /// The path of the volume of this name.
    pub fn source(&self, name: &str) -> Option<&Path> {
        self.sources.get(name).map(PathBuf::as_path)
    }

    /// The tmpfs that the sandbox must mount.
    pub fn tmpfs(&self) -> &[Tmpfs] {
        &self.tmpfs
    }
}

/// A volume is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeError {
    /// Name of the volume.
    pub volume: String,
    /// The cause.
    pub cause: String,
}

impl fmt::Display for VolumeError {
    /// The kubelet's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { volume, cause } = self;
        write!(
            f,
            "MountVolume.SetUp failed for volume {volume:?} : {cause}"
        )
    }
}

impl std::error::Error for VolumeError {}

/// The types of volumes that this node has.
pub struct Volumes {
    /// The first type that supports a volume is its type.
    types: Vec<Box<dyn VolumeType>>,
}

impl Default for Volumes {
    fn default() -> Self {
        Self::new()
    }
}

impl Volumes {
    /// Every type.
    pub fn new() -> Self {
        Self {
            types: vec![
                Box::new(host_path::HostPathVolume),
                Box::new(empty_dir::EmptyDirVolume),
            ],
        }
    }

    /// Adds a type that is asked before the others.
    #[must_use]
    pub fn with(mut self, more: Box<dyn VolumeType>) -> Self {
        self.types.insert(0, more);
        self
    }

    /// Makes every volume of a pod ready. `pod_dir` is the pod's directory.
    ///
    /// # Errors
    /// The first volume that is not ready.
    pub fn set_up(&self, pod: &Pod, pod_dir: &Path) -> Result<MountedVolumes, VolumeError> {
        let mut mounted = MountedVolumes::default();
        for volume in &pod.spec.volumes {
            let ready = self
                .type_of(volume)
                .and_then(|t| t.set_up(volume, &directory(t, volume, pod_dir)));
            let ready = ready.map_err(|cause| VolumeError {
                volume: volume.name.clone(),
                cause,
            })?;
            mounted.sources.insert(volume.name.clone(), ready.source);
            mounted.tmpfs.extend(ready.tmpfs);
        }
        Ok(mounted)
    }

    /// Removes the volumes that belong only to the pod. Called when nothing of the pod runs any
    /// more.
    ///
    /// # Errors
    /// A part could not be removed; the rest is gone.
    pub fn tear_down(&self, pod: &Pod, pod_dir: &Path) -> io::Result<()> {
        let mut result = Ok(());
        for volume in &pod.spec.volumes {
            if let Ok(t) = self.type_of(volume) {
                result = result.and(t.tear_down(&directory(t, volume, pod_dir)));
            }
        }
        result
    }

    fn type_of(&self, volume: &Volume) -> Result<&dyn VolumeType, String> {
        let mut all = self.types.iter().map(|t| &**t);
        all.find(|t| t.supports(volume))
            .ok_or_else(|| "no type of volume that podprobe has".to_owned())
    }
}

/// `<pod>/volumes/kubernetes.io~empty-dir/<name>`.
fn directory(t: &dyn VolumeType, volume: &Volume, pod_dir: &Path) -> PathBuf {
    let plugin = t.plugin_name().replace('/', "~");
    pod_dir.join("volumes").join(plugin).join(&volume.name)
}

#[cfg(test)]
mod tests;
