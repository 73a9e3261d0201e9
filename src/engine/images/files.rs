//! The image store's directory, with the store's lock and files. Each file is read and replaced as a whole.
//!
//! Invariants: a new file is on the disk before it is renamed over the old one, so a reader without the lock sees the
//! old content or the new one, also after a power loss. Each file holds the digest of its content, so that a change by
//! another program is detected.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use nix::fcntl::{Flock, FlockArg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::ImageConfig;
use super::error::ImageError;
use super::{reference, stream};
use crate::base::aside::{is_no_file, lock_file, move_aside, rename_over};
use crate::base::clock::Time;
use crate::base::json;

/// Name of the file that maps image names to image ids.
pub const NAMES: &str = "names.json";

/// The content of the file [`NAMES`]: the image id for each name.
pub(super) type Names = BTreeMap<String, String>;

/// The record of an image: the file `images/<hex>.json` in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) config: ImageConfig,
    /// Digests of the uncompressed layers, bottom first.
    pub(super) diff_ids: Vec<String>,
    pub(super) created: Option<Time>,
    pub(super) size: u64,
    /// Digests of the manifests and indexes that led to the image, for references of the form `name@sha256:…`.
    pub(super) digests: BTreeSet<String>,
    /// The names of the image. If the file [`NAMES`] is lost, the store makes a new one from this field. None if the
    /// record was written by an older version, which did not store the names.
    #[serde(default)]
    pub(super) names: Option<BTreeSet<String>>,
    /// The names under which the image was pulled. The image's other names were given by hand.
    #[serde(default)]
    pub(super) pulled: BTreeSet<String>,
}

/// The record of a layer: the file `layers/<hex>/layer.json`.
#[derive(Serialize, Deserialize)]
pub(super) struct LayerRecord {
    pub(super) bytes: u64,
}

/// The form of every file of the store: the content and the digest of the content. A file without a digest comes from
/// an older version.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    sha256: String,
    content: Value,
}

/// The store's directory. This value holds no descriptor and no lock between calls.
#[derive(Clone, Debug)]
pub(super) struct StoreDir {
    path: PathBuf,
}

