//! Tests of the configurations that are made from pods.

use serde_json::json;

use super::*;
use crate::pods::volumes::Volumes;
use crate::test_pods;

const CPUS: &str = "/sys/devices/system/cpu/cpu0/thermal_throttle";

fn pod(spec: serde_json::Value) -> Pod {
    test_pods::pod("web").uid("u1").spec(spec).build()
}

fn build(pod: &Pod, image_user: &str) -> Result<ContainerConfig, String> {
    build_with(pod, image_user, &ImageVolumes::new())
}

fn build_with(
    pod: &Pod,
    image_user: &str,
    image_volumes: &ImageVolumes,
) -> Result<ContainerConfig, String> {
    let context = crate::pods::volumes::Context {
        pod,
        objects: &ObjectSet::default(),
        allocatable: Default::default(),
        node_name: "edge",
        node_labels: &Default::default(),
        claims: Path::new("/claims"),
    };
    let volumes = Volumes::new().set_up(&context, Path::new("/pods/u1"));
    container(&Inputs {
        pod,
        container: &pod.spec.containers[0],
        attempt: 3,
        image_id: "sha256:1",
        image_user,
        volumes: &volumes.unwrap(),
        image_volumes,
        etc_files: &EtcFiles::below(Path::new("/pods/u1")),
        termination_log: Some("/pods/u1/containers/c/3".into()),
        seccomp_profiles: Path::new("/seccomp"),
        node: &NodeFacts {
            memory_capacity: 1 << 30,
            thermal_throttle: vec![CPUS.into()],
            ..NodeFacts::default()
        },
        resource_policy: ResourcePolicy::default(),
        objects: &ObjectSet::default(),
        services: &[],
        pod_ips: &[],
    })
    .map_err(|e| e.to_string())
}

/// Makes the configuration of a container with these fields.
fn of(fields: serde_json::Value) -> Result<ContainerConfig, String> {
    let mut container = json!({"name": "c", "image": "busybox"});
    for (key, value) in fields.as_object().unwrap() {
        container[key] = value.clone();
    }
    build(&pod(json!({"containers": [container]})), "")
}

#[test]
fn a_container_is_found_again_by_its_labels() {
    let config = of(json!({})).unwrap();
    let labels: Vec<_> = config.labels.iter().collect();
    let expected = [
        (labels::CONTAINER_NAME, "c"),
        (labels::POD_NAME, "web"),
        (labels::POD_NAMESPACE, "default"),
        (labels::POD_UID, "u1"),
    ];
    assert_eq!(
        labels,
        expected
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .iter()
            .map(|(k, v)| (k, v))
            .collect::<Vec<_>>()
    );
    let pod = pod(json!({"containers": [{"name": "c", "image": "busybox"}]}));
    let hash = format!("{:x}", spec_hash(&pod.spec.containers[0]));
    assert_eq!(config.annotations[labels::CONTAINER_HASH], hash);
    assert_eq!(config.log_path, Path::new("c/3.log"));
    assert_eq!(
        (config.image.id.as_str(), config.metadata.attempt),
        ("sha256:1", 3)
    );
}

#[track_caller]
fn check_mounts(fields: serde_json::Value, expected: &[(&str, bool)]) {
    let config = of(fields).unwrap();
    let mounts: Vec<_> = config
        .mounts
        .iter()
        .map(|m| (m.container_path.as_str(), m.read_only))
        .collect();
    assert_eq!(mounts, expected);
}

#[test]
fn generated_files_are_mounted_and_shared_ones_are_as_read_only_as_the_root() {
    let etc = |read_only| {
        [
            ("/etc/hosts", false),
            ("/etc/hostname", read_only),
            ("/etc/resolv.conf", read_only),
        ]
    };
    check_mounts(json!({"terminationMessagePath": "/etc/hosts"}), &etc(false));
    let last = [("/dev/termination-log", false)];
    check_mounts(
        json!({"terminationMessagePath": "/dev/termination-log"}),
        &[&etc(false)[..], &last].concat(),
    );
    check_mounts(
        json!({"terminationMessagePath": "/etc/hosts", "securityContext": {"readOnlyRootFilesystem": true}}),
        &etc(true),
    );
}

