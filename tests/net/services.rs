//! Services: a real daemon, real pods at the bridge, and clients on the node, in pods and outside.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podprobe::base::paths::Layout;
use podprobe::base::sys::cgroup::Cgroups;
use podprobe::base::sys::task::PidFd;
use podprobe::engine::shims::RuntimeChoice;
use podprobe::net::proxyd::home::Record;
use serde_json::{Value, json};

use crate::support::bridged::{address, namespace, nft, on_the_bridge};
use crate::support::daemon::{Day, FOREVER};
use crate::support::netns::{MACHINE, on_a_machine, try_ip};
use crate::support::{CEILING, on, wait_until};

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
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"tier": "front"}}, "spec": all})
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
        let words: Vec<&str> = shown.split_whitespace().collect();
        // Its age follows.
        let (age, words) = words.split_last().unwrap();
        assert_eq!(
            words.join(" "),
            "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE web NodePort 10.96.0.50 <none> 8000:30080/TCP"
        );
        assert!(age.starts_with(|c: char| c.is_ascii_digit()), "{shown}");
        let endpoints = format!("{}:80", address(day, "a"));
        let shown = day.says(&["get", "ep", "web"]);
        assert!(
            shown.contains(&format!("\nweb    {endpoints}   ")),
            "{shown}"
        );
        for (kind, label, expected) in [
            ("svc", "tier=front", "service/web\n"),
            ("svc", "tier!=front", ""),
            ("ep", "tier=front", "endpoints/web\n"),
            (
                "endpointslices",
                "kubernetes.io/service-name=web,tier",
                "endpointslice.discovery.k8s.io/web-1\n",
            ),
        ] {
            assert_eq!(
                day.says(&["get", kind, "-l", label, "-o", "name"]),
                expected
            );
        }
        let shown = day.says(&["describe", "svc", "web"]);
        assert!(
            shown.contains("\nLabels:                   tier=front\n"),
            "{shown}"
        );
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
        // The process and its route are also for the names that pods ask for.
        for file in ["web", "a", "b"] {
            day.delete(file);
        }
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
        // The next one knows nothing but what the daemon tells it.
        let first = proxy(day);
        fs::remove_file(day.node.layout.proxy_dir().join("table.json")).unwrap();
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
            assert_eq!(cgroups.dirs(&layout.cgroup()), [""; 0].map(PathBuf::from));
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
        wait_until("the address", || {
            row_of(day).is_some_and(|r| r[2].starts_with("10.97.0."))
        });
        let cells = row_of(day).unwrap();
        let node_port: u16 = cells[4].split(&[':', '/']).nth(1).unwrap().parse().unwrap();
        assert!((30000..=32767).contains(&node_port), "{cells:?}");
        let web_at = at(&cells[2], 8000);
        wait_until("clients", || answers(web_at) == names(&["a"]));
        assert_eq!(answers(at(MACHINE, node_port)), names(&["a"]));
        day.crash();
        assert_eq!(answers(web_at), names(&["a"]));
        wait_until("the service after the restart", || row_of(day).is_some());
        assert_eq!(row_of(day), Some(cells.clone()));
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

