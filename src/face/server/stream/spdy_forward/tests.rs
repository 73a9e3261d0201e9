use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use super::super::super::transport::Transport;
use super::super::super::web_socket::Socket;
use super::super::pipe::Plain;
use super::*;
use crate::base::wire::dial::{Address, DialError, Dialer, End};

const CEILING: Duration = Duration::from_secs(20);

/// The streams that a client of an API server opened at a kubelet for port 8080: an error stream that it ends at once,
/// and a data stream.
const ERROR_STREAM: &str = "80030001000000430000000100000000000078f9e3c6a7c2626060608694bf452520dac2c0c280818181b3081\
25f99290c0c0c8c06e0945852949a980b2d6c58538b8af28b00000000ffff0000000101000000";
const DATA_STREAM: &str = "800300010000001b00000003000000000000826a46956249492c49246c24000000ffff";
/// The recorded answers of the kubelet to both.
const REPLIES: &str = "80030002000000140000000178f9e3c6a7c26260606000000000ffff800300020000000c00000003026100000000ffff";
/// The recorded end of the data stream, and that of the error stream.
const ENDS: &str = "00000003010000000000000101000000";

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(pair).collect()
}

fn dial_to(listener: &TcpListener) -> Result<PortSocket, Unreachable> {
    let dialer = Dialer {
        namespace: None,
        deadline: Instant::now() + CEILING,
        observer: &(),
    };
    let at = Address::Tcp(listener.local_addr().unwrap());
    let socket = dialer.dial(at, End::Close)?;
    socket.set_nonblocking().unwrap();
    Ok(socket)
}

/// A client that has opened a pair of streams, and has read the replies.
struct Client {
    bytes: BufReader<UnixStream>,
}

impl Client {
    fn send(&mut self, hex: &str) {
        self.bytes.get_mut().write_all(&bytes_of(hex)).unwrap();
    }

    #[track_caller]
    fn reads(&mut self, expected: &[u8]) {
        let mut bytes = vec![0; expected.len()];
        self.bytes.read_exact(&mut bytes).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            String::from_utf8_lossy(expected)
        );
        assert_eq!(bytes, expected);
    }
}

/// Serves a client over a plain connection while `test` runs, and returns how the service has ended.
fn served(
    dial: impl Fn(u16) -> Result<PortSocket, Unreachable> + Sync,
    test: impl FnOnce(&mut Client),
) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(CEILING)).unwrap();
    let mut client = Client {
        bytes: BufReader::new(ours),
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let plain = Plain::new(Transport::unix(theirs).unwrap(), Vec::new());
            let pod = ("srv", "");
            SpdyForward::new(Pipe::Plain(plain), pod, &dial, stopped.as_fd()).run()
        });
        test(&mut client);
        drop(client);
        server.join().unwrap()
    })
}

#[test]
fn a_recorded_connection_is_answered_as_by_a_kubelet() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dial = |port| {
        assert_eq!(port, 8080);
        dial_to(&listener)
    };
    let done = served(dial, |client| {
        client.send(ERROR_STREAM);
        client.send(DATA_STREAM);
        client.reads(&bytes_of(REPLIES));
        let mut pod: TcpStream = listener.accept().unwrap().0;
        pod.set_read_timeout(Some(CEILING)).unwrap();
        // A piece of data, and the end of the data.
        client.send("0000000301000003474554");
        let mut got = String::new();
        pod.read_to_string(&mut got).unwrap();
        assert_eq!(got, "GET", "the end of the data reaches the port");
        pod.write_all(b"hello\n").unwrap();
        client.reads(b"\0\0\0\x03\0\0\0\x06hello\n");
        drop(pod);
        client.reads(&bytes_of(ENDS));
    });
    done.unwrap();
}

#[test]
fn more_than_a_window_is_sent_without_any_window_update() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let done = served(
        |_| dial_to(&listener),
        |client| {
            client.send(ERROR_STREAM);
            client.send(DATA_STREAM);
            client.reads(&bytes_of(REPLIES));
            let mut pod = listener.accept().unwrap().0;
            let writer = thread::spawn(move || pod.write_all(&[b'x'; 1 << 20]).unwrap());
            let mut sum = 0;
            while sum < 1 << 20 {
                let mut head = [0; 8];
                client.bytes.read_exact(&mut head).unwrap();
                let [0, 0, 0, 3, 0, a, b, c] = head else {
                    panic!("{head:?}");
                };
                let size = u32::from_be_bytes([0, a, b, c]) as usize;
                client.bytes.read_exact(&mut vec![0; size]).unwrap();
                sum += size;
            }
            writer.join().unwrap();
            client.reads(&bytes_of(ENDS));
        },
    );
    done.unwrap();
}

