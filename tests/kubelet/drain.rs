//! A node that is cordoned, drained and shut down, on the real daemon.

use std::fs;
use std::time::{Duration, Instant};

use podprobe::api::PodPhase;
use podprobe::engine::shims::RuntimeChoice;
use podprobe::face::views::{PodView, Snapshot};
use serde_json::{Value, json};

use crate::support::daemon::{Day, FOREVER, find};
use crate::support::{self, Node, on};

/// Notes its end under its name with the time, and what it finds in its volume at each start.
fn script(name: &str) -> String {
    format!(
        "echo \"[$(ls -A /v)]\" >>/starts/{name}.seen\n: >/v/kept\n\
         trap 'cat /proc/uptime >>/starts/{name}.end; exit 0' TERM\nsleep 100000 & wait"
    )
}

/// A pod with a volume that lives with it.
fn pod(day: &Day, name: &str, script: &str) -> Value {
    let mut pod = day.pod(name, script, json!({}));
    let push = |list: &mut Value, value| list.as_array_mut().unwrap().push(value);
    push(
        &mut pod["spec"]["volumes"],
        json!({"name": "v", "emptyDir": {}}),
    );
    let mount = json!({"name": "v", "mountPath": "/v"});
    push(&mut pod["spec"]["containers"][0]["volumeMounts"], mount);
    pod
}

/// A pod that does not heed TERM, and has ten minutes.
fn stubborn(day: &Day) -> Value {
    let script = "trap '' TERM\n: >/v/kept\nwhile :; do sleep 100000; done";
    let mut stubborn = pod(day, "web", script);
    stubborn["spec"]["terminationGracePeriodSeconds"] = json!(600);
    stubborn
}

/// Ends the day of a node with such a pod.
fn end_with_the_stubborn(day: Day) {
    support::kill9(day.process("web"));
    day.delete("web");
    day.wait("it to end", |s| match find(s, "web") {
        None => Some(()),
        Some(_) => {
            day.kill_what_ends();
            None
        }
    });
    day.end();
}

fn critical(day: &Day, name: &str) -> Value {
    let mut pod = pod(day, name, &script(name));
    pod["spec"]["priorityClassName"] = json!("system-node-critical");
    pod
}

fn configure(node: &Node, all: &str, of_critical: &str) {
    let file = node.layout.config_file();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let content = json!({"shutdownGracePeriod": all, "shutdownGracePeriodCriticalPods": of_critical,
        "healthzBindAddress": "", "healthzPort": 0});
    fs::write(file, content.to_string()).unwrap();
}

/// The pods that wait for this reason, of which nothing runs.
fn waits<'s>(snapshot: &'s Snapshot, name: &str, reason: &str) -> Option<&'s PodView> {
    let pod = find(snapshot, name)?;
    let mut containers = pod.status.container_statuses.iter();
    let is_still = containers.all(|c| c.state.running.is_none());
    let status = &pod.status;
    let is = (status.phase, status.reason.as_str()) == (PodPhase::Pending, reason);
    (is && is_still).then_some(pod)
}

fn time_of_end(day: &Day, name: &str) -> f64 {
    let ends = day.starts(&format!("{name}.end"));
    ends[0].split(' ').next().unwrap().parse().unwrap()
}

fn succeeds(day: &Day, words: &[&str]) -> String {
    let output = day.client(words);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{text}{}", day.log());
    text
}

