//! The embedded network: a real daemon with real containers at a real bridge, on a machine of the test's own.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::unistd::{Pid, read};
use podprobe::daemon::settings::Settings;
use podprobe::engine::shims::state::{self, STATE, SandboxState};
use podprobe::net::network::NetworkChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::api_server::ApiServer;
use crate::support::bridged::{
    address, addresses, ask, bridge, configure, interfaces, listen, namespace, nft, on_the_bridge,
    port_of, seen_from, server, uid,
};
use crate::support::daemon::{Day, NODE};
use crate::support::netns::{MACHINE, Netns, OUTSIDE, OUTSIDE_V6, ip, try_ip};
use crate::support::uninterrupted::uninterrupted;
use crate::support::{Node, wait_until};

#[test]
fn pods_reach_one_another_and_the_node_and_keep_their_addresses() {
    on_the_bridge(json!({}), |day, _| {
        for name in ["a", "b"] {
            day.put(name, server(day, name));
        }
        ["a", "b"].iter().for_each(|name| day.wait_ready(name));
        let (a, b) = (address(day, "a"), address(day, "b"));
        let range = "10.244.0.0/24"
            .parse::<podprobe::api::cidr::Cidr>()
            .unwrap();
        assert!(range.contains(a) && range.contains(b) && a != b, "{a} {b}");
        let inside = namespace(day, "a");
        assert_eq!(inside.run(|| ask((b, 80))).unwrap(), "b-edge");
        assert_eq!(inside.run(|| ask((a, 80))).unwrap(), "a-edge");
        assert_eq!(ask((a, 80)).unwrap(), "a-edge");
        let node = listen("0.0.0.0");
        for at in ["10.244.0.1", MACHINE] {
            let at = SocketAddr::new(at.parse().unwrap(), port_of(&node));
            assert_eq!(seen_from(&node, &inside, at), a);
        }
        let hosts = day.node.layout.pod_data(&uid(day, "a")).join("etc-hosts");
        let hosts = fs::read_to_string(hosts).unwrap();
        assert!(hosts.contains(&format!("\n{a}\ta-edge\n")), "{hosts}");
        let before = day.processes();
        day.crash();
        assert_eq!((address(day, "a"), address(day, "b")), (a, b));
        day.put("c", server(day, "c"));
        day.wait_ready("c");
        assert!(![a, b].contains(&address(day, "c")));
        assert_eq!(
            inside.run(|| ask((address(day, "c"), 80))).unwrap(),
            "c-edge"
        );
        assert!(before.iter().all(|(name, p)| day.process(name) == *p));
    });
}

/// Outside of the machine pods appear with its address; inside with their own.
#[test]
fn pods_reach_the_outside_as_the_node() {
    on_the_bridge(
        json!({"podCIDR": "10.244.0.0/24,fd00:10::/112"}),
        |day, outside| {
            day.put("a", server(day, "a"));
            day.wait_ready("a");
            let inside = namespace(day, "a");
            for (at, node) in [(OUTSIDE, MACHINE), (OUTSIDE_V6, "2001:db8::1")] {
                let listener = outside.run(|| listen(at));
                let at = SocketAddr::new(at.parse().unwrap(), port_of(&listener));
                assert_eq!(seen_from(&listener, &inside, at).to_string(), node);
            }
        },
    );
}

/// What belongs to no connection has no address of the node to leave with, and the addresses of pods are nobody's outside.
#[test]
fn no_packet_leaves_the_machine_with_the_address_of_a_pod() {
    on_the_bridge(json!({}), |day, outside| {
        day.put("a", server(day, "a"));
        day.wait_ready("a");
        let (a, inside) = (address(day, "a"), namespace(day, "a"));
        let (host, wire) = outside.run(|| {
            let all = SockProtocol::EthAll;
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let wire = socket(AddressFamily::Packet, SockType::Datagram, flags, all).unwrap();
            (UdpSocket::bind((OUTSIDE, 0)).unwrap(), wire)
        });
        host.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let gateway = "0a:58:00:00:00:01";
        send_frames(&inside, &["stray", &a.to_string(), OUTSIDE, gateway]);
        // What is sent in order is heard in order.
        inside.run(|| {
            let honest = UdpSocket::bind((a, 0)).unwrap();
            honest
                .send_to(b"honest", host.local_addr().unwrap())
                .unwrap();
        });
        uninterrupted(|| host.recv_from(&mut [0; 100])).unwrap();
        let mut senders = BTreeSet::new();
        let mut packet = [0; 2000];
        while let Ok(length) = read(&wire, &mut packet) {
            let (version, source) = (packet[0] >> 4, &packet[12..16]);
            if version == 4 && length >= 20 {
                senders.insert(IpAddr::from(<[u8; 4]>::try_from(source).unwrap()));
            }
        }
        let senders: Vec<_> = senders.iter().map(IpAddr::to_string).collect();
        assert!(senders.contains(&MACHINE.to_owned()), "{senders:?}");
        assert!(!senders.contains(&a.to_string()), "{senders:?}");
    });
}

