//! Makes the container's root file system, from inside the container.
//!
//! There are two steps. [`Sources::open`] runs with the node's root. It opens the paths of the node that the
//! configuration names: the root directory and the sources of the mounts. It copies these mounts; the copies are
//! attached nowhere. [`Sources::enter`] makes the container's root the only root. Everything after that happens inside
//! the container's root.
//!
//! Invariants:
//! - In the first step nothing is made. No image or volume can change a path that is followed in this step: these paths
//!   are podprobe's own.
//! - From the second step on, no path of the node exists for this process. An image, or another container of the pod
//!   that changes a volume, can lead the process only to another place of the same container.
//! - Each path is resolved with the container's root as the root, and no link of /proc into a process is followed: in
//!   the node's process namespace such a link would lead to the node's root. A file that was found is used by its
//!   descriptor.
//! - No mount covers a file of the container's /proc (CVE-2019-16884, CVE-2025-52881), by runc's rule.
//! - As in runc, proc and sysfs are mounted only on directories to which no link leads. Otherwise a later mount could
//!   turn the link elsewhere, and the masked paths would not be found (CVE-2019-19921).

mod error;
mod paths;
mod sources;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, makedev, mknodat, umask};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{
    Gid, Uid, UnlinkatFlags, chdir, fchdir, fchownat, pivot_root, symlinkat, unlinkat,
};

use self::error::MountError;
pub(super) use self::error::RootError;
use self::paths::Kind;
pub(super) use self::sources::Sources;
use self::sources::{Device, Mount, What};
use crate::base::sys::mount_tree::{self, Attributes, MountTree};
use crate::engine::oci::Spec;

/// Files of /proc that tools such as lxcfs may replace, as in runc.
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

/// Links in the /dev of every container, as in runc. Another link, to kcore, is made only if /proc/kcore exists.
const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

impl Sources {
    /// Makes the container's root the only root, and makes everything in it except for the work of [`Root::finish`].
    ///
    /// # Errors
    /// Returns [`RootError`] about the mount or file that cannot be made.
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
        // A later mount may cover /dev, if its destination is another name of /dev or a link of the image. Nothing is
        // made in the files of such a mount.
        let is_covered = dev.is_some() && root.identity("/dev") != dev;
        if !self.devices.is_empty() && !is_covered {
            root.make_dev(&self.devices)?;
        }
        // If the directory cannot be made, the later chdir fails with an error.
        let _ = root.make(Path::new(&config.process.cwd), Kind::Directory);
        Ok(root)
    }
}

/// The container's root directory, which is this process's root.
pub(super) struct Root(OwnedFd);

impl Root {
    /// Enters the container's root. The old root is unmounted, with everything that was mounted in it.
    fn enter(path: &Path, tree: &MountTree) -> io::Result<Self> {
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
        tree.attach(path)?;
        fchdir(tree)?;
        // Puts the old root over the new root, so that the next line can unmount it.
        pivot_root(".", ".")?;
        umount2(".", MntFlags::MNT_DETACH)?;
        chdir("/")?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(open("/", flags, Mode::empty())?))
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

    /// Checks a mount's destination by runc's rule `checkProcMount`: by the file at the destination, not by its name.
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

    /// Makes a device, or attaches the node's own device. An existing file stays, as in runc.
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
    /// Returns ENODEV if another file is in its place.
    pub(super) fn null(&self, flags: OFlag) -> nix::Result<OwnedFd> {
        let null = self.open(Path::new("/dev/null"), flags)?;
        match is_null(&null) {
            true => Ok(null),
            false => Err(Errno::ENODEV),
        }
    }

    /// Opens `/dev/pts/ptmx`, which makes a new terminal of the container.
    pub(super) fn terminals(&self) -> nix::Result<OwnedFd> {
        self.open(Path::new("/dev/pts/ptmx"), OFlag::O_RDWR | OFlag::O_NOCTTY)
    }

    /// Makes a terminal the container's console.
    pub(super) fn mount_console(&self, slave: &impl AsFd) -> io::Result<()> {
        let at = self.make(Path::new("/dev/console"), Kind::File)?;
        MountTree::copy_one(slave)?.attach_on(&at)
    }

    /// Makes the configured paths read-only or hides them, and makes the root read-only if configured.
    ///
    /// # Errors
    /// Returns [`RootError`] about the path that cannot be protected.
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

fn is(file: &FileStat, kind: SFlag) -> bool {
    file.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}

/// Returns true if the file is the null device.
pub(super) fn is_null(file: &impl AsFd) -> bool {
    fstat(file).is_ok_and(|f| is(&f, SFlag::S_IFCHR) && f.st_rdev == makedev(1, 3))
}

fn is_procfs(file: &impl AsFd) -> nix::Result<bool> {
    Ok(fstatfs(file)?.filesystem_type() == PROC_SUPER_MAGIC)
}

/// Opens the root directory of a configuration.
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

    use super::*;

    pub(super) fn root(path: &Path) -> Root {
        Root(File::open(path).unwrap().into())
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
        // In this root no procfs is mounted yet.
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
}
