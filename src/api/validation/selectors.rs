//! Validates `fieldRef` and `resourceFieldRef`.

use super::names::is_qualified_name;
use crate::api::field::{FieldError, child};
use crate::api::field_ref::{RESOURCES, subscript};
use crate::api::huge_pages;
use crate::api::pod::{ObjectFieldSelector, ResourceFieldSelector};
use crate::api::quantity::Quantity;

/// Fields that a variable can refer to, besides single labels and annotations.
pub(super) const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields that a downwardAPI volume can show, besides single labels and annotations.
pub(super) const VOLUME_FIELDS: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
];

/// Every field of a pod that the API knows as a field label. The list includes the fields that variables or volumes
/// can use.
const FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const CPU_DIVISORS: [&str; 2] = ["1m", "1"];
const OTHER_DIVISORS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Checks a reference to a field of the pod. `supported` are the fields that may be used at this place.
pub(super) fn object_field(
    errors: &mut Vec<FieldError>,
    selector: &ObjectFieldSelector,
    supported: &[&str],
    path: &str,
) {
    let (version, field) = (&selector.api_version, selector.field_path.as_str());
    let at = child(path, "fieldPath");
    if version.is_empty() {
        errors.push(FieldError::required(child(path, "apiVersion"), ""));
    } else if field.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else if version != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {version}");
        errors.push(FieldError::invalid(at, field, detail));
    } else if let Some((map, key)) = subscript(field) {
        subscripted(errors, field, map, key, path);
    } else if !FIELDS.contains(&field) {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        errors.push(FieldError::invalid(at, field, detail));
    } else if !supported.contains(&field) {
        errors.push(FieldError::not_supported(at, field, supported));
    }
}

fn subscripted(errors: &mut Vec<FieldError>, field: &str, map: &str, key: &str, path: &str) {
    let complaints = match map {
        "metadata.labels" => is_qualified_name(key),
        "metadata.annotations" => is_qualified_name(&key.to_lowercase()),
        map if FIELDS.contains(&map) => {
            let detail = "does not support subscript";
            return errors.push(FieldError::invalid(path, map, detail));
        }
        _ => {
            let at = child(path, "fieldPath");
            let detail = format!(
                "error converting fieldPath: field label does not support subscript: {field}"
            );
            return errors.push(FieldError::invalid(at, field, detail));
        }
    };
    let errors_of = complaints.into_iter();
    errors.extend(errors_of.map(|detail| FieldError::invalid(path, key, detail)));
}

/// Checks a reference to a limit or request. In a volume the reference must name its container.
pub(super) fn resource_field(
    errors: &mut Vec<FieldError>,
    selector: &ResourceFieldSelector,
    is_volume: bool,
    path: &str,
) {
    let resource = selector.resource.as_str();
    let known: Vec<String> = ["limits", "requests"]
        .iter()
        .flat_map(|list| RESOURCES.iter().map(move |name| format!("{list}.{name}")))
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    if is_volume && selector.container_name.is_empty() {
        errors.push(FieldError::required(child(path, "containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(child(path, "resource"), ""));
    } else if !known.contains(&resource) && !is_of_huge_pages(resource) {
        let at = child(path, "resource");
        errors.push(FieldError::not_supported(at, resource, &known));
    }
    if let Some(divisor) = &selector.divisor {
        check_divisor(errors, resource, divisor, path);
    }
}

fn is_of_huge_pages(field: &str) -> bool {
    let name = field.strip_prefix("limits.");
    let name = name.or_else(|| field.strip_prefix("requests."));
    name.is_some_and(huge_pages::is_resource)
}

fn check_divisor(errors: &mut Vec<FieldError>, resource: &str, divisor: &Quantity, path: &str) {
    let (what, allowed): (_, &[&str]) = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") => ("cpu", &CPU_DIVISORS),
        Some("memory") => ("memory", &OTHER_DIVISORS),
        Some("ephemeral-storage") => ("local ephemeral storage", &OTHER_DIVISORS),
        Some(name) if huge_pages::is_resource(name) => ("hugepages", &OTHER_DIVISORS),
        _ => return,
    };
    // A divisor of 0 means 1, and 1000m equals 1.
    let value = divisor.parse().ok();
    let same = |text: &&str| Quantity((*text).into()).parse().ok() == value;
    if value.is_some() && !same(&"0") && !allowed.iter().any(same) {
        let list = match what {
            "cpu" => "1m and 1".to_owned(),
            _ => allowed.join(", "),
        };
        let detail = format!("only divisor's values {list} are supported with the {what} resource");
        let at = child(path, "divisor");
        errors.push(FieldError::invalid(at, resource, detail));
    }
}
