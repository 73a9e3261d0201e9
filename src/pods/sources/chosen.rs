//! Chooses one file for each object that several files have.
//!
//! Invariants: this module is pure. A file that exists is preferred to one that has vanished. Next, the file that was
//! chosen at the last listing is preferred, and then the first file by path.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::known_file::KnownFile;
use crate::base::clock::Moment;

/// An object of a file.
pub(super) struct Candidate<'f, K, T> {
    pub(super) path: &'f PathBuf,
    pub(super) entry: &'f KnownFile,
    pub(super) key: K,
    pub(super) object: &'f T,
}

/// The objects that were chosen, and the file of each.
pub(super) struct Chosen<'f, K, T> {
    pub(super) objects: Vec<Candidate<'f, K, T>>,
    pub(super) files: BTreeMap<K, PathBuf>,
}

/// Chooses among the objects of all files. `held` has the file of each object at the last listing. Problems of files
/// whose objects are not used go to `problems`.
pub(super) fn choose<'f, K: Ord + Clone + Display, T>(
    mut all: Vec<Candidate<'f, K, T>>,
    held: &BTreeMap<K, PathBuf>,
    now: Moment,
    problems: &mut BTreeMap<String, Vec<String>>,
) -> Chosen<'f, K, T> {
    all.sort_by_key(|it| {
        (
            it.entry.vanished.is_some(),
            held.get(&it.key) != Some(it.path),
        )
    });
    let mut chosen = Chosen {
        objects: Vec::new(),
        files: BTreeMap::new(),
    };
    for candidate in all {
        let Candidate {
            path, entry, key, ..
        } = &candidate;
        let Some(other) = chosen.files.get(key) else {
            chosen.files.insert(key.clone(), path.to_path_buf());
            chosen.objects.push(candidate);
            continue;
        };
        if entry.vanished.is_none() && entry.may_be_a_copy_until(now).is_none() {
            let text = duplicate(key, path, other);
            problems
                .entry(path.display().to_string())
                .or_default()
                .push(text);
        }
    }
    chosen
}

fn duplicate(key: &impl Display, path: &Path, other: &Path) -> String {
    format!(
        "{key} in {} is ignored: {} has it too and comes first; remove one of the two",
        path.display(),
        other.display()
    )
}
