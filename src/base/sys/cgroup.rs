//! cgroups as directories: v1, v2, and both at once (hybrid).
//!
//! Invariants: only cgroups below a path of podprobe are changed. If a runtime has left a process in the root of a
//! hierarchy, podprobe does not find the process's cgroup. So podprobe never kills the processes of a root.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::mountinfo::Mount;
use super::{cgroup_mounts, cgroup_tree};
use crate::base::clock::Moment;

/// Time that a cgroup gets to become empty after its processes were killed.
const EMPTY_LIMIT: Duration = Duration::from_secs(2);
/// Number of times that a process makes a cgroup again if it is removed while the process moves in.
const JOIN_TRIES: u32 = 20;

/// A mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Mount point of the hierarchy.
    at: PathBuf,
    /// The part of the hierarchy that is mounted, as a path in the hierarchy (`/` unless podprobe runs in a container).
    root: String,
    /// Super block options of a v1 hierarchy (controllers and `name=`). None for v2.
    v1_options: Option<Vec<String>>,
    /// True if the hierarchy is mounted read-only.
    read_only: bool,
}

/// The cgroup hierarchies that podprobe uses on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups(Vec<Hierarchy>);

impl Cgroups {
    /// Finds the hierarchies that are mounted now.
    pub fn detect() -> io::Result<Self> {
        Ok(Self::of(cgroup_mounts::read()?.used))
    }

    /// Picks the usable hierarchies from a list of mounts.
    pub fn of(mounts: Vec<Mount>) -> Self {
        let mut found: Vec<Hierarchy> = Vec::new();
        for h in mounts.into_iter().filter_map(hierarchy) {
            // A hierarchy that is mounted twice counts once.
            if !found
                .iter()
                .any(|f| f.at == h.at || f.v1_options == h.v1_options)
            {
                found.push(h);
            }
        }
        Self(found)
    }

