//! The target of a network probe: its host, the check that the host is allowed, and the network namespace for its
//! sockets.
//!
//! Invariants: a probe may reach the pod's own addresses and loopback. A pod in the node's network may also probe the
//! node's addresses. Any other host must be allowed by the configuration ([`crate::api::probe_host`]). Loopback is the
//! pod's loopback and is probed from the pod's namespace. All other addresses are probed from the node's namespace.

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;

use crate::api::PodStatus;
use crate::api::probe_host::{ProbeHosts, host_address, host_refused};
use crate::base::wire::dial::{Address, DialError, Dialer, Namespace};
use crate::base::wire::observer::Observer;
use crate::engine::runtime::NetworkNamespace;
use crate::net::network::node_addresses;
use crate::pods::prober::outcome::{HandlerResult, Outcome, Phase};

/// The largest number of name lookups at a time. A lookup that hangs keeps its helper thread.
const MAX_LOOKUPS: usize = 8;

/// The interval at which a lookup checks whether its caller has given up.
const LOOK: Duration = Duration::from_millis(100);

/// The reason why a host must not be probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The pod's address is not an IP address.
    #[error("cannot probe the pod's address \"{0}\": not an IP address")]
    Address(String),
    /// The host is not one of the pod's addresses or loopback, and is not allowed.
    #[error("cannot probe host \"{host}\": {why}")]
    Refused {
        /// The host as the spec has it.
        host: String,
        /// The reason, and how to allow the host.
        why: String,
    },
}

/// The lookup of a name failed. The text has the form of Go's resolver.
#[derive(Debug, thiserror::Error)]
#[error("lookup {host}: {cause}")]
pub struct LookupError {
    /// The name that was looked up.
    pub host: String,
    /// The reason why the name has no addresses.
    #[source]
    pub cause: LookupCause,
}

impl LookupError {
    /// Makes the outcome of a probe that ends with this error and reports `text`. Without a thread for the lookup the
    /// outcome is an error, because it shows nothing about the container. Otherwise the probe has failed.
    pub fn outcome(&self, text: String) -> Outcome {
        match self.cause {
            LookupCause::Thread(_) => Outcome::error(text, Phase::Connect),
            _ => Outcome::new(HandlerResult::Failure, text, Phase::Connect),
        }
    }
}

/// The reason why a name has no addresses.
#[derive(Debug, thiserror::Error)]
pub enum LookupCause {
    /// Too many earlier lookups are still hanging.
    #[error("{MAX_LOOKUPS} lookups are still waiting for the name server")]
    TooMany,
    /// No thread could be started for the lookup.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The system's resolver returned an error.
    #[error(transparent)]
    Resolver(io::Error),
    /// The resolver knows the name but has no address for it.
    #[error("no such host")]
    NoAddress,
    /// The time ran out, or the caller gave up.
    #[error("i/o timeout")]
    Timeout,
}

/// A host and the way to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host as it stands in URLs and texts. An IPv6 address has no brackets.
    pub host: String,
    /// The addresses to try, in order. The list is empty for a name that was not looked up yet.
    pub addresses: Vec<IpAddr>,
    /// The network namespace in which sockets are opened. `None` means the daemon's own namespace.
    pub netns: Option<NetworkNamespace>,
}

/// Returns the target of a probe with this `host` field. An empty `host` means the pod's own address. If `netns` is
/// `None`, the pod uses the node's network.
///
/// # Errors
/// Returns [`TargetError`] if the host is not one of the pod's addresses or loopback, and is not allowed. The text says
/// how to allow the host.
pub fn resolve_target(
    host: &str,
    status: &PodStatus,
    netns: Option<&NetworkNamespace>,
    hosts: &ProbeHosts<'_>,
) -> Result<Target, TargetError> {
    let own = |host: &str, addresses: Vec<IpAddr>| Target {
        host: host.into(),
        netns: netns.filter(|_| addresses.iter().any(is_loopback)).cloned(),
        addresses,
    };
    if host.is_empty() {
        let ip = if status.pod_ip.is_empty() {
            "127.0.0.1"
        } else {
            &status.pod_ip
        };
        let address = ip
            .parse()
            .map_err(|_| TargetError::Address(ip.to_owned()))?;
        return Ok(own(ip, vec![address]));
    }
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(own(
            host,
            vec![
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                IpAddr::V6(Ipv6Addr::LOCALHOST),
            ],
        ));
    }
    let address = host_address(host);
    let bare = address.map_or_else(|| host.to_owned(), |a| a.to_string());
    let is_own = |a: IpAddr| is_loopback(&a) || pod_addresses(status).any(|ip| ip == a);
    if let Some(a) = address.filter(|a| is_own(*a)) {
        return Ok(own(&bare, vec![a]));
    }
    match host_refused(host, netns.is_none(), hosts) {
        None => Ok(Target {
            host: bare,
            addresses: address.into_iter().collect(),
            netns: None,
        }),
        Some(why) => Err(TargetError::Refused {
            host: host.to_owned(),
            why,
        }),
    }
}

