use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;

use super::super::credentials::KnownCredentials;
use super::super::credentials::tests::{Place, tls_client};
use super::super::transport::Transport;
use super::*;
use crate::base::wire::dial::{Address, DialError, Dialer, End};
use crate::engine::runtime::TerminalSize;
use crate::fake_session::{FakeSession, Script};

const CEILING: Duration = Duration::from_secs(20);

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CONTINUATION: u8 = 0;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const LAST: u8 = 0x80;

/// Returns the bytes of a WebSocket frame, masked as a client masks them.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(first, 0x80, payload.len());
    let mask = [1, 2, 3, 4];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
    bytes
}

fn head(first: u8, masked: u8, length: usize) -> Vec<u8> {
    match length {
        0..126 => vec![first, masked | length as u8],
        126..65536 => [&[first, masked | 126][..], &(length as u16).to_be_bytes()].concat(),
        _ => [&[first, masked | 127][..], &(length as u64).to_be_bytes()].concat(),
    }
}

/// A client that writes and reads raw frames, and so can break the protocol.
struct Raw<S = UnixStream>(S);

impl Raw {
    /// Returns a client, and the server's end of its WebSocket.
    fn pair() -> (Self, Socket) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(CEILING)).unwrap();
        let transport = Transport::unix(theirs).unwrap();
        (Self(ours), Socket::of_client(transport, Vec::new()))
    }

    /// Sends a message again and again until the server takes no more. Returns how many whole messages were sent.
    #[track_caller]
    fn fill(&mut self, message: &[u8]) -> usize {
        let frame = frame(LAST | BINARY, message);
        let limit = Some(Duration::from_millis(300));
        self.0.set_write_timeout(limit).unwrap();
        let mut sent = 0;
        while let Ok(n) = self.0.write(&frame[sent % frame.len()..]) {
            sent += n;
            assert!(sent < 64 << 20, "everything is taken");
        }
        sent / frame.len()
    }
}

type TlsClient = Raw<StreamOwned<ClientConnection, TcpStream>>;

impl TlsClient {
    /// Returns a client over TLS, and the server's end of the connection after the handshake.
    fn over_tls() -> (Self, Transport) {
        let place = Place::new();
        let known = KnownCredentials::read(place.files()).ok().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(CEILING)).unwrap();
        let client = thread::spawn(move || {
            let mut client = tls_client(socket, true);
            client.write_all(b"x").unwrap();
            Self(client)
        });
        let mut transport = Transport::tls(listener.accept().unwrap().0, known.config()).unwrap();
        while let Err(e) = transport.read(&mut [0]) {
            assert_eq!(e.kind(), ErrorKind::WouldBlock);
            let mut fds = [PollFd::new(transport.as_fd(), transport.events())];
            assert_eq!(
                poll(&mut fds, PollTimeout::try_from(CEILING).unwrap()),
                Ok(1)
            );
        }
        (client.join().unwrap(), transport)
    }
}

impl<S: Read + Write> Raw<S> {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn message(&mut self, message: &[u8]) {
        self.send(&frame(LAST | BINARY, message));
    }

