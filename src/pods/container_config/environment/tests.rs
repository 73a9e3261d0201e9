use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::objects::{ConfigMap, LocalObject, ObjectContent, ObjectKey, ObjectKind, Secret};
use crate::test_pods;

fn objects() -> ObjectSet {
    let texts = [("A", "one"), ("dotted.key", "two")];
    let map = ConfigMap {
        data: texts.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        binary_data: [("BYTES".to_owned(), vec![1])].into(),
        ..ConfigMap::default()
    };
    let secrets: [(&str, &[u8]); 3] = [("P", b"pass"), ("RAW", &[0xff]), ("NUL", b"a\0b")];
    let secret = |all: &[(&str, &[u8])]| Secret {
        data: all
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.to_vec()))
            .collect(),
        ..Secret::default()
    };
    let object = |kind, name, content| LocalObject {
        key: ObjectKey::new(kind, "default", name),
        content,
    };
    [
        object(
            ObjectKind::ConfigMap,
            "settings",
            ObjectContent::ConfigMap(Arc::new(map)),
        ),
        object(
            ObjectKind::Secret,
            "login",
            ObjectContent::Secret(Arc::new(secret(&secrets[..1]))),
        ),
        object(
            ObjectKind::Secret,
            "odd",
            ObjectContent::Secret(Arc::new(secret(&secrets))),
        ),
    ]
    .into_iter()
    .collect()
}

fn variables(container: Value) -> Result<Variables, String> {
    with_services(container, &[])
}

fn with_services(container: Value, services: &[(&str, &str)]) -> Result<Variables, String> {
    let mut spec = json!({"name": "c", "image": "i", "resources": {"limits": {"memory": "64Mi"}}});
    for (key, value) in container.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let pod = test_pods::pod("web")
        .uid("u1")
        .spec(json!({"nodeName": "edge", "containers": [spec]}))
        .build();
    Sources {
        pod: &pod,
        container: &pod.spec.containers[0],
        objects: &objects(),
        facts: &PodFacts {
            host_ips: vec!["192.0.2.1".into()],
            pod_ips: vec!["10.0.0.7".into()],
            ..PodFacts::default()
        },
        services: &services
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect::<Variables>(),
    }
    .variables()
    .map_err(|e| e.to_string())
}

#[track_caller]
fn check(container: Value, expected: &[(&str, &str)]) {
    let found = variables(container).unwrap_or_else(|e| panic!("{e}"));
    let found: Vec<_> = found
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(found, expected);
}

#[track_caller]
fn check_error(container: Value, expected: &str) {
    assert_eq!(variables(container), Err(expected.to_owned()));
}

fn from(source: Value) -> Value {
    json!({"env": [{"name": "V", "valueFrom": source}]})
}

#[test]
fn a_variable_comes_from_a_field_a_limit_or_a_key() {
    let cases = [
        (json!({"fieldRef": {"fieldPath": "metadata.name"}}), "web"),
        (json!({"fieldRef": {"fieldPath": "spec.nodeName"}}), "edge"),
        (
            json!({"fieldRef": {"fieldPath": "status.hostIP"}}),
            "192.0.2.1",
        ),
        (
            json!({"fieldRef": {"fieldPath": "status.podIP"}}),
            "10.0.0.7",
        ),
        (
            json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}),
            "64",
        ),
        (
            json!({"configMapKeyRef": {"name": "settings", "key": "A"}}),
            "one",
        ),
        (
            json!({"secretKeyRef": {"name": "login", "key": "P"}}),
            "pass",
        ),
    ];
    for (source, expected) in cases {
        check(from(source), &[("V", expected)]);
    }
}

#[test]
fn env_from_comes_first_and_env_wins_in_place() {
    check(
        json!({
            "envFrom": [{"configMapRef": {"name": "settings"}}, {"prefix": "DB_", "secretRef": {"name": "login"}}],
            "env": [{"name": "A", "value": "$(A)-$(DB_P)-$(NONE)"}, {"name": "B", "value": "$(A)"}],
        }),
        &[
            ("A", "one-pass-$(NONE)"),
            ("dotted.key", "two"),
            ("DB_P", "pass"),
            ("B", "one-pass-$(NONE)"),
        ],
    );
}

