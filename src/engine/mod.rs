//! Everything that runs containers: images, the runtime and its shims, commands inside containers, and statistics of
//! what containers use.

use crate as engine;
use {podprobe_api as api, podprobe_base as base, podprobe_net as net};

pub mod file_copy;
pub mod images;
pub mod nsexec;
pub mod oci;
pub mod runtime;
pub mod seccomp;
pub mod shims;
pub mod stats;

#[cfg(test)]
#[path = "../../tests/support/wings/deep_trees.rs"]
mod deep_trees;
#[cfg(test)]
#[path = "../../tests/support/wings/fake_runtime.rs"]
mod fake_runtime;
#[cfg(test)]
#[path = "../../tests/support/wings/fake_session.rs"]
mod fake_session;
#[cfg(test)]
#[path = "../../tests/support/forbidding.rs"]
mod forbidding;
#[cfg(test)]
#[path = "../../tests/support/wings/random_texts.rs"]
mod random_texts;
#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;
