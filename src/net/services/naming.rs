//! Makes DNS names from services, pods of this node and endpoint slices of files (names 1).
//!
//! Invariants: the functions have no state and no side effects. Equal inputs in any order give equal names. No name of an
//! endpoint resolves to a loopback address, because a client would then reach itself.

use std::net::IpAddr;

use super::inputs::{Inputs, NamedService};
use super::lookup::Lookup;
use super::names::{EndpointNames, NameTarget, NamedPort, ServiceNames};
use crate::api::service::{Endpoint, EndpointPort, EndpointSlice, ServicePort, ServiceType};

/// Returns the names of all services, sorted.
pub fn service_names(inputs: &Inputs<'_>) -> Vec<ServiceNames> {
    let lookup = Lookup::new(inputs);
    let named = |service: &NamedService<'_>| {
        Some(ServiceNames {
            namespace: service.namespace.to_owned(),
            name: service.name.to_owned(),
            target: target(service, &lookup)?,
        })
    };
    let mut all: Vec<ServiceNames> = inputs.services.iter().filter_map(named).collect();
    all.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    all
}

/// Returns what the name of a service resolves to, or `None` if the service should have an address but has none.
fn target(of: &NamedService<'_>, lookup: &Lookup<'_>) -> Option<NameTarget> {
    let service = of.service;
    if service.type_ == ServiceType::ExternalName {
        return Some(NameTarget::ExternalName(service.external_name.clone()));
    }
    if service.is_headless() {
        let slices = lookup.endpoints(of).all_slices(of.name);
        return Some(NameTarget::Headless(endpoints(&slices)));
    }
    let mut addresses = of.cluster_ips.to_vec();
    addresses.sort_unstable();
    (!addresses.is_empty()).then(|| NameTarget::ClusterIps {
        addresses,
        ports: service.ports.iter().map(port).collect(),
    })
}

fn port(port: &ServicePort) -> NamedPort {
    NamedPort {
        name: port.name.clone(),
        protocol: port.protocol,
        port: port.port,
    }
}

fn endpoints(slices: &[EndpointSlice]) -> Vec<EndpointNames> {
    let of_slice = |slice: &EndpointSlice| {
        let ports: Vec<NamedPort> = slice.ports.iter().filter_map(endpoint_port).collect();
        let each = slice.endpoints.iter().flat_map(|e| named(e, &ports));
        each.collect::<Vec<_>>()
    };
    let mut all: Vec<EndpointNames> = slices.iter().flat_map(of_slice).collect();
    all.sort_by(|a, b| (a.address, &a.hostname, &a.ports).cmp(&(b.address, &b.hostname, &b.ports)));
    all
}

fn named(endpoint: &Endpoint, ports: &[NamedPort]) -> Vec<EndpointNames> {
    let reached = endpoint.addresses.iter().filter(|ip| !ip.is_loopback());
    let one = |address: &IpAddr| EndpointNames {
        address: *address,
        hostname: endpoint.hostname.clone(),
        ready: endpoint.conditions.ready,
        ports: ports.to_vec(),
    };
    reached.map(one).collect()
}

