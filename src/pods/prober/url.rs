//! The URLs of an httpGet probe: made from the path in the spec, or from a redirect (kubelet-probes 3.4).
//!
//! Invariants: this module is pure. A URL is always absolute, and the URL of a probe has host and port. The path of a
//! URL has only bytes that are allowed in a request line. The query has no control characters and is sent as written,
//! as in Go.

use std::fmt;

use crate::base::wire::text::quote;

/// An http or https URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeUrl {
    /// The scheme in lower case: `http` or `https`. A redirect may have another scheme.
    pub scheme: String,
    /// The host name or address, with no brackets around an IPv6 address. The host is empty in a redirect without a
    /// host.
    pub host: String,
    /// The port, or `None` in a redirect without a port.
    pub port: Option<u16>,
    /// The escaped path, which is empty or begins with a slash.
    pub path: String,
    /// The query as written, without the question mark. `None` means that the URL has no query.
    pub query: Option<String>,
    /// The fragment without the number sign. The fragment is shown with the URL, but never sent.
    pub fragment: Option<String>,
}

impl fmt::Display for ProbeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}{}",
            self.scheme,
            self.authority().replace('%', "%25"),
            self.path
        )?;
        self.query.as_ref().map_or(Ok(()), |q| write!(f, "?{q}"))?;
        self.fragment
            .as_ref()
            .map_or(Ok(()), |fragment| write!(f, "#{fragment}"))
    }
}

impl ProbeUrl {
    /// Makes the URL of a probe. `path` is read as a URL reference with path, query and fragment. A text that is not a
    /// URL reference is used as a plain path.
    pub fn of_probe(scheme: &str, host: &str, port: u16, path: &str) -> Self {
        let scheme = if scheme.is_empty() {
            "http".to_owned()
        } else {
            scheme.to_ascii_lowercase()
        };
        let (path, query, fragment) = match Reference::parse(path) {
            Ok(r) if !r.is_opaque => (
                escape_path(&rooted(r.path)),
                r.query.map(str::to_owned),
                r.fragment.map(escape_fragment),
            ),
            _ => (escape_all(&rooted(path)), None, None),
        };
        Self {
            scheme,
            host: host.into(),
            port: Some(port),
            path,
            query,
            fragment,
        }
    }

    /// Returns `host:port`, with an IPv6 address in brackets. If the URL has no port, returns only the host.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        self.port
            .map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
    }

    /// Returns the host and port for a Host header, without the zone of an IPv6 address.
    pub fn host_header(&self) -> String {
        match (self.host.split_once('%'), self.port) {
            (None, _) => self.authority(),
            (Some((host, _)), port) => Self {
                host: host.into(),
                port,
                ..self.clone()
            }
            .authority(),
        }
    }

    /// Returns the port to connect to: the URL's port, or the default of its scheme.
    pub fn port_or_default(&self) -> u16 {
        self.port
            .unwrap_or(if self.scheme == "https" { 443 } else { 80 })
    }

    /// Resolves a `Location` relative to this URL. Any scheme is accepted, and even a URL without a host.
    ///
    /// # Errors
    /// Returns [`UrlError`] if the text is not a URL.
    pub fn join(&self, location: &str) -> Result<Self, UrlError> {
        let reference = Reference::parse(location).map_err(|e| e.of(location))?;
        let (query, fragment) = (
            reference.query.map(str::to_owned),
            reference.fragment.map(escape_fragment),
        );
        if reference.scheme.is_some() || reference.authority.is_some() {
            let (host, port) = reference.host().map_err(|e| e.of(location))?;
            let scheme = reference.scheme.unwrap_or(&self.scheme);
            return Ok(Self {
                scheme: scheme.to_ascii_lowercase(),
                host,
                port,
                path: escape_path(&remove_dots(reference.path)),
                query,
                fragment,
            });
        }
        let (path, query) = match reference.path {
            "" => (self.path.clone(), query.or_else(|| self.query.clone())),
            absolute if absolute.starts_with('/') => (escape_path(&remove_dots(absolute)), query),
            relative => {
                let base = self.path.rfind('/').map_or("/", |at| &self.path[..=at]);
                (
                    escape_path(&remove_dots(&format!("{base}{relative}"))),
                    query,
                )
            }
        };
        Ok(Self {
            scheme: self.scheme.clone(),
            host: self.host.clone(),
            port: self.port,
            path,
            query,
            fragment,
        })
    }
}

