use serde_json::{Value, json};

use super::*;
use crate::api::service::{ClusterIps, Protocol, ServiceType};
use crate::net::services::table::{ServicePortEntry, ServicePortName};
use crate::test_pods;

const NODE: NodeLabels<'static> = NodeLabels {
    name: "edge",
    ip: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
};

fn status(value: Value) -> PodStatus {
    serde_json::from_value(value).unwrap()
}

fn text(pod: &Pod, status: &PodStatus) -> String {
    text_of(pod, status, None)
}

fn text_of(pod: &Pod, status: &PodStatus, owner: Option<&Owner>) -> String {
    let mut out = String::new();
    let state = PodState { pod, status, owner };
    write_pods(&[state], NODE, &mut out);
    out
}

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "{line} in\n{text}");
    }
}

fn web() -> Pod {
    let spec = json!({"initContainers": [{"name": "init", "image": "setup"}],
        "containers": [{"name": "c", "image": "web", "resources":
            {"limits": {"cpu": "250m", "memory": "64Mi", "hugepages-2Mi": "2Mi"}}}]});
    test_pods::pod("web").uid("u").spec(spec).build()
}

/// Container metrics are of the containers that a pod is made of.
#[test]
fn an_ephemeral_container_is_not_among_the_containers() {
    let spec = json!({"containers": [{"name": "c", "image": "web"}],
        "ephemeralContainers": [{"name": "look", "image": "busybox"}]});
    let pod = test_pods::pod("web").uid("u").spec(spec).build();
    let running = |name: &str| {
        json!({"name": name, "containerID": format!("podprobe://{name}"), "image": "i",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
    };
    let status = status(
        json!({"phase": "Running", "containerStatuses": [running("c")],
        "ephemeralContainerStatuses": [running("look")]}),
    );
    let text = text(&pod, &status);
    assert!(
        text.contains(r#"container="c""#) && !text.contains("look"),
        "{text}"
    );
}

#[test]
fn a_pod_that_runs_again_after_it_was_killed_for_memory() {
    let status = status(
        json!({"phase": "Running", "podIP": "10.0.0.9", "startTime": "1970-01-01T00:01:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}],
        "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
        "containerStatuses": [{"name": "c", "ready": true, "restartCount": 3, "image": "web:1", "imageID": "sha256:1",
            "containerID": "podprobe://x", "state": {"running": {"startedAt": "1970-01-01T00:02:00Z"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "1970-01-01T00:01:50Z"}}}]}),
    );
    let pod = web();
    let text = text(&pod, &status);
    let of = r#"namespace="default",pod="web",uid="u""#;
    let c = format!(r#"container="c",{of}"#);
    let init = format!(r#"container="init",{of}"#);
    has(
        &text,
        &[
            &format!(
                r#"kube_pod_info{{{of},created_by_kind="Node",created_by_name="edge",host_ip="192.0.2.1",host_network="false",node="edge",pod_ip="10.0.0.9",priority_class=""}} 1"#
            ),
            &format!("kube_pod_start_time{{{of}}} 60"),
            &format!(r#"kube_pod_restart_policy{{{of},type="Always"}} 1"#),
            &format!(r#"kube_pod_status_phase{{{of},phase="Running"}} 1"#),
            &format!(r#"kube_pod_status_phase{{{of},phase="Pending"}} 0"#),
            &format!(r#"kube_pod_status_ready{{{of},condition="true"}} 1"#),
            &format!(r#"kube_pod_status_ready{{{of},condition="false"}} 0"#),
            &format!(
                r#"kube_pod_container_info{{{c},container_id="podprobe://x",image="web:1",image_id="sha256:1",image_spec="web"}} 1"#
            ),
            &format!("kube_pod_container_status_restarts_total{{{c}}} 3"),
            "# TYPE kube_pod_container_status_restarts_total counter",
            &format!("kube_pod_container_status_running{{{c}}} 1"),
            &format!("kube_pod_container_status_ready{{{c}}} 1"),
            &format!("kube_pod_container_state_started{{{c}}} 120"),
            &format!(
                r#"kube_pod_container_status_last_terminated_reason{{{c},reason="OOMKilled"}} 1"#
            ),
            &format!("kube_pod_container_status_last_terminated_exitcode{{{c}}} 137"),
            &format!("kube_pod_container_status_last_terminated_timestamp{{{c}}} 110"),
            &format!(
                r#"kube_pod_container_resource_limits{{{c},node="edge",resource="cpu",unit="core"}} 0.25"#
            ),
            &format!(
                r#"kube_pod_container_resource_limits{{{c},node="edge",resource="memory",unit="byte"}} 67108864"#
            ),
            &format!(
                r#"kube_pod_container_resource_limits{{{c},node="edge",resource="hugepages_2Mi",unit="byte"}} 2097152"#
            ),
            &format!(
                r#"kube_pod_init_container_status_terminated_reason{{{init},reason="Completed"}} 1"#
            ),
        ],
    );
    assert!(!text.contains("waiting_reason{"), "nothing waits");
    assert!(!text.contains("kube_pod_status_reason"), "it has none");
}

#[test]
fn a_pod_that_waits_or_was_refused_says_why_and_has_no_time_that_is_unknown() {
    let waits = status(json!({"phase": "Pending", "containerStatuses":
        [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}));
    let pod = web();
    let text_of = |status: &PodStatus| text(&pod, status);
    let text = text_of(&waits);
    let of = r#"container="c",namespace="default",pod="web",uid="u""#;
    has(
        &text,
        &[
            &format!(
                r#"kube_pod_container_status_waiting_reason{{{of},reason="ImagePullBackOff"}} 1"#
            ),
            &format!("kube_pod_container_status_waiting{{{of}}} 1"),
            &format!("kube_pod_container_status_running{{{of}}} 0"),
        ],
    );
    for unknown in [
        "kube_pod_start_time",
        "state_started",
        "exitcode",
        "kube_pod_init_container_info",
    ] {
        assert!(!text.contains(unknown), "{unknown} in\n{text}");
    }
    let refused = status(json!({"phase": "Failed", "reason": "NodePorts"}));
    let of = r#"namespace="default",pod="web",uid="u""#;
    has(
        &text_of(&refused),
        &[&format!(
            r#"kube_pod_status_reason{{{of},reason="NodePorts"}} 1"#
        )],
    );
    let ended = json!([{"name": "c", "state": {"terminated": {"exitCode": 0, "finishedAt": "1970-01-01T00:03:00Z"}}}]);
    let ended = status(json!({"phase": "Succeeded", "containerStatuses": ended}));
    let text = text_of(&ended);
    has(&text, &[&format!("kube_pod_completion_time{{{of}}} 180")]);
    assert!(!text.contains("_reason{"), "an empty one is none:\n{text}");
}

#[test]
fn a_service_has_its_address_its_type_and_its_endpoints() {
    let web = Service::default();
    let outside = Service {
        type_: ServiceType::ExternalName,
        external_name: "db.example".into(),
        ..Service::default()
    };
    let headless = Service {
        cluster_ips: ClusterIps::Headless,
        ..Service::default()
    };
    let state = |name, service, cluster_ip| ServiceState {
        namespace: "default",
        name,
        service,
        cluster_ip,
    };
    let address = Some(IpAddr::from([10, 96, 0, 7]));
    let all = [
        state("web", &web, address),
        state("db", &outside, None),
        state("all", &headless, None),
    ];
    let entry = |port: &str, number, backends| {
        let name = ServicePortName {
            namespace: "default".into(),
            service: "web".into(),
            port: port.into(),
            protocol: Protocol::Tcp,
        };
        ServicePortEntry::new(name, number, vec![], backends)
    };
    let one = std::net::SocketAddr::from(([10, 0, 0, 9], 8080));
    let table = ServiceTable {
        services: vec![
            entry("a", 80, Backends::Some(vec![one.into()])),
            entry("b", 81, Backends::Reject),
        ],
        ..ServiceTable::default()
    };
    let mut out = String::new();
    write_services(&all, &table, &mut out);
    let of = |name: &str| format!(r#"namespace="default",service="{name}""#);
    let none = r#"external_name="",load_balancer_ip="""#;
    has(
        &out,
        &[
            &format!(
                r#"kube_service_info{{{},cluster_ip="10.96.0.7",{none}}} 1"#,
                of("web")
            ),
            &format!(
                r#"kube_service_info{{{},cluster_ip="None",{none}}} 1"#,
                of("all")
            ),
            &format!(
                r#"kube_service_info{{{},cluster_ip="",external_name="db.example",load_balancer_ip=""}} 1"#,
                of("db")
            ),
            &format!(
                r#"kube_service_spec_type{{{},type="ExternalName"}} 1"#,
                of("db")
            ),
            r#"podprobe_service_endpoints{namespace="default",port="80",protocol="TCP",service="web"} 1"#,
            r#"podprobe_service_endpoints{namespace="default",port="81",protocol="TCP",service="web"} 0"#,
        ],
    );
}

#[test]
fn the_owner_of_a_pod_is_its_controller_and_of_a_static_pod_the_node() {
    let references = json!([{"kind": "ReplicaSet", "name": "web-1", "controller": true}]);
    let owned = || {
        let pod = test_pods::pod("web").uid("u");
        pod.edit(|object| object["metadata"]["ownerReferences"] = references.clone())
    };
    let set = Owner {
        kind: "ReplicaSet".into(),
        name: "web-1".into(),
        ..Owner::default()
    };
    let of = r#"namespace="default",pod="web",uid="u""#;
    let owner = |kind: &str, name: &str| {
        format!(
            r#"kube_pod_owner{{{of},owner_is_controller="true",owner_kind="{kind}",owner_name="{name}"}} 1"#
        )
    };
    let info = |kind: &str, name: &str| {
        format!(r#"kube_pod_info{{{of},created_by_kind="{kind}",created_by_name="{name}","#)
    };
    let made = text_of(&web(), &PodStatus::default(), Some(&set));
    has(&made, &[&owner("ReplicaSet", "web-1")]);
    assert!(made.contains(&info("ReplicaSet", "web-1")), "{made}");
    // owner references in a file are not acted on
    let written = text(&owned().build(), &PodStatus::default());
    has(&written, &[&owner("Node", "edge")]);
    assert!(written.contains(&info("Node", "edge")), "{written}");
}
