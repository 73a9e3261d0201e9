//! Real containers: the same configuration must have the same effect with `podprobe oci` and with
//! runc.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, close};
use podprobe::api::{Container, Pod};
use podprobe::base::sys::task::Process;
use podprobe::engine::images::ImageConfig;
use podprobe::engine::runtime::ContainerId;
use podprobe::engine::shims::oci_spec::{Host, Inputs, Namespaces, build};
use podprobe::net::network::etc_files::EtcFiles;
use podprobe::pods::container_config::{self, NodeFacts, SandboxInputs};
use podprobe::pods::volumes::MountedVolumes;
use serde_json::{Value, json};

use crate::support::skip;

const PODPROBE: &str = env!("CARGO_BIN_EXE_podprobe");
const RUNC: &str = "/usr/sbin/runc";
const BUSYBOX: &str = "/usr/bin/busybox";
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Why the test cannot run here; a panic in CI.
fn missing(needs_runc: bool) -> bool {
    let mut why = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        why.push("root");
    }
    if !Path::new(BUSYBOX).exists() {
        why.push(BUSYBOX);
    }
    if needs_runc && !Path::new(RUNC).exists() {
        why.push(RUNC);
    }
    if why.is_empty() {
        return false;
    }
    skip::skip(&format!("needs {}", why.join(", ")));
    true
}

/// One container's bundle and what it asks for. Everything of it goes when it is dropped.
struct Case {
    dir: tempfile::TempDir,
    pod: Pod,
    container: Container,
    image: ImageConfig,
    host: Host,
    name: String,
}

impl Case {
    fn new(script: &str) -> Self {
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("rootfs");
        for d in ["bin", "etc", "tmp"] {
            fs::create_dir_all(root.join(d)).unwrap();
        }
        fs::copy(BUSYBOX, root.join("bin/busybox")).unwrap();
        for applet in [
            "sh", "cat", "id", "env", "ls", "readlink", "sleep", "sed", "touch", "stat", "head",
            "wc", "yes", "sort", "dd",
        ] {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        fs::write(
            root.join("etc/passwd"),
            "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n",
        )
        .unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\nextra:x:2000:app\n").unwrap();
        let mut pod = Pod {
            metadata: Default::default(),
            spec: Default::default(),
            raw: Default::default(),
        };
        pod.metadata.name = "test".into();
        let container = Container {
            name: "c".into(),
            command: vec!["/bin/sh".into(), "-c".into(), script.into()],
            ..Default::default()
        };
        let name = format!(
            "t{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        Self {
            dir,
            pod,
            container,
            image: ImageConfig::default(),
            host: Host::read(false, "/"),
            name,
        }
    }

    fn cgroup(&self) -> String {
        format!("/podprobe-test-{}/c-0", self.name)
    }

    fn config(&self) -> Value {
        let mut pod = self.pod.clone();
        pod.spec_mut().containers = vec![self.container.clone()];
        let volumes = MountedVolumes::default();
        let sandbox_config = container_config::sandbox(&SandboxInputs {
            pod: &pod,
            attempt: 0,
            hostname: "test",
            runtime_handler: String::new(),
            log_directory: self.dir.path().join("logs"),
            cgroup_parent: format!("/podprobe-test-{}", self.name),
            resource_policy: Default::default(),
            volumes: &volumes,
        });
        let config = container_config::container(&container_config::Inputs {
            pod: &pod,
            container: &self.container,
            attempt: 0,
            image_id: "",
            image_user: &self.image.user,
            volumes: &volumes,
            image_volumes: &Default::default(),
            etc_files: &EtcFiles::below(self.dir.path()),
            termination_log: None,
            seccomp_profiles: self.dir.path(),
            node: &NodeFacts::read("127.0.0.1".parse().unwrap(), self.dir.path()),
            resource_policy: Default::default(),
            objects: &Default::default(),
            services: &[],
            pod_ips: &[],
        });
        let spec = build(&Inputs {
            config: &config.unwrap(),
            sandbox_config: &sandbox_config,
            sandbox: &ContainerId::from("s"),
            image: &self.image,
            layers: &[self.dir.path().join("rootfs")],
            rootfs: &self.dir.path().join("rootfs"),
            namespaces: Namespaces::default(),
            mounts: vec![],
            cgroups_path: self.cgroup(),
            host: &self.host,
            localhost_seccomp: None,
            app_armor: None,
        })
        .unwrap();
        json!(spec)
    }

    fn runtime<'a>(&'a self, runtime: &'a str) -> Running<'a> {
        let config = self.config();
        fs::write(self.dir.path().join("config.json"), config.to_string()).unwrap();
        Running {
            case: self,
            runtime,
        }
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        for h in hierarchies() {
            let _ = fs::remove_dir(h.join(format!("podprobe-test-{}", self.name)));
        }
    }
}

fn hierarchies() -> Vec<PathBuf> {
    let subs = fs::read_dir("/sys/fs/cgroup")
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.is_dir());
    subs.chain(["/sys/fs/cgroup".into()])
        .filter(|p| p.join("cgroup.procs").exists())
        .collect()
}

