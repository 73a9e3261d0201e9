//! The verb `completion`: prints scripts that complete verbs, options, nouns and the names of pods, workloads and other
//! objects in bash, zsh and fish.
//!
//! Invariants: pure except for the writer. All words in the scripts come from the table of verbs and from the kinds of
//! `get`. The words after a verb come from its summary: a lower-case word is a noun, `POD` and `JOB` stand for names, and
//! `WORKLOAD` stands for a kind of workload and a name.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::args::{self, Opt, ROOT, Raw, Verb};
use super::create;
use super::error::CliError;
use super::get::{self, kind::Kind};
use super::suggest::did_you_mean;
use crate::api::workload::WorkloadKind;

const BASH: &str = include_str!("completion/podprobe.bash");
const ZSH: &str = include_str!("completion/podprobe.zsh");
const FISH: &str = include_str!("completion/podprobe.fish");
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// The verb `completion`.
pub const VERB: Verb = args::Verb {
    name: "completion",
    summary: &[("completion bash|zsh|fish", "print a script that completes command lines")],
    help: "\
usage: podprobe completion bash|zsh|fish

Prints a script for the shell: it completes verbs, options, nouns, and names of pods and of KIND/, which it asks of the
daemon.

  bash    source <(podprobe completion bash)        in ~/.bashrc
  zsh     source <(podprobe completion zsh)         in ~/.zshrc, after compinit
  fish    podprobe completion fish | source         in ~/.config/fish/config.fish
",
    options: &[ROOT],
    run: |raw, out, _| {
        let script = asked(raw).map_err(CliError::Usage)?;
        out.write_all(script.as_bytes())?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    },
};

fn asked(raw: &Raw) -> Result<String, String> {
    match &raw.text_words()?[..] {
        [shell] => script(shell, raw.verbs()).ok_or_else(|| {
            let meant = did_you_mean(shell, SHELLS, "");
            format!("no completion for '{shell}'{meant}; there is one for bash, zsh and fish")
        }),
        _ => Err("'completion' needs one shell: podprobe completion bash|zsh|fish".into()),
    }
}

/// Returns the script for a shell; None if there is none for it.
pub fn script(shell: &str, verbs: &[&Verb]) -> Option<String> {
    let fill = |template: &str| {
        let table = table(verbs);
        let table = table.trim_end();
        template
            .replace("@TABLE@", table)
            .replace("@VERBS@", &names(verbs))
            .replace("@KINDS@", &kinds())
            .replace("@WORKLOADS@", &workloads())
    };
    match shell {
        "bash" => Some(fill(BASH)),
        "zsh" => Some(fill(ZSH)),
        "fish" => Some(fish(verbs)),
        _ => None,
    }
}

/// Returns the names of all verbs and `help`, separated by spaces.
fn names(verbs: &[&Verb]) -> String {
    let names: Vec<&str> = verbs.iter().map(|v| v.name).chain(["help"]).collect();
    names.join(" ")
}

/// Returns all words for kinds, separated by spaces.
fn kinds() -> String {
    let words = Kind::ALL.iter().flat_map(|kind| kind.facts().words);
    words.copied().collect::<Vec<_>>().join(" ")
}

/// Returns the words for kinds of workloads, separated by spaces.
fn workloads() -> String {
    WorkloadKind::ALL.map(WorkloadKind::resource).join(" ")
}

/// The words that may follow a verb.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    nouns: Vec<&'static str>,
    /// The kind of which a name may be the first word: `pods` or `jobs`. Empty if there is none.
    names: &'static str,
    /// True if a workload may follow, as `KIND/NAME` or `KIND NAME`.
    workloads: bool,
}

fn words(verb: &Verb) -> Words {
    let mut words = Words::default();
    for (typed, _) in verb.summary {
        let first = typed.split_whitespace().nth(1).unwrap_or_default();
        let choices = first.split(['|', '/', '[']);
        for choice in choices.clone() {
            match choice {
                "POD" => words.names = "pods",
                "JOB" => words.names = "jobs",
                _ => {}
            }
        }
        words.workloads |= typed.split([' ', '|']).any(|word| word == "WORKLOAD");
        let is_noun = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
        words.nouns.extend(choices.filter(is_noun));
    }
    if verb.name == get::VERB.name {
        words.nouns = Kind::ALL.map(Kind::plural).to_vec();
    }
    words
}

/// Joins the options in the form that a user types, separated by spaces: `--output -o`.
fn typed<'a>(options: impl IntoIterator<Item = &'a Opt>) -> String {
    let mut text: Vec<String> = Vec::new();
    for option in options {
        let letter = option.letter.map(|letter| format!("-{letter}"));
        for word in [Some(format!("--{}", option.name)), letter]
            .into_iter()
            .flatten()
        {
            if !text.contains(&word) {
                text.push(word);
            }
        }
    }
    text.join(" ")
}

