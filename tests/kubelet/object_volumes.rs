//! Volumes whose content comes from objects, claims and groups, in real containers of the real daemon. What a container
//! sees is read through the root directory of its first process.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use podprobe::base::paths::directories::{Keeper, row_of};
use serde_json::{Value, json};

use crate::support;
use crate::support::Node;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::on_both;

on_both![
    containers_see_objects_and_their_changes,
    a_pod_waits_for_what_it_refers_to,
    a_claim_outlives_its_pods,
    a_group_owns_the_volumes,
    a_container_cannot_lead_an_update_out_of_its_volume,
    no_directory_lets_users_of_the_node_in,
];

/// No secret of a test is anything else.
const SECRET: &str = "hunter2-";

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn secret(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
}

fn claim(name: &str) -> Value {
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec})
}

/// A pod that runs for ever with these volumes, each mounted at its own name.
fn with_volumes(day: &Day, name: &str, volumes: &[Value]) -> Value {
    let mut pod = day.pod(name, FOREVER, json!({}));
    for volume in volumes {
        let at = format!("/{}", volume["name"].as_str().unwrap());
        let mount = json!({"name": volume["name"], "mountPath": at});
        push(&mut pod["spec"]["volumes"], volume.clone());
        push(&mut pod["spec"]["containers"][0]["volumeMounts"], mount);
    }
    pod
}

fn push(list: &mut Value, value: Value) {
    list.as_array_mut().unwrap().push(value);
}

/// A path as the container of the pod sees it.
fn inside(day: &Day, pod: &str, path: &str) -> PathBuf {
    format!("/proc/{}/root/{path}", day.process(pod).pid).into()
}

fn read(day: &Day, pod: &str, path: &str) -> String {
    let path = inside(day, pod, path);
    fs::read_to_string(&path).unwrap_or_else(|e| format!("{}: {e}", path.display()))
}

/// Waits until a file of the container has that content, and returns how long it took.
#[track_caller]
fn wait_content(day: &Day, pod: &str, path: &str, expected: &str) -> Duration {
    let began = Instant::now();
    support::wait_until(&format!("{path} to be {expected:?}"), || {
        read(day, pod, path) == expected
    });
    began.elapsed()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn containers_see_objects_and_their_changes(node: &Node) {
    let mut day = Day::begin(node);
    day.put("conf", config_map("conf", json!({"a": "1", "b": "2"})));
    day.put(
        "pass",
        secret("pass", json!({"token": format!("{SECRET}1")})),
    );
    let projected = json!([
        {"configMap": {"name": "conf", "items": [{"key": "a", "path": "sub/a"}]}},
        {"secret": {"name": "pass", "items": [{"key": "token", "path": "token", "mode": 0o440}]}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]);
    let fields = json!([
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}},
    ]);
    let volumes = [
        json!({"name": "conf", "configMap": {"name": "conf"}}),
        json!({"name": "pass", "secret": {"secretName": "pass", "defaultMode": 0o400}}),
        json!({"name": "all", "projected": {"sources": projected}}),
        json!({"name": "fields", "downwardAPI": {"items": fields}}),
    ];
    let mut pod = with_volumes(&day, "web", &volumes);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "250m"}});
    let key = json!({"name": "conf", "mountPath": "/one", "subPath": "a"});
    push(&mut pod["spec"]["containers"][0]["volumeMounts"], key);
    day.put("web", pod);
    day.wait_ready("web");
    let process = day.process("web");

    assert_eq!(read(&day, "web", "conf/a"), "1");
    assert_eq!(read(&day, "web", "one"), "1");
    assert_eq!(read(&day, "web", "pass/token"), format!("{SECRET}1"));
    assert_eq!(mode(&inside(&day, "web", "pass/token")), 0o400);
    assert_eq!(mode(&inside(&day, "web", "conf/a")), 0o644);
    assert_eq!(read(&day, "web", "all/sub/a"), "1");
    assert_eq!(read(&day, "web", "all/token"), format!("{SECRET}1"));
    assert_eq!(mode(&inside(&day, "web", "all/token")), 0o440);
    assert_eq!(read(&day, "web", "all/name"), "web-edge");
    assert_eq!(read(&day, "web", "fields/labels"), "app=\"web\"");
    assert_eq!(read(&day, "web", "fields/cpu"), "250");
    // The mounts are read-only, and nothing is seen on the node.
    let mounts = fs::read_to_string(format!("/proc/{}/mounts", process.pid)).unwrap();
    for at in ["/conf", "/pass", "/all", "/fields", "/one"] {
        let line = mounts.lines().find(|l| l.split(' ').nth(1) == Some(at));
        let line = line.unwrap_or_else(|| panic!("no mount at {at}: {mounts}"));
        assert!(line.contains(" tmpfs ro,"), "{line}");
        assert!(line.contains("noswap") || !kernel_has_noswap(), "{line}");
    }

    let began = Instant::now();
    day.put("conf", config_map("conf", json!({"a": "3", "c": "4"})));
    wait_content(&day, "web", "conf/a", "3");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    eprintln!("a ConfigMap was seen after {:?}", began.elapsed());
    assert_eq!(read(&day, "web", "conf/c"), "4");
    assert!(!inside(&day, "web", "conf/b").exists());
    wait_content(&day, "web", "all/sub/a", "3");
    assert_eq!(read(&day, "web", "one"), "1", "a subPath stays as it was");
    // A key that is gone leaves the old file, with an event.
    day.put("conf", config_map("conf", json!({"c": "5"})));
    wait_content(&day, "web", "conf/c", "5");
    let event = day.wait_event("web", "FailedMount");
    assert_eq!(
        event,
        "MountVolume.SetUp failed for volume \"all\" : configmap references non-existent config key: a"
    );
    assert_eq!(read(&day, "web", "all/sub/a"), "3");
    // What has changed while there was no daemon.
    day.kill9();
    day.put(
        "pass",
        secret("pass", json!({"token": format!("{SECRET}2")})),
    );
    day.put("conf", config_map("conf", json!({"a": "6"})));
    day.start();
    wait_content(&day, "web", "pass/token", &format!("{SECRET}2"));
    wait_content(&day, "web", "all/sub/a", "6");
    assert_eq!(day.process("web"), process, "it was not restarted");
    assert_eq!(on_disk(node), Vec::<PathBuf>::new());
    let said = day.says(&["describe", "pod", "web"]) + &day.says(&["get", "pods", "-o", "json"]);
    assert!(!said.contains(SECRET), "{said}");
    day.end();
}

