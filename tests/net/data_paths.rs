//! What every data path has to do, on real sockets: a client outside, a node, and pods, each in a network namespace of its
//! own. A case gets a data path and does not know which.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::slice::from_ref;
use std::time::Duration;

use podprobe::api::service::{Cidr, Protocol};
use podprobe::net::network::service_routes::{self, To};
use podprobe::net::proxy::auto::{self, Auto, ProxyMode};
use podprobe::net::proxy::nftables::Nftables;
use podprobe::net::proxy::userspace::ProxyRole;
use podprobe::net::proxy::{Applied, DataPath, ProxyError};
use podprobe::net::proxyd::home::Record;
use podprobe::net::services::table::{
    Backend, Backends, ServicePortEntry, ServicePortName, ServiceTable,
};

use crate::support::networks::{
    Answer, Namespace, PATIENCE, SILENCE, Server, tcp, tcp_ask, tcp_connect, udp_ask, udp_client,
};
use crate::support::skip;

const CLUSTER_IP: &str = "10.96.0.50";
const CLUSTER_IP_6: &str = "fd00:96::50";
const EXTERNAL_IP: &str = "203.0.113.10";
const BALANCER_IP: &str = "203.0.113.20";
const NODE_PORT: u16 = 30080;
const NODE: &str = "192.168.50.1";
const NODE_6: &str = "fd00:50::1";
const CLIENT: &str = "192.168.50.2";
const OTHER_CLIENT: &str = "192.168.50.3";
const CLIENT_6: &str = "fd00:50::2";
/// The node's address as pods see it.
const GATEWAY: &str = "10.244.0.1";
const ENOUGH: usize = 40;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(address), port)
}

fn cidr(text: &str) -> Cidr {
    let (network, prefix) = text.split_once('/').unwrap();
    Cidr {
        network: ip(network),
        prefix: prefix.parse().unwrap(),
    }
}

/// A node with three pods, and a client outside of it.
struct World {
    client: Namespace,
    node: Namespace,
    pods: Vec<Namespace>,
    servers: Vec<Server>,
}

impl World {
    /// `routes`: as the daemon routes serviceCIDR for the packet filter: an address has to have some route before it can be
    /// translated.
    fn new(routes: bool) -> Self {
        let (client, node) = (Namespace::new(), Namespace::new());
        node.sysctl("ipv4/ip_forward", "1");
        node.sysctl("ipv6/conf/all/forwarding", "1");
        node.link("outside", &client, "eth0");
        for address in ["192.168.50.1/24", "fd00:50::1/64"] {
            node.ip(&format!("addr add {address} dev outside nodad"));
        }
        for address in ["192.168.50.2/24", "192.168.50.3/24", "fd00:50::2/64"] {
            client.ip(&format!("addr add {address} dev eth0 nodad"));
        }
        client.ip("route add default via 192.168.50.1");
        client.ip("-6 route add default via fd00:50::1");
        if routes {
            for range in ["10.96.0.0/16", "203.0.113.0/24"] {
                node.ip(&format!("route add {range} dev outside"));
            }
            node.ip("-6 route add fd00:96::/112 dev outside");
        }
        let pods: Vec<Namespace> = (0..3).map(|i| pod(&node, i)).collect();
        let mut servers = Vec::new();
        for (i, pod) in pods.iter().enumerate() {
            let name = format!("pod{i}");
            servers.push(Server::new(pod, &name, at(&pod_ip(i), 8080)));
            servers.push(Server::new(pod, &name, at(&pod_ip_6(i), 8080)));
        }
        Self {
            client,
            node,
            pods,
            servers,
        }
    }

    /// The kernel sends few ICMP errors a second to one client, which is how UDP is refused; from now on any number.
    fn refuse_udp_often(&self) {
        self.node.sysctl("ipv4/icmp_ratemask", "0");
    }

    /// Asks `ENOUGH` times and says who answered.
    #[track_caller]
    fn who(&self, from: &Namespace, to: SocketAddr) -> BTreeSet<String> {
        (0..ENOUGH)
            .map(|_| tcp(from, None, to, PATIENCE).name())
            .collect()
    }
}

fn pod_ip(index: usize) -> String {
    format!("10.244.0.{}", index + 2)
}

fn pod_ip_6(index: usize) -> String {
    format!("fd00:244::{}", index + 2)
}

/// A pod with a link to the node and no other neighbour.
fn pod(node: &Namespace, index: usize) -> Namespace {
    let pod = Namespace::new();
    let link = format!("pod{index}");
    node.link(&link, &pod, "eth0");
    node.ip(&format!("addr add {GATEWAY}/32 dev {link}"));
    node.ip(&format!("-6 addr add fd00:244::1/128 dev {link} nodad"));
    for (family, own, gateway) in [
        ("-4", pod_ip(index), GATEWAY),
        ("-6", pod_ip_6(index), "fd00:244::1"),
    ] {
        node.ip(&format!("{family} route add {own} dev {link}"));
        pod.ip(&format!("{family} addr add {own} dev eth0 nodad"));
        pod.ip(&format!("{family} route add {gateway} dev eth0"));
        pod.ip(&format!("{family} route add default via {gateway}"));
    }
    pod
}

fn backend(address: SocketAddr) -> Backend {
    Backend {
        address,
        namespace: None,
    }
}

fn pods(indices: &[usize]) -> Backends {
    let backend = |i: &usize| backend(at(&pod_ip(*i), 8080));
    Backends::Some(indices.iter().map(backend).collect())
}

