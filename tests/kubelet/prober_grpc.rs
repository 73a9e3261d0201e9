//! The grpc handler against a real server in another language, against misbehaving ones, and the
//! conformance vectors (3.6).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use podprobe::pods::prober::grpc;
use podprobe::pods::prober::outcome::{HandlerResult, Outcome, Phase};
use podprobe::pods::prober::target::Target;
use serde_json::Value;

use crate::support::raw_h2::*;
use crate::support::skip;

const TIMEOUT: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(300);
/// A flood ends by itself, that a probe which does not is a failure and no hang.
const FLOOD_LIMIT: Duration = Duration::from_secs(10);

/// A server on loopback: one thread, one connection at a time; ends with the value.
struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `serve` gets each connection and its number, from zero.
    fn start(serve: impl Fn(TcpStream, usize) + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, count) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let thread = std::thread::spawn({
            let (stop, count) = (stop.clone(), count.clone());
            move || {
                for stream in listener.incoming().flatten() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    stream.set_read_timeout(Some(FLOOD_LIMIT)).unwrap();
                    stream.set_write_timeout(Some(FLOOD_LIMIT)).unwrap();
                    serve(stream, count.fetch_add(1, Ordering::SeqCst));
                }
            }
        });
        Self {
            addr,
            stop,
            count,
            thread: Some(thread),
        }
    }

    /// Answers each request with these bytes.
    fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |s, _| serve(s, &answer))
    }

    fn connections(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr);
        let end = self.thread.take().unwrap().join();
        assert!(
            end.is_ok() || std::thread::panicking(),
            "the server panicked"
        );
    }
}

fn until_closed(mut s: TcpStream) {
    let _ = s.read_to_end(&mut Vec::new());
}

fn probe_at(port: u16, service: &str, timeout: Duration) -> Outcome {
    let target = Target {
        host: "127.0.0.1".into(),
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        netns: None,
    };
    let start = Instant::now();
    let outcome = grpc::probe(&target, port, service, timeout);
    let late = start.elapsed().saturating_sub(timeout);
    assert!(
        late < Duration::from_secs(2),
        "{late:?} after the deadline: {outcome:?}"
    );
    outcome
}

#[track_caller]
fn check(outcome: &Outcome, result: HandlerResult, output: &str) {
    assert_eq!(
        (
            outcome.result,
            outcome.output.as_str(),
            outcome.error.as_deref()
        ),
        (result, output, None)
    );
}

/// The text for an answer of these bytes.
#[track_caller]
fn failure(answer: Vec<u8>, expected: &str) {
    let server = Server::answering(answer);
    let outcome = probe_at(server.addr.port(), "", TIMEOUT);
    check(&outcome, HandlerResult::Failure, expected);
    assert_eq!(outcome.phase, Phase::Read);
}

const RPC: &str = "error: health rpc probe failed: rpc error: code =";

#[test]
fn serving_is_success_and_every_other_status_a_failure() {
    let server = Server::answering(answer(1));
    check(
        &probe_at(server.addr.port(), "", TIMEOUT),
        HandlerResult::Success,
        "service healthy",
    );
    for (status, name) in [
        (0, "UNKNOWN"),
        (2, "NOT_SERVING"),
        (3, "SERVICE_UNKNOWN"),
        (9, "9"),
    ] {
        failure(
            answer(status),
            &format!("service unhealthy (responded with \"{name}\")"),
        );
    }
    failure(
        [head(), message(0, &[]), trailers("0", "")].concat(),
        "service unhealthy (responded with \"UNKNOWN\")",
    );
}