/// True if a `Location` has no scheme. The request then keeps the spec's Host header (kubelet-probes 3.4).
pub fn is_relative(location: &str) -> bool {
    Reference::parse(location).is_ok_and(|r| r.scheme.is_none())
}

/// The parts of a URL reference, as Go's `url.Parse` returns them.
#[derive(Debug)]
struct Reference<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    /// True for a text like `mailto:somebody`, which has no host and no path.
    is_opaque: bool,
    path: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

/// A text is not a URL. The error is displayed in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parse {}: {why}", quote(.parsed.as_bytes()))]
pub struct UrlError {
    /// The text that was parsed, without its fragment.
    parsed: String,
    #[source]
    why: NoUrl,
}

/// The reason why a text is not a URL, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NoUrl {
    /// The text has a control character.
    #[error("net/url: invalid control character in URL")]
    ControlCharacter,
    /// The text begins with a colon, so the scheme is missing.
    #[error("missing protocol scheme")]
    NoScheme,
    /// The first segment of the path has a colon, which would end a scheme.
    #[error("first path segment in URL cannot contain colon")]
    ColonInFirstSegment,
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("invalid URL escape {}", quote(.0))]
    Escape(Vec<u8>),
    /// An opening bracket has no closing bracket.
    #[error("missing ']' in host")]
    OpenBracket,
    /// The text after the host, with its colon, is not a port.
    #[error("invalid port {} after host", quote(.0.as_bytes()))]
    Port(String),
    /// The host has a byte that is not allowed in a host name.
    #[error("invalid character {} in host name", quote(&[*.0]))]
    HostCharacter(u8),
}

