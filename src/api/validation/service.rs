//! Validates a Service that has its defaults, with the API's rules and texts (kube-services 1).

use std::collections::HashSet;
use std::ops::RangeInclusive;

use super::addresses::{parse_ip, reaches_a_machine, valid_cidr, valid_ip};
use super::checks::{named, supported};
use super::cluster_ips::{self, ip_path};
use super::names::{
    is_dns_1035_label, is_dns_label, is_dns_subdomain, is_qualified_name, is_valid_label_value,
    is_valid_port_number,
};
use super::{object_metadata, validate_port};
use crate::api::field::{FieldError, child, entry, item};
use crate::api::service::written::{NONE, WrittenService, WrittenServicePort, WrittenServiceSpec};

/// Longest session affinity in seconds: a day.
const MOST_AFFINITY_SECONDS: i32 = 86_400;
/// Range of the node ports that services may have.
pub const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// Annotation that had the ranges before the field `loadBalancerSourceRanges` existed.
pub(crate) const SOURCE_RANGES_ANNOTATION: &str =
    "service.beta.kubernetes.io/load-balancer-source-ranges";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";

const TYPES: [&str; 4] = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
const POLICIES: [&str; 2] = ["Cluster", "Local"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

const FOR_LOAD_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";
/// Error of an SCTP port of a service or of an endpoint.
const NO_SCTP: &str = "SCTP is not supported: services here carry TCP and UDP; take this port out, and let its clients connect to the pod itself";

/// Returns all errors of a service, in the API's order.
pub(crate) fn validate_service(object: &WrittenService) -> Vec<FieldError> {
    let mut errors = object_metadata(&object.metadata, is_dns_1035_label);
    let spec = &object.spec;
    topology(&mut errors, object);
    if spec.ports.is_empty() && !spec.is_headless() && spec.type_ != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    by_type(&mut errors, spec);
    ports(&mut errors, spec);
    for (key, value) in &spec.selector {
        named(&mut errors, "spec.selector", key, is_qualified_name);
        let path = entry("spec.selector", key);
        named(&mut errors, &path, value, is_valid_label_value);
    }
    affinity(&mut errors, spec);
    if spec.type_ != "ExternalName" {
        cluster_ips::validate(&mut errors, spec);
    }
    for (index, text) in spec.external_ips.iter().enumerate() {
        let path = item("spec.externalIPs", index);
        if let Some(ip) = valid_ip(&mut errors, &path, text) {
            reaches_a_machine(&mut errors, &path, text, ip);
        }
    }
    supported(&mut errors, "spec.type", &spec.type_, &TYPES);
    node_ports(&mut errors, spec);
    unique_ports(&mut errors, spec);
    source_ranges(&mut errors, object);
    load_balancer(&mut errors, spec);
    traffic_policies(&mut errors, spec);
    health_check(&mut errors, spec);
    if let Some(distribution) = &spec.traffic_distribution {
        let path = "spec.trafficDistribution";
        supported(&mut errors, path, distribution, &DISTRIBUTIONS);
    }
    ingress(&mut errors, object);
    errors
}

fn topology(errors: &mut Vec<FieldError>, object: &WrittenService) {
    let annotations = &object.metadata.annotations;
    let both = annotations
        .get(TOPOLOGY_MODE)
        .zip(annotations.get(TOPOLOGY_HINTS));
    if let Some((mode, _)) = both.filter(|(mode, hints)| mode != hints) {
        let path = entry("metadata.annotations", TOPOLOGY_MODE);
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.push(FieldError::invalid(path, mode.as_str(), detail));
    }
}

fn by_type(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    match spec.type_.as_str() {
        of @ ("LoadBalancer" | "NodePort") if spec.is_headless() => {
            let detail = format!("may not be set to 'None' for {of} services");
            errors.push(FieldError::invalid(ip_path(spec, 0), NONE, detail));
        }
        "ExternalName" => external_name(errors, spec),
        _ => {}
    }
}

fn external_name(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let given = [
        ("clusterIPs", !spec.cluster_ips.is_empty()),
        ("ipFamilies", !spec.ip_families.is_empty()),
        ("ipFamilyPolicy", spec.ip_family_policy.is_some()),
    ];
    for (field, _) in given.into_iter().filter(|(_, given)| *given) {
        let detail = "may not be set for ExternalName services";
        errors.push(FieldError::forbidden(child("spec", field), detail));
    }
    // A dot at the end means that the name is complete.
    let name = &spec.external_name;
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.push(FieldError::required("spec.externalName", "")),
        name => named(errors, "spec.externalName", name, is_dns_subdomain),
    }
}

