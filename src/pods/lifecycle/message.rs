//! What the log and the state of a container say of a hook that failed: the kubelet's texts
//! (kubelet-probes 8.5).
//!
//! Invariants: pure, and every text is bounded. A container's bytes are in quotes and escaped.

use super::{Failure, HookSubject};
use crate::base::text::head;
use crate::base::wire::text::quote;

/// Most bytes that are kept of what a command writes, as of a termination message.
pub(super) const MAX_OUTPUT: usize = 4096;
/// Most bytes of a text: a command may be as long as a pod file, and an escaped byte has four.
const MAX_TEXT: usize = 3 * MAX_OUTPUT;
/// Most bytes of a cause in an event.
const MAX_CAUSE: usize = 512;

pub(super) fn of_exec(
    subject: HookSubject<'_>,
    command: &[String],
    failed: ExecFailed<'_>,
    output: &[u8],
) -> Failure {
    let output = quote(&output[..output.len().min(MAX_OUTPUT)]);
    let words = command.join(" ");
    let error = match failed {
        ExecFailed::Code(code) => format!("command '{words}' exited with {code}"),
        ExecFailed::Other(error) => error.to_owned(),
    };
    let text = format!(
        "Exec lifecycle hook ([{words}]) for {} failed - error: {error}, message: {output}",
        of(subject)
    );
    let cause = match failed {
        ExecFailed::Code(code) => format!("the command exited with {code}"),
        ExecFailed::Other(error) => head(error, MAX_CAUSE).to_owned(),
    };
    Failure {
        text: bounded(&text),
        cause,
    }
}

/// How a command failed.
#[derive(Clone, Copy)]
pub(super) enum ExecFailed<'a> {
    /// The command ended with this exit code.
    Code(i32),
    /// The command was not completed, or could not be run.
    Other(&'a str),
}

pub(super) fn of_http(subject: HookSubject<'_>, path: &str, error: &str) -> Failure {
    let subject = of(subject);
    Failure {
        text: bounded(&format!(
            "HTTP lifecycle hook ({path}) for {subject} failed - error: {error}"
        )),
        cause: head(error, MAX_CAUSE).to_owned(),
    }
}

/// Returns the failure of a hook of a type that cannot be run.
pub(super) fn of_invalid(handler: &str) -> Failure {
    format!("Cannot run handler: invalid handler: {handler}").into()
}

/// The event of an https hook that was answered by http, and repeated so.
pub(super) fn of_fallback(authority: &str) -> String {
    format!(
        "request to HTTPS lifecycle hook {authority} got HTTP response, retry with HTTP succeeded"
    )
}

fn of(subject: HookSubject<'_>) -> String {
    format!(
        "Container \"{}\" in Pod \"{}\"",
        subject.container.name,
        subject.pod.reference()
    )
}

fn bounded(text: &str) -> String {
    head(text, MAX_TEXT).to_owned()
}
