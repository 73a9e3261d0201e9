//! Which user, group and supplementary groups a container's process has.
//!
//! Names are looked up in `etc/passwd` and `etc/group` of the image's layers, seen as overlayfs shows them. Links are
//! resolved inside that view: nothing outside the layers is ever read, whatever the image says.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::api::pod::{Container, Pod};

/// passwd and group files larger than this are an error, not memory.
const MAX_FILE: u64 = 4 << 20;
/// As the kernel's own limit.
const MAX_LINKS: usize = 40;

/// Numeric ids, the form the kernel takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups: the primary one, those of `etc/group`, the pod's; no repeats.
    pub groups: Vec<u32>,
}

/// runAsUser and runAsGroup (container, then pod), else the image's user; then runAsNonRoot (in the kubelet's words).
pub(super) fn resolve(
    pod: &Pod,
    container: &Container,
    image_user: &str,
    layers: &[PathBuf],
) -> Result<User, String> {
    let (c, p) = (&container.security_context, &pod.spec.security_context);
    let run_as_user = c.run_as_user.or(p.run_as_user);
    if c.run_as_non_root.or(p.run_as_non_root) == Some(true) {
        verify_non_root(pod, container, run_as_user, image_user)?;
    }
    let files = Files::read(layers)?;
    let mut user = match run_as_user {
        Some(uid) => files.by_uid(id(uid, "runAsUser")?),
        None => files.by_image(image_user)?,
    };
    if let Some(gid) = c.run_as_group.or(p.run_as_group) {
        user.gid = id(gid, "runAsGroup")?;
    }
    let mut groups = vec![user.gid];
    groups.append(&mut user.groups);
    for gid in &p.supplemental_groups {
        groups.push(id(*gid, "supplementalGroups")?);
    }
    let mut seen = std::collections::BTreeSet::new();
    groups.retain(|g| seen.insert(*g));
    Ok(User { groups, ..user })
}

/// `verifyRunAsNonRoot` of the kubelet. A name is refused whatever its uid: the file that maps it is the image's own.
fn verify_non_root(
    pod: &Pod,
    container: &Container,
    run_as_user: Option<i64>,
    image_user: &str,
) -> Result<(), String> {
    let whose = format!(
        "(pod: \"{}\", container: {})",
        pod.reference(),
        container.name
    );
    let name = image_user.split(':').next().unwrap_or_default();
    match (run_as_user, name) {
        (Some(0), _) => Err(format!(
            "container's runAsUser breaks non-root policy {whose}"
        )),
        (Some(_), _) => Ok(()),
        (None, "") => Err(format!(
            "container has runAsNonRoot and image will run as root {whose}"
        )),
        (None, name) => match name.parse::<u32>() {
            Ok(0) => Err(format!(
                "container has runAsNonRoot and image will run as root {whose}"
            )),
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {whose}"
            )),
        },
    }
}

fn id(value: i64, field: &str) -> Result<u32, String> {
    u32::try_from(value)
        .ok()
        .filter(|v| *v <= i32::MAX as u32)
        .ok_or_else(|| format!("cannot use {value} as {field}: must be between 0 and 2147483647"))
}

/// The two files of the image, empty when absent.
#[derive(Default)]
struct Files {
    passwd: String,
    group: String,
}

impl Files {
    fn read(layers: &[PathBuf]) -> Result<Self, String> {
        Ok(Self {
            passwd: read(layers, "etc/passwd")?,
            group: read(layers, "etc/group")?,
        })
    }

    /// A uid without a passwd entry has group 0 and no further groups.
    fn by_uid(&self, uid: u32) -> User {
        match self.users().find(|u| u.1 == uid) {
            Some((name, uid, gid)) => User {
                uid,
                gid,
                groups: self.memberships(name),
            },
            None => User {
                uid,
                gid: 0,
                groups: vec![],
            },
        }
    }

