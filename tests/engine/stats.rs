//! What a real container uses, as the kernel of this machine counts it. Needs root and a static busybox.

use std::fs;
use std::sync::Arc;

use podprobe::engine::runtime::RuntimePodStatus;
use podprobe::engine::shims::state::{ContainerState, STATE};
use podprobe::engine::stats::{Detail, Figures, Reader, Stats, cadvisor, resource};
use serde_json::json;

use crate::support::running::Running;
use crate::support::{Node, on_both, sh};

const MIB: u64 = 1 << 20;

fn figures(c: &Running<'_>, detail: Detail) -> Figures {
    let status: Arc<RuntimePodStatus> = c.rt.pod_status(c.pod.uid()).unwrap().into();
    let stats = Stats::new(Reader::new(c.node.layout.clone()));
    stats.figures(&[status], detail).unwrap()
}

/// Nanoseconds of the container's cgroup, read in the first of its directories that has them.
fn processor_time(c: &Running<'_>) -> u64 {
    let state: ContainerState = c.node.record(&c.id, STATE);
    let v1 = state.cgroups.iter().map(|dir| dir.join("cpuacct.usage"));
    let v1 = v1
        .into_iter()
        .find_map(|file| fs::read_to_string(file).ok());
    if let Some(text) = v1 {
        return text.trim().parse().unwrap();
    }
    let v2 = |dir: &std::path::PathBuf| {
        let text = fs::read_to_string(dir.join("cpu.stat")).ok()?;
        let value = text.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
        Some(value.trim().parse::<u64>().unwrap() * 1000)
    };
    state.cgroups.iter().find_map(v2).unwrap()
}

fn a_container_uses_what_the_kernel_counts(node: &Node) {
    let script = "head -c 8388608 /dev/zero > /dev/shm/full; i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo up; exec sleep 100000";
    let mut container = sh("main", script);
    container["resources"] = json!({"limits": {"memory": "32Mi", "cpu": "250m"}});
    let c = Running::start(node, "busy", &json!({"containers": [container]}));
    let before = processor_time(&c);
    let read = figures(&c, Detail::All);
    let after = processor_time(&c);
    let pod = &read.pods[0];
    let of_container = &pod.containers[0];
    assert_eq!(
        (of_container.name.as_str(), pod.containers.len()),
        ("main", 1)
    );
    assert_eq!(of_container.id, c.id.as_str());
    let cpu = of_container.usage.cpu.unwrap();
    assert!(
        (before..=after).contains(&cpu.usage),
        "{before} {cpu:?} {after}"
    );
    assert!(cpu.usage > 1_000_000, "fifty thousand rounds take longer");
    assert!(
        pod.usage.cpu.unwrap().usage >= cpu.usage,
        "the pod's has it"
    );
    let memory = of_container.usage.memory.unwrap();
    assert!(
        (8 * MIB..=32 * MIB).contains(&memory.working_set),
        "{memory:?}"
    );
    assert_eq!(memory.limit, Some(32 * MIB));
    assert!(pod.usage.memory.unwrap().usage >= 8 * MIB);
    let spec = of_container.usage.spec.unwrap();
    assert_eq!((spec.quota, spec.period), (Some(25_000), Some(100_000)));
    assert!((250..=260).contains(&spec.shares.unwrap()), "{spec:?}");
    assert_eq!(of_container.usage.oom_kills, Some(0));
    assert_eq!(pod.network, [], "loopback does not count");
    let labels = "container=\"main\",namespace=\"default\",pod=\"busy\"}";
    let text = resource(Some(&figures(&c, Detail::CpuAndMemory)));
    for name in [
        "container_cpu_usage_seconds_total",
        "container_memory_working_set_bytes",
        "container_start_time_seconds",
    ] {
        assert!(
            text.contains(&format!("{name}{{{labels}")),
            "{name}\n{text}"
        );
    }
    assert!(cadvisor(&read).contains("image=\"busybox:test\""));
    let (rt, pod) = (node.runtime(), c.pod.clone());
    c.end();
    let status: Arc<RuntimePodStatus> = rt.pod_status(pod.uid()).unwrap().into();
    let stats = Stats::new(Reader::new(node.layout.clone()));
    let gone = stats.figures(&[status], Detail::All).unwrap();
    assert_eq!(gone.pods, [], "it has ended");
}

on_both! { a_container_uses_what_the_kernel_counts }
