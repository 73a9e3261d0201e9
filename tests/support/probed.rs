//! A runtime that is made up as far as a prober asks it: it runs commands and says where pods have their network.

use std::sync::Arc;
use std::time::Duration;

use podprobe::api::{Container, Pod, PodUid};
use podprobe::runtime::{
    Cancel, ContainerId, ExecOutcome, NetworkNamespace, Runtime, RuntimeError, RuntimePodStatus,
};

/// What a prober asks. The pods are in the node's network, unless it says something else.
pub trait Probed: Send + Sync {
    /// As [`Runtime::exec`].
    fn exec(&self, id: &ContainerId) -> Result<ExecOutcome, RuntimeError>;

    /// As [`Runtime::network_namespace`].
    fn network_namespace(&self) -> Result<Option<NetworkNamespace>, RuntimeError> {
        Ok(None)
    }
}

/// It as a runtime.
pub struct ProbedRuntime<T>(pub Arc<T>);

fn never<T>() -> T {
    unreachable!("a prober only runs commands and asks for network namespaces")
}

impl<T: Probed> Runtime for ProbedRuntime<T> {
    fn name(&self) -> &str {
        "made up"
    }
    fn check(&self) -> Result<(), RuntimeError> {
        Ok(())
    }
    fn list_pods(&self) -> Result<Vec<RuntimePodStatus>, RuntimeError> {
        never()
    }
    fn pod_status(&self, _: &PodUid) -> Result<RuntimePodStatus, RuntimeError> {
        never()
    }
    fn run_pod_sandbox(&self, _: &Pod, _: u32) -> Result<ContainerId, RuntimeError> {
        never()
    }
    fn stop_pod_sandbox(&self, _: &ContainerId) -> Result<(), RuntimeError> {
        never()
    }
    fn remove_pod_sandbox(&self, _: &ContainerId) -> Result<(), RuntimeError> {
        never()
    }
    fn start_container(
        &self,
        _: &Pod,
        _: &ContainerId,
        _: &Container,
        _: u32,
    ) -> Result<ContainerId, RuntimeError> {
        never()
    }
    fn stop_container(&self, _: &ContainerId, _: Duration, _: &Cancel) -> Result<(), RuntimeError> {
        never()
    }
    fn remove_container(&self, _: &ContainerId) -> Result<(), RuntimeError> {
        never()
    }
    fn remove_pod(&self, _: &PodUid) -> Result<(), RuntimeError> {
        never()
    }
    fn exec(
        &self,
        id: &ContainerId,
        _: &[String],
        _: Duration,
        _: usize,
    ) -> Result<ExecOutcome, RuntimeError> {
        self.0.exec(id)
    }
    fn network_namespace(&self, _: &PodUid) -> Result<Option<NetworkNamespace>, RuntimeError> {
        self.0.network_namespace()
    }
}
