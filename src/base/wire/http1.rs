//! HTTP/1.1: writes the head of a request without a body, and reads an answer in pieces of any size.
//!
//! Invariants: nothing here waits or shares state. At most [`MAX_HEAD`] bytes of a head are kept, and no more of a body than
//! the caller allows. The answers that Go's client accepts are accepted (kubelet-probes 3.4). Error texts are Go's.

use std::fmt::Write;

use super::text::quote;

/// Largest size in bytes of the head of an answer, including the 1xx answers before it.
pub const MAX_HEAD: usize = 128 * 1024;
/// Largest length in bytes of the size line of a chunk, including extensions, which are ignored.
const MAX_CHUNK_LINE: usize = 4096;

/// The reason why bytes are not the head of an answer, in Go's words. An error keeps only the first bytes of a long line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The head is longer than [`MAX_HEAD`].
    #[error("net/http: server response headers exceeded {MAX_HEAD} bytes; aborted")]
    TooLong,
    /// The connection ended within the head.
    #[error("unexpected EOF")]
    CutOff,
    /// The first line of the answer has no space.
    #[error("malformed HTTP response {}", quote(.0))]
    Response(Vec<u8>),
    /// The status code does not have exactly three digits.
    #[error("malformed HTTP status code {}", quote(.0))]
    StatusCode(Vec<u8>),
    /// The first word is not a version of HTTP.
    #[error("malformed HTTP version {}", quote(.0))]
    Version(Vec<u8>),
    /// The first header line begins with a space, like the continuation of another line.
    #[error("malformed MIME header initial line: {}", String::from_utf8_lossy(.0))]
    InitialLine(Vec<u8>),
    /// A header line has bytes that are not allowed in a header.
    #[error("malformed MIME header line: {}", String::from_utf8_lossy(.0))]
    Line(Vec<u8>),
    /// A header line has no colon.
    #[error("malformed MIME header: missing colon: {}", quote(.0))]
    NoColon(Vec<u8>),
    /// There are several `Content-Length` headers with different values.
    #[error(
        "http: message cannot contain multiple Content-Length headers; got [{} {}]",
        quote(.0),
        quote(.1)
    )]
    Lengths(Vec<u8>, Vec<u8>),
    /// The `Content-Length` header is empty.
    #[error("invalid empty Content-Length \"\"")]
    EmptyLength,
    /// The `Content-Length` header is not a number, or the number is too large.
    #[error("bad Content-Length {}", quote(.0))]
    Length(Vec<u8>),
    /// There are several `Transfer-Encoding` headers.
    #[error("too many transfer encodings: [{} {}]", quote(.0), quote(.1))]
    Encodings(Vec<u8>, Vec<u8>),
    /// The transfer encoding is not `chunked`.
    #[error("unsupported transfer encoding: {}", quote(.0))]
    Encoding(Vec<u8>),
}

/// The reason why a chunked body is malformed, in Go's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The line with a chunk's size is longer than 4096 bytes.
    #[error("header line too long")]
    LineTooLong,
    /// A chunk's size has no digit, or the chunk's data is longer than its size.
    #[error("malformed chunked encoding")]
    Encoding,
    /// A chunk's size is too large.
    #[error("http chunk length too large")]
    SizeTooLarge,
    /// A chunk's size has a byte that is not a digit.
    #[error("invalid byte in chunk length")]
    SizeByte,
}

/// The head of a GET request, to which headers can be added.
pub struct RequestHead(String);

impl RequestHead {
    /// Begins a head with `GET <path>?<query> HTTP/1.1`. An empty path becomes `/`.
    pub fn new(path: &str, query: Option<&str>) -> Self {
        // 256 bytes are enough for most requests, so most requests need one allocation.
        let mut text = String::with_capacity(256);
        let mark = if query.is_some() { "?" } else { "" };
        let _ = write!(
            text,
            "GET {}{mark}{} HTTP/1.1\r\n",
            if path.is_empty() { "/" } else { path },
            query.unwrap_or_default()
        );
        Self(text)
    }

    /// Adds a header.
    ///
    /// # Errors
    /// Returns the words for the part of the header that is not allowed: `name` or `value for`.
    pub fn header(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("name");
        }
        if value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 0x7f) {
            return Err("value for");
        }
        for part in [name, ": ", value, "\r\n"] {
            self.0.push_str(part);
        }
        Ok(())
    }

    /// Returns the head, including the empty line that ends it.
    pub fn finish(mut self) -> String {
        self.0.push_str("\r\n");
        self.0
    }
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// The parts of an answer's head that podprobe uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The first `Location` header; None if it is missing or empty.
    pub location: Option<String>,
    /// The framing, which determines where the body ends.
    pub framing: Framing,
}

