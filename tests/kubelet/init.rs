//! Init containers, sidecars, restart rules and the restart of all containers: real containers under the real daemon.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{STATE, SandboxState};
use serde_json::{Value, json};

use crate::support;
use crate::support::{Node, on, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_podprobe");

/// The daemon of a node, and a directory that its containers share with the test.
struct World<'a> {
    node: &'a Node,
    shared: PathBuf,
    daemon: Option<Child>,
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.kill_daemon();
    }
}

/// A daemon on the embedded runtime; the test removes its pods.
fn world(test: impl FnOnce(&mut World)) {
    on(RuntimeChoice::Embedded, |node| {
        let shared = node.dir.path().join("shared");
        fs::create_dir_all(&shared).unwrap();
        fs::create_dir_all(node.layout.root().join("etc/podprobe/pods")).unwrap();
        let mut world = World {
            node,
            shared,
            daemon: None,
        };
        world.start_daemon();
        test(&mut world);
        world.stop_daemon();
    });
}

impl World<'_> {
    fn start_daemon(&mut self) {
        let mut command = Command::new(PROGRAM);
        command
            .arg("run")
            .arg("--node-name")
            .arg("n")
            .args(["--network", "none"])
            .arg("--root")
            .arg(self.node.layout.root());
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.node.dir.path().join("daemon.log"))
            .unwrap();
        self.daemon = Some(
            command
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .unwrap(),
        );
        let socket = self.node.layout.socket();
        wait_until("the daemon", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    fn stop_daemon(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(daemon.id() as i32),
            nix::sys::signal::Signal::SIGTERM,
        )
        .unwrap();
        assert!(daemon.wait().unwrap().success());
    }

    fn file(&self, name: &str) -> PathBuf {
        self.node
            .layout
            .root()
            .join("etc/podprobe/pods")
            .join(format!("{name}.json"))
    }

    /// Writes the file of a pod whose containers all see the shared directory at /s.
    fn add(&self, name: &str, mut spec: Value) {
        spec["volumes"] = json!([{"name": "s", "hostPath": {"path": self.shared}}]);
        for list in ["initContainers", "containers"] {
            for container in spec
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                container["volumeMounts"] = json!([{"name": "s", "mountPath": "/s"}]);
                container["imagePullPolicy"] = "Never".into();
            }
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": spec});
        let temporary = self.node.dir.path().join("new.json");
        fs::write(&temporary, pod.to_string()).unwrap();
        fs::rename(temporary, self.file(name)).unwrap();
    }

    /// Removes the pod and waits until it has gone.
    fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).unwrap();
        wait_until("the pod to go", || {
            self.get(name).is_none()
                && fs::read_dir(self.node.layout.sandboxes()).unwrap().count() == 0
        });
    }

    fn command(&self, line: &str) -> (String, bool) {
        let mut command = Command::new(PROGRAM);
        command
            .args(line.split_whitespace())
            .arg("--root")
            .arg(self.node.layout.root());
        let output = command.stdin(Stdio::null()).output().unwrap();
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            output.status.success(),
        )
    }

    fn get(&self, name: &str) -> Option<Value> {
        let (text, found) = self.command(&format!("get pods {name} -o json"));
        found.then(|| serde_json::from_str(&text).unwrap())
    }

    /// READY and STATUS of `get pods`.
    fn columns(&self, name: &str) -> (String, String) {
        let (text, _) = self.command(&format!("get pods {name}"));
        let mut words = text
            .lines()
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .map(str::to_owned);
        (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        )
    }

    /// Waits until the status of the pod is as wanted, and returns it.
    #[track_caller]
    fn wait(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut status = Value::Null;
        wait_until(what, || {
            status = self
                .get(name)
                .map_or(Value::Null, |pod| pod["status"].clone());
            wanted(&status)
        });
        status
    }

    #[track_caller]
    fn wait_columns(&self, name: &str, ready: &str, status: &str) {
        wait_until(&format!("{ready} {status}"), || {
            self.columns(name) == (ready.into(), status.into())
        });
    }

    fn touch(&self, name: &str) {
        fs::write(self.shared.join(name), "").unwrap();
    }

    /// The lines the containers have written, in order.
    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.shared.join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn wait_log(&self, expected: &[&str]) {
        wait_until(&format!("the lines {expected:?}"), || {
            self.log().len() >= expected.len()
        });
        assert_eq!(self.log(), expected);
    }
}

/// A container that writes `<name>` to the log and goes on with `then`.
fn container(name: &str, then: &str) -> Value {
    support::sh(name, &format!("echo {name} >> /s/log; {then}"))
}

fn with(mut container: Value, more: Value) -> Value {
    container
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    container
}

