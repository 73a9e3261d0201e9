//! The userspace data path: the role, real servers, real clients. `t1` to `t15` are kube-proxy's own cases (proxier_test).

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use podprobe::api::service::{Cidr, Protocol};
use podprobe::base::sys::cgroup::Cgroups;
use podprobe::base::sys::task::Process;
use podprobe::net::proxy::DataPath;
use podprobe::net::proxy::userspace::{ProxyRole, UserspaceProxy};
use podprobe::net::proxyd::home::Record;
use podprobe::net::proxyd::message::{HostPorts, Options, Request, ServiceAddresses};
use podprobe::net::services::names::Names;
use podprobe::net::services::table::{Backends, HostPort, ServiceTable};

use crate::support::proxied;
use crate::support::proxied::{
    CEILING, PROGRAM, ask, ask_from, at, backend, backends_of, check_echo, check_refused,
    check_stream, echo, eventually, in_a_pod, ip, kill, named, named_at, proxied, serve, service,
    udp_ask, udp_client, udp_named, udp_named_at, udp_service,
};
use crate::support::skip;
use crate::support::uninterrupted::uninterrupted;

const FOO: &str = "10.96.0.1:80";

#[test]
fn t1_tcp_echo() {
    proxied(|proxy| {
        assert_eq!(proxy.metrics().listeners, 0);
        proxy.apply(&[service("echo", &[echo()])]);
        check_echo(FOO, b"aaaaa");
        assert_eq!(proxy.metrics().listeners, 1);
    });
}

#[test]
fn t2_udp_echo() {
    proxied(|proxy| {
        proxy.apply(&[udp_service("echo", &[udp_named("")])]);
        assert_eq!(udp_ask(&udp_client(FOO), "abc123"), "abc123");
        assert_eq!(proxy.metrics().listeners, 1);
    });
}

#[test]
fn t3_a_udp_client_is_forgotten_when_it_is_silent() {
    proxied(|proxy| {
        proxy.options.udp_idle_ms = 1000;
        proxy.apply(&[udp_service("echo", &[udp_named("")])]);
        udp_ask(&udp_client(FOO), "abc123");
        assert_eq!(proxy.metrics().flows, 1);
        eventually("no client is known", || proxy.metrics().flows == 0);
    });
}

#[test]
fn t4_one_tcp_and_one_udp_service() {
    proxied(|proxy| {
        proxy.apply(&[
            service("echo", &[echo()]),
            udp_service("echo", &[udp_named("")]),
        ]);
        check_echo(FOO, b"aaaaa");
        assert_eq!(udp_ask(&udp_client(FOO), "abc123"), "abc123");
        assert_eq!(proxy.metrics().listeners, 2);
    });
}

#[test]
fn t5_ports_of_one_service() {
    proxied(|proxy| {
        let (mut p, mut q) = (
            service("echo", &[echo()]),
            udp_service("echo", &[udp_named("")]),
        );
        (p.name.port, p.port) = ("p".into(), 80);
        (q.name.port, q.port) = ("q".into(), 81);
        for port in [&mut p, &mut q] {
            port.cluster_ips = vec![ip("1.2.3.4")];
        }
        proxy.apply(&[p, q]);
        check_echo("1.2.3.4:80", b"aaaaa");
        assert_eq!(udp_ask(&udp_client("1.2.3.4:81"), "abc123"), "abc123");
        check_refused("1.2.3.4:81");
    });
}

#[test]
fn t6_t8_a_tcp_service_that_is_gone_is_refused() {
    proxied(|proxy| {
        proxy.apply(&[service("echo", &[echo()])]);
        check_echo(FOO, b"aaaaa");
        proxy.apply(&[]);
        // The address goes with its last connection.
        eventually("it has ended", || proxy.metrics().connections == 0);
        assert!(TcpStream::connect_timeout(&at(FOO), CEILING).is_err());
        assert_eq!(proxy.metrics().listeners, 0);
    });
}

