//! The network handlers against real servers, including misbehaving ones (kubelet-probes 3.4, 3.5).

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use podprobe::api::PodStatus;
use podprobe::api::pod::HttpHeader;
use podprobe::api::probe_host::ProbeHosts;
use podprobe::engine::runtime::NetworkNamespace;
use podprobe::engine::shims::state::Process;
use podprobe::pods::prober::outcome::{HandlerResult, Outcome, Phase};
use podprobe::pods::prober::target::{Target, resolve_target};
use podprobe::pods::prober::url::ProbeUrl;
use podprobe::pods::prober::{grpc, http, tcp};

use crate::support::own_process::again;
use crate::support::raw_h2;
use crate::support::skip;
use crate::support::stack::{check_stack, stack_use};

const TIMEOUT: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(300);

/// A server on loopback: one thread, `answer` for each connection; ends with the value.
struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(answer: impl Fn(TcpStream) + Send + 'static) -> Self {
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
                    count.fetch_add(1, Ordering::SeqCst);
                    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                    answer(stream);
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

    /// Answers each request head with the text `answer` makes of it, then closes.
    fn http(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        Self::start(move |mut s| {
            let head = read_head(&mut s);
            let _ = s.write_all(&answer(&head));
        })
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

fn read_head(s: &mut impl Read) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && matches!(s.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn reply(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn target(netns: Option<PathBuf>) -> Target {
    Target {
        host: "127.0.0.1".into(),
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        netns: netns.map(Into::into),
    }
}

fn get_with(
    scheme: &str,
    addr: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    timeout: Duration,
) -> Outcome {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| HttpHeader {
            name: (*name).into(),
            value: (*value).into(),
        })
        .collect();
    http::Get::new(
        ProbeUrl::of_probe(scheme, "127.0.0.1", addr.port(), path),
        &headers,
        target(None),
    )
    .run(timeout)
}

fn get(addr: SocketAddr, path: &str) -> Outcome {
    get_with("HTTP", addr, path, &[], TIMEOUT)
}

#[track_caller]
fn check(outcome: &Outcome, result: HandlerResult, output: &str) {
    assert_eq!(outcome.result, result, "{outcome:?}");
    assert!(
        outcome.output.contains(output),
        "{outcome:?} lacks {output:?}"
    );
    assert_eq!(outcome.error, None);
}

#[test]
fn the_status_decides() {
    use HandlerResult::{Failure, Success, Warning};
    for (status, result, output) in [
        (200, Success, "body"),
        (204, Success, ""),
        (299, Success, "body"),
        (
            300,
            Warning,
            "Probe terminated redirects, Response body: body",
        ),
        (
            308,
            Warning,
            "Probe terminated redirects, Response body: body",
        ),
        (
            399,
            Warning,
            "Probe terminated redirects, Response body: body",
        ),
        (400, Failure, "HTTP probe failed with statuscode: 400"),
        (404, Failure, "HTTP probe failed with statuscode: 404"),
        (503, Failure, "HTTP probe failed with statuscode: 503"),
    ] {
        let server = Server::http(move |_| {
            reply(
                &format!("{status} Some"),
                "",
                if status == 204 { "" } else { "body" },
            )
        });
        let outcome = get(server.addr, "/");
        check(&outcome, result, output);
        assert_eq!(outcome.phase, Phase::Read);
    }
}

#[test]
fn exactly_the_headers_of_the_kubelet_are_sent() {
    let server = Server::http(|head| reply("200 OK", "", head));
    let host = server.addr.to_string();
    let plain = format!(
        "GET /a?b=c HTTP/1.1\r\nHost: {host}\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(get(server.addr, "/a?b=c#d").output, plain);
    let sent =
        |headers: &[(&str, &str)]| get_with("HTTP", server.addr, "/", headers, TIMEOUT).output;
    let bare = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    assert_eq!(sent(&[("user-agent", ""), ("ACCEPT", "")]), bare);
    let got = sent(&[
        ("HOST", "muffins.org"),
        ("x-forwarded-FOR", "a"),
        ("Host", "second"),
        ("X-Forwarded-For", "b"),
        ("User-Agent", "foo/1.0"),
    ]);
    let expected = "GET / HTTP/1.1\r\nHost: muffins.org\r\nUser-Agent: foo/1.0\r\nX-Forwarded-For: a\r\nX-Forwarded-For: b\r\nAccept: */*\r\nConnection: close\r\n\r\n";
    assert_eq!(got, expected);
    assert!(sent(&[("Accept-Encoding", "gzip")]).contains("Accept-Encoding: gzip\r\n"));
    assert!(sent(&[("Accept-Encoding", "")]).contains("Accept-Encoding: \r\n"));
    let refused = get_with(
        "HTTP",
        server.addr,
        "/",
        &[("X-A", "a\r\nHost: evil")],
        TIMEOUT,
    );
    check(
        &refused,
        HandlerResult::Failure,
        "invalid header field value for \"X-A\"",
    );
}

#[test]
fn d1_a_body_is_cut_and_a_broken_one_is_an_error() {
    for size in [10239_usize, 10240, 10241, 5_000_000] {
        let server = Server::http(move |_| reply("200 OK", "", &"x".repeat(size)));
        let outcome = get(server.addr, "/");
        check(&outcome, HandlerResult::Success, "x");
        assert_eq!(outcome.output.len(), size.min(10240));
    }
    let server = Server::http(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec()
    });
    check(&get(server.addr, "/"), HandlerResult::Success, "abc");
    let server = Server::http(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec());
    let outcome = get(server.addr, "/");
    assert!(
        outcome.error.is_some() && outcome.result == HandlerResult::Failure,
        "{outcome:?}"
    );
    let server = Server::http(|_| {
        reply(
            "200 OK",
            &format!("X-Long: {}\r\n", "y".repeat(40_000)),
            "ok",
        )
    });
    check(&get(server.addr, "/"), HandlerResult::Success, "ok");
}

#[test]
fn d2_redirects_stay_on_the_host_and_end() {
    let to = |location: &str| reply("302 Found", &format!("Location: {location}\r\n"), "moved");
    let server = Server::http(move |head| match head.split(' ').nth(1).unwrap() {
        "/redirect" => to("/success"),
        "/away" => to("http://0.0.0.0/fail"),
        "/loop" => to("/loop"),
        "/success" if head.contains("Host: www.fail.com") => reply("400 Bad Request", "", ""),
        "/success" => reply("200 OK", "", head),
        _ => reply("500 Oops", "", ""),
    });
    check(
        &get(server.addr, "/redirect"),
        HandlerResult::Success,
        "GET /success",
    );
    check(
        &get_with(
            "HTTP",
            server.addr,
            "/redirect",
            &[("Host", "a.b")],
            TIMEOUT,
        ),
        HandlerResult::Success,
        "Host: a.b\r\n",
    );
    check(
        &get_with(
            "HTTP",
            server.addr,
            "/redirect",
            &[("Host", "www.fail.com")],
            TIMEOUT,
        ),
        HandlerResult::Failure,
        "statuscode: 400",
    );
    check(
        &get(server.addr, "/away"),
        HandlerResult::Warning,
        "Probe terminated redirects, Response body: moved",
    );
    let before = server.count.load(Ordering::SeqCst);
    check(
        &get(server.addr, "/loop"),
        HandlerResult::Failure,
        "stopped after 10 redirects",
    );
    assert_eq!(
        server.count.load(Ordering::SeqCst) - before,
        10,
        "nine are followed"
    );
    let port = server.addr.port();
    let other = Server::http(move |_| {
        reply(
            "307 Temporary",
            &format!("Location: http://127.0.0.1:{port}/success\r\n"),
            "",
        )
    });
    check(
        &get(other.addr, "/"),
        HandlerResult::Success,
        &format!("Host: 127.0.0.1:{port}\r\n"),
    );
}

#[test]
fn a_slow_server_is_cut_off_at_the_timeout() {
    let (release, wait) = mpsc::sync_channel::<()>(1);
    let server = Server::start(move |mut s| {
        read_head(&mut s);
        let _ = wait.recv();
    });
    let start = Instant::now();
    let outcome = get_with("HTTP", server.addr, "/", &[], SHORT);
    let url = format!("Get \"http://{}/\": ", server.addr);
    check(
        &outcome,
        HandlerResult::Failure,
        &format!("{url}context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
    );
    assert!(
        start.elapsed() >= SHORT && start.elapsed() < TIMEOUT,
        "{:?}",
        start.elapsed()
    );
    drop(release);
    drop(server);
    // A byte at a time never lets a single read time out; head and body alike end at the one deadline.
    for head in [&b""[..], b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"] {
        let server = Server::start(move |mut s| {
            read_head(&mut s);
            let _ = s.write_all(head);
            let ok = if head.is_empty() {
                b"H".as_slice()
            } else {
                b"x"
            };
            while s.write_all(ok).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
                if head.is_empty() {
                    let _ = s
                        .write_all(b"TTP/1.1 200 OK\r\n")
                        .and_then(|()| s.write_all(b"X-A: b\r\n"));
                }
            }
        });
        let start = Instant::now();
        let outcome = get_with("HTTP", server.addr, "/", &[], SHORT);
        assert_eq!(outcome.result, HandlerResult::Failure, "{outcome:?}");
        assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
    }
}

#[test]
fn servers_that_are_none() {
    let server = Server::start(drop);
    let outcome = get(server.addr, "/");
    assert_eq!(
        (outcome.result, outcome.error.as_deref()),
        (HandlerResult::Failure, None),
        "{outcome:?}"
    );
    let garbage = Server::http(|_| b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec());
    check(
        &get(garbage.addr, "/"),
        HandlerResult::Failure,
        "net/http: HTTP/1.x transport connection broken",
    );
    let exactly = |addr: SocketAddr, text: &str| {
        let outcome = get_with("HTTPS", addr, "/", &[], TIMEOUT);
        let text = format!("Get \"https://{addr}/\": {text}");
        assert_eq!(
            (outcome.result, outcome.output, outcome.phase),
            (HandlerResult::Failure, text, Phase::Tls)
        );
    };
    let ssh = Server::start(|mut s| {
        let _ = s.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        let _ = s.read_to_end(&mut Vec::new());
    });
    exactly(
        ssh.addr,
        "tls: first record does not look like a TLS handshake",
    );
    let plain = Server::start(|mut s| {
        let _ = s.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = s.read_to_end(&mut Vec::new());
    });
    exactly(
        plain.addr,
        "http: server gave HTTP response to HTTPS client",
    );
    let other_protocol = tls_server_of(&[b"imap"], |mut tls| {
        let _ = tls.read_to_end(&mut Vec::new());
    });
    exactly(
        other_protocol.addr,
        "remote error: tls: no application protocol",
    );
    let reset = Server::start(|s| {
        nix::sys::socket::setsockopt(
            &s,
            nix::sys::socket::sockopt::Linger,
            &nix::libc::linger {
                l_onoff: 1,
                l_linger: 0,
            },
        )
        .unwrap()
    });
    check(
        &get(reset.addr, "/"),
        HandlerResult::Failure,
        "connection reset by peer",
    );
    let gone = reset.addr;
    drop(reset);
    let outcome = get(gone, "/x");
    assert_eq!(
        outcome.output,
        format!("Get \"http://{gone}/x\": dial tcp {gone}: connect: connection refused")
    );
    assert_eq!(outcome.phase, Phase::Connect);
}

#[test]
fn https_without_verification() {
    let server = tls_server();
    let outcome = get_with("HTTPS", server.addr, "/secure", &[], TIMEOUT);
    check(
        &outcome,
        HandlerResult::Success,
        "GET /secure HTTP/1.1\r\nHost: 127.0.0.1",
    );
}

fn grpc_server() -> Server {
    Server::start(|s| raw_h2::serve(s, &raw_h2::answer(1)))
}

type Tls = rustls::StreamOwned<rustls::ServerConnection, TcpStream>;

/// A TLS server that agrees to these protocols, or takes any when there is none.
fn tls_server_of(protocols: &[&[u8]], serve: impl Fn(Tls) + Send + 'static) -> Server {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let cert = CertificateDer::from(include_bytes!("../data/probe-server.crt.der").to_vec());
    let key =
        PrivateKeyDer::try_from(include_bytes!("../data/probe-server.key.der").to_vec()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
    let config = Arc::new(config);
    Server::start(move |s| {
        let connection = rustls::ServerConnection::new(config.clone()).unwrap();
        serve(rustls::StreamOwned::new(connection, s));
    })
}

fn answer_tls(mut tls: Tls) {
    let head = read_head(&mut tls);
    let _ = tls.write_all(&reply("200 OK", "", &head));
    tls.conn.send_close_notify();
    let _ = tls.flush();
}

fn tls_server() -> Server {
    tls_server_of(&[], answer_tls)
}

/// A server of HTTP/2 over TLS and of nothing else, by the library on blocking sockets.
fn http2_server(
    answer: impl Fn(&::http::Request<h2::RecvStream>) -> (::http::Response<()>, Vec<u8>)
    + Send
    + 'static,
) -> Server {
    tls_server_of(&[b"h2"], move |tls| {
        tls.sock
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        let served = blocking::run(async {
            let mut connection = h2::server::handshake(blocking::Io(tls)).await?;
            while let Some(request) = connection.accept().await {
                let (request, mut respond) = request?;
                let (head, body) = answer(&request);
                respond
                    .send_response(head, false)?
                    .send_data(body.into(), true)?;
            }
            Ok::<_, h2::Error>(())
        });
        // A client that hangs up may leave a reset behind.
        drop(served);
    })
}

/// Sockets with a short timeout under a library that polls: what is not there in time is asked for again.
mod blocking {
    use std::future::Future;
    use std::io::{self, Read, Write};
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    pub(crate) struct Io<S>(pub(crate) S);

    impl<S: Read + Unpin> AsyncRead for Io<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.0.read(buf.initialize_unfilled()) {
                Ok(n) => buf.advance(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(e) => return Poll::Ready(Err(e)),
            }
            Poll::Ready(Ok(()))
        }
    }

    impl<S: Write + Unpin> AsyncWrite for Io<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(self.0.write(buf))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(self.0.flush())
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    pub(crate) fn run<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(done) = future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                return done;
            }
        }
    }
}

