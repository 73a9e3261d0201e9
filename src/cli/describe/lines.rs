//! The lines of a description. Each cell ends with a tab, and [`crate::cli::tabwriter`] aligns the cells.

use std::fmt::Display;

use serde_json::Value;

use crate::cli::columns::string_map;

/// The length in characters beyond which an annotation gets lines of its own, as with kubectl.
const MAX_ANNOTATION: usize = 140;
/// The annotation that `kubectl apply` writes, and that kubectl does not show.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Appends a formatted line to a String.
macro_rules! put {
    ($w:expr, $($arg:tt)*) => {{
        $w.push_str(&format!($($arg)*));
        $w.push('\n');
    }};
}
pub(in crate::cli) use put;

/// Writes a line with a title, a tab and a value.
pub(in crate::cli) fn line(w: &mut String, title: &str, value: &str) {
    put!(w, "{title}:\t{value}");
}

/// Returns a string or number as text, in the form in which it is written in a file.
pub(super) fn scalar(v: &Value) -> Option<String> {
    match v {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// Writes labels, one on each line.
pub(in crate::cli) fn labels<K: Display, V: Display>(
    w: &mut String,
    title: &str,
    all: impl IntoIterator<Item = (K, V)>,
) {
    let mut title = format!("{title}:");
    for (key, value) in all {
        put!(w, "{}\t{key}={value}", std::mem::take(&mut title));
    }
    if !title.is_empty() {
        put!(w, "{title}\t<none>");
    }
}

/// Writes annotations. A long annotation gets lines of its own.
pub(super) fn annotations(w: &mut String, title: &str, map: &Value) {
    let mut map = string_map(map);
    map.remove(LAST_APPLIED);
    if map.is_empty() {
        line(w, title, "<none>");
    }
    let first = format!("{title}:");
    for (i, (key, value)) in map.iter().enumerate() {
        let title = if i == 0 { first.as_str() } else { "" };
        let value = value.strip_suffix('\n').unwrap_or(value);
        if key.len() + value.len() + 2 <= MAX_ANNOTATION && !value.contains('\n') {
            put!(w, "{title}\t{key}: {value}");
            continue;
        }
        put!(w, "{title}\t{key}:");
        for part in value.split('\n') {
            put!(w, "\t  {}", shorten(part, MAX_ANNOTATION - 2));
        }
    }
}

fn shorten(s: &str, max: usize) -> String {
    match s.char_indices().nth(max) {
        Some((at, _)) => format!("{}...", &s[..at]),
        None => s.into(),
    }
}

/// Writes sentences, one on each line, with the title before the first. Writes nothing if there are none.
pub(super) fn listed(w: &mut String, title: &str, sentences: &[String]) {
    let mut title = format!("{title}:");
    for sentence in sentences {
        let text = sentence.replace('\n', "\n\t");
        put!(w, "{}\t{text}", std::mem::take(&mut title));
    }
}
