//! The httpGet handler of probes and hooks (kubelet-probes 3.4, 8.5): header rules, redirects within the host, and the
//! verdict on a status code.
//!
//! Invariants: each request uses a connection of its own. One deadline covers redirects and bodies. Environment
//! variables have no effect. Redirects are followed only within the host of the first request, so that a server cannot
//! send a probe to another host.

mod no_answer;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use self::no_answer::{FailureCause, HeaderError, NoAnswer, io_cause};
use super::outcome::{HandlerResult, MAX_OUTPUT, Outcome, Phase};
use super::progress::Progress;
use super::target::{LookupError, Target};
use super::trace::note;
use super::url::{ProbeUrl, is_relative};
use crate::api::pod::HttpHeader;
use crate::base::wire::connection::Connection;
use crate::base::wire::dial::End;
use crate::base::wire::exchange;
use crate::base::wire::http1::RequestHead;
use crate::base::wire::observer::{self, Observer};
use crate::base::wire::{http2, tls};

pub use self::no_answer::GetError;

/// The user agent of a probe: the kubelet's name and the version that probes follow.
pub const USER_AGENT: &str = "kube-probe/1.36";

/// The largest number of requests of one probe, redirects included.
const MAX_REQUESTS: usize = 10;

/// Returns the headers of a spec with canonical names, grouped by name in the order of first use. Every value is kept.
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

/// Passes the headers of the spec and the default headers to `send` one by one, `Host` first. An empty value in the
/// spec removes a default header. Content-Length, Transfer-Encoding and Trailer are left out, because the client itself
/// sets them, as in Go's client. After a redirect a `Referer` is sent, unless the spec has a `Referer`. Stops at the
/// first error of `send` and returns the error.
fn each_header<E>(
    spec: &[HttpHeader],
    agent: &str,
    authority: &str,
    referer: Option<&str>,
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
        own => send("User-Agent", own.unwrap_or(agent))?,
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
    if let Some(referer) = referer.filter(|_| first("Referer").is_none_or(str::is_empty)) {
        send("Referer", referer)?;
    }
    if closes {
        Ok(())
    } else {
        send("Connection", "close")
    }
}

/// A GET request of a probe or a hook. The request can be sent any number of times.
pub struct Get {
    url: ProbeUrl,
    headers: Vec<HttpHeader>,
    agent: &'static str,
    target: Target,
    request: Result<String, HeaderError>,
}

/// The conditions that can end the request of a hook early.
pub struct Until<'a> {
    /// The time limit for everything from the lookup to the last byte of the body.
    pub timeout: Duration,
    /// The observer of sockets. The observer is called with each opened socket and may refuse the socket.
    pub sockets: &'a dyn Observer,
    /// Returns true once the caller no longer waits. The name lookup polls this function.
    pub given_up: &'a dyn Fn() -> bool,
}

impl Get {
    /// Makes the GET request of a probe for `url`. `target` is the host of the URL.
    pub fn new(url: ProbeUrl, headers: &[HttpHeader], target: Target) -> Self {
        Self::by(USER_AGENT, url, headers, target)
    }

    /// Makes a GET request with the user agent `agent`.
    pub fn by(agent: &'static str, url: ProbeUrl, headers: &[HttpHeader], target: Target) -> Self {
        let request = request(&url, agent, headers, None);
        Self {
            url,
            headers: headers.into(),
            agent,
            target,
            request,
        }
    }

    /// Sends the request, follows redirects, and reads the status, the headers and some of the body of the answer.
    /// Returns the status code, whatever it is.
    ///
    /// # Errors
    /// Returns [`GetError`] if there is no answer.
    #[inline(never)]
    pub fn reach(&self, until: &Until<'_>) -> Result<u16, GetError> {
        let deadline = Instant::now() + until.timeout;
        let looked_up = (self.target).looked_up_unless(until.timeout, until.given_up);
        let target = looked_up.map_err(|e| self.not_looked_up(e))?;
        let client = Client {
            target: &target,
            deadline,
            progress: Progress::with_sockets(until.sockets),
        };
        let answer = self.answer(&client)?;
        let status = answer.status();
        // The body does not change the result. The body is read so that the server can finish.
        let _ = answer.into_body();
        Ok(status)
    }

