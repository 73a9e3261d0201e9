//! The socket to the kernel's packet filter.
//!
//! Invariants: a transaction goes out in one send, so the kernel sees it whole. Answers to an earlier request are never
//! taken for those to a later one. No call waits longer than [`WAIT`].

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::batch::Batch;
use super::bytes::{Attributes, Messages, Received, error_code, received};
use super::error::NetfilterError;
use super::numbers::{chain, flag, generation, message, set, table};
use super::transaction::{Table, Transaction};

/// How long an answer may take; the kernel has it ready when the request has been sent.
const WAIT: Duration = Duration::from_secs(5);
/// How often a transaction is tried while another process is at the tables, and how long the first pause is.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// Bytes of the buffer for answers; the kernel sends at most 32 KiB at a time.
const RECEIVE: usize = 64 * 1024;

/// A socket to the packet filter of one network namespace: that of the thread that opened the socket.
#[derive(Debug)]
pub struct Netfilter {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// A chain as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChainState {
    /// Name of the chain.
    pub name: String,
    /// The kernel's number of the chain; a chain that was removed and added again has another number.
    pub handle: u64,
    /// How many rules are in the chain, and how many rules and elements lead to it, together.
    pub uses: u32,
    /// True for a base chain, which the kernel calls by itself.
    pub base: bool,
}

/// A set as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetState {
    /// Name of the set.
    pub name: String,
    /// The kernel's number of the set.
    pub handle: u64,
    /// True for a set that belongs to a rule.
    pub anonymous: bool,
}

/// A table as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableState {
    /// The kernel's number of the table; a table that was removed and added again has another number.
    pub handle: u64,
    /// How many chains and sets are in the table.
    pub uses: u32,
}

