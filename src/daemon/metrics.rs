//! Collects all metrics of the daemon in one text.
//!
//! Invariants: each part counts its own events, and this file only reads the counters at a scrape. The series of a
//! pod end with the pod.

pub(super) mod node;
mod volumes;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::backend::DaemonBackend;
use super::machine;
use crate::api::{Pod, PodSource, PodStatus, PodUid};
use crate::base::clock::Moment;
use crate::base::metrics::{Family, Kind};
use crate::base::text::visible::{is_unsafe, replace};
use crate::daemon::logging;
use crate::engine::runtime::{RuntimePodStatus, RuntimeState};
use crate::engine::stats::Disk;
use crate::face::server::{Health, Metrics};
use crate::face::views::kube_node::{NodeState, write_node};
use crate::face::views::kube_state::{
    NodeLabels, PodState, ServiceState, write_pods, write_services,
};
use crate::face::views::kube_workloads::write_workloads;
use crate::pods::events::EventType;
use crate::pods::sources::FileProblem;

/// Largest number of refused files that have a series each.
const MAX_FILES: usize = 20;

impl Metrics for DaemonBackend {
    fn metrics(&self) -> String {
        let (now, wall) = (Moment::now(), SystemTime::now());
        let mut out = String::new();
        self.prober.records.write_metrics(&mut out);
        self.pleg.write_metrics(now, wall, &mut out);
        self.write_states(&mut out);
        let counted = &self.counted;
        counted.pods.write(&mut out);
        counted.operations.write(&mut out);
        let last = self.heartbeat.last();
        counted.sync_loop.write(last, self.started, now, &mut out);
        self.write_counts(&mut out);
        write_problems(&self.sources.files.problems_by_source(), &mut out);
        self.kuberuntime.images().metrics().write(&mut out);
        self.write_panics(&mut out);
        self.write_network(&mut out);
        node::write_disks(&self.layout, &mut out);
        node::write_images(&self.store, &mut out);
        node::write_process(&mut out);
        out
    }
}

impl DaemonBackend {
    /// Appends the metrics of pods, containers and services in their current state.
    fn write_states(&self, out: &mut String) {
        let pods = self.shown(|_| true);
        let status = |(pod, _): (Arc<Pod>, bool)| {
            let status = self.pods.statuses.get(pod.uid()).unwrap_or_default();
            (pod, status)
        };
        let mut pods: Vec<(Arc<Pod>, Arc<PodStatus>)> = pods.into_iter().map(status).collect();
        let place = |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        pods.sort_by_cached_key(|(pod, _)| place(pod));
        let owners = self.sources.files.owners();
        let states = pods.iter().map(|(pod, status)| PodState {
            owner: owners.get(pod.uid()).map(|owner| &**owner),
            pod,
            status,
        });
        let states: Vec<PodState<'_>> = states.collect();
        let settings = self.settings.get();
        let node = NodeLabels {
            name: &settings.node_name,
            ip: settings.node_ip,
        };
        write_pods(&states, node, out);
        write_workloads(&self.sources.board.read().to_read(), out);
        self.write_node(out);
        let active = states.iter().filter(|s| !s.status.phase.is_terminal());
        let active: Vec<&Pod> = active.map(|state| state.pod).collect();
        write_pod_counts(states.len(), active.len(), out);
        let running = self.pleg.cache().all();
        write_running(&running, out);
        let ready = running
            .iter()
            .filter(|p| p.sandboxes.iter().any(|s| s.ready));
        let ready: HashSet<&PodUid> = ready.map(|p| &p.uid).collect();
        let has_sandbox = |pod: &Pod| ready.contains(pod.uid());
        volumes::write_counts(&active, self.kuberuntime.volumes(), has_sandbox, out);
        volumes::write_claims(&active, &self.layout, out);
        self.write_services(out);
    }

