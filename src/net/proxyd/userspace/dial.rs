//! Sockets to endpoints, if necessary in the network namespace of a pod.
//!
//! Invariants: nothing here waits. The process is in another namespace only while it makes a socket. If the process
//! cannot return to its own namespace, it exits, because all later sockets would be in the wrong network.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};

use crate::net::services::table::Backend;

/// The network namespaces of endpoints. A namespace is kept open from the moment at which its path comes into the
/// table, because a path with a pid may later belong to another process.
pub struct Namespaces {
    own: Option<File>,
    open: HashMap<PathBuf, File>,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self {
            own: File::open("/proc/thread-self/ns/net").ok(),
            open: HashMap::new(),
        }
    }
}

impl Namespaces {
    /// Opens the namespaces of a new table, and closes the namespaces that are not in it. A closed namespace ends with
    /// its pod.
    pub fn keep(&mut self, wanted: &BTreeSet<PathBuf>) {
        self.open.retain(|path, _| wanted.contains(path));
        for path in wanted {
            if !self.open.contains_key(path)
                && let Ok(file) = File::open(path)
            {
                self.open.insert(path.clone(), file);
            }
        }
    }

    /// Returns a socket that has begun to connect to an endpoint. The poller reports later if the connect has
    /// succeeded. The socket is closed on exec, and is non-blocking.
    ///
    /// # Errors
    /// Returns the error if no socket can be made, or if the connect has already failed.
    pub fn dial(&self, backend: &Backend, kind: SockType) -> nix::Result<OwnedFd> {
        let family = match backend.address.is_ipv4() {
            true => AddressFamily::Inet,
            false => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let make = || socket(family, kind, flags, None);
        let fd = match &backend.namespace {
            None => make()?,
            Some(path) => self.inside(path, make)?,
        };
        if kind == SockType::Stream {
            setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
        }
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(backend.address)) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
            Err(e) => Err(e),
        }
    }

    fn inside<T>(&self, path: &Path, make: impl FnOnce() -> nix::Result<T>) -> nix::Result<T> {
        let (own, there) = match (&self.own, self.open.get(path)) {
            (Some(own), Some(there)) => (own, there),
            // The pod of the namespace is gone.
            _ => return Err(Errno::ENETUNREACH),
        };
        setns(there, CloneFlags::CLONE_NEWNET)?;
        let made = make();
        if let Err(e) = setns(own, CloneFlags::CLONE_NEWNET) {
            let e = io::Error::from(e);
            eprintln!(
                "cannot return from the network namespace {}: {e}",
                path.display()
            );
            std::process::exit(1);
        }
        made
    }
}

/// Returns true if the error means that this process lacks descriptors or memory. Such an error says nothing about the
/// endpoint.
pub fn is_shortage(e: Errno) -> bool {
    matches!(
        e,
        Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM
    )
}
