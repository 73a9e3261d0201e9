//! The part of `wait` for workloads.
//!
//! Invariants: [`Waiting`] decides and is pure. As with kubectl, a condition counts only when the status is of the newest
//! generation of the object.

use std::io::Write;

use serde_json::Value;

use super::{Goal, Wait, refused, write_end};
use crate::api::workload::WorkloadKind;
use crate::base::clock::Moment;
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::follow;
use crate::cli::jsonpath::text;
use crate::cli::workload_names::Named;
use crate::face::views::workloads::{condition, full_name, kind, number, uid, word};
use crate::workloads::view::{WorkloadList, WorkloadView};

/// A workload to wait for.
struct Awaited<'a> {
    named: &'a Named,
    /// UID of the workload for the goal `delete`: the UID that the first list showed. Empty if there was no workload.
    uid: Option<String>,
}

/// The workloads that have not reached the state yet.
struct Waiting<'a> {
    wait: &'a Wait,
    left: Vec<Awaited<'a>>,
}

/// Waits for the workloads. Returns false if the time is over.
///
/// # Errors
/// Returns a [`CliError`] if a workload cannot reach the state, or if the daemon cannot be asked.
pub(super) fn run(
    wait: &Wait,
    end: Moment,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<bool, CliError> {
    let mut client = Client::connect(&wait.root)?;
    let list = client.workloads(None)?;
    refuse_bad_files(wait, &list, &mut client)?;
    let mut waiting = Waiting::new(wait);
    let last = follow::workloads(&wait.root, end, &mut |list| {
        for name in waiting.step(list)? {
            writeln!(out, "{name} condition met")?;
        }
        out.flush()?;
        Ok(waiting.left.is_empty())
    })?;
    write_end(last.map(|last| waiting.gave_up(&last)), err)
}

/// Does not wait for a workload whose file is refused.
fn refuse_bad_files(wait: &Wait, list: &WorkloadList, client: &mut Client) -> Result<(), CliError> {
    let is_missing = |named: &&Named| named.find(&list.items, wait.namespace.as_deref()).is_err();
    let missing: Vec<&Named> = wait.workloads.iter().filter(is_missing).collect();
    if missing.is_empty() || wait.goal == Goal::Delete {
        return Ok(());
    }
    let snapshot = client.snapshot()?;
    let mut problems = missing
        .iter()
        .filter_map(|named| refused(&snapshot, &named.name));
    match problems.next() {
        Some(why) => Err(CliError::Failed(why)),
        None => Ok(()),
    }
}

impl<'a> Waiting<'a> {
    fn new(wait: &'a Wait) -> Self {
        let awaited = |named: &'a Named| Awaited { named, uid: None };
        Self {
            wait,
            left: wait.workloads.iter().map(awaited).collect(),
        }
    }

    /// Checks the workloads, and returns the names of those that have now reached the state.
    ///
    /// # Errors
    /// Returns a [`CliError`] if a name stands for several workloads, if a Job can no longer reach the state, or if the
    /// path does not fit an object.
    fn step(&mut self, list: &WorkloadList) -> Result<Vec<String>, CliError> {
        let mut met = Vec::new();
        for mut awaited in std::mem::take(&mut self.left) {
            let view = self.find(&mut awaited, list)?;
            let is_met = self.is_met(view)?;
            let why = view
                .filter(|_| !is_met)
                .and_then(|view| self.for_good(view));
            match (is_met, why) {
                (true, _) => {
                    let named = awaited.named;
                    met.push(format!("{}/{}", word(named.kind), named.name));
                }
                (false, Some(why)) => return Err(CliError::Failed(why)),
                (false, None) => self.left.push(awaited),
            }
        }
        Ok(met)
    }

    fn find<'l>(
        &self,
        awaited: &mut Awaited<'_>,
        list: &'l WorkloadList,
    ) -> Result<Option<&'l WorkloadView>, CliError> {
        let named = awaited.named;
        if named.all(&list.items, None).next().is_none() {
            awaited.uid.get_or_insert_default();
            return Ok(None);
        }
        let found = named.find(&list.items, self.wait.namespace.as_deref());
        let view = match (found, &self.wait.namespace) {
            (Ok(view), _) => view,
            // There is one in another namespace only.
            (Err(_), Some(_)) => return Ok(None),
            (Err(why), None) => return Err(CliError::Failed(why)),
        };
        let first = awaited.uid.get_or_insert_with(|| uid(view).to_owned());
        Ok(Some(view).filter(|_| self.wait.goal != Goal::Delete || first == uid(view)))
    }

    fn is_met(&self, view: Option<&WorkloadView>) -> Result<bool, CliError> {
        match (&self.wait.goal, view) {
            (Goal::Delete, view) => Ok(view.is_none()),
            (_, None) => Ok(false),
            (Goal::Condition(type_, status), Some(view)) => {
                Ok(has_status(&view.object, type_, status))
            }
            (Goal::JsonPath(path, value), Some(view)) => {
                let found = path.find(&view.object);
                let found = found.map_err(|e| CliError::Failed(e.to_string()))?;
                Ok(match value {
                    None => !found.is_empty(),
                    Some(value) => found.iter().any(|v| text(v) == *value),
                })
            }
        }
    }

    /// Returns why a Job never reaches the state: it has ended in the other way.
    fn for_good(&self, view: &WorkloadView) -> Option<String> {
        let Goal::Condition(type_, status) = &self.wait.goal else {
            return None;
        };
        let is_end = |wanted: &str| type_.eq_ignore_ascii_case(wanted);
        let other = match () {
            () if kind(view) != Some(WorkloadKind::Job) => return None,
            () if !status.eq_ignore_ascii_case("True") => return None,
            () if is_end("Complete") => "Failed",
            () if is_end("Failed") => "Complete",
            () => return None,
        };
        end_of_job(view, other)
    }

    /// Returns the lines to print when the time is over: kubectl's line for each workload, and why it has not reached
    /// the state.
    fn gave_up(&self, list: &WorkloadList) -> Vec<String> {
        let of_one = |awaited: &Awaited<'_>| {
            let Named { kind, name } = awaited.named;
            let resource = kind.resource();
            let line = format!("error: timed out waiting for the condition on {resource}s/{name}");
            let namespace = self.wait.namespace.as_deref();
            let why = match awaited.named.find(&list.items, namespace) {
                Ok(view) => self.why(view),
                Err(why) => vec![why],
            };
            [vec![line], why].concat()
        };
        self.left.iter().flat_map(of_one).collect()
    }

    fn why(&self, view: &WorkloadView) -> Vec<String> {
        let name = full_name(view);
        let mut lines = Vec::new();
        if let Goal::Condition(type_, _) = &self.wait.goal {
            lines.push(match find_condition(&view.object, type_) {
                None => format!("{name} has no condition {type_}"),
                Some(c) => {
                    let of = |key: &str| c[key].as_str().unwrap_or_default();
                    let (type_, status, message) = (of("type"), of("status"), of("message"));
                    let colon = if message.is_empty() { "" } else { ": " };
                    format!("{name}: {type_} is {status}{colon}{message}")
                }
            });
        }
        lines.extend(view.waiting.iter().map(|text| format!("{name}: {text}")));
        lines
    }
}

