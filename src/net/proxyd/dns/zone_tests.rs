use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::name::ToName;

use crate::api::service::{Cidr, Protocol};
use crate::net::services::names::{EndpointNames, NameTarget, NamedPort, Names, ServiceNames};

use super::answer::{Verdict, answer};
use super::message::{Query, Reply};
use super::record::{Data, Records, name_of_text};
use super::zone::Zone;

fn port(name: &str, protocol: Protocol, port: u16) -> NamedPort {
    NamedPort {
        name: name.into(),
        protocol,
        port,
    }
}

fn service(name: &str, target: NameTarget) -> ServiceNames {
    ServiceNames {
        namespace: "shop".into(),
        name: name.into(),
        target,
    }
}

fn cluster(name: &str, addresses: &[&str]) -> ServiceNames {
    let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
    let ports = vec![
        port("http", Protocol::Tcp, 80),
        port("http", Protocol::Udp, 80),
        port("", Protocol::Tcp, 81),
    ];
    service(name, NameTarget::ClusterIps { addresses, ports })
}

fn endpoint(address: &str, hostname: Option<&str>, ready: bool) -> EndpointNames {
    EndpointNames {
        address: address.parse().unwrap(),
        hostname: hostname.map(Into::into),
        ready,
        ports: vec![
            port("db", Protocol::Tcp, 5432),
            port("stats", Protocol::Tcp, 9187),
        ],
    }
}

fn external(name: &str, target: &str) -> ServiceNames {
    service(name, NameTarget::ExternalName(target.into()))
}

fn cidr(network: &str, prefix: u8) -> Cidr {
    Cidr {
        network: network.parse().unwrap(),
        prefix,
    }
}

fn names() -> Names {
    let plain = EndpointNames {
        ports: Vec::new(),
        ..endpoint("10.244.0.40", None, true)
    };
    Names {
        version: 7,
        domain: "cluster.local".into(),
        addresses: vec!["10.96.0.10".parse().unwrap()],
        pod_cidrs: vec![cidr("10.244.0.0", 24), cidr("fd00:1::", 64)],
        service_cidrs: vec![cidr("10.96.0.0", 16)],
        services: vec![
            cluster("web", &["10.96.0.1"]),
            cluster("both", &["10.96.0.2", "fd00::2"]),
            service(
                "db",
                NameTarget::Headless(vec![
                    endpoint("10.244.0.7", Some("db-0"), true),
                    endpoint("10.244.0.8", Some("db-1"), true),
                    endpoint("10.244.0.9", Some("db-2"), false),
                    endpoint("fd00:1::", None, true),
                    endpoint("192.0.2.1", None, true),
                ]),
            ),
            service("plain", NameTarget::Headless(vec![plain])),
            service(
                "down",
                NameTarget::Headless(vec![endpoint("10.244.0.50", None, false)]),
            ),
            service("empty", NameTarget::Headless(Vec::new())),
            external("out", "www.example.org"),
            external("in", "web.shop.svc.cluster.local."),
            external("to-none", "none.shop.svc.cluster.local"),
            external("round", "round.shop.svc.cluster.local"),
            external("address", "192.0.2.7"),
        ],
        ..Names::default()
    }
}

fn query(name: &str, rtype: Rtype) -> Query {
    Query {
        id: 1,
        recursion_desired: true,
        authentic_data: false,
        checking_disabled: false,
        name: name_of_text(name).unwrap(),
        rtype,
        class: Class::IN,
        edns: None,
    }
}

fn ask(name: &str, rtype: Rtype) -> Verdict {
    answer(&query(name, rtype), &Zone::new(names()), 512, 0)
}

fn line(owner: &Records, data: &Data) -> String {
    let data = match data {
        Data::A(a) => format!("A {a}"),
        Data::Aaaa(a) => format!("AAAA {a}"),
        Data::Cname(n) => format!("CNAME {n}"),
        Data::Ptr(n) => format!("PTR {n}"),
        Data::Ns(n) => format!("NS {n}"),
        Data::Srv(port, n) => format!("SRV {port} {n}"),
        Data::Txt(t) => format!("TXT {t}"),
        Data::Soa { serial, .. } => format!("SOA {serial}"),
        Data::Raw(..) => "raw".into(),
    };
    format!("{} {} {data}", owner.owner, owner.ttl)
}

