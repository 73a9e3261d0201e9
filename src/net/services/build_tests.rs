use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::api::PodPhase;
use crate::api::service::{
    Cidr, ClusterIps, Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Service,
    TargetPort,
};
use crate::base::clock::Time;
use crate::net::services::claims::OwnPort;
use crate::net::services::inputs::{NamedSlice, NodeFacts};
use crate::net::services::pod_facts::{PodFacts, PodPort};
use crate::net::services::table::{Backend, Backends, HostPort};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|t| ip(t)).collect()
}

fn time(seconds: u64) -> Time {
    (std::time::UNIX_EPOCH + Duration::from_secs(seconds)).into()
}

fn app(name: &str) -> BTreeMap<String, String> {
    [("app".to_owned(), name.to_owned())].into()
}

/// Returns a ready pod with the label `app: web`.
fn web(name: &str, addresses: &[&str]) -> PodFacts {
    PodFacts {
        namespace: "default".into(),
        name: name.into(),
        labels: app("web"),
        phase: PodPhase::Running,
        addresses: ips(addresses),
        serving: true,
        ..PodFacts::default()
    }
}

fn with_host_port(pod: PodFacts, host_ip: Option<&str>, port: u16) -> PodFacts {
    let port = PodPort {
        name: String::new(),
        port: 80,
        protocol: Protocol::Tcp,
        host_port: Some(port),
        host_ip: host_ip.map(ip),
    };
    PodFacts {
        ports: vec![port],
        ..pod
    }
}

fn port(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: name.into(),
        protocol: Protocol::Tcp,
        port,
        target_port: TargetPort::Number(8080),
        node_port: None,
        app_protocol: None,
    }
}

/// Returns a service that selects `app: web` and sends port 80 to port 8080.
fn service() -> Service {
    Service {
        selector: app("web"),
        ports: vec![port("", 80)],
        ..Service::default()
    }
}

/// A service with its name, addresses and ports.
#[derive(Clone, Default)]
struct Given {
    namespace: &'static str,
    name: &'static str,
    service: Service,
    created: Option<Time>,
    cluster_ips: Vec<IpAddr>,
    node_ports: Vec<Option<u16>>,
    health_check_node_port: Option<u16>,
}

fn given(name: &'static str, service: Service, cluster_ips: &[&str]) -> Given {
    Given {
        namespace: "default",
        name,
        service,
        cluster_ips: ips(cluster_ips),
        ..Given::default()
    }
}

fn node_port(name: &'static str, cluster_ip: &str, port: u16) -> Given {
    let service = Service {
        type_: ServiceType::NodePort,
        ..service()
    };
    Given {
        node_ports: vec![Some(port)],
        ..given(name, service, &[cluster_ip])
    }
}

/// The inputs of a node named `node` at 192.0.2.1. On this node, podprobe listens on 10256 and serves DNS on
/// 10.96.0.10.
#[derive(Default)]
struct World {
    services: Vec<Given>,
    slices: Vec<EndpointSlice>,
    pods: Vec<PodFacts>,
    only_slices: bool,
}

impl Given {
    fn named(&self) -> NamedService<'_> {
        NamedService {
            namespace: self.namespace,
            name: self.name,
            service: &self.service,
            created: self.created,
            cluster_ips: &self.cluster_ips,
            node_ports: &self.node_ports,
            health_check_node_port: self.health_check_node_port,
        }
    }
}

impl World {
    fn of(services: &[Given]) -> Self {
        Self {
            services: services.to_vec(),
            pods: vec![web("a", &["10.244.0.2"])],
            ..Self::default()
        }
    }