/// A port of the node leads to the pod, for the outside, for the node, and for the pod itself.
#[test]
fn a_host_port_leads_to_its_pod() {
    on_the_bridge(json!({}), |day, outside| {
        let port = |pod: &mut Value, port: Value| {
            pod["spec"]["containers"][0]["ports"] = json!([port]);
        };
        let mut a = server(day, "a");
        port(&mut a, json!({"containerPort": 80, "hostPort": 8080}));
        day.put("a", a);
        let mut b = server(day, "b");
        port(
            &mut b,
            json!({"containerPort": 80, "hostPort": 8081, "hostIP": "10.244.0.1"}),
        );
        day.put("b", b);
        ["a", "b"].iter().for_each(|name| day.wait_ready(name));
        let at = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        assert_eq!(outside.run(|| ask(at(MACHINE, 8080))).unwrap(), "a-edge");
        assert_eq!(ask(at(MACHINE, 8080)).unwrap(), "a-edge");
        // As Docker sets it, and as on a machine without it.
        for through_bridges in ["1", "0"] {
            let sysctl = "/proc/sys/net/bridge/bridge-nf-call-iptables";
            if fs::exists(sysctl).unwrap() {
                fs::write(sysctl, through_bridges).unwrap();
            }
            for name in ["a", "b"] {
                let pod = namespace(day, name);
                assert_eq!(pod.run(|| ask(at(MACHINE, 8080))).unwrap(), "a-edge");
            }
        }
        assert_eq!(ask(at("10.244.0.1", 8081)).unwrap(), "b-edge");
        assert!(outside.run(|| ask(at(MACHINE, 8081))).is_err());
        let listener = namespace(day, "a").run(|| TcpListener::bind("0.0.0.0:9999").unwrap());
        let mut c = server(day, "c");
        port(&mut c, json!({"containerPort": 80, "hostPort": 8082}));
        let taken = TcpListener::bind("0.0.0.0:8082").unwrap();
        day.put("c", c);
        let said = day.wait_event("c", "FailedCreatePodSandBox");
        let own = std::process::id();
        let by = format!("hostPort 8082/TCP on 0.0.0.0 is in use by process {own} (");
        assert!(said.contains(&by), "{said}");
        assert!(
            said.contains("); choose another hostPort, or end that process"),
            "{said}"
        );
        drop((listener, taken));
        day.wait_ready("c");
        assert_eq!(outside.run(|| ask(at(MACHINE, 8082))).unwrap(), "c-edge");
        day.delete("a");
        day.wait_gone("a");
        wait_until("the port to be free", || {
            outside.run(|| ask(at(MACHINE, 8080))).is_err()
        });
    });
}

/// Whether a datagram to `at` comes to this server, and its answer back.
fn reaches(server: &UdpSocket, at: SocketAddr) -> bool {
    let patience = Some(Duration::from_millis(200));
    let client = UdpSocket::bind("0.0.0.0:0").unwrap();
    client.set_read_timeout(patience).unwrap();
    server.set_read_timeout(patience).unwrap();
    let mut bytes = [0; 100];
    let asked = client.connect(at).and_then(|()| client.send(b"?"));
    let come = asked.and_then(|_| uninterrupted(|| server.recv_from(&mut bytes)));
    let answered = come.and_then(|(_, from)| server.send_to(b"!", from));
    answered
        .and_then(|_| uninterrupted(|| client.recv(&mut bytes)))
        .is_ok()
}

/// The ports of a pod are podprobe's own on loopback, also while one sandbox follows another: after a change of its file, and
/// after the loss of the sandbox.
#[test]
fn host_ports_follow_their_pod_from_sandbox_to_sandbox() {
    on_the_bridge(json!({}), |day, outside| {
        let pod = |answer: &str| {
            let ports = json!([
                {"containerPort": 80, "hostPort": 8080},
                {"containerPort": 53, "hostPort": 5353, "protocol": "UDP"},
            ]);
            let probe = json!({"tcpSocket": {"port": 80}, "periodMilliseconds": 50, "timeoutMilliseconds": 1000});
            let script = "exec nc -ll -p 80 -e /bin/hostname";
            let more = json!({"ports": ports, "readinessProbe": probe});
            let mut pod = day.pod("a", script, more);
            pod["spec"]["hostname"] = json!(answer);
            pod
        };
        let at = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        let check = |answer: &str| {
            let is = |text: std::io::Result<String>| text.is_ok_and(|t| t == answer);
            wait_until(&format!("{answer} on every side"), || {
                is(outside.run(|| ask(at(MACHINE, 8080))))
                    && is(ask(at(MACHINE, 8080)))
                    && is(ask(at("127.0.0.1", 8080)))
            });
            let server = namespace(day, "a").run(|| UdpSocket::bind("0.0.0.0:53").unwrap());
            wait_until("datagrams from every side", || {
                outside.run(|| reaches(&server, at(MACHINE, 5353)))
                    && reaches(&server, at("127.0.0.1", 5353))
            });
        };
        let sandbox = || {
            let all = fs::read_dir(day.node.layout.sandboxes()).unwrap();
            all.flatten().next().unwrap().path()
        };
        for edit in ["first", "second", "third", "fourth"] {
            day.put("a", pod(edit));
            check(edit);
        }
        let before = sandbox();
        let state: SandboxState = state::read(&before, STATE).unwrap();
        kill(Pid::from_raw(state.process.pid), Signal::SIGKILL).unwrap();
        wait_until("another sandbox", || !before.exists());
        check("fourth");
        // No attempt has failed: another one would come after a pause.
        let said = day.says(&["describe", "pod", "a-edge"]) + &day.log();
        assert!(
            !said.contains("FailedCreatePodSandBox") && !said.contains("is in use by"),
            "{said}"
        );
    });
}

