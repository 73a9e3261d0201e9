//! Validates AppArmor profiles: the fields, the older annotations, and the agreement of the two.

use crate::api::app_armor::{ANNOTATION, LOCALHOST, RUNTIME_DEFAULT, UNCONFINED};
use crate::api::field::{FieldError, child, entry};
use crate::api::pod::{AppArmorProfile, ObjectMeta, PodSpec};

const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
/// Largest length of a profile's name, in bytes.
const LONGEST: usize = 4095;
const MUST_BE_SET: &str = "must be set when AppArmor type is Localhost";

pub(super) fn validate_profile(
    errors: &mut Vec<FieldError>,
    profile: Option<&AppArmorProfile>,
    path: &str,
) {
    let Some(profile) = profile else { return };
    let (type_, at) = (child(path, "type"), child(path, "localhostProfile"));
    match (profile.type_.as_str(), profile.localhost_profile.as_deref()) {
        ("Localhost", None) => errors.push(FieldError::required(at, MUST_BE_SET)),
        ("Localhost", Some(name)) => localhost(errors, name, &at),
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.push(FieldError::invalid(at, name, detail));
        }
        ("", _) => {
            let detail = "type is required when appArmorProfile is set";
            errors.push(FieldError::required(type_, detail));
        }
        (other, _) => errors.push(FieldError::not_supported(type_, other, &TYPES)),
    }
}

fn localhost(errors: &mut Vec<FieldError>, name: &str, path: &str) {
    if name.trim() != name {
        let detail = "must not be padded with whitespace";
        errors.push(FieldError::invalid(path, name, detail));
    } else if name.is_empty() {
        errors.push(FieldError::required(path, MUST_BE_SET));
    } else if name.contains(|c: char| c.is_control()) {
        // The kernel reads the name only up to the first control character.
        let detail = "must not contain control characters";
        errors.push(FieldError::invalid(path, name, detail));
    }
    if name.len() > LONGEST {
        errors.push(FieldError::too_long(path, LONGEST));
    }
}

pub(super) fn validate_annotations(
    errors: &mut Vec<FieldError>,
    meta: &ObjectMeta,
    spec: &PodSpec,
) {
    for (key, value) in &meta.annotations {
        let Some(container) = key.strip_prefix(ANNOTATION) else {
            continue;
        };
        let path = entry("metadata.annotations", key);
        if spec.find(container).is_none() {
            let detail = "container not found";
            errors.push(FieldError::invalid(path.as_str(), container, detail));
        }
        let known = ["", RUNTIME_DEFAULT, UNCONFINED].contains(&value.as_str());
        match value.strip_prefix(LOCALHOST) {
            Some(name) => localhost(errors, name, &path),
            None if known => {}
            None => {
                let detail = format!("invalid AppArmor profile name: {value:?}");
                errors.push(FieldError::invalid(path, value.as_str(), detail));
            }
        }
    }
}

/// Checks that a container's annotation agrees with the container's field or, if the container has no such field, with
/// the pod's field.
pub(super) fn validate_agreement(errors: &mut Vec<FieldError>, meta: &ObjectMeta, spec: &PodSpec) {
    let of_pod = spec.security_context.app_armor_profile.as_ref();
    for listed in spec.listed() {
        let container = listed.container;
        let own = container.security_context.app_armor_profile.as_ref();
        let annotation = meta
            .annotations
            .get(&format!("{ANNOTATION}{}", container.name));
        let (Some(profile), Some(annotation)) = (own.or(of_pod), annotation) else {
            continue;
        };
        let path = child(&child(&listed.path(), "securityContext"), "appArmorProfile");
        let named = annotation.strip_prefix(LOCALHOST);
        let (same_type, same_name) = match profile.type_.as_str() {
            "Unconfined" => (annotation == UNCONFINED, true),
            "RuntimeDefault" => (annotation == RUNTIME_DEFAULT, true),
            "Localhost" => (
                named.is_some(),
                profile.localhost_profile.as_deref() == named,
            ),
            _ => (true, true),
        };
        let mut differ = |field: &str, what: &str| {
            let detail = format!("apparmor {what} in annotation and field must match");
            errors.push(FieldError::forbidden(child(&path, field), detail));
        };
        if !same_type {
            differ("type", "type");
        } else if !same_name {
            differ("localhostProfile", "profile");
        }
    }
}
