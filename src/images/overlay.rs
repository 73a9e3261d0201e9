//! Mounts a container's root: the image's layers below, one writable directory above.
//!
//! Invariant: the data for mount(2) fits one page with any number of layers up to [`MAX_LAYERS`].

use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount as sys_mount};
use nix::unistd::{chdir, fchdir};

/// The kernel's own limit of lower directories (`OVL_MAX_STACK`).
pub const MAX_LAYERS: usize = 500;

/// mount(2) copies one page of data, and some architectures have none larger.
const PAGE: usize = 4096;

/// Why a root could not be mounted; the text says where.
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

/// Mounts `layers` (topmost first, as [`super::Image::layers`] has them) with `upper` and `work` at `target`. All
/// exist; `upper` and `work` lie on one file system and belong to this mount alone.
///
/// Only for a process with a single thread: with many layers it changes the working directory for a moment.
pub fn mount(
    layers: &[PathBuf],
    upper: &Path,
    work: &Path,
    target: &Path,
) -> Result<(), OverlayError> {
    let doing = || format!("mount the root file system at {}", target.display());
    if layers.len() > MAX_LAYERS {
        let cause = std::io::Error::other(format!(
            "{} layers, overlayfs has at most {MAX_LAYERS}",
            layers.len()
        ));
        return Err(OverlayError {
            doing: doing(),
            cause,
        });
    }
    if layers.is_empty() {
        return sys_mount(
            Some(upper),
            target,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .map_err(|e| failed(doing())(e.into()));
    }
    let index_off = Path::new("/sys/module/overlay/parameters/index").exists();
    match plain_data(layers, upper, work, index_off) {
        Some(data) => mount_overlay(target, &data).map_err(failed(doing())),
        None => mount_by_descriptors(layers, upper, work, target, index_off),
    }
}

/// The mount data with paths, which are readable in /proc/mounts; None when it does not fit, or
/// when a path has a character with a meaning for overlayfs.
fn plain_data(layers: &[PathBuf], upper: &Path, work: &Path, index_off: bool) -> Option<String> {
    let text = |p: &Path| {
        p.to_str()
            .filter(|s| s.starts_with('/') && !s.contains([':', ',', '\\', '"']))
            .map(str::to_owned)
    };
    let lower = layers.iter().map(|l| text(l)).collect::<Option<Vec<_>>>()?;
    let data = data(&lower, &text(upper)?, &text(work)?, index_off);
    (data.len() < PAGE).then_some(data)
}

/// `index=off`: with it on, an upper directory remembers its lower ones and a second mount of it may be refused.
fn data(lower: &[String], upper: &str, work: &str, index_off: bool) -> String {
    let index = if index_off { ",index=off" } else { "" };
    format!(
        "lowerdir={},upperdir={upper},workdir={work}{index}",
        lower.join(":")
    )
}

/// The mount data with descriptor numbers, relative to /proc/self/fd: at most 4 bytes per layer,
/// and nothing to escape.
fn mount_by_descriptors(
    layers: &[PathBuf],
    upper: &Path,
    work: &Path,
    target: &Path,
    index_off: bool,
) -> Result<(), OverlayError> {
    let open = |p: &Path| open_directory(p).map_err(failed(format!("open {}", p.display())));
    let lower = layers
        .iter()
        .map(|l| open(l))
        .collect::<Result<Vec<_>, _>>()?;
    let (upper, work, here) = (open(upper)?, open(work)?, open(Path::new("."))?);
    let target = std::path::absolute(target).map_err(failed("find the working directory"))?;
    let name = |fd: &OwnedFd| fd.as_raw_fd().to_string();
    let data = data(
        &lower.iter().map(name).collect::<Vec<_>>(),
        &name(&upper),
        &name(&work),
        index_off,
    );
    chdir("/proc/self/fd").map_err(|e| failed("enter /proc/self/fd")(e.into()))?;
    let mounted = mount_overlay(&target, &data).map_err(failed(format!(
        "mount {} layers at {}",
        layers.len(),
        target.display()
    )));
    fchdir(&here).map_err(|e| failed("return to the working directory")(e.into()))?;
    mounted
}

fn open_directory(path: &Path) -> std::io::Result<OwnedFd> {
    File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(path)
        .map(Into::into)
}

fn mount_overlay(target: &Path, data: &str) -> std::io::Result<()> {
    Ok(sys_mount(
        Some("overlay"),
        target,
        Some("overlay"),
        MsFlags::empty(),
        Some(data),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(layers: &[&str], upper: &str, expected: Option<&str>) {
        let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
        assert_eq!(
            plain_data(&layers, Path::new(upper), Path::new("/w"), false).as_deref(),
            expected
        );
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
        assert!(data(&names, "1998", "1999", true).len() < PAGE);
    }
}
