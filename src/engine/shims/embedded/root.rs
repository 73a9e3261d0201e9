//! The container's root file system, made from inside.
//!
//! Two steps. [`Sources::open`] runs with the node's root: it opens what the configuration names by paths of the node, the root
//! directory and the sources of the mounts, and takes copies of these mounts, which are attached nowhere. [`Sources::enter`]
//! makes the container's root the only one there is, and everything after it is done in there.
//!
//! Invariants:
//! - With the node's root nothing is made, and no path is followed that an image or a volume has a say in: these paths are
//!   podprobe's own.
//! - From then on a path of the node does not exist for this process. An image or another container of the pod, which may
//!   change a volume at any time, can lead it to another place of the same container at most.
//! - Each path is resolved with the container's root as the root, and no link of /proc into a process is followed: in the
//!   node's process namespace one would lead to the node's root. What was found is used by its descriptor.
//! - No mount covers a file of the container's /proc (CVE-2019-16884, CVE-2025-52881), by runc's rule.
//! - The file systems of processes and of the kernel's objects are mounted on directories that no link leads to, as in runc: what
//!   is mounted later could turn the link elsewhere, and what is to be masked in them would not be found (CVE-2019-19921).

mod error;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2, readlinkat};
use nix::libc::{dev_t, ino_t};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, makedev, mkdirat, mknodat, umask};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{
    Gid, Uid, UnlinkatFlags, chdir, fchdir, fchownat, pivot_root, symlinkat, unlinkat,
};

pub(super) use self::error::RootError;
use self::error::{DeviceError, MountError};
use crate::base::sys::mount_tree::{self, Attributes, MountTree, Ties};
use crate::engine::oci::{self, Spec};

