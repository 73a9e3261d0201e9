//! Rebuilds the state of a controller from the pods that are there, when the state was lost (workloads 9.5).
//!
//! Invariants: a group of pods of one template becomes one set or revision with as many pods as were found, so that
//! nothing is made twice and nothing that serves is ended at once. A Job that nobody knows anything of does not run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::deployment::{DeploymentState, SetRecord};
use super::job;
use super::record::PodRecord;
use super::state::{ControllerState, JobRecord, WorkloadState, initial};
use super::template::{REVISION_LABEL, TEMPLATE_HASH_LABEL};
use super::world::{KnownPod, World};
use crate::api::raw_object::RawObject;
use crate::api::workload::{Workload, WorkloadSpec};

/// Begins the state of a workload that has none: it is new, or its state was lost. Pods that are there tell what was.
pub(super) fn state(
    world: &World<'_>,
    workload: &Workload,
    pods: &[KnownPod],
    is_lost: bool,
) -> WorkloadState {
    let mut controller = controller(workload, pods, is_lost);
    if let ControllerState::Deployment(of) = &mut controller
        && (is_lost || !of.sets.is_empty())
    {
        of.say_history_is_lost(world.now);
    }
    WorkloadState::begin(workload, controller, world.wall.now)
}

/// Returns the state in which a controller begins. `is_lost` is true if there was a state that cannot be read.
fn controller(workload: &Workload, pods: &[KnownPod], is_lost: bool) -> ControllerState {
    match &workload.spec {
        WorkloadSpec::Deployment(_) if !pods.is_empty() => {
            ControllerState::Deployment(deployment(workload, pods))
        }
        WorkloadSpec::Job(spec) => {
            let observed: Vec<_> = pods.iter().map(|pod| pod.observed.clone()).collect();
            ControllerState::Job(JobRecord {
                state: job::rebuild(spec, &observed),
                is_held: is_lost && pods.is_empty(),
            })
        }
        _ => initial(workload),
    }
}

/// Groups the pods by their sets. Older pods have lower revisions.
fn deployment(workload: &Workload, pods: &[KnownPod]) -> DeploymentState {
    let mut groups: BTreeMap<&str, Vec<&KnownPod>> = BTreeMap::new();
    let there = pods.iter().filter(|pod| pod.record.deleted_at.is_none());
    for pod in there {
        groups.entry(&pod.record.owner.name).or_default().push(pod);
    }
    let mut sets: Vec<SetRecord> = groups
        .into_values()
        .filter_map(|group| set(workload, &group))
        .collect();
    sets.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    for (number, set) in (1..).zip(&mut sets) {
        set.revision = number;
    }
    let mut state = DeploymentState::default();
    state.revision = sets.last().map_or(0, |set| set.revision);
    state.sets = sets;
    state
}

fn set(workload: &Workload, group: &[&KnownPod]) -> Option<SetRecord> {
    let first = &group.first()?.record;
    let min_ready_seconds = match &workload.spec {
        WorkloadSpec::Deployment(spec) => spec.min_ready_seconds,
        _ => 0,
    };
    Some(SetRecord {
        name: first.owner.name.clone(),
        hash: first.revision.clone(),
        revision: 0,
        history: String::new(),
        template: Arc::new(RawObject::new(&template_of(workload, first))),
        size: i32::try_from(group.len()).unwrap_or(i32::MAX),
        desired: None,
        max: None,
        min_ready_seconds,
        annotations: BTreeMap::new(),
        created: group.iter().map(|pod| pod.record.created).min()?,
        delays: Default::default(),
    })
}

/// Returns the template that a pod was made from. If the file's template gives the same pod, it is the file's, so that
/// its text is the same.
fn template_of(workload: &Workload, pod: &PodRecord) -> Value {
    let object = &pod.object;
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        let mut value = object["metadata"][field].clone();
        if let Some(map) = value.as_object_mut() {
            map.retain(|key, _| ![TEMPLATE_HASH_LABEL, REVISION_LABEL].contains(&key.as_str()));
        }
        if !value.is_null() && value != json!({}) {
            metadata.insert(field.to_owned(), value);
        }
    }
    let mut spec = object["spec"].clone();
    let written = workload.template().written.value();
    if let Some(spec) = spec.as_object_mut() {
        // The controller has set the name of the node, unless the template has one itself.
        match written["spec"].get("nodeName") {
            Some(name) => drop(spec.insert("nodeName".into(), name.clone())),
            None => drop(spec.shift_remove("nodeName")),
        }
    }
    let rebuilt = json!({"metadata": metadata, "spec": spec});
    match super::template::are_equal(&rebuilt, &written) {
        true => written,
        false => rebuilt,
    }
}

#[cfg(test)]
mod tests {
    use crate::workloads::deployment::HISTORY_LOST;
    use crate::workloads::step::test_world::TestWorld;
    use serde_json::{Value, json};

    fn deployment(image: &str) -> Value {
        let containers = json!([{"name": "c", "image": image}]);
        let template =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}})
    }

    /// Returns the message of the condition HistoryLost.
    fn told(world: &TestWorld) -> Option<String> {
        let mut conditions = world.last.views[0].object["status"]["conditions"]
            .as_array()?
            .iter();
        let lost = conditions.find(|it| it["type"] == HISTORY_LOST)?;
        lost["message"].as_str().map(str::to_owned)
    }

    #[test]
    fn a_deployment_whose_state_was_lost_says_that_its_revisions_begin_anew() {
        let mut world = TestWorld::new(deployment("i:1"));
        for image in ["i:1", "i:2", "i:3"] {
            world.edit(deployment(image));
            world.settle();
            world.ready(image);
            world.settle();
            world.remove_deleted();
            world.settle();
        }
        let revisions = |world: &TestWorld| {
            let all = world.last.views[0].revisions.iter();
            all.map(|it| it.revision).collect::<Vec<_>>()
        };
        assert_eq!((revisions(&world), told(&world)), (vec![1, 2, 3], None));
        world.state = None;
        world.settle();
        assert_eq!(revisions(&world), [1]);
        let message = told(&world).unwrap();
        assert!(message.contains("revisions without pods are gone"));
        world.edit(deployment("i:4"));
        world.settle();
        assert!(told(&world).is_some(), "also after the next rollout");
        let events = world.events.iter();
        let events: Vec<_> = events.filter(|it| it.starts_with(HISTORY_LOST)).collect();
        assert_eq!(events, [&format!("{HISTORY_LOST} {message}")]);
    }
}