/// Tells whether an interface of this network namespace has the address.
pub fn is_node_address(address: IpAddr) -> bool {
    node_addresses().contains(&address)
}

fn is_loopback(address: &IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn pod_addresses(status: &PodStatus) -> impl Iterator<Item = IpAddr> {
    let all = std::iter::once(&status.pod_ip).chain(status.pod_ips.iter().map(|p| &p.ip));
    all.filter_map(|ip| ip.parse().ok())
}

impl Target {
    /// Describes the target, for example `target 10.0.0.7 in network namespace /proc/7/ns/net`.
    pub(super) fn description(&self) -> String {
        let place = match &self.netns {
            Some(netns) => format!("network namespace {}", netns.path.display()),
            None => "the node's network namespace".into(),
        };
        format!("target {} in {place}", self.host)
    }

    /// Returns the target's addresses with a port.
    pub(super) fn at_port(&self, port: u16) -> impl Iterator<Item = Address<'_>> {
        self.addresses
            .iter()
            .map(move |ip| Address::Tcp(SocketAddr::new(*ip, port)))
    }

    /// Returns a dialer that opens connections from the target's network namespace until `deadline`. The dialer never
    /// uses another namespace, even if the pid that leads to the namespace now belongs to another process.
    ///
    /// # Errors
    /// Returns an error if the namespace cannot be opened.
    pub(super) fn dialer<'a>(
        &'a self,
        deadline: Instant,
        observer: &'a dyn Observer,
    ) -> Result<Dialer<'a>, DialError> {
        let open = |netns: &'a NetworkNamespace| match netns.open() {
            Ok(file) => Ok(Namespace {
                file,
                path: &netns.path,
            }),
            Err(e) => Err(Namespace::refused(&netns.path, e)),
        };
        Ok(Dialer {
            namespace: self.netns.as_ref().map(open).transpose()?,
            deadline,
            observer,
        })
    }

    /// Returns the target with its addresses. Looks the name up if that was not done yet, at most for `limit`.
    ///
    /// # Errors
    /// Returns [`LookupError`] if the lookup failed or took too long.
    pub fn looked_up(&self, limit: Duration) -> Result<Cow<'_, Self>, LookupError> {
        self.looked_up_unless(limit, &|| false)
    }

    /// Returns the target with its addresses, like `looked_up`. Ends soon after `given_up` returns true.
    pub(super) fn looked_up_unless(
        &self,
        limit: Duration,
        given_up: &dyn Fn() -> bool,
    ) -> Result<Cow<'_, Self>, LookupError> {
        if self.addresses.is_empty() {
            let addresses = look_up(&self.host, limit, given_up).map_err(|cause| LookupError {
                host: self.host.clone(),
                cause,
            })?;
            return Ok(Cow::Owned(Self {
                addresses,
                ..self.clone()
            }));
        }
        Ok(Cow::Borrowed(self))
    }
}

