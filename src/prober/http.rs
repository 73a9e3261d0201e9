//! The httpGet handler (kubelet-probes 3.4): header rules, redirects within the host, what a status means.
//!
//! Invariants: one request is one connection. One deadline covers redirects and bodies. Nothing is taken from the
//! environment. Redirects are followed only within the host of the first request, so that a probe cannot be sent on.

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use super::connection::Progress;
use super::dial::{DialError, go_errno};
use super::exchange::{ExchangeError, Reply, exchange};
use super::http1::RequestHead;
use super::outcome::{HandlerResult, Outcome, Phase};
use super::target::Target;
use super::trace::note;
use super::url::{ProbeUrl, is_relative};
use crate::api::pod::HttpHeader;

/// What the probe calls itself: the kubelet's name, at the version whose rules it follows.
pub const USER_AGENT: &str = "kube-probe/1.36";

/// The request that would follow this many is refused.
const MAX_REQUESTS: usize = 10;

/// The headers of a spec in canonical form, grouped by name in order of first use; every value is kept.
pub fn header_map(spec: &[HttpHeader]) -> Vec<(String, Vec<String>)> {
    let mut map: Vec<(String, Vec<String>)> = Vec::new();
    for h in spec {
        let name = canonical(&h.name);
        match map.iter_mut().find(|(n, _)| *n == name) {
            Some((_, values)) => values.push(h.value.clone()),
            None => map.push((name, vec![h.value.clone()])),
        }
    }
    map
}

fn canonical(name: &str) -> String {
    let word = |w: &str| {
        w.chars()
            .take(1)
            .flat_map(char::to_uppercase)
            .chain(w.chars().skip(1).map(|c| c.to_ascii_lowercase()))
            .collect()
    };
    name.split('-').map(word).collect::<Vec<String>>().join("-")
}

/// The headers that are sent, one by one, `Host` first: the spec's, those added, those an empty value removes. Names that
/// the client itself decides (Content-Length, Transfer-Encoding, Trailer) are left out, as Go's client does. Ends with the
/// first error of `send`.
fn each_header<E>(
    spec: &[HttpHeader],
    authority: &str,
    mut send: impl FnMut(&str, &str) -> Result<(), E>,
) -> Result<(), E> {
    let map = header_map(spec);
    let first = |name: &str| {
        map.iter()
            .find(|(n, _)| n == name)
            .map(|(_, values)| values[0].as_str())
    };
    send(
        "Host",
        first("Host").filter(|h| !h.is_empty()).unwrap_or(authority),
    )?;
    match first("User-Agent") {
        Some("") => {}
        agent => send("User-Agent", agent.unwrap_or(USER_AGENT))?,
    }
    let decided = [
        "Host",
        "User-Agent",
        "Content-Length",
        "Transfer-Encoding",
        "Trailer",
    ];
    let removed =
        |name: &str| decided.contains(&name) || (name == "Accept" && first("Accept") == Some(""));
    let mut closes = false;
    for (name, values) in map.iter().filter(|(n, _)| !removed(n)) {
        for value in values.iter().map(|v| v.trim()) {
            closes |= name == "Connection" && value.eq_ignore_ascii_case("close");
            send(name, value)?;
        }
    }
    if first("Accept").is_none() {
        send("Accept", "*/*")?;
    }
    if closes {
        Ok(())
    } else {
        send("Connection", "close")
    }
}

/// A GET of a probe, ready to be sent any number of times.
pub struct Get {
    url: ProbeUrl,
    headers: Vec<HttpHeader>,
    target: Target,
    request: Result<String, String>,
}

impl Get {
    /// GETs `url` at `target`, which its host is at.
    pub fn new(url: ProbeUrl, headers: &[HttpHeader], target: Target) -> Self {
        let request = request(&url, headers);
        Self {
            url,
            headers: headers.into(),
            target,
            request,
        }
    }

    /// Sends it and judges the answer; `timeout` covers everything from the lookup to the last byte of the body.
    #[inline(never)]
    pub fn run(&self, timeout: Duration) -> Outcome {
        let deadline = Instant::now() + timeout;
        let target = match self.target.looked_up(timeout) {
            Ok(target) => target,
            Err(e) => {
                return Outcome::new(
                    HandlerResult::Failure,
                    client_error(&self.url, &format!("dial tcp: {e}")),
                    Phase::Connect,
                );
            }
        };
        let exchange = Exchange {
            target: &target,
            deadline,
            progress: Cell::new(Phase::Prepare),
        };
        match exchange.get(&self.url, &self.request) {
            Ok(reply) if location(&reply).is_some() => self.follow(&exchange, reply),
            Ok(reply) => finish(reply),
            Err(outcome) => outcome,
        }
    }

    /// Follows redirects to the end, within the host.
    #[inline(never)]
    fn follow(&self, exchange: &Exchange<'_>, mut reply: Reply) -> Outcome {
        let (mut url, mut headers) = (
            Cow::Borrowed(&self.url),
            Cow::Borrowed(self.headers.as_slice()),
        );
        for count in 1.. {
            let Some(to) = location(&reply).map(str::to_owned) else {
                return finish(reply);
            };
            let Some(next) = url.join(&to) else {
                let text = client_error(&url, &format!("failed to parse Location header {to:?}"));
                return Outcome::new(HandlerResult::Failure, text, Phase::Read);
            };
            note(|| format!("status {}, redirected to {to}", reply.head.status));
            if next.host != self.url.host {
                return finish(reply);
            }
            if count == MAX_REQUESTS {
                return Outcome::new(
                    HandlerResult::Failure,
                    client_error(&next, "stopped after 10 redirects"),
                    Phase::Read,
                );
            }
            // A Host header of the spec stays on the way to the same place only.
            if !is_relative(&to) && next.authority() != url.authority() {
                headers
                    .to_mut()
                    .retain(|h| !h.name.eq_ignore_ascii_case("host"));
            }
            url = Cow::Owned(next);
            // Ends the connection before the next is made.
            drop(reply);
            reply = match exchange.get(&url, &request(&url, &headers)) {
                Ok(reply) => reply,
                Err(outcome) => return outcome,
            };
        }
        unreachable!("the loop ends at MAX_REQUESTS")
    }
}