/// Parity A5: the kubelet offers h2, so a server that speaks nothing else is Ready there.
#[test]
fn https_to_a_server_of_http2_only() {
    let seen = |head: &::http::Request<h2::RecvStream>| {
        let headers: Vec<_> = head
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        format!("{} {} {}", head.method(), head.uri(), headers.join(", "))
    };
    let server = http2_server(move |head| {
        let response = |status: u16| ::http::Response::builder().status(status);
        match head.uri().path() {
            "/moved" => (
                response(302)
                    .header("location", "/seen?x=y")
                    .body(())
                    .unwrap(),
                b"moved".to_vec(),
            ),
            "/away" => (
                response(302)
                    .header("location", "http://[::1")
                    .body(())
                    .unwrap(),
                Vec::new(),
            ),
            "/big" => (response(200).body(()).unwrap(), vec![b'x'; 1_000_000]),
            "/bad" => (response(503).body(()).unwrap(), b"no".to_vec()),
            _ => (response(200).body(()).unwrap(), seen(head).into_bytes()),
        }
    });
    let get = |path: &str, headers: &[(&str, &str)]| {
        get_with("HTTPS", server.addr, path, headers, TIMEOUT)
    };
    let at = server.addr;
    let outcome = get("/a?b=c#d", &[("Host", "a.b"), ("X-One", "1")]);
    assert_eq!(
        (outcome.result, outcome.output.as_str(), outcome.phase),
        (
            HandlerResult::Success,
            "GET https://a.b/a?b=c user-agent: kube-probe/1.36, x-one: 1, accept: */*",
            Phase::Read
        ),
        "{outcome:?}"
    );
    let moved = format!(
        "GET https://{at}/seen?x=y user-agent: kube-probe/1.36, accept: */*, referer: https://{at}/moved"
    );
    check(&get("/moved", &[]), HandlerResult::Success, &moved);
    check(
        &get("/away", &[]),
        HandlerResult::Failure,
        "failed to parse Location header",
    );
    assert_eq!(get("/big", &[]).output.len(), 10240);
    check(
        &get("/bad", &[]),
        HandlerResult::Failure,
        "HTTP probe failed with statuscode: 503",
    );
}

