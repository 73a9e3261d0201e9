//! Texts in Go's form, because a kubelet's errors come from Go's libraries.

use nix::errno::Errno;

/// Returns the C library's text for an error, with a lower-case first letter.
pub fn go_errno(errno: Errno) -> String {
    let text = errno.desc();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

/// Writes bytes in double quotes like Go's `%q`. Unprintable bytes are escaped.
pub fn quote(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk
            .valid()
            .chars()
            .for_each(|c| quote_char(&mut quoted, c));
        for byte in chunk.invalid() {
            quoted.push_str(&format!("\\x{byte:02x}"));
        }
    }
    quoted.push('"');
    quoted
}

fn quote_char(quoted: &mut String, c: char) {
    let short = match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\x0c' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\x0b' => "\\v",
        c if c < ' ' || c == '\x7f' => return quoted.push_str(&format!("\\x{:02x}", c as u32)),
        c if c.is_control() => return quoted.push_str(&format!("\\u{:04x}", c as u32)),
        c => return quoted.push(c),
    };
    quoted.push_str(short);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_quoted_as_go_does() {
        for (bytes, quoted) in [
            (&b""[..], r#""""#),
            (b"a \"b\" \\", r#""a \"b\" \\""#),
            (
                b"\x15\x03\x01\x00\x02\x02\x16",
                r#""\x15\x03\x01\x00\x02\x02\x16""#,
            ),
            (b"\r\n\t\x0b\x7f", r#""\r\n\t\v\x7f""#),
            ("ä\u{85}".as_bytes(), r#""ä\u0085""#),
            (b"\xff", r#""\xff""#),
        ] {
            assert_eq!(quote(bytes), quoted);
        }
    }

    #[test]
    fn errors_begin_in_lower_case() {
        assert_eq!(go_errno(Errno::ECONNRESET), "connection reset by peer");
    }
}
