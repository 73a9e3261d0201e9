//! Workloads in kubectl's words: the words for kinds, selectors as text, owners, and how many pods are ready.
//!
//! Invariants: pure. A field that is missing counts as an API server's default, or as 0.

use serde_json::Value;

use super::columns::string_map;
use crate::api::workload::{LabelSelector, SelectorRequirement, WorkloadKey, WorkloadKind};
use crate::base::clock::Time;
use crate::base::json;
use crate::workloads::view::WorkloadView;

/// Returns the word for a kind in front of a name, for example `deployment.apps`.
pub fn word(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::Deployment => "deployment.apps",
        WorkloadKind::ReplicaSet => "replicaset.apps",
        WorkloadKind::ReplicationController => "replicationcontroller",
        WorkloadKind::DaemonSet => "daemonset.apps",
        WorkloadKind::StatefulSet => "statefulset.apps",
        WorkloadKind::Job => "job.batch",
        WorkloadKind::CronJob => "cronjob.batch",
    }
}

/// Returns the word for a kind in errors, for example `deployments.apps`.
pub fn plural(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::Deployment => "deployments.apps",
        WorkloadKind::ReplicaSet => "replicasets.apps",
        WorkloadKind::ReplicationController => "replicationcontrollers",
        WorkloadKind::DaemonSet => "daemonsets.apps",
        WorkloadKind::StatefulSet => "statefulsets.apps",
        WorkloadKind::Job => "jobs.batch",
        WorkloadKind::CronJob => "cronjobs.batch",
    }
}

/// Returns the kind of a workload; None if the object has no such kind.
pub fn kind(view: &WorkloadView) -> Option<WorkloadKind> {
    view.object["kind"].as_str().and_then(WorkloadKind::named)
}

/// Returns the workload's `metadata.name`.
pub fn name(view: &WorkloadView) -> &str {
    view.object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the workload's `metadata.namespace`, or `default`.
pub fn namespace(view: &WorkloadView) -> &str {
    namespace_of(&view.object)
}

/// Returns the workload's `metadata.uid`.
pub fn uid(view: &WorkloadView) -> &str {
    view.object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns the key of a workload; None if the object has no kind of a workload.
pub fn key(view: &WorkloadView) -> Option<WorkloadKey> {
    Some(WorkloadKey {
        kind: kind(view)?,
        namespace: namespace(view).to_owned(),
        name: name(view).to_owned(),
    })
}

/// Returns kind and name of a workload in kubectl's form, for example `deployment.apps/web`.
pub fn full_name(view: &WorkloadView) -> String {
    format!("{}/{}", kind(view).map_or("", word), name(view))
}

/// Returns the `metadata.namespace` of an object, or `default`.
fn namespace_of(object: &Value) -> &str {
    object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default")
}

/// The controller of an object, which its owner reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<'a> {
    /// Kind of the controller, for example `ReplicaSet`.
    pub kind: &'a str,
    /// Name of the controller.
    pub name: &'a str,
    /// UID of the controller.
    pub uid: &'a str,
}

/// Returns the controller of an object, if there is one.
pub fn controller(object: &Value) -> Option<Controller<'_>> {
    let references = object["metadata"]["ownerReferences"].as_array()?;
    let reference = references.iter().find(|r| r["controller"] == true)?;
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    Some(Controller {
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
    })
}

/// Returns the workload that controls an object, from a list of workloads.
pub fn owner<'a>(object: &Value, all: &'a [WorkloadView]) -> Option<&'a WorkloadView> {
    let controller = controller(object)?;
    let is_it = |view: &&WorkloadView| {
        view.object["kind"] == controller.kind
            && name(view) == controller.name
            && namespace(view) == namespace_of(object)
    };
    all.iter().find(is_it)
}

/// Returns the workload in a file from which an object stems: its controller, or the controller of that one.
pub fn root<'a>(object: &Value, all: &'a [WorkloadView]) -> Option<&'a WorkloadView> {
    let mut found = owner(object, all)?;
    // A controller is at most two steps away. A circle of references ends here, too.
    for _ in 0..2 {
        match owner(&found.object, all) {
            Some(above) => found = above,
            None => break,
        }
    }
    Some(found)
}

/// Returns the template of the workload's pods.
pub fn template(view: &WorkloadView) -> &Value {
    let spec = &view.object["spec"];
    match kind(view) {
        Some(WorkloadKind::CronJob) => &spec["jobTemplate"]["spec"]["template"],
        _ => &spec["template"],
    }
}

/// Returns the selector of the workload's pods; None if the workload has none.
pub fn selector(view: &WorkloadView) -> Option<LabelSelector> {
    let selector = view.object["spec"].get("selector")?;
    match kind(view) {
        Some(WorkloadKind::ReplicationController) => {
            let owned = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
            Some(LabelSelector {
                match_labels: string_map(selector).into_iter().map(owned).collect(),
                ..LabelSelector::default()
            })
        }
        _ => json::from_value(selector).ok(),
    }
}

