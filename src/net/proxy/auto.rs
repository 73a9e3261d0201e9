//! Chooses the data path of this node: the kernel's packet filter if the kernel supports it, else a process of the
//! role `proxy`. If the packet filter is used, the process serves only the things that the filter cannot serve:
//! host ports on 127.0.0.1 and ::1, and names.
//!
//! Invariants: if the configuration has changed to another data path, the leftovers of the old data path are
//! removed after the new data path is in force. A node without services, host ports and names has no tables and no
//! process of podprobe.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;

use super::nftables::Nftables;
use super::userspace::{ProxyRole, UserspaceProxy};
use super::{Applied, DataPath, ProxyError};
use crate::api::cidr::Cidr;
use crate::net::netfilter::NetfilterError;
use crate::net::network::service_routes::{self, To};
use crate::net::proxyd::dns::counters::Counters;
use crate::net::proxyd::message::{HostPorts, Options, ServiceAddresses};
use crate::net::services::names::Names;
use crate::net::services::table::{HostPort, ServiceTable};

/// The value of `proxyMode` in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// The packet filter if the kernel supports it, else the process of the role `proxy`.
    #[default]
    Auto,
    /// The kernel's packet filter.
    Nftables,
    /// The process of the role `proxy`.
    Userspace,
}

/// An error for a word that names no mode of the proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no proxy mode; it is auto, nftables or userspace")]
pub struct ProxyModeError(pub String);

impl FromStr for ProxyMode {
    type Err = ProxyModeError;

    fn from_str(s: &str) -> Result<Self, ProxyModeError> {
        match s {
            "auto" => Ok(Self::Auto),
            "nftables" => Ok(Self::Nftables),
            "userspace" => Ok(Self::Userspace),
            _ => Err(ProxyModeError(s.to_owned())),
        }
    }
}

/// The parts and settings with which a node's data path is made.
pub struct Deps {
    /// The value of `proxyMode` in the configuration.
    pub mode: ProxyMode,
    /// True if pods have only loopback. The process can enter the namespaces of such pods, but the packet filter
    /// cannot reach such pods.
    pub loopback_only: bool,
    /// The id of this installation, a part of the names of tables ([`crate::base::paths::Layout::id`]).
    pub id: String,
    /// The ranges to which an earlier daemon may have left routes, besides those of the table: those in `serviceCIDR`.
    pub service_cidrs: Vec<Cidr>,
    /// The client that starts and reaches the process of the role `proxy`.
    pub role: ProxyRole,
}

/// The data path of this node: the packet filter, the process, or both.
pub struct Auto {
    filter: Result<Nftables, NetfilterError>,
    /// True if the packet filter serves services, and false if the process does.
    uses_filter: bool,
    /// True if nothing is left of the unused data path from an earlier configuration.
    is_clean: bool,
    role: UserspaceProxy,
    /// The part of the table that the process serves.
    of_role: ServiceTable,
    /// The ranges to which routes of podprobe may lead.
    routed: Vec<Cidr>,
}

impl Auto {
    /// Makes the data path, and tests what the kernel supports.
    pub fn new(deps: Deps) -> Self {
        let filter = Nftables::new(&deps.id);
        let uses_filter = match deps.mode {
            ProxyMode::Nftables => true,
            ProxyMode::Userspace => false,
            ProxyMode::Auto => filter.is_ok() && !deps.loopback_only,
        };
        if let (ProxyMode::Auto, Err(e)) = (deps.mode, &filter) {
            let e = ProxyError::from(e.clone());
            log::warn!("{e}; a process, podprobe proxy, serves instead");
        }
        // Without a process of podprobe, a local route belongs to somebody else and must stay.
        let is_clean = uses_filter && !deps.role.runs();
        Self {
            filter,
            uses_filter,
            is_clean,
            role: UserspaceProxy::new(deps.role, Options::default()),
            of_role: ServiceTable::default(),
            routed: deps.service_cidrs,
        }
    }

    fn filter(&mut self) -> Result<&mut Nftables, ProxyError> {
        self.filter.as_mut().map_err(|e| e.clone().into())
    }

