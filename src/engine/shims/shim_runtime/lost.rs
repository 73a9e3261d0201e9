//! Rebuilds damaged or missing records from the kernel, and from the copies that shims and holders keep.
//!
//! Invariants: a damaged record costs no running container. Shims and holders of an earlier daemon are found even if
//! /run was cleared while no daemon ran. Processes in a pod's cgroup without any record are killed, because their pod
//! is started again.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::by_pod::ByPod;
use super::listing::{KnownContainer, UNKNOWN};
use super::start::publish;
use super::{ShimRuntime, is_id, kill_process, lock};
use crate::base::clock::Moment;
use crate::base::paths::directories::make_private;
use crate::base::sys::cgroup::{self, Cgroups};
use crate::base::sys::cgroup_tree;
use crate::engine::shims::roles;
use crate::engine::shims::state::{
    self, CONTAINER, ContainerRecord, ContainerState, EXIT, EXIT_COPY, ExitRecord, Process,
    SANDBOX, STATE, SandboxRecord, SandboxState,
};
use crate::net::network::NetworkKind;

/// Exit code of a container if no process has seen its end.
const UNSEEN: i32 = 137;

impl ShimRuntime {
    /// Rebuilds the record of a container from the copy that its shim keeps, and writes it.
    pub(super) fn rebuilt_container(&self, id: &str) -> Option<ContainerRecord> {
        let dir = self.layout.containers().join(id);
        let shim = roles::of_dir(roles::SHIM, &dir, &self.layout.shims_cgroup())?;
        let record = roles::copy_of::<ContainerRecord>(shim).filter(|r| r.id == id)?;
        rewrite(&dir, CONTAINER, &record);
        Some(record)
    }

    /// Rebuilds the record of a sandbox from the copy that its holder keeps, and writes it.
    pub(super) fn rebuilt_sandbox(&self, id: &str) -> Option<SandboxRecord> {
        let dir = self.layout.sandboxes().join(id);
        let holder = roles::of_dir(roles::SANDBOX, &dir, &self.layout.shims_cgroup())?;
        let record = roles::copy_of::<SandboxRecord>(holder).filter(|r| r.id == id)?;
        rewrite(&dir, SANDBOX, &record);
        Some(record)
    }

    /// Finds the running processes of a container and records them as its state. Returns None for a container of
    /// another boot, or one that this daemon is starting.
    pub(super) fn rebuilt_state(
        &self,
        record: &ContainerRecord,
        dir: &Path,
    ) -> Option<ContainerState> {
        if record.boot_id != self.boot_id || lock(&self.starting).contains(&record.id) {
            return None;
        }
        let state = roles::state_of(record, dir)?;
        rewrite(dir, STATE, &state);
        Some(state)
    }

    /// Finds the holder of a sandbox: from the record of a container in it, else from the holder's command line.
    pub(super) fn rebuilt_holder(
        &self,
        containers: &ByPod<KnownContainer>,
        sandbox: &str,
    ) -> Option<SandboxState> {
        let dir = self.layout.sandboxes().join(sandbox);
        let inside = containers.values().find(|c| c.record.sandbox == sandbox);
        let state = match inside.filter(|c| c.record.holder.alive()) {
            Some(c) => SandboxState {
                boot_id: c.record.boot_id.clone(),
                process: c.record.holder,
            },
            None => SandboxState {
                boot_id: self.boot_id.clone(),
                process: roles::of_dir(roles::SANDBOX, &dir, &self.layout.shims_cgroup())?,
            },
        };
        Some(state)
    }

    /// Reads how a container ended. If the record is damaged, its copy is read. Without a copy the exit code counts as
    /// unknown, so that the pod can continue.
    pub(super) fn exit_of(&self, dir: &Path, dead: bool) -> io::Result<Option<ExitRecord>> {
        let was_there = fs::symlink_metadata(dir.join(EXIT)).is_ok();
        if let Some(exit) = state::try_read(dir, EXIT)? {
            return Ok(Some(exit));
        }
        let exit = match state::try_read::<ExitRecord>(dir, EXIT_COPY)? {
            Some(copy) => copy,
            None if was_there && dead => ExitRecord {
                code: UNSEEN,
                signal: None,
                reason: UNKNOWN.into(),
                message: "The record of its end was damaged; the exit code is not known.".into(),
                finished_at: SystemTime::now(),
                finished: Moment::now(),
                boot_id: self.boot_id.clone(),
            },
            None => return Ok(None),
        };
        rewrite(dir, EXIT, &exit);
        Ok(Some(exit))
    }

