//! Small conversions for texts.

pub mod visible;

use std::borrow::Cow;
use std::time::Duration;

/// Number of digits in the id of a container or a sandbox.
const ID: usize = 64;

/// Returns the first `limit` bytes of a text, or a few less if a character would be cut.
pub fn head(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Replaces each id of a container or a sandbox by `<id>`. An id has 64 hex digits and is not a digest (`sha256:…`). Two
/// instances with the same fault then have equal texts.
pub fn without_ids(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut taken = 0;
    let mut at = 0;
    while at < text.len() {
        let run = text.as_bytes()[at..]
            .iter()
            .take_while(|b| b.is_ascii_hexdigit())
            .count();
        let is_digest = text[..at].ends_with(':');
        if run == ID && !is_digest {
            out.push_str(&text[taken..at]);
            out.push_str("<id>");
            taken = at + run;
        }
        at = text.ceil_char_boundary(at + run.max(1));
    }
    match taken {
        0 => text.into(),
        _ => (out + &text[taken..]).into(),
    }
}

/// Returns the whole microseconds of a duration.
pub fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ids(text: &str, expected: &str) {
        let id = "0123456789abcdef".repeat(4);
        let text = text.replace("ID", &id);
        assert_eq!(without_ids(&text), expected.replace("ID", &id));
    }

    #[test]
    fn ids_are_left_out_and_digests_are_not() {
        check_ids(
            "cannot open /run/containers/ID/log: é",
            "cannot open /run/containers/<id>/log: é",
        );
        check_ids("ID, then ID", "<id>, then <id>");
        check_ids("é ID é", "é <id> é");
        check_ids("image sha256:ID and IDa", "image sha256:ID and IDa");
        check_ids("dead beef, a 1", "dead beef, a 1");
    }

    #[test]
    fn a_head_ends_between_characters() {
        assert_eq!(
            (head("aé", 2), head("aé", 3), head("a", 9)),
            ("a", "aé", "a")
        );
    }
}
