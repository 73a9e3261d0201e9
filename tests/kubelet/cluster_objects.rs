//! The ConfigMaps, Secrets and service account tokens of an API server in the pods of a real daemon (kubelet-probes 6.5,
//! 9.12).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::cluster::{
    HEEDS_TERM, end, in_a_cluster, in_a_cluster_with, is_ready, label_node, wait_for_label,
    wait_ready,
};
use crate::support::api_server::ApiServer;
use crate::support::daemon::{Day, NODE};
use crate::support::{self, wait_until};

/// Where a container finds the volume that API servers give to every pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn config_map(server: &ApiServer, name: &str, data: Value) {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default"}, "data": data});
    server.put("configmaps", object);
}

fn secret(server: &ApiServer, name: &str, data: Value) {
    let object = json!({"kind": "Secret", "apiVersion": "v1", "type": "Opaque",
        "metadata": {"name": name, "namespace": "default"}, "data": data});
    server.put("secrets", object);
}

/// The volume that API servers give to every pod, as it was recorded.
fn account_volume() -> Value {
    json!({"name": "kube-api-access-x2j4k", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
        {"downwardAPI": {"items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]}},
    ]}})
}

/// A pod with more volumes, each mounted at the path beside it.
fn spec(day: &Day<'_>, name: &str, volumes: &[(Value, &str)]) -> Value {
    let mut spec = day.pod(name, HEEDS_TERM, json!({}))["spec"].clone();
    for (volume, at) in volumes {
        let mount = json!({"name": volume["name"], "mountPath": at, "readOnly": true});
        let mounts = spec["containers"][0]["volumeMounts"].as_array_mut();
        mounts.unwrap().push(mount);
        spec["volumes"].as_array_mut().unwrap().push(volume.clone());
    }
    spec
}

fn with_account(day: &Day<'_>, name: &str) -> Value {
    let mut spec = spec(day, name, &[(account_volume(), ACCOUNT)]);
    spec["serviceAccountName"] = "default".into();
    spec["serviceAccount"] = "default".into();
    spec["automountServiceAccountToken"] = true.into();
    spec
}

/// What a file in the pod's container says.
fn file(day: &Day<'_>, pod: &str, path: &str) -> String {
    day.says(&["exec", pod, "--", "cat", path])
}

#[track_caller]
fn wait_for_file(day: &Day<'_>, pod: &str, path: &str, content: &str) {
    wait_until(&format!("{path} to say {content}"), || {
        file(day, pod, path) == content
    });
}

fn has_event(server: &ApiServer, reason: &str, text: &str) -> bool {
    let events = server.all("events").into_iter();
    events
        .filter(|e| e["reason"] == reason)
        .any(|e| e["message"].as_str().unwrap().contains(text))
}

#[test]
fn a_pod_has_its_token_the_certificate_of_the_cluster_and_its_namespace() {
    in_a_cluster(|server, day| {
        config_map(
            server,
            "kube-root-ca.crt",
            json!({"ca.crt": "<certificate>"}),
        );
        server.create_pod("web", with_account(&day, "web"));
        wait_ready(server, "web");
        let at = |name: &str| format!("{ACCOUNT}/{name}");
        assert_eq!(file(&day, "web", &at("token")), "token-default-1");
        assert_eq!(file(&day, "web", &at("ca.crt")), "<certificate>");
        assert_eq!(file(&day, "web", &at("namespace")), "default");
        let failed = has_event(server, "FailedMount", "");
        assert!(!failed, "a pod that waits for a first answer says nothing");
        let log = day.log();
        assert!(!log.contains("not acted on"), "{log}");
        end(server, day);
    });
}

#[test]
fn only_the_user_of_the_pod_reads_its_token() {
    in_a_cluster(|server, day| {
        config_map(server, "kube-root-ca.crt", json!({"ca.crt": "c"}));
        let mut spec = with_account(&day, "web");
        spec["containers"][0]["command"] = json!(["/bin/sh", "-c", HEEDS_TERM]);
        spec["securityContext"] = json!({"runAsUser": 1000});
        server.create_pod("web", spec);
        wait_ready(server, "web");
        let token = format!("{ACCOUNT}/..data/token");
        let shown = day.says(&[
            "exec", "web", "--", "busybox", "stat", "-c", "%a %u", &token,
        ]);
        assert_eq!(shown.trim(), "600 1000");
        end(server, day);
    });
}

