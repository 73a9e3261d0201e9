//! The end of a step of a StatefulSet: its status, what is written down, and what it waits for.
//!
//! Invariants: pure. Nothing is decided about pods any more.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::claims::{ClaimOwner, claims_to_make, keep_book};
use super::plan::Plan;
use super::status::StatefulSetStatus;
use super::{StatefulSetOutput, StatefulSetState};
use crate::workloads::controller_revisions::{ControllerRevision, revision_label};
use crate::workloads::set_actions::SetWait;

impl Plan<'_> {
    /// Ends the plan: claims, status, and what is written down.
    pub(super) fn finish(self) -> StatefulSetOutput {
        let status = StatefulSetStatus::of(&self);
        let made = || self.creates.iter().map(|it| it.ordinal);
        let book = keep_book(self.input, &self.members, made());
        StatefulSetOutput {
            state: self.state(&status, book.owners),
            claims_to_make: claims_to_make(self.input, &self.members, made()),
            claims_to_remove: book.orphans,
            wait: self.final_wait(),
            wake_at: self.wake_at(),
            status,
            creates: self.creates,
            deletes: self.deletes,
            events: self.events,
        }
    }

    fn state(
        &self,
        status: &StatefulSetStatus,
        claim_owners: BTreeMap<i32, ClaimOwner>,
    ) -> StatefulSetState {
        let mut revisions = self.input.state.revisions.clone();
        let in_use = |it: &ControllerRevision| {
            it.name == self.update.name
                || it.name == self.current.name
                || self
                    .members
                    .all()
                    .any(|(_, pod)| revision_label(pod) == it.name)
        };
        revisions.truncate_unused(self.input.spec.revision_history_limit, in_use);
        StatefulSetState {
            revisions,
            current_revision: status.current_revision.clone(),
            current_replicas: status.current_replicas,
            claim_owners,
        }
    }

    /// Returns what the set waits for, also where no rule had to stop for it.
    fn final_wait(&self) -> SetWait {
        if let Some(wait) = &self.wait {
            return wait.clone();
        }
        let unavailable = self.members.wanted();
        let unavailable = unavailable.filter(|(_, pod)| self.is_unavailable(pod));
        if let Some((_, pod)) = unavailable.chain(self.members.condemned()).next() {
            return SetWait::for_pod(pod, pod.available_at(self.min_ready));
        }
        match self.outdated() {
            0 => SetWait::Nothing,
            pods if self.is_on_delete() => SetWait::Person { pods },
            pods => SetWait::Partition {
                pods,
                first: self.first_updated(),
            },
        }
    }

    /// Returns the earliest time at which a ready pod becomes available (FindMinNextPodAvailabilityCheck).
    fn wake_at(&self) -> Option<Timestamp> {
        let times = self
            .members
            .all()
            .filter_map(|(_, pod)| pod.available_at(self.min_ready));
        times.filter(|at| *at > self.input.now).min()
    }

    /// Returns the number of outdated pods within the range.
    fn outdated(&self) -> usize {
        let wanted = self.members.wanted();
        wanted.filter(|(_, pod)| self.is_outdated(pod)).count()
    }
}