/// A service with a clusterIP and all three pods.
fn service(protocol: Protocol) -> ServicePortEntry {
    ServicePortEntry::new(
        ServicePortName {
            namespace: "default".into(),
            service: "web".into(),
            port: "http".into(),
            protocol,
        },
        80,
        vec![ip(CLUSTER_IP)],
        pods(&[0, 1, 2]),
    )
}

/// The same with everything that clients outside can reach.
fn everywhere(protocol: Protocol) -> ServicePortEntry {
    ServicePortEntry {
        external_ips: vec![ip(EXTERNAL_IP)],
        load_balancer_ips: vec![ip(BALANCER_IP)],
        node_port: Some(NODE_PORT),
        ..service(protocol)
    }
}

fn with_backends(entry: &ServicePortEntry, backends: Backends) -> ServicePortEntry {
    ServicePortEntry {
        internal: backends.clone(),
        external: backends.clone(),
        cluster: backends,
        ..entry.clone()
    }
}

fn table(services: &[ServicePortEntry]) -> ServiceTable {
    let mut services = services.to_vec();
    services.sort_by(|a, b| a.name.cmp(&b.name));
    ServiceTable {
        services,
        host_ports: Vec::new(),
        pod_cidrs: vec![cidr("10.244.0.0/24"), cidr("fd00:244::/112")],
        service_cidrs: vec![cidr("10.96.0.0/16"), cidr("fd00:96::/112")],
    }
}

/// A data path, and what it is given.
struct Subject<'a> {
    world: &'a World,
    path: Box<dyn DataPath + 'a>,
    /// Another one in its place, as after a restart of the daemon.
    again: Make,
}

type Make = for<'n> fn(&'n Namespace) -> Box<dyn DataPath + 'n>;

impl Subject<'_> {
    #[track_caller]
    fn apply(&mut self, services: &[ServicePortEntry]) -> Applied {
        self.path.apply(&table(services)).unwrap()
    }

    fn is_in_the_kernel(&self) -> bool {
        self.path.name() == "nftables"
    }

    /// What clients get that may not come where others may. A socket knows its clients only when it has taken them.
    fn shut(&self) -> Answer {
        match self.is_in_the_kernel() {
            true => Answer::Silence,
            false => Answer::Reset,
        }
    }

    fn new_path(&mut self) {
        self.path = (self.again)(&self.world.node);
    }
}

fn run(make: Make, routes: bool, case: fn(&mut Subject<'_>)) {
    if !skip::is_root() {
        return;
    }
    if std::process::Command::new("ip").arg("-V").output().is_err() {
        skip::skip("needs ip of iproute2");
        return;
    }
    let world = World::new(routes);
    let path = make(&world.node);
    case(&mut Subject {
        world: &world,
        path,
        again: make,
    });
}

fn nftables(node: &Namespace) -> Box<dyn DataPath + '_> {
    Box::new(node.run(|| Nftables::new("test").unwrap()))
}

/// By the node that the process serves.
fn proxy_dir(node: &Namespace) -> PathBuf {
    std::env::temp_dir().join(format!("podprobe-proxy-{}", node.tid()))
}

fn userspace(node: &Namespace) -> Box<dyn DataPath + '_> {
    let dir = proxy_dir(node);
    let deps = || auto::Deps {
        mode: ProxyMode::Userspace,
        loopback_only: false,
        id: "test".into(),
        service_cidrs: vec![cidr("10.96.0.0/16"), cidr("fd00:96::/112")],
        role: ProxyRole::new(&dir, "").with_program(env!("CARGO_BIN_EXE_podprobe")),
    };
    let path = node.run(|| Auto::new(deps()));
    Box::new(InNode { node, path })
}

/// A process that is started in the node's namespace.
struct InNode<'a> {
    node: &'a Namespace,
    path: Auto,
}

impl Drop for World {
    fn drop(&mut self) {
        let dir = proxy_dir(&self.node);
        if let Some(process) = Record::running(&dir).and_then(|r| r.process.open().unwrap()) {
            process.send(nix::libc::SIGKILL).unwrap();
            assert!(process.wait(PATIENCE).unwrap());
        }
        let _ = std::fs::remove_dir_all(dir);
    }
}

impl DataPath for InNode<'_> {
    fn name(&self) -> &'static str {
        self.path.name()
    }

    fn apply(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError> {
        self.node.run(|| self.path.apply(table))
    }

    fn remove(&mut self) -> Result<bool, ProxyError> {
        self.node.run(|| self.path.remove())
    }
}

/// The cases as tests of one data path, in a module of that name.
macro_rules! suite {
    ($module:ident: $path:ident, $routes:literal: $($case:ident,)*) => {
        mod $module {
            $(
                #[test]
                fn $case() {
                    super::run(super::$path, $routes, super::$case);
                }
            )*
        }
    };
}

macro_rules! both {
    ($($case:ident,)*) => {
        suite! { in_the_kernel: nftables, true: $($case,)* }
        suite! { in_a_process: userspace, false: $($case,)* }
    };
}

both! {
    clients_reach_every_endpoint_and_only_those,
    an_endpoint_that_leaves_gets_no_new_connection,
    an_established_connection_outlives_its_endpoint,
    without_endpoints_clients_are_refused_at_once,
    a_policy_without_local_endpoints_drops,
    node_ports_answer_on_the_nodes_addresses_and_not_on_loopback,
    pods_and_the_node_have_endpoints_that_outside_clients_do_not,
    a_pod_reaches_itself,
    source_ranges_close_the_load_balancers_addresses_alone,
    a_family_without_source_ranges_is_closed,
    an_address_of_no_service_is_refused,
    other_ports_of_a_cluster_ip_are_refused,
    a_client_keeps_its_endpoint,
    affinity_survives_changes_and_a_new_data_path,
    affinity_ends_with_its_time,
    a_client_whose_endpoint_leaves_gets_another_one_and_keeps_it,
    udp_clients_are_balanced_and_leave_endpoints_that_are_gone,
    udp_flows_of_others_and_to_live_endpoints_stay,
    both_families_are_served,
    an_address_moves_between_services,
    services_come_and_go,
}

