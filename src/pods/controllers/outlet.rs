//! The outlet of controllers: pods go to the sync loop as those of a source, claims to the store of objects.
//!
//! Invariants: the full set of pods is passed each time, and an unchanged pod is the same object as before. A record
//! whose object does not decode is told once, and its pod is left out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crossbeam_channel::Receiver;
use serde_json::Value;

use crate::api::decode::DecodeError;
use crate::api::objects::LocalObject;
use crate::api::workload::WorkloadKey;
use crate::api::{Pod, PodOrigin, PodSource, PodUid, decode};
use crate::pods::sources::{Outlet, PodFile};
use crate::workloads::{Owner, PodRecord};

/// The way of controllers to the sync loop.
pub struct PodOutlet {
    outlet: Outlet,
    node_name: String,
    pods: HashMap<PodUid, Handed>,
    stopped: Receiver<()>,
    /// The pods and files that were passed last.
    set: Option<Passed>,
    claims: BTreeMap<WorkloadKey, Vec<LocalObject>>,
    has_passed_claims: bool,
}

/// The pods that were passed, and their files.
type Passed = (Vec<Arc<Pod>>, BTreeMap<PodUid, PodFile>);

/// A pod that was handed on.
struct Handed {
    /// The pod. None if the object of the record does not decode.
    pod: Option<Arc<Pod>>,
    /// The deletion of the pod: if there is one, and within how many seconds.
    deletion: (bool, Option<i64>),
    /// The controller of the pod.
    owner: Arc<Owner>,
}

impl PodOutlet {
    /// Makes an outlet that has passed nothing yet. `stopped` closes when the daemon ends.
    pub fn new(outlet: Outlet, node_name: String, stopped: Receiver<()>) -> Self {
        Self {
            outlet,
            node_name,
            stopped,
            pods: HashMap::new(),
            set: None,
            claims: BTreeMap::new(),
            has_passed_claims: false,
        }
    }

    /// Returns the pod of a record that was handed on.
    pub(super) fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.pods.get(uid)?.pod.clone()
    }

    /// Passes the pods of these records, if they differ from those passed last. `file` returns the file of a workload.
    pub(super) fn hand_on<'a>(
        &mut self,
        records: impl Iterator<Item = &'a PodRecord>,
        file: impl Fn(&WorkloadKey) -> String,
    ) {
        let mut pods = HashMap::new();
        let (mut set, mut files) = (Vec::new(), BTreeMap::new());
        for record in records {
            let known = self.pods.remove(&record.uid);
            let known = known.filter(|known| known.deletion == deletion(record));
            let handed = known.unwrap_or_else(|| self.decode(record));
            if let Some(pod) = &handed.pod {
                set.push(pod.clone());
                let file = PodFile {
                    file: file(&record.workload),
                    owner: Some(handed.owner.clone()),
                    ..PodFile::default()
                };
                files.insert(record.uid.clone(), file);
            }
            pods.insert(record.uid.clone(), handed);
        }
        self.pods = pods;
        self.speak();
        let passed = self.set.as_ref();
        let is_same = passed.is_some_and(|(old, of)| same_pods(old, &set) && *of == files);
        if is_same {
            return;
        }
        self.set = Some((set.clone(), files.clone()));
        // The end of the sync loop is the end of the daemon, which the thread sees by itself.
        let _ = self.outlet.publish_made(set, files, &self.stopped);
    }

    fn decode(&self, record: &PodRecord) -> Handed {
        let pod = pod_of(&record.to_object(), &self.node_name);
        if let Err(e) = &pod {
            log::error!("{}: pod {}: {e}", record.workload, record.name);
        }
        Handed {
            pod: pod.ok().map(Arc::new),
            deletion: deletion(record),
            owner: Arc::new(record.owner.clone()),
        }
    }

    /// Passes an empty set of claims at the start, so that nobody waits for claims where no StatefulSet has any.
    fn speak(&mut self) {
        if !std::mem::replace(&mut self.has_passed_claims, true) {
            self.outlet
                .objects
                .replace(PodSource::Controller, Vec::new());
        }
    }

    /// Passes the claims that the pods of a workload need.
    pub(super) fn set_claims(&mut self, workload: &WorkloadKey, claims: Vec<LocalObject>) {
        let is_same = match self.claims.get(workload) {
            Some(known) => *known == claims,
            None => claims.is_empty(),
        };
        if is_same {
            return;
        }
        match claims.is_empty() {
            true => drop(self.claims.remove(workload)),
            false => drop(self.claims.insert(workload.clone(), claims)),
        }
        let all = self.claims.values().flatten().cloned().collect();
        self.outlet.objects.replace(PodSource::Controller, all);
    }
}

/// Returns the deletion of a pod: if there is one, and within how many seconds.
fn deletion(record: &PodRecord) -> (bool, Option<i64>) {
    (record.deleted_at.is_some(), record.grace_seconds)
}

fn same_pods(a: &[Arc<Pod>], b: &[Arc<Pod>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// The object that a controller made is no pod.
#[derive(Debug, thiserror::Error)]
pub enum NoPod {
    /// The decoder refused the object.
    #[error(transparent)]
    Refused(#[from] DecodeError),
    /// The object holds no pod.
    #[error("the object holds no pod")]
    Empty,
}

/// Returns the pod of an object that a controller made.
///
/// # Errors
/// Returns [`NoPod`] if the object is no valid pod.
pub fn pod_of(object: &Value, node_name: &str) -> Result<Pod, NoPod> {
    let decoded = decode::objects(
        object.to_string().as_bytes(),
        &PodOrigin::Controller { node_name },
    )?;
    let pod = decoded.pods.into_iter().next();
    Ok(pod.ok_or(NoPod::Empty)?.pod)
}
