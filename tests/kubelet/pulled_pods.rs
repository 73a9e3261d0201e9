//! Pods whose images the daemon pulls from a registry, with logins from Secrets.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use podprobe::engine::images::{ImageStore, PullStage};
use podprobe::engine::shims::RuntimeChoice;
use serde_json::json;

use crate::support;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::fake_registry::{Content, Layer, Reply, Server, noise, tar, zstd_in_window};

/// A Secret with the login at [`registry`].
fn login(server: &Server) -> serde_json::Value {
    let login = json!({"auths": {server.address.to_string(): {"username": "u", "password": "p"}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": login.to_string()},
    })
}

/// A registry with `app:1` for the user `u` with the password `p`.
fn registry() -> Server {
    let mut content = Content::default();
    content.image("1", &[Layer::shell()]);
    Server::new(move |request| match request.header("authorization") {
        "Basic dTpw" => content.answer(request),
        _ => Reply::new(401, "").with("www-authenticate", "Basic realm=\"x\""),
    })
}

fn pod(name: &str, image: &str, secret: &str) -> String {
    let script = format!("echo up >/starts/{name}; {FOREVER}");
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "imagePullSecrets": [{"name": secret}],
            "containers": [{
                "name": "c", "image": image, "command": ["/bin/sh", "-c", script],
                "volumeMounts": [{"name": "starts", "mountPath": "/starts"}],
            }],
            "volumes": [{"name": "starts", "hostPath": {"path": "STARTS"}}],
        },
    })
    .to_string()
}

#[test]
fn a_pod_runs_an_image_from_a_registry_with_the_login_of_its_secret() {
    support::on(RuntimeChoice::Embedded, |node| {
        let server = registry();
        let image = format!("{}/team/app:1", server.address);
        let day = Day::begin(node);
        let starts = node.dir.path().join("starts").display().to_string();
        let put = |name: &str, secret: &str| {
            day.put(name, pod(name, &image, secret).replace("STARTS", &starts));
        };
        put("refused", "none");
        let message = day.wait("the refused pull", |s| {
            let status = find(s, "refused")?
                .status
                .container_statuses
                .first()?
                .clone();
            let waiting = status.state.waiting?;
            // The first becomes the second at the next sync.
            let refused = ["ErrImagePull", "ImagePullBackOff"].contains(&waiting.reason.as_str());
            refused.then_some(waiting.message)
        });
        assert!(message.contains(&image), "{message}");
        assert_eq!(
            day.wait_event("refused", "FailedToRetrieveImagePullSecret"),
            "Unable to retrieve some image pull secrets (none); attempting to pull the image may not succeed."
        );

        day.put("login", login(&server));
        put("welcome", "login");
        support::wait_until("the pulled pod to run", || day.starts("welcome") == ["up"]);
        let pulled = day.wait_event("welcome", "Pulled");
        let text = format!("Successfully pulled image \"{image}\" in ");
        assert!(pulled.starts_with(&text), "{pulled}");
        assert!(!day.log().contains("dTpw"), "the log has no login");
        support::wait_until("the image to be there for all", || {
            day.starts("refused") == ["up"]
        });
        day.end();
    });
}

/// One that mounts what [`pod`] runs, and runs what is on the node.
fn pod_with_volume(name: &str, image: &str, secret: &str) -> String {
    let mut pod: serde_json::Value = serde_json::from_str(&pod(name, image, secret)).unwrap();
    let container = &mut pod["spec"]["containers"][0];
    container["image"] = "busybox:test".into();
    container["imagePullPolicy"] = "Never".into();
    let mounts = container["volumeMounts"].as_array_mut().unwrap();
    mounts.push(json!({"name": "app", "mountPath": "/app", "subPath": "bin"}));
    container["command"][2] = format!("ls /app >/starts/{name}; {FOREVER}").into();
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.push(json!({"name": "app", "image": {"reference": image}}));
    pod.to_string()
}