/// The framing of a body, which determines where the body ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The body ends after this many more bytes.
    Length(u64),
    /// The body ends with the connection.
    Connection,
    /// The body ends after the last chunk.
    Chunked(Chunks),
}

/// Collects the head of an answer from pieces of any size.
#[derive(Debug, Default)]
pub struct HeadReader {
    kept: Vec<u8>,
    /// Number of bytes in earlier pieces, including 1xx answers.
    seen: usize,
    /// True if the first kept line was found to be a status line of HTTP.
    checked: bool,
}

impl HeadReader {
    /// Adds the next piece. Returns the head and the rest of the piece when the head is complete. As in Go,
    /// informational answers (1xx) before the head are skipped, except 101.
    ///
    /// # Errors
    /// Returns a [`HeadError`] if the bytes are not the answer of an HTTP/1 server.
    pub fn push<'p>(&mut self, piece: &'p [u8]) -> Result<Option<(Head, &'p [u8])>, HeadError> {
        let mut rest = piece;
        loop {
            let kept = self.kept.len();
            let Some(end) = head_end(&self.kept, rest) else {
                self.seen += rest.len();
                if self.seen > MAX_HEAD {
                    return Err(HeadError::TooLong);
                }
                self.kept.extend_from_slice(rest);
                return self.check_first_line(rest).map(|()| None);
            };
            let (last, after) = rest.split_at(end - kept);
            self.seen += last.len();
            let head = if kept == 0 {
                parse_head(last)?
            } else {
                self.kept.extend_from_slice(last);
                self.checked = false;
                parse_head(&std::mem::take(&mut self.kept))?
            };
            if !(100..200).contains(&head.status) || head.status == 101 {
                return Ok(Some((head, after)));
            }
            rest = after;
        }
    }

    /// Tells whether nothing was received yet.
    pub fn is_untouched(&self) -> bool {
        self.seen == 0
    }

    /// Returns the error for an answer that ends within its head. The first line counts as complete.
    pub fn cut_off(&self) -> HeadError {
        match parse_status(first_line(&self.kept)) {
            Err(e) if !self.kept.is_empty() => e,
            _ => HeadError::CutOff,
        }
    }

    /// Refuses a server of another protocol as soon as its first line is complete, because such a server may never send
    /// an empty line. `newest` is the last piece.
    fn check_first_line(&mut self, newest: &[u8]) -> Result<(), HeadError> {
        if !self.checked && newest.contains(&b'\n') {
            self.checked = true;
            parse_status(first_line(&self.kept))?;
        }
        Ok(())
    }
}

/// Returns the position right after the empty line that ends the head, counted from the beginning of `kept`. `kept`
/// alone has no empty line. As in Go, the CR before a line feed is optional.
fn head_end(kept: &[u8], piece: &[u8]) -> Option<usize> {
    let byte = |i: usize| {
        if i < kept.len() {
            kept[i]
        } else {
            piece[i - kept.len()]
        }
    };
    // Even if the empty line begins in `kept`, its last byte is in the piece.
    let mut next = 0;
    while let Some(at) = piece[next..].iter().position(|b| *b == b'\n') {
        next += at + 1;
        let before = |n: usize| (kept.len() + next - 1).checked_sub(n).map(byte);
        if before(1) == Some(b'\n') || (before(1) == Some(b'\r') && before(2) == Some(b'\n')) {
            return Some(kept.len() + next);
        }
    }
    None
}

/// Returns the first bytes of a line, for an error.
fn shortened(line: &[u8]) -> Vec<u8> {
    line[..line.len().min(120)].to_vec()
}

fn first_line(bytes: &[u8]) -> &[u8] {
    trim_line(bytes.split(|b| *b == b'\n').next().unwrap_or_default())
}

