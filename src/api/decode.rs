//! From bytes to the pods of a source (kubelet-probes 6.2): parse, type, default, identify, validate.
//!
//! Invariants: pure; all errors of a file are returned at once, each with its line; a decoded pod
//! is valid and has its defaults, and every field that was dropped has a warning.

mod advice;
mod error;
mod locate;
mod syntax;
mod typed;

use serde_json::Value;

pub use error::{DecodeError, Problem};
pub use locate::Position;
pub use syntax::SIZE_LIMIT;

use self::error::Findings;
use super::defaults;
use super::field::{Step, lookup, render};
use super::pod::{ObjectMeta, Pod};
use super::source::{PodOrigin, PodSource};
use super::support::{self, Verdict};
use super::validation::{FieldError, validate_pod};
use super::{identity, priority};

/// A pod that may run, with warnings for the person who wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedPod {
    /// Valid, with its defaults and its identity.
    pub pod: Pod,
    /// One sentence for each field that is not acted on, starting with its path; then advice. At
    /// most 64, and a count of the rest. In a list the warnings of the first pod begin with the
    /// skipped items.
    pub warnings: Vec<String>,
}

/// The pods of a v1 Pod or PodList in JSON. One bad pod makes the whole list an error.
///
/// # Errors
/// The text is too big, not UTF-8, not JSON, not a v1 Pod or PodList, or a pod in it is refused.
pub fn pods(bytes: &[u8], origin: &PodOrigin) -> Result<Vec<DecodedPod>, DecodeError> {
    let text = syntax::text(bytes, origin.place())?;
    let root = syntax::parse(text, origin.place())?;
    let mut findings = Findings::new(text, origin.place());
    let found = syntax::pods(root, &mut findings);
    for repeated in locate::repeated_keys(text, error::MOST) {
        let text = format!(
            "{}: given a second time: remove one of the two",
            repeated.path
        );
        findings.add_at(repeated.at, text);
    }
    let mut decoded = Vec::new();
    for (around, raw) in found.pods {
        findings.enter(&around);
        decoded.push(pod(raw, origin, &mut findings));
    }
    findings.enter(&[]);
    if let Some(first) = decoded.first_mut() {
        let skipped = at_most(found.skipped, error::MOST, "items are skipped");
        first.warnings.splice(0..0, skipped);
    }
    refuse_twins(&decoded, &mut findings);
    findings.into_result(decoded)
}

/// Decodes one pod; its problems go to `findings`.
fn pod(mut raw: Value, origin: &PodOrigin, findings: &mut Findings) -> DecodedPod {
    typed::strip_nulls(&mut raw);
    let ignored = typed::check(&mut raw, findings);
    let mut warnings = unread_fields(&raw, &ignored, origin.source(), findings);
    warnings.extend(advice::drop_server_fields(&mut raw, origin.source()));
    if raw
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        findings.add_error(&FieldError::required(
            "metadata.name",
            "name is needed for the pod",
        ));
        findings.hide("metadata.name");
    }
    let as_written = raw.clone();
    defaults::apply(&mut raw);
    identity::apply(&mut raw, origin);
    // After the identity, which depends only on the content of the file.
    priority::resolve(&mut raw);
    let pod = typed::pod(raw, findings);
    for error in validate_pod(&pod)
        .into_iter()
        .chain(support::unsupported_values(&pod))
    {
        findings.add_error(&error);
    }
    warnings.extend(advice::advice(&as_written, &pod));
    DecodedPod {
        pod,
        warnings: at_most(warnings, error::MOST, "fields are not acted on"),
    }
}

/// The first `most` warnings, and the number of the others.
fn at_most(mut warnings: Vec<String>, most: usize, what: &str) -> Vec<String> {
    let more = warnings.len().saturating_sub(most);
    if more > 0 {
        warnings.truncate(most);
        warnings.push(format!("and {more} more {what}"));
    }
    warnings
}

/// Refuses or warns for each field that no type read.
fn unread_fields(
    raw: &Value,
    ignored: &[Vec<Step>],
    source: PodSource,
    findings: &mut Findings,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for path in ignored {
        let Some(value) = lookup(raw, path) else {
            continue;
        };
        match support::verdict(source, path, value) {
            Verdict::Fine => {}
            Verdict::Warn(text) => warnings.push(text),
            Verdict::Refuse { text, meant } => {
                findings.add_for(&render(path), text);
                meant.into_iter().for_each(|meant| findings.hide(&meant));
            }
        }
    }
    warnings
}

/// Refuses two pods of one list with the same name: they would be one pod with two specs.
fn refuse_twins(pods: &[DecodedPod], findings: &mut Findings) {
    for (index, DecodedPod { pod, .. }) in pods.iter().enumerate() {
        if !pod.metadata.name.is_empty()
            && pods[..index]
                .iter()
                .any(|other| other.pod.full_name() == pod.full_name())
        {
            let path = format!("items[{index}].metadata.name");
            let name = as_in_namespace(&pod.metadata);
            findings.add_for(&path, FieldError::duplicate(&path, name).to_string());
        }
    }
}

fn as_in_namespace(meta: &ObjectMeta) -> String {
    format!("{}/{}", meta.namespace, meta.name)
}

#[cfg(test)]
mod tests;
