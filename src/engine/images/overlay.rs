//! Mounts the root of a container: the image's layers below, and one writable directory on top. Also mounts images
//! read-only, for volumes.
//!
//! Invariant: the data for mount(2) fits one page with any number of layers up to [`MAX_LAYERS`].

use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount as sys_mount};
use nix::unistd::{chdir, fchdir};

/// Largest number of lower directories that the kernel accepts (`OVL_MAX_STACK`).
pub const MAX_LAYERS: usize = 500;

/// Size in bytes of the data that mount(2) copies: one page. On some architectures no page is larger.
const PAGE: usize = 4096;

/// Reason why a root or an image could not be mounted. The text names the mount point.
#[derive(Debug)]
pub struct OverlayError {
    doing: String,
    cause: std::io::Error,
}

impl fmt::Display for OverlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.doing, self.cause)?;
        if self.cause.raw_os_error() == Some(libc::ENODEV) {
            f.write_str(" (the kernel has no overlayfs: `modprobe overlay`)")
        } else {
            Ok(())
        }
    }
}

impl std::error::Error for OverlayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

fn failed(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> OverlayError {
    let doing = doing.into();
    move |cause| OverlayError { doing, cause }
}

/// Mounts `layers` (topmost first, as in [`super::Image::layers`]) with `upper` and `work` at `target`. All these
/// directories exist. `upper` and `work` lie on one file system and belong to this mount alone. If `devices` is true,
/// device nodes in the mount can be opened.
///
/// Only for a process with a single thread: with many layers this function changes the working directory for a moment.
pub fn mount(
    layers: &[PathBuf],
    upper: &Path,
    work: &Path,
    target: &Path,
    devices: bool,
) -> Result<(), OverlayError> {
    let flags = if devices {
        MsFlags::empty()
    } else {
        MsFlags::MS_NODEV
    };
    let stack = Stack {
        layers,
        writable: Some((upper, work)),
        flags,
        target,
    };
    if layers.is_empty() {
        return bind(upper, target, flags).map_err(|e| failed(stack.doing())(e.into()));
    }
    stack.mount()
}

/// Makes a bind mount, and then sets its flags in a second step, as the kernel requires.
fn bind(from: &Path, target: &Path, flags: MsFlags) -> nix::Result<()> {
    let none = None::<&str>;
    sys_mount(Some(from), target, none, MsFlags::MS_BIND, none)?;
    if flags.is_empty() {
        return Ok(());
    }
    let again = MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
    sys_mount(none, target, none, again | flags, none)
}

/// Mounts an image at `target`. Nobody can change its files, execute its programs or open its devices. Overlayfs needs
/// at least two layers for a read-only mount (see [`padded`]).
///
/// Only for a process with a single thread: with many layers this function changes the working directory for a moment.
pub fn mount_read_only(layers: &[PathBuf], target: &Path) -> Result<(), OverlayError> {
    let stack = Stack {
        layers,
        writable: None,
        flags: MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        target,
    };
    stack.mount()
}

/// Returns the layers of an image for [`mount_read_only`], at least two. If there are fewer, the empty directories `0`
/// and `1` below `empty` are added.
pub fn padded(mut layers: Vec<PathBuf>, empty: &Path) -> Vec<PathBuf> {
    while layers.len() < 2 {
        layers.push(empty.join(layers.len().to_string()));
    }
    layers
}

/// An overlay to mount, and the directory at which it is mounted.
struct Stack<'a> {
    layers: &'a [PathBuf],
    /// The directories `upper` and `work`; None for a read-only mount.
    writable: Option<(&'a Path, &'a Path)>,
    flags: MsFlags,
    target: &'a Path,
}

