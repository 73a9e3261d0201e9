//! The last good version of each pod file, on disk. With this version a daemon that starts while a file is bad still
//! knows the pod of the file.
//!
//! Each version is a file in a separate directory, named by the SHA-256 of the pod file's path. This file has a line of
//! JSON ([`Header`]), then the accepted bytes. The file has the bytes and not the pods, because the same decoder makes
//! the same UID from the same bytes. A version of podprobe that refuses the bytes does not run a wrong pod.
//!
//! Invariants: an entry is renamed after its content is on the disk, and is used only if its checksum is right. Each
//! pod file has at most one entry and one damaged entry `*.corrupt`. Each entry is at most as big as a pod file. If a
//! write fails (the disk is full or read-only), this is logged once and the older entry stays.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::read::{MAX_FILE_SIZE, read_limited, sha256};
use super::reading::Digest;

use crate::base::aside::{CORRUPT, move_aside, remove_any, rename_over};
use crate::base::json;

const VERSION: u32 = 1;

/// The reason why an entry cannot be used.
#[derive(Debug, thiserror::Error)]
enum EntryError {
    /// The entry cannot be read from the disk.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// The first line has no end.
    #[error("it has no header")]
    NoHeader,
    /// The first line is not a [`Header`].
    #[error("its header is damaged: {0}")]
    Header(serde_json::Error),
    /// The entry has another version.
    #[error("it has version {0}, not {VERSION}")]
    Version(u32),
    /// The bytes after the header are not the bytes that were written.
    #[error("its content is not what its checksum says")]
    Checksum,
}

/// Upper limit in bytes of the header. A path has at most 4096 bytes, and JSON makes at most six bytes from each byte.
const MAX_HEADER: u64 = 64 << 10;

/// Number of files from which on the whole file system is synced once, in place of each file. A flash card takes 10 ms and
/// more for a file.
const MANY: usize = 64;

#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    /// The path of the pod file, for people. The program uses the name of the entry.
    path: String,
    /// The SHA-256 checksum of the bytes after this line, in hexadecimal digits.
    sha256: String,
}

/// The directory of the last good versions, with its known entries.
pub(super) struct LastGood {
    dir: PathBuf,
    entries: HashMap<String, Digest>,
    aside: BTreeSet<String>,
    staged: BTreeMap<PathBuf, Digest>,
    failed: bool,
    lines: Vec<String>,
}

