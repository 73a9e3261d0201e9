//! Services: a real daemon, real pods at the bridge, and clients on the node, in pods and outside.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podprobe::layout::Layout;
use podprobe::proxy::role::home::Record;
use podprobe::runtime::shims::cgroup::Cgroups;
use podprobe::settings::RuntimeChoice;
use podprobe::sys::task::PidFd;
use serde_json::{Value, json};

mod support;
use support::bridged::{address, namespace, nft, on_the_bridge};
use support::daemon::Day;
use support::netns::{MACHINE, on_a_machine, try_ip};
use support::{CEILING, on, wait_until};

const CLUSTER_IP: &str = "10.96.0.50";

/// A server that is ready while it answers and the file /tmp/ready of its container is there; its page is its name. Not nc:
/// its queue of clients has two places, and a client that finds it full comes again a second later.
fn member(day: &Day<'_>, name: &str, more: &str) -> Value {
    let serve =
        "mkdir /tmp/www; hostname >/tmp/www/index.html; exec busybox httpd -f -p 80 -h /tmp/www";
    let script = format!(": >/tmp/ready\n{more}\n{serve}");
    let ready = "ls /tmp/ready && nc -w 1 127.0.0.1 80 </dev/null";
    let probe = json!({"exec": {"command": ["/bin/sh", "-c", ready]}, "periodMilliseconds": 50,
        "timeoutSeconds": 5, "failureThreshold": 1});
    let mut pod = day.pod(name, &script, json!({"readinessProbe": probe}));
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod
}

fn service(spec: Value) -> Value {
    let mut all = json!({"selector": {"app": "web"}, "clusterIP": CLUSTER_IP, "ports": [{"port": 8000, "targetPort": 80}]});
    let object = all.as_object_mut().unwrap();
    object.extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": all})
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port)
}

/// The page of a server.
fn ask(to: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(CEILING))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let page = text.split_once("\r\n\r\n").map(|(_, page)| page.trim_end());
    page.map(str::to_owned)
        .ok_or_else(|| std::io::Error::other(text.clone()))
}

/// Who answers, asked often enough that everybody has had a turn.
fn answers(to: SocketAddr) -> BTreeSet<String> {
    (0..24).filter_map(|_| ask(to).ok()).collect()
}

fn set_ready(day: &Day<'_>, name: &str, ready: bool) {
    let root = format!("/proc/{}/root/tmp/ready", day.process(name).pid);
    match ready {
        true => fs::write(root, "").unwrap(),
        false => fs::remove_file(root).unwrap(),
    }
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|n| format!("{n}-edge")).collect()
}

#[test]
fn clients_are_sent_to_ready_pods_alone() {
    to_ready_pods_alone("nftables");
}

#[test]
fn clients_of_the_proxy_are_sent_to_ready_pods_alone() {
    to_ready_pods_alone("userspace");
}

