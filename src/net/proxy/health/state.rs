//! The state of the data path, and kube-proxy's rule that decides from this state whether the data path is healthy
//! (services 8).
//!
//! Invariants: pure; the times are arguments.

use std::time::{Duration, SystemTime};

use crate::base::clock::Moment;
use crate::net::services::build::HealthCheck;

/// The time after which a change that is not in force makes the data path unhealthy. This limit is twice the time
/// between two attempts after a failure, as in kube-proxy.
pub const LIMIT: Duration = Duration::from_secs(20);

/// The facts about the data path that decide its health.
#[derive(Clone, Debug)]
pub struct HealthState {
    /// The name of the data path.
    mode: &'static str,
    /// The time since when a change has been waiting to come into force; None if no change waits.
    pending: Option<Moment>,
    /// The time when the thread `proxy` last looked for changes.
    looked: Moment,
    /// The wall-clock time when the data path was last up to date. Users see this time. `None` if the data path
    /// was never up to date.
    updated: Option<SystemTime>,
    /// The health checks of services, sorted.
    checks: Vec<HealthCheck>,
}

impl HealthState {
    /// Makes the state of a data path for which nothing is in force yet.
    pub fn new(mode: &'static str, now: Moment) -> Self {
        Self {
            mode,
            pending: Some(now),
            looked: now,
            updated: None,
            checks: Vec::new(),
        }
    }

    /// Records that the thread `proxy` has looked for changes. `is_current` is true if all changes are in
    /// force.
    pub fn look(&mut self, now: Moment, wall: SystemTime, is_current: bool) {
        self.looked = now;
        match is_current {
            true => {
                self.pending = None;
                self.updated = Some(wall);
            }
            false => _ = self.pending.get_or_insert(now),
        }
    }

    /// Sets the name of the data path that sends clients to endpoints from now on.
    pub fn set_mode(&mut self, mode: &'static str) {
        self.mode = mode;
    }

    /// Sets the health checks of services, with their ports and their numbers of endpoints. Returns true if
    /// the ports to listen on have changed.
    pub fn set_checks(&mut self, checks: &[HealthCheck]) -> bool {
        let port = |c: &HealthCheck| (c.namespace.clone(), c.service.clone(), c.port);
        let moves = !self.checks.iter().map(port).eq(checks.iter().map(port));
        self.checks = checks.to_vec();
        moves
    }

    /// Tells whether the data path is healthy: no change has waited for [`LIMIT`] or longer, and the thread
    /// `proxy` has looked for changes within [`LIMIT`]. So a data path whose thread hangs is unhealthy, too.
    pub fn is_healthy(&self, now: Moment) -> bool {
        let is_young = |since: Moment| now.since(since) < LIMIT;
        is_young(self.looked) && self.pending.is_none_or(is_young)
    }

    /// Returns the name of the data path.
    pub fn mode(&self) -> &'static str {
        self.mode
    }

    /// Returns the wall-clock time when the data path was last up to date.
    pub fn updated(&self) -> Option<SystemTime> {
        self.updated
    }

    /// Returns the health checks of services.
    pub fn checks(&self) -> &[HealthCheck] {
        &self.checks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    const WALL: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn the_oldest_change_that_is_not_in_force_counts() {
        let mut state = HealthState::new("nftables", at(0));
        state.look(at(15), WALL, false);
        assert!(state.is_healthy(at(19)), "it starts");
        assert!(!state.is_healthy(at(20)), "it has never worked");
        state.look(at(30), WALL, true);
        assert!(state.is_healthy(at(30)));
        for now in [40, 50, 59] {
            state.look(at(now), WALL, false);
            assert!(state.is_healthy(at(now)), "{now}");
        }
        state.look(at(60), WALL, false);
        assert!(!state.is_healthy(at(60)));
        state.look(at(61), WALL, true);
        assert!(state.is_healthy(at(61)));
    }

    #[test]
    fn nobody_looks_any_more() {
        let mut state = HealthState::new("nftables", at(0));
        state.look(at(100), WALL, true);
        assert!(state.is_healthy(at(119)));
        assert!(!state.is_healthy(at(120)));
    }

    #[test]
    fn only_other_ports_are_listened_on_anew() {
        let check = |service: &str, port, local_endpoints| HealthCheck {
            namespace: "n".into(),
            service: service.into(),
            port,
            local_endpoints,
        };
        let mut state = HealthState::new("nftables", at(0));
        assert!(!state.set_checks(&[]));
        assert!(state.set_checks(&[check("a", 1, 0)]));
        assert!(!state.set_checks(&[check("a", 1, 2)]));
        assert_eq!(state.checks()[0].local_endpoints, 2);
        assert!(state.set_checks(&[check("a", 2, 2)]));
        assert!(state.set_checks(&[check("b", 2, 2)]));
        assert!(state.set_checks(&[]));
    }
}
