//! The DNS responder on real sockets: its clients, its resolvers, and those who mean it no good.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use podprobe::api::service::{Cidr, Protocol};
use podprobe::base::clock::Moment;
use podprobe::net::proxyd::dns::counters::Counters;
use podprobe::net::proxyd::dns::responder::{Listener, Responder};
use podprobe::net::services::names::{EndpointNames, NameTarget, NamedPort, Names, ServiceNames};

use crate::support::dns_message::{answer, question};
use crate::support::skip;
use crate::support::uninterrupted::uninterrupted;

/// Longer than anything here takes on a slow machine; no test waits for its end to pass.
const CEILING: Duration = Duration::from_secs(20);
const PART: u8 = 3;
const WAKE: u64 = u64::MAX;

type Order = Box<dyn FnOnce(&mut Responder) + Send>;

/// The responder in a loop of its own, with a clock that stands still until it is put forward.
struct Running {
    address: SocketAddr,
    orders: SyncSender<Order>,
    wake: Arc<EventFd>,
    ahead: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(names: Names) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), names)
    }

    fn at(address: SocketAddr, names: Names) -> Self {
        let (udp, tcp) = pair(address);
        let address = udp.local_addr().unwrap();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let wake = Arc::new(EventFd::new().unwrap());
        epoll
            .add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))
            .unwrap();
        let mut responder = Responder::new(PART);
        responder.listen_on(Listener { udp, tcp }, &epoll).unwrap();
        responder.update(names);
        let (orders, received) = sync_channel::<Order>(16);
        let ahead = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (woken, clock, stopped) = (wake.clone(), ahead.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let now = || Moment::from_boot(Duration::from_millis(clock.load(Ordering::SeqCst)));
            let mut events = [EpollEvent::empty(); 64];
            while !stopped.load(Ordering::SeqCst) {
                let is_due = responder.deadline().is_some_and(|d| d <= now());
                let wait = match is_due {
                    true => EpollTimeout::ZERO,
                    false => EpollTimeout::NONE,
                };
                let count = epoll.wait(&mut events, wait).unwrap_or(0);
                for event in &events[..count] {
                    if event.data() == WAKE {
                        woken.read().unwrap();
                        while let Ok(order) = received.try_recv() {
                            order(&mut responder);
                        }
                    } else {
                        assert_eq!(event.data() >> 56, u64::from(PART));
                        responder.ready(event.data(), event.events(), now(), &epoll);
                    }
                }
                if responder.deadline().is_some_and(|d| d <= now()) {
                    responder.expire(now(), &epoll);
                }
            }
        });
        Self {
            address,
            orders,
            wake,
            ahead,
            stop,
            thread: Some(thread),
        }
    }

    /// Runs it in the loop, and waits until it has run.
    fn with<T: Send + 'static>(&self, run: impl FnOnce(&mut Responder) -> T + Send + 'static) -> T {
        let (done, result) = sync_channel(1);
        let order: Order = Box::new(move |responder| {
            let _ = done.send(run(responder));
        });
        match self.orders.try_send(order) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => panic!("too many orders"),
            Err(TrySendError::Disconnected(_)) => panic!("the loop has ended"),
        }
        self.wake.write(1).unwrap();
        result.recv_timeout(CEILING).expect("the loop answers")
    }

    fn counters(&self) -> Counters {
        self.with(|responder| responder.counters())
    }

    /// Puts the clock forward.
    fn later(&self, by: Duration) {
        self.ahead
            .fetch_add(by.as_millis() as u64, Ordering::SeqCst);
        self.with(|_| ());
    }

    fn udp(&self) -> UdpSocket {
        self.udp_of(Ipv4Addr::LOCALHOST)
    }

    /// A client of this address.
    fn udp_of(&self, from: Ipv4Addr) -> UdpSocket {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.connect(self.address).unwrap();
        socket.set_read_timeout(Some(CEILING)).unwrap();
        socket
    }

    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(CEILING)).unwrap();
        stream
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = self.wake.write(1);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().expect("the loop has not panicked");
        }
    }
}