    /// Writes records for the shims and holders of an earlier daemon whose records were removed. Their containers are
    /// then stopped with stop signal and grace period, like those of a pod that has lost its sandbox: the files for
    /// their network and commands are gone with the records.
    pub(super) fn take_in_lost(&self) {
        let shims = self.lost(roles::SHIM, &self.layout.containers());
        let holders = self.lost(roles::SANDBOX, &self.layout.sandboxes());
        for (holder, dir) in &holders {
            // None of these sandboxes may become ready, because their pods are to be stopped. A bridge sandbox without
            // a network record is not ready. Any other sandbox would be ready, so its holder is killed.
            if self.take_in_holder(*holder, dir) != Some(NetworkKind::Bridge) {
                kill_process(*holder);
            }
        }
        for (shim, dir) in &shims {
            if !self.take_in_shim(*shim, dir) {
                let _ = killpg(Pid::from_raw(shim.pid), Signal::SIGKILL);
                kill_process(*shim);
            }
        }
        if !(shims.is_empty() && holders.is_empty()) {
            log::warn!(
                "the records of {} containers and {} sandboxes below {} were removed while no daemon ran: their pods are \
                 stopped and started again",
                shims.len(),
                holders.len(),
                self.layout.run_dir().display()
            );
        }
    }

    /// Lists the shims or holders of this daemon's directories that have no record directory.
    fn lost(&self, role: &str, records: &Path) -> Vec<(Process, PathBuf)> {
        let mut all = roles::running(role, &self.layout.shims_cgroup());
        all.retain(|(_, dir)| {
            let is_record = dir.parent() == Some(records) && dir.file_name().is_some_and(is_id);
            is_record && !dir.exists()
        });
        all
    }

    /// Writes the record of a sandbox whose holder still runs. Returns the kind of the sandbox's network if the record
    /// was written.
    fn take_in_holder(&self, holder: Process, dir: &Path) -> Option<NetworkKind> {
        let record = roles::copy_of::<SandboxRecord>(holder)?;
        let state = SandboxState {
            boot_id: self.boot_id.clone(),
            process: holder,
        };
        let written = publish(dir, |new| {
            state::write(new, STATE, &state, false)?;
            state::write(new, SANDBOX, &record, false)
        });
        written
            .inspect_err(|e| log::warn!("cannot write the record {}: {e}", dir.display()))
            .ok()
            .map(|()| record.network())
    }

    /// Writes the record of a container whose shim still runs. Returns true if the record was written.
    fn take_in_shim(&self, shim: Process, dir: &Path) -> bool {
        let Some(record) = roles::copy_of::<ContainerRecord>(shim) else {
            return false;
        };
        let Some(state) = roles::state_of(&record, dir) else {
            return false;
        };
        let written = publish(dir, |new| {
            make_private(&new.join("rootfs"))?;
            make_private(&new.join("bundle"))?;
            state::write(new, STATE, &state, false)?;
            state::write(new, CONTAINER, &record, false)
        });
        written
            .inspect_err(|e| log::warn!("cannot write the record {}: {e}", dir.display()))
            .is_ok()
    }

    /// Kills the processes in cgroups of pods and containers that have no record. Must be called after a listing of all
    /// pods.
    pub(super) fn end_unrecorded(&self) {
        let Ok(cgroups) = Cgroups::detect() else {
            return;
        };
        let tops = cgroups.dirs(&self.layout.cgroup());
        let known = self.known_cgroups();
        let mut unrecorded = Vec::new();
        for top in &tops {
            known.find_others(top, top, &mut unrecorded);
        }
        if unrecorded.is_empty() {
            return;
        }
        log::warn!(
            "no record names the processes in {}, as after somebody has cleared {}: they are ended",
            list(&unrecorded),
            self.layout.run_dir().display()
        );
        cgroup::kill_all(&unrecorded);
        if !cgroup::kill_until_empty(&unrecorded) {
            log::warn!("cannot end every process in {}", list(&unrecorded));
        }
    }

