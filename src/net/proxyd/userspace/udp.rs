//! UDP clients of services. Each client gets a socket to an endpoint, called a flow, for as long as it sends or
//! receives.
//!
//! Invariants: the number of flows of a service port is bounded. If a port is full, a new client replaces the client
//! that was silent longest, provided that this client was silent for 250 ms. Otherwise the new client's datagram is
//! dropped. A flow ends with its listener, and with its endpoint.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, RecvMsg, SockType, SockaddrStorage, recv,
    recvmsg, send, sendmsg,
};

use super::listeners::{Listener, Listeners};
use super::pools::{Pools, fingerprint};
use super::shared::Shared;
use crate::api::service::Protocol;
use crate::base::clock::Moment;
use crate::net::proxyd::message::{Action, Clients, HandedFlow, LEAST_UDP_IDLE_MS};
use crate::net::proxyd::poller::{Poller, Token};
use crate::net::proxyd::slab::{Key, Queue, Slab};
use crate::net::services::table::Backend;

/// Number of datagrams of one socket that one turn handles.
const TURN: usize = 64;
/// Largest datagram in bytes.
const LARGEST: usize = 65_535;
/// Shortest silence after which a full service port replaces a client.
const FLOOR: Duration = Duration::from_millis(LEAST_UDP_IDLE_MS);

/// A client, and the listener to which it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Peer {
    listener: Key,
    client: SocketAddr,
    /// The address to which the client has sent; `None` if the listener is bound to one address.
    local: Option<IpAddr>,
}

#[derive(Debug)]
struct Flow {
    peer: Peer,
    port: Key,
    clients: Clients,
    backend: Backend,
    socket: OwnedFd,
    last: Moment,
}

/// The flows of a service port. The flow that was silent longest is first.
#[derive(Debug, Default)]
struct PortFlows {
    queue: Queue,
    count: u32,
}

/// The flows of all UDP clients.
pub struct Udp {
    flows: Slab<Flow>,
    by_peer: HashMap<Peer, Key>,
    by_port: HashMap<Key, PortFlows>,
    /// The moment at which the next flow may time out. The moment may be too early, but is never too late.
    deadline: Option<Moment>,
    scratch: Vec<u8>,
    token: fn(Key) -> Token,
}

impl Udp {
    /// Makes the state without flows. `token` makes the token of each flow.
    pub fn new(token: fn(Key) -> Token) -> Self {
        Self {
            flows: Slab::default(),
            by_peer: HashMap::new(),
            by_port: HashMap::new(),
            deadline: None,
            scratch: vec![0; LARGEST],
            token,
        }
    }

    /// Returns the number of flows.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns true if there is no flow.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Handles the datagrams that clients have sent to a listener.
    pub fn receive(
        &mut self,
        (key, listener): (Key, &Listener),
        shared: &mut Shared,
        now: Moment,
        poller: &Poller,
    ) {
        let Some(socket) = &listener.socket else {
            return;
        };
        let Some(port) = shared.pools.find(&listener.wanted.name) else {
            return;
        };
        for _ in 0..TURN {
            let (length, client, local) = match receive_from(socket, &mut self.scratch) {
                Ok(received) => received,
                // The error belongs to an earlier answer. The next datagram may be good.
                Err(Errno::ECONNREFUSED | Errno::EINTR | Errno::EHOSTUNREACH) => continue,
                Err(_) => return,
            };
            let peer = Peer {
                listener: key,
                client,
                local,
            };
            let sent = shared
                .admit(&listener.wanted, client.ip())
                .and_then(|clients| {
                    let flow = self.flow(peer, port, clients, shared, now, poller)?;
                    self.forward(flow, length, shared, now, poller)
                });
            shared.metrics.datagrams_dropped += u64::from(sent.is_none());
        }
    }

