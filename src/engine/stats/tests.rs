//! Tests that read figures from files of the tests, which look like those of the kernel.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::base::paths::Layout;
use crate::base::sys::cgroup::Cgroups;
use crate::base::sys::mountinfo;
use crate::engine::runtime::{RuntimeContainerStatus, RuntimeSandboxStatus, RuntimeState};
use crate::fake_runtime::runtime_container_status;

/// The files from which the figures of a machine are read, in a temporary directory.
struct Machine {
    dir: tempfile::TempDir,
    mounts: String,
}

const STARTED: Duration = Duration::from_millis(1_700_000_000_500);

impl Machine {
    fn new(mounts: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let line = |(at, kind): &(&str, &str)| {
            let (kind, options) = kind.split_once(' ').unwrap_or((kind, "rw"));
            let at = dir.path().join("cgroup").join(at);
            format!(
                "25 1 0:22 / {} rw - {kind} {kind} {options}\n",
                at.display()
            )
        };
        let mounts = mounts.iter().map(line).collect();
        let machine = Self { dir, mounts };
        machine.file(
            "proc/stat",
            "cpu  100 0 100 1000 0 0 0 0 0 0\nbtime 1700000000\n",
        );
        let meminfo =
            "MemTotal: 1000 kB\nMemFree: 400 kB\nInactive(file): 100 kB\nAnonPages: 50 kB\n";
        machine.file("proc/meminfo", meminfo);
        machine.file(
            "proc/self/net/dev",
            "eth1: 1 1 0 0 0 0 0 0 2 1 0 0\nppvabc: 1 1 0 0 0 0 0 0 2 1 0 0\n",
        );
        let route = "Iface D G F R U M Mask\neth1 00000000 1 3 0 0 0 00000000 0 0 0\n";
        machine.file("proc/self/net/route", route);
        machine.file("proc/sys/kernel/pid_max", "32768\n");
        machine.file("proc/loadavg", "0 0 0 1/77 9\n");
        machine.file(
            "proc/42/net/dev",
            "lo: 9 9 0 0 0 0 0 0 9 9 0 0\neth0: 10 1 2 3 0 0 0 0 20 4 5 6\n",
        );
        machine
    }

    fn v2() -> Self {
        let machine = Self::new(&[("", "cgroup2")]);
        for (of, n) in [("podprobe/u", 3), ("podprobe/u/c-1", 2)] {
            let file = |name: &str, text: &str| machine.file(&format!("cgroup/{of}/{name}"), text);
            let time = n * 1_000_000;
            let stat = format!(
                "usage_usec {time}\nuser_usec 7\nsystem_usec 8\nnr_periods 4\nnr_throttled 1\nthrottled_usec 500000\n"
            );
            file("cpu.stat", &stat);
            file("cpu.max", "25000 100000\n");
            file("cpu.weight", "1\n");
            file("memory.current", &format!("{}\n", n * 1000));
            file(
                "memory.stat",
                "anon 700\nfile 300\nfile_mapped 20\ninactive_file 400\npgfault 9\npgmajfault 2\n",
            );
            file("memory.swap.current", "5\n");
            file("memory.swap.max", "64\n");
            file(
                "io.stat",
                "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n7:1 rbytes=5 wbytes=0 rios=3 wios=0\n",
            );
            file("memory.max", "8000\n");
            file("memory.events", "low 0\noom 3\noom_kill 2\n");
        }
        fs::create_dir(machine.dir.path().join("block")).unwrap();
        let link = machine.dir.path().join("block/8:0");
        std::os::unix::fs::symlink("../../devices/pci/block/sda", link).unwrap();
        machine
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn stats(&self) -> Stats {
        let cgroups = Cgroups::of(mountinfo::parse(&self.mounts));
        let proc = self.dir.path().join("proc");
        Stats::new(Reader::of(Layout::new("/"), proc, cgroups))
    }

    fn figures(&self, detail: Detail) -> Figures {
        let figures = self.stats().figures(&[web().into()], detail).unwrap();
        Figures {
            at: SystemTime::UNIX_EPOCH + STARTED + Duration::from_secs(60),
            ..figures
        }
    }
}

fn container(name: &str, state: RuntimeState, attempt: u32) -> RuntimeContainerStatus {
    RuntimeContainerStatus {
        image: "web:1".into(),
        attempt,
        started_at: Some(SystemTime::UNIX_EPOCH + STARTED),
        pid: (state == RuntimeState::Running).then_some(42),
        log_path: "/var/log/pods/x/c/1.log".into(),
        ..runtime_container_status(name, name, state, 0)
    }
}

fn web() -> RuntimePodStatus {
    let sandbox = RuntimeSandboxStatus {
        id: "s".into(),
        attempt: 0,
        ready: true,
        host_network: false,
        created_at: SystemTime::UNIX_EPOCH + STARTED,
        ips: vec![],
    };
    RuntimePodStatus {
        uid: "u".into(),
        name: "web".into(),
        namespace: "default".into(),
        containers: vec![
            container("c", RuntimeState::Running, 1),
            container("c", RuntimeState::Exited, 0),
            container("done", RuntimeState::Exited, 0),
        ],
        sandboxes: vec![sandbox],
    }
}

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "{line} in\n{text}");
    }
}

