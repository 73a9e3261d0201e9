//! ControllerRevisions: the templates that a StatefulSet or a DaemonSet has had, each with its number (workloads 4.5,
//! 5.9).
//!
//! Invariants: pure. The revisions are in the order of their numbers, the newest is the last, and no two have the same
//! name. The newest is the *update revision*: every pod that may be updated goes to it. The caller computes hashes and
//! compares templates.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::observed::ObservedPod;

/// Label of a pod that says from which revision the pod was made. A StatefulSet writes the name of the revision, a
/// DaemonSet its hash (workloads 4.3, 5.1).
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// Annotation that says why a template was changed.
pub const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// Longest part of a workload's name in the name of a revision, in bytes (history.ControllerRevisionName).
const LONGEST_PREFIX: usize = 223;

/// A template that a workload has now or had before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerRevision {
    /// Number of the revision. A template that is taken up again gets a new number.
    pub revision: i64,
    /// Name of the revision: the name of the workload, `-` and the hash.
    pub name: String,
    /// Hash of the template.
    pub hash: String,
    /// JSON text of the template as it was written.
    pub template: String,
    /// Annotations that the workload had when the revision was made, such as the change-cause.
    pub annotations: BTreeMap<String, String>,
    /// Time at which the revision was made.
    pub created: Timestamp,
    /// Time at which the revision last became the newest one.
    pub taken_up: Timestamp,
}

impl ControllerRevision {
    /// Returns the reason for the template, as `rollout history` shows it.
    pub fn change_cause(&self) -> &str {
        self.annotations.get(CHANGE_CAUSE).map_or("", |it| it)
    }
}

/// All revisions of one workload, and the number of hash collisions that the workload has had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerRevisions {
    /// Revisions in the order of their numbers.
    revisions: Vec<ControllerRevision>,
    /// `status.collisionCount`: the number of names that were taken by another template. None until the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    collision_count: Option<i32>,
}

/// The template that a workload is to have.
#[derive(Clone, Copy, Debug)]
pub struct WantedTemplate<'a> {
    /// Name of the workload.
    pub workload: &'a str,
    /// JSON text of the template as it was written.
    pub template: &'a str,
    /// Hash of the template with the collision count of the revisions.
    pub hash: &'a str,
    /// Annotations of the workload.
    pub annotations: &'a BTreeMap<String, String>,
}

/// The effect of taking a template up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenUp {
    /// The newest revision has this template already.
    Unchanged,
    /// An older revision has this template. It got a new number and is the newest now.
    Again,
    /// A new revision was made.
    New,
}

/// The name that a new revision would get belongs to another template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot name a new revision {name}: another template has this name; compute the hash again with collision count {collision_count}"
)]
pub struct HashCollision {
    /// Name that is taken.
    pub name: String,
    /// Collision count for the next hash.
    pub collision_count: i32,
}

/// The reasons for which no revision can be gone back to, in kubectl's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UndoError {
    /// There is no older revision.
    #[error("no last revision to roll back to")]
    NoLast,
    /// No revision has this number.
    #[error("unable to find specified revision {0} in history")]
    NotFound(i64),
}

/// The effect of `rollout undo`, with kubectl's words as text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Undo<'a> {
    /// Nothing, because the workload has the template of that revision already. The number is the one that was asked
    /// for, which is 0 for the last revision.
    Skipped(i64),
    /// The workload gets the template of this revision.
    To(&'a ControllerRevision),
}

impl std::fmt::Display for Undo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Skipped(revision) => write!(
                f,
                "skipped rollback (current template already matches revision {revision})"
            ),
            Self::To(_) => f.write_str("rolled back"),
        }
    }
}

impl ControllerRevisions {
    /// Returns the collision count for the hash of the next template.
    pub fn collision_count(&self) -> Option<i32> {
        self.collision_count
    }

    /// Returns all revisions in the order of their numbers.
    pub fn all(&self) -> &[ControllerRevision] {
        &self.revisions
    }

    /// Returns the newest revision, to which pods are updated.
    pub fn newest(&self) -> Option<&ControllerRevision> {
        self.revisions.last()
    }

    /// Returns the revision with this name.
    pub fn named(&self, name: &str) -> Option<&ControllerRevision> {
        self.revisions.iter().find(|it| it.name == name)
    }

