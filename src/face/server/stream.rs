//! Streams between a WebSocket and a pod: a command, a container's own process, or a port.
//!
//! Invariants: each stream has one thread, which waits in `poll` only. Nothing is read that cannot be passed on. So a
//! client that does not read stops its own command and nothing else. When a client has gone, its command is ended.

mod pipe;
mod spdy_forward;

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

pub use pipe::{Pipe, Plain};
pub use spdy_forward::SpdyForward;

/// Number of bytes that one read takes from a command or a port.
const CHUNK: usize = 32 << 10;
/// Number of bytes of input that may wait until the command reads them.
const MAX_INPUT: usize = 64 << 10;
/// Number of messages and pings that are read from a client in one round. After these messages the thread handles
/// output, the end of the command, and the stop of the server.
const MAX_MESSAGES: usize = 32;
/// Number of bytes of output that are read after the command has ended. Output beyond the size of the pipe comes from a
/// background process.
const MAX_REST: usize = 1 << 20;
/// Longest time without any data in either direction: the kubelet's `streamingConnectionIdleTimeout`.
const IDLE: Duration = Duration::from_secs(4 * 3600);
/// Time after the end of the command for the client to read the next piece of output, and to close its side.
const LINGER: Duration = Duration::from_secs(30);

/// The reason why a stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// The process has ended, or the port is closed.
    Ended,
    /// The client has gone, or has closed the stream.
    Left,
    /// The server stops.
    Stopped,
    /// Nothing was sent in either direction for [`IDLE`].
    Idle,
}

/// The end of a stream, for the log.
pub struct Outcome {
    /// The end of the process, as it was or would have been reported to the client.
    pub end: StreamEnd,
    /// True if the client had gone before the end was reported.
    pub has_left: bool,
}

/// The stream between a session and its client.
struct Bridge<'a> {
    socket: Socket,
    protocol: Protocol,
    session: Box<dyn Session>,
    stop: BorrowedFd<'a>,
    /// Input that was read from the client, and not yet written to the process.
    input: Vec<u8>,
    /// True if messages may wait in a buffer of the WebSocket or of TLS. A wait in the kernel would not notice such
    /// messages.
    unread: bool,
    /// True once the client has closed the input. The session gets the end of the input after the input that still
    /// waits.
    input_ends: bool,
    /// True once the process has closed its input, or the session was given the end of the input.
    input_is_closed: bool,
    /// For stdout and stderr, in this order: true while more output may come.
    open: [bool; 2],
    /// True once the process has ended.
    has_ended: bool,
    /// Number of bytes of output that were read since the process has ended.
    rest: usize,
    /// The moment at which data was last moved in either direction. Once the process has ended, only output counts.
    moved: Instant,
}

/// Runs a session until it is over, and reports to the client how it has ended.
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
        // When an attached client ends its input, the client has left, and nothing has failed.
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

/// Reports a command that could not be executed, as a shell does: the message on stderr, and the exit code as the end.
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
    /// Sends an empty message on the first channel that the client reads. As in the kubelet, the empty message reports
    /// that the streams are ready.
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

    /// Waits until something can be read or written. Returns the reason if the stream is over.
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
        // The time is rounded up to milliseconds, so that nothing times out too early.
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

    /// Returns the time that is left before the stream counts as idle, or the client as gone.
    fn patience(&self) -> Duration {
        let limit = if self.has_ended { LINGER } else { IDLE };
        (self.moved + limit).saturating_duration_since(Instant::now())
    }

    /// Notes that input has moved. Does nothing once the process has ended, so that a client gets no more time for the
    /// rest of the output by sending input.
    fn has_moved(&mut self) {
        if !self.has_ended {
            self.moved = Instant::now();
        }
    }

    /// Reads messages of the client. Returns false if the client has closed the stream.
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

    /// Writes input to the process, as far as the process reads it.
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
                // The process no longer reads its input, so further input is thrown away.
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

    /// Sends a piece of stdout and a piece of stderr to the client. Returns false if there is no more output now.
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
                // A terminal that no process has open any more gives EIO.
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

/// Returns true if the other side has hung up. nix has no name for POLLRDHUP. If the kernel reports POLLRDHUP, nix
/// reports no events at all.
fn has_hung_up(fd: &PollFd<'_>) -> bool {
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    fd.revents().is_none_or(|events| events.intersects(gone))
}

/// Reports to the client how the stream has ended, and waits for the client to close its side.
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

/// Waits until the client has read everything and has closed, or until the server stops. Waits at most for [`LINGER`].
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

/// Connections to ports of a pod. Each connection has two channels of the WebSocket: for data, and for errors.
pub struct Forward<'a> {
    socket: Socket,
    ports: Vec<Port>,
    stop: BorrowedFd<'a>,
    /// True if messages may wait in a buffer of the WebSocket or of TLS, as in a `Bridge`.
    unread: bool,
    moved: Instant,
}

/// A port of a pod, and the connection to it.
struct Port {
    /// The connection; None once the connection is over.
    stream: Option<PortSocket>,
    /// Data of the client that was not yet written to the pod.
    pending: Vec<u8>,
}

impl<'a> Forward<'a> {
    /// Takes the connections to the ports. Sends the client the number of each port, and the error of each connection
    /// that failed.
    ///
    /// # Errors
    /// Returns the error of the WebSocket if the client has gone.
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

    /// Serves until every connection is over, the client has gone, the server stops, or nothing was sent for `IDLE`.
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

    /// Serves the client and the ports once. Returns false if the stream is over.
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
            // A connection that has hung up is not polled if no event of it is needed. Otherwise poll would return at
            // once, again and again.
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

    /// Ends the connection and throws away the data that waits for it. That data must not keep the other ports
    /// waiting.
    fn end(&mut self) {
        self.stream = None;
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests;