#[test]
fn t7_t9_a_udp_service_that_is_gone_takes_its_clients_with_it() {
    proxied(|proxy| {
        let mut other = udp_service("other", &[udp_named("")]);
        other.port = 81;
        let echo = udp_service("echo", &[udp_named("")]);
        proxy.apply(&[echo, other.clone()]);
        let client = udp_client(FOO);
        udp_ask(&client, "abc123");
        proxy.apply(&[other]);
        assert_eq!(proxy.metrics().flows, 0);
        let _ = client.send(b"abc123");
        let error = uninterrupted(|| client.recv(&mut [0; 16])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn t10_t11_a_service_that_comes_again_works_again() {
    proxied(|proxy| {
        let services = [
            service("echo", &[echo()]),
            udp_service("echo", &[udp_named("")]),
        ];
        for _ in 0..3 {
            proxy.apply(&services);
            check_echo(FOO, b"aaaaa");
            assert_eq!(udp_ask(&udp_client(FOO), "abc123"), "abc123");
            assert_eq!(proxy.metrics().listeners, 2);
            proxy.apply(&[]);
        }
    });
}

#[test]
fn t12_t13_a_port_that_changes() {
    proxied(|proxy| {
        let services = [
            service("echo", &[echo()]),
            udp_service("echo", &[udp_named("")]),
        ];
        proxy.apply(&services);
        let moved = services.map(|mut s| {
            s.port = 99;
            s
        });
        proxy.apply(&moved);
        check_refused(FOO);
        check_echo("10.96.0.1:99", b"aaaaa");
        assert_eq!(udp_ask(&udp_client("10.96.0.1:99"), "abc123"), "abc123");
        assert_eq!(proxy.metrics().listeners, 2);
    });
}

#[test]
fn t14_external_addresses_that_change() {
    proxied(|proxy| {
        let mut echo = service("echo", &[echo()]);
        proxy.apply(std::slice::from_ref(&echo));
        echo.external_ips = vec![ip("4.3.2.1")];
        proxy.apply(std::slice::from_ref(&echo));
        check_echo(FOO, b"aaaaa");
        check_echo("4.3.2.1:80", b"aaaaa");
    });
}

#[test]
fn t15_a_service_without_a_cluster_ip_is_not_there() {
    proxied(|proxy| {
        let mut echo = service("echo", &[echo()]);
        let ips = std::mem::take(&mut echo.cluster_ips);
        proxy.apply(std::slice::from_ref(&echo));
        assert_eq!(proxy.metrics().listeners, 0);
        echo.cluster_ips = ips;
        proxy.apply(&[echo]);
        check_echo(FOO, b"aaaaa");
    });
}

#[test]
fn connections_go_round_and_a_client_with_affinity_stays() {
    proxied(|proxy| {
        let mut foo = service("foo", &[named("a"), named("b"), named("c")]);
        proxy.apply(std::slice::from_ref(&foo));
        let mut seen: Vec<String> = (0..6).map(|_| ask(FOO).unwrap()).collect();
        assert_eq!(seen[..3], seen[3..]);
        seen.sort();
        assert_eq!(seen.join(""), "aabbcc");
        foo.affinity = Some(Duration::from_secs(100));
        proxy.apply(&[foo]);
        let first = ask_from("127.0.0.1", FOO);
        let second = ask_from("127.0.0.2", FOO);
        assert_ne!(first, second);
        assert!((0..5).all(|_| ask_from("127.0.0.1", FOO) == first));
        assert!((0..5).all(|_| ask_from("127.0.0.2", FOO) == second));
    });
}

#[test]
fn a_connection_lives_on_when_its_service_is_gone_and_its_address_goes_after_it() {
    proxied(|proxy| {
        proxy.apply(&[service("echo", &[echo()])]);
        let mut stream = TcpStream::connect(FOO).unwrap();
        check_stream(&mut stream, b"before");
        proxy.apply(&[]);
        check_stream(&mut stream, b"after");
        drop(stream);
        eventually("the address is gone", || {
            UdpSocket::bind("10.96.0.1:0").is_err()
        });
        assert_eq!(proxy.metrics().connections, 0);
    });
}

#[test]
fn megabytes_arrive_whole_in_both_directions() {
    proxied(|proxy| {
        proxy.apply(&[service("echo", &[echo()])]);
        let sent: Vec<u8> = (0..20_000_000_u32).map(|n| (n / 7) as u8).collect();
        let mut stream = TcpStream::connect(FOO).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let got = std::thread::spawn(move || {
            let mut got = Vec::new();
            reader.read_to_end(&mut got).map(|_| got)
        });
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(got.join().unwrap().unwrap() == sent);
        let metrics = proxy.metrics();
        assert_eq!(metrics.bytes_to_endpoints, 20_000_000);
        assert_eq!(metrics.bytes_to_clients, 20_000_000);
    });
}

#[test]
fn half_of_a_connection_may_end_first() {
    proxied(|proxy| {
        // It answers only when the client has ended its half.
        let counts = serve(|mut stream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            write!(stream, "{}", all.len()).unwrap();
        });
        // It ends its half first, and says at the end what came after that.
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let ends = serve(move |mut stream| {
            stream.write_all(b"bye").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = String::new();
            stream.read_to_string(&mut all).unwrap();
            tell.send(all).unwrap();
        });
        let mut second = service("ends", &[ends]);
        second.port = 81;
        proxy.apply(&[service("counts", &[counts]), second]);

        let mut stream = TcpStream::connect(FOO).unwrap();
        stream.write_all(&[7; 300_000]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "300000");

        let mut stream = TcpStream::connect("10.96.0.1:81").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "bye");
        stream.write_all(b"still here").unwrap();
        drop(stream);
        assert_eq!(told.recv_timeout(CEILING).unwrap(), "still here");
        eventually("both are gone", || proxy.metrics().connections == 0);
    });
}

#[test]
fn an_endpoint_that_refuses_costs_no_client_its_connection() {
    proxied(|proxy| {
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        proxy.apply(&[service("foo", &[closed, named("a")])]);
        assert!((0..10).all(|_| ask(FOO).unwrap() == "a"));
        let metrics = proxy.metrics();
        assert!(metrics.retries > 0 && metrics.failed == 0, "{metrics:?}");
    });
}

#[test]
fn clients_of_endpoints_that_all_refuse_are_reset() {
    proxied(|proxy| {
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        proxy.apply(&[service("foo", &[closed])]);
        // It is reset at once, perhaps before the connect has returned.
        assert!(ask(FOO).is_err());
        eventually("it is counted", || proxy.metrics().failed == 1);
        assert_eq!(proxy.metrics().retries, 3);
    });
}

/// A listener whose packets are dropped: nobody ever answers there.
fn black_hole() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    podprobe::base::sys::socket::let_nothing_in(listener.as_fd()).unwrap();
    listener
}

#[test]
fn a_dead_endpoint_holds_up_nobody_else() {
    proxied(|proxy| {
        let dead = black_hole();
        let (mut both, mut ok) = (
            service("both", &[dead.local_addr().unwrap(), named("b")]),
            service("ok", &[named("ok")]),
        );
        (both.port, ok.port) = (81, 82);
        proxy.apply(&[service("dead", &[dead.local_addr().unwrap()]), both, ok]);
        let stuck: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(FOO).unwrap()).collect();
        eventually("they wait", || proxy.metrics().connections == 50);
        for _ in 0..100 {
            assert_eq!(ask("10.96.0.1:82").unwrap(), "ok");
        }
        // The first attempt takes 250 ms, the next one is somewhere else.
        assert!((0..2).all(|_| ask("10.96.0.1:81").unwrap() == "b"));
        drop(stuck);
        eventually("all are gone", || proxy.metrics().connections == 0);
    });
}

