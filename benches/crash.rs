//! What kills and damaged records cost: a scripted life of a node with probes of every kind, hooks, sidecars, volumes,
//! services, rollouts, Jobs, schedules and pulls, in both data paths, while its processes are killed at random moments.
//!
//! `MINUTES` in all (default 60), a third for each of `PART`: nftables, userspace, damaged records. `RATE`
//! connections a second (default 50), `SEED` repeats the choices of a run. Ends with 1 when something is not as it must be.

#[path = "rollouts/clients.rs"]
mod clients;
#[path = "crash/damage.rs"]
mod damage;
#[path = "rollouts/deployment.rs"]
mod deployment;
#[path = "../tests/support/fake_registry.rs"]
mod fake_registry;
#[path = "../tests/support/http_server.rs"]
mod http_server;
#[path = "crash/kills.rs"]
mod kills;
#[path = "crash/life.rs"]
mod life;
#[path = "crash/pods.rs"]
mod pods;
#[path = "../tests/support/real_registry.rs"]
mod real_registry;
#[path = "../tests/support/damage.rs"]
mod record_damage;
mod support;
#[path = "crash/victims.rs"]
mod victims;
#[path = "crash/witness.rs"]
mod witness;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fake_registry::{Content, Layer, noise, tar};
use kills::Kills;
use life::Life;
use podprobe::engine::shims::state::Process;
use real_registry::Registry;
use serde_json::json;
use support::figures::Report;
use support::leftovers;
use support::node::{Node, kill, target_rootfs};
use support::random::Random;
use support::{CEILING, Guard, need, out_dir, program, setting, unix_ns, wait_until};
use witness::{Ledger, Witness};

/// Bytes of the image that is pulled, beside the target: so that a kill finds it half unpacked now and then.
const NOISE: usize = 8 << 20;
/// A process that has ended is gone after this time.
const REAPED: Duration = Duration::from_secs(5);

