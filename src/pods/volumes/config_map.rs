//! `configMap`: the keys of a ConfigMap as files.

use std::path::Path;

use super::payload::{self, Keys, Payload};
use super::{ContentError, Context, SetUp, SetUpError, VolumeType};
use crate::api::pod::Volume;

/// The volume type `configMap`.
pub struct ConfigMapVolume;

impl VolumeType for ConfigMapVolume {
    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/configmap"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.config_map.is_some()
    }

    fn set_up(&self, _: &Context<'_>, _: &Volume, dir: &Path) -> Result<SetUp, SetUpError> {
        SetUp::in_memory(dir, false)
    }

    fn content(&self, of: &Context<'_>, volume: &Volume) -> Option<Result<Payload, ContentError>> {
        let source = volume.config_map.as_ref()?;
        let keys = Keys {
            items: &source.items,
            mode: source.default_mode,
            optional: source.optional,
        };
        Some(payload::of_config_map(of, &source.name, keys))
    }

    fn is_read_only(&self, _: &Volume) -> bool {
        true
    }
}