fn to_ready_pods_alone(mode: &str) {
    on_the_bridge(json!({"proxyMode": mode}), |day, outside| {
        for name in ["a", "b"] {
            day.put(name, member(day, name, ""));
        }
        day.put("web", service(json!({"type": "NodePort", "ports": [{"port": 8000, "targetPort": 80, "nodePort": 30080}]})));
        let web = at(CLUSTER_IP, 8000);
        wait_until("both pods to have clients", || {
            answers(web) == names(&["a", "b"])
        });
        let inside = namespace(day, "a");
        assert_eq!(inside.run(|| answers(web)), names(&["a", "b"]));
        let node_port = at(MACHINE, 30080);
        assert_eq!(outside.run(|| answers(node_port)), names(&["a", "b"]));
        assert_eq!(answers(node_port), names(&["a", "b"]));
        set_ready(day, "b", false);
        wait_until("b to have no clients", || answers(web) == names(&["a"]));
        let shown = day.says(&["get", "services"]);
        assert_eq!(
            shown.split_whitespace().collect::<Vec<_>>().join(" "),
            "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) web NodePort 10.96.0.50 <none> 8000:30080/TCP"
        );
        let endpoints = format!("{}:80", address(day, "a"));
        let shown = day.says(&["get", "ep", "web"]);
        assert!(shown.ends_with(&format!("web    {endpoints}\n")), "{shown}");
        let shown = day.says(&["describe", "svc", "web"]);
        let pods = shown.split_once("\nPods:\n").unwrap().1;
        let pods: Vec<&str> = pods.lines().map(str::trim).collect();
        assert_eq!(pods[0], "a-edge  gets traffic", "{shown}");
        assert!(
            pods[1].starts_with("b-edge  no traffic: not ready"),
            "{shown}"
        );
        assert!(
            shown.contains(&format!("Endpoints:                {endpoints}\n")),
            "{shown}"
        );
        assert_eq!(outside.run(|| answers(node_port)), names(&["a"]));
        set_ready(day, "a", false);
        let refused = || ask(web).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
        wait_until("clients to be refused", refused);
        assert!(inside.run(refused));
        set_ready(day, "b", true);
        wait_until("b to have clients again", || answers(web) == names(&["b"]));
        // Other ports and addresses of the range are refused at once, not sent out.
        for nobody in [at(CLUSTER_IP, 8001), at("10.96.0.51", 8000)] {
            let e = ask(nobody).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::ConnectionRefused, "{nobody}");
        }
        day.delete("web");
        wait_until("the tables and the route to go", || {
            let route = try_ip("route show table all").1;
            !nft("list tables").contains("-services") && !route.contains("10.96.0.0")
        });
    });
}

/// A client that never stops loses no connection, whatever happens to pods and daemon.
#[test]
fn no_connection_is_lost_while_pods_and_the_daemon_come_and_go() {
    none_is_lost("nftables");
}

#[test]
fn no_connection_through_the_proxy_is_lost_while_pods_and_the_daemon_come_and_go() {
    none_is_lost("userspace");
}

fn none_is_lost(mode: &str) {
    on_the_bridge(json!({"proxyMode": mode}), |day, _| {
        for name in ["a", "b", "c"] {
            day.put(name, member(day, name, ""));
        }
        day.put("web", service(json!({})));
        let web = at(CLUSTER_IP, 8000);
        wait_until("all to have clients", || {
            answers(web) == names(&["a", "b", "c"])
        });
        let stop = AtomicBool::new(false);
        let (made, lost) = std::thread::scope(|s| {
            let client = s.spawn(|| {
                let (mut made, mut lost) = (0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    made += 1;
                    if let Err(e) = ask(web).map_err(|e| e.to_string()) {
                        lost.push((made, format!("{e} after {:?}", began.elapsed())));
                    }
                    std::thread::sleep(Duration::from_millis(5).saturating_sub(began.elapsed()));
                }
                (made, lost)
            });
            for round in 0..3 {
                day.put("a", member(day, "a", &format!(": round {round}")));
                day.crash();
                wait_until("the edited pod to have clients", || {
                    day.starts("a").len() == round + 2 && answers(web).contains("a-edge")
                });
                set_ready(day, "b", false);
                wait_until("b to have no clients", || !answers(web).contains("b-edge"));
                set_ready(day, "b", true);
                day.kill9();
                day.start();
                wait_until("b to have clients", || answers(web).contains("b-edge"));
                day.delete("c");
                day.wait_gone("c");
                day.put("c", member(day, "c", ""));
                wait_until("c to have clients", || answers(web).contains("c-edge"));
            }
            stop.store(true, Ordering::Relaxed);
            client.join().unwrap()
        });
        assert!(
            lost.is_empty(),
            "{} of {made}: {lost:?}\n{}",
            lost.len(),
            day.log()
        );
        assert!(made > 100, "{made}");
    });
}

