//! The command line, first step: lexopt reads words and options into a [`Raw`]. The second step is each verb's own: its
//! file converts the raw words into arguments that need no further checks.
//!
//! Invariants: pure. An option that a verb does not know is refused, never ignored; the error names the likely one.
//! Options may stand before the verb; which verb that is decides whether they are its own.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::{Arg, Parser};

use super::error::CliError;
use super::selector::Selector;
use super::suggest::did_you_mean;

/// A verb. The file of the verb makes this constant, and the table in [`super::verbs`] names it.
pub struct Verb {
    /// Word that a person types.
    pub name: &'static str,
    /// The verb's lines in `help`: the words to type, and what they do.
    pub summary: &'static [(&'static str, &'static str)],
    /// The text of `help VERB`.
    pub help: &'static str,
    /// Options that the verb knows; every verb knows `--help`.
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
    /// True if a value follows the option.
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
/// `-l LABELS`.
pub const SELECTOR: Opt = Opt::value("selector", Some('l'));
/// `--no-headers`.
pub const NO_HEADERS: Opt = Opt::flag("no-headers", None);
const HELP: Opt = Opt::flag("help", Some('h'));

pub use super::starting::ROOT_VARIABLE;

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
    options: Vec<Given>,
    /// The value of [`ROOT_VARIABLE`].
    root_variable: Option<OsString>,
    verbs: &'static [&'static Verb],
}

/// The name of an option, and its value.
type Given = (&'static str, OsString);

/// Reads the arguments after the program's name; `root_variable` is the value of [`ROOT_VARIABLE`]. The error is a sentence
/// for the person who typed them.
pub fn read(
    args: impl IntoIterator<Item = OsString>,
    verbs: &'static [&'static Verb],
    root_variable: Option<OsString>,
) -> Result<Line, String> {
    let mut parser = Parser::from_args(args);
    let mut early = Vec::new();
    let verb = loop {
        match parser.next().map_err(|e| e.to_string())? {
            None if !early.is_empty() => return Err(NO_VERB.into()),
            None | Some(Arg::Long("help") | Arg::Short('h')) => return Ok(Line::Help(None)),
            Some(Arg::Value(word)) if word == "help" => return help(parser, verbs),
            Some(Arg::Value(word)) => break find(&word, verbs)?,
            Some(Arg::Long("version") | Arg::Short('V')) => {
                break find(OsStr::new("version"), verbs)?;
            }
            Some(arg) => {
                let (typed, option) = (typed(&arg), before_the_verb(&arg, verbs)?);
                let value = value(option, arg_is_long(&arg), &mut parser)?;
                early.push((typed, option, value));
            }
        }
    };
    let mut raw = Raw::new(verb.name, root_variable, verbs);
    for (typed, option, value) in early {
        if !verb.options.iter().any(|o| o.name == option.name) {
            return Err(no_option(&typed, verb));
        }
        raw.give(option.name, value);
    }
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        if let Arg::Value(word) = arg {
            raw.words.push(word);
            continue;
        }
        let option = option(&arg, verb)?;
        let value = value(option, arg_is_long(&arg), &mut parser)?;
        raw.give(option.name, value);
    }
    Ok(match raw.has(HELP.name) {
        true => Line::Help(Some(verb)),
        false => Line::Run(verb, raw),
    })
}

const NO_VERB: &str = "options without a verb; 'podprobe help' lists the verbs";

fn arg_is_long(arg: &Arg<'_>) -> bool {
    matches!(arg, Arg::Long(_))
}

/// The value that follows, or an empty one for a flag. As with kubectl a flag may be `--flag=true`; after `=false` it was
/// not given.
fn value(option: Opt, is_long: bool, parser: &mut Parser) -> Result<Option<OsString>, String> {
    let name = option.name;
    if option.takes_value {
        let value = parser.value();
        return value
            .map(Some)
            .map_err(|_| format!("option '--{name}' needs a value"));
    }
    // After one letter the rest of the word is more letters.
    let given = is_long.then(|| parser.optional_value()).flatten();
    match given.as_ref().map(|v| v.to_str()) {
        None | Some(Some("true")) => Ok(Some(OsString::new())),
        Some(Some("false")) => Ok(None),
        Some(_) => Err(format!(
            "option '--{name}' takes no value but true and false, not '{}'",
            given.unwrap_or_default().to_string_lossy()
        )),
    }
}

