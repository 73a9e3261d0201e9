//! The head and the body of an answer, as bytes.
//!
//! Invariants: pure.

use std::fmt::Write;

use super::request::Request;

/// The content type `text/plain`.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// The content type `application/json`.
pub const JSON: &str = "application/json";
/// The content type `text/html`.
pub const HTML: &str = "text/html; charset=utf-8";
/// The content type of a tar stream.
pub const TAR: &str = "application/x-tar";
/// The content type of the Prometheus text format.
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How the end of an answer's body is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The body has this many bytes.
    Length(usize),
    /// The body ends after the last chunk.
    Chunked,
    /// The body ends with the connection.
    Connection,
}

/// Returns the head of an answer.
pub fn head(status: u16, content_type: &str, body: Body, keep_alive: bool) -> String {
    let mut out = String::with_capacity(192);
    // Writing to a String does not fail.
    let _ = write!(
        out,
        "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n",
        reason(status)
    );
    let _ = match body {
        Body::Length(n) => write!(out, "Content-Length: {n}\r\n"),
        Body::Chunked => write!(out, "Transfer-Encoding: chunked\r\n"),
        Body::Connection => Ok(()),
    };
    match status {
        401 => out.push_str("WWW-Authenticate: Bearer\r\n"),
        503 => out.push_str("Retry-After: 1\r\n"),
        _ => {}
    }
    if !keep_alive {
        out.push_str("Connection: close\r\n");
    }
    if content_type == HTML {
        // With this policy the browser fetches and runs nothing. So text that a container has put into an event stays
        // text.
        out.push_str("Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n");
    }
    out.push_str("\r\n");
    out
}

/// Returns the head and the body of an answer.
pub fn whole(status: u16, content_type: &str, body: &str, keep_alive: bool) -> Vec<u8> {
    let head = head(status, content_type, Body::Length(body.len()), keep_alive);
    (head + body).into_bytes()
}

/// Returns the whole answer with a text to a request. The answer to a HEAD request has no body.
pub fn to(request: &Request, status: u16, text: &str, keep_alive: bool) -> Vec<u8> {
    let mut bytes = whole(status, TEXT, text, keep_alive);
    if request.is_head() {
        bytes.truncate(bytes.len() - text.len());
    }
    bytes
}

fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        301 => "Moved Permanently",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        422 => "Unprocessable Entity",
        426 => "Upgrade Required",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_it_ends() {
        let text = String::from_utf8(whole(200, TEXT, "ok", true)).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("\r\nContent-Length: 2\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\nok"), "{text}");
        assert!(!text.contains("Connection:"), "{text}");
        let chunked = head(503, JSON, Body::Chunked, false);
        assert!(chunked.contains("\r\nTransfer-Encoding: chunked\r\n"));
        assert!(chunked.contains("\r\nConnection: close\r\n"));
        assert!(chunked.contains("\r\nRetry-After: 1\r\n"));
        assert!(!chunked.contains("Content-Length"));
        assert!(
            head(401, TEXT, Body::Length(0), false).contains("\r\nWWW-Authenticate: Bearer\r\n")
        );
    }

    #[test]
    fn a_page_can_run_nothing() {
        assert!(head(200, HTML, Body::Chunked, true).contains("default-src 'none'"));
        assert!(!head(200, TEXT, Body::Chunked, true).contains("default-src"));
    }
}