#[test]
fn a_token_is_renewed_before_it_expires_and_nothing_restarts() {
    in_a_cluster(|server, day| {
        config_map(server, "kube-root-ca.crt", json!({"ca.crt": "c"}));
        server.issue_tokens_for(Duration::from_secs(2));
        server.create_pod("web", with_account(&day, "web"));
        wait_ready(server, "web");
        server.issue_tokens_for(Duration::from_secs(3600));
        let token = format!("{ACCOUNT}/token");
        wait_until("the second token", || {
            file(&day, "web", &token) != "token-default-1"
        });
        day.check_starts("web", 1);
        end(server, day);
    });
}

#[test]
fn a_pod_without_its_service_account_waits_and_says_why() {
    in_a_cluster(|server, day| {
        config_map(server, "kube-root-ca.crt", json!({"ca.crt": "c"}));
        let mut spec = with_account(&day, "web");
        spec["serviceAccountName"] = "robot".into();
        server.create_pod("web", spec);
        let why = "failed to fetch token: serviceaccounts \"robot\" not found";
        wait_until("the reason", || has_event(server, "FailedMount", why));
        let account = json!({"metadata": {"name": "robot", "namespace": "default"}});
        server.put("serviceaccounts", account);
        wait_ready(server, "web");
        assert!(file(&day, "web", &format!("{ACCOUNT}/token")).starts_with("token-robot-"));
        end(server, day);
    });
}

#[test]
fn a_running_pod_sees_changes_of_its_volumes_and_keeps_its_variables() {
    in_a_cluster(|server, day| {
        config_map(server, "settings", json!({"color": "red"}));
        secret(server, "login", json!({"user": "dTE="}));
        let volumes = [
            (
                json!({"name": "settings", "configMap": {"name": "settings"}}),
                "/settings",
            ),
            (
                json!({"name": "login", "secret": {"secretName": "login"}}),
                "/login",
            ),
        ];
        let mut spec = spec(&day, "web", &volumes);
        spec["containers"][0]["envFrom"] = json!([
            {"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "login"}},
            {"configMapRef": {"name": "none", "optional": true}}]);
        server.create_pod("web", spec);
        wait_ready(server, "web");
        assert_eq!(file(&day, "web", "/settings/color"), "red");
        assert_eq!(file(&day, "web", "/login/user"), "u1");
        let variables = || day.says(&["exec", "web", "--", "sh", "-c", "echo $color $user"]);
        assert_eq!(variables(), "red u1\n");
        config_map(server, "settings", json!({"color": "blue"}));
        secret(server, "login", json!({"user": "dTI="}));
        wait_for_file(&day, "web", "/settings/color", "blue");
        wait_for_file(&day, "web", "/login/user", "u2");
        server.remove("configmaps", "default", "settings");
        wait_until("the removal to be said", || {
            has_event(server, "FailedMount", "configmap \"settings\" not found")
        });
        assert_eq!(
            file(&day, "web", "/settings/color"),
            "blue",
            "the last is kept"
        );
        day.check_starts("web", 1);
        end(server, day);
    });
}

#[test]
fn a_pod_waits_for_objects_that_are_missing_and_starts_when_they_come() {
    in_a_cluster(|server, day| {
        let volume = json!({"name": "login", "secret": {"secretName": "login"}});
        server.create_pod("volume", spec(&day, "volume", &[(volume, "/login")]));
        let mut of_env = spec(&day, "env", &[]);
        of_env["containers"][0]["env"] = json!([{"name": "A", "valueFrom": {
            "configMapKeyRef": {"name": "settings", "key": "a"}}}]);
        server.create_pod("env", of_env);
        wait_until("the reason of the volume", || {
            has_event(server, "FailedMount", "secret \"login\" not found")
        });
        let waits = |pod: &Value| {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
                && waiting["message"] == "configmap \"settings\" not found"
        };
        server.wait_for_pod("env", waits);
        secret(server, "login", json!({"k": "dg=="}));
        config_map(server, "settings", json!({"a": "1"}));
        wait_ready(server, "volume");
        wait_ready(server, "env");
        end(server, day);
    });
}

/// A pod file on the node and an object in the cluster with the same name are two things.
#[test]
fn pods_of_files_and_of_the_api_server_have_objects_of_their_own() {
    in_a_cluster(|server, day| {
        let volume = json!({"name": "v", "configMap": {"name": "settings"}});
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "settings"},
            "data": {"from": "file"}});
        day.put("settings", &map);
        config_map(server, "settings", json!({"from": "cluster"}));
        let of_api = spec(&day, "of-api", &[(volume.clone(), "/v")]);
        server.create_pod("of-api", of_api);
        let mut of_file = day.pod("of-file", HEEDS_TERM, json!({}));
        of_file["spec"] = spec(&day, "of-file", &[(volume, "/v")]);
        day.put("of-file", of_file);
        wait_ready(server, "of-api");
        day.wait_ready("of-file");
        assert_eq!(file(&day, "of-api", "/v/from"), "cluster");
        assert_eq!(file(&day, "of-file-edge", "/v/from"), "file");
        day.delete("of-file");
        end(server, day);
    });
}

