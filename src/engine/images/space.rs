//! Checks the room on the disk before and while a layer is unpacked. So images never fill the disk, and containers have
//! room for logs and volumes.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::fstatvfs;

use super::error::{ImageError, NoRoom};
use super::image_gc::DiskUsage;

/// Upper limit in bytes for the room that images leave free on the disk. On a small file system they leave a twentieth
/// of its size free, if this is less.
const MOST_KEPT_FREE: u64 = 64 << 20;
/// Number of bytes that may be written between two checks.
const INTERVAL: u64 = 4 << 20;

/// The file system that holds a directory.
pub(super) struct Space {
    dir: PathBuf,
    file: File,
}

impl Space {
    pub(super) fn of(dir: &Path) -> Result<Self, ImageError> {
        let file =
            File::open(dir).map_err(|e| ImageError::io(format!("open {}", dir.display()), e))?;
        Ok(Self {
            dir: dir.to_owned(),
            file,
        })
    }

    pub(super) fn usage(&self) -> io::Result<DiskUsage> {
        let fs = fstatvfs(&self.file)?;
        // The integer types of these fields depend on the machine.
        let unit = u128::from(fs.fragment_size());
        let bytes = |blocks| u64::try_from(u128::from(blocks) * unit).unwrap_or(u64::MAX);
        Ok(DiskUsage {
            capacity: bytes(fs.blocks()),
            available: bytes(fs.blocks_available()),
        })
    }

    /// Returns an error if there is no room for `needed` more bytes.
    pub(super) fn check(&self, needed: u64) -> io::Result<()> {
        let usage = self.usage()?;
        let free = usage.available;
        let kept = (usage.capacity / 20).min(MOST_KEPT_FREE);
        if free >= needed.saturating_add(kept) {
            return Ok(());
        }
        Err(io::Error::other(NoRoom {
            dir: self.dir.clone(),
            needed,
            free,
            kept,
        }))
    }

    /// Checks the room as [`Self::check`] does. The parameter `what` names the object that needs the bytes in the
    /// error.
    pub(super) fn require(&self, needed: u64, what: &str) -> Result<(), ImageError> {
        self.check(needed).map_err(|e| ImageError::reading(what, e))
    }
}

/// A reader that checks the room on the disk each time that [`INTERVAL`] bytes were read, because the caller writes
/// these bytes to the disk. The unpacked size of a compressed layer is not known before.
pub(super) struct WithRoom<R> {
    inner: R,
    space: Space,
    unchecked: u64,
}

impl<R> WithRoom<R> {
    pub(super) fn new(inner: R, space: Space) -> Self {
        Self {
            inner,
            space,
            unchecked: 0,
        }
    }
}

impl<R: Read> Read for WithRoom<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.unchecked >= INTERVAL {
            self.unchecked = 0;
            self.space.check(INTERVAL)?;
        }
        let n = self.inner.read(buf)?;
        self.unchecked += n as u64;
        Ok(n)
    }
}
