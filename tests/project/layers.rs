//! The architecture's wings and floors: a room knows only rooms on lower floors of its own wing and the wings below, so that
//! there is no circle between rooms; and no circle between the files of one room.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{Source, root, sources};

/// Where a room lies: the number of its wing from below, and of its floor in that wing.
type Place = (usize, usize);

/// The place of each room, by ARCHITECTURE.md: `pods::status` of a wing with rooms, `api` of a wing that is one room.
#[derive(Default)]
struct Rooms {
    places: BTreeMap<String, Place>,
    /// Wings with rooms.
    divided: BTreeSet<String>,
}

impl Rooms {
    /// Reads lines such as `wing net: proxy > network > netfilter services`, the highest wing first.
    fn read() -> Self {
        let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
        let lines: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("wing "))
            .collect();
        let mut rooms = Self::default();
        for (wing, line) in lines.iter().rev().enumerate() {
            let (name, floors) = line.split_once(':').unwrap_or((line, ""));
            let below = floors.split('>').rev().enumerate();
            for (floor, names) in below.filter(|_| !floors.is_empty()) {
                rooms.divided.insert(name.to_owned());
                for room in names.split_whitespace() {
                    rooms.add(format!("{name}::{room}"), (wing, floor));
                }
            }
            if floors.is_empty() {
                rooms.add(name.to_owned(), (wing, 0));
            }
        }
        rooms
    }

    fn add(&mut self, room: String, place: Place) {
        let old = self.places.insert(room.clone(), place);
        assert_eq!(old, None, "{room} is in two places");
    }

    /// A path from the root of the crate of `wing`, which may be a wing of its own or have several, from the root of all.
    fn absolute(&self, wing: &str, path: &str) -> String {
        let first = path.split("::").next().unwrap_or_default();
        let is_wing = self.divided.contains(first) || self.places.contains_key(first);
        match is_wing || ["cli", "daemon"].contains(&wing) {
            true => path.to_owned(),
            false => format!("{wing}::{path}"),
        }
    }

    /// The room that a path such as `engine::shims::state` leads into; None for a wing with rooms, by itself, and for items
    /// of the crate's root.
    fn of(&self, path: &str) -> Option<String> {
        let mut parts = path.split("::");
        let wing = parts.next()?;
        match self.divided.contains(wing) {
            true => parts.next().map(|room| format!("{wing}::{room}")),
            false => Some(wing.to_owned()).filter(|wing| self.places.contains_key(wing)),
        }
    }
}

/// `engine::shims::shim` of `engine/shims/shim.rs`; of a `mod.rs` the module it is of.
fn module(source: &Source) -> String {
    let path = source.path.trim_end_matches(".rs");
    path.strip_suffix("/mod").unwrap_or(path).replace('/', "::")
}

/// Every path that a file names, from the root of the crate: `a::b` for `crate::a::b`, and for `super::` and a child's name
/// what they stand for. Groups in braces are taken apart.
fn named(source: &Source) -> BTreeSet<String> {
    let own = module(source);
    let text = source.lines.join("\n");
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        add(&text[at + "crate::".len()..], "", &mut found);
    }
    for (at, _) in text.match_indices("super::") {
        if text[..at].ends_with("super::") {
            continue;
        }
        let mut rest = &text[at..];
        let mut base = own.as_str();
        while let Some(after) = rest.strip_prefix("super::") {
            rest = after;
            base = base.rsplit_once("::").map_or("", |(parent, _)| parent);
        }
        add(rest, base, &mut found);
    }
    found
}

