use std::net::IpAddr;

use super::*;
use crate::api::PodPhase;
use crate::api::service::{
    ClusterIps, Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Protocol, Service,
};
use crate::net::services::inputs::{NamedSlice, NodeFacts};
use crate::net::services::pod_facts::PodPort;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
    pairs.iter().map(own).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Returns a ready pod in `default` with an IPv4 address and a TCP port `http`.
fn pod(name: &str, of: &[(&str, &str)]) -> PodFacts {
    let http = PodPort {
        name: "http".into(),
        port: 8080,
        protocol: Protocol::Tcp,
        host_port: None,
        host_ip: None,
    };
    PodFacts {
        namespace: "default".into(),
        name: name.into(),
        labels: labels(of),
        phase: PodPhase::Running,
        addresses: vec![ip("10.244.0.2")],
        serving: true,
        ports: vec![http],
        ..PodFacts::default()
    }
}

fn web(name: &str) -> PodFacts {
    pod(name, &[("app", "web")])
}

fn target(target_port: TargetPort) -> ServicePort {
    ServicePort {
        name: String::new(),
        protocol: Protocol::Tcp,
        port: 80,
        target_port,
        node_port: None,
        app_protocol: None,
    }
}

fn selecting(selector: &[(&str, &str)]) -> Service {
    Service {
        selector: labels(selector),
        ports: vec![target(TargetPort::Name("http".into()))],
        ..Service::default()
    }
}

fn explained(service: &Service, cluster_ips: &[IpAddr], pods: &[PodFacts]) -> Explanation {
    explained_with(service, cluster_ips, pods, None)
}

/// Explains a service. With `slices`, these name all endpoints.
fn explained_with(
    service: &Service,
    cluster_ips: &[IpAddr],
    pods: &[PodFacts],
    slices: Option<&[EndpointSlice]>,
) -> Explanation {
    let named = NamedService {
        namespace: "default",
        name: "web",
        service,
        created: None,
        cluster_ips,
        node_ports: &[],
        health_check_node_port: None,
    };
    let node = NodeFacts {
        families: &[IpFamily::V4],
        ..NodeFacts::default()
    };
    let only_slices = slices.is_some();
    let slices = slices.unwrap_or_default().iter();
    let slices = slices.map(|slice| NamedSlice {
        namespace: "default",
        slice,
    });
    let inputs = Inputs {
        pods: &pods.iter().collect::<Vec<_>>(),
        slices: &slices.collect::<Vec<_>>(),
        only_slices,
        node,
        ..Inputs::default()
    };
    explain(&named, &inputs)
}

fn words(of: &[PodTraffic]) -> Vec<String> {
    let word = |p: &PodTraffic| {
        let gets = if p.gets_traffic { "yes" } else { "no" };
        format!("{} {gets}: {}", p.name, p.why.join(" | "))
    };
    of.iter().map(word).collect()
}

#[track_caller]
fn check_of(service: &Service, pods: &[PodFacts], expected: &[&str]) {
    let got = explained(service, &[ip("10.96.0.1")], pods);
    assert_eq!(words(&got.selected), expected);
}

#[track_caller]
fn check(pods: &[PodFacts], expected: &[&str]) {
    check_of(&selecting(&[("app", "web")]), pods, expected);
}

#[test]
fn a_ready_pod_gets_traffic_and_another_says_why_not() {
    let unready = PodFacts {
        serving: false,
        not_serving: "container c: readiness probe does not succeed".into(),
        ..web("b")
    };
    let ending = PodFacts {
        terminating: true,
        ..web("c")
    };
    let finished = PodFacts {
        phase: PodPhase::Succeeded,
        ..web("d")
    };
    let new = PodFacts {
        addresses: vec![],
        ..web("e")
    };
    let addressed = |pod: PodFacts, at: &str| PodFacts {
        addresses: vec![ip(at)],
        ..pod
    };
    let pods = [
        new,
        addressed(finished, "10.244.0.6"),
        addressed(ending, "10.244.0.4"),
        addressed(unready, "10.244.0.3"),
        web("a"),
    ];
    let expected = [
        "a yes: ",
        "b no: not ready: container c: readiness probe does not succeed",
        "c no: terminating",
        "d no: phase Succeeded",
        "e no: no address yet",
    ];
    check(&pods, &expected);
}

