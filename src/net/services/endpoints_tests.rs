use super::*;
use crate::api::PodPhase;
use crate::api::service::Protocol;
use crate::net::services::pod_facts::PodPort;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
    pairs.iter().map(own).collect()
}

/// Returns a running, ready pod in namespace `default` with the label `app: web`.
fn web(name: &str, addresses: &[&str]) -> PodFacts {
    PodFacts {
        namespace: "default".into(),
        name: name.into(),
        labels: labels(&[("app", "web")]),
        phase: PodPhase::Running,
        addresses: addresses.iter().map(|a| ip(a)).collect(),
        serving: true,
        ..PodFacts::default()
    }
}

fn port(name: &str, protocol: Protocol, target_port: TargetPort) -> ServicePort {
    ServicePort {
        name: name.into(),
        protocol,
        port: 80,
        target_port,
        node_port: None,
        app_protocol: None,
    }
}

/// Returns a service that selects `app: web` and sends its only port to port 8080.
fn service() -> Service {
    Service {
        selector: labels(&[("app", "web")]),
        ports: vec![port("", Protocol::Tcp, TargetPort::Number(8080))],
        ..Service::default()
    }
}

fn of<'a>(service: &'a Service, families: &'a [IpFamily]) -> Selecting<'a> {
    Selecting {
        namespace: "default",
        name: "web",
        service,
        families,
    }
}

fn found(service: &Service, pods: &[PodFacts]) -> Vec<PodEndpoint> {
    endpoints(&of(service, &[IpFamily::V4]), pods)
}

