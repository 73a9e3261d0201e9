//! Texts in double quotes, as the libraries of Go write them into errors.
//!
//! Invariants: pure.

use std::fmt::Write as _;

/// Quotes a text as `strconv.Quote` and `%q` do.
pub fn quote(text: &str) -> String {
    quoted_by(text, push_escaped)
}

/// Quotes a text as the package `time` does: each byte that is not printable ASCII is escaped.
pub fn quote_bytes(text: &str) -> String {
    quoted_by(text, push_bytes)
}

fn quoted_by(text: &str, push: fn(&mut String, char)) -> String {
    let mut quoted = String::with_capacity(text.len().saturating_add(2));
    quoted.push('"');
    text.chars().for_each(|c| push(&mut quoted, c));
    quoted.push('"');
    quoted
}

fn push_escaped(to: &mut String, c: char) {
    let short = match c {
        '"' | '\\' => c,
        '\x07' => 'a',
        '\x08' => 'b',
        '\x0c' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\x0b' => 'v',
        _ => return push_code(to, c),
    };
    to.extend(['\\', short]);
}

fn push_code(to: &mut String, c: char) {
    // `escape_debug` escapes the apostrophe, Go does not. What is printable is decided by Rust's tables.
    let printable = c == '\'' || c.escape_debug().count() == 1;
    // Writing into a String never fails.
    let _ = match u32::from(c) {
        _ if printable => write!(to, "{c}"),
        code @ 0..0x80 => write!(to, "\\x{code:02x}"),
        code @ 0x80..0x1_0000 => write!(to, "\\u{code:04x}"),
        code => write!(to, "\\U{code:08x}"),
    };
}

fn push_bytes(to: &mut String, c: char) {
    match c {
        '"' | '\\' => to.extend(['\\', c]),
        // Go counts DEL as printable here.
        ' '..='\x7f' => to.push(c),
        _ => {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(to, "\\x{byte:02x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, strconv: &str, time: &str) {
        assert_eq!([quote(text), quote_bytes(text)], [strconv, time]);
    }

    #[test]
    fn texts_are_quoted_as_go_does() {
        check("", r#""""#, r#""""#);
        check("5#3 'a'", r#""5#3 'a'""#, r#""5#3 'a'""#);
        check(r#"a"b\"#, r#""a\"b\\""#, r#""a\"b\\""#);
        check(
            "\t\n\x01\x7f",
            r#""\t\n\x01\x7f""#,
            "\"\\x09\\x0a\\x01\x7f\"",
        );
        check("ä\u{85}", r#""ä\u0085""#, r#""\xc3\xa4\xc2\x85""#);
        check("\u{e0001}", r#""\U000e0001""#, r#""\xf3\xa0\x80\x81""#);
    }
}
