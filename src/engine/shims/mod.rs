//! The runtime of this node: a shim for each container, a holder for each sandbox, and an OCI runtime below them.

pub mod app_armor;
mod attach;
mod clients;
mod console;
pub mod cri_log;
pub(crate) mod device_program;
pub mod embedded;
pub mod exits;
mod log_writer;
mod oci_cli;
pub mod oci_spec;
mod output;
pub mod pod_cgroup;
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

use crate::engine::runtime::SHIMS_SCHEME as SCHEME;
use crate::net::network::NetworkSettings;

/// Which OCI runtime the shims drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// The OCI runtime of this binary (`podprobe oci`).
    Embedded,
    /// An OCI runtime binary.
    Path(PathBuf),
}

/// The settings that the runtime of this node is made with.
#[derive(Clone, Debug)]
pub struct ShimOptions {
    /// Runs the containers of pods without a runtime class.
    pub runtime: RuntimeChoice,
    /// Runtimes of the other containers, by the name of their runtime class.
    pub classes: BTreeMap<String, RuntimeChoice>,
    /// Containers run also where the kernel cannot filter their devices.
    pub unfiltered_devices: bool,
    /// The settings that the networks of pods are made from.
    pub network: NetworkSettings,
    /// Bytes of a container's log at which the next file begins.
    pub log_max_size: u64,
    /// Files of a container's log that are kept.
    pub log_max_files: u32,
}

/// Option of the embedded runtime: a container is made also where the kernel cannot filter its devices.
const UNFILTERED_DEVICES: &str = "--unfiltered-devices";
/// Option of the embedded runtime with its value: where the procfs of the process namespace that a container joins is mounted.
const POD_PROC: &str = "--pod-proc";
