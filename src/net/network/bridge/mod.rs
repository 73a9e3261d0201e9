//! The embedded network: a bridge on this node, and for each pod a veth pair between its sandbox and the
//! bridge.
//!
//! The address of a pod has the prefix length 32 or 128, without a range of neighbours. So a pod reaches even its
//! neighbours through the node, and all packets of pods pass the node's packet filter. Services need this path,
//! because the filter must see the answers of pods. A packet that a pod sends with the address of another pod is
//! dropped when it enters the bridge ([`packet_filter`]).
//!
//! The ports of the bridge are not isolated from one another. If `bridge-nf-call-iptables` is set on the node
//! (Docker sets this parameter), a packet with a translated destination goes directly from port to port.
//!
//! Invariants: `bridge.json` in the directory of the sandbox's record is written before the address is used. Only
//! these files say which addresses are in use. If such a file is lost while its sandbox lives, podprobe writes the
//! file again from the sandbox's own record before any pod gets an address. Podprobe never changes network objects
//! that other programs made on the node.

mod addresses;
mod attachment;
mod host_ports;
mod mend;
pub(super) mod packet_filter;
mod pair;
mod sysctl;
mod tables;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::pod_cidrs::PodCidrs;
use super::rtnetlink::{Link, Rtnetlink};
use super::{NetworkSettings, PodNetwork, SandboxNetwork};
use crate::api::cidr::Cidr;
use crate::base::locks::Locked;
use crate::base::sys::task::Process;
use crate::net::network::Bandwidth;

use attachment::{Attachment, Attachments, read_records};
use mend::Round;
use packet_filter::{Abilities, PacketFilter, Programmed};
use pair::{PORT_PREFIX, mac};

pub(super) use attachment::is_used;

/// The shortest prefix of a route that can conflict with the range of the pods. A route with a shorter prefix is a
/// part of a default route that a tunnel has split.
const LEAST_PREFIX: u8 = 8;
/// The hardware address of every bridge of podprobe. The address is fixed, because pods have a permanent neighbour
/// entry for it. This entry must stay valid when the bridge is made again.
const BRIDGE_MAC: [u8; 6] = [0x0a, 0x58, 0, 0, 0, 1];
/// The MTU of the bridge if the node has no default route, in bytes.
const DEFAULT_MTU: u32 = 1500;

/// The settings with which the bridge is made.
pub(super) struct BridgeSettings {
    /// Name of the bridge, at most 15 bytes.
    name: String,
    pod_cidrs: PodCidrs,
    records: PathBuf,
    /// Directory of the role `proxy`. The proxy itself listens on the ports of pods, so its sockets do not
    /// block a `hostPort`.
    proxy: PathBuf,
    filter: PacketFilter,
}

impl BridgeSettings {
    pub(super) fn of(settings: NetworkSettings, can: Abilities) -> Self {
        let name = match settings.id.strip_prefix("podprobe-") {
            Some(hash) => format!("pp-{hash}"),
            None => "podprobe0".into(),
        };
        Self {
            filter: PacketFilter::new(&settings.id, &name, can),
            name,
            pod_cidrs: settings.pod_cidrs,
            records: settings.records,
            proxy: settings.proxy,
        }
    }
}

#[derive(Default)]
struct State {
    attachments: Attachments,
    /// The addresses given out last, one for each address family.
    last: Vec<IpAddr>,
    /// The number of changes of `attachments`.
    version: u64,
    /// The index of the bridge whose kernel parameters are set already, and whether that bridge has IPv6. Each
    /// round of repairs checks the parameters again. A check for each new pod would be slow on a node with many
    /// pods, because the kernel keeps the parameters of all network namespaces in one list.
    parameters_set: Option<(u32, bool)>,
    /// Sandboxes that are being connected right now.
    connecting: BTreeSet<String>,
    /// The lines of the last round of repairs about parts that could not be repaired. These lines are in the log
    /// already.
    said: BTreeSet<String>,
}

/// The bridge of this node, with the sandboxes that are attached to it.
pub(super) struct Bridge {
    settings: BridgeSettings,
    state: Mutex<State>,
    /// The content that the packet filter has. A thread locks this field before `state`, and keeps this lock while
    /// the thread programs the kernel.
    programmed: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    filter: Programmed,
    /// The version of the attachments that the packet filter has.
    version: u64,
    /// The number of times that `program` has programmed the packet filter.
    #[cfg(test)]
    times: u32,
}

