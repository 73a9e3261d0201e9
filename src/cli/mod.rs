//! The command line: dispatches to an inner role of the program or to a client verb.
//!
//! Invariants: an inner role is recognised before anything is set up. A verb is one file with a [`args::Verb`],
//! and a row in [`verbs`]. A verb writes to the writers that its function gets, or through [`terminal::say`], and
//! never uses the print macros, because these macros panic when the terminal has been closed.

#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod apply;
pub mod args;
mod change;
pub mod check_host;
pub mod client;
pub mod completion;
pub mod condition;
mod config;
pub mod cp;
pub mod create;
pub mod delete;
pub mod describe;
pub mod drain;
#[cfg(test)]
mod edited_view;
pub mod error;
pub mod events;
pub mod exec;
mod follow;
pub mod get;
pub mod help;
pub mod image;
mod image_pull;
mod install;
pub mod jsonpath;
pub mod kinds;
pub mod live;
pub mod logs;
pub mod man;
pub mod metrics;
pub mod names;
pub mod output;
pub mod pause;
mod pod_files;
pub mod port_forward;
pub mod probe;
pub mod probe_names;
pub mod probe_text;
pub mod problems;
pub mod rerun;
pub mod restart;
mod roles;
pub mod rollout;
pub mod run;
pub mod scale;
pub mod selector;
mod services;
mod starting;
pub mod status;
pub mod stream;
mod style;
pub mod suggest;
pub mod table;
pub mod tabwriter;
mod targets;
pub mod terminal;
pub mod top;
pub mod try_out;
pub mod validate;
pub mod verbs;
pub mod version;
pub mod wait;
pub mod workload_names;
pub mod workload_pods;

use std::io::{self, Write};
use std::process::ExitCode;

pub use crate::face::views::{columns, human, pull_text};
use args::Line;
use error::CliError;
use terminal::Printable;
use verbs::VERBS;

/// Runs the inner role or the verb that the program's arguments name.
pub fn main() -> ExitCode {
    crate::base::sys::process::keep_exit_codes();
    let mut words = std::env::args_os().skip(1);
    let role = words
        .next()
        .and_then(|word| roles::run(word.to_str()?, words));
    role.unwrap_or_else(|| dispatch().unwrap_or_else(|e| e.report()))
}

fn dispatch() -> Result<ExitCode, CliError> {
    let root = std::env::var_os(args::ROOT_VARIABLE);
    let line = args::read(std::env::args_os().skip(1), &VERBS, root).map_err(CliError::Usage)?;
    // Buffered: stdout itself writes each line on its own, and a PodList has thousands. Every verb flushes.
    let stdout = style::Colours::new(io::BufWriter::new(io::stdout()), style::wanted());
    let mut out = Printable::new(stdout);
    let mut err = Printable::new(io::stderr());
    let text = match line {
        Line::Run(verb, raw) => return (verb.run)(&raw, &mut out, &mut err),
        Line::Help(Some(verb)) => verb.help.to_owned(),
        Line::Help(None) => help::overview(&VERBS),
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn parse(line: &[&str]) -> Result<Line, String> {
        args::read(line.iter().map(OsString::from), &VERBS, None)
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(parse(&words).err().as_deref(), Some(expected), "{line}");
    }

    #[test]
    fn help_and_version_in_every_form() {
        let help = |line: &[&str]| match parse(line) {
            Ok(Line::Help(verb)) => Some(verb.map(|v| v.name)),
            _ => None,
        };
        for line in [&[][..], &["help"], &["--help"], &["-h"], &["help", "help"]] {
            assert_eq!(help(line), Some(None), "{line:?}");
        }
        assert_eq!(help(&["help", "get"]), Some(Some("get")));
        assert_eq!(help(&["get", "--help"]), Some(Some("get")));
        assert_eq!(help(&["image", "load", "-h"]), Some(Some("image")));
        for word in ["version", "--version", "-V"] {
            let Ok(Line::Run(verb, _)) = parse(&[word]) else {
                panic!("{word}")
            };
            assert_eq!(verb.name, "version");
        }
    }

    #[test]
    fn what_is_misspelt_names_the_likely_one() {
        check_error(
            "gte pods",
            "unknown verb 'gte', did you mean 'get'?; 'podprobe help' lists the verbs",
        );
        check_error(
            "frobnicate",
            "unknown verb 'frobnicate'; 'podprobe help' lists the verbs",
        );
        check_error(
            "--rot /r get pods",
            "no verb has an option '--rot', did you mean '--root'?; 'podprobe help' lists the verbs",
        );
    }

    #[test]
    fn options_before_the_verb_are_its_own() {
        for line in [
            "--root /r -n x get pods a",
            "--root=/r -nx get pods a",
            "--root /r get -n x pods a",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let Ok(Line::Run(verb, raw)) = parse(&words) else {
                panic!("{line}")
            };
            let given = (raw.root(), raw.namespace(), raw.text_words());
            let words = vec!["pods".to_owned(), "a".to_owned()];
            let expected = (Ok("/r".into()), Ok(Some("x".into())), Ok(words));
            assert_eq!((verb.name, given), ("get", expected), "{line}");
        }
        check_error(
            "-n x version",
            "'version' has no option '-n'; see 'podprobe help version'",
        );
        check_error(
            "--root /r",
            "options without a verb; 'podprobe help' lists the verbs",
        );
        check_error("get pods --root", "option '--root' needs a value");
    }

    #[test]
    fn a_flag_may_say_true_or_false() {
        let watches = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            match parse(&words) {
                Ok(Line::Run(_, raw)) => Ok(raw.has("watch")),
                Ok(Line::Help(_)) => panic!("{line}"),
                Err(e) => Err(e),
            }
        };
        assert_eq!(watches("get pods --watch=true"), Ok(true));
        assert_eq!(watches("get pods --watch=false"), Ok(false));
        assert_eq!(watches("get pods -w --watch=false"), Ok(false));
        assert_eq!(watches("get pods --watch=false -w"), Ok(true));
        assert_eq!(watches("get pods -wA"), Ok(true));
        let wrong = "option '--watch' takes no value but true and false, not 'yes'";
        assert_eq!(watches("get pods --watch=yes"), Err(wrong.into()));
    }

    /// The option `--root` overrides the variable PODPROBE_ROOT, even if the variable is empty.
    #[test]
    fn the_root_comes_from_the_option_or_the_variable() {
        let root = |line: &str, variable: &str| {
            let words = line.split(' ').map(OsString::from);
            match args::read(words, &VERBS, Some(variable.into())) {
                Ok(Line::Run(_, raw)) => raw.root(),
                _ => panic!("{line}"),
            }
        };
        assert_eq!(root("get pods", "/a/b"), Ok("/a/b".into()));
        assert_eq!(root("get pods --root /c", "/a"), Ok("/c".into()));
        assert_eq!(root("get pods --root /c", ""), Ok("/c".into()));
        let empty = "PODPROBE_ROOT is set but empty; it needs a path: unset it, or give --root DIR";
        assert_eq!(root("get pods", ""), Err(empty.into()));
        let here = std::env::current_dir().unwrap();
        assert_eq!(root("get pods", "d"), Ok(here.join("d")));
    }

    #[test]
    fn an_empty_root_is_refused() {
        let Ok(Line::Run(_, raw)) = parse(&["run", "--root", ""]) else {
            panic!()
        };
        assert_eq!(
            raw.root(),
            Err("option '--root' needs a path, not an empty word".into())
        );
    }
}
