//! Decides which user, group and supplementary groups a container's process has.
//!
//! Names are looked up in `etc/passwd` and `etc/group` of the image's layers, merged as overlayfs shows them. Links are
//! resolved inside that merged view, so no image can make podprobe read a file outside the layers.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::error::SpecError;
use crate::engine::runtime::Security;

/// Maximum size in bytes of a passwd or group file. A larger file is an error, and is not read into memory.
const MAX_FILE: u64 = 4 << 20;
/// Maximum number of links that are followed on the way to a file, the same as in the kernel.
const MAX_LINKS: usize = 40;

/// The user and groups of a process, as numbers for the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups without repeats: the primary group, the groups of `etc/group`, the groups of the
    /// configuration.
    pub groups: Vec<u32>,
    /// Home directory from `etc/passwd`; `/` if the file names none.
    pub home: String,
}

/// Returns the user and groups from the configuration; a value that the configuration does not set comes from the
/// image.
pub(super) fn resolve(
    wanted: &Security,
    image_user: &str,
    layers: &[PathBuf],
) -> Result<User, SpecError> {
    let files = Files::read(layers)?;
    let mut user = match wanted.run_as_user {
        Some(uid) => files.by_uid(uid),
        None => files.by_image(image_user)?,
    };
    if let Some(gid) = wanted.run_as_group {
        user.gid = gid;
    }
    let mut groups = vec![user.gid];
    if !wanted.strict_groups {
        groups.append(&mut user.groups);
    }
    groups.extend(&wanted.supplemental_groups);
    let mut seen = std::collections::BTreeSet::new();
    groups.retain(|g| seen.insert(*g));
    Ok(User { groups, ..user })
}

/// An entry of `etc/passwd`: one line.
struct PasswdEntry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// The content of the image's passwd and group files; empty if a file does not exist.
#[derive(Default)]
struct Files {
    passwd: String,
    group: String,
}

impl Files {
    fn read(layers: &[PathBuf]) -> Result<Self, SpecError> {
        Ok(Self {
            passwd: read(layers, "etc/passwd")?,
            group: read(layers, "etc/group")?,
        })
    }

    /// Returns the user with this uid. A uid without a passwd entry has group 0 and no other groups.
    fn by_uid(&self, uid: u32) -> User {
        match self.users().find(|entry| entry.uid == uid) {
            Some(entry) => self.user(&entry),
            None => User {
                uid,
                gid: 0,
                groups: vec![],
                home: "/".into(),
            },
        }
    }

    fn user(&self, entry: &PasswdEntry<'_>) -> User {
        let home = if entry.home.is_empty() {
            "/"
        } else {
            entry.home
        };
        User {
            uid: entry.uid,
            gid: entry.gid,
            groups: self.memberships(entry.name),
            home: home.to_owned(),
        }
    }

    /// Returns the user that an image names as `name`, `uid`, `name:group` or `uid:gid`. Empty text means root.
    fn by_image(&self, text: &str) -> Result<User, SpecError> {
        let (name, group) = text
            .split_once(':')
            .map_or((text, None), |(n, g)| (n, Some(g)));
        let mut user = match (name, name.parse::<u32>()) {
            ("", _) => self.by_uid(0),
            (_, Ok(uid)) => self.by_uid(uid),
            (name, Err(_)) => {
                let entry = self.users().find(|entry| entry.name == name);
                self.user(&entry.ok_or_else(|| SpecError::NoUser(name.to_owned()))?)
            }
        };
        if let Some(group) = group.filter(|g| !g.is_empty()) {
            user.gid = self.gid(group)?;
        }
        Ok(user)
    }

    fn gid(&self, group: &str) -> Result<u32, SpecError> {
        let named = || self.groups().find(|g| g.0 == group).map(|g| g.1);
        let found = group.parse().ok().or_else(named);
        found.ok_or_else(|| SpecError::NoGroup(group.to_owned()))
    }

    /// Lists the groups that have the user as a member.
    fn memberships(&self, user: &str) -> Vec<u32> {
        self.groups()
            .filter(|(_, _, members)| members.split(',').any(|m| m == user))
            .map(|g| g.1)
            .collect()
    }

    /// Lists the entries of the passwd file. Lines that are not entries are skipped, as by getpwnam.
    fn users(&self) -> impl Iterator<Item = PasswdEntry<'_>> {
        self.passwd.lines().filter_map(|line| {
            let mut f = line.split(':');
            let (name, _, uid, gid) = (f.next()?, f.next()?, f.next()?, f.next()?);
            Some(PasswdEntry {
                name,
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
                home: f.nth(1).unwrap_or_default(),
            })
        })
    }

    /// Lists the entries of the group file: name, gid, and members separated by commas.
    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let mut f = line.split(':');
            let (name, _, gid) = (f.next()?, f.next()?, f.next()?);
            Some((name, gid.parse().ok()?, f.next().unwrap_or_default()))
        })
    }
}

