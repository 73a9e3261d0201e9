//! Compares a listing with the records of the last listing. All functions are pure.
//!
//! Invariants: a record has the last status of a pod. All events up to this status were sent. Every pod with a
//! difference in any field of its status goes to the cache, even if the difference causes no event.

use std::collections::BTreeMap;

use super::diff::{EventKind, PodLifecycleEvent, events};
use super::is_gone;
use crate::api::PodUid;
use crate::engine::runtime::RuntimePodStatus;

/// The last accepted status of each pod that the runtime knows.
pub type Records = BTreeMap<PodUid, RuntimePodStatus>;

/// A pod with a new status.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The new status for the cache. `None` means that the runtime has no container or sandbox of the pod any more.
    pub status: Option<RuntimePodStatus>,
    /// The events for the sync loop, which are sent after the status is in the cache.
    pub events: Vec<PodLifecycleEvent>,
}

/// Compares the records with a full listing, and stores the listing in the records. Returns the changed pods.
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

/// Compares the record of one pod with its new status, and stores the status. Always returns a change, so that the
/// cache records the time at which the pod was listed.
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
    // A change without an event of its own, such as a late address or message, still needs a sync.
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

/// Keeps the known addresses if the new status has none and no sandbox is ready. So an ended pod still shows its
/// address.
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
