use serde_json::json;

use std::path::Path;

use super::*;

fn decode(text: &str) -> Result<Vec<DecodedPod>, DecodeError> {
    pods(text.as_bytes(), &source())
}

fn pods(bytes: &[u8], origin: &PodOrigin) -> Result<Vec<DecodedPod>, DecodeError> {
    objects(bytes, origin).map(|decoded| decoded.pods)
}

fn source() -> PodOrigin<'static> {
    PodOrigin::File {
        node_name: "node1",
        path: Path::new("/pods/web.json"),
    }
}

#[track_caller]
fn good(pod: &Value) -> DecodedPod {
    let mut pods = decode(&pod.to_string()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(pods.len(), 1);
    pods.remove(0)
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    pod["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    pod
}

fn container(more: Value) -> Value {
    let mut pod = pod(json!({}));
    pod["spec"]["containers"][0]
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    pod
}

/// Checks the whole text of the error, without the file name.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let error = decode(text).unwrap_err().to_string();
    let lines: Vec<&str> = error
        .lines()
        .map(|line| line.strip_prefix("/pods/web.json:").unwrap())
        .collect();
    assert_eq!(lines, expected);
}

/// Checks the errors of a pod, without their positions.
#[track_caller]
fn check_pod(pod: Value, expected: &[&str]) {
    let error = decode(&pod.to_string()).unwrap_err();
    assert_eq!(
        error
            .problems()
            .iter()
            .map(|problem| problem.text.as_str())
            .collect::<Vec<_>>(),
        expected
    );
}

const PROBED: &str = r#"{
  "apiVersion": "v1",
  "kind": "Pod",
  "metadata": {"name": "web", "labels": {"app": "web"}},
  "spec": {
    "containers": [
      {
        "name": "c",
        "image": "web:1",
        "env": [{"name": "A", "value": "1"}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "livenessProbe": {"httpGet": {"port": "http"}, "timeoutSeconds": 0},
        "readinessProbe": {"exec": {"command": ["cat", "/ready"]}, "timeoutSeconds": 2},
        "resources": {"limits": {"cpu": 0.5, "memory": "64Mi"}},
        "securityContext": {"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]
      }
    ],
    "volumes": [{"name": "v", "emptyDir": {}}]
  }
}"#;

#[test]
fn a_pod_has_its_defaults_in_both_views() {
    let mut pods = decode(PROBED).unwrap();
    let DecodedPod { pod, warnings } = pods.remove(0);
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(
        (pod.metadata.name.as_str(), pod.metadata.namespace.as_str()),
        ("web-node1", "default")
    );
    assert_eq!(
        pod.raw.value()["metadata"]["uid"],
        pod.metadata.uid.as_str()
    );
    let probe = pod.spec.containers[0].liveness_probe.as_ref().unwrap();
    assert_eq!(
        (
            probe.timeout_seconds,
            probe.period_seconds,
            probe.success_threshold,
            probe.failure_threshold
        ),
        (1, 10, 1, 3)
    );
    assert_eq!(
        pod.raw
            .at("/spec/containers/0/livenessProbe/timeoutSeconds"),
        Some(json!(1))
    );
    assert_eq!(
        pod.raw.at("/spec/containers/0/resources/requests/memory"),
        Some(json!("64Mi"))
    );
    assert_eq!(
        pod.spec.containers[0].resources.requests["cpu"].milli_value(),
        Some(500)
    );
    assert_eq!(pod.spec.termination_grace_period_seconds, Some(30));
}

#[test]
fn what_a_static_pod_may_not_reference_and_pods_in_lists() {
    check_pod(
        pod(
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "a"}}]}}]}),
        ),
        &[
            "spec.volumes[0].projected.sources[0].clusterTrustBundle: Forbidden: static pods may not reference clustertrustbundles: only an API server has them, and there is none",
        ],
    );
    check_pod(
        pod(json!({"resourceClaims": [{"name": "c"}]})),
        &["spec.resourceClaims: Forbidden: static pods may not reference resourceclaims"],
    );
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}, pod(json!({}))]});
    let pods = decode(&list.to_string()).unwrap();
    assert_eq!(
        pods.iter()
            .map(|p| p.pod.metadata.name.as_str())
            .collect::<Vec<_>>(),
        ["a-node1", "web-node1"]
    );
    assert_eq!(
        pods[1].pod,
        good(&pod(json!({}))).pod,
        "alone and in a list it is the same pod"
    );
}

