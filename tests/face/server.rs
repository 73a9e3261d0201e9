//! The server of a real daemon, asked by real clients: curl, a WebSocket client in another language, and podprobe's own verbs.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use podprobe::face::server::request::encoded;
use serde_json::{Value, json};

use crate::support;
use crate::support::authority::Authority;
use crate::support::curl::{curl, free_port, has_curl};
use crate::support::daemon::{Day, FOREVER, NODE};
use crate::support::{CEILING, Node, on_both, skip, wait_until};

fn socket(day: &Day) -> String {
    day.node.layout.socket().display().to_string()
}

/// Over the unix socket.
fn ask(day: &Day, path: &str) -> (u16, String) {
    let url = format!("http://podprobe{path}");
    curl(&["--unix-socket", &socket(day), "--globoff", &url])
}

fn configure(node: &Node, more: Value) {
    let mut all = json!({"healthzBindAddress": "", "healthzPort": 0});
    let more = more.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(more);
    fs::write(node.layout.config_file(), all.to_string()).unwrap();
}

fn name() -> String {
    format!("web-{NODE}")
}

/// The path of the pod's container after `/exec` and the like.
fn container() -> String {
    format!("default/{}/c", name())
}

fn wait_for_port(port: u16) {
    wait_until("the port to be open", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
}

/// A daemon with the pod `web`, which runs `script`.
fn with_pod(node: &Node, config: Value, script: &str, more: Value, test: impl FnOnce(&Day)) {
    configure(node, config);
    let day = Day::begin(node);
    day.put("web", day.pod("web", script, more));
    day.wait_ready("web");
    test(&day);
    day.end();
}

fn on_embedded(test: impl FnOnce(&Node)) {
    support::on(podprobe::engine::shims::RuntimeChoice::Embedded, test);
}

#[test]
fn curl_reads_every_path_of_the_socket() {
    if !has_curl() {
        return;
    }
    on_embedded(|node| {
        with_pod(
            node,
            json!({}),
            "echo one; echo two >&2; sleep 1000",
            json!({}),
            |day| {
                let (status, body) = ask(day, "/healthz?verbose");
                assert_eq!(status, 200, "{body}");
                for check in ["ping", "syncloop", "pleg", "runtime", "disk"] {
                    assert!(body.contains(&format!("[+]{check} ok\n")), "{body}");
                    assert_eq!(ask(day, &format!("/healthz/{check}")), (200, "ok".into()));
                }
                let json = |path: &str| -> Value {
                    let (status, body) = ask(day, path);
                    assert_eq!(status, 200, "{path}: {body}");
                    serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path}: {e}: {body}"))
                };
                let pods = json("/pods");
                assert_eq!(pods["kind"], "PodList");
                assert_eq!(pods["items"][0]["metadata"]["name"], name());
                assert_eq!(pods["items"][0]["status"]["phase"], "Running");
                let running = json("/runningpods/");
                assert_eq!(running["items"][0]["spec"]["containers"][0]["name"], "c");
                let config = &json("/configz")["kubeletconfig"];
                assert_eq!(config["nodeName"], NODE);
                assert_eq!(config["healthzPort"], 0);
                assert_eq!(config["syncFrequency"], "60s");
                let summary = json("/stats/summary");
                assert_eq!(summary["pods"][0]["podRef"]["name"], name());
                let events = json("/events");
                assert!(
                    events["events"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .any(|e| e["reason"] == "Started")
                );
                for (path, series) in [
                    ("/metrics", "kubelet_running_pods"),
                    ("/metrics/probes", "process_start_time_seconds"),
                    ("/metrics/resource", "container_cpu_usage_seconds_total"),
                    ("/metrics/cadvisor", "container_memory_working_set_bytes"),
                ] {
                    let (status, body) = ask(day, path);
                    assert_eq!(status, 200);
                    assert!(body.contains(series), "{path}: {body}");
                }
                let (_, threads) = ask(day, "/debug/threads");
                for thread in ["sync-loop", "pleg", "server"] {
                    assert!(threads.contains(&format!("\n{thread} ")), "{threads}");
                }
                let (status, listing) = ask(day, "/logs/");
                assert_eq!(status, 200);
                assert!(
                    listing.contains("<a href=\"/logs/pods/\">pods/</a>"),
                    "{listing}"
                );
                assert_eq!(ask(day, "/logs/../../etc/passwd").0, 404);
                let (status, spdy) =
                    ask(day, &format!("/exec/{}?command=ls&output=1", container()));
                assert_eq!(status, 426, "{spdy}");
            },
        );
    });
}

#[test]
fn logs_have_the_kubelet_s_options() {
    if !has_curl() {
        return;
    }
    on_embedded(|node| {
        let script = "for i in 1 2 3; do echo out $i; done; echo err >&2; sleep 1000";
        with_pod(node, json!({}), script, json!({}), |day| {
            let logs = |query: &str| ask(day, &format!("/containerLogs/{}?{query}", container()));
            wait_until("the log", || logs("").1.lines().count() == 4);
            assert_eq!(logs("stream=Stdout"), (200, "out 1\nout 2\nout 3\n".into()));
            assert_eq!(logs("stream=Stderr").1, "err\n");
            assert_eq!(logs("stream=Stdout&tailLines=1").1, "out 3\n");
            assert_eq!(logs("stream=Stdout&limitBytes=8").1, "out 1\nou");
            let (_, stamped) = logs("stream=Stderr&timestamps=true");
            assert!(
                stamped.ends_with("Z err\n") || stamped.contains("+00:00 err\n"),
                "{stamped}"
            );
            assert_eq!(logs("sinceTime=2999-01-01T00:00:00Z").1, "");
            assert_eq!(logs("tailLines=x").0, 400);
            assert_eq!(logs("tailLines=-1").0, 422);
            let of = |path: &str| ask(day, &format!("/containerLogs/default/{path}"));
            assert_eq!(of("none/c"), (404, "pod \"none\" does not exist\n".into()));
            assert_eq!(
                of(&format!("{}/d", name())),
                (
                    404,
                    format!("container \"d\" not found in pod \"{}\"\n", name())
                )
            );
            let (status, none) = logs("previous=true");
            assert_eq!(status, 400);
            assert!(
                none.starts_with("previous terminated container \"c\""),
                "{none}"
            );

            // A log that is followed ends with its container.
            let url = format!(
                "http://podprobe/containerLogs/{}?follow=true&stream=Stderr",
                container()
            );
            let mut follower = Command::new("curl")
                .args([
                    "--silent",
                    "--no-buffer",
                    "--unix-socket",
                    &socket(day),
                    &url,
                ])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut followed = BufReader::new(follower.stdout.take().unwrap());
            let mut line = String::new();
            followed.read_line(&mut line).unwrap();
            assert_eq!(line, "err\n");
            day.delete("web");
            day.wait_gone("web");
            let mut rest = String::new();
            followed.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "");
            assert!(follower.wait().unwrap().success());
        });
    });
}