/// The proxy enters the namespaces of pods that have loopback alone, for their services and host ports.
#[test]
fn pods_that_have_loopback_alone_have_services_and_host_ports() {
    on_the_bridge(json!({"network": "none"}), |day, outside| {
        let mut pod = member(day, "a", "");
        let port = json!({"containerPort": 80, "hostPort": 8088});
        pod["spec"]["containers"][0]["ports"] = json!([port]);
        day.put("a", pod);
        day.put("b", member(day, "b", ""));
        day.put("web", service(json!({"type": "NodePort", "ports": [{"port": 8000, "targetPort": 80, "nodePort": 30080}]})));
        let web = at(CLUSTER_IP, 8000);
        wait_until("both to have clients", || {
            answers(web) == names(&["a", "b"])
        });
        let node_port = at(MACHINE, 30080);
        assert_eq!(outside.run(|| answers(node_port)), names(&["a", "b"]));
        for to in [at("127.0.0.1", 8088), at(MACHINE, 8088)] {
            assert_eq!(answers(to), names(&["a"]), "{to}");
        }
        assert_eq!(outside.run(|| answers(at(MACHINE, 8088))), names(&["a"]));
        // The proxy goes on without the daemon, and the next daemon without the proxy starts another one.
        day.kill9();
        assert_eq!(answers(web), names(&["a", "b"]));
        proxy(day).send(libc::SIGKILL).unwrap();
        wait_until("it to be gone", || ask(web).is_err());
        day.start();
        wait_until("both to have clients", || {
            answers(web) == names(&["a", "b"])
        });
        let first = proxy(day);
        first.send(libc::SIGKILL).unwrap();
        wait_until("the proxy to be started again", || {
            answers(web) == names(&["a", "b"])
        });
        set_ready(day, "a", false);
        wait_until("a to have no clients", || answers(web) == names(&["b"]));
    });
}

fn proxy(day: &Day<'_>) -> PidFd {
    let record = Record::running(&day.node.layout.proxy_dir()).expect("it runs");
    record.process.open().unwrap().expect("it runs")
}

/// The packet filter does not see connections of the node to its own loopback.
#[test]
fn host_ports_answer_on_loopback_too() {
    on_the_bridge(json!({}), |day, outside| {
        let mut pod = member(day, "a", "");
        let port = json!({"containerPort": 80, "hostPort": 8088});
        let of_loopback = json!({"containerPort": 80, "hostPort": 8089, "hostIP": "127.0.0.1"});
        pod["spec"]["containers"][0]["ports"] = json!([port, of_loopback]);
        day.put("a", pod);
        let loopback = at("127.0.0.1", 8088);
        wait_until("it to answer", || answers(loopback) == names(&["a"]));
        assert_eq!(answers(at("127.0.0.1", 8089)), names(&["a"]));
        assert!(ask(at(MACHINE, 8089)).is_err());
        assert_eq!(answers(at(MACHINE, 8088)), names(&["a"]));
        assert_eq!(outside.run(|| answers(at(MACHINE, 8088))), names(&["a"]));
        day.delete("a");
        let refused = || ask(loopback).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
        wait_until("it to be gone", refused);
    });
}

