//! One record of the CRI log format: `<time> <stdout|stderr> <P|F> <text>`.
//!
//! Invariants: pure. The first [`HEAD`] bytes of a record decide how the record is read. So a reader that goes
//! backwards and a reader that goes forwards read a record in the same way.

/// Number of bytes at the beginning of a record in which the time, the stream and the tag must lie.
pub const HEAD: usize = 128;

/// The stream from which a record comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The container's stdout.
    Stdout,
    /// The container's stderr.
    Stderr,
    /// The record is not in CRI's form. It counts as a line of its own.
    Unknown,
}

/// Number of origins. The values of [`Origin`] are indices below this number.
pub const ORIGINS: usize = 3;

/// The part of a record before its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Time of the record in RFC 3339; empty if the record is not in CRI's form.
    pub time: &'a str,
    /// The stream that the record was written to.
    pub origin: Origin,
    /// True if the line goes on in the stream's next record.
    pub partial: bool,
    /// Index of the byte at which the text begins in the record.
    pub text: usize,
}

/// Parses the beginning of a record. Bytes after the record's newline are ignored.
pub fn head(record: &[u8]) -> Head<'_> {
    cri(record).unwrap_or(Head {
        time: "",
        origin: Origin::Unknown,
        partial: false,
        text: 0,
    })
}

/// Parses the beginning of a record in CRI's form; None if the record is not in that form. The tag may have more parts
/// after a colon.
fn cri(record: &[u8]) -> Option<Head<'_>> {
    let window = &record[..record.len().min(HEAD)];
    let end = window.iter().position(|b| *b == b'\n');
    let mut parts = window[..end.unwrap_or(window.len())].splitn(4, |b| *b == b' ');
    let (time, stream, tag) = (parts.next()?, parts.next()?, parts.next()?);
    // A record without a text must end right after the tag. A window that ends there does not prove that the record
    // does.
    let has_text = parts.next().is_some();
    if !has_text && end.is_none() && window.len() == HEAD {
        return None;
    }
    let origin = match stream {
        b"stdout" => Origin::Stdout,
        b"stderr" => Origin::Stderr,
        _ => return None,
    };
    let partial = match tag.split(|b| *b == b':').next()? {
        b"P" => true,
        b"F" => false,
        _ => return None,
    };
    let text = time.len() + stream.len() + tag.len() + 2 + usize::from(has_text);
    time.first()?.is_ascii_digit().then_some(Head {
        time: std::str::from_utf8(time).ok()?,
        origin,
        partial,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(record: &str, expected: (&str, Origin, bool, &str)) {
        let head = head(record.as_bytes());
        let got = (head.time, head.origin, head.partial, &record[head.text..]);
        assert_eq!(got, expected, "{record}");
    }

    #[test]
    fn a_record_has_a_time_a_stream_and_a_tag() {
        use Origin::{Stderr, Stdout, Unknown};
        check("2026Z stdout F a  b\n", ("2026Z", Stdout, false, "a  b\n"));
        check("2026Z stderr P a", ("2026Z", Stderr, true, "a"));
        check("2026Z stdout F:x \n", ("2026Z", Stdout, false, "\n"));
        check("2026Z stdout F\n", ("2026Z", Stdout, false, "\n"));
        for other in [
            "",
            "x",
            "now stdout F a",
            "2026Z stdin F a",
            "2026Z stdout X a",
        ] {
            check(other, ("", Unknown, false, other));
        }
    }

    /// The first `HEAD` bytes of a record give the same origin as the whole record. A reader that goes backwards has
    /// only these bytes.
    #[test]
    fn the_first_bytes_decide() {
        for tag in [80, HEAD - 16, HEAD - 15, HEAD, 2 * HEAD] {
            let record = format!("2026Z stdout F:{} text\n", "x".repeat(tag));
            let short = head(&record.as_bytes()[..HEAD.min(record.len())]);
            assert_eq!(head(record.as_bytes()).origin, short.origin, "{tag}");
        }
    }
}