fn main() {
    support::begin_with_run_in_memory();
    need("what kills cost", &["docker-registry"]);
    let minutes = setting("MINUTES", 60).max(1) as u64;
    let seed = setting("SEED", (unix_ns() / 1_000_000 % 1_000_000) as usize);
    let mut random = Random::new(seed as u64);
    let mut report = Report::new("crash");
    report.note(format!("SEED={seed}, {minutes} min"));
    println!(
        "crash of {}: {minutes} min, SEED={seed}",
        program().display()
    );
    let dir = out_dir().join(format!("crash-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let registry = registry(&dir);
    let process = Process::of(registry.pid()).unwrap();
    let guard = Guard::new({
        let dir = dir.clone();
        move || {
            kill(process);
            let _ = fs::remove_dir_all(dir);
        }
    });
    let programs = [program(), other_program(&dir)];
    let length = Duration::from_secs(minutes * 60) / 3;
    let chosen = std::env::var("PART").ok();
    for part in ["nftables", "userspace", "damaged records"] {
        if chosen.as_ref().is_some_and(|chosen| chosen != part) {
            continue;
        }
        println!("\n{part}");
        let mode = if part == "userspace" {
            part
        } else {
            "nftables"
        };
        let config = json!({"proxyMode": mode, "podCIDR": "10.244.0.0/24",
            "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"}});
        let mut node = Node::start_with("embedded", &config, &[]);
        let mut life = Life::begin(&node, &registry.image());
        match part {
            "damaged records" => {
                damage::run(&mut node, &mut life, &mut random, &mut report, length)
            }
            _ => {
                let programs = programs.clone();
                let kills = Kills::new(mode, &mut node, &mut random, &mut report, programs);
                kills.run(&mut life, length);
            }
        }
        end(node, &life, &mut report, part);
    }
    report.finish();
    // The exit drops nothing.
    drop((registry, guard));
    std::process::exit(i32::from(!report.all_hold()));
}

/// Connections a second of the clients of `web`.
fn rate() -> usize {
    setting("RATE", 50)
}

/// Waits until all is as the files ask for the first time.
fn settle_at_first(node: &Node, life: &mut Life) {
    life.rest(node);
    let ledger = Ledger::default();
    wait_until("everything to be as the files ask", || {
        life.unmet(node, &ledger).is_empty()
    });
}

/// Waits until all is as the files ask, for at most `limit`, and returns what is not.
fn settle(node: &Node, life: &Life, witness: &Witness, limit: Duration) -> Vec<String> {
    let end = Instant::now() + limit;
    loop {
        node.assert_alive();
        let ledger = witness.ledger(|ledger| ledger.clone());
        let unmet = life.unmet(node, &ledger);
        if unmet.is_empty() || Instant::now() > end {
            return unmet;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn registry(dir: &Path) -> Registry {
    let registry = Registry::start(dir, "open", "", "");
    let target = fs::read(target_rootfs().join("probe-target")).unwrap();
    let mut all = ::tar::Builder::new(Vec::new());
    let mut header = ::tar::Header::new_ustar();
    header.set_size(target.len() as u64);
    header.set_mode(0o755);
    all.append_data(&mut header, "probe-target", &target[..])
        .unwrap();
    let layers = [
        Layer::gzip(&all.into_inner().unwrap()),
        Layer::gzip(&tar("noise", &noise(NOISE))),
    ];
    let mut content = Content::default();
    content.image("1", &layers);
    registry.push(&content);
    registry
}

/// The same program as another file with other bytes, as the next version is.
fn other_program(dir: &Path) -> PathBuf {
    let other = dir.join("podprobe-next");
    fs::copy(program(), &other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    File::options()
        .append(true)
        .open(&other)
        .unwrap()
        .write_all(b"\n")
        .unwrap();
    other
}

/// Takes all pods away, ends the daemon, and looks for what is left.
fn end(mut node: Node, life: &Life, report: &mut Report, mode: &str) {
    life.end(&node);
    let root = node.root().to_owned();
    let begun = Instant::now();
    let is_cleared = |node: &Node| {
        let records = node.processes().iter().map(Vec::len).sum::<usize>();
        let left = [leftovers::cgroups(&root), leftovers::interfaces(&root)];
        node.snapshot().pods.is_empty() && records == 0 && left.iter().all(Vec::is_empty)
    };
    while !is_cleared(&node) && begun.elapsed() < CEILING {
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = node.stop();
    report.check(
        &format!("{mode}: the daemon ends when told"),
        status.success(),
        status.to_string(),
    );
    // The first process of the machine may take a moment to wait for those that have ended.
    let begun = Instant::now();
    while !leftovers::processes(&root).is_empty() && begun.elapsed() < REAPED {
        std::thread::sleep(Duration::from_millis(100));
    }
    let lib = node.layout.lib_dir();
    for (what, left) in [
        ("process", leftovers::processes(&root)),
        ("cgroup", leftovers::cgroups(&root)),
        ("mount", leftovers::mounts(&root)),
        ("record of a container", below(&node.layout.containers())),
        ("record of a sandbox", below(&node.layout.sandboxes())),
        ("state of the OCI runtime", below(&node.layout.oci_state())),
        ("news of an end", below(&node.layout.exits())),
        ("status of a pod", below(&node.layout.statuses())),
        ("file of a pod", below(&lib.join("pods"))),
        ("writable layer", below(&lib.join("containers"))),
        ("state of a workload", below(&node.layout.workloads())),
        ("pull", below(&node.layout.images().join("pulls"))),
        ("log of a pod", below(&node.layout.logs_dir())),
        ("link to a log", below(&node.layout.container_log_links())),
        ("network interface", leftovers::interfaces(&root)),
    ] {
        let found = if left.is_empty() {
            "none".into()
        } else {
            left.join("; ")
        };
        report.check(
            &format!("{mode}: no {what} is left"),
            left.is_empty(),
            found,
        );
    }
    if !report.all_hold() {
        let log = out_dir().join(format!("crash-{}-daemon.log", mode.replace(' ', "-")));
        fs::write(&log, node.log()).unwrap();
        report.note(format!("log of the daemon: {}", log.display()));
    }
}

/// All files below a directory, and all directories that are empty.
fn below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in support::usage::entries(&dir.display().to_string()) {
            match entry.symlink_metadata() {
                // It is there for a person to look at.
                _ if entry.extension().is_some_and(|of| of == "corrupt") => {}
                Ok(kind) if kind.is_dir() => dirs.push(entry),
                _ => found.push(entry.display().to_string()),
            }
        }
    }
    found
}
