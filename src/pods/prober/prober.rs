//! Runs one probe from spec to result: dispatch, retries, events (kubelet-probes 3.1).
//!
//! Invariants: a prober knows no worker and no cache, so a probe can run now without changing state. The caller may
//! keep the prepared parts. Every failed run writes one event, even below the threshold. A run has up to three tries,
//! and only errors are tried again. The log has a line when runs begin to fail, and a line when they stop failing. At
//! `debug` the log has a line for each run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::outcome::{HandlerResult, Outcome, Phase};
use super::ports::{PortError, resolve_port};
use super::target::{Target, TargetError, is_node_address, resolve_target};
use super::trace::note;
use super::url::ProbeUrl;
use super::worker::Verdict;
use super::{exec, grpc, http, tcp};
use crate::api::expansion::probe_command;
use crate::api::pod::{ContainerPort, GrpcAction, HttpGetAction, IntOrString, TcpSocketAction};
use crate::api::probe_host::ProbeHosts;
use crate::api::{Handler, Pod, PodStatus, ProbeType};
use crate::engine::runtime::{ContainerId, Runtime, RuntimeError};
use crate::pods::events::{EventType, Recorder};

/// The largest number of tries of a handler that returns errors.
pub const MAX_TRIES: u32 = 3;

/// Runs probes with retries, and writes their events.
pub struct Prober {
    runtime: Arc<dyn Runtime>,
    recorder: Arc<Recorder>,
    allow_probe_hosts: Vec<String>,
}

/// The subject of a probe: an instance of a container in a pod.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The pod of the container.
    pub pod: &'a Pod,
    /// The pod's stored API status, with the pod's addresses.
    pub status: &'a PodStatus,
    /// The name of the container.
    pub container: &'a str,
    /// The id of the container's instance.
    pub id: &'a ContainerId,
}

impl Prober {
    /// Makes a prober that runs commands through `runtime` and writes events to `recorder`.
    pub fn new(
        runtime: Arc<dyn Runtime>,
        recorder: Arc<Recorder>,
        allow_probe_hosts: Vec<String>,
    ) -> Self {
        Self {
            runtime,
            recorder,
            allow_probe_hosts,
        }
    }

    /// Runs the container's probe of this type with retries, writes the event, and returns the verdict for the worker.
    /// `memory` must be new or come from earlier runs with the same subject. Pass the same `memory` at the next run.
    pub fn probe(
        &self,
        probe_type: ProbeType,
        subject: Subject<'_>,
        memory: &mut Memory,
    ) -> (Verdict, Outcome) {
        let outcome = self.run(probe_type, subject, &mut memory.prepared);
        if let Some((level, change)) = memory.change(&outcome) {
            let (pod, container) = (&subject.pod.metadata.name, subject.container);
            let probe = probe_type.word();
            log::log!(level, "{probe} probe of {pod}/{container} {change}");
        }
        if let Some((reason, message)) = event(probe_type, &outcome) {
            let field_path = subject.pod.field_path(subject.container);
            self.recorder.record_at(
                log::Level::Debug,
                &subject.pod.reference(),
                &field_path,
                EventType::Warning,
                reason,
                &message,
            );
        }
        (verdict(&outcome), outcome)
    }

    /// Runs a probe with retries and without an event. After an error all parts are prepared again.
    pub fn run(
        &self,
        probe_type: ProbeType,
        subject: Subject<'_>,
        prepared: &mut Option<Prepared>,
    ) -> Outcome {
        let begun = Instant::now();
        let (mut start, mut tries) = (begun, 1);
        loop {
            let mut outcome = self.try_once(
                prepared.get_or_insert_with(|| self.prepare(probe_type, subject)),
                subject.id,
            );
            let end = Instant::now();
            (outcome.duration, outcome.all_tries) = (end - start, end - begun);
            let Some(error) = &outcome.error else {
                return outcome;
            };
            *prepared = None;
            if tries == MAX_TRIES {
                return outcome;
            }
            (start, tries) = (end, tries + 1);
            note(|| format!("try {tries} of {MAX_TRIES}: the last one errored: {error}"));
        }
    }

