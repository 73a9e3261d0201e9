//! A container that is out of memory kills nobody outside of it: not who enters it. Needs root, a static busybox and a
//! memory controller.

use std::fs;
use std::path::PathBuf;

use podprobe::engine::nsexec::ExecError;
use podprobe::engine::runtime::ExecOutcome;
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{ContainerState, STATE};
use serde_json::{Value, json};

use crate::support;
use crate::support::own_process::is_own_process;
use crate::support::running::Running;
use crate::support::{CEILING, Node, sh, wait_until};

/// Kills by the kernel that the one who enters has to live through.
const KILLS: u64 = 20;

/// Spawners that one command has killed before it is given up.
const SPAWNERS: u64 = 4;

/// The container's directory of the memory controller: file names of v1 or v2.
struct Memory {
    dir: PathBuf,
    v2: bool,
}

impl Memory {
    fn of(c: &Running<'_>) -> Option<Self> {
        let state: ContainerState = c.node.record(&c.id, STATE);
        state.cgroups.into_iter().find_map(|dir| {
            let v2 = dir.join("memory.max").exists();
            (v2 || dir.join("memory.limit_in_bytes").exists()).then_some(Self { dir, v2 })
        })
    }

    fn number(&self, v1: &str, v2: &str) -> u64 {
        let file = self.dir.join(if self.v2 { v2 } else { v1 });
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    fn limit(&self, bytes: u64) {
        let file = if self.v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        // The pod's limit and those with swap are only in the way when they are lower: they are raised first.
        for dir in [self.dir.parent().unwrap(), &self.dir] {
            let _ = fs::write(dir.join("memory.memsw.limit_in_bytes"), "67108864");
        }
        let of_pod = self.dir.parent().unwrap().join(file);
        let _ = fs::write(of_pod, "67108864");
        // EBUSY: what could be freed for it was not enough; the next try takes the usage of then.
        let _ = fs::write(self.dir.join(file), bytes.to_string());
    }

    /// From here on whoever asks for memory in there gets none.
    fn fill(&self) {
        let usage = || self.number("memory.usage_in_bytes", "memory.current");
        let mut last = 0;
        wait_until("nothing to be free or freed", || {
            self.limit(usage());
            let limit = self.number("memory.limit_in_bytes", "memory.max");
            std::mem::replace(&mut last, limit) == limit && usage() + 65536 > limit
        });
    }

    /// Processes that were killed for want of memory.
    fn kills(&self) -> u64 {
        let file = if self.v2 {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = fs::read_to_string(self.dir.join(file)).unwrap();
        let count = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        count.unwrap().trim().parse().unwrap()
    }
}

/// The container's first process takes memory that nobody can free. Commands have the highest score, so they, and what
/// enters the container for them, are who is killed.
fn who_enters_lives(node: &Node, security: &Value) {
    let script = "head -c 4194304 /dev/zero > /dev/shm/full; echo up; exec sleep 100000";
    let mut container = sh("main", script);
    container["securityContext"] = security.clone();
    container["resources"] = json!({"limits": {"memory": "16Mi", "cpu": "1"}});
    let c = Running::start(node, "full", &json!({"containers": [container]}));
    let Some(memory) = Memory::of(&c) else {
        c.end();
        return support::skip::skip("no memory controller");
    };
    wait_until("the shell to become a sleep", || {
        fs::read(format!("/proc/{}/cmdline", c.process.pid))
            .is_ok_and(|line| line.starts_with(b"sleep"))
    });
    let mut config = c.config.clone();
    config["process"]["oomScoreAdj"] = json!(1000);
    let command = ["/bin/busybox", "true"].map(str::to_owned);
    let run = || c.exec_with(&config, &command, CEILING, 100);
    let done = Ok(ExecOutcome::Exited {
        code: 0,
        output: vec![],
    });
    assert_eq!(run(), done);
    // Where the kernel knows it, one who is killed takes all others along; then also the first process.
    let group = memory.dir.join("memory.oom.group");
    let grouped = group.exists() && fs::write(&group, "1").is_ok();
    memory.fill();
    // One who shares the spawner's memory is counted where the spawner is.
    let (before, mut runs, mut lost) = (memory.kills(), 0, 0);
    while memory.kills() + lost < before + KILLS && (c.process.alive() || !grouped) {
        match run() {
            Err(ExecError::SpawnerLost) => (runs, lost) = (runs + 1, lost + SPAWNERS),
            // Killed on its way in, or as the command; or there was no memory to be had for what it needs.
            Err(ExecError::Killed | ExecError::Step { .. })
            | Ok(ExecOutcome::Exited { code: 137, .. }) => runs += 1,
            Err(ExecError::NotRunning { .. }) if grouped => break,
            other => assert!(other == done && runs < 1000, "{other:?}"),
        }
    }
    let kills = memory.kills() + lost - before;
    eprintln!("{kills} kills in {runs} commands that were not run");
    assert!(grouped || c.process.alive(), "the first process was killed");
    memory.limit(64 << 20);
    assert!(grouped || run() == done);
    c.end();
}

fn embedded(name: &str, security: &Value) {
    if is_own_process(module_path!(), name) {
        support::on(RuntimeChoice::Embedded, |node| {
            who_enters_lives(node, security)
        });
    }
}

fn on_runc(name: &str, security: &Value) {
    if is_own_process(module_path!(), name) {
        support::on_runc(|node| who_enters_lives(node, security));
    }
}

fn unprivileged() -> Value {
    json!({
        "runAsUser": 1000, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

fn tracing() -> Value {
    json!({"capabilities": {"add": ["SYS_PTRACE"]}})
}

#[test]
fn a_container_out_of_memory_does_not_kill_who_enters_it() {
    let name = "a_container_out_of_memory_does_not_kill_who_enters_it";
    embedded(name, &unprivileged());
}

#[test]
fn nor_does_one_that_may_trace() {
    embedded("nor_does_one_that_may_trace", &tracing());
}

#[test]
fn nor_does_one_of_runc() {
    on_runc("nor_does_one_of_runc", &unprivileged());
}

#[test]
fn nor_does_one_of_runc_that_may_trace() {
    on_runc("nor_does_one_of_runc_that_may_trace", &tracing());
}
