//! Finds out whether a process of the node already listens on a port that a pod asks for (`hostPort`). If the pod
//! got this port, that process would lose its clients.
//!
//! Invariants: this check binds no port, because the role `proxy` may be about to bind the port. Sockets of the
//! proxy do not count as listening. The proxy serves the ports of pods on loopback, or on all addresses if the
//! packet filter cannot serve the ports. Where the proxy sends its clients follows from the table of services, not
//! from this file.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::cause;
use crate::api::service::Protocol;
use crate::base::sys::listening::{self, Owner, Waiting};
use crate::net::network::PortMapping;

/// The number of times that podprobe looks for the process of a socket that seems to have no process. While a
/// process is closing its socket, the socket may seem to have no process.
const LOOKS: u32 = 20;
/// The time between two looks for the process of a socket.
const BETWEEN: Duration = Duration::from_millis(5);
/// An address of loopback that no program uses.
const SPARE: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 254);

/// Fails if a process uses the port, unless this process is the role `proxy` of the directory `proxy`. Also fails
/// if the node does not have the address in `hostIP`.
pub(super) fn refuse_taken(port: &PortMapping, proxy: &Path) -> io::Result<()> {
    let ip = port.host_ip.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let wanted = format!("hostPort {}/{} on {ip}", port.host_port, port.protocol);
    UdpSocket::bind((ip, 0)).map_err(|e| match e.kind() {
        io::ErrorKind::AddrNotAvailable => io::Error::new(
            e.kind(),
            format!("{wanted}: the node does not have this address; leave hostIP out for all of its addresses"),
        ),
        _ => cause(&format!("use {wanted}"), &e),
    })?;
    let mut by = None;
    for look in 0..LOOKS {
        if look > 0 {
            sleep(BETWEEN);
        }
        by = match holder(port, ip, proxy) {
            None => return Ok(()),
            Some(Some(owner)) => Some(owner),
            // The socket seems to have no process, so podprobe looks again. A socket of the kernel itself never
            // has a process.
            Some(None) => continue,
        };
        break;
    }
    let by = match by {
        Some(Owner { pid, program, .. }) => format!("process {pid} ({program})"),
        None => "the kernel, or a process that podprobe may not see".to_owned(),
    };
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("{wanted} is in use by {by}; choose another hostPort, or end that process"),
    ))
}

/// Finds the process that uses the port. `None` means that no process but the proxy uses it. `Some(None)`
/// means that the port is used, but its process cannot be found.
fn holder(port: &PortMapping, ip: IpAddr, proxy: &Path) -> Option<Option<Owner>> {
    let sockets = match port.protocol {
        Protocol::Tcp => listening::tcp(),
        Protocol::Udp => listening::udp(),
    };
    let has_it = |w: &Waiting| w.at.port() == port.host_port && shares(w.at.ip(), ip, port);
    let owners = sockets
        .into_iter()
        .filter(has_it)
        .map(|w| listening::owner(w.inode));
    let mut unknown = None;
    for owner in owners {
        match owner {
            Some(owner) if is_proxy(&owner, proxy) => {}
            Some(owner) => return Some(Some(owner)),
            None => unknown = Some(None),
        }
    }
    unknown
}

/// Tells whether a socket that is bound to `at` receives packets to `ip`. An unspecified address stands for
/// all addresses of its family.
fn shares(at: IpAddr, ip: IpAddr, port: &PortMapping) -> bool {
    if at.is_ipv4() == ip.is_ipv4() {
        return at == ip || at.is_unspecified() || ip.is_unspecified();
    }
    // A socket at :: may receive IPv4 packets, too. The kernel's table does not show whether the socket does, so
    // podprobe tries to bind the port.
    at.is_ipv6() && at.is_unspecified() && is_taken(port, SPARE)
}

fn is_taken(port: &PortMapping, ip: Ipv4Addr) -> bool {
    let at = SocketAddr::from((ip, port.host_port));
    let bound = match port.protocol {
        Protocol::Tcp => TcpListener::bind(at).map(drop),
        Protocol::Udp => UdpSocket::bind(at).map(drop),
    };
    bound.is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse)
}

