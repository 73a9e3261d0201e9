//! Where the variables of services come from (`enableServiceLinks`, services 4).

use crate::api::Pod;
use crate::base::cancel::Cancel;

/// A source of environment variables that knows the services of this node.
pub trait ServiceVariables: Send + Sync {
    /// Waits until every source of services has spoken, for a limited time; returns at once when `cancel` is cancelled.
    fn wait(&self, cancel: &Cancel);

    /// The variables of the services that a pod's containers find, by the services that are known now.
    fn of(&self, pod: &Pod) -> Vec<(String, String)>;
}

/// There are no services.
pub struct NoServices;

impl ServiceVariables for NoServices {
    fn wait(&self, _: &Cancel) {}

    fn of(&self, _: &Pod) -> Vec<(String, String)> {
        Vec::new()
    }
}