/// Which of its records is lost or damaged: the pod keeps its network and its address, and no other pod gets that.
#[test]
fn a_lost_record_of_a_network_costs_no_pod_its_address() {
    on_the_bridge(json!({}), |day, outside| {
        let mut a = server(day, "a");
        a["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8080}]);
        day.put("a", a);
        day.wait_ready("a");
        let (own, process) = (address(day, "a"), day.process("a"));
        let sandbox = fs::read_dir(day.node.layout.sandboxes()).unwrap();
        let sandbox = sandbox.flatten().next().unwrap().path();
        let mut taken = vec![own];
        for (n, (record, content)) in [
            ("bridge.json", None),
            ("bridge.json", Some("{\"interface\": ")),
            ("network.json", None),
            ("network.json", Some("")),
        ]
        .into_iter()
        .enumerate()
        {
            day.kill9();
            match content {
                None => fs::remove_file(sandbox.join(record)).unwrap(),
                Some(text) => fs::write(sandbox.join(record), text).unwrap(),
            }
            day.start();
            let name = format!("b{n}");
            day.put(&name, server(day, &name));
            day.wait_ready(&name);
            let next = address(day, &name);
            assert!(!taken.contains(&next), "{record}: {next} of {taken:?}");
            taken.push(next);
            assert_eq!((address(day, "a"), day.process("a")), (own, process));
            let (inside, of_node) = (namespace(day, &name), (MACHINE, 8080));
            let at = |(ip, port): (&str, u16)| SocketAddr::new(ip.parse().unwrap(), port);
            let is_a = |text: std::io::Result<String>| text.is_ok_and(|t| t == "a-edge");
            wait_until(&format!("a to be reached without its {record}"), || {
                is_a(inside.run(|| ask((own, 80)))) && is_a(outside.run(|| ask(at(of_node))))
            });
            for record in ["bridge.json", "network.json"] {
                assert!(sandbox.join(record).exists(), "{record}");
            }
        }
        // Nothing says any more which address it has: it is made anew, and not ready before.
        day.kill9();
        for record in ["bridge.json", "network.json"] {
            fs::remove_file(sandbox.join(record)).unwrap();
        }
        day.start();
        wait_until("another sandbox", || !sandbox.exists());
        day.wait_ready("a");
        let inside = namespace(day, "b0");
        // Its status may still be that of the old one.
        wait_until("a to be reached in its new sandbox", || {
            let now = address(day, "a");
            inside.run(|| ask((now, 80))).is_ok_and(|t| t == "a-edge")
        });
        let now = address(day, "a");
        assert!(!taken[1..].contains(&now), "{now} of {taken:?}");
    });
}

/// A pod that may send whatever it wants sends with its own addresses alone, and hears nothing that is for others.
#[test]
fn nobody_hears_a_pod_that_speaks_with_the_address_of_another() {
    on_the_bridge(json!({}), |day, _| {
        for name in ["a", "b"] {
            day.put(name, server(day, name));
        }
        ["a", "b"].iter().for_each(|name| day.wait_ready(name));
        let (a, b) = (address(day, "a"), address(day, "b"));
        let node = UdpSocket::bind("10.244.0.1:0").unwrap();
        node.set_nonblocking(true).unwrap();
        let inside = namespace(day, "a");
        let say = |from: &str, text: &str| {
            inside.run(|| {
                let socket = UdpSocket::bind((from, 0)).unwrap();
                // A packet that is dropped is no error of the sender's.
                socket
                    .send_to(text.as_bytes(), node.local_addr().unwrap())
                    .unwrap();
            });
        };
        let foreign = [
            "192.0.2.77".to_owned(),
            b.to_string(),
            "10.244.0.99".to_owned(),
        ];
        for from in &foreign {
            inside.run(|| ip(&format!("addr add {from}/32 dev eth0")));
            say(from, "spoofed");
        }
        inside.run(|| ip("link set eth0 address 02:02:02:02:02:02"));
        say(&a.to_string(), "another hardware address");
        let mac = format!(
            "0a:58:{:02x}:{:02x}:{:02x}:{:02x}",
            10,
            244,
            0,
            last_byte(a)
        );
        inside.run(|| ip(&format!("link set eth0 address {mac}")));
        say(&a.to_string(), "honest");
        let mut heard = Vec::new();
        wait_until("the honest packet", || {
            let mut bytes = [0; 100];
            while let Ok((n, from)) = node.recv_from(&mut bytes) {
                heard.push((String::from_utf8_lossy(&bytes[..n]).into_owned(), from.ip()));
            }
            heard.iter().any(|(text, _)| text == "honest")
        });
        assert_eq!(heard, [("honest".to_owned(), a)]);
        // b answers on its own address, and not to the one that a has taken.
        assert_eq!(ask((b, 80)).unwrap(), "b-edge");
    });
}

fn last_byte(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    }
}

/// What a container has on its loopback, or the node on its own, is nobody else's.
#[test]
fn loopback_is_reached_by_nobody_else() {
    on_the_bridge(json!({}), |day, _| {
        for name in ["a", "b"] {
            day.put(name, server(day, name));
        }
        ["a", "b"].iter().for_each(|name| day.wait_ready(name));
        let secret = namespace(day, "b").run(|| listen("127.0.0.1"));
        let own = listen("127.0.0.1");
        let inside = namespace(day, "a");
        let refused = |ip: &str, listener: &TcpListener| {
            let at = SocketAddr::new(ip.parse().unwrap(), port_of(listener));
            let reached =
                inside.run(|| TcpStream::connect_timeout(&at, Duration::from_millis(500)));
            assert!(reached.is_err(), "{at}");
        };
        refused(&address(day, "b").to_string(), &secret);
        refused("10.244.0.1", &own);
        // Loopback addresses by way of the neighbours, as a pod with CAP_NET_ADMIN can send them.
        inside.run(|| {
            ip("addr del 127.0.0.1/8 dev lo");
            ip("route add 127.0.0.1/32 via 10.244.0.1 dev eth0");
        });
        refused("127.0.0.1", &own);
        refused("127.0.0.1", &secret);
    });
}

