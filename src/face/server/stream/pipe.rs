//! The bytes of a SPDY connection: in the messages of a WebSocket, or directly on the client's connection.
//!
//! Invariants: nothing here waits. At most [`MAX_WAITING`] bytes wait to be sent.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::PollFlags;

use super::super::transport::Transport;
use super::super::web_socket::{Received, Socket};

/// Number of bytes that one read takes.
const READ: usize = 16 << 10;
/// Number of bytes that may wait to be sent, as for a WebSocket.
const MAX_WAITING: usize = 256 << 10;

/// A pipe of bytes to a client and back.
pub enum Pipe {
    /// Binary messages of a WebSocket. A frame of SPDY can begin and end anywhere in a message.
    WebSocket(Box<Socket>),
    /// A connection after `Upgrade: SPDY/3.1`.
    Plain(Plain),
}

/// A connection that carries the bytes as they are.
pub struct Plain {
    transport: Transport,
    /// Bytes that had arrived together with the head of the request.
    begun: Vec<u8>,
    /// Bytes that wait to be sent.
    waiting: Vec<u8>,
    /// True if bytes may wait in the TLS session.
    has_backlog: bool,
}

impl Plain {
    /// Takes a connection, and the bytes that have arrived since the head of the request.
    pub fn new(transport: Transport, begun: Vec<u8>) -> Self {
        Self {
            transport,
            begun,
            waiting: Vec::new(),
            has_backlog: false,
        }
    }

    fn receive(&mut self) -> io::Result<Received> {
        if !self.begun.is_empty() {
            return Ok(Received::Message(std::mem::take(&mut self.begun)));
        }
        let mut bytes = vec![0; READ];
        match self.transport.read(&mut bytes) {
            Ok(0) => Ok(Received::Closed),
            Ok(n) => {
                bytes.truncate(n);
                Ok(Received::Message(bytes))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(Received::Nothing),
            Err(e) => Err(e),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.waiting.len() + bytes.len() > MAX_WAITING {
            return Err(io::Error::other("the client does not read"));
        }
        self.waiting.extend_from_slice(bytes);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.write_waiting();
        self.has_backlog = flushed
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        match self.has_backlog {
            true => Ok(()),
            false => flushed,
        }
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let written = self.transport.write(&self.waiting)?;
            self.waiting.drain(..written);
        }
        self.transport.flush()
    }

    fn events(&self, reads: bool) -> PollFlags {
        let hang_up = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let mut events = self.transport.events() | hang_up;
        events.set(PollFlags::POLLIN, reads);
        events.set(
            PollFlags::POLLOUT,
            self.has_backlog || events.contains(PollFlags::POLLOUT),
        );
        events
    }
}

impl Pipe {
    /// Returns the next bytes; None if a control message of the WebSocket has come instead.
    ///
    /// # Errors
    /// Returns the error of a broken connection.
    pub fn receive_one(&mut self) -> io::Result<Option<Received>> {
        match self {
            Self::WebSocket(socket) => socket.receive_one(),
            Self::Plain(plain) => plain.receive().map(Some),
        }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// Returns an error if the connection is broken, or if too many bytes wait to be sent.
    pub fn send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        match self {
            Self::WebSocket(socket) => socket.send_message(bytes),
            Self::Plain(plain) => plain.send(&bytes),
        }
    }

    /// Sends the bytes that wait to be sent.
    ///
    /// # Errors
    /// Returns the error of a broken connection.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::WebSocket(socket) => socket.flush(),
            Self::Plain(plain) => plain.flush(),
        }
    }

    /// Returns true if bytes wait to be sent. The caller should send no data of a port before these bytes are sent.
    pub fn has_backlog(&self) -> bool {
        match self {
            Self::WebSocket(socket) => socket.has_backlog(),
            Self::Plain(plain) => plain.has_backlog,
        }
    }

    /// Returns the poll events to wait for. `reads` is true if the caller can take bytes.
    pub fn events(&self, reads: bool) -> PollFlags {
        match self {
            Self::WebSocket(socket) => socket.events(reads),
            Self::Plain(plain) => plain.events(reads),
        }
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::WebSocket(socket) => socket.as_fd(),
            Self::Plain(plain) => plain.transport.as_fd(),
        }
    }
}
