//! Takes over the work of another proxy process, which runs another program.
//!
//! The new process asks for the sockets ([`Request::HandOver`]), and prepares everything that may fail. Then it asks
//! the old process to let go ([`Request::LetGo`]). Clients that connect in between wait in the queues of the sockets,
//! which both processes share.
//!
//! Invariants: before the request to let go, the old process changes nothing, and it goes on serving if the new process
//! fails. After that request the new process serves, whatever else is lost. Every wait has a limit.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use super::home::{Record, SOCKET};
use super::message::{Answer, Handed, LONGEST, Request};
use crate::base::json;
use crate::base::sys::task::PidFd;
use crate::base::sys::terminal::received;

/// The longest time that the old process may take for an answer. The limit is half of the time that the daemon waits
/// for the new process.
const LIMIT: Duration = Duration::from_secs(2);
/// Number of descriptors in one message. The kernel's limit is 253.
const AT_ONCE: usize = 128;

/// Sends as many descriptors as one message can carry, together with one byte without a meaning.
///
/// # Errors
/// Returns EAGAIN if the other side reads too slowly. In this case no descriptor is lost.
pub fn send(stream: &UnixStream, descriptors: &mut VecDeque<OwnedFd>) -> nix::Result<()> {
    let some = descriptors.iter().take(AT_ONCE);
    let some: Vec<RawFd> = some.map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&some)];
    let byte = [IoSlice::new(b".")];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &byte,
        &rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    descriptors.drain(..some.len());
    Ok(())
}

/// The proxy process that serves now, and the connection to its control socket.
pub struct Predecessor {
    stream: UnixStream,
    process: PidFd,
}

impl Predecessor {
    /// Finds the proxy process of a directory, and connects to it.
    ///
    /// # Errors
    /// Returns the error if there is no such process, or if it does not listen.
    pub fn find(dir: &Path) -> io::Result<Self> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "there is no process to take over");
        let record = Record::running(dir).ok_or_else(none)?;
        let process = record.process.open()?.ok_or_else(none)?;
        let stream = UnixStream::connect(dir.join(SOCKET))?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self { stream, process })
    }

    /// Asks the other process for its sockets and its lock. That process goes on to use the sockets and the lock.
    ///
    /// # Errors
    /// Returns the error if the other process does not answer in time, or if it refuses.
    pub fn hand_over(&mut self) -> io::Result<Gift> {
        let mut gift = self.ask(&Request::HandOver {})?;
        match self.receive(&mut gift) {
            Ok(()) => Ok(gift),
            Err(e) => Err(io::Error::new(e.kind(), format!("its sockets: {e}"))),
        }
    }

    /// Asks the other process to let go. That process then takes no more clients. If it ends before it has sent its UDP
    /// clients, open DNS connections and affinities, these are lost.
    ///
    /// # Errors
    /// Returns the error if the other process refuses or does not answer. In this case the other process goes on
    /// serving.
    pub fn let_go(&mut self) -> io::Result<Gift> {
        match self.ask(&Request::LetGo {}) {
            Ok(mut gift) => {
                let _ = self.receive(&mut gift);
                Ok(gift)
            }
            // The other process was killed, so this process takes over all the same.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Gift::default()),
            Err(e) => Err(e),
        }
    }

    /// Returns the other process. That process may still have connections for a long time.
    pub fn process(self) -> PidFd {
        self.process
    }

    /// Sends a request, and reads the line of the answer.
    fn ask(&mut self, request: &Request) -> io::Result<Gift> {
        let body = serde_json::to_vec(request)?;
        let frame = [&(body.len() as u32).to_be_bytes()[..], &body].concat();
        self.stream.write_all(&frame)?;
        let mut gift = Gift::default();
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if line.len() > LONGEST {
                return Err(io::Error::other("its answer has no end"));
            }
            self.read(&mut line, &mut gift.descriptors)?;
            // The bytes that carry descriptors follow the line, and may arrive together with it.
            if let Some(end) = line.iter().rposition(|b| *b == b'\n') {
                line.truncate(end + 1);
            }
        }
        let answer: Answer = json::from_slice(&line)?;
        match answer.error {
            Some(error) => Err(io::Error::other(format!("it refuses: {error}"))),
            None => {
                gift.handed = answer.handed.map(|h| *h).unwrap_or_default();
                Ok(gift)
            }
        }
    }

    /// Reads until all descriptors of an answer have arrived.
    fn receive(&mut self, gift: &mut Gift) -> io::Result<()> {
        while gift.descriptors.len() < gift.handed.descriptors() {
            self.read(&mut Vec::new(), &mut gift.descriptors)?;
        }
        Ok(())
    }

    /// Reads bytes and descriptors. Every read has room for descriptors, because a read without room would lose them.
    fn read(&self, bytes: &mut Vec<u8>, descriptors: &mut VecDeque<OwnedFd>) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let mut space = cmsg_space!([RawFd; 253]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let fd = self.stream.as_raw_fd();
        let got = match recvmsg::<()>(fd, &mut parts, Some(&mut space), flags) {
            Err(Errno::EAGAIN) => {
                let text = format!("it does not answer within {} s", LIMIT.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(Errno::EINTR) => return Ok(()),
            // The other process has ended before it had read the whole request.
            Err(Errno::ECONNRESET) => return Err(io::ErrorKind::UnexpectedEof.into()),
            other => other?,
        };
        for message in got.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = message {
                descriptors.extend(numbers.into_iter().map(received));
            }
        }
        let length = got.bytes;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..length]);
        Ok(())
    }
}

/// The things that another process has given: a list, and their descriptors in the order of [`Handed`].
#[derive(Default)]
pub struct Gift {
    /// The list of the things that were given.
    pub handed: Handed,
    /// The descriptors. Their number is smaller than `handed` says if the other process ended while it sent them.
    pub descriptors: VecDeque<OwnedFd>,
}

impl Gift {
    /// Takes the lock of the directory out of the gift; None if the gift has no lock.
    pub fn take_lock(&mut self) -> Option<OwnedFd> {
        let is_there = std::mem::take(&mut self.handed.home);
        is_there.then(|| self.descriptors.pop_front())?
    }

    /// Takes a list of things out of the gift, each with its descriptor. The next descriptors must belong to this
    /// list.
    pub fn take<T>(&mut self, of: impl FnOnce(&mut Handed) -> &mut Vec<T>) -> Vec<(T, OwnedFd)> {
        let named = std::mem::take(of(&mut self.handed));
        let count = named.len().min(self.descriptors.len());
        named
            .into_iter()
            .zip(self.descriptors.drain(..count))
            .collect()
    }
}
