//! The port-forward of kubectl through an API server: pairs of SPDY streams, one for data and one for an error.
//!
//! Invariants: one thread, which waits in `poll` only, apart from the dialing of a port. At most [`MAX_PAIRS`]
//! connections are open at once. A pair that is not complete after [`PAIR_LIMIT`] is given up, as in a kubelet.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};

use super::super::error::Unreachable;
use super::super::spdy::{CANCEL, Frame, REFUSED_STREAM, Reader, Writer};
use super::super::web_socket::Received;
use super::pipe::Pipe;
use super::{CHUNK, IDLE, MAX_INPUT, MAX_MESSAGES, PortSocket, has_hung_up};

/// Largest number of connections that one client has open at once.
const MAX_PAIRS: usize = 64;
/// Time after which both streams of a pair must be open: the kubelet's `streamCreationTimeout`.
const PAIR_LIMIT: Duration = Duration::from_secs(30);

/// Number of bytes that are read as frames at once. Small frames can have much larger headers after decompression.
const PIECE: usize = 4 << 10;

/// The function that connects to a port of the pod.
pub type Dial<'a> = &'a dyn Fn(u16) -> Result<PortSocket, Unreachable>;

/// A client that forwards ports of a pod over SPDY.
pub struct SpdyForward<'a> {
    pipe: Pipe,
    /// The pod's name and UID, for errors.
    pod: (&'a str, &'a str),
    dial: Dial<'a>,
    stop: BorrowedFd<'a>,
    reader: Reader,
    writer: Writer,
    pairs: Vec<Pair>,
    /// True if bytes may wait in a buffer of the WebSocket or of TLS, as in a `Bridge`.
    unread: bool,
    moved: Instant,
}

/// A connection that is forwarded, as its two streams.
struct Pair {
    request: String,
    begun: Instant,
    error: Option<u32>,
    /// The data stream, and the port that it names.
    data: Option<(u32, u16)>,
    /// The connection to the port; None until both streams are open.
    connection: Option<PortSocket>,
    /// Data of the client that was not yet written to the pod.
    pending: Vec<u8>,
    /// True once the client has ended its data. The port gets the end after the pending data.
    ends: bool,
}

/// The kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Error,
    Data,
}

/// The meaning of a stream's headers.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    kind: Kind,
    port: u16,
    request: String,
}

impl Asked {
    /// Reads the headers of a stream. A client that names no request opens the error stream of a pair directly before
    /// its data stream, so that the number of the error stream stands for the request. Returns None for headers that a
    /// kubelet rejects.
    fn of(stream: u32, headers: &[(String, String)]) -> Option<Self> {
        let value = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| &**v);
        let port = value("port")?.parse().ok().filter(|port| *port > 0)?;
        let kind = match value("streamtype")? {
            "error" => Kind::Error,
            "data" => Kind::Data,
            _ => return None,
        };
        let request = match (value("requestid"), kind) {
            (Some(id), _) if !id.is_empty() => id.to_owned(),
            (_, Kind::Error) => stream.to_string(),
            (_, Kind::Data) => stream.saturating_sub(2).to_string(),
        };
        Some(Self {
            kind,
            port,
            request,
        })
    }
}

impl<'a> SpdyForward<'a> {
    /// Takes a client after the upgrade of its connection. `pod` is the pod's name and UID.
    pub fn new(pipe: Pipe, pod: (&'a str, &'a str), dial: Dial<'a>, stop: BorrowedFd<'a>) -> Self {
        Self {
            pipe,
            pod,
            dial,
            stop,
            reader: Reader::default(),
            writer: Writer::default(),
            pairs: Vec::new(),
            unread: true,
            moved: Instant::now(),
        }
    }

