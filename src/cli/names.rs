//! Finds the pod for which a name on the command line stands.
//!
//! Invariants: pure. While a pod is being replaced, there are two pods with its name. The name stands for the
//! newer of the two pods.

use super::columns;
use super::suggest::did_you_mean;
use crate::api::source::SEEN_ANNOTATION;
use crate::base::clock::Time;
use crate::base::json;
use crate::base::spelling::nearest;
use crate::face::views::{PodView, Snapshot};

/// The name on the command line stands for no pod, or for pods in several namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// There is no pod with this name.
    NotFound {
        /// Name of the pod as the user typed it.
        name: String,
        /// A similar name of an existing pod, if there is one.
        likely: Option<String>,
    },
    /// Several namespaces have a pod with this name.
    Ambiguous {
        /// Name of the pods as the user typed it.
        name: String,
        /// The namespaces that have such a pod.
        namespaces: Vec<String>,
    },
}

impl std::fmt::Display for NameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound { name, likely: None } => {
                write!(f, "pods \"{name}\" not found")
            }
            Self::NotFound {
                name,
                likely: Some(likely),
            } => {
                write!(f, "pods \"{name}\" not found\ndid you mean \"{likely}\"?")
            }
            Self::Ambiguous { name, namespaces } => {
                write!(
                    f,
                    "pods \"{name}\" is in several namespaces: {}; choose one with -n",
                    namespaces.join(", ")
                )
            }
        }
    }
}

impl std::error::Error for NameError {}

/// Returns the pods of a namespace, or of all namespaces.
pub fn in_namespace<'a>(
    snapshot: &'a Snapshot,
    namespace: Option<&str>,
) -> impl Iterator<Item = &'a PodView> {
    snapshot
        .pods
        .iter()
        .map(AsRef::as_ref)
        .filter(move |p| namespace.is_none_or(|n| columns::namespace(p) == n))
}

/// Finds the pod with this name. The node's suffix may be left out of the name, but a pod with exactly this
/// name takes precedence.
pub fn resolve<'a>(
    snapshot: &'a Snapshot,
    namespace: Option<&str>,
    name: &str,
) -> Result<&'a PodView, NameError> {
    Ok(resolve_all(snapshot, namespace, name)?[0])
}

/// Finds the pod with this name as [`resolve`] does, and all further pods with the same name and namespace.
/// Further pods are older pods that are being stopped. The list is never empty, and the newest pod comes first.
pub fn resolve_all<'a>(
    snapshot: &'a Snapshot,
    namespace: Option<&str>,
    name: &str,
) -> Result<Vec<&'a PodView>, NameError> {
    let pods: Vec<&PodView> = in_namespace(snapshot, namespace).collect();
    let place = |p: &'a PodView| (columns::namespace(p), columns::name(p));
    let mut names: Vec<_> = pods.iter().map(|p| place(p)).collect();
    // A snapshot is sorted, so equal names are adjacent.
    names.dedup();
    let chosen = names[choose(&names, &snapshot.node_name, name)?];
    let mut all: Vec<&PodView> = pods.into_iter().filter(|p| place(p) == chosen).collect();
    all.sort_by_key(|p| std::cmp::Reverse(age(p)));
    Ok(all)
}

/// Returns a sort key that is greater for a newer pod. A pod that is being stopped counts as older than a pod that
/// is not being stopped.
fn age(pod: &PodView) -> (bool, Option<Time>, Option<Time>) {
    let seen = pod.object["metadata"]["annotations"][SEEN_ANNOTATION].clone();
    let seen = json::from_value(&seen).ok();
    (!pod.terminating, seen, pod.status.start_time)
}

/// Finds a pod as [`resolve`] does, in a list of namespaces and names. Returns the index of the pod in the list.
pub fn choose(pods: &[(&str, &str)], node_name: &str, name: &str) -> Result<usize, NameError> {
    let suffix = format!("-{}", node_name.to_lowercase());
    let suffixed = format!("{name}{suffix}");
    let of = |wanted: &str| -> Vec<usize> {
        let all = pods.iter().enumerate();
        all.filter(|(_, pod)| pod.1 == wanted)
            .map(|(at, _)| at)
            .collect()
    };
    let whole = of(name);
    let found = match whole.is_empty() {
        true => of(&suffixed),
        false => whole,
    };
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(NameError::NotFound {
            name: name.into(),
            likely: likely(pods, &suffix, name),
        }),
        several => Err(NameError::Ambiguous {
            name: name.into(),
            namespaces: several.iter().map(|at| pods[*at].0.into()).collect(),
        }),
    }
}

/// Returns a similar name of a pod. Names are also compared without the node's suffix, because the suffix is
/// often longer than the name.
fn likely(pods: &[(&str, &str)], suffix: &str, name: &str) -> Option<String> {
    let names = pods.iter().map(|(_, name)| *name);
    let short = names.clone().filter_map(|n| n.strip_suffix(suffix));
    nearest(name, names.chain(short)).map(str::to_owned)
}

