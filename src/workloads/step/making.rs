//! Makes the records of new pods.
//!
//! Invariants: each record has a UID of its own, and a name that no pod of the workload has. The name comes from the UID,
//! so a name that is taken draws again with the next attempt (workloads 1.4).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{KnownPod, World};
use crate::api::raw_object::RawObject;
use crate::api::workload::WorkloadKey;
use crate::workloads::names;
use crate::workloads::record::{Owner, PodRecord};
use crate::workloads::template::{self, Additions};

/// Number of draws of a name. A set with so many pods that all draws are taken does not fit a node.
const DRAWS: u32 = 100;

/// Makes pods of one workload.
pub(super) struct Maker<'a> {
    world: &'a World<'a>,
    workload: &'a WorkloadKey,
    taken: BTreeSet<String>,
    pub(super) made: Vec<PodRecord>,
}

/// The ingredients of a new pod.
pub(super) struct Recipe<'a> {
    /// The template as it was written.
    pub(super) template: &'a RawObject,
    /// The controller of the pod.
    pub(super) owner: &'a Owner,
    /// Hash or name of the revision of the template.
    pub(super) revision: &'a str,
    /// Labels that the controller sets.
    pub(super) labels: Vec<(String, String)>,
    /// Annotations that the controller sets.
    pub(super) annotations: Vec<(String, String)>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(world: &'a World<'a>, workload: &'a WorkloadKey, pods: &[KnownPod]) -> Self {
        Self {
            world,
            workload,
            taken: pods.iter().map(|pod| pod.record.name.clone()).collect(),
            made: Vec::new(),
        }
    }

    /// Makes a pod with a random name that begins with `prefix`. `edit` changes the object last.
    pub(super) fn make(
        &mut self,
        prefix: &str,
        recipe: Recipe<'_>,
        edit: impl FnOnce(&mut Map<String, Value>),
    ) {
        let uid = self.world.node.new_uid();
        let drawn = (0..DRAWS).map(|attempt| names::pod_name(prefix, &uid, attempt));
        let name = drawn.into_iter().find(|name| !self.taken.contains(name));
        let name = name.unwrap_or_else(|| uid.to_string());
        self.add(name, uid, recipe, edit);
    }

    /// Makes a pod of this name.
    pub(super) fn make_named(
        &mut self,
        name: String,
        recipe: Recipe<'_>,
        edit: impl FnOnce(&mut Map<String, Value>),
    ) {
        let uid = self.world.node.new_uid();
        self.add(name, uid, recipe, edit);
    }

    fn add(
        &mut self,
        name: String,
        uid: crate::api::PodUid,
        recipe: Recipe<'_>,
        edit: impl FnOnce(&mut Map<String, Value>),
    ) {
        let additions = Additions {
            name: name.clone(),
            uid: uid.to_string(),
            namespace: self.workload.namespace.clone(),
            node_name: self.world.node.name().to_owned(),
            created: self.world.wall.now,
            owner: recipe.owner.clone(),
            labels: recipe.labels,
            annotations: recipe.annotations,
        };
        let mut object = template::pod(&recipe.template.value(), &additions);
        if let Some(map) = object.as_object_mut() {
            edit(map);
        }
        self.taken.insert(name.clone());
        self.made.push(PodRecord {
            uid,
            name,
            namespace: self.workload.namespace.clone(),
            workload: self.workload.clone(),
            owner: recipe.owner.clone(),
            revision: recipe.revision.to_owned(),
            created: self.world.now,
            deleted_at: None,
            grace_seconds: None,
            object,
        });
    }
}
