//! The problem of a pod file, for people.

use serde::{Deserialize, Serialize};

/// A file in the pods directory whose present content does not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileProblem {
    /// Path of the file.
    pub file: String,
    /// The problem, its place in the file, and the way out.
    pub error: String,
}

impl FileProblem {
    /// `/p/a.json:1:20: not in use: kind: …`: the file, the place in it if the error begins with one, `what`, the error.
    pub fn line(&self, what: &str) -> String {
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
                error: error.into()
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