/// The option of some verb, if all verbs that know it mean the same by it.
fn before_the_verb(arg: &Arg<'_>, verbs: &[&'static Verb]) -> Result<Opt, String> {
    let all = || verbs.iter().flat_map(|v| v.options);
    let mut found = all().filter(|o| is_option(o, arg));
    let typed = typed(arg);
    let Some(first) = found.next() else {
        let names = all().map(|o| o.name);
        let likely = did_you_mean(typed.trim_start_matches('-'), names, "--");
        return Err(format!(
            "no verb has an option '{typed}'{likely}; 'podprobe help' lists the verbs"
        ));
    };
    match found.all(|o| (o.name, o.takes_value) == (first.name, first.takes_value)) {
        true => Ok(*first),
        false => Err(format!(
            "option '{typed}' means something else with each verb; write it after the verb: 'podprobe VERB {typed} …'"
        )),
    }
}

fn is_option(option: &Opt, arg: &Arg<'_>) -> bool {
    match arg {
        Arg::Long(name) => option.name == *name,
        Arg::Short(letter) => option.letter == Some(*letter),
        Arg::Value(_) => false,
    }
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
    let mut known = verb.options.iter().chain([&HELP]);
    let found = known.find(|o| is_option(o, arg));
    found.copied().ok_or_else(|| no_option(&typed(arg), verb))
}

fn no_option(typed: &str, verb: &Verb) -> String {
    let known = verb.options.iter().chain([&HELP]).map(|o| o.name);
    let (likely, verb) = (
        did_you_mean(typed.trim_start_matches('-'), known, "--"),
        verb.name,
    );
    format!("'{verb}' has no option '{typed}'{likely}; see 'podprobe help {verb}'")
}

impl Raw {
    /// The last one counts: without a value, it was not given before either.
    fn give(&mut self, name: &'static str, value: Option<OsString>) {
        match value {
            Some(value) => self.options.push((name, value)),
            None => self.options.retain(|(given, _)| *given != name),
        }
    }

    fn new(
        verb: &'static str,
        root_variable: Option<OsString>,
        verbs: &'static [&'static Verb],
    ) -> Self {
        Self {
            verb,
            words: Vec::new(),
            options: Vec::new(),
            root_variable,
            verbs,
        }
    }

    /// The verb that was typed.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// Every verb but `help`, for texts about all of them.
    pub fn verbs(&self) -> &'static [&'static Verb] {
        self.verbs
    }

    /// True if the command line has the option.
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

    /// `--root`, or PODPROBE_ROOT, or `/`.
    pub fn root(&self) -> Result<PathBuf, String> {
        match (self.given_root()?, &self.root_variable) {
            (Some(root), _) => Ok(root),
            (None, Some(root)) if root.is_empty() => Err(format!(
                "{ROOT_VARIABLE} is set but empty; it needs a path: unset it, or give --root DIR"
            )),
            (None, Some(root)) => absolute(PathBuf::from(root)),
            (None, None) => Ok(PathBuf::from("/")),
        }
    }

    /// `--root` alone, for a verb that removes the root in the end.
    pub fn given_root(&self) -> Result<Option<PathBuf>, String> {
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

    /// Converts the value of `-l`; None means all objects.
    ///
    /// # Errors
    /// Returns a sentence if the value is no selector.
    pub fn selector(&self) -> Result<Option<Selector>, String> {
        let given = self.text(SELECTOR.name)?;
        given.map(|text| Selector::parse(&text)).transpose()
    }

    /// Refuses words after a verb that takes options only.
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

/// Makes the root absolute: it becomes part of cgroup names, of the mount table and of the shims' records.
fn absolute(root: PathBuf) -> Result<PathBuf, String> {
    std::path::absolute(&root).map_err(|e| format!("cannot use root {}: {e}", root.display()))
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
        match read(words, vec![verb].leak(), None)? {
            Line::Run(_, raw) => convert(&raw),
            Line::Help(_) => Err("help".into()),
        }
    }
}