    /// Sends the request and judges the answer. `timeout` covers everything from the lookup to the last byte of the
    /// body.
    #[inline(never)]
    pub fn run(&self, timeout: Duration) -> Outcome {
        let deadline = Instant::now() + timeout;
        let target = match self.target.looked_up(timeout) {
            Ok(target) => target,
            Err(e) => return self.not_looked_up(e).into(),
        };
        let client = Client {
            target: &target,
            deadline,
            progress: Progress::new(),
        };
        match self.answer(&client) {
            Ok(answer) => finish(answer),
            Err(e) => e.into(),
        }
    }

    fn not_looked_up(&self, e: LookupError) -> GetError {
        GetError::new(&self.url, e, Phase::Connect)
    }

    /// Sends the request and returns the last answer, after all redirects.
    fn answer(&self, client: &Client<'_>) -> Result<Answer, GetError> {
        let first = Hop {
            url: &self.url,
            agent: self.agent,
            headers: &self.headers,
            referer: None,
        };
        let answer = client.get(&first, &self.request)?;
        match answer.location().is_some() {
            true => self.follow(client, answer),
            false => Ok(answer),
        }
    }

    /// Follows redirects to the end, but only within the host of the first request.
    #[inline(never)]
    fn follow(&self, client: &Client<'_>, mut answer: Answer) -> Result<Answer, GetError> {
        let failure =
            |url: &dyn fmt::Display, cause: FailureCause| GetError::new(url, cause, Phase::Read);
        let (mut url, mut headers) = (
            Cow::Borrowed(&self.url),
            Cow::Borrowed(self.headers.as_slice()),
        );
        for count in 1.. {
            let Some(to) = answer.location().map(Cow::into_owned) else {
                return Ok(answer);
            };
            let next = url.join(&to).map_err(|source| {
                let location = to.clone();
                failure(&url, FailureCause::Location { location, source })
            })?;
            note(|| format!("status {}, redirected to {to}", answer.status()));
            if next.host != self.url.host {
                return Ok(answer);
            }
            if count == MAX_REQUESTS {
                return Err(failure(&to, FailureCause::TooManyRedirects));
            }
            // The spec's Host header is kept only for a relative redirect or a redirect to the same authority.
            if !is_relative(&to) && next.authority() != url.authority() {
                headers
                    .to_mut()
                    .retain(|h| !h.name.eq_ignore_ascii_case("host"));
            }
            let referer = (url.scheme != "https" || next.scheme != "http").then(|| url.to_string());
            url = Cow::Owned(next);
            // Closes this connection before the next one is opened.
            drop(answer);
            let hop = Hop {
                url: &url,
                agent: self.agent,
                headers: &headers,
                referer: referer.as_deref(),
            };
            let request = request(&url, self.agent, &headers, hop.referer);
            answer = client.get(&hop, &request)?;
        }
        unreachable!("the loop ends at MAX_REQUESTS")
    }
}

/// The parts of one request. A probe sends one more request for each redirect.
struct Hop<'a> {
    url: &'a ProbeUrl,
    agent: &'a str,
    headers: &'a [HttpHeader],
    /// The URL of the request that was redirected to this request.
    referer: Option<&'a str>,
}

/// Returns the bytes of the request to send.
fn request(
    url: &ProbeUrl,
    agent: &str,
    headers: &[HttpHeader],
    referer: Option<&str>,
) -> Result<String, HeaderError> {
    let mut request = RequestHead::new(&url.path, url.query.as_deref());
    let bad = |part, name: &str| HeaderError {
        part,
        name: name.to_owned(),
    };
    each_header(
        headers,
        agent,
        &url.host_header(),
        referer,
        |name, value| request.header(name, value).map_err(|part| bad(part, name)),
    )?;
    Ok(request.finish())
}

/// Makes the request for HTTP/2, without headers about the connection.
fn http2_request(hop: &Hop<'_>) -> http::Result<http::Request<()>> {
    let (mut request, mut authority) = (http::Request::get("/"), String::new());
    let url = hop.url;
    each_header(
        hop.headers,
        hop.agent,
        &url.host_header(),
        hop.referer,
        |name, value| -> http::Result<()> {
            match name {
                "Host" => value.clone_into(&mut authority),
                "Connection" | "Keep-Alive" | "Proxy-Connection" | "Upgrade" => {}
                _ => request = std::mem::take(&mut request).header(name, value),
            }
            Ok(())
        },
    )?;
    let path = if url.path.is_empty() { "/" } else { &url.path };
    let query = url.query.as_ref().map(|q| format!("?{q}"));
    let uri = format!(
        "{}://{authority}{path}{}",
        url.scheme,
        query.unwrap_or_default()
    );
    request.uri(uri).version(http::Version::HTTP_2).body(())
}

