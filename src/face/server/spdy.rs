//! The frames of SPDY/3.1, which carry the streams of `kubectl port-forward`.
//!
//! Invariants: pure. A [`Reader`] holds at most one control frame of [`MAX_CONTROL`] bytes; data is passed on as it
//! arrives. A block of headers has at most [`MAX_HEADERS`] bytes, however small it was compressed. After an error the
//! state of the compression is lost, so the connection must end.
//!
//! Deliberately absent: windows. The SPDY of kubectl and of an API server (spdystream) neither counts windows nor
//! sends WINDOW_UPDATE, so a server that waited for windows would hang after 64 KiB. TCP holds a fast sender back.

use std::sync::LazyLock;

use flate2::{Decompress, FlushDecompress, Status};
use thiserror::Error;

/// Largest size in bytes of a control frame without its head.
const MAX_CONTROL: usize = 16 << 10;
/// Largest size in bytes of a block of headers after decompression.
const MAX_HEADERS: usize = 4 << 10;
/// Largest number of headers of a stream.
const MAX_COUNT: u32 = 32;
/// Size in bytes of the head of a frame.
const HEAD: usize = 8;
/// Largest number of bytes that a data frame can carry.
pub const MAX_DATA: usize = (1 << 24) - 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
/// The flag of the last frame of a stream in one direction.
const FIN: u8 = 1;
/// The status of RST_STREAM for a stream that the server refuses.
pub const REFUSED_STREAM: u32 = 3;
/// The status of RST_STREAM that a kubelet sends for a stream with bad headers.
pub const CANCEL: u32 = 5;

/// A compressed block without headers, as a kubelet sends it first: the head of zlib, then four zeros.
const FIRST_EMPTY: &[u8] = b"\x78\xf9\xe3\xc6\xa7\xc2\x62\x60\x60\x60\0\0\0\0\xff\xff";
/// A compressed block without headers that follows another one: four bytes that repeat the zeros before them.
const NEXT_EMPTY: &[u8] = b"\x02\x61\0\0\0\0\xff\xff";

/// The checksum of the dictionary of SPDY/3, by which the head of a zlib stream names it.
const DICTIONARY_ID: [u8; 4] = [0xe3, 0xc6, 0xa7, 0xc2];
/// The first part of the dictionary (SPDY/3 draft, 2.6.10.1). In the dictionary each of these words follows its length.
const WORDS: &str = "options,head,post,put,delete,trace,accept,accept-charset,accept-encoding,accept-language,\
accept-ranges,age,allow,authorization,cache-control,connection,content-base,content-encoding,content-language,\
content-length,content-location,content-md5,content-range,content-type,date,etag,expect,expires,from,host,if-match,\
if-modified-since,if-none-match,if-range,if-unmodified-since,last-modified,location,max-forwards,pragma,\
proxy-authenticate,proxy-authorization,range,referer,retry-after,server,te,trailer,transfer-encoding,upgrade,\
user-agent,vary,via,warning,www-authenticate,method,get,status,200 OK,version,HTTP/1.1,url,public,set-cookie,\
keep-alive,origin";
/// The rest of the dictionary.
const PHRASES: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov \
Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,\
application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=\
iso-8859-1,utf-,*,enq=0.";

static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = Vec::new();
    for word in WORDS.split(',') {
        bytes.extend((word.len() as u32).to_be_bytes());
        bytes.extend(word.as_bytes());
    }
    bytes.extend(PHRASES.as_bytes());
    bytes
});

/// The reasons why a connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpdyError {
    /// The frame has another version.
    #[error("version {0} of SPDY is not spoken here, only version 3")]
    Version(u16),
    /// The control frame is too long.
    #[error("a control frame has {0} bytes, more than {MAX_CONTROL}")]
    TooLong(usize),
    /// The control frame is shorter than its fields.
    #[error("a control frame of type {0} is too short")]
    TooShort(u16),
    /// The block of headers cannot be read.
    #[error("the headers of a stream cannot be read: {0}")]
    Headers(&'static str),
}

/// A frame of the client, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The client opens a stream.
    Open {
        /// Number of the stream.
        stream: u32,
        /// Names in lower case, and values.
        headers: Vec<(String, String)>,
        /// True if the client sends nothing on the stream.
        ends: bool,
    },
    /// A piece of data of a stream.
    Data {
        /// Number of the stream.
        stream: u32,
        /// The bytes, at most as many as the reader was given at once.
        bytes: Vec<u8>,
        /// True if the client sends no more on the stream.
        ends: bool,
    },
    /// The client gives a stream up.
    Reset {
        /// Number of the stream.
        stream: u32,
    },
    /// The client wants this number back.
    Ping(u32),
    /// The client opens no more streams.
    GoAway,
}

