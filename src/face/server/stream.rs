//! Streams between a WebSocket and what a pod has: a command, a container's own process, a port.
//!
//! Invariants: one thread for each, which waits in `poll` only. Nothing is read that cannot be handed on: a client that does not
//! read stops its own command and nothing else. A client that has gone ends its command.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd;

use super::channels::{ERROR, MessageError, Protocol, STDERR, STDOUT, Said, StreamEnd, said};
use super::error::Unreachable;
use super::web_socket::{Received, Socket};
use crate::base::wire::socket::Socket as PortSocket;
use crate::engine::runtime::{Session, SessionEnd};

/// Bytes that are read from a command, or a port, at once.
const CHUNK: usize = 32 << 10;
/// Input that waits for the command to read it.
const MAX_INPUT: usize = 64 << 10;
/// Messages and pings of a client that are looked at before anything else is.
const MAX_MESSAGES: usize = 32;
/// Bytes of output that are read once the command has ended. More than its pipe can hold comes from a background process.
const MAX_REST: usize = 1 << 20;
/// Longest time in which nothing moves: the kubelet's `streamingConnectionIdleTimeout`.
const IDLE: Duration = Duration::from_secs(4 * 3600);
/// Time for a client to take a piece of the rest of the output, and to say that it closes too.
const LINGER: Duration = Duration::from_secs(30);

/// Why a stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// The process has ended, or the port is closed.
    Ended,
    /// The client has gone, or has closed the stream.
    Left,
    /// The server stops.
    Stopped,
    /// Nothing has moved for [`IDLE`].
    Idle,
}

/// The end of a WebSocket and of the process behind it, for the log.
pub struct Outcome {
    /// The end as the client was told it, or would have been told it.
    pub end: StreamEnd,
    /// The client had gone before.
    pub has_left: bool,
}

/// A session and its client.
struct Bridge<'a> {
    socket: Socket,
    protocol: Protocol,
    session: Box<dyn Session>,
    stop: BorrowedFd<'a>,
    /// Input on its way.
    input: Vec<u8>,
    /// Messages may have come that were not looked at. They are in no buffer of the kernel, so that a wait does not see
    /// them.
    unread: bool,
    /// The client has no more; told to the session once the input is delivered.
    input_ends: bool,
    /// The process has closed its input, or was told the end of it.
    input_is_closed: bool,
    /// True for stdout and stderr, in this order, while they may still give something.
    open: [bool; 2],
    /// The process has ended.
    has_ended: bool,
    /// Bytes of output that were read since the process has ended.
    rest: usize,
    /// The moment at which something last moved. Once the process has ended, it is the moment of that end, or of output
    /// handed on since.
    moved: Instant,
}

/// Runs a session until it is over, and tells the client how it has ended.
pub fn serve(
    socket: Socket,
    protocol: Protocol,
    session: Box<dyn Session>,
    command: &[String],
    stop: BorrowedFd<'_>,
) -> Outcome {
    let open = [session.stdout().is_some(), session.stderr().is_some()];
    let mut bridge = Bridge {
        socket,
        protocol,
        session,
        stop,
        input: Vec::new(),
        unread: true,
        input_ends: false,
        input_is_closed: false,
        open,
        has_ended: false,
        rest: 0,
        moved: Instant::now(),
    };
    let over = bridge.begin().and_then(|()| bridge.run());
    let Bridge {
        socket, session, ..
    } = bridge;
    let ended = session.finish();
    let end = match (&over, ended) {
        (Ok(Over::Stopped), _) => StreamEnd::Failed("the daemon is ending".into()),
        (Ok(Over::Idle), _) => StreamEnd::Failed("nothing has moved for 4 hours".into()),
        (_, SessionEnd::Exited(code)) => StreamEnd::Exited {
            code,
            command: command.to_vec(),
        },
        (_, SessionEnd::TooSlow) => StreamEnd::Failed(
            "the output came faster than it was read, so that this client was cut off".into(),
        ),
        // A client that is attached and has ended its input has left, and nothing has failed.
        (_, SessionEnd::Unknown) if command.is_empty() => StreamEnd::Exited {
            code: 0,
            command: Vec::new(),
        },
        (_, SessionEnd::Unknown) => StreamEnd::Failed("how it ended is not known".into()),
    };
    let has_left = match over {
        Ok(Over::Left) => true,
        Ok(_) => close(socket, protocol, &end, stop).is_err(),
        Err(ref e) if e.kind() == ErrorKind::InvalidData => {
            refuse(socket, &e.to_string(), stop);
            true
        }
        Err(_) => true,
    };
    Outcome { end, has_left }
}

