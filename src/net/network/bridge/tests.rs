//! Tests the bridge with real network namespaces as pods. Each test has its own network namespace as the
//! node. The tests with containers are in tests/net/bridge.rs.

use std::fs;
use std::process::{Child, Command};

use super::pair::open_namespace;
use super::*;
use crate::api::service::Protocol;
use crate::net::netfilter::Netfilter;
use crate::net::network::cni::CniSettings;
use crate::net::network::rtnetlink::inside;
use crate::net::network::{Bandwidth, NetworkChoice, PortMapping};
use crate::own_network::in_own_network;
use nix::sched::{CloneFlags, unshare};

/// A process in a network namespace of its own. The tests use this process as a pod.
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

    /// Runs the command `ip` in the namespace of this process.
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
            pod_cidrs: PodCidrs::of_a_cluster(
                ["10.244.0.0/24", "fd00::/64"]
                    .map(|range| range.parse().unwrap())
                    .into(),
                records.path().join("cluster"),
            ),
            id: "podprobe-test".into(),
            run: PathBuf::new(),
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

    /// Calls `f` with a sandbox that has the id `id`.
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
            bandwidth: Bandwidth::default(),
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
        // A pod that already has another interface named eth0 cannot be connected.
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

/// A sandbox whose record cannot be used is moved aside. Its address and the bridge are free then, also for the next daemon.
#[test]
fn a_sandbox_that_was_moved_aside_keeps_nothing() {
    if !crate::skip::has("ip", "iproute2") {
        return;
    }
    in_own_network(|| {
        let (machine, lost, good) = (Machine::new(), Holder::new(), Holder::new());
        machine.set_up("a", &lost);
        machine.set_up("b", &good);
        let records = machine.records.path();
        assert_eq!(read_records(records).len(), 2);
        machine.bridge.forget("a").unwrap();
        machine.bridge.forget("a").unwrap();
        fs::rename(records.join("a"), records.join("a.corrupt")).unwrap();
        let mut kernel = Rtnetlink::open().unwrap();
        assert!(kernel.link("ppva").unwrap().is_none());
        let left: Vec<String> = read_records(records).into_keys().collect();
        assert_eq!(left, ["b"]);
        machine.bridge.forget("b").unwrap();
        assert!(
            kernel.link("pp-test").unwrap().is_none(),
            "the bridge goes with the last"
        );
    });
}

/// A round of repairs that comes between the registration of a sandbox and its connection skips that sandbox.
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
        // Once a sandbox is connected, the rounds of repairs include it.
        machine.set_up("b", &Holder::new());
        assert!(machine.bridge.lock().connecting.is_empty());
    });
}

/// Ports of the node: an optional host address, and the port number.
type Ports = &'static [(Option<&'static str>, u16)];
/// A change of the sandboxes in the test: the number of a sandbox, whether the sandbox exists after the change,
/// and its ports.
type Change = (u8, bool, Ports);

/// Returns a sandbox without a network connection. The packet filter does not check whether a sandbox is
/// connected.
fn sandbox(number: u8, ports: Ports) -> (String, Arc<Attachment>) {
    let port = |(ip, host_port): &(Option<&str>, u16)| PortMapping {
        host_ip: ip.map(|ip| ip.parse().unwrap()),
        host_port: *host_port,
        container_port: 1000 + u16::from(number),
        protocol: Protocol::Tcp,
    };
    let attachment = Attachment {
        interface: format!("ppv{number}"),
        holder: Process {
            pid: 1,
            start_time: number.into(),
        },
        mac: [2, 0, 0, 0, 0, number],
        addresses: vec![
            [10, 244, 0, number].into(),
            format!("fd00::{number}").parse().unwrap(),
        ],
        gateways: ["10.244.0.0/24", "fd00::/64"]
            .map(|range| addresses::gateway(range.parse().unwrap()))
            .into(),
        ports: ports.iter().map(port).collect(),
    };
    (number.to_string(), attachment.into())
}

/// Lists the content of podprobe's tables in the kernel, in a fixed order.
fn ruleset() -> Vec<String> {
    let list = |family: &str| {
        let table = ["list", "table", family, "podprobe-test-network"];
        let listed = Command::new("nft").args(table).output();
        String::from_utf8(listed.unwrap().stdout).unwrap()
    };
    let text = ["ip", "ip6", "bridge"].map(list).concat();
    // `nft` prints several elements on one line, in the kernel's order. So this function splits the line and sorts
    // the elements.
    let words = text.split([',', '\n']);
    let mut words: Vec<String> = words
        .map(|w| {
            w.replace("elements = {", "")
                .replace('}', "")
                .trim()
                .to_owned()
        })
        .collect();
    words.sort();
    words
}

