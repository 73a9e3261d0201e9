//! What real pods may use: weights and limits of a pod as a whole, and a container's limits beside those that it asks for.
//! On the embedded runtime and again on runc. Needs root and a static busybox.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use podprobe::api::Pod;
use podprobe::base::sys::cgroup::Cgroups;
use podprobe::daemon::settings::Settings;
use podprobe::engine::shims::state::{ContainerState, STATE, SandboxState};
use serde_json::{Value, json};

use crate::support::oom_score::{lowest_oom_score, oom_score};
use crate::support::running::Running;
use crate::support::skip::{has, skip};
use crate::support::{Node, on_both, pod, sh, wait_until};

/// The first of these files that a controller has of a cgroup.
fn value(controller: &str, cgroup: &str, files: [&str; 2]) -> Option<String> {
    let dir = Cgroups::detect()
        .unwrap()
        .controller_dir(controller, cgroup);
    let dir = dir?;
    let read = |file: &&str| fs::read_to_string(dir.join(file)).ok();
    files.iter().find_map(read).map(|t| t.trim().to_owned())
}

fn of_pod(node: &Node, pod: &Pod, controller: &str, files: [&str; 2]) -> Option<String> {
    value(controller, &node.layout.pod_cgroup(pod.uid()), files)
}

fn busy(name: &str, cpu: Option<&str>) -> Value {
    let mut container = sh(name, "echo up; while :; do :; done");
    container["resources"] = match cpu {
        Some(cpu) => json!({"requests": {"cpu": cpu}}),
        None => json!({}),
    };
    json!({"containers": [container]})
}

fn a_pod_has_the_weight_and_limits_of_its_containers(node: &Node) {
    let mut containers = [
        sh("a", "echo up; exec sleep 1000"),
        sh("b", "exec sleep 1000"),
    ];
    containers[0]["resources"] =
        json!({"limits": {"cpu": "500m", "memory": "32Mi"}, "requests": {"cpu": "250m"}});
    containers[1]["resources"] = json!({"limits": {"cpu": "1", "memory": "16Mi"}});
    let c = Running::start(node, "limited", &json!({"containers": containers}));
    let weight = of_pod(node, &c.pod, "cpu", ["cpu.weight", "cpu.shares"]);
    if weight.is_none() {
        return skip("needs a cpu controller");
    }
    let weight = weight.unwrap();
    assert!(["119", "1280"].contains(&weight.as_str()), "{weight}");
    let quota = of_pod(node, &c.pod, "cpu", ["cpu.max", "cpu.cfs_quota_us"]);
    let quota = quota.unwrap();
    assert!(quota.starts_with("150000"), "{quota}");
    let memory = of_pod(
        node,
        &c.pod,
        "memory",
        ["memory.max", "memory.limit_in_bytes"],
    );
    assert_eq!(memory.unwrap(), (48 << 20).to_string());
    let all = value("cpu", &node.layout.cgroup(), ["cpu.weight", "cpu.shares"]);
    let all: u64 = all.unwrap().parse().unwrap();
    assert!(all >= 100, "{all}");
    c.end();
}

/// Pins a process and what it starts to the first processor that it may use.
fn pin(pid: i32) {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    let pid = nix::unistd::Pid::from_raw(pid);
    let may = sched_getaffinity(pid).unwrap();
    let first = (0..CpuSet::count()).find(|n| may.is_set(*n).unwrap());
    let mut one = CpuSet::new();
    one.set(first.unwrap()).unwrap();
    sched_setaffinity(pid, &one).unwrap();
}

/// Nanoseconds of a pod.
fn used(node: &Node, pod: &Pod) -> u64 {
    let v1 = of_pod(node, pod, "cpuacct", ["cpuacct.usage", "cpuacct.usage"]);
    let v2 = || {
        let text = of_pod(node, pod, "cpu", ["cpu.stat", "cpu.stat"]).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("usage_usec "));
        line.unwrap().parse::<u64>().unwrap() * 1000
    };
    v1.map_or_else(v2, |text| text.parse().unwrap())
}

