//! Containers that attack what enters them (exec-in-container 4), commands that do not want to end (exec-in-container 5), and containers
//! that end while they are entered. On real containers; needs root and a static busybox.
//!
//! [`Gate`] holds a command still just before its execve: it is in the container then and still our program, which is
//! the moment that every attack waits for.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyResponse, InitFlags, MarkFlags, MaskFlags, Response,
};
use podprobe::base::sys::enter::Step;
use podprobe::base::sys::task::PidFd;
use podprobe::engine::nsexec::ExecError;
use podprobe::engine::runtime::ExecOutcome;
use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::Day;
use crate::support::own_process::is_own_process;
use crate::support::running::Running;
use crate::support::{CEILING, Node, PROGRAM, sh, wait_until};

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
    c.as_object_mut()
        .unwrap()
        .extend(container.as_object().unwrap().clone());
    let mut spec =
        json!({"containers": [c], "volumes": [{"name": "v", "hostPath": {"path": shared}}]});
    spec.as_object_mut()
        .unwrap()
        .extend(pod.as_object().unwrap().clone());
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
        Self::of(&file, MaskFlags::FAN_OPEN_EXEC_PERM)
    }

    /// Stops whoever does that with the file.
    fn of(file: &Path, mask: MaskFlags) -> Self {
        let fanotify = Fanotify::init(
            InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC,
            EventFFlags::O_RDONLY,
        )
        .unwrap();
        fanotify
            .mark(
                MarkFlags::FAN_MARK_ADD,
                mask,
                File::open("/").unwrap(),
                Some(file),
            )
            .unwrap();
        Self { fanotify }
    }

    /// The pid, on the node, of the process that waits. What it waits for comes with [`Held::go`], or when it is dropped.
    #[track_caller]
    fn held(&self) -> Held<'_> {
        let mut fds = [PollFd::new(self.fanotify.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(CEILING).unwrap();
        assert_eq!(
            poll(&mut fds, limit),
            Ok(1),
            "nobody came to execute the file"
        );
        let event = self.fanotify.read_events().unwrap().remove(0);
        Held {
            pid: event.pid(),
            gate: self,
            event,
        }
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
        status
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))
            .unwrap()
            .trim()
            .to_owned()
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
fn while_entering<T>(
    c: &Running<'_>,
    gate: &Gate,
    meanwhile: impl FnOnce(&Held<'_>) -> T,
) -> (T, Result<ExecOutcome, ExecError>) {
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
            let status = [
                "CapInh",
                "CapPrm",
                "CapEff",
                "CapBnd",
                "CapAmb",
                "NoNewPrivs",
                "Uid",
                "Gid",
                "Groups",
            ]
            .map(|k| held.status(k));
            let first = fs::read_to_string(format!("/proc/{}/status", c.process.pid)).unwrap();
            for value in status {
                assert!(
                    first.contains(&value),
                    "while it enters it is {value:?}, the container's process is {first}"
                );
            }
            let mut open: Vec<String> = fs::read_dir(format!("/proc/{}/fd", held.pid))
                .unwrap()
                .map(|e| {
                    fs::read_link(e.unwrap().path())
                        .unwrap()
                        .to_string_lossy()
                        .split(':')
                        .next()
                        .unwrap()
                        .to_owned()
                })
                .collect();
            open.sort_unstable();
            assert_eq!(open, ["/dev/null", "pipe", "pipe"], "open while it enters");
            assert_eq!(
                fs::read_link(format!("/proc/{}/cwd", held.pid)).unwrap(),
                Path::new("/")
            );
            (c.sh(ATTACK).1, held.proc("comm"))
        });
        let seen = format!("seen {}", comm.trim());
        assert!(
            said.lines().any(|l| l == seen),
            "the entering process was not even found: {said}"
        );
        let worked: Vec<_> = said.lines().filter(|l| !l.starts_with("seen ")).collect();
        // With the node's processes in view some of them (kernel threads) let everybody follow their links.
        let worked: Vec<_> = worked
            .into_iter()
            .filter(|l| l.contains(comm.trim()))
            .collect();
        assert_eq!(worked, [] as [&str; 0]);
        assert_eq!(
            result,
            Ok(ExecOutcome::Exited {
                code: 0,
                output: vec![]
            })
        );
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

