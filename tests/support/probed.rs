//! A runtime that is made up as far as a prober asks it: it runs commands and says where pods have their network.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use podprobe::api::pod::ResourceRequirements;
use podprobe::base::cancel::Cancel;
use podprobe::engine::runtime::{
    AttachRequest, ContainerConfig, ContainerId, ContainerRoot, ExecOutcome, ExecRequest, Listing,
    NetworkNamespace, PodResources, Resources, Runtime, RuntimeError, SandboxConfig, Session,
    Started,
};

/// What a prober asks. The pods are in the node's network, unless it says something else.
pub trait Probed: Send + Sync {
    /// As [`Runtime::exec`].
    fn exec(&self, id: &ContainerId) -> Result<ExecOutcome, RuntimeError>;

    /// As [`Runtime::pod_network`].
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
    fn check(&self) -> Result<(), RuntimeError> {
        Ok(())
    }
    fn list(&self, _: Option<&str>) -> Result<Listing, RuntimeError> {
        never()
    }
    fn run_sandbox(&self, _: &SandboxConfig) -> Result<ContainerId, RuntimeError> {
        never()
    }
    fn stop_sandbox(&self, _: &ContainerId) -> Result<(), RuntimeError> {
        never()
    }
    fn remove_sandbox(&self, _: &ContainerId) -> Result<(), RuntimeError> {
        never()
    }
    fn create_container(
        &self,
        _: &ContainerId,
        _: &ContainerConfig,
        _: &SandboxConfig,
    ) -> Result<ContainerId, RuntimeError> {
        never()
    }
    fn start_container(&self, _: &ContainerId) -> Result<(), RuntimeError> {
        never()
    }
    fn stop_container(&self, _: &ContainerId, _: Duration, _: &Cancel) -> Result<(), RuntimeError> {
        never()
    }
    fn update_pod(&self, _: &str, _: &PodResources) -> Result<(), RuntimeError> {
        never()
    }
    fn update_container(
        &self,
        _: &ContainerId,
        _: &Resources,
        _: &ResourceRequirements,
    ) -> Result<(), RuntimeError> {
        never()
    }
    fn remove_container(&self, _: &ContainerId) -> Result<(), RuntimeError> {
        never()
    }
    fn interrupt(&self) {}
    fn exec(
        &self,
        id: &ContainerId,
        _: &[String],
        _: Duration,
        _: usize,
        _: Option<&Cancel>,
    ) -> Result<ExecOutcome, RuntimeError> {
        self.0.exec(id)
    }
    fn exec_stream(&self, _: &ContainerId, _: &ExecRequest) -> Result<Started, RuntimeError> {
        never()
    }
    fn attach(&self, _: &ContainerId, _: AttachRequest) -> Result<Box<dyn Session>, RuntimeError> {
        never()
    }
    fn volumes_root(&self, _: &ContainerId) -> Result<OwnedFd, RuntimeError> {
        never()
    }

    fn container_root(&self, _: &ContainerId) -> Result<ContainerRoot, RuntimeError> {
        never()
    }
    fn pod_network(&self, _: &str) -> Result<Option<NetworkNamespace>, RuntimeError> {
        self.0.network_namespace()
    }
}
