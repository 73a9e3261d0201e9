//! Manifests with workloads as people have them: `podprobe validate` says of each file of tests/workloads what lies beside
//! it in `NAME.says`. With `PODPROBE_WRITE_DOCS=1` what it says is written there instead.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::PROGRAM;

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads")
}

/// Names of the files of the directory that end so.
fn names(is_output: bool) -> BTreeSet<String> {
    let files = fs::read_dir(dir()).unwrap().map(|entry| entry.unwrap());
    let names = files.map(|file| file.file_name().into_string().unwrap());
    names
        .filter(|name| name.ends_with(".says") == is_output)
        .collect()
}

fn says_of(manifest: &str) -> String {
    Path::new(manifest)
        .with_extension("says")
        .display()
        .to_string()
}

/// What `validate` prints of a manifest on a node called `edge` without a configuration.
fn printed(manifest: &str) -> String {
    let root = tempfile::tempdir().unwrap();
    let output = Command::new(PROGRAM)
        .args(["validate", manifest, "--node-name", "edge"])
        .env("PODPROBE_ROOT", root.path())
        .current_dir(dir())
        .output()
        .unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn every_manifest_is_judged_as_it_says() {
    let manifests = names(false);
    assert!(manifests.len() >= 30, "{manifests:?}");
    let mut wrong = Vec::new();
    for manifest in &manifests {
        let (file, said) = (dir().join(says_of(manifest)), printed(manifest));
        if std::env::var_os("PODPROBE_WRITE_DOCS").is_some() {
            fs::write(&file, &said).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if said != expected {
            wrong.push(format!("{manifest}: expected\n{expected}got\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let outputs: BTreeSet<String> = manifests.iter().map(|m| says_of(m)).collect();
    assert_eq!(names(true), outputs, "no output without its manifest");
}
