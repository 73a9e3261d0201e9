//! The client verbs of the real binary against a real socket, with a backend whose pods the test
//! defines.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use nix::mount::{MsFlags, mount};
use nix::pty::{Winsize, openpty};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::termios::tcgetattr;
use podprobe::api::conditions::{ConditionChange, ConditionStatus};
use podprobe::api::objects::ObjectKind;
use podprobe::api::review::{NoReview, User};
use podprobe::api::{PodUid, ProbeType};
use podprobe::base::cancel::Cancel;
use podprobe::base::clock::Time;
use podprobe::base::paths::Layout;
use podprobe::base::wire::socket::Socket as PortSocket;
use podprobe::engine::runtime::{AttachRequest, ExecOutcome, ExecRequest, Session, Started};
use podprobe::face::server::containers::ContainerName;
use podprobe::face::server::health::Check;
use podprobe::face::server::protocol::{
    ClosedBy, ConditionSet, DeleteTarget, Deleted, DrainRequest, NodeOrders, PauseTarget,
    ProbeTarget, RestartTarget, UncordonRequest,
};
use podprobe::face::server::{
    self, ContainerFiles, Containers, Health, Metrics, Registry, RequestError, Requests, Resources,
    Reviews, Server, ServerConfig, Shown, SummaryError, Unreachable,
};
use podprobe::face::views::ProbeReport;
use podprobe::face::views::{PodView, Snapshot, SnapshotUpdate};
use podprobe::net::services::view::ServiceView;
use podprobe::pods::events::{Event, EventList};
use podprobe::pods::history::{PodHistory, RunOutcome};
use podprobe::pods::prober::now::ProbeNowError;
use podprobe::pods::prober::trace::Step;
use podprobe::workloads::view::{ChangeError, ChangeRequest, Changed, WorkloadList};
use serde_json::{Value, json};

use crate::support::{skip, wait_until};
use crate::terminal::{Killed, wait_for};

pub(crate) const HOUR: u64 = 3600;
pub(crate) const DAY: u64 = 24 * HOUR;

pub(crate) struct Fake {
    now: Mutex<Arc<Snapshot>>,
    changed: Condvar,
    asked: Mutex<Vec<(PauseTarget, Option<Duration>)>>,
    conditions: Mutex<Vec<(PodUid, ConditionChange)>>,
    pub(crate) services: Mutex<Vec<ServiceView>>,
    workloads: Mutex<WorkloadList>,
    workloads_changed: Condvar,
    /// The changes of workloads that were asked for.
    pub(crate) changes: Mutex<Vec<ChangeRequest>>,
    /// The answers to further changes, the last one first. Without any, a change is refused.
    pub(crate) answers: Mutex<Vec<Result<Changed, ChangeError>>>,
    /// The answers about the orders for the node, in the order of the questions.
    orders: Mutex<VecDeque<NodeOrders>>,
    /// The configuration.
    pub(crate) config: Mutex<Value>,
    /// The events that a client has been told of.
    told: Mutex<Vec<Arc<Event>>>,
    /// The versions after which clients have waited for a newer snapshot.
    pub(crate) watched: Mutex<Vec<u64>>,
}

impl Fake {
    fn wait_newer(&self, version: u64, ceiling: Duration) -> Arc<Snapshot> {
        let now = self.now.lock().unwrap();
        self.changed
            .wait_timeout_while(now, ceiling, |s| s.version <= version)
            .unwrap()
            .0
            .clone()
    }
}

impl Shown for Fake {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.now.lock().unwrap().clone()
    }

    fn watch(&self, version: u64, ceiling: Duration) -> SnapshotUpdate {
        self.watched.lock().unwrap().push(version);
        SnapshotUpdate::from(&*self.wait_newer(version, ceiling))
    }

    fn events(&self, after: Option<u64>, ceiling: Duration) -> EventList {
        let snapshot = self.wait_newer(
            after.unwrap_or(0),
            if after.is_some() {
                ceiling
            } else {
                Duration::ZERO
            },
        );
        let mut told = self.told.lock().unwrap();
        let all: Vec<_> = snapshot
            .pods
            .iter()
            .flat_map(|p| p.events.clone())
            .collect();
        let new = |e: &&Arc<Event>| after.is_none() || !told.contains(e);
        let events = all.iter().filter(new).cloned().collect();
        *told = all;
        EventList {
            version: snapshot.version,
            node_name: snapshot.node_name.clone(),
            events,
        }
    }

    fn history(&self, uid: &PodUid) -> PodHistory {
        if uid.as_str() != "uid-told" {
            return PodHistory::default();
        }
        // A client that took the time before it asked must not see less than an hour.
        let run = json!({"time": ago(HOUR + 1), "micros": 1500, "outcome": "failure", "phase": "connect", "output": format!("refused {uid}")});
        let restart = json!({"time": ago(HOUR + 1), "container": "main", "attempt": 2, "cause": "failed liveness probe (exit code 137)"});
        let probe = json!({"container": "main", "probeType": "Liveness", "runs": [run]});
        serde_json::from_value(json!({"probes": [probe], "restarts": [restart]})).unwrap()
    }

    fn pod(&self, name: &ContainerName) -> Option<Arc<PodView>> {
        let snapshot = self.snapshot();
        let metadata = |pod: &PodView, key: &str| pod.object["metadata"][key].clone();
        let is_it = |pod: &&Arc<PodView>| {
            metadata(pod, "namespace") == name.namespace && metadata(pod, "name") == name.pod
        };
        snapshot.pods.iter().find(is_it).cloned()
    }

    fn running_pods(&self) -> Vec<Value> {
        Vec::new()
    }

    fn services(&self) -> Option<Vec<ServiceView>> {
        Some(self.services.lock().unwrap().clone())
    }

    fn workloads(&self, after: Option<u64>, ceiling: Duration) -> WorkloadList {
        let list = self.workloads.lock().unwrap();
        let is_old = |list: &mut WorkloadList| after.is_some_and(|after| list.version <= after);
        let waited = self
            .workloads_changed
            .wait_timeout_while(list, ceiling, is_old);
        waited.unwrap().0.clone()
    }

    fn objects(&self, kind: ObjectKind) -> Vec<Value> {
        let data = match kind {
            ObjectKind::ConfigMap => {
                json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AA=="}})
            }
            ObjectKind::Secret => json!({"type": "Opaque", "data": {"k": "aHVudGVyMg=="}}),
            _ => json!({"status": {"phase": "Bound"}}),
        };
        let mut object = json!({"apiVersion": "v1", "kind": kind.as_str(), "metadata": {"name": "x", "namespace": "default"}});
        let fields = data.as_object().unwrap().clone();
        object.as_object_mut().unwrap().extend(fields);
        vec![object]
    }

    fn config(&self) -> Value {
        self.config.lock().unwrap().clone()
    }

    fn version(&self) -> String {
        "9.9.9".into()
    }
}

impl Requests for Fake {
    /// Each type has an outcome of its own.
    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, RequestError> {
        let (outcome, output) = match target.probe_type {
            ProbeType::Startup => (RunOutcome::Success, "fine"),
            ProbeType::Readiness => (
                RunOutcome::Failure,
                "HTTP probe failed with statuscode: 500",
            ),
            ProbeType::Liveness if target.container == "side" => {
                return Err(RequestError::ProbeNotRun(ProbeNowError::NotRunning(
                    "side".into(),
                )));
            }
            ProbeType::Liveness => (RunOutcome::Errored, "no port named \"x\""),
        };
        let steps = vec![Step {
            micros: 12,
            text: format!("target 10.0.0.7 of {}", target.uid),
        }];
        Ok(ProbeReport {
            steps,
            outcome,
            phase: "read".into(),
            output: output.into(),
            micros: 2000,
        })
    }

    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, RequestError> {
        self.asked
            .lock()
            .unwrap()
            .push((target.clone(), Some(length)));
        Ok(vec!["main/liveness".into()])
    }

    fn resume(&self, target: &PauseTarget) -> Result<Vec<String>, RequestError> {
        self.asked.lock().unwrap().push((target.clone(), None));
        Ok(target
            .container
            .iter()
            .map(|c| format!("{c}/liveness"))
            .collect())
    }

    fn restart(&self, target: &RestartTarget) -> Result<Vec<String>, RequestError> {
        match target.container.as_deref() {
            None => Ok(vec!["main".into(), "sidecar".into()]),
            Some("main") => Ok(vec!["main".into()]),
            Some(other) => Err(RequestError::NoContainer {
                pod: target.uid.to_string(),
                container: other.to_owned(),
            }),
        }
    }

    /// The first reload finds a change, and the later ones a file that cannot be used.
    fn reload(&self) -> Result<Vec<String>, RequestError> {
        let mut config = self.config.lock().unwrap();
        if config["maxPods"] == 7 {
            let why = "cannot use configuration c.json: maxPods";
            return Err(RequestError::Configuration(why.into()));
        }
        config["maxPods"] = json!(7);
        Ok(["c.json: 1 key has changed", "maxPods: 110 -> 7, in force"]
            .map(str::to_owned)
            .into())
    }

