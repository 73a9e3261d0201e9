//! Errors of a fetch: the reasons why a server did not send the requested content.

use std::fmt;

/// Kinds of errors, by what the caller does about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The server cannot be reached, does not answer, or says that it cannot answer now.
    Unavailable,
    /// The server refused the credentials, or requires credentials that the request did not have.
    Unauthorized,
    /// The caller ended the request.
    Cancelled,
    /// Any other error. Another try would give the same error.
    Failed,
}

/// The error of a fetch: one sentence for people. The sentence does not name what was to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchError {
    /// The kind of the error.
    pub kind: Kind,
    /// The sentence.
    pub text: String,
}

impl FetchError {
    /// Makes an error of this kind.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }

    /// Makes an error of the kind [`Kind::Failed`].
    pub fn failed(text: impl Into<String>) -> Self {
        Self::new(Kind::Failed, text)
    }

    /// Makes an error of the kind [`Kind::Unavailable`].
    pub fn unavailable(text: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, text)
    }

    /// Makes an error of the kind [`Kind::Cancelled`].
    pub fn cancelled() -> Self {
        Self::new(Kind::Cancelled, "it was cancelled")
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FetchError {}

/// Returns a server's text as one quoted line, without control characters and cut to 200 characters.
pub fn quoted(text: &str) -> String {
    const MOST: usize = 200;
    let clean = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST);
    format!("{:?}", clean.collect::<String>().trim())
}
