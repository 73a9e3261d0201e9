//! Prints YAML as kubectl does: two spaces for each level, lists at the indentation of their key, and quotes only
//! around a text that a reader could take for another value.
//!
//! Invariants: pure. A reader of YAML 1.1 or 1.2 gets every text back unchanged. Control characters and invisible
//! characters are always escaped.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::cli::terminal::is_unsafe;

/// Returns the value as a document, which ends with a newline.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => object(map, 0, &mut out),
        Value::Array(items) if !items.is_empty() => list(items, 0, &mut out),
        plain => {
            scalar(plain, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Writes each member on a line with `indent` spaces. The caller has already written the spaces of the first
/// line.
fn object(map: &Map<String, Value>, indent: usize, out: &mut String) {
    for (n, (key, value)) in map.iter().enumerate() {
        if n > 0 {
            spaces(indent, out);
        }
        text_in_line(key, out);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                spaces(indent + 2, out);
                object(inner, indent + 2, out);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                spaces(indent, out);
                list(items, indent, out);
            }
            plain => {
                out.push(' ');
                scalar(plain, indent, out);
                out.push('\n');
            }
        }
    }
}

fn list(items: &[Value], indent: usize, out: &mut String) {
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            spaces(indent, out);
        }
        out.push_str("- ");
        match item {
            Value::Object(inner) if !inner.is_empty() => object(inner, indent + 2, out),
            Value::Array(inner) if !inner.is_empty() => list(inner, indent + 2, out),
            plain => {
                scalar(plain, indent, out);
                out.push('\n');
            }
        }
    }
}

fn spaces(n: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', n));
}

/// Writes a scalar without a newline after it. `indent` is the indentation of its line.
fn scalar(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(text) if may_be_block(text) => block(text, indent + 2, out),
        Value::String(text) => text_in_line(text, out),
        // Empty objects and lists, numbers, booleans and null have the same form in JSON and YAML.
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// Tells whether a text can be a block: it has several lines, needs no escapes, and does not begin with a
/// space or newline. Spaces at the beginning of the first line would set the indentation.
fn may_be_block(text: &str) -> bool {
    let is_plain = |c: char| c == '\n' || !(c == '\t' || needs_escape(c));
    let begins_well = !text.starts_with([' ', '\n']);
    text.contains('\n') && begins_well && text.chars().all(is_plain)
}

/// Writes a text as a block. `|-` means no newline at the end, `|` one newline, and `|+` several.
fn block(text: &str, indent: usize, out: &mut String) {
    let lines = text.strip_suffix('\n');
    out.push_str(match lines {
        None => "|-",
        Some(lines) if lines.ends_with('\n') => "|+",
        Some(_) => "|",
    });
    for line in lines.unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            spaces(indent, out);
        }
        out.push_str(line);
    }
}

fn text_in_line(text: &str, out: &mut String) {
    match is_plain(text) {
        true => out.push_str(text),
        false => quoted(text, out),
    }
}

fn quoted(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        // Writing to a String cannot fail.
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            '\n' => out.write_str("\\n"),
            '\t' => out.write_str("\\t"),
            '\r' => out.write_str("\\r"),
            c if !needs_escape(c) => out.write_char(c),
            c => match u32::from(c) {
                code @ ..=0xff => write!(out, "\\x{code:02x}"),
                code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            },
        };
    }
    out.push('"');
}

/// Tells whether a character must be escaped: a terminal acts on the character, or a YAML reader refuses it or
/// takes it for the end of a line.
fn needs_escape(c: char) -> bool {
    is_unsafe(c) || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Tells whether a text needs no quotes.
fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    let marks = "-?:,[]{}#&*!|>'\"%@`=~<";
    let begins_well = !marks.contains(first) || is_dashed(text);
    let ends_well = !text.ends_with([' ', ':']) && first != ' ';
    let is_syntax = text.contains(": ") || text.contains(" #") || text.starts_with("---");
    let may_be_other = is_word(text) || is_number(text) || is_date(text);
    begins_well && ends_well && !is_syntax && !may_be_other && !text.chars().any(needs_escape)
}

/// Tells whether a text such as `-v` or `--v` begins with a dash but is no item of a list.
fn is_dashed(text: &str) -> bool {
    let rest = text.strip_prefix('-');
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '))
}

/// Tells whether a text is a boolean, null, infinity or not-a-number, in any spelling.
fn is_word(text: &str) -> bool {
    const WORDS: [&str; 13] = [
        "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf", "-.inf", "+.inf",
        ".nan",
    ];
    text.len() <= 5 && WORDS.iter().any(|w| text.eq_ignore_ascii_case(w))
}

/// Tells whether some YAML reader takes the text for a number: of base 10, 2, 8 or 16, with `_`, with an
/// exponent, or of base 60 (`1:30`).
fn is_number(text: &str) -> bool {
    if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return false;
    }
    let text = text.replace('_', "");
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let is_of = |prefix: &str, base: u32| {
        let rest = digits
            .get(2..)
            .filter(|_| digits[..2].eq_ignore_ascii_case(prefix));
        rest.is_some_and(|d| d.chars().all(|c| c.is_digit(base)))
    };
    let is_decimal = digits
        .chars()
        .all(|c| c.is_ascii_digit() || ".eE+-:".contains(c));
    let begins = digits.starts_with(|c: char| c == '.' || c.is_ascii_digit());
    let is_based = is_of("0x", 16) || is_of("0o", 8) || is_of("0b", 2);
    is_based || (begins && is_decimal && digits.matches('.').count() < 2)
}

