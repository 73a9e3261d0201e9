//! A daemon of another program finds a proxy at work: a new process takes the work over, and no client sees anything.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use podprobe::api::service::{Cidr, Protocol};
use podprobe::base::sys::task::Process;
use podprobe::net::proxy::DataPath;
use podprobe::net::proxy::userspace::{ProxyRole, Renewal, UserspaceProxy};
use podprobe::net::proxyd::home::{Record, SOCKET};
use podprobe::net::proxyd::message::{Options, Request, ServiceAddresses};
use podprobe::net::services::names::{NameTarget, NamedPort, Names, ServiceNames};
use podprobe::net::services::table::{Backends, ServicePortEntry, ServiceTable};

use crate::support::dns_message::{answer, question};
use crate::support::proxied::{
    CEILING, PROGRAM, ask_from, at, check_echo, check_refused, check_stream, echo, eventually,
    in_own_network, ip, named, service, udp_ask, udp_client, udp_service,
};
use crate::support::uninterrupted::uninterrupted;

const FOO: &str = "10.96.0.1:80";
const UDP: &str = "10.96.0.1:81";
const STICKY: &str = "10.96.0.1:82";
const EMPTY: &str = "10.96.0.1:83";
const RESOLVER: &str = "10.96.0.10:53";

/// A directory with a proxy; whatever was started for it ends with the test.
struct Node {
    dir: PathBuf,
    temporary: tempfile::TempDir,
    seen: RefCell<Vec<Process>>,
}

impl Node {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        Self {
            dir: temporary.path().join("proxy"),
            temporary,
            seen: RefCell::default(),
        }
    }

    /// A copy of the program with so many more bytes, which mean nothing to it.
    fn program(&self, more: usize) -> PathBuf {
        let path = self.temporary.path().join(format!("podprobe-{more}"));
        if !path.exists() {
            std::fs::copy(PROGRAM, &path).unwrap();
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(&vec![0; more]).unwrap();
        }
        path
    }

    fn role(&self, program: &Path) -> ProxyRole {
        ProxyRole::new(&self.dir, "").with_program(program)
    }

    /// The data path of a daemon that has just started and runs this program.
    fn daemon(&self, program: &Path) -> UserspaceProxy {
        let options = Options {
            service_addresses: ServiceAddresses::Bound,
            // Longer than any test.
            udp_idle_ms: 1_000_000,
            ..Options::default()
        };
        UserspaceProxy::new(self.role(program), options)
    }

    /// The same, which has brought services and names into force.
    fn daemon_with(&self, program: &Path, table: &ServiceTable, names: Names) -> UserspaceProxy {
        let mut daemon = self.daemon(program);
        daemon.set_names(Some(names));
        let applied = daemon.apply(table).unwrap();
        assert_eq!(applied.warning, None);
        daemon
    }

    /// The process that has the directory.
    fn process(&self) -> Process {
        let process = Record::running(&self.dir).expect("it runs").process;
        self.seen.borrow_mut().push(process);
        process
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let current = Record::running(&self.dir).map(|r| r.process);
        for process in self.seen.borrow_mut().drain(..).chain(current) {
            if let Ok(Some(process)) = process.open() {
                let _ = process.send(nix::libc::SIGKILL);
                let _ = process.wait(CEILING);
            }
        }
    }
}

/// Asks the other process on the socket as a process does that takes over.
fn say(stream: &mut UnixStream, request: &Request) -> serde_json::Value {
    let body = serde_json::to_vec(request).unwrap();
    stream
        .write_all(&(body.len() as u32).to_be_bytes())
        .unwrap();
    stream.write_all(&body).unwrap();
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    serde_json::from_slice(&line).unwrap()
}

/// Sends back the number of the port that the datagram came from: the same for as long as the client has its flow.
fn port_teller() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
            let _ = socket.send_to(from.port().to_string().as_bytes(), from);
        }
    });
    address
}