/// A container under one runtime; removed by force when dropped.
struct Running<'a> {
    case: &'a Case,
    runtime: &'a str,
}

impl Running<'_> {
    fn verb(&self, words: &[&str]) -> Output {
        self.command(words).stdin(Stdio::null()).output().unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut c = Command::new(self.runtime);
        if self.runtime == PODPROBE {
            c.arg("oci");
        }
        c.arg("--root").arg(self.state_dir()).args(words);
        c
    }

    fn state_dir(&self) -> PathBuf {
        self.case.dir.path().join(if self.runtime == PODPROBE {
            "own"
        } else {
            "runc"
        })
    }

    fn out(&self) -> PathBuf {
        self.case.dir.path().join("out")
    }

    /// Exit code and stderr of `create`; the container's output goes to a file.
    fn create(&self) -> (bool, String) {
        let (out, err) = (
            File::create(self.out()).unwrap(),
            self.case.dir.path().join("err"),
        );
        let bundle = self.case.dir.path().to_str().unwrap();
        let pid_file = self.case.dir.path().join("pid");
        let status = self
            .command(&[
                "create",
                "--bundle",
                bundle,
                "--pid-file",
                pid_file.to_str().unwrap(),
                &self.case.name,
            ])
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(File::create(&err).unwrap())
            .status()
            .unwrap();
        (status.success(), fs::read_to_string(err).unwrap())
    }

    fn pid(&self) -> i32 {
        fs::read_to_string(self.case.dir.path().join("pid"))
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    fn start(&self) -> (bool, String) {
        let o = self.verb(&["start", &self.case.name]);
        (
            o.status.success(),
            String::from_utf8_lossy(&o.stderr).into_owned(),
        )
    }

    /// Exit status of the container's process, which we inherit as subreaper.
    fn wait(&self) -> WaitStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match waitpid(Pid::from_raw(self.pid()), Some(WaitPidFlag::WNOHANG)).unwrap() {
                WaitStatus::StillAlive if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                other => return other,
            }
        }
    }

    /// What the container prints, run to its end.
    fn output(&self) -> String {
        let (ok, err) = self.create();
        assert!(ok, "{} create: {err}", self.runtime);
        let (ok, err) = self.start();
        assert!(ok, "{} start: {err}", self.runtime);
        self.wait();
        fs::read_to_string(self.out()).unwrap()
    }

    fn left_cgroups(&self) -> Vec<PathBuf> {
        hierarchies()
            .into_iter()
            .map(|h| h.join(&self.case.cgroup()[1..]))
            .filter(|p| p.exists())
            .collect()
    }

    fn assert_nothing_left(&self) {
        assert_eq!(self.left_cgroups(), Vec::<PathBuf>::new());
        assert_eq!(
            fs::read_dir(self.state_dir()).unwrap().count(),
            0,
            "state directory is empty"
        );
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.verb(&["delete", "--force", &self.case.name]);
        if let Ok(pid) = fs::read_to_string(self.case.dir.path().join("pid")) {
            let _ = waitpid(
                Pid::from_raw(pid.trim().parse().unwrap_or(0).max(1)),
                Some(WaitPidFlag::WNOHANG),
            );
        }
    }
}

const DUMP: &str = r#"
sed -n '/^Cap/p;/^NoNewPrivs/p;/^Uid/p;/^Gid/p;/^Groups/p;/^Seccomp/p' /proc/self/status
echo id: $(id -u) $(id -g) $(id -G)
echo cwd: $(readlink /proc/self/cwd) umask: $(umask)
echo oom: $(cat /proc/self/oom_score_adj)
env | sort
ls -la /dev | sed 's/ [A-Z][a-z][a-z] *[0-9]* *[0-9:]* / /'
for f in kcore keys timer_list scsi acpi; do echo masked $f: $(head -c 1 /proc/$f 2>/dev/null | wc -c) $(ls -A /proc/$f 2>/dev/null); done
for f in /proc/sys/kernel/domainname /proc/sysrq-trigger /proc/irq/x /sys/x /root-x /dev/x /dev/shm/x /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  if touch $f 2>/dev/null; then echo writable $f; else echo not writable $f; fi; done
for n in cgroup user net uts ipc mnt pid; do echo ns $n $([ "$(readlink /proc/self/ns/$n)" = "$HOST_NS" ] && echo host); done
cat /proc/self/limits
"#;

/// The container's cgroup files, read from the node while it runs.
const CGROUP_FILES: [&str; 8] = [
    "cpu/cpu.shares",
    "cpu/cpu.cfs_quota_us",
    "cpu/cpu.cfs_period_us",
    "memory/memory.limit_in_bytes",
    "devices/devices.list",
    "pids/pids.max",
    "cpu.max",
    "memory.max",
];

#[track_caller]
fn same(change: impl Fn(&mut Case)) -> String {
    let mut case = Case::new(DUMP);
    change(&mut case);
    let own = case.runtime(PODPROBE).output();
    let runc = case.runtime(RUNC).output();
    for (a, b) in own.lines().zip(runc.lines()) {
        assert_eq!(a, b, "\nthrough podprobe:\n{own}\nthrough runc:\n{runc}");
    }
    assert_eq!(own, runc);
    own
}