#[test]
fn the_request_names_the_service() {
    for service in ["", "db", &"x".repeat(100_000)] {
        let (tell, heard) = std::sync::mpsc::sync_channel(1);
        let server = Server::start(move |mut s, _| {
            // The first window holds 65,535 bytes: these make room for more.
            let window = |stream| frame(WINDOW_UPDATE, 0, stream, &200_000_u32.to_be_bytes());
            s.read_exact(&mut [0; 24]).unwrap();
            s.write_all(&[settings(), window(0)].concat()).unwrap();
            let mut body = Vec::new();
            loop {
                let (kind, flags, payload) = read_frame(&mut s).unwrap();
                match kind {
                    HEADERS => s.write_all(&window(1)).unwrap(),
                    DATA => body.extend_from_slice(&payload),
                    _ => {}
                }
                if kind == DATA && flags & END_STREAM != 0 {
                    break;
                }
            }
            tell.send(body).unwrap();
            s.write_all(&answer(1)).unwrap();
            until_closed(s);
        });
        check(
            &probe_at(server.addr.port(), service, TIMEOUT),
            HandlerResult::Success,
            "service healthy",
        );
        let body = heard.recv().unwrap();
        // No field at all for an empty name; else its tag, its length of one or three bytes, and itself.
        let field = if service.is_empty() {
            0
        } else {
            1 + if service.len() < 128 { 1 } else { 3 }
        };
        let length = u32::try_from(field + service.len()).unwrap().to_be_bytes();
        assert_eq!(
            (body[0], &body[1..5], &body[5 + field..]),
            (0, &length[..], service.as_bytes())
        );
    }
}

#[test]
fn nothing_listening_is_a_connect_timeout_at_the_deadline() {
    let server = Server::answering("");
    let port = server.addr.port();
    drop(server);
    let start = Instant::now();
    let outcome = probe_at(port, "", SHORT);
    let text = format!(
        "timeout: failed to connect service \"127.0.0.1:{port}\" within 300ms: context deadline exceeded"
    );
    check(&outcome, HandlerResult::Failure, &text);
    assert_eq!(outcome.phase, Phase::Connect);
    assert!(
        start.elapsed() >= SHORT,
        "a server may still come: {:?}",
        start.elapsed()
    );
}

#[test]
fn who_accepts_and_is_no_http2_server_is_never_connected() {
    let http1: &[u8] =
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for (greeting, stays) in [
        (&b""[..], true),
        (b"", false),
        (http1, true),
        (http1, false),
        (&ping(), true),
        (&settings()[..8], true),
        (b"\0\0\x06\x04\0\0\0\0\0", true),
    ] {
        let sent = greeting.to_vec();
        let server = Server::start(move |mut s, _| {
            let _ = s.write_all(&sent);
            if stays {
                until_closed(s);
            }
        });
        let start = Instant::now();
        let outcome = probe_at(server.addr.port(), "", SHORT);
        let text = format!(
            "timeout: failed to connect service \"{}\" within 300ms: context deadline exceeded",
            server.addr
        );
        check(&outcome, HandlerResult::Failure, &text);
        assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
        assert_eq!(
            server.connections(),
            1,
            "the pause before the next is a second"
        );
    }
}

