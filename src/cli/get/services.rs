//! The forms `get services`, `get endpoints` and `get endpointslices`: list services and their endpoints in
//! kubectl's columns, or as objects like those of an API server. Services, Endpoints and EndpointSlices are all
//! made from the daemon's view of a service: its addresses and its endpoints.
//!
//! Invariants: pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value, json};

use super::item::Item;
use super::kind::Kind;
use crate::base::clock::Time;
use crate::cli::human;
use crate::cli::services::or_none;
use crate::net::services::view::{PortView, ServiceView};

/// Returns the items of this kind that a service has.
pub fn items(kind: Kind, service: &ServiceView, now: Time) -> Vec<Item> {
    let age = human::since(service.created, now);
    match kind {
        Kind::Endpoints => vec![item(
            service,
            &service.name,
            vec![endpoints(service), age],
            endpoints_object(service),
        )],
        Kind::EndpointSlices => slices(service, &age),
        _ => vec![item(
            service,
            &service.name,
            columns(service, age),
            object(service),
        )],
    }
}

fn item(service: &ServiceView, name: &str, columns: Vec<String>, object: Value) -> Item {
    Item {
        namespace: service.namespace.clone(),
        name: name.to_owned(),
        cells: [name.to_owned()].into_iter().chain(columns).collect(),
        object,
        visible: String::new(),
    }
}

fn columns(service: &ServiceView, age: String) -> Vec<String> {
    let ports: Vec<String> = service.ports.iter().map(port).collect();
    vec![
        service.type_.clone(),
        or_none(service.cluster_ips.first().cloned().unwrap_or_default()),
        or_none(service.external.join(",")),
        or_none(ports.join(",")),
        age,
        or_none(service.selector.join(",")),
    ]
}

fn port(port: &PortView) -> String {
    match port.node_port {
        Some(node) => format!("{}:{node}/{}", port.port, port.protocol),
        None => format!("{}/{}", port.port, port.protocol),
    }
}

fn endpoints(service: &ServiceView) -> String {
    let all = service.ports.iter().flat_map(|p| &p.endpoints);
    some(&all.map(String::as_str).collect::<Vec<_>>())
}

/// Joins up to three names. If there are more names, adds the number of further names, as kubectl does.
fn some(all: &[&str]) -> String {
    match all.len() {
        0..=3 => or_none(all.join(",")),
        n => format!("{} + {} more...", all[..3].join(","), n - 3),
    }
}

/// Returns the metadata of an object. Endpoints and slices have the labels of their service. An API server's
/// controllers set the same labels.
fn metadata(service: &ServiceView) -> Value {
    let mut metadata = json!({"name": service.name, "namespace": service.namespace});
    if !service.labels.is_empty() {
        metadata["labels"] = json!(service.labels);
    }
    if let Some(created) = service.created {
        metadata["creationTimestamp"] = json!(created);
    }
    metadata
}

fn object(service: &ServiceView) -> Value {
    let mut spec = json!({"type": service.type_, "ports": service.ports.iter().map(port_object).collect::<Vec<_>>()});
    let selector = service.selector.iter().filter_map(|s| s.split_once('='));
    let selector: Map<String, Value> = selector.map(|(k, v)| (k.to_owned(), v.into())).collect();
    if !selector.is_empty() {
        spec["selector"] = selector.into();
    }
    if let Some(primary) = service.cluster_ips.first() {
        spec["clusterIP"] = primary.as_str().into();
        spec["clusterIPs"] = service.cluster_ips.as_slice().into();
    }
    match (service.type_.as_str(), service.external.first()) {
        ("ExternalName", Some(name)) => spec["externalName"] = name.as_str().into(),
        (_, Some(_)) => spec["externalIPs"] = service.external.as_slice().into(),
        (_, None) => {}
    }
    // The text of the daemon may have the timeout after the word `ClientIP`. Only the first word is part of the
    // object.
    let affinity = service
        .session_affinity
        .split(' ')
        .next()
        .unwrap_or_default();
    spec["sessionAffinity"] = affinity.into();
    spec["internalTrafficPolicy"] = service.internal_traffic_policy.as_str().into();
    if !service.external_traffic_policy.is_empty() {
        spec["externalTrafficPolicy"] = service.external_traffic_policy.as_str().into();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(service), "spec": spec})
}

