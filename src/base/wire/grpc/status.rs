//! The status of a call as gRPC's Go client sees it: status codes, and the meaning of headers, trailers and broken streams.
//!
//! Invariants: the functions have no state. The texts are those of the Go client, because a kubelet's events contain them
//! (kubelet-probes 3.6).

use std::fmt;

use http::{HeaderMap, StatusCode};

use crate::base::wire::link::reason_name;

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// The call has an answer.
    pub const OK: Self = Self(0);
    /// The call was cancelled.
    pub const CANCELED: Self = Self(1);
    /// The server gave no code, or an HTTP status without an equivalent.
    pub const UNKNOWN: Self = Self(2);
    /// The deadline passed.
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    /// The caller has no permission.
    pub const PERMISSION_DENIED: Self = Self(7);
    /// A limit of size or number was exceeded.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// The server has no such method.
    pub const UNIMPLEMENTED: Self = Self(12);
    /// The answer breaks the rules of the protocol.
    pub const INTERNAL: Self = Self(13);
    /// There is no connection, or it is gone.
    pub const UNAVAILABLE: Self = Self(14);
    /// The server requires other credentials.
    pub const UNAUTHENTICATED: Self = Self(16);
}

const NAMES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "Code({})", self.0),
        }
    }
}

/// The result of a call: a code and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The status code.
    pub code: Code,
    /// Text from the server or from this client.
    pub message: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", self.code, self.message)
    }
}

impl Status {
    /// Makes a status with a code and a text.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Returns the status for a deadline that passed before the answer.
    pub fn deadline() -> Self {
        Self::new(Code::DEADLINE_EXCEEDED, "context deadline exceeded")
    }

    /// Returns the status for a connection that broke.
    pub fn lost(cause: impl fmt::Display) -> Self {
        Self::new(
            Code::UNAVAILABLE,
            format!("error reading from server: {cause}"),
        )
    }

    /// Returns the status for a stream that the server reset (RST_STREAM) with this reason.
    pub(crate) fn reset(reason: h2::Reason) -> Self {
        Self::new(
            code_of_reset(reason),
            format!(
                "stream terminated by RST_STREAM with error code: {}",
                reason_name(reason)
            ),
        )
    }

    /// Reads the status from trailers, or from the headers of an answer that has only trailers.
    ///
    /// # Errors
    /// Returns the [`Status`] unless its code is OK.
    pub(crate) fn of_trailers(trailers: &HeaderMap) -> Result<(), Self> {
        let message = text(trailers, "grpc-message")
            .map(|m| percent_decode(&m))
            .unwrap_or_default();
        let code = match text(trailers, "grpc-status") {
            None => Code::UNKNOWN,
            Some(code) => match code.parse::<i32>() {
                Ok(code) => Code(code.cast_unsigned()),
                Err(_) => {
                    let cause = format!("strconv.ParseInt: parsing {code:?}: invalid syntax");
                    return Err(Self::new(
                        Code::INTERNAL,
                        format!("transport: malformed grpc-status: {cause}"),
                    ));
                }
            },
        };
        if code == Code::OK {
            Ok(())
        } else {
            Err(Self { code, message })
        }
    }

    /// Checks that an answer with these headers is a gRPC answer.
    ///
    /// # Errors
    /// Returns the [`Status`] for an HTTP status other than 200, or for a content type that is not gRPC's.
    pub(crate) fn of_head(status: StatusCode, headers: &HeaderMap) -> Result<(), Self> {
        let content_type = text(headers, "content-type");
        let type_error = match content_type {
            Some(t) if is_grpc(&t) => None,
            Some(t) => Some(format!("transport: received unexpected content-type {t:?}")),
            None => Some("malformed header: missing HTTP content-type".to_owned()),
        };
        let status_error = (status != StatusCode::OK).then(|| {
            let reason = status.canonical_reason().unwrap_or_default();
            format!(
                "unexpected HTTP status code received from server: {} ({reason})",
                status.as_u16()
            )
        });
        if type_error.is_none() && status_error.is_none() {
            return Ok(());
        }
        let errors: Vec<_> = status_error.into_iter().chain(type_error).collect();
        Err(Self::new(code_of_http(status), errors.join("; ")))
    }
}

/// Returns a header such as `grpc-encoding` as text. Bytes that are not UTF-8 are replaced.
pub(crate) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers
        .get(name)
        .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
}

fn is_grpc(content_type: &str) -> bool {
    let lower = content_type.to_ascii_lowercase();
    lower
        .strip_prefix("application/grpc")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

fn code_of_http(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::INTERNAL,
        401 => Code::UNAUTHENTICATED,
        403 => Code::PERMISSION_DENIED,
        404 => Code::UNIMPLEMENTED,
        429 | 502 | 503 | 504 => Code::UNAVAILABLE,
        _ => Code::UNKNOWN,
    }
}

fn code_of_reset(reason: h2::Reason) -> Code {
    use h2::Reason;
    match reason {
        Reason::FLOW_CONTROL_ERROR | Reason::ENHANCE_YOUR_CALM => Code::RESOURCE_EXHAUSTED,
        Reason::REFUSED_STREAM => Code::UNAVAILABLE,
        Reason::CANCEL => Code::CANCELED,
        Reason::INADEQUATE_SECURITY => Code::PERMISSION_DENIED,
        known if u32::from(known) <= u32::from(Reason::HTTP_1_1_REQUIRED) => Code::INTERNAL,
        _ => Code::UNKNOWN,
    }
}

