//! The record of an installation: its files with their digests, its links, and the init system.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ring::digest;
use serde::{Deserialize, Serialize};

use super::init_system::InitSystem;
use crate::base::paths::Layout;
use crate::base::record_file;

/// Name of the record, in the directory of the daemon's state.
const RECORD: &str = "install.json";

/// Everything that `install` has put on a node, with paths as the node sees them.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Installed {
    /// The init system whose service was written.
    pub init: InitSystem,
    /// The files, each with the SHA-256 of what was written.
    pub files: BTreeMap<PathBuf, String>,
    /// The symbolic links.
    pub links: BTreeSet<PathBuf>,
}

impl Installed {
    /// Reads the record. A node without one has nothing installed.
    ///
    /// # Errors
    /// Returns a sentence if the record cannot be read.
    pub fn read(layout: &Layout) -> Result<Self, String> {
        let dir = layout.lib_dir();
        let record = record_file::try_read(&dir, RECORD);
        let record =
            record.map_err(|e| format!("cannot read {}: {e}", dir.join(RECORD).display()))?;
        Ok(record.unwrap_or_default())
    }

    /// Writes the record.
    ///
    /// # Errors
    /// Returns a sentence if the record cannot be written.
    pub fn write(&self, layout: &Layout) -> Result<(), String> {
        let dir = layout.lib_dir();
        let written = layout.make(&dir).map(drop);
        let written = written.and_then(|()| record_file::write(&dir, RECORD, self, true));
        written.map_err(|e| format!("cannot write {}: {e}", dir.join(RECORD).display()))
    }

    /// Returns the path of the record.
    pub fn path(layout: &Layout) -> PathBuf {
        layout.lib_dir().join(RECORD)
    }

    /// True if nothing is installed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.links.is_empty()
    }
}

/// Returns the digest of a content as the record has it.
pub fn digest_of(content: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, content);
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
