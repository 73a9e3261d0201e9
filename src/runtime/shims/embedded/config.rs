//! A bundle's configuration, less what libcontainer does in another way than runc.

use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};
use serde_json::{Value, json};

use super::cgroups::Hierarchy;
use super::executor::{SYS_ADMIN, Seccomp};
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
    make_cwd(&config, &rootfs).map_err(|e| format!("make the working directory: {e}"))?;
    if hierarchies.iter().all(|h| h.v2) && !all_devices(&config) {
        drop_mknod(&mut config);
    } else {
        let cgroups_path = config
            .pointer("/linux/cgroupsPath")
            .and_then(Value::as_str)
            .map(str::to_owned);
        if let (Some(path), Some(mounts)) = (cgroups_path, config["mounts"].as_array_mut()) {
            *mounts = mounts
                .drain(..)
                .flat_map(|m| cgroup_v1_mounts(m, hierarchies, &path))
                .collect();
        }
    }
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

/// libcontainer would ignore the profile (exec-in-container 6): its executor, ours, applies it. Without no_new_privs that
/// needs CAP_SYS_ADMIN, which the container's process has until then and no longer.
pub(super) fn take_seccomp(config: &mut Value) -> Result<Option<Seccomp>, String> {
    let profile = config
        .pointer_mut("/linux/seccomp")
        .map(Value::take)
        .unwrap_or_default();
    if profile.is_null() {
        return Ok(None);
    }
    let filter = crate::seccomp::compile(&profile)?;
    if config.pointer("/process/noNewPrivileges") == Some(&json!(true)) {
        return Ok(Some(Seccomp {
            filter,
            early: None,
        }));
    }
    let mut drop = 0;
    for set in ["effective", "permitted"] {
        let Some(names) = config["process"]["capabilities"][set].as_array_mut() else {
            return Err(format!(
                "it needs process.capabilities.{set} where noNewPrivileges is not set"
            ));
        };
        if !names.iter().any(|n| n == "CAP_SYS_ADMIN") {
            names.push(json!("CAP_SYS_ADMIN"));
            drop = SYS_ADMIN;
        }
    }
    Ok(Some(Seccomp {
        filter,
        early: Some(drop),
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

/// The last device rule of a privileged container.
pub(super) fn all_devices(config: &Value) -> bool {
    let last = config
        .pointer("/linux/resources/devices")
        .and_then(Value::as_array)
        .and_then(|d| d.last());
    last.is_some_and(|d| d["allow"] == json!(true) && d["type"].as_str().is_none_or(|t| t == "a"))
}

/// On cgroup v2 device rules are an eBPF program, which this build of libcontainer has not: without CAP_MKNOD a
/// container has no device but those made for it. (The root file system is to be mounted nodev.)
fn drop_mknod(config: &mut Value) {
    let Some(sets) = config
        .pointer_mut("/process/capabilities")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    for set in sets.values_mut().filter_map(Value::as_array_mut) {
        set.retain(|c| c != "CAP_MKNOD");
    }
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
