//! Loads the archives that are dropped into a directory. Each archive is loaded once, and again when it changes.
//!
//! Invariants: a bad file does not keep other files from being loaded, and is read only once while it is unchanged. An
//! image that was removed is not loaded again while its file is unchanged.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::archive::{Naming, stem};
use super::error::ImageError;
use super::reference::Reference;
use super::store::{ImageStore, LoadedImage};

/// Result of one look at the directory of dropped archives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropReport {
    /// Images that this look has loaded, each with the path of its archive.
    pub loaded: Vec<(PathBuf, LoadedImage)>,
    /// Files that could not be loaded, at this look or at an earlier one, with the cause. If the system failed (a full
    /// disk), the next look tries the file again. A bad file is tried again when it changes.
    pub problems: Vec<(PathBuf, String)>,
}

/// The state of a file when podprobe last tried to load it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileState {
    size: u64,
    mtime: (i64, i64),
    problem: Option<String>,
}

const ENDINGS: [&str; 4] = [".tar", ".tar.gz", ".tgz", ".tar.zst"];

impl ImageStore {
    /// Loads the archives in `dir` that are new or have changed.
    pub fn load_dropped(&self, dir: &Path) -> Result<DropReport, ImageError> {
        self.load_dropped_except(dir, &|_| false)
    }

    /// Loads the archives in `dir` that are new or have changed, except those for which `later` returns true. A later
    /// look loads the excepted archives.
    pub fn load_dropped_except(
        &self,
        dir: &Path,
        later: &dyn Fn(&Path) -> bool,
    ) -> Result<DropReport, ImageError> {
        load(self, dir, later)
    }
}

/// Loads the archives in `dir` that are new or have changed, except those for which `later` returns true. A missing
/// directory counts as empty.
fn load(
    store: &ImageStore,
    dir: &Path,
    later: &dyn Fn(&Path) -> bool,
) -> Result<DropReport, ImageError> {
    let memory = store.dir().join("dropped.json");
    // If the file `dropped.json` is lost or damaged, every archive is loaded again, which does not change existing
    // images.
    let before: BTreeMap<PathBuf, FileState> = store
        .files()
        .read_json(&memory)
        .ok()
        .flatten()
        .unwrap_or_default();
    let mut after: BTreeMap<PathBuf, FileState> = before
        .iter()
        .filter(|(p, _)| p.parent() != Some(dir))
        .map(|(p, s)| (p.clone(), s.clone()))
        .collect();
    let mut report = DropReport::default();
    for (path, mut now) in
        archives(dir).map_err(|e| ImageError::io(format!("read {}", dir.display()), e))?
    {
        match before.get(&path) {
            Some(tried) if (tried.size, tried.mtime) == (now.size, now.mtime) => {
                now.problem = tried.problem.clone()
            }
            _ if later(&path) => continue,
            _ => match load_one(store, &path) {
                Ok(images) => report
                    .loaded
                    .extend(images.into_iter().map(|i| (path.clone(), i))),
                Err(e @ (ImageError::Io { .. } | ImageError::NoSpace { .. })) => {
                    report.problems.push((path, e.to_string()));
                    continue;
                }
                Err(e) => now.problem = Some(e.to_string()),
            },
        }
        report
            .problems
            .extend(now.problem.clone().map(|p| (path.clone(), p)));
        after.insert(path, now);
    }
    if after != before
        && let Err(e) = remember(store, &memory, &after)
    {
        // The images are in the store. The next look loads their files once more, because this look could not be
        // recorded. Loading an image again changes nothing.
        report.problems.push((memory, e.to_string()));
    }
    Ok(report)
}

fn remember(
    store: &ImageStore,
    memory: &Path,
    tried: &BTreeMap<PathBuf, FileState>,
) -> Result<(), ImageError> {
    let _lock = store.files().lock()?;
    store.files().write_json(memory, tried)
}

fn load_one(store: &ImageStore, path: &Path) -> Result<Vec<LoadedImage>, ImageError> {
    let stem = stem(path);
    let fall_back = Reference::parse(&stem).is_ok();
    store.load_named(
        path,
        Naming {
            stem: &stem,
            name: None,
            fall_back,
        },
    )
}

fn archives(dir: &Path) -> io::Result<Vec<(PathBuf, FileState)>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Ok(meta) = std::fs::metadata(&path) else {
            continue;
        };
        if meta.is_file() && !name.starts_with('.') && ENDINGS.iter().any(|e| name.ends_with(e)) {
            found.push((
                path,
                FileState {
                    size: meta.size(),
                    mtime: (meta.mtime(), meta.mtime_nsec()),
                    problem: None,
                },
            ));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}
