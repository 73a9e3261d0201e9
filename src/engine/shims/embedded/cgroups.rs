//! The cgroup hierarchies of the node, and the container's cgroup in each. A node may have pure v1, hybrid or pure v2.
//! The container joins every mounted hierarchy, and its cgroup is removed from every hierarchy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::Error;
use crate::base::sys::cgroup_mounts::{self, ROOT};
use crate::base::sys::cgroup_tree;
use crate::base::sys::mountinfo::Mount;
use crate::base::sys::task::PidFd;

/// Longest wait for the end of killed processes. A process that hangs in the kernel may never end.
const REMOVE_LIMIT: Duration = Duration::from_secs(10);

/// A mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// Mount point of the hierarchy.
    pub mount_point: PathBuf,
    /// True if this is a hierarchy of cgroup v2.
    pub v2: bool,
}

/// Lists the cgroup hierarchies that are mounted at or below /sys/fs/cgroup.
pub(super) fn hierarchies() -> Result<Vec<Hierarchy>, Error> {
    let mounts =
        cgroup_mounts::read().map_err(|e| Error::step("read", "/proc/thread-self/mountinfo", e))?;
    Ok(below_root(mounts.used))
}

fn below_root(mounts: Vec<Mount>) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in mounts {
        let h = Hierarchy {
            mount_point: mount.at,
            v2: mount.kind == "cgroup2",
        };
        if matches!(mount.kind.as_str(), "cgroup" | "cgroup2")
            && h.mount_point.starts_with(ROOT)
            && !found.contains(&h)
        {
            found.push(h);
        }
    }
    found
}

impl Hierarchy {
    /// Returns the directory of a cgroup in this hierarchy.
    pub(super) fn dir(&self, cgroups_path: &str) -> PathBuf {
        self.mount_point.join(cgroups_path.trim_start_matches('/'))
    }

    /// Returns true if this is the v1 hierarchy that has the controller.
    pub(super) fn is_of(&self, controller: &str) -> bool {
        let name = self.mount_point.file_name().and_then(|n| n.to_str());
        !self.v2 && name.is_some_and(|name| name.split(',').any(|n| n == controller))
    }
}

/// Makes the container's cgroup directory in every hierarchy. On a node with v1 and v2, no controllers are enabled in
/// v2, because v1 sets the limits.
pub(super) fn make(all: &[Hierarchy], cgroups_path: &str) -> Result<(), Error> {
    let only_v2 = all.iter().all(|h| h.v2);
    all.iter().try_for_each(|h| {
        let dir = h.dir(cgroups_path);
        let made = match only_v2 {
            true => make_v2(h, cgroups_path),
            false => fs::create_dir_all(&dir),
        };
        made.map_err(|e| Error::path("make the cgroup", &dir, e))
    })
}

