//! Warnings for the person who wrote a pod that may run, but perhaps not as the person meant.

use serde_json::Value;

use crate::api::capabilities::{canonical, has_prefix};
use crate::api::field::{child, entry, item};
use crate::api::pod::{Container, Handler, HookKind, IntOrString, Pod, Probe, ProbeType};
use crate::api::priority;
use crate::api::source::{MIRROR_ANNOTATION, PodSource};
use crate::api::validation::probe_field;

/// Removes from a static pod the fields that only an API server sets and that would turn the pod into something else.
/// Returns a warning for each.
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

/// Returns advice on a valid pod. `as_written` is the object without its defaults.
pub(super) fn advice(as_written: &Value, pod: &Pod, source: PodSource) -> Vec<String> {
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
    // In a cluster the control plane acts on them.
    if source != PodSource::Api {
        warnings.extend(spec_advice(&as_written["spec"]));
    }
    for listed in pod.spec.listed() {
        let (path, container) = (listed.path(), listed.container);
        let written = as_written
            .pointer(&format!("/spec/{}/{}", listed.kind.list(), listed.index))
            .unwrap_or(&Value::Null);
        if !pod.spec.host_network {
            warnings.extend(host_ports(container, &path));
        }
        warnings.extend(prefixed_capabilities(container, &path));
        warnings.extend(memory(container, &path));
        warnings.extend(ephemeral_storage(container, &path));
        warnings.extend(will_not_start(pod, container, &path));
        for probe_type in ProbeType::ALL {
            if let Some(probe) = container.probe(probe_type) {
                let field = probe_field(probe_type);
                warnings.extend(both_units(&written[field], &child(&path, field)));
                warnings.extend(no_timeout(&written[field], probe, &child(&path, field)));
                warnings.extend(port_name(container, probe, &child(&path, field)));
            }
        }
        warnings.extend(hooks(container, &child(&path, "lifecycle")));
    }
    warnings
}

/// Warns of a time that is given in seconds and in milliseconds. The milliseconds count, because nobody writes them
/// by accident.
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

/// Warns of an exec probe without a timeout. Its timeout is one second, and a shell on a busy node can take longer.
fn no_timeout(written: &Value, probe: &Probe, path: &str) -> Option<String> {
    let unset = written
        .get("timeoutSeconds")
        .is_none_or(|seconds| *seconds == 0);
    (probe.exec.is_some() && probe.timeout_milliseconds.is_none() && unset)
        .then(|| format!("{path}.timeoutSeconds: not set: the command has the default of 1s, and taking longer counts as a failure"))
}

/// Warns of a port name that no port of the container has. The name is looked up at each probe, and each time the
/// probe ends with an error (kubelet-probes 3.3).
fn port_name(container: &Container, probe: &Probe, path: &str) -> Option<String> {
    let (handler, port) = match probe.handler()? {
        Handler::HttpGet(http) => ("httpGet", &http.port),
        Handler::TcpSocket(tcp) => ("tcpSocket", &tcp.port),
        Handler::Exec(_) | Handler::Grpc(_) => return None,
    };
    unknown_port(container, port, &format!("{path}.{handler}.port"), "probe")
}

/// Warns of a port name if no port of the container has the name, or if the port with the name is not a TCP port.
/// `user` is the word for the user of the port: `probe` or `hook`.
fn unknown_port(
    container: &Container,
    port: &IntOrString,
    path: &str,
    user: &str,
) -> Option<String> {
    let IntOrString::String(name) = port else {
        return None;
    };
    match container.ports.iter().find(|port| port.name == *name) {
        None => Some(format!(
            "{path}: the container has no port named \"{name}\": every {user} will fail to run"
        )),
        Some(port) if port.protocol != "TCP" => Some(format!(
            "{path}: port \"{name}\" is {}, and the {user} speaks TCP",
            port.protocol
        )),
        Some(_) => None,
    }
}

/// Warns of hooks that can only fail (kubelet-probes 8.5).
fn hooks(container: &Container, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for kind in HookKind::ALL {
        let path = child(path, kind.field());
        let Some(hook) = container.hook(kind) else {
            continue;
        };
        if hook.tcp_socket.is_some() {
            let then = match kind {
                HookKind::PostStart => ", so the container is killed after each start",
                HookKind::PreStop => "",
            };
            warnings.push(format!(
                "{path}.tcpSocket: not acted on: a hook of this type always fails{then}"
            ));
        }
        if let Some(http) = &hook.http_get {
            let path = format!("{path}.httpGet.port");
            warnings.extend(unknown_port(container, &http.port, &path, "hook"));
        }
    }
    warnings
}

