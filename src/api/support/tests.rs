use serde_json::json;

use super::*;
use crate::api::raw_object::RawObject;

fn steps(path: &str) -> Vec<Step> {
    path.split('.')
        .map(|step| {
            step.parse()
                .map_or_else(|_| Step::Key(step.into()), Step::Index)
        })
        .collect()
}

#[derive(Debug, PartialEq)]
enum Kind {
    Fine,
    Warn,
    Refuse,
}
use Kind::*;

#[track_caller]
fn judged(path: &str, value: Value) -> (Kind, String) {
    match verdict(PodSource::File, &steps(path), &value) {
        Verdict::Fine => (Fine, String::new()),
        Verdict::Warn(text) => (Warn, text),
        Verdict::Refuse { text, .. } => (Refuse, text),
    }
}

#[track_caller]
fn check(path: &str, value: Value, expected: Kind) {
    let (kind, text) = judged(path, value.clone());
    assert_eq!(kind, expected, "{path} {value}: {text}");
}

#[test]
fn a_field_that_a_container_would_miss_refuses() {
    for (field, value) in [
        ("resourceClaims", json!([{"name": "c"}])),
        ("resources", json!({"limits": {"cpu": 1}})),
        ("hostUsers", json!(false)),
        ("schedulingGates", json!([{"name": "x"}])),
        ("nodeSelectr", json!({"a": "b"})),
        ("securityContext.appArmorProfile.profile", json!("x")),
        (
            "initContainers.0.livenessProbe.periodMilliseconds",
            json!(100),
        ),
        (
            "initContainers.0.securityContext.procMount",
            json!("Unmasked"),
        ),
        ("containers.0.volumeDevices.0.mode", json!(1)),
        (
            "containers.0.env.0.valueFrom.fileKeyRef",
            json!({"volumeName": "v", "path": "p", "key": "k"}),
        ),
        ("containers.0.resources.claims", json!([{"name": "a"}])),
        ("containers.0.securityContext.procMount", json!("Unmasked")),
        ("volumes.0.nfs", json!({})),
        ("volumes.0.image", json!({})),
        ("volumes.0.configMap.defaultMod", json!(1)),
        ("volumes.0.projected.sources.0.secret.items.0.mod", json!(1)),
    ] {
        check(&format!("spec.{field}"), value, Refuse);
    }
}

#[test]
fn a_value_that_asks_for_nothing_is_fine() {
    for (field, value) in [
        ("serviceAccountName", json!("")),
        ("hostUsers", json!(true)),
        ("schedulerName", json!("default-scheduler")),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("containers.0.securityContext.procMount", json!("Default")),
    ] {
        check(&format!("spec.{field}"), value, Fine);
    }
    for field in [
        "ownerReferences",
        "managedFields",
        "creationTimestamp",
        "resourceVersion",
        "generateName",
        "finalizers",
    ] {
        check(&format!("metadata.{field}"), json!("x"), Fine);
    }
    check("status", json!({"phase": "Running"}), Fine);
}

#[test]
fn what_no_container_sees_only_warns() {
    for (field, value) in [
        ("securityContext.seLinuxOptions", json!({"level": "s0"})),
        ("securityContext.seLinuxChangePolicy", json!("Recursive")),
        (
            "containers.0.securityContext.seLinuxOptions",
            json!({"type": "spc_t"}),
        ),
        (
            "securityContext.windowsOptions",
            json!({"runAsUserName": "a"}),
        ),
        (
            "containers.0.securityContext.windowsOptions",
            json!({"runAsUserName": "a"}),
        ),
        ("affinity.podAffinity", json!({"a": 1})),
        (
            "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
            json!([{"weight": 1}]),
        ),
        ("schedulerName", json!("mine")),
        ("topologySpreadConstraints", json!([{"maxSkew": 1}])),
        ("automountServiceAccountToken", json!(true)),
        ("serviceAccountName", json!("sa")),
        ("serviceAccount", json!("sa")),
        ("wholly", json!(1)),
        ("containers.0.comment", json!("hello")),
        ("containers.0.pullPolicy", json!("Always")),
        ("topologySpreadConstraint", json!([{"maxSkew": 1}])),
    ] {
        check(&format!("spec.{field}"), value, Warn);
    }
    check("metadata.comment", json!(1), Warn);
    assert_eq!(
        judged("spec.nodeSelectr", json!({})).1,
        "spec.nodeSelectr: unknown field: did you mean \"nodeSelector\"?"
    );
    assert!(
        judged("spec.affinity.podAffinity", json!({"a": 1}))
            .1
            .starts_with("spec.affinity.podAffinity: not acted on: ")
    );
}

