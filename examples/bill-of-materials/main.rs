//! What the static file is made of, for the archive of `make dist`: `bill-of-materials sbom|licences TARGET`.
//!
//! `sbom` prints a bill of materials in CycloneDX's JSON, `licences` the texts of all licences. Both come from what cargo
//! knows of the crates that a build for TARGET links, and of the two libraries that no crate names.
//!
//! Invariants: the same sources give the same bytes. A crate without a licence, or without the text of one, is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

/// The name of the program.
const OWN: &str = env!("CARGO_PKG_NAME");
/// What a static file has besides crates, with its licence: the C library and Rust's standard library.
const LIBRARIES: [(&str, &str); 2] = [("musl", "MIT"), ("rust-std", "MIT OR Apache-2.0")];
/// The copyright notices of [`LIBRARIES`].
const NOTICES: &str = include_str!("libraries.txt");
/// How the files with licences are named.
const TEXTS: [&str; 5] = ["licen", "copying", "copyright", "notice", "unlicense"];

/// A crate that the static file has.
struct Linked {
    name: String,
    version: String,
    licence: String,
    checksum: Option<String>,
    dir: PathBuf,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let printed = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sbom", target] => linked(target).map(|all| sbom(&all, target)),
        ["licences", target] => linked(target).and_then(|all| licences(&all)),
        _ => Err("usage: bill-of-materials sbom|licences TARGET".into()),
    };
    match printed {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("bill-of-materials: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the crates that a build for the target links, sorted by name and version. The first is podprobe itself, which
/// stands for the crates of its wings.
fn linked(target: &str) -> Result<Vec<Linked>, Box<dyn Error>> {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
    let checksums = checksums(&fs::read_to_string(lock)?);
    // `tree` knows which crates are linked. `metadata` also has those of the tests, and what they switch on.
    let edges = [
        "tree",
        "--package",
        OWN,
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
    ];
    let tree = cargo(&[&edges[..], &["--target", target, "--format", "{p}"]].concat())?;
    let names = tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?.strip_prefix('v')?))
    });
    let is_wing = |name: &str| name.strip_prefix(OWN).is_some_and(|n| n.starts_with('-'));
    let names: BTreeSet<(&str, &str)> = names.filter(|(name, _)| !is_wing(name)).collect();
    let form = ["--format-version", "1", "--filter-platform", target];
    let metadata: Value = serde_json::from_str(&cargo(&[&["metadata"], &form[..]].concat())?)?;
    let mut all = Vec::new();
    for package in list(&metadata["packages"]) {
        let (name, version) = (text(&package["name"])?, text(&package["version"])?);
        if !names.contains(&(name, version)) {
            continue;
        }
        let licence = package["license"].as_str();
        let licence = licence.or(package["license_file"].as_str().map(|_| "see its file"));
        let manifest = Path::new(text(&package["manifest_path"])?);
        all.push(Linked {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: licence.ok_or(format!("{name} has no licence"))?.to_owned(),
            checksum: checksums
                .get(&(name.to_owned(), version.to_owned()))
                .cloned(),
            dir: manifest.parent().unwrap_or(manifest).to_owned(),
        });
    }
    if all.len() != names.len() {
        return Err(format!(
            "cargo links {} crates and describes {}",
            names.len(),
            all.len()
        )
        .into());
    }
    all.sort_by_key(|it| (it.name != OWN, it.name.clone(), it.version.clone()));
    Ok(all)
}

/// Runs cargo on this project, and returns what it prints.
fn cargo(words: &[&str]) -> Result<String, Box<dyn Error>> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(program);
    let ran = command.args(words).arg("--locked");
    let ran = ran.current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
    match ran.status.success() {
        true => Ok(String::from_utf8(ran.stdout)?),
        false => Err(String::from_utf8_lossy(&ran.stderr).into()),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> Result<&str, Box<dyn Error>> {
    Ok(value.as_str().ok_or("cargo's metadata have another form")?)
}

/// Returns the SHA-256 of each crate, by name and version, as Cargo.lock has it.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |name: &str| {
            let mut lines = package.lines();
            let value = lines.find_map(|line| line.strip_prefix(&format!("{name} = \"")))?;
            Some(value.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            all.insert((name, version), sum);
        }
    }
    all
}

fn sbom(all: &[Linked], target: &str) -> String {
    let component = |it: &Linked| {
        let mut component = json!({
            "type": "library", "bom-ref": format!("{}@{}", it.name, it.version),
            "name": it.name, "version": it.version,
            "licenses": [{"expression": it.licence}],
            "purl": format!("pkg:cargo/{}@{}", it.name, it.version),
        });
        if let Some(sum) = &it.checksum {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        component
    };
    let own = all.first().map(|it| {
        let mut own = component(it);
        own["type"] = "application".into();
        own["properties"] = json!([{"name": "podprobe:target", "value": target}]);
        own
    });
    let libraries = LIBRARIES.map(|(name, licence)| {
        json!({"type": "library", "bom-ref": name, "name": name, "licenses": [{"expression": licence}]})
    });
    let components = all.iter().skip(1).map(component).chain(libraries);
    let bill = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": own},
        "components": components.collect::<Vec<_>>(),
    });
    format!("{bill:#}\n")
}

/// Returns the texts of all licences. Crates with the same text share it.
fn licences(all: &[Linked]) -> Result<String, Box<dyn Error>> {
    let mut crates_of_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut out = String::from("podprobe is made of these crates and libraries.\n\n");
    for it in all {
        writeln!(out, "{} {}: {}", it.name, it.version, it.licence)?;
        let texts = texts(&it.dir)?;
        if texts.is_empty() {
            return Err(format!("{} {} has no text of its licence", it.name, it.version).into());
        }
        for text in texts {
            let name = format!("{} {}", it.name, it.version);
            crates_of_text.entry(text).or_default().push(name);
        }
    }
    for (name, licence) in LIBRARIES {
        writeln!(out, "{name}: {licence}")?;
    }
    let line = "-".repeat(80);
    for (text, crates) in crates_of_text {
        write!(
            out,
            "\n{line}\n{}\n\n{}\n",
            crates.join(", "),
            text.trim_end()
        )?;
    }
    write!(out, "\n{line}\n{NOTICES}")?;
    Ok(out)
}

/// Returns the content of each file of a licence in a crate's directory, in the order of the names of the files.
fn texts(dir: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        if TEXTS.iter().any(|begin| name.starts_with(begin)) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    let mut texts = Vec::new();
    for file in files {
        texts.push(String::from_utf8_lossy(&fs::read(file)?).into_owned());
    }
    Ok(texts)
}
