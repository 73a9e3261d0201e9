//! The first step of parsing a command line: lexopt splits the command line into words and options, which become a
//! [`Raw`]. In the second step, the file of each verb converts the [`Raw`] into arguments that need no further
//! checks.
//!
//! Invariants: pure. An unknown option is refused, never ignored, and the error names the most similar option.
//! Options may stand before the verb. Such options are checked when the verb is known.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::{Arg, Parser};

use super::error::CliError;
use super::selector::Selector;
use super::suggest::did_you_mean;

/// A verb of the command line. Each verb's file defines its verb, and the table in [`super::verbs`] lists all
/// verbs.
pub struct Verb {
    /// The word that a user types.
    pub name: &'static str,
    /// The verb's lines in `help`. Each line has the words to type and their effect.
    pub summary: &'static [(&'static str, &'static str)],
    /// The text that `help VERB` prints.
    pub help: &'static str,
    /// Options of the verb. Every verb also has `--help`.
    pub options: &'static [Opt],
    /// The function that parses the words and does the work. Output goes to the first writer, and problems go
    /// to the second.
    pub run: fn(&Raw, &mut dyn Write, &mut dyn Write) -> Result<ExitCode, CliError>,
}

/// An option of a verb.
#[derive(Clone, Copy)]
pub struct Opt {
    /// Name of the option without its dashes.
    pub name: &'static str,
    /// The one-letter form, if the option has one.
    pub letter: Option<char>,
    /// True if a value follows the option.
    pub takes_value: bool,
}

impl Opt {
    /// Makes an option with a value.
    pub const fn value(name: &'static str, letter: Option<char>) -> Self {
        Self {
            name,
            letter,
            takes_value: true,
        }
    }

    /// Makes an option without a value.
    pub const fn flag(name: &'static str, letter: Option<char>) -> Self {
        Self {
            name,
            letter,
            takes_value: false,
        }
    }
}

/// The option `--root DIR`.
pub const ROOT: Opt = Opt::value("root", None);
/// The option `-n NAMESPACE`.
pub const NAMESPACE: Opt = Opt::value("namespace", Some('n'));
/// The option `-A`.
pub const ALL_NAMESPACES: Opt = Opt::flag("all-namespaces", Some('A'));
/// The option `-l LABELS`.
pub const SELECTOR: Opt = Opt::value("selector", Some('l'));
/// The option `--no-headers`.
pub const NO_HEADERS: Opt = Opt::flag("no-headers", None);
const HELP: Opt = Opt::flag("help", Some('h'));

pub use super::starting::ROOT_VARIABLE;

/// A command line: a request for help, or a verb to run.
pub enum Line {
    /// The user typed `help [VERB]`, `VERB --help`, or nothing at all.
    Help(Option<&'static Verb>),
    /// The user typed this verb with these arguments.
    Run(&'static Verb, Raw),
}

/// The arguments after the verb. Only the names of the options are checked.
pub struct Raw {
    verb: &'static str,
    /// The words that are not options, in their order.
    pub words: Vec<OsString>,
    options: Vec<Given>,
    /// Flags whose last use is `--flag=false`.
    denied: Vec<&'static str>,
    /// The value of the environment variable [`ROOT_VARIABLE`].
    root_variable: Option<OsString>,
    verbs: &'static [&'static Verb],
}

/// The name of an option with its value, which is empty for a flag.
type Given = (&'static str, OsString);

/// Reads the arguments after the program's name. `root_variable` is the value of [`ROOT_VARIABLE`]. The error
/// is a sentence for the user.
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

/// Returns the value of an option. The value of a flag is empty. A flag may be written `--flag=true`, as with
/// kubectl. Returns None for `--flag=false`, which means that the flag is not given.
fn value(option: Opt, is_long: bool, parser: &mut Parser) -> Result<Option<OsString>, String> {
    let name = option.name;
    if option.takes_value {
        let value = parser.value();
        return value
            .map(Some)
            .map_err(|_| format!("option '--{name}' needs a value"));
    }
    // In a word of one-letter options such as `-it`, the letters after a flag are further options, not a value.
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

/// Returns an option that stands before the verb, if the option has the same meaning in all verbs that have it.
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
    /// Records an option. If the value is None, forgets earlier uses of the option, because the last use counts.
    fn give(&mut self, name: &'static str, value: Option<OsString>) {
        self.denied.retain(|denied| *denied != name);
        match value {
            Some(value) => self.options.push((name, value)),
            None => {
                self.options.retain(|(given, _)| *given != name);
                self.denied.push(name);
            }
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
            denied: Vec::new(),
            root_variable,
            verbs,
        }
    }

    /// Returns the name of the verb that the user typed.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// Returns every verb except `help`, for texts about all verbs.
    pub fn verbs(&self) -> &'static [&'static Verb] {
        self.verbs
    }

    /// Tells whether the command line has this option.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(n, _)| *n == name)
    }

