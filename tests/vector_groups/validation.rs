//! validation.json: defaults, rules of probes and handlers, names (kubelet-probes 1).

use std::path::Path;

use podprobe::api::PodOrigin;
use podprobe::api::decode;
use podprobe::api::defaults;
use podprobe::api::field::FieldError;
use podprobe::api::pod::{Pod, Probe};
use podprobe::api::raw_object::RawObject;
use podprobe::api::validation::{
    is_dns_label, is_dns_subdomain, is_valid_header_name, is_valid_port_name, is_valid_port_number,
    validate_handler, validate_pod, validate_probe,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    AS_TOLD, Case, Group, Rows, Run, Test, Verdict, ensure, fields, group, overruled, same,
};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("defaults", Run::Rows(defaults_of)),
    group("probe", Run::Each(probe)),
    group("handler", Run::Each(handler)),
    group("containerProbes", Run::Told(CONTAINER_PROBES)),
    group(
        "portName",
        Run::Rows(|v| names(v, |n| text_rule(n, is_valid_port_name))),
    ),
    group(
        "portNumber",
        Run::Rows(|v| {
            names(v, |n| {
                n.as_i64()
                    .map(is_valid_port_number)
                    .ok_or("not a number".into())
            })
        }),
    ),
    group(
        "headerName",
        Run::Rows(|v| names(v, |n| text_rule(n, is_valid_header_name))),
    ),
    group(
        "dnsLabel",
        Run::Rows(|v| names(v, |n| text_rule(n, is_dns_label))),
    ),
    group(
        "dnsSubdomainGood",
        Run::Rows(|v| names(&json!({"good": v}), |n| text_rule(n, is_dns_subdomain))),
    ),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Defaults {
    #[serde(rename = "upstreamTest")]
    _upstream_test: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
    probe: Value,
    http_get: Value,
    grpc: Value,
}

/// Each default, in containers and init containers. Ephemeral containers are refused, and have theirs all the same.
fn defaults_of(value: &Value) -> Result<Rows, String> {
    let expected: Defaults = fields(value)?;
    let mut verdicts = Vec::new();
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let probes = json!({"livenessProbe": {"httpGet": {"port": 1}}, "readinessProbe": {"grpc": {"port": 1}}, "startupProbe": {"exec": {}}});
        let mut pod = json!({"spec": {list: [probes]}});
        defaults::apply(&mut pod);
        let container = &pod["spec"][list][0];
        for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
            verdicts.push((
                format!("{list}.{field}"),
                has(&container[field], &expected.probe),
            ));
        }
        verdicts.push((
            format!("{list}.httpGet"),
            has(&container["livenessProbe"]["httpGet"], &expected.http_get),
        ));
        verdicts.push((
            format!("{list}.grpc"),
            has(&container["readinessProbe"]["grpc"], &expected.grpc),
        ));
    }
    Ok(verdicts)
}

fn has(got: &Value, expected: &Value) -> Verdict {
    let expected = expected
        .as_object()
        .ok_or("expected an object of defaults")?;
    for (key, value) in expected {
        same(key, Some(value), got.get(key))?;
    }
    AS_TOLD
}

/// In the vectors `exec` is the bare command, and every default is in place.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToldProbe {
    exec: Option<Vec<String>>,
    initial_delay_seconds: Option<i32>,
    timeout_seconds: Option<i32>,
    period_seconds: Option<i32>,
    success_threshold: Option<i32>,
    failure_threshold: Option<i32>,
    termination_grace_period_seconds: Option<i64>,
    http_get: Option<Value>,
    tcp_socket: Option<Value>,
    grpc: Option<Value>,
}

