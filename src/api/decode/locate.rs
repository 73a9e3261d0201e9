//! Finds the line and column of a field in the text that the field was read from.
//!
//! Invariant: the functions work on a text that was read without errors before. So they do not validate the text, and
//! they do not recurse deeper than a text may nest (128 levels). On any other text they stop early instead of failing.

use std::collections::{HashMap, HashSet};

use super::place::{Cursor, FieldPlace, Place, Position, Syntax, Visit};
use super::yaml;
use crate::api::field::{item, push_key};

/// A key that occurs twice in one object.
pub(super) struct Repeated {
    /// Path of the key.
    pub(super) path: String,
    /// Position of the second occurrence.
    pub(super) at: Position,
}

/// Returns the repeated keys, at most `most` of them.
pub(super) fn repeated_keys(text: &str, syntax: Syntax, most: usize) -> Vec<Repeated> {
    let mut found = Vec::new();
    let mut cursor = Cursor::new(text);
    walk(text, syntax, &mut |_, path, place, again| {
        if again && found.len() < most {
            let (path, at) = (path.to_owned(), cursor.position(place));
            found.push(Repeated { path, at });
        }
    });
    found
}

/// Returns the positions of the fields, found in one walk. A missing field has the position of the nearest field
/// around it.
pub(super) fn positions(
    text: &str,
    syntax: Syntax,
    fields: &[FieldPlace],
) -> Vec<Option<Position>> {
    let around = |field: &FieldPlace| -> Vec<(usize, String)> {
        outwards(&field.path)
            .map(|path| (field.document, path.to_owned()))
            .collect()
    };
    let mut places: HashMap<(usize, String), Option<Place>> = fields
        .iter()
        .flat_map(around)
        .map(|field| (field, None))
        .collect();
    let mut key = (0, String::new());
    walk(text, syntax, &mut |document, path, place, _| {
        key.0 = document;
        key.1.clear();
        key.1.push_str(path);
        if let Some(slot) = places.get_mut(&key) {
            slot.get_or_insert(place);
        }
    });
    let nearest = |field| around(field).into_iter().find_map(|key| places[&key]);
    let mut cursor = Cursor::new(text);
    fields
        .iter()
        .map(|field| nearest(field).map(|place| cursor.position(place)))
        .collect()
}

/// Iterates over the path itself and then each path around it, from inside to outside. The last path is that of the
/// document.
fn outwards(path: &str) -> impl Iterator<Item = &str> {
    let paths = std::iter::successors(Some(path), |path| {
        path.rfind(['.', '[']).map(|end| &path[..end])
    });
    paths.filter(|path| !path.is_empty()).chain([""])
}

/// Calls `visit` for every document, every member (at its key) and every array element.
fn walk(text: &str, syntax: Syntax, visit: &mut Visit<'_>) {
    match syntax {
        Syntax::Yaml => yaml::walk(text, visit),
        Syntax::Json => Walk {
            text: text.as_bytes(),
            at: 0,
            path: String::new(),
            document: 0,
            visit,
        }
        .documents(),
    }
}

struct Walk<'t, 'w, 'v> {
    text: &'t [u8],
    at: usize,
    path: String,
    document: usize,
    visit: &'w mut Visit<'v>,
}

