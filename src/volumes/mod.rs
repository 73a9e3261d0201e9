//! What a container sees besides its image: volumes and the generated files.
//!
//! Invariants: a hostPath is checked before anything is mounted; a subPath is resolved by the shim, in the mount
//! namespace the container's mounts are made in, and can never leave its volume: the kernel resolves it with the volume
//! as the root (`openat2`, RESOLVE_IN_ROOT), and what is bound is the descriptor, not the path.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};

use crate::api::pod::{EmptyDir, HostPath, Volume};
use crate::api::{Container, Pod};
use crate::layout::Layout;
use crate::runtime::shims::oci_spec::Mount;
use crate::runtime::shims::state::{MemoryVolume, SubPath};
use crate::runtime::{RuntimeError, StartErrorReason};

/// Bind mounts of one container, and the sub paths the shim has to bind before.
#[derive(Clone, Debug, Default)]
pub struct ContainerVolumes {
    /// For the OCI configuration.
    pub mounts: Vec<Mount>,
    /// For the shim.
    pub sub_paths: Vec<SubPath>,
}

fn config_error(message: String) -> RuntimeError {
    RuntimeError::new(StartErrorReason::CreateContainerConfigError, message)
}

/// The host name a pod's processes see: at most 63 characters, as the kubelet cuts it.
pub fn hostname(pod: &Pod) -> String {
    if pod.spec.host_network {
        return nix::unistd::gethostname()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
    }
    let name = if pod.spec.hostname.is_empty() {
        &pod.metadata.name
    } else {
        &pod.spec.hostname
    };
    name.chars()
        .take(63)
        .collect::<String>()
        .trim_end_matches(['-', '.'])
        .to_owned()
}

/// The directory of an emptyDir.
fn empty_dir_path(layout: &Layout, pod: &Pod, volume: &Volume) -> PathBuf {
    layout
        .pod_data(pod.uid())
        .join("volumes/kubernetes.io~empty-dir")
        .join(&volume.name)
}

/// An emptyDir, also when the volume names no source (kubelet-probes 1.1).
fn as_empty_dir(volume: &Volume) -> Option<EmptyDir> {
    match (&volume.empty_dir, &volume.host_path) {
        (Some(e), _) => Some(e.clone()),
        (None, None) => Some(EmptyDir::default()),
        (None, Some(_)) => None,
    }
}

/// Makes the pod's own directories and files; idempotent, and what containers wrote into volumes stays. Returns what the
/// sandbox holder has to mount.
pub fn prepare_pod(pod: &Pod, layout: &Layout) -> io::Result<Vec<MemoryVolume>> {
    let data = layout.pod_data(pod.uid());
    fs::create_dir_all(&data)?;
    fs::set_permissions(&data, Permissions::from_mode(0o750))?;
    let mut memory = Vec::new();
    for volume in &pod.spec.volumes {
        let Some(empty_dir) = as_empty_dir(volume) else {
            continue;
        };
        let path = empty_dir_path(layout, pod, volume);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        if empty_dir.medium == "Memory" {
            memory.push(MemoryVolume {
                path,
                size: size_limit(&empty_dir)?,
            });
        }
    }
    let hostname = hostname(pod);
    fs::write(data.join("etc-hosts"), etc_hosts(pod, &hostname))?;
    fs::write(data.join("hostname"), format!("{hostname}\n"))?;
    fs::write(
        data.join("resolv.conf"),
        fs::read("/etc/resolv.conf").unwrap_or_default(),
    )?;
    Ok(memory)
}

fn size_limit(empty_dir: &EmptyDir) -> io::Result<Option<u64>> {
    let Some(limit) = &empty_dir.size_limit else {
        return Ok(None);
    };
    let bytes = limit
        .value()
        .and_then(|n| u64::try_from(n).ok())
        .filter(|&n| n > 0);
    bytes
        .map(Some)
        .ok_or_else(|| io::Error::other(format!("sizeLimit {:?} is no positive quantity", limit.0)))
}

