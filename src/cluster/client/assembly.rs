//! Puts the answer to one request together from the news of its connection.
//!
//! Invariants: pure. No answer grows beyond its bound; an answer that would is given up. After [`Heard::Answer`],
//! [`Heard::Listed`], [`Heard::Refused`] or [`Heard::Ended`] nothing is heard of the request any more.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use serde_json::Value;

use crate::base::json;
use crate::base::text::head;
use crate::base::wire::streams::News;
use crate::cluster::exchange::Answer;
use crate::cluster::reflector::LARGEST_LIST;

/// Largest number of bytes in the answer to a call: 8 MiB. An object in an API server has at most about 1.5 MiB, and JSON
/// can write a byte as six.
const LARGEST_ANSWER: usize = 8 << 20;
/// Largest number of bytes that are kept of a refusal.
const LARGEST_REFUSAL: usize = 64 << 10;
/// Largest number of bytes that are kept of an answer that is not JSON.
const LARGEST_TEXT: usize = 1 << 10;

/// The use of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A request with one answer.
    Call,
    /// A page of a list, for a reflector.
    List,
    /// A watch, for a reflector.
    Watch,
}

/// A piece of the answer to a request, or its end.
#[derive(Debug, PartialEq)]
pub enum Heard {
    /// The end of a call.
    Answer(Answer),
    /// The watch has begun.
    Opened,
    /// A piece of the watch.
    Data(Bytes),
    /// The whole page of a list.
    Listed(Vec<u8>),
    /// The list or watch was refused.
    Refused {
        /// HTTP status.
        code: u16,
        /// The wait that `Retry-After` asks for.
        retry_after: Option<Duration>,
        /// The body, or its beginning.
        body: Vec<u8>,
    },
    /// The list or watch has ended; None if the API server has ended a watch in the proper way.
    Ended(Option<String>),
}

/// The answer to a request, as far as it has come.
#[derive(Debug)]
pub(super) struct Assembly {
    of: Use,
    status: u16,
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

impl Assembly {
    pub(super) fn new(of: Use) -> Self {
        Self {
            of,
            status: 0,
            retry_after: None,
            body: Vec::new(),
        }
    }

    /// Takes a piece of news. Returns what is heard by it.
    pub(super) fn take(&mut self, news: News) -> Option<Heard> {
        match news {
            News::Head { status, headers } => {
                self.status = status;
                self.retry_after = retry_after(&headers);
                self.streams().then_some(Heard::Opened)
            }
            News::Data(piece) if self.streams() => Some(Heard::Data(piece)),
            News::Data(piece) => self.keep(&piece),
            News::End if self.streams() => Some(Heard::Ended(None)),
            News::End => Some(self.complete()),
            News::Broken(cause) => Some(self.broken(cause)),
        }
    }

    /// Returns what is heard when the request has no answer, for this reason.
    pub(super) fn broken(&self, cause: String) -> Heard {
        match self.of {
            Use::Call => Heard::Answer(Answer::NoConnection),
            Use::List | Use::Watch => Heard::Ended(Some(cause)),
        }
    }

    /// True if pieces of the body are handed on as they come.
    fn streams(&self) -> bool {
        self.of == Use::Watch && self.status == 200
    }

    fn keep(&mut self, piece: &[u8]) -> Option<Heard> {
        let limit = match (self.of, self.status) {
            (Use::Call, _) => LARGEST_ANSWER,
            (Use::List, 200) => LARGEST_LIST,
            (Use::List | Use::Watch, _) => LARGEST_REFUSAL,
        };
        let room = limit - self.body.len();
        if piece.len() <= room {
            self.body.extend_from_slice(piece);
            return None;
        }
        match limit {
            LARGEST_REFUSAL => {
                self.body.extend_from_slice(&piece[..room]);
                None
            }
            _ => Some(self.broken(format!("the answer has more than {limit} bytes"))),
        }
    }

