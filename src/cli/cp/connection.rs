//! The stream of files between `cp` and the daemon: an answer that is read as it arrives, and a body that is
//! sent as it is made.
//!
//! Invariants: a body that is cut off is an error, never a shorter body.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::base::json;
use crate::base::wire::http1::{Framing, Head, HeadReader};
use crate::cli::client::{Client, ClientError, read_on};
use crate::face::server::protocol::Copied;

/// The longest time for which the daemon may send and read nothing. This time is long, because a disk may be slow.
const STALL: Duration = Duration::from_secs(300);
/// The largest number of bytes that are read or sent at once.
const BUFFER: usize = 256 << 10;
/// The greatest size in bytes of an answer that is kept as text: an error, or the report about written files.
const MAX_ANSWER: u64 = 1 << 20;

/// A connection for one request about files.
pub struct Connection {
    stream: UnixStream,
}

fn invalid(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

fn failed(e: &io::Error) -> ClientError {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Silent(STALL),
        ErrorKind::InvalidData => unreadable(e),
        _ => ClientError::Gone,
    }
}

fn unreadable(e: &dyn fmt::Display) -> ClientError {
    ClientError::Refused(format!("cannot read the answer: {e}"))
}

impl Connection {
    pub fn new(client: Client) -> io::Result<Self> {
        let stream = client.into_stream();
        stream.set_read_timeout(Some(STALL))?;
        stream.set_write_timeout(Some(STALL))?;
        Ok(Self { stream })
    }

    /// Sends a request for files, and returns the body of the answer.
    ///
    /// # Errors
    /// Returns a [`ClientError`] if there are no such files, or if the daemon cannot be asked.
    pub fn get(mut self, target: &str) -> Result<Body, ClientError> {
        let head = format!("GET {target} HTTP/1.1\r\nHost: podprobe\r\nConnection: close\r\n\r\n");
        let sent = self.stream.write_all(head.as_bytes());
        self.answer()
            .map_err(|e| failed(&sent.err().unwrap_or(e)))?
            .good()
    }

    /// Begins a request that sends files.
    ///
    /// # Errors
    /// Returns a [`ClientError`] if the daemon has ended.
    pub fn put(mut self, target: &str) -> Result<Upload, ClientError> {
        let head = format!(
            "PUT {target} HTTP/1.1\r\nHost: podprobe\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        self.stream
            .write_all(head.as_bytes())
            .map_err(|e| failed(&e))?;
        Ok(Upload {
            connection: self,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    fn answer(mut self) -> io::Result<Body> {
        let mut reader = HeadReader::default();
        let mut input = vec![0; BUFFER];
        loop {
            let n = read_on(&mut self.stream, &mut input)?;
            if n == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if let Some((head, rest)) = reader.push(&input[..n]).map_err(invalid)? {
                let Head {
                    status, framing, ..
                } = head;
                let mut body = Body {
                    stream: self.stream,
                    status,
                    framing,
                    piece: Vec::new(),
                    taken: 0,
                    input: Vec::new(),
                };
                let pushed = body.framing.push(rest, &mut body.piece, usize::MAX);
                pushed.map_err(invalid)?;
                body.input = input;
                return Ok(body);
            }
        }
    }
}

/// The body of an answer, which is read as it arrives.
pub struct Body {
    stream: UnixStream,
    status: u16,
    framing: Framing,
    /// Bytes of the body that have arrived. The caller has read the first `taken` bytes of this buffer.
    piece: Vec<u8>,
    taken: usize,
    input: Vec<u8>,
}

impl Body {
    /// Returns the body if the status is 200. For any other status, the text of the body becomes the error.
    fn good(mut self) -> Result<Self, ClientError> {
        match self.status {
            200 => Ok(self),
            _ => Err(ClientError::Refused(self.text().trim_end().to_owned())),
        }
    }

    fn text(&mut self) -> String {
        let mut text = Vec::new();
        // If the read fails, the part of the error text that has arrived is used.
        let _ = self.take(MAX_ANSWER).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Read for Body {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.piece.len() {
            if self.framing.is_done() {
                return Ok(0);
            }
            (self.taken, _) = (0, self.piece.clear());
            let n = read_on(&mut self.stream, &mut self.input)?;
            if n == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let pushed = self
                .framing
                .push(&self.input[..n], &mut self.piece, usize::MAX);
            pushed.map_err(invalid)?;
        }
        let n = bytes.len().min(self.piece.len() - self.taken);
        bytes[..n].copy_from_slice(&self.piece[self.taken..self.taken + n]);
        self.taken += n;
        Ok(n)
    }
}

/// A request body that is sent in chunks.
pub struct Upload {
    connection: Connection,
    buffer: Vec<u8>,
}

impl Upload {
    /// Ends the body, and reads the daemon's report about the files.
    ///
    /// # Errors
    /// Returns a [`ClientError`] if the daemon has ended or could not write the files.
    pub fn finish(mut self) -> Result<Copied, ClientError> {
        let sent = self
            .flush()
            .and_then(|()| self.connection.stream.write_all(b"0\r\n\r\n"));
        match sent {
            // The error in the daemon's answer says more than the error of the write.
            Err(e) => Err(self.refusal().unwrap_or_else(|| failed(&e))),
            Ok(()) => {
                let mut body = self.connection.answer().map_err(|e| failed(&e))?.good()?;
                json::from_slice(body.text().as_bytes()).map_err(|e| unreadable(&e))
            }
        }
    }

    /// Reads the answer after the daemon has stopped reading. Returns the daemon's reason, if the daemon has sent
    /// a reason.
    pub fn refusal(self) -> Option<ClientError> {
        self.connection.answer().ok()?.good().err()
    }

    fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = &mut self.connection.stream;
        stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes())?;
        stream.write_all(bytes)?;
        stream.write_all(b"\r\n")
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        match bytes.len() >= BUFFER {
            true => self.chunk(bytes)?,
            false => self.buffer.extend_from_slice(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        if !buffer.is_empty() {
            self.chunk(&buffer)?;
        }
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }
}
