//! The architecture's floors: a module knows only modules on lower floors, so that there is no circle between modules; and no
//! circle between the files of one module.

#[path = "support/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use sources::{Source, sources};

/// Modules that have a floor of their own although they lie in another module.
const NESTED: [&str; 1] = ["runtime::shims"];

/// The floor of each module, by ARCHITECTURE.md.
fn floors() -> BTreeMap<String, usize> {
    let text =
        std::fs::read_to_string(sources::root().join("ARCHITECTURE.md")).expect("it is there");
    let mut found = BTreeMap::new();
    for line in text.lines().filter_map(|l| l.strip_prefix("floor ")) {
        let (floor, modules) = line.split_once(": ").expect("floor N: modules");
        for module in modules.split(' ') {
            let old = found.insert(module.to_owned(), floor.parse().expect("a number"));
            assert_eq!(old, None, "{module} is on two floors");
        }
    }
    found
}

/// `runtime::shims::shim` of `runtime/shims/shim.rs`; of a `mod.rs` the module it is of.
fn module(source: &Source) -> String {
    let path = source.path.trim_end_matches(".rs");
    path.strip_suffix("/mod").unwrap_or(path).replace('/', "::")
}

/// The module on the list that a path such as `runtime::shims::state` belongs to.
fn module_of(path: &str) -> &str {
    let nested = NESTED
        .iter()
        .find(|n| path == **n || path.starts_with(&format!("{n}::")));
    nested
        .copied()
        .unwrap_or_else(|| path.split("::").next().unwrap_or(path))
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

#[test]
fn no_module_knows_one_on_its_floor_or_above() {
    let floor = floors();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for source in sources() {
        if ["lib.rs", "main.rs"].contains(&source.path.as_str()) {
            continue;
        }
        let path = module(&source);
        let own = module_of(&path);
        seen.insert(own.to_owned());
        let Some(own_floor) = floor.get(own) else {
            wrong.push(format!("{own} has no floor in ARCHITECTURE.md"));
            continue;
        };
        for path in named(&source) {
            let other = module_of(&path);
            if other == own {
                continue;
            }
            match floor.get(other) {
                Some(other_floor) if other_floor < own_floor => {}
                Some(_) => wrong.push(format!(
                    "{}: {own} (floor {own_floor}) knows {path}, which is on floor {}",
                    source.path,
                    floor.get(other).unwrap_or(&0)
                )),
                // A macro or an item of the crate's root.
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed: BTreeSet<String> = floor.into_keys().collect();
    assert_eq!(
        listed, seen,
        "the floors of ARCHITECTURE.md and the modules there are"
    );
}

/// A file may know its parent and its children: the parent speaks for them.
#[test]
fn no_circle_between_files() {
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
        let others = named(source).into_iter().map(|p| nearest(&p));
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