impl NoUrl {
    fn of(self, text: &str) -> UrlError {
        let parsed = text.split('#').next().unwrap_or_default();
        UrlError {
            parsed: parsed.to_owned(),
            why: self,
        }
    }
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Result<Self, NoUrl> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err(NoUrl::ControlCharacter);
        }
        let (rest, fragment) = text.split_once('#').map_or((text, None), |(rest, f)| {
            (rest, Some(f).filter(|f| !f.is_empty()))
        });
        let (scheme, rest) = match rest.split_once(':') {
            Some(("", _)) => return Err(NoUrl::NoScheme),
            Some((s, after)) if is_scheme(s) => (Some(s), after),
            _ => (None, rest),
        };
        let (before, query) = rest
            .split_once('?')
            .map_or((rest, None), |(b, q)| (b, Some(q)));
        let is_opaque = scheme.is_some() && !before.starts_with('/');
        let (authority, path) = match before.strip_prefix("//") {
            Some(after) => {
                let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
                (Some(authority), path)
            }
            None if is_opaque => (None, ""),
            None => (None, before),
        };
        if path
            .split('/')
            .next()
            .is_some_and(|segment| segment.contains(':'))
        {
            return Err(NoUrl::ColonInFirstSegment);
        }
        let reference = Self {
            scheme,
            authority,
            is_opaque,
            path,
            query,
            fragment,
        };
        reference.host()?;
        check_escapes(path)?;
        Ok(reference)
    }

    /// Returns the host without brackets, and the port.
    fn host(&self) -> Result<(String, Option<u16>), NoUrl> {
        self.authority
            .map_or_else(|| Ok((String::new(), None)), split_authority)
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

fn check_escapes(text: &str) -> Result<(), NoUrl> {
    for (at, _) in text.match_indices('%') {
        let escape = &text.as_bytes()[at..text.len().min(at + 3)];
        if escape.len() < 3 || !escape[1..].iter().all(u8::is_ascii_hexdigit) {
            return Err(NoUrl::Escape(escape.to_owned()));
        }
    }
    Ok(())
}

fn split_authority(authority: &str) -> Result<(String, Option<u16>), NoUrl> {
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (bare, after) = match (host.rfind('['), host.rfind(']')) {
        (Some(_), None) => return Err(NoUrl::OpenBracket),
        (Some(open), Some(close)) if open < close => (&host[open + 1..close], &host[close + 1..]),
        _ => host.split_at(host.rfind(':').unwrap_or(host.len())),
    };
    let port = parse_port(after).ok_or_else(|| NoUrl::Port(after.to_owned()))?;
    check_escapes(bare)?;
    if let Some(bad) = bare.bytes().find(|b| b" /?\\^`{|}".contains(b)) {
        return Err(NoUrl::HostCharacter(bad));
    }
    Ok((bare.to_owned(), port))
}

/// Reads the port of a text like `:80`. The inner `None` means that the text has no digits and so no port. The outer
/// `None` means that the text or its number is not a port.
fn parse_port(text: &str) -> Option<Option<u16>> {
    match text.strip_prefix(':') {
        None if text.is_empty() => Some(None),
        None => None,
        Some("") => Some(None),
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok().map(Some),
        Some(_) => None,
    }
}

/// Adds the leading slash that a relative path gets in the rendered URL.
fn rooted(path: &str) -> String {
    if path.is_empty() || path.starts_with('/') {
        path.into()
    } else {
        format!("/{path}")
    }
}

/// Resolves the segments `.` and `..` of a path (RFC 3986, 5.2.4).
fn remove_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for (i, segment) in segments.iter().enumerate() {
        let last = i + 1 == segments.len();
        match *segment {
            "." => {}
            ".." => drop(kept.pop()),
            other => kept.push(other),
        }
        if last && matches!(*segment, "." | "..") {
            kept.push("");
        }
    }
    if path.is_empty() {
        String::new()
    } else {
        format!("/{}", kept.join("/"))
    }
}

/// Escapes a path. A path in valid form stays as written. Any other path is decoded and escaped again.
fn escape_path(path: &str) -> String {
    let written = |b: u8| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]/%".contains(&b);
    if path.bytes().all(written) {
        path.into()
    } else {
        escape_bytes(&unescape(path))
    }
}

/// Escapes a plain path, in which a percent sign is an ordinary character.
fn escape_all(path: &str) -> String {
    escape_bytes(path.as_bytes())
}