#[test]
fn one_bad_pod_spoils_the_list_and_is_named() {
    let list = "{\"apiVersion\": \"v1\", \"kind\": \"PodList\", \"items\": [\n{\"metadata\": {\"name\": \"a\"}, \"spec\": {\"containers\": [{\"name\": \"c\", \"image\": \"i\"}]}},\n{\"metadata\": {\"name\": \"b\"}, \"spec\": {\"containers\": [\n {\"name\": \"c\"}]}}]}";
    check(
        list,
        &["4:2: items[1].spec.containers[0].image: Required value"],
    );
    check(
        r#"{"apiVersion":"v1","kind":"PodList","items":[5,{"kind":"Node"}]}"#,
        &[
            "1:46: items[0]: Invalid value: must be an object ({...})",
            "1:49: items[1].kind: Unsupported value: \"Node\": podprobe reads v1 Pods, ReplicationControllers, ConfigMaps, Secrets, PersistentVolumeClaims, Services and Endpoints, apps/v1 Deployments, ReplicaSets, DaemonSets and StatefulSets, batch/v1 Jobs and CronJobs, and discovery.k8s.io/v1 EndpointSlices",
        ],
    );
    let twins = json!({"apiVersion": "v1", "kind": "List", "items": [pod(json!({})), pod(json!({"hostNetwork": true}))]});
    check_pod(
        twins,
        &["items[1].metadata.name: Duplicate value: \"default/web-node1\""],
    );
    check(
        r#"{"apiVersion":"v1","kind":"PodList","itms":[]}"#,
        &["1:37: itms: unknown field of a list: did you mean \"items\"?"],
    );
    assert_eq!(
        decode(r#"{"apiVersion":"v1","kind":"PodList","items":[]}"#),
        Ok(vec![])
    );
}

#[test]
fn what_is_no_pod_file_has_a_sentence_each() {
    check("", &[" the file is empty: expected a v1 Pod"]);
    check(" \n ", &[" the file is empty: expected a v1 Pod"]);
    check(
        "apiVersion: v1\nkind: Pod\n",
        &[
            "1:1: metadata.name: Required value: name is needed for the pod",
            "1:1: spec.containers: Required value",
        ],
    );
    for empty in ["# a pod\n---\n", "---\n---\n", "~"] {
        check(empty, &[" the file is empty: expected a v1 Pod"]);
    }
    check(
        "[]",
        &[" a list is not a pod: expected a v1 Pod, or a v1 PodList with the pods in its items"],
    );
    for text in ["\"x\"", "some words"] {
        check(
            text,
            &[" expected a v1 Pod, that is an object with apiVersion, kind, metadata and spec"],
        );
    }
    check("{} x", &["1:4: not JSON: expected value, at `x`"]);
    check(
        "{\"a\": [1,\n",
        &[
            "2:1: not JSON: the text ends in the middle: a closing }, ] or \" is missing, or the file is not yet written to its end",
        ],
    );
    check(
        "{\n // x\n}",
        &["2:2: not JSON: key must be a string, at `// x`: JSON has no comments"],
    );
    check(
        "{'a': 1}",
        &["1:2: not JSON: key must be a string, at `'a': 1}`: JSON has its texts in double quotes"],
    );
    check("{\"ü\": 1,\n}", &["2:1: not JSON: trailing comma, at `}`"]);
    check("{\"a\" 1}", &["1:6: not JSON: expected `:`, at `1}`"]);
}

#[test]
fn kind_and_version_are_checked() {
    check(
        r#"{"kind":"Pod"}"#,
        &["1:1: apiVersion: Required value: write \"apiVersion\": \"v1\""],
    );
    check(
        r#"{"apiVersion":"v1","Kind":"Pod"}"#,
        &["1:1: kind: Required value: write \"kind\": \"Pod\" (\"Kind\" is not it)"],
    );
    check(
        r#"{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler"}"#,
        &[
            "1:32: kind: Unsupported value: \"HorizontalPodAutoscaler\": not run here: nothing scales by load here: write the number of pods into spec.replicas",
        ],
    );
    check(
        r#"{"apiVersion":"v1","kind":"pod"}"#,
        &[
            "1:20: kind: Unsupported value: \"pod\": podprobe reads v1 Pods, ReplicationControllers, ConfigMaps, Secrets, PersistentVolumeClaims, Services and Endpoints, apps/v1 Deployments, ReplicaSets, DaemonSets and StatefulSets, batch/v1 Jobs and CronJobs, and discovery.k8s.io/v1 EndpointSlices; did you mean \"Pod\"?",
        ],
    );
    check(
        r#"{"apiVersion":1,"kind":"Pod"}"#,
        &["1:2: apiVersion: Invalid value: 1: must be a text (\"...\")"],
    );
}

#[test]
fn size_and_encoding_are_checked() {
    let mut bytes = pod(json!({})).to_string().into_bytes();
    let mut with_mark = b"\xef\xbb\xbf".to_vec();
    with_mark.extend(&bytes);
    assert!(pods(&with_mark, &source()).is_ok());
    bytes.resize(SIZE_LIMIT - 1, b' ');
    assert!(pods(&bytes, &source()).is_ok());
    bytes.push(b' ');
    let error = pods(&bytes, &source()).unwrap_err().to_string();
    assert_eq!(
        error,
        "/pods/web.json: 10485760 bytes are too many: a pod file must be smaller than 10 MiB (10485760 bytes)"
    );
    let error = pods(b"{\n \"\xff\"}", &source()).unwrap_err().to_string();
    assert_eq!(
        error,
        "/pods/web.json:2:3: byte 0xff is not UTF-8: save the file as UTF-8"
    );
    assert!(
        pods("[".repeat(100_000).as_bytes(), &source())
            .unwrap_err()
            .to_string()
            .contains("recursion limit")
    );
}

#[test]
fn every_error_of_a_file_is_told_with_its_line() {
    let text = PROBED
        .replace("\"livenessProbe\"", "\"livenessProb\"")
        .replace("8080", "\"8080\"")
        .replace("\"timeoutSeconds\": 2", "\"timeoutSeconds\": -2")
        .replace("\"64Mi\"", "\"64MB\"")
        .replace("\"mountPath\": \"/v\"", "\"mountPath\": \"..\"")
        .replace("\"value\": \"1\"", "\"value\": 1")
        .replace(
            "\"spec\": {",
            "\"spec\": {\n    \"restartPolicy\": \"always\",",
        );
    check(
        &text,
        &[
            "6:5: spec.restartPolicy: Unsupported value: \"always\": supported values: \"Always\", \"Never\", \"OnFailure\"; did you mean \"Always\"?",
            "11:31: spec.containers[0].env[0].value: Invalid value: 1: must be a text (\"...\"), not a number; write \"1\" with quotes",
            "12:36: spec.containers[0].ports[0].containerPort: Invalid value: \"8080\": must be a whole number between -2147483648 and 2147483647, not a text; write 8080 without quotes",
            "15:46: spec.containers[0].resources.limits[memory]: Invalid value: \"64MB\": must be a quantity such as 100m, 1.5, 64Mi or 2e3; did you mean 64M?",
            "13:9: spec.containers[0].livenessProb: unknown field: did you mean \"livenessProbe\"?",
            "17:40: spec.containers[0].volumeMounts[0].mountPath: Invalid value: \"..\": must not contain '..'",
            "14:68: spec.containers[0].readinessProbe.timeoutSeconds: Invalid value: -2: must be greater than or equal to 0",
        ],
    );
}

#[test]
fn a_type_error_says_what_was_expected_and_hides_what_follows_from_it() {
    check_pod(
        pod(json!({"containers": {}})),
        &[
            "spec.containers: Invalid value: {}: must be a list ([...]), not an object; in YAML each item begins with \"- \"",
        ],
    );
    check_pod(
        pod(json!({"containers": [5]})),
        &["spec.containers[0]: Invalid value: 5: must be an object ({...}), not a number"],
    );
    check_pod(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": []}),
        &["spec: Invalid value: []: must be an object ({...}), not a list"],
    );
    check_pod(
        container(json!({"livenessProbe": [1, 2]})),
        &[
            "spec.containers[0].livenessProbe: Invalid value: [1,2]: must be an object ({...}), not a list",
        ],
    );
    check_pod(
        container(json!({"livenessProbe": {"exec": ["true"]}})),
        &[
            "spec.containers[0].livenessProbe.exec: Invalid value: [\"true\"]: must be an object ({...}), not a list",
        ],
    );
    check_pod(
        container(json!({"command": "sleep 1"})),
        &[
            "spec.containers[0].command: Invalid value: \"sleep 1\": must be a list ([...]), not a text; write [\"sleep\",\"1\"]",
        ],
    );
    check_pod(
        container(json!({"args": ["a", 5]})),
        &[
            "spec.containers[0].args[1]: Invalid value: 5: must be a text (\"...\"), not a number; write \"5\" with quotes",
        ],
    );
    check_pod(
        pod(json!({"hostNetwork": "true"})),
        &[
            "spec.hostNetwork: Invalid value: \"true\": must be true or false, not a text; write true without quotes",
        ],
    );
    check_pod(
        container(
            json!({"livenessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 5_000_000_000_i64}}),
        ),
        &[
            "spec.containers[0].livenessProbe.periodSeconds: Invalid value: 5000000000: must be a whole number between -2147483648 and 2147483647",
        ],
    );
    check_pod(
        container(json!({"livenessProbe": {"tcpSocket": {"port": 80.5}}})),
        &[
            "spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 80.5: must be a port number or the name of a port, not a number with a fraction",
        ],
    );
    check_pod(
        container(json!({"name": 7, "image": false})),
        &[
            "spec.containers[0].name: Invalid value: 7: must be a text (\"...\"), not a number; write \"7\" with quotes",
            "spec.containers[0].image: Invalid value: false: must be a text (\"...\"), not a boolean; write \"false\" with quotes",
        ],
    );
}

#[test]
fn every_object_refuses_to_be_a_list() {
    let whole = json!({"metadata": [], "spec": {"securityContext": {"seccompProfile": []}, "volumes": [{"emptyDir": []}, {"hostPath": []}], "containers": [{
        "ports": [[]], "env": [[]], "resources": [], "volumeMounts": [[]], "securityContext": {"capabilities": [], "seccompProfile": []}, "startupProbe": [], "readinessProbe": {"httpGet": {"httpHeaders": [[]]}},
        "livenessProbe": {"exec": [], "tcpSocket": [], "grpc": [], "httpGet": []}}]}, "apiVersion": "v1", "kind": "Pod"});
    let error = decode(&whole.to_string()).unwrap_err().to_string();
    assert_eq!(error.matches("must be an object").count(), 16, "{error}");
}

#[test]
fn vc_11_ephemeral_containers_and_an_empty_policy_of_a_container_refuse() {
    let given = json!([{"name": "e", "image": "i", "livenessProbe": {"tcpSocket": {"port": 1}}}]);
    check_pod(
        pod(json!({"ephemeralContainers": given})),
        &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
    );
    let error = decode(&container(json!({"restartPolicy": ""})).to_string())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("spec.containers[0].restartPolicy: Unsupported value: \"\""),
        "{error}"
    );
}

#[test]
fn null_is_absent_everywhere() {
    let mut given = container(
        json!({"livenessProbe": null, "command": null, "env": [{"name": "A", "value": null}], "resources": {"limits": null}}),
    );
    given["spec"]["volumes"] = Value::Null;
    given["spec"]["restartPolicy"] = Value::Null;
    given["metadata"]["labels"] = json!({"a": null});
    given["spec"]["initContainers"] = Value::Null;
    let DecodedPod { pod, warnings } = good(&given);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(pod.metadata.labels["a"], "");
    assert_eq!(
        pod.raw.at("/spec/containers/0/env/0"),
        Some(json!({"name": "A"}))
    );
    assert_eq!(pod.raw.at("/spec/containers/0/livenessProbe"), None);
}

#[test]
fn a_name_is_needed_and_a_key_may_stand_once() {
    check_pod(
        json!({"apiVersion": "v1", "kind": "Pod", "spec": pod(json!({}))["spec"]}),
        &["metadata.name: Required value: name is needed for the pod"],
    );
    let twice = pod(json!({}))
        .to_string()
        .replace("\"name\":\"c\"", "\"name\":\"c\",\"name\":\"d\"");
    let error = decode(&twice).unwrap_err();
    assert_eq!(
        error.problems()[0].text,
        "spec.containers[0].name: given a second time: remove one of the two"
    );
    assert_eq!(error.problems().len(), 1);
}

#[test]
fn hints_follow_the_text_of_the_api() {
    check_pod(
        container(json!({"livenessProbe": {"httpGet": {"port": "8080", "scheme": "https"}}})),
        &[
            "spec.containers[0].livenessProbe.httpGet.port: Invalid value: \"8080\": must contain at least one letter (a-z); write 8080 without quotes",
            "spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: \"https\": supported values: \"HTTP\", \"HTTPS\"; did you mean \"HTTPS\"?",
        ],
    );
    check_pod(
        container(json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]})),
        &[
            "spec.containers[0].volumeMounts[0].name: Not found: \"data\"; spec.volumes has no volume of that name",
        ],
    );
    for (written, meant) in [
        ("CAP_NET_ADMN", "NET_ADMIN"),
        ("net_rw", "NET_RAW"),
        ("SYS_PTRCE", "SYS_PTRACE"),
    ] {
        let error = decode(
            &container(json!({"securityContext": {"capabilities": {"add": [written]}}}))
                .to_string(),
        )
        .unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with(&format!("; did you mean \"{meant}\"?")),
            "{error}"
        );
    }
}

