//! Volumes that are images, in real containers of the real daemon. What a container sees is read through the root directory
//! of its first process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::errno::Errno;
use podprobe::engine::images::{ImageStore, LoadedImage};
use podprobe::engine::shims;
use podprobe::engine::shims::state::{self, CONTAINER, ContainerRecord};
use podprobe::face::views::PodView;
use serde_json::{Value, json};

use crate::support;
use crate::support::Node;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::on_both;

on_both![
    an_image_is_seen_read_only_and_nothing_in_it_runs,
    containers_and_pods_share_an_image,
    an_image_of_a_volume_stays_while_a_container_has_it,
    a_restart_resolves_the_image_again,
    a_container_waits_for_the_image_of_its_volume,
    a_path_that_the_image_does_not_have_is_explained,
    a_daemon_that_is_killed_while_containers_start_leaves_no_mount,
];

enum Entry {
    File(&'static str, u32, Vec<u8>),
    Link(&'static str, &'static str),
}

fn file(name: &'static str, text: &str) -> Entry {
    Entry::File(name, 0o644, text.as_bytes().to_vec())
}

fn tar_of(entries: &[Entry]) -> Vec<u8> {
    let mut all = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_uid(0);
        header.set_gid(0);
        match entry {
            Entry::File(name, mode, content) => {
                header.set_size(content.len() as u64);
                header.set_mode(*mode);
                all.append_data(&mut header, name, content.as_slice())
                    .unwrap();
            }
            Entry::Link(name, to) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                header.set_mode(0o777);
                all.append_link(&mut header, name, to).unwrap();
            }
        }
    }
    all.into_inner().unwrap()
}

/// Loads an image of these layers, the lowest first.
fn load(node: &Node, name: &str, layers: &[Vec<Entry>]) -> LoadedImage {
    let layers: Vec<_> = layers.iter().map(|entries| tar_of(entries)).collect();
    let digest = |bytes: &[u8]| -> String {
        let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
        let hex = hash.as_ref().iter().map(|b| format!("{b:02x}"));
        format!("sha256:{}", hex.collect::<String>())
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        _ => "arm64",
    };
    let diff_ids: Vec<_> = layers.iter().map(|l| digest(l)).collect();
    let config = json!({"os": "linux", "architecture": architecture,
        "rootfs": {"type": "layers", "diff_ids": diff_ids}});
    let names = ["0.tar", "1.tar", "2.tar"];
    let manifest =
        json!([{"Config": "config.json", "RepoTags": [name], "Layers": names[..layers.len()]}]);
    let mut parts = vec![
        file("config.json", &config.to_string()),
        file("manifest.json", &manifest.to_string()),
    ];
    let stored = names.into_iter().zip(layers);
    parts.extend(stored.map(|(name, layer)| Entry::File(name, 0o644, layer)));
    let path = node.dir.path().join("data.tar");
    fs::write(&path, tar_of(&parts)).unwrap();
    store(node).load(&path).unwrap().remove(0)
}

fn store(node: &Node) -> ImageStore {
    ImageStore::open(node.layout.images()).unwrap()
}

/// An image of one file.
fn load_text(node: &Node, name: &str, text: &str) -> LoadedImage {
    load(node, name, &[vec![file("f", text)]])
}

fn volume(name: &str, reference: &str) -> Value {
    let image = json!({"reference": reference, "pullPolicy": "IfNotPresent"});
    json!({"name": name, "image": image})
}

/// A pod of one container that runs for ever, with these volumes and mounts besides its own.
fn with(day: &Day, name: &str, script: &str, volumes: &[Value], mounts: &[Value]) -> Value {
    let mut pod = day.pod(name, &format!("{script}\n{FOREVER}"), json!({}));
    extend(&mut pod["spec"]["volumes"], volumes);
    extend(&mut pod["spec"]["containers"][0]["volumeMounts"], mounts);
    pod
}

fn extend(list: &mut Value, more: &[Value]) {
    list.as_array_mut().unwrap().extend_from_slice(more);
}

/// One that has the image `data:1` at /data.
fn with_data(day: &Day, name: &str) -> Value {
    let mount = json!({"name": "data", "mountPath": "/data"});
    with(day, name, "", &[volume("data", "data:1")], &[mount])
}

/// A path as the container of the pod sees it.
fn inside(day: &Day, pod: &str, path: &str) -> PathBuf {
    format!("/proc/{}/root/{path}", day.process(pod).pid).into()
}

fn read(day: &Day, pod: &str, path: &str) -> String {
    let path = inside(day, pod, path);
    fs::read_to_string(&path).unwrap_or_else(|e| format!("{}: {e}", path.display()))
}

/// Reason and message of a container that waits.
fn waiting(pod: &PodView, container: &str) -> Option<(String, String)> {
    let status = pod.status.container(container)?;
    let waiting = status.state.waiting.clone()?;
    Some((waiting.reason, waiting.message))
}

