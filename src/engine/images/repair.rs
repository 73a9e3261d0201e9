//! Repairs names and records that another program damaged or removed. A damaged file is renamed. Lost names are made
//! again from the records, and lost names in records from the file of names. Each repair is logged.
//!
//! Invariants: a record holds the names of its image, so that the names are not lost with the file of names. A file
//! that could not be read is not repaired, because the next read may succeed.

use std::collections::BTreeSet;
use std::fs;
use std::time::SystemTime;

use super::error::ImageError;
use super::files::{Names, Record, StoreDir};

/// Returns the names in the store for a reader, which does not hold the store's lock. Writes nothing.
pub(super) fn read_names(dir: &StoreDir) -> Result<Names, ImageError> {
    match names_file(dir)? {
        NamesFile::Good(names) => Ok(names),
        NamesFile::Lost(_) => {
            let records = dir.ids()?.into_iter();
            let records = records.filter_map(|id| dir.record(&id).ok().flatten());
            Ok(names_of(dir, &records.collect::<Vec<_>>()))
        }
    }
}

/// Repairs damaged files and returns the names. The caller holds the store's lock.
pub(super) fn repair(dir: &StoreDir) -> Result<Names, ImageError> {
    let records = repair_records(dir)?;
    match names_file(dir)? {
        NamesFile::Good(names) => {
            if is_sealed(dir)? {
                say_names(dir, &names, records)?;
            } else if !names.is_empty() || !records.is_empty() {
                adopt(dir, &names, records)?;
            }
            Ok(names)
        }
        NamesFile::Lost(_) if records.is_empty() && !dir.names_path().exists() => Ok(Names::new()),
        NamesFile::Lost(why) => {
            let names = names_of(dir, &records);
            let path = dir.names_path();
            let aside = match path.exists() {
                true => format!(", the old file is {}", dir.move_aside(&path)?.display()),
                false => String::new(),
            };
            log::warn!(
                "the file of image names {} {why}: made again from the records of the images ({} names){aside}",
                path.display(),
                names.len(),
            );
            dir.write_json(&path, &names)?;
            say_names(dir, &names, records)?;
            Ok(names)
        }
    }
}

/// Takes over the names of an older version, which kept names only in the file of names. Writes these names into the
/// records too. An image that has no name in this file gets a record with an empty list of names.
fn adopt(dir: &StoreDir, names: &Names, mut records: Vec<Record>) -> Result<(), ImageError> {
    for record in records.iter_mut().filter(|r| r.names.is_none()) {
        record.names = Some(names_for(names, &record.id));
        dir.write_record(record)?;
    }
    say_names(dir, names, records)?;
    dir.write_json(&dir.names_path(), names)
}

/// Replaces the file of names, and the names in each record. The caller holds the store's lock.
pub(super) fn write_names(dir: &StoreDir, names: &Names) -> Result<(), ImageError> {
    dir.write_json(&dir.names_path(), names)?;
    let records = dir.ids()?.into_iter();
    let records = records
        .filter_map(|id| dir.record(&id).transpose())
        .collect::<Result<_, _>>()?;
    say_names(dir, names, records)
}

/// Returns the names of an image.
pub(super) fn names_for(names: &Names, id: &str) -> BTreeSet<String> {
    let of_image = names.iter().filter(|(_, of)| *of == id);
    of_image.map(|(name, _)| name.clone()).collect()
}

/// The content or the damage of the file of names.
enum NamesFile {
    Good(Names),
    /// The file is missing or damaged. The text says which, and why.
    Lost(String),
}

/// Reads the file of names. A missing file counts as lost, and so does an empty list that podprobe did not write.
fn names_file(dir: &StoreDir) -> Result<NamesFile, ImageError> {
    match dir.read_json::<Names>(&dir.names_path()) {
        Ok(Some(names)) if !names.is_empty() || is_sealed(dir)? => Ok(NamesFile::Good(names)),
        Ok(Some(_)) => Ok(NamesFile::Lost("was emptied".into())),
        Ok(None) => Ok(NamesFile::Lost("is missing".into())),
        Err(ImageError::Corrupt { why, .. }) => Ok(NamesFile::Lost(format!(
            "cannot be used: {}",
            without_advice(&why)
        ))),
        Err(e) => Err(e),
    }
}

