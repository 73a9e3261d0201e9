//! The result caches: one cache per probe type, keyed by container id. Changes of a cache are sent to the sync loop
//! (kubelet-probes 4.1).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crossbeam_channel::Sender;

use crate::api::{PodUid, ProbeType};
use crate::base::locks::Locked;
use crate::engine::runtime::ContainerId;
pub use crate::pods::probe_result::ProbeResult;

/// The capacity of each update channel. A worker blocks while the sync loop has this many unread updates.
pub const UPDATES_CAPACITY: usize = 20;

/// A change of a cached result, for the sync loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The id of the container's instance.
    pub container: ContainerId,
    /// The new result.
    pub result: ProbeResult,
    /// The UID of the pod.
    pub pod: PodUid,
}

/// The cache of one probe type. The lock is never held while an update is sent.
pub struct Manager {
    cache: Mutex<HashMap<ContainerId, ProbeResult>>,
    updates: Sender<Update>,
}

impl Manager {
    /// Makes a cache that sends its changes to `updates`.
    pub fn new(updates: Sender<Update>) -> Self {
        Self {
            cache: Mutex::default(),
            updates,
        }
    }

    /// Returns the cached value, if there is one.
    pub fn get(&self, id: &ContainerId) -> Option<ProbeResult> {
        self.lock().get(id).copied()
    }

    /// Stores a value and returns the old one. Sends the new value if it differs from the old one. Blocks while the
    /// channel is full. If the channel is closed because the daemon ends, the update is dropped.
    pub fn set(&self, id: &ContainerId, result: ProbeResult, pod: &PodUid) -> Option<ProbeResult> {
        let old = self.replace(id, result);
        if old != Some(result) {
            let _ = self.updates.send(Update {
                container: id.clone(),
                result,
                pod: pod.clone(),
            });
        }
        old
    }

    fn replace(&self, id: &ContainerId, result: ProbeResult) -> Option<ProbeResult> {
        let mut cache = self.lock();
        match cache.get_mut(id) {
            Some(known) => Some(std::mem::replace(known, result)),
            None => cache.insert(id.clone(), result),
        }
    }

    /// Stores a value of an earlier daemon. Sends nothing, because the stored status already has the value.
    pub fn restore(&self, id: &ContainerId, result: ProbeResult) {
        self.lock().insert(id.clone(), result);
    }

    /// Deletes a value and sends nothing. If the same value is set later, it counts as new.
    pub fn remove(&self, id: &ContainerId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ContainerId, ProbeResult>> {
        self.cache.locked()
    }
}

/// The result caches of the three probe types.
#[derive(Clone)]
pub struct Results {
    /// The cache of the results of startup probes.
    pub startup: Arc<Manager>,
    /// The cache of the results of readiness probes.
    pub readiness: Arc<Manager>,
    /// The cache of the results of liveness probes.
    pub liveness: Arc<Manager>,
}

impl Results {
    /// Returns the cache of this probe type.
    pub fn of(&self, probe_type: ProbeType) -> &Manager {
        match probe_type {
            ProbeType::Startup => &self.startup,
            ProbeType::Readiness => &self.readiness,
            ProbeType::Liveness => &self.liveness,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(capacity: usize) -> (Manager, crossbeam_channel::Receiver<Update>) {
        let (tx, rx) = crossbeam_channel::bounded(capacity);
        (Manager::new(tx), rx)
    }

    #[test]
    fn a_change_is_sent_and_a_repeat_is_not() {
        let (m, rx) = manager(UPDATES_CAPACITY);
        let (id, pod) = (ContainerId::from("a"), PodUid::from("p"));
        assert_eq!(m.get(&id), None);
        assert_eq!(m.set(&id, ProbeResult::Unknown, &pod), None);
        assert_eq!(
            m.set(&id, ProbeResult::Success, &pod),
            Some(ProbeResult::Unknown)
        );
        assert_eq!(
            m.set(&id, ProbeResult::Success, &pod),
            Some(ProbeResult::Success)
        );
        assert_eq!(m.get(&id), Some(ProbeResult::Success));
        m.remove(&id);
        assert_eq!(m.get(&id), None);
        m.set(&id, ProbeResult::Success, &pod);
        let sent: Vec<_> = rx.try_iter().map(|u| u.result).collect();
        assert_eq!(
            sent,
            [
                ProbeResult::Unknown,
                ProbeResult::Success,
                ProbeResult::Success
            ]
        );
    }

    #[test]
    fn restoring_sends_nothing_and_the_same_value_later_is_no_change() {
        let (m, rx) = manager(1);
        let id = ContainerId::from("a");
        m.restore(&id, ProbeResult::Success);
        m.set(&id, ProbeResult::Success, &PodUid::from("p"));
        assert!(rx.is_empty());
        assert_eq!(m.get(&id), Some(ProbeResult::Success));
    }

    #[test]
    fn a_full_channel_holds_the_writer_but_no_reader() {
        let (m, rx) = manager(1);
        let (m, pod) = (Arc::new(m), PodUid::from("p"));
        m.set(&ContainerId::from("a"), ProbeResult::Success, &pod);
        let writer = std::thread::spawn({
            let (m, pod) = (m.clone(), pod.clone());
            move || m.set(&ContainerId::from("b"), ProbeResult::Success, &pod)
        });
        // The writer stores the value before it sends it, so the value can be read while the send waits.
        while m.get(&ContainerId::from("b")).is_none() {
            std::thread::yield_now();
        }
        assert!(!writer.is_finished());
        assert_eq!(rx.recv().unwrap().container, ContainerId::from("a"));
        writer.join().unwrap();
        assert_eq!(rx.recv().unwrap().container, ContainerId::from("b"));
    }

    #[test]
    fn a_closed_channel_does_not_stop_a_worker() {
        let (m, rx) = manager(1);
        drop(rx);
        m.set(
            &ContainerId::from("a"),
            ProbeResult::Success,
            &PodUid::from("p"),
        );
        assert_eq!(m.get(&ContainerId::from("a")), Some(ProbeResult::Success));
    }
}
