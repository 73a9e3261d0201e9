//! What a container sees of the pod's fields, on the embedded runtime and again on runc.

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podprobe::api::Pod;
use podprobe::daemon::settings::Settings;
use podprobe::engine::runtime::{ExecOutcome, RuntimeContainerStatus};
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{CONTAINER, ContainerRecord};
use podprobe::pods::kuberuntime::StartErrorReason;
use serde_json::{Value, json};

use crate::support;
use crate::support::{CEILING, Node, NodeRuntime, on_both, pod, sh};

/// Runs the first container of a pod to its end.
fn run_first(node: &Node, rt: &NodeRuntime, pod: &Pod) -> RuntimeContainerStatus {
    let sandbox = rt.run_pod_sandbox(pod, 0).unwrap();
    let id = rt
        .start_container(pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    node.wait_exit(rt, pod, &id)
}

/// The lines of a container's log, without time, stream and tag.
fn lines(status: &RuntimeContainerStatus) -> String {
    let log = fs::read_to_string(&status.log_path).unwrap();
    let text = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned() + "\n";
    log.lines().map(text).collect()
}

/// What a shell script prints in the one container of a pod with this spec.
#[track_caller]
fn output(node: &Node, mut spec: Value, script: &str) -> String {
    spec["containers"] = json!([sh("main", script)]);
    let (rt, pod) = (node.runtime(), pod("web", spec));
    let ended = run_first(node, &rt, &pod);
    let text = lines(&ended);
    assert_eq!(ended.exit_code, 0, "{text}");
    node.remove_pod(&rt, &pod);
    text
}

/// The same node with another configuration.
fn with(node: &Node, change: impl FnOnce(&mut Settings)) -> Node {
    let mut other = Node {
        dir: node.dir.clone(),
        layout: node.layout.clone(),
        settings: node.settings.clone(),
    };
    change(&mut other.settings);
    other
}

/// Names: /etc/hosts with its aliases, the resolver, the host name with its domain.
fn names(node: &Node) {
    let file = node.dir.path().join("resolv.conf");
    fs::write(&file, "nameserver 192.0.2.1\nsearch lan\noptions ndots:3\n").unwrap();
    let node = with(node, |s| {
        s.resolv_conf = Some(file);
        s.cluster_dns = vec!["192.0.2.10".parse().unwrap()];
        s.cluster_domain = "cluster.local".into();
    });
    let spec = json!({"hostAliases": [{"ip": "192.0.2.5", "hostnames": ["db", "db.example"]}],
        "dnsConfig": {"nameservers": ["192.0.2.9"], "options": [{"name": "rotate"}]},
        "subdomain": "sub", "setHostnameAsFQDN": true, "securityContext": {"runAsUser": 1000}});
    let text = output(
        &node,
        spec,
        "grep -e web -e db -e '^#' /etc/hosts; cat /etc/resolv.conf /etc/hostname; hostname; echo $HOSTNAME",
    );
    let name = "web.sub.default.svc.cluster.local";
    assert_eq!(
        text,
        format!(
            "# Kubernetes-managed hosts file.\n127.0.0.1\t{name}\tweb\n# Entries added by HostAliases.\n192.0.2.5\tdb\tdb.example\n\
             search default.svc.cluster.local svc.cluster.local cluster.local lan\nnameserver 192.0.2.10\nnameserver 192.0.2.9\n\
             options ndots:5 rotate\n{name}\n{name}\n{name}\n"
        )
    );
    let spec = json!({"dnsPolicy": "Default", "hostNetwork": true, "hostAliases": [{"ip": "192.0.2.5", "hostnames": ["db"]}]});
    let text = output(&node, spec, "cat /etc/hosts /etc/resolv.conf");
    let hosts = fs::read_to_string("/etc/hosts").unwrap();
    assert_eq!(
        text,
        format!(
            "# Kubernetes-managed hosts file (host network).\n{hosts}\n# Entries added by HostAliases.\n192.0.2.5\tdb\n\
             search lan\nnameserver 192.0.2.1\noptions ndots:3\n"
        )
    );
}

/// A full host name that the kernel would not take is an error of the sandbox, before anything of it exists.
fn a_host_name_that_is_too_long(node: &Node) {
    let rt = node.runtime();
    let spec = json!({"subdomain": "s".repeat(60), "setHostnameAsFQDN": true, "containers": [sh("main", "")]});
    let pod = pod("web", spec);
    let error = rt.run_pod_sandbox(&pod, 0).unwrap_err();
    assert!(
        error.message.starts_with("failed to construct FQDN"),
        "{error}"
    );
    assert_eq!(rt.list_pods().unwrap(), []);
    rt.kuberuntime.remove_pod_data(&pod).unwrap();
}

/// Kernel parameters are the pod's own; one that the kernel does not take is an error of the sandbox.
fn sysctls(node: &Node) {
    let names = [
        "net/ipv4/ip_unprivileged_port_start",
        "kernel.shm_rmid_forced",
        "net.ipv4.tcp_syncookies",
    ];
    let of_node = || {
        let read = |name| fs::read_to_string(format!("/proc/sys/{name}")).unwrap();
        [
            "net/ipv4/ip_unprivileged_port_start",
            "kernel/shm_rmid_forced",
        ]
        .map(read)
    };
    let before = of_node();
    let set: Vec<Value> = names
        .iter()
        .map(|n| json!({"name": n, "value": "1"}))
        .collect();
    let spec = json!({"securityContext": {"sysctls": set}});
    let text = output(
        node,
        spec,
        "cd /proc/sys; cat net/ipv4/ip_unprivileged_port_start kernel/shm_rmid_forced net/ipv4/tcp_syncookies",
    );
    assert_eq!(text, "1\n1\n1\n");
    assert_eq!(of_node(), before);

    let rt = node.runtime();
    let bad = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "many"}]);
    let spec = json!({"securityContext": {"sysctls": bad}, "containers": [sh("main", "")]});
    let pod = pod("bad", spec);
    let error = rt.run_pod_sandbox(&pod, 0).unwrap_err().message;
    let cause =
        "cannot set sysctl net.ipv4.ip_unprivileged_port_start to \"many\": Invalid argument";
    assert!(error.contains(cause), "{error}");
    assert_eq!(rt.list_pods().unwrap(), []);
    rt.kuberuntime.remove_pod_data(&pod).unwrap();
}

