//! From what a person typed to the pod that is meant.

use super::columns;
use crate::views::{PodView, Snapshot};

/// The name is of no pod, or of more than one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// No such pod; perhaps this one was meant.
    NotFound {
        /// As typed.
        name: String,
        /// The likely name.
        likely: Option<String>,
    },
    /// Pods of that name in several namespaces.
    Ambiguous {
        /// As typed.
        name: String,
        /// Where.
        namespaces: Vec<String>,
    },
}

impl std::fmt::Display for NameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound { name, likely: None } => {
                write!(f, "Error from server (NotFound): pods \"{name}\" not found")
            }
            Self::NotFound {
                name,
                likely: Some(likely),
            } => {
                write!(
                    f,
                    "Error from server (NotFound): pods \"{name}\" not found\ndid you mean \"{likely}\"?"
                )
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

/// The pods of a namespace, or of all.
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

/// The pod of that name, with or without the node's suffix. A whole name goes before a shortened one.
pub fn resolve<'a>(
    snapshot: &'a Snapshot,
    namespace: Option<&str>,
    name: &str,
) -> Result<&'a PodView, NameError> {
    let suffixed = format!("{name}-{}", snapshot.node_name.to_lowercase());
    let of = |wanted: &str| {
        in_namespace(snapshot, namespace)
            .filter(|p| columns::name(p) == wanted)
            .collect::<Vec<_>>()
    };
    let whole = of(name);
    let found = if whole.is_empty() {
        of(&suffixed)
    } else {
        whole
    };
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(NameError::NotFound {
            name: name.into(),
            likely: likely(snapshot, namespace, name),
        }),
        several => Err(NameError::Ambiguous {
            name: name.into(),
            namespaces: several
                .iter()
                .map(|p| columns::namespace(p).into())
                .collect(),
        }),
    }
}

/// Compares with the names without suffix too, for the suffix is longer than most misspellings.
fn likely(snapshot: &Snapshot, namespace: Option<&str>, name: &str) -> Option<String> {
    let suffix = format!("-{}", snapshot.node_name.to_lowercase());
    let names: Vec<&str> = in_namespace(snapshot, namespace)
        .map(columns::name)
        .collect();
    let short = names.iter().filter_map(|n| n.strip_suffix(suffix.as_str()));
    nearest(name, names.iter().copied().chain(short)).map(str::to_owned)
}

/// The known word that needs the fewest changes, if it is few enough to be meant: a third of the word, at least one.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    known
        .map(|k| (distance(word, k), k))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Insertions, deletions, replacements and swaps of neighbours between the two (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                let swapped: usize = before[j - 2];
                best = best.min(swapped + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::sync::Arc;

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
        check(
            &pods,
            Some("other"),
            "db",
            "Error from server (NotFound): pods \"db\" not found",
        );
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
            "Error from server (NotFound): pods \"flaper\" not found\ndid you mean \"flapper\"?",
        );
        check(
            &pods,
            None,
            "jbo-edge",
            "Error from server (NotFound): pods \"jbo-edge\" not found\ndid you mean \"job-edge\"?",
        );
        check(
            &pods,
            None,
            "database",
            "Error from server (NotFound): pods \"database\" not found",
        );
    }

    #[test]
    fn distance_counts_edits_and_swaps() {
        for (a, b, d) in [
            ("", "abc", 3),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("abc", "ab", 1),
            ("kitten", "sitting", 3),
            ("gte", "get", 1),
        ] {
            assert_eq!(distance(a, b), d, "{a} {b}");
            assert_eq!(distance(b, a), d, "{b} {a}");
        }
    }
}
