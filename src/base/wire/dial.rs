//! Opens connections, if necessary in another network namespace.
//!
//! Invariants: a thread is in another namespace only while it makes a socket. A thread that cannot return sets
//! [`namespace_lost`] and panics. The thread's owner then calls [`come_home`] before anything else. No connection
//! leaves a socket in TIME-WAIT. The kubelet sets SO_LINGER of one second for this purpose (kubelet-probes 3.4, 3.5),
//! but on Linux this option does not prevent TIME-WAIT. The server always sees the end of the connection before a
//! reset. A connection can end in two ways ([`End`]).

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, UnixAddr, connect, setsockopt, socket,
    sockopt,
};

use super::observer::Observer;
use super::socket::{Socket, left_until};
use super::text::go_errno;

/// Number of tries of a lost thread to return to its namespace.
const HOME_TRIES: u32 = 50;
/// Pause between two tries of a lost thread to return, because the kernel may have lacked memory.
const HOME_PAUSE: Duration = Duration::from_millis(100);

thread_local! {
    static NAMESPACE_LOST: Cell<bool> = const { Cell::new(false) };
}

/// Tells whether this thread is stuck in another network namespace.
pub fn namespace_lost() -> bool {
    NAMESPACE_LOST.get()
}

/// Brings a lost thread back to the network namespace of the process. Call it before the thread does anything else, because
/// its new threads and processes would be lost too. Returns false if the kernel still refuses.
pub fn come_home() -> bool {
    if !namespace_lost() {
        return true;
    }
    for _ in 0..HOME_TRIES {
        // The namespace of the main thread, which never enters another namespace.
        let home = File::open("/proc/self/ns/net");
        if home.is_ok_and(|home| setns(home, CloneFlags::CLONE_NEWNET).is_ok()) {
            NAMESPACE_LOST.set(false);
            return true;
        }
        std::thread::park_timeout(HOME_PAUSE);
    }
    false
}

/// The address of a connection's other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address<'a> {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(&'a Path),
}

/// Writes the address like Go, after the name of the network.
impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => write!(f, "tcp {addr}"),
            Self::Unix(path) => write!(f, "unix {}", path.display()),
        }
    }
}

/// An open network namespace.
#[derive(Debug)]
pub struct Namespace<'a> {
    /// The open file of the namespace.
    pub file: File,
    /// The path from which the file was opened, for error texts.
    pub path: &'a Path,
}

impl Namespace<'_> {
    /// Returns the error for a namespace that cannot be entered.
    pub fn refused(path: &Path, cause: impl fmt::Display) -> DialError {
        DialError::Ours(format!(
            "cannot enter the network namespace {}: {cause}",
            path.display()
        ))
    }
}

/// The reason why a connection could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialError {
    /// The other side caused the failure.
    Failed(String),
    /// The deadline passed. A passed deadline counts as the other side's fault.
    TimedOut(String),
    /// podprobe itself caused the failure (no descriptors, no namespace). The failure says nothing about the other side
    /// (lessons 16).
    Ours(String),
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) | Self::TimedOut(text) | Self::Ours(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for DialError {}

/// The way in which a TCP connection ends. A unix socket always ends when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Ends with a call of [`Socket::hang_up`]. Without that call, the drop sends a reset. The call sends a FIN, and
    /// then a close with linger zero drops the socket. Between the FIN and the close, the socket accepts no packet: if
    /// the server answered with its own FIN before the close, the socket would go to TIME-WAIT. This way is for servers
    /// that may end the connection at the same time, as http servers do.
    HangUp,
    /// Ends with the drop. The drop sends a FIN, and the FIN's acknowledgement ends the socket. This way costs half as
    /// much as [`End::HangUp`], and suits a connection without any data. A socket is left in TIME-WAIT only if the
    /// server hangs up within the same microseconds.
    Close,
}

/// Opens connections in a namespace, until a deadline.
pub struct Dialer<'a> {
    /// The namespace in which sockets are made. None means the caller's own.
    pub namespace: Option<Namespace<'a>>,
    /// Time by which a connection must be open.
    pub deadline: Instant,
    /// Observer that gets a note for each connection.
    pub observer: &'a dyn Observer,
}