fn ports(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let mut names = HashSet::new();
    for (index, port) in spec.ports.iter().enumerate() {
        let path = item("spec.ports", index);
        let name = &child(&path, "name");
        if port.name.is_empty() && spec.ports.len() > 1 {
            errors.push(FieldError::required(name, ""));
        } else if !port.name.is_empty() {
            named(errors, name, &port.name, is_dns_label);
            if !names.insert(&port.name) {
                errors.push(FieldError::duplicate(name, port.name.as_str()));
            }
        }
        one_port(errors, port, &path);
    }
}

fn one_port(errors: &mut Vec<FieldError>, port: &WrittenServicePort, path: &str) {
    port_number(errors, &child(path, "port"), port.port);
    protocol(errors, &child(path, "protocol"), &port.protocol);
    // A target port that is left out equals the port, which is checked above.
    let target = &port.target_port;
    if *target != crate::api::pod::IntOrString::Int(port.port) {
        errors.extend(validate_port(target, &child(path, "targetPort")));
    }
    app_protocol(errors, port.app_protocol.as_deref(), path);
}

pub(super) fn port_number(errors: &mut Vec<FieldError>, path: &str, port: i32) {
    let details = is_valid_port_number(port.into()).into_iter();
    errors.extend(details.map(|detail| FieldError::invalid(path, port, detail)));
}

pub(super) fn protocol(errors: &mut Vec<FieldError>, path: &str, protocol: &str) {
    match protocol {
        "SCTP" => errors.push(FieldError::forbidden(path, NO_SCTP)),
        other => supported(errors, path, other, &["TCP", "UDP"]),
    }
}

pub(super) fn app_protocol(errors: &mut Vec<FieldError>, protocol: Option<&str>, path: &str) {
    if let Some(protocol) = protocol {
        let path = child(path, "appProtocol");
        named(errors, &path, protocol, is_qualified_name);
    }
}

fn affinity(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let path = "spec.sessionAffinity";
    supported(errors, path, &spec.session_affinity, &["ClientIP", NONE]);
    let config = spec.session_affinity_config.as_ref();
    let seconds = config.and_then(|c| c.client_ip.as_ref()?.timeout_seconds);
    let outside = |seconds: &i32| !(1..=MOST_AFFINITY_SECONDS).contains(seconds);
    if let Some(seconds) = seconds.filter(outside) {
        let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        let detail = format!("must be greater than 0 and less than {MOST_AFFINITY_SECONDS}");
        errors.push(FieldError::invalid(path, seconds, detail));
    }
}

fn node_ports(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let mut taken = HashSet::new();
    for (index, port) in spec.ports.iter().enumerate() {
        let path = child(&item("spec.ports", index), "nodePort");
        match port.node_port {
            0 => continue,
            _ if spec.type_ == "ClusterIP" => {
                let detail = "may not be used when `type` is 'ClusterIP'";
                errors.push(FieldError::forbidden(&path, detail));
            }
            number => in_node_ports(errors, &path, number),
        }
        if !taken.insert((&port.protocol, port.node_port)) {
            errors.push(FieldError::duplicate(path, port.node_port));
        }
    }
}

/// Checks that a port is in the range of node ports. The text of the error is that of the API server's allocator.
fn in_node_ports(errors: &mut Vec<FieldError>, path: &str, port: i32) {
    if !u16::try_from(port).is_ok_and(|port| NODE_PORTS.contains(&port)) {
        let (first, last) = NODE_PORTS.into_inner();
        let detail = format!(
            "provided port is not in the valid range. The range of valid ports is {first}-{last}"
        );
        errors.push(FieldError::invalid(path, port, detail));
    }
}

fn unique_ports(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let mut taken = HashSet::new();
    for (index, port) in spec.ports.iter().enumerate() {
        if !taken.insert((&port.protocol, port.port)) {
            let path = item("spec.ports", index);
            let value = format!("{}/{}", port.protocol, port.port);
            errors.push(FieldError::duplicate(path, value));
        }
    }
}