#[test]
fn the_image_of_a_volume_is_pulled_with_the_login_of_the_pod_and_held_back_after_a_failure() {
    support::on(RuntimeChoice::Embedded, |node| {
        let server = registry();
        let image = format!("{}/team/app:1", server.address);
        let day = Day::begin(node);
        let starts = node.dir.path().join("starts").display().to_string();
        let put = |name: &str, secret: &str| {
            let pod = pod_with_volume(name, &image, secret);
            day.put(name, pod.replace("STARTS", &starts));
        };
        put("refused", "none");
        day.wait("the pull to be held back", |s| {
            let status = find(s, "refused")?.status.container("c")?.clone();
            let waiting = status.state.waiting?;
            let text = format!("Back-off pulling image \"{image}\": ErrImagePull: ");
            let held = waiting.reason == "ImagePullBackOff" && waiting.message.starts_with(&text);
            held.then_some(())
        });
        // Its container runs another image.
        day.wait("the time of the next try", |s| {
            let pull = find(s, "refused")?.pulls.first()?.clone();
            (pull.image == image && matches!(pull.stage, PullStage::BackOff { .. })).then_some(())
        });
        let events = day.wait("the events of the pull", |s| {
            let events = find(s, "refused")?.events.clone();
            let back_off = events.iter().any(|e| e.reason == "BackOff");
            back_off.then_some(events)
        });
        for (field, reason, text) in [
            ("", "Pulling", "Pulling image "),
            ("", "Failed", "Failed to pull image "),
            ("spec.containers{c}", "Failed", "Error: ErrImagePull"),
            ("", "BackOff", "Back-off pulling image "),
            ("spec.containers{c}", "Failed", "Error: ImagePullBackOff"),
        ] {
            let mut all = events.iter().filter(|e| e.field_path == field);
            let found = all.any(|e| e.reason == reason && e.message.starts_with(text));
            assert!(found, "{field} {reason} {text}: {events:#?}");
        }

        day.put("login", login(&server));
        put("welcome", "login");
        support::wait_until("the pod with the pulled volume", || {
            day.starts("welcome") == ["sh"]
        });
        support::wait_until("the image to be there for all", || {
            day.starts("refused") == ["sh"]
        });
        day.end();
    });
}

/// Any disk that tests run on is as full as this.
const FULL: &str = r#"{"imageGCHighThresholdPercent": 1, "imageGCLowThresholdPercent": 0, "imageMinimumGCAge": "0s",
    "healthzBindAddress": "", "healthzPort": 0}"#;

#[test]
fn a_full_disk_does_not_cost_a_pod_the_image_of_its_volume() {
    support::on(RuntimeChoice::Embedded, |node| {
        let usage = nix::sys::statvfs::statvfs(node.dir.path()).unwrap();
        if usage.blocks_available() > usage.blocks() / 100 * 98 {
            return support::skip::skip("needs a disk that is not empty");
        }
        let mut content = Content::default();
        content.image("1", &[Layer::shell()]);
        content.image("unused", &[Layer::gzip(&tar("f", b"x"))]);
        let server = Server::new(move |request| content.answer(request));
        let image = |tag: &str| format!("{}/team/app:{tag}", server.address);
        let config = node.layout.config_file();
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(config, FULL).unwrap();
        let mut day = Day::begin(node);
        let starts = node.dir.path().join("starts").display().to_string();
        let pod = pod_with_volume("app", &image("1"), "none");
        day.put("app", pod.replace("STARTS", &starts));
        support::wait_until("the pod with the pulled volume", || {
            day.starts("app") == ["sh"]
        });
        let said = day.says(&["image", "pull", &image("unused")]);
        assert!(said.contains("pulled "), "{said}");
        // Each daemon looks at the disk when it starts.
        day.crash();
        let store = ImageStore::open(node.layout.images()).unwrap();
        support::wait_until("the unused image to go", || {
            store.resolve(&image("unused")).is_err()
        });
        store.resolve(&image("1")).unwrap();
        let program = format!("/proc/{}/root/app/sh", day.process("app").pid);
        assert!(fs::metadata(program).unwrap().len() > 0);
        day.end();
    });
}

