//! Names: a real daemon, and pods, the node and strangers that ask for services by their names.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::libc;
use podprobe::base::sys::task::PidFd;
use podprobe::net::proxyd::home::Record;
use serde_json::{Value, json};

use crate::support::bridged::{address, configure, on_the_bridge};
use crate::support::daemon::Day;
use crate::support::dns_message::{answer, question};
use crate::support::netns::{MACHINE, Netns, ip, try_ip};
use crate::support::uninterrupted::uninterrupted;
use crate::support::{CEILING, PROGRAM, wait_until};

const DNS: &str = "10.96.0.10";
const DNS_V6: &str = "fd00:10:96::a";
const WEB: &str = "10.96.0.50";
const A: u16 = 1;

/// A server that is ready while the file /tmp/ready of its container is there.
fn member(day: &Day<'_>, name: &str) -> Value {
    let script = ": >/tmp/ready\nexec busybox httpd -f -p 80 -h /tmp";
    let probe = json!({"exec": {"command": ["ls", "/tmp/ready"]}, "periodMilliseconds": 50,
        "timeoutSeconds": 5, "failureThreshold": 1});
    let mut pod = day.pod(name, script, json!({"readinessProbe": probe}));
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["hostname"] = json!(name);
    pod["spec"]["subdomain"] = json!("db");
    pod
}

fn client(day: &Day<'_>) -> Value {
    day.pod("client", "exec sleep 1000000", json!({}))
}

fn service(name: &str, cluster_ip: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {
        "selector": {"app": "web"}, "clusterIP": cluster_ip,
        "ports": [{"name": "http", "port": 8000, "targetPort": 80}]}})
}

fn set_ready(day: &Day<'_>, name: &str, ready: bool) {
    let file = format!("/proc/{}/root/tmp/ready", day.process(name).pid);
    match ready {
        true => fs::write(file, "").unwrap(),
        false => fs::remove_file(file).unwrap(),
    }
}