/// A range of the node is not taken away from it, and a range that is full is said.
#[test]
fn a_range_that_cannot_be_used_is_said_and_the_pod_waits() {
    ip_free("192.0.2.128/25", |day| {
        let said = day.wait_event("a", "FailedCreatePodSandBox");
        assert!(
            said.contains("podCIDR 192.0.2.128/25 overlaps 192.0.2.0/24, which the node reaches through up0; give podCIDR another range in the configuration"),
            "{said}"
        );
        assert_eq!(interfaces("pp"), [""; 0]);
    });
    ip_free("10.9.0.0/30", |day| {
        day.wait_ready("a");
        day.put("b", server(day, "b"));
        let said = day.wait_event("b", "FailedCreatePodSandBox");
        assert!(
            said.contains("podCIDR 10.9.0.0/30 has no address left: 1 pods have one"),
            "{said}"
        );
        day.delete("a");
        day.wait_ready("b");
    });
}

fn ip_free(range: &str, test: impl FnOnce(&mut Day<'_>) + Send) {
    on_the_bridge(json!({"podCIDR": range}), |day, _| {
        day.put("a", server(day, "a"));
        test(day);
    });
}

/// Another podCIDR is for new sandboxes; those that are there keep their addresses and reach all the others.
#[test]
fn a_changed_range_is_for_new_pods() {
    on_the_bridge(json!({"podCIDR": "10.9.0.0/24"}), |day, _| {
        day.put("a", server(day, "a"));
        day.wait_ready("a");
        let a = address(day, "a");
        day.kill9();
        configure(day.node, &json!({"podCIDR": "10.8.0.0/24,fd00:8::/112"}));
        day.start();
        day.put("b", server(day, "b"));
        day.wait_ready("b");
        assert_eq!(address(day, "a"), a);
        assert_eq!(
            addresses(day, "b"),
            [
                "10.8.0.2".parse::<IpAddr>().unwrap(),
                "fd00:8::2".parse().unwrap()
            ]
        );
        let b = address(day, "b");
        assert_eq!(namespace(day, "a").run(|| ask((b, 80))).unwrap(), "b-edge");
        assert_eq!(namespace(day, "b").run(|| ask((a, 80))).unwrap(), "a-edge");
        let six: IpAddr = "fd00:8::2".parse().unwrap();
        assert_eq!(ask((six, 80)).unwrap(), "b-edge");
        let bridge = bridge();
        assert!(
            try_ip(&format!("addr show {bridge}"))
                .1
                .contains("10.9.0.1/24")
        );
        day.delete("a");
        wait_until("the old address of the node to go", || {
            !try_ip(&format!("addr show {bridge}"))
                .1
                .contains("10.9.0.1/24")
        });
        day.check_starts("b", 1);
    });
}

/// Other nodes look for the pods of a node in the range that the control plane has given it, so no pod has an address before.
#[test]
fn a_node_of_a_cluster_has_the_range_that_it_is_given() {
    on_the_bridge(json!({}), |day, _| {
        let Some(cluster) = ApiServer::start() else {
            return;
        };
        day.put("old", server(day, "old"));
        day.wait_ready("old");
        let old = address(day, "old");
        day.kill9();
        let config = json!({"nodeIP": "127.0.0.1", "kubeconfig": cluster.kubeconfig_with_token()});
        configure(day.node, &config);
        cluster.create_pod("web", server(day, "web")["spec"].clone());
        let give = || {
            let lease = || cluster.get("leases", "kube-node-lease", NODE);
            wait_until("the node to join", || lease().is_some());
            let pods_asked_for = cluster.count("GET", "/api/v1/pods?");
            let mut node = cluster.get("nodes", "", NODE).unwrap();
            node["spec"]["podCIDRs"] = json!(["10.7.3.0/24", "fd00:7:3::/112"]);
            cluster.put("nodes", node);
            pods_asked_for
        };
        // The daemon answers clients when it knows its pods.
        let pods_asked_for = std::thread::scope(|scope| {
            let control_plane = scope.spawn(give);
            day.start();
            control_plane.join().unwrap()
        });
        assert_eq!(pods_asked_for, 0);
        let web = cluster.wait_for_pod("web", |pod| pod["status"]["phase"] == "Running");
        let ips = json!([{"ip": "10.7.3.2"}, {"ip": "fd00:7:3::2"}]);
        assert_eq!(web["status"]["podIPs"], ips);
        assert_eq!(address(day, "old"), old);
        let web: IpAddr = "10.7.3.2".parse().unwrap();
        let answer = || namespace(day, "old").run(|| ask((web, 80)));
        wait_until("the pod to answer", || {
            answer().is_ok_and(|name| name == "web")
        });

        // The node starts again while nobody can be asked.
        cluster.down();
        day.crash();
        day.put("late", server(day, "late"));
        day.wait_ready("late");
        let late = ["10.7.3.3", "fd00:7:3::3"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(addresses(day, "late"), late);
        day.check_starts("old", 1);
        cluster.up();
        cluster.delete_pod("web", 1);
        cluster.wait_until_gone("web");
    });
}

/// What somebody removes or takes down by hand is made again, and no pod notices more than the pause.
#[test]
fn what_is_removed_by_hand_is_made_again() {
    on_the_bridge(json!({}), |day, _| {
        day.put("a", server(day, "a"));
        day.put("b", server(day, "b"));
        ["a", "b"].iter().for_each(|name| day.wait_ready(name));
        let (a, before) = (address(day, "a"), day.processes());
        let reached = || {
            namespace(day, "b")
                .run(|| ask((a, 80)))
                .is_ok_and(|t| t == "a-edge")
        };
        assert!(reached());
        let ports = interfaces("ppv");
        let (bridge, [one, two]) = (bridge(), [&ports[0], &ports[1]]);
        let rules = || {
            nft("list ruleset")
                .lines()
                .filter(|l| !l.contains('"'))
                .count()
        };
        let all_rules = rules();
        let tables = nft("list tables");
        assert_eq!(tables.matches("-network").count(), 2, "{tables}");
        let table = tables.lines().next().unwrap().trim_start_matches("table ");
        let as_before = || reached() && rules() == all_rules;
        assert!(as_before());
        for (damage, filter) in [
            (
                [format!("link del {bridge}"), format!("link del {one}")],
                "flush ruleset",
            ),
            (
                [
                    format!("link set {two} nomaster"),
                    format!("addr flush dev {bridge}"),
                ],
                &format!("flush set {table} pods"),
            ),
            (
                [
                    format!("link set {two} down"),
                    format!("link set {bridge} down"),
                ],
                "list tables",
            ),
        ] {
            damage.iter().for_each(|line| ip(line));
            nft(filter);
            assert!(!reached(), "{damage:?}");
            wait_until(
                &format!("the network after {damage:?} and {filter}"),
                as_before,
            );
        }
        assert_eq!(day.processes(), before);
        day.log_with(&[
            "was gone: made again",
            "was cut off: connected again",
            "were changed by somebody else",
        ]);
    });
}

/// A daemon that runs writes its records again, and the next one finds them.
#[test]
fn a_wiped_run_directory_costs_no_pod_its_network() {
    on_the_bridge(json!({}), |day, _| {
        day.put("a", server(day, "a"));
        day.wait_ready("a");
        let (a, process) = (address(day, "a"), day.process("a"));
        let records = day.node.layout.sandboxes();
        fs::remove_dir_all(&records).unwrap();
        let files = || {
            let dir = fs::read_dir(&records).ok()?.flatten().next()?.path();
            Some(["sandbox.json", "network.json", "bridge.json"].map(|f| dir.join(f).exists()))
        };
        wait_until("the records to be written again", || {
            files() == Some([true; 3])
        });
        day.crash();
        day.put("b", server(day, "b"));
        day.wait_ready("b");
        assert_eq!((address(day, "a"), day.process("a")), (a, process));
        assert_eq!(namespace(day, "b").run(|| ask((a, 80))).unwrap(), "a-edge");
    });
}

#[test]
fn without_a_network_pods_have_loopback_alone() {
    on_the_bridge(json!({}), |day, _| {
        day.kill9();
        let node = Node {
            dir: day.node.dir.clone(),
            layout: day.node.layout.clone(),
            settings: Settings {
                network: NetworkChoice::None,
                ..day.node.settings.clone()
            },
        };
        let mut none = Day::begin(&node);
        none.put("a", server(&none, "a"));
        none.wait_ready("a");
        assert_eq!(address(&none, "a").to_string(), "127.0.0.1");
        assert_eq!(interfaces("pp"), [""; 0]);
        let process = none.process("a");
        none.kill9();
        day.start();
        day.put("b", server(day, "b"));
        day.wait_ready("b");
        assert_eq!(address(day, "a").to_string(), "127.0.0.1");
        assert_eq!(day.process("a"), process);
    });
}

/// With a configuration of CNI in place `auto` is CNI, at once. A pod has the plugins' address, and leaves nothing of it; those
/// that are at the bridge stay there.
#[test]
fn pods_are_connected_by_the_plugins_that_are_configured() {
    if !fs::exists("/usr/lib/cni/bridge").unwrap() {
        return support::skip::skip("needs containernetworking-plugins");
    }
    on_the_bridge(json!({}), |day, _| {
        day.put("a", server(day, "a"));
        day.wait_ready("a");
        let ipam = day.node.dir.path().join("ipam");
        let list = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni9",
            "isGateway": true, "ipam": {"type": "host-local", "dataDir": ipam, "subnet": "10.77.0.0/24",
                "routes": [{"dst": "0.0.0.0/0"}]}}]});
        let conf = day.node.layout.cni_conf_dir();
        fs::create_dir_all(&conf).unwrap();
        fs::write(conf.join("10-pods.conflist"), list.to_string()).unwrap();
        day.put("b", server(day, "b"));
        day.wait_ready("b");
        let b = address(day, "b");
        assert_eq!(b.to_string(), "10.77.0.2");
        assert_eq!(ask((b, 80)).unwrap(), "b-edge");
        assert_eq!(namespace(day, "a").run(|| ask((b, 80))).unwrap(), "b-edge");
        let reserved = || {
            fs::read_dir(ipam.join("pods"))
                .unwrap()
                .flatten()
                .map(|e| e.file_name())
        };
        assert!(reserved().any(|name| name == "10.77.0.2"));
        day.crash();
        assert_eq!(address(day, "b"), b);
        assert_eq!(ask((b, 80)).unwrap(), "b-edge");
        day.delete("b");
        day.wait_gone("b");
        wait_until("the address to be free", || {
            !reserved().any(|name| name == "10.77.0.2")
        });
        fs::write(conf.join("10-pods.conflist"), "{").unwrap();
        day.put("c", server(day, "c"));
        let said = day.wait_event("c", "FailedCreatePodSandBox");
        assert!(said.contains("10-pods.conflist"), "{said}");
        fs::remove_file(conf.join("10-pods.conflist")).unwrap();
        day.wait_ready("c");
        assert!(address(day, "c").to_string().starts_with("10.244.0."));
    });
}

