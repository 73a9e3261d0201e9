//! The client verbs of the real binary against a real socket, with a backend whose pods the test makes up.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use podprobe::clock::Time;
use podprobe::layout::Layout;
use podprobe::server::{self, Backend, Server};
use podprobe::status::Snapshot;
use serde_json::{Value, json};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

struct Fake {
    now: Mutex<Arc<Snapshot>>,
    changed: Condvar,
}

impl Backend for Fake {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.now.lock().unwrap().clone()
    }
    fn wait_newer(&self, version: u64, ceiling: Duration) -> Arc<Snapshot> {
        let now = self.now.lock().unwrap();
        self.changed.wait_timeout_while(now, ceiling, |s| s.version <= version).unwrap().0.clone()
    }
    fn version(&self) -> String {
        "9.9.9".into()
    }
}

/// A root with a daemon's socket in it.
struct World {
    root: tempfile::TempDir,
    backend: Arc<Fake>,
    _server: Server,
}

impl World {
    fn new(pods: Vec<Value>, problems: Vec<Value>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let backend = Arc::new(Fake { now: Mutex::default(), changed: Condvar::new() });
        let server = server::spawn(&Layout::new(root.path()).socket(), backend.clone()).unwrap();
        let world = Self { root, backend, _server: server };
        world.set(1, pods, problems);
        world
    }

