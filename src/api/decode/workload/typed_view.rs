//! Reads the typed view of a workload from its object.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

use super::super::error::Findings;
use super::super::typed;
use super::MadeError;
use crate::api::field::{Step, render};
use crate::api::pod::{IgnoredText, ObjectMeta};
use crate::api::raw_object::RawObject;
use crate::api::workload::{
    CronJobSpec, DaemonSetSpec, DeploymentSpec, JobSpec, LabelSelector, PodTemplate,
    ReplicaSetSpec, StatefulSetSpec, Workload, WorkloadKind, WorkloadSpec,
};
use crate::base::json;

/// A workload with the spec of its kind, without its status. The fields that are ignored count as read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Object<S> {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredText,
    #[serde(rename = "kind")]
    _kind: IgnoredText,
    metadata: ObjectMeta,
    spec: S,
}

/// `spec` of a ReplicationController, whose selector is a map of labels.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ReplicationControllerSpec {
    replicas: i32,
    selector: BTreeMap<String, String>,
    template: PodTemplate,
    min_ready_seconds: i32,
}

/// Reports and removes each value of a wrong type. Returns the paths of the fields that no type reads.
pub(super) fn check(
    kind: WorkloadKind,
    raw: &mut Value,
    findings: &mut Findings,
) -> Vec<Vec<Step>> {
    match kind {
        WorkloadKind::Deployment => unread::<DeploymentSpec>(raw, findings),
        WorkloadKind::ReplicaSet => unread::<ReplicaSetSpec>(raw, findings),
        WorkloadKind::ReplicationController => unread::<ReplicationControllerSpec>(raw, findings),
        WorkloadKind::DaemonSet => unread::<DaemonSetSpec>(raw, findings),
        WorkloadKind::StatefulSet => unread::<StatefulSetSpec>(raw, findings),
        WorkloadKind::Job => unread::<JobSpec>(raw, findings),
        WorkloadKind::CronJob => unread::<CronJobSpec>(raw, findings),
    }
}

fn unread<S: DeserializeOwned + Default>(
    raw: &mut Value,
    findings: &mut Findings,
) -> Vec<Vec<Step>> {
    let read = typed::read::<Object<S>>(raw, findings);
    read.map(|(_, unread)| unread).unwrap_or_default()
}

/// Returns the workload with this object, whose template is already read.
pub(super) fn workload(
    kind: WorkloadKind,
    raw: &Value,
    template: PodTemplate,
) -> Result<Workload, MadeError> {
    let mut bare = raw.clone();
    if let Some(slot) = super::template_in(kind, &mut bare) {
        *slot = Value::Object(Default::default());
    }
    let (metadata, mut spec) = view(kind, &bare)?;
    *template_of(&mut spec) = template;
    Ok(Workload {
        metadata,
        spec,
        raw: RawObject::new(raw),
    })
}

/// Returns a workload without content, for an object that has already been refused.
pub(super) fn nothing(kind: WorkloadKind) -> Workload {
    Workload {
        metadata: ObjectMeta::default(),
        spec: empty(kind),
        raw: RawObject::default(),
    }
}

fn empty(kind: WorkloadKind) -> WorkloadSpec {
    match kind {
        WorkloadKind::Deployment => WorkloadSpec::Deployment(Default::default()),
        WorkloadKind::ReplicaSet => WorkloadSpec::ReplicaSet(Default::default()),
        WorkloadKind::ReplicationController => {
            WorkloadSpec::ReplicationController(Default::default())
        }
        WorkloadKind::DaemonSet => WorkloadSpec::DaemonSet(Default::default()),
        WorkloadKind::StatefulSet => WorkloadSpec::StatefulSet(Default::default()),
        WorkloadKind::Job => WorkloadSpec::Job(Default::default()),
        WorkloadKind::CronJob => WorkloadSpec::CronJob(Default::default()),
    }
}

type View = Result<(ObjectMeta, WorkloadSpec), MadeError>;

fn view(kind: WorkloadKind, raw: &Value) -> View {
    match kind {
        WorkloadKind::Deployment => of(raw, WorkloadSpec::Deployment),
        WorkloadKind::ReplicaSet => of(raw, WorkloadSpec::ReplicaSet),
        WorkloadKind::ReplicationController => of(raw, |spec| {
            WorkloadSpec::ReplicationController(replica_set_spec(spec))
        }),
        WorkloadKind::DaemonSet => of(raw, WorkloadSpec::DaemonSet),
        WorkloadKind::StatefulSet => of(raw, WorkloadSpec::StatefulSet),
        WorkloadKind::Job => of(raw, WorkloadSpec::Job),
        WorkloadKind::CronJob => of(raw, WorkloadSpec::CronJob),
    }
}

fn of<S: DeserializeOwned + Default>(raw: &Value, spec: fn(S) -> WorkloadSpec) -> View {
    let object: Object<S> = read(raw)?;
    Ok((object.metadata, spec(object.spec)))
}

/// Reads a type from an object whose values have already been checked.
pub(super) fn read<T: DeserializeOwned>(raw: &Value) -> Result<T, MadeError> {
    let read = json::read(raw).map_err(|error| MadeError::Type {
        path: render(&error.path),
        cause: error.cause.to_string(),
    });
    read.map(|(read, _)| read)
}

fn replica_set_spec(spec: ReplicationControllerSpec) -> ReplicaSetSpec {
    ReplicaSetSpec {
        replicas: spec.replicas,
        selector: LabelSelector {
            match_labels: spec.selector,
            match_expressions: Vec::new(),
        },
        template: spec.template,
        min_ready_seconds: spec.min_ready_seconds,
    }
}

fn template_of(spec: &mut WorkloadSpec) -> &mut PodTemplate {
    match spec {
        WorkloadSpec::Deployment(spec) => &mut spec.template,
        WorkloadSpec::ReplicaSet(spec) | WorkloadSpec::ReplicationController(spec) => {
            &mut spec.template
        }
        WorkloadSpec::DaemonSet(spec) => &mut spec.template,
        WorkloadSpec::StatefulSet(spec) => &mut spec.template,
        WorkloadSpec::Job(spec) => &mut spec.template,
        WorkloadSpec::CronJob(spec) => &mut spec.job_template.spec.template,
    }
}
