//! A runtime that wraps another runtime, counts the calls and measures how long each call takes. The names of the
//! operations are the kubelet's (kubelet-probes 11.3).
//!
//! Invariants: every answer of the wrapped runtime is passed on unchanged. There is no lock, so a slow operation of one
//! thread delays no other thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::{
    AttachRequest, ContainerConfig, ContainerId, ContainerRoot, ExecOutcome, ExecRequest, Listing,
    NetworkNamespace, PodResources, Resources, Runtime, RuntimeError, SandboxConfig, Session,
    Started,
};
use crate::api::pod::ResourceRequirements;
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;
use crate::base::metrics::counters::{Counter, Durations};
use crate::base::metrics::{Family, Kind, pairs};

/// Upper bounds of the histogram's buckets: 0.005 × 2.5ⁿ seconds (kubelet-probes 11.3).
const BUCKETS: [f64; 14] = [
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];

#[derive(Clone, Copy)]
enum Operation {
    Attach,
    CreateContainer,
    Exec,
    ExecSync,
    List,
    ListPod,
    RemoveContainer,
    RemoveSandbox,
    RunSandbox,
    StartContainer,
    StopContainer,
    StopSandbox,
    UpdateContainer,
}

impl Operation {
    /// The kubelet's names of the operations, in the order of the variants. The kubelet lists sandboxes and containers
    /// separately; a listing of podprobe has both and counts as `list_podsandbox`.
    const NAMES: [&str; 13] = [
        "attach",
        "create_container",
        "exec",
        "exec_sync",
        "list_podsandbox",
        "podsandbox_status",
        "remove_container",
        "remove_podsandbox",
        "run_podsandbox",
        "start_container",
        "stop_container",
        "stop_podsandbox",
        "update_container",
    ];
}

#[derive(Debug)]
struct Counted {
    took: Durations,
    errors: Counter,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            took: Durations::new(&BUCKETS),
            errors: Counter::default(),
        }
    }
}

/// Metrics of a [`Metered`] runtime: the number of calls and errors of each operation, and how long the calls took.
#[derive(Debug, Default)]
pub struct Operations([Counted; Operation::NAMES.len()]);

impl Operations {
    /// Appends the metrics of every operation that was called at least once.
    pub fn write(&self, out: &mut String) {
        let all = self.0.iter().zip(Operation::NAMES);
        let all = all.filter(|(counted, _)| counted.took.total() > 0);
        let all: Vec<_> = all
            .map(|(counted, name)| (counted, pairs(&[("operation_type", name)])))
            .collect();
        let name = "kubelet_runtime_operations_total";
        let help = "Cumulative number of runtime operations by operation type.";
        let mut family = Family::new(out, name, Kind::Counter, help);
        for (counted, pairs) in &all {
            family.value_of(&[pairs], counted.took.total());
        }
        let name = "kubelet_runtime_operations_errors_total";
        let help = "Cumulative number of runtime operation errors by operation type.";
        let mut family = Family::new(out, name, Kind::Counter, help);
        for (counted, pairs) in &all {
            family.value_of(&[pairs], counted.errors.get());
        }
        let name = "kubelet_runtime_operations_duration_seconds";
        let help = "Duration in seconds of runtime operations. Broken down by operation type.";
        let mut family = Family::new(out, name, Kind::Histogram, help);
        for (counted, pairs) in &all {
            counted.took.write(pairs, &mut family);
        }
    }
}

/// A runtime that counts and measures the calls of `inner`.
pub struct Metered {
    inner: Arc<dyn Runtime>,
    operations: Arc<Operations>,
}

impl Metered {
    /// Wraps `inner`; the calls are counted in `operations`.
    pub fn new(inner: Arc<dyn Runtime>, operations: Arc<Operations>) -> Self {
        Self { inner, operations }
    }

    fn timed<T>(
        &self,
        operation: Operation,
        run: impl FnOnce(&dyn Runtime) -> Result<T, RuntimeError>,
    ) -> Result<T, RuntimeError> {
        let began = Moment::now();
        let result = run(&*self.inner);
        let counted = &self.operations.0[operation as usize];
        counted.took.observe(Moment::now().since(began));
        if result.is_err() {
            counted.errors.count();
        }
        result
    }
}

impl Runtime for Metered {
    fn check(&self) -> Result<(), RuntimeError> {
        self.inner.check()
    }