#[test]
fn a_plain_container_is_as_under_runc() {
    if missing(true) {
        return;
    }
    let own = same(|_| ());
    assert!(own.contains("CapEff:\t00000000a80425fb"), "{own}");
    assert!(own.contains("NoNewPrivs:\t0"), "{own}");
    assert!(
        own.contains("not writable /sys/fs/cgroup/memory/memory.limit_in_bytes"),
        "{own}"
    );
    assert!(own.contains("HOME=/root"), "{own}");
}

#[test]
fn another_user_without_privileges_is_as_under_runc() {
    if missing(true) {
        return;
    }
    let own = same(|c| {
        c.image.user = "app".into();
        c.container.security_context.allow_privilege_escalation = Some(false);
        c.container.security_context.read_only_root_filesystem = Some(true);
        c.container.security_context.capabilities.drop = vec!["ALL".into()];
        c.container.working_dir = "/tmp".into();
        c.pod.spec_mut().security_context.supplemental_groups = vec![77];
    });
    assert!(
        own.contains("id: 1000 1001 1001 2000 77") || own.contains("id: 1000 1001 1001 77 2000"),
        "{own}"
    );
    assert!(own.contains("CapBnd:\t0000000000000000"), "{own}");
    assert!(own.contains("NoNewPrivs:\t1"), "{own}");
    assert!(own.contains("not writable /root-x"), "{own}");
    assert!(own.contains("HOME=/home/app"), "{own}");
}

#[test]
fn a_privileged_container_is_as_under_runc() {
    if missing(true) {
        return;
    }
    let own = same(|c| {
        c.container.security_context.privileged = Some(true);
        c.host = Host::read(true, "/");
    });
    let bounding = format!("CapEff:\t{:016x}", Host::read(false, "/").bounding);
    assert!(own.contains(&bounding), "{own}");
}

#[test]
fn mounts_are_as_under_runc() {
    if missing(true) {
        return;
    }
    let case = Case::new("cat /proc/self/mountinfo");
    // Point, options and type of each mount; numbers and super block options are the node's.
    let points = |text: String| {
        let mut all: Vec<String> = text
            .lines()
            .map(|l| {
                let (a, b) = l.split_once(" - ").unwrap();
                let a: Vec<&str> = a.split(' ').collect();
                format!("{} {} {}", a[4], a[5], b.split(' ').next().unwrap())
            })
            .collect();
        all.sort();
        all
    };
    let own = points(case.runtime(PODPROBE).output());
    let runc = points(case.runtime(RUNC).output());
    assert_eq!(own, runc, "podprobe: {own:#?}\nrunc: {runc:#?}");
}

/// What is mounted in a container is its own, unless a volume is to hand it on.
#[test]
fn the_root_is_tied_to_no_other_unless_that_is_asked_for() {
    if missing(false) {
        return;
    }
    let case = Case::new("cat /proc/self/mountinfo");
    for (propagation, is_shared) in [(Value::Null, false), (json!("rshared"), true)] {
        let c = case.runtime(PODPROBE);
        let mut config = case.config();
        config["linux"]["rootfsPropagation"] = propagation;
        fs::write(case.dir.path().join("config.json"), config.to_string()).unwrap();
        let mounts = c.output();
        let mut lines = mounts.lines();
        let root = lines.find(|l| l.split(' ').nth(4) == Some("/")).unwrap();
        assert_eq!(root.contains(" shared:"), is_shared, "{root}");
    }
}

#[test]
fn cgroups_and_limits_are_as_under_runc() {
    if missing(true) {
        return;
    }
    let mut case = Case::new("cat /proc/self/cgroup; exec sleep 100");
    case.container.resources.limits = [("cpu", "250m"), ("memory", "64Mi")]
        .map(|(k, v)| (k.to_owned(), quantity(v)))
        .into();
    let read = |runtime| {
        let c = case.runtime(runtime);
        assert_eq!(c.create(), (true, String::new()));
        assert_eq!(c.start(), (true, String::new()));
        let files: Vec<(String, String)> = CGROUP_FILES
            .iter()
            .map(|f| {
                let (dir, name) = f.split_once('/').unwrap_or(("", f));
                let path = Path::new("/sys/fs/cgroup")
                    .join(dir)
                    .join(&case.cgroup()[1..])
                    .join(name);
                let mut lines: Vec<String> = fs::read_to_string(path)
                    .unwrap_or_default()
                    .lines()
                    .map(str::to_owned)
                    .collect();
                lines.sort();
                ((*f).to_owned(), lines.join("\n"))
            })
            .collect();
        let membership = fs::read_to_string(format!("/proc/{}/cgroup", c.pid())).unwrap();
        (files, membership)
    };
    let (own, runc) = (read(PODPROBE), read(RUNC));
    assert_eq!(own.0, runc.0);
    // Each hierarchy, the unified one of a hybrid node too: exec and kill need it.
    assert!(
        own.1.lines().all(|l| l.ends_with(&case.cgroup())),
        "{}",
        own.1
    );
    eprintln!("under runc:\n{}", runc.1);
}