/// What a command in the container of a pod says.
fn inside(day: &Day<'_>, name: &str, command: &str) -> String {
    let pid = day.process(name).pid.to_string();
    let output = Command::new("nsenter")
        .args([
            "-t",
            &pid,
            "-m",
            "-n",
            "--",
            "/bin/busybox",
            "sh",
            "-c",
            command,
        ])
        .output()
        .expect("nsenter, of the package util-linux");
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// The lines of nslookup that are not about the server it has asked, and whether that one knows itself.
fn looked_up(day: &Day<'_>, what: &str) -> BTreeSet<String> {
    let said = inside(day, "client", &format!("busybox nslookup {what}"));
    let lines = said.lines().map(str::trim).skip(2);
    let lines = lines.filter(|l| !l.is_empty() && *l != "Non-authoritative answer:");
    lines.map(str::to_owned).collect()
}

fn lines(all: &[String]) -> BTreeSet<String> {
    all.iter().cloned().collect()
}

fn resolv_conf(day: &Day<'_>, name: &str) -> String {
    inside(day, name, "busybox cat /etc/resolv.conf")
}

/// The last address of an answer; None: nobody answers in that time, or there is none.
fn resolve(name: &str, patience: Duration) -> Option<IpAddr> {
    address_of(&ask(name, patience)?)
}

fn resolve_at(server: &str, name: &str) -> Option<IpAddr> {
    address_of(&ask_at(server, name, Duration::from_secs(1))?)
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let count = u16::from_be_bytes([bytes[6], bytes[7]]);
    let last: [u8; 4] = bytes[bytes.len() - 4..].try_into().unwrap();
    (count > 0).then(|| last.into())
}

fn ask(name: &str, patience: Duration) -> Option<Vec<u8>> {
    ask_at(DNS, name, patience)
}

fn ask_at(server: &str, name: &str, patience: Duration) -> Option<Vec<u8>> {
    let any = if server.contains(':') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.connect((server, 53)).ok()?;
    socket.send(&question(0x1234, name, A)).ok()?;
    let mut buffer = [0; 2048];
    let length = uninterrupted(|| socket.recv(&mut buffer)).ok()?;
    Some(buffer[..length].to_vec())
}

/// On the node, which gets an answer or a refusal at once.
fn web() -> Option<IpAddr> {
    resolve("web.default.svc.cluster.local", Duration::from_secs(1))
}

fn web_ip() -> Option<IpAddr> {
    Some(WEB.parse().unwrap())
}

fn proxy(day: &Day<'_>) -> Option<PidFd> {
    let record = Record::running(&day.node.layout.proxy_dir())?;
    record.process.open().unwrap()
}

fn kill_proxy(day: &Day<'_>) {
    let role = proxy(day).expect("it runs");
    role.send(libc::SIGKILL).unwrap();
    assert!(role.wait(CEILING).unwrap());
}

#[test]
fn pods_find_services_by_their_names() {
    services_by_their_names("nftables");
}

#[test]
fn pods_of_a_node_without_packet_filter_find_services_by_their_names() {
    services_by_their_names("userspace");
}

fn services_by_their_names(mode: &str) {
    on_the_bridge(json!({"proxyMode": mode}), |day, outside| {
        for name in ["a", "b"] {
            day.put(name, member(day, name));
        }
        day.put("client", client(day));
        day.put("web", service("web", WEB));
        day.put("db", service("db", "None"));
        for name in ["a", "b", "client"] {
            day.wait_ready(name);
        }
        assert_eq!(
            resolv_conf(day, "client").lines().next(),
            Some("search default.svc.cluster.local svc.cluster.local cluster.local"),
        );
        assert!(
            resolv_conf(day, "client").ends_with(&format!("nameserver {DNS}\noptions ndots:5\n"))
        );
        let full = "web.default.svc.cluster.local";
        let of_web = lines(&[format!("Name:\t{full}"), format!("Address: {WEB}")]);
        wait_until("the name of web", || {
            looked_up(day, &format!("-type=a {full}")) == of_web
        });
        // The short name, by the search path of the pod's resolver.
        let short = inside(day, "client", "busybox ping -c 1 -W 1 web");
        assert!(short.starts_with(&format!("PING web ({WEB})")), "{short}");
        let (a, b) = (address(day, "a"), address(day, "b"));
        let db = "db.default.svc.cluster.local";
        let of_db = |members: &[IpAddr]| {
            let addresses = members.iter().map(|ip| format!("Address: {ip}"));
            addresses
                .chain([format!("Name:\t{db}")])
                .collect::<BTreeSet<_>>()
        };
        let pods_of_db = || looked_up(day, &format!("-type=a {db}"));
        wait_until("both pods", || pods_of_db() == of_db(&[a, b]));
        let of_a = lines(&[format!("Name:\ta.{db}"), format!("Address: {a}")]);
        assert_eq!(looked_up(day, &format!("-type=a a.{db}")), of_a);
        let servers = lines(&[
            format!("_http._tcp.{db}\tservice = 0 100 80 a.{db}"),
            format!("_http._tcp.{db}\tservice = 0 100 80 b.{db}"),
        ]);
        assert_eq!(
            looked_up(day, &format!("-type=srv _http._tcp.{db}")),
            servers
        );
        let reverse = |ip: IpAddr| {
            ip.to_string()
                .split('.')
                .rev()
                .collect::<Vec<_>>()
                .join(".")
        };
        let name = lines(&[format!("{}.in-addr.arpa\tname = a.{db}", reverse(a))]);
        assert_eq!(looked_up(day, &a.to_string()), name);
        // Readiness decides.
        set_ready(day, "b", false);
        wait_until("a alone", || pods_of_db() == of_db(&[a]));
        set_ready(day, "b", true);
        wait_until("both pods again", || pods_of_db() == of_db(&[a, b]));
        wait_until("metrics", || {
            let shown = day.says(&["metrics"]);
            let answered = "podprobe_dns_responses_total{rcode=\"NOERROR\"} ";
            shown
                .split_once(answered)
                .is_some_and(|(_, n)| !n.starts_with('0'))
        });
        let described = day.says(&["describe", "svc", "web"]);
        assert!(described.contains(full), "{described}");
        // The node's processes may ask, whoever is outside may not.
        assert_eq!(web(), web_ip());
        outside.run(|| {
            ip(&format!("route add {DNS} via {MACHINE}"));
            assert_eq!(ask(full, Duration::from_secs(1)), None);
            let mut stream = TcpStream::connect((DNS, 53)).unwrap();
            stream.set_read_timeout(Some(CEILING)).unwrap();
            let _ = stream.write_all(&[0, 1, 0]);
            assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)));
        });
        for file in ["a", "b", "client", "web", "db"] {
            day.delete(file);
        }
        wait_until("nothing to be left", || {
            !try_ip("addr show").1.contains(DNS)
                && !try_ip("route show table all").1.contains("10.96.0.")
                && proxy(day).is_none()
        });
    });
}

