//! A finding of `check-host`.
//!
//! Invariants: pure.

/// The grade of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// Fine.
    Pass,
    /// Something works worse, or only without some pods.
    Warn,
    /// The daemon or its pods do not run.
    Fail,
}

impl Grade {
    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// The result of one check of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Grade of the thing that was looked at.
    pub grade: Grade,
    /// Name of the thing that was looked at.
    pub name: &'static str,
    /// State of the thing, in words.
    pub found: String,
    /// Consequence and remedy; empty for [`Grade::Pass`].
    pub advice: String,
}

impl Finding {
    /// Makes a finding that needs no action.
    pub fn pass(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(Grade::Pass, name, found, "")
    }

    /// Makes a finding of [`Grade::Warn`].
    pub fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Grade::Warn, name, found, advice)
    }

    /// Makes a finding of [`Grade::Fail`].
    pub fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Grade::Fail, name, found, advice)
    }

    fn new(
        grade: Grade,
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            grade,
            name,
            found: found.into(),
            advice: advice.into(),
        }
    }
}