/// Tells whether a text is a date such as `2026-01-02`, with or without a time.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 8
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes[5].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::decode::yaml_documents;

    #[track_caller]
    fn check(value: Value, expected: &str) {
        let text = document(&value);
        assert_eq!(text, expected);
        assert_eq!(yaml_documents(&text).unwrap(), [value]);
    }

    #[track_caller]
    fn check_text(text: &str, expected: &str) {
        check(json!({"k": text}), &format!("k: {expected}\n"));
    }

    #[test]
    fn objects_and_lists_are_laid_out_as_kubectl_does() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {}},
            "spec": {"containers": [{"name": "c", "args": ["-v", "--x=1"], "ports": []}, {"name": "d"}], "ratio": 1.5, "on": true, "none": null},
            "deep": [[1, [2]], [{"a": [3]}]]});
        let expected = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  labels:\n    app: web\n  annotations: {}\n\
            spec:\n  containers:\n  - name: c\n    args:\n    - -v\n    - --x=1\n    ports: []\n  - name: d\n  ratio: 1.5\n  \"on\": true\n  none: null\n\
            deep:\n- - 1\n  - - 2\n- - a:\n    - 3\n";
        check(pod, expected);
        check(json!([1, "a"]), "- 1\n- a\n");
        check(json!({}), "{}\n");
        assert_eq!(document(&json!("x")), "x\n");
    }

    #[test]
    fn what_means_something_else_has_quotes() {
        for text in [
            "",
            "~",
            "null",
            "Null",
            "yes",
            "NO",
            "on",
            "Off",
            "y",
            "N",
            "True",
            "FALSE",
            ".inf",
            "-.Inf",
            ".NaN",
            "1",
            "-1",
            "+1",
            "0644",
            "0x1F",
            "0o7",
            "0b1",
            "1_000",
            "1.5",
            ".5",
            "1.",
            "1e3",
            "1E-3",
            "1:30",
            "190:20:30",
            "2026-01-02",
            "2026-01-02T03:04:05Z",
            "=",
            "<<",
            "- a",
            "-",
            "? a",
            "a: b",
            "a:",
            ": a",
            "a #b",
            "#a",
            "&a",
            "*a",
            "!a",
            "|",
            ">",
            "'a'",
            "%a",
            "@a",
            "`a",
            "[a]",
            "{a}",
            "a ",
            " a",
            ",a",
            "---",
            "--- a",
        ] {
            check_text(text, &format!("\"{text}\""));
        }
        check_text("\"a\" \\", "\"\\\"a\\\" \\\\\"");
    }

    #[test]
    fn what_means_itself_has_none() {
        for text in [
            "a",
            "web-1",
            "10.0.0.7",
            "10.0.0.7:80",
            "100m",
            "64Mi",
            "app:1",
            "sha256:0a",
            "/bin/sh",
            "a b",
            "a,b",
            "a#b",
            "http://a/b?c=d&e",
            "-v",
            "nullable",
            "yesterday",
            "1.2.3",
            "v1",
            "é日本",
            "0x",
            "5s",
            "a'b\"c",
            "it's",
            "a[0]",
            "$(X)",
        ] {
            // Some readers take `0x` for a number without digits, so podprobe quotes it.
            match text {
                "0x" => check_text(text, "\"0x\""),
                _ => check_text(text, text),
            }
        }
    }

    #[test]
    fn several_lines_are_a_block_where_it_says_the_same() {
        check_text("a\nb", "|-\n    a\n    b".replace("    ", "  ").as_str());
        check_text("a\nb\n", "|\n  a\n  b");
        check_text("a\n\n  b\n\n\n", "|+\n  a\n\n    b\n\n");
        check_text("a: b\n- c #d", "|-\n  a: b\n  - c #d");
        check_text("a \nb", "|-\n  a \n  b");
        check_text(" a\nb", "\" a\\nb\"");
        check_text("\na", "\"\\na\"");
        check_text("\n", "\"\\n\"");
        check_text("a\tb\nc", "\"a\\tb\\nc\"");
        check(
            json!({"a": [{"k": "x\ny"}, "x\ny"]}),
            "a:\n- k: |-\n    x\n    y\n- |-\n  x\n  y\n",
        );
    }

    #[test]
    fn nothing_unsafe_stands_as_it_is() {
        check_text("\u{1b}[2J\u{7}", "\"\\x1b[2J\\x07\"");
        check_text("a\u{202e}b", "\"a\\u202eb\"");
        check_text("a\nb\u{85}", "\"a\\nb\\x85\"");
        check_text("\u{e0041}", "\"\\U000e0041\"");
        check_text("a\rb", "\"a\\rb\"");
        check(
            json!({"a: b\n": 1, "yes": 2, "1": 3}),
            "\"a: b\\n\": 1\n\"yes\": 2\n\"1\": 3\n",
        );
    }

    /// Tests all texts of up to three parts, made of characters that have a meaning in YAML.
    #[test]
    fn every_short_text_reads_back_as_itself() {
        let parts = [
            "-", ":", " ", "#", "\n", "'", "\"", "\\", "a", "1", ".", "e", "0", "x", "?", "[", "]",
            "{", "}", ",", "&", "*", "!", "|", ">", "%", "@", "`", "~", "=", "<", "+", "_", "\t",
            "\r", "é",
        ];
        for a in parts {
            for b in parts {
                let texts: Vec<Value> = parts.iter().map(|c| format!("{a}{b}{c}").into()).collect();
                let object: Map<String, Value> = texts
                    .iter()
                    .map(|t| (t.as_str().unwrap_or_default().into(), t.clone()))
                    .collect();
                let value = json!({"list": texts, "object": object});
                assert_eq!(
                    yaml_documents(&document(&value)).unwrap(),
                    [value],
                    "{a:?} {b:?}"
                );
            }
        }
    }
}
