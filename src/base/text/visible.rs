//! Makes untrusted text safe to show to a person. Characters that a terminal would act on, or that would make a line look
//! like another line, are written as visible escapes.
//!
//! Invariants: the functions have no state and no side effects.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Tells whether a character is unsafe: a terminal acts on it, or a person does not see it. Unsafe are control characters,
/// and the invisible format characters and line separators of Unicode. Some of these reverse the order of a line.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Tells whether a character is unsafe in a text of several lines. Newline and tab are safe there.
pub fn is_unsafe_in_text(c: char) -> bool {
    is_unsafe(c) && !matches!(c, '\n' | '\t')
}

/// Returns `text` with each unsafe character except newline and tab in a visible form. Escape becomes `^[` and a carriage
/// return `\r`, as in kubectl. Characters outside of ASCII become `\u{202e}` and the like.
pub fn printable(text: &str) -> Cow<'_, str> {
    replace(text, is_unsafe_in_text)
}

/// Returns `text` as one line. Line ends and tabs become spaces, and other unsafe characters get a visible form.
pub fn one_line(text: &str) -> String {
    let spaces = text.replace("\r\n", " ").replace(['\n', '\t'], " ");
    replace(&spaces, is_unsafe).into_owned()
}

/// Returns `text` with each character for which `is_unsafe` is true in a visible form.
pub fn replace(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
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

/// Appends the visible form of a character to `out`.
pub fn visible(c: char, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = match u32::from(c) {
        0x0d => out.write_str("\\r"),
        code @ 0..0x20 => write!(out, "^{}", char::from((code as u8) ^ 0x40)),
        0x7f => out.write_str("^?"),
        code => write!(out, "\\u{{{code:x}}}"),
    };
}