fn endpoint_port(port: &EndpointPort) -> Option<NamedPort> {
    Some(NamedPort {
        name: port.name.clone(),
        protocol: port.protocol,
        port: port.port?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodPhase;
    use crate::api::service::{
        ClusterIps, EndpointConditions, IpFamily, Protocol, Service, TargetPort,
    };
    use crate::net::services::inputs::{NamedSlice, NodeFacts};
    use crate::net::services::pod_facts::PodFacts;

    fn pod(name: &str, ip: [u8; 4], serving: bool) -> PodFacts {
        PodFacts {
            namespace: "n".into(),
            name: name.into(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            phase: PodPhase::Running,
            addresses: vec![ip.into()],
            serving,
            hostname: name.into(),
            subdomain: "s".into(),
            ..PodFacts::default()
        }
    }

    fn http() -> ServicePort {
        ServicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            target_port: TargetPort::Number(8080),
            node_port: None,
            app_protocol: None,
        }
    }

    fn names(
        service: &Service,
        cluster_ips: &[IpAddr],
        slices: &[EndpointSlice],
    ) -> Vec<NameTarget> {
        let pods = [
            pod("b", [10, 0, 0, 2], false),
            pod("a", [10, 0, 0, 1], true),
            pod("alone", [127, 0, 0, 1], true),
        ];
        let slices: Vec<NamedSlice<'_>> = slices
            .iter()
            .map(|slice| NamedSlice {
                namespace: "n",
                slice,
            })
            .collect();
        let all = service_names(&Inputs {
            services: &[NamedService {
                namespace: "n",
                name: "s",
                service,
                created: None,
                cluster_ips,
                node_ports: &[],
                health_check_node_port: None,
            }],
            slices: &slices,
            pods: &pods.iter().collect::<Vec<_>>(),
            only_slices: false,
            node: NodeFacts {
                families: &[IpFamily::V4],
                ..NodeFacts::default()
            },
        });
        all.into_iter().map(|n| n.target).collect()
    }

    fn service(cluster_ips: ClusterIps) -> Service {
        Service {
            selector: [("app".to_owned(), "web".to_owned())].into(),
            ports: vec![http()],
            cluster_ips,
            ..Service::default()
        }
    }

    fn endpoint(ip: [u8; 4], hostname: Option<&str>, ready: bool, port: u16) -> EndpointNames {
        EndpointNames {
            address: ip.into(),
            hostname: hostname.map(str::to_owned),
            ready,
            ports: vec![NamedPort {
                port,
                ..self::port(&http())
            }],
        }
    }

    #[test]
    fn a_service_with_addresses_has_theirs_and_its_own_ports() {
        let ip = IpAddr::from([10, 96, 0, 7]);
        let of = |ips: &[IpAddr]| names(&service(ClusterIps::default()), ips, &[]);
        let expected = NameTarget::ClusterIps {
            addresses: vec![ip],
            ports: vec![port(&http())],
        };
        assert_eq!(of(&[ip]), [expected]);
        // The service has no address, because none could be allocated.
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn a_headless_service_has_its_endpoints_with_their_ports() {
        let elsewhere = EndpointSlice {
            service: "s".into(),
            family: IpFamily::V4,
            endpoints: vec![Endpoint {
                addresses: vec![[192, 0, 2, 9].into(), [192, 0, 2, 8].into()],
                conditions: EndpointConditions {
                    ready: true,
                    serving: true,
                    terminating: false,
                },
                hostname: None,
                node_name: None,
                target: None,
            }],
            ports: vec![
                EndpointPort {
                    name: "http".into(),
                    protocol: Protocol::Tcp,
                    port: Some(9000),
                    app_protocol: None,
                },
                EndpointPort {
                    name: "any".into(),
                    protocol: Protocol::Tcp,
                    port: None,
                    app_protocol: None,
                },
            ],
        };
        let expected = NameTarget::Headless(vec![
            endpoint([10, 0, 0, 1], Some("a"), true, 8080),
            endpoint([10, 0, 0, 2], Some("b"), false, 8080),
            endpoint([192, 0, 2, 8], None, true, 9000),
            endpoint([192, 0, 2, 9], None, true, 9000),
        ]);
        let headless = service(ClusterIps::Headless);
        assert_eq!(names(&headless, &[], &[elsewhere]), [expected]);
    }

    #[test]
    fn an_external_name_is_its_target() {
        let external = Service {
            type_: ServiceType::ExternalName,
            external_name: "example.com".into(),
            ..Service::default()
        };
        let expected = NameTarget::ExternalName("example.com".into());
        assert_eq!(names(&external, &[], &[]), [expected]);
    }
}