    /// Tells whether no hierarchy is mounted. Without a hierarchy, nothing can be limited or counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `v1` and `v2`, each if there is a hierarchy of that version.
    pub fn versions(&self) -> Vec<&'static str> {
        let any = |v2: bool| self.0.iter().any(|h| h.v1_options.is_none() == v2);
        let versions = [(any(false), "v1"), (any(true), "v2")];
        versions.iter().filter(|v| v.0).map(|v| v.1).collect()
    }

    /// Returns a hierarchy if all hierarchies are mounted read-only, else None. Inside of an unprivileged container,
    /// all hierarchies are read-only, and podprobe cannot run containers.
    pub fn read_only(&self) -> Option<&Path> {
        self.0
            .first()
            .filter(|_| self.0.iter().all(|h| h.read_only))
            .map(|h| h.at.as_path())
    }

    /// Tells whether a hierarchy has this controller (`cpu`, `memory`) for the cgroups that podprobe can make.
    pub fn has(&self, controller: &str) -> bool {
        self.0.iter().any(|h| match &h.v1_options {
            Some(options) => options.iter().any(|o| o == controller),
            None => {
                let offered =
                    fs::read_to_string(h.at.join("cgroup.controllers")).unwrap_or_default();
                offered.split_whitespace().any(|c| c == controller)
            }
        })
    }

    /// Tells whether a v1 hierarchy has this controller.
    pub fn has_v1(&self, controller: &str) -> bool {
        let options = self.0.iter().filter_map(|h| h.v1_options.as_ref());
        options.flatten().any(|o| o == controller)
    }

    /// Tells whether OCI runtimes can set limits with this controller. OCI runtimes use the v1 hierarchies if v1 is
    /// mounted, else v2.
    pub fn can_limit(&self, controller: &str) -> bool {
        let v1 = self.0.iter().filter(|h| h.v1_options.is_some());
        let v1: Vec<Hierarchy> = v1.cloned().collect();
        match v1.is_empty() {
            true => self.has(controller),
            false => Self(v1).has(controller),
        }
    }

    /// Returns the directories of the cgroup `path` (`/podprobe/…`) in all hierarchies that have it.
    pub fn dirs(&self, path: &str) -> Vec<PathBuf> {
        self.0
            .iter()
            .map(|h| h.at.join(path.trim_start_matches('/')))
            .filter(|d| d.is_dir())
            .collect()
    }

    /// Returns the directory of the cgroup `path` in the hierarchy that has this controller: v1 if a v1 hierarchy has
    /// the controller, else v2. Returns None if there is no such hierarchy. The directory may be missing.
    pub fn controller_dir(&self, controller: &str, path: &str) -> Option<PathBuf> {
        self.of_controller(controller, path).map(|(dir, _)| dir)
    }

    /// Returns the directory that [`Self::controller_dir`] returns, and true if it is in a v2 hierarchy.
    pub fn of_controller(&self, controller: &str, path: &str) -> Option<(PathBuf, bool)> {
        let v1 = |h: &&Hierarchy| {
            let options = h.v1_options.as_ref();
            options.is_some_and(|all| all.iter().any(|o| o == controller))
        };
        let all = &self.0;
        let v2 = || all.iter().find(|h| h.v1_options.is_none());
        let h = all.iter().find(v1).or_else(v2)?;
        let dir = h.at.join(path.trim_start_matches('/'));
        Some((dir, h.v1_options.is_none()))
    }

    /// Enables a controller of v2 for the cgroup `path`, by asking all cgroups above `path` to delegate the controller.
    /// A cgroup that holds processes cannot delegate.
    pub fn hand_down(&self, controller: &str, path: &str) {
        let v2 = self.0.iter().filter(|h| h.v1_options.is_none());
        for h in v2 {
            let dir = h.at.join(path.trim_start_matches('/'));
            let mut above: Vec<&Path> = dir.ancestors().skip(1).collect();
            above.retain(|a| a.starts_with(&h.at));
            for dir in above.iter().rev() {
                let file = dir.join("cgroup.subtree_control");
                let file = fs::File::options().write(true).open(file);
                // A failure shows later: the controller's files are missing.
                let _ = file.and_then(|mut f| f.write_all(format!("+{controller}").as_bytes()));
            }
        }
    }

    /// Returns the cgroup directories of a process, but only directories with a path that ends in `path`.
    pub fn dirs_of(&self, pid: i32, path: &str) -> Vec<PathBuf> {
        self.match_lines(
            &fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default(),
            path,
        )
    }

    fn match_lines(&self, proc_cgroup: &str, path: &str) -> Vec<PathBuf> {
        let ours = path.trim_matches('/');
        proc_cgroup
            .lines()
            .filter_map(|line| {
                let mut parts = line.splitn(3, ':');
                let (_, controllers, at) = (parts.next()?, parts.next()?, parts.next()?);
                let h = self.0.iter().find(|h| h.carries(controllers))?;
                let below = at
                    .strip_prefix(h.root.trim_end_matches('/'))?
                    .trim_start_matches('/');
                (!ours.is_empty() && Path::new(below).ends_with(ours)).then(|| h.at.join(below))
            })
            .collect()
    }

    /// Moves this process into the cgroup `path`, which is made if it is missing. The process moves in each hierarchy
    /// in which its cgroup is not the root: such a cgroup was made for the program that started the process. cpuset is
    /// left out, because a new cgroup of cpuset accepts no process until it has processors.
    ///
    /// # Errors
    /// Returns the error of a hierarchy in which the process could not be moved.
    pub fn join(&self, path: &str) -> io::Result<()> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let results: Vec<_> = self
            .to_leave(&own)
            .into_iter()
            .map(|h| {
                let dir = h.at.join(path.trim_start_matches('/'));
                join_dir(&dir).map_err(|e| {
                    let text = format!("cannot move into the cgroup {}: {e}", dir.display());
                    io::Error::new(e.kind(), text)
                })
            })
            .collect();
        results.into_iter().collect()
    }

    /// Returns the hierarchies in which a process is below the root. `proc_cgroup` is the text of the process's
    /// `/proc/PID/cgroup`.
    fn to_leave(&self, proc_cgroup: &str) -> Vec<&Hierarchy> {
        let lines = proc_cgroup.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, at) = (parts.next()?, parts.next()?);
            let h = self.0.iter().find(|h| h.carries(controllers))?;
            let below = at.strip_prefix(h.root.trim_end_matches('/'))?;
            let is_cpuset = controllers.split(',').any(|c| c == "cpuset");
            (!below.trim_matches('/').is_empty() && !is_cpuset).then_some(h)
        });
        lines.collect()
    }

    /// Removes the cgroup `path` from each hierarchy in which it has no process. Waits for a process that is about to
    /// leave.
    pub fn remove_unused(&self, path: &str) {
        for dir in self.dirs(path) {
            if cgroup_tree::processes(&dir).is_empty() {
                // EBUSY means that a process has just moved in.
                let _ = remove_tree(&dir);
            }
        }
    }

    /// Removes the cgroup `path` with all below it in every hierarchy. A cgroup that still has processes stays, and the
    /// function returns an error.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        self.dirs(path).iter().try_for_each(|d| remove_tree(d))
    }
}