/// Decodes escapes such as `%41`, which becomes `A`. All other characters stay as they are.
fn percent_decode(text: &str) -> String {
    let hex = |b: u8| char::from(b).to_digit(16);
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let pair = bytes
            .get(at + 1..at + 3)
            .and_then(|p| Some(hex(p[0])? * 16 + hex(p[1])?));
        let (byte, width) = match (bytes[at], pair) {
            (b'%', Some(byte)) => (byte as u8, 3),
            (byte, _) => (byte, 1),
        };
        decoded.push(byte);
        at += width;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[track_caller]
    fn trailers(pairs: &[(&'static str, &str)], expected: Result<(), &str>) {
        let got = Status::of_trailers(&map(pairs)).map_err(|s| s.to_string());
        assert_eq!(
            got.as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|e| *e)
        );
    }

    #[test]
    fn trailers_hold_the_status() {
        trailers(&[("grpc-status", "0")], Ok(()));
        trailers(&[("grpc-status", "0"), ("grpc-message", "ignored")], Ok(()));
        trailers(&[], Err("rpc error: code = Unknown desc = "));
        trailers(
            &[("grpc-message", "m")],
            Err("rpc error: code = Unknown desc = m"),
        );
        trailers(
            &[("grpc-status", "99")],
            Err("rpc error: code = Code(99) desc = "),
        );
        trailers(
            &[("grpc-status", "5"), ("grpc-message", "un%20known%")],
            Err("rpc error: code = NotFound desc = un known%"),
        );
        let malformed =
            "transport: malformed grpc-status: strconv.ParseInt: parsing \"x\": invalid syntax";
        trailers(
            &[("grpc-status", "x")],
            Err(&format!("rpc error: code = Internal desc = {malformed}")),
        );
    }

    #[test]
    fn every_code_has_its_name() {
        for (number, name) in [
            (1, "Canceled"),
            (4, "DeadlineExceeded"),
            (12, "Unimplemented"),
            (16, "Unauthenticated"),
            (17, "Code(17)"),
        ] {
            assert_eq!(Code(number).to_string(), name);
        }
    }

    #[track_caller]
    fn head(status: u16, content_type: Option<&str>, expected: Result<(), (Code, &str)>) {
        let headers = map(&content_type
            .map(|t| ("content-type", t))
            .into_iter()
            .collect::<Vec<_>>());
        let got = Status::of_head(StatusCode::from_u16(status).unwrap(), &headers);
        assert_eq!(
            got,
            expected.map_err(|(code, message)| Status::new(code, message))
        );
    }

    #[test]
    fn an_answer_begins_with_200_and_the_content_type() {
        for good in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;x=y",
            "Application/GRPC",
        ] {
            head(200, Some(good), Ok(()));
        }
        let html = "transport: received unexpected content-type \"text/html\"";
        head(200, Some("text/html"), Err((Code::UNKNOWN, html)));
        head(
            200,
            Some("application/grpcs"),
            Err((
                Code::UNKNOWN,
                "transport: received unexpected content-type \"application/grpcs\"",
            )),
        );
        head(
            200,
            None,
            Err((Code::UNKNOWN, "malformed header: missing HTTP content-type")),
        );
        let status =
            |text: &str| format!("unexpected HTTP status code received from server: {text}");
        head(
            404,
            Some("text/html"),
            Err((
                Code::UNIMPLEMENTED,
                &format!("{}; {html}", status("404 (Not Found)")),
            )),
        );
        for (number, reason, code) in [
            (400, "Bad Request", Code::INTERNAL),
            (401, "Unauthorized", Code::UNAUTHENTICATED),
            (403, "Forbidden", Code::PERMISSION_DENIED),
            (404, "Not Found", Code::UNIMPLEMENTED),
            (429, "Too Many Requests", Code::UNAVAILABLE),
            (502, "Bad Gateway", Code::UNAVAILABLE),
            (503, "Service Unavailable", Code::UNAVAILABLE),
            (504, "Gateway Timeout", Code::UNAVAILABLE),
            (500, "Internal Server Error", Code::UNKNOWN),
            (204, "No Content", Code::UNKNOWN),
        ] {
            head(
                number,
                Some("application/grpc"),
                Err((code, &status(&format!("{number} ({reason})")))),
            );
        }
    }

    #[test]
    fn resets_have_codes_and_names() {
        let expected = [
            Code::INTERNAL,
            Code::INTERNAL,
            Code::INTERNAL,
            Code::RESOURCE_EXHAUSTED,
            Code::INTERNAL,
            Code::INTERNAL,
            Code::INTERNAL,
            Code::UNAVAILABLE,
            Code::CANCELED,
            Code::INTERNAL,
            Code::INTERNAL,
            Code::RESOURCE_EXHAUSTED,
            Code::PERMISSION_DENIED,
            Code::INTERNAL,
            Code::UNKNOWN,
        ];
        let got: Vec<_> = (0..15_u32).map(|n| Status::reset(n.into()).code).collect();
        assert_eq!(got, expected);
        let text = |n: u32| Status::reset(n.into()).message;
        assert_eq!(
            text(8),
            "stream terminated by RST_STREAM with error code: CANCEL"
        );
        assert_eq!(
            text(13),
            "stream terminated by RST_STREAM with error code: HTTP_1_1_REQUIRED"
        );
        assert_eq!(
            text(0xff),
            "stream terminated by RST_STREAM with error code: unknown error code 0xff"
        );
    }

    #[test]
    fn messages_are_percent_decoded() {
        for (sent, shown) in [
            ("", ""),
            ("a b", "a b"),
            ("%41%c3%a9", "Aé"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%zz%41", "%zzA"),
            ("%%41", "%A"),
            ("%ff", "\u{fffd}"),
        ] {
            assert_eq!(percent_decode(sent), shown);
        }
    }
}