/// Makes the container's cgroup directory on v2, and enables the controllers in every directory above it.
///
/// # Errors
/// Returns the kernel's error if a directory cannot be made or its controllers cannot be read. A controller that cannot
/// be enabled causes an error later, if a limit needs it.
fn make_v2(h: &Hierarchy, cgroups_path: &str) -> io::Result<()> {
    let mut dir = h.mount_point.clone();
    for part in Path::new(cgroups_path.trim_start_matches('/')) {
        let offered = fs::read_to_string(dir.join("cgroup.controllers"))?;
        for controller in offered.split_whitespace() {
            let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        dir.push(part);
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Moves this process into the container's cgroup of each hierarchy.
///
/// # Errors
/// Returns an error about the cgroup that cannot be joined.
pub(super) fn join(all: &[Hierarchy], cgroups_path: &str) -> Result<(), Error> {
    all.iter().try_for_each(|h| {
        let dir = h.dir(cgroups_path);
        if h.is_of("cpuset") {
            fill_cpuset(&h.mount_point, &dir);
        }
        fs::write(dir.join("cgroup.procs"), "0")
            .map_err(|e| Error::path("join the cgroup", &dir, e))
    })
}

/// Gives a new cpuset cgroup on v1 the processors and memory nodes of its parent. Without them the cgroup accepts no
/// process.
fn fill_cpuset(mount_point: &Path, dir: &Path) {
    let mut below: Vec<&Path> = dir.ancestors().collect();
    below.retain(|d| d.starts_with(mount_point) && *d != mount_point);
    for dir in below.iter().rev() {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let above = dir
                .parent()
                .map(|above| fs::read_to_string(above.join(file)));
            let own = fs::read_to_string(dir.join(file)).unwrap_or_default();
            if let (Some(Ok(above)), true) = (above, own.trim().is_empty()) {
                // If the write fails, moving the process into the cgroup reports the error.
                let _ = fs::write(dir.join(file), above.trim());
            }
        }
    }
}

/// Lists every process in the cgroup or below it, in any hierarchy.
pub(super) fn pids(all: &[Hierarchy], cgroups_path: &str) -> Vec<i32> {
    let of_each = all.iter().map(|h| h.dir(cgroups_path));
    let mut found: Vec<i32> = of_each
        .flat_map(|dir| cgroup_tree::processes(&dir))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Kills every process of the cgroup, waits for their end, and removes the cgroup from every hierarchy. A cgroup that
/// does not exist is no error.
pub(super) fn kill_and_remove(all: &[Hierarchy], cgroups_path: &str) -> Result<(), Error> {
    let deadline = Instant::now() + REMOVE_LIMIT;
    loop {
        kill_all(all, cgroups_path, deadline);
        match remove(all, cgroups_path) {
            Ok(()) => return Ok(()),
            Err((dir, e)) if Instant::now() >= deadline => {
                let left = pids(all, cgroups_path);
                let object = format_args!("{} (processes left: {left:?})", dir.display());
                return Err(Error::step("remove the cgroup", object, e));
            }
            // A task leaves its cgroup a little after its pidfd reports its end. v1 has no event for this, so the
            // removal is tried again.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Kills all processes of the cgroup so that none can fork away meanwhile. On v2 it uses cgroup.kill. On v1 it freezes
/// the cgroup between the listing and the kill.
fn kill_all(all: &[Hierarchy], cgroups_path: &str, deadline: Instant) {
    let listed = pids(all, cgroups_path);
    if listed.is_empty() {
        return;
    }
    let pidfds: Vec<PidFd> = listed.iter().filter_map(|p| PidFd::of(*p).ok()).collect();
    let killed = all
        .iter()
        .filter(|h| h.v2)
        .any(|h| fs::write(h.dir(cgroups_path).join("cgroup.kill"), "1").is_ok());
    let freezer = all
        .iter()
        .find(|h| h.mount_point.ends_with("freezer"))
        .map(|h| h.dir(cgroups_path));
    let freezer = freezer.filter(|dir| dir.join("freezer.state").exists());
    if let Some(dir) = freezer.as_ref().filter(|_| !killed) {
        let _ = fs::write(dir.join("freezer.state"), "FROZEN");
    }
    // A process may be in one hierarchy and not in another, so each process is also killed on its own.
    for fd in &pidfds {
        let _ = fd.send(nix::libc::SIGKILL);
    }
    // A frozen process does not die, so the cgroup is thawed. The cgroups further below are thawed too, because a
    // process in the container may have frozen them.
    if let Some(dir) = freezer {
        cgroup_tree::write_to_each(&dir, c"freezer.state", "THAWED");
    }
    for fd in &pidfds {
        wait_end(fd, deadline);
    }
}

/// Waits until the process has ended, or until the deadline.
pub(super) fn wait_end(pidfd: &PidFd, deadline: Instant) {
    let _ = pidfd.wait(deadline.saturating_duration_since(Instant::now()));
}

fn remove(all: &[Hierarchy], cgroups_path: &str) -> Result<(), (PathBuf, io::Error)> {
    // An empty path would lead to the top directory of the hierarchy.
    if cgroups_path.trim_matches('/').is_empty() {
        return Ok(());
    }
    all.iter().try_for_each(|h| {
        let dir = h.dir(cgroups_path);
        cgroup_tree::remove(&dir).map_err(|e| (dir, e))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sys::mountinfo;

    #[track_caller]
    fn check(mountinfo: &str, expected: &[(&str, bool)]) {
        let all = below_root(mountinfo::parse(mountinfo));
        let got: Vec<_> = all
            .iter()
            .map(|h| (h.mount_point.to_str().unwrap(), h.v2))
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn hierarchies_of_each_setup() {
        let tmpfs = "30 29 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n";
        let cpu =
            "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
        let systemd =
            "32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";
        let unified = "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let elsewhere = "34 30 0:29 / /mnt/cgroup rw - cgroup2 cgroup2 rw\n";
        let v1 = ("/sys/fs/cgroup/cpu,cpuacct", false);
        check(&[tmpfs, cpu, elsewhere].concat(), &[v1]);
        check(
            &[tmpfs, cpu, systemd, unified].concat(),
            &[
                v1,
                ("/sys/fs/cgroup/systemd", false),
                ("/sys/fs/cgroup/unified", true),
            ],
        );
        check(
            "29 28 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
            &[("/sys/fs/cgroup", true)],
        );
    }
}
