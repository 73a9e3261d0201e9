//! Makes untrusted text safe for a terminal or the log: containers, pod files and probed servers
//! can put control characters into events, messages and probe results, and a terminal would act on
//! them.
//!
//! Invariants: no control character except newline and tab passes [`Printable`], through which
//! every verb writes. Only `logs` does not use it: it prints what the container wrote, as kubectl
//! does.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The first byte of U+0080 to U+00BF in UTF-8.
const C1_LEAD: u8 = 0xc2;

/// `text` with each control character but newline and tab in a visible form: `^[` for escape and `\r` for a carriage
/// return, as kubectl has them.
pub fn printable(text: &str) -> Cow<'_, str> {
    replace(text, |c| c.is_control() && !matches!(c, '\n' | '\t'))
}

/// The same in one line: line ends and tabs become spaces.
pub fn one_line(text: &str) -> String {
    let spaces = text.replace("\r\n", " ").replace(['\n', '\t'], " ");
    replace(&spaces, char::is_control).into_owned()
}

fn replace(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_unsafe(c) {
            true => visible(c, &mut out),
            false => out.push(c),
        }
    }
    out.into()
}

fn visible(c: char, out: &mut String) {
    // Writing to a String does not fail.
    let _ = match u32::from(c) {
        0x0d => out.write_str("\\r"),
        code @ 0..0x20 => write!(out, "^{}", char::from((code as u8) ^ 0x40)),
        0x7f => out.write_str("^?"),
        code => write!(out, "\\u{{{code:x}}}"),
    };
}

/// Shows control characters instead of passing them on. Text may come in pieces of any size.
pub struct Printable<W: Write> {
    inner: W,
    /// The last byte was [`C1_LEAD`], which may begin a control character.
    lead: bool,
}

impl<W: Write> Printable<W> {
    /// A writer before `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner, lead: false }
    }

    fn show(&mut self, c: char) -> io::Result<()> {
        let mut text = String::new();
        visible(c, &mut text);
        self.inner.write_all(text.as_bytes())
    }

    fn byte(&mut self, byte: u8) -> io::Result<()> {
        let after_lead = std::mem::take(&mut self.lead);
        match byte {
            // U+0080 to U+009F
            0x80..=0x9f if after_lead => return self.show(char::from(byte)),
            _ if after_lead => self.inner.write_all(&[C1_LEAD])?,
            _ => {}
        }
        match byte {
            C1_LEAD => {
                self.lead = true;
                Ok(())
            }
            b'\n' | b'\t' => self.inner.write_all(&[byte]),
            0..0x20 | 0x7f => self.show(char::from(byte)),
            _ => self.inner.write_all(&[byte]),
        }
    }
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let harmless = |b: &u8| !matches!(b, 0..0x20 | 0x7f | &C1_LEAD) || *b == b'\n';
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|b| harmless(b)).count();
            if run > 0 && !self.lead {
                self.inner.write_all(&rest[..run])?;
                rest = &rest[run..];
            } else {
                self.byte(*first)?;
                rest = &rest[1..];
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Prints a line on stderr. An error is ignored, because the terminal may be closed: `eprintln!`
/// would panic.
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
    fn a_cell_is_one_line() {
        assert_eq!(one_line("a\r\nb\tc\nd\u{1b}[2J\r"), "a b c d^[[2J\\r");
    }
}
