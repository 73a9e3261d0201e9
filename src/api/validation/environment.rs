//! Validates variables with literal values, and variables from objects or fields.

use super::checks::{named, no_nul};
use super::names::{is_config_map_key, is_env_name};
use super::selectors::{VARIABLE_FIELDS, object_field, resource_field};
use crate::api::field::{FieldError, child, item};
use crate::api::pod::{Container, EnvFromSource, EnvVar, EnvVarSource, KeySelector};

const ONE_ONLY: &str = "may not have more than one field specified at a time";

pub(super) fn validate_environment(
    errors: &mut Vec<FieldError>,
    container: &Container,
    path: &str,
) {
    for (index, variable) in container.env.iter().enumerate() {
        env(errors, variable, &item(&child(path, "env"), index));
    }
    for (index, source) in container.env_from.iter().enumerate() {
        env_from(errors, source, &item(&child(path, "envFrom"), index));
    }
}

fn env(errors: &mut Vec<FieldError>, variable: &EnvVar, path: &str) {
    let name = child(path, "name");
    match variable.name.is_empty() {
        true => errors.push(FieldError::required(name, "")),
        false => named(errors, &name, &variable.name, is_env_name),
    }
    no_nul(errors, &child(path, "value"), &variable.value);
    if let Some(from) = &variable.value_from {
        let has_value = !variable.value.is_empty();
        value_from(errors, from, has_value, &child(path, "valueFrom"));
    }
}

fn value_from(errors: &mut Vec<FieldError>, from: &EnvVarSource, has_value: bool, path: &str) {
    let mut sources = 0;
    if let Some(field) = &from.field_ref {
        sources += 1;
        object_field(errors, field, &VARIABLE_FIELDS, &child(path, "fieldRef"));
    }
    if let Some(field) = &from.resource_field_ref {
        sources += 1;
        resource_field(errors, field, false, &child(path, "resourceFieldRef"));
    }
    if let Some(key) = &from.config_map_key_ref {
        sources += 1;
        selected_key(errors, key, &child(path, "configMapKeyRef"));
    }
    if let Some(key) = &from.secret_key_ref {
        sources += 1;
        selected_key(errors, key, &child(path, "secretKeyRef"));
    }
    let detail = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        }
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return,
        _ => ONE_ONLY,
    };
    errors.push(FieldError::invalid(path, "", detail));
}

fn selected_key(errors: &mut Vec<FieldError>, selector: &KeySelector, path: &str) {
    if selector.name.is_empty() {
        errors.push(FieldError::required(child(path, "name"), ""));
    }
    let key = child(path, "key");
    match selector.key.is_empty() {
        true => errors.push(FieldError::required(key, "")),
        false => named(errors, &key, &selector.key, is_config_map_key),
    }
}

fn env_from(errors: &mut Vec<FieldError>, source: &EnvFromSource, path: &str) {
    if !source.prefix.is_empty() {
        named(errors, &child(path, "prefix"), &source.prefix, is_env_name);
    }
    let references = [
        ("configMapRef", &source.config_map_ref),
        ("secretRef", &source.secret_ref),
    ];
    let mut sources = 0;
    for (field, reference) in references {
        if let Some(reference) = reference {
            sources += 1;
            if reference.name.is_empty() {
                let name = child(&child(path, field), "name");
                errors.push(FieldError::required(name, ""));
            }
        }
    }
    let detail = match sources {
        0 => "must specify one of: `configMapRef` or `secretRef`",
        1 => return,
        _ => ONE_ONLY,
    };
    errors.push(FieldError::invalid(path, "", detail));
}
