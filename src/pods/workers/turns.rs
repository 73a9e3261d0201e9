//! The order of waiting while all containers of a pod are killed at once: a container waits for the containers that
//! must end before it (kubelet-probes 8.5).

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::locks::Locked;

/// The containers that have not ended yet, with a condition to wait for their ends.
pub(super) struct Turns {
    alive: Mutex<HashSet<String>>,
    fewer: Condvar,
}

impl Turns {
    /// Makes the turns of these containers, which are about to be killed.
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            alive: Mutex::new(names.map(str::to_owned).collect()),
            fewer: Condvar::new(),
        }
    }

    /// Records that a container has ended.
    pub(super) fn ended(&self, name: &str) {
        self.alive.locked().remove(name);
        self.fewer.notify_all();
    }

    /// Waits until all containers in `before` have ended, at most for `limit`. Returns the time that the wait took.
    pub(super) fn wait(&self, before: &[&str], limit: Duration) -> Duration {
        if before.is_empty() {
            return Duration::ZERO;
        }
        let began = Moment::now();
        let alive = self.alive.locked();
        let waits = |alive: &mut HashSet<String>| before.iter().any(|name| alive.contains(*name));
        drop(
            self.fewer
                .wait_timeout_while(alive, limit, waits)
                .unwrap_or_else(PoisonError::into_inner),
        );
        Moment::now().since(began)
    }
}

/// Records the end of a container when this value is dropped.
pub(super) struct Ended<'a>(pub(super) &'a Turns, pub(super) &'a str);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended(self.1);
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    #[test]
    fn a_turn_comes_when_all_before_it_have_ended_or_time_is_up() {
        let turns = Turns::new(["app", "helper", "proxy"].into_iter());
        let limit = Duration::from_secs(60);
        let (order_in, order) = bounded(3);
        std::thread::scope(|scope| {
            for (name, before) in [
                ("proxy", &["app", "helper"][..]),
                ("helper", &["app"]),
                ("app", &[]),
            ] {
                let (turns, order_in) = (&turns, order_in.clone());
                scope.spawn(move || {
                    let _ended = Ended(turns, name);
                    assert!(turns.wait(before, limit) < limit);
                    order_in.send(name).unwrap();
                });
            }
        });
        assert_eq!(
            order.try_iter().collect::<Vec<_>>(),
            ["app", "helper", "proxy"]
        );
        // a container does not wait for a container that is not being killed
        assert!(turns.wait(&["never"], limit) < limit);
        let stuck = Turns::new(["app"].into_iter());
        assert!(stuck.wait(&["app"], Duration::from_millis(20)) >= Duration::from_millis(20));
    }
}