fn quantity(text: &str) -> podprobe::api::quantity::Quantity {
    serde_json::from_value(json!(text)).unwrap()
}

#[test]
fn a_missing_program_is_an_error_in_plain_words() {
    if missing(false) {
        return;
    }
    for (command, expected) in [
        (
            "/nope",
            "cannot create container {}: exec: \"/nope\": no such file or directory\n",
        ),
        (
            "/tmp",
            "cannot create container {}: exec: \"/tmp\": is a directory\n",
        ),
        (
            "/etc/passwd",
            "cannot create container {}: exec: \"/etc/passwd\": permission denied\n",
        ),
        (
            "nope",
            "cannot create container {}: exec: \"nope\": executable file not found in $PATH (/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)\n",
        ),
    ] {
        let mut case = Case::new("");
        case.container.command = vec![command.into()];
        let c = case.runtime(PODPROBE);
        assert_eq!(c.create(), (false, expected.replace("{}", &case.name)));
        assert_eq!(
            fs::read_to_string(c.out()).unwrap(),
            "",
            "nothing of it in the container's output"
        );
        c.assert_nothing_left();
    }
}

#[test]
fn a_program_that_cannot_run_is_an_error_of_start() {
    if missing(false) {
        return;
    }
    for (text, code, expected) in [
        (
            "#!/no/interpreter\n",
            127,
            "exec: \"/x\": no such file or directory (its interpreter or dynamic loader is not in the image)\n",
        ),
        (
            "no program at all",
            126,
            "exec: \"/x\": exec format error\n",
        ),
    ] {
        let mut case = Case::new("");
        case.container.command = vec!["/x".into()];
        let file = case.dir.path().join("rootfs/x");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        let c = case.runtime(PODPROBE);
        assert_eq!(c.create(), (true, String::new()));
        assert_eq!(
            c.start(),
            (
                false,
                format!("cannot start container {}: {expected}", case.name)
            )
        );
        assert_eq!(c.wait(), WaitStatus::Exited(Pid::from_raw(c.pid()), code));
        assert_eq!(fs::read_to_string(c.out()).unwrap(), "");
    }
}

