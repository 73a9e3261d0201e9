//! Tells whether a shim still writes a log, for programs that have no connection to a daemon.
//!
//! Invariants: records are read and never changed.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::state::{CONTAINER, ContainerRecord, ContainerState, STATE};
use crate::base::clock;
use crate::base::paths::Layout;
use crate::base::record_file;

/// Returns true if `log` is the current log file of a container with a running shim.
pub fn is_log_written(layout: &Layout, log: &Path) -> bool {
    let records = fs::read_dir(layout.containers()).into_iter().flatten();
    records.flatten().any(|entry| {
        let dir = entry.path();
        let is_of_log = |record: ContainerRecord| record.log_path == log;
        read(&dir.join(CONTAINER)).is_some_and(is_of_log)
            && read(&dir.join(STATE)).is_some_and(is_running)
    })
}

fn is_running(state: ContainerState) -> bool {
    state.boot_id == clock::boot_id() && state.shim.alive()
}

/// Reads a record; `None` if the record is missing or damaged. The next daemon moves a damaged record aside.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    record_file::parse(&path.display().to_string(), &fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::shims::state::Process;

    fn write(layout: &Layout, id: &str, record: &Value, state: &Value) {
        let dir = layout.containers().join(id);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(CONTAINER), record.to_string()).unwrap();
        fs::write(dir.join(STATE), state.to_string()).unwrap();
    }

    fn record(log: &str) -> Value {
        json!({
            "id": "a", "pod": {"uid": "u", "name": "web", "namespace": "default"}, "sandbox": "s", "name": "main",
            "attempt": 0, "image": "i", "image_id": "sha256:0", "labels": {}, "annotations": {},
            "created_at": std::time::SystemTime::UNIX_EPOCH, "boot_id": "", "layers": [], "data": "/d", "rootfs": "/r",
            "holder": {"pid": 1, "start_time": 1}, "log_path": log, "log_max_size": 1, "log_max_files": 1,
            "runtime": [], "oci_root": "/o", "cgroup": "/c", "stop_signal": 15,
        })
    }

    fn state(boot_id: &str, shim: Process) -> Value {
        json!({"boot_id": boot_id, "shim": shim, "process": null, "started_at": null, "started": null})
    }

    #[test]
    fn a_log_is_written_while_its_shim_runs() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        assert!(
            !is_log_written(&layout, Path::new("/logs/0.log")),
            "no records"
        );
        let own = Process::of(std::process::id() as i32).unwrap();
        let other = Process {
            start_time: own.start_time + 1,
            ..own
        };
        let boot = clock::boot_id();
        for (id, boot, shim) in [
            ("running", boot.as_str(), own),
            ("ended", boot.as_str(), other),
            ("rebooted", "another boot", own),
        ] {
            let log = format!("/logs/{id}.log");
            write(&layout, id, &record(&log), &state(boot, shim));
        }
        write(&layout, "damaged", &json!(1), &json!(2));
        let written = |id: &str| is_log_written(&layout, Path::new(&format!("/logs/{id}.log")));
        let all = ["running", "ended", "rebooted", "unknown"].map(written);
        assert_eq!(all, [true, false, false, false]);
    }
}
