//! A WebSocket: its handshake, and messages in both directions.
//!
//! Invariants: nothing here waits. A message has at most [`MAX_MESSAGE`] bytes, however many frames carry it. The
//! bytes that wait to be sent are bounded, because the caller checks [`Socket::has_backlog`] before it sends.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nix::poll::PollFlags;
use ring::digest;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

use super::request::Request;
use super::transport::Transport;

/// Largest message in bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// Number of bytes that one read takes.
const READ_BUFFER: usize = 16 << 10;
/// Number of bytes that may wait to be sent. The buffer has room for two pieces of output, and for the control frames
/// of the protocol.
const WRITE_BUFFER: usize = 256 << 10;

/// The GUID that is hashed together with the key of a handshake (RFC 6455).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the value of `Sec-WebSocket-Accept` for a client's key.
pub fn accept_key(key: &str) -> String {
    let text = format!("{key}{GUID}");
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    BASE64_STANDARD.encode(hash)
}

/// The reasons why a request is no handshake of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The request does not ask for a WebSocket.
    #[error(
        "this path needs a WebSocket (v5.channel.k8s.io, v4.channel.k8s.io, channel.k8s.io); SPDY is spoken for port-forward only"
    )]
    NoWebSocket,
    /// The request asks for a version of WebSocket that is not 13.
    #[error("Sec-WebSocket-Version must be 13")]
    Version,
    /// The client's key is invalid.
    #[error("Sec-WebSocket-Key must be 16 bytes in base64")]
    Key,
}

impl HandshakeError {
    /// Returns the HTTP status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::NoWebSocket | Self::Version => 426,
            Self::Key => 400,
        }
    }
}

/// Returns the head that answers a handshake.
///
/// # Errors
/// Returns [`HandshakeError`] if the request is no handshake.
pub fn handshake(request: &Request, subprotocol: Option<&str>) -> Result<String, HandshakeError> {
    let is_upgrade = request.upgrade.as_deref() == Some("websocket");
    let (true, "GET") = (is_upgrade, request.method.as_str()) else {
        return Err(HandshakeError::NoWebSocket);
    };
    if request.websocket_version.as_deref() != Some("13") {
        return Err(HandshakeError::Version);
    }
    let key = request.websocket_key.as_deref().unwrap_or_default();
    if BASE64_STANDARD.decode(key).map(|k| k.len()) != Ok(16) {
        return Err(HandshakeError::Key);
    }
    let accept = accept_key(key);
    let subprotocol = subprotocol.map_or(String::new(), |name| {
        format!("Sec-WebSocket-Protocol: {name}\r\n")
    });
    Ok(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n{subprotocol}\r\n"
    ))
}

/// A WebSocket on a connection.
pub struct Socket {
    inner: WebSocket<Transport>,
    has_backlog: bool,
}

/// The outcome of a read.
pub enum Received {
    /// A whole message.
    Message(Vec<u8>),
    /// No message has come yet.
    Nothing,
    /// The other side has closed the WebSocket.
    Closed,
}

impl Socket {
    /// Makes the server's end of a client's WebSocket, after the handshake. `begun` has the bytes that have arrived
    /// since the handshake.
    pub fn of_client(transport: Transport, begun: Vec<u8>) -> Self {
        Self::new(transport, begun, Role::Server)
    }

    /// Makes the client's end of a WebSocket that a podprobe verb has opened. `begun` has the bytes that have arrived
    /// since the handshake.
    pub fn of_server(transport: Transport, begun: Vec<u8>) -> Self {
        Self::new(transport, begun, Role::Client)
    }

