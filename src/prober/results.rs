//! The result caches: one per probe type, keyed by container id; a change is sent to the sync loop (kubelet-probes 4.1).

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use crossbeam_channel::Sender;

use crate::api::PodUid;
use crate::runtime::ContainerId;

/// Capacity of each update channel: sending blocks a worker when the sync loop is this far behind.
pub const UPDATES_CAPACITY: usize = 20;

/// What is cached for a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// Not known yet: the seed of startup.
    Unknown,
    /// At or above successThreshold.
    Success,
    /// At or above failureThreshold.
    Failure,
}

impl ProbeResult {
    /// The metric's number: Success 0, Failure 1, others -1.
    pub fn as_number(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Unknown => -1,
        }
    }
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "Success",
            Self::Failure => "Failure",
            Self::Unknown => "UNKNOWN",
        })
    }
}

/// A change, for the sync loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Which instance.
    pub container: ContainerId,
    /// The new value.
    pub result: ProbeResult,
    /// Of which pod.
    pub pod: PodUid,
}

/// One probe type's cache. The lock is never held while sending.
pub struct Manager {
    cache: Mutex<HashMap<ContainerId, ProbeResult>>,
    updates: Sender<Update>,
}

impl Manager {
    /// A cache that sends its changes to `updates`.
    pub fn new(updates: Sender<Update>) -> Self {
        Self {
            cache: Mutex::default(),
            updates,
        }
    }

    /// The value, if there is one.
    pub fn get(&self, id: &ContainerId) -> Option<ProbeResult> {
        self.lock().get(id).copied()
    }

    /// Stores and returns what was there; when that was nothing or differs, sends it. Blocks while the channel is full;
    /// a closed one (the daemon ends) drops it.
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

    /// Stores what an earlier daemon knew; sends nothing, since nobody has seen it otherwise.
    pub fn restore(&self, id: &ContainerId, result: ProbeResult) {
        self.lock().insert(id.clone(), result);
    }

    /// Deletes; sends nothing. A later set of the same value counts as new.
    pub fn remove(&self, id: &ContainerId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ContainerId, ProbeResult>> {
        self.cache.lock().expect("no panic while the lock is held")
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
        let (m, pod) = (std::sync::Arc::new(m), PodUid::from("p"));
        m.set(&ContainerId::from("a"), ProbeResult::Success, &pod);
        let writer = std::thread::spawn({
            let (m, pod) = (m.clone(), pod.clone());
            move || m.set(&ContainerId::from("b"), ProbeResult::Success, &pod)
        });
        // The writer stores before it sends, so the value shows while it is held back.
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

    #[test]
    fn texts_and_numbers_are_those_of_the_metrics() {
        let all = [
            ProbeResult::Success,
            ProbeResult::Failure,
            ProbeResult::Unknown,
        ];
        assert_eq!(
            all.map(|r| r.to_string()),
            ["Success", "Failure", "UNKNOWN"]
        );
        assert_eq!(all.map(ProbeResult::as_number), [0, 1, -1]);
    }
}
