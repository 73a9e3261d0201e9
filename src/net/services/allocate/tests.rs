use std::time::{Duration, SystemTime};

use super::*;
use crate::api::objects::ObjectKind;
use crate::api::service::{
    ClusterIps, IpFamily, IpFamilyPolicy, Protocol, ServicePort, ServiceType, TargetPort,
    TrafficPolicy,
};

const V4: &str = "10.96.0.0/16";

fn cidrs(texts: &[&str]) -> Vec<Cidr> {
    let one = |text: &&str| {
        let (network, prefix) = text.split_once('/').unwrap();
        Cidr {
            network: ip(network),
            prefix: prefix.parse().unwrap(),
        }
    };
    texts.iter().map(one).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a service that needs a cluster IP.
fn service() -> Service {
    Service {
        ports: vec![port("", Protocol::Tcp, 80, None)],
        ..Service::default()
    }
}

fn given(ips: &[&str]) -> Service {
    Service {
        cluster_ips: ClusterIps::Given(ips.iter().map(|text| ip(text)).collect()),
        ..service()
    }
}

fn port(name: &str, protocol: Protocol, number: u16, node_port: Option<u16>) -> ServicePort {
    ServicePort {
        name: name.to_owned(),
        protocol,
        port: number,
        target_port: TargetPort::Number(number),
        node_port,
        app_protocol: None,
    }
}

/// Returns a service of type NodePort with these ports.
fn node(ports: Vec<ServicePort>) -> Service {
    Service {
        type_: ServiceType::NodePort,
        ports,
        ..Service::default()
    }
}

/// Returns a service of type NodePort with the single TCP port 80.
fn node_80(node_port: Option<u16>) -> Service {
    node(vec![port("", Protocol::Tcp, 80, node_port)])
}

/// Allocates repeatedly. Each allocation gets the record of the allocation before it, encoded and decoded.
struct Cluster {
    cidrs: Vec<Cidr>,
    record: Allocations,
    last: Assignment,
    /// The time of the next allocation.
    seconds: u64,
}

impl Cluster {
    fn new(ranges: &[&str]) -> Self {
        Self {
            cidrs: cidrs(ranges),
            record: Allocations::default(),
            last: Assignment::default(),
            seconds: 0,
        }
    }

    /// Allocates for these services. A service of an earlier call that is not among these services counts as gone.
    fn apply(&mut self, services: &[(&str, &Service)]) {
        let keyed: Vec<_> = services
            .iter()
            .map(|(name, service)| (key(name), Arc::new(Service::clone(service))))
            .collect();
        let now = Time::from(SystemTime::UNIX_EPOCH + Duration::from_secs(self.seconds));
        self.last = allocate(&keyed, &self.cidrs, &self.record, now);
        let text = serde_json::to_string(&self.last.record).unwrap();
        self.record = serde_json::from_str(&text).unwrap();
        assert_eq!(self.record, self.last.record);
    }

    fn of(&self, name: &str) -> &Assigned {
        &self.last.services[&key(name)]
    }

    fn ips(&self, name: &str) -> Vec<String> {
        let ips = self.of(name).cluster_ips.iter();
        ips.map(IpAddr::to_string).collect()
    }

    /// Returns the only cluster IP of a service.
    #[track_caller]
    fn ip(&self, name: &str) -> String {
        let ips = self.ips(name);
        assert_eq!(ips.len(), 1, "{:?}", self.of(name));
        ips[0].clone()
    }

    #[track_caller]
    fn node_port(&self, name: &str) -> u16 {
        self.of(name).node_ports[0].expect("a node port")
    }

    #[track_caller]
    fn check_problems(&self, name: &str, expected: &[&str]) {
        let problems = self.of(name).problems.iter();
        assert_eq!(
            problems.map(FieldError::to_string).collect::<Vec<_>>(),
            expected
        );
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::Service, "default", name)
}

#[test]
fn a_service_gets_an_address_and_keeps_it_whatever_others_come() {
    let mut cluster = Cluster::new(&[V4]);
    let plain = service();
    cluster.apply(&[("web", &plain)]);
    let web = cluster.ip("web");
    // The address is above the part that is reserved for services that name their address.
    let IpAddr::V4(address) = ip(&web) else {
        panic!("{web}")
    };
    assert!(
        u32::from(address) - u32::from_be_bytes([10, 96, 0, 0]) > 256,
        "{web}"
    );
    let mut other = Cluster::new(&[V4]);
    other.apply(&[("web", &plain)]);
    assert_eq!(other.ip("web"), web, "the same on another day");
    cluster.apply(&[("aaa", &plain), ("web", &plain), ("db", &plain)]);
    assert_eq!(cluster.ip("web"), web);
    assert_ne!(cluster.ip("aaa"), cluster.ip("db"));
    cluster.check_problems("web", &[]);
}

#[test]
fn two_that_hash_alike_get_two_addresses_and_keep_them_in_any_order() {
    // Twelve addresses for twelve services: nearly every service finds its first addresses taken.
    let mut cluster = Cluster::new(&["10.0.0.0/28"]);
    let names: Vec<String> = (0..12).map(|n| format!("s{n:02}")).collect();
    let plain = service();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), &plain)).collect();
    cluster.apply(&all);
    let before: BTreeMap<_, _> = names.iter().map(|n| (n.clone(), cluster.ip(n))).collect();
    let mut ips: Vec<_> = before.values().collect();
    ips.sort();
    ips.dedup();
    assert_eq!(ips.len(), 12);
    assert!(
        !before
            .values()
            .any(|ip| ["10.0.0.0", "10.0.0.1", "10.0.0.10", "10.0.0.15"].contains(&ip.as_str()))
    );
    // One service goes and a new service comes. No remaining service gets another address.
    let mut fewer = all.clone();
    fewer.remove(3);
    fewer.insert(0, ("aaa", &plain));
    cluster.apply(&fewer);
    for (name, _) in fewer.iter().filter(|(name, _)| *name != "aaa") {
        assert_eq!(cluster.ip(name), before[*name], "{name}");
    }
    assert_eq!(cluster.ip("aaa"), before["s03"], "the only free one");
}

