//! Validates containers: names, images, ports, variables and resources, then their probes (kubelet-probes 1.4, 1.5).

use std::collections::{BTreeMap, HashSet};

use super::checks::{NOT_NEGATIVE, PULL_POLICIES, named, no_backsteps, no_nul, one_of};
use super::names::{is_dns_label, is_valid_port_name, is_valid_port_number};
use super::probes::{probe_field, validate_container_probe};
use super::{environment, huge_pages, lifecycle, restart, security, volumes};
use crate::api::field::{FieldError, child, entry, item};
use crate::api::huge_pages::is_resource;
use crate::api::pod::{Container, ContainerPort, PodSpec, ProbeType, ResourceRequirements};
use crate::api::quantity::Quantity;

/// Types of probes in the order of the API's errors.
const PROBES: [ProbeType; 3] = [
    ProbeType::Liveness,
    ProbeType::Readiness,
    ProbeType::Startup,
];
const NOT_OF_INIT: &str = "may not be set for init containers without restartPolicy=Always";

pub(super) fn validate_containers(errors: &mut Vec<FieldError>, spec: &PodSpec, path: &str) {
    if spec.containers.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let mut names = HashSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let path = item(path, index);
        errors.extend(validate_container(container, spec, &path));
        if !container.name.is_empty() && !names.insert(&container.name) {
            errors.push(FieldError::duplicate(
                child(&path, "name"),
                container.name.as_str(),
            ));
        }
        while_it_runs(errors, container, spec, &path);
        if spec.host_network {
            ports_of_the_node(errors, &container.ports, &child(&path, "ports"));
        }
    }
    host_port_conflicts(errors, &spec.containers, path);
}

/// Checks init containers. The name of an init container is unique among all containers of the pod. An init container
/// that is not a sidecar may have no probes and hooks, because its probes and hooks would have no effect.
pub(super) fn validate_init_containers(errors: &mut Vec<FieldError>, spec: &PodSpec, path: &str) {
    let mut names: HashSet<&str> = spec.containers.iter().map(|c| c.name.as_str()).collect();
    for (index, container) in spec.init_containers.iter().enumerate() {
        let path = item(path, index);
        errors.extend(validate_container(container, spec, &path));
        if !container.name.is_empty() && !names.insert(&container.name) {
            errors.push(FieldError::duplicate(
                child(&path, "name"),
                container.name.as_str(),
            ));
        }
        if container.always_restarts() {
            while_it_runs(errors, container, spec, &path);
        } else {
            let probes = PROBES.into_iter().filter(|t| container.probe(*t).is_some());
            let lifecycle = container.lifecycle.iter().map(|_| "lifecycle");
            errors.extend(
                lifecycle
                    .chain(probes.map(probe_field))
                    .map(|field| FieldError::forbidden(child(&path, field), NOT_OF_INIT)),
            );
        }
        // Two init containers may have the same host port, because those that are not sidecars never run together. So
        // only the ports of one container are checked against each other.
        conflicts(errors, std::slice::from_ref(container), |_| path.clone());
    }
}

/// Checks the hooks and the probes of a container.
fn while_it_runs(errors: &mut Vec<FieldError>, container: &Container, spec: &PodSpec, path: &str) {
    if let Some(hooks) = &container.lifecycle {
        lifecycle::validate_lifecycle(errors, hooks, spec, &child(path, "lifecycle"));
    }
    for probe_type in PROBES {
        if let Some(probe) = container.probe(probe_type) {
            errors.extend(validate_container_probe(
                probe_type,
                probe,
                &child(path, probe_field(probe_type)),
            ));
        }
    }
}

/// Validates a container without its probes and hooks.
pub fn validate_container(container: &Container, spec: &PodSpec, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = |name: &str| child(path, name);
    if container.name.is_empty() {
        errors.push(FieldError::required(at("name"), ""));
    } else {
        named(&mut errors, &at("name"), &container.name, is_dns_label);
    }
    image(&mut errors, &container.image, &at("image"));
    one_of(
        &mut errors,
        &container.termination_message_policy,
        &["File", "FallbackToLogsOnError"],
        &at("terminationMessagePolicy"),
    );
    ports(&mut errors, &container.ports, &at("ports"));
    environment::validate_environment(&mut errors, container, path);
    volumes::validate_mounts(&mut errors, container, &spec.volumes, &at("volumeMounts"));
    volumes::validate_devices(&mut errors, container, &spec.volumes, &at("volumeDevices"));
    one_of(
        &mut errors,
        &container.image_pull_policy,
        &PULL_POLICIES,
        &at("imagePullPolicy"),
    );
    resources(&mut errors, &container.resources, &at("resources"));
    restart::validate_restart_policy(&mut errors, container, path);
    security::validate_security(
        &mut errors,
        &container.security_context,
        &at("securityContext"),
    );
    words(&mut errors, container, path);
    errors
}

fn image(errors: &mut Vec<FieldError>, image: &str, path: &str) {
    if image.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if image.trim() != image {
        errors.push(FieldError::invalid(
            path,
            image,
            "must not have leading or trailing whitespace",
        ));
    }
}

