//! Stops and removes containers and sandboxes, with the shim's help, or without it if the shim was killed.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::listing::{KnownContainer, UNKNOWN};
use super::{KILL_LIMIT, ShimRuntime, kill_process, lock};
use crate::base::cancel::Cancel;
use crate::base::clock::{Moment, go_duration};
use crate::base::remove_tree::remove_tree;
use crate::base::sys::cgroup::{self, Cgroups};
use crate::base::sys::cgroup_tree;
use crate::base::sys::task::{PidFd, Waited};
use crate::engine::runtime::{ContainerId, ENDING, RuntimeError};
use crate::engine::shims::state::{self, EXIT, ExitRecord, Process, REMOVING};
use crate::engine::shims::{oci_cli, shim, termination};

/// Longest time between the end of a container and the end of its shim.
const SHIM_LIMIT: Duration = Duration::from_secs(10);

impl ShimRuntime {
    /// Stops a container: sends the stop signal, waits for the grace period, and sends KILL. Returns once the exit is
    /// recorded.
    pub(super) fn stop(
        &self,
        id: &ContainerId,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), RuntimeError> {
        self.give_up_created(id);
        let Some(e) = self.find(id) else {
            return Ok(());
        };
        if e.exit.is_some() || e.record.boot_id != self.boot_id {
            return Ok(());
        }
        match e.state.as_ref().and_then(|s| s.process) {
            Some(process) => self.end_process(&e, process, grace, cancel)?,
            // The container is not created yet, so the shim is killed with the processes that it has started.
            None => self.kill_shim(&e),
        }
        self.settle(&e)
    }

    fn end_process(
        &self,
        e: &KnownContainer,
        process: Process,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), RuntimeError> {
        let id = &e.record.id;
        let fail =
            |cause: String| RuntimeError::failed(format!("cannot stop container {id}: {cause}"));
        let Some(fd) = process
            .open()
            .map_err(|e| fail(format!("cannot open process {}: {e}", process.pid)))?
        else {
            return Ok(());
        };
        if self
            .signal(&fd, e.record.stop_signal, grace, cancel)
            .map_err(|e| fail(e.to_string()))?
        {
            return Ok(());
        }
        if self
            .signal(&fd, libc::SIGKILL, KILL_LIMIT, cancel)
            .map_err(|e| fail(e.to_string()))?
        {
            return Ok(());
        }
        Err(fail(format!(
            "process {} has not ended {} after SIGKILL; the kernel holds it, look at /proc/{0}/stack",
            process.pid,
            go_duration(KILL_LIMIT)
        )))
    }

