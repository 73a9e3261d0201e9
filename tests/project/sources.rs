//! The production code of `src`: every line but comments and what is only built for tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the project.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A source file.
pub(crate) struct Source {
    /// Below `src`, such as `engine/shims/shim.rs`.
    pub(crate) path: String,
    /// Its production lines, without comments.
    pub(crate) lines: Vec<String>,
}

/// Every file with production code.
pub(crate) fn sources() -> Vec<Source> {
    let src = root().join("src");
    let mut files = Vec::new();
    walk(&src, &mut files);
    files.retain(|path| !path.ends_with("Cargo.toml"));
    files.sort();
    let read: Vec<(PathBuf, Code)> = files
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a source is text");
            let code = split(&text);
            (path, code)
        })
        .collect();
    let only_for_tests: BTreeSet<PathBuf> = read
        .iter()
        .flat_map(|(path, code)| {
            code.test_modules
                .iter()
                .flat_map(|module| files_of(path, module))
        })
        .collect();
    let found: Vec<Source> = read
        .into_iter()
        // Modules of such a module are in its directory.
        .filter(|(path, _)| {
            !only_for_tests.iter().any(|test| {
                let dir = match test.ends_with("mod.rs") {
                    true => test.parent().expect("a file is in a directory").to_owned(),
                    false => test.with_extension(""),
                };
                path == test || path.starts_with(dir)
            })
        })
        .map(|(path, code)| Source {
            path: path
                .strip_prefix(&src)
                .expect("below src")
                .display()
                .to_string(),
            lines: code.lines,
        })
        .collect();
    assert!(
        found.len() > 100,
        "only {} sources: is this looking in the right place?",
        found.len()
    );
    found
}

/// Every file below a directory.
pub(crate) fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        match path.is_dir() {
            true => walk(&path, found),
            false => found.push(path),
        }
    }
}

/// A file, taken apart.
#[derive(Debug, Default, PartialEq)]
struct Code {
    /// Production lines.
    lines: Vec<String>,
    /// Modules that are built for tests only and lie in files of their own: their names, or their `#[path]`.
    test_modules: Vec<String>,
}

/// Leaves out comments and every item under `#[cfg(test)]`. An item ends with its `;`, or with the brace that stands as far
/// to the right as the attribute: rustfmt sees to it.
fn split(text: &str) -> Code {
    let mut code = Code::default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("//") {
            continue;
        }
        if trimmed != "#[cfg(test)]" {
            code.lines.push(line.to_owned());
            continue;
        }
        let indent = &line[..line.len() - trimmed.len()];
        let mut path = None;
        let mut item = lines.next().unwrap_or_default();
        while item.trim_start().starts_with("#[") {
            path = item.split("#[path = \"").nth(1).or(path);
            item = lines.next().unwrap_or_default();
        }
        if let Some(name) = item
            .trim_end_matches(';')
            .split("mod ")
            .nth(1)
            .filter(|_| item.ends_with(';'))
        {
            let named = path.and_then(|p| p.split('"').next());
            code.test_modules
                .push(named.map_or_else(|| name.to_owned(), str::to_owned));
        }
        let end = format!("{indent}}}");
        let one_line = item.ends_with(';') || item.ends_with('}');
        if !one_line {
            for rest in lines.by_ref() {
                if rest.starts_with(&end) {
                    break;
                }
            }
        }
    }
    code
}

/// Where the module of that name, declared in `file`, may lie.
fn files_of(file: &Path, module: &str) -> Vec<PathBuf> {
    let dir = file.parent().expect("a file is in a directory");
    if module.ends_with(".rs") {
        return vec![dir.join(module)];
    }
    let own = match file.file_stem().and_then(|s| s.to_str()) {
        Some("mod" | "lib" | "main") => dir.to_owned(),
        stem => dir.join(stem.unwrap_or_default()),
    };
    vec![
        own.join(format!("{module}.rs")),
        own.join(module).join("mod.rs"),
    ]
}

#[test]
fn only_what_is_built_for_tests_is_left_out() {
    let text = "use a;\n#[cfg(test)]\nfn helper() {\n    x();\n}\nfn kept() {}\n    #[cfg(test)]\n    fn inner() {\n        y();\n    }\n\
                // a comment\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\n#[path = \"own_tests.rs\"]\nmod tests;\nfn last() {}\n";
    let code = split(text);
    assert_eq!(code.lines, ["use a;", "fn kept() {}", "fn last() {}"]);
    assert_eq!(code.test_modules, ["tests", "own_tests.rs"]);
}