/// The rest of a data frame whose head was read.
struct Data {
    stream: u32,
    left: usize,
    ends: bool,
}

/// A reader of frames, which is given bytes as they arrive.
pub struct Reader {
    held: Vec<u8>,
    data: Option<Data>,
    headers: HeaderReader,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            data: None,
            headers: HeaderReader {
                inflate: Decompress::new(false),
                is_begun: false,
            },
        }
    }
}

impl Reader {
    /// Returns the frames that these bytes complete. Frames without a meaning for a server of streams are left out.
    ///
    /// # Errors
    /// Returns [`SpdyError`] if the bytes are no SPDY/3.1. The reader must not be used after this.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<Vec<Frame>, SpdyError> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            bytes = match self.data.take() {
                Some(data) => self.pass_on(data, bytes, &mut frames),
                None => self.hold(bytes, &mut frames)?,
            };
        }
        Ok(frames)
    }

    /// Makes a frame of the bytes that belong to a data frame. Returns the bytes after these.
    fn pass_on<'a>(&mut self, data: Data, bytes: &'a [u8], frames: &mut Vec<Frame>) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(bytes.len().min(data.left));
        let left = data.left - taken.len();
        frames.push(Frame::Data {
            stream: data.stream,
            bytes: taken.to_vec(),
            ends: data.ends && left == 0,
        });
        self.data = (left > 0).then_some(Data { left, ..data });
        rest
    }

    /// Holds the bytes of a head or of a control frame until it is complete. Returns the bytes after it.
    fn hold<'a>(
        &mut self,
        bytes: &'a [u8],
        frames: &mut Vec<Frame>,
    ) -> Result<&'a [u8], SpdyError> {
        let wanted = self.wanted()? - self.held.len();
        let (taken, rest) = bytes.split_at(bytes.len().min(wanted));
        self.held.extend_from_slice(taken);
        if self.held.len() < self.wanted()? {
            return Ok(rest);
        }
        let frame = std::mem::take(&mut self.held);
        match Head::of(&frame) {
            Head::Data(data) if data.left > 0 => self.data = Some(data),
            Head::Data(data) => drop(self.pass_on(data, &[], frames)),
            Head::Control { kind, flags, .. } => {
                frames.extend(self.control(kind, flags, &frame[HEAD..])?);
            }
        }
        Ok(rest)
    }

    /// Returns the size in bytes of the frame or head that is held.
    fn wanted(&self) -> Result<usize, SpdyError> {
        if self.held.len() < HEAD {
            return Ok(HEAD);
        }
        match Head::of(&self.held) {
            Head::Data(_) => Ok(HEAD),
            Head::Control { version, .. } if version != 3 => Err(SpdyError::Version(version)),
            Head::Control { length, .. } if length > MAX_CONTROL => Err(SpdyError::TooLong(length)),
            Head::Control { length, .. } => Ok(HEAD + length),
        }
    }

    fn control(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<Option<Frame>, SpdyError> {
        let number = || number(body).ok_or(SpdyError::TooShort(kind));
        let block = |at: usize| body.get(at..).ok_or(SpdyError::TooShort(kind));
        Ok(match kind {
            SYN_STREAM => Some(Frame::Open {
                stream: number()? & 0x7fff_ffff,
                headers: self.headers.read(block(10)?)?,
                ends: flags & FIN != 0,
            }),
            // The headers must be read, because later blocks can repeat them.
            SYN_REPLY | HEADERS => {
                self.headers.read(block(4)?)?;
                None
            }
            RST_STREAM => Some(Frame::Reset {
                stream: number()? & 0x7fff_ffff,
            }),
            PING => Some(Frame::Ping(number()?)),
            GOAWAY => Some(Frame::GoAway),
            // SETTINGS and WINDOW_UPDATE are about windows. Frames of an unknown type are skipped (2.2.1 of the draft).
            _ => None,
        })
    }
}

/// The head of a frame.
enum Head {
    Data(Data),
    Control {
        version: u16,
        kind: u16,
        flags: u8,
        length: usize,
    },
}

impl Head {
    /// Reads a head from the first [`HEAD`] bytes.
    fn of(bytes: &[u8]) -> Self {
        let first = number(bytes).unwrap_or_default();
        let second = number(&bytes[4..]).unwrap_or_default();
        let (flags, length) = ((second >> 24) as u8, (second & 0x00ff_ffff) as usize);
        match first >> 31 {
            0 => Self::Data(Data {
                stream: first,
                left: length,
                ends: flags & FIN != 0,
            }),
            _ => Self::Control {
                version: (first >> 16) as u16 & 0x7fff,
                kind: first as u16,
                flags,
                length,
            },
        }
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|four| u32::from_be_bytes(*four))
}

