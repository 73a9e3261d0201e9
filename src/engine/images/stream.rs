//! Readers and writers between a blob and the disk: digest, decompression, limit.

use std::io::{self, BufRead, Read, Write};

use ring::digest;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::error::StreamTooLong;

/// Returns the digest of `bytes` as `sha256:<hex>`.
pub(super) fn sha256(bytes: &[u8]) -> String {
    name(digest::digest(&digest::SHA256, bytes))
}

fn name(d: digest::Digest) -> String {
    d.as_ref()
        .iter()
        .fold("sha256:".to_owned(), |s, b| s + &format!("{b:02x}"))
}

/// A reader or writer that computes the digest of all bytes that pass through it.
pub(super) struct Hashing<R> {
    inner: R,
    context: digest::Context,
    bytes: u64,
}

impl<R> Hashing<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            context: digest::Context::new(&digest::SHA256),
            bytes: 0,
        }
    }
}

impl<R: Read> Hashing<R> {
    /// Reads the bytes that are left. Returns the digest of all bytes that were read, and their number.
    pub(super) fn finish(mut self) -> io::Result<(String, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((name(self.context.finish()), self.bytes))
    }
}

impl<W: Write> Hashing<W> {
    /// Returns the digest of all bytes that were written, and their number.
    pub(super) fn written(self) -> (String, u64) {
        (name(self.context.finish()), self.bytes)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.context.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.context.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }
}

/// A reader that fails with [`StreamTooLong`] after `limit` bytes. This limits the damage of a decompression bomb.
pub(super) struct Limited<R> {
    inner: R,
    limit: u64,
    left: u64,
}

impl<R> Limited<R> {
    pub(super) fn new(inner: R, limit: u64) -> Self {
        Self {
            inner,
            limit,
            left: limit,
        }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        match self.left.checked_sub(n as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(StreamTooLong(self.limit))),
        }
        Ok(n)
    }
}

/// Tells whether the first bytes of a stream are those of gzip or zstd. Media types are not used, because they are
/// often wrong.
pub(super) fn is_compressed(start: &[u8]) -> bool {
    start.starts_with(GZIP) || is_zstd(start)
}

/// Largest window of a zstd frame in bytes. A decoder holds the window in memory. Level 19 uses a window of this size,
/// and every decoder must support it (RFC 8878 3.1.1.1.2).
const MAX_WINDOW: u64 = 8 << 20;

/// Returns the error for a zstd frame that cannot be decoded. If the frame needs too large a window, the error's text
/// says so.
fn of_frame(e: FrameDecoderError) -> io::Error {
    match e {
        FrameDecoderError::WindowSizeTooBig { requested, .. } => io::Error::other(format!(
            "its zstd window is {} MiB, and at most {} MiB are unpacked: compress it without --ultra and --long",
            requested.div_ceil(1 << 20),
            MAX_WINDOW >> 20
        )),
        e => io::Error::other(e.to_string()),
    }
}

const GZIP: &[u8] = &[0x1f, 0x8b];

/// Tells whether `start` begins with a zstd frame or a skippable frame (zstd:chunked begins or ends with a skippable
/// frame).
pub(super) fn is_zstd(start: &[u8]) -> bool {
    matches!(
        start,
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]
    )
}

/// Returns a reader of the uncompressed bytes of a gzip, zstd or uncompressed stream.
pub(super) fn decompress<'a, R: BufRead + 'a>(mut source: R) -> io::Result<Box<dyn Read + 'a>> {
    let start = source.fill_buf()?;
    Ok(if start.starts_with(GZIP) {
        Box::new(flate2::bufread::MultiGzDecoder::new(source))
    } else if is_zstd(start) {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Box::new(Zstd {
            source,
            decoder,
            in_frame: false,
        })
    } else {
        Box::new(source)
    })
}

/// A reader of all frames of a zstd stream. It calls the decoder once for each frame, because the decoder reads a
/// single frame.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Moves to the next frame. Returns false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped =
                        io::copy(&mut (&mut self.source).take(length.into()), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(e) => return Err(of_frame(e)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && !self.next_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() < buf.len() && !self.decoder.is_finished() {
                let wanted =
                    BlockDecodingStrategy::UptoBytes(buf.len() - self.decoder.can_collect());
                self.decoder
                    .decode_blocks(&mut self.source, wanted)
                    .map_err(|e| io::Error::other(e.to_string()))?;
            }
            match self.decoder.read(buf)? {
                0 if buf.is_empty() => return Ok(0),
                0 => self.in_frame = false,
                n => return Ok(n),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a zstd frame with `content` in one raw block: single segment, one byte of content size, no checksum.
    fn raw_frame(content: &[u8]) -> Vec<u8> {
        let n = u8::try_from(content.len()).unwrap();
        let block = (u32::from(n) << 3 | 1).to_le_bytes();
        [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, n], &block[..3], content].concat()
    }

    #[track_caller]
    fn check(stream: &[u8], expected: Result<&[u8], ()>) {
        let mut out = Vec::new();
        let result = decompress(stream).and_then(|mut r| r.read_to_end(&mut out));
        assert_eq!(result.map(|_| out.as_slice()).map_err(|_| ()), expected);
    }

    #[test]
    fn zstd_frames_follow_each_other() {
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        check(&raw_frame(b"hello"), Ok(b"hello"));
        check(
            &[raw_frame(b"a"), skippable.clone(), raw_frame(b"b")].concat(),
            Ok(b"ab"),
        );
        check(&[skippable.clone(), raw_frame(b"b")].concat(), Ok(b"b"));
        check(&[raw_frame(b"a"), b"garbage".to_vec()].concat(), Err(()));
        check(&raw_frame(b"hello")[..10], Err(()));
        check(&skippable[..9], Err(()));
    }

    #[test]
    fn a_window_of_more_than_8_mib_is_refused_by_name() {
        // A frame with a window descriptor: exponent 10 + n, mantissa 0. Its only block is raw and empty.
        let frame = |n: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, n << 3, 1, 0, 0];
        check(&frame(13), Ok(b""));
        let error = decompress(&frame(17)[..]).and_then(|mut r| r.read_to_end(&mut Vec::new()));
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with("its zstd window is 128 MiB, and at most 8 MiB"),
            "{error}"
        );
    }

    #[test]
    fn plain_and_gzip_are_told_by_magic() {
        use std::io::Write;
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(b"hello").unwrap();
        let gz = gz.finish().unwrap();
        check(b"hello", Ok(b"hello"));
        check(b"", Ok(b""));
        check(&gz, Ok(b"hello"));
        check(&gz[..gz.len() - 1], Err(()));
    }

    #[test]
    fn the_limit_is_exact() {
        let read = |limit| io::copy(&mut Limited::new(&b"12345"[..], limit), &mut io::sink());
        assert_eq!(read(5).unwrap(), 5);
        assert!(read(4).is_err());
    }
}