    /// Returns the flow of a client. Begins a flow if there is none.
    fn flow(
        &mut self,
        peer: Peer,
        port: Key,
        clients: Clients,
        shared: &mut Shared,
        now: Moment,
        poller: &Poller,
    ) -> Option<Key> {
        match self.by_peer.get(&peer) {
            Some(key) => Some(*key),
            None => self.begin(peer, port, clients, &[], shared, now, poller),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a flow is made of these")]
    fn begin(
        &mut self,
        peer: Peer,
        port: Key,
        clients: Clients,
        tried: &[u32],
        shared: &mut Shared,
        now: Moment,
        poller: &Poller,
    ) -> Option<Key> {
        self.make_room(port, shared, now)?;
        let client = peer.client.ip();
        let backend = shared.pools.next(port, clients, client, tried, now)?;
        let socket = shared.namespaces.dial(&backend, SockType::Datagram).ok()?;
        let flow = Flow {
            peer,
            port,
            clients,
            backend,
            socket,
            last: now,
        };
        let key = self.insert(flow, shared, poller)?;
        shared.metrics.flows_opened += 1;
        Some(key)
    }

    fn insert(&mut self, flow: Flow, shared: &Shared, poller: &Poller) -> Option<Key> {
        let (peer, port, last) = (flow.peer, flow.port, flow.last);
        let key = self.flows.insert(flow);
        let socket = &self.flows.get(key)?.socket;
        if poller
            .add(socket, (self.token)(key), EpollFlags::EPOLLIN)
            .is_err()
        {
            self.flows.remove(key);
            return None;
        }
        self.by_peer.insert(peer, key);
        let port = self.by_port.entry(port).or_default();
        port.count += 1;
        self.flows.enqueue(&mut port.queue, key);
        let deadline = last + shared.udp_idle;
        self.deadline = Some(self.deadline.map_or(deadline, |d| d.min(deadline)));
        Some(key)
    }

    /// Returns every flow with its socket, for another process. The sockets are removed from the poller. Otherwise the
    /// poller would report their events for as long as that process lives.
    pub fn give_up(
        &mut self,
        listeners: &Listeners,
        pools: &Pools,
        now: Moment,
        poller: &Poller,
    ) -> Vec<(HandedFlow, OwnedFd)> {
        let mut keys: Vec<(Moment, Key)> =
            self.flows.iter().map(|(key, f)| (f.last, key)).collect();
        // The other process queues the flows in the order in which it gets them. So the flow that was silent longest
        // comes first.
        keys.sort_unstable();
        let mut given = Vec::new();
        for (last, key) in keys {
            let Some(flow) = self.end(key) else { continue };
            let _ = poller.remove(&flow.socket);
            let listener = listeners.get(flow.peer.listener);
            let (Some(listener), Some(port)) = (listener, pools.name(flow.port)) else {
                continue;
            };
            let handed = HandedFlow {
                at: listener.at,
                client: flow.peer.client,
                local: flow.peer.local,
                port: port.clone(),
                clients: flow.clients,
                backend: flow.backend,
                silent_ms: now.since(last).as_millis() as u64,
            };
            given.push((handed, flow.socket));
        }
        self.deadline = None;
        given
    }

    /// Goes on with a flow that another process has given up, if its service port still has the endpoint.
    pub fn adopt(
        &mut self,
        (handed, socket): (HandedFlow, OwnedFd),
        listeners: &Listeners,
        shared: &Shared,
        now: Moment,
        poller: &Poller,
    ) {
        let listener = listeners.find(Protocol::Udp, handed.at);
        let (Some(listener), Some(port)) = (listener, shared.pools.find(&handed.port)) else {
            return;
        };
        let peer = Peer {
            listener,
            client: handed.client,
            local: handed.local,
        };
        let is_known = self.by_peer.contains_key(&peer);
        if is_known || !shared.pools.has(port, handed.clients, &handed.backend) {
            return;
        }
        let flow = Flow {
            peer,
            port,
            clients: handed.clients,
            backend: handed.backend,
            socket,
            last: now - Duration::from_millis(handed.silent_ms),
        };
        self.insert(flow, shared, poller);
    }

    /// Makes room for a new flow, if necessary by ending the flow that was silent longest. Returns `None` if the
    /// service port is full and all its clients are active.
    fn make_room(&mut self, port: Key, shared: &Shared, now: Moment) -> Option<()> {
        let Some(flows) = self.by_port.get(&port) else {
            return Some(());
        };
        if flows.count < shared.limits.flows_per_port && self.flows.len() < shared.limits.flows {
            return Some(());
        }
        let oldest = self.flows.first(&flows.queue)?;
        let silent = now.since(self.flows.get(oldest)?.last);
        (silent >= FLOOR).then(|| drop(self.end(oldest)))
    }

    /// Sends the datagram in the scratch buffer to the flow's endpoint. If the endpoint has closed its port, the
    /// datagram goes to another endpoint.
    fn forward(
        &mut self,
        key: Key,
        length: usize,
        shared: &mut Shared,
        now: Moment,
        poller: &Poller,
    ) -> Option<()> {
        match self.send(key, length, shared, now) {
            Err(Errno::ECONNREFUSED) => {}
            // If the socket's queue is full, the datagram is dropped, as in a network.
            sent => return sent.ok(),
        }
        let flow = self.flows.get(key)?;
        let (peer, port, clients) = (flow.peer, flow.port, flow.clients);
        let tried = [fingerprint(&flow.backend)];
        self.end(key);
        shared.metrics.retries += 1;
        let key = self.begin(peer, port, clients, &tried, shared, now, poller)?;
        self.send(key, length, shared, now).ok()
    }

    fn send(
        &mut self,
        key: Key,
        length: usize,
        shared: &mut Shared,
        now: Moment,
    ) -> nix::Result<()> {
        let flow = self.flows.get(key).ok_or(Errno::ENOENT)?;
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent = send(flow.socket.as_raw_fd(), &self.scratch[..length], flags)?;
        shared.metrics.bytes_to_endpoints += sent as u64;
        self.touch(key, now);
        Ok(())
    }

    /// Notes that a flow is used now, and moves the flow to the end of the queue of its service port.
    fn touch(&mut self, key: Key, now: Moment) {
        let Some(flow) = self.flows.get_mut(key) else {
            return;
        };
        flow.last = now;
        if let Some(port) = self.by_port.get_mut(&flow.port) {
            self.flows.dequeue(&mut port.queue, key);
            self.flows.enqueue(&mut port.queue, key);
        }
    }

    /// Returns the listener of a flow.
    pub fn listener_of(&self, key: Key) -> Option<Key> {
        self.flows.get(key).map(|f| f.peer.listener)
    }

    /// Sends the datagrams of an endpoint to the client.
    pub fn answer(&mut self, key: Key, listener: &Listener, shared: &mut Shared, now: Moment) {
        for _ in 0..TURN {
            let (Some(flow), Some(socket)) = (self.flows.get(key), &listener.socket) else {
                return;
            };
            match recv(
                flow.socket.as_raw_fd(),
                &mut self.scratch,
                MsgFlags::empty(),
            ) {
                Ok(length) => {
                    shared.metrics.bytes_to_clients += length as u64;
                    // If the client is gone or the queue is full, the datagram is lost, as in a network.
                    let _ = send_to(socket, &self.scratch[..length], &flow.peer);
                    self.touch(key, now);
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                // The endpoint has closed its port. The client's next datagram goes to another endpoint.
                Err(_) => return self.refused(key, shared, now),
            }
        }
    }

    fn refused(&mut self, key: Key, shared: &mut Shared, now: Moment) {
        if let Some(flow) = self.flows.get(key) {
            let client = flow.peer.client.ip();
            let (port, clients) = (flow.port, flow.clients);
            let tried = [fingerprint(&flow.backend)];
            // The choice replaces the endpoint of a client with affinity. Otherwise the client would get the same
            // endpoint again.
            let _ = shared.pools.next(port, clients, client, &tried, now);
        }
        self.end(key);
    }

    fn end(&mut self, key: Key) -> Option<Flow> {
        let flow = self.flows.get(key)?;
        if let Some(port) = self.by_port.get_mut(&flow.port) {
            port.count -= 1;
            let gone = port.count == 0;
            let name = flow.port;
            self.flows.dequeue(&mut port.queue, key);
            if gone {
                self.by_port.remove(&name);
            }
        }
        let flow = self.flows.remove(key)?;
        self.by_peer.remove(&flow.peer);
        Some(flow)
    }

    /// Ends the flows of closed listeners, and the flows whose endpoint is gone or no longer serves this kind of
    /// client.
    pub fn revise(&mut self, is_open: impl Fn(Key) -> bool, shared: &Shared) {
        let stays =
            |f: &Flow| is_open(f.peer.listener) && shared.pools.has(f.port, f.clients, &f.backend);
        let gone = self.flows.iter().filter(|(_, f)| !stays(f));
        let gone: Vec<Key> = gone.map(|(key, _)| key).collect();
        gone.into_iter().for_each(|key| drop(self.end(key)));
        // The time limit of flows may have changed, so the deadline is computed again.
        self.deadline = (!self.flows.is_empty()).then(Moment::default);
    }

    /// Returns the moment at which [`Self::expire`] must be called; `None` if there is no flow.
    pub fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// Ends the flows that were silent for too long.
    pub fn expire(&mut self, shared: &Shared, now: Moment) {
        if self.deadline.is_none_or(|d| d > now) {
            return;
        }
        let ports: Vec<Key> = self.by_port.keys().copied().collect();
        let left = ports
            .into_iter()
            .filter_map(|port| self.expire_port(port, shared, now));
        self.deadline = left.collect::<Vec<_>>().into_iter().min();
    }

    /// Ends the flows of a service port that were silent for too long. Returns the deadline of the first flow that
    /// remains; `None` if no flow remains.
    fn expire_port(&mut self, port: Key, shared: &Shared, now: Moment) -> Option<Moment> {
        loop {
            let first = self.flows.first(&self.by_port.get(&port)?.queue)?;
            let limit = self.flows.get(first)?.last + shared.udp_idle;
            if limit > now {
                return Some(limit);
            }
            self.end(first);
        }
    }
}

/// Returns true if the listener accepts flows.
pub fn takes_flows(listener: &Listener) -> bool {
    listener.socket.is_some() && listener.wanted.action == Action::Serve
}

fn receive_from(
    socket: &OwnedFd,
    scratch: &mut [u8],
) -> nix::Result<(usize, SocketAddr, Option<IpAddr>)> {
    let mut space = cmsg_space!(libc::in6_pktinfo);
    let mut parts = [IoSliceMut::new(scratch)];
    let flags = MsgFlags::empty();
    let message: RecvMsg<'_, '_, SockaddrStorage> =
        recvmsg(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let client = message.address.as_ref().and_then(address_of);
    let local = message.cmsgs()?.find_map(|c| match c {
        ControlMessageOwned::Ipv4PacketInfo(i) => {
            Some(IpAddr::from(i.ipi_addr.s_addr.to_ne_bytes()))
        }
        ControlMessageOwned::Ipv6PacketInfo(i) => Some(IpAddr::from(i.ipi6_addr.s6_addr)),
        _ => None,
    });
    Ok((message.bytes, client.ok_or(Errno::EAFNOSUPPORT)?, local))
}

/// Reads the address of a client. The zone of a link-local address is kept, because no answer could be sent without the
/// zone.
fn address_of(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in();
    let v4 = v4.map(|a| SocketAddr::from((a.ip(), a.port())));
    let v6 = storage.as_sockaddr_in6();
    v4.or_else(|| v6.map(|a| std::net::SocketAddrV6::new(a.ip(), a.port(), 0, a.scope_id()).into()))
}

/// Sends a datagram to the client, from the address to which the client has sent.
fn send_to(socket: &OwnedFd, bytes: &[u8], peer: &Peer) -> nix::Result<usize> {
    let to = SockaddrStorage::from(peer.client);
    let parts = [IoSlice::new(bytes)];
    let send = |messages: &[ControlMessage<'_>]| {
        let fd = socket.as_raw_fd();
        sendmsg(fd, &parts, messages, MsgFlags::MSG_NOSIGNAL, Some(&to))
    };
    match peer.local {
        None => send(&[]),
        Some(IpAddr::V4(ip)) => {
            let address = libc::in_addr {
                s_addr: u32::from_ne_bytes(ip.octets()),
            };
            send(&[ControlMessage::Ipv4PacketInfo(&libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: address,
                ipi_addr: libc::in_addr { s_addr: 0 },
            })])
        }
        Some(IpAddr::V6(ip)) => send(&[ControlMessage::Ipv6PacketInfo(&libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr {
                s6_addr: ip.octets(),
            },
            ipi6_ifindex: 0,
        })]),
    }
}
