//! The command line in two steps: lexopt reads words and options into a raw struct, then one conversion per verb
//! checks them and gives a [`Command`] that needs no further checks.
//!
//! Invariants: pure. An option that a verb does not know is refused, never ignored; a misspelt one names the likely one.

mod probes;

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::{Arg, Parser};

use super::events::Events;

use super::pause::Pause;
use super::probe::ProbeNow;
use crate::settings::RuntimeChoice;
use crate::spelling::nearest;

/// What to do, validated.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// `help [VERB]`, `VERB --help`.
    Help(Option<&'static str>),
    /// `version`; the daemon's root.
    Version(PathBuf),
    /// `run`: the daemon.
    Run(Run),
    /// `try`: a daemon under a root of its own, shown live, removed at the end.
    Try(Try),
    /// `get pods`.
    Get(Get),
    /// `get events`.
    Events(Events),
    /// `describe pod`.
    Describe(Describe),
    /// `probe`.
    Probe(ProbeNow),
    /// `pause` and `resume`.
    Pause(Pause),
    /// `metrics`; the daemon's root.
    Metrics(PathBuf),
    /// `logs`.
    Logs(Logs),
    /// `validate`.
    Validate(Validate),
    /// `image …`.
    Image(Image),
}

/// `run`.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Every path lies below it.
    pub root: PathBuf,
    /// Configuration file; None means the root's own, which may be missing.
    pub config: Option<PathBuf>,
    /// Wins over the configuration.
    pub pods: Option<PathBuf>,
    /// Wins over the configuration.
    pub runtime: Option<RuntimeChoice>,
    /// Wins over the configuration.
    pub node_name: Option<String>,
}

/// `try`.
#[derive(Clone, Debug, PartialEq)]
pub struct Try {
    /// None means a fresh directory that is removed at the end.
    pub root: Option<PathBuf>,
    /// The watched directory.
    pub pods: PathBuf,
    /// Images to load first.
    pub images: Vec<ImageSource>,
    /// None means the default one.
    pub runtime: Option<RuntimeChoice>,
}

/// `FILE` or `FILE=NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// Archive, OCI layout or root directory.
    pub path: PathBuf,
    /// With a name the path is a plain root directory or tar; without one it is an image that carries its name.
    pub name: Option<String>,
}

/// Output form of `get pods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// The table.
    #[default]
    Table,
    /// The table with IP, node and file.
    Wide,
    /// `v1.PodList`, or the `v1.Pod` when one is named.
    Json,
    /// `pod/NAME`.
    Name,
}

/// `get pods`.
#[derive(Clone, Debug, PartialEq)]
pub struct Get {
    /// Where the daemon is.
    pub root: PathBuf,
    /// Empty means all.
    pub names: Vec<String>,
    /// None means all.
    pub namespace: Option<String>,
    /// Show the NAMESPACE column also when every pod is in `default`.
    pub all_namespaces: bool,
    /// What to print.
    pub output: Output,
    /// Go on with the rows that change.
    pub watch: bool,
}

/// `describe pod`.
#[derive(Clone, Debug, PartialEq)]
pub struct Describe {
    /// Where the daemon is.
    pub root: PathBuf,
    /// Empty means all.
    pub names: Vec<String>,
    /// None means all.
    pub namespace: Option<String>,
}

/// `logs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Logs {
    /// Where the daemon is.
    pub root: PathBuf,
    /// The pod.
    pub pod: String,
    /// None means all.
    pub namespace: Option<String>,
    /// May be left out when the pod has one.
    pub container: Option<String>,
    /// Go on until the container ends.
    pub follow: bool,
    /// The instance before.
    pub previous: bool,
}

/// `validate`.
#[derive(Clone, Debug, PartialEq)]
pub struct Validate {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// Suffix of the pods' names; None means the host name.
    pub node_name: Option<String>,
}

/// `image …`. Works on the image store below the root, without a daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Where the store is.
    pub root: PathBuf,
    /// What to do with it.
    pub action: ImageAction,
}

/// The verbs of `image`.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageAction {
    /// `load FILE…`.
    Load(Vec<PathBuf>),
    /// `import PATH NAME`.
    Import(PathBuf, String),
    /// `list`.
    List,
    /// `rm NAME…`.
    Remove(Vec<String>),
}