/// Of a line of /proc/PID/maps.
fn size(line: &str) -> u64 {
    let (range, _) = line.split_once(' ').unwrap();
    let (from, to) = range.split_once('-').unwrap();
    let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
    to - from
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
            assert_ne!(
                held.proc("maps").lines().next(),
                own.lines().next(),
                "it shares our memory"
            );
            assert!(
                held.proc("environ").is_empty(),
                "the daemon's environment is in it"
            );
            assert!(
                held.status("VmData")
                    .trim_end_matches(" kB")
                    .trim()
                    .parse::<u64>()
                    .unwrap()
                    < 4096
            );
            assert_eq!(held.status("CapEff"), status_of(c.process.pid, "CapEff"));
            // How far the command is, and not which processes the daemon waits for.
            let maps = held.proc("maps");
            let shared = maps.lines().filter(|l| l.contains(" rw-s "));
            let sizes: Vec<u64> = shared.map(size).collect();
            assert_eq!(sizes, [64 << 10], "{maps}");
            let memory = File::open(format!("/proc/{}/mem", held.pid)).unwrap();
            let found = held
                .proc("maps")
                .lines()
                .filter(|l| l.contains(" rw-p "))
                .any(|l| contains(&memory, l, secret.as_bytes()));
            assert!(
                !found,
                "what the daemon holds is in the memory that the container can read"
            );
            assert_eq!(
                fs::read_dir(format!("/proc/{}/fd", held.pid))
                    .unwrap()
                    .count(),
                3
            );
            own
        });
        assert!(own.len() > 100 && secret.len() > 7);
        assert_eq!(
            result,
            Ok(ExecOutcome::Exited {
                code: 0,
                output: vec![]
            })
        );
    });
}

/// Where the container may trace the command's process, that one is under the container's profile from its first system
/// call on. What shows it: a profile under which no session can be made, and the first thing the process does is that.
#[test]
fn a_tracer_never_sees_a_command_without_its_filter() {
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["setsid"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77}],
    });
    for (added, filtered) in [(json!(["SYS_PTRACE"]), true), (json!([]), false)] {
        let security = json!({"capabilities": {"add": added}, "allowPrivilegeEscalation": false});
        with(json!({}), json!({"securityContext": security}), |c| {
            let mut config = c.config.clone();
            assert_eq!(config["process"]["noNewPrivileges"], json!(true));
            config["linux"]["seccomp"] = profile.clone();
            let result = c.exec_with(
                &config,
                &words(&["/bin/busybox", "echo", "ran"]),
                CEILING,
                100,
            );
            let late = Ok(ExecOutcome::Exited {
                code: 0,
                output: b"ran\n".to_vec(),
            });
            let early = Err(ExecError::Step {
                step: Step::Session,
                object: "container".into(),
                errno: 77,
            });
            assert_eq!(result, if filtered { early } else { late });
        });
    }
}

/// The kernel kills everyone who shares memory with a process that it picks in a container out of memory.
#[test]
fn nothing_in_the_containers_cgroups_shares_our_memory() {
    for added in [json!(["SYS_PTRACE"]), json!([])] {
        let security = json!({"capabilities": {"add": added}});
        with(json!({}), json!({"securityContext": security}), |c| {
            let gate = Gate::new(c, "true");
            let (inside, result) = while_entering(c, &gate, |held| {
                let maps = fs::read_to_string("/proc/self/maps").unwrap();
                let inside = c.processes();
                assert!(inside.contains(&held.pid));
                for pid in &inside {
                    // A sleep of the shell may have ended by now.
                    let theirs = fs::read_to_string(format!("/proc/{pid}/maps"));
                    let theirs = theirs.unwrap_or_default();
                    // Every address is another in another memory, but for the page that is everywhere.
                    let mut own = theirs.lines().filter(|l| !l.ends_with("[vsyscall]"));
                    assert!(own.all(|l| !maps.contains(l)), "{pid}: {theirs}");
                }
                inside.len()
            });
            // The shell, what it may wait for, and the two that enter.
            assert!((3..=4).contains(&inside), "{inside}");
            assert_eq!(
                result,
                Ok(ExecOutcome::Exited {
                    code: 0,
                    output: vec![]
                })
            );
        });
    }
}

fn status_of(pid: i32, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status
        .lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))
        .unwrap()
        .trim()
        .to_owned()
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
        let script = format!(
            "{prepare}\nset -- {name}\nexec /bin/sh -c '{}' {name}",
            OVERWRITE.replace('\'', "'\\''")
        );
        let mut pod = day.pod(name, &script, json!({"readinessProbe": probe}));
        // The program of the tests is not the static one: it runs inside where its libraries are.
        for (n, dir) in ["/lib", "/lib64", "/usr/lib"]
            .iter()
            .enumerate()
            .filter(|(_, d)| Path::new(d).exists())
        {
            let spec = &mut pod["spec"];
            spec["volumes"]
                .as_array_mut()
                .unwrap()
                .push(json!({"name": format!("l{n}"), "hostPath": {"path": dir}}));
            let mount = json!({"name": format!("l{n}"), "mountPath": dir, "readOnly": true});
            spec["containers"][0]["volumeMounts"]
                .as_array_mut()
                .unwrap()
                .push(mount);
        }
        day.put(name, pod);
        let said = node.dir.path().join(format!("starts/{name}.said"));
        wait_until("the attack", || {
            fs::read_to_string(&said).is_ok_and(|s| s.contains("done"))
        });
        let said = fs::read_to_string(said).unwrap();
        assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
        assert!(
            !said.contains("written") && !said.contains("changed"),
            "{said}"
        );
        assert!(fs::read(PROGRAM).unwrap() == before);
        day.end();
    });
}