    /// Prepares the parts of a probe that do not change from run to run.
    #[inline(never)]
    fn prepare(&self, probe_type: ProbeType, subject: Subject<'_>) -> Prepared {
        let container = subject.pod.container(subject.container);
        let Some((container, spec)) = container.and_then(|c| Some((c, c.probe(probe_type)?)))
        else {
            return Prepared {
                timeout: Duration::ZERO,
                action: Action::Nothing,
            };
        };
        let ports = &container.ports;
        let action = match spec.handler() {
            Some(Handler::Exec(action)) => {
                Ok(Action::Exec(probe_command(&action.command, &container.env)))
            }
            Some(Handler::HttpGet(action)) => self.http_get(action, ports, subject),
            Some(Handler::TcpSocket(action)) => self.tcp_socket(action, ports, subject),
            Some(Handler::Grpc(action)) => self.grpc(action, subject),
            None => Err(PrepareError::NoHandler {
                pod: subject.pod.reference().to_string(),
                container: subject.container.to_owned(),
            }),
        };
        Prepared {
            timeout: spec.timeout(),
            action: action.unwrap_or_else(Action::Impossible),
        }
    }

    fn http_get(
        &self,
        action: &HttpGetAction,
        ports: &[ContainerPort],
        subject: Subject<'_>,
    ) -> Result<Action, PrepareError> {
        let port = resolve_port(&action.port, ports)?;
        let target = self.target(&action.host, subject)?;
        let url = ProbeUrl::of_probe(&action.scheme, &target.host, port, &action.path);
        Ok(Action::HttpGet(http::Get::new(
            url,
            &action.http_headers,
            target,
        )))
    }

    fn tcp_socket(
        &self,
        action: &TcpSocketAction,
        ports: &[ContainerPort],
        subject: Subject<'_>,
    ) -> Result<Action, PrepareError> {
        let port = resolve_port(&action.port, ports)?;
        Ok(Action::TcpSocket(self.target(&action.host, subject)?, port))
    }

    fn grpc(&self, action: &GrpcAction, subject: Subject<'_>) -> Result<Action, PrepareError> {
        let port = resolve_port(&IntOrString::Int(action.port), &[])?;
        let service = action.service.clone().unwrap_or_default();
        Ok(Action::Grpc {
            target: self.target("", subject)?,
            port,
            service,
        })
    }

    fn target(&self, host: &str, subject: Subject<'_>) -> Result<Target, PrepareError> {
        let netns = self.runtime.network_namespace(subject.pod.uid())?;
        let target = resolve_target(
            host,
            subject.status,
            netns.as_ref(),
            &ProbeHosts {
                allowed: &self.allow_probe_hosts,
                is_node_address: &is_node_address,
            },
        )?;
        note(|| target.description());
        Ok(target)
    }

    // None of the handlers is inlined: a frame with all of them would stay resident in the stack of each worker.
    fn try_once(&self, prepared: &Prepared, id: &ContainerId) -> Outcome {
        let timeout = prepared.timeout;
        match &prepared.action {
            Action::Exec(command) => exec::probe(&*self.runtime, id, command, timeout),
            Action::HttpGet(get) => get.run(timeout),
            Action::TcpSocket(target, port) => tcp::probe(target, *port, timeout),
            Action::Grpc {
                target,
                port,
                service,
            } => grpc::probe(target, *port, service, timeout),
            Action::Nothing => Outcome::new(HandlerResult::Success, "", Phase::Prepare),
            Action::Impossible(error) => Outcome::error(error.to_string(), Phase::Prepare),
        }
    }
}

/// The state of a probe that its worker keeps from run to run.
#[derive(Default)]
pub struct Memory {
    prepared: Option<Prepared>,
    /// The verdict of the last run.
    verdict: Option<Verdict>,
    /// True if a run has succeeded.
    succeeded: bool,
}

