use serde_json::{Value, json};

use super::*;
use crate::api::pod::{Container, ProbeType, Volume};
use crate::api::raw_object::RawObject;
use crate::base::paths::Layout;

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn texts<T: ToString>(errors: &[T]) -> Vec<String> {
    errors.iter().map(T::to_string).collect()
}

/// Returns a valid pod with its defaults. The only container has the fields of `more`, and the pod's spec has the
/// fields of `spec`.
fn pod_with(more: Value, spec: Value) -> Pod {
    let mut raw = json!({"metadata": {"name": "a", "namespace": "d", "uid": "u"}, "spec": {
        "containers": [{"name": "c", "image": "i:1"}], "volumes": [{"name": "v"}]}});
    raw["spec"]["containers"][0]
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    raw["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    crate::api::defaults::apply(&mut raw);
    Pod {
        metadata: from(raw["metadata"].clone()),
        spec: from(raw["spec"].clone()),
        raw: RawObject::new(&raw),
    }
}

#[track_caller]
fn check_pod(container: Value, spec: Value, expected: &[&str]) {
    assert_eq!(texts(&validate_pod(&pod_with(container, spec))), expected);
}

#[track_caller]
fn check(container: Value, expected: &[&str]) {
    check_pod(container, json!({}), expected);
}

#[test]
fn what_is_no_subdomain() {
    for bad in ["", "A", "a..b", ".a", "a.", "a.-b", "a_b", &"a".repeat(254)] {
        assert!(!is_dns_subdomain(bad).is_empty(), "{bad}");
    }
}

#[test]
fn all_complaints_about_a_name_are_listed() {
    let short = |complaints: Vec<String>| {
        complaints
            .iter()
            .map(|c| c.chars().take(30).collect())
            .collect::<Vec<String>>()
    };
    assert_eq!(is_dns_label("a.b"), ["must not contain dots"]);
    assert_eq!(
        short(is_dns_label(&"A".repeat(64))),
        [
            "must be no more than 63 charac",
            "a lowercase RFC 1123 label mus"
        ]
    );
    assert_eq!(
        is_valid_port_name("-1234567890--_12"),
        [
            "must be no more than 15 characters",
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            "must contain at least one letter (a-z)",
            "must not contain consecutive hyphens",
            "must not begin or end with a hyphen",
        ]
    );
    assert_eq!(is_qualified_name("a/b/c").len(), 1);
    assert!(is_qualified_name("example.com/Name_1").is_empty());
    assert_eq!(is_qualified_name("/x"), ["prefix part must be non-empty"]);
    assert_eq!(is_qualified_name("a/").len(), 2);
    assert!(is_valid_label_value("").is_empty() && !is_valid_label_value("-a").is_empty());
    assert!(
        is_env_name("a b.$").is_empty()
            && !is_env_name("a=").is_empty()
            && !is_env_name("ü").is_empty()
    );
}

#[track_caller]
fn check_probe(field: &str, probe: Value, expected: &[&str]) {
    let expected: Vec<String> = expected
        .iter()
        .map(|text| format!("spec.containers[0].{field}{text}"))
        .collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(json!({field: probe}), &expected);
}

fn exec(more: Value) -> Value {
    let mut probe = json!({"exec": {"command": ["true"]}});
    probe
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    probe
}

#[test]
fn v1_and_v2_exactly_one_handler() {
    check_probe("livenessProbe", exec(json!({})), &[]);
    check_probe(
        "livenessProbe",
        json!({}),
        &[": Required value: must specify a handler type"],
    );
    let all = json!({"httpGet": {"port": 0}, "grpc": {"port": 0}, "tcpSocket": {}, "exec": {}});
    check_probe(
        "livenessProbe",
        all,
        &[
            ".exec.command: Required value",
            ".httpGet: Forbidden: may not specify more than 1 handler type",
            ".tcpSocket: Forbidden: may not specify more than 1 handler type",
            ".grpc: Forbidden: may not specify more than 1 handler type",
        ],
    );
}

#[test]
fn times_in_milliseconds_have_a_floor() {
    let all = |n: i32| {
        exec(
            json!({"initialDelayMilliseconds": n, "timeoutMilliseconds": n, "periodMilliseconds": n}),
        )
    };
    let texts = |n: i32, delay: &str| {
        let at_least = format!("Invalid value: {n}: must be greater than or equal to 10");
        let delay = (!delay.is_empty())
            .then(|| format!(".initialDelayMilliseconds: Invalid value: {n}: {delay}"));
        let others = [
            format!(".timeoutMilliseconds: {at_least}"),
            format!(".periodMilliseconds: {at_least}"),
        ];
        delay.into_iter().chain(others).collect::<Vec<_>>()
    };
    for (n, delay) in [
        (-1, "must be greater than or equal to 0"),
        (0, ""),
        (1, "must be 0, or greater than or equal to 10"),
        (9, "must be 0, or greater than or equal to 10"),
    ] {
        let expected = texts(n, delay);
        for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
            check_probe(
                field,
                all(n),
                &expected.iter().map(String::as_str).collect::<Vec<_>>(),
            );
        }
    }
    check_probe("livenessProbe", all(10), &[]);
    check_probe("readinessProbe", all(i32::MAX), &[]);
}

#[test]
fn v3_to_v6_in_order() {
    let minus = exec(
        json!({"initialDelaySeconds": -1, "timeoutSeconds": -1, "periodSeconds": -1, "successThreshold": -1,
        "failureThreshold": -1, "terminationGracePeriodSeconds": -1}),
    );
    let common = [
        ".initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
        ".timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
        ".periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ".successThreshold: Invalid value: -1: must be greater than or equal to 0",
        ".failureThreshold: Invalid value: -1: must be greater than or equal to 0",
        ".terminationGracePeriodSeconds: Invalid value: -1: must be greater than 0",
    ];
    let once = ".successThreshold: Invalid value: -1: must be 1";
    let no_grace =
        ".terminationGracePeriodSeconds: Invalid value: -1: must not be set for readinessProbes";
    check_probe(
        "livenessProbe",
        minus.clone(),
        &[&common[..], &[once]].concat(),
    );
    check_probe(
        "startupProbe",
        minus.clone(),
        &[&common[..], &[once]].concat(),
    );
    check_probe(
        "readinessProbe",
        minus,
        &[&common[..], &[no_grace]].concat(),
    );
    check_probe(
        "livenessProbe",
        exec(json!({"successThreshold": 2})),
        &[".successThreshold: Invalid value: 2: must be 1"],
    );
    check_probe(
        "startupProbe",
        exec(json!({"successThreshold": 2})),
        &[".successThreshold: Invalid value: 2: must be 1"],
    );
    check_probe("readinessProbe", exec(json!({"successThreshold": 2})), &[]);
    check_probe(
        "livenessProbe",
        exec(json!({"terminationGracePeriodSeconds": 1})),
        &[],
    );
    check_probe(
        "livenessProbe",
        exec(json!({"terminationGracePeriodSeconds": 0})),
        &[".terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"],
    );
    check_probe(
        "readinessProbe",
        exec(json!({"terminationGracePeriodSeconds": 10})),
        &[".terminationGracePeriodSeconds: Invalid value: 10: must not be set for readinessProbes"],
    );
    let zero = exec(
        json!({"timeoutSeconds": 0, "periodSeconds": 0, "successThreshold": 0, "failureThreshold": 0}),
    );
    check_probe("livenessProbe", zero, &[]);
    check_probe(
        "livenessProbe",
        exec(json!({"timeoutSeconds": i32::MAX, "failureThreshold": i32::MAX})),
        &[],
    );
}

