//! The command line, first step: lexopt reads words and options into a [`Raw`]. The second step is each verb's own: its
//! file converts the raw words into arguments that need no further checks.
//!
//! Invariants: pure. An option that a verb does not know is refused, never ignored; the error names the likely one.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::{Arg, Parser};

use super::error::CliError;
use super::suggest::did_you_mean;

/// One verb. Its file makes this constant, and the table in [`super::verbs`] names it.
pub struct Verb {
    /// What a person types.
    pub name: &'static str,
    /// Its lines in `help`: the words to type, and what they do.
    pub summary: &'static [(&'static str, &'static str)],
    /// The text of `help VERB`.
    pub help: &'static str,
    /// The options it knows; every verb knows `--help`.
    pub options: &'static [Opt],
    /// Converts the words and does the work. Output goes to the first writer, problems to the
    /// second.
    pub run: fn(&Raw, &mut dyn Write, &mut dyn Write) -> Result<ExitCode, CliError>,
}

/// An option.
#[derive(Clone, Copy)]
pub struct Opt {
    /// Without the dashes.
    pub name: &'static str,
    /// The one-letter form.
    pub letter: Option<char>,
    /// Whether a value follows.
    pub takes_value: bool,
}

impl Opt {
    /// An option with a value.
    pub const fn value(name: &'static str, letter: Option<char>) -> Self {
        Self {
            name,
            letter,
            takes_value: true,
        }
    }

    /// An option without a value.
    pub const fn flag(name: &'static str, letter: Option<char>) -> Self {
        Self {
            name,
            letter,
            takes_value: false,
        }
    }
}

/// `--root DIR`.
pub const ROOT: Opt = Opt::value("root", None);
/// `-n NAMESPACE`.
pub const NAMESPACE: Opt = Opt::value("namespace", Some('n'));
/// `-A`.
pub const ALL_NAMESPACES: Opt = Opt::flag("all-namespaces", Some('A'));
const HELP: Opt = Opt::flag("help", Some('h'));