    fn delete(&self, target: &DeleteTarget) -> Result<Deleted, RequestError> {
        match target.grace_period_seconds {
            Some(1) => Err(RequestError::PodEnded),
            _ => Ok(Deleted {
                file: "/etc/podprobe/pods/web.json".into(),
            }),
        }
    }

    fn node_orders(&self) -> NodeOrders {
        let mut orders = self.orders.lock().unwrap();
        orders.pop_front().expect("the test has more answers")
    }

    fn cordon(&self) -> Result<NodeOrders, RequestError> {
        Ok(self.node_orders())
    }

    fn uncordon(&self, _: &UncordonRequest) -> Result<NodeOrders, RequestError> {
        Ok(self.node_orders())
    }

    fn drain(&self, _: &DrainRequest) -> Result<NodeOrders, RequestError> {
        Ok(self.node_orders())
    }

    fn change_workload(&self, request: &ChangeRequest) -> Result<Changed, RequestError> {
        self.changes.lock().unwrap().push(request.clone());
        let refused = || Err(ChangeError::Refused(format!("{} stays", request.workload)));
        let answer = self.answers.lock().unwrap().pop();
        Ok(answer.unwrap_or_else(refused)?)
    }

    fn set_condition(
        &self,
        uid: &PodUid,
        change: &ConditionChange,
    ) -> Result<ConditionSet, RequestError> {
        let mut conditions = self.conditions.lock().unwrap();
        conditions.push((uid.clone(), change.clone()));
        let full = "cannot write /x: No space left on device (os error 28)";
        Ok(ConditionSet {
            changed: change.reason != "Same",
            not_stored: (change.message == "full").then(|| full.into()),
        })
    }
}

impl Containers for Fake {
    fn exec(&self, _: &ContainerName, _: &ExecRequest) -> Result<Started, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn run(
        &self,
        _: &ContainerName,
        _: &[String],
        _: (Duration, usize),
        _: &Cancel,
    ) -> Result<ExecOutcome, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn attach(&self, _: &ContainerName, _: AttachRequest) -> Result<Box<dyn Session>, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn files(&self, _: &ContainerName) -> Result<ContainerFiles, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn dial(&self, _: &ContainerName, _: u16) -> Result<PortSocket, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn log_dir(&self) -> PathBuf {
        PathBuf::from("/nowhere")
    }
}

/// No cluster: nobody is asked.
impl Reviews for Fake {
    fn user_of(&self, _: &str) -> Result<Option<User>, NoReview> {
        Err(NoReview::NoConnection)
    }

    fn may(&self, _: &User, _: &str, _: &str) -> Result<bool, NoReview> {
        Err(NoReview::NoConnection)
    }
}

impl Metrics for Fake {
    fn metrics(&self) -> String {
        "# TYPE x counter\nx 1\n".into()
    }
}

impl Resources for Fake {
    fn metrics_of(&self, registry: Registry) -> String {
        format!("# {registry:?}\n")
    }

    fn stats_summary(&self, only_cpu_and_memory: bool) -> Result<String, SummaryError> {
        Ok(format!("{{\"only\": {only_cpu_and_memory}}}"))
    }
}

impl Health for Fake {
    fn checks(&self) -> Vec<Check> {
        Vec::new()
    }

    fn panicked(&self) {}
}

/// A root with a daemon's socket in it.
pub(crate) struct World {
    pub(crate) root: tempfile::TempDir,
    pub(crate) backend: Arc<Fake>,
    _server: Server,
}

impl World {
    pub(crate) fn new(pods: Vec<Value>, problems: Vec<Value>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let backend = Arc::new(Fake {
            now: Mutex::default(),
            changed: Condvar::new(),
            asked: Mutex::default(),
            conditions: Mutex::default(),
            services: Mutex::default(),
            workloads: Mutex::new(WorkloadList {
                version: 1,
                ..WorkloadList::default()
            }),
            workloads_changed: Condvar::new(),
            changes: Mutex::default(),
            answers: Mutex::default(),
            orders: Mutex::default(),
            config: Mutex::new(json!({"nodeName": "edge"})),
            told: Mutex::default(),
            watched: Mutex::default(),
        });
        let server = server::spawn(
            &Layout::new(root.path()).socket(),
            ServerConfig::default(),
            backend.clone(),
        )
        .unwrap();
        let world = Self {
            root,
            backend,
            _server: server,
        };
        world.set(1, pods, problems);
        world
    }

    pub(crate) fn set(&self, version: u64, pods: Vec<Value>, problems: Vec<Value>) {
        let snapshot =
            json!({"version": version, "nodeName": "Edge", "pods": pods, "problems": problems});
        *self.backend.now.lock().unwrap() = serde_json::from_value(snapshot).unwrap();
        self.backend.changed.notify_all();
    }

    /// Shows these workloads, which are `WorkloadView`s.
    pub(crate) fn set_workloads(&self, version: u64, items: &[Value]) {
        let list = json!({"version": version, "items": items});
        *self.backend.workloads.lock().unwrap() = serde_json::from_value(list).unwrap();
        self.backend.workloads_changed.notify_all();
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podprobe"));
        command
            .args(line.split_whitespace())
            .arg("--root")
            .arg(self.root.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn check(&self, line: &str, expected: &str) {
        let output = self.run(line);
        assert_eq!(
            text(&output.stdout),
            expected,
            "stderr: {}",
            text(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }

    #[track_caller]
    pub(crate) fn check_failure(&self, line: &str, code: i32, expected: &str) {
        let output = self.run(line);
        assert_eq!(
            (text(&output.stderr).as_str(), output.status.code()),
            (expected, Some(code))
        );
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn ago(seconds: u64) -> Value {
    serde_json::to_value(Time::from(SystemTime::now() - Duration::from_secs(seconds))).unwrap()
}

/// A running, ready pod with one container.
pub(crate) fn pod(namespace: &str, name: &str) -> Value {
    let status = json!({"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}], "qosClass": "BestEffort", "startTime": ago(5 * DAY),
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}],
        "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0, "image": "app:1", "imageID": "sha256:1", "containerID": "podprobe://ab",
            "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}, "lastState": {}}]});
    json!({"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{name}-edge"), "namespace": namespace, "uid": format!("uid-{name}")},
                      "spec": {"nodeName": "Edge", "containers": [{"name": "main", "image": "app:1"}]}, "status": status},
           "status": status, "file": format!("/pods/{name}.json"), "warnings": [], "terminating": false, "logDir": "/nonexistent", "events": []})
}

fn crashing(name: &str) -> Value {
    let mut pod = pod("default", name);
    let c = &mut pod["status"]["containerStatuses"][0];
    c["ready"] = false.into();
    c["restartCount"] = 3.into();
    c["state"] = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}});
    c["lastState"] = json!({"terminated": {"exitCode": 137, "signal": 9, "reason": "Error", "startedAt": "2026-01-02T03:04:05Z", "finishedAt": ago(3 * HOUR)}});
    pod
}

#[test]
fn the_table_is_kubectls() {
    let world = World::new(vec![crashing("crasher"), pod("default", "web")], vec![]);
    let expected = "NAME           READY   STATUS             RESTARTS     AGE\n\
                    crasher-edge   0/1     CrashLoopBackOff   3 (3h ago)   5d\n\
                    web-edge       1/1     Running            0            5d\n";
    world.check("get pods", expected);
    world.check("get pods crasher-edge web", expected);
    world.check("get pods -n default", expected);
}

#[test]
fn wide_adds_address_node_and_file() {
    let world = World::new(vec![pod("default", "web")], vec![]);
    let expected = "NAME       READY   STATUS    RESTARTS   AGE   IP         NODE   READINESS GATES   PAUSED   FILE\n\
                    web-edge   1/1     Running   0          5d    10.0.0.7   Edge   <none>            <none>   /pods/web.json\n";
    world.check("get pods -o wide", expected);
    let mut paused = pod("default", "web");
    paused["paused"] =
        json!([{"container": "main", "probeType": "Liveness", "until": "2999-01-01T00:00:00Z"}]);
    let world = World::new(vec![paused], vec![]);
    let wide = text(&world.run("get pods -o wide").stdout);
    assert!(
        wide.contains("   main/liveness (9") && wide.contains("y)   /pods/web.json"),
        "{wide}"
    );
    let described = text(&world.run("describe pod web").stdout);
    assert!(
        described.contains("Paused Probes:\n  Container  Probe     Goes On\n"),
        "{described}"
    );
}

#[test]
fn a_pod_that_nothing_reaches_says_so() {
    let mut own = pod("default", "own");
    own["status"]["podIP"] = "127.0.0.1".into();
    own["status"]["podIPs"] = json!([{"ip": "127.0.0.1"}]);
    let mut host = own.clone();
    let why = "pods have only a loopback interface: no bridges";
    own["networkLacks"] = json!([why]);
    host["object"]["metadata"]["name"] = "host".into();
    host["object"]["spec"]["hostNetwork"] = true.into();
    let world = World::new(vec![own, host, pod("default", "web")], vec![]);
    let wide = text(&world.run("get pods -o wide").stdout);
    let addresses: Vec<&str> = wide
        .lines()
        .filter_map(|l| l.split_whitespace().nth(5))
        .collect();
    assert_eq!(addresses, ["IP", "loopback", "127.0.0.1", "10.0.0.7"]);
    let says_so = |name: &str| {
        let described = text(&world.run(&format!("describe pod {name}")).stdout);
        assert_eq!(described.contains(why), name == "own", "{described}");
        described.contains("loopback only: nothing outside of the pod reaches it")
    };
    assert_eq!(["own", "host", "web"].map(says_so), [true, false, false]);
}