/// Returns the sentence for an object that is not found, with a hint if another namespace has it or a similar
/// name exists. `all` are the namespaces and names of the existing objects.
pub fn missing<'a>(
    plural: &str,
    name: &str,
    namespace: Option<&str>,
    all: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> String {
    let others = all.clone().filter(|(_, n)| *n == name);
    let others: Vec<&str> = others.map(|(namespace, _)| namespace).collect();
    let hint = match others[..] {
        [] => {
            let here = all.filter(|(n, _)| namespace.is_none_or(|wanted| wanted == *n));
            did_you_mean(name, here.map(|(_, n)| n), "")
        }
        [one] => format!("; there is one in another namespace: -n {one}"),
        _ => format!(
            "; there are some in other namespaces, choose one with -n: {}",
            others.join(", ")
        ),
    };
    format!("{plural} \"{name}\" not found{hint}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn snapshot(pods: &[(&str, &str)]) -> Snapshot {
        let view = |(namespace, name): &(&str, &str)| PodView {
            object: json!({"metadata": {"namespace": namespace, "name": name}}).into(),
            status: Default::default(),
            file: String::new(),
            warnings: vec![],
            file_error: None,
            terminating: false,
            log_dir: String::new(),
            events: vec![],
            paused: vec![],
            pulls: vec![],
            network_lacks: vec![],
        };
        Snapshot {
            node_name: "Edge".into(),
            pods: pods.iter().map(view).map(Arc::new).collect(),
            ..Snapshot::default()
        }
    }

    #[track_caller]
    fn check(pods: &[(&str, &str)], namespace: Option<&str>, name: &str, expected: &str) {
        let snapshot = snapshot(pods);
        let got = match resolve(&snapshot, namespace, name) {
            Ok(view) => format!("{}/{}", columns::namespace(view), columns::name(view)),
            Err(e) => e.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn pods_are_named_with_or_without_the_suffix() {
        let pods = [
            ("default", "web-edge"),
            ("default", "web"),
            ("default", "db-edge"),
        ];
        check(&pods, None, "web", "default/web");
        check(&pods, None, "web-edge", "default/web-edge");
        check(&pods, None, "db", "default/db-edge");
        check(&pods, Some("other"), "db", "pods \"db\" not found");
    }

    /// While an old and a new pod have the same name, the name stands for the new pod. The old pod exists until
    /// its containers have ended.
    #[test]
    fn of_two_pods_of_a_name_the_newer_one_is_meant() {
        let pod = |uid: &str, seen: &str, terminating: bool| {
            let annotations = json!({SEEN_ANNOTATION: format!("2026-01-01T00:00:{seen}Z")});
            let metadata = json!({"name": "web-edge", "namespace": "default", "uid": uid, "annotations": annotations});
            json!({"object": {"metadata": metadata}, "status": {}, "file": "", "warnings": [],
                "terminating": terminating, "logDir": "", "events": []})
        };
        let order = |pods: [Value; 2]| {
            let snapshot: Snapshot = serde_json::from_value(
                json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": []}),
            )
            .unwrap();
            let all = resolve_all(&snapshot, None, "web").unwrap();
            all.iter().map(|p| p.uid().to_owned()).collect::<Vec<_>>()
        };
        let (old, new) = (pod("a", "01", true), pod("b", "02", false));
        assert_eq!(order([old.clone(), new.clone()]), ["b", "a"]);
        assert_eq!(order([new, old]), ["b", "a"]);
        let (old, new) = (pod("a", "01", false), pod("b", "02", false));
        assert_eq!(order([old, new]), ["b", "a"]);
        // The old pod was read again after the new pod, for example by another daemon.
        let (old, new) = (pod("a", "02", true), pod("b", "01", false));
        assert_eq!(order([old, new]), ["b", "a"]);
    }

    #[test]
    fn two_namespaces_need_a_choice() {
        let pods = [("a", "web-edge"), ("b", "web-edge")];
        check(
            &pods,
            None,
            "web",
            "pods \"web\" is in several namespaces: a, b; choose one with -n",
        );
        check(&pods, Some("b"), "web", "b/web-edge");
    }

    #[test]
    fn an_unknown_name_gets_the_likely_one() {
        let pods = [("default", "flapper-edge"), ("default", "job-edge")];
        check(
            &pods,
            None,
            "flaper",
            "pods \"flaper\" not found\ndid you mean \"flapper\"?",
        );
        check(
            &pods,
            None,
            "jbo-edge",
            "pods \"jbo-edge\" not found\ndid you mean \"job-edge\"?",
        );
        check(&pods, None, "database", "pods \"database\" not found");
    }

    #[track_caller]
    fn check_missing(namespace: Option<&str>, name: &str, expected: &str) {
        let all = [
            ("shop", "web"),
            ("shop", "cart"),
            ("test", "cart"),
            ("default", "api"),
        ];
        let text = missing("services", name, namespace, all.into_iter());
        assert_eq!(text, format!("services {expected}"));
    }

    #[test]
    fn an_object_that_is_not_found_is_suggested_where_it_is() {
        check_missing(
            Some("default"),
            "web",
            "\"web\" not found; there is one in another namespace: -n shop",
        );
        check_missing(
            Some("default"),
            "cart",
            "\"cart\" not found; there are some in other namespaces, choose one with -n: shop, test",
        );
        check_missing(
            Some("default"),
            "apo",
            "\"apo\" not found, did you mean 'api'?",
        );
        check_missing(Some("default"), "wbe", "\"wbe\" not found");
        check_missing(None, "wbe", "\"wbe\" not found, did you mean 'web'?");
    }
}
