//! What services cost, side by side in one run: connections and one large stream that go direct, through the kernel's packet
//! filter, through `podprobe proxy`, and through socat and haproxy where they are installed; and what programming costs.
//! `ROUNDS` (default 5), `CONNECTIONS` a round (default 2000), `MEGABYTES` (default 1024).
//!
//! Client, node and pods are network namespaces with veth links. The figure is processor time, user and system, of the
//! client, the server and what is between; the node tracks connections on every path. The rates depend on what else the
//! machine does.

#[path = "services/between.rs"]
mod between;
#[path = "services/ends.rs"]
mod ends;
#[path = "../tests/support/networks.rs"]
#[allow(dead_code)]
mod networks;
mod support;
#[path = "../tests/support/uninterrupted.rs"]
mod uninterrupted;

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use between::{Between, KINDS};
use ends::{Server, connections, stream};
use networks::Namespace;
use podprobe::api::cidr::Cidr;
use podprobe::api::service::Protocol;
use podprobe::net::proxy::DataPath;
use podprobe::net::proxy::nftables::Nftables;
use podprobe::net::services::table::{ServicePortEntry, ServicePortName, ServiceTable};
use serde_json::json;
use support::figures::{Report, quantile};
use support::node::{self, Node, set_target, view};
use support::{ms_between, unix_ns};

const POD: &str = "10.244.0.2";
const CLUSTER_IP: &str = "10.96.0.50";
/// What may be at most, as a multiple of a direct connection.
const KERNEL_LIMIT: f64 = 1.2;
const PROXY_LIMIT: f64 = 2.8;
const STREAM_LIMIT: f64 = 2.1;

fn main() {
    support::begin();
    let rounds = support::setting("ROUNDS", 5);
    let count = support::setting("CONNECTIONS", 2000);
    let bytes = support::setting("MEGABYTES", 1024) << 20;
    let mut report = Report::of_itself("services");
    paths(&mut report, rounds, (count, bytes));
    idle_connections(&mut report);
    programming(&mut report, rounds);
    readiness(&mut report, rounds * 4);
    report.finish();
}

/// A node between a client and a pod.
struct World {
    client: Namespace,
    node: Namespace,
    pod: Namespace,
}