#[test]
fn a_full_range_is_a_problem_of_the_service_that_finds_it_so() {
    let mut cluster = Cluster::new(&["10.0.0.0/29"]);
    let plain = service();
    let names = ["a", "b", "c", "d", "e"].map(|name| (name, &plain));
    cluster.apply(&names);
    cluster.apply(&[names.as_slice(), &[("z", &plain)]].concat());
    cluster.check_problems(
        "z",
        &["spec.clusterIP: Required value: failed to allocate a serviceIP: range is full: all of 10.0.0.0/29 is taken; give serviceCIDR a larger range, or remove services"],
    );
    assert!(names.iter().all(|(name, _)| cluster.ips(name).len() == 1));
    cluster.apply(&[("z", &plain)]);
    cluster.ip("z");
}

#[test]
fn the_first_address_and_that_of_dns_are_only_given() {
    let mut cluster = Cluster::new(&[V4]);
    let dns = given(&["10.96.0.10"]);
    cluster.apply(&[("kube-dns", &dns), ("kubernetes", &given(&["10.96.0.1"]))]);
    assert_eq!(cluster.ip("kube-dns"), "10.96.0.10");
    assert_eq!(cluster.ip("kubernetes"), "10.96.0.1");
    cluster.apply(&[("kube-dns", &service())]);
    assert_ne!(
        cluster.ip("kube-dns"),
        "10.96.0.10",
        "it no longer asks for it"
    );
}

#[test]
fn the_upper_part_of_a_range_is_used_up_first() {
    // In a /27, sixteen addresses are reserved for services that name their address, and fourteen are not.
    let mut cluster = Cluster::new(&["10.0.0.0/27"]);
    let plain = service();
    let names: Vec<String> = (0..28).map(|n| format!("s{n:02}")).collect();
    let mut all: Vec<_> = names.iter().map(|name| (name.as_str(), &plain)).collect();
    let last = |cluster: &Cluster, name: &str| match ip(&cluster.ip(name)) {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => unreachable!(),
    };
    let rest = all.split_off(14);
    cluster.apply(&all);
    assert!(
        all.iter()
            .all(|(name, _)| (17..=30).contains(&last(&cluster, name)))
    );
    all.extend(rest);
    cluster.apply(&all);
    assert!(
        all[14..]
            .iter()
            .all(|(name, _)| (2..=16).contains(&last(&cluster, name)))
    );
}