#[test]
fn a_misspelt_field_is_not_missing_as_well() {
    check_pod(
        pod(json!({"containers": [{"name": "c", "imge": "i"}]})),
        &["spec.containers[0].imge: unknown field: did you mean \"image\"?"],
    );
}

#[test]
fn an_error_can_be_told_in_one_line() {
    let error = decode(&pod(json!({"containers": [{}]})).to_string()).unwrap_err();
    assert_eq!(
        error.one_line(),
        "invalid pod: [spec.containers[0].name: Required value, spec.containers[0].image: Required value]"
    );
}

#[test]
fn many_problems_are_counted() {
    let fields: serde_json::Map<String, Value> =
        (0..500).map(|n| (format!("field-{n}"), json!(n))).collect();
    let error = decode(&container(json!({"securityContext": fields})).to_string()).unwrap_err();
    assert_eq!(error.problems().len(), 64);
    assert!(
        error
            .to_string()
            .ends_with("\n/pods/web.json: and 436 more problems")
    );
}

#[test]
fn many_warnings_are_counted_and_long_keys_cut() {
    let mut given = pod(json!({}));
    given["metadata"]
        .as_object_mut()
        .unwrap()
        .extend((0..100).map(|n| (format!("field-{n}"), json!(n))));
    let warnings = good(&given).warnings;
    assert_eq!(
        (warnings.len(), warnings[64].as_str()),
        (65, "and 36 more fields are not acted on")
    );
    let huge = json!({"labels": {"x".repeat(1 << 20): 1}, "name": 5});
    let error =
        decode(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": huge, "spec": pod(json!({}))["spec"]}).to_string()).unwrap_err();
    assert_eq!(
        error.problems().len(),
        2,
        "a name of a wrong type is not missing as well"
    );
    assert!(error.to_string().len() < 1000);
}

#[test]
fn a_grpc_probe_is_good() {
    good(&container(
        json!({"readinessProbe": {"grpc": {"port": 5000, "service": "db"}}}),
    ));
}

#[test]
fn the_output_of_kubectl_is_an_input() {
    let given = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "prod", "uid": "6ad5c1a5-3b1e-4f0a-a2c2-0c8a1b2c3d4e", "resourceVersion": "42", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z", "generateName": "web-",
            "labels": {"app": "web", "pod-template-hash": "5d8"}, "annotations": {"kubernetes.io/config.mirror": "abc", "kubernetes.io/config.source": "file"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "x"}], "managedFields": [{"manager": "kubelet"}]},
        "spec": {"containers": [{"name": "web", "image": "web:1", "imagePullPolicy": "IfNotPresent", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "livenessProbe": {"failureThreshold": 3, "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}}],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "nodeName": "elsewhere", "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
            "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
            "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"name": "web", "ready": true}]}});
    let DecodedPod { pod, warnings } = good(&given);
    assert_eq!(
        warnings,
        [
            "metadata.deletionTimestamp: not acted on: a pod in a file is deleted by removing the file",
            "metadata.annotations[kubernetes.io/config.mirror]: not acted on: a pod in a file is no mirror pod",
            "spec.nodeName: not acted on: a pod in a file runs on the file's node, \"node1\"",
        ]
    );
    assert_eq!(
        pod.metadata.uid.as_str(),
        "6ad5c1a5-3b1e-4f0a-a2c2-0c8a1b2c3d4e"
    );
    assert_eq!(pod.spec.node_name, "node1");
    assert_eq!(pod.metadata.deletion_timestamp, None);
    assert!(
        !pod.metadata
            .annotations
            .contains_key("kubernetes.io/config.mirror")
    );
    assert_eq!(pod.raw.value()["status"]["phase"], "Pending");
}

#[test]
fn a_hook_that_can_only_fail_is_advised() {
    let given = container(json!({"lifecycle": {
        "postStart": {"tcpSocket": {"port": 80}}, "preStop": {"httpGet": {"port": "web"}}}}));
    let given = good(&given).warnings;
    assert_eq!(
        given,
        [
            "spec.containers[0].lifecycle.postStart.tcpSocket: not acted on: a hook of this type always fails, so the container is killed after each start",
            "spec.containers[0].lifecycle.preStop.httpGet.port: the container has no port named \"web\": every hook will fail to run",
        ]
    );
}

#[test]
fn what_may_not_be_meant_is_advised() {
    let given = container(
        json!({"imagePullPolicy": "Always", "ports": [{"name": "dns", "containerPort": 53, "hostPort": 53, "protocol": "UDP"},
            {"containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.1"}, {"containerPort": 9, "hostPort": 9, "protocol": "SCTP"}],
        "resources": {"requests": {"memory": "64m"}}, "livenessProbe": {"exec": {"command": ["true"]}},
        "readinessProbe": {"tcpSocket": {"port": "dns"}}, "startupProbe": {"httpGet": {"port": "web"}}}),
    );
    assert_eq!(
        good(&given).warnings,
        [
            "spec.containers[0].ports[2].hostPort: kept free of other pods, but nothing is forwarded: podprobe forwards TCP and UDP; use hostNetwork for SCTP",
            "spec.containers[0].resources.requests[memory]: 64m is a fraction of a byte: megabytes are M, mebibytes Mi",
            "spec.containers[0].startupProbe.httpGet.port: the container has no port named \"web\": every probe will fail to run",
            "spec.containers[0].readinessProbe.tcpSocket.port: port \"dns\" is UDP, and the probe speaks TCP",
            "spec.containers[0].livenessProbe.timeoutSeconds: not set: the command has the default of 1s, and taking longer counts as a failure",
        ]
    );
    let given = pod(json!({"topologySpreadConstraints": [{"maxSkew": 1}], "note": "mine"}));
    assert_eq!(
        good(&given).warnings,
        [
            "spec.topologySpreadConstraints: not acted on: a pod here is on its node already, nothing is scheduled",
            "spec.note: not acted on: unknown field",
        ]
    );
    assert!(good(&pod(json!({"hostNetwork": true}))).warnings.is_empty());
}

/// Tests the rule of other_kinds.rs. Each kind has one line, objects for an API server have none, and a file with
/// nothing to run is an error.
#[test]
fn other_kinds_are_left_out_and_named() {
    let object = |kind: &str, name: &str| json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}});
    let (node, ingress) = (object("Node", "n"), object("Ingress", "d"));
    let account = object("ServiceAccount", "a");
    let list =
        |items: &[&Value]| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let web = pod(json!({}));
    let read = |text: &str| objects(text.as_bytes(), &source());
    let reads = "podprobe reads v1 Pods, ReplicationControllers, ConfigMaps, Secrets, PersistentVolumeClaims, Services and Endpoints, apps/v1 Deployments, ReplicaSets, DaemonSets and StatefulSets, batch/v1 Jobs and CronJobs, and discovery.k8s.io/v1 EndpointSlices";
    let of_node = format!("Node \"n\": not run here: {reads}");
    let of_ingress = "Ingress \"d\", \"e\": not run here: a Service of type NodePort or LoadBalancer, or a hostPort, leads to a pod";
    let another = object("Ingress", "e");
    let decoded = read(&list(&[&node, &web, &ingress, &account, &another])).unwrap();
    assert_eq!(decoded.pods.len(), 1);
    assert_eq!(decoded.notes, [of_node.as_str(), of_ingress]);
    let decoded = read(&format!("---\n{web}\n---\n{node}\n")).unwrap();
    assert_eq!((decoded.pods.len(), decoded.notes), (1, vec![of_node]));
    for nothing in [list(&[&node]), format!("{node}\n{node}")] {
        let error = read(&nothing).unwrap_err().one_line();
        assert!(
            error.starts_with("invalid pod: nothing in it is run here: Node"),
            "{error}"
        );
    }
    for quiet in [list(&[&account]), account.to_string(), list(&[])] {
        assert_eq!(read(&quiet), Ok(Decoded::default()), "{quiet}");
    }
    let error = read(&list(&[&account, &ingress])).unwrap_err();
    assert!(!error.one_line().contains("ServiceAccount"), "{error}");
}

