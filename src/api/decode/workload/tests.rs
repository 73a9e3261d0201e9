use std::path::Path;

use serde_json::json;

use super::*;
use crate::api::decode::{Decoded, objects};
use crate::api::workload::WorkloadSpec;

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web:1
        command: [httpd]
";

const JOB: &str = "\
apiVersion: batch/v1
kind: Job
metadata: {name: sum, namespace: shop}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: sum, image: 'sum:1'}
";

const CRON_JOB: &str = "\
apiVersion: batch/v1
kind: CronJob
metadata: {name: night}
spec:
  schedule: 0 3 * * *
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers:
          - {name: night, image: 'night:1'}
";

const STATEFUL_SET: &str = "\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
      - name: db
        image: db:1
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}
";

fn decode(text: &str) -> Result<Decoded, String> {
    let origin = PodOrigin::File {
        node_name: "node",
        path: Path::new("f"),
    };
    objects(text.as_bytes(), &origin).map_err(|error| error.to_string())
}

#[track_caller]
fn decoded(text: &str) -> DecodedWorkload {
    let mut decoded = decode(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(decoded.workloads.len(), 1);
    decoded.workloads.remove(0)
}

/// The text with one line in place of another.
#[track_caller]
fn with(text: &str, line: &str, other: &str) -> String {
    assert!(text.contains(line), "{line}");
    text.replacen(line, other, 1)
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let error = decode(text).map(|_| ()).expect_err("it is refused");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines, expected);
}

#[track_caller]
fn warned(text: &str, expected: &[&str]) {
    assert_eq!(decoded(text).warnings, expected);
}

#[test]
fn a_deployment_has_its_identity_its_defaults_and_its_template_as_written() {
    let DecodedWorkload { workload, warnings } = decoded(DEPLOYMENT);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(workload.key().to_string(), "Deployment default/web");
    assert_eq!(workload.metadata.uid, workload_uid(&workload.key()));
    let WorkloadSpec::Deployment(spec) = &workload.spec else {
        panic!("no Deployment");
    };
    assert_eq!((spec.replicas, spec.progress_deadline_seconds), (1, 600));
    assert_eq!(spec.template.spec.dns_policy, "ClusterFirst");
    let written = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1", "command": ["httpd"]}]}});
    assert_eq!(spec.template.written.value(), written);
    let raw = workload.raw.value();
    assert_eq!(raw["metadata"]["uid"], workload.metadata.uid.as_str());
    assert_eq!(raw["spec"]["template"]["spec"]["restartPolicy"], "Always");
    assert_eq!(raw["spec"]["strategy"]["type"], "RollingUpdate");
}

#[test]
fn the_uid_in_a_file_does_not_count() {
    let uid = "metadata: {name: web, uid: 5c8a2f1e, resourceVersion: '7'}";
    let text = with(DEPLOYMENT, "metadata: {name: web}", uid);
    let workload = decoded(&text).workload;
    assert_eq!(
        workload.metadata.uid,
        decoded(DEPLOYMENT).workload.metadata.uid
    );
}

#[test]
fn nulls_are_no_part_of_a_template() {
    let text = with(DEPLOYMENT, "command: [httpd]", "command: null");
    let written = decoded(&text).workload.template().written.value();
    assert_eq!(
        written.pointer("/spec/containers/0"),
        Some(&json!({"name": "web", "image": "web:1"}))
    );
}

#[test]
fn a_template_has_no_defaults_for_requests_and_host_ports_but_its_pods_have() {
    let limits = "resources: {limits: {memory: 64Mi}}";
    let workload = decoded(&with(DEPLOYMENT, "command: [httpd]", limits)).workload;
    let raw = workload
        .raw
        .at("/spec/template/spec/containers/0/resources");
    assert_eq!(raw, Some(json!({"limits": {"memory": "64Mi"}})));
    let spec = &workload.template().spec;
    assert!(spec.containers[0].resources.requests.contains_key("memory"));
}

