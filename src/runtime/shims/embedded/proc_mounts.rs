//! No mount covers a file of the container's /proc (CVE-2019-16884, CVE-2025-52881): a runtime that writes to
//! /proc/self would write to a file of somebody else's choice, and a container could pretend to be another process.
//!
//! Invariants: the rule is runc's `checkProcMount`, applied to what a destination resolves to. It is applied twice:
//! before anything is made, to the links of the image, so that the error names the volume; and to the mounts that were
//! made, before the container's program starts, because a volume may hold links too, and may change meanwhile.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};
use serde_json::Value;

use super::Error;

/// What lxcfs and the like may replace, as in runc.
const ALLOWED: [&str; 11] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/slabinfo",
    "/proc/net/dev",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/crypto/fips_enabled",
];

/// Symlinks followed on the way to one destination, as the kernel has it.
const MAX_LINKS: usize = 40;

/// Refuses a configuration with a mount that would cover something below /proc, or /proc itself with anything but procfs.
pub(super) fn check_config(config: &Value, rootfs: &Path) -> Result<(), String> {
    for mount in config["mounts"].as_array().into_iter().flatten() {
        let destination = mount["destination"].as_str().unwrap_or_default();
        let resolved = resolve(rootfs, Path::new(destination))
            .map_err(|e| format!("mount destination {destination}: {e}"))?;
        let is_procfs = || {
            let source = mount["source"].as_str().unwrap_or_default();
            mount["type"] == "proc"
                || (mount["type"] == "bind"
                    && statfs(source).is_ok_and(|s| s.filesystem_type() == PROC_SUPER_MAGIC))
        };
        check(&resolved, is_procfs).map_err(|why| match resolved == Path::new(destination) {
            true => format!("mount destination {destination}: {why}"),
            false => format!(
                "mount destination {destination}, which is {} in the image: {why}",
                resolved.display()
            ),
        })?;
    }
    Ok(())
}

/// Refuses a container whose first process has a mount below /proc that it was not meant to have.
pub(super) fn check_mounts(config: &Value, pid: i32) -> Result<(), Error> {
    if binds_whole_proc(config) {
        return Ok(());
    }
    let path = format!("/proc/{pid}/mountinfo");
    let text = fs::read(&path).map_err(|e| Error::new(format!("read {path}"), e))?;
    let meant: Vec<&Path> = ["/linux/maskedPaths", "/linux/readonlyPaths"]
        .iter()
        .filter_map(|list| config.pointer(list)?.as_array())
        .flatten()
        .filter_map(|p| p.as_str().map(Path::new))
        .collect();
    for (point, kind) in text.split(|b| *b == b'\n').filter_map(parse_mount) {
        if !meant.contains(&point.as_path()) {
            check(&point, || kind == b"proc")
                .map_err(|why| Error::new(format!("mount on {}", point.display()), why))?;
        }
    }
    Ok(())
}

/// The pod has the node's procfs as its /proc, with whatever the node has mounted below it.
fn binds_whole_proc(config: &Value) -> bool {
    let mounts = config["mounts"].as_array();
    let mut mounts = mounts.into_iter().flatten();
    mounts.any(|m| {
        let destination = m["destination"].as_str().unwrap_or_default();
        m["type"] == "bind" && destination.trim_end_matches('/') == "/proc"
    })
}

/// Directories of the root in which libcontainer makes devices, links and mounts by path, as root.
const MADE_BY_PATH: [&str; 3] = ["dev", "proc", "sys"];

/// Refuses a root and mounts that would lead libcontainer elsewhere when it makes the container's devices. It goes by path
/// before the container's root is its own, so a link of the image would lead to a place of the node, and another container of
/// the pod could put one into a volume at any time. So these directories are no links, and no volume lies at or above a
/// directory that devices are made in. The image does not change meanwhile: nothing of the container runs yet.
///
/// # Errors
/// The path that is refused, and what to do.
pub(super) fn check_device_dirs(config: &Value, rootfs: &Path) -> Result<(), String> {
    for name in MADE_BY_PATH {
        if let Ok(target) = fs::read_link(rootfs.join(name)) {
            return Err(format!(
                "/{name} of the image is a link to {}; make it a directory, or leave it out of the image",
                target.display()
            ));
        }
    }
    let dev = Path::new("/dev");
    let listed = config.pointer("/linux/devices").and_then(Value::as_array);
    let listed = listed.into_iter().flatten();
    let listed = listed.filter_map(|d| Path::new(d["path"].as_str()?).parent());
    let dirs: Vec<&Path> = listed.chain([dev]).collect();
    let mounts = config["mounts"].as_array().into_iter().flatten();
    for m in mounts.filter(|m| m["type"] == "bind") {
        let destination = m["destination"].as_str().unwrap_or_default();
        let at = resolve(rootfs, Path::new(destination))
            .map_err(|e| format!("mount destination {destination}: {e}"))?;
        if let Some(dir) = dirs.iter().find(|dir| dir.starts_with(&at)) {
            return Err(format!(
                "mount destination {destination}: the container's devices are made in {}, where no volume can lie; mount it at \
                 another path, or what is needed of it below /dev",
                dir.display()
            ));
        }
    }
    Ok(())
}

/// runc's rule for one resolved destination.
fn check(resolved: &Path, is_procfs: impl FnOnce() -> bool) -> Result<(), &'static str> {
    let Ok(below) = resolved.strip_prefix("/proc") else {
        return Ok(());
    };
    if below.as_os_str().is_empty() {
        return match is_procfs() {
            true => Ok(()),
            false => Err("only a proc file system can be mounted on /proc"),
        };
    }
    match ALLOWED.iter().any(|a| resolved == Path::new(a)) {
        true => Ok(()),
        false => Err("nothing can be mounted below /proc"),
    }
}

