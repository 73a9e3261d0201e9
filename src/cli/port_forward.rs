//! The verb `port-forward`: forwards ports of this machine to ports of a pod. The pod may be chosen from a
//! service.
//!
//! Invariants: at most [`MAX_CONNECTIONS`] connections are open at a time, each with its own thread and stream. A
//! connection that fails affects neither the listeners nor the further connections.

mod target;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::target::{Local, Port, To};
use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::client::Client;
use super::error::CliError;
use super::exec;
use super::terminal::say;
use super::workload_pods::{self, Choice, RUNNING_TIMEOUT, running_timeout};
use crate::face::server::web_socket::{Received, Socket};

/// The largest number of open connections. The daemon accepts 64 connections from all its clients together.
const MAX_CONNECTIONS: usize = 32;
const STACK: usize = 256 << 10;
/// The longest time for which the pod may be silent after the client has closed its sending side.
const LAST_WORDS: Duration = Duration::from_secs(30);
/// The largest number of bytes that are read at once, and the number of bytes that are buffered for a slow
/// receiver.
const CHUNK: usize = 32 << 10;
/// The WebSocket subprotocol of port forwarding.
const SUBPROTOCOL: &str = "v4.channel.k8s.io";

/// The verb `port-forward`.
pub const VERB: args::Verb = args::Verb {
    name: "port-forward",
    summary: &[("port-forward POD PORT", "lead a port of this machine to a pod")],
    help: "\
usage: podprobe port-forward POD|KIND/NAME [LOCAL:]PORT… [--address ADDRESS] [-n NAMESPACE] [--root DIR]

Listens on 127.0.0.1 and leads each connection to that port of the pod, from inside the pod, so that it works also
where the pod listens on its loopback alone or has no network. Without LOCAL it is the same number; with 0: or : any
free port. PORT may be a name. Of a service (svc/NAME) the ports are those of the service, and one of its pods is
chosen, of those that get traffic if there are any; of a workload, such as deployment/NAME, one that is ready. It stays
with that pod. Ctrl-C ends it.

      --address ADDRESS    listen there in place of 127.0.0.1; everybody who reaches it reaches the pod
      --pod-running-timeout TIME
                           the longest wait for a pod of a workload to start; default 1m
",
    options: &[
        ROOT,
        NAMESPACE,
        Opt::value("address", None),
        RUNNING_TIMEOUT,
    ],
    run: |raw, out, err| {
        let args = parse(raw).map_err(CliError::Usage)?;
        run(&args, out, err)
    },
};

/// The arguments of `port-forward`.
#[derive(Clone, Debug, PartialEq)]
pub struct PortForward {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// The pod, workload or service to which connections are forwarded.
    to: To,
    /// Namespace of the pod, workload or service; None means all namespaces.
    pub namespace: Option<String>,
    /// Pairs of a local port and a port of the pod or service.
    ports: Vec<(Local, Port)>,
    /// Address to listen on.
    pub address: IpAddr,
    /// The longest wait for a pod of a workload.
    pub running_timeout: Duration,
}

fn parse(raw: &Raw) -> Result<PortForward, String> {
    let words = raw.text_words()?;
    let Some((pod, ports)) = words.split_first().filter(|(_, ports)| !ports.is_empty()) else {
        return Err(
            "'port-forward' needs a pod and a port: podprobe port-forward POD [LOCAL:]PORT".into(),
        );
    };
    let address = match raw.text("address")? {
        None => Ipv4Addr::LOCALHOST.into(),
        Some(text) if text == "localhost" => Ipv4Addr::LOCALHOST.into(),
        Some(text) => text
            .parse()
            .map_err(|_| format!("--address takes an IP address such as 0.0.0.0, not '{text}'"))?,
    };
    Ok(PortForward {
        root: raw.root()?,
        to: To::parse(pod)?,
        namespace: raw.namespace()?,
        ports: ports.iter().map(|p| pair(p)).collect::<Result<_, _>>()?,
        address,
        running_timeout: running_timeout(raw, exec::RUNNING)?,
    })
}

