//! Validates a pod or a workload that has its defaults: kubelet-probes 1.3–1.5, the API's rules on create, and checks
//! of the values that the node passes to the kernel.
//!
//! Invariants: pure; all errors at once, in the API's order; texts and paths are as in kubelet-probes 1.2. Values
//! that podprobe does not support *yet* are refused in [`super::support`], not here.

pub(super) mod addresses;
mod app_armor;
mod checks;
mod cluster_ips;
mod containers;
mod dns;
pub(super) mod endpoints;
mod environment;
mod huge_pages;
mod lifecycle;
pub(super) mod names;
mod node;
mod probes;
mod restart;
mod security;
mod selectors;
pub(super) mod service;
mod volume_objects;
mod volumes;
mod workload;

pub use super::capabilities::CAPABILITIES;
pub use containers::validate_container;
pub use lifecycle::stop_signals;
pub use names::{
    is_dns_label, is_dns_subdomain, is_env_name, is_qualified_name, is_valid_header_name,
    is_valid_label_value, is_valid_port_name, is_valid_port_number,
};
pub use probes::{
    probe_field, validate_container_probe, validate_handler, validate_port, validate_probe,
};

pub use super::field::{FieldError, FieldErrorKind, aggregate};
pub use service::NODE_PORTS;
pub(super) use volumes::NO_BLOCK_VOLUMES;
pub use workload::{SELECTOR_MISSES_TEMPLATE, checked_pod, validate_update, validate_workload};

use self::checks::{NOT_NEGATIVE, named, range};
use super::field::{child, item};
use super::pod::{ObjectMeta, Pod, PodSpec};

/// Largest size of all annotation keys and values together, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Returns all errors of a pod that has its defaults.
pub fn validate_pod(pod: &Pod) -> Vec<FieldError> {
    let mut errors = metadata(&pod.metadata);
    app_armor::validate_annotations(&mut errors, &pod.metadata, &pod.spec);
    errors.extend(spec(&pod.spec));
    app_armor::validate_agreement(&mut errors, &pod.metadata, &pod.spec);
    errors
}

/// Returns all errors of a pod template. The name of a template does not count, because its pods get names of their own.
fn validate_template(pod: &Pod) -> Vec<FieldError> {
    let mut errors = Vec::new();
    labels_and_annotations(&mut errors, &pod.metadata);
    node::validate_deletion_cost(&mut errors, &pod.metadata.annotations);
    node::validate_bandwidth(&mut errors, &pod.metadata.annotations);
    app_armor::validate_annotations(&mut errors, &pod.metadata, &pod.spec);
    errors.extend(spec(&pod.spec));
    app_armor::validate_agreement(&mut errors, &pod.metadata, &pod.spec);
    errors
}

fn metadata(meta: &ObjectMeta) -> Vec<FieldError> {
    let mut errors = object_metadata(meta, is_dns_subdomain);
    node::validate_deletion_cost(&mut errors, &meta.annotations);
    node::validate_bandwidth(&mut errors, &meta.annotations);
    errors
}

/// Returns the errors of an object's metadata. `name_rule` returns the complaints about the object's name.
fn object_metadata(meta: &ObjectMeta, name_rule: fn(&str) -> Vec<String>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if meta.name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        named(&mut errors, "metadata.name", &meta.name, name_rule);
    }
    if meta.namespace.is_empty() {
        errors.push(FieldError::required("metadata.namespace", ""));
    } else {
        named(
            &mut errors,
            "metadata.namespace",
            &meta.namespace,
            is_dns_label,
        );
    }
    uid(&mut errors, meta);
    labels_and_annotations(&mut errors, meta);
    errors
}

fn labels_and_annotations(errors: &mut Vec<FieldError>, meta: &ObjectMeta) {
    for (key, value) in &meta.labels {
        named(errors, "metadata.labels", key, is_qualified_name);
        named(errors, "metadata.labels", value, is_valid_label_value);
    }
    for key in meta.annotations.keys() {
        // As in the API, annotation keys may have upper-case letters in their prefix.
        named(errors, "metadata.annotations", key, |key| {
            is_qualified_name(&key.to_lowercase())
        });
    }
    if meta
        .annotations
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum::<usize>()
        > ANNOTATIONS_MAX
    {
        errors.push(FieldError::too_long(
            "metadata.annotations",
            ANNOTATIONS_MAX,
        ));
    }
}

/// Checks the UID. The UID is part of the names of directories and cgroups, so it may not contain dots and slashes,
/// which could lead to other directories.
fn uid(errors: &mut Vec<FieldError>, meta: &ObjectMeta) {
    let uid = meta.uid.as_str();
    let plain = uid
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if !plain || uid.len() > 128 {
        let detail = "must be at most 128 letters, digits, '-' and '_'; leave it out and it is derived from the content";
        errors.push(FieldError::invalid("metadata.uid", uid, detail));
    }
}

fn spec(spec: &PodSpec) -> Vec<FieldError> {
    let mut errors = volumes::validate_volumes(&spec.volumes, "spec.volumes");
    containers::validate_containers(&mut errors, spec, "spec.containers");
    containers::validate_init_containers(&mut errors, spec, "spec.initContainers");
    if let Some(seconds) = spec.termination_grace_period_seconds.filter(|s| *s < 0) {
        errors.push(FieldError::invalid(
            "spec.terminationGracePeriodSeconds",
            seconds,
            NOT_NEGATIVE,
        ));
    }
    if spec.host_pid && spec.share_process_namespace {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(
            "spec.shareProcessNamespace",
            true,
            detail,
        ));
    }
    dns::validate_policy(&mut errors, &spec.dns_policy, "spec.dnsPolicy");
    security::validate_pod_security(&mut errors, spec, "spec.securityContext");
    if !spec.node_name.is_empty() {
        named(
            &mut errors,
            "spec.nodeName",
            &spec.node_name,
            is_dns_subdomain,
        );
    }
    dns::validate_dns_config(&mut errors, spec, "spec.dnsConfig");
    for (index, gate) in spec.readiness_gates.iter().enumerate() {
        let path = child(&item("spec.readinessGates", index), "conditionType");
        named(&mut errors, &path, &gate.condition_type, is_qualified_name);
    }
    node::validate_node_fields(&mut errors, spec);
    if let Some(seconds) = spec.active_deadline_seconds {
        range(
            &mut errors,
            "spec.activeDeadlineSeconds",
            seconds,
            1,
            i32::MAX.into(),
        );
    }
    dns::validate_names(&mut errors, spec, "spec");
    errors
}

#[cfg(test)]
mod tests;