/// From Linux 6.4 on a tmpfs can be kept out of swap.
fn kernel_has_noswap() -> bool {
    let uname = nix::sys::utsname::uname().unwrap();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(4))
}

/// Every file of the daemon that contains a secret, its log included. Its source and the last good version of that are
/// left out.
fn on_disk(node: &Node) -> Vec<PathBuf> {
    let sources = [node.layout.pods_dir(), node.layout.last_good()];
    let mut found = grep(node.dir.path());
    found.retain(|path| !sources.iter().any(|dir| path.starts_with(dir)));
    found
}

/// Every file below a directory that contains a secret.
fn grep(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(grep(&path));
        } else if kind.is_file() {
            let content = fs::read(&path).unwrap_or_default();
            let has = content
                .windows(SECRET.len())
                .any(|w| w == SECRET.as_bytes());
            found.extend(has.then_some(path));
        }
    }
    found
}

fn a_pod_waits_for_what_it_refers_to(node: &Node) {
    let day = Day::begin(node);
    let volumes = [
        json!({"name": "conf", "configMap": {"name": "conf", "items": [{"key": "a", "path": "a"}]}}),
        json!({"name": "maybe", "secret": {"secretName": "none", "optional": true}}),
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
    ];
    day.put("web", with_volumes(&day, "web", &volumes));
    let waits_for = |text: &str| {
        let text = format!("MountVolume.SetUp failed for volume {text}");
        day.wait(&text, |s| {
            let pod = find(s, "web")?;
            let state = pod
                .status
                .container_statuses
                .first()?
                .state
                .waiting
                .clone()?;
            let said = pod
                .events
                .iter()
                .any(|e| e.reason == "FailedMount" && e.message == text);
            (said && state.reason == "ContainerCreating").then_some(())
        });
    };
    waits_for("\"data\" : persistentvolumeclaim \"data\" not found");
    day.put("data", claim("data"));
    waits_for("\"conf\" : configmap \"conf\" not found");
    day.put("conf", config_map("conf", json!({"b": "2"})));
    waits_for("\"conf\" : configmap references non-existent config key: a");
    day.put("conf", config_map("conf", json!({"a": "1"})));
    day.wait_ready("web");
    assert_eq!(read(&day, "web", "conf/a"), "1");
    assert_eq!(
        fs::read_dir(inside(&day, "web", "maybe/..data"))
            .unwrap()
            .count(),
        0
    );
    // A running pod outlives its objects, and so do its restarts.
    let process = day.process("web");
    day.delete("conf");
    day.delete("data");
    waits_for_event(&day, "\"conf\" : configmap \"conf\" not found");
    assert_eq!(day.process("web"), process);
    assert_eq!(read(&day, "web", "conf/a"), "1");
    support::kill9(process);
    day.wait("its restart", |s| {
        let status = find(s, "web")?.status.container_statuses.first()?.clone();
        (status.restart_count == 1 && status.ready).then_some(())
    });
    assert_eq!(read(&day, "web", "conf/a"), "1");
    day.put("none", secret("none", json!({"late": SECRET})));
    wait_content(&day, "web", "maybe/late", SECRET);
    day.end();
}