/// The bytes that are sent, or the name or value that no header may have: the client refuses it.
fn request(url: &ProbeUrl, headers: &[HttpHeader]) -> Result<String, String> {
    let mut request = RequestHead::new(&url.path, url.query.as_deref());
    let bad = |what: &str, name: &str| format!("net/http: invalid header field {what} {name:?}");
    each_header(headers, &url.host_header(), |name, value| {
        request.header(name, value).map_err(|what| bad(what, name))
    })?;
    Ok(request.finish())
}

/// Where it redirects to.
fn location(reply: &Reply) -> Option<&str> {
    if matches!(reply.head.status, 301 | 302 | 303 | 307 | 308) {
        reply.head.location.as_deref()
    } else {
        None
    }
}

/// Go's form of every error of its client.
fn client_error(url: &ProbeUrl, cause: &str) -> String {
    format!("Get \"{url}\": {cause}")
}

/// One probe's requests and answers.
struct Exchange<'a> {
    target: &'a Target,
    deadline: Instant,
    progress: Progress,
}

impl Exchange<'_> {
    /// One request and the head of its answer; Err is what came of a probe without one.
    #[inline(never)]
    fn get(&self, url: &ProbeUrl, request: &Result<String, String>) -> Result<Reply, Outcome> {
        let request = match request {
            Ok(request) => request,
            Err(text) => {
                return Err(Outcome::new(
                    HandlerResult::Failure,
                    client_error(url, text),
                    Phase::Prepare,
                ));
            }
        };
        note(|| format!("GET {url}"));
        let tls = (url.scheme == "https").then_some(url.host.as_str());
        let reply = exchange(
            self.target,
            url.port_or_default(),
            tls,
            request,
            self.deadline,
            &self.progress,
        );
        reply.map_err(|e| self.gave_up(url, &e))
    }

    /// A client that gave up, for a cause of the other side's or ours.
    #[inline(never)]
    fn gave_up(&self, url: &ProbeUrl, e: &ExchangeError) -> Outcome {
        match cause(e) {
            Ok(text) => Outcome::new(
                HandlerResult::Failure,
                client_error(url, &text),
                self.progress.get(),
            ),
            Err(ours) => Outcome::error(client_error(url, &ours), self.progress.get()),
        }
    }
}

/// Reads the body and judges the status. A body that breaks off is an error of the probe, a long one is cut.
#[inline(never)]
fn finish(reply: Reply) -> Outcome {
    let status = reply.head.status;
    note(|| format!("status {status}"));
    let body = match reply.into_body() {
        Ok(body) => String::from_utf8(body)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
        Err(e) => {
            let text = io_cause(&e)
                .unwrap_or_else(|ours| ours)
                .replace("awaiting headers", "reading body");
            return Outcome {
                error: Some(text),
                ..Outcome::new(HandlerResult::Failure, "", Phase::Read)
            };
        }
    };
    match status {
        200..=299 => Outcome::new(HandlerResult::Success, body, Phase::Read),
        300..=399 => Outcome::new(
            HandlerResult::Warning,
            format!("Probe terminated redirects, Response body: {body}"),
            Phase::Read,
        ),
        _ => Outcome::new(
            HandlerResult::Failure,
            format!("HTTP probe failed with statuscode: {status}"),
            Phase::Read,
        ),
    }
}

/// The text of a client error; Err when it is our own doing and says nothing of the container.
fn cause(e: &ExchangeError) -> Result<String, String> {
    match e {
        ExchangeError::Io(e) => io_cause(e),
        ExchangeError::Malformed(text) => Ok(format!(
            "net/http: HTTP/1.x transport connection broken: {text}"
        )),
    }
}

fn dial_cause(e: &DialError) -> Result<String, String> {
    match e {
        DialError::Ours(text) => Err(text.clone()),
        DialError::Failed(text) if text.ends_with("i/o timeout") => Ok(format!(
            "{text} (Client.Timeout exceeded while awaiting headers)"
        )),
        DialError::Failed(text) => Ok(text.clone()),
    }
}

const TIMED_OUT: &str =
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";

fn io_cause(e: &io::Error) -> Result<String, String> {
    let inner = e.get_ref();
    if let Some(e) = inner.and_then(|i| i.downcast_ref::<DialError>()) {
        return dial_cause(e);
    }
    if let Some(e) = inner.and_then(|i| i.downcast_ref::<rustls::Error>()) {
        return Ok(tls_cause(e));
    }
    Ok(match (e.kind(), e.raw_os_error()) {
        (io::ErrorKind::TimedOut, None) => TIMED_OUT.into(),
        (io::ErrorKind::UnexpectedEof, _) => "EOF".into(),
        (_, Some(code)) => format!("read tcp: {}", go_errno(nix::errno::Errno::from_raw(code))),
        _ => e.to_string(),
    })
}

fn tls_cause(e: &rustls::Error) -> String {
    match e {
        rustls::Error::InvalidMessage(_) => {
            "http: server gave HTTP response to HTTPS client, or no TLS at all".into()
        }
        e => format!("tls: {e}"),
    }
}
