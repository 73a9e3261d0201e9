//! Routes to the addresses of services.
//!
//! With the packet filter, the kernel searches a route before the filter sees a packet from a process of the node.
//! On a node without a default route such a process would reach no service. So a route leads to loopback, where no
//! process answers. The filter then sends the packet to an endpoint.
//!
//! With a process that listens on the addresses of services, a local route makes these addresses the node's own.
//! The addresses need not belong to any interface. A connection to an address without a listener is refused, as
//! everywhere on the node.

use std::io;

use super::rtnetlink::{Link, Route, Rtnetlink};
use crate::api::cidr::Cidr;

const LOOPBACK: &str = "lo";

/// The destination of a route to services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Loopback. From loopback, the packet filter sends the packets to endpoints.
    PacketFilter,
    /// Processes of this node that listen on the addresses.
    Listeners,
}

/// Adds the routes to `ranges` that are missing.
///
/// # Errors
/// Returns an error if the node already reaches a part of a range through another interface, or if the kernel
/// refuses the route.
pub fn ensure(ranges: &[Cidr], to: To) -> io::Result<()> {
    let mut kernel = Rtnetlink::open()?;
    let loopback = kernel.link(LOOPBACK)?;
    let loopback = loopback.ok_or_else(|| io::Error::other("there is no interface lo"))?;
    let routes = kernel.routes()?;
    for range in ranges {
        let ours = |r: &Route| r.destination == *range && r.interface == loopback.index;
        // A route to a single address on loopback itself is no conflict. An older podprobe may have left such a
        // route for IPv6.
        let is_own = |r: &Route| {
            r.interface == loopback.index && r.destination == Cidr::single(r.destination.network)
        };
        let is_foreign = |r: &&Route| is_inside(r, *range) && !ours(r) && !is_own(r);
        if let Some(other) = routes.iter().find(is_foreign) {
            return Err(overlap(*range, other, &kernel.links()?));
        }
        match to {
            To::Listeners => kernel.add_local_route(*range, loopback.index)?,
            To::PacketFilter if routes.iter().any(ours) => {}
            To::PacketFilter => kernel.add_route(*range, None, loopback.index)?,
        }
    }
    Ok(())
}

fn is_inside(route: &Route, range: Cidr) -> bool {
    route.destination.prefix >= range.prefix && route.destination.overlaps(range)
}

fn overlap(range: Cidr, other: &Route, links: &[Link]) -> io::Error {
    let link = links.iter().find(|l| l.index == other.interface);
    io::Error::other(format!(
        "the range of services {range} overlaps {}, which the node reaches through {}; give serviceCIDR another range in the \
         configuration, or in a cluster the network another one",
        other.destination,
        link.map_or("no interface", |l| &l.name)
    ))
}

/// Removes the routes to these ranges. Idempotent.
///
/// # Errors
/// Returns the kernel's error.
pub fn remove(ranges: &[Cidr], to: To) -> io::Result<()> {
    let mut kernel = Rtnetlink::open()?;
    let Some(loopback) = kernel.link(LOOPBACK)? else {
        return Ok(());
    };
    for range in ranges {
        match to {
            To::PacketFilter => kernel.remove_route(*range, loopback.index)?,
            To::Listeners => kernel.remove_local_route(*range, loopback.index)?,
        }
    }
    Ok(())
}