    /// Sends a signal and waits. Returns true if the process has ended. Returns an error if the daemon is ending, or if
    /// the wait is cancelled.
    fn signal(
        &self,
        fd: &PidFd,
        signal: i32,
        limit: Duration,
        cancel: &Cancel,
    ) -> io::Result<bool> {
        match fd.send(signal) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
            other => other?,
        }
        // Without a descriptor for the cancel, the wait lasts its full time.
        let cancelled = cancel.fd().ok();
        match fd.wait_unless(limit, [self.ending()].into_iter().chain(cancelled))? {
            Waited::Ended => Ok(true),
            Waited::TimedOut => Ok(false),
            Waited::Told => Err(io::Error::new(
                io::ErrorKind::Interrupted,
                if self.interrupt.is_cancelled() {
                    ENDING
                } else {
                    "it is cancelled"
                },
            )),
        }
    }

    /// Waits for the shim's record of the exit. Writes the record itself if the shim does not. Called once the first
    /// process has ended.
    fn settle(&self, e: &KnownContainer) -> Result<(), RuntimeError> {
        let dir = self.layout.containers().join(&e.record.id);
        let shim = match e.state.as_ref().map(|s| s.shim.open()).transpose() {
            Ok(shim) => shim.flatten(),
            Err(cause) => {
                return Err(RuntimeError::failed(format!(
                    "cannot follow the end of container {}: {cause}",
                    e.record.id
                )));
            }
        };
        if wait_for_exit(&dir, shim.as_ref(), SHIM_LIMIT) {
            return Ok(());
        }
        self.kill_shim(e);
        if dir.join(EXIT).exists() {
            return Ok(());
        }
        self.finish(
            e,
            137,
            UNKNOWN,
            "Its shim was gone when it ended; the exit code is not known.",
        )
    }

    /// Kills the shim, and the OCI runtime that it may be running: both are in the process group that the shim made.
    fn kill_shim(&self, e: &KnownContainer) {
        let Some(s) = &e.state else { return };
        if s.shim.alive() {
            let _ = killpg(Pid::from_raw(s.shim.pid), Signal::SIGKILL);
        }
        kill_process(s.shim);
        self.reap(Some(s.shim.pid));
    }

    /// Does the shim's work at the end of a container: of the container only the record, the overlay and the log stay.
    fn finish(
        &self,
        e: &KnownContainer,
        code: i32,
        reason: &str,
        message: &str,
    ) -> Result<(), RuntimeError> {
        let r = &e.record;
        self.clear_processes(e);
        let text = termination::message(&r.termination_log, false, code, &r.log_path);
        let message = if text.is_empty() {
            message.to_owned()
        } else {
            format!("{message}: {text}")
        };
        let record = ExitRecord {
            code,
            signal: None,
            reason: reason.into(),
            message,
            finished_at: SystemTime::now(),
            finished: Moment::now(),
            boot_id: self.boot_id.clone(),
        };
        let dir = self.layout.containers().join(&r.id);
        match state::write(&dir, EXIT, &record, true) {
            // Another thread has removed the container in the meantime.
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(RuntimeError::failed(format!(
                "cannot record the end of container {}: {e}",
                r.id
            ))),
            _ => Ok(()),
        }
    }

    /// Removes the processes, the OCI runtime state and the cgroups of a container.
    fn clear_processes(&self, e: &KnownContainer) {
        self.clear_leftovers(
            &e.record.id,
            &e.record.runtime,
            &e.record.oci_root,
            &self.cgroups_of(e),
        );
    }

    /// Ends a container's processes, and removes its OCI runtime state and its cgroups. The container need not have a
    /// readable record.
    pub(super) fn clear_leftovers(
        &self,
        id: &str,
        runtime: &[PathBuf],
        oci_root: &Path,
        cgroups: &[PathBuf],
    ) {
        cgroup::kill_all(cgroups);
        if oci_root.join(id).exists() {
            let mut delete = oci_cli::command(runtime, oci_root);
            delete.arg("delete").arg("--force").arg(id);
            let _ = delete
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        if !cgroup::kill_until_empty(cgroups) {
            log::warn!("cannot end every process of container {id}: some stay in its cgroups");
        }
        for dir in cgroups {
            if let Err(e) = cgroup::remove_tree(dir) {
                log::warn!("cannot remove cgroup {}: {e}", dir.display());
            }
        }
    }

    fn cgroups_of(&self, e: &KnownContainer) -> Vec<PathBuf> {
        let mut dirs = Cgroups::detect()
            .map(|c| c.dirs(&e.record.cgroup))
            .unwrap_or_default();
        dirs.extend(e.state.iter().flat_map(|s| s.cgroups.iter().cloned()));
        dirs.sort();
        dirs.dedup();
        dirs.retain(|d| d.is_dir());
        dirs
    }

    /// Ends and records a container whose start failed without an answer of its shim, so that it counts for the
    /// back-off. Returns the error.
    pub(super) fn abandon(&self, id: &ContainerId, shim: i32, cause: &str) -> RuntimeError {
        let error = RuntimeError::failed(format!("cannot start the container: {cause}"));
        self.kill_child(shim);
        if let Some(e) = self.find(id).filter(|e| e.exit.is_none()) {
            self.kill_shim(&e);
            e.state.as_ref().and_then(|s| s.process).map(kill_process);
            if let Err(e) = self.finish(&e, shim::NEVER_RAN, shim::CANNOT_RUN, &error.message) {
                log::warn!("{e}");
            }
        }
        error
    }

    /// Kills a shim that this daemon has started, with the OCI runtime that it may be running.
    pub(super) fn kill_child(&self, shim: i32) {
        // While the list is locked, no thread reaps the child. So its pid and its process group cannot have been
        // reused.
        if lock(&self.children).iter().any(|c| c.id() as i32 == shim) {
            let _ = killpg(Pid::from_raw(shim), Signal::SIGKILL);
        }
    }

    pub(super) fn remove(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let Some(e) = self.find(id) else {
            return Ok(());
        };
        let fail =
            |cause: String| RuntimeError::failed(format!("cannot remove container {id}: {cause}"));
        self.give_up_created(id);
        if e.process_runs() || lock(&self.starting).contains(id.as_str()) {
            return Err(fail("it is running; stop it first".into()));
        }
        // The shim may still be cleaning up after its container.
        if let Some(shim) = e.state.as_ref().map(|s| s.shim) {
            if let Ok(Some(fd)) = shim.open()
                && !fd.wait(SHIM_LIMIT).unwrap_or(false)
            {
                self.kill_shim(&e);
            }
            self.reap(Some(shim.pid));
        }
        self.clear_processes(&e);
        let dir = self.layout.containers().join(id.as_str());
        let aside = dir.with_file_name(format!("{id}{REMOVING}"));
        self.taking_away(id.as_str(), || rename_away(&dir, &aside))
            .map_err(|e| fail(e.to_string()))?;
        let _ = fs::remove_file(&e.record.termination_log);
        remove_tree(&e.record.data).map_err(|e| fail(e.to_string()))?;
        remove_dir_if_there(&aside).map_err(|e| fail(e.to_string()))
    }

    pub(super) fn stop_holder(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let fail =
            |cause: String| RuntimeError::failed(format!("cannot stop sandbox {id}: {cause}"));
        let Some(sandbox) = self.find_sandbox(id) else {
            return Ok(());
        };
        let Some(holder) = self.holder(&sandbox) else {
            return Ok(());
        };
        // The network is taken down while its namespace exists: CNI plugins look into the namespace to undo their work.
        self.tear_down_network(&sandbox)
            .map_err(|e| fail(format!("cannot take down its network: {e}")))?;
        if let Some(fd) = holder.open().map_err(|e| fail(e.to_string()))? {
            let never = Cancel::default();
            let ended = self
                .signal(&fd, libc::SIGTERM, Duration::from_secs(2), &never)
                .map_err(|e| fail(e.to_string()))?;
            if !ended
                && !self
                    .signal(&fd, libc::SIGKILL, KILL_LIMIT, &never)
                    .map_err(|e| fail(e.to_string()))?
            {
                return Err(fail(format!(
                    "its holder, process {}, has not ended after SIGKILL",
                    holder.pid
                )));
            }
        }
        self.reap(Some(holder.pid));
        Ok(())
    }

    pub(super) fn forget_sandbox(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let Some(e) = self.find_sandbox(id) else {
            return Ok(());
        };
        self.tear_down_network(&e).map_err(|e| {
            RuntimeError::failed(format!("cannot take down the network of sandbox {id}: {e}"))
        })?;
        let dir = self.layout.sandboxes().join(id.as_str());
        let aside = dir.with_file_name(format!("{id}{REMOVING}"));
        let removed = self.taking_away(id.as_str(), || {
            rename_away(&dir, &aside).and_then(|()| remove_dir_if_there(&aside))
        });
        self.remove_cgroups_of(&e.record.pod.uid);
        removed.map_err(|e| RuntimeError::failed(format!("cannot remove sandbox {id}: {e}")))
    }

    /// Removes the cgroups of a pod that no record names any more. After the removal of the last pod, all other unused
    /// cgroups are removed too. As long as there are pods, the cgroups of other pods are not examined, so the work for
    /// one pod does not grow with the number of all pods. The next listing removes the cgroups that cannot be removed
    /// now.
    fn remove_cgroups_of(&self, uid: &str) {
        let is_last = {
            let cache = lock(&self.cache);
            if cache.sandboxes.has_any_of(uid) || cache.containers.has_any_of(uid) {
                return;
            }
            cache.sandboxes.is_empty()
        };
        if is_last || !self.has_removed_cgroups_of(uid) {
            self.unused_cgroups.store(true, Ordering::SeqCst);
        }
        if is_last {
            self.remove_unused_cgroups();
        }
    }

    fn has_removed_cgroups_of(&self, uid: &str) -> bool {
        let Ok(_gate) = self.cgroup_gate.try_write() else {
            return false;
        };
        let pod = self.layout.pod_cgroup(&uid.into());
        Cgroups::detect().is_ok_and(|cgroups| {
            let mut dirs = cgroups.dirs(&pod).into_iter();
            dirs.all(|dir| cgroup_tree::remove(&dir).is_ok())
        })
    }

    /// Removes the cgroups of pods that no record names any more, and with the last pod the daemon's own cgroup. Such
    /// cgroups are left if a daemon was killed while it removed a pod. A process that has not quite ended keeps its
    /// cgroup for a moment, so the next listing tries again to remove the cgroups that cannot be removed now. Nothing
    /// is removed while a container starts, because the start may be about to make the container's cgroups.
    pub(super) fn remove_unused_cgroups(&self) {
        let Ok(_gate) = self.cgroup_gate.try_write() else {
            return;
        };
        let Ok(cgroups) = Cgroups::detect() else {
            return;
        };
        // Cleared before the known records are read: a record that is removed from here on sets the flag again.
        self.unused_cgroups.store(false, Ordering::SeqCst);
        let (known, any_sandbox) = {
            let cache = lock(&self.cache);
            let pods = cache.sandboxes.pods().chain(cache.containers.pods());
            let known: HashSet<String> = pods.cloned().collect();
            (known, !cache.sandboxes.is_empty())
        };
        let shims = self.layout.shims_cgroup();
        if !any_sandbox {
            cgroups.remove_unused(&shims);
        }
        // The proxy's cgroup cannot be removed while the proxy runs.
        let proxy = self.layout.proxy_cgroup();
        cgroups.remove_unused(&proxy);
        let (shims, proxy) = (Path::new(&shims).file_name(), Path::new(&proxy).file_name());
        let mut left = false;
        for top in cgroups.dirs(&self.layout.cgroup()) {
            let children = fs::read_dir(&top).into_iter().flatten().flatten();
            for child in children.filter(|c| c.file_type().is_ok_and(|t| t.is_dir())) {
                let name = child.file_name();
                let unknown = Some(name.as_os_str()) != shims
                    && Some(name.as_os_str()) != proxy
                    && !name.to_str().is_some_and(|uid| known.contains(uid));
                left |= unknown && cgroup_tree::remove(&child.path()).is_err();
            }
            // The top cgroup cannot be removed while any pod has cgroups or the proxy runs.
            left |= cgroup::remove_childless(&top).is_err() && !any_sandbox;
        }
        if left {
            self.unused_cgroups.store(true, Ordering::SeqCst);
        }
    }
}