fn source_ranges(errors: &mut Vec<FieldError>, object: &WrittenService) {
    let annotation = object.metadata.annotations.get(SOURCE_RANGES_ANNOTATION);
    let path = match (
        object.spec.load_balancer_source_ranges.is_empty(),
        annotation,
    ) {
        (false, _) => "spec.loadBalancerSourceRanges".to_owned(),
        (true, Some(_)) => entry("metadata.annotations", SOURCE_RANGES_ANNOTATION),
        (true, None) => return,
    };
    if object.spec.type_ != "LoadBalancer" {
        errors.push(FieldError::forbidden(&path, FOR_LOAD_BALANCERS));
    }
    let is_field = path.starts_with("spec");
    for (index, range) in source_range_texts(object).into_iter().enumerate() {
        match is_field {
            true => valid_cidr(errors, &item(&path, index), range),
            false => valid_cidr(errors, &path, range),
        }
    }
}

/// Returns the ranges of the field. If the field is empty, returns those of the annotation.
pub(crate) fn source_range_texts(object: &WrittenService) -> Vec<&str> {
    let field = &object.spec.load_balancer_source_ranges;
    let annotation = object.metadata.annotations.get(SOURCE_RANGES_ANNOTATION);
    match annotation.map(|text| text.trim()) {
        _ if !field.is_empty() => field.iter().map(|range| range.trim()).collect(),
        Some(text) if !text.is_empty() => text.split(',').map(str::trim).collect(),
        _ => Vec::new(),
    }
}

fn load_balancer(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let is_other = spec.type_ != "LoadBalancer";
    if spec.allocate_load_balancer_node_ports.is_some() && is_other {
        let path = "spec.allocateLoadBalancerNodePorts";
        errors.push(FieldError::forbidden(path, FOR_LOAD_BALANCERS));
    }
    let path = "spec.loadBalancerClass";
    match &spec.load_balancer_class {
        Some(_) if is_other => errors.push(FieldError::forbidden(path, FOR_LOAD_BALANCERS)),
        Some(class) => named(errors, path, class, is_qualified_name),
        None => {}
    }
}

fn traffic_policies(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let (path, policy) = ("spec.externalTrafficPolicy", &spec.external_traffic_policy);
    if spec.is_reached_from_outside() {
        supported(errors, path, policy, &POLICIES);
    } else if !policy.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(path, policy.as_str(), detail));
    }
    if let Some(policy) = &spec.internal_traffic_policy {
        supported(errors, "spec.internalTrafficPolicy", policy, &POLICIES);
    }
}

fn health_check(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let (path, port) = ("spec.healthCheckNodePort", spec.health_check_node_port);
    if port == 0 {
        return;
    }
    if !spec.needs_health_check() {
        let detail =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        return errors.push(FieldError::invalid(path, port, detail));
    }
    in_node_ports(errors, path, port);
    if spec.ports.iter().any(|p| p.node_port == port) {
        errors.push(FieldError::duplicate(path, port));
    }
}

fn ingress(errors: &mut Vec<FieldError>, object: &WrittenService) {
    let path = "status.loadBalancer.ingress";
    let all = &object.status.load_balancer.ingress;
    if object.spec.type_ != "LoadBalancer" && !all.is_empty() {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        return errors.push(FieldError::forbidden(path, detail));
    }
    for (index, one) in all.iter().enumerate() {
        let path = item(path, index);
        if !one.ip.is_empty() {
            let at = child(&path, "ip");
            if let Some(ip) = valid_ip(errors, &at, &one.ip) {
                reaches_a_machine(errors, &at, &one.ip, ip);
            }
        }
        if let Some(mode) = &one.ip_mode {
            let path = child(&path, "ipMode");
            match one.ip.is_empty() {
                true => {
                    let detail = "may not be specified when `ip` is not set";
                    errors.push(FieldError::forbidden(path, detail));
                }
                false => supported(errors, &path, mode, &["VIP", "Proxy"]),
            }
        }
        hostname(errors, &child(&path, "hostname"), &one.hostname);
    }
}

fn hostname(errors: &mut Vec<FieldError>, path: &str, name: &str) {
    if name.is_empty() {
        return;
    }
    named(errors, path, name, is_dns_subdomain);
    if parse_ip(name).is_some() {
        let detail = "must be a DNS name, not an IP address";
        errors.push(FieldError::invalid(path, name, detail));
    }
}
