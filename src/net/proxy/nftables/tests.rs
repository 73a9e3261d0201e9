//! Tests transactions as data, and their results in a real kernel. Tests with traffic are in
//! tests/net/data_paths.rs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, setsockopt, socket,
    sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::path::Nftables;
use super::plan;
use crate::api::service::{Cidr, Protocol};
use crate::base::clock::Moment;
use crate::net::netfilter::{ChainState, Family, Netfilter, Table};
use crate::net::proxy::{Applied, DataPath};
use crate::net::services::table::{
    Backend, Backends, ServicePortEntry, ServicePortName, ServiceTable,
};
use crate::own_network;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn backends(addresses: &[&str]) -> Backends {
    let backend = |address: &&str| Backend {
        address: address.parse().unwrap(),
        namespace: None,
    };
    Backends::Some(addresses.iter().map(backend).collect())
}

fn service(name: &str, cluster_ip: &str) -> ServicePortEntry {
    ServicePortEntry::new(
        ServicePortName {
            namespace: "default".into(),
            service: name.into(),
            port: String::new(),
            protocol: Protocol::Tcp,
        },
        80,
        vec![ip(cluster_ip)],
        backends(&["10.244.0.2:8080", "10.244.0.3:8080"]),
    )
}

fn table(services: &[ServicePortEntry]) -> ServiceTable {
    let cidr = |network, prefix| Cidr {
        network: ip(network),
        prefix,
    };
    let mut services = services.to_vec();
    services.sort_by(|a, b| a.name.cmp(&b.name));
    ServiceTable {
        services,
        host_ports: Vec::new(),
        pod_cidrs: vec![cidr("10.244.0.0", 24)],
        service_cidrs: vec![cidr("10.96.0.0", 16)],
    }
}

fn kernel_table() -> Table {
    Table {
        family: Family::Ip,
        name: "t".into(),
    }
}

