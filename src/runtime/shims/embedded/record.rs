//! What we know of a container ourselves, in `<root>/<id>.podprobe/`: written before libcontainer does anything, removed last.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Error;

/// The content of `record.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The caller's bundle.
    pub bundle: PathBuf,
    /// `linux.cgroupsPath`.
    pub cgroups_path: String,
    /// The container's first process; 0 until it exists.
    pub pid: i32,
    /// Its start time: `/proc/PID/stat` field 22.
    pub start_time: u64,
    /// `start` has been called.
    pub started: bool,
}

/// The directory of our own files.
pub(super) fn dir(root: &Path, id: &str) -> PathBuf {
    root.join(format!("{id}.podprobe"))
}

/// Carries the text of a failed execve from the container's process to `start`.
pub(super) fn fifo(root: &Path, id: &str) -> PathBuf {
    dir(root, id).join("exec.fifo")
}

impl Record {
    /// None when there is no such container.
    pub(super) fn load(root: &Path, id: &str) -> Result<Option<Self>, Error> {
        let path = dir(root, id).join("record.json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|e| Error::new(format!("read {}", path.display()), e)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::new(format!("read {}", path.display()), e)),
        }
    }

    /// Replaces the file in one step.
    pub(super) fn save(&self, root: &Path, id: &str) -> Result<(), Error> {
        let path = dir(root, id).join("record.json");
        let new = path.with_extension("new");
        let bytes = serde_json::to_vec(self).map_err(|e| Error::new("write a record", e))?;
        fs::write(&new, bytes)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|e| Error::new(format!("write {}", path.display()), e))
    }

    /// Whether the recorded process still is that process and has not ended.
    pub(super) fn is_alive(&self) -> bool {
        self.pid > 0
            && stat(self.pid).is_some_and(|(state, start)| {
                start == self.start_time && !matches!(state, 'Z' | 'X')
            })
    }
}

/// State letter and start time of a process.
pub(super) fn stat(pid: i32) -> Option<(char, u64)> {
    // The name is in brackets and may hold anything: brackets and spaces, and bytes that are no text.
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_pid_is_not_the_container() {
        let pid = std::process::id() as i32;
        let (_, start_time) = stat(pid).unwrap();
        let own = Record {
            pid,
            start_time,
            ..Default::default()
        };
        assert!(own.is_alive());
        assert!(
            !Record {
                start_time: start_time + 1,
                ..own.clone()
            }
            .is_alive()
        );
        assert!(!Record { pid: 0, ..own }.is_alive());
    }

    #[test]
    fn a_process_whose_name_is_no_text_lives() {
        let pid = std::process::id() as i32;
        let name = fs::read("/proc/self/comm").unwrap();
        fs::write("/proc/self/comm", b"\xff) Z").unwrap();
        let found = stat(pid);
        fs::write("/proc/self/comm", name).unwrap();
        assert!(found.is_some_and(|(state, _)| state != 'Z'), "{found:?}");
    }
}
