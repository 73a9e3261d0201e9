//! Sets of completion indexes in upstream's compressed form, such as `0-2,5,7,8` (workloads 6.11).
//!
//! Invariants: a text that a person or a damaged file wrote never stops anything. What cannot be read is left out, as
//! upstream leaves it out.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of completion indexes, as intervals in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<Interval>);

/// A run of indexes from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    first: i32,
    last: i32,
}

impl Indexes {
    /// Reads the indexes below `completions` from a text. An interval that is not a number is left out
    /// (parseIndexesFromString).
    pub fn parse(text: &str, completions: i32) -> Self {
        let mut found = Self::default();
        for part in text.split(',') {
            match Interval::parse(part) {
                Some((first, _)) if first >= i64::from(completions) => break,
                Some((first, last)) => found.push_read(first, last, completions),
                None => {}
            }
        }
        found
    }

    /// Adds an interval that was read. `first` is below `completions`.
    fn push_read(&mut self, first: i64, last: i64, completions: i32) {
        let greatest = i64::from(completions).saturating_sub(1);
        let (Ok(first), Ok(last)) = (i32::try_from(first), i32::try_from(last.min(greatest)))
        else {
            return;
        };
        match self.0.last_mut() {
            Some(before) if before.last.saturating_add(1) == first => before.last = last,
            _ => self.0.push(Interval { first, last }),
        }
    }

    /// Returns the set with further indexes.
    pub fn with(&self, further: &BTreeSet<i32>) -> Self {
        let single = |&index| Interval {
            first: index,
            last: index,
        };
        self.merge(&Self(further.iter().map(single).collect()))
    }

    /// Returns the indexes that are in either of two sets.
    pub fn merge(&self, other: &Self) -> Self {
        let mut all: Vec<Interval> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_by_key(|interval| interval.first);
        let mut merged = Self::default();
        for interval in all {
            match merged.0.last_mut() {
                Some(before) if interval.first <= before.last.saturating_add(1) => {
                    before.last = before.last.max(interval.last);
                }
                _ => merged.0.push(interval),
            }
        }
        merged
    }

    /// Returns the indexes below `completions`.
    pub fn below(&self, completions: i32) -> Self {
        let within = |interval: &&Interval| interval.first < completions;
        let cut = |interval: &Interval| Interval {
            first: interval.first,
            last: interval.last.min(completions.saturating_sub(1)),
        };
        Self(self.0.iter().take_while(within).map(cut).collect())
    }

    /// Returns the number of indexes.
    pub fn total(&self) -> i64 {
        self.0.iter().map(|interval| interval.length()).sum()
    }

    /// True if the set has no interval.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the index is in the set.
    pub fn has(&self, index: i32) -> bool {
        let position = self.0.partition_point(|interval| interval.last < index);
        self.0.get(position).is_some_and(|it| it.first <= index)
    }

    /// Returns how many indexes of the set are also in `other`.
    pub fn shared_with(&self, other: &Self) -> i64 {
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut shared: i64 = 0;
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            shared = shared.saturating_add(a.overlap(b).max(0));
            let (ended, their_ended) = (a.last <= b.last, b.last <= a.last);
            if ended {
                mine.next();
            }
            if their_ended {
                theirs.next();
            }
        }
        shared
    }

    /// Returns the `count` smallest indexes below `completions` that are not in the set (firstPendingIndexes).
    pub fn first_missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let mut missing = Vec::new();
        let mut candidate = 0;
        let end = Interval {
            first: completions,
            last: completions,
        };
        for interval in self.0.iter().chain([&end]) {
            let gap = candidate..interval.first.min(completions);
            missing.extend(gap.take(count.saturating_sub(missing.len())));
            candidate = candidate.max(interval.last.saturating_add(1));
        }
        missing
    }
}

impl Interval {
    /// Reads `3` or `3-5`. Text after a second `-` does not count.
    fn parse(text: &str) -> Option<(i64, i64)> {
        let mut limits = text.split('-');
        let first = limits.next()?.parse().ok()?;
        match limits.next() {
            Some(last) => Some((first, last.parse().ok()?)),
            None => Some((first, first)),
        }
    }

    /// Returns the number of indexes, which is below 1 if the text had them the wrong way round.
    fn length(self) -> i64 {
        i64::from(self.last) - i64::from(self.first) + 1
    }

    fn overlap(self, other: &Self) -> i64 {
        let both = Self {
            first: self.first.max(other.first),
            last: self.last.min(other.last),
        };
        both.length()
    }
}

impl fmt::Display for Indexes {
    /// Prints as `0-2,5,7,8`: a run of two has a comma.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for &Interval { first, last } in &self.0 {
            write!(f, "{separator}{first}")?;
            if last > first {
                let joined = if first.checked_add(1) == Some(last) {
                    ','
                } else {
                    '-'
                };
                write!(f, "{joined}{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Serialize for Indexes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Indexes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self::parse(&text, i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Indexes {
        Indexes::parse(text, i32::MAX)
    }

    #[track_caller]
    fn check_read(text: &str, completions: i32, expected: &str, total: i64) {
        let found = Indexes::parse(text, completions);
        assert_eq!(
            (found.to_string().as_str(), found.total()),
            (expected, total)
        );
    }

    #[test]
    fn damaged_texts_give_what_can_be_read() {
        check_read("", 10, "", 0);
        check_read("-1,2", 10, "2", 1);
        check_read("+1,2", 10, "1,2", 2);
        check_read("1-2-9,4", 10, "1,2,4", 3);
        check_read(
            "0-99999999999999999999,9223372036854775807",
            i32::MAX,
            "",
            0,
        );
        check_read("4,9,1", 5, "4", 1);
        check_read("5-3", 10, "5", -1);
        check_read(
            "0-9223372036854775807",
            i32::MAX,
            "0-2147483646",
            2_147_483_647,
        );
    }

    #[test]
    fn sets_are_merged_and_cut() {
        let set = read("0-2,6").with(&BTreeSet::from([3, 5, 9]));
        assert_eq!(set.to_string(), "0-3,5,6,9");
        assert_eq!(set.merge(&read("4,20-22")).to_string(), "0-6,9,20-22");
        assert_eq!(set.below(6).to_string(), "0-3,5");
        assert_eq!(set.below(0).to_string(), "");
    }

    #[test]
    fn an_index_is_found_in_its_interval_only() {
        let set = read("0-2,5");
        let found: Vec<i32> = (-1..8).filter(|&index| set.has(index)).collect();
        assert_eq!(found, [0, 1, 2, 5]);
    }

    #[test]
    fn indexes_in_both_sets_are_counted_once() {
        assert_eq!(read("0-4,8-9").shared_with(&read("3-8")), 3);
        assert_eq!(read("0-4").shared_with(&read("5")), 0);
        assert_eq!(
            read("0,2,4,6").shared_with(&read("0-9")),
            4,
            "each run ends within the other"
        );
    }

    #[test]
    fn missing_indexes_stay_below_the_completions() {
        assert_eq!(read("1,7").first_missing(9, 4), [0, 2, 3]);
        assert_eq!(read("0-9").first_missing(9, 4), Vec::<i32>::new());
        assert_eq!(read("").first_missing(2, 4), [0, 1]);
    }

    #[test]
    fn sets_are_stored_as_their_text() {
        let text = serde_json::to_string(&read("0-2,5")).unwrap();
        assert_eq!(text, "\"0-2,5\"");
        assert_eq!(
            serde_json::from_str::<Indexes>(&text).unwrap(),
            read("0-2,5")
        );
    }
}
