//! Merges full sets of pods into operations, per source and by UID (kubelet-probes 6.6).
//!
//! Invariants: the operations of one merge, in their order, turn the old set into the new set. An unchanged pod is in
//! no operation, and its `config.seen` never changes. The merge sends nothing. The thread of the source sends the
//! operations after the lock is released. Each source has only one thread, which keeps the order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::api::source::{MIRROR_ANNOTATION, SEEN_ANNOTATION, SOURCE_ANNOTATION};
use crate::api::{Pod, PodRef, PodSource, PodUid};
use crate::base::clock::Time;
use crate::base::locks::Locked;

/// The capacity of the channel of [`PodUpdate`]s into the sync loop. A source waits while the channel is full.
pub const UPDATES_CAPACITY: usize = 50;

/// The annotations that the node sets. Comparisons ignore them.
const LOCAL: [&str; 3] = [SOURCE_ANNOTATION, MIRROR_ANNOTATION, SEEN_ANNOTATION];

/// The change that an update makes to its pods. The numbers are the kubelet's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodOperation {
    /// The pod is new in this source.
    Add = 0,
    /// The pod has got a deletion timestamp and must end gracefully.
    Delete = 1,
    /// The pod is no longer in the source.
    Remove = 2,
    /// The pod has changed in more than its status.
    Update = 3,
    /// Only the pod's status has changed, as the source reports it.
    Reconcile = 4,
}

impl fmt::Display for PodOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "ADD",
            Self::Delete => "DELETE",
            Self::Remove => "REMOVE",
            Self::Update => "UPDATE",
            Self::Reconcile => "RECONCILE",
        })
    }
}

/// An update of pods from a source to the sync loop.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUpdate {
    /// The change to make to the pods.
    pub op: PodOperation,
    /// The source of the pods.
    pub source: PodSource,
    /// The pods. The list is empty only in the ADD for an empty first set.
    pub pods: Vec<Arc<Pod>>,
}

/// The result of a merge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// The updates, in the order in which they are sent.
    pub updates: Vec<PodUpdate>,
    /// The dropped pods, each with the text of its Warning event `FailedValidation`.
    pub dropped: Vec<(PodRef, String)>,
}

#[derive(Default)]
struct SourceState {
    sent: bool,
    handled: bool,
    pods: BTreeMap<PodUid, Known>,
}

/// A pod that a source has passed.
struct Known {
    /// The pod as the source passed it. If the source passes the same object again, no comparison is needed.
    given: Arc<Pod>,
    /// The pod as it was sent to the sync loop.
    pod: Arc<Pod>,
}

/// The known pods of every source. Each method holds the lock only for a list operation.
pub struct PodConfig {
    sources: Mutex<BTreeMap<PodSource, SourceState>>,
}