#[test]
fn run_answers_with_the_output() {
    if !has_curl() {
        return;
    }
    on_embedded(|node| {
        with_pod(node, json!({}), FOREVER, json!({}), |day| {
            let run = |command: &str| {
                let url = format!("http://podprobe/run/{}?cmd={command}", container());
                curl(&["--unix-socket", &socket(day), "--request", "POST", &url])
            };
            assert_eq!(run("/bin/busybox+echo+a+b"), (200, "a b\n".into()));
            let (status, failed) = run("/bin/busybox+ls+/none");
            assert_eq!(status, 500);
            assert!(
                failed.ends_with("command terminated with exit code 1\n"),
                "{failed}"
            );
            assert_eq!(run("").0, 400);
            assert_eq!(ask(day, &format!("/run/{}?cmd=ls", container())).0, 405);
            let audit = format!(
                "audit: run {} [\"/bin/busybox\", \"echo\", \"a\", \"b\"] by uid 0 (pid ",
                container()
            );
            day.log_with(&[&audit]);
        });
    });
}

#[test]
fn debugging_can_be_switched_off() {
    if !has_curl() {
        return;
    }
    on_embedded(|node| {
        let off = json!({"enableDebuggingHandlers": false});
        with_pod(node, off, FOREVER, json!({}), |day| {
            for path in ["exec", "attach", "run", "containerLogs"] {
                let (status, body) =
                    ask(day, &format!("/{path}/{}?command=ls&output=1", container()));
                assert_eq!(
                    (status, body.as_str()),
                    (405, "Debug endpoints are disabled.\n"),
                    "{path}"
                );
            }
            assert_eq!(ask(day, "/pods").0, 200);
            let refused = day.says(&["exec", "web", "--", "sh", "-c", "ls"]);
            assert!(
                refused.contains("Debug endpoints are disabled."),
                "{refused}"
            );
        });
    });
}

