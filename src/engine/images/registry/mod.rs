//! Pulls images from registries (OCI distribution v2). The images are verified, and unpacked while they arrive.
//!
//! ```text
//! puller ─▶ pull ─▶ session (login) ─▶ crate::base::http_client
//!             │        └▶ challenge, docker_config
//!             ├▶ resolve ─▶ manifest (decides)
//!             └▶ layers ─▶ blob (a reader that continues after a cut) ─▶ images::staging ─▶ images::store
//! ```
//!
//! Invariants: a registry is not trusted. Every size, count, time and digest is checked, and a pull that fails leaves
//! nothing on the node. Credentials are sent only to the server for which they are meant. The threads of a pull end
//! with the pull.

mod blob;
mod bounds;
mod challenge;
mod docker_config;
mod flights;
mod hosts;
mod layers;
mod manifest;
mod progress;
mod pull;
mod puller;
mod resolve;
mod session;
pub(super) mod slots;

pub use bounds::Bounds;
pub use docker_config::{DockerConfig, DockerConfigError};
pub use hosts::{Mirror, Registries, RegistryHost};
pub use progress::{PullProgress, PullState};
pub use puller::{PullStop, RegistryPuller};