#[test]
fn what_is_missing_says_so_in_the_kubelets_words() {
    let missing = [
        (
            json!({"configMapKeyRef": {"name": "none", "key": "A"}}),
            "configmap \"none\" not found",
        ),
        (
            json!({"secretKeyRef": {"name": "none", "key": "A"}}),
            "secret \"none\" not found",
        ),
        (
            json!({"configMapKeyRef": {"name": "settings", "key": "Z"}}),
            "couldn't find key Z in ConfigMap default/settings",
        ),
        (
            json!({"configMapKeyRef": {"name": "settings", "key": "BYTES"}}),
            "couldn't find key BYTES in ConfigMap default/settings",
        ),
        (
            json!({"secretKeyRef": {"name": "login", "key": "Z"}}),
            "couldn't find key Z in Secret default/login",
        ),
    ];
    for (mut source, expected) in missing {
        check_error(from(source.clone()), expected);
        let selector = source.as_object_mut().unwrap().values_mut().next();
        selector.unwrap()["optional"] = true.into();
        check(from(source), &[]);
    }
    for (list, resource) in [("configMapRef", "configmap"), ("secretRef", "secret")] {
        let source =
            |optional| json!({"envFrom": [{list: {"name": "none", "optional": optional}}]});
        check_error(source(false), &format!("{resource} \"none\" not found"));
        check(source(true), &[]);
    }
}

#[test]
fn an_optional_key_that_is_missing_leaves_an_earlier_value() {
    check(
        json!({
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "login", "key": "Z", "optional": true}}}],
        }),
        &[("A", "one"), ("dotted.key", "two")],
    );
}

#[test]
fn bytes_that_no_variable_can_hold_are_named_and_not_shown() {
    let of = |key: &str| from(json!({"secretKeyRef": {"name": "odd", "key": key}}));
    check_error(
        of("RAW"),
        "key RAW of Secret default/odd cannot be a variable: its value is not UTF-8; mount it as a volume",
    );
    check_error(
        of("NUL"),
        "key NUL of Secret default/odd cannot be a variable: its value has a NUL byte; mount it as a volume",
    );
    let all = variables(json!({"envFrom": [{"secretRef": {"name": "odd"}}]}));
    assert!(
        all.unwrap_err()
            .starts_with("key NUL of Secret default/odd")
    );
}

#[test]
fn only_the_field_of_the_address_needs_it() {
    let needs = |path: &str| {
        let env = from(json!({"fieldRef": {"fieldPath": path}}));
        let mut container = json!({"name": "c", "image": "i"});
        container["env"] = env["env"].clone();
        needs_pod_ips(&serde_json::from_value(container).unwrap())
    };
    assert!(needs("status.podIP") && needs("status.podIPs"));
    assert!(!needs("status.hostIP") && !needs("metadata.name"));
}

/// Variables of services come last. The container's own variables replace them, and may refer to them.
#[test]
fn variables_of_services_stand_behind_the_containers_own() {
    let services = [
        ("WEB_SERVICE_HOST", "10.96.0.5"),
        ("WEB_PORT", "tcp"),
        ("A", "of a service"),
    ];
    let container = json!({"envFrom": [{"configMapRef": {"name": "settings"}}], "env": [
        {"name": "URL", "value": "http://$(WEB_SERVICE_HOST)/$(A)/$(WEB_PORT)"},
        {"name": "WEB_PORT", "value": "own"},
        {"name": "AFTER", "value": "$(WEB_PORT)"},
    ]});
    let found = with_services(container, &services).unwrap();
    let found: Vec<_> = found.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let expected = [
        "A=one",
        "dotted.key=two",
        "URL=http://10.96.0.5/one/tcp",
        "WEB_PORT=own",
        "AFTER=own",
        "WEB_SERVICE_HOST=10.96.0.5",
    ];
    assert_eq!(found, expected);
}
