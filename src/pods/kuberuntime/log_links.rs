//! Links to the logs, `/var/log/containers/<pod>_<namespace>_<container>-<id>.log`: the names that fluent-bit, promtail
//! and vector look for (the kubelet's legacy log symlinks).
//!
//! Invariant: each link has an entry of the same name among the pod's data. The entry is written before the link. So
//! when a pod is removed, all its links are found without a look at the links of other pods, even the links of
//! containers with lost records.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::api::PodUid;
use crate::base::paths::Layout;
use crate::engine::runtime::ContainerId;

/// The length in bytes of the longest file name.
const MAX_NAME: usize = 255;

/// The parts of a container that name its link.
pub(super) struct Linked<'a> {
    pub(super) uid: &'a PodUid,
    pub(super) pod: &'a str,
    pub(super) namespace: &'a str,
    pub(super) container: &'a str,
    pub(super) id: &'a ContainerId,
}

impl Linked<'_> {
    /// Returns the name of the link. If the name would be too long for a file name, the part before the id is cut, as
    /// in the kubelet.
    fn name(&self) -> String {
        let suffix = format!("-{}.log", self.id.as_str());
        let mut prefix = format!("{}_{}_{}", self.pod, self.namespace, self.container);
        prefix.truncate(MAX_NAME.saturating_sub(suffix.len()));
        prefix + &suffix
    }
}

