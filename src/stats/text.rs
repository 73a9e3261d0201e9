//! The kubelet's resource metrics and cAdvisor's, from figures.
//!
//! Invariants: pure. Every sample has the time of the reading, as the kubelet's; so a scrape that comes late is no newer.

use std::time::SystemTime;

use super::parse::{Cpu, Interface, Memory, Throttling, Traffic};
use super::{Figures, PodUsage, Usage};
use crate::metrics::{Family, Kind, pairs};

/// Name, kind, help and value of a family of cgroups.
type OfCgroup = (&'static str, Kind, &'static str, fn(&Usage) -> Option<f64>);

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn cpu(usage: &Usage, of: fn(&Cpu) -> Option<u64>) -> Option<f64> {
    of(usage.cpu.as_ref()?).map(seconds)
}

fn memory(usage: &Usage, of: fn(&Memory) -> Option<u64>) -> Option<f64> {
    of(usage.memory.as_ref()?).map(|bytes| bytes as f64)
}

fn throttling(usage: &Usage, of: fn(&Throttling) -> f64) -> Option<f64> {
    usage.throttling.as_ref().map(of)
}

fn cpu_usage(usage: &Usage) -> Option<f64> {
    cpu(usage, |cpu| Some(cpu.usage))
}

fn working_set(usage: &Usage) -> Option<f64> {
    memory(usage, |m| Some(m.working_set))
}

fn swap(usage: &Usage) -> Option<f64> {
    memory(usage, |m| m.swap)
}

/// A cgroup and its labels.
struct Subject<'a> {
    pairs: String,
    usage: &'a Usage,
    started: Option<SystemTime>,
}

