//! Tests that the optimisations of an exec change nothing of its result. The "container" is a process in the namespaces
//! of the test, with its own cgroups, so that the tests need only root.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::facts::{SEEN, Seen, inode_of};
use super::*;
use crate::base::clock::Moment;
use crate::base::sys;
use crate::base::sys::process::status_mask;
use crate::base::sys::task::{PidFd, start_time};
use crate::skip::is_root;

/// Not a test: runs this program as the spawner for the other tests. [`super::spawner`] starts the program in this
/// role.
#[test]
fn spawner_role() {
    if std::env::var_os("NSEXEC_ROLE").is_some() {
        helper_main([]);
        std::process::exit(0);
    }
}

/// Not a test: runs this program as a process of the container. The process traces each command in the container, and
/// waits for none of these commands.
#[test]
fn tracer_role() {
    let Some(cgroup) = std::env::var_os("NSEXEC_TRACE") else {
        return;
    };
    let cgroup = PathBuf::from(cgroup);
    loop {
        for pid in sys::cgroup_tree::processes(&cgroup.join("traced")) {
            let pid = nix::unistd::Pid::from_raw(pid);
            if nix::sys::ptrace::seize(pid, nix::sys::ptrace::Options::empty()).is_ok() {
                let _ = fs::create_dir(cgroup.join("go"));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process that sleeps, with its own cgroup in each hierarchy. The process and the cgroups are removed when this
/// value is dropped.
struct Sleeper {
    child: Child,
    start: u64,
    config: Config,
    dirs: Vec<PathBuf>,
}

impl Sleeper {
    fn new() -> Self {
        let child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let name = format!("test-{}", cgroup::unique());
        let dirs: Vec<PathBuf> = cgroup::places_of(&own)
            .iter()
            .map(|p| p.dir().join(&name))
            .collect();
        let process = json!({"user": {"uid": 0, "gid": 0}, "env": ["PATH=/usr/bin:/bin", "HOME=/"], "cwd": "/"});
        let config = serde_json::from_value(json!({"process": process})).unwrap();
        let sleeper = Self {
            child,
            start: start_time(pid).unwrap(),
            config,
            dirs,
        };
        sleeper.dirs.iter().for_each(|d| sleeper.join(d));
        sleeper
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn join(&self, dir: &std::path::Path) {
        fs::create_dir(dir).unwrap();
        // A new cpuset of v1 has no processors and no memory until its files are written.
        for file in ["cpuset.cpus", "cpuset.mems"]
            .iter()
            .filter(|f| dir.join(f).exists())
        {
            if let Ok(above) = fs::read(dir.parent().unwrap().join(file)) {
                let _ = fs::write(dir.join(file), above);
            }
        }
        fs::write(dir.join("cgroup.procs"), self.pid().to_string()).unwrap();
    }

    fn target(&self) -> Target<'_> {
        Target {
            pid: self.pid(),
            start_time: self.start,
            config: &self.config,
            cgroup: "",
        }
    }

    #[track_caller]
    fn output(&self, command: &[&str]) -> String {
        self.output_with(&Options::default(), command)
    }

    #[track_caller]
    fn output_with(&self, options: &Options<'_>, command: &[&str]) -> String {
        let command: Vec<String> = command.iter().map(|s| (*s).to_owned()).collect();
        let limit = Duration::from_secs(20);
        match exec_with(options, &self.target(), &command, limit, 1 << 16) {
            Ok(ExecOutcome::Exited { code: 0, output }) => String::from_utf8(output).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Checks the cgroups of a command: they are those of the sleeping process, except in the leaf's hierarchy. In this
    /// hierarchy the command's cgroup lies below that of the process.
    #[track_caller]
    fn check_cgroups(&self) {
        self.check_cgroups_with(&Options::default());
    }

    #[track_caller]
    fn check_cgroups_with(&self, options: &Options<'_>) {
        let theirs = fs::read_to_string(format!("/proc/{}/cgroup", self.pid())).unwrap();
        let ours = self.output_with(options, &["cat", "/proc/self/cgroup"]);
        assert_eq!(ours.lines().count(), theirs.lines().count());
        let mut below = 0;
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            match ours.strip_prefix(theirs) {
                Some("") => {}
                Some(leaf) if leaf.starts_with("/exec-") => below += 1,
                _ => panic!("{ours} is not in {theirs}"),
            }
        }
        assert_eq!(below, 1);
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.dirs.iter().rev().for_each(|d| drop(fs::remove_dir(d)));
    }
}

#[test]
fn a_command_is_in_every_cgroup_of_the_container_also_when_that_moves() {
    if !is_root() {
        return;
    }
    let mut s = Sleeper::new();
    s.check_cgroups();
    s.check_cgroups();
    for inner in s.dirs.iter().map(|d| d.join("inner")).collect::<Vec<_>>() {
        s.join(&inner);
        s.dirs.push(inner);
        s.check_cgroups();
    }
}

/// Without v2 the leaf lies in the freezer hierarchy of v1, and the command joins the leaf in this hierarchy.
#[test]
fn without_v2_the_leaf_that_can_be_frozen_is_joined() {
    if !is_root() {
        return;
    }
    let s = Sleeper::new();
    let lines = fs::read_to_string(format!("/proc/{}/cgroup", s.pid())).unwrap();
    let v1: String = lines
        .lines()
        .filter(|l| !l.starts_with("0::"))
        .map(|l| format!("{l}\n"))
        .collect();
    let places = cgroup::places_of(&v1);
    if !v1.contains(":freezer:") {
        return crate::skip::note("needs the freezer hierarchy of cgroup v1");
    }
    let name = cgroup::unique();
    let cgroups = Cgroups::prepare(&places, &name).unwrap();
    let files = cgroups.join.iter();
    let of_leaf = files
        .filter(|f| f.ends_with(format!("{name}/tasks")))
        .count();
    let removed = cgroups.leaf.as_ref().is_some_and(|l| l.remove());
    assert_eq!(
        (cgroups.join.len(), of_leaf, cgroups.born.is_none(), removed),
        (places.len(), 1, true, true)
    );
}

#[test]
fn without_clone3_a_command_is_where_it_belongs() {
    if !is_root() {
        return;
    }
    let s = Sleeper::new();
    // These options give a separate spawner, which is started by a thread that may not call clone3.
    let options = Options {
        helper: std::env::current_exe().unwrap(),
        ..Options::default()
    };
    let run = || {
        let filter = crate::forbidding::forbidding(libc::SYS_clone3, libc::ENOSYS);
        sys::process::apply_seccomp(&filter, 0).unwrap();
        s.check_cgroups_with(&options);
        s.output_with(
            &options,
            &["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"],
        )
    };
    let signals = std::thread::scope(|t| t.spawn(run).join().unwrap());
    assert_eq!(
        signals,
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
    );
}

#[test]
fn what_our_starter_ignores_a_command_does_not() {
    if !is_root() {
        return;
    }
    if std::env::var_os("NSEXEC_ALONE").is_none() {
        let name = "nsexec::tests::what_our_starter_ignores_a_command_does_not";
        let script = r#"trap "" HUP USR2 PIPE; exec "$0" "$1" --exact --nocapture"#;
        let me = std::env::current_exe().unwrap();
        let out = Command::new("sh")
            .args(["-c", script])
            .arg(me)
            .arg(name)
            .env("NSEXEC_ALONE", "1")
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        return;
    }
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status_mask(&own, "SigIgn:");
    assert_eq!(ignored.map(|i| i & 0x1801), Some(0x1801));
    let signals = Sleeper::new().output(&["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"]);
    assert_eq!(
        signals,
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
    );
}

/// A command does not get the failure of an earlier command, although both use the same memory for reports.
#[test]
fn a_failure_is_not_the_next_ones() {
    if !is_root() {
        return;
    }
    let mut s = Sleeper::new();
    for _ in 0..3 {
        s.config.process.cwd = "/nonexistent".into();
        let failed = exec(&s.target(), &["true".into()], Duration::from_secs(9), 9);
        assert!(
            matches!(
                failed,
                Err(ExecError::Step {
                    step: Step::Cwd,
                    ..
                })
            ),
            "{failed:?}"
        );
        s.config.process.cwd = "/".into();
        assert_eq!(s.output(&["pwd"]), "/\n");
    }
}

/// Kept facts about a container are not used for another process that has the pid of the container's first process.
#[test]
fn another_process_with_a_known_pid_is_not_entered() {
    if !is_root() {
        return;
    }
    let (s, other) = (Sleeper::new(), Sleeper::new());
    s.output(&["true"]);
    let known = Target {
        start_time: s.start + 1,
        ..s.target()
    };
    for inode in [None, inode_of(other.pid())] {
        let seen = Seen {
            inode,
            namespaces: 0,
            cgroups: String::new(),
            places: Vec::new(),
        };
        SEEN.lock()
            .unwrap()
            .insert((s.pid(), s.start + 1), Arc::new(seen));
        let r = exec(&known, &["true".into()], Duration::from_secs(9), 9);
        assert_eq!(r, Err(ExecError::NotRunning { pid: s.pid() }));
    }
    assert!(!SEEN.lock().unwrap().contains_key(&(s.pid(), s.start + 1)));
}

#[test]
fn a_thread_in_another_network_comes_into_the_containers() {
    if !is_root() {
        return;
    }
    let s = Sleeper::new();
    let of = |s: &Sleeper| s.output(&["readlink", "/proc/self/ns/net"]);
    let ours = of(&s);
    let elsewhere = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        assert_ne!(
            fs::read_link("/proc/thread-self/ns/net").unwrap().to_str(),
            Some(ours.trim())
        );
        of(&s)
    };
    assert_eq!(
        std::thread::scope(|t| t.spawn(elsewhere).join().unwrap()),
        ours
    );
}

/// Returns the spawner of this process. The process must have run a command before.
fn spawner() -> PidFd {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.map(|t| fs::read_to_string(t.path().join("children")).unwrap_or_default());
    let pids: Vec<i32> = children
        .flat_map(|c| {
            c.split_whitespace()
                .map(|p| p.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    let is = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.contains("spawner_role"))
    };
    PidFd::of(pids.into_iter().find(is).expect("a spawner")).unwrap()
}

/// Runs the test `name` again in a process of its own, so that no other test uses its spawner. Returns true in this new
/// process.
fn alone(name: &str) -> bool {
    if std::env::var_os("NSEXEC_ALONE").is_some() {
        return true;
    }
    let out = Command::new(std::env::current_exe().unwrap())
        .args([&format!("nsexec::tests::{name}"), "--exact", "--nocapture"])
        .env("NSEXEC_ALONE", "1")
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    false
}

#[test]
fn a_spawner_that_was_killed_is_started_again() {
    if !is_root() || !alone("a_spawner_that_was_killed_is_started_again") {
        return;
    }
    let s = Sleeper::new();
    for _ in 0..3 {
        assert_eq!(s.output(&["echo", "ran"]), "ran\n");
        let spawner = spawner();
        spawner.send(libc::SIGKILL).unwrap();
        assert!(spawner.wait(Duration::from_secs(20)).unwrap());
    }
}

#[test]
fn a_command_that_a_stopped_spawner_did_not_start_never_runs() {
    if !is_root() || !alone("a_command_that_a_stopped_spawner_did_not_start_never_runs") {
        return;
    }
    let (s, dir) = (Sleeper::new(), tempfile::tempdir().unwrap());
    let ran = dir.path().join("ran");
    s.output(&["true"]);
    let stopped = spawner();
    stopped.send(libc::SIGSTOP).unwrap();
    let command = ["touch", ran.to_str().unwrap()].map(str::to_owned);
    let late = exec(&s.target(), &command, Duration::from_secs(1), 9);
    assert_eq!(late, Err(ExecError::StartTimeout(10)));
    assert!(stopped.wait(Duration::ZERO).unwrap(), "it may start it yet");
    assert_eq!(s.output(&["echo", "ran"]), "ran\n");
    assert!(!ran.exists());
}

#[test]
fn an_environment_that_fits_no_message_arrives() {
    if !is_root() {
        return;
    }
    let mut s = Sleeper::new();
    let long = "x".repeat(60_000);
    let env = ["PATH=/usr/bin:/bin", "HOME=/"].map(str::to_owned);
    let more = (0..5).map(|n| format!("LONG{n}={long}"));
    s.config.process.env = env.into_iter().chain(more).collect();
    let script = "echo ${#LONG0} ${#LONG4}";
    assert_eq!(s.output(&["sh", "-c", script]), "60000 60000\n");
}

/// The AppArmor profile is set before the privileges are dropped and the seccomp filter is set. The test replaces the
/// kernel's file by a file that only root may write. The command runs without any privilege, and its seccomp profile
/// forbids writing.
#[test]
fn the_app_armor_profile_is_set_before_all_that_would_forbid_it() {
    if !is_root() {
        return;
    }
    for no_new_privs in [false, true] {
        let mut s = Sleeper::new();
        let process = &mut s.config.process;
        process.apparmor_profile = Some("my profile".into());
        (process.user.uid, process.user.gid) = (1234, 1234);
        process.no_new_privileges = no_new_privs;
        let profile = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{ "names": ["write"], "action": "SCMP_ACT_ERRNO" }],
        });
        s.config.linux.seccomp = serde_json::from_value(profile).unwrap();
        let command = ["true".to_owned()];
        let (facts, mut plan) = prepare(&s.target(), &command).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let (path, text) = plan.label.take().unwrap();
        assert_eq!(path.as_c_str(), c"/proc/self/attr/apparmor/exec");
        let fake = CString::new(file.path().as_os_str().as_bytes()).unwrap();
        plan.label = Some((fake, text));
        let limits = Limits {
            timeout: Duration::from_secs(20),
            output: 1 << 16,
            interrupt: None,
            cancel: None,
        };
        let helper = Options::default().helper;
        let ended = execute(facts, plan, &helper, &command, limits);
        let output = vec![];
        assert_eq!(ended, Ok(ExecOutcome::Exited { code: 0, output }));
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "exec my profile");
    }
}

/// A command ends although a process of the container traces it. The kernel reports the end of a command to its tracer
/// first. The tracer in this test never takes the report.
#[test]
fn a_command_that_a_process_of_the_container_traces_ends_all_the_same() {
    if !is_root() {
        return;
    }
    let s = Sleeper::new();
    let theirs = fs::read_to_string(format!("/proc/{}/cgroup", s.pid())).unwrap();
    let places = cgroup::places_of(&theirs);
    let Some(top) = places
        .iter()
        .map(|p| p.dir())
        .find(|d| d.join("cgroup.controllers").exists())
    else {
        return crate::skip::note("needs a hierarchy of cgroup v2");
    };
    let mut tracer = Command::new(std::env::current_exe().unwrap());
    tracer
        .args(["--exact", "nsexec::tests::tracer_role"])
        .env("NSEXEC_TRACE", top);
    let mut tracer = tracer
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    fs::write(top.join("cgroup.procs"), tracer.id().to_string()).unwrap();
    // The command moves to a cgroup in which the tracer looks for it. The tracer makes another cgroup when it traces
    // the command.
    let script = format!(
        "cd {} && mkdir traced && echo $$ > traced/cgroup.procs && until [ -d go ]; do :; done; exit 7",
        top.display()
    );
    let command = ["sh".to_owned(), "-c".to_owned(), script];
    let began = Moment::now();
    let done = exec_with(
        &Options::default(),
        &s.target(),
        &command,
        Duration::from_secs(20),
        100,
    );
    let took = Moment::now().since(began);
    // A tracer that was killed lets its processes go before its end can be seen.
    let ended = PidFd::of(tracer.id() as i32)
        .unwrap()
        .wait(Duration::from_secs(20))
        .unwrap();
    let _ = tracer.kill();
    tracer.wait().unwrap();
    let _ = sys::cgroup_tree::remove_below(top);
    assert_eq!(
        done,
        Ok(ExecOutcome::Exited {
            code: 7,
            output: Vec::new()
        })
    );
    assert!(ended && took < Duration::from_secs(4), "{took:?}");
}