fn state(c: &Running) -> String {
    let o = c.verb(&["state", &c.case.name]);
    let v: Value = serde_json::from_slice(&o.stdout).unwrap_or_default();
    v["status"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn kill_and_delete_leave_nothing() {
    if missing(false) {
        return;
    }
    let mut case = Case::new("");
    case.container.command = [
        "/bin/sh",
        "-c",
        "trap 'exit 7' TERM; sleep 100 & echo up; while :; do sleep 1; done",
    ]
    .map(Into::into)
    .into();
    let c = case.runtime(PODPROBE);
    let name = &case.name;
    assert_eq!(c.create(), (true, String::new()));
    assert_eq!(state(&c), "created");
    assert_eq!(
        c.create().1,
        format!("cannot create container {name}: a container of that id exists\n")
    );
    assert_eq!(c.start(), (true, String::new()));
    assert_eq!(state(&c), "running");
    assert!(c.start().1.contains("it was started before"));
    assert!(
        !c.verb(&["delete", name]).status.success(),
        "a running one is only deleted by force"
    );
    while !fs::read_to_string(c.out()).unwrap().contains("up") {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(c.verb(&["kill", name, "TERM"]).status.success());
    assert_eq!(c.wait(), WaitStatus::Exited(Pid::from_raw(c.pid()), 7));
    assert_eq!(state(&c), "stopped");
    let late = c.verb(&["kill", name, "TERM"]);
    assert_eq!(
        String::from_utf8_lossy(&late.stderr),
        format!("cannot kill container {name}: container not running\n")
    );
    assert!(c.verb(&["delete", name]).status.success());
    c.assert_nothing_left();
    assert!(
        !c.verb(&["delete", name]).status.success(),
        "gone is an error"
    );
    assert!(
        c.verb(&["delete", "--force", name]).status.success(),
        "but not by force"
    );
}

/// In the node's process namespace nothing else ends with the first process.
#[test]
fn a_signal_for_all_reaches_every_process() {
    if missing(false) {
        return;
    }
    let mut case = Case::new("sleep 1000 & echo up; exec sleep 1000");
    case.pod.spec_mut().host_pid = true;
    let c = case.runtime(PODPROBE);
    assert_eq!(c.create(), (true, String::new()));
    assert_eq!(c.start(), (true, String::new()));
    let name = &case.name;
    while !fs::read_to_string(c.out()).unwrap().contains("up") {
        std::thread::sleep(Duration::from_millis(2));
    }
    let children = format!("/proc/{0}/task/{0}/children", c.pid());
    let other = fs::read_to_string(children).unwrap();
    let other = Process::of(other.trim().parse().unwrap()).unwrap();
    let process = other.open().unwrap().unwrap();
    assert!(c.verb(&["kill", "--all", name, "TERM"]).status.success());
    assert!(process.wait(Duration::from_secs(20)).unwrap());
    let killed = WaitStatus::Signaled(Pid::from_raw(c.pid()), Signal::SIGTERM, false);
    assert_eq!(c.wait(), killed);
}

#[test]
fn force_removes_a_container_in_any_state() {
    if missing(false) {
        return;
    }
    // Running, with children that ignore TERM and without a pid namespace that would take them along.
    let mut case = Case::new("trap '' TERM; (sleep 100 & sleep 100 & sleep 100) & exec sleep 100");
    case.pod.spec_mut().host_pid = true;
    let c = case.runtime(PODPROBE);
    assert_eq!(
        (c.create(), c.start()),
        ((true, String::new()), (true, String::new()))
    );
    let o = c.verb(&["delete", "--force", &case.name]);
    assert!(o.status.success(), "{o:?}");
    c.assert_nothing_left();
    c.wait();
    // Created only.
    assert_eq!(c.create(), (true, String::new()));
    assert!(c.verb(&["delete", "--force", &case.name]).status.success());
    c.assert_nothing_left();
    c.wait();
    // Half made: create was killed after its first step.
    assert_eq!(c.create(), (true, String::new()));
    let record = c.state_dir().join(&case.name).join("record.json");
    let mut half: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    half["pid"] = 0.into();
    half.as_object_mut().unwrap().remove("crc32").unwrap();
    fs::write(&record, half.to_string()).unwrap();
    assert_eq!(state(&c), "creating");
    assert!(c.verb(&["delete", "--force", &case.name]).status.success());
    c.assert_nothing_left();
    c.wait();
}

#[test]
fn what_would_be_ignored_is_refused() {
    if missing(false) {
        return;
    }
    let case = Case::new("true");
    let c = case.runtime(PODPROBE);
    let mut config = case.config();
    config["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_NOTIFY" });
    fs::write(case.dir.path().join("config.json"), config.to_string()).unwrap();
    let (ok, err) = c.create();
    assert!(
        !ok && err.contains("seccomp profile: SCMP_ACT_NOTIFY needs a listener"),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1);
}

#[test]
fn the_program_starts_with_default_signals_and_no_descriptors() {
    if missing(false) {
        return;
    }
    // Directly: a shell ignores and opens things of its own.
    let direct = |command: &[&str]| {
        let mut case = Case::new("");
        case.container.command = command.iter().map(|w| (*w).to_owned()).collect();
        case.runtime(PODPROBE).output()
    };
    let status = direct(&["cat", "/proc/self/status"]);
    assert!(
        status.contains("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"),
        "{status}"
    );
    // One that whoever calls has left open to it.
    let leaked = fcntl(File::open("/").unwrap(), FcntlArg::F_DUPFD(50)).unwrap();
    let listed = direct(&["ls", "/proc/self/fd"]);
    close(leaked).unwrap();
    assert_eq!(
        listed, "0\n1\n2\n3\n",
        "its own stdio, and the directory it lists"
    );
    assert_eq!(direct(&["sh", "-c", "yes | head -n 1"]), "y\n");
}

/// Between create and start it waits in namespaces that others may be in, who may trace it.
#[test]
fn a_created_container_has_no_right_that_its_program_will_not_have() {
    if missing(false) {
        return;
    }
    let case = Case::new("sleep 1000");
    let c = case.runtime(PODPROBE);
    assert_eq!(c.create(), (true, String::new()));
    let rights = || {
        let status = fs::read_to_string(format!("/proc/{}/status", c.pid())).unwrap();
        let kept = ["Uid", "Gid", "Groups", "Cap", "NoNewPrivs"];
        let lines = status.lines().map(str::to_owned);
        let lines = lines.filter(|l| kept.iter().any(|name| l.starts_with(name)));
        lines.collect::<Vec<_>>()
    };
    let created = rights();
    assert_eq!(created.len(), 9, "{created:?}");
    assert_eq!(c.start(), (true, String::new()));
    assert_eq!(created, rights());
}

#[test]
fn a_container_cannot_write_to_our_binary() {
    if missing(false) {
        return;
    }
    // CVE-2019-5736: the container's own program is the one that set it up.
    let mut case = Case::new("");
    case.container.command = vec!["/proc/self/exe".into(), "oci".into(), "--version".into()];
    let before = fs::metadata(PODPROBE).unwrap().modified().unwrap();
    let c = case.runtime(PODPROBE);
    assert_eq!(c.create(), (true, String::new()));
    // Between create and start our program waits inside the container's namespaces. Even the node's root, who may open
    // it, finds a read-only mount; that it runs just now (ETXTBSY) would protect it only for so long.
    let exe = format!("/proc/{}/exe", c.pid());
    assert!(
        nix::sys::statvfs::statvfs(exe.as_str())
            .unwrap()
            .flags()
            .contains(nix::sys::statvfs::FsFlags::ST_RDONLY)
    );
    let exe = File::options()
        .read(true)
        .custom_flags(nix::libc::O_PATH)
        .open(&exe)
        .unwrap();
    drop(c);
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&exe));
    assert!(File::options().write(true).open(again).is_err());
    assert_eq!(fs::metadata(PODPROBE).unwrap().modified().unwrap(), before);
}