#[test]
fn resource_metrics_are_the_kubelet_s_with_the_time_of_the_reading() {
    let text = resource(Some(&Machine::v2().figures(Detail::CpuAndMemory)));
    let of = r#"{container="c",namespace="default",pod="web"}"#;
    let pod = r#"{namespace="default",pod="web"}"#;
    has(
        &text,
        &[
            "node_cpu_usage_seconds_total 2 1700000060500",
            "node_memory_working_set_bytes 512000 1700000060500",
            &format!("container_cpu_usage_seconds_total{of} 2 1700000060500"),
            &format!("container_memory_working_set_bytes{of} 1600 1700000060500"),
            &format!("container_swap_usage_bytes{of} 5 1700000060500"),
            &format!("container_swap_limit_bytes{of} 64 1700000060500"),
            &format!("container_start_time_seconds{of} 1700000000.5"),
            &format!("pod_cpu_usage_seconds_total{pod} 3 1700000060500"),
            &format!("pod_memory_working_set_bytes{pod} 2600 1700000060500"),
            "resource_scrape_error 0",
            "scrape_error 0",
        ],
    );
    assert!(!text.contains("done"), "it does not run:\n{text}");
    has(
        &resource(None),
        &["resource_scrape_error 1", "scrape_error 1"],
    );
}