#[test]
fn a_service_without_endpoints_refuses_and_keeps_its_port() {
    proxied(|proxy| {
        let (some, none) = (service("foo", &[named("a")]), service("foo", &[]));
        for _ in 0..3 {
            proxy.apply(std::slice::from_ref(&some));
            assert_eq!(ask(FOO).unwrap(), "a");
            proxy.apply(std::slice::from_ref(&none));
            check_refused(FOO);
            let taken = TcpListener::bind(FOO).unwrap_err();
            assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        }
    });
}

#[test]
fn a_udp_service_without_endpoints_refuses() {
    proxied(|proxy| {
        proxy.apply(&[udp_service("foo", &[]), service("bar", &[named("a")])]);
        let client = udp_client(FOO);
        client.send(b"x").unwrap();
        let error = uninterrupted(|| client.recv(&mut [0; 16])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn local_policies_without_a_local_endpoint_drop() {
    proxied(|proxy| {
        let (mut tcp, mut udp) = (service("foo", &[]), udp_service("foo", &[]));
        for service in [&mut tcp, &mut udp] {
            service.internal = Backends::Drop;
        }
        proxy.apply(&[tcp, udp]);
        let brief = Duration::from_millis(300);
        let error = TcpStream::connect_timeout(&at(FOO), brief).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let client = udp_client(FOO);
        client.set_read_timeout(Some(brief)).unwrap();
        client.send(b"x").unwrap();
        let error = uninterrupted(|| client.recv(&mut [0; 16])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        // And back.
        proxy.apply(&[
            service("foo", &[named("a")]),
            udp_service("foo", &[udp_named("u")]),
        ]);
        assert_eq!(ask(FOO).unwrap(), "a");
        assert_eq!(udp_ask(&udp_client(FOO), "x"), "ux");
    });
}

#[test]
fn clients_from_outside_get_the_endpoints_for_them() {
    if !skip::has("ip", "iproute2") {
        return;
    }
    proxied(|proxy| {
        let mut foo = service("foo", &[named("inside")]);
        (foo.external_local, foo.cluster) = (true, backends_of(&[named("inside")]));
        foo.external = backends_of(&[named("outside")]);
        foo.external_ips = vec![ip("1.2.3.4")];
        let range = |network: &str, prefix| Cidr {
            network: ip(network),
            prefix,
        };
        proxy.apply_table(ServiceTable {
            services: vec![foo],
            pod_cidrs: vec![range("10.244.0.0", 24)],
            ..ServiceTable::default()
        });
        // Addresses of this network that are neither loopback nor a pod's.
        for address in ["9.9.9.9/32", "10.244.0.7/32"] {
            let add = ["addr", "add", address, "dev", "lo"];
            assert!(Command::new("ip").args(add).status().unwrap().success());
        }
        assert_eq!(ask_from("9.9.9.9", "1.2.3.4:80"), "outside");
        assert_eq!(ask_from("10.244.0.7", "1.2.3.4:80"), "inside");
        assert_eq!(ask_from("127.0.0.1", "1.2.3.4:80"), "inside");
        assert_eq!(ask_from("9.9.9.9", FOO), "inside");
    });
}

#[test]
fn only_the_source_ranges_use_the_addresses_of_a_load_balancer() {
    proxied(|proxy| {
        let mut foo = service("foo", &[named("a")]);
        foo.load_balancer_ips = vec![ip("5.6.7.8")];
        foo.source_ranges = vec![Cidr {
            network: ip("127.0.0.2"),
            prefix: 32,
        }];
        proxy.apply(&[foo]);
        assert_eq!(ask_from("127.0.0.2", "5.6.7.8:80"), "a");
        assert!(ask("5.6.7.8:80").is_err());
        assert_eq!(ask(FOO).unwrap(), "a");
        assert_eq!(proxy.metrics().refused, 1);
    });
}

#[test]
fn an_address_in_use_is_told_and_tried_again_and_holds_up_nobody() {
    proxied(|proxy| {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let mut foo = service("foo", &[named("a")]);
        (foo.cluster_ips, foo.port) = (vec![address.ip()], address.port());
        let answer = proxy.apply(&[foo, service("bar", &[named("b")])]);
        assert_eq!(answer.failed.len(), 1);
        assert_eq!(
            answer.failed[0].error,
            format!(
                "cannot serve ns/foo on {address}/TCP: another program has this port; end that program or choose another \
                 port"
            )
        );
        assert_eq!(ask(FOO).unwrap(), "b");
        assert_eq!(proxy.metrics().not_bound, 1);
        drop(taken);
        eventually("it is bound", || proxy.metrics().not_bound == 0);
        assert_eq!(ask(&address.to_string()).unwrap(), "a");
    });
}

#[test]
fn two_services_may_exchange_their_ports() {
    proxied(|proxy| {
        proxy.options.node_ports = true;
        proxy.options.node_addresses = vec![ip("127.0.0.1"), ip("10.96.0.1")];
        let (mut a, mut b) = (service("a", &[named("a")]), service("b", &[named("b")]));
        b.port = 81;
        (a.node_port, b.node_port) = (Some(30001), Some(30002));
        proxy.apply(&[a.clone(), b.clone()]);
        assert_eq!(ask("10.96.0.1:30001").unwrap(), "a");
        (a.node_port, b.node_port) = (Some(30002), Some(30001));
        let answer = proxy.apply(&[a, b]);
        assert_eq!(answer.failed, []);
        assert_eq!(ask("10.96.0.1:30001").unwrap(), "b");
        assert_eq!(ask("10.96.0.1:30002").unwrap(), "a");
        check_refused("127.0.0.1:30001");
    });
}

#[test]
fn node_ports_and_host_ports_on_loopback() {
    proxied(|proxy| {
        proxy.options = Options {
            localhost_node_ports: true,
            host_ports: HostPorts::Localhost,
            ..Options::default()
        };
        let mut foo = service("foo", &[named("a"), named_at("[::1]:0", "a6")]);
        foo.node_port = Some(30001);
        let host_port = |backend| HostPort {
            host_ip: None,
            port: 8080,
            protocol: Protocol::Tcp,
            backend,
            pod: "web_default".into(),
        };
        proxy.apply_table(ServiceTable {
            services: vec![foo],
            host_ports: vec![
                host_port(backend(named("pod"))),
                host_port(backend(named_at("[::1]:0", "pod6"))),
            ],
            ..ServiceTable::default()
        });
        // Each family has endpoints of its own.
        for _ in 0..3 {
            assert_eq!(ask("127.0.0.1:30001").unwrap(), "a");
            assert_eq!(ask("[::1]:30001").unwrap(), "a6");
        }
        assert_eq!(ask("127.0.0.1:8080").unwrap(), "pod");
        assert_eq!(ask("[::1]:8080").unwrap(), "pod6");
        assert_eq!(proxy.metrics().listeners, 4);
    });
}

#[test]
fn portals_have_ports_of_a_range_and_a_full_range_is_told() {
    proxied(|proxy| {
        proxy.options.service_addresses = ServiceAddresses::Portals {
            first: 9000,
            last: 9000,
        };
        let mut other = service("other", &[named("b")]);
        other.port = 81;
        let answer = proxy.apply(&[service("foo", &[named("a")]), other.clone()]);
        assert_eq!(answer.portals.len(), 1);
        let portal = &answer.portals[0];
        assert_eq!((portal.address, portal.proxy_port), (at(FOO), 9000));
        assert_eq!(ask("127.0.0.1:9000").unwrap(), "a");
        assert_eq!(answer.failed.len(), 1);
        // Released and claimed within one table.
        let answer = proxy.apply(&[other]);
        assert_eq!(answer.portals[0].address, at("10.96.0.1:81"));
        assert_eq!(ask("127.0.0.1:9000").unwrap(), "b");
    });
}

#[test]
fn a_udp_portal_answers_from_the_address_that_was_asked() {
    proxied(|proxy| {
        proxy.options.service_addresses = ServiceAddresses::Portals { first: 0, last: 0 };
        let mut v6 = udp_service("foo", &[udp_named("u"), udp_named_at("[::1]:0", "u")]);
        v6.cluster_ips = vec![ip("10.96.0.1"), ip("fd00::1")];
        let answer = proxy.apply(&[v6]);
        for portal in &answer.portals {
            let asked = match portal.address.is_ipv4() {
                true => format!("127.0.0.77:{}", portal.proxy_port),
                false => format!("[::1]:{}", portal.proxy_port),
            };
            let any = if portal.address.is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            };
            let client = UdpSocket::bind(any).unwrap();
            client.set_read_timeout(Some(CEILING)).unwrap();
            client.send_to(b"x", at(&asked)).unwrap();
            let mut bytes = [0; 16];
            let (n, from) = uninterrupted(|| client.recv_from(&mut bytes)).unwrap();
            assert_eq!((&bytes[..n], from), (&b"ux"[..], at(&asked)));
        }
        assert_eq!(answer.portals.len(), 2);
    });
}

#[test]
fn a_pod_that_has_only_loopback_is_reached_in_its_network() {
    proxied(|proxy| {
        let (address, namespace) = in_a_pod("pod");
        let mut foo = service("foo", &[address]);
        let mut inside = backend(address);
        inside.namespace = Some(namespace);
        foo.internal = Backends::Some(vec![inside]);
        proxy.apply(&[foo, udp_service("other", &[udp_named("u")])]);
        for _ in 0..5 {
            assert_eq!(ask(FOO).unwrap(), "pod");
            // And afterwards the proxy is in its own network again.
            assert_eq!(udp_ask(&udp_client(FOO), "x"), "ux");
        }
    });
}

#[test]
fn a_udp_client_moves_when_its_endpoint_is_gone_or_refuses() {
    proxied(|proxy| {
        let (a, b) = (udp_named("a"), udp_named("b"));
        proxy.apply(&[udp_service("foo", &[a])]);
        let client = udp_client(FOO);
        assert_eq!(udp_ask(&client, "x"), "ax");
        proxy.apply(&[udp_service("foo", &[b])]);
        assert_eq!(proxy.metrics().flows, 0);
        assert_eq!(udp_ask(&client, "x"), "bx");
        let closed = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut foo = udp_service("foo", &[closed, a]);
        foo.affinity = Some(Duration::from_secs(100));
        proxy.apply(&[foo]);
        // The first datagram may be lost with the endpoint that refuses it.
        client
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        eventually("it gets an answer", || {
            client.send(b"y").unwrap();
            client.recv(&mut [0; 16]).is_ok()
        });
    });
}

#[test]
fn a_flood_of_udp_clients_has_bounded_room_and_ends() {
    proxied(|proxy| {
        proxy.options.max_flows_per_port = 64;
        proxy.options.udp_idle_ms = 250;
        let mut calm = udp_service("calm", &[udp_named("c")]);
        calm.port = 81;
        proxy.apply(&[udp_service("flooded", &[udp_named("f")]), calm]);
        for n in 0..3000 {
            udp_client(FOO).send(b"x").unwrap();
            if n % 500 == 0 {
                assert_eq!(udp_ask(&udp_client("10.96.0.1:81"), "x"), "cx");
                let metrics = proxy.metrics();
                assert!(metrics.flows <= 64 + 64, "{metrics:?}");
            }
        }
        eventually("a new client gets an answer", || {
            let client = udp_client(FOO);
            client
                .set_read_timeout(Some(Duration::from_millis(50)))
                .unwrap();
            client.send(b"x").unwrap();
            client.recv(&mut [0; 16]).is_ok()
        });
        eventually("all are forgotten", || proxy.metrics().flows == 0);
        assert!(proxy.metrics().datagrams_dropped > 0);
    });
}

/// The memory of a process that is no file's, in KiB. A program that was just built has dirty pages of its file, too.
fn anonymous_kib(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let mut lines = text.lines();
    let kib = lines.find_map(|l| l.strip_prefix("Anonymous:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_thousand_clients_that_do_not_read_cost_little_and_hold_up_nobody() {
    proxied(|proxy| {
        // It sends more than the kernel keeps for a client.
        let endless = serve(|mut stream| {
            let bytes = [1; 64 * 1024];
            while stream.write_all(&bytes).is_ok() {}
        });
        let mut ok = service("ok", &[named("ok")]);
        ok.port = 81;
        proxy.apply(&[service("endless", &[endless]), ok]);
        let slow: Vec<TcpStream> = (0..1000)
            .map(|_| TcpStream::connect(FOO).unwrap())
            .collect();
        eventually("all are there", || proxy.metrics().connections == 1000);
        for _ in 0..20 {
            assert_eq!(ask("10.96.0.1:81").unwrap(), "ok");
        }
        let kib = anonymous_kib(proxy.pid());
        assert!(kib < 4096, "{kib} KiB for 1,000 connections");
        drop(slow);
        eventually("all are gone", || proxy.metrics().connections == 0);
    });
}

#[test]
fn a_storm_of_resets_leaves_nothing() {
    proxied(|proxy| {
        let dead = black_hole();
        let mut waits = service("waits", &[dead.local_addr().unwrap()]);
        waits.port = 81;
        proxy.apply(&[service("echo", &[echo()]), waits]);
        for n in 0..500 {
            let port = if n % 3 == 0 { "10.96.0.1:81" } else { FOO };
            let mut stream = TcpStream::connect(port).unwrap();
            let _ = stream.write_all(&[1; 1000]);
            podprobe::net::proxyd::userspace::sockets::reset_on_close(&stream);
        }
        check_echo(FOO, b"aaaaa");
        eventually("all are gone", || proxy.metrics().connections == 0);
        assert_eq!(proxy.metrics().accepted, 501);
    });
}

#[test]
fn a_reset_of_the_endpoint_reaches_the_client() {
    proxied(|proxy| {
        let resets = serve(|mut stream| {
            let _ = stream.read(&mut [0; 1]);
            podprobe::net::proxyd::userspace::sockets::reset_on_close(&stream);
        });
        proxy.apply(&[service("foo", &[resets])]);
        let mut stream = TcpStream::connect(FOO).unwrap();
        stream.write_all(b"x").unwrap();
        let error = stream.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

/// Forty clients of a proxy that may open `more` descriptors. None goes before it is served; the first stays.
fn served_with_descriptors(more: usize) {
    proxied(|proxy| {
        proxy.apply(&[service("echo", &[echo()])]);
        let open = std::fs::read_dir(format!("/proc/{}/fd", proxy.pid()))
            .unwrap()
            .count();
        let limit = format!("--nofile={}", open + more);
        let pid = proxy.pid().to_string();
        let lowered = Command::new("prlimit")
            .args(["--pid", &pid, &limit])
            .status();
        assert!(lowered.unwrap().success());
        let mut clients: Vec<TcpStream> =
            (0..40).map(|_| TcpStream::connect(FOO).unwrap()).collect();
        eventually("it has paused", || proxy.metrics().shortage_pauses > 0);
        check_stream(&mut clients[0], b"aaaaa");
        // Those that waited are served when others have gone.
        for mut client in clients.split_off(1) {
            check_stream(&mut client, b"bbbbb");
        }
        assert_eq!(proxy.metrics().failed, 0);
    });
}

#[test]
fn without_descriptors_it_pauses_and_goes_on_afterwards() {
    // With one of the two numbers the last client that was taken has a socket, and there is none to its endpoint.
    for more in [20, 21] {
        served_with_descriptors(more);
    }
}

#[test]
fn a_service_at_its_limit_leaves_room_for_others() {
    proxied(|proxy| {
        proxy.options.max_connections_per_port = 5;
        let mut other = service("other", &[named("b")]);
        other.port = 81;
        proxy.apply(&[service("echo", &[echo()]), other]);
        let mut clients: Vec<TcpStream> =
            (0..9).map(|_| TcpStream::connect(FOO).unwrap()).collect();
        eventually("it has paused", || proxy.metrics().limit_pauses > 0);
        assert_eq!(proxy.metrics().connections, 5);
        assert_eq!(ask("10.96.0.1:81").unwrap(), "b");
        let waiting = clients.split_off(5);
        drop(clients);
        for mut client in waiting {
            check_stream(&mut client, b"aaaaa");
        }
    });
}

#[test]
fn garbage_on_the_control_socket_costs_its_own_connection_only() {
    proxied(|proxy| {
        proxy.apply(&[service("foo", &[named("a")])]);
        let half = {
            let mut stream = proxy.speak();
            stream.write_all(&[0, 0, 1, 0, b'{']).unwrap();
            stream
        };
        let garbage: [&[u8]; 5] = [
            &[0xff; 64],
            &[0, 0, 0, 3, b'a', b'b', b'c'],
            b"\0\0\0\x12{\"apply\":{\"table\":1",
            b"\0\0\0\x00",
            b"GET / HTTP/1.1\r\n\r\n",
        ];
        for bytes in garbage {
            let mut stream = proxy.speak();
            stream.set_read_timeout(Some(CEILING)).unwrap();
            stream.write_all(bytes).unwrap();
            let mut said = String::new();
            // Closed while bytes were unread is a reset.
            let _ = stream.read_to_string(&mut said);
            assert!(said.starts_with("{\"error\":\""), "{bytes:?}: {said:?}");
        }
        for _ in 0..100 {
            drop(proxy.speak());
        }
        assert_eq!(ask(FOO).unwrap(), "a");
        assert_eq!(proxy.metrics().listeners, 1);
        drop(half);
    });
}

#[test]
fn many_clients_of_the_control_socket_do_not_keep_the_daemon_out() {
    proxied(|proxy| {
        proxy.apply(&[]);
        let _idle: Vec<_> = (0..30).map(|_| proxy.speak()).collect();
        proxy.apply(&[service("foo", &[named("a")])]);
        assert_eq!(ask(FOO).unwrap(), "a");
    });
}

#[test]
fn a_killed_role_that_is_started_again_goes_on_before_the_daemon_speaks() {
    proxied(|proxy| {
        proxy.apply(&[service("foo", &[named("a")])]);
        proxy.kill();
        check_refused(FOO);
        let mut child = Command::new(PROGRAM)
            .arg("proxy")
            .arg(&proxy.dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        child.stdout.take().unwrap().read_exact(&mut line).unwrap();
        assert_eq!(&line, b"ready\n");
        assert_eq!(ask(FOO).unwrap(), "a");
        proxy.kill();
        child.wait().unwrap();
    });
}

#[test]
fn the_next_daemon_finds_the_role_and_starts_one_where_it_was_killed() {
    proxied(|proxy| {
        proxy.apply(&[service("foo", &[named("a")])]);
        let pid = proxy.pid();
        let mut second = proxied::Proxy::new();
        std::mem::swap(&mut second.dir, &mut proxy.dir);
        second.role =
            podprobe::net::proxy::userspace::ProxyRole::new(&second.dir, "").with_program(PROGRAM);
        second.apply(&[service("foo", &[named("b")])]);
        assert_eq!(second.pid(), pid);
        assert_eq!(ask(FOO).unwrap(), "b");
        second.kill();
        second.apply(&[service("foo", &[named("c")])]);
        assert_ne!(second.pid(), pid);
        assert_eq!(ask(FOO).unwrap(), "c");
    });
}

#[test]
fn a_table_of_another_boot_is_not_used() {
    proxied(|proxy| {
        proxy.apply(&[service("foo", &[named("a")])]);
        proxy.kill();
        let path = proxy.dir.join("table.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let boot = podprobe::base::clock::boot_id();
        std::fs::write(&path, text.replace(&boot, "another")).unwrap();
        assert_eq!(proxy.metrics().listeners, 0);
    });
}

#[test]
fn a_wiped_directory_is_made_anew_and_connections_live_on() {
    proxied(|proxy| {
        proxy.apply(&[service("echo", &[echo()])]);
        let pid = proxy.pid();
        let mut stream = TcpStream::connect(FOO).unwrap();
        // At once: the role would make files anew while others are still being removed.
        let aside = proxy.dir.with_file_name("aside");
        std::fs::rename(&proxy.dir, &aside).unwrap();
        std::fs::remove_dir_all(aside).unwrap();
        eventually("the record is back", || {
            Record::running(&proxy.dir).is_some()
        });
        assert_eq!(proxy.pid(), pid);
        check_stream(&mut stream, b"aaaaa");
        let mut next =
            podprobe::net::proxy::userspace::ProxyRole::new(&proxy.dir, "").with_program(PROGRAM);
        let answer = next.ask(&Request::Metrics {}).unwrap();
        assert_eq!(answer.metrics.unwrap().connections, 1);
        assert_eq!(proxy.pid(), pid);
    });
}

/// Ends a process also where a test fails that has taken its record away.
struct Ended(Process);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Ok(Some(process)) = self.0.open() {
            let _ = process.send(9);
            let _ = process.wait(CEILING);
        }
    }
}

/// Without its record the daemon would start another process beside it, and both would stay.
#[test]
fn a_damaged_record_and_a_lost_lock_are_made_anew() {
    proxied(|proxy| {
        proxy.apply(&[service("foo", &[named("a")])]);
        let process = Record::running(&proxy.dir).unwrap().process;
        let (pid, _ended) = (process.pid, Ended(process));
        let (record, lock) = (proxy.dir.join("state.json"), proxy.dir.join("lock"));
        // In one step, because the process writes what is missing at once.
        let in_place = |file: &Path| {
            let beside = proxy.dir.with_file_name("beside");
            std::fs::create_dir_all(beside.join("below")).unwrap();
            let exchange = RenameFlags::RENAME_EXCHANGE;
            renameat2(AT_FDCWD, &beside, AT_FDCWD, file, exchange).unwrap();
            std::fs::remove_file(beside).unwrap();
        };
        let whole = std::fs::read_to_string(&record).unwrap();
        let boot = podprobe::base::clock::boot_id();
        let damages: [&dyn Fn(); 7] = [
            &|| std::fs::write(&record, "").unwrap(),
            &|| std::fs::write(&record, &whole[..whole.len() / 2]).unwrap(),
            &|| std::fs::write(&record, whole.replace(&pid.to_string(), "1")).unwrap(),
            &|| std::fs::write(&record, whole.replace(&boot, "another")).unwrap(),
            &|| in_place(&record),
            &|| std::fs::remove_file(&lock).unwrap(),
            &|| in_place(&lock),
        ];
        for damage in damages {
            damage();
            eventually("the process has its directory again", || {
                let is_own = Record::running(&proxy.dir).is_some_and(|r| r.process.pid == pid);
                is_own && is_locked_by(&lock, pid)
            });
            assert_eq!(ask(FOO).unwrap(), "a");
        }
        assert_eq!(proxy.pid(), pid);
    });
}

fn is_locked_by(file: &Path, pid: i32) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let inode = std::fs::metadata(file).map_or(0, |file| file.ino());
    let mut lines = locks
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.any(|line| line[4] == pid.to_string() && line[5].ends_with(&format!(":{inode}")))
}

#[test]
fn only_one_role_has_a_directory() {
    proxied(|proxy| {
        proxy.apply(&[service("foo", &[named("a")])]);
        let second = Command::new(PROGRAM)
            .arg("proxy")
            .arg(&proxy.dir)
            .output()
            .unwrap();
        assert!(!second.status.success());
        let said = String::from_utf8(second.stdout).unwrap();
        assert!(said.starts_with("error another process has "), "{said}");
        assert_eq!(ask(FOO).unwrap(), "a");
    });
}

#[test]
fn a_retired_role_ends_with_its_last_connection() {
    proxied(|proxy| {
        proxy.apply(&[service("echo", &[echo()])]);
        let old = Record::running(&proxy.dir).unwrap().process;
        let mut stream = TcpStream::connect(FOO).unwrap();
        check_stream(&mut stream, b"aaaaa");
        proxy.role.ask(&Request::Retire {}).unwrap();
        let mut next =
            podprobe::net::proxy::userspace::ProxyRole::new(&proxy.dir, "").with_program(PROGRAM);
        next.ask(&Request::Metrics {}).unwrap();
        assert_ne!(proxy.pid(), old.pid);
        check_echo(FOO, b"bbbbb");
        check_stream(&mut stream, b"aaaaa");
        drop(stream);
        eventually("the old one has ended", || !old.alive());
    });
}

/// What a role says that knows no names.
fn answer_as_before_names(mut stream: UnixStream) -> Option<serde_json::Value> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut request = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut request).ok()?;
    stream.write_all(b"{\"applied\":1,\"metrics\":{}}\n").ok()?;
    serde_json::from_slice(&request).ok()
}

/// It would take names and leave them aside.
#[test]
fn a_role_of_an_earlier_version_gives_way_to_one_that_knows_names() {
    proxied(|proxy| {
        std::fs::create_dir_all(&proxy.dir).unwrap();
        let socket = UnixListener::bind(proxy.dir.join("control.sock")).unwrap();
        let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
        let record = Record {
            boot_id: podprobe::base::clock::boot_id(),
            process: Process::of(process.id() as i32).unwrap(),
            version: "0.0.1".into(),
            hands_over: false,
        };
        let record = serde_json::to_vec(&record).unwrap();
        std::fs::write(proxy.dir.join("state.json"), record).unwrap();
        let old = std::thread::spawn(move || {
            let mut asked = Vec::new();
            while asked
                .last()
                .is_none_or(|r: &serde_json::Value| r["retire"].is_null())
            {
                let (stream, _) = socket.accept().unwrap();
                asked.extend(answer_as_before_names(stream));
            }
            process.kill().unwrap();
            process.wait().unwrap();
            asked
        });
        let role = ProxyRole::new(&proxy.dir, "").with_program(PROGRAM);
        let mut path = UserspaceProxy::new(role, Options::default());
        path.set_names(Some(Names {
            version: 1,
            domain: "cluster.local".into(),
            addresses: vec![ip("10.96.0.10")],
            clients: vec![Cidr::v4([10, 96, 0, 10], 32)],
            ..Names::default()
        }));
        path.apply(&ServiceTable::default()).unwrap();
        let asked = old.join().unwrap();
        assert!(asked.iter().all(|r| r["apply"].is_null()), "{asked:?}");
        let client = UdpSocket::bind("0.0.0.0:0").unwrap();
        client.set_read_timeout(Some(CEILING)).unwrap();
        client.connect("10.96.0.10:53").unwrap();
        let question = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x07cluster\x05local\0\0\x06\0\x01";
        client.send(question).unwrap();
        let mut answer = [0; 512];
        assert!(uninterrupted(|| client.recv(&mut answer)).unwrap() > question.len());
        assert_eq!(answer[..4], [0, 7, 0x85, 0x80]);
        // Names alone keep nothing when they go.
        path.set_names(None);
        assert!(path.remove().unwrap());
        eventually("the address is gone", || {
            UdpSocket::bind("10.96.0.10:0").is_err()
        });
    });
}

/// Nobody else would remove the address, and a service of the user on it would be refused as one on an address of the node.
#[test]
fn what_a_killed_role_has_added_is_taken_back() {
    proxied(|proxy| {
        let data_path = || {
            let role = ProxyRole::new(&proxy.dir, "").with_program(PROGRAM);
            let mut path = UserspaceProxy::new(role, proxy.options.clone());
            path.set_names(None);
            path
        };
        let has_address = || podprobe::net::network::node_addresses().contains(&ip("10.96.0.1"));
        let table = ServiceTable {
            services: vec![service("echo", &[echo()])],
            ..ServiceTable::default()
        };
        let mut path = data_path();
        path.apply(&table).unwrap();
        assert!(has_address());
        proxy.kill();
        // The daemon may have been killed, too.
        let mut next = data_path();
        assert_eq!(next.addresses(), [ip("10.96.0.1")].into());
        assert!(next.remove().unwrap());
        eventually("the address is gone", || !has_address());
        assert!(!next.remove().unwrap(), "there is nothing more");
    });
}

/// A TERM is of the node's shutdown where the role has left the daemon's cgroup: an init system does not wait for it then.
#[test]
fn a_role_that_has_left_the_daemon_ends_at_the_nodes_shutdown() {
    proxied(|proxy| {
        let cgroup = format!("/podprobe-test-proxy-{}", std::process::id());
        proxy.role = ProxyRole::new(&proxy.dir, &cgroup).with_program(PROGRAM);
        proxy.apply(&[]);
        let role = Record::running(&proxy.dir).unwrap().process;
        signal::kill(Pid::from_raw(role.pid), Signal::SIGTERM).unwrap();
        let ended = role
            .open()
            .unwrap()
            .is_none_or(|p| p.wait(CEILING).unwrap());
        let removed = Cgroups::detect().and_then(|c| c.remove(&cgroup));
        assert!(ended);
        removed.unwrap();
    });
}

#[test]
fn the_role_is_hard_to_kill_by_accident() {
    proxied(|proxy| {
        proxy.apply(&[]);
        let pid = proxy.pid();
        for signal in [
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGUSR1,
        ] {
            signal::kill(Pid::from_raw(pid), signal).unwrap();
        }
        proxy.metrics();
        assert_eq!(proxy.pid(), pid);
        let of = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        let (score, own): (i32, i32) = (
            of("oom_score_adj").trim().parse().unwrap(),
            own.trim().parse().unwrap(),
        );
        assert!(score <= own.min(0));
        kill(&proxy.dir);
    });
}