#[test]
fn a_missing_working_directory_is_made_and_no_link_leads_out() {
    if missing(true) {
        return;
    }
    for runtime in [PODPROBE, RUNC] {
        let mut case = Case::new("readlink /proc/self/cwd");
        let outside = case.dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        symlink(&outside, case.dir.path().join("rootfs/link")).unwrap();
        case.container.working_dir = "/a/b".into();
        assert_eq!(case.runtime(runtime).output(), "/a/b\n");
        case.container.working_dir = "/link/x".into();
        let c = case.runtime(runtime);
        let _ = c.create();
        assert!(!outside.join("x").exists(), "{runtime}");
    }
}

#[test]
fn a_working_directory_may_be_one_that_its_user_may_not_enter() {
    if missing(true) {
        return;
    }
    for runtime in [PODPROBE, RUNC] {
        let mut case = Case::new("readlink /proc/self/cwd");
        let private = case.dir.path().join("rootfs/private");
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
        case.image.user = "app".into();
        case.container.security_context.capabilities.drop = vec!["ALL".into()];
        case.container.working_dir = "/private".into();
        assert_eq!(case.runtime(runtime).output(), "/private\n", "{runtime}");
    }
}

/// CVE-2019-16884, CVE-2025-52881: neither a spec, nor a link of the image, nor one of a volume covers a file of /proc.
#[test]
fn nothing_is_mounted_below_proc() {
    if missing(true) {
        return;
    }
    for runtime in [PODPROBE, RUNC] {
        let case = Case::new("cat /proc/uptime; ls -A /data");
        let (root, volume) = (
            case.dir.path().join("rootfs"),
            case.dir.path().join("volume"),
        );
        symlink("/proc/1", root.join("v")).unwrap();
        symlink("/proc", root.join("p")).unwrap();
        fs::create_dir(&volume).unwrap();
        symlink("/proc/1", volume.join("link")).unwrap();
        let source = case.dir.path().join("source");
        fs::create_dir(&source).unwrap();
        let file = case.dir.path().join("file");
        fs::write(&file, "1.00 1.00\n").unwrap();
        let create = |mounts: &[(&str, &Path)]| {
            let c = case.runtime(runtime);
            let mut config = case.config();
            config["mounts"]
                .as_array_mut()
                .unwrap()
                .extend(mounts.iter().map(|(destination, source)| {
                    json!({ "destination": destination, "type": "bind", "source": source, "options": ["rbind"] })
                }));
            fs::write(case.dir.path().join("config.json"), config.to_string()).unwrap();
            let (ok, err) = c.create();
            (c, ok, err)
        };
        let refused: [&[(&str, &Path)]; 6] = [
            &[("/proc/self/attr", &source)],
            &[("/v/attr", &source)],
            &[("/p/self/attr", &source)],
            &[("/proc/1/status", &file)],
            &[("/proc", &source)],
            &[("/volume", &volume), ("/volume/link/attr", &source)],
        ];
        for mounts in refused {
            let (c, ok, err) = create(mounts);
            assert!(!ok, "{runtime} accepted {mounts:?}");
            if runtime == PODPROBE {
                assert!(err.contains("/proc") && err.lines().count() == 1, "{err}");
                assert_eq!(c.left_cgroups(), Vec::<PathBuf>::new());
            }
        }
        let (c, ok, err) = create(&[("/proc/uptime", &file), ("/data", &volume)]);
        assert!(ok, "{runtime}: {err}");
        assert!(c.start().0);
        c.wait();
        assert_eq!(
            fs::read_to_string(c.out()).unwrap(),
            "1.00 1.00\nlink\n",
            "{runtime}"
        );
    }
}

