//! Decides the exact values of every step of a command's start, from config.json and the facts of `/proc`. Pure.
//!
//! Invariants: a command gets the settings that the container's first process was given (capabilities, ids, limits,
//! environment, directory). Nothing comes from the daemon's own environment. A setting that cannot be applied exactly
//! is an error.

use std::ffi::CString;

use serde::{Deserialize, Serialize};

use super::error::ExecError;
use super::facts::Known;
use crate::api::capabilities::CAPABILITIES;
use crate::engine::oci::{Capabilities, Process, Rlimit, Seccomp};
use crate::engine::seccomp::Filter;

const SYS_PTRACE: u64 = 1 << 19;

/// Resource limits by name. The numbers of the limits differ between architectures. The type of these numbers differs
/// between glibc and musl.
#[allow(clippy::unnecessary_cast)]
const LIMITS: [(&str, u32); 16] = [
    ("RLIMIT_AS", libc::RLIMIT_AS as u32),
    ("RLIMIT_CORE", libc::RLIMIT_CORE as u32),
    ("RLIMIT_CPU", libc::RLIMIT_CPU as u32),
    ("RLIMIT_DATA", libc::RLIMIT_DATA as u32),
    ("RLIMIT_FSIZE", libc::RLIMIT_FSIZE as u32),
    ("RLIMIT_LOCKS", libc::RLIMIT_LOCKS as u32),
    ("RLIMIT_MEMLOCK", libc::RLIMIT_MEMLOCK as u32),
    ("RLIMIT_MSGQUEUE", libc::RLIMIT_MSGQUEUE as u32),
    ("RLIMIT_NICE", libc::RLIMIT_NICE as u32),
    ("RLIMIT_NOFILE", libc::RLIMIT_NOFILE as u32),
    ("RLIMIT_NPROC", libc::RLIMIT_NPROC as u32),
    ("RLIMIT_RSS", libc::RLIMIT_RSS as u32),
    ("RLIMIT_RTPRIO", libc::RLIMIT_RTPRIO as u32),
    ("RLIMIT_RTTIME", libc::RLIMIT_RTTIME as u32),
    ("RLIMIT_SIGPENDING", libc::RLIMIT_SIGPENDING as u32),
    ("RLIMIT_STACK", libc::RLIMIT_STACK as u32),
];

/// The values for a command that need no descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) argv: Vec<CString>,
    pub(super) envp: Vec<CString>,
    /// Paths at which the command's file may be, tried in this order.
    pub(super) files: Vec<CString>,
    pub(super) cwd: CString,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) umask: u32,
    /// Capability sets: bounding, effective, permitted, inheritable, ambient.
    pub(super) caps: [u64; 5],
    pub(super) no_new_privs: bool,
    pub(super) rlimits: Vec<(u32, u64, u64)>,
    pub(super) limit_names: Vec<String>,
    pub(super) oom_score_adj: Option<i64>,
    pub(super) label: Option<(CString, Vec<u8>)>,
    /// Seccomp filter for the command. A process that enters a container does not inherit the container's filter
    /// (exec-in-container 2).
    pub(super) seccomp: Option<Filter>,
    pub(super) namespaces: i32,
    /// True if the container may trace the command's process as soon as the process is visible in the container
    /// (exec-in-container 4).
    pub(super) traceable: bool,
}

/// The part of config.json that a command needs. The parts that a command does not need (mounts, limits, hooks) are
/// several times as long.
#[derive(Debug, Serialize, Deserialize)]
pub struct Config {
    /// Settings of the container's first process.
    pub process: Process,
    /// The part `linux` of config.json, which has the filter of system calls.
    #[serde(default)]
    pub linux: Filtered,
}

/// The fields of the part `linux` in config.json that a command needs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Filtered {
    /// The seccomp profile; None if every system call is allowed.
    pub seccomp: Option<Seccomp>,
}

/// Tells whether the container's passwd file is needed: the environment of the process has no home directory.
pub(super) fn needs_passwd(process: &Process) -> bool {
    !process.env.iter().any(|e| names_home(e))
}

fn names_home(variable: &str) -> bool {
    variable.starts_with("HOME=") && variable.len() > 5
}

fn c(s: &str, what: &str) -> Result<CString, ExecError> {
    CString::new(s).map_err(|_| ExecError::Invalid(format!("{what} contains a NUL character")))
}

