//! The description of a workload, in kubectl's layout (describe.go), and below it what podprobe adds: what the workload
//! waits for, what verbs have changed, and the file.
//!
//! Invariants: pure.

mod head;

use std::sync::Arc;

use serde_json::Value;

use super::lines::{labels, line, listed, put};
use super::{events, template};
use crate::api::workload::WorkloadKind;
use crate::base::clock::Time;
use crate::cli::columns::string_map;
use crate::cli::tabwriter;
use crate::face::views::PodView;
use crate::face::views::workloads::{
    self, controller, kind, name, namespace, number, or_none, uid,
};
use crate::pods::events::Event;
use crate::workloads::view::WorkloadView;

/// The surroundings of a workload that its description needs.
pub(super) struct Around<'a> {
    pub(super) all: &'a [WorkloadView],
    pub(super) pods: &'a [Arc<PodView>],
    pub(super) events: &'a [Arc<Event>],
    pub(super) now: Time,
}

/// Returns the description of a workload.
pub(super) fn text(view: &WorkloadView, around: &Around<'_>) -> String {
    let mut w = String::new();
    let w = &mut w;
    head::write(w, view, around);
    template::write(w, workloads::template(view));
    match kind(view) {
        Some(WorkloadKind::Deployment) => {
            conditions(w, &view.object);
            replica_sets(w, view, around.all);
        }
        Some(WorkloadKind::ReplicaSet | WorkloadKind::ReplicationController) => {
            conditions(w, &view.object);
        }
        Some(WorkloadKind::StatefulSet) => claims(w, &view.object["spec"]["volumeClaimTemplates"]),
        Some(WorkloadKind::CronJob) => head::runs(w, &view.object),
        _ => {}
    }
    own(w, view);
    let is_of = |event: &&Arc<Event>| {
        view.object["kind"] == *event.kind
            && event.pod == name(view)
            && event.namespace == namespace(view)
    };
    let its: Vec<Arc<Event>> = around.events.iter().filter(is_of).cloned().collect();
    events::write(w, &its, around.now);
    tabwriter::align(w, 0, 2)
}

fn conditions(w: &mut String, object: &Value) {
    let all = object["status"]["conditions"].as_array();
    let Some(all) = all.filter(|all| !all.is_empty()) else {
        return;
    };
    put!(
        w,
        "Conditions:\n  Type\tStatus\tReason\n  ----\t------\t------"
    );
    for condition in all {
        let of = |key: &str| condition[key].as_str().unwrap_or_default();
        put!(w, "  {} \t{}\t{}", of("type"), of("status"), of("reason"));
    }
}

/// Writes the old sets of a Deployment and the new one. The new set has the Deployment's revision.
fn replica_sets(w: &mut String, view: &WorkloadView, all: &[WorkloadView]) {
    const REVISION: &str = "deployment.kubernetes.io/revision";
    let revision = |v: &WorkloadView| v.object["metadata"]["annotations"][REVISION].clone();
    let is_set = |set: &&WorkloadView| {
        kind(set) == Some(WorkloadKind::ReplicaSet)
            && controller(&set.object).is_some_and(|c| c.uid == uid(view))
    };
    let (new, old): (Vec<_>, Vec<_>) = all
        .iter()
        .filter(is_set)
        .partition(|set| revision(set) == revision(view));
    if new.is_empty() && old.is_empty() {
        return;
    }
    for (title, sets) in [("OldReplicaSets", old), ("NewReplicaSet", new)] {
        let texts: Vec<String> = sets.into_iter().map(created).collect();
        line(w, title, &or_none(texts.join(", ")));
    }
}

fn created(set: &WorkloadView) -> String {
    let there = number(&set.object["status"]["replicas"]);
    let desired = number(&set.object["spec"]["replicas"]);
    format!("{} ({there}/{desired} replicas created)", name(set))
}

fn claims(w: &mut String, list: &Value) {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return line(w, "Volume Claims", "<none>");
    }
    put!(w, "Volume Claims:");
    for claim in list {
        let (metadata, spec) = (&claim["metadata"], &claim["spec"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        line(w, "  Name", &text(&metadata["name"]));
        line(w, "  StorageClass", &text(&spec["storageClassName"]));
        labels(w, "  Labels", string_map(&metadata["labels"]));
        labels(w, "  Annotations", string_map(&metadata["annotations"]));
        let capacity = spec["resources"]["requests"]["storage"].as_str();
        line(w, "  Capacity", capacity.unwrap_or("<default>"));
        let modes = spec["accessModes"].as_array().into_iter().flatten();
        let modes: Vec<&str> = modes.filter_map(Value::as_str).collect();
        line(w, "  Access Modes", &format!("[{}]", modes.join(" ")));
    }
}

/// Writes what podprobe adds to kubectl's lines.
fn own(w: &mut String, view: &WorkloadView) {
    if let Some(waiting) = &view.waiting {
        line(w, "Waiting", waiting);
    }
    listed(w, "Overrides", &view.overrides);
    if let Some(file) = &view.file {
        line(w, "File", file);
    }
    if let Some(error) = &view.file_error {
        let error = error.replace('\n', "\n\t");
        put!(w, "File Error:\tlast good version runs: {error}");
    }
    listed(w, "Warnings", &view.warnings);
}
