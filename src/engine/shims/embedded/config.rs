//! Reads and checks a bundle's configuration, and replaces its cgroup mounts by mounts that suit the node.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cgroups::Hierarchy;
use super::error::ConfigError;
use crate::base::json;
use crate::engine::oci::{self, Linux, Mount, Spec};

/// The supported keys of each part of a configuration. Any other key is refused, because ignoring it would surprise.
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

/// Reads the bundle's configuration, makes the path of the root file system absolute, and replaces the cgroup mounts.
///
/// # Errors
/// Returns [`ConfigError`] about the file that cannot be read, or about the entry in it that is not supported.
pub(super) fn prepare(
    bundle: &Path,
    id: &str,
    hierarchies: &[Hierarchy],
) -> Result<Spec, ConfigError> {
    let mut spec = read(&bundle.join("config.json"))?;
    let path = spec.root.path;
    spec.root.path = match fs::canonicalize(bundle.join(&path)) {
        Ok(absolute) => absolute,
        Err(source) => return Err(ConfigError::Root { path, source }),
    };
    spec.linux.cgroups_path = Some(cgroups_path(&spec.linux, id));
    replace_cgroup_mounts(&mut spec, hierarchies);
    Ok(spec)
}

fn read(path: &Path) -> Result<Spec, ConfigError> {
    let text = fs::read(path).map_err(|source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let damaged = |source| ConfigError::Damaged {
        path: path.to_owned(),
        source,
    };
    let config = oci::parse(&text).map_err(damaged)?;
    check(&config)?;
    let spec: Spec = json::from_value(&config).map_err(damaged)?;
    check_version(&spec.oci_version)?;
    Ok(spec)
}

/// Checks the JSON before it is converted into a [`Spec`]. The conversion ignores unknown keys, and takes missing
/// objects for empty ones.
fn check(config: &Value) -> Result<(), ConfigError> {
    // serde would take a list for an object, and the elements of the list for the values of the keys.
    let mut objects = READ.iter().map(|(at, _)| *at).chain(["/linux/seccomp"]);
    let is_other = |at: &&str| config.pointer(at).is_some_and(|part| !part.is_object());
    if let Some(at) = objects.find(is_other) {
        return Err(ConfigError::NoObject(named(at)));
    }
    for (at, known) in READ {
        let Some(part) = config.pointer(at).and_then(Value::as_object) else {
            continue;
        };
        if let Some(key) = part.keys().find(|key| !known.contains(&key.as_str())) {
            let entry = named(&format!("{at}/{key}"));
            return Err(ConfigError::NotSupported(entry));
        }
    }
    for at in ["/process", "/process/user", "/linux"] {
        if !config.pointer(at).is_some_and(Value::is_object) {
            return Err(ConfigError::Missing(named(at)));
        }
    }
    Ok(())
}

fn check_version(version: &str) -> Result<(), ConfigError> {
    match version.starts_with("1.") {
        true => Ok(()),
        false => Err(ConfigError::Version(version.to_owned())),
    }
}

/// Returns the dotted name of a JSON pointer: `process.cwd` for `/process/cwd`.
fn named(at: &str) -> String {
    at.trim_start_matches('/').replace('/', ".")
}

/// Replaces each mount of type `cgroup` by mounts that suit the node's hierarchies.
fn replace_cgroup_mounts(spec: &mut Spec, hierarchies: &[Hierarchy]) {
    let v1 = hierarchies.iter().any(|h| !h.v2);
    let unified = hierarchies.iter().find(|h| h.v2);
    let path = cgroups_path(&spec.linux, "");
    let own_namespace = spec.linux.namespaces.iter().any(|n| n.kind == "cgroup");
    let replaced = spec.mounts.drain(..).flat_map(|m| match unified {
        _ if v1 => cgroup_v1_mounts(m, hierarchies, &path),
        Some(unified) => vec![cgroup_v2_mount(m, own_namespace, unified)],
        None => vec![m],
    });
    spec.mounts = replaced.collect();
}

/// Replaces a mount of type `cgroup` on v2. In its own cgroup namespace a container sees its cgroup as the root. A
/// container without such a namespace, for example a privileged one, gets a bind of the node's mount: a second cgroup2
/// mount would reset the options of the node's own mount, such as nsdelegate.
fn cgroup_v2_mount(mut mount: Mount, own_namespace: bool, unified: &Hierarchy) -> Mount {
    if mount.kind != "cgroup" {
        return mount;
    }
    if own_namespace {
        mount.kind = "cgroup2".into();
        return mount;
    }
    mount.kind = "bind".into();
    mount.source.clone_from(&unified.mount_point);
    mount.options.push("rbind".into());
    mount
}

/// Replaces a mount of type `cgroup` on v1 as runc does: by a tmpfs with the container's own directory of each v1
/// hierarchy below it. Any other mount stays as it is.
fn cgroup_v1_mounts(mount: Mount, hierarchies: &[Hierarchy], cgroups_path: &str) -> Vec<Mount> {
    if mount.kind != "cgroup" {
        return vec![mount];
    }
    let destination = match mount.destination.as_str() {
        "" => "/sys/fs/cgroup",
        given => given,
    };
    let access = match mount.options.iter().any(|o| o == "ro") {
        true => "ro",
        false => "rw",
    };
    let of = |destination: String, kind: &str, source: PathBuf, options: [&str; 5]| Mount {
        destination,
        kind: kind.into(),
        source,
        options: options.map(str::to_owned).into(),
        ..Mount::default()
    };
    let options = ["nosuid", "noexec", "nodev", "mode=755", "size=4k"];
    let mut all = vec![of(destination.to_owned(), "tmpfs", "tmpfs".into(), options)];
    for h in hierarchies.iter().filter(|h| !h.v2) {
        let Some(name) = h.mount_point.file_name().and_then(|n| n.to_str()) else {
            continue;
        };
        // A combined hierarchy such as `cpu,cpuacct` can also be found under each of its names.
        let mut names = vec![name];
        names.extend(name.split(',').filter(|n| *n != name));
        let options = ["nosuid", "noexec", "nodev", "relatime", access];
        let bind = |n: &str| {
            let at = format!("{destination}/{n}");
            of(at, "bind", h.dir(cgroups_path), options)
        };
        all.extend(names.into_iter().map(bind));
    }
    all
}

/// Returns `linux.cgroupsPath`, or a default path.
pub(super) fn cgroups_path(linux: &Linux, id: &str) -> String {
    let given = linux.cgroups_path.clone();
    given.unwrap_or_else(|| format!("/podprobe-oci/{id}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the reason why a configuration is refused; None if it is accepted.
    fn refusal(config: &Value) -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), config.to_string()).unwrap();
        read(file.path()).err().map(|e| e.to_string())
    }

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
        assert_eq!(refusal(&config).as_deref(), Some(expected));
    }

    #[test]
    fn what_is_not_done_is_refused() {
        assert_eq!(refusal(&whole()), None);
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
        // A null value counts as if the key were not there.
        let mut config = whole();
        config["hooks"] = Value::Null;
        for of_process in ["noNewPrivileges", "rlimits", "capabilities", "terminal"] {
            config["process"][of_process] = Value::Null;
        }
        config["linux"]["resources"] = Value::Null;
        assert_eq!(refusal(&config), None);
        check_refused("/process", Value::Null, "config.json has no process");
        check_refused(
            "/process/user",
            Value::Null,
            "config.json has no process.user",
        );
        check_refused("/linux", Value::Null, "config.json has no linux");
        let no_object = [("/linux/seccomp", "linux.seccomp"), ("/root", "root")];
        for (at, name) in no_object {
            let expected = format!("config.json: {name} is no object");
            check_refused(at, json!(["SCMP_ACT_ALLOW"]), &expected);
        }
        check_refused("/ociVersion", json!("2.0"), "ociVersion \"2.0\" is not 1.x");
    }
}
