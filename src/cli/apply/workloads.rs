//! The part of `apply` for workloads: whether the daemon has read them, and with `--wait` until they are ready.
//!
//! Invariants: [`state`] decides and is pure. Only a view that is made of the written object counts, so no wait ends
//! because of the version before.

use std::io::Write;
use std::path::Path;

use super::progress::Progress;
use crate::api::workload::{Workload, WorkloadKey, WorkloadKind};
use crate::base::clock::Moment;
use crate::cli::error::CliError;
use crate::cli::follow;
use crate::cli::wait::workloads::end_of_job;
use crate::face::views::workloads::{
    full_name, has_condition, key, kind, number, progress, readiness, word,
};
use crate::workloads::state::object_hash;
use crate::workloads::view::{WorkloadList, WorkloadView};

/// A workload in a file that was written.
pub(super) struct Written {
    key: WorkloadKey,
    hash: u32,
}

impl Written {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            key: workload.key(),
            hash: object_hash(workload),
        }
    }

    /// Returns the daemon's view of the workload with this content.
    pub(super) fn find<'l>(&self, list: &'l WorkloadList) -> Option<&'l WorkloadView> {
        let mut all = list.items.iter();
        all.find(|v| v.file_hash == Some(self.hash) && key(v).as_ref() == Some(&self.key))
    }

    fn name(&self) -> String {
        format!("{}/{}", word(self.key.kind), self.key.name)
    }
}

/// Returns how far a workload is.
fn state(view: &WorkloadView) -> Progress {
    let spec = &view.object["spec"];
    let is_suspended = spec["suspend"] == true;
    match (kind(view), &view.rollout) {
        (Some(WorkloadKind::Job), _) => match end_of_job(view, "Failed") {
            Some(why) => Progress::Never(why),
            None if has_condition(&view.object, "Complete") => Progress::Done("has completed"),
            None if is_suspended => Progress::Done("is suspended"),
            None => Progress::NotYet,
        },
        (Some(WorkloadKind::CronJob), _) if is_suspended => Progress::Done("is suspended"),
        (Some(WorkloadKind::CronJob), _) => Progress::Done("is scheduled"),
        (_, Some(rollout)) if spec["updateStrategy"]["type"] != "OnDelete" => {
            match &rollout.error {
                Some(why) => Progress::Never(format!("error: {why}")),
                None if rollout.is_done => Progress::Done("is ready"),
                None if spec["paused"] == true => Progress::Never(format!(
                    "{0} is paused: 'podprobe rollout resume {0}' goes on",
                    full_name(view)
                )),
                None => Progress::NotYet,
            }
        }
        // A kind without rollouts, or whose pods a person replaces.
        _ => match readiness(view) {
            Some((ready, desired)) if ready >= desired && is_observed(view) => {
                Progress::Done("is ready")
            }
            _ => Progress::NotYet,
        },
    }
}

/// Tells whether the status is of the newest generation.
fn is_observed(view: &WorkloadView) -> bool {
    let observed = &view.object["status"]["observedGeneration"];
    number(observed) >= number(&view.object["metadata"]["generation"])
}