#[test]
fn the_daemons_program_cannot_be_written_through_a_link() {
    // The verb waits for the other end of the FIFO.
    check_overwrite(
        "link",
        "mkfifo /tmp/fifo",
        &["/proc/self/exe", "validate", "/tmp/fifo"],
    );
}

#[test]
fn the_daemons_program_cannot_be_written_through_a_script() {
    let prepare = "printf \"#!/proc/self/exe validate\\n\" > /tmp/sh; head -c 30000000 /dev/zero >> /tmp/sh; chmod 755 /tmp/sh";
    check_overwrite("script", prepare, &["/tmp/sh"]);
}

#[track_caller]
fn check_output(c: &Running<'_>, command: &[&str], code: i32, output: &str) {
    let expected = ExecOutcome::Exited {
        code,
        output: output.into(),
    };
    assert_eq!(
        c.exec(&words(command), CEILING, 10240),
        Ok(expected),
        "{command:?}"
    );
}

/// Serial numbers of the keyrings that this thread can see.
fn keyrings() -> Vec<String> {
    let keys = fs::read_to_string("/proc/keys").unwrap_or_default();
    keys.lines()
        .filter_map(|l| l.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// As another user the command sees the keys that it possesses, and no others.
#[test]
fn a_command_has_none_of_the_daemons_keys() {
    let security = json!({"privileged": true, "runAsUser": 1234});
    for added in [json!({}), json!({"hostPID": true})] {
        with(added, json!({"securityContext": security}), |c| {
            let before = keyrings();
            podprobe::base::sys::process::new_session_keyring().unwrap();
            let ours: Vec<String> = keyrings()
                .into_iter()
                .filter(|k| !before.contains(k))
                .collect();
            let Ok(ExecOutcome::Exited { code: 0, output }) =
                c.exec(&words(&["/bin/cat", "/proc/keys"]), CEILING, 10240)
            else {
                panic!()
            };
            let seen = String::from_utf8(output).unwrap();
            assert!(
                !ours.is_empty() || before.is_empty(),
                "the new keyring is not seen at all"
            );
            assert!(
                ours.iter().all(|k| !seen.contains(k)),
                "{ours:?} of ours in the container: {seen}"
            );
        });
    }
}

/// CVE-2016-9962, CVE-2024-21626: whatever the daemon has open, and not marked to be closed, is not the command's.
#[test]
fn no_descriptor_of_the_daemon_is_the_commands() {
    for security in [json!({}), json!({"capabilities": {"add": ["SYS_PTRACE"]}})] {
        with(json!({}), json!({"securityContext": security}), |c| {
            let dir = File::open("/").unwrap();
            let at =
                |lowest| nix::fcntl::fcntl(&dir, nix::fcntl::FcntlArg::F_DUPFD(lowest)).unwrap();
            let open = [at(3), at(100), at(900)];
            let dirs = ["/bin/ls", "/proc/self/fd/"];
            let result = c.exec(&words(&dirs), CEILING, 10240);
            open.iter().for_each(|f| nix::unistd::close(*f).unwrap());
            assert_eq!(
                result,
                Ok(ExecOutcome::Exited {
                    code: 0,
                    output: b"0\n1\n2\n3\n".to_vec()
                }),
                "its own stdio and what it lists"
            );
        });
    }
}

/// CVE-2024-21626: a working directory that is one of our descriptors, or of another process, is no place to run in.
#[test]
fn a_working_directory_outside_the_root_is_refused() {
    with(json!({"hostPID": true}), json!({}), |c| {
        let mut config = c.config.clone();
        let mut dirs: Vec<String> = (3..64).map(|n| format!("/proc/self/fd/{n}")).collect();
        let me = std::process::id();
        dirs.extend([
            format!("/proc/{me}/root"),
            format!("/proc/{me}/cwd"),
            "/proc/1/root".into(),
            "/proc/thread-self/fd/9".into(),
        ]);
        let root = c.exec(&words(&["/bin/ls", "-a"]), CEILING, 1000);
        let mut outside = 0;
        for dir in dirs {
            config["process"]["cwd"] = json!(dir);
            match c.exec_with(&config, &words(&["/bin/ls", "-a"]), CEILING, 1000) {
                // The one descriptor that is of the container: its root.
                Ok(inside) => assert_eq!(Ok(inside), root, "{dir}"),
                Err(e) => {
                    assert!(
                        e.to_string()
                            .starts_with(&format!("cannot change to working directory {dir}")),
                        "{e}"
                    );
                    outside += usize::from(e.to_string().contains("outside the container's root"));
                }
            }
        }
        assert!(outside > 0, "no directory of ours was tried");
        // The root itself, by whatever way, is inside.
        config["process"]["cwd"] = json!("/proc/self/root/tmp/..");
        let r = c.exec_with(
            &config,
            &words(&["/bin/readlink", "/proc/self/cwd"]),
            CEILING,
            1000,
        );
        assert_eq!(
            r,
            Ok(ExecOutcome::Exited {
                code: 0,
                output: b"/\n".to_vec()
            })
        );
    });
}

/// The container's /proc is another file system with traps in it: nothing that we do follows them.
#[test]
fn a_proc_that_is_none_changes_nothing() {
    with(
        json!({}),
        json!({"securityContext": {"privileged": true}}),
        |c| {
            let script = "busybox umount -l /proc && busybox mount -t tmpfs t /proc && busybox mkdir /proc/1 /proc/trap && \
            busybox ln -s trap /proc/self && busybox ln -s trap /proc/thread-self && busybox mkdir /proc/trap/fd /proc/trap/attr && \
            : > /proc/trap/oom_score_adj && : > /proc/trap/attr/exec && busybox ln -s /etc/passwd /proc/trap/exe && echo set";
            check_output(c, &["/bin/sh", "-c", script], 0, "set\n");
            let mut config = c.config.clone();
            config["process"]["oomScoreAdj"] = json!(777);
            let gate = Gate::new(c, "true");
            std::thread::scope(|s| {
                let command = s.spawn(|| c.exec_with(&config, &words(&["/v/true"]), CEILING, 100));
                let held = gate.held();
                assert_eq!(held.proc("oom_score_adj"), "777\n");
                assert_eq!(held.status("CapEff"), status_of(c.process.pid, "CapEff"));
                held.go();
                assert_eq!(
                    command.join().unwrap(),
                    Ok(ExecOutcome::Exited {
                        code: 0,
                        output: vec![]
                    })
                );
            });
            // Nothing was written where the links lead.
            check_output(
                c,
                &[
                    "/bin/sh",
                    "-c",
                    "cat /proc/trap/oom_score_adj /proc/trap/attr/exec",
                ],
                0,
                "",
            );
        },
    );
}

/// stdin is at its end whatever lies at /dev/null, and opening it waits for nobody.
#[test]
fn a_replaced_null_device_is_not_read() {
    with(json!({}), json!({}), |c| {
        for trap in [
            "mkfifo /dev/null",
            "ln -s /etc/passwd /dev/null",
            "echo trap > /dev/null",
            "mkdir /dev/null",
            "mknod /dev/null c 1 5",
            ":",
        ] {
            let script = format!("rm -rf /dev/null; busybox {trap}; {trap} 2>/tmp/x; echo set");
            let (_, out) = c.sh(&script
                .replace("; busybox :", "")
                .replace("busybox echo", "echo"));
            assert!(out.ends_with("set\n"), "{trap}: {out}");
            check_output(c, &["/bin/cat"], 0, "");
            check_output(c, &["/bin/sh", "-c", "read x || echo end"], 0, "end\n");
        }
    });
}

/// The passwd file of the container is looked into for a home directory.
#[test]
fn a_passwd_that_is_a_fifo_or_leads_out_is_passed_over() {
    with(json!({}), json!({}), |c| {
        for trap in [
            "mkfifo /etc/passwd",
            "ln -s /proc/1/environ /etc/passwd",
            "ln -s ../../../../../../etc/passwd /etc/passwd",
            "mkdir /etc/passwd",
        ] {
            assert_eq!(
                c.sh(&format!("rm -rf /etc/passwd; busybox {trap} && echo set")),
                (0, "set\n".into()),
                "{trap}"
            );
            assert_eq!(c.sh("echo $HOME"), (0, "/\n".into()), "{trap}");
        }
    });
}

/// What cannot be executed is the command's failure, at once.
#[test]
fn files_that_cannot_be_executed_fail_at_once() {
    with(json!({}), json!({}), |c| {
        let prepare = "mkfifo /tmp/fifo; chmod 755 /tmp/fifo; mkdir /tmp/dir; printf '#!/tmp/fifo\\n' > /tmp/by; printf '#!/tmp/by\\n' > /tmp/by2; \
            printf '#!/nowhere\\n' > /tmp/nowhere; : > /tmp/empty; printf '\\177ELF' > /tmp/elf; chmod 755 /tmp/*; echo set";
        assert_eq!(
            c.sh(&prepare
                .replace("mkfifo", "busybox mkfifo")
                .replace("mkdir", "busybox mkdir")
                .replace("chmod", "busybox chmod"))
                .1,
            "set\n"
        );
        let begun = Instant::now();
        for (file, code, text) in [
            ("/tmp/fifo", 126, "permission denied"),
            ("/tmp/dir", 126, "permission denied"),
            ("/tmp/by", 126, "permission denied"),
            ("/tmp/by2", 126, "permission denied"),
            ("/tmp/nowhere", 127, "no such file or directory"),
            ("/tmp/empty", 126, "exec format error"),
            ("/tmp/elf", 126, "exec format error"),
        ] {
            let Ok(ExecOutcome::Exited { code: got, output }) =
                c.exec(&words(&[file]), CEILING, 1000)
            else {
                panic!("{file}")
            };
            let output = String::from_utf8(output).unwrap();
            assert!(
                got == code && output.ends_with(text),
                "{file}: {got} {output}"
            );
        }
        assert!(
            begun.elapsed() < Duration::from_secs(9),
            "something waited for the limit of the start"
        );
    });
}

/// An execve that never ends is given up after the limit of the start, and nothing of it stays.
#[test]
fn a_command_that_never_starts_is_given_up() {
    with(json!({}), json!({}), |c| {
        let gate = Gate::new(c, "true");
        std::thread::scope(|s| {
            let begun = Instant::now();
            let command = s.spawn(|| c.exec(&words(&["/v/true"]), Duration::from_millis(100), 100));
            let held = gate.held();
            assert_eq!(command.join().unwrap(), Err(ExecError::StartTimeout(10)));
            assert!(begun.elapsed() >= Duration::from_secs(10));
            assert!(
                !Path::new(&format!("/proc/{}", held.pid)).exists(),
                "it is still there"
            );
        });
        // The shell, and the sleep it may be in.
        assert!(c.processes().len() <= 2);
        check_output(c, &["/bin/sh", "-c", "echo again"], 0, "again\n");
    });
}

/// The timeout counts from the execve, not from the request (exec-in-container 5).
#[test]
fn the_start_does_not_count() {
    with(json!({}), json!({}), |c| {
        let gate = Gate::new(c, "busybox");
        std::thread::scope(|s| {
            let command = s.spawn(|| {
                c.exec(
                    &words(&["/v/busybox", "echo", "ran"]),
                    Duration::from_millis(300),
                    100,
                )
            });
            let held = gate.held();
            std::thread::sleep(Duration::from_millis(400));
            held.go();
            assert_eq!(
                command.join().unwrap(),
                Ok(ExecOutcome::Exited {
                    code: 0,
                    output: b"ran\n".to_vec()
                })
            );
        });
    });
}

/// The container stops the command as early as it can: that does not stop the clock.
#[test]
fn a_command_that_the_container_stops_is_killed_at_its_timeout() {
    with(json!({}), json!({}), |c| {
        let stop = "while :; do for p in /proc/[0-9]*; do read n < $p/comm 2>/dev/null; case $n in sh|sleep|cat|busybox) ;; \
            *) kill -STOP ${p#/proc/} && echo stopped && exit 0;; esac; done; done";
        let gate = Gate::new(c, "true");
        std::thread::scope(|s| {
            let command = s.spawn(|| c.exec(&words(&["/v/true"]), Duration::from_millis(300), 100));
            let held = gate.held();
            assert_eq!(c.sh(stop), (0, "stopped\n".into()));
            held.go();
            assert_eq!(
                command.join().unwrap(),
                Ok(ExecOutcome::TimedOut { output: vec![] })
            );
        });
        assert!(c.processes().len() <= 2);
    });
}

/// The container ends while a command is just before its execve: it is killed with it, and runs nowhere else.
#[test]
fn a_container_that_ends_meanwhile_takes_the_entering_process_along() {
    for pod in [json!({}), json!({"hostPID": true})] {
        with(pod.clone(), json!({}), |c| {
            let gate = Gate::new(c, "busybox");
            std::thread::scope(|s| {
                let command =
                    s.spawn(|| c.exec(&words(&["/v/busybox", "touch", "/v/ran"]), CEILING, 100));
                let held = gate.held();
                support::kill9(c.process);
                wait_until("the entering process to end", || {
                    !Path::new(&format!("/proc/{}", held.pid)).exists()
                });
                held.go();
                // Between "the next thing is execve" and execve it cannot be told from a command that was killed.
                assert_eq!(
                    command.join().unwrap(),
                    Ok(ExecOutcome::Exited {
                        code: 137,
                        output: vec![]
                    }),
                    "{pod}"
                );
            });
            assert!(!shared(c.node).join("ran").exists());
            assert_eq!(
                c.exec(&words(&["/v/busybox", "touch", "/v/ran"]), CEILING, 100),
                Err(ExecError::NotRunning { pid: c.process.pid })
            );
        });
    }
}

/// Processes of our spawner's program that have its memory: the spawner outside of the container, the first child inside
/// but not in view, and the second where it is held.
fn spawners() -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.map(|t| fs::read_to_string(t.path().join("children")).unwrap_or_default());
    let named = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0nsexec\0"))
    };
    let pids = children.flat_map(|c| c.split(' ').flat_map(str::parse).collect::<Vec<i32>>());
    pids.filter(named).collect()
}

