//! Decodes EndpointSlices and Endpoints (kube-services 2). An Endpoints object is kept as the slices that mirror it.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use super::error::Findings;
use super::service::{SCTP, key, port, protocol, read};
use super::unread;
use crate::api::field::{entry, item};
use crate::api::objects::{LocalObject, ObjectContent, ObjectKind};
use crate::api::pod::ObjectMeta;
use crate::api::service::written::{
    WrittenAddress, WrittenConditions, WrittenEndpoint, WrittenEndpointPort, WrittenEndpoints,
    WrittenSlice, WrittenSubset, WrittenTarget,
};
use crate::api::service::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice, IpFamily};
use crate::api::source::PodSource;
use crate::api::validation::addresses::parse_ip;
use crate::api::validation::endpoints::{validate_endpoints, validate_slice};

/// Label of an EndpointSlice with the name of the service that the slice belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of an Endpoints object that must not be mirrored to slices.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Annotation of an Endpoints object that serves as a lock for leader election. Such an object is not mirrored to
/// slices.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Largest number of addresses that are mirrored from one subset.
const MOST_MIRRORED: usize = 1000;

/// Decodes the EndpointSlice in `raw`. Returns the slice and notes. Problems of the slice go to `findings`.
pub(super) fn slice(
    mut raw: Value,
    source: PodSource,
    findings: &mut Findings,
) -> (LocalObject, Vec<String>) {
    let (mut written, mut notes): (WrittenSlice, _) =
        read(unread::SLICE, &mut raw, source, findings);
    let key = key(ObjectKind::EndpointSlice, &mut written.metadata, findings);
    written.set_defaults();
    if source == PodSource::Api {
        // As of a service. Names as endpoints have no addresses.
        written.ports.retain(|port| port.protocol != SCTP);
    } else {
        let errors = validate_slice(&written);
        errors.iter().for_each(|error| findings.add_error(error));
    }
    notes.extend(slice_advice(&written));
    let content = ObjectContent::EndpointSlice(Arc::new(typed_slice(written)));
    (LocalObject { key, content }, notes)
}

fn slice_advice(slice: &WrittenSlice) -> Vec<String> {
    let mut notes = Vec::new();
    let label = entry("metadata.labels", SERVICE_NAME);
    if service_of(&slice.metadata).is_empty() {
        notes.push(format!(
            "{label}: not set: the slice belongs to no service, and nothing leads to its endpoints"
        ));
    }
    for (index, port) in slice.ports.iter().enumerate() {
        if port.port.is_none() {
            let path = item("ports", index);
            notes.push(format!("{path}.port: not set: nothing leads to it"));
        }
    }
    notes
}

fn service_of(metadata: &ObjectMeta) -> &str {
    metadata.labels.get(SERVICE_NAME).map_or("", String::as_str)
}

fn typed_slice(slice: WrittenSlice) -> EndpointSlice {
    let service = service_of(&slice.metadata).to_owned();
    let namespace = &slice.metadata.namespace;
    let family = match slice.address_type.as_str() {
        "IPv6" => IpFamily::V6,
        _ => IpFamily::V4,
    };
    let endpoints = slice.endpoints.into_iter();
    EndpointSlice {
        service,
        family,
        endpoints: endpoints.map(|e| endpoint(e, namespace)).collect(),
        ports: slice.ports.iter().map(endpoint_port).collect(),
    }
}

fn endpoint(written: WrittenEndpoint, namespace: &str) -> Endpoint {
    let texts = written.addresses.iter();
    Endpoint {
        addresses: texts.filter_map(|text| parse_ip(text)).collect(),
        conditions: conditions(&written.conditions),
        hostname: written.hostname,
        node_name: written.node_name,
        target: written.target_ref.and_then(|t| target(t, namespace)),
    }
}

fn conditions(written: &WrittenConditions) -> EndpointConditions {
    let ready = written.ready.unwrap_or(true);
    EndpointConditions {
        ready,
        serving: written.serving.unwrap_or(ready),
        terminating: written.terminating.unwrap_or(false),
    }
}

/// Returns namespace and name of the pod that the target refers to; None if the target is not a pod.
fn target(written: WrittenTarget, namespace: &str) -> Option<(String, String)> {
    let is_pod = written.kind == "Pod" && !written.name.is_empty();
    let namespace = match written.namespace.as_str() {
        "" => namespace.to_owned(),
        other => other.to_owned(),
    };
    is_pod.then_some((namespace, written.name))
}

