//! Records that are damaged, of another version, or gone: what runs goes on, or ends as it should.

use std::fs;
use std::path::{Path, PathBuf};

use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{
    CONTAINER, EXIT, EXIT_COPY, Process, SANDBOX, STATE, read, write,
};
use serde_json::{Map, Value, json};

use crate::support;
use crate::support::daemon::{Day, POLITE, find};
use crate::support::{Node, on};

/// A pod with an init container that has ended and one container that runs.
fn subject(day: &Day) -> Value {
    let mut pod = day.pod("subject", POLITE, json!({}));
    pod["spec"]["initContainers"] = json!([{
        "name": "setup", "image": "busybox:test", "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "echo x >>/starts/setup"],
        "volumeMounts": [{"name": "starts", "mountPath": "/starts"}],
    }]);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod
}

/// The record directory of the container of that name, or of the sandbox.
fn dir_of(day: &Day, container: Option<&str>) -> PathBuf {
    let layout = &day.node.layout;
    let of = |dir: &PathBuf| {
        let record = container.map(|_| read::<Map<String, Value>>(dir, CONTAINER));
        match record {
            Some(record) => record.is_some_and(|r| r["name"] == container.unwrap_or_default()),
            None => true,
        }
    };
    let all = match container {
        Some(_) => layout.containers(),
        None => layout.sandboxes(),
    };
    let mut all = fs::read_dir(all).unwrap().flatten().map(|e| e.path());
    all.find(of).unwrap()
}

/// It runs on as it did, and the pod says so.
#[track_caller]
fn check_runs_on(day: &Day, before: (Process, Process), what: &str) {
    day.wait_ready("subject");
    let status = day.wait("its init container to be done", |s| {
        let pod = find(s, "subject")?;
        let setup = pod.status.init_container_statuses.first()?;
        setup
            .state
            .terminated
            .clone()
            .map(|t| (t, pod.status.phase))
    });
    assert_eq!(status.0.exit_code, 0, "{what}: {status:?}\n{}", day.log());
    assert_eq!(format!("{:?}", status.1), "Running", "{what}");
    let now = (day.process("subject"), day.shim("subject"));
    assert_eq!(now, before, "{what}: {}", day.log());
    assert!(
        !day.log().contains("processes were ended"),
        "{what}: {}",
        day.log()
    );
    day.check_starts("subject", 1);
    day.check_starts("setup", 1);
}

#[test]
fn a_damaged_record_costs_no_running_container() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("subject", subject(&day));
        day.wait_ready("subject");
        let before = (day.process("subject"), day.shim("subject"));
        let (main, setup) = (dir_of(&day, Some("c")), dir_of(&day, Some("setup")));
        let sandbox = dir_of(&day, None);
        let records = [
            main.join(CONTAINER),
            main.join(STATE),
            setup.join(EXIT),
            setup.join(STATE),
            sandbox.join(SANDBOX),
            sandbox.join(STATE),
        ];
        let one_by_one = records.iter().map(|r| vec![r.clone()]);
        for damaged in one_by_one.chain([records.to_vec()]) {
            day.kill9();
            for record in &damaged {
                fs::write(record, "{\"id\": \"").unwrap();
            }
            day.start();
            check_runs_on(&day, before, &format!("{damaged:?}"));
        }
        day.end();
    });
}

/// Neither what it wrote nor the copy can be read: its end counts as unseen, and the pod goes on.
#[test]
fn a_pod_whose_init_container_has_lost_its_end_does_not_wait_for_it() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("subject", subject(&day));
        day.wait_ready("subject");
        let process = day.process("subject");
        let setup = dir_of(&day, Some("setup"));
        day.kill9();
        for name in [EXIT, EXIT_COPY] {
            fs::write(setup.join(name), "").unwrap();
        }
        fs::remove_file(node.layout.checkpoint()).unwrap();
        day.start();
        day.wait("the pod to run with an end that is not known", |s| {
            let status = &find(s, "subject")?.status;
            let setup = status.init_container_statuses.first()?;
            let ended = setup.state.terminated.as_ref()?;
            (ended.exit_code == 137 && status.phase == podprobe::api::PodPhase::Running)
                .then_some(())
        });
        day.wait_ready("subject");
        assert_eq!(day.process("subject"), process, "{}", day.log());
        day.end();
    });
}