#[test]
fn describe_shows_what_probes_found_and_why_containers_were_restarted() {
    let described = text(
        &World::new(vec![with_events("told", "default", &[1])], vec![])
            .run("describe pod told")
            .stdout,
    );
    let expected = "Probe History:\n  Container  Probe     Age  Took   Result              Text\n\
                    \x20 ---------  -----     ---  ----   ------              ----\n\
                    \x20 main       liveness  60m  1.5ms  failure at connect  refused uid-told\n\
                    Restarts:\n  Age  Container  Attempt  Cause\n\
                    \x20 ---  ---------  -------  -----\n\
                    \x20 60m  main       2        failed liveness probe (exit code 137)\n";
    assert!(described.contains(expected), "{described}");
}

fn with_events(name: &str, namespace: &str, counts: &[u32]) -> Value {
    let mut pod = pod(namespace, name);
    let event = |n: &u32| {
        json!({"namespace": namespace, "pod": format!("{name}-edge"), "uid": "u", "fieldPath": "spec.containers{main}", "type": "Warning",
               "reason": "Unhealthy", "message": format!("Liveness probe failed: {n}\n"), "count": n, "firstTimestamp": ago(5 * HOUR),
               "lastTimestamp": ago(3 * HOUR)})
    };
    pod["events"] = counts.iter().map(event).collect();
    pod
}

#[test]
fn events_are_a_table_with_counts() {
    let world = World::new(vec![with_events("web", "default", &[1, 3])], vec![]);
    let expected = "LAST SEEN          TYPE      REASON      OBJECT         MESSAGE\n\
                    5h                 Warning   Unhealthy   pod/web-edge   Liveness probe failed: 1\n\
                    3h (x3 over 5h)    Warning   Unhealthy   pod/web-edge   Liveness probe failed: 3\n";
    world.check(
        "get events",
        &expected
            .replace("LAST SEEN          ", "LAST SEEN         ")
            .replace("5h                 ", "5h                ")
            .replace("5h)    ", "5h)   "),
    );
    let world = World::new(
        vec![
            with_events("web", "default", &[1]),
            with_events("db", "x", &[1]),
        ],
        vec![],
    );
    let events = |line: &str| text(&world.run(line).stdout);
    assert!(events("get events").starts_with(
        "NAMESPACE   LAST SEEN   TYPE      REASON      OBJECT         MESSAGE\ndefault     5h "
    ));
    assert!(
        events("get events -n x")
            .starts_with("LAST SEEN   TYPE      REASON      OBJECT        MESSAGE\n5h          Warning   Unhealthy   pod/db-edge")
    );
    assert_eq!(events("get events db").lines().count(), 2);
    world.check_failure("get events -n y", 0, "No events found in y namespace.\n");
    world.check_failure(
        "get events wbe",
        1,
        "pods \"wbe\" not found\ndid you mean \"web\"?\n",
    );
}

#[test]
fn watched_events_come_one_by_one() {
    // One event less, and not made a second time: the same event of another second has changed.
    let later = with_events("web", "default", &[1, 4]);
    let mut now = later.clone();
    now["events"].as_array_mut().unwrap().pop();
    let world = World::new(vec![now], vec![]);
    let mut child = Killed(
        world
            .command("get events -w")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("LAST SEEN"));
    assert!(lines.next().unwrap().ends_with("Liveness probe failed: 1"));
    world.set(2, vec![later], vec![]);
    let line = lines.next().unwrap();
    assert!(
        line.starts_with("3h (x4 over 5h)") && line.ends_with("Liveness probe failed: 4"),
        "{line}"
    );
}

/// A pod with a container that has all three probes, and one with a liveness probe.
fn probed() -> Value {
    let mut pod = pod("default", "web");
    let probe = json!({"tcpSocket": {"port": 1}, "timeoutMilliseconds": 50});
    pod["object"]["spec"]["containers"] = json!([
        {"name": "main", "startupProbe": probe, "readinessProbe": probe, "livenessProbe": probe}, {"name": "side", "livenessProbe": probe}]);
    pod
}

#[track_caller]
pub(crate) fn check_output(output: &Output, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(
        (
            text(&output.stdout).as_str(),
            text(&output.stderr).as_str(),
            output.status.code()
        ),
        (stdout, stderr, Some(code))
    );
}

#[test]
fn d9_probe_says_what_was_done_and_ends_with_the_outcome() {
    let world = World::new(vec![probed()], vec![]);
    let probe = "tcp-socket :1 delay=0s timeout=50ms period=10s #success=1 #failure=3\n    0.012 ms  target 10.0.0.7 of uid-web\n";
    check_output(
        &world.run("probe web startup"),
        0,
        &format!("Startup probe of main: {probe}success after 2ms\n  fine\n"),
        "",
    );
    let failed = "failure at read after 2ms\n  HTTP probe failed with statuscode: 500\n";
    check_output(
        &world.run("probe web/main readiness"),
        1,
        &format!("Readiness probe of main: {probe}{failed}"),
        "",
    );
    let errored = "errored at read after 2ms\n  no port named \"x\"\n";
    check_output(
        &world.run("probe web/main liveness"),
        2,
        &format!("Liveness probe of main: {probe}{errored}"),
        "",
    );
}

#[test]
fn a_probe_that_cannot_be_run_says_why_with_code_2() {
    let world = World::new(vec![probed()], vec![]);
    let refused = world.run("probe web/side liveness");
    assert_eq!(
        (text(&refused.stderr).as_str(), refused.status.code()),
        (
            "podprobe refused the request: container \"side\" does not run\n",
            Some(2)
        )
    );
    world.check_failure(
        "probe wbe liveness",
        2,
        "pods \"wbe\" not found\ndid you mean \"web\"?\n",
    );
    world.check_failure(
        "probe web/mian liveness",
        2,
        "pod \"web-edge\" has no container \"mian\"\ndid you mean \"main\"?\n",
    );
    world.check_failure(
        "probe web liveness",
        2,
        "the pod has main/liveness, side/liveness; write POD/CONTAINER to choose one\n",
    );
    world.check_failure(
        "probe web/side startup",
        2,
        "container \"side\" has no startup probe; it has side/liveness\n",
    );
    let root = tempfile::tempdir().unwrap();
    let command = Command::new(env!("CARGO_BIN_EXE_podprobe"))
        .args(["probe", "web", "liveness", "--root"])
        .arg(root.path())
        .output()
        .unwrap();
    assert_eq!(
        command.status.code(),
        Some(2),
        "no daemon: {}",
        text(&command.stderr)
    );
}

#[test]
fn pause_and_resume_name_the_probes() {
    let world = World::new(vec![probed()], vec![]);
    world.check(
        "pause web --for 30m",
        "web-edge/main/liveness paused for 30m0s\n",
    );
    world.check(
        "pause web/side liveness --for 90s",
        "web-edge/main/liveness paused for 1m30s\n",
    );
    world.check("resume web/side", "web-edge/side/liveness resumed\n");
    world.check("resume web", "web-edge: nothing was paused\n");
    let target = |container: Option<&str>, probe_type| PauseTarget {
        uid: "uid-web".into(),
        container: container.map(Into::into),
        probe_type,
    };
    let expected = [
        (target(None, None), Some(Duration::from_secs(1800))),
        (
            target(Some("side"), Some(ProbeType::Liveness)),
            Some(Duration::from_secs(90)),
        ),
        (target(Some("side"), None), None),
        (target(None, None), None),
    ];
    assert_eq!(*world.backend.asked.lock().unwrap(), expected);
    world.check_failure(
        "pause web/sid --for 1m",
        1,
        "pod \"web-edge\" has no container \"sid\"\ndid you mean \"side\"?\n",
    );
    world.check_failure(
        "resume web/side startup",
        1,
        "container \"side\" has no startup probe; it has side/liveness\n",
    );
}

#[test]
fn a_reload_says_what_has_changed_or_why_nothing_has() {
    let world = World::new(vec![], vec![]);
    world.check(
        "config reload",
        "c.json: 1 key has changed\nmaxPods: 110 -> 7, in force\n",
    );
    world.check_failure(
        "config reload",
        78,
        "cannot use configuration c.json: maxPods; the configuration that is in force stays\n",
    );
}

/// The answers of a node: the order under which no pod starts, whether pods are to end, and those that have not ended.
fn answers(world: &World, answers: &[(Option<ClosedBy>, bool, &[&str])]) {
    let orders = answers
        .iter()
        .map(|(closed, is_under_way, left)| NodeOrders {
            node_name: "edge".into(),
            changed: true,
            closed: *closed,
            is_under_way: *is_under_way,
            left: left.iter().map(ToString::to_string).collect(),
            shutdown_seconds: 30,
        });
    *world.backend.orders.lock().unwrap() = orders.collect();
}

