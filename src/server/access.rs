//! Who may ask what, by the door that a request came through and what it shows.
//!
//! Invariants: pure. On a TCP address, loopback included, only health is answered without credentials, because every pod
//! with hostNetwork shares the node's loopback. The one exception is the read-only port, which is off unless it is configured.

use super::health::is_health;
use super::request::Request;

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Door {
    /// The unix socket: who can open it may do everything.
    Unix,
    /// `healthzPort`: health, and nothing else.
    Health,
    /// `readOnlyPort`: what shows, without credentials.
    ReadOnly,
    /// `address` and `port`, with TLS: everything with credentials, health without.
    Main,
}

/// What the client of a request has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing, or nothing valid.
    None,
    /// A certificate that the client CA has signed, a token that fits, or a unix socket that it could open.
    Valid,
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

/// Whether `enableDebuggingHandlers` decides on the path: one of those above, or the files of a container, which are
/// podprobe's own.
fn is_debugging(parts: &[&str]) -> bool {
    match parts {
        ["podprobe", "v1", "files", ..] => true,
        parts => parts.first().is_some_and(|first| DEBUGGING.contains(first)),
    }
}

/// What the read-only port answers.
const READ_ONLY: [&str; 4] = ["metrics", "pods", "stats", ""];

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 401, 404 or 405.
    pub status: u16,
    /// A sentence.
    pub text: &'static str,
}

/// Whether a request is answered at all.
///
/// # Errors
/// What the client is told instead.
pub fn check(
    door: Door,
    credentials: Credentials,
    request: &Request,
    debugging: bool,
) -> Result<(), Refusal> {
    let refuse = |status, text| Err(Refusal { status, text });
    let parts = request.parts();
    let first = parts.first().copied().unwrap_or_default();
    if is_health(&request.path) {
        return match request.method.as_str() {
            "GET" | "HEAD" => Ok(()),
            _ => refuse(405, "Method Not Allowed"),
        };
    }
    match door {
        Door::Health => return refuse(404, "404 page not found"),
        Door::Main if credentials == Credentials::None => return refuse(401, "Unauthorized"),
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
    use crate::server::request;

    fn status(door: Door, credentials: Credentials, line: &str, debugging: bool) -> u16 {
        let head = format!("{line} HTTP/1.1\r\n\r\n");
        let (request, _) = request::read(head.as_bytes(), 0).unwrap().unwrap();
        match check(door, credentials, &request, debugging) {
            Ok(()) => 200,
            Err(refusal) => refusal.status,
        }
    }

    /// One line of the table: each door in the order Unix, Health, ReadOnly, Main without and with credentials.
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