impl KnownContainer {
    fn process_runs(&self) -> bool {
        self.exit.is_none()
            && self
                .state
                .as_ref()
                .and_then(|s| s.process)
                .is_some_and(Process::alive)
    }
}

/// Renames a record directory before its removal. What an earlier removal has left under the new name is removed first.
fn rename_away(dir: &Path, aside: &Path) -> io::Result<()> {
    remove_dir_if_there(aside)?;
    match fs::rename(dir, aside) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes a directory as `remove_dir_all` does. A directory that is already gone is no error.
pub(super) fn remove_dir_if_there(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// First pause between two looks for the exit record, if there is no inotify watch. A user can have only a limited
/// number of watches, and none may be left if many pods end at once. The pause doubles after each look, because the
/// looks for many containers are work that grows with the square of their number. Usually the shim ends as soon as it
/// has written the record, and the end of the shim ends the wait.
const FIRST_LOOK: Duration = Duration::from_millis(10);

fn later(look: &mut Duration) -> Duration {
    std::mem::replace(look, *look * 2)
}

/// Waits for the exit record as long as the shim lives, but at most `limit`. Returns true if the record exists.
fn wait_for_exit(dir: &Path, shim: Option<&PidFd>, limit: Duration) -> bool {
    let path = dir.join(EXIT);
    let end = Moment::now() + limit;
    let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
    let watch = watch
        .and_then(|w| w.add_watch(dir, AddWatchFlags::IN_MOVED_TO).map(|_| w))
        .ok();
    let mut look = FIRST_LOOK;
    loop {
        if path.exists() {
            return true;
        }
        let left = end.since(Moment::now());
        let Some(shim) = shim.filter(|_| !left.is_zero()) else {
            return false;
        };
        // Without a watch the record is looked for from time to time.
        let step = match watch.is_some() {
            true => left,
            false => later(&mut look).min(left),
        };
        let mut fds = vec![PollFd::new(shim.as_fd(), PollFlags::POLLIN)];
        fds.extend(
            watch
                .as_ref()
                .map(|w| PollFd::new(w.as_fd(), PollFlags::POLLIN)),
        );
        let _ = poll(
            &mut fds,
            PollTimeout::try_from(step).unwrap_or(PollTimeout::MAX),
        );
        if fds[0].any() == Some(true) {
            return path.exists();
        }
        let _ = watch.as_ref().map(Inotify::read_events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_watch_an_exit_record_is_not_looked_for_all_the_time() {
        let (mut look, mut waited, mut looks) = (FIRST_LOOK, Duration::ZERO, 0);
        while waited < SHIM_LIMIT {
            waited += later(&mut look);
            looks += 1;
        }
        assert!(looks <= 11, "{looks} looks in {SHIM_LIMIT:?}");
    }
}
