//! A step of a CronJob, and of the Jobs that it has made.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::job::JobAt;
use super::shown::Shown;
use super::{Room, Step, Stepping};
use crate::api::decode::made_workload;
use crate::api::identity::workload_uid;
use crate::api::workload::{CronJobSpec, Workload, WorkloadKey, WorkloadKind, WorkloadSpec};
use crate::workloads::cron_job::{self, ChildJob, CronJobInput, JobEnd, NewJob};
use crate::workloads::job::{ConditionType, JobState};
use crate::workloads::record::{Owner, seconds};
use crate::workloads::shown_object::{WorkloadParts, edit};
use crate::workloads::state::{ControllerState, CronJobRecord, MadeJob, WorkloadState};
use crate::workloads::template;
use crate::workloads::view::WorkloadView;

/// Time after which a CronJob looks again whether the node takes pods.
const CLOSED: Duration = Duration::from_secs(30);

impl Stepping<'_> {
    pub(super) fn cron_job(&self, state: &WorkloadState, of: &CronJobRecord) -> Step {
        let workload = &self.wanted.workload;
        let WorkloadSpec::CronJob(spec) = &workload.spec else {
            return Step::default();
        };
        // A CronJob makes no Jobs for a node that takes no pods: all of them would start when it takes pods again.
        let takes_pods = self.world.node.takes_pods();
        let held = CronJobSpec {
            suspend: Some(true),
            ..spec.clone()
        };
        let spec = if takes_pods { spec } else { &held };
        let children: Vec<ChildJob> = of.jobs.iter().map(child).collect();
        let looked = cron_job::step(&CronJobInput {
            name: &self.key.name,
            spec,
            state: &of.state,
            jobs: &children,
            clock: self.world.wall,
            zones: self.world.node.zones(),
            has_room_beside: self.has_room_beside(spec),
        });
        let again = || self.world.wall.now + CLOSED;
        let mut step = Step {
            look_at: looked.next_look.or_else(|| (!takes_pods).then(again)),
            ..Step::default()
        };
        let owner = self.owner();
        step.events.extend(
            looked
                .events
                .into_iter()
                .map(|event| (owner.clone(), event)),
        );
        let mut jobs = of.jobs.clone();
        for job in jobs
            .iter_mut()
            .filter(|job| looked.delete.contains(&job.name()))
        {
            job.is_deleted = true;
        }
        jobs.extend(looked.create.map(|new| self.new_job(&new)));
        let mut views = Vec::new();
        jobs.retain_mut(|job| self.step_made_job(job, &owner, &mut step, &mut views));
        let mut shown = Shown::new(self, state, workload);
        let active: Vec<Value> = looked
            .state
            .active
            .iter()
            .map(|name| self.reference(name))
            .collect();
        let time = |time: Option<jiff::Timestamp>| time.map(seconds);
        let mut status = json!({});
        if !active.is_empty() {
            status["active"] = active.into();
        }
        if let Some(at) = time(looked.state.last_schedule_time) {
            status["lastScheduleTime"] = at.into();
        }
        if let Some(at) = time(looked.state.last_successful_time) {
            status["lastSuccessfulTime"] = at.into();
        }
        shown.set_status(&status);
        shown.view.waiting = looked
            .next_look
            .map(|at| format!("next look at {}", seconds(at)));
        if !takes_pods {
            shown.view.waiting = Some("the node takes no pods".to_owned());
        }
        let last = looked.state.last_schedule_time.or(looked.state.first_seen);
        let zones = self.world.node.zones();
        let next = last.and_then(|last| cron_job::next_time(spec, zones, last));
        shown.view.next_schedule_time = next.map(seconds);
        step.views = vec![shown.finish()];
        step.views.append(&mut views);
        let record = CronJobRecord {
            state: looked.state,
            jobs,
        };
        step.state = Some(state.with(ControllerState::CronJob(record)));
        step
    }

    /// Steps a Job of the CronJob. Returns false if nothing of it is left.
    fn step_made_job(
        &self,
        job: &mut MadeJob,
        owner: &Owner,
        step: &mut Step,
        views: &mut Vec<WorkloadView>,
    ) -> bool {
        let Some(workload) = job.workload(&self.key.namespace) else {
            return false;
        };
        let WorkloadSpec::Job(spec) = &workload.spec else {
            return false;
        };
        let own = super::owner_of(&workload.key());
        let at = JobAt {
            metadata: &workload.metadata,
            spec,
            generation: 1,
            state: &job.state.clone(),
            is_deleted: job.is_deleted,
            owner: &own,
        };
        let made = self.step_job(&at, step);
        job.state = made.state;
        let is_over = job.is_deleted || job.state.is_removed;
        let has_pods = self
            .pods
            .iter()
            .any(|pod| pod.record.owner.name == own.name);
        if is_over && !has_pods {
            return false;
        }
        let mut object = WorkloadParts::of(Arc::new(workload));
        let owner = json!([template::reference(owner)]);
        object.metadata.push(("ownerReferences", owner));
        object.set_status(&made.status);
        views.push(WorkloadView {
            object: object.into(),
            ..WorkloadView::default()
        });
        true
    }

    /// Makes the Job of a scheduled time.
    fn new_job(&self, new: &NewJob) -> MadeJob {
        let annotation = (
            cron_job::SCHEDULED_TIMESTAMP,
            new.scheduled_timestamp.as_str(),
        );
        let mut made = self.job_of_template(&new.name, annotation);
        made.scheduled_at = Some(new.scheduled_at);
        made
    }

    /// Makes a Job of the CronJob's template, with one more annotation.
    pub(super) fn job_of_template(&self, name: &str, annotation: (&str, &str)) -> MadeJob {
        made_job(self.wanted, self.world.wall.now, name, annotation)
    }

    fn key_of_job(&self, name: &str) -> WorkloadKey {
        WorkloadKey {
            kind: WorkloadKind::Job,
            namespace: self.key.namespace.clone(),
            name: name.to_owned(),
        }
    }

    fn reference(&self, name: &str) -> Value {
        let key = self.key_of_job(name);
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "namespace": key.namespace,
            "uid": workload_uid(&key).as_str()})
    }

    /// True if a pod of a new Job finds room beside the pods that are ending.
    fn has_room_beside(&self, spec: &CronJobSpec) -> bool {
        let is_ending = |pod: &super::KnownPod| pod.observed.is_terminating();
        if !self.pods.iter().any(is_ending) {
            return true;
        }
        let template = &spec.job_template.spec.template.written.value();
        let sample = template::pod(
            template,
            &template::Additions {
                name: self.key.name.clone(),
                uid: "sample".into(),
                namespace: self.key.namespace.clone(),
                node_name: self.world.node.name().to_owned(),
                ..template::Additions::default()
            },
        );
        self.world.node.room_for(&sample, &[]) == Room::Beside
    }
}

