//! The workload as its controller must act on it: the file's object with the overrides of verbs laid over it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::defaults;
use crate::api::pod::PodSpec;
use crate::api::raw_object::RawObject;
use crate::api::workload::{PodTemplate, Workload, WorkloadSpec};
use crate::workloads::overrides::{self, Overrides};
use crate::workloads::template;

/// Returns the effective workload; None if nothing is overridden.
pub(super) fn workload(file: &Workload, overrides: &Overrides) -> Option<Workload> {
    let raw = overrides::effective(file, overrides)?;
    let object = raw.value();
    let mut made = file.clone();
    if let Ok(annotations) = serde_json::from_value(object["metadata"]["annotations"].clone()) {
        made.metadata.annotations = annotations;
    }
    let spec = &object["spec"];
    let replicas = spec["replicas"].as_i64();
    let replicas = replicas.and_then(|number| i32::try_from(number).ok());
    let written = &spec["template"];
    match &mut made.spec {
        WorkloadSpec::Deployment(of) => {
            of.replicas = replicas.unwrap_or(of.replicas);
            of.paused = spec["paused"].as_bool().unwrap_or(of.paused);
            take(&mut of.template, written);
        }
        WorkloadSpec::ReplicaSet(of) | WorkloadSpec::ReplicationController(of) => {
            of.replicas = replicas.unwrap_or(of.replicas);
            take(&mut of.template, written);
        }
        WorkloadSpec::StatefulSet(of) => {
            of.replicas = replicas.unwrap_or(of.replicas);
            take(&mut of.template, written);
        }
        WorkloadSpec::DaemonSet(of) => take(&mut of.template, written),
        WorkloadSpec::Job(_) | WorkloadSpec::CronJob(_) => {}
    }
    made.raw = raw;
    Some(made)
}

/// Puts a template in the place of another, if it differs.
fn take(template: &mut PodTemplate, written: &Value) {
    // The file's object has defaults in its template, and the text that pods are made of has none.
    if template::are_equal(&template.written.value(), written) {
        return;
    }
    if let Some(other) = typed(written) {
        *template = other;
    }
}

/// Returns the template of a text that was valid when it was written. None if this podprobe cannot read it any more.
pub(super) fn typed(written: &Value) -> Option<PodTemplate> {
    let mut pod = json!({"metadata": written["metadata"], "spec": written["spec"]});
    defaults::apply(&mut pod);
    let spec: PodSpec = serde_json::from_value(pod["spec"].take()).ok()?;
    let metadata = match pod["metadata"].take() {
        Value::Null => Default::default(),
        metadata => serde_json::from_value(metadata).ok()?,
    };
    Some(PodTemplate {
        metadata,
        spec: Arc::new(spec),
        written: Arc::new(RawObject::new(written)),
    })
}
