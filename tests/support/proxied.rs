//! A network of its own with a proxy in it, servers behind services, and clients.
#![allow(dead_code, reason = "each test program takes what it needs")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use super::uninterrupted::uninterrupted;
use nix::sched::{CloneFlags, unshare};
use podprobe::api::service::Protocol;
use podprobe::base::clock::boot_id;
use podprobe::net::proxy::userspace::ProxyRole;
use podprobe::net::proxyd::home::{Record, SOCKET};
use podprobe::net::proxyd::message::{
    Answer, Configuration, Metrics, Options, Request, ServiceAddresses,
};
use podprobe::net::services::table::{
    Backend, Backends, HostPort, ServicePortEntry, ServicePortName, ServiceTable,
};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_podprobe");
/// A ceiling, never waited out by a test that passes.
pub(crate) const CEILING: Duration = Duration::from_secs(60);

/// Runs a test in a network namespace of its own, with a proxy.
pub(crate) fn proxied(test: impl FnOnce(&mut Proxy) + Send) {
    in_own_network(|| {
        let mut proxy = Proxy::new();
        test(&mut proxy);
    });
}

/// Runs `inside` on a thread with a network of its own, of which only loopback exists.
pub(crate) fn in_own_network(inside: impl FnOnce() + Send) {
    if !super::skip::is_root() {
        return;
    }
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        podprobe::base::sys::socket::loopback_up().unwrap();
        inside();
    };
    std::thread::scope(|s| {
        if let Err(panic) = s.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + CEILING;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A proxy that ends with its test.
pub(crate) struct Proxy {
    pub(crate) dir: PathBuf,
    pub(crate) role: ProxyRole,
    pub(crate) options: Options,
    version: u64,
    _temporary: tempfile::TempDir,
}

impl Proxy {
    pub(crate) fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("proxy");
        Self {
            role: ProxyRole::new(&dir, "").with_program(PROGRAM),
            dir,
            options: Options {
                service_addresses: ServiceAddresses::Bound,
                ..Options::default()
            },
            version: 0,
            _temporary: temporary,
        }
    }

    pub(crate) fn apply(&mut self, services: &[ServicePortEntry]) -> Answer {
        self.apply_table(ServiceTable {
            services: services.to_vec(),
            ..ServiceTable::default()
        })
    }

    pub(crate) fn apply_host_ports(&mut self, host_ports: &[HostPort]) -> Answer {
        self.apply_table(ServiceTable {
            host_ports: host_ports.to_vec(),
            ..ServiceTable::default()
        })
    }

    pub(crate) fn apply_table(&mut self, table: ServiceTable) -> Answer {
        self.version += 1;
        let answer = self.role.ask(&Request::Apply(Box::new(Configuration {
            version: self.version,
            boot_id: boot_id(),
            options: self.options.clone(),
            table,
            names: None,
        })));
        let answer = answer.unwrap();
        assert_eq!(answer.applied, Some(self.version));
        answer
    }

    pub(crate) fn metrics(&mut self) -> Metrics {
        let answer = self.role.ask(&Request::Metrics {}).unwrap();
        answer.metrics.unwrap()
    }

    pub(crate) fn pid(&self) -> i32 {
        Record::running(&self.dir).expect("it runs").process.pid
    }

    pub(crate) fn kill(&self) {
        kill(&self.dir);
    }

    pub(crate) fn speak(&self) -> UnixStream {
        UnixStream::connect(self.dir.join(SOCKET)).unwrap()
    }
}

pub(crate) fn kill(dir: &Path) {
    let process = Record::running(dir).and_then(|r| r.process.open().unwrap());
    if let Some(process) = process {
        process.send(nix::libc::SIGKILL).unwrap();
        assert!(process.wait(CEILING).unwrap());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A TCP service with the cluster IP `10.96.0.1` and the port 80.
pub(crate) fn service(name: &str, backends: &[SocketAddr]) -> ServicePortEntry {
    let backends = backends_of(backends);
    ServicePortEntry::new(
        ServicePortName {
            namespace: "ns".into(),
            service: name.into(),
            port: String::new(),
            protocol: Protocol::Tcp,
        },
        80,
        vec![ip("10.96.0.1")],
        backends,
    )
}

pub(crate) fn udp_service(name: &str, backends: &[SocketAddr]) -> ServicePortEntry {
    let mut service = service(name, backends);
    service.name.protocol = Protocol::Udp;
    service
}

pub(crate) fn backends_of(backends: &[SocketAddr]) -> Backends {
    match backends {
        [] => Backends::Reject,
        list => Backends::Some(list.iter().map(|at| backend(*at)).collect()),
    }
}

pub(crate) fn backend(address: SocketAddr) -> Backend {
    Backend {
        address,
        namespace: None,
    }
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A server that does something with each connection; where it listens.
pub(crate) fn serve(with: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    serve_at("127.0.0.1:0", with)
}

fn serve_at(at: &str, with: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind(at).unwrap();
    // A thousand clients at once find room also when this thread is late.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(4096).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let with = with.clone();
            std::thread::spawn(move || with(stream));
        }
    });
    address
}

/// Sends back what comes.
pub(crate) fn echo() -> SocketAddr {
    serve(|mut stream| {
        let mut bytes = [0; 64 * 1024];
        while let Ok(n) = stream.read(&mut bytes) {
            if n == 0 || stream.write_all(&bytes[..n]).is_err() {
                return;
            }
        }
    })
}

/// Says its name and hangs up.
pub(crate) fn named(name: &'static str) -> SocketAddr {
    named_at("127.0.0.1:0", name)
}

pub(crate) fn named_at(at: &str, name: &'static str) -> SocketAddr {
    serve_at(at, move |mut stream| {
        stream.write_all(name.as_bytes()).unwrap()
    })
}

/// Sends back what comes, with its name before it.
pub(crate) fn udp_named(name: &'static str) -> SocketAddr {
    udp_named_at("127.0.0.1:0", name)
}

pub(crate) fn udp_named_at(at: &str, name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind(at).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok((n, from)) = uninterrupted(|| socket.recv_from(&mut bytes)) {
            let _ = socket.send_to(&[name.as_bytes(), &bytes[..n]].concat(), from);
        }
    });
    address
}

