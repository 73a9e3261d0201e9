use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::base::wire::dial::{Address, Dialer, End};

/// A client, and its server as a socket.
fn pair() -> (Streams, TcpStream, Instant) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let now = Instant::now();
    let deadline = now + Duration::from_secs(10);
    let dialer = Dialer {
        namespace: None,
        deadline,
        observer: &(),
    };
    let address = Address::Tcp(listener.local_addr().unwrap());
    let socket = dialer.dial(address, End::HangUp).unwrap();
    let connection = ByteStream::plain(socket, deadline);
    let streams = Streams::open(connection, now).unwrap();
    let (server, _) = listener.accept().unwrap();
    (streams, server, now)
}

/// The types of the frames that a server gets until one of them is `last`.
fn frames_until(server: &mut TcpStream, last: u8) -> Vec<u8> {
    let mut types = Vec::new();
    while types.last() != Some(&last) {
        let mut head = [0; 9];
        server.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        server.read_exact(&mut payload).unwrap();
        types.push(head[3]);
    }
    types
}

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];

/// A link that a router has forgotten: nothing comes, and nothing says so.
#[test]
fn a_silent_server_is_asked_for_a_sign_of_life_and_then_given_up() {
    let (mut streams, mut server, start) = pair();
    let mut preface = [0; 24];
    streams.turn(start).unwrap();
    server.read_exact(&mut preface).unwrap();
    server.write_all(&EMPTY_SETTINGS).unwrap();
    let almost = start + IDLE - Duration::from_secs(1);
    streams.turn(almost).unwrap();
    streams.turn(almost).unwrap();
    assert_eq!(frames_until(&mut server, SETTINGS), [SETTINGS]);

    let idle = almost + IDLE;
    streams.turn(idle).unwrap();
    streams.turn(idle).unwrap();
    let asked = frames_until(&mut server, PING);
    assert_eq!(asked.iter().filter(|t| **t == PING).count(), 1);
    streams.turn(idle + PONG - Duration::from_secs(1)).unwrap();
    let over = streams.turn(idle + PONG).unwrap_err();
    assert_eq!(over.to_string(), "the server has been silent for 45s");
    assert_eq!(streams.turn(idle + PONG).unwrap_err(), over);
}

/// A request that nothing else wakes its owner for goes out all the same: a Lease on an idle node.
#[test]
fn a_request_waits_for_no_other_news() {
    let (mut streams, mut server, start) = pair();
    let bell = crate::base::bell::Bell::new().unwrap();
    let bell = std::os::fd::AsFd::as_fd(&bell);
    let mut preface = [0; 24];
    streams.turn(start).unwrap();
    server.read_exact(&mut preface).unwrap();
    server.write_all(&EMPTY_SETTINGS).unwrap();
    while streams.woken.is_set() || streams.polled.bytes_read() < EMPTY_SETTINGS.len() as u64 {
        streams.wait(bell, Instant::now() + LONG);
        streams.turn(start).unwrap();
    }
    let request = Request::builder().uri("http://h/").body(()).unwrap();
    streams.send(1, request, Bytes::new());
    let began = Instant::now();
    streams.wait(bell, began + LONG);
    assert!(began.elapsed() < LONG);
    streams.turn(start).unwrap();
    assert!(frames_until(&mut server, HEADERS).contains(&HEADERS));
}

#[test]
fn a_server_that_hangs_up_ends_the_connection_and_its_requests() {
    let (mut streams, server, start) = pair();
    streams.turn(start).unwrap();
    drop(server);
    let bell = crate::base::bell::Bell::new().unwrap();
    let request = Request::builder().uri("http://h/").body(()).unwrap();
    streams.send(1, request, Bytes::new());
    let over = loop {
        match streams.turn(start) {
            Ok(_) => streams.wait(std::os::fd::AsFd::as_fd(&bell), Instant::now() + LONG),
            Err(over) => break over,
        }
    };
    assert_ne!(over, Over::Silent);
}

const LONG: Duration = Duration::from_secs(10);