impl Hierarchy {
    fn carries(&self, controllers: &str) -> bool {
        match &self.v1_options {
            None => controllers.is_empty(),
            Some(options) => {
                !controllers.is_empty()
                    && controllers
                        .split(',')
                        .all(|c| options.iter().any(|o| o == c))
            }
        }
    }
}

/// Makes a cgroup and moves this process into it. Tries again if the daemon removes the empty cgroup between these two
/// steps.
fn join_dir(dir: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        fs::create_dir_all(dir)?;
        match fs::write(dir.join("cgroup.procs"), "0") {
            Err(e) if is_gone(&e) && tries < JOIN_TRIES => tries += 1,
            other => return other,
        }
    }
}

fn is_gone(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(Errno::ENODEV as i32)
}

fn hierarchy(mount: Mount) -> Option<Hierarchy> {
    let v1_options = match mount.kind.as_str() {
        "cgroup2" => None,
        "cgroup" => Some(mount.options),
        _ => return None,
    };
    Some(Hierarchy {
        at: mount.at,
        root: mount.root.into_os_string().into_string().ok()?,
        v1_options,
        read_only: mount.read_only,
    })
}

/// Returns the path of the cgroup of one attempt of a container, below the pod's cgroup.
pub fn of_container(pod: &str, name: &str, attempt: u32) -> String {
    format!("{pod}/{name}-{attempt}")
}

/// Returns the path of the cgroup of a pod's first process. A pod has a first process if its containers share their
/// processes. No container's cgroup has this name, because the name of a container's cgroup ends with a number.
pub fn of_first_process(pod: &str) -> String {
    format!("{pod}/pause")
}

/// Memory limit in bytes of a pod's first process. The process does nothing, but a container that may trace the process can
/// make it do anything.
const FIRST_PROCESS_MEMORY: &str = "8388608";

/// Moves this process, the first of a pod, into its cgroup in every hierarchy. Limits the memory of that cgroup, and
/// its number of processes to one. A limit that the node cannot set is left out without an error, because no manifest
/// asks for it.
///
/// # Errors
/// Returns the error of a hierarchy in which the process cannot be moved.
pub fn join_as_first_process(path: &str) -> io::Result<()> {
    for h in Cgroups::detect()?.0 {
        // A new cgroup of cpuset accepts no process until it has processors.
        if h.carries("cpuset") {
            continue;
        }
        let dir = h.at.join(path.trim_start_matches('/'));
        fs::create_dir_all(&dir)?;
        let limits = match &h.v1_options {
            None => {
                delegate(&h.at, path);
                ["memory.max", "pids.max"]
            }
            Some(_) => ["memory.limit_in_bytes", "pids.max"],
        };
        for (file, value) in limits.into_iter().zip([FIRST_PROCESS_MEMORY, "1"]) {
            let _ = fs::write(dir.join(file), value);
        }
        join_dir(&dir)?;
    }
    Ok(())
}

/// Lets the cgroups above a cgroup of v2 delegate the controllers `memory` and `pids`.
fn delegate(root: &Path, path: &str) {
    let mut dir = root.to_owned();
    for part in Path::new(path.trim_start_matches('/')) {
        for controller in ["+memory", "+pids"] {
            let _ = fs::write(dir.join("cgroup.subtree_control"), controller);
        }
        dir.push(part);
    }
}

/// Moves this shim or holder out of the daemon's cgroup into `path`, because a service manager that stops the daemon
/// kills all processes in its cgroup. If the move fails, the error goes to stderr and the pod runs nonetheless. Returns
/// true if the process has moved. A TERM to a process that has moved comes from the node's shutdown or from a person,
/// not from the service manager's stop of the daemon.
pub fn leave_the_daemon(path: &str) -> bool {
    // The record of an older podprobe has no path.
    if path.is_empty() {
        return false;
    }
    let left = Cgroups::detect().and_then(|c| c.join(path));
    left.inspect_err(|e| eprintln!("{e}")).is_ok()
}