impl Bridge {
    /// Makes the bridge's state. Reads the attached sandboxes from their records.
    pub(super) fn new(settings: BridgeSettings) -> Self {
        let attachments = read_records(&settings.records);
        let ranges = settings.pod_cidrs.get();
        let last = ranges.iter().filter_map(|range| {
            let all = attachments.values().flat_map(|a| &a.addresses);
            all.filter(|ip| range.contains(**ip)).max().copied()
        });
        let state = State {
            last: last.collect(),
            attachments,
            ..State::default()
        };
        Self {
            settings,
            state: Mutex::new(state),
            programmed: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Gives the sandbox its addresses, and writes the record of the attachment before anybody uses the addresses.
    fn attach(&self, sandbox: &SandboxNetwork<'_>, holder: Process) -> io::Result<Arc<Attachment>> {
        let mut state = self.lock();
        let mut addresses = Vec::new();
        let ranges = self.settings.pod_cidrs.get();
        for range in &*ranges {
            let last = state.last.iter().find(|ip| range.contains(**ip)).copied();
            let in_use = |ip| {
                state
                    .attachments
                    .values()
                    .any(|a| a.addresses.contains(&ip))
            };
            addresses.push(addresses::next(*range, last, in_use).ok_or_else(|| {
                io::Error::other(format!(
                    "podCIDR {range} has no address left: {} pods have one; give podCIDR a larger range",
                    addresses::capacity(*range)
                ))
            })?);
        }
        let attachment = Attachment {
            interface: interface_of(sandbox.id),
            holder,
            mac: mac(addresses[0]),
            gateways: ranges.iter().map(|r| addresses::gateway(*r)).collect(),
            ports: sandbox.ports.to_vec(),
            addresses: addresses.clone(),
        };
        attachment.write(sandbox.record)?;
        state.last = addresses;
        let (id, attachment) = (sandbox.id.to_owned(), Arc::new(attachment));
        state.connecting.insert(id.clone());
        state.attachments.insert(id, attachment.clone());
        state.version += 1;
        Ok(attachment)
    }

    fn gateways(&self) -> Vec<Cidr> {
        let ranges = self.settings.pod_cidrs.get();
        ranges.iter().map(|r| addresses::gateway(*r)).collect()
    }

    /// Makes the bridge, or adds the parts of an existing bridge that are missing. Returns the bridge's link. The
    /// caller holds the lock of the state.
    fn ensure_bridge(&self, kernel: &mut Rtnetlink, state: &mut State) -> io::Result<Link> {
        let name = &self.settings.name;
        let there = kernel.link(name)?;
        let have = there.as_ref().map(|link| kernel.addresses(link.index));
        let have = have.transpose()?.unwrap_or_default();
        self.refuse_overlaps(kernel, there.as_ref(), &have)?;
        if there.is_none() {
            let mtu = mtu(kernel)?;
            kernel
                .add_bridge(name, BRIDGE_MAC, mtu)
                .map_err(|e| cause(&format!("make the bridge {name}"), &e))?;
        }
        let link = kernel.link(name)?.filter(|link| link.is_bridge);
        let link = link.ok_or_else(|| {
            io::Error::other(format!(
                "the interface {name} of the node is no bridge; rename it"
            ))
        })?;
        let parameters = Some((link.index, self.has_v6(state)));
        if state.parameters_set != parameters {
            sysctl::of_the_bridge(name, self.has_v6(state));
            state.parameters_set = parameters;
        }
        let of_pods = state.attachments.values().flat_map(|a| a.gateways.clone());
        let wanted: BTreeSet<Cidr> = self.gateways().into_iter().chain(of_pods).collect();
        for gateway in wanted.iter().filter(|g| !have.contains(g)) {
            let what = format!("give the bridge {name} the address {gateway}");
            let added = kernel.add_address(link.index, *gateway);
            added.map_err(|e| cause(&what, &e))?;
        }
        // Removes the addresses of the old range of a changed podCIDR, once no pod uses the old range any more.
        let is_old = |a: &&Cidr| !wanted.contains(a) && !is_link_local(**a);
        for old in have.iter().filter(is_old) {
            kernel.remove_address(link.index, *old)?;
        }
        if !link.up {
            kernel.set_up(link.index)?;
        }
        Ok(link)
    }

    fn has_v6(&self, state: &State) -> bool {
        let of_pods = state.attachments.values().flat_map(|a| &a.addresses);
        self.gateways().iter().any(|g| g.network.is_ipv6()) || of_pods.clone().any(IpAddr::is_ipv6)
    }

    /// Returns an error if the node already reaches a range of `podCIDR` through another interface. The bridge
    /// would take the packets of those routes. Only ranges in which the bridge has no address yet are checked.
    fn refuse_overlaps(
        &self,
        kernel: &mut Rtnetlink,
        bridge: Option<&Link>,
        have: &[Cidr],
    ) -> io::Result<()> {
        let is_new = |r: &&Cidr| !have.contains(&addresses::gateway(**r));
        let ranges = self.settings.pod_cidrs.get();
        let new: Vec<Cidr> = ranges.iter().filter(is_new).copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        let routes = kernel.routes()?;
        let others = routes.iter().filter(|r| {
            r.destination.prefix >= LEAST_PREFIX && bridge.is_none_or(|b| b.index != r.interface)
        });
        for (route, range) in others.flat_map(|r| new.iter().map(move |range| (r, range))) {
            if !route.destination.overlaps(*range) {
                continue;
            }
            let links = kernel.links()?;
            let link = links.iter().find(|l| l.index == route.interface);
            return Err(io::Error::other(format!(
                "podCIDR {range} overlaps {}, which the node reaches through {}; give podCIDR another range in the configuration",
                route.destination,
                link.map_or("no interface", |l| &l.name)
            )));
        }
        Ok(())
    }

    fn connect_attached(&self, attachment: &Attachment) -> io::Result<()> {
        let mut kernel = Rtnetlink::open()?;
        let bridge = self.ensure_bridge(&mut kernel, &mut self.lock())?;
        // The packet filter comes first, so the pod cannot send anything before the filter checks its packets.
        self.program()?;
        pair::connect(&mut kernel, &bridge, attachment)
    }

    /// Makes the lost record of a sandbox again, from its known addresses and the settings of its pod. After this
    /// call these addresses are in use.
    fn attach_again(
        &self,
        sandbox: &SandboxNetwork<'_>,
        holder: Process,
        addresses: &[IpAddr],
    ) -> io::Result<()> {
        let mut state = self.lock();
        let ranges = self.settings.pod_cidrs.get();
        for ip in addresses {
            let why = if !ranges.iter().any(|range| range.contains(*ip)) {
                "is not in podCIDR any more"
            } else if state.attachments.values().any(|a| a.addresses.contains(ip)) {
                "is another pod's now"
            } else {
                continue;
            };
            return Err(io::Error::other(format!("its address {ip} {why}")));
        }
        let Some(primary) = addresses.first() else {
            return Err(io::Error::other("it has no address"));
        };
        let of_pod = |range: &&Cidr| addresses.iter().any(|ip| range.contains(*ip));
        let gateways = ranges.iter().filter(of_pod);
        let attachment = Attachment {
            interface: interface_of(sandbox.id),
            holder,
            mac: mac(*primary),
            gateways: gateways.map(|r| addresses::gateway(*r)).collect(),
            ports: sandbox.ports.to_vec(),
            addresses: addresses.to_vec(),
        };
        attachment.write(sandbox.record)?;
        let id = sandbox.id.to_owned();
        state.attachments.insert(id, attachment.into());
        state.version += 1;
        Ok(())
    }

    /// Programs the packet filter for all sandboxes, or waits until another thread has programmed it. Many
    /// sandboxes may come or go at once, so threads wait while a transaction runs. The next transaction serves all
    /// waiting threads.
    fn program(&self) -> io::Result<()> {
        let wanted = self.lock().version;
        let mut told = self.programmed.locked();
        if told.version >= wanted && !told.filter.is_new() {
            return Ok(());
        }
        let (attachments, version) = {
            let state = self.lock();
            (state.attachments.clone(), state.version)
        };
        #[cfg(test)]
        {
            told.times += 1;
        }
        let programmed = self.settings.filter.program(attachments, &mut told.filter);
        programmed.map_err(io::Error::other)?;
        told.version = version;
        Ok(())
    }

    /// Removes the sandbox from the bridge. If it was the last sandbox, removes the bridge, too.
    fn detach(&self, id: &str) -> io::Result<()> {
        let mut state = self.lock();
        let Some(attachment) = state.attachments.get(id) else {
            return Ok(());
        };
        let mut kernel = Rtnetlink::open()?;
        kernel.remove_link(&attachment.interface)?;
        if let Some(bridge) = kernel.link(&self.settings.name)? {
            for ip in &attachment.addresses {
                kernel.forget_neighbour(*ip, bridge.index)?;
            }
        }
        state.attachments.remove(id);
        state.version += 1;
        if state.attachments.is_empty() {
            kernel.remove_link(&self.settings.name)?;
        }
        drop(state);
        self.program()
    }
}

impl PodNetwork for Bridge {
    fn set_up(&self, sandbox: &SandboxNetwork<'_>) -> io::Result<Vec<IpAddr>> {
        let holder = sandbox.holder;
        let holder = holder.ok_or_else(|| io::Error::other("the sandbox has ended"))?;
        let proxy = &self.settings.proxy;
        let mut ports = sandbox.ports.iter();
        ports.try_for_each(|port| host_ports::refuse_taken(port, proxy))?;
        if sandbox.bandwidth != Bandwidth::default() {
            log::warn!(
                "pod {}_{}: the bridge of podprobe limits no bandwidth; the CNI plugin bandwidth does",
                sandbox.name,
                sandbox.namespace
            );
        }
        let attachment = self.attach(sandbox, holder)?;
        let connected = self.connect_attached(&attachment);
        self.lock().connecting.remove(sandbox.id);
        connected?;
        Ok(attachment.addresses.clone())
    }

    fn tear_down(&self, sandbox: &SandboxNetwork<'_>) -> io::Result<()> {
        self.detach(sandbox.id)
    }

    fn forget(&self, id: &str) -> io::Result<()> {
        self.detach(id)
    }

    fn resume(
        &self,
        sandbox: &SandboxNetwork<'_>,
        addresses: Option<&[IpAddr]>,
    ) -> io::Result<Option<Vec<IpAddr>>> {
        let Some(holder) = sandbox.holder else {
            return Ok(addresses.map(<[IpAddr]>::to_vec));
        };
        let known = self.lock().attachments.get(sandbox.id).cloned();
        let found = match (known, addresses) {
            (Some(attachment), Some(_)) => return Ok(Some(attachment.addresses.clone())),
            // Either the sandbox was never fully connected, or its record was lost later. These two cases look the
            // same, so the interface is made again.
            (Some(attachment), None) => {
                Rtnetlink::open()?.remove_link(&attachment.interface)?;
                self.connect_attached(&attachment)?;
                return Ok(Some(attachment.addresses.clone()));
            }
            (None, Some(addresses)) => match self.attach_again(sandbox, holder, addresses) {
                Ok(()) => return Ok(Some(addresses.to_vec())),
                Err(e) => Err(e),
            },
            (None, None) => Ok(None),
        };
        // From now on another pod may get this sandbox's address, so its interface is removed.
        Rtnetlink::open()?.remove_link(&interface_of(sandbox.id))?;
        found
    }

    fn restore(&self, id: &str, record: &Path) -> io::Result<()> {
        match self.lock().attachments.get(id) {
            Some(attachment) => attachment.write(record),
            None => Ok(()),
        }
    }

    fn mend(&self) -> Vec<String> {
        let mut round = Round::default();
        let mut told = self.programmed.locked();
        let mut state = self.lock();
        state.parameters_set = None;
        if let Err(e) = self.mend_locked(&mut told, &mut state, &mut round) {
            let failed = format!("cannot mend the network of pods: {e}");
            round.failed.insert(failed);
        }
        // A repeated failure is logged once. Each repair is logged, because it is a new event.
        let mut said = round.mended;
        said.extend(round.failed.difference(&state.said).cloned());
        state.said = round.failed;
        said
    }
}

/// Returns the interface name of the node's end of a sandbox's veth pair.
fn interface_of(sandbox: &str) -> String {
    format!("{PORT_PREFIX}{}", &sandbox[..12.min(sandbox.len())])
}

fn is_link_local(address: Cidr) -> bool {
    matches!(address.network, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Returns the MTU of the interface with the default route, clamped to 1280 to 65535. Without a default
/// route, returns [`DEFAULT_MTU`].
fn mtu(kernel: &mut Rtnetlink) -> io::Result<u32> {
    let routes = kernel.routes()?;
    let default = routes
        .iter()
        .find(|r| r.destination.prefix == 0 && r.interface != 0);
    let Some(default) = default else {
        return Ok(DEFAULT_MTU);
    };
    let links = kernel.links()?;
    let link = links.iter().find(|l| l.index == default.interface);
    Ok(link.map_or(DEFAULT_MTU, |l| l.mtu.clamp(1280, 65535)))
}

fn cause(what: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("cannot {what}: {e}"))
}

#[cfg(test)]
mod tests;
