//! What the kernel can do for the network of pods.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::sched::{CloneFlags, unshare};

use super::rtnetlink::{Rtnetlink, Veth};

/// What is missing for a bridge, a sentence each. It is tried in a namespace that ends with the call.
pub(super) fn missing() -> Vec<String> {
    let tried = std::thread::Builder::new()
        .name("network-check".into())
        .stack_size(256 << 10)
        .spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(try_bridge())
        })
        .and_then(|thread| {
            let panicked = |_| Err(io::Error::other("the check panicked"));
            thread.join().unwrap_or_else(panicked)
        });
    match tried {
        Ok(missing) => missing.into_iter().collect(),
        Err(e) => vec![without(&format!("network namespaces cannot be made: {e}"))],
    }
}

fn try_bridge() -> Option<String> {
    let try_all = || -> Result<(), String> {
        let mut kernel = Rtnetlink::open().map_err(fail("no rtnetlink"))?;
        kernel
            .add_bridge("check", [2, 0, 0, 0, 0, 1], 1500)
            .map_err(fail("no bridges (CONFIG_BRIDGE, module bridge)"))?;
        let bridge = kernel.link("check").map_err(fail("no bridges"))?;
        let here = File::open("/proc/thread-self/ns/net").map_err(fail("/proc is not mounted"))?;
        kernel
            .add_veth(&Veth {
                name: "check0",
                bridge: bridge.map_or(0, |b| b.index),
                peer: "check1",
                peer_mac: [2, 0, 0, 0, 0, 2],
                peer_namespace: here.as_fd(),
                mtu: 1500,
            })
            .map_err(fail("no veth pairs (CONFIG_VETH, module veth)"))
    };
    try_all().err()
}

fn fail(what: &str) -> impl FnOnce(io::Error) -> String {
    move |e| without(&format!("{what}: {}", meaning(&e)))
}

fn meaning(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "the kernel has them not".into(),
        Some(libc::EPERM) => "not permitted; the daemon needs CAP_NET_ADMIN".into(),
        _ => e.to_string(),
    }
}

fn without(cause: &str) -> String {
    format!("pods have only a loopback interface: {cause}")
}
