//! README.md says what the code does: its table of configuration keys is made from the code, and it names every field that
//! refuses a pod.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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

/// The defaults of config/config.json, which a test of src/settings.rs compares with those of the code.
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
    let rows: Vec<String> = meanings(&read("src/settings.rs"))
        .into_iter()
        .map(|(key, meaning)| {
            let default = defaults_by_key
                .remove(&key)
                .unwrap_or_else(|| panic!("config/config.json has no {key}"));
            format!("| `{key}` | `{default}` | {meaning} |")
        })
        .collect();
    assert!(
        defaults_by_key.is_empty(),
        "no field has {defaults_by_key:?}"
    );
    let text = section(&read("README.md"), "Configuration");
    let there: Vec<&str> = text.lines().filter(|l| l.starts_with("| `")).collect();
    assert!(
        there == rows,
        "the rows of README.md are to be\n{}",
        rows.join("\n")
    );
}

/// The fields with a rule that may refuse a pod, but for the many types of volumes.
#[test]
fn every_field_that_refuses_a_pod_is_named() {
    let rules = read("src/api/support/rules.rs");
    let text = section(&read("README.md"), "What does not work");
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
                "README.md leaves out {name}"
            );
        }
    }
    assert!(
        seen > 5,
        "only {seen} fields: has the form of the table changed?"
    );
}