const TOKEN: &str = "0123456789abcdef-token";

#[test]
fn without_certificate_or_token_a_tcp_address_tells_health_and_nothing_else() {
    if !has_curl() || !skip::has("openssl", "openssl") {
        return;
    }
    on_embedded(|node| {
        let authority = Authority::new();
        authority.leaf("ca", "server");
        authority.leaf("ca", "client");
        authority.root("stranger");
        authority.leaf("stranger", "forged");
        let token = authority.secret("token", &format!("{TOKEN}\n"), 0o600);
        let port = free_port();
        with_pod(
            node,
            authority.config(port, &token),
            FOREVER,
            json!({}),
            |day| {
                wait_for_port(port);
                let url = |path: &str| format!("https://127.0.0.1:{port}{path}");
                let ca = authority.path("ca.pem");
                let get = |more: &[&str], path: &str| {
                    curl(&[&["--cacert", ca.as_str(), &url(path)], more].concat())
                };
                for path in ["/healthz", "/healthz/ping", "/livez", "/readyz"] {
                    assert_eq!(get(&[], path), (200, "ok".into()), "{path}");
                }
                let paths = [
                    "/",
                    "/pods",
                    "/metrics",
                    "/configz",
                    "/events",
                    "/version",
                    "/podprobe/v1/snapshot",
                    "/logs/",
                    "/debug/threads",
                    "/nothing",
                ];
                for path in paths {
                    assert_eq!(get(&[], path), (401, "Unauthorized\n".into()), "{path}");
                }
                let bearer = |token: &str| format!("Authorization: Bearer {token}");
                let with = |token: &str, path: &str| get(&["--header", &bearer(token)], path).0;
                assert_eq!(with(TOKEN, "/pods"), 200);
                for wrong in ["", "0", "0123456789abcdef-tokeN", "0123456789abcdef-token2"] {
                    assert_eq!(with(wrong, "/pods"), 401, "{wrong:?}");
                }
                let (cert, key) = (authority.path("client.pem"), authority.path("client.key"));
                assert_eq!(get(&["--cert", &cert, "--key", &key], "/pods").0, 200);
                let (cert, key) = (authority.path("forged.pem"), authority.path("forged.key"));
                assert_eq!(
                    get(&["--cert", &cert, "--key", &key], "/pods").0,
                    0,
                    "the handshake fails"
                );
                let plain = curl(&[&format!("http://127.0.0.1:{port}/healthz")]);
                assert_eq!(plain.0, 0, "no answer without TLS");

                // A new token and a new certificate are in force without a restart.
                authority.secret("token", "another-token-0123456789", 0o600);
                assert_eq!(with(TOKEN, "/pods"), 401);
                assert_eq!(with("another-token-0123456789", "/pods"), 200);
                authority.secret("token", "readable-by-others-0123", 0o644);
                assert_eq!(with("readable-by-others-0123", "/pods"), 401);
                assert_eq!(
                    with("another-token-0123456789", "/pods"),
                    401,
                    "it was withdrawn"
                );
                day.log_with(&["authentication.bearerTokenFile", "(mode 0644): chmod 600 "]);
                authority.secret("token", TOKEN, 0o600);
                assert_eq!(with(TOKEN, "/pods"), 200);
                day.log_with(&["token: in force again"]);
                let foreign = |field: &str, path: &str| {
                    get(&["--header", &bearer(TOKEN), "--header", field], path).0
                };
                for field in ["Sec-Fetch-Site: cross-site", "Origin: https://a.example"] {
                    assert_eq!(foreign(field, "/pods"), 403, "{field}");
                    assert_eq!(foreign(field, "/healthz"), 200, "{field}");
                }
                let own = format!("Origin: https://127.0.0.1:{port}");
                assert_eq!(foreign(&own, "/pods"), 200);
                authority.root("ca2");
                authority.leaf("ca2", "server");
                let ca2 = authority.path("ca2.pem");
                let renewed = curl(&["--cacert", &ca2, &url("/healthz")]);
                assert_eq!(renewed, (200, "ok".into()));
            },
        );
    });
}

