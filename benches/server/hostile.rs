//! Hostile clients: a process of their own, this program again, in which one thread plays all of them. One that the server
//! closes, or that has left, comes again at once.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podprobe::base::wire::tls::trusting_config;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde::{Deserialize, Serialize};

use super::support::Guard;

/// In the environment of the process: what it is to do.
const ROLE: &str = "BENCH_HOSTILE";
/// After everybody had a turn.
const TICK: Duration = Duration::from_millis(10);
/// A client that nobody ends leaves by itself.
const LIFE: Duration = Duration::from_secs(20);
/// A connection on loopback takes longer only where nobody accepts.
const PATIENCE: Duration = Duration::from_millis(200);
/// Sent in a turn by a client that sends much.
const MUCH: usize = 16 << 10;

/// Where the server listens.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Doors {
    pub(super) health: u16,
    pub(super) tls: u16,
    pub(super) socket: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Order {
    doors: Doors,
    clients: usize,
    milliseconds: u64,
}

/// What came of them at one address.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Count {
    connections: u64,
    /// Clients to whom the server has said something; over TLS that is after the handshake.
    answered: u64,
    /// Of these the ones with a WebSocket.
    upgraded: u64,
    megabytes: f64,
}

/// What came of all of them.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Found {
    health: Count,
    tls: Count,
    unix: Count,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, door) in [
            ("health", self.health),
            ("TLS", self.tls),
            ("unix", self.unix),
        ] {
            let Count {
                connections,
                answered,
                upgraded,
                megabytes,
            } = door;
            write!(
                f,
                "{name}: {connections} connections, {answered} answered, {upgraded} WebSockets, {megabytes:.0} MB; "
            )?;
        }
        Ok(())
    }
}

impl Found {
    pub(super) fn is_at_every_door(&self) -> bool {
        let all = [self.health, self.tls, self.unix];
        all.iter().all(|door| door.answered > 0) && self.unix.upgraded > 0
    }
}

/// The process that plays them.
pub(super) struct Hostile {
    said: BufReader<ChildStdout>,
    _guard: Guard,
}

impl Hostile {
    pub(super) fn start(doors: &Doors, clients: usize, time: Duration) -> Self {
        let order = Order {
            doors: doors.clone(),
            clients,
            milliseconds: time.as_millis() as u64,
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, serde_json::to_string(&order).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let _guard = Guard::new(move || {
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
        });
        Self { said, _guard }
    }

    /// Waits for the end of its time.
    pub(super) fn end(mut self) -> Found {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("the hostile clients: {e}: {line:?}"))
    }
}

/// Plays the clients when this process is the one for it; otherwise returns.
pub(super) fn role() {
    let Ok(order) = std::env::var(ROLE) else {
        return;
    };
    let order: Order = serde_json::from_str(&order).unwrap();
    let end = Instant::now() + Duration::from_millis(order.milliseconds);
    let mut found = Found::default();
    let mut clients: Vec<Option<Client>> = (0..order.clients).map(|_| None).collect();
    while Instant::now() < end {
        for (n, place) in clients.iter_mut().enumerate() {
            let (door, kind) = (n % 3, KINDS[n / 3 % KINDS.len()]);
            let count = match door {
                0 => &mut found.health,
                1 => &mut found.tls,
                _ => &mut found.unix,
            };
            turn(place, count, || {
                // Of the clients of a kind every other one speaks TLS.
                let speaks = (n / 3 / KINDS.len()).is_multiple_of(2);
                let stream = connect(&order.doors, door, speaks)?;
                Ok(Client::new(stream, kind, door == 2))
            });
        }
        std::thread::sleep(TICK);
    }
    println!("{}", serde_json::to_string(&found).unwrap());
    std::process::exit(0);
}

/// A client comes, or does the next thing.
fn turn(place: &mut Option<Client>, count: &mut Count, come: impl FnOnce() -> io::Result<Client>) {
    match place {
        None => {
            *place = come().ok();
            count.connections += u64::from(place.is_some());
        }
        Some(client) => {
            if client.act(count).is_err() {
                *place = None;
            }
        }
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

fn connect(doors: &Doors, door: usize, speaks: bool) -> io::Result<Box<dyn Stream>> {
    let tcp = |port: u16| -> io::Result<TcpStream> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&at, PATIENCE)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    Ok(match door {
        0 => Box::new(tcp(doors.health)?),
        1 if speaks => {
            let name = ServerName::try_from("127.0.0.1").unwrap();
            let connection = ClientConnection::new(trusting_config(), name).unwrap();
            Box::new(StreamOwned::new(connection, tcp(doors.tls)?))
        }
        1 => Box::new(tcp(doors.tls)?),
        _ => {
            let stream = UnixStream::connect(&doors.socket)?;
            stream.set_nonblocking(true)?;
            Box::new(stream)
        }
    })
}

/// What a client does that it should not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A byte of its head in each turn.
    SlowHead,
    /// A head without end.
    HugeHead,
    /// A body for which nobody asked, without end.
    EndlessBody,
    /// The same in chunks.
    EndlessChunks,
    /// Connects and says nothing.
    HalfOpen,
    /// Asks and is gone.
    Leaves,
    /// Asks and asks, and takes no answer.
    ReadsNothing,
    /// What nobody understands; on the TLS address what looks like a handshake first.
    Garbage,
    /// Frames right behind the handshake, whatever comes of it.
    EarlyFrames,
    /// Pings without end.
    Pings,
    /// A message without end in frames of one byte.
    Fragments,
    /// Frames that no client may send.
    BadFrames,
    /// Much input for a command whose output it does not take.
    UnreadOutput,
}