/// Returns a name that no other process or thread uses at the moment.
pub(super) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    format!(
        "{}-{}-{nanos}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

fn hex(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

/// The directory below `pulls/` in which one pull unpacks its layers. This directory is removed when this value is
/// dropped. If the process is killed, the next writer of the store removes the directory.
#[derive(Debug)]
pub(super) struct PullDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl PullDir {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PullDir {
    fn drop(&mut self) {
        // If a file cannot be removed, the next writer of the store removes it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

pub(super) fn private_dir(path: &Path) -> Result<(), ImageError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| ImageError::io(format!("create {}", path.display()), e))
}

pub(super) fn sync_dir(path: &Path) -> Result<(), ImageError> {
    File::open(path)
        .and_then(|d| d.sync_all())
        .map_err(|e| ImageError::io(format!("write {}", path.display()), e))
}

impl StoreDir {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the store's directory and its subdirectories.
    pub(super) fn create(&self) -> Result<(), ImageError> {
        if let Some(above) = self.path.parent() {
            fs::create_dir_all(above)
                .map_err(|e| ImageError::io(format!("create {}", above.display()), e))?;
        }
        ["", "images", "layers", "tmp", "pulls"]
            .iter()
            .try_for_each(|sub| private_dir(&self.path.join(sub)))
    }

    fn lock_file(&self) -> Result<File, ImageError> {
        let path = self.path.join("lock");
        let file = lock_file(&path);
        file.map_err(|e| ImageError::io(format!("open {}", path.display()), e))
    }

    /// Waits for the store's lock and takes it. Then removes the temporary files of writers that have died.
    pub(super) fn lock(&self) -> Result<Flock<File>, ImageError> {
        let lock = Flock::lock(self.lock_file()?, FlockArg::LockExclusive);
        let lock =
            lock.map_err(|(_, e)| ImageError::io(format!("lock {}", self.path.display()), e))?;
        self.clear_tmp();
        self.clear_pulls();
        Ok(lock)
    }

    /// Takes the store's lock as [`Self::lock`] does, but without waiting. Returns None while another process holds the
    /// lock, because this process may have files in `tmp/`.
    pub(super) fn try_lock(&self) -> Result<Option<Flock<File>>, ImageError> {
        let lock = Flock::lock(self.lock_file()?, FlockArg::LockExclusiveNonblock).ok();
        if lock.is_some() {
            self.clear_tmp();
            self.clear_pulls();
        }
        Ok(lock)
    }

    /// Removes everything in `tmp/`. The caller holds the store's lock. A file that cannot be removed stays until the
    /// next call, and only costs space.
    pub(super) fn clear_tmp(&self) {
        for entry in fs::read_dir(self.tmp()).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_dir = entry.file_type().is_ok_and(|t| t.is_dir());
            let removed = if is_dir {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            if let Err(e) = removed {
                log::warn!("cannot remove the leftover {}: {e}", path.display());
            }
        }
    }

    /// Makes a directory for the layers of a pull, with a lock of its own, because a pull takes too long to hold the
    /// lock of the store.
    pub(super) fn pull_dir(&self) -> Result<PullDir, ImageError> {
        let failed = |e: io::Error| ImageError::io(format!("write {}", self.pulls().display()), e);
        loop {
            let path = self.pulls().join(unique());
            private_dir(&path)?;
            let name = path.join("lock");
            let file = match File::create_new(&name) {
                Ok(file) => file,
                // Another process took the new directory for a leftover and removed it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(failed(e)),
            };
            let lock = Flock::lock(file, FlockArg::LockExclusive);
            let lock = lock.map_err(|(_, e)| failed(e.into()))?;
            if name.exists() {
                return Ok(PullDir { path, _lock: lock });
            }
        }
    }

    /// Removes the directories of pulls that belong to dead processes.
    fn clear_pulls(&self) {
        for entry in fs::read_dir(self.pulls()).into_iter().flatten().flatten() {
            let path = entry.path();
            let lock = File::open(path.join("lock"))
                .map(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock));
            if matches!(lock, Ok(Err(_))) {
                continue;
            }
            if let Err(e) = fs::remove_dir_all(&path) {
                log::warn!("cannot remove the leftover {}: {e}", path.display());
            }
        }
    }

    fn pulls(&self) -> PathBuf {
        self.path.join("pulls")
    }

    pub(super) fn tmp(&self) -> PathBuf {
        self.path.join("tmp")
    }

    pub(super) fn names_path(&self) -> PathBuf {
        self.path.join(NAMES)
    }

    pub(super) fn layer_dir(&self, diff_id: &str) -> PathBuf {
        self.path.join("layers").join(hex(diff_id))
    }

    /// Tells whether the store has the unpacked files of a layer.
    pub(super) fn has_layer(&self, diff_id: &str) -> bool {
        self.layer_dir(diff_id).join("fs").is_dir()
    }

    /// Returns the size in bytes of a layer's files. If the recorded size is lost, the sizes of the files are added up
    /// again.
    pub(super) fn layer_bytes(&self, diff_id: &str) -> Result<u64, ImageError> {
        let dir = self.layer_dir(diff_id);
        match self.read_json::<LayerRecord>(&dir.join("layer.json")) {
            Ok(Some(record)) => return Ok(record.bytes),
            Ok(None) | Err(ImageError::Corrupt { .. }) => {}
            Err(e) => return Err(e),
        }
        let bytes = size_of_files(&dir.join("fs"))
            .map_err(|e| ImageError::io(format!("read {}", dir.display()), e))?;
        self.write_json(&dir.join("layer.json"), &LayerRecord { bytes })?;
        Ok(bytes)
    }

    pub(super) fn record_path(&self, id: &str) -> PathBuf {
        self.path.join("images").join(format!("{}.json", hex(id)))
    }

    pub(super) fn record(&self, id: &str) -> Result<Option<Record>, ImageError> {
        let path = self.record_path(id);
        match self.read_json::<Record>(&path)? {
            Some(record) if record.id != id => Err(damaged_file(&path, &Damage::OtherImage)),
            other => Ok(other),
        }
    }

    pub(super) fn write_record(&self, record: &Record) -> Result<(), ImageError> {
        self.write_json(&self.record_path(&record.id), record)
    }

    pub(super) fn ids(&self) -> Result<Vec<String>, ImageError> {
        let files = self.entries("images")?;
        Ok(files
            .iter()
            .filter_map(|f| f.strip_suffix(".json"))
            .filter(|h| reference::is_hex64(h))
            .map(|h| format!("sha256:{h}"))
            .collect())
    }

    /// Returns the names in the subdirectory `sub` of the store, sorted.
    pub(super) fn entries(&self, sub: &str) -> Result<Vec<String>, ImageError> {
        let dir = self.path.join(sub);
        let list = fs::read_dir(&dir).and_then(|d| {
            d.map(|e| e.map(|e| e.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<Vec<_>>>()
        });
        let mut list = list.map_err(|e| ImageError::io(format!("read {}", dir.display()), e))?;
        list.sort();
        Ok(list)
    }

    /// Reads the file at `path`. Returns None if the file does not exist. Returns [`ImageError::Corrupt`] if podprobe
    /// did not write the file's content.
    pub(super) fn read_json<T: DeserializeOwned>(
        &self,
        path: &Path,
    ) -> Result<Option<T>, ImageError> {
        match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) if is_no_file(&e) => Err(damaged_file(path, &Damage::NoFile(e))),
            Err(e) => Err(ImageError::io(format!("read {}", path.display()), e)),
            Ok(bytes) => unseal(&bytes)
                .map(Some)
                .map_err(|why| damaged_file(path, &why)),
        }
    }

    /// Replaces the file at `path` as a whole: after a power loss the file has the old content or the new one. The
    /// caller holds the store's lock.
    pub(super) fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<(), ImageError> {
        let new = self.tmp().join(unique());
        write_file(&new, value)?;
        rename_over(&new, path)
            .map_err(|e| ImageError::io(format!("write {}", path.display()), e))?;
        sync_dir(path.parent().unwrap_or(&self.path))
    }

    /// Renames a damaged file, so that a person can look at it. Returns the file's new name.
    pub(super) fn move_aside(&self, path: &Path) -> Result<PathBuf, ImageError> {
        move_aside(path, ".damaged")
            .map_err(|e| ImageError::io(format!("move {} aside", path.display()), e))
    }
}

/// The damage that was found in a file of the store.
#[derive(Debug, thiserror::Error)]
enum Damage {
    /// The file is not JSON, or does not have the form that the store writes.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    /// Another program has changed the content.
    #[error("its content does not have its digest")]
    Digest,
    /// Something else than a file has its name.
    #[error(transparent)]
    NoFile(io::Error),
    /// The file of an image's record has the name of another image.
    #[error("it is of another image")]
    OtherImage,
}

fn damaged_file(path: &Path, why: &Damage) -> ImageError {
    let why = format!("it is damaged ({why}); load its images again");
    ImageError::corrupt(path.display().to_string(), why)
}

pub(super) fn write_file(path: &Path, value: &impl Serialize) -> Result<(), ImageError> {
    let write = || -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(&seal(value)?)?;
        file.sync_all()
    };
    write().map_err(|e| {
        let _ = fs::remove_file(path);
        ImageError::io(format!("write {}", path.display()), e)
    })
}

fn seal(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let content = serde_json::to_value(value)?;
    let sha256 = stream::sha256(content.to_string().as_bytes());
    serde_json::to_vec_pretty(&Sealed { sha256, content })
}

fn unseal<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Damage> {
    let value: Value = serde_json::from_slice(bytes)?;
    let content = if value.get("sha256").is_some() {
        let sealed: Sealed = json::from_value(&value)?;
        if stream::sha256(sealed.content.to_string().as_bytes()) != sealed.sha256 {
            return Err(Damage::Digest);
        }
        sealed.content
    } else {
        value
    };
    Ok(json::from_value(&content)?)
}

/// Returns the size in bytes of the regular files below `dir`. A file with several hard links counts once.
fn size_of_files(dir: &Path) -> io::Result<u64> {
    let (mut bytes, mut seen, mut todo) = (0, BTreeSet::new(), vec![dir.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.is_dir() {
                todo.push(entry.path());
            } else if meta.is_file() && (meta.nlink() == 1 || seen.insert(meta.ino())) {
                bytes += meta.len();
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_keeps_its_directory_until_it_ends_and_one_that_died_loses_it() {
        let temp = tempfile::tempdir().unwrap();
        let store = StoreDir::new(temp.path().to_owned());
        store.create().unwrap();
        let dead = temp.path().join("pulls/dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("lock"), "").unwrap();
        fs::create_dir(temp.path().join("pulls/begun")).unwrap();
        let running = store.pull_dir().unwrap();
        drop(store.lock().unwrap());
        assert_eq!(store.entries("pulls").unwrap().len(), 1);
        assert!(running.path().is_dir());
        drop(running);
        assert!(store.entries("pulls").unwrap().is_empty());
    }

    #[test]
    fn a_file_tells_when_something_else_changed_it() {
        let names = Names::from([("a:1".to_owned(), "sha256:x".to_owned())]);
        let sealed = String::from_utf8(seal(&names).unwrap()).unwrap();
        let read = |text: &str| unseal::<Names>(text.as_bytes());
        assert_eq!(read(&sealed).unwrap(), names);
        assert_eq!(
            read(r#"{"a:1": "sha256:x"}"#).unwrap(),
            names,
            "an older version's"
        );
        for damaged in [
            sealed.replace("a:1", "a:2"),
            sealed[..sealed.len() - 2].to_owned(),
            sealed.replace("content", "contend"),
            String::new(),
            "\0\0\0\0".to_owned(),
        ] {
            assert!(read(&damaged).is_err(), "{damaged}");
        }
    }
}