fn trim_line(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn parse_head(bytes: &[u8]) -> Result<Head, HeadError> {
    let mut lines = bytes.split(|b| *b == b'\n').map(trim_line).peekable();
    let (version, status) = parse_status(lines.next().unwrap_or_default())?;
    if let Some(line) = lines.peek().filter(|l| begins_with_space(l)) {
        return Err(HeadError::InitialLine(shortened(line)));
    }
    let mut fields = Fields::default();
    // The bytes end with the line feed of the empty line, so the last of these lines is the empty line.
    for line in lines.take_while(|l| !l.is_empty()) {
        fields.read(line)?;
    }
    let framing = fields.framing(version, status)?;
    Ok(Head {
        status,
        location: fields
            .location
            .map(|l| String::from_utf8_lossy(l).into_owned()),
        framing,
    })
}

/// Major and minor number of an HTTP version.
type Version = (u8, u8);

fn parse_status(line: &[u8]) -> Result<(Version, u16), HeadError> {
    let Some(at) = line.iter().position(|b| *b == b' ') else {
        return Err(HeadError::Response(shortened(line)));
    };
    let (version, rest) = (&line[..at], line[at + 1..].trim_ascii_start());
    let code = rest.split(|b| *b == b' ').next().unwrap_or_default();
    if code.len() != 3 || !code.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::StatusCode(shortened(code)));
    }
    let status = code.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0'));
    match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Ok(((major - b'0', minor - b'0'), status))
        }
        _ => Err(HeadError::Version(shortened(version))),
    }
}

fn begins_with_space(line: &[u8]) -> bool {
    matches!(line.first(), Some(b' ' | b'\t'))
}

/// The part of a header line in front of the colon.
enum FieldName<'a> {
    /// A name.
    Token(&'a [u8]),
    /// A name with a space in it or after it. Go accepts such a line and ignores the field.
    Spaced,
}

fn field_name(bytes: &[u8]) -> Option<FieldName<'_>> {
    if bytes.is_empty() || !bytes.iter().all(|b| is_token(*b) || *b == b' ') {
        None
    } else if bytes.contains(&b' ') {
        Some(FieldName::Spaced)
    } else {
        Some(FieldName::Token(bytes))
    }
}

/// The header fields that podprobe uses, as bytes of the head.
#[derive(Default)]
struct Fields<'a> {
    location: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    /// The first further `Content-Length` with another value than the first.
    other_length: Option<&'a [u8]>,
    encoding: Option<&'a [u8]>,
    other_encoding: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn read(&mut self, line: &'a [u8]) -> Result<(), HeadError> {
        let malformed = || HeadError::Line(shortened(line));
        let value_of = |part: &'a [u8]| {
            let good = !part
                .iter()
                .any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f);
            good.then(|| part.trim_ascii()).ok_or_else(malformed)
        };
        if begins_with_space(line) {
            // The line continues a value. Values that podprobe uses are not continued.
            return value_of(line).map(drop);
        }
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            return Err(HeadError::NoColon(shortened(line)));
        };
        let name = field_name(&line[..colon]).ok_or_else(malformed)?;
        let value = value_of(&line[colon + 1..])?;
        match name {
            FieldName::Token(name) => self.set(name, value),
            FieldName::Spaced => {}
        }
        Ok(())
    }

    fn set(&mut self, name: &[u8], value: &'a [u8]) {
        if name.eq_ignore_ascii_case(b"location") {
            self.location.get_or_insert(value);
        } else if name.eq_ignore_ascii_case(b"content-length") {
            // The header may be repeated with the same length.
            if *self.length.get_or_insert(value) != value {
                self.other_length.get_or_insert(value);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.encoding.is_none() {
                self.encoding = Some(value);
            } else {
                self.other_encoding.get_or_insert(value);
            }
        }
    }

    /// Determines the framing, in Go's order: first the encoding, then answers without a body, then the length.
    fn framing(&mut self, version: Version, status: u16) -> Result<Framing, HeadError> {
        self.location = self.location.filter(|l| !l.is_empty());
        let chunked = version >= (1, 1) && self.is_chunked()?;
        if let (Some(one), Some(other)) = (self.length, self.other_length) {
            return Err(HeadError::Lengths(one.to_vec(), other.to_vec()));
        }
        Ok(match (status, chunked, self.length) {
            (101 | 204 | 304, ..) => Framing::Length(0),
            (_, true, _) => Framing::Chunked(Chunks::default()),
            (_, false, Some(length)) => Framing::Length(parse_length(length)?),
            (_, false, None) => Framing::Connection,
        })
    }

    fn is_chunked(&self) -> Result<bool, HeadError> {
        match (self.encoding, self.other_encoding) {
            (None, _) => Ok(false),
            (Some(one), Some(other)) => Err(HeadError::Encodings(one.to_vec(), other.to_vec())),
            (Some(one), None) if one.eq_ignore_ascii_case(b"chunked") => Ok(true),
            (Some(one), None) => Err(HeadError::Encoding(one.to_vec())),
        }
    }
}

