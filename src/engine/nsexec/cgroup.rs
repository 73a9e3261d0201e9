//! The cgroups that a command joins. The command also gets a leaf cgroup of its own, by which all its processes are
//! killed (exec-in-container 5).
//!
//! Decisions: the leaf lies *below* the cgroup of the container's first process, also if the node has only v2. The
//! no-internal-process rule of v2 forbids a leaf only in a cgroup that has controllers enabled for children, and a
//! cgroup that holds a process has none enabled. Below the container's cgroup, the command stays under the container's
//! own limits. Beside this cgroup, the command would escape the limits. Without v2 the leaf lies in the freezer
//! hierarchy of v1, which can stop the processes before they are killed. Processes that a command leaves behind are
//! killed with its leaf, so no process stays on the node.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::error::ExecError;
use crate::base::sys::mountinfo::Mount;
use crate::base::sys::{cgroup_mounts, cgroup_tree};

/// Longest time that a command's end waits for the removal of its leaf. After this time the removal is left for later.
const REMOVE_LIMIT: Duration = Duration::from_millis(500);

/// A mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Names of the v1 controllers of the hierarchy, or `name=…`. Empty for v2.
    names: Vec<String>,
    /// The cgroup that lies at the hierarchy's mount point.
    root: String,
    at: PathBuf,
}

/// Returns the cgroup hierarchies among these mounts.
fn hierarchies(mounts: Vec<Mount>) -> Vec<Hierarchy> {
    let hierarchy = |m: Mount| {
        let names = match m.kind.as_str() {
            "cgroup2" => Vec::new(),
            // The options also hold mount options such as `rw`, which do not name a hierarchy.
            "cgroup" => m.options,
            _ => return None,
        };
        Some(Hierarchy {
            names,
            root: m.root.into_os_string().into_string().ok()?,
            at: m.at,
        })
    };
    mounts.into_iter().filter_map(hierarchy).collect()
}

fn mounted() -> &'static [Hierarchy] {
    // Hierarchies are mounted at boot and stay mounted. So their list is read only once: mountinfo is long on a node
    // with many containers.
    static MOUNTED: OnceLock<Vec<Hierarchy>> = OnceLock::new();
    MOUNTED.get_or_init(|| hierarchies(cgroup_mounts::read().unwrap_or_default().used))
}

/// The directory of a cgroup that a command joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    v2: bool,
    dir: PathBuf,
    /// The file into which a process with a single thread is written to join the cgroup.
    join: PathBuf,
    /// The file that says whether the cgroup is frozen. None if this hierarchy cannot freeze cgroups.
    state: Option<PathBuf>,
}

