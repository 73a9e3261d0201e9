//! The data paths: what sends the clients of services to endpoints.
//!
//! Invariants: a data path never looks at readiness; the endpoints of a table are chosen ([`crate::net::services`]). What it
//! has programmed goes on without the daemon. Connections that are established live on, whatever changes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use crate::net::netfilter::NetfilterError;
use crate::net::proxyd::dns::counters::Counters;
use crate::net::services::names::Names;
use crate::net::services::table::ServiceTable;

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
    /// Its name as kube-proxy's `/proxyMode` says it.
    fn name(&self) -> &'static str;

    /// From the return on new connections go where `table` says. Also looks whether somebody else has changed what was
    /// programmed, and mends it; so the same table again is never in vain.
    ///
    /// # Errors
    /// The table before stays in force, if somebody else did not remove it. The next call starts from nothing.
    fn apply(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError>;

    /// These names count from the next [`Self::apply`] or [`Self::apply_names`] on; None: nobody gets an answer.
    fn set_names(&mut self, names: Option<Names>) {
        let _ = names;
    }

    /// Brings names into force, and leaves services as they are.
    ///
    /// # Errors
    /// The names before stay in force.
    fn apply_names(&mut self) -> Result<Applied, ProxyError> {
        Ok(Applied::default())
    }

    /// What was counted of names when it was last looked at.
    fn name_counters(&self) -> Option<Counters> {
        None
    }

    /// Addresses that the node has only because this data path has given them to it.
    fn addresses(&self) -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }

    /// Takes everything back, as for a node where another data path takes over. False where there was nothing.
    ///
    /// # Errors
    /// What is left stays in force.
    fn remove(&mut self) -> Result<bool, ProxyError>;
}

/// What an [`DataPath::apply`] has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Anything was programmed.
    pub changed: bool,
    /// Everything was, not the differences alone.
    pub full: bool,
    /// Somebody else had removed or changed what was programmed before.
    pub repaired: bool,
    /// Tracked flows that led nowhere: of UDP to endpoints that are gone, of TCP from before there was a table.
    pub flows_ended: usize,
    /// Endpoints that this data path cannot reach: pods that have loopback only.
    pub unreachable: usize,
    /// What did not work, though new connections go where they should.
    pub warning: Option<String>,
}

impl Applied {
    /// Adds to what did not work.
    fn warn(&mut self, more: String) {
        self.warning = Some(match self.warning.take() {
            Some(before) => format!("{before}; {more}"),
            None => more,
        });
    }
}

/// Why a table is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyError {
    /// The kernel's packet filter refused something.
    Netfilter(NetfilterError),
    /// The process of the role `proxy` did: the whole sentence.
    Role(String),
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Netfilter(e) => write!(f, "cannot program services: {e}"),
            Self::Role(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for ProxyError {}

impl From<NetfilterError> for ProxyError {
    fn from(e: NetfilterError) -> Self {
        Self::Netfilter(e)
    }
}