#[test]
fn a_compose_file_is_told_what_it_is() {
    let compose = "version: '3'\nservices:\n  web:\n    image: nginx\n    ports: ['80:80']\n";
    let error = decode(compose).unwrap_err().to_string();
    let text = ":2:1: services: this is a file of Docker Compose";
    assert!(
        error.contains(text) && !error.contains("apiVersion"),
        "{error}"
    );
    // This object has no `apiVersion` and no `kind`.
    let error = decode("services: {}\nspec: {}\n").unwrap_err().to_string();
    assert!(error.contains("apiVersion: Required value"), "{error}");
}

#[test]
fn a_misspelt_kind_is_no_other_kind() {
    let list =
        |items: &[&Value]| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let web = pod(json!({}));
    let mut misspelt = web.clone();
    misspelt["kind"] = "pod".into();
    let error = decode(&list(&[&web, &misspelt])).unwrap_err().one_line();
    assert!(error.contains("did you mean \"Pod\"?"), "{error}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let typed = json!({"apiVersion": "v1", "kind": "PodList", "items": [web, map]});
    assert!(
        decode(&typed.to_string()).is_err(),
        "a PodList holds pods only"
    );
}

#[test]
fn a_file_holds_several_documents_in_either_syntax() {
    let (a, mut b) = (pod(json!({})), pod(json!({"hostname": "h"})));
    b["metadata"]["name"] = "other".into();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n";
    for text in [
        format!("{a}\n{b}"),
        format!("{a}\n---\n{b}\n"),
        format!("---\n{a}\n---\n{map}---\n{b}\n---\n"),
    ] {
        let decoded = objects(text.as_bytes(), &source()).unwrap_or_else(|e| panic!("{e}"));
        let names: Vec<_> = decoded.pods.iter().map(|d| &d.pod.metadata.name).collect();
        assert_eq!(names, ["web-node1", "other-node1"], "{text}");
        let objects = usize::from(text.contains("ConfigMap"));
        assert_eq!(decoded.objects.len(), objects);
    }
    check(
        &format!(
            "{map}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n  - name: c\n    imge: x\n---\n{map}---\n- a\n"
        ),
        &[
            "19:1: document 4: a list is not a pod: expected a v1 Pod, or a v1 PodList with the pods in its items",
            "12:5: spec.containers[0].imge: unknown field: did you mean \"image\"?",
            "17:3: metadata.name: Duplicate value: \"default/settings\"",
        ],
    );
}

#[test]
fn yaml_errors_have_line_path_and_likely_name_too() {
    check(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: c\n    image: i\n    env:\n    - {name: A, value: yes}\n    livenessProbe:\n      httpGet: {port: 80}\n      periodSecond: 5\n",
        &[
            "10:17: spec.containers[0].env[0].value: Invalid value: true: must be a text (\"...\"), not a boolean; write \"true\" with quotes",
            "13:7: spec.containers[0].livenessProbe.periodSecond: unknown field: did you mean \"periodSeconds\"?",
        ],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: c\n    image: i\n  hostNetwork: true\n  hostNetwork: false\n",
        &["9:3: spec.hostNetwork: given a second time: remove one of the two"],
    );
}

/// Values that have no effect, or with which a container cannot start, cause warnings. The API accepts all of these
/// values, and podprobe reads and checks them.
#[test]
fn what_is_valid_and_does_nothing_or_cannot_start_is_advised() {
    let warnings = |spec: Value| good(&pod(spec)).warnings;
    assert_eq!(
        warnings(
            json!({"tolerations": [{"key": "mine", "operator": "Exists"}], "priority": 7, "priorityClassName": "high"})
        ),
        [
            "spec.tolerations: not acted on: a pod here is never evicted for a taint",
            "spec.priorityClassName: not acted on: without an API server there are the classes system-node-critical and system-cluster-critical only",
            "spec.priority: not acted on: pods are not evicted for one another; those that wait for room start in its order",
        ]
    );
    let given = [
        json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute"}]}),
        json!({"priority": 0}),
        json!({"priorityClassName": "system-node-critical", "priority": 2_000_001_000}),
        json!({"nodeSelector": {"a": "b"}, "os": {"name": "linux"}}),
    ];
    for spec in given {
        assert_eq!(warnings(spec.clone()), [""; 0], "{spec}");
    }
    let warnings = |more: Value| good(&container(more)).warnings;
    assert_eq!(
        warnings(
            json!({"workingDir": "w", "securityContext": {"runAsUser": 0, "runAsNonRoot": true}})
        ),
        [
            "spec.containers[0].workingDir: \"w\" is no absolute path: the container will not start",
            "spec.containers[0].securityContext: runAsNonRoot is true and runAsUser is 0: the container will not start",
        ]
    );
    for (limit, about) in [
        ("1048575", "no process starts with 1048575 bytes"),
        ("64m", "64m is a fraction of a byte"),
    ] {
        let expected = format!(
            "spec.containers[0].resources.limits[memory]: {about}: megabytes are M, mebibytes Mi"
        );
        let warned = warnings(json!({"resources": {"limits": {"memory": limit}}}));
        assert_eq!(warned, [expected]);
    }
    for limit in ["0", "1Mi", "64Mi"] {
        assert_eq!(
            warnings(json!({"resources": {"limits": {"memory": limit}}})),
            [""; 0]
        );
    }
    assert_eq!(
        warnings(json!({"resources": {"limits": {"ephemeral-storage": "1Gi"}}})),
        [
            "spec.containers[0].resources.limits[ephemeral-storage]: not acted on: the disk space of a container is not limited"
        ]
    );
}

#[test]
fn a_priority_class_gives_a_priority_and_no_other_identity() {
    let uid_of = |decoded: &DecodedPod| decoded.pod.metadata.uid.clone();
    let classed = good(&pod(
        json!({"priorityClassName": "system-cluster-critical"}),
    ));
    assert_eq!(classed.pod.spec.priority, Some(2_000_000_000));
    assert_eq!(classed.pod.raw.value()["spec"]["priority"], 2_000_000_000);
    let resolved =
        json!({"priorityClassName": "system-cluster-critical", "priority": 2_000_000_000});
    assert_ne!(
        uid_of(&classed),
        uid_of(&good(&pod(resolved))),
        "what the file says counts"
    );
}

/// Lessons C1: the default timeout of one second gives a warning for commands only.
#[test]
fn c1_an_exec_probe_without_a_timeout_is_warned_of() {
    let warnings = |probe: Value| good(&container(json!({"readinessProbe": probe}))).warnings;
    let text = "spec.containers[0].readinessProbe.timeoutSeconds: not set: the command has the default of 1s, and taking longer counts as a failure";
    assert_eq!(warnings(json!({"exec": {"command": ["true"]}})), [text]);
    assert_eq!(
        warnings(json!({"exec": {"command": ["true"]}, "timeoutSeconds": 1})),
        [""; 0]
    );
    assert_eq!(warnings(json!({"tcpSocket": {"port": 80}})), [""; 0]);
}

/// Lessons D6: lower case is refused, and the error names the right word.
#[test]
fn d6_a_scheme_in_lower_case_is_told_the_right_one() {
    for (written, meant) in [("https", "HTTPS"), ("http", "HTTP")] {
        let given =
            container(json!({"livenessProbe": {"httpGet": {"port": 80, "scheme": written}}}));
        let at = "spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value";
        check_pod(
            given,
            &[&format!(
                "{at}: \"{written}\": supported values: \"HTTP\", \"HTTPS\"; did you mean \"{meant}\"?"
            )],
        );
    }
}

/// Lessons D7: a probe over TCP that names a UDP port causes a warning, because the probe cannot reach the port.
#[test]
fn d7_a_udp_port_of_a_tcp_probe_is_warned_of() {
    let ports = json!([{"name": "dns", "containerPort": 53, "protocol": "UDP"}, {"name": "web", "containerPort": 53}]);
    for kind in ["tcpSocket", "httpGet"] {
        let warnings = |port: &str| {
            good(&container(
                json!({"ports": ports, "livenessProbe": {kind: {"port": port}}}),
            ))
            .warnings
        };
        let text = format!(
            "spec.containers[0].livenessProbe.{kind}.port: port \"dns\" is UDP, and the probe speaks TCP"
        );
        assert_eq!(warnings("dns"), [text]);
        assert_eq!(warnings("web"), [""; 0]);
    }
}

#[test]
fn the_uid_follows_the_content_and_not_its_layout() {
    let uid = |text: &str| decode(text).unwrap()[0].pod.metadata.uid.clone();
    let compact = serde_json::from_str::<Value>(PROBED).unwrap().to_string();
    assert_eq!(uid(PROBED), uid(&compact), "layout is not content");
    assert_eq!(
        uid(PROBED),
        uid(&PROBED.replace("\"timeoutSeconds\": 0", "\"timeoutSeconds\": 1")),
        "a default spelled out is not a change"
    );
    assert_ne!(uid(PROBED), uid(&PROBED.replace("web:1", "web:2")));
    assert_ne!(
        uid(PROBED),
        uid(&PROBED.replace("\"app\": \"web\"", "\"app\": \"wab\""))
    );
    let elsewhere = PodOrigin::File {
        node_name: source().node_name(),
        path: Path::new("/pods/other.json"),
    };
    assert_ne!(
        uid(PROBED),
        pods(PROBED.as_bytes(), &elsewhere).unwrap()[0]
            .pod
            .metadata
            .uid
    );
}

/// The UID that is derived for a pod is the same in every version of podprobe, because a new version recognises the
/// pods of the old version by their UIDs. So a default that a new version adds must not appear in objects that do not
/// use it.
#[test]
fn an_upgrade_changes_the_uid_of_no_pod() {
    let uid = decode(PROBED).unwrap()[0].pod.metadata.uid.to_string();
    assert_eq!(uid, "326999a539be0d575532d7f2aa4555a6");
}

/// The random generator xorshift64. The generator is small and gives the same sequence in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Cuts, doubles, swaps and overwrites pieces of the text.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const WORDS: [&[u8]; 24] = [
        b"null",
        b"{}",
        b"[]",
        b"-1",
        b"1e99",
        b"\"\"",
        b"\"x\"",
        b"true",
        b"\"\\u0000\"",
        b"{\"a\":[{}]}",
        b"\xff",
        b"99999999999999999999",
        b",",
        b"}",
        b"- ",
        b": ",
        b"\n",
        b"\n---\n",
        b"*a",
        b"&a ",
        b"<<: ",
        b"|\n ",
        b"!!int ",
        b"\t",
    ];
    let at = random.below(bytes.len());
    let end = (at + random.below(12)).min(bytes.len());
    let word = WORDS[random.below(WORDS.len())].to_vec();
    match random.below(4) {
        0 => drop(bytes.drain(at..end)),
        1 => drop(bytes.splice(at..end, word)),
        2 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
        _ => bytes[at] = random.below(256) as u8,
    }
}