#[test]
fn who_has_an_address_keeps_it_and_the_other_is_told() {
    let mut cluster = Cluster::new(&[V4]);
    let fixed = given(&["10.96.0.5"]);
    // Both services appear at once: the first by name gets the address.
    cluster.apply(&[("b", &fixed), ("a", &fixed)]);
    assert_eq!(cluster.ip("a"), "10.96.0.5");
    assert_eq!(cluster.ips("b"), [""; 0]);
    let text = |owner: &str, ip: &str| {
        format!(
            "spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: provided IP is already allocated: the Service default/{owner} has it: leave it out here, or write another one"
        )
    };
    cluster.check_problems("b", &[&text("a", "10.96.0.5")]);
    // The services appear one after the other: the older service gets the address.
    let mut cluster = Cluster::new(&[V4]);
    cluster.apply(&[("b", &fixed)]);
    cluster.apply(&[("b", &fixed), ("a", &fixed)]);
    assert_eq!(cluster.ip("b"), "10.96.0.5");
    cluster.check_problems("a", &[&text("b", "10.96.0.5")]);
    // An allocated address belongs to its service as firmly as one that its file gives.
    let plain = service();
    cluster.apply(&[("b", &plain)]);
    let allocated = cluster.ip("b");
    let thief = given(&[&allocated]);
    cluster.apply(&[("a", &thief), ("b", &plain)]);
    assert_eq!(cluster.ip("b"), allocated);
    cluster.check_problems("a", &[&text("b", &allocated)]);
    // When the owner is gone, the other service gets the address.
    cluster.apply(&[("a", &thief)]);
    assert_eq!(cluster.ip("a"), allocated);
    cluster.check_problems("a", &[]);
    // Without a record, given addresses are assigned before new ones are allocated.
    let mut cluster = Cluster::new(&[V4]);
    cluster.apply(&[("a", &thief), ("b", &plain)]);
    assert_eq!(cluster.ip("a"), allocated);
    assert_ne!(cluster.ip("b"), allocated);
}

#[test]
fn a_service_that_asks_for_a_taken_address_goes_on_with_what_it_had() {
    let mut cluster = Cluster::new(&[V4]);
    let fixed = given(&["10.96.0.5"]);
    cluster.apply(&[("a", &fixed), ("b", &service())]);
    let had = cluster.ip("b");
    cluster.apply(&[("a", &fixed), ("b", &fixed)]);
    assert_eq!(cluster.ip("b"), had);
    assert_eq!(cluster.of("b").problems.len(), 1);
    cluster.apply(&[("a", &fixed), ("b", &given(&["10.96.0.6"]))]);
    assert_eq!(cluster.ip("b"), "10.96.0.6");
    cluster.apply(&[("a", &fixed), ("b", &service())]);
    assert_eq!(
        cluster.ip("b"),
        "10.96.0.6",
        "leaving it out changes nothing"
    );
}

#[test]
fn a_given_address_is_one_of_the_range() {
    for bad in ["10.97.0.1", "10.96.0.0", "10.96.255.255"] {
        let mut cluster = Cluster::new(&[V4]);
        cluster.apply(&[("a", &given(&[bad]))]);
        assert_eq!(cluster.ips("a"), [""; 0]);
        cluster.check_problems(
            "a",
            &[&format!("spec.clusterIPs: Invalid value: [\"{bad}\"]: failed to allocate IP {bad}: the provided IP ({bad}) is not in the valid range. The range of valid IPs is 10.96.0.0/16 without its ends; write another one, or leave it out and one is allocated")],
        );
    }
}

#[test]
fn another_range_means_another_address() {
    let mut cluster = Cluster::new(&[V4]);
    let plain = service();
    cluster.apply(&[("a", &plain)]);
    cluster.cidrs = cidrs(&["10.200.0.0/24"]);
    cluster.apply(&[("a", &plain)]);
    assert!(cluster.ip("a").starts_with("10.200.0."));
}

