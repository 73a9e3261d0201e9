//! Makes untrusted text safe for a terminal or the log. Containers, pod files and probed servers can put
//! characters into events, messages and probe results. A terminal acts on some characters, and some characters
//! make a line look like another line.
//!
//! Invariants: every verb writes through [`Printable`], which escapes all control characters except newline and
//! tab, and all invisible characters that change the order or the look of a line. Only `logs`, `cp` and the
//! streams of containers do not use [`Printable`]. These verbs and streams pass on bytes unchanged, as kubectl
//! does.

use std::io::{self, Write};

use crate::base::text::visible::visible;
pub use crate::base::text::visible::{is_unsafe, one_line, printable};

/// A writer that shows unsafe characters in a safe form. Text may arrive in pieces of any size.
pub struct Printable<W: Write> {
    inner: W,
    /// The first bytes of a character whose further bytes have not arrived yet.
    begun: Vec<u8>,
}

impl<W: Write> Printable<W> {
    /// Makes a writer that passes safe text on to `inner`.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            begun: Vec::new(),
        }
    }

    /// Returns the inner writer.
    #[cfg(test)]
    pub fn into_inner(self) -> W {
        self.inner
    }
}

/// Returns the length in bytes of a character that begins with this byte. Returns None if no character of several
/// bytes begins with this byte.
fn length(lead: u8) -> Option<usize> {
    match lead {
        0xc2..=0xdf => Some(2),
        0xe0..=0xef => Some(3),
        0xf0..=0xf4 => Some(4),
        _ => None,
    }
}

/// Adds a byte to `out`, or to the unfinished character.
fn pass(byte: u8, begun: &mut Vec<u8>, out: &mut Vec<u8>) {
    let show = |c: char, out: &mut Vec<u8>| {
        let mut text = String::new();
        visible(c, &mut text);
        out.extend_from_slice(text.as_bytes());
    };
    if let (Some(lead), 0x80..=0xbf) = (begun.first(), byte) {
        let whole = length(*lead);
        begun.push(byte);
        if Some(begun.len()) == whole {
            let text = std::str::from_utf8(begun).unwrap_or_default();
            match text.chars().find(|c| is_unsafe(*c)) {
                Some(c) => show(c, out),
                None => out.extend_from_slice(begun),
            }
            begun.clear();
        }
        return;
    }
    // The unfinished bytes are not a valid character, so these bytes are passed on unchanged.
    out.append(begun);
    match byte {
        b'\n' | b'\t' => out.push(byte),
        0..0x20 | 0x7f => show(char::from(byte), out),
        _ if length(byte).is_some() => begun.push(byte),
        _ => out.push(byte),
    }
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_plain = |b: &u8| matches!(b, 0x20..0x7f | b'\n' | b'\t');
        if self.begun.is_empty() && bytes.iter().all(is_plain) {
            self.inner.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let mut out = Vec::with_capacity(bytes.len() + 8);
        for byte in bytes {
            pass(*byte, &mut self.begun, &mut out);
        }
        self.inner.write_all(&out)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Prints a line to stderr, and ignores errors. `eprintln!` would panic if the terminal is closed.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(printable(text), expected);
        for size in [1, 2, 3, 4096] {
            let mut writer = Printable::new(Vec::new());
            for piece in text.as_bytes().chunks(size) {
                writer.write_all(piece).unwrap();
            }
            assert_eq!(String::from_utf8(writer.inner).unwrap(), expected);
        }
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        check(
            "plain text, äöü °©£, 日本, 🐧",
            "plain text, äöü °©£, 日本, 🐧",
        );
        check("two\nlines\tand a tab", "two\nlines\tand a tab");
        check("\u{1b}]0;pwned\u{7}", "^[]0;pwned^G");
        check("over\rwritten\u{8}\0\u{7f}", "over\\rwritten^H^@^?");
        check(
            "\u{9b}2J \u{80}\u{9f}\u{a0}Â",
            "\\u{9b}2J \\u{80}\\u{9f}\u{a0}Â",
        );
    }

    #[test]
    fn a_terminal_gets_no_characters_that_change_the_order_or_are_not_seen() {
        check("a\u{202e}txt.exe", "a\\u{202e}txt.exe");
        check(
            "\u{2066}\u{2067}\u{2068}\u{2069}",
            "\\u{2066}\\u{2067}\\u{2068}\\u{2069}",
        );
        check("\u{ad}\u{61c}\u{200b}", "\\u{ad}\\u{61c}\\u{200b}");
        check("\u{200e}\u{200f}\u{feff}", "\\u{200e}\\u{200f}\\u{feff}");
        check("\u{2028}\u{2029}", "\\u{2028}\\u{2029}");
        check("\u{e0041}\u{e007f}", "\\u{e0041}\\u{e007f}");
        check(
            "\u{200a}\u{2010}\u{2027}\u{202f}\u{feee}",
            "\u{200a}\u{2010}\u{2027}\u{202f}\u{feee}",
        );
        assert_eq!(one_line("a\u{202e}b"), "a\\u{202e}b");
    }

    #[test]
    fn bytes_that_are_no_character_hide_nothing() {
        for bytes in [
            &b"a\xe2\x80b"[..],
            b"a\xe2\x1bb",
            b"\xf0\x9f\xc2b",
            b"\xff\x80b",
        ] {
            let mut writer = Printable::new(Vec::new());
            writer.write_all(bytes).unwrap();
            let shown = String::from_utf8_lossy(bytes).replace('\u{1b}', "^[");
            assert_eq!(String::from_utf8_lossy(&writer.inner), shown, "{bytes:?}");
        }
    }

    #[test]
    fn a_cell_is_one_line() {
        assert_eq!(one_line("a\r\nb\tc\nd\u{1b}[2J\r"), "a b c d^[[2J\\r");
    }
}
