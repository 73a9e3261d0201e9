//! The network of a pod: its addresses, and the files in its containers that name the addresses.
//!
//! Invariants: each kind of network is one implementor of [`PodNetwork`], and no code outside this module depends
//! on the kind. The data about a sandbox's network is in the directory of the sandbox's record. So the data and
//! the record agree after a crash. A sandbox keeps the network with which it was made.

mod bridge;
pub mod cni;
pub mod etc_files;
mod kernel;
pub mod pod_cidrs;
pub mod resolv_conf;
pub(crate) mod rtnetlink;
mod rtnetlink_messages;
pub mod service_routes;
mod wanted;
pub mod watch;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::locks::Locked;
use crate::base::sys::task::Process;

use bridge::{Bridge, BridgeSettings};
use cni::{CniNetwork, CniSettings};
pub use kernel::{Missing, Part, lacks};
use pod_cidrs::PodCidrs;
pub use wanted::{Bandwidth, PortMapping};

/// A sandbox that a network connects or releases.
#[derive(Clone, Copy, Debug)]
pub struct SandboxNetwork<'a> {
    /// The sandbox's id, 64 hex digits.
    pub id: &'a str,
    /// Name of the pod.
    pub name: &'a str,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// UID of the pod.
    pub uid: &'a str,
    /// The process that holds the sandbox's network namespace; None if the process has ended.
    pub holder: Option<Process>,
    /// Directory of the sandbox's record. A kind of network may keep a file in this directory. Each kind uses
    /// another name for its file.
    pub record: &'a Path,
    /// Ports of the node that lead to the sandbox.
    pub ports: &'a [PortMapping],
    /// The limits from the annotations `kubernetes.io/ingress-bandwidth` and `kubernetes.io/egress-bandwidth`.
    pub bandwidth: Bandwidth,
}