/// Waits for a file.
fn until(file: &str) -> String {
    format!("while [ ! -e /s/{file} ]; do sleep 0.02; done")
}

/// Goes on until it is told to end, says so after `last_words`, and exits with 3 when it finds its file.
fn stays(name: &str, last_words: &str) -> String {
    format!(
        "trap '{last_words}echo {name}-term >> /s/log; exit 0' TERM; \
         while :; do if [ -e /s/die-{name} ]; then /bin/busybox rm /s/die-{name}; exit 3; fi; sleep 0.02; done"
    )
}

fn of<'a>(status: &'a Value, name: &str) -> &'a Value {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists
        .iter()
        .flat_map(|l| status[*l].as_array().into_iter().flatten())
        .find(|c| c["name"] == name)
        .unwrap_or(&Value::Null)
}

fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|c| c["type"] == type_)
        .map_or(&Value::Null, |c| &c["status"])
}

fn running(status: &Value, name: &str) -> bool {
    of(status, name)["state"]["running"].is_object()
}

#[test]
fn two_init_containers_in_order_and_then_the_app() {
    world(|w| {
        let first = container("first", &format!("echo hello; {}", until("go")));
        w.add("p", json!({"initContainers": [first, container("second", "")], "containers": [container("app", &stays("app", ""))]}));
        w.wait_columns("p", "0/1", "Init:0/2");
        let status = w.wait("p", "the first init container", |s| running(s, "first"));
        assert_eq!(
            (&status["phase"], condition(&status, "Initialized")),
            (&json!("Pending"), &json!("False"))
        );
        assert_eq!(
            of(&status, "app")["state"]["waiting"]["reason"],
            "PodInitializing"
        );
        assert_eq!(w.log(), ["first"]);
        w.touch("go");
        w.wait_columns("p", "1/1", "Running");
        assert_eq!(w.log(), ["first", "second", "app"]);
        let status = w.wait("p", "the status", |s| s["phase"] == "Running");
        assert_eq!(condition(&status, "Initialized"), "True");
        for name in ["first", "second"] {
            let ended = of(&status, name);
            assert_eq!(
                (
                    &ended["state"]["terminated"]["reason"],
                    &ended["ready"],
                    &ended["restartCount"]
                ),
                (&json!("Completed"), &json!(true), &json!(0))
            );
        }
        assert_eq!(w.command("logs p -c first").0, "hello\n");
        assert_eq!(
            w.command("logs p").0,
            "",
            "the one regular container is the default"
        );
        let described = w.command("describe pod p").0;
        assert!(
            described.contains("Init Containers:\n  first:")
                && described.contains("Containers:\n  app:"),
            "{described}"
        );
        let events = described.split("Events:").nth(1).unwrap();
        assert!(events.contains("Started"), "{events}");
        w.remove("p");
    });
}

#[test]
fn a_failed_init_container_ends_the_pod_or_is_tried_again() {
    world(|w| {
        w.add(
            "never",
            json!({"restartPolicy": "Never", "initContainers": [container("bad", "exit 4")], "containers": [container("app", "")]}),
        );
        let status = w.wait("never", "the pod to fail", |s| s["phase"] == "Failed");
        assert_eq!(of(&status, "bad")["state"]["terminated"]["exitCode"], 4);
        assert_eq!(w.columns("never").1, "Init:Error");
        assert_eq!(w.log(), ["bad"]);
        // what was never come to has not ended in an unknown way
        let status = w.wait("never", "the pod to be finished", |s| {
            of(s, "app")["state"].is_object()
        });
        assert!(
            of(&status, "app")["state"]["terminated"].is_null(),
            "{status}"
        );
        w.remove("never");

        let retry = container(
            "retry",
            "if [ -e /s/tried ]; then exit 0; fi; touch /s/tried; exit 4",
        );
        w.add(
            "retry",
            json!({"restartPolicy": "OnFailure", "initContainers": [retry], "containers": [container("app", &stays("app", ""))]}),
        );
        let status = w.wait("retry", "the app", |s| running(s, "app"));
        // A container runs before its program has done anything.
        wait_until("the app's first line", || w.log().len() > 3);
        assert_eq!(w.log(), ["bad", "retry", "retry", "app"]);
        let init = of(&status, "retry");
        assert_eq!(
            (
                &init["restartCount"],
                &init["lastState"]["terminated"]["exitCode"],
                &init["ready"]
            ),
            (&json!(1), &json!(4), &json!(true))
        );
        w.remove("retry");
    });
}

