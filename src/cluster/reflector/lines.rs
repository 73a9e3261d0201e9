//! The lines of a watch, cut out of the pieces that a connection brings.

/// Largest number of bytes in a line of a watch: 8 MiB. An object in an API server has at most about 1.5 MiB, and JSON
/// can write a byte as six.
pub const LONGEST_LINE: usize = 8 << 20;

/// Capacity in bytes that the buffer keeps after a long line.
const KEPT: usize = 64 << 10;

/// A line of a watch is longer than [`LONGEST_LINE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line has more than {LONGEST_LINE} bytes")]
pub struct LineTooLong;

/// The beginning of a line whose end has not come yet.
#[derive(Debug, Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// Takes the next piece of the stream, and calls `each` with every line that the piece completes. Empty lines are
    /// left out.
    ///
    /// # Errors
    /// Returns [`LineTooLong`] if a line is too long. The rest of the stream then has no meaning.
    pub fn push(&mut self, piece: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<(), LineTooLong> {
        let mut parts = piece.split_inclusive(|byte| *byte == b'\n');
        parts.try_for_each(|part| {
            if self.0.len() + part.len() > LONGEST_LINE {
                self.0 = Vec::new();
                return Err(LineTooLong);
            }
            let Some(end) = part.strip_suffix(b"\n") else {
                self.0.extend_from_slice(part);
                return Ok(());
            };
            match self.0.is_empty() {
                true if end.is_empty() => {}
                true => each(end),
                false => {
                    self.0.extend_from_slice(end);
                    each(&self.0);
                    self.0.clear();
                    self.0.shrink_to(KEPT);
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: &[&str]) {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in pieces {
            let mut each = |line: &[u8]| found.push(String::from_utf8_lossy(line).into_owned());
            lines.push(piece.as_bytes(), &mut each).unwrap();
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_are_whole_however_the_connection_cuts_them() {
        check(&["{1}\n{2}\n"], &["{1}", "{2}"]);
        check(&["{", "1", "}\n{2", "}", "\n\n", "{3}"], &["{1}", "{2}"]);
        check(&["", "\n"], &[]);
    }

    #[test]
    fn a_line_without_an_end_is_refused_and_takes_no_more_memory() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; 1 << 20];
        let mut push = || lines.push(&piece, &mut |_| panic!("no line is whole"));
        for _ in 0..LONGEST_LINE >> 20 {
            assert_eq!(push(), Ok(()));
        }
        assert_eq!(push(), Err(LineTooLong));
        assert_eq!(lines.0.capacity(), 0);
    }

    #[test]
    fn the_memory_of_a_long_line_is_given_back() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; 1 << 20], &mut |_| {}).unwrap();
        lines.push(b"\n", &mut |_| {}).unwrap();
        assert!(lines.0.capacity() <= KEPT);
    }
}
