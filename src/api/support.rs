//! The verdicts on fields that podprobe does not act on.
//!
//! The verdict depends on what the field would change. If the field has no meaning for a container, podprobe says
//! nothing. If the field does not change what a container sees or may do, podprobe warns. Otherwise the pod is
//! refused. A table has the verdicts. The fields that podprobe *does* act on come from the types themselves, so a
//! known field is either in a type or in the table.
//!
//! Invariant: pure, and every path gets a verdict. An unknown field inside a security context, resources, a probe, a
//! hook or a volume refuses the pod. A field that is likely misspelt or misplaced refuses the pod too, if the field
//! that the user meant would matter.

pub(super) mod fields;
mod rules;

use serde_json::Value;

use self::rules::{LEVELS, Level, Rule, SERVICE_ACCOUNTS, asks_for_nothing, no_reference};
use super::field::{FieldError, Step, child, clip, entry, item, render};
use super::huge_pages;
use super::pod::{HookKind, Pod, ProbeType};
use super::source::PodSource;
use super::validation::{NO_BLOCK_VOLUMES, probe_field};
use super::workload::{Workload, WorkloadSpec};
use crate::base::spelling;

/// The verdict on a field that no type reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Says nothing: the field has no meaning for a container, or its value is the default.
    Fine,
    /// Warns with this text and runs the pod.
    Warn(String),
    /// Refuses the pod with this text. `meant` is the path of the field that the user likely meant.
    Refuse { text: String, meant: Option<String> },
}

impl Verdict {
    fn refuse(text: String) -> Self {
        Self::Refuse { text, meant: None }
    }
}

/// Returns the verdict on the field at `path` with the value `value`, in a pod of that source. Texts start with the
/// path.
pub(crate) fn verdict(source: PodSource, path: &[Step], value: &Value) -> Verdict {
    let Some((Step::Key(key), around)) = path.split_last() else {
        return Verdict::refuse(format!("{}: cannot be read", render(path)));
    };
    let at = render(path);
    let Some(level) = level_at(around) else {
        return Verdict::Warn(format!("{at}: not acted on: unknown field"));
    };
    match level.rule(key) {
        Some(rule) => judge(rule, &at, source, value),
        None => unknown(level, key, around, &at),
    }
}

/// True if the fields of the value at `path` are known. In this case the value must be an object.
pub(crate) fn must_be_object(path: &[Step]) -> bool {
    level_at(path).is_some()
}

/// Returns the level of the object at `path`. Indexes in the path do not count. The three probes share one level, the
/// two hooks share one, and so do containers and init containers.
fn level_at(path: &[Step]) -> Option<&'static Level> {
    let mut generic = String::new();
    for (at, step) in path.iter().enumerate() {
        // The fields of an ephemeral container are fewer, and what is inside of them is the same.
        let is_last = at + 2 >= path.len();
        match step {
            Step::Index(_) => generic.push_str("[]"),
            Step::Key(key) => {
                let key = match key.as_str() {
                    "initContainers" if generic == "spec" => "containers",
                    "ephemeralContainers" if generic == "spec" && !is_last => "containers",
                    key if ProbeType::ALL.iter().any(|t| probe_field(*t) == key) => "probe",
                    key if HookKind::ALL.iter().any(|kind| kind.field() == key) => "hook",
                    key => key,
                };
                if !generic.is_empty() {
                    generic.push('.');
                }
                generic.push_str(key);
            }
        }
    }
    LEVELS.iter().find(|level| level.at == generic)
}

/// Renders a value: a text as it is, any other value as JSON.
fn scalar(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn judge(rule: &Rule, at: &str, source: PodSource, value: &Value) -> Verdict {
    match rule {
        Rule::Source(why) => Verdict::refuse(FieldError::forbidden(at, *why).to_string()),
        Rule::ReferenceSource(what) => {
            Verdict::refuse(FieldError::forbidden(at, no_reference(source, what)).to_string())
        }
        Rule::Only(allowed, why) if !allowed.contains(&scalar(value).as_str()) => {
            Verdict::refuse(FieldError::forbidden(at, *why).to_string())
        }
        Rule::Fine | Rule::Only(..) => Verdict::Fine,
        _ if asks_for_nothing(value) => Verdict::Fine,
        Rule::Reference(what) => {
            Verdict::refuse(FieldError::forbidden(at, no_reference(source, what)).to_string())
        }
        Rule::Refuse(why) => Verdict::refuse(FieldError::forbidden(at, *why).to_string()),
        Rule::WarnWithoutApi(_) if source == PodSource::Api => Verdict::Fine,
        Rule::Warn(why) | Rule::WarnWithoutApi(why) => {
            Verdict::Warn(format!("{at}: not acted on: {why}"))
        }
        Rule::WarnUnless(fine, _) if fine(value) => Verdict::Fine,
        Rule::WarnUnless(_, why) => Verdict::Warn(format!("{at}: not acted on: {why}")),
    }
}

/// Returns the verdict on a field that is unknown both to Kubernetes and to podprobe in the object `around`.
fn unknown(level: &Level, key: &str, around: &[Step], at: &str) -> Verdict {
    let at = clip(at);
    if let Some(name) = spelling::nearest(key, level.names()) {
        let meant = render(&[around, &[Step::Key(name.to_owned())]].concat());
        let text = format!("{at}: unknown field: did you mean \"{name}\"?");
        return match level.rule(name) {
            Some(Rule::Fine | Rule::Warn(_) | Rule::WarnWithoutApi(_) | Rule::WarnUnless(..))
                if !level.strict =>
            {
                Verdict::Warn(text)
            }
            _ => Verdict::Refuse {
                text,
                meant: Some(meant),
            },
        };
    }
    if let Some(home) = misplaced(key) {
        return Verdict::refuse(format!("{at}: unknown field here: it belongs in {home}"));
    }
    if level.strict {
        let names = level.fields().join(", ");
        return Verdict::refuse(format!("{at}: unknown field: known here are {names}"));
    }
    Verdict::Warn(format!("{at}: not acted on: unknown field"))
}

/// Returns the place where a field of this name belongs. Returns None if no place is known, and for short names
/// (`name`, `path`), which occur at many places. `pullPolicy` has no place either: a person who writes it outside of
/// an image volume does not mean the field of the volume.
fn misplaced(key: &str) -> Option<&'static str> {
    let is_telling = key.len() > 6 && key != "pullPolicy" && key != "reference";
    let home = |level: &&Level| is_telling && level.fields().contains(&key);
    LEVELS.iter().find(home).map(|level| match level.at {
        "" => "the pod itself",
        "spec.containers[].probe" => "a livenessProbe, readinessProbe or startupProbe",
        "spec.containers[].lifecycle.hook" => "lifecycle.postStart or lifecycle.preStop",
        "spec.containers[].lifecycle.hook.sleep" => "the sleep of a hook",
        at => at,
    })
}

