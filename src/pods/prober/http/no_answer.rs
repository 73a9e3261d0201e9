//! The reason why a GET request has no answer, in the words of Go's client, and the outcome of a probe without an
//! answer.
//!
//! Invariants: this module is pure. A mistake of the server or of the spec is a failure of the probe. If podprobe
//! itself lacks something, the result is an error of the probe.

use std::{fmt, io};

use super::MAX_REQUESTS;
use crate::base::wire::dial::DialError;
use crate::base::wire::exchange::ExchangeError;
use crate::base::wire::text::quote;
use crate::base::wire::tls;
use crate::pods::prober::outcome::{HandlerResult, Outcome, Phase};
use crate::pods::prober::target::LookupError;
use crate::pods::prober::url::UrlError;

/// The error text of a TLS handshake with a server that answers by http.
const HTTP_ANSWER: &str = "http: server gave HTTP response to HTTPS client";

/// The text that Go's client adds to a timeout before the status and headers have come.
const AWAITING_HEADERS: &str = "Client.Timeout exceeded while awaiting headers";

/// A GET request has no answer. The text is the text of Go's client.
#[derive(Debug, thiserror::Error)]
#[error("Get \"{url}\": {cause}")]
pub struct GetError {
    /// The URL of the request, or the `Location` of the redirect that exceeds the limit.
    url: String,
    #[source]
    cause: NoAnswer,
    /// The phase in which the request ended.
    phase: Phase,
}

impl GetError {
    pub(super) fn new(url: &dyn fmt::Display, cause: impl Into<NoAnswer>, phase: Phase) -> Self {
        Self {
            url: url.to_string(),
            cause: cause.into(),
            phase,
        }
    }

    /// True if the server answers https by http.
    pub fn is_answered_by_http(&self) -> bool {
        // The handshake error has no type for this case, only Go's text.
        match &self.cause {
            NoAnswer::Theirs(FailureCause::Handshake(e)) => e.to_string() == HTTP_ANSWER,
            _ => false,
        }
    }
}

/// Makes the outcome of a probe without an answer. The outcome is a failure if the other side or the spec is the cause,
/// and an error if the probe itself is the cause.
impl From<GetError> for Outcome {
    fn from(e: GetError) -> Self {
        let text = e.to_string();
        match e.cause {
            NoAnswer::Lookup(e) => e.outcome(text),
            NoAnswer::Theirs(_) => Self::new(HandlerResult::Failure, text, e.phase),
            NoAnswer::Ours(_) => Self::error(text, e.phase),
        }
    }
}

/// The cause of a request without an answer, by the side that caused it.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// The host has no address. Either side may be the cause.
    #[error("dial tcp: {0}")]
    Lookup(#[from] LookupError),
    /// The other side or the spec is the cause. The probe has failed.
    #[error(transparent)]
    Theirs(#[from] FailureCause),
    /// The probe itself is the cause. The probe has an error, because the missing answer shows nothing about the
    /// container.
    #[error(transparent)]
    Ours(DialError),
}

/// The reason why a request has no answer and the probe has failed. The text is the text of Go's client.
#[derive(Debug, thiserror::Error)]
pub(super) enum FailureCause {
    /// The scheme is neither http nor https, after a redirect for example.
    #[error("unsupported protocol scheme {}", quote(.0.as_bytes()))]
    Scheme(String),
    /// A header cannot be sent.
    #[error(transparent)]
    Header(HeaderError),
    /// The request cannot be sent over HTTP/2.
    #[error(transparent)]
    Http2Request(http::Error),
    /// The `Location` of a redirect is not a URL.
    #[error("failed to parse Location header {}: {source}", quote(.location.as_bytes()))]
    Location { location: String, source: UrlError },
    /// The limit of redirects is exceeded.
    #[error("stopped after {MAX_REQUESTS} redirects")]
    TooManyRedirects,
    /// The connection could not be opened.
    #[error(transparent)]
    Dial(DialError),
    /// The connection was not opened in time.
    #[error("{0} ({AWAITING_HEADERS})")]
    DialTimeout(DialError),
    /// The TLS handshake failed.
    #[error("{}", io_cause(.0, AWAITING_HEADERS))]
    Handshake(io::Error),
    /// The connection broke, or the time ran out.
    #[error("{}", io_cause(.0, AWAITING_HEADERS))]
    Io(io::Error),
    /// The received bytes are not an answer.
    #[error(transparent)]
    Broken(ExchangeError),
}

/// The client refuses to send a header of the spec. The text has the form of Go's client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("net/http: invalid header field {part} {name:?}")]
pub(super) struct HeaderError {
    /// The part of the header that is not allowed: `name` or `value for`.
    pub(super) part: &'static str,
    pub(super) name: String,
}

impl From<DialError> for NoAnswer {
    fn from(e: DialError) -> Self {
        match e {
            ours @ DialError::Ours(_) => Self::Ours(ours),
            failed @ DialError::Failed(_) => FailureCause::Dial(failed).into(),
            late @ DialError::TimedOut(_) => FailureCause::DialTimeout(late).into(),
        }
    }
}

impl From<io::Error> for NoAnswer {
    fn from(e: io::Error) -> Self {
        FailureCause::Io(e).into()
    }
}

impl From<ExchangeError> for NoAnswer {
    fn from(e: ExchangeError) -> Self {
        match e {
            ExchangeError::Io(e) => e.into(),
            broken => FailureCause::Broken(broken).into(),
        }
    }
}

/// Returns the text of a connection error. `at_deadline` is added to the text of a timeout.
pub(super) fn io_cause(e: &io::Error, at_deadline: &str) -> String {
    if let Some(text) = tls::error_text(e) {
        return text;
    }
    match e.kind() {
        io::ErrorKind::TimedOut => format!("context deadline exceeded ({at_deadline})"),
        io::ErrorKind::UnexpectedEof => "EOF".into(),
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::base::wire::dial::Namespace;
    use crate::pods::prober::target::LookupCause;

    #[track_caller]
    fn check(cause: impl Into<NoAnswer>, expected: Outcome) {
        let e = GetError::new(&"http://h:80/", cause, Phase::Connect);
        assert_eq!(Outcome::from(e), expected);
    }

    #[test]
    fn only_what_we_lack_ourselves_is_an_error_of_the_probe() {
        check(
            Namespace::refused(Path::new("/ns"), "no descriptors"),
            Outcome::error(
                "Get \"http://h:80/\": cannot enter the network namespace /ns: no descriptors",
                Phase::Connect,
            ),
        );
        let lookup = |cause| LookupError {
            host: "h".into(),
            cause,
        };
        check(
            lookup(LookupCause::Thread(io::ErrorKind::OutOfMemory.into())),
            Outcome::error(
                "Get \"http://h:80/\": dial tcp: lookup h: cannot start a thread: out of memory",
                Phase::Connect,
            ),
        );
        check(
            lookup(LookupCause::NoAddress),
            Outcome::new(
                HandlerResult::Failure,
                "Get \"http://h:80/\": dial tcp: lookup h: no such host",
                Phase::Connect,
            ),
        );
        check(
            FailureCause::TooManyRedirects,
            Outcome::new(
                HandlerResult::Failure,
                "Get \"http://h:80/\": stopped after 10 redirects",
                Phase::Connect,
            ),
        );
    }
}
