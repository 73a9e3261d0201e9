//! The errors of the embedded runtime's verbs. Each is one line for the caller's log.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::engine::nsexec::ExecError;
use crate::engine::shims::device_program::DeviceRuleError;

/// The kernel's error, with the text of the library that made the call.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    /// Error of a call of the standard library.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Error of a call of nix.
    #[error(transparent)]
    Errno(#[from] Errno),
}

/// The reason why a bundle's configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    /// The file or its directory cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error from reading.
        source: io::Error,
    },
    /// The file is not JSON, or a value has another type than in the specification.
    #[error("{}: {source}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// The parser's error, with the place in the file.
        source: serde_json::Error,
    },
    /// An entry is not supported.
    #[error("{0} is not supported")]
    NotSupported(String),
    /// An entry that must be an object has another type.
    #[error("config.json: {} is no object", if .0.is_empty() { "it" } else { .0 })]
    NoObject(String),
    /// An entry that every container needs is missing.
    #[error("config.json has no {0}")]
    Missing(String),
    /// The version of the specification in the file is not supported.
    #[error("ociVersion {0:?} is not 1.x")]
    Version(String),
    /// The path of the root file system cannot be resolved.
    #[error("root file system {}: {source}", path.display())]
    Root {
        /// Path of the root file system, as in the file.
        path: PathBuf,
        /// The error from resolving the path.
        source: io::Error,
    },
}

