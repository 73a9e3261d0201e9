//! The problems of a pod file, as texts for people.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::locate;
use super::place::{FieldPlace, Position, Spot, Syntax};
use crate::api::field::{aggregate, clip, render};
use crate::api::validation::{FieldError, FieldErrorKind};
use crate::base::spelling;

/// Largest number of problems that are reported for one file. Further problems are only counted.
pub(super) const MOST: usize = 64;

/// The error of a pod file that cannot be used. The error prints as one line for each problem:
/// `<file>:<line>:<column>: <path>: <text>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    file: PathBuf,
    problems: Vec<Problem>,
    left_out: usize,
}

/// A problem of a pod file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Position of the problem; None if the problem concerns the whole file.
    pub position: Option<Position>,
    /// Text of the problem. If the problem has a field, the text starts with the path of the field.
    pub text: String,
}

impl DecodeError {
    /// Returns an error with a single problem.
    pub(super) fn one(file: &Path, position: Option<Position>, text: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            problems: vec![Problem {
                position,
                text: text.into(),
            }],
            left_out: 0,
        }
    }

    /// Returns the problems, at most 64.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns all problems in one line without positions, for an event or a status: `invalid pod: [e1, e2]`
    /// (kubelet-probes 1.2).
    pub fn one_line(&self) -> String {
        let texts: Vec<&str> = self
            .problems
            .iter()
            .map(|problem| problem.text.as_str())
            .collect();
        format!("invalid pod: {}", aggregate(&texts))
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { position, text }) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:", self.file.display())?;
            if let Some(Position { line, column }) = position {
                write!(f, "{line}:{column}:")?;
            }
            write!(f, " {text}")?;
        }
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more problems", self.file.display()),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The place of a problem.
enum Place {
    Field(FieldPlace),
    At(Position),
    File,
}

/// Collects the problems of one file.
pub(super) struct Findings<'t> {
    text: &'t str,
    syntax: Syntax,
    file: &'t Path,
    /// Index of the document that is being decoded.
    document: usize,
    /// Path of the object that is being decoded, with a dot at the end, if the object is an item of a list. Otherwise
    /// the path is empty.
    prefix: String,
    /// Path of the template in the object, with a dot at the end, while the template is decoded. Otherwise the path is
    /// empty.
    template: String,
    problems: Vec<(Place, String)>,
    left_out: usize,
    /// Paths of fields with further problems that follow from a reported problem. These further problems are not
    /// reported.
    hidden: BTreeSet<String>,
}

impl<'t> Findings<'t> {
    pub(super) fn new(text: &'t str, syntax: Syntax, file: &'t Path) -> Self {
        Self {
            text,
            syntax,
            file,
            document: 0,
            prefix: String::new(),
            template: String::new(),
            problems: Vec::new(),
            left_out: 0,
            hidden: BTreeSet::new(),
        }
    }

    /// Enters an object. From now on, paths are relative to the object at `spot`.
    pub(super) fn enter(&mut self, spot: &Spot) {
        self.document = spot.document;
        self.prefix = if spot.around.is_empty() {
            String::new()
        } else {
            format!("{}.", render(&spot.around))
        };
        self.hidden.clear();
    }

    /// Enters the template at `path` of the object. From now on, paths are relative to the template.
    pub(super) fn enter_template(&mut self, path: &str) {
        self.template = format!("{path}.");
    }

    /// Leaves the template. From now on, paths are relative to the object again.
    pub(super) fn leave_template(&mut self) {
        self.template.clear();
    }

    /// Adds a problem of the field at `path`, and hides further problems of the field. `text` starts with the path.
    pub(super) fn add_for(&mut self, path: &str, text: String) {
        self.hide(path);
        let place = self.field(path);
        let text = format!("{}{}{text}", self.prefix, self.template);
        self.add(place, text);
    }

    /// Adds a problem with a position that is already known.
    pub(super) fn add_at(&mut self, at: Position, text: String) {
        self.add(Place::At(at), text);
    }

