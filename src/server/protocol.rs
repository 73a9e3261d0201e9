//! What client and daemon say to each other over the unix socket: one JSON object per line, one answer per request.
//!
//! Invariants: both sides use these types and nothing else; a request is at most [`MAX_REQUEST`] bytes; an answer
//! has one key that says what it is.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::status::Snapshot;

/// Longest request line in bytes, the newline included.
pub const MAX_REQUEST: usize = 4096;

/// Longest time a `watch` waits for a change before it is answered with what there is.
pub const WATCH_CEILING: Duration = Duration::from_secs(30);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase")]
pub enum Request {
    /// `{"verb":"snapshot"}`: everything, now.
    Snapshot,
    /// `{"verb":"watch","after":N}`: everything as soon as its version is above N, at the latest after [`WATCH_CEILING`].
    Watch {
        /// The version the client has.
        after: u64,
    },
    /// `{"verb":"version"}`: which daemon this is.
    Version,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// `{"snapshot":{…}}`.
    Snapshot(Arc<Snapshot>),
    /// `{"version":"…"}`.
    Version(String),
    /// `{"error":"…"}`: the request was not understood or not served, and why.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(request: Request, line: &str) {
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
    }

    #[test]
    fn requests_have_one_form() {
        check(Request::Snapshot, r#"{"verb":"snapshot"}"#);
        check(Request::Watch { after: 7 }, r#"{"verb":"watch","after":7}"#);
        check(Request::Version, r#"{"verb":"version"}"#);
    }

    #[test]
    fn an_answer_says_what_it_is() {
        assert_eq!(serde_json::to_string(&Answer::Error("no".into())).unwrap(), r#"{"error":"no"}"#);
        let answer = serde_json::to_string(&Answer::Snapshot(Arc::default())).unwrap();
        assert_eq!(answer, r#"{"snapshot":{"version":0,"nodeName":"","pods":[],"problems":[]}}"#);
    }
}
