//! Real containers, on the embedded runtime and again on runc.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use podprobe::base::cancel::Cancel;
use podprobe::base::sys::cgroup::Cgroups;
use podprobe::engine::images::ImageStore;
use podprobe::engine::images::manager::ImageWaitReason;
use podprobe::engine::runtime::{ContainerId, ExecOutcome, RuntimeErrorKind, RuntimeState};
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{
    CONTAINER, ContainerRecord, ContainerState, EXIT, EXIT_COPY, STATE,
};
use podprobe::pods::kuberuntime::StartErrorReason;
use serde_json::json;

use crate::support;
use crate::support::{Node, on_both, pod, sh, wait_until};

const GRACE: Duration = Duration::from_secs(20);

/// Output, exit code, reason, CRI log; then everything is removed and nothing is left.
fn runs_to_completion(node: &Node) {
    let rt = node.runtime();
    let pod = pod(
        "done",
        json!({"containers": [sh("main", "echo out; echo err >&2; printf part; exit 3")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let c = node.wait_exit(&rt, &pod, &id);
    assert_eq!(
        (c.exit_code, c.signal, c.reason.as_str()),
        (3, None, "Error")
    );
    wait_until("the end to be told", || {
        node.layout.exits().join(pod.uid().as_str()).exists()
    });
    assert!(c.started.is_some() && c.finished >= c.started && c.pid.is_none());
    assert_eq!(c.image_id.split_once(':').unwrap().0, "sha256");
    let log = fs::read_to_string(&c.log_path).unwrap();
    let mut lines: Vec<_> = log.lines().map(|l| l.split_once(' ').unwrap().1).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["stderr F err", "stdout F out", "stdout P part"]);
    assert!(c.log_path.ends_with(format!(
        "var/log/pods/default_done_{}/main/0.log",
        pod.uid()
    )));
    node.remove_pod(&rt, &pod);
    assert_eq!(rt.list_pods().unwrap(), []);
    assert!(!c.log_path.exists());
}

/// Two containers share the emptyDir, the network and the host name; the tmpfs outlives a restart of its writer.
fn pod_is_shared(node: &Node) {
    let rt = node.runtime();
    let mounts =
        json!([{"name": "disk", "mountPath": "/disk"}, {"name": "mem", "mountPath": "/mem"}]);
    let script = "echo $NAME >> /disk/who; echo $NAME >> /mem/who; hostname > /disk/host.$NAME; readlink /proc/self/ns/net > /disk/net.$NAME; \
                  grep ' /mem ' /proc/mounts > /disk/mount.$NAME; stat -c %a /disk > /disk/mode.$NAME; cp /etc/hosts /disk/hosts";
    let container = |name: &str| {
        let mut c = sh(name, script);
        c["volumeMounts"] = mounts.clone();
        c["env"] = json!([{"name": "NAME", "value": name}]);
        c
    };
    let volumes = json!([{"name": "disk", "emptyDir": {}}, {"name": "mem", "emptyDir": {"medium": "Memory"}}]);
    let pod = pod(
        "shared",
        json!({"containers": [container("a"), container("b")], "volumes": volumes}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    for (n, attempt) in [(0, 0), (1, 0), (0, 1)] {
        let id = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[n], attempt)
            .unwrap();
        assert_eq!(node.wait_exit(&rt, &pod, &id).exit_code, 0);
    }
    let disk = node
        .layout
        .pod_data(pod.uid())
        .join("volumes/kubernetes.io~empty-dir/disk");
    let read = |f: &str| fs::read_to_string(disk.join(f)).unwrap();
    assert_eq!(read("who"), "a\nb\na\n");
    assert_eq!(
        (read("host.a"), read("host.b")),
        ("shared\n".into(), "shared\n".into())
    );
    assert_eq!(read("net.a"), read("net.b"));
    assert_ne!(
        read("net.a").trim(),
        fs::read_link("/proc/self/ns/net")
            .unwrap()
            .to_str()
            .unwrap()
    );
    assert!(
        read("mount.a").starts_with("tmpfs /mem tmpfs"),
        "{}",
        read("mount.a")
    );
    assert_eq!(read("mode.a"), "777\n");
    assert!(read("hosts").contains("127.0.0.1\tshared\n"));
    // A third reads what the first instance of `a` wrote into memory.
    let mut cat = sh("cat", "cat /mem/who");
    cat["volumeMounts"] = mounts;
    let with_cat = support::pod("shared", json!({"containers": [cat], "volumes": volumes}));
    let id = rt
        .start_container(&with_cat, &sandbox, &with_cat.spec.containers[0], 0)
        .unwrap();
    let c = node.wait_exit(&rt, &pod, &id);
    let text: String = fs::read_to_string(&c.log_path)
        .unwrap()
        .lines()
        .map(|l| l.rsplit_once(' ').unwrap().1.to_owned() + "\n")
        .collect();
    assert_eq!(text, "a\nb\na\n");
    assert_eq!(
        rt.pod_status(pod.uid())
            .unwrap()
            .container("a")
            .unwrap()
            .attempt,
        1
    );
    // The memory volume was never seen on the node.
    assert_eq!(fs::read_dir(disk.with_file_name("mem")).unwrap().count(), 0);
    node.remove_pod(&rt, &pod);
}

/// TERM is obeyed within the grace period; without obedience KILL follows it.
fn stops(node: &Node) {
    let rt = node.runtime();
    let polite = sh(
        "polite",
        "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done",
    );
    let stubborn = sh(
        "stubborn",
        "trap '' TERM; echo up; while :; do sleep 0.05; done",
    );
    let pod = pod("stops", json!({"containers": [polite, stubborn]}));
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let ids: Vec<_> = (0..2)
        .map(|n| {
            rt.start_container(&pod, &sandbox, &pod.spec.containers[n], 0)
                .unwrap()
        })
        .collect();
    for id in &ids {
        node.wait_log(&rt, &pod, id, "up");
    }
    rt.stop_container(&ids[0], GRACE, &Cancel::default())
        .unwrap();
    let before = Instant::now();
    rt.stop_container(&ids[1], Duration::from_millis(300), &Cancel::default())
        .unwrap();
    assert!(before.elapsed() >= Duration::from_millis(300));
    let status = rt.pod_status(pod.uid()).unwrap();
    let (polite, stubborn) = (
        status.container("polite").unwrap(),
        status.container("stubborn").unwrap(),
    );
    assert_eq!((polite.exit_code, polite.signal), (7, None));
    assert_eq!(
        (
            stubborn.exit_code,
            stubborn.signal,
            stubborn.reason.as_str()
        ),
        (137, Some(9), "Error")
    );
    // Stopping what has ended, or never was, is fine.
    rt.stop_container(&ids[0], GRACE, &Cancel::default())
        .unwrap();
    rt.stop_container(
        &ContainerId::from("0".repeat(64).as_str()),
        GRACE,
        &Cancel::default(),
    )
    .unwrap();
    node.remove_pod(&rt, &pod);
}

/// A command that is not there: an error that says so, and an instance that counts for the back-off.
fn missing_binary(node: &Node) {
    let rt = node.runtime();
    let mut c = sh("main", "");
    c["command"] = json!(["/no/such/binary"]);
    let pod = pod("missing", json!({"containers": [c]}));
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let e = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap_err();
    assert_eq!(e.reason, StartErrorReason::RunContainerError, "{e}");
    assert!(e.message.contains("/no/such/binary"), "{e}");
    assert!(!e.message.contains("level="), "{e}");
    let status = rt.pod_status(pod.uid()).unwrap();
    let c = status.container("main").unwrap();
    assert_eq!(
        (c.state, c.exit_code, c.reason.as_str()),
        (RuntimeState::Exited, 128, "StartError"),
        "{c:?}"
    );
    assert!(c.finished.is_some());
    node.remove_pod(&rt, &pod);
}

/// A new daemon finds the containers of the old one, running and ended, as they are.
fn survives_the_daemon(node: &Node) {
    let rt = node.runtime();
    let pod = pod(
        "survivor",
        json!({"containers": [sh("main", "echo up; while :; do sleep 0.05; done"), sh("done", "exit 0")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let done = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[1], 4)
        .unwrap();
    node.wait_exit(&rt, &pod, &done);
    let before = rt.list_pods().unwrap();
    drop(rt);
    let rt = node.runtime();
    assert_eq!(rt.list_pods().unwrap(), before);
    let net = rt.network_namespace(pod.uid()).unwrap().unwrap();
    assert!(
        fs::read_link(net.path)
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("net:[")
    );
    rt.stop_container(&id, Duration::ZERO, &Cancel::default())
        .unwrap();
    let status = rt.pod_status(pod.uid()).unwrap();
    assert_eq!(status.container("main").unwrap().signal, Some(9));
    assert_eq!(
        (
            status.container("done").unwrap().attempt,
            status.container("done").unwrap().reason.as_str()
        ),
        (4, "Completed")
    );
    node.remove_pod(&rt, &pod);
}

/// `kill -9` of the shim: the container runs on and is seen, can be stopped and removed.
fn survives_its_shim(node: &Node) {
    let rt = node.runtime();
    let pod = pod(
        "orphan",
        json!({"containers": [sh("main", "trap '' PIPE; while :; do sleep 0.05; done"), sh("gone", "while :; do sleep 0.05; done")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let ids: Vec<_> = (0..2)
        .map(|n| {
            rt.start_container(&pod, &sandbox, &pod.spec.containers[n], 0)
                .unwrap()
        })
        .collect();
    let states: Vec<ContainerState> = ids.iter().map(|id| node.record(id, STATE)).collect();
    for s in &states {
        support::kill9(s.shim);
    }
    assert_eq!(
        rt.pod_status(pod.uid())
            .unwrap()
            .container("main")
            .unwrap()
            .state,
        RuntimeState::Running
    );
    // One ends by itself: nobody knows how.
    support::kill9(states[1].process.unwrap());
    assert_eq!(
        rt.pod_status(pod.uid())
            .unwrap()
            .container("gone")
            .unwrap()
            .state,
        RuntimeState::Unknown
    );
    for id in &ids {
        rt.stop_container(id, Duration::ZERO, &Cancel::default())
            .unwrap();
    }
    let status = rt.pod_status(pod.uid()).unwrap();
    for name in ["main", "gone"] {
        let c = status.container(name).unwrap();
        assert_eq!(
            (c.state, c.exit_code, c.reason.as_str()),
            (RuntimeState::Exited, 137, "ContainerStatusUnknown")
        );
    }
    assert!(!states[0].process.unwrap().alive());
    node.remove_pod(&rt, &pod);
}

/// Memory beyond the limit ends the container, and the reason says so.
fn out_of_memory(node: &Node) {
    let rt = node.runtime();
    let mut c = sh(
        "main",
        "echo up; x=$(head -c 200m /dev/zero | tr '\\0' x); echo $x | wc -c",
    );
    c["resources"] = json!({"limits": {"memory": "24Mi"}});
    let pod = pod("oom", json!({"containers": [c]}));
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let c = node.wait_exit(&rt, &pod, &id);
    assert_eq!(
        (c.reason.as_str(), c.exit_code != 0),
        ("OOMKilled", true),
        "{c:?}"
    );
    node.remove_pod(&rt, &pod);
}

/// hostPath types are checked with errors that say what to do; sub paths never leave their volume.
fn volumes(node: &Node) {
    let rt = node.runtime();
    let base = node.dir.path().join("host");
    fs::create_dir(&base).unwrap();
    fs::write(base.join("file"), "text\n").unwrap();
    std::os::unix::fs::symlink("/etc", base.join("escape")).unwrap();
    let path = |p: &str| base.join(p).to_str().unwrap().to_owned();
    let try_type = |p: &str, type_: &str| {
        let mut c = sh("main", "exit 0");
        c["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        let volumes = json!([{"name": "v", "hostPath": {"path": path(p), "type": type_}}]);
        let pod = pod("volumes", json!({"containers": [c], "volumes": volumes}));
        rt.kuberuntime
            .set_up_volumes(&pod)
            .map_err(|e| e.to_string())?;
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let id = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap();
        node.wait_exit(&rt, &pod, &id);
        node.remove_pod(&rt, &pod);
        Ok::<_, String>(())
    };
    for (p, type_, cause) in [
        (
            "none",
            "Directory",
            "doesn't exist; create the directory first, or use type DirectoryOrCreate",
        ),
        (
            "none",
            "Socket",
            "doesn't exist; create the socket file first",
        ),
        (
            "file",
            "Directory",
            "is not a directory, it's a File; name a directory or change the type",
        ),
        (
            "file",
            "DirectoryOrCreate",
            "is not a directory, it's a File; name a directory",
        ),
        ("", "File", "is not a file, it's a Directory"),
    ] {
        let message = try_type(p, type_).unwrap_err();
        assert!(
            message.starts_with("MountVolume.SetUp failed for volume \"v\" : hostPath ")
                && message.contains(cause),
            "{message}"
        );
    }
    for (p, type_) in [
        ("new/dir", "DirectoryOrCreate"),
        ("newfile", "FileOrCreate"),
        ("file", "File"),
        ("untyped", ""),
    ] {
        try_type(p, type_).unwrap();
    }
    assert!(
        base.join("new/dir").is_dir()
            && base.join("newfile").is_file()
            && base.join("untyped").is_dir()
    );

    let mut c = sh(
        "main",
        "cat /one; echo new > /sub/made; ls /esc; touch /ro/x || echo refused",
    );
    c["volumeMounts"] = json!([
        {"name": "v", "mountPath": "/one", "subPath": "file"},
        {"name": "v", "mountPath": "/sub", "subPath": "a/b"},
        {"name": "v", "mountPath": "/esc", "subPath": "escape/inside"},
        {"name": "v", "mountPath": "/ro", "readOnly": true},
    ]);
    fs::create_dir_all(base.join("etc")).unwrap();
    let pod = pod(
        "subpaths",
        json!({"containers": [c], "volumes": [{"name": "v", "hostPath": {"path": path("")}}]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let c = node.wait_exit(&rt, &pod, &id);
    let log = fs::read_to_string(&c.log_path).unwrap();
    assert!(
        log.contains("stdout F text\n") && log.contains("stdout F refused\n"),
        "{log}"
    );
    assert_eq!(fs::read_to_string(base.join("a/b/made")).unwrap(), "new\n");
    // `escape` points to /etc: of the volume, not of the node.
    assert!(base.join("etc/inside").is_dir() && !Path::new("/etc/inside").exists());
    node.remove_pod(&rt, &pod);
}

/// The root is read-only when asked for; the termination message comes from its file; a user may reopen /dev/stdout.
fn container_settings(node: &Node) {
    let rt = node.runtime();
    let mut c = sh(
        "main",
        "touch /x || echo read-only; printf 'last words' > /dev/termination-log; echo again > /dev/stdout; exit 1",
    );
    c["securityContext"] =
        json!({"readOnlyRootFilesystem": true, "runAsUser": 1000, "runAsGroup": 1000});
    c["terminationMessagePath"] = json!("/dev/termination-log");
    let mut quiet = sh("quiet", "echo one; echo two; exit 1");
    quiet["terminationMessagePath"] = json!("/dev/termination-log");
    quiet["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    let pod = pod("settings", json!({"containers": [c, quiet]}));
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let c = node.wait_exit(&rt, &pod, &id);
    let log = fs::read_to_string(&c.log_path).unwrap();
    assert!(
        log.contains("stdout F read-only\n") && log.contains("stdout F again\n"),
        "{log}"
    );
    assert_eq!(c.message, "last words");
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[1], 0)
        .unwrap();
    assert_eq!(node.wait_exit(&rt, &pod, &id).message, "one\ntwo\n");
    node.remove_pod(&rt, &pod);
}

/// Processes that left the session and hold the output open end with the container, also where no pid namespace of its
/// own ends them; the exit is recorded at once.
fn leaves_no_process(node: &Node) {
    let rt = node.runtime();
    for host_pid in [false, true] {
        let pod = pod(
            "daemons",
            json!({"hostPID": host_pid, "containers": [sh("main", "setsid sleep 1000 & setsid sleep 1000 & exit 0")]}),
        );
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let id = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap();
        let started = Instant::now();
        assert_eq!(node.wait_exit(&rt, &pod, &id).exit_code, 0);
        assert!(
            started.elapsed() < Duration::from_secs(9),
            "the record waited for the processes left behind"
        );
        let cgroup = format!("{}/main-0", node.layout.pod_cgroup(pod.uid()));
        wait_until("the cgroup to go", || {
            Cgroups::detect().unwrap().dirs(&cgroup).is_empty()
        });
        node.remove_pod(&rt, &pod);
    }
}

/// Torn records cost nobody but their owner: they are kept aside and the rest is listed.
fn torn_records(node: &Node) {
    let rt = node.runtime();
    let pod = pod(
        "torn",
        json!({"containers": [sh("a", "while :; do sleep 0.05; done"), sh("b", "while :; do sleep 0.05; done")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let ids: Vec<_> = (0..2)
        .map(|n| {
            rt.start_container(&pod, &sandbox, &pod.spec.containers[n], 0)
                .unwrap()
        })
        .collect();
    let states: Vec<ContainerState> = ids.iter().map(|id| node.record(id, STATE)).collect();
    let torn = node.layout.containers().join(ids[0].as_str());
    // Its shim would know what the record said.
    support::kill9(states[0].shim);
    fs::write(torn.join(CONTAINER), "{\"id\": \"").unwrap();
    drop(rt);
    let rt = node.runtime();
    let status = rt.pod_status(pod.uid()).unwrap();
    assert_eq!(
        status
            .containers
            .iter()
            .map(|c| c.name.as_str())
            .collect::<Vec<_>>(),
        ["b"]
    );
    // Nobody could have stopped the one without a record any more.
    assert!(!states[0].process.unwrap().alive() && states[1].process.unwrap().alive());
    assert!(
        torn.with_file_name(format!("{}.corrupt", ids[0]))
            .join("container.json.corrupt")
            .exists()
    );
    // Records of another boot: exited, without a moment of this one.
    let record: ContainerRecord = node.record(&ids[1], CONTAINER);
    rt.stop_container(&ids[1], Duration::ZERO, &Cancel::default())
        .unwrap();
    wait_until("the shim to end", || !states[1].shim.alive());
    let dir = node.layout.containers().join(ids[1].as_str());
    for name in [EXIT, EXIT_COPY] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    podprobe::engine::shims::state::write(
        &dir,
        CONTAINER,
        &ContainerRecord {
            boot_id: "another".into(),
            ..record
        },
        false,
    )
    .unwrap();
    let rt = node.runtime();
    let status = rt.pod_status(pod.uid()).unwrap();
    let c = status.container("b").unwrap();
    assert_eq!(
        (c.state, c.exit_code, c.reason.as_str(), c.started),
        (RuntimeState::Exited, 137, "ContainerStatusUnknown", None)
    );
    node.remove_pod(&rt, &pod);
}

/// A record that cannot be read costs its own container, and hides no other pod.
fn unreadable_records(node: &Node) {
    let rt = node.runtime();
    let start = |name: &str| {
        let pod = pod(
            name,
            json!({"containers": [sh("a", "while :; do sleep 0.05; done")]}),
        );
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let id = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap();
        (pod, id)
    };
    let (other, other_id) = start("readable");
    let (pod, id) = start("unread");
    let state = node.record::<ContainerState>(&id, STATE);
    let process = state.process.expect("it runs");
    // Its shim would know what the record said.
    support::kill9(state.shim);
    let damage = |dir: &Path, name| {
        fs::rename(dir.join(name), dir.join("aside")).unwrap();
        fs::create_dir(dir.join(name)).unwrap();
    };
    damage(&node.layout.containers().join(id.as_str()), CONTAINER);
    let sandbox = rt.pod_status(other.uid()).unwrap().sandboxes[0].id.clone();
    damage(&node.layout.sandboxes().join(sandbox.as_str()), STATE);
    // A new daemon has not read it before.
    let new = node.runtime();
    let listed = new.list_pods().unwrap();
    let of = |uid| listed.iter().find(|p| &p.uid == uid).unwrap();
    assert_eq!(
        of(other.uid()).container("a").unwrap().state,
        RuntimeState::Running
    );
    assert!(
        of(other.uid()).sandboxes[0].ready,
        "its container names the holder"
    );
    assert!(of(pod.uid()).containers.is_empty());
    assert!(!process.alive(), "nobody can name it any more, so it ends");
    for (pod, id) in [(pod, None), (other, Some(other_id))] {
        if let Some(id) = id {
            new.stop_container(&id, Duration::ZERO, &Cancel::default())
                .unwrap();
        }
        node.remove_pod(&new, &pod);
    }
}

/// `kill -9` of the daemon while a container is created: what was not created is no instance and no restart. Here: its stdin
/// is closed.
fn a_creation_without_a_daemon_leaves_no_instance(node: &Node) {
    let rt = node.runtime();
    let pod = pod(
        "late",
        json!({"containers": [sh("main", "while :; do sleep 0.05; done")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    rt.stop_container(&id, Duration::ZERO, &Cancel::default())
        .unwrap();
    let dir = node.layout.containers().join(id.as_str());
    wait_until("the shim to end", || {
        !node.record::<ContainerState>(&id, STATE).shim.alive()
    });
    fs::remove_file(dir.join(EXIT)).unwrap();
    let data = node.layout.container_data(id.as_str());
    fs::remove_dir_all(data.join("work/work")).unwrap();
    support::shim_without_daemon(&dir);
    assert!(!dir.exists());
    let rt = node.runtime();
    assert!(rt.pod_status(pod.uid()).unwrap().containers.is_empty());
    assert!(!data.exists(), "the next daemon clears it away");
    node.remove_pod(&rt, &pod);
}

/// hostNetwork pods have the node's network and its address.
fn host_network(node: &Node) {
    let rt = node.runtime();
    let pod = pod(
        "host",
        json!({"hostNetwork": true, "containers": [sh("main", "readlink /proc/self/ns/net; readlink /proc/self/ns/uts")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    assert_eq!(rt.network_namespace(pod.uid()).unwrap(), None);
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let c = node.wait_exit(&rt, &pod, &id);
    let log = fs::read_to_string(&c.log_path).unwrap();
    for ns in ["net", "uts"] {
        let own = fs::read_link(format!("/proc/self/ns/{ns}")).unwrap();
        assert!(log.contains(own.to_str().unwrap()), "{log}");
    }
    assert_eq!(
        rt.pod_status(pod.uid()).unwrap().ips(),
        ["127.0.0.1".parse::<std::net::IpAddr>().unwrap()]
    );
    node.remove_pod(&rt, &pod);
}

/// A command sees what the container sees; one in a container that has ended says nothing of it.
fn executes(node: &Node) {
    let rt = node.runtime();
    let pod = pod(
        "exec",
        json!({"containers": [sh("main", "echo 1 > /tmp/mark; while :; do sleep 0.05; done")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let run = |script: &str, timeout| {
        rt.exec(
            &id,
            &["/bin/sh".into(), "-c".into(), script.into()],
            timeout,
            1024,
            None,
        )
    };
    wait_until(
        "the mark",
        || matches!(run("cat /tmp/mark", GRACE), Ok(ExecOutcome::Exited { code: 0, output }) if output == b"1\n"),
    );
    let own = fs::read_link(format!(
        "/proc/{}/ns/net",
        rt.pod_status(pod.uid()).unwrap().containers[0].pid.unwrap()
    ))
    .unwrap();
    let expected = format!("exec\n{}\n", own.display());
    assert_eq!(
        run("hostname; readlink /proc/self/ns/net; exit 4", GRACE).unwrap(),
        ExecOutcome::Exited {
            code: 4,
            output: expected.into()
        }
    );
    assert_eq!(
        run("sleep 1000", Duration::from_millis(50)).unwrap(),
        ExecOutcome::TimedOut { output: Vec::new() }
    );
    rt.stop_container(&id, Duration::ZERO, &Cancel::default())
        .unwrap();
    let ended = run("true", GRACE).unwrap_err();
    assert!(
        ended.message.contains("it is not running") && ended.kind == RuntimeErrorKind::NotRunning,
        "{ended:?}"
    );
    node.remove_pod(&rt, &pod);
}

/// The end of the daemon ends its waits; the container is neither killed nor forgotten.
fn waits_end_with_the_daemon(node: &Node) {
    let rt = node.runtime();
    let pod = pod(
        "waits",
        json!({"containers": [sh("main", "trap '' TERM; echo up; while :; do sleep 0.05; done")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    node.wait_log(&rt, &pod, &id, "up");
    let error = std::thread::scope(|s| {
        let stop = s.spawn(|| rt.stop_container(&id, Duration::from_secs(600), &Cancel::default()));
        rt.interrupt();
        stop.join().unwrap().unwrap_err()
    });
    assert_eq!(error.kind, RuntimeErrorKind::Failed);
    assert!(error.message.ends_with("the daemon is ending"), "{error}");
    let rt = node.runtime();
    assert_eq!(
        rt.pod_status(pod.uid()).unwrap().containers[0].state,
        RuntimeState::Running
    );
    node.remove_pod(&rt, &pod);
}

/// The wait for a container's end ends with its cancellation, with nothing done that another stop could not go on with.
fn a_stop_can_be_cancelled(node: &Node) {
    let rt = node.runtime();
    let pod = pod(
        "hurry",
        json!({"containers": [sh("main", "trap '' TERM; echo up; while :; do sleep 0.05; done")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    node.wait_log(&rt, &pod, &id, "up");
    let cancel = Cancel::default();
    let error = std::thread::scope(|s| {
        let stop = s.spawn(|| rt.stop_container(&id, Duration::from_secs(600), &cancel));
        cancel.cancel();
        stop.join().unwrap().unwrap_err()
    });
    assert!(error.message.ends_with("it is cancelled"), "{error}");
    assert_eq!(
        rt.pod_status(pod.uid()).unwrap().containers[0].state,
        RuntimeState::Running
    );
    rt.stop_container(&id, Duration::ZERO, &Cancel::default())
        .unwrap();
    assert_eq!(
        rt.pod_status(pod.uid()).unwrap().containers[0].state,
        RuntimeState::Exited
    );
    node.remove_pod(&rt, &pod);
}

/// A log over its size is rotated by the shim, and the oldest file goes.
fn rotates_logs(node: &Node) {
    let node = node.with_logs(4096, 3);
    let rt = node.runtime();
    let pod = pod(
        "logs",
        json!({"containers": [sh("main", "n=0; while [ $n -lt 2000 ]; do echo line $n; n=$((n+1)); done")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let c = node.wait_exit(&rt, &pod, &id);
    let mut files: Vec<_> = fs::read_dir(c.log_path.parent().unwrap())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() <= 3 && files.contains(&c.log_path), "{files:?}");
    assert!(
        fs::read_to_string(&c.log_path)
            .unwrap()
            .ends_with(" stdout F line 1999\n")
    );
    node.remove_pod(&rt, &pod);
}

/// The image's USER is looked up as the container will see it: in the topmost layer that has the file.
fn a_user_of_the_image_comes_from_its_topmost_layer(node: &Node) {
    let archive = node.dir.path().join("two-layers.tar");
    fs::write(&archive, two_layers()).unwrap();
    ImageStore::open(node.layout.images())
        .unwrap()
        .load(&archive)
        .unwrap();
    let rt = node.runtime();
    let container =
        json!({"name": "main", "image": "two:layers", "command": ["/bin/busybox", "id", "-u"]});
    let pod = pod("user", json!({"containers": [container]}));
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let ended = node.wait_exit(&rt, &pod, &id);
    let log = fs::read_to_string(&ended.log_path).unwrap();
    assert!(log.ends_with(" stdout F 2000\n"), "{log}");
    let user = ended.user.unwrap();
    assert_eq!((user.uid, user.gid), (2000, 2000));
    node.remove_pod(&rt, &pod);
}

/// A docker archive: user `app` is 1000 in the layer below and 2000 in the one above.
fn two_layers() -> Vec<u8> {
    let passwd = |uid: u32| format!("app:x:{uid}:{uid}::/:/bin/sh\n").into_bytes();
    let busybox = fs::read("/usr/bin/busybox").unwrap();
    let below = tar_of(&[
        ("bin/busybox", 0o755, &busybox),
        ("etc/passwd", 0o644, &passwd(1000)),
    ]);
    let above = tar_of(&[("etc/passwd", 0o644, &passwd(2000))]);
    let digest = |bytes: &[u8]| -> String {
        let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
        hash.as_ref()
            .iter()
            .fold("sha256:".to_owned(), |hex, b| hex + &format!("{b:02x}"))
    };
    let config = json!({"os": "linux", "config": {"User": "app"},
        "architecture": if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" },
        "rootfs": {"type": "layers", "diff_ids": [digest(&below), digest(&above)]}});
    let manifest = json!([{"Config": "config.json", "RepoTags": ["two:layers"], "Layers": ["below.tar", "above.tar"]}]);
    tar_of(&[
        ("below.tar", 0o644, &below),
        ("above.tar", 0o644, &above),
        ("config.json", 0o644, config.to_string().as_bytes()),
        ("manifest.json", 0o644, manifest.to_string().as_bytes()),
    ])
}

fn tar_of(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, mode, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        tar.append_data(&mut header, name, *content).unwrap();
    }
    tar.into_inner().unwrap()
}

on_both!(
    runs_to_completion,
    pod_is_shared,
    stops,
    missing_binary,
    survives_the_daemon,
    survives_its_shim,
    out_of_memory,
    volumes,
    container_settings,
    leaves_no_process,
    torn_records,
    unreadable_records,
    a_creation_without_a_daemon_leaves_no_instance,
    host_network,
    executes,
    waits_end_with_the_daemon,
    a_stop_can_be_cancelled,
    rotates_logs,
    a_user_of_the_image_comes_from_its_topmost_layer,
);

#[test]
fn an_image_that_is_not_loaded_says_what_to_do() {
    support::on(RuntimeChoice::Embedded, |node| {
        let rt = node.runtime();
        let mut c = sh("main", "");
        c["image"] = json!("nowhere:1");
        let pod = pod("noimage", json!({"containers": [c]}));
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let e = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap_err();
        assert_eq!(
            e.reason,
            StartErrorReason::Image(ImageWaitReason::ErrImageNeverPull)
        );
        assert!(e.message.contains("podprobe image load"), "{e}");
        assert!(rt.pod_status(pod.uid()).unwrap().containers.is_empty());
        node.remove_pod(&rt, &pod);
    });
}

#[test]
fn a_runtime_that_is_missing_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runc");
    let check = |choice: RuntimeChoice| {
        support::Node::at(tempfile::tempdir().unwrap(), choice)
            .runtime()
            .check()
    };
    let e = check(RuntimeChoice::Path(path.clone())).unwrap_err();
    assert!(
        e.message
            .contains("is not an executable file; name an OCI runtime with --runtime"),
        "{e}"
    );
    fs::write(&path, "").unwrap();
    assert!(check(RuntimeChoice::Path(path.clone())).is_err());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    check(RuntimeChoice::Path(path)).unwrap();
}
