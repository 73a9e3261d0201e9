//! The mounts of a container besides its root. The shim makes some of these mounts first, and then the OCI runtime
//! makes all remaining ones.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::engine::images::{ImageStore, overlay};
use crate::engine::runtime::{ContainerConfig, ImageSpec, Mount, Propagation, RuntimeError};
use crate::engine::shims::oci_spec::Bind;
use crate::engine::shims::state::{ImageMount, SubPath};

/// The mounts of a container, divided by the program that makes them.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    /// Bind mounts that the OCI runtime makes.
    pub(super) binds: Vec<Bind>,
    /// Images that the shim mounts before it binds [`Self::sub_paths`].
    pub(super) images: Vec<ImageMount>,
    /// Bind mounts that the shim makes: parts of a volume, and volumes with settings that an OCI runtime does not
    /// support.
    pub(super) sub_paths: Vec<SubPath>,
}

/// Returns true if the path of the node is a device or is below /dev. A mount of such a path is meant for its devices.
/// On any other mount an unprivileged container cannot open devices.
fn holds_devices(path: &Path) -> bool {
    let is_device = path.metadata().is_ok_and(|m| {
        let kind = m.file_type();
        kind.is_block_device() || kind.is_char_device()
    });
    is_device
        || path
            .canonicalize()
            .is_ok_and(|real| real.starts_with("/dev"))
}

impl Mounts {
    /// Returns the mounts of a container with the record directory `dir`. The mount points of the shim's mounts are
    /// below `dir`.
    ///
    /// # Errors
    /// Returns an error if the image of a volume does not exist any more.
    pub(super) fn of(
        c: &ContainerConfig,
        dir: &Path,
        images: &ImageStore,
    ) -> Result<Self, RuntimeError> {
        let mut all = Self::default();
        for m in &c.mounts {
            let volume = match &m.image {
                Some(image) => all.mount_image(image, dir, images)?,
                None => m.host_path.clone(),
            };
            let source = all.source(m, volume, dir);
            all.binds.push(Bind {
                source,
                destination: m.container_path.clone(),
                read_only: m.read_only || m.image.is_some(),
                no_exec: m.image.is_some(),
                no_dev: m.image.is_some()
                    || (!c.security.privileged && !holds_devices(&m.host_path)),
                propagation: m.propagation,
            });
        }
        Ok(all)
    }

    /// Returns the path at which the image is mounted. Several mounts of the same image share one path.
    fn mount_image(
        &mut self,
        image: &ImageSpec,
        dir: &Path,
        images: &ImageStore,
    ) -> Result<PathBuf, RuntimeError> {
        if let Some(there) = self.images.iter().find(|i| i.id == image.id) {
            return Ok(there.target.clone());
        }
        let found = images.resolve(&image.id);
        let found = found.map_err(|e| RuntimeError::failed(e.to_string()))?;
        let at = dir.join(format!("images/{}", self.images.len()));
        let target = at.join("mounted");
        self.images.push(ImageMount {
            id: found.id,
            layers: overlay::padded(found.layers, &at),
            target: target.clone(),
        });
        Ok(target)
    }

    /// Returns the source for the OCI runtime's bind mount: the volume, or the path at which the shim binds the volume
    /// or a part of it. `recursiveReadOnly` changes nothing for an image, because no mount is below an image.
    fn source(&mut self, m: &Mount, volume: PathBuf, dir: &Path) -> PathBuf {
        let read_only = m.recursive_read_only && m.image.is_none();
        if m.sub_path.is_none() && m.propagation == Propagation::Private && !read_only {
            return volume;
        }
        let target = dir.join(format!("subpaths/{}", self.sub_paths.len()));
        self.sub_paths.push(SubPath {
            volume,
            image: m.image.as_ref().map(|i| i.name.clone()).unwrap_or_default(),
            path: m.sub_path.clone().unwrap_or_default(),
            target: target.clone(),
            propagation: m.propagation,
            read_only,
        });
        target
    }
}
