//! A client that sends one GET or POST and follows its redirects. Credentials for one server never go to another.

use std::fmt;
use std::io::Read;
use std::time::Duration;

use ureq::http::{HeaderMap, Uri};
use ureq::{Agent, BodyReader};

use super::error::{FetchError, Kind};
use super::redirect;
use super::transport::{Dialer, SystemResolver};

/// Largest number of redirects of one request.
const MAX_REDIRECTS: usize = 5;
/// Largest size in bytes of the header of an answer.
const MAX_HEADER: usize = 64 << 10;

/// An http client. Its clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
}

/// An answer whose body is still to be read.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as the server sends it.
    pub body: BodyReader<'static>,
    /// Address of the server that answered, after redirects.
    pub uri: Uri,
    /// Length of the body in bytes, as the answer's header gives it.
    pub length: Option<u64>,
}

impl Answer {
    /// Returns a header as text; empty if the header is missing or is not text.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// Reads the whole body. The parameter `what` names the body in an error.
    ///
    /// # Errors
    /// Returns an error if the body has more than `most` bytes, or does not come to its end.
    pub fn read_all(self, most: u64, what: &str) -> Result<Vec<u8>, FetchError> {
        let too_large = || FetchError::failed(format!("{what} has more than {most} bytes"));
        if self.length.is_some_and(|length| length > most) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        let mut body = self.body.take(most + 1);
        body.read_to_end(&mut bytes)
            .map_err(|e| of_io(&self.uri, e))?;
        match bytes.len() as u64 > most {
            true => Err(too_large()),
            false => Ok(bytes),
        }
    }
}

/// A request that the client is to send.
pub struct Ask<'a> {
    /// Address of the request.
    pub uri: &'a Uri,
    /// Headers for every server, also after a redirect.
    pub headers: &'a [(&'a str, String)],
    /// Headers for the server of `uri` only, such as credentials.
    pub for_server: &'a [(&'a str, String)],
    /// A form to send with POST. None sends a GET.
    pub form: Option<&'a str>,
    /// Time limit for everything up to the end of the body.
    pub limit: Option<Duration>,
}

impl Client {
    /// Makes a client whose connections the dialer makes.
    pub fn new(dialer: Dialer) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("podprobe/", env!("CARGO_PKG_VERSION")))
            .max_response_header_size(MAX_HEADER)
            .max_idle_connections(4)
            .max_idle_connections_per_host(4)
            .max_idle_age(Duration::from_secs(10))
            .build();
        Self {
            agent: Agent::with_parts(config, dialer, SystemResolver),
        }
    }

    /// Sends a request, follows its redirects, and returns the final answer.
    ///
    /// # Errors
    /// Returns an error if there is no answer, or if a redirect may not be followed.
    pub fn ask(&self, ask: &Ask<'_>) -> Result<Answer, FetchError> {
        let mut uri = ask.uri.clone();
        let mut for_server = ask.for_server;
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.ask_once(ask, &uri, for_server)?;
            if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let refuse =
                |why: &dyn fmt::Display| FetchError::failed(format!("{}: {why}", host_of(&uri)));
            if ask.form.is_some() {
                return Err(refuse(&"it redirects a request for a token"));
            }
            let next = redirect::next(&uri, answer.header("location")).map_err(|e| refuse(&e))?;
            if !redirect::same_origin(ask.uri, &next) {
                // The credentials stay out for good, even if a later redirect leads back to the first server.
                for_server = &[];
            }
            uri = next;
        }
        let host = host_of(ask.uri);
        let text = format!("{host} redirects more than {MAX_REDIRECTS} times");
        Err(FetchError::failed(text))
    }

    fn ask_once(
        &self,
        ask: &Ask<'_>,
        uri: &Uri,
        for_server: &[(&str, String)],
    ) -> Result<Answer, FetchError> {
        let headers = ask.headers.iter().chain(for_server);
        let sent = match ask.form {
            None => {
                let mut request = self.agent.get(uri.clone());
                for (name, value) in headers {
                    request = request.header(*name, value);
                }
                let request = request.config().timeout_global(ask.limit).build();
                request.call()
            }
            Some(form) => {
                let mut request = self.agent.post(uri.clone());
                request = request.header("content-type", "application/x-www-form-urlencoded");
                for (name, value) in headers {
                    request = request.header(*name, value);
                }
                let request = request.config().timeout_global(ask.limit).build();
                request.send(form)
            }
        };
        let (parts, body) = sent.map_err(|e| of_request(uri, e))?.into_parts();
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            length: body.content_length(),
            body: body.into_with_config().limit(u64::MAX).reader(),
            uri: uri.clone(),
        })
    }
}

/// Returns the host and port of an address, for texts.
pub fn host_of(uri: &Uri) -> String {
    uri.authority().map(ToString::to_string).unwrap_or_default()
}

fn of_request(uri: &Uri, e: ureq::Error) -> FetchError {
    match e {
        ureq::Error::Io(e) => of_io(uri, e),
        ureq::Error::Timeout(_) => {
            FetchError::unavailable(format!("{} did not answer in time", host_of(uri)))
        }
        e => FetchError::failed(format!("{}: {e}", host_of(uri))),
    }
}

/// Turns an error from reading a body into a [`FetchError`]: podprobe's own error if `e` carries one, otherwise the
/// error for a timeout or a broken connection.
pub fn of_io(uri: &Uri, e: std::io::Error) -> FetchError {
    let host = host_of(uri);
    if let Some(own) = e.get_ref().and_then(|e| e.downcast_ref::<FetchError>()) {
        let named = own.kind != Kind::Unavailable || own.text.contains(&host);
        return match named || own.text.starts_with("cannot") {
            true => own.clone(),
            false => FetchError::new(own.kind, format!("{host}: {}", own.text)),
        };
    }
    if let Some(ureq::Error::Timeout(_)) = e.get_ref().and_then(|e| e.downcast_ref()) {
        return FetchError::unavailable(format!("{host} did not answer in time"));
    }
    FetchError::unavailable(format!("the connection to {host} broke: {e}"))
}