// What a process cannot do, or has nothing of.
suite! {
    in_the_kernel_alone: nftables, true:
    outside_clients_appear_as_the_node_unless_the_policy_is_local,
    when_too_many_clients_keep_an_endpoint_the_others_are_served,
    a_foreign_flush_is_mended,
    a_port_that_was_tried_before_there_was_a_table_is_served,
    what_belongs_to_no_connection_does_not_go_round,
    what_is_removed_is_gone,
    only_differences_are_programmed,
}

fn cluster() -> SocketAddr {
    at(CLUSTER_IP, 80)
}

fn names(indices: &[usize]) -> BTreeSet<String> {
    indices.iter().map(|i| format!("pod{i}")).collect()
}

fn clients_reach_every_endpoint_and_only_those(s: &mut Subject<'_>) {
    s.apply(&[service(Protocol::Tcp)]);
    let all = names(&[0, 1, 2]);
    assert_eq!(s.world.who(&s.world.node, cluster()), all, "the node");
    assert_eq!(s.world.who(&s.world.pods[0], cluster()), all, "a pod");
    assert_eq!(s.world.who(&s.world.client, cluster()), all, "outside");
    let pod = tcp(&s.world.pods[0], None, cluster(), PATIENCE);
    assert!([ip(&pod_ip(0)), ip(GATEWAY)].contains(&pod.seen()));
    s.apply(&[with_backends(&service(Protocol::Tcp), pods(&[1]))]);
    assert_eq!(s.world.who(&s.world.pods[0], cluster()), names(&[1]));
    let pod = tcp(&s.world.pods[0], None, cluster(), PATIENCE);
    let seen = match s.is_in_the_kernel() {
        true => pod_ip(0),
        false => GATEWAY.into(),
    };
    assert_eq!(pod.seen(), ip(&seen), "a pod keeps its address");
}

fn an_endpoint_that_leaves_gets_no_new_connection(s: &mut Subject<'_>) {
    for indices in [&[0, 1, 2][..], &[1, 2], &[2], &[0, 2], &[1]] {
        s.apply(&[with_backends(&service(Protocol::Tcp), pods(indices))]);
        let found = s.world.who(&s.world.client, cluster());
        assert_eq!(found, names(indices));
    }
}

fn an_established_connection_outlives_its_endpoint(s: &mut Subject<'_>) {
    let only_us = ServicePortEntry {
        source_ranges: vec![cidr("192.168.50.2/32")],
        ..everywhere(Protocol::Tcp)
    };
    s.apply(&[with_backends(&only_us, pods(&[0]))]);
    let everyone = [
        (&s.world.client, cluster()),
        (&s.world.client, at(BALANCER_IP, 80)),
        (&s.world.node, cluster()),
        (&s.world.node, at(NODE, NODE_PORT)),
        (&s.world.pods[1], cluster()),
    ];
    let connect = |(from, to)| tcp_connect(from, None, to, PATIENCE).unwrap();
    let streams = everyone.map(connect);
    let closed = ServicePortEntry {
        source_ranges: vec![cidr("10.0.0.0/8")],
        ..only_us
    };
    for backends in [pods(&[1]), Backends::Reject, Backends::Drop] {
        let next = with_backends(&closed, backends);
        s.path.apply(&table(&[next])).unwrap();
    }
    for mut stream in streams {
        let text = String::from_utf8(tcp_ask(&mut stream).unwrap()).unwrap();
        assert!(text.starts_with("pod0 "), "{text}");
    }
}

fn without_endpoints_clients_are_refused_at_once(s: &mut Subject<'_>) {
    let everyone = [
        (&s.world.client, CLIENT),
        (&s.world.node, NODE),
        (&s.world.pods[0], "10.244.0.2"),
    ];
    let addresses = [
        cluster(),
        at(EXTERNAL_IP, 80),
        at(BALANCER_IP, 80),
        at(NODE, NODE_PORT),
    ];
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let entry = with_backends(&everywhere(protocol), Backends::Reject);
        s.path.apply(&table(&[entry])).unwrap();
        for ((from, own), to) in everyone.iter().flat_map(|e| addresses.map(|to| (*e, to))) {
            for _ in 0..ENOUGH / 4 {
                let answer = match protocol {
                    Protocol::Tcp => tcp(from, None, to, SILENCE),
                    Protocol::Udp => udp_ask(&udp_client(from, own, to), PATIENCE),
                };
                assert_eq!(answer, Answer::Refused, "{own} to {to} {protocol}");
            }
        }
        s.world.refuse_udp_often();
    }
}