fn escape_bytes(path: &[u8]) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b);
    path.iter()
        .map(|&b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

fn escape_fragment(fragment: &str) -> String {
    let plain = |b: u8| (0x21..0x7f).contains(&b) && !b"\"<>".contains(&b);
    fragment
        .bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

fn unescape(path: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) => (out.push(byte), rest = &tail[2..]).1,
            None => (out.push(*first), rest = tail).1,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scheme: &str, host: &str, port: u16, path: &str, expected: &str) {
        assert_eq!(
            ProbeUrl::of_probe(scheme, host, port, path).to_string(),
            expected
        );
    }

    #[test]
    fn a_spec_becomes_a_url() {
        check("http", "localhost", 93, "", "http://localhost:93");
        check(
            "HTTPS",
            "localhost",
            93,
            "/path",
            "https://localhost:93/path",
        );
        check("", "localhost", 93, "?foo", "http://localhost:93?foo");
        check(
            "HTTP",
            "10.0.0.1",
            80,
            "healthz",
            "http://10.0.0.1:80/healthz",
        );
        check(
            "HTTP",
            "10.0.0.1",
            80,
            "http://other:99/p",
            "http://10.0.0.1:80/p",
        );
        check(
            "HTTP",
            "fd00::1",
            80,
            "/a?b=c&d#e",
            "http://[fd00::1]:80/a?b=c&d#e",
        );
        check("HTTP", "h", 80, "#e", "http://h:80#e");
    }

    #[test]
    fn odd_paths_stay_within_the_request_line() {
        check("", "h", 1, "/a b", "http://h:1/a%20b");
        check("", "h", 1, "/a%20b(c)", "http://h:1/a%20b(c)");
        check("", "h", 1, "/a%20b c", "http://h:1/a%20b%20c");
        check("", "h", 1, "/100%", "http://h:1/100%25");
        check(
            "",
            "h",
            1,
            "/x\r\nHost: evil",
            "http://h:1/x%0D%0AHost:%20evil",
        );
        check("", "h", 1, "/ä?q=ö x#ü", "http://h:1/%C3%A4?q=ö x#%C3%BC");
        check(
            "",
            "h",
            1,
            "/?q=\r\nHost: evil",
            "http://h:1/%3Fq=%0D%0AHost:%20evil",
        );
        check("", "h", 1, "/?a?b", "http://h:1/?a?b");
    }

    #[test]
    fn the_zone_of_an_address_is_shown_and_not_sent() {
        let url = ProbeUrl::of_probe("", "fe80::1%eth0", 80, "/x");
        assert_eq!(
            (url.to_string().as_str(), url.host_header().as_str()),
            ("http://[fe80::1%25eth0]:80/x", "[fe80::1]:80")
        );
    }

    #[track_caller]
    fn follow(location: &str, expected: Option<&str>) {
        let base = ProbeUrl::of_probe("http", "10.0.0.1", 80, "/a/b?q");
        assert_eq!(
            base.join(location).map(|u| u.to_string()).ok().as_deref(),
            expected,
            "{location}"
        );
    }

    #[test]
    fn redirects_resolve_like_references() {
        follow("/new", Some("http://10.0.0.1:80/new"));
        follow("c", Some("http://10.0.0.1:80/a/c"));
        follow("../c?x", Some("http://10.0.0.1:80/c?x"));
        follow("./", Some("http://10.0.0.1:80/a/"));
        follow("?x", Some("http://10.0.0.1:80/a/b?x"));
        follow("", Some("http://10.0.0.1:80/a/b?q"));
        follow("http://10.0.0.1:81/p", Some("http://10.0.0.1:81/p"));
        follow("https://10.0.0.1/p", Some("https://10.0.0.1/p"));
        follow("//[::1]:8/p", Some("http://[::1]:8/p"));
        follow("http://u:p@other/", Some("http://other/"));
        follow("ftp://10.0.0.1/", Some("ftp://10.0.0.1/"));
        follow("mailto:a@b", Some("mailto://"));
        follow("http:/p", Some("http:///p"));
        follow("http:///p", Some("http:///p"));
        follow("http://10.0.0.1:99999/", None);
        follow("/a\r\nb", None);
        follow("http://%zz/", None);
        follow("http://a b/", None);
        follow("c#d", Some("http://10.0.0.1:80/a/c#d"));
    }

    #[track_caller]
    fn no_url(location: &str, expected: &str) {
        let base = ProbeUrl::of_probe("http", "10.0.0.1", 80, "/a");
        assert_eq!(base.join(location).unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_text_that_is_no_url_has_gos_error() {
        no_url("http://[::1", r#"parse "http://[::1": missing ']' in host"#);
        no_url(
            "http://h:x/#f",
            r#"parse "http://h:x/": invalid port ":x" after host"#,
        );
        no_url(
            "http://a b/",
            r#"parse "http://a b/": invalid character " " in host name"#,
        );
        no_url("/%zz", r#"parse "/%zz": invalid URL escape "%zz""#);
        no_url("/%4", r#"parse "/%4": invalid URL escape "%4""#);
        no_url(":80/", r#"parse ":80/": missing protocol scheme"#);
        no_url(
            "1:2/3",
            r#"parse "1:2/3": first path segment in URL cannot contain colon"#,
        );
        no_url(
            "/a\r\nb",
            r#"parse "/a\r\nb": net/url: invalid control character in URL"#,
        );
    }
}
