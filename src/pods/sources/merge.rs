//! The merge of full sets into operations, per source and by UID (kubelet-probes 6.6).
//!
//! Invariants: the operations of one merge, in their order, turn the set before into the set after.
//! A pod that did not change is in none of them, and its `config.seen` never changes. The merge
//! sends nothing: the thread of the source sends, outside the lock; one thread per source keeps the
//! order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::api::source::{MIRROR_ANNOTATION, SEEN_ANNOTATION, SOURCE_ANNOTATION};
use crate::api::{Pod, PodRef, PodSource, PodUid};
use crate::base::clock::Time;
use crate::base::locks::Locked;

/// Capacity of the channel of [`PodUpdate`]s into the sync loop; a source waits when it is full.
pub const UPDATES_CAPACITY: usize = 50;

/// Annotations that the node sets; comparisons ignore them.
const LOCAL: [&str; 3] = [SOURCE_ANNOTATION, MIRROR_ANNOTATION, SEEN_ANNOTATION];

/// The change that an update makes to its pods. The numbers are the kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodOperation {
    /// New on this source.
    Add = 0,
    /// The pod got a deletion timestamp and must end gracefully.
    Delete = 1,
    /// No longer in the source.
    Remove = 2,
    /// Changed in anything but its status.
    Update = 3,
    /// Only its status, as the source reports it, changed.
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

/// An item of the config channel.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUpdate {
    /// The change to make.
    pub op: PodOperation,
    /// The source.
    pub source: PodSource,
    /// The pods; empty only in the ADD for an empty first set.
    pub pods: Vec<Arc<Pod>>,
}

/// The result of a merge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// The updates, in sending order.
    pub updates: Vec<PodUpdate>,
    /// Pods that were dropped, each with the text of its Warning event `FailedValidation`.
    pub dropped: Vec<(PodRef, String)>,
}

#[derive(Default)]
struct SourceState {
    sent: bool,
    handled: bool,
    pods: BTreeMap<PodUid, Known>,
}

/// A pod of a source.
struct Known {
    /// The pod as the source gave it. If the source gives this again, nothing needs to be compared.
    given: Arc<Pod>,
    /// The pod as it was sent.
    pod: Arc<Pod>,
}

/// The known pods of every source. Methods take a lock for the time of a list operation, never longer.
pub struct PodConfig {
    sources: Mutex<BTreeMap<PodSource, SourceState>>,
}

impl PodConfig {
    /// A merge of these sources; [`PodConfig::all_seen`] waits for all of them.
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

    /// Takes the new full set of a source; `now` becomes `kubernetes.io/config.seen` of the new pods.
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

    /// True if every source has sent a set and the sync loop has handled an update of each. From then on an unknown pod
    /// is not wanted.
    pub fn all_seen(&self) -> bool {
        self.unseen().is_empty()
    }

    /// The sources that [`PodConfig::all_seen`] waits for.
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
    /// The updates in sending order (6.6 step 6).
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

/// kubelet-probes 6.6 steps 2 to 5: the set to remember, and the pods of each operation.
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

/// The new content with the known identity: name, namespace and the local annotations stay the
/// same.
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

/// Sets annotations in the typed view and in the raw object; None removes one.
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
    use crate::api::test_pods;

    thread_local! {
        /// How often two pods were compared.
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// `uid` is the identity; `edit` changes typed view and raw object alike.
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

    /// A pod whose file is as it was is the same object, and comparing what it says for each pod of a node costs.
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
