//! A line of the log, and the forms in which it is written.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use log::Level;
use serde_json::json;
use thiserror::Error;

use crate::base::clock::go_duration;
use crate::base::text::visible::printable;

/// The form of the lines of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people: time, level, subject and text.
    Text,
    /// A JSON object in each line.
    Json,
    /// For systemd's journal: the priority as `sd-daemon(3)` has it, and no time, which the journal has itself.
    Journald,
}

/// The text names no form of the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{0}\" is no form of the log; forms are text, json and journald")]
pub struct FormatError(String);

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "journald" => Ok(Self::Journald),
            other => Err(FormatError(other.into())),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Journald => "journald",
        })
    }
}

/// The place in the code that a line is from: file and line.
pub(super) type Place = (&'static str, u32);

/// A line of the log.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) time: Timestamp,
    pub(super) level: Level,
    pub(super) subject: &'static str,
    pub(super) place: Place,
    pub(super) text: String,
    pub(super) more: Option<More>,
}

/// The lines that a line stands for, which are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    /// So many that are the same, within this time.
    Same(u64, Duration),
    /// So many from the same place in the code, within this time.
    Like(u64, Duration),
}

impl fmt::Display for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, what, time) = match self {
            Self::Same(1, time) => (1, "time more", time),
            Self::Same(n, time) => (*n, "times more", time),
            Self::Like(1, time) => (1, "line like it, which is not written,", time),
            Self::Like(n, time) => (*n, "lines like it, which are not written,", time),
        };
        write!(f, " ({n} {what} in {})", go_duration(*time))
    }
}

impl Line {
    /// Returns the line as it is written, with the line end. Control characters are escaped, because texts quote the output of
    /// containers, and the log may be read on a terminal. The second and later lines of a text are indented, because they
    /// could be mistaken for lines of their own.
    pub(super) fn written(&self, format: Format) -> String {
        let text = printable(&self.text);
        let mut out = String::with_capacity(text.len() + 64);
        // Writing to a String cannot fail.
        let _ = match format {
            Format::Text => write!(
                out,
                "[{:.3} {:<5} {}] {}",
                self.time,
                self.level,
                self.subject,
                text.replace('\n', "\n    ")
            ),
            Format::Journald => {
                let priority = priority(self.level);
                let text = text.replace('\n', &format!("\n<{priority}>    "));
                write!(out, "<{priority}>{}: {text}", self.subject)
            }
            Format::Json => out.write_str(&self.json(&text)),
        };
        if let (Some(more), Format::Text | Format::Journald) = (self.more, format) {
            let _ = write!(out, "{more}");
        }
        out.push('\n');
        out
    }

    fn json(&self, text: &str) -> String {
        let mut fields = json!({
            "ts": format!("{:.3}", self.time),
            "level": self.level.as_str().to_ascii_lowercase(),
            "subject": self.subject,
            "msg": text,
        });
        match self.more {
            Some(More::Same(n, _)) => fields["repeated"] = n.into(),
            Some(More::Like(n, _)) => fields["similar"] = n.into(),
            None => {}
        }
        fields.to_string()
    }
}

/// Returns the priority of a level in the journal.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(level: Level, text: &str, more: Option<More>) -> Line {
        Line {
            time: "2026-11-29T01:02:03.004567Z".parse().unwrap(),
            level,
            subject: "probes",
            place: ("f.rs", 1),
            text: text.into(),
            more,
        }
    }

    #[test]
    fn a_line_has_three_forms() {
        let line = line(Level::Warn, "it \"failed\":\n\u{1b}[31mred\u{202e}", None);
        assert_eq!(
            line.written(Format::Text),
            "[2026-11-29T01:02:03.004Z WARN  probes] it \"failed\":\n    ^[[31mred\\u{202e}\n"
        );
        assert_eq!(
            line.written(Format::Journald),
            "<4>probes: it \"failed\":\n<4>    ^[[31mred\\u{202e}\n"
        );
        assert_eq!(
            line.written(Format::Json),
            "{\"ts\":\"2026-11-29T01:02:03.004Z\",\"level\":\"warn\",\"subject\":\"probes\",\"msg\":\"it \\\"failed\\\":\\n^[[31mred\\\\u{202e}\"}\n"
        );
    }

    #[test]
    fn a_line_says_what_it_stands_for() {
        let time = Duration::from_secs(600);
        let end = |n| {
            let text = line(Level::Info, "x", Some(n)).written(Format::Text);
            text.split_once("] ").unwrap().1.to_owned()
        };
        assert_eq!(end(More::Same(1, time)), "x (1 time more in 10m0s)\n");
        assert_eq!(end(More::Same(7, time)), "x (7 times more in 10m0s)\n");
        assert_eq!(
            end(More::Like(1, time)),
            "x (1 line like it, which is not written, in 10m0s)\n"
        );
        assert_eq!(
            end(More::Like(7, time)),
            "x (7 lines like it, which are not written, in 10m0s)\n"
        );
        let json = |n| line(Level::Error, "x", Some(n)).written(Format::Json);
        assert!(json(More::Same(7, time)).ends_with("\"msg\":\"x\",\"repeated\":7}\n"));
        assert!(json(More::Like(7, time)).ends_with("\"msg\":\"x\",\"similar\":7}\n"));
    }

    #[test]
    fn each_level_has_its_priority_in_the_journal() {
        let all = Level::iter().map(|l| line(l, "x", None).written(Format::Journald));
        let starts: Vec<String> = all.map(|text| text[..3].into()).collect();
        assert_eq!(starts, ["<3>", "<4>", "<6>", "<7>", "<7>"]);
    }

    #[test]
    fn a_form_is_named_as_it_is_asked_for() {
        for name in ["text", "json", "journald"] {
            assert_eq!(name.parse::<Format>().unwrap().to_string(), name);
        }
        assert_eq!(
            "xml".parse::<Format>().unwrap_err().to_string(),
            "\"xml\" is no form of the log; forms are text, json and journald"
        );
    }
}