#[test]
fn http2_that_breaks_off_is_a_failure_and_a_silent_one_ends_at_the_timeout() {
    let broken = tls_server_of(&[b"h2"], |mut tls| {
        raw_h2::read_request(&mut tls);
        let _ = tls.write_all(&raw_h2::reset(2));
        let _ = tls.read_to_end(&mut Vec::new());
    });
    check(
        &get_with("HTTPS", broken.addr, "/", &[], TIMEOUT),
        HandlerResult::Failure,
        "stream error: stream ID 1; INTERNAL_ERROR; received from peer",
    );
    let silent = tls_server_of(&[b"h2"], |mut tls| {
        let _ = tls.read_to_end(&mut Vec::new());
    });
    check(
        &get_with("HTTPS", silent.addr, "/", &[], SHORT),
        HandlerResult::Failure,
        "context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
    );
    let no_end = tls_server_of(&[b"h2"], |mut tls| {
        raw_h2::read_request(&mut tls);
        let _ = tls.write_all(&raw_h2::headers(0, &[(":status", "200")]));
        let _ = tls.read_to_end(&mut Vec::new());
    });
    let outcome = get_with("HTTPS", no_end.addr, "/", &[], SHORT);
    assert_eq!(
        (outcome.result, outcome.error.as_deref()),
        (
            HandlerResult::Failure,
            Some(
                "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
            )
        )
    );
}

