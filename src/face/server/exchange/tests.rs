use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use rustls::{ClientConnection, StreamOwned};

use super::super::credentials::KnownCredentials;
use super::super::credentials::tests::{Place, tls_client};
use super::*;
use crate::face::server::request;

/// Returns an exchange whose head has arrived, and its client. `stop` stops the exchange.
fn exchange<'a>(head: &str, stop: &'a UnixStream) -> (Exchange<'a>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (request, _) = request::read(head.as_bytes(), 0).unwrap().unwrap();
    let transport = Transport::unix(ours).unwrap();
    let exchange = Exchange::new(request, (transport, Vec::new()), stop.as_fd());
    (exchange, theirs)
}

const POST: &str = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n";

#[track_caller]
fn is_over(read: &io::Result<usize>, kind: ErrorKind) {
    assert_eq!(read.as_ref().unwrap_err().kind(), kind);
}

#[test]
fn a_wait_ends_with_its_time_and_with_the_server() {
    let (stopper, stop) = UnixStream::pair().unwrap();
    let (mut late, _client) = exchange(POST, &stop);
    let left = late.line.until.duration_since(Instant::now());
    assert!(left > ANSWER - Duration::from_secs(20) && left <= ANSWER);
    late.line.until = Instant::now();
    is_over(&late.body().read(&mut [0; 9]), ErrorKind::TimedOut);
    let (mut stopped, _client) = exchange(POST, &stop);
    drop(stopper);
    is_over(
        &stopped.body().read(&mut [0; 9]),
        ErrorKind::ConnectionAborted,
    );
}

/// An exchange that does not stream has one time limit for the whole exchange.
#[test]
fn only_what_streams_has_more_time_with_each_byte() {
    let (_stopper, stop) = UnixStream::pair().unwrap();
    for streams in [false, true] {
        let (mut exchange, mut client) = exchange(POST, &stop);
        let until = Instant::now() + Duration::from_secs(20);
        exchange.line.until = until;
        client.write_all(b"x").unwrap();
        let mut body = match streams {
            true => exchange.body_that_streams(),
            false => exchange.body(),
        };
        assert_eq!(body.read(&mut [0; 9]).unwrap(), 1);
        assert_eq!(exchange.line.until > until, streams, "read");
        exchange.line.until = until;
        exchange.line.write_all(b"x").unwrap();
        assert_eq!(exchange.line.until > until, streams, "written");
    }
}

#[test]
fn an_answer_that_fails_is_cut_off_and_carries_nothing_after_it() {
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let (mut exchange, mut client) = exchange("GET / HTTP/1.1\r\n\r\n", &stop);
    let failed = exchange.stream(TEXT, false, |out| {
        out.write_all(b"half")?;
        out.flush()?;
        Err(io::Error::other("made up"))
    });
    failed.unwrap_err();
    let finished = std::thread::spawn(move || {
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    });
    assert!(exchange.finish().is_none());
    let text = finished.join().unwrap();
    assert!(text.ends_with("000004\r\nhalf\r\n"), "{text}");
}

/// Chunks of any size arrive as they were written.
#[test]
fn an_answer_in_chunks_is_whole() {
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let (mut exchange, mut client) = exchange("GET / HTTP/1.1\r\n\r\n", &stop);
    let sizes = [1, BUFFER - 1, 1, BUFFER, 3 * BUFFER + 5, 0, 7];
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut expected = Vec::new();
    exchange
        .stream(TEXT, true, |out| {
            for (n, size) in (0u8..).zip(sizes) {
                let piece = vec![n; size];
                out.write_all(&piece)?;
                expected.extend(piece);
            }
            Ok(())
        })
        .unwrap();
    let (transport, left) = exchange.finish().expect("another request can follow");
    assert!(left.is_empty());
    drop(transport);
    let bytes = reader.join().unwrap();
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let mut framing = Framing::Chunked(Chunks::default());
    let mut body = Vec::new();
    assert_eq!(
        framing.push(&bytes[head..], &mut body, usize::MAX),
        Ok(true)
    );
    assert!(body == expected);
}

#[test]
fn a_client_that_has_gone_is_noticed() {
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let (exchange, client) = exchange(POST, &stop);
    assert!(!exchange.is_gone());
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(exchange.is_gone(), "nobody waits that way");
}

/// Reads TLS records until the answer is over, and returns the plaintext of each record.
fn records(mut client: StreamOwned<ClientConnection, TcpStream>) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    while !all.last().is_some_and(|last| last.ends_with(b"0\r\n\r\n")) {
        let mut record = vec![0; 5];
        client.sock.read_exact(&mut record).unwrap();
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + length, 0);
        client.sock.read_exact(&mut record[5..]).unwrap();
        client.conn.read_tls(&mut &record[..]).unwrap();
        let state = client.conn.process_new_packets().unwrap();
        let mut text = vec![0; state.plaintext_bytes_to_read()];
        client.conn.reader().read_exact(&mut text).unwrap();
        all.push(text);
    }
    all.retain(|text| !text.is_empty());
    all
}

/// An API server that copies logs into a WebSocket throws away the data that one read returns together with the end.
#[test]
fn the_last_chunk_and_the_end_of_an_answer_are_two_tls_records() {
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let place = Place::new();
    let known = KnownCredentials::read(place.files()).ok().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let client = std::thread::spawn(move || {
        let mut client = tls_client(socket, true);
        client.write_all(b"x").unwrap();
        records(client)
    });
    let mut transport = Transport::tls(listener.accept().unwrap().0, known.config()).unwrap();
    while let Err(e) = transport.read(&mut [0]) {
        assert_eq!(e.kind(), ErrorKind::WouldBlock);
        let mut fds = [PollFd::new(transport.as_fd(), transport.events())];
        assert_eq!(poll(&mut fds, PollTimeout::from(20_000_u16)), Ok(1));
    }
    let head = b"GET /containerLogs/a/b/c HTTP/1.1\r\n\r\n";
    let (request, _) = request::read(head, 0).unwrap().unwrap();
    let mut exchange = Exchange::new(request, (transport, Vec::new()), stop.as_fd());
    let answered = exchange.stream(TEXT, true, |out| out.write_all(b"last line\n"));
    answered.unwrap();
    let records = client.join().unwrap();
    let [_head, chunk, end] = &records[..] else {
        panic!("{} records", records.len());
    };
    assert!(chunk.ends_with(b"last line\n\r\n"), "{chunk:?}");
    assert_eq!(end, b"0\r\n\r\n");
}
