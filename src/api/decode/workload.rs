//! Decodes Deployments and the other kinds that make pods from a template: types, defaults, identity, validation, and
//! warnings (workloads 1.10–1.12).
//!
//! Invariants: the template is checked as a pod is, and its problems have its path before the path of the field. The
//! text of the template is kept as it was written, because pods are made of that text.

mod advice;
mod fields;
mod of_server;
mod typed_view;

use serde_json::{Map, Value, json};

use super::error::{Findings, MOST};
use super::{at_most, typed, unread_fields};
use crate::api::defaults;
use crate::api::field::{FieldError, child};
use crate::api::identity::workload_uid;
use crate::api::pod::PodObject;
use crate::api::priority;
use crate::api::raw_object::RawObject;
use crate::api::source::{PodOrigin, PodSource};
use crate::api::support;
use crate::api::validation::{checked_pod, validate_workload};
use crate::api::workload::{
    CONTROLLER_UID_LABELS, JOB_NAME_LABELS, PodTemplate, Workload, WorkloadKey, WorkloadKind,
};

/// A workload that may run, with warnings for the person who wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedWorkload {
    /// The workload: valid, with its defaults and its identity.
    pub workload: Workload,
    /// Warnings about fields that podprobe does not act on, one for each field, and after them advice. There are at
    /// most 64 sentences, and then one with the number of further ones.
    pub warnings: Vec<String>,
}

/// The error of an object that does not have the form of a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MadeError {
    /// The object names no kind that makes pods.
    #[error("kind: must name a kind that makes pods")]
    Kind,
    /// A field has a value of another type.
    #[error("{path}: {cause}")]
    Type {
        /// Path of the field.
        path: String,
        /// The reason, in the words of the reader.
        cause: String,
    },
}

/// Makes a workload of an object that podprobe itself has made, such as a Job of a CronJob: gives it its defaults and
/// its identity. The object is not validated.
///
/// # Errors
/// Returns a `MadeError` if the object does not have the form of a workload.
pub fn made_workload(mut raw: Value) -> Result<Workload, MadeError> {
    let kind = raw["kind"].as_str().and_then(WorkloadKind::named);
    let kind = kind.ok_or(MadeError::Kind)?;
    typed::strip_nulls(&mut raw);
    let parts = Parts::of(kind, &mut raw);
    parts.finish(kind, raw)
}

/// Decodes one workload. Problems of the workload go to `findings`.
pub(super) fn workload(
    kind: WorkloadKind,
    mut raw: Value,
    origin: &PodOrigin,
    findings: &mut Findings,
) -> DecodedWorkload {
    typed::strip_nulls(&mut raw);
    of_server::drop_selector(kind, &mut raw);
    let mut parts = Parts::of(kind, &mut raw);
    let unread = typed_view::check(kind, &mut raw, findings);
    let mut warnings = fields::unread(kind, &raw, &unread, origin.source(), findings);
    warnings.extend(of_server::drop_fields(&mut raw));
    warnings.extend(parts.check_template(kind, findings));
    if is_unnamed(&raw) {
        findings.needs_a_name(kind.as_str());
    }
    let as_written = parts.template.clone();
    let workload = parts.finish(kind, raw).unwrap_or_else(|error| {
        let text = format!("Internal error: {error}");
        findings.add_for("spec", text);
        typed_view::nothing(kind)
    });
    judge(&workload, findings);
    warnings.extend(advice::workload(&workload));
    warnings.extend(template_advice(&workload, &as_written, origin));
    DecodedWorkload {
        workload,
        warnings: at_most(warnings, MOST, "fields are not acted on"),
    }
}

fn is_unnamed(raw: &Value) -> bool {
    let name = raw.pointer("/metadata/name").and_then(Value::as_str);
    name.is_none_or(str::is_empty)
}

/// Adds the errors of validation, and of values that podprobe does not support.
fn judge(workload: &Workload, findings: &mut Findings) {
    for error in validate_workload(workload, None) {
        findings.add_error(&advice::with_way_out(error, workload));
    }
    for error in support::unsupported_in_workload(workload) {
        findings.add_error(&error);
    }
    let template = workload.kind().template_path();
    for error in support::unsupported_values(&checked_pod(workload), PodSource::Controller) {
        let path = child(template, &error.path);
        findings.add_error(&FieldError { path, ..error });
    }
}

/// Returns the advice on the pods of the template, with the path of the template before each field.
fn template_advice(workload: &Workload, as_written: &Value, origin: &PodOrigin) -> Vec<String> {
    let mut pod = checked_pod(workload);
    pod.spec_mut().node_name = origin.node_name().to_owned();
    let advice = super::advice::advice(as_written, &pod, PodSource::Controller);
    within(workload.kind().template_path(), advice)
}

fn within(template: &str, texts: Vec<String>) -> Vec<String> {
    let texts = texts.into_iter();
    texts.map(|text| format!("{template}.{text}")).collect()
}

/// A workload taken apart: the object has an empty template.
struct Parts {
    /// The template as it was written. A template that is missing is empty.
    template: Value,
    is_missing: bool,
}

