//! The services of a cluster on a real node: real clients, real pods at the bridge, a host outside, and an API server with an
//! identity for service proxies (kube-services 4).

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::api_server::{ApiServer, Fault};
use crate::support::bridged::{ask, configure, namespace, nft, on_the_bridge};
use crate::support::daemon::{Day, NODE};
use crate::support::netns::{MACHINE, Netns, OUTSIDE, ip, try_ip};
use crate::support::wait_until;

const CLUSTER_IP: &str = "10.43.0.50";
/// Outside of the range of node ports that files may use.
const NODE_PORT: u16 = 10_080;

/// A pod that answers each connection on port 80 with its name, and is ready while its container has the file /tmp/ready.
fn member(day: &Day<'_>, name: &str) -> Value {
    let script = ": >/tmp/ready; exec nc -ll -p 80 -e /bin/hostname";
    let probe = json!({"exec": {"command": ["/bin/sh", "-c", "ls /tmp/ready"]}, "periodSeconds": 1,
        "timeoutSeconds": 5, "failureThreshold": 1});
    let pod = day.pod(name, script, json!({"readinessProbe": probe}));
    pod["spec"].clone()
}

fn create(cluster: &ApiServer, name: &str, spec: Value) {
    let mut pod = cluster.create_pod(name, spec);
    pod["metadata"]["labels"] = json!({"app": "web"});
    cluster.put("pods", pod);
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Waits until a pod is ready, and returns its endpoint.
fn ready(cluster: &ApiServer, name: &str) -> Value {
    let pod = cluster.wait_for_pod(name, is_ready);
    let address = pod["status"]["podIP"].as_str().unwrap();
    endpoint(address.parse().unwrap(), NODE, name)
}

fn service(name: &str, more: &Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "NodePort", "clusterIP": CLUSTER_IP, "clusterIPs": [CLUSTER_IP], "selector": {"app": "web"},
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
            "ports": [{"name": "http", "protocol": "TCP", "port": 8000, "targetPort": 80, "nodePort": NODE_PORT}]}});
    let spec = service["spec"].as_object_mut().unwrap();
    spec.extend(more.as_object().unwrap().clone());
    service
}

fn endpoint(address: IpAddr, node: &str, pod: &str) -> Value {
    json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": "default", "name": pod, "uid": "u"}})
}

fn slice(endpoints: &[Value]) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
        "metadata": {"name": "web-x2j4k", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]})
}

fn web() -> SocketAddr {
    SocketAddr::new(CLUSTER_IP.parse().unwrap(), 8000)
}

/// Who answers, asked often enough that everybody has had a turn.
fn answers(to: SocketAddr) -> BTreeSet<String> {
    (0..24).filter_map(|_| ask(to).ok()).collect()
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|n| (*n).to_owned()).collect()
}

/// A server on port 80 of the host outside, which answers each connection with `remote`, as a pod of another node does.
struct Remote(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Remote {
    fn start(outside: &Netns) -> Self {
        let listener = outside.run(|| TcpListener::bind((OUTSIDE, 80)).unwrap());
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let serve = move || {
            for client in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let _ = client.and_then(|mut client| client.write_all(b"remote\n"));
            }
        };
        let thread = outside.run(|| std::thread::spawn(serve));
        Self(is_over, Some(thread))
    }

    fn end(mut self, outside: &Netns) {
        self.0.store(true, Ordering::SeqCst);
        let _ = outside.run(|| ask((OUTSIDE.parse::<IpAddr>().unwrap(), 80)));
        self.1.take().unwrap().join().unwrap();
    }
}

