//! Pods with huge pages, on the real daemon: rejected while the node has none, then run with as many as they ask for.
//! Needs root and 2 MiB pages; it reserves four of them and gives them back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use podprobe::api::PodPhase;
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{self, ContainerState, STATE};
use serde_json::{Value, json};

use crate::support;
use crate::support::Node;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::skip::skip;

const PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

fn number(name: &str) -> u64 {
    let text = fs::read_to_string(Path::new(PAGES).join(name)).unwrap();
    text.trim().parse().unwrap()
}

/// More pages than before, until it is dropped.
struct Reserved {
    before: u64,
}

impl Reserved {
    fn more(pages: u64) -> Option<Self> {
        let reserved = Self {
            before: number("nr_hugepages"),
        };
        let wanted = reserved.before + pages;
        let written = fs::write(Path::new(PAGES).join("nr_hugepages"), wanted.to_string());
        if written.is_err() || number("nr_hugepages") < wanted {
            skip(&format!(
                "the kernel does not reserve huge pages: {written:?}"
            ));
            return None;
        }
        Some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let before = self.before.to_string();
        let _ = fs::write(Path::new(PAGES).join("nr_hugepages"), before);
    }
}

/// A pod with a volume of huge pages at /huge, of at most 4 MiB, that asks for so many bytes.
fn pod(day: &Day, name: &str, bytes: &str, script: &str) -> Value {
    let resources = json!({"limits": {"memory": "64Mi", "hugepages-2Mi": bytes}});
    let mut pod = day.pod(name, script, json!({"resources": resources}));
    let volume = json!({"name": "huge", "emptyDir": {"medium": "HugePages", "sizeLimit": "4Mi"}});
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.push(volume);
    let mounts = &mut pod["spec"]["containers"][0]["volumeMounts"];
    let mount = json!({"name": "huge", "mountPath": "/huge"});
    mounts.as_array_mut().unwrap().push(mount);
    pod
}

fn rejected_without_pages(day: &Day) {
    let all = number("nr_hugepages") * (2 << 20);
    let name = "too-many";
    day.put(
        name,
        pod(day, name, &(all + (2 << 20)).to_string(), FOREVER),
    );
    let status = day.wait("the pod to be rejected", |s| {
        let pod = find(s, name)?;
        (pod.status.phase == PodPhase::Failed).then(|| pod.status.clone())
    });
    assert_eq!(status.reason, "OutOfhugepages-2Mi");
    let text = format!(
        "Pod was rejected: Node didn't have enough resource: hugepages-2Mi, requested: {}, used: 0, capacity: {all}",
        all + (2 << 20)
    );
    assert!(status.message.starts_with(&text), "{}", status.message);
    day.delete(name);
    day.wait_gone(name);
}

/// Two pages fit into the volume and are taken from the node's; a third does not.
const FILL: &str = "busybox fallocate -l 4194304 /huge/two && echo two >>/starts/fill
busybox fallocate -l 6291456 /huge/three 2>/dev/null || echo no third >>/starts/fill
busybox stat -f -c %t:%S /huge >>/starts/fill
busybox stat -c %a /huge >>/starts/fill";

fn run_with_pages(node: &Node, day: &Day) {
    let free = number("free_hugepages");
    day.put(
        "huge",
        pod(day, "huge", "4Mi", &format!("{FILL}\n{FOREVER}")),
    );
    day.wait_ready("huge");
    support::wait_until("what it has noted", || day.starts("fill").len() == 4);
    assert_eq!(
        day.starts("fill"),
        ["two", "no third", "958458f6:2097152", "755"]
    );
    assert!(number("free_hugepages") <= free - 2);
    limits_are(node, "4194304");
    let described = day.says(&["describe", "pod", "huge"]);
    assert!(described.contains("hugepages-2Mi:  4Mi"), "{described}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let root = node.layout.root().to_str().unwrap();
    assert!(!mounts.contains(root), "only the pod sees it: {mounts}");
    day.delete("huge");
    day.wait_gone("huge");
    support::wait_until("the pages to come back", || {
        number("free_hugepages") >= free
    });
    let _ = fs::remove_file(node.dir.path().join("starts/fill"));
}

/// The volume's directory is root's, so another user needs the pod's group.
fn a_group_may_use_them(node: &Node, day: &Day) {
    let starts = node.dir.path().join("starts");
    fs::set_permissions(&starts, fs::Permissions::from_mode(0o777)).unwrap();
    let script =
        "busybox fallocate -l 2097152 /huge/one && busybox stat -c '%a %g' /huge >>/starts/by";
    let mut pod = pod(day, "group", "2Mi", &format!("{script}\n{FOREVER}"));
    pod["spec"]["securityContext"] = json!({"runAsUser": 1000, "fsGroup": 1234});
    day.put("group", pod);
    support::wait_until("what it has noted", || !day.starts("by").is_empty());
    assert_eq!(day.starts("by"), ["2775 1234"]);
    day.delete("group");
    day.wait_gone("group");
}

/// Only where the runtimes have the controller: v1, or v2 alone.
fn limits_are(node: &Node, bytes: &str) {
    let records = fs::read_dir(node.layout.containers()).unwrap().flatten();
    let states = records.filter_map(|e| state::read::<ContainerState>(&e.path(), STATE));
    for cgroup in states.flat_map(|s| s.cgroups) {
        for (file, limit) in [
            ("hugetlb.2MB.max", bytes),
            ("hugetlb.2MB.limit_in_bytes", bytes),
            ("hugetlb.1GB.max", "0"),
            ("hugetlb.1GB.limit_in_bytes", "0"),
        ] {
            if let Ok(text) = fs::read_to_string(cgroup.join(file)) {
                assert_eq!(text.trim(), limit, "{}", cgroup.join(file).display());
            }
        }
    }
}

fn on_the_daemon(node: &Node) {
    let day = Day::begin(node);
    rejected_without_pages(&day);
    let Some(_reserved) = Reserved::more(4) else {
        return day.end();
    };
    run_with_pages(node, &day);
    a_group_may_use_them(node, &day);
    day.end();
}

/// One test, because the pages are the whole machine's.
#[test]
fn a_pod_has_the_huge_pages_that_it_asks_for_or_is_rejected() {
    if !Path::new(PAGES).exists() {
        return support::skip::note("the kernel has no huge pages of 2 MiB");
    }
    support::on(RuntimeChoice::Embedded, on_the_daemon);
    support::on_runc(on_the_daemon);
}
