//! The reasons why a container's root file system cannot be made as its configuration says.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// Error of a step in making the root file system.
#[derive(Debug, thiserror::Error)]
pub(in crate::shims::embedded) enum RootError {
    /// The root directory cannot be copied as a mount.
    #[error("cannot mount the root {}: {}", path.display(), why(source))]
    MountRoot {
        /// Root directory on the node.
        path: PathBuf,
        /// The error from copying.
        source: io::Error,
    },
    /// The copy of the root directory cannot become the process's root.
    #[error("cannot enter the root {}: {}", path.display(), why(source))]
    Enter {
        /// Root directory on the node.
        path: PathBuf,
        /// The error from changing the root.
        source: io::Error,
    },
    /// The propagation of the root cannot be set.
    #[error("cannot tie the root to the node's mounts: {}", .0.desc())]
    Tie(#[source] Errno),
    /// The destination of a mount is not an absolute path.
    #[error("mount destination {0:?} is not an absolute path")]
    RelativeDestination(String),
    /// A mount has id mappings, which are not supported. The mappings would show other owners of the mount's files.
    #[error("mount destination {0}: mappings of ids are not supported")]
    Mapped(String),
    /// A mount cannot be made.
    #[error("cannot mount {name} at {at}: {source}")]
    Mount {
        /// Name of the source or the file system, for the message.
        name: String,
        /// Path in the container.
        at: String,
        /// The reason why the mount cannot be made.
        source: MountError,
    },
    /// A device of the configuration is refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A device of the node cannot be opened.
    #[error("cannot open the node's {path}: {}", why(source))]
    NodeDevice {
        /// Path of the device.
        path: String,
        /// The error from opening.
        source: io::Error,
    },
    /// A device, or a link in /dev, cannot be made.
    #[error("cannot make {object}: {}", why(source))]
    Make {
        /// Path of the device, or a text for the links.
        object: String,
        /// The error from making the device or link.
        source: io::Error,
    },
    /// The root cannot be made read-only.
    #[error("cannot make the root read-only: {}", why(.0))]
    ReadOnly(#[source] io::Error),
    /// A path cannot be hidden or made read-only.
    #[error("cannot protect {path} ({list}): {}", why(source))]
    Protect {
        /// Path in the container.
        path: String,
        /// Name of the list in the configuration that has the path.
        list: &'static str,
        /// The error from mounting over the path.
        source: io::Error,
    },
}

/// The reason why a mount cannot be made.
#[derive(Debug, thiserror::Error)]
pub(in crate::shims::embedded) enum MountError {
    /// A call of the standard library failed.
    #[error("{}", why(.0))]
    Os(#[from] io::Error),
    /// A call of nix failed.
    #[error("{}", .0.desc())]
    Errno(#[from] Errno),
    /// The mount is a bind mount, but has this option, which only a new file system can have.
    #[error("{0} is no option of a bind mount")]
    Option(String),
    /// The destination is or contains a link. Paths below this mount are hidden later, and the link could lead
    /// elsewhere by then.
    #[error("its destination must be a directory, not a link")]
    Link,
    /// The destination cannot be examined, so the mount could cover anything.
    #[error("its destination cannot be looked at")]
    Unknown,
    /// The mount would cover a file of the container's procfs.
    #[error("nothing can be mounted below /proc")]
    BelowProc,
    /// The mount would cover the container's procfs with another file system.
    #[error("only a proc file system can be mounted on /proc")]
    OnProc,
    /// The mount would cover the container's root.
    #[error("nothing can be mounted over the root")]
    OverRoot,
}

/// The reason why a device of the configuration is refused, with the path of the device.
#[derive(Debug, thiserror::Error)]
pub(in crate::shims::embedded) enum DeviceError {
    /// The type of the device is not `b`, `c` or `u`.
    #[error("device {0:?} is neither of type b nor c")]
    Type(String),
    /// The path is not below /dev, so it would be among the image's files.
    #[error("device {0:?} is not below /dev")]
    NotBelowDev(String),
    /// The major or minor number is missing.
    #[error("device {0:?} has no major and minor number")]
    NoNumber(String),
}

/// Returns the text of an error without Rust's "(os error 2)".
fn why(e: &io::Error) -> String {
    let errno = e.raw_os_error().map(Errno::from_raw);
    errno.map_or_else(|| e.to_string(), |errno| errno.desc().to_owned())
}