/// An option: its long name, its letter, whether it takes a value, and the verbs that know it.
struct Spec(&'static str, char, bool, &'static [&'static str]);

const OPTIONS: [Spec; 15] = [
    Spec(
        "root",
        '-',
        true,
        &[
            "run", "try", "get", "describe", "logs", "probe", "pause", "resume", "metrics",
            "validate", "image", "version",
        ],
    ),
    Spec("config", '-', true, &["run"]),
    Spec("pods", '-', true, &["run", "try"]),
    Spec("runtime", '-', true, &["run", "try"]),
    Spec("node-name", '-', true, &["run", "validate"]),
    Spec("image", '-', true, &["try"]),
    Spec("output", 'o', true, &["get"]),
    Spec("watch", 'w', false, &["get"]),
    Spec("all-namespaces", 'A', false, &["get"]),
    Spec(
        "namespace",
        'n',
        true,
        &["get", "describe", "logs", "probe", "pause", "resume"],
    ),
    Spec("for", '-', true, &["pause"]),
    Spec("container", 'c', true, &["logs"]),
    Spec("follow", 'f', false, &["logs"]),
    Spec("previous", 'p', false, &["logs"]),
    Spec("help", 'h', false, &VERBS),
];

/// Every verb a person types, in the order of `help`.
pub const VERBS: [&str; 13] = [
    "run", "try", "get", "describe", "logs", "probe", "pause", "resume", "metrics", "validate",
    "image", "version", "help",
];

/// What stood on the command line, unchecked but for the options' names.
#[derive(Default)]
struct Raw {
    verb: &'static str,
    words: Vec<OsString>,
    options: Vec<(&'static str, OsString)>,
}

/// Reads the arguments after the program's name. The error is a sentence for the person who typed them.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let raw = match read(args)? {
        Some(raw) => raw,
        None => return Ok(Command::Help(None)),
    };
    if raw.has("help") {
        return Ok(Command::Help(Some(raw.verb)));
    }
    match raw.verb {
        "run" => raw.run(),
        "try" => raw.try_out(),
        "get" => raw.get(),
        "describe" => raw.describe(),
        "logs" => raw.logs(),
        "probe" => raw.probe(),
        "pause" | "resume" => raw.pause(),
        "metrics" => raw
            .no_words()
            .and_then(|()| Ok(Command::Metrics(raw.root()?))),
        "validate" => raw.validate(),
        "image" => raw.image(),
        "version" => raw
            .no_words()
            .and_then(|()| Ok(Command::Version(raw.root()?))),
        _ => raw.help(),
    }
}

fn read(args: impl IntoIterator<Item = OsString>) -> Result<Option<Raw>, String> {
    let mut parser = Parser::from_args(args);
    let mut raw = Raw::default();
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Arg::Value(word) if raw.verb.is_empty() => raw.verb = verb(&word.to_string_lossy())?,
            Arg::Value(word) => raw.words.push(word),
            Arg::Long("version") | Arg::Short('V') if raw.verb.is_empty() => raw.verb = "version",
            Arg::Long("help") | Arg::Short('h') if raw.verb.is_empty() => return Ok(None),
            Arg::Long(_) | Arg::Short(_) => {
                let spec = option(&arg, raw.verb)?;
                let value = if spec.2 {
                    parser
                        .value()
                        .map_err(|_| format!("option '--{}' needs a value", spec.0))?
                } else {
                    OsString::new()
                };
                raw.options.push((spec.0, value));
            }
        }
    }
    Ok((!raw.verb.is_empty()).then_some(raw))
}

fn verb(word: &str) -> Result<&'static str, String> {
    let known = VERBS.iter().find(|v| **v == word).copied();
    known.ok_or_else(|| {
        format!(
            "unknown verb '{word}'{}; 'podprobe help' lists the verbs",
            did_you_mean(word, VERBS.iter().copied(), "")
        )
    })
}

/// `; did you mean 'x'?`, or nothing.
fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>, dashes: &str) -> String {
    nearest(word, known)
        .map(|likely| format!(", did you mean '{dashes}{likely}'?"))
        .unwrap_or_default()
}

