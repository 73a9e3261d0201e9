//! Tests the server with real sockets on loopback. Each test calls the server's steps itself, so no test depends
//! on timing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::connections::MAX;
use super::server::Server;
use super::*;

fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Starts a server. Returns the server, its health and its address.
fn server() -> (Server, Arc<Health>, SocketAddr) {
    let health = Arc::new(Health::new().unwrap());
    health.look(Moment::now(), "nftables", Some(&[]));
    let mut server = Server::new(health.clone(), Some(any()));
    server.turn_for(Duration::ZERO);
    let at = server.address(&Asked::Proxy).expect("it listens");
    (server, health, at)
}

fn connect(at: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(at).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    client
}

/// Sends the request and drives the server until the client has read the answer.
fn answer_to(server: &mut Server, mut client: TcpStream, request: &[u8]) -> String {
    client.write_all(request).unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        client.read_to_string(&mut text).map(|_| text)
    });
    while !reader.is_finished() {
        server.turn_for(Duration::from_millis(1));
    }
    reader
        .join()
        .unwrap()
        .expect("an answer and an end, and no reset")
}

const HEALTHZ: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn health_is_answered_and_counted() {
    let (mut server, health, at) = server();
    let text = answer_to(&mut server, connect(at), HEALTHZ);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let text = answer_to(&mut server, connect(at), b"GET /livez HTTP/1.0\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let text = answer_to(&mut server, connect(at), b"GET /proxyMode HTTP/1.1\r\n\r\n");
    assert!(text.ends_with("\r\n\r\nnftables"), "{text}");
    let counts = health.answers();
    assert_eq!(
        counts,
        [((Counted::Healthz, 200), 1), ((Counted::Livez, 200), 1)]
    );
    for _ in 0..3 {
        server.turn_for(Duration::from_millis(1));
    }
    assert_eq!(server.connections(), 0);
}

/// A client gets its answer even if the server does not need all bytes of the request. The server reads and
/// discards the unneeded bytes, because unread bytes would cause a reset.
#[test]
fn a_client_that_sends_too_much_gets_its_answer() {
    let (mut server, _, at) = server();
    let long = [&b"GET /"[..], &b"a".repeat(20_000)].concat();
    let text = answer_to(&mut server, connect(at), &long);
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    let mut post = connect(at);
    post.write_all(b"POST /healthz HTTP/1.1\r\nContent-Length: 20000\r\n\r\n")
        .unwrap();
    for _ in 0..2 {
        server.turn_for(Duration::from_millis(1));
        post.write_all(&b"a".repeat(10_000)).expect("no reset");
    }
    let text = answer_to(&mut server, post, b"");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let text = answer_to(&mut server, connect(at), b"\x16\x03\x01\x02\0\x01\n\n");
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
}

/// Idle clients do not block other clients, and the number of connections stays limited.
#[test]
fn silent_clients_keep_nobody_out() {
    let (mut server, _, at) = server();
    let silent: Vec<TcpStream> = (0..2 * MAX)
        .map(|_| {
            let mut client = connect(at);
            client.write_all(b"GET /").unwrap();
            server.turn_for(Duration::from_millis(1));
            client
        })
        .collect();
    assert_eq!(server.connections(), MAX);
    let slow = connect(at);
    // The slow client has a connection before it sends anything.
    server.turn_for(Duration::from_millis(1));
    let text = answer_to(&mut server, slow, HEALTHZ);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(server.connections() <= MAX);
    // The first idle clients were disconnected.
    assert_eq!((&silent[0]).read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_connection_ends_after_its_time() {
    let (mut server, _, at) = server();
    let mut client = connect(at);
    client.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
    server.turn_for(Duration::from_secs(30));
    assert_eq!(server.connections(), 1);
    let began = std::time::Instant::now();
    while server.connections() > 0 {
        // No client sends anything. The server wakes only because the connection has timed out.
        server.turn();
    }
    assert!(
        began.elapsed() >= Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

/// A port in use is reported, and is served when it becomes free.
#[test]
fn a_port_in_use_is_tried_again() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let health = Arc::new(Health::new().unwrap());
    let mut server = Server::new(health.clone(), Some(at));
    server.turn_for(Duration::ZERO);
    assert_eq!(server.address(&Asked::Proxy), None);
    let why = health.lock().failed[&Asked::Proxy].clone();
    // The error text comes from the C library.
    let in_use = std::io::Error::from_raw_os_error(nix::libc::EADDRINUSE);
    let expected = format!("healthzBindAddress {at}: cannot listen: {in_use}");
    assert!(why.starts_with(&expected), "{why}");
    drop(taken);
    health.wake();
    server.turn();
    assert_eq!(server.address(&Asked::Proxy), Some(at));
    assert!(health.lock().failed.is_empty());
}

#[test]
fn ports_of_services_come_and_go() {
    let (mut server, health, _) = server();
    let free = TcpListener::bind("[::]:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let check = |local_endpoints| HealthCheck {
        namespace: "default".into(),
        service: "web".into(),
        port,
        local_endpoints,
    };
    let web = Asked::Service {
        namespace: "default".into(),
        name: "web".into(),
    };
    health.look(Moment::now(), "nftables", Some(&[check(2)]));
    server.turn();
    assert!(server.address(&web).is_some());
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let text = answer_to(&mut server, connect(at), b"GET / HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(
        text.contains("X-Load-Balancing-Endpoint-Weight: 2\r\n"),
        "{text}"
    );
    health.look(Moment::now(), "nftables", None);
    let text = answer_to(&mut server, connect(at), b"GET / HTTP/1.1\r\n\r\n");
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n"),
        "what is in force: {text}"
    );
    health.look(Moment::now(), "nftables", Some(&[check(0)]));
    let text = answer_to(&mut server, connect(at), b"GET / HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    health.look(Moment::now(), "nftables", Some(&[]));
    server.turn();
    assert_eq!(server.address(&web), None);
}

#[test]
fn the_thread_ends_when_it_is_told() {
    let health = Arc::new(Health::new().unwrap());
    let thread = spawn(
        health.clone(),
        None,
        &crate::base::threads::Roster::default(),
    )
    .unwrap();
    health.stop();
    thread.join().unwrap();
}
