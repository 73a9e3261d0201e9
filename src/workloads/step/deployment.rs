//! A step of a Deployment: its sets by the controller of Deployments, then the pods of each set by the controller of
//! ReplicaSets.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::making::{Maker, Recipe};
use super::shown::{self, Shown};
use super::{ImagesState, KnownPod, Room, Step, Stepping};
use crate::api::PodUid;
use crate::api::workload::{DeploymentSpec, Workload, WorkloadKey, WorkloadKind, WorkloadSpec};
use crate::workloads::deployment::{
    self, DeploymentInput, DeploymentState, NodeFacts, ObservedSet, SetRecord, SurgeAllowance,
    SurgeReason,
};
use crate::workloads::event::ControllerEvent;
use crate::workloads::observed::ObservedPod;
use crate::workloads::ports::node_ports;
use crate::workloads::record::Owner;
use crate::workloads::replica_set::{self, PodCounts, ReplicaSetPlan};
use crate::workloads::state::{ControllerState, WorkloadState};
use crate::workloads::template::{self, SoughtTemplate, TEMPLATE_HASH_LABEL};
use crate::workloads::view::WorkloadView;
use crate::workloads::waiting::{OldPods, rollout_status, waiting};

impl Stepping<'_> {
    pub(super) fn deployment(&self, state: &WorkloadState, of: &DeploymentState) -> Step {
        let workload = self.effective(&of.overrides);
        let WorkloadSpec::Deployment(spec) = &workload.spec else {
            return Step::default();
        };
        let pods = self.pods_by_set(of);
        let looked = self.look_at_sets(spec, of, &pods);
        let input = DeploymentInput {
            name: &self.key.name,
            generation: state.generation,
            is_deleted: false,
            annotations: &workload.metadata.annotations,
            spec,
            canonical_template: &looked.canonical,
            sets: &looked.sets,
            taken_names: &[],
            node: &looked.node,
            on_deadline: self.world.settings.on_progress_deadline,
            now: self.world.now,
        };
        let mut outcome = deployment::step(&input, of);
        let mut step = Step {
            wake_at: outcome.wake_at,
            image_keys: looked.image_keys,
            waits_for_others: lacks_room(&looked.node.surge),
            ..Step::default()
        };
        let owner = self.owner();
        let about = |event: ControllerEvent| (owner.clone(), event);
        step.events.extend(outcome.events.drain(..).map(about));
        let mut maker = Maker::new(self.world, self.key, self.pods);
        for set in &mut outcome.state.sets {
            let pods = pods.get(&set.name).map_or(&[][..], Vec::as_slice);
            self.manage_set(set, pods, &mut maker, &mut step);
        }
        step.create = maker.made;
        step.views = self.deployment_views(state, &workload, spec, &input, &outcome.state, &pods);
        step.state = Some(state.with(ControllerState::Deployment(outcome.state)));
        step
    }

    /// Returns the pods of each set that is in the state.
    fn pods_by_set(&self, of: &DeploymentState) -> BTreeMap<String, Vec<ObservedPod>> {
        let sets = of.sets.iter().map(|set| &set.name);
        sets.map(|name| (name.clone(), self.pods_of(name)))
            .collect()
    }

    /// Makes and ends the pods of a set, and writes its delays down.
    fn manage_set(
        &self,
        set: &mut SetRecord,
        pods: &[ObservedPod],
        maker: &mut Maker<'_>,
        step: &mut Step,
    ) {
        let plan = replica_set::plan(set.size, pods, set.min_ready(), &set.delays, self.world.now);
        let owner = self.owner_of_set(&set.name);
        for _ in 0..plan.create {
            let recipe = Recipe {
                template: &set.template,
                owner: &owner,
                revision: &set.hash,
                labels: vec![(TEMPLATE_HASH_LABEL.to_owned(), set.hash.clone())],
                annotations: Vec::new(),
            };
            maker.make(&set.name, recipe, |_| {});
        }
        let made = maker.made.iter().rev().take(plan.create);
        let created = made.map(|pod| replica_set::created_event(&pod.name));
        let names = names_of(pods, &plan.delete);
        let deleted = names.map(replica_set::deleted_event);
        let events: Vec<_> = created.chain(deleted).collect();
        step.events
            .extend(events.into_iter().map(|event| (owner.clone(), event)));
        take_plan(step, &plan);
        set.delays = plan.delays;
    }

    fn owner_of_set(&self, set: &str) -> Owner {
        super::owner_of(&self.key_of_set(set))
    }

    fn key_of_set(&self, set: &str) -> WorkloadKey {
        WorkloadKey {
            kind: WorkloadKind::ReplicaSet,
            namespace: self.key.namespace.clone(),
            name: set.to_owned(),
        }
    }

    /// Looks at the sets, and asks the node about the new one while a rollout is under way.
    fn look_at_sets(
        &self,
        spec: &DeploymentSpec,
        of: &DeploymentState,
        pods: &BTreeMap<String, Vec<ObservedPod>>,
    ) -> LookedAt {
        let wanted = SoughtTemplate::new(&spec.template.written);
        let current = current_set(&wanted, of);
        let observed = |set: &SetRecord| ObservedSet {
            name: set.name.clone(),
            is_current: current.as_ref() == Some(&set.name),
            is_deleted: false,
            pods: PodCounts::of(&pods[&set.name], set.min_ready(), self.world.now),
            failure: None,
        };
        let mut looked = LookedAt {
            sets: of.sets.iter().map(observed).collect(),
            ..LookedAt::default()
        };
        if current.is_none() {
            looked.canonical = wanted.canonical().to_owned();
        }
        let new = current.as_ref().and_then(|name| of.set(name));
        let new_pods = current.as_ref().map_or(0, |name| {
            pods[name].iter().filter(|p| p.is_active()).count()
        });
        let is_old = |pod: &&KnownPod| {
            // A pod that is ending still has its ports and its room (workloads 3.24).
            Some(&pod.record.owner.name) != current.as_ref() && !pod.observed.phase.is_terminal()
        };
        let old: Vec<&KnownPod> = self.pods.iter().filter(is_old).collect();
        let wanted = usize::try_from(spec.replicas).unwrap_or_default();
        let is_rolling = !old.is_empty() && (new.is_none() || new_pods < wanted);
        if is_rolling && !spec.paused {
            self.ask_node(spec, &old, &mut looked);
        }
        looked.node.is_closed = !self.world.node.takes_pods();
        looked
    }

    fn ask_node(&self, spec: &DeploymentSpec, old: &[&KnownPod], looked: &mut LookedAt) {
        let mut sample = Maker::new(self.world, self.key, self.pods);
        let owner = self.owner();
        let recipe = Recipe {
            template: &spec.template.written,
            owner: &owner,
            revision: "",
            labels: Vec::new(),
            annotations: Vec::new(),
        };
        sample.make(&self.key.name, recipe, |_| {});
        let Some(sample) = sample.made.pop() else {
            return;
        };
        let key = format!(
            "{}/{}",
            owner.uid,
            template::text_key(&spec.template.written)
        );
        let images = self.world.node.images(&key, &sample.object, self.world.now);
        looked.image_keys.push(key);
        looked.node = NodeFacts {
            surge: self.surge(&sample.object, old),
            images: match images {
                ImagesState::Ready => deployment::ImagesState::Ready,
                ImagesState::Pulling { progressed_at } => deployment::ImagesState::Pulling {
                    progressed_at: Some(progressed_at),
                },
                ImagesState::Failed { message } => deployment::ImagesState::Failed {
                    message,
                    progressed_at: None,
                },
            },
            ..NodeFacts::default()
        };
    }

    /// Returns whether a new pod may run beside an old one (workloads 3.20, 3.21).
    fn surge(&self, sample: &Value, old: &[&KnownPod]) -> SurgeAllowance {
        let ports = node_ports(&sample["spec"]);
        let held = |pod: &&KnownPod| {
            let held = node_ports(&pod.record.object["spec"]);
            let port = held.into_iter().find(|port| ports.contains(port))?;
            Some((port.0, pod.record.name.clone()))
        };
        if let Some((port, pod)) = old.iter().find_map(held) {
            return SurgeAllowance::None {
                reason: SurgeReason::HostPort,
                message: format!("hostPort {port} is held by the old pod {pod}"),
            };
        }
        let leaving: Vec<PodUid> = old.iter().map(|pod| pod.record.uid.clone()).collect();
        match self.world.node.room_for(sample, &leaving) {
            Room::Beside => SurgeAllowance::AsWritten,
            Room::InPlace(message) => SurgeAllowance::None {
                reason: SurgeReason::NoRoom,
                message,
            },
            Room::Never(message) => SurgeAllowance::DoesNotFit(message),
        }
    }

    /// Returns the names of the pods of old sets for which something is true.
    fn old_pods(&self, input: &DeploymentInput<'_>, is: fn(&ObservedPod) -> bool) -> Vec<&str> {
        let of_current = |pod: &KnownPod| {
            let mut sets = input.sets.iter();
            sets.any(|set| set.is_current && set.name == pod.record.owner.name)
        };
        let old = self
            .pods
            .iter()
            .filter(|pod| is(&pod.observed) && !of_current(pod));
        old.map(|pod| pod.record.name.as_str()).collect()
    }

    fn deployment_views(
        &self,
        state: &WorkloadState,
        workload: &Arc<Workload>,
        spec: &DeploymentSpec,
        input: &DeploymentInput<'_>,
        of: &DeploymentState,
        pods: &BTreeMap<String, Vec<ObservedPod>>,
    ) -> Vec<WorkloadView> {
        let mut shown = Shown::new(self, state, workload);
        shown.set_annotation("deployment.kubernetes.io/revision", of.revision.to_string());
        shown.set_status(&of.status);
        let view = &mut shown.view;
        view.overrides = of.overrides.lines();
        view.revisions = of.sets.iter().filter_map(shown::revision_of_set).collect();
        view.revisions.sort_by_key(|it| it.revision);
        let kept = self.old_pods(input, ObservedPod::is_active);
        let ending = self.old_pods(input, ObservedPod::is_terminating);
        let (kept, ending) = (&kept[..], &ending[..]);
        view.waiting = waiting(input, of, OldPods { kept, ending });
        let (name, replicas) = (&self.key.name, spec.replicas);
        let rollout = rollout_status(name, replicas, state.generation, of, 0);
        view.rollout = Some(shown::deployment_rollout(rollout));
        let mut views = vec![shown.finish()];
        for set in &of.sets {
            let owners = (self.owner_of_set(&set.name), self.owner());
            let pods = pods.get(&set.name).map_or(&[][..], Vec::as_slice);
            let now = self.world.now;
            views.push(shown::replica_set(set, owners, workload, pods, now));
        }
        views
    }
}

