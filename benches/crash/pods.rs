//! The pods of the node: what each one is for, and its files.

use serde_json::{Value, json};

use crate::support::node::{IMAGE, Node};

/// Pods that nothing but a kill of theirs may touch, with their containers.
pub(crate) const STEADY: [(&str, &[&str]); 7] = [
    ("http", &["main"]),
    ("exec", &["main"]),
    ("tcp", &["main"]),
    ("grpc", &["main"]),
    ("init", &["side", "main"]),
    ("hooks", &["main"]),
    ("files", &["main"]),
];

/// A pod that ends by itself, with the shortest time between two of its starts in seconds.
pub(crate) const ENDING: (&str, f64) = ("crasher", 7.0);

/// A pod whose liveness probe fails after 5 s, with the same: it fails twice, a second apart. Where the first one came late on a
/// busy machine, the second comes sooner after it; by more than half a second is a fault.
pub(crate) const FAILING: (&str, f64) = ("sick", 5.5);

/// The ConfigMap that the pod `files` reads.
pub(crate) const CONFIG: &str = "conf";

/// Where a container writes its starts; relative to the node's shared directory.
pub(crate) fn stamps(pod: &str, container: &str) -> String {
    format!("{pod}-{container}")
}

/// Puts all pods that stay, and what they need.
pub(crate) fn put_all(node: &Node) {
    put_config(node, 0);
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    node.add("claim", &claim);
    for (name, _) in STEADY {
        node.add(name, &steady(node, name));
    }
    let mut crasher = container(
        ENDING.0,
        "main",
        &["--exit-after", "7s", "--exit-code", "3"],
    );
    crasher["readinessProbe"] = http("/readyz");
    node.add(ENDING.0, &pod(node, ENDING.0, vec![crasher]));
    let mut sick = container(FAILING.0, "main", &["--fail-after", "5s"]);
    sick["livenessProbe"] = http("/healthz");
    sick["livenessProbe"]["failureThreshold"] = json!(2);
    node.add(FAILING.0, &pod(node, FAILING.0, vec![sick]));
}

/// Writes the ConfigMap with that number as its content.
pub(crate) fn put_config(node: &Node, number: u64) {
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG},
        "data": {"number": number.to_string()}});
    node.add(CONFIG, &config);
}

/// A Job whose pod ends well, once.
pub(crate) fn job(node: &Node, name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": once(node, name)}}})
}

/// A CronJob that does the same each minute.
pub(crate) fn cron_job(node: &Node, name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"backoffLimit": 0, "template": {"spec": once(node, name)}}}}})
}

/// A pod with hooks that comes and goes.
pub(crate) fn visitor(node: &Node, name: &str) -> Value {
    let mut visitor = container(name, "main", &[]);
    visitor["readinessProbe"] = http("/readyz");
    visitor["lifecycle"] = json!({"postStart": hook(name, "hello"), "preStop": hook(name, "bye")});
    pod(node, name, vec![visitor])
}

/// A pod of an image that is pulled.
pub(crate) fn pulled(node: &Node, name: &str, image: &str) -> Value {
    let mut pulled = container(name, "main", &[]);
    pulled["image"] = image.into();
    pulled["imagePullPolicy"] = "IfNotPresent".into();
    pulled["readinessProbe"] = http("/readyz");
    pod(node, name, vec![pulled])
}

fn once(node: &Node, name: &str) -> Value {
    let main = container(name, "main", &["--exit-after", "300ms"]);
    let mut spec = pod(node, name, vec![main])["spec"].take();
    spec["restartPolicy"] = "Never".into();
    spec
}

fn steady(node: &Node, name: &str) -> Value {
    let mut main = container(name, "main", &["--grpc-port", "9000", "--tcp-port", "9001"]);
    let kind = match name {
        "exec" => {
            json!({"exec": {"command": ["/probe-target", "--check", "/readyz"]}, "periodSeconds": 1})
        }
        "tcp" => json!({"tcpSocket": {"port": 9001}, "periodSeconds": 1}),
        "grpc" => json!({"grpc": {"port": 9000}, "periodSeconds": 1}),
        _ => http("/readyz"),
    };
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        main[probe] = kind.clone();
    }
    // A server may listen a little later than it runs, and a machine may be busy.
    main["startupProbe"]["failureThreshold"] = json!(60);
    main["livenessProbe"]["failureThreshold"] = json!(10);
    main["readinessProbe"]["failureThreshold"] = json!(10);
    let mut made = pod(node, name, vec![main]);
    let spec = &mut made["spec"];
    match name {
        "init" => {
            let setup = container(name, "setup", &["--exit-after", "10ms"]);
            let mut side = container(name, "side", &["--port", "8081"]);
            side["restartPolicy"] = "Always".into();
            spec["initContainers"] = json!([setup, side]);
        }
        "hooks" => {
            spec["containers"][0]["lifecycle"] =
                json!({"postStart": hook(name, "hello"), "preStop": hook(name, "bye")});
        }
        "files" => {
            let volumes = spec["volumes"].as_array_mut().unwrap();
            volumes.extend([
                json!({"name": "conf", "configMap": {"name": CONFIG}}),
                json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
                json!({"name": "empty", "emptyDir": {}}),
            ]);
            let main = &mut spec["containers"][0];
            let mounts = main["volumeMounts"].as_array_mut().unwrap();
            mounts.extend(
                ["conf", "data", "empty"]
                    .map(|name| json!({"name": name, "mountPath": format!("/{name}")})),
            );
        }
        _ => {}
    }
    made
}

/// What a hook does: it writes that it was called.
fn hook(pod: &str, name: &str) -> Value {
    let stamps = format!("/bench/{}", stamps(pod, name));
    json!({"exec": {"command": ["/probe-target", "--stamp", stamps, "--exit-after", "1ms", "--port", "0"]}})
}

fn http(path: &str) -> Value {
    json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1})
}

fn container(pod: &str, name: &str, args: &[&str]) -> Value {
    json!({"name": name, "image": IMAGE, "imagePullPolicy": "Never", "args": args,
        "command": ["/probe-target", "--stamp", format!("/bench/{}", stamps(pod, name))],
        "volumeMounts": [{"name": "bench", "mountPath": "/bench"}]})
}

fn pod(node: &Node, name: &str, containers: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": containers,
            "volumes": [{"name": "bench", "hostPath": {"path": node.shared}}]}})
}
