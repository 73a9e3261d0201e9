//! Fields of an object by path, and the errors of a field in the forms of kubelet-probes 1.2.
//!
//! Invariant: one place writes paths. `push_key` decides between `.key` and `[key]` for errors, for
//! unread fields and for the scanner that finds lines, so all three write the same path for a
//! field.

use std::fmt;

use serde_json::Value;

/// The type of a [`FieldError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// Must be set.
    Required,
    /// Has a value that is not allowed.
    Invalid,
    /// Is not in a short list of values.
    NotSupported,
    /// May not be set here.
    Forbidden,
    /// Must be unique.
    Duplicate,
    /// Names an object that does not exist.
    NotFound,
    /// Too many bytes.
    TooLong,
    /// Too many items.
    TooMany,
    /// A bug of podprobe.
    Internal,
}

impl FieldErrorKind {
    /// The type text of kubelet-probes 1.2.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }

    /// True if the text of such an error contains the bad value.
    pub fn prints_value(self) -> bool {
        matches!(
            self,
            Self::Invalid | Self::NotSupported | Self::Duplicate | Self::NotFound | Self::TooMany
        )
    }
}

/// An error of one field. Prints as `<path>: <type text>[: <bad value>][: <detail>]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `spec.containers[0].livenessProbe.httpGet.port`.
    pub path: String,
    /// The type of the error.
    pub kind: FieldErrorKind,
    /// The bad value as printed: strings quoted, numbers plain, the rest as JSON.
    pub value: Option<String>,
    /// Detail of the error, such as the allowed values; may be empty.
    pub detail: String,
}

impl FieldError {
    fn new(
        path: impl Into<String>,
        kind: FieldErrorKind,
        value: Option<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            kind,
            value,
            detail: detail.into(),
        }
    }

    /// The field must be set.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Required, None, detail)
    }

    /// The field's value is not allowed.
    pub fn invalid(
        path: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(
            path,
            FieldErrorKind::Invalid,
            Some(value.into().to_string()),
            detail,
        )
    }

    /// The field's value is none of `supported`.
    pub fn not_supported(
        path: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> Self {
        let mut sorted: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        sorted.sort();
        let detail = format!("supported values: {}", sorted.join(", "));
        Self::new(
            path,
            FieldErrorKind::NotSupported,
            Some(value.into().to_string()),
            detail,
        )
    }

    /// The field may not be set here.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Forbidden, None, detail)
    }

    /// The field's value is taken.
    pub fn duplicate(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(
            path,
            FieldErrorKind::Duplicate,
            Some(value.into().to_string()),
            "",
        )
    }

    /// The field names an object that does not exist.
    pub fn not_found(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(
            path,
            FieldErrorKind::NotFound,
            Some(value.into().to_string()),
            "",
        )
    }

    /// The field has more than `max` bytes.
    pub fn too_long(path: impl Into<String>, max: usize) -> Self {
        Self::new(
            path,
            FieldErrorKind::TooLong,
            None,
            format!("may not be more than {max} bytes"),
        )
    }

    /// The field has more than `max` items.
    pub fn too_many(path: impl Into<String>, actual: usize, max: usize) -> Self {
        Self::new(
            path,
            FieldErrorKind::TooMany,
            Some(actual.to_string()),
            format!("must have at most {max} items"),
        )
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.kind.as_str())?;
        if let Some(value) = self.value.as_deref().filter(|_| self.kind.prints_value()) {
            write!(f, ": {}", clip(value))?;
        }
        if self.detail.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.detail)
        }
    }
}