/// Checks the operations that change the table `before` into the table `next`, without the operations that end
/// every transaction.
#[track_caller]
fn check(before: &[ServicePortEntry], next: &[ServicePortEntry], expected: &[&str]) {
    let (transaction, _) = plan::differences(&table(before), &table(next), &kernel_table());
    let text = transaction.to_string();
    let found: Vec<&str> = text
        .lines()
        .map(|line| line.strip_suffix(" of table ip t").unwrap())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn equal_tables_are_no_operation() {
    let all = [service("a", "10.96.0.1"), service("b", "10.96.0.2")];
    check(&all, &all, &[]);
}

#[test]
fn the_change_of_an_endpoint_touches_its_service_alone() {
    let all = [service("a", "10.96.0.1"), service("b", "10.96.0.2")];
    let mut next = all.clone();
    next[1].internal = backends(&["10.244.0.2:8080", "10.244.0.4:8080"]);
    next[1].external = next[1].internal.clone();
    check(
        &all,
        &next,
        &[
            "flush chain service-default/b/tcp",
            "add rule to chain service-default/b/tcp",
            // 10.244.0.3 is still an endpoint of the other service.
            "add 1 elements to set hairpins",
        ],
    );
    check(
        &next[1..],
        &all[1..],
        &[
            "flush chain service-default/b/tcp",
            "add rule to chain service-default/b/tcp",
            "delete 1 elements of set hairpins",
            "add 1 elements to set hairpins",
        ],
    );
}

#[test]
fn elements_go_before_those_that_come() {
    let (one, two) = (service("a", "10.96.0.1"), service("b", "10.96.0.2"));
    let swapped = [service("a", "10.96.0.2"), service("b", "10.96.0.1")];
    check(
        &[one, two],
        &swapped,
        &[
            "delete 2 elements of set service-ips",
            "add 2 elements to set service-ips",
        ],
    );
}

#[test]
fn a_service_comes_with_its_chain_first_and_goes_with_its_chain_last() {
    let mut all = [service("a", "10.96.0.1"), service("b", "10.96.0.2")];
    all[1].affinity = Some(Duration::from_secs(60));
    check(
        &all[..1],
        &all,
        &[
            "add chain service-default/b/tcp",
            "add chain endpoint-default/b/tcp__10.244.0.2/8080",
            "add chain endpoint-default/b/tcp__10.244.0.3/8080",
            "add set affinity-default/b/tcp__10.244.0.2/8080",
            "add set affinity-default/b/tcp__10.244.0.3/8080",
            "add rule to chain service-default/b/tcp",
            "add rule to chain service-default/b/tcp",
            "add rule to chain service-default/b/tcp",
            "add rule to chain endpoint-default/b/tcp__10.244.0.2/8080",
            "add rule to chain endpoint-default/b/tcp__10.244.0.2/8080",
            "add rule to chain endpoint-default/b/tcp__10.244.0.3/8080",
            "add rule to chain endpoint-default/b/tcp__10.244.0.3/8080",
            "add 1 elements to set service-ips",
            "add 1 elements to set cluster-ips",
        ],
    );
    check(
        &all,
        &all[..1],
        &[
            "flush chain endpoint-default/b/tcp__10.244.0.2/8080",
            "flush chain endpoint-default/b/tcp__10.244.0.3/8080",
            "flush chain service-default/b/tcp",
            "delete 1 elements of set service-ips",
            "delete set affinity-default/b/tcp__10.244.0.2/8080",
            "delete set affinity-default/b/tcp__10.244.0.3/8080",
            "delete 1 elements of set cluster-ips",
        ],
    );
    let (_, left) = plan::differences(&table(&all), &table(&all[..1]), &kernel_table());
    assert_eq!(left.len(), 3, "they are removed later: {left:?}");
}

#[test]
fn clients_are_forgotten_with_their_endpoint_and_with_nothing_else() {
    let mut all = [service("a", "10.96.0.1")];
    all[0].affinity = Some(Duration::from_secs(60));
    let mut next = all.clone();
    next[0].affinity = Some(Duration::from_secs(120));
    next[0].internal = backends(&["10.244.0.3:8080"]);
    let operations = |next: &[ServicePortEntry]| -> Vec<String> {
        let (transaction, _) = plan::differences(&table(&all), &table(next), &kernel_table());
        let text = transaction.to_string();
        let sets = text.lines().filter(|l| l.contains(" set affinity"));
        sets.map(str::to_owned).collect()
    };
    assert_eq!(operations(&next), [""; 0], "clients outside still have it");
    next[0].external = backends(&["10.244.0.3:8080", "10.244.0.4:8080"]);
    assert_eq!(
        operations(&next),
        [
            "add set affinity-default/a/tcp__10.244.0.4/8080 of table ip t",
            "delete set affinity-default/a/tcp__10.244.0.2/8080 of table ip t",
        ]
    );
}

#[test]
fn chains_in_the_kernel_are_compared_by_name_and_use() {
    let all = table(&[service("a", "10.96.0.1")]);
    let expected = plan::chain_uses(&all, &kernel_table());
    let found = |change: fn(&mut Vec<ChainState>)| {
        let chains = expected.iter().map(|(name, uses)| ChainState {
            name: name.clone(),
            handle: 1,
            uses: *uses,
            base: false,
        });
        let mut chains = chains.collect();
        change(&mut chains);
        plan::is_intact(
            &expected,
            &BTreeSet::from(["service-x/y/tcp".into()]),
            &chains,
        )
    };
    assert!(found(|_| {}));
    assert!(!found(|chains| drop(chains.pop())), "one is missing");
    assert!(
        !found(|chains| chains[3].uses += 1),
        "somebody added a rule"
    );
    assert!(
        !found(|chains| chains[3].name = "theirs".into()),
        "another one"
    );
    assert!(
        found(|chains| chains.push(ChainState {
            name: "service-x/y/tcp".into(),
            handle: 2,
            uses: 0,
            base: false
        })),
        "one that is to go"
    );
    assert!(
        !found(|chains| chains.push(ChainState {
            name: "theirs".into(),
            handle: 2,
            uses: 0,
            base: false
        })),
        "one more"
    );
}

/// A generator of pseudorandom numbers with a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }

    fn sometimes<T>(&mut self, value: T) -> Option<T> {
        (self.below(2) == 0).then_some(value)
    }

    fn backends(&mut self) -> Backends {
        match self.below(6) {
            0 => Backends::Reject,
            1 => Backends::Drop,
            _ => {
                let first = self.below(6) + 2;
                let all: Vec<String> = (first..=first + self.below(3))
                    .map(|i| format!("10.244.0.{i}:8080"))
                    .collect();
                backends(&all.iter().map(String::as_str).collect::<Vec<_>>())
            }
        }
    }

    /// Makes a table with some of six services. Their addresses change from call to call.
    fn table(&mut self) -> ServiceTable {
        let mut services = Vec::new();
        let shift = self.below(6);
        for i in (0..6).filter(|_| self.below(3) > 0).collect::<Vec<_>>() {
            let at = (i + shift) % 6 + 1;
            let mut entry = service(&format!("s{i}"), &format!("10.96.0.{at}"));
            entry.internal = self.backends();
            entry.external = match self.sometimes(()) {
                Some(()) => entry.internal.clone(),
                None => self.backends(),
            };
            entry.cluster = match self.sometimes(()) {
                Some(()) => entry.internal.clone(),
                None => self.backends(),
            };
            entry
                .external_ips
                .extend(self.sometimes(ip(&format!("203.0.113.{at}"))));
            let balancer = ip(&format!("203.0.113.10{at}"));
            entry.load_balancer_ips.extend(self.sometimes(balancer));
            let range = Cidr {
                network: ip("192.0.2.0"),
                prefix: 24,
            };
            entry.source_ranges.extend(self.sometimes(range));
            entry.node_port = self.sometimes(30_000 + at as u16);
            entry.affinity = self.sometimes(Duration::from_secs(60));
            entry.external_local = self.below(2) == 0;
            services.push(entry);
        }
        let mut table = table(&services);
        table.service_cidrs[0].prefix -= self.below(2) as u8;
        table
    }
}