/// The paths at the beginning of `text`, below `base`: one, or those in braces.
fn add(text: &str, base: &str, found: &mut BTreeSet<String>) {
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(text.len());
    let path = text[..end].trim_end_matches("::");
    let joined = match (base.is_empty(), path.is_empty()) {
        (true, _) => path.to_owned(),
        (false, true) => base.to_owned(),
        (false, false) => format!("{base}::{path}"),
    };
    if let Some(group) = text[end..]
        .strip_prefix('{')
        .filter(|_| text[..end].ends_with("::") || end == 0)
    {
        let mut depth = 0;
        let mut start = 0;
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    let item = group[start..at].trim();
                    if !item.is_empty() && item != "self" {
                        add(item, &joined, found);
                    }
                    start = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found.insert(joined);
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let source = Source {
        path: "a/b.rs".into(),
        lines: [
            "use crate::x::{self, y::Z, w::{P, Q}};",
            "use super::c::D;",
            "use super::super::e;",
            "let _ = crate::f::g();",
        ]
        .map(str::to_owned)
        .into(),
    };
    let expected = [
        "a::c::D", "e", "f::g", "x", "x::w", "x::w::P", "x::w::Q", "x::y::Z",
    ];
    assert_eq!(named(&source).into_iter().collect::<Vec<_>>(), expected);
}

/// The root of a crate is that of its wing, so a path there may leave the wing out.
#[test]
fn a_path_of_a_wing_is_read_from_the_root_of_all() {
    let rooms = Rooms::read();
    for (wing, path, expected) in [
        ("engine", "shims::state", "engine::shims::state"),
        ("engine", "engine::shims::state", "engine::shims::state"),
        ("engine", "base::clock", "base::clock"),
        ("cli", "daemon::settings", "daemon::settings"),
    ] {
        assert_eq!(rooms.absolute(wing, path), expected);
    }
}

#[test]
fn no_room_knows_one_on_its_floor_or_above() {
    let rooms = Rooms::read();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for source in sources() {
        if ["lib.rs", "main.rs"].contains(&source.path.as_str()) {
            continue;
        }
        let path = module(&source);
        let Some(own) = rooms.of(&path) else {
            // A wing that is a crate says how it and the wings below it are called.
            let names = |line: &str| {
                line.starts_with("use crate as ")
                    || line.contains("podprobe_")
                    || ["use {", "};"].contains(&line)
            };
            let declares = |line: &String| line.is_empty() || line.contains(" mod ") || names(line);
            let only_declares = source.lines.iter().all(declares);
            if !rooms.divided.contains(&path) || !only_declares {
                wrong.push(format!("{}: in no room of ARCHITECTURE.md", source.path));
            }
            continue;
        };
        seen.insert(own.clone());
        let Some(place) = rooms.places.get(&own) else {
            wrong.push(format!("{own} has no place in ARCHITECTURE.md"));
            continue;
        };
        let wing = path.split("::").next().unwrap_or_default();
        for path in named(&source) {
            let path = rooms.absolute(wing, &path);
            let other = rooms.of(&path).filter(|other| *other != own);
            let Some(known) = other.and_then(|other| rooms.places.get(&other)) else {
                continue;
            };
            let is_below = known.0 < place.0 || known.0 == place.0 && known.1 < place.1;
            if !is_below {
                wrong.push(format!(
                    "{}: {own} knows {path}, which is not below it",
                    source.path
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed: BTreeSet<String> = rooms.places.into_keys().collect();
    assert_eq!(
        listed, seen,
        "the rooms of ARCHITECTURE.md and those that are there"
    );
}

/// A file may know its parent and its children: the parent speaks for them.
#[test]
fn no_circle_between_files() {
    let rooms = Rooms::read();
    let sources = sources();
    let modules: BTreeSet<String> = sources.iter().map(module).collect();
    let nearest = |path: &str| {
        let mut path = path.to_owned();
        while !path.is_empty() && !modules.contains(&path) {
            path = path
                .rsplit_once("::")
                .map_or(String::new(), |(p, _)| p.to_owned());
        }
        path
    };
    let related = |a: &str, b: &str| {
        a == b || a.starts_with(&format!("{b}::")) || b.starts_with(&format!("{a}::"))
    };
    let mut knows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in &sources {
        let own = module(source);
        let wing = own.split("::").next().unwrap_or_default();
        let others = named(source).into_iter();
        let others = others.map(|p| nearest(&rooms.absolute(wing, &p)));
        let others: BTreeSet<String> = others
            .filter(|other| !other.is_empty() && !related(&own, other))
            .collect();
        knows.insert(own, others);
    }
    // Files that know nothing unfinished are taken away until none is left; what stays knows itself in the end.
    loop {
        let done: Vec<String> = knows
            .iter()
            .filter(|(_, others)| others.iter().all(|o| !knows.contains_key(o)))
            .map(|(own, _)| own.clone())
            .collect();
        if done.is_empty() {
            break;
        }
        for own in done {
            knows.remove(&own);
        }
    }
    let known_by_one: BTreeSet<&String> = knows.values().flatten().collect();
    let circle: Vec<String> = knows
        .iter()
        .filter(|(own, _)| known_by_one.contains(own))
        .map(|(own, others)| {
            let inside: Vec<_> = others.iter().filter(|o| knows.contains_key(*o)).collect();
            format!("{own} knows {inside:?}")
        })
        .collect();
    assert!(circle.is_empty(), "circles:\n{}", circle.join("\n"));
}