/// The files of /proc that lxcfs and the like may replace, as in runc.
const ALLOWED_BELOW_PROC: [&str; 11] = [
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

/// Links followed on the way to what is made, as the kernel has it.
const MAX_LINKS: usize = 40;
/// How often a path is resolved anew that others were changing meanwhile.
const TRIES: usize = 64;

/// Devices of every container, as runc has them: name, major and minor number.
const DEVICES: [(&str, u64, u64); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

/// Links in the /dev of every container, as runc has them. That to the memory of the kernel only where there is such a file.
const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// A mount, with its source at hand.
struct Mount {
    destination: String,
    /// Name of what is mounted, for errors.
    name: String,
    /// Parts of it are taken away by their paths later, so these must stay what they are now.
    is_protected: bool,
    what: What,
}

impl Mount {
    fn is_at_dev(&self) -> bool {
        self.destination.trim_end_matches('/') == "/dev"
    }
}

enum What {
    /// A copy of a mount of the node.
    Copy {
        tree: MountTree,
        is_dir: bool,
        is_procfs: bool,
    },
    /// A new file system. One of processes is that of whoever makes it, so that is done in the container.
    New { kind: String, options: Options },
}

/// The options of a mount.
#[derive(Debug, Default, PartialEq)]
struct Options {
    recursive: bool,
    attributes: Attributes,
    ties: Option<Ties>,
    /// The file system's own.
    rest: Vec<(String, Option<String>)>,
}

impl Options {
    fn read(words: &[String]) -> Self {
        let mut all = Self::default();
        words.iter().for_each(|word| all.add(word));
        all
    }

    fn add(&mut self, word: &str) {
        let attribute = match word {
            "ro" => Attributes::READ_ONLY,
            "nosuid" => Attributes::NO_SUID,
            "nodev" => Attributes::NO_DEV,
            "noexec" => Attributes::NO_EXEC,
            "noatime" => Attributes::NO_ATIME,
            "strictatime" => Attributes::STRICT_ATIME,
            "nodiratime" => Attributes::NO_DIR_ATIME,
            // What a mount is anyway.
            "rw" | "suid" | "dev" | "exec" | "relatime" | "atime" | "diratime" | "defaults"
            | "bind" => return,
            "rbind" => return self.recursive = true,
            "private" | "rprivate" => return self.ties = Some(Ties::Private),
            "slave" | "rslave" => return self.ties = Some(Ties::Slave),
            "shared" | "rshared" => return self.ties = Some(Ties::Shared),
            own => {
                let (name, value) = own
                    .split_once('=')
                    .map_or((own, None), |(n, v)| (n, Some(v)));
                return self.rest.push((name.to_owned(), value.map(str::to_owned)));
            }
        };
        self.attributes = self.attributes.and(attribute);
    }
}

/// A device to make.
struct Device {
    path: String,
    kind: SFlag,
    number: (u64, u64),
    mode: u32,
    owner: (u32, u32),
    /// The node's own, where this process may make none: in a user namespace.
    of_node: Option<MountTree>,
}

/// Everything that comes from the node.
pub(super) struct Sources {
    path: PathBuf,
    root: MountTree,
    mounts: Vec<Mount>,
    devices: Vec<Device>,
}

impl Sources {
    /// Opens them, in the container's mount namespace, which is still a copy of the node's. `proc` is where the procfs of the
    /// process namespace that is joined is mounted. With `bound` devices are the node's own files: this process may make
    /// none.
    ///
    /// # Errors
    /// Returns [`RootError`] about what cannot be opened.
    pub(super) fn open(config: &Spec, proc: Option<&Path>, bound: bool) -> Result<Self, RootError> {
        let path = config.root.path.clone();
        let root = source(&path, true)
            .and_then(|(tree, _)| tree.tie(Ties::Private).map(|()| tree))
            .map_err(|source| RootError::MountRoot {
                path: path.clone(),
                source,
            })?;
        let mounts = config
            .mounts
            .iter()
            .map(|m| read_mount(m, proc))
            .collect::<Result<Vec<_>, _>>()?;
        let is_bound = |m: &Mount| m.is_at_dev() && matches!(m.what, What::Copy { .. });
        // As in runc: a /dev of the pod's own is complete.
        let devices = match mounts.iter().any(is_bound) {
            true => Vec::new(),
            false => devices(config.linux.devices.as_deref().unwrap_or_default(), bound)?,
        };
        Ok(Self {
            path,
            root,
            mounts,
            devices,
        })
    }

    /// Makes the container's root the only one, and everything in it but what [`Root::finish`] does.
    ///
    /// # Errors
    /// Returns [`RootError`] about what cannot be mounted or made.
    pub(super) fn enter(self, config: &Spec) -> Result<Root, RootError> {
        let Self { path, root, .. } = self;
        let root = Root::enter(&path, &root).map_err(|source| RootError::Enter { path, source })?;
        let ties = match config.linux.rootfs_propagation.as_deref() {
            Some("shared" | "rshared") => MsFlags::MS_SHARED,
            Some("slave" | "rslave") => MsFlags::MS_SLAVE,
            _ => MsFlags::MS_PRIVATE,
        };
        mount(None::<&str>, "/", None::<&str>, ties, None::<&str>).map_err(RootError::Tie)?;
        let mut dev = None;
        for m in self.mounts {
            let (name, at, is_at_dev) = (m.name.clone(), m.destination.clone(), m.is_at_dev());
            root.mount(m)
                .map_err(|source| RootError::Mount { name, at, source })?;
            if is_at_dev {
                dev = root.identity("/dev");
            }
        }
        // By another name for /dev, or a link of the image, a volume may be there now. Nothing is made in the node's files.
        let is_covered = dev.is_some() && root.identity("/dev") != dev;
        if !self.devices.is_empty() && !is_covered {
            root.make_dev(&self.devices)?;
        }
        // Where nothing can be made, to change to it says so.
        let _ = root.make(Path::new(&config.process.cwd), Kind::Directory);
        Ok(root)
    }
}

/// Follows links: the paths are the node's.
fn source(path: &Path, recursive: bool) -> io::Result<(MountTree, OwnedFd)> {
    let opened = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let tree = match recursive {
        true => MountTree::copy(&opened)?,
        false => MountTree::copy_one(&opened)?,
    };
    Ok((tree, opened))
}

fn read_mount(m: &oci::Mount, proc: Option<&Path>) -> Result<Mount, RootError> {
    let (destination, kind) = (m.destination.clone(), m.kind.clone());
    if !destination.starts_with('/') {
        return Err(RootError::RelativeDestination(destination));
    }
    if m.uid_mappings.is_some() || m.gid_mappings.is_some() {
        return Err(RootError::Mapped(destination));
    }
    let options = Options::read(&m.options);
    let is_protected = matches!(kind.as_str(), "proc" | "sysfs");
    let is_bind = kind == "bind" || m.options.iter().any(|w| w == "bind" || w == "rbind");
    let from = match (kind.as_str(), proc) {
        // Nobody but a process inside can make it, and none of ours is to be there with the rights for that.
        ("proc", Some(proc)) => proc.to_owned(),
        _ if is_bind => m.source.clone(),
        _ => {
            let name = match m.source.as_os_str().is_empty() {
                true => kind.clone(),
                false => m.source.display().to_string(),
            };
            let what = What::New { kind, options };
            return Ok(Mount {
                destination,
                name,
                is_protected,
                what,
            });
        }
    };
    let name = from.display().to_string();
    match copied(&from, &options) {
        Ok(what) => Ok(Mount {
            destination,
            name,
            is_protected,
            what,
        }),
        Err(source) => Err(RootError::Mount {
            name,
            at: destination,
            source,
        }),
    }
}

fn copied(from: &Path, options: &Options) -> Result<What, MountError> {
    if let Some((name, _)) = options.rest.first() {
        return Err(MountError::Option(name.clone()));
    }
    let (tree, opened) = source(from, options.recursive)?;
    if options.attributes != Attributes::default() {
        tree.add(options.attributes)?;
    }
    tree.tie(options.ties.unwrap_or(Ties::Private))?;
    let found = fstat(&opened)?;
    Ok(What::Copy {
        is_dir: is(&found, SFlag::S_IFDIR),
        is_procfs: is_procfs(&opened)?,
        tree,
    })
}

fn devices(listed: &[oci::Device], bound: bool) -> Result<Vec<Device>, RootError> {
    let mut all = listed.iter().map(device).collect::<Result<Vec<_>, _>>()?;
    for (path, major, minor) in DEVICES {
        if all.iter().all(|d| d.path != path) {
            all.push(Device {
                path: path.into(),
                kind: SFlag::S_IFCHR,
                number: (major, minor),
                mode: 0o666,
                owner: (0, 0),
                of_node: None,
            });
        }
    }
    for d in all.iter_mut().filter(|_| bound) {
        let opened = source(Path::new(&d.path), false);
        let (tree, _) = opened.map_err(|source| RootError::NodeDevice {
            path: d.path.clone(),
            source,
        })?;
        d.of_node = Some(tree);
    }
    Ok(all)
}

fn device(d: &oci::Device) -> Result<Device, DeviceError> {
    let path = &d.path;
    let kind = match d.kind.as_str() {
        "b" => SFlag::S_IFBLK,
        "c" | "u" => SFlag::S_IFCHR,
        _ => return Err(DeviceError::Type(path.clone())),
    };
    match (path.starts_with("/dev/"), d.major, d.minor) {
        (true, Some(major), Some(minor)) => Ok(Device {
            path: path.clone(),
            kind,
            number: (major, minor),
            mode: d.file_mode.map_or(0o666, |m| m & 0o7777),
            owner: (d.uid, d.gid),
            of_node: None,
        }),
        (false, ..) => Err(DeviceError::NotBelowDev(path.clone())),
        _ => Err(DeviceError::NoNumber(path.clone())),
    }
}

/// The kind of file that is made where nothing is.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Directory,
    File,
}

/// The container's root, which is this process's.
pub(super) struct Root(OwnedFd);

impl Root {
    /// The old root is gone afterwards, with all that was mounted in it.
    fn enter(path: &Path, tree: &MountTree) -> io::Result<Self> {
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
        tree.attach(path)?;
        fchdir(tree)?;
        // Puts the old root over the new one, from where it can be taken away.
        pivot_root(".", ".")?;
        umount2(".", MntFlags::MNT_DETACH)?;
        chdir("/")?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(open("/", flags, Mode::empty())?))
    }

    fn open(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        self.resolve(path, flags, ResolveFlag::RESOLVE_NO_MAGICLINKS)
    }

    fn resolve(&self, path: &Path, flags: OFlag, links: ResolveFlag) -> nix::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | links;
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(resolve);
        let mut tries = 0;
        loop {
            match openat2(&self.0, path, how) {
                Err(Errno::EAGAIN) if tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// Opens `path`. Where nothing is there, makes it, with the directories above it. A link that leads nowhere leads to
    /// what is made.
    fn make(&self, path: &Path, kind: Kind) -> nix::Result<OwnedFd> {
        let mut todo: VecDeque<OsString> = names(path).collect();
        let (mut done, mut links) = (PathBuf::from("/"), 0);
        let mut at = self.open(&done, OFlag::O_PATH)?;
        while let Some(name) = todo.pop_front() {
            let next = done.join(&name);
            at = match self.open(&next, OFlag::O_PATH) {
                Err(Errno::ENOENT) => {
                    if let Ok(target) = readlinkat(&at, name.as_os_str()) {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(Errno::ELOOP);
                        }
                        let target = PathBuf::from(target);
                        names(&target).rev().for_each(|n| todo.push_front(n));
                        if target.is_absolute() {
                            done = "/".into();
                            at = self.open(&done, OFlag::O_PATH)?;
                        }
                        continue;
                    }
                    let kind = if todo.is_empty() {
                        kind
                    } else {
                        Kind::Directory
                    };
                    make_one(&at, &name, kind)?;
                    self.open(&next, OFlag::O_PATH)?
                }
                other => other?,
            };
            done = next;
        }
        Ok(at)
    }

    fn mount(&self, m: Mount) -> Result<(), MountError> {
        let (tree, is_dir, is_procfs) = match m.what {
            What::Copy {
                tree,
                is_dir,
                is_procfs,
            } => (tree, is_dir, is_procfs),
            What::New { kind, options } => {
                let source = [("source", Some(m.name.as_str()))];
                let rest = options
                    .rest
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_deref()));
                let all: Vec<_> = source.into_iter().chain(rest).collect();
                let tree = MountTree::new(&kind, &all, options.attributes)?;
                (tree, true, kind == "proc")
            }
        };
        let kind = if is_dir { Kind::Directory } else { Kind::File };
        let at = self.make(Path::new(&m.destination), kind)?;
        if m.is_protected && self.leads_a_link_to(&m.destination) {
            return Err(MountError::Link);
        }
        self.check(&m.destination, &at, is_procfs)?;
        Ok(tree.attach_on(&at)?)
    }

    /// Which file is at `path`; None where none is.
    fn identity(&self, path: &str) -> Option<(dev_t, ino_t)> {
        let found = self.open(Path::new(path), OFlag::O_PATH);
        let found = found.and_then(|found| fstat(&found)).ok()?;
        Some((found.st_dev, found.st_ino))
    }

    fn leads_a_link_to(&self, destination: &str) -> bool {
        let links = ResolveFlag::RESOLVE_NO_SYMLINKS;
        self.resolve(Path::new(destination), OFlag::O_PATH, links)
            .is_err()
    }

    /// runc's `checkProcMount`, by what the destination is and not by its name.
    fn check(
        &self,
        destination: &str,
        at: &OwnedFd,
        is_procfs_itself: bool,
    ) -> Result<(), MountError> {
        let unknown = |_| MountError::Unknown;
        let found = fstat(at).map_err(unknown)?;
        let is_same = |path: &str| self.identity(path) == Some((found.st_dev, found.st_ino));
        if is_procfs(at).map_err(unknown)? {
            return match ALLOWED_BELOW_PROC.contains(&destination) {
                true => Ok(()),
                false => Err(MountError::BelowProc),
            };
        }
        if is_same("/proc") && !is_procfs_itself {
            return Err(MountError::OnProc);
        }
        match is_same("/") {
            true => Err(MountError::OverRoot),
            false => Ok(()),
        }
    }

    fn make_dev(&self, devices: &[Device]) -> Result<(), RootError> {
        let failed = |object: &str, source: io::Error| RootError::Make {
            object: object.to_owned(),
            source,
        };
        let old = umask(Mode::empty());
        let made = devices
            .iter()
            .try_for_each(|d| self.make_device(d).map_err(|e| failed(&d.path, e)));
        umask(old);
        made?;
        self.make_links()
            .map_err(|e| failed("the links in /dev", e.into()))
    }

    /// Makes a device, or attaches the node's own. A file that is there already stays, as in runc.
    fn make_device(&self, d: &Device) -> io::Result<()> {
        let path = Path::new(&d.path);
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::EINVAL.into());
        };
        if let Some(tree) = &d.of_node {
            let at = self.make(path, Kind::File)?;
            return tree.attach_on(&at);
        }
        let above = self.make(above, Kind::Directory)?;
        let mode = Mode::from_bits_truncate(d.mode);
        match mknodat(&above, name, d.kind, mode, makedev(d.number.0, d.number.1)) {
            Err(Errno::EEXIST) => return Ok(()),
            other => other?,
        }
        if d.owner != (0, 0) {
            let (uid, gid) = (Uid::from_raw(d.owner.0), Gid::from_raw(d.owner.1));
            fchownat(
                &above,
                name,
                Some(uid),
                Some(gid),
                AtFlags::AT_SYMLINK_NOFOLLOW,
            )?;
        }
        Ok(())
    }

    fn make_links(&self) -> nix::Result<()> {
        let dev = self.make(Path::new("/dev"), Kind::Directory)?;
        let kcore = self.open(Path::new("/proc/kcore"), OFlag::O_PATH);
        let core = kcore.is_ok().then_some(("core", "/proc/kcore"));
        for (name, target) in LINKS.into_iter().chain(core) {
            match symlinkat(target, &dev, name) {
                Err(Errno::EEXIST) => {}
                other => other?,
            }
        }
        match unlinkat(&dev, "ptmx", UnlinkatFlags::NoRemoveDir) {
            Err(Errno::ENOENT) => {}
            other => other?,
        }
        symlinkat("pts/ptmx", &dev, "ptmx")
    }

    /// Opens the container's own null device.
    ///
    /// # Errors
    /// Returns ENODEV where another file stands in its place.
    pub(super) fn null(&self, flags: OFlag) -> nix::Result<OwnedFd> {
        let null = self.open(Path::new("/dev/null"), flags)?;
        match is_null(&null) {
            true => Ok(null),
            false => Err(Errno::ENODEV),
        }
    }

    /// Opens the multiplexer of the container's terminals.
    pub(super) fn terminals(&self) -> nix::Result<OwnedFd> {
        self.open(Path::new("/dev/pts/ptmx"), OFlag::O_RDWR | OFlag::O_NOCTTY)
    }

    /// Makes a terminal the container's console.
    pub(super) fn mount_console(&self, slave: &impl AsFd) -> io::Result<()> {
        let at = self.make(Path::new("/dev/console"), Kind::File)?;
        MountTree::copy_one(slave)?.attach_on(&at)
    }

    /// Takes away what the container is not to write or see.
    ///
    /// # Errors
    /// Returns [`RootError`] about what cannot be taken away.
    pub(super) fn finish(&self, config: &Spec) -> Result<(), RootError> {
        if config.root.readonly {
            mount_tree::add_attributes(&self.0, Attributes::READ_ONLY)
                .map_err(RootError::ReadOnly)?;
        }
        type Step<'a> = &'a dyn Fn(&OwnedFd) -> io::Result<()>;
        let each = |list: &'static str, paths: &Option<Vec<String>>, step: Step<'_>| {
            paths.iter().flatten().try_for_each(|path| {
                match self.open(Path::new(path), OFlag::O_PATH) {
                    Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(()),
                    other => other
                        .map_err(Into::into)
                        .and_then(|at| step(&at))
                        .map_err(|source| RootError::Protect {
                            path: path.clone(),
                            list,
                            source,
                        }),
                }
            })
        };
        let linux = &config.linux;
        each("readonlyPaths", &linux.readonly_paths, &|at| {
            let tree = MountTree::copy(at)?;
            tree.make_read_only()?;
            tree.attach_on(at)
        })?;
        each("maskedPaths", &linux.masked_paths, &|at| {
            let mask = match is(&fstat(at)?, SFlag::S_IFDIR) {
                true => {
                    MountTree::new("tmpfs", &[("source", Some("tmpfs"))], Attributes::READ_ONLY)?
                }
                false => MountTree::copy_one(&self.null(OFlag::O_PATH)?)?,
            };
            mask.attach_on(at)
        })
    }
}