fn a_policy_without_local_endpoints_drops(s: &mut Subject<'_>) {
    let entry = ServicePortEntry {
        external_local: true,
        external: Backends::Drop,
        ..everywhere(Protocol::Tcp)
    };
    s.apply(from_ref(&entry));
    for to in [
        at(EXTERNAL_IP, 80),
        at(BALANCER_IP, 80),
        at(NODE, NODE_PORT),
    ] {
        let outside = tcp(&s.world.client, None, to, SILENCE);
        assert_eq!(outside, s.shut(), "{to}");
        tcp(&s.world.node, None, to, PATIENCE).name();
        tcp(&s.world.pods[0], None, to, PATIENCE).name();
    }
    tcp(&s.world.client, None, cluster(), PATIENCE).name();
    s.apply(&[with_backends(&entry, Backends::Drop)]);
    for from in [&s.world.node, &s.world.pods[0], &s.world.client] {
        assert_eq!(tcp(from, None, cluster(), SILENCE), Answer::Silence);
    }
}

fn node_ports_answer_on_the_nodes_addresses_and_not_on_loopback(s: &mut Subject<'_>) {
    s.apply(&[everywhere(Protocol::Tcp)]);
    let all = names(&[0, 1, 2]);
    let port = at(NODE, NODE_PORT);
    assert_eq!(s.world.who(&s.world.client, port), all);
    assert_eq!(s.world.who(&s.world.node, port), all);
    assert_eq!(s.world.who(&s.world.pods[0], port), all);
    assert_eq!(s.world.who(&s.world.pods[0], at(GATEWAY, NODE_PORT)), all);
    let loopback = tcp(&s.world.node, None, at("127.0.0.1", NODE_PORT), PATIENCE);
    assert_eq!(loopback, Answer::Refused);
    // The address of a pod is not one of the node.
    let pod = tcp(&s.world.client, None, at(&pod_ip(0), NODE_PORT), PATIENCE);
    assert_eq!(pod, Answer::Refused);
}

fn outside_clients_appear_as_the_node_unless_the_policy_is_local(s: &mut Subject<'_>) {
    let addresses = [
        at(EXTERNAL_IP, 80),
        at(BALANCER_IP, 80),
        at(NODE, NODE_PORT),
    ];
    s.apply(&[everywhere(Protocol::Tcp)]);
    for to in addresses {
        let seen = tcp(&s.world.client, None, to, PATIENCE).seen();
        assert_eq!(seen, ip(GATEWAY), "{to}");
    }
    s.apply(&[ServicePortEntry {
        external_local: true,
        ..everywhere(Protocol::Tcp)
    }]);
    for to in addresses {
        let seen = tcp(&s.world.client, None, to, PATIENCE).seen();
        assert_eq!(seen, ip(CLIENT), "{to}");
        let pod = s.world.who(&s.world.pods[0], to);
        assert_eq!(pod, names(&[0, 1, 2]), "{to}");
    }
    let seen = tcp(&s.world.client, None, cluster(), PATIENCE).seen();
    assert_eq!(seen, ip(GATEWAY), "a clusterIP has no such policy");
    let mark = s.world.node.command("nft list ruleset");
    assert!(mark.contains("meta mark"), "{mark}");
}

fn pods_and_the_node_have_endpoints_that_outside_clients_do_not(s: &mut Subject<'_>) {
    s.apply(&[ServicePortEntry {
        external_local: true,
        internal: pods(&[0]),
        external: pods(&[2]),
        cluster: pods(&[0, 1]),
        ..everywhere(Protocol::Tcp)
    }]);
    for to in [
        at(EXTERNAL_IP, 80),
        at(BALANCER_IP, 80),
        at(NODE, NODE_PORT),
    ] {
        assert_eq!(s.world.who(&s.world.client, to), names(&[2]), "{to}");
        assert_eq!(s.world.who(&s.world.node, to), names(&[0, 1]), "{to}");
        assert_eq!(s.world.who(&s.world.pods[2], to), names(&[0, 1]), "{to}");
    }
    for from in [&s.world.client, &s.world.node, &s.world.pods[2]] {
        assert_eq!(s.world.who(from, cluster()), names(&[0]));
    }
    // internalTrafficPolicy Local, and none local: that closes the clusterIP alone.
    for external_local in [false, true] {
        s.apply(&[ServicePortEntry {
            internal: Backends::Drop,
            external_local,
            ..everywhere(Protocol::Tcp)
        }]);
        for from in [&s.world.client, &s.world.node, &s.world.pods[0]] {
            assert_eq!(tcp(from, None, cluster(), SILENCE), Answer::Silence);
            for to in [
                at(EXTERNAL_IP, 80),
                at(BALANCER_IP, 80),
                at(NODE, NODE_PORT),
            ] {
                assert_eq!(s.world.who(from, to), names(&[0, 1, 2]), "{to}");
            }
        }
    }
    let external = at(EXTERNAL_IP, 80);
    s.apply(&[ServicePortEntry {
        external_local: true,
        cluster: Backends::Reject,
        ..everywhere(Protocol::Tcp)
    }]);
    tcp(&s.world.client, None, external, PATIENCE).name();
    let refused = tcp(&s.world.pods[0], None, external, SILENCE);
    let expected = match s.is_in_the_kernel() {
        true => Answer::Refused,
        false => Answer::Reset,
    };
    assert_eq!(refused, expected);
}

fn a_pod_reaches_itself(s: &mut Subject<'_>) {
    s.apply(&[with_backends(&service(Protocol::Tcp), pods(&[0]))]);
    let answer = tcp(&s.world.pods[0], None, cluster(), PATIENCE);
    assert_eq!(answer, Answer::From("pod0".into(), ip(GATEWAY)));
    s.apply(&[with_backends(&service(Protocol::Tcp), pods(&[1]))]);
    let answer = tcp(&s.world.pods[1], None, cluster(), PATIENCE);
    assert_eq!(answer, Answer::From("pod1".into(), ip(GATEWAY)));
}