    fn build(&self) -> Built {
        let own = |address, port, protocol, what: &str| OwnPort {
            address,
            port,
            protocol,
            what: what.into(),
        };
        let own_ports = [
            own(None, 10256, Protocol::Tcp, "the health check of the proxy"),
            own(Some(ip("10.96.0.10")), 53, Protocol::Udp, "the cluster DNS"),
        ];
        let services: Vec<_> = self.services.iter().map(Given::named).collect();
        let slice = |slice| NamedSlice {
            namespace: "default",
            slice,
        };
        let slices: Vec<_> = self.slices.iter().map(slice).collect();
        let node = NodeFacts {
            name: "node",
            addresses: &[ip("192.0.2.1"), ip("fd01::1")],
            own_ports: &own_ports,
            ..NodeFacts::default()
        };
        build(&Inputs {
            services: &services,
            slices: &slices,
            pods: &self.pods.iter().collect::<Vec<_>>(),
            only_slices: self.only_slices,
            node,
        })
    }

    /// Builds the table, and returns its only entry.
    #[track_caller]
    fn entry(&self) -> ServicePortEntry {
        let mut table = self.build().table;
        assert_eq!(table.services.len(), 1);
        table.services.remove(0)
    }

    fn findings(&self) -> Vec<String> {
        self.build()
            .findings
            .iter()
            .map(Finding::to_string)
            .collect()
    }

    fn whats(&self) -> Vec<What> {
        self.build().findings.iter().map(|f| f.what).collect()
    }

    /// Returns the entries of the table as texts: their names with addresses and node ports.
    fn served(&self) -> Vec<String> {
        let text = |e: &ServicePortEntry| {
            let all = e
                .cluster_ips
                .iter()
                .chain(&e.external_ips)
                .chain(&e.load_balancer_ips);
            let mut words = vec![e.name.to_string()];
            words.extend(all.map(ToString::to_string));
            words.extend(e.node_port.map(|p| p.to_string()));
            words.join(" ")
        };
        self.build().table.services.iter().map(text).collect()
    }
}

fn some(addresses: &[&str]) -> Backends {
    let backend = |a: &&str| Backend {
        address: a.parse().expect("an address with a port"),
        namespace: None,
    };
    Backends::Some(addresses.iter().map(backend).collect())
}

/// Returns a slice for the service `web`, with one endpoint for each row `ADDRESS NODE`.
fn slice(rows: &[&str]) -> EndpointSlice {
    let endpoint = |row: &&str| {
        let (address, node) = row.split_once(' ').expect("address and node");
        Endpoint {
            addresses: vec![ip(address)],
            conditions: EndpointConditions {
                ready: true,
                serving: true,
                terminating: false,
            },
            hostname: None,
            node_name: Some(node.into()),
            target: None,
        }
    };
    let first = rows[0].split(' ').next().expect("an address");
    EndpointSlice {
        service: "web".into(),
        family: IpFamily::of(ip(first)),
        endpoints: rows.iter().map(endpoint).collect(),
        ports: vec![EndpointPort {
            name: String::new(),
            protocol: Protocol::Tcp,
            port: Some(8080),
            app_protocol: None,
        }],
    }
}

#[test]
fn a_service_leads_to_its_pods() {
    let entry = World::of(&[given("web", service(), &["10.96.0.1"])]).entry();
    let expected = ServicePortEntry {
        name: ServicePortName {
            namespace: "default".into(),
            service: "web".into(),
            port: String::new(),
            protocol: Protocol::Tcp,
        },
        port: 80,
        cluster_ips: ips(&["10.96.0.1"]),
        external_ips: vec![],
        load_balancer_ips: vec![],
        source_ranges: vec![],
        node_port: None,
        affinity: None,
        external_local: false,
        internal: some(&["10.244.0.2:8080"]),
        external: some(&["10.244.0.2:8080"]),
        cluster: some(&["10.244.0.2:8080"]),
    };
    assert_eq!(entry, expected);
}

