//! Selects logs without a daemon: finds pods, containers and instances in the directory of logs.
//!
//! Invariants: nothing is changed. Names in the directory are only compared with the words of the user. No
//! path is made from those words.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::choose::{Choice, Target, defaulted};
use super::{Logs, Pods, Wanted};
use crate::base::paths::Layout;
use crate::cli::names::{self, NameError};
use crate::cli::suggest::did_you_mean;
use crate::daemon::settings::{Overrides, Settings};
use crate::face::views::log_instance::NoLog;

/// The directory of a pod's logs, which is named `<namespace>_<name>_<uid>`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodLogs {
    namespace: String,
    name: String,
    path: PathBuf,
}

/// Finds the requested logs, and notes for the user.
///
/// # Errors
/// Returns a sentence if there is no log of such a pod or container, or if the user selects pods by labels.
/// Without a daemon, the labels of pods are not known.
pub fn find(logs: &Logs, layout: &Layout) -> Result<Choice, String> {
    let wanted = match &logs.pods {
        Pods::Named(wanted) => wanted,
        Pods::Labels(_) => {
            return Err(
                "logs have no labels: name a pod, or start the daemon, which knows them".into(),
            );
        }
        Pods::Of { .. } => {
            return Err(
                "logs do not say of which workload they are: name a pod, or start the daemon, which knows it".into(),
            );
        }
    };
    let dir = layout.logs_dir();
    let mut pods = pod_logs(&dir).map_err(|e| cannot_read(&dir, &e))?;
    pods.retain(|p| logs.namespace.as_ref().is_none_or(|n| *n == p.namespace));
    let node_name = Settings::load(layout, None, &Overrides::default()).map(|s| s.node_name);
    let names: Vec<_> = pods
        .iter()
        .map(|p| (p.namespace.as_str(), p.name.as_str()))
        .collect();
    let at = names::choose(&names, &node_name.unwrap_or_default(), wanted);
    let pod = &pods[at.map_err(|e| unknown(&dir, e))?];
    let containers = instances(&pod.path).map_err(|e| cannot_read(&pod.path, &e))?;
    choose(pod, &containers, logs)
}

fn cannot_read(dir: &Path, e: &io::Error) -> String {
    let hint = match e.kind() {
        io::ErrorKind::PermissionDenied => "; try again with sudo",
        _ => "",
    };
    format!("cannot read the logs in {}: {e}{hint}", dir.display())
}

fn unknown(dir: &Path, e: NameError) -> String {
    match e {
        NameError::Ambiguous { .. } => e.to_string(),
        NameError::NotFound { name, likely } => {
            let likely = likely.map(|name| format!(", did you mean '{name}'?"));
            format!(
                "{} has no log of a pod \"{name}\"{}",
                dir.display(),
                likely.unwrap_or_default()
            )
        }
    }
}

/// Finds the pods that have logs in a directory. If several pods have had the same name, only the newest of these
/// pods is returned.
fn pod_logs(dir: &Path) -> io::Result<Vec<PodLogs>> {
    let mut found: Vec<(SystemTime, PodLogs)> = Vec::new();
    for name in entries(dir)? {
        let mut parts = name.splitn(3, '_');
        let (Some(namespace), Some(pod), Some(_)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let path = dir.join(&name);
        found.push((
            last_change(&path),
            PodLogs {
                namespace: namespace.into(),
                name: pod.into(),
                path,
            },
        ));
    }
    found.sort_by(|(a_time, a), (b_time, b)| {
        let key = |p: &PodLogs| (p.namespace.clone(), p.name.clone());
        key(a).cmp(&key(b)).then(b_time.cmp(a_time))
    });
    let mut pods: Vec<PodLogs> = found.into_iter().map(|(_, pod)| pod).collect();
    pods.dedup_by(|b, a| (&a.namespace, &a.name) == (&b.namespace, &b.name));
    Ok(pods)
}

/// Returns the names in a directory. A missing directory counts as empty.
fn entries(dir: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => Ok(entries?
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .collect()),
    }
}