#[test]
fn a_drained_node_has_no_pods_until_it_is_uncordoned_and_then_the_same_with_their_volumes() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("web", pod(&day, "web", &script("web")));
        day.put("dns", critical(&day, "dns"));
        day.wait_ready("web");
        day.wait_ready("dns");
        let said = succeeds(&day, &["drain", "--timeout", "60s"]);
        let expected =
            "node/edge cordoned\npod/web-edge drained\npod/dns-edge drained\nnode/edge drained\n";
        assert_eq!(said, expected);
        assert!(day.processes().is_empty());
        assert!(time_of_end(&day, "web") <= time_of_end(&day, "dns"));
        let listed = day.says(&["get", "pods"]);
        assert_eq!(listed.matches("NodeDrained").count(), 2, "{listed}");
        assert!(
            listed.contains("podprobe: the node is drained since "),
            "{listed}"
        );
        assert_eq!(
            succeeds(&day, &["drain"]),
            "node/edge cordoned\nnode/edge drained\n"
        );

        // What comes now waits, and a daemon that is killed forgets nothing.
        day.put("new", pod(&day, "new", FOREVER));
        for _ in 0..2 {
            day.wait("all to wait", |s| {
                let mut all = ["web", "dns", "new"].into_iter();
                all.all(|name| waits(s, name, "NodeDrained").is_some())
                    .then_some(())
            });
            day.crash();
        }
        let why = day.says(&["apply", "--wait", "-f", day.file("new").to_str().unwrap()]);
        assert!(
            why.contains("the node is drained; podprobe uncordon"),
            "{why}"
        );
        day.check_starts("web", 1);
        // A file that goes takes its pod along also now.
        day.delete("new");
        day.wait_gone("new");
        day.put("gone", pod(&day, "gone", FOREVER));
        day.wait("it to wait", |s| waits(s, "gone", "NodeDrained").map(drop));
        day.delete("gone");
        day.wait_gone("gone");
        day.put("new", pod(&day, "new", FOREVER));

        assert_eq!(succeeds(&day, &["uncordon"]), "node/edge uncordoned\n");
        for name in ["web", "dns", "new"] {
            day.wait_ready(name);
        }
        assert_eq!(
            succeeds(&day, &["uncordon"]),
            "node/edge already uncordoned\n"
        );
        for name in ["web", "dns"] {
            day.check_starts(name, 2);
            assert_eq!(day.starts(&format!("{name}.seen")), ["[]", "[kept]"]);
        }
        let snapshot = day.snapshot().unwrap();
        let status = &find(&snapshot, "web").unwrap().status;
        assert_eq!((status.reason.as_str(), status.message.as_str()), ("", ""));
        assert_eq!(status.container_statuses[0].restart_count, 1);
        assert_eq!(snapshot.closed, None);
        let web = find(&snapshot, "web").unwrap();
        let cause = &day.history(web.uid()).restarts[0].cause;
        assert_eq!(cause, "the node was drained, and takes pods again");
        day.end();
    });
}

/// The pods of workloads come back too, and a Job does not count its pod as failed.
#[test]
fn a_drain_costs_a_job_no_try_and_a_deployment_no_pod() {
    on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let template = |name: &str, policy: &str| {
            let mut pod = day.pod(name, "sleep 100000", json!({}));
            pod["spec"]["restartPolicy"] = json!(policy);
            pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
            json!({"metadata": {"labels": {"app": name}}, "spec": pod["spec"].take()})
        };
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "shop"}}, "template": template("shop", "Always")}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
            "spec": {"backoffLimit": 0, "template": template("work", "Never")}});
        day.put("shop", deployment);
        day.put("work", job);
        let names = |s: &Snapshot, phase, is_ready| {
            let is = |p: &&std::sync::Arc<PodView>| {
                p.status.phase == phase && p.status.is_ready() == is_ready
            };
            let all = s.pods.iter().filter(is);
            let names: Vec<_> = all
                .map(|p| p.object["metadata"]["name"].to_string())
                .collect();
            (names.len() == 2).then_some(names)
        };
        let before = day.wait("both", |s| names(s, PodPhase::Running, true));
        succeeds(&day, &["drain", "--timeout", "60s"]);
        let held = day.wait("both to wait", |s| names(s, PodPhase::Pending, false));
        assert_eq!(before, held);
        succeeds(&day, &["uncordon"]);
        let after = day.wait("both again", |s| names(s, PodPhase::Running, true));
        assert_eq!(before, after);
        day.check_starts("work", 2);
        let job = day.says(&["get", "jobs"]);
        assert!(job.contains("Running"), "{job}");
        day.end();
    });
}