    fn exactly<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Reads a frame: the opcode and the payload; None at the end of the connection.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let [first, length] = self.exactly()?;
        assert_eq!(first & LAST, LAST, "the server does not fragment");
        assert_eq!(length & 0x80, 0, "the server does not mask");
        let length = match length {
            126 => usize::from(u16::from_be_bytes(self.exactly()?)),
            127 => u64::from_be_bytes(self.exactly()?) as usize,
            n => n.into(),
        };
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).ok()?;
        Some((first & 0x0f, payload))
    }

    /// Reads the next message: the channel and the data.
    #[track_caller]
    fn said(&mut self) -> (u8, Vec<u8>) {
        match self.frame() {
            Some((BINARY, message)) => (message[0], message[1..].to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// Reads all data of a channel up to the close frame, and the code and the reason of that frame.
    fn rest(&mut self, channel: u8) -> (Vec<u8>, Option<(u16, String)>) {
        let mut all = Vec::new();
        while let Some((opcode, payload)) = self.frame() {
            match opcode {
                BINARY if payload[0] == channel => all.extend_from_slice(&payload[1..]),
                CLOSE => {
                    let code = u16::from_be_bytes([payload[0], payload[1]]);
                    let reason = String::from_utf8(payload[2..].to_vec()).unwrap();
                    // The client answers the close frame, so that the server need not wait for it.
                    let _ = self.0.write_all(&frame(LAST | CLOSE, &payload[..2]));
                    return (all, Some((code, reason)));
                }
                _ => {}
            }
        }
        (all, None)
    }
}

/// A session that a thread serves, with its client.
struct Served {
    client: Raw,
    script: Script,
    stop: UnixStream,
    thread: JoinHandle<Outcome>,
}

fn served(protocol: Protocol, streams: [bool; 3], command: &[&str]) -> Served {
    let (client, socket) = Raw::pair();
    let (session, script) = FakeSession::pair(streams);
    let (stop, stopped) = UnixStream::pair().unwrap();
    let command: Vec<String> = command.iter().map(|w| (*w).to_owned()).collect();
    let thread = thread::spawn(move || serve(socket, protocol, session, &command, stopped.as_fd()));
    script.stdin.set_read_timeout(Some(CEILING)).unwrap();
    Served {
        client,
        script,
        stop,
        thread,
    }
}

fn shell() -> Served {
    let mut served = served(Protocol::V5, [true; 3], &["sh"]);
    assert_eq!(served.client.said(), (STDOUT, Vec::new()));
    served
}

impl Served {
    #[track_caller]
    fn reads(&mut self, expected: &[u8]) {
        let mut bytes = vec![0; expected.len()];
        self.script.stdin.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, expected);
    }

    /// Checks that the server closes the stream with code 1002 and with `why` in the reason.
    #[track_caller]
    fn ends_refused(mut self, why: &str) {
        let (_, closed) = self.client.rest(STDOUT);
        let (code, reason) = closed.expect("it is told why");
        assert_eq!(code, 1002, "{reason}");
        assert!(reason.to_lowercase().contains(why), "{reason}");
        let outcome = self.thread.join().unwrap();
        assert!(outcome.has_left);
    }

    fn end(mut self) -> Outcome {
        self.script.end(SessionEnd::Exited(0));
        self.client.rest(STDOUT);
        self.thread.join().unwrap()
    }
}

#[test]
fn the_first_message_says_that_all_is_set_up() {
    for (streams, channel) in [
        ([true, true, true], STDOUT),
        ([true, false, true], STDERR),
        ([true, false, false], ERROR),
    ] {
        let mut served = served(Protocol::V5, streams, &["sh"]);
        assert_eq!(served.client.said(), (channel, Vec::new()));
        served.end();
    }
}

#[test]
fn fragments_make_one_message_in_their_order() {
    let mut served = shell();
    served.client.send(&frame(BINARY, b"\0one "));
    // A control frame may come between the fragments.
    served.client.send(&frame(LAST | PING, &[7; 125]));
    assert_eq!(served.client.frame(), Some((PONG, vec![7; 125])));
    served.client.send(&frame(CONTINUATION, b"two "));
    served.client.send(&frame(LAST | CONTINUATION, b"three"));
    served.reads(b"one two three");
    served.client.send(&frame(LAST | TEXT, b"\0text"));
    served.reads(b"text");
    assert!(!served.end().has_left);
}

/// Each frame that breaks RFC 6455 ends the stream: 5.1 mask, 5.5 control frames, 5.4 fragments, 5.2 reserved bits and
/// opcodes.
#[test]
fn what_is_no_frame_of_a_client_ends_the_stream() {
    let unmasked = [head(LAST | BINARY, 0, 2), b"\0x".to_vec()].concat();
    for (bad, why) in [
        (unmasked, "unmasked"),
        (frame(LAST | PING, &[7; 126]), "control frame"),
        (frame(PING, b"x"), "control frame"),
        (frame(LAST | CONTINUATION, b"\0x"), "continue frame"),
        (
            [frame(BINARY, b"\0x"), frame(LAST | BINARY, b"\0y")].concat(),
            "waiting for more fragments",
        ),
        (frame(LAST | 0x40 | BINARY, b"\0x"), "reserved"),
        (frame(LAST | 3, b"\0x"), "opcode"),
    ] {
        let mut served = shell();
        served.client.send(&bad);
        served.ends_refused(why);
    }
}

#[test]
fn what_is_no_message_of_the_protocol_ends_the_stream() {
    for (message, why) in [
        (&b"\x01x"[..], "a client does not write to channel 1"),
        (b"", "a message has no channel"),
        (b"\x04{}", "width of a terminal"),
    ] {
        let mut served = shell();
        served.client.message(message);
        served.ends_refused(why);
    }
}

/// The largest size of a message holds however many frames carry the message.
#[test]
fn a_message_has_a_mebibyte_at_most() {
    const MEBIBYTE: usize = 1 << 20;
    for is_longer in [false, true] {
        let mut served = shell();
        let mut client = served.client.0.try_clone().unwrap();
        let sender = thread::spawn(move || {
            let half = [0; MEBIBYTE / 2];
            let last: &[u8] = if is_longer { b"x" } else { b"" };
            // The server may close the connection before it has read the whole message.
            let _ = client
                .write_all(&frame(BINARY, &half))
                .and_then(|()| client.write_all(&frame(CONTINUATION, &half)))
                .and_then(|()| client.write_all(&frame(LAST | CONTINUATION, last)));
        });
        if is_longer {
            served.ends_refused("too long");
        } else {
            served.reads(&vec![0; MEBIBYTE - 1]);
            served.end();
        }
        sender.join().unwrap();
    }
}

/// The reason for closing is cut to the size that a close frame can hold, but no character is cut in two.
#[test]
fn a_long_reason_is_cut() {
    let (mut client, mut socket) = Raw::pair();
    socket
        .close(Some(&format!("x{}", "é".repeat(200))))
        .unwrap();
    let (_, closed) = client.rest(STDOUT);
    assert_eq!(closed, Some((1002, format!("x{}", "é".repeat(59)))));
}

#[test]
fn sizes_and_the_end_of_the_input_are_told() {
    let mut served = shell();
    served.client.message(b"\x04{\"Width\":80,\"Height\":24}");
    served.client.message(b"\0last");
    served.client.message(b"\xff\0");
    served.reads(b"last");
    assert_eq!(served.script.stdin.read(&mut [0]).unwrap(), 0, "its end");
    let size = TerminalSize {
        width: 80,
        height: 24,
    };
    assert_eq!(served.script.seen().sizes, [size]);
    // No process reads this input any more.
    served.client.message(b"\0more");
    assert!(!served.end().has_left);
}

#[test]
fn the_rest_of_the_output_comes_before_the_end() {
    let mut served = shell();
    served.script.stdout.write_all(b"out").unwrap();
    assert_eq!(served.client.said(), (STDOUT, b"out".to_vec()));
    served.script.stderr.write_all(b"err").unwrap();
    assert_eq!(served.client.said(), (STDERR, b"err".to_vec()));
    served.script.stdout.write_all(&[b'x'; 100_000]).unwrap();
    served.script.end(SessionEnd::Exited(3));
    let (mut out, mut status) = (0, Vec::new());
    while status.is_empty() {
        match served.client.said() {
            (STDOUT, data) => out += data.len(),
            (ERROR, data) => status = data,
            (STDERR, data) => assert_eq!(data, b""),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(out, 100_000);
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(status["details"]["causes"][0]["message"], "3");
    assert_eq!(served.client.rest(STDOUT).1, Some((1000, String::new())));
    let outcome = served.thread.join().unwrap();
    assert!(!outcome.has_left);
    let command = vec!["sh".to_owned()];
    assert_eq!(outcome.end, StreamEnd::Exited { code: 3, command });
}

/// Returns a bridge that no thread serves. `stop` must stay open, or the bridge stops.
fn bridge<'a>(socket: Socket, session: Box<FakeSession>, stop: &'a UnixStream) -> Bridge<'a> {
    Bridge {
        socket,
        protocol: Protocol::V5,
        session,
        stop: stop.as_fd(),
        input: Vec::new(),
        unread: true,
        input_ends: false,
        input_is_closed: false,
        open: [true; 2],
        has_ended: false,
        rest: 0,
        moved: Instant::now(),
    }
}

/// While input waits for the command, nothing is read from the client. So no read makes the TLS session send the bytes
/// that it holds. Output must be sent all the same.
#[test]
fn output_comes_over_tls_while_the_command_does_not_read() {
    let (mut client, transport) = TlsClient::over_tls();
    let (session, mut script) = FakeSession::pair([true; 3]);
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let socket = Socket::of_client(transport, Vec::new());
    let mut bridge = bridge(socket, session, &stop);
    bridge.input = vec![0; MAX_INPUT];
    script.stdout.write_all(b"hello").unwrap();
    assert!(bridge.collect(&mut [0; CHUNK]).unwrap());
    assert_eq!(client.said(), (STDOUT, b"hello".to_vec()));
    assert!(!bridge.socket.has_backlog());
    assert_eq!(
        bridge.socket.events(false) & PollFlags::POLLOUT,
        PollFlags::empty()
    );
}

/// When a socket could not take all bytes, the TLS session holds the remaining bytes. The held bytes count as a
/// backlog, whoever wrote them.
#[test]
fn what_a_tls_session_holds_is_a_backlog() {
    let (mut client, mut transport) = TlsClient::over_tls();
    transport.write_all(b"held").unwrap();
    let mut socket = Socket::of_client(transport, Vec::new());
    assert!(socket.events(false).contains(PollFlags::POLLOUT) && socket.has_backlog());
    socket.flush().unwrap();
    assert!(!socket.events(false).contains(PollFlags::POLLOUT) && !socket.has_backlog());
    assert_eq!(client.exactly(), Some(*b"held"));
}

/// A background process that goes on writing does not keep the stream open.
#[test]
fn what_is_written_after_the_end_is_bounded() {
    let (mut client, socket) = Raw::pair();
    let (session, mut script) = FakeSession::pair([true; 3]);
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let mut bridge = bridge(socket, session, &stop);
    script.stdout.write_all(&[b'x'; 3 * CHUNK]).unwrap();
    bridge.has_ended = true;
    bridge.rest = MAX_REST - 1;
    assert_eq!(bridge.run().unwrap(), Over::Ended);
    assert_eq!(bridge.rest, MAX_REST - 1 + CHUNK);
    assert_eq!(client.said(), (STDOUT, vec![b'x'; CHUNK]));
}

/// The server reads at most as much input as may wait. The remaining input is read later.
#[test]
fn input_that_waits_is_bounded() {
    let (mut client, socket) = Raw::pair();
    let (session, _script) = FakeSession::pair([true; 3]);
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let mut bridge = bridge(socket, session, &stop);
    let message = frame(LAST | BINARY, &[&[0][..], &[b'x'; 4 << 10]].concat());
    client.send(&message.repeat((MAX_INPUT >> 12) + 2));
    assert!(bridge.receive().unwrap());
    assert_eq!((bridge.input.len(), bridge.unread), (MAX_INPUT, true));
    bridge.input.clear();
    assert!(bridge.receive().unwrap());
    assert_eq!((bridge.input.len(), bridge.unread), (8 << 10, false));
}

/// The server does not keep the session for a client that does not read the rest of the output.
#[test]
fn a_client_that_does_not_take_the_rest_has_left() {
    let (mut client, socket) = Raw::pair();
    let (session, mut script) = FakeSession::pair([true; 3]);
    let (stopper, stop) = UnixStream::pair().unwrap();
    let mut bridge = bridge(socket, session, &stop);
    while !bridge.socket.has_backlog() {
        bridge.socket.send(STDOUT, &[0; CHUNK]).unwrap();
    }
    // The time limit counts from the end of the process, however long nothing was sent before.
    bridge.moved = Instant::now() - LINGER;
    script.end(SessionEnd::Exited(0));
    assert_eq!(bridge.wait().unwrap(), None);
    assert!(bridge.has_ended && bridge.patience() > LINGER / 2);
    // The client sends input, but does not read the rest of the output.
    bridge.moved = Instant::now() - LINGER;
    client.message(b"\0x");
    assert!(bridge.receive().unwrap());
    bridge.deliver();
    assert_eq!(bridge.patience(), Duration::ZERO);
    let (over, ceiling) = mpsc::sync_channel::<()>(0);
    let stopping = thread::spawn(move || {
        let _ = ceiling.recv_timeout(CEILING);
        drop(stopper);
    });
    assert_eq!(bridge.run().unwrap(), Over::Left);
    drop(over);
    stopping.join().unwrap();
}

/// The client has the whole time limit again for each piece of output.
#[test]
fn a_client_that_takes_the_rest_slowly_gets_it() {
    let (mut client, socket) = Raw::pair();
    let (session, mut script) = FakeSession::pair([true; 3]);
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let mut bridge = bridge(socket, session, &stop);
    let mut sent = 0;
    while !bridge.socket.has_backlog() {
        bridge.socket.send(STDOUT, &[b'x'; CHUNK]).unwrap();
        sent += CHUNK;
    }
    script.stdout.write_all(b"rest").unwrap();
    (bridge.has_ended, bridge.moved) = (true, Instant::now() - LINGER);
    for _ in 1..sent / CHUNK {
        assert_eq!(client.said(), (STDOUT, vec![b'x'; CHUNK]));
    }
    assert_eq!(bridge.run().unwrap(), Over::Ended);
    assert!(bridge.patience() > LINGER / 2);
    assert_eq!(client.said(), (STDOUT, vec![b'x'; CHUNK]));
    assert_eq!(client.said(), (STDOUT, b"rest".to_vec()));
}

#[test]
fn streams_that_have_ended_are_left_alone() {
    let (mut client, socket) = Raw::pair();
    let (session, script) = FakeSession::pair([true; 3]);
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let mut bridge = bridge(socket, session, &stop);
    for stream in [&script.stdin, &script.stdout, &script.stderr] {
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }
    assert!(!bridge.collect(&mut [0; CHUNK]).unwrap());
    assert_eq!(bridge.open, [false; 2]);
    client.message(b"\0x");
    assert!(bridge.receive().unwrap());
    bridge.deliver();
    assert!(bridge.input.is_empty() && bridge.input_is_closed);
    // The process has already closed its input. So the end of the client's input is not passed on to the session.
    bridge.input_ends = true;
    bridge.deliver();
    assert!(!script.seen().stdin_closed);
}

/// The number of messages that are read in one round is limited. So the thread still notices the output and the end of
/// the command, and the stop of the server.
#[test]
fn a_client_that_floods_is_not_all_that_is_heard() {
    let (mut client, socket) = Raw::pair();
    let (session, script) = FakeSession::pair([true; 3]);
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let mut bridge = bridge(socket, session, &stop);
    let size = frame(LAST | BINARY, b"\x04{\"Width\":80,\"Height\":24}");
    client.send(&size.repeat(MAX_MESSAGES + 1));
    assert!(bridge.receive().unwrap() && bridge.unread);
    assert_eq!(script.seen().sizes.len(), MAX_MESSAGES);
    assert!(bridge.receive().unwrap() && !bridge.unread);
    assert_eq!(script.seen().sizes.len(), MAX_MESSAGES + 1);
    client.send(&frame(LAST | PING, b"").repeat(MAX_MESSAGES));
    client.message(b"\0x");
    assert!(bridge.receive().unwrap() && bridge.unread);
    assert_eq!(bridge.input, b"");
    // The remaining messages are in no buffer of the kernel, so the wait must be over at once.
    assert_eq!(bridge.wait().unwrap(), None);
    assert!(bridge.receive().unwrap() && !bridge.unread);
    assert_eq!(bridge.input, b"x");
}

/// A server that stops does not wait for a client that floods it.
#[test]
fn a_client_that_floods_instead_of_closing_is_left_when_the_server_stops() {
    let (mut client, mut socket) = Raw::pair();
    let (stopper, stop) = UnixStream::pair().unwrap();
    client.send(&frame(LAST | PING, b"").repeat(9));
    client.send(&frame(LAST | BINARY, b"\0x").repeat(9));
    drop(stopper);
    linger(&mut socket, stop.as_fd()).unwrap();
    for _ in 0..8 {
        assert!(socket.receive_one().unwrap().is_none(), "a ping");
    }
}

/// Only the command of the client that does not read must wait. The server keeps a bounded number of bytes for the
/// client.
#[test]
fn a_client_that_does_not_read_stops_its_command_only() {
    let mut served = shell();
    let mut output = served.script.stdout.try_clone().unwrap();
    output
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut written = 0;
    while let Ok(n) = output.write(&[b'x'; 32 << 10]) {
        written += n;
        assert!(written < 16 << 20, "everything is taken");
    }
    // The client's input is read all the same. The input does not make the server send more.
    for _ in 0..40 {
        served.client.message(b"\0abc");
        served.reads(b"abc");
    }
    served.stop.shutdown(std::net::Shutdown::Both).unwrap();
    let outcome = served.thread.join().unwrap();
    assert_eq!(
        outcome.end,
        StreamEnd::Failed("the daemon is ending".into())
    );
}

/// The input that waits for the command is bounded, and the command's output is still sent.
#[test]
fn a_command_that_does_not_read_stops_its_client_only() {
    let mut served = shell();
    served.client.fill(&[0; 32 << 10]);
    served.script.stdout.write_all(b"out").unwrap();
    assert_eq!(served.client.said(), (STDOUT, b"out".to_vec()));
    drop(served.client);
    assert!(served.thread.join().unwrap().has_left);
}

#[test]
fn the_end_of_the_server_ends_the_stream_and_is_told() {
    let mut served = shell();
    served.stop.shutdown(std::net::Shutdown::Both).unwrap();
    let (status, closed) = served.client.rest(ERROR);
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(
        status["message"],
        "Internal error occurred: the daemon is ending"
    );
    assert_eq!(closed, Some((1000, String::new())));
    assert!(!served.thread.join().unwrap().has_left);
}

#[test]
fn a_client_that_closes_or_vanishes_has_left() {
    for says_so in [true, false] {
        let mut served = shell();
        served.script.end_later(SessionEnd::Exited(137));
        if says_so {
            served.client.send(&frame(LAST | CLOSE, &[0x03, 0xe8]));
        } else {
            drop(served.client);
        }
        let outcome = served.thread.join().unwrap();
        assert!(outcome.has_left);
        let command = vec!["sh".to_owned()];
        assert_eq!(outcome.end, StreamEnd::Exited { code: 137, command });
    }
}

#[test]
fn the_ends_of_sessions_have_their_words() {
    for (command, end, expected) in [
        (
            &["sh"][..],
            SessionEnd::TooSlow,
            Some("faster than it was read"),
        ),
        (
            &["sh"],
            SessionEnd::Unknown,
            Some("how it ended is not known"),
        ),
        (&[], SessionEnd::Unknown, None),
    ] {
        let mut served = served(Protocol::V4, [true; 3], command);
        served.script.end(end);
        let (status, _) = served.client.rest(ERROR);
        let status: Value = serde_json::from_slice(&status).unwrap();
        match expected {
            None => assert_eq!(status["status"], "Success"),
            Some(why) => assert!(
                status["message"].as_str().unwrap().contains(why),
                "{status}"
            ),
        }
        served.thread.join().unwrap();
    }
}

#[test]
fn a_command_that_was_not_executed_ends_as_in_a_shell() {
    let (mut client, socket) = Raw::pair();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    let thread = thread::spawn(move || {
        let end = StreamEnd::Exited {
            code: 127,
            command: vec!["no".into()],
        };
        not_executed(socket, Protocol::V5, "not found", &end, stopped.as_fd());
    });
    assert_eq!(client.said(), (STDERR, b"not found\n".to_vec()));
    let (status, _) = client.rest(ERROR);
    assert!(String::from_utf8(status).unwrap().contains("127"));
    thread.join().unwrap();
}

/// Forwarded ports of a pod, and their client.
struct Forwarded {
    client: Raw,
    pods: Vec<TcpStream>,
    stop: UnixStream,
    thread: JoinHandle<()>,
}

/// Connects the server to a pod, and returns both ends of the connection.
fn connection(listener: &TcpListener) -> (PortSocket, TcpStream) {
    let dialer = Dialer {
        namespace: None,
        deadline: Instant::now() + CEILING,
        observer: &(),
    };
    let at: SocketAddr = listener.local_addr().unwrap();
    let stream = dialer.dial(Address::Tcp(at), End::Close).unwrap();
    stream.set_nonblocking().unwrap();
    let pod = listener.accept().unwrap().0;
    pod.set_read_timeout(Some(CEILING)).unwrap();
    (stream, pod)
}

/// Forwards three ports: two with an open connection, and one with a connection that has failed.
fn forwarded() -> Forwarded {
    let (client, socket) = Raw::pair();
    let (stop, stopped) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ((one, first), (two, second)) = (connection(&listener), connection(&listener));
    let ports = vec![
        (80, Ok(one)),
        (
            81,
            Err(DialError::Failed("nobody listens".to_owned()).into()),
        ),
        (258, Ok(two)),
    ];
    let thread = thread::spawn(move || {
        let forward = Forward::new(socket, ports, stopped.as_fd()).ok();
        forward.expect("the client is there").run();
    });
    let mut forwarded = Forwarded {
        client,
        pods: vec![first, second],
        stop,
        thread,
    };
    for expected in [
        (0, vec![80, 0]),
        (1, vec![80, 0]),
        (2, vec![81, 0]),
        (3, vec![81, 0]),
        (3, b"nobody listens".to_vec()),
        (4, vec![2, 1]),
        (5, vec![2, 1]),
    ] {
        assert_eq!(forwarded.client.said(), expected);
    }
    forwarded
}

impl Forwarded {
    #[track_caller]
    fn reads(&mut self, pod: usize, expected: &[u8]) {
        let mut bytes = vec![0; expected.len()];
        self.pods[pod].read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, expected);
    }
}

