//! The userspace data path as a part of the proxy process: listeners, TCP connections and UDP clients.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;

use super::addresses::Addresses;
use super::dial::{Namespaces, is_shortage};
use super::listeners::Listeners;
use super::plan::Plan;
use super::pools::Pools;
use super::shared::{Limits, Shared};
use super::sockets;
use super::tcp::{Newcomer, Side, Tcp};
use super::udp::{Udp, takes_flows};
use crate::api::service::Protocol;
use crate::base::clock::{Moment, random_fraction};
use crate::base::sys::socket::accept;
use crate::net::proxyd::home::ADDRESSES;
use crate::net::proxyd::message::{
    Configuration, HandedAffinity, HandedFlow, HandedSocket, LEAST_UDP_IDLE_MS, Metrics, NotBound,
    Portal,
};
use crate::net::proxyd::poller::{Part, Poller, Token};
use crate::net::proxyd::slab::Key;

/// The number of this part in poller tokens.
pub const PART: u8 = 1;

/// The kinds of tokens of this part.
const TCP_LISTENER: u8 = 0;
const UDP_LISTENER: u8 = 1;
const CLIENT: u8 = 2;
const BACKEND: u8 = 3;
const FLOW: u8 = 4;

/// Number of connections that are accepted from a listener before other listeners have their turn.
const TAKEN: usize = 8;
/// The time between two clean-ups of clients that no longer keep an endpoint.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// The userspace data path of the proxy process.
pub struct Userspace {
    shared: Shared,
    listeners: Listeners,
    tcp: Tcp,
    udp: Udp,
    /// The listeners that accept no connections now, each with the moment at which its pause ends.
    paused: Vec<(Moment, Key)>,
    descriptors: u64,
    clean_up: Option<Moment>,
}

impl Userspace {
    /// Makes the part without services. The part may use at most `descriptors` descriptors, and records the addresses
    /// that it claims in the directory `dir`.
    pub fn new(dir: &Path, descriptors: u64) -> Self {
        let configuration = Configuration::default();
        Self {
            shared: Shared {
                pools: Pools::default(),
                namespaces: Namespaces::default(),
                addresses: Addresses::new(dir.join(ADDRESSES)),
                metrics: Metrics::default(),
                limits: Limits::of(&configuration, descriptors),
                udp_idle: Duration::from_millis(configuration.options.udp_idle_ms),
                inside: Vec::new(),
                node_addresses: Vec::new(),
            },
            listeners: Listeners::new(listener_token),
            tcp: Tcp::new(connection_token),
            udp: Udp::new(|key| token(FLOW, key)),
            paused: Vec::new(),
            descriptors,
            clean_up: None,
        }
    }

    /// Serves with this configuration from now on.
    pub fn apply(&mut self, configuration: &Configuration, now: Moment, poller: &Poller) {
        let plan = Plan::of(configuration);
        let options = &configuration.options;
        let shared = &mut self.shared;
        shared.limits = Limits::of(configuration, self.descriptors);
        shared.udp_idle = Duration::from_millis(options.udp_idle_ms.max(LEAST_UDP_IDLE_MS));
        shared.inside = configuration.table.pod_cidrs.clone();
        shared.node_addresses = options.node_addresses.clone();
        shared.pools.apply(&plan);
        shared.namespaces.keep(&shared.pools.namespaces());
        self.listeners.release(&plan, options.service_addresses);
        shared.addresses.claim(&plan.addresses);
        self.listeners.claim(&plan, now, poller);
        shared.addresses.release();
        let listeners = &self.listeners;
        let is_open = |key| listeners.get(key).is_some_and(takes_flows);
        self.udp.revise(is_open, &self.shared);
        let sticky = plan.pools.iter().any(|pool| pool.affinity.is_some());
        self.clean_up = sticky.then(|| now + CLEAN_UP);
    }