/// Waits until every workload is ready or has completed, and prints a line for each. Returns false if one has failed or
/// the time is over.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked.
pub(super) fn until_ready(
    written: &[Written],
    (root, end): (&Path, Moment),
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<bool, CliError> {
    if written.is_empty() {
        return Ok(true);
    }
    let mut left: Vec<&Written> = written.iter().collect();
    let mut failed = false;
    let last = follow::workloads(root, end, &mut |list| {
        let mut not_yet = Vec::new();
        for workload in &left {
            match workload.find(list).map_or(Progress::NotYet, state) {
                Progress::NotYet => not_yet.push(*workload),
                Progress::Done(how) => writeln!(out, "{} {how}", workload.name())?,
                Progress::Never(why) => {
                    failed = true;
                    writeln!(err, "{why}")?;
                }
            }
        }
        out.flush()?;
        left = not_yet;
        Ok(left.is_empty())
    })?;
    if let Some(last) = &last {
        for workload in left {
            gave_up(workload, last, err)?;
        }
    }
    Ok(!failed && last.is_none())
}

/// Prints kubectl's line about the timeout, and what the workload waits for.
fn gave_up(workload: &Written, list: &WorkloadList, err: &mut dyn Write) -> Result<(), CliError> {
    let (resource, name) = (workload.key.kind.resource(), &workload.key.name);
    let line = "error: timed out waiting for the condition on";
    writeln!(err, "{line} {resource}s/{name}")?;
    let Some(view) = workload.find(list) else {
        writeln!(err, "{} is not there", workload.name())?;
        return Ok(());
    };
    let rollout = view.rollout.as_ref().map(|rollout| rollout.text.clone());
    let why = view.waiting.clone().or(rollout);
    let why = why.unwrap_or_else(|| progress(view));
    writeln!(err, "{}: {why}", workload.name())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workloads::view::RolloutView;

    #[track_caller]
    fn check(
        kind: &str,
        mut spec: Value,
        status: Value,
        rollout: Option<RolloutView>,
        of: Progress,
    ) {
        let metadata = json!({"name": "a", "generation": 2});
        spec["replicas"] = 1.into();
        let object = json!({"kind": kind, "metadata": metadata, "spec": spec, "status": status});
        let view = WorkloadView {
            object: object.into(),
            rollout,
            ..WorkloadView::default()
        };
        assert_eq!(state(&view), of, "{view:?}");
    }

    #[test]
    fn each_kind_is_ready_in_its_own_way() {
        let rollout = |is_done, error: Option<&str>| {
            Some(RolloutView {
                text: "t".into(),
                is_done,
                error: error.map(str::to_owned),
            })
        };
        let (none, ready) = (|| json!({}), || Progress::Done("is ready"));
        let never = |why: &str| Progress::Never(why.into());
        check("Deployment", none(), none(), rollout(true, None), ready());
        check(
            "Deployment",
            none(),
            none(),
            rollout(false, None),
            Progress::NotYet,
        );
        let late = rollout(false, Some("late"));
        check("Deployment", none(), none(), late, never("error: late"));
        let paused =
            "deployment.apps/a is paused: 'podprobe rollout resume deployment.apps/a' goes on";
        let spec = json!({"paused": true});
        check(
            "Deployment",
            spec,
            none(),
            rollout(false, None),
            never(paused),
        );

        // A person replaces these pods, and the rollout is an error, as with kubectl.
        let on_delete = || json!({"updateStrategy": {"type": "OnDelete"}});
        let status = |ready: i64, observed: i64| json!({"readyReplicas": ready, "observedGeneration": observed});
        let no_status = || {
            rollout(
                false,
                Some("rollout status is only available for RollingUpdate strategy type"),
            )
        };
        check(
            "StatefulSet",
            on_delete(),
            status(1, 2),
            no_status(),
            ready(),
        );
        check(
            "StatefulSet",
            on_delete(),
            status(0, 2),
            no_status(),
            Progress::NotYet,
        );
        check("ReplicaSet", none(), status(1, 2), None, ready());
        check("ReplicaSet", none(), status(1, 1), None, Progress::NotYet);
        check(
            "ReplicationController",
            none(),
            status(0, 2),
            None,
            Progress::NotYet,
        );

        let ended =
            |type_: &str| json!({"conditions": [{"type": type_, "status": "True", "reason": "R"}]});
        check("Job", none(), none(), None, Progress::NotYet);
        check(
            "Job",
            none(),
            ended("Complete"),
            None,
            Progress::Done("has completed"),
        );
        check(
            "Job",
            none(),
            ended("Failed"),
            None,
            never("job.batch/a has failed: R"),
        );
        let suspended = || json!({"suspend": true});
        check(
            "Job",
            suspended(),
            none(),
            None,
            Progress::Done("is suspended"),
        );
        check(
            "CronJob",
            suspended(),
            none(),
            None,
            Progress::Done("is suspended"),
        );
        check(
            "CronJob",
            none(),
            none(),
            None,
            Progress::Done("is scheduled"),
        );
    }
}
