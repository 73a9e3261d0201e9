//! Decides what a pod of a Job gets in addition to its template: names, labels, annotations and the variable with its index
//! (workloads 6.2).

use std::collections::BTreeMap;

use super::job_pod::{COMPLETION_INDEX, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT};
use super::pod_count::PodCreation;
use crate::api::pod::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, ObjectMeta};
use crate::api::workload::{JobSpec, LabelSelector};

/// Label with the UID of the Job, by which it finds its pods.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
/// Older form of the label with the UID of the Job.
const LEGACY_CONTROLLER_UID: &str = "controller-uid";
/// Label with the name of the Job.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// Older form of the label with the name of the Job.
const LEGACY_JOB_NAME: &str = "job-name";
/// Name of the variable with the index.
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// Length of the longest prefix of a name. Five random characters follow it.
const LONGEST_PREFIX: usize = 58;

/// Fields that a pod of a Job gets in addition to its template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFields {
    /// All labels of the pod, those of the template included.
    pub labels: BTreeMap<String, String>,
    /// All annotations of the pod, those of the template included.
    pub annotations: BTreeMap<String, String>,
    /// Host name, which replaces the template's; None for a pod without an index.
    pub hostname: Option<String>,
    /// Beginning of the pod's name. Five random characters follow it.
    pub name_prefix: String,
    /// Variable for each container that [`wants_completion_index`]; None for a pod without an index.
    pub variable: Option<EnvVar>,
}

/// Returns the fields that a new pod of a Job gets in addition to its template.
pub fn pod_fields(job: &ObjectMeta, spec: &JobSpec, pod: &PodCreation) -> PodFields {
    let template = &spec.template.metadata;
    let mut fields = PodFields {
        labels: template.labels.clone(),
        annotations: template.annotations.clone(),
        name_prefix: cut(&format!("{}-", job.name), LONGEST_PREFIX),
        ..Default::default()
    };
    if !spec.manual_selector.unwrap_or_default() {
        for (key, value) in generated_labels(job) {
            fields.labels.entry(key.into()).or_insert(value.into());
        }
    }
    if let Some(index) = pod.index {
        add_index(&mut fields, job, index);
    }
    for (key, count) in failure_counts(pod) {
        fields.annotations.insert(key.into(), count.to_string());
    }
    fields
}

/// Returns the selector of a Job's pods: the written one if the person asked for that, else the generated one.
pub fn selector(job: &ObjectMeta, spec: &JobSpec) -> LabelSelector {
    let mut selector = spec.selector.clone().unwrap_or_default();
    if !spec.manual_selector.unwrap_or_default() {
        let label = selector.match_labels.entry(CONTROLLER_UID.into());
        label.or_insert_with(|| job.uid.to_string());
    }
    selector
}

/// Returns the prefix of the name of a pod with an index. The Job's name is cut, the index is not.
pub fn indexed_name_prefix(job: &str, index: i32) -> String {
    let end = format!("-{index}-");
    cut(job, LONGEST_PREFIX.saturating_sub(end.len())) + &end
}

