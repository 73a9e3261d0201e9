//! From bytes to the objects of the pods in them, with an error text for each way in which a file
//! can be none of a pod.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::{DecodeError, Findings};
use super::locate::Position;
use crate::api::field::{Step, clip};
use crate::spelling;

/// Files of this size or more are refused: 10 MiB, in bytes.
pub const SIZE_LIMIT: usize = 10 << 20;

/// The bytes as text.
pub(super) fn text<'b>(bytes: &'b [u8], file: &Path) -> Result<&'b str, DecodeError> {
    let fail = |text: String| DecodeError::one(file, None, text);
    if bytes.len() >= SIZE_LIMIT {
        return Err(fail(format!(
            "{} bytes are too many: a pod file must be smaller than 10 MiB ({SIZE_LIMIT} bytes)",
            bytes.len()
        )));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let good = std::str::from_utf8(&bytes[..at]).unwrap_or_default();
        let text = format!(
            "byte 0x{:02x} is not UTF-8: save the file as UTF-8",
            bytes.get(at).copied().unwrap_or_default()
        );
        DecodeError::one(file, Some(Position::of(good, at)), text)
    })?;
    if text.trim().is_empty() {
        return Err(fail(
            "the file is empty: expected a v1 Pod or PodList in JSON".to_owned(),
        ));
    }
    Ok(text)
}

/// The text as JSON.
pub(super) fn parse(text: &str, file: &Path) -> Result<Value, DecodeError> {
    if !text.trim_start().starts_with(['{', '[', '"']) && looks_like_yaml(text) {
        let sentence = "this is YAML, and podprobe reads JSON: convert it, for example with `yq -o json FILE` or with `python3 -c 'import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))' < FILE`";
        return Err(DecodeError::one(
            file,
            Some(Position { line: 1, column: 1 }),
            sentence,
        ));
    }
    serde_json::from_str(text).map_err(|error| {
        let offset = offset_of(text, error.line(), error.column());
        DecodeError::one(
            file,
            Some(Position::of(text, offset)),
            syntax_error(text, offset, &error),
        )
    })
}

fn looks_like_yaml(text: &str) -> bool {
    let key = |line: &str| {
        line.split_once(':').is_some_and(|(key, _)| {
            !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric())
        })
    };
    text.lines()
        .map(str::trim)
        .any(|line| line == "---" || key(line))
}

/// serde_json counts columns in bytes, and from 0 when the line has just begun.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    let mut offset = (start + column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

fn syntax_error(text: &str, offset: usize, error: &serde_json::Error) -> String {
    let rest = &text[offset..];
    if error.is_eof() {
        return "not JSON: the text ends in the middle: a closing }, ] or \" is missing, or the file is not yet written to its end"
            .to_owned();
    }
    let cause = error.to_string();
    let cause = cause
        .rsplit_once(" at line ")
        .map_or(cause.as_str(), |(cause, _)| cause);
    if cause == "trailing characters" {
        return more_than_one(rest);
    }
    let near = near(rest);
    let near = if near.trim().is_empty() {
        String::new()
    } else {
        format!(", at `{}`", near.trim_end())
    };
    format!("not JSON: {cause}{near}{}", syntax_hint(rest))
}

/// What a person finds the place by: the first 24 characters of its line.
fn near(rest: &str) -> String {
    let line = rest.lines().next().unwrap_or_default();
    line.chars().take(24).collect()
}

fn more_than_one(rest: &str) -> String {
    if rest.starts_with(['{', '[']) || rest.starts_with("---") {
        return "a second document begins here: a file holds one object; write several pods as one v1 PodList or as several files"
            .to_owned();
    }
    let near = near(rest);
    format!("not JSON: text after the end of the object: `{near}`")
}

fn syntax_hint(rest: &str) -> &'static str {
    match rest.as_bytes() {
        [b'/', b'/' | b'*', ..] | [b'#', ..] => ": JSON has no comments",
        [b'\'', ..] => ": JSON has its texts in double quotes",
        _ => "",
    }
}

/// The pods of a file.
#[derive(Default)]
pub(super) struct Found {
    /// The pods, each with its path.
    pub(super) pods: Vec<(Vec<Step>, Value)>,
    /// One sentence for each object of a `List` that is not a pod.
    pub(super) skipped: Vec<String>,
}