impl Dialer<'_> {
    /// Connects to the first address that accepts a connection.
    ///
    /// # Errors
    /// Returns the error of the first address, or a [`DialError::Failed`] if there is no address.
    pub fn dial_first<'s>(
        &self,
        addresses: impl IntoIterator<Item = Address<'s>>,
        end: End,
    ) -> Result<Socket, DialError> {
        let mut first = None;
        for address in addresses {
            match self.dial(address, end) {
                Ok(socket) => return Ok(socket),
                Err(e) => _ = first.get_or_insert(e),
            }
        }
        Err(first.unwrap_or_else(|| DialError::Failed("dial tcp: no address to connect to".into())))
    }

    /// Connects to `address`.
    ///
    /// # Errors
    /// Returns a [`DialError`] with a text in Go's form: `dial tcp <addr>: connect: connection refused`,
    /// `dial tcp <addr>: i/o timeout`.
    pub fn dial(&self, address: Address<'_>, end: End) -> Result<Socket, DialError> {
        let dialed = self.dial_unobserved(address, end);
        match &dialed {
            Ok(socket) => self.observer.note(format_args!(
                "connected to {} from {}",
                Bare(address),
                socket.local()
            )),
            Err(e) => self.observer.note(format_args!("{e}")),
        }
        dialed
    }

    fn dial_unobserved(&self, address: Address<'_>, end: End) -> Result<Socket, DialError> {
        let fd = match &self.namespace {
            None => make_socket(address),
            Some(namespace) => in_namespace(namespace, || make_socket(address))?,
        };
        let fd = fd.map_err(|e| failed(address, "socket", e))?;
        let peer = match address {
            Address::Tcp(addr) => {
                prepare_end(&fd, end).map_err(|e| failed(address, "setsockopt", e))?;
                Some(addr)
            }
            Address::Unix(_) => None,
        };
        let opened = self.observer.opened(fd.as_fd());
        opened.map_err(|e| DialError::Ours(e.to_string()))?;
        let socket = Socket::connected(fd, peer);
        let left = left_until(self.deadline).ok_or_else(|| timed_out(address))?;
        // A blocking socket costs four system calls less than a polled socket.
        socket
            .set_write_timeout(left)
            .map_err(|e| failed(address, "setsockopt", errno_of(&e)))?;
        match (connect_to(&socket, address), address) {
            (Ok(()), _) => {}
            // The time is up, or a signal came. In both cases the kernel goes on connecting.
            (Err(Errno::EINPROGRESS | Errno::EINTR), Address::Tcp(_)) => {
                await_connected(&socket, address, self.deadline)?;
            }
            // The server's queue stayed full until the deadline.
            (Err(Errno::EAGAIN), Address::Unix(_)) => return Err(timed_out(address)),
            (Err(e), _) => return Err(failed(address, "connect", e)),
        }
        Ok(socket)
    }
}

fn errno_of(e: &std::io::Error) -> Errno {
    e.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// An address that is written without the name of its network.
struct Bare<'a>(Address<'a>);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Address::Tcp(addr) => write!(f, "{addr}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

fn make_socket(address: Address<'_>) -> nix::Result<OwnedFd> {
    let family = match address {
        Address::Tcp(SocketAddr::V4(_)) => AddressFamily::Inet,
        Address::Tcp(SocketAddr::V6(_)) => AddressFamily::Inet6,
        Address::Unix(_) => AddressFamily::Unix,
    };
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
}

fn prepare_end(fd: &OwnedFd, end: End) -> nix::Result<()> {
    match end {
        End::HangUp => setsockopt(
            fd,
            sockopt::Linger,
            &nix::libc::linger {
                l_onoff: 1,
                l_linger: 0,
            },
        ),
        End::Close => crate::base::sys::socket::skip_fin_wait(fd.as_fd()),
    }
}

fn connect_to(socket: &Socket, address: Address<'_>) -> nix::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    match address {
        Address::Tcp(addr) => connect(fd, &SockaddrStorage::from(addr)),
        Address::Unix(path) => {
            let path = UnixAddr::new(path)?;
            // A signal interrupts a connect to a unix socket before it has begun.
            loop {
                match connect(fd, &path) {
                    Err(Errno::EINTR) => {}
                    done => return done,
                }
            }
        }
    }
}

#[inline(never)]
fn await_connected(
    socket: &Socket,
    address: Address<'_>,
    deadline: Instant,
) -> Result<(), DialError> {
    loop {
        let left = left_until(deadline).ok_or_else(|| timed_out(address))?;
        match poll(
            &mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)],
            round_up(left),
        ) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => break,
            Err(e) => return Err(failed(address, "poll", e)),
        }
    }
    match nix::sys::socket::getsockopt(socket, sockopt::SocketError) {
        Ok(0) => Ok(()),
        Ok(code) => Err(failed(address, "connect", Errno::from_raw(code))),
        Err(e) => Err(failed(address, "getsockopt", e)),
    }
}

/// Rounds a time up to whole milliseconds, at most a minute, so that a wait of less than a millisecond is no busy loop.
pub(super) fn round_up(left: Duration) -> PollTimeout {
    let ms = left.as_nanos().div_ceil(1_000_000).min(60_000);
    PollTimeout::from(u16::try_from(ms).unwrap_or(60_000))
}

fn timed_out(address: Address<'_>) -> DialError {
    DialError::TimedOut(format!("dial {address}: i/o timeout"))
}

fn failed(address: Address<'_>, call: &str, errno: Errno) -> DialError {
    let text = format!("dial {address}: {call}: {}", go_errno(errno));
    match errno {
        Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM => DialError::Ours(text),
        _ => DialError::Failed(text),
    }
}

/// Runs `f` while this thread is in a network namespace.
#[inline(never)]
fn in_namespace<T>(namespace: &Namespace<'_>, f: impl FnOnce() -> T) -> Result<T, DialError> {
    let refused = |e: &dyn fmt::Display| Namespace::refused(namespace.path, e);
    let own = File::open("/proc/thread-self/ns/net").map_err(|e| refused(&e))?;
    setns(&namespace.file, CloneFlags::CLONE_NEWNET).map_err(|e| refused(&e))?;
    let value = f();
    if let Err(e) = setns(&own, CloneFlags::CLONE_NEWNET) {
        NAMESPACE_LOST.set(true);
        panic!(
            "cannot return from the network namespace {}: {e}",
            namespace.path.display()
        );
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_thread_comes_home() {
        if !crate::skip::is_root() {
            return;
        }
        let own = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let home = own();
        let lost = std::thread::spawn(move || {
            nix::sched::unshare(CloneFlags::CLONE_NEWNET).unwrap();
            NAMESPACE_LOST.set(true);
            let away = own();
            assert!(come_home() && !namespace_lost());
            (away, own())
        });
        let (away, back) = lost.join().unwrap();
        assert_ne!(away, home);
        assert_eq!(back, home);
    }
}
