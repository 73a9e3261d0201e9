//! A bundle's configuration, less what libcontainer does in another way than runc.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::PipeWriter;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};
use serde_json::{Value, json};

use super::cgroups::Hierarchy;
use super::executor::{LastSteps, PodProcesses, SYS_ADMIN};
use super::proc_mounts;

/// The bundle's configuration with an absolute root, less what libcontainer does in another way than runc.
pub(super) fn prepare(bundle: &Path, hierarchies: &[Hierarchy]) -> Result<Value, String> {
    let path = bundle.join("config.json");
    let text = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut config: Value =
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let rootfs = config
        .pointer("/root/path")
        .and_then(Value::as_str)
        .unwrap_or("rootfs");
    let rootfs = fs::canonicalize(bundle.join(rootfs))
        .map_err(|e| format!("root file system {rootfs}: {e}"))?;
    config["root"]["path"] = json!(rootfs);
    config["linux"]["rootfsPropagation"] = json!(rootfs_propagation(&config));
    proc_mounts::check_config(&config, &rootfs)?;
    proc_mounts::check_device_dirs(&config, &rootfs)?;
    make_cwd(&config, &rootfs).map_err(|e| format!("make the working directory: {e}"))?;
    replace_cgroup_mounts(&mut config, hierarchies);
    Ok(config)
}

/// libcontainer ignores the propagation of bind mounts, so each has that of what it is bound from: with a private root
/// none is tied to the node's mounts. It knows only words without the `r`, and applies them to all mounts.
fn rootfs_propagation(config: &Value) -> &'static str {
    let wanted = config.pointer("/linux/rootfsPropagation");
    match wanted.and_then(Value::as_str) {
        Some("rshared" | "shared") => "shared",
        Some("rslave" | "slave") => "slave",
        _ => "private",
    }
}

/// Takes out what libcontainer does not do, or would do too early: the seccomp profile, which it would ignore
/// (exec-in-container 6), and a process namespace that is there already (see [`PodProcesses`]). Where these steps need
/// CAP_SYS_ADMIN the container's process has it until then and no longer. `pid` takes the process that is started in the
/// pod's process namespace; `proc` is the directory where that namespace's procfs is mounted.
///
/// # Errors
/// A profile that cannot be used; a process namespace that cannot be opened, or whose procfs is not known.
pub(super) fn take_last_steps(
    config: &mut Value,
    proc: Option<&Path>,
    pid: PipeWriter,
) -> Result<LastSteps, String> {
    let profile = config
        .pointer_mut("/linux/seccomp")
        .map(Value::take)
        .unwrap_or_default();
    let filter = (!profile.is_null())
        .then(|| crate::seccomp::compile(&profile).map_err(|e| format!("seccomp profile: {e}")))
        .transpose()?;
    let mut steps = LastSteps {
        filter,
        no_new_privs: config.pointer("/process/noNewPrivileges") == Some(&json!(true)),
        processes: take_processes(config, proc, pid)?,
        drop: 0,
    };
    if !steps.are_privileged() {
        return Ok(steps);
    }
    for set in ["effective", "permitted"] {
        let Some(names) = config["process"]["capabilities"][set].as_array_mut() else {
            return Err(format!(
                "it needs process.capabilities.{set} for its seccomp profile or its process namespace"
            ));
        };
        if !names.iter().any(|n| n == "CAP_SYS_ADMIN") {
            names.push(json!("CAP_SYS_ADMIN"));
            steps.drop = SYS_ADMIN;
        }
    }
    Ok(steps)
}

fn take_processes(
    config: &mut Value,
    proc: Option<&Path>,
    pid: PipeWriter,
) -> Result<Option<PodProcesses>, String> {
    let namespaces = config.pointer_mut("/linux/namespaces");
    let Some(all) = namespaces.and_then(Value::as_array_mut) else {
        return Ok(None);
    };
    let joined = |n: &Value| n["type"] == "pid" && n["path"].is_string();
    let Some(at) = all.iter().position(joined) else {
        return Ok(None);
    };
    let path = all.remove(at)["path"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let namespace = File::open(&path).map_err(|e| format!("open {path}: {e}"))?;
    let proc = proc.ok_or("a process namespace that is joined needs --pod-proc")?;
    // Nobody but a process inside can mount it, and none of ours is to be there with the rights for that.
    let mounts = config["mounts"].as_array_mut();
    for m in mounts.into_iter().flatten().filter(|m| m["type"] == "proc") {
        m["type"] = json!("bind");
        m["source"] = json!(proc);
        if let Some(options) = m["options"].as_array_mut() {
            options.push(json!("bind"));
        }
    }
    Ok(Some(PodProcesses {
        namespace,
        pid: RefCell::new(Some(pid)),
        terminal: config.pointer("/process/terminal") == Some(&json!(true)),
    }))
}

/// runc makes a missing working directory, libcontainer fails. It is made in the volume it lies in, else in the root
/// file system; no link of the image leads out of either.
fn make_cwd(config: &Value, rootfs: &Path) -> nix::Result<()> {
    let cwd = Path::new(
        config
            .pointer("/process/cwd")
            .and_then(Value::as_str)
            .unwrap_or("/"),
    );
    let mounts = config["mounts"].as_array().into_iter().flatten();
    let around = mounts
        .filter_map(|m| Some((Path::new(m["destination"].as_str()?), m)))
        .filter(|(d, _)| cwd.starts_with(d));
    let (root, inside) = match around.max_by_key(|(d, _)| d.components().count()) {
        // A read-only volume is not ours to change, and in a tmpfs it would be gone.
        Some((_, m))
            if m["type"] != "bind"
                || m["options"]
                    .as_array()
                    .is_some_and(|o| o.contains(&json!("ro"))) =>
        {
            return Ok(());
        }
        Some((d, m)) => (
            Path::new(m["source"].as_str().unwrap_or("/")),
            cwd.strip_prefix(d).unwrap_or(cwd),
        ),
        None => (rootfs, cwd),
    };
    // A bind mount of a file, or one whose source is missing, has its own error later.
    let Ok(root) = File::open(root).map_err(drop).and_then(|f| {
        if f.metadata().is_ok_and(|m| m.is_dir()) {
            Ok(f)
        } else {
            Err(())
        }
    }) else {
        return Ok(());
    };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let mut path = PathBuf::from("/");
    for name in inside
        .components()
        .filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir))
    {
        let parent = openat2(&root, &path, how)?;
        path.push(name);
        match openat2(&root, &path, how) {
            Err(Errno::ENOENT) => {
                mkdirat(&parent, name.as_os_str(), Mode::from_bits_truncate(0o755))?
            }
            other => other.map(drop)?,
        }
    }
    Ok(())
}

