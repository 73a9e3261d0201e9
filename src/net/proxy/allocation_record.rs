//! The record of the addresses and ports that were allocated for services. This daemon has the record in memory,
//! and writes it to the disk for the next daemon.
//!
//! Invariants: if the record cannot be read or written, services still work while this daemon runs. An error of
//! writing is logged once. The error is logged again if its text changes, or if it comes back after a successful
//! write.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::atomic_file;
use crate::base::json;
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
        let json = serde_json::to_vec(&self.allocations).unwrap_or_default();
        let failed = atomic_file::replace(&self.path, &json).err().map(|e| {
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
    match std::fs::read(path) {
        Ok(json) => json::from_slice(&json).unwrap_or_else(|e| {
            log::warn!(
                "cannot use {}: {e}; services may get other addresses",
                path.display()
            );
            Allocations::default()
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Allocations::default(),
        Err(e) => {
            log::warn!(
                "cannot read {}: {e}; services may get other addresses",
                path.display()
            );
            Allocations::default()
        }
    }
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
}
