//! The volumes of one pod, and the writing of their content.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::below::open_volume;
use super::error::{ContentError, SetUpError, VolumeError};
use super::ownership::FsGroup;
use super::payload::Payload;
use super::{SetUp, VolumeType, atomic_writer};
use crate::api::pod::{ImageVolume, Volume};
use crate::engine::runtime::Tmpfs;

/// The files that should be in a volume of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) volume: String,
    pub(super) dir: PathBuf,
    /// The directories in the volume on which other volumes are mounted.
    pub(super) mount_points: BTreeSet<PathBuf>,
    pub(super) payload: Result<Payload, ContentError>,
}

/// The volumes of one pod that are ready for its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedVolumes {
    sources: BTreeMap<String, PathBuf>,
    /// The volumes that are images and have no path.
    images: BTreeMap<String, ImageVolume>,
    read_only: BTreeSet<String>,
    tmpfs: Vec<Tmpfs>,
    /// The volumes that refer to a missing object.
    missing: Vec<(String, ContentError)>,
    /// The volumes that are given to the pod's group.
    of_group: Vec<String>,
    group: Option<FsGroup>,
    pub(super) contents: Vec<Content>,
}

/// A volume whose content could not be brought up to date.
#[derive(Debug)]
pub struct Outdated {
    /// The error, which names the volume.
    pub error: VolumeError,
    /// True if the volume has older content with which containers can run.
    pub usable: bool,
}

impl MountedVolumes {
    pub(super) fn new(group: Option<FsGroup>) -> Self {
        Self {
            group,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, volume: &Volume, ready: SetUp, t: &dyn VolumeType) {
        let name = &volume.name;
        if t.is_read_only(volume) {
            self.read_only.insert(name.clone());
        }
        if t.takes_group(volume) && !ready.keeps_group {
            self.of_group.push(name.clone());
        }
        let missing = ready.missing.map(|cause| (name.clone(), cause));
        self.missing.extend(missing);
        match t.image(volume) {
            Some(image) => drop(self.images.insert(name.clone(), image.clone())),
            None => drop(self.sources.insert(name.clone(), ready.source)),
        }
        self.tmpfs.extend(ready.tmpfs);
    }

    /// Returns the path of the volume with this name. A volume that is an image has no path.
    pub fn source(&self, name: &str) -> Option<&Path> {
        self.sources.get(name).map(PathBuf::as_path)
    }

    /// Returns the image of the volume with this name, if the volume is an image.
    pub fn image(&self, name: &str) -> Option<&ImageVolume> {
        self.images.get(name)
    }

    /// True if every mount of the volume is read-only.
    pub fn is_read_only(&self, name: &str) -> bool {
        self.read_only.contains(name)
    }

    /// Returns every tmpfs that the sandbox must mount.
    pub fn tmpfs(&self) -> &[Tmpfs] {
        &self.tmpfs
    }

    /// Checks that a new sandbox can use the volumes.
    ///
    /// # Errors
    /// Returns the error of the first volume whose objects are missing.
    pub fn check(&self) -> Result<(), VolumeError> {
        let missing = self.missing.iter().map(|(volume, cause)| (volume, cause));
        let contents = self.contents.iter();
        let no_content = contents.filter_map(|c| Some((&c.volume, c.payload.as_ref().err()?)));
        match missing.chain(no_content).next() {
            Some((volume, cause)) => Err(VolumeError::new(volume, cause.clone())),
            None => Ok(()),
        }
    }

    /// True if the volumes must be filled or given to a group in the sandbox, before its containers start.
    pub fn need_root(&self) -> bool {
        !self.contents.is_empty() || (self.group.is_some() && !self.of_group.is_empty())
    }

    /// Gives the volumes of a sandbox without containers to the pod's group. `root` is
    /// [`crate::engine::runtime::Runtime::volumes_root`].
    ///
    /// # Errors
    /// Returns the errors of the volumes with files that could not be given to the group.
    pub fn give_to_group(&self, root: &OwnedFd) -> Vec<VolumeError> {
        let Some(group) = self.group else {
            return Vec::new();
        };
        let give = |name: &String| {
            let given = open_volume(root, self.source(name)?).and_then(|v| group.take(&v));
            let cause = given.err()?;
            Some(VolumeError::new(name, SetUpError::Group(cause)))
        };
        self.of_group.iter().filter_map(give).collect()
    }

    /// Brings the content of the volumes up to date. Returns the volumes that could not be brought up to date.
    pub fn fill(&self, root: &OwnedFd) -> Vec<Outdated> {
        let contents = self.contents.iter();
        contents.filter_map(|c| self.fill_one(root, c)).collect()
    }

    fn fill_one(&self, root: &OwnedFd, content: &Content) -> Option<Outdated> {
        let outdated = |cause: SetUpError, usable| Outdated {
            error: VolumeError::new(&content.volume, cause),
            usable,
        };
        let volume = match open_in_memory(root, &content.dir) {
            Ok(volume) => volume,
            Err(cause) => return Some(outdated(cause, false)),
        };
        let group = self.group.map(|group| group.gid);
        let payload = content.payload.as_ref().map_err(|e| e.clone().into());
        let written = payload.and_then(|payload| {
            atomic_writer::make_mount_points(&volume, payload, &content.mount_points, group)
                .and_then(|()| atomic_writer::write(&volume, payload, group))
                .map_err(SetUpError::Write)
        });
        let cause = written.err()?;
        Some(outdated(cause, atomic_writer::is_written(&volume)))
    }
}

/// Opens a volume whose content must not be on a disk. Fails if the volume is not in memory.
fn open_in_memory(root: &OwnedFd, dir: &Path) -> Result<OwnedFd, SetUpError> {
    let volume = open_volume(root, dir).map_err(SetUpError::Open)?;
    match fstatfs(&volume).map(|fs| fs.filesystem_type()) {
        Ok(TMPFS_MAGIC) => Ok(volume),
        Ok(_) => Err(SetUpError::NotInMemory),
        Err(e) => Err(SetUpError::Look(e)),
    }
}
