//! Selects the logs of a pod that the daemon knows.
//!
//! Invariants: pure. The default container, the message about it and the errors are kubectl's.

use std::path::{Path, PathBuf};

use super::Wanted;
use crate::cli::columns;
use crate::cli::suggest::did_you_mean;
use crate::face::views::PodView;
use crate::face::views::log_instance::attempt;
use crate::pods::admission::Rejection;

/// The annotation that names the default container of commands.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The log of one instance of a container, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Full name of the pod.
    pub pod: String,
    /// UID of the pod; empty if no daemon is running.
    pub uid: String,
    /// Name of the container.
    pub container: String,
    /// Number of restarts before this instance.
    pub attempt: u32,
    /// Path of the file that is written now. Older parts of the log are beside it.
    pub file: PathBuf,
}

impl Target {
    /// Makes the target for a log in the directory of its pod. `pod` has the name and the UID.
    pub fn new(pod_logs: &Path, pod: (&str, &str), container: &str, attempt: u32) -> Self {
        Self {
            pod: pod.0.into(),
            uid: pod.1.into(),
            container: container.into(),
            attempt,
            file: pod_logs.join(container).join(format!("{attempt}.log")),
        }
    }
}

/// The selected logs, and notes about the selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The logs, in the order of the pod's containers. Init containers come first.
    pub targets: Vec<Target>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Selects the requested logs of a pod.
///
/// # Errors
/// Returns a sentence if there is no such container or no log.
pub fn choose(pod: &PodView, wanted: &Wanted, previous: bool) -> Result<Choice, String> {
    match wanted {
        Wanted::All => {
            let (init, regular) = (columns::init_containers(pod), columns::containers(pod));
            let all = [init, regular, columns::ephemeral_containers(pod)];
            every(pod, &all.concat(), previous)
        }
        Wanted::Named(_) | Wanted::Default => {
            let named = match wanted {
                Wanted::Named(name) => Some(name.as_str()),
                _ => None,
            };
            let (name, note) = container(pod, named)?;
            Ok(Choice {
                targets: vec![target(pod, &name, previous)?],
                notes: note.into_iter().collect(),
            })
        }
    }
}

/// Returns the container with this name. Without a name, returns the default container, and kubectl's message
/// about that choice.
///
/// # Errors
/// Returns a sentence if there is no such container.
pub fn container(pod: &PodView, named: Option<&str>) -> Result<(String, Option<String>), String> {
    let (regular, init) = (columns::containers(pod), columns::init_containers(pod));
    let ephemeral = columns::ephemeral_containers(pod);
    let all = [init.as_slice(), &regular, &ephemeral].concat();
    match named {
        Some(name) if all.contains(&name) => Ok((name.into(), None)),
        Some(name) => Err(format!(
            "container {name} is not valid for pod {}: its containers are [{}]{}",
            columns::name(pod),
            all.join(" "),
            did_you_mean(name, all.iter().copied(), "")
        )),
        None => {
            let annotated = pod.object["metadata"]["annotations"][DEFAULT_CONTAINER].as_str();
            let annotated = annotated.filter(|name| all.contains(name));
            let name = annotated.or(regular.first().copied()).unwrap_or_default();
            let unclear = annotated.is_none() && all.len() > 1;
            let note = unclear.then(|| defaulted(name, &regular, &init, &ephemeral));
            Ok((name.into(), note))
        }
    }
}

/// Returns kubectl's message about the default container that was chosen.
pub fn defaulted(name: &str, regular: &[&str], init: &[&str], ephemeral: &[&str]) -> String {
    let init = init.iter().map(|name| format!("{name} (init)"));
    let ephemeral = ephemeral.iter().map(|name| format!("{name} (ephem)"));
    let all: Vec<String> = regular
        .iter()
        .map(|n| (*n).to_owned())
        .chain(ephemeral)
        .chain(init)
        .collect();
    format!("Defaulted container \"{name}\" out of: {}", all.join(", "))
}

