//! The versions of a source's files: decodes new versions, and keeps the accepted ones in memory and on the disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::files::{Files, needs_last_good};
use super::last_good::LastGood;
use super::read::sha256;
use super::reading::{ContentError, Decode, Reading, Signature};
use crate::api::decode::Decoded;

/// The files of one source and their last good versions.
pub(super) struct Versions {
    pub(super) files: Files,
    last_good: LastGood,
    /// True if the last good versions of an earlier daemon have been restored.
    restored: bool,
    decode: Decode,
}

impl Versions {
    /// Makes the versions of a source. `last_good` is a directory for this source alone.
    pub(super) fn new(files: Files, last_good: PathBuf, decode: Decode) -> Self {
        Self {
            files,
            last_good: LastGood::new(last_good),
            restored: false,
            decode,
        }
    }

    /// True if the accepted content of a file is not on the disk because a write has failed.
    pub(super) fn lacks(&self, path: &Path) -> bool {
        self.files
            .accepted(path)
            .is_some_and(|accepted| self.last_good.digest(path) != Some(*accepted))
    }

    /// Reads the content of a file. `empty` is the error for content without bytes.
    pub(super) fn read(
        &mut self,
        path: &Path,
        signature: Option<Signature>,
        bytes: &[u8],
        empty: ContentError,
    ) -> Reading {
        let digest = sha256(bytes);
        if self.files.digest(path) == Some(&digest) {
            if self.files.accepted(path) == Some(&digest) {
                self.last_good.stage(path, digest, bytes);
            }
            return Reading::SameContent { signature };
        }
        let result = match bytes.is_empty() {
            true => Err(empty),
            false => decode(&self.decode, bytes, path),
        };
        if result.is_ok() {
            self.last_good.stage(path, digest, bytes);
        }
        Reading::Parsed {
            signature,
            digest,
            result,
        }
    }

    /// Restores the last good versions of an earlier daemon. Later calls do nothing.
    pub(super) fn restore(&mut self, readings: &[(&Path, &Reading)]) {
        if std::mem::replace(&mut self.restored, true) {
            return;
        }
        for (path, reading) in readings {
            let kept = self.last_good.digest(path);
            if kept.is_some_and(|kept| needs_last_good(reading, &kept)) {
                self.load(path);
            }
        }
    }

    /// Restores the last good version of an earlier daemon before anything was read. Returns false if there is no
    /// version that this podprobe accepts.
    pub(super) fn restore_unread(&mut self, path: &Path) -> bool {
        if !std::mem::replace(&mut self.restored, true) {
            self.load(path);
        }
        self.files.accepted(path).is_some()
    }

    fn load(&mut self, path: &Path) {
        let Some(digest) = self.last_good.digest(path) else {
            return;
        };
        if let Some(bytes) = self.last_good.load(path) {
            let decoded = decode(&self.decode, &bytes, path);
            self.files.restore(path, digest, decoded);
        }
    }

    /// Writes the last good versions in memory to the disk.
    pub(super) fn keep(&mut self) {
        self.last_good.commit(|path| self.files.accepted(path));
        if self.restored {
            self.last_good.retain(self.files.paths());
        }
        self.last_good
            .take_lines()
            .iter()
            .for_each(|line| log::warn!("{line}"));
    }
}

fn decode(decode: &Decode, bytes: &[u8], path: &Path) -> Result<Decoded, ContentError> {
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(bytes, path)));
    Ok(decoded.map_err(|_| ContentError::Panicked)??)
}