#[test]
fn a_failed_connection_is_tried_again_after_a_second() {
    let server = Server::start(|s, n| {
        if n > 0 {
            serve(s, &answer(1))
        }
    });
    let start = Instant::now();
    check(
        &probe_at(server.addr.port(), "", 4 * TIMEOUT),
        HandlerResult::Success,
        "service healthy",
    );
    assert!(
        start.elapsed() >= Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(server.connections(), 2);
}

#[test]
fn a_server_that_does_not_answer_is_cut_off_at_the_timeout() {
    for answer in [
        vec![],
        head(),
        [head(), message(0, &[8, 1])].concat(),
        headers(0, &[(":status", "100")]),
    ] {
        let server = Server::answering(answer);
        let start = Instant::now();
        let outcome = probe_at(server.addr.port(), "", SHORT);
        check(
            &outcome,
            HandlerResult::Failure,
            "timeout: health rpc did not complete within 300ms",
        );
        assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
        assert_eq!(outcome.phase, Phase::Read);
    }
}

/// Sends `flood` for ever; `reads` what comes too.
fn flooding(flood: Vec<u8>, reads: bool) -> Server {
    Server::start(move |mut s, _| {
        if read_request(&mut s).is_none() {
            return;
        }
        let reader = reads.then(|| {
            let s = s.try_clone().unwrap();
            std::thread::spawn(move || until_closed(s))
        });
        let (start, many) = (Instant::now(), flood.repeat(1000));
        let _ = s.write_all(&head());
        while start.elapsed() < FLOOD_LIMIT && s.write_all(&many).is_ok() {}
        drop(s);
        reader.map(JoinHandle::join);
    })
}

#[test]
fn endless_frames_end_at_the_deadline_or_before() {
    let timeout = "timeout: health rpc did not complete within 300ms";
    for (flood, reads) in [
        (ping(), true),
        (ping(), false),
        (settings(), true),
        (frame(0xfa, 0, 0, &[0; 100]), true),
    ] {
        let server = flooding(flood, reads);
        check(
            &probe_at(server.addr.port(), "", SHORT),
            HandlerResult::Failure,
            timeout,
        );
    }
    let calm = "error reading from server: connection error: ENHANCE_YOUR_CALM";
    let server = flooding(frame(DATA, 0, 1, &[]), true);
    let outcome = probe_at(server.addr.port(), "", TIMEOUT);
    check(
        &outcome,
        HandlerResult::Failure,
        &format!("{RPC} Unavailable desc = {calm}"),
    );
}

#[test]
fn pings_and_settings_are_answered_while_a_call_waits() {
    const PINGS: usize = 500;
    let server = Server::start(|mut s, _| {
        read_request(&mut s).unwrap();
        for _ in 0..PINGS {
            s.write_all(&[ping(), settings()].concat()).unwrap();
        }
        let (mut pongs, mut acks) = (0, 0);
        while pongs < PINGS || acks < PINGS {
            match read_frame(&mut s).unwrap() {
                (PING, ACK, payload) if payload == [7; 8] => pongs += 1,
                (SETTINGS, ACK, _) => acks += 1,
                _ => {}
            }
        }
        s.write_all(&answer(1)).unwrap();
        until_closed(s);
    });
    check(
        &probe_at(server.addr.port(), "", 2 * TIMEOUT),
        HandlerResult::Success,
        "service healthy",
    );
}

#[test]
fn answers_that_are_none_of_grpc() {
    let html = "transport: received unexpected content-type \"text/html\"";
    failure(
        headers(
            END_STREAM,
            &[(":status", "404"), ("content-type", "text/html")],
        ),
        &format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unexpected HTTP status code received from server: 404 (Not Found); {html}"
        ),
    );
    failure(
        [
            headers(0, &[(":status", "503"), ("content-type", "text/html")]),
            frame(DATA, END_STREAM, 1, b"busy"),
        ]
        .concat(),
        &format!(
            "{RPC} Unavailable desc = unexpected HTTP status code received from server: 503 (Service Unavailable); {html}"
        ),
    );
    failure(
        headers(
            END_STREAM,
            &[(":status", "200"), ("content-type", "text/html")],
        ),
        &format!("{RPC} Unknown desc = {html}"),
    );
}

#[test]
fn statuses_come_in_trailers_or_in_trailers_alone() {
    let alone = |status: &str, text: &str| {
        headers(
            END_STREAM,
            &[
                (":status", "200"),
                ("content-type", "application/grpc"),
                ("grpc-status", status),
                ("grpc-message", text),
            ],
        )
    };
    for answer in [
        alone("5", "no%20such%zz"),
        [head(), trailers("5", "no%20such%zz")].concat(),
    ] {
        failure(answer, &format!("{RPC} NotFound desc = no such%zz"));
    }
    let unimplemented = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): nope";
    failure(alone("12", "nope"), unimplemented);
    failure([head(), trailers("12", "nope")].concat(), unimplemented);
    failure(
        alone("4", "over"),
        "timeout: health rpc did not complete within 5s",
    );
    failure(alone("77", ""), &format!("{RPC} Code(77) desc = "));
    failure(
        [head(), message(0, &[8, 1]), trailers("14", "gone")].concat(),
        &format!("{RPC} Unavailable desc = gone"),
    );
    let missing =
        "cardinality violation: received no response message from non-server-streaming RPC";
    failure(alone("0", ""), &format!("{RPC} Internal desc = {missing}"));
    failure(
        [head(), trailers("0", "")].concat(),
        &format!("{RPC} Internal desc = {missing}"),
    );
    failure(
        [
            head(),
            message(0, &[8, 1]),
            headers(END_STREAM, &[("a", "b")]),
        ]
        .concat(),
        &format!("{RPC} Unknown desc = "),
    );
    let whole = [&[0, 0, 0, 0, 2, 8, 1][..]].concat();
    failure(
        [head(), frame(DATA, END_STREAM, 1, &whole)].concat(),
        &format!("{RPC} Internal desc = server closed the stream without sending trailers"),
    );
}

