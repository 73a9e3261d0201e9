//! The bridge with real namespaces for pods, on a machine of the test's own. Containers in them are in tests/bridge.rs.

use std::fs;
use std::process::{Child, Command};

use super::pair::open_namespace;
use super::*;
use crate::netfilter::own_network::in_own_network;
use crate::network::NetworkChoice;
use crate::network::cni::CniSettings;
use crate::network::rtnetlink::inside;
use nix::sched::{CloneFlags, unshare};

/// A process in a network namespace of its own.
struct Holder(Child);

impl Holder {
    fn new() -> Self {
        let start = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            Command::new("sleep").arg("1000").spawn().unwrap()
        };
        Self(std::thread::scope(|s| s.spawn(start).join()).unwrap())
    }

    fn process(&self) -> Process {
        Process::of(self.0.id() as i32).unwrap()
    }

    /// `ip` in it.
    fn ip(&self, line: &str) {
        let namespace = open_namespace(self.process()).unwrap();
        let run = || {
            ip(line);
            Ok(())
        };
        inside(&namespace, run).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {line}: {done:?}");
}

struct Machine {
    bridge: Bridge,
    records: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let records = tempfile::tempdir().unwrap();
        let settings = NetworkSettings {
            choice: NetworkChoice::Bridge,
            node_ip: [192, 0, 2, 1].into(),
            pod_cidrs: vec!["10.244.0.0/24".parse().unwrap()],
            id: "podprobe-test".into(),
            records: records.path().to_owned(),
            proxy: PathBuf::new(),
            cni: CniSettings {
                conf_dir: PathBuf::new(),
                bin_dirs: Vec::new(),
                cache_dir: PathBuf::new(),
            },
        };
        let (can, errors) = packet_filter::abilities();
        assert_eq!(errors, []);
        Self {
            bridge: Bridge::new(BridgeSettings::of(settings, can)),
            records,
        }
    }

    /// Calls `f` with the sandbox of that id.
    fn with<T>(&self, id: &str, holder: &Holder, f: impl FnOnce(&SandboxNetwork<'_>) -> T) -> T {
        let record = self.records.path().join(id);
        fs::create_dir_all(&record).unwrap();
        f(&SandboxNetwork {
            id,
            name: id,
            namespace: "default",
            uid: id,
            holder: Some(holder.process()),
            record: &record,
            ports: &[],
            bandwidth: crate::runtime::Bandwidth::default(),
        })
    }

    fn set_up(&self, id: &str, holder: &Holder) {
        let set_up = |sandbox: &SandboxNetwork<'_>| self.bridge.set_up(sandbox);
        self.with(id, holder, set_up).unwrap();
    }
}

const AGAIN: &str = "interface ppvb of the pod with the address 10.244.0.3 was gone: made again";

#[test]
fn what_fails_is_said_once_and_what_was_mended_each_time() {
    if !crate::skip::has("ip", "iproute2") {
        return;
    }
    in_own_network(|| {
        let (machine, bad, good) = (Machine::new(), Holder::new(), Holder::new());
        machine.set_up("a", &bad);
        machine.set_up("b", &good);
        assert_eq!(machine.bridge.mend(), [""; 0]);
        // A pod that has another interface of this name cannot be connected.
        ip("link del ppva");
        bad.ip("link add eth0 type veth peer name other");
        let said = machine.bridge.mend();
        let failed = "cannot connect the pod with the address 10.244.0.2 again: ";
        assert!(said.len() == 1 && said[0].starts_with(failed), "{said:?}");
        assert_eq!(machine.bridge.mend(), [""; 0]);
        for _ in 0..2 {
            ip("link del ppvb");
            assert_eq!(machine.bridge.mend(), [AGAIN]);
        }
        bad.ip("link del eth0");
        let mended = AGAIN.replace("ppvb", "ppva").replace(".3", ".2");
        assert_eq!(machine.bridge.mend(), [mended]);
        ip("link del ppva");
        bad.ip("link add eth0 type veth peer name other");
        assert_eq!(machine.bridge.mend(), said, "it has been right meanwhile");
    });
}

#[test]
fn a_pod_that_cannot_be_mended_keeps_no_other_from_it() {
    if !crate::skip::has("ip", "iproute2") {
        return;
    }
    in_own_network(|| {
        let (machine, bad, good) = (Machine::new(), Holder::new(), Holder::new());
        machine.set_up("a", &bad);
        machine.set_up("b", &good);
        ip("link del ppva");
        bad.ip("link add eth0 type veth peer name other");
        ip("link del ppvb");
        let said = machine.bridge.mend();
        assert_eq!((said.len(), said[0].as_str()), (2, AGAIN), "{said:?}");
        let mut kernel = Rtnetlink::open().unwrap();
        assert!(kernel.link("ppvb").unwrap().is_some_and(|port| port.up));
    });
}

/// The thread that mends comes between the moment when a sandbox is known and that when it is connected.
#[test]
fn a_sandbox_that_is_being_connected_is_not_mended() {
    if !crate::skip::has("ip", "iproute2") {
        return;
    }
    in_own_network(|| {
        let (machine, holder) = (Machine::new(), Holder::new());
        let attach =
            |sandbox: &SandboxNetwork<'_>| machine.bridge.attach(sandbox, holder.process());
        let attachment = machine.with("a", &holder, attach).unwrap();
        machine.bridge.mend();
        let mut kernel = Rtnetlink::open().unwrap();
        assert!(kernel.link("ppva").unwrap().is_none());
        machine.bridge.connect_attached(&attachment).unwrap();
        machine.bridge.lock().connecting.clear();
        assert_eq!(machine.bridge.mend(), [""; 0]);
        // Once it is connected it is looked after.
        machine.set_up("b", &Holder::new());
        assert!(machine.bridge.lock().connecting.is_empty());
    });
}
