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

/// Reads a text once for many positions, if these are asked for in their order.
pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
    position: Position,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let position = Position { line: 1, column: 1 };
        Self {
            text,
            at: 0,
            position,
        }
    }

    /// The position of a place.
    pub(super) fn position(&mut self, place: Place) -> Position {
        match place {
            Place::Offset(offset) => self.at(offset),
            Place::At(position) => position,
        }
    }

    fn at(&mut self, offset: usize) -> Position {
        if offset < self.at {
            *self = Self::new(self.text);
        }
        let Some(passed) = self.text.get(self.at..offset) else {
            return Position::of(self.text, offset);
        };
        let after = Position::of(passed, passed.len());
        if after.line > 1 {
            self.position.line += after.line - 1;
            self.position.column = after.column;
        } else {
            self.position.column += after.column - 1;
        }
        self.at = offset;
        self.position
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

/// A field of one document of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FieldPlace {
    /// Number of the document in the file, from 0; empty documents do not count.
    pub(super) document: usize,
    /// The path of the field.
    pub(super) path: String,
}

/// The place of an object in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    /// Number of the document in the file, from 0.
    pub(super) document: usize,
    /// The path in the document: empty, or `items[n]`.
    pub(super) around: Vec<Step>,
}

/// Gets the number of the document, the path of the field, its place, and whether its object has
/// had this key before.
pub(super) type Visit<'v> = dyn FnMut(usize, &str, Place, bool) + 'v;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_finds_what_a_look_from_the_start_finds_in_any_order() {
        let text = "ab\nü\n\n  x y\nz";
        let offsets: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let mut cursor = Cursor::new(text);
        for at in offsets.iter().chain(offsets.iter().rev()) {
            let found = cursor.position(Place::Offset(*at));
            assert_eq!(found, Position::of(text, *at), "{at}");
        }
        let inside = text.find('ü').unwrap() + 1;
        let beyond = [inside, text.len(), text.len() + 9];
        for at in beyond {
            let found = cursor.position(Place::Offset(at));
            assert_eq!(found, Position::of(text, at), "{at}");
        }
    }
}