fn kill_and_wait(pid: i32) {
    let process = PidFd::of(pid).unwrap();
    process.send(libc::SIGKILL).unwrap();
    assert!(process.wait(CEILING).unwrap());
}

/// The spawner, while something of it is in the container.
fn spawner_of(c: &Running<'_>) -> i32 {
    let inside = c.processes();
    let outside: Vec<i32> = spawners()
        .into_iter()
        .filter(|p| !inside.contains(p))
        .collect();
    assert_eq!(outside.len(), 1, "{outside:?}");
    outside[0]
}

/// What is in the container shares the spawner's memory, so a container out of memory has it killed.
#[test]
fn a_spawner_that_is_killed_costs_no_command() {
    if !is_own_process(module_path!(), "a_spawner_that_is_killed_costs_no_command") {
        return;
    }
    with(json!({}), json!({}), |c| {
        // The first child opens it when it is in the container, and is held.
        assert_eq!(
            c.sh("rm -f /dev/null; : > /dev/null; echo set"),
            (0, "set\n".into())
        );
        let null = PathBuf::from(format!("/proc/{}/root/dev/null", c.process.pid));
        for kills in [1, 3, 4] {
            let gate = Gate::of(&null, MaskFlags::FAN_OPEN_PERM);
            let script = ["/bin/sh", "-c", "echo ran >> /v/ran"];
            std::thread::scope(|s| {
                let command = s.spawn(|| c.exec(&words(&script), CEILING, 100));
                for _ in 0..kills {
                    let held = gate.held();
                    kill_and_wait(spawner_of(c));
                    wait_until("the first child to end", || {
                        !Path::new(&format!("/proc/{}", held.pid)).exists()
                    });
                }
                if kills <= 3 {
                    gate.held().go();
                }
                let result = command.join().unwrap();
                if kills <= 3 {
                    let output = vec![];
                    assert_eq!(result, Ok(ExecOutcome::Exited { code: 0, output }));
                } else {
                    assert_eq!(result, Err(ExecError::SpawnerLost));
                }
            });
        }
        let ran = fs::read_to_string(shared(c.node).join("ran")).unwrap();
        assert_eq!(ran, "ran\nran\n");
        assert_eq!(leaves(c), 0);
    });
}