#[test]
fn a_node_that_boots_without_the_link_has_the_objects_of_its_pods() {
    in_a_cluster(|server, mut day| {
        config_map(
            server,
            "kube-root-ca.crt",
            json!({"ca.crt": "<certificate>"}),
        );
        secret(server, "login", json!({"user": "dTE="}));
        let mut spec = with_account(&day, "web");
        spec["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "login"}}]);
        let life = Duration::from_secs(2);
        server.issue_tokens_for(life);
        server.create_pod("web", spec);
        wait_ready(server, "web");
        server.down();
        day.cut_power();
        let expires = Instant::now() + life;
        let kept = day.node.layout.kept_objects();
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 3);
        wait_until("the token to expire", || Instant::now() > expires);
        day.start();
        day.check_starts("web", 2);
        let certificate = format!("{ACCOUNT}/ca.crt");
        wait_for_file(&day, "web", &certificate, "<certificate>");
        assert!(file(&day, "web", &format!("{ACCOUNT}/token")).starts_with("token-default-"));
        day.log_with(&["the token of the service account default", "has expired"]);
        server.up();
        let token = format!("{ACCOUNT}/token");
        let before = file(&day, "web", &token);
        wait_until("a new token", || file(&day, "web", &token) != before);
        day.check_starts("web", 2);
        server.wait_for_pod("web", is_ready);
        server.delete_pod("web", 1);
        server.wait_until_gone("web");
        wait_until("what no pod uses to be removed", || {
            fs::read_dir(&kept).unwrap().count() == 0
        });
        end(server, day);
    });
}

/// The class says which runtime a new sandbox gets. What runs keeps its own, also when the class is gone.
#[test]
fn a_runtime_class_of_the_cluster_names_the_runtime() {
    let config = |_: &ApiServer| json!({"runtimeClasses": {"second": "embedded"}});
    in_a_cluster_with(config, |server, mut day| {
        let class = |handler: &str| {
            let class = json!({"kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1",
                "metadata": {"name": "slow"}, "handler": handler,
                "overhead": {"podFixed": {"cpu": "10m"}}, "scheduling": {"nodeSelector": {"a": "b"}}});
            server.put("runtimeclasses", class);
        };
        let fails_with = |text: &str| {
            wait_until(text, || has_event(server, "FailedCreatePodSandBox", text));
        };
        let spec = |name: &str| {
            let mut spec = spec(&day, name, &[]);
            spec["runtimeClassName"] = "slow".into();
            spec
        };
        let web = spec("web");
        server.create_pod("web", web);
        fails_with("runtimeclass.node.k8s.io \"slow\" not found");
        class("kata");
        fails_with(
            "no runtime for \"kata\" is configured: runtimeClasses in the configuration has second",
        );
        class("second");
        wait_ready(server, "web");
        server.remove("runtimeclasses", "", "slow");
        day.crash();
        kill(Pid::from_raw(day.process("web").pid), Signal::SIGKILL).unwrap();
        wait_until("another start", || day.starts("web").len() == 2);
        wait_ready(server, "web");
        end(server, day);
    });
}

/// A server takes about a hundred streams of a connection, and a Lease that waits for one costs the node.
#[test]
fn many_objects_cost_few_watches() {
    in_a_cluster(|server, day| {
        let mut sources = Vec::new();
        for number in 0..90 {
            let name = format!("m{number}");
            config_map(server, &name, json!({name.as_str(): "v"}));
            sources.push(json!({"configMap": {"name": name}}));
        }
        let volume = json!({"name": "all", "projected": {"sources": sources}});
        server.create_pod("web", spec(&day, "web", &[(volume, "/all")]));
        wait_ready(server, "web");
        let names = day.says(&["exec", "web", "--", "busybox", "ls", "/all"]);
        assert_eq!(names.split_whitespace().count(), 90);
        let watches = server.count("GET", "/configmaps?");
        assert!((55..=64).contains(&watches), "{watches}");
        assert_eq!(server.count("GET", "/configmaps/m"), 90 - watches);
        end(server, day);
    });
}

