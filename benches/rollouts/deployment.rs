//! A Deployment of the probe target whose version is in the environment of its container.
#![allow(dead_code, reason = "each bench takes what it needs")]

use std::process::Command;

use podprobe::cli::client::Client;
use podprobe::face::views::Snapshot;
use serde_json::{Value, json};

use crate::support::node::{IMAGE, Node};
use crate::support::{program, wait_until};

/// A Deployment in a file of the node.
pub(crate) struct Deployment {
    name: &'static str,
    replicas: u64,
    host_port: Option<u16>,
    version: u64,
    /// The version that is to serve in the end.
    wanted: u64,
    has_service: bool,
}

impl Deployment {
    pub(crate) fn new(name: &'static str, replicas: u64, host_port: Option<u16>) -> Self {
        Self {
            name,
            replicas,
            host_port,
            version: 1,
            wanted: 1,
            has_service: false,
        }
    }

    /// Puts a service with this address before the pods.
    pub(crate) fn serve(&mut self, node: &Node, at: &str) {
        let (ip, port) = at.split_once(':').unwrap();
        let port: u16 = port.parse().unwrap();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": self.name},
            "spec": {"clusterIP": ip, "selector": {"app": self.name}, "ports": [{"port": port, "targetPort": 8080}]}});
        node.add(&format!("{}-service", self.name), &service);
        self.has_service = true;
    }

    pub(crate) fn next_version(&mut self) {
        self.version += 1;
        self.wanted = self.version;
    }

    /// Writes the file.
    pub(crate) fn put(&self, node: &Node) {
        let mut port = json!({"containerPort": 8080});
        if let Some(host_port) = self.host_port {
            port["hostPort"] = host_port.into();
        }
        let probe = json!({"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1});
        let container = json!({"name": "target", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/probe-target", "--drain", "100ms"],
            "env": [{"name": "VERSION", "value": self.version.to_string()}], "ports": [port], "readinessProbe": probe});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name},
            "spec": {"replicas": self.replicas, "selector": {"matchLabels": {"app": self.name}},
                "template": {"metadata": {"labels": {"app": self.name}},
                    "spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}}}});
        node.add(self.name, &deployment);
    }

    /// Goes back to the version before, as a person does.
    pub(crate) fn undo(&mut self, node: &Node) {
        let said = self.verb(node, &["rollout", "undo"], &[]);
        assert!(said.contains("rolled back"), "{said}");
        // The version before was complete when this one was put.
        self.wanted = self.version - 1;
    }

    pub(crate) fn scale(&mut self, node: &Node, replicas: u64) {
        let said = self.verb(node, &["scale"], &[&format!("--replicas={replicas}")]);
        assert!(said.contains("scaled"), "{said}");
        self.replicas = replicas;
    }

    /// The number of replicas in the file that is written next.
    pub(crate) fn set_replicas(&mut self, replicas: u64) {
        self.replicas = replicas;
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    fn verb(&self, node: &Node, words: &[&str], options: &[&str]) -> String {
        let mut command = Command::new(program());
        command.args(words).arg(format!("deployment/{}", self.name));
        command.args(options).arg("--root").arg(node.root());
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Waits until a pod has the version of the file.
    pub(crate) fn wait_begun(&self, node: &Node) {
        let version = self.version.to_string();
        self.wait(node, "begun", |pods| {
            pods.iter().any(|pod| pod.0 == version)
        });
    }

    /// Waits until all pods have the wanted version and are ready.
    pub(crate) fn wait_complete(&self, node: &Node) {
        self.wait(node, "complete", |pods| self.are_complete(pods));
    }

    /// True if all pods have the wanted version and are ready.
    pub(crate) fn is_complete(&self, snapshot: &Snapshot) -> bool {
        self.are_complete(&self.pods(snapshot))
    }

    fn are_complete(&self, pods: &[(String, bool)]) -> bool {
        let version = self.wanted.to_string();
        let are_good = pods.iter().all(|pod| pod.0 == version && pod.1);
        are_good && pods.len() as u64 == self.replicas
    }

    /// Waits for pods that are as they should be.
    fn wait(&self, node: &Node, what: &str, is_good: impl Fn(&[(String, bool)]) -> bool) {
        let what = format!("rollout of {} {}: {what}", self.name, self.version);
        wait_until(&what, || {
            node.assert_alive();
            // A connection that the last daemon had ends with it.
            let client = Client::connect(node.root());
            let snapshot = client.and_then(|mut client| client.snapshot());
            snapshot.is_ok_and(|snapshot| is_good(&self.pods(&snapshot)))
        });
    }

    /// The pods that are not ending, each with its version and whether it is ready.
    fn pods(&self, snapshot: &Snapshot) -> Vec<(String, bool)> {
        let own = snapshot
            .pods
            .iter()
            .filter(|pod| pod.object["metadata"]["labels"]["app"] == self.name && !pod.terminating);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = |object: &Value| text(&object["spec"]["containers"][0]["env"][0]["value"]);
        own.map(|pod| (version(&pod.object), pod.status.is_ready()))
            .collect()
    }

    /// Takes the files away, and waits until no pod is left.
    pub(crate) fn remove(&self, node: &Node) {
        let remove = |name: &str| {
            let file = node.layout.pods_dir().join(format!("{name}.json"));
            std::fs::remove_file(file).unwrap();
        };
        remove(self.name);
        if self.has_service {
            remove(&format!("{}-service", self.name));
        }
        wait_until("all pods to end", || node.snapshot().pods.is_empty());
    }
}
