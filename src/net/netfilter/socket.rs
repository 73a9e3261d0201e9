//! The netlink socket to the kernel's packet filter.
//!
//! Invariants: a transaction is sent with one system call, so the kernel gets the transaction as a whole. An answer to
//! an earlier request is never taken for the answer to a later request. No call waits longer than [`WAIT`].

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

/// Longest wait for an answer. Usually the kernel has the answer ready when the send returns.
const WAIT: Duration = Duration::from_secs(5);
/// Number of tries for a transaction while another process changes the tables.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// Size in bytes of the buffer for answers. The kernel sends at most 32 KiB at a time.
const RECEIVE: usize = 64 * 1024;

/// A socket to the packet filter of one network namespace, namely that of the thread that opened the socket.
#[derive(Debug)]
pub struct Netfilter {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// The kernel's state of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChainState {
    /// Name of the chain.
    pub name: String,
    /// The kernel's number of the chain. A chain that was removed and added again has another number.
    pub handle: u64,
    /// Number of rules in the chain, plus the number of rules and elements that lead to the chain.
    pub uses: u32,
    /// True for a base chain, which is attached to a hook.
    pub base: bool,
}

/// The kernel's state of a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetState {
    /// Name of the set.
    pub name: String,
    /// The kernel's number of the set.
    pub handle: u64,
    /// True for a set that belongs to one rule.
    pub anonymous: bool,
}

/// The kernel's state of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableState {
    /// The kernel's number of the table. A table that was removed and added again has another number.
    pub handle: u64,
    /// Number of chains and sets in the table.
    pub uses: u32,
}

impl Netfilter {
    /// Opens the socket. The kernel checks privileges only at the first operation.
    ///
    /// # Errors
    /// Returns the kernel's error if the kernel has no netfilter, or if no descriptors are left.
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

    /// Carries out a transaction as a whole. If the kernel refuses an operation, nothing is changed.
    ///
    /// # Errors
    /// Returns a [`NetfilterError`] with the first operation that the kernel refused. While another process changes the
    /// tables, the transaction is tried again a few times, for less than 100 ms in all.
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
        // The kernel carries out the transaction during the send. All its answers are queued when the send returns.
        send(self.socket.as_raw_fd(), bytes, MsgFlags::empty()).map_err(whole)?;
        self.verdict(transaction, &batch)
    }

    /// Makes the send buffer large enough for a message of `length` bytes. If the process may not exceed the machine's
    /// limit, the buffer becomes as large as the limit.
    fn make_room(&self, length: usize) {
        let wanted = length + length / 4 + 64 * 1024;
        if setsockopt(&self.socket, sockopt::SndBufForce, &wanted).is_err() {
            // If a message does not fit into this buffer, the kernel refuses the message with EMSGSIZE.
            let _ = setsockopt(&self.socket, sockopt::SndBuf, &wanted);
        }
    }

    /// Reads the answers to a batch. The transaction succeeded if the last operation is acknowledged and there is no error.
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

    /// Discards the remaining answers to earlier requests.
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

    /// Returns the number of the present state of all tables. The number changes with every transaction of any process.
    ///
    /// # Errors
    /// Returns the kernel's error if the kernel has no nf_tables, or if the process may not read its tables.
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

    /// Returns the state of a table, or `None` if the table does not exist.
    ///
    /// # Errors
    /// Returns the kernel's error if the kernel has no nf_tables, or if the process may not read its tables.
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

    /// Returns the chains of a table. The list is empty if the table does not exist.
    ///
    /// # Errors
    /// Returns the kernel's error if the kernel has no nf_tables, or if the process may not read its tables.
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

    /// Returns the sets and maps of a table. The list is empty if the table does not exist.
    ///
    /// # Errors
    /// Returns the kernel's error if the kernel has no nf_tables, or if the process may not read its tables.
    pub fn sets(&mut self, of: &Table) -> Result<Vec<SetState>, NetfilterError> {
        self.list(of, message::GETSET, set::TABLE, |attributes| {
            Some(SetState {
                name: attributes.name(set::NAME)?.to_owned(),
                handle: attributes.u64(set::HANDLE)?,
                anonymous: attributes.u32(set::FLAGS).unwrap_or_default() & 1 != 0,
            })
        })
    }

    /// Lists all objects of one type in a table. `read` turns the attributes of an object into a `T`. The attribute
    /// `table_name` of each object holds the name of its table.
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
            // Older kernels list the objects of all tables.
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

    /// Requests a list with [`Self::request`]. Returns the results of `read` for the messages of the list. Requests the
    /// list again if the list has changed during the request.
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

    /// Sends a message, and calls `read` with each answer up to the acknowledgement or the end of a list.
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
