//! The machine's first process: in the initrd until the root is mounted, then as pid 1 of the root.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use crate::sys;

/// The guest's time that the whole suite may take. It is reached soon when everything waits, because idle time passes at once.
const CEILING: Duration = Duration::from_secs(2400);

/// Writes a line into the kernel's log, whole, at a level that is printed on the console.
pub fn say(line: &str) {
    let Ok(mut log) = File::options().write(true).open("/dev/kmsg") else {
        return;
    };
    let line: String = line.chars().take(800).collect();
    // Nobody is left to be told of a failure here.
    let _ = log.write_all(format!("<2>vm: {}", line.replace('\n', " | ")).as_bytes());
}

fn fatal(what: &str, e: &std::io::Error) -> ! {
    say(&format!("FAIL boot: {what}: {e}"));
    sys::end_machine()
}

fn mount(source: &str, target: &str, kind: &str) {
    if let Err(e) = fs::create_dir_all(target)
        .and_then(|()| sys::mount_at(source, target, kind, sys::MS_NOSUID, ""))
    {
        fatal(&format!("mount {target}"), &e);
    }
}

/// Inserts the modules that the root needs, mounts it, and goes on there.
pub fn from_initrd() -> ExitCode {
    mount("dev", "/dev", "devtmpfs");
    let mut modules: Vec<_> = fs::read_dir("/modules")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    modules.sort();
    for module in modules {
        let inserted = File::open(&module).and_then(|file| sys::insert_module(file.as_raw_fd()));
        if let Err(e) = inserted {
            say(&format!("note: {}: {e}", module.display()));
        }
    }
    let begun = Instant::now();
    while !Path::new("/dev/vdb").exists() {
        if begun.elapsed() > Duration::from_secs(30) {
            fatal("disks", &std::io::Error::other("no /dev/vdb after 30 s"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    if let Err(e) = fs::create_dir_all("/root")
        .and_then(|()| sys::mount_at("/dev/vda", "/root", "ext4", 0, ""))
        .and_then(|()| sys::mount_at("/dev", "/root/dev", "", sys::MS_MOVE, ""))
        .and_then(|()| std::env::set_current_dir("/root"))
        .and_then(|()| sys::mount_at(".", "/", "", sys::MS_MOVE, ""))
        .and_then(|()| sys::root_here())
    {
        fatal("root", &e);
    }
    let e = Command::new("/vm/guest").arg("init").exec();
    fatal("/vm/guest", &e)
}

/// Mounts what a node has, runs the suite, reaps what is orphaned, and ends the machine.
pub fn first_process() -> ExitCode {
    mount("proc", "/proc", "proc");
    mount("sys", "/sys", "sysfs");
    mount("pts", "/dev/pts", "devpts");
    mount("shm", "/dev/shm", "tmpfs");
    mount("run", "/run", "tmpfs");
    mount("tmp", "/tmp", "tmpfs");
    mount("cgroup", "/sys/fs/cgroup", "cgroup2");
    mount("security", "/sys/kernel/security", "securityfs");
    if let Err(e) = sys::set_host_name("vm") {
        fatal("host name", &e);
    }
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let only = line.split_whitespace();
    let only = only.filter_map(|w| w.strip_prefix("vm.only=")).next_back();
    let suite = Command::new("/vm/guest")
        .args(["suite", only.unwrap_or("")])
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/sbin")
        .spawn();
    let suite = match suite {
        Ok(child) => child.id(),
        Err(e) => fatal("suite", &e),
    };
    thread::spawn(|| {
        thread::sleep(CEILING);
        say("FAIL suite: it is not over after 2400 s of the machine's time");
        sys::end_machine();
    });
    while let Some(pid) = sys::wait_any() {
        if pid == suite {
            break;
        }
    }
    sys::end_machine()
}
