//! A machine for manifests that name its paths and ports: a network and a file tree of their own over the real ones.
//! What is written to them lies below the test's directory and ends with the processes that see it.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const BUSYBOX: &str = "/usr/bin/busybox";

/// The machine's address besides loopback.
pub(crate) const ADDRESS: &str = "192.168.0.10";

/// Directories that manifests write to.
const TREES: [&str; 7] = ["/etc", "/opt", "/run", "/srv", "/usr", "/var", "/dev"];

/// Runs `inside` on a thread whose children, the daemon among them, are on a machine of their own. `dir` keeps what they
/// write, and is the same on both; its `var/log` below `root` is the machine's /var/log, as that of a daemon without
/// `--root`.
pub(crate) fn on_its_own<T: Send>(dir: &Path, root: &Path, inside: impl FnOnce() -> T + Send) -> T {
    let run = || {
        enter(dir, root);
        inside()
    };
    std::thread::scope(|s| match s.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn enter(dir: &Path, root: &Path) {
    let covered = TREES.iter().find(|tree| dir.starts_with(tree));
    assert!(
        covered.is_none(),
        "{} lies below {covered:?}: set TMPDIR to another directory",
        dir.display()
    );
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
    // Nothing goes back to the real machine, and mounts go on into containers as on a machine of systemd's.
    remount(MsFlags::MS_SLAVE);
    remount(MsFlags::MS_SHARED);
    let kept =
        ["pts", "shm"].map(|name| (Path::new("/dev").join(name), dir.join("dev").join(name)));
    for (at, keep) in &kept {
        fs::create_dir_all(keep).unwrap();
        bind(at, keep);
    }
    for tree in TREES {
        overlay(Path::new(tree), &dir.join("machine").join(&tree[1..]));
    }
    for (at, keep) in &kept {
        bind(keep, at);
    }
    let log = root.join("var/log");
    fs::create_dir_all(&log).unwrap();
    bind(&log, Path::new("/var/log"));
    ip(&["link", "set", "lo", "up"]);
    ip(&["addr", "add", &format!("{ADDRESS}/24"), "dev", "lo"]);
}

fn remount(propagation: MsFlags) {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | propagation, none).unwrap();
}

fn bind(from: &Path, to: &Path) {
    let none = None::<&str>;
    mount(Some(from), to, none, MsFlags::MS_BIND, none)
        .unwrap_or_else(|e| panic!("{} on {}: {e}", from.display(), to.display()));
}

fn overlay(tree: &Path, kept: &Path) {
    let (upper, work) = (kept.join("upper"), kept.join("work"));
    fs::create_dir_all(&upper).unwrap();
    fs::create_dir_all(&work).unwrap();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        tree.display(),
        upper.display(),
        work.display()
    );
    let none = MsFlags::empty();
    mount(
        Some("overlay"),
        tree,
        Some("overlay"),
        none,
        Some(options.as_str()),
    )
    .unwrap_or_else(|e| panic!("an overlay over {}: {e}", tree.display()));
}

fn ip(words: &[&str]) {
    let done = Command::new(BUSYBOX)
        .arg("ip")
        .args(words)
        .output()
        .unwrap();
    assert!(done.status.success(), "{words:?}: {done:?}");
}
