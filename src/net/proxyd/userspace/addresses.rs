//! The addresses of services and names that are made the node's own, where the kernel does not translate addresses.
//!
//! IPv4 addresses are added to the loopback interface, with a scope that keeps the kernel from using them as source
//! addresses. IPv6 has no such scope. The kernel would use an address as the source of the node's own connections, and
//! would add a route to it beside the route to all services. So a local route leads to each IPv6 address, and no
//! interface has it.
//!
//! Invariants: only addresses that were added here are removed, even after a restart of the proxy process, because
//! each is recorded before it is added. An address that the node already has stays as it is. An address with
//! connections stays until the last connection has ended.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::api::cidr::Cidr;
use crate::base::json;
use crate::net::network::node_addresses;
use crate::net::network::rtnetlink::Rtnetlink;
use crate::net::proxyd::home::replace;
use crate::net::proxyd::slab::{Key, Slab};

/// The index of the loopback interface, which is the first interface of every network namespace.
const LOOPBACK: u32 = 1;

#[derive(Debug)]
struct Claimed {
    ip: IpAddr,
    wanted: bool,
    connections: u32,
}

/// The addresses of services and names that this process has made the node's own.
pub struct Addresses {
    record: PathBuf,
    claimed: Slab<Claimed>,
    by_ip: HashMap<IpAddr, Key>,
    /// True while another proxy process may have connections on any of the addresses.
    held: bool,
}

impl Addresses {
    /// Reads the record of the addresses that an earlier proxy process has added.
    pub fn new(record: PathBuf) -> Self {
        let recorded = std::fs::read(&record).unwrap_or_default();
        let recorded: BTreeSet<IpAddr> = json::from_slice(&recorded).unwrap_or_default();
        let mut addresses = Self {
            record,
            claimed: Slab::default(),
            by_ip: HashMap::new(),
            held: false,
        };
        recorded.into_iter().for_each(|ip| addresses.insert(ip));
        addresses
    }

