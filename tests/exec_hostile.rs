//! Containers that attack what enters them (exec-in-container 4), commands that do not want to end (5), and containers
//! that end while they are entered. On real containers; needs root and a static busybox.
//!
//! [`Gate`] holds a command still just before its execve: it is in the container then and still our program, which is
//! the moment that every attack waits for.

mod support;

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::fanotify::{EventFFlags, Fanotify, FanotifyResponse, InitFlags, MarkFlags, MaskFlags, Response};
use podprobe::nsexec::ExecError;
use podprobe::runtime::ExecOutcome;
use podprobe::runtime::state::ContainerState;
use podprobe::settings::RuntimeChoice;
use serde_json::{Value, json};
use support::daemon::Day;
use support::running::Running;
use support::{CEILING, Node, PROGRAM, sh, wait_until};

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|w| (*w).to_owned()).collect()
}

/// Runs until it is ended, with a directory of the node at /v.
fn spec(node: &Node, pod: Value, container: Value) -> Value {
    let shared = shared(node);
    fs::create_dir_all(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let mut c = sh("main", "echo up; while :; do sleep 1; done");
    c["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    c.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let mut spec = json!({"containers": [c], "volumes": [{"name": "v", "hostPath": {"path": shared}}]});
    spec.as_object_mut().unwrap().extend(pod.as_object().unwrap().clone());
    spec
}

fn shared(node: &Node) -> PathBuf {
    node.dir.path().join("shared")
}

/// On the embedded runtime: what is tested is not the runtime's.
fn with(pod: Value, container: Value, test: impl FnOnce(&Running<'_>)) {
    support::on(RuntimeChoice::Embedded, |node| {
        let c = Running::start(node, "hostile", &spec(node, pod, container));
        test(&c);
        c.end();
    });
}

/// Stops whoever executes one file, until it is opened or dropped.
struct Gate {
    fanotify: Fanotify,
}

impl Gate {
    /// A copy of busybox under that name, as /v/NAME in the container.
    fn new(c: &Running<'_>, name: &str) -> Self {
        let file = shared(c.node).join(name);
        fs::copy("/usr/bin/busybox", &file).unwrap();
        let fanotify = Fanotify::init(InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC, EventFFlags::O_RDONLY).unwrap();
        fanotify.mark(MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_OPEN_EXEC_PERM, File::open("/").unwrap(), Some(&file)).unwrap();
        Self { fanotify }
    }

    /// The pid, on the node, of the process that waits. What it waits for comes with [`Held::go`], or when it is dropped.
    #[track_caller]
    fn held(&self) -> Held<'_> {
        let mut fds = [PollFd::new(self.fanotify.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(CEILING).unwrap();
        assert_eq!(poll(&mut fds, limit), Ok(1), "nobody came to execute the file");
        let event = self.fanotify.read_events().unwrap().remove(0);
        Held { pid: event.pid(), gate: self, event }
    }
}

struct Held<'a> {
    pid: i32,
    gate: &'a Gate,
    event: nix::sys::fanotify::FanotifyEvent,
}

impl Held<'_> {
    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid)).unwrap()
    }

    /// A line of its status.
    fn status(&self, key: &str) -> String {
        let status = self.proc("status");
        status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).unwrap().trim().to_owned()
    }

    fn go(self) {}
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let answer = FanotifyResponse::new(self.event.fd().unwrap(), Response::FAN_ALLOW);
        let _ = self.gate.fanotify.write_response(answer);
    }
}

/// A command that waits before its execve, while `meanwhile` runs.
fn while_entering<T>(c: &Running<'_>, gate: &Gate, meanwhile: impl FnOnce(&Held<'_>) -> T) -> (T, Result<ExecOutcome, ExecError>) {
    std::thread::scope(|s| {
        let command = s.spawn(|| c.exec(&words(&["/v/true"]), CEILING, 100));
        let held = gate.held();
        let result = meanwhile(&held);
        held.go();
        (result, command.join().unwrap())
    })
}

