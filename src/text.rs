//! Small conversions for texts.

use std::time::Duration;

/// The first `limit` bytes of a text, or fewer so that no character is cut.
pub fn head(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Whole microseconds.
pub fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_between_characters() {
        assert_eq!(
            (head("aé", 2), head("aé", 3), head("a", 9)),
            ("a", "aé", "a")
        );
    }
}
