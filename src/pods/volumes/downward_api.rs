//! `downwardAPI`: the fields of the pod as files.

use std::path::Path;

use super::payload::{self, Payload};
use super::{ContentError, Context, SetUp, SetUpError, VolumeType};
use crate::api::pod::Volume;

/// The volume type `downwardAPI`.
pub struct DownwardApiVolume;

impl VolumeType for DownwardApiVolume {
    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/downward-api"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.downward_api.is_some()
    }

    fn set_up(&self, _: &Context<'_>, _: &Volume, dir: &Path) -> Result<SetUp, SetUpError> {
        SetUp::in_memory(dir, true)
    }

    fn content(&self, of: &Context<'_>, volume: &Volume) -> Option<Result<Payload, ContentError>> {
        let source = volume.downward_api.as_ref()?;
        Some(payload::of_fields(of, &source.items, source.default_mode))
    }

    fn is_read_only(&self, _: &Volume) -> bool {
        true
    }
}
