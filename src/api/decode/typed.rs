//! Turns an untyped object into the typed pod, and reports every type error and every unread field.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::{Findings, MOST};
use crate::api::field::{
    FieldError, Step, clip, is_entry, is_map, lookup, lookup_mut, push_key, render,
};
use crate::api::pod::{Pod, PodObject};
use crate::api::quantity::Quantity;
use crate::api::raw_object::RawObject;
use crate::api::support;
use crate::base::json::{self, TypeError};
use crate::base::spelling;

/// Removes members that are null, because null means absent in Kubernetes JSON. In a map of texts, null means the
/// empty text.
pub(super) fn strip_nulls(value: &mut Value) {
    strip(value, &mut String::new());
}

fn strip(value: &mut Value, path: &mut String) {
    match value {
        Value::Object(map) => {
            let texts = is_map(path) && !path.ends_with("limits") && !path.ends_with("requests");
            if texts {
                map.iter_mut()
                    .filter(|(key, member)| member.is_null() && is_entry(path, key))
                    .for_each(|(_, member)| *member = "".into());
            }
            map.retain(|_, member| !member.is_null());
            for (key, member) in map {
                let around = path.len();
                push_key(path, key);
                strip(member, path);
                path.truncate(around);
            }
        }
        Value::Array(items) => {
            let around = path.len();
            path.push_str("[]");
            items.iter_mut().for_each(|item| strip(item, path));
            path.truncate(around);
        }
        _ => {}
    }
}

/// Reports and removes every value of a wrong type, so that the values that are left can be validated. Returns the
/// fields that no type read.
pub(super) fn check(raw: &mut Value, findings: &mut Findings) -> Vec<Vec<Step>> {
    let mut wrong = Vec::new();
    not_objects(raw, &mut Vec::new(), &mut wrong);
    for path in wrong {
        // The removal of an earlier value may have removed this value too.
        if let Some(value) = lookup(raw, &path) {
            let text = mismatch(&render(&path), value, "an object ({...})");
            findings.add_for(&render(&path), text);
            take_out(raw, &path);
        }
    }
    match read::<PodObject>(raw, findings) {
        Some((_, ignored)) => ignored,
        None => Vec::new(),
    }
}

/// Reads the type from `raw`. Returns the typed value with the paths of the fields that the type does not read. Every
/// value of a wrong type is reported and removed, so that the values that are left can be validated. Returns None
/// after too many wrong values.
pub(super) fn read<T: DeserializeOwned>(
    raw: &mut Value,
    findings: &mut Findings,
) -> Option<(T, Vec<Vec<Step>>)> {
    for _ in 0..MOST {
        match json::read(raw) {
            Ok(read) => return Some(read),
            Err(e) => {
                let (path, cause) = (e.path, e.cause.to_string());
                let value = lookup(raw, &path).cloned().unwrap_or_default();
                findings.add_for(&render(&path), type_error(&render(&path), &value, &cause));
                take_out(raw, &path);
            }
        }
    }
    None
}

/// Returns the typed pod of an object after [`check`].
pub(super) fn pod(raw: Value, findings: &mut Findings) -> Pod {
    let PodObject { metadata, spec, .. } = match typed(&raw) {
        Ok((object, _)) => object,
        Err(e) => {
            let path = render(&e.path);
            findings.add_for(&path, format!("{path}: Internal error: {}", e.cause));
            PodObject::default()
        }
    };
    Pod {
        metadata,
        spec: spec.into(),
        raw: RawObject::new(&raw),
    }
}

fn typed(raw: &Value) -> Result<(PodObject, Vec<Vec<Step>>), TypeError> {
    json::read(raw)
}

/// Finds values that must be objects and are not. serde would accept a list as the fields of a struct in their order.
fn not_objects(value: &Value, path: &mut Vec<Step>, wrong: &mut Vec<Vec<Step>>) {
    if !value.is_object() && support::must_be_object(path) {
        return wrong.push(path.clone());
    }
    let mut into = |step: Step, value: &Value| {
        path.push(step);
        not_objects(value, path, wrong);
        path.pop();
    };
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, member)| into(Step::Key(key.clone()), member)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, item)| into(Step::Index(index), item)),
        _ => {}
    }
}

