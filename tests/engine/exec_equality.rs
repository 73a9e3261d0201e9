//! A command run by nsexec and the same by `runc exec` in the same container, compared by what a process can tell of
//! itself; the containers are those of pods, started by our shims, on runc and on the embedded runtime.
//!
//! The dump is made by two commands that are executed directly: a shell between would change signals and descriptors.
//! Needs root, runc and a static busybox.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use podprobe::base::sys::process::usual_surroundings;
use podprobe::engine::runtime::ExecOutcome;
use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::running::Running;
use crate::support::sh;

const LIMIT: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Files of `/proc/self` that say what a process is and may do.
const FILES: [&str; 13] = [
    "status",
    "limits",
    "cgroup",
    "oom_score_adj",
    "environ",
    "stat",
    "personality",
    "timerslack_ns",
    "loginuid",
    "uid_map",
    "gid_map",
    "coredump_filter",
    "mountinfo",
];

/// What differs from `runc exec`, each with its reason. The names are the keys of a dump.
const DIFFERENT: [(&str, &str); 8] = [
    (
        "cgroup v2",
        "ours is in a leaf of its own, by which its whole tree is killed; runc 1.1 stays out of the v2 tree of a hybrid node",
    ),
    (
        "fd 0",
        "ours is the container's own /dev/null; runc hands on a descriptor of its caller",
    ),
    (
        "SigIgn",
        "ours ignores none, as the container's first process; runc hands on what its own caller ignores",
    ),
    (
        "FDSize",
        "the room in the table of descriptors, which a larger parent makes larger; what is open is compared itself",
    ),
    (
        "SigQ",
        "counts the pending signals of all processes of that user on the node",
    ),
    (
        "Max open files",
        "the Go runtime of runc 1.1 raises its own soft limit, and the command inherits it; ours is the container's",
    ),
    (
        "voluntary_ctxt_switches",
        "a count of what the scheduler did",
    ),
    (
        "nonvoluntary_ctxt_switches",
        "a count of what the scheduler did",
    ),
];

/// Fields of /proc/self/stat that are settings and not counts: number and name.
const STAT: [(usize, &str); 7] = [
    (5, "pgrp"),
    (6, "session"),
    (7, "tty"),
    (18, "priority"),
    (19, "nice"),
    (40, "rt_priority"),
    (41, "policy"),
];

/// Keys of `status` that are numbers of processes, sizes and counts.
const COUNTS: [&str; 5] = ["Vm", "Rss", "Threads", "Hugetlb", "x86_"];

/// What one way of running a command shows, by key.
type Dump = BTreeMap<String, String>;

fn cat() -> Vec<String> {
    let files = FILES.map(|f| format!("/proc/self/{f}"));
    // A file that one kernel lacks is missing in both; what stands between two files tells them apart.
    let mut words = vec!["/bin/cat".to_owned()];
    files
        .into_iter()
        .for_each(|f| words.extend([f, "/tmp/mark".into()]));
    words
}

fn ls() -> Vec<String> {
    [
        "/bin/ls",
        "-l",
        "/proc/self/",
        "/proc/self/fd/",
        "/proc/self/ns/",
    ]
    .map(str::to_owned)
    .to_vec()
}

const MARK: &str = "\n--mark--\n";

