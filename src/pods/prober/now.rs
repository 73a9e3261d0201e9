//! Runs a probe now, for a person: with the same handlers as a worker, but without worker, cache,
//! events or metrics.

use std::thread::Builder;

use super::context::Context;
use super::manager::ProberManager;
use super::outcome::Outcome;
use super::prober::Subject;
use super::thread::{STACK_SIZE, panic_text};
use super::trace::{self, Step};
use crate::api::{Pod, ProbeType};
use crate::engine::runtime::ContainerId;

impl ProberManager {
    /// Runs a probe now and waits for it, at most three times its timeout. Changes no state. Also
    /// returns its steps.
    ///
    /// # Errors
    /// Returns an error if there is no such probe, its container does not run, or no thread can be started.
    pub fn probe_now(
        &self,
        pod: &Pod,
        container: &str,
        probe_type: ProbeType,
    ) -> Result<(Outcome, Vec<Step>), String> {
        // on a separate thread, which may be lost when it enters a network namespace
        let name = format!("now:{container}");
        let run = || self.context().probe_now(pod, container, probe_type);
        std::thread::scope(|scope| {
            let thread = Builder::new()
                .name(name)
                .stack_size(STACK_SIZE)
                .spawn_scoped(scope, run);
            let thread = thread.map_err(|e| format!("cannot start a thread: {e}"))?;
            thread
                .join()
                .unwrap_or_else(|panic| Err(format!("the probe panicked: {}", panic_text(&*panic))))
        })
    }
}

impl Context {
    fn probe_now(
        &self,
        pod: &Pod,
        name: &str,
        probe_type: ProbeType,
    ) -> Result<(Outcome, Vec<Step>), String> {
        let container = pod
            .container(name)
            .ok_or_else(|| format!("pod {} has no container \"{name}\"", pod.metadata.name))?;
        let word = probe_type.word();
        container
            .probe(probe_type)
            .ok_or_else(|| format!("container \"{name}\" has no {word} probe"))?;
        let status = self.statuses.pod_status(pod.uid()).unwrap_or_default();
        let running = status.container(name).filter(|c| c.state.running.is_some());
        let id = running
            .map(|c| ContainerId::from(c.container_id.as_str()))
            .ok_or_else(|| format!("container \"{name}\" does not run"))?;
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