/// Returns the time of the last change to the pod's logs.
fn last_change(pod: &Path) -> SystemTime {
    let below = |dir: &Path| -> Vec<PathBuf> {
        let names = entries(dir).unwrap_or_default();
        names.iter().map(|name| dir.join(name)).collect()
    };
    let containers = below(pod);
    let files = containers.iter().flat_map(|dir| below(dir));
    let changed = |path: PathBuf| path.metadata().ok()?.modified().ok();
    let all = files
        .chain(containers.iter().cloned())
        .chain([pod.to_owned()]);
    all.filter_map(changed)
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Returns each container that has logs. The numbers are the container's instances that have a log, newest first.
fn instances(pod: &Path) -> io::Result<Vec<(String, Vec<u32>)>> {
    let mut found = Vec::new();
    for container in entries(pod)? {
        let dir = pod.join(&container);
        if !dir.is_dir() {
            continue;
        }
        let files = entries(&dir)?;
        let number = |file: &String| file.split_once(".log")?.0.parse::<u32>().ok();
        let mut attempts: Vec<u32> = files.iter().filter_map(number).collect();
        attempts.sort_unstable_by(|a, b| b.cmp(a));
        attempts.dedup();
        found.push((container, attempts));
    }
    found.sort();
    Ok(found)
}

fn choose(pod: &PodLogs, containers: &[(String, Vec<u32>)], logs: &Logs) -> Result<Choice, String> {
    let names: Vec<&str> = containers.iter().map(|(name, _)| name.as_str()).collect();
    let mut choice = Choice::default();
    let wanted = match &logs.containers {
        Wanted::All => containers,
        Wanted::Named(name) => {
            let at = names.iter().position(|n| n == name).ok_or_else(|| {
                let likely = did_you_mean(name, names.iter().copied(), "");
                format!(
                    "{} has no log of a container \"{name}\": it has those of [{}]{likely}",
                    pod.path.display(),
                    names.join(" ")
                )
            })?;
            &containers[at..=at]
        }
        Wanted::Default => {
            // The files do not show which container is the first of the pod.
            if names.len() > 1 {
                choice.notes.push(defaulted(names[0], &names, &[], &[]));
            }
            &containers[..containers.len().min(1)]
        }
    };
    for (name, attempts) in wanted {
        match (attempts.get(usize::from(logs.previous)), logs.previous) {
            (Some(attempt), _) => {
                let of = (pod.name.as_str(), "");
                choice
                    .targets
                    .push(Target::new(&pod.path, of, name, *attempt));
            }
            (None, true) => choice.notes.push(NoLog::NoPrevious.text(name, &pod.name)),
            (None, false) => {}
        }
    }
    match choice.targets.is_empty() && logs.previous && !choice.notes.is_empty() {
        true => Err(choice.notes.remove(0)),
        false => Ok(choice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::selector::Selector;
    use crate::engine::runtime::logs::LogOptions;

    /// Makes a directory of logs that has these files.
    fn world(files: &[&str]) -> (tempfile::TempDir, Layout) {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        for (age, file) in files.iter().enumerate() {
            let path = layout.logs_dir().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = fs::File::create(&path).unwrap();
            let hour = std::time::Duration::from_secs(3600);
            // Each file is newer than the file before it, and newer than the directories.
            let time = SystemTime::now() + hour * (age as u32 + 1);
            file.set_modified(time).unwrap();
        }
        (root, layout)
    }

    fn logs(line: &str) -> Logs {
        let words: Vec<&str> = line.split(' ').collect();
        Logs {
            root: "/".into(),
            pods: Pods::Named(words[0].into()),
            namespace: None,
            containers: match words.get(1) {
                None => Wanted::Default,
                Some(&"*") => Wanted::All,
                Some(name) => Wanted::Named((*name).into()),
            },
            follow: false,
            previous: words.get(2).is_some(),
            prefix: false,
            options: LogOptions::default(),
            running_timeout: super::super::RUNNING,
        }
    }

    /// Checks which logs `find` selects for the arguments in `line`: the name of a pod, then the name of a
    /// container or `*` for all, and optionally `-p`.
    #[track_caller]
    fn check(files: &[&str], line: &str, expected: Result<&[&str], &str>) {
        let (_root, layout) = world(files);
        let found = find(&logs(line), &layout);
        let dir = layout.logs_dir();
        let shown = found.map(|choice| {
            let name = |t: &Target| {
                t.file
                    .strip_prefix(&dir)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned()
            };
            choice.targets.iter().map(name).collect::<Vec<_>>()
        });
        let shown = shown.map_err(|e| e.replace(dir.to_str().unwrap(), "LOGS"));
        let expected = expected.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(shown, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn the_newest_instance_of_the_newest_pod_of_that_name() {
        let files = [
            "default_web-edge_old/main/7.log",
            "default_web-edge_new/main/1.log.2026-01-01-000000.000000001",
            "default_web-edge_new/main/9.log",
            "default_web-edge_new/main/10.log",
            "default_other_u/main/0.log",
            "stray",
        ];
        let newest: Result<&[&str], &str> = Ok(&["default_web-edge_new/main/10.log"]);
        check(&files, "web-edge", newest);
        check(&files, "web-edge main", newest);
        check(
            &files,
            "web-edge main -p",
            Ok(&["default_web-edge_new/main/9.log"]),
        );
        let none = "previous terminated container \"main\" in pod \"other\" not found";
        check(&files, "other main -p", Err(none));
    }

    #[test]
    fn rotated_files_alone_are_an_instance() {
        let files = ["default_web_u/main/3.log.2026-01-01-000000.000000001"];
        check(&files, "web", Ok(&["default_web_u/main/3.log"]));
    }

    #[test]
    fn all_containers_come_by_name() {
        let files = ["default_web_u/b/0.log", "default_web_u/a/2.log"];
        let both: Result<&[&str], &str> = Ok(&["default_web_u/a/2.log", "default_web_u/b/0.log"]);
        check(&files, "web *", both);
        check(&files, "web", Ok(&["default_web_u/a/2.log"]));
        let (_root, layout) = world(&files);
        let notes = find(&logs("web"), &layout).unwrap().notes;
        assert_eq!(notes, ["Defaulted container \"a\" out of: a, b"]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let files = [
            "a_web_u/main/0.log",
            "b_web_u/main/0.log",
            "a_data_u/main/0.log",
        ];
        let several = "pods \"web\" is in several namespaces: a, b; choose one with -n";
        check(&files, "web", Err(several));
        let likely = "LOGS has no log of a pod \"dat\", did you mean 'data'?";
        check(&files, "dat", Err(likely));
        check(&[], "web", Err("LOGS has no log of a pod \"web\""));
        let container =
            "LOGS/a_data_u has no log of a container \"../main\": it has those of [main]";
        check(&files, "data ../main", Err(container));
    }

    #[test]
    fn without_a_daemon_nobody_knows_labels() {
        let (_root, layout) = world(&["default_web_u/main/0.log"]);
        let labels = Logs {
            pods: Pods::Labels(Selector::parse("app=web").unwrap()),
            ..logs("web")
        };
        let error = find(&labels, &layout).unwrap_err();
        assert!(error.starts_with("logs have no labels: "), "{error}");
    }

    #[test]
    fn the_name_of_the_node_may_be_left_out() {
        let node = Settings::load(&Layout::new("/nonexistent"), None, &Overrides::default());
        let node = node.unwrap().node_name.to_lowercase();
        let file = format!("default_web-{node}_u/main/0.log");
        check(&[&file], "web", Ok(&[&file]));
    }
}