impl LastGood {
    /// Reads the entries. Renames damaged entries, and removes the temporary files of a writer that was killed. Creates
    /// nothing.
    pub(super) fn new(dir: PathBuf) -> Self {
        let (entries, aside, staged) = Default::default();
        let mut new = Self {
            dir,
            entries,
            aside,
            staged,
            failed: false,
            lines: Vec::new(),
        };
        match fs::read_dir(&new.dir) {
            Ok(found) => found
                .flatten()
                .for_each(|entry| new.find(&entry.file_name().to_string_lossy())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => new.lines.push(format!(
                "cannot read {}: {e}; going on without the last good versions in it",
                new.dir.display()
            )),
        }
        new
    }

    fn find(&mut self, file: &str) {
        if file.ends_with(".tmp") {
            let _ = fs::remove_file(self.dir.join(file));
        } else if let Some(name) = file.strip_suffix(".corrupt") {
            self.aside.insert(name.to_owned());
        } else if file.len() == 64 && file.bytes().all(|b| b.is_ascii_hexdigit()) {
            let entry = self.read(file);
            self.entries
                .extend(entry.map(|(digest, _)| (file.to_owned(), digest)));
        }
    }

    /// Reads an entry. A damaged entry is renamed to `*.corrupt`.
    fn read(&mut self, name: &str) -> Option<(Digest, Vec<u8>)> {
        let path = self.dir.join(name);
        match read_limited(&path, MAX_FILE_SIZE + MAX_HEADER)
            .map_err(EntryError::from)
            .and_then(|(_, bytes)| parse(bytes))
        {
            Ok(entry) => Some(entry),
            Err(e) => {
                let aside = path.with_extension("corrupt");
                self.lines.push(format!(
                    "cannot use the last good version in {}: {e}; it is kept as {}",
                    path.display(),
                    aside.display()
                ));
                let _ = move_aside(&path, CORRUPT);
                self.entries.remove(name);
                self.aside.insert(name.to_owned());
                None
            }
        }
    }

    /// Returns the digest of the content that is kept for this pod file, or `None` if no content is kept.
    pub(super) fn digest(&self, path: &Path) -> Option<Digest> {
        self.entries.get(&name(path)).copied()
    }

    /// Returns the content that is kept for this pod file, or `None` if no content is kept.
    pub(super) fn load(&mut self, path: &Path) -> Option<Vec<u8>> {
        self.read(&name(path)).map(|(_, bytes)| bytes)
    }

    /// Writes content that may be good to a file beside the entry, unless the entry already has the content. Does not
    /// wait for the disk.
    pub(super) fn stage(&mut self, path: &Path, digest: Digest, bytes: &[u8]) {
        if self.digest(path) == Some(digest) {
            return;
        }
        match self.write(path, &digest, bytes) {
            Ok(()) => drop(self.staged.insert(path.to_owned(), digest)),
            Err(e) => {
                let _ = fs::remove_file(self.temporary(path));
                self.fail(path, &e);
            }
        }
    }

    fn write(&self, path: &Path, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        // The modes are private, because pod files may have secrets in their environment variables.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        let mut file = File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(self.temporary(path))?;
        let mut header = serde_json::to_vec(&Header {
            version: VERSION,
            path: path.display().to_string(),
            sha256: hex(digest),
        })?;
        header.push(b'\n');
        file.write_all(&header)?;
        file.write_all(bytes)
    }

    /// Turns staged content that was accepted into entries, and drops all other staged content.
    pub(super) fn commit<'f>(&mut self, accepted: impl Fn(&Path) -> Option<&'f Digest>) {
        let (mut kept, mut failed) = (false, false);
        let staged = std::mem::take(&mut self.staged);
        let is_synced = staged.len() >= MANY && self.sync_file_system();
        let sync = |file: File| if is_synced { Ok(()) } else { file.sync_all() };
        for (path, digest) in staged {
            let temporary = self.temporary(&path);
            if accepted(&path) != Some(&digest) {
                let _ = fs::remove_file(temporary);
                continue;
            }
            let name = name(&path);
            match File::open(&temporary)
                .and_then(sync)
                .and_then(|()| rename_over(&temporary, &self.dir.join(&name)))
            {
                Ok(()) => {
                    self.entries.insert(name, digest);
                    kept = true;
                }
                Err(e) => {
                    let _ = fs::remove_file(temporary);
                    self.fail(&path, &e);
                    failed = true;
                }
            }
        }
        if kept {
            // The entries are already written. At worst a power loss brings back the older entries.
            let _ = File::open(&self.dir).and_then(|d| d.sync_all());
        }
        if kept && !failed && std::mem::take(&mut self.failed) {
            self.lines.push(format!(
                "last good versions of pod files are kept in {} again",
                self.dir.display()
            ));
        }
    }

    /// Writes everything that is staged to the disk at once. Returns false if that failed.
    fn sync_file_system(&self) -> bool {
        File::open(&self.dir).is_ok_and(|dir| nix::unistd::syncfs(&dir).is_ok())
    }

    /// Removes the entries of all pod files that are not in `paths`.
    pub(super) fn retain<'p>(&mut self, paths: impl Iterator<Item = &'p Path>) {
        let names: HashSet<String> = paths.map(name).collect();
        let gone = |path: PathBuf| remove_any(&path).is_ok();
        self.entries
            .retain(|name, _| names.contains(name) || !gone(self.dir.join(name)));
        self.aside.retain(|name| {
            names.contains(name) || !gone(self.dir.join(name).with_extension("corrupt"))
        });
    }

    /// Returns the log lines since the last call.
    pub(super) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn temporary(&self, path: &Path) -> PathBuf {
        self.dir.join(name(path)).with_extension("tmp")
    }

    /// Logs a failed write once, until a write succeeds. The file source tries again at each listing.
    fn fail(&mut self, path: &Path, e: &io::Error) {
        if !std::mem::replace(&mut self.failed, true) {
            let (path, dir) = (path.display(), self.dir.display());
            let text = format!(
                "cannot keep the last good version of {path} in {dir}: {e}; last good versions stay in memory and are lost with the daemon \
                 until it works again"
            );
            self.lines.push(text);
        }
    }
}

fn parse(mut bytes: Vec<u8>) -> Result<(Digest, Vec<u8>), EntryError> {
    let end = bytes
        .iter()
        .position(|b| *b == b'\n')
        .ok_or(EntryError::NoHeader)?;
    let header: Header = json::from_slice(&bytes[..end]).map_err(EntryError::Header)?;
    if header.version != VERSION {
        return Err(EntryError::Version(header.version));
    }
    bytes.drain(..=end);
    let digest = sha256(&bytes);
    if hex(&digest) != header.sha256 {
        return Err(EntryError::Checksum);
    }
    Ok((digest, bytes))
}

fn name(path: &Path) -> String {
    hex(&sha256(path.as_os_str().as_bytes()))
}

