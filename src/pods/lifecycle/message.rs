//! The kubelet's texts about a failed hook, for the log and for the state of a container (kubelet-probes 8.5).
//!
//! Invariants: this module is pure, and every text is bounded. Bytes from a container are quoted and escaped.

use std::time::Duration;

use super::{Failure, HookSubject};
use crate::base::clock::go_duration;
use crate::base::text::head;
use crate::base::wire::text::quote;
use crate::engine::runtime::RuntimeError;

/// Upper limit in bytes of the kept output of a command. A termination message has the same limit.
pub(super) const MAX_OUTPUT: usize = 4096;
/// Upper limit in bytes of a text. A command may be as long as a pod file, and an escaped byte takes four bytes.
const MAX_TEXT: usize = 3 * MAX_OUTPUT;
/// Upper limit in bytes of a cause in an event.
const MAX_CAUSE: usize = 512;

pub(super) fn of_exec(
    subject: HookSubject<'_>,
    command: &[String],
    failed: &ExecFailed,
    output: &[u8],
) -> Failure {
    let output = quote(&output[..output.len().min(MAX_OUTPUT)]);
    let words = command.join(" ");
    let error = match failed {
        ExecFailed::Code(code) => format!("command '{words}' exited with {code}"),
        ExecFailed::TimedOut(_) | ExecFailed::NotRun(_) => failed.to_string(),
    };
    let text = format!(
        "Exec lifecycle hook ([{words}]) for {} failed - error: {error}, message: {output}",
        of(subject)
    );
    Failure {
        text: bounded(&text),
        cause: head(&failed.to_string(), MAX_CAUSE).to_owned(),
    }
}

/// The way in which a command failed. The text of this error is the cause in an event, and does not name the command.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecFailed {
    /// The command ended with this exit code.
    #[error("the command exited with {0}")]
    Code(i32),
    /// The command was not completed within this time.
    #[error("not completed in grace period of {}", go_duration(*.0))]
    TimedOut(Duration),
    /// The command could not be run.
    #[error(transparent)]
    NotRun(RuntimeError),
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

/// Makes the failure of a hook with a handler type that cannot be run.
pub(super) fn of_invalid(handler: &str) -> Failure {
    format!("Cannot run handler: invalid handler: {handler}").into()
}

/// Returns the text of the event about an https hook that was answered by http and sent again by http.
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
