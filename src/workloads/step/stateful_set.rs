//! A step of a StatefulSet.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::making::{Maker, Recipe};
use super::revisions::take_up;
use super::shown::{self, Shown};
use super::{Step, Stepping};
use crate::api::PodUid;
use crate::api::objects::{
    LocalObject, ObjectContent, ObjectKey, ObjectKind, PersistentVolumeClaim,
};
use crate::api::raw_object::RawObject;
use crate::api::workload::WorkloadSpec;
use crate::base::json;
use crate::workloads::set_rollout_status::stateful_set_rollout;
use crate::workloads::state::{ControllerState, StatefulSetRecord, WorkloadState};
use crate::workloads::stateful_set::identity::PodIdentity;
use crate::workloads::stateful_set::ordinals::pod_name;
use crate::workloads::stateful_set::{
    self, PodCreation, StatefulSetInput, StatefulSetOutput, StatefulSetState, claim_event,
    creation_event, deletion_event,
};

impl Stepping<'_> {
    pub(super) fn stateful_set(&self, state: &WorkloadState, of: &StatefulSetRecord) -> Step {
        let workload = self.effective(&of.overrides);
        let WorkloadSpec::StatefulSet(spec) = &workload.spec else {
            return Step::default();
        };
        let mut record = of.clone();
        take_up(
            &mut record.state.revisions,
            &self.key.name,
            &spec.template.written,
            &workload.metadata.annotations,
            self.world.now,
        );
        let pods = self.pods_of(&self.key.name);
        let claims: BTreeSet<String> = record.claims.iter().filter_map(name_of).collect();
        let own: BTreeSet<PodUid> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let taken_names = self.world.node.pod_names(&self.key.namespace, &own);
        let mut step = Step::default();
        let identity = PodIdentity::new(&self.key.name, spec, spec.start(), "");
        let complete = |pod: &mut Map<String, Value>| identity.write_into(pod);
        let revisions = &record.state.revisions;
        let images_ready = self.images_of_newest(revisions, &pods, &mut step, complete);
        let input = StatefulSetInput {
            name: &self.key.name,
            spec,
            generation: state.generation,
            is_deleted: false,
            state: &record.state,
            pods: &pods,
            taken_names: &taken_names,
            claims: &claims,
            images_ready,
            mends_stuck_pods: true,
            max_unavailable_gate: false,
            now: self.world.now,
        };
        let output = stateful_set::step(&input);
        step.wake_at = super::deployment::earlier(step.wake_at, output.wake_at);
        let mut wanted = spec.start()..spec.start().saturating_add(spec.replicas);
        step.waits_for_others =
            wanted.any(|ordinal| taken_names.contains(&pod_name(&self.key.name, ordinal)));
        self.act_for_stateful_set(&output, &mut step);
        let mut claims = of.claims.clone();
        claims.extend(output.claims_to_make.iter().map(claim_object));
        claims
            .retain(|claim| name_of(claim).is_none_or(|it| !output.claims_to_remove.contains(&it)));
        step.claims = claims
            .iter()
            .filter_map(|claim| self.local_claim(claim))
            .collect();
        let mut shown = Shown::new(self, state, &workload);
        shown.set_status(&output.status);
        shown.view.overrides = of.overrides.lines();
        shown.view.waiting = super::revisions::waiting(&output.wait);
        let ignored = stateful_set::warnings::ignored_max_unavailable(spec);
        shown.view.warnings.extend(ignored);
        shown.view.revisions = shown::controller_revisions(&output.state.revisions);
        let rollout = stateful_set_rollout(state.generation, spec, &output.status);
        shown.view.rollout = Some(shown::set_rollout(rollout));
        step.views = vec![shown.finish()];
        step.state = Some(state.with(ControllerState::StatefulSet(StatefulSetRecord {
            state: output.state,
            claims,
            ..record
        })));
        step
    }

    /// Makes and ends the pods that a step asks for.
    fn act_for_stateful_set(&self, output: &StatefulSetOutput, step: &mut Step) {
        let owner = self.owner();
        let name = &self.key.name;
        let mut maker = Maker::new(self.world, self.key, self.pods);
        let claims = output.claims_to_make.iter();
        let mut events: Vec<_> = claims.map(|claim| claim_event(name, claim, None)).collect();
        for creation in &output.creates {
            let Some(template) = template_of(&output.state, creation) else {
                continue;
            };
            let recipe = Recipe {
                template: &template,
                owner: &owner,
                revision: &creation.revision,
                labels: Vec::new(),
                annotations: Vec::new(),
            };
            let pod = creation.identity.name.clone();
            maker.make_named(pod, recipe, |object: &mut Map<String, Value>| {
                creation.identity.write_into(object);
            });
            events.push(creation_event(name, creation, None));
        }
        for deletion in &output.deletes {
            events.push(deletion_event(name, deletion, None));
        }
        events.extend(output.events.iter().cloned());
        step.events
            .extend(events.into_iter().map(|event| (owner.clone(), event)));
        step.delete
            .extend(self.uids(output.deletes.iter().map(|it| it.pod.as_str())));
        step.create.extend(maker.made);
    }

    fn local_claim(&self, claim: &Value) -> Option<LocalObject> {
        let labels = json::from_value(&claim["metadata"]["labels"]);
        let key = ObjectKey::new(
            ObjectKind::PersistentVolumeClaim,
            self.key.namespace.as_str(),
            name_of(claim)?,
        );
        let content = PersistentVolumeClaim {
            volume: None,
            labels: labels.unwrap_or_default(),
        };
        let content = ObjectContent::PersistentVolumeClaim(Arc::new(content));
        Some(LocalObject { key, content })
    }
}

fn template_of(state: &StatefulSetState, creation: &PodCreation) -> Option<RawObject> {
    let revision = state.revisions.named(&creation.revision)?;
    Some(RawObject::of_text(&revision.template))
}

fn claim_object(claim: &stateful_set::claims::ClaimCreation) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim.claim, "labels": claim.labels, "annotations": claim.annotations}})
}

fn name_of(claim: &Value) -> Option<String> {
    claim["metadata"]["name"].as_str().map(str::to_owned)
}
