//! Reads the configuration of the daemon: one JSON object of a type that knows all its keys.

use serde::de::DeserializeOwned;

use super::locate;
use super::place::{FieldPlace, Syntax};
use super::tracked;
use crate::api::field::render;
use crate::base::spelling;

/// Reads a configuration.
///
/// # Errors
/// Returns a sentence if the text is not JSON, if a key is given twice, or if the type refuses a key or a value. The
/// sentence has the key, what is wrong with it, its line and column, and for an unknown key the likely one.
pub fn configuration<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    // It was JSON, so it is UTF-8.
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    if let Some(repeated) = locate::repeated_keys(text, Syntax::Json, 1).first() {
        return Err(format!(
            "{}: given a second time: remove one of the two at line {} column {}",
            repeated.path, repeated.at.line, repeated.at.column
        ));
    }
    match tracked::read(&value) {
        Ok((read, _)) => Ok(read),
        Err((path, cause)) => Err(with_place(text, render(&path), &cause)),
    }
}

fn with_place(text: &str, path: String, cause: &str) -> String {
    let cause = in_words(cause);
    let field = FieldPlace { document: 0, path };
    let found = locate::positions(text, Syntax::Json, std::slice::from_ref(&field));
    let place = found.into_iter().flatten().next();
    let place = place.map_or_else(String::new, |at| {
        format!(" at line {} column {}", at.line, at.column)
    });
    match field.path.as_str() {
        "" => format!("{cause}{place}"),
        path => format!("{path}: {cause}{place}"),
    }
}

/// serde's text with the known key that is nearest to an unknown one, and without a text that has
/// the wrong type: it may be a password that stands in the wrong place.
fn in_words(cause: &str) -> String {
    if let Some(names) = cause.strip_prefix("unknown field ") {
        return unknown_key(names);
    }
    let found = cause.strip_prefix("invalid type: string ");
    match found.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((_, expected)) => format!("invalid type: a text, expected {expected}"),
        None => cause.to_owned(),
    }
}

/// Turns "`a`, expected one of `b`, `c`" into an error about the unknown key `a`, with the key that was likely meant or
/// all known ones.
fn unknown_key(names: &str) -> String {
    let mut quoted = names.split('`').skip(1).step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    match spelling::nearest(unknown, known.iter().copied()) {
        Some(key) => format!("unknown key \"{unknown}\", did you mean \"{key}\"?"),
        None => format!("unknown key \"{unknown}\"; known are {}", known.join(", ")),
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
        assert_eq!(error, expected);
        assert!(read(b"{\"a\": [\"b\"]}").is_ok());
    }

    #[test]
    fn a_key_is_given_once() {
        let error = configuration::<BTreeMap<String, u8>>(b"{\"a\": 1,\n \"a\": 2}").unwrap_err();
        assert_eq!(
            error,
            "a: given a second time: remove one of the two at line 2 column 2"
        );
    }
}
