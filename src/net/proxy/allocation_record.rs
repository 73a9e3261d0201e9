//! The record of the addresses and ports that were allocated for services. This daemon has the record in memory,
//! and writes it to the disk for the next daemon.
//!
//! Invariants: if the record cannot be read or written, services still work while this daemon runs. An error of
//! writing is logged once. The error is logged again if its text changes, or if it comes back after a successful
//! write.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::base::{atomic_file, record_file};
use crate::net::services::allocate::Allocations;

/// The allocations of this daemon, and the path of their file.
pub(super) struct AllocationRecord {
    path: PathBuf,
    allocations: Allocations,
    /// True if the record on the disk equals `allocations`.
    is_written: bool,
    /// The last error of writing the record. The log has this error already. Empty if the last write has
    /// succeeded.
    said: String,
}

impl AllocationRecord {
    /// Reads the record that an earlier daemon has written.
    pub(super) fn read(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            allocations: read(path),
            is_written: true,
            said: String::new(),
        }
    }

    /// Returns the allocations, from which the next allocations are made.
    pub(super) fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Replaces the allocations. [`Self::write`] writes the allocations to the disk if they have changed.
    pub(super) fn set(&mut self, allocations: Allocations) {
        if allocations != self.allocations {
            self.allocations = allocations;
            self.is_written = false;
        }
    }

    /// Writes the allocations to the disk, unless the disk has the same allocations already. After a failure the
    /// next call tries again. Returns the error text if the log does not have it yet.
    pub(super) fn write(&mut self) -> Option<String> {
        if self.is_written {
            return None;
        }
        let bytes = record_file::to_bytes(&self.allocations);
        let written = bytes.and_then(|bytes| atomic_file::replace(&self.path, &bytes));
        let failed = written.err().map(|e| {
            format!(
                "cannot write {}: {e}; trying again; until then services keep their addresses only while the daemon runs",
                self.path.display()
            )
        });
        self.is_written = failed.is_none();
        let text = failed.unwrap_or_default();
        let is_new = !text.is_empty() && text != self.said;
        self.said.clone_from(&text);
        is_new.then_some(text)
    }
}

/// Reads the record of allocations. Returns empty allocations if the file is missing or cannot be read. With empty
/// allocations, all addresses are allocated anew, and services may get other addresses than before.
fn read(path: &Path) -> Allocations {
    let place = path.parent().zip(path.file_name().and_then(OsStr::to_str));
    let read = place.map_or(Ok(None), |(dir, name)| record_file::try_read(dir, name));
    read.unwrap_or_else(|e| {
        log::warn!("{e}; services may get other addresses");
        None
    })
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_that_cannot_be_written_is_tried_again_and_said_once() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("later");
        let path = below.join("services.json");
        let mut record = AllocationRecord::read(&path);
        let some: Allocations =
            serde_json::from_value(json!({"services": {"default/web": {}}})).unwrap();
        record.set(some.clone());
        let said = record.write().unwrap();
        assert!(said.starts_with(&format!("cannot write {}: ", path.display())));
        assert_eq!(record.write(), None, "the log has it");
        fs::create_dir(&below).unwrap();
        record.set(some);
        assert_eq!(record.write(), None);
        assert!(fs::read_to_string(&path).unwrap().contains("web"));
        let again = AllocationRecord::read(&path);
        assert_eq!(again.allocations(), record.allocations());
        fs::remove_dir_all(&below).unwrap();
        assert_eq!(record.write(), None);
        assert!(!below.exists(), "it is written when it changes");
        record.set(Allocations::default());
        assert_eq!(record.write(), Some(said), "it has been right meanwhile");
    }

    #[test]
    fn what_is_no_record_is_moved_aside_and_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("services.json");
        let some: Allocations =
            serde_json::from_value(json!({"services": {"default/web": {}}})).unwrap();
        for _ in 0..2 {
            fs::create_dir_all(path.join("below")).unwrap();
            let mut record = AllocationRecord::read(&path);
            assert_eq!(record.allocations(), &Allocations::default());
            record.set(some.clone());
            assert_eq!(record.write(), None);
            assert_eq!(AllocationRecord::read(&path).allocations(), &some);
            fs::remove_file(&path).unwrap();
        }
    }
}