/// Both sockets of one address and port.
fn pair(address: SocketAddr) -> (UdpSocket, TcpListener) {
    loop {
        let udp = UdpSocket::bind(address).unwrap();
        // Where the port is chosen, it may be taken on the other side.
        let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) else {
            assert_eq!(address.port(), 0, "{address} is in use");
            continue;
        };
        udp.set_nonblocking(true).unwrap();
        tcp.set_nonblocking(true).unwrap();
        return (udp, tcp);
    }
}

fn cidr(network: &str, prefix: u8) -> Cidr {
    Cidr {
        network: network.parse().unwrap(),
        prefix,
    }
}

fn headless(name: &str, count: u16) -> ServiceNames {
    let endpoints = (0..count).map(|n| EndpointNames {
        address: Ipv4Addr::from(0x0af4_0000 + u32::from(n)).into(),
        hostname: Some(format!("{name}-{n}")),
        ready: true,
        ports: vec![NamedPort {
            name: "db".into(),
            protocol: Protocol::Tcp,
            port: 5432,
        }],
    });
    ServiceNames {
        namespace: "shop".into(),
        name: name.into(),
        target: NameTarget::Headless(endpoints.collect()),
    }
}

fn names(upstreams: &[SocketAddr]) -> Names {
    let web = ServiceNames {
        namespace: "shop".into(),
        name: "web".into(),
        target: NameTarget::ClusterIps {
            addresses: vec!["10.96.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            ports: vec![NamedPort {
                name: "http".into(),
                protocol: Protocol::Tcp,
                port: 80,
            }],
        },
    };
    let out = ServiceNames {
        name: "out".into(),
        target: NameTarget::ExternalName("a.example.org".into()),
        ..web.clone()
    };
    Names {
        version: 1,
        domain: "cluster.local".into(),
        addresses: vec!["10.96.0.10".parse().unwrap()],
        pod_cidrs: vec![cidr("10.244.0.0", 16)],
        service_cidrs: vec![cidr("10.96.0.0", 16)],
        clients: vec![cidr("127.0.0.0", 8)],
        upstreams: upstreams.to_vec(),
        services: vec![web, out, headless("db", 3), headless("many", 1000)],
    }
}

/// Number, code and the count of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    id: u16,
    rcode: u8,
    truncated: bool,
    answers: u16,
}

fn said(bytes: &[u8]) -> Said {
    Said {
        id: u16::from_be_bytes([bytes[0], bytes[1]]),
        rcode: bytes[3] & 0xf,
        truncated: bytes[2] & 2 != 0,
        answers: u16::from_be_bytes([bytes[6], bytes[7]]),
    }
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let length = uninterrupted(|| socket.recv(&mut buffer)).expect("there is an answer");
    buffer[..length].to_vec()
}

fn ask(socket: &UdpSocket, question: &[u8]) -> Said {
    socket.send(question).unwrap();
    said(&receive(socket))
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

fn read_framed(stream: &mut impl Read) -> Vec<u8> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("there is an answer");
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message).unwrap();
    message
}

const NOERROR: u8 = 0;
const SERVFAIL: u8 = 2;
const NXDOMAIN: u8 = 3;

/// From where, and what.
type Asked = (SocketAddr, Vec<u8>);

/// A resolver over UDP whose answers the test makes: none, one or several for each question, with what was asked.
struct Resolver {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Resolver {
    fn new(answers: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Self::on(socket, answers)
    }

