//! The runtime of this node: a shim for each container, a holder for each sandbox, and an OCI runtime below them.

pub mod app_armor;
mod attach;
pub mod cgroup;
mod clients;
mod console;
pub mod cri_log;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod exits;
mod log_writer;
mod oci_cli;
pub mod oci_spec;
mod output;
pub mod sandbox;
pub mod shim;
pub mod shim_runtime;
pub mod state;
mod sub_path;
pub mod termination;

pub use log_writer::is_log_written;
pub use shim_runtime::{ShimRuntime, images_in_use};

use super::SHIMS_SCHEME as SCHEME;