/// Three pods on one processor until the heaviest has used half a second: by their requests they get 100 : 10 : 0.2 parts.
fn pods_share_a_processor_by_their_requests(node: &Node) {
    let rt = node.runtime();
    let start = |(name, cpu): (&str, Option<&str>)| {
        let pod = pod(name, busy("main", cpu));
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let id = rt.start_container(&pod, &sandbox, &pod.spec.containers[0], 0);
        let state: ContainerState = node.record(&id.unwrap(), STATE);
        pin(state.process.unwrap().pid);
        pod
    };
    let pods = [
        ("heavy", Some("1")),
        ("light", Some("100m")),
        ("none", None),
    ]
    .map(start);
    let so_far = |pod: &Pod| used(node, pod);
    let at_first = [0, 1, 2].map(|n| so_far(&pods[n]));
    wait_until("the heavy pod to use half a second", || {
        so_far(&pods[0]) - at_first[0] > 500_000_000
    });
    let parts = [0, 1, 2].map(|n| so_far(&pods[n]) - at_first[n]);
    for pod in &pods {
        node.remove_pod(&rt, pod);
    }
    assert!(
        parts[0] > parts[1] * 2 && parts[1] > parts[2],
        "nanoseconds of 1, 100m and nothing: {parts:?}"
    );
}

fn a_pod_has_no_more_processes_than_the_configuration_gives(node: &Node) {
    let limited = Node {
        dir: node.dir.clone(),
        layout: node.layout.clone(),
        settings: Settings {
            pod_pids_limit: Some(12),
            ..node.settings.clone()
        },
    };
    if value("pids", "/", ["cgroup.procs", "cgroup.procs"]).is_none() {
        return skip("needs a pids controller");
    }
    // A shell that cannot fork ends.
    let script = "i=0; while [ $i -lt 40 ]; do sleep 1000 & i=$((i+1)); done; echo all";
    let spec = json!({"containers": [sh("a", "echo up; exec sleep 1000"), sh("b", script)]});
    let c = Running::start(&limited, "many", &spec);
    assert_eq!(
        of_pod(node, &c.pod, "pids", ["pids.max", "pids.max"]).unwrap(),
        "12"
    );
    let status = c.rt.pod_status(c.pod.uid()).unwrap();
    let sandbox = status.sandboxes[0].id.clone();
    let second =
        c.rt.start_container(&c.pod, &sandbox, &c.pod.spec.containers[1], 0);
    let ended = node.wait_exit(&c.rt, &c.pod, &second.unwrap());
    let log = fs::read_to_string(&ended.log_path).unwrap();
    assert!(log.contains("can't fork") && !log.contains("all"), "{log}");
    c.end();
}

/// Of the container's own cgroup.
fn of_container(c: &Running<'_>, file: &str) -> Option<String> {
    let state: ContainerState = c.node.record(&c.id, STATE);
    let mut files = state.cgroups.iter().map(|dir: &PathBuf| dir.join(file));
    let text = files.find_map(|file| fs::read_to_string(file).ok())?;
    Some(text.trim().to_owned())
}

fn a_container_with_a_memory_limit_is_not_swapped_out(node: &Node) {
    let mut container = sh("main", "echo up; exec sleep 1000");
    container["resources"] = json!({"limits": {"memory": "32Mi"}});
    let c = Running::start(node, "no-swap", &json!({"containers": [container]}));
    let (v2, v1) = ("memory.swap.max", "memory.memsw.limit_in_bytes");
    match (of_container(&c, v2), of_container(&c, v1)) {
        (Some(most), _) => assert_eq!(most, "0"),
        (_, Some(most)) => assert_eq!(most, (32 << 20).to_string()),
        _ => skip("needs a kernel that counts swap"),
    }
    c.end();
}

