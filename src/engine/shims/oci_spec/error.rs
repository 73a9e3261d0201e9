//! What a configuration asks for and cannot get.

use std::io;
use std::path::PathBuf;

/// A reason for which a container has no OCI configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpecError {
    /// Nothing says what to run, in the container with that name.
    #[error(
        "cannot start container {0}: no command specified; the image has neither Entrypoint nor Cmd, so set command in the pod"
    )]
    NoCommand(String),
    /// The program has no name, in the container with that name.
    #[error("cannot start container {0}: the first word of its command is empty")]
    EmptyCommand(String),
    /// A NUL byte would cut the word short.
    #[error("cannot start container {container}: {word:?} of its command holds a NUL character")]
    Nul { container: String, word: String },
    /// The directory would depend on another one.
    #[error("cannot use working directory {0:?}: must be an absolute path")]
    RelativeDirectory(String),
    /// The kernel has no capability of that name.
    #[error("cannot {verb} capability {name}: there is none of that name (see capabilities(7))")]
    NoCapability { verb: &'static str, name: String },
    /// This process lacks the capability itself.
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
    /// The node cannot limit that resource.
    #[error(
        "cannot set resources.limits.{name}: this node has no {name} cgroup controller; enable it{}, or remove the limit",
        boot(name)
    )]
    NoController { name: &'static str },
    /// Nobody has read the profile of that file.
    #[error("cannot apply seccomp profile {}: it was not read", .0.display())]
    UnreadProfile(PathBuf),
}

fn boot(controller: &str) -> &'static str {
    match controller {
        "memory" => " (often by booting with cgroup_enable=memory)",
        _ => "",
    }
}
