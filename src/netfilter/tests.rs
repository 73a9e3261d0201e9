//! Transactions on a real kernel, each in a network namespace of its own, read back with Debian's `nft`.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use super::*;

#[path = "../../tests/support/skip.rs"]
mod skip;

/// Runs `inside` on a thread in a network namespace of its own. Not where we are not root.
fn in_own_network(inside: impl FnOnce() + Send) {
    if !skip::is_root() {
        return;
    }
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        inside();
    };
    std::thread::scope(|s| {
        if let Err(panic) = s.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// What `nft` prints; None where it is not installed.
fn nft(words: &[&str]) -> Option<String> {
    match Command::new("nft").args(words).output() {
        Ok(done) => {
            assert!(done.status.success(), "nft {words:?}: {done:?}");
            Some(String::from_utf8(done.stdout).unwrap())
        }
        Err(e) => {
            skip::skip(&format!("nft: {e}"));
            None
        }
    }
}

/// `nft list ruleset` prints this; white space at the ends of lines does not count.
#[track_caller]
fn rules_are(expected: &str) {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|l| l.trim().to_owned());
        lines.filter(|l| !l.is_empty()).collect()
    };
    if let Some(text) = nft(&["-s", "list", "ruleset"]) {
        let (text, expected) = (lines(&text).join("\n"), lines(expected).join("\n"));
        assert_eq!(
            text, expected,
            "\n--- found:\n{text}\n--- expected:\n{expected}"
        );
    }
}

fn table(family: Family) -> Table {
    Table {
        family,
        name: "t".into(),
    }
}

fn base(kind: ChainType, hook: Hook, priority: i32) -> Option<BaseChain> {
    Some(BaseChain {
        kind,
        hook,
        priority,
        drop: false,
    })
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// `ip daddr . meta l4proto . th dport`.
fn service(family: Family) -> [Load; 3] {
    [
        Load::destination(family),
        Load::Meta(Meta::TransportProtocol),
        Load::DESTINATION_PORT,
    ]
}

/// Picks one of two backends at random.
fn pick(family: Family, kind: Type, backends: [&str; 2]) -> Rule {
    let element = |(i, backend): (u32, &str)| {
        let value = Key::of(&[Field::Address(address(backend)), Field::Port(8080)]);
        Element::mapping(Key::of(&[Field::Number(i)]), Value::Data(value))
    };
    let elements = (0..).zip(backends).map(element).collect();
    let port = Register(0).after(if family == Family::Ip { 4 } else { 16 });
    Rule::new()
        .is(Load::Meta(Meta::TransportProtocol), &[6])
        .map(
            &[Load::Random { modulus: 2 }],
            AnonymousSet::map(&[Type::Number], &[kind, Type::Port], elements),
            Register(0),
        )
        .dnat(family, Register(0), Some(port))
}

#[test]
fn a_table_as_a_data_path_has_it() {
    in_own_network(|| {
        let table = table(Family::Ip);
        let mut t = Transaction::new();
        let key = Key::of(&[
            Field::Address(address("10.96.0.1")),
            Field::Protocol(6),
            Field::Port(80),
        ]);
        let goto = Value::Verdict(Verdict::Goto("svc-a/b".into()));
        t.on(&table)
            .replace_table()
            .add_set(Set::verdicts(
                "services",
                &[Type::Ipv4, Type::Protocol, Type::Port],
            ))
            .add_set(Set::new("networks", &[Type::Ipv4]).of_intervals())
            .add_set(Set::map("pins", &[Type::Ipv4], &[Type::Ipv4, Type::Port]).dynamic(100, None))
            .add_set(
                Set::new("seen", &[Type::Ipv4]).dynamic(65535, Some(Duration::from_secs(3600))),
            )
            .add_chain("svc-a/b", None)
            .add_chain("pre", base(ChainType::Nat, Hook::Prerouting, -100))
            .add_chain("post", base(ChainType::Nat, Hook::Postrouting, 100))
            .add_chain("forward", base(ChainType::Filter, Hook::Forward, -110))
            .add_rule(
                "svc-a/b",
                pick(Family::Ip, Type::Ipv4, ["10.0.0.1", "10.0.0.2"]),
            )
            .add_rule(
                "pre",
                Rule::new()
                    .is(Load::Fib(Fib::DestinationType), &Fib::LOCAL.to_ne_bytes())
                    .outside(Load::destination(Family::Ip), &[127, 0, 0, 0], 8)
                    .in_set(&[Load::source(Family::Ip)], "networks")
                    .mark(0x4000)
                    .jump("svc-a/b"),
            )
            .add_rule(
                "pre",
                Rule::new().dispatch(&service(Family::Ip), "services"),
            )
            .add_rule(
                "pre",
                Rule::new()
                    .load(&[Load::source(Family::Ip)], Register(0))
                    .with(Expression::Change {
                        set: "seen".into(),
                        change: Change::Update,
                        key: Register(0),
                        value: None,
                        timeout: None,
                    })
                    .verdict(Verdict::Return),
            )
            .add_rule(
                "pre",
                Rule::new()
                    .is(Load::Meta(Meta::TransportProtocol), &[17])
                    .is(Load::DESTINATION_PORT, &53_u16.to_be_bytes())
                    .redirect(10053),
            )
            .add_rule(
                "forward",
                Rule::new()
                    .any_bit(Ct::State, ct_state::NEW)
                    .within(Load::destination(Family::Ip), &[10, 96, 0, 0], 16)
                    .reject(Reject::Port(Family::Ip)),
            )
            .add_rule(
                "forward",
                Rule::new()
                    .not_in_set(
                        &[Load::source(Family::Ip)],
                        AnonymousSet::of_intervals(
                            Type::Ipv4,
                            intervals(&[(address("10.0.0.0"), 8), (address("192.168.1.0"), 24)]),
                        ),
                    )
                    .verdict(Verdict::Drop),
            )
            .add_rule(
                "post",
                Rule::new()
                    .any_bit(Ct::Status, ct_status::DNAT)
                    .marked(0x4000)
                    .unmark(0x4000)
                    .masquerade(),
            )
            .add_elements("services", vec![Element::mapping(key, goto)])
            .add_elements("networks", intervals(&[(address("10.244.0.0"), 24)]))
            .add_elements(
                "pins",
                vec![
                    Element::mapping(
                        Key::of(&[Field::Address(address("10.0.0.9"))]),
                        Value::Data(Key::of(&[
                            Field::Address(address("10.0.0.1")),
                            Field::Port(8080),
                        ])),
                    )
                    .for_time(Duration::from_secs(10800)),
                ],
            );
        Netfilter::open().unwrap().commit(&t).unwrap();
        rules_are(
            r#"
table ip t {
    comment "written by podprobe, which undoes other changes"
    map services {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.96.0.1 . tcp . 80 : goto svc-a/b }
    }
    set networks {
        type ipv4_addr
        flags interval
        elements = { 10.244.0.0/24 }
    }
    map pins {
        type ipv4_addr : ipv4_addr . inet_service
        size 100
        flags dynamic,timeout
        elements = { 10.0.0.9 timeout 3h : 10.0.0.1 . 8080 }
    }
    set seen {
        type ipv4_addr
        size 65535
        flags dynamic,timeout
        timeout 1h
    }
    chain svc-a/b {
        meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 8080, 1 : 10.0.0.2 . 8080 }
    }
    chain pre {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local ip daddr != 127.0.0.0/8 ip saddr @networks meta mark set meta mark | 0x00004000 jump svc-a/b
        ip daddr . meta l4proto . th dport vmap @services
        update @seen { ip saddr } return
        udp dport 53 redirect to :10053
    }
    chain post {
        type nat hook postrouting priority srcnat; policy accept;
        ct status dnat meta mark & 0x00004000 != 0x00000000 meta mark set meta mark & 0xffffbfff masquerade fully-random
    }
    chain forward {
        type filter hook forward priority -110; policy accept;
        ct state new ip daddr 10.96.0.0/16 reject
        ip saddr != { 10.0.0.0/8, 192.168.1.0/24 } drop
    }
}"#,
        );
    });
}