fn option(arg: &Arg<'_>, verb: &str) -> Result<&'static Spec, String> {
    let (typed, found) = match arg {
        Arg::Long(name) => (format!("--{name}"), OPTIONS.iter().find(|s| s.0 == *name)),
        Arg::Short(c) => (
            format!("-{c}"),
            OPTIONS.iter().find(|s| s.1 == *c && *c != '-'),
        ),
        Arg::Value(_) => (String::new(), None),
    };
    if verb.is_empty() {
        return Err(format!(
            "option '{typed}' stands before the verb; write 'podprobe VERB {typed} …'"
        ));
    }
    match found {
        Some(spec) if spec.3.contains(&verb) => Ok(spec),
        _ => {
            let known = OPTIONS.iter().filter(|s| s.3.contains(&verb)).map(|s| s.0);
            let likely = did_you_mean(typed.trim_start_matches('-'), known, "--");
            Err(format!(
                "'{verb}' has no option '{typed}'{likely}; see 'podprobe help {verb}'"
            ))
        }
    }
}

impl Raw {
    fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(n, _)| *n == name)
    }

    /// The last one given, as kubectl does.
    fn value(&self, name: &str) -> Option<&OsString> {
        self.options
            .iter()
            .rev()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v)
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        self.value(name)
            .map(|v| utf8(v, &format!("--{name}")))
            .transpose()
    }

    fn path(&self, name: &str) -> Result<Option<PathBuf>, String> {
        match self.value(name) {
            Some(v) if v.is_empty() => {
                Err(format!("option '--{name}' needs a path, not an empty word"))
            }
            v => Ok(v.map(PathBuf::from)),
        }
    }

    /// The root is made absolute: it is part of cgroup names, of the mount table and of what the shims write down.
    fn root(&self) -> Result<PathBuf, String> {
        Ok(self.given_root()?.unwrap_or_else(|| PathBuf::from("/")))
    }

    fn given_root(&self) -> Result<Option<PathBuf>, String> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|e| format!("cannot use root {}: {e}", path.display()))
        };
        self.path("root")?.map(absolute).transpose()
    }

    fn runtime(&self) -> Result<Option<RuntimeChoice>, String> {
        let choice = |v: PathBuf| {
            match v.to_str() {
            Some("embedded") if cfg!(feature = "embedded") => Ok(RuntimeChoice::Embedded),
            Some("embedded") => Err(
                "this podprobe was built without the embedded runtime; give the path of an OCI runtime, such as --runtime /usr/bin/runc"
                    .to_owned(),
            ),
            _ if v.is_absolute() => Ok(RuntimeChoice::Path(v)),
            _ => Err(format!("--runtime is 'embedded' or an absolute path such as /usr/bin/runc, not '{}'", v.display())),
        }
        };
        self.path("runtime")?.map(choice).transpose()
    }

    fn no_words(&self) -> Result<(), String> {
        match self.words.first() {
            Some(word) => Err(format!(
                "'{}' takes no argument '{}'; see 'podprobe help {0}'",
                self.verb,
                word.to_string_lossy()
            )),
            None => Ok(()),
        }
    }

    fn words(&self) -> Result<Vec<String>, String> {
        self.words.iter().map(|w| utf8(w, "an argument")).collect()
    }

    fn help(&self) -> Result<Command, String> {
        match self.words.first() {
            Some(word) => Ok(Command::Help(Some(verb(&word.to_string_lossy())?))),
            None => Ok(Command::Help(None)),
        }
    }

    fn run(&self) -> Result<Command, String> {
        self.no_words()?;
        Ok(Command::Run(Run {
            root: self.root()?,
            config: self.path("config")?,
            pods: self.path("pods")?,
            runtime: self.runtime()?,
            node_name: self.text("node-name")?,
        }))
    }

    fn try_out(&self) -> Result<Command, String> {
        self.no_words()?;
        let images = self
            .options
            .iter()
            .filter(|(n, _)| *n == "image")
            .map(|(_, v)| image_source(v))
            .collect::<Result<_, _>>()?;
        let pods = self
            .path("pods")?
            .ok_or("'try' needs a directory of pod files: podprobe try --pods DIR")?;
        Ok(Command::Try(Try {
            root: self.given_root()?,
            pods,
            images,
            runtime: self.runtime()?,
        }))
    }

    /// Names of pods after `pods` or `pod`, or as `pod/NAME`.
    fn pod_names(&self) -> Result<Vec<String>, String> {
        let words = self.words()?;
        let usage = || {
            format!(
                "'{0}' needs what to show: podprobe {0} {1}",
                self.verb,
                if self.verb == "get" {
                    "pods"
                } else {
                    "pod NAME"
                }
            )
        };
        let first = words.first().ok_or_else(usage)?;
        let names = if is_pod_word(first) {
            &words[1..]
        } else {
            &words[..]
        };
        names
            .iter()
            .map(|word| pod_name(word, names.len() == words.len()))
            .collect()
    }

    fn get(&self) -> Result<Command, String> {
        if self
            .words
            .first()
            .is_some_and(|w| w == "events" || w == "event" || w == "ev")
        {
            return self.events();
        }
        let output = match self.text("output")?.as_deref() {
            None => Output::Table,
            Some("wide") => Output::Wide,
            Some("json") => Output::Json,
            Some("name") => Output::Name,
            Some(other) => {
                return Err(format!(
                    "unknown output form '{other}'; -o takes wide, json or name"
                ));
            }
        };
        let (namespace, all_namespaces) = (self.text("namespace")?, self.has("all-namespaces"));
        if namespace.is_some() && all_namespaces {
            return Err("-n and -A exclude each other".into());
        }
        Ok(Command::Get(Get {
            root: self.root()?,
            names: self.pod_names()?,
            namespace,
            all_namespaces,
            output,
            watch: self.has("watch"),
        }))
    }

    fn describe(&self) -> Result<Command, String> {
        Ok(Command::Describe(Describe {
            root: self.root()?,
            names: self.pod_names()?,
            namespace: self.text("namespace")?,
        }))
    }

    fn logs(&self) -> Result<Command, String> {
        let words = self.words()?;
        let (pod, container) = match words.as_slice() {
            [pod] => (pod, self.text("container")?),
            // kubectl takes the container as a second word too.
            [pod, container] if !self.has("container") => (pod, Some(container.clone())),
            _ => {
                return Err(
                    "'logs' needs one pod: podprobe logs POD [-c CONTAINER] [-f] [-p]".into(),
                );
            }
        };
        let pod = if pod.contains('/') {
            pod_name(pod, true)?
        } else {
            pod.clone()
        };
        Ok(Command::Logs(Logs {
            root: self.root()?,
            pod,
            namespace: self.text("namespace")?,
            container,
            follow: self.has("follow"),
            previous: self.has("previous"),
        }))
    }

    fn validate(&self) -> Result<Command, String> {
        if self.words.is_empty() {
            return Err(
                "'validate' needs a file or a directory: podprobe validate FILE|DIR".into(),
            );
        }
        Ok(Command::Validate(Validate {
            paths: self.words.iter().map(PathBuf::from).collect(),
            node_name: self.text("node-name")?,
        }))
    }

    fn image(&self) -> Result<Command, String> {
        const ACTIONS: [&str; 4] = ["load", "import", "list", "rm"];
        let usage = "'image' takes: load FILE…, import PATH NAME, list, or rm NAME…";
        let words = self.words()?;
        let (action, rest) = words.split_first().ok_or(usage)?;
        let action = match (action.as_str(), rest) {
            ("load", [_, ..]) => ImageAction::Load(rest.iter().map(PathBuf::from).collect()),
            ("import", [path, name]) => ImageAction::Import(path.into(), name.clone()),
            ("list" | "ls", []) => ImageAction::List,
            ("rm", [_, ..]) => ImageAction::Remove(rest.to_vec()),
            (known, _) if ACTIONS.contains(&known) => {
                return Err(format!("wrong arguments of 'image {known}': {usage}"));
            }
            (other, _) => {
                return Err(format!(
                    "unknown verb 'image {other}'{}: {usage}",
                    did_you_mean(other, ACTIONS.into_iter(), "image ")
                ));
            }
        };
        Ok(Command::Image(Image {
            root: self.root()?,
            action,
        }))
    }
}