#[test]
fn the_rules_of_each_handler() {
    let port = "must be between 1 and 65535, inclusive";
    check_probe(
        "livenessProbe",
        json!({"tcpSocket": {}}),
        &[&format!(".tcpSocket.port: Invalid value: 0: {port}")],
    );
    check_probe(
        "livenessProbe",
        json!({"tcpSocket": {"port": 65535, "host": "any!"}}),
        &[],
    );
    check_probe(
        "livenessProbe",
        json!({"grpc": {"port": 70000}}),
        &[&format!(".grpc.port: Invalid value: 70000: {port}")],
    );
    check_probe(
        "livenessProbe",
        json!({"httpGet": {"port": "8080"}}),
        &[".httpGet.port: Invalid value: \"8080\": must contain at least one letter (a-z)"],
    );
    check_probe(
        "livenessProbe",
        json!({"httpGet": {"port": 1, "scheme": "http"}}),
        &[".httpGet.scheme: Unsupported value: \"http\": supported values: \"HTTP\", \"HTTPS\""],
    );
    let headers = json!([{"name": "X-A"}, {"name": "X-A", "value": "\n"}, {"name": "Host:"}]);
    check_probe(
        "livenessProbe",
        json!({"httpGet": {"port": 1, "httpHeaders": headers}}),
        &[
            ".httpGet.httpHeaders: Invalid value: \"Host:\": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
        ],
    );
    check_probe(
        "livenessProbe",
        json!({"exec": {"command": ["a\u{0}b"]}}),
        &[
            ".exec.command[0]: Invalid value: \"a\\u0000b\": must not contain a NUL character (\\u0000)",
        ],
    );
}

#[test]
fn probes_are_told_liveness_first_then_readiness_then_startup() {
    check(
        json!({"startupProbe": {}, "readinessProbe": {}, "livenessProbe": {}}),
        &[
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
            "spec.containers[0].readinessProbe: Required value: must specify a handler type",
            "spec.containers[0].startupProbe: Required value: must specify a handler type",
        ],
    );
    assert_eq!(probe_field(ProbeType::Readiness), "readinessProbe");
}

