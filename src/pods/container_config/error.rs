//! The reasons why a container has no configuration, of all parts together.

use super::environment::EnvironmentError;
use super::resources::ResourceError;
use super::security::SecurityError;
use super::volume_mount::MountError;

/// The reason why the configuration of a container cannot express what its pod requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A variable has no value.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A volume cannot be mounted as the container requests.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The amount of a resource is not a valid quantity.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The container cannot have the privileges that it requests, or is not allowed to have them.
    #[error(transparent)]
    Security(#[from] SecurityError),
}
