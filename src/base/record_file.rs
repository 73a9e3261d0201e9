//! Small records as JSON files, which a newer or older version of podprobe can also read.
//!
//! Invariants: a record is written under a temporary name and renamed, so a reader sees the whole record or nothing.
//! The record's field `version` is the number of its form. A reader accepts a record of any version. The reader ignores
//! unknown fields, and gives missing fields their default. A field that the reader cannot decode also gets its default,
//! and is named in the log. A field has no default only if the record is useless without it. The last field, `crc32`, is
//! the checksum of the bytes before it: a record with another checksum is damaged, and one without any is read as it is.
//! A file that is not a record is renamed once, out of the way. Code that does not depend on the type of the record is in
//! functions of its own: the program would otherwise have it once for each type.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::aside::{CORRUPT, is_no_file, move_aside, rename_over};
use super::json::{self, Step, TypeError};

/// The version that written records have. The number grows when a field changes its meaning, not when a field is added.
pub const VERSION: u32 = 1;

/// A record together with its version, as it is written.
#[derive(Serialize)]
struct Written<'a, T> {
    version: u32,
    #[serde(flatten)]
    record: &'a T,
}

/// Beginning of the last field of a record. The checksum follows in eight hexadecimal digits, and the end of the object.
const CHECKSUM: &[u8] = b",\"crc32\":\"";
const DIGITS: usize = 8;
const END: &[u8] = b"\"}";

/// Encodes a record as bytes.
///
/// # Errors
/// Returns an [`io::Error`] if the record is not a JSON object.
pub fn to_bytes<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(&Written {
        version: VERSION,
        record,
    })?;
    Ok(with_checksum(bytes))
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    // The end of the object comes after the checksum.
    bytes.pop();
    let digits = checksum(&bytes);
    bytes.extend_from_slice(CHECKSUM);
    bytes.extend_from_slice(digits.as_bytes());
    bytes.extend_from_slice(END);
    bytes
}

fn checksum(bytes: &[u8]) -> String {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    format!("{:08x}", crc.sum())
}

