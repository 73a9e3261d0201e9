//! Reads a tar stream as a sequence of entries: ustar, GNU (long names, sparse files) and PAX. Every size is bounded.
//!
//! The `tar` crate parses the fields of a header. This file combines headers itself, for two reasons. The crate's
//! iterator reads a long name of any declared length into memory, and it splits PAX values at newlines.
//!
//! Invariants: [`MAX_EXTENSION`] bounds the memory, whatever sizes the stream declares. The reader never moves back in
//! the stream.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

const BLOCK: u64 = 512;
/// Longest PAX header or GNU long name in bytes (an extended attribute may have 64 KiB).
const MAX_EXTENSION: u64 = 1 << 20;
/// Largest number of stored parts of a sparse file.
const MAX_SEGMENTS: usize = 65_536;
/// Largest number of comments that are kept. `MAX_COMMENT` is the greatest length of a comment in bytes.
const MAX_COMMENTS: usize = 32;
const MAX_COMMENT: usize = 4096;

/// The kind of a tar entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    Fifo,
    CharDevice,
    BlockDevice,
}

/// An entry of a tar, with its PAX and GNU extensions applied. The names come from the archive and are not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TarEntry {
    pub(crate) path: Vec<u8>,
    /// Target of a symlink or hard link; empty for other kinds.
    pub(crate) link: Vec<u8>,
    pub(crate) kind: Kind,
    /// Permission bits with the setuid, setgid and sticky bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Modification time: seconds since 1970, and nanoseconds.
    pub(crate) mtime: (i64, i64),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
    /// Size of the file in bytes, with its holes.
    pub(crate) size: u64,
    /// Offset and length in bytes of each stored part; None if the file is not sparse.
    pub(crate) segments: Option<Vec<(u64, u64)>>,
}