#[track_caller]
fn waits_for_event(day: &Day, text: &str) {
    let text = format!("MountVolume.SetUp failed for volume {text}");
    day.wait(&text, |s| {
        let events = &find(s, "web")?.events;
        let last = events.iter().rfind(|e| e.reason == "FailedMount")?;
        (last.message == text).then_some(())
    });
}

fn a_claim_outlives_its_pods(node: &Node) {
    let day = Day::begin(node);
    day.put("data", claim("data"));
    let volume = |read_only: bool| json!({"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": read_only}});
    day.put("one", with_volumes(&day, "one", &[volume(false)]));
    day.wait_ready("one");
    fs::write(inside(&day, "one", "data/kept"), "kept").unwrap();
    let dir = node.layout.claims().join("default/data");
    assert_eq!(mode(&dir), 0o777);
    day.delete("one");
    day.wait_gone("one");
    day.delete("data");
    assert_eq!(fs::read_to_string(dir.join("kept")).unwrap(), "kept");
    day.put("data", claim("data"));
    day.put("two", with_volumes(&day, "two", &[volume(true)]));
    day.wait_ready("two");
    assert_eq!(read(&day, "two", "data/kept"), "kept");
    let write = fs::write(inside(&day, "two", "data/new"), "").unwrap_err();
    assert_eq!(write.raw_os_error(), Some(nix::errno::Errno::EROFS as i32));
    day.end();
    assert_eq!(fs::read_to_string(dir.join("kept")).unwrap(), "kept");
}

fn a_group_owns_the_volumes(node: &Node) {
    let day = Day::begin(node);
    day.put("data", claim("data"));
    day.put("pass", secret("pass", json!({"token": SECRET})));
    let dir = node.layout.claims().join("default/data");
    fs::create_dir_all(dir.join("old")).unwrap();
    fs::write(dir.join("old/file"), "").unwrap();
    symlink("/etc/passwd", dir.join("link")).unwrap();
    let volumes = [
        json!({"name": "disk", "emptyDir": {}}),
        json!({"name": "mem", "emptyDir": {"medium": "Memory"}}),
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
        json!({"name": "pass", "secret": {"secretName": "pass", "defaultMode": 0o400}}),
    ];
    let mut pod = with_volumes(&day, "web", &volumes);
    pod["spec"]["securityContext"] =
        json!({"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 4711});
    let below = json!({"name": "mem", "mountPath": "/below", "subPath": "sub/b"});
    push(&mut pod["spec"]["containers"][0]["volumeMounts"], below);
    let script = format!(
        "cat /pass/token >/disk/a && : >/mem/a && : >/data/a && id -G >/disk/groups\n{FOREVER}"
    );
    pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", script]);
    day.put("web", pod);
    support::wait_until("the container's files", || {
        !day.processes().is_empty() && read(&day, "web", "disk/groups").ends_with('\n')
    });
    assert_eq!(read(&day, "web", "disk/groups"), "1000 4711\n");
    // A device node in a volume is none there, whatever the cgroup's filter of devices says.
    let pid = day.process("web").pid;
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    for volume in ["/disk", "/mem", "/below", "/data", "/pass"] {
        let fields = mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>());
        let options = fields.filter(|f| f[4] == volume).map(|f| f[5]).next_back();
        let options = options.unwrap_or_else(|| panic!("no mount at {volume}:\n{mounts}"));
        assert!(
            options.split(',').any(|o| o == "nodev"),
            "{volume}: {options}"
        );
    }
    assert_eq!(read(&day, "web", "disk/a"), SECRET);
    for (path, expected) in [
        ("disk", 0o2777),
        ("mem", 0o3777),
        ("below", 0o3777),
        ("data", 0o2775),
        ("data/old/file", 0o664),
        ("pass/token", 0o440),
    ] {
        let path = inside(&day, "web", path);
        assert_eq!(mode(&path), expected, "{}", path.display());
        assert_eq!(
            fs::metadata(&path).unwrap().gid(),
            4711,
            "{}",
            path.display()
        );
    }
    for path in ["disk/a", "mem/a", "data/a"] {
        let found = fs::metadata(inside(&day, "web", path)).unwrap();
        assert_eq!((found.uid(), found.gid()), (1000, 4711), "{path}");
    }
    assert_eq!(fs::metadata("/etc/passwd").unwrap().gid(), 0);
    day.end();
}

/// A privileged container can make its volume writable. It harms itself alone. A sync right after its start may put the
/// links back while it replaces them, so it tries again until it has.
fn a_container_cannot_lead_an_update_out_of_its_volume(node: &Node) {
    let day = Day::begin(node);
    let outside = node.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "kept").unwrap();
    day.put("conf", config_map("conf", json!({"a": "1"})));
    let volume = json!({"name": "conf", "configMap": {"name": "conf"}});
    let mut pod = with_volumes(&day, "web", &[volume]);
    let script = format!(
        "mount -o remount,rw,bind /conf\n\
         until rm -rf /conf/a /conf/..data /conf/..data_tmp && ln -s {0} /conf/..data && ln -s {0}/a /conf/a \
         && mkfifo /conf/..data_tmp; do :; done\n\
         echo done >/tmp/done\n{FOREVER}",
        outside.display()
    );
    pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", script]);
    pod["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    day.put("web", pod);
    support::wait_until("the container's own links", || {
        !day.processes().is_empty() && read(&day, "web", "tmp/done") == "done\n"
    });
    day.put("conf", config_map("conf", json!({"a": "2"})));
    wait_content(&day, "web", "conf/a", "2");
    assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "kept");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    day.end();
}

