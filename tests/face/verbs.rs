//! The verbs of a first hour, on the real daemon: files are applied, waited for, shown, given back and taken back.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::libc;
use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::forbidding::forbidding;
use crate::support::{Node, PROGRAM, on_own_thread};

macro_rules! on_a_node {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { support::on(RuntimeChoice::Embedded, tests::$name) })*
    };
}

on_a_node![
    a_pod_that_was_applied_is_the_one_that_is_waited_for,
    several_files_are_applied_and_taken_back,
    what_was_applied_has_been_read_when_the_verb_returns,
    what_only_the_daemon_refuses_is_told,
    what_is_shown_can_be_applied_again,
    kinds_that_are_not_run_have_one_word_everywhere,
    a_daemon_that_starts_is_waited_for,
    a_deleted_pod_is_terminating_while_its_container_runs,
    what_pods_use_is_shown_in_kubectls_columns,
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, stdout and stderr.
fn said(output: Output) -> (Option<i32>, String, String) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), out, err)
}

fn client(day: &Day<'_>, line: &str) -> (Option<i32>, String, String) {
    said(day.client(&line.split(' ').collect::<Vec<_>>()))
}

/// A verb with a text on its stdin.
fn piped(day: &Day<'_>, words: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(PROGRAM);
    command
        .args(words)
        .arg("--root")
        .arg(day.node.layout.root());
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    to.write_all(stdin.as_bytes()).unwrap();
    drop(to);
    said(child.wait_with_output().unwrap())
}

/// Writes a file that lies elsewhere, and gives its path.
fn write(day: &Day<'_>, name: &str, content: impl ToString) -> PathBuf {
    let dir = day.node.dir.path().join("mine");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(name), content.to_string()).unwrap();
    dir.join(name)
}

