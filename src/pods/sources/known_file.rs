//! The state of one pod file: its last good version, and the reason why its present content is not used.
//!
//! Invariants: this module is pure. A reading that cannot be used does not change the last good version.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::reading::{ContentError, Digest, Reading, Signature};
use crate::api::decode::{Decoded, DecodedPod, DecodedWorkload};
use crate::api::field::aggregate;
use crate::api::objects::{LocalObject, ObjectKey};
use crate::api::validation::validate_update;
use crate::api::workload::{Workload, WorkloadKey};
use crate::api::{Pod, PodUid};
use crate::base::clock::Moment;

/// The time for which a file must be missing before its pods are removed. Some editors and configuration tools move the
/// old file away before they write the new one. Without this time, each save would restart the pod.
pub const REMOVAL_SETTLE: Duration = Duration::from_millis(100);

/// A pod of the last good version.
#[derive(Clone)]
pub(super) struct GoodPod {
    pub(super) pod: Arc<Pod>,
    pub(super) warnings: Vec<String>,
}

/// A workload of the last good version.
#[derive(Clone)]
pub(super) struct GoodWorkload {
    pub(super) workload: Arc<Workload>,
    pub(super) warnings: Vec<String>,
}

/// The state of one pod file.
#[derive(Default)]
pub(super) struct KnownFile {
    pub(super) signature: Option<Signature>,
    pub(super) digest: Option<Digest>,
    pub(super) good: Vec<GoodPod>,
    pub(super) workloads: Vec<GoodWorkload>,
    pub(super) objects: Vec<LocalObject>,
    /// The notes about parts of the last good version that have no effect, besides the warnings of its pods and
    /// workloads.
    pub(super) notes: Vec<String>,
    /// The texts about objects that people rely on, and that have no effect here.
    pub(super) not_enforced: Vec<String>,
    /// The digest of the last good version.
    pub(super) accepted: Option<Digest>,
    /// The reason why this daemon refuses the last good version of an earlier daemon.
    pub(super) refused: Option<ContentError>,
    /// The reason why the present content could not be read.
    read_error: Option<String>,
    /// The reason why the last content that was read is not used.
    content_error: Option<ContentError>,
    pub(super) vanished: Option<Moment>,
    /// The time at which the file appeared. `None` if the first listing already had the file.
    appeared: Option<Moment>,
}

impl KnownFile {
    /// Makes the state of a file that was not read yet. `appeared` is `None` if the first listing already had the file.
    pub(super) fn new(appeared: Option<Moment>) -> Self {
        Self {
            appeared,
            ..Self::default()
        }
    }

    /// Returns the time until which a new file may be a copy of another file, or `None` if the file cannot be a copy.
    /// Editors such as `sed -i` write a copy beside the file and rename it, so for a moment two files have the same
    /// pod. Until the returned time the two files are not reported.
    pub(super) fn may_be_a_copy_until(&self, now: Moment) -> Option<Moment> {
        let until = self.appeared? + REMOVAL_SETTLE;
        (self.vanished.is_none() && now < until).then_some(until)
    }

    /// Tells whether the pods of a new file wait until vanished files have been removed. So after a rename of a file or
    /// an update of the directory, the old pods are removed before the new pods come. A new file does not wait if it
    /// has a pod of the same name as a leaving pod.
    pub(super) fn comes_after(&self, leaving: &HashSet<String>, now: Moment) -> bool {
        let replaces = |good: &GoodPod| leaving.contains(&good.pod.full_name());
        !leaving.is_empty()
            && self.may_be_a_copy_until(now).is_some()
            && !self.good.iter().any(replaces)
    }

    /// Takes a reading of the file. A file with a reading exists, so it is not marked as vanished.
    pub(super) fn take(&mut self, reading: Reading) {
        self.vanished = None;
        match reading {
            Reading::Unchanged | Reading::Skipped(_) => {}
            Reading::SameContent { signature } => {
                self.signature = signature;
                self.read_error = None;
            }
            Reading::Failed(e) => {
                self.signature = None;
                self.read_error = Some(e);
            }
            Reading::Parsed {
                signature,
                digest,
                result,
            } => {
                self.signature = signature;
                self.digest = Some(digest);
                self.read_error = None;
                self.content_error = match result.and_then(|new| self.may_become(new)) {
                    Ok(decoded) => {
                        self.accept(digest, decoded);
                        None
                    }
                    Err(e) => Some(e),
                };
            }
        }
    }