#[test]
fn messages_that_cannot_be_taken() {
    let too_large = |size| {
        format!(
            "{RPC} ResourceExhausted desc = grpc: received message larger than max ({size} vs. 4096)"
        )
    };
    failure([head(), message(0, &[0; 5000])].concat(), &too_large(5000));
    // The prefix is enough: nobody waits for 4 GiB.
    failure(
        [head(), frame(DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff])].concat(),
        &too_large(u32::MAX),
    );
    let internal = |text: &str| format!("{RPC} Internal desc = {text}");
    failure(
        [head(), message(1, &[8, 1]), trailers("0", "")].concat(),
        &internal("grpc: compressed flag set with identity or empty encoding"),
    );
    let gzip = headers(
        0,
        &[
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-encoding", "gzip"),
        ],
    );
    failure(
        [gzip, message(1, &[8, 1])].concat(),
        &internal("grpc: Decompressor is not installed for grpc-encoding \"gzip\""),
    );
    failure(
        [head(), message(0, &[8, 1]), message(0, &[8, 1])].concat(),
        &internal(
            "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message",
        ),
    );
    failure(
        [
            head(),
            frame(DATA, 0, 1, &[0, 0, 0, 0, 2, 8]),
            trailers("0", ""),
        ]
        .concat(),
        &internal("unexpected EOF"),
    );
    let piecewise = [0, 0, 0, 0, 2, 8, 1]
        .map(|b| frame(DATA, 0, 1, &[b]))
        .concat();
    let server = Server::answering([head(), piecewise, trailers("0", "")].concat());
    check(
        &probe_at(server.addr.port(), "", TIMEOUT),
        HandlerResult::Success,
        "service healthy",
    );
}

#[test]
fn resets_and_broken_connections() {
    let text = |code: &str, name: &str| {
        format!("{RPC} {code} desc = stream terminated by RST_STREAM with error code: {name}")
    };
    failure(reset(8), &text("Canceled", "CANCEL"));
    failure(
        [head(), reset(2)].concat(),
        &text("Internal", "INTERNAL_ERROR"),
    );
    failure(reset(11), &text("ResourceExhausted", "ENHANCE_YOUR_CALM"));
    failure(reset(0xbeef), &text("Unknown", "unknown error code 0xbeef"));
    for answer in [vec![], head()] {
        let server = Server::start(move |mut s, _| {
            read_request(&mut s).unwrap();
            s.write_all(&answer).unwrap();
        });
        let outcome = probe_at(server.addr.port(), "", TIMEOUT);
        assert_eq!(outcome.result, HandlerResult::Failure);
        let causes = [
            "EOF".to_owned(),
            format!("read tcp {}: read: connection reset by peer", server.addr),
        ];
        let texts = causes
            .map(|cause| format!("{RPC} Unavailable desc = error reading from server: {cause}"));
        assert!(texts.contains(&outcome.output), "{outcome:?}");
    }
    failure(
        frame(DATA, 0, 0, &[1]),
        &format!(
            "{RPC} Unavailable desc = error reading from server: connection error: PROTOCOL_ERROR"
        ),
    );
}