    fn write_node(&self, out: &mut String) {
        let (settings, node) = (self.settings.get(), self.node.get());
        let help = "The node's name. The count is always 1.";
        let labels = [("node", settings.node_name.as_str())];
        Family::new(out, "kubelet_node_name", Kind::Gauge, help).value(&labels, 1);
        let (release, os) = (machine::kernel_release(), machine::os_name());
        let state = NodeState {
            name: &settings.node_name,
            ip: settings.node_ip,
            kernel: &release,
            os: &os,
            is_ready: self.checks().iter().all(|check| check.failure.is_none()),
            is_unschedulable: self.drain.closed().is_some(),
            cpu_milli: node.cpu_milli,
            memory: node.memory,
            huge_pages: &node.huge_pages,
            disk: Disk::of(&self.layout.lib_dir()).map(|disk| disk.capacity),
            max_pods: node.max_pods,
        };
        write_node(&state, out);
    }

    fn write_services(&self, out: &mut String) {
        let services = self.services.services.get();
        let state = |(key, service)| {
            let assigned = services.assigned.get(key);
            ServiceState {
                namespace: &key.namespace,
                name: &key.name,
                service,
                cluster_ip: assigned.and_then(|a| a.cluster_ips.first().copied()),
            }
        };
        let of_all = services.objects.services.iter();
        let all: Vec<_> = of_all.map(|(key, s)| state((key, &**s))).collect();
        write_services(&all, &services.built.table, out);
    }

