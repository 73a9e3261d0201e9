//! `persistentVolumeClaim`: a directory of the node that outlives its pods. The claim of a file has a directory that
//! podprobe makes; the claim of a cluster has the path that its PersistentVolume names.
//!
//! Invariant: podprobe never removes the directory or anything in it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::host_path::check;
use super::{ContentError, Context, SetUp, SetUpError, VolumeType};
use crate::api::claimed_volume::{ClaimedVolume, NoVolume};
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
        let missing = |why: ContentError| SetUp {
            missing: Some(why),
            ..SetUp::at(source.clone())
        };
        let no_volume = |cause| ContentError::NoVolume {
            claim: format!("{namespace}/{name}"),
            cause,
        };
        match of.objects.claim(namespace, name).map(|c| &c.volume) {
            Err(why) => Ok(missing(why.into())),
            Ok(None) => {
                // The name of an existing object is valid as the name of a directory. Any other name may not be valid.
                make(&source).map_err(|e| SetUpError::make(&source, e))?;
                Ok(SetUp::at(source))
            }
            Ok(Some(Err(cause))) => Ok(missing(no_volume(cause.clone()))),
            Ok(Some(Ok(volume))) => {
                // A pod that has the volume keeps it, because this is looked at before a sandbox is made.
                let missing = unfit(volume, of).map(no_volume);
                if missing.is_none() {
                    check_source(volume).map_err(no_volume)?;
                    check(&volume.path)?;
                }
                Ok(SetUp {
                    missing,
                    keeps_group: !volume.is_local,
                    ..SetUp::at(volume.path.on_node().into_owned().into())
                })
            }
        }
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

/// Returns the reason why a new pod cannot have the volume of a cluster's claim.
fn unfit(volume: &ClaimedVolume, of: &Context<'_>) -> Option<NoVolume> {
    let nodes = volume.nodes.as_ref();
    if nodes.is_some_and(|nodes| !nodes.selects(of.node_name, of.node_labels)) {
        return Some(NoVolume::OnOtherNodes);
    }
    let options = volume.has_mount_options;
    options.then(|| NoVolume::MountOptions(volume.name.clone()))
}

/// Checks that the directory of a `local` volume is there. podprobe makes none.
fn check_source(volume: &ClaimedVolume) -> Result<(), NoVolume> {
    let path = volume.path.on_node();
    match volume.is_local && !Path::new(&*path).is_dir() {
        false => Ok(()),
        true => Err(NoVolume::NoDirectory {
            volume: volume.name.clone(),
            path: path.into_owned(),
        }),
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
