//! Decodes a Service: types, defaults, validation, and notes on fields without effect (kube-services 1).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::Findings;
use super::typed;
use super::unread::{self, Level};
use crate::api::field::{entry, item};
use crate::api::objects::{LocalObject, ObjectContent, ObjectKey, ObjectKind};
use crate::api::pod::{IntOrString, ObjectMeta};
use crate::api::service::written::{
    WrittenIngress, WrittenService, WrittenServicePort, WrittenServiceSpec,
};
use crate::api::service::{
    Cidr, ClusterIps, IpFamily, IpFamilyPolicy, NOT_PROXIED_LABELS, Protocol, Service, ServicePort,
    ServiceType, TargetPort, TrafficPolicy,
};
use crate::api::source::PodSource;
use crate::api::validation::addresses::parse_ip;
use crate::api::validation::service::{source_range_texts, validate_service};

/// The protocol that no data path serves. A port with it is refused in a file, and left out of an object of a cluster.
pub(super) const SCTP: &str = "SCTP";

/// Decodes the Service in `raw`. Returns the service and notes. Problems of the service go to `findings`.
pub(super) fn service(
    mut raw: Value,
    source: PodSource,
    findings: &mut Findings,
) -> (LocalObject, Vec<String>) {
    let (mut written, mut notes): (WrittenService, _) =
        read(unread::SERVICE, &mut raw, source, findings);
    let key = key(ObjectKind::Service, &mut written.metadata, findings);
    notes.extend(without_effect(&written));
    written.set_defaults();
    if source == PodSource::Api {
        // The API server has validated it by its own rules, such as another range of node ports.
        let ports = &mut written.spec.ports;
        ports.retain(|port| port.protocol != SCTP);
    } else {
        let errors = validate_service(&written);
        errors.iter().for_each(|error| findings.add_error(error));
    }
    notes.extend(advice(&written));
    let content = ObjectContent::Service(Arc::new(typed_service(written)));
    (LocalObject { key, content }, notes)
}

/// Reads the object as the file contains it, without defaults. Returns the object and notes on fields that no type
/// reads.
pub(super) fn read<T: DeserializeOwned + Default>(
    levels: &[Level],
    raw: &mut Value,
    source: PodSource,
    findings: &mut Findings,
) -> (T, Vec<String>) {
    typed::strip_nulls(raw);
    match typed::read(raw, findings) {
        Some((written, paths)) => {
            let notes = unread::unread(levels, raw, &paths, source, findings);
            (written, notes)
        }
        None => Default::default(),
    }
}

/// Returns the key of the object. An object without a namespace is in the namespace `default`.
pub(super) fn key(
    kind: ObjectKind,
    metadata: &mut ObjectMeta,
    findings: &mut Findings,
) -> ObjectKey {
    if metadata.name.is_empty() {
        findings.needs_a_name(kind.as_str());
    }
    if metadata.namespace.is_empty() {
        metadata.namespace.push_str("default");
    }
    ObjectKey::new(kind, &metadata.namespace, &metadata.name)
}

/// Returns notes on fields without effect. The fields are checked before the defaults are set, because a default would
/// hide them.
fn without_effect(object: &WrittenService) -> Vec<String> {
    let mut notes = Vec::new();
    let spec = &object.spec;
    if spec.session_affinity_config.is_some() && spec.session_affinity != "ClientIP" {
        notes.push("spec.sessionAffinityConfig: not acted on: sessionAffinity is None".into());
    }
    let metadata = &object.metadata;
    let deletion = [
        ("deletionTimestamp", metadata.deletion_timestamp.is_some()),
        (
            "deletionGracePeriodSeconds",
            metadata.deletion_grace_period_seconds.is_some(),
        ),
    ];
    for (field, _) in deletion.into_iter().filter(|(_, given)| *given) {
        notes.push(format!(
            "metadata.{field}: not acted on: a Service in a file is deleted by removing the file"
        ));
    }
    notes
}

