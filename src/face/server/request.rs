//! The head of a request: the fields that this server reads.
//!
//! Invariants: pure. Any bytes are a request, or are refused, or need more bytes. The caller limits the number of bytes
//! that are kept of a head.

use std::borrow::Cow;

/// Largest number of header fields in a head.
const MAX_HEADERS: usize = 100;

/// How the body of a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The body ends after this number of bytes. A request without a body has the length 0.
    Known(u64),
    /// The body ends after the last chunk.
    Chunked,
}

/// A request whose head is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method, for example `GET`.
    pub method: String,
    /// The path, decoded and without the query.
    pub path: String,
    /// The names and values of the query, decoded and in their order.
    pub query: Vec<(String, String)>,
    /// The length of the request's body.
    pub length: Length,
    /// True if the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// True if the connection may carry another request.
    pub keep_alive: bool,
    /// True for HTTP/1.0, where an answer has no chunks.
    pub is_old: bool,
    /// The field `Host`.
    pub host: Option<String>,
    /// True if there is the field `X-Forwarded-For`: a proxy with credentials of its own passes the request on.
    pub is_forwarded: bool,
    /// The field `Origin`: the site of the web page that has made a browser send the request.
    pub origin: Option<String>,
    /// The field `Sec-Fetch-Site`: how the web page's site relates to this server.
    pub fetch_site: Option<String>,
    /// The token of the field `Authorization: Bearer`.
    pub token: Option<String>,
    /// The field `Upgrade` in lower case; None if the field `Connection` does not name `Upgrade`.
    pub upgrade: Option<String>,
    /// The field `Sec-WebSocket-Key`.
    pub websocket_key: Option<String>,
    /// The field `Sec-WebSocket-Version`.
    pub websocket_version: Option<String>,
    /// The subprotocols of every field `Sec-WebSocket-Protocol`, in their order.
    pub websocket_protocols: Vec<String>,
}

/// The answer to a head that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadHead {
    /// HTTP status: 400, 431 or 505.
    pub status: u16,
    /// The sentence that says what is wrong with the head.
    pub text: String,
}

impl BadHead {
    fn new(text: impl Into<String>) -> Self {
        Self {
            status: 400,
            text: text.into(),
        }
    }

    /// Makes the error for a head of more than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        Self {
            status: 431,
            text: format!("the head of the request is longer than {limit} bytes"),
        }
    }
}

/// Reads the head at the beginning of `bytes`. Returns the request and the length of its head in bytes; None if more
/// bytes must come. `from` is the number of bytes that an earlier call has already searched.
///
/// # Errors
/// Returns [`BadHead`] if no further bytes can make the head a request.
pub fn read(bytes: &[u8], from: usize) -> Result<Option<(Request, usize)>, BadHead> {
    if !ends(bytes, from) {
        return Ok(None);
    }
    if begins_empty(bytes) {
        return Err(BadHead::new("the request begins with empty lines"));
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => request(&parsed).map(|r| Some((r, length))),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(BadHead {
            status: 431,
            text: format!("the request has more than {MAX_HEADERS} header fields"),
        }),
        Err(httparse::Error::Version) => Err(BadHead {
            status: 505,
            text: "this server speaks HTTP/1.1 and HTTP/1.0".into(),
        }),
        Err(e) => Err(BadHead::new(format!("cannot read the request: {e}"))),
    }
}

/// Returns true if an empty line ends a head. The parser runs only on a complete head, because the parser would begin
/// anew with every piece.
fn ends(bytes: &[u8], from: usize) -> bool {
    let new = &bytes[from.saturating_sub(3).min(bytes.len())..];
    new.windows(2).any(|w| w == b"\n\n") || new.windows(4).any(|w| w == b"\r\n\r\n")
}

/// Returns true if more than one empty line comes before the request. One empty line is allowed, because some clients
/// end a body with an empty line. More empty lines would be parsed again with every piece.
fn begins_empty(bytes: &[u8]) -> bool {
    let rest = bytes.strip_prefix(b"\r\n");
    let rest = rest.or_else(|| bytes.strip_prefix(b"\n"));
    matches!(rest.unwrap_or(bytes), [b'\r' | b'\n', ..])
}

fn request(parsed: &httparse::Request<'_, '_>) -> Result<Request, BadHead> {
    let target = parsed.path.unwrap_or_default();
    let (path, query) = split(target).ok_or_else(|| BadHead::new("the path must begin with /"))?;
    let old = parsed.version == Some(0);
    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: decoded(path, false)?,
        query: pairs(query)?,
        length: Length::Known(0),
        expects_continue: false,
        keep_alive: !old,
        is_old: old,
        host: None,
        is_forwarded: false,
        origin: None,
        fetch_site: None,
        token: None,
        upgrade: None,
        websocket_key: None,
        websocket_version: None,
        websocket_protocols: Vec::new(),
    };
    let mut fields = Fields::default();
    for header in parsed.headers.iter() {
        fields.read(header, &mut request)?;
    }
    fields.finish(&mut request)?;
    Ok(request)
}