/// Two sidecars, the second with a startup probe, and an app.
fn sidecars() -> Value {
    let sidecar = |name: &str| {
        with(
            container(name, &stays(name, "")),
            json!({"restartPolicy": "Always"}),
        )
    };
    let probe = json!({"exec": {"command": ["/bin/ls", "/s/up"]}, "periodSeconds": 1, "failureThreshold": 1000, "timeoutSeconds": 10});
    json!({"terminationGracePeriodSeconds": 40,
        "initContainers": [sidecar("outer"), with(sidecar("inner"), json!({"startupProbe": probe}))],
        "containers": [container("app", &stays("app", "sleep 0.3; "))]})
}

#[test]
fn sidecars_start_before_the_app_restart_alone_and_end_after_it() {
    world(|w| {
        w.add("p", sidecars());
        w.wait_columns("p", "1/3", "Init:1/2");
        let status = w.wait("p", "the inner sidecar", |s| running(s, "inner"));
        assert_eq!(
            (
                &of(&status, "outer")["started"],
                &of(&status, "inner")["started"]
            ),
            (&json!(true), &json!(false))
        );
        // The startup probe holds the app back.
        w.wait_log(&["outer", "inner"]);
        w.touch("up");
        w.wait_columns("p", "3/3", "Running");
        let before = w.wait("p", "the app", |s| running(s, "app"));

        w.touch("die-outer");
        let after = w.wait("p", "the outer sidecar to be back", |s| {
            of(s, "outer")["restartCount"] == 1 && running(s, "outer")
        });
        assert_eq!(
            of(&after, "outer")["lastState"]["terminated"]["exitCode"],
            3
        );
        for name in ["inner", "app"] {
            assert_eq!(
                of(&after, name)["containerID"],
                of(&before, name)["containerID"],
                "{name} goes on"
            );
        }
        w.wait_columns("p", "3/3", "Running");
        w.remove("p");
        let expected = [
            "outer",
            "inner",
            "app",
            "outer",
            "app-term",
            "inner-term",
            "outer-term",
        ];
        w.wait_log(&expected);
    });
}

/// Lessons A2: a daemon started anew knows that the sidecar has started, so what crashes later is restarted.
#[test]
fn a_new_daemon_restarts_nothing_and_still_restarts_what_crashes() {
    world(|w| {
        w.touch("up");
        w.add("p", sidecars());
        w.wait_columns("p", "3/3", "Running");
        let before = w.wait("p", "every container", |s| {
            ["outer", "inner", "app"].iter().all(|n| running(s, n))
        });
        let checkpoint = w.node.layout.checkpoint();
        wait_until("the checkpoint", || {
            let saved = fs::read_to_string(&checkpoint).unwrap_or_default();
            saved.contains("\"Running\"") && saved.matches("\"started\":true").count() == 3
        });
        w.kill_daemon();
        // the probe would fail now: only what is known from before says that the sidecar has started
        fs::remove_file(w.shared.join("up")).unwrap();
        w.touch("die-app");
        w.start_daemon();
        let after = w.wait("p", "the app to be back", |s| {
            of(s, "app")["restartCount"] == 1 && running(s, "app")
        });
        for name in ["outer", "inner"] {
            assert_eq!(
                of(&after, name)["containerID"],
                of(&before, name)["containerID"],
                "{name} goes on"
            );
        }
        w.wait_columns("p", "3/3", "Running");
        w.remove("p");
    });
}