/// Removes a cgroup and all cgroups below it, deepest first. Waits a moment for processes that are about to end.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    let limit = Moment::now() + EMPTY_LIMIT;
    loop {
        match cgroup_tree::remove(dir) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Moment::now() < limit => {
                std::thread::sleep(Duration::from_millis(2))
            }
            other => return other,
        }
    }
}

/// Removes a cgroup if it has no cgroup below it.
///
/// # Errors
/// Returns the system's error if the cgroup stays.
pub fn remove_childless(dir: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
    match entries.any(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        // The kernel counts a removed cgroup for a moment longer, so the first try may fail. `remove_tree` tries again.
        false => remove_tree(dir),
        true => Err(io::ErrorKind::DirectoryNotEmpty.into()),
    }
}

/// Kills every process in these cgroups and below. Uses `cgroup.kill` if the kernel has it, else freezes and kills.
pub fn kill_all(dirs: &[PathBuf]) {
    for dir in dirs {
        if fs::write(dir.join("cgroup.kill"), "1").is_err() {
            kill_frozen(dir);
        }
    }
}

/// Kills every process in a cgroup. Freezes the processes first, so none of them forks while the list is read. Without
/// a freezer the caller has to repeat the call until the list is empty.
fn kill_frozen(dir: &Path) {
    let freezer = dir.join("freezer.state");
    let limit = Moment::now() + Duration::from_millis(500);
    let has_freezer = fs::write(&freezer, "FROZEN").is_ok();
    while has_freezer
        && Moment::now() < limit
        && !fs::read_to_string(&freezer).is_ok_and(|s| s.starts_with("FROZEN"))
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    for pid in cgroup_tree::processes(dir) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    if has_freezer {
        // A process in the container may have frozen cgroups further below.
        cgroup_tree::write_to_each(dir, c"freezer.state", "THAWED");
    }
}