impl Netfilter {
    /// Opens the socket. The kernel checks privileges only at the first operation.
    ///
    /// # Errors
    /// Returns the kernel's error if it has no netfilter, or if no descriptors are left.
    pub fn open() -> Result<Self, NetfilterError> {
        let error = |errno| NetfilterError::new("open a socket to the packet filter", errno);
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkNetFilter,
        )
        .map_err(error)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).map_err(error)?;
        let wait = TimeVal::new(WAIT.as_secs() as i64, 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &wait).map_err(error)?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; RECEIVE],
        })
    }

    /// Carries out a transaction, all of it or nothing.
    ///
    /// # Errors
    /// Returns the first operation that the kernel refused. While another process holds the tables, the transaction is tried
    /// again a few times, for 100 ms in all.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), NetfilterError> {
        if transaction.is_empty() {
            return Ok(());
        }
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            match self.commit_once(transaction) {
                Err(e) if e.is_transient() => std::thread::sleep(pause),
                done => return done,
            }
            pause *= 2;
        }
        self.commit_once(transaction)
    }

    fn commit_once(&mut self, transaction: &Transaction) -> Result<(), NetfilterError> {
        let batch = Batch::of(transaction, self.next_sequence());
        self.sequence = batch.last().wrapping_add(1);
        let bytes = batch.messages.bytes();
        let whole = |errno| {
            let what = format!("send a transaction of {} bytes", bytes.len());
            NetfilterError::new(what, errno)
        };
        self.make_room(bytes.len());
        self.drain();
        // The kernel carries it out in here, and has queued all its answers at the return.
        send(self.socket.as_raw_fd(), bytes, MsgFlags::empty()).map_err(whole)?;
        self.verdict(transaction, &batch)
    }

    /// Makes the send buffer large enough for a message of this size: beyond the machine's limit if the process may, else as
    /// large as it may.
    fn make_room(&self, length: usize) {
        let wanted = length + length / 4 + 64 * 1024;
        if setsockopt(&self.socket, sockopt::SndBufForce, &wanted).is_err() {
            // What does not fit is refused by the send with EMSGSIZE.
            let _ = setsockopt(&self.socket, sockopt::SndBuf, &wanted);
        }
    }

    /// Reads the answers to a batch. Success is the acknowledgement of the last operation and no error.
    fn verdict(&mut self, transaction: &Transaction, batch: &Batch) -> Result<(), NetfilterError> {
        let mut acknowledged = false;
        loop {
            let length = match recv(
                self.socket.as_raw_fd(),
                &mut self.buffer,
                MsgFlags::MSG_DONTWAIT,
            ) {
                Ok(length) => length,
                Err(Errno::EAGAIN) if acknowledged => return Ok(()),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Err(self.no_answer()),
                Err(errno) => return Err(NetfilterError::new("read the kernel's answer", errno)),
            };
            for answer in received(&self.buffer[..length]) {
                let code = match answer.kind {
                    message::ERROR => error_code(answer.body).unwrap_or_default(),
                    _ => continue,
                };
                if code != 0 {
                    let index = batch.operation(answer.sequence).unwrap_or(usize::MAX);
                    let what = transaction.describe(index);
                    return Err(NetfilterError::new(what, Errno::from_raw(-code)));
                }
                acknowledged |= answer.sequence == batch.last();
            }
        }
    }

    fn no_answer(&self) -> NetfilterError {
        NetfilterError::new(
            "commit the transaction, for the kernel gave no answer",
            Errno::ENOMSG,
        )
    }

    /// Drops what is left of earlier answers.
    fn drain(&mut self) {
        let flags = MsgFlags::MSG_DONTWAIT;
        while !matches!(
            recv(self.socket.as_raw_fd(), &mut self.buffer, flags),
            Err(Errno::EAGAIN)
        ) {}
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Returns the number of the present state of all tables. Every transaction of any process makes a new number.
    ///
    /// # Errors
    /// Returns the kernel's error if it has no nf_tables, or if the process may not ask.
    pub fn generation(&mut self) -> Result<u32, NetfilterError> {
        let mut id = None;
        let answer = self.request(
            message::GETGEN,
            0,
            0,
            |_| {},
            |received| {
                if received.kind == message::NEWGEN {
                    id = received.attributes().u32(generation::ID);
                }
            },
        );
        let error = |errno| NetfilterError::new("read the generation of the rules", errno);
        answer.map_err(error)?;
        id.ok_or_else(|| error(Errno::EBADMSG))
    }

    /// Returns the table's state, or `None` if the table is not there.
    ///
    /// # Errors
    /// Returns the kernel's error if it has no nf_tables, or if the process may not ask.
    pub fn table(&mut self, of: &Table) -> Result<Option<TableState>, NetfilterError> {
        let mut state = None;
        let name = |m: &mut Messages| m.put_name(table::NAME, &of.name);
        let answer = self.request(message::GETTABLE, 0, of.family as u8, name, |received| {
            let attributes = received.attributes();
            state = attributes.u64(table::HANDLE).map(|handle| TableState {
                handle,
                uses: attributes.u32(table::USE).unwrap_or_default(),
            });
        });
        match answer {
            Ok(()) => Ok(state),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(NetfilterError::new(format!("read {of}"), errno)),
        }
    }

    /// Returns the chains of a table; the list is empty if the table is not there.
    ///
    /// # Errors
    /// Returns the kernel's error if it has no nf_tables, or if the process may not ask.
    pub fn chains(&mut self, of: &Table) -> Result<Vec<ChainState>, NetfilterError> {
        self.list(of, message::GETCHAIN, chain::TABLE, |attributes| {
            Some(ChainState {
                name: attributes.name(chain::NAME)?.to_owned(),
                handle: attributes.u64(chain::HANDLE)?,
                uses: attributes.u32(chain::USE)?,
                base: attributes.get(chain::HOOK).is_some(),
            })
        })
    }

    /// Returns the sets and maps of a table; the list is empty if the table is not there.
    ///
    /// # Errors
    /// Returns the kernel's error if it has no nf_tables, or if the process may not ask.
    pub fn sets(&mut self, of: &Table) -> Result<Vec<SetState>, NetfilterError> {
        self.list(of, message::GETSET, set::TABLE, |attributes| {
            Some(SetState {
                name: attributes.name(set::NAME)?.to_owned(),
                handle: attributes.u64(set::HANDLE)?,
                anonymous: attributes.u32(set::FLAGS).unwrap_or_default() & 1 != 0,
            })
        })
    }

    /// Lists everything of a kind in a table, as `read` takes it. The attribute `table_name` holds the table's name in each.
    fn list<T>(
        &mut self,
        of: &Table,
        kind: u16,
        table_name: u16,
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> Result<Vec<T>, NetfilterError> {
        let family = of.family as u8;
        let name = |m: &mut Messages| m.put_name(table_name, &of.name);
        let answer = self.dump(kind, family, name, |received| {
            let attributes = received.attributes();
            // Older kernels list those of all tables.
            match attributes.name(table_name) == Some(&of.name) {
                true => read(attributes),
                false => None,
            }
        });
        match answer {
            Err(Errno::ENOENT) => Ok(Vec::new()),
            answer => answer.map_err(|errno| NetfilterError::new(format!("list {of}"), errno)),
        }
    }

    /// Requests a list with [`Self::request`], and returns what `read` takes of each message. Begins anew if the list
    /// changed meanwhile.
    pub(super) fn dump<T>(
        &mut self,
        kind: u16,
        family: u8,
        inside: impl Fn(&mut Messages),
        read: impl Fn(Received<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Errno> {
        let mut answer = Ok(());
        for _ in 0..TRIES {
            let mut found = Vec::new();
            answer = self.request(kind, flag::DUMP, family, &inside, |received| {
                found.extend(read(received));
            });
            match answer {
                Ok(()) => return Ok(found),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        answer.map(|()| Vec::new())
    }

    /// Sends a message and reads its answers up to the acknowledgement, or to the end of a list.
    pub(super) fn request(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        inside: impl FnOnce(&mut Messages),
        mut read: impl FnMut(Received<'_>),
    ) -> Result<(), Errno> {
        let sequence = self.next_sequence();
        let mut m = Messages::default();
        m.begin(kind, flags | flag::ACK, sequence, family, 0);
        inside(&mut m);
        m.end();
        self.drain();
        send(self.socket.as_raw_fd(), m.bytes(), MsgFlags::empty())?;
        let mut changed = false;
        loop {
            let length = match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Err(Errno::ETIMEDOUT),
                length => length?,
            };
            for answer in received(&self.buffer[..length]).filter(|a| a.sequence == sequence) {
                changed |= answer.flags & flag::DUMP_INTR != 0;
                match (answer.kind, error_code(answer.body)) {
                    (message::ERROR | message::DONE, Some(code)) if code < 0 => {
                        return Err(Errno::from_raw(-code));
                    }
                    (message::ERROR | message::DONE, _) if changed => return Err(Errno::EINTR),
                    (message::ERROR | message::DONE, _) => return Ok(()),
                    _ => read(answer),
                }
            }
        }
    }
}