fn make_one(above: &OwnedFd, name: &OsStr, kind: Kind) -> nix::Result<()> {
    let mode = Mode::from_bits_truncate(0o755);
    let made = match kind {
        Kind::Directory => mkdirat(above, name, mode),
        Kind::File => mknodat(
            above,
            name,
            SFlag::S_IFREG,
            Mode::from_bits_truncate(0o644),
            0,
        ),
    };
    match made {
        // Somebody else has made it meanwhile.
        Err(Errno::EEXIST) => Ok(()),
        other => other,
    }
}

/// Names and `..`.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    let all = path.components();
    all.filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir))
        .map(|c| OsStr::from_bytes(c.as_os_str().as_bytes()).to_owned())
}

fn is(file: &FileStat, kind: SFlag) -> bool {
    file.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}

/// True if the file is the null device.
pub(super) fn is_null(file: &impl AsFd) -> bool {
    fstat(file).is_ok_and(|f| is(&f, SFlag::S_IFCHR) && f.st_rdev == makedev(1, 3))
}

fn is_procfs(file: &impl AsFd) -> nix::Result<bool> {
    Ok(fstatfs(file)?.filesystem_type() == PROC_SUPER_MAGIC)
}

/// The root directory of a configuration, as a descriptor.
///
/// # Errors
/// Returns the kernel's error.
pub(super) fn open_root(config: &Spec) -> io::Result<OwnedFd> {
    Ok(File::open(&config.root.path)?.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::{Value, json};

    use super::*;

    fn root(path: &Path) -> Root {
        Root(File::open(path).unwrap().into())
    }

    #[test]
    fn what_is_made_stays_below_the_root_whatever_the_links() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(inside.join("a")).unwrap();
        fs::create_dir(&outside).unwrap();
        for (name, target) in [
            ("out", outside.to_str().unwrap()),
            ("a/up", "../../../new"),
            ("var", "/run"),
            ("loop", "/loop/x"),
        ] {
            symlink(target, inside.join(name)).unwrap();
        }
        let root = root(&inside);
        let make = |path: &str, kind| root.make(Path::new(path), kind).map(drop);
        let made = |path: &Path| fs::metadata(path).map(|m| m.is_dir()).ok();
        assert_eq!(make("/out/x", Kind::Directory), Ok(()));
        assert_eq!(made(&outside.join("x")), None);
        let same = inside.join(outside.strip_prefix("/").unwrap()).join("x");
        assert_eq!(made(&same), Some(true));
        assert_eq!(make("/a/up/b", Kind::File), Ok(()));
        assert_eq!(made(&inside.join("new/b")), Some(false));
        assert_eq!(make("/var/lock/../log", Kind::Directory), Ok(()));
        assert_eq!(made(&inside.join("run/log")), Some(true));
        assert_eq!(make("/../../b", Kind::Directory), Ok(()));
        assert_eq!(made(&inside.join("b")), Some(true));
        assert_eq!(make("/loop", Kind::Directory), Err(Errno::ELOOP));
        // What is there stays what it is.
        assert_eq!(make("/new/b", Kind::Directory), Ok(()));
        assert_eq!(made(&inside.join("new/b")), Some(false));
        assert_eq!(make("/new/b/c", Kind::Directory), Err(Errno::ENOTDIR));
    }

    #[test]
    fn no_link_of_a_process_is_followed() {
        let root = root(Path::new("/"));
        for link in ["/proc/self/root/tmp", "/proc/self/cwd", "/proc/self/fd/0"] {
            let found = root.make(Path::new(link), Kind::Directory).map(drop);
            assert_eq!(found, Err(Errno::ELOOP), "{link}");
        }
    }

    #[test]
    fn nothing_covers_a_file_of_proc_or_the_root() {
        let root = root(Path::new("/"));
        let check = |path: &str, is_procfs: bool| {
            let at = root.open(Path::new(path), OFlag::O_PATH).unwrap();
            root.check(path, &at, is_procfs).map_err(|e| e.to_string())
        };
        for allowed in ["/proc/uptime", "/proc/meminfo", "/tmp", "/sys"] {
            assert_eq!(check(allowed, false), Ok(()), "{allowed}");
        }
        let below = Err("nothing can be mounted below /proc".to_owned());
        for refused in [
            "/proc",
            "/proc/self/attr",
            "/proc/1/status",
            "/sys/../proc/uptime",
        ] {
            assert_eq!(check(refused, false), below, "{refused}");
        }
        assert_eq!(
            check("/", false),
            Err("nothing can be mounted over the root".to_owned())
        );
        // Before there is a procfs.
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        symlink("proc", dir.path().join("link")).unwrap();
        let root = super::tests::root(dir.path());
        for path in ["/proc", "/link"] {
            let at = root.open(Path::new(path), OFlag::O_PATH).unwrap();
            let only = root.check(path, &at, false);
            assert!(matches!(only, Err(MountError::OnProc)), "{only:?}");
            root.check(path, &at, true).unwrap();
        }
    }

    #[test]
    fn options_are_attributes_ties_or_the_file_systems_own() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            Options::read(&words)
        };
        let shm = read(&["nosuid", "nodev", "mode=1777", "size=64k", "newinstance"]);
        assert_eq!(shm.attributes, Attributes::NO_SUID.and(Attributes::NO_DEV));
        let own = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        let expected = [
            own("mode", Some("1777")),
            own("size", Some("64k")),
            own("newinstance", None),
        ];
        assert_eq!(shm.rest, expected);
        let volume = read(&["rbind", "rslave", "ro"]);
        assert_eq!((volume.recursive, volume.ties), (true, Some(Ties::Slave)));
        assert_eq!(volume.attributes, Attributes::READ_ONLY);
        assert_eq!(read(&["bind", "rw", "exec"]), Options::default());
        assert_eq!(read(&[]), Options::default());
        let odd = copied(Path::new("/tmp"), &read(&["bind", "size=1"])).err();
        assert_eq!(
            odd.unwrap().to_string(),
            "size is no option of a bind mount"
        );
    }

    #[test]
    fn a_mount_that_cannot_be_done_as_it_says_is_refused() {
        let refused = |m: Value| {
            let refused = read_mount(&serde_json::from_value(m).unwrap(), None).err();
            refused.map(|e| e.to_string())
        };
        let relative = json!({"destination": "v", "type": "tmpfs"});
        let why = "mount destination \"v\" is not an absolute path";
        assert_eq!(refused(relative).as_deref(), Some(why));
        for key in ["uidMappings", "gidMappings"] {
            let mapped = json!({"destination": "/v", "type": "tmpfs", key: []});
            let why = "mount destination /v: mappings of ids are not supported";
            assert_eq!(refused(mapped).as_deref(), Some(why), "{key}");
        }
    }

    #[test]
    fn devices_are_the_listed_ones_and_those_of_every_container() {
        let listed = |listed: Value| {
            let listed: Vec<oci::Device> = serde_json::from_value(listed).unwrap();
            devices(&listed, false)
        };
        let all = listed(json!([
            {"path": "/dev/sda", "type": "b", "major": 8, "minor": 0, "fileMode": 432, "gid": 6},
            {"path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 384},
        ]))
        .unwrap();
        let shown: Vec<_> = all
            .iter()
            .map(|d| (d.path.as_str(), d.mode, d.owner))
            .collect();
        assert_eq!(
            shown[..2],
            [("/dev/sda", 0o660, (0, 6)), ("/dev/null", 0o600, (0, 0))]
        );
        assert_eq!(shown.len(), 1 + DEVICES.len());
        for (wrong, why) in [
            (
                json!([{"path": "/etc/x", "type": "c", "major": 1, "minor": 3}]),
                "device \"/etc/x\" is not below /dev",
            ),
            (
                json!([{"path": "/dev/x", "type": "p"}]),
                "device \"/dev/x\" is neither of type b nor c",
            ),
            (
                json!([{"path": "/dev/x", "type": "c"}]),
                "device \"/dev/x\" has no major and minor number",
            ),
        ] {
            let refused = listed(wrong).err().map(|e| e.to_string());
            assert_eq!(refused.as_deref(), Some(why));
        }
    }
}