/// What is in a directory, by name.
fn listed(dir: &Path) -> Vec<String> {
    let all = fs::read_dir(dir).unwrap().flatten();
    let mut names: Vec<_> = all.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Links, devices and mounts of a container's root are made while this program is root. Wherever an image or another container
/// of the pod has put a link, nothing of the node is touched.
#[test]
fn links_lead_nowhere_on_the_node() {
    if missing(false) {
        return;
    }
    let case = Case::new(
        "[ -c /dev/null ] && [ -c /dev/bus/usb/001 ] && [ -e /data/x/here ] && echo well",
    );
    let dir = case.dir.path();
    let (root, outside) = (dir.join("rootfs"), dir.join("outside"));
    let (volume, source) = (dir.join("volume"), dir.join("source"));
    for made in [&outside, &volume, &source] {
        fs::create_dir(made).unwrap();
    }
    fs::write(outside.join("ptmx"), "of the node").unwrap();
    fs::write(source.join("here"), "").unwrap();
    let _ = fs::remove_dir(root.join("dev"));
    symlink(&outside, root.join("dev")).unwrap();
    symlink(&outside, root.join("data")).unwrap();
    symlink(&outside, volume.join("usb")).unwrap();
    let mut config = case.config();
    let bind = |from: &Path, to: &str| json!({ "destination": to, "type": "bind", "source": from, "options": ["rbind"] });
    let mounts = config["mounts"].as_array_mut().unwrap();
    mounts.extend([bind(&volume, "/dev/bus"), bind(&source, "/data/x")]);
    config["linux"]["devices"] =
        json!([{ "path": "/dev/bus/usb/001", "type": "c", "major": 1, "minor": 3 }]);
    let c = case.runtime(PODPROBE);
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    assert_eq!(c.output(), "well\n");
    assert_eq!(listed(&outside), ["ptmx"]);
    let text = fs::read_to_string(outside.join("ptmx")).unwrap();
    assert_eq!(text, "of the node");
}

/// By a link of the image, or by another name for /dev, a volume is at /dev: it is as complete as one that is called /dev.
#[test]
fn nothing_is_made_in_a_volume_that_covers_dev() {
    if missing(false) {
        return;
    }
    for at in ["/node-dev", "/dev/."] {
        let case = Case::new("echo well");
        let volume = case.dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("ptmx"), "of the node").unwrap();
        mknod(
            &volume.join("null"),
            SFlag::S_IFCHR,
            Mode::from_bits_truncate(0o666),
            makedev(1, 3),
        )
        .unwrap();
        symlink("/dev", case.dir.path().join("rootfs/node-dev")).unwrap();
        let mut config = case.config();
        config["mounts"].as_array_mut().unwrap().push(
            json!({ "destination": at, "type": "bind", "source": volume, "options": ["rbind"] }),
        );
        let c = case.runtime(PODPROBE);
        fs::write(case.dir.path().join("config.json"), config.to_string()).unwrap();
        assert_eq!(c.output(), "well\n");
        let names = fs::read_dir(&volume).unwrap().flatten();
        let mut names: Vec<_> = names.map(|e| e.file_name()).collect();
        names.sort();
        assert_eq!(names, ["null", "ptmx"], "{at}");
        let text = fs::read_to_string(volume.join("ptmx")).unwrap();
        assert_eq!(text, "of the node", "{at}");
    }
}