/// Parses a pair of ports: `8080:80`, `80`, `:80`, `8080:http` or `http`.
fn pair(text: &str) -> Result<(Local, Port), String> {
    let bad = || {
        format!("'{text}' is no [LOCAL:]PORT such as 8080:80 or 8080:http; ports are 1 to 65535")
    };
    let (local, remote) = match text.split_once(':') {
        None => (None, text),
        Some((local, remote)) => (Some(local), remote),
    };
    let remote = Port::parse(remote).ok_or_else(bad)?;
    let local = match local {
        None => Local::Same,
        Some("") => Local::Number(0),
        Some(local) => Local::Number(local.parse().map_err(|_| bad())?),
    };
    Ok((local, remote))
}

fn run(
    forward: &PortForward,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    let mut client = Client::connect(&forward.root)?;
    let namespace = forward.namespace.as_deref();
    let snapshot = match &forward.to {
        To::Pod(target) => {
            let place = (forward.root.as_path(), namespace);
            workload_pods::begun(target, forward.running_timeout, &mut client, place)?
        }
        To::Service(_) => client.snapshot()?,
    };
    let (pod, service) = match &forward.to {
        To::Pod(target) => {
            let place = (&*snapshot, namespace);
            let pod = workload_pods::resolve(target, Choice::Attach, &mut client, place, err)?;
            (pod, None)
        }
        To::Service(name) => {
            let services = client.services()?;
            let service = target::service(&services, namespace, name).map_err(CliError::Failed)?;
            let pod = target::pod_of(service, &snapshot).map_err(CliError::Failed)?;
            (pod, Some(service.clone()))
        }
    };
    let ports = forward.ports.iter().map(|(local, port)| {
        let (number, remote) = match &service {
            None => target::of_pod(port, pod).map(|number| (number, number)),
            Some(service) => target::of_service(port, service, pod),
        }?;
        let local = match local {
            Local::Same => number,
            Local::Number(local) => *local,
        };
        Ok((local, remote))
    });
    let ports: Vec<(u16, u16)> = ports
        .collect::<Result<_, String>>()
        .map_err(CliError::Failed)?;
    let path: Arc<str> = format!("/portForward{}", exec::path(pod, "")).into();
    let busy = Arc::<AtomicUsize>::default();
    let mut listeners = Vec::new();
    for (local, remote) in &ports {
        let at = SocketAddr::new(forward.address, *local);
        let failed = |e: io::Error| CliError::Failed(format!("cannot listen on {at}: {e}"));
        let listener = TcpListener::bind(at).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        writeln!(out, "Forwarding from {at} -> {remote}")?;
        listeners.push((listener, at, *remote));
    }
    out.flush()?;
    thread::scope(|scope| {
        for (listener, at, remote) in &listeners {
            let (path, busy) = (&path, &busy);
            scope.spawn(move || accept(listener, *at, *remote, (&forward.root, path), busy));
        }
    });
    Ok(ExitCode::SUCCESS)
}

/// Accepts connections until the process ends.
fn accept(
    listener: &TcpListener,
    at: SocketAddr,
    remote: u16,
    (root, path): (&Path, &Arc<str>),
    busy: &Arc<AtomicUsize>,
) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) => {
                say(&format!("cannot accept a connection on {at}: {e}"));
                thread::park_timeout(Duration::from_millis(200));
                continue;
            }
        };
        let Some(place) = Place::take(busy) else {
            say(&format!(
                "{MAX_CONNECTIONS} connections are open; one more is closed"
            ));
            continue;
        };
        say(&format!("Handling connection for {}", at.port()));
        let (root, path) = (root.to_owned(), path.clone());
        let serve = move || {
            let _place = place;
            if let Err(e) = serve(stream, remote, &root, &path) {
                say(&format!("an error occurred forwarding to {remote}: {e}"));
            }
        };
        let thread = thread::Builder::new().name("connection".into());
        if let Err(e) = thread.stack_size(STACK).spawn(serve) {
            say(&format!("cannot start a thread for a connection: {e}"));
        }
    }
}