/// A command that has come as far as execve goes on without its spawner, and is not started twice.
#[test]
fn a_command_that_is_executed_does_not_need_its_spawner() {
    if !is_own_process(
        module_path!(),
        "a_command_that_is_executed_does_not_need_its_spawner",
    ) {
        return;
    }
    with(json!({}), json!({}), |c| {
        let gate = Gate::new(c, "true");
        let ((), result) = while_entering(c, &gate, |held| {
            assert!(c.processes().contains(&held.pid));
            kill_and_wait(spawner_of(c));
        });
        let output = vec![];
        assert_eq!(result, Ok(ExecOutcome::Exited { code: 0, output }));
    });
}

/// Who kills the first child sets the spawner free while the second still reads its arguments in the spawner's memory.
#[test]
fn a_command_keeps_its_arguments_when_the_first_child_is_killed() {
    if !is_own_process(
        module_path!(),
        "a_command_keeps_its_arguments_when_the_first_child_is_killed",
    ) {
        return;
    }
    with(json!({}), json!({}), |c| {
        let gate = Gate::new(c, "busybox");
        let long = "x".repeat(2000);
        std::thread::scope(|s| {
            let own = ["/v/busybox", "echo", "own", &long];
            let command = s.spawn(move || c.exec(&words(&own), CEILING, 4000));
            let held = gate.held();
            let inside = c.processes();
            let spawner = PidFd::of(spawner_of(c)).unwrap();
            let first = spawners()
                .into_iter()
                .find(|p| inside.contains(p) && *p != held.pid);
            kill_and_wait(first.unwrap());
            assert!(spawner.wait(CEILING).unwrap(), "the spawner lives on");
            let other = ["/bin/busybox", "echo", "other"];
            check_output(c, &other, 0, "other\n");
            held.go();
            let result = command.join().unwrap();
            let output = format!("own {}\n", "x".repeat(2000)).into_bytes();
            assert_eq!(result, Ok(ExecOutcome::Exited { code: 0, output }));
        });
    });
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Zombies too.
fn children() -> usize {
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

/// A line of our own status, in kB.
fn memory(key: &str) -> u64 {
    status_of(std::process::id() as i32, key)
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

fn leaves(c: &Running<'_>) -> usize {
    let state: podprobe::engine::shims::state::ContainerState =
        c.node.record(&c.id, podprobe::engine::shims::state::STATE);
    let below = state
        .cgroups
        .iter()
        .flat_map(|d| fs::read_dir(d).into_iter().flatten().flatten());
    below
        .filter(|e| e.file_name().to_string_lossy().starts_with("exec-"))
        .count()
}

/// Everything that survives a kill of the process or its group: a session of its own, a double fork, TERM ignored.
const STUBBORN: &str = "trap '' TERM HUP INT; setsid sleep 1000 & (setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &); sleep 1000";

/// As many timeouts from as many threads, each of a few milliseconds and with a tree that does not want to end.
fn many_timeouts(total: usize, threads: usize) {
    with(json!({}), json!({}), |c| {
        c.sh("true");
        let before = (descriptors(), children(), leaves(c));
        let (begun, rss) = (Instant::now(), memory("VmRSS"));
        let next = std::sync::atomic::AtomicUsize::new(0);
        let (late, slowest) = (
            std::sync::Mutex::new(0_usize),
            std::sync::Mutex::new(Duration::ZERO),
        );
        std::thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| {
                    loop {
                        let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if n >= total {
                            return;
                        }
                        let timeout = Duration::from_millis(1 + n as u64 % 7);
                        let started = Instant::now();
                        let r = c.exec(&words(&["/bin/sh", "-c", STUBBORN]), timeout, 10);
                        assert_eq!(r, Ok(ExecOutcome::TimedOut { output: vec![] }));
                        let took = started.elapsed();
                        *late.lock().unwrap() +=
                            usize::from(took > timeout + Duration::from_millis(500));
                        let mut slowest = slowest.lock().unwrap();
                        *slowest = took.max(*slowest);
                    }
                });
            }
        });
        eprintln!(
            "{total} timeouts from {threads} threads in {:.1} s, {} later than 0.5 s, slowest {:?}, VmRSS {rss} -> {} kB",
            begun.elapsed().as_secs_f64(),
            late.lock().unwrap(),
            slowest.lock().unwrap(),
            memory("VmRSS")
        );
        // One that would not die in 5 s is collected by the next.
        c.sh("true");
        let after = (descriptors(), children(), leaves(c));
        assert_eq!(
            (after.1, after.2),
            (before.1, before.2),
            "children, cgroups"
        );
        // As many boards as threads, at most, are kept for later commands; the first is there before.
        let kept = before.0..before.0 + threads;
        assert!(
            kept.contains(&after.0),
            "{} descriptors, not {kept:?}",
            after.0
        );
        assert!(c.processes().len() <= 2, "{:?}", c.processes());
        // Those whose parent died are the container's first process's, a shell that waits for them when it is done with its sleep.
        wait_until("the zombies to go", || {
            let inside = c.sh("for p in /proc/[0-9]*; do echo ${p#/proc/}; done").1;
            inside.lines().count() <= 4
        });
        assert!(
            memory("VmRSS") < rss + 8192,
            "VmRSS grew from {rss} to {} kB",
            memory("VmRSS")
        );
    });
}

