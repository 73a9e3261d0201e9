//! The grpc handler (kubelet-probes 3.6): grpc.health.v1.Health/Check over HTTP/2 in plain text, without an async
//! runtime.
//!
//! Invariants: one deadline covers connecting and the call. A connection counts only from the server's SETTINGS frame
//! on, as in gRPC's Go client. A server that accepts and stays silent, or speaks HTTP/1, never counts as connected. A
//! failed connection is tried again after a pause until the deadline, because the server may still be starting. So
//! "connection refused" is reported only at the deadline. If the server reports that it did not process a call, the
//! call is made once more. Any behaviour of the server is a failure and never an error of the probe. A run is an error
//! only if podprobe itself lacks descriptors or cannot enter the namespace (lessons 16).

mod health;

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;

use self::health::{HealthCheckRequest, HealthCheckResponse, SERVING};
use super::outcome::{HandlerResult, Outcome, Phase};
use super::progress::Progress;
use super::target::Target;
use super::trace::note;
use crate::base::clock::go_duration;
use crate::base::wire::connection::Connection;
use crate::base::wire::dial::{Address, DialError, Dialer, End};
use crate::base::wire::grpc::status::{Code, Status};
use crate::base::wire::grpc::{Call, CallError, MAX_HEADERS, preface_error};
use crate::base::wire::link::{Ended, Link};

/// The path of the health service's method that a probe calls.
const CHECK: &str = "/grpc.health.v1.Health/Check";
/// The user agent: the kubelet's name, then podprobe's.
const CLIENT: &str = concat!("kube-probe/1.36 podprobe/", env!("CARGO_PKG_VERSION"));

/// The pause after the first failed connection.
const BACKOFF: Duration = Duration::from_secs(1);
/// The factor by which the pause grows after each further failed connection.
const BACKOFF_FACTOR: f64 = 1.6;
/// The longest pause between two tries to connect.
const MAX_BACKOFF: Duration = Duration::from_secs(120);
/// The longest wait for one connection. If the pause after the wait would be longer, the wait is as long as the pause.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Asks the health service at `target` and `port` about `service`. An empty `service` means the whole server. `timeout`
/// covers connecting and the call.
#[inline(never)]
pub fn probe(target: &Target, port: u16, service: &str, timeout: Duration) -> Outcome {
    let deadline = Instant::now() + timeout;
    let client = Client {
        target,
        port,
        service,
        address: join_host_port(&target.host, port),
        deadline,
    };
    let failure = |text: String, phase| Outcome::new(HandlerResult::Failure, text, phase);
    let within = go_duration(timeout);
    let connected = match client.connect() {
        Ok(connected) => connected,
        Err(ConnectError::Ours(e)) => {
            let text = format!(
                "error: failed to connect service at {:?}: {e}",
                client.address
            );
            return Outcome::error(text, Phase::Connect);
        }
        Err(ConnectError::Failed(_)) => {
            let text = format!(
                "timeout: failed to connect service {:?} within {within}: context deadline exceeded",
                client.address
            );
            return failure(text, Phase::Connect);
        }
    };
    note(|| format!("HTTP/2 is up; grpc.health.v1.Health/Check of service {service:?}"));
    let answer = client.check(connected);
    note(|| match &answer {
        Ok(status) => format!("answer {}", health::status_name(*status)),
        Err(status) => status.to_string(),
    });
    match answer {
        Ok(SERVING) => Outcome::new(HandlerResult::Success, "service healthy", Phase::Read),
        Ok(other) => failure(
            format!(
                "service unhealthy (responded with \"{}\")",
                health::status_name(other)
            ),
            Phase::Read,
        ),
        Err(status) => failure(call_failure(&status, &within), Phase::Read),
    }
}

fn call_failure(status: &Status, within: &str) -> String {
    match status.code {
        Code::UNIMPLEMENTED => {
            format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                status.message
            )
        }
        Code::DEADLINE_EXCEEDED => format!("timeout: health rpc did not complete within {within}"),
        _ => format!("error: health rpc probe failed: {status}"),
    }
}

/// Returns `host:port`, with an IPv6 address in brackets.
fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// The reason why the probe could not connect.
enum ConnectError {
    /// The server or the network in between caused the error.
    Failed(String),
    /// The probe itself caused the error.
    Ours(String),
}

impl From<DialError> for ConnectError {
    fn from(e: DialError) -> Self {
        match e {
            DialError::Ours(text) => Self::Ours(text),
            DialError::Failed(text) | DialError::TimedOut(text) => {
                Self::Failed(format!("transport: Error while dialing: {text}"))
            }
        }
    }
}

/// A connection, and the sender of requests over the connection.
type Connected = (Link, SendRequest<Bytes>);

/// The gRPC client of one probe.
struct Client<'a> {
    target: &'a Target,
    port: u16,
    service: &'a str,
    address: String,
    deadline: Instant,
}