/// Makes a Job of a CronJob's template, with one more annotation.
pub(crate) fn made_job(
    wanted: &super::Wanted,
    wall: jiff::Timestamp,
    name: &str,
    annotation: (&str, &str),
) -> MadeJob {
    let template = wanted
        .workload
        .raw
        .at("/spec/jobTemplate")
        .unwrap_or_default();
    let written = wanted.workload.template().written.value();
    let kept = &template["metadata"];
    let mut object = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "creationTimestamp": seconds(wall), "labels": kept["labels"],
            "annotations": kept["annotations"]},
        "spec": template["spec"]});
    object["spec"]["template"] = written;
    edit(&mut object, "metadata", |metadata| {
        metadata.retain(|_, value| !value.is_null());
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations[annotation.0] = annotation.1.into();
    });
    MadeJob {
        object,
        scheduled_at: None,
        state: JobState::default(),
        is_deleted: false,
    }
}

impl MadeJob {
    /// Returns the name of the Job.
    pub fn name(&self) -> String {
        self.object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Returns the Job as a workload. None if this podprobe cannot read it any more.
    fn workload(&self, namespace: &str) -> Option<Workload> {
        let mut object = self.object.clone();
        object["metadata"]["namespace"] = namespace.into();
        made_workload(object).ok()
    }
}

/// Returns a Job as its CronJob sees it.
fn child(job: &MadeJob) -> ChildJob {
    let has = |type_: ConditionType| {
        let mut conditions = job.state.conditions.iter();
        conditions.any(|it| it.is_true && it.type_ == type_)
    };
    let end = match (has(ConditionType::Complete), has(ConditionType::Failed)) {
        (true, _) => Some(JobEnd::Complete(job.state.completion)),
        (_, true) => Some(JobEnd::Failed),
        _ => None,
    };
    ChildJob {
        name: job.name(),
        is_ours: true,
        scheduled_at: job.scheduled_at,
        started_at: job.state.start,
        end,
        is_deleted: job.is_deleted,
    }
}
