//! The answers of the health servers, with kube-proxy's paths, codes, headers and bodies (services 8).
//!
//! Invariants: pure. Any bytes from a client lead to an answer or to a wait for more bytes. At most
//! [`MAX_HEAD`] bytes are kept.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::SystemTime;

use super::state::HealthState;
use crate::base::clock::{Moment, Time};

/// The greatest size of the head of a request, in bytes. Load balancers send a few hundred bytes.
pub const MAX_HEAD: usize = 4096;
const MAX_HEADERS: usize = 64;

/// The subject of a health check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// The data path, checked at `healthzBindAddress`.
    Proxy,
    /// A service on this node, checked at its `healthCheckNodePort`.
    Service {
        /// The namespace of the service.
        namespace: String,
        /// The name of the service.
        name: String,
    },
}

impl Asked {
    /// Returns the name of the field that sets the address of this health check, with the value `at`. The result
    /// is a part of texts for users.
    pub fn field(&self, at: SocketAddr) -> String {
        match self {
            Self::Proxy => format!("healthzBindAddress {at}"),
            Self::Service { namespace, name } => {
                let port = at.port();
                format!("service {namespace}/{name}: spec.healthCheckNodePort {port}")
            }
        }
    }
}

/// A complete request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A valid request for a path.
    Path {
        /// The path without its query.
        path: String,
        /// True if the method is `HEAD`. The answer to `HEAD` has no body.
        head_only: bool,
    },
    /// A request that is not valid HTTP, or is too long. The number is the status code of the answer.
    Bad(u16),
}

/// An answer that is to be counted and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status code, for example `200`.
    pub code: u16,
    /// The requested path of the proxy's health check, if this path has a counter; otherwise None.
    pub counted: Option<Counted>,
    /// The complete answer as it is sent, with status line and headers.
    pub bytes: Vec<u8>,
}

/// A path that has its own counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// The path `/healthz`.
    Healthz,
    /// The path `/livez`.
    Livez,
}

/// Parses the request when its head is complete or too long. Returns None before that. `from` is the number of
/// bytes of `head` that an earlier call has already searched.
pub fn question(head: &[u8], from: usize) -> Option<Question> {
    let begin = from.saturating_sub(3);
    let ends = |tail: &[u8]| tail.starts_with(b"\r\n\r\n") || tail.starts_with(b"\n\n");
    if !(begin..head.len()).any(|at| ends(&head[at..])) {
        return (head.len() >= MAX_HEAD).then_some(Question::Bad(431));
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    Some(match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {
            let target = request.path.unwrap_or_default();
            Question::Path {
                path: path_of(target).to_owned(),
                head_only: request.method == Some("HEAD"),
            }
        }
        Err(httparse::Error::TooManyHeaders) => Question::Bad(431),
        Ok(httparse::Status::Partial) | Err(_) => Question::Bad(400),
    })
}

/// Returns the path in the target of a request: `/a` for `/a?b` and for `http://host/a`.
fn path_of(target: &str) -> &str {
    let target = target.split(['?', '#']).next().unwrap_or_default();
    match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    }
}

/// Returns the answer to a request.
pub fn answer(
    asked: &Asked,
    question: &Question,
    state: &HealthState,
    now: Moment,
    wall: SystemTime,
) -> Answer {
    let (path, head_only) = match question {
        Question::Bad(code) => return plain(*code, reason(*code), false),
        Question::Path { path, head_only } => (path.as_str(), *head_only),
    };
    match (asked, path) {
        (Asked::Service { namespace, name }, _) => {
            of_service(namespace, name, state, now, head_only)
        }
        (Asked::Proxy, "/healthz") => of_proxy(Counted::Healthz, state, now, wall, head_only),
        (Asked::Proxy, "/livez") => of_proxy(Counted::Livez, state, now, wall, head_only),
        (Asked::Proxy, "/proxyMode") => plain(200, state.mode(), head_only),
        (Asked::Proxy, _) => plain(404, "404 page not found\n", head_only),
    }
}

