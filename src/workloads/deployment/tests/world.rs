//! A Deployment with pods, without a node: the pods do what a test says, and the controllers do the rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::PodPhase;
use crate::api::pod::ObjectMeta;
use crate::api::raw_object::RawObject;
use crate::api::workload::{
    DeploymentSpec, DeploymentStrategy, IntOrPercent, LabelSelector, PodTemplate,
    RollingUpdateDeployment, Workload, WorkloadSpec,
};
use crate::workloads::deployment::{
    DeploymentInput, DeploymentState, DeploymentStatus, Mode, NodeFacts, ObservedSet, OnDeadline,
    Outcome, SetRecord, step,
};
use crate::workloads::observed::{ObservedPod, later};
use crate::workloads::overrides::effective;
use crate::workloads::replica_set::{PodCounts, plan};

/// The file of a Deployment.
#[derive(Clone, Debug)]
pub struct File {
    pub template: String,
    pub replicas: i32,
    pub paused: bool,
    pub recreate: bool,
    pub surge: IntOrPercent,
    pub unavailable: IntOrPercent,
    pub deadline: i32,
    pub history: i32,
    pub min_ready: i32,
    pub annotations: BTreeMap<String, String>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            template: "a".into(),
            replicas: 1,
            paused: false,
            recreate: false,
            surge: IntOrPercent::Text("25%".into()),
            unavailable: IntOrPercent::Text("25%".into()),
            deadline: 600,
            history: 10,
            min_ready: 0,
            annotations: BTreeMap::new(),
        }
    }
}

impl File {
    /// The Deployment, as the decoder gives it.
    pub fn workload(&self) -> Workload {
        let template =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"image": self.template}});
        let raw = json!({
            "metadata": {"name": "web", "annotations": self.annotations},
            "spec": {"replicas": self.replicas, "paused": self.paused, "template": template},
        });
        self.decode(&RawObject::new(&raw))
    }

    /// The Deployment that the decoder makes of an object with overrides.
    fn decode(&self, raw: &RawObject) -> Workload {
        let value = raw.value();
        let template = &value["spec"]["template"];
        let strategy = match self.recreate {
            true => DeploymentStrategy {
                type_: "Recreate".into(),
                rolling_update: None,
            },
            false => DeploymentStrategy {
                type_: "RollingUpdate".into(),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(self.surge.clone()),
                    max_unavailable: Some(self.unavailable.clone()),
                }),
            },
        };
        let spec = DeploymentSpec {
            replicas: serde_json::from_value(value["spec"]["replicas"].clone()).unwrap(),
            selector: LabelSelector {
                match_labels: BTreeMap::from([("app".into(), "web".into())]),
                ..LabelSelector::default()
            },
            template: PodTemplate {
                written: Arc::new(RawObject::new(template)),
                ..PodTemplate::default()
            },
            strategy,
            min_ready_seconds: self.min_ready,
            revision_history_limit: self.history,
            paused: value["spec"]["paused"].as_bool().unwrap(),
            progress_deadline_seconds: self.deadline,
        };
        Workload {
            metadata: ObjectMeta {
                name: "web".into(),
                annotations: serde_json::from_value(value["metadata"]["annotations"].clone())
                    .unwrap(),
                ..ObjectMeta::default()
            },
            spec: WorkloadSpec::Deployment(spec),
            raw: raw.clone(),
        }
    }
}

/// A Deployment with pods.
#[derive(Clone)]
pub struct World {
    pub now: Timestamp,
    pub file: File,
    pub generation: i64,
    pub state: DeploymentState,
    pub pods: BTreeMap<String, Vec<ObservedPod>>,
    pub node: NodeFacts,
    pub on_deadline: OnDeadline,
    pub taken_names: Vec<String>,
    next_uid: u32,
}

/// The name of the image in a written template.
pub fn image(template: &RawObject) -> String {
    match template.at("/spec/image") {
        Some(Value::String(image)) => image,
        other => panic!("a template without an image: {other:?}"),
    }
}

