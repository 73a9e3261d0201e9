//! A step of a ReplicaSet or a ReplicationController of a file.

use super::deployment::{names_of, take_plan};
use super::making::{Maker, Recipe};
use super::shown::Shown;
use super::{Step, Stepping};
use crate::api::workload::{WorkloadKind, WorkloadSpec};
use crate::workloads::replica_set::{self, PodCounts, ReplicaSetStatus};
use crate::workloads::state::{ControllerState, ReplicaSetState, WorkloadState};

impl Stepping<'_> {
    pub(super) fn replica_set(&self, state: &WorkloadState, of: &ReplicaSetState) -> Step {
        let workload = self.effective(&of.overrides);
        let (WorkloadSpec::ReplicaSet(spec) | WorkloadSpec::ReplicationController(spec)) =
            &workload.spec
        else {
            return Step::default();
        };
        let owner = self.owner();
        let pods = self.pods_of(&self.key.name);
        let min_ready = seconds_of(spec.min_ready_seconds);
        let now = self.world.now;
        let plan = replica_set::plan(spec.replicas, &pods, min_ready, &of.delays, now);
        let mut maker = Maker::new(self.world, self.key, self.pods);
        for _ in 0..plan.create {
            let recipe = Recipe {
                template: &spec.template.written,
                owner: &owner,
                revision: "",
                labels: Vec::new(),
                annotations: Vec::new(),
            };
            maker.make(&self.key.name, recipe, |_| {});
        }
        let created = maker
            .made
            .iter()
            .map(|pod| replica_set::created_event(&pod.name));
        let deleted = names_of(&pods, &plan.delete).map(replica_set::deleted_event);
        let events = created.chain(deleted).map(|event| (owner.clone(), event));
        let mut step = Step {
            events: events.collect(),
            ..Step::default()
        };
        step.create = maker.made;
        take_plan(&mut step, &plan);
        let counts = PodCounts::of(&pods, min_ready, now);
        step.wake_at = super::deployment::earlier(step.wake_at, counts.next_available_at);
        let labels = &spec.template.metadata.labels;
        let mut status =
            ReplicaSetStatus::of(&pods, labels, counts, of.failure.as_ref(), state.generation);
        if self.key.kind == WorkloadKind::ReplicationController {
            status.terminating_replicas = None;
        }
        let mut shown = Shown::new(self, state, &workload);
        shown.set_status(&status);
        shown.view.overrides = of.overrides.lines();
        shown.view.waiting = waiting(spec.replicas, counts);
        step.views = vec![shown.finish()];
        step.state = Some(state.with(ControllerState::ReplicaSet(ReplicaSetState {
            delays: plan.delays,
            ..of.clone()
        })));
        step
    }
}

/// Returns the sentence about what a set waits for.
fn waiting(replicas: i32, counts: PodCounts) -> Option<String> {
    let (available, wanted) = (counts.available, replicas);
    (available < wanted).then(|| format!("{available} of {wanted} pods available"))
}

/// Returns a number of seconds as a duration. A negative number is none.
pub(super) fn seconds_of(seconds: i32) -> std::time::Duration {
    std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