/// A kind of network that connects pods. The runtime calls the methods from several threads. Each call blocks
/// until the work is done.
pub trait PodNetwork: Send + Sync {
    /// Connects a sandbox that has a new network namespace, and returns its addresses, primary first. After a
    /// failed call, [`PodNetwork::tear_down`] undoes what the call has begun.
    ///
    /// # Errors
    /// Returns an error if the sandbox cannot be connected. The caller removes the sandbox, and the user sees
    /// the text.
    fn set_up(&self, sandbox: &SandboxNetwork<'_>) -> io::Result<Vec<IpAddr>>;

    /// Undoes everything that `set_up` did. Idempotent. The sandbox's holder may have ended already.
    ///
    /// # Errors
    /// Returns an error if the network cannot be released. The caller tries again with the next removal.
    fn tear_down(&self, sandbox: &SandboxNetwork<'_>) -> io::Result<()>;

    /// Undoes what `set_up` did for a sandbox whose record is lost, so that only its id is known. Idempotent.
    ///
    /// # Errors
    /// Returns an error if the network cannot be released. It is tried again by the next daemon.
    fn forget(&self, id: &str) -> io::Result<()> {
        let _ = id;
        Ok(())
    }

    /// Takes over a living sandbox of an earlier daemon, before any pod is given an address. The network's own
    /// data about the sandbox may be lost or damaged. `addresses` are the addresses in the sandbox's record; None
    /// if the record has none. Returns the sandbox's addresses, or None if the sandbox has no network any more and
    /// must be made anew.
    ///
    /// # Errors
    /// Returns an error if the sandbox has no network now.
    fn resume(
        &self,
        sandbox: &SandboxNetwork<'_>,
        addresses: Option<&[IpAddr]>,
    ) -> io::Result<Option<Vec<IpAddr>>> {
        let _ = sandbox;
        Ok(addresses.map(<[IpAddr]>::to_vec))
    }

    /// Writes the network's file in the directory of the sandbox's record again, after somebody else has
    /// removed it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    fn restore(&self, id: &str, record: &Path) -> io::Result<()> {
        let _ = (id, record);
        Ok(())
    }

    /// Checks that everything that was set up is still there, and repairs the missing or changed parts. Returns a
    /// sentence for each part that was repaired or cannot be repaired.
    fn mend(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The kind of network of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NetworkKind {
    /// The node's own network; the pod has `hostNetwork: true`.
    Host,
    /// No network except a loopback interface, which the sandbox itself sets up.
    #[default]
    None,
    /// The bridge of this node.
    Bridge,
    /// The network that CNI plugins make.
    Cni,
}

/// The value of `network` in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkChoice {
    /// CNI if it is configured. Otherwise the bridge if the kernel supports it. Otherwise none.
    #[default]
    Auto,
    /// CNI. Pods wait while no CNI network is configured.
    Cni,
    /// The bridge. Pods wait if the kernel does not support it.
    Bridge,
    /// No network except loopback.
    None,
}

/// An error for a word that names no choice of a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no network; it is auto, bridge, cni or none")]
pub struct NetworkChoiceError(pub String);

impl FromStr for NetworkChoice {
    type Err = NetworkChoiceError;

    fn from_str(s: &str) -> Result<Self, NetworkChoiceError> {
        match s {
            "auto" => Ok(Self::Auto),
            "cni" => Ok(Self::Cni),
            "bridge" => Ok(Self::Bridge),
            "none" => Ok(Self::None),
            _ => Err(NetworkChoiceError(s.to_owned())),
        }
    }
}

/// The settings with which the networks of a node are made.
#[derive(Clone, Debug)]
pub struct NetworkSettings {
    /// The value of `network` in the configuration.
    pub choice: NetworkChoice,
    /// The address of pods that use the node's network.
    pub node_ip: IpAddr,
    /// The ranges of pod addresses.
    pub pod_cidrs: PodCidrs,
    /// The id of this installation ([`crate::base::paths::Layout::id`]). This id is part of the names of objects
    /// that the whole node shares, such as tables.
    pub id: String,
    /// Directory of what counts until the node is restarted.
    pub run: PathBuf,
    /// Directory of the sandboxes' records.
    pub records: PathBuf,
    /// Directory of the role `proxy`, the process that serves host ports.
    pub proxy: PathBuf,
    /// The directories of CNI.
    pub cni: CniSettings,
}

/// A network that connects nothing. Only processes in the pod's network namespace reach the pod: its own
/// containers and its probes.
struct Unconnected {
    address: IpAddr,
}

impl PodNetwork for Unconnected {
    fn set_up(&self, _: &SandboxNetwork<'_>) -> io::Result<Vec<IpAddr>> {
        Ok(vec![self.address])
    }
    fn tear_down(&self, _: &SandboxNetwork<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// The CNI network, which connects no new sandbox before the networks of earlier sandboxes are released.
/// Otherwise the plugins could take a new sandbox for an old one.
struct Collected {
    network: CniNetwork,
    is_done: Mutex<bool>,
    done: Condvar,
}

impl Collected {
    fn new(settings: CniSettings) -> Self {
        Self {
            network: CniNetwork::new(settings),
            is_done: Mutex::default(),
            done: Condvar::new(),
        }
    }

    fn done(&self) {
        *self.lock() = true;
        self.done.notify_all();
    }

    /// Waits until the networks of earlier sandboxes are released. Calls `say` once if this wait takes longer than
    /// `slow`.
    fn wait(&self, slow: Duration, say: impl FnOnce()) {
        let waits = |is_done: &mut bool| !*is_done;
        let waited = self.done.wait_timeout_while(self.lock(), slow, waits);
        let (is_done, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(is_done);
        if waited.timed_out() {
            say();
            let waited = self.done.wait_while(self.lock(), waits);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_done.locked()
    }
}

/// A guard that ends the wait for the release when it is dropped.
struct Done<'a>(&'a Collected);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}

impl PodNetwork for Collected {
    fn set_up(&self, sandbox: &SandboxNetwork<'_>) -> io::Result<Vec<IpAddr>> {
        self.wait(cni::SLOW, || {
            log::warn!(
                "pod {}/{} waits for its network: what earlier sandboxes left is released first",
                sandbox.namespace,
                sandbox.name
            );
        });
        self.network.set_up(sandbox)
    }

    fn tear_down(&self, sandbox: &SandboxNetwork<'_>) -> io::Result<()> {
        self.network.tear_down(sandbox)
    }

    fn restore(&self, id: &str, record: &Path) -> io::Result<()> {
        self.network.restore(id, record)
    }
}

/// Returns the addresses of all interfaces in the caller's network namespace; the list is empty if the addresses
/// cannot be read. Only the addresses are requested from the kernel. A list of the interfaces would be long,
/// because each pod has an interface on the node.
pub fn node_addresses() -> Vec<IpAddr> {
    let read = || rtnetlink::Rtnetlink::open()?.every_address();
    let all = read().ok().into_iter().flatten();
    all.map(|(_, address)| address.network).collect()
}

/// The networks of this node.
pub struct Networks {
    host: Unconnected,
    none: Unconnected,
    bridge: Bridge,
    cni: Collected,
    choice: NetworkChoice,
    /// The kind of network for new sandboxes, unless CNI is used.
    kind: NetworkKind,
    /// The things that the kernel lacks for the network of pods.
    missing: Vec<Missing>,
    pod_cidrs: PodCidrs,
}

impl Networks {
    /// Makes the networks. Finds out which features the kernel supports, and reads the records of existing sandboxes.
    pub fn new(settings: NetworkSettings) -> Self {
        // Sandboxes of an earlier configuration may still use the bridge.
        let is_used = bridge::is_used(&settings.records);
        let kernel = match settings.choice {
            NetworkChoice::None | NetworkChoice::Cni if !is_used => kernel::Kernel::default(),
            _ => kernel::abilities(&settings.run),
        };
        let kind = match settings.choice {
            NetworkChoice::None => NetworkKind::None,
            NetworkChoice::Cni => NetworkKind::Cni,
            NetworkChoice::Auto if !kernel.can_bridge => NetworkKind::None,
            NetworkChoice::Auto | NetworkChoice::Bridge => NetworkKind::Bridge,
        };
        for missing in &kernel.missing {
            log::warn!("{}", missing.text);
        }
        Self {
            host: Unconnected {
                address: settings.node_ip,
            },
            none: Unconnected {
                address: Ipv4Addr::LOCALHOST.into(),
            },
            choice: settings.choice,
            pod_cidrs: settings.pod_cidrs.clone(),
            cni: Collected::new(settings.cni.clone()),
            bridge: Bridge::new(BridgeSettings::of(settings, kernel.filter)),
            kind,
            missing: kernel.missing,
        }
    }

    /// Returns the kind of network for a new sandbox that does not use the node's network. The answer may
    /// change at any time, because a CNI configuration may come and go.
    pub fn kind(&self) -> NetworkKind {
        match self.choice {
            // A configuration that cannot be used also counts as a configuration. The pod fails with it, so
            // somebody sees the error.
            NetworkChoice::Auto if !matches!(self.cni.network.configured(), Ok(None)) => {
                NetworkKind::Cni
            }
            _ => self.kind,
        }
    }

    /// Returns the ranges of pod addresses.
    pub const fn pod_cidrs(&self) -> &PodCidrs {
        &self.pod_cidrs
    }

    /// Lists what the kernel lacks for the network of pods.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Returns the things that the kernel lacks and that affect a pod with this address. The caller passes the
    /// address of a pod that does not use the node's network.
    pub fn missing_for(&self, address: IpAddr) -> impl Iterator<Item = &Missing> {
        let ranges = self.pod_cidrs.get();
        let at_bridge = ranges.iter().any(|range| range.contains(address));
        let feels = move |part| match part {
            Part::Bridge => address.is_loopback(),
            Part::Nat | Part::FrameFilter => at_bridge,
        };
        self.missing.iter().filter(move |m| feels(m.what))
    }

    /// Returns the addresses that all sandboxes of this kind share. Returns None if each sandbox has its own
    /// addresses.
    pub fn fixed(&self, kind: NetworkKind) -> Option<Vec<IpAddr>> {
        match kind {
            NetworkKind::Host => Some(vec![self.host.address]),
            NetworkKind::None => Some(vec![self.none.address]),
            NetworkKind::Bridge | NetworkKind::Cni => None,
        }
    }

    /// Returns the network of this kind.
    pub fn of(&self, kind: NetworkKind) -> &dyn PodNetwork {
        match kind {
            NetworkKind::Host => &self.host,
            NetworkKind::None => &self.none,
            NetworkKind::Bridge => &self.bridge,
            NetworkKind::Cni => &self.cni,
        }
    }

    /// Makes the CNI plugins release everything that belongs to none of the sandboxes in `valid`. CNI
    /// connects no sandbox before this call is done.
    pub fn collect(&self, valid: &[String]) {
        // The guard also works after a panic, because pods wait for this call.
        let _done = Done(&self.cni);
        let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
        if let Err(e) = self.cni.network.gc(&valid) {
            log::warn!("cannot release networks of sandboxes that are gone: {e}");
        }
    }

    /// Ends every wait for plugins, because the daemon is ending.
    pub fn stop(&self) {
        self.cni.network.stop();
        self.cni.done();
    }

    /// Repairs the bridge as [`PodNetwork::mend`] does.
    pub fn mend(&self) -> Vec<String> {
        self.bridge.mend()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_network::in_own_network;

    #[test]
    fn a_pod_that_waits_long_for_what_others_left_says_so() {
        let collected = Collected::new(CniSettings {
            conf_dir: PathBuf::new(),
            bin_dirs: Vec::new(),
            cache_dir: PathBuf::new(),
        });
        let mut said = false;
        collected.wait(Duration::ZERO, || {
            said = true;
            collected.done();
        });
        assert!(said);
        collected.wait(Duration::ZERO, || panic!("it is done"));
    }

    /// Tests that a pod gets a message about a missing part of the kernel only if the part affects the pod. The
    /// test drops CAP_NET_ADMIN. Without this capability the thread behaves like a node whose kernel cannot
    /// connect pods.
    #[test]
    fn what_the_kernel_lacks_is_told_to_the_pods_that_feel_it() {
        in_own_network(|| {
            let run = tempfile::tempdir().unwrap();
            let networks = || {
                Networks::new(NetworkSettings {
                    choice: NetworkChoice::Auto,
                    node_ip: [192, 0, 2, 1].into(),
                    pod_cidrs: PodCidrs::configured(vec!["10.244.0.0/24".parse().unwrap()]),
                    id: "podprobe-test".into(),
                    run: run.path().to_owned(),
                    records: PathBuf::from("/nowhere"),
                    proxy: PathBuf::from("/nowhere"),
                    cni: CniSettings {
                        conf_dir: PathBuf::from("/nowhere"),
                        bin_dirs: Vec::new(),
                        cache_dir: PathBuf::from("/nowhere"),
                    },
                })
            };
            // A daemon that can connect pods keeps that for the next ones, which this one does not follow.
            assert_eq!(networks().kind(), NetworkKind::Bridge);
            assert!(run.path().join("kernel.json").exists());
            const CAP_NET_ADMIN: u64 = 1 << 12;
            crate::base::sys::process::drop_capabilities(CAP_NET_ADMIN).unwrap();
            let mut networks = networks();
            assert_eq!(networks.kind(), NetworkKind::None);
            let of = |networks: &Networks, ip: &str| -> Vec<&str> {
                let missing = networks.missing_for(ip.parse().unwrap());
                missing.map(|m| m.what.as_str()).collect()
            };
            assert_eq!(of(&networks, "127.0.0.1"), ["bridge"]);
            assert_eq!(of(&networks, "10.244.0.2"), [""; 0]);
            let text = &networks.missing()[0].text;
            let cause = "not permitted; the daemon needs CAP_NET_ADMIN";
            assert!(
                text.starts_with("pods have only a loopback interface: ") && text.ends_with(cause),
                "{text}"
            );
            let lack = |what| Missing {
                what,
                text: String::new(),
            };
            networks.missing = [Part::Nat, Part::FrameFilter].map(lack).into();
            assert_eq!(of(&networks, "127.0.0.1"), [""; 0]);
            assert_eq!(of(&networks, "10.244.0.2"), ["nat", "frame-filter"]);
            assert_eq!(of(&networks, "10.77.0.2"), [""; 0], "of CNI plugins");
        });
    }
}