#[test]
fn a_load_balancer_has_all_its_addresses() {
    let range = Cidr {
        network: ip("198.51.100.0"),
        prefix: 24,
    };
    let all = Service {
        type_: ServiceType::LoadBalancer,
        external_ips: ips(&["203.0.113.1"]),
        ingress_ips: ips(&["203.0.113.2"]),
        source_ranges: vec![range],
        session_affinity: Some(Duration::from_secs(60)),
        external_traffic_policy: TrafficPolicy::Local,
        ..service()
    };
    let mut web = given("web", all, &["10.96.0.1"]);
    web.node_ports = vec![Some(30080)];
    web.health_check_node_port = Some(30081);
    let world = World::of(&[web]);
    let entry = world.entry();
    assert_eq!(
        world.served(),
        ["default/web 10.96.0.1 203.0.113.1 203.0.113.2 30080"]
    );
    assert_eq!(entry.source_ranges, [range]);
    assert_eq!(entry.affinity, Some(Duration::from_secs(60)));
    assert!(entry.external_local);
    let check = HealthCheck {
        namespace: "default".into(),
        service: "web".into(),
        port: 30081,
        local_endpoints: 1,
    };
    assert_eq!(world.build().health_checks, [check]);
}

#[test]
fn what_a_type_does_not_have_is_not_served() {
    let service = Service {
        ingress_ips: ips(&["203.0.113.2"]),
        ..service()
    };
    let mut web = given("web", service, &["10.96.0.1"]);
    web.node_ports = vec![Some(30080)];
    web.health_check_node_port = Some(30081);
    let world = World::of(&[web]);
    assert_eq!(world.served(), ["default/web 10.96.0.1"]);
    assert!(world.build().health_checks.is_empty());
}

#[test]
fn some_services_are_left_alone() {
    let labelled = |label: &str| Service {
        labels: [(label.to_owned(), "x".to_owned())].into(),
        ..service()
    };
    let headless = Service {
        cluster_ips: ClusterIps::Headless,
        ..service()
    };
    let external = Service {
        type_: ServiceType::ExternalName,
        ..service()
    };
    let no_address = Given {
        cluster_ips: vec![],
        ..node_port("g", "10.96.0.7", 30080)
    };
    let world = World::of(&[
        no_address,
        given("a", headless, &[]),
        given("b", external, &["10.96.0.2"]),
        given(
            "c",
            labelled("service.kubernetes.io/service-proxy-name"),
            &["10.96.0.3"],
        ),
        given(
            "d",
            labelled("service.kubernetes.io/headless"),
            &["10.96.0.4"],
        ),
        given("e", service(), &[]),
        given("f", labelled("other"), &["10.96.0.6"]),
    ]);
    assert_eq!(world.served(), ["default/f 10.96.0.6"]);
    assert!(world.findings().is_empty());
}

#[test]
fn policies_choose_for_clients_inside_and_outside_apart() {
    let of = |internal, external| Service {
        type_: ServiceType::NodePort,
        internal_traffic_policy: internal,
        external_traffic_policy: external,
        ..service()
    };
    let (cluster, local) = (TrafficPolicy::Cluster, TrafficPolicy::Local);
    let both = some(&["10.244.0.2:8080", "10.244.1.2:8080"]);
    let here = some(&["10.244.0.2:8080"]);
    // Each row ends with the backends for three kinds of clients: clients of the cluster IP, clients from outside that
    // use another address, and clients on the node and in its pods that use another address. kube-proxy chooses the
    // same backends.
    for (internal, external, expected) in [
        (cluster, cluster, [&both, &both, &both]),
        (local, cluster, [&here, &both, &both]),
        (cluster, local, [&both, &here, &both]),
        (local, local, [&here, &here, &both]),
    ] {
        let mut world = World::of(&[given("web", of(internal, external), &["10.96.0.1"])]);
        world.slices = vec![slice(&["10.244.1.2 other"])];
        let entry = world.entry();
        assert_eq!([&entry.internal, &entry.external, entry.inside()], expected);
        assert_eq!(entry.external_local, external == local);
    }
    let mut world = World::of(&[given("web", of(cluster, local), &["10.96.0.1"])]);
    world.slices = vec![slice(&["10.244.1.2 other"])];
    world.pods.clear();
    assert_eq!(world.entry().external, Backends::Drop);
    assert_eq!(*world.entry().inside(), some(&["10.244.1.2:8080"]));
    world.slices.clear();
    assert_eq!(world.entry().external, Backends::Reject);
    assert_eq!(*world.entry().inside(), Backends::Reject);
    assert_eq!(world.entry().internal, Backends::Reject);
}