/// A terminal is the container's input and outputs, in its own /dev/pts; its lines lose their carriage returns.
fn a_terminal(node: &Node) {
    let rt = node.runtime();
    let script = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo $TERM; busybox tty; stat -c %u $(busybox tty); echo x > /dev/tty; \
                  [ -c /dev/console ] && echo console; echo err >&2; printf part";
    let mut container = sh("main", script);
    container["tty"] = json!(true);
    container["securityContext"] = json!({"runAsUser": 1000});
    let pod = pod("web", json!({"containers": [container]}));
    let ended = run_first(node, &rt, &pod);
    let text = fs::read_to_string(&ended.log_path).unwrap();
    // Not by `lines`, which would hide a carriage return.
    let log = text.trim_end_matches('\n').split('\n');
    let lines: Vec<&str> = log.map(|l| l.split_once(' ').unwrap().1).collect();
    let full = ["xterm", "/dev/pts/0", "1000", "x", "console", "err"];
    let mut expected = full.map(|l| format!("stdout F {l}")).to_vec();
    expected.push("stdout P part".into());
    assert_eq!(lines, expected);
    assert_eq!(ended.exit_code, 0);
    node.remove_pod(&rt, &pod);
}

/// Much output, a program that closes the terminal and one that hangs it up: nothing blocks and no line is lost.
fn a_terminal_never_blocks(node: &Node) {
    let rt = node.runtime();
    let script = "n=0; while [ $n -lt 5000 ]; do echo line $n; n=$((n+1)); done; \
                  exec </dev/null >/dev/null 2>&1; sleep 0.2; echo again >/dev/pts/0; \
                  n=0; while [ $n -lt 5000 ]; do echo more $n; n=$((n+1)); done >/dev/pts/0";
    let mut container = sh("main", script);
    container["tty"] = json!(true);
    let pod = pod("web", json!({"containers": [container]}));
    let ended = run_first(node, &rt, &pod);
    let text = lines(&ended);
    assert_eq!(ended.exit_code, 0, "{text}");
    let count = |word: &str| text.lines().filter(|l| l.starts_with(word)).count();
    assert_eq!(
        (count("line "), count("again"), count("more ")),
        (5000, 1, 5000)
    );
    node.remove_pod(&rt, &pod);
}

