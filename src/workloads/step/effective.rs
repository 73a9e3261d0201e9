//! The workload as its controller must act on it: the file's object with the overrides of verbs laid over it.

use serde_json::Value;

use crate::api::decode::made_template;
use crate::api::workload::{PodTemplate, Workload, WorkloadSpec};
use crate::base::json;
use crate::workloads::overrides::{self, Overrides};
use crate::workloads::template;

/// Returns the effective workload; None if nothing is overridden.
pub(super) fn workload(file: &Workload, overrides: &Overrides) -> Option<Workload> {
    let raw = overrides::effective(file, overrides)?;
    let object = raw.value();
    let mut made = file.clone();
    if let Ok(annotations) = json::from_value(&object["metadata"]["annotations"]) {
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
    // A revision that this podprobe cannot read any more changes nothing.
    if let Ok(other) = made_template(written.clone()) {
        *template = other;
    }
}