fn read(layers: &[PathBuf], path: &'static str) -> Result<String, SpecError> {
    let unreadable = |source| SpecError::Unreadable { path, source };
    let Some(file) = lookup(layers, path).map_err(unreadable)? else {
        return Ok(String::new());
    };
    let size = fs::symlink_metadata(&file).map_err(unreadable)?.len();
    if size > MAX_FILE {
        return Err(SpecError::TooLarge {
            path,
            size,
            limit: MAX_FILE,
        });
    }
    let bytes = fs::read(&file).map_err(unreadable)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The entry with a given name in the merged view of the layers.
enum Entry {
    Missing,
    /// The directories of this name in the layers, topmost first.
    Directory(Vec<PathBuf>),
    Link(PathBuf),
    File(PathBuf),
}

/// Finds a regular file in the merged layers, and returns its path. Returns None if there is no such file. Links are
/// followed inside the view.
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

/// Looks up a name as overlayfs does. The topmost entry wins. Directories are merged down to the first whiteout, opaque
/// directory or file that is not a directory.
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
    // Only a regular file is read: a device or pipe named passwd would block, or never end.
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
    crate::base::sys::xattr::get(dir, std::ffi::OsStr::new("trusted.overlay.opaque"))
        .is_ok_and(|v| v.as_deref() == Some(b"y"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\n# no entry\napp:x:1000:1001::/:/bin/sh\nbroken:x:no:1\n";
    const GROUP: &str = "root:x:0:\nwheel:x:10:root,app\napp:x:1001:\naudio:x:29:app\n";

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
        run_as: (Option<u32>, Option<u32>),
        expected: Result<(u32, u32, &[u32]), &str>,
    ) {
        let dir = layer(&[("etc/passwd", PASSWD), ("etc/group", GROUP)]);
        let wanted = Security {
            run_as_user: run_as.0,
            run_as_group: run_as.1,
            ..Default::default()
        };
        let got = resolve(&wanted, image_user, &[dir.path().to_owned()]);
        match expected {
            Ok(expected) => {
                let user = got.unwrap();
                assert_eq!((user.uid, user.gid, &user.groups[..]), expected);
            }
            Err(text) => assert!(
                got.as_ref().is_err_and(|e| e.to_string().contains(text)),
                "{got:?}"
            ),
        }
    }

    #[test]
    fn the_home_is_that_of_the_passwd_file() {
        let dir = layer(&[("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nbare:x:5:5\n")]);
        let home = |user: &str| {
            let layers = [dir.path().to_owned()];
            resolve(&Security::default(), user, &layers).unwrap().home
        };
        assert_eq!([home("0"), home("bare"), home("77")], ["/root", "/", "/"]);
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
        let wanted = Security {
            run_as_user: Some(9),
            run_as_group: Some(2),
            supplemental_groups: vec![3, 2, 3],
            ..Default::default()
        };
        let user = resolve(&wanted, "x", &[]).unwrap();
        assert_eq!((user.uid, user.gid, user.groups), (9, 2, vec![2, 3]));
    }

    #[test]
    fn strict_groups_are_not_those_of_the_image() {
        let dir = layer(&[("etc/passwd", PASSWD), ("etc/group", GROUP)]);
        let wanted = Security {
            supplemental_groups: vec![4711],
            strict_groups: true,
            ..Default::default()
        };
        let user = resolve(&wanted, "app", &[dir.path().to_owned()]).unwrap();
        assert_eq!((user.uid, user.gid), (1000, 1001));
        assert_eq!(user.groups, [1001, 4711]);
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
        // A link in an upper layer leads to a file in a lower layer.
        fs::create_dir(top.path().join("etc")).unwrap();
        symlink("/nix/passwd", top.path().join("etc/passwd")).unwrap();
        assert_eq!(text("etc/passwd").as_deref(), Some("app:x:2:2:\n"));
        // The link leads out of the layer: the node's own files must not be read.
        fs::remove_file(top.path().join("etc/passwd")).unwrap();
        symlink(
            "../../../../../../../../etc/hostname",
            top.path().join("etc/passwd"),
        )
        .unwrap();
        assert_eq!(text("etc/passwd"), None);
        // A link that leads to itself ends with an error.
        symlink("/loop", top.path().join("loop")).unwrap();
        assert!(lookup(&layers, "loop").is_err());
        // A file in an upper layer hides a directory of the same name.
        fs::write(top.path().join("nix"), "").unwrap();
        assert_eq!(text("nix/passwd"), None);
    }

    #[test]
    fn whiteouts_and_opaque_directories_hide() {
        if !crate::skip::is_root() {
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
        if crate::base::sys::xattr::set(
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