#[test]
fn a_drain_names_each_pod_that_has_ended_and_no_other() {
    let world = World::new(vec![], vec![]);
    let (drain, shutdown) = (Some(ClosedBy::Drain), Some(ClosedBy::Shutdown));
    let (web, both) = (
        &["web in default"][..],
        &["db in shop", "web in default"][..],
    );
    answers(
        &world,
        &[(drain, true, both), (drain, true, web), (drain, false, &[])],
    );
    world.check(
        "drain",
        "node/edge cordoned\npod/db -n shop drained\npod/web drained\nnode/edge drained\n",
    );
    // The pods that are not left any more go on.
    answers(&world, &[(drain, true, both), (None, false, &[])]);
    let output = world.run("drain");
    assert_eq!(text(&output.stdout), "node/edge cordoned\n");
    let why = "somebody has taken the drain back\n";
    assert_eq!(
        (text(&output.stderr).as_str(), output.status.code()),
        (why, Some(1))
    );
    answers(&world, &[(shutdown, true, both), (shutdown, false, web)]);
    let output = world.run("drain --for-shutdown");
    assert_eq!(text(&output.stdout), "pod/db -n shop drained\n");
    let why = "error: 1 pod has not ended in time, and the time of the shutdown is over: pod/web\n";
    assert_eq!(
        (text(&output.stderr).as_str(), output.status.code()),
        (why, Some(1))
    );
}

/// A pod with three readiness gates, of which one is open.
fn gated() -> Value {
    let mut pod = pod("default", "web");
    pod["object"]["spec"]["readinessGates"] = json!([
        {"conditionType": "example.com/up"}, {"conditionType": "lb"}, {"conditionType": "dns"}]);
    pod["status"]["conditions"] = json!([
        {"type": "example.com/up", "status": "True", "lastTransitionTime": null},
        {"type": "dns", "status": "Unknown", "lastTransitionTime": null},
        {"type": "Ready", "status": "False", "lastTransitionTime": null}]);
    pod
}

#[test]
fn readiness_gates_are_shown_as_kubectl_shows_them() {
    let world = World::new(vec![gated()], vec![]);
    let wide = text(&world.run("get pods -o wide").stdout);
    let row = wide.lines().last().unwrap();
    assert!(row.contains("Edge   1/3   "), "{wide}");
    let described = text(&world.run("describe pod web").stdout);
    let gates = "Readiness Gates:\n  Type            Status\n  example.com/up  True\n  lb              <none>\n  dns             Unknown\nConditions:\n";
    assert!(described.contains(gates), "{described}");
}

#[test]
fn conditions_are_set_and_what_is_to_be_known_is_said() {
    let world = World::new(vec![gated()], vec![]);
    world.check(
        "condition web lb=True example.com/up-",
        "web-edge: lb is True\nweb-edge: example.com/up removed\n",
    );
    world.check(
        "condition web lb=False --reason Same",
        "web-edge: lb was False already\n",
    );
    let asked = world.backend.conditions.lock().unwrap().clone();
    let asked: Vec<_> = asked
        .iter()
        .map(|(uid, c)| (uid.as_str(), c.type_.as_str(), c.status))
        .collect();
    let expected = [
        ("uid-web", "lb", Some(ConditionStatus::True)),
        ("uid-web", "example.com/up", None),
        ("uid-web", "lb", Some(ConditionStatus::False)),
    ];
    assert_eq!(asked, expected);
    let notes = |line: &str| text(&world.run(line).stderr);
    assert_eq!(notes("condition web lb=True"), "");
    assert_eq!(
        notes("condition web example.com/pu=True"),
        "note: no readiness gate of web-edge names example.com/pu, did you mean 'example.com/up'?\n"
    );
    assert_eq!(
        notes("condition web lb=True --message full"),
        "warning: cannot write /x: No space left on device (os error 28); this holds until the daemon ends\n"
    );
    world.check_failure(
        "condition wbe lb=True",
        1,
        "pods \"wbe\" not found\ndid you mean \"web\"?\n",
    );
    world.check_failure(
        "condition web Ready=True",
        2,
        "podprobe: condition Ready is set by podprobe alone; set those that the pod's readinessGates name\n",
    );
}

#[test]
fn metrics_are_printed_as_they_are() {
    World::new(vec![], vec![]).check("metrics", "# TYPE x counter\nx 1\n");
}

#[test]
fn namespaces_have_a_column_when_there_are_some() {
    let world = World::new(vec![pod("default", "a"), pod("kube-system", "b")], vec![]);
    let header = "NAMESPACE     NAME     READY   STATUS    RESTARTS   AGE\n";
    let expected = format!(
        "{header}default       a-edge   1/1     Running   0          5d\nkube-system   b-edge   1/1     Running   0          5d\n"
    );
    world.check("get pods", &expected);
    world.check("get pods -n kube-system -o name", "pod/b-edge\n");
    world.check("get pods -A -o name", "pod/a-edge\npod/b-edge\n");
    let lonely = World::new(vec![pod("default", "a")], vec![]);
    lonely.check(
        "get pods -A",
        "NAMESPACE   NAME     READY   STATUS    RESTARTS   AGE\ndefault     a-edge   1/1     Running   0          5d\n",
    );
}

#[test]
fn json_is_a_list_or_the_pod() {
    let world = World::new(vec![pod("default", "web")], vec![]);
    let list: Value = serde_json::from_slice(&world.run("get pods -o json").stdout).unwrap();
    assert_eq!(
        (&list["apiVersion"], &list["kind"]),
        (&json!("v1"), &json!("List"))
    );
    assert_eq!(
        list["items"][0]["status"]["containerStatuses"][0]["ready"],
        true
    );
    let one: Value = serde_json::from_slice(&world.run("get pod web -o json").stdout).unwrap();
    assert_eq!(
        (&one["kind"], &one["metadata"]["name"]),
        (&json!("Pod"), &json!("web-edge"))
    );
    let none: Value =
        serde_json::from_slice(&World::new(vec![], vec![]).run("get pods -o json").stdout).unwrap();
    assert_eq!(none["items"], json!([]));
}

#[test]
fn the_forms_of_kubectl() {
    let world = World::new(
        vec![pod("default", "web"), pod("kube-system", "dns")],
        vec![],
    );
    world.check(
        "get pods -o name --sort-by .metadata.name",
        "pod/dns-edge\npod/web-edge\n",
    );
    world.check(
        "get pods -n default --no-headers",
        "web-edge   1/1   Running   0     5d\n",
    );
    world.check(
        "get pods -o jsonpath={.items[*].metadata.name}",
        "web-edge dns-edge",
    );
    world.check("get pods web -o jsonpath={.status.podIP}", "10.0.0.7");
    world.check(
        "get pods -A -o custom-columns=NAME:.metadata.name,IP:.status.podIP,X:.spec.x",
        "NAME       IP         X\nweb-edge   10.0.0.7   <none>\ndns-edge   10.0.0.7   <none>\n",
    );
    let yaml = text(&world.run("get pod web -o yaml").stdout);
    assert!(
        yaml.starts_with("apiVersion: v1\nkind: Pod\nmetadata:\n  name: web-edge\n"),
        "{yaml}"
    );
    assert!(
        yaml.contains("    state:\n      running:\n        startedAt: \"2026-01-02T03:04:05Z\"\n"),
        "{yaml}"
    );
    world.check_failure(
        "get pods -o jsonpath={.items[9]}",
        1,
        "jsonpath, character 8: array index out of bounds: index 9, length 2\n",
    );
}

#[test]
fn objects_are_listed_and_values_of_secrets_only_when_asked_for() {
    let world = World::new(vec![], vec![]);
    world.check("get cm", "NAME   DATA\nx      3\n");
    world.check("get secrets", "NAME   TYPE     DATA\nx      Opaque   1\n");
    world.check("get secrets -o jsonpath={.items[0].data.k}", "aHVudGVyMg==");
    let claim = world.root.path().join("var/lib/podprobe/claims/default/x");
    let claims = text(&world.run("get pvc x --no-headers").stdout);
    assert_eq!(claims, format!("x     Bound   {}\n", claim.display()));
    world.check("get cm -o name", "configmap/x\n");
    world.check_failure("get secret y", 1, "secrets \"y\" not found\n");
}

#[test]
fn a_selector_chooses_by_labels() {
    let mut web = pod("default", "web");
    web["object"]["metadata"]["labels"] = json!({"app": "web"});
    let problem = json!({"file": "/pods/new.json", "error": "no"});
    let world = World::new(vec![web, pod("default", "db")], vec![problem]);
    world.check("get pods -l app=web -o name", "pod/web-edge\n");
    world.check(
        "get pods -l !app --no-headers",
        "db-edge   1/1   Running   0     5d\n",
    );
    world.check_failure(
        "get pods -l app=x",
        0,
        "No resources found\n/pods/new.json: not in use: no\n",
    );
}

