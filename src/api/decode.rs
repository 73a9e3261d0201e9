//! Decodes the bytes of a source into pods, workloads and objects (kubelet-probes 6.2, workloads 8.1): parse, type, default, identify,
//! validate.
//!
//! Invariants: pure. All errors of a file are returned at once, each with its line. A decoded pod is valid and has
//! its defaults. Every field that was dropped has a warning.

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
mod typed;
mod unread;
mod workload;
mod yaml;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

pub use configuration::{ConfigurationError, RefusalCause, configuration};
pub use documents::SIZE_LIMIT;
pub use error::{DecodeError, Problem};
pub use place::Position;
pub use shown::as_in_files;
pub use workload::{DecodedWorkload, MadeError, made_template, made_workload};
pub use yaml::{YamlError, documents as yaml_documents};

use self::error::Findings;
use self::kinds::Kind;
use self::place::{Spot, Syntax};
use super::defaults;
use super::field::{FieldError, Step, lookup, render};
use super::objects::{LocalObject, ObjectKind};
use super::pod::{ObjectMeta, Pod};
use super::source::{PodOrigin, PodSource};
use super::support::{self, Verdict};
use super::validation::validate_pod;
use super::{identity, priority};

/// A pod that may run, with warnings for the person who wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedPod {
    /// The pod: valid, with its defaults and its identity.
    pub pod: Pod,
    /// Warnings about fields that podprobe does not act on, one for each field, and after them advice. Each of these
    /// warnings starts with the path of the field. There are at most 64 sentences, and then one with the number of
    /// further ones.
    pub warnings: Vec<String>,
}

/// The pods, workloads and other objects of a file, with notes for the person who wrote the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// Pods in the order of the file.
    pub pods: Vec<DecodedPod>,
    /// Workloads in the order of the file.
    pub workloads: Vec<DecodedWorkload>,
    /// Other objects in the order of the file.
    pub objects: Vec<LocalObject>,
    /// Notes: one for each kind of object that podprobe does not run, and one for each field of an object that
    /// podprobe does not act on. There are at most 64 notes, and then one with the number of further ones.
    pub notes: Vec<String>,
    /// The part of `notes` about kinds that people rely on for the safety of their pods, such as NetworkPolicies.
    pub not_enforced: Vec<String>,
}

/// Decodes a text in JSON or YAML into its objects. One bad object makes the whole text an error.
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
        not_enforced: found.not_run.of_relied(),
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
            Kind::Workload(kind) => {
                let decoded_workload = workload::workload(kind, raw, origin, &mut findings);
                decoded.workloads.push(decoded_workload);
                spots.workloads.push(spot);
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

/// Returns the value of each document in a text in JSON or YAML, except empty ones. `file` is the path for errors. The
/// values need not be objects of Kubernetes.
///
/// # Errors
/// Returns a `DecodeError` if the text is too big, not UTF-8 or neither JSON nor YAML.
pub fn values(bytes: &[u8], file: &Path) -> Result<Vec<Value>, DecodeError> {
    let text = documents::text(bytes, file)?;
    Ok(documents::values(text, file)?.1)
}

/// Decodes a pod that the API server of the node `node_name` has given as a value. Errors have no positions.
///
/// # Errors
/// Returns a `DecodeError` if podprobe cannot run the pod.
pub fn api_pod(raw: Value, node_name: &str) -> Result<DecodedPod, DecodeError> {
    let origin = PodOrigin::Api { node_name };
    let mut findings = Findings::new("", Syntax::Json, origin.place());
    let pod = pod(raw, &origin, &mut findings);
    findings.into_result(pod)
}

/// Decodes an object beside pods that an API server has given as a value. Errors have no positions. Fields that podprobe does
/// not act on say nothing, because the object was not written for podprobe.
///
/// # Errors
/// Returns a `DecodeError` if podprobe cannot use the object.
pub fn api_object(kind: ObjectKind, raw: Value) -> Result<LocalObject, DecodeError> {
    let origin = PodOrigin::Api { node_name: "" };
    let mut findings = Findings::new("", Syntax::Json, origin.place());
    let (object, _) = object::object(kind, raw, origin.source(), &mut findings);
    findings.into_result(object)
}

/// The places of the pods, the workloads and the other objects in a file.
#[derive(Default)]
struct Spots {
    pods: Vec<Spot>,
    workloads: Vec<Spot>,
    objects: Vec<Spot>,
}

/// Decodes one pod. Problems of the pod go to `findings`.
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
    // The priority comes after the identity, because the identity depends only on the content of the file.
    priority::resolve(&mut raw);
    let pod = typed::pod(raw, findings);
    for error in validate_pod(&pod)
        .into_iter()
        .chain(support::unsupported_values(&pod, origin.source()))
    {
        findings.add_error(&error);
    }
    warnings.extend(advice::advice(&as_written, &pod, origin.source()));
    DecodedPod {
        pod,
        warnings: at_most(warnings, error::MOST, "fields are not acted on"),
    }
}

/// Returns the first `most` warnings. If there are more, a line with the number of further ones follows, and the
/// parameter `what` names the warnings in this line.
fn at_most(mut warnings: Vec<String>, most: usize, what: &str) -> Vec<String> {
    let more = warnings.len().saturating_sub(most);
    if more > 0 {
        warnings.truncate(most);
        warnings.push(format!("and {more} more {what}"));
    }
    warnings
}

/// Judges each field of the pod that no type read. A field refuses the pod, causes a warning that is returned, or has
/// no meaning.
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

/// Refuses a pod, a workload or an object that has the same kind, namespace and name as an earlier one in the file. Otherwise one
/// object would have two contents.
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
    let workloads = decoded.workloads.iter().map(|decoded| &decoded.workload);
    let keys = workloads.map(|workload| {
        let is_named = !workload.metadata.name.is_empty();
        is_named.then(|| workload.key())
    });
    for index in repeated(keys) {
        let workload = &decoded.workloads[index].workload;
        refuse(&spots.workloads[index], as_in_namespace(&workload.metadata));
    }
    let objects = decoded.objects.iter();
    let keys = objects.map(|LocalObject { key, .. }| (!key.name.is_empty()).then_some(key));
    for index in repeated(keys) {
        let key = &decoded.objects[index].key;
        let name = format!("{}/{}", key.namespace, key.name);
        refuse(&spots.objects[index], name);
    }
}

/// Returns the indexes of items that equal an earlier item. A None never equals another item.
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
