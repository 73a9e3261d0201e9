//! Writes entries of a tar stream: GNU headers, GNU entries for long names, and PAX records for the fraction of a time.
//!
//! The builder of the `tar` crate rewrites the targets of links. This writer keeps every name byte for byte.

use std::io::{self, Write};

use nix::sys::stat::FileStat;
use tar::{EntryType, Header};

use crate::base::sys::wide;

const BLOCK: usize = 512;
/// Longest name in bytes that is written into the header itself.
const MAX_NAME: usize = 99;

/// A writer of a tar stream. The writer writes the headers, and its caller writes the content of files.
pub(super) struct TarWriter<'a> {
    pub(super) out: &'a mut dyn Write,
}

/// Data for the header of an entry.
pub(super) struct Entry<'a> {
    pub(super) path: &'a [u8],
    pub(super) kind: EntryType,
    /// Target of the link if the entry is a symlink; otherwise empty.
    pub(super) target: &'a [u8],
    pub(super) stat: &'a FileStat,
    /// Size in bytes of the content.
    pub(super) size: u64,
}

impl TarWriter<'_> {
    pub(super) fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let stat = entry.stat;
        if stat.st_mtime_nsec != 0 || stat.st_mtime < 0 {
            let time = time(stat.st_mtime, wide(stat.st_mtime_nsec));
            self.extension(EntryType::XHeader, &record("mtime", time.as_bytes()))?;
        }
        let mut header = Header::new_gnu();
        // Every tar program ends the name of a directory with a slash.
        let slash: &[u8] = match entry.kind {
            EntryType::Directory => b"/",
            _ => b"",
        };
        let path = [entry.path, slash].concat();
        let name = self.name(EntryType::GNULongName, &path)?;
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        let target = self.name(EntryType::GNULongLink, entry.target)?;
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target);
        header.set_entry_type(entry.kind);
        header.set_mode(stat.st_mode & 0o7777);
        header.set_uid(stat.st_uid.into());
        header.set_gid(stat.st_gid.into());
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        header.set_size(entry.size);
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    /// Returns the part of a name that fits into the header. If the name is too long, the function first writes the
    /// whole name as an entry of its own.
    fn name<'n>(&mut self, long: EntryType, name: &'n [u8]) -> io::Result<&'n [u8]> {
        if name.len() <= MAX_NAME {
            return Ok(name);
        }
        self.extension(long, &[name, b"\0"].concat())?;
        Ok(&name[..MAX_NAME])
    }

    fn extension(&mut self, kind: EntryType, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        let name = b"././@LongLink";
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(content)?;
        self.pad(content.len() as u64)
    }

    /// Writes a comment into the stream, for the podprobe that reads the stream. Other readers of tar ignore the
    /// comment.
    pub(super) fn comment(&mut self, text: &str) -> io::Result<()> {
        self.extension(
            EntryType::XGlobalHeader,
            &record("comment", text.as_bytes()),
        )
    }

    /// Fills the last block of a file with zeros, after `size` bytes of content.
    pub(super) fn pad(&mut self, size: u64) -> io::Result<()> {
        let over = (size % BLOCK as u64) as usize;
        let zeros = [0; BLOCK];
        self.out.write_all(&zeros[..(BLOCK - over) % BLOCK])
    }

    /// Writes the end mark of the archive.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }
}

/// Returns a PAX record, `LENGTH KEY=VALUE\n`. The length counts the bytes of the whole record.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// Returns a time as PAX writes it, a decimal number of seconds. `nanos` counts forward from the second, also before
/// 1970.
fn time(seconds: i64, nanos: i64) -> String {
    match seconds < 0 && nanos > 0 {
        true => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanos),
        false => format!("{seconds}.{nanos:09}"),
    }
}
