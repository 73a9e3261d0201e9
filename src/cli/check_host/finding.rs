//! A finding of `check-host`.
//!
//! Invariants: pure.

/// The grade of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// Everything is fine.
    Pass,
    /// Something works worse, or some pods cannot run.
    Warn,
    /// The daemon or all pods cannot run.
    Fail,
}

impl Grade {
    /// Returns the word for the grade in the table.
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
    /// The grade of the checked item.
    pub grade: Grade,
    /// The name of the checked item.
    pub name: &'static str,
    /// The state of the checked item, as text.
    pub found: String,
    /// The consequence and the remedy; empty for [`Grade::Pass`].
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
