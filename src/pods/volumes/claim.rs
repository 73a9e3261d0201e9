//! `persistentVolumeClaim`: a directory of the node that outlives its pods.
//!
//! Invariant: podprobe never removes the directory or anything in it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Context, SetUp, SetUpError, VolumeType};
use crate::api::pod::Volume;
use crate::base::paths::directories::make_private;

/// The volume type `persistentVolumeClaim`.
pub struct ClaimVolume;

impl VolumeType for ClaimVolume {
    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/local-volume"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.persistent_volume_claim.is_some()
    }

    fn set_up(&self, of: &Context<'_>, volume: &Volume, _: &Path) -> Result<SetUp, SetUpError> {
        let claim = volume.persistent_volume_claim.as_ref();
        let name = &claim.ok_or(SetUpError::NoClaim)?.claim_name;
        let namespace = &of.pod.metadata.namespace;
        let source = of.claims.join(namespace).join(name);
        // The name of an existing object is valid as the name of a directory. Any other name may not be valid.
        if let Err(why) = of.objects.claim(namespace, name) {
            return Ok(SetUp {
                missing: Some(why.into()),
                ..SetUp::at(source)
            });
        }
        make(&source).map_err(|e| SetUpError::make(&source, e))?;
        Ok(SetUp::at(source))
    }

    fn is_read_only(&self, volume: &Volume) -> bool {
        let claim = volume.persistent_volume_claim.as_ref();
        claim.is_some_and(|claim| claim.read_only)
    }

    fn takes_group(&self, volume: &Volume) -> bool {
        !self.is_read_only(volume)
    }

    /// Does nothing, because a claim's volume outlives the pod.
    fn tear_down(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the directory of a claim. Every user of a container may write to a new directory, as with local-path
/// provisioners. An existing directory keeps its mode. No user of the node can reach the directory, because its parent
/// is private to root.
fn make(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        make_private(parent)?;
    }
    fs::create_dir(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o777))
}