fn hex(digest: &Digest) -> String {
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "/pods/a";

    fn keep(store: &mut LastGood, text: &str) {
        let digest = sha256(text.as_bytes());
        store.stage(Path::new(FILE), digest, text.as_bytes());
        store.commit(|_| Some(&digest));
    }

    fn files(dir: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
        fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| (e.path(), e.metadata().unwrap().modified().unwrap()))
            .collect()
    }

    #[test]
    fn the_newest_accepted_content_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = LastGood::new(dir.path().join("x"));
        keep(&mut store, "one");
        keep(&mut store, "two\nlines");
        assert_eq!(files(&dir.path().join("x")).len(), 1);
        let mut next = LastGood::new(dir.path().join("x"));
        assert_eq!(
            (
                next.digest(Path::new(FILE)),
                next.digest(Path::new("/pods/b"))
            ),
            (Some(sha256(b"two\nlines")), None)
        );
        assert_eq!(next.load(Path::new(FILE)).unwrap(), b"two\nlines");
        assert_eq!(next.take_lines(), Vec::<String>::new());
    }

    #[test]
    fn many_files_are_kept_like_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = LastGood::new(dir.path().into());
        let paths: Vec<PathBuf> = (0..=MANY).map(|n| format!("/pods/{n}").into()).collect();
        let bytes = |path: &Path| path.display().to_string().into_bytes();
        let digests: HashMap<_, _> = paths.iter().map(|p| (p, sha256(&bytes(p)))).collect();
        for path in &paths {
            store.stage(path, digests[path], &bytes(path));
        }
        let refused = &paths[7];
        store.commit(|path| digests.get(&path.to_owned()).filter(|_| path != refused));
        assert_eq!(files(dir.path()).len(), MANY);
        let mut next = LastGood::new(dir.path().into());
        for path in &paths {
            let expected = (path != refused).then(|| bytes(path));
            assert_eq!(next.load(path), expected);
        }
    }

    #[test]
    fn the_same_content_is_not_written_again_and_refused_content_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = LastGood::new(dir.path().into());
        keep(&mut store, "one");
        let before = files(dir.path());
        let mut store = LastGood::new(dir.path().into());
        keep(&mut store, "one");
        store.stage(Path::new(FILE), sha256(b"two"), b"two");
        store.commit(|_| None);
        assert_eq!(files(dir.path()), before);
    }

    #[test]
    fn entries_are_for_root_only_and_leftovers_go() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        keep(&mut LastGood::new(path.clone()), "one");
        let mode = |p: &Path| p.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&files(&path)[0].0)), (0o700, 0o600));
        fs::write(path.join("1.tmp"), "").unwrap();
        fs::create_dir(path.join("lost+found")).unwrap();
        LastGood::new(path.clone());
        assert_eq!(
            (
                path.join("1.tmp").exists(),
                path.join("lost+found").exists()
            ),
            (false, true)
        );
    }

    #[test]
    fn a_disk_that_takes_nothing_is_said_once_and_its_return_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "").unwrap();
        let mut store = LastGood::new(path.clone());
        store.take_lines();
        for text in ["one", "two", "three"] {
            keep(&mut store, text);
        }
        let lines = store.take_lines();
        assert!(
            lines.len() == 1
                && lines[0].starts_with("cannot keep the last good version of /pods/a in "),
            "{lines:?}"
        );
        fs::remove_file(&path).unwrap();
        keep(&mut store, "four");
        assert!(store.take_lines()[0].ends_with(" again"));
        assert_eq!(store.load(Path::new(FILE)).unwrap(), b"four");
    }

    #[test]
    fn a_damaged_entry_is_said_once() {
        let dir = tempfile::tempdir().unwrap();
        keep(&mut LastGood::new(dir.path().into()), "one");
        let entry = files(dir.path())[0].0.clone();
        let text = fs::read_to_string(&entry).unwrap();
        for damaged in [
            text.replace("one", "two"),
            text.replace("\"version\":1", "\"version\":2"),
            "x\none".into(),
        ] {
            fs::write(&entry, damaged).unwrap();
            let mut store = LastGood::new(dir.path().into());
            assert_eq!(store.digest(Path::new(FILE)), None);
            assert_eq!(store.take_lines().len(), 1);
            assert_eq!(
                LastGood::new(dir.path().into()).take_lines(),
                Vec::<String>::new()
            );
            store.retain(std::iter::empty());
            assert_eq!(
                files(dir.path()),
                [],
                "what was set aside goes with the pod file"
            );
        }
    }

    #[test]
    fn only_the_entries_of_pod_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = LastGood::new(dir.path().into());
        keep(&mut store, "one");
        store.retain([Path::new("/pods/b"), Path::new(FILE)].into_iter());
        assert_eq!(files(dir.path()).len(), 1);
        store.retain([Path::new("/pods/b")].into_iter());
        assert_eq!(files(dir.path()).len(), 0);
    }
}
