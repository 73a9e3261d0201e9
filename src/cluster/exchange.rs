//! The words between a decision of the link and the thread that carries it out: a request to the API server, the answer,
//! and the next step.

use std::time::Duration;

use serde_json::{Value, json};

use crate::base::clock::Moment;

/// The HTTP method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads an object.
    Get,
    /// Creates an object.
    Post,
    /// Replaces an object.
    Put,
    /// Changes fields of an object, by a strategic merge patch. The kubelet sends no other kind of patch.
    Patch,
    /// Removes an object.
    Delete,
}

impl Method {
    /// The method as it stands in the request line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// The `Content-Type` of the request's body, or `None` for a request without a body.
    pub const fn content_type(self) -> Option<&'static str> {
        match self {
            Self::Get => None,
            Self::Post | Self::Put | Self::Delete => Some("application/json"),
            Self::Patch => Some("application/strategic-merge-patch+json"),
        }
    }
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The path with the query.
    pub path: String,
    /// The body as JSON. A GET has none.
    pub body: Option<Value>,
}

impl Request {
    /// Returns the request that removes the pod at `path` at once, because nothing of it runs here. `preconditions` has the
    /// UID, or nothing where any pod of the name is meant.
    pub fn delete_pod(path: String, preconditions: &Value) -> Self {
        Self {
            method: Method::Delete,
            path,
            body: Some(json!({
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "gracePeriodSeconds": 0,
                "preconditions": preconditions,
            })),
        }
    }
}

/// The longest wait that an answer can ask for. A node that waited longer for its Lease would be given up.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

/// The end of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The API server has answered.
    Status {
        /// The HTTP status code.
        code: u16,
        /// The body: an object, a `Status`, or a text that is not JSON as a string. Null for an empty body.
        body: Value,
        /// The wait that `Retry-After` asks for.
        retry_after: Option<Duration>,
    },
    /// There was no whole answer: no connection, no answer in time, or a connection that broke.
    NoConnection,
}

impl Answer {
    /// An answer without `Retry-After`.
    pub const fn new(code: u16, body: Value) -> Self {
        Self::Status {
            code,
            body,
            retry_after: None,
        }
    }

    /// The HTTP status code, or 0 where there was no answer.
    pub const fn code(&self) -> u16 {
        match self {
            Self::Status { code, .. } => *code,
            Self::NoConnection => 0,
        }
    }

    /// The object of an answer that says 200 or 201.
    pub fn object(&self) -> Option<&Value> {
        match self {
            Self::Status { code, body, .. } if matches!(code, 200 | 201) && body.is_object() => {
                Some(body)
            }
            _ => None,
        }
    }

    /// The wait that `Retry-After` asks for, at most [`MAX_RETRY_AFTER`].
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => retry_after.map(|asked| asked.min(MAX_RETRY_AFTER)),
            Self::NoConnection => None,
        }
    }

    /// The sentence of a `Status`, or the text of a body that is not JSON.
    pub fn message(&self) -> &str {
        match self {
            Self::Status { body, .. } => {
                let text = body.get("message").unwrap_or(body);
                text.as_str().unwrap_or_default().trim_end()
            }
            Self::NoConnection => "",
        }
    }
}

/// The next step of a part of the link.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Send this request, and hand the answer back.
    Send(Request),
    /// Do nothing before this moment.
    Wait(Moment),
}

/// The delays between tries of the same request: 0.2 s, doubled with each try, at most 7 s (kubelet-probes 9.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff(Duration);

impl BackOff {
    /// The delay after the first failure.
    pub const FIRST: Duration = Duration::from_millis(200);
    /// The longest delay.
    pub const MAX: Duration = Duration::from_secs(7);

    /// The delay before the next try, at least `asked`, which is what the API server asks for.
    pub fn next(&mut self, asked: Option<Duration>) -> Duration {
        let delay = self.0;
        self.0 = (delay * 2).min(Self::MAX);
        delay.max(asked.unwrap_or_default())
    }

    /// Begins anew, after a success.
    pub const fn reset(&mut self) {
        self.0 = Self::FIRST;
    }
}

impl Default for BackOff {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_off_doubles_up_to_seven_seconds_and_begins_anew() {
        let mut back_off = BackOff::default();
        let delays: Vec<u128> = (0..8).map(|_| back_off.next(None).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
        assert_eq!(
            back_off.next(Some(Duration::from_secs(9))),
            Duration::from_secs(9)
        );
        back_off.reset();
        assert_eq!(back_off.next(None), BackOff::FIRST);
    }

    #[test]
    fn no_answer_can_ask_for_a_wait_of_hours() {
        let asked = |seconds| {
            let answer = Answer::Status {
                code: 429,
                body: Value::Null,
                retry_after: Some(Duration::from_secs(seconds)),
            };
            answer.retry_after()
        };
        assert_eq!(asked(1), Some(Duration::from_secs(1)));
        assert_eq!(asked(86_400), Some(MAX_RETRY_AFTER));
        assert_eq!(Answer::NoConnection.retry_after(), None);
    }

    #[test]
    fn a_message_is_the_sentence_of_a_status_or_the_plain_text() {
        let status = json!({"kind": "Status", "message": "nodes \"a\" not found"});
        assert_eq!(Answer::new(404, status).message(), "nodes \"a\" not found");
        assert_eq!(
            Answer::new(429, json!("Too many requests\n")).message(),
            "Too many requests"
        );
        assert_eq!(Answer::NoConnection.message(), "");
    }
}
