//! What an exec probe costs, beside the floor (posix_spawn of the same command on the host) and its peers: processor time
//! of every process involved, and latency. `RUNS` rounds (default 100); each round runs each of them once, ours also from
//! a process with 1,000 threads and 200 MB of heap. Then the daemon itself with exec probes (exec/daemon.rs).
//!
//! The peers' containers are made by the peers themselves, from one configuration, and each runs `busybox true`.

#[path = "exec/daemon.rs"]
mod daemon;
#[path = "exec/grown.rs"]
mod grown;
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use grown::Grown;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use podprobe::base::sys::task::start_time;
use podprobe::engine::nsexec::{Config, Options, Target, exec_with};
use podprobe::engine::runtime::ExecOutcome;
use serde_json::{Value, json};
use support::figures::Report;
use support::runc::{self, Container};
use support::usage::own_cpu_us;

const BUSYBOX: &str = "/usr/bin/busybox";
const FLOOR: &str = "posix_spawn on the host";
const OURS: &str = "podprobe";
const SCORED: &str = "podprobe, with an oom_score_adj";
const SMALL: &str = "podprobe, from a small process";
/// The other way that is flat in threads and heap: a process made before asks nothing of the daemon's memory.
const ASKED: &str = "podprobe, a small process asked through a pipe";
const BIG: &str = "podprobe, with 1,000 threads and 200 MB";
/// Of rounds: an OCI runtime is so much slower that fewer of them tell as much.
const PEERS_EVERY: usize = 5;

/// What is measured: its name, how often, and one run of it.
type Runner<'a> = (&'a str, usize, Box<dyn Fn() + 'a>);

fn main() {
    grown::role();
    support::begin();
    let runc = runc::find("runc").filter(|_| Path::new(BUSYBOX).exists());
    let Some(runc) = runc else {
        eprintln!("the exec bench needs runc and a static {BUSYBOX}");
        std::process::exit(1);
    };
    let plain = running(&runc, "plain", |_| {}).unwrap();
    let privileged = running(&runc, "privileged", privileged).unwrap();
    // crun refuses hybrid cgroups; then there is nothing to compare with.
    let crun = runc::find("crun")
        .ok_or("crun is not installed".to_owned())
        .and_then(|p| running(&p, "crun", |_| {}));
    let mut scored = needed(&plain.container);
    scored.process.oom_score_adj = Some(1000);
    let mut grown = [
        (SMALL, Grown::start(0, 0, &plain)),
        (BIG, Grown::start(1000, 200, &plain)),
    ];
    let mut runners: Vec<Runner<'_>> = vec![
        (FLOOR, 1, Box::new(host)),
        (OURS, 1, Box::new(|| plain.ours())),
        (
            SCORED,
            1,
            Box::new(|| ours(plain.pid, plain.start_time, &scored)),
        ),
        (
            "podprobe, through the helper",
            PEERS_EVERY,
            Box::new(|| privileged.ours()),
        ),
        ("nsenter", PEERS_EVERY, Box::new(|| nsenter(plain.pid))),
        ("runc exec", PEERS_EVERY, Box::new(|| peer(&plain))),
    ];
    if let Ok(crun) = &crun {
        runners.push(("crun exec", PEERS_EVERY, Box::new(|| peer(crun))));
    }
    let mut report = measure(&runners, &mut grown, support::setting("RUNS", 100));
    drop(grown);
    daemon::measure(&mut report);
    report.ratio(
        "cpu, podprobe / posix_spawn",
        &cpu_of(OURS),
        &cpu_of(FLOOR),
        Some(1.5),
    );
    report.ratio(
        "cpu, podprobe with an oom_score_adj / posix_spawn",
        &cpu_of(SCORED),
        &cpu_of(FLOOR),
        Some(1.5),
    );
    report.ratio(
        "cpu, 1,000 threads and 200 MB / small",
        &cpu_of(BIG),
        &cpu_of(SMALL),
        Some(1.3),
    );
    for (name, ..) in &runners[4..] {
        let target = (*name == "runc exec").then_some(1.0 / 25.0);
        report.ratio(
            &format!("cpu, podprobe / {name}"),
            &cpu_of(OURS),
            &cpu_of(name),
            target,
        );
    }
    report.note(
        "cpu is user and system time of the caller and of every child it waited for (getrusage), and of the spawner"
            .into(),
    );
    report.note("the daemon's is what its cgroup and its containers' cgroups used (cpuacct.usage, cpu.stat)".into());
    if let Err(e) = &crun {
        report.note(format!("not compared: {e}"));
    }
    match runc::find("containerd") {
        None => report.note("containerd's ExecSync: not installed".into()),
        Some(_) => {
            report.note("containerd's ExecSync: installed, but not driven by this bench".into())
        }
    }
    report.finish();
}

/// Microseconds that this thread, the children that were waited for and the spawner of the commands have used. What the
/// spawner does for a command ends before the command's start does.
fn used_us() -> u64 {
    static SPAWNER: OnceLock<ClockId> = OnceLock::new();
    let clock = SPAWNER.get().copied().or_else(|| {
        let clock = clock_getcpuclockid(spawner()?).unwrap();
        Some(*SPAWNER.get_or_init(|| clock))
    });
    let spawner = clock.map_or(Duration::ZERO, |c| clock_gettime(c).unwrap().into());
    own_cpu_us() + spawner.as_micros() as u64
}

