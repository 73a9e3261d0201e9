//! Messages on the control socket.
//!
//! Each request is its length in 4 bytes, most significant first, and JSON; each answer is one line of JSON. A field that
//! one side does not know is left aside, and one that is missing has its default: daemon and role may be of different
//! versions.
//!
//! Descriptors come after the line of their answer, with bytes that mean nothing ([`super::hand_over`]).

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::api::service::Protocol;
use crate::net::proxyd::dns::counters::Counters;
use crate::net::services::names::Names;
use crate::net::services::table::{Backend, ServicePortName, ServiceTable};

/// The longest request: 16 MiB.
pub const LONGEST: usize = 16 << 20;

/// A request of the daemon, or of another process of the role.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Serve by this table from now on.
    Apply(Box<Configuration>),
    /// Answer with what has been counted.
    Metrics {},
    /// Stop listening, and end with the last connection. This is for an upgrade: the next role takes over.
    Retire {},
    /// Give another process of the role this process's sockets. Nothing changes before [`Self::LetGo`].
    HandOver {},
    /// Let the process serve that asked for the sockets (`HandOver`). This process takes no more clients, gives its UDP
    /// clients away, and ends with its last connection.
    LetGo {},
}

/// All settings and tables that the role works from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    /// Version of this configuration, which the answer names.
    pub version: u64,
    /// The boot to which this configuration belongs: after a reboot its endpoints are gone.
    pub boot_id: String,
    /// How addresses are served, and within which limits.
    pub options: Options,
    /// The services.
    pub table: ServiceTable,
    /// The names that the role answers. With `None` no client gets an answer.
    pub names: Option<Names>,
}

impl Configuration {
    /// True if the daemon makes the address the node's own, by a route to the whole range of service addresses. The role
    /// itself adds other addresses to the node.
    pub fn is_routed(&self, ip: IpAddr) -> bool {
        let mut ranges = self.table.service_cidrs.iter();
        self.options.service_addresses == ServiceAddresses::Bound && ranges.any(|r| r.contains(ip))
    }
}

/// How the addresses of services (not those of the node) are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceAddresses {
    /// Not at all: another data path serves them.
    #[default]
    Elsewhere,
    /// The role binds the addresses. It adds an address that no interface has to `lo`, and removes it with its service.
    Bound,
    /// Each service port gets a port of the proxy, to which the daemon redirects.
    Portals {
        /// The first of the proxy's ports; 0 with `last` 0: the kernel chooses.
        first: u16,
        /// The last one.
        last: u16,
    },
}

/// How addresses are served, and within which limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// How the addresses of services are served.
    pub service_addresses: ServiceAddresses,
    /// The node's own addresses on which node ports and host ports are bound. An empty list means every address of the node.
    pub node_addresses: Vec<IpAddr>,
    /// True if node ports are bound.
    pub node_ports: bool,
    /// True if node ports are bound on 127.0.0.1 and ::1.
    pub localhost_node_ports: bool,
    /// Which host ports are bound.
    pub host_ports: HostPorts,
    /// How long a silent UDP client is remembered, in milliseconds: at least 250.
    pub udp_idle_ms: u64,
    /// Connections of all services together, at most a third of the descriptors; 0 is 32,768.
    pub max_connections: u32,
    /// Connections of one service port; 0 is three quarters of all.
    pub max_connections_per_port: u32,
    /// UDP clients of one service port.
    pub max_flows_per_port: u32,
}

/// Which host ports are bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostPorts {
    /// No host ports: another data path serves them.
    #[default]
    None,
    /// Only those on 127.0.0.1 and ::1.
    Localhost,
    /// All.
    All,
}

/// How long a UDP client is remembered by default, in milliseconds.
pub const UDP_IDLE_MS: u64 = 10_000;
/// The shortest time for which a silent UDP client is remembered, in milliseconds.
pub const LEAST_UDP_IDLE_MS: u64 = 250;
/// UDP clients of one service port by default.
pub const MAX_FLOWS_PER_PORT: u32 = 1024;

impl Default for Options {
    fn default() -> Self {
        Self {
            service_addresses: ServiceAddresses::default(),
            node_addresses: Vec::new(),
            node_ports: false,
            localhost_node_ports: false,
            host_ports: HostPorts::default(),
            udp_idle_ms: UDP_IDLE_MS,
            max_connections: 0,
            max_connections_per_port: 0,
            max_flows_per_port: MAX_FLOWS_PER_PORT,
        }
    }
}