#[test]
fn where_nothing_is_pulled_the_registry_is_not_asked() {
    support::on(RuntimeChoice::Embedded, |node| {
        let server = registry();
        let image = format!("{}/team/app:1", server.address);
        let config = node.layout.config_file();
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(
            config,
            r#"{"registries": {"pull": false}, "healthzBindAddress": "", "healthzPort": 0}"#,
        )
        .unwrap();
        let day = Day::begin(node);
        day.put("app", pod("app", &image, "none"));
        day.wait("the pod to wait for its image", |s| {
            let status = find(s, "app")?.status.container_statuses.first()?.clone();
            (status.state.waiting?.reason == "ErrImageNeverPull").then_some(())
        });
        assert!(server.requests().is_empty());
        day.end();
    });
}

/// A number that a pull's line in `describe` begins with.
fn percent(bytes: usize, of: usize) -> String {
    format!("{}%, ", bytes * 100 / of)
}

#[test]
fn describe_shows_how_far_a_pull_is_and_the_status_says_what_a_kubelets_says() {
    support::on(RuntimeChoice::Embedded, |node| {
        let layers = [Layer::shell(), Layer::gzip(&tar("noise", &noise(300_000)))];
        let mut content = Content::default();
        content.image("1", &layers);
        let (digest, half) = (layers[1].digest(), layers[1].stored.len() / 2);
        let (goes_on, waits) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
        let may_go_on = goes_on.clone();
        let server = Server::new(move |request| {
            let reply = content.answer(request);
            if !request.path.ends_with(&digest) {
                return reply;
            }
            if !waits.swap(true, Ordering::SeqCst) {
                return reply.cut(half);
            }
            support::wait_until("the layer to go on", || may_go_on.load(Ordering::SeqCst));
            reply
        });
        let image = format!("{}/team/app:1", server.address);
        let day = Day::begin(node);
        let starts = node.dir.path().join("starts").display().to_string();
        day.put("app", pod("app", &image, "none").replace("STARTS", &starts));
        let bytes = layers[0].stored.len() + half;
        day.wait("the half that comes", |s| {
            let pull = find(s, "app")?.pulls.first()?.clone();
            let PullStage::Pulling { state, cut_off } = pull.stage else {
                return None;
            };
            let done = (state.bytes, state.layers) == (bytes as u64, 1);
            (done && cut_off.is_some()).then_some(())
        });
        let snapshot = day.snapshot().unwrap();
        let status = &find(&snapshot, "app").unwrap().status.container_statuses[0];
        let waiting = status.state.waiting.as_ref().unwrap();
        assert_eq!(
            (waiting.reason.as_str(), waiting.message.as_str()),
            ("ContainerCreating", "")
        );
        let described = || day.says(&["describe", "pod", "app"]);
        support::wait_until("the silence to be told", || {
            described().contains(", nothing for ")
        });
        let text = described();
        let all = layers[0].stored.len() + layers[1].stored.len();
        let line = text.lines().find(|l| l.starts_with("    Pull:")).unwrap();
        assert!(line.contains(&percent(bytes, all)), "{line}");
        assert!(line.contains(", 1 of 2 layers, "), "{line}");
        assert!(line.ends_with(", cut off once"), "{line}");
        assert!(text.contains("      Cut Off:"), "{text}");
        assert!(
            !day.says(&["get", "pods", "-o", "json"])
                .contains("\"pulls\"")
        );
        // Nobody watches, so nobody has been told anything; then somebody does.
        assert_eq!(day.snapshot().unwrap().version, snapshot.version);
        day.wait("the feed to tell", |s| {
            (s.version > snapshot.version + 2).then_some(())
        });
        day.put(
            "next",
            pod("next", &image, "none").replace("STARTS", &starts),
        );
        support::wait_until("the next pull to wait", || {
            let described = day.says(&["describe", "pod", "next"]);
            described.contains("waiting for other pulls, ")
        });
        goes_on.store(true, Ordering::SeqCst);
        support::wait_until("the pulled pods to run", || {
            ["app", "next"]
                .iter()
                .all(|name| day.starts(name) == ["up"])
        });
        day.wait("the pulls to be over", |s| {
            s.pods.iter().all(|p| p.pulls.is_empty()).then_some(())
        });
        assert!(!described().contains("Pull:"));
        day.end();
    });
}

