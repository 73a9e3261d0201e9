//! Checks that several objects of a pod need.

use crate::api::field::FieldError;

pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

pub(super) const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// Adds an error for each complaint of `rule` about `value`.
pub(super) fn named(
    errors: &mut Vec<FieldError>,
    path: &str,
    value: &str,
    rule: impl Fn(&str) -> Vec<String>,
) {
    errors.extend(
        rule(value)
            .into_iter()
            .map(|detail| FieldError::invalid(path, value, detail)),
    );
}

pub(super) fn not_negative(errors: &mut Vec<FieldError>, path: &str, value: impl Into<i64>) {
    let value = value.into();
    if value < 0 {
        errors.push(FieldError::invalid(path, value, NOT_NEGATIVE));
    }
}

pub(super) fn range(errors: &mut Vec<FieldError>, path: &str, value: i64, low: i64, high: i64) {
    if !(low..=high).contains(&value) {
        errors.push(FieldError::invalid(
            path,
            value,
            format!("must be between {low} and {high}, inclusive"),
        ));
    }
}

/// Refuses a text with a NUL. The kernel ends a text at the first NUL, so the rest of the text would be lost without
/// notice.
pub(super) fn no_nul(errors: &mut Vec<FieldError>, path: &str, text: &str) {
    if text.contains('\0') {
        errors.push(FieldError::invalid(
            path,
            text,
            "must not contain a NUL character (\\u0000)",
        ));
    }
}

pub(super) fn descending_path(errors: &mut Vec<FieldError>, path: &str, text: &str) {
    no_nul(errors, path, text);
    if text.starts_with('/') {
        errors.push(FieldError::invalid(path, text, "must be a relative path"));
    }
    no_backsteps(errors, path, text);
}

pub(super) fn no_backsteps(errors: &mut Vec<FieldError>, path: &str, text: &str) {
    if text.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, text, "must not contain '..'"));
    }
}

/// Checks a path that is written into a volume of objects, with the rules of [`descending_path`]. The path may not
/// begin with `..` either: the writer of the volume uses such names.
pub(super) fn local_path(errors: &mut Vec<FieldError>, path: &str, text: &str) {
    descending_path(errors, path, text);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.push(FieldError::invalid(path, text, "must not start with '..'"));
    }
}

/// Checks the permission bits of a file.
pub(super) fn mode(errors: &mut Vec<FieldError>, path: &str, mode: Option<i32>) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(path, mode, detail));
    }
}

pub(super) fn one_of(errors: &mut Vec<FieldError>, value: &str, supported: &[&str], path: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, value, supported));
    }
}

/// Checks that a value is among the known ones. Unlike [`one_of`], this check has no error of its own for an empty
/// value, because the value has a default.
pub(super) fn supported(errors: &mut Vec<FieldError>, path: &str, value: &str, known: &[&str]) {
    if !known.contains(&value) {
        errors.push(FieldError::not_supported(path, value, known));
    }
}