#[test]
fn families_are_those_that_the_service_asks_for_and_the_node_has() {
    let v6 = "fd00::/108";
    let with = |policy, families: &[IpFamily], base: Service| Service {
        ip_family_policy: policy,
        ip_families: families.to_vec(),
        ..base
    };
    use IpFamily::{V4 as Four, V6 as Six};
    use IpFamilyPolicy::{PreferDualStack, RequireDualStack, SingleStack};
    let shape = |ranges: &[&str], service: &Service| {
        let mut cluster = Cluster::new(ranges);
        cluster.apply(&[("a", service)]);
        assert_eq!(cluster.of("a").problems, []);
        let ips = cluster.of("a").cluster_ips.iter();
        ips.map(|ip| IpFamily::of(*ip)).collect::<Vec<_>>()
    };
    let both = [V4, v6];
    assert_eq!(shape(&both, &service()), [Four]);
    assert_eq!(shape(&[v6, V4], &service()), [Six]);
    assert_eq!(shape(&both, &with(SingleStack, &[Six], service())), [Six]);
    assert_eq!(
        shape(&both, &with(PreferDualStack, &[], service())),
        [Four, Six]
    );
    assert_eq!(
        shape(&both, &with(PreferDualStack, &[Six], service())),
        [Six, Four]
    );
    assert_eq!(shape(&[V4], &with(PreferDualStack, &[], service())), [Four]);
    assert_eq!(
        shape(&both, &with(RequireDualStack, &[Six, Four], service())),
        [Six, Four]
    );
    // Two addresses are needed, and the file gives one.
    let half = with(RequireDualStack, &[], given(&["fd00::7"]));
    assert_eq!(shape(&both, &half), [Six, Four]);
    let refused = |ranges: &[&str], service: &Service, expected: &str| {
        let mut cluster = Cluster::new(ranges);
        cluster.apply(&[("a", service)]);
        assert_eq!(cluster.ips("a"), [""; 0]);
        assert_eq!(cluster.of("a").node_ports, [None]);
        cluster.check_problems("a", &[expected]);
    };
    refused(
        &[V4],
        &with(RequireDualStack, &[], node_80(None)),
        "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services: give serviceCIDR a range of the other family, too, or write SingleStack",
    );
    refused(
        &[V4],
        &with(SingleStack, &[Six], node_80(None)),
        "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster: serviceCIDR has no IPv6 range",
    );
    refused(
        &[V4],
        &given(&["fd00::7"]),
        "spec.clusterIPs[0]: Invalid value: \"fd00::7\": not configured on this cluster: serviceCIDR has no IPv6 range",
    );
    refused(
        &[],
        &node_80(None),
        "spec.clusterIP: Required value: failed to allocate a serviceIP: there is no serviceCIDR",
    );
    // A service without an address is not refused for its families.
    let headless = Service {
        cluster_ips: ClusterIps::Headless,
        ..with(RequireDualStack, &[], service())
    };
    assert_eq!(shape(&[V4], &headless), []);
    let name = Service {
        type_: ServiceType::ExternalName,
        ..Service::default()
    };
    assert_eq!(shape(&[V4], &name), []);
}

#[test]
fn node_ports_are_given_kept_and_never_shared() {
    let mut cluster = Cluster::new(&[V4]);
    let plain = node_80(None);
    cluster.apply(&[("web", &plain), ("db", &plain), ("none", &service())]);
    let (web, db) = (cluster.node_port("web"), cluster.node_port("db"));
    assert_ne!(web, db);
    // The ports are above the part that is reserved for services that name their port.
    assert!((30086..=32767).contains(&web) && (30086..=32767).contains(&db));
    assert_eq!(cluster.of("none").node_ports, [None]);
    cluster.apply(&[("aaa", &plain), ("web", &plain)]);
    assert_eq!(cluster.node_port("web"), web);
    // The port was allocated to an older service. The older service keeps the port, although the newer service asks for
    // it as a UDP port.
    let thief = node(vec![port("", Protocol::Udp, 80, Some(web))]);
    cluster.apply(&[("a", &thief), ("web", &plain)]);
    assert_eq!(cluster.node_port("web"), web);
    assert_eq!(cluster.of("a").node_ports, [None]);
    cluster.check_problems(
        "a",
        &[&format!("spec.ports[0].nodePort: Invalid value: {web}: provided port is already allocated: the Service default/web has it: leave it out here, or write another one")],
    );
    // The owner no longer has a type with node ports, so its port is free.
    cluster.apply(&[("a", &thief), ("web", &service())]);
    assert_eq!(cluster.node_port("a"), web);
    // A service that asks for a taken port keeps the port that it had.
    cluster.apply(&[("a", &thief), ("b", &node_80(None))]);
    let had = cluster.node_port("b");
    cluster.apply(&[("a", &thief), ("b", &node_80(Some(web)))]);
    assert_eq!(cluster.node_port("b"), had);
    assert_eq!(cluster.of("b").problems.len(), 1);
}