/// Returns the JSON value of a record's bytes.
fn value_of(bytes: &[u8]) -> io::Result<Value> {
    let before = bytes
        .len()
        .saturating_sub(CHECKSUM.len() + DIGITS + END.len());
    let (content, last) = bytes.split_at(before);
    let digits = last
        .strip_prefix(CHECKSUM)
        .and_then(|l| l.strip_suffix(END));
    if digits.is_some_and(|digits| digits != checksum(content).as_bytes()) {
        return Err(io::Error::other("its content does not have its checksum"));
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// Decodes a record of any version from bytes. The parameter `what` names the bytes in the log.
///
/// # Errors
/// Returns an [`io::Error`] if the bytes are not a JSON object, or lack a field that has no default.
pub fn parse<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> io::Result<T> {
    from_value(what, value_of(bytes)?)
}

fn from_value<T: DeserializeOwned>(what: &str, mut value: Value) -> io::Result<T> {
    let mut unread = Vec::new();
    let record = loop {
        match json::read(&value) {
            Ok((record, _)) => break record,
            Err(e) => do_without(&mut value, e, &mut unread)?,
        }
    };
    tell_of(what, &value, &unread);
    Ok(record)
}

/// Removes the field that cannot be decoded, and notes it in `unread`.
fn do_without(value: &mut Value, error: TypeError, unread: &mut Vec<String>) -> io::Result<()> {
    // The error of a missing field has no path: the record is useless without it.
    let Some((Step::Key(name), fields)) = error.path.first().zip(value.as_object_mut()) else {
        return Err(serde_json::Error::from(error).into());
    };
    fields.shift_remove(name);
    unread.push(format!("{name} ({})", error.cause));
    Ok(())
}

fn tell_of(what: &str, value: &Value, unread: &[String]) {
    if !unread.is_empty() {
        let version = value["version"].as_u64().unwrap_or_default();
        log::warn!(
            "{what} has version {version}, and this podprobe knows version {VERSION}: it does without {}",
            unread.join(", ")
        );
    }
}

/// Writes the record to `dir/name`, in place of an older one. With `durable`, the record is on disk when the function
/// returns, so the record survives a power cut.
///
/// # Errors
/// Returns the system's error if the file cannot be written. The old record then stays.
pub fn write<T: Serialize>(dir: &Path, name: &str, record: &T, durable: bool) -> io::Result<()> {
    write_bytes(dir, name, &to_bytes(record)?, durable)
}

fn write_bytes(dir: &Path, name: &str, bytes: &[u8], durable: bool) -> io::Result<()> {
    // The temporary name contains the process id, because a shim and the daemon may write the record at the same time.
    let tmp = dir.join(format!("{name}.{}.tmp", std::process::id()));
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        // A record may hold what only root may know.
        .mode(0o600)
        .open(&tmp)?;
    file.write_all(bytes)?;
    if durable {
        file.sync_all()?;
    }
    drop(file);
    rename_over(&tmp, &dir.join(name))?;
    if durable {
        File::open(dir)?.sync_all()
    } else {
        Ok(())
    }
}

/// Reads a record like [`try_read`]. If the file cannot be read right now, logs the error and returns None.
pub fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> Option<T> {
    try_read(dir, name).unwrap_or_else(|e| {
        log::warn!("{e}");
        None
    })
}

/// Reads the record `dir/name`. Returns None if the record is missing. A file that is not a record is renamed to
/// `<name>.corrupt`, and the result is None too. A directory or socket of that name is treated in the same way, because
/// damage to one record must not hide the others.
///
/// # Errors
/// Returns the system's error if the file exists but cannot be read right now (no descriptors left, a bad disk, not
/// permitted). The content of the record is then unknown.
pub fn try_read<T: DeserializeOwned>(dir: &Path, name: &str) -> io::Result<Option<T>> {
    let path = dir.join(name);
    let Some(value) = read_value(&path)? else {
        return Ok(None);
    };
    Ok(from_value(&path.display().to_string(), value)
        .inspect_err(|e| set_aside(&path, e))
        .ok())
}

/// Reads the JSON in a file as [`try_read`] does.
fn read_value(path: &Path) -> io::Result<Option<Value>> {
    let damage = match fs::read(path) {
        Ok(bytes) => match value_of(&bytes) {
            Ok(value) => return Ok(Some(value)),
            Err(e) => e,
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if is_no_file(&e) => e,
        Err(e) => {
            let text = format!("cannot read {}: {e}", path.display());
            return Err(io::Error::new(e.kind(), text));
        }
    };
    set_aside(path, &damage);
    Ok(None)
}

/// Renames a file that is not a record to `<name>.corrupt`, so that a person can look at it.
fn set_aside(path: &Path, damage: &io::Error) {
    match move_aside(path, CORRUPT) {
        Ok(aside) => log::error!(
            "cannot use {}: {damage}; it is kept as {}",
            path.display(),
            aside.display()
        ),
        Err(e) => log::error!(
            "cannot use {}: {damage}; it cannot be moved aside: {e}",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    const NAME: &str = "state.json";

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        id: String,
        #[serde(default)]
        count: u32,
        #[serde(default)]
        words: Vec<String>,
    }

    fn sample(count: u32) -> Sample {
        Sample {
            id: "a".into(),
            count,
            words: vec!["x\ny".into()],
        }
    }

    #[track_caller]
    fn check(json: &str, expected: Option<Sample>) {
        assert_eq!(parse("a record", json.as_bytes()).ok(), expected, "{json}");
    }

    #[test]
    fn a_record_of_another_version_is_read_as_far_as_it_is_understood() {
        let whole =
            r#"{"version": 9, "id": "a", "count": 2, "words": ["x\ny"], "new": {"a": [1]}}"#;
        check(whole, Some(sample(2)));
        let without = |count| {
            Some(Sample {
                words: Vec::new(),
                ..sample(count)
            })
        };
        check(r#"{"id": "a"}"#, without(0));
        let two = r#"{"a": "\n", "words": {"by": "name"}, "id": "a", "count": -7, "z": 1, "version": "two"}"#;
        check(two, without(0));
        check(r#"{"words": 1, "count": 3, "id": "a"}"#, without(3));
        // A record without its field `id` is not a record.
        check(r#"{"count": 1}"#, None);
        check(r#"{"id": 7, "count": 1}"#, None);
        check("[]", None);
        check("", None);
        check(r#"{"id": "a", "count"#, None);
    }

    #[test]
    fn a_record_is_replaced_whole_has_its_version_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), NAME, &sample(1), true).unwrap();
        write(dir.path(), NAME, &sample(3), false).unwrap();
        assert_eq!(read(dir.path(), NAME), Some(sample(3)));
        let text = fs::read_to_string(dir.path().join(NAME)).unwrap();
        assert!(text.starts_with(r#"{"version":1,"id":"a""#), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// Bits of a flash card flip. In a process id or an address that would be another record.
    #[test]
    fn no_record_with_another_bit_is_taken_for_another_record() {
        let bytes = to_bytes(&sample(21)).unwrap();
        let whole: Sample = parse("a record", &bytes).unwrap();
        assert_eq!(whole, sample(21));
        for (place, bit) in (0..bytes.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << bit;
            let read = parse::<Sample>("a record", &flipped).ok();
            assert!(
                read.is_none() || read == Some(sample(21)),
                "byte {place}, bit {bit}: {read:?}"
            );
        }
        for length in 0..bytes.len() {
            assert!(
                parse::<Sample>("a record", &bytes[..length]).is_err(),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn a_torn_record_is_moved_aside_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), b"{\"id\": 1, \"cou").unwrap();
        assert_eq!(read::<Sample>(dir.path(), NAME), None);
        assert!(dir.path().join("state.json.corrupt").exists());
        assert!(!dir.path().join(NAME).exists());
        assert_eq!(read::<Sample>(dir.path(), NAME), None);
    }

    #[test]
    fn a_directory_in_place_of_a_record_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(NAME)).unwrap();
        assert_eq!(try_read::<Sample>(dir.path(), NAME).unwrap(), None);
        assert!(dir.path().join("state.json.corrupt").is_dir());
    }
}