/// An answer of the role to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The version of the table that counts now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// Why the role has not done what was asked, as one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Addresses of services that the role has added to `lo`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Addresses that could not be bound; tried again every second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NotBound>,
    /// Where connections must be redirected to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub portals: Vec<Portal>,
    /// Counts of connections and UDP clients, in an answer to `Request::Metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Counts of the responder of names, in an answer to `Request::Metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Counters>,
    /// List of what this process gives to another process of the role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handed: Option<Box<Handed>>,
}

/// List of what one process of the role gives to another. The descriptors follow in this order: of `home`, `sockets`,
/// `flows`, `questioners`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handed {
    /// True if the lock of the directory is given.
    pub home: bool,
    /// Sockets that are bound.
    pub sockets: Vec<HandedSocket>,
    /// UDP clients.
    pub flows: Vec<HandedFlow>,
    /// Clients that ask for names over TCP, and wait for no answer now.
    pub questioners: Vec<IpAddr>,
    /// The endpoints that clients keep; they have no descriptors.
    pub affinities: Vec<HandedAffinity>,
}

impl Handed {
    /// Returns how many descriptors follow this list.
    pub fn descriptors(&self) -> usize {
        usize::from(self.home) + self.sockets.len() + self.flows.len() + self.questioners.len()
    }
}

/// The part of the role that a socket belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Owner {
    /// Services and host ports.
    Userspace,
    /// Names.
    Names,
}

/// A socket that is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HandedSocket {
    /// The part of the role that has the socket.
    pub owner: Owner,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Address and port.
    pub at: SocketAddr,
    /// How the socket treats its clients.
    pub action: Action,
}

/// A UDP client, whose socket leads to its endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedFlow {
    /// Address and port of the socket to which the client sends.
    pub at: SocketAddr,
    /// The client.
    pub client: SocketAddr,
    /// The address to which the client has sent, if that socket is bound to any address.
    pub local: Option<IpAddr>,
    /// The service port.
    pub port: ServicePortName,
    /// The kind of client, by which its endpoints are chosen.
    pub clients: Clients,
    /// The client's endpoint.
    pub backend: Backend,
    /// How long the client was silent, in milliseconds. The clients that were silent longest make room first.
    pub silent_ms: u64,
}

/// A client with `ClientIP` affinity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedAffinity {
    /// The service port.
    pub port: ServicePortName,
    /// The kind of client, by which its endpoints are chosen.
    pub clients: Clients,
    /// The client.
    pub client: IpAddr,
    /// The endpoint that the client keeps.
    pub endpoint: Backend,
    /// How long the client was silent, in milliseconds.
    pub silent_ms: u64,
}

/// An address that could not be bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotBound {
    /// Address and port.
    pub address: SocketAddr,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The service, host port or part of the role that wants the address, as a person reads it.
    pub service: String,
    /// The error as a whole sentence.
    pub error: String,
}

/// An address of a service, and the port of the proxy that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Portal {
    /// Address and port.
    pub address: SocketAddr,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The port of the proxy. The proxy listens on it on every address of the node.
    pub proxy_port: u16,
}

/// Counts since the role began, and numbers of what there is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// TCP connections now.
    pub connections: u64,
    /// UDP clients now.
    pub flows: u64,
    /// Bound addresses on which clients are served now.
    pub listeners: u64,
    /// Addresses that cannot be bound now.
    pub not_bound: u64,
    /// Connections taken.
    pub accepted: u64,
    /// Connections for which no endpoint could be reached.
    pub failed: u64,
    /// Connections and datagrams that were refused because of `loadBalancerSourceRanges`.
    pub refused: u64,
    /// Connects that were tried on another endpoint.
    pub retries: u64,
    /// Connections that ended by an error.
    pub broken: u64,
    /// Connections whose second half did not end in time.
    pub lingered: u64,
    /// UDP clients seen.
    pub flows_opened: u64,
    /// Datagrams that were dropped: no endpoint, no room, not allowed.
    pub datagrams_dropped: u64,
    /// How often taking connections paused for want of descriptors or memory.
    pub shortage_pauses: u64,
    /// How often taking connections paused because a limit of connections was reached.
    pub limit_pauses: u64,
    /// Bytes from clients to endpoints.
    pub bytes_to_endpoints: u64,
    /// Bytes from endpoints to clients.
    pub bytes_to_clients: u64,
}

/// Kind of client, by which its endpoints are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Clients {
    /// All clients of a cluster IP.
    Internal,
    /// Clients on the node and in its pods, on any other address.
    Inside,
    /// Clients from outside, on any other address.
    External,
}

/// How an address treats its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Clients are sent on to endpoints.
    Serve,
    /// Clients are refused at once.
    Refuse,
    /// Clients get no answer.
    Drop,
}
