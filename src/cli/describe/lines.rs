//! The lines of a description. Each cell ends with a tab, and [`crate::cli::tabwriter`] aligns the cells.

use std::fmt::Display;

use serde_json::Value;

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