#[test]
fn an_object_that_never_changes_is_watched_no_longer() {
    in_a_cluster(|server, day| {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "immutable": true,
            "metadata": {"name": "fixed", "namespace": "default"}, "data": {"k": "v"}});
        server.put("configmaps", object);
        let volume = json!({"name": "v", "configMap": {"name": "fixed"}});
        server.create_pod("web", spec(&day, "web", &[(volume, "/v")]));
        wait_ready(server, "web");
        assert_eq!(server.count("GET", "/configmaps?"), 1);
        server.cut();
        wait_until("a new connection", || {
            server.count("GET", "/api/v1/pods?") > 1
        });
        server.create_pod("after", spec(&day, "after", &[]));
        wait_ready(server, "after");
        assert_eq!(server.count("GET", "/configmaps?"), 1);
        end(server, day);
    });
}

#[test]
fn a_pod_has_variables_for_the_services_of_its_namespace() {
    in_a_cluster(|server, day| {
        for (namespace, name, address) in [
            ("default", "kubernetes", "10.96.0.1"),
            ("default", "my-db", "10.96.0.7"),
            ("other", "far", "10.96.0.9"),
        ] {
            let service = json!({"kind": "Service", "apiVersion": "v1",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"clusterIP": address, "clusterIPs": [address], "type": "ClusterIP",
                    "ports": [{"name": "main", "port": 5432, "protocol": "TCP", "targetPort": 5432}]}});
            server.put("services", service);
        }
        server.create_pod("web", spec(&day, "web", &[]));
        wait_ready(server, "web");
        let shown = "echo $KUBERNETES_SERVICE_HOST $MY_DB_SERVICE_HOST:$MY_DB_SERVICE_PORT_MAIN $FAR_SERVICE_HOST";
        let said = day.says(&["exec", "web", "--", "sh", "-c", shown]);
        assert_eq!(said, "10.96.0.1 10.96.0.7:5432\n");
        let mut without = spec(&day, "without", &[]);
        without["enableServiceLinks"] = false.into();
        server.create_pod("without", without);
        wait_ready(server, "without");
        let said = day.says(&["exec", "without", "--", "sh", "-c", shown]);
        assert_eq!(said, "10.96.0.1 :\n");
        end(server, day);
    });
}

/// A claim, and the volume that it is bound to; None for one that waits for its volume.
fn claim(server: &ApiServer, name: &str, source: Option<Value>) {
    let new = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Pending"}});
    let old = server.get("persistentvolumeclaims", "default", name);
    let mut claim = old.unwrap_or_else(|| server.put("persistentvolumeclaims", new));
    let Some(source) = source else {
        return;
    };
    let of = json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": claim["metadata"]["uid"]});
    let mut spec =
        json!({"capacity": {"storage": "1Gi"}, "claimRef": of, "volumeMode": "Filesystem"});
    let source = source.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(source);
    let volume = format!("pv-{name}");
    server.put(
        "persistentvolumes",
        json!({"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": volume}, "spec": spec}),
    );
    claim["spec"]["volumeName"] = volume.into();
    claim["status"]["phase"] = "Bound".into();
    server.put("persistentvolumeclaims", claim);
}

/// A pod that writes into a claim at /data, whose files are given to a group.
fn with_claim(day: &Day<'_>, name: &str, claim: &str) -> Value {
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
    let mut spec = spec(day, name, &[(volume, "/data")]);
    let mounts = spec["containers"][0]["volumeMounts"].as_array_mut();
    let mount = mounts.unwrap().iter_mut().find(|m| m["name"] == "data");
    mount.unwrap()["readOnly"] = false.into();
    spec["securityContext"] = json!({"fsGroup": 2000});
    spec
}