#[test]
fn a_cordon_keeps_new_pods_away_and_leaves_those_that_run_to_their_files() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("old", day.pod("old", FOREVER, json!({})));
        day.wait_ready("old");
        assert_eq!(succeeds(&day, &["cordon"]), "node/edge cordoned\n");
        assert_eq!(succeeds(&day, &["cordon"]), "node/edge already cordoned\n");
        day.put("new", day.pod("new", FOREVER, json!({})));
        day.wait("it to wait", |s| waits(s, "new", "NodeCordoned").map(drop));
        let message = "the node is cordoned; podprobe uncordon lets it start";
        assert_eq!(day.wait_event("new", "NodeCordoned"), message);
        // Another version of a pod that runs.
        let edited = day.pod(
            "old",
            FOREVER,
            json!({"env": [{"name": "V", "value": "2"}]}),
        );
        day.put("old", edited);
        day.check_starts("old", 2);
        day.wait_ready("old");
        let process = day.process("old");
        day.crash();
        day.wait("it to wait still", |s| {
            waits(s, "new", "NodeCordoned").map(drop)
        });
        // After a reboot the pods that the node had start, and no others.
        day.cut_power();
        assert!(!process.alive());
        day.start();
        day.wait_ready("old");
        day.wait("it to wait still", |s| {
            waits(s, "new", "NodeCordoned").map(drop)
        });
        succeeds(&day, &["uncordon"]);
        day.wait_ready("new");
        day.check_starts("new", 1);
        day.end();
    });
}

/// The daemon is killed while the pods end: the next one goes on, and the critical pods have their turn.
#[test]
fn a_drain_goes_on_after_a_timeout_of_its_client_and_a_kill_of_the_daemon() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("web", stubborn(&day));
        day.put("dns", critical(&day, "dns"));
        day.wait_ready("web");
        day.wait_ready("dns");
        let output = day.client(&["drain", "--timeout", "1s"]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            error,
            "error: 2 pods have not ended in time, and the drain goes on: pod/web-edge, pod/dns-edge\n"
        );
        day.crash();
        assert!(day.processes().contains_key("dns"), "its turn comes later");
        let process = day.process("web");
        support::kill9(process);
        day.wait("both to wait", |s| {
            let mut all = ["web", "dns"].into_iter();
            all.all(|name| waits(s, name, "NodeDrained").is_some())
                .then_some(())
        });
        day.check_starts("dns", 1);
        // It comes back although its daemon is killed right after the answer.
        succeeds(&day, &["uncordon"]);
        day.crash();
        day.wait_ready("dns");
        day.wait_ready("web");
        end_with_the_stubborn(day);
    });
}

#[test]
fn at_a_shutdown_pods_end_in_its_time_and_the_next_boot_starts_them() {
    on(RuntimeChoice::Embedded, |node| {
        configure(node, "4s", "2s");
        let mut day = Day::begin(node);
        day.put("web", stubborn(&day));
        day.put("dns", critical(&day, "dns"));
        day.wait_ready("web");
        day.wait_ready("dns");
        let began = Instant::now();
        let said = succeeds(&day, &["drain", "--for-shutdown"]);
        assert!(
            began.elapsed() >= Duration::from_secs(2),
            "the time of usual pods"
        );
        // The first is killed at the end of its time, in which the second has its turn.
        let mut lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.pop(), Some("node/edge drained"));
        lines.sort_unstable();
        assert_eq!(lines, ["pod/dns-edge drained", "pod/web-edge drained"]);
        assert!(day.processes().is_empty());
        // A daemon that something starts again in the same boot starts none of them, and nothing new.
        day.crash();
        day.put("new", pod(&day, "new", &script("new")));
        day.wait("all to wait", |s| {
            let mut all = ["web", "dns", "new"].into_iter();
            all.all(|name| waits(s, name, "NodeShutdown").is_some())
                .then_some(())
        });
        day.check_starts("dns", 1);
        day.cut_power();
        day.start();
        for name in ["web", "dns", "new"] {
            day.wait_ready(name);
        }
        day.check_starts("dns", 2);
        assert_eq!(day.starts("dns.seen"), ["[]", "[kept]"]);
        let snapshot = day.snapshot().unwrap();
        let status = &find(&snapshot, "dns").unwrap().status;
        assert_eq!(
            status.container_statuses[0].restart_count, 1,
            "as after a power cut"
        );
        assert_eq!(status.reason, "");
        end_with_the_stubborn(day);
    });
}

