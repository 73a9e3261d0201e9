//! From the bytes of a pod file to static pods (kubelet-probes 6.2): parse, type, default, identify, validate.
//!
//! Invariants: pure; all errors of a file at once, each with its line; a pod that comes out is valid, has its
//! defaults, and no field of it was dropped without a word.

mod advice;
mod error;
mod locate;
mod syntax;
mod typed;

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

pub use error::{DecodeError, Problem};
pub use locate::Position;

use self::error::Findings;
use super::defaults;
use super::field::{Step, lookup, render};
use super::pod::{ObjectMeta, Pod, PodSpec};
use super::support::{self, Verdict};
use super::validation::{FieldError, validate_pod};
use crate::api::identity;

/// Files of this size or more are refused: 10 MiB, in bytes.
pub const SIZE_LIMIT: usize = 10 << 20;

/// Where a static pod comes from: part of its UID and of every error text.
#[derive(Clone, Copy, Debug)]
pub struct StaticSource<'a> {
    /// The daemon's node name.
    pub node_name: &'a str,
    /// The pod file.
    pub path: &'a Path,
}

/// A pod that may run, and what to tell the person who wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedPod {
    /// Valid, with its defaults and its identity.
    pub pod: Pod,
    /// One sentence for each field that is not acted on, starting with its path; then advice. At most 64, and a count of the rest.
    pub warnings: Vec<String>,
}

/// What of a v1 Pod is read. `status` is known and not read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodObject {
    // Checked before typing; here so that they count as read.
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredText,
    #[serde(rename = "kind")]
    _kind: IgnoredText,
    metadata: ObjectMeta,
    spec: PodSpec,
}

/// The pods of a v1 Pod or PodList in JSON. One bad pod spoils the list.
///
/// # Errors
/// The text is too big, not UTF-8, not JSON, not a v1 Pod or PodList, or a pod in it is refused.
pub fn static_pods(bytes: &[u8], source: &StaticSource) -> Result<Vec<DecodedPod>, DecodeError> {
    let text = syntax::text(bytes, source.path)?;
    let root = syntax::parse(text, source.path)?;
    let mut findings = Findings::new(text, source.path);
    let pods = syntax::pods(root, &mut findings);
    for repeated in locate::repeated_keys(text, error::MOST) {
        let text = format!(
            "{}: given a second time: remove one of the two",
            repeated.path
        );
        findings.add_at(repeated.at, text);
    }
    let mut decoded = Vec::new();
    for (around, raw) in pods {
        findings.enter(&around);
        decoded.push(static_pod(raw, source, &mut findings));
    }
    findings.enter(&[]);
    refuse_twins(&decoded, &mut findings);
    findings.into_result(decoded)
}

/// One pod; whatever is wrong with it is in `findings`.
fn static_pod(mut raw: Value, source: &StaticSource, findings: &mut Findings) -> DecodedPod {
    typed::strip_nulls(&mut raw);
    let ignored = typed::check(&mut raw, findings);
    let mut warnings = unread_fields(&raw, &ignored, findings);
    warnings.extend(advice::drop_server_fields(&mut raw));
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
    identity::apply(&mut raw, source);
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
        warnings: at_most(warnings, error::MOST),
    }
}

/// The first of them, and the number of the others.
fn at_most(mut warnings: Vec<String>, most: usize) -> Vec<String> {
    let more = warnings.len().saturating_sub(most);
    if more > 0 {
        warnings.truncate(most);
        warnings.push(format!("and {more} more fields are not acted on"));
    }
    warnings
}

/// Refuses or warns for each field that no type read.
fn unread_fields(raw: &Value, ignored: &[Vec<Step>], findings: &mut Findings) -> Vec<String> {
    let mut warnings = Vec::new();
    for path in ignored {
        let Some(value) = lookup(raw, path) else {
            continue;
        };
        match support::verdict(raw, path, value) {
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

/// Two pods of one list with one name would be one pod with two specs.
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

/// A value that is read only to count as read.
#[derive(Debug, Default)]
struct IgnoredText;

impl<'de> Deserialize<'de> for IgnoredText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IgnoredAny).map(|_| Self)
    }
}

#[cfg(test)]
mod tests;
