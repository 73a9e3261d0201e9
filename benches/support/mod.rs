//! What the benches share: a node of their own, a way to end everything on failure and on Ctrl-C, and figures.
//!
//! Each bench includes this file as a module of its own and uses a part of it.
#![allow(dead_code)]

pub(crate) mod figures;
pub(crate) mod leftovers;
pub(crate) mod node;
pub(crate) mod promises;
pub(crate) mod random;
pub(crate) mod runc;
pub(crate) mod soak_pods;
pub(crate) mod usage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};

/// Waits end here with an error; none is ever waited out when all is well.
pub(crate) const CEILING: Duration = Duration::from_secs(60);

type Cleanup = Box<dyn FnOnce() + Send>;

/// What is still to be ended, in the order in which it was begun.
static CLEANUPS: Mutex<BTreeMap<u64, Cleanup>> = Mutex::new(BTreeMap::new());

/// Runs its action when it is dropped, or when a signal ends the bench, whichever is first.
pub(crate) struct Guard(u64);

impl Guard {
    pub(crate) fn new(action: impl FnOnce() + Send + 'static) -> Self {
        let mut all = CLEANUPS.lock().unwrap();
        let key = all.last_key_value().map_or(0, |(k, _)| k + 1);
        all.insert(key, Box::new(action));
        Self(key)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let action = CLEANUPS.lock().unwrap().remove(&self.0);
        if let Some(action) = action {
            action();
        }
    }
}

/// To be called first: needs root, and makes Ctrl-C end what the bench has begun.
pub(crate) fn begin() {
    begin_with(|| {});
}

/// The same with all files in memory. On ext4 each file that is made costs more the more files were removed in the last
/// seconds (`recently_deleted` in fs/ext4/ialloc.c), which says nothing of podprobe.
pub(crate) fn begin_in_memory() {
    begin_with(|| {
        private_mounts();
        mount_memory(&nodes_dir());
    });
}

/// The same with the directory `run` of each node in memory, as on a machine: what is written elsewhere is written to a disk.
pub(crate) fn begin_with_run_in_memory() {
    begin_with(|| {
        private_mounts();
        RUN_IN_MEMORY.store(true, Ordering::Relaxed);
    });
}

/// True after [`begin_with_run_in_memory`].
pub(crate) static RUN_IN_MEMORY: AtomicBool = AtomicBool::new(false);

/// Mounts of this bench are seen by what it starts, and by nobody else.
fn private_mounts() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
}

pub(crate) fn mount_memory(dir: &Path) {
    let none = None::<&str>;
    mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), none).unwrap();
}

/// Runs `prepare` before there is another thread.
fn begin_with(prepare: impl FnOnce()) {
    // `cargo test --benches` and `cargo bench -- --list` are no measurements.
    if std::env::args().any(|a| a == "--test" || a == "--list") {
        exit(0);
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!(
            "benches need root, for containers need mounts, namespaces and cgroups: run them again with sudo"
        );
        exit(1);
    }
    prepare();
    let mut signals = SigSet::empty();
    signals.extend([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    // Before any other thread, so that every thread inherits it.
    signals.thread_block().unwrap();
    std::thread::spawn(move || {
        let signal = signals.wait().unwrap();
        eprintln!("{signal}: ending what runs");
        // The bench itself fails when its node goes from under it; that is no news.
        std::panic::set_hook(Box::new(|_| {}));
        // Kept locked: nothing new begins meanwhile.
        let mut all = CLEANUPS.lock().unwrap();
        while let Some((_, action)) = all.pop_last() {
            action();
        }
        exit(130);
    });
}

/// Ends the bench where one of these programs is missing, so that nobody takes no figure for a good one.
pub(crate) fn need(what: &str, programs: &[&str]) {
    let is_there = |program: &str| {
        let mut ask = Command::new(program);
        let ask = ask.arg("--help").stdout(Stdio::null());
        ask.stderr(Stdio::null()).status().is_ok()
    };
    let missing: Vec<_> = programs.iter().filter(|p| !is_there(p)).copied().collect();
    if !missing.is_empty() {
        eprintln!(
            "\n==== NOT MEASURED: {what}. This needs {}; on Debian: apt-get install {}\n",
            missing.join(" and "),
            missing.join(" ")
        );
        exit(1);
    }
}

/// `NAME` of the environment as a number, or the default.
pub(crate) fn setting(name: &str, default: usize) -> usize {
    let Ok(text) = std::env::var(name) else {
        return default;
    };
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is not a number: {text}"))
}

/// Numbers with commas between them from the environment.
pub(crate) fn settings(name: &str, default: &[usize]) -> Vec<usize> {
    let Ok(text) = std::env::var(name) else {
        return default.to_vec();
    };
    text.split(',')
        .map(|n| {
            n.trim()
                .parse()
                .unwrap_or_else(|_| panic!("{name} is not a list of numbers: {text}"))
        })
        .collect()
}

/// The binary that is measured: `$PODPROBE`, or the static one of `make static`, or cargo's own.
pub(crate) fn program() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let static_one = root.join(format!("target/static/podprobe-{}", std::env::consts::ARCH));
    match std::env::var_os("PODPROBE") {
        Some(path) => std::path::absolute(path).unwrap(),
        None if static_one.exists() => static_one,
        None => env!("CARGO_BIN_EXE_podprobe").into(),
    }
}

/// Whether a source is younger than the binary that is measured.
pub(crate) fn is_stale(program: &Path) -> bool {
    fn newest(dir: &Path) -> SystemTime {
        let of = |e: std::fs::DirEntry| {
            if e.path().is_dir() {
                newest(&e.path())
            } else {
                e.metadata().unwrap().modified().unwrap()
            }
        };
        std::fs::read_dir(dir)
            .unwrap()
            .flatten()
            .map(of)
            .max()
            .unwrap_or(UNIX_EPOCH)
    }
    newest(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
        > program.metadata().unwrap().modified().unwrap()
}

/// Where figures and the nodes' roots go.
pub(crate) fn out_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Where the nodes have their roots.
pub(crate) fn nodes_dir() -> PathBuf {
    let dir = out_dir().join("nodes");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// The wall clock in nanoseconds, which every process of the machine shares.
pub(crate) fn unix_ns() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos()
}

/// Milliseconds from one such time to another.
pub(crate) fn ms_between(from: u128, to: u128) -> f64 {
    (to as f64 - from as f64) / 1e6
}

/// A condition with a ceiling.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + CEILING;
    while !condition() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