impl Walk<'_, '_, '_> {
    fn documents(&mut self) {
        while self.peek().is_some() {
            let start = self.at;
            (self.visit)(self.document, "", Place::Offset(start), false);
            self.value();
            if self.at == start {
                return;
            }
            self.document += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn value(&mut self) {
        match self.peek() {
            Some(b'{') => self.members(),
            Some(b'[') => self.elements(),
            Some(b'"') => self.skip_string(),
            _ => {
                while self
                    .text
                    .get(self.at)
                    .is_some_and(|b| !b",]} \n\r\t".contains(b))
                {
                    self.at += 1;
                }
            }
        }
    }

    fn members(&mut self) {
        self.at += 1;
        let mut seen = HashSet::new();
        let around = self.path.len();
        loop {
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'"') => {
                    let start = self.at;
                    self.skip_string();
                    let key: String =
                        serde_json::from_slice(&self.text[start..self.at]).unwrap_or_default();
                    push_key(&mut self.path, &key);
                    let again = !seen.insert(key);
                    (self.visit)(self.document, &self.path, Place::Offset(start), again);
                    if self.peek() == Some(b':') {
                        self.at += 1;
                    }
                    self.value();
                    self.path.truncate(around);
                }
                Some(b'}') => return self.at += 1,
                _ => return,
            }
        }
    }

    fn elements(&mut self) {
        self.at += 1;
        let around = self.path.len();
        let mut index = 0;
        loop {
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => return self.at += 1,
                Some(b'}' | b':') | None => return,
                Some(_) => {
                    let start = self.at;
                    self.path = item(&self.path, index);
                    (self.visit)(self.document, &self.path, Place::Offset(start), false);
                    self.value();
                    self.path.truncate(around);
                    index += 1;
                }
            }
        }
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.text.get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                break;
            }
        }
        self.at = self.at.min(self.text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n  \"metadata\": {\"labels\": {\"a.b/c\": \"ü]}\\\"\", \"d\": 1}},\n  \"spec\": {\"containers\": [{\"name\": \"x\"},\n    {\"name\": \"y\", \"na\\u006de\": \"z\"}]}\n}";

    #[track_caller]
    fn check(path: &str, line: usize, column: usize) {
        assert_eq!(place(path), Some(Position { line, column }), "{path}");
    }

    fn place(path: &str) -> Option<Position> {
        positions(TEXT, Syntax::Json, &[field(0, path)])[0]
    }

    fn field(document: usize, path: &str) -> FieldPlace {
        let path = path.to_owned();
        FieldPlace { document, path }
    }

    #[test]
    fn a_field_is_found_at_its_key_and_an_element_at_its_start() {
        check("metadata", 2, 3);
        check("metadata.labels[a.b/c]", 2, 27);
        check("metadata.labels[d]", 2, 45);
        check("spec.containers", 3, 12);
        check("spec.containers[0]", 3, 27);
        check("spec.containers[1].name", 4, 6);
    }

    #[test]
    fn a_missing_field_has_the_place_of_what_is_around_it() {
        check("spec.containers[1].image", 4, 5);
        check("spec.containers[7].image", 3, 12);
        check("spec.volumes", 3, 3);
        check("nothing", 1, 1);
    }

    #[test]
    fn a_repeated_key_is_found_through_its_escapes() {
        let found = repeated_keys(TEXT, Syntax::Json, 8);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].path.as_str(), found[0].at),
            (
                "spec.containers[1].name",
                Position {
                    line: 4,
                    column: 19
                }
            )
        );
        assert_eq!(
            repeated_keys(r#"{"a":1,"a":2,"a":3}"#, Syntax::Json, 1).len(),
            1
        );
    }

    #[test]
    fn each_document_has_its_own_places() {
        let json = "{\"a\": 1}\n {\"a\": 2}";
        let yaml = "a: 1\n---\n# none\n---\n a: 2\n";
        for (text, syntax, line) in [(json, Syntax::Json, 2), (yaml, Syntax::Yaml, 5)] {
            let found = positions(text, syntax, &[field(1, "a"), field(0, "a"), field(2, "a")]);
            let found: Vec<_> = found.iter().map(|at| at.map(|at| at.line)).collect();
            assert_eq!(found, [Some(line), Some(1), None], "{syntax:?}");
        }
    }

    #[test]
    fn fields_of_yaml_are_found_as_those_of_json_are() {
        let text = "x: &x\n  b: 1\nl:\n- name: ü\n  \"k\": [1, {b: 2}]\nz: *x\nx: 3\n";
        let at = |path: &str| {
            let found = positions(text, Syntax::Yaml, &[field(0, path)])[0];
            found.map(|at| (at.line, at.column))
        };
        assert_eq!(at("x"), Some((1, 1)));
        assert_eq!(at("x.b"), Some((2, 3)));
        assert_eq!(at("l[0].name"), Some((4, 3)));
        assert_eq!(at("l[0].k[1].b"), Some((5, 13)));
        assert_eq!(at("z.b"), Some((6, 1)), "at the alias");
        let repeated = repeated_keys(text, Syntax::Yaml, 8);
        assert_eq!(repeated.len(), 1);
        assert_eq!((repeated[0].path.as_str(), repeated[0].at.line), ("x", 7));
    }

    #[test]
    fn what_is_not_json_ends_the_walk() {
        for text in [
            "", "{", "[", "{\"", "{\"a\\", "[[}", "{\"a\"", "{]", "[:]", "[\"\\",
        ] {
            positions(text, Syntax::Json, &[field(0, "a")]);
        }
    }
}
