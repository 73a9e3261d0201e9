//! Commands in real containers, compared with `runc exec` in the same container. Needs root, runc and busybox.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use podprobe::base::sys::task::start_time;
use podprobe::engine::nsexec::{Config, ExecError, Options, Target, exec_with};
use podprobe::engine::runtime::ExecOutcome;
use serde_json::{Value, json};

use crate::support::own_process::is_own_process;
use crate::support::skip;
use crate::support::stack;

/// True when the tests cannot run here; a panic in CI.
fn skip() -> bool {
    let root = nix::unistd::geteuid().is_root();
    let runc = Command::new("runc")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if root && runc && Path::new("/usr/bin/busybox").exists() {
        return false;
    }
    skip::skip("needs root, runc and /usr/bin/busybox");
    true
}

/// A container made by runc; deleted on drop.
struct Container {
    id: String,
    dir: tempfile::TempDir,
    pid: i32,
    start: u64,
    /// The part of its configuration that a command is run by.
    config: Config,
}

fn runc(args: &[&str]) -> std::process::Output {
    Command::new("runc")
        .args(args)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

impl Container {
    fn run(change: impl FnOnce(&mut Value)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!(
            "nsexec-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = tempfile::tempdir().unwrap();
        make_root(&dir.path().join("rootfs"));
        let spec = Command::new("runc")
            .args(["spec", "--bundle"])
            .arg(dir.path())
            .status()
            .unwrap();
        assert!(spec.success());
        let file = dir.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(["/bin/sleep", "1000"]);
        config["process"]["env"] = json!(["PATH=/usr/local/bin:/bin", "FROM=config"]);
        config["root"]["readonly"] = json!(false);
        config["linux"]["cgroupsPath"] = json!(format!("/{id}"));
        config["linux"].as_object_mut().unwrap().remove("seccomp");
        change(&mut config);
        fs::write(&file, serde_json::to_vec(&config).unwrap()).unwrap();
        let mut container = Container {
            id,
            dir,
            pid: 0,
            start: 0,
            config: serde_json::from_value(config).unwrap(),
        };
        // Its output must not be a pipe of ours: the container would hold it open.
        let log = fs::File::create(container.dir.path().join("log")).unwrap();
        let mut run = Command::new("runc");
        run.args(["run", "-d", "--bundle"])
            .arg(container.dir.path())
            .arg(&container.id);
        let status = run
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .status()
            .unwrap();
        assert!(
            status.success(),
            "{}",
            fs::read_to_string(container.dir.path().join("log")).unwrap()
        );
        let state: Value = serde_json::from_slice(&runc(&["state", &container.id]).stdout).unwrap();
        container.pid = state["pid"].as_i64().unwrap() as i32;
        container.start = start_time(container.pid).unwrap();
        container
    }

    fn plain() -> Self {
        Self::run(|_| {})
    }

    fn target(&self) -> Target<'_> {
        Target {
            pid: self.pid,
            start_time: self.start,
            config: &self.config,
            cgroup: "",
        }
    }

    fn exec(
        &self,
        command: &[&str],
        timeout: Duration,
        limit: usize,
    ) -> Result<ExecOutcome, ExecError> {
        let command: Vec<String> = command.iter().map(|s| (*s).to_owned()).collect();
        exec_with(&options(), &self.target(), &command, timeout, limit)
    }

    #[track_caller]
    fn sh(&self, script: &str) -> (i32, String) {
        match self.exec(&["sh", "-c", script], Duration::from_secs(20), 1 << 20) {
            Ok(ExecOutcome::Exited { code, output }) => {
                (code, String::from_utf8_lossy(&output).into_owned())
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = runc(&["delete", "--force", &self.id]);
        // runc leaves a cgroup in which a killed process has not quite ended.
        for cgroup in cgroups(&self.id) {
            let until = Instant::now() + Duration::from_secs(10);
            while cgroup.exists() && Instant::now() < until {
                remove_cgroup(&cgroup);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// The cgroup of that name at the top of each hierarchy.
fn cgroups(name: &str) -> Vec<PathBuf> {
    let tops = fs::read_dir("/sys/fs/cgroup").into_iter().flatten();
    let here = [PathBuf::from("/sys/fs/cgroup")].into_iter();
    here.chain(tops.flatten().map(|top| top.path()))
        .map(|top| top.join(name))
        .filter(|cgroup| cgroup.exists())
        .collect()
}

/// Removes it and those below it, as far as they are empty.
fn remove_cgroup(cgroup: &Path) {
    let below = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for child in below.filter(|c| c.file_type().is_ok_and(|t| t.is_dir())) {
        remove_cgroup(&child.path());
    }
    let _ = fs::remove_dir(cgroup);
}

fn make_root(root: &Path) {
    for d in ["bin", "dev", "proc", "sys", "etc", "tmp", "app"] {
        fs::create_dir_all(root.join(d)).unwrap();
    }
    fs::copy("/usr/bin/busybox", root.join("bin/busybox")).unwrap();
    for applet in "sh cat sleep true false ls readlink id env grep head sed yes mkfifo setsid stat dd echo sort tr".split(' ') {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234::/app:/bin/sh\n",
    )
    .unwrap();
    fs::write(root.join("bin/plain"), "text").unwrap();
    fs::write(root.join("bin/garbage"), "\x01\x02").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(root.join("bin/garbage"), mode).unwrap();
}

/// The deepest path of an exec probe, beside those of tests/kubelet/prober_net.rs.
#[test]
fn a_command_fits_well_into_a_workers_stack() {
    if skip() {
        return;
    }
    let c = Container::plain();
    let short = Duration::from_millis(200);
    let run = |command: &[&str], timeout| drop(c.exec(command, timeout, 10240).unwrap());
    stack::check_stack(
        "exec",
        stack::stack_use(|| {
            run(
                &["sh", "-c", "yes | head -c 100000"],
                Duration::from_secs(20),
            )
        }),
    );
    stack::check_stack(
        "exec that is killed",
        stack::stack_use(|| run(&["sleep", "1000"], short)),
    );
}

/// Everything a process can tell of itself, as `key value` lines. Not in it: the umask, which runc 1.1 gives to the first
/// process only, and ignored signals, which runc passes on from its caller; both have tests of their own.
const DUMP: &str = r#"
grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp|SigBlk)' /proc/self/status
for n in cgroup ipc mnt net pid user uts; do echo "ns-$n $(readlink /proc/self/ns/$n)"; done
sed 's/^/limit /; s/  */ /g' /proc/self/limits
echo "pwd $(readlink /proc/self/cwd) $(pwd)"
echo "root $(readlink /proc/self/root)"
env | grep -v -E '^(SHLVL|_|PWD|OLDPWD)=' | sort | sed 's/^/env /'
echo "oom $(cat /proc/self/oom_score_adj)"
set -- $(sed 's/.*) //' /proc/$$/stat)
echo "leader pgrp=$([ $3 = $$ ] && echo self) session=$([ $4 = $$ ] && echo self) tty=$5"
sed 's/^/cgroup /' /proc/self/cgroup
echo fds $(ls /proc/self/fd)
echo "stdin $(readlink /proc/$$/fd/0)"
echo reopened > /dev/stdout
"#;

fn parse(dump: &str) -> BTreeMap<usize, String> {
    dump.lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .enumerate()
        .collect()
}

/// What may differ, with the reason.
fn normal(line: &str) -> Option<String> {
    // v2: ours is in a leaf of its own, named after it, by which its tree is killed; runc 1.1 does not touch the v2 tree.
    // stdin: ours is the container's /dev/null; runc puts a pipe before whatever its own stdin is.
    // Open files: the Go runtime of runc 1.1 raises its own soft limit to the hard one and the command inherits that.
    if ["cgroup 0::", "stdin ", "limit Max open files"]
        .iter()
        .any(|p| line.starts_with(p))
    {
        return None;
    }
    Some(line.to_owned())
}

#[track_caller]
fn same_as_runc(c: &Container) {
    let (code, ours) = c.sh(DUMP);
    let theirs = runc(&["exec", &c.id, "sh", "-c", DUMP]);
    let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
    assert_eq!(code, 0, "{ours}");
    assert!(ours.contains("\nstdin /dev/null\n"), "{ours}");
    let lines = |d: &str| {
        parse(d)
            .into_values()
            .filter_map(|l| normal(&l))
            .collect::<Vec<_>>()
    };
    let (ours, theirs) = (lines(&ours), lines(&theirs));
    assert!(
        ours.len() > 40 && ours.iter().any(|l| l.starts_with("CapBnd")),
        "{ours:?}"
    );
    for (o, t) in ours.iter().zip(&theirs) {
        assert_eq!(o, t, "ours is left, runc's right");
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn a_command_sees_what_runc_exec_shows_by_default() {
    if skip() {
        return;
    }
    same_as_runc(&Container::plain());
}

#[test]
fn ids_groups_umask_and_directory_are_the_containers() {
    if skip() {
        return;
    }
    let c = Container::run(|c| {
        c["process"]["user"] =
            json!({"uid": 1234, "gid": 2345, "additionalGids": [7, 8, 4000], "umask": 0o027});
        c["process"]["cwd"] = json!("/app");
    });
    same_as_runc(&c);
    assert!(c.sh("env").1.contains("HOME=/app"));
    assert_eq!(c.sh("grep Umask /proc/self/status").1, "Umask:\t0027\n");
}

#[test]
fn dropped_capabilities_stay_dropped() {
    if skip() {
        return;
    }
    let c = Container::run(|c| {
        let few = json!(["CAP_CHOWN", "CAP_NET_BIND_SERVICE"]);
        c["process"]["capabilities"] = json!({"bounding": few, "effective": few, "permitted": few});
    });
    same_as_runc(&c);
    let none = Container::run(|c| c["process"]["capabilities"] = json!({}));
    same_as_runc(&none);
    assert!(
        none.sh("cat /proc/self/status")
            .1
            .contains("CapEff:\t0000000000000000")
    );
}

#[test]
fn ambient_capabilities_reach_a_user_that_is_not_root() {
    if skip() {
        return;
    }
    let c = Container::run(|c| {
        let few = json!(["CAP_NET_BIND_SERVICE"]);
        c["process"]["user"] = json!({"uid": 1234, "gid": 1234});
        c["process"]["capabilities"] = json!({"bounding": few, "effective": few, "permitted": few, "inheritable": few, "ambient": few});
    });
    same_as_runc(&c);
    assert!(
        c.sh("cat /proc/self/status")
            .1
            .contains("CapEff:\t0000000000000400")
    );
}

fn options() -> Options<'static> {
    Options {
        helper: env!("CARGO_BIN_EXE_podprobe").into(),
        ..Options::default()
    }
}

/// Every capability that this machine has: CAP_SYS_PTRACE is among them, so it may trace what enters it.
fn privileged(c: &mut Value) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let bounding = status
        .lines()
        .find_map(|l| l.strip_prefix("CapBnd:\t"))
        .map(|h| u64::from_str_radix(h, 16).unwrap())
        .unwrap();
    let names = [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_KILL",
        "CAP_SETUID",
        "CAP_SETGID",
        "CAP_SYS_PTRACE",
        "CAP_SYS_ADMIN",
        "CAP_MKNOD",
    ];
    let numbers = [0u32, 1, 5, 7, 6, 19, 21, 27];
    let have: Vec<_> = names
        .iter()
        .zip(numbers)
        .filter(|(_, n)| bounding >> n & 1 == 1)
        .map(|(n, _)| *n)
        .collect();
    c["process"]["capabilities"] = json!({"bounding": have, "effective": have, "permitted": have});
    c["process"]["noNewPrivileges"] = json!(false);
    c["linux"]["maskedPaths"] = json!([]);
    c["linux"]["readonlyPaths"] = json!([]);
}

#[test]
fn a_privileged_container_is_entered() {
    if skip() {
        return;
    }
    let c = Container::run(privileged);
    same_as_runc(&c);
    assert_eq!(c.sh("exit 7").0, 7);
    let timed_out = c.exec(
        &["sh", "-c", "echo before; setsid sleep 999 & sleep 998"],
        Duration::from_millis(300),
        100,
    );
    assert_eq!(
        timed_out,
        Ok(ExecOutcome::TimedOut {
            output: b"before\n".to_vec()
        })
    );
    assert_eq!(c.sh("ls /proc | grep -c '^[0-9]'").0, 0);
}

#[test]
fn without_its_helper_a_command_is_an_error() {
    if skip() {
        return;
    }
    let c = Container::plain();
    let options = Options {
        helper: "/nonexistent/podprobe".into(),
        ..Options::default()
    };
    assert!(matches!(
        exec_with(
            &options,
            &c.target(),
            &["true".into()],
            Duration::from_secs(1),
            10
        ),
        Err(ExecError::Os { .. })
    ));
    let silent = Options {
        helper: "/bin/true".into(),
        ..Options::default()
    };
    let limit = Duration::from_secs(1);
    assert_eq!(
        exec_with(&silent, &c.target(), &["true".into()], limit, 10),
        Err(ExecError::SpawnerLost)
    );
}

#[test]
fn a_read_only_root_stays_read_only() {
    if skip() {
        return;
    }
    let c = Container::run(|c| c["root"]["readonly"] = json!(true));
    same_as_runc(&c);
    assert_ne!(c.sh("echo x > /tmp/x").0, 0);
}

fn without_namespace(config: &mut Value, names: &[&str]) {
    config["linux"]["namespaces"]
        .as_array_mut()
        .unwrap()
        .retain(|n| !names.contains(&n["type"].as_str().unwrap()));
}

#[test]
fn namespaces_shared_with_the_host_are_left_alone() {
    if skip() {
        return;
    }
    let c = Container::run(|c| {
        without_namespace(c, &["pid", "network", "ipc", "uts"]);
        c.as_object_mut().unwrap().remove("hostname");
        // sysfs of the host's network namespace is not the test's subject.
        c["mounts"]
            .as_array_mut()
            .unwrap()
            .retain(|m| m["destination"] != "/sys");
    });
    same_as_runc(&c);
    assert_eq!(
        c.sh("readlink /proc/self/ns/pid").1.trim(),
        fs::read_link("/proc/self/ns/pid")
            .unwrap()
            .to_str()
            .unwrap()
    );
}

/// As with runc: the namespaces of the container are entered, and that one is not of the container.
#[test]
fn a_user_namespace_that_the_first_process_made_is_not_the_commands() {
    if skip() {
        return;
    }
    for with in [&["-U", "-r"][..], &["-U", "-r", "-m"]] {
        let c = Container::run(|c| {
            let mut args = vec!["/bin/busybox", "unshare"];
            args.extend(with);
            args.extend(["/bin/sleep", "1000"]);
            c["process"]["args"] = json!(args);
            // A user who becomes root there needs no capability for that.
            c["process"]["user"] = json!({"uid": 1234, "gid": 1234});
        });
        let user = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).unwrap();
        let has_begun = || {
            let line = fs::read(format!("/proc/{}/cmdline", c.pid)).unwrap();
            line.starts_with(b"/bin/sleep")
        };
        let end = Instant::now() + Duration::from_secs(60);
        while !has_begun() {
            assert!(Instant::now() < end, "{with:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_ne!(user(&c.pid.to_string()), user("self"), "{with:?}");
        same_as_runc(&c);
        let seen = c.sh("readlink /proc/self/ns/user").1;
        assert_eq!(Path::new(seen.trim()), user("self"), "{with:?}");
    }
}

#[test]
fn limits_scores_and_no_new_privs_are_the_containers() {
    if skip() {
        return;
    }
    let before = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    for nnp in [true, false] {
        let c = Container::run(|c| {
            c["process"]["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 200}, {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
                {"type": "RLIMIT_NPROC", "soft": 1000, "hard": 2000}]);
            c["process"]["oomScoreAdj"] = json!(321);
            c["process"]["noNewPrivileges"] = json!(nnp);
        });
        same_as_runc(&c);
        assert_eq!(c.sh("cat /proc/self/oom_score_adj").1, "321\n");
        assert_eq!(c.sh("ulimit -Sn; ulimit -Hn").1, "100\n200\n");
    }
    assert_eq!(
        fs::read_to_string("/proc/self/oom_score_adj").unwrap(),
        before,
        "the score of a command became ours"
    );
}

#[test]
fn a_limit_that_cannot_be_set_is_named() {
    if skip() {
        return;
    }
    let mut c = Container::plain();
    let rlimits = json!([{"type": "RLIMIT_CORE", "soft": 5, "hard": 4}]);
    c.config.process.rlimits = serde_json::from_value(rlimits).unwrap();
    let e = c.exec(&["true"], Duration::from_secs(1), 10).unwrap_err();
    assert_eq!(
        e.to_string(),
        "cannot set limit RLIMIT_CORE to 5:4: Invalid argument"
    );
}

#[test]
fn no_signal_is_ignored_or_blocked() {
    if skip() {
        return;
    }
    let c = Container::plain();
    // Not through a shell, which ignores SIGQUIT itself.
    check_exit(
        &c,
        &["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"],
        0,
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n",
    );
}

#[track_caller]
fn check_exit(c: &Container, command: &[&str], code: i32, output: &str) {
    let expected = ExecOutcome::Exited {
        code,
        output: output.into(),
    };
    assert_eq!(
        c.exec(command, Duration::from_secs(20), 10240),
        Ok(expected)
    );
}

#[test]
fn c5_exits_and_missing_files_are_results_not_errors() {
    if skip() {
        return;
    }
    let c = Container::plain();
    check_exit(&c, &["true"], 0, "");
    check_exit(&c, &["/bin/false"], 1, "");
    check_exit(
        &c,
        &["sh", "-c", "echo out; echo err >&2; echo out2; exit 3"],
        3,
        "out\nout2\nerr\n",
    );
    check_exit(&c, &["sh", "-c", "kill -9 $$"], 137, "");
    check_exit(
        &c,
        &["nope"],
        127,
        "exec: \"nope\": executable file not found in $PATH",
    );
    check_exit(
        &c,
        &["/nope"],
        127,
        "exec: \"/nope\": stat /nope: no such file or directory",
    );
    check_exit(
        &c,
        &["/bin/plain"],
        126,
        "exec: \"/bin/plain\": permission denied",
    );
    check_exit(
        &c,
        &["garbage"],
        126,
        "exec: \"garbage\": exec format error",
    );
}

#[test]
fn a_container_whose_name_is_no_text_is_entered() {
    if skip() {
        return;
    }
    let script = "mkfifo /tmp/go; read x < /tmp/go; printf '\\377' > /proc/self/comm; echo > /tmp/go; sleep 1000; :";
    let c = Container::run(|c| c["process"]["args"] = json!(["/bin/sh", "-c", script]));
    let renamed =
        c.sh("while [ ! -p /tmp/go ]; do :; done; echo > /tmp/go; read x < /tmp/go; cat /proc/1/comm | head -c 1 | tr '\\377' N").1;
    assert_eq!(
        (renamed.as_str(), c.sh("echo in").1.as_str()),
        ("N", "in\n")
    );
}

#[test]
fn c6_output_is_cut_and_the_command_still_ends() {
    if skip() {
        return;
    }
    let c = Container::plain();
    let out = |script: &str| c.exec(&["sh", "-c", script], Duration::from_secs(20), 10240);
    let Ok(ExecOutcome::Exited { code: 0, output }) =
        out("head -c 5000000 /dev/zero; echo end >&2")
    else {
        panic!()
    };
    assert_eq!(output, vec![0; 10240]);
    let Ok(ExecOutcome::Exited { code: 0, output }) =
        out("head -c 10000 /dev/zero; head -c 10000 /dev/zero >&2")
    else {
        panic!()
    };
    assert_eq!(output.len(), 10240);
    // Nobody ever opens the other end.
    assert_eq!(
        c.exec(
            &["sh", "-c", "mkfifo /tmp/f; cat /tmp/f"],
            Duration::from_millis(200),
            10
        ),
        Ok(ExecOutcome::TimedOut { output: vec![] })
    );
    let endless = c.exec(
        &["sh", "-c", "yes & echo x >&2; exit 0"],
        Duration::from_secs(20),
        100,
    );
    assert!(matches!(endless, Ok(ExecOutcome::Exited { code: 0, .. })));
}

/// Host processes inside the container's pid namespace but its first.
fn others_inside(c: &Container) -> Vec<PathBuf> {
    let ns = |p: &Path| fs::read_link(p.join("ns/pid")).ok();
    let wanted = ns(Path::new(&format!("/proc/{}", c.pid)));
    let procs = fs::read_dir("/proc")
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| ns(p) == wanted && wanted.is_some());
    procs
        .filter(|p| *p != Path::new(&format!("/proc/{}", c.pid)))
        .collect()
}

#[test]
fn c2_a_timeout_kills_the_whole_tree() {
    if skip() {
        return;
    }
    let c = Container::plain();
    let script = "sleep 901 & setsid sleep 902 & (setsid sh -c 'sleep 903 & sleep 904' &) ; (sleep 905 &) ; echo started; sleep 906";
    let begun = Instant::now();
    let r = c.exec(&["sh", "-c", script], Duration::from_millis(400), 100);
    assert_eq!(
        r,
        Ok(ExecOutcome::TimedOut {
            output: b"started\n".to_vec()
        })
    );
    assert!(
        begun.elapsed() >= Duration::from_millis(400) && begun.elapsed() < Duration::from_secs(5)
    );
    // Those reparented to pid 1 (sleep) are zombies of the container: dead is what counts.
    let alive: Vec<_> = others_inside(&c)
        .into_iter()
        .filter(|p| fs::read_to_string(p.join("cmdline")).is_ok_and(|s| !s.is_empty()))
        .collect();
    assert_eq!(alive, Vec::<PathBuf>::new());
}

#[test]
fn a_daemonised_child_neither_holds_the_result_nor_stays() {
    if skip() {
        return;
    }
    let c = Container::plain();
    let begun = Instant::now();
    check_exit(
        &c,
        &["sh", "-c", "setsid sleep 900 & echo done"],
        0,
        "done\n",
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
    let alive = others_inside(&c)
        .into_iter()
        .any(|p| fs::read_to_string(p.join("cmdline")).is_ok_and(|s| !s.is_empty()));
    assert!(!alive);
}

/// Holds a lease on a file, so that whoever would execute it waits: for the given time from then on. The file is open for
/// reading only: the lease of one that can write ends a moment before its access, and in between the file is busy.
const LEASE: &str = r#"
my ($file, $seconds) = @ARGV;
my ($setlease, $wrlck) = (1024, 1);
$SIG{IO} = sub { $asked = 1 };
open(my $fd, '<', $file) or die "$file: $!";
for (1 .. 1000) { last if $held = fcntl($fd, $setlease, $wrlck); select(undef, undef, undef, 0.01) }
die "no lease: $!" unless $held;
$| = 1;
print "held";
select(undef, undef, undef, 0.01) until $asked;
select(undef, undef, undef, $seconds);
"#;

/// Such a `/<dir>/sleep` in the container, and its holder.
fn late_program(c: &Container, dir: &str, seconds: &str) -> Spawned {
    let dir = c.dir.path().join("rootfs").join(dir);
    fs::create_dir(&dir).unwrap();
    let program = dir.join("sleep");
    fs::copy("/usr/bin/busybox", &program).unwrap();
    let mut holder = Command::new("perl");
    holder
        .args(["-e", LEASE])
        .arg(&program)
        .arg(seconds)
        .stdout(std::process::Stdio::piped());
    let mut holder = Spawned(holder.spawn().unwrap());
    let mut held = [0; 4];
    std::io::Read::read_exact(holder.0.stdout.as_mut().unwrap(), &mut held).unwrap();
    holder
}

/// Lessons C3: under load it may take long until the command runs. Its time begins only then, and a start that does not
/// come to an end is our failure, not the container's.
#[test]
fn c3_the_timeout_does_not_count_the_start() {
    if skip() {
        return;
    }
    if Command::new("perl").arg("-v").output().is_err() {
        return skip::skip("needs perl, for the lease on a program");
    }
    let c = Container::plain();
    let timeout = Duration::from_secs(2);
    let _soon = late_program(&c, "late", "3");
    let begun = Instant::now();
    assert_eq!(
        c.exec(&["/late/sleep", "0"], timeout, 100),
        Ok(ExecOutcome::Exited {
            code: 0,
            output: vec![]
        })
    );
    assert!(
        begun.elapsed() >= timeout + Duration::from_secs(1),
        "the start was not slow: {:?}",
        begun.elapsed()
    );
    let _never = late_program(&c, "never", "1000");
    assert_eq!(
        c.exec(&["/never/sleep", "1"], timeout, 100),
        Err(ExecError::StartTimeout(10))
    );
    assert!(others_inside(&c).is_empty(), "what did not start is gone");
}

/// A process that is killed and reaped when the test ends.
struct Spawned(std::process::Child);

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_container_that_is_only_a_chroot_is_not_left() {
    if skip() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_root(dir.path());
    let mut command = Command::new("unshare");
    command
        .args(["-m", "chroot"])
        .arg(dir.path())
        .args(["/bin/sleep", "1000"]);
    let first = Spawned(command.spawn().unwrap());
    let pid = first.0.id() as i32;
    let until = Instant::now() + Duration::from_secs(10);
    while !fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .unwrap()
        .starts_with("/bin/sleep")
        && Instant::now() < until
    {
        std::thread::yield_now();
    }
    let start_time = start_time(pid).unwrap();
    let process = json!({"user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin"], "cwd": "/"});
    let config = serde_json::from_value(json!({"process": process})).unwrap();
    let target = Target {
        pid,
        start_time,
        config: &config,
        cgroup: "",
    };
    let command = ["/bin/busybox", "ls", "/bin/garbage"].map(str::to_owned);
    let r = exec_with(&options(), &target, &command, Duration::from_secs(20), 1000);
    assert_eq!(
        r,
        Ok(ExecOutcome::Exited {
            code: 0,
            output: b"/bin/garbage\n".to_vec()
        })
    );
}

/// Leaves of this process's execs, in any hierarchy.
fn leaves() -> Vec<PathBuf> {
    fn walk(dir: &Path, depth: u32, out: &mut Vec<PathBuf>) {
        for e in fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        {
            if e.file_name()
                .to_string_lossy()
                .starts_with(&format!("exec-{}-", std::process::id()))
            {
                out.push(e.path());
            }
            if depth > 0 {
                walk(&e.path(), depth - 1, out);
            }
        }
    }
    let mut out = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), 5, &mut out);
    out
}

#[test]
fn another_process_with_the_pid_is_never_entered() {
    if skip() {
        return;
    }
    let c = Container::plain();
    let command = ["sh".to_owned(), "-c".into(), "echo > /entered".into()];
    let run = |pid, start_time| {
        let target = Target {
            pid,
            start_time,
            ..c.target()
        };
        exec_with(&options(), &target, &command, Duration::from_secs(1), 10)
    };
    assert_eq!(
        run(c.pid, c.start + 1),
        Err(ExecError::NotRunning { pid: c.pid })
    );
    assert_eq!(run(0, 0), Err(ExecError::NotRunning { pid: 0 }));
    assert!(!c.dir.path().join("rootfs/entered").exists());
    assert!(run(c.pid, c.start).is_ok());
    assert!(c.dir.path().join("rootfs/entered").exists());
    runc(&["delete", "--force", &c.id]);
    assert_eq!(
        run(c.pid, c.start),
        Err(ExecError::NotRunning { pid: c.pid })
    );
}

#[test]
fn f5_a_paused_container_is_an_error_at_once() {
    if skip() {
        return;
    }
    let c = Container::plain();
    assert!(runc(&["pause", &c.id]).status.success());
    let r = c.exec(&["true"], Duration::from_secs(1), 10);
    assert!(runc(&["resume", &c.id]).status.success());
    assert_eq!(r, Err(ExecError::Paused));
    check_exit(&c, &["true"], 0, "");
}

#[test]
fn a_container_that_ends_meanwhile_ends_the_command() {
    if skip() {
        return;
    }
    let c = Container::plain();
    std::thread::scope(|s| {
        let r = s.spawn(|| {
            c.exec(
                &["sh", "-c", "echo up > /tmp/up; sleep 60"],
                Duration::from_secs(30),
                10,
            )
        });
        let up = c.dir.path().join("rootfs/tmp/up");
        let until = Instant::now() + Duration::from_secs(10);
        while !up.exists() && Instant::now() < until {
            std::thread::yield_now();
        }
        runc(&["kill", &c.id, "KILL"]);
        assert_eq!(
            r.join().unwrap(),
            Ok(ExecOutcome::Exited {
                code: 137,
                output: vec![]
            })
        );
    });
}

#[test]
fn a_directory_that_is_gone_is_named() {
    if skip() {
        return;
    }
    let mut c = Container::plain();
    c.config.process.cwd = "/gone".into();
    let e = c.exec(&["true"], Duration::from_secs(1), 10).unwrap_err();
    assert_eq!(
        e.to_string(),
        "cannot change to working directory /gone: No such file or directory"
    );
    c.config.process.cwd = "/".into();
    c.config.process.apparmor_profile = Some("no-such-profile".into());
    assert!(
        c.exec(&["true"], Duration::from_secs(1), 10)
            .unwrap_err()
            .to_string()
            .starts_with("cannot set security label")
    );
}

#[test]
fn the_daemon_cannot_be_opened_from_inside() {
    if skip() {
        return;
    }
    let c = Container::run(|c| without_namespace(c, &["pid"]));
    c.sh("true");
    let me = std::process::id();
    for what in ["exe", "fd/0", "mem", "environ"] {
        let (code, out) = c.sh(&format!("cat /proc/{me}/{what} 2>&1 | head -c 100"));
        assert!(
            out.contains("ermission denied") || out.contains("can't open"),
            "{what}: {code} {out:?}"
        );
    }
}

fn open_fds() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Children of this process, zombies too.
fn our_children() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .map(|t| {
            fs::read_to_string(t.path().join("children"))
                .unwrap_or_default()
                .split_whitespace()
                .count()
        })
        .sum()
}

/// In a process of its own, because it counts descriptors and children of the whole process.
#[test]
fn nothing_is_left_after_many_execs_from_many_threads() {
    if skip() {
        return;
    }
    if !is_own_process(
        module_path!(),
        "nothing_is_left_after_many_execs_from_many_threads",
    ) {
        return;
    }
    let c = Container::plain();
    let stop = std::sync::atomic::AtomicBool::new(false);
    assert_eq!(nix::sys::prctl::get_dumpable(), Ok(true));
    c.sh("true");
    // Here and not elsewhere: a command of another uid would make us non-dumpable by itself.
    assert_eq!(nix::sys::prctl::get_dumpable(), Ok(false));
    let (fds, children) = (open_fds(), our_children());
    std::thread::scope(|s| {
        // Allocating all the time: a child that took the allocator's lock would hang.
        let idle: Vec<_> = (0..56)
            .map(|i| {
                let stop = &stop;
                s.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::black_box(vec![0u8; 100 + i]);
                        std::thread::park_timeout(Duration::from_millis(1));
                    }
                })
            })
            .collect();
        let workers: Vec<_> = (0..8)
            .map(|w| {
                // A command that a busy machine has not started in time has not run, and leaves nothing either.
                let c = &c;
                let exec = move |script: &str, timeout: Duration| {
                    let run = |_| c.exec(&["sh", "-c", script], timeout, 10240);
                    let is_late = |ended: &_| matches!(ended, Err(ExecError::StartTimeout(_)));
                    (0..6).map(run).find(|ended| !is_late(ended))
                };
                s.spawn(move || {
                    for i in 0..25 {
                        if i % 8 == 7 {
                            let late =
                                exec("setsid sleep 77 & sleep 78", Duration::from_millis(50));
                            assert_eq!(late, Some(Ok(ExecOutcome::TimedOut { output: vec![] })));
                        } else {
                            let script = format!("echo {w}-{i}; exit {i}");
                            let expected = ExecOutcome::Exited {
                                code: i,
                                output: format!("{w}-{i}\n").into(),
                            };
                            let ended = exec(&script, Duration::from_secs(20));
                            assert_eq!(ended, Some(Ok(expected)));
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        stop.store(true, Ordering::Relaxed);
        drop(idle);
        assert!(results.iter().all(Result::is_ok));
    });
    assert_eq!(our_children(), children);
    // Four boards, at most, are kept for later commands; the first is there before.
    assert!(
        (fds..fds + 4).contains(&open_fds()),
        "{} descriptors, {fds} before",
        open_fds()
    );
    assert_eq!(leaves(), Vec::<PathBuf>::new());
}
