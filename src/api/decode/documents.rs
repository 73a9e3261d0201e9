//! Reads the documents of a file in JSON or YAML.

use std::path::Path;

use serde_json::Value;

use super::error::DecodeError;
use super::place::{Position, Syntax};
use super::yaml;

/// Size in bytes from which a file is refused: 10 MiB.
pub const SIZE_LIMIT: usize = 10 << 20;

/// Returns the bytes as text, without a byte order mark.
pub(super) fn text<'b>(bytes: &'b [u8], file: &Path) -> Result<&'b str, DecodeError> {
    let fail = |text: String| DecodeError::one(file, None, text);
    if bytes.len() >= SIZE_LIMIT {
        return Err(fail(format!(
            "{} bytes are too many: a pod file must be smaller than 10 MiB ({SIZE_LIMIT} bytes)",
            bytes.len()
        )));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let good = std::str::from_utf8(&bytes[..at]).unwrap_or_default();
        let text = format!(
            "byte 0x{:02x} is not UTF-8: save the file as UTF-8",
            bytes.get(at).copied().unwrap_or_default()
        );
        DecodeError::one(file, Some(Position::of(good, at)), text)
    })?;
    Ok(text)
}

/// Returns the documents of the text, except empty ones. At least one document must be there.
pub(super) fn parse(text: &str, file: &Path) -> Result<(Syntax, Vec<Value>), DecodeError> {
    let (syntax, documents) = values(text, file)?;
    match documents.is_empty() {
        true => Err(DecodeError::one(
            file,
            None,
            "the file is empty: expected a v1 Pod",
        )),
        false => Ok((syntax, documents)),
    }
}

/// Returns the documents of the text, except empty ones.
pub(super) fn values(text: &str, file: &Path) -> Result<(Syntax, Vec<Value>), DecodeError> {
    let (syntax, documents) = documents(text, file)?;
    // A document with aliases can nest deeper than its text does.
    if documents.iter().any(|d| nests_deeper(d, yaml::DEEPEST)) {
        let text = format!("nested deeper than {} levels: no object is", yaml::DEEPEST);
        return Err(DecodeError::one(file, None, text));
    }
    Ok((syntax, documents))
}

fn documents(text: &str, file: &Path) -> Result<(Syntax, Vec<Value>), DecodeError> {
    let begins_as_json = text.trim_start().starts_with(['{', '[']);
    let json = begins_as_json.then(|| json(text));
    match json {
        Some(Ok(documents)) => Ok((Syntax::Json, documents)),
        Some(Err(e)) if !separated(text) => {
            Err(DecodeError::one(file, Some(e.at), e.cause.to_string()))
        }
        // Text with `---` between JSON documents is YAML, and JSON is a subset of YAML.
        Some(Err(_)) | None => match yaml::documents(text) {
            Ok(documents) => Ok((Syntax::Yaml, documents)),
            Err(e) => Err(DecodeError::one(file, Some(e.at), e.to_string())),
        },
    }
}

fn nests_deeper(value: &Value, levels: usize) -> bool {
    let inside = |member| levels == 0 || nests_deeper(member, levels - 1);
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(inside),
        Value::Object(map) => levels == 0 || map.values().any(inside),
        _ => false,
    }
}

/// True if a line of the text separates two YAML documents.
fn separated(text: &str) -> bool {
    text.lines().any(|line| line.trim_end() == "---")
}

struct JsonError {
    at: Position,
    cause: JsonCause,
}

/// The reasons for which podprobe cannot read a text as JSON.
#[derive(Debug, thiserror::Error)]
enum JsonCause {
    #[error("a number has at most {MOST_DIGITS} digits, not {0}")]
    LongNumber(usize),
    #[error(
        "not JSON: the text ends in the middle: a closing }}, ] or \" is missing, or the file is not yet written to its end"
    )]
    CutOff,
    /// The parser refuses the text.
    #[error("not JSON: {said}{near}{hint}")]
    Syntax {
        /// Words of the parser, without the position.
        said: String,
        /// Characters of the text at the position of the error.
        near: String,
        /// Advice on a known mistake; empty for any other mistake.
        hint: &'static str,
    },
}

/// Largest number of digits in a number.
const MOST_DIGITS: usize = 400;

/// Returns the offset and the length of the first number that is too long. The parser's time for a number grows with
/// the square of the number of digits, so a number that is too long is refused before the text is parsed.
fn long_number(text: &str) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let (mut at, mut in_text) = (0, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => in_text = !in_text,
            b'\\' if in_text => at += 1,
            b'0'..=b'9' if !in_text => {
                let rest = bytes[at..].iter();
                let is_part = |b: &&u8| b.is_ascii_digit() || b".eE+-".contains(b);
                let length = rest.take_while(is_part).count();
                if length > MOST_DIGITS {
                    return Some((at, length));
                }
                at += length;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn json(text: &str) -> Result<Vec<Value>, JsonError> {
    if let Some((offset, length)) = long_number(text) {
        return Err(JsonError {
            at: Position::of(text, offset),
            cause: JsonCause::LongNumber(length),
        });
    }
    let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let documents: Result<Vec<Value>, serde_json::Error> = documents.collect();
    documents.map_err(|error| {
        let offset = offset_of(text, error.line(), error.column());
        JsonError {
            at: Position::of(text, offset),
            cause: syntax_error(text, offset, &error),
        }
    })
}

/// Returns the byte offset of an error of serde_json. serde_json counts columns in bytes, and from 0 at the start of a
/// line.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    let mut offset = (start + column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

fn syntax_error(text: &str, offset: usize, error: &serde_json::Error) -> JsonCause {
    let rest = &text[offset..];
    if error.is_eof() {
        return JsonCause::CutOff;
    }
    let said = error.to_string();
    let said = said
        .rsplit_once(" at line ")
        .map_or(said.as_str(), |(said, _)| said);
    let near = near(rest);
    let near = if near.trim().is_empty() {
        String::new()
    } else {
        format!(", at `{}`", near.trim_end())
    };
    JsonCause::Syntax {
        said: said.to_owned(),
        near,
        hint: syntax_hint(rest),
    }
}

/// Returns the first 24 characters of `rest`, but no characters of the next line. The characters help a person to find
/// the place.
fn near(rest: &str) -> String {
    let line = rest.lines().next().unwrap_or_default();
    line.chars().take(24).collect()
}

fn syntax_hint(rest: &str) -> &'static str {
    match rest.as_bytes() {
        [b'/', b'/' | b'*', ..] | [b'#', ..] => ": JSON has no comments",
        [b'\'', ..] => ": JSON has its texts in double quotes",
        _ => "",
    }
}
