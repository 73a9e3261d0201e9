//! Makes the object `process`: arguments, environment, working directory, user and capabilities.

use super::error::SpecError;
use super::{Inputs, capabilities, user};
use crate::engine::oci::{Capabilities, Process, Rlimit, User};

/// The PATH of an image that sets none, as in containerd.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Makes the object `process` of the configuration.
pub(super) fn process(i: &Inputs<'_>) -> Result<Process, SpecError> {
    let security = &i.config.security;
    let user = user::resolve(security, &i.image.user, i.layers)?;
    let caps = capabilities::names(capabilities::resolve(security, i.host.bounding)?);
    let lowest = i.host.oom_score_adj_floor.unwrap_or(i32::MIN);
    Ok(Process {
        terminal: i.config.tty,
        args: args(i)?,
        env: env(i, &user.home),
        cwd: cwd(i)?.to_owned(),
        // Inheritable and ambient stay empty (CVE-2022-24769): a process of another user than root has no capabilities
        // after its execve.
        capabilities: Capabilities {
            bounding: caps.clone(),
            effective: caps.clone(),
            permitted: caps,
            ..Capabilities::default()
        },
        rlimits: vec![open_files(i.host.open_files_ceiling)],
        no_new_privileges: security.no_new_privileges,
        oom_score_adj: Some(i.config.resources.oom_score_adj.max(lowest).into()),
        apparmor_profile: i.app_armor.clone(),
        user: User {
            uid: user.uid,
            gid: user.gid,
            umask: None,
            additional_gids: user.groups,
        },
        ..Process::default()
    })
}

/// Returns the limit of open files: that of a systemd service, which containerd's containers have too, but at most
/// `ceiling`. A program that needs more raises its own limit.
fn open_files(ceiling: Option<u64>) -> Rlimit {
    let most = |limit: u64| limit.min(ceiling.unwrap_or(limit));
    Rlimit {
        kind: "RLIMIT_NOFILE".into(),
        soft: most(1024),
        hard: most(524_288),
    }
}

/// Returns the command line. The pod's command replaces the image's entrypoint and drops its cmd. Without a command,
/// the pod's args replace the cmd.
fn args(i: &Inputs<'_>) -> Result<Vec<String>, SpecError> {
    let (c, name) = (i.config, &i.config.metadata.name);
    let entrypoint = if c.command.is_empty() {
        &i.image.entrypoint
    } else {
        &c.command
    };
    let cmd = if c.command.is_empty() && c.args.is_empty() {
        &i.image.cmd
    } else {
        &c.args
    };
    let all: Vec<String> = entrypoint.iter().chain(cmd).cloned().collect();
    match all.first() {
        None => Err(SpecError::NoCommand(name.clone())),
        Some(first) if first.is_empty() => Err(SpecError::EmptyCommand(name.clone())),
        Some(_) => refuse_nul(all, name),
    }
}

fn refuse_nul(words: Vec<String>, container: &str) -> Result<Vec<String>, SpecError> {
    match words.iter().find(|w| w.contains('\0')) {
        Some(word) => Err(SpecError::Nul {
            container: container.to_owned(),
            word: word.clone(),
        }),
        None => Ok(words),
    }
}

/// Returns the environment: PATH, HOSTNAME, TERM with a terminal, then the image's variables, then the container's own.
/// A later variable replaces an earlier one of the same name. If HOME is not set, it is the user's home, as in runc.
fn env(i: &Inputs<'_>, home: &str) -> Vec<String> {
    let mut all = Vec::new();
    let hostname = format!("HOSTNAME={}", i.sandbox_config.hostname);
    let term = i.config.tty.then_some("TERM=xterm");
    for pair in [DEFAULT_PATH, &hostname]
        .into_iter()
        .chain(term)
        .chain(i.image.env.iter().map(String::as_str))
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        set(&mut all, name, value.to_owned());
    }
    for (name, value) in &i.config.env {
        set(&mut all, name, value.clone());
    }
    if all
        .iter()
        .all(|(name, value)| name != "HOME" || value.is_empty())
    {
        set(&mut all, "HOME", home.to_owned());
    }
    all.into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn set(all: &mut Vec<(String, String)>, name: &str, value: String) {
    match all.iter_mut().find(|v| v.0 == name) {
        Some(v) => v.1 = value,
        None => all.push((name.to_owned(), value)),
    }
}

/// Returns the working directory: the container's workingDir, else the image's, else the root.
fn cwd<'a>(i: &'a Inputs<'_>) -> Result<&'a str, SpecError> {
    let wanted = [i.config.working_dir.as_str(), &i.image.working_dir, "/"];
    let cwd = wanted.into_iter().find(|d| !d.is_empty()).unwrap_or("/");
    match cwd.starts_with('/') {
        true => Ok(cwd),
        false => Err(SpecError::RelativeDirectory(cwd.to_owned())),
    }
}