/// A reader of blocks of headers. All blocks of a connection are one zlib stream.
struct HeaderReader {
    inflate: Decompress,
    is_begun: bool,
}

impl HeaderReader {
    fn read(&mut self, block: &[u8]) -> Result<Vec<(String, String)>, SpdyError> {
        let block = match self.is_begun {
            true => block,
            false => self.begin(block)?,
        };
        headers(&self.inflate(block)?)
    }

    /// Reads the head of the zlib stream, and returns the rest of the block. A raw stream has no call that sets a
    /// dictionary, so the dictionary is given to the decompression as a block that is not compressed.
    fn begin<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], SpdyError> {
        let (head, rest) = block
            .split_at_checked(6)
            .ok_or(SpdyError::Headers("there is no head of zlib"))?;
        let is_zlib =
            head[0] & 0x0f == 8 && (u32::from(head[0]) * 256 + u32::from(head[1])) % 31 == 0;
        if !is_zlib || head[1] & 0x20 == 0 || head[2..] != DICTIONARY_ID {
            return Err(SpdyError::Headers(
                "the dictionary is not the one of SPDY/3",
            ));
        }
        let length = DICTIONARY.len() as u16;
        let mut stored = vec![0];
        stored.extend(length.to_le_bytes());
        stored.extend((!length).to_le_bytes());
        stored.extend_from_slice(&DICTIONARY);
        self.inflate(&stored)?;
        self.is_begun = true;
        Ok(rest)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut out = Vec::with_capacity(1024);
        let mut chunk = [0; 1024];
        loop {
            let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
            let done = self
                .inflate
                .decompress(block, &mut chunk, FlushDecompress::Sync);
            match done {
                Ok(Status::Ok | Status::BufError) => {}
                Ok(Status::StreamEnd) => return Err(SpdyError::Headers("their stream has ended")),
                Err(_) => return Err(SpdyError::Headers("their compression is broken")),
            }
            let read = (self.inflate.total_in() - read) as usize;
            let written = (self.inflate.total_out() - written) as usize;
            block = &block[read..];
            out.extend_from_slice(&chunk[..written]);
            if out.len() > MAX_HEADERS {
                return Err(SpdyError::Headers("they are too long"));
            }
            if written < chunk.len() && (block.is_empty() || read + written == 0) {
                return Ok(out);
            }
        }
    }
}

/// Reads the names and values of a block.
fn headers(mut block: &[u8]) -> Result<Vec<(String, String)>, SpdyError> {
    let short = SpdyError::Headers("they are cut off");
    let count = number(block).ok_or(short.clone())?;
    if count > MAX_COUNT {
        return Err(SpdyError::Headers("they are too many"));
    }
    block = &block[4..];
    let mut text = || {
        let length = number(block)? as usize;
        let (text, rest) = block[4..].split_at_checked(length)?;
        block = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let mut all = Vec::new();
    for _ in 0..count {
        let pair = text().zip(text()).ok_or(short.clone())?;
        all.push(pair);
    }
    Ok(all)
}

/// A writer of frames.
#[derive(Default)]
pub struct Writer {
    has_replied: bool,
}

impl Writer {
    /// Returns the frame that accepts a stream, without headers.
    pub fn reply(&mut self, stream: u32) -> Vec<u8> {
        let block = match std::mem::replace(&mut self.has_replied, true) {
            true => NEXT_EMPTY,
            false => FIRST_EMPTY,
        };
        control(SYN_REPLY, &[&stream.to_be_bytes(), block].concat())
    }

    /// Returns a frame of data, at most [`MAX_DATA`] bytes of it. `ends` is true for the last frame of the stream.
    pub fn data(&self, stream: u32, data: &[u8], ends: bool) -> Vec<u8> {
        let data = &data[..data.len().min(MAX_DATA)];
        let flags = if ends { u32::from(FIN) << 24 } else { 0 };
        let length = flags | data.len() as u32;
        [&stream.to_be_bytes(), &length.to_be_bytes(), data].concat()
    }

    /// Returns the frame that ends a stream in both directions.
    pub fn reset(&self, stream: u32, status: u32) -> Vec<u8> {
        let body = [stream.to_be_bytes(), status.to_be_bytes()].concat();
        control(RST_STREAM, &body)
    }

    /// Returns the answer to a ping.
    pub fn ping(&self, id: u32) -> Vec<u8> {
        control(PING, &id.to_be_bytes())
    }
}

/// Returns a control frame without flags.
fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let first = 0x8003_0000 | u32::from(kind);
    let length = body.len() as u32;
    [&first.to_be_bytes(), &length.to_be_bytes(), body].concat()
}

#[cfg(test)]
mod tests;