#[test]
fn a_selector_leaves_out_the_problems_of_other_services() {
    let world = World::new(vec![], vec![]);
    let service = |name: &str| ServiceView {
        namespace: "default".into(),
        name: name.into(),
        labels: [("tier".to_owned(), name.to_owned())].into(),
        problems: vec![format!("of {name}")],
        ..ServiceView::default()
    };
    *world.backend.services.lock().unwrap() = vec![service("web"), service("db")];
    let check = |kind: &str, line: &str, stdout: &str, stderr: &str| {
        let output = world.run(&format!("get {kind} --no-headers {line}"));
        check_output(&output, 0, stdout, stderr);
    };
    let (web, db) = (
        "service default/web: of web\n",
        "service default/db: of db\n",
    );
    check("ep", "-l tier=web", "web   <none>   <unknown>\n", web);
    check("ep", "-l tier!=web", "db    <none>   <unknown>\n", db);
    check(
        "ep",
        "",
        "web   <none>   <unknown>\ndb    <none>   <unknown>\n",
        &format!("{web}{db}"),
    );
    check("ep", "-l tier=x", "", "No resources found\n");
}

#[test]
fn several_kinds_are_several_tables_or_one_list() {
    let world = World::new(vec![pod("default", "web")], vec![]);
    let service = ServiceView {
        namespace: "default".into(),
        name: "shop".into(),
        created: serde_json::from_value(ago(2 * DAY)).unwrap(),
        type_: "ClusterIP".into(),
        problems: vec!["of shop".into()],
        ..ServiceView::default()
    };
    let both = "NAME           READY   STATUS    RESTARTS   AGE\n\
                pod/web-edge   1/1     Running   0          5d\n\
                \n\
                NAME           TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   AGE\n\
                service/shop   ClusterIP   <none>       <none>        <none>    2d\n";
    world.check("get all", &both[..both.find("\n\n").unwrap() + 1]);
    *world.backend.services.lock().unwrap() = vec![service];
    let problem = "service default/shop: of shop\n";
    check_output(&world.run("get all"), 0, both, problem);
    check_output(&world.run("get po,svc"), 0, both, problem);
    let names = "pod/web-edge\nservice/shop\n";
    world.check("get pod/web svc/shop -o name", names);
    let list: Value = serde_json::from_slice(&world.run("get all -o json").stdout).unwrap();
    let kinds: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| &o["kind"])
        .collect();
    assert_eq!(kinds, ["Pod", "Service"]);
    let none = world.run("get svc,cm shop --no-headers");
    let row = "service/shop   ClusterIP   <none>   <none>   <none>   2d\n";
    let missing = format!("{problem}configmaps \"shop\" not found\n");
    check_output(&none, 1, row, &missing);
}

#[test]
fn events_are_a_verb_of_their_own_too() {
    let world = World::new(vec![with_events("web", "default", &[1])], vec![]);
    let row = "5h    Warning   Unhealthy   pod/web-edge   Liveness probe failed: 1\n";
    world.check("events --no-headers", row);
    world.check("events --for pod/web --types warning --no-headers", row);
    world.check_failure("events --types Normal", 0, "No events found\n");
    world.check_failure(
        "events --for web2",
        1,
        "pods \"web2\" not found\ndid you mean \"web\"?\n",
    );
}

#[test]
fn logs_of_many_pods_are_chosen_by_labels() {
    let world = World::new(vec![], vec![]);
    let labelled = |name: &str, dir: &str| {
        let mut pod = with_logs(&world, &["main"], 0, true);
        pod["object"]["metadata"] = json!({"name": format!("{name}-edge"), "namespace": "default",
            "uid": format!("uid-{name}"), "labels": {"app": "shop", "name": name}});
        let logs = world.root.path().join("logs").join(dir);
        pod["logDir"] = logs.to_str().unwrap().into();
        pod
    };
    world.set(
        2,
        vec![labelled("a", "a"), labelled("b", "b"), labelled("c", "c")],
        vec![],
    );
    let many: String = (0..12).map(|n| format!("F a{n}\n")).collect();
    write_log(world.root.path(), "a/main/0.log", &many);
    write_log(world.root.path(), "b/main/0.log", "F b0");
    let all = text(&world.run("logs -l app=shop").stdout);
    assert_eq!(all.lines().count(), 11, "ten lines of each: {all}");
    assert!(
        all.starts_with("a2\n") && all.ends_with("a11\nb0\n"),
        "{all}"
    );
    let one = "logs -l name=b --prefix --tail=-1";
    world.check(one, "[pod/b-edge/main] b0\n");
    world.check_failure("logs -l app=x", 0, "No resources found\n");
}

#[test]
fn probes_have_a_row_each() {
    let mut told = pod("default", "told");
    told["object"]["spec"]["containers"][0]["livenessProbe"] =
        json!({"tcpSocket": {"port": 1}, "failureThreshold": 3});
    let world = World::new(vec![told], vec![]);
    let expected = "POD         CONTAINER   TYPE       RESULT    SINCE   LATENCY   FAILURES   PAUSED   PROBE\n\
                    told-edge   main        liveness   failure   60m     1.5ms     1/3        <none>   tcp-socket :1\n";
    world.check("get probes", expected);
    world.check("get probe told/main/liveness", expected);
    world.check("get probes told -o jsonpath={.items[*].status.result}", "");
    world.check("get probes told -o jsonpath={.status.result}", "failure");
    world.check("get probes -o name", "probe/told-edge/main/liveness\n");
    world.check_failure("get probes wbe", 1, "pods \"wbe\" not found\n");
}

#[test]
fn what_is_found_is_shown_also_when_another_name_is_not() {
    let world = World::new(vec![pod("default", "web")], vec![]);
    let output = world.run("get pods wbe web -o name");
    check_output(
        &output,
        1,
        "pod/web-edge\n",
        "pods \"wbe\" not found\ndid you mean \"web\"?\n",
    );
}

#[test]
fn no_pods_and_no_such_pod() {
    let world = World::new(vec![pod("default", "web")], vec![]);
    world.check_failure(
        "get pods -n other",
        0,
        "No resources found in other namespace.\n",
    );
    world.check_failure(
        "get pods wbe",
        1,
        "pods \"wbe\" not found\ndid you mean \"web\"?\n",
    );
    world.check_failure("describe pod database", 1, "pods \"database\" not found\n");
    World::new(vec![], vec![]).check_failure("get pods", 0, "No resources found\n");
}

#[test]
fn files_with_problems_follow_the_table() {
    let mut old = pod("default", "web");
    old["fileError"] = "spec: bad".into();
    let problems = vec![
        json!({"file": "/pods/new.json", "error": "line 3: no"}),
        json!({"file": "/pods/web.json", "error": "spec: bad", "lastGoodRuns": true}),
    ];
    let world = World::new(vec![old], problems);
    let output = world.run("get pods");
    assert_eq!(
        text(&output.stderr),
        "/pods/new.json: not in use: line 3: no\n/pods/web.json: last good version runs: spec: bad\n"
    );
    let described = text(&world.run("describe pod web").stdout);
    assert!(
        described.contains("File Error:      last good version runs: spec: bad\n"),
        "{described}"
    );
    let table = text(&output.stdout);
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert!(
        rows[0].starts_with("web-edge   1/1     Running "),
        "{table}"
    );
    assert_eq!(rows[1], "new.json   -       Refused   -          <unknown>");
    assert_eq!((rows.len(), output.status.code()), (2, Some(0)));
    let list: Value = serde_json::from_slice(&world.run("get pods -o json").stdout).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let refused = json!([{"file": "/pods/new.json", "error": "line 3: no"}]);
    assert_eq!(list["metadata"]["refusedFiles"], refused);
    let named = world.run("get pods new web");
    let row = "new.json   -       Refused   -          <unknown>\n";
    assert!(
        text(&named.stdout).ends_with(row),
        "{}",
        text(&named.stdout)
    );
    assert_eq!(
        text(&named.stderr),
        "/pods/web.json: last good version runs: spec: bad\n/pods/new.json: not in use: line 3: no\n"
    );
    assert_eq!(named.status.code(), Some(1));
    let json = world.run("get pods new -o json");
    check_output(&json, 1, "", "/pods/new.json: not in use: line 3: no\n");
    let missing = world.run("describe pod new");
    assert!(
        text(&missing.stderr).ends_with("not found\n/pods/new.json: not in use: line 3: no\n"),
        "{}",
        text(&missing.stderr)
    );
}

#[test]
fn a_pod_by_name_comes_without_the_problems_of_other_files() {
    let mut old = pod("default", "web");
    old["fileError"] = "spec: bad".into();
    let problems = vec![
        json!({"file": "/pods/new.json", "error": "line 3: no"}),
        json!({"file": "/pods/web.json", "error": "spec: bad", "lastGoodRuns": true}),
    ];
    let world = World::new(vec![old, pod("default", "db")], problems);
    assert_eq!(text(&world.run("get pods db").stderr), "");
    assert_eq!(
        text(&world.run("get pods web").stderr),
        "/pods/web.json: last good version runs: spec: bad\n"
    );
}

/// The state of a process as `ps` has it, such as S for a process that waits.
fn state(child: &Killed) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.0.id())).unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    after_name.trim_start().chars().next().unwrap()
}