/// Returns the text of an error without the advice at its end, which is not needed because the repair follows.
fn without_advice(why: &str) -> &str {
    why.split(';').next().unwrap_or_default()
}

/// Tells whether the file of names holds the digest of its content. A file of an older version has no digest. A `{}`
/// that another program wrote has none either.
fn is_sealed(dir: &StoreDir) -> Result<bool, ImageError> {
    let path = dir.names_path();
    let text =
        fs::read(&path).map_err(|e| ImageError::io(format!("read {}", path.display()), e))?;
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    Ok(value.get("sha256").is_some())
}

/// Returns all readable records. Damaged records are renamed.
fn repair_records(dir: &StoreDir) -> Result<Vec<Record>, ImageError> {
    let mut records = Vec::new();
    for id in dir.ids()? {
        match dir.record(&id) {
            Ok(record) => records.extend(record),
            Err(ImageError::Corrupt { why, .. }) => {
                let aside = dir.move_aside(&dir.record_path(&id))?;
                log::warn!(
                    "the record of image {id} cannot be used: {}; it is now {}, load the image again",
                    without_advice(&why),
                    aside.display()
                );
            }
            Err(e) => return Err(e),
        }
    }
    Ok(records)
}

/// Returns the names in the records. If two records have the same name, which a power loss can cause, the name goes to
/// the image of the newer record.
fn names_of(dir: &StoreDir, records: &[Record]) -> Names {
    let written = |record: &&Record| {
        let meta = fs::metadata(dir.record_path(&record.id));
        meta.and_then(|m| m.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let mut by_age: Vec<&Record> = records.iter().collect();
    by_age.sort_by_key(written);
    let mut names = Names::new();
    for record in by_age {
        let own = record.names.iter().flatten();
        names.extend(own.map(|name| (name.clone(), record.id.clone())));
    }
    names
}

/// Writes the names into the records that have other names. A record of an older version has no list of names. If its
/// image has no name, such a record stays as it is, because the name may have been lost. Such an image is removed only
/// if a person asks for it.
fn say_names(dir: &StoreDir, names: &Names, records: Vec<Record>) -> Result<(), ImageError> {
    for mut record in records {
        let own = names_for(names, &record.id);
        let said = record.names.is_none() && own.is_empty() || record.names.as_ref() == Some(&own);
        if !said {
            record.names = Some(own);
            dir.write_record(&record)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::images::config::ImageConfig;

    fn id(n: u8) -> String {
        format!("sha256:{}", format!("{n:02x}").repeat(32))
    }

    fn record(n: u8, names: Option<&[&str]>) -> Record {
        Record {
            id: id(n),
            config: ImageConfig::default(),
            diff_ids: Vec::new(),
            created: None,
            size: 0,
            digests: BTreeSet::new(),
            names: names.map(|names| names.iter().map(|n| (*n).to_owned()).collect()),
            pulled: BTreeSet::new(),
        }
    }

    fn store(records: &[Record]) -> (tempfile::TempDir, StoreDir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = StoreDir::new(temp.path().to_owned());
        dir.create().unwrap();
        records.iter().for_each(|r| dir.write_record(r).unwrap());
        (temp, dir)
    }

    fn names(pairs: &[(&str, u8)]) -> Names {
        pairs
            .iter()
            .map(|(n, i)| ((*n).to_owned(), id(*i)))
            .collect()
    }

    /// Checks the repair of the file of names. `content` is written into this file; None means that the file is
    /// missing.
    #[track_caller]
    fn check(content: Option<&str>) {
        let (_temp, dir) = store(&[record(1, Some(&["a:1", "b:1"])), record(2, Some(&[]))]);
        let expected = names(&[("a:1", 1), ("b:1", 1)]);
        if let Some(content) = content {
            fs::write(dir.names_path(), content).unwrap();
        }
        assert_eq!(
            read_names(&dir).unwrap(),
            expected,
            "a reader needs no repair"
        );
        assert_eq!(repair(&dir).unwrap(), expected);
        assert!(matches!(names_file(&dir), Ok(NamesFile::Good(n)) if n == expected));
        let aside = dir.path().join("names.json.damaged");
        assert_eq!(fs::read_to_string(aside).ok().as_deref(), content);
    }

    #[test]
    fn lost_names_come_from_the_records() {
        check(None);
        check(Some("{}"));
        check(Some("{\"a:1\": "));
        check(Some("\0\0\0\0"));
        check(Some(r#"{"sha256": "sha256:0", "content": {}}"#));
    }

    #[test]
    fn names_that_are_meant_to_be_empty_stay_empty() {
        let (_temp, dir) = store(&[record(1, Some(&["a:1"]))]);
        write_names(&dir, &Names::new()).unwrap();
        assert_eq!(repair(&dir).unwrap(), Names::new());
        assert_eq!(dir.record(&id(1)).unwrap(), Some(record(1, Some(&[]))));
        let (_temp, empty) = store(&[]);
        assert_eq!(repair(&empty).unwrap(), Names::new());
        assert!(!empty.names_path().exists());
    }

    #[test]
    fn a_name_in_two_records_belongs_to_the_one_written_last() {
        for (old, new) in [(1, 2), (2, 1)] {
            let (_temp, dir) = store(&[record(old, Some(&["a:1"])), record(new, Some(&["a:1"]))]);
            let file = fs::File::options()
                .write(true)
                .open(dir.record_path(&id(old)));
            file.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            assert_eq!(repair(&dir).unwrap(), names(&[("a:1", new)]));
            assert_eq!(
                dir.record(&id(old)).unwrap().unwrap().names,
                Some(BTreeSet::new())
            );
        }
    }

    #[test]
    fn a_damaged_record_is_put_aside() {
        let (_temp, dir) = store(&[record(1, Some(&["a:1"])), record(2, Some(&["b:1"]))]);
        write_names(&dir, &names(&[("a:1", 1), ("b:1", 2)])).unwrap();
        fs::write(dir.record_path(&id(1)), "{").unwrap();
        repair(&dir).unwrap();
        assert_eq!(dir.ids().unwrap(), [id(2)]);
        let mut aside = dir.record_path(&id(1)).into_os_string();
        aside.push(".damaged");
        assert_eq!(fs::read_to_string(aside).unwrap(), "{");
    }

    #[test]
    fn a_directory_in_place_of_a_file_is_put_aside_each_time() {
        let (_temp, dir) = store(&[record(1, Some(&["a:1"])), record(2, Some(&["b:1"]))]);
        for _ in 0..2 {
            write_names(&dir, &names(&[("a:1", 1), ("b:1", 2)])).unwrap();
            fs::remove_file(dir.names_path()).unwrap();
            fs::create_dir_all(dir.names_path().join("below")).unwrap();
            assert_eq!(read_names(&dir).unwrap().len(), 2);
            assert_eq!(repair(&dir).unwrap(), names(&[("a:1", 1), ("b:1", 2)]));
            assert!(dir.path().join("names.json.damaged").is_dir());
        }
        fs::remove_file(dir.record_path(&id(1))).unwrap();
        fs::create_dir_all(dir.record_path(&id(1)).join("below")).unwrap();
        repair(&dir).unwrap();
        assert_eq!(dir.ids().unwrap(), [id(2)]);
    }

    #[test]
    fn the_names_of_an_older_version_are_taken_over() {
        let (_temp, dir) = store(&[record(1, None), record(2, None)]);
        let plain = serde_json::to_string(&names(&[("a:1", 1)])).unwrap();
        fs::write(dir.names_path(), plain).unwrap();
        assert_eq!(repair(&dir).unwrap(), names(&[("a:1", 1)]));
        assert_eq!(dir.record(&id(1)).unwrap(), Some(record(1, Some(&["a:1"]))));
        assert_eq!(dir.record(&id(2)).unwrap(), Some(record(2, Some(&[]))));
        assert!(is_sealed(&dir).unwrap());
    }

    #[test]
    fn an_image_of_an_older_version_whose_name_was_lost_is_not_taken_for_one_without() {
        let (_temp, dir) = store(&[record(1, None)]);
        for _ in 0..2 {
            assert_eq!(repair(&dir).unwrap(), Names::new());
            assert_eq!(dir.record(&id(1)).unwrap(), Some(record(1, None)));
        }
    }
}