#[test]
fn names_and_images_of_containers() {
    check_pod(
        json!({}),
        json!({"containers": []}),
        &["spec.containers: Required value"],
    );
    check_pod(
        json!({}),
        json!({"containers": [{}]}),
        &[
            "spec.containers[0].name: Required value",
            "spec.containers[0].image: Required value",
        ],
    );
    let twice = json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": " i"}]});
    check_pod(
        json!({}),
        twice,
        &[
            "spec.containers[1].image: Invalid value: \" i\": must not have leading or trailing whitespace",
            "spec.containers[1].name: Duplicate value: \"c\"",
        ],
    );
    check(
        json!({"name": "a.b"}),
        &["spec.containers[0].name: Invalid value: \"a.b\": must not contain dots"],
    );
    check(
        json!({"imagePullPolicy": "never", "terminationMessagePolicy": "X"}),
        &[
            "spec.containers[0].terminationMessagePolicy: Unsupported value: \"X\": supported values: \"FallbackToLogsOnError\", \"File\"",
            "spec.containers[0].imagePullPolicy: Unsupported value: \"never\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ],
    );
    check(
        json!({"env": [{"name": "A B"}, {"name": ""}, {"name": "A=B"}]}),
        &[
            "spec.containers[0].env[1].name: Required value",
            "spec.containers[0].env[2].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='",
        ],
    );
    check(
        json!({"command": ["ok", "\u{0}"]}),
        &[
            "spec.containers[0].command[1]: Invalid value: \"\\u0000\": must not contain a NUL character (\\u0000)",
        ],
    );
}

#[test]
fn directories_of_containers_may_be_relative() {
    check(
        json!({"workingDir": "/w", "terminationMessagePath": "/m"}),
        &[],
    );
    check(
        json!({"workingDir": "w", "terminationMessagePath": "m"}),
        &[],
    );
    check(
        json!({"workingDir": "w", "terminationMessagePath": "/../m"}),
        &[
            "spec.containers[0].terminationMessagePath: Invalid value: \"/../m\": must not contain '..'",
        ],
    );
}

#[test]
fn ports_of_containers() {
    check(
        json!({"ports": [{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 65536, "hostPort": -1, "protocol": "tcp"}, {"hostIP": "x"}]}),
        &[
            "spec.containers[0].ports[1].name: Duplicate value: \"a\"",
            "spec.containers[0].ports[1].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
            "spec.containers[0].ports[1].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
            "spec.containers[0].ports[1].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            "spec.containers[0].ports[2].containerPort: Required value",
        ],
    );
    let port = |more: Value| json!({"name": "c2", "image": "i", "ports": [more]});
    let first =
        json!({"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 8080}]});
    let conflict = "spec.containers[1].ports[0].hostPort: Duplicate value: \"TCP//8080\"";
    for (second, expected) in [
        (
            json!({"containerPort": 2, "hostPort": 8080}),
            &[conflict][..],
        ),
        (
            json!({"containerPort": 2, "hostPort": 8080, "protocol": "UDP"}),
            &[],
        ),
        (
            json!({"containerPort": 2, "hostPort": 8080, "hostIP": "127.0.0.1"}),
            &[],
        ),
        (json!({"containerPort": 2, "hostPort": 8081}), &[]),
    ] {
        check_pod(
            json!({}),
            json!({"containers": [first, port(second)]}),
            expected,
        );
    }
    check_pod(
        json!({"ports": [{"containerPort": 1, "hostPort": 2}]}),
        json!({"hostNetwork": true}),
        &[
            "spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when `hostNetwork` is true",
        ],
    );
}

#[test]
fn resources_of_containers() {
    let resources = |limits: Value, requests: Value| json!({"resources": {"limits": limits, "requests": requests}});
    check(
        resources(
            json!({"cpu": "1"}),
            json!({"cpu": "1000m", "memory": "1Gi", "example.com/x": 3}),
        ),
        &[],
    );
    check(
        resources(json!({"cpu": "100m"}), json!({"cpu": "0.2"})),
        &[
            "spec.containers[0].resources.requests: Invalid value: \"0.2\": must be less than or equal to cpu limit of 100m",
        ],
    );
    check(
        resources(json!({"cpu": "-1m"}), json!({"cpu": "-2n"})),
        &[
            "spec.containers[0].resources.limits[cpu]: Invalid value: \"-1m\": must be greater than or equal to 0",
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"-2n\": must be greater than or equal to 0",
            "spec.containers[0].resources.requests: Invalid value: \"-2n\": must be less than or equal to cpu limit of -1m",
        ],
    );
}

#[test]
fn app_armor_profiles_are_named_once_and_where_they_mean_something() {
    let own = |profile: Value, expected: &[&str]| {
        check(
            json!({"securityContext": {"appArmorProfile": profile}}),
            expected,
        );
    };
    let at = "spec.containers[0].securityContext.appArmorProfile";
    own(json!({"type": "RuntimeDefault"}), &[]);
    own(
        json!({"type": "Localhost", "localhostProfile": "k8s-x"}),
        &[],
    );
    own(
        json!({}),
        &[&format!(
            "{at}.type: Required value: type is required when appArmorProfile is set"
        )],
    );
    own(
        json!({"type": "Default"}),
        &[&format!(
            "{at}.type: Unsupported value: \"Default\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\""
        )],
    );
    let must = format!(
        "{at}.localhostProfile: Required value: must be set when AppArmor type is Localhost"
    );
    own(json!({"type": "Localhost"}), &[&must]);
    own(
        json!({"type": "Localhost", "localhostProfile": ""}),
        &[&must],
    );
    own(
        json!({"type": "Localhost", "localhostProfile": " x"}),
        &[&format!(
            "{at}.localhostProfile: Invalid value: \" x\": must not be padded with whitespace"
        )],
    );
    own(
        json!({"type": "Localhost", "localhostProfile": "x\ny"}),
        &[&format!(
            "{at}.localhostProfile: Invalid value: \"x\\ny\": must not contain control characters"
        )],
    );
    own(
        json!({"type": "Localhost", "localhostProfile": "x".repeat(4096)}),
        &[&format!(
            "{at}.localhostProfile: Too long: may not be more than 4095 bytes"
        )],
    );
    own(
        json!({"type": "Unconfined", "localhostProfile": "x"}),
        &[&format!(
            "{at}.localhostProfile: Invalid value: \"x\": can only be set when AppArmor type is Localhost"
        )],
    );
    check_pod(
        json!({}),
        json!({"securityContext": {"appArmorProfile": {"type": "x"}}}),
        &[
            "spec.securityContext.appArmorProfile.type: Unsupported value: \"x\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
        ],
    );
}

#[test]
fn an_app_armor_annotation_names_a_container_and_says_what_the_field_says() {
    let annotated = |container: &str, value: &str, profile: Value, expected: &[&str]| {
        let key = format!("container.apparmor.security.beta.kubernetes.io/{container}");
        let own = json!({"securityContext": {"appArmorProfile": profile}});
        let mut pod = pod_with(own, json!({}));
        pod.metadata.annotations.insert(key, value.into());
        assert_eq!(texts(&validate_pod(&pod)), expected);
    };
    let (none, key) = (
        Value::Null,
        "metadata.annotations[container.apparmor.security.beta.kubernetes.io/",
    );
    for value in ["", "unconfined", "runtime/default", "localhost/mine"] {
        annotated("c", value, none.clone(), &[]);
    }
    annotated(
        "d",
        "unconfined",
        none.clone(),
        &[&format!(
            "{key}d]: Invalid value: \"d\": container not found"
        )],
    );
    annotated(
        "c",
        "default",
        none.clone(),
        &[&format!(
            "{key}c]: Invalid value: \"default\": invalid AppArmor profile name: \"default\""
        )],
    );
    annotated(
        "c",
        "localhost/",
        none,
        &[&format!(
            "{key}c]: Required value: must be set when AppArmor type is Localhost"
        )],
    );
    let mine = || json!({"type": "Localhost", "localhostProfile": "mine"});
    annotated("c", "localhost/mine", mine(), &[]);
    annotated("c", "unconfined", json!({"type": "Unconfined"}), &[]);
    let at = "spec.containers[0].securityContext.appArmorProfile";
    annotated(
        "c",
        "localhost/other",
        mine(),
        &[&format!(
            "{at}.localhostProfile: Forbidden: apparmor profile in annotation and field must match"
        )],
    );
    for profile in [mine(), json!({"type": "RuntimeDefault"})] {
        annotated(
            "c",
            "unconfined",
            profile,
            &[&format!(
                "{at}.type: Forbidden: apparmor type in annotation and field must match"
            )],
        );
    }
}

#[test]
fn huge_pages_are_whole_requested_as_they_are_limited_and_never_alone() {
    let resources = |resources: Value, expected: &[&str]| {
        check(json!({"resources": resources}), expected);
    };
    let at = "spec.containers[0].resources";
    resources(
        json!({"limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "4194304"}}),
        &[],
    );
    resources(
        json!({"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"cpu": 1, "hugepages-2Mi": "4Mi"}}),
        &[],
    );
    resources(
        json!({"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "4Mi"}}),
        &[&format!("{at}: Forbidden: HugePages require cpu or memory")],
    );
    resources(
        json!({"limits": {"memory": "1Gi"}, "requests": {"hugepages-1Gi": "1Gi"}}),
        &[&format!(
            "{at}.limits: Required value: Limit must be set for non overcommitable resources"
        )],
    );
    resources(
        json!({"limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "2Mi"}}),
        &[&format!(
            "{at}.requests: Invalid value: \"2Mi\": must be equal to hugepages-2Mi limit of 4Mi"
        )],
    );
    resources(
        json!({"limits": {"memory": "1Gi", "hugepages-2Mi": "3Mi"}, "requests": {"hugepages-2Mi": "3Mi"}}),
        &[
            &format!(
                "{at}.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi"
            ),
            &format!(
                "{at}.requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi"
            ),
        ],
    );
    resources(
        json!({"limits": {"memory": "1Gi", "hugepages-big": "1"}, "requests": {"hugepages-big": "1"}}),
        &[
            &format!(
                "{at}.limits[hugepages-big]: Invalid value: \"1\": 1 is not positive integer multiple of hugepages-big"
            ),
            &format!(
                "{at}.requests[hugepages-big]: Invalid value: \"1\": 1 is not positive integer multiple of hugepages-big"
            ),
        ],
    );
    let of = |resource: &str| json!({"containerName": "c", "resource": resource, "divisor": "3Mi"});
    let field =
        json!([{"name": "A", "valueFrom": {"resourceFieldRef": of("limits.hugepages-2Mi")}}]);
    check(
        json!({"env": field}),
        &[
            "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"limits.hugepages-2Mi\": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the hugepages resource",
        ],
    );
}

#[test]
fn a_block_volume_is_a_claim_and_here_there_is_none() {
    let volumes = json!([{"name": "disk", "hostPath": {"path": "/dev/sda", "type": "BlockDevice"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let with = |devices: Value, expected: &[&str]| {
        let container = json!({"name": "c", "image": "i", "volumeDevices": devices,
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
        check_pod(
            json!({}),
            json!({"volumes": volumes, "containers": [container]}),
            expected,
        );
    };
    with(
        json!([{"name": "disk", "devicePath": "/dev/a"}]),
        &[
            "spec.containers[0].volumeDevices[0].name: Invalid value: \"disk\": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode; no volume is a block volume here: mount the device as a hostPath of type BlockDevice, in a privileged container",
        ],
    );
    with(
        json!([{"name": "data", "devicePath": "/data"}, {"name": "w", "devicePath": "/x/../y"}, {}, {"name": "data", "devicePath": "/data"}]),
        &[
            "spec.containers[0].volumeDevices[0].name: Invalid value: \"data\": must not already exist in volumeMounts",
            "spec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/data\": must not already exist as a path in volumeMounts",
            "spec.containers[0].volumeDevices[1].name: Not found: \"w\"",
            "spec.containers[0].volumeDevices[1].devicePath: Invalid value: \"/x/../y\": can not contain backsteps ('..')",
            "spec.containers[0].volumeDevices[2].name: Required value",
            "spec.containers[0].volumeDevices[2].devicePath: Required value",
            "spec.containers[0].volumeDevices[3].name: Invalid value: \"data\": must be unique",
            "spec.containers[0].volumeDevices[3].devicePath: Invalid value: \"/data\": must be unique",
            "spec.containers[0].volumeDevices[3].name: Invalid value: \"data\": must not already exist in volumeMounts",
            "spec.containers[0].volumeDevices[3].devicePath: Invalid value: \"/data\": must not already exist as a path in volumeMounts",
        ],
    );
}

#[test]
fn volumes_and_mounts() {
    let volumes = |volumes: Value, expected: &[&str]| {
        check_pod(json!({}), json!({"volumes": volumes}), expected)
    };
    volumes(
        json!([{"name": "a"}, {"name": "a"}, {"name": ""}, {"name": "B"}]),
        &[
            "spec.volumes[1].name: Duplicate value: \"a\"",
            "spec.volumes[2].name: Required value",
            "spec.volumes[3].name: Invalid value: \"B\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
    volumes(
        json!([{"name": "a", "emptyDir": {"medium": "HugePages-x"}, "hostPath": {"path": ""}}]),
        &[
            "spec.volumes[0].emptyDir.medium: Unsupported value: \"HugePages-x\": supported values: \"\", \"HugePages\", \"HugePages-<size>\", \"Memory\"",
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ],
    );
    volumes(
        json!([{"name": "a", "hostPath": {}}, {"name": "b", "hostPath": {"path": "x/..", "type": "Dir"}}]),
        &[
            "spec.volumes[0].hostPath.path: Required value",
            "spec.volumes[1].hostPath.path: Invalid value: \"x/..\": must not contain '..'",
            "spec.volumes[1].hostPath.type: Unsupported value: \"Dir\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
        ],
    );
    check(
        json!({"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "a/"}, {}]}),
        &[
            "spec.containers[0].volumeMounts[1].name: Not found: \"w\"",
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"a/\": must be unique",
            "spec.containers[0].volumeMounts[2].name: Required value",
            "spec.containers[0].volumeMounts[2].mountPath: Required value",
        ],
    );
    check(
        json!({"volumeMounts": [{"name": "v", "mountPath": "a", "subPath": "/x"}, {"name": "v", "mountPath": "/b", "subPath": "x/../y"}, {"name": "v", "mountPath": "/c", "subPath": "x..y/z"}]}),
        &[
            "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"/x\": must be a relative path",
            "spec.containers[0].volumeMounts[1].subPath: Invalid value: \"x/../y\": must not contain '..'",
        ],
    );
    let limit: Volume =
        from(json!({"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": "-1"}}));
    assert_eq!(
        texts(&volumes::validate_volumes(&[limit], "v")),
        ["v[0].emptyDir.sizeLimit: Invalid value: \"-1\": must be greater than or equal to 0"]
    );
}

#[track_caller]
fn check_volume(source: Value, expected: &[&str]) {
    let mut volume = source;
    volume["name"] = json!("v");
    let volume: Volume = from(volume);
    assert_eq!(texts(&volumes::validate_volumes(&[volume], "v")), expected);
}

#[test]
fn volumes_that_are_images() {
    let image = |image: Value, expected: &[&str]| check_volume(json!({"image": image}), expected);
    for policy in ["Always", "IfNotPresent", "Never"] {
        image(json!({"reference": "a:1", "pullPolicy": policy}), &[]);
    }
    image(
        json!({"pullPolicy": "Never"}),
        &["v[0].image.reference: Required value"],
    );
    image(
        json!({"reference": "a:1", "pullPolicy": "never"}),
        &[
            "v[0].image.pullPolicy: Unsupported value: \"never\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ],
    );
    image(
        json!({"reference": "a:1"}),
        &["v[0].image.pullPolicy: Required value"],
    );
    let both = json!({"projected": {"sources": [], "defaultMode": 420}, "image": {}});
    check_volume(
        both,
        &["v[0].image: Forbidden: may not specify more than 1 volume type"],
    );
}

/// Mounts of an image follow the rules of any volume: a sub path is allowed, and so is every propagation.
#[test]
fn mounts_of_an_image() {
    let volumes = json!([{"name": "v", "image": {"reference": "a:1"}}]);
    let check = |mount: Value, expected: &[&str]| {
        let mut mount = mount;
        (mount["name"], mount["mountPath"]) = ("v".into(), "/v".into());
        let container = json!({"name": "c", "image": "i:1", "volumeMounts": [mount]});
        let spec = json!({"containers": [container], "volumes": volumes});
        check_pod(json!({}), spec, expected);
    };
    check(json!({"subPath": "a/b"}), &[]);
    check(json!({"subPathExpr": "$(A)"}), &[]);
    check(json!({"mountPropagation": "HostToContainer"}), &[]);
    check(
        json!({"readOnly": true, "recursiveReadOnly": "Enabled"}),
        &[],
    );
    check(
        json!({"recursiveReadOnly": "Enabled"}),
        &[
            "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
        ],
    );
    check(
        json!({"subPath": "../a"}),
        &[
            "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"../a\": must not contain '..'",
        ],
    );
}

#[test]
fn volumes_of_objects() {
    let items = json!([{"key": "k", "path": "a/b", "mode": 0}, {"key": "l", "path": "..a/b"}, {"path": "../a"},
        {"key": "m", "path": "/a", "mode": 512}, {"key": "n"}]);
    let of_items = |at: &str| {
        [
            "items[1].path: Invalid value: \"..a/b\": must not start with '..'",
            "items[2].key: Required value",
            "items[2].path: Invalid value: \"../a\": must not contain '..'",
            "items[3].path: Invalid value: \"/a\": must be a relative path",
            "items[3].mode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            "items[4].path: Required value",
        ]
        .map(|text| format!("v[0].{at}.{text}"))
    };
    let check_items = |source: Value, at: &str, first: &str| {
        let expected = [vec![format!("v[0].{at}.{first}")], of_items(at).to_vec()].concat();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_volume(source, &expected);
    };
    let mode = "defaultMode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive";
    check_items(
        json!({"configMap": {"name": "c", "items": items, "defaultMode": -1}}),
        "configMap",
        mode,
    );
    check_items(
        json!({"secret": {"secretName": "c", "items": items, "defaultMode": -1}}),
        "secret",
        mode,
    );
    let in_projection = "projected.sources[0].secret";
    check_items(
        json!({"projected": {"sources": [{"secret": {"items": items}}]}}),
        in_projection,
        "name: Required value",
    );
    check_volume(
        json!({"configMap": {}}),
        &["v[0].configMap.name: Required value"],
    );
    check_volume(
        json!({"secret": {}}),
        &["v[0].secret.secretName: Required value"],
    );
    check_volume(
        json!({"persistentVolumeClaim": {}}),
        &["v[0].persistentVolumeClaim.claimName: Required value"],
    );
    check_volume(
        json!({"emptyDir": {}, "configMap": {}, "secret": {}}),
        &[
            "v[0].secret: Forbidden: may not specify more than 1 volume type",
            "v[0].configMap: Forbidden: may not specify more than 1 volume type",
        ],
    );
    check_volume(
        json!({"projected": {"sources": [
            {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
            {"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}, "downwardAPI": {}}]}}),
        &[
            "v[0].projected.sources[1]: Forbidden: may not specify more than 1 volume type",
            "v[0].projected: Invalid value: \"c\": conflicting duplicate paths",
        ],
    );
}

#[test]
fn a_token_has_a_path_and_a_life() {
    let token = |token: Value, expected: &[&str]| {
        let sources = json!([{"serviceAccountToken": token}]);
        check_volume(json!({"projected": {"sources": sources}}), expected);
    };
    let at = |field: &str| format!("v[0].projected.sources[0].serviceAccountToken.{field}");
    token(json!({"path": "t", "expirationSeconds": 600}), &[]);
    token(
        json!({"path": "../t", "expirationSeconds": 599}),
        &[
            &format!(
                "{}: Invalid value: 599: may not specify a duration less than 10 minutes",
                at("expirationSeconds")
            ),
            &format!(
                "{}: Invalid value: \"../t\": must not contain '..'",
                at("path")
            ),
        ],
    );
    token(
        json!({"expirationSeconds": 4_294_967_297_i64}),
        &[
            &format!(
                "{}: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
                at("expirationSeconds")
            ),
            &format!("{}: Required value", at("path")),
        ],
    );
    let twice = json!([{"serviceAccountToken": {"path": "t", "expirationSeconds": 600}},
        {"secret": {"name": "s", "items": [{"key": "k", "path": "t"}]}}]);
    check_volume(
        json!({"projected": {"sources": twice}}),
        &["v[0].projected: Invalid value: \"s\": conflicting duplicate paths"],
    );
}

#[test]
fn files_of_a_downward_api_volume() {
    let file = |file: Value, expected: &[&str]| {
        let mut file = file;
        file["path"] = json!("p");
        check_volume(json!({"downwardAPI": {"items": [file]}}), expected);
    };
    let field = |path: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": path}});
    file(field("metadata.labels['a/b']"), &[]);
    file(field("metadata.annotations['A/b']"), &[]);
    file(field("metadata.uid"), &[]);
    file(
        field("spec.nodeName"),
        &[
            "v[0].downwardAPI.fieldRef.fieldPath: Unsupported value: \"spec.nodeName\": supported values: \"metadata.annotations\", \"metadata.labels\", \"metadata.name\", \"metadata.namespace\", \"metadata.uid\"",
        ],
    );
    file(
        field("spec.hostname"),
        &[
            "v[0].downwardAPI.fieldRef.fieldPath: Invalid value: \"spec.hostname\": error converting fieldPath: field label not supported: spec.hostname",
        ],
    );
    file(
        field("metadata.name['a']"),
        &[
            "v[0].downwardAPI.fieldRef: Invalid value: \"metadata.name\": does not support subscript",
        ],
    );
    file(
        field(""),
        &["v[0].downwardAPI.fieldRef.fieldPath: Required value"],
    );
    file(
        json!({}),
        &["v[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required"],
    );
    let resource =
        |resource: Value, expected: &[&str]| file(json!({"resourceFieldRef": resource}), expected);
    resource(
        json!({"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}),
        &[],
    );
    resource(
        json!({"containerName": "c", "resource": "requests.memory", "divisor": "1Mi"}),
        &[],
    );
    resource(
        json!({"resource": "limits.cpu"}),
        &["v[0].downwardAPI.resourceFieldRef.containerName: Required value"],
    );
    resource(
        json!({"containerName": "c"}),
        &["v[0].downwardAPI.resourceFieldRef.resource: Required value"],
    );
    resource(
        json!({"containerName": "c", "resource": "limits.cpu", "divisor": "2"}),
        &[
            "v[0].downwardAPI.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource",
        ],
    );
    let mut both = field("metadata.name");
    both["resourceFieldRef"] = json!({"containerName": "c", "resource": "limits.cpu"});
    file(
        both,
        &[
            "v[0].downwardAPI: Invalid value: \"resource\": fieldRef and resourceFieldRef can not be specified simultaneously",
        ],
    );
}

#[test]
fn security_contexts() {
    let of_container =
        |context: Value, expected: &[&str]| check(json!({"securityContext": context}), expected);
    of_container(
        json!({"runAsUser": 0, "runAsGroup": i32::MAX, "capabilities": {"add": ["NET_ADMIN", "ALL"]}}),
        &[],
    );
    of_container(
        json!({"runAsUser": -1, "runAsGroup": 2_147_483_648_i64}),
        &[
            "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "spec.containers[0].securityContext.runAsGroup: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive",
        ],
    );
    let detail = "must be ALL or the name of a Linux capability, such as NET_ADMIN";
    of_container(
        json!({"capabilities": {"add": ["NET_ADMN"], "drop": ["all", "cap_net_raw", "0"]}}),
        &[
            &format!(
                "spec.containers[0].securityContext.capabilities.add[0]: Invalid value: \"NET_ADMN\": {detail}"
            ),
            &format!(
                "spec.containers[0].securityContext.capabilities.drop[2]: Invalid value: \"0\": {detail}"
            ),
        ],
    );
    of_container(
        json!({"privileged": true, "allowPrivilegeEscalation": false, "capabilities": {"add": ["cap_sys_admin"]}}),
        &[
            "spec.containers[0].securityContext: Invalid value: \"\": cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            "spec.containers[0].securityContext: Invalid value: \"\": cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
        ],
    );
    let localhost = "spec.containers[0].securityContext.seccompProfile.localhostProfile";
    let required =
        format!("{localhost}: Required value: must be set when seccomp type is Localhost");
    of_container(
        json!({"seccompProfile": {"type": "Localhost"}}),
        &[&required],
    );
    of_container(
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": ""}}),
        &[&required],
    );
    of_container(
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}}),
        &[],
    );
    of_container(
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "/a/../b"}}),
        &[
            &format!("{localhost}: Invalid value: \"/a/../b\": must be a relative path"),
            &format!("{localhost}: Invalid value: \"/a/../b\": must not contain '..'"),
        ],
    );
    of_container(
        json!({"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "a"}}),
        &[&format!(
            "{localhost}: Invalid value: \"a\": can only be set when seccomp type is Localhost"
        )],
    );
    of_container(
        json!({"seccompProfile": {}}),
        &[
            "spec.containers[0].securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set",
        ],
    );
    of_container(
        json!({"seccompProfile": {"type": "unconfined"}}),
        &[
            "spec.containers[0].securityContext.seccompProfile.type: Unsupported value: \"unconfined\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
        ],
    );
}

/// The pod is valid, but the node refuses to start its container, in the kubelet's words (`oci_spec::user`).
#[test]
fn run_as_non_root_and_user_0_are_valid() {
    check(
        json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0}}),
        &[],
    );
}

#[test]
fn names_and_resolvers_of_a_pod() {
    let ip = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    check_pod(
        json!({}),
        json!({"dnsPolicy": "clusterfirst", "runtimeClassName": "A", "subdomain": "a.b", "hostNetwork": true, "setHostnameAsFQDN": true,
        "hostnameOverride": "a".repeat(65),
        "hostAliases": [{"ip": "010.0.0.1", "hostnames": ["ok.example", "A"]}]}),
        &[
            "spec.dnsPolicy: Unsupported value: \"clusterfirst\": supported values: \"ClusterFirst\", \"ClusterFirstWithHostNet\", \"Default\", \"None\"",
            &format!(
                "spec.runtimeClassName: Invalid value: \"A\": {}",
                is_dns_subdomain("A")[0]
            ),
            "spec.subdomain: Invalid value: \"a.b\": must not contain dots",
            "spec.hostnameOverride: Too long: may not be more than 64 bytes",
            "spec.hostnameOverride: Forbidden: may not be specified when `hostNetwork` is true",
            "spec.hostnameOverride: Forbidden: may not be specified when `setHostnameAsFQDN` is true",
            &format!("spec.hostAliases[0].ip: Invalid value: \"010.0.0.1\": {ip}"),
            &format!(
                "spec.hostAliases[0].hostnames[1]: Invalid value: \"A\": {}",
                is_dns_subdomain("A")[0]
            ),
        ],
    );
    let none = |more: Value| json!({"dnsPolicy": "None", "dnsConfig": more});
    check_pod(
        json!({}),
        json!({"dnsPolicy": "None"}),
        &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
    );
    check_pod(
        json!({}),
        none(json!({"searches": ["-"]})),
        &[
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
        ],
    );
    let word =
        "must not contain white space or control characters: it becomes a word of /etc/resolv.conf";
    check_pod(
        json!({}),
        none(
            json!({"nameservers": ["::1", "1.1.1.1", "dns", "1.1.1.2"], "searches": ["a.", "b.."],
            "options": [{"value": "1"}, {"name": "a\nb", "value": "1 2"}]}),
        ),
        &[
            "spec.dnsConfig.nameservers: Invalid value: [\"::1\",\"1.1.1.1\",\"dns\",\"1.1.1.2\"]: must not have more than 3 nameservers",
            &format!("spec.dnsConfig.nameservers[2]: Invalid value: \"dns\": {ip}"),
            &format!(
                "spec.dnsConfig.searches[1]: Invalid value: \"b.\": {}",
                is_dns_subdomain("b.")[0]
            ),
            "spec.dnsConfig.options[0]: Required value: must not be empty",
            &format!("spec.dnsConfig.options[1].name: Invalid value: \"a\\nb\": {word}"),
            &format!("spec.dnsConfig.options[1].value: Invalid value: \"1 2\": {word}"),
        ],
    );
    let many: Vec<String> = (0..33).map(|n| format!("{n:063}")).collect();
    let errors = validate_pod(&pod_with(
        json!({}),
        json!({"dnsConfig": {"searches": many}}),
    ));
    let details: Vec<&str> = errors.iter().map(|e| e.detail.as_str()).collect();
    assert_eq!(
        details,
        [
            "must not have more than 32 search paths",
            "must not have more than 2048 characters (including spaces) in the search list"
        ]
    );
}

#[test]
fn kernel_parameters() {
    let set = |names: &[&str], host: bool| {
        let all: Vec<Value> = names
            .iter()
            .map(|n| json!({"name": n, "value": "1"}))
            .collect();
        json!({"hostNetwork": host, "hostIPC": host, "securityContext": {"sysctls": all}})
    };
    let at = |index: usize| format!("spec.securityContext.sysctls[{index}].name");
    check_pod(
        json!({}),
        set(&["kernel.sem", "net/ipv4/x", "vm.swappiness"], false),
        &[],
    );
    check_pod(
        json!({}),
        set(&["", "a", "a", "A"], false),
        &[
            &format!("{}: Required value", at(0)),
            &format!("{}: Duplicate value: \"a\"", at(2)),
            &format!(
                "{}: Invalid value: \"A\": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
                at(3)
            ),
        ],
    );
    check_pod(
        json!({}),
        set(&["net/ipv4/x", "kernel.sem", "vm.swappiness"], true),
        &[
            &format!(
                "{}: Invalid value: \"net/ipv4/x\": may not be specified when 'hostNetwork' is true",
                at(0)
            ),
            &format!(
                "{}: Invalid value: \"kernel.sem\": may not be specified when 'hostIPC' is true",
                at(1)
            ),
        ],
    );
}

#[test]
fn mounts_of_a_volume() {
    let mount = |fields: Value| {
        let mut mount = json!({"name": "v", "mountPath": "/v"});
        let fields = fields.as_object().unwrap().clone();
        mount.as_object_mut().unwrap().extend(fields);
        json!({"volumeMounts": [mount]})
    };
    let at = |field: &str| format!("spec.containers[0].volumeMounts[0].{field}");
    let none = |fields: Value| check(mount(fields), &[]);
    none(json!({"subPathExpr": "a/$(B)", "mountPropagation": "HostToContainer"}));
    none(json!({"readOnly": true, "recursiveReadOnly": "Enabled", "mountPropagation": "None"}));
    check(
        mount(json!({"subPath": "a", "subPathExpr": "/b"})),
        &[
            &format!(
                "{}: Invalid value: \"/b\": subPathExpr and subPath are mutually exclusive",
                at("subPathExpr")
            ),
            &format!(
                "{}: Invalid value: \"/b\": must be a relative path",
                at("subPathExpr")
            ),
        ],
    );
    check(
        mount(json!({"mountPropagation": "Both"})),
        &[&format!(
            "{}: Unsupported value: \"Both\": supported values: \"Bidirectional\", \"HostToContainer\", \"None\"",
            at("mountPropagation")
        )],
    );
    check(
        mount(json!({"mountPropagation": "Bidirectional", "recursiveReadOnly": "IfPossible"})),
        &[
            &format!(
                "{}: Forbidden: Bidirectional mount propagation is available only to privileged containers",
                at("mountPropagation")
            ),
            &format!(
                "{}: Forbidden: may only be specified when readOnly is true",
                at("recursiveReadOnly")
            ),
            &format!(
                "{}: Forbidden: may only be specified when mountPropagation is None or not specified",
                at("recursiveReadOnly")
            ),
        ],
    );
    check(
        mount(json!({"recursiveReadOnly": "On"})),
        &[&format!(
            "{}: Unsupported value: \"On\": supported values: \"Disabled\", \"Enabled\", \"IfPossible\"",
            at("recursiveReadOnly")
        )],
    );
}

#[test]
fn overhead_and_the_policy_of_groups() {
    check_pod(
        json!({}),
        json!({"overhead": {"cpu": "-1", "hugepages-2Mi": "2Mi"},
        "securityContext": {"supplementalGroupsPolicy": "Some"}}),
        &[
            "spec.securityContext.supplementalGroupsPolicy: Unsupported value: \"Some\": supported values: \"Merge\", \"Strict\"",
            "spec.overhead[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ],
    );
    let policy = json!({"supplementalGroupsPolicy": "Strict"});
    check_pod(
        json!({}),
        json!({"overhead": {"cpu": "250m"}, "securityContext": policy}),
        &[],
    );
}

#[test]
fn numbers_and_names_of_a_pod() {
    check_pod(
        json!({}),
        json!({"activeDeadlineSeconds": 0, "terminationGracePeriodSeconds": -1, "hostname": "A", "nodeName": "n_",
        "securityContext": {"supplementalGroups": [0, -1]}}),
        &[
            "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.securityContext.supplementalGroups[1]: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            &format!(
                "spec.nodeName: Invalid value: \"n_\": {}",
                is_dns_subdomain("n_")[0]
            ),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
            &format!(
                "spec.hostname: Invalid value: \"A\": {}",
                is_dns_label("A")[0]
            ),
        ],
    );
    check_pod(
        json!({}),
        json!({"activeDeadlineSeconds": i32::MAX, "terminationGracePeriodSeconds": 0}),
        &[],
    );
    check_pod(
        json!({}),
        json!({"activeDeadlineSeconds": 2_147_483_648_i64}),
        &[
            "spec.activeDeadlineSeconds: Invalid value: 2147483648: must be between 1 and 2147483647, inclusive",
        ],
    );
}

#[test]
fn metadata_of_a_pod() {
    let mut pod = pod_with(json!({}), json!({}));
    let mut metadata = |value: Value| {
        pod.metadata = from(value);
        validate_pod(&pod)
            .iter()
            .map(|error| format!("{} {:?}", error.path, error.kind))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        metadata(json!({})),
        ["metadata.name Required", "metadata.namespace Required"]
    );
    assert_eq!(
        metadata(json!({"name": "static-pod1-NODE1", "namespace": "a.b"})),
        ["metadata.name Invalid", "metadata.namespace Invalid"]
    );
    assert_eq!(
        metadata(json!({"name": "a", "namespace": "d", "uid": "../../etc"})),
        ["metadata.uid Invalid"]
    );
    // The cgroup of a pod has the pod's UID as its name and lies beside the cgroup of the shims.
    let shims = Layout::new("/").shims_cgroup();
    let name = shims.rsplit('/').next();
    assert_eq!(
        metadata(json!({"name": "a", "namespace": "d", "uid": name})),
        ["metadata.uid Invalid"]
    );
    assert_eq!(
        metadata(json!({"name": "a", "namespace": "d", "labels": {"a b": "-"}})),
        ["metadata.labels Invalid", "metadata.labels Invalid"]
    );
    assert_eq!(
        metadata(json!({"name": "a", "namespace": "d", "annotations": {"X.io/A": "any thing"}})),
        Vec::<String>::new()
    );
    let big = "x".repeat(ANNOTATIONS_MAX);
    assert_eq!(
        metadata(json!({"name": "a", "namespace": "d", "annotations": {"k": big}})),
        ["metadata.annotations TooLong"]
    );
}

#[test]
fn one_container_can_be_checked_alone() {
    let container: Container = from(
        json!({"name": "c", "image": "i", "imagePullPolicy": "Never", "terminationMessagePolicy": "File"}),
    );
    assert!(validate_container(&container, &PodSpec::default(), "c").is_empty());
    assert_eq!(
        validate_container(&Container::default(), &PodSpec::default(), "c").len(),
        4
    );
}

#[test]
fn more_cores_than_the_kernel_counts_are_refused() {
    let check = |field: &str, cpu: &str, refused: bool| {
        let container = json!({"name": "c", "image": "i", "resources": {field: {"cpu": cpu}}});
        let container: Container = serde_json::from_value(container).unwrap();
        let errors = validate_container(&container, &PodSpec::default(), "c");
        let at = format!("c.resources.{field}[cpu]");
        let about = errors
            .iter()
            .filter(|e| e.path == at)
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        let text = format!(
            "{at}: Invalid value: \"{cpu}\": must be at most 175921860 cores, the largest quota of the kernel"
        );
        assert_eq!(about, if refused { vec![text] } else { vec![] });
    };
    for field in ["limits", "requests"] {
        for cpu in ["9e18", "9E", "175921861", "175921860001m"] {
            check(field, cpu, true);
        }
        for cpu in ["175921860", "175921860000m", "1n"] {
            check(field, cpu, false);
        }
    }
}

#[test]
fn a_limit_on_memory_may_be_small() {
    for limit in ["64m", "1", "0"] {
        check(json!({"resources": {"limits": {"memory": limit}}}), &[]);
    }
}

#[test]
fn what_a_pod_asks_of_its_node_has_the_form_of_labels() {
    let spec = |spec: Value, expected: &[&str]| check_pod(json!({}), spec, expected);
    let long = "x".repeat(64);
    spec(json!({"nodeSelector": {"a.b/c": "", "disk": "ssd"}}), &[]);
    spec(
        json!({"nodeSelector": {"/a": long}}),
        &[
            "spec.nodeSelector: Invalid value: \"/a\": prefix part must be non-empty",
            &format!(
                "spec.nodeSelector: Invalid value: \"{long}\": must be no more than 63 characters"
            ),
        ],
    );
    spec(
        json!({"os": {"name": "plan9"}}),
        &["spec.os.name: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\""],
    );
    let terms = |terms: Value| {
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        json!({"affinity": {"nodeAffinity": required}})
    };
    let path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    spec(
        terms(json!([])),
        &[&format!(
            "{path}: Required value: must have at least one node selector term"
        )],
    );
    spec(
        terms(json!([{"matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "a", "operator": "Gt", "values": ["1", "2"]},
            {"key": "a", "operator": "in", "values": ["x"]},
            {"key": "a", "operator": "NotIn", "values": ["x"]},
        ], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}, {"key": "x", "operator": "In"}]}])),
        &[
            &format!(
                "{path}[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
            ),
            &format!(
                "{path}[0].matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            ),
            &format!(
                "{path}[0].matchExpressions[2].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
            ),
            &format!(
                "{path}[0].matchExpressions[3].operator: Invalid value: \"in\": not a valid selector operator"
            ),
            &format!(
                "{path}[0].matchFields[1].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            ),
            &format!(
                "{path}[0].matchFields[1].key: Invalid value: \"x\": not a valid field selector key"
            ),
        ],
    );
}

#[test]
fn tolerations_have_operators_that_exist() {
    let check = |tolerations: Value, expected: &[&str]| {
        check_pod(json!({}), json!({"tolerations": tolerations}), expected);
    };
    check(
        json!([{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}]),
        &[],
    );
    check(
        json!([{"value": "b"}, {"key": "a", "operator": "exists"}, {"key": "a", "operator": "Exists", "value": "b"}, {"key": "a", "effect": "Never"}, {"key": "a", "tolerationSeconds": 3}]),
        &[
            "spec.tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            "spec.tolerations[1].operator: Unsupported value: \"exists\": supported values: \"Equal\", \"Exists\"",
            "spec.tolerations[2].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'",
            "spec.tolerations[3].effect: Unsupported value: \"Never\": supported values: \"NoExecute\", \"NoSchedule\", \"PreferNoSchedule\"",
            "spec.tolerations[4].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
        ],
    );
}

#[test]
fn bandwidth_is_within_what_plugins_take() {
    let key = "kubernetes.io/ingress-bandwidth";
    let errors = |rate: &str| {
        let annotations = [(key.to_owned(), rate.to_owned())];
        let mut errors = Vec::new();
        node::validate_bandwidth(&mut errors, &annotations.into());
        texts(&errors)
    };
    for good in ["1k", "1000", "10M", "1P", "1Ki"] {
        assert_eq!(errors(good), [""; 0], "{good}");
    }
    for bad in ["", "999", "-1M", "2P", "10 Mbit"] {
        assert_eq!(
            errors(bad),
            [format!(
                "metadata.annotations[{key}]: Invalid value: \"{bad}\": must be a quantity of bits a second from 1k to 1P, such as 10M"
            )]
        );
    }
}

#[test]
fn the_deletion_cost_is_a_number_of_32_bits() {
    let errors = |cost: &str| {
        let annotations = [(
            "controller.kubernetes.io/pod-deletion-cost".to_owned(),
            cost.to_owned(),
        )];
        let mut errors = Vec::new();
        node::validate_deletion_cost(&mut errors, &annotations.into());
        texts(&errors)
    };
    for good in ["0", "-100", "2147483647"] {
        assert_eq!(errors(good), [""; 0], "{good}");
    }
    for bad in ["", "+1", "01", "2147483648", "1.5", "x"] {
        assert_eq!(
            errors(bad),
            [format!(
                "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"{bad}\": must be a 32bit integer"
            )]
        );
    }
}

#[test]
fn an_init_container_in_the_nodes_network_may_have_another_host_port() {
    let ports = json!([{"containerPort": 1, "hostPort": 2}]);
    let init = json!([{"name": "i", "image": "i:1", "ports": ports}]);
    check_pod(
        json!({}),
        json!({"hostNetwork": true, "initContainers": init}),
        &[],
    );
}

/// Checks an init container with the fields of `more`, beside the regular container `c`.
#[track_caller]
fn check_init(more: Value, expected: &[&str]) {
    let mut init = json!({"name": "i", "image": "i:1"});
    init.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    check_pod(json!({}), json!({"initContainers": [init]}), expected);
}

#[test]
fn vc_9_an_init_container_that_is_no_sidecar_has_no_probes() {
    let no = |field: &str| {
        format!(
            "spec.initContainers[0].{field}: Forbidden: may not be set for init containers without restartPolicy=Always"
        )
    };
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        check_init(json!({field: {"tcpSocket": {"port": 1}}}), &[&no(field)]);
        check_init(
            json!({field: {"tcpSocket": {"port": 1}}, "restartPolicy": "OnFailure"}),
            &[&no(field)],
        );
        check_init(
            json!({field: {"tcpSocket": {"port": 1}}, "restartPolicy": "Always"}),
            &[],
        );
    }
}

#[test]
fn vc_10_the_probes_of_a_sidecar_have_the_rules_of_any() {
    let probe = json!({"tcpSocket": {"port": 1}, "successThreshold": 2});
    check_init(
        json!({"restartPolicy": "Always", "startupProbe": probe, "livenessProbe": probe,
            "readinessProbe": {"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 10}}),
        &[
            "spec.initContainers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            "spec.initContainers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 10: must not be set for readinessProbes",
            "spec.initContainers[0].startupProbe.successThreshold: Invalid value: 2: must be 1",
        ],
    );
}

#[test]
fn init_containers_are_validated_and_named_like_no_other() {
    check_init(
        json!({"name": "c"}),
        &["spec.initContainers[0].name: Duplicate value: \"c\""],
    );
    check_init(
        json!({"image": ""}),
        &["spec.initContainers[0].image: Required value"],
    );
    check_init(
        json!({"volumeMounts": [{"name": "w", "mountPath": "/w"}]}),
        &["spec.initContainers[0].volumeMounts[0].name: Not found: \"w\""],
    );
    let port = json!({"containerPort": 80, "hostPort": 8080});
    check_init(
        json!({"ports": [port, port]}),
        &["spec.initContainers[0].ports[1].hostPort: Duplicate value: \"TCP//8080\""],
    );
    check_pod(
        json!({"ports": [port]}),
        json!({"initContainers": [{"name": "i", "image": "i:1", "ports": [port]}]}),
        &[],
    );
}

#[test]
fn restart_rules_of_containers() {
    let rule = |action: &str, operator: &str, values: usize| json!({"action": action, "exitCodes": {"operator": operator, "values": vec![1; values]}});
    let rules = |rules: Vec<Value>| json!({"restartPolicy": "Never", "restartPolicyRules": rules});
    check(
        rules(vec![
            rule("Restart", "In", 255),
            rule("RestartAllContainers", "NotIn", 0),
        ]),
        &[],
    );
    check(rules(vec![rule("Restart", "In", 1); 20]), &[]);
    check(
        rules(vec![rule("Restart", "In", 1); 21]),
        &["spec.containers[0].restartPolicyRules: Too many: 21: must have at most 20 items"],
    );
    check(
        json!({"restartPolicyRules": [rule("Restart", "In", 1)]}),
        &[
            "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
        ],
    );
    check(
        rules(vec![rule("Stop", "Is", 256), json!({"action": "Restart"})]),
        &[
            "spec.containers[0].restartPolicyRules[0].action: Unsupported value: \"Stop\": supported values: \"Restart\", \"RestartAllContainers\"",
            "spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\"",
            "spec.containers[0].restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
            "spec.containers[0].restartPolicyRules[1].exitCodes: Required value: must be specified",
        ],
    );
}

#[test]
fn processes_are_shared_with_the_pod_or_with_the_node() {
    let both = "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled";
    check_pod(json!({}), json!({"shareProcessNamespace": true}), &[]);
    check_pod(
        json!({}),
        json!({"shareProcessNamespace": true, "hostPID": true}),
        &[both],
    );
    check_pod(
        json!({}),
        json!({"shareProcessNamespace": false, "hostPID": true}),
        &[],
    );
}

#[test]
fn a_variable_has_one_source_of_a_known_form() {
    let path = "spec.containers[0].env[0].valueFrom";
    #[track_caller]
    fn of(from: Value, expected: &[String]) {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(
            json!({"env": [{"name": "A", "valueFrom": from}]}),
            &expected,
        );
    }
    let key = json!({"name": "n", "key": "k"});
    of(json!({"configMapKeyRef": key}), &[]);
    of(json!({"secretKeyRef": key}), &[]);
    of(
        json!({}),
        &[format!(
            "{path}: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        )],
    );
    of(
        json!({"configMapKeyRef": key, "secretKeyRef": key}),
        &[format!(
            "{path}: Invalid value: \"\": may not have more than one field specified at a time"
        )],
    );
    check(
        json!({"env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": key}}]}),
        &[&format!(
            "{path}: Invalid value: \"\": may not be specified when `value` is not empty"
        )],
    );
    of(
        json!({"configMapKeyRef": {}}),
        &[
            format!("{path}.configMapKeyRef.name: Required value"),
            format!("{path}.configMapKeyRef.key: Required value"),
        ],
    );
    of(
        json!({"secretKeyRef": {"name": "n", "key": ".."}}),
        &[format!(
            "{path}.secretKeyRef.key: Invalid value: \"..\": must not be '..'"
        )],
    );
    for field in [
        "metadata.name",
        "metadata.labels['a']",
        "metadata.annotations['a.b/c']",
        "status.podIPs",
        "spec.serviceAccountName",
    ] {
        of(json!({"fieldRef": {"fieldPath": field}}), &[]);
    }
    of(
        json!({"fieldRef": {"fieldPath": "metadata.labels"}}),
        &[format!(
            "{path}.fieldRef.fieldPath: Unsupported value: \"metadata.labels\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\""
        )],
    );
    of(
        json!({"fieldRef": {"fieldPath": "spec.image"}}),
        &[format!(
            "{path}.fieldRef.fieldPath: Invalid value: \"spec.image\": error converting fieldPath: field label not supported: spec.image"
        )],
    );
    of(
        json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1k"}}),
        &[format!(
            "{path}.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource"
        )],
    );
}

#[test]
fn an_entry_of_env_from_names_one_object() {
    let path = "spec.containers[0].envFrom[0]";
    #[track_caller]
    fn of(source: Value, expected: &[String]) {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(json!({"envFrom": [source]}), &expected);
    }
    of(json!({"configMapRef": {"name": "n"}, "prefix": "A_"}), &[]);
    of(
        json!({"prefix": "A="}),
        &[
            format!(
                "{path}.prefix: Invalid value: \"A=\": a valid environment variable name must consist only of printable ASCII characters other than '='"
            ),
            format!(
                "{path}: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`"
            ),
        ],
    );
    of(
        json!({"configMapRef": {"name": "n"}, "secretRef": {}}),
        &[
            format!("{path}.secretRef.name: Required value"),
            format!(
                "{path}: Invalid value: \"\": may not have more than one field specified at a time"
            ),
        ],
    );
}

/// Checks the errors of a `lifecycle` in a pod with these fields of the spec. The paths of the errors are shortened.
#[track_caller]
fn check_lifecycle(lifecycle: Value, spec: Value, expected: &[&str]) {
    let got = texts(&validate_pod(&pod_with(
        json!({"lifecycle": lifecycle}),
        spec,
    )));
    let short = |text: &String| text.replacen("spec.containers[0].lifecycle.", "", 1);
    assert_eq!(got.iter().map(short).collect::<Vec<_>>(), expected);
}

#[test]
fn a_hook_has_exactly_one_handler_and_that_one_is_right() {
    let command = json!({"exec": {"command": ["true"]}});
    check_lifecycle(json!({}), json!({}), &[]);
    check_lifecycle(
        json!({"postStart": command, "preStop": command}),
        json!({}),
        &[],
    );
    check_lifecycle(
        json!({"postStart": {}, "preStop": {"tcpSocket": {"port": 80}}}),
        json!({}),
        &["postStart: Required value: must specify a handler type"],
    );
    let all =
        json!({"sleep": {"seconds": -1}, "tcpSocket": {}, "httpGet": {"port": 0}, "exec": {}});
    check_lifecycle(
        json!({"preStop": all}),
        json!({}),
        &[
            "preStop.exec.command: Required value",
            "preStop.httpGet: Forbidden: may not specify more than 1 handler type",
            "preStop.tcpSocket: Forbidden: may not specify more than 1 handler type",
            "preStop.sleep: Forbidden: may not specify more than 1 handler type",
        ],
    );
    check_lifecycle(
        json!({"postStart": {"httpGet": {"port": 0, "scheme": "FTP"}}, "preStop": {"tcpSocket": {}}}),
        json!({}),
        &[
            "postStart.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "postStart.httpGet.scheme: Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"",
            "preStop.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ],
    );
}

#[test]
fn a_sleep_is_no_longer_than_the_grace_period() {
    let sleep = |seconds: i64| json!({"preStop": {"sleep": {"seconds": seconds}}});
    let grace = json!({"terminationGracePeriodSeconds": 5});
    check_lifecycle(sleep(0), grace.clone(), &[]);
    check_lifecycle(sleep(5), grace.clone(), &[]);
    for seconds in [-1, 6] {
        let text = format!(
            "preStop.sleep: Invalid value: {seconds}: must be non-negative and less than terminationGracePeriodSeconds (5)"
        );
        check_lifecycle(sleep(seconds), grace.clone(), &[&text]);
    }
    // The default of the grace period is 30 seconds.
    check_lifecycle(sleep(30), json!({}), &[]);
}

#[test]
fn a_stop_signal_needs_the_name_of_the_system_and_is_one_of_its_signals() {
    let signal = |name: &str| json!({"stopSignal": name});
    let linux = json!({"os": {"name": "linux"}});
    let why = "stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`";
    check_lifecycle(signal("SIGUSR1"), json!({}), &[why]);
    for good in [
        "SIGUSR1",
        "SIGRTMIN",
        "SIGRTMIN+15",
        "SIGRTMAX-14",
        "SIGRTMAX",
        "SIGCLD",
    ] {
        check_lifecycle(signal(good), linux.clone(), &[]);
    }
    for bad in ["", "USR1", "sigusr1", "10", "SIGRTMIN+16", "SIGRTMAX-15"] {
        let got = texts(&validate_pod(&pod_with(
            json!({"lifecycle": signal(bad)}),
            linux.clone(),
        )));
        let start = format!(
            "spec.containers[0].lifecycle.stopSignal: Unsupported value: \"{bad}\": supported values: \"SIGABRT\", \"SIGALRM\""
        );
        assert!(got.len() == 1 && got[0].starts_with(&start), "{got:?}");
        let (_, supported) = got[0].split_once("values: ").unwrap();
        assert_eq!(supported.matches("\"SIG").count(), 65);
    }
}

#[test]
fn hooks_are_for_containers_that_go_on_beside_others() {
    let lifecycle = json!({"preStop": {"exec": {}}});
    let init = |more: Value| {
        let mut container = json!({"name": "i", "image": "i:1", "lifecycle": lifecycle});
        let more = more.as_object().unwrap().clone();
        container.as_object_mut().unwrap().extend(more);
        json!({"initContainers": [container]})
    };
    check_pod(
        json!({}),
        init(json!({})),
        &[
            "spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    );
    check_pod(
        json!({}),
        init(json!({"restartPolicy": "Always"})),
        &["spec.initContainers[0].lifecycle.preStop.exec.command: Required value"],
    );
}

#[test]
fn a_readiness_gate_names_a_condition() {
    let gates = |types: Value| json!({"readinessGates": types});
    let good = json!([{"conditionType": "example.com/up"}, {"conditionType": "Up"}]);
    check_pod(json!({}), gates(good), &[]);
    let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let path = |at: usize| format!("spec.readinessGates[{at}].conditionType: Invalid value");
    check_pod(
        json!({}),
        gates(json!([{"conditionType": "a b"}, {"conditionType": "/up"}, {}])),
        &[
            &format!("{}: \"a b\": {name}", path(0)),
            &format!("{}: \"/up\": prefix part must be non-empty", path(1)),
            &format!("{}: \"\": name part must be non-empty", path(2)),
            &format!("{}: \"\": {name}", path(2)),
        ],
    );
}
