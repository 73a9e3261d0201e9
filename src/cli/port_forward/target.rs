//! Finds the target of a `port-forward`: a pod and the number of a port, from the names of pods, services and
//! ports.
//!
//! Invariants: pure.

use crate::api::status::PodPhase;
use crate::cli::names::missing;
use crate::cli::workload_pods::Target;
use crate::face::views::{PodView, Snapshot};
use crate::net::services::view::{PortView, ServiceView};

/// The pod, workload or service to which connections are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum To {
    Pod(Target),
    Service(String),
}

impl To {
    /// Parses `web`, `pod/web`, `deployment/web` or `svc/web`.
    pub(super) fn parse(word: &str) -> Result<Self, String> {
        match word.split_once('/') {
            Some(("service" | "services" | "svc", name)) if !name.is_empty() => {
                Ok(Self::Service(name.to_owned()))
            }
            _ => Target::parse(word).map(Self::Pod),
        }
    }
}

/// A port of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Local {
    /// The number of the port of the pod or service.
    Same,
    /// This number; 0 means any free port.
    Number(u16),
}

/// A port of a pod or of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Port {
    Number(u16),
    Name(String),
}

impl Port {
    /// Parses a number of at least 1, or a name of letters, digits and dashes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        match text.parse::<u16>() {
            Ok(0) => None,
            Ok(number) => Some(Self::Number(number)),
            Err(_) => {
                let has_letter = text.contains(|c: char| c.is_ascii_lowercase());
                let is_good = has_letter && text.chars().all(is_name) && !text.starts_with('-');
                is_good.then(|| Self::Name(text.to_owned()))
            }
        }
    }
}

/// Returns the number of a pod's port.
///
/// # Errors
/// Returns a sentence if no container has a port with this name.
pub(super) fn of_pod(port: &Port, pod: &PodView) -> Result<u16, String> {
    let name = match port {
        Port::Number(number) => return Ok(*number),
        Port::Name(name) => name,
    };
    let spec = &pod.object["spec"];
    let lists = ["initContainers", "containers"].map(|list| spec[list].as_array());
    let containers = lists.into_iter().flatten().flatten();
    let ports = containers.flat_map(|c| c["ports"].as_array().into_iter().flatten());
    let number = |port: &serde_json::Value| u16::try_from(port["containerPort"].as_u64()?).ok();
    let mut named = ports.filter(|port| port["name"] == *name.as_str());
    let found = named.find_map(number);
    found.ok_or_else(|| format!("no container of the pod has a port named {name:?}"))
}

/// Finds the service with this name.
///
/// # Errors
/// Returns a sentence if there is no such service, or if several namespaces have a service with this name.
pub(super) fn service<'a>(
    all: &'a [ServiceView],
    namespace: Option<&str>,
    name: &str,
) -> Result<&'a ServiceView, String> {
    let is_it = |s: &&ServiceView| s.name == name && namespace.is_none_or(|n| s.namespace == n);
    let found: Vec<&ServiceView> = all.iter().filter(is_it).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let places = all.iter().map(|s| (s.namespace.as_str(), s.name.as_str()));
            Err(missing("services", name, namespace, places))
        }
        several => {
            let namespaces: Vec<&str> = several.iter().map(|s| s.namespace.as_str()).collect();
            Err(format!(
                "services \"{name}\" is in several namespaces: {}; choose one with -n",
                namespaces.join(", ")
            ))
        }
    }
}

/// Chooses a pod of the service, as kubectl does: a pod that gets traffic, or if there is none, any running pod.
///
/// # Errors
/// Returns a sentence if the service has no running pod.
pub(super) fn pod_of<'s>(
    service: &ServiceView,
    snapshot: &'s Snapshot,
) -> Result<&'s PodView, String> {
    let of = |served: bool| {
        let mut pods = service
            .pods
            .iter()
            .filter(|pod| pod.gets_traffic || !served);
        pods.find_map(|pod| {
            let mut all = snapshot.pods.iter();
            all.find(|p| {
                let metadata = &p.object["metadata"];
                let has = |key: &str, value: &str| metadata[key] == *value;
                let runs = !p.terminating && p.status.phase == PodPhase::Running;
                has("namespace", &pod.namespace) && has("name", &pod.name) && runs
            })
        })
    };
    let pod = of(true).or_else(|| of(false)).map(AsRef::as_ref);
    pod.ok_or_else(|| {
        let ServiceView {
            name, namespace, ..
        } = service;
        let namespace = match namespace.as_str() {
            "default" => String::new(),
            other => format!(" -n {other}"),
        };
        format!(
            "service {name} has no pod that runs on this node: 'podprobe describe service {name}{namespace}' says why"
        )
    })
}