fn source_ranges_close_the_load_balancers_addresses_alone(s: &mut Subject<'_>) {
    let mut entry = ServicePortEntry {
        source_ranges: vec![cidr("192.168.50.3/32"), cidr("10.0.0.0/8")],
        ..everywhere(Protocol::Tcp)
    };
    s.apply(from_ref(&entry));
    let ask = |source: &str, to, patience| tcp(&s.world.client, Some(ip(source)), to, patience);
    let balancer = at(BALANCER_IP, 80);
    assert_eq!(ask(CLIENT, balancer, SILENCE), s.shut());
    ask(OTHER_CLIENT, balancer, PATIENCE).name();
    tcp(&s.world.pods[0], None, balancer, PATIENCE).name();
    for to in [at(EXTERNAL_IP, 80), at(NODE, NODE_PORT), cluster()] {
        ask(CLIENT, to, PATIENCE).name();
    }
    assert_eq!(tcp(&s.world.node, None, balancer, SILENCE), s.shut());
    entry.source_ranges = vec![cidr("192.168.50.2/31")];
    s.path.apply(&table(from_ref(&entry))).unwrap();
    ask(CLIENT, balancer, PATIENCE).name();
    entry.source_ranges.clear();
    s.path.apply(&table(&[entry])).unwrap();
    tcp(&s.world.node, None, balancer, PATIENCE).name();
}

fn a_family_without_source_ranges_is_closed(s: &mut Subject<'_>) {
    s.apply(&[ServicePortEntry {
        source_ranges: vec![cidr("fd00::/8")],
        ..everywhere(Protocol::Tcp)
    }]);
    let answer = tcp(&s.world.client, None, at(BALANCER_IP, 80), SILENCE);
    assert_eq!(answer, s.shut());
}

fn an_address_of_no_service_is_refused(s: &mut Subject<'_>) {
    s.apply(&[service(Protocol::Tcp)]);
    for from in [&s.world.node, &s.world.pods[0], &s.world.client] {
        let answer = tcp(from, None, at("10.96.7.7", 80), PATIENCE);
        assert_eq!(answer, Answer::Refused);
    }
}

fn other_ports_of_a_cluster_ip_are_refused(s: &mut Subject<'_>) {
    s.world.refuse_udp_often();
    // Also of one that is not in the range.
    for own in [CLUSTER_IP, "203.0.113.50"] {
        s.apply(&[ServicePortEntry {
            cluster_ips: vec![ip(own)],
            ..service(Protocol::Tcp)
        }]);
        for from in [&s.world.node, &s.world.pods[0], &s.world.client] {
            tcp(from, None, at(own, 80), PATIENCE).name();
            assert_eq!(tcp(from, None, at(own, 81), PATIENCE), Answer::Refused);
        }
        let udp = udp_client(&s.world.client, CLIENT, at(own, 80));
        let other_protocol = udp_ask(&udp, PATIENCE);
        assert_eq!(other_protocol, Answer::Refused, "UDP");
    }
    // An address that the node itself has is not a service's: the cluster DNS answers there.
    s.world.node.ip("addr add 10.96.0.10/32 dev lo");
    let _own = Server::new(&s.world.node, "dns", at("10.96.0.10", 53));
    for from in [&s.world.node, &s.world.pods[0]] {
        assert_eq!(
            s.world.who(from, at("10.96.0.10", 53)),
            ["dns".to_owned()].into()
        );
    }
}

fn sticky(protocol: Protocol) -> ServicePortEntry {
    ServicePortEntry {
        affinity: Some(Duration::from_secs(10800)),
        ..everywhere(protocol)
    }
}

fn a_client_keeps_its_endpoint(s: &mut Subject<'_>) {
    s.apply(&[sticky(Protocol::Tcp)]);
    let from = |source: &str, to| tcp(&s.world.client, Some(ip(source)), to, PATIENCE).name();
    let mut first = BTreeSet::new();
    for source in [CLIENT, OTHER_CLIENT] {
        let name = from(source, cluster());
        for to in [cluster(), at(EXTERNAL_IP, 80), at(NODE, NODE_PORT)] {
            for _ in 0..ENOUGH / 4 {
                assert_eq!(from(source, to), name, "{source} to {to}");
            }
        }
        first.insert(name);
    }
    let pods = s.world.pods.iter();
    let kept: BTreeSet<String> = pods
        .map(|pod| {
            let who = s.world.who(pod, cluster());
            assert_eq!(who.len(), 1, "{who:?}");
            who.into_iter().next().unwrap()
        })
        .collect();
    assert!(!kept.is_empty() && !first.is_empty());
}

fn affinity_survives_changes_and_a_new_data_path(s: &mut Subject<'_>) {
    let ask = |s: &Subject<'_>| tcp(&s.world.client, None, cluster(), PATIENCE).name();
    s.apply(&[sticky(Protocol::Tcp)]);
    let name = ask(s);
    let index: usize = name["pod".len()..].parse().unwrap();
    let fewer: Vec<usize> = (0..3).filter(|i| *i != (index + 1) % 3).collect();
    let mut other = service(Protocol::Udp);
    other.name.service = "other".into();
    let longer = Some(Duration::from_secs(20_000));
    for entry in [
        with_backends(&sticky(Protocol::Tcp), pods(&fewer)),
        sticky(Protocol::Tcp),
        ServicePortEntry {
            affinity: longer,
            ..sticky(Protocol::Tcp)
        },
    ] {
        s.apply(&[entry.clone(), other.clone()]);
        for _ in 0..ENOUGH / 2 {
            assert_eq!(ask(s), name);
        }
    }
    // As after a restart of the daemon.
    s.new_path();
    assert!(s.apply(&[sticky(Protocol::Tcp)]).full);
    for _ in 0..ENOUGH / 2 {
        assert_eq!(ask(s), name);
    }
}