/// Returns an error for each value that podprobe reads but does not support. A pod with such a value is refused,
/// because it would run differently from what its file says. `source` is the source of the pod.
pub fn unsupported_values(pod: &Pod, source: PodSource) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for listed in pod.spec.listed() {
        let (path, container) = (listed.path(), listed.container);
        let (limits, requests) = (&container.resources.limits, &container.resources.requests);
        let mut refuse = |list: &str, name: &str, why: &str| {
            let path = entry(&format!("{path}.resources.{list}"), name);
            errors.push(FieldError::forbidden(path, why));
        };
        for name in limits.keys().filter(|name| !is_of_the_node(name)) {
            let why = "not supported: only limits of cpu, memory and huge pages are enforced";
            refuse("limits", name, why);
        }
        // A limit is the default of its request, and already has its error above.
        let alone = |name: &&String| !is_of_the_node(name) && !limits.contains_key(*name);
        for name in requests.keys().filter(alone) {
            let why = "not supported: the node has only cpu, memory, huge pages and ephemeral-storage to give";
            refuse("requests", name, why);
        }
    }
    block_claims(&mut errors, pod);
    if source != PodSource::Api {
        service_account_tokens(&mut errors, pod, source);
        if !pod.spec.ephemeral_containers.is_empty() {
            let why = "cannot be set on create";
            errors.push(FieldError::forbidden("spec.ephemeralContainers", why));
        }
    }
    errors
}

/// Refuses tokens of service accounts, which nobody issues to a pod that does not come from an API server.
fn service_account_tokens(errors: &mut Vec<FieldError>, pod: &Pod, source: PodSource) {
    for (index, volume) in pod.spec.volumes.iter().enumerate() {
        let sources = volume.projected.iter().flat_map(|v| &v.sources).enumerate();
        for (number, _) in sources.filter(|(_, s)| s.service_account_token.is_some()) {
            let path = child(&item("spec.volumes", index), "projected.sources");
            let path = child(&item(&path, number), "serviceAccountToken");
            let why = no_reference(source, SERVICE_ACCOUNTS);
            errors.push(FieldError::forbidden(path, why));
        }
    }
}

/// Returns an error for each value of the workload itself that podprobe reads but does not support (workloads 6.17).
pub fn unsupported_in_workload(workload: &Workload) -> Vec<FieldError> {
    let (job, path) = match &workload.spec {
        WorkloadSpec::Job(job) => (job, "spec"),
        WorkloadSpec::CronJob(cron_job) => (&cron_job.job_template.spec, "spec.jobTemplate.spec"),
        _ => return Vec::new(),
    };
    let manager = job.managed_by.as_deref();
    let other = manager.filter(|manager| *manager != JOB_CONTROLLER && manager.contains('/'));
    let refuse = |_| {
        let why = format!(
            "not supported: no other controller runs here; leave it out, or write \"{JOB_CONTROLLER}\""
        );
        FieldError::forbidden(child(path, "managedBy"), why)
    };
    other.map(refuse).into_iter().collect()
}

/// Name of the controller that runs Jobs.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

/// Refuses claims that are used as block volumes. The API allows such claims, but podprobe makes a directory of every
/// claim. The text of the error is the kubelet's text for a claim that is a directory.
fn block_claims(errors: &mut Vec<FieldError>, pod: &Pod) {
    let is_claim = |name: &str| {
        let mut volumes = pod.spec.volumes.iter();
        volumes.any(|v| v.name == name && v.persistent_volume_claim.is_some())
    };
    for listed in pod.spec.listed() {
        let devices = listed.container.volume_devices.iter().enumerate();
        for (number, device) in devices.filter(|(_, d)| is_claim(&d.name)) {
            let path = item(&child(&listed.path(), "volumeDevices"), number);
            let why = format!(
                "volume {} has volumeMode Filesystem, but is specified in volumeDevices; {NO_BLOCK_VOLUMES}",
                device.name
            );
            errors.push(FieldError::forbidden(child(&path, "name"), why));
        }
    }
}

/// True if the node can give this resource to a container. A node has no other resources to give, such as those of
/// device plugins.
fn is_of_the_node(resource: &str) -> bool {
    ["cpu", "memory", "ephemeral-storage"].contains(&resource) || huge_pages::is_resource(resource)
}

#[cfg(test)]
mod tests;
