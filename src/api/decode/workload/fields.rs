//! The fields of workloads that no type reads. Each of these fields is refused, has a warning, or has no meaning.

use serde_json::Value;

use super::super::error::Findings;
use super::super::unread::{self, Level, level};
use super::typed_view::{Object, ReplicationControllerSpec};
use crate::api::field::{Step, clip, render};
use crate::api::pod::{ObjectMeta, PodSpec};
use crate::api::source::PodSource;
use crate::api::support::fields::of;
use crate::api::workload::*;

/// Fields of metadata that an API server writes.
const OF_A_SERVER: &[&str] = &[
    "generateName",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "selfLink",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// The field that a controller writes.
const STATUS: &[&str] = &["status"];

const fn silent(
    at: &'static str,
    read: fn() -> &'static [&'static str],
    silent: &'static [&'static str],
) -> Level {
    Level {
        silent,
        ..level(at, read)
    }
}

const SELECTOR: Level = level("spec.selector", of::<LabelSelector>);
const EXPRESSIONS: Level = level(
    "spec.selector.matchExpressions[]",
    of::<SelectorRequirement>,
);

const DEPLOYMENT: &[Level] = &[
    silent("", of::<Object<DeploymentSpec>>, STATUS),
    level("spec", of::<DeploymentSpec>),
    SELECTOR,
    EXPRESSIONS,
    level("spec.strategy", of::<DeploymentStrategy>),
    level("spec.strategy.rollingUpdate", of::<RollingUpdateDeployment>),
];

const REPLICA_SET: &[Level] = &[
    silent("", of::<Object<ReplicaSetSpec>>, STATUS),
    level("spec", of::<ReplicaSetSpec>),
    SELECTOR,
    EXPRESSIONS,
];

const REPLICATION_CONTROLLER: &[Level] = &[
    silent("", of::<Object<ReplicationControllerSpec>>, STATUS),
    level("spec", of::<ReplicationControllerSpec>),
];

const DAEMON_SET: &[Level] = &[
    silent("", of::<Object<DaemonSetSpec>>, STATUS),
    silent("spec", of::<DaemonSetSpec>, &["templateGeneration"]),
    SELECTOR,
    EXPRESSIONS,
    level("spec.updateStrategy", of::<DaemonSetUpdateStrategy>),
    level(
        "spec.updateStrategy.rollingUpdate",
        of::<RollingUpdateDaemonSet>,
    ),
];

const STATEFUL_SET: &[Level] = &[
    silent("", of::<Object<StatefulSetSpec>>, STATUS),
    level("spec", of::<StatefulSetSpec>),
    SELECTOR,
    EXPRESSIONS,
    level("spec.updateStrategy", of::<StatefulSetUpdateStrategy>),
    level(
        "spec.updateStrategy.rollingUpdate",
        of::<RollingUpdateStatefulSet>,
    ),
    level(
        "spec.persistentVolumeClaimRetentionPolicy",
        of::<ClaimRetentionPolicy>,
    ),
    level("spec.ordinals", of::<Ordinals>),
    silent(
        "spec.volumeClaimTemplates[]",
        of::<ClaimTemplate>,
        &["apiVersion", "kind", "spec", "status"],
    ),
    silent(
        "spec.volumeClaimTemplates[].metadata",
        of::<ObjectMeta>,
        OF_A_SERVER,
    ),
];

const JOB: &[Level] = &[
    silent("", of::<Object<JobSpec>>, STATUS),
    level("spec", of::<JobSpec>),
    SELECTOR,
    EXPRESSIONS,
    level("spec.podFailurePolicy", of::<PodFailurePolicy>),
    level("spec.podFailurePolicy.rules[]", of::<PodFailureRule>),
    level("spec.podFailurePolicy.rules[].onExitCodes", of::<ExitCodes>),
    level(
        "spec.podFailurePolicy.rules[].onPodConditions[]",
        of::<PodConditionPattern>,
    ),
    level("spec.successPolicy", of::<SuccessPolicy>),
    level("spec.successPolicy.rules[]", of::<SuccessRule>),
];