/// What a named server behind an address says; empty where the connection is ended without a word.
pub(crate) fn ask(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at(address))?;
    stream.set_read_timeout(Some(CEILING))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

/// The same from another address of the client.
pub(crate) fn ask_from(source: &str, address: &str) -> String {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect};
    use std::os::fd::AsRawFd;
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    let fd = nix::sys::socket::socket(family, SockType::Stream, flags, None).unwrap();
    let source = SockaddrStorage::from(SocketAddr::new(ip(source), 0));
    bind(fd.as_raw_fd(), &source).unwrap();
    connect(fd.as_raw_fd(), &SockaddrStorage::from(at(address))).unwrap();
    let mut said = String::new();
    TcpStream::from(fd).read_to_string(&mut said).unwrap();
    said
}

#[track_caller]
pub(crate) fn check_echo(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(at(address)).unwrap();
    check_stream(&mut stream, bytes);
}

#[track_caller]
pub(crate) fn check_stream(stream: &mut TcpStream, bytes: &[u8]) {
    stream.set_read_timeout(Some(CEILING)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut got = vec![0; bytes.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got, bytes);
}

/// A UDP client of an address.
pub(crate) fn udp_client(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(at(address)).unwrap();
    socket.set_read_timeout(Some(CEILING)).unwrap();
    socket
}

/// Asks until there is an answer: a datagram may be lost.
#[track_caller]
pub(crate) fn udp_ask(socket: &UdpSocket, text: &str) -> String {
    socket.send(text.as_bytes()).unwrap();
    let mut bytes = [0; 65_536];
    let n = uninterrupted(|| socket.recv(&mut bytes)).unwrap();
    String::from_utf8(bytes[..n].to_vec()).unwrap()
}

#[track_caller]
pub(crate) fn check_refused(address: &str) {
    let error = TcpStream::connect(at(address)).expect_err("nothing serves there");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// A server in a network namespace of its own, on 127.0.0.1; its address there, and the path of the namespace.
pub(crate) fn in_a_pod(name: &'static str) -> (SocketAddr, PathBuf) {
    let (tell, told) = sync_channel(1);
    std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        podprobe::base::sys::socket::loopback_up().unwrap();
        let address = named(name);
        let thread = nix::unistd::gettid();
        let path = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
        tell.send((address, path.into())).unwrap();
        // The namespace lives as long as this thread.
        std::thread::park();
    });
    told.recv().unwrap()
}
