//! The embedded network: a real daemon with real containers at a real bridge, on a machine of the test's own.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use podprobe::network::NetworkChoice;
use podprobe::settings::{RuntimeChoice, Settings};
use serde_json::{Value, json};

mod support;
use support::daemon::{Day, find};
use support::netns::{MACHINE, Netns, ip, on_a_machine, try_ip};
use support::{CEILING, Node, on, wait_until};

/// Runs `test` with a daemon whose configuration is `config`. Afterwards no interface is left.
fn on_the_bridge(config: Value, test: impl FnOnce(&mut Day<'_>, &Netns) + Send) {
    on_a_machine(|outside| {
        on(RuntimeChoice::Embedded, |node| {
            let node = Node {
                dir: node.dir.clone(),
                layout: node.layout.clone(),
                settings: Settings {
                    network: NetworkChoice::Bridge,
                    ..node.settings.clone()
                },
            };
            configure(&node, &config);
            let mut day = Day::begin(&node);
            test(&mut day, outside);
            day.end();
            assert_eq!(interfaces("pp"), [""; 0]);
        });
    });
}

fn configure(node: &Node, config: &Value) {
    let file = node.layout.config_file();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, config.to_string()).unwrap();
}

/// The interfaces of the machine whose names begin so.
fn interfaces(prefix: &str) -> Vec<String> {
    let (_, text) = try_ip("-o link");
    let name = |line: &str| Some(line.split(": ").nth(1)?.split('@').next()?.to_owned());
    let all = text.lines().filter_map(name);
    all.filter(|name| name.starts_with(prefix)).collect()
}

fn bridge() -> String {
    let all = interfaces("pp-");
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// A pod that answers each connection on port 80 with its name.
fn server(day: &Day<'_>, name: &str) -> Value {
    let script = "exec nc -ll -p 80 -e /bin/hostname";
    let probe =
        json!({"tcpSocket": {"port": 80}, "periodMilliseconds": 100, "timeoutMilliseconds": 1000});
    day.pod(name, script, json!({"readinessProbe": probe}))
}

fn address(day: &Day<'_>, name: &str) -> IpAddr {
    addresses(day, name)[0]
}

fn addresses(day: &Day<'_>, name: &str) -> Vec<IpAddr> {
    day.wait(&format!("an address of {name}"), |s| {
        let status = &find(s, name)?.status;
        let all = status.pod_ips.iter().map(|ip| ip.ip.parse().unwrap());
        Some(all.collect::<Vec<IpAddr>>()).filter(|all| !all.is_empty())
    })
}

fn namespace(day: &Day<'_>, name: &str) -> Netns {
    Netns::of(day.process(name).pid)
}

/// What a server answers.
fn ask(at: impl Into<SocketAddr>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at.into(), Duration::from_secs(5))?;
    stream.set_read_timeout(Some(CEILING))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.trim_end().to_owned())
}

/// Whom a listener in `server` sees when somebody in the caller's place connects to `at`.
fn seen_from(listener: &TcpListener, from: &Netns, at: SocketAddr) -> IpAddr {
    let client = from.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(5)));
    let client = client.unwrap_or_else(|e| panic!("{at}: {e}"));
    let (_, peer) = listener.accept().unwrap();
    drop(client);
    peer.ip()
}

fn listen(at: &str) -> TcpListener {
    TcpListener::bind((at, 0)).unwrap()
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

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

fn uid(day: &Day<'_>, name: &str) -> podprobe::api::PodUid {
    day.wait("the pod", |s| {
        let uid = find(s, name)?.object["metadata"]["uid"]
            .as_str()?
            .to_owned();
        Some(podprobe::api::PodUid::from(uid.as_str()))
    })
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
        assert_eq!(day.starts("b").len(), 1);
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
        for lines in [
            [format!("link del {bridge}"), format!("link del {one}")],
            [
                format!("link set {two} nomaster"),
                format!("addr flush dev {bridge}"),
            ],
            [
                format!("link set {two} down"),
                format!("link set {bridge} down"),
            ],
        ] {
            lines.iter().for_each(|line| ip(line));
            assert!(!reached(), "{lines:?}");
            wait_until(&format!("the network after {lines:?}"), reached);
        }
        assert_eq!(day.processes(), before);
        assert!(day.log().contains("was gone: made again"), "{}", day.log());
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