#[track_caller]
fn refers(path: &str, value: Value, what: &str) {
    let (kind, text) = judged(path, value);
    assert_eq!(
        (kind, text.as_str()),
        (
            Refuse,
            format!(
                "{}: Forbidden: static pods may not reference {what}",
                render(&steps(path))
            )
            .as_str()
        )
    );
}

#[test]
fn a_static_pod_may_not_reference_what_only_an_api_server_has() {
    refers(
        "spec.resourceClaims",
        json!([{"name": "a"}]),
        "resourceclaims",
    );
    for (field, what) in [
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        (
            "ephemeral",
            "persistentvolumeclaims (via ephemeral volumes)",
        ),
        ("azureFile", "secrets (via azureFile volumes)"),
    ] {
        refers(&format!("spec.volumes.1.{field}"), json!({}), what);
    }
    for (source, what) in [
        (
            "clusterTrustBundle",
            "clustertrustbundles: only an API server has them, and there is none",
        ),
        (
            "podCertificate",
            "podcertificates: only an API server issues them, and there is none",
        ),
    ] {
        let path = format!("spec.volumes.1.projected.sources.0.{source}");
        refers(&path, json!({}), what);
    }
}

#[track_caller]
fn meant(path: &str, expected: &str) {
    match verdict(PodSource::File, &steps(path), &json!(1)) {
        Verdict::Refuse {
            meant: Some(meant),
            text,
        } => {
            assert_eq!(meant, expected);
            let name = expected.rsplit('.').next().unwrap();
            assert_eq!(
                text,
                format!(
                    "{}: unknown field: did you mean \"{name}\"?",
                    render(&steps(path))
                )
            );
        }
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn a_likely_misspelling_of_a_field_that_matters_refuses() {
    meant(
        "spec.containers.0.livenessProb",
        "spec.containers[0].livenessProbe",
    );
    meant(
        "spec.containers.0.livenessprobe",
        "spec.containers[0].livenessProbe",
    );
    meant(
        "spec.containers.2.readyness_probe",
        "spec.containers[2].readinessProbe",
    );
    meant(
        "spec.initContainers.1.startupProb",
        "spec.initContainers[1].startupProbe",
    );
    meant(
        "spec.containers.0.restartPolicyRules.0.exitCode",
        "spec.containers[0].restartPolicyRules[0].exitCodes",
    );
    meant("spec.containers.0.lifecyle", "spec.containers[0].lifecycle");
    meant(
        "spec.containers.0.startupProbe.httpget",
        "spec.containers[0].startupProbe.httpGet",
    );
    meant(
        "spec.containers.0.lifecycle.prestop",
        "spec.containers[0].lifecycle.preStop",
    );
    meant(
        "spec.containers.0.lifecycle.preStop.httpget",
        "spec.containers[0].lifecycle.preStop.httpGet",
    );
    meant(
        "spec.containers.0.livenessProbe.periodSecond",
        "spec.containers[0].livenessProbe.periodSeconds",
    );
    meant("spec.hostnetwork", "spec.hostNetwork");
    meant("spec.volumes.0.emptydir", "spec.volumes[0].emptyDir");
    meant("specs", "spec");
}

#[test]
fn a_misplaced_field_names_its_home() {
    assert_eq!(
        judged("spec.livenessProbe", json!({})).1,
        "spec.livenessProbe: unknown field here: it belongs in spec.containers[]"
    );
    let text = judged("spec.containers.0.periodSeconds", json!(1)).1;
    assert_eq!(
        text,
        "spec.containers[0].periodSeconds: unknown field here: it belongs in a livenessProbe, readinessProbe or startupProbe"
    );
    assert_eq!(
        judged("spec.containers.0.preStop", json!({})).1,
        "spec.containers[0].preStop: unknown field here: it belongs in spec.containers[].lifecycle"
    );
    check(
        "spec.containers.0.readOnlyRootFilesystem",
        json!(true),
        Refuse,
    );
}

#[test]
fn an_unknown_field_refuses_inside_security_resources_probes_hooks_and_volumes() {
    for path in [
        "spec.securityContext.sandboxed",
        "spec.readinessGates.0.status",
        "spec.containers.0.securityContext.sandboxed",
        "spec.containers.0.securityContext.capabilities.keep",
        "spec.containers.0.resources.quota",
        "spec.containers.0.livenessProbe.body",
        "spec.initContainers.0.livenessProbe.body",
        "spec.containers.0.restartPolicyRules.0.onSignal",
        "spec.containers.0.restartPolicyRules.0.exitCodes.range",
        "spec.containers.0.livenessProbe.httpGet.method",
        "spec.volumes.0.someNewKind",
        "spec.volumes.0.image.digest",
        "spec.containers.0.volumeMounts.0.mode",
        "spec.containers.0.lifecycle.preKill",
        "spec.containers.0.lifecycle.preStop.grpc",
        "spec.initContainers.0.lifecycle.postStart.exec.user",
        "spec.containers.0.lifecycle.preStop.httpGet.method",
        "spec.containers.0.lifecycle.preStop.httpGet.httpHeaders.0.values",
        "spec.containers.0.lifecycle.postStart.tcpSocket.protocol",
        "spec.containers.0.lifecycle.postStart.sleep.milliseconds",
    ] {
        check(path, json!(1), Refuse);
    }
}

#[test]
fn every_level_names_its_fields_and_no_name_is_in_two_places() {
    for level in &LEVELS {
        assert!(!level.fields().is_empty(), "{}", level.at);
        let mut names: Vec<_> = level.names().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(
            names.len(),
            all,
            "{}: a field is both read and in the table",
            level.at
        );
    }
}

fn refused(spec: Value) -> Vec<String> {
    let mut raw = json!({"spec": spec});
    crate::api::defaults::apply(&mut raw);
    let metadata = serde_json::from_value(raw["metadata"].take()).unwrap_or_default();
    let pod = Pod {
        metadata,
        spec: serde_json::from_value(raw["spec"].clone()).unwrap(),
        raw: RawObject::new(&raw),
    };
    unsupported_values(&pod, PodSource::File)
        .iter()
        .map(|error| error.path.clone())
        .collect()
}

#[test]
fn values_that_are_not_acted_on_yet_refuse() {
    let container = |more: Value| json!({"containers": [more]});
    assert!(refused(container(json!({"livenessProbe": {"grpc": {"port": 1}}}))).is_empty());
    assert_eq!(
        refused(container(
            json!({"resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 1}}})
        )),
        ["spec.containers[0].resources.limits[nvidia.com/gpu]"]
    );
    assert_eq!(
        refused(container(
            json!({"resources": {"requests": {"cpu": 1, "nvidia.com/gpu": 1}}})
        )),
        ["spec.containers[0].resources.requests[nvidia.com/gpu]"]
    );
    assert!(
        refused(container(
            json!({"resources": {"requests": {"ephemeral-storage": 1, "hugepages-2Mi": "2Mi"}}})
        ))
        .is_empty()
    );
    let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "initContainers": [{"volumeDevices": [{"name": "v", "devicePath": "/d"}]}]});
    assert_eq!(
        refused(claim),
        ["spec.initContainers[0].volumeDevices[0].name"]
    );
    for profile in ["Unconfined", "RuntimeDefault", "Localhost"] {
        let context = json!({"securityContext": {"seccompProfile": {"type": profile, "localhostProfile": "a.json"}}});
        assert!(refused(context.clone()).is_empty() && refused(container(context)).is_empty());
    }
    let ephemeral = json!({"ephemeralContainers": [{"name": "look", "image": "i"}]});
    assert_eq!(refused(ephemeral), ["spec.ephemeralContainers"]);
    let token = json!({"serviceAccountToken": {"path": "t"}});
    let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "t", "projected": {"sources": [{}, token]}}]);
    assert_eq!(
        refused(json!({ "volumes": volumes })),
        ["spec.volumes[1].projected.sources[1].serviceAccountToken"]
    );
    for medium in ["", "Memory"] {
        let dir = json!({"sizeLimit": "1Mi", "medium": medium});
        assert!(refused(json!({"volumes": [{ "emptyDir": dir }]})).is_empty());
    }
}

/// An API server has service accounts, and adds ephemeral containers to pods that run.
#[test]
fn a_pod_of_an_api_server_has_what_a_file_cannot_have() {
    let spec = json!({"ephemeralContainers": [{"name": "look", "image": "i"}], "volumes": [
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]});
    let pod = crate::test_pods::pod("p").spec(spec).build();
    assert_eq!(unsupported_values(&pod, PodSource::Api), []);
    for field in ["serviceAccountName", "serviceAccount"] {
        let path = steps(&format!("spec.{field}"));
        let of = |source| verdict(source, &path, &json!("robot"));
        assert_eq!(of(PodSource::Api), Verdict::Fine);
        assert!(matches!(of(PodSource::Controller), Verdict::Warn(_)));
    }
}
