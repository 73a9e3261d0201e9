//! Limits, memory and processor time, on a node with cgroup v2 alone and with one hierarchy of v1 beside it.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::case::{Not, Verdict, equal, until};
use crate::node::{Node, Process, processes, read};
use crate::pods::{Files, container};
use crate::sys;

const LIMITS: &str = "    resources: {limits: {memory: 64Mi, cpu: 500m}}";

pub fn limits(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.tool("limits", &["idle", "limits"], LIMITS)?;
    node.wait_ready(&["limits"])?;
    are_set("limits")?;
    Ok(files.end()?)
}

fn are_set(pod: &str) -> Result<(), String> {
    let process = Process::of(&["idle", pod])?;
    equal(
        "memory.max",
        &process.cgroup_file("memory.max")?,
        "67108864",
    )?;
    equal("cpu.max", &process.cgroup_file("cpu.max")?, "50000 100000")
}

pub fn out_of_memory(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let limit = "    resources: {limits: {memory: 32Mi}}";
    files.tool("greedy", &["eat", "100"], limit)?;
    is_restarted_for_memory(node, "greedy")?;
    Ok(files.end()?)
}

/// The container's first process lives on when the kernel ends a worker alone.
pub fn out_of_memory_of_a_worker(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let limit = "    resources: {limits: {memory: 32Mi}}";
    files.tool("worker", &["worker", "100"], limit)?;
    is_restarted_for_memory(node, "worker")?;
    Ok(files.end()?)
}

fn is_restarted_for_memory(node: &Node, pod: &str) -> Result<(), String> {
    until("a restart with OOMKilled", || {
        let of = |path: &str| node.field(pod, &format!(".status.containerStatuses[0].{path}"));
        let last = of("lastState.terminated.reason").unwrap_or_default();
        if last == "OOMKilled" && of("restartCount")? != "0" {
            Ok(())
        } else {
            Err(format!(
                "{last:?}, {}, {:?}",
                node.states(pod),
                node.ask(&["logs", pod])
            ))
        }
    })
}

pub fn no_swap(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.tool("swap", &["idle", "swap"], LIMITS)?;
    node.wait_ready(&["swap"])?;
    let process = Process::of(&["idle", "swap"])?;
    equal(
        "memory.swap.max",
        &process.cgroup_file("memory.swap.max")?,
        "0",
    )?;
    Ok(files.end()?)
}

/// Pods that compete for the processor get it in proportion to their requests.
pub fn cpu_weights(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let request = |cpu: &str| format!("    resources: {{requests: {{cpu: {cpu}}}}}");
    files.tool("much", &["burn", "much"], &request("600m"))?;
    files.tool("little", &["burn", "little"], &request("60m"))?;
    node.wait_ready(&["much", "little"])?;
    let (much, little) = (
        Process::of(&["burn", "much"])?,
        Process::of(&["burn", "little"])?,
    );
    let used = || -> Result<(u64, u64), String> { Ok((used(much)?, used(little)?)) };
    let before = used()?;
    thread::sleep(Duration::from_secs(1));
    let after = used()?;
    let (much, little) = (after.0 - before.0, (after.1 - before.1).max(1));
    // 614 and 61 shares.
    if much < little * 4 || much > little * 25 {
        return Err(format!("600m and 60m had {much} and {little} µs of the processor").into());
    }
    Ok(files.end()?)
}

fn used(process: Process) -> Result<u64, String> {
    let text = process.cgroup_file("cpu.stat")?;
    let value = text.lines().find_map(|l| l.strip_prefix("usage_usec "));
    value.and_then(|v| v.parse().ok()).ok_or(text)
}

/// The process that keeps a shared process namespace is under the pod's limits, and filtered.
pub fn pause_in_the_pods_cgroup(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let spec = container("c", &["idle", "shared"], LIMITS);
    files.pod(
        "shared",
        &format!("  shareProcessNamespace: true\n  containers:\n{spec}"),
    )?;
    node.wait_ready(&["shared"])?;
    let container = Process::of(&["idle", "shared"])?;
    let namespace = container.namespace("pid");
    let first = processes().into_iter().find(|p| {
        p.namespace("pid") == namespace && p.status("NSpid").split_whitespace().last() == Some("1")
    });
    let first = first.ok_or("no first process in the pod's namespace")?;
    let cgroup = container.cgroup()?;
    let pod = cgroup.rsplit_once('/').map_or("", |(parent, _)| parent);
    let its = first.cgroup()?;
    if first == container || !its.starts_with(&format!("{pod}/")) {
        return Err(format!("pid 1 of the pod is in {its}, the container in {cgroup}").into());
    }
    equal("Seccomp of the pod's pid 1", &first.status("Seccomp"), "2")?;
    Ok(files.end()?)
}

/// VPN clients mount net_cls there.
pub fn v1_hierarchy_beside_v2(node: &Node) -> Verdict {
    let place = "/sys/fs/cgroup/net_cls";
    fs::create_dir_all(place).map_err(|e| format!("{place}: {e}"))?;
    if let Err(e) = sys::mount_at("net_cls", place, "cgroup", 0, "net_cls") {
        let _ = fs::remove_dir(place);
        return Err(Not::Tried(format!("this kernel has no net_cls: {e}")));
    }
    let verdict = beside_v2(node);
    let mut over = crate::pods::no_pods(node);
    // A hierarchy of v1 lives on as long as it has groups of pods, which the kernel ends a moment after them.
    over = over.and(until("the end of net_cls", || {
        sys::unmount(place).map_err(|e| e.to_string())
    }));
    let _ = fs::remove_dir(place);
    verdict.and_then(|()| Ok(over?))
}

fn beside_v2(node: &Node) -> Verdict {
    let config = read("/etc/podprobe/config.json")?;
    for restarted in [false, true] {
        if restarted {
            node.stop()?;
            node.start(&config)?;
        }
        let mut files = Files::new(node);
        files.tool("beside", &["idle", "beside"], LIMITS)?;
        node.wait_ready(&["beside"])?;
        are_set("beside")?;
        equal(
            "a command",
            &node.exec("beside", &["/busybox", "echo", "in"]).out,
            "in\n",
        )?;
        files.end()?;
    }
    crate::running::check_host(node)
}