#[test]
fn cadvisor_s_series_have_its_labels_and_an_image_of_containers_alone() {
    let text = cadvisor(&Machine::v2().figures(Detail::All));
    let place = r#"namespace="default",pod="web""#;
    let c = format!(r#"container="c",id="/podprobe/u/c-1",image="web:1",name="c",{place}"#);
    let pod = format!(r#"container="",id="/podprobe/u",image="",name="",{place}"#);
    let root = r#"container="",id="/",image="",name="",namespace="",pod="""#;
    let net = format!(r#"container="",id="/podprobe/u",image="",interface="eth0",name="",{place}"#);
    let at = 1_700_000_060_500_i64;
    has(
        &text,
        &[
            &format!("container_cpu_usage_seconds_total{{{c},cpu=\"total\"}} 2 {at}"),
            &format!("container_cpu_usage_seconds_total{{{pod},cpu=\"total\"}} 3 {at}"),
            &format!("container_cpu_usage_seconds_total{{{root},cpu=\"total\"}} 2 {at}"),
            &format!("container_cpu_user_seconds_total{{{c}}} 0.000007 {at}"),
            &format!("container_cpu_cfs_periods_total{{{c}}} 4 {at}"),
            &format!("container_cpu_cfs_throttled_periods_total{{{c}}} 1 {at}"),
            &format!("container_cpu_cfs_throttled_seconds_total{{{c}}} 0.5 {at}"),
            &format!("container_memory_usage_bytes{{{c}}} 2000 {at}"),
            &format!("container_memory_working_set_bytes{{{c}}} 1600 {at}"),
            &format!("container_memory_rss{{{c}}} 700 {at}"),
            &format!("container_memory_cache{{{c}}} 300 {at}"),
            &format!("container_memory_mapped_file{{{c}}} 20 {at}"),
            &format!("container_memory_swap{{{c}}} 5 {at}"),
            &format!("container_oom_events_total{{{c}}} 2 {at}"),
            &format!("container_fs_reads_bytes_total{{{c},device=\"/dev/sda\"}} 4096 {at}"),
            &format!("container_fs_reads_total{{{c},device=\"/dev/block/7:1\"}} 3 {at}"),
            &format!("container_fs_writes_bytes_total{{{pod},device=\"/dev/sda\"}} 8192 {at}"),
            &format!("container_fs_writes_total{{{c},device=\"/dev/sda\"}} 2 {at}"),
            &format!("container_spec_cpu_quota{{{c}}} 25000 {at}"),
            &format!("container_spec_cpu_period{{{c}}} 100000 {at}"),
            &format!("container_spec_cpu_shares{{{c}}} 2 {at}"),
            &format!("container_spec_memory_limit_bytes{{{c}}} 8000 {at}"),
            &format!("container_last_seen{{{c}}} 1700000060 {at}"),
            &format!("container_start_time_seconds{{{c}}} 1700000000.5"),
            &format!("container_network_receive_bytes_total{{{net}}} 10 {at}"),
            &format!("container_network_receive_errors_total{{{net}}} 2 {at}"),
            &format!("container_network_receive_packets_dropped_total{{{net}}} 3 {at}"),
            &format!("container_network_transmit_packets_total{{{net}}} 4 {at}"),
            "machine_memory_bytes 1024000",
        ],
    );
    assert!(text.contains("interface=\"eth1\""), "the node's");
    assert!(!text.contains("ppvabc"), "a pod's end is not the node's");
}

/// Each figure of v1 is read from the hierarchy in which the kernel counts it. On v1 there are several hierarchies, and
/// some files have other names than on v2.
#[test]
fn v1_and_hybrid_are_read_from_the_hierarchy_that_counts() {
    let hybrid = [
        ("cpu", "cgroup rw,cpu"),
        ("cpuacct", "cgroup rw,cpuacct"),
        ("memory", "cgroup rw,memory"),
        ("unified", "cgroup2 rw"),
    ];
    for mounts in [&hybrid[..3], &hybrid[..]] {
        let machine = Machine::new(mounts);
        let file = |name: &str, text: &str| machine.file(&format!("cgroup/{name}"), text);
        let (cpu, memory) = ("cpu/podprobe/u/c-1", "memory/podprobe/u/c-1");
        file("cpuacct/podprobe/u/c-1/cpuacct.usage", "2000000000\n");
        file(
            &format!("{cpu}/cpu.stat"),
            "nr_periods 4\nnr_throttled 1\nthrottled_time 7\n",
        );
        file(&format!("{cpu}/cpu.cfs_quota_us"), "-1\n");
        file(&format!("{cpu}/cpu.cfs_period_us"), "100000\n");
        file(&format!("{cpu}/cpu.shares"), "512\n");
        file(&format!("{memory}/memory.usage_in_bytes"), "2000\n");
        file(
            &format!("{memory}/memory.stat"),
            "total_rss 700\ntotal_inactive_file 400\n",
        );
        file(
            &format!("{memory}/memory.limit_in_bytes"),
            "9223372036854771712\n",
        );
        file(
            &format!("{memory}/memory.oom_control"),
            "under_oom 0\noom_kill 3\n",
        );
        file("unified/podprobe/u/c-1/cpu.stat", "usage_usec 1\n");
        let figures = machine.figures(Detail::All);
        let usage = &figures.pods[0].containers[0].usage;
        assert_eq!(usage.cpu.unwrap().usage, 2_000_000_000);
        assert_eq!(usage.throttling.unwrap().time, 7);
        let spec = usage.spec.unwrap();
        assert_eq!(
            (spec.quota, spec.period, spec.shares),
            (None, Some(100_000), Some(512))
        );
        let memory = usage.memory.unwrap();
        assert_eq!(
            (memory.working_set, memory.rss, memory.limit),
            (1600, 700, None)
        );
        assert_eq!(usage.oom_kills, Some(3));
        let text = cadvisor(&figures);
        assert!(!text.contains("container_spec_cpu_quota{"), "-1 is none");
        let limit =
            r#"id="/podprobe/u/c-1",image="web:1",name="c",namespace="default",pod="web"} 0 "#;
        let of_limit = text
            .lines()
            .filter(|l| l.starts_with("container_spec_memory_limit_bytes"));
        assert!(of_limit.into_iter().any(|l| l.contains(limit)), "{text}");
    }
}

#[test]
fn what_is_gone_or_not_counted_is_left_out() {
    let machine = Machine::new(&[("", "cgroup2")]);
    let figures = machine.figures(Detail::All);
    let usage = &figures.pods[0].usage;
    assert_eq!((usage.cpu, usage.memory), (None, None));
    let text = resource(Some(&figures));
    assert!(!text.contains("pod_cpu_usage_seconds_total"), "{text}");
    let nothing = Machine {
        mounts: String::new(),
        dir: tempfile::tempdir().unwrap(),
    };
    let text = resource(Some(&nothing.figures(Detail::All)));
    assert!(
        !text.contains("node_") && text.contains("scrape_error 0"),
        "{text}"
    );
}

#[test]
fn a_pod_without_a_ready_sandbox_has_no_figures_and_a_name_has_one_pod() {
    let machine = Machine::v2();
    let pods = |edit: &dyn Fn(&mut RuntimePodStatus)| {
        let mut other = web();
        other.uid = "v".into();
        edit(&mut other);
        let all = [web().into(), other.into()];
        let figures = machine.stats().figures(&all, Detail::All).unwrap();
        let uids = figures.pods.into_iter().map(|p| p.uid);
        uids.collect::<Vec<_>>()
    };
    assert_eq!(pods(&|p| p.sandboxes[0].ready = false), ["u"]);
    let later = |p: &mut RuntimePodStatus| p.sandboxes[0].created_at += Duration::from_secs(1);
    assert_eq!(pods(&later), ["v"], "the newest");
    assert_eq!(pods(&|p| p.name = "db".into()), ["v", "u"]);
    let mut shared = web();
    shared.sandboxes[0].host_network = true;
    let figures = machine.stats().figures(&[shared.into()], Detail::All);
    assert_eq!(
        figures.unwrap().pods[0].network,
        [],
        "the node's is not the pod's"
    );
}

fn disk() -> Disk {
    Disk {
        available: 40,
        capacity: 100,
        used: 50,
        inodes_free: 7,
        inodes: 10,
    }
}

#[test]
fn the_summary_is_the_kubelet_s() {
    let machine = Machine::v2();
    let stats = machine.stats();
    let figures = machine.figures(Detail::All);
    let now = |s| Moment::from_boot(Duration::from_secs(s));
    assert!(stats.rates(&figures, now(100)).is_empty(), "the first ask");
    machine.file("cgroup/podprobe/u/c-1/cpu.stat", "usage_usec 7000000\n");
    let figures = machine.figures(Detail::All);
    let rates = stats.rates(&figures, now(110));
    let facts = NodeFacts {
        name: "edge".into(),
        fs: Some(disk()),
        images: Some(30),
        logs: Some(disk()),
        log_bytes: [("c".to_owned(), 11)].into(),
    };
    let summary = Summary::new(&figures, &rates, &facts);
    let time = "2023-11-14T22:14:20Z";
    let fs = |used: u64| {
        json!({"time": time, "availableBytes": 40, "capacityBytes": 100, "usedBytes": used,
            "inodesFree": 7, "inodes": 10})
    };
    let interface = |name: &str, n: [u64; 4]| json!({"name": name, "rxBytes": n[0], "rxErrors": n[1], "txBytes": n[2], "txErrors": n[3]});
    let network = |name: &str, n: [u64; 4]| {
        let mut network = interface(name, n);
        network["time"] = time.into();
        network["interfaces"] = json!([interface(name, n)]);
        network
    };
    let memory = |usage: u64, rss: u64| {
        json!({"time": time, "availableBytes": 8000 - (usage - 400), "usageBytes": usage,
            "workingSetBytes": usage - 400, "rssBytes": rss, "pageFaults": 9, "majorPageFaults": 2})
    };
    let mut node_fs = fs(50);
    node_fs["inodesUsed"] = 3.into();
    let cpu = |rate: u64, all: u64| json!({"time": time, "usageNanoCores": rate, "usageCoreNanoSeconds": all});
    let swap = json!({"time": time, "swapUsageBytes": 5});
    let expected = json!({
        "node": {"nodeName": "edge", "startTime": "2023-11-14T22:13:20Z", "cpu": cpu(0, 2_000_000_000),
            "memory": {"time": time, "availableBytes": 512_000, "usageBytes": 614_400, "workingSetBytes": 512_000, "rssBytes": 51_200},
            "network": network("eth1", [1, 0, 2, 0]), "fs": node_fs, "runtime": {"imageFs": fs(30)},
            "rlimit": {"time": time, "maxpid": 32768, "curproc": 77}},
        "pods": [{"podRef": {"name": "web", "namespace": "default", "uid": "u"}, "startTime": "2023-11-14T22:13:20Z",
            "cpu": cpu(0, 3_000_000_000), "memory": memory(3000, 700), "swap": swap, "network": network("eth0", [10, 2, 20, 5]),
            "containers": [{"name": "c", "startTime": "2023-11-14T22:13:20Z", "cpu": cpu(500_000_000, 7_000_000_000),
                "memory": memory(2000, 700), "swap": swap, "logs": fs(11)}]}]});
    assert_eq!(serde_json::to_value(&summary).unwrap(), expected);
}

#[test]
fn only_cpu_and_memory_is_nothing_else() {
    let figures = Machine::v2().figures(Detail::CpuAndMemory);
    let summary = Summary::new(&figures, &HashMap::new(), &NodeFacts::default());
    let value: Value = serde_json::to_value(&summary).unwrap();
    let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&value["node"]),
        ["nodeName", "startTime", "cpu", "memory"]
    );
    let of_pod = ["podRef", "startTime", "containers", "cpu", "memory", "swap"];
    assert_eq!(keys(&value["pods"][0]), of_pod);
    let cpu = &value["pods"][0]["containers"][0]["cpu"];
    assert_eq!(
        keys(cpu),
        ["time", "usageCoreNanoSeconds"].map(str::to_owned)
    );
}

/// Reads the figures of the machine on which the test runs.
#[test]
fn the_real_kernel_is_read() {
    let stats = Stats::new(Reader::new(Layout::new("/")));
    let figures = stats.figures(&[], Detail::All).unwrap();
    let node = figures.node;
    assert!(node.usage.cpu.unwrap().usage > 0 && node.processors > 0);
    let memory = node.usage.memory.unwrap();
    assert!(memory.working_set > 0 && memory.usage <= node.memory_capacity);
    assert!(node.booted.unwrap() > 0 && node.threads.unwrap() > 0 && node.max_pid.unwrap() > 0);
    assert!(Path::new("/proc/self").exists(), "and it is a real /proc");
}

#[test]
fn v1_counts_bytes_and_operations_of_devices_in_two_files() {
    let bytes =
        "8:0 Read 4096\n8:0 Write 10\n8:0 Sync 1\n8:0 Total 4106\n8:16 Read 7\nTotal 4113\n";
    let operations = "8:16 Write 3\n8:0 Read 2\nTotal 5\n";
    let io = |device: &str, reads, writes, read_bytes, write_bytes| Io {
        device: device.into(),
        reads,
        writes,
        read_bytes,
        write_bytes,
    };
    assert_eq!(
        parse::io_v1(bytes, operations),
        [io("8:0", 2, 0, 4096, 10), io("8:16", 0, 3, 7, 0)]
    );
    assert_eq!(parse::io_v1("", ""), []);
    assert_eq!(parse::io_v2("nonsense\n\n8:0 \n"), [io("8:0", 0, 0, 0, 0)]);
}