/// Returns a selector as text, for example `app=web,tier in (a,b)`, sorted by the keys.
pub fn selector_text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter();
    let labels = labels.map(|(key, value)| (key, format!("{key}={value}")));
    let others = selector.match_expressions.iter();
    let mut all: Vec<(&String, String)> = labels
        .chain(others.map(|r| (&r.key, requirement(r))))
        .collect();
    all.sort_by_key(|(key, _)| *key);
    let texts: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

fn requirement(requirement: &SelectorRequirement) -> String {
    let SelectorRequirement {
        key,
        operator,
        values,
    } = requirement;
    let mut values = values.clone();
    values.sort();
    match operator.as_str() {
        "Exists" => key.clone(),
        "DoesNotExist" => format!("!{key}"),
        other => format!("{key} {} ({})", other.to_lowercase(), values.join(",")),
    }
}

/// Returns labels as text, for example `a=1,b=2`; `<none>` if there are none.
pub fn labels_text(map: &Value) -> String {
    let pair = |(key, value): (&str, &str)| format!("{key}={value}");
    let all: Vec<String> = string_map(map).into_iter().map(pair).collect();
    or_none(all.join(","))
}

/// Returns the text, or `<none>` for an empty text.
pub fn or_none(text: String) -> String {
    match text.is_empty() {
        true => "<none>".into(),
        false => text,
    }
}

/// Returns the condition of this type, if the object has it.
pub fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let mut all = object["status"]["conditions"].as_array()?.iter();
    all.find(|c| c["type"] == type_)
}

/// Tells whether the object has a condition of this type with the status True.
pub fn has_condition(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|c| c["status"] == "True")
}

/// Returns a number of the object; 0 if it is missing.
pub fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// Returns the time of a field; None if the field is missing.
pub fn time(value: &Value) -> Option<Time> {
    json::from_value(value).ok()
}

/// Returns kubectl's word for a boolean field.
pub fn yes_or_no(value: &Value) -> String {
    match value.as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
    .into()
}

/// Returns how many pods of a workload are ready, and how many there should be; None for Jobs and CronJobs.
pub fn readiness(view: &WorkloadView) -> Option<(i64, i64)> {
    let (spec, status) = (&view.object["spec"], &view.object["status"]);
    match kind(view)? {
        WorkloadKind::Job | WorkloadKind::CronJob => None,
        WorkloadKind::DaemonSet => Some((
            number(&status["numberReady"]),
            number(&status["desiredNumberScheduled"]),
        )),
        _ => Some((
            number(&status["readyReplicas"]),
            spec["replicas"].as_i64().unwrap_or(1),
        )),
    }
}

/// Returns how many pods of a Job have succeeded, for example `1/3`.
pub fn completions(object: &Value) -> String {
    let (spec, done) = (&object["spec"], number(&object["status"]["succeeded"]));
    match (spec["completions"].as_i64(), number(&spec["parallelism"])) {
        (Some(all), _) => format!("{done}/{all}"),
        (None, many) if many > 1 => format!("{done}/1 of {many}"),
        (None, _) => format!("{done}/1"),
    }
}

/// Returns the word for the state of a Job.
pub fn job_word(object: &Value) -> &'static str {
    let is = |type_: &str| has_condition(object, type_);
    let is_deleted = object["metadata"]["deletionTimestamp"].is_string();
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if is_deleted => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

/// Returns why the rollout of a Deployment has failed, if it has. The error of another kind only says that the kind or its
/// strategy has no rollouts.
pub fn rollout_failure(view: &WorkloadView) -> Option<&str> {
    let is_deployment = kind(view) == Some(WorkloadKind::Deployment);
    let rollout = view.rollout.as_ref().filter(|_| is_deployment)?;
    rollout.error.as_deref()
}