    fn write_counts(&self, out: &mut String) {
        let help = "Cumulative number of pod evictions by eviction signal";
        let mut evictions = Family::new(out, "kubelet_evictions", Kind::Counter, help);
        let signal = [("eviction_signal", "emptydirfs.limit")];
        evictions.value(&signal, self.evictions.total());
        let help = "Events of pods, repeated ones included.";
        let mut events = Family::new(out, "podprobe_events_total", Kind::Counter, help);
        for (type_, of_type) in [
            ("Normal", EventType::Normal),
            ("Warning", EventType::Warning),
        ] {
            events.value(&[("type", type_)], self.pods.recorder.total(of_type));
        }
        let help = "Increments that have no series, because their family has as many as it may.";
        let left_out = [
            ("pods", self.counted.pods.left_out()),
            ("registry", self.kuberuntime.images().metrics().left_out()),
            ("sync_loop", self.counted.sync_loop.left_out()),
        ];
        let name = "podprobe_metrics_left_out_total";
        let mut family = Family::new(out, name, Kind::Counter, help);
        for (part, n) in left_out {
            family.value(&[("part", part)], n);
        }
        let help = "Lines of the log that were dropped, because nobody read it.";
        Family::new(out, "podprobe_log_dropped_total", Kind::Counter, help)
            .value(&[], logging::dropped());
        let help = "The version that runs.";
        Family::new(out, "podprobe_build_info", Kind::Gauge, help)
            .value(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    }

    fn write_panics(&self, out: &mut String) {
        let help = "Panics that were caught; the thread went on, and the log says where.";
        let mut panics = Family::new(out, "podprobe_panics_total", Kind::Counter, help);
        let others = [
            ("pleg", self.pleg.panics()),
            ("pod_workers", self.workers.panics()),
            ("prober", self.prober.manager.panics()),
            ("server", self.counted.server_panics.load(Ordering::Relaxed)),
            ("sync_loop", self.heartbeat.panics()),
        ];
        let mut all: Vec<(String, u64)> = self
            .roster
            .panics()
            .into_iter()
            .chain(others)
            .map(|(part, n)| (part.replace('-', "_"), n))
            .collect();
        all.sort();
        for (part, n) in all {
            panics.value(&[("part", &part)], n);
        }
        let help = "Probe workers: one for each probe of each container that may still run.";
        Family::new(out, "podprobe_prober_workers", Kind::Gauge, help)
            .value(&[], self.prober.manager.worker_count() as u64);
    }

    fn write_network(&self, out: &mut String) {
        if let Some(names) = &self.services.services.get().name_counters {
            names.write_metrics(out);
        }
        let help =
            "What the kernel lacks for the network of pods; `describe pod` says what follows.";
        let mut missing = Family::new(out, "podprobe_network_missing", Kind::Gauge, help);
        for lack in self.networks.missing() {
            missing.value(&[("what", lack.what.as_str())], 1);
        }
        self.services.metrics.write(
            self.services.health.mode(),
            &self.services.health.answers(),
            out,
        );
    }
}

/// Appends the numbers of desired and of active pods. Every pod comes from a file or a URL, so the numbers are
/// reported as those of static pods.
fn write_pod_counts(desired: usize, active: usize, out: &mut String) {
    for (name, help, n) in [
        (
            "kubelet_desired_pods",
            "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
            desired,
        ),
        (
            "kubelet_active_pods",
            "The number of pods the kubelet considers active and which are being considered when admitting new pods. \
             static is true if the pod is not from the apiserver.",
            active,
        ),
    ] {
        Family::new(out, name, Kind::Gauge, help).value(&[("static", "true")], n as u64);
    }
}

/// Appends the number of running pods and the numbers of containers by state, from PLEG's last listing.
fn write_running(pods: &[Arc<RuntimePodStatus>], out: &mut String) {
    let ready = pods.iter().filter(|p| p.sandboxes.iter().any(|s| s.ready));
    let help = "Number of pods that have a running pod sandbox";
    Family::new(out, "kubelet_running_pods", Kind::Gauge, help).value(&[], ready.count() as u64);
    let help = "Number of containers currently running";
    let mut family = Family::new(out, "kubelet_running_containers", Kind::Gauge, help);
    for (name, state) in [
        ("created", RuntimeState::Created),
        ("exited", RuntimeState::Exited),
        ("running", RuntimeState::Running),
        ("unknown", RuntimeState::Unknown),
    ] {
        let all = pods.iter().flat_map(|p| &p.containers);
        let n = all.filter(|c| c.state == state).count() as u64;
        family.value(&[("container_state", name)], n);
    }
}

/// Appends the number of refused files. The pods of a refused file may still run in the last good version of the
/// file.
fn write_problems(problems: &BTreeMap<PodSource, Vec<FileProblem>>, out: &mut String) {
    let help = "Files and answers whose present content is refused, by source.";
    let mut family = Family::new(out, "podprobe_refused_files", Kind::Gauge, help);
    for source in [PodSource::File, PodSource::Http] {
        let of_source = problems.get(&source).into_iter().flatten();
        let n = of_source.filter(|p| !p.is_in_use).count() as u64;
        family.value(&[("source", source.as_str())], n);
    }
    let help = "A file whose present content is refused; at most 20 of them. `get pods` says why.";
    let mut family = Family::new(out, "podprobe_refused_file_info", Kind::Gauge, help);
    let refused = problems.values().flatten().filter(|p| !p.is_in_use);
    for problem in refused.take(MAX_FILES) {
        // A person may read the file's name on a terminal, so unsafe characters are replaced.
        family.value(&[("file", &replace(&problem.file, is_unsafe))], 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_files_are_all_counted_and_the_first_are_named() {
        let problem = |n| FileProblem {
            file: format!("/p/{n:02}"),
            ..FileProblem::default()
        };
        let all = BTreeMap::from([(PodSource::File, (0..25).map(problem).collect())]);
        let mut out = String::new();
        write_problems(&all, &mut out);
        assert!(
            out.contains("podprobe_refused_files{source=\"file\"} 25\n"),
            "{out}"
        );
        let named = out
            .lines()
            .filter(|l| l.starts_with("podprobe_refused_file_info{"));
        assert_eq!(named.count(), MAX_FILES);
        assert!(
            out.contains("podprobe_refused_file_info{file=\"/p/19\"} 1\n"),
            "{out}"
        );
    }

    #[test]
    fn a_file_s_name_does_nothing_to_a_terminal() {
        let problem = FileProblem {
            file: "/p/\u{1b}]0;x\u{7}\u{202e}a\nb.yaml".into(),
            ..FileProblem::default()
        };
        let mut out = String::new();
        write_problems(
            &BTreeMap::from([(PodSource::File, vec![problem])]),
            &mut out,
        );
        let is_plain = |c: char| c == '\n' || !is_unsafe(c);
        assert!(out.chars().all(is_plain), "{out:?}");
        assert!(
            out.contains("{file=\"/p/^[]0;x^G\\\\u{202e}a^Jb.yaml\"} 1"),
            "{out}"
        );
    }
}
