//! The ranges of pod addresses that the control plane gives the node (`spec.podCIDRs`).
//!
//! Invariants: pods of the API server are asked for once it is known which range the node has, so that no pod gets an address
//! that other nodes do not look for here. A control plane that gives none costs a node [`PATIENCE`] when it first joins. What
//! was given holds until something else is given, or the node has been without for as long.

use std::time::Duration;

use serde_json::Value;

use crate::api::cidr::Cidr;
use crate::base::clock::Moment;
use crate::net::network::pod_cidrs::{self, PodCidrError};

/// Time after its registration within which a control plane gives a node its range. It takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A range in the Node object that pods cannot have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RangeError {
    /// The text is not a range.
    #[error("{0} is no range of addresses")]
    NoRange(Value),
    /// Pods cannot have the ranges.
    #[error(transparent)]
    Unusable(#[from] PodCidrError),
}

/// The Node, as far as it matters here: its UID and its ranges as they stand there.
#[derive(Debug, PartialEq)]
struct Seen {
    uid: Value,
    ranges: Value,
    since: Moment,
    is_done: bool,
}

/// Knowledge of the ranges in the Node object.
#[derive(Debug, Default)]
pub(super) struct PodRanges(Option<Seen>);

/// The next thing to be done about the ranges.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// Use these ranges; nothing means those of the configuration.
    Give(Vec<Cidr>),
    /// Tell of ranges that cannot be used.
    Refuse(RangeError),
    /// Look again then at the latest.
    Wait(Moment),
    /// Nothing, until the Node changes.
    Nothing,
}

impl PodRanges {
    /// Looks at the Node; None before it is registered.
    pub(super) fn next(&mut self, now: Moment, node: Option<&Value>) -> Next {
        let Some(node) = node else {
            return Next::Nothing;
        };
        let (uid, ranges) = (&node["metadata"]["uid"], &node["spec"]["podCIDRs"]);
        let seen = match &mut self.0 {
            Some(seen) if seen.uid == *uid && seen.ranges == *ranges => seen,
            other => other.insert(Seen {
                uid: uid.clone(),
                ranges: ranges.clone(),
                since: now,
                is_done: false,
            }),
        };
        if seen.is_done {
            return Next::Nothing;
        }
        let given = ranges.as_array().filter(|all| !all.is_empty());
        if given.is_none() && now < seen.since + PATIENCE {
            return Next::Wait(seen.since + PATIENCE);
        }
        seen.is_done = true;
        match read(given.map_or(&[], Vec::as_slice)) {
            Ok(ranges) => Next::Give(ranges),
            Err(e) => Next::Refuse(e),
        }
    }
}

fn read(ranges: &[Value]) -> Result<Vec<Cidr>, RangeError> {
    let range = |text: &Value| {
        let range = text.as_str().and_then(Cidr::of_text);
        range.ok_or_else(|| RangeError::NoRange(text.clone()))
    };
    let ranges = ranges.iter().map(range).collect::<Result<Vec<Cidr>, _>>()?;
    pod_cidrs::check(&ranges)?;
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(uid: &str, ranges: Value) -> Value {
        json!({"metadata": {"uid": uid}, "spec": {"podCIDRs": ranges}})
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn what_the_node_has_is_given_once_and_again_when_it_changes() {
        let mut ranges = PodRanges::default();
        assert_eq!(ranges.next(at(0), None), Next::Nothing);
        let first = node("a", json!(["10.7.3.0/24", "fd00:7::/64"]));
        let given = vec![
            "10.7.3.0/24".parse().unwrap(),
            "fd00:7::/64".parse().unwrap(),
        ];
        assert_eq!(ranges.next(at(1), Some(&first)), Next::Give(given));
        assert_eq!(ranges.next(at(2), Some(&first)), Next::Nothing);
        let second = node("b", json!(["10.7.4.0/24"]));
        let given = vec!["10.7.4.0/24".parse().unwrap()];
        assert_eq!(ranges.next(at(3), Some(&second)), Next::Give(given));
    }

    #[test]
    fn a_node_without_ranges_is_waited_for_and_then_has_none() {
        let mut ranges = PodRanges::default();
        let none = node("a", Value::Null);
        for second in [1, 5] {
            assert_eq!(ranges.next(at(second), Some(&none)), Next::Wait(at(6)));
        }
        assert_eq!(ranges.next(at(6), Some(&none)), Next::Give(Vec::new()));
        assert_eq!(ranges.next(at(7), Some(&none)), Next::Nothing);
        // A node that was deleted and is registered again is given its range anew.
        let again = node("b", json!([]));
        assert_eq!(ranges.next(at(8), Some(&again)), Next::Wait(at(13)));
        let late = node("b", json!(["10.7.3.0/24"]));
        let given = vec!["10.7.3.0/24".parse().unwrap()];
        assert_eq!(ranges.next(at(9), Some(&late)), Next::Give(given));
    }

    #[test]
    fn what_pods_cannot_have_is_refused_once() {
        let mut ranges = PodRanges::default();
        for (second, text, why) in [
            (1, "10.7.3", "\"10.7.3\" is no range of addresses"),
            (
                2,
                "10.7.3.0/31",
                "the prefix of 10.7.3.0/31 must be 8 to 30",
            ),
        ] {
            let node = node("a", json!([text]));
            let Next::Refuse(e) = ranges.next(at(second), Some(&node)) else {
                panic!("{text} is given");
            };
            assert_eq!(e.to_string(), why);
            assert_eq!(ranges.next(at(second), Some(&node)), Next::Nothing);
        }
    }
}
