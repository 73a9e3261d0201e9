//! The verb `config`: checks a configuration file, shows what would be in force with it, and lets the daemon read it again.
//!
//! Invariant: only `reload` needs a daemon and changes anything.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::args::{self, Opt, ROOT, Raw};
use super::client::{Client, ClientError};
use super::error::CliError;
use super::suggest::did_you_mean;
use crate::base::paths::Layout;
use crate::daemon::settings::{Overrides, SHIPPED, Settings};

/// The words after the verb.
const WORDS: [&str; 4] = ["check", "show", "default", "reload"];

/// The verb `config`.
pub const VERB: args::Verb = args::Verb {
    name: "config",
    summary: &[
        ("config check|show|default", "check the configuration, show what would be in force, or the defaults"),
        ("config reload", "let the daemon read its configuration again"),
    ],
    help: "\
usage: podprobe config check [--config FILE] [--root DIR]
       podprobe config show [--config FILE] [--root DIR]
       podprobe config default
       podprobe config reload [--root DIR]

  check            can the daemon start with this file? Else what is wrong, with the key and what it may be
  show             every key with the value that is in force at the next start, as JSON; headers are masked
  default          a file with every key and its default
  reload           lets the running daemon read its file again, as HUP does, and prints each key that has changed: some
                   are in force at once, others after a restart of the daemon; a bad file changes nothing

  --config FILE    default ROOT/etc/podprobe/config.json, which may be missing

What the running daemon uses is at /configz of its server. Exit codes: 0 the file can be used, 78 it cannot, 2 wrong
command line.
",
    options: &[ROOT, Opt::value("config", None)],
    run: |raw, out, _| config(raw, out),
};

fn config(raw: &Raw, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let words = raw.text_words().map_err(CliError::Usage)?;
    let root = raw.root().map_err(CliError::Usage)?;
    let named = raw.path("config").map_err(CliError::Usage)?;
    let layout = Layout::new(&root);
    let load = || {
        let settings = Settings::load(&layout, named.as_deref(), &Overrides::default());
        settings.map_err(|e| CliError::Configuration(e.to_string()))
    };
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => {
            load()?;
            let file = named.clone().unwrap_or_else(|| layout.config_file());
            let is_there = if file.exists() {
                "can be used"
            } else {
                "does not exist: every key has its default"
            };
            writeln!(out, "{} {is_there}", file.display())?;
        }
        ["show"] => {
            let shown = serde_json::to_string_pretty(&load()?.in_force());
            writeln!(out, "{}", shown.unwrap_or_default())?;
        }
        ["default"] => out.write_all(SHIPPED.as_bytes())?,
        ["reload"] => reload(&root, out)?,
        [other, ..] if !WORDS.contains(&other) => {
            return Err(CliError::Usage(format!(
                "no 'config {other}'{}; there is {}",
                did_you_mean(other, WORDS, "config "),
                WORDS.join(", ")
            )));
        }
        _ => {
            return Err(CliError::Usage(
                "'config' needs one word: podprobe config check|show|default|reload".into(),
            ));
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Lets the daemon read its configuration again, and prints what has changed.
fn reload(root: &Path, out: &mut dyn Write) -> Result<(), CliError> {
    let lines = Client::connect(root)?.reload().map_err(|e| match e {
        ClientError::Refused(why) => CliError::Configuration(why),
        other => other.into(),
    })?;
    writeln!(out, "{}", lines.join("\n"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cli::args::testing;

    fn said(line: &str) -> Result<String, CliError> {
        let ran = testing::parse(
            &VERB,
            |raw| {
                let mut out = Vec::new();
                let ran = config(raw, &mut out);
                Ok(ran.map(|_| String::from_utf8(out).unwrap()))
            },
            line,
        );
        ran.unwrap()
    }

    #[test]
    fn a_file_is_checked_as_a_start_checks_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.json");
        let line = |word: &str| format!("config {word} --config {}", file.display());
        fs::write(&file, "{\"maxPods\": 7}").unwrap();
        let good = said(&line("check")).unwrap();
        assert_eq!(good, format!("{} can be used\n", file.display()));
        let shown: serde_json::Value = serde_json::from_str(&said(&line("show")).unwrap()).unwrap();
        assert_eq!(
            (&shown["maxPods"], &shown["syncFrequency"]),
            (&7.into(), &"60s".into())
        );
        fs::write(&file, "{\"maxPods\": \"many\"}").unwrap();
        for word in ["check", "show"] {
            let error = said(&line(word)).unwrap_err();
            assert!(matches!(error, CliError::Configuration(_)));
            assert!(error.to_string().contains("maxPods"), "{error}");
        }
        let missing = said(&format!("config check --root {}", dir.path().display())).unwrap();
        assert!(
            missing.ends_with("does not exist: every key has its default\n"),
            "{missing}"
        );
    }

    #[test]
    fn the_defaults_are_a_file_that_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.json");
        fs::write(&file, said("config default").unwrap()).unwrap();
        said(&format!("config check --config {}", file.display())).unwrap();
    }

    #[test]
    fn a_wrong_word_is_named() {
        let error = said("config chek").unwrap_err().to_string();
        assert_eq!(
            error,
            "no 'config chek', did you mean 'config check'?; there is check, show, default, reload"
        );
        for line in ["config", "config check show"] {
            let error = said(line).unwrap_err().to_string();
            assert_eq!(
                error,
                "'config' needs one word: podprobe config check|show|default|reload"
            );
        }
    }
}