/// What is mounted for a mount of type `cgroup`.
fn replace_cgroup_mounts(config: &mut Value, hierarchies: &[Hierarchy]) {
    let v1 = hierarchies.iter().any(|h| !h.v2);
    let unified = hierarchies.iter().find(|h| h.v2);
    let path = config
        .pointer("/linux/cgroupsPath")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let namespaces = config.pointer("/linux/namespaces");
    let mut namespaces = namespaces.and_then(Value::as_array).into_iter().flatten();
    let own_namespace = namespaces.any(|n| n["type"] == "cgroup");
    let Some(mounts) = config["mounts"].as_array_mut() else {
        return;
    };
    let replaced = mounts.drain(..).flat_map(|m| match (&path, unified) {
        (Some(path), _) if v1 => cgroup_v1_mounts(m, hierarchies, path),
        (_, Some(unified)) if !v1 => vec![cgroup_v2_mount(m, own_namespace, unified)],
        _ => vec![m],
    });
    *mounts = replaced.collect();
}

/// With a namespace of its own a container sees its cgroup as the root. Without, as a privileged one, it gets the node's: a
/// second mount from there would reset the options of the node's own, such as nsdelegate.
fn cgroup_v2_mount(mut mount: Value, own_namespace: bool, unified: &Hierarchy) -> Value {
    if mount["type"] != "cgroup" {
        return mount;
    }
    if own_namespace {
        mount["type"] = json!("cgroup2");
        return mount;
    }
    mount["type"] = json!("bind");
    mount["source"] = json!(unified.mount_point);
    if let Some(options) = mount["options"].as_array_mut() {
        options.push(json!("rbind"));
    }
    mount
}

/// libcontainer mounts v1 cgroups writable whatever the options say: a container could lift its own memory limit. So a
/// cgroup mount becomes what runc makes of it: a tmpfs, and the container's own directory of each hierarchy below it.
fn cgroup_v1_mounts(mount: Value, hierarchies: &[Hierarchy], cgroups_path: &str) -> Vec<Value> {
    if mount["type"] != "cgroup" {
        return vec![mount];
    }
    let destination = mount["destination"]
        .as_str()
        .unwrap_or("/sys/fs/cgroup")
        .to_owned();
    let read_only = mount["options"]
        .as_array()
        .is_some_and(|o| o.contains(&json!("ro")));
    let options = json!([
        "bind",
        "nosuid",
        "noexec",
        "nodev",
        "relatime",
        if read_only { "ro" } else { "rw" }
    ]);
    let tmpfs = ["nosuid", "noexec", "nodev", "mode=755", "size=4k"];
    let mut all = vec![
        json!({ "destination": destination, "type": "tmpfs", "source": "tmpfs", "options": tmpfs }),
    ];
    for h in hierarchies.iter().filter(|h| !h.v2) {
        let Some(name) = h.mount_point.file_name().and_then(|n| n.to_str()) else {
            continue;
        };
        // `cpu,cpuacct` is found under each of its names too.
        let mut names = vec![name];
        names.extend(name.split(',').filter(|n| *n != name));
        let bind = |n: &str| json!({ "destination": format!("{destination}/{n}"), "type": "bind", "source": h.dir(cgroups_path), "options": options });
        all.extend(names.into_iter().map(bind));
    }
    all
}

/// `linux.cgroupsPath`, or libcontainer's default.
pub(super) fn cgroups_path(config: &Value, id: &str) -> String {
    config
        .pointer("/linux/cgroupsPath")
        .and_then(Value::as_str)
        .map_or_else(|| format!("/:youki:{id}"), str::to_owned)
}