#[test]
fn a_watch_prints_the_rows_that_change() {
    let world = World::new(vec![pod("default", "a"), pod("default", "b")], vec![]);
    let mut child = Killed(
        world
            .command("get pods -w")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("NAME"));
    assert_eq!(
        lines.next().unwrap(),
        "a-edge   1/1     Running   0          5d"
    );
    assert_eq!(
        lines.next().unwrap(),
        "b-edge   1/1     Running   0          5d"
    );
    // Ctrl-Z and fg end the wait of a read that has a limit.
    wait_until("the next question", || {
        !world.backend.watched.lock().unwrap().is_empty() && state(&child) == 'S'
    });
    for (signal, stopped) in [(Signal::SIGSTOP, true), (Signal::SIGCONT, false)] {
        child.signal(signal);
        wait_until("the signal", || (state(&child) == 'T') == stopped);
    }
    let mut stopping = pod("default", "b");
    stopping["terminating"] = true.into();
    world.set(2, vec![pod("default", "a"), stopping], vec![]);
    assert_eq!(
        lines.next().unwrap(),
        "b-edge   1/1     Terminating   0          5d"
    );
    world.set(3, vec![crashing("a")], vec![]);
    assert_eq!(
        lines.next().unwrap(),
        "a-edge   0/1     CrashLoopBackOff   3 (3h ago)   5d"
    );
}

