//! Prints JSON as kubectl does.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::Value;

use crate::cli::terminal::is_unsafe;

/// Writes a value as JSON, indented by four spaces as in kubectl.
pub fn write_json(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    let mut json = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut json, format);
    serde::Serialize::serialize(value, &mut serializer)?;
    writeln!(out, "{}", escape_unsafe(String::from_utf8_lossy(&json)))
}

/// Escapes characters that are unsafe on a terminal. JSON itself escapes control characters below U+0020. Other
/// unsafe characters occur only in strings. In a JSON string, the escaped form of a character means the same
/// character.
pub fn escape_unsafe(json: Cow<'_, str>) -> Cow<'_, str> {
    let is_special = |c: char| c > '~' && is_unsafe(c);
    if !json.contains(is_special) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        match is_special(c) {
            true => {
                let units = c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|u| format!("\\u{u:04x}"))
                    .collect::<String>();
                out.push_str(&units);
            }
            false => out.push(c),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_safe_on_a_terminal_and_means_the_same() {
        let value = json!({"a": "\u{9b}2J\u{7f}\u{202e}é👩\u{200d}👩\u{e0041}"});
        let mut out = Vec::new();
        write_json(&value, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains(|c| c != '\n' && is_unsafe(c)), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
