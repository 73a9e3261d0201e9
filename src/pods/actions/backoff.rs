//! Crash-loop back-off: 0, 10, 20, 40 … 300 s after each finish (kubelet-probes 8.7).

use std::collections::HashMap;
use std::time::Duration;

use crate::api::{Container, PodRef, PodUid};
use crate::base::clock::Moment;
use crate::engine::runtime::{RuntimePodStatus, RuntimeState};

/// The first delay. A lower ceiling lowers it.
const INITIAL: Duration = Duration::from_secs(10);
/// The longest time from the last advance of a delay to the finish of the container. After a longer time the delay is
/// forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// The key of a delay: pod, container, image and resources. If any of the four changes, the delays begin anew with the
/// first one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackOffKey(String);

impl BackOffKey {
    /// Makes the key of a container of a pod.
    pub fn new(pod: &PodRef, container: &Container) -> Self {
        let resources = serde_json::to_string(&container.resources).unwrap_or_default();
        Self(format!(
            "{pod}/{}/{}/{resources}",
            container.name, container.image
        ))
    }

    /// Makes the key of a pod as a whole. An edited pod file makes a pod with another UID, and so another key.
    pub fn of_pod(uid: &PodUid) -> Self {
        Self(uid.to_string())
    }
}

#[derive(Clone, Copy, Debug)]
struct Delay {
    length: Duration,
    advanced: Moment,
}

/// The refusal of a start: the container has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The whole delay, which the message shows.
    pub delay: Duration,
    /// The time at which the delay ends and the container may start.
    pub retry_at: Moment,
}

/// The table of crash-loop delays by key.
#[derive(Debug)]
pub struct BackOff {
    initial: Duration,
    ceiling: Duration,
    delays: HashMap<BackOffKey, Delay>,
}

impl BackOff {
    /// Makes a table with this ceiling. A ceiling below 10 s also lowers the first delay.
    pub fn new(ceiling: Duration) -> Self {
        Self::with_initial(INITIAL, ceiling)
    }

    /// Makes a table with this first delay and this ceiling.
    pub fn with_initial(initial: Duration, ceiling: Duration) -> Self {
        Self {
            initial: initial.min(ceiling),
            ceiling,
            delays: HashMap::new(),
        }
    }

    /// Gives the table another ceiling. Delays that are longer become as long as the ceiling.
    pub fn set_ceiling(&mut self, ceiling: Duration) {
        (self.initial, self.ceiling) = (INITIAL.min(ceiling), ceiling);
        for delay in self.delays.values_mut() {
            delay.length = delay.length.min(ceiling);
        }
    }

    /// Checks a start of a container against the runtime's status. A container without an ended instance is never held
    /// back. A container that ended in an earlier boot is not held back either.
    ///
    /// # Errors
    /// Returns [`Held`] under the conditions of [`Self::start`].
    pub fn check(
        &mut self,
        pod: &PodRef,
        container: &Container,
        runtime: &RuntimePodStatus,
        now: Moment,
    ) -> Result<(), Held> {
        let exited = runtime
            .containers
            .iter()
            .find(|c| c.name == container.name && c.state == RuntimeState::Exited);
        match exited.and_then(|c| c.finished) {
            Some(finished) => self.start(&BackOffKey::new(pod, container), finished, now),
            None => Ok(()),
        }
    }

    /// Requests a start of a container whose newest instance finished at `finished`. Allows the start and doubles the
    /// delay, unless the delay still lasts.
    ///
    /// # Errors
    /// Returns [`Held`] while `now - finished` is less than the current delay. The table does not change then.
    pub fn start(&mut self, key: &BackOffKey, finished: Moment, now: Moment) -> Result<(), Held> {
        let known = self
            .delays
            .get(key)
            .copied()
            .filter(|e| finished.since(e.advanced) <= FORGET_AFTER);
        if let Some(Delay { length: delay, .. }) = known
            && now.since(finished) < delay
        {
            return Err(Held {
                delay,
                retry_at: finished + delay,
            });
        }
        let delay = known.map_or(self.initial, |e| (e.length * 2).min(self.ceiling));
        self.delays.insert(
            key.clone(),
            Delay {
                length: delay,
                advanced: now,
            },
        );
        Ok(())
    }

    /// Returns the delay that is in force after an end at `finished`. A key without a delay gets the first delay.
    pub fn hold(&mut self, key: &BackOffKey, finished: Moment) -> Duration {
        let held = self.start(key, finished, finished);
        let held = held.and_then(|()| self.start(key, finished, finished));
        held.err().map_or(self.initial, |held| held.delay)
    }