/// Tries everything on every process but the shell's own and those of the container, and says what worked.
const ATTACK: &str = r#"
for p in /proc/[0-9]*; do
  n=${p#/proc/}; [ $n = $$ ] && continue
  read name < $p/comm || continue
  case $name in sh|sleep|busybox|cat) continue;; esac
  for f in environ maps mem auxv stack syscall; do
    if (exec 3< $p/$f) 2>/dev/null && cat $p/$f 2>/dev/null | head -c 1 | grep -q . ; then echo read $name $f; fi
    [ $f = mem ] && (exec 3<> $p/$f) 2>/dev/null && echo opened $name mem
  done
  for l in exe cwd root; do readlink $p/$l > /dev/null 2>&1 && echo followed $name $l; done
  for f in 0 1 2 3 4; do readlink $p/fd/$f > /dev/null 2>&1 && echo followed $name fd; done
  (: >> $p/exe) 2>/dev/null && echo wrote $name exe
  (: >> $p/fd/0) 2>/dev/null && echo wrote $name fd
  echo seen $name
done
"#;

/// Reading /proc/PID/mem asks the kernel the same as attaching with ptrace(2) does (PTRACE_MODE_ATTACH), so it stands for it.
fn nothing_works_on_the_entering_process(pod: Value) {
    with(pod, json!({}), |c| {
        let gate = Gate::new(c, "true");
        let ((said, comm), result) = while_entering(c, &gate, |held| {
            let status = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Uid", "Gid", "Groups"].map(|k| held.status(k));
            let first = fs::read_to_string(format!("/proc/{}/status", c.process.pid)).unwrap();
            for value in status {
                assert!(first.contains(&value), "while it enters it is {value:?}, the container's process is {first}");
            }
            let mut open: Vec<String> = fs::read_dir(format!("/proc/{}/fd", held.pid))
                .unwrap()
                .map(|e| fs::read_link(e.unwrap().path()).unwrap().to_string_lossy().split(':').next().unwrap().to_owned())
                .collect();
            open.sort_unstable();
            assert_eq!(open, ["/dev/null", "pipe", "pipe", "socket"], "open while it enters");
            assert_eq!(fs::read_link(format!("/proc/{}/cwd", held.pid)).unwrap(), Path::new("/"));
            (c.sh(ATTACK).1, held.proc("comm"))
        });
        let seen = format!("seen {}", comm.trim());
        assert!(said.lines().any(|l| l == seen), "the entering process was not even found: {said}");
        let worked: Vec<_> = said.lines().filter(|l| !l.starts_with("seen ")).collect();
        // With the node's processes in view some of them (kernel threads) let everybody follow their links.
        let worked: Vec<_> = worked.into_iter().filter(|l| l.contains(comm.trim())).collect();
        assert_eq!(worked, [] as [&str; 0]);
        assert_eq!(result, Ok(ExecOutcome::Exited { code: 0, output: vec![] }));
    });
}

#[test]
fn the_entering_process_cannot_be_traced_or_read() {
    nothing_works_on_the_entering_process(json!({}));
}

#[test]
fn nor_in_the_process_namespace_of_the_node() {
    nothing_works_on_the_entering_process(json!({"hostPID": true}));
}

/// A container with CAP_SYS_PTRACE may read the entering process: then it is one that has nothing of the daemon.
#[test]
fn a_tracer_finds_nothing_of_the_daemon() {
    let security = json!({"capabilities": {"add": ["SYS_PTRACE"]}});
    with(json!({}), json!({"securityContext": security}), |c| {
        let secret = format!("secret-{}", std::process::id() * 7);
        let gate = Gate::new(c, "true");
        let (own, result) = while_entering(c, &gate, |held| {
            let own = fs::read_to_string("/proc/self/maps").unwrap();
            assert_ne!(held.proc("maps").lines().next(), own.lines().next(), "it shares our memory");
            assert!(held.proc("environ").is_empty(), "the daemon's environment is in it");
            assert!(held.status("VmData").trim_end_matches(" kB").trim().parse::<u64>().unwrap() < 4096);
            assert_eq!(held.status("CapEff"), status_of(c.process.pid, "CapEff"));
            let memory = File::open(format!("/proc/{}/mem", held.pid)).unwrap();
            let found = held.proc("maps").lines().filter(|l| l.contains(" rw-p ")).any(|l| contains(&memory, l, secret.as_bytes()));
            assert!(!found, "what the daemon holds is in the memory that the container can read");
            assert_eq!(fs::read_dir(format!("/proc/{}/fd", held.pid)).unwrap().count(), 4);
            own
        });
        assert!(own.len() > 100 && secret.len() > 7);
        assert_eq!(result, Ok(ExecOutcome::Exited { code: 0, output: vec![] }));
    });
}