#[test]
fn a_server_that_prefers_http1_gets_it() {
    let server = tls_server_of(&[b"http/1.1", b"h2"], answer_tls);
    check(
        &get_with("HTTPS", server.addr, "/", &[], TIMEOUT),
        HandlerResult::Success,
        "GET / HTTP/1.1\r\n",
    );
}

/// Parity A7, A8 and A10: what Go takes as an answer.
#[test]
fn answers_of_odd_servers() {
    use HandlerResult::{Failure, Success};
    for (answer, result, output) in [
        ("HTTP/1.1 200 OK\r\nServer : tiny\r\n\r\nok", Success, "ok"),
        (
            "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
            Success,
            "ok",
        ),
        (
            "HTTP/1.1 200 OK\r\nX-A: a\x01b\r\n\r\nok",
            Failure,
            "net/http: HTTP/1.x transport connection broken: malformed MIME header line: X-A: a",
        ),
        (
            "hello there\r\n\r\n",
            Failure,
            r#"transport connection broken: malformed HTTP status code "there""#,
        ),
        (
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            Failure,
            r#"connection broken: malformed MIME header: missing colon: "no colon""#,
        ),
    ] {
        let server = Server::http(move |_| answer.as_bytes().to_vec());
        check(&get(server.addr, "/"), result, output);
    }
}

