//! The processes of podprobe on the node, and how each is found.

use std::fs;
use std::path::Path;

use podprobe::engine::shims::state::{
    self, CONTAINER, ContainerRecord, ContainerState, Process, SANDBOX, STATE, SandboxRecord,
    SandboxState,
};

use crate::support::node::Node;
use crate::support::usage::entries;

/// A container that runs.
pub(crate) struct Container {
    /// Name of the pod, without the node's name.
    pub(crate) pod: String,
    pub(crate) name: String,
    pub(crate) process: Process,
    pub(crate) shim: Process,
}

/// All containers whose first process lives.
pub(crate) fn containers(node: &Node) -> Vec<Container> {
    let of = |dir: &Path| {
        let record: ContainerRecord = state::read(dir, CONTAINER)?;
        let state: ContainerState = state::read(dir, STATE)?;
        let process = state.process.filter(|p| p.alive())?;
        Some(Container {
            pod: without_node(&record.pod.name),
            name: record.name,
            process,
            shim: state.shim,
        })
    };
    let dirs = entries(&node.layout.containers().display().to_string());
    dirs.iter().filter_map(|dir| of(dir)).collect()
}

/// The holders of sandboxes that live, each with the name of its pod.
pub(crate) fn holders(node: &Node) -> Vec<(String, Process)> {
    let of = |dir: &Path| {
        let record: SandboxRecord = state::read(dir, SANDBOX)?;
        let state: SandboxState = state::read(dir, STATE)?;
        state
            .process
            .alive()
            .then(|| (without_node(&record.pod.name), state.process))
    };
    let dirs = entries(&node.layout.sandboxes().display().to_string());
    dirs.iter().filter_map(|dir| of(dir)).collect()
}

/// The process `podprobe proxy` of this node.
pub(crate) fn proxy(node: &Node) -> Option<Process> {
    let directory = node.layout.proxy_dir();
    let directory = directory.to_str().unwrap();
    let all = entries("/proc");
    all.iter().find_map(|process| {
        let words = words(process);
        let is_it = words.get(1).is_some_and(|w| w == "proxy")
            && words.get(2).is_some_and(|w| w == directory);
        is_it.then(|| process_of(process)).flatten()
    })
}

/// The spawners of the daemon.
pub(crate) fn spawners(node: &Node) -> Vec<Process> {
    let all = entries("/proc");
    let is_one = |process: &&std::path::PathBuf| {
        words(process).get(1).is_some_and(|w| w == "nsexec")
            && parent(process) == Some(node.daemon.pid)
    };
    all.iter()
        .filter(is_one)
        .filter_map(|process| process_of(process))
        .collect()
}

fn words(process: &Path) -> Vec<String> {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).into_owned();
    line.split('\0').map(str::to_owned).collect()
}

fn parent(process: &Path) -> Option<i32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn process_of(process: &Path) -> Option<Process> {
    let pid = process.file_name()?.to_str()?.parse().ok()?;
    Process::of(pid)
}

fn without_node(name: &str) -> String {
    name.strip_suffix("-node").unwrap_or(name).to_owned()
}