    /// Restores a delay that an earlier daemon has recorded.
    pub fn resume(&mut self, key: BackOffKey, length: Duration, advanced: Moment) {
        let length = length.min(self.ceiling);
        self.delays.insert(key, Delay { length, advanced });
    }

    /// Drops the entries that cannot hold back a start any more: they did not advance for twice the longest wait.
    pub fn collect_garbage(&mut self, now: Moment) {
        let keep = (self.ceiling + FORGET_AFTER) * 2;
        self.delays.retain(|_, e| now.since(e.advanced) <= keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> BackOffKey {
        BackOffKey("k".into())
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    /// Returns the delays after each finish, in seconds, of a container that ends the moment it starts.
    fn delays(ceiling: u64, n: usize) -> Vec<u64> {
        let mut table = BackOff::new(Duration::from_secs(ceiling));
        let mut now = at(1000);
        (0..n)
            .map(|_| {
                let finished = now;
                if let Err(held) = table.start(&key(), finished, now) {
                    now = held.retry_at;
                    table
                        .start(&key(), finished, now)
                        .expect("let go once the delay is over");
                }
                now.since(finished).as_secs()
            })
            .collect()
    }

    #[test]
    fn a_new_ceiling_holds_for_delays_that_are_known() {
        let seconds = Duration::from_secs;
        let mut table = BackOff::new(seconds(300));
        table.resume(key(), seconds(300), at(1000));
        table.set_ceiling(seconds(5));
        assert_eq!(table.hold(&key(), at(1000)), seconds(5));
        table.set_ceiling(seconds(20));
        assert!(table.start(&key(), at(1000), at(1010)).is_ok());
        assert_eq!(table.hold(&key(), at(1010)), seconds(10));
    }

    #[test]
    fn restarts_wait_0_10_20_up_to_the_ceiling() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/vectors/lifecycle.json")).unwrap();
        let number = |text: &str| {
            text.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
                .parse::<u64>()
                .unwrap()
        };
        let sequence: Vec<u64> = vectors["crashLoopDelays"]["sequence"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| number(d.as_str().unwrap()))
            .collect();
        assert_eq!(delays(300, sequence.len()), sequence);
        assert_eq!(delays(300, 8), [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(
            delays(5, 4),
            [0, 5, 5, 5],
            "a ceiling below the first delay lowers it"
        );
    }

    #[test]
    fn a_container_that_ran_long_starts_anew() {
        let mut table = BackOff::new(Duration::from_secs(300));
        table.start(&key(), at(0), at(0)).unwrap();
        table.start(&key(), at(601), at(601)).unwrap();
        assert_eq!(
            table.start(&key(), at(601), at(602)),
            Err(Held {
                delay: Duration::from_secs(10),
                retry_at: at(611)
            })
        );
        // after exactly 600 s the entry is not yet forgotten
        assert_eq!(
            table.start(&key(), at(1201), at(1202)).unwrap_err().delay,
            Duration::from_secs(10)
        );
    }

    #[test]
    fn being_held_changes_nothing() {
        let mut table = BackOff::new(Duration::from_secs(300));
        table.start(&key(), at(0), at(0)).unwrap();
        for _ in 0..5 {
            assert_eq!(
                table.start(&key(), at(10), at(15)).unwrap_err().retry_at,
                at(20)
            );
        }
    }

    #[test]
    fn what_must_wait_each_time_waits_10_20_up_to_the_ceiling_and_anew_after_a_long_life() {
        let mut table = BackOff::new(Duration::from_secs(50));
        let mut now = at(0);
        let mut seen = Vec::new();
        for life in [1, 1, 1, 1, 599, 601] {
            let delay = table.hold(&key(), now);
            seen.push(delay.as_secs());
            assert_eq!(table.hold(&key(), now), delay, "asked twice");
            let again = now + delay;
            table.start(&key(), now, again).expect("it has waited");
            now = again + Duration::from_secs(life);
        }
        seen.push(table.hold(&key(), now).as_secs());
        assert_eq!(seen, [10, 20, 40, 50, 50, 50, 10]);
        let mut next_daemon = BackOff::new(Duration::from_secs(50));
        next_daemon.resume(key(), Duration::from_secs(20), at(5));
        next_daemon.start(&key(), at(5), at(25)).unwrap();
        assert_eq!(next_daemon.hold(&key(), at(26)).as_secs(), 40);
    }

    #[test]
    fn garbage_goes_and_live_delays_stay() {
        let mut table = BackOff::new(Duration::from_secs(300));
        table.start(&key(), at(0), at(0)).unwrap();
        table.collect_garbage(at(1800));
        assert_eq!(table.delays.len(), 1);
        table.collect_garbage(at(1801));
        assert!(table.delays.is_empty());
    }
}