/// The cells of the service `web` without its age, once it is there.
fn row_of(day: &Day<'_>) -> Option<Vec<String>> {
    let shown = day.says(&["get", "services", "web"]);
    let row = shown.lines().find(|l| l.starts_with("web "))?;
    let mut cells: Vec<String> = row.split_whitespace().map(str::to_owned).collect();
    cells.pop();
    Some(cells)
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

/// The variables of services that the first process of a container has.
fn service_variables(day: &Day<'_>, name: &str) -> BTreeSet<String> {
    let all = fs::read(format!("/proc/{}/environ", day.process(name).pid)).unwrap();
    let all = all
        .split(|b| *b == 0)
        .map(|v| String::from_utf8_lossy(v).into_owned());
    all.filter(|v| v.starts_with("WEB_") || v.starts_with("DB_") || v.starts_with("URL="))
        .collect()
}

/// Also of services that are in one file with the pod. What changes later does not touch a running container.
#[test]
fn containers_have_the_variables_of_the_services_of_their_start() {
    on_the_bridge(json!({}), |day, _| {
        let url = json!({"env": [{"name": "URL", "value": "$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT)"},
            {"name": "WEB_PORT_8000_TCP", "value": "own"}]});
        let mut elsewhere = service(json!({"clusterIP": "10.96.0.51"}));
        elsewhere["metadata"] = json!({"name": "db", "namespace": "other"});
        let web = service(json!({}));
        let items = [day.pod("a", FOREVER, url), web.clone(), elsewhere];
        day.put(
            "all",
            json!({"apiVersion": "v1", "kind": "List", "items": items}),
        );
        let mut quiet = day.pod("quiet", FOREVER, json!({}));
        quiet["spec"]["enableServiceLinks"] = json!(false);
        day.put("quiet", quiet);
        // Its program runs then; a process that is being replaced has no variables for a moment.
        for name in ["a", "quiet"] {
            day.wait_ready(name);
            day.check_starts(name, 1);
        }
        let of = |port: u16| {
            let url = format!("tcp://{CLUSTER_IP}:{port}");
            let link = format!("WEB_PORT_{port}_TCP");
            let mut all = BTreeSet::from([
                format!("URL={CLUSTER_IP}:{port}"),
                format!("WEB_SERVICE_HOST={CLUSTER_IP}"),
                format!("WEB_SERVICE_PORT={port}"),
                format!("WEB_PORT={url}"),
                format!("{link}_ADDR={CLUSTER_IP}"),
                format!("{link}_PORT={port}"),
                format!("{link}_PROTO=tcp"),
                "WEB_PORT_8000_TCP=own".to_owned(),
            ]);
            if port != 8000 {
                all.insert(format!("{link}={url}"));
            }
            all
        };
        assert_eq!(service_variables(day, "a"), of(8000));
        assert_eq!(service_variables(day, "quiet"), BTreeSet::new());

        let mut all: Value = serde_json::from_slice(&fs::read(day.file("all")).unwrap()).unwrap();
        all["items"][1]["spec"]["ports"][0]["port"] = json!(8001);
        day.put("all", all);
        wait_until("the new port", || {
            row_of(day).is_some_and(|r| r[4] == "8001/TCP")
        });
        day.crash();
        day.wait_ready("a");
        day.check_starts("a", 1);
        assert_eq!(service_variables(day, "a"), of(8000));
        kill(Pid::from_raw(day.process("a").pid), Signal::SIGKILL).unwrap();
        wait_until("the second start", || day.starts("a").len() == 2);
        assert_eq!(service_variables(day, "a"), of(8001));
    });
}

/// The answer of a health server, head and body.
fn health(to: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(CEILING))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn says_weight(to: SocketAddr, code: u16, weight: usize) -> bool {
    let weight = format!("\r\nX-Load-Balancing-Endpoint-Weight: {weight}\r\n");
    let is =
        |text: String| text.starts_with(&format!("HTTP/1.1 {code} ")) && text.contains(&weight);
    health(to, "/").is_ok_and(is)
}

/// As kube-proxy answers load balancers and monitors.
#[test]
fn health_is_asked_for_where_kube_proxy_answers() {
    on_the_bridge(json!({}), |day, outside| {
        let proxy = at("127.0.0.1", 10256);
        let begins =
            |path: &str, text: &str| health(proxy, path).is_ok_and(|t| t.starts_with(text));
        wait_until("the data path to be healthy", || {
            begins(
                "/healthz",
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
            )
        });
        assert!(begins("/livez", "HTTP/1.1 200 "));
        let mode = health(proxy, "/proxyMode").unwrap();
        assert!(mode.ends_with("\r\n\r\nnftables"), "{mode}");
        let body = health(proxy, "/healthz").unwrap();
        let body: Value = serde_json::from_str(body.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body["nodeEligible"], true);
        let elsewhere = at(MACHINE, 10256);
        assert!(outside.run(|| health(elsewhere, "/healthz")).is_err());

        day.put("a", member(day, "a", ""));
        let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30900});
        day.put("web", service(spec));
        let web = at(MACHINE, 30900);
        let of_web = |code, weight| outside.run(|| says_weight(web, code, weight));
        wait_until("the pod to count", || of_web(200, 1));
        set_ready(day, "a", false);
        wait_until("nobody to count", || of_web(503, 0));
        set_ready(day, "a", true);
        wait_until("the pod to count again", || of_web(200, 1));
        let metrics = day.says(&["metrics"]);
        let value = |name: &str| {
            let line = metrics.lines().find(|l| l.starts_with(&format!("{name} ")));
            let value = line.and_then(|l| l.rsplit(' ').next());
            let value = value.unwrap_or_else(|| panic!("{name}: {metrics}"));
            value.parse::<f64>().unwrap()
        };
        let of_rules = |name: &str| value(&format!("kubeproxy_sync_proxy_rules_{name}"));
        assert_eq!(of_rules("service_changes_total"), 1.0);
        assert!((3.0..6.0).contains(&of_rules("endpoint_changes_total")));
        assert_eq!(of_rules("endpoint_changes_pending"), 0.0);
        assert!(of_rules("last_timestamp_seconds") >= of_rules("last_queued_timestamp_seconds"));
        assert!(of_rules("duration_seconds_count") >= 4.0);
        assert!(value("kubeproxy_proxy_healthz_total{code=\"200\"}") >= 2.0);
        day.crash();
        wait_until("the next daemon to answer", || of_web(200, 1));

        // Somebody else's port is left alone and said, and taken over when it is free.
        let taken = TcpListener::bind("0.0.0.0:30901").unwrap();
        let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30901});
        day.put("web", service(spec));
        let problem = "spec.healthCheckNodePort 30901: cannot listen: Address already in use";
        wait_until("the problem", || {
            day.says(&["describe", "svc", "web"]).contains(problem)
        });
        assert!(outside.run(|| health(web, "/")).is_err(), "the port before");
        drop(taken);
        let web = at(MACHINE, 30901);
        wait_until("the port to be served", || {
            outside.run(|| says_weight(web, 200, 1))
        });
        assert!(!day.says(&["describe", "svc", "web"]).contains(problem));
    });
}