fn lines<'r>(all: impl IntoIterator<Item = &'r Records>) -> Vec<String> {
    let each = all
        .into_iter()
        .flat_map(|r| r.data.iter().map(move |d| line(r, d)));
    each.collect()
}

fn reply(name: &str, rtype: Rtype) -> Reply {
    match ask(name, rtype) {
        Verdict::Reply(reply) => reply,
        asked => panic!("{name}: {asked:?}"),
    }
}

/// Checks the records of a name below the cluster's domain. `expected` contains the records without the domain and
/// without the name itself.
#[track_caller]
fn check(name: &str, rtype: Rtype, expected: &[&str]) {
    let name = format!("{name}.cluster.local");
    let reply = reply(&name, rtype);
    let found = lines(&reply.answer);
    let short: Vec<String> = found
        .iter()
        .map(|l| {
            l.replacen(&format!("{name} 5 "), "", 1)
                .replace(".cluster.local", "")
        })
        .collect();
    assert_eq!(short, expected, "{name} {rtype}");
    assert_eq!(
        (reply.rcode, reply.authority),
        (Rcode::NOERROR, None),
        "{name}"
    );
    assert!(reply.authoritative);
}

/// Checks that the answer has no records and this response code, and that its SOA record is that of `zone`.
#[track_caller]
fn check_none(name: &str, rtype: Rtype, rcode: Rcode, zone: &str) {
    let reply = reply(name, rtype);
    assert_eq!(reply.rcode, rcode, "{name} {rtype}");
    assert_eq!(lines(&reply.answer), Vec::<String>::new(), "{name} {rtype}");
    assert_eq!(lines(reply.authority.as_ref()), [format!("{zone} 5 SOA 7")]);
}

#[track_caller]
fn no_data(name: &str, rtype: Rtype) {
    let name = format!("{name}.cluster.local");
    check_none(&name, rtype, Rcode::NOERROR, "cluster.local");
}

#[track_caller]
fn no_name(name: &str, rtype: Rtype) {
    let name = format!("{name}.cluster.local");
    check_none(&name, rtype, Rcode::NXDOMAIN, "cluster.local");
}

#[test]
fn a_service_leads_to_its_cluster_ips() {
    check("web.shop.svc", Rtype::A, &["A 10.96.0.1"]);
    check("both.shop.svc", Rtype::A, &["A 10.96.0.2"]);
    check("both.shop.svc", Rtype::AAAA, &["AAAA fd00::2"]);
    no_data("web.shop.svc", Rtype::AAAA);
    no_data("web.shop.svc", Rtype::TXT);
    no_data("web.shop.svc", Rtype::ANY);
    no_name("web.other.svc", Rtype::A);
    no_name("other.shop.svc", Rtype::AAAA);
}

#[test]
fn a_headless_service_leads_to_its_ready_endpoints() {
    let addresses = ["A 10.244.0.7", "A 10.244.0.8", "A 192.0.2.1"];
    check("db.shop.svc", Rtype::A, &addresses);
    check("db.shop.svc", Rtype::AAAA, &["AAAA fd00:1::"]);
    check("plain.shop.svc", Rtype::A, &["A 10.244.0.40"]);
    // Specification 2.4.1: a service without a ready endpoint has no name.
    no_name("down.shop.svc", Rtype::A);
    no_name("empty.shop.svc", Rtype::A);
}

#[test]
fn an_endpoint_has_its_host_name_or_its_address_as_a_name() {
    check("db-0.db.shop.svc", Rtype::A, &["A 10.244.0.7"]);
    no_data("db-0.db.shop.svc", Rtype::AAAA);
    no_name("db-2.db.shop.svc", Rtype::A);
    no_name("10-244-0-7.db.shop.svc", Rtype::A);
    check("192-0-2-1.db.shop.svc", Rtype::A, &["A 192.0.2.1"]);
    check("fd00-1--0.db.shop.svc", Rtype::AAAA, &["AAAA fd00:1::"]);
    check("10-244-0-40.plain.shop.svc", Rtype::A, &["A 10.244.0.40"]);
    no_name("10-96-0-1.web.shop.svc", Rtype::A);
    no_name("x.db-0.db.shop.svc", Rtype::A);
}

