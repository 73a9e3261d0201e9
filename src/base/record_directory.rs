//! A directory of records, one file for each.
//!
//! Invariants: a record that was put is on the disk, also after a power cut, before `put` returns. A record that cannot
//! be written changes nothing, neither on the disk nor here. A damaged record is moved out of the way and named in the
//! log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::record_file;

const SUFFIX: &str = ".json";
/// Ending of the names of files that are being written.
const UNFINISHED: &str = ".tmp";
/// Ending of the names of files that were moved out of the way.
const DAMAGED: &str = ".json.corrupt";

/// The records of one directory, by the names of their files without `.json`.
pub struct RecordDirectory<T> {
    directory: PathBuf,
    records: BTreeMap<String, T>,
    /// Ids of records that were damaged.
    lost: BTreeSet<String>,
}

impl<T: Serialize + DeserializeOwned> RecordDirectory<T> {
    /// Reads the records of an earlier daemon.
    ///
    /// # Errors
    /// Returns the system's error if the directory or a record in it cannot be read now. What the records say is unknown
    /// then, so nothing may be decided.
    pub fn open(directory: PathBuf) -> io::Result<Self> {
        // A daemon that was killed while it wrote a record has left the beginning of it.
        for id in ids(&directory, UNFINISHED)? {
            let _ = fs::remove_file(directory.join(format!("{id}{UNFINISHED}")));
        }
        let mut records = BTreeMap::new();
        for id in ids(&directory, SUFFIX)? {
            if let Some(record) = record_file::try_read(&directory, &file_name(&id))? {
                records.insert(id, record);
            }
        }
        // The first reading moves damaged records out of the way.
        let damaged = ids(&directory, DAMAGED)?;
        let lost = damaged.into_iter().filter(|id| !records.contains_key(id));
        Ok(Self {
            lost: lost.collect(),
            directory,
            records,
        })
    }

    /// Returns all records.
    pub fn all(&self) -> &BTreeMap<String, T> {
        &self.records
    }

    /// Returns the record of this id.
    pub fn get(&self, id: &str) -> Option<&T> {
        self.records.get(id)
    }

    /// True if there was a record of this id, which is damaged.
    pub fn is_lost(&self, id: &str) -> bool {
        self.lost.contains(id) && !self.records.contains_key(id)
    }

    /// Takes a record whose difference from the one on the disk may be lost.
    pub fn keep(&mut self, id: &str, record: T) {
        self.records.insert(id.to_owned(), record);
    }

    /// Writes a record.
    ///
    /// # Errors
    /// Returns the system's error if the record cannot be written. The old one stays.
    pub fn put(&mut self, id: &str, record: T) -> io::Result<()> {
        record_file::write(&self.directory, &file_name(id), &record, true)?;
        self.records.insert(id.to_owned(), record);
        Ok(())
    }

    /// Removes a record. A record that is not there counts as removed.
    ///
    /// # Errors
    /// Returns the system's error if the file cannot be removed. The record stays.
    pub fn remove(&mut self, id: &str) -> io::Result<()> {
        match fs::remove_file(self.directory.join(file_name(id))) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.records.remove(id);
        Ok(())
    }
}

fn file_name(id: &str) -> String {
    format!("{id}{SUFFIX}")
}

/// Returns the names of the files with this ending, without it.
fn ids(directory: &Path, suffix: &str) -> io::Result<Vec<String>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().into_string();
        let id = name
            .ok()
            .and_then(|n| n.strip_suffix(suffix).map(str::to_owned));
        ids.extend(id);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_again_and_a_failed_write_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        fs::create_dir(&path).unwrap();
        let open = || RecordDirectory::<BTreeMap<String, u32>>::open(path.clone());
        let record = |n| BTreeMap::from([("n".to_owned(), n)]);
        let mut records = open().unwrap();
        records.put("a", record(1)).unwrap();
        records.put("b", record(2)).unwrap();
        records.put("a", record(3)).unwrap();
        records.remove("b").unwrap();
        records.remove("b").unwrap();
        let n = |records: &RecordDirectory<BTreeMap<String, u32>>| {
            records.get("a").map(|record| record["n"])
        };
        let unfinished = path.join("c.json.7.tmp");
        fs::write(&unfinished, "{").unwrap();
        let mut again = open().unwrap();
        assert_eq!((again.all().len(), n(&again)), (1, Some(3)));
        assert!(!unfinished.exists());
        fs::remove_dir_all(&path).unwrap();
        assert!(again.put("a", record(4)).is_err() && open().is_err());
        assert_eq!(n(&again), Some(3));
    }

    #[test]
    fn a_damaged_record_is_lost_until_it_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        fs::write(path.join("a.json"), "{").unwrap();
        let mut records = RecordDirectory::<BTreeMap<String, u32>>::open(path).unwrap();
        assert!(records.is_lost("a") && !records.is_lost("b"));
        records.put("a", BTreeMap::new()).unwrap();
        assert!(!records.is_lost("a"));
    }
}
