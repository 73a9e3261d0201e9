//! `/var/log/containers/<pod>_<namespace>_<container>-<id>.log`: links to the logs by the names that fluent-bit, promtail
//! and vector look for (the kubelet's legacy log symlinks).

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::layout::Layout;
use crate::runtime::ContainerId;

/// The longest name a file can have.
const MAX_NAME: usize = 255;

/// Links the log of a container. Nothing of podprobe needs the link, so a disk that does not take it costs no pod.
pub(super) fn link(
    layout: &Layout,
    pod: &str,
    namespace: &str,
    container: &str,
    id: &ContainerId,
    log: &Path,
) {
    let path = layout
        .container_log_links()
        .join(name(pod, namespace, container, id.as_str()));
    let target = from_links(layout, log);
    let made =
        layout
            .make(&layout.container_log_links())
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

/// The path of a log as seen from the links. A collector that has the log directory at another path than the daemon, as
/// with another root than `/`, finds the log (deviations: log-links).
fn from_links(layout: &Layout, log: &Path) -> PathBuf {
    let links = layout.container_log_links();
    let beside = links.parent().and_then(|top| log.strip_prefix(top).ok());
    beside.map_or_else(|| log.to_owned(), |below| Path::new("..").join(below))
}

/// Removes the link of a container that is gone.
pub(super) fn unlink(
    layout: &Layout,
    pod: &str,
    namespace: &str,
    container: &str,
    id: &ContainerId,
) {
    remove(
        &layout
            .container_log_links()
            .join(name(pod, namespace, container, id.as_str())),
    );
}

/// Removes the links into log directories that are gone. A container's link goes with its record; those of lost records are
/// found here, once for all pods.
pub(super) fn sweep(layout: &Layout) {
    let links = layout.container_log_links();
    let ours = from_links(layout, &layout.logs_dir());
    for entry in fs::read_dir(&links).into_iter().flatten().flatten() {
        let path = entry.path();
        let log = fs::read_link(&path).ok().filter(|l| l.starts_with(&ours));
        // The log itself may be missing for a moment, while it is rotated.
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

/// The part before the id is cut where the whole were too long for a file name, as the kubelet does.
fn name(pod: &str, namespace: &str, container: &str, id: &str) -> String {
    let suffix = format!("-{id}.log");
    let mut prefix = format!("{pod}_{namespace}_{container}");
    prefix.truncate(MAX_NAME.saturating_sub(suffix.len()));
    prefix + &suffix
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for id in ["1", "2"] {
            link(&layout, "web", "default", "app", &id.into(), &log);
            link(&layout, "web", "default", "app", &id.into(), &log);
        }
        link(&layout, "other", "default", "app", &"3".into(), &rotated);
        let at = |name: &str| layout.container_log_links().join(name);
        let there = |name| fs::symlink_metadata(at(name)).is_ok();
        assert_eq!(
            fs::read_to_string(at("web_default_app-1.log")).unwrap(),
            "x"
        );
        unlink(&layout, "web", "default", "app", &"1".into());
        unlink(&layout, "web", "default", "app", &"1".into());
        assert!(!there("web_default_app-1.log") && there("web_default_app-2.log"));
        // Of somebody else, and into a directory that is gone.
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
    }

    /// A collector mounts the log directory of the node where it likes.
    #[test]
    fn a_link_leads_to_the_log_wherever_the_log_directory_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().join("node"));
        let logs = layout.logs_dir().join("default_web_1");
        fs::create_dir_all(logs.join("app")).unwrap();
        fs::write(logs.join("app/0.log"), "x").unwrap();
        let log = logs.join("app/0.log");
        link(&layout, "web", "default", "app", &"1".into(), &log);
        let seen = dir.path().join("seen");
        fs::rename(layout.container_log_links().parent().unwrap(), &seen).unwrap();
        let link = seen.join("containers/web_default_app-1.log");
        assert_eq!(fs::read_to_string(&link).unwrap(), "x");
    }

    #[test]
    fn a_name_is_never_too_long_for_a_file() {
        let long = name(&"p".repeat(253), "default", "app", &"a".repeat(64));
        assert_eq!(long.len(), MAX_NAME);
        assert!(
            long.ends_with(&format!("-{}.log", "a".repeat(64))),
            "{long}"
        );
    }
}