/// Returns the branches of a `case` statement that both bash and zsh understand. The last branch is for the
/// words before the verb.
fn table(verbs: &[&Verb]) -> String {
    let mut text = String::new();
    let mut row = |name: &str, options: String, values: String, words: &Words| {
        let nouns = words.nouns.join(" ");
        let (names, workloads) = (words.names, if words.workloads { "1" } else { "" });
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "    {name})\n      options='{options}'\n      values='{values}'\n      nouns='{nouns}' names='{names}' workloads='{workloads}'\n      ;;"
        );
    };
    let help = " --help -h";
    for verb in verbs {
        let values = verb.options.iter().filter(|o| o.takes_value);
        let options = typed(verb.options) + help;
        row(verb.name, options, typed(values), &words(verb));
    }
    let after_help = Words {
        nouns: verbs.iter().map(|v| v.name).chain(["help"]).collect(),
        ..Words::default()
    };
    row("help", help.trim().into(), String::new(), &after_help);
    let before = before_the_verb(verbs);
    let values = typed(before.iter().filter(|o| o.takes_value));
    let options = typed(&before) + help + " --version";
    row("*", options, values, &Words::default());
    text
}

/// Returns the options to complete before the verb: `--root` and `-n`, which most verbs have. Other options are
/// typed after their verb.
fn before_the_verb(verbs: &[&Verb]) -> Vec<Opt> {
    let mut found: Vec<Opt> = Vec::new();
    for option in [ROOT, args::NAMESPACE] {
        let is_known = verbs
            .iter()
            .any(|v| v.options.iter().any(|o| o.name == option.name));
        found.extend(is_known.then_some(option));
    }
    found
}

fn fish(verbs: &[&Verb]) -> String {
    let mut text = FISH.replace("@KINDS@", &kinds());
    let mut line = |condition: &str, rest: &str| {
        let _ = writeln!(text, "complete -c podprobe -n '{condition}' {rest}");
    };
    line("__fish_use_subcommand", &format!("-a '{}'", names(verbs)));
    line("__fish_use_subcommand", "-l root -r -F");
    line(
        "__fish_seen_subcommand_from help",
        &format!("-a '{}'", names(verbs)),
    );
    for verb in verbs {
        let seen = format!("__fish_seen_subcommand_from {}", verb.name);
        let words = words(verb);
        if !words.nouns.is_empty() {
            let nouns = words.nouns.join(" ");
            let first = format!("{seen}; and not __fish_seen_subcommand_from {nouns}");
            line(&first, &format!("-a '{nouns}'"));
        }
        if verb.name != create::VERB.name {
            let named = format!("{seen}; and __podprobe_kind >/dev/null");
            line(&named, "-a '(__podprobe_names (__podprobe_kind))'");
        }
        if !words.names.is_empty() {
            let first = format!("{seen}; and not __podprobe_kind >/dev/null");
            line(&first, &format!("-a '(__podprobe_names {})'", words.names));
        }
        if words.workloads {
            line(&seen, &format!("-a '{}'", workloads()));
        }
        if words == Words::default() {
            line(&seen, "-F");
        }
        for option in verb.options {
            let letter = option.letter.map_or(String::new(), |l| format!(" -s {l}"));
            let value = if option.takes_value { " -r -F" } else { "" };
            line(&seen, &format!("-l {}{letter}{value}", option.name));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::verbs::VERBS;

    #[test]
    fn the_words_after_a_verb_are_those_of_its_summary() {
        let of = |name: &str| words(VERBS.iter().find(|v| v.name == name).unwrap());
        assert_eq!((of("logs").names, of("logs").nouns), ("pods", vec![]));
        assert!(of("get").nouns.contains(&"pods") && of("get").names.is_empty());
        for kind in Kind::ALL {
            assert!(
                of("get").nouns.contains(&kind.plural()),
                "{}",
                kind.plural()
            );
        }
        assert_eq!(
            of("restart").names,
            "pods",
            "also where a container may follow"
        );
        assert_eq!(of("rerun").names, "jobs");
        assert!(of("scale").workloads && of("rollout").workloads && of("delete").workloads);
        assert!(of("describe").nouns.contains(&"service"));
        assert!(of("image").nouns.contains(&"inspect"));
        assert_eq!(of("completion").nouns, SHELLS);
        assert_eq!(of("run"), Words::default());
    }

    #[test]
    fn every_verb_and_option_is_in_every_script() {
        let scripts = [table(&VERBS), fish(&VERBS)];
        for verb in VERBS {
            for script in &scripts {
                assert!(script.contains(verb.name), "{}", verb.name);
                for option in verb.options {
                    let there = script.contains(&format!("-{}", option.name))
                        || script.contains(&format!("-l {}", option.name));
                    assert!(there, "{} --{}", verb.name, option.name);
                }
            }
        }
    }

    #[test]
    fn an_unknown_shell_is_named() {
        for (line, expected) in [
            (
                "completion bsh",
                "no completion for 'bsh', did you mean 'bash'?; there is one for bash, zsh and fish",
            ),
            (
                "completion",
                "'completion' needs one shell: podprobe completion bash|zsh|fish",
            ),
        ] {
            let got = args::testing::parse(&VERB, asked, line);
            assert_eq!(got, Err(expected.into()));
        }
    }
}