#[test]
fn slices_count_with_and_without_a_selector() {
    let without = Service {
        selector: BTreeMap::new(),
        ..service()
    };
    for (service, expected) in [
        (service(), some(&["10.244.0.2:8080", "10.244.1.2:8080"])),
        (without, some(&["10.244.1.2:8080"])),
    ] {
        let mut world = World::of(&[given("web", service, &["10.96.0.1"])]);
        world.slices = vec![
            slice(&["10.244.1.2 other"]),
            EndpointSlice {
                service: "another".into(),
                ..slice(&["10.244.1.3 other"])
            },
        ];
        assert_eq!(world.entry().internal, expected);
    }
}

#[test]
fn where_only_slices_name_endpoints_a_selector_makes_none() {
    let mut world = World::of(&[given("web", service(), &["10.96.0.1"])]);
    world.only_slices = true;
    assert_eq!(world.entry().internal, Backends::Reject);
    world.slices = vec![slice(&["10.244.1.2 other"])];
    assert_eq!(world.entry().internal, some(&["10.244.1.2:8080"]));
}

#[test]
fn slices_of_another_namespace_or_family_do_not_count() {
    let mut elsewhere = given("web", service(), &["10.96.0.1"]);
    elsewhere.namespace = "other";
    let mut world = World::of(&[elsewhere]);
    world.slices = vec![slice(&["10.244.1.2 other"])];
    assert_eq!(world.entry().internal, Backends::Reject);
    let mut world = World::of(&[given("web", service(), &["10.96.0.1"])]);
    world.slices = vec![slice(&["fd00::2 other"])];
    assert_eq!(world.entry().internal, some(&["10.244.0.2:8080"]));
}

#[test]
fn both_families_stand_in_one_entry() {
    let mut world = World::of(&[given("web", service(), &["fd02::1", "10.96.0.1"])]);
    world.pods = vec![web("a", &["10.244.0.2", "fd00::2"])];
    let entry = world.entry();
    assert_eq!(entry.cluster_ips, ips(&["10.96.0.1", "fd02::1"]));
    assert_eq!(entry.internal, some(&["10.244.0.2:8080", "[fd00::2]:8080"]));
}

#[test]
fn a_pod_with_loopback_only_is_reached_in_its_namespace() {
    let mut world = World::of(&[given("web", service(), &["10.96.0.1"])]);
    let alone = with_host_port(web("a", &["127.0.0.1"]), None, 8080);
    world.pods = vec![PodFacts {
        loopback_only: Some("/proc/7/ns/net".into()),
        ..alone
    }];
    let backend = |port: u16| Backend {
        address: (ip("127.0.0.1"), port).into(),
        namespace: Some("/proc/7/ns/net".into()),
    };
    assert_eq!(world.entry().internal, Backends::Some(vec![backend(8080)]));
    assert_eq!(world.build().table.host_ports[0].backend, backend(80));
}

#[test]
fn an_address_of_the_node_is_not_given_away() {
    let all = Service {
        type_: ServiceType::LoadBalancer,
        external_ips: ips(&["192.0.2.1", "203.0.113.1"]),
        ingress_ips: ips(&["192.0.2.1"]),
        ..service()
    };
    let world = World::of(&[given("web", all, &["10.96.0.1"])]);
    assert_eq!(world.served(), ["default/web 10.96.0.1 203.0.113.1"]);
    assert_eq!(
        world.findings(),
        [
            "service default/web: spec.externalIPs: Invalid value: \"192.0.2.1\": it is an address of this node; use a nodePort, or a hostPort of the pod, to be reached on it",
            "service default/web: status.loadBalancer.ingress: Invalid value: \"192.0.2.1\": it is an address of this node; use a nodePort, or a hostPort of the pod, to be reached on it",
        ]
    );
    for address in [
        "192.0.2.1",
        "127.0.0.9",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:192.0.2.1",
    ] {
        let world = World::of(&[given("web", service(), &[address])]);
        assert_eq!(world.served(), [""; 0], "{address}");
        assert_eq!(world.whats(), [What::AddressOfNode], "{address}");
    }
}