fn port_object(port: &PortView) -> Value {
    let target = port.target_port.parse::<u16>();
    let target = target.map_or_else(|_| port.target_port.as_str().into(), Value::from);
    let mut object = json!({"protocol": port.protocol, "port": port.port, "targetPort": target});
    if !port.name.is_empty() {
        object["name"] = port.name.as_str().into();
    }
    if let Some(node) = port.node_port {
        object["nodePort"] = node.into();
    }
    object
}

/// Addresses that have the same ports, together with these ports.
struct Group {
    addresses: Vec<IpAddr>,
    ports: Vec<Value>,
}

/// Groups the endpoints of a service by their ports, in the order of the service's ports. A named port may
/// have another number at each endpoint.
fn groups(service: &ServiceView) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for port in &service.ports {
        let mut by_number: BTreeMap<(bool, u16), Vec<IpAddr>> = BTreeMap::new();
        for endpoint in port
            .endpoints
            .iter()
            .filter_map(|e| e.parse::<SocketAddr>().ok())
        {
            let key = (endpoint.is_ipv6(), endpoint.port());
            by_number.entry(key).or_default().push(endpoint.ip());
        }
        for ((_, number), addresses) in by_number {
            let object = json!({"name": port.name, "port": number, "protocol": port.protocol});
            match groups.iter_mut().find(|g| g.addresses == addresses) {
                Some(group) => group.ports.push(object),
                None => groups.push(Group {
                    addresses,
                    ports: vec![object],
                }),
            }
        }
    }
    groups
}

fn endpoints_object(service: &ServiceView) -> Value {
    let subset = |group: Group| {
        let addresses: Vec<Value> = group.addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"addresses": addresses, "ports": group.ports})
    };
    let subsets: Vec<Value> = groups(service).into_iter().map(subset).collect();
    json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata(service), "subsets": subsets})
}

fn slices(service: &ServiceView, age: &str) -> Vec<Item> {
    let numbered = groups(service).into_iter().enumerate();
    numbered
        .map(|(n, group)| slice(service, n + 1, &group, age))
        .collect()
}

