//! The veth pair of a pod. One end is a port of the bridge, and the other end is the pod's interface.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use super::attachment::Attachment;
use super::{BRIDGE_MAC, cause, sysctl};
use crate::api::cidr::Cidr;
use crate::base::sys::task::{self, Process};
use crate::net::network::rtnetlink::{Link, Rtnetlink, Veth, inside};

/// The name of the interface inside a pod. Every other network of pods uses this name, too.
pub(super) const POD_INTERFACE: &str = "eth0";
/// The prefix of the interface names at the node's ends of the pairs.
pub(super) const PORT_PREFIX: &str = "ppv";

/// Makes the veth pair of a sandbox and configures both ends. Parts that exist already are kept.
pub(super) fn connect(
    kernel: &mut Rtnetlink,
    bridge: &Link,
    attachment: &Attachment,
) -> io::Result<()> {
    let namespace = open_namespace(attachment.holder)?;
    kernel
        .add_veth(&Veth {
            name: &attachment.interface,
            bridge: bridge.index,
            peer: POD_INTERFACE,
            peer_mac: attachment.mac,
            peer_namespace: namespace.as_fd(),
            mtu: bridge.mtu,
        })
        .map_err(|e| cause(&format!("make the interface {}", attachment.interface), &e))?;
    let port = kernel.link(&attachment.interface)?;
    let port = port.ok_or_else(|| io::Error::other("the new interface is gone"))?;
    fix_port(kernel, bridge, &port, attachment)?;
    inside(&namespace, || configure(attachment))
        .map_err(|e| cause(&format!("set {POD_INTERFACE} of the pod up"), &e))
}

/// Ties the bridge port to its pod. Frames from any other hardware address are refused at this port. Packets
/// for the pod's addresses are sent to this port only.
pub(super) fn fix_port(
    kernel: &mut Rtnetlink,
    bridge: &Link,
    port: &Link,
    attachment: &Attachment,
) -> io::Result<()> {
    sysctl::of_a_port(&port.name);
    kernel.set_port(port.index)?;
    kernel.fix_port_of(attachment.mac, port.index)?;
    for ip in &attachment.addresses {
        kernel.fix_neighbour(*ip, attachment.mac, bridge.index)?;
    }
    Ok(())
}

/// Tells whether an interface is the node's end of a veth pair at this bridge. Returns false if there is no
/// bridge. Without the bridge nobody can say to which installation the interface belongs.
pub(super) fn is_port(link: &Link, bridge: Option<&Link>) -> bool {
    let at_bridge = link.master.is_some() && link.master == bridge.map(|b| b.index);
    link.is_veth && at_bridge && link.name.starts_with(PORT_PREFIX)
}

/// Configures the pod's end of the pair and sets this interface up. The calling thread is in the pod's network
/// namespace.
fn configure(attachment: &Attachment) -> io::Result<()> {
    let mut kernel = Rtnetlink::open()?;
    let link = kernel.link(POD_INTERFACE)?;
    let index = link
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?
        .index;
    let has_v6 = attachment.addresses.iter().any(IpAddr::is_ipv6);
    sysctl::of_a_pod(POD_INTERFACE, has_v6);
    for address in &attachment.addresses {
        kernel.add_address(index, Cidr::single(*address))?;
    }
    kernel.set_up(index)?;
    for gateway in attachment.gateways.iter().map(|g| g.network) {
        kernel.fix_neighbour(gateway, BRIDGE_MAC, index)?;
        kernel.add_route(Cidr::single(gateway), None, index)?;
        kernel.add_route(everything(gateway), Some(gateway), index)?;
    }
    Ok(())
}

/// Returns the destination of a default route for the family of this address.
fn everything(family: IpAddr) -> Cidr {
    let network = match family {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0; 16].into(),
    };
    Cidr { network, prefix: 0 }
}

/// Opens the network namespace of the holder. Fails if the process id belongs to another process by now.
pub(super) fn open_namespace(holder: Process) -> io::Result<File> {
    let file = File::open(format!("/proc/{}/ns/net", holder.pid))?;
    match task::look(holder.pid)? == Some(holder.start_time) {
        true => Ok(file),
        false => Err(io::Error::other("the sandbox has ended")),
    }
}

/// Derives the hardware address of a pod from the pod's IP address, as the CNI plugins do. So when another pod
/// gets the same IP address, the neighbours still remember the right hardware address.
pub(super) fn mac(ip: IpAddr) -> [u8; 6] {
    let tail = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => ip.octets()[12..].try_into().unwrap_or_default(),
    };
    [0x0a, 0x58, tail[0], tail[1], tail[2], tail[3]]
}
