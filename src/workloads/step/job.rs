//! A step of a Job, of a file or of a CronJob.

use serde_json::{Map, Value};

use super::making::{Maker, Recipe};
use super::shown::Shown;
use super::{Step, Stepping};
use crate::api::pod::{ObjectMeta, PodSpec};
use crate::api::workload::{JobSpec, WorkloadSpec};
use crate::workloads::job::{
    self, JobInput, JobState, JobStep, PodCreation, pod_fields, wants_completion_index,
};
use crate::workloads::observed::ObservedPod;
use crate::workloads::record::Owner;
use crate::workloads::state::{ControllerState, JobRecord, WorkloadState};

/// The sentence about a Job that waits because its state was lost.
const HELD: &str =
    "its state was lost, so nobody knows whether it has run: `podprobe rerun job/NAME` runs it";

/// A Job in a step.
pub(super) struct JobAt<'a> {
    /// Namespace, name and UID of the Job.
    pub(super) metadata: &'a ObjectMeta,
    /// Spec of the Job.
    pub(super) spec: &'a JobSpec,
    /// Generation of the spec.
    pub(super) generation: i64,
    /// State of the Job's controller.
    pub(super) state: &'a JobState,
    /// True if the Job is being removed.
    pub(super) is_deleted: bool,
    /// The Job as the owner of pods.
    pub(super) owner: &'a Owner,
}

impl Stepping<'_> {
    pub(super) fn job(&self, state: &WorkloadState, of: &JobRecord) -> Step {
        let workload = &self.wanted.workload;
        let WorkloadSpec::Job(spec) = &workload.spec else {
            return Step::default();
        };
        let mut shown = Shown::new(self, state, workload);
        if of.is_held {
            shown.view.waiting = Some(HELD.replace("NAME", &self.key.name));
            shown.view.is_held = true;
            return Step {
                state: Some(state.clone()),
                views: vec![shown.finish()],
                ..Step::default()
            };
        }
        let owner = self.owner();
        let metadata = ObjectMeta {
            uid: owner.uid.as_str().into(),
            ..workload.metadata.clone()
        };
        let mut step = Step::default();
        let made = self.step_job(
            &JobAt {
                metadata: &metadata,
                spec,
                generation: state.generation,
                state: &of.state,
                is_deleted: false,
                owner: &owner,
            },
            &mut step,
        );
        shown.set_status(&made.status);
        shown.view.waiting = waiting(spec, &made);
        // A Job that was removed after its time to live is kept as a stub, so that its file does not run again.
        step.views = match made.state.is_removed {
            true => Vec::new(),
            false => vec![shown.finish()],
        };
        step.state = Some(state.with(ControllerState::Job(JobRecord {
            state: made.state,
            ..of.clone()
        })));
        step
    }

    /// Steps a Job, and puts its pods, events and times into the step.
    pub(super) fn step_job(&self, job: &JobAt<'_>, step: &mut Step) -> JobStep {
        let pods: Vec<ObservedPod> = self.pods_of(&job.metadata.name);
        let made = job::step(&JobInput {
            metadata: job.metadata,
            generation: job.generation,
            spec: job.spec,
            is_deleted: job.is_deleted,
            state: job.state,
            pods: &pods,
            now: self.world.now,
        });
        let mut maker = Maker::new(self.world, self.key, self.pods);
        for creation in &made.creations {
            self.make_job_pod(job, creation, &mut maker);
        }
        let owner = job.owner.clone();
        let events = made.events.iter().cloned();
        step.events
            .extend(events.map(|event| (owner.clone(), event)));
        step.create.extend(maker.made);
        step.delete
            .extend(made.deletions.iter().map(|it| it.pod.uid.clone()));
        step.delete
            .extend(made.removable.iter().map(|it| it.uid.clone()));
        step.wake_at = super::deployment::earlier(step.wake_at, made.wake_at);
        made
    }

    fn make_job_pod(&self, job: &JobAt<'_>, creation: &PodCreation, maker: &mut Maker<'_>) {
        let fields = pod_fields(job.metadata, job.spec, creation);
        let recipe = Recipe {
            template: &job.spec.template.written,
            owner: job.owner,
            revision: "",
            labels: fields.labels.into_iter().collect(),
            annotations: fields.annotations.into_iter().collect(),
        };
        let typed = job.spec.template.spec.clone();
        let prefix = fields.name_prefix.trim_end_matches('-').to_owned();
        let (hostname, variable) = (fields.hostname, fields.variable);
        maker.make(&prefix, recipe, |object: &mut Map<String, Value>| {
            let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
                return;
            };
            if let Some(hostname) = hostname {
                spec.insert("hostname".into(), hostname.into());
            }
            if let Some(variable) = variable {
                add_variable(
                    spec,
                    &typed,
                    &serde_json::to_value(variable).unwrap_or_default(),
                );
            }
        });
    }
}

/// Returns the sentence about what a Job waits for.
fn waiting(spec: &JobSpec, made: &JobStep) -> Option<String> {
    let status = &made.status;
    if made.state.is_finished() {
        return None;
    }
    if spec.is_suspended() {
        return Some("it is suspended".to_owned());
    }
    let wanted = spec
        .completions
        .map_or("1".to_owned(), |number| number.to_string());
    let back_off = made.wake_at.filter(|_| status.active == 0);
    let next = back_off.map(|at| format!("; the next pod starts at {at:.0}"));
    let next = next.unwrap_or_default();
    Some(format!(
        "{} of {wanted} succeeded, {} failed, {} active{next}",
        status.succeeded, status.failed, status.active
    ))
}

/// Gives each container that has no variable with the index one.
fn add_variable(spec: &mut Map<String, Value>, typed: &PodSpec, variable: &Value) {
    for (list, typed) in [
        ("containers", &typed.containers),
        ("initContainers", &typed.init_containers),
    ] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for (container, typed) in containers.iter_mut().zip(typed) {
            if !wants_completion_index(typed) {
                continue;
            }
            let Some(container) = container.as_object_mut() else {
                continue;
            };
            let env = container
                .entry("env")
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Some(env) = env.as_array_mut() {
                env.push(variable.clone());
            }
        }
    }
}