fn words(errors: &mut Vec<FieldError>, container: &Container, path: &str) {
    for (field, words) in [("command", &container.command), ("args", &container.args)] {
        for (index, word) in words.iter().enumerate() {
            no_nul(errors, &item(&child(path, field), index), word);
        }
    }
    no_nul(errors, &child(path, "workingDir"), &container.working_dir);
    // A file of the node is mounted at this path.
    let message = child(path, "terminationMessagePath");
    no_nul(errors, &message, &container.termination_message_path);
    no_backsteps(errors, &message, &container.termination_message_path);
}

fn ports(errors: &mut Vec<FieldError>, ports: &[ContainerPort], path: &str) {
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = item(path, index);
        let at = |name: &str| child(&path, name);
        if !port.name.is_empty() {
            let complaints = is_valid_port_name(&port.name);
            if complaints.is_empty() && !names.insert(&port.name) {
                errors.push(FieldError::duplicate(at("name"), port.name.as_str()));
            }
            errors.extend(
                complaints
                    .into_iter()
                    .map(|detail| FieldError::invalid(at("name"), port.name.as_str(), detail)),
            );
        }
        if port.container_port == 0 {
            errors.push(FieldError::required(at("containerPort"), ""));
        } else {
            port_number(errors, &at("containerPort"), port.container_port);
        }
        if port.host_port != 0 {
            port_number(errors, &at("hostPort"), port.host_port);
        }
        one_of(
            errors,
            &port.protocol,
            &["TCP", "UDP", "SCTP"],
            &at("protocol"),
        );
    }
}

/// Checks ports of a container in the node's network, where a port of the container is a port of the node. As in the
/// API, init containers are not checked.
fn ports_of_the_node(errors: &mut Vec<FieldError>, ports: &[ContainerPort], path: &str) {
    for (index, port) in ports.iter().enumerate() {
        if port.host_port != port.container_port {
            errors.push(FieldError::invalid(
                child(&item(path, index), "hostPort"),
                port.host_port,
                "must match `containerPort` when `hostNetwork` is true",
            ));
        }
    }
}

fn port_number(errors: &mut Vec<FieldError>, path: &str, port: i32) {
    errors.extend(
        is_valid_port_number(port.into())
            .into_iter()
            .map(|detail| FieldError::invalid(path, port, detail)),
    );
}

fn host_port_conflicts(errors: &mut Vec<FieldError>, containers: &[Container], path: &str) {
    conflicts(errors, containers, |index| item(path, index));
}

fn conflicts(
    errors: &mut Vec<FieldError>,
    containers: &[Container],
    path: impl Fn(usize) -> String,
) {
    let mut taken = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (number, port) in container
            .ports
            .iter()
            .enumerate()
            .filter(|(_, port)| port.host_port != 0)
        {
            let key = format!("{}/{}/{}", port.protocol, port.host_ip, port.host_port);
            if !taken.insert(key.clone()) {
                let path = item(&child(&path(index), "ports"), number);
                errors.push(FieldError::duplicate(child(&path, "hostPort"), key));
            }
        }
    }
}

/// Largest number of cores for which the kernel accepts a quota: 2⁴⁴−1 µs in each 100 ms. A container with more never
/// starts.
const MOST_CPUS: i64 = 175_921_860;

fn resources(errors: &mut Vec<FieldError>, resources: &ResourceRequirements, path: &str) {
    quantities(errors, &resources.limits, &child(path, "limits"));
    quantities(errors, &resources.requests, &child(path, "requests"));
    for (field, given) in [
        ("limits", &resources.limits),
        ("requests", &resources.requests),
    ] {
        if let Some(cpu) = given.get("cpu").filter(|cpu| {
            cpu.milli_value()
                .is_some_and(|milli| milli > MOST_CPUS * 1000)
        }) {
            let detail =
                format!("must be at most {MOST_CPUS} cores, the largest quota of the kernel");
            errors.push(FieldError::invalid(
                entry(&child(path, field), "cpu"),
                cpu.0.as_str(),
                detail,
            ));
        }
    }
    let requests = resources.requests.iter();
    for (name, request) in requests.filter(|(name, _)| !is_resource(name)) {
        let Some(limit) = resources.limits.get(name) else {
            continue;
        };
        if request.parse().ok() > limit.parse().ok() {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(
                child(path, "requests"),
                request.0.as_str(),
                detail,
            ));
        }
    }
    huge_pages::validate_huge_pages(errors, resources, path);
}

pub(super) fn quantities(
    errors: &mut Vec<FieldError>,
    quantities: &BTreeMap<String, Quantity>,
    path: &str,
) {
    for (name, quantity) in quantities {
        let path = entry(path, name);
        match quantity.parse() {
            Err(error) => errors.push(FieldError::invalid(
                path,
                quantity.0.as_str(),
                error.to_string(),
            )),
            Ok(amount) if amount.is_negative() => {
                errors.push(FieldError::invalid(path, quantity.0.as_str(), NOT_NEGATIVE));
            }
            Ok(_) => {}
        }
    }
}
