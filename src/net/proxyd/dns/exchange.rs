//! The socket for one try of a question to another resolver.
//!
//! Invariants: each try has a socket of its own, so the kernel chooses a random port for each try. The socket is
//! connected. So the kernel lets in only packets of the asked resolver, and reports an error if nothing listens at the
//! resolver's address.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

use super::forward::Transport;
use super::frames::{Frames, framed};
use super::message::TCP_LIMIT;

/// The socket for one try of a question to another resolver.
pub enum Exchange {
    /// The socket of a question that was sent as a datagram.
    Udp(UdpSocket),
    /// The stream, the bytes of the question that are not sent yet, and the bytes that have arrived.
    Tcp(TcpStream, Vec<u8>, Frames),
}

impl Exchange {
    /// Opens a socket and sends the question. Bytes that cannot be sent at once are sent by [`Self::receive`].
    pub fn open(to: SocketAddr, transport: Transport, question: &[u8]) -> io::Result<Self> {
        match transport {
            Transport::Udp => {
                let socket = UdpSocket::from(connected(to, SockType::Datagram)?);
                socket.send(question)?;
                Ok(Self::Udp(socket))
            }
            Transport::Tcp => {
                let stream = TcpStream::from(connected(to, SockType::Stream)?);
                let framed = framed(question).ok_or(ErrorKind::InvalidInput)?;
                Ok(Self::Tcp(stream, framed, Frames::new(TCP_LIMIT)))
            }
        }
    }

    /// Returns the poll events for which the exchange waits.
    pub fn interest(&self) -> EpollFlags {
        match self {
            Self::Tcp(_, unsent, _) if !unsent.is_empty() => EpollFlags::EPOLLOUT,
            _ => EpollFlags::EPOLLIN,
        }
    }

    /// Returns the next message; `None` if there is none yet.
    ///
    /// # Errors
    /// Returns the error if nothing listens at the resolver's address, or if the resolver has closed the connection.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Udp(socket) => match socket.recv(buffer) {
                Ok(length) => Ok(Some(buffer[..length].to_vec())),
                Err(e) => not_yet(e),
            },
            Self::Tcp(stream, unsent, frames) => {
                while !unsent.is_empty() {
                    match stream.write(unsent) {
                        Ok(sent) => drop(unsent.drain(..sent)),
                        Err(e) => return not_yet(e),
                    }
                }
                read(stream, frames, buffer)
            }
        }
    }
}

fn read(
    stream: &mut TcpStream,
    frames: &mut Frames,
    buffer: &mut [u8],
) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(message) = frames.take().map_err(|_| ErrorKind::InvalidData)? {
            return Ok(Some(message));
        }
        match stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => frames.push(&buffer[..length]),
            Err(e) => return not_yet(e),
        }
    }
}

fn not_yet<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// Opens a non-blocking socket, and connects it. The connect may still be under way when the function returns.
fn connected(to: SocketAddr, kind: SockType) -> io::Result<OwnedFd> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, kind, flags, None)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
        Err(e) => Err(e.into()),
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket) => socket.as_fd(),
            Self::Tcp(stream, ..) => stream.as_fd(),
        }
    }
}
