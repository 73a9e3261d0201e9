//! A pod whose emptyDir on the disk outgrows its limit, on the real daemon.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use podprobe::api::PodPhase;
use podprobe::face::views::{PodView, Snapshot};
use serde_json::{Value, json};

use crate::support;
use crate::support::Node;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::on_both;

on_both![
    a_pod_over_its_limit_is_evicted_emptied_and_starts_anew,
    a_daemon_that_is_killed_forgets_no_eviction_and_repeats_none,
    a_pod_that_never_restarts_stays_evicted,
    what_lies_deep_in_a_volume_counts_and_goes,
];

const MESSAGE: &str = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
/// In its first life it writes more than its limit.
const GREEDY: &str = "[ $(wc -l </starts/web) -gt 1 ] || head -c 3000000 /dev/zero >/v/big";

/// A daemon whose longest back-off is this.
fn begin<'n>(node: &'n Node, back_off: &str) -> Day<'n> {
    let config = node.layout.config_file();
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let content = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": back_off},
        "healthzBindAddress": "", "healthzPort": 0});
    fs::write(config, content.to_string()).unwrap();
    Day::begin(node)
}

/// A pod with a volume of at most 1 MiB at /v; it notes at each start what is in it.
fn pod(day: &Day, script: &str) -> Value {
    let script = format!("echo \"[$(ls -A /v)]\" >>/starts/web.seen\n{script}");
    let mut pod = day.pod("web", &script, json!({}));
    let volume = json!({"name": "v", "emptyDir": {"sizeLimit": "1Mi"}});
    push(&mut pod["spec"]["volumes"], volume);
    let mount = json!({"name": "v", "mountPath": "/v"});
    push(&mut pod["spec"]["containers"][0]["volumeMounts"], mount);
    pod
}

fn push(list: &mut Value, value: Value) {
    list.as_array_mut().unwrap().push(value);
}

fn is_evicted(snapshot: &Snapshot) -> Option<PodView> {
    let pod = find(snapshot, "web")?;
    let status = &pod.status;
    let is = (status.phase, status.reason.as_str()) == (PodPhase::Failed, "Evicted");
    is.then(|| pod.clone())
}

/// It is evicted and nothing of it runs.
fn waits(day: &Day) -> PodView {
    let ended = |pod: &PodView| {
        let mut containers = pod.status.container_statuses.iter();
        containers.all(|c| c.state.terminated.is_some())
    };
    day.wait("the pod to be evicted", |s| is_evicted(s).filter(ended))
}

fn is_new(snapshot: &Snapshot) -> Option<()> {
    let pod = find(snapshot, "web").filter(|pod| pod.status.is_ready())?;
    (pod.status.container_statuses[0].restart_count == 1).then_some(())
}

/// Waits until it has noted its second start, which it does after that.
fn started_again(day: &Day) {
    day.wait("the pod to run again", is_new);
    support::wait_until("its note", || day.starts("web.seen").len() > 1);
    assert_eq!(day.starts("web.seen"), ["[]", "[]"]);
    day.check_starts("web", 2);
}

fn evictions(day: &Day) -> Vec<u32> {
    let snapshot = day.snapshot().unwrap();
    let events = &find(&snapshot, "web").unwrap().events;
    let evictions = events.iter().filter(|e| e.reason == "Evicted");
    evictions.map(|e| e.count).collect()
}