    fn known_cgroups(&self) -> Known {
        let top = self.layout.cgroup();
        let below = |path: &str| {
            let path = Path::new(path);
            path.strip_prefix(&top).map(Path::to_owned).ok()
        };
        let cache = lock(&self.cache);
        let containers = cache.containers.values();
        let sandboxes = cache.sandboxes.values();
        let first_processes = sandboxes
            .clone()
            .filter(|s| s.record.share_pid)
            .filter_map(|s| below(&cgroup::of_first_process(&s.record.pod_cgroup)));
        Known {
            whole: containers
                .filter_map(|c| below(&c.record.cgroup))
                .chain(first_processes)
                .chain(below(&self.layout.shims_cgroup()))
                .chain(below(&self.layout.proxy_cgroup()))
                .collect(),
            pods: sandboxes.map(|s| s.record.pod.uid.clone()).collect(),
        }
    }
}

/// The cgroups below the daemon's own that have a record.
struct Known {
    /// Cgroups that are known with everything below them, relative to the daemon's own.
    whole: Vec<PathBuf>,
    /// UIDs of pods. A cgroup that is named after one of these pods is known, but the cgroups below it are examined.
    pods: HashSet<String>,
}

impl Known {
    /// Finds the topmost cgroups at and below `dir` that are not known and have processes.
    fn find_others(&self, top: &Path, dir: &Path, found: &mut Vec<PathBuf>) {
        let own = dir.strip_prefix(top).unwrap_or(dir);
        if self.whole.iter().any(|k| k == own) {
            return;
        }
        let leads_to_known = self.whole.iter().any(|k| k.starts_with(own));
        // Only a pod's own cgroup is compared by name. Further below a container may give its cgroups any name.
        let is_pod = own.to_str().is_some_and(|name| self.pods.contains(name));
        if dir != top && !leads_to_known && !is_pod {
            if !cgroup_tree::processes(dir).is_empty() {
                found.push(dir.to_owned());
            }
            return;
        }
        let children = fs::read_dir(dir).into_iter().flatten().flatten();
        for child in children.filter(|c| c.file_type().is_ok_and(|t| t.is_dir())) {
            self.find_others(top, &child.path(), found);
        }
    }
}

fn list(dirs: &[PathBuf]) -> String {
    let all: Vec<_> = dirs.iter().map(|d| d.display().to_string()).collect();
    all.join(", ")
}

/// Writes a rebuilt record. A failure is only logged, because the content in memory counts.
fn rewrite<T: serde::Serialize>(dir: &Path, name: &str, record: &T) {
    match state::write(dir, name, record, false) {
        Ok(()) => log::warn!(
            "{} was damaged or missing: it is written again from what is known",
            dir.join(name).display()
        ),
        Err(e) => log::warn!("cannot write {} again: {e}", dir.join(name).display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(known: &Known, expected: &[&str]) {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        for dir in ["shims", "u1/a-0/exec", "u1/b-3", "u2", "u3/c-0", "empty"] {
            fs::create_dir_all(top.join(dir)).unwrap();
            let process = if dir == "empty" { "" } else { "7\n" };
            fs::write(top.join(dir).join("cgroup.procs"), process).unwrap();
        }
        let mut found = Vec::new();
        known.find_others(top, top, &mut found);
        found.sort();
        let expected: Vec<_> = expected.iter().map(|d| top.join(d)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_what_has_a_record_is_known() {
        let known = |whole: &[&str], pods: &[&str]| Known {
            whole: whole.iter().map(PathBuf::from).collect(),
            pods: pods.iter().map(|&p| p.to_owned()).collect(),
        };
        check(&known(&["shims"], &[]), &["u1", "u2", "u3"]);
        check(&known(&["shims", "u1/a-0"], &["u2"]), &["u1/b-3", "u3"]);
        let of_u1 = &["u1/a-0/exec", "u1/b-3", "shims"];
        check(&known(of_u1, &["u1", "u2", "u3"]), &["u3/c-0"]);
        check(
            &known(&["shims"], &["u1"]),
            &["u1/a-0", "u1/b-3", "u2", "u3"],
        );
    }
}
