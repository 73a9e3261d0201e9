//! The reasons why the configuration cannot be used.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::values::ValueError;
use crate::api::decode::ConfigurationError;
use crate::base::clock::go_duration;

/// The configuration cannot be used. The text is one sentence with file, line, column, key and the allowed values.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read configuration {}: {cause}", path.display())]
    Unread {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The content of the file is not allowed.
    #[error("cannot use configuration {}: {cause}", path.display())]
    Unusable {
        /// Path of the file.
        path: PathBuf,
        /// Fault in the content, with its position.
        #[source]
        cause: FileError,
    },
    /// The value of `--node-name` is not allowed.
    #[error("cannot use --node-name: {0}")]
    NodeNameOption(#[source] ValueError),
    /// No option and no key names the node, and its host name is not a valid node name.
    #[error(
        "cannot use the host name as node name: {0}; set nodeName in the configuration or give --node-name"
    )]
    HostName(#[source] ValueError),
    /// The low threshold, at which the removal of images ends, is not below the high threshold, at which the removal
    /// begins.
    #[error(
        "imageGCLowThresholdPercent ({low}) must be less than imageGCHighThresholdPercent ({high})"
    )]
    ImageThresholds {
        /// Value of `imageGCLowThresholdPercent`.
        low: u8,
        /// Value of `imageGCHighThresholdPercent`.
        high: u8,
    },
    /// The configuration asks for parallel pulls of images, but also for pulls one after the other.
    #[error(
        "maxParallelImagePulls cannot be larger than 1 unless serializeImagePulls is set to false"
    )]
    ParallelPulls,
    /// Critical pods get more of the time of a shutdown than there is.
    #[error(
        "shutdownGracePeriodCriticalPods is a part of shutdownGracePeriod, and {} is more than {}: set one of them, or both",
        go_duration(*critical),
        go_duration(*all)
    )]
    ShutdownPeriods {
        /// The value of shutdownGracePeriodCriticalPods.
        critical: Duration,
        /// The value of shutdownGracePeriod.
        all: Duration,
    },
    /// The configuration names a certificate without its key, or a key without its certificate.
    #[error(
        "tlsCertFile and tlsPrivateKeyFile belong together: set both, or neither, and the server makes a pair of its own"
    )]
    HalfAPair,
    /// The configuration asks an API server about clients, but names no API server.
    #[error("{0} needs kubeconfig: a node that stands alone has no API server to ask")]
    NoCluster(&'static str),
    /// The configuration has a port with this number, but no way for a client to authenticate.
    #[error(
        "port {0} needs authentication.x509.clientCAFile or authentication.bearerTokenFile: without one of them nobody could be let in"
    )]
    NoClients(u16),
    /// `singleProcessOOMKill` is false, but the kernel cannot kill all processes of a container when its memory runs
    /// out.
    #[error(
        "singleProcessOOMKill cannot be false on this node: with cgroups v1 the kernel kills one process; remove it, or use cgroup v2"
    )]
    OomKill,
}

/// The reasons for which the content of the configuration file is not allowed.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file does not contain a JSON object.
    #[error("it is not a JSON object; an empty one, {{}}, means every default")]
    NoObject,
    /// The file is not JSON, or a key or a value is not allowed.
    #[error(transparent)]
    Content(#[from] Box<ConfigurationError>),
}