    fn list(&self, pod: Option<&str>) -> Result<Listing, RuntimeError> {
        let operation = match pod {
            None => Operation::List,
            Some(_) => Operation::ListPod,
        };
        self.timed(operation, |r| r.list(pod))
    }

    fn run_sandbox(&self, config: &SandboxConfig) -> Result<ContainerId, RuntimeError> {
        self.timed(Operation::RunSandbox, |r| r.run_sandbox(config))
    }

    fn stop_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.timed(Operation::StopSandbox, |r| r.stop_sandbox(id))
    }

    fn remove_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.timed(Operation::RemoveSandbox, |r| r.remove_sandbox(id))
    }

    fn create_container(
        &self,
        sandbox: &ContainerId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> Result<ContainerId, RuntimeError> {
        self.timed(Operation::CreateContainer, |r| {
            r.create_container(sandbox, config, sandbox_config)
        })
    }

    fn start_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.timed(Operation::StartContainer, |r| r.start_container(id))
    }

    fn stop_container(
        &self,
        id: &ContainerId,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), RuntimeError> {
        self.timed(Operation::StopContainer, |r| {
            r.stop_container(id, grace, cancel)
        })
    }

    fn update_pod(
        &self,
        cgroup_parent: &str,
        resources: &PodResources,
    ) -> Result<(), RuntimeError> {
        self.inner.update_pod(cgroup_parent, resources)
    }

    fn update_container(
        &self,
        id: &ContainerId,
        resources: &Resources,
        requirements: &ResourceRequirements,
    ) -> Result<(), RuntimeError> {
        self.timed(Operation::UpdateContainer, |r| {
            r.update_container(id, resources, requirements)
        })
    }

    fn remove_container(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.timed(Operation::RemoveContainer, |r| r.remove_container(id))
    }

    fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
        limit: usize,
        cancel: Option<&Cancel>,
    ) -> Result<ExecOutcome, RuntimeError> {
        self.timed(Operation::ExecSync, |r| {
            r.exec(id, command, timeout, limit, cancel)
        })
    }

    /// Starts a command with streams. The measured time ends when the command runs.
    fn exec_stream(
        &self,
        id: &ContainerId,
        request: &ExecRequest,
    ) -> Result<Started, RuntimeError> {
        self.timed(Operation::Exec, |r| r.exec_stream(id, request))
    }

    fn attach(
        &self,
        id: &ContainerId,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, RuntimeError> {
        self.timed(Operation::Attach, |r| r.attach(id, request))
    }

    fn volumes_root(&self, sandbox: &ContainerId) -> Result<OwnedFd, RuntimeError> {
        self.inner.volumes_root(sandbox)
    }

    fn container_root(&self, id: &ContainerId) -> Result<ContainerRoot, RuntimeError> {
        self.inner.container_root(id)
    }

    fn pod_network(&self, pod: &str) -> Result<Option<NetworkNamespace>, RuntimeError> {
        self.inner.pod_network(pod)
    }

    fn interrupt(&self) {
        self.inner.interrupt();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_runtime::FakeRuntime;

    #[test]
    fn buckets_are_the_kubelet_s() {
        let each = BUCKETS.windows(2);
        assert!(each.into_iter().all(|b| (b[1] / b[0] - 2.5).abs() < 1e-9));
    }

    #[test]
    fn each_operation_is_counted_with_its_errors_and_the_answer_is_passed_on() {
        let operations = Arc::new(Operations::default());
        let fake = Arc::new(FakeRuntime::default());
        let metered = Metered::new(fake.clone(), operations.clone());
        let failed = metered.start_container(&"none".into());
        assert_eq!(failed, fake.start_container(&"none".into()));
        assert!(failed.is_err() && metered.list(None).is_ok());
        metered.list(Some("u")).unwrap();
        metered.list(None).unwrap();
        let mut out = String::new();
        operations.write(&mut out);
        for line in [
            "operations_total{operation_type=\"list_podsandbox\"} 2",
            "operations_total{operation_type=\"podsandbox_status\"} 1",
            "operations_total{operation_type=\"start_container\"} 1",
            "operations_errors_total{operation_type=\"list_podsandbox\"} 0",
            "operations_errors_total{operation_type=\"start_container\"} 1",
            "operations_duration_seconds_bucket{operation_type=\"list_podsandbox\",le=\"0.1953125\"} 2",
        ] {
            let line = format!("kubelet_runtime_{line}");
            assert!(out.lines().any(|l| l == line), "{line} in\n{out}");
        }
        assert!(!out.contains("stop_container"), "nothing was stopped");
    }
}