/// Checks the endpoints as texts: the pod's name, and a letter for each of the conditions ready, serving and terminating.
#[track_caller]
fn check(service: &Service, pods: &[PodFacts], expected: &[&str]) {
    let word = |e: PodEndpoint| {
        let c = e.endpoint.conditions;
        let letter = |is, letter| if is { letter } else { "-" };
        let (_, pod) = e.endpoint.target.expect("a pod");
        let (r, s, t) = (
            letter(c.ready, "r"),
            letter(c.serving, "s"),
            letter(c.terminating, "t"),
        );
        format!("{pod} {r}{s}{t}")
    };
    let got: Vec<String> = found(service, pods).into_iter().map(word).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_selector_selects_pods_with_all_its_labels() {
    let of = |selector| Service {
        selector: labels(selector),
        ..Service::default()
    };
    let pod = labels(&[("app", "web"), ("tier", "front")]);
    assert!(selects(&of(&[("app", "web")]), &pod));
    assert!(selects(&of(&[("app", "web"), ("tier", "front")]), &pod));
    assert!(!selects(&of(&[("app", "web"), ("tier", "back")]), &pod));
    assert!(!selects(&of(&[("name", "web")]), &pod));
    assert!(!selects(&of(&[]), &pod), "an empty selector selects none");
}

#[test]
fn pods_of_other_namespaces_are_no_endpoints() {
    let other = PodFacts {
        namespace: "other".into(),
        ..web("b", &["10.0.0.2"])
    };
    check(&service(), &[web("a", &["10.0.0.1"]), other], &["a rs-"]);
}

#[test]
fn a_pod_that_has_finished_or_has_no_address_is_no_endpoint() {
    let phase = |name, phase| PodFacts {
        phase,
        ..web(name, &["10.0.0.1"])
    };
    let pods = [
        phase("a", PodPhase::Succeeded),
        phase("b", PodPhase::Failed),
        phase("c", PodPhase::Pending),
        phase("d", PodPhase::Unknown),
        web("e", &[]),
    ];
    check(&service(), &pods, &["c rs-", "d rs-"]);
    assert_eq!(
        pods.each_ref().map(counts),
        [false, false, true, true, false]
    );
}

#[test]
fn ready_is_serving_and_not_terminating() {
    let pod = |name, serving, terminating| PodFacts {
        serving,
        terminating,
        ..web(name, &["10.0.0.1"])
    };
    let pods = [
        pod("a", true, false),
        pod("b", false, false),
        pod("c", true, true),
        pod("d", false, true),
    ];
    check(&service(), &pods, &["a rs-", "b ---", "c -st", "d --t"]);
    let published = Service {
        publish_not_ready_addresses: true,
        ..service()
    };
    check(&published, &pods, &["a rs-", "b r--", "c rst", "d r-t"]);
}

#[test]
fn the_order_of_pods_does_not_matter() {
    let (a, b) = (web("a", &["10.0.0.1"]), web("b", &["10.0.0.2"]));
    let one = found(&service(), &[a.clone(), b.clone()]);
    assert_eq!(one, found(&service(), &[b, a]));
}

#[test]
fn each_pod_has_its_own_number_for_a_named_port() {
    let with = |name: &str, port, protocol| PodFacts {
        ports: vec![PodPort {
            name: "http".into(),
            port,
            protocol,
            host_port: None,
            host_ip: None,
        }],
        ..web(name, &["10.0.0.1"])
    };
    let named = Service {
        ports: vec![
            port("main", Protocol::Tcp, TargetPort::Name("http".into())),
            port("same", Protocol::Udp, TargetPort::Name("http".into())),
            port("fixed", Protocol::Tcp, TargetPort::Number(9000)),
        ],
        ..service()
    };
    let pods = [
        with("a", 8080, Protocol::Tcp),
        with("b", 8081, Protocol::Tcp),
        with("c", 53, Protocol::Udp),
        web("d", &["10.0.0.4"]),
    ];
    let ports = |e: &PodEndpoint| {
        let one = |p: &EndpointPort| format!("{}/{}", p.name, p.port.expect("a number"));
        e.ports.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    let got: Vec<String> = found(&named, &pods).iter().map(ports).collect();
    let expected = [
        "main/8080 fixed/9000",
        "main/8081 fixed/9000",
        "same/53 fixed/9000",
        "fixed/9000",
    ];
    assert_eq!(got, expected);
}

#[test]
fn a_family_has_the_addresses_of_that_family() {
    let pod = web("a", &["10.0.0.1", "fd00::1", "fd00::2"]);
    let only_v4 = web("b", &["10.0.0.2"]);
    let service = service();
    let both = of(&service, &[IpFamily::V4, IpFamily::V6]);
    let found = endpoints(&both, &[pod, only_v4]);
    let got: Vec<_> = found.iter().map(|e| &*e.endpoint.addresses).collect();
    assert_eq!(
        got,
        [
            &[ip("10.0.0.1")][..],
            &[ip("fd00::1"), ip("fd00::2")],
            &[ip("10.0.0.2")]
        ]
    );
    assert!(endpoints(&of(&service, &[IpFamily::V6]), &[web("b", &["10.0.0.2"])]).is_empty());
}

#[test]
fn a_host_name_counts_below_the_service_of_its_subdomain() {
    let pod = |hostname: &str, subdomain: &str| PodFacts {
        hostname: hostname.into(),
        subdomain: subdomain.into(),
        ..web("a", &["10.0.0.1"])
    };
    let name = |pod| found(&service(), &[pod])[0].endpoint.hostname.clone();
    assert_eq!(name(pod("web-0", "web")), Some("web-0".into()));
    assert_eq!(name(pod("web-0", "other")), None);
    assert_eq!(name(pod("", "web")), None);
}

#[test]
fn a_slice_has_pods_of_one_family_and_the_same_ports() {
    let service = Service {
        ports: vec![port("", Protocol::Tcp, TargetPort::Name("http".into()))],
        ..service()
    };
    let with = |name: &str, number, addresses: &[&str]| PodFacts {
        ports: vec![PodPort {
            name: "http".into(),
            port: number,
            protocol: Protocol::Tcp,
            host_port: None,
            host_ip: None,
        }],
        ..web(name, addresses)
    };
    let pods = [
        with("a", 80, &["10.0.0.1", "fd00::1"]),
        with("b", 81, &["10.0.0.2"]),
        with("c", 80, &["10.0.0.3"]),
    ];
    let found = endpoints(&of(&service, &[IpFamily::V4, IpFamily::V6]), &pods);
    let got: Vec<_> = slices("web", "node", &found)
        .iter()
        .map(|s| (s.family, s.ports[0].port, s.endpoints.len()))
        .collect();
    let expected = [
        (IpFamily::V4, Some(80), 2),
        (IpFamily::V4, Some(81), 1),
        (IpFamily::V6, Some(80), 1),
    ];
    assert_eq!(got, expected);
    let node = &slices("web", "node", &found)[0].endpoints[0].node_name;
    assert_eq!(node.as_deref(), Some("node"));
}

#[test]
fn families_are_of_the_addresses_or_named_or_of_the_node() {
    let named = Service {
        ip_families: vec![IpFamily::V6],
        ..Service::default()
    };
    let (v4, v6) = (IpFamily::V4, IpFamily::V6);
    assert_eq!(families(&named, &[ip("10.96.0.1")], &[v4, v6]), [v4]);
    assert_eq!(families(&named, &[], &[v4, v6]), [v6]);
    assert_eq!(
        families(&service(), &[], &[v6, v4]),
        [v6],
        "the primary one"
    );
    let both = Service {
        ip_family_policy: IpFamilyPolicy::PreferDualStack,
        ..service()
    };
    assert_eq!(families(&both, &[], &[v6, v4]), [v4, v6]);
    let no_selector = Service::default();
    assert_eq!(families(&no_selector, &[], &[v6, v4]), [v4, v6]);
}