impl PodConfig {
    /// Makes a merge of these sources. [`PodConfig::all_seen`] waits for all these sources.
    pub fn new(sources: &[PodSource]) -> Self {
        Self {
            sources: Mutex::new(
                sources
                    .iter()
                    .map(|&s| (s, SourceState::default()))
                    .collect(),
            ),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodSource, SourceState>> {
        self.sources.locked()
    }

    /// Takes the new full set of a source. `now` becomes `kubernetes.io/config.seen` of the new pods.
    pub fn merge(&self, source: PodSource, set: Vec<Arc<Pod>>, now: SystemTime) -> Merged {
        let mut sources = self.lock();
        let state = sources.entry(source).or_default();
        let first = !std::mem::replace(&mut state.sent, true);
        let (set, dropped) = drop_duplicates(source, set);
        let (pods, groups) = compare(source, &state.pods, set, now);
        state.pods = pods;
        Merged {
            updates: groups.in_order(source, first),
            dropped,
        }
    }

    /// Records that the sync loop has handled an update of this source.
    pub fn mark_handled(&self, source: PodSource) {
        self.lock().entry(source).or_default().handled = true;
    }

    /// True if the sync loop has handled an update of this source.
    pub fn has_handled(&self, source: PodSource) -> bool {
        self.lock().get(&source).is_some_and(|state| state.handled)
    }

    /// True if every source has sent a set and the sync loop has handled an update of each source. From then on an
    /// unknown pod must end.
    pub fn all_seen(&self) -> bool {
        self.unseen().is_empty()
    }

    /// Returns the sources for which [`PodConfig::all_seen`] still waits.
    pub fn unseen(&self) -> Vec<PodSource> {
        let sources = self.lock();
        let unseen = sources.iter().filter(|(_, s)| !(s.sent && s.handled));
        unseen.map(|(source, _)| *source).collect()
    }
}

/// Drops the second pod with the same name or UID in one set (6.6 step 1).
fn drop_duplicates(
    source: PodSource,
    set: Vec<Arc<Pod>>,
) -> (Vec<Arc<Pod>>, Vec<(PodRef, String)>) {
    let (mut names, mut uids) = (BTreeSet::new(), BTreeSet::new());
    let mut dropped = Vec::new();
    let mut kept = Vec::with_capacity(set.len());
    for pod in set {
        let reference = pod.reference();
        let what = if !names.insert(pod.full_name()) {
            format!("duplicate pod name \"{}\"", reference.name)
        } else if !uids.insert(reference.uid.clone()) {
            format!("duplicate pod uid \"{}\"", reference.uid)
        } else {
            kept.push(pod);
            continue;
        };
        let text =
            format!("Error validating pod {reference} from {source} due to {what}, ignoring");
        dropped.push((reference, text));
    }
    (kept, dropped)
}

#[derive(Default)]
struct Groups {
    remove: Vec<Arc<Pod>>,
    add: Vec<Arc<Pod>>,
    update: Vec<Arc<Pod>>,
    delete: Vec<Arc<Pod>>,
    reconcile: Vec<Arc<Pod>>,
}

impl Groups {
    /// Returns the updates in the order in which they are sent (6.6 step 6).
    fn in_order(self, source: PodSource, first: bool) -> Vec<PodUpdate> {
        let tells_nothing = self.add.is_empty() && self.update.is_empty() && self.delete.is_empty();
        let mut out = Vec::new();
        let mut push = |op, pods: Vec<Arc<Pod>>, even_empty| {
            if even_empty || !pods.is_empty() {
                out.push(PodUpdate { op, source, pods });
            }
        };
        push(PodOperation::Remove, self.remove, false);
        push(PodOperation::Add, self.add, false);
        push(PodOperation::Update, self.update, false);
        push(PodOperation::Delete, self.delete, false);
        push(PodOperation::Add, Vec::new(), first && tells_nothing);
        push(PodOperation::Reconcile, self.reconcile, false);
        out
    }
}

/// kubelet-probes 6.6 steps 2 to 5: returns the set to remember, and the pods of each operation.
fn compare(
    source: PodSource,
    old: &BTreeMap<PodUid, Known>,
    set: Vec<Arc<Pod>>,
    now: SystemTime,
) -> (BTreeMap<PodUid, Known>, Groups) {
    let mut pods = BTreeMap::new();
    let mut groups = Groups::default();
    for pod in set {
        let given = Arc::clone(&pod);
        let known = old.get(pod.uid());
        let is_the_same = known.is_some_and(|known| Arc::ptr_eq(&known.given, &given));
        let pod = match known.map(|known| &known.pod) {
            Some(known) if is_the_same => Arc::clone(known),
            None => {
                let mut pod = Arc::unwrap_or_clone(pod);
                let seen = Time::with_nanos(now);
                let source = source.as_str().to_owned();
                annotate(
                    &mut pod,
                    &[
                        (SOURCE_ANNOTATION, Some(source)),
                        (SEEN_ANNOTATION, Some(seen)),
                    ],
                );
                let pod = Arc::new(pod);
                groups.add.push(Arc::clone(&pod));
                pod
            }
            Some(known)
                if same_but_status(known, &pod)
                    && known.raw.at("/status") == pod.raw.at("/status") =>
            {
                Arc::clone(known)
            }
            Some(known) => {
                let group = if same_but_status(known, &pod) {
                    &mut groups.reconcile
                } else if pod.metadata.deletion_timestamp.is_some() {
                    &mut groups.delete
                } else {
                    &mut groups.update
                };
                let pod = Arc::new(adopt(known, Arc::unwrap_or_clone(pod)));
                group.push(Arc::clone(&pod));
                pod
            }
        };
        pods.insert(pod.uid().clone(), Known { given, pod });
    }
    groups.remove = old
        .iter()
        .filter(|(uid, _)| !pods.contains_key(*uid))
        .map(|(_, known)| Arc::clone(&known.pod))
        .collect();
    (pods, groups)
}

/// True if two pods are equal in everything that a worker could act on. The raw spec counts too, because people see it.
fn same_but_status(a: &Pod, b: &Pod) -> bool {
    #[cfg(test)]
    tests::COMPARED.set(tests::COMPARED.get() + 1);
    let own = |p: &Pod| {
        let keep = |k: &&String| !LOCAL.contains(&k.as_str());
        p.metadata
            .annotations
            .keys()
            .filter(keep)
            .map(|k| (k.clone(), p.metadata.annotations[k].clone()))
            .collect::<Vec<_>>()
    };
    a.spec == b.spec
        && a.metadata.labels == b.metadata.labels
        && a.metadata.deletion_timestamp == b.metadata.deletion_timestamp
        && a.metadata.deletion_grace_period_seconds == b.metadata.deletion_grace_period_seconds
        && own(a) == own(b)
        && a.raw.at("/spec") == b.raw.at("/spec")
}

/// Returns the new content with the known identity: name, namespace and the annotations of the node stay the same.
fn adopt(known: &Pod, mut new: Pod) -> Pod {
    new.raw.edit(|raw| {
        if let Some(metadata) = raw.get_mut("metadata").and_then(|m| m.as_object_mut()) {
            metadata.insert("name".into(), known.metadata.name.as_str().into());
            metadata.insert("namespace".into(), known.metadata.namespace.as_str().into());
        }
    });
    new.metadata.name.clone_from(&known.metadata.name);
    new.metadata.namespace.clone_from(&known.metadata.namespace);
    let local = LOCAL.map(|key| (key, known.metadata.annotations.get(key).cloned()));
    annotate(&mut new, &local);
    new
}

/// Sets annotations in the typed view and in the raw object. `None` removes an annotation.
fn annotate(pod: &mut Pod, values: &[(&str, Option<String>)]) {
    let typed = &mut pod.metadata.annotations;
    for (key, value) in values {
        match value {
            Some(value) => drop(typed.insert((*key).into(), value.clone())),
            None => drop(typed.remove(*key)),
        }
    }
    pod.raw.edit(|raw| {
        for (key, value) in values {
            set_annotation(raw, key, value.as_deref());
        }
    });
}

fn set_annotation(raw: &mut Value, key: &str, value: Option<&str>) {
    if let Some(Value::Object(annotations)) = raw.pointer_mut("/metadata/annotations") {
        match value {
            Some(value) => drop(annotations.insert(key.into(), value.into())),
            None => drop(annotations.shift_remove(key)),
        }
    } else if let Some(value) = value.filter(|_| raw.is_object()) {
        raw["metadata"]["annotations"] = json!({key: value});
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::test_pods;

    thread_local! {
        /// The number of comparisons of two pods.
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// Makes a pod. `uid` is its identity. `edit` changes both the typed view and the raw object.
    fn pod(uid: &str, name: &str, edit: impl FnOnce(&mut Value)) -> Arc<Pod> {
        test_pods::pod(name)
            .uid(uid)
            .namespace("new")
            .label("l", "1")
            .annotation("a", "1")
            .spec(json!({"containers": [{"name": "c", "image": "i"}]}))
            .edit(|raw| raw["status"] = json!({"phase": "Pending"}))
            .edit(edit)
            .arc()
    }

    fn same(_: &mut Value) {}

    fn spec_changed(raw: &mut Value) {
        raw["spec"]["containers"][0]["name"] = "other".into();
    }

    fn summary(merged: &Merged) -> Vec<(PodOperation, Vec<&str>)> {
        merged
            .updates
            .iter()
            .map(|u| {
                (
                    u.op,
                    u.pods.iter().map(|p| p.metadata.name.as_str()).collect(),
                )
            })
            .collect()
    }

    fn merge(config: &PodConfig, set: &[Arc<Pod>]) -> Merged {
        config.merge(PodSource::File, set.to_vec(), SystemTime::UNIX_EPOCH)
    }

    use PodOperation::{Add, Delete, Reconcile, Remove, Update};

    #[test]
    fn operations_have_the_kubelets_numbers() {
        assert_eq!(
            [Add, Delete, Remove, Update, Reconcile].map(|op| op as u8),
            [0, 1, 2, 3, 4]
        );
    }

    /// A pod that is the same object as before is not compared, because to compare the contents of each pod of a node
    /// would cost time. A pod from an unchanged file is the same object.
    #[test]
    fn a_pod_that_is_given_again_is_not_compared() {
        let config = PodConfig::new(&[PodSource::File]);
        let first = pod("1", "foo", same);
        merge(&config, std::slice::from_ref(&first));
        assert_eq!(summary(&merge(&config, std::slice::from_ref(&first))), []);
        assert_eq!(COMPARED.get(), 0);
        let again = pod("1", "foo", same);
        assert_eq!(summary(&merge(&config, std::slice::from_ref(&again))), []);
        assert_eq!(COMPARED.get(), 1);
        let sources = config.lock();
        let known = &sources[&PodSource::File].pods[&"1".into()];
        assert!(Arc::ptr_eq(&known.given, &again));
    }

    #[test]
    fn sources_are_merged_independently() {
        let config = PodConfig::new(&[PodSource::File, PodSource::Api]);
        let foo = pod("1", "foo", same);
        assert_eq!(summary(&merge(&config, &[foo])), [(Add, vec!["foo"])]);
        let other = config.merge(PodSource::Api, vec![], SystemTime::UNIX_EPOCH);
        assert_eq!(
            summary(&other),
            [(Add, vec![])],
            "the empty set of one source removes nothing of another"
        );
    }

    #[test]
    fn the_second_of_a_name_or_uid_is_dropped_with_the_kubelets_text() {
        let config = PodConfig::new(&[PodSource::File]);
        let set = [
            pod("1", "foo", same),
            pod("2", "foo", same),
            pod("1", "bar", same),
        ];
        let merged = merge(&config, &set);
        assert_eq!(summary(&merged), [(Add, vec!["foo"])]);
        let texts: Vec<&str> = merged.dropped.iter().map(|(_, t)| t.as_str()).collect();
        assert_eq!(
            texts,
            [
                "Error validating pod foo_new(2) from file due to duplicate pod name \"foo\", ignoring",
                "Error validating pod bar_new(1) from file due to duplicate pod uid \"1\", ignoring",
            ]
        );
    }

    #[test]
    fn local_annotations_are_set_once_in_both_views_and_kept() {
        let config = PodConfig::new(&[PodSource::File]);
        merge(
            &config,
            &[pod("1", "foo", |r| {
                drop(
                    r["metadata"]
                        .as_object_mut()
                        .unwrap()
                        .shift_remove("annotations"),
                )
            })],
        );
        let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(9);
        let merged = config.merge(PodSource::File, vec![pod("1", "foo", spec_changed)], later);
        let updated = &merged.updates[0].pods[0];
        assert_eq!(updated.metadata.annotations[SOURCE_ANNOTATION], "file");
        assert_eq!(
            updated.metadata.annotations[SEEN_ANNOTATION],
            "1970-01-01T00:00:00.000000000Z"
        );
        assert_eq!(
            updated.raw.value()["metadata"]["annotations"][SEEN_ANNOTATION],
            "1970-01-01T00:00:00.000000000Z"
        );
        assert_eq!(updated.raw.value()["metadata"]["annotations"]["a"], "1");
    }

    #[test]
    fn the_name_under_a_uid_never_changes() {
        let config = PodConfig::new(&[PodSource::File]);
        merge(&config, &[pod("1", "foo", same)]);
        let merged = merge(&config, &[pod("1", "bar", spec_changed)]);
        assert_eq!(summary(&merged), [(Update, vec!["foo"])]);
        assert_eq!(
            merged.updates[0].pods[0].raw.value()["metadata"]["name"],
            "foo"
        );
    }

    #[test]
    fn a_source_is_seen_once_it_has_sent_and_was_handled() {
        let config = PodConfig::new(&[PodSource::File, PodSource::Api]);
        let send = |s| drop(config.merge(s, vec![], SystemTime::UNIX_EPOCH));
        config.mark_handled(PodSource::File);
        config.mark_handled(PodSource::Api);
        send(PodSource::File);
        assert!(!config.all_seen());
        send(PodSource::Api);
        assert!(config.all_seen());
        let config = PodConfig::new(&[PodSource::File]);
        drop(config.merge(PodSource::File, vec![], SystemTime::UNIX_EPOCH));
        assert!(!config.all_seen(), "sent and not handled");
    }
}
