//! The verbs `kill`, `delete` and `state`, which find the container's process by its record.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::cgroups;
use super::error::Error;
use super::record::{self, Record};
use crate::base::sys::task::PidFd;

/// Longest wait for the end of a killed first process.
const KILL_LIMIT: Duration = Duration::from_secs(10);

fn load(root: &Path, id: &str, verb: &'static str) -> Result<Record, Error> {
    Record::load(root, id)?.ok_or_else(|| Error::of(verb, id, Error::NotThere))
}

/// Sends a signal to the container's first process, or to all its processes.
pub(super) fn kill(root: &Path, id: &str, signal: i32, all: bool) -> Result<(), Error> {
    let record = load(root, id, "kill")?;
    let sent = signal_init(&record, signal).map_err(|e| Error::of("kill", id, e))?;
    if all {
        let hierarchies = cgroups::hierarchies()?;
        for pid in cgroups::pids(&hierarchies, &record.cgroups_path)
            .into_iter()
            .filter(|p| *p != record.pid)
        {
            let _ = PidFd::of(pid).and_then(|fd| fd.send(signal));
        }
        return Ok(());
    }
    match sent {
        true => Ok(()),
        false => Err(Error::of("kill", id, Error::NotRunning)),
    }
}

/// Sends a signal to the container's first process. Returns false if the process has ended. The start time is compared
/// after the descriptor was opened, so the descriptor belongs to the recorded process.
fn signal_init(record: &Record, signal: i32) -> io::Result<bool> {
    if record.pid <= 0 {
        return Ok(false);
    }
    let fd = match PidFd::of(record.pid) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    if !record.is_alive() {
        return Ok(false);
    }
    match fd.send(signal) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        other => other.map(|()| true),
    }
}

/// Removes what `create` has made: the processes, the cgroups in every hierarchy, and the state. With `force` it also
/// removes a container that runs or is half made, and a container that does not exist is no error.
pub(super) fn delete(root: &Path, id: &str, force: bool) -> Result<(), Error> {
    let record = match Record::load(root, id) {
        // Only the shim, or the daemon in its place, uses force. Both know the container's processes and cgroups, and
        // end them.
        Err(e) if force => {
            eprintln!("{e}; its state is removed all the same");
            None
        }
        other => other?,
    };
    let Some(record) = record else {
        let left = record::dir(root, id).exists();
        return match (force, left) {
            (true, _) => remove_state(root, id),
            (false, _) => Err(Error::of("delete", id, Error::NotThere)),
        };
    };
    if record.started && record.is_alive() && !force {
        return Err(Error::of("delete", id, Error::Running));
    }
    end_init(&record);
    cgroups::kill_and_remove(&cgroups::hierarchies()?, &record.cgroups_path)?;
    remove_state(root, id)
}

/// Kills the first process. The kernel then kills all other processes of its pid namespace.
fn end_init(record: &Record) {
    let Ok(fd) = PidFd::of(record.pid) else {
        return;
    };
    if record.is_alive() && fd.send(nix::libc::SIGKILL).is_ok() {
        cgroups::wait_end(&fd, Instant::now() + KILL_LIMIT);
    }
}

/// Removes the directories of a container's state. While a directory is there, `delete` can be tried again.
pub(super) fn remove_state(root: &Path, id: &str) -> Result<(), Error> {
    for dir in [record::old_dir(root, id), record::dir(root, id)] {
        match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Error::path("remove", &dir, e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Prints the state of a container in the OCI form.
pub(super) fn state(root: &Path, id: &str) -> Result<(), Error> {
    let record = load(root, id, "show")?;
    let status = match (record.pid, record.is_alive(), record.started) {
        (0, ..) => "creating",
        (_, true, false) => "created",
        (_, true, true) => "running",
        (_, false, _) => "stopped",
    };
    let pid = if record.is_alive() { record.pid } else { 0 };
    println!(
        "{:#}",
        json!({ "ociVersion": "1.0.2", "id": id, "status": status, "pid": pid, "bundle": record.bundle })
    );
    Ok(())
}