#[test]
fn a_port_of_both_protocols_has_one_node_port() {
    let mut cluster = Cluster::new(&[V4]);
    let dns = |tcp, udp| {
        node(vec![
            port("udp", Protocol::Udp, 53, udp),
            port("tcp", Protocol::Tcp, 53, tcp),
            port("web", Protocol::Tcp, 80, None),
        ])
    };
    cluster.apply(&[("dns", &dns(None, None))]);
    let ports = cluster.of("dns").node_ports.clone();
    assert!(ports[0].is_some() && ports[0] == ports[1] && ports[2] != ports[0]);
    let mut cluster = Cluster::new(&[V4]);
    cluster.apply(&[("dns", &dns(Some(30053), None))]);
    assert_eq!(
        cluster.of("dns").node_ports[..2],
        [Some(30053), Some(30053)]
    );
    let mut cluster = Cluster::new(&[V4]);
    cluster.apply(&[("dns", &dns(Some(30053), Some(30054)))]);
    assert_eq!(
        cluster.of("dns").node_ports[..2],
        [Some(30054), Some(30053)]
    );
}

#[test]
fn a_port_that_is_named_takes_its_number_from_the_one_that_was_allocated_it() {
    let mut cluster = Cluster::new(&[V4]);
    let ports = |b| {
        node(vec![
            port("a", Protocol::Tcp, 80, None),
            port("b", Protocol::Tcp, 81, b),
        ])
    };
    cluster.apply(&[("web", &ports(None))]);
    let first = cluster.node_port("web");
    cluster.apply(&[("web", &ports(Some(first)))]);
    let now = cluster.of("web").node_ports.clone();
    assert_eq!(now[1], Some(first));
    assert!(now[0].is_some() && now[0] != now[1], "{now:?}");
    cluster.check_problems("web", &[]);
}

#[test]
fn a_load_balancer_may_go_without_node_ports_but_not_without_a_health_check() {
    let balancer = |no_node_ports, check| Service {
        type_: ServiceType::LoadBalancer,
        external_traffic_policy: TrafficPolicy::Local,
        health_check_node_port: check,
        no_node_ports,
        ..node(vec![
            port("a", Protocol::Tcp, 80, None),
            port("b", Protocol::Tcp, 81, Some(30081)),
        ])
    };
    let mut cluster = Cluster::new(&[V4]);
    cluster.apply(&[("lb", &balancer(true, None))]);
    assert_eq!(cluster.of("lb").node_ports, [None, Some(30081)]);
    let check = cluster.of("lb").health_check_node_port;
    assert!(check.is_some_and(|port| (30000..=32767).contains(&port)));
    cluster.apply(&[
        ("aa", &balancer(false, check)),
        ("lb", &balancer(true, None)),
    ]);
    assert_eq!(cluster.of("lb").health_check_node_port, check);
    assert_eq!(cluster.of("aa").health_check_node_port, None);
    let problems = cluster.of("aa").problems.iter().map(|p| p.path.as_str());
    let expected = ["spec.ports[1].nodePort", "spec.healthCheckNodePort"];
    assert_eq!(problems.collect::<Vec<_>>(), expected);
    assert!(cluster.of("aa").node_ports[0].is_some());
}

#[test]
fn full_node_ports_are_a_problem_of_the_port_that_finds_them_so() {
    let ports = (30000..=32766).map(|n| port(&n.to_string(), Protocol::Tcp, n, Some(n)));
    let mut cluster = Cluster::new(&[V4]);
    let many = node(ports.collect());
    let two = node(vec![
        port("a", Protocol::Tcp, 80, None),
        port("b", Protocol::Tcp, 81, None),
    ]);
    cluster.apply(&[("many", &many), ("web", &two)]);
    assert_eq!(cluster.of("web").node_ports, [Some(32767), None]);
    let problems = &cluster.of("web").problems;
    let text = problems[0].to_string();
    assert!(
        problems.len() == 1
            && text.starts_with("spec.ports[1].nodePort: Required value: failed to allocate a nodePort: range is full:"),
        "{text}"
    );
}

