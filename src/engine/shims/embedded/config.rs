//! A bundle's configuration: what of it is done here, and what its cgroup mounts are.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::cgroups::Hierarchy;

/// The keys that are read of each part of a configuration. Any other key is refused: to leave it out would surprise.
const READ: [(&str, &[&str]); 8] = [
    (
        "",
        &[
            "ociVersion",
            "process",
            "root",
            "mounts",
            "annotations",
            "linux",
        ],
    ),
    ("/root", &["path", "readonly"]),
    (
        "/process",
        &[
            "terminal",
            "consoleSize",
            "user",
            "args",
            "env",
            "cwd",
            "capabilities",
            "rlimits",
            "noNewPrivileges",
            "apparmorProfile",
            "selinuxLabel",
            "oomScoreAdj",
        ],
    ),
    (
        "/process/user",
        &["uid", "gid", "additionalGids", "umask", "username"],
    ),
    (
        "/linux",
        &[
            "resources",
            "cgroupsPath",
            "namespaces",
            "seccomp",
            "rootfsPropagation",
            "devices",
            "maskedPaths",
            "readonlyPaths",
        ],
    ),
    (
        "/linux/resources",
        &["devices", "cpu", "memory", "hugepageLimits", "unified"],
    ),
    ("/linux/resources/cpu", &["shares", "quota", "period"]),
    ("/linux/resources/memory", &["limit", "swap"]),
];

/// The bundle's configuration with an absolute root, and with the mounts that stand in for those of cgroups.
///
/// # Errors
/// Returns a text about the file that cannot be read, or about the entry in it that is not supported.
pub(super) fn prepare(bundle: &Path, id: &str, hierarchies: &[Hierarchy]) -> Result<Value, String> {
    let path = bundle.join("config.json");
    let text = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut config: Value =
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    check(&config)?;
    let rootfs = config
        .pointer("/root/path")
        .and_then(Value::as_str)
        .unwrap_or("rootfs");
    let rootfs = fs::canonicalize(bundle.join(rootfs))
        .map_err(|e| format!("root file system {rootfs}: {e}"))?;
    config["root"]["path"] = json!(rootfs);
    config["linux"]["cgroupsPath"] = json!(cgroups_path(&config, id));
    replace_cgroup_mounts(&mut config, hierarchies);
    Ok(config)
}

fn check(config: &Value) -> Result<(), String> {
    for (at, known) in READ {
        let part = config.pointer(at).and_then(Value::as_object);
        let mut given = part.into_iter().flatten().filter(|(_, v)| !v.is_null());
        if let Some((key, _)) = given.find(|(key, _)| !known.contains(&key.as_str())) {
            return Err(format!(
                "{} is not supported",
                named(&format!("{at}/{key}"))
            ));
        }
    }
    for at in ["/process", "/process/user", "/linux"] {
        if !config.pointer(at).is_some_and(Value::is_object) {
            return Err(format!("config.json has no {}", named(at)));
        }
    }
    let version = config["ociVersion"].as_str().unwrap_or_default();
    if !version.starts_with("1.") {
        return Err(format!("ociVersion {version:?} is not 1.x"));
    }
    Ok(())
}

/// `process.cwd` of `/process/cwd`.
fn named(at: &str) -> String {
    at.trim_start_matches('/').replace('/', ".")
}

/// Replaces each mount of type `cgroup` by mounts that suit the node's hierarchies.
fn replace_cgroup_mounts(config: &mut Value, hierarchies: &[Hierarchy]) {
    let v1 = hierarchies.iter().any(|h| !h.v2);
    let unified = hierarchies.iter().find(|h| h.v2);
    let path = cgroups_path(config, "");
    let namespaces = config.pointer("/linux/namespaces");
    let mut namespaces = namespaces.and_then(Value::as_array).into_iter().flatten();
    let own_namespace = namespaces.any(|n| n["type"] == "cgroup");
    let Some(mounts) = config["mounts"].as_array_mut() else {
        return;
    };
    let replaced = mounts.drain(..).flat_map(|m| match unified {
        _ if v1 => cgroup_v1_mounts(m, hierarchies, &path),
        Some(unified) => vec![cgroup_v2_mount(m, own_namespace, unified)],
        None => vec![m],
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

/// Replaces a mount of type `cgroup` as runc does: by a tmpfs, and the container's own directory of each v1 hierarchy below
/// it. Any other mount stays as it is.
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

/// `linux.cgroupsPath`, or a default.
pub(super) fn cgroups_path(config: &Value, id: &str) -> String {
    config
        .pointer("/linux/cgroupsPath")
        .and_then(Value::as_str)
        .map_or_else(|| format!("/podprobe-oci/{id}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Value {
        json!({
            "ociVersion": "1.2.0",
            "root": {"path": "rootfs", "readonly": true},
            "process": {"user": {"uid": 1, "gid": 1, "umask": 18}, "args": ["true"], "cwd": "/", "apparmorProfile": "p"},
            "linux": {"resources": {"memory": {"limit": 1 << 20}, "cpu": {"shares": 2}}, "namespaces": [{"type": "mount"}]},
        })
    }

    #[track_caller]
    fn check_refused(at: &str, value: Value, expected: &str) {
        let mut config = whole();
        let (parent, key) = at.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[key] = value;
        assert_eq!(check(&config), Err(expected.into()));
    }

    #[test]
    fn what_is_not_done_is_refused() {
        assert_eq!(check(&whole()), Ok(()));
        for at in [
            "/hooks",
            "/hostname",
            "/process/scheduler",
            "/linux/sysctl",
            "/linux/intelRdt",
            "/linux/resources/blockIO",
            "/linux/resources/cpu/cpus",
            "/linux/resources/memory/reservation",
        ] {
            check_refused(at, json!({}), &format!("{} is not supported", named(at)));
        }
        // As if it were not there.
        let mut config = whole();
        config["hooks"] = Value::Null;
        assert_eq!(check(&config), Ok(()));
        check_refused("/process", Value::Null, "config.json has no process");
        check_refused(
            "/process/user",
            Value::Null,
            "config.json has no process.user",
        );
        check_refused("/linux", Value::Null, "config.json has no linux");
        check_refused("/ociVersion", json!("2.0"), "ociVersion \"2.0\" is not 1.x");
    }
}
