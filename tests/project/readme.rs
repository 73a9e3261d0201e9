//! The manual says what the code does: its table of configuration keys is made from the code, and it names every field that
//! refuses a pod. README.md stays short, and no link of a page leads nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use podprobe::daemon::settings::AT_ONCE;
use serde_json::Value;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The section under that heading.
fn section(page: &str, heading: &str) -> String {
    let heading = format!("\n## {heading}\n");
    let (_, after) = page.split_once(&heading).expect("the section is there");
    after.split("\n## ").next().unwrap_or_default().to_owned()
}

/// Key and meaning of each field of `Settings`: its doc comment is "`key`: meaning.".
fn meanings(source: &str) -> Vec<(String, String)> {
    let (_, fields) = source
        .split_once("pub struct Settings {\n")
        .expect("Settings is there");
    let fields = fields.split("\n}\n").next().unwrap_or_default();
    let mut comment = String::new();
    let mut found = Vec::new();
    for line in fields.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            comment += words;
        } else if line.starts_with("pub ") && !comment.starts_with(" `") {
            // No key; one that has lost its comment is missed below.
            comment.clear();
        } else if line.starts_with("pub ") {
            let (key, meaning) = comment
                .trim()
                .split_once(": ")
                .unwrap_or_else(|| panic!("{line} has no comment of the form \"`key`: meaning\""));
            let meaning = meaning.trim_end_matches('.').to_owned();
            found.push((key.trim_matches('`').to_owned(), meaning));
            comment.clear();
        }
    }
    found
}

/// The defaults of config/config.json, which a test of src/daemon/settings/mod.rs compares with those of the code.
fn defaults(value: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    for (key, value) in value.as_object().expect("an object") {
        let path = [path, key].concat();
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                defaults(value, &format!("{path}."), found)
            }
            _ => drop(found.insert(path, value.to_string())),
        }
    }
}

#[test]
fn the_table_of_keys_is_made_from_the_code() {
    let shipped = serde_json::from_str(&read("config/config.json")).expect("JSON");
    let mut defaults_by_key = BTreeMap::new();
    defaults(&shipped, "", &mut defaults_by_key);
    let rows: Vec<String> = meanings(&read("src/daemon/settings/mod.rs"))
        .into_iter()
        .map(|(key, meaning)| {
            let default = defaults_by_key
                .remove(&key)
                .unwrap_or_else(|| panic!("config/config.json has no {key}"));
            let change = match AT_ONCE.contains(&key.as_str()) {
                true => "at once",
                false => "restart",
            };
            format!("| `{key}` | `{default}` | {change} | {meaning} |")
        })
        .collect();
    assert!(
        defaults_by_key.is_empty(),
        "no field has {defaults_by_key:?}"
    );
    let text = section(&read("docs/manual/configuration.md"), "Keys");
    let there: Vec<&str> = text.lines().filter(|l| l.starts_with("| `")).collect();
    assert!(
        there == rows,
        "the rows of docs/manual/configuration.md are to be\n{}",
        rows.join("\n")
    );
}

/// The fields with a rule that may refuse a pod, but for the many types of volumes.
#[test]
fn every_field_that_refuses_a_pod_is_named() {
    let rules = read("src/api/support/rules.rs");
    let text = section(&read("docs/manual/what-works.md"), "What does not work");
    let mut seen = 0;
    for list in rules
        .split("\nconst ")
        .filter(|list| !list.starts_with("VOLUME:"))
    {
        let list = list.split("\n];").next().unwrap_or_default();
        let words: Vec<&str> = list.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            let refuses = ["Rule::Refuse(", "Rule::Only(", "Rule::Source("];
            if !refuses.iter().any(|rule| word.starts_with(rule)) {
                continue;
            }
            let before = at.checked_sub(1).map_or("", |at| words[at]);
            let Some(name) = before.rsplit('"').nth(1) else {
                continue;
            };
            seen += 1;
            assert!(
                text.contains(&format!("`{name}`")),
                "docs/manual/what-works.md leaves out {name}"
            );
        }
    }
    assert!(
        seen > 4,
        "only {seen} fields: has the form of the table changed?"
    );
}

/// The pages that lie right below a directory, each with its path; "" is the top.
fn pages(dir: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(root.join(dir)).unwrap_or_else(|e| panic!("{dir}: {e}"));
    let names = entries.map(|e| e.expect("an entry").file_name().into_string());
    let names = names.map(|name| name.expect("UTF-8"));
    names
        .filter(|name| name.ends_with(".md"))
        .map(|name| match dir {
            "" => name,
            _ => format!("{dir}/{name}"),
        })
        .collect()
}

/// The lines of a page outside of its blocks of code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with("    ")
    })
}

/// The anchors of a page: its headings, as GitHub turns them into words of a URL.
fn anchors(page: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    let headings = prose(page).filter(|line| line.starts_with('#'));
    headings.map(anchor).collect()
}

/// The targets of a page's links; what is between backticks is no link.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(page) {
        let text: String = line.split('`').step_by(2).collect();
        let targets = text.split("](").skip(1).filter_map(|t| t.split_once(')'));
        found.extend(targets.map(|(target, _)| target.to_owned()));
    }
    found
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for from in ["", "docs", "docs/manual"].map(pages).concat() {
        let text = read(&from);
        for link in links(&text).iter().filter(|l| !l.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = match file {
                "" => root.join(&from),
                file => root.join(&from).with_file_name(file),
            };
            let has_anchor =
                || fs::read_to_string(&to).is_ok_and(|page| anchors(&page).contains(anchor));
            if !to.exists() || !anchor.is_empty() && !has_anchor() {
                wrong.push(format!("{from}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Who comes for the first time reads all of it; the rest is in the pages that it leads to.
#[test]
fn the_readme_is_short_and_leads_to_every_page() {
    let text = read("README.md");
    let lines = text.lines().count();
    assert!(lines <= 200, "README.md has {lines} lines");
    for page in ["docs", "docs/manual"].map(pages).concat() {
        assert!(
            text.contains(&format!("({page})")),
            "README.md leaves out {page}"
        );
    }
}

/// CONTRIBUTING.md shows good sentences of the house, each with its file. They are quoted as they stand there.
#[test]
fn the_sentences_that_contributing_quotes_are_in_their_files() {
    let text = read("CONTRIBUTING.md");
    let (_, words) = text.split_once("\n### Words\n").expect("it is there");
    let words = words.split("\n### ").next().unwrap_or_default();
    let mut found = 0;
    for row in words.lines().filter(|line| line.contains("`src/")) {
        let mut parts = row.split('`');
        let file = parts.nth(1).expect("a row names its file");
        let quote = row.split('"').nth(1).expect("a row has a quote");
        let source = read(file);
        let lines = source
            .lines()
            .map(|line| line.trim_start().trim_start_matches('/').trim());
        // A long text of the code goes on after a backslash.
        let one_line = lines.collect::<Vec<_>>().join(" ").replace("\\ ", "");
        // An error text has its values in braces.
        let is_there = match row.contains("error text") {
            true => quote
                .split(char::is_numeric)
                .all(|piece| one_line.contains(piece.trim())),
            false => one_line.contains(quote),
        };
        assert!(is_there, "{file} has no {quote:?}");
        found += 1;
    }
    assert!(found >= 6, "only {found} quotes");
}
