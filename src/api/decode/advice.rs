//! What to tell the person who wrote a pod that may run but perhaps not as meant.

use serde_json::Value;

use crate::api::field::{child, entry, item};
use crate::api::pod::{Container, Handler, IntOrString, Pod, Probe, ProbeType};
use crate::api::source::{MIRROR_ANNOTATION, PodSource};
use crate::api::validation::probe_field;

/// Takes what only an API server sets out of a static pod, where keeping it would make the pod something else.
pub(super) fn drop_server_fields(raw: &mut Value, source: PodSource) -> Vec<String> {
    let mut warnings = Vec::new();
    if !source.is_static() {
        return warnings;
    }
    let Some(metadata) = raw.get_mut("metadata").and_then(Value::as_object_mut) else {
        return warnings;
    };
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if metadata.shift_remove(field).is_some() {
            warnings.push(format!(
                "metadata.{field}: not acted on: a pod in a file is deleted by removing the file"
            ));
        }
    }
    if metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
        .is_some_and(|all| all.shift_remove(MIRROR_ANNOTATION).is_some())
    {
        warnings.push(format!(
            "{}: not acted on: a pod in a file is no mirror pod",
            entry("metadata.annotations", MIRROR_ANNOTATION)
        ));
    }
    warnings
}

/// Advice on a valid pod; `as_written` is the object before its defaults.
pub(super) fn advice(as_written: &Value, pod: &Pod) -> Vec<String> {
    let mut warnings = Vec::new();
    let node = as_written
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !node.is_empty() && node != pod.spec.node_name {
        warnings.push(format!(
            "spec.nodeName: not acted on: a pod in a file runs on the file's node, \"{}\"",
            pod.spec.node_name
        ));
    }
    for (list, index, container) in pod.spec.listed() {
        let path = item(&child("spec", list), index);
        let written = as_written
            .pointer(&format!("/spec/{list}/{index}"))
            .unwrap_or(&Value::Null);
        if written
            .get("imagePullPolicy")
            .is_some_and(|policy| policy == "Always")
        {
            warnings.push(format!("{path}.imagePullPolicy: not acted on: nothing is pulled yet, the loaded image is used"));
        }
        if !pod.spec.host_network {
            warnings.extend(host_ports(container, &path));
        }
        warnings.extend(fractions_of_bytes(container, &path));
        for probe_type in ProbeType::ALL {
            if let Some(probe) = container.probe(probe_type) {
                let field = probe_field(probe_type);
                warnings.extend(both_units(&written[field], &child(&path, field)));
                warnings.extend(no_timeout(&written[field], probe, &child(&path, field)));
                warnings.extend(port_name(container, probe, &child(&path, field)));
            }
        }
    }
    warnings
}

/// A time given in both units: the milliseconds count, since only a person who wants them writes them.
fn both_units(written: &Value, path: &str) -> Vec<String> {
    let given = |field: String| {
        written
            .get(field)
            .is_some_and(|time| !time.is_null() && *time != 0)
    };
    ["initialDelay", "timeout", "period"]
        .into_iter()
        .filter(|time| given(format!("{time}Seconds")) && written.get(format!("{time}Milliseconds")).is_some())
        .map(|time| format!("{path}.{time}Seconds: not acted on: {time}Milliseconds is given too, and counts instead"))
        .collect()
}

/// Without a time of its own an exec probe has one second, which a shell on a busy node can miss.
fn no_timeout(written: &Value, probe: &Probe, path: &str) -> Option<String> {
    let unset = written
        .get("timeoutSeconds")
        .is_none_or(|seconds| *seconds == 0);
    (probe.exec.is_some() && probe.timeout_milliseconds.is_none() && unset)
        .then(|| format!("{path}.timeoutSeconds: not set: the command has the default of 1s, and taking longer counts as a failure"))
}

/// A port name is looked up when probing, where a wrong one is an error each time (kubelet-probes 3.3).
fn port_name(container: &Container, probe: &Probe, path: &str) -> Option<String> {
    let (handler, port) = match probe.handler()? {
        Handler::HttpGet(http) => ("httpGet", &http.port),
        Handler::TcpSocket(tcp) => ("tcpSocket", &tcp.port),
        Handler::Exec(_) | Handler::Grpc(_) => return None,
    };
    let IntOrString::String(name) = port else {
        return None;
    };
    let path = format!("{path}.{handler}.port");
    match container.ports.iter().find(|port| port.name == *name) {
        None => Some(format!(
            "{path}: the container has no port named \"{name}\": every probe will fail to run"
        )),
        Some(port) if port.protocol != "TCP" => Some(format!(
            "{path}: port \"{name}\" is {}, and the probe speaks TCP",
            port.protocol
        )),
        Some(_) => None,
    }
}

fn host_ports(container: &Container, path: &str) -> Vec<String> {
    let given = container
        .ports
        .iter()
        .enumerate()
        .filter(|(_, port)| port.host_port != 0);
    given
        .map(|(index, _)| {
            let port = item(&child(path, "ports"), index);
            format!("{port}.hostPort: kept free of other pods, but nothing is forwarded from the node to the container: use hostNetwork for that")
        })
        .collect()
}

/// `64m` is not 64 megabytes.
fn fractions_of_bytes(container: &Container, path: &str) -> Vec<String> {
    let resources = &container.resources;
    let both = [
        ("limits", resources.limits.get("memory")),
        ("requests", resources.requests.get("memory")),
    ];
    let fraction = |quantity: &&crate::api::quantity::Quantity| {
        quantity.parse().is_ok_and(|amount| !amount.is_whole())
    };
    both.into_iter()
        .filter_map(|(field, memory)| memory.filter(fraction).map(|memory| (field, memory)))
        .map(|(field, memory)| format!("{path}.resources.{field}[memory]: {memory} is a fraction of a byte: megabytes are M, mebibytes Mi"))
        .collect()
}
