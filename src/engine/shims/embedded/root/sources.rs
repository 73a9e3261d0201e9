//! The parts of a container's root file system that come from the node, opened with the node's root: the root
//! directory, copies of the mounts' sources that are attached nowhere, and devices.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{chroot, fchdir};

use super::error::{DeviceError, MountError, RootError};
use super::{is, is_procfs};
use crate::base::sys::mount_tree::{Attributes, MountTree, Ties};
use crate::engine::oci::{self, Spec};

/// Devices that every container has, as in runc: path, major and minor number.
const DEVICES: [(&str, u64, u64); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

/// A mount to make in the container, with its source already opened.
pub(super) struct Mount {
    pub(super) destination: String,
    /// Name of the source or the file system, for error texts.
    pub(super) name: String,
    /// True if paths below this mount are hidden later (proc and sysfs). No link may lead to the destination of such a
    /// mount.
    pub(super) is_protected: bool,
    pub(super) what: What,
}

impl Mount {
    pub(super) fn is_at_dev(&self) -> bool {
        self.destination.trim_end_matches('/') == "/dev"
    }
}

pub(super) enum What {
    /// A copy of a mount of the node.
    Copy {
        tree: MountTree,
        is_dir: bool,
        is_procfs: bool,
    },
    /// A new file system. It is made inside the container, because a procfs shows the processes of the namespace in
    /// which it is made.
    New { kind: String, options: Options },
}

/// The options of a mount.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Options {
    pub(super) recursive: bool,
    pub(super) attributes: Attributes,
    pub(super) ties: Option<Ties>,
    /// Options that belong to the file system, as names with optional values.
    pub(super) rest: Vec<(String, Option<String>)>,
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
            // These words are the default of every mount.
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

/// A device to make in the container.
pub(super) struct Device {
    pub(super) path: String,
    pub(super) kind: SFlag,
    pub(super) number: (u64, u64),
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    /// Copy of the node's own device, if this process cannot make devices (in a user namespace); else None.
    pub(super) of_node: Option<MountTree>,
}

/// End of the path that stands for the procfs of another container: the path of its mount namespace.
const MOUNT_NAMESPACE: &str = "ns/mnt";

/// Everything in the container's root file system that comes from the node.
pub(in crate::shims::embedded) struct Sources {
    pub(super) path: PathBuf,
    pub(super) root: MountTree,
    pub(super) mounts: Vec<Mount>,
    pub(super) devices: Vec<Device>,
}

impl Sources {
    /// Opens the sources in the container's mount namespace, which is still a copy of the node's. `proc` is the mount
    /// point of the procfs of the process namespace that the container joins, or the path of the mount namespace of the
    /// container whose namespace it is; None if the container joins no such namespace. `bound` is true if this process cannot make devices, so the node's own device files are bound.
    ///
    /// # Errors
    /// Returns [`RootError`] about the source that cannot be opened.
    pub(in crate::shims::embedded) fn open(
        config: &Spec,
        proc: Option<&Path>,
        bound: bool,
    ) -> Result<Self, RootError> {
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
        // As in runc, a /dev that the pod mounts itself counts as complete.
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
}

/// Opens a path of the node and copies its mount. Links are followed, because the path is podprobe's own.
fn source(path: &Path, recursive: bool) -> io::Result<(MountTree, OwnedFd)> {
    let opened = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let tree = match recursive {
        true => MountTree::copy(&opened)?,
        false => MountTree::copy_one(&opened)?,
    };
    Ok((tree, opened))
}

/// Copies the procfs of another container, whose mount namespace is at `path`. A mount of another namespace can be copied
/// only from inside. This process does not enter the process namespace, so nobody there sees it.
fn proc_in(path: &Path) -> io::Result<(MountTree, OwnedFd)> {
    let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let namespace = |path: &Path| open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    let (theirs, own) = (namespace(path)?, namespace(Path::new("/proc/self/ns/mnt"))?);
    let root = open("/", directory, Mode::empty())?;
    setns(&theirs, CloneFlags::CLONE_NEWNS)?;
    let copied = open("/proc", directory | OFlag::O_NOFOLLOW, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|opened| Ok((MountTree::copy_one(&opened)?, opened)));
    setns(&own, CloneFlags::CLONE_NEWNS)?;
    fchdir(&root)?;
    chroot(".")?;
    let (tree, opened) = copied?;
    match is_procfs(&opened)? {
        true => Ok((tree, opened)),
        // A container with rights over its mounts can put anything at this place.
        false => Err(io::Error::other("it is not a procfs")),
    }
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
        // The procfs at the path `proc` is bound. Only a process inside the container's process namespace could mount a
        // procfs of it, and no privileged process of podprobe may be inside.
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
    let (tree, opened) = match from.ends_with(MOUNT_NAMESPACE) {
        true => proc_in(from)?,
        false => source(from, options.recursive)?,
    };
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
