//! The form `rollout status`: prints what a rollout waits for, until it has ended.
//!
//! Invariants: [`told`] decides and is pure. A text is printed when it changes. Several rollouts are followed one after
//! the other, as with kubectl.

use std::io::Write;

use super::{Follow, group_kind};
use crate::api::workload::{WorkloadKey, WorkloadKind};
use crate::base::clock::Moment;
use crate::cli::change::error;
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::face::views::workloads;
use crate::workloads::view::{RolloutView, WorkloadList, WorkloadView};

/// The annotation with the number of the current revision of a Deployment.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// Follows the rollouts of the workloads. `lacking` are sentences about workloads that were not found.
///
/// # Errors
/// Returns a [`CliError`] if a rollout does not end well, or if the daemon cannot be asked.
pub(super) fn all(
    follow: &Follow,
    client: &mut Client,
    (list, views, lacking): (&WorkloadList, &[&WorkloadView], &[String]),
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> Result<(), CliError> {
    let mut failed = !lacking.is_empty();
    lacking.iter().try_for_each(|why| writeln!(err, "{why}"))?;
    if views.is_empty() && !failed {
        writeln!(err, "No resources found")?;
    }
    for key in views.iter().filter_map(|view| workloads::key(view)) {
        match one(follow, client, list.clone(), &key, out) {
            Ok(()) => {}
            Err(CliError::Failed(why)) => {
                failed = true;
                writeln!(err, "{why}")?;
            }
            Err(e) => return Err(e),
        }
    }
    match failed {
        true => Err(CliError::Reported),
        false => Ok(()),
    }
}

/// Follows one rollout to its end.
fn one(
    follow: &Follow,
    client: &mut Client,
    mut list: WorkloadList,
    key: &WorkloadKey,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let end = follow.timeout.map(|time| Moment::now() + time);
    let mut last = String::new();
    loop {
        let mut views = list.items.iter();
        let view = views.find(|view| workloads::key(view).as_ref() == Some(key));
        let rollout = told(view, follow.revision).map_err(|why| CliError::Failed(error(&why)))?;
        if rollout.text != last {
            writeln!(out, "{}", rollout.text)?;
            out.flush()?;
            last.clone_from(&rollout.text);
        }
        if rollout.is_done || !follow.watch {
            return Ok(());
        }
        list = match end {
            None => client.workloads(Some(list.version))?,
            Some(end) => {
                let left = end.since(Moment::now());
                let over = || CliError::Failed(error("timed out waiting for the condition"));
                let newer = match left.is_zero() {
                    true => None,
                    false => client.workloads_for(list.version, left)?,
                };
                newer.ok_or_else(over)?
            }
        };
    }
}

/// Returns the state of the rollout. The error is kubectl's sentence.
fn told(view: Option<&WorkloadView>, revision: Option<i64>) -> Result<&RolloutView, String> {
    let view = view.ok_or("object has been deleted")?;
    let kind = workloads::kind(view).unwrap_or(WorkloadKind::Deployment);
    let none = || {
        format!(
            "no status viewer has been implemented for {}",
            group_kind(kind)
        )
    };
    let rollout = view.rollout.as_ref().ok_or_else(none)?;
    if let (Some(wanted), WorkloadKind::Deployment) = (revision, kind) {
        let annotation = view.object["metadata"]["annotations"][REVISION].as_str();
        let current = annotation.and_then(|text| text.parse::<i64>().ok());
        let current = current.unwrap_or_default();
        if wanted != current {
            return Err(format!(
                "desired revision ({wanted}) is different from the running revision ({current})"
            ));
        }
    }
    match &rollout.error {
        Some(why) => Err(why.clone()),
        None => Ok(rollout),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::edited_view::edit;

    fn view(rollout: Option<RolloutView>) -> WorkloadView {
        let annotations = json!({REVISION: "4"});
        WorkloadView {
            object: json!({"kind": "Deployment", "metadata": {"name": "web", "annotations": annotations}}).into(),
            rollout,
            ..WorkloadView::default()
        }
    }

    #[track_caller]
    fn check(view: Option<&WorkloadView>, revision: Option<i64>, expected: Result<&str, &str>) {
        let got = told(view, revision).map(|rollout| rollout.text.as_str());
        assert_eq!(got, expected.map_err(str::to_owned));
    }

    #[test]
    fn the_errors_are_kubectls() {
        let rollout = RolloutView {
            text: "Waiting".into(),
            ..RolloutView::default()
        };
        let good = view(Some(rollout.clone()));
        check(Some(&good), None, Ok("Waiting"));
        check(Some(&good), Some(4), Ok("Waiting"));
        let other = "desired revision (3) is different from the running revision (4)";
        check(Some(&good), Some(3), Err(other));
        check(None, None, Err("object has been deleted"));
        let late = "deployment \"web\" exceeded its progress deadline";
        let failed = view(Some(RolloutView {
            error: Some(late.into()),
            ..rollout
        }));
        check(Some(&failed), None, Err(late));
        let mut job = view(None);
        edit(&mut job, |object| object["kind"] = "Job".into());
        let none = "no status viewer has been implemented for Job.batch";
        check(Some(&job), None, Err(none));
        edit(&mut job, |object| {
            object["kind"] = "ReplicationController".into()
        });
        let none = "no status viewer has been implemented for ReplicationController";
        check(Some(&job), None, Err(none));
    }
}