#[test]
fn a_named_port_of_a_service_has_an_srv_record() {
    check(
        "_http._tcp.web.shop.svc",
        Rtype::SRV,
        &["SRV 80 web.shop.svc"],
    );
    check(
        "_http._udp.web.shop.svc",
        Rtype::SRV,
        &["SRV 80 web.shop.svc"],
    );
    // As in CoreDNS, the service's own name has the SRV records of all its ports.
    let all = ["SRV 80 web.shop.svc", "SRV 81 web.shop.svc"];
    check("web.shop.svc", Rtype::SRV, &all);
    no_name("_https._tcp.web.shop.svc", Rtype::SRV);
    no_name("_http._sctp.web.shop.svc", Rtype::SRV);
    no_name("http.tcp.web.shop.svc", Rtype::SRV);
    no_name("_._tcp.web.shop.svc", Rtype::SRV);
    no_data("_tcp.web.shop.svc", Rtype::SRV);
    no_name("_sctp.web.shop.svc", Rtype::SRV);
    let reply = reply("_http._tcp.both.shop.svc.cluster.local", Rtype::SRV);
    let extra = ["A 10.96.0.2", "AAAA fd00::2"];
    let extra = extra.map(|e| format!("both.shop.svc.cluster.local 5 {e}"));
    assert_eq!(lines(&reply.extra), extra);
}

#[test]
fn a_named_port_of_a_headless_service_has_an_srv_record_for_each_endpoint() {
    let endpoints = ["db-0", "db-1", "fd00-1--0", "192-0-2-1"];
    let servers = endpoints.map(|e| format!("SRV 5432 {e}.db.shop.svc"));
    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    check("_db._tcp.db.shop.svc", Rtype::SRV, &servers);
    let reply = reply("_db._tcp.db.shop.svc.cluster.local", Rtype::SRV);
    let extra = lines(&reply.extra);
    assert_eq!(extra.len(), 4);
    assert_eq!(extra[0], "db-0.db.shop.svc.cluster.local 5 A 10.244.0.7");
}

#[test]
fn an_external_name_is_an_alias() {
    check("out.shop.svc", Rtype::CNAME, &["CNAME www.example.org"]);
    let Verdict::Ask { name, aliases } = ask("out.shop.svc.cluster.local", Rtype::A) else {
        panic!("it is known elsewhere");
    };
    assert_eq!(name.to_string(), "www.example.org");
    let alias = "out.shop.svc.cluster.local 5 CNAME www.example.org";
    assert_eq!(lines(&aliases), [alias]);
    let both = ["CNAME web.shop.svc", "web.shop.svc 5 A 10.96.0.1"];
    check("in.shop.svc", Rtype::A, &both);
    let reply = reply("to-none.shop.svc.cluster.local", Rtype::A);
    assert_eq!(reply.rcode, Rcode::NXDOMAIN);
    assert_eq!(lines(&reply.answer).len(), 1);
    no_name("x.out.shop.svc", Rtype::CNAME);
    no_name("_http._tcp.out.shop.svc", Rtype::SRV);
    no_name("address.shop.svc", Rtype::A);
}

#[test]
fn aliases_that_go_round_end() {
    let reply = reply("round.shop.svc.cluster.local", Rtype::A);
    assert_eq!(reply, Reply::error(Rcode::SERVFAIL));
}

#[test]
fn names_on_the_way_exist() {
    for name in ["svc", "pod", "shop.svc", "shop.pod", "dns"] {
        no_data(name, Rtype::A);
        no_data(name, Rtype::NS);
    }
    check_none("cluster.local", Rtype::A, Rcode::NOERROR, "cluster.local");
    no_name("other.svc", Rtype::NS);
    no_name("other", Rtype::A);
    no_name("web.shop", Rtype::A);
    no_name("*.shop.svc", Rtype::A);
}

/// The names that a pod makes from `www.example.org` and its search domains (ndots:5) do not exist, and are not
/// forwarded.
#[test]
fn what_the_search_path_makes_ends_here() {
    for search in ["shop.svc", "svc", ""] {
        let name = format!("www.example.org.{search}.cluster.local").replace("..", ".");
        check_none(&name, Rtype::A, Rcode::NXDOMAIN, "cluster.local");
    }
}