impl World {
    pub fn new(file: File) -> Self {
        Self {
            now: Timestamp::from_second(1_000_000).unwrap(),
            file,
            generation: 1,
            state: DeploymentState::default(),
            pods: BTreeMap::new(),
            node: NodeFacts::default(),
            on_deadline: OnDeadline::Report,
            taken_names: Vec::new(),
            next_uid: 0,
        }
    }

    /// A Deployment whose first template is rolled out.
    pub fn rolled_out(file: File) -> Self {
        let mut world = Self::new(file);
        world.roll_out();
        world
    }

    pub fn edit(&mut self, change: impl FnOnce(&mut File)) {
        change(&mut self.file);
        self.generation += 1;
    }

    pub fn pass(&mut self, seconds: u64) {
        self.now = later(self.now, Duration::from_secs(seconds));
    }

    /// The Deployment that the controller sees, after the overrides.
    pub fn effective(&mut self) -> Workload {
        let file = self.file.workload();
        self.state.overrides.follow(&file);
        match effective(&file, &self.state.overrides) {
            Some(raw) => self.file.decode(&raw),
            None => file,
        }
    }

    pub fn spec(&mut self) -> DeploymentSpec {
        match self.effective().spec {
            WorkloadSpec::Deployment(spec) => spec,
            other => panic!("{other:?}"),
        }
    }

    pub fn pods_of(&self, set: &str) -> &[ObservedPod] {
        self.pods.get(set).map_or(&[], Vec::as_slice)
    }

    fn counts(&self, set: &SetRecord) -> PodCounts {
        PodCounts::of(self.pods_of(&set.name), set.min_ready(), self.now)
    }

    pub fn observe(&self, spec: &DeploymentSpec) -> Vec<ObservedSet> {
        let observe = |set: &SetRecord| ObservedSet {
            name: set.name.clone(),
            is_current: *set.template == *spec.template.written,
            is_deleted: false,
            pods: self.counts(set),
            failure: None,
        };
        self.state.sets.iter().map(observe).collect()
    }

    /// Calls a function with the input of a step.
    pub fn with_input<T>(
        &mut self,
        act: impl FnOnce(&DeploymentInput, &DeploymentState) -> T,
    ) -> T {
        let workload = self.effective();
        let WorkloadSpec::Deployment(spec) = &workload.spec else {
            panic!("no Deployment");
        };
        let sets = self.observe(spec);
        let canonical = serde_json::to_string(&*spec.template.written).unwrap();
        let input = DeploymentInput {
            name: "web",
            generation: self.generation,
            is_deleted: false,
            annotations: &workload.metadata.annotations,
            spec,
            canonical_template: &canonical,
            sets: &sets,
            taken_names: &self.taken_names,
            node: &self.node,
            on_deadline: self.on_deadline,
            now: self.now,
        };
        act(&input, &self.state)
    }

    pub fn look(&mut self) -> Outcome {
        self.with_input(step)
    }

    /// Makes one step and carries it out.
    pub fn step(&mut self) -> Outcome {
        let outcome = self.look();
        self.state = outcome.state.clone();
        self.apply();
        outcome
    }

    /// Makes and ends pods for the sizes of the sets.
    pub fn apply(&mut self) {
        let names: Vec<String> = self.state.sets.iter().map(|set| set.name.clone()).collect();
        for name in names {
            self.apply_to(&name);
        }
        let state = &self.state;
        self.pods
            .retain(|set, pods| state.set(set).is_some() || !pods.is_empty());
    }

