//! `delete` of workloads: their files are removed, and their pods are waited for.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use podprobe::api::workload::WorkloadKind;
use podprobe::workloads::view::{Change, ChangeRequest, Changed};
use serde_json::{Value, json};

use super::rollout::key;
use super::{World, all, pod_of};
use crate::cli::{check_output, pod, text};
use crate::support::wait_until;
use crate::terminal::Killed;

const TEMPLATE: &str =
    "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}";

fn workload(kind: &str, name: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  selector: {{matchLabels: {{app: web}}}}\n  {TEMPLATE}\n"
    )
}

/// A daemon whose directory has the files of a Deployment and a DaemonSet.
struct Node {
    world: World,
    dir: PathBuf,
}

impl Node {
    fn new() -> Self {
        let pods = vec![
            pod_of("ReplicaSet", "web-7b9", "web-7b9-abcde"),
            pod("default", "alone"),
        ];
        let world = World::new(pods, vec![]);
        let dir = world.root.path().join("pods");
        std::fs::create_dir(&dir).unwrap();
        let config = json!({"nodeName": "edge", "staticPodPath": dir, "fileCheckFrequency": "20s"});
        *world.backend.config.lock().unwrap() = config;
        let node = Self { world, dir };
        node.write("web", &workload("Deployment", "web"));
        node.write("agent", &workload("DaemonSet", "agent"));
        node.world.set_workloads(1, &node.views());
        node
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.yaml"))
    }

    /// The workloads of which the files are there, as the daemon shows them.
    fn views(&self) -> Vec<Value> {
        let mut views = all();
        let has_web = self.file("web").exists();
        views.retain(|v| {
            has_web
                || !v["object"]["metadata"]["name"]
                    .as_str()
                    .unwrap()
                    .starts_with("web")
        });
        for view in &mut views {
            if let Some(file) = view["file"].as_str() {
                let name = file.strip_prefix("/pods/").unwrap();
                view["file"] = self.dir.join(name).to_str().unwrap().into();
            }
        }
        views
    }

    /// Runs the verb, while the daemon follows the removal of the Deployment's file.
    fn run(&self, line: &str) -> Output {
        let mut command = self.world.command(line);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        wait_until("the file to be removed", || !self.file("web").exists());
        self.world.set_workloads(2, &self.views());
        child.unwrap().wait_with_output().unwrap()
    }
}

const DELETED: &str = "deployment.apps \"web\" deleted\n";

#[test]
fn a_workload_is_deleted_with_its_file_and_its_pods_are_waited_for() {
    let node = Node::new();
    let mut command = node.world.command("delete deployment/web");
    let spawned = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = Killed(spawned.unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), DELETED.trim());
    assert!(!node.file("web").exists() && node.file("agent").exists());
    node.world.set_workloads(2, &node.views());
    let mut ending = pod_of("ReplicaSet", "web-7b9", "web-7b9-abcde");
    ending["file"] = "".into();
    node.world.set(2, vec![ending], vec![]);
    assert!(child.0.try_wait().unwrap().is_none(), "its pod is there");
    // A pod of another set is none of this one.
    let other = pod_of("DaemonSet", "agent", "agent-x");
    node.world.set(3, vec![other], vec![]);
    let mut errors = String::new();
    let mut pipe = child.0.stderr.take().unwrap();
    pipe.read_to_string(&mut errors).unwrap();
    let ended = child.0.wait().unwrap().code();
    assert_eq!((errors.as_str(), ended), ("", Some(0)));
}

#[test]
fn pods_that_stay_are_an_error_when_the_time_is_over() {
    let late = "error: timed out waiting for the condition on deployments/web\n";
    let output = Node::new().run("delete deploy web --timeout=300ms");
    check_output(&output, 1, DELETED, late);
    let output = Node::new().run("delete deploy web --wait=false");
    check_output(&output, 0, DELETED, "");
}