/// Returns how far a workload is in a few characters: `2/3` pods, `1/1 Complete`, or `1 active`.
pub fn progress(view: &WorkloadView) -> String {
    let object = &view.object;
    match (readiness(view), kind(view)) {
        (Some((ready, desired)), _) => format!("{ready}/{desired}"),
        (None, Some(WorkloadKind::Job)) => {
            format!("{} {}", completions(object), job_word(object))
        }
        _ if object["spec"]["suspend"] == true => "suspended".into(),
        _ => {
            let active = object["status"]["active"].as_array().map_or(0, Vec::len);
            format!("{active} active")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(object: Value) -> WorkloadView {
        WorkloadView {
            object: object.into(),
            ..WorkloadView::default()
        }
    }

    #[test]
    fn every_kind_has_its_words() {
        for kind in WorkloadKind::ALL {
            let group = match kind.group() {
                "" => String::new(),
                group => format!(".{group}"),
            };
            assert_eq!(word(kind), format!("{}{group}", kind.resource()));
            assert_eq!(plural(kind), format!("{}s{group}", kind.resource()));
        }
    }

    #[track_caller]
    fn check_selector(selector: Value, expected: &str) {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        assert_eq!(selector_text(&selector), expected);
    }

    #[test]
    fn selectors_are_written_as_kubectl_writes_them() {
        check_selector(json!({}), "");
        check_selector(json!({"matchLabels": {"b": "2", "a": "1"}}), "a=1,b=2");
        let expressions = json!([
            {"key": "c", "operator": "In", "values": ["y", "x"]},
            {"key": "a", "operator": "NotIn", "values": ["z"]},
            {"key": "e", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"},
        ]);
        check_selector(
            json!({"matchLabels": {"b": "1"}, "matchExpressions": expressions}),
            "a notin (z),b=1,c in (x,y),!d,e",
        );
        let old =
            view(json!({"kind": "ReplicationController", "spec": {"selector": {"app": "x"}}}));
        assert_eq!(
            selector(&old).map(|s| selector_text(&s)),
            Some("app=x".into())
        );
        assert_eq!(
            selector(&view(json!({"kind": "CronJob", "spec": {}}))),
            None
        );
    }

    #[test]
    fn a_pod_leads_to_the_workload_in_the_file() {
        let of = |kind: &str, name: &str| json!([{"kind": kind, "name": name, "uid": name, "controller": true}]);
        let object = |kind: &str, name: &str, owners: Value| json!({"kind": kind, "metadata": {"name": name, "namespace": "shop", "ownerReferences": owners}});
        let all = [
            view(object("Deployment", "web", json!([]))),
            view(object("ReplicaSet", "web-1", of("Deployment", "web"))),
        ];
        let pod = object("Pod", "web-1-x", of("ReplicaSet", "web-1"));
        assert_eq!(owner(&pod, &all).map(name), Some("web-1"));
        assert_eq!(
            root(&pod, &all).map(full_name),
            Some("deployment.apps/web".into())
        );
        let mut elsewhere = pod.clone();
        elsewhere["metadata"]["namespace"] = "default".into();
        assert_eq!(root(&elsewhere, &all), None);
        let mut free = pod;
        free["metadata"]["ownerReferences"][0]["controller"] = false.into();
        assert_eq!(controller(&free), None);
        let circle = [view(object("Job", "a", of("Job", "a")))];
        assert_eq!(root(&circle[0].object, &circle).map(name), Some("a"));
    }

    #[track_caller]
    fn check_progress(object: Value, expected: &str) {
        assert_eq!(progress(&view(object)), expected);
    }

    #[test]
    fn progress_is_what_the_kind_counts() {
        check_progress(
            json!({"kind": "Deployment", "spec": {"replicas": 3}, "status": {"readyReplicas": 2}}),
            "2/3",
        );
        check_progress(json!({"kind": "StatefulSet", "spec": {}}), "0/1");
        check_progress(
            json!({"kind": "DaemonSet", "status": {"numberReady": 1, "desiredNumberScheduled": 1}}),
            "1/1",
        );
        let done = json!([{"type": "Complete", "status": "True"}]);
        check_progress(
            json!({"kind": "Job", "spec": {"completions": 2}, "status": {"succeeded": 2, "conditions": done}}),
            "2/2 Complete",
        );
        check_progress(
            json!({"kind": "Job", "spec": {"parallelism": 2}}),
            "0/1 of 2 Running",
        );
        check_progress(
            json!({"kind": "CronJob", "status": {"active": [{}]}}),
            "1 active",
        );
        check_progress(
            json!({"kind": "CronJob", "spec": {"suspend": true}}),
            "suspended",
        );
    }

    #[track_caller]
    fn check_job(conditions: &[(&str, &str)], is_deleted: bool, expected: &str) {
        let condition = |(type_, status): &(&str, &str)| json!({"type": type_, "status": status});
        let all: Vec<Value> = conditions.iter().map(condition).collect();
        let mut object = json!({"metadata": {}, "status": {"conditions": all}});
        if is_deleted {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        assert_eq!(job_word(&object), expected);
    }

    #[test]
    fn a_jobs_word_is_kubectls() {
        check_job(&[], false, "Running");
        check_job(&[("Suspended", "False")], false, "Running");
        check_job(&[("Suspended", "True")], false, "Suspended");
        check_job(&[("Suspended", "True")], true, "Terminating");
        check_job(&[("FailureTarget", "True")], false, "FailureTarget");
        check_job(
            &[("SuccessCriteriaMet", "True")],
            false,
            "SuccessCriteriaMet",
        );
        check_job(
            &[("FailureTarget", "True"), ("Failed", "True")],
            false,
            "Failed",
        );
        check_job(
            &[("SuccessCriteriaMet", "True"), ("Complete", "True")],
            true,
            "Complete",
        );
    }
}