/// A command that was not executed, as a shell says it: the words on stderr, the code as the end.
pub fn not_executed(
    mut socket: Socket,
    protocol: Protocol,
    message: &str,
    end: &StreamEnd,
    stop: BorrowedFd<'_>,
) {
    let said = socket.send(STDERR, format!("{message}\n").as_bytes());
    let _ = said.and_then(|()| close(socket, protocol, end, stop));
}

impl Bridge<'_> {
    /// An empty message on the first channel that the client reads says that all is set up, as the kubelet does.
    fn begin(&mut self) -> io::Result<()> {
        let first = match self.open {
            [true, _] => STDOUT,
            [false, true] => STDERR,
            [false, false] => ERROR,
        };
        self.socket.send(first, &[])
    }

    fn run(&mut self) -> io::Result<Over> {
        let mut chunk = vec![0; CHUNK];
        loop {
            if let Some(over) = self.wait()? {
                return Ok(over);
            }
            if self.socket.has_backlog() {
                self.socket.flush()?;
            }
            if !self.receive()? {
                return Ok(Over::Left);
            }
            self.deliver();
            let has_more = self.collect(&mut chunk)? && self.rest < MAX_REST;
            if self.has_ended && !has_more && !self.socket.has_backlog() {
                return Ok(Over::Ended);
            }
        }
    }

    /// Waits until something can go on.
    fn wait(&mut self) -> io::Result<Option<Over>> {
        let (has_ended, has_backlog) = (self.has_ended, self.socket.has_backlog());
        let reads = self.input.len() < MAX_INPUT;
        let mut fds = vec![
            PollFd::new(self.socket.as_fd(), self.socket.events(reads)),
            PollFd::new(self.stop, PollFlags::POLLIN),
        ];
        if !has_ended {
            fds.push(PollFd::new(self.session.ended(), PollFlags::POLLIN));
            if let (Some(fd), false) = (self.session.stdin(), self.input.is_empty()) {
                fds.push(PollFd::new(fd, PollFlags::POLLOUT));
            }
        }
        if !has_backlog && !has_ended {
            let outputs = [self.session.stdout(), self.session.stderr()];
            let open = outputs.into_iter().zip(self.open).filter(|(_, open)| *open);
            fds.extend(open.filter_map(|(fd, _)| Some(PollFd::new(fd?, PollFlags::POLLIN))));
        }
        let left = match (has_ended && !has_backlog) || (self.unread && reads) {
            true => Duration::ZERO,
            false => self.patience(),
        };
        // Rounded up to milliseconds: nothing is over before it is.
        let left = PollTimeout::try_from(left + Duration::from_micros(999));
        let found = match poll(&mut fds, left.unwrap_or(PollTimeout::MAX)) {
            Err(Errno::EINTR) => 1,
            found => found?,
        };
        let over = match (has_hung_up(&fds[0]), fds[1].any() == Some(true)) {
            (true, _) => Some(Over::Left),
            (_, true) => Some(Over::Stopped),
            _ => None,
        };
        let is_taken = fds[0]
            .revents()
            .is_some_and(|e| e.contains(PollFlags::POLLOUT));
        let ends = !has_ended && fds[2].any() == Some(true);
        if ends {
            (self.has_ended, self.rest, self.moved) = (true, 0, Instant::now());
        }
        let given_up = match self.has_ended {
            true => (has_backlog && !is_taken).then_some(Over::Left),
            false => (found == 0).then_some(Over::Idle),
        };
        Ok(over.or(given_up.filter(|_| self.patience().is_zero())))
    }

    /// Returns how long it may still be that nothing moves.
    fn patience(&self) -> Duration {
        let limit = if self.has_ended { LINGER } else { IDLE };
        (self.moved + limit).saturating_duration_since(Instant::now())
    }

    /// Notes that input has moved, unless the process has ended. After that end, a client that sends does not get more time
    /// to take the rest of the output.
    fn has_moved(&mut self) {
        if !self.has_ended {
            self.moved = Instant::now();
        }
    }

    /// Takes what the client says; false when it has closed the stream.
    fn receive(&mut self) -> io::Result<bool> {
        self.unread = true;
        for _ in 0..MAX_MESSAGES {
            if self.input.len() >= MAX_INPUT {
                break;
            }
            let message = match self.socket.receive_one()? {
                Some(Received::Message(message)) => message,
                Some(Received::Nothing) => {
                    self.unread = false;
                    break;
                }
                Some(Received::Closed) => return Ok(false),
                None => continue,
            };
            self.has_moved();
            let invalid = |e: MessageError| io::Error::new(ErrorKind::InvalidData, e);
            match said(self.protocol, &message).map_err(invalid)? {
                Said::Input(data) => self.input.extend_from_slice(data),
                Said::InputEnds => self.input_ends = true,
                Said::Size(size) => self.session.resize(size),
                Said::Nothing => {}
            }
        }
        Ok(true)
    }

    /// Hands input on, as far as the process takes it.
    fn deliver(&mut self) {
        while !self.input.is_empty() {
            let written = match self.session.stdin() {
                Some(fd) => unistd::write(fd, &self.input),
                None => Err(Errno::EPIPE),
            };
            match written {
                Ok(n) => {
                    self.input.drain(..n);
                    self.has_moved();
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                // It reads no more: what comes is for nobody.
                Err(_) => {
                    self.input.clear();
                    self.input_is_closed = true;
                }
            }
        }
        if self.input_ends && !self.input_is_closed {
            self.input_is_closed = true;
            self.session.close_stdin();
        }
    }

    /// Hands output on, a piece of each; false when there is no more now.
    fn collect(&mut self, chunk: &mut [u8]) -> io::Result<bool> {
        let mut has_more = false;
        for (n, channel) in [STDOUT, STDERR].into_iter().enumerate() {
            if !self.open[n] || self.socket.has_backlog() {
                has_more |= self.open[n];
                continue;
            }
            let fd = match n {
                0 => self.session.stdout(),
                _ => self.session.stderr(),
            };
            match fd.map_or(Ok(0), |fd| unistd::read(fd, chunk)) {
                Err(Errno::EAGAIN) => {}
                Err(Errno::EINTR) => has_more = true,
                // A terminal that nobody has open any more gives EIO.
                Ok(0) | Err(_) => self.open[n] = false,
                Ok(size) => {
                    self.socket.send(channel, &chunk[..size])?;
                    self.moved = Instant::now();
                    self.rest += size;
                    has_more = true;
                }
            }
        }
        Ok(has_more)
    }
}

