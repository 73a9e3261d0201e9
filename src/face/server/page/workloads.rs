//! The workloads of the status page: how far each one is, and what it waits for.

use super::html::{left_out, named, text};
use super::{Facts, MAX_ITEMS};
use crate::api::workload::WorkloadKind;
use crate::face::views::workloads::{
    self as words, has_condition, kind, name, namespace, progress, readiness,
};
use crate::workloads::view::WorkloadView;

/// Returns the section of the workloads; empty if there are none. A ReplicaSet of a Deployment is left out, because the
/// Deployment says what its sets do.
pub(super) fn section(facts: &Facts<'_>) -> String {
    let is_shown = |view: &&WorkloadView| {
        kind(view) != Some(WorkloadKind::ReplicaSet) || words::controller(&view.object).is_none()
    };
    let all: Vec<&WorkloadView> = facts.workloads.iter().filter(is_shown).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut out = String::from("<h2>Workloads</h2>\n<dl>\n");
    all.iter()
        .take(MAX_ITEMS)
        .for_each(|view| out += &item(view));
    out + "</dl>\n" + &left_out(all.len(), MAX_ITEMS, "workload")
}

fn item(view: &WorkloadView) -> String {
    let resource = kind(view).map_or("", WorkloadKind::resource);
    let what = match readiness(view) {
        Some(_) => " ready",
        None => "",
    };
    let mut out = format!(
        "<dt>{resource}/{} <span class=\"{}\">{}{what}</span></dt>\n",
        text(&named(namespace(view), name(view))),
        class(view),
        text(&progress(view)),
    );
    let mut say = |class: &str, sentence: &str| {
        out += &format!("<dd class=\"{class}\">{}</dd>\n", text(sentence));
    };
    if let Some(why) = &view.file_error {
        say("bad", &format!("last good version runs: {why}"));
    }
    if let Some(why) = words::rollout_failure(view) {
        say("bad", why);
    }
    let rollout = view.rollout.as_ref().filter(|rollout| !rollout.is_done);
    if let Some(rollout) = rollout.filter(|rollout| rollout.error.is_none()) {
        say("warn", &rollout.text);
    }
    if let Some(waiting) = &view.waiting {
        say("", waiting);
    }
    view.overrides.iter().for_each(|it| say("soft", it));
    out
}

/// Returns the class of the numbers of a workload: bad for a Job that has failed, and where pods are missing.
fn class(view: &WorkloadView) -> &'static str {
    let is_bad = match readiness(view) {
        Some((ready, desired)) => ready < desired,
        None => has_condition(&view.object, "Failed"),
    };
    if is_bad { "bad" } else { "good" }
}
