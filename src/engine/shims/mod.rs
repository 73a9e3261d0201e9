//! The runtime of this node. Each container has a shim, each sandbox has a holder, and an OCI runtime does the work
//! below them.

pub mod app_armor;
mod attach;
mod clients;
mod console;
pub mod cri_log;
pub mod device_program;
pub mod embedded;
pub mod exits;
mod log_writer;
mod oci_cli;
pub mod oci_spec;
mod output;
pub mod pod_cgroup;
mod resize;
mod roles;
pub mod sandbox;
pub mod shim;
pub mod shim_runtime;
pub mod state;
mod sub_path;
pub mod termination;

pub use log_writer::is_log_written;
pub use shim_runtime::{ShimRuntime, images_in_use};

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::base::live::Live;
use crate::engine::runtime::SHIMS_SCHEME as SCHEME;
use crate::net::network::NetworkSettings;

/// The OCI runtime that the shims run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// The OCI runtime of this binary (`podprobe oci`).
    Embedded,
    /// The OCI runtime binary at this path.
    Path(PathBuf),
}

/// Settings for the runtime of this node.
#[derive(Clone, Debug)]
pub struct ShimOptions {
    /// OCI runtime for the containers of pods without a runtime class.
    pub runtime: RuntimeChoice,
    /// OCI runtimes for pods with a runtime class, by the name of the class.
    pub classes: BTreeMap<String, RuntimeChoice>,
    /// True if containers also run on a node whose kernel cannot filter their devices.
    pub unfiltered_devices: bool,
    /// Settings for the networks of pods.
    pub network: NetworkSettings,
    /// Bounds of the logs of containers that start from now on.
    pub logs: Live<LogBounds>,
}

/// The bounds of a container's log.
#[derive(Clone, Copy, Debug)]
pub struct LogBounds {
    /// Size in bytes at which the log is rotated.
    pub max_size: u64,
    /// Number of files that are kept.
    pub max_files: u32,
}

/// Option with which the embedded runtime creates a container even if the kernel cannot filter the container's devices.
const UNFILTERED_DEVICES: &str = "--unfiltered-devices";
/// Option of the embedded runtime, followed by a path: the mount point of the procfs of the process namespace that the
/// container joins.
const POD_PROC: &str = "--pod-proc";
