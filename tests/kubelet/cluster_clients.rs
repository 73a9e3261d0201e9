//! A real daemon as a node of a cluster, asked by curl with certificates and tokens whose rights the API server knows
//! (kubelet-probes 11.1).

use std::fs;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use serde_json::{Value, json};

use crate::cluster::{create, end, in_a_cluster_with, wait_ready};
use crate::support::api_server::{ApiServer, Fault, READER, READER_TOKEN};
use crate::support::curl::{curl, free_port, has_curl};
use crate::support::daemon::{Day, FOREVER};
use crate::support::{CEILING, wait_until};

/// The files of the client that an API server is to its nodes.
const API_SERVER: &str = "api-server";
/// The files of a client that nobody has given rights.
const STRANGER: &str = "stranger";

/// The time after its start for which the daemon lets clients wait for a connection.
const FIRST_MOMENTS: Duration = Duration::from_secs(2);

/// Runs a test on a node whose server makes its own certificate. The test gets a client that asks for a path with further
/// arguments of curl, and that trusts this certificate.
fn asked(
    test: impl FnOnce(&ApiServer, &mut Day<'_>, &(dyn Fn(&str, &[&str]) -> (u16, String) + Sync)),
) {
    if !has_curl() {
        return;
    }
    let port = free_port();
    let config = |server: &ApiServer| -> Value {
        let ca = server.authority.path("ca.pem");
        let of = |name, subject| server.authority.certificate("ca", name, subject);
        of(
            API_SERVER,
            "/O=system:masters/CN=kube-apiserver-kubelet-client",
        );
        of(STRANGER, "/CN=stranger");
        json!({"port": port, "address": "127.0.0.1", "authentication": {"x509": {"clientCAFile": ca}}})
    };
    in_a_cluster_with(config, |server, mut day| {
        let (certificate, _) = day.node.layout.server_certificate();
        let certificate = certificate.display().to_string();
        let ask = |path: &str, arguments: &[&str]| {
            let url = format!("https://localhost:{port}{path}");
            let resolve = format!("localhost:{port}:127.0.0.1");
            let own = ["--resolve", &resolve, "--cacert", &certificate, &url];
            curl(&[&own, arguments].concat())
        };
        wait_until("the server listens", || ask("/healthz", &[]).0 == 200);
        test(server, &mut day, &ask);
        end(server, day);
    });
}

fn certificate(server: &ApiServer, name: &str) -> [String; 4] {
    let path = |end: &str| server.authority.path(&format!("{name}.{end}"));
    ["--cert".into(), path("pem"), "--key".into(), path("key")]
}

#[test]
fn clients_may_what_the_api_server_allows() {
    asked(|server, day, ask| {
        create(server, day, "web", FOREVER);
        wait_ready(server, "web");
        server.grant(READER, "get", "metrics");
        server.grant(READER, "get", "pods");
        let bearer = format!("Authorization: Bearer {READER_TOKEN}");
        let reader = |path: &str| ask(path, &["--header", &bearer]);
        let of = |name: &str, path: &str| {
            let files = certificate(server, name);
            ask(path, &files.each_ref().map(String::as_str))
        };
        assert_eq!(reader("/metrics").0, 200);
        let (status, pods) = reader("/pods");
        assert_eq!(status, 200);
        assert!(pods.contains("\"web\""), "{pods}");
        let logs = "/containerLogs/default/web/c";
        let forbidden = |user: &str| {
            let text = format!(
                "Forbidden (user={user}, verb=get, resource=nodes, subresource(s)=[proxy])\n"
            );
            (403, text)
        };
        assert_eq!(reader(logs), forbidden(READER));
        assert_eq!(of(STRANGER, logs), forbidden("stranger"));
        assert_eq!(of(API_SERVER, logs).0, 200);
        let unauthorized = (401, "Unauthorized\n".to_owned());
        let bogus = ask("/pods", &["--header", "Authorization: Bearer bogus"]);
        assert_eq!(bogus, unauthorized);
        assert_eq!(ask("/pods", &[]), unauthorized);
        // An answer is good for a while, and each was asked for once.
        assert_eq!(reader("/metrics").0, 200);
        assert_eq!(server.count("POST", "/tokenreviews"), 2);
        assert_eq!(server.count("POST", "/subjectaccessreviews"), 5);
    });
}

/// The port opens before the daemon has its connection to the API server.
#[test]
fn a_client_of_the_first_moment_waits_for_the_connection() {
    asked(|server, day, ask| {
        server.grant(READER, "get", "metrics");
        let bearer = format!("Authorization: Bearer {READER_TOKEN}");
        let mut first = |is_in_time: bool| {
            day.kill9();
            server.hold();
            let begun = Instant::now();
            day.spawn();
            wait_until("the server listens", || ask("/metrics", &[]).0 == 401);
            let (answer_in, answer) = bounded(1);
            let (status, text) = std::thread::scope(|s| {
                s.spawn(|| answer_in.send(ask("/metrics", &["--header", &bearer])));
                if is_in_time {
                    // A refusal would come now.
                    let early = answer.recv_timeout(Duration::from_millis(300));
                    assert!(
                        early.is_err() || begun.elapsed() > FIRST_MOMENTS,
                        "{early:?}"
                    );
                    server.release();
                    early.or_else(|_| answer.recv_timeout(CEILING)).unwrap()
                } else {
                    answer.recv_timeout(CEILING).unwrap()
                }
            });
            server.release();
            (status, text, begun.elapsed() > FIRST_MOMENTS)
        };
        wait_until("the answer of a connection in time", || {
            let (status, text, is_late) = first(true);
            assert!(status == 200 || is_late, "{status} {text}");
            status == 200
        });
        let (status, text, is_late) = first(false);
        assert!(text.ends_with("there is no connection to the API server\n"));
        assert!(status == 500 && is_late, "{status} {text}");
    });
}

/// Nobody is let in because the API server cannot be asked. What it has said before stays good for a while.
#[test]
fn without_a_connection_nobody_new_is_let_in() {
    asked(|server, _, ask| {
        server.grant(READER, "get", "metrics");
        let bearer = format!("Authorization: Bearer {READER_TOKEN}");
        let reader = |path: &str| ask(path, &["--header", &bearer]);
        assert_eq!(reader("/metrics").0, 200);
        server.fail(
            "POST",
            "subjectaccessreviews",
            4,
            Fault::Status(503, "busy", None),
        );
        let (status, text) = reader("/pods");
        let failed = "Authorization error (user=system:serviceaccount:default:reader, verb=get, resource=nodes, subresource(s)=[pods]): ";
        assert_eq!(status, 500);
        assert!(text.starts_with(failed), "{text}");
        assert!(text.contains("the API server answers 503: busy"), "{text}");
        server.down();
        let no_connection = || {
            let (status, text) = reader("/stats/summary");
            assert_eq!(status, 500, "{text}");
            text.ends_with("there is no connection to the API server\n")
        };
        wait_until("the connection is lost", no_connection);
        assert_eq!(reader("/metrics").0, 200);
        assert_eq!(ask("/healthz", &[]).0, 200);
        server.up();
        wait_until("there is a connection", || {
            reader("/stats/summary").0 == 403
        });
    });
}

/// A daemon that has just started knows no pods until the API server has said them.
#[test]
fn a_client_that_comes_early_waits_until_the_pods_are_known() {
    asked(|server, day, ask| {
        create(server, day, "web", FOREVER);
        wait_ready(server, "web");
        day.kill9();
        fs::remove_dir_all(day.node.layout.kept_pods()).unwrap();
        let late = Fault::Late(Duration::from_secs(1));
        server.fail("GET", "/api/v1/pods", 1, late);
        let files = certificate(server, API_SERVER);
        let logs = || {
            let files = files.each_ref().map(String::as_str);
            ask("/containerLogs/default/web/c", &files).0
        };
        // The client asks already while the daemon starts. Nobody answers before the port is open, and nobody may look before
        // there is a connection to the API server.
        let first = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut first = 0;
                wait_until("an answer about the pod", || {
                    first = logs();
                    ![0, 500].contains(&first)
                });
                first
            });
            day.start();
            asking.join().unwrap()
        });
        assert_eq!(first, 200);
    });
}
