//! What must not be there: zombies while a node runs, anything of it after it has ended.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use podprobe::base::paths::Layout;
use podprobe::base::sys::cgroup::Cgroups;

use super::node::{Node, RUN};
use super::usage::entries;

/// Processes by pid and start time.
pub(crate) type Zombies = BTreeSet<(i32, u64)>;

/// The zombies whose parent is of the node. One that is just being waited for is among them.
pub(crate) fn zombies(node: &Node) -> Zombies {
    let parents: HashSet<i32> = node
        .processes()
        .into_iter()
        .flatten()
        .chain([node.daemon])
        .map(|p| p.pid)
        .collect();
    entries("/proc")
        .iter()
        .filter_map(|p| zombie_of(p, &parents))
        .collect()
}

fn zombie_of(process: &Path, parents: &HashSet<i32>) -> Option<(i32, u64)> {
    let pid = process.file_name()?.to_str()?.parse().ok()?;
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let is_ours = fields[0] == "Z" && parents.contains(&fields[1].parse().ok()?);
    is_ours.then(|| (pid, fields[19].parse().unwrap_or(0)))
}

/// Processes that name the node's root or are in one of its cgroups.
pub(crate) fn processes(root: &Path) -> Vec<String> {
    let (id, root) = (
        Layout::new(root).id(),
        root.to_str().expect("a root in UTF-8"),
    );
    let of = |process: &Path| {
        let pid: i32 = process.file_name()?.to_str()?.parse().ok()?;
        let command =
            String::from_utf8_lossy(&fs::read(process.join("cmdline")).ok()?).replace('\0', " ");
        let cgroups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        let is_ours =
            pid != std::process::id() as i32 && (command.contains(root) || cgroups.contains(&id));
        is_ours.then(|| format!("{pid} {command}"))
    };
    entries("/proc").iter().filter_map(|p| of(p)).collect()
}

/// Directories of the node's cgroups.
pub(crate) fn cgroups(root: &Path) -> Vec<String> {
    let top = Layout::new(root).cgroup();
    let dirs = Cgroups::detect().unwrap().dirs(&top);
    dirs.iter()
        .filter(|d| d.exists())
        .map(|d| d.display().to_string())
        .collect()
}

/// Mounts below the node's root, but for its directory `run`, which the bench mounts.
pub(crate) fn mounts(root: &Path) -> Vec<String> {
    let run = format!(" {} ", root.join(RUN).display());
    let root = root.to_str().expect("a root in UTF-8");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .filter(|l| l.contains(root) && !l.contains(&run))
        .map(str::to_owned)
        .collect()
}

/// Interfaces of pods on the node's bridge, and the bridge itself.
pub(crate) fn interfaces(root: &Path) -> Vec<String> {
    let bridge = Layout::new(root).id().replace("podprobe", "pp");
    let is_ours = |interface: &Path| {
        let master = fs::read_link(interface.join("master")).unwrap_or_default();
        interface.ends_with(&bridge) || master.ends_with(&bridge)
    };
    let all = entries("/sys/class/net");
    let own = all.iter().filter(|interface| is_ours(interface));
    own.map(|interface| interface.display().to_string())
        .collect()
}
