//! The probe verbs on a real daemon: pause and resume across its death, run a probe now, read the
//! history (kubelet-probes 3.1, 8.4; lessons 12, 13, 21).

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use podprobe::daemon::settings::Settings;
use serde_json::json;

use crate::support;
use crate::support::{Node, on, wait_until};

/// A daemon that is killed with the test.
struct Daemon(Child);

impl Daemon {
    fn start(node: &Node) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podprobe"));
        command
            .args(["run", "--node-name", "edge", "--network", "none", "--root"])
            .arg(node.layout.root())
            .env("PODPROBE_LOG", "error")
            .stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn podprobe(node: &Node, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_podprobe"))
        .args(line.split(' '))
        .arg("--root")
        .arg(node.layout.root())
        .output()
        .unwrap()
}

fn says(node: &Node, line: &str) -> String {
    String::from_utf8_lossy(&podprobe(node, line).stdout).into_owned()
}

/// A power cut, after which /run is empty and the boot has another id.
#[test]
fn after_the_node_was_down_the_cause_of_the_start_says_so() {
    on(Settings::default().runtime, |node| {
        let mut container = support::sh("main", "exec sleep 1000");
        container["imagePullPolicy"] = "Never".into();
        let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 1});
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
        let file = node.layout.pods_dir().join("web.json");
        fs::create_dir_all(node.layout.pods_dir()).unwrap();
        fs::write(&file, pod.to_string()).unwrap();
        let daemon = Daemon::start(node);
        let checkpoint = || fs::read_to_string(node.layout.checkpoint()).unwrap_or_default();
        wait_until("the running pod in the checkpoint", || {
            checkpoint().contains("\"running\":")
        });
        drop(daemon);
        node.kill_everything();
        fs::remove_dir_all(node.layout.run_dir()).unwrap();
        let boot = podprobe::base::clock::boot_id();
        let before = checkpoint().replace(&boot, "another-boot");
        assert!(before.contains("another-boot"), "{before}");
        fs::write(node.layout.checkpoint(), before).unwrap();

        let daemon = Daemon::start(node);
        let described = || says(node, "describe pod web");
        wait_until("the start after the power cut", || {
            described().contains("Restarts:")
        });
        let described = described();
        let restarts = described.split_once("Restarts:").expect(&described).1;
        assert!(restarts.contains("the node was restarted"), "{described}");
        fs::remove_file(&file).unwrap();
        wait_until("the pod's end", || says(node, "get pods").is_empty());
        drop(daemon);
    });
}

#[test]
fn a_person_looks_into_a_failing_probe() {
    on(Settings::default().runtime, |node| {
        let shared = node.dir.path().join("shared");
        fs::create_dir_all(&shared).unwrap();
        fs::write(shared.join("ok"), "fine").unwrap();
        let probe = json!({"exec": {"command": ["cat", "/shared/ok"]}, "periodMilliseconds": 100, "timeoutSeconds": 20, "failureThreshold": 1});
        let mut container = support::sh("main", "exec sleep 1000");
        container["imagePullPolicy"] = "Never".into();
        container["livenessProbe"] = probe;
        container["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
        let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 1, "volumes": [{"name": "shared", "hostPath": {"path": shared}}]});
        let file = node.layout.pods_dir().join("web.json");
        fs::create_dir_all(node.layout.pods_dir()).unwrap();
        fs::write(
            &file,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec})
                .to_string(),
        )
        .unwrap();

        let daemon = Daemon::start(node);
        let total = |result: &str| {
            says(node, "metrics")
                .lines()
                .any(|l| l.starts_with("prober_probe_total{") && l.contains(result))
        };
        wait_until("a successful probe", || total("result=\"successful\""));
        assert_eq!(podprobe(node, "probe web liveness").status.code(), Some(0));

        assert_eq!(
            says(node, "pause web --for 1h"),
            "web-edge/main/liveness paused for 1h0m0s\n"
        );
        fs::remove_file(shared.join("ok")).unwrap();
        let now = podprobe(node, "probe web liveness");
        let text = String::from_utf8_lossy(&now.stdout);
        assert_eq!(now.status.code(), Some(1), "{text}");
        assert!(
            text.contains("exit code 1, ") && text.contains("failure at run after "),
            "{text}"
        );

        // killed and started again, the daemon keeps the pause, and with it the container that fails its probe
        drop(daemon);
        let daemon = Daemon::start(node);
        wait_until("the pod to be known again", || {
            says(node, "get pods -o wide").contains("Running")
                && says(node, "metrics").contains("podprobe_prober_workers 1")
        });
        assert!(
            says(node, "get pods -o wide").contains("main/liveness ("),
            "{}",
            says(node, "get pods -o wide")
        );
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!total("result="), "a paused probe has run");

        assert_eq!(
            says(node, "resume web/main liveness"),
            "web-edge/main/liveness resumed\n"
        );
        wait_until("the restart", || {
            says(node, "describe pod web").contains("failed liveness probe: cat: ")
        });
        fs::write(shared.join("ok"), "fine").unwrap();
        let events = says(node, "get events web");
        assert!(
            events.contains("Container main failed liveness probe, will be restarted"),
            "{events}"
        );
        assert!(
            events.contains("Unhealthy") && events.contains("Liveness probe failed: cat: "),
            "{events}"
        );

        // the pod goes, its pause with it; its events stay
        assert_eq!(says(node, "pause web --for 1h").lines().count(), 1);
        fs::remove_file(&file).unwrap();
        wait_until("the pod's end", || says(node, "get pods").is_empty());
        let pauses = || fs::read_to_string(node.layout.pauses()).unwrap();
        wait_until("the end of the pause", || {
            pauses().contains("\"pauses\":[]")
        });
        assert!(
            says(node, "get events web")
                .contains("Container main failed liveness probe, will be restarted")
        );
        assert!(
            !says(node, "metrics").contains("prober_probe_total"),
            "the series went with the worker"
        );
        drop(daemon);
    });
}