fn dump(run: &dyn Fn(&[String]) -> String) -> Dump {
    let mut dump = Dump::new();
    let text = run(&cat());
    let parts: Vec<&str> = text.split(MARK).collect();
    assert_eq!(parts.len(), FILES.len() + 1, "{text}");
    for (file, part) in FILES.iter().zip(parts) {
        match *file {
            "status" => status(part, &mut dump),
            "stat" => stat(part, &mut dump),
            "cgroup" => part.lines().for_each(|l| hierarchy(l, &mut dump)),
            "limits" => part
                .lines()
                .skip(1)
                .for_each(|l| drop(dump.insert(l[..25].trim().into(), words(&l[25..])))),
            "environ" => drop(dump.insert("environ".into(), environ(part))),
            // Ids of mounts are the same in one mount namespace; peer groups too.
            _ => drop(dump.insert((*file).into(), part.into())),
        }
    }
    links(&run(&ls()), &mut dump);
    dump
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// In any order; both are lists of settings, not of steps.
fn environ(text: &str) -> String {
    let mut all: Vec<&str> = text.split('\0').filter(|e| !e.is_empty()).collect();
    all.sort_unstable();
    all.join("\n")
}

fn hierarchy(line: &str, dump: &mut Dump) {
    let [_, names, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    dump.insert(
        format!("cgroup {}", if names.is_empty() { "v2" } else { names }),
        path.into(),
    );
}

fn status(text: &str, dump: &mut Dump) {
    for (key, value) in text.lines().filter_map(|l| l.split_once(':')) {
        let value = words(value);
        match key {
            _ if COUNTS.iter().any(|c| key.starts_with(c)) => {}
            // Numbers of processes: that it leads its group and session is compared by `stat`.
            "Pid" | "Tgid" | "Ngid" => {}
            // In the container's namespace the parent of both is outside of it, or the one that ran it.
            "PPid" => {}
            "NStgid" | "NSpid" | "NSpgid" | "NSsid" => {
                drop(dump.insert(key.into(), value.split(' ').count().to_string()))
            }
            _ => drop(dump.insert(key.into(), value)),
        }
    }
}

fn stat(text: &str, dump: &mut Dump) {
    let pid = text.split(' ').next().unwrap();
    let after: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    for (number, name) in STAT {
        let value = after[number - 3].trim();
        dump.insert(
            format!("stat {name}"),
            if value == pid {
                "itself".into()
            } else {
                value.into()
            },
        );
    }
}

/// `cwd`, `root`, `exe`, descriptors and namespaces.
fn links(text: &str, dump: &mut Dump) {
    let mut at = "";
    for line in text.lines() {
        if let Some(dir) = line.strip_suffix(':') {
            at = dir.trim_end_matches('/').rsplit('/').next().unwrap();
        } else if let Some((left, to)) = line.split_once(" -> ") {
            let name = left.rsplit(' ').next().unwrap();
            // The one that lists the descriptors lists its own.
            let to = if to.ends_with("/fd") {
                "the listed directory"
            } else {
                to
            };
            // A pipe of each run, whose number means nothing.
            let to = if at == "fd" && to.starts_with("pipe:") {
                "pipe"
            } else {
                to
            };
            dump.insert(format!("{at} {name}"), to.into());
        }
    }
}

#[track_caller]
fn same(ours: &Dump, theirs: &Dump, reasons: &[(&str, &str)], what: &str) {
    let known = |key: &String| reasons.iter().any(|(k, _)| k == key);
    let keys: std::collections::BTreeSet<&String> = ours
        .keys()
        .chain(theirs.keys())
        .filter(|k| !known(k))
        .collect();
    let differ: Vec<String> = keys
        .iter()
        .filter(|k| ours.get(**k) != theirs.get(**k))
        .map(|k| {
            format!(
                "{k}\n   ours   {:?}\n   theirs {:?}",
                ours.get(*k),
                theirs.get(*k)
            )
        })
        .collect();
    assert!(
        differ.is_empty(),
        "{what}: not the same\n{}",
        differ.join("\n")
    );
    // A dump that shows nothing would be equal too.
    for key in [
        "Uid",
        "Gid",
        "Groups",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
        "Seccomp_filters",
    ] {
        assert!(ours.contains_key(key), "{what}: {key} is not in the dump");
    }
    for key in [
        "Umask",
        "SigBlk",
        "SigIgn",
        "SigCgt",
        "Max processes",
        "environ",
        "oom_score_adj",
        "self cwd",
        "self root",
        "fd 1",
        "ns mnt",
    ] {
        assert!(ours.contains_key(key), "{what}: {key} is not in the dump");
    }
    assert!(ours.len() > 85, "{what}: only {} keys", ours.len());
}

fn text(output: Vec<u8>) -> String {
    String::from_utf8_lossy(&output).into_owned()
}

fn exec(c: &Running<'_>, command: &[String]) -> String {
    match c.exec(command, TIMEOUT, LIMIT) {
        Ok(ExecOutcome::Exited { code: 0, output }) => text(output),
        other => panic!("{command:?}: {other:?}"),
    }
}

fn runc(c: &Running<'_>, command: &[String]) -> String {
    let RuntimeChoice::Path(runc) = &c.node.settings.runtime else {
        panic!("not on runc")
    };
    // runc hands on the limits of its caller. Those of a container do not depend on who has started the daemon.
    usual_surroundings();
    let mut runc = Command::new(runc);
    runc.arg("--root")
        .arg(c.node.layout.oci_state())
        .args(["exec", c.id.as_str()])
        .args(command);
    let out = runc.stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{}", text(out.stderr));
    text(out.stdout)
}

fn spec(pod: Value, container: Value) -> Value {
    let mut c = sh(
        "main",
        "printf '\\n--mark--\\n' > /dev/shm/mark; cp /dev/shm/mark /tmp/mark; echo up; while :; do sleep 1; done",
    );
    c["volumeMounts"] = json!([{"name": "tmp", "mountPath": "/tmp"}]);
    c.as_object_mut()
        .unwrap()
        .extend(container.as_object().unwrap().clone());
    let mut spec = json!({"containers": [c], "volumes": [{"name": "tmp", "emptyDir": {}}]});
    spec.as_object_mut()
        .unwrap()
        .extend(pod.as_object().unwrap().clone());
    spec
}

/// Between two containers, of two runtimes or two starts: identities of namespaces and mounts are each one's own.
fn without_identities(mut dump: Dump) -> Dump {
    dump.retain(|k, _| !["mountinfo", "cgroup v2"].contains(&k.as_str()));
    for (key, value) in dump.iter_mut().filter(|(k, _)| k.starts_with("ns ")) {
        let name = key
            .trim_start_matches("ns ")
            .trim_end_matches("_for_children");
        let host = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        *value = if *value == host.to_string_lossy() {
            "the node's"
        } else {
            "its own"
        }
        .into();
    }
    for value in dump.values_mut().filter(|v| v.contains("podprobe-")) {
        // The directory of the node's root is in the path.
        *value = value
            .split('/')
            .skip_while(|p| !p.starts_with("uid-"))
            .collect::<Vec<_>>()
            .join("/");
    }
    dump
}

/// The same pod on runc: ours against `runc exec`; and on the embedded runtime: ours against ours on runc.
#[track_caller]
fn equal(pod: Value, container: Value, check: impl Fn(&Dump)) {
    let spec = spec(pod, container);
    let on_runc = std::cell::RefCell::new(None);
    support::on_runc(|node| {
        let c = Running::start(node, "equal", &spec);
        let (ours, theirs) = (
            dump(&|command| exec(&c, command)),
            dump(&|command| runc(&c, command)),
        );
        check(&ours);
        same(&ours, &theirs, &DIFFERENT, "nsexec and runc exec");
        // So that the table stays true: each of these differs, or is a count.
        assert_ne!(ours["fd 0"], theirs["fd 0"]);
        assert_eq!(ours["SigIgn"], "0000000000000000");
        c.end();
        on_runc.replace(Some(without_identities(ours)));
    });
    support::on(RuntimeChoice::Embedded, |node| {
        let Some(on_runc) = on_runc.take() else {
            return;
        };
        let c = Running::start(node, "equal", &spec);
        let ours = dump(&|command| exec(&c, command));
        check(&ours);
        same(
            &without_identities(ours),
            &on_runc,
            &DIFFERENT,
            "the embedded runtime and runc",
        );
        c.end();
    });
}

fn has<'a>(key: &'a str, expected: &'a str) -> impl Fn(&Dump) + 'a {
    move |dump| assert_eq!(dump.get(key).map(String::as_str), Some(expected), "{key}")
}

#[test]
fn a_plain_container() {
    equal(
        json!({}),
        json!({"env": [{"name": "A", "value": "b c"}]}),
        |d| {
            has("self cwd", "/")(d);
            has("stat pgrp", "itself")(d);
            has("stat session", "itself")(d);
            has("SigIgn", "0000000000000000")(d);
            assert!(
                d["environ"].contains("A=b c") && d["environ"].contains("HOSTNAME=equal"),
                "{}",
                d["environ"]
            );
            assert!(
                d["cgroup memory"].ends_with("/main-0"),
                "{}",
                d["cgroup memory"]
            );
        },
    );
}

#[test]
fn another_user_with_groups() {
    let pod = json!({"securityContext": {"supplementalGroups": [70, 4000]}});
    equal(
        pod,
        json!({"workingDir": "/tmp", "securityContext": {"runAsUser": 1234, "runAsGroup": 2345}}),
        |d| {
            has("Uid", "1234 1234 1234 1234")(d);
            has("Groups", "70 2345 4000")(d);
            has("self cwd", "/tmp")(d);
            has("CapEff", "0000000000000000")(d);
            has("NoNewPrivs", "0")(d);
        },
    );
}

#[test]
fn no_capability_and_no_new_privileges() {
    let security = json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false});
    equal(json!({}), json!({"securityContext": security}), |d| {
        has("CapBnd", "0000000000000000")(d);
        has("NoNewPrivs", "1")(d);
    });
}