    /// Makes the wanted template the newest revision. An older revision with an equal template is taken up again with
    /// a new number and keeps its annotations (stateful_set_control.go: getStatefulSetRevisions; daemon/update.go:
    /// constructHistory). `is_wanted` says whether a written template means the same as the wanted one (workloads
    /// 1.7); templates with the same text always do.
    pub fn take_up(
        &mut self,
        wanted: &WantedTemplate<'_>,
        now: Timestamp,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<TakenUp, HashCollision> {
        let is_wanted =
            |it: &ControllerRevision| it.template == wanted.template || is_wanted(&it.template);
        match self.revisions.iter().rposition(is_wanted) {
            Some(at) if at + 1 == self.revisions.len() => Ok(TakenUp::Unchanged),
            Some(at) => {
                let again = self.revisions.remove(at);
                self.push(again, now);
                Ok(TakenUp::Again)
            }
            None => self.add(wanted, now),
        }
    }

    fn add(
        &mut self,
        wanted: &WantedTemplate<'_>,
        now: Timestamp,
    ) -> Result<TakenUp, HashCollision> {
        let name = name_of(wanted.workload, wanted.hash);
        if self.named(&name).is_some() {
            let collision_count = self.collision_count.unwrap_or(0).saturating_add(1);
            self.collision_count = Some(collision_count);
            return Err(HashCollision {
                name,
                collision_count,
            });
        }
        let made = ControllerRevision {
            name,
            hash: wanted.hash.to_owned(),
            template: wanted.template.to_owned(),
            annotations: wanted.annotations.clone(),
            created: now,
            ..ControllerRevision::default()
        };
        self.push(made, now);
        Ok(TakenUp::New)
    }

    fn push(&mut self, mut newest: ControllerRevision, now: Timestamp) {
        newest.revision = self.newest().map_or(0, |it| it.revision).saturating_add(1);
        newest.taken_up = now;
        self.revisions.push(newest);
    }

    /// Removes old revisions of a StatefulSet, lowest number first, until at most `limit` are left. Revisions in use
    /// stay and do not count. A negative limit keeps all (stateful_set_control.go: truncateHistory).
    pub fn truncate_unused(&mut self, limit: i32, in_use: impl Fn(&ControllerRevision) -> bool) {
        let Ok(limit) = usize::try_from(limit) else {
            return;
        };
        let unused = self.revisions.iter().filter(|it| !in_use(it)).count();
        self.remove_oldest(unused.saturating_sub(limit), in_use);
    }

    /// Removes old revisions of a DaemonSet, lowest number first, until at most `limit` are left beside the newest.
    /// Revisions in use stay, but count (daemon/update.go: cleanupHistory).
    pub fn truncate_old(&mut self, limit: i32, in_use: impl Fn(&ControllerRevision) -> bool) {
        let limit = usize::try_from(limit).unwrap_or(0);
        let newest = self.newest().map(|it| it.revision);
        let old = self.revisions.len().saturating_sub(1);
        self.remove_oldest(old.saturating_sub(limit), |it| {
            Some(it.revision) == newest || in_use(it)
        });
    }

    fn remove_oldest(&mut self, excess: usize, in_use: impl Fn(&ControllerRevision) -> bool) {
        let mut left = excess;
        self.revisions.retain(|it| {
            let goes = left > 0 && !in_use(it);
            left -= usize::from(goes);
            !goes
        });
    }

    /// Returns what `rollout undo` does. `to_revision` is the number to go back to; 0 is the last but one (kubectl
    /// polymorphichelpers/rollback.go). `is_current` says whether a written template means the same as the workload's.
    pub fn undo(
        &self,
        to_revision: i64,
        is_current: impl Fn(&str) -> bool,
    ) -> Result<Undo<'_>, UndoError> {
        let target = self.undo_target(to_revision)?;
        if is_current(&target.template) {
            return Ok(Undo::Skipped(to_revision));
        }
        Ok(Undo::To(target))
    }

    fn undo_target(&self, to_revision: i64) -> Result<&ControllerRevision, UndoError> {
        if to_revision == 0 {
            let last_but_one = self.revisions.len().checked_sub(2);
            return last_but_one
                .and_then(|at| self.revisions.get(at))
                .ok_or(UndoError::NoLast);
        }
        let numbered = |it: &&ControllerRevision| it.revision == to_revision;
        let found = self.revisions.iter().find(numbered);
        found.ok_or(UndoError::NotFound(to_revision))
    }
}

/// Returns the name of a workload's revision with this hash (history.ControllerRevisionName).
fn name_of(workload: &str, hash: &str) -> String {
    let prefix = workload.get(..LONGEST_PREFIX).unwrap_or(workload);
    format!("{prefix}-{hash}")
}