#[test]
fn a_finding_of_an_address_comes_once_for_all_ports() {
    let two = Service {
        ports: vec![port("a", 80), port("b", 81)],
        ..service()
    };
    assert_eq!(
        World::of(&[given("web", two, &["192.0.2.1"])])
            .findings()
            .len(),
        1
    );
}

#[test]
fn an_address_of_another_family_is_left_out() {
    let all = Service {
        external_ips: ips(&["2001:db8::1"]),
        ..service()
    };
    let world = World::of(&[given("web", all, &["10.96.0.1"])]);
    assert_eq!(world.served(), ["default/web 10.96.0.1"]);
    assert_eq!(
        world.findings(),
        [
            "service default/web: spec.externalIPs: Invalid value: \"2001:db8::1\": the service has no IPv6 address; add IPv6 to spec.ipFamilies"
        ]
    );
}

#[test]
fn podprobes_own_ports_are_not_given_away() {
    let dns = Service {
        ports: vec![ServicePort {
            protocol: Protocol::Udp,
            ..port("", 53)
        }],
        ..service()
    };
    let mut world = World::of(&[
        given("dns", dns, &["10.96.0.10"]),
        node_port("web", "10.96.0.1", 10256),
    ]);
    world.pods = vec![with_host_port(web("a", &["10.244.0.2"]), None, 10256)];
    assert_eq!(world.served(), ["default/web 10.96.0.1"]);
    assert!(world.build().table.host_ports.is_empty());
    assert_eq!(world.whats(), [What::PortOfPodprobe; 3]);
    assert_eq!(
        world.findings(),
        [
            "service default/dns: spec.clusterIPs: Invalid value: \"10.96.0.10\": port 53/UDP there belongs to the cluster DNS; give the service another address or port",
            "service default/web: spec.ports[0].nodePort: Invalid value: 10256: 10256/TCP of this node belongs to the health check of the proxy; choose another, or leave it out and one is allocated",
            "pod default/a: hostPort: Invalid value: 10256: 10256/TCP of this node belongs to the health check of the proxy; choose another",
        ]
    );
}

#[test]
fn of_two_services_the_older_one_keeps_an_address() {
    let shared = || Service {
        external_ips: ips(&["203.0.113.1"]),
        ..service()
    };
    let (a, b) = (
        given("a", shared(), &["10.96.0.1"]),
        given("b", shared(), &["10.96.0.2"]),
    );
    let world = World::of(&[b.clone(), a.clone()]);
    assert_eq!(
        world.served(),
        ["default/a 10.96.0.1 203.0.113.1", "default/b 10.96.0.2"]
    );
    assert_eq!(
        world.findings(),
        [
            "service default/b: spec.externalIPs: Invalid value: \"203.0.113.1\": port 80/TCP there belongs to service default/a; give the service another address or port"
        ]
    );
    let older = Given {
        created: Some(time(1)),
        ..b
    };
    let newer = Given {
        created: Some(time(2)),
        ..a.clone()
    };
    let expected = ["default/a 10.96.0.1", "default/b 10.96.0.2 203.0.113.1"];
    assert_eq!(World::of(&[newer, older.clone()]).served(), expected);
    assert_eq!(
        World::of(&[a, older]).served(),
        expected,
        "an unknown age is younger"
    );
}

#[test]
fn another_port_or_protocol_of_an_address_is_free() {
    let of = |port: ServicePort| Service {
        ports: vec![port],
        external_ips: ips(&["203.0.113.1"]),
        ..service()
    };
    let udp = ServicePort {
        protocol: Protocol::Udp,
        ..port("", 80)
    };
    let world = World::of(&[
        given("a", of(port("", 80)), &["10.96.0.1"]),
        given("b", of(port("", 81)), &["10.96.0.2"]),
        given("c", of(udp), &["10.96.0.3"]),
    ]);
    assert!(world.findings().is_empty());
    assert!(world.served().iter().all(|s| s.ends_with("203.0.113.1")));
}