fn an_image_is_seen_read_only_and_nothing_in_it_runs(node: &Node) {
    let program = fs::read("/usr/bin/busybox").unwrap();
    let below = vec![
        file("f", "lower"),
        file("gone", "x"),
        file("d/inner", "inner"),
        Entry::Link("to-d", "/d"),
        Entry::File("busybox", 0o755, program),
    ];
    let above = vec![file("f", "upper"), file(".wh.gone", "")];
    load(node, "data:1", &[below, above]);
    load_text(node, "one:1", "one");
    let day = Day::begin(node);
    let mounts = [
        json!({"name": "data", "mountPath": "/data"}),
        json!({"name": "data", "mountPath": "/d", "subPath": "d", "readOnly": true, "recursiveReadOnly": "Enabled"}),
        json!({"name": "data", "mountPath": "/to-d", "subPathExpr": "to-$(D)", "mountPropagation": "HostToContainer"}),
        json!({"name": "one", "mountPath": "/one"}),
        json!({"name": "cache", "mountPath": "/data/d"}),
    ];
    let cache = json!({"name": "cache", "emptyDir": {}});
    let volumes = [volume("data", "data:1"), volume("one", "one:1"), cache];
    let script = "/data/busybox true; echo $? >/starts/exit";
    let mut pod = with(&day, "web", script, &volumes, &mounts);
    pod["spec"]["containers"][0]["env"] = json!([{"name": "D", "value": "d"}]);
    pod["spec"]["securityContext"] = json!({"fsGroup": 4711});
    day.put("web", pod);
    day.wait_ready("web");

    assert_eq!(read(&day, "web", "data/f"), "upper");
    assert!(!inside(&day, "web", "data/gone").exists());
    assert_eq!(read(&day, "web", "d/inner"), "inner");
    assert_eq!(read(&day, "web", "to-d/inner"), "inner");
    assert_eq!(read(&day, "web", "one/f"), "one");
    let owner = inside(&day, "web", "data/f").metadata().unwrap();
    assert_eq!(
        (owner.gid(), owner.mode() & 0o7777),
        (0, 0o644),
        "fsGroup has no effect"
    );
    for at in ["data", "d", "to-d", "one"] {
        let write = fs::write(inside(&day, "web", &format!("{at}/new")), "").unwrap_err();
        assert_eq!(write.raw_os_error(), Some(Errno::EROFS as i32), "{at}");
        let mounts = fs::read_to_string(inside(&day, "web", "proc/1/mounts")).unwrap();
        let wanted = format!(" /{at} overlay ro,nosuid,nodev,noexec,");
        assert!(mounts.contains(&wanted), "{wanted}: {mounts}");
    }
    fs::write(inside(&day, "web", "data/d/new"), "").unwrap();
    support::wait_until("the program to be refused", || {
        day.starts("exit") == ["126"]
    });
    let described = day.says(&["describe", "pod", "web"]);
    assert!(
        described.contains("Image (a container image or OCI artifact)"),
        "{described}"
    );
    day.end();
}

fn containers_and_pods_share_an_image(node: &Node) {
    load_text(node, "data:1", "data");
    let day = Day::begin(node);
    let mut pod = with_data(&day, "two");
    let mut other = pod["spec"]["containers"][0].clone();
    other["name"] = "d".into();
    extend(&mut pod["spec"]["containers"], &[other]);
    day.put("two", pod);
    for name in ["a", "b"] {
        day.put(name, with_data(&day, name));
    }
    for name in ["two", "a", "b"] {
        day.wait_ready(name);
        assert_eq!(read(&day, name, "data/f"), "data");
    }
    day.delete("a");
    day.wait_gone("a");
    assert_eq!(read(&day, "b", "data/f"), "data");
    assert_eq!(read(&day, "two", "data/f"), "data");
    day.end();
}

fn an_image_of_a_volume_stays_while_a_container_has_it(node: &Node) {
    let image = load_text(node, "data:1", "data");
    let mut day = Day::begin(node);
    day.put("web", with_data(&day, "web"));
    day.wait_ready("web");
    let is_there = || {
        let all = store(node).list().unwrap();
        all.iter().any(|row| row.id == image.id)
    };
    let in_use = || shims::images_in_use(&node.layout);
    for step in [
        "removed by hand",
        "pruned",
        "pruned after a restart of the daemon",
    ] {
        match step {
            "removed by hand" => drop(day.says(&["image", "rm", "data:1"])),
            "pruned" => drop(store(node).prune(&in_use).unwrap()),
            _ => {
                day.crash();
                store(node).prune(&in_use).unwrap();
            }
        }
        assert!(is_there(), "{step}");
        assert_eq!(read(&day, "web", "data/f"), "data", "{step}");
    }
    day.delete("web");
    day.wait_gone("web");
    support::wait_until("the container's record to be gone", || {
        !in_use().image(&image.id)
    });
    store(node).prune(&in_use).unwrap();
    assert!(!is_there(), "nothing uses it any more");
    day.end();
}