/// An answer with its status and headers read, and its body still unread.
enum Answer {
    Http1(exchange::Reply),
    Http2(Box<http2::Reply>),
}

impl Answer {
    fn status(&self) -> u16 {
        match self {
            Self::Http1(reply) => reply.head.status,
            Self::Http2(reply) => reply.status,
        }
    }

    /// Returns the target of the redirect, or `None` if the answer is not a redirect.
    fn location(&self) -> Option<Cow<'_, str>> {
        if !matches!(self.status(), 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        match self {
            Self::Http1(reply) => reply.head.location.as_deref().map(Cow::Borrowed),
            Self::Http2(reply) => {
                let location = reply.headers.get(http::header::LOCATION)?;
                Some(String::from_utf8_lossy(location.as_bytes())).filter(|l| !l.is_empty())
            }
        }
    }

    fn into_body(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Http1(reply) => reply.into_body(),
            Self::Http2(reply) => reply.into_body(MAX_OUTPUT),
        }
    }
}

/// The client for the requests and answers of one probe.
struct Client<'a> {
    target: &'a Target,
    deadline: Instant,
    progress: Progress<'a>,
}

impl Client<'_> {
    /// Sends one request and reads the status and the headers of the answer.
    #[inline(never)]
    fn get(
        &self,
        hop: &Hop<'_>,
        request: &Result<String, HeaderError>,
    ) -> Result<Answer, GetError> {
        let url = hop.url;
        let unsent = |cause| GetError::new(url, cause, Phase::Prepare);
        if url.scheme != "http" && url.scheme != "https" {
            return Err(unsent(FailureCause::Scheme(url.scheme.clone())));
        }
        let request = match request {
            Ok(request) => request,
            Err(e) => return Err(unsent(FailureCause::Header(e.clone()))),
        };
        note(|| format!("GET {url}"));
        self.exchange(hop, request)
            .map_err(|cause| GetError::new(url, cause, self.progress.phase()))
    }

    fn exchange(&self, hop: &Hop<'_>, request: &str) -> Result<Answer, NoAnswer> {
        let connection = self.connect(hop.url)?;
        if connection.is_http2() {
            return self.exchange_http2(connection, hop);
        }
        let reply = exchange::exchange(connection, request.as_bytes(), MAX_OUTPUT, &self.progress)?;
        Ok(Answer::Http1(reply))
    }

    fn connect(&self, url: &ProbeUrl) -> Result<Connection, NoAnswer> {
        self.progress.begin(observer::Phase::Connect);
        let dialer = self.target.dialer(self.deadline, &self.progress)?;
        let addresses = self.target.at_port(url.port_or_default());
        let socket = dialer.dial_first(addresses, End::HangUp)?;
        if url.scheme != "https" {
            return Ok(Connection::plain(socket, self.deadline));
        }
        let config = tls::trusting_config();
        Connection::tls(socket, self.deadline, &url.host, config, &self.progress)
            .map_err(|e| FailureCause::Handshake(e).into())
    }

    #[inline(never)]
    fn exchange_http2(&self, connection: Connection, hop: &Hop<'_>) -> Result<Answer, NoAnswer> {
        let request = http2_request(hop).map_err(FailureCause::Http2Request)?;
        let reply = http2::exchange(connection, request, self.deadline, &self.progress)?;
        Ok(Answer::Http2(Box::new(reply)))
    }
}

/// Reads the body and judges the status code. A truncated body is an error of the probe. A body that is too long is
/// cut.
#[inline(never)]
fn finish(answer: Answer) -> Outcome {
    let status = answer.status();
    note(|| format!("status {status}"));
    let body = match answer.into_body() {
        Ok(body) => String::from_utf8(body)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
        Err(e) => {
            let text = io_cause(
                &e,
                "Client.Timeout or context cancellation while reading body",
            );
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