/// Links the log of a container. Podprobe itself does not need the link, so the pod does not fail if the link cannot be
/// made.
pub(super) fn link(layout: &Layout, of: &Linked<'_>, log: &Path) {
    let name = of.name();
    let path = layout.container_log_links().join(&name);
    let target = from_links(layout, log);
    let entries = layout.log_link_entries(of.uid);
    let made = layout
        .make(&entries)
        .and_then(|()| fs::write(entries.join(&name), ""))
        .and_then(|()| layout.make(&layout.container_log_links()))
        .and_then(|()| match symlink(&target, &path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
    if let Err(e) = made {
        log::warn!(
            "cannot link {} to {}: {e}; log collectors do not find the log",
            path.display(),
            log.display()
        );
    }
}

/// Returns the path of a log relative to the links. With a relative path a collector finds the log even if the
/// collector sees the log directory at another path than the daemon, for example under another root than `/`
/// (deviations: log-links).
fn from_links(layout: &Layout, log: &Path) -> PathBuf {
    let links = layout.container_log_links();
    let beside = links.parent().and_then(|top| log.strip_prefix(top).ok());
    beside.map_or_else(|| log.to_owned(), |below| Path::new("..").join(below))
}

/// Removes the link of a removed container.
pub(super) fn unlink(layout: &Layout, of: &Linked<'_>) {
    let name = of.name();
    remove(&layout.container_log_links().join(&name));
    remove(&layout.log_link_entries(of.uid).join(name));
}

/// Removes the links that a pod has left. The entries of the links are removed with the pod's data.
pub(super) fn unlink_all(layout: &Layout, uid: &PodUid) {
    let entries = fs::read_dir(layout.log_link_entries(uid));
    for entry in entries.into_iter().flatten().flatten() {
        remove(&layout.container_log_links().join(entry.file_name()));
    }
}

/// Removes the links into log directories that no longer exist. Such links belong to pods whose data was damaged, or
/// removed by another program.
pub(super) fn sweep(layout: &Layout) {
    let links = layout.container_log_links();
    let ours = from_links(layout, &layout.logs_dir());
    for entry in fs::read_dir(&links).into_iter().flatten().flatten() {
        let path = entry.path();
        let log = fs::read_link(&path).ok().filter(|l| l.starts_with(&ours));
        // The log file itself may be missing for a moment, while it is rotated.
        let directory = log.and_then(|log| Some(links.join(log.parent()?)));
        let found = directory.map(fs::metadata);
        if matches!(found, Some(Err(e)) if e.kind() == io::ErrorKind::NotFound) {
            remove(&path);
        }
    }
}

fn remove(link: &Path) {
    match fs::remove_file(link) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            log::warn!("cannot remove {}: {e}", link.display());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked<'a>(uid: &'a PodUid, pod: &'a str, id: &'a ContainerId) -> Linked<'a> {
        Linked {
            uid,
            pod,
            namespace: "default",
            container: "app",
            id,
        }
    }

    #[test]
    fn a_link_leads_to_the_log_and_goes_with_its_container_or_its_logs() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let logs = layout.logs_dir().join("default_web_1");
        let other = layout.logs_dir().join("default_other_2");
        let [log, rotated] = [&logs, &other].map(|of| of.join("app/0.log"));
        for log in [&log, &rotated] {
            fs::create_dir_all(log.parent().unwrap()).unwrap();
            fs::write(log, "x").unwrap();
        }
        let ids: [ContainerId; 4] = ["1", "2", "3", "4"].map(Into::into);
        let uids: [PodUid; 2] = ["u1", "u2"].map(Into::into);
        for id in [0, 1, 3] {
            link(&layout, &linked(&uids[0], "web", &ids[id]), &log);
            link(&layout, &linked(&uids[0], "web", &ids[id]), &log);
        }
        link(&layout, &linked(&uids[1], "other", &ids[2]), &rotated);
        let at = |name: &str| layout.container_log_links().join(name);
        let there = |name| fs::symlink_metadata(at(name)).is_ok();
        assert_eq!(
            fs::read_to_string(at("web_default_app-1.log")).unwrap(),
            "x"
        );
        unlink(&layout, &linked(&uids[0], "web", &ids[0]));
        unlink(&layout, &linked(&uids[0], "web", &ids[0]));
        assert!(!there("web_default_app-1.log") && there("web_default_app-2.log"));
        // The next two links are not podprobe's. Then comes a link into a missing directory.
        let strangers = ["/nowhere/pods/a_b_c/app/0.log", "../elsewhere/0.log"];
        for (n, target) in strangers.iter().enumerate() {
            symlink(target, at(&format!("stranger-{n}.log"))).unwrap();
        }
        fs::remove_file(&rotated).unwrap();
        sweep(&layout);
        assert!(there("web_default_app-2.log") && there("other_default_app-3.log"));
        fs::remove_dir_all(&logs).unwrap();
        sweep(&layout);
        assert!(!there("web_default_app-2.log") && there("other_default_app-3.log"));
        assert!(there("stranger-0.log") && there("stranger-1.log"));
        link(&layout, &linked(&uids[0], "web", &ids[3]), &log);
        unlink_all(&layout, &uids[0]);
        assert!(!there("web_default_app-4.log") && there("other_default_app-3.log"));
    }

    /// A link works for a collector that mounts the node's log directory at any path.
    #[test]
    fn a_link_leads_to_the_log_wherever_the_log_directory_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().join("node"));
        let logs = layout.logs_dir().join("default_web_1");
        fs::create_dir_all(logs.join("app")).unwrap();
        fs::write(logs.join("app/0.log"), "x").unwrap();
        let log = logs.join("app/0.log");
        link(&layout, &linked(&"u".into(), "web", &"1".into()), &log);
        let seen = dir.path().join("seen");
        fs::rename(layout.container_log_links().parent().unwrap(), &seen).unwrap();
        let link = seen.join("containers/web_default_app-1.log");
        assert_eq!(fs::read_to_string(&link).unwrap(), "x");
    }

    #[test]
    fn a_name_is_never_too_long_for_a_file() {
        let id = ContainerId::from("a".repeat(64).as_str());
        let long = linked(&"u".into(), &"p".repeat(253), &id).name();
        assert_eq!(long.len(), MAX_NAME);
        assert!(
            long.ends_with(&format!("-{}.log", "a".repeat(64))),
            "{long}"
        );
    }
}
