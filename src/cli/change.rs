//! Changes of workloads that verbs ask the daemon for, with kubectl's lines about them.

use std::io::Write;

use super::client::{Client, ClientError};
use super::error::CliError;
use crate::api::workload::WorkloadKind;
use crate::face::views::workloads;
use crate::workloads::view::{Change, ChangeRequest, WorkloadView};

/// Asks the daemon for a change of a workload, and returns kubectl's word for what was done.
///
/// # Errors
/// Returns a [`CliError`] if the daemon refuses the change, with the daemon's sentence, or if it cannot be asked.
pub(super) fn ask(
    client: &mut Client,
    view: &WorkloadView,
    change: Change,
) -> Result<String, CliError> {
    let no_kind = || CliError::Failed(error("the daemon shows a workload of no known kind"));
    let workload = workloads::key(view).ok_or_else(no_kind)?;
    if let Some(why) = belongs(view, &change) {
        return Err(CliError::Failed(error(&why)));
    }
    let request = ChangeRequest { workload, change };
    match client.change(&request) {
        Ok(changed) => Ok(changed.done),
        Err(ClientError::Refused(text)) => Err(CliError::Failed(refused(&request, &text))),
        Err(e) => Err(e.into()),
    }
}

/// Returns why a verb does not change a workload that a controller has made; None for a workload of a file.
fn belongs(view: &WorkloadView, change: &Change) -> Option<String> {
    let above = workloads::controller(&view.object).filter(|_| view.file.is_none())?;
    let (kind, above_kind) = (workloads::kind(view)?, WorkloadKind::named(above.kind)?);
    let resource = above_kind.resource();
    let way_out = match change {
        Change::Scale { .. } => "scale that".to_owned(),
        Change::Rerun => format!(
            "podprobe create job NAME --from={resource}/{} runs another",
            above.name
        ),
        _ => "change that".to_owned(),
    };
    Some(format!(
        "{} \"{}\" belongs to {}/{}: {way_out}",
        workloads::plural(kind),
        workloads::name(view),
        workloads::word(above_kind),
        above.name
    ))
}

/// Returns kubectl's error for a change that the daemon refuses. A sentence that begins with its verb is about the
/// workload, which kubectl names before it.
fn refused(request: &ChangeRequest, text: &str) -> String {
    let begins_with_its_verb = ["is ", "can't "].iter().any(|verb| text.starts_with(verb));
    let plural = workloads::plural(request.workload.kind);
    match begins_with_its_verb {
        true => error(&format!("{plural} \"{}\" {text}", request.workload.name)),
        false => error(text),
    }
}

/// Returns a sentence in the form of kubectl's errors.
pub(super) fn error(text: &str) -> String {
    match text.starts_with("error: ") {
        true => text.to_owned(),
        false => format!("error: {text}"),
    }
}

/// Changes several workloads, and prints a line for each: `deployment.apps/web scaled` on `out`, or on `err` why it is
/// not changed. `lacking` are sentences about workloads that were not found. `check` refuses a workload before the
/// daemon is asked.
///
/// # Errors
/// Returns a [`CliError`] if not all workloads are changed, or if the daemon cannot be asked.
pub(super) fn all(
    client: &mut Client,
    (views, lacking): (&[&WorkloadView], &[String]),
    change: &Change,
    check: impl Fn(&WorkloadView) -> Result<(), String>,
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> Result<(), CliError> {
    let mut failed = !lacking.is_empty();
    for view in views {
        let asked = match check(view) {
            Ok(()) => ask(client, view, change.clone()),
            Err(why) => Err(CliError::Failed(error(&why))),
        };
        match asked {
            Ok(done) => writeln!(out, "{} {done}", workloads::full_name(view))?,
            Err(CliError::Failed(why)) => {
                failed = true;
                writeln!(err, "{why}")?;
            }
            Err(e) => return Err(e),
        }
    }
    out.flush()?;
    lacking.iter().try_for_each(|why| writeln!(err, "{why}"))?;
    if views.is_empty() && !failed {
        writeln!(err, "No resources found")?;
    }
    match failed {
        true => Err(CliError::Reported),
        false => Ok(()),
    }
}