/// The findings of a look at the sets.
#[derive(Default)]
struct LookedAt {
    sets: Vec<ObservedSet>,
    /// The canonical text of the wanted template. Empty while a set has it, because nothing asks for it then.
    canonical: String,
    node: NodeFacts,
    image_keys: Vec<String>,
}

/// True if a new pod would find room, or more of it, when pods of others end.
fn lacks_room(surge: &SurgeAllowance) -> bool {
    match surge {
        SurgeAllowance::AsWritten => false,
        SurgeAllowance::None { reason, .. } => *reason == SurgeReason::NoRoom,
        SurgeAllowance::DoesNotFit(_) => true,
    }
}

/// Returns the name of the oldest set whose template equals the wanted one (workloads 3.2). A set with the same text has
/// the same template, and no older set can have it in another text: that set would have been taken up again.
fn current_set(wanted: &SoughtTemplate<'_>, of: &DeploymentState) -> Option<String> {
    let sets = || of.sets.iter();
    let current = sets().find(|set| wanted.has_text_of(&set.template));
    let current = current.or_else(|| sets().find(|set| wanted.is(&set.template)));
    current.map(|set| set.name.clone())
}

/// Puts the deletions and the next time of a plan into a step.
pub(super) fn take_plan(step: &mut Step, plan: &ReplicaSetPlan) {
    step.delete.extend(plan.delete.iter().cloned());
    step.delete.extend(plan.remove.iter().cloned());
    step.wake_at = earlier(step.wake_at, plan.wake_at);
}

/// Returns the earlier of two times, of which each may be missing.
pub(super) fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}

/// Returns the names of the pods with these UIDs.
pub(super) fn names_of<'a>(
    pods: &'a [ObservedPod],
    uids: &'a [PodUid],
) -> impl Iterator<Item = &'a str> {
    let is_named = |pod: &&ObservedPod| uids.contains(&pod.uid);
    pods.iter().filter(is_named).map(|pod| pod.name.as_str())
}