fn affinity_ends_with_its_time(s: &mut Subject<'_>) {
    s.apply(&[ServicePortEntry {
        affinity: Some(Duration::from_secs(1)),
        ..service(Protocol::Tcp)
    }]);
    let ask = || tcp(&s.world.client, None, cluster(), PATIENCE).name();
    let first = ask();
    // It ends when nothing came for its time: a question an hour later may go elsewhere. Ours is a second.
    let changed = (0..20).any(|_| {
        std::thread::sleep(Duration::from_millis(1100));
        ask() != first
    });
    assert!(changed, "{first} for 20 times");
}

fn a_client_whose_endpoint_leaves_gets_another_one_and_keeps_it(s: &mut Subject<'_>) {
    let ask = |s: &Subject<'_>| tcp(&s.world.client, None, cluster(), PATIENCE).name();
    s.apply(&[sticky(Protocol::Tcp)]);
    for _ in 0..4 {
        let name = ask(s);
        let index: usize = name["pod".len()..].parse().unwrap();
        let others: Vec<usize> = (0..3).filter(|i| *i != index).collect();
        s.apply(&[with_backends(&sticky(Protocol::Tcp), pods(&others))]);
        let next = ask(s);
        assert_ne!(next, name);
        for _ in 0..ENOUGH / 2 {
            assert_eq!(ask(s), next);
        }
        s.apply(&[sticky(Protocol::Tcp)]);
        for _ in 0..ENOUGH / 2 {
            assert_eq!(
                ask(s),
                next,
                "the one that came back does not get the client"
            );
        }
    }
}

fn when_too_many_clients_keep_an_endpoint_the_others_are_served(s: &mut Subject<'_>) {
    s.apply(&[with_backends(&sticky(Protocol::Tcp), pods(&[0]))]);
    let clients = (0..3072_u32).map(|n| std::net::Ipv4Addr::from(0x6440_0000 + n));
    let clients: Vec<String> = clients.map(|ip| format!("{ip} timeout 1h")).collect();
    let set = "affinity-default/web/tcp/http__10.244.0.2/8080";
    let text = clients.join(",");
    let file = std::env::temp_dir().join(format!("podprobe-clients-{}", std::process::id()));
    let line = format!("add element ip test-services {set} {{ {text} }}\n");
    std::fs::write(&file, line).unwrap();
    s.world.node.command(&format!("nft -f {}", file.display()));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(s.world.who(&s.world.client, cluster()), names(&[0]));
    let found = s
        .world
        .node
        .command(&format!("nft list set ip test-services {set}"));
    assert!(!found.contains(CLIENT), "it was full");
}

fn udp_clients_are_balanced_and_leave_endpoints_that_are_gone(s: &mut Subject<'_>) {
    s.world.refuse_udp_often();
    s.apply(&[everywhere(Protocol::Udp)]);
    for to in [
        cluster(),
        at(EXTERNAL_IP, 80),
        at(BALANCER_IP, 80),
        at(NODE, NODE_PORT),
    ] {
        let ask = || udp_ask(&udp_client(&s.world.client, CLIENT, to), PATIENCE).name();
        let who: BTreeSet<String> = (0..ENOUGH).map(|_| ask()).collect();
        assert_eq!(who, names(&[0, 1, 2]), "{to}");
    }
    let clients: Vec<_> = [cluster(), at(EXTERNAL_IP, 80), at(NODE, NODE_PORT)]
        .map(|to| udp_client(&s.world.client, CLIENT, to))
        .into();
    for backends in [pods(&[0]), pods(&[1]), pods(&[2])] {
        let Backends::Some(only) = &backends else {
            unreachable!()
        };
        let last = only[0].address.ip().to_string();
        s.path
            .apply(&table(&[with_backends(
                &everywhere(Protocol::Udp),
                backends,
            )]))
            .unwrap();
        for client in &clients {
            let name = udp_ask(client, PATIENCE).name();
            let index: usize = name["pod".len()..].parse().unwrap();
            assert_eq!(pod_ip(index), last, "the port of the client is the same");
        }
    }
    let gone = s.apply(&[with_backends(&everywhere(Protocol::Udp), Backends::Reject)]);
    let ended = gone.flows_ended >= clients.len();
    assert_eq!(ended, s.is_in_the_kernel(), "{gone:?}");
    for client in &clients {
        assert_eq!(udp_ask(client, PATIENCE), Answer::Refused);
    }
}

fn udp_flows_of_others_and_to_live_endpoints_stay(s: &mut Subject<'_>) {
    s.apply(&[everywhere(Protocol::Udp)]);
    let direct = udp_client(&s.world.client, CLIENT, at(&pod_ip(0), 8080));
    udp_ask(&direct, PATIENCE).name();
    // A client of somebody else's server on the same number as the node port.
    let _server = Server::new(&s.world.pods[0], "other", at(&pod_ip(0), NODE_PORT));
    let same_number = udp_client(&s.world.client, CLIENT, at(&pod_ip(0), NODE_PORT));
    udp_ask(&same_number, PATIENCE).name();
    let client = udp_client(&s.world.client, CLIENT, cluster());
    let name = udp_ask(&client, PATIENCE).name();
    let index: usize = name["pod".len()..].parse().unwrap();
    let ended = s.apply(&[with_backends(&everywhere(Protocol::Udp), pods(&[index]))]);
    assert_eq!(ended.flows_ended, 0, "its endpoint is still there");
    assert_eq!(udp_ask(&client, PATIENCE).name(), name);
    let ended = s.apply(&[with_backends(
        &everywhere(Protocol::Udp),
        pods(&[(index + 1) % 3]),
    )]);
    assert_eq!(ended.flows_ended, usize::from(s.is_in_the_kernel()));
}

