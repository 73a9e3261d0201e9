//! The httpGet handler (kubelet-probes 3.4): header rules, redirects within the host, what a status means.
//!
//! Invariants: one request is one connection. One deadline covers redirects and bodies. Nothing is taken from the
//! environment. Redirects are followed only within the host of the first request, so that a probe cannot be sent on.

use std::io::{self, Read};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::config::{AutoHeaderValue, Config};
use ureq::http::{HeaderName, HeaderValue, Request, Response, header};

use super::dial::{DialError, go_errno};
use super::outcome::{HandlerResult, MAX_OUTPUT, Outcome, Phase};
use super::target::Target;
use super::trace::note;
use super::transport::{KnownAddresses, ProbeConnector, Progress};
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
    let word = |w: &str| w.chars().take(1).flat_map(char::to_uppercase).chain(w.chars().skip(1).map(|c| c.to_ascii_lowercase())).collect();
    name.split('-').map(word).collect::<Vec<String>>().join("-")
}

/// The headers that are sent, `Host` first: the spec's, those added, those an empty value removes. Names that the
/// client itself decides (Content-Length, Transfer-Encoding, Trailer) are left out, as Go's client does.
pub fn sent_headers(spec: &[HttpHeader], authority: &str) -> Vec<(String, String)> {
    let map = header_map(spec);
    let first = |name: &str| map.iter().find(|(n, _)| n == name).map(|(_, values)| values[0].as_str());
    let host = first("Host").filter(|h| !h.is_empty()).unwrap_or(authority);
    let mut sent = vec![("Host".to_owned(), host.to_owned())];
    match first("User-Agent") {
        Some("") => {}
        agent => sent.push(("User-Agent".into(), agent.unwrap_or(USER_AGENT).into())),
    }
    let decided = ["Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer"];
    let removed = |name: &str| decided.contains(&name) || (name == "Accept" && first("Accept") == Some(""));
    for (name, values) in map.iter().filter(|(n, _)| !removed(n)) {
        sent.extend(values.iter().map(|v| (name.clone(), v.trim().to_owned())));
    }
    if first("Accept").is_none() {
        sent.push(("Accept".into(), "*/*".into()));
    }
    if !sent.iter().any(|(n, v)| n == "Connection" && v.eq_ignore_ascii_case("close")) {
        sent.push(("Connection".into(), "close".into()));
    }
    sent
}

/// GETs `url` at `target`; `timeout` covers everything from the lookup to the last byte of the body.
pub fn probe(url: ProbeUrl, headers: &[HttpHeader], mut target: Target, timeout: Duration) -> Outcome {
    let deadline = Instant::now() + timeout;
    if let Err(e) = target.look_up(timeout) {
        return Outcome::new(HandlerResult::Failure, client_error(&url, &format!("dial tcp: {e}")), Phase::Connect);
    }
    let own_host = url.host.clone();
    let (mut url, mut authority) = (url.clone(), url.authority());
    let mut headers = headers.to_vec();
    for count in 1.. {
        let exchange = Exchange { target: &target, deadline, progress: Progress::default() };
        let response = match exchange.get(&url, &sent_headers(&headers, &authority)) {
            Ok(response) => response,
            Err(e) => return exchange.failed(&url, e),
        };
        let Some(location) = location(&response) else { return exchange.finish(response) };
        let Some(next) = url.join(&location) else {
            return Outcome::new(
                HandlerResult::Failure,
                client_error(&url, &format!("failed to parse Location header {location:?}")),
                Phase::Read,
            );
        };
        note(|| format!("status {}, redirected to {location}", response.status()));
        if next.host != own_host {
            return exchange.finish(response);
        }
        if count == MAX_REQUESTS {
            return Outcome::new(HandlerResult::Failure, client_error(&next, "stopped after 10 redirects"), Phase::Read);
        }
        // A Host header of the spec stays on the way to the same place only.
        if !is_relative(&location) && next.authority() != url.authority() {
            headers.retain(|h| !h.name.eq_ignore_ascii_case("host"));
        }
        authority = next.authority();
        url = next;
    }
    unreachable!("the loop ends at MAX_REQUESTS")
}

fn location(response: &Response<ureq::Body>) -> Option<String> {
    let follows = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let value = response.headers().get(header::LOCATION).filter(|_| follows)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned()).filter(|l| !l.is_empty())
}

/// Go's form of every error of its client.
fn client_error(url: &ProbeUrl, cause: &str) -> String {
    format!("Get \"{url}\": {cause}")
}