fn host_ports(container: &Container, path: &str) -> Vec<String> {
    let given = container.ports.iter().enumerate();
    given
        .filter(|(_, port)| port.host_port != 0 && port.protocol == "SCTP")
        .map(|(index, _)| {
            let path = item(&child(path, "ports"), index);
            format!("{path}.hostPort: kept free of other pods, but nothing is forwarded: podprobe forwards TCP and UDP; use hostNetwork for SCTP")
        })
        .collect()
}

/// Warns of fields of the spec that are read and checked, but have no effect on this node.
fn spec_advice(spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn =
        |field: &str, why: &str| warnings.push(format!("spec.{field}: not acted on: {why}"));
    if !spec["tolerations"]
        .as_array()
        .is_none_or(|all| all.iter().all(is_given_to_every_pod))
    {
        warn("tolerations", "a pod here is never evicted for a taint");
    }
    let class = spec["priorityClassName"].as_str().unwrap_or_default();
    let known = priority::of_class(class);
    if known.is_none() && !class.is_empty() {
        let why = "without an API server there are the classes system-node-critical and system-cluster-critical only";
        warn("priorityClassName", why);
    }
    if spec["priority"]
        .as_i64()
        .is_some_and(|p| p != 0 && known.map(i64::from) != Some(p))
    {
        warn(
            "priority",
            "pods are not evicted for one another; those that wait for room start in its order",
        );
    }
    warnings
}

/// True for the tolerations that admission gives every pod, and for the toleration that every static pod gets
/// (kubelet-probes 6.1).
fn is_given_to_every_pod(toleration: &Value) -> bool {
    match toleration["key"].as_str() {
        Some(key) if !key.is_empty() => key.starts_with("node.kubernetes.io/"),
        _ => toleration["effect"] == "NoExecute",
    }
}

/// Warns of values that the API accepts, but with which no runtime can start the container.
fn will_not_start(pod: &Pod, container: &Container, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let directory = &container.working_dir;
    if !directory.is_empty() && !directory.starts_with('/') {
        warnings.push(format!(
            "{path}.workingDir: \"{directory}\" is no absolute path: the container will not start"
        ));
    }
    let (own, pods) = (&container.security_context, &pod.spec.security_context);
    if own.run_as_user.or(pods.run_as_user) == Some(0)
        && own.run_as_non_root.or(pods.run_as_non_root) == Some(true)
    {
        warnings.push(format!(
            "{path}.securityContext: runAsNonRoot is true and runAsUser is 0: the container will not start"
        ));
    }
    warnings
}

/// Warns of capabilities to add that are written with the prefix `CAP_`. A name with this prefix grants nothing,
/// neither in podprobe nor in containerd.
fn prefixed_capabilities(container: &Container, path: &str) -> Vec<String> {
    let added = &container.security_context.capabilities.add;
    let added = added.iter().enumerate();
    let prefixed = added.filter(|(_, name)| has_prefix(name));
    let warn = |(index, name): (usize, &String)| {
        let at = item(&format!("{path}.securityContext.capabilities.add"), index);
        let plain = canonical(name).unwrap_or_default();
        format!("{at}: not acted on: capabilities are written without CAP_: \"{plain}\"")
    };
    prefixed.map(warn).collect()
}

fn ephemeral_storage(container: &Container, path: &str) -> Option<String> {
    let resources = &container.resources;
    let field = [
        ("limits", &resources.limits),
        ("requests", &resources.requests),
    ]
    .into_iter()
    .find(|(_, given)| given.contains_key("ephemeral-storage"))?
    .0;
    Some(format!(
        "{}: not acted on: the disk space of a container is not limited",
        entry(&format!("{path}.resources.{field}"), "ephemeral-storage")
    ))
}

/// Smallest memory limit in bytes with which a process starts. A smaller limit is a mistake, but 0 means no limit.
const LEAST_MEMORY: i64 = 1 << 20;

/// Warns of a memory limit such as `64m` or `64`, which does not mean 64 megabytes.
fn memory(container: &Container, path: &str) -> Vec<String> {
    let resources = &container.resources;
    let limit = resources.limits.get("memory");
    // A request that is left out equals the limit. The limit already has its warning.
    let request = resources
        .requests
        .get("memory")
        .filter(|r| limit != Some(r));
    let both = [("limits", limit), ("requests", request)];
    let mut warnings = Vec::new();
    for (field, memory) in both
        .into_iter()
        .filter_map(|(f, memory)| Some((f, memory?)))
    {
        let Ok(amount) = memory.parse() else { continue };
        let at = format!("{path}.resources.{field}[memory]");
        if !amount.is_whole() {
            warnings.push(format!(
                "{at}: {memory} is a fraction of a byte: megabytes are M, mebibytes Mi"
            ));
        } else if field == "limits" && (1..LEAST_MEMORY).contains(&amount.value()) {
            warnings.push(format!(
                "{at}: no process starts with {memory} bytes: megabytes are M, mebibytes Mi"
            ));
        }
    }
    warnings
}