    fn new(transport: Transport, begun: Vec<u8>, role: Role) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(WRITE_BUFFER)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let inner = WebSocket::from_partially_read(transport, begun, role, Some(config));
        Self {
            inner,
            has_backlog: false,
        }
    }

    /// Returns the next message, however many pings come before it.
    ///
    /// # Errors
    /// Returns the errors of [`Self::receive_one`].
    pub fn receive(&mut self) -> io::Result<Received> {
        loop {
            if let Some(received) = self.receive_one()? {
                return Ok(received);
            }
        }
    }

    /// Returns the next message; None if a ping or a pong has come instead.
    ///
    /// # Errors
    /// Returns an error if the connection is broken, or if the received bytes are no WebSocket frames.
    pub fn receive_one(&mut self) -> io::Result<Option<Received>> {
        let received = match self.inner.read() {
            Ok(Message::Binary(data)) => Received::Message(data.into()),
            Ok(Message::Text(text)) => Received::Message(text.as_bytes().to_vec()),
            Ok(Message::Close(_)) => Received::Closed,
            // The flush sends the answer to a ping.
            Ok(_) => return self.flush().map(|()| None),
            Err(Error::Io(e)) if e.kind() == ErrorKind::WouldBlock => Received::Nothing,
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => Received::Closed,
            Err(e) => return Err(broken(e)),
        };
        Ok(Some(received))
    }

    /// Sends a message on a channel.
    ///
    /// # Errors
    /// Returns an error if the connection is broken, or if too many bytes wait to be sent.
    pub fn send(&mut self, channel: u8, data: &[u8]) -> io::Result<()> {
        let mut message = Vec::with_capacity(data.len() + 1);
        message.push(channel);
        message.extend_from_slice(data);
        self.send_message(message)
    }

    /// Sends a message without a channel.
    ///
    /// # Errors
    /// Returns the errors of [`Self::send`].
    pub fn send_message(&mut self, message: Vec<u8>) -> io::Result<()> {
        // `send` also flushes. A write alone could leave the message in the buffer of the TLS session.
        let sent = self.inner.send(Message::Binary(message.into()));
        self.settle(sent)
    }

    /// Sends the bytes that wait to be sent.
    ///
    /// # Errors
    /// Returns the error of a broken connection.
    pub fn flush(&mut self) -> io::Result<()> {
        let flushed = self.inner.flush();
        self.settle(flushed)
    }

    /// Sends a close frame. The client answers with a close frame of its own.
    ///
    /// # Errors
    /// Returns the error of a broken connection.
    pub fn close(&mut self, why: Option<&str>) -> io::Result<()> {
        let code = match why {
            None => CloseCode::Normal,
            Some(_) => CloseCode::Protocol,
        };
        // A close frame has room for a reason of 123 bytes.
        let why = why.unwrap_or_default();
        let end = why.floor_char_boundary(120);
        let closed = self.inner.close(Some(CloseFrame {
            code,
            reason: why[..end].to_owned().into(),
        }));
        self.settle(closed)
    }

    fn settle(&mut self, done: Result<(), Error>) -> io::Result<()> {
        self.has_backlog = false;
        match done {
            Ok(()) => Ok(()),
            Err(Error::Io(e)) if e.kind() == ErrorKind::WouldBlock => {
                self.has_backlog = true;
                Ok(())
            }
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => {
                Err(ErrorKind::ConnectionAborted.into())
            }
            Err(e) => Err(broken(e)),
        }
    }

    /// Returns true if bytes wait to be sent. The caller must not send more before these bytes are sent.
    pub fn has_backlog(&self) -> bool {
        self.has_backlog || self.inner.get_ref().events().contains(PollFlags::POLLOUT)
    }

    /// Returns the poll events to wait for. `reads` is true if the caller can take messages.
    pub fn events(&self, reads: bool) -> PollFlags {
        let hang_up = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let mut events = self.inner.get_ref().events() | hang_up;
        events.set(PollFlags::POLLIN, reads);
        if self.has_backlog() {
            events |= PollFlags::POLLOUT;
        }
        events
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.get_ref().as_fd()
    }
}

fn broken(e: Error) -> io::Error {
    match e {
        Error::Io(e) => e,
        e => io::Error::new(ErrorKind::InvalidData, e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::server::request;

    fn asked(head: &str) -> Request {
        request::read(head.as_bytes(), 0).unwrap().unwrap().0
    }

    const HEAD: &str = "GET /exec HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

    #[test]
    fn a_handshake_is_answered_as_in_rfc_6455() {
        let head = handshake(&asked(HEAD), Some("v5.channel.k8s.io")).unwrap();
        assert!(head.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
        assert!(head.contains("\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"));
        assert!(head.ends_with("\r\n\r\n"));
        assert!(!handshake(&asked(HEAD), None).unwrap().contains("Protocol:"));
    }

    #[test]
    fn what_is_no_handshake_is_told_what_is_missing() {
        let status = |head: &str| handshake(&asked(head), None).unwrap_err().status();
        assert_eq!(status("GET /exec HTTP/1.1\r\n\r\n"), 426);
        assert_eq!(status(&HEAD.replace("GET", "POST")), 426);
        assert_eq!(status(&HEAD.replace("websocket", "SPDY/3.1")), 426);
        assert_eq!(status(&HEAD.replace(": 13", ": 8")), 426);
        assert_eq!(status(&HEAD.replace("dGhl", "")), 400);
        assert_eq!(status(&HEAD.replace("dGhl", "%%%%")), 400);
    }
}