/// What a container's first process and a command in it have: limits of open files, umask, nice, class of scheduling,
/// processors, class of input and output, and all other limits.
fn a_container_inherits_nothing_of_the_daemon_s_limits(node: &Node) {
    let tools = ["chrt", "taskset", "ionice"];
    if !tools.iter().all(|tool| has(tool, "util-linux")) {
        return;
    }
    let script = "ulimit -Sn; ulimit -Hn; umask; cut -d ' ' -f 19 /proc/self/stat; cut -d ' ' -f 41 /proc/self/stat
        grep Cpus_allowed_list /proc/self/status; ionice; grep -v files /proc/self/limits";
    // The test stands for a daemon whose service manager has changed all of it.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(600), hard).unwrap();
    umask(Mode::from_bits_truncate(0o077));
    let thread = nix::unistd::gettid().to_string();
    for line in [
        "renice -n 5 -p",
        "chrt --batch --pid 0",
        "taskset -p 1",
        "ionice -c 3 -p",
    ] {
        let words: Vec<&str> = line.split(' ').chain([thread.as_str()]).collect();
        let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
    }
    // The same for each of the other limits: half of what it is, or less.
    let others = [
        Resource::RLIMIT_CORE,
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_MEMLOCK,
        Resource::RLIMIT_MSGQUEUE,
        Resource::RLIMIT_NPROC,
        Resource::RLIMIT_SIGPENDING,
        Resource::RLIMIT_STACK,
    ];
    for resource in others {
        let (soft, hard) = getrlimit(resource).unwrap();
        setrlimit(resource, (soft / 2).min(1 << 40), hard).unwrap();
    }
    let main = sh("main", &format!("{script}; echo up; exec sleep 1000"));
    let c = Running::start(node, "inherits", &json!({"containers": [main]}));
    let (code, of_command) = c.sh(script);
    let status = c.rt.pod_status(c.pod.uid()).unwrap();
    let log = fs::read_to_string(&status.containers[0].log_path).unwrap();
    c.end();
    let first_process = |file: &str| fs::read_to_string(format!("/proc/1/{file}")).unwrap();
    let processors = first_process("status");
    let processors = processors
        .lines()
        .find(|l| l.starts_with("Cpus_allowed_list"));
    let most = |limit: u64| limit.min(hard).to_string();
    let usual = ["0022", "0", "0"].map(str::to_owned);
    let mut expected = [&[most(1024), most(524_288)][..], &usual].concat();
    expected.push(words_of(processors.unwrap()));
    expected.push("none: prio 0".to_owned());
    expected.extend(first_process("limits").lines().map(words_of));
    // What this test may not raise stays lower.
    let own = fs::read_to_string("/proc/self/limits").unwrap();
    let hard_limits = |text: &str| -> Vec<Option<String>> {
        let rows = text.lines().map(words_of);
        rows.map(|row| row.rsplit(' ').nth(1).map(str::to_owned))
            .collect()
    };
    let pairs = hard_limits(&own)
        .into_iter()
        .zip(hard_limits(&first_process("limits")));
    let rows = own.lines().zip(pairs);
    let lower = rows.filter(|(row, (own, first))| own != first || row.contains("open files"));
    let lower: Vec<String> = lower
        .map(|(row, _)| words_of(row)[..14].to_owned())
        .collect();
    assert!(lower.len() < 4, "{lower:?}");
    let comparable = |lines: &mut Vec<String>| {
        lines.retain(|line| !lower.iter().any(|name| line.starts_with(name.as_str())));
    };
    comparable(&mut expected);
    let mut of_command: Vec<String> = of_command.lines().map(words_of).collect();
    comparable(&mut of_command);
    assert_eq!((code, &of_command), (0, &expected));
    let of_first = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
    let mut of_first: Vec<String> = of_first.map(words_of).collect();
    comparable(&mut of_first);
    expected.push("up".to_owned());
    assert_eq!(of_first, expected);
}

/// The line with one space between its words.
fn words_of(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At the kubelet's score, or as low as this machine allows.
fn what_keeps_pods_is_killed_last(node: &Node) {
    let c = Running::start(
        node,
        "kept",
        &json!({"containers": [sh("main", "echo up; exec sleep 1000")]}),
    );
    let state: ContainerState = node.record(&c.id, STATE);
    let sandbox = c.rt.pod_status(c.pod.uid()).unwrap().sandboxes[0]
        .id
        .clone();
    let dir = node.layout.sandboxes().join(sandbox.as_str());
    let holder: SandboxState = podprobe::engine::shims::state::read(&dir, STATE).unwrap();
    let scores = [state.shim.pid, holder.process.pid].map(oom_score);
    c.end();
    assert_eq!(scores, [lowest_oom_score(); 2]);
}

on_both!(
    a_pod_has_the_weight_and_limits_of_its_containers,
    pods_share_a_processor_by_their_requests,
    a_pod_has_no_more_processes_than_the_configuration_gives,
    a_container_with_a_memory_limit_is_not_swapped_out,
    what_keeps_pods_is_killed_last;
    alone: a_container_inherits_nothing_of_the_daemon_s_limits
);