/// With `stdin` a read waits; without it the end of the file is there at once. Exec works in both.
fn an_input_that_stays_open(node: &Node) {
    for (tty, who) in [(false, 0), (false, 1000), (true, 0)] {
        let rt = node.runtime();
        let mut container = sh("main", "echo up; cat; echo ended; sleep 60");
        container["stdin"] = json!(true);
        container["tty"] = json!(tty);
        container["securityContext"] = json!({"runAsUser": who});
        let pod = pod("web", json!({"containers": [container]}));
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let id = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap();
        node.wait_log(&rt, &pod, &id, " up");
        let waits = "while :; do for p in /proc/[0-9]*; do grep -q ^cat $p/cmdline && grep -q '^State:.S' $p/status && exit 0; \
                     done; sleep 0.01; done 2>/dev/null";
        let command = ["/bin/sh", "-c", waits].map(str::to_owned);
        let ran = rt.exec(&id, &command, CEILING, 1024, None);
        assert!(
            matches!(&ran, Ok(ExecOutcome::Exited { code: 0, .. })),
            "{ran:?}"
        );
        let status = rt.pod_status(pod.uid()).unwrap();
        let text = lines(&status.containers[0]);
        assert_eq!(text, "up\n");
        node.remove_pod(&rt, &pod);
    }
    let text = output(node, json!({}), "cat; readlink /proc/self/fd/0");
    assert_eq!(text, "/dev/null\n");
}

/// A tmpfs on the node; it goes with everything below it, also when the test fails.
struct HostMount(PathBuf);

