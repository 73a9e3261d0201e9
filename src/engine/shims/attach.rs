//! The protocol between the daemon and a shim for attaching a client, and the daemon's side of this protocol.
//!
//! The shim listens in the container's record directory, which only root can enter. The daemon connects
//! (SOCK_SEQPACKET) and sends one message: the streams that the client requests, with the write ends of the client's
//! pipes. The shim answers with a word, and with the container's input if the client may have it. After that the open
//! connection only shows that the client is attached. The shim's last message says why the connection ends.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, Shutdown, SockFlag, SockType,
    UnixAddr, connect, recv, recvmsg, sendmsg, setsockopt, shutdown, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::state::ContainerRecord;
use crate::base::sys::terminal::{received, set_size};
use crate::engine::runtime::{AttachRequest, Endable, Session, SessionEnd, TerminalSize};

/// Name of the socket in the record directory.
pub(super) const SOCKET: &str = "attach";
/// Size in bytes of the longest message.
pub(super) const MESSAGE: usize = 32;
/// The shim's answer to a client that is attached now.
pub(super) const ATTACHED: &[u8] = b"attached";
/// The shim's answer when [`MAX`] clients are attached already.
pub(super) const FULL: &[u8] = b"full";
/// The shim's last message to a client that did not read.
pub(super) const TOO_SLOW: &[u8] = b"too slow";
/// Text before the exit code in the shim's last message.
const EXITED: &str = "exited ";

/// Maximum number of clients that are attached to a container.
pub(super) const MAX: usize = 8;

/// Longest time that a shim may take to answer. A shim always returns to its poll soon.
const LIMIT: Duration = Duration::from_secs(5);
/// Number of bytes that a client may be behind in each stream. The kernel may give a pipe less room.
const BEHIND: i32 = 1 << 20;

/// Encodes a request as a message: one letter for each stream.
fn encode(request: AttachRequest) -> Vec<u8> {
    let letters = [
        (request.stdin, b'i'),
        (request.stdout, b'o'),
        (request.stderr, b'e'),
    ];
    let asked = letters.into_iter().filter(|(asked, _)| *asked);
    [b'a'].into_iter().chain(asked.map(|(_, l)| l)).collect()
}

/// Decodes a daemon's message. Returns None if [`encode`] would not make this message, for example because a newer
/// daemon uses more letters.
pub(super) fn decode(message: &[u8]) -> Option<AttachRequest> {
    let letters = message.strip_prefix(b"a")?;
    let has = |letter| letters.contains(&letter);
    let request = AttachRequest {
        stdin: has(b'i'),
        stdout: has(b'o'),
        stderr: has(b'e'),
    };
    (encode(request) == message).then_some(request)
}

/// Makes the last message of a shim whose container has ended.
pub(super) fn exited(code: i32) -> String {
    format!("{EXITED}{code}")
}

fn end_of(last_word: &[u8]) -> SessionEnd {
    let code = std::str::from_utf8(last_word)
        .ok()
        .and_then(|word| word.strip_prefix(EXITED)?.parse().ok());
    match code {
        Some(code) => SessionEnd::Exited(code),
        None if last_word == TOO_SLOW => SessionEnd::TooSlow,
        None => SessionEnd::Unknown,
    }
}

/// Returns a path of the socket that is short even if the directory's own path is too long for a socket.
pub(super) fn short_path(dir: &File) -> String {
    format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())
}

/// Sends a message with descriptors. Never waits on a non-blocking socket, and never raises a signal.
pub(super) fn send(socket: &OwnedFd, message: &[u8], fds: &[i32]) -> nix::Result<()> {
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[] } else { &rights[..] };
    let slices = [IoSlice::new(message)];
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(socket.as_raw_fd(), &slices, rights, flags, None).map(drop)
}

/// Receives a message with its descriptors. An empty message means that the connection has ended.
pub(super) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> nix::Result<(usize, Vec<OwnedFd>)> {
    // There is room for as many descriptors as one message can have. Descriptors that found no room would stay open,
    // unknown to us.
    let mut space = cmsg_space!([i32; 253]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let got = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let mut fds = Vec::new();
    for part in got.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = part {
            fds.extend(numbers.into_iter().map(received));
        }
    }
    Ok((got.bytes, fds))
}

/// The daemon's connection to the shim.
pub(super) struct Connection(OwnedFd);

impl Endable for Connection {
    fn end(&self) {
        let _ = shutdown(self.0.as_raw_fd(), Shutdown::Both);
    }
}

