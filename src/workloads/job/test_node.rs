//! A node for tests: it does what the steps of one Job say, and keeps the Job's pods.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    COMPLETION_INDEX, JobInput, JobPodName, JobState, JobStep, PodCreation, pod_fields, step,
};
use crate::api::PodPhase;
use crate::api::pod::ObjectMeta;
use crate::api::workload::JobSpec;
use crate::workloads::observed::later;
use crate::workloads::{ObservedContainer, ObservedPod};

/// A node with one Job.
pub(super) struct TestNode {
    pub(super) spec: JobSpec,
    pub(super) metadata: ObjectMeta,
    pub(super) state: JobState,
    pub(super) pods: Vec<ObservedPod>,
    pub(super) now: Timestamp,
    pub(super) is_deleted: bool,
    made: u32,
}

impl TestNode {
    /// Makes a node with a Job of this spec; the template need not be given.
    pub(super) fn new(spec: Value) -> Self {
        Self {
            spec: serde_json::from_value(spec).unwrap(),
            metadata: ObjectMeta {
                name: "job".into(),
                namespace: "default".into(),
                uid: "job-uid".into(),
                ..Default::default()
            },
            state: JobState::default(),
            pods: Vec::new(),
            now: Timestamp::from_second(1_000_000).unwrap(),
            is_deleted: false,
            made: 0,
        }
    }

    /// Decides, and changes nothing.
    pub(super) fn decide(&self) -> JobStep {
        step(&JobInput {
            metadata: &self.metadata,
            generation: 1,
            spec: &self.spec,
            is_deleted: self.is_deleted,
            state: &self.state,
            pods: &self.pods,
            now: self.now,
        })
    }

    /// Takes one step and does all that it says, except removing pods.
    pub(super) fn step(&mut self) -> JobStep {
        let step = self.decide();
        self.write(&step);
        for deletion in &step.deletions {
            self.delete(&deletion.pod.name);
        }
        for creation in &step.creations {
            self.create(creation);
        }
        step
    }

    /// Writes the state of a step to the disk and reads it again.
    pub(super) fn write(&mut self, step: &JobStep) {
        let text = serde_json::to_string(&step.state).unwrap();
        self.state = serde_json::from_str(&text).unwrap();
        assert_eq!(self.state, step.state);
    }

    /// Makes a pod, which runs at once. Its name is `a`, `b` … in the order of creation.
    pub(super) fn create(&mut self, creation: &PodCreation) {
        let fields = pod_fields(&self.metadata, &self.spec, creation);
        let letter = |number| char::from_u32(u32::from('a') + number % 26).unwrap();
        let round = match self.made / 26 {
            0 => String::new(),
            round => round.to_string(),
        };
        self.pods.push(ObservedPod {
            name: format!("{}{round}", letter(self.made)),
            uid: format!("{:08}", self.made).as_str().into(),
            labels: fields.labels,
            annotations: fields.annotations,
            created: self.now,
            phase: PodPhase::Running,
            containers: vec![ObservedContainer {
                name: "c".into(),
                ..Default::default()
            }],
            ..Default::default()
        });
        self.made += 1;
    }

    pub(super) fn pod(&mut self, name: &str) -> &mut ObservedPod {
        let mut pods = self.pods.iter_mut();
        pods.find(|pod| pod.name == name).unwrap()
    }

    /// Begins to end a pod.
    pub(super) fn delete(&mut self, name: &str) {
        let now = self.now;
        let pod = self.pod(name);
        if !pod.is_deleted {
            pod.is_deleted = true;
            pod.deleted_at = Some(now);
        }
    }

    /// Ends a pod with an exit code.
    pub(super) fn end(&mut self, name: &str, code: i32) {
        let now = self.now;
        let pod = self.pod(name);
        pod.phase = match code {
            0 => PodPhase::Succeeded,
            _ => PodPhase::Failed,
        };
        pod.is_ready = false;
        for container in &mut pod.containers {
            container.exit_code = Some(code);
            container.finished_at = Some(now);
        }
    }

    /// Removes the records of pods.
    pub(super) fn remove(&mut self, removable: &[JobPodName]) {
        let gone = |pod: &ObservedPod| removable.iter().any(|it| it.uid == pod.uid);
        self.pods.retain(|pod| !gone(pod));
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now = later(self.now, Duration::from_secs(seconds));
    }

    /// Waits until the time of a step, which must have one.
    pub(super) fn sleep(&mut self, step: &JobStep) {
        let time = step.wake_at.expect("the step names no time");
        self.now = self.now.max(time);
    }

    /// Returns the names of the pods that are active.
    pub(super) fn active(&self) -> Vec<String> {
        let active = self.pods.iter().filter(|pod| pod.is_active());
        active.map(|pod| pod.name.clone()).collect()
    }

    /// Returns the indexes of the pods that are active, as written on them.
    pub(super) fn active_indexes(&self) -> Vec<String> {
        let active = self.pods.iter().filter(|pod| pod.is_active());
        let index = |pod: &ObservedPod| pod.annotations.get(COMPLETION_INDEX).cloned();
        active.filter_map(index).collect()
    }
}

/// The names of pods in a list.
pub(super) fn names(pods: &[JobPodName]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.as_str()).collect()
}

/// A spec of an indexed Job with further fields.
pub(super) fn indexed(parallelism: i32, completions: i32, further: Value) -> Value {
    let mut spec = json!({
        "completionMode": "Indexed",
        "parallelism": parallelism,
        "completions": completions,
    });
    let further = further.as_object().cloned().unwrap_or_default();
    spec.as_object_mut().unwrap().extend(further);
    spec
}
