//! The paths of fields in objects, and the errors of fields in the forms of kubelet-probes 1.2.
//!
//! Invariant: one place writes paths. `push_key` decides between `.key` and `[key]` for errors, for unread fields and
//! for the scanner that finds lines. So all three write the same path for a field.

use std::fmt;

use serde_json::Value;

pub(crate) use crate::base::json::Step;

/// The type of a [`FieldError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The field must be set.
    Required,
    /// The field has a value that is not allowed.
    Invalid,
    /// The field's value is not in a short list of values.
    NotSupported,
    /// The field may not be set at this place.
    Forbidden,
    /// The field's value must be unique.
    Duplicate,
    /// The field names an object that does not exist.
    NotFound,
    /// The field has too many bytes.
    TooLong,
    /// The field has too many items.
    TooMany,
    /// Podprobe has a bug.
    Internal,
}

impl FieldErrorKind {
    /// Returns the text for the type, in the words of kubelet-probes 1.2.
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

    /// True if the text of an error of this type contains the bad value.
    pub fn prints_value(self) -> bool {
        matches!(
            self,
            Self::Invalid | Self::NotSupported | Self::Duplicate | Self::NotFound | Self::TooMany
        )
    }
}

/// An error of one field. The error prints as `<path>: <type text>[: <bad value>][: <detail>]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.containers[0].livenessProbe.httpGet.port`.
    pub path: String,
    /// The type of the error.
    pub kind: FieldErrorKind,
    /// Bad value as it is printed: strings in quotes, numbers plain, other values as JSON.
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

    /// Returns the error that the field must be set.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Required, None, detail)
    }

    /// Returns the error that the field's value is not allowed.
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

    /// Returns the error that the field's value is not one of `supported`.
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

    /// Returns the error that the field may not be set at this place.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Forbidden, None, detail)
    }

    /// Returns the error that the field's value is already in use.
    pub fn duplicate(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(
            path,
            FieldErrorKind::Duplicate,
            Some(value.into().to_string()),
            "",
        )
    }

    /// Returns the error that the field names an object that does not exist.
    pub fn not_found(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(
            path,
            FieldErrorKind::NotFound,
            Some(value.into().to_string()),
            "",
        )
    }

    /// Returns the error that the field has more than `max` bytes.
    pub fn too_long(path: impl Into<String>, max: usize) -> Self {
        Self::new(
            path,
            FieldErrorKind::TooLong,
            None,
            format!("may not be more than {max} bytes"),
        )
    }

    /// Returns the error that the field has more than `max` items. `actual` is the number of items.
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

/// Prints several errors in one line: `[e1, e2]`, or a single error without brackets (kubelet-probes 1.2).
pub fn aggregate<T: fmt::Display>(errors: &[T]) -> String {
    match errors {
        [one] => one.to_string(),
        all => format!(
            "[{}]",
            all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Longest value or name that a text contains without being cut, in characters.
const CLIP: usize = 160;

/// Returns `text`, cut to a length that suits a terminal and a log line.
pub(crate) fn clip(text: &str) -> String {
    match text.char_indices().nth(CLIP) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the path of a field: `path.name`.
pub fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Returns the path of an item of a list: `path[index]`.
pub fn item(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// Returns the path of an entry of a map: `path[key]`. The user chooses the keys of such a map.
pub(crate) fn entry(path: &str, key: &str) -> String {
    format!("{path}[{}]", clip(key))
}

/// Fields that are maps with keys that the user chooses. Their entries print as `labels[key]`.
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

/// True if the value at `path` is a map with keys that the user chooses.
pub(crate) fn is_map(path: &str) -> bool {
    MAPS.contains(&path.rsplit('.').next().unwrap_or(path))
}

/// True if `key` is a key that the user chose in the map at `path`. The selector of a workload has the fields
/// `matchLabels` and `matchExpressions`, and the selector of a Service has keys that the user chose.
pub(crate) fn is_entry(path: &str, key: &str) -> bool {
    is_map(path) && !(path.ends_with("selector") && SELECTOR_FIELDS.contains(&key))
}

/// Fields of a selector that is not a map of labels.
const SELECTOR_FIELDS: [&str; 2] = ["matchLabels", "matchExpressions"];

/// Adds a key to `path`, as `.key` or as `[key]`. A key that is too long to read is cut.
pub(crate) fn push_key(path: &mut String, key: &str) {
    *path = if is_entry(path, key) {
        entry(path, key)
    } else {
        child(path, &clip(key))
    };
}

/// Renders steps as a path, in the API's form.
pub(crate) fn render(steps: &[Step]) -> String {
    steps.iter().fold(String::new(), |mut path, step| {
        match step {
            Step::Key(key) => push_key(&mut path, key),
            Step::Index(index) => path = item(&path, *index),
        }
        path
    })
}

/// Returns the value that the steps lead to; None if a step leads nowhere.
pub(crate) fn lookup<'v>(value: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Index(index) => value.get(index),
    })
}

/// Returns the value that the steps lead to, to change it; None if a step leads nowhere.
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
        assert_eq!(
            render(&steps(&["spec", "selector", "matchLabels", "app"])),
            "spec.selector.matchLabels[app]"
        );
        assert_eq!(
            render(&steps(&["spec", "selector", "app"])),
            "spec.selector[app]"
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