impl Stack<'_> {
    fn doing(&self) -> String {
        let what = match self.writable {
            Some(_) => "the root file system",
            None => "the image",
        };
        format!("mount {what} at {}", self.target.display())
    }

    fn mount(&self) -> Result<(), OverlayError> {
        let (doing, layers) = (self.doing(), self.layers.len());
        if layers > MAX_LAYERS {
            let cause = std::io::Error::other(format!(
                "{layers} layers, overlayfs has at most {MAX_LAYERS}"
            ));
            return Err(OverlayError { doing, cause });
        }
        let index_off = Path::new("/sys/module/overlay/parameters/index").exists();
        match self.plain_data(index_off) {
            Some(data) => self.mount_at(self.target, &data).map_err(failed(doing)),
            None => self.mount_by_descriptors(index_off),
        }
    }

    /// Returns the data for mount(2) with paths, which people can read in /proc/mounts. Returns None if the data is too
    /// long, or if a path has a character with a meaning for overlayfs.
    fn plain_data(&self, index_off: bool) -> Option<String> {
        let text = |p: &Path| {
            p.to_str()
                .filter(|s| s.starts_with('/') && !s.contains([':', ',', '\\', '"']))
                .map(str::to_owned)
        };
        let lower = self.layers.iter().map(|l| text(l));
        let lower = lower.collect::<Option<Vec<_>>>()?;
        let writable = match self.writable {
            Some((upper, work)) => Some((text(upper)?, text(work)?)),
            None => None,
        };
        let data = data(&lower, writable, index_off);
        (data.len() < PAGE).then_some(data)
    }

    /// Mounts the overlay with descriptor numbers in place of paths, relative to /proc/self/fd. A layer takes at most 4
    /// bytes of data, and no character needs an escape.
    fn mount_by_descriptors(&self, index_off: bool) -> Result<(), OverlayError> {
        let open = |p: &Path| open_directory(p).map_err(failed(format!("open {}", p.display())));
        let lower = self.layers.iter().map(|l| open(l));
        let lower = lower.collect::<Result<Vec<_>, _>>()?;
        let writable = match self.writable {
            Some((upper, work)) => Some((open(upper)?, open(work)?)),
            None => None,
        };
        let here = open(Path::new("."))?;
        let target =
            std::path::absolute(self.target).map_err(failed("find the working directory"))?;
        let name = |fd: &OwnedFd| fd.as_raw_fd().to_string();
        let data = data(
            &lower.iter().map(name).collect::<Vec<_>>(),
            writable.as_ref().map(|(u, w)| (name(u), name(w))),
            index_off,
        );
        chdir("/proc/self/fd").map_err(|e| failed("enter /proc/self/fd")(e.into()))?;
        let mounted = self.mount_at(&target, &data).map_err(failed(format!(
            "mount {} layers at {}",
            lower.len(),
            target.display()
        )));
        fchdir(&here).map_err(|e| failed("return to the working directory")(e.into()))?;
        mounted
    }

    fn mount_at(&self, target: &Path, data: &str) -> std::io::Result<()> {
        Ok(sys_mount(
            Some("overlay"),
            target,
            Some("overlay"),
            self.flags,
            Some(data),
        )?)
    }
}

/// Returns the data for mount(2). The data has `index=off` if `index_off` is true. Without this option an upper
/// directory remembers its lower directories, and a second mount of this upper directory may be refused.
fn data(lower: &[String], writable: Option<(String, String)>, index_off: bool) -> String {
    let writable = writable.map(|(upper, work)| format!(",upperdir={upper},workdir={work}"));
    let index = if index_off { ",index=off" } else { "" };
    format!(
        "lowerdir={}{}{index}",
        lower.join(":"),
        writable.unwrap_or_default()
    )
}

fn open_directory(path: &Path) -> std::io::Result<OwnedFd> {
    File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(path)
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(layers: &[&str], upper: &str, expected: Option<&str>) {
        let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
        let stack = Stack {
            layers: &layers,
            writable: Some((Path::new(upper), Path::new("/w"))),
            flags: MsFlags::empty(),
            target: Path::new("/t"),
        };
        assert_eq!(stack.plain_data(false).as_deref(), expected);
    }

    #[test]
    fn plain_where_it_fits() {
        check(
            &["/b", "/a"],
            "/u",
            Some("lowerdir=/b:/a,upperdir=/u,workdir=/w"),
        );
        check(&["/a:b"], "/u", None);
        check(&["/a"], "/u,x", None);
        check(&["a"], "/u", None);
        check(
            &["/0123456789012345678901234567890123456789"; 100],
            "/u",
            None,
        );
    }

    #[test]
    fn the_most_layers_fit_a_page() {
        let names: Vec<String> = (1000..1000 + MAX_LAYERS).map(|n| n.to_string()).collect();
        let writable = Some(("1998".to_owned(), "1999".to_owned()));
        assert!(data(&names, writable, true).len() < PAGE);
    }

    #[test]
    fn what_is_read_only_has_two_layers_at_least_and_no_upper_directory() {
        let layers =
            |names: &[&str]| padded(names.iter().map(PathBuf::from).collect(), Path::new("/e"));
        for (given, expected) in [
            (&[][..], "lowerdir=/e/0:/e/1"),
            (&["/a"], "lowerdir=/a:/e/1"),
            (&["/b", "/a"], "lowerdir=/b:/a"),
        ] {
            let stack = Stack {
                layers: &layers(given),
                writable: None,
                flags: MsFlags::empty(),
                target: Path::new("/t"),
            };
            assert_eq!(stack.plain_data(false).as_deref(), Some(expected));
        }
    }
}