/// Returns the output of `nft list table`: the sorted lines of each chain and set, by the name of the chain or
/// set. Unused chains, which have no rules, are left out.
fn listing(name: &str) -> BTreeMap<String, Vec<String>> {
    let words = ["-s", "list", "table", "ip", name];
    let done = Command::new("nft").args(words).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    let mut blocks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut block = String::new();
    for line in text
        .lines()
        .skip(1)
        .map(str::trim)
        .filter(|l| !l.is_empty() && *l != "}")
    {
        match line.strip_suffix(" {") {
            Some(begin) => block = begin.to_owned(),
            None => {
                // Elements may be spread over several lines, in any order.
                let list = line.strip_prefix("elements = {").unwrap_or(line);
                let items = list.trim_matches([' ', '}', ',']).split(", ");
                let lines = blocks.entry(block.clone()).or_default();
                match line.starts_with("elements") || !block.starts_with("chain") {
                    true => lines.extend(items.map(str::to_owned)),
                    false => lines.push(line.to_owned()),
                }
            }
        }
    }
    for (name, lines) in &mut blocks {
        if !name.starts_with("chain") {
            lines.sort();
        }
    }
    blocks
}

/// Runs `inside` in its own network namespace. Skips the test if there is no `nft` to list the tables.
fn in_own_network(inside: impl FnOnce() + Send) {
    if Command::new("nft").arg("-v").output().is_err() {
        return crate::skip::skip("needs nft");
    }
    own_network::in_own_network(inside);
}