/// Parity A9 and C: how redirects end.
#[test]
fn redirects_end_with_gos_texts() {
    use HandlerResult::{Failure, Success, Warning};
    let to = |location: &str| reply("302 Found", &format!("Location: {location}\r\n"), "moved");
    let server = Server::http(move |head| match head.split(' ').nth(1).unwrap() {
        "/again" => to("/again"),
        "/bracket" => to("http://[::1"),
        "/ftp" => to("ftp://127.0.0.1/x"),
        "/mail" => to("mailto:a@b"),
        "/moved" => to("/seen"),
        _ => reply("200 OK", "", head),
    });
    let at = server.addr;
    let exactly = |path: &str, result, text: &str| {
        let outcome = get(at, path);
        assert_eq!((outcome.result, outcome.output.as_str()), (result, text));
    };
    exactly(
        "/again",
        Failure,
        "Get \"/again\": stopped after 10 redirects",
    );
    exactly(
        "/bracket",
        Failure,
        &format!(
            "Get \"http://{at}/bracket\": failed to parse Location header \"http://[::1\": parse \"http://[::1\": missing ']' in host"
        ),
    );
    exactly(
        "/ftp",
        Failure,
        "Get \"ftp://127.0.0.1/x\": unsupported protocol scheme \"ftp\"",
    );
    exactly(
        "/mail",
        Warning,
        "Probe terminated redirects, Response body: moved",
    );
    let referer = format!("\r\nReferer: http://{at}/moved\r\n");
    check(&get(at, "/moved"), Success, &referer);
    let own = get_with("HTTP", at, "/moved", &[("Referer", "mine")], TIMEOUT);
    check(&own, Success, "\r\nReferer: mine\r\n");
    assert!(!own.output.contains(&referer), "{own:?}");
}

/// Parity C: an error of a connection names both its ends, and a body that does not come says so.
#[test]
fn broken_connections_have_gos_texts() {
    let reset_after = |bytes: &'static [u8]| {
        Server::start(move |mut s| {
            read_head(&mut s);
            let _ = s.write_all(bytes);
            // Linger zero makes the close a reset; the read lets what was written arrive before it.
            let _ = s.set_read_timeout(Some(Duration::from_millis(50)));
            let _ = s.read(&mut [0; 1]);
            let linger = nix::libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            nix::sys::socket::setsockopt(&s, nix::sys::socket::sockopt::Linger, &linger).unwrap();
        })
    };
    let names_ends = |text: &str, before: &str, addr: SocketAddr| {
        let after = format!("->{addr}: read: connection reset by peer");
        let local = text
            .strip_prefix(before)
            .and_then(|t| t.strip_suffix(&after));
        let local: Option<SocketAddr> = local.and_then(|l| l.parse().ok());
        assert!(local.is_some_and(|l| l.port() != 0), "{text:?}");
    };
    let server = reset_after(b"");
    let url = format!("Get \"http://{}/\": ", server.addr);
    let outcome = get(server.addr, "/");
    names_ends(&outcome.output, &format!("{url}read tcp "), server.addr);

    let server = reset_after(b"HTTP/1.1 200 OK\r\n");
    let url = format!("Get \"http://{}/\": ", server.addr);
    let before = format!("{url}net/http: HTTP/1.x transport connection broken: read tcp ");
    names_ends(&get(server.addr, "/").output, &before, server.addr);

    let server = reset_after(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    let outcome = get(server.addr, "/");
    names_ends(&outcome.error.unwrap(), "read tcp ", server.addr);

    let (release, wait) = mpsc::sync_channel::<()>(1);
    let server = Server::start(move |mut s| {
        read_head(&mut s);
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
        let _ = wait.recv();
    });
    assert_eq!(
        get_with("HTTP", server.addr, "/", &[], SHORT)
            .error
            .as_deref(),
        Some(
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
        )
    );
    drop(release);
}

#[test]
fn the_server_of_a_tcp_probe_reads_an_end_and_no_reset() {
    let (tell, read) = mpsc::sync_channel(50);
    let server = Server::start(move |mut s| {
        tell.send(s.read(&mut [0; 1]).map_err(|e| e.kind()))
            .unwrap()
    });
    for _ in 0..50 {
        assert_eq!(
            tcp::probe(&target(None), server.addr.port(), TIMEOUT).result,
            HandlerResult::Success
        );
        assert_eq!(read.recv_timeout(TIMEOUT).unwrap(), Ok(0));
    }
}

