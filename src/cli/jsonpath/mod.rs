//! kubectl's dialect of JSONPath: `{.items[*].metadata.name}`, `{range …}…{end}`, filters, slices and unions.
//!
//! Invariants: pure. A template has at most [`MAX_TEMPLATE`] bytes, nests at most [`MAX_DEPTH`] deep and finds at most
//! [`MAX_RESULTS`] values, so that no template takes the node's memory. What is missing is no error and gives nothing, as
//! with kubectl.

mod eval;
mod parse;

use std::fmt;

pub(in crate::cli) use self::eval::order;
use serde_json::Value;

/// Longest template in bytes.
pub const MAX_TEMPLATE: usize = 4096;
/// Deepest nesting of ranges, unions and filters.
pub const MAX_DEPTH: usize = 16;
/// Most values that a path may find.
pub const MAX_RESULTS: usize = 100_000;
/// Most bytes of the text that a template makes: 64 MiB.
const MAX_TEXT: usize = 64 << 20;

/// A template is wrong, or does not fit what it is applied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPathError {
    /// Place in the template, in characters from 1.
    at: usize,
    why: String,
}

impl fmt::Display for JsonPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "jsonpath, character {}: {}", self.at, self.why)
    }
}

impl std::error::Error for JsonPathError {}

/// Text and paths in braces.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Node>);

/// A single path, such as a custom column's.
#[derive(Clone, Debug, PartialEq)]
pub struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Text(String),
    Path(Path),
    /// Nodes that are repeated for each value that the path finds.
    Range(Path, Vec<Node>),
}

#[derive(Clone, Debug, PartialEq)]
struct Step {
    /// Place of the step in the template, in characters from 1.
    at: usize,
    kind: StepKind,
}

#[derive(Clone, Debug, PartialEq)]
enum StepKind {
    Field(String),
    /// Everything in an object or a list.
    Wildcard,
    /// The value and all objects and lists in it.
    Recursive,
    Index(i64),
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        step: usize,
    },
    Union(Vec<Path>),
    /// The elements of a list for which the filter holds.
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
    /// Reads a template.
    ///
    /// # Errors
    /// Returns a `JsonPathError` that says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        parse::template(text).map(Self)
    }

    /// Returns the text that the template makes of a value.
    ///
    /// # Errors
    /// Returns a `JsonPathError` if an index lies outside of its list, if a filter meets no list, or if a path finds
    /// more than [`MAX_RESULTS`] values.
    pub fn render(&self, value: &Value) -> Result<String, JsonPathError> {
        let mut out = String::new();
        eval::render(&self.0, value, &mut out)?;
        Ok(out)
    }
}

impl Path {
    /// Reads a path; braces and the first dot may be left out.
    ///
    /// # Errors
    /// Returns a `JsonPathError` that says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        parse::path(text)
    }

    /// Returns the values that the path finds in a value, in order.
    ///
    /// # Errors
    /// See [`Template::render`].
    pub fn find<'a>(&'a self, value: &'a Value) -> Result<Vec<&'a Value>, JsonPathError> {
        eval::find(self, value)
    }
}

/// A value as kubectl prints it: a text without quotes, an object or a list as JSON in one line.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
