//! Seccomp profiles on real containers: a forbidden call fails in the container's own process and
//! in every command that enters it, on each runtime. Needs root, runc and a static busybox.

use std::fs;
use std::time::Duration;

use podprobe::engine::nsexec::ExecError;
use podprobe::engine::runtime::ExecOutcome;
use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::running::Running;
use crate::support::{CEILING, Node, pod, sh, wait_until};

/// Everything but making directories, which fails with an error that nothing else here gives (EXFULL).
fn no_mkdir() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 54 }],
    })
}

fn put(node: &Node, name: &str, profile: &Value) {
    fs::create_dir_all(node.layout.seccomp().join("sub")).unwrap();
    fs::write(node.layout.seccomp().join(name), profile.to_string()).unwrap();
}

fn localhost(name: &str, more: Value) -> Value {
    let mut security = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": name}});
    security
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    security
}

fn on_each(test: impl Fn(&Node)) {
    support::on(RuntimeChoice::Embedded, &test);
    support::on_runc(&test);
}

#[test]
fn a_profile_holds_in_the_container_and_in_what_enters_it() {
    on_each(|node| {
        put(node, "sub/no-mkdir.json", &no_mkdir());
        for more in [
            json!({}),
            json!({"allowPrivilegeEscalation": false}),
            json!({"runAsUser": 1234}),
            json!({"runAsUser": 1234, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}),
            json!({"capabilities": {"add": ["SYS_PTRACE"]}}),
        ] {
            let mut c = sh(
                "main",
                "busybox mkdir /tmp/d; echo $? up; while :; do sleep 1; done",
            );
            c["securityContext"] = localhost("sub/no-mkdir.json", more.clone());
            let c = Running::start(node, "profile", &json!({"containers": [c]}));
            let log = &c.rt.pod_status(c.pod.uid()).unwrap().containers[0].log_path;
            // Its two streams are copied by themselves, and the line of stderr may come later.
            wait_until("both lines", || {
                fs::read_to_string(log).unwrap().lines().count() == 2
            });
            let log = fs::read_to_string(log).unwrap();
            assert!(
                log.contains("can't create directory '/tmp/d': Exchange full")
                    && log.contains("1 up"),
                "{more}: {log}"
            );
            let (code, said) = c.sh("busybox mkdir /tmp/d 2>&1; touch /tmp/f && echo touched");
            assert_eq!(
                (code, said.as_str()),
                (
                    0,
                    "mkdir: can't create directory '/tmp/d': Exchange full\ntouched\n"
                ),
                "{more}"
            );
            c.end();
        }
    });
}

/// A call that kills: the command dies of SIGSYS, and that is its result.
#[test]
fn a_call_that_kills_is_the_commands_end() {
    on_each(|node| {
        let mut profile = no_mkdir();
        profile["syscalls"][0] =
            json!({ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_KILL_PROCESS" });
        put(node, "kill.json", &profile);
        let mut c = sh("main", "echo up; while :; do sleep 1; done");
        c["securityContext"] = localhost("kill.json", json!({}));
        let c = Running::start(node, "kills", &json!({"containers": [c]}));
        let command = ["/bin/busybox", "mkdir", "/tmp/d"].map(str::to_owned);
        assert_eq!(
            c.exec(&command, CEILING, 100),
            Ok(ExecOutcome::Exited {
                code: 159,
                output: vec![]
            })
        );
        c.end();
    });
}

/// With no_new_privs it is applied last (runc itself needs more than this one has): a profile that lets through next to nothing but what the command needs.
#[test]
fn a_narrow_profile_stops_the_command_and_not_its_start() {
    support::on(RuntimeChoice::Embedded, |node| {
        let needed = "arch_prctl brk close execve exit exit_group fcntl fstat getpid getuid getppid geteuid mmap mprotect munmap newfstatat open \
            openat poll ppoll prctl prlimit64 read readlink readlinkat rseq rt_sigaction rt_sigprocmask rt_sigreturn set_robust_list \
            set_tid_address stat statx uname write wait4 fork vfork clone clock_nanosleep nanosleep getcwd access futex getrandom lseek \
            ioctl lstat getdents64 clock_gettime dup dup2 dup3 faccessat faccessat2 getpgrp setuid setgid";
        let names: Vec<&str> = needed.split_whitespace().collect();
        put(
            node,
            "narrow.json",
            &json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{ "names": names, "action": "SCMP_ACT_ALLOW" }] }),
        );
        let mut c = sh("main", "echo up; while :; do sleep 1; done");
        c["securityContext"] = localhost("narrow.json", json!({"allowPrivilegeEscalation": false}));
        let c = Running::start(node, "narrow", &json!({"containers": [c]}));
        assert_eq!(
            c.sh("echo in; busybox mkdir /tmp/d 2>/dev/null || echo refused"),
            (0, "in\nrefused\n".into())
        );
        c.end();
    });
}

#[test]
fn a_profile_that_is_not_there_or_no_profile_starts_nothing() {
    on_each(|node| {
        put(
            node,
            "torn.json",
            &json!({ "defaultAction": "SCMP_ACT_ALOW" }),
        );
        for (name, cause) in [
            ("missing.json", "No such file"),
            ("torn.json", "is no action"),
        ] {
            let rt = node.runtime();
            let mut c = sh("main", "echo up");
            c["securityContext"] = localhost(name, json!({}));
            let pod = pod("refused", json!({"containers": [c]}));
            let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
            let e = rt
                .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
                .unwrap_err();
            assert!(
                e.message.starts_with("cannot use seccomp profile ") && e.message.contains(cause),
                "{e}"
            );
            assert_eq!(rt.pod_status(pod.uid()).unwrap().containers, []);
            node.remove_pod(&rt, &pod);
        }
    });
}

/// Never unconfined: a config.json whose profile cannot be applied is not entered.
#[test]
fn what_cannot_be_applied_is_not_entered() {
    support::on(RuntimeChoice::Embedded, |node| {
        let c = Running::start(
            node,
            "never",
            &json!({"containers": [sh("main", "echo up; while :; do sleep 1; done")]}),
        );
        let mut config = c.config.clone();
        config["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_NOTIFY" });
        let command = ["/bin/true".to_owned()];
        let e = c
            .exec_with(&config, &command, Duration::from_secs(5), 100)
            .unwrap_err();
        assert!(
            matches!(&e, ExecError::Invalid(why) if why.contains("cannot apply its seccomp profile")),
            "{e}"
        );
        c.end();
    });
}
