//! Validates limits and requests of huge pages. Amounts must be whole pages, and a request must equal its limit.

use std::collections::BTreeMap;

use crate::api::field::{FieldError, child, entry};
use crate::api::huge_pages::{is_resource, page_size};
use crate::api::pod::ResourceRequirements;
use crate::api::quantity::Quantity;

pub(super) fn validate_huge_pages(
    errors: &mut Vec<FieldError>,
    resources: &ResourceRequirements,
    path: &str,
) {
    let (limits, requests) = (&resources.limits, &resources.requests);
    whole_pages(errors, limits, &child(path, "limits"));
    for (name, request) in requests.iter().filter(|(name, _)| is_resource(name)) {
        match limits.get(name) {
            None => errors.push(FieldError::required(
                child(path, "limits"),
                "Limit must be set for non overcommitable resources",
            )),
            Some(limit) if limit.parse().ok() != request.parse().ok() => {
                let detail = format!("must be equal to {name} limit of {limit}");
                let at = child(path, "requests");
                errors.push(FieldError::invalid(at, request.0.as_str(), detail));
            }
            Some(_) => {}
        }
    }
    whole_pages(errors, requests, &child(path, "requests"));
    let mut names = limits.keys().chain(requests.keys());
    let with_others = |name: &str| limits.contains_key(name) || requests.contains_key(name);
    if names.any(|name| is_resource(name)) && !with_others("cpu") && !with_others("memory") {
        errors.push(FieldError::forbidden(
            path,
            "HugePages require cpu or memory",
        ));
    }
}

fn whole_pages(errors: &mut Vec<FieldError>, given: &BTreeMap<String, Quantity>, path: &str) {
    for (name, quantity) in given.iter().filter(|(name, _)| is_resource(name)) {
        let bytes = quantity.value().and_then(|n| u64::try_from(n).ok());
        // A quantity that is invalid or negative already has its error.
        let Some(bytes) = bytes else { continue };
        if !page_size(name).is_some_and(|size| bytes.is_multiple_of(size)) {
            let detail = format!("{quantity} is not positive integer multiple of {name}");
            errors.push(FieldError::invalid(
                entry(path, name),
                quantity.0.as_str(),
                detail,
            ));
        }
    }
}
