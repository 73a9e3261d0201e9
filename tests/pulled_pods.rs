//! Pods whose images the daemon pulls from a registry, with logins from Secrets.

#[path = "support/fake_registry.rs"]
mod fake_registry;
mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fake_registry::{Content, Layer, Reply, Server, tar};
use podprobe::images::ImageStore;
use podprobe::settings::RuntimeChoice;
use serde_json::json;
use support::daemon::{Day, FOREVER, find};

/// A layer with busybox as its shell.
fn shell() -> Layer {
    let program = fs::read("/bin/busybox").unwrap();
    let mut all = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(program.len() as u64);
    header.set_mode(0o755);
    all.append_data(&mut header, "bin/sh", program.as_slice())
        .unwrap();
    Layer::gzip(&all.into_inner().unwrap())
}

/// A registry with `app:1` for the user `u` with the password `p`.
fn registry() -> Server {
    let mut content = Content::default();
    content.image("1", &[shell()]);
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

        let login =
            json!({"auths": {server.address.to_string(): {"username": "u", "password": "p"}}});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": login.to_string()},
        });
        day.put("login", secret);
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

        let login =
            json!({"auths": {server.address.to_string(): {"username": "u", "password": "p"}}});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": login.to_string()},
        });
        day.put("login", secret);
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
const FULL: &str = r#"{"imageGCHighThresholdPercent": 1, "imageGCLowThresholdPercent": 0, "imageMinimumGCAge": "0s"}"#;

#[test]
fn a_full_disk_does_not_cost_a_pod_the_image_of_its_volume() {
    support::on(RuntimeChoice::Embedded, |node| {
        let usage = nix::sys::statvfs::statvfs(node.dir.path()).unwrap();
        if usage.blocks_available() > usage.blocks() / 100 * 98 {
            return support::skip::skip("needs a disk that is not empty");
        }
        let mut content = Content::default();
        content.image("1", &[shell()]);
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
        fs::write(config, r#"{"registries": {"pull": false}}"#).unwrap();
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
        content.image("1", &[shell()]);
        let layer = shell().digest();
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