    fn on(socket: UdpSocket, answers: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, stopped) = (asked.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = uninterrupted(|| socket.recv_from(&mut buffer)) {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let question = buffer[..length].to_vec();
                seen.lock().unwrap().push((from, question.clone()));
                for answer in answers(&question) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self {
            address,
            asked,
            stop,
            thread: Some(thread),
        }
    }

    fn silent() -> Self {
        Self::new(|_| Vec::new())
    }

    fn of(address: [u8; 4]) -> Self {
        Self::new(move |question| vec![answer(question, address)])
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn wait_for(&self, count: usize) {
        wait("the resolver is asked", || self.count() >= count);
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let wake = UdpSocket::bind("127.0.0.1:0").unwrap();
        let _ = wake.send_to(b"stop", self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[track_caller]
fn wait(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < CEILING, "{what}: not within {CEILING:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

#[test]
fn names_are_answered_over_both_transports() {
    let running = Running::new(names(&[]));
    let udp = running.udp();
    let web = question(1, "web.shop.svc.cluster.local", 1);
    let expected = Said {
        id: 1,
        rcode: NOERROR,
        truncated: false,
        answers: 1,
    };
    assert_eq!(ask(&udp, &web), expected);
    let mut tcp = running.tcp();
    // Byte by byte, and then three at once.
    for byte in framed(&web) {
        tcp.write_all(&[byte]).unwrap();
    }
    assert_eq!(said(&read_framed(&mut tcp)), expected);
    let three: Vec<u8> = (2..5_u16)
        .flat_map(|id| framed(&question(id, "none.shop.svc.cluster.local", 1)))
        .collect();
    tcp.write_all(&three).unwrap();
    for id in 2..5 {
        let said = said(&read_framed(&mut tcp));
        assert_eq!((said.id, said.rcode), (id, NXDOMAIN));
    }
    let counters = running.counters();
    assert_eq!((counters.udp_requests, counters.tcp_requests), (1, 4));
    assert_eq!((counters.responses[0], counters.responses[3]), (2, 3));
}

#[test]
fn an_answer_that_is_cut_comes_whole_over_tcp() {
    let running = Running::new(names(&[]));
    let many = question(9, "many.shop.svc.cluster.local", 1);
    let cut = ask(&running.udp(), &many);
    assert!(cut.truncated && cut.answers < 40);
    let mut tcp = running.tcp();
    tcp.write_all(&framed(&many)).unwrap();
    let whole = said(&read_framed(&mut tcp));
    assert_eq!((whole.answers, whole.truncated), (1000, false));
}

#[test]
fn new_names_count_at_once() {
    let running = Running::new(names(&[]));
    let udp = running.udp();
    let other = question(1, "other.shop.svc.cluster.local", 1);
    assert_eq!(ask(&udp, &other).rcode, NXDOMAIN);
    let mut changed = names(&[]);
    changed.services.push(headless("other", 2));
    running.with(move |responder| responder.update(changed));
    assert_eq!(ask(&udp, &other).answers, 2);
}

#[test]
fn other_names_are_asked_elsewhere() {
    let resolver = Resolver::of([192, 0, 2, 7]);
    let running = Running::new(names(&[resolver.address]));
    let udp = running.udp();
    for id in 0..50 {
        udp.send(&question(id, "eXample.org", 1)).unwrap();
        let bytes = receive(&udp);
        assert_eq!((said(&bytes).id, said(&bytes).answers), (id, 1));
        assert_eq!(&bytes[12..20], b"\x07eXample");
        assert_eq!(bytes[bytes.len() - 4..], [192, 0, 2, 7]);
    }
    // What nobody guesses: the number and the port of each question.
    let asked = resolver.asked.lock().unwrap();
    let ports: std::collections::BTreeSet<u16> = asked.iter().map(|(a, _)| a.port()).collect();
    let ids: std::collections::BTreeSet<[u8; 2]> =
        asked.iter().map(|(_, q)| [q[0], q[1]]).collect();
    assert!(ports.len() > 25 && ids.len() > 45, "{ports:?} {ids:?}");
    let neighbours = ports.iter().zip(ports.iter().skip(1));
    assert!(
        neighbours.filter(|(a, b)| *a + 2 >= **b).count() < 20,
        "{ports:?}"
    );
}

#[test]
fn names_of_the_cluster_are_never_asked_elsewhere() {
    let resolver = Resolver::of([192, 0, 2, 7]);
    let running = Running::new(names(&[resolver.address]));
    let udp = running.udp();
    for name in [
        "none.shop.svc.cluster.local",
        "www.example.org.shop.svc.cluster.local",
        "www.example.org.svc.CLUSTER.local",
        "www.example.org.cluster.local",
        "9.9.96.10.in-addr.arpa",
        "9.99.244.10.in-addr.arpa",
    ] {
        assert_eq!(ask(&udp, &question(1, name, 12)).rcode, NXDOMAIN, "{name}");
    }
    assert_eq!(resolver.count(), 0);
    assert_eq!(running.counters().forwards, 0);
}

#[test]
fn an_external_name_is_followed() {
    let resolver = Resolver::of([192, 0, 2, 8]);
    let running = Running::new(names(&[resolver.address]));
    let udp = running.udp();
    udp.send(&question(1, "out.shop.svc.cluster.local", 1))
        .unwrap();
    let bytes = receive(&udp);
    assert_eq!((said(&bytes).rcode, said(&bytes).answers), (NOERROR, 2));
    assert_eq!(bytes[bytes.len() - 4..], [192, 0, 2, 8]);
    let asked = resolver.asked.lock().unwrap();
    assert_eq!(&asked[0].1[12..22], b"\x01a\x07example");
}

#[test]
fn without_a_resolver_the_answer_comes_at_once() {
    let running = Running::new(names(&[]));
    assert_eq!(
        ask(&running.udp(), &question(1, "example.org", 1)).rcode,
        SERVFAIL
    );
}

#[test]
fn a_resolver_that_is_not_there_costs_no_time() {
    let resolver = Resolver::of([192, 0, 2, 7]);
    let running = Running::new(names(&[nobody(), resolver.address]));
    let udp = running.udp();
    // The clock stands still: what waited for it would wait for ever.
    for id in 0..20 {
        assert_eq!(ask(&udp, &question(id, "example.org", 1)).rcode, NOERROR);
    }
    assert_eq!(running.counters().forward_failures, 1, "it is asked once");
    let running = Running::new(names(&[nobody()]));
    assert_eq!(
        ask(&running.udp(), &question(1, "example.org", 1)).rcode,
        SERVFAIL
    );
}

#[test]
fn a_silent_resolver_gives_way_to_the_next() {
    let (silent, resolver) = (Resolver::silent(), Resolver::of([192, 0, 2, 7]));
    let running = Running::new(names(&[silent.address, resolver.address]));
    let udp = running.udp();
    udp.send(&question(1, "example.org", 1)).unwrap();
    silent.wait_for(1);
    assert_eq!(resolver.count(), 0);
    running.later(Duration::from_secs(2));
    assert_eq!(said(&receive(&udp)).rcode, NOERROR);
    assert_eq!(running.counters().forward_timeouts, 1);
}

#[test]
fn where_all_are_silent_the_client_is_told_after_five_seconds() {
    let silent = Resolver::silent();
    let running = Running::new(names(&[silent.address]));
    let udp = running.udp();
    udp.send(&question(1, "example.org", 1)).unwrap();
    for tries in 1..=3 {
        silent.wait_for(tries);
        running.later(Duration::from_secs(if tries < 3 { 2 } else { 1 }));
    }
    assert_eq!(said(&receive(&udp)).rcode, SERVFAIL);
    assert_eq!(silent.count(), 3);
}

#[test]
fn only_the_resolvers_own_answer_counts() {
    // Another number, another question, a question, half an answer, and then the answer.
    let resolver = Resolver::new(|question| {
        let right = answer(question, [192, 0, 2, 7]);
        let with = |at: usize| {
            let mut wrong = answer(question, [6, 6, 6, 6]);
            wrong[at] ^= 1;
            wrong
        };
        vec![
            with(0),
            with(14),
            question.to_vec(),
            right[..14].to_vec(),
            right,
        ]
    });
    let running = Running::new(names(&[resolver.address]));
    let udp = running.udp();
    udp.send(&question(1, "example.org", 1)).unwrap();
    let bytes = receive(&udp);
    assert_eq!(bytes[bytes.len() - 4..], [192, 0, 2, 7]);
}

/// Somebody knows the number and the port, and is not the resolver.
#[test]
fn an_answer_from_another_address_is_not_let_in() {
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = Resolver::silent();
    let running = Running::new(names(&[silent.address]));
    let udp = running.udp();
    udp.send(&question(1, "example.org", 1)).unwrap();
    silent.wait_for(1);
    let (from, asked) = silent.asked.lock().unwrap()[0].clone();
    stranger
        .send_to(&answer(&asked, [6, 6, 6, 6]), from)
        .unwrap();
    running.later(Duration::from_secs(5));
    assert_eq!(said(&receive(&udp)).rcode, SERVFAIL);
}

#[test]
fn an_answer_that_a_resolver_cut_is_fetched_whole_for_a_client_over_tcp() {
    let (socket, listener) = pair(SocketAddr::from(([127, 0, 0, 1], 0)));
    socket.set_nonblocking(false).unwrap();
    listener.set_nonblocking(false).unwrap();
    let resolver = Resolver::on(socket, |question| {
        let mut cut = answer(question, [6, 6, 6, 6]);
        cut[2] |= 2;
        vec![cut]
    });
    let large = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let asked = read_framed(&mut stream);
        let mut whole = answer(&asked, [192, 0, 2, 7]);
        whole[6..8].copy_from_slice(&2000_u16.to_be_bytes());
        let record = whole[whole.len() - 16..].to_vec();
        whole.extend(record.repeat(1999));
        // In pieces, and the client is slow as well.
        for piece in framed(&whole).chunks(1000) {
            stream.write_all(piece).unwrap();
        }
    });
    let running = Running::new(names(&[resolver.address]));
    let cut = ask(&running.udp(), &question(1, "example.org", 1));
    assert!(cut.truncated);
    let mut tcp = running.tcp();
    tcp.write_all(&framed(&question(2, "example.org", 1)))
        .unwrap();
    let whole = said(&read_framed(&mut tcp));
    assert_eq!((whole.id, whole.answers, whole.truncated), (2, 2000, false));
    large.join().unwrap();
}

#[test]
fn our_own_address_is_never_asked() {
    let running = Running::new(names(&[]));
    let own = running.address;
    let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), own.port());
    let service = SocketAddr::new("10.96.0.10".parse().unwrap(), own.port());
    running.with(move |responder| responder.update(names(&[own, mapped, service])));
    let said = ask(&running.udp(), &question(1, "example.org", 1));
    assert_eq!(said.rcode, SERVFAIL);
    assert_eq!(running.counters().forward_tries, 0);
}

#[test]
fn strangers_get_no_answer() {
    let mut names = names(&[]);
    names.clients = vec![cidr("127.0.0.2", 32)];
    let running = Running::new(names);
    let stranger = running.udp();
    let web = question(1, "web.shop.svc.cluster.local", 1);
    stranger.send(&web).unwrap();
    stranger.send(b"\0").unwrap();
    let mut tcp = running.tcp();
    let _ = tcp.write_all(&framed(&web));
    let mut buffer = [0; 100];
    assert!(!matches!(tcp.read(&mut buffer), Ok(1..)));
    // Packets come in order: when the client has its answer, the stranger would have one.
    let client = running.udp_of(Ipv4Addr::new(127, 0, 0, 2));
    assert_eq!(ask(&client, &web).answers, 1);
    stranger.set_nonblocking(true).unwrap();
    let nothing = stranger.recv(&mut buffer).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    assert_eq!(running.counters().strangers, 3);
}

#[test]
fn a_flood_of_one_client_takes_nothing_from_another() {
    let silent = Resolver::silent();
    let running = Running::new(names(&[silent.address]));
    let (flood, quiet) = (running.udp(), running.udp_of(Ipv4Addr::new(127, 0, 0, 3)));
    flood.set_nonblocking(true).unwrap();
    quiet.send(&question(7, "example.org", 1)).unwrap();
    silent.wait_for(1);
    let mut buffer = [0; 512];
    for id in 0..5000_u16 {
        let _ = flood.send(&question(id, "flood.example.org", 1));
        while flood.recv(&mut buffer).is_ok() {}
        // So few that the kernel keeps them all: what it drops we cannot answer.
        if id % 50 == 0 {
            let web = question(8, "web.shop.svc.cluster.local", 1);
            assert_eq!(ask(&quiet, &web).answers, 1);
        }
    }
    let counters = running.counters();
    assert!(counters.forwards_displaced > 0, "{counters:?}");
    let open = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < 512 + 200, "{open} descriptors");
    // The quiet one's first question waits still.
    running.later(Duration::from_secs(5));
    assert_eq!(
        said(&receive(&quiet)),
        Said {
            id: 7,
            rcode: SERVFAIL,
            truncated: false,
            answers: 0
        }
    );
}

#[test]
fn malformed_packets_do_no_harm() {
    let running = Running::new(names(&[]));
    let (udp, noise) = (running.udp(), running.udp());
    let web = question(1, "web.shop.svc.cluster.local", 1);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for turn in 0..2000 {
        let mut bytes = web.clone();
        for _ in 0..random() % 5 {
            let at = random() % bytes.len();
            bytes[at] = random() as u8;
        }
        bytes.truncate(random() % (bytes.len() + 1));
        let _ = noise.send(&bytes);
        if turn % 100 == 0 {
            assert_eq!(ask(&udp, &web).answers, 1);
        }
    }
    for broken in [&[0xff, 0xff, 1][..], &[0, 3, 1, 2, 3], &[0, 0], &[0x20, 0]] {
        let mut tcp = running.tcp();
        let _ = tcp.write_all(broken);
        let _ = tcp.shutdown(Shutdown::Write);
        // It is closed, with or without an answer.
        let mut rest = Vec::new();
        let _ = tcp.read_to_end(&mut rest);
    }
    assert_eq!(ask(&udp, &web).answers, 1);
}

/// Whether the other side has closed the connection.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut byte = [0];
    let closed = match stream.peek(&mut byte) {
        Ok(0) => true,
        Err(e) => e.kind() != ErrorKind::WouldBlock,
        Ok(_) => false,
    };
    stream.set_nonblocking(false).unwrap();
    closed
}

#[test]
fn connections_are_bounded_and_the_quietest_gives_way() {
    let running = Running::new(names(&[]));
    let web = framed(&question(1, "web.shop.svc.cluster.local", 1));
    let mut all: Vec<TcpStream> = Vec::new();
    for _ in 0..64 {
        let mut tcp = running.tcp();
        tcp.write_all(&web).unwrap();
        assert_eq!(said(&read_framed(&mut tcp)).answers, 1);
        all.push(tcp);
    }
    // The first one asks again, so the second is the quietest.
    running.later(Duration::from_millis(10));
    all[0].write_all(&web).unwrap();
    read_framed(&mut all[0]);
    let mut one_more = running.tcp();
    one_more.write_all(&web).unwrap();
    assert_eq!(said(&read_framed(&mut one_more)).answers, 1);
    wait("the second is closed", || is_closed(&all[1]));
    let closed = all.iter().filter(|tcp| is_closed(tcp)).count();
    assert_eq!(closed, 1);
    assert_eq!(running.counters().connections_displaced, 1);
}

#[test]
fn an_idle_connection_ends_after_ten_seconds() {
    let running = Running::new(names(&[]));
    let web = framed(&question(1, "web.shop.svc.cluster.local", 1));
    let (mut idle, mut slow) = (running.tcp(), running.tcp());
    for tcp in [&mut idle, &mut slow] {
        tcp.write_all(&web).unwrap();
        read_framed(tcp);
    }
    running.later(Duration::from_secs(9));
    // A byte now and then is no question.
    slow.write_all(&web[..1]).unwrap();
    assert!(!is_closed(&idle));
    running.later(Duration::from_secs(1));
    let mut rest = Vec::new();
    let _ = idle.read_to_end(&mut rest);
    let _ = slow.read_to_end(&mut rest);
    assert_eq!(rest, b"");
}

#[test]
fn a_client_that_ends_its_side_gets_its_answers() {
    let silent = Resolver::silent();
    let running = Running::new(names(&[silent.address]));
    let mut tcp = running.tcp();
    tcp.write_all(&framed(&question(1, "example.org", 1)))
        .unwrap();
    tcp.shutdown(Shutdown::Write).unwrap();
    silent.wait_for(1);
    running.later(Duration::from_secs(5));
    assert_eq!(said(&read_framed(&mut tcp)).rcode, SERVFAIL);
    assert_eq!(
        uninterrupted(|| tcp.read(&mut [0])).unwrap(),
        0,
        "and then the connection ends"
    );
}

/// More questions than may wait for resolvers: none is forgotten in a buffer.
#[test]
fn many_questions_at_once_are_all_answered() {
    let resolver = Resolver::of([192, 0, 2, 7]);
    let running = Running::new(names(&[resolver.address]));
    let mut tcp = running.tcp();
    let all: Vec<u8> = (0..60_u16)
        .flat_map(|id| framed(&question(id, "example.org", 1)))
        .collect();
    tcp.write_all(&all).unwrap();
    let mut ids: Vec<u16> = (0..60).map(|_| said(&read_framed(&mut tcp)).id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..60).collect::<Vec<_>>());
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    let running = Running::new(names(&[]));
    let mut deaf = running.tcp();
    deaf.set_nonblocking(true).unwrap();
    let many = framed(&question(1, "many.shop.svc.cluster.local", 1));
    let udp = running.udp();
    let web = question(2, "web.shop.svc.cluster.local", 1);
    // 16 KB each: more than the kernel's buffers hold, until it is read from no more.
    let (mut asked, mut refused) = (0, 0);
    while asked < 2_000_000 && refused < 100 {
        match deaf.write(&many) {
            Ok(length) => (asked, refused) = (asked + length, 0),
            Err(_) => refused += 1,
        }
        assert_eq!(ask(&udp, &web).answers, 1);
    }
    // What was asked and not answered yet comes when it reads.
    deaf.set_nonblocking(false).unwrap();
    for _ in 0..100 {
        assert_eq!(said(&read_framed(&mut deaf)).answers, 1000);
    }
}