#[test]
fn c2_two_hundred_timeouts_leave_nothing() {
    if is_own_process(module_path!(), "c2_two_hundred_timeouts_leave_nothing") {
        many_timeouts(200, 4);
    }
}

/// `cargo test --release --test engine exec_hostile:: -- --ignored --nocapture`; some twenty minutes.
#[test]
#[ignore = "takes long; its figures are in BENCHMARKS.md"]
fn c2_a_hundred_thousand_timeouts_leave_nothing() {
    if is_own_process(
        module_path!(),
        "c2_a_hundred_thousand_timeouts_leave_nothing",
    ) {
        let total = std::env::var("EXEC_TIMEOUTS")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(100_000);
        many_timeouts(total, 4);
    }
}

/// A bomb that forks up to the limit of processes, each with a session of its own.
#[test]
fn c2_a_fork_bomb_dies_at_the_timeout() {
    with(json!({}), json!({}), |c| {
        let state: podprobe::engine::shims::state::ContainerState =
            c.node.record(&c.id, podprobe::engine::shims::state::STATE);
        let limited: Vec<&PathBuf> = state
            .cgroups
            .iter()
            .filter(|d| fs::write(d.join("pids.max"), "200").is_ok())
            .collect();
        let Some(pids) = limited.first() else {
            return support::skip::skip("no pids controller reaches the container's cgroup");
        };
        let was_reached = || {
            let events = fs::read_to_string(pids.join("pids.events")).unwrap();
            events.starts_with("max ") && events.trim() != "max 0"
        };
        let bomb = "trap '' TERM; bomb() { setsid sh -c 'trap \"\" TERM; while :; do sleep 1000 & done' & bomb; }; bomb 2> /dev/null & exec sleep 1000";
        let mut seconds = 1;
        loop {
            let timeout = Duration::from_secs(seconds);
            assert!(timeout < CEILING, "the bomb never reached the limit");
            let result = c.exec(&words(&["/bin/sh", "-c", bomb]), timeout, 100);
            assert!(matches!(result, Ok(ExecOutcome::TimedOut { .. })));
            let left = c.processes().len();
            assert!(left <= 2, "{left} processes are left");
            assert_eq!(leaves(c), 0);
            if was_reached() {
                break;
            }
            // A busy machine is slower at it.
            seconds *= 2;
        }
        check_output(c, &["/bin/sh", "-c", "echo again"], 0, "again\n");
    });
}