#[test]
fn tcp_needs_a_connection_and_nothing_more() {
    let server = Server::start(drop);
    assert_eq!(
        tcp::probe(&target(None), server.addr.port(), TIMEOUT).result,
        HandlerResult::Success
    );
    let gone = server.addr;
    drop(server);
    let outcome = tcp::probe(&target(None), gone.port(), TIMEOUT);
    check(
        &outcome,
        HandlerResult::Failure,
        &format!("dial tcp {gone}: connect: connection refused"),
    );
}

#[test]
fn a_full_backlog_times_out() {
    let listener = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Stream,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    use std::os::fd::AsRawFd;
    nix::sys::socket::bind(
        listener.as_raw_fd(),
        &nix::sys::socket::SockaddrIn::new(127, 0, 0, 1, 0),
    )
    .unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let addr = TcpListener::from(listener).local_addr_and_keep();
    // The first connections fill the queue; the kernel then drops each SYN.
    let mut last = tcp::probe(&target(None), addr.0.port(), SHORT);
    let fillers: Vec<_> = (0..8)
        .filter_map(|_| TcpStream::connect_timeout(&addr.0, SHORT).ok())
        .collect();
    for _ in 0..4 {
        if last.result == HandlerResult::Success {
            last = tcp::probe(&target(None), addr.0.port(), SHORT);
        }
    }
    check(
        &last,
        HandlerResult::Failure,
        &format!("dial tcp {}: i/o timeout", addr.0),
    );
    let outcome = get_with("HTTP", addr.0, "/", &[], SHORT);
    check(
        &outcome,
        HandlerResult::Failure,
        "i/o timeout (Client.Timeout exceeded while awaiting headers)",
    );
    drop(fillers);
}

trait KeepListener {
    fn local_addr_and_keep(self) -> (SocketAddr, TcpListener);
}

impl KeepListener for TcpListener {
    fn local_addr_and_keep(self) -> (SocketAddr, TcpListener) {
        (self.local_addr().unwrap(), self)
    }
}

/// The sockets in /proc/net/tcp whose remote port is `port`, those of the client: local address and
/// state.
fn client_sockets(port: u16) -> BTreeMap<String, String> {
    let remote = format!(":{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table
        .lines()
        .skip(1)
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[2].ends_with(&remote))
        .map(|row| (row[1].to_owned(), row[3].to_owned()))
        .collect()
}

/// The sockets of the clients of one server. The port may have been another server's a moment ago,
/// whose clients are still in TIME-WAIT: these do not count.
struct ClientSockets {
    port: u16,
    before: BTreeMap<String, String>,
}

impl ClientSockets {
    /// Of a server that has just begun to listen.
    fn of(server: SocketAddr) -> Self {
        let port = server.port();
        let before = client_sockets(port);
        Self { port, before }
    }