impl Memory {
    /// Forgets the prepared parts, which may be wrong because the status of the pod has changed.
    pub fn forget_prepared(&mut self) {
        self.prepared = None;
    }

    /// Returns the level and text of the log line for a run whose outcome differs from the outcome before, or `None` if
    /// both outcomes are alike. The end of the container is not logged, because the worker's next step sees it.
    fn change(&mut self, outcome: &Outcome) -> Option<(log::Level, String)> {
        let is = verdict(outcome);
        if outcome.container_gone || self.verdict == Some(is) {
            return None;
        }
        self.verdict = Some(is);
        let before = self.succeeded;
        self.succeeded |= is == Verdict::Success;
        let cause = outcome.cause();
        Some(match is {
            Verdict::Success if before => (log::Level::Info, "succeeded again".into()),
            Verdict::Success => (log::Level::Info, "succeeded".into()),
            Verdict::Failure if cause.is_empty() => {
                (log::Level::Warn, "failed without output".into())
            }
            Verdict::Failure => (log::Level::Warn, format!("failed: {cause}")),
            Verdict::Error => (log::Level::Warn, format!("cannot be run: {cause}")),
        })
    }
}

/// The prepared parts of a run: command, addresses, port, request. They are valid until the status of the pod changes
/// or a run has an error. A run has an error if no process holds the network namespace any more. The runtime is then
/// asked for the namespace again.
pub struct Prepared {
    timeout: Duration,
    action: Action,
}

enum Action {
    Exec(Vec<String>),
    HttpGet(http::Get),
    TcpSocket(Target, u16),
    Grpc {
        target: Target,
        port: u16,
        service: String,
    },
    /// The container has no probe of this type.
    Nothing,
    /// The probe cannot be prepared, so each run is an error.
    Impossible(PrepareError),
}

/// The reason why a probe cannot be prepared. The run of such a probe is an error, never a failure.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    /// The probe of this container has no handler.
    #[error("missing probe handler for {pod}:{container}")]
    NoHandler { pod: String, container: String },
    /// The port does not exist or is not valid.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The host must not be probed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The runtime cannot return the pod's network namespace.
    #[error(transparent)]
    Namespace(#[from] RuntimeError),
}

/// Returns the verdict on an outcome, for the worker.
pub fn verdict(outcome: &Outcome) -> Verdict {
    match (&outcome.error, outcome.result) {
        (Some(_), _) => Verdict::Error,
        (None, HandlerResult::Success | HandlerResult::Warning) => Verdict::Success,
        (None, HandlerResult::Failure | HandlerResult::Unknown) => Verdict::Failure,
    }
}