#[inline(never)]
fn look_up(
    host: &str,
    limit: Duration,
    given_up: &dyn Fn() -> bool,
) -> Result<Vec<IpAddr>, LookupCause> {
    static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
    struct Slot;
    impl Drop for Slot {
        fn drop(&mut self) {
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        }
    }
    if UNDER_WAY.fetch_add(1, Ordering::Relaxed) >= MAX_LOOKUPS {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        return Err(LookupCause::TooMany);
    }
    let slot = Slot;
    let (tx, rx) = crossbeam_channel::bounded(1);
    let name: Arc<str> = host.into();
    let helper = std::thread::Builder::new().name("lookup".into()).spawn({
        let name = name.clone();
        move || {
            let _slot = slot;
            let _ = tx.try_send(
                (&*name, 0_u16)
                    .to_socket_addrs()
                    .map(|all| all.map(|a| a.ip()).collect::<Vec<_>>()),
            );
        }
    });
    helper.map_err(LookupCause::Thread)?;
    let until = Instant::now() + limit;
    let mut answer = rx.recv_timeout(limit.min(LOOK));
    let waits = |answer: &Result<_, _>| matches!(answer, Err(RecvTimeoutError::Timeout));
    while waits(&answer) && Instant::now() < until && !given_up() {
        answer = rx.recv_timeout(until.saturating_duration_since(Instant::now()).min(LOOK));
    }
    match answer {
        Ok(Ok(all)) if !all.is_empty() => Ok(all),
        Ok(Ok(_)) => Err(LookupCause::NoAddress),
        Ok(Err(e)) => Err(LookupCause::Resolver(e)),
        Err(_) => Err(LookupCause::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::api::status::PodIp;

    /// Returns the rules for probe hosts on a node with [`NODE`] as its only address.
    fn only(allowed: &[String]) -> ProbeHosts<'_> {
        ProbeHosts {
            allowed,
            is_node_address: &|a| a.to_string() == NODE,
        }
    }

    const NODE: &str = "192.168.7.2";

    #[test]
    fn a_pod_on_the_nodes_network_may_name_an_address_of_the_node() {
        let status = PodStatus {
            pod_ip: "192.168.7.1".into(),
            ..Default::default()
        };
        let target = resolve_target(NODE, &status, None, &only(&[])).unwrap();
        assert_eq!((target.host.as_str(), target.netns), (NODE, None));
        assert!(resolve_target("192.168.7.3", &status, None, &only(&[])).is_err());
        check(NODE, &[], None);
    }

    #[test]
    fn the_addresses_of_this_node_are_those_of_its_interfaces() {
        assert!(is_node_address(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        // Documentation addresses (RFC 5737) are on no interface.
        assert!(!is_node_address(Ipv4Addr::new(192, 0, 2, 77).into()));
    }

    #[track_caller]
    fn check(host: &str, allowed: &[&str], expected: Option<(&str, bool)>) {
        let status = PodStatus {
            pod_ip: "10.1.2.3".into(),
            pod_ips: vec![PodIp {
                ip: "fd00::7".into(),
            }],
            ..Default::default()
        };
        let allowed: Vec<_> = allowed.iter().map(|s| s.to_string()).collect();
        let got = resolve_target(
            host,
            &status,
            Some(&NetworkNamespace::from(PathBuf::from("/ns"))),
            &only(&allowed),
        );
        match expected {
            Some((host, inside)) => {
                let target = got.unwrap();
                assert_eq!(
                    (target.host.as_str(), target.netns.is_some()),
                    (host, inside)
                );
            }
            None => {
                let refused = got.unwrap_err().to_string();
                assert!(refused.contains("allowProbeHosts"), "{refused}");
            }
        }
    }

    #[test]
    fn loopback_is_in_the_pod_and_its_addresses_are_reached_from_the_node() {
        for (host, shown) in [
            ("", "10.1.2.3"),
            ("10.1.2.3", "10.1.2.3"),
            ("fd00::7", "fd00::7"),
        ] {
            check(host, &[], Some((shown, false)));
        }
        for (host, shown) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.9.9.9", "127.9.9.9"),
            ("::1", "::1"),
            ("[::1]", "::1"),
            ("localhost", "localhost"),
            ("LocalHost", "LocalHost"),
        ] {
            check(host, &[], Some((shown, true)));
        }
    }

    #[test]
    fn anything_else_is_refused_unless_allowed() {
        for host in [
            "169.254.169.254",
            "10.1.2.4",
            "example.com",
            "localhost.example.com",
            "0.0.0.0",
            "127.0.0.1@example.com",
            "2130706433",
        ] {
            check(host, &[], None);
            check(host, &["other"], None);
            check(host, &[host], Some((host, false)));
        }
        check("::ffff:169.254.169.254", &[], None);
    }

    #[test]
    fn a_pod_without_an_address_is_probed_at_loopback() {
        let target = resolve_target("", &PodStatus::default(), None, &only(&[])).unwrap();
        assert_eq!(target.addresses, [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    }
}
