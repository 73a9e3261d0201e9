//! One http exchange: a request, an answer.
//!
//! Invariants: one request, one connection, one deadline. A plain probe whose answer comes in one piece costs ten calls
//! into the kernel, no buffer but one on the stack, and no state of TLS (BENCHMARKS.md). How much of the stack it takes
//! stays with each worker: keep it small.

use std::io;
use std::time::Instant;

use super::connection::{Connection, Progress};
use super::http1::{Head, HeadReader};
use super::outcome::{MAX_OUTPUT, Phase};
use super::target::Target;
use super::trace::note;

/// One read; most answers are smaller. On the stack.
const PIECE: usize = 1024;

/// Why there is no answer.
pub(super) enum ExchangeError {
    /// No connection, or it broke, or the deadline came.
    Io(io::Error),
    /// What came is no HTTP.
    Malformed(String),
}

/// An answer whose head has come.
pub(super) struct Reply {
    pub(super) head: Head,
    body: Vec<u8>,
    /// Whether the body is complete, as far as it came with the head.
    complete: Result<bool, String>,
    connection: Connection,
}

/// Sends `request` to the first address that takes a connection, over TLS where `tls` names the host, and reads the head
/// of the answer.
///
/// # Errors
/// Why there is none.
pub(super) fn exchange(
    target: &Target,
    port: u16,
    tls: Option<&str>,
    request: &str,
    deadline: Instant,
    progress: &Progress,
) -> Result<Reply, ExchangeError> {
    let mut connection =
        Connection::open(target, port, tls, deadline, progress).map_err(ExchangeError::Io)?;
    progress.set(Phase::Send);
    connection
        .send(request.as_bytes())
        .map_err(ExchangeError::Io)?;
    note(|| format!("sent {} bytes", request.len()));
    progress.set(Phase::Read);
    let (mut reader, mut body) = (HeadReader::default(), Vec::new());
    let mut piece = [0; PIECE];
    loop {
        let n = connection.read(&mut piece).map_err(ExchangeError::Io)?;
        if n == 0 {
            return Err(ended_early(&reader));
        }
        if let Some((mut head, rest)) =
            reader.push(&piece[..n]).map_err(ExchangeError::Malformed)?
        {
            let complete = head.framing.push(rest, &mut body, MAX_OUTPUT);
            return Ok(Reply {
                head,
                body,
                complete,
                connection,
            });
        }
    }
}

impl Reply {
    /// The first [`MAX_OUTPUT`] bytes of the body.
    ///
    /// # Errors
    /// It broke off, breaks the rules of its encoding, or the deadline came.
    #[inline(never)]
    pub(super) fn into_body(mut self) -> io::Result<Vec<u8>> {
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
                .push(&piece[..n], &mut self.body, MAX_OUTPUT)
                .map_err(io::Error::other)?;
        }
        Ok(self.body)
    }
}

fn ended_early(reader: &HeadReader) -> ExchangeError {
    if reader.is_untouched() {
        ExchangeError::Io(io::ErrorKind::UnexpectedEof.into())
    } else {
        ExchangeError::Malformed("unexpected EOF".into())
    }
}
