//! The httpGet hook. Any answer is a success, whatever its status code. If a server answers an https hook by http, the
//! hook sends the request again by http, without credentials.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::api::pod::HttpHeader;
use crate::base::cancel::{Cancel, Tied};
use crate::base::wire::observer::{Observer, Phase};
use crate::pods::prober::http::{Get, GetError, Until};
use crate::pods::prober::target::Target;
use crate::pods::prober::url::ProbeUrl;

/// The user agent of a hook: the kubelet's name and the version that hooks follow.
const USER_AGENT: &str = "kube-lifecycle/1.36";

/// The HTTP request of a hook.
pub(super) struct Request {
    pub(super) url: ProbeUrl,
    pub(super) headers: Vec<HttpHeader>,
    pub(super) target: Target,
}

/// The scheme by which an answered request reached its server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reached {
    AsAsked,
    /// The request was sent by http instead of https.
    ByHttp,
}

impl Request {
    /// Sends the request. Returns at the latest after `limit`, and soon after `cancel`.
    ///
    /// # Errors
    /// Returns [`GetError`] if there is no answer.
    pub(super) fn send(self, limit: Duration, cancel: &Cancel) -> Result<Reached, GetError> {
        let begun = Instant::now();
        let error = match self.reach(limit, cancel) {
            Ok(()) => return Ok(Reached::AsAsked),
            Err(error) => error,
        };
        if !error.is_answered_by_http() {
            return Err(error);
        }
        let left = limit.saturating_sub(begun.elapsed());
        // Returns the error of the first try: the second try is not the request in the spec, so its error is not shown.
        let again = self.by_http().reach(left, cancel);
        again.map(|()| Reached::ByHttp).map_err(|_| error)
    }

    fn by_http(mut self) -> Self {
        self.url.scheme = "http".into();
        let is_secret = |h: &HttpHeader| h.name.eq_ignore_ascii_case("Authorization");
        self.headers.retain(|h| !is_secret(h));
        self
    }

    fn reach(&self, timeout: Duration, cancel: &Cancel) -> Result<(), GetError> {
        let (url, target) = (self.url.clone(), self.target.clone());
        let until = Until {
            timeout,
            sockets: &Sockets::of(cancel),
            given_up: &|| cancel.is_cancelled(),
        };
        let get = Get::by(USER_AGENT, url, &self.headers, target);
        get.reach(&until).map(drop)
    }
}

/// Ties the socket of the exchange to the cancellation, so that a cancellation ends the exchange.
struct Sockets<'a> {
    cancel: &'a Cancel,
    tied: RefCell<Option<Tied<'a>>>,
}

impl<'a> Sockets<'a> {
    fn of(cancel: &'a Cancel) -> Self {
        Self {
            cancel,
            tied: RefCell::new(None),
        }
    }
}

impl Observer for Sockets<'_> {
    fn begin(&self, _: Phase) {}

    fn note(&self, _: std::fmt::Arguments<'_>) {}

    fn opened(&self, socket: BorrowedFd<'_>) -> std::io::Result<()> {
        let tied = self.cancel.tie(socket)?;
        self.tied.replace(Some(tied));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    fn request(scheme: &str, port: u16) -> Request {
        let header = |name: &str, value: &str| HttpHeader {
            name: name.into(),
            value: value.into(),
        };
        Request {
            url: ProbeUrl::of_probe(scheme, "127.0.0.1", port, "/stop"),
            headers: vec![header("Authorization", "Bearer x"), header("X-A", "b")],
            target: Target {
                host: "127.0.0.1".into(),
                addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
                netns: None,
            },
        }
    }

    const LIMIT: Duration = Duration::from_secs(60);

    /// Serves one connection for each of the texts, and sends the text as the answer. Returns the first bytes of each
    /// request.
    fn serve(answers: &[&str], f: impl FnOnce(u16)) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::scope(|scope| {
            let seen = scope.spawn(move || {
                let one = |answer: &&str| {
                    let (mut peer, _) = listener.accept().unwrap();
                    let mut head = vec![0; 4096];
                    let n = peer.read(&mut head).unwrap();
                    peer.write_all(answer.as_bytes()).unwrap();
                    String::from_utf8_lossy(&head[..n]).into_owned()
                };
                answers.iter().map(one).collect()
            });
            f(port);
            seen.join().unwrap()
        })
    }

    const GONE: &str = "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno";

    #[test]
    fn any_status_is_an_answer_and_the_agent_is_that_of_hooks() {
        let seen = serve(&[GONE], |port| {
            let sent = request("HTTP", port).send(LIMIT, &Cancel::default());
            assert_eq!(sent.unwrap(), Reached::AsAsked);
        });
        let head = &seen[0];
        assert!(head.starts_with("GET /stop HTTP/1.1\r\n"), "{head}");
        for line in ["User-Agent: kube-lifecycle/1.36", "Authorization: Bearer x"] {
            assert!(head.contains(line), "{head}");
        }
    }

    #[test]
    fn https_that_is_answered_by_http_is_sent_again_without_credentials() {
        let refused = "HTTP/1.0 400 Bad Request\r\n\r\n";
        let seen = serve(&[refused, GONE], |port| {
            let sent = request("HTTPS", port).send(LIMIT, &Cancel::default());
            assert_eq!(sent.unwrap(), Reached::ByHttp);
        });
        assert!(
            seen[1].contains("X-A: b") && !seen[1].contains("Authorization"),
            "{}",
            seen[1]
        );
    }

    #[test]
    fn the_first_error_is_told_when_http_is_not_answered_either() {
        serve(
            &["HTTP/1.0 400 Bad Request\r\n\r\n", "nonsense\r\n\r\n"],
            |port| {
                let sent = request("HTTPS", port).send(LIMIT, &Cancel::default());
                let said = "server gave HTTP response to HTTPS client";
                assert!(sent.unwrap_err().to_string().contains(said));
            },
        );
    }

    #[test]
    fn a_server_that_never_answers_is_left_at_the_limit_and_with_the_cancellation() {
        for scheme in ["HTTP", "HTTPS"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let late = request(scheme, port).send(Duration::from_millis(20), &Cancel::default());
            let late = late.unwrap_err().to_string();
            assert!(late.contains("Client.Timeout"), "{late}");
            let cancel = Cancel::default();
            std::thread::scope(|scope| {
                let sends = scope.spawn(|| request(scheme, port).send(LIMIT, &cancel));
                let peers: Vec<TcpStream> = (0..2).map(|_| listener.accept().unwrap().0).collect();
                cancel.cancel();
                let given_up = sends.join().unwrap().unwrap_err().to_string();
                assert!(!given_up.contains("Client.Timeout"), "{given_up}");
                drop(peers);
            });
            assert!(request(scheme, port).send(LIMIT, &cancel).is_err());
        }
    }
}