/// Returns the variable with the index, which a container reads from the label.
pub fn completion_index_variable() -> EnvVar {
    EnvVar {
        name: VARIABLE.into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: "v1".into(),
                field_path: format!("metadata.labels['{COMPLETION_INDEX}']"),
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// True if the container of an indexed Job gets the variable with the index: it has none of that name.
pub fn wants_completion_index(container: &Container) -> bool {
    container.env.iter().all(|it| it.name != VARIABLE)
}

fn generated_labels(job: &ObjectMeta) -> [(&'static str, &str); 4] {
    let (name, uid) = (job.name.as_str(), job.uid.as_str());
    [
        (JOB_NAME, name),
        (LEGACY_JOB_NAME, name),
        (CONTROLLER_UID, uid),
        (LEGACY_CONTROLLER_UID, uid),
    ]
}

fn add_index(fields: &mut PodFields, job: &ObjectMeta, index: i32) {
    let text = index.to_string();
    fields.labels.insert(COMPLETION_INDEX.into(), text.clone());
    fields.annotations.insert(COMPLETION_INDEX.into(), text);
    fields.hostname = Some(format!("{}-{index}", job.name));
    fields.name_prefix = indexed_name_prefix(&job.name, index);
    fields.variable = Some(completion_index_variable());
}

/// Returns the annotations with the failures of the index. Ignored failures are written only if there are some.
fn failure_counts(pod: &PodCreation) -> impl Iterator<Item = (&'static str, i32)> {
    let counted = pod.failures.map(|it| (INDEX_FAILURE_COUNT, it.counted));
    let ignored = pod.failures.filter(|it| it.ignored > 0);
    let ignored = ignored.map(|it| (INDEX_IGNORED_FAILURE_COUNT, it.ignored));
    counted.into_iter().chain(ignored)
}

/// Returns the first `length` bytes. Names are ASCII.
fn cut(text: &str, length: usize) -> String {
    text.get(..length).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workloads::job::IndexFailures;

    fn job(name: &str) -> ObjectMeta {
        ObjectMeta {
            name: name.into(),
            uid: "u-1".into(),
            ..Default::default()
        }
    }

    fn spec(fields: Value) -> JobSpec {
        serde_json::from_value(fields).unwrap()
    }

    fn pairs(map: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
        map.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
    }

    #[test]
    fn a_pod_carries_the_names_and_the_uid_of_its_job() {
        let spec = spec(json!({"template": {"metadata": {"labels": {"app": "x"}}}}));
        let fields = pod_fields(&job("job"), &spec, &PodCreation::default());
        let expected = [
            ("app", "x"),
            ("batch.kubernetes.io/controller-uid", "u-1"),
            ("batch.kubernetes.io/job-name", "job"),
            ("controller-uid", "u-1"),
            ("job-name", "job"),
        ];
        assert_eq!(pairs(&fields.labels), expected);
        assert_eq!(fields.annotations.len(), 0);
        assert_eq!((fields.hostname, fields.variable), (None, None));
        assert_eq!(fields.name_prefix, "job-");
    }

    #[test]
    fn a_pod_with_a_written_selector_gets_no_labels() {
        let spec = spec(json!({
            "manualSelector": true,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}},
        }));
        let fields = pod_fields(&job("job"), &spec, &PodCreation::default());
        assert_eq!(pairs(&fields.labels), [("app", "x")]);
        assert_eq!(selector(&job("job"), &spec).match_labels, fields.labels);
    }

    #[test]
    fn the_generated_selector_asks_for_the_uid() {
        let selector = selector(&job("job"), &JobSpec::default());
        let expected = [("batch.kubernetes.io/controller-uid", "u-1")];
        assert_eq!(pairs(&selector.match_labels), expected);
        let fields = pod_fields(&job("job"), &JobSpec::default(), &PodCreation::default());
        assert!(selector.matches(&fields.labels));
    }

    /// The annotations of a pod with index 7 and these failures.
    #[track_caller]
    fn check_annotations(failures: Option<(i32, i32)>, expected: &[(&str, &str)]) {
        let failures = failures.map(|(counted, ignored)| IndexFailures { counted, ignored });
        let pod = PodCreation {
            index: Some(7),
            failures,
        };
        let spec = spec(json!({"template": {"metadata": {"annotations": {"a": "b"}}}}));
        let fields = pod_fields(&job("job"), &spec, &pod);
        let mut all = vec![("a", "b"), (COMPLETION_INDEX, "7")];
        all.extend(expected);
        assert_eq!(pairs(&fields.annotations), all);
    }

    #[test]
    fn a_pod_carries_the_failures_of_its_index() {
        check_annotations(None, &[]);
        check_annotations(Some((0, 0)), &[(INDEX_FAILURE_COUNT, "0")]);
        let both = [
            (INDEX_FAILURE_COUNT, "2"),
            (INDEX_IGNORED_FAILURE_COUNT, "1"),
        ];
        check_annotations(Some((2, 1)), &both);
    }

    #[test]
    fn a_pod_with_an_index_has_it_in_its_names_and_in_a_variable() {
        let pod = PodCreation {
            index: Some(7),
            failures: None,
        };
        let fields = pod_fields(&job("job"), &JobSpec::default(), &pod);
        assert_eq!(fields.name_prefix, "job-7-");
        assert_eq!(fields.hostname.as_deref(), Some("job-7"));
        assert_eq!(fields.labels[COMPLETION_INDEX], "7");
        let variable = serde_json::to_value(fields.variable).unwrap();
        let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
        assert_eq!(variable["name"], "JOB_COMPLETION_INDEX");
        assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], path);
    }

    #[test]
    fn a_container_keeps_its_own_variable() {
        let mut container = Container::default();
        assert!(wants_completion_index(&container));
        container.env.push(EnvVar {
            name: "JOB_COMPLETION_INDEX".into(),
            value: "9".into(),
            ..Default::default()
        });
        assert!(!wants_completion_index(&container));
    }

    #[test]
    fn a_long_name_is_cut_and_the_index_is_not() {
        let name = "a".repeat(63);
        let fields = pod_fields(&job(&name), &JobSpec::default(), &PodCreation::default());
        assert_eq!(fields.name_prefix, "a".repeat(58));
        assert_eq!(indexed_name_prefix(&name, i32::MAX).len(), 58);
        assert!(indexed_name_prefix(&name, 12).ends_with("a-12-"));
    }
}
