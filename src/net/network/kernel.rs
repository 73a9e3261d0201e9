//! Finds out what the kernel can do for the network of pods.
//!
//! Invariant: a daemon that follows one of the same boot does not wait for the kernel again where nothing was missing. To make
//! a network namespace takes seconds while many others end, and nobody probes and serves meanwhile.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};

use super::bridge::packet_filter::{self, Abilities};
use super::rtnetlink::{Rtnetlink, Veth};
use crate::base::boot_record;
use crate::base::sys::process::status_mask;
use crate::net::netfilter::NetfilterError;

/// The name of the record that nothing was missing. An older program may have written it, so it needs another name as soon as
/// more is asked.
const RECORD: &str = "kernel.json";

/// The abilities of the kernel for the network of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    /// True if the kernel can make bridges and veth pairs.
    pub(super) can_bridge: bool,
    /// The parts of the packet filter that the kernel has.
    pub(super) filter: Abilities,
    /// The things that the kernel cannot do, each with a sentence for users.
    pub(super) missing: Vec<Missing>,
}

impl Kernel {
    /// Returns a kernel that lacks nothing.
    fn with_all() -> Self {
        Self {
            can_bridge: true,
            filter: Abilities {
                nat: true,
                frames: true,
            },
            missing: Vec::new(),
        }
    }
}

/// Something that the kernel cannot do for the network of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The part that is missing.
    pub what: Part,
    /// A sentence for users: the consequence of the missing part, and why the kernel does not have this part.
    pub text: String,
}

/// A part of the kernel that the network of pods needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bridges and veth pairs.
    Bridge,
    /// Translation of addresses.
    Nat,
    /// The filter of a bridge's frames.
    FrameFilter,
}

impl Part {
    /// Returns the part's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Nat => "nat",
            Self::FrameFilter => "frame-filter",
        }
    }
}