/// Runs a test on a node of a cluster that serves the cluster's services, with a server outside.
fn as_proxy(mode: &str, test: impl FnOnce(&ApiServer, &mut Day<'_>, &Netns) + Send) {
    on_the_bridge(json!({"proxyMode": mode}), |day, outside| {
        let Some(cluster) = ApiServer::start() else {
            return;
        };
        day.kill9();
        let config = json!({"proxyMode": mode, "nodeIP": "127.0.0.1", "healthzBindAddress": "",
            "kubeconfig": cluster.kubeconfig_with_token(), "proxyKubeconfig": cluster.kubeconfig_of_proxy()});
        configure(day.node, &config);
        day.start();
        let remote = Remote::start(outside);
        test(&cluster, day, outside);
        remote.end(outside);
        for pod in cluster.all("pods") {
            let name = pod["metadata"]["name"].as_str().unwrap();
            cluster.delete_pod(name, 1);
            cluster.wait_until_gone(name);
        }
    });
}

#[test]
fn the_services_of_a_cluster_lead_where_its_slices_say() {
    where_slices_say("nftables");
}

#[test]
fn the_services_of_a_cluster_lead_where_its_slices_say_in_userspace() {
    where_slices_say("userspace");
}

fn where_slices_say(mode: &str) {
    as_proxy(mode, |cluster, day, outside| {
        // The node's own processes reach services without a default route.
        ip("route del default");
        let range =
            |range: &str| json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [range]}});
        cluster.put("servicecidrs", range("10.43.0.0/16"));
        create(cluster, "a", member(day, "a"));
        let local = ready(cluster, "a");
        let remote = endpoint(OUTSIDE.parse().unwrap(), "other", "r");
        cluster.put("services", service("web", &json!({})));
        cluster.put("endpointslices", slice(std::slice::from_ref(&remote)));
        wait_until("the slice's endpoint alone", || {
            answers(web()) == names(&["remote"])
        });
        cluster.put("endpointslices", slice(&[remote.clone(), local]));
        wait_until("both endpoints", || {
            answers(web()) == names(&["a", "remote"])
        });
        let inside = namespace(day, "a");
        assert_eq!(inside.run(|| answers(web())), names(&["a", "remote"]));
        let node_port = SocketAddr::new(MACHINE.parse().unwrap(), NODE_PORT);
        assert_eq!(outside.run(|| answers(node_port)), names(&["a", "remote"]));
        let nobodys = SocketAddr::new("10.43.0.99".parse().unwrap(), 8000);
        let refused = ask(nobodys).unwrap_err().kind();
        assert_eq!(refused, ErrorKind::ConnectionRefused);
        let shown = day.says(&["describe", "svc", "web"]);
        assert!(shown.contains(CLUSTER_IP), "{shown}");

        // The control plane's word counts, whatever the node knows of its pod.
        cluster.put("endpointslices", slice(&[remote]));
        wait_until("the remote one", || answers(web()) == names(&["remote"]));
        let shown = day.says(&["describe", "svc", "web"]);
        assert!(
            shown.contains("no EndpointSlice of the cluster names it"),
            "{shown}"
        );
        let has_route = |range| try_ip("route show table all").1.contains(range);
        assert!(has_route("10.43.0.0/16"));
        cluster.put("servicecidrs", range("10.43.0.0/24"));
        wait_until("the route to the other range", || {
            has_route("10.43.0.0/24") && !has_route("10.43.0.0/16")
        });
        cluster.remove("services", "default", "web");
        wait_until("the service to be gone", || {
            day.says(&["get", "services", "-A", "-o", "name"])
                .is_empty()
        });

        let asked = cluster.asked();
        let of_proxy = asked.iter().filter(|a| a.path.contains("labelSelector"));
        let collections: BTreeSet<&str> = of_proxy
            .map(|a| a.path.split('?').next().unwrap())
            .collect();
        let expected = [
            "/api/v1/services",
            "/apis/discovery.k8s.io/v1/endpointslices",
        ];
        assert_eq!(collections, expected.into());
    });
}

#[test]
fn services_that_are_left_to_others_are_left_alone() {
    as_proxy("nftables", |cluster, day, _| {
        let mut other = service(
            "other",
            &json!({"clusterIP": "10.43.0.51", "clusterIPs": ["10.43.0.51"], "ports":
            [{"name": "http", "protocol": "TCP", "port": 8000, "targetPort": 80}], "type": "ClusterIP"}),
        );
        other["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "cilium"});
        cluster.put("services", other);
        // A service from a file has no address of the cluster.
        let file = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "file"},
            "spec": {"ports": [{"port": 8000}], "selector": {"app": "web"}}});
        day.put("file", file);
        cluster.put("services", service("web", &json!({})));
        let remote = endpoint(OUTSIDE.parse().unwrap(), "other", "r");
        cluster.put("endpointslices", slice(&[remote]));
        wait_until("the service", || answers(web()) == names(&["remote"]));
        let shown = day.says(&["get", "services", "-A", "-o", "name"]);
        assert_eq!(shown, "service/web\n");
        let rules = nft("list ruleset");
        assert!(
            !rules.contains("10.43.0.51") && !rules.contains("10.96.0."),
            "{rules}"
        );
    });
}

