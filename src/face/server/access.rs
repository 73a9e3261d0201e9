//! Decides whether a request is allowed, by the listener that it came through, the client's credentials and the path.
//!
//! Invariants: pure. On a TCP address, loopback included, only health is answered without credentials, because every
//! pod with hostNetwork shares the node's loopback. The one exception is the read-only port, which is off unless it is
//! configured. A web page of another site gets nothing but health from a TCP address, because the browser that shows
//! the page may have credentials.

use std::borrow::Cow;
use std::net::IpAddr;

use super::health::is_health;
use super::request::Request;
use crate::api::review::User;

/// A listener of the server. The listener decides what its clients may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Door {
    /// The unix socket. A client that can open it may do everything.
    Unix,
    /// `healthzPort`: answers health, and nothing else.
    Health,
    /// `readOnlyPort`: answers a few paths that change nothing, without credentials.
    ReadOnly,
    /// `address` and `port`, with TLS: clients with credentials get every path, and clients without credentials only
    /// health.
    Main,
}

/// The credentials that the client of a request has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// The client has shown nothing, or nothing valid.
    None,
    /// The client has shown a certificate that the client CA has signed, or the right token, or it could open the unix
    /// socket. It may do everything.
    Valid,
    /// The API server of the cluster has the last word about the client.
    Claimed(Claim),
}

/// The claim of a client about itself, which the API server reviews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The client has shown a certificate of this user that the client CA has signed.
    User(User),
    /// The client has sent this token, which is not the node's own.
    Token(String),
}

/// The paths that `enableDebuggingHandlers: false` closes (11.2).
const DEBUGGING: [&str; 8] = [
    "run",
    "exec",
    "attach",
    "portForward",
    "containerLogs",
    "runningpods",
    "logs",
    "debug",
];

/// Returns true if `enableDebuggingHandlers` switches the path on and off. Such paths are the paths of `DEBUGGING`, and
/// podprobe's own path for the files of a container.
fn is_debugging(parts: &[&str]) -> bool {
    match parts {
        ["podprobe", "v1", "files", ..] => true,
        parts => parts.first().is_some_and(|first| DEBUGGING.contains(first)),
    }
}

/// The first parts of the paths that the read-only port answers.
const READ_ONLY: [&str; 4] = ["metrics", "pods", "stats", ""];

/// The answer to a request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status: 401, 403, 404 or 405; 500 or 503 if the API server cannot be asked.
    pub status: u16,
    /// The sentence that the client gets.
    pub text: Cow<'static, str>,
}

impl Refusal {
    /// Makes a refusal.
    pub fn new(status: u16, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }
}

/// Returns the reason to refuse a request that a browser may have sent for a web page of another site; None if the
/// request is allowed.
fn of_a_page(door: Door, request: &Request) -> Option<&'static str> {
    let scheme = match door {
        // An API server passes the fields of its own client on, also those of a browser. A page of another site cannot make
        // a browser send `X-Forwarded-For`.
        Door::Main if request.is_forwarded => return None,
        Door::Main => "https",
        Door::ReadOnly => "http",
        Door::Unix | Door::Health => return None,
    };
    let host = request.host.as_deref();
    if is_foreign(request, scheme, host.unwrap_or_default()) {
        return Some("a web page of another site may not ask: open this address by itself");
    }
    // A page's own name server can resolve the page's name to 127.0.0.1. With TLS the certificate would not fit that
    // name.
    let is_named = door == Door::ReadOnly && host.is_some_and(|host| !is_local(host));
    is_named.then_some("Host is neither an IP address nor localhost: open 127.0.0.1")
}

/// Returns true if a browser reports, by `Sec-Fetch-Site` or `Origin`, that a page of another site sends the request.
/// Only browsers send these fields.
fn is_foreign(request: &Request, scheme: &str, host: &str) -> bool {
    let own = format!("{scheme}://{host}");
    let site = request.fetch_site.as_deref();
    let origin = request.origin.as_deref();
    site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
        || origin.is_some_and(|origin| !origin.eq_ignore_ascii_case(&own))
}

/// Returns true if `Host`, with a port or without, is `localhost` or an IP address. No name server can change where
/// such a host leads.
fn is_local(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost") || bare.unwrap_or(name).parse::<IpAddr>().is_ok()
}