    /// `name`, `uid`, `name:group`, `uid:gid`; empty is root.
    fn by_image(&self, text: &str) -> Result<User, String> {
        let (name, group) = text
            .split_once(':')
            .map_or((text, None), |(n, g)| (n, Some(g)));
        let mut user = match (name, name.parse::<u32>()) {
            ("", _) => self.by_uid(0),
            (_, Ok(uid)) => self.by_uid(uid),
            (name, Err(_)) => {
                self.users().find(|u| u.0 == name).map(|(name, uid, gid)| User { uid, gid, groups: self.memberships(name) }).ok_or_else(
                    || {
                        format!(
                            "cannot find user {name:?}: the image's /etc/passwd has no such user; set securityContext.runAsUser to a number"
                        )
                    },
                )?
            }
        };
        if let Some(group) = group.filter(|g| !g.is_empty()) {
            user.gid = self.gid(group)?;
        }
        Ok(user)
    }

    fn gid(&self, group: &str) -> Result<u32, String> {
        let named = || self.groups().find(|g| g.0 == group).map(|g| g.1);
        group.parse().ok().or_else(named).ok_or_else(|| {
            format!("cannot find group {group:?}: the image's /etc/group has no such group; set securityContext.runAsGroup to a number")
        })
    }

    /// Groups that list the user as a member.
    fn memberships(&self, user: &str) -> Vec<u32> {
        self.groups()
            .filter(|(_, _, members)| members.split(',').any(|m| m == user))
            .map(|g| g.1)
            .collect()
    }

    /// Name, uid, gid; lines that are no entries are skipped, as getpwnam does.
    fn users(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.passwd.lines().filter_map(|line| {
            let mut f = line.split(':');
            let (name, _, uid, gid) = (f.next()?, f.next()?, f.next()?, f.next()?);
            Some((name, uid.parse().ok()?, gid.parse().ok()?))
        })
    }

    /// Name, gid, members.
    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let mut f = line.split(':');
            let (name, _, gid) = (f.next()?, f.next()?, f.next()?);
            Some((name, gid.parse().ok()?, f.next().unwrap_or_default()))
        })
    }
}

fn read(layers: &[PathBuf], path: &str) -> Result<String, String> {
    let problem = |cause: String| format!("cannot read /{path} of the image: {cause}");
    let Some(file) = lookup(layers, path).map_err(|e| problem(e.to_string()))? else {
        return Ok(String::new());
    };
    let size = fs::symlink_metadata(&file)
        .map_err(|e| problem(e.to_string()))?
        .len();
    if size > MAX_FILE {
        return Err(problem(format!("{size} bytes, the limit is {MAX_FILE}")));
    }
    fs::read(&file)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .map_err(|e| problem(e.to_string()))
}

/// What stands at one name of the merged view.
enum Entry {
    Missing,
    /// The directories that overlay each other, topmost first.
    Directory(Vec<PathBuf>),
    Link(PathBuf),
    File(PathBuf),
}

/// Where a regular file of the merged layers lies; None when there is none. Links are followed inside the view.
fn lookup(layers: &[PathBuf], path: &str) -> std::io::Result<Option<PathBuf>> {
    let root: Vec<PathBuf> = layers.to_vec();
    let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut stack = vec![root];
    let mut links = 0;
    while let Some(name) = todo.pop() {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                stack.truncate((stack.len() - 1).max(1));
                continue;
            }
            _ => {}
        }
        match entry(stack.last().map_or(&[], Vec::as_slice), &name)? {
            Entry::Missing => return Ok(None),
            Entry::Directory(dirs) => stack.push(dirs),
            Entry::File(file) => return Ok(todo.iter().all(|n| n.is_empty()).then_some(file)),
            Entry::Link(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(std::io::Error::other("too many levels of symbolic links"));
                }
                if target.is_absolute() {
                    stack.truncate(1);
                }
                todo.extend(target.to_string_lossy().split('/').rev().map(str::to_owned));
            }
        }
    }
    Ok(None)
}

