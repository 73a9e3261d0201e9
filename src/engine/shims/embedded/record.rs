//! The runtime's own record of a container, in `<root>/<id>/`. The record is made before every other part of the
//! container, and removed after all of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::Error;
use crate::base::aside::rename_over;
use crate::base::record_file;

/// The content of `record.json` (see [`crate::base::record_file`]). A new field must have a default, because other
/// versions of this program read the file too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Path of the bundle directory, from the caller.
    #[serde(default)]
    pub bundle: PathBuf,
    /// Cgroup of the container, as in `linux.cgroupsPath`.
    pub cgroups_path: String,
    /// Pid of the container's first process; 0 until the process exists.
    pub pid: i32,
    /// Start time of the first process, from field 22 of `/proc/PID/stat`.
    pub start_time: u64,
    /// True if `start` has been called.
    #[serde(default)]
    pub started: bool,
}

/// Returns the state directory of a container.
pub(super) fn dir(root: &Path, id: &str) -> PathBuf {
    root.join(id)
}

/// Returns the directory in which podprobe 0.1 kept the record, beside libcontainer's directory. Containers of podprobe
/// 0.1 may still run.
pub(super) fn old_dir(root: &Path, id: &str) -> PathBuf {
    root.join(format!("{id}.podprobe"))
}

/// Returns the path of the fifo that carries the error text of a failed execve from the container's process to `start`.
pub(super) fn report(root: &Path, id: &str) -> PathBuf {
    dir(root, id).join("exec.fifo")
}

/// Returns the path of the fifo that carries the start byte to the container's process, which waits for it.
pub(super) fn start(root: &Path, id: &str) -> PathBuf {
    dir(root, id).join("start.fifo")
}

impl Record {
    /// Reads the record of a container; `None` if there is no such container.
    pub(super) fn load(root: &Path, id: &str) -> Result<Option<Self>, Error> {
        for dir in [dir(root, id), old_dir(root, id)] {
            let path = dir.join("record.json");
            match fs::read(&path) {
                Ok(bytes) => {
                    return record_file::parse(&path.display().to_string(), &bytes)
                        .map(Some)
                        .map_err(|e| Error::path("read", &path, e));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::path("read", &path, e)),
            }
        }
        Ok(None)
    }

    /// Writes the record, and replaces an older one in one step.
    pub(super) fn save(&self, root: &Path, id: &str) -> Result<(), Error> {
        let path = dir(root, id).join("record.json");
        let new = path.with_extension("new");
        let bytes = record_file::to_bytes(self).map_err(|e| Error::step("write", "a record", e))?;
        fs::write(&new, bytes)
            .and_then(|()| rename_over(&new, &path))
            .map_err(|e| Error::path("write", &path, e))
    }

    /// Returns true if the recorded process is still the same process and has not ended.
    pub(super) fn is_alive(&self) -> bool {
        self.pid > 0
            && stat(self.pid).is_some_and(|(state, start)| {
                start == self.start_time && !matches!(state, 'Z' | 'X')
            })
    }
}

/// Returns the state letter and the start time of a process; None if there is no such process.
pub(super) fn stat(pid: i32) -> Option<(char, u64)> {
    // The file has the process's name in brackets. The name may contain brackets, spaces, and bytes that are not UTF-8.
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
    fn the_record_of_the_last_release_is_read_and_one_of_the_next_too() {
        let root = tempfile::tempdir().unwrap();
        for dir in [dir(root.path(), "c"), old_dir(root.path(), "c")] {
            fs::create_dir(dir).unwrap();
        }
        let old = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/data/records/0.1.0/oci/record.json"
        );
        fs::copy(old, old_dir(root.path(), "c").join("record.json")).unwrap();
        let record = Record::load(root.path(), "c").unwrap().unwrap();
        assert_eq!((record.pid, record.started), (26250, true));
        assert!(record.cgroups_path.ends_with("/main-0"));
        record.save(root.path(), "c").unwrap();
        let path = dir(root.path(), "c").join("record.json");
        let saved = fs::read_to_string(&path).unwrap();
        let (saved, _) = saved.split_once(",\"crc32\"").unwrap();
        let next = saved.to_owned() + "}";
        let next = next.replace("\"version\":1", "\"version\":2,\"hooks\":[]");
        let next = next.replace("\"started\":true", "\"started\":\"yes\"");
        fs::write(&path, next).unwrap();
        let read = Record::load(root.path(), "c").unwrap().unwrap();
        assert_eq!(
            read,
            Record {
                started: false,
                ..record
            }
        );
        fs::write(&path, "{\"pid\":").unwrap();
        assert!(Record::load(root.path(), "c").is_err());
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
