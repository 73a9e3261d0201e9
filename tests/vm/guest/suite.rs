//! The list of cases, and the order that they run in.

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use crate::boot::say;
use crate::case::{Not, Verdict};
use crate::node::{ADDRESS, Node, command, log_length, logged_since};
use crate::pods::{TOOLS, image, import, no_pods};
use crate::{
    app_armor, cgroups, clock, damage, devices, kills, network, roots, running, volumes, workloads,
};

type Case = (&'static str, fn(&Node) -> Verdict);

/// Cases of a node that lacks the modules of the packet filter.
const WITHOUT_PACKET_FILTER: &[Case] = &[("services-by-proxy", network::services)];

const CASES: &[Case] = &[
    ("check-host", running::check_host),
    ("probes", running::probes),
    ("liveness", running::liveness),
    ("exec", running::exec),
    (
        "command-as-first-process",
        running::command_as_first_process,
    ),
    ("limits", cgroups::limits),
    ("out-of-memory", cgroups::out_of_memory),
    (
        "out-of-memory-of-a-worker",
        cgroups::out_of_memory_of_a_worker,
    ),
    ("no-swap", cgroups::no_swap),
    ("cpu-weights", cgroups::cpu_weights),
    (
        "pause-in-the-pods-cgroup",
        cgroups::pause_in_the_pods_cgroup,
    ),
    ("devices", devices::usual),
    ("privileged-reaches-the-disk", devices::privileged),
    (
        "device-node-of-an-image-as-user",
        devices::node_of_an_image_as_user,
    ),
    (
        "device-node-of-an-image-as-root",
        devices::node_of_an_image_as_root,
    ),
    ("mknod-by-first-process", devices::mknod_by_first_process),
    ("mknod-by-exec", devices::mknod_by_exec),
    ("mknod-by-probe", devices::mknod_by_probe),
    ("host-path-of-dev", devices::host_path_of_dev),
    ("host-path-of-the-disk", devices::host_path_of_the_disk),
    ("volumes", volumes::usual),
    ("config-map-is-updated", volumes::config_map_is_updated),
    (
        "claims-are-closed-to-users",
        volumes::claims_are_closed_to_users,
    ),
    ("volume-at-dev", volumes::volume_at_dev),
    ("root-of-another-process", roots::of_another_process),
    ("image-with-dev-as-link", roots::image_with_dev_as_link),
    ("network", network::pod_to_pod),
    ("host-port", network::host_port),
    ("services", network::services),
    ("names", network::names),
    ("flood-of-neighbours", network::flood_of_neighbours),
    ("app-armor-unset", app_armor::unset),
    (
        "app-armor-loaded-by-the-daemon",
        app_armor::loaded_by_the_daemon,
    ),
    ("app-armor-runtime-default", app_armor::runtime_default),
    ("app-armor-localhost", app_armor::localhost),
    ("daemon-ends-and-starts", running::daemon_ends_and_starts),
    ("daemon-is-killed", running::daemon_is_killed),
    ("kills", kills::kills),
    ("damaged-records", damage::damage),
    ("pods-over-jumps-of-the-clock", clock::pods_over_jumps),
    ("rollout", workloads::rollout),
    (
        "schedule-over-jumps-of-the-clock",
        workloads::schedule_over_jumps_of_the_clock,
    ),
    ("v1-hierarchy-beside-v2", cgroups::v1_hierarchy_beside_v2),
];

const CONFIG: &str = r#"{"nodeName": "vm", "podCIDR": "10.244.0.0/24,fd00:10:244::/112"}"#;

struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Runs the cases that `only` names, with a comma between them; all when it is empty.
pub fn run(only: &str) -> ExitCode {
    let node = Node::default();
    let mut tally = Tally {
        passed: 0,
        failed: 0,
        skipped: 0,
    };
    let chosen = |cases: &[Case]| -> Vec<Case> {
        let wanted = |name: &str| only.is_empty() || only.split(',').any(|o| o == name);
        cases.iter().filter(|c| wanted(c.0)).copied().collect()
    };
    if let Err(e) = prepare(&node) {
        say(&format!("FAIL preparation: {e}"));
        tally.failed += 1;
    }
    let first = chosen(WITHOUT_PACKET_FILTER);
    if !first.is_empty() {
        without_packet_filter(&node, &first, &mut tally);
    }
    let begun = node.start(CONFIG);
    cases(&node, begun, &chosen(CASES), &mut tally);
    if let Err(e) = node.stop() {
        say(&format!("FAIL end: {e}"));
        tally.failed += 1;
    }
    say(&format!(
        "end: {} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    ));
    ExitCode::SUCCESS
}

/// What a node has before podprobe comes: an address with a default route, and images.
fn prepare(node: &Node) -> Result<(), String> {
    let tell = |e: std::io::Error| format!("/etc: {e}");
    fs::create_dir_all("/etc/podprobe").map_err(tell)?;
    fs::write("/etc/resolv.conf", "nameserver 127.0.0.1\n").map_err(tell)?;
    fs::write("/etc/passwd", "root:x:0:0::/:/bin/sh\n").map_err(tell)?;
    fs::write("/vm/marker", "the root of the node\n").map_err(tell)?;
    let address = format!("{ADDRESS}/24");
    for words in [
        &["ip", "link", "set", "lo", "up"][..],
        &["ip", "link", "add", "node0", "type", "dummy"],
        &["ip", "address", "add", &address, "dev", "node0"],
        &["ip", "link", "set", "node0", "up"],
        &["ip", "route", "add", "default", "via", "192.168.77.2"],
    ] {
        command(&[&["/bin/busybox"], words].concat())?;
    }
    import(node, TOOLS, image()?)
}

fn without_packet_filter(node: &Node, chosen: &[Case], tally: &mut Tally) {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let modules = format!("/lib/modules/{}/kernel/net/netfilter", kernel.trim());
    let away = format!("{modules}.away");
    let begun = fs::rename(&modules, &away)
        .map_err(|e| format!("{modules}: {e}"))
        .and_then(|()| node.start(CONFIG));
    cases(node, begun, chosen, tally);
    let back = node
        .stop()
        .and_then(|()| fs::rename(&away, &modules).map_err(|e| format!("{modules}: {e}")));
    if let Err(e) = back {
        say(&format!("FAIL packet-filter-comes-back: {e}"));
        tally.failed += 1;
    }
}

fn cases(node: &Node, begun: Result<(), String>, chosen: &[Case], tally: &mut Tally) {
    if let Err(e) = begun {
        say(&format!("FAIL daemon: {e}"));
        tally.failed += 1;
        show_log("daemon", 0);
        return;
    }
    for (name, case) in chosen {
        let begun = Instant::now();
        let length = log_length();
        let verdict = case(node);
        // Of a case that failed in the middle.
        let over = no_pods(node);
        let seconds = begun.elapsed().as_secs_f32();
        match verdict.and_then(|()| Ok(over?)) {
            Ok(()) => {
                say(&format!("ok {name} ({seconds:.1} s)"));
                tally.passed += 1;
            }
            Err(Not::Tried(why)) => {
                say(&format!("skip {name}: {why}"));
                tally.skipped += 1;
            }
            Err(Not::Passed(why)) => {
                say(&format!("FAIL {name}: {why}"));
                tally.failed += 1;
                show_log(name, length);
            }
        }
    }
}

fn show_log(name: &str, length: usize) {
    for line in logged_since(length) {
        say(&format!("log {name}: {line}"));
    }
}