/// A resolver that answers once the sender is dropped.
fn slow_resolver() -> (SocketAddr, Receiver<()>, SyncSender<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let ((asked, was_asked), (answers, may_answer)) = (sync_channel(8), sync_channel::<()>(1));
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((n, from)) = socket.recv_from(&mut bytes) {
            let _ = asked.try_send(());
            let _ = may_answer.recv();
            let _ = socket.send_to(&answer(&bytes[..n], [192, 0, 2, 7]), from);
        }
    });
    (address, was_asked, answers)
}

fn names(upstreams: Vec<SocketAddr>) -> Names {
    Names {
        version: 1,
        domain: "cluster.local".into(),
        addresses: vec![ip("10.96.0.10")],
        clients: vec![Cidr::v4([10, 96, 0, 0], 16), Cidr::v4([127, 0, 0, 0], 8)],
        service_cidrs: vec![Cidr::v4([10, 96, 0, 0], 16)],
        upstreams,
        services: vec![ServiceNames {
            namespace: "shop".into(),
            name: "web".into(),
            target: NameTarget::ClusterIps {
                addresses: vec![ip("10.96.0.1")],
                ports: vec![NamedPort {
                    name: "http".into(),
                    protocol: Protocol::Tcp,
                    port: 80,
                }],
            },
        }],
        ..Names::default()
    }
}

fn on_port(mut service: ServicePortEntry, port: u16) -> ServicePortEntry {
    (service.port, service.name.port) = (port, format!("p{port}"));
    service
}

fn table() -> ServiceTable {
    let mut sticky = on_port(service("foo", &[named("a"), named("b"), named("c")]), 82);
    sticky.affinity = Some(Duration::from_secs(1000));
    let mut empty = on_port(service("foo", &[]), 83);
    (empty.internal, empty.external) = (Backends::Reject, Backends::Reject);
    ServiceTable {
        services: vec![
            on_port(service("foo", &[echo()]), 80),
            on_port(udp_service("foo", &[port_teller()]), 81),
            sticky,
            empty,
        ],
        ..ServiceTable::default()
    }
}

/// A name of the cluster, asked once: who asks again would not see that a question is lost.
fn look_up(resolver: &UdpSocket, id: u16) {
    let asked = question(id, "web.shop.svc.cluster.local", 1);
    resolver.send(&asked).unwrap();
    let mut bytes = [0; 512];
    let n = uninterrupted(|| resolver.recv(&mut bytes)).expect("an answer");
    assert_eq!(bytes[..2], id.to_be_bytes());
    assert_eq!(bytes[n - 4..n], [10, 96, 0, 1]);
}

fn look_up_over_tcp(stream: &mut TcpStream, id: u16) {
    let asked = question(id, "web.shop.svc.cluster.local", 1);
    let length = (asked.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], &asked].concat()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[..2], id.to_be_bytes());
}

fn connected(address: &str) -> TcpStream {
    let stream = TcpStream::connect(at(address)).unwrap();
    stream.set_read_timeout(Some(CEILING)).unwrap();
    stream
}

/// Clients that do one thing again and again until they are told to stop. The first failure ends the test.
struct Clients {
    stop: AtomicBool,
    rounds: [AtomicU64; 5],
}