/// Health and the unix socket work while the port cannot.
#[test]
fn a_secret_that_others_can_read_opens_no_port() {
    if !skip::has("openssl", "openssl") {
        return;
    }
    on_embedded(|node| {
        let authority = Authority::new();
        authority.leaf("ca", "server");
        let token = authority.secret("token", TOKEN, 0o640);
        let (port, health) = (free_port(), free_port());
        let mut config = authority.config(port, &token);
        config["healthzPort"] = health.into();
        configure(node, config);
        let day = Day::begin(node);
        wait_for_port(health);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        assert!(day.snapshot().is_some());
        day.log_with(&["others than its owner can read or write it (mode 0640): chmod 600"]);
        day.end();
    });
}

/// The WebSocket client in another language.
struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    /// None, with a word, where there is no such client: `.ci/run` makes the environment.
    fn start(to: &str, target: &str) -> Option<Self> {
        let made = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/grpc-venv/bin/python");
        let python = std::env::var_os("PODPROBE_GRPC_PYTHON").map_or(made, PathBuf::from);
        let has = Command::new(&python)
            .args(["-c", "import websocket"])
            .stderr(Stdio::null())
            .status();
        if !has.is_ok_and(|s| s.success()) {
            let python = python.display();
            skip::skip(&format!(
                "needs websocket-client at {python} (PODPROBE_GRPC_PYTHON)"
            ));
            return None;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/exec_client.py");
        let mut child = Command::new(python)
            .args([script, to, target])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Some(Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        })
    }

    fn step(&mut self, step: Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{step}").unwrap();
    }

    #[track_caller]
    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    /// What has come on a channel by the time it holds that text.
    #[track_caller]
    fn until(&mut self, channel: u8, text: &str) -> String {
        self.step(json!({"until": [channel, text]}));
        let answer = self.answer();
        let said = answer["text"].as_str().unwrap_or_default().to_owned();
        assert!(said.contains(text), "{text:?} in {answer}");
        said
    }

    /// Everything, and the code that the server has closed with.
    fn end(&mut self) -> (Value, Value) {
        self.step(json!({"end": true}));
        let answer = self.answer();
        let status = answer["seen"]["3"].as_str().unwrap_or("null");
        (serde_json::from_str(status).unwrap(), answer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stdin.take();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exec_target(streams: &str, command: &[&str]) -> String {
    let words: String = command
        .iter()
        .map(|w| format!("&command={}", encoded(w)))
        .collect();
    format!("/exec/{}?{streams}{words}", container())
}

fn another_language_runs_commands(node: &Node) {
    with_pod(node, json!({}), FOREVER, json!({}), |day| {
        let socket = socket(day);
        let script = "read line; echo got $line; echo err >&2; cat; exit 7";
        let target = exec_target("input=1&output=1&error=1", &["sh", "-c", script]);
        let Some(mut peer) = Peer::start(&socket, &target) else {
            return;
        };
        assert_eq!(peer.answer()["subprotocol"], "v5.channel.k8s.io");
        peer.step(json!({"ping": "x"}));
        peer.step(json!({"fragments": "hello\n"}));
        peer.until(1, "got hello\n");
        peer.until(2, "err\n");
        peer.step(json!({"write": "more\n"}));
        peer.until(1, "more\n");
        // Only the end of its input ends it.
        peer.step(json!({"close": 0}));
        let (status, all) = peer.end();
        assert_eq!(status["reason"], "NonZeroExitCode", "{all}");
        assert_eq!(status["details"]["causes"][0]["message"], "7");
        assert_eq!(all["code"], 1000);

        let target = exec_target("input=1&output=1&tty=1", &["sh"]);
        let mut peer = Peer::start(&socket, &target).unwrap();
        peer.answer();
        peer.step(json!({"size": {"Width": 132, "Height": 41}}));
        peer.step(json!({"write": "stty size; tty\n"}));
        peer.until(1, "41 132\r\n");
        peer.until(1, "/dev/pts/");
        // One process group, so that it does not matter how far it is.
        peer.step(json!({"write": "sh -c 'echo beg\"\"un; sleep 1000'\n"}));
        peer.until(1, "begun\r\n");
        peer.step(json!({"write": "\u{3}"}));
        peer.step(json!({"write": "echo af''ter; exit 3\n"}));
        peer.until(1, "after\r\n");
        let (status, _) = peer.end();
        assert_eq!(status["details"]["causes"][0]["message"], "3");

        let target = exec_target("output=1&error=1", &["/none"]);
        let mut peer = Peer::start(&socket, &target).unwrap();
        peer.answer();
        let (status, all) = peer.end();
        assert_eq!(status["details"]["causes"][0]["message"], "127");
        assert!(
            all["seen"]["2"]
                .as_str()
                .unwrap()
                .contains("no such file or directory"),
            "{all}"
        );
        let audit = format!("audit: exec {} [\"/none\"] by uid 0", container());
        day.log_with(&[&audit, "exit code 7 after"]);
    });
}

fn a_client_that_vanishes_leaves_no_process(node: &Node) {
    with_pod(node, json!({}), FOREVER, json!({}), |day| {
        let marked = || {
            let all = day.says(&[
                "exec",
                "web",
                "--",
                "sh",
                "-c",
                "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
            ]);
            all.contains("sleep 98765")
        };
        let target = exec_target(
            "input=1&output=1",
            &["sh", "-c", "echo up; sleep 98765 & sleep 98765"],
        );
        let Some(mut peer) = Peer::start(&socket(day), &target) else {
            return;
        };
        peer.answer();
        peer.until(1, "up\n");
        assert!(marked());
        peer.step(json!({"leave": true}));
        wait_until("its processes to be gone", || !marked());

        let mut run = UnixStream::connect(socket(day)).unwrap();
        let head = format!(
            "POST /run/{}?cmd=sleep+98765 HTTP/1.1\r\nHost: a\r\n\r\n",
            container()
        );
        run.write_all(head.as_bytes()).unwrap();
        wait_until("the command of /run to run", marked);
        drop(run);
        wait_until("it to be gone", || !marked());
        wait_until("the log to say so", || {
            day.log().contains("the client left")
        });
    });
}

on_both!(
    another_language_runs_commands,
    a_client_that_vanishes_leaves_no_process,
    verbs_exec_and_attach,
    ports_are_forwarded
);

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// The verb with something on its standard input.
fn piped(day: &Day, words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(support::PROGRAM)
        .arg("--root")
        .arg(day.node.layout.root())
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().unwrap()
    })
}

