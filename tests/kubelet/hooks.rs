//! Hooks and stop signals with the real binary and real containers: what a hook sees, what waits
//! for it, and what is left of it when it hangs or its daemon is killed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use podprobe::engine::images::{ImageConfig, ImageStore};
use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::{CEILING, Node, on_both, wait_until};

on_both![
    what_follows_a_container_waits_for_its_post_start_hook,
    a_post_start_hook_that_fails_restarts_its_container,
    a_pre_stop_hook_ends_before_the_stop_signal_comes,
    a_pre_stop_hook_that_hangs_ends_with_the_grace_period_and_leaves_no_process,
    a_pod_is_removed_while_its_post_start_hook_hangs,
    a_daemon_killed_in_a_pre_stop_hook_does_not_hang_the_next_one,
    the_spec_s_stop_signal_replaces_that_of_the_image,
];

/// What does not depend on the OCI runtime.
macro_rules! on_one {
    ($($name:ident),* $(,)?) => {
        mod one { $(#[test] fn $name() { crate::support::on(podprobe::engine::shims::RuntimeChoice::Embedded, super::$name) })* }
    };
}

on_one![
    hooks_by_http,
    a_liveness_kill_runs_the_pre_stop_hook,
    a_stop_by_a_probe_goes_on_under_the_next_daemon,
    a_grace_period_ends_also_when_daemons_are_killed_again_and_again,
];

/// A file that test and containers share.
fn shared(node: &Node, name: &str) -> PathBuf {
    node.dir.path().join("starts").join(name)
}

fn read(node: &Node, name: &str) -> String {
    fs::read_to_string(shared(node, name)).unwrap_or_default()
}

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["/bin/sh", "-c", script]}})
}

/// A pod of one container with these hooks, and with a long grace period.
fn hooked(day: &Day, name: &str, script: &str, lifecycle: Value) -> Value {
    let mut pod = day.pod(name, script, json!({"lifecycle": lifecycle}));
    pod["spec"]["terminationGracePeriodSeconds"] = 1000.into();
    pod
}

/// Ends at TERM, and says so in the file `order`.
const SAYS_TERM: &str =
    "trap 'echo term >>/starts/order; exit 0' TERM\n: >/starts/up\nsleep 100000 & wait";

/// Processes with this argument, anywhere on the node.
fn with_argument(argument: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|e| fs::read(e.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            line.split(|b| *b == 0)
                .any(|word| word == argument.as_bytes())
        })
        .count()
}

#[track_caller]
fn wait_for_file(day: &Day, name: &str) {
    wait_until(&format!("{name}: {}", day.log()), || {
        shared(day.node, name).exists()
    });
}