/// Selects the logs of all these containers. For a container without a log, adds a note and continues with the
/// next container.
fn every(pod: &PodView, containers: &[&str], previous: bool) -> Result<Choice, String> {
    let mut choice = Choice::default();
    for name in containers {
        match target(pod, name, previous) {
            Ok(target) => choice.targets.push(target),
            Err(why) => choice.notes.push(why),
        }
    }
    match choice.targets.is_empty() && !choice.notes.is_empty() {
        true => Err(choice.notes.remove(0)),
        false => Ok(choice),
    }
}

fn target(pod: &PodView, container: &str, previous: bool) -> Result<Target, String> {
    let name = columns::name(pod);
    let attempt = attempt(pod.status.container(container), previous);
    let attempt = attempt.map_err(|why| match Rejection::of(&pod.status) {
        Some(rejection) => {
            let what = rejection.consequence(pod.status.phase);
            let Rejection { reason, message } = rejection;
            format!("pod \"{name}\" {what}: {reason}: {message}")
        }
        None => why.text(container, name),
    })?;
    let (dir, pod) = (Path::new(&pod.log_dir), (name, pod.uid()));
    Ok(Target::new(dir, pod, container, attempt))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(regular: &[&str], init: &[&str], statuses: Value) -> PodView {
        let named =
            |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
        let spec = json!({"containers": named(regular), "initContainers": named(init)});
        serde_json::from_value(json!({
            "object": {"metadata": {"name": "web"}, "spec": spec},
            "status": {"containerStatuses": statuses},
            "file": "", "warnings": [], "terminating": false, "logDir": "/logs", "events": [],
        }))
        .unwrap()
    }

    fn running(names: &[&str]) -> Value {
        let state = json!({"running": {"startedAt": null}});
        let one = |name: &&str| json!({"name": name, "restartCount": 1, "state": state});
        names.iter().map(one).collect()
    }

    /// Checks the selected logs and the notes.
    #[track_caller]
    fn check(pod: &PodView, wanted: &Wanted, targets: &[&str], notes: &[&str]) {
        let choice = choose(pod, wanted, false).unwrap();
        let files: Vec<&str> = choice
            .targets
            .iter()
            .map(|t| t.file.to_str().unwrap())
            .collect();
        assert_eq!(
            (files.as_slice(), choice.notes.as_slice()),
            (
                targets,
                &*notes.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()
            )
        );
    }

    #[test]
    fn the_default_container_is_kubectls() {
        let default = Wanted::Default;
        check(
            &pod(&["a"], &[], running(&["a"])),
            &default,
            &["/logs/a/1.log"],
            &[],
        );
        let mut several = pod(&["b", "a"], &["i"], running(&["b", "a", "i"]));
        let word = "Defaulted container \"b\" out of: b, a, i (init)";
        check(&several, &default, &["/logs/b/1.log"], &[word]);
        check(
            &several,
            &Wanted::Named("i".into()),
            &["/logs/i/1.log"],
            &[],
        );
        let mut annotate = |name: &str| {
            let mut object = Value::clone(&several.object);
            object["metadata"]["annotations"] = json!({DEFAULT_CONTAINER: name});
            several.object = object.into();
            several.clone()
        };
        check(&annotate("a"), &default, &["/logs/a/1.log"], &[]);
        check(&annotate("c"), &default, &["/logs/b/1.log"], &[word]);
        let named = pod(&["web", "side"], &["first"], json!([]));
        assert_eq!(
            container(&named, Some("wbe")),
            Err("container wbe is not valid for pod web: its containers are [first web side], did you mean 'web'?".into())
        );
    }

    #[test]
    fn of_all_containers_those_without_a_log_are_named() {
        let waiting = "container \"b\" in pod \"web\" is waiting to start: ContainerCreating";
        let both = pod(&["b", "a"], &["i"], running(&["a", "i"]));
        let files = ["/logs/i/1.log", "/logs/a/1.log"];
        check(&both, &Wanted::All, &files, &[waiting]);
        let none = pod(&["b", "c"], &[], json!([]));
        assert_eq!(choose(&none, &Wanted::All, false), Err(waiting.into()));
    }
}
