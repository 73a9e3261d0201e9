//! What runs: arguments, environment, working directory, user, capabilities.

use serde_json::{Value, json};

use super::{Inputs, capabilities, privileged, resources, user};
use crate::api::expansion::expand;

/// containerd's, for an image without a PATH.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `process` of the configuration.
pub(super) fn process(i: &Inputs<'_>) -> Result<Value, String> {
    let security = &i.container.security_context;
    let user = user::resolve(i.pod, i.container, &i.image.user, i.layers)?;
    let caps = capabilities::names(capabilities::resolve(
        &security.capabilities,
        privileged(i),
        i.host.bounding,
    )?);
    let oom = resources::oom_score_adj(
        i.pod,
        i.container,
        i.host.memory_capacity,
        i.host.oom_score_adj_floor,
    )?;
    Ok(json!({
        "terminal": false,
        "user": { "uid": user.uid, "gid": user.gid, "additionalGids": user.groups },
        "args": args(i)?,
        "env": env(i),
        "cwd": cwd(i)?,
        // Inheritable and ambient stay empty (CVE-2022-24769): a process of another user has none after its execve.
        "capabilities": { "bounding": caps, "effective": caps, "permitted": caps, "inheritable": [], "ambient": [] },
        "noNewPrivileges": security.allow_privilege_escalation == Some(false),
        "oomScoreAdj": oom,
    }))
}

/// A command replaces the entrypoint and drops the image's cmd; args alone replace the cmd.
fn args(i: &Inputs<'_>) -> Result<Vec<String>, String> {
    let variables = variables(i);
    let expanded = |words: &[String]| {
        words
            .iter()
            .map(|w| expand(w, |n| find(&variables, n)))
            .collect::<Vec<_>>()
    };
    let (command, args) = (expanded(&i.container.command), expanded(&i.container.args));
    let entrypoint = if command.is_empty() {
        i.image.entrypoint.clone()
    } else {
        command.clone()
    };
    let cmd = if command.is_empty() && args.is_empty() {
        i.image.cmd.clone()
    } else {
        args
    };
    let all: Vec<String> = entrypoint.into_iter().chain(cmd).collect();
    match all.first() {
        None => Err(format!(
            "cannot start container {}: no command specified; the image has neither Entrypoint nor Cmd, so set command in the pod",
            i.container.name
        )),
        Some(first) if first.is_empty() => Err(format!(
            "cannot start container {}: the first word of its command is empty",
            i.container.name
        )),
        Some(_) => refuse_nul(all, &i.container.name),
    }
}

/// A NUL byte would cut the word short.
fn refuse_nul(words: Vec<String>, container: &str) -> Result<Vec<String>, String> {
    match words.iter().find(|w| w.contains('\0')) {
        Some(w) => Err(format!(
            "cannot start container {container}: {w:?} of its command holds a NUL character"
        )),
        None => Ok(words),
    }
}

/// The container's own variables, each expanded against those before it.
fn variables(i: &Inputs<'_>) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::with_capacity(i.container.env.len());
    for e in &i.container.env {
        let value = expand(&e.value, |n| find(&all, n));
        set(&mut all, &e.name, value);
    }
    all
}

/// PATH, HOSTNAME, the image's and the container's own variables; a later one replaces the value of an earlier one.
fn env(i: &Inputs<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let fixed = [DEFAULT_PATH.to_owned(), format!("HOSTNAME={}", i.hostname)];
    for pair in fixed.iter().chain(&i.image.env) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        set(&mut all, name, value.to_owned());
    }
    for (name, value) in variables(i) {
        set(&mut all, &name, value);
    }
    all.into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn find(all: &[(String, String)], name: &str) -> Option<String> {
    all.iter().find(|v| v.0 == name).map(|v| v.1.clone())
}

fn set(all: &mut Vec<(String, String)>, name: &str, value: String) {
    match all.iter_mut().find(|v| v.0 == name) {
        Some(v) => v.1 = value,
        None => all.push((name.to_owned(), value)),
    }
}

/// workingDir, else the image's, else the root.
fn cwd<'a>(i: &'a Inputs<'_>) -> Result<&'a str, String> {
    let wanted = [i.container.working_dir.as_str(), &i.image.working_dir, "/"];
    let cwd = wanted.into_iter().find(|d| !d.is_empty()).unwrap_or("/");
    if cwd.starts_with('/') {
        Ok(cwd)
    } else {
        Err(format!(
            "cannot use working directory {cwd:?}: must be an absolute path"
        ))
    }
}