/// The node's file for pods on its network, else loopback and the pod itself.
fn etc_hosts(pod: &Pod, hostname: &str) -> String {
    if pod.spec.host_network
        && let Ok(own) = fs::read_to_string("/etc/hosts")
    {
        return format!("# Managed by podprobe (host network).\n{own}");
    }
    format!(
        "# Managed by podprobe.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n127.0.0.1\t{hostname}\n"
    )
}

/// The mounts of one container instance. `dir` is its record directory, `termination_log` its file for the last words.
pub fn container(
    pod: &Pod,
    container: &Container,
    layout: &Layout,
    dir: &Path,
    termination_log: &Path,
) -> Result<ContainerVolumes, RuntimeError> {
    let mut out = ContainerVolumes::default();
    for (n, m) in container.volume_mounts.iter().enumerate() {
        let volume = pod.spec.volumes.iter().find(|v| v.name == m.name);
        let volume = volume.ok_or_else(|| {
            config_error(format!(
                "cannot mount volume {:?}: the pod has no such volume",
                m.name
            ))
        })?;
        let mut source = source(pod, volume, layout)?;
        if !m.sub_path.is_empty() {
            let target = dir.join(format!("subpaths/{n}"));
            out.sub_paths.push(SubPath {
                volume: source,
                path: m.sub_path.clone().into(),
                target: target.clone(),
            });
            source = target;
        }
        out.mounts.push(Mount {
            source,
            destination: m.mount_path.clone(),
            read_only: m.read_only,
            options: propagation(volume),
        });
    }
    let data = layout.pod_data(pod.uid());
    for (file, destination) in [
        ("etc-hosts", "/etc/hosts"),
        ("hostname", "/etc/hostname"),
        ("resolv.conf", "/etc/resolv.conf"),
    ] {
        add_file(&mut out, container, data.join(file), destination);
    }
    if !termination_log.as_os_str().is_empty() {
        add_file(
            &mut out,
            container,
            termination_log.into(),
            &container.termination_message_path,
        );
    }
    Ok(out)
}

fn propagation(_volume: &Volume) -> Vec<String> {
    // mountPropagation None, the only one acted on: nothing mounted later on either side is seen on the other.
    vec!["rprivate".into()]
}

/// A generated file, unless the pod mounts something of its own there.
fn add_file(out: &mut ContainerVolumes, container: &Container, source: PathBuf, destination: &str) {
    if !container
        .volume_mounts
        .iter()
        .any(|m| Path::new(&m.mount_path) == Path::new(destination))
    {
        out.mounts.push(Mount {
            source,
            destination: destination.into(),
            read_only: false,
            options: Vec::new(),
        });
    }
}

fn source(pod: &Pod, volume: &Volume, layout: &Layout) -> Result<PathBuf, RuntimeError> {
    match &volume.host_path {
        Some(host_path) => {
            check_host_path(&volume.name, host_path).map(|()| PathBuf::from(&host_path.path))
        }
        None => Ok(empty_dir_path(layout, pod, volume)),
    }
}

/// What a hostPath type asks for.
struct Wanted {
    word: &'static str,
    fits: fn(&fs::FileType) -> bool,
    create: Option<fn(&Path) -> io::Result<()>>,
}

fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

fn make_file(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o644)
        .open(path)
        .map(drop)
}

fn wanted(type_: &str) -> Option<Wanted> {
    let w = |word, fits, create| Some(Wanted { word, fits, create });
    match type_ {
        // No check; what is missing is made a directory, as containerd does.
        "" => w("path", |_| true, Some(make_directory)),
        "DirectoryOrCreate" => w("directory", fs::FileType::is_dir, Some(make_directory)),
        "Directory" => w("directory", fs::FileType::is_dir, None),
        "FileOrCreate" => w("file", fs::FileType::is_file, Some(make_file)),
        "File" => w("file", fs::FileType::is_file, None),
        "Socket" => w("socket", |t| t.is_socket(), None),
        "CharDevice" => w("character device", |t| t.is_char_device(), None),
        "BlockDevice" => w("block device", |t| t.is_block_device(), None),
        _ => None,
    }
}