#[test]
fn a_call_that_the_server_did_not_touch_is_made_once_more() {
    for refusal in [go_away(0, 0), go_away(0, 11), reset(7)] {
        let sent = refusal.clone();
        let server =
            Server::start(move |s, n| serve(s, &if n == 0 { sent.clone() } else { answer(1) }));
        check(
            &probe_at(server.addr.port(), "", TIMEOUT),
            HandlerResult::Success,
            "service healthy",
        );
        assert_eq!(server.connections(), 2);
    }
    let draining = format!(
        "{RPC} Unavailable desc = the stream is rejected because server is draining the connection"
    );
    let server = Server::answering(go_away(0, 0));
    check(
        &probe_at(server.addr.port(), "", TIMEOUT),
        HandlerResult::Failure,
        &draining,
    );
    assert_eq!(server.connections(), 2, "once, and no more");
    let refused = format!(
        "{RPC} Unavailable desc = stream terminated by RST_STREAM with error code: REFUSED_STREAM"
    );
    failure(reset(7), &refused);
    let server = Server::start(|s, n| {
        if n == 0 {
            serve(s, &go_away(0, 0));
        }
    });
    let outcome = probe_at(server.addr.port(), "", TIMEOUT);
    assert!(
        outcome.output.starts_with(&format!(
            "{RPC} Unavailable desc = connection error: desc = \"error reading server preface: "
        )),
        "{outcome:?}"
    );
}

#[test]
fn go_away_lets_the_call_under_way_end_and_comes_at_once_in_the_greeting() {
    let server = Server::answering([go_away(1, 0), answer(1)].concat());
    check(
        &probe_at(server.addr.port(), "", TIMEOUT),
        HandlerResult::Success,
        "service healthy",
    );
    assert_eq!(server.connections(), 1);
    let server = Server::start(|mut s, _| {
        let _ = s.write_all(&[settings(), go_away(0, 0)].concat());
        until_closed(s);
    });
    let outcome = probe_at(server.addr.port(), "", TIMEOUT);
    check(
        &outcome,
        HandlerResult::Failure,
        &format!(
            "{RPC} Unavailable desc = the stream is rejected because server is draining the connection"
        ),
    );
}

#[test]
fn the_server_is_told_that_the_connection_ends() {
    let (tell, heard) = std::sync::mpsc::sync_channel(1);
    let server = Server::start(move |mut s, _| {
        read_request(&mut s).unwrap();
        s.write_all(&answer(1)).unwrap();
        let mut kinds = Vec::new();
        while let Some((kind, ..)) = read_frame(&mut s) {
            kinds.push(kind);
        }
        tell.send(kinds).unwrap();
    });
    check(
        &probe_at(server.addr.port(), "", TIMEOUT),
        HandlerResult::Success,
        "service healthy",
    );
    assert_eq!(heard.recv_timeout(TIMEOUT).unwrap().last(), Some(&GOAWAY));
}

/// grpcio's health service, and a server of grpcio without it.
struct Python {
    child: Child,
    health: u16,
    bare: u16,
}