/// A reader that may be able to skip bytes without reading them.
pub(crate) trait Stream: Read + Sized {
    /// Skips `n` bytes. Fails if the stream ends earlier.
    fn skip(&mut self, n: u64) -> io::Result<()> {
        let skipped = io::copy(&mut Read::take(&mut *self, n), &mut io::sink())?;
        if skipped < n {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }
}

impl Stream for Box<dyn Read + '_> {}
impl Stream for &mut dyn Read {}
impl<R: Read> Stream for super::stream::Hashing<R> {}

/// Reads the entries of a tar stream, and the content of the entry that was returned last.
pub(crate) struct TarReader<R> {
    inner: R,
    /// Number of bytes consumed so far.
    position: u64,
    /// Number of content bytes of the current entry that are unread. `padding` counts the padding bytes after the
    /// content.
    left: u64,
    padding: u64,
    /// True if the end mark of the archive was read.
    pub(crate) complete: bool,
    /// Comments that the stream had until now (global PAX headers).
    pub(crate) comments: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Vec<(Vec<u8>, Vec<u8>)>,
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

impl<R: Stream> TarReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            position: 0,
            left: 0,
            padding: 0,
            complete: false,
            comments: Vec::new(),
        }
    }

    /// Returns the offset in the stream at which the content of the current entry begins. Only valid before the content
    /// is read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Skips the unread part of the current entry and returns the next entry. Returns None at the end of the archive.
    pub(crate) fn next(&mut self) -> io::Result<Option<TarEntry>> {
        let mut ext = Extensions::default();
        loop {
            let skip = self.left + self.padding;
            self.inner.skip(skip).map_err(truncated)?;
            self.position += skip;
            (self.left, self.padding) = (0, 0);
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let size = header.entry_size().map_err(|e| bad(e.to_string()))?;
            match header.entry_type() {
                EntryType::GNULongName => ext.path = Some(until_nul(self.extension(size)?)),
                EntryType::GNULongLink => ext.link = Some(until_nul(self.extension(size)?)),
                EntryType::XHeader => {
                    ext.pax = parse_pax(&self.extension(size)?)
                        .ok_or_else(|| bad("damaged PAX header"))?
                }
                EntryType::XGlobalHeader => {
                    let records = self.extension(size)?;
                    self.keep_comments(&records);
                }
                kind => match self.entry(&header, kind, size, std::mem::take(&mut ext))? {
                    Some(entry) => return Ok(Some(entry)),
                    None => continue,
                },
            }
        }
    }

    fn keep_comments(&mut self, records: &[u8]) {
        let records = parse_pax(records).unwrap_or_default();
        let comments = records.into_iter().filter(|(key, _)| key == b"comment");
        let short = comments
            .map(|(_, text)| text)
            .filter(|t| t.len() <= MAX_COMMENT);
        let room = MAX_COMMENTS - self.comments.len();
        self.comments.extend(short.take(room));
    }

    /// Returns the source of the stream. At the end of the archive the source still has the bytes after the end mark.
    pub(crate) fn source(&mut self) -> &mut R {
        &mut self.inner
    }

    /// Reads stored bytes of the current entry. Returns 0 at the entry's end.
    pub(crate) fn read_content(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buf.len());
        if most == 0 {
            return Ok(0);
        }
        let n = self.inner.read(&mut buf[..most])?;
        if n == 0 {
            return Err(truncated(io::ErrorKind::UnexpectedEof.into()));
        }
        self.left -= n as u64;
        self.position += n as u64;
        Ok(n)
    }

    /// Turns the reader into the source of the stream, which still has the bytes after the end of the archive.
    pub(super) fn into_inner(self) -> R {
        self.inner
    }

    fn block(&mut self) -> io::Result<[u8; BLOCK as usize]> {
        let mut block = [0; BLOCK as usize];
        self.inner.read_exact(&mut block).map_err(truncated)?;
        self.position += BLOCK;
        Ok(block)
    }

    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let first = loop {
            match self.inner.read(&mut block[..1]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => break other?,
            }
        };
        if first == 0 {
            return Ok(None);
        }
        self.inner.read_exact(&mut block[1..]).map_err(truncated)?;
        self.position += BLOCK;
        if block.iter().all(|b| *b == 0) {
            self.complete = true;
            return Ok(None);
        }
        let sum = block
            .iter()
            .enumerate()
            .map(|(i, b)| {
                if (148..156).contains(&i) {
                    32
                } else {
                    u32::from(*b)
                }
            })
            .sum::<u32>();
        if header.cksum().ok() != Some(sum) {
            return Err(bad("damaged tar header (or not a tar archive)"));
        }
        Ok(Some(header))
    }

    fn extension(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > MAX_EXTENSION {
            return Err(bad(format!(
                "an extended header of {size} bytes, at most {MAX_EXTENSION} are read"
            )));
        }
        self.content_follows(size);
        let mut data = vec![0; size as usize];
        let mut filled = 0;
        while filled < data.len() {
            filled += self.read_content(&mut data[filled..])?;
        }
        Ok(data)
    }

    fn content_follows(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: EntryType,
        size: u64,
        ext: Extensions,
    ) -> io::Result<Option<TarEntry>> {
        let number = |r: io::Result<u64>| r.map_err(|e| bad(e.to_string()));
        let id = |n: u64| {
            u32::try_from(n)
                .ok()
                .filter(|n| *n != u32::MAX)
                .ok_or_else(|| bad("an owner id out of range"))
        };
        let path = ext.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let kind_here = match kind {
            // Tar of Unix version 7 has no type for directories: a slash at the end of the path marks a directory.
            EntryType::Regular if path.ends_with(b"/") && size == 0 => Kind::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File,
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink,
            EntryType::Link => Kind::HardLink,
            EntryType::Fifo => Kind::Fifo,
            EntryType::Char => Kind::CharDevice,
            EntryType::Block => Kind::BlockDevice,
            other => {
                return Err(bad(format!(
                    "an entry of unknown type {:?}",
                    char::from(other.as_byte())
                )));
            }
        };
        let mut entry = TarEntry {
            path,
            link: ext
                .link
                .or_else(|| header.link_name_bytes().map(|l| l.into_owned()))
                .unwrap_or_default(),
            kind: kind_here,
            mode: header.mode().map_err(|e| bad(e.to_string()))? & 0o7777,
            uid: id(number(given(&header.as_old().uid, header.uid()))?)?,
            gid: id(number(given(&header.as_old().gid, header.gid()))?)?,
            mtime: (
                number(given(&header.as_old().mtime, header.mtime()))? as i64,
                0,
            ),
            xattrs: Vec::new(),
            device: (0, 0),
            size,
            segments: None,
        };
        if matches!(kind_here, Kind::CharDevice | Kind::BlockDevice) {
            let part = |r: io::Result<Option<u32>>| {
                r.map(Option::unwrap_or_default)
                    .map_err(|e| bad(e.to_string()))
            };
            entry.device = (part(header.device_major())?, part(header.device_minor())?);
        }
        apply_pax(&mut entry, ext.pax)?;
        let stored = entry.size;
        if kind == EntryType::GNUSparse {
            self.sparse(header, &mut entry, stored)?;
        }
        // Only the content of files is read. A hard link may have a size in its header, but it has no content.
        self.content_follows(if kind_here == Kind::File { stored } else { 0 });
        Ok(Some(entry))
    }

    fn sparse(&mut self, header: &Header, entry: &mut TarEntry, stored: u64) -> io::Result<()> {
        let gnu = header
            .as_gnu()
            .ok_or_else(|| bad("a sparse file without a GNU header"))?;
        let mut segments = Vec::new();
        collect_segments(&gnu.sparse, &mut segments)?;
        let mut more = gnu.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            block.as_mut_bytes().copy_from_slice(&self.block()?);
            collect_segments(block.sparse(), &mut segments)?;
            more = block.is_extended();
        }
        entry.size = gnu.real_size().map_err(|e| bad(e.to_string()))?;
        let mut end = 0;
        for (offset, length) in &segments {
            let next = offset
                .checked_add(*length)
                .filter(|next| *offset >= end && *next <= entry.size);
            end = next.ok_or_else(|| bad("a sparse file whose parts overlap or leave the file"))?;
        }
        if segments.iter().map(|s| s.1).sum::<u64>() != stored {
            return Err(bad("a sparse file whose parts do not add up"));
        }
        entry.segments = Some(segments);
        Ok(())
    }
}

