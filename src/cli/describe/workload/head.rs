//! The first lines of the description of a workload, which differ for each kind, in kubectl's order.
//!
//! Invariants: pure.

use serde_json::Value;

use super::super::lines::{annotations, labels, line, put, scalar};
use super::Around;
use crate::api::PodPhase;
use crate::api::workload::WorkloadKind;
use crate::base::json;
use crate::cli::columns::string_map;
use crate::cli::human;
use crate::face::views::workloads::{
    controller, kind, labels_text, name, namespace, number, or_none, selector, selector_text, time,
    uid, yes_or_no,
};
use crate::workloads::view::WorkloadView;

/// Number of characters of completed indexes after which the list ends at the next comma.
const MAX_INDEXES: usize = 50;

/// Writes the lines before the template.
pub(super) fn write(w: &mut String, view: &WorkloadView, around: &Around<'_>) {
    let object = &view.object;
    line(w, "Name", name(view));
    line(w, "Namespace", namespace(view));
    match kind(view) {
        Some(WorkloadKind::Deployment) => deployment(w, view),
        Some(WorkloadKind::StatefulSet) => stateful_set(w, view, around),
        Some(WorkloadKind::DaemonSet) => daemon_set(w, view, around),
        Some(WorkloadKind::Job) => job(w, view),
        Some(WorkloadKind::CronJob) => cron_job(w, object),
        _ => replica_set(w, view, around),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a number or text of the object as text, or `<unset>`.
fn or_unset(value: &Value) -> String {
    scalar(value).unwrap_or_else(|| "<unset>".into())
}

fn meta(w: &mut String, object: &Value) {
    let metadata = &object["metadata"];
    labels(w, "Labels", string_map(&metadata["labels"]));
    annotations(w, "Annotations", &metadata["annotations"]);
}

fn date(w: &mut String, title: &str, value: &Value) {
    if let Some(time) = time(value) {
        line(w, title, &human::date(time));
    }
}

fn selector_line(w: &mut String, view: &WorkloadView) {
    let selector = selector(view).map(|s| selector_text(&s));
    line(w, "Selector", &selector.unwrap_or_default());
}

fn owner(w: &mut String, object: &Value) {
    if let Some(owner) = controller(object) {
        line(
            w,
            "Controlled By",
            &format!("{}/{}", owner.kind, owner.name),
        );
    }
}

/// Writes how many pods of the workload are in each phase.
fn phases(w: &mut String, view: &WorkloadView, around: &Around<'_>) {
    let of = |phase: PodPhase| {
        let is_own = |pod: &&std::sync::Arc<crate::face::views::PodView>| {
            controller(&pod.object).is_some_and(|c| c.uid == uid(view)) && pod.status.phase == phase
        };
        around.pods.iter().filter(is_own).count()
    };
    put!(
        w,
        "Pods Status:\t{} Running / {} Waiting / {} Succeeded / {} Failed",
        of(PodPhase::Running),
        of(PodPhase::Pending),
        of(PodPhase::Succeeded),
        of(PodPhase::Failed)
    );
}

fn deployment(w: &mut String, view: &WorkloadView) {
    let (spec, status) = (&view.object["spec"], &view.object["status"]);
    date(
        w,
        "CreationTimestamp",
        &view.object["metadata"]["creationTimestamp"],
    );
    meta(w, &view.object);
    selector_line(w, view);
    let count = |key: &str| number(&status[key]);
    put!(
        w,
        "Replicas:\t{} desired | {} updated | {} total | {} available | {} unavailable",
        number(&spec["replicas"]),
        count("updatedReplicas"),
        count("replicas"),
        count("availableReplicas"),
        count("unavailableReplicas")
    );
    line(w, "StrategyType", text(&spec["strategy"]["type"]));
    put!(w, "MinReadySeconds:\t{}", number(&spec["minReadySeconds"]));
    let update = &spec["strategy"]["rollingUpdate"];
    if update.is_object() {
        let of = |key: &str| scalar(&update[key]).unwrap_or_default();
        let (unavailable, surge) = (of("maxUnavailable"), of("maxSurge"));
        put!(
            w,
            "RollingUpdateStrategy:\t{unavailable} max unavailable, {surge} max surge"
        );
    }
}

fn replica_set(w: &mut String, view: &WorkloadView, around: &Around<'_>) {
    let object = &view.object;
    let selector = selector(view).map(|s| selector_text(&s));
    line(w, "Selector", &or_none(selector.unwrap_or_default()));
    meta(w, object);
    owner(w, object);
    put!(
        w,
        "Replicas:\t{} current / {} desired",
        number(&object["status"]["replicas"]),
        number(&object["spec"]["replicas"])
    );
    phases(w, view, around);
}

fn stateful_set(w: &mut String, view: &WorkloadView, around: &Around<'_>) {
    let (spec, status) = (&view.object["spec"], &view.object["status"]);
    date(
        w,
        "CreationTimestamp",
        &view.object["metadata"]["creationTimestamp"],
    );
    selector_line(w, view);
    meta(w, &view.object);
    put!(
        w,
        "Replicas:\t{} desired | {} total",
        number(&spec["replicas"]),
        number(&status["replicas"])
    );
    let strategy = &spec["updateStrategy"];
    line(w, "Update Strategy", text(&strategy["type"]));
    let update = &strategy["rollingUpdate"];
    if let Some(partition) = scalar(&update["partition"]) {
        line(w, "  Partition", &partition);
        if let Some(unavailable) = scalar(&update["maxUnavailable"]) {
            line(w, "  MaxUnavailable", &unavailable);
        }
    }
    phases(w, view, around);
}

fn daemon_set(w: &mut String, view: &WorkloadView, around: &Around<'_>) {
    let (spec, status) = (&view.object["spec"], &view.object["status"]);
    selector_line(w, view);
    let node = &spec["template"]["spec"]["nodeSelector"];
    line(w, "Node-Selector", &labels_text(node));
    meta(w, &view.object);
    for (title, key) in [
        (
            "Desired Number of Nodes Scheduled",
            "desiredNumberScheduled",
        ),
        (
            "Current Number of Nodes Scheduled",
            "currentNumberScheduled",
        ),
        (
            "Number of Nodes Scheduled with Up-to-date Pods",
            "updatedNumberScheduled",
        ),
        (
            "Number of Nodes Scheduled with Available Pods",
            "numberAvailable",
        ),
        ("Number of Nodes Misscheduled", "numberMisscheduled"),
    ] {
        put!(w, "{title}: {}", number(&status[key]));
    }
    phases(w, view, around);
}

fn job(w: &mut String, view: &WorkloadView) {
    let object = &view.object;
    let (spec, status) = (&object["spec"], &object["status"]);
    selector_line(w, view);
    meta(w, object);
    owner(w, object);
    let given = |w: &mut String, title: &str, value: &Value, unit: &str| {
        if let Some(value) = scalar(value).or_else(|| value.as_bool().map(|b| b.to_string())) {
            line(w, title, &format!("{value}{unit}"));
        }
    };
    given(w, "Parallelism", &spec["parallelism"], "");
    line(w, "Completions", &or_unset(&spec["completions"]));
    given(w, "Completion Mode", &spec["completionMode"], "");
    given(w, "Suspend", &spec["suspend"], "");
    given(w, "Backoff Limit", &spec["backoffLimit"], "");
    let ttl = &spec["ttlSecondsAfterFinished"];
    given(w, "TTL Seconds After Finished", ttl, "");
    date(w, "Start Time", &status["startTime"]);
    date(w, "Completed At", &status["completionTime"]);
    if let (Some(start), Some(end)) = (time(&status["startTime"]), time(&status["completionTime"]))
    {
        line(w, "Duration", &human::since(Some(start), end));
    }
    let deadline = &spec["activeDeadlineSeconds"];
    given(w, "Active Deadline Seconds", deadline, "s");
    let ready = status["ready"].as_i64();
    let ready = ready.map_or(String::new(), |n| format!(" ({n} Ready)"));
    let count = |key: &str| number(&status[key]);
    put!(
        w,
        "Pods Statuses:\t{} Active{ready} / {} Succeeded / {} Failed",
        count("active"),
        count("succeeded"),
        count("failed")
    );
    if spec["completionMode"] == "Indexed" {
        let indexes = text(&status["completedIndexes"]);
        line(w, "Completed Indexes", &some_indexes(indexes));
    }
}

/// Returns the list of indexes, cut off at a comma if it is long.
fn some_indexes(indexes: &str) -> String {
    let rest = indexes.get(MAX_INDEXES..).unwrap_or_default();
    match rest.find(',') {
        Some(at) => format!("{}...", &indexes[..=MAX_INDEXES + at]),
        None => or_none(indexes.to_owned()),
    }
}

fn cron_job(w: &mut String, object: &Value) {
    let spec = &object["spec"];
    meta(w, object);
    line(w, "Schedule", text(&spec["schedule"]));
    line(w, "Concurrency Policy", text(&spec["concurrencyPolicy"]));
    line(w, "Suspend", &yes_or_no(&spec["suspend"]));
    line(w, "Time Zone", &or_unset(&spec["timeZone"]));
    for (title, key) in [
        ("Successful Job History Limit", "successfulJobsHistoryLimit"),
        ("Failed Job History Limit", "failedJobsHistoryLimit"),
    ] {
        line(w, title, &or_unset(&spec[key]));
    }
    let deadline = scalar(&spec["startingDeadlineSeconds"]).map(|n| format!("{n}s"));
    line(
        w,
        "Starting Deadline Seconds",
        &deadline.unwrap_or_else(|| "<unset>".into()),
    );
    let job = &spec["jobTemplate"]["spec"];
    let selector = json::from_value(&job["selector"]).ok();
    let selector = selector.map(|s| selector_text(&s));
    line(w, "Selector", &selector.unwrap_or_else(|| "<unset>".into()));
    line(w, "Parallelism", &or_unset(&job["parallelism"]));
    line(w, "Completions", &or_unset(&job["completions"]));
    if let Some(seconds) = scalar(&job["activeDeadlineSeconds"]) {
        line(w, "Active Deadline Seconds", &format!("{seconds}s"));
    }
}

/// Writes the lines after the template of a CronJob: when it ran last, and which Jobs run.
pub(super) fn runs(w: &mut String, object: &Value) {
    let status = &object["status"];
    let last = time(&status["lastScheduleTime"]).map(human::date);
    line(
        w,
        "Last Schedule Time",
        &last.unwrap_or_else(|| "<unset>".into()),
    );
    let jobs = status["active"].as_array().into_iter().flatten();
    let names: Vec<&str> = jobs.map(|job| text(&job["name"])).collect();
    line(w, "Active Jobs", &or_none(names.join(", ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_indexes_is_cut_off_at_a_comma() {
        assert_eq!(some_indexes(""), "<none>");
        assert_eq!(some_indexes("0-2,5"), "0-2,5");
        let long: Vec<String> = (0..40).map(|n| (2 * n).to_string()).collect();
        let long = long.join(",");
        let cut = some_indexes(&long);
        assert!(
            long.starts_with(cut.trim_end_matches("...")) && cut.ends_with(",..."),
            "{cut}"
        );
        assert!((50..60).contains(&cut.len()), "{cut}");
        let one = "0-".to_owned() + &"9".repeat(60);
        assert_eq!(some_indexes(&one), one);
    }
}
