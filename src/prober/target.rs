//! Where a network probe goes: its host, whether it may, and from which network namespace.
//!
//! Invariants: only the pod's own addresses and loopback may be probed, unless the configuration allows the host
//! (lessons 6: `host` is a way to make the node send requests anywhere). An allowed foreign host is probed from the
//! node's namespace, everything else from the pod's.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::api::PodStatus;
use crate::runtime::NetworkNamespace;
use crate::wire::dial::{Address, DialError, Dialer, Namespace};
use crate::wire::observer::Observer;

/// Most name lookups under way at once: a lookup that hangs keeps its helper thread.
const MAX_LOOKUPS: usize = 8;

/// A host and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As it stands in URLs and texts, IPv6 without brackets.
    pub host: String,
    /// Addresses to try, in order; empty for a name that is still to be looked up.
    pub addresses: Vec<IpAddr>,
    /// The network namespace to open sockets in; None is the daemon's own.
    pub netns: Option<NetworkNamespace>,
}

/// The target of a probe with that `host` field (empty: the pod's own address).
///
/// # Errors
/// A host that is neither of the pod nor loopback nor allowed: the text says how to allow it.
pub fn resolve_target(
    host: &str,
    status: &PodStatus,
    netns: Option<&NetworkNamespace>,
    allowed: &[String],
) -> Result<Target, String> {
    let own = |host: &str, addresses| Target {
        host: host.into(),
        addresses,
        netns: netns.cloned(),
    };
    if host.is_empty() {
        let ip = if status.pod_ip.is_empty() {
            "127.0.0.1"
        } else {
            &status.pod_ip
        };
        let address = ip
            .parse()
            .map_err(|_| format!("cannot probe the pod's address \"{ip}\": not an IP address"))?;
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
    let address: Option<IpAddr> = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok();
    let bare = address.map_or_else(|| host.to_owned(), |a| a.to_string());
    let is_own =
        |a: IpAddr| a.to_canonical().is_loopback() || pod_addresses(status).any(|ip| ip == a);
    if let Some(a) = address.filter(|a| is_own(*a)) {
        return Ok(own(&bare, vec![a]));
    }
    if allowed
        .iter()
        .any(|h| h.eq_ignore_ascii_case(host) || h.eq_ignore_ascii_case(&bare))
    {
        return Ok(Target {
            host: bare,
            addresses: address.into_iter().collect(),
            netns: None,
        });
    }
    Err(format!(
        "cannot probe host \"{host}\": it is neither the pod's address nor loopback; leave `host` out, or add it to allowProbeHosts in the configuration"
    ))
}

fn pod_addresses(status: &PodStatus) -> impl Iterator<Item = IpAddr> {
    let all = std::iter::once(&status.pod_ip).chain(status.pod_ips.iter().map(|p| &p.ip));
    all.filter_map(|ip| ip.parse().ok())
}

impl Target {
    /// `target 10.0.0.7 in network namespace /proc/7/ns/net`.
    pub(super) fn description(&self) -> String {
        let place = match &self.netns {
            Some(netns) => format!("network namespace {}", netns.path.display()),
            None => "the node's network namespace".into(),
        };
        format!("target {} in {place}", self.host)
    }

    /// Its addresses with that port.
    pub(super) fn at_port(&self, port: u16) -> impl Iterator<Item = Address<'_>> {
        self.addresses
            .iter()
            .map(move |ip| Address::Tcp(SocketAddr::new(*ip, port)))
    }

    /// Opens connections from its network namespace until `deadline`. The namespace is the one that was meant, also when
    /// the pid it is found by has gone to another process.
    ///
    /// # Errors
    /// The namespace cannot be opened.
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

    /// Itself, or with the addresses of its name where that is still to be looked up; bounded by `limit`.
    ///
    /// # Errors
    /// Go's text of a lookup that failed or took too long.
    pub fn looked_up(&self, limit: Duration) -> Result<Cow<'_, Self>, String> {
        if self.addresses.is_empty() {
            let addresses = look_up(&self.host, limit)?;
            return Ok(Cow::Owned(Self {
                addresses,
                ..self.clone()
            }));
        }
        Ok(Cow::Borrowed(self))
    }
}

#[inline(never)]
fn look_up(host: &str, limit: Duration) -> Result<Vec<IpAddr>, String> {
    static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
    struct Slot;
    impl Drop for Slot {
        fn drop(&mut self) {
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        }
    }
    if UNDER_WAY.fetch_add(1, Ordering::Relaxed) >= MAX_LOOKUPS {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        return Err(format!(
            "lookup {host}: {MAX_LOOKUPS} lookups are still waiting for the name server"
        ));
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
    helper.map_err(|e| format!("lookup {host}: cannot start a thread: {e}"))?;
    match rx.recv_timeout(limit) {
        Ok(Ok(all)) if !all.is_empty() => Ok(all),
        Ok(Ok(_)) => Err(format!("lookup {host}: no such host")),
        Ok(Err(e)) => Err(format!("lookup {host}: {e}")),
        Err(_) => Err(format!("lookup {host}: i/o timeout")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::api::status::PodIp;

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
            &allowed,
        );
        match expected {
            Some((host, inside)) => {
                let target = got.unwrap();
                assert_eq!(
                    (target.host.as_str(), target.netns.is_some()),
                    (host, inside)
                );
            }
            None => assert!(got.unwrap_err().contains("allowProbeHosts")),
        }
    }

    #[test]
    fn own_address_and_loopback_go_into_the_pod() {
        for (host, shown) in [
            ("", "10.1.2.3"),
            ("10.1.2.3", "10.1.2.3"),
            ("fd00::7", "fd00::7"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            check(host, &[], Some((shown, true)));
        }
        for (host, shown) in [
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
        let target = resolve_target("", &PodStatus::default(), None, &[]).unwrap();
        assert_eq!(target.addresses, [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    }
}
