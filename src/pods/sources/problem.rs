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
    /// True if pods or workloads of the file go on as its last good version has them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_good_runs: bool,
    /// True if `podprobe validate` finds nothing wrong with the file, because the error is about what runs already. Such
    /// an error says itself what to do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_valid: bool,
}

impl FileProblem {
    /// Returns the word for what the problem means: the last good version of the file runs, or nothing of the file.
    pub fn word(&self) -> &'static str {
        match self.last_good_runs {
            true => "last good version runs",
            false => "not in use",
        }
    }

    /// Returns a line such as `/p/a.json:1:20: not in use: kind: …`. The parts of the line are the file, the place (if
    /// the error begins with a place), the word for what the problem means, and the error. If the file is in use, the
    /// line has only the file and the error.
    pub fn line(&self) -> String {
        if self.is_in_use {
            return format!("{}: {}", self.file, self.error);
        }
        let what = self.word();
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
    fn check(error: &str, last_good_runs: bool, line: &str) {
        let problem = FileProblem {
            file: "/p/a".into(),
            error: error.into(),
            last_good_runs,
            ..FileProblem::default()
        };
        assert_eq!(problem.line(), line);
    }

    #[test]
    fn a_line_names_the_file_once() {
        let placed = "/p/a:1:20: kind: bad";
        check(placed, false, "/p/a:1:20: not in use: kind: bad");
        check(placed, true, "/p/a:1:20: last good version runs: kind: bad");
        check(
            "/p/a b: same pod",
            false,
            "/p/a: not in use: /p/a b: same pod",
        );
        check(
            "the file is empty",
            false,
            "/p/a: not in use: the file is empty",
        );
    }
}