impl Clients {
    fn run<'s>(&'s self, scope: &'s std::thread::Scope<'s, '_>) {
        let kinds: [fn(u16); 5] = [
            |_| check_echo(FOO, b"hello"),
            |_| {
                // Each is remembered for a while, and there is room for so many.
                let client = udp_client(UDP);
                for _ in 0..16 {
                    udp_ask(&client, "x");
                }
            },
            |id| look_up(&udp_client(RESOLVER), id),
            |id| look_up_over_tcp(&mut connected(RESOLVER), id),
            |_| check_refused(EMPTY),
        ];
        for (kind, count) in kinds.into_iter().zip(&self.rounds) {
            scope.spawn(move || {
                let _stop = StopAfterPanic(&self.stop);
                while !self.stop.load(Ordering::SeqCst) {
                    kind(count.fetch_add(1, Ordering::SeqCst) as u16);
                }
            });
        }
    }

    /// Each kind has done some more.
    fn wait(&self) {
        let before: Vec<u64> = self
            .rounds
            .iter()
            .map(|r| r.load(Ordering::SeqCst))
            .collect();
        eventually("clients go on", || {
            let mut now = self.rounds.iter().zip(&before);
            self.stop.load(Ordering::SeqCst)
                || now.all(|(now, before)| now.load(Ordering::SeqCst) > before + 10)
        });
    }
}

/// Clients end, whatever happens to the test that waits for them.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A client that fails ends the others, and the wait for them.
struct StopAfterPanic<'a>(&'a AtomicBool);

impl Drop for StopAfterPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

#[test]
fn an_upgrade_loses_no_connection_and_no_question() {
    in_own_network(|| {
        let node = Node::new();
        let table = table();
        node.daemon_with(Path::new(PROGRAM), &table, names(Vec::new()));
        let mut process = node.process();
        let clients = Clients {
            stop: AtomicBool::new(false),
            rounds: Default::default(),
        };
        std::thread::scope(|scope| {
            let _stop = Stop(&clients.stop);
            clients.run(scope);
            for more in [1, 2, 1] {
                clients.wait();
                let mut daemon = node.daemon_with(&node.program(more), &table, names(Vec::new()));
                let old = std::mem::replace(&mut process, node.process());
                assert_ne!(process, old, "another process serves");
                clients.wait();
                let taken = daemon.metrics().unwrap().accepted;
                assert!(taken > 0, "the new one takes clients");
                eventually("the old one has ended", || !old.alive());
            }
        });
        assert!(process.alive());
    });
}

#[test]
fn what_is_under_way_at_an_upgrade_goes_on() {
    in_own_network(|| {
        let node = Node::new();
        let (upstream, was_asked, answers) = slow_resolver();
        let (table, names) = (table(), names(vec![upstream]));
        node.daemon_with(Path::new(PROGRAM), &table, names.clone());
        let old = node.process();
        let flow = udp_client(UDP);
        let port_before = udp_ask(&flow, "x");
        let sticky_before = ask_from("127.0.0.7", STICKY);
        let mut long = connected(FOO);
        check_stream(&mut long, b"before");
        let mut questioner = connected(RESOLVER);
        look_up_over_tcp(&mut questioner, 1);
        let waiting = udp_client(RESOLVER);
        waiting.send(&question(77, "example.org", 1)).unwrap();
        was_asked.recv().unwrap();

        node.daemon_with(&node.program(1), &table, names);
        assert_ne!(node.process(), old);
        drop(answers);
        let mut bytes = [0; 512];
        let n = uninterrupted(|| waiting.recv(&mut bytes)).expect("an answer");
        assert_eq!(bytes[..2], 77_u16.to_be_bytes());
        assert_eq!(bytes[n - 4..n], [192, 0, 2, 7]);
        assert_eq!(udp_ask(&flow, "x"), port_before, "it has its flow yet");
        assert_eq!(ask_from("127.0.0.7", STICKY), sticky_before);
        look_up_over_tcp(&mut questioner, 2);
        check_stream(&mut long, b"after");
        assert!(old.alive(), "it has a connection yet");
        // One more upgrade while the first process has its connection.
        let middle = node.process();
        node.daemon_with(Path::new(PROGRAM), &table, Names::default());
        check_stream(&mut long, b"and after");
        drop(long);
        eventually("both have ended", || !old.alive() && !middle.alive());
        check_echo(FOO, b"hello");
    });
}

