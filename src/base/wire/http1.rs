//! HTTP/1.1: the head of a request without a body, and an answer in pieces of any size.
//!
//! Invariants: pure. At most [`MAX_HEAD`] bytes of a head are kept, and as much of a body as the
//! caller asks for. It accepts the answers that Go's client accepts (kubelet-probes 3.4); error
//! texts are Go's.

use std::fmt::Write;

use super::text::quote;

/// The largest head of an answer, including 1xx answers before it.
pub const MAX_HEAD: usize = 128 * 1024;
/// The longest size line of a chunk, including extensions, which are ignored.
const MAX_CHUNK_LINE: usize = 4096;

/// A reason for which bytes are no head of an answer, in Go's words. It keeps the first bytes of a long line only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The head is longer than [`MAX_HEAD`].
    #[error("net/http: server response headers exceeded {MAX_HEAD} bytes; aborted")]
    TooLong,
    /// The connection ended within the head.
    #[error("unexpected EOF")]
    CutOff,
    /// The first line has no space.
    #[error("malformed HTTP response {}", quote(.0))]
    Response(Vec<u8>),
    /// The status code has other than three digits.
    #[error("malformed HTTP status code {}", quote(.0))]
    StatusCode(Vec<u8>),
    /// The first word is no version of HTTP.
    #[error("malformed HTTP version {}", quote(.0))]
    Version(Vec<u8>),
    /// The first header line continues another one.
    #[error("malformed MIME header initial line: {}", String::from_utf8_lossy(.0))]
    InitialLine(Vec<u8>),
    /// A header line has bytes that no header has.
    #[error("malformed MIME header line: {}", String::from_utf8_lossy(.0))]
    Line(Vec<u8>),
    /// A header line has no colon.
    #[error("malformed MIME header: missing colon: {}", quote(.0))]
    NoColon(Vec<u8>),
    /// There are lengths that differ.
    #[error(
        "http: message cannot contain multiple Content-Length headers; got [{} {}]",
        quote(.0),
        quote(.1)
    )]
    Lengths(Vec<u8>, Vec<u8>),
    /// The length is empty.
    #[error("invalid empty Content-Length \"\"")]
    EmptyLength,
    /// The length is no number, or too large.
    #[error("bad Content-Length {}", quote(.0))]
    Length(Vec<u8>),
    /// There is more than one transfer encoding.
    #[error("too many transfer encodings: [{} {}]", quote(.0), quote(.1))]
    Encodings(Vec<u8>, Vec<u8>),
    /// The transfer encoding is not `chunked`.
    #[error("unsupported transfer encoding: {}", quote(.0))]
    Encoding(Vec<u8>),
}

/// A reason for which a chunked body is malformed, in Go's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The line of a size is longer than 4096 bytes.
    #[error("header line too long")]
    LineTooLong,
    /// A size has no digit, or the data goes on beyond it.
    #[error("malformed chunked encoding")]
    Encoding,
    /// The size is too large.
    #[error("http chunk length too large")]
    SizeTooLarge,
    /// The size has a byte that is no digit.
    #[error("invalid byte in chunk length")]
    SizeByte,
}

/// The bytes of a GET.
pub struct RequestHead(String);

impl RequestHead {
    /// `GET <path>?<query> HTTP/1.1`
    pub fn new(path: &str, query: Option<&str>) -> Self {
        // Enough for most requests, so that there is one allocation.
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
    /// Returns the part of a header that is not allowed: `name` or `value for`.
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

    /// The head with the empty line that ends it.
    pub fn finish(mut self) -> String {
        self.0.push_str("\r\n");
        self.0
    }
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// The parts of an answer's head that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The first `Location`, not empty.
    pub location: Option<String>,
    /// The framing, which says where the body ends.
    pub framing: Framing,
}

/// The place where a body ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After this many more bytes.
    Length(u64),
    /// At the end of the connection.
    Connection,
    /// After the last chunk.
    Chunked(Chunks),
}

/// Collects the head of an answer.
#[derive(Debug, Default)]
pub struct HeadReader {
    kept: Vec<u8>,
    /// Bytes of earlier pieces, including 1xx answers.
    seen: usize,
    /// True if the first kept line is known to be a status line of HTTP.
    checked: bool,
}

impl HeadReader {
    /// Adds the next piece. Once the head is complete, returns it and the rest of the piece.
    /// Informational answers before it are skipped, as in Go, except 101, which is an answer.
    ///
    /// # Errors
    /// Returns a [`HeadError`] for bytes that are not the answer of an HTTP/1 server.
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

    /// Tells whether nothing was received.
    pub fn is_untouched(&self) -> bool {
        self.seen == 0
    }

    /// The error of an answer that ends here: its first line counts as complete.
    pub fn cut_off(&self) -> HeadError {
        match parse_status(first_line(&self.kept)) {
            Err(e) if !self.kept.is_empty() => e,
            _ => HeadError::CutOff,
        }
    }

    /// Refuses a server of another protocol at the end of its first line, because it may never send
    /// an empty line. `newest` is the last piece.
    fn check_first_line(&mut self, newest: &[u8]) -> Result<(), HeadError> {
        if !self.checked && newest.contains(&b'\n') {
            self.checked = true;
            parse_status(first_line(&self.kept))?;
        }
        Ok(())
    }
}

/// The end of the empty line, counted from the beginning of `kept`, which has no empty line. CR is
/// optional, as in Go.
fn head_end(kept: &[u8], piece: &[u8]) -> Option<usize> {
    let byte = |i: usize| {
        if i < kept.len() {
            kept[i]
        } else {
            piece[i - kept.len()]
        }
    };
    // An empty line that began in `kept` has its last byte in the piece.
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

/// The bytes of a line that an error keeps.
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
    // Nothing follows the last line feed, and the empty line precedes it.
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

/// Major and minor number.
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

/// The part of a header line before the colon.
enum FieldName<'a> {
    /// A name.
    Token(&'a [u8]),
    /// A name with a space in it or after it: Go accepts the line and ignores the field.
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

/// The header fields that matter, as in the head.
#[derive(Default)]
struct Fields<'a> {
    location: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    /// The first length that differs from the first one.
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
            // A continued value. None of the fields that matter has one.
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
            // The same length may be repeated.
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

    /// In Go's order: the encoding, answers without a body, then the length.
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

/// The progress in a chunked body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    state: ChunkState,
    /// Size of the next chunk, as far as its digits have come; None before the first digit.
    size: Option<u64>,
    /// Bytes of the line.
    line: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// The digits of a size line come next.
    #[default]
    Size,
    /// The rest of a size line comes next, up to the line feed.
    Extension,
    /// Data of a chunk comes next; this many bytes are left.
    Data(u64),
    /// The line end after the data comes next.
    DataEnd,
    /// The last chunk has come; trailers are not read.
    Done,
}

impl Framing {
    /// Appends the body bytes of a piece to `body`, up to `limit` bytes in all; returns true when
    /// the body is complete or full.
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

    /// Tells whether the end of the connection is the end of the body.
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

    /// Reads one byte outside of the data.
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
