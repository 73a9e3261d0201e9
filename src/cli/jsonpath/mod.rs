//! kubectl's dialect of JSONPath: `{.items[*].metadata.name}`, `{range …}…{end}`, filters, slices and unions.
//!
//! Invariants: pure. A template has at most [`MAX_TEMPLATE`] bytes, nests at most [`MAX_DEPTH`] levels and finds
//! at most [`MAX_RESULTS`] values, so no template uses up the node's memory. As with kubectl, a missing field is
//! no error and yields nothing.

mod eval;
mod parse;

use std::fmt;

pub(in crate::cli) use self::eval::order;
use serde_json::Value;

/// The greatest length of a template, in bytes.
pub const MAX_TEMPLATE: usize = 4096;
/// The greatest depth of nested ranges, unions and filters.
pub const MAX_DEPTH: usize = 16;
/// The largest number of values that a path may find.
pub const MAX_RESULTS: usize = 100_000;
/// The greatest size of a rendered text in bytes: 64 MiB.
const MAX_TEXT: usize = 64 << 20;

/// An error in a template, or in its application to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPathError {
    /// Position in the template, counted in characters from 1.
    at: usize,
    why: String,
}

impl fmt::Display for JsonPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "jsonpath, character {}: {}", self.at, self.why)
    }
}

impl std::error::Error for JsonPathError {}

/// A template: text with paths in braces.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Node>);

/// A single path, such as the path of a custom column.
#[derive(Clone, Debug, PartialEq)]
pub struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Text(String),
    Path(Path),
    /// The body of a `{range}`, which is rendered for each value that the path finds.
    Range(Path, Vec<Node>),
}

#[derive(Clone, Debug, PartialEq)]
struct Step {
    /// Position of the step in the template, counted in characters from 1.
    at: usize,
    kind: StepKind,
}

#[derive(Clone, Debug, PartialEq)]
enum StepKind {
    Field(String),
    /// All elements of a list, or all values of an object.
    Wildcard,
    /// The value itself and all objects and lists in it, at any depth.
    Recursive,
    Index(i64),
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        step: usize,
    },
    Union(Vec<Path>),
    /// The elements of a list that match the filter.
    Filter(Box<Filter>),
}

#[derive(Clone, Debug, PartialEq)]
enum Filter {
    Exists(Path),
    Compare(Operand, Operator, Operand),
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(Path),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    Less,
    Greater,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Returns a [`JsonPathError`] that says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        parse::template(text).map(Self)
    }

    /// Renders the template with a value, and returns the text.
    ///
    /// # Errors
    /// Returns a [`JsonPathError`] if an index is outside of its list, if a filter is applied to something
    /// other than a list, if a path finds more than [`MAX_RESULTS`] values, or if the text is too long.
    pub fn render(&self, value: &Value) -> Result<String, JsonPathError> {
        let mut out = String::new();
        eval::render(&self.0, value, &mut out)?;
        Ok(out)
    }
}

impl Path {
    /// Parses a path. The braces and the first dot may be left out.
    ///
    /// # Errors
    /// Returns a [`JsonPathError`] that says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        parse::path(text)
    }

    /// Returns all values that the path finds, in order.
    ///
    /// # Errors
    /// Returns a [`JsonPathError`] in the same cases as [`Template::render`].
    pub fn find<'a>(&'a self, value: &'a Value) -> Result<Vec<&'a Value>, JsonPathError> {
        eval::find(self, value)
    }
}

/// Returns a value as kubectl prints it: a string without quotes, an object or a list as JSON on one line.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