fn truncated(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::UnexpectedEof {
        bad("truncated: it ends in the middle of an entry")
    } else {
        e
    }
}

fn until_nul(mut data: Vec<u8>) -> Vec<u8> {
    let end = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    data.truncate(end);
    data
}

fn collect_segments(headers: &[GnuSparseHeader], into: &mut Vec<(u64, u64)>) -> io::Result<()> {
    for h in headers.iter().filter(|h| !h.is_empty()) {
        let part = |r: io::Result<u64>| r.map_err(|e| bad(e.to_string()));
        into.push((part(h.offset())?, part(h.length())?));
    }
    if into.len() > MAX_SEGMENTS {
        Err(bad(format!(
            "a sparse file of more than {MAX_SEGMENTS} parts"
        )))
    } else {
        Ok(())
    }
}

/// Parses PAX records, `LENGTH KEY=VALUE\n`. The length counts the bytes of the whole record, so a value may hold any
/// byte, even a newline.
fn parse_pax(mut data: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut records = Vec::new();
    while !data.is_empty() && data[0] != 0 {
        let space = data.iter().take(8).position(|b| *b == b' ')?;
        let length: usize = std::str::from_utf8(&data[..space]).ok()?.parse().ok()?;
        let record = data.get(space + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|b| *b == b'=')?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        data = &data[length..];
    }
    Some(records)
}

fn apply_pax(entry: &mut TarEntry, records: Vec<(Vec<u8>, Vec<u8>)>) -> io::Result<()> {
    for (key, value) in records {
        let number = || {
            std::str::from_utf8(&value)
                .ok()
                .and_then(|v| v.parse::<u64>().ok())
        };
        let wrong = || {
            bad(format!(
                "a PAX header with a bad {}",
                String::from_utf8_lossy(&key)
            ))
        };
        let id = || {
            number()
                .and_then(|n| u32::try_from(n).ok())
                .filter(|n| *n != u32::MAX)
                .ok_or_else(wrong)
        };
        match key.as_slice() {
            // If the value of a record is empty, the header's own value counts.
            b"path" if !value.is_empty() => entry.path = value,
            b"linkpath" if !value.is_empty() => entry.link = value,
            b"size" => entry.size = number().ok_or_else(wrong)?,
            b"uid" => entry.uid = id()?,
            b"gid" => entry.gid = id()?,
            b"mtime" => entry.mtime = parse_time(&value).ok_or_else(wrong)?,
            k if k.starts_with(b"GNU.sparse.") => {
                return Err(bad(
                    "a sparse file in PAX form, which is not read; pack it without --sparse",
                ));
            }
            k => {
                if let Some(name) = k.strip_prefix(b"SCHILY.xattr.") {
                    entry.xattrs.push((name.to_vec(), value));
                }
            }
        }
    }
    Ok(())
}