/// Every directory below one, with its path below the root and its mode. What belongs to containers is not looked into.
fn directories(root: &Path, below: &Path, found: &mut Vec<(PathBuf, u32)>) {
    for entry in fs::read_dir(root.join(below)).unwrap().flatten() {
        let path = below.join(entry.file_name());
        // What ends meanwhile, and links.
        let Ok(true) = entry.file_type().map(|kind| kind.is_dir()) else {
            continue;
        };
        let Ok(metadata) = fs::symlink_metadata(entry.path()) else {
            continue;
        };
        found.push((path.clone(), metadata.mode() & 0o7777));
        let row = row_of(&path);
        if row.is_some_and(|row| row.keeper != Keeper::Content) {
            directories(root, &path, found);
        }
    }
}

/// Whether a user without any privilege can read the file.
fn nobody_reads(path: &Path) -> bool {
    let mut cat = Command::new("/bin/cat");
    cat.arg(path).uid(65534).gid(65534).stdin(Stdio::null());
    cat.stdout(Stdio::null()).stderr(Stdio::null());
    cat.status().unwrap().success()
}

/// A program with the set-user-id bit that a container leaves in its claim is run by no user of the node, and the table
/// has every directory that is made.
fn no_directory_lets_users_of_the_node_in(node: &Node) {
    // As an older daemon has left it.
    fs::create_dir_all(node.layout.claims()).unwrap();
    for dir in [
        node.layout.claims(),
        node.layout.lib_dir(),
        node.dir.path().to_owned(),
    ] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let day = Day::begin(node);
    day.put("data", claim("data"));
    day.put("conf", config_map("conf", json!({"a": "1"})));
    day.put("pass", secret("pass", json!({"token": SECRET})));
    let volumes = [
        json!({"name": "disk", "emptyDir": {}}),
        json!({"name": "mem", "emptyDir": {"medium": "Memory"}}),
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
        json!({"name": "conf", "configMap": {"name": "conf"}}),
        json!({"name": "pass", "secret": {"secretName": "pass"}}),
    ];
    let script = format!(
        "cp /bin/busybox /data/program && chmod 4755 /data/program && mkdir -m 777 /disk/d && : >/done\n{FOREVER}"
    );
    for name in ["web", "two"] {
        let mut pod = with_volumes(&day, name, &volumes);
        let below = json!({"name": "disk", "mountPath": "/below", "subPath": "a/b"});
        push(&mut pod["spec"]["containers"][0]["volumeMounts"], below);
        pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", script]);
        day.put(name, pod);
        support::wait_until("the container's files", || {
            find(&day.snapshot().unwrap(), name).is_some_and(|pod| {
                pod.status
                    .container_statuses
                    .iter()
                    .any(|c| c.state.running.is_some())
            }) && inside(&day, name, "done").exists()
        });
    }
    let program = node.layout.claims().join("default/data/program");
    assert_eq!(mode(&program), 0o4755);
    let dropped = node.layout.image_drop().join("note.txt");
    fs::write(&dropped, "").unwrap();
    assert!(nobody_reads(&dropped), "else what follows shows nothing");
    assert!(!nobody_reads(&program));

    let mut found = Vec::new();
    for top in ["run", "var"] {
        directories(node.layout.root(), Path::new(top), &mut found);
    }
    let mut wrong = Vec::new();
    for (path, mode) in &found {
        match row_of(path) {
            Some(row) if row.keeper == Keeper::People || row.mode == *mode => {}
            // The content of layers and volumes has modes of its own.
            Some(row) if row.keeper == Keeper::Content => {}
            row => wrong.push(format!("{} {mode:04o}: {row:?}", path.display())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for made in ["claims/default", "pods", "containers", "images/layers"] {
        let path = Path::new("var/lib/podprobe").join(made);
        assert!(found.iter().any(|(dir, _)| *dir == path), "{made}");
    }
    day.end();
}