#[test]
fn an_address_that_a_service_names_twice_is_served_once() {
    let twice = Service {
        type_: ServiceType::LoadBalancer,
        external_ips: ips(&["203.0.113.1", "203.0.113.1"]),
        ingress_ips: ips(&["203.0.113.1"]),
        ..service()
    };
    let world = World::of(&[given("web", twice, &["10.96.0.1"])]);
    assert_eq!(world.served(), ["default/web 10.96.0.1 203.0.113.1"]);
    assert!(world.findings().is_empty());
}

#[test]
fn node_ports_have_one_holder() {
    let world = World::of(&[
        node_port("a", "10.96.0.1", 30080),
        node_port("b", "10.96.0.2", 30080),
    ]);
    assert_eq!(
        world.served(),
        ["default/a 10.96.0.1 30080", "default/b 10.96.0.2"]
    );
    assert_eq!(
        world.findings(),
        [
            "service default/b: spec.ports[0].nodePort: Invalid value: 30080: 30080/TCP of this node belongs to service default/a; choose another, or leave it out and one is allocated"
        ]
    );
}

#[test]
fn a_host_port_goes_before_a_node_port() {
    let mut world = World::of(&[node_port("web", "10.96.0.1", 30080)]);
    world.pods = vec![with_host_port(web("a", &["10.244.0.2"]), None, 30080)];
    assert_eq!(world.served(), ["default/web 10.96.0.1"]);
    assert_eq!(
        world.findings(),
        [
            "service default/web: spec.ports[0].nodePort: Invalid value: 30080: 30080/TCP of this node belongs to a hostPort of pod default/a; choose another, or leave it out and one is allocated"
        ]
    );
    world.pods[0].host_network = true;
    assert_eq!(world.served(), ["default/web 10.96.0.1"]);
    assert!(
        world.build().table.host_ports.is_empty(),
        "it listens itself"
    );
}

#[test]
fn a_health_check_has_its_port_alone() {
    let service = Service {
        type_: ServiceType::LoadBalancer,
        external_traffic_policy: TrafficPolicy::Local,
        ..service()
    };
    let mut lb = given("lb", service, &["10.96.0.1"]);
    lb.health_check_node_port = Some(30080);
    let world = World::of(&[node_port("a", "10.96.0.2", 30080), lb.clone()]);
    assert!(world.build().health_checks.is_empty());
    assert_eq!(world.whats(), [What::NodePortTaken]);
    lb.node_ports = vec![Some(30080)];
    let world = World::of(&[lb, node_port("z", "10.96.0.2", 30080)]);
    assert_eq!(
        world.served(),
        ["default/lb 10.96.0.1 30080", "default/z 10.96.0.2"]
    );
    assert_eq!(world.whats(), [What::NodePortTaken; 2]);
}

#[test]
fn a_health_check_counts_ready_addresses_of_this_node() {
    let two_ports = Service {
        type_: ServiceType::LoadBalancer,
        external_traffic_policy: TrafficPolicy::Local,
        ports: vec![port("a", 80), port("b", 81)],
        ..service()
    };
    let mut lb = given("web", two_ports, &["10.96.0.1"]);
    lb.health_check_node_port = Some(30080);
    let mut world = World::of(&[lb]);
    let ending = PodFacts {
        terminating: true,
        ..web("c", &["10.244.0.4"])
    };
    world.pods = vec![web("a", &["10.244.0.2"]), web("b", &["10.244.0.3"]), ending];
    let mut elsewhere = slice(&["10.244.1.2 other"]);
    elsewhere.ports[0].name = "a".into();
    world.slices = vec![elsewhere];
    assert_eq!(world.build().health_checks[0].local_endpoints, 2);
}

fn host_ports(pods: &[PodFacts]) -> Vec<String> {
    let world = World {
        pods: pods.to_vec(),
        ..World::default()
    };
    let text = |h: &HostPort| {
        let host_ip = h.host_ip.map_or("*".to_owned(), |ip| ip.to_string());
        format!("{host_ip} {} {} {}", h.port, h.backend.address, h.pod)
    };
    world.build().table.host_ports.iter().map(text).collect()
}

