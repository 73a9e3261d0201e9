//! Validates the hooks and the stop signal of a container (kubelet-probes 1.8).

use super::probes::{exactly_one, exec, http_get, tcp_socket};
use crate::api::field::{FieldError, child};
use crate::api::pod::{Hook, HookKind, Lifecycle, PodSpec, SleepAction};

/// Signals that the API knows by name, except the real-time signals.
const SIGNALS: [&str; 34] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// Checks `lifecycle` of a regular container or of a sidecar.
pub(super) fn validate_lifecycle(
    errors: &mut Vec<FieldError>,
    lifecycle: &Lifecycle,
    spec: &PodSpec,
    path: &str,
) {
    for (kind, hook) in [
        (HookKind::PostStart, &lifecycle.post_start),
        (HookKind::PreStop, &lifecycle.pre_stop),
    ] {
        if let Some(hook) = hook {
            errors.extend(validate_hook(hook, spec, &child(path, kind.field())));
        }
    }
    if let Some(signal) = &lifecycle.stop_signal {
        errors.extend(stop_signal(signal, spec, child(path, "stopSignal")));
    }
}

fn validate_hook(hook: &Hook, spec: &PodSpec, path: &str) -> Vec<FieldError> {
    let at = |name| child(path, name);
    let grace = spec.termination_grace_period_seconds;
    let handlers = [
        (hook.exec.as_ref()).map(|action| (at("exec"), exec(action, &at("exec")))),
        (hook.http_get.as_ref()).map(|action| (at("httpGet"), http_get(action, &at("httpGet")))),
        (hook.tcp_socket.as_ref())
            .map(|action| (at("tcpSocket"), tcp_socket(action, &at("tcpSocket")))),
        (hook.sleep.as_ref()).map(|action| (at("sleep"), sleep(action, grace, at("sleep")))),
    ];
    exactly_one(handlers, path)
}

/// Checks that a hook sleeps no longer than the grace period. The rule also holds for a postStart hook.
fn sleep(sleep: &SleepAction, grace: Option<i64>, path: String) -> Vec<FieldError> {
    let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&sleep.seconds)) else {
        return Vec::new();
    };
    let detail =
        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
    vec![FieldError::invalid(path, sleep.seconds, detail)]
}

/// Checks a stop signal. If `spec.os` names another system than linux, another check reports the error.
fn stop_signal(signal: &str, spec: &PodSpec, path: String) -> Option<FieldError> {
    let Some(os) = &spec.os else {
        let why = "may not be set for containers with empty `spec.os.name`";
        return Some(FieldError::forbidden(path, why));
    };
    let known = stop_signals();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    (os.name == "linux" && !known.contains(&signal))
        .then(|| FieldError::not_supported(path, signal, &known))
}

/// Returns the names of the signals that may stop a container on Linux. The real-time signals among them are `SIGRTMIN`
/// to `SIGRTMIN+15` and `SIGRTMAX-14` to `SIGRTMAX`.
pub fn stop_signals() -> Vec<String> {
    let name = |base: &str, sign, offset| match offset {
        0 => base.to_owned(),
        offset => format!("{base}{sign}{offset}"),
    };
    let up = (0..=15).map(|offset| name("SIGRTMIN", '+', offset));
    let down = (0..=14).map(|offset| name("SIGRTMAX", '-', offset));
    let named = SIGNALS.into_iter().map(str::to_owned);
    named.chain(up).chain(down).collect()
}
