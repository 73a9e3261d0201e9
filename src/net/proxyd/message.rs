//! Messages on the control socket.
//!
//! A request is its length in 4 bytes, the most significant first, followed by JSON. An answer is one line of JSON.
//! Unknown fields are ignored, and missing fields have their defaults, because the daemon and the proxy process may be
//! of different versions.
//!
//! Descriptors follow the line of their answer, with bytes that have no meaning ([`super::hand_over`]).

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::api::service::Protocol;
use crate::net::proxyd::dns::counters::Counters;
use crate::net::services::names::Names;
use crate::net::services::table::{Backend, ServicePortName, ServiceTable};

/// Largest request in bytes: 16 MiB.
pub const LONGEST: usize = 16 << 20;

/// A request of the daemon, or of a new proxy process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Serve with this configuration from now on.
    Apply(Box<Configuration>),
    /// Answer with the metrics.
    Metrics {},
    /// Stop listening, and end with the last connection. The daemon sends this when another data path takes over, or
    /// when a process of an older podprobe must be replaced.
    Retire {},
    /// Give the sockets to another proxy process, and go on. Nothing changes before [`Self::LetGo`].
    HandOver {},
    /// Leave the clients to the process that asked for the sockets with `HandOver`. Take no more clients, give the UDP
    /// clients away, and end with the last connection.
    LetGo {},
}

/// All settings and tables of the proxy process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    /// Version of this configuration. The answer repeats this number.
    pub version: u64,
    /// The boot in which this configuration was made. After a reboot the endpoints of the configuration are gone.
    pub boot_id: String,
    /// Settings and limits for the way in which addresses are served.
    pub options: Options,
    /// The services.
    pub table: ServiceTable,
    /// The names that are answered over DNS; `None` if no client gets an answer.
    pub names: Option<Names>,
}

impl Configuration {
    /// Returns true if the daemon makes the address local by a route to the whole range of service addresses. Other
    /// addresses are added to the node by the proxy process itself.
    pub fn is_routed(&self, ip: IpAddr) -> bool {
        let mut ranges = self.table.service_cidrs.iter();
        self.options.service_addresses == ServiceAddresses::Bound && ranges.any(|r| r.contains(ip))
    }
}

/// The way in which addresses of services are served. The node's own addresses do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceAddresses {
    /// Another data path serves the addresses, and the proxy process does not.
    #[default]
    Elsewhere,
    /// The proxy process binds the addresses. If no interface has an address, the process adds the address to `lo`, and
    /// removes the address with the service.
    Bound,
    /// Each service port gets a port of the proxy process, to which the daemon redirects clients.
    Portals {
        /// The first port. If `first` and `last` are 0, the kernel chooses the ports.
        first: u16,
        /// The last port.
        last: u16,
    },
}

/// Settings and limits for the way in which addresses are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// The way in which addresses of services are served.
    pub service_addresses: ServiceAddresses,
    /// The node's own addresses on which node ports and host ports are bound. If the list is empty, these ports are
    /// bound on every address.
    pub node_addresses: Vec<IpAddr>,
    /// True if node ports are bound.
    pub node_ports: bool,
    /// True if node ports are bound on 127.0.0.1 and ::1.
    pub localhost_node_ports: bool,
    /// The host ports that are bound.
    pub host_ports: HostPorts,
    /// Time in milliseconds for which a silent UDP client is remembered, at least 250.
    pub udp_idle_ms: u64,
    /// Largest number of connections of all services together, at most a third of the descriptors. 0 means 32,768.
    pub max_connections: u32,
    /// Largest number of connections of one service port. 0 means three quarters of all connections.
    pub max_connections_per_port: u32,
    /// Largest number of UDP clients of one service port.
    pub max_flows_per_port: u32,
}

/// The host ports that are bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostPorts {
    /// No host ports, because another data path serves them.
    #[default]
    None,
    /// Only host ports on 127.0.0.1 and ::1.
    Localhost,
    /// All host ports.
    All,
}

/// Default time in milliseconds for which a silent UDP client is remembered.
pub const UDP_IDLE_MS: u64 = 10_000;
/// Shortest time in milliseconds for which a silent UDP client is remembered.
pub const LEAST_UDP_IDLE_MS: u64 = 250;
/// Default for the largest number of UDP clients of one service port.
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

/// An answer of the proxy process to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The version of the configuration in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// The reason why the request was refused, as one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Addresses of services that the proxy process has added to `lo`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Addresses that could not be bound. Binding is tried again every second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NotBound>,
    /// Addresses of services, and the ports to which the daemon must redirect their clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub portals: Vec<Portal>,
    /// Metrics of connections and UDP clients, in an answer to `Request::Metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Counters of the DNS responder, in an answer to `Request::Metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Counters>,
    /// The list of things that this process gives to another proxy process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handed: Option<Box<Handed>>,
}

