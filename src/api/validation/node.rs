//! Validates what a pod requires of its node: labels, affinity, tolerations, operating system.

use super::checks::named;
use super::containers::quantities;
use super::names::{is_dns_subdomain, is_qualified_name, is_valid_label_value};
use crate::api::field::{FieldError, child, entry, item};
use crate::api::pod::{
    EGRESS_BANDWIDTH, INGRESS_BANDWIDTH, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
    Toleration,
};
use crate::api::quantity::Quantity;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn validate_node_fields(errors: &mut Vec<FieldError>, spec: &PodSpec) {
    for (key, value) in &spec.node_selector {
        named(errors, "spec.nodeSelector", key, is_qualified_name);
        named(errors, "spec.nodeSelector", value, is_valid_label_value);
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref());
    if let Some(required) = affinity.and_then(|a| a.required.as_ref()) {
        let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        if required.node_selector_terms.is_empty() {
            let detail = "must have at least one node selector term";
            errors.push(FieldError::required(path, detail));
        }
        for (index, term) in required.node_selector_terms.iter().enumerate() {
            term_of(errors, term, &item(path, index));
        }
    }
    for (index, toleration) in spec.tolerations.iter().enumerate() {
        tolerates(errors, toleration, &item("spec.tolerations", index));
    }
    if let Some(os) = &spec.os {
        if os.name.is_empty() {
            errors.push(FieldError::required("spec.os.name", ""));
        } else if !["linux", "windows"].contains(&os.name.as_str()) {
            let supported = ["linux", "windows"];
            errors.push(FieldError::not_supported(
                "spec.os.name",
                os.name.as_str(),
                &supported,
            ));
        }
    }
    quantities(errors, &spec.overhead, "spec.overhead");
    if !spec.priority_class_name.is_empty() {
        let name = &spec.priority_class_name;
        named(errors, "spec.priorityClassName", name, is_dns_subdomain);
    }
    if let Some(name) = &spec.runtime_class_name {
        named(errors, "spec.runtimeClassName", name, is_dns_subdomain);
    }
}

fn term_of(errors: &mut Vec<FieldError>, term: &NodeSelectorTerm, path: &str) {
    for (index, requirement) in term.match_expressions.iter().enumerate() {
        let path = item(&child(path, "matchExpressions"), index);
        values(errors, requirement, &path);
        named(
            errors,
            &child(&path, "key"),
            &requirement.key,
            is_qualified_name,
        );
    }
    for (index, requirement) in term.match_fields.iter().enumerate() {
        let path = item(&child(path, "matchFields"), index);
        match requirement.operator.as_str() {
            "In" | "NotIn" if requirement.values.len() != 1 => errors.push(FieldError::required(
                child(&path, "values"),
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            )),
            "In" | "NotIn" => {}
            other => errors.push(FieldError::invalid(
                child(&path, "operator"),
                other,
                "not a valid selector operator",
            )),
        }
        if requirement.key != "metadata.name" {
            let detail = "not a valid field selector key";
            errors.push(FieldError::invalid(
                child(&path, "key"),
                requirement.key.as_str(),
                detail,
            ));
        }
    }
}

fn values(errors: &mut Vec<FieldError>, requirement: &NodeSelectorRequirement, path: &str) {
    let given = requirement.values.len();
    let at = child(path, "values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if given == 0 => errors.push(FieldError::required(
            at,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if given > 0 => errors.push(FieldError::forbidden(
            at,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "Gt" | "Lt" if given != 1 => errors.push(FieldError::required(
            at,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(FieldError::invalid(
            child(path, "operator"),
            other,
            "not a valid selector operator",
        )),
    }
}

fn tolerates(errors: &mut Vec<FieldError>, toleration: &Toleration, path: &str) {
    let operator = child(path, "operator");
    if !toleration.key.is_empty() {
        named(
            errors,
            &child(path, "key"),
            &toleration.key,
            is_qualified_name,
        );
    } else if toleration.operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(
            operator.as_str(),
            toleration.operator.as_str(),
            detail,
        ));
    }
    if toleration.toleration_seconds.is_some() && toleration.effect != "NoExecute" {
        errors.push(FieldError::invalid(
            child(path, "effect"),
            toleration.effect.as_str(),
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ));
    }
    match toleration.operator.as_str() {
        "" | "Equal" => named(errors, &operator, &toleration.value, is_valid_label_value),
        "Exists" if toleration.value.is_empty() => {}
        "Exists" => errors.push(FieldError::invalid(
            operator,
            toleration.value.as_str(),
            "value must be empty when `operator` is 'Exists'",
        )),
        other => errors.push(FieldError::not_supported(
            operator,
            other,
            &["Equal", "Exists"],
        )),
    }
    if !toleration.effect.is_empty() && !EFFECTS.contains(&toleration.effect.as_str()) {
        let effect = toleration.effect.as_str();
        errors.push(FieldError::not_supported(
            child(path, "effect"),
            effect,
            &EFFECTS,
        ));
    }
}

/// Annotations that limit the traffic that a pod receives and sends.
const BANDWIDTH: [&str; 2] = [INGRESS_BANDWIDTH, EGRESS_BANDWIDTH];

/// Checks the limits of traffic: 1,000 to 10¹⁵ bits a second, as containerd accepts them (deviations:
/// bandwidth-range).
pub(super) fn validate_bandwidth(
    errors: &mut Vec<FieldError>,
    annotations: &std::collections::BTreeMap<String, String>,
) {
    for key in BANDWIDTH {
        let Some(text) = annotations.get(key) else {
            continue;
        };
        let bits = Quantity(text.clone()).value();
        if !bits.is_some_and(|bits| (1_000..=1_000_000_000_000_000).contains(&bits)) {
            errors.push(FieldError::invalid(
                entry("metadata.annotations", key),
                text.as_str(),
                "must be a quantity of bits a second from 1k to 1P, such as 10M",
            ));
        }
    }
}

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Checks the annotation that tells a ReplicaSet which pods to delete first: a 32-bit number without a plus sign or
/// leading zeros.
pub(super) fn validate_deletion_cost(
    errors: &mut Vec<FieldError>,
    annotations: &std::collections::BTreeMap<String, String>,
) {
    let Some(cost) = annotations.get(DELETION_COST) else {
        return;
    };
    if cost.parse::<i32>().map(|n| n.to_string()).as_ref() != Ok(cost) {
        errors.push(FieldError::invalid(
            entry("metadata.annotations", DELETION_COST),
            cost.as_str(),
            "must be a 32bit integer",
        ));
    }
}