#[test]
fn a_failing_liveness_probe_of_a_sidecar_restarts_the_sidecar_alone() {
    world(|w| {
        w.touch("well");
        let probe = json!({"exec": {"command": ["/bin/ls", "/s/well"]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10,
            "terminationGracePeriodSeconds": 2});
        let sidecar = with(
            container("side", &stays("side", "touch /s/well; ")),
            json!({"restartPolicy": "Always", "livenessProbe": probe}),
        );
        w.add("p", json!({"restartPolicy": "Never", "initContainers": [sidecar], "containers": [container("app", &stays("app", ""))]}));
        w.wait_columns("p", "2/2", "Running");
        fs::remove_file(w.shared.join("well")).unwrap();
        let status = w.wait("p", "the sidecar to be back", |s| {
            of(s, "side")["restartCount"] == 1 && running(s, "side")
        });
        assert_eq!(of(&status, "app")["restartCount"], 0);
        let described = w.command("describe pod p").0;
        assert!(
            described.contains("Init container side failed liveness probe"),
            "{described}"
        );
        w.remove("p");
    });
}

#[test]
fn a_new_sandbox_begins_with_the_first_init_container() {
    world(|w| {
        let first = container("first", "if [ -e /s/up ]; then echo again >> /s/log; fi");
        let spec = json!({"terminationGracePeriodSeconds": 5, "initContainers": [first, container("second", "")],
            "containers": [container("app", &stays("app", ""))]});
        w.add("p", spec);
        w.wait_columns("p", "1/1", "Running");
        w.touch("up");
        let sandbox = fs::read_dir(w.node.layout.sandboxes())
            .unwrap()
            .flatten()
            .next()
            .unwrap()
            .path();
        support::kill9(
            podprobe::engine::shims::state::read::<SandboxState>(&sandbox, STATE)
                .unwrap()
                .process,
        );
        let status = w.wait("p", "the app to be back", |s| {
            of(s, "app")["restartCount"] == 1 && running(s, "app")
        });
        assert_eq!(
            w.log(),
            [
                "first", "second", "app", "app-term", "first", "again", "second", "app"
            ]
        );
        assert_eq!(
            of(&status, "first")["restartCount"],
            1,
            "the count goes on although the instances were purged"
        );
        let described = w.command("describe pod p").0;
        assert!(described.contains("SandboxChanged"), "{described}");
        w.remove("p");
    });
}

#[test]
fn a_pod_that_runs_to_completion_takes_its_sidecar_with_it() {
    world(|w| {
        let sidecar = with(
            container("side", &stays("side", "")),
            json!({"restartPolicy": "Always"}),
        );
        w.add("p", json!({"restartPolicy": "OnFailure", "initContainers": [sidecar], "containers": [container("job", "sleep 0.3; echo job-done >> /s/log")]}));
        let status = w.wait("p", "the pod to succeed", |s| s["phase"] == "Succeeded");
        assert_eq!(w.log(), ["side", "job", "job-done", "side-term"]);
        assert_eq!(
            (
                &of(&status, "side")["restartCount"],
                w.columns("p").1.as_str()
            ),
            (&json!(0), "Completed")
        );
        w.remove("p");
    });
}

#[test]
fn rules_restart_by_exit_code_against_the_policy_of_the_pod() {
    world(|w| {
        let script = "if [ -e /s/tried ]; then exit 7; fi; touch /s/tried; exit 42";
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        let ruled = with(
            container("ruled", script),
            json!({"restartPolicy": "Never", "restartPolicyRules": rules}),
        );
        w.add(
            "p",
            json!({"restartPolicy": "Never", "containers": [ruled]}),
        );
        let status = w.wait("p", "the pod to fail", |s| s["phase"] == "Failed");
        let ruled = of(&status, "ruled");
        assert_eq!(
            (
                &ruled["restartCount"],
                &ruled["state"]["terminated"]["exitCode"]
            ),
            (&json!(1), &json!(7))
        );
        assert_eq!(w.log(), ["ruled", "ruled"]);
        w.remove("p");
    });
}

#[test]
fn a_rule_restarts_all_containers_from_the_first_init_container_on() {
    world(|w| {
        let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}]);
        let asks = with(
            container("asks", &stays("asks", "")),
            json!({"restartPolicy": "Never", "restartPolicyRules": rules}),
        );
        // has ended for good, and starts all the same
        let done = container("done", "echo out");
        w.add("p", json!({"terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "initContainers": [container("init", "")], "containers": [asks, container("other", "while :; do sleep 0.02; done"), done]}));
        let ended = |s: &Value, restarts: u64| {
            let count = |n| of(s, n)["restartCount"] == restarts;
            running(s, "asks")
                && running(s, "other")
                && of(s, "done")["state"]["terminated"].is_object()
                && ["init", "asks", "other", "done"].into_iter().all(count)
        };
        let status = w.wait("p", "the pod", |s| ended(s, 0));
        assert_eq!(condition(&status, "AllContainersRestarting"), "False");
        for round in 1..=2 {
            w.touch("die-asks");
            let status = w.wait("p", "every container to be restarted", |s| ended(s, round));
            let last = &of(&status, "other")["lastState"]["terminated"];
            assert_eq!(
                (&last["reason"], &last["exitCode"]),
                (&json!("RestartingAllContainers"), &json!(137))
            );
            assert_eq!(
                (
                    condition(&status, "AllContainersRestarting"),
                    condition(&status, "Initialized")
                ),
                (&json!("False"), &json!("True"))
            );
            assert_eq!(status["phase"], "Running");
        }
        assert_eq!(w.log().iter().filter(|l| *l == "init").count(), 3);
        let logs = fs::read_dir(w.node.layout.logs_dir())
            .unwrap()
            .flatten()
            .next()
            .unwrap()
            .path();
        let kept = (1..3).all(|n| logs.join(format!("done/{n}.log")).exists());
        assert!(
            kept,
            "the log of a removed container stays, as that of any instance before the newest"
        );
        w.remove("p");
    });
}
