//! Why a registry did not give what it was asked for.

use std::fmt;

/// What the caller does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The registry cannot be reached, does not answer, or says that it cannot answer now.
    Unavailable,
    /// It wants other credentials.
    Unauthorized,
    /// Somebody ended the pull.
    Cancelled,
    /// Anything else: another try gives the same.
    Failed,
}

/// One sentence for people, without "cannot pull".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegistryError {
    pub(super) kind: Kind,
    pub(super) text: String,
}

impl RegistryError {
    pub(super) fn new(kind: Kind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }

    pub(super) fn failed(text: impl Into<String>) -> Self {
        Self::new(Kind::Failed, text)
    }

    pub(super) fn unavailable(text: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, text)
    }

    pub(super) fn cancelled() -> Self {
        Self::new(Kind::Cancelled, "the pull was cancelled")
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for RegistryError {}

/// Text of a server in one line: no control characters, and not more than a screen line or two.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 200;
    let clean = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST);
    format!("{:?}", clean.collect::<String>().trim())
}
