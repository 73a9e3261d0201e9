//! Network namespaces with links between them, and servers and clients in them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::uninterrupted::uninterrupted;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{
    AddressFamily, Shutdown, SockFlag, SockType, SockaddrStorage, bind, connect, getsockopt,
    shutdown, socket, sockopt,
};

/// How long a client waits for an answer that should come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits where none should.
pub(crate) const SILENCE: Duration = Duration::from_millis(400);

/// A network namespace; it ends with this.
pub(crate) struct Namespace {
    file: File,
    /// A thread in it, by which `ip` knows it.
    tid: i32,
    hold: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        let (tell, told) = sync_channel(1);
        let (hold, wait) = sync_channel::<()>(1);
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let file = File::open("/proc/thread-self/ns/net").unwrap();
            tell.send((file, nix::unistd::gettid().as_raw())).unwrap();
            let _ = wait.recv();
        });
        let (file, tid) = told.recv().unwrap();
        let namespace = Self {
            file,
            tid,
            hold: Some(hold),
            thread: Some(thread),
        };
        namespace.ip("link set lo up");
        namespace
    }

    /// A thread in it.
    pub(crate) fn tid(&self) -> i32 {
        self.tid
    }

    /// Runs `inside` in it. Sockets that are made there stay in it.
    pub(crate) fn run<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        let run = || {
            setns(&self.file, CloneFlags::CLONE_NEWNET).unwrap();
            inside()
        };
        std::thread::scope(|s| match s.spawn(run).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// `ip` in it.
    #[track_caller]
    pub(crate) fn ip(&self, words: &str) {
        self.command(&format!("ip {words}"));
    }

    /// A command with its arguments, and what it prints.
    #[track_caller]
    pub(crate) fn command(&self, line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        let done = self.run(|| command.output());
        let done = done.unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(done.status.success(), "{line}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    pub(crate) fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/net/{name}");
        self.run(|| fs::write(&path, value)).unwrap();
    }

    /// A link to another one: our end and theirs.
    pub(crate) fn link(&self, ours: &str, other: &Namespace, theirs: &str) {
        let tid = other.tid;
        self.ip(&format!(
            "link add {ours} type veth peer name {theirs} netns {tid}"
        ));
        self.ip(&format!("link set {ours} up"));
        other.ip(&format!("link set {theirs} up"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.hold.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client has this of its question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server's name, and the client's address as the server sees it.
    From(String, IpAddr),
    /// Nobody is there, and that is said.
    Refused,
    /// It was taken, and then given up.
    Reset,
    /// Nothing came.
    Silence,
}

impl Answer {
    #[track_caller]
    pub(crate) fn name(self) -> String {
        match self {
            Self::From(name, _) => name,
            other => panic!("no answer: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn seen(self) -> IpAddr {
        match self {
            Self::From(_, seen) => seen,
            other => panic!("no answer: {other:?}"),
        }
    }

    fn of(result: std::io::Result<Vec<u8>>) -> Self {
        match result {
            Ok(text) if text.is_empty() => Self::Silence,
            Ok(text) => {
                let text = String::from_utf8(text).unwrap();
                let (name, seen) = text.split_once(' ').unwrap();
                Self::From(name.into(), seen.parse().unwrap())
            }
            Err(e) => match e.raw_os_error().map(Errno::from_raw) {
                // EPERM: the node's own packet was refused on its way out. EHOSTUNREACH: by a route.
                Some(Errno::ECONNREFUSED | Errno::EPERM | Errno::EHOSTUNREACH) => Self::Refused,
                Some(Errno::ECONNRESET | Errno::EPIPE) => Self::Reset,
                Some(Errno::EAGAIN | Errno::ETIMEDOUT) => Self::Silence,
                _ => panic!("neither answer nor refusal nor silence: {e}"),
            },
        }
    }
}

/// Asks over TCP, with a new connection.
pub(crate) fn tcp(
    from: &Namespace,
    source: Option<IpAddr>,
    to: SocketAddr,
    patience: Duration,
) -> Answer {
    let stream = tcp_connect(from, source, to, patience);
    Answer::of(stream.and_then(|mut stream| tcp_ask(&mut stream)))
}

/// Asks on a connection; the answer is its end.
pub(crate) fn tcp_ask(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    stream.write_all(b"?")?;
    stream.read_to_end(&mut text)?;
    Ok(text)
}

/// A connection.
pub(crate) fn tcp_connect(
    from: &Namespace,
    source: Option<IpAddr>,
    to: SocketAddr,
    patience: Duration,
) -> std::io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = from.run(|| socket(family, SockType::Stream, flags, None))?;
    if let Some(source) = source {
        let address = SockaddrStorage::from(SocketAddr::new(source, 0));
        bind(fd.as_raw_fd(), &address)?;
    }
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(e) => return Err(e.into()),
    }
    wait_for(fd.as_fd(), PollFlags::POLLOUT, patience)?;
    match getsockopt(&fd, sockopt::SocketError)? {
        0 => {}
        code => return Err(std::io::Error::from_raw_os_error(code)),
    }
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(stream)
}

/// ETIMEDOUT when it takes longer than `patience`.
fn wait_for(fd: BorrowedFd<'_>, events: PollFlags, patience: Duration) -> std::io::Result<()> {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap();
        match poll(&mut [PollFd::new(fd, events)], left) {
            Ok(0) if Instant::now() >= end => return Err(Errno::ETIMEDOUT.into()),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// A UDP client with a port of its own; it sends to one address.
pub(crate) fn udp_client(from: &Namespace, source: &str, to: SocketAddr) -> UdpSocket {
    let source: IpAddr = source.parse().unwrap();
    let client = from
        .run(|| UdpSocket::bind(SocketAddr::new(source, 0)))
        .unwrap();
    client.connect(to).unwrap();
    client
}

/// Asks over UDP, from the same port each time.
pub(crate) fn udp_ask(client: &UdpSocket, patience: Duration) -> Answer {
    client.set_read_timeout(Some(patience)).unwrap();
    let mut buffer = [0; 200];
    let asked = client.send(b"?");
    let asked = asked.and_then(|_| uninterrupted(|| client.recv(&mut buffer)));
    Answer::of(asked.map(|length| buffer[..length].to_vec()))
}

/// Answers on TCP and UDP with its name and the address of the client.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    listener: TcpListener,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(at: &Namespace, name: &str, address: SocketAddr) -> Self {
        let (listener, socket) = at.run(|| {
            let listener = TcpListener::bind(address).unwrap();
            let socket = UdpSocket::bind(address).unwrap();
            (listener, socket)
        });
        let stop = Arc::new(AtomicBool::new(false));
        let (accepting, own) = (listener.try_clone().unwrap(), name.to_owned());
        let tcp = std::thread::spawn(move || serve_tcp(&accepting, &own));
        let (name, told) = (name.to_owned(), stop.clone());
        let udp = std::thread::spawn(move || serve_udp(&socket, &name, &told));
        Self {
            address,
            listener,
            stop,
            threads: vec![tcp, udp],
        }
    }
}

/// One line for each connection, when its client has asked.
fn serve_tcp(listener: &TcpListener, name: &str) {
    while let Ok((mut stream, peer)) = listener.accept() {
        let answer = format!("{name} {}", peer.ip());
        std::thread::spawn(move || {
            let _ = stream.set_read_timeout(Some(2 * PATIENCE));
            if stream.read_exact(&mut [0]).is_ok() {
                let _ = stream.write_all(answer.as_bytes());
            }
        });
    }
}

fn serve_udp(socket: &UdpSocket, name: &str, stop: &AtomicBool) {
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut buffer = [0; 200];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((_, peer)) = socket.recv_from(&mut buffer) {
            let answer = format!("{name} {}", peer.ip());
            let _ = socket.send_to(answer.as_bytes(), peer);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
