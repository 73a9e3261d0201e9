//! Why a container's root file system cannot be made as its configuration says.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// A step on the way to the root file system that failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine::shims::embedded) enum RootError {
    /// The root directory is no mount to take along.
    #[error("cannot mount the root {}: {}", path.display(), why(source))]
    MountRoot {
        /// Root directory on the node.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The root directory cannot become the root.
    #[error("cannot enter the root {}: {}", path.display(), why(source))]
    Enter {
        /// Root directory on the node.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The propagation of the root cannot be set.
    #[error("cannot tie the root to the node's mounts: {}", .0.desc())]
    Tie(#[source] Errno),
    /// A mount leads nowhere by itself.
    #[error("mount destination {0:?} is not an absolute path")]
    RelativeDestination(String),
    /// A mount shows other owners than it has.
    #[error("mount destination {0}: mappings of ids are not supported")]
    Mapped(String),
    /// A mount cannot be made.
    #[error("cannot mount {name} at {at}: {source}")]
    Mount {
        /// Name of what is mounted.
        name: String,
        /// Path in the container.
        at: String,
        /// The reason.
        source: MountError,
    },
    /// A device of the configuration cannot be made as it says.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A device of the node cannot be taken along.
    #[error("cannot open the node's {path}: {}", why(source))]
    NodeDevice {
        /// Path of the device.
        path: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A device, or the links beside it, cannot be made.
    #[error("cannot make {object}: {}", why(source))]
    Make {
        /// The device's path, or what is made.
        object: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The root stays writable.
    #[error("cannot make the root read-only: {}", why(.0))]
    ReadOnly(#[source] io::Error),
    /// A path stays visible or writable.
    #[error("cannot protect {path} ({list}): {}", why(source))]
    Protect {
        /// Path in the container.
        path: String,
        /// Name of the configuration's list.
        list: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A reason for which a mount cannot be made.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine::shims::embedded) enum MountError {
    /// A call failed.
    #[error("{}", why(.0))]
    Os(#[from] io::Error),
    /// A call of nix failed.
    #[error("{}", .0.desc())]
    Errno(#[from] Errno),
    /// Only a new file system has options of its own.
    #[error("{0} is no option of a bind mount")]
    Option(String),
    /// Parts of the mount are taken away by their paths later, and a link could lead elsewhere by then.
    #[error("its destination must be a directory, not a link")]
    Link,
    /// Nothing says what the mount would cover.
    #[error("its destination cannot be looked at")]
    Unknown,
    /// A file of the container's procfs would be covered.
    #[error("nothing can be mounted below /proc")]
    BelowProc,
    /// The container's procfs would be covered by another file system.
    #[error("only a proc file system can be mounted on /proc")]
    OnProc,
    /// The root would be covered.
    #[error("nothing can be mounted over the root")]
    OverRoot,
}

/// A reason for which a device of the configuration is refused, with its path.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine::shims::embedded) enum DeviceError {
    /// Other types are no devices.
    #[error("device {0:?} is neither of type b nor c")]
    Type(String),
    /// Other directories are the image's.
    #[error("device {0:?} is not below /dev")]
    NotBelowDev(String),
    /// Nothing says which device it is.
    #[error("device {0:?} has no major and minor number")]
    NoNumber(String),
}

/// The text of an error without Rust's "(os error 2)".
fn why(e: &io::Error) -> String {
    let errno = e.raw_os_error().map(Errno::from_raw);
    errno.map_or_else(|| e.to_string(), |errno| errno.desc().to_owned())
}
