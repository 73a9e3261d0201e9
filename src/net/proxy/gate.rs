//! A gate on which a caller waits until a pod that is ending gets no more traffic.
//!
//! Invariants: a version of the change feed has passed when no client is sent any more to an endpoint that is gone
//! in that version. Before the first version has passed, clients may still be sent to the endpoints of an earlier
//! daemon. Without services nobody waits. Nobody waits longer than the caller's limit.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::base::locks::Locked;

/// The gate on which a caller waits until a pod that is ending gets no more traffic.
#[derive(Debug, Default)]
pub struct TrafficGate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The version of the change feed up to which the data path is current, or `None` before the first version has
    /// passed.
    passed: Option<u64>,
    /// True if the data path sends clients to at least one endpoint, or if clients can find at least one endpoint
    /// by a name.
    has_traffic: bool,
}

impl TrafficGate {
    /// Records that the data path and the names are current up to this version. `has_traffic` is true if the data
    /// path or the names lead clients to at least one endpoint.
    pub fn pass(&self, version: u64, has_traffic: bool) {
        *self.lock() = State {
            passed: Some(version),
            has_traffic,
        };
        self.changed.notify_all();
    }

    /// Waits until this version has passed, for at most `limit`. Returns false if the limit was reached.
    pub fn wait(&self, version: u64, limit: Duration) -> bool {
        let is_behind = |state: &mut State| match state.passed {
            Some(passed) => state.has_traffic && passed < version,
            None => true,
        };
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), limit, is_behind);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_waiter_goes_on_when_its_version_is_passed() {
        let gate = TrafficGate::default();
        gate.pass(3, true);
        assert!(gate.wait(3, Duration::ZERO));
        assert!(!gate.wait(4, Duration::ZERO));
        std::thread::scope(|s| {
            let waits = s.spawn(|| gate.wait(4, LONG));
            gate.pass(5, true);
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn nobody_waits_where_no_client_is_sent_anywhere() {
        let gate = TrafficGate::default();
        assert!(!gate.wait(0, Duration::ZERO), "of an earlier daemon");
        gate.pass(1, false);
        assert!(gate.wait(9, LONG));
        gate.pass(3, true);
        std::thread::scope(|s| {
            let waits = s.spawn(|| gate.wait(9, LONG));
            gate.pass(4, false);
            assert!(waits.join().unwrap());
        });
    }
}