/// One request and its answer.
struct Exchange<'a> {
    target: &'a Target,
    deadline: Instant,
    progress: Progress,
}

enum ExchangeError {
    /// The request cannot be built: an error of the probe.
    Request(String),
    /// A value that no header may have: the client refuses it.
    Header(String),
    Client(ureq::Error),
}

impl Exchange<'_> {
    fn get(&self, url: &ProbeUrl, headers: &[(String, String)]) -> Result<Response<ureq::Body>, ExchangeError> {
        let mut request =
            Request::get(url.to_string()).body(()).map_err(|e| ExchangeError::Request(format!("cannot parse \"{url}\": {e}")))?;
        for (name, value) in headers {
            let bad = |what| ExchangeError::Header(format!("net/http: invalid header field {what} \"{name}\""));
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("name"))?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad("value for"))?;
            request.headers_mut().append(key, value);
        }
        note(|| format!("GET {url}"));
        let connector = ProbeConnector { netns: self.target.netns.clone(), deadline: self.deadline, progress: self.progress.clone() };
        let agent = Agent::with_parts(config(), connector, KnownAddresses(self.target.addresses.clone()));
        agent.run(request).map_err(ExchangeError::Client)
    }

    fn failed(&self, url: &ProbeUrl, e: ExchangeError) -> Outcome {
        let phase = self.progress.phase();
        match e {
            ExchangeError::Request(text) => Outcome::error(text, Phase::Prepare),
            ExchangeError::Header(text) => Outcome::new(HandlerResult::Failure, client_error(url, &text), Phase::Prepare),
            ExchangeError::Client(e) => match cause(&e) {
                Ok(text) => Outcome::new(HandlerResult::Failure, client_error(url, &text), phase),
                Err(ours) => Outcome::error(client_error(url, &ours), phase),
            },
        }
    }

    /// Reads the body and judges the status. A body that breaks off is an error of the probe, a long one is cut.
    fn finish(&self, response: Response<ureq::Body>) -> Outcome {
        let status = response.status().as_u16();
        note(|| format!("status {}", response.status()));
        let mut body = Vec::new();
        if let Err(e) = response.into_body().into_reader().take(MAX_OUTPUT as u64).read_to_end(&mut body) {
            let text = io_cause(&e).unwrap_or_else(|ours| ours).replace("awaiting headers", "reading body");
            return Outcome { error: Some(text), ..Outcome::new(HandlerResult::Failure, "", Phase::Read) };
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        match status {
            200..=299 => Outcome::new(HandlerResult::Success, body, Phase::Read),
            300..=399 => Outcome::new(HandlerResult::Warning, format!("Probe terminated redirects, Response body: {body}"), Phase::Read),
            _ => Outcome::new(HandlerResult::Failure, format!("HTTP probe failed with statuscode: {status}"), Phase::Read),
        }
    }
}

/// No header of its own, no redirects, no proxy, no pool. Timeouts are the connection's business.
fn config() -> Config {
    static CONFIG: LazyLock<Config> = LazyLock::new(|| {
        Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(AutoHeaderValue::None)
            .accept(AutoHeaderValue::None)
            .accept_encoding(AutoHeaderValue::None)
            .max_idle_connections(0)
            .build()
    });
    CONFIG.clone()
}

/// The text of a client error; Err when it is our own doing and says nothing of the container.
fn cause(e: &ureq::Error) -> Result<String, String> {
    match e {
        ureq::Error::Io(e) => io_cause(e),
        ureq::Error::Timeout(_) => Ok(TIMED_OUT.into()),
        ureq::Error::Protocol(e) => Ok(format!("net/http: HTTP/1.x transport connection broken: {e}")),
        ureq::Error::Rustls(e) => Ok(tls_cause(e)),
        e => Ok(e.to_string()),
    }
}

const TIMED_OUT: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";

fn io_cause(e: &io::Error) -> Result<String, String> {
    let inner = e.get_ref();
    if let Some(e) = inner.and_then(|i| i.downcast_ref::<DialError>()) {
        return match e {
            DialError::Ours(text) => Err(text.clone()),
            DialError::Failed(text) if text.ends_with("i/o timeout") => {
                Ok(format!("{text} (Client.Timeout exceeded while awaiting headers)"))
            }
            DialError::Failed(text) => Ok(text.clone()),
        };
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
        rustls::Error::InvalidMessage(_) => "http: server gave HTTP response to HTTPS client, or no TLS at all".into(),
        e => format!("tls: {e}"),
    }
}