/// A node where nobody is to ask.
#[test]
fn health_is_switched_off_by_an_empty_address() {
    on_the_bridge(
        json!({"healthzBindAddress": "", "healthzPort": 0}),
        |day, _| {
            let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30900});
            day.put("web", service(spec));
            let web = at("127.0.0.1", 30900);
            wait_until("the service to be answered for", || {
                says_weight(web, 503, 0)
            });
            let e = health(at("127.0.0.1", 10256), "/healthz").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
        },
    );
}

/// Of a process of the node, which loses its clients, and of podprobe, which does not.
#[test]
fn a_node_port_of_somebody_else_is_named() {
    on_the_bridge(
        json!({"healthzBindAddress": "127.0.0.1:30500", "healthzPort": 0}),
        |day, outside| {
            day.put("a", member(day, "a", ""));
            day.wait_ready("a");
            let on = |port: u16| {
                service(
                    json!({"type": "NodePort", "ports": [{"port": 8000, "targetPort": 80, "nodePort": port}]}),
                )
            };
            let _process = TcpListener::bind((MACHINE, 30080)).unwrap();
            day.put("web", on(30080));
            let clients = |port| outside.run(|| answers(at(MACHINE, port)));
            let said = format!(
                "nodePort: 30080/TCP: a process of the node listened on {MACHINE}:30080 when the port was programmed"
            );
            wait_until("the problem", || {
                day.says(&["describe", "svc", "web"]).contains(&said)
            });
            // Not before: the process would keep a client waiting.
            assert_eq!(clients(30080), names(&["a"]));
            assert_eq!(
                day.log()
                    .matches(&format!("service default/web: {said}"))
                    .count(),
                1
            );

            day.put("web", on(30081));
            wait_until("the clients of the free port", || {
                clients(30081) == names(&["a"])
            });
            wait_until("no problem", || {
                !day.says(&["describe", "svc", "web"]).contains("Problem")
            });

            day.put("web", on(30500));
            let ours =
                "30500/TCP of this node belongs to the health of services (healthzBindAddress)";
            wait_until("the refusal", || {
                day.says(&["describe", "svc", "web"]).contains(ours)
            });
            wait_until("the port before to go", || clients(30081).is_empty());
            assert!(clients(30500).is_empty());
            assert_eq!(answers(at(CLUSTER_IP, 8000)), names(&["a"]));
            assert!(
                health(at("127.0.0.1", 30500), "/healthz")
                    .unwrap()
                    .starts_with("HTTP/1.1 200 ")
            );
        },
    );
}