/// The command writes as fast as it can: what is kept is bounded, and so is the memory.
#[test]
fn c6_endless_output_costs_no_memory() {
    if !is_own_process(module_path!(), "c6_endless_output_costs_no_memory") {
        return;
    }
    with(json!({}), json!({}), |c| {
        c.sh("true");
        let before = memory("VmHWM");
        let r = c.exec(
            &words(&[
                "/bin/sh",
                "-c",
                "busybox yes & exec busybox yes 0123456789 >&2",
            ]),
            Duration::from_secs(2),
            10240,
        );
        // It ends by SIGPIPE when so much was read away that the pipe was closed, else at its timeout.
        let (Ok(ExecOutcome::TimedOut { output }) | Ok(ExecOutcome::Exited { output, .. })) = r
        else {
            panic!("{r:?}")
        };
        assert_eq!(output.len(), 10240);
        assert!(
            memory("VmHWM") < before + 4096,
            "{before} kB before, {} kB after",
            memory("VmHWM")
        );
    });
}

/// Another process of the container opens the command's pipe, makes it as large as it may be, and never stops writing.
#[test]
fn a_stranger_in_the_pipe_keeps_no_result_back() {
    let script = "echo up; while :; do for p in /proc/[0-9]*; do read c < $p/comm; [ \"$c\" = cat ] && busybox yes > $p/fd/1; done; done 2>/dev/null";
    with(
        json!({}),
        json!({"command": ["/bin/sh", "-c", script]}),
        |c| {
            let begun = Instant::now();
            // It reads until the stranger's words are there, and ends.
            let command = [
                "/bin/sh",
                "-c",
                "mkfifo /tmp/f; cat < /tmp/f & exec 3> /tmp/f; sleep 1; kill $!; exit 7",
            ];
            let command = [
                command[0],
                command[1],
                &command[2].replace("mkfifo", "busybox mkfifo"),
            ];
            let Ok(ExecOutcome::Exited { code: 7, output }) =
                c.exec(&words(&command), CEILING, 4096)
            else {
                panic!()
            };
            assert_eq!(output.len(), 4096, "the stranger did not write");
            assert!(begun.elapsed() < Duration::from_secs(20));
        },
    );
}