    /// Makes this content the last good version.
    pub(super) fn accept(&mut self, digest: Digest, decoded: Decoded) {
        self.good = decoded
            .pods
            .into_iter()
            .map(|DecodedPod { pod, warnings }| GoodPod {
                pod: Arc::new(pod),
                warnings,
            })
            .collect();
        let workloads = decoded.workloads.into_iter();
        let good = |DecodedWorkload { workload, warnings }| GoodWorkload {
            workload: Arc::new(workload),
            warnings,
        };
        self.workloads = workloads.map(good).collect();
        (self.objects, self.notes) = (decoded.objects, decoded.notes);
        self.not_enforced = decoded.not_enforced;
        (self.accepted, self.refused) = (Some(digest), None);
    }

    /// Refuses content that must not replace the last good version.
    fn may_become(&self, new: Decoded) -> Result<Decoded, ContentError> {
        let old = self.good.iter().map(|old| (old.pod.uid(), old));
        let old: HashMap<&PodUid, &GoodPod> = old.collect();
        for DecodedPod { pod, .. } in &new.pods {
            let old = old.get(pod.uid());
            if let Some(old) = old.filter(|old| old.pod.full_name() != pod.full_name()) {
                let name = |pod: &Pod| format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
                return Err(ContentError::Renamed {
                    was: name(&old.pod),
                    is: name(pod),
                    uid: pod.uid().clone(),
                });
            }
        }
        self.workloads_may_become(&new)?;
        let old = self.objects.iter().map(|old| (&old.key, old));
        let old: BTreeMap<&ObjectKey, &LocalObject> = old.collect();
        for object in &new.objects {
            let old = old.get(&object.key);
            if let Some(Err(field)) = old.map(|old| old.may_become(object)) {
                let object = object.key.clone();
                return Err(ContentError::Immutable { field, object });
            }
        }
        Ok(new)
    }

    /// Refuses a workload that changes a field that may not change (workloads 1.11).
    fn workloads_may_become(&self, new: &Decoded) -> Result<(), ContentError> {
        let old = self.workloads.iter().map(|old| (old.workload.key(), old));
        let old: BTreeMap<WorkloadKey, &GoodWorkload> = old.collect();
        for DecodedWorkload { workload, .. } in &new.workloads {
            let Some(old) = old.get(&workload.key()) else {
                continue;
            };
            let errors = validate_update(workload, &old.workload);
            if !errors.is_empty() {
                return Err(ContentError::ImmutableWorkload {
                    errors: aggregate(&errors),
                    workload: workload.key(),
                });
            }
        }
        Ok(())
    }

    /// True if nothing of the last good version runs.
    fn runs_nothing(&self) -> bool {
        self.good.is_empty() && self.workloads.is_empty()
    }

    /// Returns the reason why the present content is not used. If the pod has no last good version, the text also says
    /// what that means for the pod.
    pub(super) fn error(&self) -> Option<String> {
        let (error, is_refused_again) = match (&self.read_error, &self.content_error) {
            (Some(error), _) => (error.clone(), false),
            (None, Some(error)) => (error.to_string(), self.refused.as_ref() == Some(error)),
            (None, None) => return None,
        };
        Some(match &self.refused {
            Some(_) if self.runs_nothing() && is_refused_again => {
                format!(
                    "{error}; an earlier version of podprobe accepted this content, this one does not: its pod does not run until the file is corrected"
                )
            }
            Some(why) if self.runs_nothing() => {
                format!(
                    "{error}; this version of podprobe refuses its last good version too, so its pod does not run: {why}"
                )
            }
            _ => error,
        })
    }

    /// True if the present content was read and is valid.
    pub(super) fn is_valid(&self) -> bool {
        let of_content = self.content_error.as_ref();
        self.read_error.is_none() && of_content.is_none_or(ContentError::is_of_valid_content)
    }

    /// Returns the log text about the pods that keep running although the file is bad. Views have their own text.
    pub(super) fn consequence(&self) -> &'static str {
        match self.good.len() {
            0 if self.objects.is_empty() && self.workloads.is_empty() => "",
            0 => "; its last good version stays",
            1 => "; the last good version of its pod stays",
            _ => "; the last good versions of its pods stay",
        }
    }
}
