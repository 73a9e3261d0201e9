//! `emptyDir`: a directory of the pod's own, on the disk or in memory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Context, SetUp, VolumeType};
use crate::api::pod::{EmptyDir, Volume};
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
                size: size_limit(&spec)?,
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
}

fn size_limit(empty_dir: &EmptyDir) -> Result<Option<u64>, String> {
    let Some(limit) = &empty_dir.size_limit else {
        return Ok(None);
    };
    let bytes = limit
        .value()
        .and_then(|n| u64::try_from(n).ok())
        .filter(|&n| n > 0);
    bytes
        .map(Some)
        .ok_or_else(|| format!("sizeLimit {:?} is no positive quantity", limit.0))
}
