//! Reads a blob from a registry. Bytes are handed on as they arrive, and a blob that was cut off is continued at the
//! same place.
//!
//! Invariants: exactly the number of bytes that the descriptor names is read; more or fewer bytes are an error. The
//! caller, which gets all the bytes, checks the digest. The reader counts continuations without progress, and waits
//! longer before each of them.

use std::io::{self, Read};

use ureq::BodyReader;
use ureq::http::Uri;

use super::bounds::Bounds;
use super::progress::PullProgress;
use super::session::Session;
use crate::base::http_client::{Answer, FetchError, Kind, Stop, carried, host_of, of_io, quoted};

/// A reader of a blob. When the connection is cut, the reader continues the blob at the same place.
pub(super) struct BlobReader<'a> {
    pub(super) session: &'a Session,
    pub(super) stop: &'a Stop,
    pub(super) bounds: Bounds,
    pub(super) digest: &'a str,
    pub(super) size: u64,
    pub(super) progress: &'a PullProgress,
    pub(super) state: State,
}

#[derive(Default)]
pub(super) struct State {
    offset: u64,
    body: Option<(Uri, BodyReader<'static>)>,
    /// Number of cuts since the last progress ([`Bounds::progress`]). The field `since` is the number of bytes since
    /// the last cut.
    cuts: u32,
    since: u64,
    /// True if no byte has come since the last cut.
    is_cut: bool,
    ended: bool,
    /// The error with which reading failed. It is kept because the code that uses the reader gets only the text of the
    /// error.
    pub(super) failure: Option<FetchError>,
}

impl Read for BlobReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = match &self.state.failure {
            Some(e) => Err(e.clone()),
            None => self.step(buf),
        };
        read.map_err(|e| {
            self.state.body = None;
            self.state.failure = Some(e.clone());
            carried(e)
        })
    }
}

impl BlobReader<'_> {
    fn step(&mut self, buf: &mut [u8]) -> Result<usize, FetchError> {
        if buf.is_empty() || self.state.ended {
            return Ok(0);
        }
        loop {
            let left = self.size - self.state.offset;
            if left == 0 {
                return self.end();
            }
            let Some((uri, body)) = &mut self.state.body else {
                match self.open() {
                    Ok(body) => self.state.body = Some(body),
                    Err(e) => self.cut(e)?,
                }
                continue;
            };
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
            match body.read(&mut buf[..most]) {
                Ok(0) => {
                    let (host, at) = (host_of(uri), self.state.offset);
                    let text = format!("{host} ended after {at} of {} bytes", self.size);
                    self.cut(FetchError::unavailable(text))?;
                }
                Ok(n) => return Ok(self.took(n)),
                Err(e) => {
                    let mut e = of_io(uri, e);
                    if e.kind == Kind::Unavailable {
                        let at = self.state.offset;
                        e.text = format!("{} (after {at} of {} bytes)", e.text, self.size);
                    }
                    self.cut(e)?;
                }
            }
        }
    }

    fn took(&mut self, n: usize) -> usize {
        let state = &mut self.state;
        state.offset += n as u64;
        state.since += n as u64;
        if state.since >= self.bounds.progress {
            state.cuts = 0;
        }
        if std::mem::take(&mut state.is_cut) {
            self.progress.continued();
        }
        self.progress.arrived(n as u64);
        n
    }

    /// Checks that the server sends no more bytes than announced. This last read also returns the connection to the
    /// pool.
    fn end(&mut self) -> Result<usize, FetchError> {
        self.state.ended = true;
        let more = match &mut self.state.body {
            Some((_, body)) => body.read(&mut [0]).unwrap_or(0),
            None => 0,
        };
        self.state.body = None;
        match more {
            0 => Ok(0),
            _ => Err(FetchError::failed(format!(
                "the registry gives more than the {} bytes that the manifest says",
                self.size
            ))),
        }
    }

    /// Notes that the connection was cut by the error `e`. Waits until the next try is due. Fails after too many cuts.
    fn cut(&mut self, e: FetchError) -> Result<(), FetchError> {
        self.state.body = None;
        self.state.since = 0;
        self.state.cuts += 1;
        if e.kind != Kind::Unavailable || self.state.cuts > self.bounds.retries {
            return Err(e);
        }
        log::debug!(
            "{}: {e}; it is continued at {}",
            self.digest,
            self.state.offset
        );
        let again = std::mem::replace(&mut self.state.is_cut, true);
        self.progress.cut(&e.text, again);
        self.stop.wait(self.bounds.delay(self.state.cuts))
    }

    fn open(&self) -> Result<(Uri, BodyReader<'static>), FetchError> {
        let mut headers = vec![("accept-encoding", "identity".to_owned())];
        let offset = self.state.offset;
        if offset > 0 {
            headers.push(("range", format!("bytes={offset}-")));
        }
        let path = format!("blobs/{}", self.digest);
        let answer = self.session.get(&path, &headers, None)?;
        let skip = self.to_skip(&answer)?;
        let (uri, mut body) = (answer.uri, answer.body);
        let skipped = io::copy(&mut (&mut body).take(skip), &mut io::sink());
        match skipped.map_err(|e| of_io(&uri, e))? {
            n if n == skip => Ok((uri, body)),
            n => Err(FetchError::unavailable(format!(
                "{} ended after {n} of {} bytes",
                host_of(&uri),
                self.size
            ))),
        }
    }

    /// Returns the number of bytes at the beginning of an answer that the reader has already and must skip. Fails if
    /// the answer is not for the requested range.
    fn to_skip(&self, answer: &Answer) -> Result<u64, FetchError> {
        let begins = match answer.status {
            206 => {
                let range = answer.header("content-range");
                begin_of(range, self.size)
                    .filter(|at| *at == self.state.offset)
                    .ok_or_else(|| {
                        let host = host_of(&answer.uri);
                        let text = format!(
                            "{host} gives the part {} of a blob instead of the one asked for",
                            quoted(range)
                        );
                        FetchError::failed(text)
                    })?
            }
            // The server does not know ranges, and sends the blob from its beginning.
            _ => 0,
        };
        let (said, wanted) = (answer.length, self.size - begins);
        match said.filter(|said| *said != wanted) {
            Some(said) => Err(FetchError::failed(format!(
                "the registry gives {said} bytes where the manifest says {wanted}"
            ))),
            None => Ok(self.state.offset - begins),
        }
    }
}

/// Returns FIRST of `bytes FIRST-LAST/SIZE`. Returns None if the range does not go to the end of a blob of this size.
fn begin_of(range: &str, size: u64) -> Option<u64> {
    let (first, rest) = range.strip_prefix("bytes ")?.split_once('-')?;
    let (last, total) = rest.split_once('/')?;
    let to_the_end = last.parse::<u64>().ok()?.checked_add(1)? == size;
    let same = total == "*" || total.parse() == Ok(size);
    first.parse().ok().filter(|_| to_the_end && same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_goes_to_the_end_of_the_blob() {
        assert_eq!(begin_of("bytes 3-9/10", 10), Some(3));
        assert_eq!(begin_of("bytes 3-9/*", 10), Some(3));
        for bad in [
            "",
            "bytes 3-8/10",
            "bytes 3-9/11",
            "3-9/10",
            "bytes x-9/10",
            "bytes 3-18446744073709551615/10",
        ] {
            assert_eq!(begin_of(bad, 10), None, "{bad}");
        }
    }
}