impl HostMount {
    fn new(at: PathBuf, propagation: MsFlags) -> Self {
        fs::create_dir_all(&at).unwrap();
        let none = None::<&str>;
        mount(Some("tmpfs"), &at, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        mount(none, &at, none, propagation, none).unwrap();
        Self(at)
    }
}

impl Drop for HostMount {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// A pod whose container has a directory of the node at /v, with these fields of the mount.
fn with_volume(name: &str, dir: &Path, fields: Value, privileged: bool, script: &str) -> Pod {
    let mut mount = json!({"name": "v", "mountPath": "/v"});
    mount
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let mut container = sh("main", script);
    container["volumeMounts"] = json!([mount]);
    container["securityContext"] = json!({"privileged": privileged});
    container["env"] = json!([{"name": "WHO", "value": "me"}]);
    pod(
        name,
        json!({"containers": [container], "volumes": [{"name": "v", "hostPath": {"path": dir}}]}),
    )
}

fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.contains(&format!(" {} ", at.display()))
}

/// `$(VAR)` in a sub path; a name without a value keeps the container from being created.
fn sub_path_expressions(node: &Node) {
    let rt = node.runtime();
    let dir = node.dir.path().join("volume");
    fs::create_dir_all(&dir).unwrap();
    let of = |expr: &str| {
        with_volume(
            "web",
            &dir,
            json!({"subPathExpr": expr}),
            false,
            "echo x > /v/f",
        )
    };
    let written = of("logs/$(WHO)");
    assert_eq!(run_first(node, &rt, &written).exit_code, 0);
    assert_eq!(fs::read_to_string(dir.join("logs/me/f")).unwrap(), "x\n");
    node.remove_pod(&rt, &written);

    let missing = of("$(NOBODY)");
    let sandbox = rt.run_pod_sandbox(&missing, 0).unwrap();
    let error = rt
        .start_container(&missing, &sandbox, &missing.spec.containers[0], 0)
        .unwrap_err();
    assert_eq!(error.reason, StartErrorReason::CreateContainerConfigError);
    assert_eq!(error.message, "missing value for NOBODY");
    node.remove_pod(&rt, &missing);
}

/// Plain read-only leaves a mount below the volume writable; recursive does not.
fn recursive_read_only(node: &Node) {
    let rt = node.runtime();
    let dir = node.dir.path().join("volume");
    let _below = HostMount::new(dir.join("below"), MsFlags::MS_PRIVATE);
    let script =
        "touch /v/a 2>/dev/null && echo top; touch /v/below/a 2>/dev/null && echo below; echo end";
    for (mode, expected) in [
        ("Disabled", "below\nend\n"),
        ("IfPossible", "end\n"),
        ("Enabled", "end\n"),
    ] {
        let fields = json!({"readOnly": true, "recursiveReadOnly": mode});
        let pod = with_volume("web", &dir, fields, false, script);
        let ended = run_first(node, &rt, &pod);
        assert_eq!(
            (lines(&ended).as_str(), ended.exit_code),
            (expected, 0),
            "{mode}"
        );
        node.remove_pod(&rt, &pod);
    }
}

/// What is mounted later: of the node in the container, of the container on the node, or neither.
fn mount_propagation(node: &Node) {
    let rt = node.runtime();
    let dir = node.dir.path().join("shared");
    let volume = HostMount::new(dir.clone(), MsFlags::MS_SHARED);
    let start = |name: &str, mode: &str, script: &str| {
        let fields = json!({"mountPropagation": mode});
        let pod = with_volume(name, &dir, fields, mode == "Bidirectional", script);
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let id = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap();
        node.wait_log(&rt, &pod, &id, " up");
        (pod, id)
    };
    let sees = "echo up; until grep -q ' /v/node ' /proc/mounts; do sleep 0.02; done";
    let both = format!("busybox mkdir /v/own; busybox mount -t tmpfs t /v/own && {sees}");
    let blind =
        "echo up; until [ -e /v/go ]; do sleep 0.02; done; ! grep -q ' /v/node ' /proc/mounts";
    let pods = [
        start("both", "Bidirectional", &both),
        start("sees", "HostToContainer", sees),
        start("blind", "None", blind),
    ];
    assert!(is_mounted(&dir.join("own")));
    let below = HostMount::new(dir.join("node"), MsFlags::MS_PRIVATE);
    fs::write(dir.join("go"), "").unwrap();
    for (pod, id) in &pods {
        assert_eq!(
            node.wait_exit(&rt, pod, id).exit_code,
            0,
            "{}",
            pod.metadata.name
        );
        node.remove_pod(&rt, pod);
    }
    let _ = umount2(&dir.join("own"), MntFlags::MNT_DETACH);
    drop((below, volume));
}

/// A mount that is tied to no other cannot pass anything on.
fn propagation_needs_a_shared_mount(node: &Node) {
    let rt = node.runtime();
    let dir = node.dir.path().join("alone");
    let _volume = HostMount::new(dir.clone(), MsFlags::MS_PRIVATE);
    for (mode, wanted) in [
        ("HostToContainer", "shared or slave"),
        ("Bidirectional", "shared"),
    ] {
        let fields = json!({"mountPropagation": mode});
        let pod = with_volume("web", &dir, fields, true, "true");
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let error = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap_err();
        let at = dir.display();
        let cause = format!("path \"{at}\" is mounted on \"{at}\" but it is not a {wanted} mount");
        assert!(error.message.ends_with(&cause), "{}", error.message);
        node.remove_pod(&rt, &pod);
    }
}

on_both!(
    names,
    a_host_name_that_is_too_long,
    sysctls,
    a_terminal,
    a_terminal_never_blocks,
    an_input_that_stays_open,
    sub_path_expressions,
    recursive_read_only,
    mount_propagation,
    propagation_needs_a_shared_mount,
);

/// A pod may ask for another runtime than the daemon's; each container goes on with the one it was created by.
#[test]
fn a_runtime_class_is_another_runtime() {
    support::on_runc(|node| {
        let runc = node.settings.runtime.clone();
        let node = with(node, |s| {
            s.runtime = RuntimeChoice::Embedded;
            s.runtime_classes = [("runc".to_owned(), runc.clone())].into();
        });
        let rt = node.runtime();
        let spec = |class: &str| json!({"runtimeClassName": class, "containers": [sh("main", "echo ran")]});
        let chosen = pod("web", spec("runc"));
        let ended = run_first(&node, &rt, &chosen);
        assert_eq!(lines(&ended), "ran\n");
        let record: ContainerRecord = node.record(&ended.id, CONTAINER);
        assert_eq!(RuntimeChoice::Path(record.runtime[0].clone()), runc);
        node.remove_pod(&rt, &chosen);

        let unknown = pod("web", spec("kata"));
        let error = rt.run_pod_sandbox(&unknown, 0).unwrap_err().message;
        assert_eq!(
            error,
            "no runtime for \"kata\" is configured: runtimeClasses in the configuration has runc"
        );
        assert_eq!(rt.list_pods().unwrap(), []);
        rt.kuberuntime.remove_pod_data(&unknown).unwrap();
    });
}
