//! Writes cAdvisor's metrics from the figures that were read: the series that common dashboards read.
//!
//! Invariants: the invariants of text.rs hold.

use std::time::{Duration, SystemTime};

use super::parse::{Interface, Io, Throttling, Traffic};
use super::text::{
    OfCgroup, Subject, cpu, cpu_usage, memory, milliseconds, seconds, swap, unix, working_set,
    write_family, write_starts,
};
use super::{Figures, PodUsage, Usage};
use crate::base::metrics::{Family, Kind, pairs};

fn throttling(usage: &Usage, of: fn(&Throttling) -> f64) -> Option<f64> {
    usage.throttling.as_ref().map(of)
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
        // 0 in a metric means no limit
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

/// Returns the body of `/metrics/cadvisor`: the series that common dashboards read.
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
    write_io(&subjects, at, &mut out);
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

/// Returns the cgroups of the node, the pods and the containers, each with its labels. Labels that a pod or the node
/// does not have are empty, so that `image!=""` selects only containers.
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
    let booted = figures.node.booted.map(Duration::from_secs);
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

fn write_io(subjects: &[Subject<'_>], at: i64, out: &mut String) {
    type Value = fn(&Io) -> u64;
    let families: [(&str, &str, Value); 4] = [
        (
            "container_fs_reads_bytes_total",
            "Cumulative count of bytes read",
            |io| io.read_bytes,
        ),
        (
            "container_fs_reads_total",
            "Cumulative count of reads completed",
            |io| io.reads,
        ),
        (
            "container_fs_writes_bytes_total",
            "Cumulative count of bytes written",
            |io| io.write_bytes,
        ),
        (
            "container_fs_writes_total",
            "Cumulative count of writes completed",
            |io| io.writes,
        ),
    ];
    for (name, help, value) in families {
        let mut family = Family::new(out, name, Kind::Counter, help).at(at);
        for s in subjects {
            for io in &s.usage.io {
                let device = format!(",{}", pairs(&[("device", &io.device)]));
                family.value_of(&[&s.pairs, &device], value(io));
            }
        }
    }
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
