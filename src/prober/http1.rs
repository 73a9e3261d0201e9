//! HTTP/1.1 as a probe speaks it: one request without a body, one answer in pieces of any size.
//!
//! Invariants: pure. No more than [`MAX_HEAD`] bytes of a head are kept, and of a body what the caller wants of it.
//! What an answer may look like is what Go's client takes (kubelet-probes 3.4); error texts are Go's.

use std::fmt::Write;

/// Largest head of an answer, 1xx answers before it included.
pub(super) const MAX_HEAD: usize = 128 * 1024;
/// Longest line about a chunk: its size, and extensions that nobody reads.
const MAX_CHUNK_LINE: usize = 4096;

/// The bytes of a GET.
pub(super) struct RequestHead(String);

impl RequestHead {
    /// `GET <path>?<query> HTTP/1.1`
    pub(super) fn new(path: &str, query: Option<&str>) -> Self {
        // Enough for most, so that it is one allocation.
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
    /// Whether the `name` or the `value for` it may not stand in a head.
    pub(super) fn header(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
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

    /// With the line that ends it.
    pub(super) fn finish(mut self) -> String {
        self.0.push_str("\r\n");
        self.0
    }
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// What a probe needs of an answer's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    /// The first `Location`, not empty.
    pub(super) location: Option<String>,
    /// How the body ends.
    pub(super) framing: Framing,
}

/// Where a body ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many more bytes.
    Length(u64),
    /// Where the connection ends.
    Connection,
    /// After the last chunk.
    Chunked(Chunks),
}

/// The head of an answer as it comes in.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    kept: Vec<u8>,
    /// Bytes of earlier pieces, those of 1xx answers included.
    seen: usize,
}

impl HeadReader {
    /// Takes the next piece; when the head is complete, it and what follows of the piece. Informational answers before
    /// it are passed over, as Go does, but for 101, which is one.
    ///
    /// # Errors
    /// Why this is no answer of an HTTP/1 server.
    pub(super) fn push<'p>(&mut self, piece: &'p [u8]) -> Result<Option<(Head, &'p [u8])>, String> {
        let mut rest = piece;
        loop {
            let kept = self.kept.len();
            let Some(end) = head_end(&self.kept, rest) else {
                self.seen += rest.len();
                if self.seen > MAX_HEAD {
                    return Err(format!(
                        "net/http: server response headers exceeded {MAX_HEAD} bytes; aborted"
                    ));
                }
                self.kept.extend_from_slice(rest);
                return begins_like_http(&self.kept).map(|()| None);
            };
            let (last, after) = rest.split_at(end - kept);
            self.seen += last.len();
            let head = if kept == 0 {
                parse_head(last)?
            } else {
                self.kept.extend_from_slice(last);
                parse_head(&std::mem::take(&mut self.kept))?
            };
            if !(100..200).contains(&head.status) || head.status == 101 {
                return Ok(Some((head, after)));
            }
            rest = after;
        }
    }

    /// Whether nothing has come.
    pub(super) fn is_untouched(&self) -> bool {
        self.seen == 0
    }
}

