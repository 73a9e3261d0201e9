//! The wire over unix sockets: the same exchanges as over TCP, for later clients of a unix socket
//! on this node.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use podprobe::base::wire::connection::Connection;
use podprobe::base::wire::dial::{Address, DialError, Dialer, End};
use podprobe::base::wire::grpc::{Call, MAX_HEADERS};
use podprobe::base::wire::link::Link;
use podprobe::base::wire::socket::Socket;
use podprobe::base::wire::{exchange, http1};

use crate::support::raw_h2;

const TIMEOUT: Duration = Duration::from_secs(5);

/// A server of one connection on a unix socket.
struct Server {
    dir: tempfile::TempDir,
    thread: JoinHandle<()>,
}

impl Server {
    fn start(serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let thread = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        Self { dir, thread }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    /// Waits for the server; its directory goes with the value.
    fn end(self) -> tempfile::TempDir {
        self.thread.join().unwrap();
        self.dir
    }
}

fn dial(path: &Path, timeout: Duration) -> Result<Socket, DialError> {
    let dialer = Dialer {
        namespace: None,
        deadline: Instant::now() + timeout,
        observer: &(),
    };
    dialer.dial(Address::Unix(path), End::HangUp)
}

fn read_head(s: &mut UnixStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && matches!(s.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn an_http_exchange_over_a_unix_socket() {
    let server = Server::start(|mut s| {
        let head = read_head(&mut s);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", head.len());
        s.write_all(answer.as_bytes()).unwrap();
        // In two pieces, so that the body is read from the connection as well.
        s.write_all(head.as_bytes()).unwrap();
        assert_eq!(s.read(&mut [0; 1]).unwrap(), 0, "the client hangs up");
    });
    let socket = dial(&server.path(), TIMEOUT).unwrap();
    let connection = Connection::plain(socket, Instant::now() + TIMEOUT);
    let mut request = http1::RequestHead::new("/v1.41/info", None);
    request.header("Host", "engine").unwrap();
    let request = request.finish();
    let reply = exchange::exchange(connection, request.as_bytes(), 1024, &()).unwrap();
    assert_eq!(reply.head.status, 200);
    assert_eq!(reply.into_body().unwrap(), request.as_bytes());
    server.end();
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

#[test]
fn a_grpc_call_over_a_unix_socket() {
    let server = Server::start(|s| raw_h2::serve(s, &raw_h2::answer(1)));
    let deadline = Instant::now() + TIMEOUT;
    let connection = Connection::plain(dial(&server.path(), TIMEOUT).unwrap(), deadline);
    let (mut link, requests) = Link::open(connection, deadline, MAX_HEADERS).unwrap();
    link.await_settings().unwrap();
    let call = Call {
        authority: "localhost",
        method: "/grpc.health.v1.Health/Check",
        user_agent: "test",
        left: TIMEOUT,
        max_answer: 100,
    };
    let request = HealthCheckRequest {
        service: "db".into(),
    };
    let answer = link.drive(call.make::<HealthCheckResponse>(requests, &request));
    assert_eq!(answer.unwrap().unwrap().status, 1);
    drop(link);
    server.end();
}

#[test]
fn a_server_that_says_nothing_ends_at_the_deadline() {
    let server = Server::start(|mut s| {
        let _ = s.read_to_end(&mut Vec::new());
    });
    let socket = dial(&server.path(), TIMEOUT).unwrap();
    let connection = Connection::plain(socket, Instant::now() + Duration::from_millis(50));
    let e = exchange::exchange(connection, b"GET / HTTP/1.1\r\n\r\n", 9, &()).err();
    let Some(exchange::ExchangeError::Io(e)) = e else {
        panic!("{e:?}")
    };
    assert_eq!(e.kind(), std::io::ErrorKind::TimedOut);
    server.end();
}

#[test]
fn errors_of_a_unix_socket_name_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none");
    let shown = path.display();
    assert_eq!(
        dial(&path, TIMEOUT).unwrap_err(),
        DialError::Failed(format!(
            "dial unix {shown}: connect: no such file or directory"
        ))
    );
    let server = Server::start(drop);
    let path = server.path();
    let mut socket = dial(&path, TIMEOUT).unwrap();
    let kept = server.end();
    let e = socket.write(b"late").unwrap_err().to_string();
    assert_eq!(
        e,
        format!("write unix @->{}: write: broken pipe", path.display())
    );
    drop(kept);
}

#[test]
fn a_full_queue_of_a_unix_server_ends_at_the_deadline() {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
    };
    use std::os::fd::AsRawFd;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let server = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    bind(server.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&server, Backlog::new(0).unwrap()).unwrap();
    let _first = dial(&path, TIMEOUT).unwrap();
    assert_eq!(
        dial(&path, Duration::from_millis(50)).unwrap_err(),
        DialError::TimedOut(format!("dial unix {}: i/o timeout", path.display()))
    );
}

/// The wire is below everything that uses it: of this program it knows `sys` and itself.
#[test]
fn the_wire_knows_nothing_above_it() {
    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/base/wire");
    sources(&dir, &mut files);
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for (at, _) in text.match_indices("crate::") {
            let path = &text[at + "crate::".len()..];
            assert!(
                [
                    "base::bell::",
                    "base::locks::",
                    "base::sys::",
                    "base::wire",
                    "skip::"
                ]
                .iter()
                .any(|room| path.starts_with(room)),
                "{} names crate::{}",
                file.display(),
                path.lines().next().unwrap_or_default()
            );
        }
    }
}
