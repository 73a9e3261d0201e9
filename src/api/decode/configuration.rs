//! Reads the configuration of the daemon, which is one JSON object, into a type that knows all keys.

use serde::de::DeserializeOwned;

use super::locate::{self, Repeated};
use super::place::{FieldPlace, Position, Syntax};
use crate::api::field::render;
use crate::base::{json, spelling};

/// The reasons for which a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The text is not JSON.
    #[error(transparent)]
    NotJson(#[from] serde_json::Error),
    /// A key is given twice.
    #[error(
        "{path}: given a second time: remove one of the two at line {} column {}",
        at.line,
        at.column
    )]
    Repeated {
        /// Path of the key.
        path: String,
        /// Position at which the key is given the second time.
        at: Position,
    },
    /// A key is unknown, or the value of a key is not allowed.
    #[error("{}{cause}{}", before(path), after(*at))]
    Refused {
        /// Path of the value or of the unknown key; empty for the whole object.
        path: String,
        /// Cause of the refusal.
        cause: RefusalCause,
        /// Position of the path in the text; None if the path is not found there.
        at: Option<Position>,
    },
}

/// The reasons for which a key is unknown or a value is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalCause {
    /// The key is unknown, but similar to a known key.
    #[error("unknown key \"{key}\", did you mean \"{likely}\"?")]
    Misspelt {
        /// Key as it was given.
        key: String,
        /// Known key that the user likely meant.
        likely: String,
    },
    /// The key is unknown and not similar to a known key.
    #[error("unknown key \"{key}\"; known are {}", known.join(", "))]
    Unknown {
        /// Key as it was given.
        key: String,
        /// All known keys.
        known: Vec<String>,
    },
    /// The value is a text, but another type was expected. The error does not repeat the text, because the text may be
    /// a password in the wrong place.
    #[error("invalid type: a text, expected {expected}")]
    Text {
        /// Type that was expected, in serde's words.
        expected: String,
    },
    /// The value has the expected type, but is not allowed. The reason is in the words of the type or of serde.
    #[error("{0}")]
    Value(String),
}

fn before(path: &str) -> String {
    match path {
        "" => String::new(),
        path => format!("{path}: "),
    }
}

fn after(at: Option<Position>) -> String {
    at.map_or_else(String::new, |at| {
        format!(" at line {} column {}", at.line, at.column)
    })
}

/// Reads a configuration.
///
/// # Errors
/// Returns a [`ConfigurationError`] if the text is not JSON, if a key is given twice or is unknown, or if a value is
/// not allowed. The error names the key, the reason and the position. The error for an unknown key also names the key
/// that was likely meant, or all known keys.
pub fn configuration<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ConfigurationError> {
    let value = serde_json::from_slice(bytes)?;
    // JSON is always UTF-8.
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let repeated = locate::repeated_keys(text, Syntax::Json, 1);
    if let Some(Repeated { path, at }) = repeated.into_iter().next() {
        return Err(ConfigurationError::Repeated { path, at });
    }
    match json::read(&value) {
        Ok((read, _)) => Ok(read),
        Err(e) => Err(refused(text, render(&e.path), &e.cause.to_string())),
    }
}

fn refused(text: &str, path: String, cause: &str) -> ConfigurationError {
    let field = FieldPlace { document: 0, path };
    let found = locate::positions(text, Syntax::Json, std::slice::from_ref(&field));
    ConfigurationError::Refused {
        path: field.path,
        cause: read_cause(cause),
        at: found.into_iter().flatten().next(),
    }
}

/// Reads the cause of a refusal from serde's text, because serde gives no other form of the cause.
fn read_cause(cause: &str) -> RefusalCause {
    if let Some(names) = cause.strip_prefix("unknown field ") {
        return unknown_key(names);
    }
    let found = cause.strip_prefix("invalid type: string ");
    match found.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((_, expected)) => RefusalCause::Text {
            expected: expected.to_owned(),
        },
        None => RefusalCause::Value(cause.to_owned()),
    }
}

/// Turns the text "`a`, expected one of `b`, `c`" into a cause for the unknown key `a`. The cause has the key that was
/// likely meant, or all known keys.
fn unknown_key(names: &str) -> RefusalCause {
    let mut quoted = names.split('`').skip(1).step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    let key = unknown.to_owned();
    match spelling::nearest(unknown, known.iter().copied()) {
        Some(likely) => RefusalCause::Misspelt {
            key,
            likely: likely.to_owned(),
        },
        None => RefusalCause::Unknown {
            key,
            known: known.into_iter().map(str::to_owned).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_text_in_the_wrong_place_is_not_repeated() {
        let read = configuration::<BTreeMap<String, Vec<String>>>;
        let error = read(b"{\"a\": \"pass, expected word\"}").unwrap_err();
        let expected = "a: invalid type: a text, expected a sequence at line 1 column 2";
        assert_eq!(error.to_string(), expected);
        assert!(read(b"{\"a\": [\"b\"]}").is_ok());
    }

    #[test]
    fn a_key_is_given_once() {
        let error = configuration::<BTreeMap<String, u8>>(b"{\"a\": 1,\n \"a\": 2}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a: given a second time: remove one of the two at line 2 column 2"
        );
    }
}