/// The request of a person.
pub enum Line {
    /// `help [VERB]`, `VERB --help`, or nothing at all.
    Help(Option<&'static Verb>),
    /// The verb, and what follows it.
    Run(&'static Verb, Raw),
}

/// The arguments after the verb; only the names of options are checked.
pub struct Raw {
    verb: &'static str,
    /// The words that are no options, in their order.
    pub words: Vec<OsString>,
    options: Vec<(&'static str, OsString)>,
}

/// Reads the arguments after the program's name. The error is a sentence for the person who typed them.
pub fn read(
    args: impl IntoIterator<Item = OsString>,
    verbs: &[&'static Verb],
) -> Result<Line, String> {
    let mut parser = Parser::from_args(args);
    let verb = match parser.next().map_err(|e| e.to_string())? {
        None | Some(Arg::Long("help") | Arg::Short('h')) => return Ok(Line::Help(None)),
        Some(Arg::Value(word)) if word == "help" => return help(parser, verbs),
        Some(Arg::Value(word)) => find(&word, verbs)?,
        Some(Arg::Long("version") | Arg::Short('V')) => find(OsStr::new("version"), verbs)?,
        Some(option) => {
            return Err(format!(
                "option '{0}' stands before the verb; write 'podprobe VERB {0} …'",
                typed(&option)
            ));
        }
    };
    let mut raw = Raw::new(verb.name);
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        if let Arg::Value(word) = arg {
            raw.words.push(word);
            continue;
        }
        let option = option(&arg, verb)?;
        let value = match option.takes_value {
            true => parser
                .value()
                .map_err(|_| format!("option '--{}' needs a value", option.name))?,
            false => OsString::new(),
        };
        raw.options.push((option.name, value));
    }
    Ok(match raw.has(HELP.name) {
        true => Line::Help(Some(verb)),
        false => Line::Run(verb, raw),
    })
}

fn help(mut parser: Parser, verbs: &[&'static Verb]) -> Result<Line, String> {
    match parser.next().map_err(|e| e.to_string())? {
        Some(Arg::Value(word)) if word != "help" => Ok(Line::Help(Some(find(&word, verbs)?))),
        _ => Ok(Line::Help(None)),
    }
}

fn find(word: &OsStr, verbs: &[&'static Verb]) -> Result<&'static Verb, String> {
    let known = verbs.iter().find(|v| word == v.name).copied();
    known.ok_or_else(|| {
        let word = word.to_string_lossy();
        let names = verbs.iter().map(|v| v.name).chain(["help"]);
        format!(
            "unknown verb '{word}'{}; 'podprobe help' lists the verbs",
            did_you_mean(&word, names, "")
        )
    })
}

fn typed(option: &Arg<'_>) -> String {
    match option {
        Arg::Long(name) => format!("--{name}"),
        Arg::Short(letter) => format!("-{letter}"),
        Arg::Value(word) => word.to_string_lossy().into_owned(),
    }
}

fn option(arg: &Arg<'_>, verb: &Verb) -> Result<Opt, String> {
    let known = || verb.options.iter().chain([&HELP]);
    let found = known().find(|o| match arg {
        Arg::Long(name) => o.name == *name,
        Arg::Short(letter) => o.letter == Some(*letter),
        Arg::Value(_) => false,
    });
    found.copied().ok_or_else(|| {
        let (typed, verb) = (typed(arg), verb.name);
        let word = typed.trim_start_matches('-');
        let likely = did_you_mean(word, known().map(|o| o.name), "--");
        format!("'{verb}' has no option '{typed}'{likely}; see 'podprobe help {verb}'")
    })
}

impl Raw {
    fn new(verb: &'static str) -> Self {
        Self {
            verb,
            words: Vec::new(),
            options: Vec::new(),
        }
    }

    /// The verb that was typed.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// Whether the option was given.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(n, _)| *n == name)
    }

    /// Every value of an option that may be repeated.
    pub fn values<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a OsString> {
        let given = self.options.iter().filter(move |(n, _)| *n == name);
        given.map(|(_, value)| value)
    }

    /// The value as text. The last one counts, as with kubectl.
    pub fn text(&self, name: &str) -> Result<Option<String>, String> {
        let last = self.values(name).next_back();
        last.map(|v| utf8(v, &format!("--{name}"))).transpose()
    }

    /// The value as a path.
    pub fn path(&self, name: &str) -> Result<Option<PathBuf>, String> {
        match self.values(name).next_back() {
            Some(v) if v.is_empty() => {
                Err(format!("option '--{name}' needs a path, not an empty word"))
            }
            v => Ok(v.map(PathBuf::from)),
        }
    }

    /// `--root`, or `/`.
    pub fn root(&self) -> Result<PathBuf, String> {
        Ok(self.given_root()?.unwrap_or_else(|| PathBuf::from("/")))
    }

    /// `--root`. It is made absolute, because it is part of cgroup names, of the mount table and of
    /// the shims' records.
    pub fn given_root(&self) -> Result<Option<PathBuf>, String> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|e| format!("cannot use root {}: {e}", path.display()))
        };
        self.path(ROOT.name)?.map(absolute).transpose()
    }

    /// `-n`.
    pub fn namespace(&self) -> Result<Option<String>, String> {
        self.text(NAMESPACE.name)
    }

    /// `-n`, and whether `-A` was given.
    pub fn namespaces(&self) -> Result<(Option<String>, bool), String> {
        match (self.namespace()?, self.has(ALL_NAMESPACES.name)) {
            (Some(_), true) => Err("-n and -A exclude each other".into()),
            choice => Ok(choice),
        }
    }

    /// For a verb that takes options only.
    pub fn no_words(&self) -> Result<(), String> {
        match self.words.first() {
            Some(word) => Err(format!(
                "'{}' takes no argument '{}'; see 'podprobe help {0}'",
                self.verb,
                word.to_string_lossy()
            )),
            None => Ok(()),
        }
    }

    /// The words as text.
    pub fn text_words(&self) -> Result<Vec<String>, String> {
        self.words.iter().map(|w| utf8(w, "an argument")).collect()
    }
}

fn utf8(word: &OsStr, what: &str) -> Result<String, String> {
    word.to_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("{what} is not valid UTF-8: '{}'", word.to_string_lossy()))
}

/// Helpers for tests of the verbs' own conversions.
#[cfg(test)]
pub mod testing {
    use super::*;

    /// The result of `convert` for a line that begins with the verb.
    pub fn parse<T>(
        verb: &'static Verb,
        convert: impl Fn(&Raw) -> Result<T, String>,
        line: &str,
    ) -> Result<T, String> {
        let words = line.split_whitespace().map(OsString::from);
        match read(words, &[verb])? {
            Line::Run(_, raw) => convert(&raw),
            Line::Help(_) => Err("help".into()),
        }
    }
}
