//! The store's files: lock, records, names, each read and replaced as a whole.
//!
//! Invariant: a file is replaced by a rename of one that is on the disk already, so a reader without the lock and a
//! power loss see the old content or the new one.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ImageError;
use super::reference;
use super::store::{ImageStore, Record};

/// The file that maps names to image ids.
pub const NAMES: &str = "names.json";

/// Its content.
pub(super) type Names = BTreeMap<String, String>;

/// A name no other process or thread uses at the moment.
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

pub(super) fn private_dir(path: &Path) -> Result<(), ImageError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| ImageError::io(format!("create {}", path.display()), e))
}

pub(super) fn sync_dir(path: &Path) -> Result<(), ImageError> {
    File::open(path)
        .and_then(|d| d.sync_all())
        .map_err(|e| ImageError::io(format!("write {}", path.display()), e))
}

impl ImageStore {
    pub(super) fn lock_file(&self) -> Result<File, ImageError> {
        let path = self.dir().join("lock");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        file.map_err(|e| ImageError::io(format!("open {}", path.display()), e))
    }

    pub(super) fn lock(&self) -> Result<Flock<File>, ImageError> {
        let lock = Flock::lock(self.lock_file()?, FlockArg::LockExclusive);
        let lock =
            lock.map_err(|(_, e)| ImageError::io(format!("lock {}", self.dir().display()), e))?;
        self.clear_tmp();
        Ok(lock)
    }

    /// Only under the lock. What cannot be removed stays for the next time: it costs space, nothing else.
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

    pub(super) fn tmp(&self) -> PathBuf {
        self.dir().join("tmp")
    }

    pub(super) fn layer_dir(&self, diff_id: &str) -> PathBuf {
        self.dir().join("layers").join(hex(diff_id))
    }

    pub(super) fn record_path(&self, id: &str) -> PathBuf {
        self.dir().join("images").join(format!("{}.json", hex(id)))
    }

    pub(super) fn record(&self, id: &str) -> Result<Option<Record>, ImageError> {
        self.read_json(&self.record_path(id))
    }

    pub(super) fn names(&self) -> Result<Names, ImageError> {
        Ok(self.read_json(&self.dir().join(NAMES))?.unwrap_or_default())
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

    pub(super) fn entries(&self, sub: &str) -> Result<Vec<String>, ImageError> {
        let dir = self.dir().join(sub);
        let list = fs::read_dir(&dir).and_then(|d| {
            d.map(|e| e.map(|e| e.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<Vec<_>>>()
        });
        let mut list = list.map_err(|e| ImageError::io(format!("read {}", dir.display()), e))?;
        list.sort();
        Ok(list)
    }

    pub(super) fn read_json<T: DeserializeOwned>(
        &self,
        path: &Path,
    ) -> Result<Option<T>, ImageError> {
        match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(ImageError::io(format!("read {}", path.display()), e)),
            Ok(bytes) => {
                let parsed = serde_json::from_slice(&bytes);
                parsed.map(Some).map_err(|e| {
                    ImageError::corrupt(
                        path.display().to_string(),
                        format!("{e}; load its images again"),
                    )
                })
            }
        }
    }

    /// Replaces a file as a whole: after a power loss it has the old content or the new one. Only under the lock.
    pub(super) fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<(), ImageError> {
        let new = self.tmp().join(unique());
        self.write_file(&new, value)?;
        fs::rename(&new, path)
            .map_err(|e| ImageError::io(format!("write {}", path.display()), e))?;
        sync_dir(path.parent().unwrap_or(self.dir()))
    }

    pub(super) fn write_file(&self, path: &Path, value: &impl Serialize) -> Result<(), ImageError> {
        let write = || -> io::Result<()> {
            let mut file = File::create(path)?;
            file.write_all(&serde_json::to_vec_pretty(value)?)?;
            file.sync_all()
        };
        write().map_err(|e| {
            let _ = fs::remove_file(path);
            ImageError::io(format!("write {}", path.display()), e)
        })
    }

    pub(super) fn locked<T>(
        &self,
        work: impl FnOnce() -> Result<T, ImageError>,
    ) -> Result<T, ImageError> {
        let _lock = self.lock()?;
        work()
    }
}