/// Frames as a pod with CAP_NET_RAW can make them: `what` says which; see the script.
fn send_frames(from: &Netns, what: &[&str]) {
    let done = from.run(|| {
        Command::new("python3")
            .args(["-c", FRAMES])
            .args(what)
            .status()
            .unwrap()
    });
    assert!(done.success(), "{what:?}");
}

const FRAMES: &str = r#"
import socket, struct, sys
def mac(t): return bytes.fromhex(t.replace(":", ""))
def checksum(b):
    b += b"\0" * (len(b) % 2)
    n = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
own = s.getsockname()[4]
kind, more = sys.argv[1], sys.argv[2:]
if kind == "advertise":
    src, dst = socket.inet_pton(socket.AF_INET6, "fe80::2"), socket.inet_pton(socket.AF_INET6, "ff02::1")
    prefix = struct.pack("!BBBBIII", 3, 4, 64, 0xc0, 3600, 3600, 0) + socket.inet_pton(socket.AF_INET6, "2001:bad::")
    body = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + prefix
    pseudo = src + dst + struct.pack("!II", len(body), 58)
    body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
    packet = struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + src + dst + body
    s.send(mac("01:80:c2:00:00:0e") + own + b"\x86\xdd" + packet)
elif kind == "strangers":
    node, own_ip = socket.inet_pton(socket.AF_INET6, more[0]), more[1]
    for n in range(int(more[2])):
        src = socket.inet_pton(socket.AF_INET6, own_ip if own_ip != "random" else "fe80::%x:%x" % (0x1000 + n, 0xbeef))
        dst = bytes.fromhex("ff0200000000000000000001ff") + node[13:]
        body = struct.pack("!BBHI", 135, 0, 0, 0) + node + b"\x01\x01" + own
        pseudo = src + dst + struct.pack("!II", len(body), 58)
        body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
        packet = struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + src + dst + body
        s.send(mac("33:33:ff") + node[13:] + own + b"\x86\xdd" + packet)
