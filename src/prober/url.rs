//! The URLs of an httpGet probe: from a spec's path, and from a redirect (kubelet-probes 3.4).
//!
//! Invariants: pure. A URL is always absolute, with scheme, host and port; its path holds only bytes that
//! may stand in a request line, its query no control characters: it goes as it is written, as with Go.

use std::fmt;

/// An http or https URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeUrl {
    /// `http` or `https`.
    pub scheme: String,
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// None only in a redirect that leaves it to the scheme.
    pub port: Option<u16>,
    /// Empty, or beginning with a slash; escaped.
    pub path: String,
    /// Without the question mark, as it is written; None when there is none.
    pub query: Option<String>,
    /// Without the number sign; shown where the URL is, and never sent.
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
    /// The URL of a probe: `path` is read as a URL reference, of which path, query and fragment stay; a text that is none
    /// is a plain path.
    pub fn of_probe(scheme: &str, host: &str, port: u16, path: &str) -> Self {
        let scheme = if scheme.is_empty() {
            "http".to_owned()
        } else {
            scheme.to_ascii_lowercase()
        };
        let (path, query, fragment) = match Reference::parse(path) {
            Some(r) => (
                escape_path(&rooted(r.path)),
                r.query.map(str::to_owned),
                r.fragment.map(escape_fragment),
            ),
            None => (escape_all(&rooted(path)), None, None),
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

    /// `host:port`, IPv6 in brackets; without the port when the URL has none.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        self.port
            .map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
    }

    /// The same for a Host header, where the zone of an address has no meaning.
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

    /// The port to connect to.
    pub fn port_or_default(&self) -> u16 {
        self.port
            .unwrap_or(if self.scheme == "https" { 443 } else { 80 })
    }

    /// Where a `Location` leads from here; None when it is no http or https URL.
    pub fn join(&self, location: &str) -> Option<Self> {
        let reference = Reference::parse(location)?;
        let scheme = reference
            .scheme
            .map_or_else(|| self.scheme.clone(), str::to_ascii_lowercase);
        if scheme != "http" && scheme != "https" {
            return None;
        }
        let (query, fragment) = (
            reference.query.map(str::to_owned),
            reference.fragment.map(escape_fragment),
        );
        if let Some(authority) = reference.authority {
            let (host, port) = split_authority(authority)?;
            return Some(Self {
                scheme,
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
        Some(Self {
            scheme,
            host: self.host.clone(),
            port: self.port,
            path,
            query,
            fragment,
        })
    }
}

/// Whether a `Location` names no scheme: then a Host header of the spec stays (kubelet-probes 3.4).
pub fn is_relative(location: &str) -> bool {
    Reference::parse(location).is_none_or(|r| r.scheme.is_none())
}

/// A URL reference taken apart, as Go's `url.Parse` does.
struct Reference<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

impl<'a> Reference<'a> {
    /// None: control characters, a bad percent escape, or a colon in the first segment of a relative path.
    fn parse(text: &'a str) -> Option<Self> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return None;
        }
        let (rest, fragment) = text.split_once('#').map_or((text, None), |(rest, f)| {
            (rest, Some(f).filter(|f| !f.is_empty()))
        });
        let (scheme, rest) = match rest.split_once(':') {
            Some((s, after)) if is_scheme(s) && after.starts_with('/') => (Some(s), after),
            _ => (None, rest),
        };
        let (before, query) = rest
            .split_once('?')
            .map_or((rest, None), |(b, q)| (b, Some(q)));
        let (authority, path) = match before.strip_prefix("//") {
            Some(after) => {
                let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
                (Some(authority), path)
            }
            None => (None, before),
        };
        let colon_first = !path.starts_with('/')
            && path
                .split('/')
                .next()
                .is_some_and(|segment| segment.contains(':'));
        (!colon_first && has_valid_escapes(path)).then_some(Self {
            scheme,
            authority,
            path,
            query,
            fragment,
        })
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

fn has_valid_escapes(path: &str) -> bool {
    path.split('%')
        .skip(1)
        .all(|rest| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

fn split_authority(authority: &str) -> Option<(String, Option<u16>)> {
    let authority = authority.rsplit('@').next()?;
    let (host, port) = match authority.rfind(':') {
        Some(at) if !authority[at..].contains(']') => (&authority[..at], &authority[at + 1..]),
        _ => (authority, ""),
    };
    let port = if port.is_empty() {
        None
    } else {
        Some(port.parse().ok()?)
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_host = !bare.is_empty() && !bare.bytes().any(|b| b" %/?\\^`{|}".contains(&b));
    is_host.then(|| (bare.to_owned(), port))
}

/// A relative path gets a slash when the URL is rendered.
fn rooted(path: &str) -> String {
    if path.is_empty() || path.starts_with('/') {
        path.into()
    } else {
        format!("/{path}")
    }
}

/// Resolves `.` and `..` (RFC 3986, 5.2.4).
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

/// A path that is already in valid form stays as it is written; another is decoded and escaped anew.
fn escape_path(path: &str) -> String {
    let written = |b: u8| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]/%".contains(&b);
    if path.bytes().all(written) {
        path.into()
    } else {
        escape_bytes(&unescape(path))
    }
}

/// A plain path, in which a percent sign means itself.
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
            base.join(location).map(|u| u.to_string()).as_deref(),
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
        follow("ftp://10.0.0.1/", None);
        follow("http://10.0.0.1:99999/", None);
        follow("/a\r\nb", None);
        follow("http://%zz/", None);
        follow("http://a b/", None);
        follow("c#d", Some("http://10.0.0.1:80/a/c#d"));
    }
}
