//! Helpers for the tests of several kinds. They decode texts as if the texts were pod files.

use std::path::Path;

use super::{DecodeError, Decoded, objects};
use crate::api::PodOrigin;

/// Decodes the text as the file `/pods/web.yaml` of the node `node1`.
pub(super) fn decode(text: &str) -> Result<Decoded, DecodeError> {
    let source = PodOrigin::File {
        node_name: "node1",
        path: Path::new("/pods/web.yaml"),
    };
    objects(text.as_bytes(), &source)
}

/// Checks the errors of a text, without the file name.
#[track_caller]
pub(super) fn check_text(text: &str, expected: &[&str]) {
    let error = decode(text).unwrap_err().to_string();
    let lines: Vec<&str> = error
        .lines()
        .map(|line| line.strip_prefix("/pods/web.yaml:").unwrap())
        .collect();
    assert_eq!(lines, expected);
}