    fn complete(&mut self) -> Heard {
        let body = std::mem::take(&mut self.body);
        let (code, retry_after) = (self.status, self.retry_after);
        match (self.of, code) {
            (Use::Call, _) => Heard::Answer(Answer::Status {
                code,
                body: read(&body),
                retry_after,
            }),
            (Use::List, 200) => Heard::Listed(body),
            (Use::List | Use::Watch, _) => Heard::Refused {
                code,
                retry_after,
                body,
            },
        }
    }
}

/// Reads a body: as JSON, or else as a text.
fn read(body: &[u8]) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        head(&text, LARGEST_TEXT).into()
    })
}

/// Reads `Retry-After` in seconds. The API server sends no other form.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn head_of(status: u16) -> News {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("3"))]);
        News::Head { status, headers }
    }

    fn data(text: &str) -> News {
        News::Data(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[track_caller]
    fn check(of: Use, news: Vec<News>, expected: &[Heard]) {
        let mut assembly = Assembly::new(of);
        let heard: Vec<Heard> = news.into_iter().filter_map(|n| assembly.take(n)).collect();
        assert_eq!(heard, expected);
    }

    fn status(code: u16, body: Value) -> Heard {
        Heard::Answer(Answer::Status {
            code,
            body,
            retry_after: Some(Duration::from_secs(3)),
        })
    }

    #[test]
    fn a_call_has_one_answer_whose_body_is_an_object_or_a_text() {
        let news = vec![head_of(201), data("{\"a\""), data(":1}"), News::End];
        check(Use::Call, news, &[status(201, json!({"a": 1}))]);
        let news = vec![head_of(429), data("Too many requests\n"), News::End];
        check(
            Use::Call,
            news,
            &[status(429, json!("Too many requests\n"))],
        );
        check(
            Use::Call,
            vec![head_of(200), News::End],
            &[status(200, Value::Null)],
        );
        let news = vec![head_of(200), data("{"), News::Broken("reset".into())];
        check(Use::Call, news, &[Heard::Answer(Answer::NoConnection)]);
    }

    #[test]
    fn a_watch_hands_its_pieces_on_and_a_list_waits_for_its_end() {
        let pieces = || vec![head_of(200), data("{}"), data("\n"), News::End];
        let piece = |text: &'static str| Heard::Data(Bytes::from_static(text.as_bytes()));
        let watched = [Heard::Opened, piece("{}"), piece("\n"), Heard::Ended(None)];
        check(Use::Watch, pieces(), &watched);
        check(Use::List, pieces(), &[Heard::Listed(b"{}\n".to_vec())]);
        let news = vec![head_of(200), News::Broken("reset".into())];
        let ended = Heard::Ended(Some("reset".into()));
        check(Use::Watch, news, &[Heard::Opened, ended]);
    }

    #[test]
    fn a_refusal_of_a_list_or_watch_has_its_code_and_body() {
        for of in [Use::List, Use::Watch] {
            let news = vec![head_of(410), data("gone"), News::End];
            let refused = Heard::Refused {
                code: 410,
                retry_after: Some(Duration::from_secs(3)),
                body: b"gone".to_vec(),
            };
            check(of, news, &[refused]);
        }
    }

    #[test]
    fn no_answer_grows_beyond_its_bound() {
        let big = |size: usize| News::Data(Bytes::from(vec![b'x'; size]));
        let news = vec![head_of(200), big(LARGEST_ANSWER), big(1)];
        check(Use::Call, news, &[Heard::Answer(Answer::NoConnection)]);
        let news = vec![head_of(200), big(LARGEST_LIST), big(1)];
        let cause = format!("the answer has more than {LARGEST_LIST} bytes");
        check(Use::List, news, &[Heard::Ended(Some(cause))]);
        let mut assembly = Assembly::new(Use::Watch);
        for news in [head_of(500), big(LARGEST_REFUSAL - 1), big(2), big(9)] {
            assert_eq!(assembly.take(news), None);
        }
        let Some(Heard::Refused { body, .. }) = assembly.take(News::End) else {
            panic!("no refusal");
        };
        assert_eq!(body.len(), LARGEST_REFUSAL);
    }
}
