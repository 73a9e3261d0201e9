//! Why the daemon did not start, or does not end.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crossbeam_channel::SendTimeoutError;
use thiserror::Error;

use crate::engine::images::ImageError;
use crate::engine::runtime::RuntimeError;
use crate::face::server::ListenError;

/// The daemon did not start; the text says what to do.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Another daemon holds the lock of this root.
    #[error("another podprobe daemon already runs with root {}; stop it, or give this one another --root", .0.display())]
    RootInUse(PathBuf),
    /// The directory on which the lock is cannot be opened.
    #[error("cannot open {}: {cause}", path.display())]
    LockNotOpened {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A directory of the daemon cannot be made; the error names it.
    #[error(transparent)]
    Directory(io::Error),
    /// A step of the start fails: a part that cannot be made, or a thread that there is not.
    #[error("cannot {step}: {cause}")]
    Step {
        /// The step, as what follows "cannot".
        step: &'static str,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The store of images cannot be opened.
    #[error(transparent)]
    Images(#[from] ImageError),
    /// No container can be run.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The unix socket cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Turns the cause into "cannot `step`: cause".
pub(super) fn cannot(step: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |cause| DaemonError::Step { step, cause }
}

/// Something of the daemon, or of its pods, that is left after the time for its end.
#[derive(Debug, Error)]
pub enum EndError {
    /// Threads run on.
    #[error("{} did not end within {limit:?}", threads.join(", "))]
    Threads {
        /// The name and state of each thread.
        threads: Vec<String>,
        /// The time that they had.
        limit: Duration,
    },
    /// A source of pods runs on, and may add pods again.
    #[error("cannot remove the pods: a source of pods does not end")]
    Source,
    /// The sync loop does not take the removal of the pods.
    #[error("cannot remove the pods: {0}")]
    SyncLoop(SendTimeoutError<()>),
    /// Pods are still there.
    #[error("not removed within {limit:?}: {}", pods.join(", "))]
    Pods {
        /// The full name of each.
        pods: Vec<String>,
        /// The time that they had.
        limit: Duration,
    },
    /// The runtime does not say which pods are left.
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
