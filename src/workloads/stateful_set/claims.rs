//! The claims of a StatefulSet's pods: their names, which ones are missing, and which ones go (workloads 5.2, 5.3).
//!
//! Invariants: pure. A claim goes only if its owner, which is written down while the owner is there, is gone. So a
//! policy that changes later never takes claims of pods that went before. The caller takes the claims out of the store of
//! objects.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::StatefulSetInput;
use super::ordinals::{Members, pod_name};
use crate::api::PodPhase;
use crate::api::workload::{ClaimRetention, ClaimRetentionPolicy, StatefulSetSpec};

/// Owner of the claims of one pod: when the owner goes, the claims go. Claims without an owner stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimOwner {
    /// The StatefulSet.
    Set,
    /// The pod, which is beyond the range.
    Pod,
}

/// A claim that is to be made before its pod starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimCreation {
    /// Name of the claim.
    pub claim: String,
    /// Name of the pod that uses the claim.
    pub pod: String,
    /// Labels of the claim: those of its template, and those that the set's selector demands.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the claim.
    pub annotations: BTreeMap<String, String>,
}

/// Returns the name of a pod's claim.
pub fn claim_name(template: &str, set: &str, ordinal: i32) -> String {
    format!("{template}-{set}-{ordinal}")
}

/// Returns the names of all claims of the set's pod with this number.
fn claim_names(set: &str, spec: &StatefulSetSpec, ordinal: i32) -> impl Iterator<Item = String> {
    let templates = spec.volume_claim_templates.iter();
    templates.map(move |it| claim_name(&it.metadata.name, set, ordinal))
}

/// Returns the claims that the pod with this number needs and that are not there.
pub(super) fn missing_claims(
    set: &str,
    spec: &StatefulSetSpec,
    ordinal: i32,
    claims: &BTreeSet<String>,
) -> Vec<ClaimCreation> {
    let templates = spec.volume_claim_templates.iter();
    let needed = templates.map(|it| {
        let mut labels = it.metadata.labels.clone();
        labels.extend(spec.selector.match_labels.clone());
        ClaimCreation {
            claim: claim_name(&it.metadata.name, set, ordinal),
            pod: pod_name(set, ordinal),
            labels,
            annotations: it.metadata.annotations.clone(),
        }
    });
    needed.filter(|it| !claims.contains(&it.claim)).collect()
}

/// Returns the owner of the claims of a pod (stateful_set_utils.go: updateClaimOwnerRefForSetAndPod).
fn owner(policy: Option<&ClaimRetentionPolicy>, is_condemned: bool) -> Option<ClaimOwner> {
    let policy = policy?;
    let dies_with_pod = policy.scaled() == ClaimRetention::Delete && is_condemned;
    let dies_with_set = policy.deleted() == ClaimRetention::Delete;
    if dies_with_pod {
        return Some(ClaimOwner::Pod);
    }
    dies_with_set.then_some(ClaimOwner::Set)
}

/// The owners of all claims, and the claims whose owners are gone.
#[derive(Default)]
pub(super) struct ClaimBook {
    /// Owners of the claims, by the number of the pod.
    pub owners: BTreeMap<i32, ClaimOwner>,
    /// Names of the claims that go.
    pub orphans: Vec<String>,
}

/// Writes down who owns the claims of the pods that are there, and finds the claims whose owner is gone. `made` are
/// the numbers of pods that are made now.
pub(super) fn keep_book(
    input: &StatefulSetInput<'_>,
    members: &Members<'_>,
    made: impl Iterator<Item = i32>,
) -> ClaimBook {
    if input.spec.volume_claim_templates.is_empty() {
        return ClaimBook::default();
    }
    let mut owners = input.state.claim_owners.clone();
    let policy = input.spec.persistent_volume_claim_retention_policy.as_ref();
    let here: BTreeSet<i32> = members.all().map(|(it, _)| it).chain(made).collect();
    for ordinal in &here {
        match owner(policy, !members.range.contains(ordinal)) {
            Some(owner) => owners.insert(*ordinal, owner),
            None => owners.remove(ordinal),
        };
    }
    let orphans = take_orphans(input, members, &here, &mut owners);
    ClaimBook { owners, orphans }
}

/// Returns the claims whose owner is gone, and forgets the owners whose claims are all gone as well.
fn take_orphans(
    input: &StatefulSetInput<'_>,
    members: &Members<'_>,
    here: &BTreeSet<i32>,
    owners: &mut BTreeMap<i32, ClaimOwner>,
) -> Vec<String> {
    let mut orphans = Vec::new();
    owners.retain(|ordinal, owner| {
        let is_gone = match owner {
            ClaimOwner::Set => input.is_deleted && here.is_empty(),
            ClaimOwner::Pod => {
                !here.contains(ordinal) && (input.is_deleted || !members.range.contains(ordinal))
            }
        };
        let before = orphans.len();
        if is_gone {
            let names = claim_names(input.name, input.spec, *ordinal);
            orphans.extend(names.filter(|it| input.claims.contains(it)));
        }
        !is_gone || orphans.len() > before
    });
    orphans
}

/// Returns the claims that are missing for pods that wait for them or are made now.
pub(super) fn claims_to_make(
    input: &StatefulSetInput<'_>,
    members: &Members<'_>,
    made: impl Iterator<Item = i32>,
) -> Vec<ClaimCreation> {
    if input.is_deleted {
        return Vec::new();
    }
    let pending = members
        .wanted()
        .filter(|(_, pod)| pod.phase == PodPhase::Pending && !pod.is_deleted);
    let ordinals: BTreeSet<i32> = pending.map(|(it, _)| it).chain(made).collect();
    let missing = |it: &i32| missing_claims(input.name, input.spec, *it, input.claims);
    ordinals.iter().flat_map(missing).collect()
}