fn a_restart_resolves_the_image_again(node: &Node) {
    load_text(node, "data:1", "old");
    let day = Day::begin(node);
    day.put("web", with_data(&day, "web"));
    day.wait_ready("web");
    load_text(node, "data:1", "new");
    assert_eq!(
        read(&day, "web", "data/f"),
        "old",
        "a container keeps what it has"
    );
    support::kill9(day.process("web"));
    day.wait("its restart", |s| {
        let status = find(s, "web")?.status.container("c")?.clone();
        (status.restart_count == 1 && status.ready).then_some(())
    });
    assert_eq!(read(&day, "web", "data/f"), "new");
    day.end();
}

fn a_container_waits_for_the_image_of_its_volume(node: &Node) {
    let day = Day::begin(node);
    let mut pod = with_data(&day, "web");
    pod["spec"]["volumes"][1]["image"]["pullPolicy"] = "Never".into();
    let mut other = pod["spec"]["containers"][0].clone();
    (other["name"], other["volumeMounts"][1]) =
        ("d".into(), json!({"name": "starts", "mountPath": "/more"}));
    extend(&mut pod["spec"]["containers"], &[other]);
    day.put("web", pod);
    let text = "Container image \"data:1\" is not present with pull policy of Never: ";
    day.wait("the container to wait", |s| {
        let pod = find(s, "web")?;
        let (reason, message) = waiting(pod, "c")?;
        let is = |field: &str, reason: &str, text: &str| {
            let mut events = pod.events.iter();
            events
                .any(|e| e.field_path == field && e.reason == reason && e.message.starts_with(text))
        };
        let seen = reason == "ErrImageNeverPull"
            && message.starts_with(text)
            && is("", "ErrImageNeverPull", text)
            && is("spec.containers{c}", "Failed", "Error: ErrImageNeverPull")
            && pod.status.container("d")?.ready;
        seen.then_some(())
    });
    assert!(
        !day.says(&["describe", "pod", "web"])
            .contains("FailedMount")
    );
    load_text(node, "data:1", "late");
    day.wait_ready("web");
    support::wait_until("the volume", || {
        let all = fs::read_dir(node.layout.containers()).unwrap().flatten();
        let mut records = all.filter_map(|e| state::read::<ContainerRecord>(&e.path(), CONTAINER));
        records.any(|r| r.name == "c" && r.image_mounts.len() == 1)
    });
    day.end();
}

fn a_path_that_the_image_does_not_have_is_explained(node: &Node) {
    load(
        node,
        "data:1",
        &[vec![file("d/f", "x"), Entry::Link("out", "/etc")]],
    );
    let day = Day::begin(node);
    let ensure = |path: &str| {
        format!(
            "failed to mount image volume: ImageVolumeMountFailed: failed to ensure image subpath \"{path}\" in \"data:1\": "
        )
    };
    for (name, path, why) in [
        ("none", "d/none", "openat d/none: no such file or directory"),
        (
            "file",
            "d/f",
            "only directory subpath is supported, subpath: \"d/f\"",
        ),
        ("out", "out", "openat out: no such file or directory"),
    ] {
        let mount = json!({"name": "data", "mountPath": "/data", "subPath": path});
        day.put(
            name,
            with(&day, name, "", &[volume("data", "data:1")], &[mount]),
        );
        let expected = ("CreateContainerError".to_owned(), ensure(path) + why);
        day.wait(&format!("{expected:?}"), |s| {
            let pod = find(s, name)?;
            let said = format!("Error: {}", expected.1);
            let has_event = pod
                .events
                .iter()
                .any(|e| e.reason == "Failed" && e.message == said);
            (waiting(pod, "c")? == expected && has_event).then_some(())
        });
        day.delete(name);
        day.wait_gone(name);
    }
    day.end();
}

/// At whatever moment it is killed, the next daemon runs the pod; [`support::on_both`] looks for mounts and processes.
fn a_daemon_that_is_killed_while_containers_start_leaves_no_mount(node: &Node) {
    load_text(node, "data:1", "data");
    let mut day = Day::begin(node);
    for round in 0..4 {
        let name = format!("web-{round}");
        day.put(&name, with_data(&day, &name));
        support::wait_until("a sandbox or a container to begin", || {
            let dir = match round {
                0 => node.layout.sandboxes(),
                _ => node.layout.containers(),
            };
            fs::read_dir(dir).is_ok_and(|all| all.count() > round)
        });
        day.crash();
        day.wait_ready(&name);
        assert_eq!(read(&day, &name, "data/f"), "data");
    }
    day.end();
}
