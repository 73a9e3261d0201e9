//! The form `rollout history`: lists the revisions of workloads, or shows the template of one.
//!
//! Invariants: [`text`] decides and is pure. The layout is kubectl's, with its trailing space and its tabs.

use std::io::Write;

use serde_json::json;

use super::{group_kind, has_revisions};
use crate::cli::change::error;
use crate::cli::describe::lines::put;
use crate::cli::describe::template;
use crate::cli::error::CliError;
use crate::cli::tabwriter;
use crate::face::views::workloads;
use crate::workloads::deployment::HISTORY_LOST;
use crate::workloads::template::with_defaults;
use crate::workloads::view::WorkloadView;

/// Prints the histories. `lacking` are sentences about workloads that were not found.
///
/// # Errors
/// Returns a [`CliError`] if a workload has no such revision or no history.
pub(super) fn all(
    revision: Option<i64>,
    (views, lacking): (&[&WorkloadView], &[String]),
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> Result<(), CliError> {
    let mut failed = !lacking.is_empty();
    if views.is_empty() && !failed {
        writeln!(err, "No resources found")?;
    }
    for view in views {
        match text(view, revision) {
            Ok(text) => {
                out.write_all(text.as_bytes())?;
                // A person who looks for an older revision reads here why there is none.
                if let Some(lost) = workloads::condition(&view.object, HISTORY_LOST) {
                    let message = lost["message"].as_str().unwrap_or_default();
                    writeln!(err, "{}: {message}", workloads::full_name(view))?;
                }
            }
            Err(why) => {
                failed = true;
                writeln!(err, "{}", error(&why))?;
            }
        }
    }
    out.flush()?;
    lacking.iter().try_for_each(|why| writeln!(err, "{why}"))?;
    match failed {
        true => Err(CliError::Reported),
        false => Ok(()),
    }
}

/// Returns the history of a workload as text.
fn text(view: &WorkloadView, revision: Option<i64>) -> Result<String, String> {
    if let Some(kind) = workloads::kind(view).filter(|kind| !has_revisions(*kind)) {
        return Err(format!(
            "no history viewer has been implemented for \"{}\"",
            group_kind(kind)
        ));
    }
    let (with, history) = match revision {
        _ if view.revisions.is_empty() => (String::new(), "No rollout history found.".to_owned()),
        Some(number) => (format!("with revision #{number}"), of_one(view, number)?),
        None => (String::new(), table(view)),
    };
    Ok(format!(
        "{} {with}\n{history}\n",
        workloads::full_name(view)
    ))
}

fn of_one(view: &WorkloadView, number: i64) -> Result<String, String> {
    let mut revisions = view.revisions.iter();
    let found = revisions.find(|r| r.revision == number);
    let found = found.ok_or("unable to find the specified revision")?;
    let mut pod = with_defaults(&found.template.value());
    if !found.change_cause.is_empty() {
        pod["metadata"]["annotations"]["kubernetes.io/change-cause"] = json!(found.change_cause);
    }
    let mut w = String::new();
    template::write(&mut w, &pod);
    Ok(w)
}

fn table(view: &WorkloadView) -> String {
    let mut revisions: Vec<_> = view.revisions.iter().collect();
    revisions.sort_by_key(|r| r.revision);
    let mut w = String::from("REVISION\tCHANGE-CAUSE\n");
    for revision in revisions {
        let cause = workloads::or_none(revision.change_cause.clone());
        put!(w, "{}\t{cause}", revision.revision);
    }
    tabwriter::align(&w, 0, 2)
}