const ALL_KINDS: &str = "# a comment
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  a: &a \"x\\ty\"
  b: |-
    one
     two
  c: *a
---
apiVersion: v1
kind: Secret
metadata:
  name: 'login'
data: {k: eA==}
---
apiVersion: v1
kind: Pod
metadata: &m
  name: web
spec:
  containers:
  - name: c
    image: web:1
    env: [{name: A, value: \"1\"}]
    envFrom:
    - configMapRef: {name: settings}
    ports:
    - containerPort: 8080
    livenessProbe: {httpGet: {port: 8080}, periodSeconds: 5}
    command:
      - >
        sh
      - -c
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: web, nodePort: 30080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
endpoints:
- addresses: [10.1.0.1]
ports: [{name: http, port: 8080}]
---
apiVersion: v1
kind: Endpoints
metadata: {name: db}
subsets: [{addresses: [{ip: 10.1.0.9}], ports: [{port: 5432}]}]
";

/// Services and the objects that belong to them, with every field that podprobe reads.
const SERVICES: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"a": "b"}, "annotations": {"c": "d"}},
     "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "clusterIP": "10.96.0.7",
              "clusterIPs": ["10.96.0.7", "2001:db8::7"], "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack",
              "externalIPs": ["192.0.2.1"], "externalName": "", "sessionAffinity": "ClientIP",
              "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}, "internalTrafficPolicy": "Local",
              "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000, "publishNotReadyAddresses": true,
              "allocateLoadBalancerNodePorts": false, "loadBalancerSourceRanges": ["10.0.0.0/8"],
              "loadBalancerClass": "a/b", "loadBalancerIP": "192.0.2.2", "trafficDistribution": "PreferClose",
              "ports": [{"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080, "protocol": "TCP",
                         "appProtocol": "http"}]},
     "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "VIP", "hostname": "lb"}]}}},
    {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
     "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
     "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": true, "serving": true, "terminating": false},
                    "hostname": "a", "nodeName": "n", "targetRef": {"kind": "Pod", "namespace": "x", "name": "a"}}],
     "ports": [{"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "http"}]},
    {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"},
     "subsets": [{"addresses": [{"ip": "10.1.0.1", "hostname": "a", "nodeName": "n", "targetRef": {"kind": "Pod", "name": "a"}}],
                  "notReadyAddresses": [{"ip": "10.1.0.2"}],
                  "ports": [{"name": "http", "port": 80, "protocol": "UDP", "appProtocol": "http"}]}]}]}"#;

