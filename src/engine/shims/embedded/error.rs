//! The errors of the embedded runtime's verbs: one line each, for the caller's log.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::engine::nsexec::ExecError;
use crate::engine::shims::device_program::DeviceRuleError;

/// The kernel's answer, in the words of the library that has made the call.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    /// A call of the standard library.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A call of nix.
    #[error(transparent)]
    Errno(#[from] Errno),
}

/// Why a bundle's configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file is no JSON, or a value has another type than the specification says.
    #[error("{}: {source}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// The place in the file.
        source: serde_json::Error,
    },
    /// An entry asks for what is not done.
    #[error("{0} is not supported")]
    NotSupported(String),
    /// An entry is something else than an object.
    #[error("config.json: {} is no object", if .0.is_empty() { "it" } else { .0 })]
    NoObject(String),
    /// An entry that every container needs is missing.
    #[error("config.json has no {0}")]
    Missing(String),
    /// The file is of another specification.
    #[error("ociVersion {0:?} is not 1.x")]
    Version(String),
    /// The root file system cannot be found.
    #[error("root file system {}: {source}", path.display())]
    Root {
        /// Path of the root file system, as the file has it.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Why there is no first process that waits for its start.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    /// A namespace is of an unknown type.
    #[error("a namespace of type {0:?} is not supported")]
    NamespaceType(String),
    /// A namespace to join cannot be opened.
    #[error("open {}: {source}", path.display())]
    Namespace {
        /// File of the namespace.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The mounts would be made in the node's namespace.
    #[error("it has no mount namespace of its own")]
    NoMountNamespace,
    /// No procfs of the process namespace is at hand, and none is made in one that others are in.
    #[error("a process namespace that is joined needs --pod-proc")]
    NoPodProc,
    /// There is nothing to hear the process by.
    #[error("make a pipe: {0}")]
    Pipe(#[source] io::Error),
    /// This process has several threads.
    #[error("copy a process of several threads: {}", .0.desc())]
    Threads(#[source] Errno),
    /// The kernel makes no process.
    #[error("make a process: {}", .0.desc())]
    Process(#[source] Errno),
    /// The process cannot be heard.
    #[error("hear of its first process: {0}")]
    Hear(#[source] io::Error),
    /// The process was killed before it said anything, without a limit of its memory.
    #[error("its first process was killed while it was made")]
    Killed,
    /// The process was killed before it said anything, with that limit in bytes.
    #[error(
        "its first process was killed while it was made: a memory limit of {0} B may be too small for it; raise \
         resources.limits.memory"
    )]
    KilledByLimit(u64),
    /// The words of the process itself: that process has the cause, and only its text arrives here.
    #[error("{0}")]
    Said(String),
}

/// Why a verb, or a step of it, could not be done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A verb on a container.
    #[error("cannot {verb} container {id}: {why}")]
    Container {
        /// Word for the verb.
        verb: &'static str,
        /// Id of the container.
        id: String,
        /// The step that failed.
        #[source]
        why: Box<Error>,
    },
    /// A step that the kernel has refused.
    #[error("cannot {step} {object}: {source}")]
    Step {
        /// Word for what is done, such as `open`.
        step: &'static str,
        /// The object that it is done to.
        object: String,
        /// The kernel's answer.
        source: Cause,
    },
    /// A file that the kernel has refused, of a step that says itself what it is for.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A step that needs no further words.
    #[error(transparent)]
    Os(#[from] io::Error),
    /// The id has no container.
    #[error("container does not exist")]
    NotThere,
    /// The id has a container already.
    #[error("a container of that id exists")]
    Exists,
    /// A container that has never run, or does not any more, takes no signal.
    #[error("container not running")]
    NotRunning,
    /// Only by force a container is deleted that runs.
    #[error("container is running; stop it first, or use --force")]
    Running,
    /// A container is started once.
    #[error("it was started before")]
    StartedBefore,
    /// The first process has not lived to its start.
    #[error("its process has ended")]
    Ended,
    /// Nobody takes the word to start.
    #[error("its process does not wait for it: {0}")]
    NotWaiting(#[source] io::Error),
    /// The first process says nothing, and does not become the program either. In seconds.
    #[error("its program did not run within {0} s")]
    Late(u64),
    /// The words of the container's process on its program: that process has the cause, and only its text arrives here.
    #[error("{0}")]
    Said(String),
    /// A copy of a process of so many threads could wait for a lock for ever.
    #[error("this process has {0} threads; it must be a process of its own with one")]
    Threads(usize),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A rule on devices cannot be read.
    #[error(transparent)]
    DeviceRule(#[from] DeviceRuleError),
    /// The kernel filters no devices.
    #[error(
        "cannot filter the container's devices: {0}; without a filter any image could read and write the node's disks. \
         'podprobe check-host' says what is missing; \"allowUnfilteredDevices\": true in the configuration does without"
    )]
    Unfiltered(#[source] io::Error),
    /// A terminal has nowhere to go.
    #[error("process.terminal needs --console-socket")]
    NoConsoleSocket,
    /// A socket waits for no terminal.
    #[error("--console-socket needs process.terminal")]
    NoTerminal,
    /// The console socket cannot be reached.
    #[error("connect to {}: {source}", path.display())]
    Console {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A profile cannot be enforced.
    #[error("AppArmor is not enabled here, and the profile is {0}")]
    NoAppArmor(String),
    /// The first process cannot be given exactly what it is to have.
    #[error(transparent)]
    Orders(#[from] ExecError),
    /// There is no first process.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A limit has no place on this node.
    #[error("cannot set {0} of cgroup v2: it is no file of this node's cgroups")]
    NoCgroupFile(String),
    /// A memory limit in which no container can start.
    #[error(
        "cannot set a memory limit of {limit} B: a container needs more to start; raise resources.limits.memory{}",
        suffix(*limit)
    )]
    MemoryTooSmall {
        /// Bytes.
        limit: u64,
    },
}

/// Below this a memory limit is most likely a slip: 64m is 0.064 bytes, which is rounded up to 1.
const MOST_LIKELY_A_SLIP: u64 = 1024;

fn suffix(limit: u64) -> &'static str {
    match limit {
        ..MOST_LIKELY_A_SLIP => " (the suffix m means thousandths, M and Mi megabytes)",
        _ => "",
    }
}

impl Error {
    /// A step that failed.
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

    /// A step on a file that failed.
    pub(super) fn path(step: &'static str, path: &Path, source: impl Into<Cause>) -> Self {
        Self::step(step, path.display(), source)
    }

    /// A verb that failed on a container.
    pub(super) fn of(verb: &'static str, id: &str, why: impl Into<Error>) -> Self {
        Self::Container {
            verb,
            id: id.to_owned(),
            why: Box::new(why.into()),
        }
    }
}