#[test]
fn what_changes_by_one_sandbox_is_what_all_would_be_told() {
    if !crate::skip::has("nft", "nftables") {
        return;
    }
    in_own_network(|| {
        let machine = Machine::new();
        let filter = &machine.bridge.settings.filter;
        let (mut all, mut step_by_step) = (Attachments::new(), Programmed::default());
        const AT: Option<&str> = Some("192.0.2.7");
        let changes: [&[Change]; 7] = [
            &[(1, true, &[(None, 80), (AT, 81)])],
            &[(2, true, &[])],
            // The newest sandbox gets the port. When the newest sandbox goes, the older sandbox gets the port
            // again.
            &[(3, true, &[(None, 80), (AT, 81), (Some("127.0.0.1"), 82)])],
            &[(3, false, &[])],
            // Several changes at once. One of the changes replaces a sandbox by another sandbox with the same id.
            &[
                (2, true, &[(Some("::2"), 83)]),
                (4, true, &[]),
                (1, false, &[]),
            ],
            &[(2, false, &[])],
            &[(4, false, &[])],
        ];
        for change in changes {
            for (number, is_there, ports) in change {
                let (id, attachment) = sandbox(*number, ports);
                match is_there {
                    true => all.insert(id, attachment),
                    false => all.remove(&id),
                };
            }
            filter.program(all.clone(), &mut step_by_step).unwrap();
            let told = ruleset();
            filter
                .program(all.clone(), &mut Programmed::default())
                .unwrap();
            assert_eq!(told, ruleset(), "after {change:?}");
        }
        assert_eq!(all.len(), 0);
    });
}

#[test]
fn the_work_for_one_sandbox_does_not_grow_with_the_number_of_all() {
    in_own_network(|| {
        let machine = Machine::new();
        let tables = &machine.bridge.settings.filter;
        let bytes = |count: u8| {
            let mut programmed = Programmed::default();
            let mut all: Attachments = (2..count).map(|n| sandbox(n, &[(None, 1)])).collect();
            tables.program(all.clone(), &mut programmed).unwrap();
            all.extend([sandbox(count, &[])]);
            tables.difference(&all, &programmed).unwrap().to_string()
        };
        assert_eq!(bytes(3), bytes(200));
    });
}

/// Many sandboxes that go at once share a transaction. Each transaction reads all sandboxes. With a separate
/// transaction for each sandbox, the total time would grow with the square of the number of sandboxes.
#[test]
fn those_who_wait_for_the_packet_filter_are_told_to_it_together() {
    in_own_network(|| {
        let machine = Machine::new();
        let holders: Vec<Holder> = (0..6).map(|_| Holder::new()).collect();
        let id = |n: usize| format!("sandbox-{n}");
        for (n, holder) in holders.iter().enumerate() {
            machine.set_up(&id(n), holder);
        }
        let generation = || Netfilter::open().unwrap().generation().unwrap();
        let (bridge, before) = (&machine.bridge, generation());
        let others_work = bridge.programmed.locked();
        let (times, changed) = (others_work.times, bridge.lock().version);
        std::thread::scope(|scope| {
            for n in 1..holders.len() {
                scope.spawn(move || bridge.detach(&id(n)).unwrap());
            }
            while bridge.lock().version < changed + 5 {
                std::thread::yield_now();
            }
            drop(others_work);
        });
        assert_eq!(generation() - before, 1);
        let told = bridge.programmed.locked();
        assert_eq!((told.times - times, told.version), (1, changed + 5));
    });
}

/// The parameters of the bridge are read once, and again in each round of repairs, but not for each pod. Reading a
/// parameter is slow, because the kernel searches the parameters of all namespaces.
#[test]
fn kernel_parameters_of_the_bridge_are_looked_at_once_and_by_each_round_of_mending() {
    in_own_network(|| {
        let machine = Machine::new();
        let [first, second] = [Holder::new(), Holder::new()];
        machine.set_up("a", &first);
        let name = &machine.bridge.settings.name;
        let parameter = format!("/proc/sys/net/ipv4/conf/{name}/send_redirects");
        let value = || fs::read_to_string(&parameter).unwrap();
        assert_eq!(value(), "0\n");
        fs::write(&parameter, "1").unwrap();
        machine.set_up("b", &second);
        assert_eq!(value(), "1\n");
        machine.bridge.mend();
        assert_eq!(value(), "0\n");
    });
}

#[test]
fn what_somebody_else_changed_between_two_sandboxes_is_mended() {
    if !crate::skip::has("nft", "nftables") {
        return;
    }
    in_own_network(|| {
        let machine = Machine::new();
        let holders = [Holder::new(), Holder::new(), Holder::new()];
        machine.set_up("a", &holders[0]);
        machine.bridge.mend();
        let told = ruleset();
        machine.set_up("b", &holders[1]);
        let line = "delete element ip podprobe-test-network pods { 10.244.0.2 }";
        let done = Command::new("nft").arg(line).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        machine.set_up("c", &holders[2]);
        machine.bridge.mend();
        for id in ["b", "c"] {
            let tear_down = |sandbox: &SandboxNetwork<'_>| machine.bridge.tear_down(sandbox);
            machine.with(id, &holders[1], tear_down).unwrap();
        }
        assert_eq!(ruleset(), told);
        // The kernel refuses to delete an element that does not exist. After this refusal all tables are
        // programmed again.
        machine.set_up("b", &holders[1]);
        let done = Command::new("nft").arg(line).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        for id in ["a", "b"] {
            let tear_down = |sandbox: &SandboxNetwork<'_>| machine.bridge.tear_down(sandbox);
            machine.with(id, &holders[0], tear_down).unwrap();
        }
        assert_eq!(ruleset(), [""]);
    });
}
