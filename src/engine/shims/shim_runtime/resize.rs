//! Gives pods and containers other limits while they run.

use std::sync::{Arc, PoisonError};

use super::{ShimRuntime, lock};
use crate::api::pod::ResourceRequirements;
use crate::base::sys::cgroup::Cgroups;
use crate::engine::runtime::{ContainerId, PodResources, Resources, RuntimeError};
use crate::engine::shims::state::{self, RESOURCES, ResourcesRecord};
use crate::engine::shims::{pod_cgroup, resize};

impl ShimRuntime {
    pub(super) fn resize_pod(
        &self,
        cgroup_parent: &str,
        resources: &PodResources,
    ) -> Result<(), RuntimeError> {
        let gate = self.cgroup_gate.read();
        let _gate = gate.unwrap_or_else(PoisonError::into_inner);
        let failed = |e: &dyn std::fmt::Display| {
            RuntimeError::failed(format!("cannot resize the pod's cgroup: {e}"))
        };
        let cgroups = Cgroups::detect().map_err(|e| failed(&e))?;
        let left = pod_cgroup::prepare(&cgroups, cgroup_parent, resources);
        match left.map_err(|e| failed(&e))?.first() {
            Some(e) => Err(failed(e)),
            None => Ok(()),
        }
    }

    pub(super) fn resize_container(
        &self,
        id: &ContainerId,
        resources: &Resources,
        requirements: &ResourceRequirements,
    ) -> Result<(), RuntimeError> {
        let (record, _) = self.running(id)?;
        let failed = |e: &dyn std::fmt::Display| {
            RuntimeError::failed(format!("cannot resize container {}: {e}", record.name))
        };
        let cgroups = Cgroups::detect().map_err(|e| failed(&e))?;
        resize::container(&cgroups, &record.cgroup, resources).map_err(|e| failed(&e))?;
        // A daemon that is killed before this sets the same limits again.
        let resized = ResourcesRecord {
            requirements: Arc::new(requirements.clone()),
        };
        let dir = self.layout.containers().join(id.as_str());
        state::write(&dir, RESOURCES, &resized, false).map_err(|e| failed(&e))?;
        if let Some(known) = lock(&self.cache).containers.get_mut(id.as_str()) {
            known.resources = Some(resized.requirements);
        }
        Ok(())
    }
}
