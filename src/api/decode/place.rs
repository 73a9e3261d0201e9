//! Places in a file: of texts, of objects, of fields.

use crate::api::field::Step;

/// The syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Begins with `{` or `[`.
    Json,
    /// Anything else.
    Yaml,
}

/// A place in a text; both count from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

impl Position {
    /// The position of the byte at `offset`.
    pub(super) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
        }
    }
}

/// The place of a field while a text is walked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// A byte of the text.
    Offset(usize),
    /// A line and a column.
    At(Position),
}

impl Place {
    pub(super) fn position(self, text: &str) -> Position {
        match self {
            Self::Offset(offset) => Position::of(text, offset),
            Self::At(position) => position,
        }
    }
}

/// A field of one document of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FieldPlace {
    /// Counts the documents that are not empty, from 0.
    pub(super) document: usize,
    /// The path of the field.
    pub(super) path: String,
}

/// The place of an object in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    /// Counts the documents from 0.
    pub(super) document: usize,
    /// The path in the document: empty, or `items[n]`.
    pub(super) around: Vec<Step>,
}

/// Gets the number of the document, the path of the field, its place, and whether its object has
/// had this key before.
pub(super) type Visit<'v> = dyn FnMut(usize, &str, Place, bool) + 'v;