#[test]
fn status_says_in_its_exit_code_whether_all_is_well() {
    let world = World::new(vec![pod("default", "web")], vec![]);
    world.check("status", "all is well: 1 pod ready\n");
    let mut told = crashing("told");
    told["status"]["conditions"][0]["status"] = "False".into();
    world.set(
        2,
        vec![told, pod("default", "web")],
        vec![json!({"file": "/pods/new.json", "error": "line 3: no"})],
    );
    let expected = "2 things are wrong: 1 of 2 pods ready\n\n\
        pod/told-edge: container main ends again and again, restarted 3 times: failed liveness probe (exit code 137)\n\
        \x20   podprobe logs told-edge -c main -p\n\n\
        /pods/new.json: not in use: line 3: no\n    podprobe validate /pods/new.json\n";
    check_output(&world.run("status"), 1, expected, "");
    let json: Value = serde_json::from_slice(&world.run("status -o json").stdout).unwrap();
    assert_eq!(
        (&json["well"], &json["findings"][0]["severity"]),
        (&json!(false), &json!("CrashLoop"))
    );
    let root = tempfile::tempdir().unwrap();
    let mut alone = Command::new(env!("CARGO_BIN_EXE_podprobe"));
    let output = alone
        .args(["status", "--root"])
        .arg(root.path())
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("no daemon runs there"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn top_draws_on_a_terminal_and_leaves_it_as_it_was() {
    let world = World::new(vec![probed()], vec![]);
    let size = Winsize {
        ws_row: 24,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(Some(&size), None).unwrap();
    let (master, slave) = (File::from(terminal.master), File::from(terminal.slave));
    let mode = || tcgetattr(&slave).unwrap().local_flags;
    let stdio = || Stdio::from(slave.try_clone().unwrap());
    let mut command = world.command("top");
    command.stdin(stdio()).stdout(stdio());
    for end in ["q", "\u{3}", "TERM"] {
        let before = mode();
        let mut child = Killed(command.spawn().unwrap());
        let shown = wait_for(&master, |shown| {
            let is_drawn = shown.contains("main/readiness");
            is_drawn.then(|| shown.to_owned())
        });
        assert!(
            shown.starts_with("\u{1b}[?1049h") && shown.contains("web-edge"),
            "{shown}"
        );
        assert_ne!(mode(), before, "it reads keys at once");
        match end {
            "q" => (&master).write_all(b"q").unwrap(),
            // No shell has made the terminal the controlling one, so that nobody sends the signal.
            "TERM" => child.signal(Signal::SIGTERM),
            _ => child.signal(Signal::SIGINT),
        }
        wait_for(&master, |shown| {
            shown.contains("\u{1b}[?1049l").then_some(())
        });
        assert_eq!(child.end().code(), Some(0), "{end}");
        assert_eq!(mode(), before, "{end}");
    }
}

#[test]
fn top_is_one_frame_where_there_is_no_terminal() {
    let world = World::new(vec![probed()], vec![]);
    let frame = text(&world.run("top -n default").stdout);
    assert_eq!(frame.lines().count(), 7, "{frame}");
    assert!(
        frame.starts_with("q ends   Edge: 1 of 1 pods ready\n\nNAME "),
        "{frame}"
    );
}

fn with_ready(name: &str, ready: &str) -> Value {
    let mut pod = pod("default", name);
    pod["status"]["conditions"][0]["status"] = ready.into();
    pod
}

#[test]
fn wait_ends_when_the_pod_is_as_asked() {
    let world = World::new(vec![with_ready("web", "False")], vec![]);
    let mut child = Killed(
        world
            .command("wait web --for=condition=Ready --timeout=60s")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    world.set(2, vec![with_ready("web", "True")], vec![]);
    assert_eq!(lines.next().as_deref(), Some("pod/web-edge condition met"));
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    world.check(
        "wait pod/web --for=jsonpath={.status.phase}=Running --timeout=0",
        "pod/web-edge condition met\n",
    );
    let timed_out = "error: timed out waiting for the condition on pods/web-edge\n";
    for timeout in ["0s", "300ms"] {
        world.check_failure(
            &format!("wait web --for=delete --timeout={timeout}"),
            1,
            timed_out,
        );
    }
}

/// The limit ends a `try` that would go on.
#[test]
fn try_ends_at_once_without_its_directory_of_pods() {
    let output = Command::new("timeout")
        .args(["20", env!("CARGO_BIN_EXE_podprobe")])
        .args(["try", "--pods", "/nonexistent/pods"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let why = "cannot read pods from /nonexistent/pods: it does not exist; create it, or name another with --pods\n";
    check_output(&output, 1, "", why);
}

#[test]
fn a_watch_tells_of_a_new_pod_with_an_age() {
    let mut new = pod("default", "a");
    new["object"]["metadata"]["creationTimestamp"] = Value::Null;
    new["status"] = json!({"phase": "Pending"});
    let world = World::new(vec![new], vec![]);
    world.check(
        "get pods",
        "NAME     READY   STATUS    RESTARTS   AGE\na-edge   0/1     Pending   0          0s\n",
    );
}

#[test]
fn describe_is_kubectls_layout() {
    let mut pod = crashing("web");
    pod["status"]["startTime"] = "2026-01-02T03:04:05Z".into();
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["finishedAt"] =
        "2026-01-02T03:05:05Z".into();
    pod["object"]["metadata"]["labels"] = json!({"b": "2", "a": "1"});
    pod["object"]["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "file"});
    pod["object"]["spec"]["containers"][0] = json!({"name": "main", "image": "app:1", "command": ["/app"], "args": ["-v"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}], "resources": {"limits": {"memory": "64Mi"}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}},
        "env": [{"name": "A", "value": "b"}], "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}]});
    pod["object"]["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod["warnings"] = json!(["spec.priority is not acted on"]);
    pod["events"] = json!([{"namespace": "default", "pod": "web-edge", "uid": "u", "fieldPath": "spec.containers{main}", "type": "Warning",
        "reason": "Unhealthy", "message": "Liveness probe failed: 500\n", "count": 12, "firstTimestamp": ago(2 * DAY), "lastTimestamp": ago(3 * HOUR)}]);
    let world = World::new(vec![pod], vec![]);
    world.check("describe pod web", include_str!("../golden/describe.txt"));
}

#[test]
fn describe_says_what_is_wrong_and_what_to_do() {
    let check = |pod: Value, expected: &[&str]| {
        let described = text(&World::new(vec![pod], vec![]).run("describe pod web").stdout);
        let told = described
            .lines()
            .filter(|l| l.starts_with("Problem:") || l.starts_with("What To Do:"));
        assert_eq!(told.collect::<Vec<_>>(), expected, "{described}");
    };
    check(pod("default", "web"), &[]);
    let with = |phase: &str, state: Value| {
        let mut pod = crashing("web");
        pod["status"]["phase"] = phase.into();
        pod["status"]["containerStatuses"][0]["state"] = state;
        pod
    };
    let waiting =
        |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
    let missing = waiting("CreateContainerConfigError", "configmap \"x\" not found");
    check(
        with("Pending", missing),
        &[
            "Problem:      container main cannot start: CreateContainerConfigError: configmap \"x\" not found",
            "What To Do:   put that object into the pod's file, or into a file of its own beside it",
        ],
    );
    // What shows more is this verb itself.
    check(
        with("Pending", waiting("ErrImagePull", "no such host")),
        &["Problem:      container main has no image app:1: ErrImagePull: no such host"],
    );
    check(with("Pending", waiting("ContainerCreating", "")), &[]);
    let mut rejected = with("Failed", json!({"terminated": {"exitCode": 1}}));
    rejected["status"]["message"] = "Pod was rejected".into();
    check(rejected, &[]);
}

#[test]
fn describe_shows_the_pull_that_a_container_waits_for() {
    let state = json!({"bytes": 122_880_000, "ofBytes": 389_000_000, "layers": 2, "ofLayers": 5,
        "cuts": 2, "millis": 48_000, "quietMillis": 100});
    let check = |image: &str, stage: Value, expected: &str| {
        let mut pod = crashing("web");
        pod["status"]["containerStatuses"][0]["state"] =
            json!({"waiting": {"reason": "ContainerCreating"}});
        pod["pulls"] = json!([{"image": image, "stage": stage}]);
        let spec = &mut pod["object"]["spec"];
        spec["volumes"] = json!([{"name": "v", "image": {"reference": "mounted:1"}},
            {"name": "w", "image": {"reference": "another:1"}}]);
        spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        let world = World::new(vec![pod], vec![]);
        let described = text(&world.run("describe pod web").stdout);
        let begin = described.find("      Reason:       ContainerCreating\n");
        let begin = begin.unwrap_or_else(|| panic!("{described}"));
        let lines: Vec<&str> = described[begin..].lines().skip(1).collect();
        assert!(lines.join("\n").starts_with(expected), "{described}");
        let json: Value = serde_json::from_slice(&world.run("get pods -o json").stdout).unwrap();
        assert_eq!(json["items"][0].get("pulls"), None);
    };
    let figures =
        "    Pull:           31%, 123MB of 389MB, 2 of 5 layers, 2.56MB/s, 48s, cut off 2 times\n";
    let runs = json!({"pulling": {"state": state}});
    check("app:1", runs.clone(), &format!("{figures}    Last State:"));
    check("another:1", runs.clone(), "    Last State:");
    check("mounted:1", runs, &format!("{figures}    Last State:"));
    let cut = json!({"pulling": {"state": state, "cutOff": "r ended\nafter\u{1b}[2J 7 bytes"}});
    let why = "      Cut Off:      r ended after^[[2J 7 bytes\n    Last State:";
    check("app:1", cut, &format!("{figures}{why}"));
    let queued = json!({"queued": {"millis": 12_999}});
    check(
        "app:1",
        queued,
        "    Pull:           waiting for other pulls, 12s\n",
    );
    let later =
        json!({"backOff": {"until": Time::from(SystemTime::now() + Duration::from_secs(7200))}});
    check("app:1", later, "    Pull:           next try in ");
}

/// A container says `ESC ] 0 ; pwned BEL`, which sets a terminal's title.
#[test]
fn what_a_container_says_does_not_act_on_the_terminal() {
    const EVIL: &str = "\u{1b}]0;pwned\u{7}\u{9b}2J\r";
    let mut evil = crashing("web");
    let status = &mut evil["status"]["containerStatuses"][0];
    status["lastState"]["terminated"]["message"] = format!("bye {EVIL}").into();
    status["state"]["waiting"]["message"] = format!("wait {EVIL}").into();
    let event = |reason: &str| {
        json!({"namespace": "default", "pod": "web-edge", "uid": "u", "fieldPath": "", "type": "Warning", "reason": reason,
               "message": format!("said {EVIL}"), "count": 1, "firstTimestamp": ago(60), "lastTimestamp": ago(60)})
    };
    evil["events"] = json!([event("Unhealthy"), event(EVIL)]);
    evil["warnings"] = json!([format!("file {EVIL}")]);
    evil["file"] = format!("/pods/{EVIL}.json").into();
    evil["object"]["metadata"]["labels"] = json!({"a": EVIL});
    evil["object"]["status"] = evil["status"].clone();
    let problem = json!({"file": format!("/pods/{EVIL}"), "error": format!("bad {EVIL}")});
    let world = World::new(vec![evil], vec![problem]);
    for line in [
        "get pods",
        "get pods -o wide",
        "get pods -o json",
        "get events",
        "describe pod",
        "describe pod nothing",
    ] {
        let output = world.run(line);
        for said in [text(&output.stdout), text(&output.stderr)] {
            let bad = said.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(bad, None, "{line}: {said:?}");
        }
    }
    let described = text(&world.run("describe pod web").stdout);
    for said in ["bye ^[]0;pwned^G", "wait ^[]0;pwned^G", "said ^[]0;pwned^G"] {
        assert!(described.contains(said), "{described}");
    }
    let json: Value = serde_json::from_slice(&world.run("get pods -o json").stdout).unwrap();
    assert_eq!(json["items"][0]["metadata"]["labels"]["a"], EVIL);
}

pub(crate) fn with_logs(world: &World, containers: &[&str], restarts: u32, running: bool) -> Value {
    let mut pod = pod("default", "web");
    let state = if running {
        json!({"running": {"startedAt": null}})
    } else {
        json!({"terminated": {"exitCode": 0}})
    };
    let status = |name: &&str| json!({"name": name, "restartCount": restarts, "state": state});
    pod["status"]["containerStatuses"] = containers.iter().map(status).collect();
    pod["object"]["spec"]["containers"] = containers
        .iter()
        .map(|name| json!({"name": name}))
        .collect();
    pod["logDir"] = world.root.path().join("logs").to_str().unwrap().into();
    pod
}

pub(crate) fn write_log(root: &Path, file: &str, text: &str) {
    let path = root.join("logs").join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let lines: String = text
        .lines()
        .map(|l| format!("2026-01-02T03:04:05.000000006Z stdout {l}\n"))
        .collect();
    std::fs::write(path, lines).unwrap();
}

#[test]
fn logs_are_what_the_container_wrote() {
    let world = World::new(vec![], vec![]);
    world.set(2, vec![with_logs(&world, &["main"], 1, true)], vec![]);
    write_log(world.root.path(), "main/0.log", "F before");
    write_log(
        world.root.path(),
        "main/1.log.2026-01-02-030405.000000001",
        "F rotated",
    );
    write_log(
        world.root.path(),
        "main/1.log",
        "P in two\nF  parts\nF last",
    );
    world.check("logs web", "rotated\nin two parts\nlast\n");
    world.check("logs web -p", "before\n");
    // raw, as kubectl: what comes out is what went in
    write_log(world.root.path(), "main/0.log", "F \u{1b}[1mbold\u{7}");
    world.check("logs web -p", "\u{1b}[1mbold\u{7}\n");
    world.check("logs pod/web-edge -c main", "rotated\nin two parts\nlast\n");
    world.check_failure(
        "logs web -c mian",
        1,
        "container mian is not valid for pod web-edge: its containers are [main], did you mean 'main'?\n",
    );
}

/// Its shim creates the log with the first line.
#[test]
fn a_container_that_wrote_nothing_has_an_empty_log() {
    let world = World::new(vec![], vec![]);
    world.set(2, vec![with_logs(&world, &["main"], 1, false)], vec![]);
    for line in ["logs web", "logs web -p", "logs web -f"] {
        check_output(&world.run(line), 0, "", "");
    }
}

#[test]
fn of_several_containers_the_first_is_kubectls_default() {
    let world = World::new(vec![], vec![]);
    let mut pod = with_logs(&world, &["b", "a"], 0, true);
    pod["object"]["spec"]["initContainers"] = json!([{"name": "i"}]);
    world.set(2, vec![pod], vec![]);
    write_log(world.root.path(), "a/0.log", "F of a");
    write_log(world.root.path(), "b/0.log", "F of b");
    let word = "Defaulted container \"b\" out of: b, a, i (init)\n";
    check_output(&world.run("logs web"), 0, "of b\n", word);
    world.check("logs web -c a", "of a\n");
    let previous = "previous terminated container \"a\" in pod \"web-edge\" not found\n";
    world.check_failure("logs web -c a -p", 1, previous);
    let waiting = "container \"i\" in pod \"web-edge\" is waiting to start: ContainerCreating\n";
    let all = "[pod/web-edge/b] of b\n[pod/web-edge/a] of a\n";
    let line = "logs web --all-containers --prefix";
    check_output(&world.run(line), 0, all, waiting);
}

#[test]
fn only_a_part_of_a_log_is_printed() {
    let world = World::new(vec![], vec![]);
    world.set(2, vec![with_logs(&world, &["main"], 0, true)], vec![]);
    let log = world.root.path().join("logs/main/0.log");
    std::fs::create_dir_all(log.parent().unwrap()).unwrap();
    let an_hour_ago: Time = (SystemTime::now() - Duration::from_secs(HOUR)).into();
    let now: Time = SystemTime::now().into();
    let lines = format!("{an_hour_ago} stdout F old\n{now} stdout F one\n{now} stderr F two\n");
    std::fs::write(log, lines).unwrap();
    world.check("logs web --tail 1", "two\n");
    world.check("logs web --tail=0", "");
    world.check("logs web --since 30m", "one\ntwo\n");
    world.check("logs web --since 30m --limit-bytes 6", "one\ntw");
    let stamped = format!("{now} one\n{now} two\n");
    world.check("logs web --tail 2 --timestamps=true", &stamped);
    let since = format!("logs web --since-time {now}");
    world.check(&since, "one\ntwo\n");
}

/// The files alone are left.
#[test]
fn without_a_daemon_logs_are_read_from_their_files() {
    let root = tempfile::tempdir().unwrap();
    let logs = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podprobe"));
        let words = line.split_whitespace();
        command.args(words).arg("--root").arg(root.path());
        command.output().unwrap()
    };
    let (dir, socket) = ("var/log/pods", "run/podprobe/podprobe.sock");
    let path = |below: &str| root.path().join(below).display().to_string();
    let word = format!(
        "no daemon runs at {}; reading the files in {}\n",
        path(socket),
        path(dir)
    );
    let none = format!("{word}{} has no log of a pod \"web\"\n", path(dir));
    check_output(&logs("logs web"), 1, "", &none);
    for (file, text) in [("0.log", "F before"), ("1.log", "F one\nF two")] {
        let log = root
            .path()
            .join(dir)
            .join("default_web_uid/main")
            .join(file);
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        let record = |l: &str| format!("2026-01-02T03:04:05Z stdout {l}\n");
        std::fs::write(log, text.lines().map(record).collect::<String>()).unwrap();
    }
    check_output(&logs("logs web --tail 1"), 0, "two\n", &word);
    check_output(&logs("logs web -p"), 0, "before\n", &word);
    // Nobody writes it any more.
    check_output(&logs("logs web -f"), 0, "one\ntwo\n", &word);
    let container = format!(
        "{word}{} has no log of a container \"mian\": it has those of [main], did you mean 'main'?\n",
        path("var/log/pods/default_web_uid")
    );
    check_output(&logs("logs web -c mian"), 1, "", &container);
}

#[test]
fn the_log_of_a_rejected_pod_is_why_it_was_rejected() {
    let mut rejected = pod("default", "a");
    rejected["status"] = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough resource: cpu"});
    let world = World::new(vec![rejected], vec![]);
    let why = "pod \"a-edge\" was rejected: OutOfcpu: Node didn't have enough resource: cpu\n";
    for line in ["logs a", "logs a -p", "logs a -f"] {
        world.check_failure(line, 1, why);
    }
}

#[test]
fn the_log_of_a_pod_that_waits_for_the_node_says_so() {
    let mut held = pod("default", "a");
    held["status"] = json!({"phase": "Pending", "reason": "NodeDrained", "message": "Pod waits for the node: it is drained"});
    let world = World::new(vec![held], vec![]);
    let why = "pod \"a-edge\" waits for the node: NodeDrained: it is drained\n";
    world.check_failure("logs a", 1, why);
}

#[test]
fn following_ends_with_the_container() {
    let world = World::new(vec![], vec![]);
    world.set(2, vec![with_logs(&world, &["main"], 0, true)], vec![]);
    write_log(world.root.path(), "main/0.log", "F one");
    let mut child = Killed(
        world
            .command("logs web -f")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "one");
    std::fs::rename(
        world.root.path().join("logs/main/0.log"),
        world
            .root
            .path()
            .join("logs/main/0.log.2026-01-02-030405.1"),
    )
    .unwrap();
    write_log(world.root.path(), "main/0.log", "F two");
    assert_eq!(lines.next().unwrap(), "two");
    world.set(3, vec![with_logs(&world, &["main"], 0, false)], vec![]);
    assert_eq!(lines.next(), None);
    assert!(child.0.wait().unwrap().success());
}

/// Each ends with its container, and the verb with the last.
#[test]
fn all_containers_are_followed_until_the_last_one_ends() {
    let world = World::new(vec![], vec![]);
    let pod = |a_runs: bool| {
        let mut pod = with_logs(&world, &["a", "b"], 0, true);
        if !a_runs {
            let ended = json!({"terminated": {"exitCode": 0}});
            pod["status"]["containerStatuses"][0]["state"] = ended;
        }
        pod
    };
    world.set(2, vec![pod(true)], vec![]);
    write_log(world.root.path(), "a/0.log", "F one");
    let mut child = Killed(
        world
            .command("logs web -f --all-containers --prefix")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "[pod/web-edge/a] one");
    write_log(world.root.path(), "b/0.log", "F two");
    assert_eq!(lines.next().unwrap(), "[pod/web-edge/b] two");
    write_log(world.root.path(), "a/0.log", "F one\nF last");
    world.set(3, vec![pod(false)], vec![]);
    assert_eq!(lines.next().unwrap(), "[pod/web-edge/a] last");
    write_log(world.root.path(), "b/0.log", "F two\nF still");
    assert_eq!(lines.next().unwrap(), "[pod/web-edge/b] still");
    world.set(4, vec![with_logs(&world, &["a", "b"], 0, false)], vec![]);
    assert_eq!(lines.next(), None);
    assert!(child.0.wait().unwrap().success());
}

/// It accepts the connection and never answers.
#[test]
fn a_daemon_that_hangs_has_not_refused() {
    let root = tempfile::tempdir().unwrap();
    let socket = Layout::new(root.path()).socket();
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_podprobe"))
        .args(["get", "pods", "--root"])
        .arg(root.path())
        .output()
        .unwrap();
    let expected =
        "podprobe has not answered within 10 s: it is overloaded or hangs; its log may say why\n";
    check_output(&output, 1, "", expected);
}

#[test]
fn without_a_daemon_it_says_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_podprobe"))
        .args(["get", "pods", "--root"])
        .arg(root.path())
        .output()
        .unwrap();
    let root = root.path().display();
    let expected = format!(
        "cannot reach podprobe at {root}/run/podprobe/podprobe.sock: no daemon runs there; start it with 'podprobe run --root {root}'\n"
    );
    assert_eq!(
        (text(&output.stderr), output.status.code()),
        (expected, Some(1))
    );
}

#[test]
fn a_wrong_command_line_is_code_2() {
    let world = World::new(vec![], vec![]);
    world.check_failure("get pods --wach", 2, "podprobe: 'get' has no option '--wach', did you mean '--watch'?; see 'podprobe help get'\n");
    world.check_failure(
        "gett pods",
        2,
        "podprobe: unknown verb 'gett', did you mean 'get'?; 'podprobe help' lists the verbs\n",
    );
}

#[test]
fn versions_of_both_sides() {
    let expected = format!(
        "Client Version: {}\nDaemon Version: 9.9.9\n",
        env!("CARGO_PKG_VERSION")
    );
    let world = World::new(vec![], vec![]);
    world.check("version", &expected);
    let json = world.run("version -o json").stdout;
    let versions = json!({
        "clientVersion": {"gitVersion": env!("CARGO_PKG_VERSION")},
        "serverVersion": {"gitVersion": "9.9.9"},
    });
    assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), versions);
    let wrong = "podprobe: unknown output form 'yml'; -o of 'version' takes json\n";
    world.check_failure("version -o yml", 2, wrong);
}

#[test]
fn the_root_may_come_from_the_environment_or_stand_before_the_verb() {
    let world = World::new(vec![pod("default", "web")], vec![]);
    let program = || Command::new(env!("CARGO_BIN_EXE_podprobe"));
    let line = ["get", "pods", "-o", "name"];
    let root = world.root.path();
    let mut by_variable = program();
    by_variable.args(line).env("PODPROBE_ROOT", root);
    let mut before = program();
    before.arg("--root").arg(root).args(line);
    before.env("PODPROBE_ROOT", "/nonexistent");
    for mut command in [by_variable, before] {
        check_output(&command.output().unwrap(), 0, "pod/web-edge\n", "");
    }
    let empty =
        "podprobe: PODPROBE_ROOT is set but empty; it needs a path: unset it, or give --root DIR\n";
    let output = program().args(line).env("PODPROBE_ROOT", "").output();
    check_output(&output.unwrap(), 2, "", empty);
}

#[test]
fn a_reader_that_goes_is_no_error() {
    // More than a pipe holds, so that the writer is sure to meet the closed end.
    let pods = (0..500)
        .map(|i| pod("default", &format!("pod-{i}")))
        .collect();
    let world = World::new(pods, vec![]);
    let mut child = Killed(
        world
            .command("get pods -o json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut first = [0; 1];
    child
        .0
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    let mut said = String::new();
    child
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(
        (said.as_str(), child.0.wait().unwrap().code()),
        ("", Some(0))
    );
}

/// The names of this thread's interfaces.
fn interfaces() -> String {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let names = table.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name).collect()
}

/// The mounts, tables of the packet filter and interfaces that this thread sees.
fn traces() -> [String; 3] {
    let tables = Command::new("nft")
        .args(["list", "tables"])
        .output()
        .unwrap();
    assert!(tables.status.success(), "{}", text(&tables.stderr));
    [
        std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap(),
        text(&tables.stdout),
        interfaces(),
    ]
}

/// In namespaces of its own, so that no other test changes what is compared.
#[test]
fn check_host_finds_a_node_that_runs_the_tests_fit_and_leaves_nothing() {
    if !skip::is_root() || !skip::has("nft", "nftables") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let check = || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
        let (nothing, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        mount(nothing, "/", nothing, private, nothing).unwrap();
        let before = traces();
        let output = Command::new(env!("CARGO_BIN_EXE_podprobe"))
            .args(["check-host", "--root"])
            .arg(root.path())
            .output()
            .unwrap();
        assert_eq!(traces(), before);
        output
    };
    let output = std::thread::scope(|s| s.spawn(check).join().unwrap());
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    for found in ["PASS  overlayfs ", "PASS  services ", "PASS  bridge "] {
        assert!(shown.contains(found), "{shown}");
    }
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    let config = root.path().join("config.json");
    std::fs::write(&config, "{\"nonsense\": 1}").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_podprobe"))
        .args(["check-host", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(shown.contains("\nFAIL  configuration "), "{shown}");
    assert!(shown.contains("nonsense"), "{shown}");
}