fn files(day: &Day<'_>) -> Vec<String> {
    let all = fs::read_dir(day.node.layout.pods_dir()).unwrap().flatten();
    let mut names: Vec<String> = all
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn uid(day: &Day<'_>, name: &str) -> String {
    let (_, uid, _) = client(
        day,
        &format!("get pod {name} -o jsonpath={{.metadata.uid}}"),
    );
    uid
}

/// Has inotify fail in the calling thread and in what it starts, for good.
fn forbid_inotify() {
    let filter = forbidding(libc::SYS_inotify_init1, libc::EMFILE);
    podprobe::base::sys::process::apply_seccomp(&filter, 0).unwrap();
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

mod tests {
    use super::*;

    /// Both pods have the name until the old one has ended, which takes its grace period here.
    pub(super) fn a_pod_that_was_applied_is_the_one_that_is_waited_for(node: &Node) {
        let day = Day::begin(node);
        let pod = |version: &str| {
            let script = format!(": {version}\ntrap '' TERM\nwhile :; do sleep 0.1; done");
            let mut pod = day.pod("web", &script, json!({}));
            pod["metadata"]["labels"] = json!({"version": version});
            pod
        };
        let file = write(&day, "web.json", pod("1"));
        let apply = format!("apply -f {} --wait --timeout=1m", path(&file));
        let ready = "pod/web created\npod/web-edge is ready\n";
        assert_eq!(client(&day, &apply), (Some(0), ready.into(), String::new()));
        let old = uid(&day, "web");
        for version in ["2", "3"] {
            write(&day, "web.json", pod(version));
            let (code, out, err) = client(&day, &format!("apply -f {}", path(&file)));
            assert_eq!(
                (code, out.as_str()),
                (Some(0), "pod/web configured\n"),
                "{err}"
            );
            let waited = client(&day, "wait web --for=condition=Ready --timeout=60s");
            let met = "pod/web-edge condition met\n".to_owned();
            assert_eq!(waited, (Some(0), met, String::new()));
            let snapshot = day.snapshot().unwrap();
            let mut ready = snapshot.pods.iter().filter(|p| p.status.is_ready());
            let label = |p: &podprobe::face::views::PodView| {
                p.object["metadata"]["labels"]["version"].clone()
            };
            assert_eq!(ready.next().map(|p| label(p)), Some(json!(version)));
        }
        assert_ne!(uid(&day, "web"), old);
        // One that cannot become ready says why.
        let mut never = pod("4");
        never["spec"]["containers"][0]["readinessProbe"] =
            json!({"exec": {"command": ["false"]}, "periodSeconds": 1});
        write(&day, "web.json", never);
        let (code, _, err) = client(
            &day,
            &format!("apply -f {} --wait --timeout=3s", path(&file)),
        );
        assert_eq!(code, Some(1));
        let timed_out = "error: timed out waiting for the condition on pods/web-edge\nweb-edge: ";
        assert!(err.contains(timed_out), "{err}");
        day.end();
    }

    /// Each file is good by itself: that another one has the UID already is known to the daemon alone.
    pub(super) fn what_only_the_daemon_refuses_is_told(node: &Node) {
        let day = Day::begin(node);
        let with_the_uid = |name: &str| {
            let mut pod = day.pod(name, FOREVER, json!({}));
            pod["metadata"]["uid"] = json!("0b5e");
            write(&day, &format!("{name}.json"), pod)
        };
        let (first, second) = (with_the_uid("first"), with_the_uid("second"));
        let (code, _, err) = client(&day, &format!("apply -f {} --wait", path(&first)));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        let (code, _, err) = client(&day, &format!("apply -f {}", path(&second)));
        let refused = day.node.layout.pods_dir().join("second.json");
        let expected = format!("{}: not in use: ", refused.display());
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains(&expected) && err.contains("0b5e"), "{err}");
        let (_, pods, _) = client(&day, "get pods");
        let row = |name| pods.lines().find(|line| line.starts_with(name));
        assert!(
            row("first-edge").is_some_and(|row| row.contains("Running")),
            "{pods}"
        );
        assert!(
            row("second.json").is_some_and(|row| row.contains("Refused")),
            "{pods}"
        );
        day.end();
    }

    /// Nothing tells this daemon of a file; it looks every second.
    pub(super) fn what_was_applied_has_been_read_when_the_verb_returns(node: &Node) {
        on_own_thread(|| {
            forbid_inotify();
            let config = node.layout.config_file();
            let mut more: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
            more["fileCheckFrequency"] = json!("1s");
            fs::write(config, more.to_string()).unwrap();
            let day = Day::begin(node);
            for version in ["1", "2"] {
                let mut pod = day.pod("web", FOREVER, json!({}));
                pod["metadata"]["labels"] = json!({"version": version});
                let web = write(&day, "web.json", pod);
                let map =
                    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m{version}}}\n");
                let map = write(&day, &format!("map-{version}.yaml"), map);
                for (file, shows, shown) in [
                    (web, "get pod web -o jsonpath={.metadata.labels}", version),
                    (map, "get cm -o name", &format!("configmap/m{version}\n")),
                ] {
                    let (code, _, err) = client(&day, &format!("apply -f {}", path(&file)));
                    assert_eq!((code, err.as_str()), (Some(0), ""));
                    let (_, out, err) = client(&day, shows);
                    assert!(out.contains(shown), "{shows}: {out}{err}");
                }
            }
            day.end();
        });
    }

    pub(super) fn several_files_are_applied_and_taken_back(node: &Node) {
        let day = Day::begin(node);
        let web = write(&day, "web.json", day.pod("web", FOREVER, json!({})));
        let db = write(&day, "db.json", day.pod("db", FOREVER, json!({})));
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n";
        write(&day, "map.yaml", map);
        write(&day, "README.md", "# Mine");
        let (code, out, err) = client(&day, &format!("apply -f {} -f {}", path(&web), path(&db)));
        let created = "pod/web created\npod/db created\n";
        assert_eq!((code, out.as_str()), (Some(0), created), "{err}");
        let dir = web.parent().unwrap().to_owned();
        let (code, out, err) = client(&day, &format!("apply -f {}", path(&dir)));
        let all = "pod/db unchanged\nconfigmap/m created\npod/web unchanged\n";
        assert_eq!((code, out.as_str()), (Some(0), all), "{err}");
        // It is there when the verb has returned.
        assert_eq!(client(&day, "get cm -o name").1, "configmap/m\n");
        assert_eq!(files(&day), ["db.json", "map.yaml", "web.json"]);

        // A bad one keeps every other from being written.
        write(&day, "map.yaml", format!("{map}data: {{a: b}}\n"));
        let bad = write(&day, "zz.yaml", "apiVersion: v1\nkind: Pod\n");
        let (code, out, err) = client(&day, &format!("apply -f {}", path(&dir)));
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(err.contains("nothing is written"), "{err}");
        let there = fs::read_to_string(node.layout.pods_dir().join("map.yaml")).unwrap();
        assert_eq!(there, map);
        fs::remove_file(bad).unwrap();

        day.wait_ready("web");
        day.wait_ready("db");
        let both = "pod/db-edge\npod/web-edge\n";
        assert_eq!(client(&day, "get all -o name").1, both);
        // The files of a person are never removed, and neither is what was not named.
        let shared = format!("{}\n---\n{map}", day.pod("two", FOREVER, json!({})));
        fs::rename(
            write(&day, "two.yaml", &shared),
            node.layout.pods_dir().join("two.yaml"),
        )
        .unwrap();
        fs::remove_file(node.layout.pods_dir().join("map.yaml")).unwrap();
        let map_file = dir.join("map.yaml");
        day.wait("the second pod", |s| find(s, "two").map(drop));
        let (code, _, err) = client(&day, &format!("delete -f {}", path(&map_file)));
        assert_eq!(code, Some(1));
        assert!(
            err.contains("has pod/two too, which would be gone"),
            "{err}"
        );
        let (code, out, err) = client(&day, &format!("delete -f {} --now", path(&web)));
        assert_eq!(
            (code, out.as_str()),
            (Some(0), "pod \"web\" deleted\n"),
            "{err}"
        );
        assert!(web.exists());
        // It is Terminating, or Deleted, or gone: its container may end before the daemon has seen that the file is gone.
        let (_, rows, _) = client(&day, "get pods web --no-headers");
        assert!(!rows.contains("Running"), "{rows}");
        day.wait_gone("web");
        let again = client(&day, &format!("delete -f {}", path(&web)));
        assert_eq!(
            again,
            (Some(1), String::new(), "pod/web not found\n".into())
        );
        let well = client(
            &day,
            &format!("delete -f {} --ignore-not-found", path(&web)),
        );
        assert_eq!(well, (Some(0), String::new(), String::new()));

        let own = node.layout.pods_dir().join("db.json");
        let (code, out, err) = client(&day, &format!("delete -f {} --now", path(&own)));
        assert_eq!(code, Some(0), "{err}");
        assert!(
            out.contains("deleted until its file changes") && own.exists(),
            "{out}"
        );
        let (code, out, err) = client(&day, "delete pods two nobody --now");
        assert_eq!(code, Some(1));
        assert!(
            out.contains("two-edge") && err.contains("nobody"),
            "{out}{err}"
        );
        day.end();
    }

    pub(super) fn what_is_shown_can_be_applied_again(node: &Node) {
        let day = Day::begin(node);
        let web = write(&day, "web.json", day.pod("web", FOREVER, json!({})));
        client(&day, &format!("apply -f {} --wait", path(&web)));
        let (before, process) = (uid(&day, "web"), day.process("web"));
        let written = fs::read_to_string(day.file("web")).unwrap();
        for form in ["yaml", "json"] {
            let (_, shown, _) = client(&day, &format!("get pod web -o {form}"));
            let again = piped(&day, &["apply", "-f", "-"], &shown);
            assert_eq!(
                again,
                (Some(0), "pod/web unchanged\n".into(), String::new())
            );
        }
        let (_, list, _) = client(&day, "get pods -o yaml");
        let (code, out, err) = piped(&day, &["apply", "-f", "-"], &list);
        assert_eq!(
            (code, out.as_str()),
            (Some(0), "pod/web unchanged\n"),
            "{err}"
        );
        assert_eq!(files(&day), ["web.json"]);
        assert_eq!(fs::read_to_string(day.file("web")).unwrap(), written);
        assert_eq!(uid(&day, "web"), before);

        let (_, shown, _) = client(&day, "get pod web -o yaml");
        let edited = shown.replace(
            "terminationGracePeriodSeconds: 1",
            "terminationGracePeriodSeconds: 2",
        );
        let (code, out, err) = piped(&day, &["apply", "-f", "-", "--wait"], &edited);
        let ready = "pod/web configured\npod/web-edge is ready\n";
        assert_eq!((code, out.as_str()), (Some(0), ready), "{err}");
        assert_eq!(files(&day), ["web.json"]);
        assert_ne!(uid(&day, "web"), before);
        support::wait_until("the old pod to end", || !process.alive());
        // validate reads stdin too.
        let (code, out, _) = piped(&day, &["validate", "-"], &edited);
        assert_eq!(code, Some(0));
        assert!(out.starts_with("stdin: ok (pod web-edge"), "{out}");
        day.end();
    }

    pub(super) fn kinds_that_are_not_run_have_one_word_everywhere(node: &Node) {
        let day = Day::begin(node);
        let of = |kind: &str, name: &str| {
            format!("apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\n---\n")
        };
        let service = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n";
        let both = of("NetworkPolicy", "web") + &of("ServiceAccount", "web") + service;
        let file = write(&day, "shop.yaml", &both);
        let line = "NetworkPolicy \"web\": not run here: it is NOT enforced: nothing restricts the connections of pods here";
        let (code, out, _) = client(&day, &format!("validate {}", path(&file)));
        assert_eq!(code, Some(0));
        let mut lines = out.lines();
        assert_eq!(
            lines.next(),
            Some(&*format!("{}: ok (ConfigMap default/shop)", path(&file)))
        );
        assert_eq!(
            lines.next(),
            Some(&*format!("{}: warning: {line}", path(&file)))
        );
        assert_eq!(lines.next(), None, "nothing of the ServiceAccount");
        let (code, out, err) = client(&day, &format!("apply -f {}", path(&file)));
        assert_eq!((code, out.as_str()), (Some(0), "configmap/shop created\n"));
        assert!(err.contains(line), "{err}");
        let there = node.layout.pods_dir().join("shop.yaml");
        let shown = format!("{}: {line}\n", there.display());
        day.wait("the line of the file", |s| {
            (!s.problems.is_empty()).then_some(())
        });
        let (code, out, err) = client(&day, "get pods");
        assert_eq!((code, out.as_str()), (Some(0), ""));
        assert!(err.ends_with(&shown), "{err}");
        let (code, out, _) = client(&day, "status");
        assert_eq!(code, Some(1));
        assert!(out.ends_with(&format!("\n{shown}")), "{out}");

        // A file of which nothing is left is refused by all of them.
        let alone = write(&day, "alone.yaml", of("NetworkPolicy", "web"));
        let (code, out, _) = client(&day, &format!("validate {}", path(&alone)));
        assert_eq!(code, Some(1));
        assert!(out.contains("not run here: it is NOT enforced"), "{out}");
        let (code, _, err) = client(&day, &format!("apply -f {}", path(&alone)));
        assert_eq!(code, Some(1));
        assert!(err.contains("not run here: it is NOT enforced"), "{err}");
        // One that means nothing here is well, and is not written.
        let quiet = write(&day, "quiet.yaml", of("Namespace", "shop"));
        let (code, out, err) = client(&day, &format!("apply -f {}", path(&quiet)));
        let nothing = format!("{}: nothing in it runs here\n", path(&quiet));
        assert_eq!((code, out, err), (Some(0), nothing, String::new()));
        assert_eq!(files(&day), ["shop.yaml"]);
        day.end();
    }

    /// The first line of a script after `podprobe run &`.
    pub(super) fn a_daemon_that_starts_is_waited_for(node: &Node) {
        let mut day = Day::begin(node);
        for _ in 0..3 {
            day.kill9();
            let none = client(&day, "get pods");
            assert!(none.2.contains("no daemon runs there"), "{}", none.2);
            let mut starts = day.command();
            starts.stderr(Stdio::null());
            let mut daemon = starts.spawn().unwrap();
            let (code, _, err) = client(&day, "get pods");
            daemon.kill().unwrap();
            daemon.wait().unwrap();
            assert_eq!((code, err.as_str()), (Some(0), "No resources found\n"));
            day.start();
        }
        day.end();
    }

    pub(super) fn a_deleted_pod_is_terminating_while_its_container_runs(node: &Node) {
        let day = Day::begin(node);
        let stubborn = "trap '' TERM\nwhile :; do [ -e /starts/go ] && exit 0; sleep 0.05; done";
        let mut pod = day.pod("web", stubborn, json!({}));
        pod["spec"]["terminationGracePeriodSeconds"] = 600.into();
        day.put("web", pod);
        day.wait_ready("web");
        let (code, _, err) = client(&day, "delete web");
        assert_eq!(code, Some(0), "{err}");
        day.wait("the pod to be on its way", |s| {
            let pod = find(s, "web")?;
            (pod.status.reason == "Deleted" || pod.terminating).then_some(())
        });
        let word = || {
            let (_, out, _) = client(&day, "get pods --no-headers");
            out.split_whitespace().nth(2).map(str::to_owned)
        };
        assert_eq!(word().as_deref(), Some("Terminating"));
        let (_, described, _) = client(&day, "describe pod web");
        let status = described.lines().find(|l| l.starts_with("Status:"));
        assert!(
            status.is_some_and(|s| s.ends_with("Terminating")),
            "{described}"
        );
        fs::write(node.dir.path().join("starts/go"), "").unwrap();
        support::wait_until("the pod to be deleted", || {
            word().as_deref() == Some("Deleted")
        });
        day.end();
    }

    pub(super) fn what_pods_use_is_shown_in_kubectls_columns(node: &Node) {
        let day = Day::begin(node);
        let busy = "trap 'exit 0' TERM\nwhile :; do :; done";
        day.put("busy", day.pod("busy", busy, json!({})));
        day.wait_ready("busy");
        let (code, out, err) = client(&day, "top pods");
        assert_eq!(code, Some(0), "{err}");
        let rows: Vec<Vec<&str>> = out
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0], ["NAME", "CPU(cores)", "MEMORY(bytes)"]);
        assert_eq!(rows[1][0], "busy-edge");
        let cpu: u32 = rows[1][1].strip_suffix('m').unwrap().parse().unwrap();
        assert!(cpu > 0 && rows[1][2].ends_with("Mi"), "{out}");
        let (_, events, _) = client(&day, "events --for pod/busy --types Normal --no-headers");
        assert!(
            events.contains("Started") && !events.contains("Warning"),
            "{events}"
        );
        day.end();
    }
}