fn parse_length(value: &[u8]) -> Result<u64, HeadError> {
    let add = |n: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    };
    if value.is_empty() {
        return Err(HeadError::EmptyLength);
    }
    let length = value.iter().try_fold(0, add);
    length
        .filter(|n| i64::try_from(*n).is_ok())
        .ok_or_else(|| HeadError::Length(value.to_vec()))
}

/// The position up to which a chunked body was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    state: ChunkState,
    /// Size of the next chunk, from the digits that have come so far; None before the first digit.
    size: Option<u64>,
    /// Number of bytes of the present line that were read.
    line: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// Next come the digits of a size line.
    #[default]
    Size,
    /// Next comes the rest of a size line, up to its line feed.
    Extension,
    /// Next come this many more bytes of a chunk's data.
    Data(u64),
    /// Next comes the line end after a chunk's data.
    DataEnd,
    /// The last chunk has been read. Trailers are not read.
    Done,
}

impl Framing {
    /// Appends the body's bytes from a piece to `body`, which gets at most `limit` bytes in all. Returns true if the
    /// body is complete or has `limit` bytes.
    ///
    /// # Errors
    /// Returns a [`ChunkError`] if the chunks are malformed.
    pub fn push(
        &mut self,
        piece: &[u8],
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<bool, ChunkError> {
        match self {
            Self::Length(left) => {
                let n = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(piece.len());
                *left -= n as u64;
                take(&piece[..n], body, limit);
            }
            Self::Connection => take(piece, body, limit),
            Self::Chunked(chunks) => chunks.push(piece, body, limit)?,
        }
        Ok(self.is_done() || body.len() >= limit)
    }

    /// Tells whether the body is complete.
    pub fn is_done(&self) -> bool {
        matches!(
            self,
            Self::Length(0)
                | Self::Chunked(Chunks {
                    state: ChunkState::Done,
                    ..
                })
        )
    }

    /// Tells whether the body ends with the connection.
    pub fn ends_with_the_connection(&self) -> bool {
        *self == Self::Connection
    }
}

fn take(piece: &[u8], body: &mut Vec<u8>, limit: usize) {
    body.extend_from_slice(&piece[..piece.len().min(limit - body.len())]);
}

impl Chunks {
    fn push(
        &mut self,
        mut piece: &[u8],
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), ChunkError> {
        while !piece.is_empty() && body.len() < limit {
            match self.state {
                ChunkState::Done => return Ok(()),
                ChunkState::Data(left) => {
                    let n = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                    take(&piece[..n], body, limit);
                    piece = &piece[n..];
                    self.state = if left == n as u64 {
                        ChunkState::DataEnd
                    } else {
                        ChunkState::Data(left - n as u64)
                    };
                }
                _ => {
                    self.step(piece[0])?;
                    piece = &piece[1..];
                }
            }
        }
        Ok(())
    }

    /// Reads one byte that does not belong to a chunk's data.
    fn step(&mut self, byte: u8) -> Result<(), ChunkError> {
        self.line += 1;
        if self.line > MAX_CHUNK_LINE {
            return Err(ChunkError::LineTooLong);
        }
        match (self.state, byte) {
            (ChunkState::DataEnd, b'\r') if self.line == 1 => {}
            (ChunkState::DataEnd, b'\n') => self.begin(ChunkState::Size),
            (ChunkState::DataEnd, _) => return Err(ChunkError::Encoding),
            (ChunkState::Size | ChunkState::Extension, b'\n') => self.end_of_size()?,
            (ChunkState::Size, b) if b.is_ascii_hexdigit() => {
                let digit = char::from(b).to_digit(16).map_or(0, u64::from);
                let size = self.size.unwrap_or(0);
                let size = size.checked_mul(16).ok_or(ChunkError::SizeTooLarge)?;
                self.size = Some(size + digit);
            }
            (ChunkState::Size, b'\r' | b';' | b' ' | b'\t') => self.state = ChunkState::Extension,
            (ChunkState::Size, _) => return Err(ChunkError::SizeByte),
            (ChunkState::Extension | ChunkState::Data(_) | ChunkState::Done, _) => {}
        }
        Ok(())
    }

    fn end_of_size(&mut self) -> Result<(), ChunkError> {
        match self.size.take() {
            None => return Err(ChunkError::Encoding),
            Some(0) => self.begin(ChunkState::Done),
            Some(size) => self.begin(ChunkState::Data(size)),
        }
        Ok(())
    }

    fn begin(&mut self, state: ChunkState) {
        self.state = state;
        self.line = 0;
    }
}

#[cfg(test)]
#[path = "http1_tests.rs"]
mod tests;
