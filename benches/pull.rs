//! A pod file makes the daemon pull an image: how much its memory grows. The image has `MB` megabytes (default 500) in five
//! layers, four of gzip and one of zstd with a window of 8 MiB, the largest that is taken, and comes from Debian's
//! `docker-registry` on loopback. `RUNS` times (default 3), each with a daemon that has just started.

#[path = "../tests/support/fake_registry.rs"]
mod fake_registry;
#[path = "../tests/support/http_server.rs"]
mod http_server;
#[path = "../tests/support/real_registry.rs"]
mod real_registry;
mod support;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fake_registry::{Content, Layer, noise};
use podprobe::engine::shims::state::Process;
use real_registry::Registry;
use serde_json::json;
use support::figures::Report;
use support::node::{Node, kill, pod, target_rootfs, view};
use support::usage::{self, memory};
use support::{Guard, ms_between, need, unix_ns};

const LAYERS: usize = 5;
/// Bytes of each file of the image.
const FILE: usize = 200_000;
/// Largest growth of the daemon in kB.
const GROWTH: f64 = 16384.0;

fn main() {
    support::begin();
    need("what a pull costs the daemon", &["docker-registry", "zstd"]);
    let (runs, megabytes) = (support::setting("RUNS", 3), support::setting("MB", 500));
    let dir = support::out_dir().join(format!("registry-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let registry = Registry::start(&dir, "open", "", "");
    let process = Process::of(registry.pid()).unwrap();
    let _guard = Guard::new(move || {
        kill(process);
        let _ = fs::remove_dir_all(dir);
    });
    let stored = {
        let content = content(megabytes << 20);
        registry.push(&content);
        content.blobs.values().map(Vec::len).sum::<usize>()
    };
    let mut report = Report::new("pull");
    (0..runs).for_each(|n| run(&mut report, n, &registry.image()));
    report.note(format!(
        "{megabytes} MB in {LAYERS} layers, {} MB in the registry",
        stored >> 20
    ));
    report.finish();
}

/// An image whose first layer has the probe target.
fn content(bytes: usize) -> Content {
    let target = fs::read(target_rootfs().join("probe-target")).unwrap();
    let layer = |n: usize| {
        let mut all = tar::Builder::new(Vec::new());
        if n == 0 {
            append(&mut all, "probe-target", &target);
        }
        // Of two bytes one is of a kind that compresses.
        let mut data = noise(bytes / LAYERS);
        data.iter_mut().skip(n % 2).step_by(2).for_each(|b| *b &= 7);
        for (at, file) in data.chunks(FILE).enumerate() {
            append(&mut all, &format!("data-{n}/{at}"), file);
        }
        let plain = all.into_inner().unwrap();
        match n {
            4 => Layer::zstd(&plain, zstd(&plain)),
            _ => Layer::gzip(&plain),
        }
    };
    let layers: Vec<Layer> = (0..LAYERS).map(layer).collect();
    let mut content = Content::default();
    content.image("1", &layers);
    content
}

fn append(to: &mut tar::Builder<Vec<u8>>, name: &str, file: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.set_size(file.len() as u64);
    header.set_mode(0o755);
    to.append_data(&mut header, name, file).unwrap();
}

/// What zstd makes of it with a window of 8 MiB.
fn zstd(plain: &[u8]) -> Vec<u8> {
    let mut child = Command::new("zstd")
        .args(["-3", "--long=23", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(plain).unwrap());
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "zstd: {}", out.status);
        out.stdout
    })
}

fn run(report: &mut Report, n: usize, image: &str) {
    let node = Node::start("embedded");
    let pid = node.daemon.pid;
    let name = format!("pull-{n}");
    let mut pod = pod(&node, &name, &[], json!({}));
    pod["spec"]["containers"][0]["image"] = image.into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    let mut watch = node.watch();
    watch.until("the first snapshot", |_| true);
    let before = memory(pid);
    usage::reset_peak(pid);
    let over = AtomicBool::new(false);
    let (pss, took) = std::thread::scope(|scope| {
        let highest = scope.spawn(|| highest_pss(pid, &over));
        let begun = node.add(&name, &pod);
        watch.until("the pod to run", |s| {
            view(s, &name).is_some_and(|v| v.status.is_ready())
        });
        let took = ms_between(begun, unix_ns());
        over.store(true, Ordering::SeqCst);
        (highest.join().unwrap(), took)
    });
    let rss = usage::peak(pid);
    report.add("daemon before: RSS", "kB", None, before.rss as f64);
    report.add("daemon before: PSS", "kB", None, before.pss as f64);
    let growth = |now: u64, before: u64| now as f64 - before as f64;
    report.add("growth: RSS", "kB", Some(GROWTH), growth(rss, before.rss));
    report.add("growth: PSS", "kB", Some(GROWTH), growth(pss, before.pss));
    std::thread::sleep(Duration::from_secs(3));
    let after = memory(pid);
    let left = growth(after.rss, before.rss);
    report.add("left 3 s later: RSS", "kB", None, left);
    report.add("file renamed → pulled and runs", "s", None, took / 1000.0);
    node.remove(&name);
}

/// Until it is over.
fn highest_pss(pid: i32, over: &AtomicBool) -> u64 {
    let mut highest = 0;
    while !over.load(Ordering::SeqCst) {
        highest = highest.max(memory(pid).pss);
        std::thread::sleep(Duration::from_millis(10));
    }
    highest
}