/// Removes the value at `path`. If the value is in a list, the whole list is removed, so that no other item changes
/// its index.
fn take_out(raw: &mut Value, path: &[Step]) {
    let members = path.iter().rposition(|step| matches!(step, Step::Key(_)));
    let Some(last) = members else {
        *raw = Value::Object(Map::new());
        return;
    };
    if let (Some(Value::Object(map)), Step::Key(key)) =
        (lookup_mut(raw, &path[..last]), &path[last])
    {
        map.shift_remove(key);
    }
}

/// Returns the text of a type error, made from serde's text.
fn type_error(path: &str, value: &Value, cause: &str) -> String {
    if let (Some((_, listed)), Some(text)) = (
        cause
            .strip_prefix("unknown variant")
            .and_then(|c| c.split_once("expected")),
        value.as_str(),
    ) {
        let supported: Vec<&str> = listed
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| !name.is_empty())
            .collect();
        let meant = spelling::nearest(text, supported.iter().copied());
        let hint = meant.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"));
        return format!(
            "{}{hint}",
            FieldError::not_supported(path, text, &supported)
        );
    }
    match cause.rsplit_once("expected ") {
        Some((_, expected)) => mismatch(path, value, &in_plain_words(expected)),
        None => FieldError::invalid(path, value.clone(), cause).to_string(),
    }
}

fn in_plain_words(expected: &str) -> String {
    match expected {
        "i32" => format!("a whole number between {} and {}", i32::MIN, i32::MAX),
        "i64" => format!("a whole number between {} and {}", i64::MIN, i64::MAX),
        "a boolean" => "true or false".to_owned(),
        "a string" | "string or map" | "a borrowed string" => "a text (\"...\")".to_owned(),
        "a sequence" => "a list ([...])".to_owned(),
        "a map" => "an object ({...})".to_owned(),
        other if other.starts_with("struct ") => "an object ({...})".to_owned(),
        other => other.to_owned(),
    }
}

pub(super) fn mismatch(path: &str, value: &Value, expected: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    // The type is right, but the value is not: a number out of range, or a text that is not a quantity.
    let out_of_range = expected.contains("number") && found == "a number"
        || expected.contains("quantity") && found == "a text";
    let found = if out_of_range {
        String::new()
    } else {
        format!(", not {found}")
    };
    let detail = format!("must be {expected}{found}{}", quoting(value, expected));
    format!(
        "{path}: Invalid value: {}: {detail}",
        clip(&value.to_string())
    )
}

/// Returns a hint for the most common mistakes: quotes around a number or a boolean, missing quotes around a text, or
/// an item of a list without the list.
fn quoting(value: &Value, expected: &str) -> String {
    match value {
        Value::String(text)
            if expected.starts_with("a whole number") && text.parse::<i64>().is_ok() =>
        {
            format!("; write {text} without quotes")
        }
        Value::String(text)
            if expected == "true or false" && ["true", "false"].contains(&text.as_str()) =>
        {
            format!("; write {text} without quotes")
        }
        Value::Number(_) | Value::Bool(_) if expected.starts_with("a text") => {
            format!("; write \"{value}\" with quotes")
        }
        Value::String(text) if expected.contains("quantity") => {
            // Units have no B: a user who writes 64MB means 64M.
            let plain = text
                .strip_suffix('B')
                .map(|t| Quantity(t.trim_end().into()));
            let meant = plain.filter(|q| q.parse().is_ok());
            meant.map_or_else(String::new, |q| format!("; did you mean {}?", clip(&q.0)))
        }
        Value::String(text) if expected.starts_with("a list") => {
            let words: Value = text.split_whitespace().collect();
            format!("; write {}", clip(&words.to_string()))
        }
        Value::Object(_) if expected.starts_with("a list") => {
            "; in YAML each item begins with \"- \"".to_owned()
        }
        _ => String::new(),
    }
}