    /// Serves until the client has gone, the server stops, or nothing was sent for `IDLE`.
    ///
    /// # Errors
    /// Returns the error of a client that breaks the protocol, or of its connection.
    pub fn run(mut self) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        while self.turn(&mut chunk)? {}
        Ok(())
    }

    /// Serves the client and the ports once. Returns false if the client is done.
    fn turn(&mut self, chunk: &mut [u8]) -> io::Result<bool> {
        if !self.wait()? {
            return Ok(false);
        }
        if self.pipe.has_backlog() {
            self.pipe.flush()?;
        }
        if !self.receive()? {
            return Ok(false);
        }
        self.give_up_late(Instant::now())?;
        self.connect_next()?;
        for n in (0..self.pairs.len()).rev() {
            let is_open = self.pairs[n].deliver() && self.collect(n, chunk)?;
            if !is_open {
                let pair = self.pairs.swap_remove(n);
                self.end(&pair)?;
            }
        }
        Ok(true)
    }

    fn takes_more(&self) -> bool {
        self.pairs.iter().all(|pair| pair.pending.len() < MAX_INPUT)
    }

    /// Waits until something can be read or written. Returns false if the client is done.
    fn wait(&mut self) -> io::Result<bool> {
        let mut fds = vec![
            PollFd::new(self.pipe.as_fd(), self.pipe.events(self.takes_more())),
            PollFd::new(self.stop, PollFlags::POLLIN),
        ];
        for pair in &self.pairs {
            let mut events = PollFlags::empty();
            events.set(PollFlags::POLLIN, !self.pipe.has_backlog());
            events.set(PollFlags::POLLOUT, !pair.pending.is_empty());
            // A connection that has hung up must not be polled without an event, because poll would return at once.
            let connection = pair.connection.as_ref().filter(|_| !events.is_empty());
            fds.extend(connection.map(|c| PollFd::new(c.as_fd(), events)));
        }
        let dials = self.pairs.iter().any(|pair| pair.wanted_port().is_some());
        let is_awaited = dials || (self.unread && self.takes_more());
        let left = match is_awaited {
            true => Duration::ZERO,
            false => self.patience(Instant::now()) + Duration::from_micros(999),
        };
        match poll(
            &mut fds,
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(0) => Ok(is_awaited || self.moved.elapsed() < IDLE),
            Err(Errno::EINTR) => Ok(true),
            Err(e) => Err(e.into()),
            Ok(_) => Ok(!has_hung_up(&fds[0]) && fds[1].any() == Some(false)),
        }
    }

    /// Returns the time until the client counts as idle, or a pair as late.
    fn patience(&self, now: Instant) -> Duration {
        let incomplete = self.pairs.iter().filter(|pair| pair.connection.is_none());
        let pairs = incomplete.map(|pair| pair.begun + PAIR_LIMIT);
        let first = pairs.fold(self.moved + IDLE, Instant::min);
        first.saturating_duration_since(now)
    }

    /// Reads bytes of the client. Returns false if the client has closed the connection.
    fn receive(&mut self) -> io::Result<bool> {
        self.unread = true;
        for _ in 0..MAX_MESSAGES {
            if !self.unread || !self.takes_more() {
                break;
            }
            match self.pipe.receive_one()? {
                Some(Received::Message(bytes)) => self.take(&bytes)?,
                Some(Received::Nothing) => self.unread = false,
                Some(Received::Closed) => return self.pipe.flush().map(|()| false),
                None => {}
            }
        }
        Ok(true)
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            let frames = self.reader.read(piece);
            let frames = frames.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
            for frame in frames {
                self.handle(frame)?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, frame: Frame) -> io::Result<()> {
        match frame {
            Frame::Open {
                stream, headers, ..
            } => return self.open(stream, &headers),
            Frame::Data {
                stream,
                bytes,
                ends,
            } => self.take_data(stream, &bytes, ends),
            // The connection of a pair that the client gives up is closed.
            Frame::Reset { stream } => self.pairs.retain(|pair| !pair.has(stream)),
            // A client counts its pings with odd numbers, so an even number would be an answer.
            Frame::Ping(id) if id % 2 == 1 => return self.pipe.send(self.writer.ping(id)),
            Frame::Ping(_) | Frame::GoAway => {}
        }
        Ok(())
    }

    /// Takes data of a client. Data on an error stream, or on a stream that is over, means nothing.
    fn take_data(&mut self, stream: u32, bytes: &[u8], ends: bool) {
        self.moved = Instant::now();
        let pair = self.pairs.iter_mut().find(|pair| pair.has_data(stream));
        if let Some(pair) = pair {
            pair.pending.extend_from_slice(bytes);
            pair.ends |= ends;
        }
    }

    fn open(&mut self, stream: u32, headers: &[(String, String)]) -> io::Result<()> {
        self.moved = Instant::now();
        let is_new = !self.pairs.iter().any(|pair| pair.has(stream));
        let Some(asked) = Asked::of(stream, headers).filter(|_| is_new) else {
            return self.pipe.send(self.writer.reset(stream, CANCEL));
        };
        let found = self.pairs.iter().position(|p| p.request == asked.request);
        let n = match found {
            Some(n) => n,
            None if self.pairs.len() >= MAX_PAIRS => {
                return self.pipe.send(self.writer.reset(stream, REFUSED_STREAM));
            }
            None => {
                self.pairs.push(Pair::new(&asked.request));
                self.pairs.len() - 1
            }
        };
        self.pipe.send(self.writer.reply(stream))?;
        if let Err(why) = self.pairs[n].add(&asked, stream) {
            let request = asked.request;
            let text = format!("error processing stream for request {request}: {why}");
            return self.report(n, &text);
        }
        Ok(())
    }

    /// Connects to the port of one pair. A dial can wait, so the thread looks at the stop of the server after each.
    fn connect_next(&mut self) -> io::Result<()> {
        let mut ready = self.pairs.iter().map(Pair::wanted_port).enumerate();
        let Some((n, port)) = ready.find_map(|(n, port)| Some((n, port?))) else {
            return Ok(());
        };
        match (self.dial)(port) {
            Ok(connection) => self.pairs[n].connection = Some(connection),
            Err(why) => {
                let (pod, uid) = self.pod;
                let text = format!("error forwarding port {port} to pod {pod}, uid {uid}: {why}");
                self.report(n, &text)?;
                let pair = self.pairs.swap_remove(n);
                self.end(&pair)?;
            }
        }
        Ok(())
    }

    /// Sends a text on the error stream of a pair.
    fn report(&mut self, n: usize, text: &str) -> io::Result<()> {
        match self.pairs[n].error {
            Some(error) => self
                .pipe
                .send(self.writer.data(error, text.as_bytes(), false)),
            None => Ok(()),
        }
    }

    /// Ends the streams of a pair: first the data, then the error.
    fn end(&mut self, pair: &Pair) -> io::Result<()> {
        for stream in [pair.data.map(|(stream, _)| stream), pair.error]
            .into_iter()
            .flatten()
        {
            self.pipe.send(self.writer.data(stream, &[], true))?;
        }
        Ok(())
    }

    fn give_up_late(&mut self, now: Instant) -> io::Result<()> {
        for n in (0..self.pairs.len()).rev() {
            if self.pairs[n].is_late(now) {
                self.report(n, "timed out waiting for streams")?;
                let pair = self.pairs.swap_remove(n);
                self.end(&pair)?;
            }
        }
        Ok(())
    }

    /// Sends a piece of the port's data to the client. Returns false if the port has closed the connection.
    fn collect(&mut self, n: usize, chunk: &mut [u8]) -> io::Result<bool> {
        let pair = &mut self.pairs[n];
        let (Some(connection), Some((stream, _))) = (&mut pair.connection, pair.data) else {
            return Ok(true);
        };
        if self.pipe.has_backlog() {
            return Ok(true);
        }
        match connection.read(chunk) {
            Ok(0) => Ok(false),
            Ok(size) => {
                self.moved = Instant::now();
                let frame = self.writer.data(stream, &chunk[..size], false);
                self.pipe.send(frame).map(|()| true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }
}

impl Pair {
    fn new(request: &str) -> Self {
        Self {
            request: request.to_owned(),
            begun: Instant::now(),
            error: None,
            data: None,
            connection: None,
            pending: Vec::new(),
            ends: false,
        }
    }

    fn has(&self, stream: u32) -> bool {
        self.error == Some(stream) || self.has_data(stream)
    }

    fn has_data(&self, stream: u32) -> bool {
        self.data.is_some_and(|(data, _)| data == stream)
    }

    /// Returns the port to connect to, if both streams are open and the port is not connected.
    fn wanted_port(&self) -> Option<u16> {
        match (&self.connection, self.error, self.data) {
            (None, Some(_), Some((_, port))) => Some(port),
            _ => None,
        }
    }

    fn is_late(&self, now: Instant) -> bool {
        self.connection.is_none() && now >= self.begun + PAIR_LIMIT
    }

    /// Adds a stream, or returns the kubelet's words if the pair has such a stream already.
    fn add(&mut self, asked: &Asked, stream: u32) -> Result<(), &'static str> {
        match asked.kind {
            Kind::Error if self.error.is_some() => return Err("error stream already assigned"),
            Kind::Data if self.data.is_some() => return Err("data stream already assigned"),
            Kind::Error => self.error = Some(stream),
            Kind::Data => self.data = Some((stream, asked.port)),
        }
        Ok(())
    }

    /// Writes data of the client to the port, as far as the port takes it. Returns false if the port takes no more at
    /// all.
    fn deliver(&mut self) -> bool {
        let Some(connection) = &mut self.connection else {
            return true;
        };
        while !self.pending.is_empty() {
            match connection.write(&self.pending) {
                Ok(n) => drop(self.pending.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if std::mem::take(&mut self.ends) {
            let _ = shutdown(connection.as_fd().as_raw_fd(), Shutdown::Write);
        }
        true
    }
}

#[cfg(test)]
mod tests;