/// Returns notes on fields that the API reads and that have no effect on this node.
fn advice(object: &WrittenService) -> Vec<String> {
    let mut notes = labels_and_annotations(&object.metadata);
    let spec = &object.spec;
    let mut note = |given: bool, field: &str, why: &str| {
        if given {
            notes.push(format!("spec.{field}: not acted on: {why}"));
        }
    };
    note(
        spec.traffic_distribution.is_some(),
        "trafficDistribution",
        "every endpoint that is ready gets traffic, wherever it is",
    );
    let by_status = "nothing here gives addresses to a load balancer; its own are those of status.loadBalancer.ingress";
    note(
        !spec.load_balancer_ip.is_empty(),
        "loadBalancerIP",
        by_status,
    );
    note(
        spec.load_balancer_class.is_some(),
        "loadBalancerClass",
        by_status,
    );
    let why = match spec.type_.as_str() {
        "ExternalName" => "a service of type ExternalName is a name for something elsewhere",
        _ if spec.is_headless() => {
            "a headless service is not proxied: its name leads to its endpoints"
        }
        _ => "",
    };
    if !why.is_empty() {
        note(!spec.external_ips.is_empty(), "externalIPs", why);
        note(spec.session_affinity == "ClientIP", "sessionAffinity", why);
        let any_node_port = spec.ports.iter().any(|port| port.node_port != 0);
        note(any_node_port, "ports[].nodePort", why);
    }
    if spec.type_ == "ExternalName" {
        note(!spec.selector.is_empty(), "selector", why);
    } else {
        note(
            !spec.external_name.is_empty(),
            "externalName",
            "the type is not ExternalName",
        );
    }
    notes.extend(load_balancer_advice(object));
    notes
}

fn labels_and_annotations(metadata: &ObjectMeta) -> Vec<String> {
    let mut notes = Vec::new();
    for label in NOT_PROXIED_LABELS {
        if metadata.labels.contains_key(label) {
            let at = entry("metadata.labels", label);
            notes.push(format!(
                "{at}: the service is not proxied: the label leaves it to another proxy"
            ));
        }
    }
    for name in ["topology-mode", "topology-aware-hints"] {
        let annotation = format!("service.kubernetes.io/{name}");
        let value = metadata.annotations.get(&annotation);
        if value.is_some_and(|value| !["", "Disabled", "disabled"].contains(&value.as_str())) {
            let at = entry("metadata.annotations", &annotation);
            notes.push(format!(
                "{at}: not acted on: every endpoint that is ready gets traffic, wherever it is"
            ));
        }
    }
    notes
}

fn load_balancer_advice(object: &WrittenService) -> Vec<String> {
    let mut notes = Vec::new();
    if object.spec.type_ != "LoadBalancer" {
        return notes;
    }
    let path = "status.loadBalancer.ingress";
    let all = &object.status.load_balancer.ingress;
    for (index, one) in all.iter().enumerate() {
        let path = item(path, index);
        if !one.hostname.is_empty() {
            notes.push(format!("{path}.hostname: not acted on: only addresses are"));
        }
        if one.ip_mode.as_deref() == Some("Proxy") {
            notes.push(format!(
                "{path}.ipMode: with Proxy the node does not answer on {}: the load balancer sends to node ports",
                one.ip
            ));
        }
    }
    if all.iter().all(|one| one.ip.is_empty()) {
        notes.push(format!(
            "{path}: no address: nothing here assigns one, so the service answers on its cluster IP and node ports only; write its addresses there"
        ));
    }
    notes
}

