//! Reads one file from the disk without waiting, up to a limit.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::reading::Digest;

/// The size in bytes at which a file is too large: a file of this size is refused (kubelet-probes 6.2).
pub const MAX_FILE_SIZE: u64 = 10 << 20;

pub(super) fn sha256(bytes: &[u8]) -> Digest {
    ring::digest::digest(&ring::digest::SHA256, bytes)
        .as_ref()
        .try_into()
        .expect("SHA-256 has 32 bytes")
}

/// Returns the kind of a directory entry that is not a regular file, for example `a directory`.
pub(super) fn kind(meta: &fs::Metadata) -> &'static str {
    let t = meta.file_type();
    let kinds = [
        (t.is_dir(), "a directory"),
        (t.is_fifo(), "a FIFO"),
        (t.is_socket(), "a socket"),
        (t.is_char_device(), "a device"),
    ];
    kinds
        .iter()
        .find(|(is, _)| *is)
        .map_or("a block device", |(_, what)| what)
}

/// Reads a file without waiting for another process. Checks the type of the open file, because another file may have
/// taken the name before the file was opened.
pub(super) fn read_limited(path: &Path, limit: u64) -> io::Result<(fs::Metadata, Vec<u8>)> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other(format!("it is {}", kind(&meta))));
    }
    let mut bytes = Vec::with_capacity(meta.len().min(limit) as usize);
    if meta.len() < limit {
        file.take(limit).read_to_end(&mut bytes)?;
    }
    if meta.len().max(bytes.len() as u64) >= limit {
        return Err(io::Error::other(format!(
            "it has {} bytes or more, and the limit is below {} MiB",
            meta.len(),
            limit >> 20
        )));
    }
    Ok((meta, bytes))
}