#[test]
fn a_claim_of_the_cluster_is_the_path_of_its_volume() {
    in_a_cluster(|server, mut day| {
        let dir = |name: &str| day.node.dir.path().join(name);
        let (path, local) = (dir("host-path"), dir("local"));
        fs::create_dir(&local).unwrap();
        claim(server, "late", None);
        claim(server, "local", Some(json!({"local": {"path": local}})));
        for (pod, of) in [("web", "late"), ("db", "local"), ("none", "missing")] {
            server.create_pod(pod, with_claim(&day, pod, of));
        }
        let fails_with = |text: &str| {
            wait_until(text, || has_event(server, "FailedMount", text));
        };
        wait_ready(server, "db");
        fails_with("error processing PVC default/late: PVC is not bound");
        fails_with("persistentvolumeclaim \"missing\" not found");
        let made = json!({"hostPath": {"path": path, "type": "DirectoryOrCreate"}});
        claim(server, "late", Some(made));
        wait_ready(server, "web");
        for (pod, dir, group) in [("web", &path, 0), ("db", &local, 2000)] {
            day.says(&[
                "exec",
                pod,
                "--",
                "/bin/sh",
                "-c",
                "echo written >/data/file",
            ]);
            assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "written\n");
            assert_eq!(fs::metadata(dir).unwrap().gid(), group, "{pod}");
        }

        // A boot without the link.
        server.down();
        day.cut_power();
        day.start();
        day.check_starts("web", 2);
        day.check_starts("db", 2);
        wait_for_file(&day, "web", "/data/file", "written\n");
        server.up();
        for name in ["web", "db", "none"] {
            server.delete_pod(name, 1);
            server.wait_until_gone(name);
        }
        assert!(path.join("file").exists() && local.join("file").exists());
        let kept = day.node.layout.kept_objects();
        wait_until("what no pod uses to be removed", || {
            fs::read_dir(&kept).unwrap().count() == 0
        });
        end(server, day);
    });
}

#[test]
fn a_volume_that_podprobe_cannot_mount_is_named() {
    in_a_cluster(|server, day| {
        let dir = day.node.dir.path();
        let missing = dir.join("missing");
        let of_node = |name: &str| {
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]}})
        };
        let local = |affinity: Value| json!({"local": {"path": dir}, "nodeAffinity": affinity});
        for (name, source, text) in [
            (
                "remote",
                json!({"csi": {"driver": "csi.example", "volumeHandle": "1"}}),
                "PersistentVolume pv-remote is of type csi; podprobe mounts hostPath and local volumes".to_owned(),
            ),
            (
                "elsewhere",
                local(of_node("another")),
                "MountVolume.NodeAffinity check failed: no matching NodeSelectorTerms: the nodeAffinity of the PersistentVolume does not fit the labels of this node".to_owned(),
            ),
            (
                "options",
                json!({"hostPath": {"path": dir}, "mountOptions": ["noexec"]}),
                "PersistentVolume pv-options has mountOptions, and podprobe applies none: the path is used as the node has mounted it".to_owned(),
            ),
            (
                "missing",
                json!({"local": {"path": missing}, "nodeAffinity": of_node(NODE)}),
                format!("PersistentVolume pv-missing: {} is no directory of this node; create it there, as podprobe does not", missing.display()),
            ),
        ] {
            claim(server, name, Some(source));
            server.create_pod(name, with_claim(&day, name, name));
            let text = format!("error processing PVC default/{name}: {text}");
            wait_until(&text, || has_event(server, "FailedMount", &text));
        }
        fs::create_dir(&missing).unwrap();
        wait_ready(server, "missing");
        end(server, day);
    });
}

/// A kubelet looks at the nodes of a volume before it mounts it, and not when a container of the pod starts again.
#[test]
fn a_container_starts_again_with_the_volume_that_its_pod_has() {
    in_a_cluster(|server, day| {
        let dir = day.node.dir.path().join("local");
        fs::create_dir(&dir).unwrap();
        label_node(server, "ssd");
        let terms =
            json!([{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]);
        let affinity = json!({"required": {"nodeSelectorTerms": terms}});
        let source = json!({"local": {"path": dir}, "nodeAffinity": affinity});
        claim(server, "data", Some(source));
        // The node may hear of its label after it has tried to mount the volume.
        server.create_pod("web", with_claim(&day, "web", "data"));
        wait_ready(server, "web");
        fs::write(dir.join("file"), "kept\n").unwrap();
        label_node(server, "hdd");
        wait_for_label(&day, "hdd");
        support::kill9(day.process("web"));
        server.wait_for_pod("web", |pod| {
            is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1
        });
        wait_for_file(&day, "web", "/data/file", "kept\n");
        end(server, day);
    });
}