#[test]
fn services_stay_while_nobody_can_be_asked_and_pods_of_this_node_are_known_better() {
    as_proxy("nftables", |cluster, day, _| {
        let [a, b] = ["a", "b"].map(|name| {
            create(cluster, name, member(day, name));
            ready(cluster, name)
        });
        let remote = endpoint(OUTSIDE.parse().unwrap(), "other", "r");
        cluster.put("services", service("web", &json!({})));
        cluster.put("endpointslices", slice(&[remote, a, b]));
        let all = names(&["a", "b", "remote"]);
        wait_until("all three", || answers(web()) == all);
        let file = day.node.layout.cluster().join("services.json");
        wait_until("them to be kept", || {
            let kept = fs::read_to_string(&file).unwrap_or_default();
            kept.contains("web-x2j4k")
        });

        // The daemon is killed and comes back while nobody answers: what was in force stays, without a gap.
        cluster.down();
        day.kill9();
        assert_eq!(answers(web()), all);
        let before = nft("list ruleset").contains(CLUSTER_IP);
        day.start();
        wait_until("the services that were kept", || {
            let log = day.log();
            assert!(nft("list ruleset").contains(CLUSTER_IP) && before, "{log}");
            log.contains("services are those that an earlier daemon has kept")
        });
        assert_eq!(answers(web()), all);

        // A pod of this node that is not ready any more has no clients, although no slice says so.
        fs::remove_file(format!("/proc/{}/root/tmp/ready", day.process("a").pid)).unwrap();
        wait_until("a to have no clients", || {
            answers(web()) == names(&["b", "remote"])
        });

        // The control plane, back again, says that it is ready. Its word counts.
        cluster.up();
        wait_until("the word of the control plane", || answers(web()) == all);
    });
}

#[test]
fn an_api_server_that_knows_no_ranges_is_asked_again_when_it_is_another() {
    as_proxy("nftables", |cluster, day, _| {
        let has_route = || try_ip("route show table all").1.contains("10.43.0.0/16");
        cluster.put(
            "servicecidrs",
            json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.43.0.0/16"]}}),
        );
        cluster.put("services", service("web", &json!({})));
        let remote = endpoint(OUTSIDE.parse().unwrap(), "other", "r");
        cluster.put("endpointslices", slice(&[remote]));
        wait_until("the route", has_route);
        cluster.fail(
            "GET",
            "/servicecidrs",
            1,
            Fault::Status(404, "404 page not found", None),
        );
        cluster.cut();
        wait_until("no route", || !has_route());
        assert!(
            day.log()
                .contains("the API server knows no ranges of service addresses")
        );
        assert_eq!(answers(web()), names(&["remote"]));
        cluster.cut();
        wait_until("the route again", has_route);
    });
}

#[test]
fn a_node_that_joins_leaves_no_route_of_its_own() {
    on_the_bridge(json!({}), |day, _| {
        let Some(cluster) = ApiServer::start() else {
            return;
        };
        let has_route = || try_ip("route show table all").1.contains("10.96.0.0/16");
        let file = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "file"},
            "spec": {"ports": [{"port": 8000}]}});
        day.put("file", file);
        wait_until("the route", has_route);
        day.kill9();
        let kubeconfig = cluster.kubeconfig_with_token();
        let config =
            json!({"nodeIP": "127.0.0.1", "healthzBindAddress": "", "kubeconfig": kubeconfig});
        configure(day.node, &config);
        day.start();
        wait_until("no route", || !has_route());
        // It stands alone again, and joins once more, now as the proxy of the cluster.
        day.kill9();
        configure(day.node, &json!({}));
        day.start();
        wait_until("the route again", has_route);
        day.kill9();
        let proxy = cluster.kubeconfig_of_proxy();
        let config = json!({"nodeIP": "127.0.0.1", "healthzBindAddress": "", "kubeconfig": kubeconfig, "proxyKubeconfig": proxy});
        configure(day.node, &config);
        cluster.put("services", service("web", &json!({})));
        day.start();
        wait_until("the service of the cluster", || {
            nft("list ruleset").contains(CLUSTER_IP)
        });
        wait_until("no route", || !has_route());
    });
}

#[test]
fn an_identity_without_the_right_is_told_what_it_needs() {
    on_the_bridge(json!({}), |day, _| {
        let Some(cluster) = ApiServer::start() else {
            return;
        };
        day.kill9();
        // A node may not read endpoint slices.
        let config = json!({"nodeIP": "127.0.0.1", "healthzBindAddress": "",
            "kubeconfig": cluster.kubeconfig_with_token(), "proxyKubeconfig": cluster.kubeconfig_with_token()});
        configure(day.node, &config);
        day.start();
        let why = "User \"system:node:edge\" cannot list resource \"endpointslices\"; bind the ClusterRole system:node-proxier to the \
                   user of proxyKubeconfig";
        // Another answer may come later, so the ranges are not given up.
        let no_ranges =
            "the API server refuses /apis/networking.k8s.io/v1/servicecidrs with status 403";
        wait_until("the reasons", || {
            let log = day.log();
            log.contains(why) && log.contains(no_ranges)
        });
        // Host ports do not wait for it.
        let mut spec = member(day, "a");
        spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8081}]);
        create(&cluster, "a", spec);
        cluster.wait_for_pod("a", is_ready);
        let machine: IpAddr = MACHINE.parse().unwrap();
        wait_until("the host port", || {
            ask((machine, 8081)).is_ok_and(|name| name == "a")
        });
        cluster.delete_pod("a", 1);
        cluster.wait_until_gone("a");
    });
}