fn a_pod_over_its_limit_is_evicted_emptied_and_starts_anew(node: &Node) {
    let day = begin(node, "2s");
    day.put("web", pod(&day, &format!("{GREEDY}\n{FOREVER}")));
    assert_eq!(day.wait_event("web", "Evicted"), MESSAGE);
    let evicted = waits(&day);
    assert_eq!(evicted.status.message, MESSAGE);
    let uid = evicted.object["metadata"]["uid"].clone();
    let listed = day.says(&["get", "pods"]);
    assert!(listed.contains("Evicted"), "{listed}");
    let volume = node.layout.pod_data(&uid.as_str().unwrap().into());
    let volume = volume.join("volumes/kubernetes.io~empty-dir/v");
    support::wait_until("the volume to be gone", || !volume.exists());

    started_again(&day);
    let snapshot = day.snapshot().unwrap();
    let new = find(&snapshot, "web").unwrap();
    assert_eq!(new.object["metadata"]["uid"], uid);
    assert_eq!(new.status.reason, "");
    let starts = day.starts("web");
    let at = |start: &str| start.split(' ').next().unwrap().parse::<f64>().unwrap();
    let between = at(&starts[1]) - at(&starts[0]);
    assert!(between > 2.0, "it waited {between} s");
    assert_eq!(evictions(&day), [1]);
    let cause = &day.history(uid.as_str().unwrap()).restarts[0].cause;
    assert_eq!(
        *cause,
        format!("the pod was evicted: {}", MESSAGE.trim_end())
    );
    day.end();
}

/// Killed while the pod is being ended, while it waits, and when it has started anew.
fn a_daemon_that_is_killed_forgets_no_eviction_and_repeats_none(node: &Node) {
    let mut day = begin(node, "3s");
    // the stop takes its whole grace period
    let stubborn = format!("trap '' TERM\n{GREEDY}\nwhile :; do sleep 100000; done");
    day.put("web", pod(&day, &stubborn));
    day.wait("the pod to be evicted", is_evicted);
    assert!(day.processes().contains_key("web"), "it is being ended");
    day.crash();
    waits(&day);
    day.crash();
    assert_eq!(waits(&day).status.message, MESSAGE);
    day.check_starts("web", 1);
    started_again(&day);
    let process = day.process("web");
    day.crash();
    day.wait("the pod to run on", is_new);
    assert_eq!(day.process("web"), process);
    day.check_starts("web", 2);
    day.end();
}

fn a_pod_that_never_restarts_stays_evicted(node: &Node) {
    let mut day = begin(node, "1s");
    let mut never = pod(&day, &format!("{GREEDY}\n{FOREVER}"));
    never["spec"]["restartPolicy"] = json!("Never");
    day.put("web", never.clone());
    waits(&day);
    day.crash();
    waits(&day);
    // Another pod that is evicted takes as long, and its wait besides.
    let mut other = pod(&day, "");
    other["metadata"]["name"] = json!("other");
    let script = "echo >>/starts/other; head -c 3000000 /dev/zero >/v/big\nexec sleep 100000";
    other["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", script]);
    day.put("other", other);
    support::wait_until("the other pod to start anew twice", || {
        day.starts("other").len() > 2
    });
    assert!(is_evicted(&day.snapshot().unwrap()).is_some());
    day.check_starts("web", 1);
    day.delete("web");
    day.wait_gone("web");
    day.put("web", never);
    day.wait("the new pod to run", |s| {
        find(s, "web").filter(|pod| pod.status.is_ready()).map(drop)
    });
    day.end();
}

/// A container can hide nothing by depth, and its volume goes all the same.
fn what_lies_deep_in_a_volume_counts_and_goes(node: &Node) {
    let day = begin(node, "1s");
    let mut deep = pod(&day, FOREVER);
    // above what the directories themselves take
    deep["spec"]["volumes"][1]["emptyDir"]["sizeLimit"] = json!("20Mi");
    day.put("web", deep);
    support::wait_until("the volume to be seen empty", || {
        day.starts("web.seen") == ["[]"]
    });
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let inside = format!("/proc/{}/root/v", day.process("web").pid);
    let mut at: OwnedFd = open(inside.as_str(), flags, Mode::empty()).unwrap();
    // no path leads to its end, and there are more than descriptors
    for _ in 0..3000 {
        mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
        at = openat(&at, "d", flags, Mode::empty()).unwrap();
    }
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC;
    let file = openat(&at, "big", flags, Mode::S_IRUSR).unwrap();
    fs::File::from(file)
        .write_all(&vec![1; 30_000_000])
        .unwrap();
    drop(at);
    let message = MESSAGE.replace("1Mi", "20Mi");
    assert_eq!(day.wait_event("web", "Evicted"), message);
    started_again(&day);
    day.end();
}