/// Also where no data path sends clients anywhere: the name of a headless service does.
#[test]
fn a_pod_that_ends_has_lost_its_name_before_its_hook_runs() {
    on_the_bridge(json!({}), |day, _| {
        let db = "db.default.svc.cluster.local";
        for name in ["a", "b"] {
            let mut pod = member(day, name);
            let look = format!("busybox nslookup -type=a {db} >/starts/{name}-ends");
            let hook = json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", look]}}});
            pod["spec"]["containers"][0]["lifecycle"] = hook;
            pod["spec"]["terminationGracePeriodSeconds"] = json!(3);
            day.put(name, pod);
        }
        day.put("client", client(day));
        day.put("db", service("db", "None"));
        for name in ["a", "b", "client"] {
            day.wait_ready(name);
        }
        let (a, b) = (address(day, "a").to_string(), address(day, "b").to_string());
        let found = || looked_up(day, &format!("-type=a {db}"));
        wait_until("both", || found().len() == 3);
        day.delete("b");
        day.wait_gone("b");
        let seen = fs::read_to_string(day.node.dir.path().join("starts/b-ends")).unwrap();
        assert!(seen.contains(&a) && !seen.contains(&b), "{seen}");
    });
}

/// Neither the end of the daemon nor that of the role is the end of names.
#[test]
fn names_go_on_without_the_daemon_and_with_another_role() {
    on_the_bridge(json!({}), |day, _| {
        day.put("client", client(day));
        day.put("web", service("web", WEB));
        day.wait_ready("client");
        wait_until("names", || web() == web_ip());
        day.kill9();
        assert_eq!(web(), web_ip());
        kill_proxy(day);
        assert_eq!(web(), None);
        // A role that is started serves what the one before it has kept.
        let mut role = start_role(day.node.layout.proxy_dir());
        wait_until("names of the kept table", || web() == web_ip());
        day.start();
        day.delete("web");
        wait_until("the name to go", || web().is_none());
        day.put("web", service("web", WEB));
        wait_until("the name to come back", || web() == web_ip());
        kill_proxy(day);
        role.wait().unwrap();
        wait_until("the daemon to start another role", || web() == web_ip());
        let killed = "podprobe proxy has ended, or was killed: another one is started";
        day.log_with(&[killed]);
        // The daemon sees the end at once, and not when it looks the next time, ten seconds later.
        let began = Instant::now();
        for _ in 0..3 {
            kill_proxy(day);
            wait_until("another role", || web() == web_ip());
        }
        assert!(began.elapsed() < Duration::from_secs(20));
    });
}

fn start_role(dir: PathBuf) -> Child {
    let mut role = Command::new(PROGRAM);
    let role = role.arg("proxy").arg(dir).stdin(Stdio::null());
    let mut role = role.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 6];
    role.stdout.take().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"ready\n");
    role
}

/// A resolver of the node that knows one address for every name.
struct Upstream {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    fn at(address: SocketAddr, knows: [u8; 4]) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !stopped.load(Ordering::SeqCst) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    socket
                        .send_to(&answer(&buffer[..length], knows), from)
                        .unwrap();
                }
            }
        });
        let thread = Some(thread);
        Self { stop, thread }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn other_names_are_asked_of_the_nodes_resolvers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("resolv.conf");
    let name_resolver =
        |ip: &str| fs::write(&file, format!("nameserver {ip}\nsearch lan\n")).unwrap();
    name_resolver("127.0.0.53");
    on_the_bridge(json!({"resolvConf": file}), |day, _| {
        let _first = Upstream::at(([127, 0, 0, 53], 53).into(), [192, 0, 2, 77]);
        let _second = Upstream::at(([127, 0, 0, 54], 53).into(), [192, 0, 2, 78]);
        day.put("client", client(day));
        day.wait_ready("client");
        let found = |ip: &str| lines(&["Name:\texample.com".to_owned(), format!("Address: {ip}")]);
        let looked_up = || looked_up(day, "-type=a example.com");
        wait_until("the first resolver's answer", || {
            looked_up() == found("192.0.2.77")
        });
        let client = Netns::of(day.process("client").pid);
        let in_pod = || client.run(|| resolve("example.com", Duration::from_secs(5)));
        assert_eq!(in_pod(), Some([192, 0, 2, 77].into()));
        name_resolver("127.0.0.54");
        wait_until("the second resolver's answer", || {
            in_pod() == Some([192, 0, 2, 78].into())
        });
        name_resolver(DNS);
        wait_until("the loop to be told", || {
            day.log().contains("podprobe's own address")
        });
        wait_until("no answer", || in_pod().is_none());
    });
}

