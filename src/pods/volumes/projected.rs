//! `projected`: ConfigMaps, Secrets, fields of the pod and tokens of its service account in one directory.

use std::path::Path;

use super::payload::{self, Keys, Payload};
use super::{ContentError, Context, SetUp, SetUpError, VolumeType};
use crate::api::pod::{ObjectProjection, ProjectedVolume as Source, Volume, VolumeProjection};

/// The volume type `projected`.
pub struct ProjectedVolume;

impl VolumeType for ProjectedVolume {
    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/projected"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.projected.is_some()
    }

    fn set_up(&self, _: &Context<'_>, _: &Volume, dir: &Path) -> Result<SetUp, SetUpError> {
        SetUp::in_memory(dir, true)
    }

    fn content(&self, of: &Context<'_>, volume: &Volume) -> Option<Result<Payload, ContentError>> {
        Some(content(of, volume.projected.as_ref()?))
    }

    fn is_read_only(&self, _: &Volume) -> bool {
        true
    }
}

/// Returns the files of all sources, or the errors of all sources that have no files.
fn content(of: &Context<'_>, volume: &Source) -> Result<Payload, ContentError> {
    let mut payload = Payload::default();
    let mut errors = Vec::new();
    for source in &volume.sources {
        match of_source(of, source, volume.default_mode) {
            Ok(files) => payload.extend(files),
            Err(e) => errors.push(e),
        }
    }
    match errors.is_empty() {
        true => Ok(payload),
        false => Err(ContentError::Sources(errors)),
    }
}

fn of_source(
    of: &Context<'_>,
    source: &VolumeProjection,
    mode: Option<i32>,
) -> Result<Payload, ContentError> {
    let mut payload = Payload::default();
    if let Some(object) = &source.secret {
        let files = payload::of_secret(of, &object.name, keys(object, mode))?;
        payload.extend(files);
    }
    if let Some(object) = &source.config_map {
        let files = payload::of_config_map(of, &object.name, keys(object, mode))?;
        payload.extend(files);
    }
    if let Some(fields) = &source.downward_api {
        payload.extend(payload::of_fields(of, &fields.items, mode)?);
    }
    if let Some(token) = &source.service_account_token {
        payload.extend(payload::of_token(of, token, mode)?);
    }
    Ok(payload)
}

fn keys(object: &ObjectProjection, mode: Option<i32>) -> Keys<'_> {
    Keys {
        items: &object.items,
        mode,
        optional: object.optional,
    }
}