#[test]
fn differences_lead_to_the_same_table_as_programming_anew() {
    in_own_network(|| {
        let mut numbers = Numbers(7);
        let mut path = Nftables::new("walk").unwrap();
        let mut full = 0;
        for step in 0..60 {
            let next = numbers.table();
            full += usize::from(path.apply(&next).unwrap().full);
            let mut anew = Nftables::new("anew").unwrap();
            anew.apply(&next).unwrap();
            let (found, expected) = (listing("walk-services"), listing("anew-services"));
            assert_eq!(found, expected, "step {step}: {next:?}");
            // A second call finds the tables unchanged.
            let again = path.apply(&next).unwrap();
            assert!(!again.repaired, "step {step}: {next:?}");
            // In every second step the tables are removed and made anew. In the other steps the existing tables
            // are reused.
            if step % 2 == 0 {
                anew.remove().unwrap();
            }
        }
        assert_eq!(full, 1, "the first");
    });
}

#[test]
fn chains_that_are_left_go_after_a_rest() {
    in_own_network(|| {
        let chains = || {
            let found = Netfilter::open().unwrap().chains(&Table {
                family: Family::Ip,
                name: "left-services".into(),
            });
            let names = found.unwrap().into_iter().map(|c| c.name);
            names.filter(|n| n.contains('/')).collect::<Vec<_>>()
        };
        let now = Moment::now();
        let mut path = Nftables::new("left").unwrap();
        let all = [
            service("a", "10.96.0.1"),
            service("b", "10.96.0.2"),
            service("c", "10.96.0.3"),
        ];
        path.apply_at(&table(&all), now).unwrap();
        path.apply_at(&table(&all[..1]), now).unwrap();
        assert_eq!(chains().len(), 3, "they rest");
        let again = path.apply_at(&table(&all[..2]), now).unwrap();
        assert!(!again.full && !again.repaired);
        let later = now + Duration::from_secs(2);
        path.apply_at(&table(&all[..2]), later).unwrap();
        assert_eq!(chains().len(), 2, "the one that is in use again stays");
        path.apply_at(&table(&all[..1]), later).unwrap();
        let later = later + Duration::from_secs(2);
        assert_eq!(
            path.apply_at(&table(&all[..1]), later).unwrap(),
            Applied::default()
        );
        assert_eq!(chains(), ["service-default/a/tcp"]);
        assert_eq!(
            path.apply_at(&table(&all[..1]), later).unwrap(),
            Applied::default()
        );
    });
}

#[test]
fn what_an_earlier_daemon_or_version_left_is_replaced() {
    in_own_network(|| {
        let all = table(&[service("a", "10.96.0.1")]);
        let mut expected = Nftables::new("expected").unwrap();
        expected.apply(&all).unwrap();
        // The kernel cannot change the kind of a base chain, so the data path must replace the table.
        for line in [
            "add table ip old-services",
            "add chain ip old-services nat-output { type filter hook output priority 5; }",
            "add set ip old-services cluster-ips { type inet_service; }",
            "add chain ip old-services theirs",
        ] {
            let done = Command::new("nft").arg(line).status().unwrap();
            assert!(done.success(), "{line}");
        }
        let mut path = Nftables::new("old").unwrap();
        assert!(path.apply(&all).unwrap().full);
        assert_eq!(listing("old-services"), listing("expected-services"));
        assert!(!path.apply(&all).unwrap().repaired);
        // In this step the existing table has chains and sets of podprobe that are no longer wanted.
        let mut many = all.clone();
        many.services.push(service("z", "10.96.0.9"));
        many.services[1].affinity = Some(Duration::from_secs(60));
        path.apply(&many).unwrap();
        let mut path = Nftables::new("old").unwrap();
        let now = Moment::now();
        path.apply_at(&all, now).unwrap();
        assert_eq!(listing("old-services"), listing("expected-services"));
        let applied = path.apply_at(&all, now + Duration::from_secs(2));
        assert_eq!(applied.unwrap(), Applied::default());
    });
}

