//! Decides when a volume is measured, and whether its pod is evicted. All functions are pure.
//!
//! Invariants: a walk through a volume takes a tenth of a processor's time while it lasts, and a hundredth in the long
//! run. Only a second walk right after the first can evict, because a walk counts a file twice if the file is renamed
//! during the walk.

use std::time::Duration;

use crate::base::clock::Moment;

/// The pause after a step of a walk, as a multiple of the step's duration.
const STEP_REST: u32 = 9;
/// The pause after a walk, as a multiple of the walk's duration.
const WALK_REST: u32 = 99;

/// The finding of one step of a walk through a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The walk has not reached its end.
    More,
    /// The volume is within its limit.
    Under,
    /// The volume exceeds its limit.
    Over,
}

/// The state of the walks through one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// The time at which the volume is looked at next.
    pub(super) due: Moment,
    /// The time that the present walk has taken so far.
    spent: Duration,
    /// True if the walk before this one found the volume over its limit.
    was_over: bool,
}

impl Pace {
    /// Records a step of the walk from `began` to `now`. Returns true if the pod must be evicted.
    pub(super) fn stepped(
        &mut self,
        found: Found,
        began: Moment,
        now: Moment,
        interval: Duration,
    ) -> bool {
        let took = now.since(began);
        let spent = self.spent + took;
        let evict = found == Found::Over && self.was_over;
        let (rest, spent) = match found {
            Found::More => (took * STEP_REST, spent),
            Found::Over if !evict => (took * STEP_REST, Duration::ZERO),
            Found::Over | Found::Under => (interval.max(spent * WALK_REST), Duration::ZERO),
        };
        *self = Self {
            due: now + rest,
            spent,
            was_over: match found {
                Found::More => self.was_over,
                Found::Under => false,
                Found::Over => !evict,
            },
        };
        evict
    }
}

#[cfg(test)]
mod tests {
    use super::Found::{More, Over, Under};
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    /// Runs one step. Returns the pause after the step in milliseconds, and whether the pod is evicted.
    fn step(pace: &mut Pace, found: Found, took: u64) -> (u64, bool) {
        let evict = pace.stepped(found, at(1000), at(1000 + took), INTERVAL);
        let rest = pace.due.since(at(1000 + took));
        (rest.as_millis().try_into().unwrap(), evict)
    }

    #[test]
    fn a_small_volume_is_measured_at_the_interval_and_a_large_one_takes_a_hundredth() {
        let mut pace = Pace::default();
        assert_eq!(step(&mut pace, Under, 1), (1000, false));
        assert_eq!(step(&mut pace, Under, 20), (1980, false));
        assert_eq!(step(&mut pace, More, 20), (180, false));
        assert_eq!(step(&mut pace, More, 40), (360, false));
        assert_eq!(step(&mut pace, Under, 5), (65 * 99, false));
        assert_eq!(step(&mut pace, Under, 1), (1000, false));
    }

    #[test]
    fn only_two_walks_in_a_row_evict() {
        let mut pace = Pace::default();
        assert_eq!(step(&mut pace, Over, 2), (18, false));
        assert_eq!(step(&mut pace, Under, 1), (1000, false));
        assert_eq!(step(&mut pace, Over, 2), (18, false));
        assert_eq!(step(&mut pace, More, 2), (18, false));
        assert_eq!(step(&mut pace, Over, 2), (1000, true));
        assert_eq!(step(&mut pace, Over, 2), (18, false));
    }
}