/// What `try` was asked to serve ends with it: tables, routes, and the proxy with its cgroup.
#[test]
fn try_leaves_neither_tables_nor_a_proxy() {
    on_a_machine(|_| {
        on(RuntimeChoice::Embedded, |node| {
            let (pods, tmp) = (node.dir.path().join("tried"), node.dir.path().join("tmp"));
            fs::create_dir(&pods).unwrap();
            fs::create_dir(&tmp).unwrap();
            let serve = "mkdir /tmp/www; echo it >/tmp/www/index.html; exec busybox httpd -f -p 80 -h /tmp/www";
            let container = json!({"name": "c", "image": "busybox:test", "command": ["/bin/sh", "-c", serve],
                "ports": [{"containerPort": 80, "hostPort": 8088}]});
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"app": "web"}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}});
            fs::write(pods.join("a.json"), pod.to_string()).unwrap();
            fs::write(pods.join("web.json"), service(json!({})).to_string()).unwrap();
            let image = node.dir.path().join("image");
            let mut child = Command::new(env!("CARGO_BIN_EXE_podprobe"))
                .args([
                    "try",
                    "--image",
                    &format!("{}=busybox:test", image.display()),
                    "--pods",
                ])
                .arg(&pods)
                .env("TMPDIR", &tmp)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            for to in [at("127.0.0.1", 8088), at(CLUSTER_IP, 8000)] {
                wait_until("an answer", || ask(to).is_ok_and(|page| page == "it"));
            }
            let root = fs::read_dir(&tmp).unwrap().next().unwrap().unwrap().path();
            let layout = Layout::new(&root);
            let proxy = Record::running(&layout.proxy_dir()).expect("it runs");
            kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(0));
            assert!(!proxy.process.alive());
            assert_eq!(nft("list tables"), "");
            assert!(!try_ip("route show table all").1.contains("10.96.0.0"));
            let cgroups = Cgroups::detect().unwrap();
            assert_eq!(
                cgroups.dirs(&format!("/{}", layout.id())),
                [""; 0].map(PathBuf::from)
            );
            fs::create_dir_all(node.layout.containers()).unwrap();
        });
    });
}

/// A service without an address gets one, keeps it, and tells it.
#[test]
fn an_address_is_allocated_and_kept() {
    on_the_bridge(json!({"serviceCIDR": "10.97.0.0/24"}), |day, _| {
        day.put("a", member(day, "a", ""));
        let mut web = service(json!({"type": "NodePort"}));
        web["spec"].as_object_mut().unwrap().remove("clusterIP");
        day.put("web", &web);
        let row = |day: &Day<'_>| {
            day.says(&["get", "services", "web"])
                .lines()
                .nth(1)
                .unwrap()
                .to_owned()
        };
        wait_until("the address", || {
            row_of(day).is_some_and(|r| r[2].starts_with("10.97.0."))
        });
        let before = row(day);
        let cells = row_of(day).unwrap();
        let node_port: u16 = cells[4].split(&[':', '/']).nth(1).unwrap().parse().unwrap();
        assert!((30000..=32767).contains(&node_port), "{before}");
        let web_at = at(&cells[2], 8000);
        wait_until("clients", || answers(web_at) == names(&["a"]));
        assert_eq!(answers(at(MACHINE, node_port)), names(&["a"]));
        day.crash();
        assert_eq!(answers(web_at), names(&["a"]));
        wait_until("the service after the restart", || row_of(day).is_some());
        assert_eq!(row(day), before);
        // Somebody else's claim to the same address is refused, and told.
        web["metadata"]["name"] = json!("zweb");
        web["spec"]["clusterIP"] = json!(cells[2]);
        day.put("zweb", &web);
        wait_until("the problem", || {
            day.says(&["describe", "svc", "zweb"]).contains("Problem:")
        });
        assert_eq!(answers(web_at), names(&["a"]));
    });
}

/// The cells of the service `web`, once it is there.
fn row_of(day: &Day<'_>) -> Option<Vec<String>> {
    let shown = day.says(&["get", "services", "web"]);
    let row = shown.lines().find(|l| l.starts_with("web "))?;
    Some(row.split_whitespace().map(str::to_owned).collect())
}

/// Endpoints of elsewhere come from slices in files, and a service without a selector has no others.
#[test]
fn slices_of_files_lead_elsewhere() {
    on_the_bridge(json!({}), |day, _| {
        day.put("a", member(day, "a", ""));
        let mut web = service(json!({}));
        web["spec"].as_object_mut().unwrap().remove("selector");
        day.put("web", web);
        day.wait_ready("a");
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"port": 80}], "endpoints": [{"addresses": [address(day, "a").to_string()]}]});
        let web = at(CLUSTER_IP, 8000);
        wait_until("the service to be there", || {
            ask(web).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
        });
        day.put("slice", slice);
        wait_until("the slice's endpoint to have clients", || {
            answers(web) == names(&["a"])
        });
    });
}