/// Returns the number of a service's port, and the number of the pod's port behind it.
///
/// # Errors
/// Returns a sentence if the service has no such port, if the port is not TCP, or if the pod has no port with
/// the target's name.
pub(super) fn of_service(
    port: &Port,
    service: &ServiceView,
    pod: &PodView,
) -> Result<(u16, u16), String> {
    let is_it = |p: &&PortView| match port {
        Port::Number(number) => p.port == *number,
        Port::Name(name) => p.name == *name,
    };
    let found = service.ports.iter().find(is_it);
    let found = found.ok_or_else(|| {
        let all: Vec<String> = service.ports.iter().map(spelled).collect();
        format!(
            "service {} has no such port; it has {}",
            service.name,
            all.join(", ")
        )
    })?;
    if found.protocol != "TCP" {
        return Err(format!(
            "port {} of service {} is {}, and port-forward leads TCP connections",
            found.port, service.name, found.protocol
        ));
    }
    let target = Port::parse(&found.target_port).ok_or("the service has no target port")?;
    Ok((found.port, of_pod(&target, pod)?))
}

fn spelled(port: &PortView) -> String {
    match port.name.as_str() {
        "" => port.port.to_string(),
        name => format!("{} ({name})", port.port),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot() -> Snapshot {
        let pod = |name: &str| {
            let ports = json!([{"name": "http", "containerPort": 8080}]);
            let spec = json!({"containers": [{"name": "c", "ports": ports}]});
            json!({"object": {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec},
                "status": {"phase": "Running"}, "file": "", "warnings": [],
                "terminating": false, "logDir": "", "events": []})
        };
        let pods = [pod("a-edge"), pod("b-edge")];
        let value = json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": []});
        serde_json::from_value(value).unwrap()
    }

    fn web(a_is_served: bool) -> ServiceView {
        let port = |name: &str, number: u16, protocol: &str, target: &str| json!({"name": name, "protocol": protocol, "port": number, "targetPort": target});
        let ports = [
            port("web", 80, "TCP", "http"),
            port("dns", 53, "UDP", "53"),
            port("n", 81, "TCP", "9090"),
        ];
        let pod = |name: &str, served: bool| json!({"namespace": "default", "name": name, "getsTraffic": served, "gets_traffic": served, "why": []});
        let pods = [pod("a-edge", a_is_served), pod("b-edge", true)];
        serde_json::from_value(
            json!({"namespace": "default", "name": "web", "ports": ports, "pods": pods}),
        )
        .unwrap()
    }

    #[test]
    fn a_service_leads_to_a_pod_that_gets_its_traffic() {
        let snapshot = snapshot();
        let service = web(false);
        let pod = pod_of(&service, &snapshot).unwrap();
        assert_eq!(pod.uid(), "b-edge");
        let of = |port: Port| of_service(&port, &service, pod);
        assert_eq!(of(Port::Number(80)), Ok((80, 8080)));
        assert_eq!(of(Port::Name("web".into())), Ok((80, 8080)));
        assert_eq!(of(Port::Number(81)), Ok((81, 9090)));
        let none = "service web has no such port; it has 80 (web), 53 (dns), 81 (n)";
        assert_eq!(of(Port::Number(82)), Err(none.into()));
        let udp = "port 53 of service web is UDP, and port-forward leads TCP connections";
        assert_eq!(of(Port::Number(53)), Err(udp.into()));
        // A pod that is not ready can be chosen, because users often want to look into such a pod.
        let mut unready = web(false);
        unready.pods.truncate(1);
        assert_eq!(pod_of(&unready, &snapshot).unwrap().uid(), "a-edge");
        let mut nowhere = web(false);
        nowhere.pods.clear();
        let why = pod_of(&nowhere, &snapshot).unwrap_err();
        assert!(why.contains("podprobe describe service web"), "{why}");
    }

    #[test]
    fn a_port_of_a_pod_may_be_named() {
        let snapshot = snapshot();
        let pod = &snapshot.pods[0];
        assert_eq!(of_pod(&Port::Number(1), pod), Ok(1));
        assert_eq!(of_pod(&Port::Name("http".into()), pod), Ok(8080));
        assert!(of_pod(&Port::Name("x".into()), pod).is_err());
    }

    #[test]
    fn services_are_found_by_name_and_namespace() {
        let mut other = web(true);
        other.namespace = "shop".into();
        let all = [web(true), other];
        assert!(service(&all, Some("shop"), "web").is_ok());
        let several = service(&all, None, "web").unwrap_err();
        assert!(several.contains("default, shop"), "{several}");
        assert!(service(&all, None, "wbe").is_err());
    }
}
