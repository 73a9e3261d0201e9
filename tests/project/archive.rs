//! The archive of `make dist`: the same bytes each time, with what is needed to install podprobe and to know what it is made of.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const NAME: &str = concat!("podprobe-", env!("CARGO_PKG_VERSION"), "-x86_64");

/// The example is built with the tests, in the directory beside theirs.
fn bill() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors()
        .nth(2)
        .unwrap()
        .join("examples/bill-of-materials")
}

/// Makes an archive of a program under a umask.
fn archive(program: &Path, dir: &Path, umask: &str) {
    let script = format!("umask {umask}; exec sh .ci/archive x86_64 \"$0\" \"$1\"");
    let made = Command::new("sh")
        .args(["-c", &script])
        .args([program, dir])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("BILL", bill())
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

/// Returns the crates that cargo links for the target, without those that run in the compiler and podprobe's own wings.
fn linked() -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let tree = Command::new(cargo)
        .args([
            "tree",
            "--offline",
            "-e",
            "normal,no-proc-macro",
            "--prefix",
            "none",
        ])
        .args(["--target", "x86_64-unknown-linux-musl"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success());
    let tree = String::from_utf8(tree.stdout).unwrap();
    let crates = tree.lines().filter(|line| !line.starts_with("podprobe-"));
    let names = crates.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(format!(
            "{}@{}",
            words.next()?,
            words.next()?.strip_prefix('v')?
        ))
    });
    names.collect()
}

#[test]
fn an_archive_is_the_same_each_time_and_has_what_is_promised() {
    let work = tempfile::tempdir().unwrap();
    let [first, second] = ["a", "b"].map(|name| work.path().join(name));
    let program = work.path().join("program");
    fs::write(&program, "program").unwrap();
    archive(&program, &first, "022");
    archive(&program, &second, "077");
    let file = format!("{NAME}.tar.gz");
    let bytes = |dir: &Path| fs::read(dir.join(&file)).unwrap();
    assert!(bytes(&first) == bytes(&second), "the archives differ");

    for (program, words) in [("sha256sum", ["-c", "SHA256SUMS"]), ("tar", ["xzf", &file])] {
        let done = Command::new(program)
            .args(words)
            .current_dir(&first)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    let tree = first.join(NAME);
    let bill = fs::read(tree.join("sbom.cdx.json")).unwrap();
    let bill: Value = serde_json::from_slice(&bill).unwrap();
    let mut named: BTreeSet<String> = bill["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["bom-ref"].as_str().unwrap().to_owned())
        .collect();
    named.insert(
        bill["metadata"]["component"]["bom-ref"]
            .as_str()
            .unwrap()
            .to_owned(),
    );
    assert!(named.remove("musl") && named.remove("rust-std"));
    assert_eq!(named, linked());
    let licences = fs::read_to_string(tree.join("LICENSES-OF-OTHERS.txt")).unwrap();
    for name in &named {
        let line = name.replace('@', " ") + ": ";
        assert!(licences.lines().any(|l| l.starts_with(&line)), "{name}");
    }

    let program = fs::metadata(tree.join("podprobe")).unwrap();
    assert_eq!((program.mode() & 0o7777, program.len()), (0o755, 7));
    assert!(tree.join("docs/manual/install.md").exists() && tree.join("LICENSE").exists());
}