#[test]
fn each_port_has_its_channels_and_ends_alone() {
    let mut f = forwarded();
    f.client.message(b"\0one");
    f.client.message(b"\x04two");
    // The connection to the port of this channel has failed. Data for this port must do no harm.
    for _ in 0..4 {
        f.client.message(&[&[2][..], &[0; 32 << 10]].concat());
    }
    f.reads(0, b"one");
    f.reads(1, b"two");
    f.pods[1].write_all(b"back").unwrap();
    assert_eq!(f.client.said(), (4, b"back".to_vec()));
    f.pods.remove(1);
    f.client.message(b"\0more");
    f.reads(0, b"more");
    f.pods.clear();
    assert_eq!(f.client.rest(0).1, Some((1000, String::new())));
    f.thread.join().unwrap();
}

#[test]
fn a_channel_that_is_none_of_the_client_s_ends_all() {
    for bad in [&b"\x01x"[..], b"\x06x", b"\xffx", b""] {
        let mut f = forwarded();
        f.client.message(bad);
        f.thread.join().unwrap();
        assert_eq!(f.pods[0].read(&mut [0]).unwrap_or(0), 0);
    }
}

#[test]
fn forwarding_ends_with_the_client_and_with_the_server() {
    for ends in 0..3 {
        let mut f = forwarded();
        match ends {
            0 => f.stop.shutdown(std::net::Shutdown::Both).unwrap(),
            1 => f.client.send(&frame(LAST | CLOSE, &[0x03, 0xe8])),
            _ => drop(f.client),
        }
        f.thread.join().unwrap();
        assert_eq!(f.pods[0].read(&mut [0]).unwrap_or(0), 0);
    }
}