/// Returns the reason and the text of an outcome's event, or `None` if there is no event. A container that ended before
/// the probe has no event, because the worker's next step sees its end (lessons F1).
pub fn event(probe_type: ProbeType, outcome: &Outcome) -> Option<(&'static str, String)> {
    let Outcome {
        result,
        output,
        error,
        ..
    } = outcome;
    match (error, result) {
        _ if outcome.container_gone => None,
        (Some(e), _) => Some((
            "Unhealthy",
            format!("{probe_type} probe errored and resulted in {result} state: {e}"),
        )),
        (None, HandlerResult::Warning) => Some((
            "ProbeWarning",
            format!("{probe_type} probe warning: {output}"),
        )),
        (None, HandlerResult::Failure) => {
            Some(("Unhealthy", format!("{probe_type} probe failed: {output}")))
        }
        (None, HandlerResult::Success | HandlerResult::Unknown) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::runtime::ExecOutcome;

    #[track_caller]
    fn check(
        result: HandlerResult,
        output: &str,
        error: Option<&str>,
        expected: Verdict,
        message: Option<(&str, &str)>,
    ) {
        let outcome = Outcome {
            error: error.map(Into::into),
            ..Outcome::new(result, output, Phase::Run)
        };
        assert_eq!(verdict(&outcome), expected);
        assert_eq!(
            event(ProbeType::Liveness, &outcome),
            message
                .map(|(r, m)| (r, m.to_owned()))
                .map(|(r, m)| (leak(r), m))
        );
    }

    /// A day of 86,400 failing runs gives one log line, and the end of the failures gives one more.
    #[test]
    fn only_a_change_is_logged() {
        let mut memory = Memory::default();
        let mut lines = |outcome: Outcome| memory.change(&outcome);
        let failed = || Outcome::new(HandlerResult::Failure, "statuscode: 503", Phase::Read);
        let ok = || Outcome::new(HandlerResult::Success, "", Phase::Read);
        let broken = || Outcome::error("no namespace", Phase::Connect);
        let gone = || Outcome {
            container_gone: true,
            ..broken()
        };
        let line = |level, text: &str| Some((level, text.to_owned()));
        let first = "succeeded";
        assert_eq!(lines(ok()), line(log::Level::Info, first));
        let fails = "failed: statuscode: 503";
        assert_eq!(lines(failed()), line(log::Level::Warn, fails));
        for _ in 0..1000 {
            assert_eq!(lines(failed()), None);
        }
        assert_eq!(lines(gone()), None);
        assert_eq!(lines(failed()), None, "the end of a container is no change");
        let errs = "cannot be run: no namespace";
        assert_eq!(lines(broken()), line(log::Level::Warn, errs));
        assert_eq!(lines(broken()), None);
        let over = "succeeded again";
        assert_eq!(lines(ok()), line(log::Level::Info, over));
        let silent = Outcome::new(HandlerResult::Failure, "", Phase::Run);
        let fails = "failed without output";
        assert_eq!(lines(silent), line(log::Level::Warn, fails));
    }

    fn leak(s: &str) -> &'static str {
        if s == "Unhealthy" {
            "Unhealthy"
        } else {
            "ProbeWarning"
        }
    }

    /// Lessons F1: a probe that ran out of time reports the timeout, whatever its command has written.
    #[test]
    fn f1_a_timeout_has_a_text() {
        for output in ["", "half a line"] {
            let answer = Ok(ExecOutcome::TimedOut {
                output: output.into(),
            });
            let outcome = exec::judge(
                answer,
                &["sleep".into(), "9".into()],
                Duration::from_secs(1),
            );
            let text = "Readiness probe failed: command timed out: \"sleep 9\" timed out after 1s";
            assert_eq!(
                event(ProbeType::Readiness, &outcome),
                Some(("Unhealthy", text.to_owned()))
            );
        }
    }

    #[test]
    fn f1_a_container_that_has_just_ended_has_no_event() {
        use crate::engine::runtime::{RuntimeError, RuntimeErrorKind};
        let judged = |reason| {
            exec::judge(
                Err(RuntimeError::new(reason, "it is not running")),
                &[],
                Duration::from_secs(1),
            )
        };
        let outcome = judged(RuntimeErrorKind::NotRunning);
        assert_eq!(
            (verdict(&outcome), event(ProbeType::Readiness, &outcome)),
            (Verdict::Error, None)
        );
        assert!(event(ProbeType::Readiness, &judged(RuntimeErrorKind::Failed)).is_some());
    }

    #[test]
    fn outcomes_become_verdicts_and_events() {
        use HandlerResult::{Failure, Success, Unknown, Warning};
        check(Success, "ok", None, Verdict::Success, None);
        check(
            Warning,
            "moved",
            None,
            Verdict::Success,
            Some(("ProbeWarning", "Liveness probe warning: moved")),
        );
        check(
            Failure,
            "no",
            None,
            Verdict::Failure,
            Some(("Unhealthy", "Liveness probe failed: no")),
        );
        check(Unknown, "", None, Verdict::Failure, None);
        let errored = "Liveness probe errored and resulted in unknown state: broken";
        check(
            Unknown,
            "",
            Some("broken"),
            Verdict::Error,
            Some(("Unhealthy", errored)),
        );
        let half = "Liveness probe errored and resulted in failure state: unexpected EOF";
        check(
            Failure,
            "",
            Some("unexpected EOF"),
            Verdict::Error,
            Some(("Unhealthy", half)),
        );
    }
}