fn check_host_path(volume: &str, host_path: &HostPath) -> Result<(), RuntimeError> {
    let HostPath { path, type_ } = host_path;
    let fail =
        |cause: String| config_error(format!("cannot mount hostPath volume {volume:?}: {cause}"));
    let w = wanted(type_).ok_or_else(|| fail(format!("unknown type {type_:?}")))?;
    let found = match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => match w.create {
            Some(create) => {
                return create(Path::new(path))
                    .map_err(|e| fail(format!("cannot create {path}: {e}")));
            }
            None => {
                return Err(fail(format!(
                    "{path} does not exist and type is {type_}; create the {} first{}",
                    w.word,
                    or_create(type_)
                )));
            }
        },
        found => found.map_err(|e| fail(format!("cannot look at {path}: {e}")))?,
    };
    let is = kind(&found.file_type());
    if (w.fits)(&found.file_type()) {
        Ok(())
    } else {
        Err(fail(format!(
            "{path} is a {is} and type is {type_}; name a {} or change the type",
            w.word
        )))
    }
}

fn or_create(type_: &str) -> &'static str {
    match type_ {
        "Directory" => ", or use type DirectoryOrCreate",
        "File" => ", or use type FileOrCreate",
        _ => "",
    }
}

fn kind(t: &fs::FileType) -> &'static str {
    match t {
        t if t.is_dir() => "directory",
        t if t.is_file() => "file",
        t if t.is_socket() => "socket",
        t if t.is_char_device() => "character device",
        t if t.is_block_device() => "block device",
        _ => "FIFO",
    }
}

/// Opens `path` as if `root` were `/`: no symlink, absolute or with `..`, leads out of it.
fn open_in_root(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how)
}

/// Resolves a sub path safely and makes what is missing of it, with the volume's own mode.
fn resolve(volume: &Path, path: &Path) -> io::Result<OwnedFd> {
    let root = openat2(
        AT_FDCWD,
        volume,
        OpenHow::new().flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC),
    )?;
    let mode = Mode::from_bits_truncate(fstat(&root)?.st_mode & 0o777);
    let mut done = PathBuf::new();
    let mut at = open_in_root(&root, Path::new("."))?;
    for part in path.components() {
        let Component::Normal(name) = part else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a subPath is relative and has no '..'",
            ));
        };
        done.push(name);
        at = match open_in_root(&root, &done) {
            Err(Errno::ENOENT) => {
                mkdirat(&at, name, mode)?;
                open_in_root(&root, &done)?
            }
            other => other?,
        };
    }
    Ok(at)
}

/// Binds a sub path at its target; called by the shim in its own mount namespace.
pub fn bind_sub_path(s: &SubPath) -> io::Result<()> {
    let source = resolve(&s.volume, &s.path)?;
    if let Some(parent) = s.target.parent() {
        fs::create_dir_all(parent)?;
    }
    let is_dir =
        SFlag::from_bits_truncate(fstat(&source)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
    if is_dir {
        fs::create_dir_all(&s.target)?
    } else {
        File::create(&s.target).map(drop)?
    }
    let by_fd = format!("/proc/self/fd/{}", source.as_raw_fd());
    mount(
        Some(by_fd.as_str()),
        &s.target,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )?;
    Ok(())
}

/// Mounts a memory volume; called by the sandbox holder in its own mount namespace.
pub fn mount_memory(v: &MemoryVolume) -> io::Result<()> {
    let size = v.size.map(|n| format!(",size={n}")).unwrap_or_default();
    let options = format!("mode=0777{size}");
    mount(
        Some("tmpfs"),
        &v.path,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some(options.as_str()),
    )?;
    Ok(())
}

/// Removes a tree that is ours, but never through a mount: whatever somebody mounted below it would be emptied.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    let mounts = crate::sys::mountinfo::read()?;
    if let Some(at) = mounts.iter().map(|m| &m.at).find(|at| at.starts_with(dir)) {
        return Err(io::Error::other(format!(
            "{} is mounted; unmount it first",
            at.display()
        )));
    }
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
