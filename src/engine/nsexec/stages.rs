//! Tests in which the container ends between two steps of an exec, and another process gets its pid. In none of these
//! tests may a command run anywhere.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::base::clock::Moment;
use crate::base::sys::task::start_time;
use crate::skip::is_root;

/// A process in its own namespaces, with the root of this machine. The process is ended and reaped when this value is
/// dropped.
struct Container {
    unshare: Child,
    pid: i32,
    start_time: u64,
}

impl Container {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--pid",
                "--net",
                "--fork",
                "--kill-child=KILL",
                "sleep",
                "1000",
            ])
            .stdin(Stdio::null());
        let mut made = Container {
            unshare: command.spawn().unwrap(),
            pid: 0,
            start_time: 0,
        };
        let pid = made.unshare.id();
        until("the process in its namespaces", || {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            made.pid = children.trim().parse().unwrap_or(0);
            fs::read_to_string(format!("/proc/{}/cmdline", made.pid))
                .is_ok_and(|c| c.starts_with("sleep"))
        });
        made.start_time = start_time(made.pid).unwrap();
        made
    }

    fn end(&mut self) {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.pid),
            nix::sys::signal::Signal::SIGKILL,
        );
        let _ = self.unshare.wait();
        until("the pid to be free", || {
            !Path::new(&format!("/proc/{}", self.pid)).exists()
        });
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::yield_now();
    }
}

/// A process of the node, outside of all containers. The process is killed and reaped when this value is dropped.
struct Stranger(Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process of the node that gets the pid `pid`, which must be free. Returns None if the kernel does not let a
/// test choose pids.
fn stranger(pid: i32) -> Option<Stranger> {
    for _ in 0..1000 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let found = Stranger(
            Command::new("sleep")
                .arg("1000")
                .stdin(Stdio::null())
                .spawn()
                .unwrap(),
        );
        if found.0.id() == pid as u32 {
            return Some(found);
        }
    }
    panic!("no process got pid {pid}")
}

fn config() -> Config {
    let process =
        json!({"user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin:/usr/bin", "HOME=/"], "cwd": "/"});
    serde_json::from_value(json!({"process": process})).unwrap()
}

/// Prepares an exec, calls `between`, and runs the command. The exec must fail, and the command must not have run.
#[track_caller]
fn check(between: impl FnOnce(&mut Container)) -> ExecError {
    let (mut container, config) = (Container::new(), config());
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let command = ["touch".to_owned(), ran.to_str().unwrap().to_owned()];
    let target = Target {
        pid: container.pid,
        start_time: container.start_time,
        config: &config,
        cgroup: "",
    };
    let limits = Limits {
        timeout: Duration::from_secs(20),
        output: 100,
        interrupt: None,
        cancel: None,
    };
    let helper = Options::default().helper;
    // Without a call between the two steps the command runs. This shows that the test would notice a command that runs.
    let (facts, plan) = prepare(&target, &command).unwrap();
    assert_eq!(
        execute(facts, plan, &helper, &command, limits),
        Ok(ExecOutcome::Exited {
            code: 0,
            output: vec![]
        })
    );
    fs::remove_file(&ran).unwrap();
    let (facts, plan) = prepare(&target, &command).unwrap();
    between(&mut container);
    let e = execute(facts, plan, &helper, &command, limits).unwrap_err();
    assert!(!ran.exists(), "it ran: {e}");
    assert_eq!(
        prepare(&target, &command).err(),
        Some(ExecError::NotRunning { pid: container.pid })
    );
    e
}

#[test]
fn a_container_that_ended_after_it_was_looked_at_is_not_entered() {
    if is_root() {
        let e = check(Container::end);
        assert!(
            matches!(
                e,
                ExecError::Step {
                    step: Step::Setns,
                    errno: libc::ESRCH,
                    ..
                }
            ),
            "{e}"
        );
    }
}

#[test]
fn nor_is_the_process_that_has_its_pid_by_then() {
    if !is_root() {
        return;
    }
    let mut stranger_found = None;
    let e = check(|container| {
        container.end();
        // before Linux 6.9 only the start time distinguishes the two processes with the same pid
        until("a start time of its own", || {
            Moment::now().since_boot().as_millis() / 10 > u128::from(container.start_time)
        });
        stranger_found = stranger(container.pid);
    });
    if stranger_found.is_none() {
        crate::skip::note("this kernel lets nobody choose a pid (ns_last_pid)");
    }
    assert!(
        matches!(
            e,
            ExecError::Step {
                step: Step::Setns,
                errno: libc::ESRCH,
                ..
            }
        ),
        "{e}"
    );
}