/// The end of the client is noticed even while nothing is read from the client because a port has enough waiting data.
#[test]
fn a_client_that_vanishes_in_the_middle_ends_all() {
    let (client, socket) = Raw::pair();
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (stream, _pod) = connection(&listener);
    let port = Port {
        stream: Some(stream),
        pending: vec![0; 64 << 20],
    };
    let forward = Forward {
        socket,
        ports: vec![port],
        stop: stop.as_fd(),
        unread: true,
        moved: Instant::now(),
    };
    drop(client);
    forward.run();
}

#[test]
fn messages_for_nobody_do_not_keep_a_port_waiting() {
    let (mut client, socket) = Raw::pair();
    let (_stopper, stop) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (stream, mut pod) = connection(&listener);
    let port = |stream| Port {
        stream,
        pending: Vec::new(),
    };
    let mut forward = Forward {
        socket,
        ports: vec![port(Some(stream)), port(None)],
        stop: stop.as_fd(),
        unread: true,
        moved: Instant::now(),
    };
    client.send(&frame(LAST | PING, b""));
    client.send(&frame(LAST | BINARY, b"\x02x").repeat(MAX_MESSAGES - 1));
    client.message(b"\0x");
    pod.write_all(b"back").unwrap();
    let mut chunk = vec![0; CHUNK];
    assert!(forward.turn(&mut chunk).unwrap() && forward.unread);
    assert_eq!(client.frame(), Some((PONG, Vec::new())));
    assert_eq!(client.said(), (0, b"back".to_vec()));
    assert!(forward.turn(&mut chunk).unwrap() && !forward.unread);
    assert_eq!(pod.read(&mut [0; 2]).unwrap(), 1);
}