impl Python {
    /// None, with a word, where there is no grpcio: `.ci/run` makes the environment.
    fn start() -> Option<Self> {
        let made = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/grpc-venv/bin/python");
        let python = std::env::var_os("PODPROBE_GRPC_PYTHON").map_or(made, PathBuf::from);
        let has = Command::new(&python)
            .args(["-c", "import grpc, grpc_health"])
            .stderr(Stdio::null())
            .status();
        if !has.is_ok_and(|s| s.success()) {
            let why = format!(
                "needs grpcio and grpcio-health-checking at {} (PODPROBE_GRPC_PYTHON)",
                python.display()
            );
            skip::skip(&why);
            return None;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/health_server.py");
        let mut child = Command::new(python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let mut ports = line.split_whitespace().map(|p| p.parse().unwrap());
        Some(Self {
            child,
            health: ports.next().unwrap(),
            bare: ports.next().unwrap(),
        })
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_server_in_another_language() {
    let Some(python) = Python::start() else {
        return;
    };
    let probe = |service: &str| probe_at(python.health, service, 2 * TIMEOUT);
    check(&probe(""), HandlerResult::Success, "service healthy");
    check(&probe("up"), HandlerResult::Success, "service healthy");
    check(
        &probe("down"),
        HandlerResult::Failure,
        "service unhealthy (responded with \"NOT_SERVING\")",
    );
    check(
        &probe("unknown"),
        HandlerResult::Failure,
        "service unhealthy (responded with \"UNKNOWN\")",
    );
    check(
        &probe("service-unknown"),
        HandlerResult::Failure,
        "service unhealthy (responded with \"SERVICE_UNKNOWN\")",
    );
    check(
        &probe("nobody"),
        HandlerResult::Failure,
        &format!("{RPC} NotFound desc = "),
    );
    check(
        &probe("deadline"),
        HandlerResult::Failure,
        "timeout: health rpc did not complete within 10s",
    );
    let agent = concat!("kube-probe/1.36 podprobe/", env!("CARGO_PKG_VERSION"));
    let metadata =
        format!("{RPC} Aborted desc = é [('deadline', 'yes'), ('user-agent', '{agent}')]");
    check(&probe("metadata"), HandlerResult::Failure, &metadata);
    check(
        &probe_at(python.health, "slow", SHORT),
        HandlerResult::Failure,
        "timeout: health rpc did not complete within 300ms",
    );
    let bare = probe_at(python.bare, "", TIMEOUT);
    let text = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): Method not found!";
    check(&bare, HandlerResult::Failure, text);
}

#[test]
fn a_real_server_outlives_a_thousand_probes() {
    let Some(python) = Python::start() else {
        return;
    };
    for n in 0..1000 {
        let outcome = probe_at(python.health, "up", 2 * TIMEOUT);
        check(&outcome, HandlerResult::Success, "service healthy");
        assert_eq!(outcome.error, None, "probe {n}");
    }
}

/// Where a case of the vectors goes: port and service.
fn place(server: &Value, port: &Value, python: &Python, http1: &Server) -> (u16, &'static str) {
    match server.as_str() {
        None => (port.as_u64().unwrap().try_into().unwrap(), ""),
        Some("plain HTTP/1 server") => (http1.addr.port(), ""),
        Some("SERVING" | "SERVING on an OS chosen port") => (python.health, "up"),
        Some("health Check answers NOT_SERVING") => (python.health, "down"),
        Some("health Check sleeps 4s then SERVING") => (python.health, "slow"),
        Some("gRPC server without the health service") => (python.bare, ""),
        Some("Check returns NOT_FOUND (unknown service)") => (python.health, "nobody"),
        Some("answers SERVICE_UNKNOWN") => (python.health, "service-unknown"),
        Some("answers UNKNOWN") => (python.health, "unknown"),
        Some(other) => panic!("no server for {other:?}"),
    }
}

#[test]
fn vectors() {
    let Some(python) = Python::start() else {
        return;
    };
    let http1 = Server::start(|mut s, _| {
        _ = s.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    });
    let all: Value = serde_json::from_str(include_str!("../vectors/grpc-tcp.json")).unwrap();
    let cases = all["grpc"].as_array().unwrap();
    assert!(cases.len() >= 12, "{}", cases.len());
    // g-0 asks for a constructor: a function needs none.
    for case in cases.iter().filter(|c| c["id"] != "g-0") {
        let id = case["id"].as_str().unwrap();
        let (port, service) = place(&case["server"], &case["port"], &python, &http1);
        let host = case["host"].as_str().unwrap_or("127.0.0.1").to_owned();
        let seconds = case["timeout"]
            .as_str()
            .unwrap_or("5s")
            .trim_end_matches('s')
            .parse()
            .unwrap();
        let target = Target {
            host,
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            netns: None,
        };
        let outcome = grpc::probe(&target, port, service, Duration::from_secs(seconds));
        assert_eq!(
            outcome.result.to_string(),
            case["result"].as_str().unwrap(),
            "{id}: {outcome:?}"
        );
        assert_eq!(outcome.error, None, "{id}");
        if let Some(output) = case["output"].as_str() {
            assert_eq!(outcome.output, output, "{id}");
        }
        if let Some(prefix) = case["outputPrefix"].as_str() {
            assert!(outcome.output.starts_with(prefix), "{id}: {outcome:?}");
        }
    }
}
