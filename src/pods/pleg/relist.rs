//! What a listing changes: pure.
//!
//! Invariants: a record is what the last events told of. Every pod whose status differs in any field goes to the cache, also
//! when no event follows from it.

use std::collections::BTreeMap;

use super::diff::{EventKind, PodLifecycleEvent, events};
use super::is_gone;
use crate::api::PodUid;
use crate::engine::runtime::RuntimePodStatus;

/// The last accepted status of each pod that the runtime knows.
pub type Records = BTreeMap<PodUid, RuntimePodStatus>;

/// A pod whose status is new.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The new status for the cache; `None` when nothing of the pod is left.
    pub status: Option<RuntimePodStatus>,
    /// The events for the sync loop, which it gets after the cache has the status.
    pub events: Vec<PodLifecycleEvent>,
}

/// Compares the records with a full listing and accepts it.
pub fn step(records: &mut Records, pods: Vec<RuntimePodStatus>) -> Vec<Change> {
    let mut listed: Records = pods.into_iter().map(|p| (p.uid.clone(), p)).collect();
    for uid in records.keys() {
        listed
            .entry(uid.clone())
            .or_insert_with(|| RuntimePodStatus {
                uid: uid.clone(),
                ..RuntimePodStatus::default()
            });
    }
    listed
        .into_iter()
        .filter_map(|(uid, status)| accept(records, &uid, status))
        .collect()
}

/// Compares the record with one pod read by itself and accepts it. Always a change: the cache notes that it was looked at.
pub fn step_pod(records: &mut Records, uid: &PodUid, status: RuntimePodStatus) -> Change {
    let change = accept(records, uid, status);
    change.unwrap_or_else(|| Change {
        uid: uid.clone(),
        status: records.get(uid).cloned(),
        events: Vec::new(),
    })
}

fn accept(records: &mut Records, uid: &PodUid, mut status: RuntimePodStatus) -> Option<Change> {
    let nothing = RuntimePodStatus::default();
    let old = records.get(uid).unwrap_or(&nothing);
    keep_ips(old, &mut status);
    if *old == status {
        return None;
    }
    let mut events = events(old, &status);
    // A change that has no event of its own, such as an address or a message that came late, still wants a sync.
    if events.is_empty() && !is_gone(&status) && !is_gone(old) {
        let id = status
            .containers
            .first()
            .map(|c| &c.id)
            .or(status.sandboxes.first().map(|s| &s.id));
        let id = id.cloned().unwrap_or_default();
        events.push(PodLifecycleEvent {
            uid: uid.clone(),
            kind: EventKind::PodSync,
            id,
        });
    }
    let status = (!is_gone(&status)).then_some(status);
    match &status {
        Some(status) => records.insert(uid.clone(), status.clone()),
        None => records.remove(uid),
    };
    Some(Change {
        uid: uid.clone(),
        status,
        events,
    })
}

/// A status without addresses keeps the known ones unless a sandbox is ready: an ended pod still shows its address.
fn keep_ips(old: &RuntimePodStatus, new: &mut RuntimePodStatus) {
    let ready = new.sandboxes.iter().any(|s| s.ready);
    let none = new.sandboxes.iter().all(|s| s.ips.is_empty());
    if !ready
        && none
        && let Some(newest) = new.sandboxes.first_mut()
    {
        newest.ips = old.ips().to_vec();
    }
}