/// Where a destination lies in the container, its symlinks followed with `rootfs` as the root. What does not exist yet
/// is made at its own name, so it is taken as it is.
fn resolve(rootfs: &Path, destination: &Path) -> Result<PathBuf, &'static str> {
    let mut todo: Vec<OsString> = components(destination);
    let mut resolved = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = todo.pop() {
        if name == ".." {
            resolved.pop();
            continue;
        }
        resolved.push(&name);
        let inside = resolved.strip_prefix("/").unwrap_or(&resolved);
        let Ok(target) = fs::read_link(rootfs.join(inside)) else {
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return Err("too many symlinks on the way");
        }
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        } else {
            resolved.pop();
        }
        todo.extend(components(&target));
    }
    Ok(resolved)
}

/// Names and `..`, last first.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev();
    names
        .filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir))
        .map(|c| c.as_os_str().to_owned())
        .collect()
}

/// Mount point and file system type of a line of mountinfo.
fn parse_mount(line: &[u8]) -> Option<(PathBuf, &[u8])> {
    let mut fields = line.split(|b| *b == b' ');
    let point = unescape(fields.nth(4)?);
    fields.find(|f| *f == b"-")?;
    Some((OsString::from_vec(point).into(), fields.next()?))
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|o| std::str::from_utf8(o).ok());
        match octal.and_then(|o| u8::from_str_radix(o, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn destinations_below_proc_are_refused_through_links_of_the_image_too() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        for (name, target) in [
            ("v", "/proc/1"),
            ("up", "../../../proc"),
            ("a/b/c", "../../v"),
            ("loop", "loop"),
            ("plain", "/a/b"),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        let check = |destination: &str, source: &str, expected: Option<&str>| {
            let config =
                json!({"mounts": [{"destination": destination, "type": "bind", "source": source}]});
            let result = check_config(&config, root).err();
            match (&result, expected) {
                (None, None) => {}
                (Some(text), Some(words)) if text.contains(words) => {}
                _ => panic!("{destination}: {result:?}"),
            }
        };
        check("/data", "/tmp", None);
        check("/procedure", "/tmp", None);
        check(
            "/proc/self/attr",
            "/tmp",
            Some("nothing can be mounted below /proc"),
        );
        check("/proc/../proc//self/", "/tmp", Some("below /proc"));
        check("/v", "/tmp", Some("which is /proc/1 in the image"));
        check("/v/attr", "/tmp", Some("which is /proc/1/attr"));
        check("/a/b/c/attr", "/tmp", Some("which is /proc/1/attr"));
        check("/up/self/attr", "/tmp", Some("which is /proc/self/attr"));
        check("/plain/x", "/tmp", None);
        check("/loop/x", "/tmp", Some("too many symlinks"));
        check("/proc", "/tmp", Some("only a proc file system"));
        check("/up", "/tmp", Some("only a proc file system"));
        check("/proc", "/proc", None);
        for allowed in ALLOWED {
            check(allowed, "/tmp", None);
        }
        check("/proc/cpuinfo/x", "/tmp", Some("below /proc"));
    }

    #[test]
    fn devices_are_made_neither_through_links_nor_in_volumes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a")).unwrap();
        symlink("/dev", root.join("link")).unwrap();
        let check = |destination: &str, devices: Value, expected: Option<&str>| {
            let config = json!({
                "mounts": [{"destination": destination, "type": "bind", "source": "/tmp"}],
                "linux": {"devices": devices},
            });
            match (check_device_dirs(&config, &root), expected) {
                (Ok(()), None) => {}
                (Err(text), Some(words)) if text.contains(words) => {}
                (result, _) => panic!("{destination}: {result:?}"),
            }
        };
        let none = || json!([]);
        for fine in ["/a", "/dev/shm", "/dev/termination-log", "/device"] {
            check(fine, none(), None);
        }
        for volume in ["/dev", "/dev/", "/a/../dev", "/link", "/"] {
            check(volume, none(), Some("devices are made in /dev"));
        }
        let bus = || json!([{"path": "/dev/bus/usb/001"}]);
        check("/dev/bus", bus(), Some("made in /dev/bus/usb"));
        check("/dev/bus/usb", bus(), Some("made in /dev/bus/usb"));
        check("/dev/shm", bus(), None);
        // A tmpfs that the runtime mounts itself is nobody else's.
        let own = json!({"mounts": [{"destination": "/dev", "type": "tmpfs"}]});
        assert_eq!(check_device_dirs(&own, &root), Ok(()));
        for name in MADE_BY_PATH {
            symlink("/srv", root.join(name)).unwrap();
            let why = check_device_dirs(&own, &root).unwrap_err();
            assert!(
                why.contains(&format!("/{name} of the image is a link to /srv")),
                "{why}"
            );
            fs::remove_file(root.join(name)).unwrap();
        }
    }

    #[test]
    fn mountinfo_is_read_with_its_escapes_and_optional_fields() {
        let line =
            br"36 35 98:0 /mnt1 /proc/a\040b rw,noatime master:1 shared:2 - ext3 /dev/root rw";
        let (point, kind) = parse_mount(line).unwrap();
        assert_eq!(
            (point.as_os_str(), kind),
            (OsStr::from_bytes(b"/proc/a b"), &b"ext3"[..])
        );
        assert!(parse_mount(b"").is_none());
    }
}