const KINDS: [Kind; 13] = [
    Kind::SlowHead,
    Kind::HugeHead,
    Kind::EndlessBody,
    Kind::EndlessChunks,
    Kind::HalfOpen,
    Kind::Leaves,
    Kind::ReadsNothing,
    Kind::Garbage,
    Kind::EarlyFrames,
    Kind::Pings,
    Kind::Fragments,
    Kind::BadFrames,
    Kind::UnreadOutput,
];

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\n\r\n";
const EXEC: &str = "GET /exec/default/web-node/main?input=1&output=1&command=cat HTTP/1.1\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n";

impl Kind {
    fn opening(self) -> Vec<u8> {
        match self {
            Self::SlowHead | Self::HugeHead => b"GET /healthz HTTP/1.1\r\nA: ".to_vec(),
            Self::EndlessBody => {
                b"POST /healthz HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n".to_vec()
            }
            Self::EndlessChunks => {
                b"POST /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()
            }
            Self::HalfOpen => Vec::new(),
            Self::Leaves | Self::ReadsNothing => HEALTH.to_vec(),
            Self::Garbage => b"\x16\x03\x01\x02\x00\x01\x00\x01".to_vec(),
            Self::EarlyFrames => [EXEC.as_bytes(), &frame(0x02, &[0])].concat(),
            Self::Pings | Self::Fragments | Self::BadFrames | Self::UnreadOutput => EXEC.into(),
        }
    }

    /// What it sends in each turn after that.
    fn more(self, turn: u64) -> Vec<u8> {
        match self {
            Self::SlowHead => b"x".to_vec(),
            Self::HugeHead | Self::EndlessBody => vec![b'x'; MUCH],
            Self::EndlessChunks => [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat(),
            Self::HalfOpen | Self::Leaves => Vec::new(),
            Self::ReadsNothing => HEALTH.repeat(100),
            Self::Garbage => {
                let mix = |n: u64| (n + turn).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
                (0..512).flat_map(mix).collect()
            }
            Self::EarlyFrames => frame(0x00, b"x").repeat(200),
            Self::Pings => frame(0x89, b"ping").repeat(500),
            // The first one begins the message.
            Self::Fragments if turn == 0 => frame(0x02, &[0]),
            Self::Fragments => frame(0x00, b"x").repeat(500),
            // Reserved bits, then one that would be larger than memory.
            Self::BadFrames if turn.is_multiple_of(2) => vec![0xff; 64],
            Self::BadFrames => [[0x82, 0xff].as_slice(), &[0x7f; 12]].concat(),
            Self::UnreadOutput => frame(0x82, &[0; 120]).repeat(100),
        }
    }

    /// Whether it goes on only once it has a WebSocket.
    fn needs_handshake(self) -> bool {
        matches!(
            self,
            Self::Pings | Self::Fragments | Self::BadFrames | Self::UnreadOutput
        )
    }
}

/// A frame of a client with less than 126 bytes, masked with zeros.
fn frame(first: u8, data: &[u8]) -> Vec<u8> {
    let head = [first, 0x80 | u8::try_from(data.len()).unwrap(), 0, 0, 0, 0];
    [head.as_slice(), data].concat()
}

struct Client {
    stream: Box<dyn Stream>,
    kind: Kind,
    /// It waits for the answer to its handshake.
    waits: bool,
    is_answered: bool,
    /// Not taken by the server yet.
    unsent: Vec<u8>,
    turn: u64,
    until: Instant,
}

impl Client {
    /// Where no WebSocket is given, what would follow the handshake is sent behind it all the same.
    fn new(stream: Box<dyn Stream>, kind: Kind, gives_web_sockets: bool) -> Self {
        Self {
            stream,
            kind,
            waits: kind.needs_handshake() && gives_web_sockets,
            is_answered: false,
            unsent: kind.opening(),
            turn: 0,
            until: Instant::now() + LIFE,
        }
    }

    /// Reads what there is and sends what is taken. An error is its end.
    fn act(&mut self, count: &mut Count) -> io::Result<()> {
        self.read(count)?;
        if self.unsent.is_empty() && !self.waits {
            self.unsent = self.kind.more(self.turn);
            self.turn += 1;
        }
        self.send(count)?;
        let leaves = self.kind == Kind::Leaves && self.unsent.is_empty();
        match leaves || Instant::now() > self.until {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    fn read(&mut self, count: &mut Count) -> io::Result<()> {
        let is_deaf = matches!(self.kind, Kind::ReadsNothing | Kind::UnreadOutput);
        if is_deaf && !self.waits {
            return Ok(());
        }
        let mut chunk = [0; MUCH];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.hear(&chunk[..n], count);
                Ok(())
            }
            Err(e) => or_wait(e),
        }
    }

    fn hear(&mut self, said: &[u8], count: &mut Count) {
        if std::mem::replace(&mut self.is_answered, true) {
            return;
        }
        count.answered += 1;
        if said.starts_with(b"HTTP/1.1 101 ") {
            count.upgraded += 1;
            self.waits = false;
        }
    }

    fn send(&mut self, count: &mut Count) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        match self.stream.write(&self.unsent) {
            Ok(n) => {
                self.unsent.drain(..n);
                count.megabytes += n as f64 / 1e6;
                self.stream.flush().or_else(or_wait)
            }
            Err(e) => or_wait(e),
        }
    }
}

fn or_wait(e: io::Error) -> io::Result<()> {
    match e.kind() {
        ErrorKind::WouldBlock => Ok(()),
        _ => Err(e),
    }
}