/// The pods of the object. Objects that should be pods and are not go to `findings`.
pub(super) fn pods(root: Value, findings: &mut Findings) -> Found {
    let Value::Object(map) = root else {
        let sentence = match root {
            Value::Array(_) => {
                "a list is not a pod: expected a v1 Pod, or a v1 PodList with the pods in its items"
            }
            _ => "expected a v1 Pod or PodList, that is an object: { ... }",
        };
        findings.add_for_file(sentence.to_owned());
        return Found::default();
    };
    let kind = type_of(&map, "", None, findings);
    match kind.as_deref() {
        Some("Pod") => Found {
            pods: vec![(Vec::new(), Value::Object(map))],
            skipped: Vec::new(),
        },
        Some(list @ ("PodList" | "List")) => items(map, list == "PodList", findings),
        Some(_) | None => Found::default(),
    }
}

/// The items of a list. In a `List`, as `kubectl get -o json` writes it, each item must name its
/// kind, and may be of another kind than Pod.
fn items(mut list: Map<String, Value>, typed: bool, findings: &mut Findings) -> Found {
    let known = ["apiVersion", "kind", "metadata", "items"];
    for key in list.keys().filter(|key| !known.contains(&key.as_str())) {
        let meant = spelling::nearest(key, known)
            .map_or_else(String::new, |name| format!(": did you mean \"{name}\"?"));
        findings.add_for(
            key,
            format!("{}: unknown field of a list{meant}", clip(key)),
        );
    }
    let items = match list.shift_remove("items") {
        Some(Value::Array(items)) => items,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => {
            findings.add_for(
                "items",
                "items: Invalid value: must be a list ([...]) of pods".to_owned(),
            );
            Vec::new()
        }
    };
    let mut found = Found::default();
    for (index, item) in items.into_iter().enumerate() {
        let around = vec![Step::Key("items".into()), Step::Index(index)];
        let at = format!("items[{index}]");
        let Value::Object(map) = item else {
            findings.add_for(
                &at,
                format!("{at}: Invalid value: must be a pod, that is an object ({{...}})"),
            );
            continue;
        };
        if let Some(kind) = other_kind(&map).filter(|_| !typed) {
            let kind = clip(kind);
            found.skipped.push(format!(
                "{at}: skipped: it is a {kind}, and podprobe reads pods"
            ));
            continue;
        }
        if type_of(&map, &format!("{at}."), typed.then_some("Pod"), findings).as_deref()
            == Some("Pod")
        {
            found.pods.push((around, Value::Object(map)));
        }
    }
    if found.pods.is_empty() && !found.skipped.is_empty() {
        findings.add_for("items", "items: no pod is in the list".to_owned());
    }
    found
}

/// The kind of an object that surely is not meant to be a pod.
fn other_kind(map: &Map<String, Value>) -> Option<&str> {
    let kind = map.get("kind")?.as_str()?;
    (!kind.is_empty() && spelling::nearest(kind, ["Pod"]).is_none()).then_some(kind)
}

/// The kind of a v1 object if it can be used; in a list only a Pod can. `implied` is the kind of an
/// object that names none.
fn type_of(
    map: &Map<String, Value>,
    at: &str,
    implied: Option<&str>,
    findings: &mut Findings,
) -> Option<String> {
    let mut good = true;
    let mut field = |name: &str, implied: Option<&str>, supported: &[&str]| {
        let path = format!("{at}{name}");
        let text = match map.get(name) {
            None | Some(Value::Null) => match implied {
                Some(implied) => return implied.to_owned(),
                None => missing(map, &path, name, supported[0]),
            },
            Some(Value::String(value)) if supported.contains(&value.as_str()) => {
                return value.clone();
            }
            Some(Value::String(value)) => {
                let meant = spelling::nearest(value, supported.iter().copied());
                let meant =
                    meant.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"));
                format!(
                    "{path}: Unsupported value: {}: podprobe reads a v1 Pod or PodList{meant}",
                    clip(&format!("{value:?}"))
                )
            }
            Some(value) => format!(
                "{path}: Invalid value: {}: must be a text (\"...\")",
                clip(&value.to_string())
            ),
        };
        good = false;
        findings.add_for(&path, text);
        String::new()
    };
    field("apiVersion", implied.map(|_| "v1"), &["v1"]);
    let kinds: &[&str] = if at.is_empty() {
        &["Pod", "PodList", "List"]
    } else {
        &["Pod"]
    };
    let kind = field("kind", implied, kinds);
    good.then_some(kind)
}

fn missing(map: &Map<String, Value>, path: &str, name: &str, value: &str) -> String {
    let near = map
        .keys()
        .find(|key| spelling::nearest(key, [name]).is_some());
    let near = near.map_or_else(String::new, |key| format!(" (\"{}\" is not it)", clip(key)));
    format!("{path}: Required value: write \"{name}\": \"{value}\"{near}")
}
