//! `/var/log/containers/<pod>_<namespace>_<container>-<id>.log`: links to the logs by the names that fluent-bit, promtail
//! and vector look for (the kubelet's legacy log symlinks).

use std::ffi::OsString;
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

/// Removes every link into the log directory of a pod that is gone: also those of containers whose record was lost.
pub(super) fn unlink_all(layout: &Layout, logs: &Path) {
    let entries = fs::read_dir(layout.container_log_links());
    let begins = logs
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(prefix);
    let logs = from_links(layout, logs);
    let may_lead_there = |name: &OsString| {
        let begins = begins.as_deref().unwrap_or_default();
        name.as_encoded_bytes().starts_with(begins.as_bytes())
    };
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name());
    // Following the links of all other pods would be work that grows with their number.
    for name in names.filter(may_lead_there) {
        let path = layout.container_log_links().join(name);
        if fs::read_link(&path).is_ok_and(|target| target.starts_with(&logs)) {
            remove(&path);
        }
    }
}

/// How the links of a pod begin, from the name of its log directory, `<namespace>_<pod>_<uid>`. No part holds `_`.
fn prefix(logs: &str) -> Option<String> {
    let mut parts = logs.split('_');
    let (namespace, pod) = (parts.next()?, parts.next()?);
    parts.next()?;
    let mut prefix = format!("{pod}_{namespace}_");
    // Longer names are cut.
    prefix.truncate(MAX_NAME / 2);
    parts.next().is_none().then_some(prefix)
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
    fn the_name_of_a_log_directory_tells_how_its_links_begin() {
        assert_eq!(
            prefix("default_web-edge_u1").as_deref(),
            Some("web-edge_default_")
        );
        assert_eq!(prefix("default_web"), None);
        assert_eq!(prefix("a_b_c_d"), None);
        let id = ContainerId::from("1".repeat(64).as_str());
        let long = "p".repeat(200);
        let link = name(&long, "default", "app", id.as_str());
        assert!(link.starts_with(&prefix(&format!("default_{long}_u")).unwrap()));
    }

    #[test]
    fn a_link_leads_to_the_log_and_goes_with_its_container_or_its_pod() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let logs = dir.path().join("logs");
        fs::create_dir(&logs).unwrap();
        let log = logs.join("0.log");
        fs::write(&log, "x").unwrap();
        for id in ["1", "2"] {
            link(&layout, "web", "default", "app", &id.into(), &log);
            link(&layout, "web", "default", "app", &id.into(), &log);
        }
        let elsewhere = dir.path().join("1.log");
        link(&layout, "other", "default", "app", &"3".into(), &elsewhere);
        let at = |name: &str| layout.container_log_links().join(name);
        let there = |name| fs::symlink_metadata(at(name)).is_ok();
        assert_eq!(
            fs::read_to_string(at("web_default_app-1.log")).unwrap(),
            "x"
        );
        unlink(&layout, "web", "default", "app", &"1".into());
        unlink(&layout, "web", "default", "app", &"1".into());
        assert!(!there("web_default_app-1.log") && there("web_default_app-2.log"));
        unlink_all(&layout, &logs);
        assert!(!there("web_default_app-2.log") && there("other_default_app-3.log"));
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
        fs::rename(&seen, layout.container_log_links().parent().unwrap()).unwrap();
        unlink_all(&layout, &logs);
        assert_eq!(
            fs::read_dir(layout.container_log_links()).unwrap().count(),
            0
        );
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