#[test]
fn the_zone_says_who_answers_for_it() {
    let text = reply("dns-version.cluster.local", Rtype::TXT);
    assert_eq!(
        lines(&text.answer),
        ["dns-version.cluster.local 28800 TXT 1.1.0"]
    );
    let start = reply("cluster.local", Rtype::SOA);
    assert_eq!(lines(&start.answer), ["cluster.local 5 SOA 7"]);
    let server = reply("cluster.local", Rtype::NS);
    assert_eq!(
        lines(&server.answer),
        ["cluster.local 5 NS ns.dns.cluster.local"]
    );
    assert_eq!(
        lines(&server.extra),
        ["ns.dns.cluster.local 5 A 10.96.0.10"]
    );
    check("ns.dns", Rtype::A, &["A 10.96.0.10"]);
}

#[test]
fn a_pod_has_its_address_as_a_name_where_pods_have_addresses() {
    check("10-244-0-99.any.pod", Rtype::A, &["A 10.244.0.99"]);
    check("fd00-1--9.any.pod", Rtype::AAAA, &["AAAA fd00:1::9"]);
    no_data("10-244-0-99.any.pod", Rtype::AAAA);
    // CoreDNS with `pods insecure` answers such questions. Any address could then get a name in the cluster, and a
    // certificate for that name.
    no_name("192-0-2-1.any.pod", Rtype::A);
    no_name("web.any.pod", Rtype::A);
}

fn pointers(name: &str) -> Vec<String> {
    lines(&reply(name, Rtype::PTR).answer)
        .iter()
        .map(|l| l.replacen(&format!("{name} 5 PTR "), "", 1))
        .collect()
}

#[test]
fn an_address_leads_back_to_its_name() {
    let of = "1.0.96.10.in-addr.arpa";
    assert_eq!(pointers(of), ["web.shop.svc.cluster.local"]);
    let of = "7.0.244.10.in-addr.arpa";
    assert_eq!(pointers(of), ["db-0.db.shop.svc.cluster.local"]);
    let of = "1.2.0.192.in-addr.arpa";
    assert_eq!(pointers(of), ["192-0-2-1.db.shop.svc.cluster.local"]);
    let of = "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa";
    assert_eq!(pointers(of), ["both.shop.svc.cluster.local"]);
    // nslookup asks for the name of the server that it uses.
    let of = "10.0.96.10.in-addr.arpa";
    assert_eq!(pointers(of), ["ns.dns.cluster.local"]);
}

#[test]
fn reverse_names_of_the_cluster_are_not_asked_elsewhere() {
    let pods = "0.244.10.in-addr.arpa";
    for unknown in ["9", "200", "x", "1.200"] {
        let name = format!("{unknown}.{pods}");
        check_none(&name, Rtype::PTR, Rcode::NXDOMAIN, pods);
    }
    check_none(pods, Rtype::PTR, Rcode::NOERROR, pods);
    let name = format!("7.{pods}");
    check_none(&name, Rtype::A, Rcode::NOERROR, pods);
    let services = "96.10.in-addr.arpa";
    check_none("3.96.10.in-addr.arpa", Rtype::PTR, Rcode::NOERROR, services);
    for other in ["1.1.168.192.in-addr.arpa", "1.0.97.10.in-addr.arpa"] {
        assert!(
            matches!(ask(other, Rtype::PTR), Verdict::Ask { .. }),
            "{other}"
        );
    }
    let other = ask("1.2.0.192.in-addr.arpa", Rtype::TXT);
    assert!(matches!(other, Verdict::Ask { .. }));
}

#[test]
fn a_name_is_found_in_any_case_and_answered_in_that_case() {
    let reply = reply("wEb.ShOp.SVC.cLuster.LOCAL", Rtype::A);
    assert_eq!(
        lines(&reply.answer),
        ["wEb.ShOp.SVC.cLuster.LOCAL 5 A 10.96.0.1"]
    );
}

#[test]
fn other_names_are_asked_elsewhere() {
    for name in [
        "example.org",
        "local",
        "cluster.local.example.org",
        "xcluster.local",
    ] {
        assert!(matches!(ask(name, Rtype::A), Verdict::Ask { .. }), "{name}");
    }
    let root = Query {
        name: super::record::OwnedName::root_vec(),
        ..query("x", Rtype::NS)
    };
    let verdict = answer(&root, &Zone::new(names()), 512, 0);
    assert!(matches!(verdict, Verdict::Ask { .. }));
}

