//! Everything that runs containers: images, the runtime and its shims, commands inside containers, and statistics of
//! what containers use.

pub mod file_copy;
pub mod images;
pub mod nsexec;
pub mod oci;
pub mod runtime;
pub mod seccomp;
pub mod shims;
pub mod stats;
