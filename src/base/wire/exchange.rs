//! One HTTP/1.1 exchange: sends a prepared request and reads the answer.
//!
//! Invariants: there is one request per connection. An exchange without TLS costs ten system calls, one buffer on the
//! stack and no TLS state, if the answer comes in one piece (BENCHMARKS.md). Used stack stays resident in each thread:
//! keep it small.

use std::io::{self, Read};

use super::connection::Connection;
use super::http1::{ChunkError, Head, HeadError, HeadReader};
use super::observer::{Observer, Phase};

/// Size in bytes of the buffer for one read, which is on the stack. Most answers are smaller.
const PIECE: usize = 1024;

/// The reason why there is no answer. The texts are those of Go's client.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The connection broke before the first byte of the answer, or the deadline passed.
    #[error("{}", words_of_go(.0))]
    Io(io::Error),
    /// The received bytes are not an HTTP/1 answer, or the connection ended within the head.
    #[error("net/http: HTTP/1.x transport connection broken: {0}")]
    Broken(#[from] HeadError),
    /// The connection broke within the head.
    #[error("net/http: HTTP/1.x transport connection broken: {0}")]
    BrokeOff(io::Error),
}

fn words_of_go(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".into(),
        _ => e.to_string(),
    }
}

/// An answer that has been read up to the end of its head.
pub struct Reply {
    /// Head of the answer.
    pub head: Head,
    body: Vec<u8>,
    limit: usize,
    /// True if all of the body, up to `limit`, came together with the head. The value is an error if the body is
    /// wrongly encoded.
    complete: Result<bool, ChunkError>,
    connection: Connection,
}

/// Sends `request` and reads the head of the answer. At most `limit` bytes of the body are kept.
///
/// # Errors
/// Returns an [`ExchangeError`] if the answer's head cannot be read.
pub fn exchange(
    mut connection: Connection,
    request: &[u8],
    limit: usize,
    observer: &dyn Observer,
) -> Result<Reply, ExchangeError> {
    observer.begin(Phase::Write);
    connection.send(request).map_err(ExchangeError::Io)?;
    observer.note(format_args!("sent {} bytes", request.len()));
    observer.begin(Phase::Read);
    let (mut reader, mut body) = (HeadReader::default(), Vec::new());
    let mut piece = [0; PIECE];
    loop {
        let n = connection
            .read(&mut piece)
            .map_err(|e| broke_off(e, &reader))?;
        if n == 0 {
            return Err(ended_early(&reader));
        }
        if let Some((mut head, rest)) = reader.push(&piece[..n])? {
            let complete = head.framing.push(rest, &mut body, limit);
            return Ok(Reply {
                head,
                body,
                limit,
                complete,
                connection,
            });
        }
    }
}

impl Reply {
    /// Returns the first bytes of the body, up to the limit.
    ///
    /// # Errors
    /// Returns an [`io::Error`] if the body is truncated or wrongly encoded, or the deadline passed.
    #[inline(never)]
    pub fn into_body(mut self) -> io::Result<Vec<u8>> {
        let mut complete = self.complete.map_err(io::Error::other)?;
        let mut piece = [0; PIECE];
        while !complete {
            let n = self.connection.read(&mut piece)?;
            if n == 0 {
                let all = self.head.framing.ends_with_the_connection();
                return if all {
                    Ok(self.body)
                } else {
                    Err(io::Error::other("unexpected EOF"))
                };
            }
            complete = self
                .head
                .framing
                .push(&piece[..n], &mut self.body, self.limit)
                .map_err(io::Error::other)?;
        }
        Ok(self.body)
    }
}

/// Returns the error for a connection that broke within the head. A timeout stays a timeout.
fn broke_off(e: io::Error, reader: &HeadReader) -> ExchangeError {
    if reader.is_untouched() || e.kind() == io::ErrorKind::TimedOut {
        ExchangeError::Io(e)
    } else {
        ExchangeError::BrokeOff(e)
    }
}

fn ended_early(reader: &HeadReader) -> ExchangeError {
    if reader.is_untouched() {
        ExchangeError::Io(io::ErrorKind::UnexpectedEof.into())
    } else {
        reader.cut_off().into()
    }
}
