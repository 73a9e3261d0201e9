//! Restores records that another program has removed, from the content in memory.
//!
//! Invariants: only this runtime removes the record of a container, or the shim of a container that was never created,
//! which leaves the directory under another name. If a directory is gone otherwise, another program has cleared /run while
//! the containers still run. In this case only the daemon's memory has the records. If they were not restored, the next
//! daemon would start every pod a second time beside the running one.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::listing::{Cache, KnownContainer, KnownSandbox, ids};
use super::start::publish;
use super::stop::remove_dir_if_there;
use super::{ShimRuntime, lock};
use crate::base::paths::directories::make_private;
use crate::base::remove_tree::remove_tree;
use crate::base::sys::cgroup::Cgroups;
use crate::engine::runtime::ContainerId;
use crate::engine::shims::state::{
    self, CONTAINER, ContainerRecord, EXIT, EXIT_COPY, NETWORK, REMOVING, SANDBOX, STATE,
};
use crate::engine::shims::{SCHEME, roles};

impl ShimRuntime {
    /// Makes the directories for all records.
    pub(super) fn make_directories(&self) -> io::Result<()> {
        let layout = &self.layout;
        let mut dirs = [
            layout.sandboxes(),
            layout.containers(),
            layout.exits(),
            layout.oci_state(),
        ]
        .into_iter();
        dirs.try_for_each(|dir| layout.make(&dir))?;
        // Another part of podprobe may have made the directory first, with access for root alone.
        fs::set_permissions(layout.run_dir(), Permissions::from_mode(0o711))
    }

    /// Writes every known record again whose id is missing in `container_ids` (containers) or in `sandbox_ids`
    /// (sandboxes). Records that this runtime is removing or starting, and those that a shim has taken back, are left out.
    pub(super) fn restore_records(
        &self,
        cache: &Cache,
        container_ids: &HashSet<String>,
        sandbox_ids: &HashSet<String>,
    ) -> io::Result<()> {
        let (containers, sandboxes) = (self.layout.containers(), self.layout.sandboxes());
        let is_lost = |id: &String, listed: &HashSet<String>, dir: &Path| {
            !listed.contains(id) && !cache.leaving.contains(id) && !dir.join(id).exists()
        };
        let lost_containers: Vec<_> = cache
            .containers
            .iter()
            .filter(|(id, _)| is_lost(id, container_ids, &containers))
            .filter(|(id, _)| !lock(&self.starting).contains(*id))
            .filter(|(_, e)| !self.clear_taken_back(e))
            .collect();
        let lost_sandboxes: Vec<_> = cache
            .sandboxes
            .iter()
            .filter(|(id, _)| is_lost(id, sandbox_ids, &sandboxes))
            .collect();
        if lost_containers.is_empty() && lost_sandboxes.is_empty() {
            return Ok(());
        }
        self.make_directories()?;
        for (id, e) in &lost_sandboxes {
            self.restore_sandbox(&sandboxes.join(id), e)?;
        }
        for (id, e) in &lost_containers {
            self.restore_container(&containers.join(id), e)?;
        }
        log::warn!(
            "the records of {} containers and {} sandboxes below {} were removed by somebody else; they are written again \
             from memory",
            lost_containers.len(),
            lost_sandboxes.len(),
            self.layout.run_dir().display()
        );
        Ok(())
    }

    /// Removes what is left of a container that its shim has taken back, because the daemon that began to make it has
    /// ended. Returns false if the shim has not done so. What cannot be removed goes at the next start of the daemon.
    fn clear_taken_back(&self, e: &KnownContainer) -> bool {
        let name = format!("{}{REMOVING}", e.record.id);
        let aside = self.layout.containers().join(name);
        let is_taken_back = aside.exists();
        if is_taken_back {
            let _ = fs::remove_file(&e.record.termination_log);
            let _ = remove_tree(&e.record.data);
            let _ = remove_dir_if_there(&aside);
        }
        is_taken_back
    }

    /// Removes the records of containers for which an earlier daemon had not started a shim when it ended. A shim would have
    /// taken the container back; without a shim the record would count as a restart (deviations: `never-started`). Their
    /// other files go as those of every container without a record.
    pub(super) fn forget_never_begun(&self) {
        let containers = self.layout.containers();
        for id in ids(&containers).into_iter().flatten() {
            let dir = containers.join(&id);
            let record = state::try_read::<ContainerRecord>(&dir, CONTAINER);
            let Ok(Some(record)) = record else {
                continue;
            };
            if self.was_never_begun(&record, &dir) {
                let _ = fs::remove_file(&record.termination_log);
                let _ = remove_tree(&dir);
            }
        }
    }

    /// True if a container of this boot has no process, and no trace of a shim: neither a record of its state or its end,
    /// nor a log, nor a cgroup. A lost record alone proves nothing, because it may have been damaged.
    fn was_never_begun(&self, record: &ContainerRecord, dir: &Path) -> bool {
        let is_there = |name: &str| fs::symlink_metadata(dir.join(name)).is_ok();
        let has_cgroup = || {
            Cgroups::detect().map_or(true, |cgroups| {
                cgroups.dirs(&record.cgroup).iter().any(|dir| dir.exists())
            })
        };
        record.boot_id == self.boot_id
            && ![STATE, EXIT, EXIT_COPY].into_iter().any(is_there)
            && !record.log_path.exists()
            && !has_cgroup()
            && roles::state_of(record, dir).is_none()
    }

    /// Writes the records of a container again. Of the OCI configuration only the part for an exec is restored, and
    /// only if there was an exec before.
    fn restore_container(&self, dir: &Path, e: &KnownContainer) -> io::Result<()> {
        let id = ContainerId::new(SCHEME, &e.record.id);
        let config = lock(&self.configs).get(&id).cloned();
        publish(dir, |new| {
            make_private(&new.join("rootfs"))?;
            make_private(&new.join("bundle"))?;
            if let Some(config) = config {
                fs::write(
                    new.join("bundle/config.json"),
                    serde_json::to_vec(&*config)?,
                )?;
            }
            if let Some(s) = &e.state {
                state::write(new, STATE, s, false)?;
            }
            if let Some(exit) = &e.exit {
                state::write(new, EXIT, &**exit, false)?;
            }
            state::write(new, CONTAINER, &*e.record, false)
        })
    }

    fn restore_sandbox(&self, dir: &Path, e: &KnownSandbox) -> io::Result<()> {
        let network = self.networks.of(e.record.network());
        publish(dir, |new| {
            if let Some(s) = &e.state {
                state::write(new, STATE, s, false)?;
            }
            if let Some(n) = &e.network {
                state::write(new, NETWORK, n, false)?;
            }
            network.restore(&e.record.id, new)?;
            state::write(new, SANDBOX, &*e.record, false)
        })
    }
}
