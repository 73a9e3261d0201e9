//! The reasons why the daemon did not start, or does not end.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crossbeam_channel::SendTimeoutError;
use thiserror::Error;

use crate::engine::images::ImageError;
use crate::engine::runtime::RuntimeError;
use crate::face::server::ListenError;

/// The daemon did not start. The text says what to do.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Another daemon holds the lock of this root.
    #[error("another podprobe daemon already runs with root {}; stop it, or give this one another --root", .0.display())]
    RootInUse(PathBuf),
    /// The directory that has the lock cannot be opened.
    #[error("cannot open {}: {cause}", path.display())]
    LockNotOpened {
        /// Path of the directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A directory of the daemon cannot be made. The error names the directory.
    #[error(transparent)]
    Directory(io::Error),
    /// A step of the start fails: a part cannot be made, or a thread cannot be started.
    #[error("cannot {step}: {cause}")]
    Step {
        /// Name of the step, in words that follow "cannot".
        step: &'static str,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The image store cannot be opened.
    #[error(transparent)]
    Images(#[from] ImageError),
    /// The runtime cannot run containers.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The unix socket cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Returns a function that turns a cause into the error "cannot `step`: cause".
pub(super) fn cannot(step: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |cause| DaemonError::Step { step, cause }
}

/// The daemon did not end in time: threads or pods are left.
#[derive(Debug, Error)]
pub enum EndError {
    /// Threads still run.
    #[error("{} did not end within {limit:?}", threads.join(", "))]
    Threads {
        /// Name and state of each thread.
        threads: Vec<String>,
        /// Time that the threads were given to end.
        limit: Duration,
    },
    /// A source of pods still runs, and may add pods again.
    #[error("cannot remove the pods: a source of pods does not end")]
    Source,
    /// The sync loop does not accept the order to remove the pods.
    #[error("cannot remove the pods: {0}")]
    SyncLoop(SendTimeoutError<()>),
    /// Pods are not removed in time.
    #[error("not removed within {limit:?}: {}", pods.join(", "))]
    Pods {
        /// Full name of each pod.
        pods: Vec<String>,
        /// Time that the pods were given to end.
        limit: Duration,
    },
    /// The runtime cannot list the pods that are left.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl<T> From<SendTimeoutError<T>> for EndError {
    fn from(e: SendTimeoutError<T>) -> Self {
        Self::SyncLoop(match e {
            SendTimeoutError::Timeout(_) => SendTimeoutError::Timeout(()),
            SendTimeoutError::Disconnected(_) => SendTimeoutError::Disconnected(()),
        })
    }
}