#[test]
fn a_host_port_leads_to_its_pod_in_each_family() {
    let pod = || web("a", &["10.244.0.2", "fd00::2"]);
    let of = |host_ip| host_ports(&[with_host_port(pod(), host_ip, 8080)]);
    let (v4, v6) = (
        "8080 10.244.0.2:80 a_default",
        "8080 [fd00::2]:80 a_default",
    );
    assert_eq!(of(None), [format!("* {v4}"), format!("* {v6}")]);
    assert_eq!(of(Some("0.0.0.0")), [format!("* {v4}")]);
    assert_eq!(of(Some("::")), [format!("* {v6}")]);
    assert_eq!(of(Some("192.0.2.1")), [format!("192.0.2.1 {v4}")]);
}

#[test]
fn pods_without_an_address_or_that_have_finished_have_no_host_port() {
    let finished = PodFacts {
        phase: PodPhase::Succeeded,
        ..web("b", &["10.244.0.3"])
    };
    for pod in [web("a", &[]), finished] {
        assert_eq!(host_ports(&[with_host_port(pod, None, 8080)]), [""; 0]);
    }
}

#[test]
fn host_ports_are_sorted() {
    let pods = [("a", 9000), ("b", 8000)];
    let pods = pods.map(|(name, port)| with_host_port(web(name, &["10.244.0.2"]), None, port));
    let expected = [
        "* 8000 10.244.0.2:80 b_default",
        "* 9000 10.244.0.2:80 a_default",
    ];
    assert_eq!(host_ports(&pods), expected);
}

#[test]
fn the_successor_of_a_pod_that_ends_has_its_host_port() {
    let old = PodFacts {
        terminating: true,
        ..web("a", &["10.244.0.2"])
    };
    let pods = [old, web("b", &["10.244.0.3"])].map(|p| with_host_port(p, None, 8080));
    assert_eq!(host_ports(&pods), ["* 8080 10.244.0.3:80 b_default"]);
    assert_eq!(host_ports(&pods[..1]), ["* 8080 10.244.0.2:80 a_default"]);
    let world = World {
        pods: pods.to_vec(),
        ..World::default()
    };
    assert!(world.findings().is_empty());
}

#[test]
fn two_pods_on_two_addresses_have_the_same_host_port() {
    let pods = [("a", "192.0.2.1"), ("b", "192.0.2.2")];
    let pods = pods.map(|(name, at)| with_host_port(web(name, &["10.244.0.2"]), Some(at), 8080));
    assert_eq!(host_ports(&pods).len(), 2);
    let clash = pods.map(|p| with_host_port(p, None, 8080));
    assert_eq!(host_ports(&clash).len(), 1);
    let world = World {
        pods: clash.to_vec(),
        ..World::default()
    };
    assert_eq!(
        world.findings(),
        [
            "pod default/b: hostPort: Invalid value: 8080: 8080/TCP of this node belongs to a hostPort of pod default/a; choose another"
        ]
    );
}

#[test]
fn the_order_of_the_inputs_does_not_matter() {
    let shared = |name, ip| {
        let service = Service {
            external_ips: ips(&["203.0.113.1"]),
            ports: vec![port("b", 81), port("a", 80)],
            ..service()
        };
        given(name, service, &[ip])
    };
    let mut world = World::of(&[
        shared("web", "10.96.0.1"),
        shared("b", "10.96.0.2"),
        node_port("c", "10.96.0.3", 30080),
    ]);
    world.pods = vec![
        with_host_port(web("a", &["10.244.0.2"]), None, 30080),
        with_host_port(web("b", &["10.244.0.3"]), None, 30080),
    ];
    world.slices = vec![slice(&["10.244.1.2 other"]), slice(&["10.244.1.3 other"])];
    let built = world.build();
    world.services.reverse();
    world.pods.reverse();
    world.slices.reverse();
    assert_eq!(world.build(), built);
    let names: Vec<_> = built
        .table
        .services
        .iter()
        .map(|e| e.name.clone())
        .collect();
    assert!(names.is_sorted() && names.len() == 5);
}

