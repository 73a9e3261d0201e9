//! Tests of transactions on a real kernel, each in its own network namespace. Debian's `nft` reads the results back.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::own_network::in_own_network;

/// Returns the output of `nft`, or `None` if `nft` is not installed.
fn nft(words: &[&str]) -> Option<String> {
    match Command::new("nft").args(words).output() {
        Ok(done) => {
            assert!(done.status.success(), "nft {words:?}: {done:?}");
            Some(String::from_utf8(done.stdout).unwrap())
        }
        Err(e) => {
            crate::skip::skip(&format!("nft: {e}"));
            None
        }
    }
}

/// Checks that `nft list ruleset` prints this text. White space at the ends of lines is ignored.
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

/// Returns loads for the key `ip daddr . meta l4proto . th dport`.
fn service(family: Family) -> [Load; 3] {
    [
        Load::destination(family),
        Load::Meta(Meta::TransportProtocol),
        Load::DESTINATION_PORT,
    ]
}

/// Returns a rule that chooses one of two backends at random.
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

fn refused(transaction: &Transaction) -> String {
    let error = Netfilter::open().unwrap().commit(transaction).unwrap_err();
    error.to_string()
}

#[test]
fn the_operation_that_is_refused_is_named_and_nothing_is_done() {
    in_own_network(|| {
        let table = table(Family::Ip);
        let mut netfilter = Netfilter::open().unwrap();
        let mut t = Transaction::new();
        t.on(&table)
            .add_table()
            .add_chain("a", None)
            .add_rule("a", Rule::new().jump("b"))
            .add_chain("c", None);
        assert_eq!(
            refused(&t),
            "cannot add rule to chain a of table ip t: No such file or directory: what it names is not there, or the \
             kernel lacks this part of nf_tables (CONFIG_NF_TABLES, CONFIG_NFT_NAT, …)"
        );
        assert_eq!(netfilter.table(&table), Ok(None));
        let mut t = Transaction::new();
        t.on(&table)
            .add_table()
            .add_chain("b", base(ChainType::Nat, Hook::Forward, 0));
        assert_eq!(
            refused(&t),
            "cannot add nat chain at hook forward, b, of table ip t: Operation not supported on transport endpoint: the \
             kernel lacks this part of nf_tables, or its module cannot be loaded"
        );
        let mut t = Transaction::new();
        t.on(&table).add_table().add_chain("a", None);
        netfilter.commit(&t).unwrap();
        let mut t = Transaction::new();
        t.on(&table)
            .add_chain("d", None)
            .add_rule("d", Rule::new().jump("a"))
            .delete_chain("a");
        assert_eq!(
            refused(&t),
            "cannot delete chain a of table ip t: Device or resource busy: something still leads to it"
        );
        let chains = netfilter.chains(&table).unwrap();
        assert_eq!(chains.len(), 1, "{chains:?}");
    });
}

#[test]
fn without_the_privilege_it_says_so() {
    in_own_network(|| {
        // CAP_NET_ADMIN is dropped for this thread only.
        crate::base::sys::process::drop_capabilities(1 << 12).unwrap();
        let mut t = Transaction::new();
        t.on(&table(Family::Ip)).add_table();
        assert_eq!(
            refused(&t),
            "cannot commit the transaction: Operation not permitted: it needs CAP_NET_ADMIN in the network namespace"
        );
    });
}

#[test]
fn what_changes_makes_a_new_generation_and_is_found() {
    in_own_network(|| {
        let table = table(Family::Ip6);
        let mut netfilter = Netfilter::open().unwrap();
        assert_eq!(netfilter.table(&table), Ok(None));
        assert_eq!(netfilter.chains(&table), Ok(Vec::new()));
        assert_eq!(netfilter.sets(&table), Ok(Vec::new()));
        let first = netfilter.generation().unwrap();
        let mut t = Transaction::new();
        t.on(&table)
            .replace_table()
            .add_set(Set::new("networks", &[Type::Ipv6]).of_intervals())
            .add_chain("pre", base(ChainType::Nat, Hook::Prerouting, -100))
            .add_chain("x", None)
            .add_rule("pre", Rule::new().jump("x"))
            .add_rule("pre", pick(Family::Ip6, Type::Ipv6, ["fd00::1", "fd00::2"]));
        netfilter.commit(&t).unwrap();
        assert_eq!(netfilter.generation(), Ok(first + 1));
        assert!(netfilter.table(&table).unwrap().is_some());
        let uses: Vec<_> = netfilter.chains(&table).unwrap();
        let uses: Vec<_> = uses.iter().map(|c| (c.name.as_str(), c.uses)).collect();
        assert_eq!(uses, t.chain_uses(&table).into_iter().collect::<Vec<_>>());
        let sets = netfilter.sets(&table).unwrap();
        let named: Vec<_> = sets.iter().filter(|s| !s.anonymous).collect();
        assert_eq!((sets.len(), named.len()), (2, 1), "{sets:?}");
        // An empty transaction makes no new generation.
        netfilter.commit(&Transaction::new()).unwrap();
        assert_eq!(netfilter.generation(), Ok(first + 1));
    });
}