/// nix has no name for POLLRDHUP, and tells of no event at all when that is among them.
fn has_hung_up(fd: &PollFd<'_>) -> bool {
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    fd.revents().is_none_or(|events| events.intersects(gone))
}

/// Says how it has ended, and waits for the client to close too.
fn close(
    mut socket: Socket,
    protocol: Protocol,
    end: &StreamEnd,
    stop: BorrowedFd<'_>,
) -> io::Result<()> {
    if let Some(text) = protocol.end(end) {
        socket.send(ERROR, &text)?;
    }
    socket.close(None)?;
    linger(&mut socket, stop)
}

fn refuse(mut socket: Socket, why: &str, stop: BorrowedFd<'_>) {
    let closed = socket.close(Some(why));
    let _ = closed.and_then(|()| linger(&mut socket, stop));
}

/// Waits until the client has taken all and closes, or the server stops, at most for [`LINGER`].
fn linger(socket: &mut Socket, stop: BorrowedFd<'_>) -> io::Result<()> {
    let until = Instant::now() + LINGER;
    loop {
        if socket.has_backlog() {
            socket.flush()?;
        }
        let unread = match socket.receive_one() {
            Ok(Some(Received::Message(_)) | None) => true,
            Ok(Some(Received::Nothing)) => false,
            Ok(Some(Received::Closed)) | Err(_) if !socket.has_backlog() => return Ok(()),
            Ok(Some(Received::Closed)) => false,
            Err(e) => return Err(e),
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut fds = [
            PollFd::new(socket.as_fd(), socket.events(true)),
            PollFd::new(stop, PollFlags::POLLIN),
        ];
        let left = match unread {
            true => Ok(PollTimeout::ZERO),
            false => PollTimeout::try_from(left + Duration::from_micros(999)),
        };
        match poll(&mut fds, left.unwrap_or(PollTimeout::MAX)) {
            Ok(_) if fds[1].any() == Some(true) => return Ok(()),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Connections to ports of a pod, each with two channels of the WebSocket: data, and errors.
pub struct Forward<'a> {
    socket: Socket,
    ports: Vec<Port>,
    stop: BorrowedFd<'a>,
    /// Messages may have come that were not looked at, as in a session's `Bridge`.
    unread: bool,
    moved: Instant,
}

/// A connection to a port of a pod.
struct Port {
    /// The connection; None once it is over.
    stream: Option<PortSocket>,
    /// Data on its way to the pod.
    pending: Vec<u8>,
}

impl<'a> Forward<'a> {
    /// Tells the client the ports and why connections are missing, and takes the connections that there are.
    ///
    /// # Errors
    /// Returns the error of the WebSocket when the client has gone.
    pub fn new(
        mut socket: Socket,
        ports: Vec<(u16, Result<PortSocket, Unreachable>)>,
        stop: BorrowedFd<'a>,
    ) -> io::Result<Self> {
        let mut all = Vec::with_capacity(ports.len());
        for (n, (port, stream)) in (0u8..).zip(ports) {
            socket.send(2 * n, &port.to_le_bytes())?;
            socket.send(2 * n + 1, &port.to_le_bytes())?;
            let stream = match stream {
                Ok(stream) => Some(stream),
                Err(why) => {
                    socket.send(2 * n + 1, why.to_string().as_bytes())?;
                    None
                }
            };
            all.push(Port {
                stream,
                pending: Vec::new(),
            });
        }
        Ok(Self {
            socket,
            ports: all,
            stop,
            unread: true,
            moved: Instant::now(),
        })
    }

    /// Serves until every connection is over, the client has gone, the server stops, or nothing has moved for `IDLE`.
    pub fn run(mut self) {
        let mut chunk = vec![0; CHUNK];
        while self.ports.iter().any(|port| port.stream.is_some()) {
            match self.turn(&mut chunk) {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
        let closed = self.socket.close(None);
        let _ = closed.and_then(|()| linger(&mut self.socket, self.stop));
    }

    /// Makes a round over the client and the ports; false when the stream is over.
    fn turn(&mut self, chunk: &mut [u8]) -> io::Result<bool> {
        if !self.wait()? {
            return Ok(false);
        }
        if self.socket.has_backlog() {
            self.socket.flush()?;
        }
        self.unread = true;
        for _ in 0..MAX_MESSAGES {
            if !self.unread || !self.takes_more() {
                break;
            }
            match self.socket.receive_one()? {
                Some(Received::Message(message)) => self.take(&message)?,
                Some(Received::Nothing) => self.unread = false,
                Some(Received::Closed) => return Ok(false),
                None => {}
            }
        }
        for n in 0..self.ports.len() {
            self.ports[n].deliver();
            self.collect(n, chunk)?;
        }
        Ok(true)
    }

    fn takes_more(&self) -> bool {
        self.ports.iter().all(|port| port.pending.len() < MAX_INPUT)
    }

    fn wait(&mut self) -> io::Result<bool> {
        let mut fds = vec![
            PollFd::new(self.socket.as_fd(), self.socket.events(self.takes_more())),
            PollFd::new(self.stop, PollFlags::POLLIN),
        ];
        for port in &self.ports {
            let mut events = PollFlags::empty();
            events.set(PollFlags::POLLIN, !self.socket.has_backlog());
            events.set(PollFlags::POLLOUT, !port.pending.is_empty());
            // One that has hung up would be found at once, again and again.
            let stream = port.stream.as_ref().filter(|_| !events.is_empty());
            fds.extend(stream.map(|stream| PollFd::new(stream.as_fd(), events)));
        }
        let is_awaited = self.unread && self.takes_more();
        let left = match is_awaited {
            true => Duration::ZERO,
            false => (self.moved + IDLE).saturating_duration_since(Instant::now()),
        };
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, left) {
            Ok(0) => Ok(is_awaited || self.moved.elapsed() < IDLE),
            Err(Errno::EINTR) => Ok(true),
            Err(e) => Err(e.into()),
            Ok(_) => Ok(!has_hung_up(&fds[0]) && fds[1].any() == Some(false)),
        }
    }

    fn take(&mut self, message: &[u8]) -> io::Result<()> {
        let [channel, data @ ..] = message else {
            return Err(ErrorKind::InvalidData.into());
        };
        self.moved = Instant::now();
        let is_data = channel.is_multiple_of(2);
        let port = self.ports.get_mut(usize::from(channel / 2));
        match port.filter(|_| is_data) {
            Some(port) if port.stream.is_some() => port.pending.extend_from_slice(data),
            Some(_) => {}
            None => return Err(ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    fn collect(&mut self, n: usize, chunk: &mut [u8]) -> io::Result<()> {
        if self.socket.has_backlog() {
            return Ok(());
        }
        let port = &mut self.ports[n];
        let Some(stream) = &mut port.stream else {
            return Ok(());
        };
        match stream.read(chunk) {
            Ok(0) => port.end(),
            Ok(size) => {
                self.moved = Instant::now();
                self.socket.send(2 * n as u8, &chunk[..size])?;
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => port.end(),
        }
        Ok(())
    }
}

impl Port {
    fn deliver(&mut self) {
        while let (Some(stream), false) = (&mut self.stream, self.pending.is_empty()) {
            match stream.write(&self.pending) {
                Ok(n) => drop(self.pending.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.end(),
            }
        }
    }

    /// Ends the connection. Data that waits for the connection is for nobody, and must not keep the others waiting.
    fn end(&mut self) {
        self.stream = None;
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests;