fn of_proxy(
    counted: Counted,
    state: &HealthState,
    now: Moment,
    wall: SystemTime,
    head_only: bool,
) -> Answer {
    let is_healthy = state.is_healthy(now);
    let updated = match is_healthy {
        true => Some(wall),
        false => state.updated(),
    };
    let (updated, current) = (Time::go(updated), Time::go(Some(wall)));
    // A node is always eligible, because there are no node objects that could be marked for deletion.
    let eligible = match counted {
        Counted::Healthz => r#", "nodeEligible": true"#,
        Counted::Livez => "",
    };
    let body = format!(r#"{{"lastUpdated": "{updated}","currentTime": "{current}"{eligible}}}"#);
    let code = if is_healthy { 200 } else { 503 };
    Answer {
        code,
        counted: Some(counted),
        bytes: bytes(code, JSON, "", &body, head_only),
    }
}

fn of_service(
    namespace: &str,
    name: &str,
    state: &HealthState,
    now: Moment,
    head_only: bool,
) -> Answer {
    let mut checks = state.checks().iter();
    let check = checks.find(|c| c.namespace == namespace && c.service == name);
    let count = check.map_or(0, |c| c.local_endpoints);
    let is_healthy = state.is_healthy(now);
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{namespace}\",\n\t\t\"name\": \"{name}\"\n\t}},\n\t\
         \"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": {is_healthy}\n}}"
    );
    let code = if count > 0 && is_healthy { 200 } else { 503 };
    let weight = format!("X-Load-Balancing-Endpoint-Weight: {count}\r\n");
    Answer {
        code,
        counted: None,
        bytes: bytes(code, JSON, &weight, &body, head_only),
    }
}

fn plain(code: u16, body: &str, head_only: bool) -> Answer {
    Answer {
        code,
        counted: None,
        bytes: bytes(code, TEXT, "", body, head_only),
    }
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

fn bytes(code: u16, content: &str, more: &str, body: &str, head_only: bool) -> Vec<u8> {
    let mut text = String::with_capacity(512);
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "HTTP/1.1 {code} {}\r\nContent-Type: {content}\r\nX-Content-Type-Options: nosniff\r\n{more}\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        reason(code),
        body.len()
    );
    if !head_only {
        text.push_str(body);
    }
    text.into_bytes()
}