#[test]
fn describe_says_when_a_dead_registry_is_tried_again() {
    support::on(RuntimeChoice::Embedded, |node| {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let image = format!("{}/app:1", port.unwrap());
        let day = Day::begin(node);
        day.put("app", pod("app", &image, "none"));
        day.wait("the pull to have failed", |s| {
            let pull = find(s, "app")?.pulls.first()?.clone();
            let is_held = matches!(pull.stage, PullStage::BackOff { .. });
            (is_held && pull.image == image).then_some(())
        });
        let text = day.says(&["describe", "pod", "app"]);
        let line = text.lines().find(|l| l.starts_with("    Pull:"));
        assert!(line.is_some_and(|l| l.contains("next try in ")), "{text}");
        day.end();
    });
}

/// What a pull has unpacked so far.
fn unfinished(node: &support::Node) -> usize {
    let pulls = fs::read_dir(node.layout.images().join("pulls"));
    let pulls = pulls.into_iter().flatten().flatten();
    pulls.filter(|e| e.path().is_dir()).count()
}

#[test]
fn a_daemon_that_is_killed_in_mid_blob_pulls_anew_and_leaves_nothing() {
    support::on(RuntimeChoice::Embedded, |node| {
        let mut content = Content::default();
        content.image("1", &[Layer::shell()]);
        let layer = Layer::shell().digest();
        let whole = Arc::new(AtomicBool::new(false));
        let gives_all = whole.clone();
        let server = Server::new(move |request| {
            let mut reply = content.answer(request);
            if request.path.ends_with(&layer) && !gives_all.load(Ordering::SeqCst) {
                // Half of it, and then nothing for as long as the client waits.
                let half = reply.body.len() / 2;
                reply = reply.cut(half);
                reply.hangs = true;
            }
            reply
        });
        let image = format!("{}/team/app:1", server.address);
        let mut day = Day::begin(node);
        let starts = node.dir.path().join("starts").display().to_string();
        day.put("app", pod("app", &image, "none").replace("STARTS", &starts));
        support::wait_until("a layer to be under way", || {
            server.count("/blobs/") >= 2 && unfinished(node) == 1
        });
        day.kill9();
        assert_eq!(unfinished(node), 1, "nobody was left to remove it");
        whole.store(true, Ordering::SeqCst);
        day.start();
        support::wait_until("the pulled pod to run", || day.starts("app") == ["up"]);
        support::wait_until("what the first daemon left to be gone", || {
            unfinished(node) == 0
        });
        assert_eq!(
            fs::read_dir(node.layout.images().join("tmp"))
                .unwrap()
                .count(),
            0
        );
        day.end();
    });
}

/// A figure of /proc/PID/status in kB.
fn kilobytes(pid: i32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The largest window of zstd that is taken is that of one layer; the others have no more than their buffers.
#[test]
fn the_daemon_stays_small_while_it_pulls_a_large_image() {
    support::on(RuntimeChoice::Embedded, |node| {
        let file = |name: &str, megabytes: usize| tar(name, &noise(megabytes << 20));
        let of_zstd = file("c", 16);
        let layers = [
            Layer::shell(),
            Layer::plain(file("a", 64)),
            Layer::gzip(&file("b", 12)),
            Layer::zstd(&of_zstd, zstd_in_window(&of_zstd, 23)),
        ];
        let mut content = Content::default();
        content.image("1", &layers);
        let server = Server::new(move |request| content.answer(request));
        let image = format!("{}/team/app:1", server.address);
        let day = Day::begin(node);
        let starts = node.dir.path().join("starts").display().to_string();
        // The peak is that from now on.
        fs::write(format!("/proc/{}/clear_refs", day.pid()), "5").unwrap();
        let before = kilobytes(day.pid(), "VmRSS:");
        day.put("app", pod("app", &image, "none").replace("STARTS", &starts));
        support::wait_until("the pulled pod to run", || day.starts("app") == ["up"]);
        let grown = kilobytes(day.pid(), "VmHWM:") - before;
        println!("{before} kB, and {grown} kB more");
        assert!(grown < 16 << 10, "the daemon has grown by {grown} kB");
        day.end();
    });
}