/// Several errors in one line: `[e1, e2]`, or the one error alone (kubelet-probes 1.2).
pub fn aggregate<T: fmt::Display>(errors: &[T]) -> String {
    match errors {
        [one] => one.to_string(),
        all => format!(
            "[{}]",
            all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// The longest value or name that a text contains uncut, in characters.
const CLIP: usize = 160;

/// `text`, cut to a length that suits a terminal and a log line.
pub(crate) fn clip(text: &str) -> String {
    match text.char_indices().nth(CLIP) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// `path.name`.
pub(crate) fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// `path[i]`.
pub(crate) fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// `path[key]`: an entry of a map whose keys the user chooses.
pub(crate) fn entry(path: &str, key: &str) -> String {
    format!("{path}[{}]", clip(key))
}

/// Fields whose keys the user chooses; their entries print as `labels[key]`.
const MAPS: [&str; 11] = [
    "labels",
    "annotations",
    "limits",
    "requests",
    "nodeSelector",
    "matchLabels",
    "overhead",
    "data",
    "stringData",
    "binaryData",
    "selector",
];

/// True if the value at `path` is a map whose keys the user chooses.
pub(crate) fn is_map(path: &str) -> bool {
    MAPS.contains(&path.rsplit('.').next().unwrap_or(path))
}

/// Lengthens `path` by a key, as `.key` or as `[key]`; a key too long to read is cut.
pub(crate) fn push_key(path: &mut String, key: &str) {
    *path = if is_map(path) {
        entry(path, key)
    } else {
        child(path, &clip(key))
    };
}

/// A step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into an object.
    Key(String),
    /// Into an array.
    Index(usize),
}

/// The path as the API writes it.
pub(crate) fn render(steps: &[Step]) -> String {
    steps.iter().fold(String::new(), |mut path, step| {
        match step {
            Step::Key(key) => push_key(&mut path, key),
            Step::Index(index) => path = item(&path, *index),
        }
        path
    })
}

/// The value at the end of the steps.
pub(crate) fn lookup<'v>(value: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Index(index) => value.get(index),
    })
}

/// Returns the value at the end of the steps, to change it.
pub(crate) fn lookup_mut<'v>(value: &'v mut Value, steps: &[Step]) -> Option<&'v mut Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: FieldError, expected: &str) {
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn every_kind_prints_as_the_api_does() {
        check(FieldError::required("p", ""), "p: Required value");
        check(FieldError::required("p", "why"), "p: Required value: why");
        check(
            FieldError::invalid("p", -1, "must be 1"),
            "p: Invalid value: -1: must be 1",
        );
        check(
            FieldError::invalid("p", "a\"b", "no"),
            r#"p: Invalid value: "a\"b": no"#,
        );
        check(
            FieldError::not_supported("p", "x", &["B", "A"]),
            r#"p: Unsupported value: "x": supported values: "A", "B""#,
        );
        check(FieldError::forbidden("p", "no"), "p: Forbidden: no");
        check(
            FieldError::duplicate("p", "TCP//8080"),
            r#"p: Duplicate value: "TCP//8080""#,
        );
        check(FieldError::not_found("p", "v"), r#"p: Not found: "v""#);
        check(
            FieldError::too_long("p", 63),
            "p: Too long: may not be more than 63 bytes",
        );
        check(
            FieldError::too_many("p", 30, 20),
            "p: Too many: 30: must have at most 20 items",
        );
        check(
            FieldError {
                kind: FieldErrorKind::Internal,
                ..FieldError::forbidden("p", "x")
            },
            "p: Internal error: x",
        );
    }

    #[test]
    fn several_errors_join_and_one_stands_alone() {
        assert_eq!(aggregate(&["a"]), "a");
        assert_eq!(aggregate(&["a", "b"]), "[a, b]");
    }

    #[test]
    fn keys_the_user_chooses_stand_in_brackets() {
        let steps = |keys: &[&str]| {
            keys.iter()
                .map(|k| Step::Key((*k).into()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            render(&steps(&["metadata", "annotations", "a/b.c"])),
            "metadata.annotations[a/b.c]"
        );
        let probe = [
            steps(&["spec", "containers"]),
            vec![Step::Index(3)],
            steps(&["livenessProbe"]),
        ]
        .concat();
        assert_eq!(render(&probe), "spec.containers[3].livenessProbe");
    }

    #[test]
    fn a_huge_value_is_cut_in_the_text() {
        assert!(
            FieldError::invalid("p", "ä".repeat(100_000), "no")
                .to_string()
                .len()
                < 500
        );
    }
}