#[test]
fn a_volume_that_the_pod_does_not_have_is_an_error() {
    let error = of(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})).unwrap_err();
    assert_eq!(
        error,
        "cannot mount volume \"v\": the pod has no such volume"
    );
}

/// An image volume is always mounted read-only, whatever the mount requests. The volume has no path on the node.
#[test]
fn an_image_is_mounted_instead_of_a_path() {
    let image = ImageSpec {
        id: "sha256:2".into(),
        name: "data:1".into(),
    };
    let images = ImageVolumes::from([("v".to_owned(), image.clone())]);
    let of = |more: serde_json::Value| {
        let mut mount = more;
        (mount["name"], mount["mountPath"]) = ("v".into(), "/v".into());
        let mut i = json!({"name": "c", "image": "i"});
        i["volumeMounts"] = json!([mount]);
        let volumes = json!([{"name": "v", "image": {"reference": "data:1"}}]);
        let pod = pod(json!({"containers": [i], "volumes": volumes}));
        build_with(&pod, "", &images).map(|config| config.mounts[0].clone())
    };
    let expected = Mount {
        image: Some(image),
        container_path: "/v".into(),
        read_only: true,
        ..Default::default()
    };
    assert_eq!(of(json!({})), Ok(expected.clone()));
    let below = Mount {
        sub_path: Some("a".into()),
        ..expected.clone()
    };
    assert_eq!(of(json!({"subPath": "a"})), Ok(below));
    assert_eq!(
        of(json!({"mountPropagation": "HostToContainer"})),
        Ok(expected)
    );
    assert_eq!(
        of(json!({"mountPropagation": "Bidirectional"})),
        Err("cannot mount volume \"v\" with mountPropagation Bidirectional: it is an image, where the node sees no mount".into())
    );
}

#[test]
fn capabilities_are_taken_in_any_case_and_with_their_prefix_only_to_be_dropped() {
    let security = of(json!({"securityContext": {"capabilities":
        {"add": ["net_admin", "CAP_SYS_TIME", "Kill", "cap_sys_ptrace"], "drop": ["all", "cap_chown"]}}}))
    .unwrap()
    .security;
    assert_eq!(security.add_capabilities, ["NET_ADMIN", "KILL"]);
    assert_eq!(security.drop_capabilities, ["ALL", "CHOWN"]);
}

#[test]
fn paths_that_tell_of_the_node_are_masked_unless_privileged() {
    let security = of(json!({})).unwrap().security;
    let masked = |path: &str| security.masked_paths.iter().any(|m| m == path);
    assert!(masked("/proc/kcore") && masked("/proc/interrupts") && masked(CPUS));
    assert!(security.readonly_paths.iter().any(|p| p == "/proc/sys"));
    let privileged = of(json!({"securityContext": {"privileged": true,
        "seccompProfile": {"type": "RuntimeDefault"}}}))
    .unwrap()
    .security;
    assert!(privileged.masked_paths.is_empty() && privileged.readonly_paths.is_empty());
    assert_eq!(
        privileged.seccomp,
        crate::engine::runtime::SeccompProfile::Unconfined
    );
}

#[test]
fn the_containers_own_user_wins_over_the_pods() {
    let pod = pod(
        json!({"securityContext": {"runAsUser": 1, "runAsGroup": 2, "supplementalGroups": [3], "fsGroup": 4},
        "containers": [{"name": "c", "image": "i", "securityContext": {"runAsUser": 9}}]}),
    );
    let security = build(&pod, "").unwrap().security;
    assert_eq!(
        (
            security.run_as_user,
            security.run_as_group,
            &security.supplemental_groups[..]
        ),
        (Some(9), Some(2), &[3, 4][..])
    );
    let error = of(json!({"securityContext": {"runAsUser": -1}})).unwrap_err();
    assert!(error.contains("cannot use -1 as runAsUser"), "{error}");
}

