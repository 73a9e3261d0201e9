//! The DNS responder as a part of the proxy process.
//!
//! Invariants: an address that cannot be bound delays no other address, and is tried again. Names, clients and
//! resolvers may change at any time; the sockets stay.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{setsockopt, sockopt};

use super::counters::Counters;
use super::responder::{Listener, Responder};
use crate::api::service::Protocol;
use crate::base::clock::Moment;
use crate::net::proxyd::dns::PORT;
use crate::net::proxyd::message::{Action, Configuration, HandedSocket, NotBound, Owner};
use crate::net::proxyd::poller::{Part, Poller, Token};
use crate::net::proxyd::userspace::sockets;
use crate::net::services::names::Names;

/// The number of this part in poller tokens.
pub const PART: u8 = 2;
/// Size in bytes of the receive buffer of a UDP socket: room for about 1,400 questions, which may arrive while the
/// process does not run.
const ROOM: usize = 512 << 10;
/// Time between two attempts to bind an address.
const RETRY: Duration = Duration::from_secs(1);

/// An address on which the responder should listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    ip: IpAddr,
    /// True if the address is reached by a route, and no interface has it.
    is_routed: bool,
}

/// The DNS responder with its addresses, as a part of the proxy process.
pub struct NamesPart {
    responder: Responder,
    wanted: Vec<Wanted>,
    not_bound: Vec<NotBound>,
    retry_at: Option<Moment>,
    /// Inherited sockets of another process that are not in use yet.
    inherited: BTreeMap<(Protocol, SocketAddr), OwnedFd>,
}

impl Default for NamesPart {
    fn default() -> Self {
        Self {
            responder: Responder::new(PART),
            wanted: Vec::new(),
            not_bound: Vec::new(),
            retry_at: None,
            inherited: BTreeMap::new(),
        }
    }
}

impl NamesPart {
    /// Serves with this configuration from now on.
    pub fn apply(&mut self, configuration: &Configuration, now: Moment, poller: &Poller) {
        let names = configuration.names.clone().unwrap_or_default();
        let wanted = |ip: &IpAddr| Wanted {
            ip: *ip,
            // IPv6 addresses are claimed by a local route, and no interface has them.
            is_routed: configuration.is_routed(*ip) || ip.is_ipv6(),
        };
        self.serve(names.addresses.iter().map(wanted).collect(), now, poller);
        self.responder.update(names);
    }

    fn serve(&mut self, wanted: Vec<Wanted>, now: Moment, poller: &Poller) {
        self.wanted = wanted;
        for at in self.responder.addresses() {
            if !self.wanted.iter().any(|w| w.ip == at.ip()) {
                self.responder.close_listener(at);
            }
        }
        self.bind(now, poller);
    }

    /// Binds the configured addresses that are not bound yet.
    fn bind(&mut self, now: Moment, poller: &Poller) {
        let bound = self.responder.addresses();
        self.not_bound.clear();
        for wanted in self.wanted.clone() {
            let at = SocketAddr::new(wanted.ip, PORT);
            if bound.contains(&at) {
                continue;
            }
            let opened = self.open(at, wanted.is_routed).and_then(|listener| {
                let added = self.responder.listen_on(listener, poller.epoll());
                added.map_err(|e| {
                    (
                        Protocol::Udp,
                        Errno::from_raw(e.raw_os_error().unwrap_or(0)),
                    )
                })
            });
            if let Err((protocol, e)) = opened {
                self.not_bound.push(not_bound(at, protocol, e));
            }
        }
        self.retry_at = (!self.not_bound.is_empty()).then(|| now + RETRY);
    }

    /// Stops answering, because another proxy process answers the clients.
    pub fn retire(&mut self) {
        for at in self.responder.addresses() {
            self.responder.close_listener(at);
        }
        self.responder.update(Names::default());
        self.responder.leave();
        self.wanted.clear();
        self.not_bound.clear();
        self.retry_at = None;
    }

    /// Takes sockets of another process. For configured addresses, these sockets are used instead of new sockets.
    pub fn inherit(&mut self, sockets: Vec<(HandedSocket, OwnedFd)>) {
        let sockets = sockets.into_iter();
        self.inherited
            .extend(sockets.map(|(s, fd)| ((s.protocol, s.at), fd)));
    }

