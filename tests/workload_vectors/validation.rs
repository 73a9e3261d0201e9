//! validation.json: defaults and validation of workloads (workloads 1.10–1.12, 5.11, 6.16, 7.5).

use std::collections::BTreeSet;
use std::path::Path;

use podprobe::api::PodOrigin;
use podprobe::api::decode;
use podprobe::api::field::{FieldError, FieldErrorKind};
use podprobe::api::validation::{validate_update, validate_workload};
use podprobe::api::workload::Workload;
use serde::Deserialize;
use serde_json::{Value, json};

pub const GROUPS: &[(&str, super::Run)] = &[("validation", validation)];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    id: String,
    #[serde(rename = "from")]
    _from: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
    object: Value,
    old: Option<Value>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expect {
    #[serde(default)]
    errors: Vec<String>,
    #[serde(default)]
    fields: Vec<String>,
    spec_with_defaults: Option<Value>,
    decode_error: Option<String>,
}

fn validation(case: &Value) -> Result<(), String> {
    let case: Case = serde_json::from_value(case.clone()).map_err(|e| e.to_string())?;
    in_step(&case.expect)?;
    let made = decode::made_workload(case.object.clone());
    let workload = match (made, &case.expect.decode_error) {
        (Err(_), Some(_)) => return refused_as_a_file(&case.object),
        (Ok(_), Some(expected)) => return Err(format!("expected \"{expected}\", got a workload")),
        (made, None) => made.map_err(|e| e.to_string())?,
    };
    let mut errors = Vec::new();
    match &case.old {
        None => errors.extend(validate_workload(&workload, None)),
        Some(old) => {
            let old = decode::made_workload(old.clone()).map_err(|e| e.to_string())?;
            errors.extend(validate_workload(&workload, Some(&old)));
            errors.extend(validate_update(&workload, &old));
        }
    }
    fields(&case.expect, &errors)?;
    words(&case.expect, &errors)?;
    if let Some(expected) = &case.expect.spec_with_defaults {
        defaults(expected, &case.object["spec"], &workload)?;
    }
    match case.old {
        None => as_a_file(&case, errors.is_empty()),
        Some(_) => Ok(()),
    }
}

/// Each error of the case must have its field.
fn in_step(expect: &Expect) -> Result<(), String> {
    let starts = |(error, field): (&String, &String)| {
        let path = field
            .split_once(": ")
            .map_or(field.as_str(), |(path, _)| path);
        error.starts_with(path)
    };
    let pairs = expect.errors.iter().zip(&expect.fields);
    match expect.errors.len() == expect.fields.len() && pairs.clone().all(starts) {
        true => Ok(()),
        false => Err("errors and fields of the case do not belong together".into()),
    }
}

/// Fields and kinds of the errors. A StatefulSet's template is validated twice upstream, so repetitions do not count.
/// Upstream leaves `metadata` out of the paths of a template's labels and annotations; podprobe names the field as it
/// stands in the file.
fn fields(expect: &Expect, errors: &[FieldError]) -> Result<(), String> {
    let expected: BTreeSet<String> = expect.fields.iter().map(|field| in_file(field)).collect();
    let field = |error: &FieldError| format!("{}: {}", error.path, kind(error.kind));
    let got: BTreeSet<String> = errors.iter().map(field).collect();
    match expected == got {
        true => Ok(()),
        false => Err(format!("fields: expected {expected:?}, got {got:?}")),
    }
}

fn in_file(field: &str) -> String {
    let mut field = field.to_owned();
    for map in ["labels", "annotations"] {
        field = field.replace(
            &format!("template.{map}"),
            &format!("template.metadata.{map}"),
        );
    }
    field
}

fn kind(kind: FieldErrorKind) -> &'static str {
    match kind {
        FieldErrorKind::Required => "FieldValueRequired",
        FieldErrorKind::Invalid => "FieldValueInvalid",
        FieldErrorKind::NotSupported => "FieldValueNotSupported",
        FieldErrorKind::Forbidden => "FieldValueForbidden",
        FieldErrorKind::Duplicate => "FieldValueDuplicate",
        FieldErrorKind::NotFound => "FieldValueNotFound",
        FieldErrorKind::TooLong => "FieldValueTooLong",
        FieldErrorKind::TooMany => "FieldValueTooMany",
        FieldErrorKind::Internal => "InternalError",
    }
}

