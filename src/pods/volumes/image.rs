//! `image`: the files of an image, read-only.
//!
//! As in the kubelet, nothing is set up in advance. The image is ensured before a container that mounts the volume
//! starts, and the runtime mounts the image for that container.

use std::path::{Path, PathBuf};

use super::{Context, SetUp, SetUpError, VolumeType};
use crate::api::pod::{ImageVolume as Source, Volume};

/// The volume type `image`.
pub struct ImageVolume;

impl VolumeType for ImageVolume {
    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/image"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.image.is_some()
    }

    fn set_up(&self, _: &Context<'_>, _: &Volume, _: &Path) -> Result<SetUp, SetUpError> {
        Ok(SetUp::at(PathBuf::new()))
    }

    fn image<'v>(&self, volume: &'v Volume) -> Option<&'v Source> {
        volume.image.as_ref()
    }

    fn is_read_only(&self, _: &Volume) -> bool {
        true
    }
}
