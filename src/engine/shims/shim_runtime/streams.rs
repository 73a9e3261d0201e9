//! Runs commands in containers, and attaches clients to containers.

use std::sync::{Arc, Weak};

use super::ShimRuntime;
use super::listing::KnownContainer;
use crate::base::cancel::Cancel;
use crate::engine::nsexec::{ExecError, Options, Target};
use crate::engine::runtime::{
    AttachRequest, ContainerId, RuntimeError, RuntimeErrorKind, RuntimeState, Session,
};
use crate::engine::shims::attach::{self, Connection};

impl ShimRuntime {
    /// Calls `enter` with the first process of a running container.
    pub(super) fn entering<T>(
        &self,
        id: &ContainerId,
        cancel: Option<&Cancel>,
        enter: impl FnOnce(&Options<'_>, &Target<'_>) -> Result<T, ExecError>,
    ) -> Result<T, RuntimeError> {
        let (record, process) = self.running(id)?;
        let config = self.config(id);
        let config = config.map_err(|e| {
            RuntimeError::failed(format!(
                "cannot enter container {id}: its OCI configuration is not readable: {e}"
            ))
        })?;
        let target = Target {
            pid: process.pid,
            start_time: process.start_time,
            config: &config,
            cgroup: &record.cgroup,
        };
        let options = Options {
            helper: self.program.clone(),
            interrupt: Some(self.ending()),
            // If there is no descriptor for the cancel, the command runs to its end or to its timeout.
            cancel: cancel.and_then(|cancel| cancel.fd().ok()),
        };
        enter(&options, &target).map_err(|e| match e {
            ExecError::NotRunning { .. } => RuntimeError::new(
                RuntimeErrorKind::NotRunning,
                format!("cannot enter container {id}: it is not running"),
            ),
            e => RuntimeError::failed(e.to_string()),
        })
    }

    pub(super) fn attach_to(
        &self,
        id: &ContainerId,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, RuntimeError> {
        let (record, _) = self.running(id)?;
        let dir = self.layout.containers().join(id.as_str());
        let attached = attach::attach(&dir, &record, request).map_err(|cause| {
            // The shim ends with its container, so the container may have ended meanwhile.
            let runs = |e: KnownContainer| self.state_of(&e) == RuntimeState::Running;
            match self.find(id).is_some_and(runs) {
                true => RuntimeError::failed(format!("cannot attach to container {id}: {cause}")),
                false => RuntimeError::new(
                    RuntimeErrorKind::NotRunning,
                    format!("cannot attach to container {id}: it is not running"),
                ),
            }
        })?;
        let connection: Weak<Connection> = Arc::downgrade(&attached.connection);
        self.sessions.add(connection);
        Ok(Box::new(attached))
    }
}