    /// Those that stay: the one of a tcp probe ends with the acknowledgement of its end, which may
    /// take the server's kernel 40 ms. TIME-WAIT is a minute.
    fn left(&self) -> BTreeMap<String, String> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let mut left = client_sockets(self.port);
            left.retain(|local, _| !self.before.contains_key(local));
            if left.is_empty() || Instant::now() >= end {
                return left;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn d4_probes_leave_no_sockets_behind() {
    let server = Server::http(|_| reply("200 OK", "Connection: close\r\n", "ok"));
    let sockets = ClientSockets::of(server.addr);
    for _ in 0..500 {
        assert_eq!(get(server.addr, "/").result, HandlerResult::Success);
    }
    let http_left = sockets.left();
    // Waits for the client's end, as servers do that are spoken to first, and then closes too.
    let plain = Server::start(|mut s| assert_eq!(s.read(&mut [0; 1]).unwrap(), 0));
    let sockets = ClientSockets::of(plain.addr);
    for _ in 0..500 {
        assert_eq!(
            tcp::probe(&target(None), plain.addr.port(), TIMEOUT).result,
            HandlerResult::Success
        );
    }
    let tcp_left = sockets.left();
    // The grpc server closes when it reads the end, often before our close. An ordinary close leaves a socket each time.
    let healthy = grpc_server();
    let sockets = ClientSockets::of(healthy.addr);
    for _ in 0..500 {
        assert_eq!(
            grpc::probe(&target(None), healthy.addr.port(), "", TIMEOUT).result,
            HandlerResult::Success
        );
    }
    let grpc_left = sockets.left();
    let left = http_left.len() + tcp_left.len() + grpc_left.len();
    assert_eq!(
        left, 0,
        "{left} of 1500: http {http_left:?}, tcp {tcp_left:?}, grpc {grpc_left:?}"
    );
    drop((server, plain, healthy));
}

/// A pid goes to another process: what listens there is another container, or the node.
#[test]
fn a_namespace_whose_holder_has_ended_is_not_probed() {
    if !skip::is_root() {
        return;
    }
    let (server, healthy) = (
        Server::http(|_| reply("200 OK", "", "another")),
        grpc_server(),
    );
    let now = Process::of(std::process::id().cast_signed()).unwrap();
    let before = Process {
        start_time: now.start_time - 1,
        ..now
    };
    let at = |holder| Target {
        netns: Some(NetworkNamespace::of(holder)),
        ..target(None)
    };
    let (port, url) = (
        server.addr.port(),
        ProbeUrl::of_probe("HTTP", "127.0.0.1", server.addr.port(), "/"),
    );
    let probes = |holder| {
        let http = http::Get::new(url.clone(), &[], at(holder)).run(TIMEOUT);
        [
            http,
            tcp::probe(&at(holder), port, TIMEOUT),
            grpc::probe(&at(holder), healthy.addr.port(), "", TIMEOUT),
        ]
    };
    for outcome in probes(before) {
        let error = outcome.error.unwrap_or_default();
        assert!(
            error.contains("cannot enter the network namespace") && error.ends_with("has ended"),
            "{error}"
        );
    }
    assert_eq!(
        (
            server.count.load(Ordering::SeqCst),
            healthy.count.load(Ordering::SeqCst)
        ),
        (0, 0)
    );
    for outcome in probes(now) {
        assert_eq!(
            (outcome.result, outcome.error),
            (HandlerResult::Success, None)
        );
    }
}

/// A server that ends first is the one whose socket would wait; on a node it is the same kernel's.
#[test]
fn d4_probes_leave_no_sockets_of_the_server_behind() {
    // The prober reads up to the end, so that the server's is there before its own.
    let server = Server::http(|_| b"HTTP/1.0 200 OK\r\n\r\nok".to_vec());
    // The port may have been another's before.
    let before = waiting_servers(server.addr.port());
    for _ in 0..200 {
        assert_eq!(get(server.addr, "/").result, HandlerResult::Success);
    }
    let after = waiting_servers(server.addr.port());
    assert!(after <= before, "{before} before, {after} after 200 probes");
}

/// Sockets in TIME-WAIT whose own port is `port`.
fn waiting_servers(port: u16) -> usize {
    let local = format!(":{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table
        .lines()
        .skip(1)
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[1].ends_with(&local) && row[3] == "06")
        .count()
}

#[test]
fn a_probe_enters_the_pods_network_namespace_and_comes_back() {
    if !skip::is_root() {
        return;
    }
    let (ready, addr) = mpsc::sync_channel(1);
    let (release, wait) = mpsc::sync_channel::<()>(1);
    let pod = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        podprobe::base::sys::socket::loopback_up().unwrap();
        let server = Server::http(|_| reply("200 OK", "", "from inside"));
        let healthy = grpc_server();
        ready
            .send((server.addr, healthy.addr, nix::unistd::gettid()))
            .unwrap();
        let _ = wait.recv();
    });
    let (addr, health, tid) = addr.recv().unwrap();
    let netns = PathBuf::from(format!("/proc/self/task/{tid}/ns/net"));
    let own = fs::read_link("/proc/thread-self/ns/net").unwrap();
    let url = ProbeUrl::of_probe("HTTP", "127.0.0.1", addr.port(), "/");
    let outcome = http::Get::new(url.clone(), &[], target(Some(netns.clone()))).run(TIMEOUT);
    let tcp_outcome = tcp::probe(&target(Some(netns.clone())), addr.port(), TIMEOUT);
    let grpc_outcome = grpc::probe(&target(Some(netns)), health.port(), "", TIMEOUT);
    let after = fs::read_link("/proc/thread-self/ns/net").unwrap();
    let missing = http::Get::new(url, &[], target(Some("/proc/self/ns/none".into()))).run(TIMEOUT);
    let grpc_missing = grpc::probe(
        &target(Some("/proc/self/ns/none".into())),
        health.port(),
        "",
        TIMEOUT,
    );
    drop(release);
    pod.join().unwrap();
    check(&outcome, HandlerResult::Success, "from inside");
    check(&tcp_outcome, HandlerResult::Success, "");
    check(&grpc_outcome, HandlerResult::Success, "service healthy");
    assert_eq!(own, after, "the thread is back");
    assert_eq!(
        missing.result,
        HandlerResult::Unknown,
        "our own fault says nothing of the container"
    );
    assert!(
        missing
            .error
            .unwrap()
            .contains("cannot enter the network namespace")
    );
    assert_eq!(
        grpc_missing.result,
        HandlerResult::Unknown,
        "and neither for grpc"
    );
    let text = format!(
        "error: failed to connect service at \"127.0.0.1:{}\": cannot enter the network namespace",
        health.port()
    );
    assert!(
        grpc_missing
            .error
            .as_ref()
            .is_some_and(|e| e.starts_with(&text)),
        "{grpc_missing:?}"
    );
}

