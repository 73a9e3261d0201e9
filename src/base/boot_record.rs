//! Records that count until the node is restarted, for a daemon that follows one that was killed.
//!
//! Invariants: a record of another boot is not read. A record is not synced. A record that cannot be written is removed,
//! because an older one would be taken for the newest.

use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::aside::remove_any;
use super::{clock, record_file};

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct OfBoot<T> {
    /// The id of the boot in which the record counts.
    boot_id: String,
    content: T,
}

/// Returns the record `dir/name` if it is of this boot. A damaged record counts for nothing.
pub fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> Option<T> {
    let record: OfBoot<T> = record_file::read(dir, name)?;
    (record.boot_id == clock::boot_id()).then_some(record.content)
}

/// Writes the record `dir/name`. Where the directory is gone, nobody needs the record.
///
/// # Errors
/// Returns the system's error if the file cannot be written. There is no record then.
pub fn write<T: Serialize>(dir: &Path, name: &str, content: &T) -> io::Result<()> {
    let boot_id = clock::boot_id();
    match record_file::write(dir, name, &OfBoot { boot_id, content }, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => {
            let _ = remove_any(&dir.join(name));
            Err(e)
        }
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_record_counts_in_its_boot_and_one_that_cannot_be_written_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let read = || read::<u32>(dir, "r.json");
        assert!(write(&dir.join("gone"), "r.json", &1).is_ok());
        write(dir, "r.json", &2).unwrap();
        assert_eq!(read(), Some(2));
        let (boot_id, content) = ("another boot".to_owned(), 3);
        record_file::write(dir, "r.json", &OfBoot { boot_id, content }, false).unwrap();
        assert_eq!(read(), None);
        write(dir, "r.json", &4).unwrap();
        fs::create_dir(dir.join(format!("r.json.{}.tmp", std::process::id()))).unwrap();
        assert!(write(dir, "r.json", &5).is_err());
        assert_eq!(read(), None);
    }
}
