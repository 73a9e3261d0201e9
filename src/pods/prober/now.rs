//! Runs a probe now for a person. The run uses the handlers that workers use, but has no worker, cache, events or
//! metrics.

use std::io;
use std::thread::Builder;

use super::context::Context;
use super::manager::ProberManager;
use super::outcome::Outcome;
use super::prober::Subject;
use super::thread::{STACK_SIZE, panic_text};
use super::trace::{self, Step};
use crate::api::{Pod, ProbeType};
use crate::engine::runtime::ContainerId;

/// The reason why a probe cannot be run now.
#[derive(Debug, thiserror::Error)]
pub enum ProbeNowError {
    /// The pod has no such container.
    #[error("pod {pod} has no container \"{container}\"")]
    NoContainer {
        /// The name of the pod.
        pod: String,
        /// The name of the container in the request.
        container: String,
    },
    /// The container has no probe of this type.
    #[error("container \"{container}\" has no {} probe", .probe_type.word())]
    NoProbe {
        /// The name of the container.
        container: String,
        /// The probe type in the request.
        probe_type: ProbeType,
    },
    /// The container with this name is not running.
    #[error("container \"{0}\" does not run")]
    NotRunning(String),
    /// No thread could be started for the probe.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The probe panicked with this text.
    #[error("the probe panicked: {0}")]
    Panicked(String),
}

impl ProberManager {
    /// Runs a probe now and waits for its end, at most three times its timeout. Changes no state. Returns the outcome
    /// and the steps of the probe.
    ///
    /// # Errors
    /// Returns [`ProbeNowError`] if there is no such probe, its container is not running, or no thread can be started.
    pub fn probe_now(
        &self,
        pod: &Pod,
        container: &str,
        probe_type: ProbeType,
    ) -> Result<(Outcome, Vec<Step>), ProbeNowError> {
        // On a separate thread, because the thread may be lost when it enters a network namespace.
        let name = format!("now:{container}");
        let run = || self.context().probe_now(pod, container, probe_type);
        std::thread::scope(|scope| {
            let thread = Builder::new()
                .name(name)
                .stack_size(STACK_SIZE)
                .spawn_scoped(scope, run);
            let thread = thread.map_err(ProbeNowError::Thread)?;
            thread.join().unwrap_or_else(|panic| {
                let text = panic_text(&*panic).to_owned();
                Err(ProbeNowError::Panicked(text))
            })
        })
    }
}

impl Context {
    fn probe_now(
        &self,
        pod: &Pod,
        name: &str,
        probe_type: ProbeType,
    ) -> Result<(Outcome, Vec<Step>), ProbeNowError> {
        let container = pod
            .container(name)
            .ok_or_else(|| ProbeNowError::NoContainer {
                pod: pod.metadata.name.clone(),
                container: name.to_owned(),
            })?;
        container
            .probe(probe_type)
            .ok_or_else(|| ProbeNowError::NoProbe {
                container: name.to_owned(),
                probe_type,
            })?;
        let status = self.statuses.pod_status(pod.uid()).unwrap_or_default();
        let running = status.container(name).filter(|c| c.state.running.is_some());
        let id = running
            .map(|c| ContainerId::from(c.container_id.as_str()))
            .ok_or_else(|| ProbeNowError::NotRunning(name.to_owned()))?;
        let subject = Subject {
            pod,
            status: &status,
            container: name,
            id: &id,
        };
        Ok(trace::record(|| {
            self.prober.run(probe_type, subject, &mut None)
        }))
    }
}
