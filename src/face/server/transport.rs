//! The byte stream of a client: a unix socket, a TCP socket, or TLS on a TCP socket.
//!
//! Invariants: nothing here waits. An operation that would have to wait fails with `WouldBlock`. `flush` sends
//! everything that was written before.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection};

/// A client's connection.
pub struct Transport {
    socket: Socket,
    session: Option<Box<ServerConnection>>,
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => s.read(bytes),
            Self::Tcp(s) => s.read(bytes),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Self::read(self, bytes)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => s.write(bytes),
            Self::Tcp(s) => s.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport {
    /// Makes the transport of a client on the unix socket.
    ///
    /// # Errors
    /// Returns the error if the socket cannot be made non-blocking.
    pub fn unix(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self::of(Socket::Unix(socket)))
    }

    /// Makes the transport of a TCP client without encryption.
    ///
    /// # Errors
    /// Returns the error if the socket cannot be set up.
    pub fn tcp(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let _ = socket.set_nodelay(true);
        keep_alive(&socket)?;
        Ok(Self::of(Socket::Tcp(socket)))
    }

    /// Makes the transport of a TLS client, which begins with a handshake.
    ///
    /// # Errors
    /// Returns the error if the socket or the TLS session cannot be set up.
    pub fn tls(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut transport = Self::tcp(socket)?;
        transport.session = Some(Box::new(session));
        Ok(transport)
    }

    fn of(socket: Socket) -> Self {
        Self {
            socket,
            session: None,
        }
    }

    /// Returns the address of a TCP client; None for the unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(s) => s.peer_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Returns the uid and pid of the process at the other end of the unix socket; None for TCP.
    pub fn unix_peer(&self) -> Option<(u32, i32)> {
        let Socket::Unix(s) = &self.socket else {
            return None;
        };
        let credentials =
            nix::sys::socket::getsockopt(s, nix::sys::socket::sockopt::PeerCredentials);
        credentials.ok().map(|c| (c.uid(), c.pid()))
    }

    /// Returns the certificates that a TLS client has shown, the client's own first. The handshake has verified the
    /// certificates.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        let session = self.session.as_ref();
        let shown = session.and_then(|session| session.peer_certificates());
        shown.unwrap_or_default()
    }

    /// Returns the poll events to wait for before the next read.
    pub fn events(&self) -> PollFlags {
        match &self.session {
            Some(session) if session.wants_write() => PollFlags::POLLIN | PollFlags::POLLOUT,
            _ => PollFlags::POLLIN,
        }
    }

    /// Ends the sending side of the connection. The client may still send.
    pub fn close(&mut self) {
        if let Some(session) = &mut self.session {
            session.send_close_notify();
        }
        let _ = self.flush();
        let _ = match &self.socket {
            Socket::Unix(s) => s.shutdown(Shutdown::Write),
            Socket::Tcp(s) => s.shutdown(Shutdown::Write),
        };
    }

    /// Writes the bytes that the TLS session wants to send, and gives the session the bytes that have arrived. Returns
    /// true if plaintext, or the end of the plaintext, can be read.
    fn pump(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.session else {
            return Ok(true);
        };
        while session.wants_write() {
            match session.write_tls(&mut self.socket) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                written => drop(written?),
            }
        }
        match session.read_tls(&mut self.socket) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            read => drop(read?),
        }
        if let Err(e) = session.process_new_packets() {
            // Sends the client the TLS alert with the reason, if the socket has room for it.
            let _ = session.write_tls(&mut self.socket);
            return Err(io::Error::new(ErrorKind::InvalidData, e));
        }
        Ok(true)
    }
}

/// Switches TCP keep-alive on. A client whose machine loses power or network sends no end of the connection. After a
/// minute of silence the kernel probes the client. Two minutes later the kernel gives the connection up, so the
/// client's command ends too.
fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &60)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &30)?;
    setsockopt(socket, sockopt::TcpKeepCount, &4)?;
    // Time in milliseconds after which the kernel gives up when sent data is not acknowledged.
    setsockopt(socket, sockopt::TcpUserTimeout, &180_000)?;
    Ok(())
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(s) => s.as_fd(),
            Socket::Tcp(s) => s.as_fd(),
        }
    }
}

impl Read for Transport {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(session) = &mut self.session else {
                return self.socket.read(bytes);
            };
            match session.reader().read(bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            if !self.pump()? {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            return self.socket.write(bytes);
        };
        let taken = session.writer().write(bytes)?;
        if taken == 0 && !bytes.is_empty() {
            // The session's buffer is full. Once some bytes of the buffer are sent, the buffer has room again.
            session.write_tls(&mut self.socket)?;
            return self
                .session
                .as_mut()
                .map_or(Ok(0), |s| match s.writer().write(bytes)? {
                    0 => Err(ErrorKind::WouldBlock.into()),
                    n => Ok(n),
                });
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        while session.wants_write() {
            session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nix::sys::socket::getsockopt;

    use super::*;

    #[test]
    fn a_client_whose_machine_is_gone_is_noticed_within_minutes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let transport = Transport::tcp(listener.accept().unwrap().0).unwrap();
        let idle = getsockopt(&transport, sockopt::TcpKeepIdle).unwrap();
        let interval = getsockopt(&transport, sockopt::TcpKeepInterval).unwrap();
        let count = getsockopt(&transport, sockopt::TcpKeepCount).unwrap();
        assert_eq!(getsockopt(&transport, sockopt::KeepAlive), Ok(true));
        assert_eq!(idle + interval * count, 180);
        assert_eq!(getsockopt(&transport, sockopt::TcpUserTimeout), Ok(180_000));
    }
}