/// Where the empty line ends, counted from the beginning of `kept`, which has none. CR is optional, as in Go.
fn head_end(kept: &[u8], piece: &[u8]) -> Option<usize> {
    let byte = |i: usize| {
        if i < kept.len() {
            kept[i]
        } else {
            piece[i - kept.len()]
        }
    };
    // An end that began in `kept` has its last byte in the piece.
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

/// Somebody who says something else is told so before he has said a whole line.
fn begins_like_http(bytes: &[u8]) -> Result<(), String> {
    let shared = bytes.len().min(5);
    if bytes[..shared] == b"HTTP/"[..shared] {
        Ok(())
    } else {
        Err(malformed("response", first_line(bytes)))
    }
}

fn malformed(what: &str, line: &[u8]) -> String {
    format!(
        "malformed HTTP {what} {:?}",
        String::from_utf8_lossy(&line[..line.len().min(120)])
    )
}

fn first_line(bytes: &[u8]) -> &[u8] {
    trim_line(bytes.split(|b| *b == b'\n').next().unwrap_or_default())
}

fn trim_line(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn parse_head(bytes: &[u8]) -> Result<Head, String> {
    let mut lines = bytes.split(|b| *b == b'\n').map(trim_line);
    let status = parse_status(lines.next().unwrap_or_default())?;
    let mut fields = Fields::default();
    // After the last line feed comes nothing, before it the empty line.
    for line in lines.take_while(|l| !l.is_empty()) {
        fields.read(line)?;
    }
    let framing = fields.framing(status)?;
    Ok(Head {
        status,
        location: fields.location,
        framing,
    })
}

fn parse_status(line: &[u8]) -> Result<u16, String> {
    begins_like_http(line)?;
    let (version, rest) = match line.iter().position(|b| *b == b' ') {
        Some(at) => (&line[..at], line[at + 1..].trim_ascii_start()),
        None => return Err(malformed("response", line)),
    };
    if version.len() != 8 || &version[..7] != b"HTTP/1." || !version[7].is_ascii_digit() {
        return Err(malformed("version", version));
    }
    let code = rest.split(|b| *b == b' ').next().unwrap_or_default();
    if code.len() != 3 || !code.iter().all(u8::is_ascii_digit) {
        return Err(malformed("status code", code));
    }
    Ok(code.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0')))
}

/// The header fields that matter.
#[derive(Default)]
struct Fields {
    location: Option<String>,
    length: Option<u64>,
    chunked: bool,
    begun: bool,
}

impl Fields {
    fn read(&mut self, line: &[u8]) -> Result<(), String> {
        let bad = || {
            format!(
                "malformed MIME header line: {}",
                String::from_utf8_lossy(&line[..line.len().min(120)])
            )
        };
        if line[0] == b' ' || line[0] == b'\t' {
            // A value that goes on. None of ours does.
            return if self.begun { Ok(()) } else { Err(bad()) };
        }
        self.begun = true;
        let colon = line
            .iter()
            .position(|b| *b == b':')
            .filter(|at| *at > 0)
            .ok_or_else(bad)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !name.iter().all(|b| is_token(*b)) {
            return Err(bad());
        }
        if name.eq_ignore_ascii_case(b"location") {
            self.location
                .get_or_insert_with(|| String::from_utf8_lossy(value).into_owned());
        } else if name.eq_ignore_ascii_case(b"content-length") {
            self.read_length(value)?;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.read_encoding(value)?;
        }
        Ok(())
    }

    /// The same length may be said more than once.
    fn read_length(&mut self, value: &[u8]) -> Result<(), String> {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let add = |n: u64, digit: &u8| n.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
        let length = if digits {
            value.iter().try_fold(0, add)
        } else {
            None
        };
        let length = length
            .ok_or_else(|| format!("bad Content-Length {:?}", String::from_utf8_lossy(value)))?;
        match self.length.replace(length) {
            Some(other) if other != length => Err(format!(
                "http: message cannot contain multiple Content-Length headers; got [\"{other}\" \"{length}\"]"
            )),
            _ => Ok(()),
        }
    }

    fn read_encoding(&mut self, value: &[u8]) -> Result<(), String> {
        if self.chunked {
            return Err("too many transfer encodings".into());
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(format!(
                "unsupported transfer encoding: {:?}",
                String::from_utf8_lossy(value)
            ));
        }
        self.chunked = true;
        Ok(())
    }

    fn framing(&mut self, status: u16) -> Result<Framing, String> {
        self.location = self.location.take().filter(|l| !l.is_empty());
        Ok(match (status, self.chunked, self.length) {
            (101 | 204 | 304, ..) => Framing::Length(0),
            (_, true, _) => Framing::Chunked(Chunks::default()),
            (_, false, Some(length)) => Framing::Length(length),
            (_, false, None) => Framing::Connection,
        })
    }
}

/// How far a chunked body has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    state: ChunkState,
    /// The size line as far as it has come; only its digits are kept.
    size: Option<u64>,
    /// Bytes of the line.
    line: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// In the digits of the size.
    #[default]
    Size,
    /// After them: up to the line feed.
    Extension,
    /// So many bytes are left.
    Data(u64),
    /// The line end after the data.
    DataEnd,
    /// After the last chunk; what trails is not read.
    Done,
}

impl Framing {
    /// Appends to `body` what a piece brings of it, up to `limit` bytes in all; true when there is nothing more to come
    /// or to take.
    ///
    /// # Errors
    /// Chunks that are none.
    pub(super) fn push(
        &mut self,
        piece: &[u8],
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<bool, String> {
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

    /// Whether the body is complete.
    pub(super) fn is_done(&self) -> bool {
        matches!(
            self,
            Self::Length(0)
                | Self::Chunked(Chunks {
                    state: ChunkState::Done,
                    ..
                })
        )
    }

    /// Whether the end of the connection is the end of the body.
    pub(super) fn ends_with_the_connection(&self) -> bool {
        *self == Self::Connection
    }
}

fn take(piece: &[u8], body: &mut Vec<u8>, limit: usize) {
    body.extend_from_slice(&piece[..piece.len().min(limit - body.len())]);
}

impl Chunks {
    fn push(&mut self, mut piece: &[u8], body: &mut Vec<u8>, limit: usize) -> Result<(), String> {
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

    /// A byte between the data.
    fn step(&mut self, byte: u8) -> Result<(), String> {
        self.line += 1;
        if self.line > MAX_CHUNK_LINE {
            return Err("header line too long".into());
        }
        match (self.state, byte) {
            (ChunkState::DataEnd, b'\r') if self.line == 1 => {}
            (ChunkState::DataEnd, b'\n') => self.begin(ChunkState::Size),
            (ChunkState::DataEnd, _) => return Err("malformed chunked encoding".into()),
            (ChunkState::Size | ChunkState::Extension, b'\n') => self.end_of_size()?,
            (ChunkState::Size, b) if b.is_ascii_hexdigit() => {
                let digit = char::from(b).to_digit(16).map_or(0, u64::from);
                let size = self.size.unwrap_or(0);
                self.size =
                    Some(size.checked_mul(16).ok_or("http chunk length too large")? + digit);
            }
            (ChunkState::Size, b'\r' | b';' | b' ' | b'\t') => self.state = ChunkState::Extension,
            (ChunkState::Size, _) => return Err("invalid byte in chunk length".into()),
            (ChunkState::Extension | ChunkState::Data(_) | ChunkState::Done, _) => {}
        }
        Ok(())
    }

    fn end_of_size(&mut self) -> Result<(), String> {
        match self.size.take() {
            None => return Err("malformed chunked encoding".into()),
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