/// CVE-2025-31133: what a volume calls /dev/null would be mounted over each file that is to be masked.
#[test]
fn another_file_in_place_of_the_null_device_masks_nothing() {
    if missing(false) {
        return;
    }
    let case = Case::new("true");
    let volume = case.dir.path().join("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("null"), "of the pod").unwrap();
    let mut config = case.config();
    config["mounts"].as_array_mut().unwrap().push(
        json!({ "destination": "/dev", "type": "bind", "source": volume, "options": ["rbind"] }),
    );
    // A file that every kernel has.
    config["linux"]["maskedPaths"] = json!(["/proc/version"]);
    let c = case.runtime(PODPROBE);
    fs::write(case.dir.path().join("config.json"), config.to_string()).unwrap();
    let (ok, err) = c.create();
    let why = "cannot protect /proc/version (maskedPaths): No such device";
    assert!(!ok && err.contains(why), "{err}");
    c.assert_nothing_left();
}

/// CVE-2019-19921: a link of the image that /dev turns elsewhere would hide from the masks what they are to mask.
#[test]
fn file_systems_of_the_kernel_are_mounted_through_no_link() {
    if missing(true) {
        return;
    }
    for name in ["proc", "sys"] {
        let case = Case::new("true");
        let root = case.dir.path().join("rootfs");
        fs::create_dir_all(root.join("dev")).unwrap();
        fs::create_dir_all(root.join("open/p")).unwrap();
        symlink("../open", root.join("dev/r")).unwrap();
        symlink("/dev/r/p", root.join(name)).unwrap();
        for (runtime, said) in [
            (RUNC, format!("at \\\"/{name}\\\": filesystem")),
            (
                PODPROBE,
                format!("at /{name}: its destination must be a directory, not a link"),
            ),
        ] {
            let c = case.runtime(runtime);
            let (ok, err) = c.create();
            assert!(!ok && err.contains(&said), "{runtime}: {err}");
        }
        case.runtime(PODPROBE).assert_nothing_left();
    }
}

/// In the node's process namespace a link of /proc leads to the node's root.
#[test]
fn no_link_of_a_process_is_followed() {
    if missing(false) {
        return;
    }
    let mut case = Case::new("true");
    case.pod.spec_mut().host_pid = true;
    let dir = case.dir.path().to_owned();
    let (outside, source) = (dir.join("outside"), dir.join("source"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&source).unwrap();
    let of_node = format!("/proc/{}/root{}", std::process::id(), outside.display());
    symlink(of_node, dir.join("rootfs/data")).unwrap();
    let c = case.runtime(PODPROBE);
    let mut config = case.config();
    config["mounts"].as_array_mut().unwrap().push(
        json!({ "destination": "/data/x", "type": "bind", "source": source, "options": ["rbind"] }),
    );
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let (ok, err) = c.create();
    assert!(!ok && err.contains("cannot mount"), "{err}");
    assert_eq!(listed(&outside), Vec::<String>::new());
    c.assert_nothing_left();
}

/// A privileged pod that has the node's /dev as its own finds it as it is, and changes nothing in it.
#[test]
fn a_dev_of_the_pods_own_is_left_as_it_is() {
    if missing(true) {
        return;
    }
    for runtime in [PODPROBE, RUNC] {
        let mut case = Case::new("ls /dev");
        case.container.security_context.privileged = Some(true);
        case.host = Host::read(true, "/");
        let dev = case.dir.path().join("dev");
        fs::create_dir_all(dev.join("pts")).unwrap();
        for kept in ["null", "ptmx"] {
            fs::write(dev.join(kept), "").unwrap();
        }
        let c = case.runtime(runtime);
        let mut config = case.config();
        let mounts = config["mounts"].as_array_mut().unwrap();
        mounts.retain(|m| !m["destination"].as_str().unwrap().starts_with("/dev"));
        mounts.push(
            json!({ "destination": "/dev", "type": "bind", "source": dev, "options": ["rbind"] }),
        );
        fs::write(case.dir.path().join("config.json"), config.to_string()).unwrap();
        assert_eq!(c.output(), "null\nptmx\npts\n", "{runtime}");
        assert_eq!(listed(&dev), ["null", "ptmx", "pts"], "{runtime}");
        assert!(fs::metadata(dev.join("ptmx")).unwrap().is_file());
    }
}

#[test]
fn the_cause_of_a_failed_create_is_told() {
    if missing(false) {
        return;
    }
    let case = Case::new("true");
    let c = case.runtime(PODPROBE);
    let mut config = case.config();
    config["mounts"].as_array_mut().unwrap().push(
        json!({ "destination": "/v", "type": "bind", "source": "/no/such", "options": ["rbind"] }),
    );
    fs::write(case.dir.path().join("config.json"), config.to_string()).unwrap();
    let (ok, err) = c.create();
    assert!(
        !ok && err.contains("cannot mount /no/such at /v: No such file or directory"),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1);
    c.assert_nothing_left();
}

/// A container never runs without a limit that it is to have.
#[test]
fn a_limit_that_the_kernel_refuses_is_an_error() {
    if missing(false) {
        return;
    }
    let case = Case::new("true");
    for (resources, why) in [
        // Below a millisecond.
        (
            json!({ "cpu": { "quota": 1, "period": 100_000 } }),
            "set the cpu limits: Invalid argument",
        ),
        (
            json!({ "unified": { "no.such": "1" } }),
            "set no.such of cgroup v2: ",
        ),
        // A path may lead to another cgroup.
        (
            json!({ "unified": { "./cgroup.max.depth": "1" } }),
            "set ./cgroup.max.depth of cgroup v2: it is no file of this node's cgroups",
        ),
    ] {
        let c = case.runtime(PODPROBE);
        let mut config = case.config();
        let all = config["linux"]["resources"].as_object_mut().unwrap();
        all.extend(resources.as_object().unwrap().clone());
        fs::write(case.dir.path().join("config.json"), config.to_string()).unwrap();
        let (ok, err) = c.create();
        assert!(!ok && err.contains(why), "{err}");
        c.assert_nothing_left();
    }
}

/// `cargo test --test engine oci:: -- --ignored --nocapture`: create, start and delete beside runc in the same run.
#[test]
#[ignore = "a measurement"]
fn bench_create_start_delete() {
    if missing(true) {
        return;
    }
    let case = Case::new("exec sleep 100");
    let mut medians = Vec::new();
    for runtime in [PODPROBE, RUNC] {
        let mut times: Vec<[Duration; 3]> = (0..21)
            .map(|_| {
                let c = case.runtime(runtime);
                let t = Instant::now();
                assert!(c.create().0);
                let created = t.elapsed();
                assert!(c.start().0);
                let started = t.elapsed();
                assert!(c.verb(&["delete", "--force", &case.name]).status.success());
                let deleted = t.elapsed();
                c.wait();
                [created, started - created, deleted - started]
            })
            .collect();
        let median = |i: usize, times: &mut Vec<[Duration; 3]>| {
            times.sort_by_key(|t| t[i]);
            times[times.len() / 2][i].as_secs_f64() * 1e3
        };
        let m = [0, 1, 2].map(|i| median(i, &mut times));
        println!(
            "{runtime}: create {:.1} ms, start {:.1} ms, delete {:.1} ms",
            m[0], m[1], m[2]
        );
        medians.push(m.iter().sum::<f64>());
    }
    println!("ratio {:.2}", medians[0] / medians[1]);
}

/// On a kernel without AppArmor, and on one that has no such profile: nothing runs without the profile that it asks for.
#[test]
fn a_profile_of_app_armor_that_cannot_be_had_is_an_error() {
    if missing(true) {
        return;
    }
    let case = Case::new("true");
    for runtime in [PODPROBE, RUNC] {
        let running = case.runtime(runtime);
        let mut config = case.config();
        config["process"]["apparmorProfile"] = json!("no-such-profile");
        fs::write(case.dir.path().join("config.json"), config.to_string()).unwrap();
        let (created, error) = running.create();
        assert!(
            !created && error.to_lowercase().contains("apparmor"),
            "{runtime}: {error}"
        );
    }
}