    fn apply_to(&mut self, name: &str) {
        let now = self.now;
        let set = self
            .state
            .sets
            .iter_mut()
            .find(|set| set.name == name)
            .unwrap();
        let pods = self.pods.entry(name.to_owned()).or_default();
        let plan = plan(set.size, pods, set.min_ready(), &set.delays, now);
        set.delays = plan.delays.clone();
        for pod in pods.iter_mut().filter(|pod| plan.delete.contains(&pod.uid)) {
            pod.is_deleted = true;
            pod.deleted_at = Some(now);
            pod.is_ready = false;
        }
        pods.retain(|pod| !plan.remove.contains(&pod.uid));
        for _ in 0..plan.create {
            self.next_uid += 1;
            pods.push(ObservedPod {
                name: format!("{name}-{}", self.next_uid),
                uid: format!("{:08}", self.next_uid).as_str().into(),
                created: now,
                phase: PodPhase::Pending,
                is_in_table: true,
                ..ObservedPod::default()
            });
        }
    }

    /// Steps until nothing changes.
    pub fn settle(&mut self) -> Outcome {
        for _ in 0..50 {
            let outcome = self.step();
            if !outcome.is_changed {
                return outcome;
            }
        }
        panic!("50 steps without an end");
    }

    /// Makes a pod ready.
    pub fn make_ready(pod: &mut ObservedPod, now: Timestamp) {
        pod.phase = PodPhase::Running;
        pod.is_ready = true;
        pod.ready_changed = Some(now);
    }

    /// Makes all pods of this image ready, and lets pods that are being deleted go.
    pub fn serve(&mut self, wanted: &str) {
        let now = self.now;
        for set in &self.state.sets {
            let pods = self.pods.get_mut(&set.name).unwrap();
            pods.retain(|pod| !pod.is_deleted);
            let is_wanted = image(&set.template) == wanted;
            for pod in pods.iter_mut().filter(|pod| is_wanted && !pod.is_ready) {
                Self::make_ready(pod, now);
            }
        }
    }

    /// Rolls the template that is in force out, with pods that become ready after a second.
    pub fn roll_out(&mut self) {
        for _ in 0..100 {
            let outcome = self.settle();
            let image = image(&self.spec().template.written);
            let has_leaving = self.pods.values().flatten().any(|pod| pod.is_deleted);
            if self.is_complete() && outcome.actions.is_empty() && !has_leaving {
                return;
            }
            self.pass(1);
            self.serve(&image);
        }
        panic!("100 ticks without an end: {:?}", self.status());
    }

    pub fn is_complete(&mut self) -> bool {
        let replicas = self.spec().replicas;
        let sizes: i32 = self.state.sets.iter().map(|set| set.size).sum();
        self.status().is_complete(replicas, self.generation) && sizes == replicas
    }

    pub fn status(&self) -> &DeploymentStatus {
        &self.state.status
    }

    pub fn reason(&self, type_: &str) -> &str {
        self.status().reason(type_)
    }

    /// The size of each set by its image.
    pub fn sizes(&self) -> BTreeMap<String, i32> {
        let size = |set: &SetRecord| (image(&set.template), set.size);
        self.state.sets.iter().map(size).collect()
    }

    /// The names of the pods of an image that are not being deleted.
    pub fn active(&self, wanted: &str) -> usize {
        let sets = self
            .state
            .sets
            .iter()
            .filter(|set| image(&set.template) == wanted);
        let pods = sets.flat_map(|set| self.pods_of(&set.name));
        pods.filter(|pod| pod.is_active()).count()
    }

    /// The number of available pods of all sets.
    pub fn available(&self) -> i32 {
        self.state
            .sets
            .iter()
            .map(|set| self.counts(set).available)
            .sum()
    }

    /// Goes through the disk, as a restart of the daemon does.
    pub fn restart(&mut self) {
        let text = serde_json::to_string(&self.state).unwrap();
        let read: DeploymentState = serde_json::from_str(&text).unwrap();
        assert_eq!(read, self.state, "{text}");
        self.state = read;
    }
}

#[track_caller]
pub fn check_sizes(world: &World, expected: &[(&str, i32)]) {
    let expected: BTreeMap<String, i32> = expected
        .iter()
        .map(|(image, size)| ((*image).to_owned(), *size))
        .collect();
    assert_eq!(world.sizes(), expected);
}

#[track_caller]
pub fn check_mode(outcome: &Outcome, expected: Mode) {
    assert_eq!(outcome.mode, expected);
}
