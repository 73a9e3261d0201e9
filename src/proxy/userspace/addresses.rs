//! Addresses of services on the loopback interface, where the kernel translates no addresses.
//!
//! Invariants: only what was added here is removed, also after a restart of the role: it is written down before it is
//! added. An address that the node has anyhow stays as it is. One with connections stays until the last has ended.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::api::cidr::Cidr;
use crate::network::rtnetlink::Rtnetlink;
use crate::proxy::role::home::replace;
use crate::proxy::role::slab::{Key, Slab};

/// The first interface of every network namespace.
const LOOPBACK: u32 = 1;

#[derive(Debug)]
struct Claimed {
    ip: IpAddr,
    wanted: bool,
    connections: u32,
}

/// See the module.
pub struct Addresses {
    record: PathBuf,
    claimed: Slab<Claimed>,
    by_ip: HashMap<IpAddr, Key>,
}

impl Addresses {
    /// Those that a role before this one has added, by its record.
    pub fn new(record: PathBuf) -> Self {
        let recorded = std::fs::read(&record).unwrap_or_default();
        let recorded: BTreeSet<IpAddr> = serde_json::from_slice(&recorded).unwrap_or_default();
        let mut addresses = Self {
            record,
            claimed: Slab::default(),
            by_ip: HashMap::new(),
        };
        recorded.into_iter().for_each(|ip| addresses.insert(ip));
        addresses
    }

    /// Adds what is wanted and missing; what is not wanted goes with [`Self::release`].
    pub fn claim(&mut self, wanted: &BTreeSet<IpAddr>) {
        for (ip, key) in &self.by_ip {
            if let Some(claimed) = self.claimed.get_mut(*key) {
                claimed.wanted = wanted.contains(ip);
            }
        }
        let missing = |ip: &&IpAddr| !self.by_ip.contains_key(ip);
        let new: Vec<IpAddr> = wanted.iter().filter(missing).copied().collect();
        new.iter().for_each(|ip| self.insert(*ip));
        if !new.is_empty() && self.write().is_err() {
            return new.iter().for_each(|ip| self.remove(*ip));
        }
        for ip in wanted {
            // Also those that are ours already: somebody may have removed them.
            let added =
                Rtnetlink::open().and_then(|mut kernel| kernel.claim_address(LOOPBACK, *ip));
            // The node has it already, or it cannot be had; the bind tells which.
            if added.is_err() && new.contains(ip) {
                self.remove(*ip);
            }
        }
        if !new.is_empty() {
            let _ = self.write();
        }
    }

    /// Adds again what somebody has removed.
    pub fn renew(&self) {
        let wanted = self.claimed.iter().filter(|(_, c)| c.wanted);
        for (_, claimed) in wanted {
            // Where it is there, the kernel says so.
            let _ =
                Rtnetlink::open().and_then(|mut kernel| kernel.claim_address(LOOPBACK, claimed.ip));
        }
    }

    fn insert(&mut self, ip: IpAddr) {
        let key = self.claimed.insert(Claimed {
            ip,
            wanted: true,
            connections: 0,
        });
        self.by_ip.insert(ip, key);
    }

    fn remove(&mut self, ip: IpAddr) {
        if let Some(key) = self.by_ip.remove(&ip) {
            self.claimed.remove(key);
        }
    }

    /// Removes what is not wanted and has no connection.
    pub fn release(&mut self) {
        let unused = |(_, c): &(Key, &Claimed)| !c.wanted && c.connections == 0;
        let unused = self.claimed.iter().filter(unused);
        let unused: Vec<IpAddr> = unused.map(|(_, c)| c.ip).collect();
        for ip in &unused {
            let address = Cidr::single(*ip);
            let _ =
                Rtnetlink::open().and_then(|mut kernel| kernel.remove_address(LOOPBACK, address));
            self.remove(*ip);
        }
        if !unused.is_empty() {
            let _ = self.write();
        }
    }

    /// Those that were added.
    pub fn all(&self) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = self.by_ip.keys().copied().collect();
        all.sort();
        all
    }

    /// The claim of an address, if it is ours.
    pub fn find(&self, ip: IpAddr) -> Option<Key> {
        self.by_ip.get(&ip).copied()
    }

    /// A connection on the address has begun.
    pub fn count_in(&mut self, key: Key) {
        if let Some(claimed) = self.claimed.get_mut(key) {
            claimed.connections += 1;
        }
    }

    /// One has ended.
    pub fn count_out(&mut self, key: Key) {
        let Some(claimed) = self.claimed.get_mut(key) else {
            return;
        };
        claimed.connections -= 1;
        if !claimed.wanted && claimed.connections == 0 {
            self.release();
        }
    }

    fn write(&self) -> io::Result<()> {
        let ips: BTreeSet<&IpAddr> = self.by_ip.keys().collect();
        replace(&self.record, &[&serde_json::to_vec(&ips)?])
    }
}
