//! The reasons why a container cannot get the OCI configuration that its pod asks for.

use std::io;
use std::path::PathBuf;

/// The reason why a container has no OCI configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpecError {
    /// The container with this name has no command: the image and the pod give none.
    #[error(
        "cannot start container {0}: no command specified; the image has neither Entrypoint nor Cmd, so set command in the pod"
    )]
    NoCommand(String),
    /// The command of the container with this name begins with an empty word.
    #[error("cannot start container {0}: the first word of its command is empty")]
    EmptyCommand(String),
    /// A word of the command has a NUL byte, which would cut the word short.
    #[error("cannot start container {container}: {word:?} of its command holds a NUL character")]
    Nul { container: String, word: String },
    /// The working directory is not an absolute path.
    #[error("cannot use working directory {0:?}: must be an absolute path")]
    RelativeDirectory(String),
    /// The kernel has no capability with this name.
    #[error("cannot {verb} capability {name}: there is none of that name (see capabilities(7))")]
    NoCapability { verb: &'static str, name: String },
    /// podprobe itself does not have the capability on this node, so a container cannot get it.
    #[error("cannot add capability {0}: podprobe does not have it itself on this node")]
    CapabilityNotOurs(String),
    /// The image has no such user.
    #[error(
        "cannot find user {0:?}: the image's /etc/passwd has no such user; set securityContext.runAsUser to a number"
    )]
    NoUser(String),
    /// The image has no such group.
    #[error(
        "cannot find group {0:?}: the image's /etc/group has no such group; set securityContext.runAsGroup to a number"
    )]
    NoGroup(String),
    /// A file of the image cannot be read.
    #[error("cannot read /{path} of the image: {source}")]
    Unreadable {
        path: &'static str,
        source: io::Error,
    },
    /// A file of the image is too large to be read.
    #[error("cannot read /{path} of the image: {size} bytes, the limit is {limit}")]
    TooLarge {
        path: &'static str,
        size: u64,
        limit: u64,
    },
    /// The node has no cgroup controller for this limit.
    #[error(
        "cannot set resources.limits.{name}: this node has no {name} cgroup controller; enable it{}, or remove the limit",
        boot(name)
    )]
    NoController { name: &'static str },
    /// The caller did not read the seccomp profile in this file.
    #[error("cannot apply seccomp profile {}: it was not read", .0.display())]
    UnreadProfile(PathBuf),
}

fn boot(controller: &str) -> &'static str {
    match controller {
        "memory" => " (often by booting with cgroup_enable=memory)",
        _ => "",
    }
}
