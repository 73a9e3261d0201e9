//! The record of a pod that a controller has made.
//!
//! Invariants: a record is on the disk before the pod starts, and until the pod is gone, so that no pod is made twice and
//! each pod is known again after a restart. The record has all that is needed to rebuild the state of its workload
//! (workloads 9.4).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::workload::WorkloadKey;
use crate::base::pod_uid::PodUid;

/// The controller of a pod: what its owner reference names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// `apiVersion` of the controller.
    pub api_version: String,
    /// Kind of the controller, such as `ReplicaSet`.
    pub kind: String,
    /// Namespace of the controller. It is that of its children.
    pub namespace: String,
    /// Name of the controller.
    pub name: String,
    /// UID of the controller.
    pub uid: String,
}

/// A pod that a controller has made, as it is kept on the disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRecord {
    /// UID of the pod.
    pub uid: PodUid,
    /// Name of the pod.
    pub name: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// The workload in a file from which the pod stems.
    pub workload: WorkloadKey,
    /// The controller of the pod: the workload itself, a set of a Deployment or a Job of a CronJob.
    pub owner: Owner,
    /// Hash or name of the revision of the template.
    #[serde(default)]
    pub revision: String,
    /// Time at which the pod was made.
    pub created: Timestamp,
    /// Time at which the deletion of the pod began.
    #[serde(default)]
    pub deleted_at: Option<Timestamp>,
    /// Grace period of the deletion in seconds. None means the pod's own.
    #[serde(default)]
    pub grace_seconds: Option<i64>,
    /// The pod as it was made: the template with names, labels and owner, without defaults.
    pub object: Value,
}

impl PodRecord {
    /// Tells whether a deletion within `grace` seconds changes anything. A pod that is being deleted may be asked to end
    /// sooner, and never later.
    pub fn may_be_deleted(&self, grace: Option<i64>) -> bool {
        let own = self.object["spec"]["terminationGracePeriodSeconds"].as_i64();
        let now = self.grace_seconds.or(own).unwrap_or(DEFAULT_GRACE);
        self.deleted_at.is_none() || grace.is_some_and(|sooner| sooner < now)
    }

    /// Returns the object of the pod. The object of a pod that is being deleted says so.
    pub fn to_object(&self) -> Value {
        let mut object = self.object.clone();
        if let (Some(at), Some(metadata)) = (self.deleted_at, metadata_of(&mut object)) {
            metadata.insert("deletionTimestamp".into(), seconds(at).into());
            if let Some(grace) = self.grace_seconds {
                metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
            }
        }
        object
    }
}

fn metadata_of(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

/// The grace period of a pod whose template gives none, in seconds.
const DEFAULT_GRACE: i64 = 30;

/// Returns a time as the API writes it, in whole seconds.
pub fn seconds(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::workload::WorkloadKind;

    #[test]
    fn the_object_of_a_pod_that_is_deleted_says_so() {
        let mut record = PodRecord {
            uid: "1".into(),
            name: "web-1".into(),
            namespace: "default".into(),
            workload: WorkloadKey {
                kind: WorkloadKind::Deployment,
                namespace: "default".into(),
                name: "web".into(),
            },
            owner: Owner::default(),
            revision: String::new(),
            created: Timestamp::UNIX_EPOCH,
            deleted_at: None,
            grace_seconds: None,
            object: json!({"metadata": {"name": "web-1"}}),
        };
        assert_eq!(record.to_object(), record.object);
        record.deleted_at = Some(Timestamp::from_millisecond(7_900).unwrap());
        let deleted = json!({"name": "web-1", "deletionTimestamp": "1970-01-01T00:00:07Z"});
        assert_eq!(record.to_object()["metadata"], deleted);
        let sooner = |record: &PodRecord, grace| record.may_be_deleted(grace);
        assert!(!sooner(&record, None) && !sooner(&record, Some(30)));
        assert!(sooner(&record, Some(29)));
        record.grace_seconds = Some(5);
        assert!(!sooner(&record, Some(5)) && sooner(&record, Some(0)));
        record.deleted_at = None;
        assert!(sooner(&record, None));
    }
}