/// The container is killed at whatever moment of an exec: commands ran in it or nowhere.
#[test]
fn whenever_the_container_ends_nothing_runs_elsewhere() {
    for round in 0..12 {
        with(json!({}), json!({}), |c| {
            fs::write(shared(c.node).join("mark"), "inside").unwrap();
            let begun = std::sync::atomic::AtomicUsize::new(0);
            std::thread::scope(|s| {
                let workers: Vec<_> = (0..3)
                    .map(|_| {
                        s.spawn(|| {
                            loop {
                                begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                                match c.exec(&words(&["/bin/cat", "/v/mark"]), CEILING, 100) {
                                    Ok(ExecOutcome::Exited { code: 0, output }) => {
                                        assert_eq!(output, b"inside")
                                    }
                                    // Killed with the container, or while it was entered.
                                    Ok(ExecOutcome::Exited { code: 137, .. })
                                    | Err(ExecError::Killed) => {}
                                    Err(ExecError::NotRunning { .. }) => return,
                                    // Its cgroup, or its pid namespace, went first.
                                    Err(ExecError::Step { .. } | ExecError::Os { .. }) => {}
                                    other => panic!("{other:?}"),
                                }
                            }
                        })
                    })
                    .collect();
                wait_until("some commands", || {
                    begun.load(std::sync::atomic::Ordering::Relaxed) > 9 + round
                });
                support::kill9(c.process);
                workers.into_iter().for_each(|w| w.join().unwrap());
            });
            assert_eq!(leaves(c), 0);
        });
    }
}
