//! Tests of the data path with a clock of their own, so that seconds pass without waiting.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::part::Userspace;
use super::sockets::reset_on_close;
use crate::api::service::Protocol;
use crate::base::clock::Moment;
use crate::base::sys::socket::let_nothing_in;
use crate::net::proxyd::message::{Configuration, Metrics, Options, ServiceAddresses};
use crate::net::proxyd::poller::{Events, Part, Poller};
use crate::net::services::table::{ServicePortEntry, ServicePortName, ServiceTable};

/// Number of turns after which a test gives up.
const TURNS: u32 = 100_000;

/// A data path with a clock that the test moves.
struct Clocked {
    part: Userspace,
    poller: Poller,
    now: Moment,
    address: SocketAddr,
    options: Options,
    _dir: tempfile::TempDir,
}

impl Clocked {
    fn new(protocol: Protocol, backends: &[SocketAddr]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut clocked = Self {
            part: Userspace::new(dir.path(), 4096),
            poller: Poller::new().unwrap(),
            now: Moment::from_boot(Duration::from_secs(1000)),
            address: free_address(),
            options: Options {
                service_addresses: ServiceAddresses::Bound,
                ..Options::default()
            },
            _dir: dir,
        };
        clocked.apply(protocol, backends);
        clocked
    }

    fn apply(&mut self, protocol: Protocol, backends: &[SocketAddr]) {
        let configuration = Configuration {
            options: self.options.clone(),
            table: ServiceTable {
                services: vec![service(protocol, self.address, backends)],
                ..ServiceTable::default()
            },
            ..Configuration::default()
        };
        self.part.apply(&configuration, self.now, &self.poller);
        assert_eq!(self.part.not_bound(), []);
    }

    /// Handles the events that are there, without waiting.
    fn turn(&mut self) {
        let mut events = Events::default();
        for (token, events) in self.poller.wait(&mut events, Some(Moment::default())) {
            self.part.ready(token, events, self.now, &self.poller);
        }
        if self.part.deadline().is_some_and(|d| d <= self.now) {
            self.part.expire(self.now, &self.poller);
        }
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Metrics) -> bool) {
        for _ in 0..TURNS {
            self.turn();
            if is_so(&self.part.metrics()) {
                return;
            }
            std::thread::yield_now();
        }
        panic!("never: {what}: {:?}", self.part.metrics());
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.turn();
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }
}

/// Returns an address in the loopback network that is not in use. The address is made from this process's pid and a
/// counter.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let pid = std::process::id();
    let [_, high, middle, low] = pid.to_be_bytes();
    let ip = [127, middle, low, NEXT.fetch_add(1, Ordering::SeqCst)];
    (ip, 10_000 + u16::from(high)).into()
}

fn service(protocol: Protocol, at: SocketAddr, backends: &[SocketAddr]) -> ServicePortEntry {
    let backends = backends.iter().map(|at| (*at).into()).collect();
    ServicePortEntry::new(
        ServicePortName {
            namespace: "ns".into(),
            service: "foo".into(),
            port: String::new(),
            protocol,
        },
        at.port(),
        vec![at.ip()],
        backends,
    )
}

