//! Records that are kept on the disk for a start without the link.
//!
//! Invariant: what cannot be read or written costs only the start without the link, and is said.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::record_directory::RecordDirectory;

/// A directory of records, which may be unusable.
pub(super) struct Kept<T>(Option<RecordDirectory<T>>);

impl<T: Serialize + DeserializeOwned> Kept<T> {
    /// Reads what an earlier daemon has kept. `cost` says what a directory that cannot be read costs.
    pub(super) fn open(directory: PathBuf, cost: &str) -> Self {
        let named = directory.display().to_string();
        let records = RecordDirectory::open(directory);
        let records = records.inspect_err(|e| log::error!("cannot read {named}: {e}; {cost}"));
        Self(records.ok())
    }

    /// Returns all records with their ids.
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &T)> {
        self.0.iter().flat_map(|records| records.all())
    }

    /// Returns the record of this id.
    pub(super) fn get(&self, id: &str) -> Option<&T> {
        self.0.as_ref()?.get(id)
    }

    /// Writes a record. `what` names it in the log.
    pub(super) fn put(&mut self, id: &str, record: T, what: &str) {
        let Some(Err(e)) = self.0.as_mut().map(|records| records.put(id, record)) else {
            return;
        };
        log::warn!("cannot keep {what} for a start without the API server: {e}");
    }

    /// Removes the records for which `is_kept` returns false. `what` names them in the log.
    pub(super) fn retain(&mut self, what: &str, is_kept: impl Fn(&str) -> bool) {
        let unused = self.all().filter(|(id, _)| !is_kept(id));
        let unused: Vec<String> = unused.map(|(id, _)| id.clone()).collect();
        unused.iter().for_each(|id| self.remove(id, what));
    }

    /// Removes a record.
    pub(super) fn remove(&mut self, id: &str, what: &str) {
        if let Some(Err(e)) = self.0.as_mut().map(|records| records.remove(id)) {
            log::warn!("cannot forget {what} {id}: {e}");
        }
    }
}