fn utf8(word: &OsString, what: &str) -> Result<String, String> {
    word.to_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("{what} is not valid UTF-8: '{}'", word.to_string_lossy()))
}

fn is_pod_word(word: &str) -> bool {
    matches!(word, "pod" | "pods" | "po")
}

/// `NAME` after `pods`, or `pod/NAME` alone (`slash`).
fn pod_name(word: &str, slash: bool) -> Result<String, String> {
    match (word.split_once('/'), slash) {
        (Some((kind, name)), _) if is_pod_word(kind) && !name.is_empty() => Ok(name.into()),
        (None, false) => Ok(word.into()),
        _ => {
            let kind = word.split('/').next().unwrap_or(word);
            Err(format!(
                "podprobe knows pods only, not '{kind}'; write 'pods {0}' or 'pod/{0}'",
                word.rsplit('/').next().unwrap_or(word)
            ))
        }
    }
}

/// A name may hold `=` only in the path before it, so the last one divides.
fn image_source(value: &OsString) -> Result<ImageSource, String> {
    let (path, name) = match value.to_str().and_then(|v| v.rsplit_once('=')) {
        Some((path, name)) => (PathBuf::from(path), Some(name.to_owned())),
        None => (PathBuf::from(value), None),
    };
    if path.as_os_str().is_empty() || name.as_ref().is_some_and(String::is_empty) {
        return Err(format!(
            "--image takes FILE or FILE=NAME, not '{}'",
            value.to_string_lossy()
        ));
    }
    Ok(ImageSource { path, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[track_caller]
    fn check(line: &str, expected: Command) {
        assert_eq!(parse_line(line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        assert_eq!(parse_line(line), Err(expected.into()), "{line}");
    }

    fn get() -> Get {
        Get {
            root: "/".into(),
            names: vec![],
            namespace: None,
            all_namespaces: false,
            output: Output::Table,
            watch: false,
        }
    }

    #[test]
    fn get_takes_pods_names_and_forms() {
        check("get pods", Command::Get(get()));
        check(
            "get po -o wide -w",
            Command::Get(Get {
                output: Output::Wide,
                watch: true,
                ..get()
            }),
        );
        check(
            "get pods a b -ojson --root=/r",
            Command::Get(Get {
                root: "/r".into(),
                names: vec!["a".into(), "b".into()],
                output: Output::Json,
                ..get()
            }),
        );
        check(
            "get pod/a",
            Command::Get(Get {
                names: vec!["a".into()],
                ..get()
            }),
        );
        check(
            "get pods -A -o name",
            Command::Get(Get {
                all_namespaces: true,
                output: Output::Name,
                ..get()
            }),
        );
        check(
            "get pods -n kube",
            Command::Get(Get {
                namespace: Some("kube".into()),
                ..get()
            }),
        );
    }

    #[test]
    fn run_has_its_options() {
        check(
            "run --config c.json --root /r --pods p --runtime /usr/bin/runc --node-name Edge1",
            Command::Run(Run {
                root: "/r".into(),
                config: Some("c.json".into()),
                pods: Some("p".into()),
                runtime: Some(RuntimeChoice::Path("/usr/bin/runc".into())),
                node_name: Some("Edge1".into()),
            }),
        );
        check(
            "run",
            Command::Run(Run {
                root: "/".into(),
                config: None,
                pods: None,
                runtime: None,
                node_name: None,
            }),
        );
    }

    #[test]
    fn a_relative_root_is_made_absolute() {
        let Ok(Command::Run(run)) = parse_line("run --root rel/ative") else {
            panic!()
        };
        assert_eq!(run.root, std::env::current_dir().unwrap().join("rel/ative"));
    }

    #[test]
    fn try_takes_images_with_and_without_name() {
        let images = vec![
            ImageSource {
                path: "a.tar".into(),
                name: None,
            },
            ImageSource {
                path: "d=ir".into(),
                name: Some("x:latest".into()),
            },
        ];
        check(
            "try --pods p --image a.tar --image d=ir=x:latest",
            Command::Try(Try {
                root: None,
                pods: "p".into(),
                images,
                runtime: None,
            }),
        );
        check_error(
            "try",
            "'try' needs a directory of pod files: podprobe try --pods DIR",
        );
        check_error(
            "try --pods p --image =x",
            "--image takes FILE or FILE=NAME, not '=x'",
        );
    }

    #[test]
    fn logs_takes_one_pod() {
        let logs = Logs {
            root: "/".into(),
            pod: "a".into(),
            namespace: None,
            container: None,
            follow: false,
            previous: false,
        };
        check("logs a", Command::Logs(logs.clone()));
        check("logs pod/a", Command::Logs(logs.clone()));
        check(
            "logs a -c b -f -p",
            Command::Logs(Logs {
                container: Some("b".into()),
                follow: true,
                previous: true,
                ..logs.clone()
            }),
        );
        check(
            "logs a -fp b",
            Command::Logs(Logs {
                container: Some("b".into()),
                follow: true,
                previous: true,
                ..logs
            }),
        );
        check_error(
            "logs",
            "'logs' needs one pod: podprobe logs POD [-c CONTAINER] [-f] [-p]",
        );
        check_error(
            "logs a b c",
            "'logs' needs one pod: podprobe logs POD [-c CONTAINER] [-f] [-p]",
        );
    }

    #[test]
    fn images() {
        let image = |action| {
            Command::Image(Image {
                root: "/r".into(),
                action,
            })
        };
        check(
            "image load a b --root /r",
            image(ImageAction::Load(vec!["a".into(), "b".into()])),
        );
        check(
            "image import dir x:1 --root /r",
            image(ImageAction::Import("dir".into(), "x:1".into())),
        );
        check("image list --root /r", image(ImageAction::List));
        check(
            "image rm x y --root /r",
            image(ImageAction::Remove(vec!["x".into(), "y".into()])),
        );
        let usage = "'image' takes: load FILE…, import PATH NAME, list, or rm NAME…";
        check_error("image", usage);
        check_error(
            "image load",
            &format!("wrong arguments of 'image load': {usage}"),
        );
        check_error(
            "image imprt a b",
            &format!("unknown verb 'image imprt', did you mean 'image import'?: {usage}"),
        );
    }

    #[test]
    fn help_and_version_in_every_form() {
        for line in ["", "help", "--help", "-h"] {
            check(line, Command::Help(None));
        }
        check("help get", Command::Help(Some("get")));
        check("get --help", Command::Help(Some("get")));
        check("image load -h", Command::Help(Some("image")));
        for line in ["version", "--version", "-V"] {
            check(line, Command::Version("/".into()));
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
            "run --rot /r",
            "'run' has no option '--rot', did you mean '--root'?; see 'podprobe help run'",
        );
        check_error(
            "get pods --follow",
            "'get' has no option '--follow'; see 'podprobe help get'",
        );
        check_error(
            "get pods -x",
            "'get' has no option '-x'; see 'podprobe help get'",
        );
    }

    #[test]
    fn what_is_missing_or_too_much_is_said() {
        check_error("run --root", "option '--root' needs a value");
        check_error(
            "run now",
            "'run' takes no argument 'now'; see 'podprobe help run'",
        );
        check_error(
            "--root /r get pods",
            "option '--root' stands before the verb; write 'podprobe VERB --root …'",
        );
        check_error("get", "'get' needs what to show: podprobe get pods");
        check_error(
            "describe",
            "'describe' needs what to show: podprobe describe pod NAME",
        );
        check_error(
            "get nodes",
            "podprobe knows pods only, not 'nodes'; write 'pods nodes' or 'pod/nodes'",
        );
        check_error(
            "get pods -o yaml",
            "unknown output form 'yaml'; -o takes wide, json or name",
        );
        check_error("get pods -A -n x", "-n and -A exclude each other");
        check_error(
            "run --runtime runc",
            "--runtime is 'embedded' or an absolute path such as /usr/bin/runc, not 'runc'",
        );
        check_error(
            "validate",
            "'validate' needs a file or a directory: podprobe validate FILE|DIR",
        );
        assert!(
            parse_line("get pods -w=yes")
                .unwrap_err()
                .contains("unexpected"),
            "{:?}",
            parse_line("get pods -w=yes")
        );
        assert!(
            parse_line("get pods --watch=yes")
                .unwrap_err()
                .contains("unexpected argument")
        );
    }

    #[test]
    fn an_empty_root_is_refused() {
        let line = ["run", "--root", ""].map(OsString::from);
        assert_eq!(
            parse(line),
            Err("option '--root' needs a path, not an empty word".into())
        );
    }
}