    /// Closes the inherited sockets that were not used.
    pub fn forget_inherited(&mut self) {
        self.inherited.clear();
    }

    /// Returns every listening socket, to hand it over to another process.
    pub fn to_hand_over(&self) -> Vec<(HandedSocket, BorrowedFd<'_>)> {
        let sockets = self.responder.to_hand_over().into_iter();
        let handed = sockets.map(|(protocol, at, socket)| {
            let handed = HandedSocket {
                owner: Owner::Names,
                protocol,
                at,
                action: Action::Serve,
            };
            (handed, socket)
        });
        handed.collect()
    }

    /// Takes no more questions, because another process has the sockets. Returns the connections that have no open
    /// question. The other process serves them.
    pub fn let_go(&mut self, now: Moment, poller: &Poller) -> Vec<(IpAddr, OwnedFd)> {
        self.wanted.clear();
        self.not_bound.clear();
        self.retry_at = None;
        self.inherited.clear();
        self.responder.let_go(now, poller.epoll())
    }

    /// Serves the connections that another process has given up.
    pub fn adopt(&mut self, given: Vec<(IpAddr, OwnedFd)>, now: Moment, poller: &Poller) {
        self.responder.adopt(given, now, poller.epoll());
        self.retry_at = (!self.not_bound.is_empty()).then_some(now);
    }

    /// Returns true if no client waits for an answer and no connection is open.
    pub fn is_unused(&self) -> bool {
        self.responder.is_unused()
    }

    fn open(&mut self, at: SocketAddr, is_routed: bool) -> Result<Listener, (Protocol, Errno)> {
        let mut open = |protocol| -> Result<OwnedFd, (Protocol, Errno)> {
            if let Some(socket) = self.inherited.remove(&(protocol, at)) {
                return Ok(socket);
            }
            let opened = sockets::open(protocol, at, Action::Serve, is_routed);
            let opened = opened.map_err(|e| (protocol, e))?;
            opened.ok_or((protocol, Errno::EINVAL))
        };
        let udp = open(Protocol::Udp)?;
        make_room(&udp);
        Ok(Listener {
            udp: UdpSocket::from(udp),
            tcp: TcpListener::from(open(Protocol::Tcp)?),
        })
    }

    /// Returns the addresses that could not be bound, each with the error.
    pub fn not_bound(&self) -> &[NotBound] {
        &self.not_bound
    }

    /// Returns the responder's counts.
    pub fn counters(&self) -> Counters {
        self.responder.counters()
    }
}

/// Sets the socket's receive buffer to `ROOM`. A process without the privilege gets the largest buffer that the node
/// allows.
fn make_room(udp: &OwnedFd) {
    if setsockopt(udp, sockopt::RcvBufForce, &ROOM).is_err() {
        let _ = setsockopt(udp, sockopt::RcvBuf, &ROOM);
    }
}

fn not_bound(address: SocketAddr, protocol: Protocol, e: Errno) -> NotBound {
    let why = match e {
        Errno::EADDRINUSE => {
            "another program has this port; end that program, or name its address in clusterDNS"
        }
        Errno::EADDRNOTAVAIL => "no interface of the node has this address",
        e => e.desc(),
    };
    NotBound {
        address,
        protocol,
        service: "names".into(),
        error: format!("cannot answer names on {address}/{protocol}: {why}"),
    }
}

impl Part for NamesPart {
    fn ready(&mut self, token: Token, events: EpollFlags, now: Moment, poller: &Poller) {
        self.responder
            .ready(token.into(), events, now, poller.epoll());
    }

    fn deadline(&self) -> Option<Moment> {
        let deadlines = [self.responder.deadline(), self.retry_at];
        deadlines.into_iter().flatten().min()
    }

    fn expire(&mut self, now: Moment, poller: &Poller) {
        self.responder.expire(now, poller.epoll());
        if self.retry_at.is_some_and(|at| at <= now) {
            self.bind(now, poller);
        }
    }
}