impl World {
    fn new() -> Self {
        let [client, node, pod] = [(); 3].map(|()| Namespace::new());
        node.sysctl("ipv4/ip_forward", "1");
        for (other, link, own, theirs) in [
            (&client, "outside", "192.168.50.1", "192.168.50.2"),
            (&pod, "pod", "10.244.0.1", POD),
        ] {
            node.link(link, other, "eth0");
            node.ip(&format!("addr add {own}/24 dev {link}"));
            other.ip(&format!("addr add {theirs}/24 dev eth0"));
            other.ip(&format!("route add default via {own}"));
        }
        // A client takes each of its ports again after a while.
        client.sysctl("ipv4/tcp_tw_reuse", "1");
        // The same for all: a node with podprobe tracks connections.
        for line in [
            "add table ip tracked",
            "add chain ip tracked forward { type filter hook forward priority 0 ; }",
            "add rule ip tracked forward ct state invalid counter",
        ] {
            node.command(&format!("nft {line}"));
        }
        Self { client, node, pod }
    }
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn service(name: &str, ip: IpAddr, backends: &[SocketAddr]) -> ServicePortEntry {
    let backends = backends.iter().map(|at| (*at).into()).collect();
    ServicePortEntry::new(
        ServicePortName {
            namespace: "default".into(),
            service: name.into(),
            port: String::new(),
            protocol: Protocol::Tcp,
        },
        80,
        vec![ip],
        backends,
    )
}

fn table(services: Vec<ServicePortEntry>) -> ServiceTable {
    ServiceTable {
        services,
        host_ports: Vec::new(),
        pod_cidrs: vec![Cidr::v4([10, 244, 0, 0], 16)],
        service_cidrs: vec![Cidr::v4([10, 96, 0, 0], 16)],
    }
}

/// The one service of the comparisons.
fn one_service() -> ServiceTable {
    let ip = CLUSTER_IP.parse().unwrap();
    table(vec![service("web", ip, &[at(POD, 8080)])])
}

fn paths(report: &mut Report, rounds: usize, (count, bytes): (usize, usize)) {
    let kinds: Vec<&str> = KINDS
        .into_iter()
        .filter(|kind| Between::is_installed(kind))
        .collect();
    for kind in KINDS.iter().filter(|k| !kinds.contains(k)) {
        report.note(format!("{kind} is not installed: left out"));
    }
    for round in 0..rounds {
        let mut kinds = kinds.clone();
        // None is always the one that finds the caches warm.
        let first = round % kinds.len();
        kinds.rotate_left(first);
        for kind in kinds {
            let world = World::new();
            let between = Between::start(kind, &world);
            let server = Server::start(&world.pod, at(POD, 8080));
            connections(&world.client, between.to, count / 10);
            let began = Instant::now();
            let cpu = server.cpu() + between.cpu();
            let own = connections(&world.client, between.to, count);
            let cost = own + server.cpu() + between.cpu() - cpu;
            let rate = count as f64 / began.elapsed().as_secs_f64();
            let each = cost.as_secs_f64() * 1e6 / count as f64;
            report.add(&format!("a connection, {kind}"), "µs", None, each);
            report.add(&format!("connections a second, {kind}"), "/s", None, rate);
            let cpu = server.cpu() + between.cpu();
            let own = stream(&world.client, between.to, bytes);
            let cost = own + server.cpu() + between.cpu() - cpu;
            let each = cost.as_secs_f64() * 1e3 * f64::from(1 << 30) / bytes as f64;
            report.add(&format!("a gigabyte, {kind}"), "ms", None, each);
        }
    }
    for (kind, limit) in [("nftables", KERNEL_LIMIT), ("userspace", PROXY_LIMIT)] {
        let name = format!("a connection, {kind} to direct");
        let of = format!("a connection, {kind}");
        report.ratio(&name, &of, "a connection, direct", Some(limit));
    }
    if kinds.contains(&"haproxy") {
        report.ratio(
            "a connection, userspace to haproxy",
            "a connection, userspace",
            "a connection, haproxy",
            Some(1.0),
        );
    }
    report.ratio(
        "a gigabyte, userspace to direct",
        "a gigabyte, userspace",
        "a gigabyte, direct",
        Some(STREAM_LIMIT),
    );
}

/// The proxy with a thousand clients that say nothing, beside another process of the same file, as the daemon is on a node.
fn idle_connections(report: &mut Report) {
    let other = World::new();
    let _daemon = Between::start("userspace", &other);
    let world = World::new();
    let between = Between::start("userspace", &world);
    let _server = Server::start(&world.pod, at(POD, 8080));
    let before = between.memory();
    let clients = ends::idle(&world.client, between.to, 1000);
    let kib = between.memory();
    let mib = |kib: u64| kib as f64 / 1024.0;
    report.add("memory of the proxy, no client", "MiB", None, mib(before));
    let name = "memory of the proxy, 1,000 connections";
    report.add(name, "MiB", Some(4.0), mib(kib));
    drop(clients);
}

/// Tables of many services in the kernel.
fn programming(report: &mut Report, rounds: usize) {
    const SERVICES: u32 = 1000;
    let ip = |n: u32| IpAddr::from((0x0a60_0100 + n).to_be_bytes());
    let pod = |n: u32| SocketAddr::new(IpAddr::from((0x0af4_0002 + n).to_be_bytes()), 8080);
    let many = |changed: u32| {
        let web = service("web", CLUSTER_IP.parse().unwrap(), &[at(POD, 8080)]);
        let service = |n: u32| {
            let pods: Vec<SocketAddr> = (0..5).map(|i| pod((n * 5 + i) % 200)).collect();
            let left = if n == changed { &pods[1..] } else { &pods };
            service(&format!("s{n:04}"), ip(n), left)
        };
        let services = (0..SERVICES).map(service).chain([web]);
        table(services.collect())
    };
    for _ in 0..rounds {
        let world = World::new();
        let server = Server::start(&world.pod, at(POD, 8080));
        world.node.ip("route add 10.96.0.0/16 dev lo");
        let mut path = world.node.run(|| Nftables::new("bench").unwrap());
        let all = many(u32::MAX);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        path.apply(&one_service()).unwrap();
        let web = at(CLUSTER_IP, 80);
        let cost_of = |n: usize| {
            let cpu = server.cpu();
            let own = connections(&world.client, web, n);
            (own + server.cpu() - cpu).as_secs_f64() * 1e6 / n as f64
        };
        cost_of(500);
        report.add("a connection, 1 service", "µs", None, cost_of(2000));
        path.remove().unwrap();
        let began = Instant::now();
        path.apply(&all).unwrap();
        let name = "1,000 services of 5 endpoints";
        report.add(name, "ms", Some(200.0), ms(began.elapsed()));
        let changes: Vec<f64> = (0..50)
            .map(|n| {
                let next = many(n * 7);
                let began = Instant::now();
                path.apply(&next).unwrap();
                ms(began.elapsed())
            })
            .collect();
        let one = "one endpoint of 5,000";
        report.add(one, "ms", Some(5.0), quantile(&changes, 0.5));
        let name = format!("{one}, p95");
        report.add(&name, "ms", Some(5.0), quantile(&changes, 0.95));
        cost_of(500);
        let many = cost_of(2000);
        report.add("a connection, 1,000 services", "µs", None, many);
    }
    report.ratio(
        "a connection, 1,000 services to 1",
        "a connection, 1,000 services",
        "a connection, 1 service",
        None,
    );
}

/// A readiness probe gets its first 500 → the last connection that a client of the service could begin, on a node with the
/// daemon and one pod.
fn readiness(report: &mut Report, samples: usize) {
    let machine = Namespace::new();
    machine.run(|| {
        let config = json!({"network": "bridge", "healthzBindAddress": "", "healthzPort": 0});
        let mut node = Node::start_with("embedded", &config, &[]);
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"clusterIP": CLUSTER_IP, "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}});
        node.add("web", &service);
        let took: Vec<f64> = (0..samples).map(|n| loses_its_clients(&node, n)).collect();
        let name = "readiness lost → last new connection";
        took.iter().for_each(|ms| report.add(name, "ms", None, *ms));
        let p99 = quantile(&took, 0.99);
        report.add(&format!("{name}, p99"), "ms", Some(20.0), p99);
        node.stop();
    });
}

fn loses_its_clients(node: &Node, n: usize) -> f64 {
    let name = format!("web-{n}");
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodMilliseconds": 50, "timeoutSeconds": 20,
        "failureThreshold": 1});
    let mut pod = node::pod(node, &name, &[], json!({"readinessProbe": probe}));
    pod["metadata"]["labels"] = json!({"app": "web"});
    node.add(&name, &pod);
    let (snapshot, _) = node.watch().until("the pod to be ready", |s| {
        view(s, &name).is_some_and(|v| v.status.is_ready())
    });
    let connect = || TcpStream::connect(at(CLUSTER_IP, 80));
    let end = Instant::now() + support::CEILING;
    while connect().is_err() {
        assert!(Instant::now() < end, "nobody is sent to {name}");
    }
    let (_, state) = node.container(view(&snapshot, &name).unwrap());
    let last = std::thread::scope(|s| {
        let client = s.spawn(|| {
            let mut last = 0;
            loop {
                let now = unix_ns();
                match connect() {
                    Ok(_) => last = now,
                    Err(_) => return last,
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        set_target(state.process.unwrap(), "health=fail");
        client.join().unwrap()
    });
    let failed = node.stamps(&name, "fail")[0];
    node.remove(&name);
    ms_between(failed, last.max(failed))
}