impl Client<'_> {
    /// Connects to the server, and tries again until the deadline.
    fn connect(&self) -> Result<Connected, ConnectError> {
        let mut pause = BACKOFF;
        loop {
            match self.connect_once(pause) {
                Err(ConnectError::Failed(e)) => {
                    let left = self.deadline.saturating_duration_since(Instant::now());
                    std::thread::sleep(left.min(pause));
                    if left <= pause {
                        return Err(ConnectError::Failed(e));
                    }
                    pause = pause.mul_f64(BACKOFF_FACTOR).min(MAX_BACKOFF);
                }
                done => return done,
            }
        }
    }

    /// Connects to the first address that has an HTTP/2 server.
    fn connect_once(&self, pause: Duration) -> Result<Connected, ConnectError> {
        let until = self.deadline.min(Instant::now() + CONNECT_LIMIT.max(pause));
        let progress = Progress::new();
        let dialer = self.target.dialer(until, &progress)?;
        let mut first = None;
        for address in self.target.at_port(self.port) {
            match self.open(&dialer, address) {
                Err(ConnectError::Failed(e)) => _ = first.get_or_insert(e),
                done => return done,
            }
        }
        Err(ConnectError::Failed(first.unwrap_or_else(|| {
            format!("no address of {}", self.target.host)
        })))
    }

    fn open(&self, dialer: &Dialer<'_>, address: Address<'_>) -> Result<Connected, ConnectError> {
        let socket = dialer.dial(address, End::HangUp)?;
        let until = dialer.deadline;
        let opened = Link::open(Connection::plain(socket, until), until, MAX_HEADERS);
        let greeted = opened.and_then(|(mut link, requests)| {
            link.await_settings()?;
            link.set_deadline(self.deadline);
            Ok((link, requests))
        });
        greeted.map_err(|e| ConnectError::Failed(preface_error(e)))
    }

    /// Calls the health service. If the server has not processed the call, calls the service once more on a new
    /// connection.
    fn check(&self, connected: Connected) -> Result<i32, Status> {
        match self.check_once(connected) {
            Err(e) if e.unprocessed => {}
            done => return done.map_err(|e| e.status),
        }
        let connected = match self.connect_once(BACKOFF) {
            Ok(connected) => connected,
            Err(_) if Instant::now() >= self.deadline => return Err(Status::deadline()),
            Err(ConnectError::Failed(e) | ConnectError::Ours(e)) => {
                return Err(Status::new(
                    Code::UNAVAILABLE,
                    format!("connection error: desc = {e:?}"),
                ));
            }
        };
        self.check_once(connected).map_err(|e| e.status)
    }

    fn check_once(&self, (mut link, requests): Connected) -> Result<i32, CallError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let call = Call {
            authority: &self.address,
            method: CHECK,
            user_agent: CLIENT,
            left,
            max_answer: health::MAX_MESSAGE,
        };
        let request = HealthCheckRequest {
            service: self.service.into(),
        };
        match link.drive(call.make::<HealthCheckResponse>(requests, &request)) {
            // A complete answer counts even if the deadline passed while it was read.
            Ok(Ok(answer)) => Ok(answer.status),
            Ok(Err(e)) => Err(e.at_deadline(Instant::now() >= self.deadline)),
            Err(Ended::Expired) => Err(Status::deadline().into()),
            Err(Ended::Closed(None)) => Err(Status::lost("EOF").into()),
            Err(Ended::Closed(Some(e))) => Err(e.into()),
            Err(Ended::Socket(e)) => Err(Status::lost(e).into()),
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/support/raw_h2.rs"]
mod raw_h2;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn the_limit_of_a_connection_is_not_that_of_the_call() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            raw_h2::serve(listener.accept().unwrap().0, &raw_h2::answer(1))
        });
        let target = Target {
            host: "127.0.0.1".into(),
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            netns: None,
        };
        let (limit, deadline) = (
            Instant::now() + Duration::from_millis(500),
            Instant::now() + CONNECT_LIMIT,
        );
        let client = Client {
            target: &target,
            port: addr.port(),
            service: "",
            address: addr.to_string(),
            deadline,
        };
        let dialer = Dialer {
            namespace: None,
            deadline: limit,
            observer: &(),
        };
        let Ok(connected) = client.open(&dialer, Address::Tcp(addr)) else {
            panic!("no connection")
        };
        std::thread::sleep(limit.saturating_duration_since(Instant::now()));
        assert_eq!(client.check(connected).unwrap(), SERVING);
        server.join().unwrap();
    }

    #[test]
    fn d5_the_client_names_itself_as_the_kubelet_does() {
        assert!(CLIENT.starts_with(crate::pods::prober::http::USER_AGENT));
    }

    #[test]
    fn addresses_are_joined_as_go_does() {
        assert_eq!(join_host_port("", 32), ":32");
        assert_eq!(join_host_port("10.0.0.1", 80), "10.0.0.1:80");
        assert_eq!(join_host_port("fd00::7", 80), "[fd00::7]:80");
    }

    #[test]
    fn every_code_of_a_call_has_its_text() {
        let check = |code, expected: &str| {
            assert_eq!(call_failure(&Status::new(code, "why"), "2s"), expected)
        };
        check(
            Code::UNIMPLEMENTED,
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): why",
        );
        check(
            Code::DEADLINE_EXCEEDED,
            "timeout: health rpc did not complete within 2s",
        );
        check(
            Code::UNAVAILABLE,
            "error: health rpc probe failed: rpc error: code = Unavailable desc = why",
        );
        check(
            Code(5),
            "error: health rpc probe failed: rpc error: code = NotFound desc = why",
        );
    }
}