fn slice(service: &ServiceView, number: usize, group: &Group, age: &str) -> Item {
    let is_v6 = group.addresses.first().is_some_and(IpAddr::is_ipv6);
    let family = if is_v6 { "IPv6" } else { "IPv4" };
    let name = format!("{}-{number}", service.name);
    let endpoint = |ip: &IpAddr| json!({"addresses": [ip], "conditions": {"ready": true}});
    let endpoints: Vec<Value> = group.addresses.iter().map(endpoint).collect();
    let mut metadata = metadata(service);
    metadata["name"] = name.as_str().into();
    metadata["labels"]["kubernetes.io/service-name"] = service.name.as_str().into();
    let object = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": family, "endpoints": endpoints, "ports": group.ports});
    let ports: Vec<String> = group.ports.iter().map(|p| p["port"].to_string()).collect();
    let addresses: Vec<String> = group.addresses.iter().map(ToString::to_string).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    item(
        service,
        &name,
        vec![
            family.into(),
            ports.join(","),
            some(&addresses),
            age.to_owned(),
        ],
        object,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Time {
        serde_json::from_value(json!("2026-01-01T01:00:00Z")).unwrap()
    }

    fn web() -> ServiceView {
        let port = |name: &str, number: u16, target: &str, endpoints: &[&str]| json!({"name": name, "protocol": "TCP", "port": number, "targetPort": target, "nodePort": (number == 80).then_some(30080), "endpoints": endpoints});
        let http = [
            "10.0.0.1:8080",
            "10.0.0.2:8080",
            "10.0.0.3:9090",
            "[fd00::1]:8080",
        ];
        let view = json!({"namespace": "shop", "name": "web", "labels": {"tier": "front"}, "created": "2026-01-01T00:00:00Z", "type": "NodePort", "clusterIps": ["10.1.0.1", "fd01::1"], "external": ["1.2.3.4"],
            "ports": [port("http", 80, "web", &http), port("admin", 81, "81", &["10.0.0.1:81", "10.0.0.2:81"])],
            "selector": ["app=web"], "sessionAffinity": "ClientIP (10800 s)", "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Local"});
        serde_json::from_value(view).unwrap()
    }

    #[track_caller]
    fn check(kind: Kind, expected: &[&str]) {
        let rows: Vec<String> = items(kind, &web(), now())
            .iter()
            .map(|i| i.cells.join(" "))
            .collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn rows_are_kubectls() {
        check(
            Kind::Services,
            &["web NodePort 10.1.0.1 1.2.3.4 80:30080/TCP,81/TCP 60m app=web"],
        );
        check(
            Kind::Endpoints,
            &["web 10.0.0.1:8080,10.0.0.2:8080,10.0.0.3:9090 + 3 more... 60m"],
        );
        check(
            Kind::EndpointSlices,
            &[
                "web-1 IPv4 8080,81 10.0.0.1,10.0.0.2 60m",
                "web-2 IPv4 9090 10.0.0.3 60m",
                "web-3 IPv6 8080 fd00::1 60m",
            ],
        );
    }

    #[test]
    fn nothing_is_none() {
        let bare = ServiceView {
            name: "x".into(),
            ..ServiceView::default()
        };
        assert_eq!(
            items(Kind::Services, &bare, now())[0].cells[2..],
            ["<none>", "<none>", "<none>", "<unknown>", "<none>"]
        );
        assert_eq!(items(Kind::Endpoints, &bare, now())[0].cells[1], "<none>");
        assert_eq!(
            items(Kind::Endpoints, &bare, now())[0].object["subsets"],
            json!([])
        );
        assert_eq!(items(Kind::EndpointSlices, &bare, now()), []);
    }

    #[test]
    fn objects_are_those_of_an_api_server() {
        let service = &items(Kind::Services, &web(), now())[0].object;
        let ports = json!([{"protocol": "TCP", "port": 80, "targetPort": "web", "name": "http", "nodePort": 30080},
            {"protocol": "TCP", "port": 81, "targetPort": 81, "name": "admin"}]);
        let spec = json!({"type": "NodePort", "ports": ports, "selector": {"app": "web"}, "clusterIP": "10.1.0.1",
            "clusterIPs": ["10.1.0.1", "fd01::1"], "externalIPs": ["1.2.3.4"], "sessionAffinity": "ClientIP",
            "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Local"});
        assert_eq!(service["spec"], spec);
        assert_eq!(service["metadata"]["labels"], json!({"tier": "front"}));
        let created = &service["metadata"]["creationTimestamp"];
        assert_eq!(created, "2026-01-01T00:00:00Z");
        let endpoints = &items(Kind::Endpoints, &web(), now())[0].object;
        assert_eq!(endpoints["metadata"]["labels"], json!({"tier": "front"}));
        let subsets = &endpoints["subsets"];
        let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "admin", "port": 81, "protocol": "TCP"}]);
        assert_eq!(
            subsets[0],
            json!({"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": ports})
        );
        let slice = &items(Kind::EndpointSlices, &web(), now())[2].object;
        assert_eq!(
            (&slice["addressType"], &slice["metadata"]["name"]),
            (&json!("IPv6"), &json!("web-3"))
        );
        let labels = json!({"tier": "front", "kubernetes.io/service-name": "web"});
        assert_eq!(slice["metadata"]["labels"], labels);
        assert_eq!(
            slice["endpoints"],
            json!([{"addresses": ["fd00::1"], "conditions": {"ready": true}}])
        );
    }
}