/// The exec path is in tests/engine/nsexec.rs.
#[test]
fn a_probe_fits_well_into_a_workers_stack() {
    let plain = Server::http(|head| match head.contains("/away") {
        true => reply("302 Found", "Location: /\r\n", ""),
        false => reply(
            "200 OK",
            &format!("X-Long: {}\r\n", "y".repeat(20_000)),
            &"x".repeat(20_000),
        ),
    });
    let (secure, healthy, silent) = (tls_server(), grpc_server(), Server::start(drop));
    let (a, b, c, d) = (plain.addr, secure.addr, healthy.addr.port(), silent.addr);
    check_stack(
        "http",
        stack_use(|| check(&get(a, "/away"), HandlerResult::Success, "x")),
    );
    check_stack(
        "https",
        stack_use(|| {
            check(
                &get_with("HTTPS", b, "/", &[], TIMEOUT),
                HandlerResult::Success,
                "GET /",
            )
        }),
    );
    let http2 = tls_server_of(&[b"h2"], |mut tls| {
        raw_h2::read_request(&mut tls);
        let _ = tls.write_all(&raw_h2::headers(raw_h2::END_STREAM, &[(":status", "200")]));
        let _ = tls.read_to_end(&mut Vec::new());
    });
    check_stack(
        "https over HTTP/2",
        stack_use(|| {
            check(
                &get_with("HTTPS", http2.addr, "/", &[], TIMEOUT),
                HandlerResult::Success,
                "",
            )
        }),
    );
    check_stack(
        "grpc",
        stack_use(|| {
            check(
                &grpc::probe(&target(None), c, "", TIMEOUT),
                HandlerResult::Success,
                "healthy",
            )
        }),
    );
    check_stack(
        "tcp",
        stack_use(|| {
            check(
                &tcp::probe(&target(None), d.port(), TIMEOUT),
                HandlerResult::Success,
                "",
            )
        }),
    );
    check_stack("http without an answer", stack_use(|| drop(get(d, "/"))));
    check_stack(
        "https without an answer",
        stack_use(|| drop(get_with("HTTPS", d, "/", &[], TIMEOUT))),
    );
    check_stack(
        "grpc without an answer",
        stack_use(|| drop(grpc::probe(&target(None), d.port(), "", SHORT))),
    );
}

/// Lessons D8: a probe goes to one address of the pod. A server that listens in the other family only is reached by name,
/// which tries both, or by its address.
#[test]
fn d8_a_server_of_the_other_family_is_reached_by_name() {
    let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        return skip::note("needs IPv6 on loopback");
    };
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || listener.incoming().take(2).flatten().count());
    let hosts = ProbeHosts {
        allowed: &[],
        is_node_address: &|_| false,
    };
    let probe = |host| {
        tcp::probe(
            &resolve_target(host, &PodStatus::default(), None, &hosts).unwrap(),
            port,
            TIMEOUT,
        )
    };
    check(&probe("localhost"), HandlerResult::Success, "");
    check(&probe("::1"), HandlerResult::Success, "");
    assert_eq!(server.join().unwrap(), 2);
    check(&probe(""), HandlerResult::Failure, "connection refused");
}

/// Lessons D3: the environment of the daemon sends no probe to a proxy. The test is its own child, with such an
/// environment from its start on.
#[test]
fn d3_no_proxy_is_taken_from_the_environment() {
    const CHILD: &str = "PODPROBE_TEST_BEHIND_A_PROXY";
    let direct = Server::http(|_| reply("200 OK", "", "direct"));
    if std::env::var_os(CHILD).is_some() {
        check(&get(direct.addr, "/"), HandlerResult::Success, "direct");
        check(
            &tcp::probe(&target(None), direct.addr.port(), TIMEOUT),
            HandlerResult::Success,
            "",
        );
        return;
    }
    let proxy = Server::http(|_| reply("502 Bad Gateway", "", "proxied"));
    let mut child = again(module_path!(), "d3_no_proxy_is_taken_from_the_environment");
    child.env(CHILD, "1");
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        child.env(name, format!("http://{}", proxy.addr));
    }
    child.env_remove("no_proxy").env_remove("NO_PROXY");
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    assert_eq!(proxy.count.load(Ordering::SeqCst), 0);
}