#[test]
fn a_table_of_the_same_name_in_another_family_is_another_one() {
    in_own_network(|| {
        let mut netfilter = Netfilter::open().unwrap();
        let mut t = Transaction::new();
        t.on(&table(Family::Ip)).add_table().add_chain("a", None);
        t.on(&table(Family::Inet)).add_table().add_chain("b", None);
        netfilter.commit(&t).unwrap();
        let names = |n: &mut Netfilter, family| -> Vec<String> {
            let chains = n.chains(&table(family)).unwrap();
            chains.into_iter().map(|c| c.name).collect()
        };
        assert_eq!(names(&mut netfilter, Family::Ip), ["a"]);
        assert_eq!(names(&mut netfilter, Family::Inet), ["b"]);
        assert_eq!(netfilter.table(&table(Family::Ip6)), Ok(None));
    });
}

#[test]
fn more_elements_than_one_message_and_the_usual_buffer_hold() {
    in_own_network(|| {
        // These elements need a larger send buffer than the machine's limit allows: without CAP_NET_ADMIN, the buffer
        // has at most twice the limit, and an element takes 16 bytes.
        let limit = std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap();
        let many = limit.trim().parse::<u32>().unwrap() / 8 + 10_000;
        let table = table(Family::Ip);
        let elements = |range: std::ops::Range<u32>| -> Vec<Element> {
            let key = |n: u32| Key::of(&[Field::Address(std::net::Ipv4Addr::from(n).into())]);
            range.map(|n| Element::new(key(n))).collect()
        };
        let mut t = Transaction::new();
        t.on(&table)
            .replace_table()
            .add_set(Set::new("many", &[Type::Ipv4]))
            .add_elements("many", elements(0..many));
        let mut netfilter = Netfilter::open().unwrap();
        netfilter.commit(&t).unwrap();
        let mut t = Transaction::new();
        t.on(&table).delete_elements("many", elements(1..many));
        netfilter.commit(&t).unwrap();
        let left = nft(&["list", "set", "ip", "t", "many"]);
        if let Some(left) = left {
            // The kernel shrinks the set afterwards. Meanwhile a listing may show an element twice.
            let (_, elements) = left.split_once("elements = { ").expect(&left);
            let elements = elements.split(" }").next().unwrap();
            assert!(elements.split(',').all(|e| e.trim() == "0.0.0.0"), "{left}");
        }
    });
}

#[test]
fn what_the_kernel_can_is_found_out_without_a_trace() {
    in_own_network(|| {
        let mut netfilter = Netfilter::open().unwrap();
        for family in [Family::Ip, Family::Ip6] {
            netfilter.can_translate(family, "probe").unwrap();
        }
        if let Some(rules) = nft(&["list", "ruleset"]) {
            assert_eq!(rules, "");
        }
        let error = netfilter
            .can_translate(Family::Bridge, "probe")
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot add nat chain at hook "),
            "{error}"
        );
    });
}

/// Compares encoded transactions with the bytes that `nft --debug=mnl` 1.0.6 shows for the text in each comment. `nft`
/// 1.0.6 names the first registers 1 and 9, which the kernel also knows as 8 and 9, and writes the attributes of a
/// chain in another order.
#[test]
fn bytes_are_those_of_nft() {
    // add chain ip t c { type nat hook prerouting priority -100; }
    let mut t = Transaction::new();
    t.on(&table(Family::Ip))
        .add_chain("c", base(ChainType::Nat, Hook::Prerouting, -100));
    let hook = "14000480 08000100 00000000 08000200 ffffff9c";
    check_bytes(
        &t,
        &format!("06000100 74000000 06000300 63000000 {hook} 08000500 00000001 08000700 6e617400"),
    );
    // add rule ip t svc meta l4proto tcp dnat to numgen random mod 2 map @m (without the map itself)
    let mut t = Transaction::new();
    t.on(&table(Family::Ip)).add_rule(
        "svc",
        Rule::new()
            .is(Load::Meta(Meta::TransportProtocol), &[6])
            .map(&[Load::Random { modulus: 2 }], "m", Register(0))
            .dnat(Family::Ip, Register(0), Some(Register(1))),
    );
    let meta = "24000180 09000100 6d657461 00000000 14000280 08000200 00000010 08000100 00000008";
    let cmp = "2c000180 08000100 636d7000 20000280 08000100 00000008 08000200 00000000 0c000380 05000100 06000000";
    let numgen = "34000180 0b000100 6e756d67 656e0000 \
                  24000280 08000100 00000008 08000200 00000002 08000300 00000001 08000400 00000000";
    let lookup = "2c000180 0b000100 6c6f6f6b 75700000 1c000280 08000200 00000008 08000300 00000008 06000100 6d000000";
    let nat = "30000180 08000100 6e617400 \
               24000280 08000100 00000001 08000200 00000002 08000300 00000008 08000500 00000009";
    check_bytes(
        &t,
        &format!(
            "06000100 74000000 08000200 73766300 e4000480 {meta} {cmp} {numgen} {lookup} {nat}"
        ),
    );
}

/// Checks the attributes of a batch's second message, in hexadecimal. The first message only begins the batch.
#[track_caller]
fn check_bytes(transaction: &Transaction, expected: &str) {
    let batch = batch::Batch::of(transaction, 1);
    let message = bytes::received(batch.messages.bytes()).nth(1).unwrap();
    let hex: String = message.body[4..]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(hex, expected.split_whitespace().collect::<String>());
}