fn reason(code: u16) -> &'static str {
    match code {
        200 => "OK",
        404 => "Not Found",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Bad Request",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::services::build::HealthCheck;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn wall(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 250)
    }

    fn state(local_endpoints: usize) -> HealthState {
        let mut state = HealthState::new("nftables", at(0));
        state.look(at(100), wall(100), true);
        state.set_checks(&[HealthCheck {
            namespace: "default".into(),
            service: "web".into(),
            port: 30000,
            local_endpoints,
        }]);
        state
    }

    #[track_caller]
    fn check(asked: &Asked, request: &str, local: usize, now: u64, code: u16, body: &str) {
        let question = question(request.as_bytes(), 0).expect("it is complete");
        let answer = answer(asked, &question, &state(local), at(now), wall(now));
        let text = String::from_utf8(answer.bytes).unwrap();
        let (head, got) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!((answer.code, got), (code, body), "{head}");
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{head}");
        assert!(head.contains("\r\nX-Content-Type-Options: nosniff\r\n"));
        if !request.starts_with("HEAD") {
            let length = format!("\r\nContent-Length: {}\r\n", body.len());
            assert!(head.contains(&length), "{head}");
        }
        if let Asked::Service { .. } = asked {
            let weight = format!("\r\nX-Load-Balancing-Endpoint-Weight: {local}\r\n");
            assert!(head.contains(&weight), "{head}");
        }
    }

    #[test]
    fn the_proxy_answers_as_kube_proxy_does() {
        let proxy = |path: &str, now, code, body: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            check(&Asked::Proxy, &request, 0, now, code, body);
        };
        let (early, late) = (
            "1970-01-01 00:01:40.25 +0000 UTC",
            "1970-01-01 00:02:10.25 +0000 UTC",
        );
        let healthy = format!(
            r#"{{"lastUpdated": "{early}","currentTime": "{early}", "nodeEligible": true}}"#
        );
        proxy("/healthz", 100, 200, &healthy);
        proxy("/healthz?verbose", 100, 200, &healthy);
        proxy("http://node:10256/healthz", 100, 200, &healthy);
        let ill = format!(
            r#"{{"lastUpdated": "{early}","currentTime": "{late}", "nodeEligible": true}}"#
        );
        proxy("/healthz", 130, 503, &ill);
        let alive = format!(r#"{{"lastUpdated": "{early}","currentTime": "{early}"}}"#);
        proxy("/livez", 100, 200, &alive);
        let dead = format!(r#"{{"lastUpdated": "{early}","currentTime": "{late}"}}"#);
        proxy("/livez", 130, 503, &dead);
        proxy("/proxyMode", 100, 200, "nftables");
        proxy("/", 100, 404, "404 page not found\n");
        proxy("/healthz/", 100, 404, "404 page not found\n");
        check(&Asked::Proxy, "HEAD /healthz HTTP/1.0\n\n", 0, 100, 200, "");
    }

    #[test]
    fn a_data_path_that_never_worked_has_the_zero_time_of_go() {
        let state = HealthState::new("none", at(0));
        let question = question(b"GET /livez HTTP/1.1\r\n\r\n", 0).unwrap();
        let answer = answer(&Asked::Proxy, &question, &state, at(20), wall(20));
        let text = String::from_utf8(answer.bytes).unwrap();
        assert!(
            text.contains(r#"{"lastUpdated": "0001-01-01 00:00:00 +0000 UTC","#),
            "{text}"
        );
        assert_eq!((answer.code, answer.counted), (503, Some(Counted::Livez)));
    }

    #[test]
    fn a_service_is_well_with_a_local_endpoint_and_a_healthy_data_path() {
        let web = Asked::Service {
            namespace: "default".into(),
            name: "web".into(),
        };
        let body = |count: usize, healthy: bool| {
            format!(
                "{{\n\t\"service\": {{\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t}},\n\t\"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
            )
        };
        for path in ["/", "/healthz", "*"] {
            let request = format!("GET {path} HTTP/1.1\r\n\r\n");
            check(&web, &request, 2, 100, 200, &body(2, true));
            check(&web, &request, 0, 100, 503, &body(0, true));
            check(&web, &request, 2, 130, 503, &body(2, false));
        }
        check(&web, "HEAD / HTTP/1.1\r\n\r\n", 2, 100, 200, "");
    }

    #[test]
    fn a_head_is_waited_for_and_has_an_end() {
        let whole = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(
                question(&whole[..cut], cut.saturating_sub(1)),
                None,
                "{cut}"
            );
        }
        let path = |path: &str| Question::Path {
            path: path.into(),
            head_only: false,
        };
        assert_eq!(question(whole, whole.len() - 1), Some(path("/healthz")));
        let long = [b"GET /", &*b"a".repeat(MAX_HEAD)].concat();
        assert_eq!(question(&long[..MAX_HEAD - 1], 0), None);
        assert_eq!(question(&long[..MAX_HEAD], 0), Some(Question::Bad(431)));
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "a: b\r\n".repeat(MAX_HEADERS + 1)
        );
        assert_eq!(question(many.as_bytes(), 0), Some(Question::Bad(431)));
        for bad in [
            "\r\n\r\n",
            "GET\r\n\r\n",
            "GET / FTP/1\r\n\r\n",
            "\0\u{1}\n\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        ] {
            assert_eq!(
                question(bad.as_bytes(), 0),
                Some(Question::Bad(400)),
                "{bad:?}"
            );
        }
    }

    /// Any input leads to an answer or to a wait for more input.
    #[test]
    fn no_bytes_make_it_panic() {
        let mut seed = 1_u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let alphabet = b"GET /healthz?\r\n:#\0\xff HTTP1.";
        for _ in 0..20_000 {
            let len = usize::from(next());
            let bytes: Vec<u8> = (0..len)
                .map(|_| alphabet[usize::from(next()) % alphabet.len()])
                .collect();
            if let Some(question) = question(&bytes, 0) {
                let answer = answer(&Asked::Proxy, &question, &state(1), at(1), wall(1));
                assert!(answer.bytes.len() < 1024);
            }
        }
    }
}