    fn set(&self, version: u64, pods: Vec<Value>, problems: Vec<Value>) {
        let snapshot = json!({"version": version, "nodeName": "Edge", "pods": pods, "problems": problems});
        *self.backend.now.lock().unwrap() = serde_json::from_value(snapshot).unwrap();
        self.backend.changed.notify_all();
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podprobe"));
        command.args(line.split_whitespace()).arg("--root").arg(self.root.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    #[track_caller]
    fn check(&self, line: &str, expected: &str) {
        let output = self.run(line);
        assert_eq!(text(&output.stdout), expected, "stderr: {}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }

    #[track_caller]
    fn check_failure(&self, line: &str, code: i32, expected: &str) {
        let output = self.run(line);
        assert_eq!((text(&output.stderr).as_str(), output.status.code()), (expected, Some(code)));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ago(seconds: u64) -> Value {
    serde_json::to_value(Time::from(SystemTime::now() - Duration::from_secs(seconds))).unwrap()
}

/// A running, ready pod with one container.
fn pod(namespace: &str, name: &str) -> Value {
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
    let expected = "NAME       READY   STATUS    RESTARTS   AGE   IP         NODE   FILE\n\
                    web-edge   1/1     Running   0          5d    10.0.0.7   Edge   /pods/web.json\n";
    world.check("get pods -o wide", expected);
}

#[test]
fn namespaces_have_a_column_when_there_are_some() {
    let world = World::new(vec![pod("default", "a"), pod("kube-system", "b")], vec![]);
    let header = "NAMESPACE     NAME     READY   STATUS    RESTARTS   AGE\n";
    let expected =
        format!("{header}default       a-edge   1/1     Running   0          5d\nkube-system   b-edge   1/1     Running   0          5d\n");
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
fn json_is_a_real_pod_list_or_the_pod() {
    let world = World::new(vec![pod("default", "web")], vec![]);
    let list: Value = serde_json::from_slice(&world.run("get pods -o json").stdout).unwrap();
    assert_eq!((&list["apiVersion"], &list["kind"]), (&json!("v1"), &json!("PodList")));
    assert_eq!(list["items"][0]["status"]["containerStatuses"][0]["ready"], true);
    let one: Value = serde_json::from_slice(&world.run("get pod web -o json").stdout).unwrap();
    assert_eq!((&one["kind"], &one["metadata"]["name"]), (&json!("Pod"), &json!("web-edge")));
    let none: Value = serde_json::from_slice(&World::new(vec![], vec![]).run("get pods -o json").stdout).unwrap();
    assert_eq!(none["items"], json!([]));
}

#[test]
fn no_pods_and_no_such_pod() {
    let world = World::new(vec![pod("default", "web")], vec![]);
    world.check_failure("get pods -n other", 0, "No resources found in other namespace.\n");
    world.check_failure("get pods wbe", 1, "Error from server (NotFound): pods \"wbe\" not found\ndid you mean \"web\"?\n");
    world.check_failure("describe pod database", 1, "Error from server (NotFound): pods \"database\" not found\n");
    World::new(vec![], vec![]).check_failure("get pods", 0, "No resources found\n");
}

#[test]
fn files_with_problems_follow_the_table() {
    let mut old = pod("default", "web");
    old["fileError"] = "spec: bad".into();
    let problems = vec![json!({"file": "/pods/new.json", "error": "line 3: no"}), json!({"file": "/pods/web.json", "error": "spec: bad"})];
    let world = World::new(vec![old], problems);
    let output = world.run("get pods");
    assert_eq!(text(&output.stderr), "/pods/new.json: not running: line 3: no\n/pods/web.json: last good version runs: spec: bad\n");
    let described = text(&world.run("describe pod web").stdout);
    assert!(described.contains("File Error:      last good version runs: spec: bad\n"), "{described}");
    let missing = world.run("describe pod new");
    assert!(text(&missing.stderr).ends_with("not found\n/pods/new.json: not running: line 3: no\n"), "{}", text(&missing.stderr));
}

#[test]
fn a_watch_prints_the_rows_that_change() {
    let world = World::new(vec![pod("default", "a"), pod("default", "b")], vec![]);
    let mut child = Killed(world.command("get pods -w").stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("NAME"));
    assert_eq!(lines.next().unwrap(), "a-edge   1/1     Running   0          5d");
    assert_eq!(lines.next().unwrap(), "b-edge   1/1     Running   0          5d");
    let mut stopping = pod("default", "b");
    stopping["terminating"] = true.into();
    world.set(2, vec![pod("default", "a"), stopping], vec![]);
    assert_eq!(lines.next().unwrap(), "b-edge   1/1     Terminating   0          5d");
    world.set(3, vec![crashing("a")], vec![]);
    assert_eq!(lines.next().unwrap(), "a-edge   0/1     CrashLoopBackOff   3 (3h ago)   5d");
}

/// Ends a child also when the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn describe_is_kubectls_layout() {
    let mut pod = crashing("web");
    pod["status"]["startTime"] = "2026-01-02T03:04:05Z".into();
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["finishedAt"] = "2026-01-02T03:05:05Z".into();
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
    world.check("describe pod web", include_str!("golden/describe.txt"));
}

fn with_logs(world: &World, containers: &[&str], restarts: u32, running: bool) -> Value {
    let mut pod = pod("default", "web");
    let state = if running { json!({"running": {"startedAt": null}}) } else { json!({"terminated": {"exitCode": 0}}) };
    let status = |name: &&str| json!({"name": name, "restartCount": restarts, "state": state});
    pod["status"]["containerStatuses"] = containers.iter().map(status).collect();
    pod["object"]["spec"]["containers"] = containers.iter().map(|name| json!({"name": name})).collect();
    pod["logDir"] = world.root.path().join("logs").to_str().unwrap().into();
    pod
}

fn write_log(root: &Path, file: &str, text: &str) {
    let path = root.join("logs").join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let lines: String = text.lines().map(|l| format!("2026-01-02T03:04:05.000000006Z stdout {l}\n")).collect();
    std::fs::write(path, lines).unwrap();
}

#[test]
fn logs_are_what_the_container_wrote() {
    let world = World::new(vec![], vec![]);
    world.set(2, vec![with_logs(&world, &["main"], 1, true)], vec![]);
    write_log(world.root.path(), "main/0.log", "F before");
    write_log(world.root.path(), "main/1.log.2026-01-02-030405.000000001", "F rotated");
    write_log(world.root.path(), "main/1.log", "P in two\nF  parts\nF last");
    world.check("logs web", "rotated\nin two parts\nlast\n");
    world.check("logs web -p", "before\n");
    world.check("logs pod/web-edge -c main", "rotated\nin two parts\nlast\n");
    world.check_failure(
        "logs web -c mian",
        1,
        "error: container mian is not valid for pod web-edge: its containers are [main], did you mean main?\n",
    );
}

#[test]
fn logs_of_several_containers_need_a_choice() {
    let world = World::new(vec![], vec![]);
    world.set(2, vec![with_logs(&world, &["a", "b"], 0, true)], vec![]);
    world.check_failure("logs web", 1, "error: a container name must be specified for pod web-edge, choose one of: [a b]\n");
    let previous = "Error from server (BadRequest): previous terminated container \"a\" in pod \"web-edge\" not found\n";
    world.check_failure("logs web -c a -p", 1, previous);
}

#[test]
fn following_ends_with_the_container() {
    let world = World::new(vec![], vec![]);
    world.set(2, vec![with_logs(&world, &["main"], 0, true)], vec![]);
    write_log(world.root.path(), "main/0.log", "F one");
    let mut child = Killed(world.command("logs web -f").stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "one");
    std::fs::rename(world.root.path().join("logs/main/0.log"), world.root.path().join("logs/main/0.log.2026-01-02-030405.1")).unwrap();
    write_log(world.root.path(), "main/0.log", "F two");
    assert_eq!(lines.next().unwrap(), "two");
    world.set(3, vec![with_logs(&world, &["main"], 0, false)], vec![]);
    assert_eq!(lines.next(), None);
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn without_a_daemon_it_says_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_podprobe")).args(["get", "pods", "--root"]).arg(root.path()).output().unwrap();
    let root = root.path().display();
    let expected = format!(
        "cannot reach podprobe at {root}/run/podprobe/podprobe.sock: no daemon runs there; start it with 'podprobe run --root {root}'\n"
    );
    assert_eq!((text(&output.stderr), output.status.code()), (expected, Some(1)));
}

#[test]
fn a_wrong_command_line_is_code_2() {
    let world = World::new(vec![], vec![]);
    world.check_failure("get pods --wach", 2, "podprobe: 'get' has no option '--wach', did you mean '--watch'?; see 'podprobe help get'\n");
    world.check_failure("gett pods", 2, "podprobe: unknown verb 'gett', did you mean 'get'?; 'podprobe help' lists the verbs\n");
}

#[test]
fn versions_of_both_sides() {
    let expected = format!("Client Version: {}\nDaemon Version: 9.9.9\n", env!("CARGO_PKG_VERSION"));
    World::new(vec![], vec![]).check("version", &expected);
}

#[test]
fn a_reader_that_goes_is_no_error() {
    // More than a pipe holds, so that the writer is sure to meet the closed end.
    let pods = (0..500).map(|i| pod("default", &format!("pod-{i}"))).collect();
    let world = World::new(pods, vec![]);
    let mut child = Killed(world.command("get pods -o json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut first = [0; 1];
    child.0.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let mut said = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((said.as_str(), child.0.wait().unwrap().code()), ("", Some(0)));
}