elif kind == "neighbour":
    src, dst = socket.inet_pton(socket.AF_INET6, "fe80::2"), socket.inet_pton(socket.AF_INET6, "ff02::1")
    body = struct.pack("!BBHI", 136, 0, 0, 0x20000000) + socket.inet_pton(socket.AF_INET6, more[0]) + b"\x02\x01" + own
    pseudo = src + dst + struct.pack("!II", len(body), 58)
    body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
    packet = struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + src + dst + body
    s.send(mac("33:33:00:00:00:01") + own + b"\x86\xdd" + packet)
elif kind == "answer":
    ip, to, at = socket.inet_aton(more[0]), mac(more[1]), socket.inet_aton(more[2])
    s.send(to + own + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x800, 6, 4, 2) + own + ip + to + at)
elif kind == "claim":
    victim, ip = mac(more[0]), socket.inet_aton(more[1])
    arp = struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + own + ip + b"\0" * 6 + ip
    for to in ["ff:ff:ff:ff:ff:ff", "01:80:c2:00:00:0e"]:
        s.send(mac(to) + victim + b"\x08\x06" + arp)
        s.send(mac(to) + victim + b"\x88\xcc" + b"\0" * 50)
elif kind == "udp":
    src, dst, port = socket.inet_aton(more[0]), socket.inet_aton(more[1]), int(more[2])
    udp = struct.pack("!HHHH", 53, port, 8 + 6, 0) + b"forged"
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0) + src + dst
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    s.send(mac("01:80:c2:00:00:0e") + own + b"\x08\x00" + head + udp)
elif kind == "stray":
    src, dst, gateway = socket.inet_aton(more[0]), socket.inet_aton(more[1]), mac(more[2])
    tcp = struct.pack("!HHIIBBHHH", 40000, 80, 1, 0, 0x50, 0, 1000, 0, 0)
    tcp = tcp[:16] + struct.pack("!H", checksum(src + dst + struct.pack("!HH", 6, len(tcp)) + tcp)) + tcp[18:]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 1, 0, 255, 6, 0) + src + dst
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    for _ in range(100): s.send(gateway + own + b"\x08\x00" + head + tcp)
"#;

fn mac_of(ip: IpAddr) -> String {
    format!("0a:58:0a:f4:00:{:02x}", last_byte(ip))
}