impl Parts {
    /// Takes the template out of the object. A template that is no object stays, so that its type is an error.
    fn of(kind: WorkloadKind, raw: &mut Value) -> Self {
        let found = template_in(kind, raw).filter(|template| template.is_object());
        let template = found.map(|template| std::mem::replace(template, json!({})));
        Self {
            is_missing: template.is_none(),
            template: template.unwrap_or_else(|| json!({})),
        }
    }

    /// Checks the types of the template, and judges each field that no type reads. Returns warnings.
    fn check_template(&mut self, kind: WorkloadKind, findings: &mut Findings) -> Vec<String> {
        let path = kind.template_path();
        findings.enter_template(path);
        let ignored = typed::check(&mut self.template, findings);
        let (here, ignored) = fields::of_workload(kind, ignored);
        for (path, text) in here {
            findings.add_for(&path, text);
        }
        // The pods of a workload are not static: a controller makes them.
        let mut warnings = unread_fields(&self.template, &ignored, PodSource::Controller, findings);
        findings.leave_template();
        warnings.extend(advice::template_identity(&self.template));
        within(path, warnings)
    }

    /// Puts the workload together: with its defaults, its identity and its typed view.
    fn finish(mut self, kind: WorkloadKind, mut raw: Value) -> Result<Workload, MadeError> {
        let key = identify(kind, &mut raw);
        if let Some(slot) = template_in(kind, &mut raw).filter(|_| !self.is_missing) {
            *slot = self.template.clone();
        }
        defaults::apply_to_workload(kind, &mut raw);
        if kind == WorkloadKind::Job {
            make_selector(&mut raw, &mut self.template, &key);
        }
        let template = made_template(self.template)?;
        if let Some(slot) = template_in(kind, &mut raw).filter(|_| !self.is_missing) {
            defaults::apply_to_template(slot);
        }
        typed_view::workload(kind, &raw, template)
    }
}

fn template_in(kind: WorkloadKind, raw: &mut Value) -> Option<&mut Value> {
    let mut fields = kind.template_path().split('.');
    fields.try_fold(raw, |object, field| object.get_mut(field))
}

/// Returns the typed template. Its spec has the defaults of a pod, and its text is as it was written. The template is not
/// validated.
///
/// # Errors
/// Returns a `MadeError` if the template does not have the form of one.
pub fn made_template(template: Value) -> Result<PodTemplate, MadeError> {
    let written = RawObject::new(&template).into();
    let mut pod = template;
    defaults::apply(&mut pod);
    priority::resolve(&mut pod);
    let object: PodObject = typed_view::read(&pod)?;
    Ok(PodTemplate {
        metadata: object.metadata,
        spec: object.spec.into(),
        written,
    })
}

/// Gives the object its namespace and its UID, and returns its key.
fn identify(kind: WorkloadKind, raw: &mut Value) -> WorkloadKey {
    let metadata = metadata_of(raw);
    let text = |metadata: &Map<String, Value>, field: &str| {
        let text = metadata.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    if text(metadata, "namespace").is_empty() {
        metadata.insert("namespace".into(), "default".into());
    }
    let key = WorkloadKey {
        kind,
        namespace: text(metadata, "namespace"),
        name: text(metadata, "name"),
    };
    let uid = workload_uid(&key);
    metadata.insert("uid".into(), uid.as_str().into());
    key
}

/// Returns the metadata of the object, which is an empty one if the object has none.
fn metadata_of(raw: &mut Value) -> &mut Map<String, Value> {
    object_in(raw, "metadata")
}

fn object_in<'v>(raw: &'v mut Value, field: &str) -> &'v mut Map<String, Value> {
    let is_object = raw.get(field).is_some_and(Value::is_object);
    if !is_object {
        raw[field] = json!({});
    }
    match &mut raw[field] {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}

/// Gives a Job its selector, and its template the labels that the selector selects, unless the person wants to write the
/// selector (pkg/registry/batch/job/strategy.go: generateSelector).
fn make_selector(raw: &mut Value, template: &mut Value, key: &WorkloadKey) {
    if raw.pointer("/spec/manualSelector") == Some(&json!(true)) {
        return;
    }
    let uid = workload_uid(key);
    let uid = uid.as_str();
    let labels = [
        (JOB_NAME_LABELS, key.name.as_str()),
        (CONTROLLER_UID_LABELS, uid),
    ];
    let in_raw = template_in(WorkloadKind::Job, raw);
    for template in in_raw.into_iter().chain([template]) {
        let metadata = object_in(template, "metadata");
        let slot = metadata.entry("labels").or_insert_with(|| json!({}));
        for (names, value) in labels {
            for name in names {
                if let Some(map) = slot.as_object_mut() {
                    map.entry(name).or_insert_with(|| value.into());
                }
            }
        }
    }
    let Some(spec) = raw.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    let Some(selector) = selector.as_object_mut() else {
        return;
    };
    let selected = selector.entry("matchLabels").or_insert_with(|| json!({}));
    if let Some(selected) = selected.as_object_mut() {
        selected
            .entry(CONTROLLER_UID_LABELS[1])
            .or_insert_with(|| uid.into());
    }
}

#[cfg(test)]
mod tests;