#[test]
fn a_job_selects_the_labels_that_its_template_gets() {
    let workload = decoded(JOB).workload;
    let uid = workload.metadata.uid.as_str().to_owned();
    let labels = json!({"job-name": "sum", "batch.kubernetes.io/job-name": "sum",
        "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid});
    let template = workload.template();
    assert_eq!(json!(template.metadata.labels), labels);
    assert_eq!(
        template.written.at("/metadata/labels"),
        Some(labels.clone())
    );
    assert_eq!(
        workload.raw.at("/spec/template/metadata/labels"),
        Some(labels)
    );
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    assert_eq!(workload.raw.at("/spec/selector"), Some(selector));
}

#[test]
fn a_job_of_a_cluster_gets_a_selector_of_its_own() {
    let uid = "11111111-2222-3333-4444-555555555555";
    let labels = format!(
        "labels: {{controller-uid: {uid}, batch.kubernetes.io/controller-uid: {uid}, job-name: sum}}"
    );
    let text = with(
        JOB,
        "name: sum,",
        &format!("name: sum, uid: {uid}, {labels},"),
    );
    let spec = format!(
        "spec:\n  selector: {{matchLabels: {{batch.kubernetes.io/controller-uid: {uid}}}}}\n  template:\n    metadata: {{{labels}}}\n"
    );
    let workload = decoded(&with(&text, "spec:\n  template:\n", &spec)).workload;
    let labels = &workload.template().metadata.labels;
    assert_eq!(labels["controller-uid"], workload.metadata.uid.as_str());
    assert_ne!(labels["controller-uid"], uid);
    // Without the UID of the cluster it is a conflict.
    let error = decode(&with(JOB, "spec:\n  template:\n", &spec)).unwrap_err();
    assert!(
        error.contains("spec.template.metadata.labels[controller-uid]: Invalid value"),
        "{error}"
    );
}

#[test]
fn a_selector_that_a_person_writes_for_a_job_needs_its_flag() {
    let manual = "spec:\n  selector: {matchLabels: {x: z}}\n  manualSelector: true\n  template:\n    metadata: {labels: {x: z}}\n";
    let workload = decoded(&with(JOB, "spec:\n  template:\n", manual)).workload;
    assert_eq!(
        json!(workload.template().metadata.labels),
        json!({"x": "z"})
    );
    let without = with(manual, "  manualSelector: true\n", "");
    let error = decode(&with(JOB, "spec:\n  template:\n", &without)).unwrap_err();
    assert!(error.contains("`selector` not auto-generated"), "{error}");
}

#[test]
fn the_jobs_of_a_cron_job_get_their_defaults_when_they_are_made() {
    let workload = decoded(CRON_JOB).workload;
    let WorkloadSpec::CronJob(spec) = &workload.spec else {
        panic!("no CronJob");
    };
    assert_eq!(spec.job_template.spec.backoff_limit, None);
    assert_eq!(spec.failed_jobs_history_limit, Some(1));
    let mut job = workload.raw.at("/spec/jobTemplate").unwrap();
    job["kind"] = "Job".into();
    job["metadata"] = json!({"name": "night-1", "namespace": "default"});
    let job = made_workload(job).unwrap();
    let WorkloadSpec::Job(spec) = &job.spec else {
        panic!("no Job");
    };
    assert_eq!((spec.backoff_limit, spec.completions), (Some(6), Some(1)));
    assert_eq!(job.template().metadata.labels["job-name"], "night-1");
}

#[test]
fn a_replication_controller_without_a_selector_selects_its_template() {
    let text = with(DEPLOYMENT, "apps/v1", "v1");
    let text = with(&text, "Deployment", "ReplicationController");
    let text = with(&text, "  selector: {matchLabels: {app: web}}\n", "");
    let workload = decoded(&text).workload;
    let WorkloadSpec::ReplicationController(spec) = &workload.spec else {
        panic!("no ReplicationController");
    };
    assert_eq!(json!(spec.selector.match_labels), json!({"app": "web"}));
    let text = with(&text, "spec:\n", "spec:\n  selector: {app: db}\n");
    refused(
        &text,
        &[
            "f:7:16: spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`; give the template the labels of spec.selector",
        ],
    );
}

#[test]
fn problems_of_a_template_have_its_path_and_their_line() {
    let text = with(DEPLOYMENT, "command: [httpd]", "command: httpd");
    refused(
        &text,
        &[
            "f:12:9: spec.template.spec.containers[0].command: Invalid value: \"httpd\": must be a list ([...]), not a text; write [\"httpd\"]",
        ],
    );
    let probe = "livenessProbe: {httpGet: {port: 0}}";
    refused(
        &with(DEPLOYMENT, "command: [httpd]", probe),
        &[
            "f:12:35: spec.template.spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ],
    );
    refused(
        &with(DEPLOYMENT, "command: [httpd]", "comand: [httpd]"),
        &[
            "f:12:9: spec.template.spec.containers[0].comand: unknown field: did you mean \"command\"?",
        ],
    );
    let nfs = "      volumes: [{name: v, nfs: {server: s, path: /}}]\n      containers:\n";
    let error = decode(&with(DEPLOYMENT, "      containers:\n", nfs)).unwrap_err();
    assert!(
        error.starts_with(
            "f:9:27: spec.template.spec.volumes[0].nfs: Forbidden: volumes of this type"
        ),
        "{error}"
    );
    refused(
        &with(CRON_JOB, "OnFailure", "Always"),
        &[
            "f:10:11: spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ],
    );
}

#[test]
fn the_pods_of_a_workload_are_not_called_static() {
    let token = "      volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]\n      containers:\n";
    let error = decode(&with(DEPLOYMENT, "      containers:\n", token)).unwrap_err();
    let text = "serviceAccountToken: Forbidden: not supported: references to serviceaccounts";
    assert!(error.contains(text), "{error}");
}

#[test]
fn values_that_podprobe_does_not_support_are_refused_in_a_template_too() {
    let gpu = "resources: {limits: {nvidia.com/gpu: 1}}";
    refused(
        &with(DEPLOYMENT, "command: [httpd]", gpu),
        &[
            "f:12:30: spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: Forbidden: not supported: only limits of cpu, memory and huge pages are enforced",
        ],
    );
    let devices = "volumeDevices: [{name: data, devicePath: /dev/x}]";
    let error = decode(&with(
        STATEFUL_SET,
        "volumeMounts: [{name: data, mountPath: /data}]",
        devices,
    ));
    assert!(
        error
            .unwrap_err()
            .contains("spec.template.spec.containers[0].volumeDevices[0].name: Forbidden")
    );
}

#[test]
fn problems_of_the_workload_itself_have_their_line() {
    let text = with(DEPLOYMENT, "spec:\n", "spec:\n  replicas: many\n");
    refused(
        &text,
        &[
            "f:5:3: spec.replicas: Invalid value: \"many\": must be a whole number between -2147483648 and 2147483647, not a text",
        ],
    );
    let text = with(DEPLOYMENT, "spec:\n", "spec:\n  replicas: -1\n");
    refused(
        &text,
        &["f:5:3: spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
    );
    let text = with(
        DEPLOYMENT,
        "spec:\n",
        "spec:\n  strategy: {type: Recreat}\n",
    );
    refused(
        &text,
        &[
            "f:5:3: spec.strategy: Unsupported value: \"Recreat\": supported values: \"Recreate\", \"RollingUpdate\"; did you mean \"Recreate\"?",
        ],
    );
    refused(
        &with(DEPLOYMENT, "  template:\n", "  tempalte:\n"),
        &["f:6:3: spec.tempalte: unknown field: did you mean \"template\"?"],
    );
    refused(
        &with(DEPLOYMENT, "metadata: {name: web}\n", ""),
        &["f:1:1: metadata.name: Required value: name is needed for the Deployment"],
    );
    refused(
        &with(JOB, "spec:\n", "spec:\n  managedBy: acme.io/queue\n"),
        &[
            "f:5:3: spec.managedBy: Forbidden: not supported: no other controller runs here; leave it out, or write \"kubernetes.io/job-controller\"",
        ],
    );
    decoded(&with(
        JOB,
        "spec:\n",
        "spec:\n  managedBy: kubernetes.io/job-controller\n",
    ));
}

#[test]
fn a_workload_without_a_selector_is_told_what_to_write() {
    let selector = "  selector: {matchLabels: {app: web}}\n";
    refused(
        &with(DEPLOYMENT, selector, ""),
        &[
            "f:4:1: spec.selector: Required value: write matchLabels with labels of the template",
            "f:6:16: spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`; write spec.selector with labels of the template",
        ],
    );
}

#[test]
fn a_field_beside_or_inside_of_the_wrong_spec_is_refused_with_its_place() {
    refused(
        &with(DEPLOYMENT, "spec:\n", "spec:\n  hostNetwork: true\n"),
        &["f:5:3: spec.hostNetwork: unknown field here: it belongs in spec.template.spec"],
    );
    refused(
        &with(
            DEPLOYMENT,
            "      containers:\n",
            "      replicas: 2\n      containers:\n",
        ),
        &[
            "f:9:7: spec.template.spec.replicas: unknown field here: it belongs in spec of the Deployment",
        ],
    );
    refused(
        &with(
            CRON_JOB,
            "          containers:\n",
            "          backoffLimit: 2\n          containers:\n",
        ),
        &[
            "f:11:11: spec.jobTemplate.spec.template.spec.backoffLimit: unknown field here: it belongs in spec.jobTemplate.spec of the CronJob",
        ],
    );
}

#[test]
fn fields_without_effect_are_told() {
    let status = "status: {replicas: 1, conditions: [{type: Available}]}\n";
    warned(&format!("{DEPLOYMENT}{status}"), &[]);
    warned(
        &with(DEPLOYMENT, "spec:\n", "spec:\n  zone: x\n  replicas: 2\n"),
        &["spec.zone: not acted on: unknown field"],
    );
    warned(
        &with(
            DEPLOYMENT,
            "      containers:\n",
            "      serviceAccountName: web\n      containers:\n",
        ),
        &[
            "spec.template.spec.serviceAccountName: not acted on: there is no API server, so the containers get no token of a service account",
        ],
    );
    let named = "metadata: {name: x, labels: {app: web}, creationTimestamp: null}";
    warned(
        &with(DEPLOYMENT, "metadata: {labels: {app: web}}", named),
        &[
            "spec.template.metadata.name: not acted on: pods get their name and namespace from the workload",
        ],
    );
    let owned = "metadata: {name: web, deletionTimestamp: t, ownerReferences: [{controller: true, kind: Deployment, name: web}]}";
    let set = with(DEPLOYMENT, "Deployment", "ReplicaSet");
    warned(
        &with(&set, "metadata: {name: web}", owned),
        &[
            "metadata.deletionTimestamp: not acted on: an object in a file is deleted by removing the file",
            "metadata.ownerReferences: not acted on: Deployment web makes its own, so this object runs beside it: remove one of the two",
        ],
    );
    let limit = "  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}\n  serviceName: db\n";
    warned(
        &with(STATEFUL_SET, "  serviceName: db\n", limit),
        &[
            "spec.updateStrategy.rollingUpdate.maxUnavailable: not acted on: one pod is updated at a time, as in Kubernetes without the feature gate MaxUnavailableStatefulSet",
        ],
    );
    warned(
        &with(CRON_JOB, "spec:\n", "spec:\n  startingDeadlineSeconds: 5\n"),
        &[
            "spec.startingDeadlineSeconds: 5 s is short: a Job that the node cannot start within it is skipped",
        ],
    );
    warned(
        &with(
            DEPLOYMENT,
            "command: [httpd]",
            "livenessProbe: {exec: {command: [a]}}",
        ),
        &[
            "spec.template.spec.containers[0].livenessProbe.timeoutSeconds: not set: the command has the default of 1s, and taking longer counts as a failure",
        ],
    );
    warned(
        &with(
            DEPLOYMENT,
            "      containers:\n",
            "      nodeName: other\n      containers:\n",
        ),
        &[
            "spec.template.spec.nodeName: not acted on: a pod in a file runs on the file's node, \"node\"",
        ],
    );
}

#[test]
fn a_removed_version_says_what_to_write() {
    refused(
        &with(DEPLOYMENT, "apps/v1", "extensions/v1beta1"),
        &[
            "f:1:1: apiVersion: Unsupported value: \"extensions/v1beta1\": Kubernetes has removed this version; write \"apps/v1\", and give spec.selector the labels of the template if it is missing",
        ],
    );
    refused(
        &with(DEPLOYMENT, "apps/v1", "apps/v1beta2"),
        &[
            "f:1:1: apiVersion: Unsupported value: \"apps/v1beta2\": Kubernetes has removed this version; write \"apps/v1\"",
        ],
    );
    refused(
        &with(CRON_JOB, "batch/v1", "batch/v1beta1"),
        &[
            "f:1:1: apiVersion: Unsupported value: \"batch/v1beta1\": Kubernetes has removed this version; write \"batch/v1\"",
        ],
    );
}

#[test]
fn lists_and_files_with_several_kinds_decode() {
    let items = format!(
        "apiVersion: apps/v1\nkind: DeploymentList\nitems: [{{metadata: {{name: a}}, spec: {}}}]\n",
        json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}})
    );
    assert_eq!(
        decoded(&items).workload.key().to_string(),
        "Deployment default/a"
    );
    let bad = items.replacen("\"image\"", "\"imag\"", 1);
    let error = decode(&bad).unwrap_err();
    assert!(
        error.contains("items[0].spec.template.spec.containers[0].imag: unknown field"),
        "{error}"
    );
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: 'i:1'}]}\n";
    let both = decode(&format!("{pod}---\n{DEPLOYMENT}---\n{JOB}")).unwrap();
    assert_eq!((both.pods.len(), both.workloads.len()), (1, 2));
    let twice = format!("{DEPLOYMENT}---\n{DEPLOYMENT}");
    refused(
        &twice,
        &["f:16:12: metadata.name: Duplicate value: \"default/web\""],
    );
    let other_kind = with(DEPLOYMENT, "Deployment", "ReplicaSet");
    assert_eq!(
        decode(&format!("{DEPLOYMENT}---\n{other_kind}"))
            .unwrap()
            .workloads
            .len(),
        2
    );
}

#[test]
fn an_object_that_podprobe_makes_must_have_the_form_of_a_workload() {
    assert_eq!(made_workload(json!({"kind": "Pod"})), Err(MadeError::Kind));
    let error = made_workload(json!({"kind": "Job", "spec": {"parallelism": "x"}})).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("spec.parallelism: invalid type"),
        "{error}"
    );
}