#[test]
fn what_is_not_there_is_an_error_unless_that_is_well() {
    let node = Node::new();
    let missing =
        "deployments.apps \"wbe\" not found, did you mean 'web'?\njobs.batch \"x\" not found\n";
    node.world
        .check_failure("delete deploy/wbe job/x", 1, missing);
    node.world
        .check("delete deploy/wbe job/x --ignore-not-found", "");
    let elsewhere =
        "deployments.apps \"web\" not found; there is one in another namespace: -n default\n";
    node.world
        .check_failure("delete deploy/web -n shop", 1, elsewhere);
    assert!(node.file("web").exists());
    let orphan = "podprobe: --cascade=orphan is not possible: pods end with their workload\n";
    node.world
        .check_failure("delete deploy/web --cascade=orphan", 2, orphan);
}

#[test]
fn a_file_with_other_objects_stays() {
    let node = Node::new();
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n";
    node.write(
        "web",
        &format!("{}---\n{service}", workload("Deployment", "web")),
    );
    let error = text(&node.world.run("delete deploy/web").stderr);
    assert!(
        error.contains("has service/web too, which would be gone with deployment.apps/web"),
        "{error}"
    );
    assert!(node.file("web").exists());
}

#[test]
fn labels_and_names_choose_several() {
    let node = Node::new();
    let both = "daemonset.apps \"agent\" deleted\ndeployment.apps \"web\" deleted\n";
    check_output(
        &node.run("delete deploy/web ds/agent --wait=false"),
        0,
        both,
        "",
    );
    let node = Node::new();
    check_output(
        &node.run("delete deploy,ds -l app=web --wait=false"),
        0,
        DELETED,
        "",
    );
    assert!(node.file("agent").exists());
    let none = "No resources found\n";
    node.world.check_failure("delete deploy -l app=x", 0, none);
}

#[test]
fn a_pod_of_a_workload_is_deleted_and_not_kept_away() {
    let node = Node::new();
    node.world
        .check("delete web-7b9-abcde", "pod \"web-7b9-abcde\" deleted\n");
    node.world
        .check("delete pods -l app=web", "pod \"web-7b9-abcde\" deleted\n");
    let late = "error: timed out waiting for the condition on pods/alone-edge\n";
    let kept = "pod \"alone-edge\" deleted until its file changes: /etc/podprobe/pods/web.json\n";
    let output = node.world.run("delete pod alone --wait --timeout=300ms");
    check_output(&output, 1, kept, late);
}

#[test]
fn what_a_controller_has_made_is_deleted_where_it_stays_away() {
    let node = Node::new();
    let again =
        "replicasets.apps \"web-7b9\" would be made again by deployment.apps/web: delete that\n";
    node.world.check_failure("delete rs/web-7b9", 1, again);
    let answer = Changed {
        done: "deleted".into(),
    };
    node.world.backend.answers.lock().unwrap().push(Ok(answer));
    node.world
        .check("delete job/backup-29", "job.batch \"backup-29\" deleted\n");
    let asked = node.world.backend.changes.lock().unwrap().clone();
    let expected = ChangeRequest {
        workload: key(WorkloadKind::CronJob, "backup"),
        change: Change::DeleteJob {
            name: "backup-29".into(),
        },
    };
    assert_eq!(asked, [expected]);
}

#[test]
fn files_are_taken_back_with_their_workloads() {
    let node = Node::new();
    let mine = node.world.root.path().join("mine.yaml");
    std::fs::write(&mine, workload("Deployment", "web")).unwrap();
    let line = format!("delete -f {}", mine.display());
    let late = "error: timed out waiting for the condition on deployments/web\n";
    let output = node.run(&format!("{line} --timeout=300ms"));
    check_output(&output, 1, DELETED, late);
    node.world
        .check_failure(&line, 1, "deployment.apps/web not found\n");
    // Its own file is never removed by this, so the workload would replace every pod.
    let own = node.file("agent");
    let stays = format!(
        "daemonset.apps/agent stays: -f names its own file, which is never removed by this; remove {0}\n",
        own.display()
    );
    node.world
        .check_failure(&format!("delete -f {}", own.display()), 1, &stays);
    assert!(own.exists());
}
