use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use super::*;
use crate::net::network::cni::lock::unlocked_input;

/// A time limit that a passing test never reaches.
const LONG: Duration = Duration::from_secs(60);

struct Script {
    dir: tempfile::TempDir,
    program: PathBuf,
    cancel: Cancel,
}

fn script(body: &str) -> Script {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("p");
    fs::write(&program, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Script {
        dir,
        program,
        cancel: Cancel::default(),
    }
}

impl Script {
    fn run(&self, limit: Duration) -> Result<Vec<u8>, Cause> {
        self.of(limit).output()
    }

    fn of(&self, limit: Duration) -> Run<'_> {
        Run {
            program: &self.program,
            environment: vec![("PATH", "/usr/bin:/bin".into()), ("A", "b".into())],
            input: unlocked_input(b"given").unwrap(),
            limit,
            slow: Slow {
                after: LONG,
                say: &|| (),
            },
            cancel: &self.cancel,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Waits for the end of a process, and returns true if it ended within `LONG`.
fn ends(pid: &str) -> bool {
    let status = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let begin = Instant::now();
    while begin.elapsed() < LONG {
        if matches!(status().rsplit(") ").next(), None | Some("")) || status().contains(") Z ") {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

#[test]
fn a_plugin_gets_its_input_and_only_its_environment() {
    let script = script("cat; env | sort");
    let output = String::from_utf8(script.run(LONG).unwrap()).unwrap();
    assert!(output.starts_with("givenA=b\n"), "{output}");
    assert!(
        !output.contains("CARGO") && !output.contains("HOME"),
        "{output}"
    );
}

#[test]
fn a_plugin_that_fails_is_shown_with_its_end() {
    let error = |body| script(body).run(LONG).unwrap_err().to_string();
    assert_eq!(
        error("echo why >&2; exit 3"),
        "exit status 3 without an error message; stderr: why"
    );
    assert_eq!(
        error("kill -9 $$"),
        "ended by signal 9 without an error message"
    );
    assert_eq!(
        error(r#"echo '{"code": 50, "msg": "m"}'; exit 1"#),
        "m (code 50, the plugin is not available)"
    );
}

#[test]
fn a_plugin_that_hangs_is_killed_with_all_that_it_started() {
    let script = script("sleep 1000 & echo $! > \"$0.child\"; sleep 1000");
    let begin = Instant::now();
    let limit = Duration::from_millis(300);
    let error = script.run(limit).unwrap_err();
    assert_eq!(error.to_string(), "not done after 300ms; it was killed");
    assert!(begin.elapsed() < LONG);
    assert!(ends(&fs::read_to_string(script.path("p.child")).unwrap()));
}

#[test]
fn a_plugin_that_writes_without_end_is_killed() {
    let error = script("exec yes").run(LONG).unwrap_err();
    assert!(matches!(error, Cause::TooMuch(MOST_OUTPUT)), "{error}");
    // Standard error may be larger than the limit. Only the end of standard error is kept.
    let error = script("yes | head -c 3000000 >&2; echo end >&2; exit 1")
        .run(LONG)
        .unwrap_err();
    assert!(error.to_string().ends_with("y y end"), "{error}");
    // An output whose size is exactly the limit is allowed.
    let output = script("yes | head -c 1048576").run(LONG).unwrap();
    assert_eq!(output.len(), MOST_OUTPUT);
}

#[test]
fn a_plugin_may_leave_a_process_that_keeps_its_output_open() {
    let script = script("sleep 1000 & echo $! > \"$0.child\"; echo done");
    assert_eq!(script.run(LONG).unwrap(), b"done\n");
    let child = fs::read_to_string(script.path("p.child")).unwrap();
    let child = Pid::from_raw(child.trim().parse().unwrap());
    nix::sys::signal::kill(child, Signal::SIGKILL).unwrap();
}

#[test]
fn a_plugin_ends_with_the_daemon() {
    let script = script("echo > \"$0.up\"; exec sleep 1000");
    std::thread::scope(|s| {
        let run = s.spawn(|| script.run(LONG));
        while !script.path("p.up").exists() {
            std::thread::yield_now();
        }
        script.cancel.cancel();
        assert!(matches!(run.join().unwrap(), Err(Cause::Stopped)));
    });
    assert!(matches!(script.run(LONG), Err(Cause::Stopped)));
}

#[test]
fn what_cannot_be_run_is_named() {
    let script = script("");
    fs::set_permissions(&script.program, fs::Permissions::from_mode(0o644)).unwrap();
    let error = script.run(LONG).unwrap_err().to_string();
    let expected = format!("cannot run {}: Permission denied", script.program.display());
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_program_that_is_being_written_is_tried_again() {
    let script = script("exit 3");
    let writer = File::options().append(true).open(&script.program).unwrap();
    let writer = std::cell::RefCell::new(Some(writer));
    let mut child = script.of(LONG).start(|_| drop(writer.take())).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(writer.take().is_none());
}

#[test]
fn of_a_plugin_that_takes_long_it_is_said_once() {
    let script = script("read go < $0.gate; echo $go");
    let gate = script.path("p.gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let said = std::cell::Cell::new(0);
    // The plugin waits at the gate until the message is logged.
    let say = || {
        said.set(said.get() + 1);
        fs::write(&gate, "went on\n").unwrap();
    };
    let mut run = script.of(LONG);
    run.slow = Slow {
        after: Duration::from_millis(10),
        say: &say,
    };
    assert_eq!(run.output().unwrap(), b"went on\n");
    assert_eq!(said.get(), 1);
}
