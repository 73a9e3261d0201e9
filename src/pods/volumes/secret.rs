//! `secret`: the keys of a Secret as files.

use std::path::Path;

use super::payload::{self, Keys, Payload};
use super::{ContentError, Context, SetUp, SetUpError, VolumeType};
use crate::api::pod::Volume;

/// The volume type `secret`.
pub struct SecretVolume;

impl VolumeType for SecretVolume {
    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/secret"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.secret.is_some()
    }

    fn set_up(&self, _: &Context<'_>, _: &Volume, dir: &Path) -> Result<SetUp, SetUpError> {
        SetUp::in_memory(dir, true)
    }

    fn content(&self, of: &Context<'_>, volume: &Volume) -> Option<Result<Payload, ContentError>> {
        let source = volume.secret.as_ref()?;
        let keys = Keys {
            items: &source.items,
            mode: source.default_mode,
            optional: source.optional,
        };
        Some(payload::of_secret(of, &source.secret_name, keys))
    }

    fn is_read_only(&self, _: &Volume) -> bool {
        true
    }
}
