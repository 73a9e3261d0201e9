//! Revision numbers of the sets of a Deployment, and the annotations that sets have from their Deployment (workloads
//! 3.16 to 3.18).
//!
//! Invariants: pure. A revision number is only ever raised. 0 means that a set has no number.

use std::collections::BTreeMap;

/// Annotation with the revision number of a Deployment or a set.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation with the earlier revision numbers of a set, separated by commas.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation with the replicas of the Deployment when the set was last scaled.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation with the replicas and the surge of the Deployment when the set was last scaled.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Annotation with which `kubectl apply` keeps the object that it applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotation that asks a Deployment to go back to a revision; 0 means the revision before.
pub const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// Annotation that says why a revision was made. `rollout history` shows it.
pub const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// Annotations that belong to a Deployment or a set alone and are not copied between them.
const OWN: [&str; 6] = [
    LAST_APPLIED,
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
];
/// Longest text of earlier revision numbers, in bytes.
const LONGEST_HISTORY: usize = 2000;

/// True if an annotation is copied from a Deployment to its sets, and back by an undo.
pub fn is_copied(key: &str) -> bool {
    !OWN.contains(&key)
}

/// Copies the annotations of a Deployment to a set, and returns true if this changed one. What the Deployment has no
/// longer stays with the set (deployment_util.go: copyDeploymentAnnotationsToReplicaSet).
pub fn copy_annotations(
    from: &BTreeMap<String, String>,
    to: &mut BTreeMap<String, String>,
) -> bool {
    let mut is_changed = false;
    for (key, value) in from.iter().filter(|(key, _)| is_copied(key)) {
        is_changed |= to.insert(key.clone(), value.clone()).as_ref() != Some(value);
    }
    is_changed
}

/// Reads a revision number from the text of its annotation. A missing annotation, which is the empty text, is 0; None
/// for a text that is no number.
pub fn parse(text: &str) -> Option<i64> {
    match text {
        "" => Some(0),
        text => text.parse().ok(),
    }
}

/// Returns the highest of the revision numbers, at least 0 (MaxRevision).
pub fn max_revision(numbers: impl IntoIterator<Item = i64>) -> i64 {
    numbers.into_iter().fold(0, i64::max)
}

/// Returns the second highest of the revision numbers, to which an undo goes back; 0 if there is none. Equal highest
/// numbers count as two (LastRevision).
pub fn last_revision(numbers: impl IntoIterator<Item = i64>) -> i64 {
    let (mut max, mut second) = (0, 0);
    for number in numbers {
        match number {
            number if number >= max => (second, max) = (max, number),
            number => second = number.max(second),
        }
    }
    second
}

/// Returns the earlier revision numbers of a set with `number` at the end. The oldest numbers go where the text would
/// become too long.
pub fn history_with(history: &str, number: i64) -> String {
    let number = number.to_string();
    if history.is_empty() {
        return number;
    }
    let mut kept = history;
    while kept.len() + 1 + number.len() > LONGEST_HISTORY {
        match kept.split_once(',') {
            Some((_, rest)) => kept = rest,
            // Upstream ends here with the number alone as well.
            None => return number,
        }
    }
    format!("{kept},{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn annotations_of_the_deployment_alone_are_not_copied() {
        let own = OWN.map(|key| (key, "x"));
        let mut all = own.to_vec();
        all.push((CHANGE_CAUSE, "a new image"));
        let mut set = annotations(&[("kept", "1")]);
        assert!(copy_annotations(&annotations(&all), &mut set));
        let expected = annotations(&[("kept", "1"), (CHANGE_CAUSE, "a new image")]);
        assert_eq!(set, expected);
        assert!(!copy_annotations(&annotations(&all), &mut set));
    }

    #[test]
    fn the_oldest_numbers_go_when_the_history_is_too_long() {
        assert_eq!(history_with("", 7), "7");
        assert_eq!(history_with("1,3", 5), "1,3,5");
        // 400 numbers of 4 digits take 1,999 characters.
        let full = vec!["1234"; 400].join(",");
        let longer = history_with(&full, 5678);
        assert_eq!(longer.len(), 1999);
        assert!(longer.ends_with(",1234,5678"));
        assert_eq!(history_with(&"9".repeat(3000), 5), "5");
    }

    #[test]
    fn a_text_that_is_no_number_has_no_revision() {
        assert_eq!(parse(""), Some(0));
        assert_eq!(parse("12"), Some(12));
        assert_eq!(parse("x"), None);
    }
}
