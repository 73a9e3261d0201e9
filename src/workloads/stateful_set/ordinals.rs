//! The numbers of a StatefulSet's pods: which pods belong to the set, and which of them are beyond its range.
//!
//! Invariants: pure. A pod has a number only if its name is exactly the name that the set gives to that number.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::api::workload::StatefulSetSpec;
use crate::workloads::observed::ObservedPod;

/// Returns the name of the set's pod with this number.
pub fn pod_name(set: &str, ordinal: i32) -> String {
    format!("{set}-{ordinal}")
}

/// Returns the number of the set's pod with this name, or None if the pod is not one of the set.
pub fn ordinal_of(set: &str, pod: &str) -> Option<i32> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    (ordinal.to_string() == digits && ordinal >= 0).then_some(ordinal)
}

/// Returns the numbers that the pods of the set are to have.
pub fn ordinals(spec: &StatefulSetSpec) -> Range<i32> {
    let start = spec.start().max(0);
    start..start.saturating_add(spec.replicas.max(0))
}

/// The pods of a StatefulSet that are there, by their numbers.
pub(super) struct Members<'a> {
    /// Numbers that the pods of the set are to have.
    pub range: Range<i32>,
    pods: BTreeMap<i32, &'a ObservedPod>,
}

impl<'a> Members<'a> {
    /// Finds the pods of the set.
    pub fn new(set: &str, spec: &StatefulSetSpec, pods: &'a [ObservedPod]) -> Self {
        let numbered = |pod: &'a ObservedPod| Some((ordinal_of(set, &pod.name)?, pod));
        Self {
            range: ordinals(spec),
            pods: pods.iter().filter_map(numbered).collect(),
        }
    }

    /// Returns the pod with this number.
    pub fn get(&self, ordinal: i32) -> Option<&'a ObservedPod> {
        self.pods.get(&ordinal).copied()
    }

    /// Returns all pods with their numbers, lowest number first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = (i32, &'a ObservedPod)> + '_ {
        self.pods.iter().map(|(ordinal, pod)| (*ordinal, *pod))
    }

    /// Returns the pods within the range, lowest number first.
    pub fn wanted(&self) -> impl DoubleEndedIterator<Item = (i32, &'a ObservedPod)> + '_ {
        self.all().filter(|(it, _)| self.range.contains(it))
    }

    /// Returns the pods beyond the range, lowest number first.
    pub fn condemned(&self) -> impl DoubleEndedIterator<Item = (i32, &'a ObservedPod)> + '_ {
        self.all().filter(|(it, _)| !self.range.contains(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::workload::Ordinals;

    #[test]
    fn a_pod_has_a_number_only_by_its_exact_name() {
        #[track_caller]
        fn check(pod: &str, expected: Option<i32>) {
            assert_eq!(ordinal_of("db-1", pod), expected, "{pod}");
        }
        check("db-1-0", Some(0));
        check("db-1-12", Some(12));
        check("db-1-01", None);
        check("db-1-+1", None);
        check("db-1--1", None);
        check("db-1-", None);
        check("db-1", None);
        check("db-1-2147483648", None);
        check("db-10", None);
        assert_eq!(pod_name("db-1", 12), "db-1-12");
    }

    #[test]
    fn the_range_begins_at_the_start_and_does_not_overflow() {
        #[track_caller]
        fn check(replicas: i32, start: Option<i32>, expected: Range<i32>) {
            let spec = StatefulSetSpec {
                replicas,
                ordinals: start.map(|start| Ordinals { start }),
                ..StatefulSetSpec::default()
            };
            assert_eq!(ordinals(&spec), expected);
        }
        check(3, None, 0..3);
        check(3, Some(5), 5..8);
        check(0, Some(5), 5..5);
        check(i32::MAX, Some(5), 5..i32::MAX);
    }
}