#[test]
fn no_text_whatever_makes_it_panic_and_what_passes_is_valid() {
    walk_at_random(PROBED);
    walk_at_random(ALL_KINDS);
}

fn walk_at_random(text: &str) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..6000 {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            mutate(&mut bytes, &mut random);
        }
        match pods(&bytes, &source()) {
            Ok(pods) => {
                passed += 1;
                assert!(
                    pods.iter()
                        .all(|decoded| validate_pod(&decoded.pod).is_empty())
                );
            }
            Err(error) => {
                refused += 1;
                assert!(
                    !error.problems().is_empty() && !error.to_string().contains("Internal error"),
                    "{error}"
                );
            }
        }
    }
    assert!(
        passed > 100 && refused > 2000,
        "the walk has lost its way: {passed} passed, {refused} refused"
    );
}

/// Replaces each value of valid objects, one at a time, by values of other types. The decoder must not panic.
#[test]
fn no_value_anywhere_makes_it_panic() {
    decode(SERVICES).unwrap();
    replace_each_value(PROBED);
    replace_each_value(SERVICES);
}

fn replace_each_value(text: &str) {
    let whole: Value = serde_json::from_str(text).unwrap();
    let mut paths = Vec::new();
    collect(&whole, String::new(), &mut paths);
    assert!(paths.len() > 40);
    for path in paths {
        for value in [
            json!(null),
            json!(-1),
            json!(1.5),
            json!(u64::MAX),
            json!(""),
            json!("x"),
            json!(true),
            json!([]),
            json!({}),
            json!([[{}]]),
            json!({"a": {"b": 1}}),
        ] {
            let mut changed = whole.clone();
            *changed.pointer_mut(&path).unwrap() = value;
            if let Err(error) = decode(&changed.to_string()) {
                assert!(
                    !error.to_string().contains("Internal error"),
                    "{path}: {error}"
                );
            }
        }
    }
}