/// Tells whether the owner is the process `podprobe proxy DIR`.
fn is_proxy(owner: &Owner, dir: &Path) -> bool {
    let arguments: Vec<&[u8]> = owner.arguments.iter().map(Vec::as_slice).collect();
    matches!(arguments[..], [_, b"proxy", at, ..] if at == dir.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV6;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicU16, Ordering};

    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn6, bind, setsockopt, socket, sockopt,
    };

    use super::*;
    use crate::own_network::in_own_network;

    fn port(host_ip: Option<&str>, protocol: Protocol, host_port: u16) -> PortMapping {
        PortMapping {
            host_ip: host_ip.map(|ip| ip.parse().unwrap()),
            host_port,
            container_port: 80,
            protocol,
        }
    }

    /// The next port to use. Each socket of a test gets a new port, because a closed socket may still be open
    /// in a child process that another test is just starting.
    static NEXT_PORT: AtomicU16 = AtomicU16::new(8080);

    #[track_caller]
    fn check(listens: &str, host_ip: Option<&str>, refused: bool) {
        let listens: IpAddr = listens.parse().unwrap();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let at = SocketAddr::new(listens, NEXT_PORT.fetch_add(1, Ordering::Relaxed));
            let _tcp = (protocol == Protocol::Tcp).then(|| TcpListener::bind(at).unwrap());
            let _udp = (protocol == Protocol::Udp).then(|| UdpSocket::bind(at).unwrap());
            let done = refuse_taken(&port(host_ip, protocol, at.port()), Path::new("/x"));
            let pid = std::process::id();
            match done {
                Ok(()) => assert!(!refused, "{listens} {host_ip:?} {protocol}"),
                Err(e) => assert!(
                    refused
                        && e.to_string()
                            .contains(&format!(" is in use by process {pid} (")),
                    "{listens} {host_ip:?} {protocol}: {e}"
                ),
            }
        }
    }

    #[test]
    fn a_process_that_would_lose_its_clients_is_named() {
        in_own_network(|| {
            crate::base::sys::socket::loopback_up().unwrap();
            check("0.0.0.0", None, true);
            check("127.0.0.1", None, true);
            check("0.0.0.0", Some("127.0.0.1"), true);
            check("127.0.0.1", Some("127.0.0.2"), false);
            check("::", None, true);
            check("::1", None, false);
            check("::1", Some("::"), true);
        });
    }

    #[test]
    fn a_process_that_takes_ipv6_alone_loses_no_client_of_ipv4() {
        in_own_network(|| {
            let family = AddressFamily::Inet6;
            let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
            setsockopt(&socket, sockopt::Ipv6V6Only, &true).unwrap();
            let at: SocketAddrV6 = "[::]:8080".parse().unwrap();
            bind(socket.as_raw_fd(), &SockaddrIn6::from(at)).unwrap();
            let wanted = port(None, Protocol::Udp, 8080);
            refuse_taken(&wanted, Path::new("/x")).unwrap();
        });
    }

    #[test]
    fn an_address_that_the_node_does_not_have_is_said() {
        in_own_network(|| {
            crate::base::sys::socket::loopback_up().unwrap();
            let wanted = port(Some("192.0.2.77"), Protocol::Tcp, 80);
            let failed = refuse_taken(&wanted, Path::new("/x")).unwrap_err();
            let text = "hostPort 80/TCP on 192.0.2.77: the node does not have this address; leave hostIP out for all of its \
                addresses";
            assert_eq!(failed.to_string(), text);
        });
    }

    #[test]
    fn the_proxy_of_this_daemon_is_known_by_its_directory() {
        let owner = |words: &[&str]| Owner {
            pid: 1,
            program: "podprobe".into(),
            arguments: words.iter().map(|w| w.as_bytes().to_vec()).collect(),
        };
        let dir = Path::new("/run/podprobe/proxy");
        let own = ["podprobe", "proxy", "/run/podprobe/proxy", ""];
        assert!(is_proxy(&owner(&own), dir));
        for other in [
            &["podprobe", "proxy", "/tmp/other/run/proxy"][..],
            &["podprobe", "run", "/run/podprobe/proxy"],
            &["nginx"],
            &[],
        ] {
            assert!(!is_proxy(&owner(other), dir), "{other:?}");
        }
    }
}
