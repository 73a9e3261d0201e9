//! The data paths, which send the clients of services to endpoints.
//!
//! Invariants: a data path does not know which pods are ready, because [`crate::net::services`] has chosen
//! the endpoints in a table. A programmed table stays in force without the daemon. Established connections
//! survive every change.

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
pub mod process_end;
pub mod published;
pub mod userspace;
pub mod watch;

/// A way to send clients of services to endpoints.
pub trait DataPath {
    /// Returns the name of the data path. The path `/proxyMode` answers with this name, as in kube-proxy.
    fn name(&self) -> &'static str;

    /// Programs `table`. After the return, new connections follow the table. Also checks whether somebody else has
    /// changed the programmed state, and repairs such changes. So another call with the same table is useful, too.
    ///
    /// # Errors
    /// Returns [`ProxyError`] if `table` is not in force. The previous table stays in force, unless somebody
    /// else removed it. The next call programs everything anew.
    fn apply(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError>;

    /// Sets the names that are served from the next [`Self::apply`] or [`Self::apply_names`] on. If `names` is
    /// `None`, no client gets an answer.
    fn set_names(&mut self, names: Option<Names>) {
        let _ = names;
    }

    /// Brings the names into force, without a change to services.
    ///
    /// # Errors
    /// Returns [`ProxyError`] if the names are not in force. The previous names stay in force.
    fn apply_names(&mut self) -> Result<Applied, ProxyError> {
        Ok(Applied::default())
    }

    /// Returns the counters of the responder for names that this data path read last; `None` if it has read none.
    fn name_counters(&self) -> Option<Counters> {
        None
    }

    /// Returns the addresses that this data path has added to the node.
    fn addresses(&self) -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }

    /// Removes everything that this data path has programmed, so that another data path can take over.
    /// Returns false if there was nothing to remove.
    ///
    /// # Errors
    /// Returns [`ProxyError`] if something could not be removed. That part stays in force.
    fn remove(&mut self) -> Result<bool, ProxyError>;
}

/// The report of a call of [`DataPath::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// True if this call has programmed anything.
    pub changed: bool,
    /// True if everything was programmed again, and not only the differences.
    pub full: bool,
    /// True if somebody else had removed or changed the programmed state.
    pub repaired: bool,
    /// The number of tracked flows that this call ended because such flows led nowhere: UDP flows to endpoints
    /// that are gone, and TCP flows that began before the first table.
    pub flows_ended: usize,
    /// The number of endpoints that this data path cannot reach, because their pods have only loopback.
    pub unreachable: usize,
    /// A text about parts that failed, although new connections follow the table.
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

/// A reason why a table is not in force.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The kernel's packet filter refused a change.
    #[error("cannot program services: {0}")]
    Netfilter(#[from] NetfilterError),
    /// A request to the process of the role `proxy` failed.
    #[error(transparent)]
    Role(#[from] RoleError),
}

/// A reason why the process of the role `proxy` did not fulfil a request.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// The process cannot be started, or does not answer in time.
    #[error("cannot reach the proxy in {}: {cause}", .dir.display())]
    Unreachable {
        /// The directory of the role `proxy`.
        dir: PathBuf,
        /// The error from starting the process or from exchanging messages.
        #[source]
        cause: io::Error,
    },
    /// The process refused a request. The text is its reason.
    #[error("the proxy refused a request: {0}")]
    Refused(String),
    /// The request cannot be written as JSON.
    #[error("cannot write a request to the proxy: {0}")]
    Request(#[source] serde_json::Error),
    /// The request is longer than the process accepts. The number is its size in bytes.
    #[error(
        "the table of services has {0} bytes as JSON, and the proxy takes {LONGEST}: remove services or endpoints"
    )]
    TooLong(usize),
    /// The process sent an answer without metrics to a request for metrics.
    #[error("the proxy answered without metrics")]
    NoMetrics,
    /// The process uses another table than the table that was sent.
    #[error("the proxy applied {applied:?} instead of version {version}")]
    OtherVersion {
        /// The version of the table that the process uses now.
        applied: Option<u64>,
        /// The version of the table that was sent.
        version: u64,
    },
}