/// A later release has written fields that this one does not know, others in another way, and has left some out.
#[test]
fn records_of_another_version_cost_no_running_container() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("subject", subject(&day));
        day.wait_ready("subject");
        let before = (day.process("subject"), day.shim("subject"));
        let (main, sandbox) = (dir_of(&day, Some("c")), dir_of(&day, None));
        day.kill9();
        let change = |dir: &PathBuf, name: &str, gone: &[&str], other: &[&str]| {
            let mut record: Map<String, Value> = read(dir, name).unwrap();
            gone.iter().for_each(|f| drop(record.remove(*f).unwrap()));
            for field in other {
                *record.get_mut(*field).unwrap() = json!({"of": {"the": "next"}});
            }
            record.insert("new".into(), json!([1, {"a": null}]));
            record.insert("version".into(), 99.into());
            fs::write(dir.join(name), Value::from(record).to_string()).unwrap();
        };
        let gone = ["log_max_size", "stdin", "exits", "version"];
        change(
            &main,
            CONTAINER,
            &gone,
            &["linux_user", "layers", "stop_signal"],
        );
        change(&main, STATE, &["started_at"], &["cgroups"]);
        change(
            &sandbox,
            SANDBOX,
            &["ports", "hostname"],
            &["sysctls", "network"],
        );
        change(&sandbox, STATE, &[], &[]);
        day.start();
        check_runs_on(&day, before, "another version");
        // Not even damaged ones, which are made anew.
        assert!(!day.log().contains("cannot use"), "{}", day.log());
        day.end();
    });
}

/// A later release has run on the node, and this one follows it: whatever the later one has written, no pod is started again,
/// no Job runs twice, and what people have ordered holds.
#[test]
fn a_downgrade_costs_nothing() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        let mut subject = subject(&day);
        subject["spec"]["containers"][0]["livenessProbe"] =
            json!({"exec": {"command": ["/bin/sh", "-c", "exit 0"]}, "periodSeconds": 1});
        day.put("subject", subject);
        let template = |mut pod: Value, label: &str| {
            pod["metadata"] = json!({"labels": {"app": label}});
            pod
        };
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}, "spec": {
            "selector": {"matchLabels": {"app": "shop"}}, "template": template(day.pod("shop", POLITE, json!({})), "shop")}});
        day.put("shop", deployment);
        let mut once = template(day.pod("once", "exit 0", json!({})), "once");
        once["spec"]["restartPolicy"] = json!("Never");
        day.put("once", json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": once}}));
        day.wait_ready("subject");
        support::wait_until("the Job to be done", || {
            day.says(&["get", "job", "once"]).contains("Complete")
        });
        support::wait_until("the Deployment to be available", || {
            day.says(&["get", "deploy", "shop"]).contains("1/1")
        });
        day.says(&["pause", "subject", "--for", "1h"]);
        day.says(&["cordon"]);
        let running = day.processes();
        assert_eq!(running.len(), 2, "{running:?}");
        support::wait_until("the checkpoint", || node.layout.checkpoint().exists());
        day.kill9();
        let mut changed = Vec::new();
        for root in [node.layout.run_dir(), node.layout.lib_dir()] {
            let mut dirs = vec![root];
            while let Some(dir) = dirs.pop() {
                for entry in fs::read_dir(dir).unwrap().flatten().map(|e| e.path()) {
                    let kind = entry.symlink_metadata().unwrap().file_type();
                    if kind.is_dir() {
                        dirs.push(entry);
                    } else if kind.is_file() {
                        changed.extend(of_a_later_release(&entry));
                    }
                }
            }
        }
        let kinds = [
            "record.json",
            "sandbox.json",
            "container.json",
            "state.json",
            "exit.json",
            "checkpoint.json",
            "cordon.json",
            "pauses.json",
        ];
        for kind in kinds {
            let is_there = changed.iter().any(|path| path.ends_with(kind));
            assert!(is_there, "{kind} is not among {changed:#?}");
        }
        let of_workloads = node.layout.lib_dir().join("workloads");
        let of_workloads = changed
            .iter()
            .filter(|path| path.starts_with(&of_workloads));
        assert_eq!(of_workloads.count(), 4, "{changed:#?}");
        day.start();
        day.wait_ready("subject");
        assert_eq!(day.processes(), running, "{}", day.log());
        day.check_starts("subject", 1);
        day.check_starts("shop", 1);
        day.check_starts("once", 1);
        assert!(day.says(&["get", "job", "once"]).contains("Complete"));
        let cordon = day.says(&["cordon"]);
        assert!(cordon.contains("already cordoned"), "{cordon}");
        let paused = day.says(&["get", "pods", "-o", "wide"]);
        assert!(paused.contains("c/liveness ("), "{paused}");
        let aside = node.layout.checkpoint().with_extension("json.version-99");
        assert!(
            aside.exists(),
            "the checkpoint of the later release is lost"
        );
        day.says(&["uncordon"]);
        day.end();
    });
}

