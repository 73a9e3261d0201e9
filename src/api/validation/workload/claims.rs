//! Validates the claim templates of a StatefulSet (pkg/apis/core/validation: ValidatePersistentVolumeClaimSpec).
//!
//! A claim is a directory on the node, whatever it asks for; the API's rules are kept so that a manifest that a cluster
//! refuses is refused here too.

use serde_json::Value;

use super::super::NO_BLOCK_VOLUMES;
use super::super::checks::named;
use super::super::names::is_dns_subdomain;
use crate::api::field::{FieldError, child, entry, item};
use crate::api::quantity::Quantity;

const MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

/// Adds the errors of the list `volumeClaimTemplates`.
pub(super) fn validate(errors: &mut Vec<FieldError>, claims: &Value) {
    for (index, claim) in claims.as_array().into_iter().flatten().enumerate() {
        let path = item("spec.volumeClaimTemplates", index);
        spec(errors, &claim["spec"], &child(&path, "spec"));
    }
}

fn spec(errors: &mut Vec<FieldError>, spec: &Value, path: &str) {
    access_modes(errors, &spec["accessModes"], &child(path, "accessModes"));
    storage(errors, &spec["resources"]["requests"]["storage"], path);
    if let Some(class) = spec["storageClassName"]
        .as_str()
        .filter(|name| !name.is_empty())
    {
        named(
            errors,
            &child(path, "storageClassName"),
            class,
            is_dns_subdomain,
        );
    }
    let path = child(path, "volumeMode");
    match spec["volumeMode"].as_str() {
        None | Some("Filesystem") => {}
        Some("Block") => {
            let detail = format!("not supported: a claim is a directory, and {NO_BLOCK_VOLUMES}");
            errors.push(FieldError::forbidden(path, detail));
        }
        Some(other) => {
            let known = ["Block", "Filesystem"];
            errors.push(FieldError::not_supported(path, other, &known));
        }
    }
}

fn access_modes(errors: &mut Vec<FieldError>, modes: &Value, path: &str) {
    let modes: Vec<&str> = modes
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if modes.is_empty() {
        errors.push(FieldError::required(
            path,
            "at least 1 access mode is required",
        ));
    }
    for mode in modes.iter().filter(|mode| !MODES.contains(mode)) {
        errors.push(FieldError::not_supported(path, *mode, &MODES));
    }
    let is_of_one_pod = |mode: &&str| *mode == "ReadWriteOncePod";
    let others = modes
        .iter()
        .any(|mode| MODES.contains(mode) && !is_of_one_pod(mode));
    if others && modes.iter().any(is_of_one_pod) {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn storage(errors: &mut Vec<FieldError>, storage: &Value, path: &str) {
    let path = entry(&child(path, "resources"), "storage");
    let text = match storage {
        Value::Null => return errors.push(FieldError::required(path, "")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match Quantity(text.clone()).parse() {
        Ok(amount) if amount.value() > 0 => {}
        Ok(_) => errors.push(FieldError::invalid(path, text, "must be greater than zero")),
        Err(error) => errors.push(FieldError::invalid(path, text, error.to_string())),
    }
}