fn both_families_are_served(s: &mut Subject<'_>) {
    let both = |i: usize| {
        [
            backend(at(&pod_ip(i), 8080)),
            backend(at(&pod_ip_6(i), 8080)),
        ]
    };
    let mut entry = ServicePortEntry {
        cluster_ips: vec![ip(CLUSTER_IP), ip(CLUSTER_IP_6)],
        affinity: None,
        ..with_backends(
            &everywhere(Protocol::Tcp),
            Backends::Some((0..3).flat_map(both).collect()),
        )
    };
    s.apply(from_ref(&entry));
    let all = names(&[0, 1, 2]);
    for from in [&s.world.node, &s.world.client, &s.world.pods[1]] {
        assert_eq!(s.world.who(from, cluster()), all);
        assert_eq!(s.world.who(from, at(CLUSTER_IP_6, 80)), all);
        assert_eq!(s.world.who(from, at(NODE_6, NODE_PORT)), all);
        assert_eq!(
            tcp(from, None, at(CLUSTER_IP_6, 81), PATIENCE),
            Answer::Refused
        );
        assert_eq!(
            tcp(from, None, at("fd00:96::77", 80), PATIENCE),
            Answer::Refused
        );
    }
    let loopback = tcp(&s.world.node, None, at("::1", NODE_PORT), PATIENCE);
    assert_eq!(loopback, Answer::Refused);
    entry.affinity = Some(Duration::from_secs(60));
    entry.external_local = true;
    s.apply(from_ref(&entry));
    assert_eq!(s.world.who(&s.world.client, at(CLUSTER_IP_6, 80)).len(), 1);
    let seen = tcp(&s.world.client, None, at(NODE_6, NODE_PORT), PATIENCE).seen();
    let expected = match s.is_in_the_kernel() {
        true => CLIENT_6,
        false => "fd00:244::1",
    };
    assert_eq!(seen, ip(expected));
    s.apply(&[with_backends(
        &entry,
        Backends::Some(vec![backend(at(&pod_ip_6(0), 8080))]),
    )]);
    let itself = tcp(&s.world.pods[0], None, at(CLUSTER_IP_6, 80), PATIENCE);
    assert_eq!(itself, Answer::From("pod0".into(), ip("fd00:244::1")));
    let none = tcp(&s.world.client, None, cluster(), PATIENCE);
    assert_eq!(none, Answer::Refused, "no endpoint of the other family");
}

fn an_address_moves_between_services(s: &mut Subject<'_>) {
    let one = with_backends(&everywhere(Protocol::Tcp), pods(&[0]));
    let mut two = with_backends(&service(Protocol::Tcp), pods(&[1]));
    two.name.service = "a".into();
    two.cluster_ips = vec![ip("10.96.0.51")];
    s.apply(&[one.clone(), two.clone()]);
    assert_eq!(s.world.who(&s.world.client, cluster()), names(&[0]));
    // Both swap their clusterIPs, and the node port goes along.
    let swapped = [
        ServicePortEntry {
            cluster_ips: two.cluster_ips.clone(),
            node_port: None,
            ..one.clone()
        },
        ServicePortEntry {
            cluster_ips: one.cluster_ips.clone(),
            node_port: one.node_port,
            ..two.clone()
        },
    ];
    assert!(!s.apply(&swapped).full);
    assert_eq!(s.world.who(&s.world.client, cluster()), names(&[1]));
    assert_eq!(
        s.world.who(&s.world.client, at("10.96.0.51", 80)),
        names(&[0])
    );
    assert_eq!(
        s.world.who(&s.world.client, at(NODE, NODE_PORT)),
        names(&[1])
    );
}

fn services_come_and_go(s: &mut Subject<'_>) {
    let entry = sticky(Protocol::Tcp);
    let mut other = with_backends(&service(Protocol::Tcp), pods(&[2]));
    other.name.service = "z".into();
    other.cluster_ips = vec![ip("10.96.0.51")];
    s.apply(&[]);
    for _ in 0..3 {
        let applied = s.apply(&[entry.clone(), other.clone()]);
        assert!(!(applied.full && s.is_in_the_kernel()));
        tcp(&s.world.client, None, cluster(), PATIENCE).name();
        assert!(!s.apply(from_ref(&other)).full);
        assert_eq!(
            tcp(&s.world.client, None, cluster(), PATIENCE),
            Answer::Refused
        );
        assert_eq!(
            s.world.who(&s.world.client, at("10.96.0.51", 80)),
            names(&[2])
        );
    }
}

fn a_foreign_flush_is_mended(s: &mut Subject<'_>) {
    let entry = everywhere(Protocol::Tcp);
    s.apply(from_ref(&entry));
    for flush in [
        "nft flush ruleset",
        "nft delete table ip test-services",
        "nft flush table ip test-services",
        "nft flush chain ip test-services service-default/web/tcp/http",
        "nft flush map ip test-services service-ips",
    ] {
        s.world.node.command(flush);
        let mended = s.apply(from_ref(&entry));
        assert!(mended.repaired && mended.full, "{flush}: {mended:?}");
        assert_eq!(
            s.world.who(&s.world.client, cluster()),
            names(&[0, 1, 2]),
            "{flush}"
        );
        let again = s.apply(from_ref(&entry));
        assert_eq!(again, Applied::default(), "{flush}");
    }
    // What others do elsewhere is none of our business.
    s.world.node.command("nft add table ip others");
    assert_eq!(s.apply(from_ref(&entry)), Applied::default());
    assert!(
        s.world
            .node
            .command("nft list tables")
            .contains("table ip others")
    );
}