/// Returns the value of the label that says from which revision the pod was made, or an empty text.
pub fn revision_label(pod: &ObservedPod) -> &str {
    pod.labels.get(REVISION_LABEL).map_or("", |it| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Takes a template up at that second. The hash is the template's first letter.
    #[track_caller]
    fn take_up(
        revisions: &mut ControllerRevisions,
        template: &str,
        second: i64,
    ) -> Result<TakenUp, HashCollision> {
        let cause = BTreeMap::from([(CHANGE_CAUSE.to_owned(), format!("at {second}"))]);
        let wanted = WantedTemplate {
            workload: "db",
            template,
            hash: &template[..1],
            annotations: &cause,
        };
        revisions.take_up(&wanted, at(second), |it| {
            it.trim_end() == template.trim_end()
        })
    }

    /// Revisions with the numbers 1 to 5 and the templates a to e.
    fn five() -> ControllerRevisions {
        let mut revisions = ControllerRevisions::default();
        for (second, template) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            take_up(&mut revisions, template, second as i64).unwrap();
        }
        revisions
    }

    fn names(revisions: &ControllerRevisions) -> Vec<(i64, &str)> {
        let all = revisions.all().iter();
        all.map(|it| (it.revision, it.name.as_str())).collect()
    }

    #[test]
    fn a_template_gets_the_next_number_and_is_found_again() {
        let mut revisions = ControllerRevisions::default();
        assert_eq!(take_up(&mut revisions, "a", 1), Ok(TakenUp::New));
        assert_eq!(take_up(&mut revisions, "a", 2), Ok(TakenUp::Unchanged));
        assert_eq!(take_up(&mut revisions, "a ", 2), Ok(TakenUp::Unchanged));
        assert_eq!(take_up(&mut revisions, "b", 3), Ok(TakenUp::New));
        assert_eq!(names(&revisions), [(1, "db-a"), (2, "db-b")]);
        assert_eq!(revisions.newest().unwrap().taken_up, at(3));
    }

    #[test]
    fn an_old_template_is_taken_up_again_with_a_new_number_and_its_own_annotations() {
        let mut revisions = ControllerRevisions::default();
        take_up(&mut revisions, "a", 1).unwrap();
        take_up(&mut revisions, "b", 2).unwrap();
        assert_eq!(take_up(&mut revisions, "a", 3), Ok(TakenUp::Again));
        assert_eq!(names(&revisions), [(2, "db-b"), (3, "db-a")]);
        let newest = revisions.newest().unwrap();
        assert_eq!((newest.created, newest.taken_up), (at(1), at(3)));
        assert_eq!(newest.change_cause(), "at 1");
    }

    #[test]
    fn a_name_of_another_template_raises_the_collision_count() {
        let mut revisions = ControllerRevisions::default();
        take_up(&mut revisions, "a1", 1).unwrap();
        assert_eq!(revisions.collision_count(), None);
        for count in [1, 2] {
            let collision = take_up(&mut revisions, "a2", 2).unwrap_err();
            assert_eq!(collision.name, "db-a");
            assert_eq!(collision.collision_count, count);
            assert_eq!(revisions.collision_count(), Some(count));
        }
        assert_eq!(names(&revisions), [(1, "db-a")]);
    }

    #[test]
    fn a_long_name_of_a_workload_is_cut() {
        assert_eq!(
            name_of(&"a".repeat(240), "x"),
            format!("{}-x", "a".repeat(223))
        );
    }

    #[test]
    fn revisions_of_a_stateful_set_in_use_stay_and_do_not_count() {
        #[track_caller]
        fn check(limit: i32, left: &[i64]) {
            let mut revisions = five();
            revisions.truncate_unused(limit, |it| ["db-a", "db-e"].contains(&it.name.as_str()));
            let numbers: Vec<i64> = revisions.all().iter().map(|it| it.revision).collect();
            assert_eq!(numbers, left, "limit {limit}");
        }
        check(3, &[1, 2, 3, 4, 5]);
        check(2, &[1, 3, 4, 5]);
        check(0, &[1, 5]);
        check(-1, &[1, 2, 3, 4, 5]);
    }

    #[test]
    fn revisions_of_a_daemon_set_in_use_stay_but_count() {
        #[track_caller]
        fn check(limit: i32, left: &[i64]) {
            let mut revisions = five();
            revisions.truncate_old(limit, |it| it.name == "db-a");
            let numbers: Vec<i64> = revisions.all().iter().map(|it| it.revision).collect();
            assert_eq!(numbers, left, "limit {limit}");
        }
        check(4, &[1, 2, 3, 4, 5]);
        check(3, &[1, 3, 4, 5]);
        check(2, &[1, 4, 5]);
        check(0, &[1, 5]);
    }

    #[test]
    fn undo_goes_to_the_last_but_one_or_to_a_number() {
        #[track_caller]
        fn check(revisions: &ControllerRevisions, to: i64, expected: &str) {
            let text = match revisions.undo(to, |it| it == "e") {
                Ok(Undo::To(it)) => it.name.clone(),
                Ok(other) => other.to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(text, expected);
        }
        let revisions = five();
        check(&revisions, 0, "db-d");
        check(&revisions, 2, "db-b");
        check(
            &revisions,
            5,
            "skipped rollback (current template already matches revision 5)",
        );
        check(
            &revisions,
            6,
            "unable to find specified revision 6 in history",
        );
        check(
            &revisions,
            -1,
            "unable to find specified revision -1 in history",
        );
        let mut single = ControllerRevisions::default();
        check(&single, 0, "no last revision to roll back to");
        take_up(&mut single, "a", 1).unwrap();
        check(&single, 0, "no last revision to roll back to");
        assert_eq!(
            Undo::To(single.newest().unwrap()).to_string(),
            "rolled back"
        );
    }

    #[test]
    fn what_is_written_down_is_read_again() {
        let revisions = five();
        let text = serde_json::to_string(&revisions).unwrap();
        assert_eq!(
            serde_json::from_str::<ControllerRevisions>(&text).unwrap(),
            revisions
        );
    }
}
