//! What the log and the state of a container say of a hook that failed: the kubelet's texts
//! (kubelet-probes 8.5).
//!
//! Invariants: pure, and every text is bounded. A container's bytes are in quotes and escaped.

use super::HookSubject;
use crate::text::head;
use crate::wire::text::quote;

/// Most bytes that are kept of what a command writes, as of a termination message.
pub(super) const MAX_OUTPUT: usize = 4096;
/// Most bytes of a text: a command may be as long as a pod file, and an escaped byte has four.
const MAX_TEXT: usize = 3 * MAX_OUTPUT;

pub(super) fn of_exec(
    subject: HookSubject<'_>,
    command: &[String],
    error: &str,
    output: &[u8],
) -> String {
    let output = quote(&output[..output.len().min(MAX_OUTPUT)]);
    let command = command.join(" ");
    let text = format!(
        "Exec lifecycle hook ([{command}]) for {} failed - error: {error}, message: {output}",
        of(subject)
    );
    bounded(&text)
}

pub(super) fn of_http(subject: HookSubject<'_>, path: &str, error: &str) -> String {
    let subject = of(subject);
    bounded(&format!(
        "HTTP lifecycle hook ({path}) for {subject} failed - error: {error}"
    ))
}

/// Of a hook of a type that cannot be run.
pub(super) fn of_invalid(handler: &str) -> String {
    format!("Cannot run handler: invalid handler: {handler}")
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
