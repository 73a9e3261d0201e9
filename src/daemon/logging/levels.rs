//! The levels of the log: one for all subjects, and others for single ones.
//!
//! Invariants: the functions have no state and no side effects.

use std::fmt;
use std::str::FromStr;

use log::LevelFilter;
use thiserror::Error;

use super::subject::{named, subjects};

/// The level of each subject of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    rest: LevelFilter,
    of: Vec<(&'static str, LevelFilter)>,
}

/// The reasons for which a text does not say levels.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LevelsError {
    /// The text is no level.
    #[error(
        "\"{0}\" is no level; levels are error, warn, info, debug, trace and off, and a subject has one by 'probes=debug'"
    )]
    Level(String),
    /// The text before the `=` is no subject.
    #[error("\"{0}\" is no subject of the log; subjects are {all}", all = listed())]
    Subject(String),
}

impl Default for Levels {
    fn default() -> Self {
        Self {
            rest: LevelFilter::Info,
            of: Vec::new(),
        }
    }
}

impl Levels {
    /// Returns the level of a subject.
    pub(super) fn of(&self, subject: &str) -> LevelFilter {
        let own = self.of.iter().find(|(name, _)| *name == subject);
        own.map_or(self.rest, |(_, level)| *level)
    }

    /// Returns the highest level that a subject has.
    pub(super) fn most(&self) -> LevelFilter {
        let own = self.of.iter().map(|(_, level)| *level);
        own.fold(self.rest, Ord::max)
    }
}

/// Parses levels such as `warn,probes=debug`. A level without a subject is that of all subjects that have none of their own.
/// Where two parts are for the same subject, the last one counts. An empty text is the default, `info`.
impl FromStr for Levels {
    type Err = LevelsError;

    fn from_str(text: &str) -> Result<Self, LevelsError> {
        let mut levels = Self::default();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, word) = part.split_once('=').unwrap_or(("", part));
            let level = word.trim().parse();
            let level = level.map_err(|_| LevelsError::Level(word.trim().into()))?;
            let name = name.trim();
            match name {
                "" => levels.rest = level,
                _ => {
                    let subject = named(name);
                    let subject = subject.ok_or_else(|| LevelsError::Subject(name.into()))?;
                    levels.of.retain(|(known, _)| *known != subject);
                    levels.of.push((subject, level));
                }
            }
        }
        Ok(levels)
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |level: LevelFilter| level.as_str().to_ascii_lowercase();
        f.write_str(&word(self.rest))?;
        let mut own = self.of.iter();
        own.try_for_each(|(name, level)| write!(f, ",{name}={}", word(*level)))
    }
}

fn listed() -> String {
    let mut names: Vec<&str> = subjects().collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_its_own_level_or_that_of_the_rest() {
        let levels: Levels = " WARN, probes = debug ,images=off,probes=trace"
            .parse()
            .unwrap();
        assert_eq!(levels.of("probes"), LevelFilter::Trace);
        assert_eq!(levels.of("images"), LevelFilter::Off);
        assert_eq!(levels.of("pods"), LevelFilter::Warn);
        assert_eq!(levels.most(), LevelFilter::Trace);
        assert_eq!(levels.to_string(), "warn,images=off,probes=trace");
        let quiet: Levels = "debug,probes=error".parse().unwrap();
        assert_eq!(quiet.most(), LevelFilter::Debug);
        for empty in ["", " ", "info", ","] {
            assert_eq!(empty.parse(), Ok(Levels::default()), "{empty:?}");
        }
    }

    #[test]
    fn a_wrong_level_and_a_wrong_subject_are_named_with_those_that_are_right() {
        let error = |text: &str| text.parse::<Levels>().unwrap_err().to_string();
        let levels = "levels are error, warn, info, debug, trace and off, and a subject has one by 'probes=debug'";
        assert_eq!(error("loud"), format!("\"loud\" is no level; {levels}"));
        assert_eq!(
            error("probes=loud"),
            format!("\"loud\" is no level; {levels}")
        );
        assert_eq!(error("probes="), format!("\"\" is no level; {levels}"));
        assert_eq!(
            error("podprobe::pods=debug"),
            "\"podprobe::pods\" is no subject of the log; subjects are cluster, commands, containers, daemon, events, images, \
             libraries, network, pods, probes, server, services, volumes, workloads"
        );
    }
}