/// The records that a release left of a whole node, with the node's pod files.
const LAST_RELEASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/records/0.1.0/node");
/// What is kept of such a node: files and directories below its root.
const KEPT: [&str; 6] = [
    "etc/podprobe/pods",
    "var/lib/podprobe/checkpoint.json",
    "var/lib/podprobe/cordon.json",
    "var/lib/podprobe/pods",
    "var/lib/podprobe/services.json",
    "var/lib/podprobe/workloads",
];
const GATE: &str = "example.com/registered";

/// The pod files of that node. No path and no UID in them depends on where the node's root is.
fn files_of_a_release() -> Vec<(&'static str, Value)> {
    let spec = |script: &str| {
        json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "busybox:test",
            "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script]}]})
    };
    let forever = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done";
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": spec(forever)});
    let template =
        |name: &str, spec: Value| json!({"metadata": {"labels": {"app": name}}, "spec": spec});
    let mut gated = pod("gated");
    gated["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
    let mut once = spec("exit 0");
    once["restartPolicy"] = "Never".into();
    let shop = json!({"selector": {"matchLabels": {"app": "shop"}}, "template": template("shop", spec(forever))});
    vec![
        ("subject", pod("subject")),
        ("gated", gated),
        ("other", pod("other")),
        (
            "shop",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}, "spec": shop}),
        ),
        (
            "once",
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": template("once", once)}}),
        ),
        (
            "service",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"},
                "spec": {"selector": {"app": "shop"}, "ports": [{"port": 80}]}}),
        ),
    ]
}

#[test]
#[ignore = "writes tests/data/records, once for each release: cargo test --test kubelet -- --ignored records_of_this_release"]
fn records_of_this_release_are_written() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        for (name, file) in files_of_a_release() {
            day.put(name, file);
        }
        ["subject", "other"]
            .into_iter()
            .for_each(|pod| day.wait_ready(pod));
        day.wait("the pod with the gate to run", |s| {
            let status = &find(s, "gated")?.status;
            (status.condition("ContainersReady")?.status == "True").then_some(())
        });
        day.says(&["condition", "gated", &format!("{GATE}=True")]);
        day.wait_ready("gated");
        support::wait_until("the workloads", || {
            day.says(&["get", "job", "once"]).contains("Complete")
                && day.says(&["get", "deploy", "shop"]).contains("1/1")
        });
        day.says(&["delete", "pod", "other"]);
        day.says(&["cordon"]);
        day.terminate();
        let _ = fs::remove_dir_all(LAST_RELEASE);
        for kept in KEPT {
            copy_records(
                &node.layout.root().join(kept),
                &Path::new(LAST_RELEASE).join(kept),
            );
        }
        day.start();
        day.says(&["uncordon"]);
        day.end();
    });
}

