//! A finding of `check-host`.
//!
//! Invariants: pure.

/// How good it is.
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

/// What was looked at, and how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How good it is.
    pub grade: Grade,
    /// What was looked at.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// What follows, and what to do; empty for [`Grade::Pass`].
    pub advice: String,
}

impl Finding {
    /// Nothing to do.
    pub fn pass(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(Grade::Pass, name, found, "")
    }

    /// See [`Grade::Warn`].
    pub fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Grade::Warn, name, found, advice)
    }

    /// See [`Grade::Fail`].
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
