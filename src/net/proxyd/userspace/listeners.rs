//! The listeners: addresses that are bound for clients.
//!
//! Invariants: addresses that a new table does not need are released before any new address is bound. A socket that is
//! still needed stays open, even if it now belongs to another service. An address that cannot be bound delays no other
//! address, and is tried again.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;

use super::plan::{Place, Plan, Wanted};
use super::ports::{PortAllocator, PortRange};
use super::sockets;
use crate::api::service::Protocol;
use crate::base::clock::{Moment, random_fraction};
use crate::net::proxyd::message::{
    Action, HandedSocket, NotBound, Owner, Portal, ServiceAddresses,
};
use crate::net::proxyd::poller::{Poller, Token};
use crate::net::proxyd::slab::{Key, Slab};

/// The time between two attempts to bind an address.
const RETRY: Duration = Duration::from_secs(1);
/// Largest number of ports of the range that are tried for one portal. Other programs may use some of the ports.
const PORTS_TRIED: u32 = 32;

/// A bound address for clients.
#[derive(Debug)]
pub struct Listener {
    /// The socket; `None` if no socket is needed, because the kernel refuses clients by itself.
    pub socket: Option<OwnedFd>,
    /// Address and port where the listener is bound.
    pub at: SocketAddr,
    /// The entry of the plan for which the listener was opened.
    pub wanted: Wanted,
}

/// The listeners, and the addresses that could not be bound.
pub struct Listeners {
    listeners: Slab<Listener>,
    by_place: BTreeMap<Place, Key>,
    failed: Vec<(Wanted, NotBound)>,
    conflicts: Vec<NotBound>,
    retry_at: Option<Moment>,
    ports: PortAllocator,
    range: Option<PortRange>,
    /// Inherited sockets of another process that no table has used yet.
    inherited: BTreeMap<HandedSocket, OwnedFd>,
    /// The function that makes the token of a listener.
    token: fn(Protocol, Key) -> Token,
}

impl Listeners {
    /// Makes the state without listeners. `token` makes the token of each listener.
    pub fn new(token: fn(Protocol, Key) -> Token) -> Self {
        Self {
            listeners: Slab::default(),
            by_place: BTreeMap::new(),
            failed: Vec::new(),
            conflicts: Vec::new(),
            retry_at: None,
            ports: PortAllocator::new(None),
            range: None,
            inherited: BTreeMap::new(),
            token,
        }
    }

    /// Returns a listener, if it still exists.
    pub fn get(&self, key: Key) -> Option<&Listener> {
        self.listeners.get(key)
    }

    /// Returns the number of listeners that serve clients.
    pub fn serving(&self) -> usize {
        let serves = |(_, l): &(Key, &Listener)| l.wanted.action == Action::Serve;
        self.listeners.iter().filter(serves).count()
    }

    /// Returns the addresses that could not be bound, each with the error.
    pub fn not_bound(&self) -> Vec<NotBound> {
        let failed = self.failed.iter().map(|(_, why)| why);
        self.conflicts.iter().chain(failed).cloned().collect()
    }

    /// Returns the portals: addresses of services, each with the port to which connections to the address must be
    /// redirected.
    pub fn portals(&self) -> Vec<Portal> {
        let mut found = Vec::new();
        for key in self.by_place.values() {
            let Some(listener) = self.listeners.get(*key) else {
                continue;
            };
            found.extend(listener.wanted.portal_of.iter().map(|address| Portal {
                address: *address,
                protocol: listener.wanted.protocol(),
                proxy_port: listener.at.port(),
            }));
        }
        found
    }

    /// Closes the listeners that the plan no longer has, and returns their keys.
    pub fn release(&mut self, plan: &Plan, service_addresses: ServiceAddresses) -> Vec<Key> {
        self.choose_ports(service_addresses);
        let wanted: BTreeMap<&Place, &Wanted> = plan.wanted.iter().map(|w| (&w.place, w)).collect();
        let gone = |place: &Place| !wanted.contains_key(place);
        let places: Vec<Place> = self.by_place.keys().filter(|p| gone(p)).cloned().collect();
        self.failed.clear();
        self.conflicts = plan.conflicts.clone();
        places.iter().filter_map(|p| self.close(p)).collect()
    }