#[test]
fn a_privileged_container() {
    equal(
        json!({}),
        json!({"securityContext": {"privileged": true}}),
        |d| {
            let own = fs::read_to_string("/proc/self/status").unwrap();
            assert!(
                own.contains(&format!("CapBnd:\t{}", d["CapBnd"])),
                "{}",
                d["CapBnd"]
            );
        },
    );
}

#[test]
fn a_read_only_root() {
    equal(
        json!({}),
        json!({"securityContext": {"readOnlyRootFilesystem": true}}),
        |d| {
            assert!(
                d["mountinfo"].lines().any(|l| l.contains(" / / ro,")),
                "{}",
                d["mountinfo"]
            );
        },
    );
}

#[test]
fn limits_of_cpu_and_memory() {
    let resources =
        json!({"limits": {"cpu": "200m", "memory": "64Mi"}, "requests": {"memory": "32Mi"}});
    equal(json!({}), json!({"resources": resources}), |d| {
        assert!(
            d["oom_score_adj"].trim().parse::<i32>().unwrap() > 900,
            "{}",
            d["oom_score_adj"]
        );
    });
}

#[test]
fn the_process_namespace_of_the_node() {
    equal(json!({"hostPID": true}), json!({}), |d| {
        has(
            "ns pid",
            fs::read_link("/proc/self/ns/pid")
                .unwrap()
                .to_str()
                .unwrap(),
        )(d);
    });
}

