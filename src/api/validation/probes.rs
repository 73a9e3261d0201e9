//! Validates probes and their handlers (kubelet-probes 1.3, 1.4).

use super::checks::{NOT_NEGATIVE, named, no_nul};
use super::names::{is_valid_header_name, is_valid_port_name, is_valid_port_number};
use crate::api::field::{FieldError, child, item};
use crate::api::pod::{
    ExecAction, GrpcAction, HttpGetAction, IntOrString, Probe, ProbeType, TcpSocketAction,
};

/// Smallest value of a field in milliseconds. With a smaller value a probe worker would do little but wake up.
pub const MIN_MILLISECONDS: i32 = 10;

/// Returns the name of the container's field for the probe of this type.
pub fn probe_field(probe_type: ProbeType) -> &'static str {
    match probe_type {
        ProbeType::Startup => "startupProbe",
        ProbeType::Readiness => "readinessProbe",
        ProbeType::Liveness => "livenessProbe",
    }
}

/// Returns the errors of a probe of a container: rules V1–V6.
pub fn validate_container_probe(
    probe_type: ProbeType,
    probe: &Probe,
    path: &str,
) -> Vec<FieldError> {
    let mut errors = validate_probe(probe, path);
    if probe_type == ProbeType::Readiness {
        if let Some(seconds) = probe.termination_grace_period_seconds {
            let path = child(path, "terminationGracePeriodSeconds");
            errors.push(FieldError::invalid(
                path,
                seconds,
                "must not be set for readinessProbes",
            ));
        }
    } else if probe.success_threshold != 1 {
        errors.push(FieldError::invalid(
            child(path, "successThreshold"),
            probe.success_threshold,
            "must be 1",
        ));
    }
    errors
}

/// Returns the errors that a probe of any type can have: rules V1–V4.
pub fn validate_probe(probe: &Probe, path: &str) -> Vec<FieldError> {
    let mut errors = validate_handler(probe, path);
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (name, number) in numbers.into_iter().filter(|(_, number)| *number < 0) {
        errors.push(FieldError::invalid(child(path, name), number, NOT_NEGATIVE));
    }
    errors.extend(validate_milliseconds(probe, path));
    if let Some(seconds) = probe
        .termination_grace_period_seconds
        .filter(|seconds| *seconds <= 0)
    {
        errors.push(FieldError::invalid(
            child(path, "terminationGracePeriodSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    errors
}

/// Checks the fields in milliseconds, which only podprobe has. None may be below [`MIN_MILLISECONDS`], but a delay
/// may be 0.
fn validate_milliseconds(probe: &Probe, path: &str) -> Vec<FieldError> {
    let times = [
        (
            "initialDelayMilliseconds",
            probe.initial_delay_milliseconds,
            true,
        ),
        ("timeoutMilliseconds", probe.timeout_milliseconds, false),
        ("periodMilliseconds", probe.period_milliseconds, false),
    ];
    let low = |(name, time, may_be_none): (&str, Option<i32>, bool)| {
        let time = time.filter(|time| *time < MIN_MILLISECONDS && !(may_be_none && *time == 0))?;
        let detail = match (may_be_none, time < 0) {
            (true, true) => NOT_NEGATIVE.to_owned(),
            (true, false) => format!("must be 0, or greater than or equal to {MIN_MILLISECONDS}"),
            (false, _) => format!("must be greater than or equal to {MIN_MILLISECONDS}"),
        };
        Some(FieldError::invalid(child(path, name), time, detail))
    };
    times.into_iter().filter_map(low).collect()
}

/// Returns the errors of a probe's handlers: exactly one must be set, and it must be valid (V1, V2).
pub fn validate_handler(probe: &Probe, path: &str) -> Vec<FieldError> {
    let at = |name| child(path, name);
    let present = [
        probe
            .exec
            .as_ref()
            .map(|handler| (at("exec"), exec(handler, &at("exec")))),
        probe
            .http_get
            .as_ref()
            .map(|handler| (at("httpGet"), http_get(handler, &at("httpGet")))),
        probe
            .tcp_socket
            .as_ref()
            .map(|handler| (at("tcpSocket"), tcp_socket(handler, &at("tcpSocket")))),
        probe
            .grpc
            .as_ref()
            .map(|handler| (at("grpc"), grpc(handler, &at("grpc")))),
    ];
    exactly_one(present, path)
}

/// Returns the errors of the first handler that is set, and an error for each further one. Each item of `handlers`
/// has the path of the handler and its errors.
pub(super) fn exactly_one(
    handlers: impl IntoIterator<Item = Option<(String, Vec<FieldError>)>>,
    path: &str,
) -> Vec<FieldError> {
    let mut present = handlers.into_iter().flatten();
    let Some((_, mut errors)) = present.next() else {
        return vec![FieldError::required(path, "must specify a handler type")];
    };
    errors.extend(
        present.map(|(path, _)| {
            FieldError::forbidden(path, "may not specify more than 1 handler type")
        }),
    );
    errors
}

pub(super) fn exec(exec: &ExecAction, path: &str) -> Vec<FieldError> {
    let path = child(path, "command");
    if exec.command.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    for (index, word) in exec.command.iter().enumerate() {
        no_nul(&mut errors, &item(&path, index), word);
    }
    errors
}

pub(super) fn http_get(http: &HttpGetAction, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if http.path.is_empty() {
        errors.push(FieldError::required(child(path, "path"), ""));
    }
    errors.extend(validate_port(&http.port, &child(path, "port")));
    if !["HTTP", "HTTPS"].contains(&http.scheme.as_str()) {
        errors.push(FieldError::not_supported(
            child(path, "scheme"),
            http.scheme.as_str(),
            &["HTTP", "HTTPS"],
        ));
    }
    for header in &http.http_headers {
        named(
            &mut errors,
            &child(path, "httpHeaders"),
            &header.name,
            is_valid_header_name,
        );
    }
    errors
}

pub(super) fn tcp_socket(tcp: &TcpSocketAction, path: &str) -> Vec<FieldError> {
    validate_port(&tcp.port, &child(path, "port"))
}

fn grpc(grpc: &GrpcAction, path: &str) -> Vec<FieldError> {
    validate_port(&IntOrString::Int(grpc.port), &child(path, "port"))
}

/// Checks a port that is given by number or name. A name that no port of the container has is not refused; the probe
/// fails instead.
pub fn validate_port(port: &IntOrString, path: &str) -> Vec<FieldError> {
    let (value, details): (serde_json::Value, _) = match port {
        IntOrString::Int(number) => ((*number).into(), is_valid_port_number((*number).into())),
        IntOrString::String(name) => (name.as_str().into(), is_valid_port_name(name)),
    };
    details
        .into_iter()
        .map(|detail| FieldError::invalid(path, value.clone(), detail))
        .collect()
}