fn collect(value: &Value, path: String, paths: &mut Vec<String>) {
    paths.push(path.clone());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            let key = key.replace('/', "~1");
            collect(value, format!("{path}/{key}"), paths);
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| collect(value, format!("{path}/{index}"), paths)),
        _ => {}
    }
}

#[test]
fn milliseconds_stand_beside_the_defaults_of_the_seconds() {
    let given = container(
        json!({"livenessProbe": {"exec": {"command": ["x"]}, "timeoutMilliseconds": 300, "periodMilliseconds": 500,
        "initialDelayMilliseconds": 0, "initialDelaySeconds": 0}}),
    );
    let DecodedPod { pod, warnings } = good(&given);
    assert!(warnings.is_empty(), "{warnings:?}");
    let probe = pod.spec.containers[0].liveness_probe.as_ref().unwrap();
    assert_eq!((probe.timeout_seconds, probe.period_seconds), (1, 10));
    let times = [probe.timeout(), probe.period(), probe.initial_delay()];
    assert_eq!(times.map(|t| t.as_millis()), [300, 500, 0]);
    assert_eq!(
        pod.raw.value()["spec"]["containers"][0]["livenessProbe"]["periodSeconds"],
        10
    );
}

#[test]
fn a_time_in_both_units_is_said() {
    let given = container(
        json!({"readinessProbe": {"tcpSocket": {"port": 1}, "timeoutSeconds": 2, "timeoutMilliseconds": 300,
        "initialDelaySeconds": 1, "initialDelayMilliseconds": 0, "periodMilliseconds": 50}}),
    );
    let DecodedPod { pod, warnings } = good(&given);
    assert_eq!(
        warnings,
        [
            "spec.containers[0].readinessProbe.initialDelaySeconds: not acted on: initialDelayMilliseconds is given too, and counts instead",
            "spec.containers[0].readinessProbe.timeoutSeconds: not acted on: timeoutMilliseconds is given too, and counts instead",
        ]
    );
    let probe = pod.spec.containers[0].readiness_probe.as_ref().unwrap();
    assert_eq!(
        [probe.timeout(), probe.initial_delay()].map(|t| t.as_millis()),
        [300, 0]
    );
}