    /// Tells whether the last use of a flag on the command line is `--flag=false`.
    pub fn is_denied(&self, name: &str) -> bool {
        self.denied.contains(&name)
    }

    /// Returns every value of an option that may be repeated.
    pub fn values<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a OsString> {
        let given = self.options.iter().filter(move |(n, _)| *n == name);
        given.map(|(_, value)| value)
    }

    /// Returns the value of an option as text. If the option is repeated, the last value counts, as with
    /// kubectl.
    pub fn text(&self, name: &str) -> Result<Option<String>, String> {
        let last = self.values(name).next_back();
        last.map(|v| utf8(v, &format!("--{name}"))).transpose()
    }

    /// Returns the value of an option as a path.
    pub fn path(&self, name: &str) -> Result<Option<PathBuf>, String> {
        match self.values(name).next_back() {
            Some(v) if v.is_empty() => {
                Err(format!("option '--{name}' needs a path, not an empty word"))
            }
            v => Ok(v.map(PathBuf::from)),
        }
    }

    /// Returns the root directory: the value of `--root`, else the value of PODPROBE_ROOT, else `/`.
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

    /// Returns the value of `--root` only. A verb that removes the root directory calls this method, because a
    /// default root must never be removed.
    pub fn given_root(&self) -> Result<Option<PathBuf>, String> {
        self.path(ROOT.name)?.map(absolute).transpose()
    }

    /// Returns the value of `-n`.
    pub fn namespace(&self) -> Result<Option<String>, String> {
        self.text(NAMESPACE.name)
    }

    /// Returns the value of `-n`, and whether `-A` was given.
    pub fn namespaces(&self) -> Result<(Option<String>, bool), String> {
        match (self.namespace()?, self.has(ALL_NAMESPACES.name)) {
            (Some(_), true) => Err("-n and -A exclude each other".into()),
            choice => Ok(choice),
        }
    }

    /// Returns the label selector of `-l`; None means all objects.
    ///
    /// # Errors
    /// Returns a sentence if the value is not a selector.
    pub fn selector(&self) -> Result<Option<Selector>, String> {
        let given = self.text(SELECTOR.name)?;
        given.map(|text| Selector::parse(&text)).transpose()
    }

    /// Returns an error if there are words after a verb that has only options.
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

    /// Returns the words as text.
    pub fn text_words(&self) -> Result<Vec<String>, String> {
        self.words.iter().map(|w| utf8(w, "an argument")).collect()
    }
}

/// Makes the root an absolute path, because the path becomes part of cgroup names, of the mount table and of
/// the shims' records.
fn absolute(root: PathBuf) -> Result<PathBuf, String> {
    std::path::absolute(&root).map_err(|e| format!("cannot use root {}: {e}", root.display()))
}

fn utf8(word: &OsStr, what: &str) -> Result<String, String> {
    word.to_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("{what} is not valid UTF-8: '{}'", word.to_string_lossy()))
}

/// Helpers for the tests of the verbs' own parsers.
#[cfg(test)]
pub mod testing {
    use super::*;

    /// Parses a line that begins with the verb, and returns the result of `convert`.
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