/// The reason why a client is not attached.
#[derive(Debug, thiserror::Error)]
pub(super) enum AttachError {
    /// A system call of the daemon failed.
    #[error("{}", .0.desc())]
    Os(#[from] Errno),
    /// The record directory cannot be opened.
    #[error(transparent)]
    Directory(#[from] io::Error),
    /// There is no socket: the shim has never listened, or the socket was removed.
    #[error("its shim is of an older podprobe, or its socket was removed; restart the container")]
    NoSocket,
    /// No process listens at the socket any more.
    #[error("its shim is gone; restart the container")]
    Gone,
    /// The shim did not answer in time.
    #[error("its shim gives no answer within {} s", LIMIT.as_secs())]
    Late,
    /// The request could not be sent, or no answer could be received.
    #[error("its shim gives no answer: {}", .0.desc())]
    NoAnswer(Errno),
    /// The maximum number of clients is attached already.
    #[error("{MAX} clients are attached to it, as many as may be; end one of them")]
    Full,
    /// The shim answered with an unknown word.
    #[error("its shim has refused")]
    Refused,
}

/// A client that is attached.
pub(super) struct Attached {
    pub(super) connection: Arc<Connection>,
    /// The container's input, or its terminal.
    input: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    writes: bool,
    tty: bool,
    /// True if the container reads an end of file when the client's input ends.
    once: bool,
}

/// Attaches a client through the shim that has the record directory `dir`.
///
/// # Errors
/// Returns [`AttachError`] if there is no shim, or if the shim does not attach the client.
pub(super) fn attach(
    dir: &Path,
    record: &ContainerRecord,
    request: AttachRequest,
) -> Result<Attached, AttachError> {
    let request = AttachRequest {
        stderr: request.stderr && !record.tty,
        ..request
    };
    let socket = connected(dir)?;
    let stdout = request.stdout.then(output_pipe).transpose()?;
    let stderr = request.stderr.then(output_pipe).transpose()?;
    let theirs = [&stdout, &stderr].into_iter().flatten();
    let theirs: Vec<i32> = theirs.map(|(_, write)| write.as_raw_fd()).collect();
    let mut answer = [0; MESSAGE];
    let answered = send(&socket, &encode(request), &theirs)
        .and_then(|()| receive(&socket, &mut answer))
        .map_err(|e| match e {
            Errno::EAGAIN => AttachError::Late,
            e => AttachError::NoAnswer(e),
        });
    let (length, mut fds) = answered?;
    match &answer[..length] {
        ATTACHED => {}
        FULL => return Err(AttachError::Full),
        _ => return Err(AttachError::Refused),
    }
    let input = fds.pop();
    Ok(Attached {
        connection: Arc::new(Connection(socket)),
        writes: request.stdin && record.stdin && input.is_some(),
        input,
        stdout: stdout.map(|(read, _)| read),
        stderr: stderr.map(|(read, _)| read),
        tty: record.tty,
        once: record.stdin_once && !record.tty,
    })
}

fn connected(dir: &Path) -> Result<OwnedFd, AttachError> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    let limit = TimeVal::new(LIMIT.as_secs().cast_signed(), 0);
    setsockopt(&socket, sockopt::SendTimeout, &limit)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &limit)?;
    let dir = File::open(dir)?;
    let address = UnixAddr::new(short_path(&dir).as_str())?;
    let connected = loop {
        match connect(socket.as_raw_fd(), &address) {
            Err(Errno::EINTR) => {}
            done => break done,
        }
    };
    match connected {
        Ok(()) => Ok(socket),
        Err(Errno::ENOENT) => Err(AttachError::NoSocket),
        Err(Errno::ECONNREFUSED) => Err(AttachError::Gone),
        Err(Errno::EAGAIN) => Err(AttachError::Late),
        Err(e) => Err(e.into()),
    }
}

/// Makes a pipe whose read end does not block. The pipe holds [`BEHIND`] bytes if the kernel allows this size.
fn output_pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let _ = fcntl(&read, FcntlArg::F_SETPIPE_SZ(BEHIND));
    Ok((read, write))
}

impl Session for Attached {
    fn stdin(&self) -> Option<BorrowedFd<'_>> {
        let input = self.input.as_ref().filter(|_| self.writes);
        input.map(AsFd::as_fd)
    }

    fn stdout(&self) -> Option<BorrowedFd<'_>> {
        self.stdout.as_ref().map(AsFd::as_fd)
    }

    fn stderr(&self) -> Option<BorrowedFd<'_>> {
        self.stderr.as_ref().map(AsFd::as_fd)
    }

    fn close_stdin(&mut self) {
        if !std::mem::take(&mut self.writes) {
            return;
        }
        match self.once {
            true => self.input = None,
            false => self.connection.end(),
        }
    }

    fn ended(&self) -> BorrowedFd<'_> {
        self.connection.0.as_fd()
    }

    fn resize(&self, size: TerminalSize) {
        if let (Some(terminal), true) = (&self.input, self.tty) {
            // Setting the size fails if the terminal has been hung up.
            let _ = set_size(terminal, (size.width, size.height));
        }
    }

    fn finish(self: Box<Self>) -> SessionEnd {
        let mut word = [0; MESSAGE];
        let flags = MsgFlags::MSG_DONTWAIT;
        let length = recv(self.connection.0.as_raw_fd(), &mut word, flags).unwrap_or(0);
        end_of(&word[..length])
    }
}

/// Makes the shim's socket in the record directory, and listens. The socket does not block.
pub(super) fn listen(dir: &Path) -> io::Result<OwnedFd> {
    use nix::sys::socket::{Backlog, bind, listen};
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    let dir = File::open(dir)?;
    bind(
        socket.as_raw_fd(),
        &UnixAddr::new(short_path(&dir).as_str())?,
    )?;
    listen(&socket, Backlog::new(8)?)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_arrives_as_it_was_made_and_nothing_else_is_one() {
        for n in 0..8 {
            let [stdin, stdout, stderr] = [1, 2, 4].map(|bit| n & bit != 0);
            let request = AttachRequest {
                stdin,
                stdout,
                stderr,
            };
            assert_eq!(decode(&encode(request)), Some(request));
        }
        for message in [&b""[..], b"x", b"io", b"aio!", b"aoi", b"aoo"] {
            assert_eq!(decode(message), None, "{message:?}");
        }
    }

    #[test]
    fn the_last_word_says_how_it_ended() {
        assert_eq!(end_of(exited(137).as_bytes()), SessionEnd::Exited(137));
        assert_eq!(end_of(TOO_SLOW), SessionEnd::TooSlow);
        for word in [&b""[..], b"exited", b"exited x", b"\xff"] {
            assert_eq!(end_of(word), SessionEnd::Unknown);
        }
        assert!(exited(i32::MIN).len() <= MESSAGE);
    }
}