impl Plan {
    pub(super) fn new(
        process: &Process,
        profile: Option<&Seccomp>,
        command: &[String],
        known: &Known,
    ) -> Result<Plan, ExecError> {
        let Some(name) = command.first() else {
            return Err(ExecError::Invalid("the command is empty".into()));
        };
        let user = &process.user;
        let (uid, gid) = (id(user.uid)?, id(user.gid)?);
        let env = environment(process, uid, &known.passwd);
        let (rlimits, limit_names) = limits(&process.rlimits)?;
        let caps = capabilities(&process.capabilities, known);
        Ok(Plan {
            argv: command
                .iter()
                .map(|a| c(a, "the command"))
                .collect::<Result<_, _>>()?,
            envp: env
                .iter()
                .map(|e| c(e, "the environment"))
                .collect::<Result<_, _>>()?,
            files: candidates(name, &env)
                .iter()
                .map(|f| c(f, "the command"))
                .collect::<Result<_, _>>()?,
            cwd: match process.cwd.as_str() {
                "" => c"/".into(),
                cwd => c(cwd, "the working directory")?,
            },
            groups: user
                .additional_gids
                .iter()
                .map(|gid| id(*gid))
                .collect::<Result<_, _>>()?,
            umask: user.umask.map_or(0o022, |u| u & 0o777),
            no_new_privs: process.no_new_privileges,
            oom_score_adj: process.oom_score_adj,
            label: label(process)?,
            seccomp: profile.map(seccomp).transpose()?,
            namespaces: known.namespaces,
            traceable: caps.iter().any(|c| c & SYS_PTRACE != 0),
            uid,
            gid,
            caps,
            rlimits,
            limit_names,
        })
    }
}

impl Plan {
    /// Adds TERM to the environment if it is missing. A command with a terminal has this variable, as with containerd.
    pub(super) fn add_term(&mut self) {
        if !self.envp.iter().any(|e| e.to_bytes().starts_with(b"TERM=")) {
            self.envp.push(c"TERM=xterm".into());
        }
    }
}

fn seccomp(profile: &Seccomp) -> Result<Filter, ExecError> {
    let failed = |why| ExecError::Invalid(format!("cannot apply its seccomp profile: {why}"));
    crate::engine::seccomp::compiled(profile).map_err(failed)
}

fn id(number: u32) -> Result<u32, ExecError> {
    match number {
        u32::MAX => Err(ExecError::Invalid(format!(
            "{number} in process.user of its config.json is not a user or group id"
        ))),
        id => Ok(id),
    }
}

/// Returns the environment that config.json gives the process. If HOME is missing, its value comes from the passwd
/// file, as with OCI runtimes.
fn environment(process: &Process, uid: u32, passwd: &str) -> Vec<String> {
    let mut env = process.env.clone();
    if needs_passwd(process) {
        env.retain(|e| e != "HOME=");
        env.push(format!("HOME={}", home(passwd, uid).unwrap_or("/")));
    }
    env
}

fn home(passwd: &str, uid: u32) -> Option<&str> {
    let fields = passwd.lines().map(|l| l.split(':').collect::<Vec<_>>());
    fields
        .filter(|f| f.len() >= 6 && f[2].parse() == Ok(uid))
        .map(|f| f[5])
        .find(|h| !h.is_empty())
}

/// Returns the paths at which the command's file is searched. If the name has a slash, the name itself is the path. Any
/// other name is searched in the container's PATH. Relative directories in PATH are ignored, because runc's lookup
/// refuses them.
fn candidates(name: &str, env: &[String]) -> Vec<String> {
    if name.contains('/') {
        return vec![name.to_owned()];
    }
    if name.is_empty() {
        return Vec::new();
    }
    // If the environment has two entries of the name PATH, the last entry counts, as for the container's first process.
    let path = env
        .iter()
        .rev()
        .find_map(|e| e.strip_prefix("PATH="))
        .unwrap_or("");
    path.split(':')
        .filter(|d| d.starts_with('/'))
        .map(|d| format!("{}/{name}", d.trim_end_matches('/')))
        .collect()
}

fn mask(names: &[String]) -> u64 {
    let number = |n: &String| {
        let name = n.strip_prefix("CAP_")?;
        CAPABILITIES.iter().position(|c| *c == name)
    };
    // Unknown names are ignored, as in runc: this kernel has no capability of such a name to grant.
    names.iter().filter_map(number).fold(0, |m, n| m | 1 << n)
}