fn verbs_exec_and_attach(node: &Node) {
    let script = "while read line; do echo \"heard $line\"; done; echo over; sleep 1000";
    with_pod(node, json!({}), script, json!({"stdin": true}), |day| {
        let done = piped(
            day,
            &[
                "exec",
                "web",
                "--",
                "sh",
                "-c",
                "echo out; echo err >&2; exit 5",
            ],
            b"",
        );
        assert_eq!(done.status.code(), Some(5));
        assert_eq!(text(&done.stdout), "out\n");
        assert_eq!(
            text(&done.stderr),
            "err\ncommand terminated with exit code 5\n"
        );
        // More than every buffer between the two, unchanged.
        let much: Vec<u8> = (0..3_000_000u32)
            .flat_map(|n| n.to_le_bytes()[..1].to_vec())
            .collect();
        let echoed = piped(day, &["exec", "-i", "web", "--", "sh", "-c", "cat"], &much);
        assert_eq!(echoed.status.code(), Some(0), "{}", text(&echoed.stderr));
        assert!(echoed.stdout == much, "{} bytes", echoed.stdout.len());
        let missing = piped(day, &["exec", "web", "--", "nonsense"], b"");
        assert_eq!(missing.status.code(), Some(127));
        assert!(text(&missing.stderr).contains("executable file not found in $PATH"));
        let other = piped(day, &["exec", "web", "-c", "d", "--", "ls"], b"");
        assert_eq!(other.status.code(), Some(1));
        assert!(
            text(&other.stderr).contains("its containers are [c]"),
            "{}",
            text(&other.stderr)
        );

        let mut attached = Command::new(support::PROGRAM)
            .arg("--root")
            .arg(day.node.layout.root())
            .args(["attach", "-i", "web"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = attached.stdin.take().unwrap();
        let mut stdout = BufReader::new(attached.stdout.take().unwrap());
        writeln!(stdin, "you").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "heard you\n");
        attached.kill().unwrap();
        attached.wait().unwrap();
        drop(stdin);
        let logged = || day.says(&["logs", "web"]).contains("heard you\n");
        wait_until("the log has it too", logged);
        assert!(
            !day.says(&["logs", "web"]).contains("over"),
            "its input is still open"
        );
    });
}

fn ports_are_forwarded(node: &Node) {
    let script = "mkdir -p /tmp/www; echo hello >/tmp/www/index.html; httpd -f -p 127.0.0.1:8080 -h /tmp/www";
    with_pod(node, json!({}), script, json!({}), |day| {
        let mut forward = Command::new(support::PROGRAM)
            .arg("--root")
            .arg(day.node.layout.root())
            .args(["port-forward", "web", ":8080", ":9"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(forward.stdout.take().unwrap());
        let mut port = || {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            let at = line.strip_prefix("Forwarding from 127.0.0.1:").unwrap();
            at.split_once(' ').unwrap().0.parse::<u16>().unwrap()
        };
        let (good, bad) = (port(), port());
        let get = |port: u16| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(CEILING)).unwrap();
            write!(stream, "GET /index.html HTTP/1.0\r\n\r\n").unwrap();
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            text
        };
        wait_until("httpd to listen", || get(good).ends_with("\r\n\r\nhello\n"));
        assert_eq!(get(bad), "");
        // The connection is closed a moment before the sentence.
        let mut err = BufReader::new(forward.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("forwarding to 9: ") {
            assert!(err.read_line(&mut said).unwrap() > 0, "{said}");
        }
        forward.kill().unwrap();
        forward.wait().unwrap();
        assert!(
            said.contains(&format!("Handling connection for {good}\n")),
            "{said}"
        );
        assert!(said.contains("connection refused"), "{said}");
    });
}

/// The token alone lets a command run; with it the streams are those of the unix socket.
#[test]
fn over_tls_a_command_runs_for_who_has_the_token() {
    if !skip::has("openssl", "openssl") {
        return;
    }
    on_embedded(|node| {
        let authority = Authority::new();
        authority.leaf("ca", "server");
        let token = authority.secret("token", TOKEN, 0o600);
        let port = free_port();
        let config = authority.config(port, &token);
        with_pod(node, config, FOREVER, json!({}), |day| {
            wait_for_port(port);
            let ca = authority.path("ca.pem");
            let to = |token: &str| format!("127.0.0.1:{port}:{ca}:{token}");
            let streams = "input=1&output=1&error=1";
            let mark = exec_target(streams, &["touch", "/tmp/ran"]);
            for wrong in ["", "0123456789abcdef-tokeN"] {
                let Some(mut peer) = Peer::start(&to(wrong), &mark) else {
                    return;
                };
                assert_eq!(peer.answer(), json!({"refused": 401}), "{wrong:?}");
            }

            let target = exec_target(streams, &["sh", "-c", "cat; ls /tmp >&2; exit 7"]);
            let mut peer = Peer::start(&to(TOKEN), &target).unwrap();
            assert_eq!(peer.answer()["subprotocol"], "v5.channel.k8s.io");
            peer.step(json!({"fragments": "hello\n"}));
            peer.until(1, "hello\n");
            // Only the end of its input ends it.
            peer.step(json!({"close": 0}));
            let (status, all) = peer.end();
            assert_eq!(status["details"]["causes"][0]["message"], "7", "{all}");
            assert_eq!(all["code"], 1000);
            assert_eq!(all["seen"]["2"], "noted\n", "what was refused has not run");

            let target = exec_target("input=1&output=1&tty=1", &["sh"]);
            let mut peer = Peer::start(&to(TOKEN), &target).unwrap();
            peer.answer();
            peer.step(json!({"size": {"Width": 132, "Height": 41}}));
            peer.step(json!({"write": "stty size\n"}));
            peer.until(1, "41 132\r\n");
            peer.step(json!({"size": {"Width": 81, "Height": 25}}));
            peer.step(json!({"write": "stty size; exit 3\n"}));
            peer.until(1, "25 81\r\n");
            let (status, _) = peer.end();
            assert_eq!(status["details"]["causes"][0]["message"], "3");

            let ran = format!("audit: exec {} [\"sh\"] by 127.0.0.1:", container());
            let log = day.log_with(&[&ran]);
            assert!(!log.contains("/tmp/ran"), "{log}");
        });
    });
}

/// Each has a head of its own that never ends, a body that never comes, or no HTTP at all.
#[test]
fn hostile_clients_keep_nobody_out_and_leave_nothing() {
    on_embedded(|node| {
        let health = free_port();
        with_pod(
            node,
            json!({"healthzPort": health}),
            FOREVER,
            json!({}),
            |day| {
                wait_for_port(health);
                let descriptors = || {
                    fs::read_dir(format!("/proc/{}/fd", day.pid()))
                        .unwrap()
                        .count()
                };
                let before = descriptors();
                let ask = || {
                    let begun = Instant::now();
                    let mut stream = TcpStream::connect(("127.0.0.1", health)).unwrap();
                    stream.set_read_timeout(Some(CEILING)).unwrap();
                    stream
                        .write_all(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
                        .unwrap();
                    let mut text = String::new();
                    stream.read_to_string(&mut text).unwrap();
                    assert!(text.ends_with("\r\n\r\nok"), "{text}");
                    begun.elapsed()
                };
                let mut hostile = Vec::new();
                let openings: [&[u8]; 6] = [
                    b"",
                    b"GET /healthz HTTP/1.1\r\nA: ",
                    b"POST /healthz HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n",
                    b"\x16\x03\x01\x02\x00\x01\x00\x01",
                    b"{\"verb\":\"snapshot\"}\n",
                    b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
                ];
                let mut slowest = Duration::ZERO;
                for n in 0..200 {
                    let mut stream = TcpStream::connect(("127.0.0.1", health)).unwrap();
                    let _ = stream.write_all(openings[n % openings.len()]);
                    hostile.push(stream);
                    if n % 10 == 9 {
                        slowest = slowest.max(ask());
                    }
                }
                assert!(slowest < CEILING / 2, "{slowest:?}");
                let mut socket = std::os::unix::net::UnixStream::connect(socket(day)).unwrap();
                socket.write_all(b"garbage\r\n\r\n").unwrap();
                assert!(day.snapshot().is_some());
                drop((hostile, socket));
                wait_until("the descriptors to be as before", || {
                    descriptors() <= before
                });
            },
        );
    });
}

/// The mode of the socket, and of its directory for those who may use it.
#[test]
fn the_socket_is_for_root_and_its_group_alone() {
    on_embedded(|node| {
        let day = Day::begin(node);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let has_group = nix::unistd::Group::from_name("podprobe").unwrap().is_some();
        let expected = if has_group { 0o660 } else { 0o600 };
        assert_eq!(mode(&node.layout.socket()), expected);
        day.end();
    });
}