/// Copies a file, or the files of a directory that are records.
fn copy_records(from: &Path, to: &Path) {
    if from.is_dir() {
        for entry in fs::read_dir(from).unwrap().flatten() {
            copy_records(&entry.path(), &to.join(entry.file_name()));
        }
    } else if from.extension().is_some_and(|of| of == "json") {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
}

/// This release starts on what the last one has left, as after a reboot: what people have ordered holds, workloads have the
/// same pods, counts and conditions go on, and what was done is not done again.
#[test]
fn a_node_of_the_last_release_goes_on() {
    on(RuntimeChoice::Embedded, |node| {
        copy_records(Path::new(LAST_RELEASE), node.layout.root());
        let of_shop = fs::read_dir(node.layout.made_pods()).unwrap().flatten();
        let records = of_shop.map(|entry| fs::read_to_string(entry.path()).unwrap());
        let names: Vec<String> = records
            .map(|record| serde_json::from_str::<Value>(&record).unwrap())
            .map(|record| record["name"].as_str().unwrap().to_owned())
            .collect();
        let day = Day::begin(node);
        let cordon = day.says(&["cordon"]);
        assert!(cordon.contains("already cordoned"), "{cordon}");
        assert_eq!(day.processes().len(), 0, "{}", day.log());
        day.says(&["uncordon"]);
        for pod in ["subject", "gated"] {
            day.wait_ready(pod);
        }
        support::wait_until("the Deployment to be available", || {
            day.says(&["get", "deploy", "shop"]).contains("1/1")
        });
        let shown = day.says(&["get", "pods"]);
        assert!(
            names.len() == 2 && names.iter().all(|name| shown.contains(name)),
            "{names:?}: {shown}"
        );
        assert!(day.says(&["get", "job", "once"]).contains("Complete"));
        let restarts = |pod: &str| {
            day.wait("the pod", |s| {
                Some(find(s, pod)?.status.container_statuses[0].restart_count)
            })
        };
        assert_eq!([restarts("subject"), restarts("gated")], [1, 1]);
        assert!(
            shown
                .lines()
                .any(|line| line.starts_with("other") && line.contains("Deleted")),
            "{shown}"
        );
        let log = day.log();
        let started: Vec<&str> = log
            .lines()
            .filter(|l| l.contains("Started: Container started"))
            .collect();
        assert_eq!(started.len(), 3, "{started:#?}");
        for word in ["cannot use", "damaged", "cannot read"] {
            assert!(!log.contains(word), "{log}");
        }
        let address = day.says(&["get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}"]);
        let services =
            fs::read_to_string(Path::new(LAST_RELEASE).join("var/lib/podprobe/services.json"));
        assert!(
            services
                .unwrap()
                .contains(&format!("\"{}\"", address.trim())),
            "{address}"
        );
        day.end();
    });
}

/// Gives a record the number of a later release, with a field that this release does not know. Returns its path, or None if the
/// file is not a record.
fn of_a_later_release(file: &Path) -> Option<PathBuf> {
    let mut record: Map<String, Value> = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    record.get("version")?.as_u64()?;
    record.insert("version".into(), 99.into());
    record.insert("new".into(), json!([1, {"a": null}]));
    fs::write(file, Value::from(record).to_string()).ok()?;
    Some(file.to_owned())
}

/// A tidy boot script, while the daemon is stopped: with records or without, nothing of a pod runs twice.
#[test]
fn run_is_cleared_away_while_no_daemon_runs() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("subject", subject(&day));
        day.put("orphan", day.pod("orphan", POLITE, json!({})));
        for name in ["subject", "orphan"] {
            day.wait_ready(name);
        }
        let old = [day.process("subject"), day.process("orphan")];
        // Nobody is left who knows what this one is.
        let shims = [day.shim("subject"), day.shim("orphan")];
        day.kill9();
        support::kill9(shims[1]);
        clear_run(node);
        day.start();
        for (name, old) in ["subject", "orphan"].into_iter().zip(old) {
            support::wait_until("the next instance", || day.starts(name).len() == 2);
            assert!(!old.alive(), "{name} runs twice: {}", day.log());
            day.wait_ready(name);
            assert_ne!(day.process(name), old);
        }
        assert!(!shims[0].alive());
        // The one that could be told has ended as a pod does.
        assert_eq!(day.starts("bye").len(), 1, "{}", day.log());
        day.log_with(&["were removed while no daemon ran"]);
        day.end();
    });
}

fn clear_run(node: &Node) {
    let aside = node.dir.path().join("removed");
    fs::rename(node.layout.run_dir(), &aside).unwrap();
    let _ = fs::remove_dir_all(&aside);
}

/// A record that a daemon has written has the number of its form.
#[test]
fn a_record_has_its_version() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), STATE, &json!({"a": 1}), false).unwrap();
    let written: Value =
        serde_json::from_slice(&fs::read(dir.path().join(STATE)).unwrap()).unwrap();
    let checksum = written["crc32"].clone();
    assert_eq!(written, json!({"version": 1, "a": 1, "crc32": checksum}));
}
