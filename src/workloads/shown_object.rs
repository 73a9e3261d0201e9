//! The object of a workload as the server shows it: with defaults, overrides, owner references and status.
//!
//! Invariants: the parts are shared with the workload and its state.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::deployment::SetRecord;
use super::record::{Owner, seconds};
use super::replica_set::ReplicaSetStatus;
use super::template;
use crate::api::lazy_object::{LazyObject, Parts};
use crate::api::raw_object::RawObject;
use crate::api::workload::{Workload, WorkloadSpec};

/// The object of a workload.
pub type ShownObject = LazyObject<ObjectParts>;

/// The parts of an object.
#[derive(Debug, PartialEq)]
pub enum ObjectParts {
    /// A workload of a file, or a Job of a CronJob.
    Workload(WorkloadParts),
    /// A set of a Deployment.
    Set(Box<SetParts>),
}

/// The parts of a workload's object.
#[derive(Debug, PartialEq)]
pub struct WorkloadParts {
    /// The workload with the overrides of verbs.
    pub(super) workload: Arc<Workload>,
    /// Fields that are added to the metadata.
    pub(super) metadata: Vec<(&'static str, Value)>,
    /// Annotations that are added.
    pub(super) annotations: Vec<(&'static str, String)>,
    /// Status; None for a workload that has none.
    pub(super) status: Option<RawObject>,
}

/// The parts of a ReplicaSet that a Deployment has made.
#[derive(Debug, PartialEq)]
pub struct SetParts {
    /// The set.
    pub(super) set: SetRecord,
    /// The set as an owner of pods, with its namespace and UID.
    pub(super) owner: Owner,
    /// The Deployment as the owner of the set.
    pub(super) deployment: Owner,
    /// The Deployment with the overrides of verbs.
    pub(super) workload: Arc<Workload>,
    /// Status of the set.
    pub(super) status: ReplicaSetStatus,
}

impl Parts for ObjectParts {
    fn object(&self) -> Value {
        match self {
            Self::Workload(parts) => parts.object(),
            Self::Set(parts) => parts.object(),
        }
    }
}

impl WorkloadParts {
    /// Returns the parts of a workload without a status.
    pub(super) fn of(workload: Arc<Workload>) -> Self {
        Self {
            workload,
            metadata: Vec::new(),
            annotations: Vec::new(),
            status: None,
        }
    }

    pub(super) fn set_status(&mut self, status: &impl Serialize) {
        let status = serde_json::to_value(status).unwrap_or_default();
        self.status = Some(RawObject::new(&status));
    }

    fn object(&self) -> Value {
        let mut object = self.workload.raw.value();
        edit(&mut object, "metadata", |metadata| {
            let fields = self.metadata.iter();
            metadata.extend(fields.map(|(key, value)| ((*key).to_owned(), value.clone())));
            if !self.annotations.is_empty() {
                metadata.entry("annotations").or_insert_with(|| json!({}));
            }
        });
        edit(&mut object["metadata"], "annotations", |annotations| {
            let added = self.annotations.iter();
            annotations
                .extend(added.map(|(key, value)| ((*key).to_owned(), value.as_str().into())));
        });
        if let Some(status) = &self.status {
            object["status"] = status.value();
        }
        object
    }
}

impl SetParts {
    fn object(&self) -> Value {
        let Self { set, owner, .. } = self;
        let hash = json!({ template::TEMPLATE_HASH_LABEL: set.hash });
        let mut template = template::with_defaults(&set.template.value());
        add_to(&mut template, "/metadata/labels", &hash);
        let mut selector = match &self.workload.spec {
            WorkloadSpec::Deployment(spec) => json!(spec.selector),
            _ => json!({}),
        };
        add_to(&mut selector, "/matchLabels", &hash);
        let labels = template["metadata"]["labels"].clone();
        let mut object = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": set.name, "namespace": owner.namespace, "uid": owner.uid, "generation": 1,
                "creationTimestamp": seconds(set.created), "labels": labels, "annotations": self.annotations(),
                "ownerReferences": [template::reference(&self.deployment)]},
            "spec": {"replicas": set.size, "selector": selector, "template": template},
            "status": self.status});
        if set.min_ready_seconds > 0 {
            object["spec"]["minReadySeconds"] = set.min_ready_seconds.into();
        }
        object
    }

    fn annotations(&self) -> Map<String, Value> {
        let set = &self.set;
        let given = set.annotations.iter();
        let mut all: Map<String, Value> = given
            .map(|(key, value)| (key.clone(), value.as_str().into()))
            .collect();
        let mut add = |key: &str, value: String| {
            all.insert(format!("deployment.kubernetes.io/{key}"), value.into());
        };
        add("revision", set.revision.to_string());
        if let Some(desired) = set.desired {
            add("desired-replicas", desired.to_string());
        }
        if let Some(max) = set.max {
            add("max-replicas", max.to_string());
        }
        if !set.history.is_empty() {
            add("revision-history", set.history.clone());
        }
        all
    }
}

/// Changes a member of an object, if it is an object.
pub(super) fn edit(object: &mut Value, member: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    if let Some(member) = object.get_mut(member).and_then(Value::as_object_mut) {
        change(member);
    }
}

/// Adds entries to the map at a pointer, which is made if its parent is there.
fn add_to(object: &mut Value, pointer: &str, added: &Value) {
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        return;
    };
    let parent = object.pointer_mut(parent).and_then(Value::as_object_mut);
    let map = parent.map(|parent| parent.entry(key).or_insert_with(|| json!({})));
    if let Some((map, added)) = map.and_then(Value::as_object_mut).zip(added.as_object()) {
        map.extend(added.clone());
    }
}

impl From<WorkloadParts> for ShownObject {
    fn from(parts: WorkloadParts) -> Self {
        Arc::new(ObjectParts::Workload(parts)).into()
    }
}

impl From<SetParts> for ShownObject {
    fn from(parts: SetParts) -> Self {
        Arc::new(ObjectParts::Set(parts.into())).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::decode::made_workload;

    fn deployment() -> Arc<Workload> {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
        Arc::new(made_workload(object).unwrap())
    }

    fn shown(generation: i64) -> ShownObject {
        let mut parts = WorkloadParts::of(deployment());
        parts.metadata.push(("generation", generation.into()));
        parts.annotations.push(("a/b", "1".into()));
        parts.set_status(&json!({"replicas": 2}));
        parts.into()
    }

    #[test]
    fn an_object_is_put_together_from_its_parts() {
        let object = shown(3);
        assert_eq!(object["metadata"]["name"], "web");
        assert_eq!(object["metadata"]["generation"], 3);
        assert_eq!(object["metadata"]["annotations"], json!({"a/b": "1"}));
        assert_eq!(object["spec"]["strategy"]["type"], "RollingUpdate");
        assert_eq!(object["status"]["replicas"], 2);
    }
}