    /// Sets the range of ports for portals that are opened from now on.
    fn choose_ports(&mut self, service_addresses: ServiceAddresses) {
        let range = match service_addresses {
            ServiceAddresses::Portals { first, last } if first > 0 => {
                format!("{first}-{last}").parse().ok()
            }
            _ => None,
        };
        if range == self.range {
            return;
        }
        self.range = range;
        self.ports = PortAllocator::new(range);
        for (_, listener) in self.listeners.iter() {
            self.ports.claim(listener.at.port());
        }
    }

    /// Binds the addresses of the plan that are not bound yet. Returns the keys of listeners that were opened anew.
    pub fn claim(&mut self, plan: &Plan, now: Moment, poller: &Poller) -> Vec<Key> {
        let mut closed = Vec::new();
        for wanted in &plan.wanted {
            closed.extend(self.ensure(wanted, poller));
        }
        self.plan_retry(now);
        closed
    }

    /// Tries again to bind the addresses that could not be bound.
    pub fn retry(&mut self, now: Moment, poller: &Poller) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        for (wanted, _) in std::mem::take(&mut self.failed) {
            self.ensure(&wanted, poller);
        }
        self.plan_retry(now);
    }

    /// Returns the moment at which [`Self::retry`] must be called; `None` if no address is tried again.
    pub fn retry_at(&self) -> Option<Moment> {
        self.retry_at
    }

    fn plan_retry(&mut self, now: Moment) {
        self.retry_at = (!self.failed.is_empty()).then(|| now + RETRY);
    }

    fn ensure(&mut self, wanted: &Wanted, poller: &Poller) -> Option<Key> {
        let known = self.by_place.get(&wanted.place).copied();
        if let Some(listener) = known.and_then(|key| self.listeners.get_mut(key)) {
            let old = std::mem::replace(&mut listener.wanted, wanted.clone());
            match self.change(known?, old.action, poller) {
                Ok(()) => return None,
                // The listener cannot be changed, so it is closed and opened anew.
                Err(_) => self.close(&wanted.place),
            };
        }
        if let Err((at, e)) = self.open(wanted, poller) {
            let service = wanted.name.to_string();
            let not_bound = NotBound {
                address: at,
                protocol: wanted.protocol(),
                error: sockets::why_not_bound(at, wanted.protocol(), &service, e),
                service,
            };
            self.failed.push((wanted.clone(), not_bound));
        }
        known
    }

    /// Changes a listener from refusing to serving or back. The port is never free in between.
    fn change(&mut self, key: Key, old: Action, poller: &Poller) -> nix::Result<()> {
        let listener = self.listeners.get(key).ok_or(Errno::ENOENT)?;
        let protocol = listener.wanted.protocol();
        match (protocol, old, listener.wanted.action, &listener.socket) {
            (_, old, new, _) if old == new => Ok(()),
            (Protocol::Tcp, Action::Serve, Action::Refuse, Some(socket)) => {
                poller.remove(socket)?;
                sockets::stop_listening(socket)
            }
            (Protocol::Tcp, Action::Refuse, Action::Serve, Some(socket)) => {
                sockets::start_listening(socket)?;
                poller.add(socket, (self.token)(protocol, key), EpollFlags::EPOLLIN)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn open(&mut self, wanted: &Wanted, poller: &Poller) -> Result<(), (SocketAddr, Errno)> {
        let (at, socket) = match &wanted.place {
            Place::Address(protocol, at) => {
                let inherited = handed(*protocol, *at, wanted.action);
                let socket = match self.inherited.remove(&inherited) {
                    Some(socket) => Ok(Some(socket)),
                    None => sockets::open(*protocol, *at, wanted.action, wanted.is_routed),
                };
                (*at, socket.map_err(|e| (*at, e))?)
            }
            Place::Portal(_, _, v6) => self.open_portal(wanted, *v6)?,
        };
        let listener = Listener {
            socket,
            at,
            wanted: wanted.clone(),
        };
        let key = self.listeners.insert(listener);
        self.by_place.insert(wanted.place.clone(), key);
        let socket = self.listeners.get(key).and_then(|l| l.socket.as_ref());
        if let Some(socket) = socket.filter(|_| wanted.action == Action::Serve) {
            let token = (self.token)(wanted.protocol(), key);
            let added = poller.add(socket, token, EpollFlags::EPOLLIN);
            if let Err(e) = added {
                self.close(&wanted.place);
                return Err((at, e));
            }
        }
        Ok(())
    }

    /// Opens a portal. A refusing portal of UDP also gets a port, but no socket is bound to it.
    fn open_portal(
        &mut self,
        wanted: &Wanted,
        v6: bool,
    ) -> Result<(SocketAddr, Option<OwnedFd>), (SocketAddr, Errno)> {
        let ip: IpAddr = match v6 {
            false => Ipv4Addr::UNSPECIFIED.into(),
            true => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut busy = Vec::new();
        let opened = loop {
            let Ok(port) = self.ports.allocate_next(random_fraction()) else {
                break Err(((ip, 0).into(), Errno::EADDRINUSE));
            };
            let at = SocketAddr::new(ip, port);
            match sockets::open(wanted.protocol(), at, wanted.action, false) {
                Ok(socket) => {
                    let chosen = socket.as_ref().and_then(sockets::port_of);
                    break Ok((SocketAddr::new(ip, chosen.unwrap_or(port)), socket));
                }
                Err(Errno::EADDRINUSE) if port > 0 && busy.len() < PORTS_TRIED as usize => {
                    busy.push(port);
                }
                Err(e) => {
                    self.ports.release(port);
                    break Err((at, e));
                }
            }
        };
        busy.iter().for_each(|port| self.ports.release(*port));
        opened
    }

    fn close(&mut self, place: &Place) -> Option<Key> {
        let key = self.by_place.remove(place)?;
        let listener = self.listeners.remove(key)?;
        if matches!(place, Place::Portal(..)) {
            self.ports.release(listener.at.port());
        }
        Some(key)
    }

    /// Closes all listeners, and returns their keys.
    pub fn close_all(&mut self) -> Vec<Key> {
        self.failed.clear();
        self.retry_at = None;
        let places: Vec<Place> = self.by_place.keys().cloned().collect();
        places.iter().filter_map(|p| self.close(p)).collect()
    }

    /// Takes over the listening sockets of another process. A later table that needs a listener at the address of such a
    /// socket gets this socket instead of a new one.
    pub fn inherit(&mut self, sockets: Vec<(HandedSocket, OwnedFd)>) {
        self.inherited.extend(sockets);
    }

    /// Closes the inherited sockets that no table has used.
    pub fn forget_inherited(&mut self) {
        self.inherited.clear();
    }

    /// Plans the next attempt to bind the addresses that could not be bound: at once.
    pub fn retry_now(&mut self, now: Moment) {
        self.retry_at = (!self.failed.is_empty()).then_some(now);
    }

    /// Returns the listener that is bound to this address. Portals are left out.
    pub fn find(&self, protocol: Protocol, at: SocketAddr) -> Option<Key> {
        self.by_place.get(&Place::Address(protocol, at)).copied()
    }

    /// Returns every socket that another process can use. Portals are left out, because that process opens portals of
    /// its own.
    pub fn to_hand_over(&self) -> Vec<(HandedSocket, &OwnedFd)> {
        let places = self.by_place.iter();
        let bound = places.filter_map(|(place, key)| match place {
            Place::Address(protocol, at) => {
                let listener = self.listeners.get(*key)?;
                let action = listener.wanted.action;
                Some((handed(*protocol, *at, action), listener.socket.as_ref()?))
            }
            Place::Portal(..) => None,
        });
        bound.collect()
    }

    /// Closes all listeners, because another process has the same sockets. The sockets are removed from the poller
    /// first. Otherwise the poller would report their events for as long as that process lives.
    pub fn give_up(&mut self, poller: &Poller) {
        for (_, listener) in self.listeners.iter() {
            // A refusing listener is not in the poller, so an error is ignored.
            let _ = listener.socket.as_ref().map(|s| poller.remove(s));
        }
        self.close_all();
        self.inherited.clear();
    }

    /// Starts or stops accepting connections of a listener. While the listener is stopped, clients wait in the kernel's
    /// queue.
    pub fn set_accepting(&self, key: Key, accepting: bool, poller: &Poller) {
        let Some(listener) = self.listeners.get(key) else {
            return;
        };
        let events = match accepting {
            true => EpollFlags::EPOLLIN,
            false => EpollFlags::empty(),
        };
        if let Some(socket) = &listener.socket {
            let _ = poller.change(
                socket,
                (self.token)(listener.wanted.protocol(), key),
                events,
            );
        }
    }
}

fn handed(protocol: Protocol, at: SocketAddr, action: Action) -> HandedSocket {
    HandedSocket {
        owner: Owner::Userspace,
        protocol,
        at,
        action,
    }
}
