//! From bytes to the pods and objects of a source (kubelet-probes 6.2): parse, type, default, identify,
//! validate.
//!
//! Invariants: pure; all errors of a file are returned at once, each with its line; a decoded pod
//! is valid and has its defaults, and every field that was dropped has a warning.

mod advice;
mod configuration;
mod documents;
mod endpoints;
mod error;
mod escapes;
mod kinds;
mod locate;
mod object;
mod other_kinds;
mod place;
mod service;
mod shown;
mod tracked;
mod typed;
mod unread;
mod yaml;

use std::collections::BTreeSet;

use serde_json::Value;

pub use configuration::{ConfigurationError, RefusalCause, configuration};
pub use documents::SIZE_LIMIT;
pub use error::{DecodeError, Problem};
pub use place::Position;
pub use shown::as_in_files;

use self::error::Findings;
use self::kinds::Kind;
use self::place::Spot;
use super::defaults;
use super::field::{FieldError, Step, lookup, render};
use super::objects::LocalObject;
use super::pod::{ObjectMeta, Pod};
use super::source::{PodOrigin, PodSource};
use super::support::{self, Verdict};
use super::validation::validate_pod;
use super::{identity, priority};

/// Returns the value of each YAML document in the text.
#[cfg(test)]
pub(crate) fn yaml_documents(text: &str) -> Vec<Value> {
    yaml::documents(text).unwrap_or_else(|e| panic!("{e:?}:\n{text}"))
}

/// A pod that may run, with warnings for the person who wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedPod {
    /// The pod: valid, with its defaults and its identity.
    pub pod: Pod,
    /// Sentences about fields that are not acted on, one a field, each starting with the field's path; then advice. At
    /// most 64, and a count of the rest.
    pub warnings: Vec<String>,
}

/// The pods and other objects that a file holds, with notes for the person who wrote it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// Pods in the order of the file.
    pub pods: Vec<DecodedPod>,
    /// Other objects in the order of the file.
    pub objects: Vec<LocalObject>,
    /// Sentences about kinds of objects that are not run here, one a kind, and about fields of objects that are not
    /// acted on, one a field. At most 64, and a count of the rest.
    pub notes: Vec<String>,
    /// Sentences about kinds that make pods, a part of `notes`: the pods of these objects are not there.
    pub not_run: Vec<String>,
}

/// The objects of a text in JSON or YAML. One bad object makes the whole text an error.
///
/// # Errors
/// Returns a `DecodeError` if the text is too big, not UTF-8 or neither JSON nor YAML, if it holds nothing that
/// podprobe reads, or if an object in it is refused.
pub fn objects(bytes: &[u8], origin: &PodOrigin) -> Result<Decoded, DecodeError> {
    let text = documents::text(bytes, origin.place())?;
    let (syntax, documents) = documents::parse(text, origin.place())?;
    let mut findings = Findings::new(text, syntax, origin.place());
    let found = kinds::objects(documents, &mut findings);
    for repeated in locate::repeated_keys(text, syntax, error::MOST) {
        let text = format!(
            "{}: given a second time: remove one of the two",
            repeated.path
        );
        findings.add_at(repeated.at, text);
    }
    let mut decoded = Decoded {
        notes: found.not_run.lines(),
        not_run: found.not_run.of_workloads(),
        ..Decoded::default()
    };
    let mut spots = Spots::default();
    for (spot, kind, raw) in found.objects {
        findings.enter(&spot);
        match kind {
            Kind::Pod => {
                decoded.pods.push(pod(raw, origin, &mut findings));
                spots.pods.push(spot);
            }
            Kind::Object(kind) => {
                let (object, notes) = object::object(kind, raw, origin.source(), &mut findings);
                let notes = notes.iter().map(|note| format!("{}: {note}", object.key));
                decoded.notes.extend(notes);
                decoded.objects.push(object);
                spots.objects.push(spot);
            }
        }
    }
    refuse_twins(&decoded, &spots, &mut findings);
    decoded.notes = at_most(decoded.notes, error::MOST, "notes");
    findings.into_result(decoded)
}

/// Places of the objects of a file.
#[derive(Default)]
struct Spots {
    pods: Vec<Spot>,
    objects: Vec<Spot>,
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
        findings.needs_a_name("pod");
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

/// Refuses two objects of one file with the same name: they would be one with two contents.
fn refuse_twins(decoded: &Decoded, spots: &Spots, findings: &mut Findings) {
    let mut refuse = |spot: &Spot, name: String| {
        findings.enter(spot);
        let error = FieldError::duplicate("metadata.name", name);
        findings.add_for("metadata.name", error.to_string());
    };
    let pods = decoded.pods.iter().map(|decoded| &decoded.pod);
    let names = pods.map(|pod| {
        let meta = &pod.metadata;
        (!meta.name.is_empty()).then(|| pod.full_name())
    });
    for index in repeated(names) {
        let pod = &decoded.pods[index].pod;
        refuse(&spots.pods[index], as_in_namespace(&pod.metadata));
    }
    let objects = decoded.objects.iter();
    let keys = objects.map(|LocalObject { key, .. }| (!key.name.is_empty()).then_some(key));
    for index in repeated(keys) {
        let key = &decoded.objects[index].key;
        let name = format!("{}/{}", key.namespace, key.name);
        refuse(&spots.objects[index], name);
    }
}

/// Returns the indexes of items that equal an earlier one. A None equals nothing.
fn repeated<T: Ord>(all: impl Iterator<Item = Option<T>>) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let known = all.enumerate().filter_map(|(index, it)| Some((index, it?)));
    let mut again = Vec::new();
    for (index, it) in known {
        if !seen.insert(it) {
            again.push(index);
        }
    }
    again
}

fn as_in_namespace(meta: &ObjectMeta) -> String {
    format!("{}/{}", meta.namespace, meta.name)
}

#[cfg(test)]
mod test_texts;
#[cfg(test)]
mod tests;
