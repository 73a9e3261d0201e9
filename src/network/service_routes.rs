//! Routes to the addresses of services.
//!
//! The kernel looks for a route before the packet filter sees what the node's own processes send: without a default route
//! they would reach no service. The route leads to loopback, where nothing answers; the packet filter sends the packet
//! elsewhere.

use std::io;

use super::rtnetlink::Rtnetlink;
use crate::api::cidr::Cidr;

const LOOPBACK: &str = "lo";

/// Adds those that are missing.
///
/// # Errors
/// The node reaches a part of a range elsewhere, or the kernel refuses the route.
pub fn ensure(ranges: &[Cidr]) -> io::Result<()> {
    let mut kernel = Rtnetlink::open()?;
    let links = kernel.links()?;
    let loopback = links.iter().find(|l| l.name == LOOPBACK);
    let loopback = loopback.ok_or_else(|| io::Error::other("there is no interface lo"))?;
    let routes = kernel.routes()?;
    for range in ranges {
        let ours =
            |r: &super::rtnetlink::Route| r.destination == *range && r.interface == loopback.index;
        let mut others = routes
            .iter()
            .filter(|r| r.destination.prefix >= range.prefix && !ours(r));
        if let Some(other) = others.find(|r| r.destination.overlaps(*range)) {
            let link = links.iter().find(|l| l.index == other.interface);
            return Err(io::Error::other(format!(
                "serviceCIDR {range} overlaps {}, which the node reaches through {}; give serviceCIDR another range in the configuration",
                other.destination,
                link.map_or("no interface", |l| &l.name)
            )));
        }
        if !routes.iter().any(ours) {
            kernel.add_route(*range, None, loopback.index)?;
        }
    }
    Ok(())
}

/// Removes them. Idempotent.
///
/// # Errors
/// The kernel refuses it.
pub fn remove(ranges: &[Cidr]) -> io::Result<()> {
    let mut kernel = Rtnetlink::open()?;
    let Some(loopback) = kernel.link(LOOPBACK)? else {
        return Ok(());
    };
    for range in ranges {
        kernel.remove_route(*range, loopback.index)?;
    }
    Ok(())
}