/// The kernel translates the first packet of a connection only, and it would take this client's next one for the same.
fn a_port_that_was_tried_before_there_was_a_table_is_served(s: &mut Subject<'_>) {
    let node = &s.world.node;
    node.command("nft add table ip others");
    node.command("nft add chain ip others output { type filter hook output priority 0 ; }");
    node.command("nft add rule ip others output ct state new counter");
    node.sysctl("ipv4/ip_local_port_range", "40000 40000");
    assert_eq!(tcp(node, None, cluster(), SILENCE), Answer::Silence);
    for _ in 0..2 {
        s.apply(&[service(Protocol::Tcp)]);
        tcp(node, None, cluster(), PATIENCE).name();
        // Somebody flushes all tables, and a client comes before we see it.
        node.command("nft delete table ip test-services");
        node.sysctl("ipv4/ip_local_port_range", "40001 40001");
        assert_eq!(tcp(node, None, cluster(), SILENCE), Answer::Silence);
    }
}

/// It is not translated, and the daemon's route of serviceCIDR leads to loopback.
fn what_belongs_to_no_connection_does_not_go_round(s: &mut Subject<'_>) {
    let World { client, node, .. } = s.world;
    let ranges = [cidr("10.96.0.0/16"), cidr("fd00:96::/112")];
    node.ip("route del 10.96.0.0/16 dev outside");
    node.ip("-6 route del fd00:96::/112 dev outside");
    node.run(|| service_routes::ensure(&ranges, To::PacketFilter))
        .unwrap();
    let entry = ServicePortEntry {
        cluster_ips: vec![ip(CLUSTER_IP), ip(CLUSTER_IP_6)],
        ..service(Protocol::Tcp)
    };
    s.apply(&[entry]);
    s.world.who(client, cluster());
    let before = loopback_packets(node);
    for to in ["10.96.7.7", "fd00:96::77", CLUSTER_IP, CLUSTER_IP_6] {
        send_strays(client, ip(to), 20);
    }
    // What comes after them has been handled after them.
    s.world.who(client, cluster());
    assert_eq!(loopback_packets(node) - before, 0);
}

/// How many packets have come out of the loopback interface.
fn loopback_packets(of: &Namespace) -> u64 {
    let text = of.command("cat /proc/net/dev");
    let line = text.lines().find_map(|l| l.trim().strip_prefix("lo:"));
    let packets = line.and_then(|l| l.split_whitespace().nth(1));
    packets.unwrap().parse().unwrap()
}

/// TCP packets to port 80 that neither open a connection nor belong to one.
fn send_strays(from: &Namespace, to: IpAddr, count: usize) {
    use nix::sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, sendto, socket,
    };
    let family = match to {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let mut segment = [0; 20];
    segment[..2].copy_from_slice(&40000_u16.to_be_bytes());
    segment[2..4].copy_from_slice(&80_u16.to_be_bytes());
    segment[12] = 5 << 4;
    from.run(|| {
        use std::os::fd::AsRawFd;
        let raw = socket(
            family,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            nix::sys::socket::SockProtocol::Tcp,
        )
        .unwrap();
        let to = SockaddrStorage::from(SocketAddr::new(to, 0));
        for _ in 0..count {
            sendto(raw.as_raw_fd(), &segment, &to, MsgFlags::empty()).unwrap();
        }
    });
}

fn what_is_removed_is_gone(s: &mut Subject<'_>) {
    s.apply(&[everywhere(Protocol::Tcp)]);
    s.world.node.command("nft add table ip others");
    assert!(s.path.remove().unwrap());
    assert!(!s.path.remove().unwrap(), "there was nothing any more");
    assert_eq!(s.world.node.command("nft list tables"), "table ip others\n");
    assert!(s.apply(&[everywhere(Protocol::Tcp)]).full);
    assert_eq!(s.world.who(&s.world.client, cluster()), names(&[0, 1, 2]));
}

fn only_differences_are_programmed(s: &mut Subject<'_>) {
    let entry = everywhere(Protocol::Tcp);
    let first = s.apply(from_ref(&entry));
    assert!(first.changed && first.full && !first.repaired);
    assert_eq!(s.apply(from_ref(&entry)), Applied::default());
    let next = s.apply(&[with_backends(&entry, pods(&[0]))]);
    assert!(next.changed && !next.full && !next.repaired);
    let loopback_only = Backend {
        namespace: Some("/proc/1/ns/net".into()),
        ..backend(at(&pod_ip(1), 8080))
    };
    let Backends::Some(mut two) = pods(&[0]) else {
        unreachable!()
    };
    two.push(loopback_only.clone());
    assert_eq!(
        s.apply(&[with_backends(&entry, Backends::Some(two))])
            .unreachable,
        1
    );
    assert_eq!(s.world.who(&s.world.client, cluster()), names(&[0]));
    s.apply(&[with_backends(&entry, Backends::Some(vec![loopback_only]))]);
    assert_eq!(
        tcp(&s.world.client, None, cluster(), PATIENCE),
        Answer::Refused
    );
    assert_eq!(s.world.servers[0].address, at(&pod_ip(0), 8080));
}