/// Runs `inside` on a thread with a network and an /etc/resolv.conf of its own.
fn with_resolv_conf<T: Send>(dir: &Path, content: &str, inside: impl FnOnce() -> T + Send) -> T {
    let file = dir.join("resolv.conf");
    fs::write(&file, content).unwrap();
    let run = || {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
        let none = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).unwrap();
        mount(
            Some(&file),
            "/etc/resolv.conf",
            none,
            MsFlags::MS_BIND,
            none,
        )
        .unwrap();
        podprobe::base::sys::socket::loopback_up().unwrap();
        inside()
    };
    std::thread::scope(|s| match s.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// As a pod's: the C library's resolver with its search path, and two others.
#[test]
fn the_resolvers_of_others_understand_it() {
    if !skip::is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let search = "search shop.svc.cluster.local svc.cluster.local cluster.local";
    let content = format!("{search}\nnameserver 127.0.0.10\noptions ndots:5\n");
    with_resolv_conf(dir.path(), &content, || {
        let resolver = Resolver::of([192, 0, 2, 7]);
        let address = SocketAddr::from(([127, 0, 0, 10], 53));
        let running = Running::at(address, names(&[resolver.address]));
        let ahosts = |name| output("getent", &["ahosts", name]).expect("getent is there");
        for name in [
            "web",
            "web.shop",
            "WEB.shop.svc",
            "web.shop.svc.cluster.local.",
        ] {
            let found = ahosts(name);
            assert!(found.contains("10.96.0.1 "), "{name}: {found}");
            assert!(found.contains("fd00::1 "), "{name}: {found}");
        }
        assert!(ahosts("example.org").contains("192.0.2.7"));
        assert_eq!(ahosts("none.shop.svc.cluster.local."), "");
        // More addresses than a datagram holds: it comes again over TCP.
        assert_eq!(ahosts("many").matches(" STREAM").count(), 1000);
        let back = output("getent", &["hosts", "10.96.0.1"]).unwrap();
        assert!(back.contains("web.shop.svc.cluster.local"), "{back}");
        if let Some(found) = output(
            "busybox",
            &["nslookup", "db-1.db.shop.svc.cluster.local", "127.0.0.10"],
        ) {
            assert!(found.contains("10.244.0.1"), "{found}");
        }
        let script =
            "import socket; print(sorted({a[4][0] for a in socket.getaddrinfo('db', 80)}))";
        if let Some(found) = output("python3", &["-c", script]) {
            assert_eq!(found.trim(), "['10.244.0.0', '10.244.0.1', '10.244.0.2']");
        }
        assert!(running.counters().tcp_requests > 0);
    });
}

#[test]
fn ipv6_clients_are_answered_too() {
    let Ok(probe) = UdpSocket::bind("[::1]:0") else {
        return skip::skip("no IPv6");
    };
    drop(probe);
    let mut names = names(&[]);
    names.clients = vec![cidr("::1", 128)];
    let running = Running::at("[::1]:0".parse().unwrap(), names);
    let socket = UdpSocket::bind("[::1]:0").unwrap();
    socket.connect(running.address).unwrap();
    socket.set_read_timeout(Some(CEILING)).unwrap();
    let web = question(1, "web.shop.svc.cluster.local", 28);
    assert_eq!(ask(&socket, &web).answers, 1);
    assert_eq!(running.address.ip(), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]));
}