/// Objects nest at most 100 levels. A response to a client adds levels around the object, and serde_json reads at most
/// 127.
#[test]
fn an_object_nests_at_most_a_hundred_deep_whatever_it_is_written_in() {
    let pod = |managed: &str| {
        let spec = "\"spec\": {\"containers\": [{\"name\": \"c\", \"image\": \"i\"}]}";
        let meta = format!("{{\"name\": \"p\", \"managedFields\": {managed}}}");
        format!("{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {meta}, {spec}}}")
    };
    let lists = |n: usize| "[".repeat(n) + &"]".repeat(n);
    // The object and its metadata are two of the 100 levels.
    let deepest = decode(&pod(&lists(98))).unwrap().remove(0).pod;
    assert_eq!(deepest.raw.at("/metadata/name"), Some("p-node1".into()));
    let too_deep = "nested deeper than 100 levels: no object is";
    let error = decode(&pod(&lists(99))).unwrap_err().to_string();
    assert!(error.contains(too_deep), "{error}");
    let aliases = format!("[&a {}, &b [[*a]], *b]", lists(96));
    let yaml = format!("# YAML\n{}", pod(&aliases));
    let error = decode(&yaml).unwrap_err().to_string();
    assert!(error.contains(too_deep), "{error}");
}

/// A text below the special key of serde_json's feature `raw_value` stays a text. With this feature, serde_json would
/// parse such a text again as JSON, as deep as the text nests.
#[test]
fn a_text_stays_a_text_whatever_its_key_is() {
    let key = "$serde_json::private::RawValue";
    let given = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "managedFields": [{key: "{\"a\": 1}"}]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let DecodedPod { pod, .. } = good(&given);
    assert_eq!(
        pod.raw.at("/metadata/managedFields/0"),
        Some(json!({key: "{\"a\": 1}"}))
    );
}

/// Objects with the same name are found by sorting, in which each object takes a few comparisons. A search of all
/// earlier objects would take one comparison for each of them.
#[test]
fn twins_are_found_without_comparing_each_with_each() {
    use std::cell::Cell;
    use std::cmp::Ordering;

    thread_local!(static COMPARED: Cell<usize> = const { Cell::new(0) });
    #[derive(PartialEq, Eq, PartialOrd)]
    struct Counting(usize);
    #[allow(clippy::derive_ord_xor_partial_ord)]
    impl Ord for Counting {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }
    let all = (0..60_000).map(|n| (n != 3).then_some(Counting(n % 59_990)));
    assert_eq!(repeated(all).len(), 9);
    let each = COMPARED.get() / 60_000;
    assert!(each < 60, "{each} comparisons for each");
}

#[test]
fn a_number_of_a_megabyte_of_digits_is_an_error_with_its_place() {
    let digits = "1".repeat(1 << 20);
    let of = |cpu: &str| format!("{{\"apiVersion\": \"v1\",\n \"cpu\": {cpu}}}");
    let refused = |text: &str| objects(text.as_bytes(), &source()).unwrap_err().to_string();
    assert_eq!(
        refused(&of(&digits)),
        "/pods/web.json:2:9: a number has at most 400 digits, not 1048576"
    );
    let quoted = refused(&of(&format!("\"\\\"{digits}\"")));
    assert!(!quoted.contains("at most"), "{quoted}");
}