/// A service without a cluster IP is not served, not even on its other addresses. Such a service has no cluster IP
/// because its address was refused or belongs to another service. A problem that is shown beside the explanation gives
/// the reason.
#[test]
fn nobody_sends_to_a_service_without_address() {
    let mut service = selecting(&[("app", "web")]);
    let explained_for = |service: &Service| words(&explained(service, &[], &[web("a")]).selected);
    let none = ["a no: the service has no address"];
    assert_eq!(explained_for(&service), none);
    service.external_ips = vec![ip("192.0.2.7")];
    assert_eq!(explained_for(&service), none);
    // Headless services have no cluster IP by nature.
    service.cluster_ips = ClusterIps::Headless;
    assert_eq!(explained_for(&service), ["a yes: "]);
}

#[test]
fn a_pod_that_ends_gets_traffic_where_no_other_is_ready() {
    let ending = PodFacts {
        terminating: true,
        ..web("a")
    };
    let why = "a yes: terminating; gets traffic because no endpoint is ready";
    check(std::slice::from_ref(&ending), &[why]);
    let unready = PodFacts {
        serving: false,
        not_serving: "container c: waiting: CrashLoopBackOff".into(),
        ..ending
    };
    check(
        &[unready],
        &["a no: terminating, and not ready: container c: waiting: CrashLoopBackOff"],
    );
}

#[test]
fn published_pods_get_traffic_without_being_ready() {
    let service = Service {
        publish_not_ready_addresses: true,
        ..selecting(&[("app", "web")])
    };
    let unready = PodFacts {
        serving: false,
        not_serving: "container c: not started yet".into(),
        ..web("a")
    };
    let why = "a yes: not ready: container c: not started yet; gets traffic because of publishNotReadyAddresses";
    check_of(&service, &[unready], &[why]);
}

#[test]
fn missing_ports_and_families_are_named() {
    let renamed = |name: &str, protocol| {
        let mut pod = web("a");
        pod.ports[0].name = name.into();
        pod.ports[0].protocol = protocol;
        pod
    };
    let tcp = Protocol::Tcp;
    check(
        &[renamed("main", tcp)],
        &["a no: no port named \"http\" for TCP"],
    );
    check(
        &[renamed("htpp", tcp)],
        &["a no: no port named \"http\" for TCP; did you mean \"htpp\"?"],
    );
    check(
        &[renamed("http", Protocol::Udp)],
        &["a no: no port named \"http\" for TCP; the one of that name is UDP"],
    );
    let service = selecting(&[("app", "web")]);
    let both = [ip("10.96.0.1"), ip("fd02::1")];
    let got = explained(&service, &both, &[web("a")]);
    assert_eq!(words(&got.selected), ["a yes: no address of family IPv6"]);
    let got = explained(&service, &both[1..], &[web("a")]);
    assert_eq!(words(&got.selected), ["a no: no address of family IPv6"]);
}

#[test]
fn names_of_a_headless_service_lead_to_its_ready_pods() {
    let service = Service {
        cluster_ips: ClusterIps::Headless,
        ports: vec![],
        ..selecting(&[("app", "web")])
    };
    let ending = PodFacts {
        terminating: true,
        ..web("b")
    };
    let got = explained(&service, &[], &[web("a"), ending]);
    assert_eq!(words(&got.selected), ["a yes: ", "b no: terminating"]);
}

#[track_caller]
fn check_near(selector: &[(&str, &str)], pods: &[PodFacts], expected: &[&str], note: &str) {
    let got = explained(&selecting(selector), &[ip("10.96.0.1")], pods);
    assert_eq!(
        (words(&got.near), &*got.note),
        (expected.iter().map(|e| e.to_string()).collect(), note)
    );
}

