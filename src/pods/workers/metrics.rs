//! The metrics of pods that the workers count, by the kubelet's names (kubelet-probes 11.3).

use std::time::Duration;

use super::UpdateKind;
use crate::base::metrics::counters::{Counter, Durations, Tally};
use crate::base::metrics::{Family, Kind, pairs};

/// The kubelet's histogram buckets for the start of a pod, in seconds.
const START_BUCKETS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
    300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// The metrics of pods. The workers count, and a scrape reads the counts.
#[derive(Debug)]
pub struct PodMetrics {
    create: Durations,
    update: Durations,
    sync: Durations,
    kill: Durations,
    start: Durations,
    sandboxes: Counter,
    sandbox_errors: Counter,
    containers: Tally,
    container_errors: Tally,
}

impl Default for PodMetrics {
    fn default() -> Self {
        Self {
            create: Durations::default(),
            update: Durations::default(),
            sync: Durations::default(),
            kill: Durations::default(),
            start: Durations::new(&START_BUCKETS),
            sandboxes: Counter::default(),
            sandbox_errors: Counter::default(),
            containers: Tally::default(),
            container_errors: Tally::default(),
        }
    }
}

impl PodMetrics {
    /// Records the duration of a worker's run. `kind` is the update that led to the run.
    pub fn ran(&self, kind: UpdateKind, took: Duration) {
        let of_kind = match kind {
            UpdateKind::Create => &self.create,
            UpdateKind::Update => &self.update,
            UpdateKind::Sync => &self.sync,
            UpdateKind::Kill { .. } => &self.kill,
        };
        of_kind.observe(took);
    }

    /// Records that a pod runs. `took` is the time since the pod was first seen.
    pub fn pod_runs(&self, took: Duration) {
        self.start.observe(took);
    }

    /// Counts a sandbox that was made.
    pub fn sandbox(&self) {
        self.sandboxes.count();
    }

    /// Counts a sandbox that could not be made.
    pub fn sandbox_failed(&self) {
        self.sandbox_errors.count();
    }

    /// Counts a container that was started.
    pub fn container(&self, is_init: bool) {
        self.containers.count(&[container_type(is_init)]);
    }

    /// Counts a container that could not be started, by its waiting reason.
    pub fn container_failed(&self, is_init: bool, reason: &str) {
        let labels = [container_type(is_init), ("code", reason)];
        self.container_errors.count(&labels);
    }

    /// Returns the number of container starts that have no series of their own.
    pub fn left_out(&self) -> u64 {
        self.containers.left_out() + self.container_errors.left_out()
    }

    /// Appends all metric families to `out`.
    pub fn write(&self, out: &mut String) {
        let name = "kubelet_pod_worker_duration_seconds";
        let help = "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync";
        let mut family = Family::new(out, name, Kind::Histogram, help);
        for (operation, durations) in [
            ("create", &self.create),
            ("kill", &self.kill),
            ("sync", &self.sync),
            ("update", &self.update),
        ] {
            durations.write(&pairs(&[("operation_type", operation)]), &mut family);
        }
        let name = "kubelet_pod_start_duration_seconds";
        let help = "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run";
        self.start
            .write("", &mut Family::new(out, name, Kind::Histogram, help));
        let name = "kubelet_started_pods_total";
        let help = "Cumulative number of pods started";
        Family::new(out, name, Kind::Counter, help).value(&[], self.sandboxes.get());
        let name = "kubelet_started_pods_errors_total";
        let help = "Cumulative number of errors when starting pods";
        Family::new(out, name, Kind::Counter, help).value(&[], self.sandbox_errors.get());
        let name = "kubelet_started_containers_total";
        let help = "Cumulative number of containers started";
        self.containers
            .write(&mut Family::new(out, name, Kind::Counter, help));
        let name = "kubelet_started_containers_errors_total";
        let help = "Cumulative number of errors when starting containers";
        self.container_errors
            .write(&mut Family::new(out, name, Kind::Counter, help));
    }
}

/// Returns the kubelet's label for the type of a container.
pub fn container_type(is_init: bool) -> (&'static str, &'static str) {
    let type_ = if is_init {
        "init_container"
    } else {
        "container"
    };
    ("container_type", type_)
}
