//! The data paths, which send the clients of services to endpoints.
//!
//! Invariants: a data path never looks at readiness; the endpoints of a table are chosen ([`crate::net::services`]). What it
//! has programmed goes on without the daemon. Connections that are established live on, whatever changes.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::net::netfilter::NetfilterError;
use crate::net::proxyd::dns::counters::Counters;
use crate::net::proxyd::message::LONGEST;
use crate::net::services::names::Names;
use crate::net::services::table::ServiceTable;

mod allocation_record;
pub mod auto;
pub mod gate;
pub mod health;
pub mod known;
pub mod listening;
pub mod metrics;
pub mod names;
pub mod nftables;
mod pace;
pub mod published;
pub mod userspace;
pub mod watch;

/// A way to send clients to endpoints.
pub trait DataPath {
    /// The name of the data path as kube-proxy's `/proxyMode` says it.
    fn name(&self) -> &'static str;

    /// Programs `table`: from the return on new connections go where it says. Checks that nobody else has changed what was
    /// programmed, and mends it; so a call with the same table again is never in vain.
    ///
    /// # Errors
    /// Returns the reason why `table` is not in force. The table before stays in force, if nobody else removed it. The next
    /// call starts from nothing.
    fn apply(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError>;

    /// Sets the names that count from the next [`Self::apply`] or [`Self::apply_names`] on. With `None` no client gets an
    /// answer.
    fn set_names(&mut self, names: Option<Names>) {
        let _ = names;
    }

    /// Brings names into force, and leaves services as they are.
    ///
    /// # Errors
    /// Returns the reason why the names are not in force. The names before stay in force.
    fn apply_names(&mut self) -> Result<Applied, ProxyError> {
        Ok(Applied::default())
    }

    /// Returns the counters of the responder that answers names, as this data path last read them.
    fn name_counters(&self) -> Option<Counters> {
        None
    }

    /// The addresses that the node has only because this data path has given them to it.
    fn addresses(&self) -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }

    /// Takes everything back, as for a node where another data path takes over. Returns false if there was nothing to take
    /// back.
    ///
    /// # Errors
    /// Returns the reason why something is left, which stays in force.
    fn remove(&mut self) -> Result<bool, ProxyError>;
}

/// The report of a [`DataPath::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// True if anything was programmed.
    pub changed: bool,
    /// True if everything was programmed, not the differences alone.
    pub full: bool,
    /// True if somebody else had removed or changed what was programmed before.
    pub repaired: bool,
    /// The number of tracked flows that were ended, because they led nowhere: UDP to endpoints that are gone, and TCP from
    /// before there was a table.
    pub flows_ended: usize,
    /// The number of endpoints that this data path cannot reach: pods that have loopback only.
    pub unreachable: usize,
    /// The parts that did not work, though new connections go where they should.
    pub warning: Option<String>,
}

impl Applied {
    /// Adds a text to the warning.
    fn warn(&mut self, more: String) {
        self.warning = Some(match self.warning.take() {
            Some(before) => format!("{before}; {more}"),
            None => more,
        });
    }
}

/// The reason why a table is not in force.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The kernel's packet filter refused something.
    #[error("cannot program services: {0}")]
    Netfilter(#[from] NetfilterError),
    /// The process of the role `proxy` failed.
    #[error(transparent)]
    Role(#[from] RoleError),
}

/// The reason why the process of the role `proxy` did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// The process cannot be started, or does not answer in time.
    #[error("cannot reach the proxy in {}: {cause}", .dir.display())]
    Unreachable {
        /// The directory of the role.
        dir: PathBuf,
        /// The error of the start or of the exchange.
        #[source]
        cause: io::Error,
    },
    /// The process refused a request, in its own words.
    #[error("the proxy refused a request: {0}")]
    Refused(String),
    /// The request cannot be written as JSON.
    #[error("cannot write a request to the proxy: {0}")]
    Request(#[source] serde_json::Error),
    /// The request has more bytes than the process takes.
    #[error(
        "the table of services has {0} bytes as JSON, and the proxy takes {LONGEST}: remove services or endpoints"
    )]
    TooLong(usize),
    /// The process answered without the metrics that it was asked for.
    #[error("the proxy answered without metrics")]
    NoMetrics,
    /// The process works by another table than the one that it was given.
    #[error("the proxy applied {applied:?} instead of version {version}")]
    OtherVersion {
        /// The version of the table that counts now.
        applied: Option<u64>,
        /// The version that was sent.
        version: u64,
    },
}
