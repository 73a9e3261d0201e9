//! Publishes the statuses of pods: which pod has something to say, and the request of each that is under way.
//!
//! Invariants: the pods of the API server and the mirror pods of static pods are published, and nothing else. A pod has at
//! most one request under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::pod::PodSpec;
use crate::api::{PodPhase, PodStatus, PodUid};
use crate::base::clock::{Moment, Time};
use crate::base::json;
use crate::cluster::exchange::{Answer, Request};
use crate::cluster::pod_set::RefusedPod;
use crate::cluster::reflector::Change;
use crate::cluster::status::{Next, PodView, Publication, Resync, WorkerStage};

/// Reason of a pod that the node cannot run. A kubelet has no such pod, because it reads everything that an API server
/// takes.
const UNREADABLE: &str = "UnsupportedPod";

/// A pod as it is published: what the node knows of it.
pub(super) struct Published {
    /// Namespace of the pod.
    pub(super) namespace: String,
    /// Name of the pod in the API server.
    pub(super) name: String,
    /// UID of the pod in the API server.
    pub(super) uid: PodUid,
    /// True for a static pod.
    pub(super) is_static: bool,
    /// Generation of the API object that the status was made from.
    pub(super) generation: Option<i64>,
    /// Spec of the pod.
    pub(super) spec: Arc<PodSpec>,
    /// Latest status.
    pub(super) status: Arc<PodStatus>,
    /// Progress of the pod's worker.
    pub(super) stage: WorkerStage,
}

impl Published {
    /// A pod that the node cannot run, with the reason in its status.
    pub(super) fn refused(refused: &RefusedPod) -> Self {
        let status = PodStatus {
            phase: PodPhase::Failed,
            reason: UNREADABLE.to_owned(),
            message: refused.reason.one_line(),
            ..PodStatus::default()
        };
        Self {
            namespace: refused.pod.namespace.to_string(),
            name: refused.pod.name.to_string(),
            uid: refused.pod.uid.clone(),
            is_static: false,
            generation: None,
            spec: Arc::default(),
            status: Arc::new(status),
            stage: WorkerStage::Finished,
        }
    }
}

/// A publication with the status that it was last asked about.
#[derive(Default)]
struct Entry {
    publication: Publication,
    status: Arc<PodStatus>,
    version: u64,
}

impl Entry {
    /// Takes note of the present status.
    fn see(&mut self, pod: &Published) {
        if !Arc::ptr_eq(&self.status, &pod.status) && self.status != pod.status {
            self.version += 1;
        }
        self.status = pod.status.clone();
    }
}

/// The publications of all pods, by the UID in the API server.
pub(super) struct Statuses {
    entries: BTreeMap<PodUid, Entry>,
    /// The objects of the watch, each with what a publication reads of it.
    copies: BTreeMap<PodUid, Value>,
    resync: Resync,
}

impl Statuses {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            entries: BTreeMap::new(),
            copies: BTreeMap::new(),
            resync: Resync::new(now),
        }
    }

    /// Takes a change that the watch of the pods has brought.
    pub(super) fn observe(&mut self, change: &Change) {
        match change {
            Change::Replaced(objects) => {
                self.copies = objects.iter().map(copy_of).collect();
            }
            Change::Added(object) | Change::Modified(object) => {
                self.copies.extend([copy_of(object)]);
            }
            Change::Deleted(object) => {
                self.copies.remove(&copy_of(object).0);
            }
        }
    }

    /// Returns the resource version of a pod as the watch has it, or an empty text.
    pub(super) fn resource_version(&self, uid: &PodUid) -> &str {
        let version = self
            .copies
            .get(uid)
            .map(|c| &c["metadata"]["resourceVersion"]);
        version.and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the status of a pod that has ended, as the API server knows it.
    pub(super) fn ended(&self, uid: &PodUid) -> Option<PodStatus> {
        let status: PodStatus = json::from_value(&self.copies.get(uid)?["status"]).ok()?;
        status.phase.is_terminal().then_some(status)
    }

    /// Returns the first requests of the pods that have something to say. `pods` are all that are published.
    pub(super) fn step(
        &mut self,
        now: Moment,
        wall: Time,
        pods: &[Published],
        host_ips: &[String],
    ) -> Vec<(PodUid, Request)> {
        let is_resync = self.resync.is_due(now);
        let known: BTreeSet<&PodUid> = pods.iter().map(|pod| &pod.uid).collect();
        self.entries.retain(|uid, _| known.contains(uid));
        let mut requests = Vec::new();
        for pod in pods {
            let entry = self.entries.entry(pod.uid.clone()).or_default();
            entry.see(pod);
            let view = view(pod, entry.version, host_ips, &self.copies);
            if let Some(request) = entry.publication.begin(now, wall, &view, is_resync) {
                requests.push((pod.uid.clone(), request));
            }
        }
        requests
    }

    /// Takes the answer to the request of a pod, and returns the request that follows at once. A pod that is not
    /// published any more has no more requests.
    pub(super) fn answered(
        &mut self,
        now: Moment,
        wall: Time,
        pod: &Published,
        host_ips: &[String],
        answer: &Answer,
    ) -> Option<Request> {
        let entry = self.entries.get_mut(&pod.uid)?;
        entry.see(pod);
        let view = view(pod, entry.version, host_ips, &self.copies);
        let named = || format!("the status of {}/{}", pod.namespace, pod.name);
        match entry.publication.answered(now, wall, &view, answer) {
            Next::Send(request) => return Some(request),
            Next::Refused(code) => log::error!(
                "the API server refuses {} with {code}: {}",
                named(),
                answer.message()
            ),
            Next::Held(revived) => log::error!("{} is not sent: {revived}", named()),
            Next::Published | Next::Retry(_) | Next::Gone => {}
        }
        None
    }

    /// The moment at which a pod has something to say although nothing has changed. `now` is the time of the last step,
    /// which has looked at everything that was due.
    pub(super) fn deadline(&self, now: Moment) -> Moment {
        let entries = self.entries.values();
        let retries = entries.filter_map(|entry| entry.publication.retry_at());
        let later = retries.filter(|at| *at > now);
        later.fold(self.resync.at(), Moment::min)
    }
}

/// Returns the part of an API object that a publication reads, with its UID. The rest is not kept, because a node has little
/// memory.
fn copy_of(object: &Value) -> (PodUid, Value) {
    let metadata = &object["metadata"];
    let uid: PodUid = metadata["uid"].as_str().unwrap_or_default().into();
    let kept = json!({
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "deletionTimestamp": metadata["deletionTimestamp"],
        },
        "status": object["status"],
    });
    (uid, kept)
}

fn view<'a>(
    pod: &'a Published,
    version: u64,
    host_ips: &'a [String],
    copies: &'a BTreeMap<PodUid, Value>,
) -> PodView<'a> {
    PodView {
        namespace: &pod.namespace,
        name: &pod.name,
        uid: pod.uid.as_str(),
        mirror: pod.is_static,
        generation: pod.generation,
        spec: &pod.spec,
        status: &pod.status,
        version,
        stage: pod.stage,
        host_ips,
        copy: copies.get(&pod.uid),
    }
}