/// A label with other bytes than letters, or with a dot in it, matches no name.
#[test]
fn a_label_is_not_taken_apart() {
    let bytes = b"\x08web.shop\x03svc\x07cluster\x05local\0";
    let odd = super::record::OwnedName::from_octets(bytes.to_vec()).unwrap();
    let query = Query {
        name: odd.to_vec(),
        ..query("x", Rtype::A)
    };
    let Verdict::Reply(reply) = answer(&query, &Zone::new(names()), 512, 0) else {
        panic!("it is of the zone");
    };
    assert_eq!(reply.rcode, Rcode::NXDOMAIN);
}

#[test]
fn addresses_change_their_order_from_answer_to_answer() {
    let zone = Zone::new(names());
    let query = query("db.shop.svc.cluster.local", Rtype::A);
    let firsts: std::collections::BTreeSet<String> = (0..8)
        .map(|turn| match answer(&query, &zone, 512, turn) {
            Verdict::Reply(reply) => lines(&reply.answer)[0].clone(),
            asked => panic!("{asked:?}"),
        })
        .collect();
    assert_eq!(firsts.len(), 3, "{firsts:?}");
}

#[test]
fn services_that_no_name_can_say_are_left_out() {
    let long = "x".repeat(64);
    let mut names = names();
    names.services = vec![
        cluster(&long, &["10.96.0.3"]),
        cluster("", &["10.96.0.4"]),
        external("long", &"y.".repeat(200)),
        external("dots", "a..b"),
        service(
            "hosts",
            NameTarget::Headless(vec![endpoint("10.244.0.3", Some(&long), true)]),
        ),
    ];
    let zone = Zone::new(names.clone());
    for (name, rtype) in [
        ("3.0.96.10.in-addr.arpa", Rtype::PTR),
        ("4.0.96.10.in-addr.arpa", Rtype::PTR),
        ("3.0.244.10.in-addr.arpa", Rtype::PTR),
        ("long.shop.svc.cluster.local", Rtype::A),
        ("dots.shop.svc.cluster.local", Rtype::A),
        ("hosts.shop.svc.cluster.local", Rtype::SRV),
    ] {
        let Verdict::Reply(reply) = answer(&query(name, rtype), &zone, 512, 0) else {
            panic!("{name}: it is of the zone");
        };
        assert_eq!(reply.answer, [], "{name}");
    }
    names.domain = String::new();
    let verdict = answer(&query("cluster.local", Rtype::A), &Zone::new(names), 512, 0);
    assert!(matches!(verdict, Verdict::Ask { .. }));
}

#[test]
fn names_go_through_json() {
    let names = names();
    let text = serde_json::to_string(&names).unwrap();
    assert_eq!(serde_json::from_str::<Names>(&text).unwrap(), names);
}

/// An address comes only once even if it has several ports, wherever the rotation begins.
#[test]
fn an_address_comes_once() {
    let zone = Zone::new(names());
    let query = query("db.shop.svc.cluster.local", Rtype::A);
    for turn in 0..8 {
        let Verdict::Reply(reply) = answer(&query, &zone, 512, turn) else {
            panic!("it is of the zone");
        };
        let mut found = lines(&reply.answer);
        found.sort();
        found.dedup();
        assert_eq!((found.len(), reply.answer[0].data.len()), (3, 3), "{turn}");
    }
}

#[test]
fn no_more_is_gathered_than_fits() {
    let many = (0..1000_u16).map(|n| EndpointNames {
        address: std::net::Ipv4Addr::from(0x0af4_0000 + u32::from(n)).into(),
        ..endpoint("10.244.0.7", None, true)
    });
    let mut names = names();
    names
        .services
        .push(service("many", NameTarget::Headless(many.collect())));
    let zone = Zone::new(names);
    for (name, rtype) in [("many", Rtype::A), ("_db._tcp.many", Rtype::SRV)] {
        let query = query(&format!("{name}.shop.svc.cluster.local"), rtype);
        let Verdict::Reply(reply) = answer(&query, &zone, 512, 0) else {
            panic!("{name}: it is of the zone");
        };
        assert_eq!(reply.answer[0].data.len(), 33, "{name}");
    }
}
