//! Why the configuration cannot be used.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::values::ValueError;
use crate::api::decode::ConfigurationError;

/// The configuration cannot be used: one sentence with file, line, column, key and what is allowed.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read configuration {}: {cause}", path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The content of the file is not allowed.
    #[error("cannot use configuration {}: {cause}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The fault in the content, with its place.
        #[source]
        cause: FileError,
    },
    /// The value of `--node-name` is not allowed.
    #[error("cannot use --node-name: {0}")]
    NodeNameOption(#[source] ValueError),
    /// The value of `--runtime` is not allowed.
    #[error("cannot use --runtime: {0}")]
    RuntimeOption(#[source] ValueError),
    /// Nothing names the node, and its host name cannot be the name.
    #[error(
        "cannot use the host name as node name: {0}; set nodeName in the configuration or give --node-name"
    )]
    HostName(#[source] ValueError),
    /// Images would be removed until the disk is fuller than it was.
    #[error(
        "imageGCLowThresholdPercent ({low}) must be less than imageGCHighThresholdPercent ({high})"
    )]
    ImageThresholds {
        /// `imageGCLowThresholdPercent`.
        low: u8,
        /// `imageGCHighThresholdPercent`.
        high: u8,
    },
    /// Images cannot be pulled one after the other and several at once.
    #[error(
        "maxParallelImagePulls cannot be larger than 1 unless serializeImagePulls is set to false"
    )]
    ParallelPulls,
    /// The port has no certificate.
    #[error(
        "port {port} needs tlsCertFile and tlsPrivateKeyFile: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -subj /CN={node_name} makes a pair"
    )]
    NoTls {
        /// `port`.
        port: u16,
        /// The name of the node.
        node_name: String,
    },
    /// The port with this number would let nobody in.
    #[error(
        "port {0} needs authentication.x509.clientCAFile or authentication.bearerTokenFile: without one of them nobody could be let in"
    )]
    NoClients(u16),
    /// The kernel cannot kill all processes of a container for want of memory.
    #[error(
        "singleProcessOOMKill cannot be false on this node: with cgroups v1 the kernel kills one process; remove it, or use cgroup v2"
    )]
    OomKill,
}

/// A configuration file with content that is not allowed.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file holds something else than an object.
    #[error("it is not a JSON object; an empty one, {{}}, means every default")]
    NoObject,
    /// The file is no JSON, or a key or a value is not allowed.
    #[error(transparent)]
    Content(#[from] Box<ConfigurationError>),
}