fn milliseconds(at: SystemTime) -> i64 {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn unix(at: SystemTime) -> f64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

fn write_family(
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

/// Without a time, as the kubelet: the value is older than any scrape.
fn write_starts(help: &str, subjects: &[Subject<'_>], out: &mut String) {
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

const OF_CONTAINERS: [OfCgroup; 3] = [
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

/// The body of `/metrics/resource`, which metrics-server reads. Without figures it says that there was an error.
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

const CADVISOR: [OfCgroup; 16] = [
    (
        "container_cpu_user_seconds_total",
        Kind::Counter,
        "Cumulative user cpu time consumed in seconds.",
        |u| cpu(u, |cpu| cpu.user),
    ),
    (
        "container_cpu_system_seconds_total",
        Kind::Counter,
        "Cumulative system cpu time consumed in seconds.",
        |u| cpu(u, |cpu| cpu.system),
    ),
    (
        "container_cpu_cfs_periods_total",
        Kind::Counter,
        "Number of elapsed enforcement period intervals.",
        |u| throttling(u, |t| t.periods as f64),
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        Kind::Counter,
        "Number of throttled period intervals.",
        |u| throttling(u, |t| t.throttled as f64),
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        Kind::Counter,
        "Total time duration the container has been throttled.",
        |u| throttling(u, |t| seconds(t.time)),
    ),
    (
        "container_memory_usage_bytes",
        Kind::Gauge,
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        |u| memory(u, |m| Some(m.usage)),
    ),
    (
        "container_memory_working_set_bytes",
        Kind::Gauge,
        "Current working set in bytes.",
        working_set,
    ),
    (
        "container_memory_rss",
        Kind::Gauge,
        "Size of RSS in bytes.",
        |u| memory(u, |m| Some(m.rss)),
    ),
    (
        "container_memory_cache",
        Kind::Gauge,
        "Number of bytes of page cache memory.",
        |u| memory(u, |m| m.cache),
    ),
    (
        "container_memory_mapped_file",
        Kind::Gauge,
        "Size of memory mapped files in bytes.",
        |u| memory(u, |m| m.mapped_file),
    ),
    (
        "container_memory_swap",
        Kind::Gauge,
        "Container swap usage in bytes.",
        swap,
    ),
    (
        "container_oom_events_total",
        Kind::Counter,
        "Count of out of memory events observed for the container",
        |u| u.oom_kills.map(|n| n as f64),
    ),
    (
        "container_spec_cpu_period",
        Kind::Gauge,
        "CPU period of the container.",
        |u| u.spec?.period.map(|n| n as f64),
    ),
    (
        "container_spec_cpu_quota",
        Kind::Gauge,
        "CPU quota of the container.",
        |u| u.spec?.quota.map(|n| n as f64),
    ),
    (
        "container_spec_cpu_shares",
        Kind::Gauge,
        "CPU share of the container.",
        |u| u.spec?.shares.map(|n| n as f64),
    ),
    (
        "container_spec_memory_limit_bytes",
        Kind::Gauge,
        "Memory limit for the container.",
        // 0 is no limit
        |u| {
            u.spec?;
            memory(u, |m| Some(m.limit.unwrap_or(0)))
        },
    ),
];

const CADVISOR_CPU: OfCgroup = (
    "container_cpu_usage_seconds_total",
    Kind::Counter,
    "Cumulative cpu time consumed in seconds.",
    cpu_usage,
);

/// The body of `/metrics/cadvisor`: the series that common dashboards read.
pub fn cadvisor(figures: &Figures) -> String {
    let mut out = String::new();
    let at = milliseconds(figures.at);
    let subjects = subjects(figures);
    write_family(CADVISOR_CPU, ",cpu=\"total\"", &subjects, at, &mut out);
    for family in CADVISOR {
        write_family(family, "", &subjects, at, &mut out);
    }
    let help = "Start time of the container since unix epoch in seconds.";
    write_starts(help, &subjects, &mut out);
    let help = "Last time a container was seen by the exporter";
    let mut family = Family::new(&mut out, "container_last_seen", Kind::Gauge, help).at(at);
    for s in &subjects {
        family.real_of(&[&s.pairs], unix(figures.at).floor());
    }
    write_network(figures, at, &mut out);
    for (name, help, value) in [
        (
            "machine_cpu_cores",
            "Number of logical CPU cores.",
            figures.node.processors,
        ),
        (
            "machine_memory_bytes",
            "Amount of memory installed on the machine.",
            figures.node.memory_capacity,
        ),
    ] {
        Family::new(&mut out, name, Kind::Gauge, help).value(&[], value);
    }
    out
}

/// The node, pods and containers. What a pod or the node has no word for is empty, so that `image!=""` finds containers alone.
fn subjects(figures: &Figures) -> Vec<Subject<'_>> {
    let labels = |id: &str, [container, image, name]: [&str; 3], pod: Option<&PodUsage>| {
        pairs(&[
            ("container", container),
            ("id", id),
            ("image", image),
            ("name", name),
            ("namespace", pod.map_or("", |p| &p.namespace)),
            ("pod", pod.map_or("", |p| &p.name)),
        ])
    };
    let node = &figures.node.usage;
    let booted = figures.node.booted.map(std::time::Duration::from_secs);
    let mut all = vec![Subject {
        pairs: labels(&node.id, [""; 3], None),
        usage: node,
        started: booted.map(|t| SystemTime::UNIX_EPOCH + t),
    }];
    for pod in &figures.pods {
        all.push(Subject {
            pairs: labels(&pod.usage.id, [""; 3], Some(pod)),
            usage: &pod.usage,
            started: Some(pod.started),
        });
        all.extend(pod.containers.iter().map(|c| Subject {
            pairs: labels(&c.usage.id, [&c.name, &c.image, &c.id], Some(pod)),
            usage: &c.usage,
            started: c.started,
        }));
    }
    all
}

fn write_network(figures: &Figures, at: i64, out: &mut String) {
    type Value = fn(&Traffic) -> u64;
    type Direction = (&'static str, fn(&Interface) -> &Traffic);
    let directions: [Direction; 2] = [("receive", |i| &i.rx), ("transmit", |i| &i.tx)];
    let values: [(&str, &str, Value); 4] = [
        ("bytes_total", "bytes", |t| t.bytes),
        (
            "errors_total",
            "errors encountered while handling packets",
            |t| t.errors,
        ),
        ("packets_dropped_total", "packets dropped", |t| t.dropped),
        ("packets_total", "packets", |t| t.packets),
    ];
    let of_pods = figures
        .pods
        .iter()
        .map(|p| (&p.usage.id, Some(p), &p.network));
    let node = (&figures.node.usage.id, None, &figures.node.network);
    let each = |(id, pod, interfaces): (&'_ String, Option<&PodUsage>, &'_ Vec<Interface>)| {
        let labels = |i: &Interface| {
            pairs(&[
                ("container", ""),
                ("id", id),
                ("image", ""),
                ("interface", &i.name),
                ("name", ""),
                ("namespace", pod.map_or("", |p| &p.namespace)),
                ("pod", pod.map_or("", |p| &p.name)),
            ])
        };
        let all = interfaces.iter().map(|i| (labels(i), i.clone()));
        all.collect::<Vec<_>>()
    };
    let all: Vec<(String, Interface)> = [node].into_iter().chain(of_pods).flat_map(each).collect();
    for (direction, traffic) in directions {
        for (suffix, what, value) in values {
            let name = format!("container_network_{direction}_{suffix}");
            let verb = if direction == "receive" {
                "received"
            } else {
                "transmitted"
            };
            let help = format!("Cumulative count of {what} {verb}");
            let mut family = Family::new(out, &name, Kind::Counter, &help).at(at);
            for (pairs, interface) in &all {
                family.value_of(&[pairs], value(traffic(interface)));
            }
        }
    }
}
