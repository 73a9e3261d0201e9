//! The groups with their tests, and the parts that all of them need.

use std::fmt::Debug;
use std::time::Duration;

use podprobe::api::ProbeType;
use podprobe::pods::prober::results::ProbeResult;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

mod balancer;
mod config;
mod exec;
mod grpc_tcp;
pub mod harness;
pub mod http;
#[path = "../support/http_server.rs"]
mod http_server;
mod lifecycle;
mod manager;
mod phase;
mod podactions;
mod ports_urls;
mod service_config;
mod validation;
mod worker;
mod world;

/// A case that did not fail.
pub enum Passed {
    /// It is as told.
    AsTold,
    /// A decision of podprobe says otherwise, and it is as decided; with the decision.
    Overruled(String),
    /// It needs what this machine or user lacks; with what that is.
    Skipped(&'static str),
}

/// What came of a case; an error says what was expected and what was got.
pub type Verdict = Result<Passed, String>;

/// The test of a case by its id.
pub type Test = (&'static str, fn(&Case) -> Verdict);

/// What came of several, each with its name.
pub type Rows = Vec<(String, Verdict)>;

/// How a group is run.
pub enum Run {
    /// Each case from its fields alone.
    Each(fn(&Case) -> Verdict),
    /// Each case by the test of its id: its fields do not suffice.
    Told(&'static [Test]),
    /// Rows that are no cases of their own; gives their names.
    Rows(fn(&Value) -> Result<Rows, String>),
    /// A text for people.
    Text,
}

/// A group of a file.
pub struct Group {
    /// Its key.
    pub key: &'static str,
    /// What runs it.
    pub run: Run,
}

const fn group(key: &'static str, run: Run) -> Group {
    Group { key, run }
}

/// Every group of every file.
pub const FILES: &[(&str, &[Group])] = &[
    ("validation", validation::GROUPS),
    ("ports-urls", ports_urls::GROUPS),
    ("http", http::GROUPS),
    ("exec", exec::GROUPS),
    ("grpc-tcp", grpc_tcp::GROUPS),
    ("worker", worker::GROUPS),
    ("manager", manager::GROUPS),
    ("config", config::GROUPS),
    ("lifecycle", lifecycle::GROUPS),
    ("phase", phase::GROUPS),
    ("podactions", podactions::GROUPS),
    ("balancer", balancer::GROUPS),
    ("service-config", service_config::GROUPS),
];

/// One case: its name, and its fields without those that are for people.
pub struct Case {
    /// `id`, or the group's name and the place in it.
    pub id: String,
    value: Value,
}

impl Case {
    /// The fields; one that is not in `T` fails.
    pub fn fields<T: DeserializeOwned>(&self) -> Result<T, String> {
        fields(&self.value)
    }

    /// A case whose fields do not matter to its test: it must have these and no others.
    pub fn has_only(&self, known: &[&str]) -> Result<(), String> {
        let object = self.value.as_object().ok_or("expected an object")?;
        match object.keys().find(|k| !known.contains(&k.as_str())) {
            Some(unknown) => Err(format!("unknown field \"{unknown}\"")),
            None => Ok(()),
        }
    }
}

/// Reads a value; unknown fields fail by the type's `deny_unknown_fields`.
pub fn fields<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|e| format!("cannot read the case: {e}"))
}

/// The cases of a group: a list, or one object.
pub fn cases(key: &str, value: &Value) -> Vec<Case> {
    let one = |(place, value): (String, &Value)| {
        let mut value = value.clone();
        let mut id = None;
        if let Some(object) = value.as_object_mut() {
            id = object
                .shift_remove("id")
                .and_then(|id| id.as_str().map(str::to_owned));
            ["upstreamTest", "origin", "note"]
                .iter()
                .for_each(|k| drop(object.shift_remove(*k)));
        }
        Case {
            id: id.unwrap_or(place),
            value,
        }
    };
    match value {
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(i, v)| one((format!("{key}[{i}]"), v)))
            .collect(),
        value => vec![one((key.into(), value))],
    }
}

/// Fields that tell a case in words; a test by id is written for these words.
const WORDS: &[&str] = &[
    "in", "pod", "pods", "then", "desired", "expect", "case", "rule", "shape", "where", "probe",
    "note",
];

/// Whether a case that is told in words is the one its test was written for: that of the same id among our own.
pub fn same_words(key: &str, id: &str, given: &Value, own: &Value) -> bool {
    let words = |of: &Value| {
        let list = of.as_array().cloned().unwrap_or_else(|| vec![of.clone()]);
        let found = list
            .into_iter()
            .find(|c| c["id"].as_str().unwrap_or(key) == id)?;
        Some(
            WORDS
                .iter()
                .map(|w| found.get(*w).cloned())
                .collect::<Vec<_>>(),
        )
    };
    words(given) == words(own)
}

/// A case that a decision overrules.
pub fn overruled(reason: impl Into<String>) -> Passed {
    Passed::Overruled(reason.into())
}

/// Compares.
pub fn same<T: PartialEq + Debug>(what: &str, expected: T, got: T) -> Result<(), String> {
    if expected == got {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, got {got:?}"))
    }
}

/// A condition that is only told of in words.
pub fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("expected: {what}; it is not so"))
    }
}

/// As told, when all comparisons before held.
pub const AS_TOLD: Verdict = Ok(Passed::AsTold);

/// A word that no one told us the meaning of.
pub fn unknown<T>(what: &str, word: &str) -> Result<T, String> {
    Err(format!("unknown {what} \"{word}\""))
}

/// In Go's form: `10s`, `100ms`, `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let unknown = || format!("unknown duration \"{text}\"");
    let (mut rest, mut sum) = (text, Duration::ZERO);
    if text.is_empty() {
        return Err(unknown());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .ok_or_else(unknown)?;
        let unit = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |n| digits + n);
        let number: u64 = rest[..digits].parse().map_err(|_| unknown())?;
        sum += match &rest[digits..unit] {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(60 * number),
            "h" => Duration::from_secs(3600 * number),
            _ => return Err(unknown()),
        };
        rest = &rest[unit..];
    }
    Ok(sum)
}

/// `liveness`, `readiness`, `startup`.
pub fn probe_type(word: &str) -> Result<ProbeType, String> {
    match ProbeType::ALL
        .into_iter()
        .find(|t| t.as_str().eq_ignore_ascii_case(word))
    {
        Some(t) => Ok(t),
        None => unknown("probe type", word),
    }
}

/// A value of the result caches.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub enum Cached {
    Success,
    Failure,
    Unknown,
}

impl From<Cached> for ProbeResult {
    fn from(c: Cached) -> Self {
        match c {
            Cached::Success => Self::Success,
            Cached::Failure => Self::Failure,
            Cached::Unknown => Self::Unknown,
        }
    }
}

/// One value for all probe types, or one for each.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum PerType<T> {
    One(T),
    Each(EachType<T>),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EachType<T> {
    liveness: Option<T>,
    readiness: Option<T>,
    startup: Option<T>,
}

impl<T: Copy> PerType<T> {
    /// The value for that type; None when it is not told.
    pub fn of(&self, probe_type: ProbeType) -> Option<T> {
        match self {
            Self::One(value) => Some(*value),
            Self::Each(each) => match probe_type {
                ProbeType::Liveness => each.liveness,
                ProbeType::Readiness => each.readiness,
                ProbeType::Startup => each.startup,
            },
        }
    }
}