    /// Adds a problem of the whole document.
    pub(super) fn add_for_document(&mut self, text: String) {
        let place = match self.document {
            0 => Place::File,
            _ => self.field(""),
        };
        let text = match self.document {
            0 => text,
            n => format!("document {}: {text}", n + 1),
        };
        self.add(place, text);
    }

    fn field(&self, path: &str) -> Place {
        Place::Field(FieldPlace {
            document: self.document,
            path: format!("{}{}{path}", self.prefix, self.template),
        })
    }

    /// Adds an error of validation, unless the error follows from a problem that is already reported.
    pub(super) fn add_error(&mut self, error: &FieldError) {
        if !self
            .hidden
            .iter()
            .any(|hidden| is_within(hidden, &error.path) || is_within(&error.path, hidden))
        {
            let place = self.field(&error.path);
            let text = format!("{}{}{error}{}", self.prefix, self.template, hint(error));
            self.add(place, text);
        }
    }

    /// Adds the error that the object has no name, in plain words. `what` is the word for the object.
    pub(super) fn needs_a_name(&mut self, what: &str) {
        let why = format!("name is needed for the {what}");
        self.add_error(&FieldError::required("metadata.name", why));
        self.hide("metadata.name");
    }

    /// Hides further problems of the field at `path`, of the fields in it and of the fields around it.
    pub(super) fn hide(&mut self, path: &str) {
        if self.hidden.len() < 2 * MOST {
            self.hidden.insert(format!("{}{path}", self.template));
        }
    }

    fn add(&mut self, place: Place, text: String) {
        if self.problems.len() < MOST {
            self.problems.push((place, text));
        } else {
            self.left_out += 1;
        }
    }

    /// Returns `good` if there are no problems, else all problems as an error.
    pub(super) fn into_result<T>(self, good: T) -> Result<T, DecodeError> {
        if self.problems.is_empty() {
            return Ok(good);
        }
        let fields: Vec<FieldPlace> = self
            .problems
            .iter()
            .filter_map(|(place, _)| match place {
                Place::Field(field) => Some(field.clone()),
                Place::At(_) | Place::File => None,
            })
            .collect();
        let mut positions = locate::positions(self.text, self.syntax, &fields).into_iter();
        let problems = self.problems.into_iter().map(|(place, text)| {
            let position = match place {
                Place::Field(_) => positions
                    .next()
                    .flatten()
                    .or(Some(Position { line: 1, column: 1 })),
                Place::At(at) => Some(at),
                Place::File => None,
            };
            Problem { position, text }
        });
        Err(DecodeError {
            file: self.file.to_owned(),
            problems: problems.collect(),
            left_out: self.left_out,
        })
    }
}

/// True if the path `inner` names the field `outer` or a field inside of it.
fn is_within(inner: &str, outer: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Returns a hint what to write instead of the bad value; empty if no guess is possible. In the error, the hint
/// follows the API's own text.
fn hint(error: &FieldError) -> String {
    let Some(value) = error
        .value
        .as_deref()
        .and_then(|value| serde_json::from_slice::<String>(value.as_bytes()).ok())
    else {
        return String::new();
    };
    let supported: Vec<&str> = match error.kind {
        FieldErrorKind::NotFound if error.path.contains(".volumeMounts[") => {
            return "; spec.volumes has no volume of that name".to_owned();
        }
        FieldErrorKind::NotSupported => error.detail.split('"').skip(1).step_by(2).collect(),
        FieldErrorKind::Invalid if error.path.contains(".capabilities.") => {
            crate::api::validation::CAPABILITIES.to_vec()
        }
        FieldErrorKind::Invalid
            if [".port", ".targetPort"]
                .iter()
                .any(|f| error.path.ends_with(f))
                && value.parse::<u16>().is_ok() =>
        {
            return format!("; write {value} without quotes");
        }
        _ => return String::new(),
    };
    let plain = value.to_uppercase();
    let plain = plain
        .strip_prefix("CAP_")
        .filter(|_| error.kind == FieldErrorKind::Invalid)
        .unwrap_or(&value);
    spelling::nearest(plain, supported).map_or_else(String::new, |name| {
        format!("; did you mean \"{}\"?", clip(name))
    })
}