/// Parses a time, `[-]SECONDS[.FRACTION]`, into seconds and nanoseconds.
fn parse_time(value: &[u8]) -> Option<(i64, i64)> {
    let text = std::str::from_utf8(value).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let (seconds, nanos): (i64, i64) = (seconds.parse().ok()?, digits.parse().ok()?);
    if text.starts_with('-') && nanos > 0 {
        Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos))
    } else {
        Some((seconds, nanos))
    }
}

/// Returns the number in a field of a header. A blank field counts as 0, as in all other readers of tar.
fn given(field: &[u8], number: io::Result<u64>) -> io::Result<u64> {
    if field.iter().all(|b| matches!(b, 0 | b' ')) {
        Ok(0)
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(data: &[u8]) -> io::Result<Vec<TarEntry>> {
        let mut reader = TarReader::new(Box::new(data) as Box<dyn Read + '_>);
        let mut all = Vec::new();
        while let Some(e) = reader.next()? {
            all.push(e);
        }
        Ok(all)
    }

    fn header(kind: EntryType, size: u64) -> Header {
        let mut h = Header::new_ustar();
        h.set_path("short").unwrap();
        h.set_entry_type(kind);
        h.set_mode(0o644);
        h.set_uid(0);
        h.set_gid(0);
        h.set_mtime(0);
        h.set_size(size);
        h.set_cksum();
        h
    }

    fn archive(parts: &[(EntryType, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, data) in parts {
            out.extend_from_slice(header(*kind, data.len() as u64).as_bytes());
            out.extend_from_slice(data);
            out.resize(out.len().next_multiple_of(512), 0);
        }
        out
    }

    fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (key, value) in records {
            let base = key.len() + value.len() + 3;
            let length = (base..).find(|n| base + n.to_string().len() == *n).unwrap();
            out.extend_from_slice(format!("{length} {key}=").as_bytes());
            out.extend_from_slice(value);
            out.push(b'\n');
        }
        out
    }

    #[test]
    fn pax_values_may_hold_newlines() {
        let records = pax(&[
            ("path", b"a/b"),
            ("SCHILY.xattr.user.x", b"1\n2\0=3"),
            ("mtime", b"12.5"),
            ("uid", b"70000"),
        ]);
        let e = entries(&archive(&[
            (EntryType::XHeader, &records),
            (EntryType::Regular, b"x"),
        ]))
        .unwrap()
        .remove(0);
        assert_eq!(
            (e.path.as_slice(), e.mtime, e.uid),
            (&b"a/b"[..], (12, 500_000_000), 70000)
        );
        assert_eq!(e.xattrs, [(b"user.x".to_vec(), b"1\n2\0=3".to_vec())]);
    }

    #[test]
    fn a_long_name_is_bounded_before_it_is_read() {
        let mut declared = header(EntryType::GNULongName, 1 << 40).as_bytes().to_vec();
        declared.resize(1024, b'a');
        assert!(
            entries(&declared)
                .unwrap_err()
                .to_string()
                .contains("extended header of 1099511627776 bytes")
        );
    }

    #[test]
    fn extensions_belong_to_the_next_entry_only() {
        let all = entries(&archive(&[
            (EntryType::GNULongName, b"long\0"),
            (EntryType::Regular, b"1"),
            (EntryType::Regular, b"2"),
        ]))
        .unwrap();
        assert_eq!(
            all.iter().map(|e| e.path.clone()).collect::<Vec<_>>(),
            [b"long".to_vec(), b"short".to_vec()]
        );
    }

    #[test]
    fn damage_is_seen() {
        let good = archive(&[(EntryType::Regular, &[7; 600])]);
        let mut flipped = good.clone();
        flipped[0] ^= 1;
        assert!(entries(&good).is_ok());
        for (name, data) in [
            ("flipped", &flipped[..]),
            ("cut in header", &good[..300]),
            ("cut in content", &good[..900]),
        ] {
            assert!(entries(data).is_err(), "{name}");
        }
        for records in [
            &b"99 path=x\n"[..],
            b"x path=y\n",
            b"0 p=x\n",
            b"9 path x\n",
        ] {
            assert!(
                parse_pax(records).is_none(),
                "{:?}",
                String::from_utf8_lossy(records)
            );
        }
    }

    #[test]
    fn times_before_1970() {
        assert_eq!(parse_time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(parse_time(b"3"), Some((3, 0)));
        assert_eq!(parse_time(b"x"), None);
    }
}
