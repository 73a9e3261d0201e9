//! The problem of a pod file, for people.

use serde::{Deserialize, Serialize};

/// A pod file with content that is not in use, or has no effect on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileProblem {
    /// The path of the file.
    pub file: String,
    /// The error, its place in the file, and what to do about it.
    pub error: String,
    /// True if the file is in use. The error is then about objects in the file that have no effect on this node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_in_use: bool,
}

impl FileProblem {
    /// Returns a line such as `/p/a.json:1:20: not in use: kind: …`. The parts of the line are the file, the place (if
    /// the error begins with a place), the text `what`, and the error. If the file is in use, the line has only the
    /// file and the error.
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
