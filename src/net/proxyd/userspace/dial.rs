//! Sockets to endpoints, if necessary in the network namespace of a pod.
//!
//! Invariants: nothing here waits. The process is in a foreign namespace only while it makes a socket; if it cannot
//! return it ends, for everything it would bind or connect afterwards would be in the wrong network.

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

/// The network namespaces of endpoints, open since they came into the table: a path with a pid may be another's later.
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
    /// Opens the namespaces of a new table and closes the others, which then end with their pods.
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

    /// Returns a socket that begins to connect to an endpoint; the poller tells later whether it could. The socket is closed
    /// on exec, and does not block.
    ///
    /// # Errors
    /// Returns the error if no socket can be had, or if the connect has failed already.
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
            // Its pod has gone.
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

/// True if an error is this process's own lack of descriptors or memory, which says nothing about the endpoint.
pub fn is_shortage(e: Errno) -> bool {
    matches!(
        e,
        Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM
    )
}