/// Kills repeatedly until no process is left. Returns false if some processes stay for longer than two seconds.
pub fn kill_until_empty(dirs: &[PathBuf]) -> bool {
    let limit = Moment::now() + EMPTY_LIMIT;
    while dirs.iter().any(|d| !cgroup_tree::processes(d).is_empty()) {
        if Moment::now() >= limit {
            return false;
        }
        kill_all(dirs);
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Tells whether the kernel's OOM killer has killed a process of these cgroups.
pub fn oom_killed(dirs: &[PathBuf]) -> bool {
    let count = |text: String| {
        text.lines()
            .find_map(|l| l.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
            .unwrap_or(0)
    };
    let read = |d: &PathBuf| {
        fs::read_to_string(d.join("memory.events"))
            .or_else(|_| fs::read_to_string(d.join("memory.oom_control")))
    };
    dirs.iter()
        .filter_map(|d| read(d).ok())
        .any(|text| count(text) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sys::mountinfo;

    const HYBRID: &str = "\
24 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw
25 24 0:23 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 - cgroup cgroup rw,cpu,cpuacct
26 24 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
27 24 0:25 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
28 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
29 1 8:1 / / rw - ext4 /dev/vda rw";
    const NESTED: &str = "30 1 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw";
    const OURS: &str = "/podprobe/uid/web-0";

    fn parse(text: &str) -> Cgroups {
        Cgroups::of(mountinfo::parse(text))
    }

    #[track_caller]
    fn check(mountinfo: &str, proc_cgroup: &str, expected: &[&str]) {
        let found = parse(mountinfo).match_lines(proc_cgroup, OURS);
        assert_eq!(
            found,
            expected.iter().map(PathBuf::from).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_process_is_found_in_every_hierarchy_it_is_ours_in() {
        let lines = "3:cpu,cpuacct:/podprobe/uid/web-0\n4:memory:/outer/podprobe/uid/web-0\n1:name=systemd:/\n0::/podprobe/uid/web-0";
        check(
            HYBRID,
            lines,
            &[
                "/sys/fs/cgroup/cpu,cpuacct/podprobe/uid/web-0",
                "/sys/fs/cgroup/memory/outer/podprobe/uid/web-0",
                "/sys/fs/cgroup/unified/podprobe/uid/web-0",
            ],
        );
    }

    #[test]
    fn a_hierarchy_root_or_a_stranger_is_never_ours() {
        check(
            HYBRID,
            "0::/\n4:memory:/podprobe/uid/web-01\n4:memory:/podprobe/uid",
            &[],
        );
        check(HYBRID, "5:pids:/podprobe/uid/web-0", &[]);
        assert_eq!(
            parse(HYBRID).match_lines("0::/anything", "/"),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn a_shim_leaves_a_cgroup_that_somebody_made_and_no_root() {
        let left = |mountinfo: &str, lines: &str| {
            let cgroups = parse(mountinfo);
            let at = cgroups.to_leave(lines).into_iter().map(|h| h.at.clone());
            at.map(|at| at.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let service = "4:memory:/\n3:cpu,cpuacct:/system.slice/podprobe.service\n\
                       1:name=systemd:/system.slice/podprobe.service\n0::/system.slice/podprobe.service";
        assert_eq!(
            left(HYBRID, service),
            [
                "/sys/fs/cgroup/cpu,cpuacct",
                "/sys/fs/cgroup/systemd",
                "/sys/fs/cgroup/unified"
            ]
        );
        assert_eq!(left(HYBRID, "4:memory:/\n0::/"), [""; 0]);
        assert_eq!(left(NESTED, "0::/docker/abc"), [""; 0]);
        assert_eq!(left(NESTED, "0::/docker/abc/init"), ["/sys/fs/cgroup"]);
        let cpuset = "26 24 0:24 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset";
        assert_eq!(left(cpuset, "4:cpuset:/service"), [""; 0]);
    }

    #[test]
    fn a_controller_counts_in_its_hierarchy_of_v1_else_in_v2() {
        let of = |mountinfo: &str, controller: &str| {
            let dir = parse(mountinfo).controller_dir(controller, OURS)?;
            Some(dir.to_str().unwrap().to_owned())
        };
        let at = |dir: &str| Some(format!("/sys/fs/cgroup{dir}{OURS}"));
        assert_eq!(of(HYBRID, "cpuacct"), at("/cpu,cpuacct"));
        assert_eq!(of(HYBRID, "memory"), at("/memory"));
        assert_eq!(of(HYBRID, "pids"), at("/unified"));
        assert_eq!(of(NESTED, "memory"), at(""));
        assert_eq!(of("", "memory"), None);
    }

    #[test]
    fn only_when_nothing_can_be_written_are_cgroups_read_only() {
        let read_only = HYBRID.replace(" rw ", " ro,nosuid ");
        assert_eq!(
            parse(&read_only).read_only(),
            Some(Path::new("/sys/fs/cgroup/cpu,cpuacct"))
        );
        assert_eq!(parse(HYBRID).read_only(), None);
        assert_eq!(
            parse(&read_only.replace("unified ro", "unified rw")).read_only(),
            None
        );
        assert_eq!(parse("").read_only(), None);
    }

    #[test]
    fn a_controller_is_that_of_a_v1_mount_or_offered_by_v2() {
        let v2 = tempfile::tempdir().unwrap();
        let mountinfo = format!("30 1 0:26 / {} rw - cgroup2 cgroup rw", v2.path().display());
        assert!(!parse(&mountinfo).has("cpu"), "nothing is offered");
        fs::write(v2.path().join("cgroup.controllers"), "cpuset cpu io\n").unwrap();
        assert!(parse(&mountinfo).has("cpu") && !parse(&mountinfo).has("memory"));
        assert!(
            parse(HYBRID).has("cpu") && parse(HYBRID).has("memory") && !parse(HYBRID).has("pids")
        );
        let hybrid = parse(&format!("{HYBRID}\n{mountinfo}"));
        fs::write(v2.path().join("cgroup.controllers"), "hugetlb\n").unwrap();
        assert!(parse(&mountinfo).can_limit("hugetlb"));
        assert!(hybrid.can_limit("cpu") && !hybrid.can_limit("hugetlb"));
    }

    #[test]
    fn the_part_of_a_nested_mount_that_we_cannot_see_is_cut_off() {
        check(
            NESTED,
            "0::/docker/abc/podprobe/uid/web-0",
            &["/sys/fs/cgroup/podprobe/uid/web-0"],
        );
        check(NESTED, "0::/other/podprobe/uid/web-0", &[]);
    }
}
