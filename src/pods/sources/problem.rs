//! The problem of a pod file, for people.

use serde::{Deserialize, Serialize};

/// A file in the pods directory whose present content does not run, or not all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileProblem {
    /// Path of the file.
    pub file: String,
    /// The problem, its place in the file, and the way out.
    pub error: String,
    /// The file is in use; the error is about objects in it that are not run here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_in_use: bool,
}

impl FileProblem {
    /// `/p/a.json:1:20: not in use: kind: …`: the file, the place in it if the error begins with one, `what`, the error.
    /// What is only not run here says so itself.
    pub fn line(&self, what: &str) -> String {
        if self.is_in_use {
            return format!("{}: {}", self.file, self.error);
        }
        let placed = self
            .error
            .strip_prefix(&self.file)
            .and_then(|e| e.split_once(": "))
            .filter(|(place, _)| place.starts_with(':'));
        let (place, error) = placed.unwrap_or(("", &self.error));
        format!("{}{place}: {what}: {error}", self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &str, line: &str) {
        assert_eq!(
            FileProblem {
                file: "/p/a".into(),
                error: error.into(),
                is_in_use: false,
            }
            .line("not in use"),
            line
        );
    }

    #[test]
    fn a_line_names_the_file_once() {
        check("/p/a:1:20: kind: bad", "/p/a:1:20: not in use: kind: bad");
        check("/p/a b: same pod", "/p/a: not in use: /p/a b: same pod");
        check("the file is empty", "/p/a: not in use: the file is empty");
    }
}