fn what_follows_a_container_waits_for_its_post_start_hook(node: &Node) {
    let day = Day::begin(node);
    let hook = exec(
        ": >/starts/hook; while [ ! -e /starts/go ]; do sleep 0.05; done; echo hook >>/starts/order",
    );
    let mut pod = hooked(&day, "warm", FOREVER, json!({"postStart": hook}));
    let mut second = pod["spec"]["containers"][0].clone();
    second["name"] = "second".into();
    second["command"][2] = format!("echo second >>/starts/order\n{FOREVER}").into();
    second.as_object_mut().unwrap().remove("lifecycle");
    pod["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(second);
    day.put("warm", pod);
    day.put("other", day.pod("other", FOREVER, json!({})));
    wait_for_file(&day, "hook");
    // The container runs, and nothing but its pod waits for the hook.
    day.wait_ready("other");
    let (started, ready) = day.wait("the pod", |s| {
        let pod = find(s, "warm")?;
        let started = pod.events.iter().filter(|e| e.reason == "Started");
        Some((started.count(), pod.status.is_ready()))
    });
    assert_eq!((started, ready), (1, false));
    assert_eq!(read(node, "order"), "");
    fs::write(shared(node, "go"), "").unwrap();
    day.wait_ready("warm");
    wait_until("the second container", || {
        read(node, "order") == "hook\nsecond\n"
    });
    day.end();
}

fn a_post_start_hook_that_fails_restarts_its_container(node: &Node) {
    let day = Day::begin(node);
    // The second time it succeeds.
    let hook = exec("[ -e /starts/once ] || { : >/starts/once; echo \"$(echo no)\" >&2; exit 3; }");
    let mut pod = hooked(&day, "warm", FOREVER, json!({"postStart": hook}));
    // The kill may come before the shell can be ended by TERM.
    pod["spec"]["terminationGracePeriodSeconds"] = 2.into();
    day.put("warm", pod);
    assert_eq!(
        day.wait_event("warm", "FailedPostStartHook"),
        "PostStartHook failed: the command exited with 3"
    );
    assert_eq!(day.wait_event("warm", "Killing"), "FailedPostStartHook");
    // A container runs before its program has done anything.
    wait_until("the second start", || day.starts("warm").len() == 2);
    day.wait_ready("warm");
    day.log_with(&[
        "postStart: Exec lifecycle hook ([/bin/sh -c [ -e /starts/once ]",
        "exited with 3, message: \"no\\n\"",
    ]);
    day.end();
}

fn a_pre_stop_hook_ends_before_the_stop_signal_comes(node: &Node) {
    let day = Day::begin(node);
    for (hook, expected) in [
        (exec("sleep 0.3; echo hook >>/starts/order"), "hook\nterm\n"),
        (exec("echo hook >>/starts/order; exit 1"), "hook\nterm\n"),
        (json!({"sleep": {"seconds": 1}}), "term\n"),
        (json!({"tcpSocket": {"port": 1}}), "term\n"),
    ] {
        for file in ["order", "up"] {
            let _ = fs::remove_file(shared(node, file));
        }
        let sleeps = hook["sleep"].is_object();
        day.put(
            "drain",
            hooked(&day, "drain", SAYS_TERM, json!({"preStop": hook})),
        );
        day.wait_ready("drain");
        wait_for_file(&day, "up");
        let begun = Instant::now();
        day.delete("drain");
        wait_until("the stop signal", || {
            read(node, "order").ends_with("term\n")
        });
        assert!(!sleeps || begun.elapsed() >= Duration::from_secs(1));
        assert_eq!(read(node, "order"), expected);
        day.wait_gone("drain");
    }
    day.end();
}

fn a_pre_stop_hook_that_hangs_ends_with_the_grace_period_and_leaves_no_process(node: &Node) {
    let day = Day::begin(node);
    // What runs in the container when the stop signal comes.
    let script = "trap 'cat /proc/[0-9]*/cmdline >/starts/at-term; exit 0' TERM\n: >/starts/up\nsleep 100000 & wait";
    let long = support::own_seconds();
    let hook = exec(&format!(
        "trap '' TERM; setsid sleep {long} & : >/starts/hook; sleep {long}"
    ));
    let mut pod = hooked(&day, "stuck", script, json!({"preStop": hook}));
    pod["spec"]["terminationGracePeriodSeconds"] = 3.into();
    day.put("stuck", pod);
    day.wait_ready("stuck");
    wait_for_file(&day, "up");
    let begun = Instant::now();
    day.delete("stuck");
    wait_for_file(&day, "hook");
    day.wait_gone("stuck");
    let events = day.says(&["get", "events"]);
    assert!(events.contains("FailedPreStopHook"), "{events}");
    assert!(begun.elapsed() >= Duration::from_secs(3));
    let at_term = read(node, "at-term");
    assert!(
        at_term.contains("100000") && !at_term.contains(&long),
        "{at_term:?}"
    );
    assert_eq!(with_argument(&long), 0);
    day.log_with(&["not completed in grace period of 3s"]);
    day.end();
}

fn a_pod_is_removed_while_its_post_start_hook_hangs(node: &Node) {
    let day = Day::begin(node);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let long = support::own_seconds();
    let hooks = [
        ("command", exec(&format!("sleep {long} & wait"))),
        (
            "request",
            json!({"httpGet": {"port": port, "host": "127.0.0.1"}}),
        ),
        ("sleep", json!({"sleep": {"seconds": 1000}})),
    ];
    for (name, hook) in &hooks {
        let script = format!("trap 'exit 0' TERM\n: >/starts/up-{name}\nsleep 100000 & wait");
        let mut pod = hooked(&day, name, &script, json!({"postStart": hook}));
        pod["spec"]["hostNetwork"] = true.into();
        day.put(name, pod);
        wait_for_file(&day, &format!("up-{name}"));
    }
    let (_peer, _) = silent.accept().unwrap();
    wait_until("the command to run", || with_argument(&long) == 1);
    let begun = Instant::now();
    for (name, _) in &hooks {
        day.delete(name);
    }
    for (name, _) in &hooks {
        day.wait_gone(name);
    }
    assert!(begun.elapsed() < CEILING);
    assert_eq!(with_argument(&long), 0);
    assert!(
        !day.log().contains("lifecycle hook"),
        "it is no failure: {}",
        day.log()
    );
    day.end();
}

fn a_daemon_killed_in_a_pre_stop_hook_does_not_hang_the_next_one(node: &Node) {
    let mut day = Day::begin(node);
    let long = support::own_seconds();
    let hook = exec(&format!(
        ": >/starts/hook; echo hook >>/starts/order; sleep {long}"
    ));
    day.put(
        "drain",
        hooked(&day, "drain", SAYS_TERM, json!({"preStop": hook})),
    );
    day.wait_ready("drain");
    wait_for_file(&day, "up");
    day.delete("drain");
    wait_for_file(&day, "hook");
    wait_until("the hook to hang", || with_argument(&long) == 1);
    day.kill9();
    wait_until("the hook to end with its daemon", || {
        with_argument(&long) == 0
    });
    assert_eq!(day.processes().len(), 1, "the container runs on");
    day.start();
    wait_until("the container to be stopped", || day.processes().is_empty());
    assert_eq!(read(node, "order"), "hook\nterm\n", "{}", day.log());
    day.end();
}

fn the_spec_s_stop_signal_replaces_that_of_the_image(node: &Node) {
    let store = ImageStore::open(node.layout.images()).unwrap();
    let config = ImageConfig {
        env: vec!["PATH=/bin".into()],
        stop_signal: "SIGUSR1".into(),
        ..Default::default()
    };
    store
        .import(&node.dir.path().join("image"), "signal:test", config)
        .unwrap();
    let day = Day::begin(node);
    let says = |signal: &str| format!("trap 'echo {signal} >>/starts/order; exit 0' {signal}");
    let script = ["TERM", "USR1", "USR2"].map(says).join("\n");
    let script = format!("{script}\n: >/starts/up\nwhile :; do sleep 0.05; done");
    for (lifecycle, expected) in [
        (json!({}), "USR1\n"),
        (json!({"stopSignal": "SIGUSR2"}), "USR2\n"),
    ] {
        for file in ["order", "up"] {
            let _ = fs::remove_file(shared(node, file));
        }
        let mut pod = hooked(&day, "signal", &script, lifecycle);
        pod["spec"]["os"] = json!({"name": "linux"});
        pod["spec"]["containers"][0]["image"] = "signal:test".into();
        day.put("signal", pod);
        day.wait_ready("signal");
        wait_for_file(&day, "up");
        day.delete("signal");
        day.wait_gone("signal");
        assert_eq!(read(node, "order"), expected);
    }
    day.end();
}

/// Answers one connection with this text; returns what it sent first.
fn answer(listener: &TcpListener, text: &str) -> String {
    let (mut peer, _) = listener.accept().unwrap();
    let mut head = vec![0; 4096];
    let n = peer.read(&mut head).unwrap();
    peer.write_all(text.as_bytes()).unwrap();
    String::from_utf8_lossy(&head[..n]).into_owned()
}

fn hooks_by_http(node: &Node) {
    let day = Day::begin(node);
    // From the node's network, https that is answered by http; any status is a success.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let get = |path: &str, scheme: &str| {
        json!({"httpGet": {"port": "admin", "host": "127.0.0.1", "path": path, "scheme": scheme,
            "httpHeaders": [{"name": "authorization", "value": "Basic eA=="}]}})
    };
    let hooks = json!({"postStart": get("/warm", "HTTPS"), "preStop": get("/bye", "HTTP")});
    let mut pod = hooked(&day, "node", SAYS_TERM, hooks);
    pod["spec"]["hostNetwork"] = true.into();
    pod["spec"]["containers"][0]["ports"] = json!([{"name": "admin", "containerPort": port}]);
    day.put("node", pod);
    answer(&listener, "HTTP/1.0 400 Bad Request\r\n\r\n");
    let again = answer(&listener, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
    assert!(again.starts_with("GET /warm HTTP/1.1\r\n"), "{again}");
    assert!(
        again.contains("User-Agent: kube-lifecycle/1.36\r\n"),
        "{again}"
    );
    assert!(!again.contains("Basic"), "{again}");
    day.wait_ready("node");
    assert_eq!(
        day.wait_event("node", "LifecycleHTTPFallback"),
        format!(
            "request to HTTPS lifecycle hook 127.0.0.1:{port} got HTTP response, retry with HTTP succeeded"
        )
    );
    wait_for_file(&day, "up");
    day.delete("node");
    let bye = answer(
        &listener,
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(
        bye.starts_with("GET /bye HTTP/1.1\r\n") && bye.contains("Basic eA=="),
        "{bye}"
    );
    day.wait_gone("node");
    assert_eq!(read(node, "order"), "term\n");

    // In the pod's own network, at the pod's address.
    // It answers after it has written the request: the answer ends the hook, and so the container.
    let answers = "head -n 1 >/starts/got; printf 'HTTP/1.0 200 OK\\r\\n\\r\\n'";
    let script = format!("busybox nc -l -p 8080 -e /bin/sh -c \"{answers}\" &\n{SAYS_TERM}");
    let hook = json!({"preStop": {"httpGet": {"port": 8080, "path": "/quit"}}});
    let _ = fs::remove_file(shared(node, "up"));
    day.put("own", hooked(&day, "own", &script, hook));
    day.wait_ready("own");
    wait_for_file(&day, "up");
    let listens = || {
        let tcp = fs::read_to_string(format!("/proc/{}/net/tcp", day.process("own").pid));
        tcp.unwrap_or_default().contains(":1F90 ")
            || fs::read_to_string(format!("/proc/{}/net/tcp6", day.process("own").pid))
                .is_ok_and(|tcp| tcp.contains(":1F90 "))
    };
    wait_until("the container's server", listens);
    day.delete("own");
    day.wait_gone("own");
    let got = read(node, "got");
    assert!(
        got.starts_with("GET /quit HTTP/1.1\r\n"),
        "{got:?}\n{}",
        day.log()
    );
    day.end();
}

/// The container is killed once the file `healthy` is gone.
fn live_while_healthy(pod: &mut Value) {
    let command = ["/bin/cat", "/starts/healthy"];
    pod["spec"]["containers"][0]["livenessProbe"] =
        json!({"exec": {"command": command}, "periodSeconds": 1, "failureThreshold": 1});
}

fn a_liveness_kill_runs_the_pre_stop_hook(node: &Node) {
    let day = Day::begin(node);
    let healthy = shared(node, "healthy");
    fs::write(&healthy, "").unwrap();
    let mut pod = hooked(
        &day,
        "app",
        SAYS_TERM,
        json!({"preStop": exec("echo hook >>/starts/order; : >/starts/healthy")}),
    );
    live_while_healthy(&mut pod);
    day.put("app", pod);
    day.wait_ready("app");
    wait_for_file(&day, "up");
    fs::remove_file(&healthy).unwrap();
    wait_until("the restart", || day.starts("app").len() == 2);
    assert_eq!(read(node, "order"), "hook\nterm\n", "{}", day.log());
    day.end();
}

fn a_stop_by_a_probe_goes_on_under_the_next_daemon(node: &Node) {
    let mut day = Day::begin(node);
    let healthy = shared(node, "healthy");
    fs::write(&healthy, "").unwrap();
    let ends_at_the_second_term = "trap 'echo term >>/starts/order; [ $(grep -c term /starts/order) = 1 ] || exit 0' TERM\n\
        : >/starts/up\nwhile :; do sleep 0.05; done";
    let hook = exec("echo hook >>/starts/order");
    let hooks = json!({"preStop": hook});
    let mut pod = hooked(&day, "app", ends_at_the_second_term, hooks);
    live_while_healthy(&mut pod);
    day.put("app", pod);
    day.wait_ready("app");
    wait_for_file(&day, "up");
    fs::remove_file(&healthy).unwrap();
    wait_until("the stop signal", || read(node, "order") == "hook\nterm\n");
    day.kill9();
    // The next daemon's probe finds nothing wrong.
    fs::write(&healthy, "").unwrap();
    day.start();
    wait_until("the restart", || day.starts("app").len() == 2);
    assert_eq!(read(node, "order"), "hook\nterm\nterm\n", "{}", day.log());
    day.end();
}

fn a_grace_period_ends_also_when_daemons_are_killed_again_and_again(node: &Node) {
    let mut day = Day::begin(node);
    let heeds_nothing =
        "trap 'echo term >>/starts/order' TERM\n: >/starts/up\nwhile :; do sleep 0.05; done";
    let mut pod = day.pod("app", heeds_nothing, json!({}));
    pod["spec"]["terminationGracePeriodSeconds"] = 4.into();
    day.put("app", pod);
    day.wait_ready("app");
    wait_for_file(&day, "up");
    day.delete("app");
    let mut seen = String::new();
    wait_until("the grace period to end", || {
        let order = read(node, "order");
        if order != seen {
            seen = order;
            day.kill9();
            day.start();
        }
        day.processes().is_empty()
    });
    assert!(seen.lines().count() > 1, "{seen}{}", day.log());
    day.end();
}