    /// Returns the addresses that could not be bound, each with the error.
    pub fn not_bound(&self) -> Vec<NotBound> {
        self.listeners.not_bound()
    }

    /// Returns the portals: addresses of services, each with the port to which connections to the address must be
    /// redirected.
    pub fn portals(&self) -> Vec<Portal> {
        self.listeners.portals()
    }

    /// Returns the addresses that were added to the node.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.shared.addresses.all()
    }

    /// Restores the addresses that another program has removed.
    pub fn mend(&self) {
        self.shared.addresses.renew();
    }

    /// Returns the metrics of this data path.
    pub fn metrics(&self) -> Metrics {
        Metrics {
            connections: self.tcp.len() as u64,
            flows: self.udp.len() as u64,
            listeners: self.listeners.serving() as u64,
            not_bound: self.listeners.not_bound().len() as u64,
            ..self.shared.metrics
        }
    }

    /// Takes no more clients, because another data path or another proxy process serves them.
    pub fn retire(&mut self) {
        self.listeners.close_all();
        self.udp.revise(|_| false, &self.shared);
        self.shared.addresses.claim(&BTreeSet::new());
        self.shared.addresses.release();
    }

    /// Prepares to replace another process. The first tables use `sockets` instead of new sockets. No address is
    /// removed before that process has ended.
    pub fn inherit(&mut self, sockets: Vec<(HandedSocket, OwnedFd)>) {
        self.shared.addresses.hold();
        self.listeners.inherit(sockets);
    }

    /// Returns every listening socket, to hand it over to another process.
    pub fn to_hand_over(&self) -> Vec<(HandedSocket, &OwnedFd)> {
        self.listeners.to_hand_over()
    }

    /// Takes no more clients, because another process has the sockets. Returns the UDP clients, for that process.
    pub fn let_go(&mut self, now: Moment, poller: &Poller) -> Vec<(HandedFlow, OwnedFd)> {
        let flows = self
            .udp
            .give_up(&self.listeners, &self.shared.pools, now, poller);
        self.listeners.give_up(poller);
        self.paused.clear();
        self.clean_up = None;
        self.shared.addresses.give_up();
        flows
    }

    /// Returns the endpoints that clients keep, for another process.
    pub fn affinities(&self, now: Moment) -> Vec<HandedAffinity> {
        self.shared.pools.affinities(now)
    }

    /// Serves the clients that the other process has given up.
    pub fn adopt(
        &mut self,
        flows: Vec<(HandedFlow, OwnedFd)>,
        affinities: Vec<HandedAffinity>,
        now: Moment,
        poller: &Poller,
    ) {
        for affinity in affinities {
            self.shared.pools.adopt(affinity, now);
        }
        for flow in flows {
            self.udp
                .adopt(flow, &self.listeners, &self.shared, now, poller);
        }
        self.listeners.retry_now(now);
    }

    /// Closes the inherited sockets that are not in use. The event loop calls this function after the daemon has sent
    /// its configuration.
    pub fn forget_inherited(&mut self) {
        self.listeners.forget_inherited();
    }

    /// Removes the addresses that were kept for the other process, after that process has ended.
    pub fn is_alone(&mut self) {
        self.shared.addresses.let_loose();
    }

    /// Returns true if there is no TCP connection.
    pub fn is_unused(&self) -> bool {
        self.tcp.is_empty()
    }

    fn take_connections(&mut self, key: Key, now: Moment, poller: &Poller) {
        for _ in 0..TAKEN {
            let Some(listener) = self.listeners.get(key) else {
                return;
            };
            let Some(socket) = &listener.socket else {
                return;
            };
            let Some(port) = self.shared.pools.find(&listener.wanted.name) else {
                return;
            };
            if self.is_full(port) {
                self.shared.metrics.limit_pauses += 1;
                return self.pause(key, now, poller);
            }
            if self.tcp.is_short() {
                self.shared.metrics.shortage_pauses += 1;
                return self.pause(key, now, poller);
            }
            match accept(std::os::fd::AsFd::as_fd(socket)) {
                Ok((socket, address)) => {
                    let Some(clients) = self.shared.admit(&listener.wanted, address.ip()) else {
                        sockets::reset_on_close(&socket);
                        continue;
                    };
                    let new = Newcomer {
                        socket,
                        address: address.ip(),
                        clients,
                        port,
                        claimed: self.shared.addresses.find(listener.at.ip()),
                    };
                    self.tcp.begin(new, &mut self.shared, now, poller);
                }
                Err(e) if is_shortage(e) => {
                    self.shared.metrics.shortage_pauses += 1;
                    return self.pause(key, now, poller);
                }
                // The client has closed its connection already.
                Err(Errno::ECONNABORTED | Errno::EINTR | Errno::EPROTO) => {}
                Err(_) => return,
            }
        }
    }

    fn is_full(&self, port: Key) -> bool {
        let limits = self.shared.limits;
        let of_port = self.shared.pools.connections(port);
        self.tcp.len() >= limits.connections || of_port >= limits.connections_per_port
    }

    /// Pauses a listener for 50 to 100 ms. New clients wait in the kernel's queue.
    fn pause(&mut self, key: Key, now: Moment, poller: &Poller) {
        let until = now + Duration::from_millis(50).mul_f64(1.0 + random_fraction());
        self.listeners.set_accepting(key, false, poller);
        self.paused.push((until, key));
    }

    fn resume(&mut self, now: Moment, poller: &Poller) {
        let listeners = &self.listeners;
        self.paused.retain(|(until, key)| {
            let over = *until <= now;
            if over {
                listeners.set_accepting(*key, true, poller);
            }
            !over
        });
    }
}

