//! Finds the line and column of a field in the text it was read from.
//!
//! Invariant: works on text that serde_json has accepted, so it neither validates nor recurses deeper than serde_json
//! lets any text nest (128); on anything else it stops early instead of failing.

use std::collections::{HashMap, HashSet};

use crate::api::field::{item, push_key};

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

/// A key that occurs twice in one object.
pub(super) struct Repeated {
    /// The path of the field.
    pub(super) path: String,
    /// The position of the second one.
    pub(super) at: Position,
}

/// Every repeated key, at most `most`.
pub(super) fn repeated_keys(text: &str, most: usize) -> Vec<Repeated> {
    let mut found = Vec::new();
    walk(text, &mut |path, offset, again| {
        if again && found.len() < most {
            found.push((path.to_owned(), offset));
        }
    });
    found
        .into_iter()
        .map(|(path, offset)| Repeated {
            path,
            at: Position::of(text, offset),
        })
        .collect()
}

/// The positions of the fields, found in one walk. A missing field has the position of the nearest
/// field around it.
pub(super) fn positions(text: &str, paths: &[&str]) -> Vec<Option<Position>> {
    let mut offsets: HashMap<&str, Option<usize>> = paths
        .iter()
        .flat_map(|path| outwards(path))
        .map(|path| (path, None))
        .collect();
    walk(text, &mut |path, offset, _| {
        if let Some(slot) = offsets.get_mut(path) {
            slot.get_or_insert(offset);
        }
    });
    let nearest = |path: &&str| outwards(path).find_map(|path| offsets[path]);
    paths
        .iter()
        .map(|path| nearest(path).map(|offset| Position::of(text, offset)))
        .collect()
}

/// The path itself, then each path around it, inner first.
fn outwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| {
        path.rfind(['.', '[']).map(|end| &path[..end])
    })
}

/// Calls `visit(path, offset, again)` for every member (at its key) and every array element.
fn walk(text: &str, visit: &mut dyn FnMut(&str, usize, bool)) {
    Walk {
        text: text.as_bytes(),
        at: 0,
        path: String::new(),
        visit,
    }
    .value();
}

struct Walk<'t, 'v> {
    text: &'t [u8],
    at: usize,
    path: String,
    visit: &'v mut dyn FnMut(&str, usize, bool),
}

impl Walk<'_, '_> {
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
                    (self.visit)(&self.path, start, !seen.insert(key));
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
                    (self.visit)(&self.path, start, false);
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
        assert_eq!(
            positions(TEXT, &[path]),
            [Some(Position { line, column })],
            "{path}"
        );
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
        assert_eq!(positions(TEXT, &["nothing", "spec"])[0], None);
    }

    #[test]
    fn a_repeated_key_is_found_through_its_escapes() {
        let found = repeated_keys(TEXT, 8);
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
        assert_eq!(repeated_keys(r#"{"a":1,"a":2,"a":3}"#, 1).len(), 1);
    }

    #[test]
    fn what_is_not_json_ends_the_walk() {
        for text in [
            "", "{", "[", "{\"", "{\"a\\", "[[}", "{\"a\"", "{]", "[:]", "[\"\\",
        ] {
            positions(text, &["a"]);
        }
    }
}