impl Place {
    fn new(v2: bool, freezer: bool, dir: PathBuf) -> Self {
        let state = if v2 {
            Some("cgroup.freeze")
        } else {
            freezer.then_some("freezer.state")
        };
        Self {
            v2,
            join: dir.join(if v2 { "cgroup.procs" } else { "tasks" }),
            state: state.map(|f| dir.join(f)),
            dir,
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Returns the cgroup directory for each line of `/proc/PID/cgroup`, the text `cgroups`. Leaves out lines without a
/// hierarchy among `mounts`.
fn places(cgroups: &str, mounts: &[Hierarchy]) -> Vec<Place> {
    let place = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (names, path) = (parts.nth(1)?, parts.next()?);
        let v2 = names.is_empty();
        let m = mounts.iter().find(|m| {
            if v2 {
                m.names.is_empty()
            } else {
                names.split(',').all(|n| m.names.iter().any(|o| o == n))
            }
        })?;
        let below = if m.root == "/" {
            path
        } else {
            path.strip_prefix(m.root.as_str())?
        };
        let dir =
            m.at.join(below.trim_start_matches('/'))
                .components()
                .collect();
        Some(Place::new(
            v2,
            names.split(',').any(|n| n == "freezer"),
            dir,
        ))
    };
    cgroups.lines().filter_map(place).collect()
}

/// Returns the cgroup directory for each line of `/proc/PID/cgroup`, the text `cgroups`. Leaves out lines without a
/// hierarchy that is mounted on this node.
pub(super) fn places_of(cgroups: &str) -> Vec<Place> {
    places(cgroups, mounted())
}

/// Tells whether the container is frozen. A process that joins a frozen cgroup does not run. In a frozen cgroup of v1 a
/// process cannot even be killed.
fn frozen(places: &[Place]) -> bool {
    let states = places
        .iter()
        .filter_map(|p| p.state.as_ref())
        .filter_map(|f| read(f));
    let frozen = |state: &[u8; 16]| {
        [b"1\n".as_slice(), b"FROZEN\n", b"FREEZING\n"]
            .iter()
            .any(|w| state.starts_with(w))
    };
    states.into_iter().any(|s| frozen(&s))
}

/// Returns the first 16 bytes of a file, which are read with a single system call.
fn read(file: &Path) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    let fd = open(file, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    nix::unistd::read(&fd, &mut bytes).ok().map(|_| bytes)
}

/// Returns a name for the leaf of a command. No other command since this boot has this name.
pub(super) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "exec-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// The cgroups for one command.
#[derive(Debug)]
pub(super) struct Cgroups {
    /// Files (`tasks`) of the v1 cgroups that the command joins.
    pub(super) join: Vec<PathBuf>,
    /// The v2 cgroup in which the command's process is started.
    pub(super) born: Option<PathBuf>,
    pub(super) leaf: Option<Leaf>,
}

impl Cgroups {
    /// Makes the leaf, and finds the cgroups to join. Fails if the container is frozen.
    pub(super) fn prepare(places: &[Place], name: &str) -> Result<Self, ExecError> {
        if frozen(places) {
            return Err(ExecError::Paused);
        }
        let leaf = Leaf::make(places, name);
        let (mut join, mut born) = (Vec::new(), None);
        for p in places {
            let inner = leaf
                .as_ref()
                .filter(|l| l.v2 == p.v2 && l.dir.parent() == Some(&p.dir))
                .map(|l| &l.dir);
            match (p.v2, inner) {
                (true, inner) => born = Some(inner.unwrap_or(&p.dir).clone()),
                (false, Some(leaf)) => join.push(leaf.join("tasks")),
                (false, None) => join.push(p.join.clone()),
            }
        }
        Ok(Cgroups { join, born, leaf })
    }
}

/// Returns the file of a cgroup for the index in a report of a failed step. The index counts the v1 cgroups in their
/// order, and after them the v2 cgroup.
pub(super) fn name(places: &[Place], index: usize) -> Option<String> {
    let (v2, v1): (Vec<&Place>, Vec<_>) = places.iter().partition(|p| p.v2);
    v1.into_iter()
        .chain(v2)
        .nth(index)
        .map(|p| p.join.display().to_string())
}

/// The leaf cgroup of one command. The owner of this value must remove the cgroup.
#[derive(Debug)]
pub(super) struct Leaf {
    dir: PathBuf,
    v2: bool,
}

impl Leaf {
    /// Makes a leaf in the v2 tree. If this fails, makes a leaf in the tree of the v1 freezer. Returns `None` if both
    /// fail; without a leaf only the process group of the command can be killed.
    fn make(places: &[Place], name: &str) -> Option<Leaf> {
        let killable = |v2| places.iter().find(move |p| p.state.is_some() && p.v2 == v2);
        for p in killable(true).into_iter().chain(killable(false)) {
            let dir = p.dir.join(name);
            match fs::create_dir(&dir) {
                Ok(()) => return Some(Leaf { dir, v2: p.v2 }),
                Err(e) => log::debug!("cannot make cgroup {}: {e}", dir.display()),
            }
        }
        None
    }

    /// Returns the directory of the container's cgroup, in which the leaf was made.
    pub(super) fn container(&self) -> Option<&Path> {
        self.dir.parent()
    }

    /// Kills every process in the leaf, including processes that are started meanwhile.
    pub(super) fn kill(&self) {
        if self.v2 && fs::write(self.dir.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        self.freeze_and_kill();
    }

    /// Kills the leaf's processes on v1, and on v2 before Linux 5.14. The leaf is frozen first, so that no process in it
    /// can fork.
    fn freeze_and_kill(&self) {
        let (file, freeze, thaw) = if self.v2 {
            (c"cgroup.freeze", "1", "0")
        } else {
            (c"freezer.state", "FROZEN", "THAWED")
        };
        let name = OsStr::from_bytes(file.to_bytes());
        let _ = fs::write(self.dir.join(name), freeze);
        self.wait_frozen();
        for pid in cgroup_tree::processes(&self.dir) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        // The command may have frozen a cgroup of its own below the leaf, so every cgroup below the leaf is thawed too.
        cgroup_tree::write_to_each(&self.dir, file, thaw);
    }

    /// Waits until the leaf is frozen, at most 50 ms. On v1 a busy task may be frozen a moment later, and each read of
    /// `freezer.state` makes the kernel try again.
    fn wait_frozen(&self) {
        let until = Instant::now() + Duration::from_millis(50);
        let done = || match self.v2 {
            true => fs::read_to_string(self.dir.join("cgroup.events"))
                .is_ok_and(|s| s.contains("frozen 1")),
            false => fs::read_to_string(self.dir.join("freezer.state"))
                .is_ok_and(|s| s.trim() == "FROZEN"),
        };
        while !done() && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    /// Removes the leaf, and kills the processes that are still inside. Returns false if a process does not die in time.
    pub(super) fn remove(&self) -> bool {
        let until = Instant::now() + REMOVE_LIMIT;
        loop {
            match fs::remove_dir(&self.dir) {
                Ok(()) => return true,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return true,
                Err(_) if Instant::now() >= until => return false,
                // Cgroups below the leaf are looked for only after the first failed removal. Hardly any command makes
                // cgroups below its own, and a list of cgroups costs as much as a new cgroup.
                Err(_) if cgroup_tree::remove_below(&self.dir).0 > 0 => {}
                Err(_) => {
                    self.kill();
                    self.wait_empty();
                }
            }
        }
    }

    /// Waits until the last process has left the leaf, at most a few milliseconds.
    fn wait_empty(&self) {
        let limit = PollTimeout::from(5u8);
        match fs::File::open(self.dir.join("cgroup.events")) {
            Ok(events) if self.v2 => {
                let mut text = String::new();
                let read = std::io::Read::read_to_string(&mut &events, &mut text);
                if read.is_ok() && text.contains("populated 1") {
                    let _ = nix::poll::poll(
                        &mut [PollFd::new(events.as_fd(), PollFlags::POLLPRI)],
                        limit,
                    );
                }
            }
            // On v1 there is no event for a cgroup that becomes empty, so this waits 1 ms.
            _ => drop(nix::poll::poll(&mut [], PollTimeout::from(1u8))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sys::mountinfo;
    use crate::deep_trees::{nest, on_a_small_stack};

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
31 30 0:27 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n\
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
33 30 0:29 /pod /sys/fs/cgroup/freezer rw shared:1 - cgroup cgroup rw,freezer\n\
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[track_caller]
    fn check(cgroups: &str, expected: &[&str]) {
        let places = places(cgroups, &hierarchies(mountinfo::parse(MOUNTS)));
        let dirs: Vec<_> = places
            .iter()
            .map(|p| {
                p.dir
                    .strip_prefix("/sys/fs/cgroup")
                    .unwrap()
                    .to_str()
                    .unwrap()
            })
            .collect();
        assert_eq!(dirs, expected);
    }

    #[test]
    fn each_line_finds_its_hierarchy() {
        check(
            "3:cpu,cpuacct:/a/b\n2:name=systemd:/s\n0::/u\n",
            &["cpu/a/b", "systemd/s", "unified/u"],
        );
        check("3:memory:/a\n", &[]);
        check("4:freezer:/pod/x\n", &["freezer/x"]);
        check("4:freezer:/elsewhere\n", &[]);
        check("0::/\n", &["unified"]);
    }

    #[test]
    fn names_do_not_repeat() {
        assert_ne!(unique(), unique());
    }

    /// Kills a leaf below the root of the v2 or the freezer hierarchy. The leaf has a shell and five more processes,
    /// three of them outside of the shell's process group.
    fn check_freeze_and_kill(v2: bool) {
        let root = mounted().iter().find(|m| {
            if v2 {
                m.names.is_empty()
            } else {
                m.names.iter().any(|n| n == "freezer")
            }
        });
        let (Some(root), true) = (root, nix::unistd::geteuid().is_root()) else {
            assert!(
                !nix::unistd::geteuid().is_root()
                    || std::env::var("CI").as_deref() != Ok("true")
                    || root_is_v2_only()
            );
            crate::skip::note("needs root and the hierarchy");
            return;
        };
        let leaf = Leaf {
            dir: root.at.join(format!("test-{}", unique())),
            v2,
        };
        fs::create_dir(&leaf.dir).unwrap();
        let script =
            "read x; sleep 91 & setsid sleep 92 & (setsid sh -c 'sleep 93; :' &); sleep 94";
        let mut shell = std::process::Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        fs::write(leaf.dir.join("cgroup.procs"), shell.id().to_string()).unwrap();
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), b"\n").unwrap();
        let count = || {
            fs::read_to_string(leaf.dir.join("cgroup.procs"))
                .unwrap()
                .lines()
                .count()
        };
        let until = Instant::now() + Duration::from_secs(10);
        while count() < 6 && Instant::now() < until {
            std::thread::yield_now();
        }
        let grown = count();
        leaf.freeze_and_kill();
        let status = shell.wait().unwrap();
        let removed = leaf.remove();
        assert_eq!(
            (
                grown,
                std::os::unix::process::ExitStatusExt::signal(&status),
                removed
            ),
            (6, Some(9), true)
        );
        assert!(!leaf.dir.exists());
    }

    fn root_is_v2_only() -> bool {
        mounted().iter().all(|m| m.names.is_empty())
    }

    #[test]
    fn a_tree_dies_by_the_v1_freezer() {
        check_freeze_and_kill(false);
    }

    /// Cgroups below a leaf are removed with the leaf, even if they are nested deeper than a stack could hold. A
    /// process that may mount the hierarchy in a user namespace of its own can nest cgroups to any depth.
    #[test]
    fn cgroups_nested_deeper_than_a_stack_go_with_the_leaf() {
        let Some(root) = mounted().iter().find(|m| m.names.is_empty()) else {
            return crate::skip::note("needs a hierarchy of v2");
        };
        let leaf = Leaf {
            dir: root.at.join(format!("test-{}", unique())),
            v2: true,
        };
        if let Err(e) = fs::create_dir(&leaf.dir) {
            return crate::skip::note(&format!("cannot make a cgroup: {e}"));
        }
        nest(&leaf.dir, 2_000);
        let removed = on_a_small_stack(|| leaf.remove());
        assert!(removed && !leaf.dir.exists());
    }

    #[test]
    fn a_tree_dies_without_cgroup_kill() {
        check_freeze_and_kill(true);
    }
}
