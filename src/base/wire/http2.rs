//! One HTTP/2 exchange: sends a request without a body and reads the answer.
//!
//! Invariants: there is one request per connection. The connection is driven on the calling thread ([`Link`]), and ends
//! with the answer.

use std::io;
use std::time::Instant;

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Request};

use super::connection::Connection;
use super::link::{Ended, Link, reason_name};
use super::observer::{Observer, Phase};

/// Largest total size in bytes of the headers that are accepted from a server.
const MAX_HEADERS: u32 = 128 * 1024;

/// An answer that has been read up to the end of its head.
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The header fields.
    pub headers: HeaderMap,
    body: RecvStream,
    link: Link,
}

/// Sends `request` and reads the head of the answer.
///
/// # Errors
/// Returns [`io::ErrorKind::TimedOut`] if the deadline passed, or an error with Go's text if the connection or the stream
/// ended.
#[inline(never)]
pub fn exchange(
    connection: Connection,
    request: Request<()>,
    deadline: Instant,
    observer: &dyn Observer,
) -> io::Result<Reply> {
    observer.begin(Phase::Write);
    let (mut link, requests) = Link::open(connection, deadline, MAX_HEADERS).map_err(ended)?;
    let answer = link.drive(async move {
        let mut requests = requests.ready().await?;
        let (response, _) = requests.send_request(request, true)?;
        observer.note(format_args!("sent an HTTP/2 request"));
        observer.begin(Phase::Read);
        // `requests` is kept until the answer has come, because dropping it would end the connection.
        response.await.map(|response| (response, requests))
    });
    let (response, _) = answer.map_err(ended)?.map_err(|e| broken(&e))?;
    let (head, body) = response.into_parts();
    Ok(Reply {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
        link,
    })
}

impl Reply {
    /// Returns the first bytes of the body, up to `limit`.
    ///
    /// # Errors
    /// Returns the error of [`exchange`] for a passed deadline, or for a connection or stream that ended.
    #[inline(never)]
    pub fn into_body(mut self, limit: usize) -> io::Result<Vec<u8>> {
        let body = &mut self.body;
        let read = self.link.drive(read(body, limit));
        read.map_err(ended)?.map_err(|e| broken(&e))
    }
}

async fn read(body: &mut RecvStream, limit: usize) -> Result<Vec<u8>, h2::Error> {
    let mut kept = Vec::new();
    while kept.len() < limit {
        let Some(piece) = body.data().await.transpose()? else {
            break;
        };
        take(&mut kept, &piece, limit);
        body.flow_control().release_capacity(piece.len())?;
    }
    Ok(kept)
}

fn take(kept: &mut Vec<u8>, piece: &Bytes, limit: usize) {
    kept.extend_from_slice(&piece[..piece.len().min(limit - kept.len())]);
}

fn ended(e: Ended) -> io::Error {
    match e {
        Ended::Expired => io::ErrorKind::TimedOut.into(),
        Ended::Closed(None) => io::Error::other("unexpected EOF"),
        Ended::Closed(Some(e)) => broken(&e),
        Ended::Socket(e) => e,
    }
}

/// Returns the error with the text of Go's HTTP/2 client, if that client has a text for it.
pub(super) fn broken(e: &h2::Error) -> io::Error {
    let reason = e.reason().map(reason_name);
    io::Error::other(match (e.get_io(), reason) {
        (Some(io), _) if io.kind() == io::ErrorKind::BrokenPipe => "unexpected EOF".to_owned(),
        (Some(io), _) => io.to_string(),
        (None, Some(reason)) if e.is_reset() && e.is_remote() => {
            format!("stream error: stream ID 1; {reason}; received from peer")
        }
        (None, Some(reason)) if e.is_reset() => format!("stream error: stream ID 1; {reason}"),
        (None, Some(reason)) if e.is_go_away() && e.is_remote() => {
            format!("http2: server sent GOAWAY and closed the connection; ErrCode={reason}")
        }
        (None, Some(reason)) => format!("connection error: {reason}"),
        (None, None) => e.to_string(),
    })
}