fn token(kind: u8, key: Key) -> Token {
    Token {
        part: PART,
        kind,
        generation: key.generation,
        index: key.index,
    }
}

fn listener_token(protocol: Protocol, key: Key) -> Token {
    match protocol {
        Protocol::Tcp => token(TCP_LISTENER, key),
        Protocol::Udp => token(UDP_LISTENER, key),
    }
}

fn connection_token(side: Side, key: Key) -> Token {
    match side {
        Side::Client => token(CLIENT, key),
        Side::Backend => token(BACKEND, key),
    }
}

impl Part for Userspace {
    fn ready(&mut self, token: Token, events: EpollFlags, now: Moment, poller: &Poller) {
        let key = Key {
            index: token.index,
            generation: token.generation,
        };
        let shared = &mut self.shared;
        match token.kind {
            TCP_LISTENER => self.take_connections(key, now, poller),
            UDP_LISTENER => {
                if let Some(listener) = self.listeners.get(key) {
                    self.udp.receive((key, listener), shared, now, poller);
                }
            }
            CLIENT => self
                .tcp
                .ready((Side::Client, key), events, shared, now, poller),
            BACKEND => self
                .tcp
                .ready((Side::Backend, key), events, shared, now, poller),
            _ => {
                let listener = self.udp.listener_of(key);
                if let Some(listener) = listener.and_then(|key| self.listeners.get(key)) {
                    self.udp.answer(key, listener, shared, now);
                }
            }
        }
    }

    fn deadline(&self) -> Option<Moment> {
        let deadlines = [
            self.tcp.deadline(),
            self.udp.deadline(),
            self.listeners.retry_at(),
            self.clean_up,
            self.paused.iter().map(|(until, _)| *until).min(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn expire(&mut self, now: Moment, poller: &Poller) {
        self.tcp.expire(&mut self.shared, now, poller);
        self.udp.expire(&self.shared, now);
        self.listeners.retry(now, poller);
        self.resume(now, poller);
        if self.clean_up.is_some_and(|at| at <= now) {
            self.shared.pools.clean_up(now);
            self.clean_up = Some(now + CLEAN_UP);
        }
    }
}