/// A place among the connections that may be open at once. The place is free again when the value is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes a place. Returns None if all places are taken.
    fn take(busy: &Arc<AtomicUsize>) -> Option<Self> {
        let before = busy.fetch_add(1, Ordering::SeqCst);
        let place = Self(busy.clone());
        (before < MAX_CONNECTIONS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(stream: TcpStream, remote: u16, root: &Path, path: &str) -> io::Result<()> {
    let client = Client::connect(root).map_err(io::Error::other)?;
    let target = format!("{path}?port={remote}");
    let socket = client.web_socket(&target, SUBPROTOCOL);
    stream.set_nonblocking(true)?;
    let tunnel = Tunnel {
        socket: socket.map_err(io::Error::other)?,
        stream,
        pending: Vec::new(),
        begun: [false; 2],
        unread: true,
        is_open: true,
    };
    tunnel.run()
}

/// A connection of a client, with its stream to the pod.
struct Tunnel {
    socket: Socket,
    stream: TcpStream,
    /// Bytes from the pod on their way to the client.
    pending: Vec<u8>,
    /// The state of the stream's two channels: true if the channel has begun. The first message of a channel has
    /// the number of the port.
    begun: [bool; 2],
    /// True if messages may have arrived that were not read yet.
    unread: bool,
    /// True if the client may send more bytes.
    is_open: bool,
}

impl Tunnel {
    fn run(mut self) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            // Some messages may be in the socket's own buffer, where `poll` does not see them. These messages came
            // with the handshake, or were left unread because the client is slow.
            let waits = !self.unread || self.pending.len() >= CHUNK;
            if waits && !self.wait()? {
                return Ok(());
            }
            if self.socket.has_backlog() {
                self.socket.flush()?;
            }
            // The bytes that have arrived are delivered even if the stream has failed.
            let received = self.receive();
            self.deliver()?;
            if !received? && self.pending.is_empty() {
                return Ok(());
            }
            if self.is_open && !self.socket.has_backlog() {
                self.is_open = self.send(&mut chunk)?;
            }
        }
    }

    /// Waits until the client or the stream has bytes or room. Returns false if the client has closed its sending
    /// side and the pod has been silent for too long. The protocol cannot close one direction only. So the pod
    /// does not learn that the client sends no more, and may never close the connection.
    fn wait(&self) -> io::Result<bool> {
        let patience = match self.is_open {
            true => PollTimeout::NONE,
            false => PollTimeout::try_from(LAST_WORDS).unwrap_or(PollTimeout::MAX),
        };
        match poll(&mut self.watched(), patience) {
            Ok(0) => Ok(false),
            Ok(_) | Err(Errno::EINTR) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    fn watched(&self) -> Vec<PollFd<'_>> {
        let mut events = PollFlags::empty();
        events.set(
            PollFlags::POLLIN,
            self.is_open && !self.socket.has_backlog(),
        );
        events.set(PollFlags::POLLOUT, !self.pending.is_empty());
        let mut fds = vec![PollFd::new(self.stream.as_fd(), events)];
        // While the client reads nothing, the socket to the daemon is not polled for input. If the daemon has
        // ended, `poll` would return at once again and again.
        let reads = self.pending.len() < CHUNK;
        if reads || self.socket.has_backlog() {
            fds.push(PollFd::new(self.socket.as_fd(), self.socket.events(reads)));
        }
        fds
    }

    /// Receives messages for the client. Returns false at the end of the stream.
    fn receive(&mut self) -> io::Result<bool> {
        self.unread = false;
        while self.pending.len() < CHUNK {
            let message = match self.socket.receive()? {
                Received::Message(message) => message,
                Received::Nothing => return Ok(true),
                Received::Closed => return Ok(false),
            };
            let Some((&channel @ (0 | 1), data)) = message.split_first() else {
                return Err(ErrorKind::InvalidData.into());
            };
            match (
                std::mem::replace(&mut self.begun[usize::from(channel)], true),
                channel,
            ) {
                (false, _) => {}
                (true, 0) => self.pending.extend_from_slice(data),
                (true, _) => {
                    return Err(io::Error::other(String::from_utf8_lossy(data).into_owned()));
                }
            }
        }
        self.unread = true;
        Ok(true)
    }

    fn deliver(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            match self.stream.write(&self.pending) {
                Ok(n) => drop(self.pending.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends bytes of the client to the pod. Returns false if the client has closed its sending side.
    fn send(&mut self, chunk: &mut [u8]) -> io::Result<bool> {
        match self.stream.read(chunk) {
            Ok(0) => Ok(false),
            Ok(n) => self.socket.send(0, &chunk[..n]).map(|()| true),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;
    use crate::cli::workload_pods::Target;
    use crate::face::server::transport::Transport;

    #[test]
    fn a_client_that_takes_nothing_does_not_keep_the_verb_busy_when_the_daemon_has_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, daemon) = std::os::unix::net::UnixStream::pair().unwrap();
        let transport = Transport::unix(ours).unwrap();
        drop(daemon);
        let mut tunnel = Tunnel {
            socket: Socket::of_server(transport, Vec::new()),
            stream: listener.accept().unwrap().0,
            pending: vec![0; CHUNK - 1],
            begun: [true; 2],
            unread: false,
            is_open: true,
        };
        let at_once = |tunnel: &Tunnel| {
            let mut fds = tunnel.watched();
            // The client's socket has room to write, but this test is about the socket to the daemon.
            fds[0].set_events(PollFlags::empty());
            poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
        };
        assert!(
            at_once(&tunnel),
            "there is room for what the daemon said last"
        );
        tunnel.pending.push(0);
        assert!(!at_once(&tunnel));
    }

    /// A client such as `nc -N` gets the answer, although it closes its sending side before the answer comes.
    #[test]
    fn a_client_that_has_ended_its_side_gets_the_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut daemon = Socket::of_client(Transport::unix(theirs).unwrap(), Vec::new());
        let stream = listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        let tunnel = Tunnel {
            socket: Socket::of_server(Transport::unix(ours).unwrap(), Vec::new()),
            stream,
            pending: Vec::new(),
            begun: [true; 2],
            unread: true,
            is_open: true,
        };
        let runs = thread::spawn(move || tunnel.run());
        client.write_all(b"question").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let asked = loop {
            match daemon.receive().unwrap() {
                Received::Message(message) => break message,
                Received::Closed => panic!("it was given up"),
                Received::Nothing => {
                    let mut fds = [PollFd::new(daemon.as_fd(), PollFlags::POLLIN)];
                    poll(&mut fds, PollTimeout::NONE).unwrap();
                }
            }
        };
        assert_eq!(&asked[1..], b"question");
        daemon.send(0, b"answer").unwrap();
        drop(daemon);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
        let _ = runs.join().unwrap();
    }

    #[test]
    fn so_many_connections_have_a_place() {
        let busy = Arc::default();
        let mut places: Vec<_> = (0..MAX_CONNECTIONS).map(|_| Place::take(&busy)).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(Place::take(&busy).is_none());
        places.pop();
        assert!(Place::take(&busy).is_some());
    }

    #[test]
    fn ports_are_one_or_two_numbers_or_names() {
        let number = Port::Number;
        assert_eq!(pair("80"), Ok((Local::Same, number(80))));
        assert_eq!(pair("8080:80"), Ok((Local::Number(8080), number(80))));
        assert_eq!(pair(":80"), Ok((Local::Number(0), number(80))));
        assert_eq!(pair("0:80"), Ok((Local::Number(0), number(80))));
        let http = || Port::Name("http".into());
        assert_eq!(pair("http"), Ok((Local::Same, http())));
        assert_eq!(pair("8080:http"), Ok((Local::Number(8080), http())));
        for bad in ["", "0", "80:", "a:80", "80:0", "65536", "1:2:3", "80:-x"] {
            assert_eq!(
                pair(bad),
                Err(format!(
                    "'{bad}' is no [LOCAL:]PORT such as 8080:80 or 8080:http; ports are 1 to 65535"
                ))
            );
        }
    }

    #[test]
    fn it_listens_on_loopback_unless_told_otherwise() {
        let of = |line: &str| testing::parse(&VERB, parse, line);
        assert_eq!(
            of("port-forward a 80").unwrap().address,
            Ipv4Addr::LOCALHOST
        );
        let all = of("port-forward a 80 81 --address 0.0.0.0").unwrap();
        assert_eq!(all.address, Ipv4Addr::UNSPECIFIED);
        assert_eq!(all.ports.len(), 2);
        let service = of("port-forward svc/web 80").unwrap();
        assert_eq!(service.to, To::Service("web".into()));
        let workload = Target::parse("deployment/web").unwrap();
        assert_eq!(
            of("port-forward deploy/web 80").unwrap().to,
            To::Pod(workload)
        );
        assert!(of("port-forward image/web 80").is_err());
        assert!(of("port-forward a 80 --address here").is_err());
        assert!(of("port-forward a").is_err());
    }
}