/// Our child in that role, once there is one.
fn spawner() -> Option<Pid> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.map(|t| fs::read_to_string(t.path().join("children")).unwrap_or_default());
    let pids: Vec<i32> = children
        .flat_map(|c| {
            c.split_whitespace()
                .map(|p| p.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    let named = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0nsexec\0"))
    };
    pids.into_iter().find(named).map(Pid::from_raw)
}

fn cpu_of(name: &str) -> String {
    format!("{name}: cpu")
}

fn measure(runners: &[Runner<'_>], grown: &mut [(&str, Grown)], rounds: usize) -> Report {
    let mut report = Report::new("exec");
    // First uses read files and make caches.
    runners.iter().for_each(|(.., run)| run());
    for round in 0..rounds {
        // Each is the first of some rounds: what ran before decides what is left in the processor's caches.
        let order = runners
            .iter()
            .cycle()
            .skip(round % runners.len())
            .take(runners.len());
        for (name, _, run) in order.filter(|(_, every, _)| round % every == 0) {
            let (cpu, begun) = (used_us(), Instant::now());
            run();
            let (wall, cpu) = (begun.elapsed(), used_us() - cpu);
            report.add(&cpu_of(name), "µs", None, cpu as f64);
            report.add(
                &format!("{name}: latency"),
                "µs",
                None,
                wall.as_secs_f64() * 1e6,
            );
        }
        for (name, process) in grown.iter_mut() {
            let (asking, begun) = (own_cpu_us(), Instant::now());
            let cost = process.run();
            if *name == SMALL {
                let asked = (own_cpu_us() - asking) as f64 + cost.cpu;
                report.add(&cpu_of(ASKED), "µs", None, asked);
                report.add(
                    &format!("{ASKED}: latency"),
                    "µs",
                    None,
                    begun.elapsed().as_secs_f64() * 1e6,
                );
            }
            report.add(&cpu_of(name), "µs", None, cost.cpu);
            report.add(&format!("{name}: latency"), "µs", None, cost.wall);
        }
    }
    report
}

fn host() {
    assert!(
        Command::new(BUSYBOX)
            .arg("true")
            .stdin(Stdio::null())
            .output()
            .unwrap()
            .status
            .success()
    );
}

fn nsenter(pid: i32) {
    let mut command = Command::new("nsenter");
    command.args(["--all", "--target", &pid.to_string(), "/bin/true"]);
    assert!(
        command
            .stdin(Stdio::null())
            .output()
            .unwrap()
            .status
            .success()
    );
}

fn peer(r: &Running) {
    assert!(
        r.container
            .output(&["exec", &r.container.id, "/bin/true"])
            .status
            .success()
    );
}

/// A container that sleeps.
struct Running {
    container: Container,
    /// The part of its configuration that a command is run by.
    config: Config,
    pid: i32,
    start_time: u64,
}

impl Running {
    fn ours(&self) {
        ours(self.pid, self.start_time, &self.config);
    }
}

fn ours(pid: i32, start_time: u64, config: &Config) {
    let options = Options {
        helper: support::program(),
        ..Options::default()
    };
    let target = Target {
        pid,
        start_time,
        config,
        cgroup: "",
    };
    let outcome = exec_with(
        &options,
        &target,
        &["/bin/true".to_owned()],
        Duration::from_secs(20),
        10240,
    );
    assert_eq!(
        outcome,
        Ok(ExecOutcome::Exited {
            code: 0,
            output: Vec::new()
        })
    );
}

fn running(runtime: &Path, name: &str, change: impl FnOnce(&mut Value)) -> Result<Running, String> {
    let dir = support::out_dir().join(format!("spec-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let made = Command::new(runtime)
        .arg("spec")
        .current_dir(&dir)
        .status()
        .unwrap();
    let config = fs::read(dir.join("config.json")).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    assert!(made.success());
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["/bin/sleep", "100000"]);
    config["process"]["env"] = json!(["PATH=/bin"]);
    config["linux"].as_object_mut().unwrap().remove("seccomp");
    change(&mut config);
    let container = Container::new(runtime, name, config, fill);
    container.start()?;
    let pid = container.pid();
    let start_time = start_time(pid).unwrap();
    Ok(Running {
        config: needed(&container),
        container,
        pid,
        start_time,
    })
}

fn needed(container: &Container) -> Config {
    serde_json::from_value(container.config.clone()).unwrap()
}

fn fill(root: &Path) {
    let bin = root.join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy(BUSYBOX, bin.join("busybox")).unwrap();
    ["sleep", "true"]
        .iter()
        .for_each(|name| std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap());
}

/// May trace other processes, so what enters it goes through the helper process (exec-in-container 4).
fn privileged(config: &mut Value) {
    for set in ["bounding", "effective", "permitted"] {
        config["process"]["capabilities"][set]
            .as_array_mut()
            .unwrap()
            .push(json!("CAP_SYS_PTRACE"));
    }
}