#[test]
fn a_kernel_without_ipv6_serves_the_rest_and_says_so() {
    in_own_network(|| {
        let mut entry = service("a", "10.96.0.1");
        let mut path = Nftables::new("four").unwrap();
        let missing = Netfilter::open()
            .unwrap()
            .can_translate(Family::Bridge, "x");
        path.no_ip6 = missing.err();
        let only_four = path.apply(&table(std::slice::from_ref(&entry))).unwrap();
        assert_eq!(only_four.warning, None);
        entry.cluster_ips.push(ip("fd00:96::1"));
        let both = path.apply(&table(&[entry])).unwrap();
        let warning = both.warning.unwrap();
        assert!(
            warning.starts_with("services have no IPv6 addresses: cannot add nat chain"),
            "{warning}"
        );
        let tables = Command::new("nft")
            .args(["list", "tables"])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(tables.stdout).unwrap(),
            "table ip four-services\n"
        );
        assert!(listing("four-services").contains_key("chain service-default/a/tcp"));
    });
}

#[test]
fn a_kernel_that_cannot_or_may_not_is_an_error_at_once() {
    in_own_network(|| {
        // CAP_NET_ADMIN is dropped for this thread only.
        crate::base::sys::process::drop_capabilities(1 << 12).unwrap();
        let error = Nftables::new("none").unwrap_err();
        assert_eq!(error.errno(), nix::errno::Errno::EPERM);
    });
}

/// Connects to a service from a port of its own, as no client has used it before.
fn connect(source: SocketAddrV4, to: SocketAddrV4) -> nix::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::seconds(10))?;
    bind(socket.as_raw_fd(), &SockaddrIn::from(source))?;
    nix::sys::socket::connect(socket.as_raw_fd(), &SockaddrIn::from(to))
}

#[test]
fn a_change_that_overtakes_a_packet_costs_no_connection() {
    const CLIENTS: u8 = 3;
    const PORTS: std::ops::Range<u16> = 1_100..6_100;
    in_own_network(|| {
        let endpoints = ["10.244.0.2:8080", "10.244.0.3:8080", "10.244.0.4:8080"];
        for line in [
            "link set lo up",
            "route add 10.96.0.0/16 dev lo",
            // Clients and endpoints are in one range, as pods are, and every address of it is the node's.
            "route add local 10.244.0.0/24 dev lo",
        ] {
            let done = Command::new("ip").args(line.split(' ')).status().unwrap();
            assert!(done.success(), "ip {line}");
        }
        let begin = |address| {
            let listener = TcpListener::bind(address).unwrap();
            // A connection that has no place would be tried again after a second.
            listen(&listener, Backlog::MAXCONN).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let listeners = endpoints.map(begin);
        let of = |endpoints: &[&str]| {
            let mut entry = service("a", "10.96.0.1");
            entry.internal = backends(endpoints);
            table(&[entry])
        };
        let tables = [of(&endpoints[..2]), of(&endpoints[1..])];
        let mut path = Nftables::new("race").unwrap();
        path.apply(&tables[0]).unwrap();
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1), 80);
        thread::scope(|s| {
            let client = |n| {
                let from = move |port| SocketAddrV4::new(Ipv4Addr::new(10, 244, 0, 100 + n), port);
                s.spawn(move || PORTS.filter(|p| connect(from(*p), to).is_err()).count())
            };
            let clients: Vec<_> = (1..=CLIENTS).map(client).collect();
            let mut changes = 0;
            while clients.iter().any(|c| !c.is_finished()) {
                changes += 1;
                path.apply(&tables[changes % 2]).unwrap();
                for listener in &listeners {
                    while listener.accept().is_ok() {}
                }
            }
            let lost: usize = clients.into_iter().map(|c| c.join().unwrap()).sum();
            assert_eq!(lost, 0, "connections that were lost by {changes} changes");
        });
    });
}