/// Counted and not timed: whoever asks while another client floods is answered in the same pass of the loop.
#[test]
fn a_client_that_floods_keeps_nobody_waiting() {
    const FLOOD: u16 = 200;
    let (udp, tcp) = pair(SocketAddr::from(([127, 0, 0, 1], 0)));
    let address = udp.local_addr().unwrap();
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    let mut responder = Responder::new(PART);
    responder.listen_on(Listener { udp, tcp }, &epoll).unwrap();
    responder.update(names(&[]));
    let client = |n: u8| {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, n), 0)).unwrap();
        socket.connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let name = "web.shop.svc.cluster.local";
    let flooder = client(2);
    let others: Vec<UdpSocket> = (3..11).map(client).collect();
    let mut events = [EpollEvent::empty(); 4];
    for round in 0..10_u16 {
        for id in 0..FLOOD {
            flooder.send(&question(id, name, 1)).unwrap();
        }
        for other in &others {
            other.send(&question(round, name, 1)).unwrap();
        }
        let count = epoll.wait(&mut events, EpollTimeout::ZERO).unwrap();
        assert_eq!(count, 1);
        responder.ready(events[0].data(), events[0].events(), Moment::now(), &epoll);
        for (n, other) in others.iter().enumerate() {
            let mut buffer = [0; 512];
            let length = other.recv(&mut buffer);
            let length = length.unwrap_or_else(|e| panic!("round {round}, client {n}: {e}"));
            let got = said(&buffer[..length]);
            assert_eq!((got.id, got.rcode, got.answers), (round, 0, 1));
        }
    }
    // The flooder has lost some of its own, and nobody else any.
    let counters = responder.counters();
    assert_eq!(counters.udp_requests, 10 * (u64::from(FLOOD) + 8));
    assert!(counters.crowded > 0);
    // What waits is answered although nothing more comes.
    for _ in 0..100 {
        if responder.deadline().is_none_or(|d| d > Moment::now()) {
            break;
        }
        responder.expire(Moment::now(), &epoll);
    }
    let counters = responder.counters();
    let answers: u64 = counters.responses.iter().sum();
    assert_eq!(answers + counters.crowded, counters.udp_requests);
}