/// A reason why pods get no bridge.
#[derive(Debug, thiserror::Error)]
enum BridgeError {
    /// No network namespace can be made for the test.
    #[error("network namespaces cannot be made: {0}")]
    Namespace(#[source] io::Error),
    /// The kernel has no rtnetlink.
    #[error("no rtnetlink: {}", meaning(.0))]
    Rtnetlink(#[source] io::Error),
    /// The kernel cannot make a bridge.
    #[error("no bridges (CONFIG_BRIDGE, module bridge): {}", meaning(.0))]
    Make(#[source] io::Error),
    /// The kernel cannot find the bridge that it has just made.
    #[error("no bridges: {}", meaning(.0))]
    Find(#[source] io::Error),
    /// The file of this thread's network namespace cannot be opened.
    #[error("/proc is not mounted: {}", meaning(.0))]
    Proc(#[source] io::Error),
    /// The kernel cannot make a veth pair.
    #[error("no veth pairs (CONFIG_VETH, module veth): {}", meaning(.0))]
    Veth(#[source] io::Error),
}

/// Returns the abilities of the kernel. `run` is the directory of what counts until the node is restarted.
pub(super) fn abilities(run: &Path) -> Kernel {
    known_or_found(run, look)
}

/// Returns what an earlier daemon has found in this boot, or else what `look` finds. A kernel that lacks something is asked
/// again by each daemon, because a module can come. So is one that another daemon has asked with other capabilities.
fn known_or_found(run: &Path, look: impl FnOnce() -> Kernel) -> Kernel {
    let mine = capabilities();
    let known: Option<u64> = boot_record::read(run, RECORD);
    if mine.is_some() && known == mine {
        return Kernel::with_all();
    }
    let found = look();
    if let Some(mine) = mine.filter(|_| found == Kernel::with_all())
        && let Err(e) = boot_record::write(run, RECORD, &mine)
    {
        log::warn!("cannot keep what the kernel can do for the network of pods: {e}");
    }
    found
}

/// Returns the effective capabilities of the calling thread.
fn capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    status_mask(&status, "CapEff:")
}

/// Tests all abilities, in a network namespace that ends with the call.
fn look() -> Kernel {
    let tried = std::thread::Builder::new()
        .name("network-check".into())
        .stack_size(256 << 10)
        .spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(try_all())
        })
        .and_then(|thread| {
            let panicked = |_| Err(io::Error::other("the check panicked"));
            thread.join().unwrap_or_else(panicked)
        });
    tried.unwrap_or_else(|e: io::Error| Kernel {
        missing: vec![without_bridge(&BridgeError::Namespace(e))],
        ..Kernel::default()
    })
}

/// Lists the things that the kernel cannot do for the network of pods. Commands that run without a daemon call
/// this function. The tests of the kernel leave nothing behind.
pub fn lacks() -> Vec<Missing> {
    look().missing
}

fn try_all() -> Kernel {
    if let Err(why) = try_bridge() {
        return Kernel {
            missing: vec![without_bridge(&why)],
            ..Kernel::default()
        };
    }
    let (filter, errors) = packet_filter::abilities();
    let mut missing = Vec::new();
    let mut errors = errors.into_iter();
    if !filter.nat {
        let text = "pods do not reach other machines, and hostPort leads nowhere";
        missing.push(lack(Part::Nat, text, errors.next()));
    }
    if !filter.frames {
        let text = "a pod that may send raw packets can send them with addresses of others";
        missing.push(lack(Part::FrameFilter, text, errors.next()));
    }
    Kernel {
        can_bridge: true,
        filter,
        missing,
    }
}

fn try_bridge() -> Result<(), BridgeError> {
    let mut kernel = Rtnetlink::open().map_err(BridgeError::Rtnetlink)?;
    kernel
        .add_bridge("check", [2, 0, 0, 0, 0, 1], 1500)
        .map_err(BridgeError::Make)?;
    let bridge = kernel.link("check").map_err(BridgeError::Find)?;
    let here = File::open("/proc/thread-self/ns/net").map_err(BridgeError::Proc)?;
    kernel
        .add_veth(&Veth {
            name: "check0",
            bridge: bridge.map_or(0, |b| b.index),
            peer: "check1",
            peer_mac: [2, 0, 0, 0, 0, 2],
            peer_namespace: here.as_fd(),
            mtu: 1500,
        })
        .map_err(BridgeError::Veth)
}

fn meaning(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "the kernel has them not".into(),
        Some(libc::EPERM) => "not permitted; the daemon needs CAP_NET_ADMIN".into(),
        _ => e.to_string(),
    }
}

fn lack(what: Part, text: &str, error: Option<NetfilterError>) -> Missing {
    let cause = error.map_or(String::new(), |e| e.to_string());
    Missing {
        what,
        text: format!("{text}: {cause}"),
    }
}

fn without_bridge(cause: &BridgeError) -> Missing {
    Missing {
        what: Part::Bridge,
        text: format!("pods have only a loopback interface: {cause}"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_kernel_that_lacks_nothing_is_asked_once_in_a_boot_by_daemons_with_the_same_capabilities() {
        let dir = tempfile::tempdir().unwrap();
        let asked = Cell::new(0);
        let check = |kernel: Kernel, times: u32| {
            asked.set(0);
            let found = known_or_found(dir.path(), || {
                asked.set(asked.get() + 1);
                kernel.clone()
            });
            assert_eq!((found, asked.get()), (kernel, times));
        };
        let without_nat = Kernel {
            missing: vec![lack(Part::Nat, "no nat", None)],
            filter: Abilities {
                nat: false,
                frames: true,
            },
            can_bridge: true,
        };
        check(without_nat.clone(), 1);
        check(without_nat, 1);
        check(Kernel::with_all(), 1);
        check(Kernel::with_all(), 0);
        boot_record::write(dir.path(), RECORD, &0).unwrap();
        check(Kernel::default(), 1);
    }
}