fn status_of(pid: i32, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).unwrap().trim().to_owned()
}

/// Whether these bytes are in the region of memory that a line of `maps` names.
fn contains(memory: &File, line: &str, bytes: &[u8]) -> bool {
    let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let [from, to] = [from, to].map(|n| u64::from_str_radix(n, 16).unwrap());
    let mut text = vec![0; (to - from) as usize];
    let read = std::os::unix::fs::FileExt::read_at(memory, &mut text, from).unwrap_or(0);
    text[..read].windows(bytes.len()).any(|w| w == bytes)
}

/// Waits for a process whose arguments are those of our program, and tries to change what it runs. While a program runs
/// nobody can write to its file (ETXTBSY), which hides what would happen after; its mode can be changed by then, too.
const OVERWRITE: &str = r#"
while :; do for p in /proc/[0-9]*; do
  read -r line < $p/cmdline 2>/dev/null
  case "$line" in /proc/self/exe*)
    command exec 4< $p/exe || continue
    busybox chmod u+x /proc/self/fd/4 2>> /starts/$0.said && echo changed while it runs >> /starts/$0.said
    { true >> /proc/self/fd/4; } 2>> /dev/null && echo written while it runs >> /starts/$0.said
    [ -p /tmp/fifo ] && echo > /tmp/fifo
    while [ -e $p/exe ]; do :; done
    busybox chmod u+x /proc/self/fd/4 2>> /starts/$0.said && echo changed afterwards >> /starts/$0.said
    echo done >> /starts/$0.said; exec sleep 100000;;
  esac
done; done"#;

/// CVE-2019-5736: the container has the daemon's own program run inside, keeps a handle of it, and writes through that.
#[track_caller]
fn check_overwrite(name: &str, prepare: &str, command: &[&str]) {
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let before = fs::read(PROGRAM).unwrap();
        let probe = json!({"exec": {"command": command}, "timeoutSeconds": 10, "periodSeconds": 1, "failureThreshold": 1000});
        let script = format!("{prepare}\nset -- {name}\nexec /bin/sh -c '{}' {name}", OVERWRITE.replace('\'', "'\\''"));
        let mut pod = day.pod(name, &script, json!({"readinessProbe": probe}));
        // The program of the tests is not the static one: it runs inside where its libraries are.
        for (n, dir) in ["/lib", "/lib64", "/usr/lib"].iter().enumerate().filter(|(_, d)| Path::new(d).exists()) {
            let spec = &mut pod["spec"];
            spec["volumes"].as_array_mut().unwrap().push(json!({"name": format!("l{n}"), "hostPath": {"path": dir}}));
            let mount = json!({"name": format!("l{n}"), "mountPath": dir, "readOnly": true});
            spec["containers"][0]["volumeMounts"].as_array_mut().unwrap().push(mount);
        }
        day.put(name, pod);
        let said = node.dir.path().join(format!("starts/{name}.said"));
        wait_until("the attack", || fs::read_to_string(&said).is_ok_and(|s| s.contains("done")));
        let said = fs::read_to_string(said).unwrap();
        assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
        assert!(!said.contains("written") && !said.contains("changed"), "{said}");
        assert!(fs::read(PROGRAM).unwrap() == before);
        day.end();
    });
}

#[test]
fn the_daemons_program_cannot_be_written_through_a_link() {
    // The verb waits for the other end of the FIFO.
    check_overwrite("link", "mkfifo /tmp/fifo", &["/proc/self/exe", "validate", "/tmp/fifo"]);
}

#[test]
fn the_daemons_program_cannot_be_written_through_a_script() {
    let prepare = "printf \"#!/proc/self/exe validate\\n\" > /tmp/sh; head -c 30000000 /dev/zero >> /tmp/sh; chmod 755 /tmp/sh";
    check_overwrite("script", prepare, &["/tmp/sh"]);
}