    fn apply_in_filter(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError> {
        if table.services.is_empty() {
            return self.remove_from_filter().map(|_| Applied::default());
        }
        let mut applied = self.filter()?.apply(table)?;
        // The route comes after the table. Otherwise connections that use the route before the table exists
        // would be tracked without translation.
        if let Err(e) = self.route(&table.service_cidrs, To::PacketFilter) {
            // A missing route affects only the node's own processes, so the failure is only a warning.
            applied.warn(e.to_string());
        }
        Ok(applied)
    }

    /// Removes podprobe's tables. If there were such tables, removes podprobe's routes, too. Without tables of
    /// podprobe, a route belongs to somebody else.
    fn remove_from_filter(&mut self) -> Result<bool, ProxyError> {
        let removed = self.filter()?.remove()?;
        if removed {
            remove_routes(&self.routed, To::PacketFilter);
        }
        Ok(removed)
    }

    /// Makes routes lead to these ranges, and to no others.
    fn route(&mut self, ranges: &[Cidr], to: To) -> io::Result<()> {
        let mut old = std::mem::replace(&mut self.routed, ranges.to_vec());
        old.retain(|range| !ranges.contains(range));
        remove_routes(&old, to);
        service_routes::ensure(ranges, to)
    }

    /// Returns the part of a table that the process serves. If the packet filter is used, this part has only the
    /// host ports on addresses that the filter does not see.
    fn for_role(&self, table: &ServiceTable) -> ServiceTable {
        if !self.uses_filter {
            return table.clone();
        }
        let host_ports = table.host_ports.iter();
        let unseen = |port: &&HostPort| port.host_ip.is_none_or(is_loopback_or_any);
        ServiceTable {
            host_ports: host_ports.filter(unseen).cloned().collect(),
            ..ServiceTable::default()
        }
    }

    /// Makes the process serve its part of the table and the names.
    fn apply_to_role(&mut self) -> Result<Applied, ProxyError> {
        let table = std::mem::take(&mut self.of_role);
        let applied = match (self.is_needless(&table), self.uses_filter) {
            (true, _) => self.remove_from_role().map(|_| Applied::default()),
            (false, true) => self.apply_beside_filter(&table),
            (false, false) => self.apply_in_role(&table),
        };
        self.of_role = table;
        applied
    }

    fn is_needless(&self, table: &ServiceTable) -> bool {
        table.services.is_empty() && table.host_ports.is_empty() && !self.role.has_names()
    }

    fn apply_beside_filter(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError> {
        self.role.set_options(Options {
            host_ports: HostPorts::Localhost,
            ..Options::default()
        });
        self.role.apply(table)
    }

    fn apply_in_role(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError> {
        let ours = table.services.iter().flat_map(|service| {
            let external = service.external_ips.iter();
            let external = external.chain(&service.load_balancer_ips);
            service.cluster_ips.iter().chain(external)
        });
        let ours: BTreeSet<IpAddr> = ours.copied().collect();
        let is_bindable = |ip: &IpAddr| match ip {
            IpAddr::V4(_) => true,
            // A link-local address can be bound only together with an interface.
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        };
        let node = crate::net::network::node_addresses().into_iter();
        let node: BTreeSet<IpAddr> = node
            .filter(|ip| is_bindable(ip) && !ours.contains(ip))
            .collect();
        self.role.set_options(Options {
            service_addresses: ServiceAddresses::Bound,
            node_addresses: node.into_iter().collect(),
            node_ports: true,
            host_ports: HostPorts::All,
            ..Options::default()
        });
        let routed = self.route(&table.service_cidrs, To::Listeners);
        let mut applied = self.role.apply(table)?;
        if let Err(e) = routed {
            applied.warn(e.to_string());
        }
        Ok(applied)
    }

    fn remove_from_role(&mut self) -> Result<bool, ProxyError> {
        let removed = self.role.remove()?;
        if removed && !self.uses_filter {
            remove_routes(&self.routed, To::Listeners);
        }
        Ok(removed)
    }
}

fn remove_routes(ranges: &[Cidr], to: To) {
    if let Err(e) = service_routes::remove(ranges, to) {
        log::warn!("services: cannot remove the route to their addresses: {e}");
    }
}

fn is_loopback_or_any(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

impl DataPath for Auto {
    fn name(&self) -> &'static str {
        match self.uses_filter {
            true => "nftables",
            false => self.role.name(),
        }
    }

    fn apply(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError> {
        self.of_role = self.for_role(table);
        let (ranges, routed) = (table.service_cidrs.iter(), &self.routed);
        let new = ranges.filter(|range| !routed.contains(range));
        let new: Vec<Cidr> = new.copied().collect();
        self.routed.extend(new);
        if !self.uses_filter {
            let applied = self.apply_to_role()?;
            if !self.is_clean && self.filter.is_ok() {
                self.remove_from_filter()?;
            }
            self.is_clean = true;
            return Ok(applied);
        }
        let mut applied = self.apply_in_filter(table)?;
        if !self.is_clean {
            remove_routes(&self.routed, To::Listeners);
            self.is_clean = true;
        }
        // Services are in force already, so failures of the process are only warnings.
        match self.apply_to_role() {
            Ok(Applied {
                warning: Some(text),
                ..
            }) => applied.warn(text),
            Ok(_) => {}
            Err(e) => applied.warn(e.to_string()),
        }
        Ok(applied)
    }

    fn set_names(&mut self, names: Option<Names>) {
        self.role.set_names(names);
    }

    fn apply_names(&mut self) -> Result<Applied, ProxyError> {
        self.apply_to_role()
    }

    fn name_counters(&self) -> Option<Counters> {
        self.role.name_counters()
    }

    fn addresses(&self) -> BTreeSet<IpAddr> {
        self.role.addresses()
    }

    fn remove(&mut self) -> Result<bool, ProxyError> {
        let filter = match self.filter {
            Ok(_) => self.remove_from_filter()?,
            Err(_) => false,
        };
        Ok(self.remove_from_role()? || filter)
    }
}
