//! The typed view of the kinds that make pods from a template: Deployment, ReplicaSet, ReplicationController,
//! DaemonSet, StatefulSet, Job and CronJob.
//!
//! Invariants: pure. A [`Workload`] from [`super::decode`] is valid and has its defaults. The templates keep the text
//! that a person wrote, because pods are made from that text and equality of templates is equality of that text.

mod cron_job;
mod daemon_set;
mod deployment;
mod int_or_percent;
mod job;
mod label_selector;
mod stateful_set;
mod template;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use cron_job::{ConcurrencyPolicy, CronJobSpec, JobTemplate};
pub use daemon_set::{DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
pub use deployment::{
    DeploymentSpec, DeploymentStrategy, ReplicaSetSpec, RollingUpdateDeployment, StrategyType,
};
pub use int_or_percent::IntOrPercent;
pub use job::{
    CONTROLLER_UID_LABELS, CompletionMode, ExitCodeOperator, ExitCodes, FailureAction,
    JOB_NAME_LABELS, JobSpec, PodConditionPattern, PodFailurePolicy, PodFailureRule,
    PodReplacementPolicy, SuccessPolicy, SuccessRule,
};
pub use label_selector::{LabelSelector, SelectorOperator, SelectorRequirement};
pub use stateful_set::{
    ClaimRetention, ClaimRetentionPolicy, Ordinals, PodManagement, RollingUpdateStatefulSet,
    StatefulSetSpec, StatefulSetUpdateStrategy,
};
pub use template::{ClaimTemplate, PodTemplate};

use super::pod::ObjectMeta;
use super::raw_object::RawObject;

/// A kind of object that makes pods from a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WorkloadKind {
    /// Sets of equal pods, of which a newer set takes the place of an older one.
    Deployment,
    /// A number of equal pods.
    ReplicaSet,
    /// The older form of a ReplicaSet.
    ReplicationController,
    /// A single pod on each node that matches.
    DaemonSet,
    /// Pods with numbers, each with its own claims.
    StatefulSet,
    /// Pods that run to their end.
    Job,
    /// Jobs at the times of a schedule.
    CronJob,
}

impl WorkloadKind {
    /// All kinds, in the order in which `get all` shows them.
    pub const ALL: [Self; 7] = [
        Self::DaemonSet,
        Self::Deployment,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::StatefulSet,
        Self::CronJob,
        Self::Job,
    ];

    /// Returns the value of the field `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::ReplicationController => "ReplicationController",
            Self::DaemonSet => "DaemonSet",
            Self::StatefulSet => "StatefulSet",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
        }
    }

    /// Returns the word for this kind in kubectl's texts, in lower case and singular.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::ReplicaSet => "replicaset",
            Self::ReplicationController => "replicationcontroller",
            Self::DaemonSet => "daemonset",
            Self::StatefulSet => "statefulset",
            Self::Job => "job",
            Self::CronJob => "cronjob",
        }
    }

    /// Returns the API group of this kind, which is empty for the first API.
    pub fn group(self) -> &'static str {
        match self {
            Self::ReplicationController => "",
            Self::Job | Self::CronJob => "batch",
            _ => "apps",
        }
    }

    /// Returns the path of the pod template in an object of this kind.
    pub fn template_path(self) -> &'static str {
        match self {
            Self::CronJob => "spec.jobTemplate.spec.template",
            _ => "spec.template",
        }
    }

    /// Returns the `apiVersion` of objects of this kind.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::ReplicationController => "v1",
            Self::Job | Self::CronJob => "batch/v1",
            _ => "apps/v1",
        }
    }

    /// Returns the kind with this value of the field `kind`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The key of a workload: kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkloadKey {
    /// Kind of the workload.
    pub kind: WorkloadKind,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Display for WorkloadKey {
    /// Prints as `Deployment default/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// An object that makes pods: the typed view, and the raw object that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name, namespace, UID, labels and annotations of the workload. The UID follows from kind, namespace and name, so
    /// that a restart of the daemon knows the children again (workloads 1.3).
    pub metadata: ObjectMeta,
    /// Spec of the workload.
    pub spec: WorkloadSpec,
    /// The whole object as JSON, with its defaults.
    pub raw: RawObject,
}

/// `spec` of a workload, by kind.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "workloads are few, and shared behind an Arc"
)]
pub enum WorkloadSpec {
    /// A Deployment.
    Deployment(DeploymentSpec),
    /// A ReplicaSet.
    ReplicaSet(ReplicaSetSpec),
    /// A ReplicationController. Its selector is a map of labels.
    ReplicationController(ReplicaSetSpec),
    /// A DaemonSet.
    DaemonSet(DaemonSetSpec),
    /// A StatefulSet.
    StatefulSet(StatefulSetSpec),
    /// A Job.
    Job(JobSpec),
    /// A CronJob.
    CronJob(CronJobSpec),
}

impl Workload {
    /// Returns the kind of the workload.
    pub fn kind(&self) -> WorkloadKind {
        match self.spec {
            WorkloadSpec::Deployment(_) => WorkloadKind::Deployment,
            WorkloadSpec::ReplicaSet(_) => WorkloadKind::ReplicaSet,
            WorkloadSpec::ReplicationController(_) => WorkloadKind::ReplicationController,
            WorkloadSpec::DaemonSet(_) => WorkloadKind::DaemonSet,
            WorkloadSpec::StatefulSet(_) => WorkloadKind::StatefulSet,
            WorkloadSpec::Job(_) => WorkloadKind::Job,
            WorkloadSpec::CronJob(_) => WorkloadKind::CronJob,
        }
    }

    /// Returns kind, namespace and name of the workload.
    pub fn key(&self) -> WorkloadKey {
        WorkloadKey {
            kind: self.kind(),
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
        }
    }

    /// Returns the template that pods are made from. The template of a CronJob is the template of its jobs.
    pub fn template(&self) -> &PodTemplate {
        match &self.spec {
            WorkloadSpec::Deployment(spec) => &spec.template,
            WorkloadSpec::ReplicaSet(spec) | WorkloadSpec::ReplicationController(spec) => {
                &spec.template
            }
            WorkloadSpec::DaemonSet(spec) => &spec.template,
            WorkloadSpec::StatefulSet(spec) => &spec.template,
            WorkloadSpec::Job(spec) => &spec.template,
            WorkloadSpec::CronJob(spec) => &spec.job_template.spec.template,
        }
    }
}
