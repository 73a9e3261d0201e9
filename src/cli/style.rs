//! Colours status words, on a terminal only.
//!
//! Invariants: [`Colours`] is the only writer that adds colour escapes. [`Colours`] gets its input from
//! [`super::terminal::Printable`], so output of a container cannot bring in escapes. The lines of the input are
//! already laid out, so columns stay aligned. Only whole cells are coloured. If colours are off, the bytes pass
//! unchanged.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

/// The length in bytes beyond which a line is passed on without colours.
const MAX_LINE: usize = 64 << 10;

const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";

/// Tells whether output to stdout gets colours.
pub fn wanted() -> bool {
    let variable = |name| std::env::var_os(name);
    decide(
        io::stdout().is_terminal(),
        variable("NO_COLOR").as_deref(),
        variable("TERM").as_deref(),
    )
}

/// Decides whether to use colours. The decision depends on the terminal and on the variables NO_COLOR and TERM. As
/// no-color.org demands, NO_COLOR has an effect only if this variable is not empty.
fn decide(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    let refuses = no_color.is_some_and(|value| !value.is_empty());
    let can = term.is_some_and(|term| !term.is_empty() && term != "dumb");
    is_terminal && !refuses && can
}

/// Returns the colour of a cell if it is the word of a status.
fn colour(cell: &str) -> Option<&'static str> {
    let ends = |ends: &[&str]| ends.iter().any(|end| cell.ends_with(end));
    match cell {
        "Running" | "Completed" | "Succeeded" | "PASS" => Some(GREEN),
        "Pending" | "ContainerCreating" | "PodInitializing" | "Terminating" | "Unknown"
        | "Warning" | "WARN" | "NotReady" => Some(YELLOW),
        "Failed" | "Error" | "OOMKilled" | "Evicted" | "Refused" | "Deleted" | "FAIL"
        | "ErrImagePull" | "ErrImageNeverPull" => Some(RED),
        _ if cell.contains(' ') => None,
        _ if ends(&[
            "BackOff",
            "ConfigError",
            ":Error",
            ":OOMKilled",
            "ContainerError",
        ]) =>
        {
            Some(RED)
        }
        _ if cell.starts_with("OutOf") || cell.starts_with("ExitCode:") => Some(RED),
        _ if cell.starts_with("Init:") => Some(YELLOW),
        _ => None,
    }
}

/// A writer that colours the lines written to it.
pub struct Colours<W: Write> {
    inner: W,
    enabled: bool,
    line: Vec<u8>,
}

impl<W: Write> Colours<W> {
    /// Makes a writer that passes the lines on to `inner`.
    pub fn new(inner: W, enabled: bool) -> Self {
        Self {
            inner,
            enabled,
            line: Vec::new(),
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        match std::str::from_utf8(&line) {
            Ok(text) => self.inner.write_all(painted(text).as_bytes()),
            Err(_) => self.inner.write_all(&line),
        }
    }
}

/// Returns the line with coloured cells. Two or more spaces separate cells.
fn painted(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 16);
    let mut rest = line;
    while !rest.is_empty() {
        let begin = rest.len() - rest.trim_start_matches(' ').len();
        out.push_str(&rest[..begin]);
        rest = &rest[begin..];
        let end = rest.find("  ").or_else(|| rest.find('\n'));
        let (cell, after) = rest.split_at(end.unwrap_or(rest.len()));
        match colour(cell) {
            Some(colour) => out.extend(["\x1b[", colour, "m", cell, "\x1b[0m"]),
            None => out.push_str(cell),
        }
        let newline = after.strip_prefix('\n').map_or(0, |_| 1);
        out.push_str(&after[..newline]);
        rest = &after[newline..];
    }
    out
}

impl<W: Write> Write for Colours<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.enabled {
            return self.inner.write(bytes);
        }
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line()?;
            } else if self.line.len() > MAX_LINE {
                self.inner.write_all(&std::mem::take(&mut self.line))?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::Printable;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = expected.replace('<', "\x1b[").replace('>', "\x1b[0m");
        for size in [1, 7, 4096] {
            let (mut on, mut off) = (
                Colours::new(Vec::new(), true),
                Colours::new(Vec::new(), false),
            );
            for piece in text.as_bytes().chunks(size) {
                on.write_all(piece).unwrap();
                off.write_all(piece).unwrap();
            }
            on.flush().unwrap();
            assert_eq!(String::from_utf8(on.inner).unwrap(), shown);
            assert_eq!(String::from_utf8(off.inner).unwrap(), text);
        }
    }

    #[test]
    fn words_of_a_status_are_coloured_where_they_fill_a_cell() {
        check(
            "NAME   STATUS             AGE\nweb    Running            5s\ndb     CrashLoopBackOff   5s\n",
            "NAME   STATUS             AGE\nweb    <32mRunning>            5s\ndb     <31mCrashLoopBackOff>   5s\n",
        );
        check("Status:   Pending\n", "Status:   <33mPending>\n");
        check(
            "  Warning  Unhealthy  2s\n",
            "  <33mWarning>  Unhealthy  2s\n",
        );
        check("PASS  root\nFAIL", "<32mPASS>  root\n<31mFAIL>");
        check(
            "web   Init:0/1   Init:Error\n",
            "web   <33mInit:0/1>   <31mInit:Error>\n",
        );
        check(
            "web   ErrImagePull   OutOfcpu\n",
            "web   <31mErrImagePull>   <31mOutOfcpu>\n",
        );
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in [
            "the pod is Running now\n",
            "  \"phase\": \"Running\",\n",
            "Running out of room\n",
            "\n\n  \n",
            "no newline",
            "Back-off restarting failed container: Error\n",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn what_a_container_says_brings_no_escape() {
        let mut out = Printable::new(Colours::new(Vec::new(), true));
        out.write_all(b"x  \x1b[31mRunning\n").unwrap();
        out.write_all(b"y  Running\n").unwrap();
        out.flush().unwrap();
        let shown = String::from_utf8(out.into_inner().inner).unwrap();
        assert_eq!(shown, "x  ^[[31mRunning\ny  \x1b[32mRunning\x1b[0m\n");
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_memory() {
        let mut out = Colours::new(Vec::new(), true);
        for _ in 0..100 {
            out.write_all(&[b'x'; 10_000]).unwrap();
            assert!(out.line.len() <= MAX_LINE);
        }
        out.flush().unwrap();
        assert_eq!(out.inner.len(), 1_000_000);
    }

    #[test]
    fn only_a_terminal_that_wants_them_gets_colours() {
        let some = |text: &'static str| Some(OsStr::new(text));
        assert!(decide(true, None, some("xterm")));
        assert!(decide(true, some(""), some("xterm")));
        assert!(!decide(false, None, some("xterm")));
        assert!(!decide(true, some("1"), some("xterm")));
        assert!(!decide(true, None, some("dumb")));
        assert!(!decide(true, None, None));
    }
}
