//! One unary call on a connection: sends the request and checks the answer.
//!
//! Invariants: the call's future waits only for streams of h2, so that a [`Link`](crate::base::wire::link::Link) can drive
//! it. The answer is checked in the order of gRPC's Go client: the head, the prefix of each message, the message, the
//! trailers.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use prost::Message;

use super::message::{Incoming, frame};
use super::status::{Code, Status, text};
use crate::base::wire::link::reason_name;

/// The error of a call that gave no answer.
#[derive(Debug)]
pub struct CallError {
    /// The status that a gRPC client would return to its caller.
    pub status: Status,
    /// True if the server has not processed the call. Such a call can be made again.
    pub unprocessed: bool,
}

impl CallError {
    /// Turns a cancellation into the status of a passed deadline, if `passed` is true. A server that knows the deadline
    /// cancels the call at that time.
    pub fn at_deadline(self, passed: bool) -> Self {
        if passed && self.status.code == Code::CANCELED {
            Status::deadline().into()
        } else {
            self
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self {
            status,
            unprocessed: false,
        }
    }
}

impl From<h2::Error> for CallError {
    fn from(e: h2::Error) -> Self {
        if let Some(e) = e.get_io() {
            // h2 gives this error to its streams when the connection ends.
            let ended = [
                std::io::ErrorKind::BrokenPipe,
                std::io::ErrorKind::UnexpectedEof,
            ]
            .contains(&e.kind());
            return if ended {
                Status::lost("EOF").into()
            } else {
                Status::lost(e).into()
            };
        }
        match e.reason() {
            Some(reason) if e.is_reset() && e.is_remote() => Self {
                status: Status::reset(reason),
                unprocessed: reason == h2::Reason::REFUSED_STREAM,
            },
            Some(_) if e.is_go_away() && e.is_remote() => {
                let text = "the stream is rejected because server is draining the connection";
                Self {
                    status: Status::new(Code::UNAVAILABLE, text),
                    unprocessed: true,
                }
            }
            Some(reason) if e.is_go_away() => {
                Status::lost(format!("connection error: {}", reason_name(reason))).into()
            }
            _ => Status::new(Code::INTERNAL, e.to_string()).into(),
        }
    }
}

/// The parameters of a unary call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The server's name: `host:port`, or `localhost` for a unix socket.
    pub authority: &'a str,
    /// Path of the method: `/package.Service/Method`.
    pub method: &'a str,
    /// The text of the header `user-agent`.
    pub user_agent: &'a str,
    /// The time left for the call. The server gets this time too.
    pub left: Duration,
    /// Largest size in bytes of an answer that is accepted.
    pub max_answer: usize,
}

impl Call<'_> {
    /// Sends `request` and returns the answer.
    ///
    /// # Errors
    /// Returns a [`CallError`] with every status except OK. A call that broke off has the status that a gRPC client
    /// would give.
    pub async fn make<A: Message + Default>(
        self,
        requests: SendRequest<Bytes>,
        request: &impl Message,
    ) -> Result<A, CallError> {
        let head = self
            .head()
            .map_err(|e| Status::new(Code::INTERNAL, e.to_string()))?;
        let mut requests = requests.ready().await?;
        let (response, mut body) = requests.send_request(head, false)?;
        body.send_data(frame(request), true)?;
        answer(response.await?, self.max_answer).await
    }

    fn head(&self) -> http::Result<Request<()>> {
        Request::post(format!("http://{}{}", self.authority, self.method))
            .header("content-type", "application/grpc")
            .header("user-agent", self.user_agent)
            .header("te", "trailers")
            .header("grpc-timeout", grpc_timeout(self.left))
            .body(())
    }
}

/// Writes a timeout with at most eight digits and a unit, rounded up.
fn grpc_timeout(left: Duration) -> String {
    let units = [
        (1_u128, 'n'),
        (1_000, 'u'),
        (1_000_000, 'm'),
        (1_000_000_000, 'S'),
    ];
    let fits = units
        .into_iter()
        .map(|(size, unit)| (left.as_nanos().div_ceil(size), unit))
        .find(|(n, _)| *n < 100_000_000);
    let (number, unit) = fits.unwrap_or((99_999_999, 'S'));
    format!("{number}{unit}")
}

async fn answer<A: Message + Default>(
    response: Response<h2::RecvStream>,
    max: usize,
) -> Result<A, CallError> {
    let (head, mut body) = response.into_parts();
    Status::of_head(head.status, &head.headers)?;
    let mut incoming = Incoming::new(max);
    if body.is_end_stream() {
        return finish(&head.headers, &incoming);
    }
    let encoding = text(&head.headers, "grpc-encoding").unwrap_or_default();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        incoming.push(&piece, &encoding)?;
        body.flow_control().release_capacity(piece.len())?;
    }
    let Some(trailers) = body.trailers().await? else {
        return Err(Status::new(
            Code::INTERNAL,
            "server closed the stream without sending trailers",
        )
        .into());
    };
    finish(&trailers, &incoming)
}

/// Returns the message at the end of the answer. An unreadable message is reported before an error status, and an error
/// status before a missing message.
fn finish<A: Message + Default>(trailers: &HeaderMap, incoming: &Incoming) -> Result<A, CallError> {
    let message = incoming.message()?;
    Status::of_trailers(trailers)?;
    let missing = || {
        Status::new(
            Code::INTERNAL,
            "cardinality violation: received no response message from non-server-streaming RPC",
        )
    };
    Ok(message.ok_or_else(missing)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_that_of_a_grpc_client() {
        let call = Call {
            authority: "[fd00::7]:80",
            method: "/grpc.health.v1.Health/Check",
            user_agent: "kube-probe/1.36 podprobe/0",
            left: Duration::from_secs(1),
            max_answer: 1,
        };
        let request = call.head().unwrap();
        assert_eq!(
            (request.method().as_str(), request.uri().to_string()),
            (
                "POST",
                "http://[fd00::7]:80/grpc.health.v1.Health/Check".into()
            )
        );
        let names: Vec<_> = request.headers().keys().map(|n| n.as_str()).collect();
        assert_eq!(
            names,
            ["content-type", "user-agent", "te", "grpc-timeout"],
            "no metadata"
        );
    }

    #[test]
    fn timeouts_have_at_most_eight_digits() {
        for (left, sent) in [
            (Duration::ZERO, "0n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_nanos(100_000_001), "100001u"),
            (Duration::from_secs(1), "1000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::from_secs(1 << 40), "99999999S"),
        ] {
            assert_eq!(grpc_timeout(left), sent);
        }
    }

    #[test]
    fn a_cancel_at_the_deadline_is_the_deadline() {
        let cancel = || CallError::from(Status::reset(h2::Reason::CANCEL));
        assert_eq!(cancel().at_deadline(false).status.code, Code::CANCELED);
        assert_eq!(
            cancel().at_deadline(true).status.code,
            Code::DEADLINE_EXCEEDED
        );
        let other = CallError::from(Status::new(Code::UNIMPLEMENTED, ""));
        assert_eq!(other.at_deadline(true).status.code, Code::UNIMPLEMENTED);
    }
}