#[test]
fn slips_in_labels_are_found() {
    let none = "no pod of namespace default has the labels app=frontend";
    let front = [("app", "frontend")];
    let slip = pod("a", &[("app", "fronted")]);
    let why = "a no: its label app is \"fronted\", the selector wants \"frontend\"";
    check_near(&front, std::slice::from_ref(&slip), &[why], none);
    let key = pod("a", &[("App", "frontend")]);
    let why_key = "a no: it has the label App=frontend, the selector wants app=frontend";
    check_near(&front, &[key], &[why_key], none);
    check_near(&front, &[pod("a", &[("app", "backend-of-it")])], &[], none);
    let good = pod("b", &front);
    check_near(&front, &[slip, good], &[why], "");
}

#[test]
fn pods_with_some_of_the_labels_are_named_where_none_has_all() {
    let selector = [("app", "web"), ("tier", "front")];
    let none = "no pod of namespace default has the labels app=web,tier=front";
    let back = pod("back", &[("app", "web"), ("tier", "database")]);
    let bare = pod("bare", &[("app", "web")]);
    let other = pod("other", &[("app", "thing")]);
    let expected = [
        "back no: its label tier is \"database\", the selector wants \"front\"",
        "bare no: no label tier=front",
    ];
    let pods = [bare, back, other];
    check_near(&selector, &pods, &expected, none);
    let all = [pods.as_slice(), &[pod("good", &selector)]].concat();
    check_near(&selector, &all, &[], "");
}

#[test]
fn a_pod_of_another_namespace_is_named_where_none_is_selected() {
    let elsewhere = PodFacts {
        namespace: "other".into(),
        ..web("a")
    };
    let why = "a no: it is in namespace other; a service selects pods of its own, default";
    let none = "no pod of namespace default has the labels app=web";
    check_near(
        &[("app", "web")],
        std::slice::from_ref(&elsewhere),
        &[why],
        none,
    );
    check_near(&[("app", "web")], &[elsewhere, web("b")], &[], "");
}

#[test]
fn at_most_five_near_pods_are_named() {
    let pods: Vec<_> = (0..9)
        .map(|n| pod(&n.to_string(), &[("app", "wbe-front")]))
        .collect();
    let got = explained(
        &selecting(&[("app", "web-front")]),
        &[ip("10.96.0.1")],
        &pods,
    );
    assert_eq!(got.near.len(), MOST_NEAR);
}

#[test]
fn without_a_selector_endpoints_come_from_slices() {
    check_near(
        &[],
        &[web("a")],
        &[],
        "no selector: its endpoints come from EndpointSlices",
    );
}

#[test]
fn where_only_slices_name_endpoints_a_pod_gets_traffic_by_them() {
    let port = EndpointPort {
        name: String::new(),
        protocol: Protocol::Tcp,
        port: Some(8080),
        app_protocol: None,
    };
    let endpoint = Endpoint {
        addresses: vec![ip("10.244.0.2")],
        conditions: EndpointConditions {
            ready: true,
            serving: true,
            terminating: false,
        },
        hostname: None,
        node_name: None,
        target: Some(("default".into(), "a".into())),
    };
    let slice = EndpointSlice {
        service: "web".into(),
        family: IpFamily::V4,
        endpoints: vec![endpoint],
        ports: vec![port],
    };
    let service = selecting(&[("app", "web")]);
    let of = |pods: &[PodFacts]| {
        let slices = std::slice::from_ref(&slice);
        explained_with(&service, &[ip("10.96.0.1")], pods, Some(slices))
    };
    let got = of(&[web("a"), web("b"), pod("c", &[("app", "wep")])]);
    let expected = ["a yes: ", "b no: no EndpointSlice of the cluster names it"];
    assert_eq!(words(&got.selected), expected);
    assert!(
        got.near.is_empty(),
        "a slip is of no use where slices count"
    );
    let elsewhere = "no pod of this node: its endpoints are those of the cluster's EndpointSlices";
    assert_eq!(of(&[]).note, elsewhere);
}
