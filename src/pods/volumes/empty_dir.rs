//! `emptyDir`: a directory for one pod, on the disk, in memory or in huge pages.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Context, SetUp, SetUpError, VolumeType, positive};
use crate::api::Pod;
use crate::api::huge_pages::{is_medium, medium_page_size, page_size};
use crate::api::pod::Volume;
use crate::api::quantity::Quantity;
use crate::base::paths::directories::make_private;
use crate::engine::runtime::Tmpfs;

/// The volume type `emptyDir`.
pub struct EmptyDirVolume;

impl VolumeType for EmptyDirVolume {
    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/empty-dir"
    }

    /// True for an `emptyDir`, and for a volume without a source (kubelet-probes 1.1).
    fn supports(&self, volume: &Volume) -> bool {
        volume.empty_dir.is_some() || !volume.has_source()
    }

    fn set_up(&self, of: &Context<'_>, volume: &Volume, dir: &Path) -> Result<SetUp, SetUpError> {
        let spec = volume.empty_dir.clone().unwrap_or_default();
        let medium = spec.medium.as_str();
        let page_size = match is_medium(medium) {
            true => Some(huge_page_size(of.pod, medium)?),
            false => None,
        };
        let made = make_private(dir)
            .and_then(|()| fs::set_permissions(dir, Permissions::from_mode(0o777)));
        made.map_err(|e| SetUpError::make(dir, e))?;
        // With a size of less than a page the kernel makes a hugetlbfs without room.
        let size = spec.size_limit.as_ref().and_then(positive);
        let tmpfs = (medium == "Memory" || page_size.is_some()).then(|| Tmpfs {
            path: dir.to_owned(),
            size: size.map(|n| n.next_multiple_of(page_size.unwrap_or(1))),
            page_size,
            is_sticky: page_size.is_none(),
        });
        Ok(SetUp {
            tmpfs,
            ..SetUp::at(dir.to_owned())
        })
    }

    fn takes_group(&self, _: &Volume) -> bool {
        true
    }

    /// Returns the size limit of a volume on the disk. Returns `None` for a volume in memory or in huge pages, because
    /// the kernel enforces the limit of such a volume.
    fn size_limit<'v>(&self, volume: &'v Volume) -> Option<&'v Quantity> {
        let spec = volume.empty_dir.as_ref()?;
        spec.size_limit.as_ref().filter(|_| spec.medium.is_empty())
    }
}

/// Returns the page size of the medium in bytes. A container of the pod must request pages of this size
/// (kubelet-volumes 8).
fn huge_page_size(pod: &Pod, medium: &str) -> Result<u64, SetUpError> {
    let requests = pod.spec.all_containers().map(|c| &c.resources.requests);
    let sizes = requests.flat_map(|all| all.keys().filter_map(|name| page_size(name)));
    let wanted = medium_page_size(medium);
    let fits = |size: &u64| wanted.is_none_or(|wanted| wanted == *size);
    let sizes: BTreeSet<u64> = sizes.filter(fits).collect();
    match (sizes.first(), sizes.len()) {
        (Some(size), 1) => Ok(*size),
        (Some(_), _) => Err(SetUpError::ManyPageSizes(medium.to_owned())),
        (None, _) => Err(SetUpError::NoPageSize(medium.to_owned())),
    }
}