#[test]
fn a_table_that_keeps_spoofed_packets_from_a_bridge() {
    in_own_network(|| {
        let table = table(Family::Bridge);
        let mut t = Transaction::new();
        let loads = [
            Load::Meta(Meta::InputName),
            Load::ETHER_SOURCE,
            Load::source(Family::Ip),
        ];
        let arp = [
            Load::Meta(Meta::InputName),
            Load::ETHER_SOURCE,
            Load::ARP_SOURCE,
        ];
        let key = Key::of(&[
            Field::Interface("veth0123"),
            Field::Ether([2, 0, 0, 0, 0, 1]),
            Field::Address(address("10.244.0.2")),
        ]);
        t.on(&table)
            .replace_table()
            .add_set(Set::new(
                "pods",
                &[Type::Interface, Type::Ether, Type::Ipv4],
            ))
            .add_elements("pods", vec![Element::new(key)])
            .add_chain("pre", base(ChainType::Filter, Hook::Prerouting, -300))
            .add_rule(
                "pre",
                Rule::new()
                    .is(Load::Meta(Meta::Protocol), &0x0800_u16.to_be_bytes())
                    .not_in_set(&loads, "pods")
                    .verdict(Verdict::Drop),
            )
            .add_rule(
                "pre",
                Rule::new()
                    .is(Load::Meta(Meta::Protocol), &0x0806_u16.to_be_bytes())
                    .not_in_set(&arp, "pods")
                    .verdict(Verdict::Drop),
            );
        Netfilter::open().unwrap().commit(&t).unwrap();
        rules_are(
            r#"
table bridge t {
    comment "written by podprobe, which undoes other changes"
    set pods {
        type ifname . ether_addr . ipv4_addr
        elements = { "veth0123" . 02:00:00:00:00:01 . 10.244.0.2 }
    }
    chain pre {
        type filter hook prerouting priority dstnat; policy accept;
        iifname . ether saddr . ip saddr != @pods drop
        iifname . ether saddr . arp saddr ip != @pods drop
    }
}"#,
        );
    });
}
