//! Revisions of StatefulSets and DaemonSets in a step: the wanted template is taken up, and its images are asked for.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::making::{Maker, Recipe};
use super::{ImagesState, Step, Stepping};
use crate::api::raw_object::RawObject;
use crate::workloads::controller_revisions::{ControllerRevisions, WantedTemplate, revision_label};
use crate::workloads::names;
use crate::workloads::observed::ObservedPod;
use crate::workloads::set_actions::SetWait;
use crate::workloads::template;

/// Number of hashes that are tried for a name that no other template has.
const TRIES: usize = 100;

/// Makes the wanted template the newest revision.
pub(super) fn take_up(
    revisions: &mut ControllerRevisions,
    workload: &str,
    wanted: &RawObject,
    annotations: &BTreeMap<String, String>,
    now: Timestamp,
) {
    if revisions
        .newest()
        .is_some_and(|it| it.template == wanted.text())
    {
        return;
    }
    let canonical = template::canonical(&wanted.value());
    let is_wanted = |text: &str| {
        let written = serde_json::from_slice::<Value>(text.as_bytes());
        written.is_ok_and(|written| template::canonical(&written) == canonical)
    };
    for _ in 0..TRIES {
        let hash = names::template_hash(&canonical, revisions.collision_count());
        let wanted = WantedTemplate {
            workload,
            template: wanted.text(),
            hash: &hash,
            annotations,
        };
        if revisions.take_up(&wanted, now, is_wanted).is_ok() {
            return;
        }
    }
}

/// Returns the sentence about what a set waits for.
pub(super) fn waiting(wait: &SetWait) -> Option<String> {
    (*wait != SetWait::Nothing).then(|| wait.to_string())
}

impl Stepping<'_> {
    /// True if no old pod stays for want of images: all pods are of the newest revision, or its images are on the node
    /// (workloads 3.22). `complete` adds what a pod needs besides its template to be valid.
    pub(super) fn images_of_newest(
        &self,
        revisions: &ControllerRevisions,
        pods: &[ObservedPod],
        step: &mut Step,
        complete: impl FnOnce(&mut Map<String, Value>),
    ) -> bool {
        let Some(newest) = revisions.newest() else {
            return true;
        };
        let is_newest = |pod: &ObservedPod| {
            let label = revision_label(pod);
            label == newest.name || label == newest.hash
        };
        if pods.iter().all(is_newest) {
            return true;
        }
        let Ok(template) = serde_json::from_slice::<Value>(newest.template.as_bytes()) else {
            return true;
        };
        let (template, owner) = (RawObject::new(&template), self.owner());
        let mut sample = Maker::new(self.world, self.key, self.pods);
        let recipe = Recipe {
            template: &template,
            owner: &owner,
            revision: "",
            labels: Vec::new(),
            annotations: Vec::new(),
        };
        sample.make(&self.key.name, recipe, complete);
        let Some(sample) = sample.made.pop() else {
            return true;
        };
        let key = format!("{}/{}", owner.uid, newest.hash);
        let images = self.world.node.images(&key, &sample.object, self.world.now);
        step.image_keys.push(key);
        images == ImagesState::Ready
    }
}