const CRON_JOB: &[Level] = &[
    silent("", of::<Object<CronJobSpec>>, STATUS),
    level("spec", of::<CronJobSpec>),
    level("spec.jobTemplate", of::<JobTemplate>),
    silent("spec.jobTemplate.metadata", of::<ObjectMeta>, OF_A_SERVER),
    level("spec.jobTemplate.spec", of::<JobSpec>),
    level(
        "spec.jobTemplate.spec.podFailurePolicy",
        of::<PodFailurePolicy>,
    ),
    level(
        "spec.jobTemplate.spec.podFailurePolicy.rules[]",
        of::<PodFailureRule>,
    ),
    level(
        "spec.jobTemplate.spec.podFailurePolicy.rules[].onExitCodes",
        of::<ExitCodes>,
    ),
    level(
        "spec.jobTemplate.spec.podFailurePolicy.rules[].onPodConditions[]",
        of::<PodConditionPattern>,
    ),
    level("spec.jobTemplate.spec.successPolicy", of::<SuccessPolicy>),
    level(
        "spec.jobTemplate.spec.successPolicy.rules[]",
        of::<SuccessRule>,
    ),
];

fn levels(kind: WorkloadKind) -> &'static [Level] {
    match kind {
        WorkloadKind::Deployment => DEPLOYMENT,
        WorkloadKind::ReplicaSet => REPLICA_SET,
        WorkloadKind::ReplicationController => REPLICATION_CONTROLLER,
        WorkloadKind::DaemonSet => DAEMON_SET,
        WorkloadKind::StatefulSet => STATEFUL_SET,
        WorkloadKind::Job => JOB,
        WorkloadKind::CronJob => CRON_JOB,
    }
}

/// Judges the fields outside of the template. A field of a pod that stands beside the template is refused: its pods
/// would run without it. Returns warnings.
pub(super) fn unread(
    kind: WorkloadKind,
    raw: &Value,
    paths: &[Vec<Step>],
    source: PodSource,
    findings: &mut Findings,
) -> Vec<String> {
    let (of_pods, others): (Vec<_>, Vec<_>) = paths
        .iter()
        .cloned()
        .partition(|path| is_of_pods(kind, path));
    for path in of_pods {
        let at = render(&path);
        let home = kind.template_path();
        let text = format!(
            "{}: unknown field here: it belongs in {home}.spec",
            clip(&at)
        );
        findings.add_for(&at, text);
    }
    unread::unread(levels(kind), raw, &others, source, findings)
}

/// True for a field of a pod's spec that stands in a spec around the template.
fn is_of_pods(kind: WorkloadKind, path: &[Step]) -> bool {
    let Some((Step::Key(key), around)) = path.split_last() else {
        return false;
    };
    let specs: &[&str] = match kind {
        WorkloadKind::CronJob => &["spec", "spec.jobTemplate.spec"],
        _ => &["spec"],
    };
    specs.contains(&render(around).as_str()) && of::<PodSpec>().contains(&key.as_str())
}

/// Divides the unread fields of a template. First come the fields of the workload that stand in the spec of its pods,
/// each with a text, and then all others.
pub(super) fn of_workload(
    kind: WorkloadKind,
    paths: Vec<Vec<Step>>,
) -> (Vec<(String, String)>, Vec<Vec<Step>>) {
    let home = kind.template_path().trim_end_matches(".template");
    let level = levels(kind).iter().find(|level| level.at == home);
    let known = level.map_or(&[][..], |level| (level.read)());
    let (here, others): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| match &path[..] {
        [Step::Key(spec), Step::Key(key)] => spec == "spec" && known.contains(&key.as_str()),
        _ => false,
    });
    let text = |path: Vec<Step>| {
        let at = render(&path);
        let text = format!("{at}: unknown field here: it belongs in {home} of the {kind}");
        (at, text)
    };
    (here.into_iter().map(text).collect(), others)
}
