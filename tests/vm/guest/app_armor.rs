//! AppArmor: a container's processes and its commands are under the profile that its pod asks for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::case::{Not, Verdict, equal, until};
use crate::node::{Node, Process};
use crate::pods::Files;

const LOADED: &str = "/sys/kernel/security/apparmor/profiles";

fn is_loaded(profile: &str) -> Result<bool, Not> {
    if !Path::new(LOADED).exists() {
        return Err(Not::Tried("this kernel has no AppArmor".to_owned()));
    }
    let all = crate::node::read(LOADED)?;
    Ok(all.lines().any(|l| l.split(' ').next() == Some(profile)))
}

/// As `apparmor_parser -r` does.
fn load(profile: &str) -> Result<(), Not> {
    is_loaded(profile)?;
    let file = format!("/vm/profiles/{profile}");
    let bytes = fs::read(&file).map_err(|e| format!("{file}: {e}"))?;
    let to = "/sys/kernel/security/apparmor/.replace";
    Ok(fs::write(to, bytes).map_err(|e| format!("{to}: {e}"))?)
}

/// The first process, a command, and a probe's command are all under this profile.
fn confined(node: &Node, pod: &str, wanted: &str) -> Result<(), String> {
    let first = Process::of(&["idle", pod])?.file("attr/current");
    equal(
        "the profile of the first process",
        first.trim_matches(['\n', '\0']),
        wanted,
    )?;
    let said = node.exec(pod, &["/busybox", "cat", "/proc/self/attr/current"]);
    equal("the profile of a command", said.out.trim(), wanted)
        .map_err(|e| format!("{e}: {}", said.err))?;
    until("the profile of a probe", || {
        let said = node.exec(pod, &["/busybox", "cat", "/tmp/profile"]);
        equal("it", said.out.trim(), wanted).map_err(|e| format!("{e}: {}", said.err))
    })
}

const PROBE: &str = "    readinessProbe: {exec: {command: [/bin/sh, -c, '/busybox cat /proc/self/attr/current > /tmp/profile']}, periodSeconds: 1}\n";

fn pod(files: &mut Files<'_>, name: &str, profile: &str) -> Result<(), String> {
    let security = match profile {
        "" => String::new(),
        profile => format!("    securityContext: {{appArmorProfile: {profile}}}"),
    };
    files.tool(name, &["idle", name], &format!("{PROBE}{security}"))
}

/// A container that asks for nothing is under podprobe-default where that is loaded.
pub fn unset(node: &Node) -> Verdict {
    let loaded = is_loaded("podprobe-default")?;
    let mut files = Files::new(node);
    pod(&mut files, "unset", "")?;
    node.wait_ready(&["unset"])?;
    let wanted = if loaded {
        "podprobe-default (enforce)"
    } else {
        "unconfined"
    };
    confined(node, "unset", wanted)?;
    Ok(files.end()?)
}

/// In the place of the parser, which the machine has not: keeps the text, and loads what was compiled of the same file.
const PARSER: &str = "#!/bin/busybox sh
/bin/busybox cat > /run/profile
exec /bin/busybox dd bs=1048576 if=/vm/profiles/podprobe-default of=/sys/kernel/security/apparmor/.replace
";

/// With `loadAppArmorProfile` the profile is there when the daemon has started.
pub fn loaded_by_the_daemon(node: &Node) -> Verdict {
    if is_loaded("podprobe-default")? {
        return Err("it is loaded already".to_owned().into());
    }
    let place = "/sbin/apparmor_parser";
    fs::write(place, PARSER)
        .and_then(|()| fs::set_permissions(place, fs::Permissions::from_mode(0o755)))
        .map_err(|e| format!("{place}: {e}"))?;
    let config = crate::node::read("/etc/podprobe/config.json")?;
    node.stop()?;
    node.start(&config.replacen('{', "{\"loadAppArmorProfile\": true, ", 1))?;
    let text = crate::node::read("/run/profile")?;
    if !text.contains("\nprofile podprobe-default ") {
        return Err(format!("the parser got {text:?}").into());
    }
    if !is_loaded("podprobe-default")? {
        return Err("the profile is not loaded".to_owned().into());
    }
    let mut files = Files::new(node);
    pod(&mut files, "by-daemon", "{type: RuntimeDefault}")?;
    node.wait_ready(&["by-daemon"])?;
    confined(node, "by-daemon", "podprobe-default (enforce)")?;
    files.end()?;
    node.stop()?;
    fs::remove_file(place).map_err(|e| format!("{place}: {e}"))?;
    Ok(node.start(&config)?)
}

pub fn runtime_default(node: &Node) -> Verdict {
    load("podprobe-default")?;
    let mut files = Files::new(node);
    pod(&mut files, "by-default", "{type: RuntimeDefault}")?;
    pod(&mut files, "unset", "")?;
    pod(&mut files, "unconfined", "{type: Unconfined}")?;
    node.wait_ready(&["by-default", "unset", "unconfined"])?;
    for name in ["by-default", "unset"] {
        confined(node, name, "podprobe-default (enforce)")?;
    }
    confined(node, "unconfined", "unconfined")?;
    Ok(files.end()?)
}

/// The profile is of this suite: it denies one file.
pub fn localhost(node: &Node) -> Verdict {
    load("vm-deny")?;
    let mut files = Files::new(node);
    pod(
        &mut files,
        "denied",
        "{type: Localhost, localhostProfile: vm-deny}",
    )?;
    node.wait_ready(&["denied"])?;
    confined(node, "denied", "vm-deny (enforce)")?;
    let said = node.exec("denied", &["/busybox", "cat", "/denied"]);
    if said.code == 0 || !said.err.contains("Permission denied") {
        return Err(format!("the file that the profile denies: {}", said.all()).into());
    }
    Ok(files.end()?)
}