/// Splits a request target into path and query. Both `/a?b` and `http://host/a?b` give `/a` and `b`.
fn split(target: &str) -> Option<(&str, &str)> {
    let target = target.split('#').next().unwrap_or_default();
    let target = match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    path.starts_with('/').then_some((path, query))
}

fn pairs(query: &str) -> Result<Vec<(String, String)>, BadHead> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Ok((decoded(name, true)?, decoded(value, true)?))
    };
    parts.map(pair).collect()
}

/// Decodes percent signs. In a query `+` also becomes a space.
fn decoded(text: &str, in_query: bool) -> Result<String, BadHead> {
    let bad = || BadHead::new(format!("cannot read the path or query part {text:?}"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit(), digit());
                high.zip(low)
                    .map(|(high, low)| (high * 16 + low) as u8)
                    .ok_or_else(bad)?
            }
            b'+' if in_query => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// The values that depend on more than one header field.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    is_chunked: bool,
    connection_upgrade: bool,
}

impl Fields {
    fn read(
        &mut self,
        header: &httparse::Header<'_>,
        request: &mut Request,
    ) -> Result<(), BadHead> {
        let value = String::from_utf8_lossy(header.value);
        let value = value.trim();
        match header.name.to_ascii_lowercase().as_str() {
            "content-length" => self.set_length(value)?,
            "transfer-encoding" => self.set_encoding(value)?,
            "connection" => self.set_connection(value, request),
            "expect" => request.expects_continue = value.eq_ignore_ascii_case("100-continue"),
            "host" => request.host = Some(value.to_owned()),
            "x-forwarded-for" => request.is_forwarded = true,
            "origin" => request.origin = Some(value.to_owned()),
            "sec-fetch-site" => request.fetch_site = Some(value.to_owned()),
            "authorization" => request.token = bearer(value),
            "upgrade" => request.upgrade = Some(value.to_ascii_lowercase()),
            "sec-websocket-key" => request.websocket_key = Some(value.to_owned()),
            "sec-websocket-version" => request.websocket_version = Some(value.to_owned()),
            "sec-websocket-protocol" => {
                let names = list(value).map(str::to_owned);
                request.websocket_protocols.extend(names);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sets the length of the body. The field may be repeated, but two different lengths are an attempt to smuggle a
    /// request.
    fn set_length(&mut self, value: &str) -> Result<(), BadHead> {
        let is_number = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        let length = value.parse().ok().filter(|_| is_number);
        let length = length
            .ok_or_else(|| BadHead::new(format!("Content-Length {value:?} is not a number")))?;
        if *self.length.get_or_insert(length) != length {
            return Err(BadHead::new("Content-Length is given twice"));
        }
        Ok(())
    }

    fn set_encoding(&mut self, value: &str) -> Result<(), BadHead> {
        if self.is_chunked || !value.eq_ignore_ascii_case("chunked") {
            return Err(BadHead::new(format!(
                "Transfer-Encoding {value:?} is not supported; chunked is"
            )));
        }
        self.is_chunked = true;
        Ok(())
    }

    fn set_connection(&mut self, value: &str, request: &mut Request) {
        for word in list(value) {
            match word.to_ascii_lowercase().as_str() {
                "close" => request.keep_alive = false,
                "keep-alive" if request.is_old => request.keep_alive = true,
                "upgrade" => self.connection_upgrade = true,
                _ => {}
            }
        }
    }

    fn finish(self, request: &mut Request) -> Result<(), BadHead> {
        request.length = match (self.length, self.is_chunked) {
            (Some(_), true) => {
                return Err(BadHead::new(
                    "Content-Length and Transfer-Encoding exclude each other",
                ));
            }
            (None, true) => Length::Chunked,
            (length, false) => Length::Known(length.unwrap_or(0)),
        };
        if !self.connection_upgrade {
            request.upgrade = None;
        }
        Ok(())
    }
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|w| !w.is_empty())
}

fn bearer(value: &str) -> Option<String> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}

impl Request {
    /// Returns the last value of a query parameter; None if the query does not have the parameter.
    pub fn value(&self, name: &str) -> Option<&str> {
        let named = self.query.iter().rfind(|(n, _)| n == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Returns every value of a query parameter.
    pub fn values<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
        let named = self.query.iter().filter(move |(n, _)| n == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Returns true if a query parameter is present and is not false, as Go's handlers read it. `?follow` and
    /// `?follow=true` are true.
    pub fn flag(&self, name: &str) -> bool {
        self.value(name)
            .is_some_and(|v| !matches!(v, "0" | "f" | "F" | "false" | "False" | "FALSE"))
    }

    /// Returns true for `HEAD`, which is a `GET` whose answer has no body.
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns the parts of the path. Both `/a/b` and `/a/b/` give `a` and `b`.
    pub fn parts(&self) -> Vec<&str> {
        let path = self.path.strip_prefix('/').unwrap_or(&self.path);
        let path = path.strip_suffix('/').unwrap_or(path);
        match path {
            "" => Vec::new(),
            path => path.split('/').collect(),
        }
    }
}

/// Encodes a part of a path or query with percent signs, for a request line.
pub fn encoded(text: &str) -> Cow<'_, str> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    if text.bytes().all(is_plain) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        match is_plain(byte) {
            true => out.push(byte.into()),
            false => {
                out.push('%');
                let digit = |n: u8| char::from(b"0123456789ABCDEF"[usize::from(n)]);
                out.extend([digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Result<Option<(Request, usize)>, BadHead> {
        read(head.as_bytes(), 0)
    }

    fn whole(head: &str) -> Request {
        parsed(head).unwrap().expect("the head is complete").0
    }

    #[track_caller]
    fn refused(head: &str, status: u16, text: &str) {
        let bad = parsed(head).expect_err(head);
        assert_eq!((bad.status, bad.text.as_str()), (status, text), "{head}");
    }

    #[test]
    fn a_head_is_read_when_its_empty_line_has_come() {
        let head = "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(read(&head.as_bytes()[..cut], 0), Ok(None), "{cut}");
        }
        // The end is found for every number of bytes that were searched before.
        for from in 0..head.len() {
            let (request, length) = read(head.as_bytes(), from).unwrap().unwrap();
            assert_eq!((request.path.as_str(), length), ("/pods", head.len()));
        }
        let two = format!("{head}GET /x HTTP/1.1\r\n\r\n");
        assert_eq!(parsed(&two).unwrap().unwrap().1, head.len());
        assert_eq!(whole("GET / HTTP/1.1\n\n").path, "/", "bare line feeds");
        for empty in ["\r\n", "\n"] {
            let (request, length) = parsed(&format!("{empty}{head}")).unwrap().unwrap();
            assert_eq!(request.path, "/pods");
            assert_eq!(length, empty.len() + head.len());
        }
    }

    #[test]
    fn a_head_does_not_begin_with_empty_lines() {
        for empty in ["\r\n\r\n", "\n\n", "\r\n\n", "\n\r\n\r\n"] {
            for rest in ["", "GET / HTTP/1.1\r\n\r\n"] {
                let head = format!("{empty}{rest}");
                if ends(head.as_bytes(), 0) {
                    refused(&head, 400, "the request begins with empty lines");
                }
            }
        }
    }

    #[test]
    fn paths_and_queries_are_decoded() {
        let request = whole(
            "GET /exec/ns/a%2Fb/c?command=sh&command=-c&command=echo%20a+b&tty&x=%C3%A9 HTTP/1.1\r\n\r\n",
        );
        assert_eq!(request.path, "/exec/ns/a/b/c");
        let commands: Vec<_> = request.values("command").collect();
        assert_eq!(commands, ["sh", "-c", "echo a b"]);
        assert_eq!(request.value("x"), Some("é"));
        assert!(request.flag("tty") && !request.flag("none"));
        let whole_url = whole("GET http://node:1/healthz?verbose#x HTTP/1.1\r\n\r\n");
        assert_eq!(whole_url.path, "/healthz");
        assert!(whole_url.flag("verbose"));
        assert_eq!(whole_url.parts(), ["healthz"]);
        assert_eq!(whole("GET /a+b/ HTTP/1.1\r\n\r\n").parts(), ["a+b"]);
        assert!(whole("GET / HTTP/1.1\r\n\r\n").parts().is_empty());
        assert!(!whole("GET /?follow=false HTTP/1.1\r\n\r\n").flag("follow"));
        refused(
            "GET /a%zz HTTP/1.1\r\n\r\n",
            400,
            "cannot read the path or query part \"/a%zz\"",
        );
        refused(
            "GET /%ff HTTP/1.1\r\n\r\n",
            400,
            "cannot read the path or query part \"/%ff\"",
        );
        refused(
            "OPTIONS * HTTP/1.1\r\n\r\n",
            400,
            "the path must begin with /",
        );
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        for text in ["plain-._~", "a b", "%", "é/?&=+#", "\u{0}\n"] {
            let head = format!("GET /{0}?q={0} HTTP/1.1\r\n\r\n", encoded(text));
            let request = whole(&head);
            assert_eq!(request.value("q"), Some(text));
            assert_eq!(request.path, format!("/{text}"));
        }
    }

    #[test]
    fn a_body_has_one_length() {
        let of = |fields: &str| parsed(&format!("POST / HTTP/1.1\r\n{fields}\r\n"));
        let length = |fields: &str| of(fields).unwrap().unwrap().0.length;
        assert_eq!(length(""), Length::Known(0));
        assert_eq!(length("Content-Length: 12\r\n"), Length::Known(12));
        assert_eq!(
            length("Content-Length: 12\r\nContent-Length: 12\r\n"),
            Length::Known(12)
        );
        assert_eq!(length("Transfer-Encoding: Chunked\r\n"), Length::Chunked);
        for (fields, text) in [
            (
                "Content-Length: 1\r\nContent-Length: 2\r\n",
                "Content-Length is given twice",
            ),
            (
                "Content-Length: +1\r\n",
                "Content-Length \"+1\" is not a number",
            ),
            ("Content-Length:\r\n", "Content-Length \"\" is not a number"),
            (
                "Content-Length: 99999999999999999999\r\n",
                "Content-Length \"99999999999999999999\" is not a number",
            ),
            (
                "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
                "Content-Length and Transfer-Encoding exclude each other",
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
                "Content-Length and Transfer-Encoding exclude each other",
            ),
            (
                "Content-Length: 1, 1\r\n",
                "Content-Length \"1, 1\" is not a number",
            ),
            (
                "Content-Length : 1\r\n",
                "cannot read the request: invalid header name",
            ),
            (
                "A: b\r\n Content-Length: 1\r\n",
                "cannot read the request: invalid header name",
            ),
            (
                "Transfer-Encoding: gzip, chunked\r\n",
                "Transfer-Encoding \"gzip, chunked\" is not supported; chunked is",
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                "Transfer-Encoding \"chunked\" is not supported; chunked is",
            ),
        ] {
            refused(&format!("POST / HTTP/1.1\r\n{fields}\r\n"), 400, text);
        }
    }

    #[test]
    fn connections_stay_as_the_version_and_the_client_say() {
        let stays = |head: &str| whole(head).keep_alive;
        assert!(stays("GET / HTTP/1.1\r\n\r\n"));
        assert!(!stays("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n"));
        assert!(!stays("GET / HTTP/1.0\r\n\r\n"));
        assert!(stays("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        refused(
            "PRI * HTTP/2.0\r\n\r\n",
            505,
            "this server speaks HTTP/1.1 and HTTP/1.0",
        );
    }

    #[test]
    fn an_upgrade_needs_both_fields() {
        let head = "GET /exec HTTP/1.1\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
            Sec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: a, b\r\nSec-WebSocket-Protocol: c\r\n\r\n";
        let request = whole(head);
        assert_eq!(request.upgrade.as_deref(), Some("websocket"));
        assert_eq!(request.websocket_key.as_deref(), Some("k"));
        assert_eq!(request.websocket_version.as_deref(), Some("13"));
        assert_eq!(request.websocket_protocols, ["a", "b", "c"]);
        let without = head.replace(", Upgrade", "");
        assert_eq!(whole(&without).upgrade, None);
    }

    #[test]
    fn tokens_are_read_of_bearers_only() {
        let token = |value: &str| {
            let head = format!("GET / HTTP/1.1\r\nAuthorization: {value}\r\n\r\n");
            whole(&head).token
        };
        assert_eq!(token("bearer  abc "), Some("abc".into()));
        assert_eq!(token("BEARER abc"), Some("abc".into()));
        assert_eq!(token("Bearer "), None);
        assert_eq!(token("Basic abc"), None);
        assert_eq!(token("abc"), None);
    }

    #[test]
    fn who_made_a_browser_ask_is_kept() {
        let request = whole(
            "GET / HTTP/1.1\r\nhost: node:10250\r\nORIGIN:  https://a.example \r\nSec-Fetch-Site: cross-site\r\n\r\n",
        );
        assert_eq!(request.host.as_deref(), Some("node:10250"));
        assert_eq!(request.origin.as_deref(), Some("https://a.example"));
        assert_eq!(request.fetch_site.as_deref(), Some("cross-site"));
        let request = whole("GET / HTTP/1.1\r\n\r\n");
        assert_eq!(
            (request.host, request.origin, request.fetch_site),
            (None, None, None)
        );
    }

    #[test]
    fn more_fields_than_are_kept_are_refused() {
        let fields = "A: b\r\n".repeat(MAX_HEADERS + 1);
        refused(
            &format!("GET / HTTP/1.1\r\n{fields}\r\n"),
            431,
            "the request has more than 100 header fields",
        );
        refused(
            "GET /\u{1} HTTP/1.1\r\n\r\n",
            400,
            "cannot read the request: invalid token",
        );
    }
}