/// Decides whether a request is answered, as far as that is known without the cluster.
///
/// # Errors
/// Returns the [`Refusal`] that the client gets instead of an answer.
pub fn check(
    door: Door,
    credentials: &Credentials,
    request: &Request,
    debugging: bool,
) -> Result<(), Refusal> {
    let refuse = |status, text| Err(Refusal::new(status, text));
    let parts = request.parts();
    let first = parts.first().copied().unwrap_or_default();
    if is_health(&request.path) {
        return match request.method.as_str() {
            "GET" | "HEAD" => Ok(()),
            _ => refuse(405, "Method Not Allowed"),
        };
    }
    if let Some(text) = of_a_page(door, request) {
        return refuse(403, text);
    }
    match door {
        Door::Health => return refuse(404, "404 page not found"),
        Door::Main if *credentials == Credentials::None => return refuse(401, "Unauthorized"),
        Door::ReadOnly if is_debugging(&parts) => {
            return refuse(405, "Debug endpoints are disabled.");
        }
        Door::ReadOnly if !READ_ONLY.contains(&first) => {
            return refuse(404, "404 page not found");
        }
        Door::ReadOnly if !matches!(request.method.as_str(), "GET" | "HEAD") => {
            return refuse(405, "Method Not Allowed");
        }
        Door::Unix | Door::Main | Door::ReadOnly => {}
    }
    if !debugging && is_debugging(&parts) {
        return refuse(405, "Debug endpoints are disabled.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::server::request;

    fn status(door: Door, credentials: Credentials, line: &str, debugging: bool) -> u16 {
        let head = format!("{line} HTTP/1.1\r\n\r\n");
        let (request, _) = request::read(head.as_bytes(), 0).unwrap().unwrap();
        match check(door, &credentials, &request, debugging) {
            Ok(()) => 200,
            Err(refusal) => refusal.status,
        }
    }

    /// An API server has a client with an `Origin` of its own.
    #[test]
    fn what_an_api_server_passes_on_is_not_taken_for_a_page() {
        let of = |door, fields: &str| {
            let head = format!("GET /exec/a/b/c HTTP/1.1\r\nHost: 10.0.0.1:1\r\n{fields}\r\n");
            let (request, _) = request::read(head.as_bytes(), 0).unwrap().unwrap();
            check(door, &Credentials::Valid, &request, true).map_err(|refusal| refusal.status)
        };
        let page = "Origin: http://localhost\r\nSec-Fetch-Site: cross-site\r\n";
        assert_eq!(of(Door::Main, page), Err(403));
        let forwarded = format!("{page}X-Forwarded-For: 10.0.0.7\r\n");
        assert_eq!(of(Door::Main, &forwarded), Ok(()));
        assert_eq!(of(Door::ReadOnly, &forwarded), Err(403));
    }

    /// Checks the status of a request line at each listener, in this order: Unix, Health, ReadOnly, Main without
    /// credentials, Main with credentials.
    #[track_caller]
    fn doors(line: &str, expected: [u16; 5]) {
        use Credentials::{None, Valid};
        let got = [
            (Door::Unix, Valid),
            (Door::Health, None),
            (Door::ReadOnly, None),
            (Door::Main, None),
            (Door::Main, Valid),
        ]
        .map(|(door, credentials)| status(door, credentials, line, true));
        assert_eq!(got, expected, "{line}");
    }

    #[test]
    fn without_credentials_nothing_but_health_is_answered() {
        for path in ["/healthz", "/healthz/ping", "/livez?verbose", "/readyz"] {
            doors(&format!("GET {path}"), [200; 5]);
        }
        doors("POST /healthz", [405; 5]);
        for path in [
            "/pods",
            "/metrics",
            "/metrics/cadvisor",
            "/stats/summary",
            "/",
        ] {
            doors(&format!("GET {path}"), [200, 404, 200, 401, 200]);
        }
        for path in [
            "/configz",
            "/events",
            "/podprobe/v1/snapshot",
            "/nothing",
            "/version",
        ] {
            doors(&format!("GET {path}"), [200, 404, 404, 401, 200]);
        }
        for path in [
            "/containerLogs/a/b/c",
            "/logs/",
            "/debug/threads",
            "/runningpods/",
        ] {
            doors(&format!("GET {path}"), [200, 404, 405, 401, 200]);
        }
        doors("POST /run/a/b/c", [200, 404, 405, 401, 200]);
        doors("PUT /podprobe/v1/files/a/b/c", [200, 404, 405, 401, 200]);
        doors("POST /metrics", [200, 404, 405, 401, 200]);
        doors("HEAD /metrics", [200, 404, 200, 401, 200]);
    }

    /// Returns the status of a request with these header fields: on the main port with credentials, and on the
    /// read-only port.
    fn with_fields(line: &str, fields: &str) -> [u16; 2] {
        [
            (Door::Main, Credentials::Valid),
            (Door::ReadOnly, Credentials::None),
        ]
        .map(|(door, credentials)| {
            let head = format!("{line} HTTP/1.1\r\n{fields}\r\n");
            let (request, _) = request::read(head.as_bytes(), 0).unwrap().unwrap();
            check(door, &credentials, &request, true)
                .map_or_else(|refusal| refusal.status, |()| 200)
        })
    }

    /// A request that a page of another site makes is refused even with credentials. A browser shows its client
    /// certificate for every page, so the certificate does not prove that the user has asked.
    #[test]
    fn a_page_of_another_site_may_not_ask() {
        let of = |fields: &str| with_fields("GET /pods", fields);
        for site in ["cross-site", "same-site", "", "None"] {
            assert_eq!(of(&format!("Sec-Fetch-Site: {site}\r\n")), [403; 2]);
        }
        for site in ["same-origin", "none"] {
            assert_eq!(of(&format!("Sec-Fetch-Site: {site}\r\n")), [200; 2]);
        }
        let of_origin = |origin: &str| of(&format!("Host: 10.0.0.1:1\r\nOrigin: {origin}\r\n"));
        assert_eq!(of_origin("https://10.0.0.1:1"), [200, 403]);
        assert_eq!(of_origin("http://10.0.0.1:1"), [403, 200]);
        for origin in [
            "null",
            "",
            "https://a.example",
            "https://10.0.0.1",
            "https://10.0.0.1:12",
            "10.0.0.1:1",
        ] {
            assert_eq!(of_origin(origin), [403; 2], "{origin}");
        }
        let both = "Host: 10.0.0.1\r\nOrigin: https://10.0.0.1\r\nSec-Fetch-Site: same-site\r\n";
        assert_eq!(of(both), [403; 2]);
        assert_eq!(of("Origin: https://a.example\r\n"), [403; 2], "no Host");
    }

    #[test]
    fn a_page_can_neither_change_nor_run_anything() {
        let origin = "Host: node:10250\r\nOrigin: https://a.example\r\n";
        for line in [
            "POST /run/a/b/c",
            "GET /exec/a/b/c",
            "POST /podprobe/v1/delete",
        ] {
            assert_eq!(with_fields(line, origin)[0], 403, "{line}");
            assert_eq!(with_fields(line, "Host: node:10250\r\n")[0], 200);
        }
    }

    #[test]
    fn a_page_learns_health_and_the_unix_socket_looks_at_no_site() {
        let fields = "Host: a.example\r\nOrigin: null\r\nSec-Fetch-Site: cross-site\r\n";
        assert_eq!(with_fields("GET /healthz", fields), [200; 2]);
        let line = format!("GET /pods HTTP/1.1\r\n{fields}X: y");
        let head = format!("{line}\r\n\r\n");
        let (request, _) = request::read(head.as_bytes(), 0).unwrap().unwrap();
        assert!(check(Door::Unix, &Credentials::Valid, &request, true).is_ok());
    }

    /// A page's own name server can resolve the page's name to 127.0.0.1. The read-only port refuses such a `Host`.
    #[test]
    fn the_read_only_port_is_asked_by_an_address() {
        let of = |host: &str| with_fields("GET /pods", &format!("Host: {host}\r\n"));
        for host in [
            "127.0.0.1",
            "127.0.0.1:10255",
            "localhost",
            "LOCALHOST:10255",
            "[::1]",
            "[::1]:10255",
        ] {
            assert_eq!(of(host), [200; 2], "{host}");
        }
        for host in [
            "a.example",
            "a.example:10255",
            "localhost.a.example:10255",
            "127.0.0.1.a.example",
            "a.example:127.0.0.1",
            "[a.example]:1",
            "",
        ] {
            assert_eq!(of(host), [200, 403], "{host}");
        }
        assert_eq!(with_fields("GET /pods", ""), [200; 2]);
    }

    #[test]
    fn debugging_can_be_switched_off_everywhere() {
        for path in [
            "run",
            "exec",
            "attach",
            "portForward",
            "containerLogs",
            "logs",
            "podprobe/v1/files",
        ] {
            let line = format!("GET /{path}/a/b/c");
            assert_eq!(status(Door::Unix, Credentials::Valid, &line, false), 405);
            assert_eq!(status(Door::Main, Credentials::Valid, &line, false), 405);
            assert_eq!(status(Door::Main, Credentials::None, &line, false), 401);
        }
        assert_eq!(
            status(Door::Unix, Credentials::Valid, "GET /pods", false),
            200
        );
    }
}
