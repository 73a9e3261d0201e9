//! Pods from a URL (kubelet-probes 6.4): what a real daemon makes of answers, good, bad and missing.

use std::fs;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::{Day, FOREVER};
use crate::support::http_server::{Reply, Server};
use crate::support::{Node, wait_until};

/// A server whose answer a test changes while it runs.
struct Changing {
    server: Server,
    reply: Arc<Mutex<Reply>>,
}

impl Changing {
    fn new(reply: Reply) -> Self {
        let reply = Arc::new(Mutex::new(reply));
        let shared = reply.clone();
        let server = Server::new(move |_| shared.lock().unwrap().clone());
        Self { server, reply }
    }

    fn url(&self) -> String {
        format!("http://{}/pods", self.server.address)
    }

    /// Returns when the new answer has been asked for twice, so that the first one has been handled.
    fn answer(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
        self.wait_for_requests(2);
    }

    fn wait_for_requests(&self, more: usize) {
        let before = self.server.requests().len();
        wait_until("more requests", || {
            self.server.requests().len() >= before + more
        });
    }
}

fn ok(body: impl ToString) -> Reply {
    Reply::new(200, body.to_string())
}

fn list(pods: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": pods})
}

fn begin<'a>(node: &'a Node, url: &str, more: Value) -> Day<'a> {
    configure(node, url, more);
    Day::begin(node)
}

fn configure(node: &Node, url: &str, more: Value) {
    let mut config = json!({"staticPodURL": url, "httpCheckFrequency": "100ms", "healthzBindAddress": "", "healthzPort": 0});
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    let path = node.layout.config_file();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, config.to_string()).unwrap();
}

/// What clients are told of the URL.
fn problem(day: &Day) -> Option<String> {
    let snapshot = day.snapshot()?;
    snapshot.problems.first().map(|p| p.error.clone())
}

#[track_caller]
fn check_problem(day: &Day, part: &str) {
    let found = problem(day).unwrap_or_default();
    assert!(found.contains(part), "{found:?}, not {part:?}");
}

#[test]
fn nothing_but_a_good_answer_ends_a_pod() {
    support::on(RuntimeChoice::Embedded, |node| {
        let server = Changing::new(ok("{}"));
        let day = begin(node, &server.url(), json!({}));
        let pod = day.pod("web", FOREVER, json!({}));
        server.answer(ok(&pod));
        day.wait_ready("web");
        let process = day.process("web");
        let cut = pod.to_string();
        let half = cut.len() / 2;
        for (reply, error) in [
            (ok(""), "the answer is empty; a PodList without items"),
            (ok("<html>"), "expected a v1 Pod"),
            (
                ok(pod.to_string().replace("containers", "continers")),
                "containers",
            ),
            (
                Reply::new(404, "no"),
                "answers with status 404 instead of 200",
            ),
            (
                Reply::new(500, ""),
                "answers with status 500 instead of 200",
            ),
            (ok(&cut).cut(half), "the connection to 127.0.0.1"),
            (
                Reply::new(302, "").with("location", "file:///etc/passwd"),
                "which is no address",
            ),
            (
                ok(" ".repeat(10 << 20)),
                "the answer has more than 10485759 bytes",
            ),
        ] {
            server.answer(reply);
            check_problem(&day, error);
            assert_eq!(day.process("web"), process, "{error}");
        }
        let described = day.says(&["describe", "pod", "web"]);
        assert!(
            described.contains("has more than 10485759 bytes"),
            "{described}"
        );
        assert!(described.contains(&server.url()), "{described}");
        // the same pod again is no change
        server.answer(ok(list(std::slice::from_ref(&pod))));
        wait_until("no problem", || problem(&day).is_none());
        assert_eq!(day.process("web"), process);
        server.answer(ok(list(&[])));
        day.wait_gone("web");
        day.end();
    });
}

#[test]
fn the_last_good_answer_survives_the_daemon_and_the_server() {
    support::on(RuntimeChoice::Embedded, |node| {
        let server = Changing::new(ok("{}"));
        let mut day = begin(node, &server.url(), json!({}));
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}});
        let pod = day.pod(
            "web",
            FOREVER,
            json!({"env": [
            {"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
        );
        server.answer(ok(list(&[secret, pod])));
        day.wait_ready("web");
        let process = day.process("web");
        // dead, then a server that says nothing
        for hangs in [false, true] {
            day.kill9();
            let mut silent = Reply::new(200, "");
            (silent.hangs, silent.length) = (true, Some(100));
            *server.reply.lock().unwrap() = match hangs {
                true => silent,
                false => Reply::new(503, ""),
            };
            day.start();
            day.wait_ready("web");
            // it does not wait for the end of a request
            assert!(!hangs || problem(&day).is_none());
            assert_eq!(day.process("web"), process);
        }
        // what is kept is for root only
        let kept = node.layout.last_good_url();
        let mode = fs::metadata(&kept).unwrap();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
            0o700
        );
        // without the URL its pods end, and nothing of them is kept
        day.kill9();
        fs::write(
            node.layout.config_file(),
            r#"{"healthzBindAddress": "", "healthzPort": 0}"#,
        )
        .unwrap();
        day.start();
        day.wait_gone("web");
        assert!(!kept.exists());
        day.end();
    });
}

