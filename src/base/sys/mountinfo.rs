//! A parser for `/proc/thread-self/mountinfo` (proc(5)).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mount of this process's mount namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The part of the file system that is mounted: `/`, or a directory in it.
    pub root: PathBuf,
    /// Mount point.
    pub at: PathBuf,
    /// True if the mount is read-only.
    pub read_only: bool,
    /// True if mounts made below this mount appear in other namespaces (`shared:`).
    pub shared: bool,
    /// True if mounts made in another namespace appear below this mount (`master:`).
    pub slave: bool,
    /// Type of the file system.
    pub kind: String,
    /// Options of the file system itself. The options of cgroup v1 name its controllers.
    pub options: Vec<String>,
}

/// Reads all mounts of this thread's mount namespace.
///
/// # Errors
/// Returns the error of the read if /proc is not mounted or no descriptor is left.
pub fn read() -> io::Result<Vec<Mount>> {
    // This is the file of the thread, not of the process. A thread may have left the mount namespace of its process,
    // and then opens all paths in its own namespace.
    Ok(parse(&fs::read_to_string("/proc/thread-self/mountinfo")?))
}

/// Parses the mounts of a mountinfo text. A line that does not describe a mount is skipped.
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (mount, source) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, at) = (unescape(mount.next()?), unescape(mount.next()?));
    let read_only = mount.next()?.split(',').any(|o| o == "ro");
    let tags: Vec<&str> = mount.collect();
    let has = |tag| tags.iter().any(|t| t.starts_with(tag));
    let (shared, slave) = (has("shared:"), has("master:"));
    let mut source = source.split(' ');
    let kind = source.next()?.to_owned();
    let options = source.nth(1).unwrap_or_default();
    Some(Mount {
        root,
        at,
        read_only,
        shared,
        slave,
        kind,
        options: options.split(',').map(str::to_owned).collect(),
    })
}

/// Undoes the octal escapes that the kernel writes for blanks and backslashes.
fn unescape(field: &str) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((&b, tail)) = rest.split_first() {
        let octal = (b == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        (rest, _) = match octal {
            Some(c) => (&tail[3..], out.push(c)),
            None => (tail, out.push(b)),
        };
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_where_proc_5_says() {
        let line = "33 30 0:29 /pod /a\\040b\\134c ro,nosuid shared:1 - cgroup none rw,cpu,cpuacct";
        let expected = Mount {
            root: "/pod".into(),
            at: "/a b\\c".into(),
            read_only: true,
            shared: true,
            slave: false,
            kind: "cgroup".into(),
            options: ["rw", "cpu", "cpuacct"].map(str::to_owned).into(),
        };
        assert_eq!(parse(&format!("{line}\nnonsense\n\n")), [expected]);
        // A line without optional fields, and with a blank in the source before the options.
        let plain = "30 23 0:26 / /tmp rw - tmpfs a\\040b rw";
        assert_eq!(parse(plain)[0].options, ["rw"]);
        assert!(!parse(plain)[0].read_only);
        let slave = &parse("30 23 0:26 / /tmp rw master:2 propagate_from:1 - tmpfs t rw")[0];
        assert!(slave.slave && !slave.shared);
    }
    #[test]
    fn a_thread_sees_its_own_mounts() {
        use nix::mount::{MsFlags, mount};
        use nix::sched::{CloneFlags, unshare};

        if !crate::skip::is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let is_mounted = || read().unwrap().iter().any(|m| m.at == dir.path());
        let inside = || {
            let none = None::<&str>;
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            mount(none, dir.path(), Some("tmpfs"), MsFlags::empty(), none).unwrap();
            is_mounted()
        };
        let seen = std::thread::scope(|s| s.spawn(inside).join().unwrap());
        assert!(seen && !is_mounted());
    }
}