impl ToldProbe {
    fn typed(self) -> Result<Probe, String> {
        let d = Probe::default();
        let handler = handler_of(
            &json!({"httpGet": self.http_get, "tcpSocket": self.tcp_socket, "grpc": self.grpc}),
        )??;
        Ok(Probe {
            initial_delay_seconds: self
                .initial_delay_seconds
                .unwrap_or(d.initial_delay_seconds),
            timeout_seconds: self.timeout_seconds.unwrap_or(d.timeout_seconds),
            period_seconds: self.period_seconds.unwrap_or(d.period_seconds),
            success_threshold: self.success_threshold.unwrap_or(d.success_threshold),
            failure_threshold: self.failure_threshold.unwrap_or(d.failure_threshold),
            termination_grace_period_seconds: self.termination_grace_period_seconds,
            exec: self
                .exec
                .map(|command| podprobe::api::pod::ExecAction { command }),
            ..handler
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProbeCase {
    probe: Option<ToldProbe>,
    errors: Option<Vec<(String, String, String)>>,
    errors_at_least: Option<usize>,
}

fn probe(case: &Case) -> Verdict {
    let case: ProbeCase = case.fields()?;
    let found = case
        .probe
        .map(ToldProbe::typed)
        .transpose()?
        .map(|p| validate_probe(&p, "test"))
        .unwrap_or_default();
    let found = triples(&found);
    match (case.errors, case.errors_at_least) {
        (Some(expected), None) => same("errors", expected, found)?,
        (None, Some(n)) => ensure(
            found.len() >= n,
            &format!("at least {n} errors, got {found:?}"),
        )?,
        _ => return Err("expected either errors or errorsAtLeast".into()),
    }
    AS_TOLD
}

fn triples(errors: &[FieldError]) -> Vec<(String, String, String)> {
    errors
        .iter()
        .map(|e| (format!("{:?}", e.kind), e.path.clone(), e.detail.clone()))
        .collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HandlerCase {
    handler: Value,
    ok: bool,
}

fn handler(case: &Case) -> Verdict {
    let case: HandlerCase = case.fields()?;
    // A value of another type refuses the pod before any rule is asked.
    let errors: Vec<String> = match handler_of(&case.handler)? {
        Ok(probe) => validate_handler(&probe, "test")
            .iter()
            .map(ToString::to_string)
            .collect(),
        Err(wrong_type) => vec![wrong_type],
    };
    if errors.is_empty() == case.ok {
        AS_TOLD
    } else {
        Err(format!("ok: expected {}, got {errors:?}", case.ok))
    }
}

/// The handlers of a probe as they stand in a pod, headers as pairs, or which value has a type the API has not; a field
/// that is none of the API's fails.
fn handler_of(told: &Value) -> Result<Result<Probe, String>, String> {
    let mut told = told.clone();
    if let Some(headers) = told.pointer_mut("/httpGet/httpHeaders") {
        let pairs: Vec<(String, String)> = fields(headers)?;
        *headers = pairs
            .into_iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
    }
    let mut unread = None;
    let probe = serde_ignored::deserialize(&told, |path| unread = Some(path.to_string()))
        .map_err(|e| e.to_string());
    unread.map_or(Ok(probe), |path| {
        Err(format!("unknown field \"{path}\" of a handler"))
    })
}

fn text_rule(name: &Value, rule: fn(&str) -> Vec<String>) -> Result<Vec<String>, String> {
    name.as_str().map(rule).ok_or("not a text".into())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Names {
    #[serde(rename = "upstreamTest")]
    _upstream_test: Option<String>,
    #[serde(default)]
    good: Vec<Value>,
    #[serde(default)]
    bad: Vec<Value>,
}

fn names(
    value: &Value,
    complaints: impl Fn(&Value) -> Result<Vec<String>, String>,
) -> Result<Rows, String> {
    let names: Names = fields(value)?;
    let one = |is_good: bool, i: usize, name: &Value| {
        let verdict = complaints(name).and_then(|c| match c.is_empty() == is_good {
            true => AS_TOLD,
            false => Err(format!(
                "{name}: expected it to be {}, got {c:?}",
                if is_good { "good" } else { "bad" }
            )),
        });
        (
            format!("{}[{i}]", if is_good { "good" } else { "bad" }),
            verdict,
        )
    };
    let good = names.good.iter().enumerate().map(|(i, n)| one(true, i, n));
    Ok(good
        .chain(names.bad.iter().enumerate().map(|(i, n)| one(false, i, n)))
        .collect())
}

const CONTAINER_PROBES: &[Test] = &[
    ("vc-1", |c| {
        regular(
            c,
            json!({"readinessProbe": exec(json!({"terminationGracePeriodSeconds": 10}))}),
        )
    }),
    ("vc-2", |c| {
        regular(c, json!({"livenessProbe": {"tcpSocket": {}}}))
    }),
    ("vc-3", |c| regular(c, json!({"livenessProbe": {}}))),
    ("vc-4", |c| {
        regular(
            c,
            json!({"livenessProbe": exec(json!({"successThreshold": 2}))}),
        )
    }),
    ("vc-5", |c| {
        regular(
            c,
            json!({"startupProbe": exec(json!({"successThreshold": 2}))}),
        )
    }),
    ("vc-6", |c| {
        regular(c, json!({"livenessProbe": minus_one()}))
    }),
    ("vc-7", |c| {
        regular(c, json!({"readinessProbe": minus_one()}))
    }),
    ("vc-8", |c| regular(c, json!({"startupProbe": minus_one()}))),
    ("vc-9", plain_init),
    ("vc-10", sidecar),
    ("vc-11", ephemeral),
    ("vc-12", |c| {
        regular(
            c,
            json!({"livenessProbe": exec(json!({"httpGet": {"port": 80}}))}),
        )
    }),
    ("vc-13", |c| {
        regular(c, json!({"livenessProbe": {"grpc": {"port": 0}}}))
    }),
    ("vc-14", |c| {
        regular(
            c,
            json!({"livenessProbe": {"httpGet": {"port": 80, "scheme": "FTP"}}}),
        )
    }),
    ("vc-15", |c| {
        regular(c, json!({"livenessProbe": {"exec": {}}}))
    }),
];

fn exec(more: Value) -> Value {
    let mut probe = json!({"exec": {"command": ["true"]}});
    for (key, value) in more.as_object().into_iter().flatten() {
        probe[key] = value.clone();
    }
    probe
}

fn minus_one() -> Value {
    exec(
        json!({"initialDelaySeconds": -1, "timeoutSeconds": -1, "periodSeconds": -1, "successThreshold": -1,
        "failureThreshold": -1, "terminationGracePeriodSeconds": -1}),
    )
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ContainerProbes {
    #[serde(rename = "where")]
    place: String,
    #[serde(rename = "probe")]
    _probe: String,
    errors: Option<Vec<Vec<String>>>,
    error_fields_in_order: Option<Vec<String>>,
}

/// What validation says of a pod whose one container has these fields, `spec.` left out of the paths.
fn complaints(spec: Value) -> Vec<(String, String, String)> {
    let mut raw = json!({"metadata": {"name": "a", "namespace": "d", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    for (list, containers) in spec.as_object().into_iter().flatten() {
        for (i, container) in containers.as_array().into_iter().flatten().enumerate() {
            if !raw["spec"][list].is_array() {
                raw["spec"][list] = json!([{"name": "i", "image": "i:1"}]);
            }
            for (key, value) in container.as_object().into_iter().flatten() {
                raw["spec"][list][i][key] = value.clone();
            }
        }
    }
    defaults::apply(&mut raw);
    let typed = |v: &Value| serde_json::from_value(v.clone()).expect("a pod");
    let metadata = serde_json::from_value(raw["metadata"].clone()).expect("metadata");
    let pod = Pod {
        metadata,
        spec: typed(&raw["spec"]),
        raw: RawObject::new(&raw),
    };
    let errors = validate_pod(&pod);
    triples(&errors)
        .into_iter()
        .map(|(kind, path, detail)| (kind, path.trim_start_matches("spec.").to_owned(), detail))
        .collect()
}

fn regular(case: &Case, container: Value) -> Verdict {
    let case: ContainerProbes = case.fields()?;
    check(&case, complaints(json!({"containers": [container]})))
}

fn check(case: &ContainerProbes, got: Vec<(String, String, String)>) -> Verdict {
    if let Some(expected) = &case.errors {
        let expected = expected.iter().map(|e| e.get(..2).unwrap_or(e).to_vec());
        same(
            "kinds and fields",
            expected.collect(),
            got.iter()
                .map(|(k, p, _)| vec![k.clone(), p.clone()])
                .collect::<Vec<_>>(),
        )?;
        for (expected, got) in case
            .errors
            .iter()
            .flatten()
            .zip(&got)
            .filter(|(e, _)| e.len() > 2)
        {
            same("text", &expected[2], &got.2)?;
        }
    }
    if let Some(expected) = &case.error_fields_in_order {
        let expected: Vec<String> = expected
            .iter()
            .map(|field| format!("{}.{field}", case.place))
            .collect();
        same(
            "fields",
            expected,
            got.into_iter().map(|(_, path, _)| path).collect(),
        )?;
    }
    ensure(
        case.errors.is_some() != case.error_fields_in_order.is_some(),
        "either errors or errorFieldsInOrder",
    )?;
    AS_TOLD
}

/// Each of the three probes by itself.
fn plain_init(case: &Case) -> Verdict {
    let case: ContainerProbes = case.fields()?;
    let [expected] = &case.errors.unwrap_or_default()[..] else {
        return Err("expected one error".into());
    };
    same(
        "told",
        "initContainers[0].<livenessProbe|readinessProbe|startupProbe>",
        expected[1].as_str(),
    )?;
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let got = complaints(json!({"initContainers": [{field: exec(json!({}))}]}));
        let expected = (
            expected[0].clone(),
            format!("initContainers[0].{field}"),
            expected[2].clone(),
        );
        same("errors", vec![expected], got)?;
    }
    AS_TOLD
}

/// The three at once; they are told in the order in which probes are looked at, not in that of the case.
fn sidecar(case: &Case) -> Verdict {
    let case: ContainerProbes = case.fields()?;
    let twice = exec(json!({"successThreshold": 2}));
    let graceful = exec(json!({"terminationGracePeriodSeconds": 10}));
    let container = json!({"restartPolicy": "Always", "startupProbe": twice, "livenessProbe": twice, "readinessProbe": graceful});
    let mut got: Vec<_> = complaints(json!({"initContainers": [container]}))
        .into_iter()
        .map(|(k, p, _)| vec![k, p])
        .collect();
    let mut expected = case.errors.unwrap_or_default();
    got.sort();
    expected.sort();
    same("errors", expected, got)?;
    AS_TOLD
}

/// Ephemeral containers are refused as a whole where a pod is decoded: only the API can add one.
fn ephemeral(case: &Case) -> Verdict {
    let case: ContainerProbes = case.fields()?;
    same(
        "errors",
        Some(vec![vec![
            "Forbidden".to_owned(),
            "ephemeralContainers[0].<probe>".into(),
        ]]),
        case.errors,
    )?;
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
            "containers": [{"name": "c", "image": "i:1"}], "ephemeralContainers": [{"name": "e", "image": "i:1", field: exec(json!({}))}]}});
        let source = PodOrigin::File {
            node_name: "n",
            path: Path::new("/p.json"),
        };
        let error = decode::objects(pod.to_string().as_bytes(), &source)
            .err()
            .ok_or("expected an error, got a pod")?
            .to_string();
        ensure(
            error.contains("spec.ephemeralContainers: Forbidden"),
            &format!("that they are forbidden in \"{error}\""),
        )?;
    }
    Ok(overruled(
        "Forbidden as told, but at spec.ephemeralContainers: no pod of a file may have any, probed or not",
    ))
}
