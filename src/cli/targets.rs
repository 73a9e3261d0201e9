//! Pods and workloads on the command line of verbs that take both: `web`, `pod/web`, `deployment/web`, `deploy web db`,
//! or with `-l` kinds alone.
//!
//! Invariants: pure. Without a kind, a name and a selector are those of pods.

use super::args::{Raw, SELECTOR};
use super::columns::string_map;
use super::kinds::is_pod_word;
use super::names::{self, NameError};
use super::selector::Selector;
use super::workload_names::{Asked, Named, kind_of};
use super::workload_pods::Target;
use crate::face::views::{PodView, Snapshot};
use crate::workloads::view::{WorkloadList, WorkloadView};

/// The pods and workloads that a command line names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Targets {
    /// The pods and workloads of these names. The list is empty if the command line has no words.
    Named(Vec<Target>),
    /// The pods and workloads with these labels.
    Labels {
        /// True if pods are among the kinds.
        pods: bool,
        /// The labels of pods.
        selector: Selector,
        /// The workloads, or None if no kind of them is given.
        workloads: Option<Asked>,
    },
}

/// A name that stands for nothing, or for several.
pub(super) struct Lacking {
    /// The error.
    pub(super) why: String,
    /// True if nothing has the name.
    pub(super) is_missing: bool,
}

/// The pods and workloads that were found, and an error for each name that stands for nothing.
#[derive(Default)]
pub(super) struct Found<'a> {
    pub(super) pods: Vec<&'a PodView>,
    pub(super) workloads: Vec<&'a WorkloadView>,
    pub(super) lacking: Vec<Lacking>,
}

impl Targets {
    /// Parses `NAME…`, `KIND NAME…`, `KIND/NAME…`, or with `-l` the kinds `[KIND[,KIND]…]`.
    ///
    /// # Errors
    /// Returns a sentence if the words are not of these forms.
    pub(super) fn parse(raw: &Raw, words: &[String]) -> Result<Self, String> {
        if raw.has(SELECTOR.name) {
            return labels(raw, words);
        }
        let kind = words.first().and_then(|word| kind_of(word));
        let (words, kind) = match (words, kind) {
            ([_, names @ ..], Some(kind)) if !names.is_empty() => (names, Some(kind)),
            ([first, names @ ..], None) if is_pod_word(first) && !names.is_empty() => (names, None),
            _ => (words, None),
        };
        let one = |word: &String| match kind {
            Some(kind) if !word.contains('/') && !word.is_empty() => Ok(Target::Workload(Named {
                kind,
                name: word.clone(),
            })),
            _ => Target::parse(word),
        };
        words
            .iter()
            .map(one)
            .collect::<Result<_, _>>()
            .map(Self::Named)
    }

    /// Tells whether workloads are among the targets.
    pub(super) fn has_workloads(&self) -> bool {
        match self {
            Self::Named(all) => all.iter().any(|one| matches!(one, Target::Workload(_))),
            Self::Labels { workloads, .. } => workloads.is_some(),
        }
    }

    /// Finds the pods and workloads.
    pub(super) fn find<'a>(
        &self,
        snapshot: &'a Snapshot,
        list: &'a WorkloadList,
        namespace: Option<&str>,
    ) -> Found<'a> {
        let mut found = Found::default();
        match self {
            Self::Named(all) => {
                for target in all {
                    found.add(target, snapshot, list, namespace);
                }
            }
            Self::Labels {
                pods,
                selector,
                workloads,
            } => {
                let has = |pod: &&PodView| {
                    *pods && selector.matches(&string_map(&pod.object["metadata"]["labels"]))
                };
                let all = names::in_namespace(snapshot, namespace);
                found.pods.extend(all.filter(has));
                if let Some(asked) = workloads {
                    found.workloads = asked.find(&list.items, namespace).0;
                }
            }
        }
        found
    }
}

impl<'a> Found<'a> {
    fn add(
        &mut self,
        target: &Target,
        snapshot: &'a Snapshot,
        list: &'a WorkloadList,
        namespace: Option<&str>,
    ) {
        let lacking = match target {
            Target::Pod(name) => match names::resolve(snapshot, namespace, name) {
                Ok(pod) => return self.pods.push(pod),
                Err(e) => Lacking {
                    why: e.to_string(),
                    is_missing: matches!(e, NameError::NotFound { .. }),
                },
            },
            Target::Workload(named) => match named.find(&list.items, namespace) {
                Ok(view) => return self.workloads.push(view),
                Err(why) => Lacking {
                    why,
                    is_missing: named.all(&list.items, namespace).next().is_none(),
                },
            },
        };
        self.lacking.push(lacking);
    }
}

/// Parses the kinds before `-l`. Without a kind, they are pods.
fn labels(raw: &Raw, words: &[String]) -> Result<Targets, String> {
    let selector = raw.selector()?.ok_or("-l needs labels")?;
    let (mut pods, mut kinds) = (words.is_empty(), Vec::new());
    if words.len() > 1 || words.iter().any(|word| word.contains('/')) {
        return Err("-l and names exclude each other".into());
    }
    for word in words.iter().flat_map(|word| word.split(',')) {
        match kind_of(word) {
            Some(kind) => kinds.push(kind),
            None if is_pod_word(word) => pods = true,
            None => {
                return Err(format!(
                    "'-l' takes pods and kinds of workloads, not '{word}'"
                ));
            }
        }
    }
    let workloads = (!kinds.is_empty()).then(|| Asked::Kinds(kinds, Some(selector.clone())));
    Ok(Targets::Labels {
        pods,
        selector,
        workloads,
    })
}