fn endpoint_port(written: &WrittenEndpointPort) -> EndpointPort {
    EndpointPort {
        name: written.name.clone(),
        protocol: protocol(&written.protocol),
        port: written.port.and_then(port),
        app_protocol: written.app_protocol.clone(),
    }
}

/// Decodes the Endpoints object in `raw` into the slices that mirror it. Returns the object and notes. Problems of the
/// object go to `findings`.
pub(super) fn endpoints(
    mut raw: Value,
    source: PodSource,
    findings: &mut Findings,
) -> (LocalObject, Vec<String>) {
    let (mut written, mut notes): (WrittenEndpoints, _) =
        read(unread::ENDPOINTS, &mut raw, source, findings);
    let key = key(ObjectKind::Endpoints, &mut written.metadata, findings);
    written.set_defaults();
    for error in validate_endpoints(&written) {
        findings.add_error(&error);
    }
    let not_mirrored = not_mirrored(&written.metadata);
    let slices: Vec<_> = match not_mirrored {
        Some(_) => Vec::new(),
        None => mirrored(&written),
    };
    notes.extend(not_mirrored);
    notes.extend(too_many(&written));
    let content = ObjectContent::Endpoints(slices.into_iter().map(Arc::new).collect());
    (LocalObject { key, content }, notes)
}

fn not_mirrored(metadata: &ObjectMeta) -> Option<String> {
    let label = metadata.labels.get(SKIP_MIRROR);
    let at = if label.is_some_and(|value| value == "true") {
        entry("metadata.labels", SKIP_MIRROR)
    } else if metadata.annotations.contains_key(LEADER) {
        entry("metadata.annotations", LEADER)
    } else {
        return None;
    };
    Some(format!("{at}: the Endpoints have no effect with it"))
}

fn too_many(endpoints: &WrittenEndpoints) -> Vec<String> {
    let subsets = endpoints.subsets.iter().enumerate();
    let of = |s: &WrittenSubset| s.addresses.len() + s.not_ready_addresses.len();
    subsets
        .filter(|(_, subset)| of(subset) > MOST_MIRRORED)
        .map(|(index, subset)| {
            let (path, given) = (item("subsets", index), of(subset));
            format!("{path}: only the first {MOST_MIRRORED} of its {given} addresses count, ready ones first: write the others as another subset, or as EndpointSlices")
        })
        .collect()
}

/// Returns the slices that mirror the Endpoints object, one for each family and list of ports. Subsets with the same
/// ports share a slice. An address that is in the slice already is not added again.
fn mirrored(endpoints: &WrittenEndpoints) -> Vec<EndpointSlice> {
    let mut slices: Vec<(EndpointSlice, HashSet<IpAddr>)> = Vec::new();
    let mut by_ports = HashMap::new();
    let (service, namespace) = (&endpoints.metadata.name, &endpoints.metadata.namespace);
    for subset in &endpoints.subsets {
        let ports: Vec<_> = subset.ports.iter().map(endpoint_port).collect();
        let ready = subset.addresses.iter().map(|a| (a, true));
        let not_ready = subset.not_ready_addresses.iter().map(|a| (a, false));
        for (address, ready) in ready.chain(not_ready).take(MOST_MIRRORED) {
            let Some(ip) = parse_ip(&address.ip) else {
                continue;
            };
            let family = IpFamily::of(ip);
            let place = by_ports.entry((family, ports.clone()));
            let place = *place.or_insert_with_key(|(family, ports)| {
                let slice = EndpointSlice {
                    service: service.clone(),
                    family: *family,
                    endpoints: Vec::new(),
                    ports: ports.clone(),
                };
                slices.push((slice, HashSet::new()));
                slices.len() - 1
            });
            let (slice, there) = &mut slices[place];
            if there.insert(ip) {
                let endpoint = mirrored_endpoint(address, ip, ready, namespace);
                slice.endpoints.push(endpoint);
            }
        }
    }
    slices.into_iter().map(|(slice, _)| slice).collect()
}

fn mirrored_endpoint(
    address: &WrittenAddress,
    ip: IpAddr,
    ready: bool,
    namespace: &str,
) -> Endpoint {
    let hostname = Some(address.hostname.clone());
    let reference = address.target_ref.clone();
    Endpoint {
        addresses: vec![ip],
        conditions: EndpointConditions {
            ready,
            serving: ready,
            terminating: false,
        },
        hostname: hostname.filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target: reference.and_then(|t| target(t, namespace)),
    }
}

#[cfg(test)]
mod tests;
