//! Why a container has no configuration: the reasons of each part together.

use super::environment::EnvironmentError;
use super::resources::ResourceError;
use super::security::SecurityError;
use super::volume_mount::MountError;

/// A request of a pod that the configuration of a container cannot express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A variable has no value.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A volume cannot be mounted as the container asks.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A resource has no amount.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The container may not, or cannot, have the privileges.
    #[error(transparent)]
    Security(#[from] SecurityError),
}