/// One step of overlayfs: the topmost entry wins, directories merge until a whiteout, an opaque one or a non-directory.
fn entry(dirs: &[PathBuf], name: &str) -> std::io::Result<Entry> {
    let mut merged = Vec::new();
    for dir in dirs {
        let path = dir.join(name);
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) => meta,
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                continue;
            }
            Err(e) => return Err(e),
        };
        if meta.is_dir() {
            let opaque = is_opaque(&path);
            merged.push(path);
            if opaque {
                break;
            }
        } else if merged.is_empty() && !is_whiteout(&meta) {
            return leaf(path, &meta);
        } else {
            break;
        }
    }
    Ok(if merged.is_empty() {
        Entry::Missing
    } else {
        Entry::Directory(merged)
    })
}

fn leaf(path: PathBuf, meta: &Metadata) -> std::io::Result<Entry> {
    if meta.is_symlink() {
        return Ok(Entry::Link(fs::read_link(&path)?));
    }
    // A device or pipe named passwd would block or never end.
    Ok(if meta.is_file() {
        Entry::File(path)
    } else {
        Entry::Missing
    })
}

fn is_whiteout(meta: &Metadata) -> bool {
    meta.file_type().is_char_device() && meta.rdev() == 0
}

fn is_opaque(dir: &Path) -> bool {
    crate::sys::xattr::get(dir, std::ffi::OsStr::new("trusted.overlay.opaque"))
        .is_ok_and(|v| v.as_deref() == Some(b"y"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\n# no entry\napp:x:1000:1001::/:/bin/sh\nbroken:x:no:1\n";
    const GROUP: &str = "root:x:0:\nwheel:x:10:root,app\napp:x:1001:\naudio:x:29:app\n";

    fn pod() -> Pod {
        let mut pod = Pod {
            metadata: Default::default(),
            spec: Default::default(),
            raw: serde_json::Value::Null,
        };
        pod.metadata.name = "web".into();
        pod.metadata.namespace = "default".into();
        pod.metadata.uid = "u1".into();
        pod
    }

    fn layer(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[track_caller]
    fn check(
        image_user: &str,
        run_as: (Option<i64>, Option<i64>),
        expected: Result<(u32, u32, &[u32]), &str>,
    ) {
        let dir = layer(&[("etc/passwd", PASSWD), ("etc/group", GROUP)]);
        let mut pod = pod();
        pod.spec.security_context.run_as_user = run_as.0;
        let mut container = Container::default();
        container.security_context.run_as_group = run_as.1;
        let got = resolve(&pod, &container, image_user, &[dir.path().to_owned()]);
        match expected {
            Ok((uid, gid, groups)) => assert_eq!(
                got,
                Ok(User {
                    uid,
                    gid,
                    groups: groups.to_vec()
                })
            ),
            Err(text) => assert!(got.as_ref().is_err_and(|e| e.contains(text)), "{got:?}"),
        }
    }

    #[test]
    fn image_user_forms() {
        check("", (None, None), Ok((0, 0, &[0, 10])));
        check("app", (None, None), Ok((1000, 1001, &[1001, 10, 29])));
        check("1000", (None, None), Ok((1000, 1001, &[1001, 10, 29])));
        check("app:wheel", (None, None), Ok((1000, 10, &[10, 29])));
        check("app:5", (None, None), Ok((1000, 5, &[5, 10, 29])));
        check("77:78", (None, None), Ok((77, 78, &[78])));
        check("77", (None, None), Ok((77, 0, &[0])));
        check("nobody", (None, None), Err("cannot find user \"nobody\""));
        check("app:none", (None, None), Err("cannot find group \"none\""));
        check("broken", (None, None), Err("cannot find user"));
    }

    #[test]
    fn run_as_wins_over_the_image() {
        check(
            "nobody",
            (Some(1000), None),
            Ok((1000, 1001, &[1001, 10, 29])),
        );
        check("app", (Some(5), None), Ok((5, 0, &[0])));
        check("app", (None, Some(7)), Ok((1000, 7, &[7, 10, 29])));
        check("", (Some(-1), None), Err("cannot use -1 as runAsUser"));
        let (mut pod, mut container) = (pod(), Container::default());
        pod.spec.security_context.run_as_user = Some(1);
        pod.spec.security_context.run_as_group = Some(2);
        pod.spec.security_context.supplemental_groups = vec![3, 2, 3];
        container.security_context.run_as_user = Some(9);
        assert_eq!(
            resolve(&pod, &container, "x", &[]),
            Ok(User {
                uid: 9,
                gid: 2,
                groups: vec![2, 3]
            })
        );
    }

    #[track_caller]
    fn check_non_root(run_as: Option<i64>, image_user: &str, expected: Option<&str>) {
        let (pod, mut container) = (
            pod(),
            Container {
                name: "c".into(),
                ..Default::default()
            },
        );
        container.security_context.run_as_non_root = Some(true);
        container.security_context.run_as_user = run_as;
        let got = resolve(&pod, &container, image_user, &[]).err();
        assert_eq!(
            got,
            expected.map(|e| format!("{e} (pod: \"web_default(u1)\", container: c)"))
        );
    }

    #[test]
    fn non_root_in_the_kubelets_words() {
        check_non_root(
            Some(0),
            "5",
            Some("container's runAsUser breaks non-root policy"),
        );
        check_non_root(Some(5), "0", None);
        check_non_root(
            None,
            "",
            Some("container has runAsNonRoot and image will run as root"),
        );
        check_non_root(
            None,
            "0:5",
            Some("container has runAsNonRoot and image will run as root"),
        );
        check_non_root(None, "5:0", None);
        check_non_root(
            None,
            "app:5",
            Some(
                "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
            ),
        );
    }

    #[test]
    fn upper_layers_hide_and_links_stay_inside() {
        let base = layer(&[
            ("etc/passwd", "app:x:1:1:\n"),
            ("nix/passwd", "app:x:2:2:\n"),
            ("only/base", "x"),
        ]);
        let top = layer(&[("usr/file", "x"), ("only/top", "x")]);
        let layers = [top.path().to_owned(), base.path().to_owned()];
        let text = |path| {
            lookup(&layers, path)
                .unwrap()
                .map(|f| fs::read_to_string(f).unwrap())
        };
        assert_eq!(text("etc/passwd").as_deref(), Some("app:x:1:1:\n"));
        assert_eq!(text("only/base").as_deref(), Some("x"));
        // A link of an upper layer to a file of a lower one.
        fs::create_dir(top.path().join("etc")).unwrap();
        symlink("/nix/passwd", top.path().join("etc/passwd")).unwrap();
        assert_eq!(text("etc/passwd").as_deref(), Some("app:x:2:2:\n"));
        // Out of the layer: the node's own /etc/passwd must not be read.
        fs::remove_file(top.path().join("etc/passwd")).unwrap();
        symlink(
            "../../../../../../../../etc/hostname",
            top.path().join("etc/passwd"),
        )
        .unwrap();
        assert_eq!(text("etc/passwd"), None);
        // Loops end.
        symlink("/loop", top.path().join("loop")).unwrap();
        assert!(lookup(&layers, "loop").is_err());
        // A file over a directory hides it.
        fs::write(top.path().join("nix"), "").unwrap();
        assert_eq!(text("nix/passwd"), None);
    }

    #[test]
    fn whiteouts_and_opaque_directories_hide() {
        if !nix::unistd::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "needs root");
            eprintln!("SKIPPED: whiteouts need root");
            return;
        }
        let (base, top) = (
            layer(&[("etc/passwd", "a"), ("opt/passwd", "b")]),
            layer(&[("etc/group", "g"), ("opt/x", "")]),
        );
        let layers = [top.path().to_owned(), base.path().to_owned()];
        let whiteout = top.path().join("etc/passwd");
        nix::sys::stat::mknod(
            &whiteout,
            nix::sys::stat::SFlag::S_IFCHR,
            nix::sys::stat::Mode::empty(),
            0,
        )
        .unwrap();
        assert_eq!(lookup(&layers, "etc/passwd").unwrap(), None);
        assert!(lookup(&layers, "opt/passwd").unwrap().is_some());
        if crate::sys::xattr::set(
            &top.path().join("opt"),
            std::ffi::OsStr::new("trusted.overlay.opaque"),
            b"y",
        )
        .is_ok()
        {
            assert_eq!(lookup(&layers, "opt/passwd").unwrap(), None);
        }
    }
}