#[test]
fn a_port_at_which_nobody_listens_is_told_on_the_error_stream() {
    let refused = |_| Err(DialError::Failed("connection refused".to_owned()).into());
    let done = served(refused, |client| {
        client.send(ERROR_STREAM);
        client.send(DATA_STREAM);
        client.reads(&bytes_of(REPLIES));
        let text = "error forwarding port 8080 to pod srv, uid : connection refused";
        client.reads(&[0, 0, 0, 1, 0, 0, 0, text.len() as u8]);
        client.reads(text.as_bytes());
        client.reads(&bytes_of(ENDS));
        // A ping is answered, and its number comes back.
        client.send("800300060000000400000005");
        client.reads(&bytes_of("800300060000000400000005"));
    });
    done.unwrap();
}

#[test]
fn a_client_that_breaks_the_protocol_is_cut_off() {
    let done = served(
        |_| Err(Unreachable::NoPod),
        |client| {
            client.send("8002000100000000");
            let mut rest = Vec::new();
            client.bytes.read_to_end(&mut rest).unwrap();
        },
    );
    assert_eq!(done.unwrap_err().kind(), ErrorKind::InvalidData);
}

fn asked(stream: u32, headers: &[(&str, &str)]) -> Option<Asked> {
    let owned = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
    Asked::of(stream, &headers.iter().map(owned).collect::<Vec<_>>())
}

#[test]
fn a_stream_needs_a_port_and_a_type() {
    let error = ("streamtype", "error");
    for bad in [
        &[error][..],
        &[error, ("port", "0")],
        &[error, ("port", "65536")],
        &[("port", "80")],
        &[("port", "80"), ("streamtype", "other")],
    ] {
        assert_eq!(asked(1, bad), None, "{bad:?}");
    }
    let request = |stream, kind| {
        let asked = asked(stream, &[("port", "80"), ("streamtype", kind)]);
        asked.unwrap().request
    };
    assert_eq!(request(5, "error"), "5");
    assert_eq!(request(7, "data"), "5", "the stream before it is its error");
    let named = asked(9, &[("port", "80"), error, ("requestid", "3")]);
    assert_eq!(named.unwrap().request, "3");
}

#[test]
fn a_pair_that_is_not_complete_in_time_is_given_up() {
    let mut pair = Pair::new("0");
    let error = asked(1, &[("port", "80"), ("streamtype", "error")]).unwrap();
    assert_eq!(pair.add(&error, 1), Ok(()));
    assert_eq!(pair.add(&error, 3), Err("error stream already assigned"));
    assert!(!pair.is_late(pair.begun + PAIR_LIMIT - Duration::from_millis(1)));
    assert!(pair.is_late(pair.begun + PAIR_LIMIT));
}

#[test]
fn in_a_web_socket_the_frames_are_binary_messages() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(CEILING)).unwrap();
    let refused = |_| Err(Unreachable::NoPod);
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let transport = Transport::unix(theirs).unwrap();
            let pipe = Pipe::WebSocket(Box::new(Socket::of_client(transport, Vec::new())));
            SpdyForward::new(pipe, ("srv", "u"), &refused, stopped.as_fd()).run()
        });
        // A frame of SPDY may be cut anywhere, so each message has 20 bytes. The mask is 0.
        let bytes = bytes_of(&[ERROR_STREAM, DATA_STREAM].concat());
        for piece in bytes.chunks(20) {
            let head = [0x82, 0x80 | piece.len() as u8, 0, 0, 0, 0];
            ours.write_all(&[&head[..], piece].concat()).unwrap();
        }
        let expected = "821c80030002000000140000000178f9e3c6a7c26260606000000000ffff\
            8214800300020000000c00000003026100000000ffff";
        let mut replies = vec![0; expected.len() / 2];
        ours.read_exact(&mut replies).unwrap();
        assert_eq!(replies, bytes_of(expected));
        drop(ours);
        let _ = server.join().unwrap();
    });
}
