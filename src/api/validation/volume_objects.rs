//! Validates volumes with files that come from objects or from fields of the pod.

use std::collections::HashSet;

use super::checks::{local_path, mode};
use super::selectors::{VOLUME_FIELDS, object_field, resource_field};
use crate::api::field::{FieldError, child, item};
use crate::api::pod::{
    ClaimVolume, ConfigMapVolume, DownwardApiFile, DownwardApiVolume, KeyToPath, ObjectProjection,
    ProjectedVolume, SecretVolume, ServiceAccountTokenProjection, VolumeProjection,
};

pub(super) fn config_map(errors: &mut Vec<FieldError>, volume: &ConfigMapVolume, path: &str) {
    required(errors, &child(path, "name"), &volume.name);
    mode(errors, &child(path, "defaultMode"), volume.default_mode);
    keys(errors, &volume.items, path);
}

pub(super) fn secret(errors: &mut Vec<FieldError>, volume: &SecretVolume, path: &str) {
    required(errors, &child(path, "secretName"), &volume.secret_name);
    mode(errors, &child(path, "defaultMode"), volume.default_mode);
    keys(errors, &volume.items, path);
}

pub(super) fn claim(errors: &mut Vec<FieldError>, volume: &ClaimVolume, path: &str) {
    required(errors, &child(path, "claimName"), &volume.claim_name);
}

/// Checks a downwardAPI volume. The errors of a file have the path of the volume, as in the API.
pub(super) fn downward_api(errors: &mut Vec<FieldError>, volume: &DownwardApiVolume, path: &str) {
    mode(errors, &child(path, "defaultMode"), volume.default_mode);
    for file in &volume.items {
        downward_api_file(errors, file, path);
    }
}

pub(super) fn projected(errors: &mut Vec<FieldError>, volume: &ProjectedVolume, path: &str) {
    mode(errors, &child(path, "defaultMode"), volume.default_mode);
    let mut paths = HashSet::new();
    for (index, source) in volume.sources.iter().enumerate() {
        let at = item(&child(path, "sources"), index);
        projection(errors, source, &at);
        for (taken, value) in projected_paths(source) {
            if !taken.is_empty() && !paths.insert(taken) {
                let detail = "conflicting duplicate paths";
                errors.push(FieldError::invalid(path, value, detail));
            }
        }
    }
}

/// Returns each path that a source names, and the value that the API's error shows if the path is taken.
fn projected_paths(source: &VolumeProjection) -> Vec<(&str, &str)> {
    let objects = source.secret.iter().chain(&source.config_map);
    let keys = objects.flat_map(|o| o.items.iter().map(|i| (i.path.as_str(), o.name.as_str())));
    let files = source.downward_api.iter().flat_map(|d| &d.items);
    let tokens = source.service_account_token.iter();
    keys.chain(files.map(|f| (f.path.as_str(), f.path.as_str())))
        .chain(tokens.map(|t| (t.path.as_str(), t.path.as_str())))
        .collect()
}

fn projection(errors: &mut Vec<FieldError>, source: &VolumeProjection, path: &str) {
    if let Some(secret) = &source.secret {
        object(errors, secret, &child(path, "secret"));
    }
    if let Some(config_map) = &source.config_map {
        object(errors, config_map, &child(path, "configMap"));
    }
    if let Some(fields) = &source.downward_api {
        for file in &fields.items {
            downward_api_file(errors, file, &child(path, "downwardAPI"));
        }
    }
    if let Some(token) = &source.service_account_token {
        service_account_token(errors, token, &child(path, "serviceAccountToken"));
    }
    let several = [
        source.secret.is_some(),
        source.config_map.is_some(),
        source.downward_api.is_some(),
        source.service_account_token.is_some(),
    ];
    if several.into_iter().filter(|there| *there).count() > 1 {
        let detail = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn service_account_token(
    errors: &mut Vec<FieldError>,
    token: &ServiceAccountTokenProjection,
    path: &str,
) {
    let (at, seconds) = (child(path, "expirationSeconds"), token.expiration_seconds);
    if seconds < 600 {
        let why = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(&at, seconds, why));
    }
    if seconds > 1 << 32 {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(&at, seconds, why));
    }
    required(errors, &child(path, "path"), &token.path);
    local_path(errors, &child(path, "path"), &token.path);
}

fn object(errors: &mut Vec<FieldError>, projection: &ObjectProjection, path: &str) {
    required(errors, &child(path, "name"), &projection.name);
    keys(errors, &projection.items, path);
}

fn keys(errors: &mut Vec<FieldError>, items: &[KeyToPath], path: &str) {
    for (index, key) in items.iter().enumerate() {
        let path = item(&child(path, "items"), index);
        required(errors, &child(&path, "key"), &key.key);
        required(errors, &child(&path, "path"), &key.path);
        local_path(errors, &child(&path, "path"), &key.path);
        mode(errors, &child(&path, "mode"), key.mode);
    }
}

fn downward_api_file(errors: &mut Vec<FieldError>, file: &DownwardApiFile, path: &str) {
    required(errors, &child(path, "path"), &file.path);
    local_path(errors, &child(path, "path"), &file.path);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), resource) => {
            object_field(errors, field, &VOLUME_FIELDS, &child(path, "fieldRef"));
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, "resource", detail));
            }
        }
        (None, Some(resource)) => {
            resource_field(errors, resource, true, &child(path, "resourceFieldRef"));
        }
        (None, None) => {
            let detail = "one of fieldRef and resourceFieldRef is required";
            errors.push(FieldError::required(path, detail));
        }
    }
    mode(errors, &child(path, "mode"), file.mode);
}

fn required(errors: &mut Vec<FieldError>, path: &str, value: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
}