fn server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn four_attempts_take_250_ms_500_ms_1_s_and_2_s() {
    let (dead, at) = server();
    let_nothing_in(dead.as_fd()).unwrap();
    let mut c = Clocked::new(Protocol::Tcp, &[at]);
    let mut client = c.connect();
    c.until("taken", |m| m.accepted == 1);
    for (n, ms) in [250, 500, 1000, 2000].into_iter().enumerate() {
        assert_eq!(c.part.metrics().retries, n as u64);
        c.pass(MS * (ms - 1));
        assert_eq!(c.part.metrics().retries, n as u64, "{ms} ms are not over");
        c.pass(MS);
    }
    let metrics = c.part.metrics();
    assert_eq!((metrics.failed, metrics.connections), (1, 0));
    let error = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn an_endpoint_that_does_not_answer_is_replaced_by_one_that_does() {
    let ((dead, dead_at), (alive, alive_at)) = (server(), server());
    let_nothing_in(dead.as_fd()).unwrap();
    let mut c = Clocked::new(Protocol::Tcp, &[dead_at, alive_at]);
    alive.set_nonblocking(true).unwrap();
    // One of the two clients gets the dead endpoint first.
    let _clients = [c.connect(), c.connect()];
    c.until("both are taken", |m| m.accepted == 2);
    c.pass(MS * 250);
    assert_eq!(c.part.metrics().retries, 1);
    c.until("both are there", |_| alive.accept().is_ok());
    c.until("both are there", |_| alive.accept().is_ok());
}

#[test]
fn after_one_end_the_other_has_60_s_from_the_last_byte() {
    let (listener, at) = server();
    let mut c = Clocked::new(Protocol::Tcp, &[at]);
    let client = c.connect();
    let mut served = None;
    listener.set_nonblocking(true).unwrap();
    c.until("connected", |_| {
        served = served.take().or_else(|| listener.accept().ok());
        served.is_some()
    });
    c.pass(Duration::from_secs(3600));
    assert_eq!(
        c.part.metrics().connections,
        1,
        "an idle connection has no limit"
    );
    client.shutdown(Shutdown::Write).unwrap();
    let (mut server, _) = served.unwrap();
    server.set_nonblocking(false).unwrap();
    // The end of the client's half arrives at the server.
    let mut end = false;
    server.set_nonblocking(true).unwrap();
    c.until("the end arrives", |_| {
        end |= matches!((&server).read(&mut [0; 1]), Ok(0));
        end
    });
    c.pass(Duration::from_secs(59));
    server.write_all(b"x").unwrap();
    c.until("it arrives", |m| m.bytes_to_clients == 1);
    c.pass(Duration::from_secs(59));
    assert_eq!(c.part.metrics().connections, 1);
    c.pass(Duration::from_secs(1));
    let metrics = c.part.metrics();
    assert_eq!((metrics.lingered, metrics.connections), (1, 0));
}

#[test]
fn a_service_port_at_its_limit_looks_again_after_50_to_100_ms() {
    let (_listener, at) = server();
    let mut c = Clocked::new(Protocol::Tcp, &[at]);
    c.options.max_connections_per_port = 1;
    c.apply(Protocol::Tcp, &[at]);
    let first = c.connect();
    let _second = c.connect();
    c.until("it is full", |m| m.limit_pauses == 1);
    c.pass(MS * 49);
    (0..10).for_each(|_| c.turn());
    assert_eq!(c.part.metrics().limit_pauses, 1, "it pauses");
    reset_on_close(&first);
    drop(first);
    c.until("the first has gone", |m| m.connections == 0);
    assert_eq!(c.part.metrics().accepted, 1);
    c.pass(MS * 51);
    c.until("the second is taken", |m| m.accepted == 2);
}

fn udp_client(c: &Clocked) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(c.address).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

#[test]
fn a_udp_client_is_known_for_10_s_after_its_last_datagram_in_either_direction() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut c = Clocked::new(Protocol::Udp, &[server.local_addr().unwrap()]);
    let client = udp_client(&c);
    client.send(b"x").unwrap();
    c.until("it arrives", |m| m.flows == 1);
    c.pass(Duration::from_secs(9));
    let (_, from) = server.recv_from(&mut [0; 1]).unwrap();
    server.send_to(b"y", from).unwrap();
    c.until("the answer arrives", |m| m.bytes_to_clients == 1);
    c.pass(MS * 9999);
    assert_eq!(c.part.metrics().flows, 1);
    c.pass(MS);
    assert_eq!(c.part.metrics().flows, 0);
    assert_eq!(c.part.deadline(), None, "nothing is waited for");
}

#[test]
fn a_full_service_port_gives_the_longest_silent_place_away_after_250_ms() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let mut c = Clocked::new(Protocol::Udp, &[at]);
    c.options.max_flows_per_port = 2;
    c.apply(Protocol::Udp, &[at]);
    let clients = [udp_client(&c), udp_client(&c), udp_client(&c)];
    clients[0].send(b"0").unwrap();
    c.until("the first is known", |m| m.flows == 1);
    clients[1].send(b"1").unwrap();
    c.until("the second is known", |m| m.flows == 2);
    c.pass(MS * 249);
    clients[2].send(b"2").unwrap();
    c.until("there is no room for the third", |m| {
        m.datagrams_dropped == 1
    });
    clients[0].send(b"0").unwrap();
    c.until("the first has talked", |m| m.bytes_to_endpoints == 3);
    c.pass(MS);
    clients[2].send(b"2").unwrap();
    c.until("the third has the place of the second", |m| {
        m.flows_opened == 3
    });
    assert_eq!(c.part.metrics().flows, 2);
    clients[0].send(b"0").unwrap();
    c.until("the first has kept its place", |m| {
        m.bytes_to_endpoints == 5
    });
    assert_eq!(c.part.metrics().flows_opened, 3);
}

#[test]
fn the_idle_time_of_udp_is_never_below_250_ms() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let mut c = Clocked::new(Protocol::Udp, &[at]);
    c.options.udp_idle_ms = 0;
    c.apply(Protocol::Udp, &[at]);
    udp_client(&c).send(b"x").unwrap();
    c.until("it is known", |m| m.flows == 1);
    c.pass(MS * 249);
    assert_eq!(c.part.metrics().flows, 1);
    c.pass(MS);
    assert_eq!(c.part.metrics().flows, 0);
}

#[test]
fn one_stream_of_bulk_gives_others_their_turn() {
    let (listener, at) = server();
    let mut c = Clocked::new(Protocol::Tcp, &[at]);
    let _client = c.connect();
    let mut served = None;
    listener.set_nonblocking(true).unwrap();
    c.until("connected", |_| {
        served = served.take().or_else(|| listener.accept().ok());
        served.is_some()
    });
    let mut before = 0;
    let (mut server, _) = served.unwrap();
    server.set_nonblocking(true).unwrap();
    for _ in 0..50 {
        while server.write(&[1; 64 * 1024]).is_ok() {}
        c.turn();
        let moved = c.part.metrics().bytes_to_clients;
        // The limit allows one turn for the events, and one for the connections with more to do.
        assert!(moved - before <= 3 << 20, "{} at once", moved - before);
        before = moved;
    }
    assert!(before > 0);
}