/// Returns the typed view of a Service. A wrong value already has its error, so the value that stands for it in the
/// view does not matter.
fn typed_service(object: WrittenService) -> Service {
    let texts = source_range_texts(&object);
    let source_ranges = texts.into_iter().filter_map(Cidr::of_text).collect();
    let WrittenService {
        metadata,
        spec,
        status,
        ..
    } = object;
    let ingress_ips = status
        .load_balancer
        .ingress
        .iter()
        .filter_map(vip)
        .collect();
    Service {
        labels: metadata.labels,
        annotations: metadata.annotations,
        type_: service_type(&spec.type_),
        cluster_ips: cluster_ips(&spec),
        ip_families: spec.ip_families.iter().map(|f| family(f)).collect(),
        ip_family_policy: family_policy(&spec),
        external_ips: addresses(&spec.external_ips),
        session_affinity: affinity(&spec),
        internal_traffic_policy: policy(spec.internal_traffic_policy.as_deref()),
        external_traffic_policy: policy(Some(&spec.external_traffic_policy)),
        publish_not_ready_addresses: spec.publish_not_ready_addresses,
        source_ranges,
        health_check_node_port: port(spec.health_check_node_port),
        no_node_ports: spec.allocate_load_balancer_node_ports == Some(false),
        ingress_ips,
        created: None,
        external_name: spec.external_name,
        selector: spec.selector,
        ports: spec.ports.into_iter().map(service_port).collect(),
    }
}

fn addresses(texts: &[String]) -> Vec<IpAddr> {
    texts.iter().filter_map(|text| parse_ip(text)).collect()
}

/// Returns the address at which this node answers for the load balancer. Returns None for an entry with `ipMode:
/// Proxy`.
fn vip(ingress: &WrittenIngress) -> Option<IpAddr> {
    parse_ip(&ingress.ip).filter(|_| ingress.ip_mode.as_deref() != Some("Proxy"))
}

fn service_type(text: &str) -> ServiceType {
    match text {
        "NodePort" => ServiceType::NodePort,
        "LoadBalancer" => ServiceType::LoadBalancer,
        "ExternalName" => ServiceType::ExternalName,
        _ => ServiceType::ClusterIp,
    }
}

fn cluster_ips(spec: &WrittenServiceSpec) -> ClusterIps {
    match spec.is_headless() {
        true => ClusterIps::Headless,
        false if spec.cluster_ips.is_empty() => ClusterIps::Allocated,
        false => ClusterIps::Given(addresses(&spec.cluster_ips)),
    }
}

fn family(text: &str) -> IpFamily {
    match text {
        "IPv6" => IpFamily::V6,
        _ => IpFamily::V4,
    }
}

fn family_policy(spec: &WrittenServiceSpec) -> IpFamilyPolicy {
    match spec.ip_family_policy.as_deref() {
        Some("PreferDualStack") => IpFamilyPolicy::PreferDualStack,
        Some("RequireDualStack") => IpFamilyPolicy::RequireDualStack,
        None if spec.is_headless_without_selector() => IpFamilyPolicy::RequireDualStack,
        _ => IpFamilyPolicy::SingleStack,
    }
}

fn affinity(spec: &WrittenServiceSpec) -> Option<Duration> {
    let config = spec.session_affinity_config.as_ref()?;
    let seconds = config.client_ip.as_ref()?.timeout_seconds?;
    let is_on = spec.session_affinity == "ClientIP";
    let seconds = u64::try_from(seconds).ok().filter(|_| is_on)?;
    Some(Duration::from_secs(seconds))
}

fn policy(text: Option<&str>) -> TrafficPolicy {
    match text {
        Some("Local") => TrafficPolicy::Local,
        _ => TrafficPolicy::Cluster,
    }
}

/// Converts the number of a port. Returns None for 0, which means that the port is left out.
pub(super) fn port(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

pub(super) fn protocol(text: &str) -> Protocol {
    match text {
        "UDP" => Protocol::Udp,
        _ => Protocol::Tcp,
    }
}

fn service_port(written: WrittenServicePort) -> ServicePort {
    ServicePort {
        protocol: protocol(&written.protocol),
        port: port(written.port).unwrap_or_default(),
        target_port: match written.target_port {
            IntOrString::Int(number) => TargetPort::Number(port(number).unwrap_or_default()),
            IntOrString::String(name) => TargetPort::Name(name),
        },
        node_port: port(written.node_port),
        name: written.name,
        app_protocol: written.app_protocol,
    }
}

#[cfg(test)]
mod tests;
