//! The source of the variables of services (`enableServiceLinks`, services 4).

use crate::api::Pod;
use crate::base::cancel::Cancel;

/// A source of the environment variables of services. The source knows the services of this node.
pub trait ServiceVariables: Send + Sync {
    /// Waits, for a limited time, until every source of services has reported its set. Returns at once when `cancel` is
    /// cancelled.
    fn wait(&self, cancel: &Cancel);

    /// Returns the variables of services for a pod's containers, by the services that are known now.
    fn of(&self, pod: &Pod) -> Vec<(String, String)>;
}

/// A source for a node without services.
pub struct NoServices;

impl ServiceVariables for NoServices {
    fn wait(&self, _: &Cancel) {}

    fn of(&self, _: &Pod) -> Vec<(String, String)> {
        Vec::new()
    }
}