/// What a pod sends as raw frames gives the node no route, no forged packet, and no other pod's traffic to the pod.
#[test]
fn raw_frames_of_a_pod_change_nothing_for_others() {
    on_the_bridge(json!({}), |day, _| {
        for name in ["a", "b"] {
            day.put(name, server(day, name));
        }
        let web = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}});
        day.put("web", web);
        ["a", "b"].iter().for_each(|name| day.wait_ready(name));
        wait_until("the tables of services", || {
            nft("list tables").contains("-services")
        });
        let (a, b) = (address(day, "a"), address(day, "b"));
        let (inside, node) = (namespace(day, "a"), UdpSocket::bind("0.0.0.0:0").unwrap());
        let port = node.local_addr().unwrap().port();
        send_frames(&inside, &["advertise"]);
        send_frames(
            &inside,
            &["udp", "192.0.2.2", "10.244.0.1", &port.to_string()],
        );
        send_frames(&inside, &["claim", &mac_of(b), &b.to_string()]);
        // What is sent in order is heard in order: after this packet the others have had their effect.
        inside.run(|| {
            let honest = UdpSocket::bind((a, 0)).unwrap();
            honest.send_to(b"honest", ("10.244.0.1", port)).unwrap();
        });
        let mut bytes = [0; 100];
        node.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let (n, from) = uninterrupted(|| node.recv_from(&mut bytes)).unwrap();
        assert_eq!((&bytes[..n], from.ip()), (&b"honest"[..], a));
        let routes = try_ip("-6 route").1 + &try_ip("-6 addr").1;
        assert!(
            !routes.contains("2001:bad") && !routes.contains("via fe80::2 "),
            "{routes}"
        );
        assert_eq!(ask((b, 80)).unwrap(), "b-edge");
        let packets = || {
            let output = Command::new("cat").arg("/proc/net/dev").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let line = text
                .lines()
                .find_map(|l| l.trim().strip_prefix("lo:"))
                .unwrap();
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let before = packets();
        send_frames(
            &inside,
            &["stray", &a.to_string(), "10.96.7.7", "0a:58:00:00:00:01"],
        );
        assert_eq!(inside.run(|| ask((b, 80))).unwrap(), "b-edge");
        assert!(
            packets() - before < 100,
            "{} packets went through loopback",
            packets() - before
        );
    });
}

/// The kernel has one table of neighbours for all of the node. What a pod sends from addresses that it makes up, or to those
/// that nobody has, takes no place there.
#[test]
fn a_pod_does_not_fill_the_table_of_neighbours() {
    let ranges = json!({"podCIDR": "10.244.0.0/24,fd00:10::/112"});
    on_the_bridge(ranges, |day, _| {
        day.put("a", server(day, "a"));
        day.wait_ready("a");
        let own = addresses(day, "a");
        let inside = namespace(day, "a");
        let node = UdpSocket::bind("[fd00:10::1]:0").unwrap();
        node.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let to_node = node.local_addr().unwrap();
        let heard = |from: SocketAddr, text: &str| {
            inside.run(|| {
                let honest = UdpSocket::bind(from).unwrap();
                honest.send_to(text.as_bytes(), to_node).unwrap();
            });
            let mut bytes = [0; 100];
            let length = uninterrupted(|| node.recv(&mut bytes)).unwrap();
            assert_eq!(&bytes[..length], text.as_bytes());
        };
        let neighbours = || try_ip(&format!("-6 neigh show dev {}", bridge())).1;
        let known = neighbours().lines().count();
        send_frames(&inside, &["strangers", "fd00:10::1", "random", "300"]);
        inside.run(|| {
            let socket = UdpSocket::bind((own[1], 0)).unwrap();
            for n in 0..300_u16 {
                let nobody = format!("fd00:10::{:x}", 0x1000 + n);
                let _ = socket.send_to(b"?", (nobody.as_str(), 9));
            }
        });
        // The node is to believe what it has not asked for.
        let accept = format!("/proc/sys/net/ipv4/conf/{}/arp_accept", bridge());
        fs::write(accept, "1").unwrap();
        let nobody = "10.244.0.77";
        send_frames(&inside, &["answer", nobody, "0a:58:00:00:00:01", nobody]);
        // What is sent in order is heard in order.
        heard((own[1], 0).into(), "honest");
        let found = try_ip(&format!("-4 neigh show dev {}", bridge())).1;
        assert!(!found.contains(nobody), "{found}");
        let found = neighbours();
        assert!(!found.contains("beef"), "{found}");
        assert!(found.lines().count() < known + 10, "{found}");
        // Its own link-local address is one that the node knows: how its kernel asks for neighbours.
        let IpAddr::V4(v4) = own[0] else {
            panic!("{own:?}")
        };
        let [_, _, _, last] = v4.octets();
        let link_local = format!("fe80::858:aff:fef4:{last:x}");
        let shown = inside.run(|| try_ip("-6 addr show dev eth0").1);
        assert!(shown.contains(&format!(" {link_local}/64 ")), "{shown}");
        send_frames(&inside, &["strangers", "fd00:10::1", &link_local, "1"]);
        wait_until("the pod's own address among the neighbours", || {
            neighbours().contains(&link_local)
        });
    });
}