/// Returns how a Job has ended, if it has this condition: `Complete` or `Failed`.
pub(in crate::cli) fn end_of_job(view: &WorkloadView, type_: &str) -> Option<String> {
    let ended = condition(&view.object, type_).filter(|c| c["status"] == "True")?;
    let what = match type_ {
        "Failed" => "has failed",
        _ => "is complete",
    };
    let texts = ["reason", "message"].map(|key| ended[key].as_str().unwrap_or_default());
    let parts = [&format!("{} {what}", full_name(view)), texts[0], texts[1]];
    Some(
        parts
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(": "),
    )
}

/// Returns the condition of this type. Upper and lower case are equal.
fn find_condition<'o>(object: &'o Value, type_: &str) -> Option<&'o Value> {
    let mut all = object["status"]["conditions"].as_array()?.iter();
    all.find(|c| {
        let own = c["type"].as_str();
        own.is_some_and(|own| own.eq_ignore_ascii_case(type_))
    })
}

/// Tells whether a condition has a status, and the status is of the newest generation of the object.
fn has_status(object: &Value, type_: &str, status: &str) -> bool {
    let Some(condition) = find_condition(object, type_) else {
        return false;
    };
    let observed = condition["observedGeneration"].as_i64();
    let observed = observed.or(object["status"]["observedGeneration"].as_i64());
    let generation = number(&object["metadata"]["generation"]);
    let is_current = observed.is_none_or(|observed| observed >= generation);
    let own = condition["status"].as_str();
    is_current && own.is_some_and(|own| own.eq_ignore_ascii_case(status))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args::testing;
    use crate::cli::edited_view::edit;
    use crate::cli::wait::{VERB, parse};

    fn view(kind: &str, conditions: Value) -> WorkloadView {
        let metadata = json!({"name": "web", "namespace": "default", "uid": "1", "generation": 2});
        let status = json!({"conditions": conditions, "observedGeneration": 2, "readyReplicas": 1});
        WorkloadView {
            object: json!({"kind": kind, "metadata": metadata, "status": status}).into(),
            ..WorkloadView::default()
        }
    }

    fn available(status: &str) -> WorkloadView {
        view(
            "Deployment",
            json!([{"type": "Available", "status": status, "message": "too few"}]),
        )
    }

    fn list(views: &[WorkloadView]) -> WorkloadList {
        WorkloadList {
            version: 1,
            items: views.to_vec().into(),
        }
    }

    /// Checks what is met or wrong after each list in turn, and then what is said when the time is over.
    #[track_caller]
    fn check(line: &str, lists: &[&[WorkloadView]], expected: &[&str]) {
        let wait = testing::parse(&VERB, parse, line).unwrap();
        let mut waiting = Waiting::new(&wait);
        let mut said = Vec::new();
        for views in lists {
            match waiting.step(&list(views)) {
                Ok(met) => said.push(met.join(" ")),
                Err(e) => said.push(e.to_string()),
            }
        }
        said.extend(waiting.gave_up(&list(lists.last().unwrap())));
        assert_eq!(said, expected, "{line}");
    }

    #[test]
    fn a_condition_is_waited_for() {
        let (no, yes) = ([available("False")], [available("True")]);
        let line = "wait deploy/web --for=condition=Available";
        check(line, &[&[], &no, &yes], &["", "", "deployment.apps/web"]);
        let line = "wait deploy/web --for=condition=available=false";
        check(line, &[&no], &["deployment.apps/web"]);
        let line = "wait deploy/web --for=jsonpath={.status.readyReplicas}=1";
        check(line, &[&no], &["deployment.apps/web"]);
    }

    #[test]
    fn a_status_of_an_older_generation_does_not_count() {
        let mut old = available("True");
        edit(&mut old, |object| {
            object["metadata"]["generation"] = 3.into()
        });
        let line = "wait deploy/web --for=condition=Available";
        let late = "error: timed out waiting for the condition on deployments/web";
        let why = "deployment.apps/web: Available is True: too few";
        check(line, &[&[old]], &["", late, why]);
    }

    #[test]
    fn a_workload_is_gone_also_when_another_has_its_name() {
        let (old, mut new) = ([available("True")], available("True"));
        edit(&mut new, |object| object["metadata"]["uid"] = "2".into());
        let line = "wait deploy/web --for=delete";
        check(line, &[&old, &[]], &["", "deployment.apps/web"]);
        check(line, &[&old, &[new]], &["", "deployment.apps/web"]);
        check(line, &[&[]], &["deployment.apps/web"]);
        let line = "wait deploy/web -n shop --for=delete";
        check(line, &[&old], &["deployment.apps/web"]);
    }

    /// kubectl waits until its time is over.
    #[test]
    fn a_job_that_has_failed_is_not_waited_for_to_complete() {
        let ended = |type_: &str| {
            [view(
                "Job",
                json!([{"type": type_, "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}]),
            )]
        };
        let line = "wait job/web --for=condition=Complete";
        let why = "job.batch/web has failed: BackoffLimitExceeded: m";
        check(line, &[&ended("Failed")], &[why]);
        check(line, &[&ended("Complete")], &["job.batch/web"]);
        let line = "wait job/web --for=condition=Failed";
        let why = "job.batch/web is complete: BackoffLimitExceeded: m";
        check(line, &[&ended("Complete")], &[why]);
    }

    #[test]
    fn when_the_time_is_over_it_is_said_why() {
        let mut waits = available("False");
        waits.waiting = Some("no room".into());
        let late = "error: timed out waiting for the condition on deployments/web";
        let why = "deployment.apps/web: Available is False: too few";
        let line = "wait deploy/web --for=condition=Available";
        check(
            line,
            &[&[waits.clone()]],
            &["", late, why, "deployment.apps/web: no room"],
        );
        let line = "wait deploy/web --for=condition=x";
        let none = "deployment.apps/web has no condition x";
        check(
            line,
            &[&[waits]],
            &["", late, none, "deployment.apps/web: no room"],
        );
        let line = "wait deploy/web --for=condition=Available";
        let missing = "deployments.apps \"web\" not found";
        check(line, &[&[]], &["", late, missing]);
    }

    #[test]
    fn a_name_in_two_namespaces_needs_a_choice() {
        let (here, mut there) = (available("True"), available("True"));
        edit(&mut there, |object| {
            object["metadata"]["namespace"] = "shop".into()
        });
        let wait =
            testing::parse(&VERB, parse, "wait deploy/web --for=condition=Available").unwrap();
        let error = Waiting::new(&wait).step(&list(&[here, there])).unwrap_err();
        assert!(error.to_string().ends_with("choose one with -n"), "{error}");
    }
}