/// Returns the five capability sets. The permitted, effective, inheritable and ambient sets hold only capabilities that
/// this process has too.
fn capabilities(caps: &Capabilities, known: &Known) -> [u64; 5] {
    let ours = known.permitted;
    let permitted = mask(&caps.permitted) & ours;
    let inheritable = mask(&caps.inheritable) & ours;
    [
        mask(&caps.bounding),
        mask(&caps.effective) & permitted,
        permitted,
        inheritable,
        mask(&caps.ambient) & permitted & inheritable,
    ]
}

type Limits = (Vec<(u32, u64, u64)>, Vec<String>);

fn limits(all: &[Rlimit]) -> Result<Limits, ExecError> {
    let mut out = Limits::default();
    for limit in all {
        let Rlimit {
            kind: name,
            soft,
            hard,
        } = limit;
        let Some((_, number)) = LIMITS.iter().find(|(n, _)| n == name) else {
            let limit = serde_json::to_string(limit).unwrap_or_default();
            return Err(ExecError::Invalid(format!(
                "{limit} in process.rlimits of its config.json is not a limit"
            )));
        };
        out.0.push((*number, *soft, *hard));
        out.1.push(format!("{name} to {soft}:{hard}"));
    }
    Ok(out)
}

/// Returns the security label of the process, and the file into which the label is written. Returns None if no label is
/// set.
fn label(process: &Process) -> Result<Option<(CString, Vec<u8>)>, ExecError> {
    let given = |label: &Option<String>| label.clone().filter(|s| !s.is_empty());
    let labels = (&process.apparmor_profile, &process.selinux_label);
    match (given(labels.0), given(labels.1)) {
        (None, None) => Ok(None),
        (Some(profile), None) => Ok(Some((
            c"/proc/self/attr/apparmor/exec".into(),
            format!("exec {profile}").into_bytes(),
        ))),
        (None, Some(label)) => Ok(Some((c"/proc/self/attr/exec".into(), label.into_bytes()))),
        (Some(_), Some(_)) => Err(ExecError::Invalid(
            "its config.json sets both an AppArmor profile and an SELinux label".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::oci;

    fn of(process: Value) -> Process {
        serde_json::from_value(process).unwrap()
    }

    fn known() -> Known {
        Known {
            permitted: u64::MAX,
            ..Known::default()
        }
    }

    #[track_caller]
    fn plan(process: Value) -> Plan {
        Plan::new(&of(process), None, &["/bin/true".into()], &known()).unwrap()
    }

    #[track_caller]
    fn check_files(name: &str, env: &[&str], expected: &[&str]) {
        let env: Vec<String> = env.iter().map(|s| (*s).to_owned()).collect();
        assert_eq!(candidates(name, &env), expected);
    }

    #[test]
    fn bare_names_are_looked_for_in_the_containers_path() {
        check_files("sh", &["PATH=/bin:/usr/bin/"], &["/bin/sh", "/usr/bin/sh"]);
        check_files("sh", &["PATH=/a", "PATH=/b"], &["/b/sh"]);
        check_files("sh", &["PATH=:rel:/b"], &["/b/sh"]);
        check_files("sh", &[], &[]);
        check_files("./sh", &["PATH=/bin"], &["./sh"]);
        check_files("", &["PATH=/bin"], &[]);
    }

    #[test]
    fn home_comes_from_passwd_only_where_it_is_missing() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbad\napp:x:7:7::/srv:\n";
        let env = |process: Value, uid| environment(&of(process), uid, passwd);
        assert_eq!(env(json!({"env": ["A=1"]}), 7), ["A=1", "HOME=/srv"]);
        assert_eq!(env(json!({"env": ["HOME="]}), 0), ["HOME=/root"]);
        assert_eq!(env(json!({}), 8), ["HOME=/"]);
        assert_eq!(env(json!({"env": ["HOME=/x"]}), 0), ["HOME=/x"]);
        assert!(needs_passwd(&of(json!({"env": ["HOME="]}))));
        assert!(!needs_passwd(&of(json!({"env": ["HOME=/x"]}))));
    }

    #[test]
    fn term_is_given_only_where_it_is_missing() {
        let env = |env: &[&str]| {
            let mut plan = plan(json!({"env": env}));
            plan.add_term();
            let texts = plan.envp.iter().map(|e| e.to_string_lossy().into_owned());
            texts.filter(|e| e.starts_with("TERM")).collect::<Vec<_>>()
        };
        assert_eq!(env(&["A=1"]), ["TERM=xterm"]);
        assert_eq!(env(&["TERM=vt100"]), ["TERM=vt100"]);
        assert_eq!(env(&["TERMINFO=/x"]), ["TERMINFO=/x", "TERM=xterm"]);
    }

    #[test]
    fn capabilities_are_the_containers_and_never_more_than_ours() {
        let of = |caps: Value| serde_json::from_value::<oci::Capabilities>(caps).unwrap();
        let p = of(
            json!({"bounding": ["CAP_CHOWN", "CAP_KILL"], "effective": ["CAP_CHOWN", "CAP_KILL"],
            "permitted": ["CAP_CHOWN", "CAP_KILL", "CAP_NEW"], "inheritable": ["CAP_KILL"], "ambient": ["CAP_KILL", "CAP_CHOWN"]}),
        );
        assert_eq!(capabilities(&p, &known()), [0x21, 0x21, 0x21, 0x20, 0x20]);
        let few = Known {
            permitted: 1,
            ..known()
        };
        assert_eq!(capabilities(&p, &few), [0x21, 1, 1, 0, 0]);
        assert_eq!(capabilities(&of(json!({})), &known()), [0; 5]);
    }

    #[test]
    fn a_container_with_sys_ptrace_may_trace_the_command() {
        let ptrace = json!({"capabilities": {"bounding": ["CAP_SYS_PTRACE"]}});
        assert!(plan(ptrace).traceable);
        assert!(!plan(json!({"capabilities": {"bounding": ["CAP_CHOWN"]}})).traceable);
    }

    #[test]
    fn limits_are_taken_by_name_or_refused() {
        let p = plan(
            json!({"rlimits": [{"type": "RLIMIT_NOFILE", "soft": 5, "hard": 18446744073709551615u64}]}),
        );
        let nofile = LIMITS
            .iter()
            .find(|(n, _)| *n == "RLIMIT_NOFILE")
            .unwrap()
            .1;
        assert_eq!(p.rlimits, [(nofile, 5, u64::MAX)]);
        let odd = of(json!({"rlimits": [{"type": "RLIMIT_X", "soft": 5, "hard": 5}]}));
        assert_eq!(
            limits(&odd.rlimits).unwrap_err().to_string(),
            "cannot enter container: {\"type\":\"RLIMIT_X\",\"soft\":5,\"hard\":5} in process.rlimits of its config.json \
             is not a limit"
        );
        let negative = json!({"type": "RLIMIT_CPU", "soft": -5, "hard": 5});
        assert!(serde_json::from_value::<Rlimit>(negative).is_err());
    }

    #[test]
    fn what_cannot_be_given_exactly_is_refused() {
        let new = |config: Value, command: &[&str]| {
            let command: Vec<String> = command.iter().map(|s| (*s).to_owned()).collect();
            let config: Config = serde_json::from_value(config).unwrap();
            let profile = config.linux.seccomp.as_ref();
            Plan::new(&config.process, profile, &command, &known()).map(|_| ())
        };
        assert!(
            new(json!({"process": {}, "linux": {"seccomp": {}}}), &["x"])
                .is_err_and(|e| e.to_string().contains("seccomp profile"))
        );
        assert_eq!(
            new(
                json!({"process": {}, "linux": {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}}}),
                &["x"]
            ),
            Ok(())
        );
        assert_eq!(new(json!({"process": {}}), &["x"]), Ok(()));
        assert!(new(json!({"process": {}}), &[]).is_err());
        assert!(new(json!({"process": {}}), &["a\0b"]).is_err());
        for damaged in [json!({}), json!({"process": {"user": {"uid": -1}}})] {
            assert!(serde_json::from_value::<Config>(damaged).is_err());
        }
        assert!(new(json!({"process": {"user": {"uid": 4294967295u32}}}), &["x"]).is_err());
        assert!(
            new(
                json!({"process": {"apparmorProfile": "a", "selinuxLabel": "b"}}),
                &["x"]
            )
            .is_err()
        );
    }

    #[test]
    fn labels_and_scores_are_written_only_where_asked_for() {
        let p = plan(json!({"apparmorProfile": "cri", "oomScoreAdj": 0}));
        assert_eq!(p.label.unwrap().1, b"exec cri");
        assert_eq!(p.oom_score_adj, Some(0));
        let p = plan(json!({"selinuxLabel": "l", "oomScoreAdj": 7, "user": {"umask": 63}}));
        assert_eq!(
            (p.label.unwrap().0, p.oom_score_adj, p.umask),
            (c"/proc/self/attr/exec".into(), Some(7), 0o077)
        );
        assert_eq!(
            (plan(json!({})).umask, plan(json!({})).cwd),
            (0o022, c"/".into())
        );
    }
}