/// Who has which hardware address is fixed, on the node and in pods: what a pod says of it changes nothing.
#[test]
fn a_pod_that_claims_to_be_a_neighbour_gets_none_of_its_traffic() {
    let ranges = json!({"podCIDR": "10.244.0.0/24,fd00:10::/112"});
    on_the_bridge(ranges, |day, _| {
        for name in ["a", "b"] {
            day.put(name, server(day, name));
        }
        ["a", "b"].iter().for_each(|name| day.wait_ready(name));
        let b = addresses(day, "b");
        let (thief, victim) = (namespace(day, "a"), namespace(day, "b"));
        let gateway = "0a:58:00:00:00:01";
        let all_reached = || {
            for ip in &b {
                assert_eq!(ask((*ip, 80)).unwrap(), "b-edge", "{ip}");
            }
            for from in ["10.244.0.1", "fd00:10::1"] {
                let node = listen(from);
                let at = SocketAddr::new(from.parse().unwrap(), port_of(&node));
                let seen = seen_from(&node, &victim, at);
                assert!(b.contains(&seen), "{seen}");
            }
        };
        all_reached();
        // A second answer counts at once, not after a second.
        let at_once = |interface: &str| {
            let locktime = format!("/proc/sys/net/ipv4/neigh/{interface}/locktime");
            fs::write(locktime, "0").unwrap();
        };
        at_once(&bridge());
        victim.run(|| at_once("eth0"));
        let node = UdpSocket::bind("10.244.0.1:0").unwrap();
        node.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let to_b = mac_of(b[0]);
        send_frames(&thief, &["neighbour", &b[1].to_string()]);
        send_frames(&thief, &["neighbour", "fd00:10::1"]);
        send_frames(
            &thief,
            &["answer", &b[0].to_string(), gateway, "10.244.0.1"],
        );
        send_frames(&thief, &["answer", "10.244.0.1", &to_b, &b[0].to_string()]);
        // What is sent in order is heard in order.
        thief.run(|| {
            let honest = UdpSocket::bind((address(day, "a"), 0)).unwrap();
            honest
                .send_to(b"honest", node.local_addr().unwrap())
                .unwrap();
        });
        uninterrupted(|| node.recv_from(&mut [0; 100])).unwrap();
        all_reached();
        let known = |ip: &str| try_ip(&format!("neigh show {ip}")).1;
        for ip in &b {
            let found = known(&ip.to_string());
            assert!(found.contains(&format!("lladdr {to_b} ")), "{found}");
        }
        for ip in ["10.244.0.1", "fd00:10::1"] {
            let found = victim.run(|| known(ip));
            assert!(found.contains(&format!("lladdr {gateway} ")), "{found}");
        }
    });
}

/// Has the next sandboxes connected by a plugin that runs these lines first.
fn restart_with_a_plugin(day: &mut Day<'_>, lines: &str) {
    use std::os::unix::fs::PermissionsExt;
    day.kill9();
    let bin = day.node.dir.path().join("plugins");
    fs::create_dir(&bin).unwrap();
    let script = format!(
        r#"#!/bin/sh
{lines}
[ "$CNI_COMMAND" != VERSION ] || echo '{{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}}'
[ "$CNI_COMMAND" != ADD ] || echo '{{"cniVersion": "1.0.0", "ips": [{{"address": "10.77.0.2/24"}}]}}'
"#
    );
    fs::write(bin.join("own"), script).unwrap();
    fs::set_permissions(bin.join("own"), fs::Permissions::from_mode(0o755)).unwrap();
    let conf = day.node.layout.cni_conf_dir();
    fs::create_dir_all(&conf).unwrap();
    let list = json!({"cniVersion": "1.0.0", "name": "own", "plugins": [{"type": "own"}]});
    fs::write(conf.join("10-own.conflist"), list.to_string()).unwrap();
    configure(day.node, &json!({"cniBinDir": bin}));
    day.start();
}

/// Also by a daemon that comes after one that was killed, while the plugin goes on.
#[test]
fn a_pod_that_waits_long_for_a_plugin_is_in_the_log() {
    on_the_bridge(json!({}), |day, _| {
        let go = day.node.dir.path().join("go");
        let wait = format!(
            "[ \"$CNI_COMMAND\" != ADD ] || while [ ! -e {} ]; do sleep 0.1; done",
            go.display()
        );
        restart_with_a_plugin(day, &wait);
        day.put("a", day.pod("a", "exec sleep 1000", json!({})));
        let says = |day: &Day<'_>, text: &str| wait_until(text, || day.log().contains(text));
        says(
            day,
            "plugin own of network \"own\" has not answered ADD for sandbox",
        );
        day.kill9();
        day.start();
        says(
            day,
            "waits for a network plugin of an earlier call, which still runs",
        );
        fs::write(go, "").unwrap();
        day.wait_ready("a");
    });
}

/// Plugins look into the namespace for what they have to undo.
#[test]
fn plugins_release_a_pod_while_its_namespace_is_there() {
    on_the_bridge(json!({}), |day, _| {
        let calls = day.node.dir.path().join("calls");
        let log = format!(
            "echo \"$CNI_COMMAND $(readlink \"$CNI_NETNS\" || echo none)\" >> {}",
            calls.display()
        );
        restart_with_a_plugin(day, &log);
        day.put("a", day.pod("a", "exec sleep 1000", json!({})));
        day.wait_ready("a");
        assert_eq!(address(day, "a").to_string(), "10.77.0.2");
        let namespace = fs::read_link(format!("/proc/{}/ns/net", day.process("a").pid)).unwrap();
        day.delete("a");
        day.wait_gone("a");
        let calls = fs::read_to_string(calls).unwrap();
        let of = |command: &str| -> Vec<&str> {
            let all = calls.lines().filter_map(|l| l.split_once(' '));
            all.filter(|(c, _)| *c == command).map(|(_, n)| n).collect()
        };
        let namespace = namespace.to_str().unwrap();
        assert_eq!((of("ADD"), of("DEL")), (vec![namespace], vec![namespace]));
    });
}