#[test]
fn a_shutdown_is_taken_back_and_without_a_time_there_is_none() {
    on(RuntimeChoice::Embedded, |node| {
        configure(node, "4s", "0s");
        let mut day = Day::begin(node);
        day.put("web", pod(&day, "web", &script("web")));
        day.wait_ready("web");
        succeeds(&day, &["drain", "--for-shutdown"]);
        day.wait("it to end", |s| waits(s, "web", "NodeShutdown").map(drop));
        // A cordon is another order.
        succeeds(&day, &["uncordon"]);
        let said = succeeds(&day, &["uncordon", "--for-shutdown"]);
        assert_eq!(said, "node/edge does not shut down\n");
        day.wait_ready("web");
        day.check_starts("web", 2);
        let said = succeeds(&day, &["uncordon", "--for-shutdown"]);
        assert_eq!(said, "node/edge did not shut down\n");
        configure(node, "0s", "0s");
        day.says(&["config", "reload"]);
        let said = succeeds(&day, &["drain", "--for-shutdown"]);
        assert_eq!(
            said,
            "shutdownGracePeriod is 0s: the pods are left to the end of the node\n"
        );
        day.wait_ready("web");
        day.check_starts("web", 2);
        day.terminate();
        let said = succeeds(&day, &["drain", "--for-shutdown"]);
        assert!(
            said.ends_with(": the pods are left to the end of the node\n"),
            "{said}"
        );
        day.start();
        day.end();
    });
}

#[test]
fn on_a_drained_node_a_pod_goes_with_its_file_and_leaves_nothing() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("web", pod(&day, "web", &script("web")));
        day.put("dns", critical(&day, "dns"));
        day.wait_ready("web");
        day.wait_ready("dns");
        succeeds(&day, &["drain", "--timeout", "60s"]);
        day.delete("dns");
        day.wait_gone("dns");
        day.crash();
        day.wait("it to wait", |s| waits(s, "web", "NodeDrained").map(drop));
        day.end();
    });
}

fn counts(day: &Day, name: &str) -> u32 {
    let snapshot = day.snapshot().unwrap();
    let status = &find(&snapshot, name).unwrap().status;
    status.container_statuses[0].restart_count
}

/// An order that comes while the pods of the last one start again.
#[test]
fn drains_in_quick_succession_lose_no_pod_and_no_volume() {
    on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let names = ["a", "b", "c", "d"];
        for name in names {
            day.put(name, pod(&day, name, &script(name)));
        }
        names.iter().for_each(|name| day.wait_ready(name));
        for _ in 0..6 {
            succeeds(&day, &["drain", "--timeout", "60s"]);
            assert!(day.processes().is_empty());
            succeeds(&day, &["uncordon"]);
        }
        for name in names {
            day.wait_ready(name);
            let seen = day.starts(&format!("{name}.seen"));
            assert!(seen.iter().skip(1).all(|seen| seen == "[kept]"), "{seen:?}");
        }
        day.end();
    });
}

#[test]
fn a_shutdown_that_is_taken_back_leaves_the_drain_before_it_in_force() {
    on(RuntimeChoice::Embedded, |node| {
        configure(node, "60s", "30s");
        let day = Day::begin(node);
        day.put("web", stubborn(&day));
        day.put("dns", critical(&day, "dns"));
        day.wait_ready("web");
        day.wait_ready("dns");
        std::thread::scope(|scope| {
            let drain = scope.spawn(|| day.client(&["drain"]));
            day.wait("the drain", |s| {
                s.closed.clone().filter(|c| c.contains("drained"))
            });
            let shutdown = scope.spawn(|| day.client(&["drain", "--for-shutdown"]));
            day.wait("the shutdown", |s| {
                s.closed.clone().filter(|c| c.contains("shuts down"))
            });
            succeeds(&day, &["uncordon", "--for-shutdown"]);
            assert!(
                !shutdown.join().unwrap().status.success(),
                "it was taken back"
            );
            support::kill9(day.process("web"));
            assert!(drain.join().unwrap().status.success());
        });
        day.wait("dns to wait", |s| waits(s, "dns", "NodeDrained").map(drop));
        assert!(day.processes().is_empty());
        day.end();
    });
}