/// With both families, and after somebody has removed the address by hand.
#[test]
fn names_are_answered_on_an_address_of_each_family() {
    let config = json!({"podCIDR": "10.244.0.0/24,fd00:10:244::/112", "serviceCIDR": "10.96.0.0/16,fd00:10:96::/112"});
    on_the_bridge(config, |day, _| {
        day.put("client", client(day));
        let mut own = client(day);
        own["metadata"]["name"] = json!("host");
        own["spec"]["hostNetwork"] = json!(true);
        own["spec"]["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        day.put("host", own);
        day.put("web", service("web", WEB));
        for pod in ["client", "host"] {
            day.wait_ready(pod);
            let conf = resolv_conf(day, pod);
            let servers = format!("nameserver {DNS}\nnameserver {DNS_V6}\n");
            assert!(conf.contains(&servers), "{conf}");
        }
        let client = Netns::of(day.process("client").pid);
        for server in [DNS, DNS_V6] {
            let web = || resolve_at(server, "web.default.svc.cluster.local");
            wait_until("an answer to the pod", || client.run(web) == web_ip());
            assert_eq!(web(), web_ip(), "{server}");
            // Of IPv6 no interface has it.
            match server {
                DNS => ip(&format!("addr del {server}/32 dev lo")),
                _ => ip(&format!("-6 route del local {server} dev lo table main")),
            }
            wait_until("the address to be added again", || {
                client.run(web) == web_ip()
            });
        }
        // Their own address is no route of somebody else, and the node sends nothing else from it.
        wait_until("the routes of both families", || {
            let routes = try_ip("route").1 + &try_ip("-6 route").1;
            ["10.96.0.0/16 dev lo", "fd00:10:96::/112 dev lo"]
                .into_iter()
                .all(|route| routes.contains(route))
        });
        assert!(!day.log().contains("overlaps"), "{}", day.log());
        for to in ["fd00:10:96::50", "fd12::7", "2001:db8::2"] {
            let socket = UdpSocket::bind("[::]:0").unwrap();
            socket.connect((to, 9)).unwrap();
            let source = socket.local_addr().unwrap().ip().to_string();
            assert!(source != DNS_V6 && source != "::", "{to} from {source}");
        }
    });
}

/// Names come when the port is free; until then it is said why there are none.
#[test]
fn a_port_that_somebody_else_has_is_told_and_tried_again() {
    on_the_bridge(json!({}), |day, _| {
        let other = UdpSocket::bind("0.0.0.0:53").unwrap();
        day.put("client", client(day));
        day.put("web", service("web", WEB));
        let said = "cannot answer names on 10.96.0.10:53/UDP: another program has this port";
        wait_until("the reason", || {
            day.says(&["describe", "svc", "web"]).contains(said)
        });
        drop(other);
        wait_until("names", || web() == web_ip());
    });
}

/// A service of the user's on the address answers there itself; `clusterDNS` names another one.
#[test]
fn other_resolvers_of_the_cluster_have_their_way() {
    on_the_bridge(json!({"proxyMode": "userspace"}), |day, _| {
        day.put("client", client(day));
        day.put("web", service("web", WEB));
        day.wait_ready("client");
        wait_until("names", || web() == web_ip());
        let mut own = service("kube-dns", DNS);
        own["spec"]["ports"] =
            json!([{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353}]);
        day.put("own", own);
        wait_until("the service to be refused for want of endpoints", || {
            web().is_none()
        });
        assert_eq!(
            day.log().matches("cannot answer names").count(),
            0,
            "{}",
            day.log()
        );
        day.delete("own");
        wait_until("names again", || web() == web_ip());
        configure(
            day.node,
            &json!({"proxyMode": "userspace", "clusterDNS": ["192.0.2.53"]}),
        );
        let before = day.process("client");
        day.crash();
        wait_until("no more names", || web().is_none());
        // A pod keeps the resolver that its sandbox was made with.
        assert!(resolv_conf(day, "client").contains(&format!("nameserver {DNS}\n")));
        assert_eq!(day.process("client"), before);
        day.put("later", day.pod("later", "exec sleep 1000000", json!({})));
        day.wait_ready("later");
        let conf = resolv_conf(day, "later");
        assert!(
            conf.contains("nameserver 192.0.2.53\noptions ndots:5\n"),
            "{conf}"
        );
        assert!(
            conf.starts_with("search default.svc.cluster.local "),
            "{conf}"
        );
    });
}

/// Pods with loopback alone could not reach it; the node's own processes can while there are services.
#[test]
fn without_a_network_the_node_alone_has_names() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("resolv.conf");
    fs::write(&file, "nameserver 192.0.2.9\n").unwrap();
    on_the_bridge(json!({"network": "none", "resolvConf": file}), |day, _| {
        day.put("client", client(day));
        day.wait_ready("client");
        assert_eq!(resolv_conf(day, "client"), "nameserver 192.0.2.9\n");
        assert!(proxy(day).is_none());
        day.put("web", service("web", WEB));
        wait_until("names", || web() == web_ip());
        day.delete("web");
        wait_until("the role to end", || proxy(day).is_none());
    });
}