/// A random generator with a fixed seed, which gives the same numbers in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Returns at most two random addresses out of five. Some of the five belong to the node.
    fn addresses(&mut self, net: &str) -> Vec<IpAddr> {
        let count = self.below(3);
        let one = |n| match n {
            0 => ip("192.0.2.1"),
            1 => ip("fd00::1"),
            n => ip(&format!("{net}.{n}")),
        };
        (0..count).map(|_| one(self.below(5))).collect()
    }

    fn policy(&mut self) -> TrafficPolicy {
        match self.yes() {
            true => TrafficPolicy::Cluster,
            false => TrafficPolicy::Local,
        }
    }

    fn service(&mut self, name: &'static str) -> Given {
        let types = [
            ServiceType::ClusterIp,
            ServiceType::NodePort,
            ServiceType::LoadBalancer,
        ];
        let service = Service {
            type_: types[self.below(3) as usize],
            external_ips: self.addresses("203.0.113"),
            ingress_ips: self.addresses("203.0.113"),
            internal_traffic_policy: self.policy(),
            external_traffic_policy: self.policy(),
            publish_not_ready_addresses: self.below(5) == 0,
            ports: vec![port("a", 80), port("b", 81)],
            ..service()
        };
        let node_port = |r: &mut Self| r.yes().then(|| 30000 + r.below(4) as u16);
        Given {
            namespace: "default",
            name,
            service,
            created: self.yes().then(|| time(self.below(2))),
            cluster_ips: self.addresses("10.96.0"),
            node_ports: vec![node_port(self), node_port(self)],
            health_check_node_port: node_port(self),
        }
    }

    fn pod(&mut self, name: &str) -> PodFacts {
        let pod = PodFacts {
            serving: self.yes(),
            terminating: self.yes(),
            host_network: self.below(4) == 0,
            addresses: self.addresses("10.244.0"),
            ..web(name, &[])
        };
        let host_ip = self.yes().then_some("192.0.2.1");
        match self.yes() {
            true => with_host_port(pod, host_ip, 30000 + self.below(4) as u16),
            false => pod,
        }
    }
}

/// Returns every address and port to which the table gives answers.
fn places(table: &ServiceTable) -> Vec<(Option<IpAddr>, u16, Protocol)> {
    let mut places = Vec::new();
    for e in &table.services {
        let all = e
            .cluster_ips
            .iter()
            .chain(&e.external_ips)
            .chain(&e.load_balancer_ips);
        places.extend(all.map(|a| (Some(*a), e.port, e.name.protocol)));
        places.extend(e.node_port.map(|p| (None, p, e.name.protocol)));
    }
    places
}

#[test]
fn tables_keep_their_invariants_whatever_they_are_made_of() {
    let mut random = Random(1);
    for round in 0..2000 {
        let names = ["a", "b", "c"];
        let world = World {
            services: names.iter().map(|n| random.service(n)).collect(),
            slices: vec![slice(&["10.244.1.2 other", "10.244.1.3 node"])],
            pods: names.iter().map(|n| random.pod(n)).collect(),
            ..World::default()
        };
        let Built { table, .. } = world.build();
        let mut all = places(&table);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "round {round}: an address occurs twice");
        assert!(
            all.iter().all(|(a, ..)| *a != Some(ip("192.0.2.1"))),
            "round {round}"
        );
        let names = table.services.iter().map(|e| &e.name);
        assert!(
            names.is_sorted_by(|a, b| a < b),
            "round {round}: a name occurs twice"
        );
        for backends in table.services.iter().flat_map(ServicePortEntry::lists) {
            if let Backends::Some(list) = backends {
                assert!(
                    !list.is_empty() && list.is_sorted_by(|a, b| a < b),
                    "round {round}"
                );
            }
        }
        for host_port in &table.host_ports {
            let has_port = |e: &ServicePortEntry| e.node_port == Some(host_port.port);
            assert!(!table.services.iter().any(has_port), "round {round}");
        }
    }
}