    /// Adds the addresses in `wanted` that are missing. [`Self::release`] removes the addresses that are not in
    /// `wanted`.
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
            // Addresses that this process has already added are added again, because another program may have removed
            // them.
            let added = add(*ip, !new.contains(ip));
            // Either the node already has the address, or the address cannot be added. The bind will show which of the
            // two is true.
            if added.is_err() && new.contains(ip) {
                self.remove(*ip);
            }
        }
        if !new.is_empty() {
            let _ = self.write();
        }
    }

    /// Restores the addresses that another program has removed.
    pub fn renew(&self) {
        let wanted = self.claimed.iter().filter(|(_, c)| c.wanted);
        for (_, claimed) in wanted {
            // An address that is still there gives an error, which is ignored.
            let _ = add(claimed.ip, true);
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

    /// Keeps all addresses until [`Self::let_loose`].
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Removes the addresses that are not needed, after the process with connections on them has ended.
    pub fn let_loose(&mut self) {
        self.held = false;
        self.release();
    }

    /// Leaves the addresses to another process.
    pub fn give_up(&mut self) {
        self.claimed = Slab::default();
        self.by_ip.clear();
    }

    /// Removes the addresses that are no longer wanted and have no connection.
    pub fn release(&mut self) {
        if self.held {
            return;
        }
        let unused = |(_, c): &(Key, &Claimed)| !c.wanted && c.connections == 0;
        let unused = self.claimed.iter().filter(unused);
        let unused: Vec<IpAddr> = unused.map(|(_, c)| c.ip).collect();
        for ip in &unused {
            let _ = take_away(*ip);
            self.remove(*ip);
        }
        if !unused.is_empty() {
            let _ = self.write();
        }
    }

    /// Returns the addresses that were added, sorted.
    pub fn all(&self) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = self.by_ip.keys().copied().collect();
        all.sort();
        all
    }

    /// Returns the key of an address; None if it was not added here.
    pub fn find(&self, ip: IpAddr) -> Option<Key> {
        self.by_ip.get(&ip).copied()
    }

    /// Counts a connection on the address as begun.
    pub fn count_in(&mut self, key: Key) {
        if let Some(claimed) = self.claimed.get_mut(key) {
            claimed.connections += 1;
        }
    }

    /// Counts a connection on the address as ended. Removes the address if it is no longer wanted and has no other
    /// connection.
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

/// Makes an address the node's own. `is_ours` is true if the address may already be there. If an older podprobe has
/// added an IPv6 address to the interface, the address is removed from the interface.
fn add(ip: IpAddr, is_ours: bool) -> io::Result<()> {
    let mut kernel = Rtnetlink::open()?;
    if ip.is_ipv4() {
        return kernel.claim_address(LOOPBACK, ip);
    }
    if is_ours {
        kernel.remove_address(LOOPBACK, Cidr::single(ip))?;
    } else if node_addresses().contains(&ip) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    kernel.add_local_route(Cidr::single(ip), LOOPBACK)
}

fn take_away(ip: IpAddr) -> io::Result<()> {
    let mut kernel = Rtnetlink::open()?;
    let address = Cidr::single(ip);
    match ip {
        IpAddr::V4(_) => kernel.remove_address(LOOPBACK, address),
        IpAddr::V6(_) => kernel.remove_local_route(address, LOOPBACK),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;
    use crate::base::sys::socket::loopback_up;
    use crate::net::network::service_routes::{self, To};
    use crate::own_network::in_own_network;

    /// Returns the address that the node itself would send from.
    fn source_to(to: &str) -> IpAddr {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        socket.connect((to, 53)).unwrap();
        socket.local_addr().unwrap().ip()
    }

    fn ip(line: &str) {
        let done = std::process::Command::new("ip")
            .args(line.split(' '))
            .output()
            .unwrap();
        assert!(done.status.success(), "ip {line}: {done:?}");
    }

    #[test]
    fn an_address_of_ipv6_is_the_nodes_own_and_the_source_of_nothing() {
        if !crate::skip::has("ip", "iproute2") {
            return;
        }
        in_own_network(|| {
            loopback_up().unwrap();
            ip("link add up0 type veth peer name up1");
            ip("link set up1 up");
            ip("link set up0 up");
            ip("addr add 2001:db8::1/64 dev up0 nodad");
            ip("route add default via 2001:db8::2 dev up0");
            let dir = tempfile::tempdir().unwrap();
            let own: IpAddr = "fd00:96::a".parse().unwrap();
            let range: Cidr = "fd00:96::/112".parse().unwrap();
            let mut addresses = Addresses::new(dir.path().join("addresses.json"));
            // An older podprobe leaves the address on the interface.
            ip("addr add fd00:96::a/128 dev lo");
            std::fs::write(dir.path().join("addresses.json"), "[\"fd00:96::a\"]").unwrap();
            for _ in 0..2 {
                addresses = Addresses::new(dir.path().join("addresses.json"));
                addresses.claim(&BTreeSet::from([own, "10.96.0.10".parse().unwrap()]));
                assert_eq!(addresses.all().len(), 2);
                // The address's route must not count as a route of another program.
                service_routes::ensure(&[range], To::PacketFilter).unwrap();
                for to in ["fd00:96::50", "fd12::7", "2001:db8:1::7"] {
                    assert_eq!(
                        source_to(to),
                        "2001:db8::1".parse::<IpAddr>().unwrap(),
                        "{to}"
                    );
                }
                assert!(!node_addresses().contains(&own));
            }
            take_away(own).unwrap();
            addresses.renew();
            let at = (own, 0).into();
            let bound = crate::net::proxyd::userspace::sockets::open(
                crate::api::service::Protocol::Tcp,
                at,
                crate::net::proxyd::message::Action::Serve,
                true,
            );
            let listener = TcpListener::from(bound.unwrap().unwrap());
            let at = listener.local_addr().unwrap();
            std::net::TcpStream::connect(at).unwrap();
            addresses.claim(&BTreeSet::new());
            addresses.release();
            assert!(addresses.all().is_empty());
            std::net::TcpStream::connect(at).unwrap_err();
        });
    }

    /// An address that an interface already has stays as it is.
    #[test]
    fn what_the_node_has_anyhow_is_not_claimed() {
        if !crate::skip::has("ip", "iproute2") {
            return;
        }
        in_own_network(|| {
            loopback_up().unwrap();
            ip("link add up0 type veth peer name up1");
            ip("link set up1 up");
            ip("link set up0 up");
            ip("addr add fd00:1::1/64 dev up0 nodad");
            let dir = tempfile::tempdir().unwrap();
            let mut addresses = Addresses::new(dir.path().join("addresses.json"));
            let own = "fd00:1::1".parse().unwrap();
            addresses.claim(&BTreeSet::from([own]));
            assert!(addresses.all().is_empty());
            assert!(node_addresses().contains(&own));
        });
    }
}