/// A port closes its half, or resets the connection, before it has read the data that waits for it. The other ports go
/// on.
#[test]
fn a_port_that_is_over_does_not_block_the_others() {
    for is_reset in [false, true] {
        let (mut client, socket) = Raw::pair();
        let (_stopper, stop) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ((mut one, first), (two, mut second)) = (connection(&listener), connection(&listener));
        // A socket that is closed with unread data sends a reset.
        one.write_all(b"x").unwrap();
        match is_reset {
            true => drop(first),
            false => first.shutdown(std::net::Shutdown::Write).unwrap(),
        }
        let port = |stream, waits| Port {
            stream: Some(stream),
            pending: vec![0; waits],
        };
        let mut forward = Forward {
            socket,
            ports: vec![port(one, 64 << 20), port(two, 0)],
            stop: stop.as_fd(),
            unread: true,
            moved: Instant::now(),
        };
        client.message(b"\x02two");
        let mut chunk = vec![0; CHUNK];
        while forward.ports[0].stream.is_some() {
            assert!(forward.turn(&mut chunk).unwrap());
        }
        assert!(forward.takes_more());
        assert!(forward.turn(&mut chunk).unwrap());
        let mut bytes = [0; 3];
        second.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"two");
    }
}

/// While data of a pod waits for the client, the client's input is still read. The input does not make the server send
/// more.
#[test]
fn data_of_a_pod_waits_for_its_client() {
    let mut f = forwarded();
    let limit = Some(Duration::from_millis(300));
    f.pods[0].set_write_timeout(limit).unwrap();
    let mut written = 0;
    while let Ok(n) = f.pods[0].write(&[b'x'; 32 << 10]) {
        written += n;
        assert!(written < 64 << 20, "everything is taken");
    }
    for _ in 0..40 {
        f.client.message(b"\0abc");
        f.reads(0, b"abc");
    }
    f.pods.clear();
    let mut came = 0;
    while came < written {
        let (channel, data) = f.client.said();
        assert_eq!(channel, 0);
        came += data.len();
    }
    assert_eq!(f.client.rest(0).1, Some((1000, String::new())));
    f.thread.join().unwrap();
}

/// When one side does not read, the other side must stop, and nothing is lost.
#[test]
fn data_of_a_port_waits_for_its_reader() {
    let mut f = forwarded();
    let sent = f.client.fill(&[&[0][..], &[b'x'; 32 << 10]].concat());
    let mut bytes = vec![0; sent * (32 << 10)];
    f.pods[0].read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == b'x'));
    drop(f.client);
    f.thread.join().unwrap();
}