/// The reason why the first process could not be made, or does not wait for its start.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    /// The type of a namespace is unknown.
    #[error("a namespace of type {0:?} is not supported")]
    NamespaceType(String),
    /// A namespace to join cannot be opened.
    #[error("open {}: {source}", path.display())]
    Namespace {
        /// File of the namespace.
        path: PathBuf,
        /// The error from opening.
        source: io::Error,
    },
    /// The container has no mount namespace of its own, so its mounts would be made in the node's.
    #[error("it has no mount namespace of its own")]
    NoMountNamespace,
    /// The option `--pod-proc` is missing. The runtime mounts no procfs in a process namespace that it joins, so it
    /// needs the mount point of an existing procfs.
    #[error("a process namespace that is joined needs --pod-proc")]
    NoPodProc,
    /// No pipe could be made on which the first process reports.
    #[error("make a pipe: {0}")]
    Pipe(#[source] io::Error),
    /// This process has several threads, so it must not be copied.
    #[error("copy a process of several threads: {}", .0.desc())]
    Threads(#[source] Errno),
    /// The kernel could not make a process.
    #[error("make a process: {}", .0.desc())]
    Process(#[source] Errno),
    /// The report of the first process could not be read.
    #[error("hear of its first process: {0}")]
    Hear(#[source] io::Error),
    /// The first process was killed before it reported anything. The container has no memory limit.
    #[error("its first process was killed while it was made")]
    Killed,
    /// The first process was killed before it reported anything. The container has this memory limit, in bytes.
    #[error(
        "its first process was killed while it was made: a memory limit of {0} B may be too small for it; raise \
         resources.limits.memory"
    )]
    KilledByLimit(u64),
    /// The first process reported this text. Only the text is known: the error itself stayed in that process.
    #[error("{0}")]
    Said(String),
}

/// The reason why a verb, or a step of it, failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A verb failed on a container.
    #[error("cannot {verb} container {id}: {why}")]
    Container {
        /// Verb for the text, such as `create`.
        verb: &'static str,
        /// Id of the container.
        id: String,
        /// The error of the step that failed.
        #[source]
        why: Box<Error>,
    },
    /// The kernel refused a step.
    #[error("cannot {step} {object}: {source}")]
    Step {
        /// Verb for the step, such as `open`.
        step: &'static str,
        /// Object of the step.
        object: String,
        /// The error of the system call.
        source: Cause,
    },
    /// The kernel refused an operation on a file. The enclosing error names the step.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operation.
        source: io::Error,
    },
    /// A system call failed. The enclosing error says enough about the step.
    #[error(transparent)]
    Os(#[from] io::Error),
    /// There is no container with this id.
    #[error("container does not exist")]
    NotThere,
    /// There is already a container with this id.
    #[error("a container of that id exists")]
    Exists,
    /// The container has never run or does not run any more, so it cannot get a signal.
    #[error("container not running")]
    NotRunning,
    /// The container runs, and can be deleted only by force.
    #[error("container is running; stop it first, or use --force")]
    Running,
    /// The container was started before, and can be started only once.
    #[error("it was started before")]
    StartedBefore,
    /// The container's first process ended before the container was started.
    #[error("its process has ended")]
    Ended,
    /// The first process does not wait for the start byte.
    #[error("its process does not wait for it: {0}")]
    NotWaiting(#[source] io::Error),
    /// The first process neither became the container's program nor reported an error within this number of seconds.
    #[error("its program did not run within {0} s")]
    Late(u64),
    /// The container's process reported this text about its program. Only the text is known: the error itself stayed in
    /// that process.
    #[error("{0}")]
    Said(String),
    /// This process has this number of threads. A copy of a process with several threads could wait for a lock forever.
    #[error("this process has {0} threads; it must be a process of its own with one")]
    Threads(usize),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A rule for devices cannot be parsed.
    #[error(transparent)]
    DeviceRule(#[from] DeviceRuleError),
    /// The kernel cannot filter devices.
    #[error(
        "cannot filter the container's devices: {0}; without a filter any image could read and write the node's disks. \
         'podprobe check-host' says what is missing; \"allowUnfilteredDevices\": true in the configuration does without"
    )]
    Unfiltered(#[source] io::Error),
    /// The container has a terminal, but there is no console socket to send it to.
    #[error("process.terminal needs --console-socket")]
    NoConsoleSocket,
    /// There is a console socket, but the container has no terminal.
    #[error("--console-socket needs process.terminal")]
    NoTerminal,
    /// The console socket cannot be reached.
    #[error("connect to {}: {source}", path.display())]
    Console {
        /// Path of the socket.
        path: PathBuf,
        /// The error from connecting.
        source: io::Error,
    },
    /// The container has an AppArmor profile, but AppArmor is not enabled.
    #[error("AppArmor is not enabled here, and the profile is {0}")]
    NoAppArmor(String),
    /// The first process cannot get exactly its user, privileges or program.
    #[error(transparent)]
    Orders(#[from] ExecError),
    /// The first process could not be made.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// There is no cgroup file for this limit on this node.
    #[error("cannot set {0} of cgroup v2: it is no file of this node's cgroups")]
    NoCgroupFile(String),
    /// The memory limit is too small to start a container in it.
    #[error(
        "cannot set a memory limit of {limit} B: a container needs more to start; raise resources.limits.memory{}",
        suffix(*limit)
    )]
    MemoryTooSmall {
        /// The limit in bytes.
        limit: u64,
    },
}

/// Number of bytes below which a memory limit is most likely a mistake: 64m is 0.064 bytes, which is rounded up to 1.
const MOST_LIKELY_A_SLIP: u64 = 1024;

fn suffix(limit: u64) -> &'static str {
    match limit {
        ..MOST_LIKELY_A_SLIP => " (the suffix m means thousandths, M and Mi megabytes)",
        _ => "",
    }
}

impl Error {
    /// Makes the error of a failed step.
    pub(super) fn step(
        step: &'static str,
        object: impl fmt::Display,
        source: impl Into<Cause>,
    ) -> Self {
        Self::Step {
            step,
            object: object.to_string(),
            source: source.into(),
        }
    }

    /// Makes the error of a failed step on a file.
    pub(super) fn path(step: &'static str, path: &Path, source: impl Into<Cause>) -> Self {
        Self::step(step, path.display(), source)
    }

    /// Makes the error of a verb that failed on a container.
    pub(super) fn of(verb: &'static str, id: &str, why: impl Into<Error>) -> Self {
        Self::Container {
            verb,
            id: id.to_owned(),
            why: Box::new(why.into()),
        }
    }
}