/// The list of things that one proxy process gives to another. Their descriptors follow in this order: `home`,
/// `sockets`, `flows`, `questioners`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handed {
    /// True if the lock of the directory is given.
    pub home: bool,
    /// The bound sockets.
    pub sockets: Vec<HandedSocket>,
    /// The UDP clients.
    pub flows: Vec<HandedFlow>,
    /// DNS clients with a TCP connection and no open question.
    pub questioners: Vec<IpAddr>,
    /// The endpoints that clients with `ClientIP` affinity keep. Affinities have no descriptors.
    pub affinities: Vec<HandedAffinity>,
}

impl Handed {
    /// Returns the number of descriptors that follow this list.
    pub fn descriptors(&self) -> usize {
        usize::from(self.home) + self.sockets.len() + self.flows.len() + self.questioners.len()
    }
}

/// The part of the proxy process that has a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Owner {
    /// The part that serves services and host ports.
    Userspace,
    /// The DNS responder.
    Names,
}

/// A bound socket that is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HandedSocket {
    /// The part of the proxy process that has the socket.
    pub owner: Owner,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Address and port of the socket.
    pub at: SocketAddr,
    /// The way in which the socket treats its clients.
    pub action: Action,
}

/// A UDP client that is handed over. Its descriptor is a socket that is connected to the client's endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedFlow {
    /// Address and port of the socket to which the client sends.
    pub at: SocketAddr,
    /// The client's address and port.
    pub client: SocketAddr,
    /// The address to which the client has sent; `None` if the socket `at` is bound to one address.
    pub local: Option<IpAddr>,
    /// The service port to which the client has sent.
    pub port: ServicePortName,
    /// The kind of client. The choice of an endpoint depends on this kind.
    pub clients: Clients,
    /// The client's endpoint.
    pub backend: Backend,
    /// Time in milliseconds for which the client was silent. If there is no room, the client that was silent longest is
    /// forgotten first.
    pub silent_ms: u64,
}

/// A client with `ClientIP` affinity that is handed over, and its endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedAffinity {
    /// The service port to which the affinity belongs.
    pub port: ServicePortName,
    /// The kind of client. The choice of an endpoint depends on this kind.
    pub clients: Clients,
    /// The client's address.
    pub client: IpAddr,
    /// The endpoint that the client keeps.
    pub endpoint: Backend,
    /// Time in milliseconds for which the client was silent.
    pub silent_ms: u64,
}

/// An address that could not be bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotBound {
    /// The address and port that could not be bound.
    pub address: SocketAddr,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The name of the service, host port or part of the proxy process that needs the address, for people.
    pub service: String,
    /// The error as a whole sentence.
    pub error: String,
}

/// An address of a service, and the port of the proxy process that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Portal {
    /// The service's address and port.
    pub address: SocketAddr,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The port of the proxy process. This port is bound on every address of the node.
    pub proxy_port: u16,
}

/// Counts since the start of the proxy process, and current numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// Number of TCP connections now.
    pub connections: u64,
    /// Number of UDP clients now.
    pub flows: u64,
    /// Number of bound addresses on which clients are served now.
    pub listeners: u64,
    /// Number of addresses that cannot be bound now.
    pub not_bound: u64,
    /// Number of connections that were accepted.
    pub accepted: u64,
    /// Number of connections for which no endpoint could be reached.
    pub failed: u64,
    /// Number of connections and datagrams that were refused because of `loadBalancerSourceRanges`.
    pub refused: u64,
    /// Number of connects that were tried again on another endpoint.
    pub retries: u64,
    /// Number of connections that ended with an error.
    pub broken: u64,
    /// Number of connections in which one direction had ended and the other direction did not end in time.
    pub lingered: u64,
    /// Number of UDP clients since the start.
    pub flows_opened: u64,
    /// Number of datagrams that were dropped, because there was no endpoint or no room, or because the client was not
    /// allowed.
    pub datagrams_dropped: u64,
    /// Number of pauses in accepting connections for lack of descriptors or memory.
    pub shortage_pauses: u64,
    /// Number of pauses in accepting connections because a limit of connections was reached.
    pub limit_pauses: u64,
    /// Number of bytes from clients to endpoints.
    pub bytes_to_endpoints: u64,
    /// Number of bytes from endpoints to clients.
    pub bytes_to_clients: u64,
}

/// The kind of client. The choice of an endpoint depends on this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Clients {
    /// All clients of a cluster IP.
    Internal,
    /// Clients on the node and in its pods that connect to another address than a cluster IP.
    Inside,
    /// Clients from outside of the node that connect to another address than a cluster IP.
    External,
}

/// The way in which the proxy process treats clients that send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Clients are connected to endpoints.
    Serve,
    /// Clients are refused at once.
    Refuse,
    /// Clients get no answer.
    Drop,
}