/// A program that ends well at its stop signal has not done its work.
#[test]
fn a_pod_that_is_not_restarted_comes_back_unless_it_had_done_its_work() {
    on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        let mut done = day.pod("done", "exit 0", json!({}));
        done["spec"]["restartPolicy"] = json!("Never");
        let mut polite = pod(&day, "polite", &script("polite"));
        polite["spec"]["restartPolicy"] = json!("OnFailure");
        day.put("done", done);
        day.put("polite", polite);
        day.wait_ready("polite");
        let succeeded = |s: &Snapshot| {
            let is = find(s, "done")?.status.phase == PodPhase::Succeeded;
            is.then_some(())
        };
        day.wait("the other to be done", succeeded);
        succeeds(&day, &["drain", "--timeout", "60s"]);
        day.wait("it to wait", |s| {
            waits(s, "polite", "NodeDrained").map(drop)
        });
        day.wait("the other to be done still", succeeded);
        succeeds(&day, &["uncordon"]);
        day.wait_ready("polite");
        day.check_starts("polite", 2);
        day.check_starts("done", 1);
        day.end();
    });
}

#[test]
fn a_later_order_with_less_time_counts_for_pods_that_end_already() {
    on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        day.put("web", stubborn(&day));
        day.wait_ready("web");
        day.client(&["drain", "--timeout", "1s"]);
        assert!(day.processes().contains_key("web"));
        succeeds(&day, &["drain", "--grace-period", "1", "--timeout", "60s"]);
        assert!(day.processes().is_empty());
        day.end();
    });
}

#[test]
fn a_pod_that_is_deleted_while_its_node_is_drained_stays_away() {
    on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        day.put("web", pod(&day, "web", &script("web")));
        day.put("dns", critical(&day, "dns"));
        day.wait_ready("web");
        day.wait_ready("dns");
        succeeds(&day, &["drain", "--timeout", "60s"]);
        succeeds(&day, &["delete", "web"]);
        let is_deleted = |s: &Snapshot| {
            let status = &find(s, "web")?.status;
            (status.phase == PodPhase::Failed && status.reason == "Deleted").then_some(())
        };
        day.wait("it to be deleted", is_deleted);
        succeeds(&day, &["uncordon"]);
        day.wait_ready("dns");
        day.wait("it to be deleted still", is_deleted);
        day.check_starts("web", 1);
        day.end();
    });
}

#[test]
fn a_drained_pod_keeps_its_counts_over_a_reboot_and_an_edit_under_a_cordon_over_a_kill() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("web", pod(&day, "web", &script("web")));
        day.wait_ready("web");
        day.check_starts("web", 1);
        support::kill9(day.process("web"));
        day.check_starts("web", 2);
        day.wait_ready("web");
        succeeds(&day, &["drain", "--timeout", "60s"]);
        day.wait("it to wait", |s| waits(s, "web", "NodeDrained").map(drop));
        assert_eq!(counts(&day, "web"), 1);
        day.cut_power();
        day.start();
        day.wait("it to wait still", |s| {
            waits(s, "web", "NodeDrained").map(drop)
        });
        succeeds(&day, &["uncordon"]);
        day.wait_ready("web");
        assert_eq!(counts(&day, "web"), 2);

        succeeds(&day, &["cordon"]);
        day.kill9();
        let mut edited = pod(&day, "web", &script("web"));
        edited["spec"]["containers"][0]["env"] = json!([{"name": "V", "value": "2"}]);
        day.put("web", edited);
        day.start();
        day.check_starts("web", 4);
        day.wait_ready("web");
        day.end();
    });
}