#[track_caller]
fn check_non_root(run_as: Option<i64>, image_user: &str, expected: Option<&str>) {
    let pod = pod(json!({"containers": [{"name": "c", "image": "i",
        "securityContext": {"runAsNonRoot": true, "runAsUser": run_as}}]}));
    let whose = "(pod: \"web_default(u1)\", container: c)";
    assert_eq!(
        build(&pod, image_user).err(),
        expected.map(|e| format!("{e} {whose}"))
    );
}

#[test]
fn non_root_in_the_kubelets_words() {
    let breaks = "container's runAsUser breaks non-root policy";
    let as_root = "container has runAsNonRoot and image will run as root";
    check_non_root(Some(0), "5", Some(breaks));
    check_non_root(Some(5), "0", None);
    check_non_root(None, "", Some(as_root));
    check_non_root(None, "0:5", Some(as_root));
    check_non_root(None, "5:0", None);
    check_non_root(
        None,
        "app:5",
        Some(
            "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
        ),
    );
}

#[test]
fn a_sandbox_has_the_namespaces_that_the_pod_asks_for() {
    let of = |spec: serde_json::Value| {
        let pod = pod(spec);
        let n = sandbox(&SandboxInputs {
            pod: &pod,
            attempt: 1,
            hostname: "web",
            runtime_handler: String::new(),
            log_directory: "/logs".into(),
            cgroup_parent: "/podprobe/u1".into(),
            resource_policy: ResourcePolicy::default(),
            volumes: &MountedVolumes::default(),
        })
        .namespaces;
        (n.network, n.pid, n.ipc)
    };
    use NamespaceMode::{Container, Node, Pod as Shared};
    assert_eq!(of(json!({})), (Shared, Container, Shared));
    assert_eq!(
        of(json!({"hostNetwork": true, "hostPID": true, "hostIPC": true})),
        (Node, Node, Node)
    );
    assert_eq!(
        of(json!({"shareProcessNamespace": true})),
        (Shared, Shared, Shared)
    );
}

#[test]
fn a_sandbox_has_the_bandwidth_of_the_pod_s_annotations() {
    let mut pod = pod(json!({}));
    let of = |pod: &Pod| {
        let inputs = SandboxInputs {
            pod,
            attempt: 0,
            hostname: "web",
            runtime_handler: String::new(),
            log_directory: "/logs".into(),
            cgroup_parent: "/podprobe/u1".into(),
            resource_policy: ResourcePolicy::default(),
            volumes: &MountedVolumes::default(),
        };
        sandbox(&inputs).bandwidth
    };
    assert_eq!(of(&pod), Bandwidth::default());
    for (key, rate) in [("ingress", "10M"), ("egress", "1.5k")] {
        let key = format!("kubernetes.io/{key}-bandwidth");
        pod.metadata.annotations.insert(key, rate.into());
    }
    let expected = Bandwidth {
        ingress: Some(10_000_000),
        egress: Some(1500),
    };
    assert_eq!(of(&pod), expected);
}

#[test]
fn a_stop_signal_of_the_spec_is_handed_on() {
    assert_eq!(of(json!({})).unwrap().stop_signal, None);
    let config = of(json!({"lifecycle": {"stopSignal": "SIGUSR1"}})).unwrap();
    assert_eq!(config.stop_signal.as_deref(), Some("SIGUSR1"));
}

#[test]
fn strict_groups_are_the_pods_alone() {
    let strict = |policy: serde_json::Value| {
        let pod = pod(
            json!({"securityContext": {"supplementalGroupsPolicy": policy},
            "containers": [{"name": "c", "image": "i"}]}),
        );
        build(&pod, "").unwrap().security.strict_groups
    };
    assert!(strict(json!("Strict")));
    assert!(!strict(json!("Merge")) && !strict(json!(null)));
}
