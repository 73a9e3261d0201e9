//! Reads the configuration of the daemon: one JSON object of a type that knows all its keys.

use serde::de::DeserializeOwned;

use super::locate;
use super::place::{FieldPlace, Syntax};
use super::tracked;
use crate::api::field::render;

/// Reads a configuration.
///
/// # Errors
/// One sentence: the key, what is wrong with it, and its line and column. The text is not JSON, a
/// key is given twice, or the type refuses a key or a value.
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