#[test]
fn a_record_of_another_day_is_not_trusted() {
    let cluster = |text: &str| Cluster {
        record: serde_json::from_str(text).unwrap(),
        ..Cluster::new(&[V4])
    };
    let plain = node_80(None);
    // Two services with the same address and port, an address of DNS, and a port that no service may have.
    let mut doubled = cluster(
        r#"{"services": {"default/a": {"clusterIPs": ["10.96.1.1"], "nodePorts": {"": 31000}},
            "default/b": {"clusterIPs": ["10.96.1.1"], "nodePorts": {"": 31000}},
            "default/c": {"clusterIPs": ["10.96.0.10"], "nodePorts": {"": 22}, "more": 1}}, "version": 2}"#,
    );
    doubled.apply(&[("a", &plain), ("b", &plain), ("c", &plain)]);
    assert_eq!(doubled.ip("a"), "10.96.1.1");
    assert_eq!(doubled.node_port("a"), 31000);
    assert_ne!(doubled.ip("b"), "10.96.1.1");
    assert_ne!(doubled.node_port("b"), 31000);
    assert_ne!(doubled.ip("c"), "10.96.0.10");
    assert_ne!(doubled.node_port("c"), 22);
    assert_eq!(cluster("{}").record, Allocations::default());
}

/// A small random generator with a fixed seed, so that a failure is the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn service(&mut self) -> Service {
        let node_port = |random: &mut Self| {
            let number = 30000 + random.below(6) as u16;
            (random.below(3) == 0).then_some(number)
        };
        let ports = vec![
            port("a", Protocol::Tcp, 80, node_port(self)),
            port("b", Protocol::Udp, 80, node_port(self)),
        ];
        let base = match self.below(2) {
            0 => node(ports),
            _ => Service {
                type_: ServiceType::LoadBalancer,
                external_traffic_policy: TrafficPolicy::Local,
                ..node(ports)
            },
        };
        let cluster_ips = match self.below(3) {
            0 => ClusterIps::Given(vec![ip(&format!("10.0.0.{}", 1 + self.below(6)))]),
            _ => ClusterIps::Allocated,
        };
        Service {
            cluster_ips,
            ..base
        }
    }
}

#[test]
fn no_walk_gives_one_thing_to_two_or_takes_it_from_who_asks_for_nothing_else() {
    let mut random = Random(0x9e37_79b9);
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let mut there: BTreeMap<&str, Service> = BTreeMap::new();
    let mut cluster = Cluster::new(&["10.0.0.0/28"]);
    for _ in 0..2000 {
        let name = names[random.below(names.len() as u64) as usize];
        let changed = match random.below(3) {
            0 => there.remove(name),
            _ => there.insert(name, random.service()),
        };
        drop(changed);
        let before = cluster.last.clone();
        let services: Vec<_> = there
            .iter()
            .map(|(name, service)| (*name, service))
            .collect();
        cluster.apply(&services);
        let all = || cluster.last.services.values();
        let mut ips: Vec<_> = all().flat_map(|a| &a.cluster_ips).collect();
        let count = ips.len();
        ips.sort();
        ips.dedup();
        assert_eq!(ips.len(), count, "an address twice");
        let mut ports = BTreeMap::new();
        for (key, assigned) in &cluster.last.services {
            let check = assigned.health_check_node_port;
            for port in assigned.node_ports.iter().copied().chain([check]).flatten() {
                let owner = ports.insert(port, key);
                assert!(owner.is_none_or(|owner| owner == key), "{port} twice");
            }
            let has_check = |port: &Option<u16>| port.is_some() && *port == check;
            assert!(!has_check(&assigned.node_ports[0]), "{key}");
        }
        for (other, assigned) in &before.services {
            let stays = other.name != name && cluster.last.services.contains_key(other);
            if stays && assigned.problems.is_empty() {
                assert_eq!(
                    cluster.last.services[other], *assigned,
                    "{other} after {name}"
                );
            }
        }
    }
}

#[test]
fn a_service_is_as_old_as_its_first_day_whatever_it_became() {
    let mut cluster = Cluster::new(&["10.96.0.0/16"]);
    let headless = Service {
        cluster_ips: ClusterIps::Headless,
        ..Service::default()
    };
    let since = |cluster: &Cluster, name: &str| cluster.of(name).since.map(Time::unix_seconds);
    cluster.apply(&[("web", &node_80(None)), ("db", &headless)]);
    cluster.seconds = 60;
    cluster.apply(&[("web", &node_80(Some(30080))), ("new", &headless)]);
    assert_eq!(since(&cluster, "web"), Some(0));
    assert_eq!(since(&cluster, "new"), Some(60));
    cluster.seconds = 90;
    cluster.apply(&[("db", &headless)]);
    assert_eq!(since(&cluster, "db"), Some(90), "it was away");
}
