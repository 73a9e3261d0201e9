//! Writes the kubelet's resource metrics from the figures that were read. Has the functions with which figures of all
//! kinds are written as series.
//!
//! Invariants: pure. Every sample has the time at which the figures were read, as in the kubelet, so that a late scrape
//! does not make the sample look newer.

use std::time::SystemTime;

use super::parse::{Cpu, Memory};
use super::{Figures, PodUsage, Usage};
use crate::base::metrics::{Family, Kind, pairs};

/// A family of metrics about cgroups: the family's name, kind and help, and a function that returns the value for a
/// cgroup.
pub(super) type OfCgroup = (&'static str, Kind, &'static str, fn(&Usage) -> Option<f64>);

pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

pub(super) fn cpu(usage: &Usage, of: fn(&Cpu) -> Option<u64>) -> Option<f64> {
    of(usage.cpu.as_ref()?).map(seconds)
}

pub(super) fn memory(usage: &Usage, of: fn(&Memory) -> Option<u64>) -> Option<f64> {
    of(usage.memory.as_ref()?).map(|bytes| bytes as f64)
}

pub(super) fn cpu_usage(usage: &Usage) -> Option<f64> {
    cpu(usage, |cpu| Some(cpu.usage))
}

pub(super) fn working_set(usage: &Usage) -> Option<f64> {
    memory(usage, |m| Some(m.working_set))
}

pub(super) fn swap(usage: &Usage) -> Option<f64> {
    memory(usage, |m| m.swap)
}

/// A cgroup whose figures are written, with its labels.
pub(super) struct Subject<'a> {
    pub(super) pairs: String,
    pub(super) usage: &'a Usage,
    pub(super) started: Option<SystemTime>,
}

pub(super) fn milliseconds(at: SystemTime) -> i64 {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn unix(at: SystemTime) -> f64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

pub(super) fn write_family(
    (name, kind, help, value): OfCgroup,
    more: &str,
    subjects: &[Subject<'_>],
    at: i64,
    out: &mut String,
) {
    let mut family = Family::new(out, name, kind, help).at(at);
    for s in subjects {
        if let Some(value) = value(s.usage) {
            family.real_of(&[&s.pairs, more], value);
        }
    }
}

/// Writes the start times of the subjects. These samples have no timestamp, as in the kubelet, because a start time is
/// older than any scrape.
pub(super) fn write_starts(help: &str, subjects: &[Subject<'_>], out: &mut String) {
    let mut family = Family::new(out, "container_start_time_seconds", Kind::Gauge, help);
    for s in subjects {
        if let Some(started) = s.started {
            family.real_of(&[&s.pairs], unix(started));
        }
    }
}

const OF_NODE: [OfCgroup; 3] = [
    (
        "node_cpu_usage_seconds_total",
        Kind::Counter,
        "Cumulative cpu time consumed by the node in core-seconds",
        cpu_usage,
    ),
    (
        "node_memory_working_set_bytes",
        Kind::Gauge,
        "Current working set of the node in bytes",
        working_set,
    ),
    (
        "node_swap_usage_bytes",
        Kind::Gauge,
        "Current swap usage of the node in bytes. Reported only on non-windows systems",
        swap,
    ),
];

const OF_CONTAINERS: [OfCgroup; 4] = [
    (
        "container_cpu_usage_seconds_total",
        Kind::Counter,
        "Cumulative cpu time consumed by the container in core-seconds",
        cpu_usage,
    ),
    (
        "container_memory_working_set_bytes",
        Kind::Gauge,
        "Current working set of the container in bytes",
        working_set,
    ),
    (
        "container_swap_usage_bytes",
        Kind::Gauge,
        "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        swap,
    ),
    (
        "container_swap_limit_bytes",
        Kind::Gauge,
        "Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        |u| memory(u, |m| m.swap_limit),
    ),
];

const OF_PODS: [OfCgroup; 3] = [
    (
        "pod_cpu_usage_seconds_total",
        Kind::Counter,
        "Cumulative cpu time consumed by the pod in core-seconds",
        cpu_usage,
    ),
    (
        "pod_memory_working_set_bytes",
        Kind::Gauge,
        "Current working set of the pod in bytes",
        working_set,
    ),
    (
        "pod_swap_usage_bytes",
        Kind::Gauge,
        "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        swap,
    ),
];

/// Returns the body of `/metrics/resource`, which metrics-server reads. If `figures` is None, the body says that there
/// was an error.
pub fn resource(figures: Option<&Figures>) -> String {
    let mut out = String::new();
    if let Some(figures) = figures {
        write_resource(figures, &mut out);
    }
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    for name in ["resource_scrape_error", "scrape_error"] {
        Family::new(&mut out, name, Kind::Gauge, help).value(&[], figures.is_none().into());
    }
    out
}

fn write_resource(figures: &Figures, out: &mut String) {
    let at = milliseconds(figures.at);
    let place = |pod: &PodUsage| pairs(&[("namespace", &pod.namespace), ("pod", &pod.name)]);
    let (mut containers, mut pods) = (Vec::new(), Vec::new());
    for pod in &figures.pods {
        let of_pod = place(pod);
        containers.extend(pod.containers.iter().map(|c| Subject {
            pairs: format!("{},{of_pod}", pairs(&[("container", &c.name)])),
            usage: &c.usage,
            started: c.started,
        }));
        pods.push(Subject {
            pairs: of_pod,
            usage: &pod.usage,
            started: None,
        });
    }
    let node = [Subject {
        pairs: String::new(),
        usage: &figures.node.usage,
        started: None,
    }];
    for family in OF_NODE {
        write_family(family, "", &node, at, out);
    }
    let help = "Start time of the container since unix epoch in seconds";
    write_starts(help, &containers, out);
    for family in OF_CONTAINERS {
        write_family(family, "", &containers, at, out);
    }
    for family in OF_PODS {
        write_family(family, "", &pods, at, out);
    }
}