/// The details of the errors, in upstream's words. A value that upstream prints as a struct of Go, a list of words in
/// another order, the text of a panic, and a text that the case cuts, do not count.
fn words(expect: &Expect, errors: &[FieldError]) -> Result<(), String> {
    let is_whole = |error: &&String| !error.ends_with("...") && !error.contains("runtime error:");
    for expected in expect.errors.iter().filter(is_whole) {
        let expected = in_file(expected);
        let is_said = |error: &FieldError| {
            expected.starts_with(&error.path) && ends_as(&expected, &error.detail)
        };
        if !errors.iter().any(is_said) {
            let got: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(format!("errors: expected \"{expected}\", got {got:?}"));
        }
    }
    Ok(())
}

fn ends_as(expected: &str, detail: &str) -> bool {
    // What is changed in a StatefulSet follows upstream's sentence.
    let sentence = detail.split("; changed: ").next().unwrap_or_default();
    let sorted = |text: &str| {
        let (_, listed) = text.split_once("supported values: ")?;
        Some(
            listed
                .split(", ")
                .map(str::to_owned)
                .collect::<BTreeSet<_>>(),
        )
    };
    expected.ends_with(sentence) || sorted(expected).is_some_and(|it| Some(it) == sorted(detail))
}

/// The spec without its templates. Upstream writes the metadata of a Job's template even if it is empty, and leaves out
/// the selector that it makes.
fn defaults(expected: &Value, written: &Value, workload: &Workload) -> Result<(), String> {
    let mut got = workload.raw.at("/spec").unwrap_or_default();
    let mut take = |field: &str| drop(got.as_object_mut().and_then(|spec| spec.remove(field)));
    take("template");
    take("volumeClaimTemplates");
    if expected.get("selector").is_none() {
        take("selector");
    }
    if let Some(job) = got.get_mut("jobTemplate").and_then(Value::as_object_mut) {
        job.entry("metadata").or_insert(json!({}));
        job.get_mut("spec")
            .and_then(Value::as_object_mut)
            .map(|spec| spec.remove("template"));
    }
    drop_unsaid(&mut got, written, expected);
    match got == *expected {
        true => Ok(()),
        false => Err(format!("specWithDefaults: expected {expected}, got {got}")),
    }
}

/// Drops what the file has and upstream does not write again: fields that it does not know, and zero values.
fn drop_unsaid(got: &mut Value, written: &Value, expected: &Value) {
    let Some(map) = got.as_object_mut() else {
        return;
    };
    map.retain(|key, _| written.get(key).is_none() || expected.get(key).is_some());
    for (key, value) in map {
        drop_unsaid(value, &written[key.as_str()], &expected[key.as_str()]);
    }
}

/// The same object in a file is accepted or refused alike, but for what podprobe does not support.
fn as_a_file(case: &Case, is_valid: bool) -> Result<(), String> {
    let managed_by = &case.object["spec"]["managedBy"];
    let expected = is_valid
        && managed_by
            .as_str()
            .is_none_or(|it| it == "kubernetes.io/job-controller");
    match (read(&case.object), expected) {
        (Ok(()), true) | (Err(_), false) => Ok(()),
        (Ok(()), false) => Err(format!("{}: a file with it is accepted", case.id)),
        (Err(error), true) => Err(format!("{}: a file with it is refused: {error}", case.id)),
    }
}

fn refused_as_a_file(object: &Value) -> Result<(), String> {
    match read(object) {
        Err(_) => Ok(()),
        Ok(()) => Err("a file with it is accepted".into()),
    }
}

fn read(object: &Value) -> Result<(), String> {
    let origin = PodOrigin::File {
        node_name: "node",
        path: Path::new("/pods/a.json"),
    };
    let decoded = decode::objects(object.to_string().as_bytes(), &origin);
    let decoded = decoded.map_err(|error| error.to_string())?;
    match decoded.workloads.len() {
        1 => Ok(()),
        other => Err(format!("{other} workloads")),
    }
}