#[test]
fn the_network_and_ipc_of_the_node() {
    equal(
        json!({"hostNetwork": true, "hostIPC": true}),
        json!({}),
        |d| {
            has(
                "ns net",
                fs::read_link("/proc/self/ns/net")
                    .unwrap()
                    .to_str()
                    .unwrap(),
            )(d);
            has(
                "ns ipc",
                fs::read_link("/proc/self/ns/ipc")
                    .unwrap()
                    .to_str()
                    .unwrap(),
            )(d);
        },
    );
}

fn seccomp(more: Value) -> Value {
    let mut security = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    security
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"securityContext": security})
}

fn filtered(dump: &Dump) {
    has("Seccomp", "2")(dump);
    has("Seccomp_filters", "1")(dump);
}

#[test]
fn a_seccomp_profile() {
    equal(json!({}), seccomp(json!({})), |d| {
        filtered(d);
        has("NoNewPrivs", "0")(d);
        has("CapEff", "00000000a80425fb")(d);
    });
}

#[test]
fn a_seccomp_profile_with_no_new_privileges() {
    equal(
        json!({}),
        seccomp(json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})),
        |d| {
            filtered(d);
            has("NoNewPrivs", "1")(d);
            has("CapBnd", "0000000000000000")(d);
        },
    );
}

#[test]
fn a_seccomp_profile_of_the_pod_for_another_user() {
    equal(
        seccomp(json!({"runAsUser": 1234, "runAsGroup": 5})),
        json!({}),
        |d| {
            filtered(d);
            has("Uid", "1234 1234 1234 1234")(d);
            has("CapPrm", "0000000000000000")(d);
            has("NoNewPrivs", "0")(d);
        },
    );
}

#[test]
fn a_seccomp_profile_and_capabilities() {
    // Through the helper; and with the capability that applying it needs, so that it stays.
    for add in ["SYS_PTRACE", "SYS_ADMIN"] {
        equal(
            json!({}),
            seccomp(json!({"capabilities": {"add": [add]}})),
            filtered,
        );
    }
}

#[test]
fn a_privileged_container_has_no_profile() {
    equal(
        json!({}),
        seccomp(json!({"privileged": true})),
        has("Seccomp", "0"),
    );
}

#[test]
fn a_process_namespace_of_the_pod() {
    equal(json!({"shareProcessNamespace": true}), json!({}), |d| {
        assert_ne!(
            d["ns pid"],
            fs::read_link("/proc/self/ns/pid")
                .unwrap()
                .to_str()
                .unwrap()
        );
        has("NSpid", "1")(d);
    });
}
