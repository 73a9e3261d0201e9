//! The error of a netfilter operation: the operation that failed, the kernel's error number, and a hint for a person.

use std::fmt;

use nix::errno::Errno;

/// The error of an operation that the kernel refused, or of a kernel that podprobe cannot talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetfilterError {
    /// The operation in words for a person: "add rule to chain x of table ip y".
    operation: String,
    errno: Errno,
}

impl NetfilterError {
    pub(super) fn new(operation: impl Into<String>, errno: Errno) -> Self {
        Self {
            operation: operation.into(),
            errno,
        }
    }

    /// Returns the kernel's error number.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// Tells whether the operation may succeed if it is repeated at once, because another process was changing the tables.
    pub(super) fn is_transient(&self) -> bool {
        matches!(
            self.errno,
            Errno::EBUSY | Errno::EINTR | Errno::EAGAIN | Errno::ERESTART
        )
    }

    fn hint(&self) -> &'static str {
        match self.errno {
            Errno::EPERM | Errno::EACCES => ": it needs CAP_NET_ADMIN in the network namespace",
            Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => {
                ": the kernel has no netfilter (CONFIG_NETFILTER_NETLINK)"
            }
            Errno::EOPNOTSUPP | Errno::ENOPROTOOPT => {
                ": the kernel lacks this part of nf_tables, or its module cannot be loaded"
            }
            Errno::ENOENT => {
                ": what it names is not there, or the kernel lacks this part of nf_tables (CONFIG_NF_TABLES, CONFIG_NFT_NAT, …)"
            }
            Errno::EEXIST => ": something else of that name is there",
            Errno::EBUSY => ": something still leads to it",
            Errno::EMSGSIZE => {
                ": the transaction is larger than the socket's buffer, and must be sent whole; raise net.core.wmem_max, \
                 or give CAP_NET_ADMIN in the machine's first user namespace"
            }
            Errno::ENOBUFS => ": the kernel had more answers than the socket's buffer can hold",
            Errno::ENOMEM => ": the kernel has no memory for it",
            _ => "",
        }
    }
}

impl fmt::Display for NetfilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, errno } = self;
        write!(f, "cannot {operation}: {}{}", errno.desc(), self.hint())
    }
}

impl std::error::Error for NetfilterError {}
