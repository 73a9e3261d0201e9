//! `emptyDir`: a directory of the pod's own, on the disk or in memory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Context, SetUp, VolumeType, positive};
use crate::api::pod::Volume;
use crate::api::quantity::Quantity;
use crate::runtime::Tmpfs;

/// The volume type `emptyDir`.
pub struct EmptyDirVolume;

impl VolumeType for EmptyDirVolume {
    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/empty-dir"
    }

    /// True also for a volume without a source (kubelet-probes 1.1).
    fn supports(&self, volume: &Volume) -> bool {
        volume.empty_dir.is_some() || !volume.has_source()
    }

    fn set_up(&self, _: &Context<'_>, volume: &Volume, dir: &Path) -> Result<SetUp, String> {
        let spec = volume.empty_dir.clone().unwrap_or_default();
        let made = fs::create_dir_all(dir)
            .and_then(|()| fs::set_permissions(dir, Permissions::from_mode(0o777)));
        made.map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let tmpfs = match spec.medium == "Memory" {
            true => Some(Tmpfs {
                path: dir.to_owned(),
                size: spec.size_limit.as_ref().and_then(positive),
            }),
            false => None,
        };
        Ok(SetUp {
            tmpfs,
            ..SetUp::at(dir.to_owned())
        })
    }

    fn takes_group(&self, _: &Volume) -> bool {
        true
    }

    /// In memory the tmpfs keeps it.
    fn size_limit<'v>(&self, volume: &'v Volume) -> Option<&'v Quantity> {
        let spec = volume.empty_dir.as_ref()?;
        spec.size_limit.as_ref().filter(|_| spec.medium.is_empty())
    }
}