#[test]
fn a_server_that_hangs_keeps_nobody_waiting() {
    support::on(RuntimeChoice::Embedded, |node| {
        // It accepts, and never answers.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut day = begin(node, &url, json!({}));
        day.put("file", day.pod("file", FOREVER, json!({})));
        day.wait_ready("file");
        let _held = listener.accept().unwrap();
        day.delete("file");
        day.wait_gone("file");
        let (status, took) = day.terminate();
        assert!(
            status.success() && took < Duration::from_secs(5),
            "{status} {took:?}"
        );
        // As with a kubelet, what pods have left is removed when every source has been seen.
        fs::write(
            node.layout.config_file(),
            r#"{"healthzBindAddress": "", "healthzPort": 0}"#,
        )
        .unwrap();
        day.start();
        day.end();
    });
}

#[test]
fn headers_go_to_the_server_of_the_url_only() {
    support::on(RuntimeChoice::Embedded, |node| {
        let other = Changing::new(ok("{}"));
        let body = json!({"apiVersion": "v1", "kind": "PodList", "items": []});
        *other.reply.lock().unwrap() = ok(body);
        let server = Changing::new(Reply::new(302, "").with("location", other.url()));
        let headers = json!({"staticPodURLHeader": {"Authorization": ["Bearer s3cret"], "X-Node": ["a", "b"]}});
        let day = begin(node, &server.url(), headers);
        wait_until("the redirect to be followed", || {
            !other.server.requests().is_empty()
        });
        let first = &server.server.requests()[0];
        assert_eq!(first.header("authorization"), "Bearer s3cret");
        assert_eq!(first.header("x-node"), "b", "each value is a header");
        assert!(first.header("user-agent").starts_with("podprobe/"));
        let second = &other.server.requests()[0];
        assert_eq!(
            (second.header("authorization"), second.header("x-node")),
            ("", "")
        );
        assert!(!day.log().contains("s3cret"), "{}", day.log());
        day.end();
    });
}

#[test]
fn failures_are_told_three_times_and_once_with_a_note() {
    support::on(RuntimeChoice::Embedded, |node| {
        let server = Changing::new(Reply::new(503, ""));
        let day = begin(node, &server.url(), json!({}));
        server.wait_for_requests(7);
        let said = |part: &str| day.log().matches(part).count();
        day.log_with(&["further failures are logged at level debug"]);
        assert_eq!(said("further failures are logged at level debug"), 1);
        server.answer(ok(list(&[])));
        wait_until("the end of the problem", || {
            said("no problem any more") == 1
        });
        let log = day.log_path();
        day.end();
        // The log counts the second and the third, which are equal to the first.
        let log = std::fs::read_to_string(log).unwrap();
        let told: Vec<&str> = log
            .lines()
            .filter(|l| l.contains("answers with status 503"))
            .collect();
        let counted = told
            .iter()
            .filter(|l| l.contains("instead of 200 (2 times more in "))
            .count();
        assert_eq!((told.len(), counted), (3, 1), "{log}");
    });
}

#[test]
fn the_sources_are_independent() {
    support::on(RuntimeChoice::Embedded, |node| {
        let server = Changing::new(ok("{}"));
        let day = begin(node, &server.url(), json!({}));
        day.put("a", day.pod("a", FOREVER, json!({})));
        server.answer(ok(day.pod("b", FOREVER, json!({}))));
        day.wait_ready("a");
        day.wait_ready("b");
        let (a, b) = (day.process("a"), day.process("b"));
        day.delete("a");
        day.wait_gone("a");
        assert_eq!(day.process("b"), b);
        day.put("a", day.pod("a", FOREVER, json!({})));
        day.wait_ready("a");
        assert_ne!(day.process("a"), a);
        let again = day.process("a");
        server.answer(ok(list(&[])));
        day.wait_gone("b");
        assert_eq!(day.process("a"), again);
        day.end();
    });
}

#[test]
fn random_answers_are_refused_and_cost_nothing() {
    support::on(RuntimeChoice::Embedded, |node| {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let server = Changing::new(ok("{}"));
        let day = begin(node, &server.url(), json!({}));
        server.answer(ok(day.pod("web", FOREVER, json!({}))));
        day.wait_ready("web");
        let process = day.process("web");
        for _ in 0..20 {
            let bytes: Vec<u8> = (0..2000)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    seed.to_le_bytes()[0]
                })
                .collect();
            *server.reply.lock().unwrap() = Reply::new(200, bytes);
            server.wait_for_requests(1);
        }
        server.wait_for_requests(1);
        assert_eq!(day.process("web"), process);
        assert!(problem(&day).is_some());
        server.answer(ok(list(&[])));
        day.end();
    });
}
