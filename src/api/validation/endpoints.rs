//! Validates EndpointSlices and Endpoints that have their defaults, with the API's rules and texts (kube-services 2).

use std::collections::HashSet;

use super::addresses::{reaches_a_machine, valid_ip, valid_ip_of};
use super::checks::named;
use super::names::{is_dns_label, is_dns_subdomain};
use super::object_metadata;
use super::service::{app_protocol, port_number, protocol};
use crate::api::field::{FieldError, child, item};
use crate::api::service::IpFamily;
use crate::api::service::written::{
    WrittenAddress, WrittenEndpoint, WrittenEndpointPort, WrittenEndpoints, WrittenSlice,
};

const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;

/// Returns all errors of a slice, in the API's order.
pub(crate) fn validate_slice(slice: &WrittenSlice) -> Vec<FieldError> {
    let mut errors = object_metadata(&slice.metadata, is_dns_subdomain);
    let path = "addressType";
    let family = match slice.address_type.as_str() {
        "IPv4" => Some(IpFamily::V4),
        "IPv6" => Some(IpFamily::V6),
        "" => {
            errors.push(FieldError::required(path, ""));
            None
        }
        "FQDN" => {
            let detail = "FQDN is not supported: write the addresses, or a Service of type ExternalName with the name";
            errors.push(FieldError::forbidden(path, detail));
            None
        }
        other => {
            let known = ["IPv4", "IPv6"];
            errors.push(FieldError::not_supported(path, other, &known));
            None
        }
    };
    if slice.endpoints.len() > MOST_ENDPOINTS {
        let given = slice.endpoints.len();
        errors.push(FieldError::too_many("endpoints", given, MOST_ENDPOINTS));
    } else {
        for (index, endpoint) in slice.endpoints.iter().enumerate() {
            one_endpoint(&mut errors, endpoint, family, &item("endpoints", index));
        }
    }
    slice_ports(&mut errors, &slice.ports);
    errors
}

fn one_endpoint(
    errors: &mut Vec<FieldError>,
    endpoint: &WrittenEndpoint,
    family: Option<IpFamily>,
    path: &str,
) {
    let (at, given) = (child(path, "addresses"), endpoint.addresses.len());
    match given {
        0 => errors.push(FieldError::required(&at, "must contain at least 1 address")),
        _ if given > MOST_ADDRESSES => {
            errors.push(FieldError::too_many(&at, given, MOST_ADDRESSES));
        }
        _ => {}
    }
    for (index, text) in endpoint.addresses.iter().enumerate() {
        let at = item(&at, index);
        let ip = family.and_then(|family| valid_ip_of(errors, family, &at, text));
        if let Some(ip) = ip {
            reaches_a_machine(errors, &at, text, ip);
        }
    }
    node_name(errors, endpoint.node_name.as_deref(), path);
    if let Some(name) = &endpoint.hostname {
        named(errors, &child(path, "hostname"), name, is_dns_label);
    }
}

fn node_name(errors: &mut Vec<FieldError>, name: Option<&str>, path: &str) {
    if let Some(name) = name {
        named(errors, &child(path, "nodeName"), name, is_dns_subdomain);
    }
}

fn slice_ports(errors: &mut Vec<FieldError>, ports: &[WrittenEndpointPort]) {
    if ports.len() > MOST_PORTS {
        return errors.push(FieldError::too_many("ports", ports.len(), MOST_PORTS));
    }
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = item("ports", index);
        let name = &child(&path, "name");
        if !port.name.is_empty() {
            named(errors, name, &port.name, is_dns_label);
        }
        if !names.insert(&port.name) {
            errors.push(FieldError::duplicate(name, port.name.as_str()));
        }
        one_port(errors, port, &path);
    }
}

fn one_port(errors: &mut Vec<FieldError>, port: &WrittenEndpointPort, path: &str) {
    if let Some(number) = port.port {
        port_number(errors, &child(path, "port"), number);
    }
    protocol(errors, &child(path, "protocol"), &port.protocol);
    app_protocol(errors, port.app_protocol.as_deref(), path);
}

/// Returns all errors of an Endpoints object, in the API's order.
pub(crate) fn validate_endpoints(endpoints: &WrittenEndpoints) -> Vec<FieldError> {
    let mut errors = object_metadata(&endpoints.metadata, is_dns_subdomain);
    for (index, subset) in endpoints.subsets.iter().enumerate() {
        let path = item("subsets", index);
        if subset.addresses.is_empty() && subset.not_ready_addresses.is_empty() {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.push(FieldError::required(&path, detail));
        }
        for (field, addresses) in [
            ("addresses", &subset.addresses),
            ("notReadyAddresses", &subset.not_ready_addresses),
        ] {
            for (index, address) in addresses.iter().enumerate() {
                one_address(&mut errors, address, &item(&child(&path, field), index));
            }
        }
        for (index, port) in subset.ports.iter().enumerate() {
            let path = item(&child(&path, "ports"), index);
            let name = &child(&path, "name");
            match port.name.as_str() {
                "" if subset.ports.len() > 1 => errors.push(FieldError::required(name, "")),
                "" => {}
                text => named(&mut errors, name, text, is_dns_label),
            }
            if port.port.is_none() {
                port_number(&mut errors, &child(&path, "port"), 0);
            }
            one_port(&mut errors, port, &path);
        }
    }
    errors
}

fn one_address(errors: &mut Vec<FieldError>, address: &WrittenAddress, path: &str) {
    let at = child(path, "ip");
    let ip = valid_ip(errors, &at, &address.ip);
    if !address.hostname.is_empty() {
        let path = child(path, "hostname");
        named(errors, &path, &address.hostname, is_dns_label);
    }
    node_name(errors, address.node_name.as_deref(), path);
    if let Some(ip) = ip {
        reaches_a_machine(errors, &at, &address.ip, ip);
    }
}
