//! What the server's clients and the live table read and ask.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::api::validation::probe_field;
use crate::api::{Container, Pod, PodStatus, PodUid};
use crate::clock::Moment;
use crate::events::{Event, EventList};
use crate::server::Backend;
use crate::server::protocol::{PauseTarget, ProbeTarget};
use crate::views::ProbeReport;
use crate::views::history::PodHistory;
use crate::views::{PodView, Snapshot};

impl Backend for Shared {
    fn snapshot(&self) -> Arc<Snapshot> {
        let version = self.notifier.version();
        // in this order: a pod that is being removed is told to end before it leaves the manager
        let mut pods = self.pods.all();
        let working = self.workers.working();
        let ending = |uid: &PodUid| {
            working
                .iter()
                .any(|(pod, removed)| *removed && pod.uid() == uid)
        };
        pods.extend(
            working
                .iter()
                .filter(|(_, removed)| *removed)
                .map(|(pod, _)| pod.clone()),
        );
        pods.sort_by(|a, b| {
            (&a.metadata.namespace, &a.metadata.name, a.uid()).cmp(&(
                &b.metadata.namespace,
                &b.metadata.name,
                b.uid(),
            ))
        });
        pods.dedup_by(|a, b| a.uid() == b.uid());
        let events = self.recorder.list();
        let view = |pod: &Arc<Pod>| self.view(pod, ending(pod.uid()), &events);
        Arc::new(Snapshot {
            version,
            node_name: self.node_name.clone(),
            pods: pods.iter().map(view).collect(),
            problems: self.states.problems(),
            stalled: self.heartbeat.stalled(self.started, Moment::now()),
        })
    }

    fn wait_newer(&self, version: u64, ceiling: Duration) -> Arc<Snapshot> {
        self.notifier.wait_newer(version, ceiling);
        self.snapshot()
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").into()
    }

    fn events(&self, after: Option<u64>, ceiling: Duration) -> EventList {
        let version = after.map_or_else(
            || self.notifier.version(),
            |after| self.notifier.wait_newer(after, ceiling),
        );
        EventList {
            version,
            node_name: self.node_name.clone(),
            events: self.recorder.list(),
        }
    }

    fn history(&self, uid: &PodUid) -> PodHistory {
        self.prober.records.history.get(uid)
    }

    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, String> {
        let pod = self.pod(&target.uid)?;
        let manager = &self.prober.manager;
        let (outcome, steps) = manager.probe_now(&pod, &target.container, target.probe_type)?;
        Ok(ProbeReport::new(&outcome, steps))
    }

    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, String> {
        self.pause_probes(target, length)
    }

    fn resume(&self, target: &PauseTarget) -> Result<Vec<String>, String> {
        self.resume_probes(target)
    }

    fn metrics(&self) -> String {
        self.metrics_text()
    }
}

impl Shared {
    /// What is written in the file and not acted on is said.
    fn outdated_probes(&self, pod: &Pod) -> Vec<String> {
        let place = |list: &[Container], name: &str| list.iter().position(|c| c.name == name);
        let path = |name: &str| match place(&pod.spec.containers, name) {
            Some(at) => format!("spec.containers[{at}]"),
            None => format!(
                "spec.initContainers[{}]",
                place(&pod.spec.init_containers, name).unwrap_or_default()
            ),
        };
        let why = "changed, and not acted on: the file gives the pod a uid, so it stays the same pod and keeps the probe it began with";
        let each = |(name, probe_type): (String, _)| {
            format!("{}.{}: {why}", path(&name), probe_field(probe_type))
        };
        self.prober
            .manager
            .outdated(pod)
            .into_iter()
            .map(each)
            .collect()
    }

    fn view(&self, pod: &Pod, terminating: bool, events: &[Event]) -> PodView {
        let status = self
            .statuses
            .get(pod.uid())
            .map(|s| PodStatus::clone(&s))
            .unwrap_or_default();
        let mut object = pod.raw.clone();
        object["status"] = serde_json::to_value(&status).unwrap_or_default();
        let file = self.states.get(pod.uid()).unwrap_or_default();
        PodView {
            object,
            status,
            file: file.file,
            warnings: file
                .warnings
                .into_iter()
                .chain(self.outdated_probes(pod))
                .collect(),
            file_error: file.file_error,
            terminating,
            log_dir: self
                .layout
                .pod_logs(&pod.metadata.namespace, &pod.metadata.name, pod.uid())
                .display()
                .to_string(),
            paused: self.prober.manager.pauses().of(pod.uid(), Moment::now()),
            events: events
                .iter()
                .filter(|e| e.uid == pod.uid().as_str())
                .cloned()
                .collect(),
        }
    }
}
