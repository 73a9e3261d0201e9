//! Places of texts, objects and fields in a file.

use crate::api::field::Step;

/// The syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// JSON: the text begins with `{` or `[`.
    Json,
    /// YAML: the text begins with any other character.
    Yaml,
}

/// A position in a text. Line and column count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the line.
    pub line: usize,
    /// Number of the character in the line.
    pub column: usize,
}

impl Position {
    /// Returns the position of the byte at `offset`.
    pub(super) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
        }
    }
}

/// Finds many positions in one pass over a text. The positions must be asked for in ascending order.
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

    /// Returns the line and column of a place.
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

/// The place of a field, as the walk over a text finds it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// Offset of a byte in the text.
    Offset(usize),
    /// Line and column in the text.
    At(Position),
}

/// The place of a field: a document of a file, and the path of the field in the document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FieldPlace {
    /// Index of the document in the file; empty documents do not count.
    pub(super) document: usize,
    /// Path of the field.
    pub(super) path: String,
}

/// The place of an object in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    /// Index of the document in the file.
    pub(super) document: usize,
    /// Path of the object in the document. The path is empty if the object is the document itself, and `items[n]` if
    /// the object is an item of a list.
    pub(super) around: Vec<Step>,
}

/// Callback of a walk over a text. The callback gets the index of the document, the path of the field, the place of
/// the field, and true if the field's key occurred before in the same object.
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
