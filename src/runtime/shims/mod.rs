//! The runtime of this node: a shim for each container, a holder for each sandbox, and an OCI runtime below them.

pub mod app_armor;
mod attach;
pub mod cgroup;
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

use super::SHIMS_SCHEME as SCHEME;

/// Option of the embedded runtime: a container is made also where the kernel cannot filter its devices.
const UNFILTERED_DEVICES: &str = "--unfiltered-devices";
/// Option of the embedded runtime with its value: where the procfs of the process namespace that a container joins is mounted.
const POD_PROC: &str = "--pod-proc";