#[test]
fn the_same_program_is_not_replaced() {
    in_own_network(|| {
        let node = Node::new();
        let table = table();
        node.daemon(Path::new(PROGRAM)).apply(&table).unwrap();
        let process = node.process();
        // A package that is installed again has another file with the same bytes.
        for program in [PathBuf::from(PROGRAM), node.program(0)] {
            let renewal = node.role(&program).bring_up_to_date().unwrap();
            assert_eq!(renewal, Renewal::Needless);
            node.daemon(&program).apply(&table).unwrap();
            assert_eq!(node.process(), process);
        }
        check_echo(FOO, b"hello");
    });
}

#[test]
fn a_hand_over_that_fails_leaves_the_old_process_at_work() {
    in_own_network(|| {
        let node = Node::new();
        let table = table();
        node.daemon(Path::new(PROGRAM)).apply(&table).unwrap();
        let process = node.process();
        // A program that ends at once.
        let mut failing = node.role(Path::new("/bin/false"));
        let why = failing.bring_up_to_date().unwrap_err();
        let pid = process.pid;
        assert_eq!(
            why.to_string(),
            format!("process {pid} cannot hand its work over: it does not start: it ended")
        );
        // One that has the sockets, and is killed before it serves.
        let mut heir = UnixStream::connect(node.dir.join(SOCKET)).unwrap();
        let given = say(&mut heir, &Request::HandOver {});
        assert_eq!(given["handed"]["sockets"].as_array().unwrap().len(), 4);
        drop(heir);
        // One that has no sockets, and would have nobody serve.
        let mut stranger = UnixStream::connect(node.dir.join(SOCKET)).unwrap();
        let refused = say(&mut stranger, &Request::LetGo {});
        assert_eq!(refused["error"], "the sockets were not handed over");

        assert_eq!(node.process(), process);
        check_echo(FOO, b"hello");
        let mut next = node.daemon(&node.program(1));
        next.apply(&table).unwrap();
        assert_ne!(node.process(), process, "the next one succeeds");
        check_echo(FOO, b"hello");
    });
}

/// It would not understand the request, and a process that only retires refuses clients until another one listens.
#[test]
fn a_proxy_of_a_version_that_cannot_hand_over_goes_on() {
    in_own_network(|| {
        let node = Node::new();
        let table = table();
        node.daemon(Path::new(PROGRAM)).apply(&table).unwrap();
        let process = node.process();
        let record = node.dir.join("state.json");
        let mut text: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
        text.as_object_mut().unwrap().remove("hands_over");
        text["version"] = "0.1.0".into();
        let aside = node.dir.join("state.tmp");
        std::fs::write(&aside, text.to_string()).unwrap();
        std::fs::rename(aside, record).unwrap();
        let why = node.role(&node.program(1)).bring_up_to_date().unwrap_err();
        let pid = process.pid;
        assert_eq!(
            why.to_string(),
            format!(
                "process {pid} is of podprobe 0.1.0, which cannot hand its work over; to have it replaced, end it with `kill -9 {pid}` \
                 when its connections may break"
            )
        );
        node.daemon(&node.program(1)).apply(&table).unwrap();
        assert_eq!(node.process(), process);
        check_echo(FOO, b"hello");
    });
}

/// The connection is the old process's, and the address is removed by the new one.
#[test]
fn the_address_of_a_service_that_goes_stays_for_connections_from_before_the_upgrade() {
    in_own_network(|| {
        let node = Node::new();
        node.daemon(Path::new(PROGRAM)).apply(&table()).unwrap();
        let old = node.process();
        let mut stream = connected(FOO);
        check_stream(&mut stream, b"before");
        let mut next = node.daemon(&node.program(1));
        next.apply(&table()).unwrap();
        assert_ne!(node.process(), old);
        next.apply(&ServiceTable::default()).unwrap();
        check_stream(&mut stream, b"after");
        drop(stream);
        eventually("the old one has ended", || !old.alive());
        eventually("the address is gone", || {
            UdpSocket::bind("10.96.0.1:0").is_err()
        });
    });
}
