//! The verb `condition`: sets or removes the conditions of a pod that readiness gates name.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::client::Client;
use super::error::CliError;
use super::suggest::did_you_mean;
use super::{columns, kinds, names};
use crate::api::conditions::{ConditionChange, ConditionStatus};
use crate::face::server::protocol::ConditionSet;
use crate::face::views::PodView;

/// The verb `condition`.
pub const VERB: args::Verb = args::Verb {
    name: "condition",
    summary: &[
        ("condition POD TYPE=True|False", "set a condition that a readiness gate names"),
    ],
    help: "\
usage: podprobe condition POD TYPE=True|False|Unknown… [--reason WORD] [--message TEXT] [-n NAMESPACE] [--root DIR]
       podprobe condition POD TYPE-… [-n NAMESPACE] [--root DIR]

Sets conditions of a pod, or removes them with TYPE-. A pod with readinessGates is ready when its containers are ready
and each condition that a gate names is True. The pod is ready or unready at once. Conditions survive a restart of the
daemon and of the node. They end when the pod is removed, or replaced because its file has changed. A type that no gate
names can be set too, and changes only the list of conditions. Those that podprobe sets itself, such as Ready, cannot be
set.

  --reason WORD            why, in one word such as Registered
  --message TEXT           why, in a sentence
",
    options: &[
        ROOT,
        NAMESPACE,
        Opt::value("reason", None),
        Opt::value("message", None),
    ],
    run: |raw, out, err| {
        let args = parse(raw).map_err(CliError::Usage)?;
        run(&args, out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `condition`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// Name of the pod.
    pub pod: String,
    /// Namespace of the pod; None means all namespaces.
    pub namespace: Option<String>,
    /// Changes of conditions. There is at least one change, and each change is valid.
    pub changes: Vec<ConditionChange>,
}

fn parse(raw: &Raw) -> Result<Condition, String> {
    let words = raw.text_words()?;
    let (pod, changes) = match words.split_first() {
        Some((pod, changes)) if !changes.is_empty() => (pod, changes),
        _ => {
            return Err(
                "'condition' needs a pod and a condition: podprobe condition POD TYPE=True|False"
                    .into(),
            );
        }
    };
    let changes = changes.iter().map(|word| change(raw, word));
    Ok(Condition {
        root: raw.root()?,
        pod: kinds::pod_name(pod)?,
        namespace: raw.namespace()?,
        changes: changes.collect::<Result<_, _>>()?,
    })
}

/// Parses a change of a condition, `TYPE=STATUS` or `TYPE-`.
fn change(raw: &Raw, word: &str) -> Result<ConditionChange, String> {
    let (type_, status) = match (word.split_once('='), word.strip_suffix('-')) {
        (Some((type_, value)), _) => (type_, Some(status(word, value)?)),
        (None, Some(type_)) => (type_, None),
        (None, None) => {
            return Err(format!(
                "'{word}' needs a status: {word}=True, {word}=False or {word}=Unknown; {word}- removes the condition"
            ));
        }
    };
    let text = |option| raw.text(option).map(Option::unwrap_or_default);
    let change = ConditionChange {
        type_: type_.into(),
        status,
        reason: text("reason")?,
        message: text("message")?,
    };
    change.check().map_err(|e| e.to_string())?;
    match status {
        None if !(change.reason.is_empty() && change.message.is_empty()) => Err(format!(
            "'{word}' removes a condition, and what is gone has no --reason and no --message"
        )),
        _ => Ok(change),
    }
}

fn status(word: &str, value: &str) -> Result<ConditionStatus, String> {
    let named = |s: &ConditionStatus| s.as_str().eq_ignore_ascii_case(value);
    let known = ConditionStatus::ALL.iter().copied().find(named);
    known.ok_or_else(|| {
        let likely = did_you_mean(value, ConditionStatus::ALL.map(ConditionStatus::as_str), "");
        format!("'{word}' has no status that a condition can have{likely}; there are True, False and Unknown")
    })
}

/// Sets the conditions in their order, and prints the new state of each. Notes and warnings go to `err`.
///
/// # Errors
/// Returns a [`CliError`] if there is no such pod or no daemon.
pub fn run(args: &Condition, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&args.root)?;
    let snapshot = client.snapshot()?;
    let pod = names::resolve(&snapshot, args.namespace.as_deref(), &args.pod)?;
    for change in &args.changes {
        let set = client.set_condition(pod.uid().into(), change.clone())?;
        writeln!(out, "{}: {}", columns::name(pod), told(change, &set))?;
        if let Some(note) = without_gate(pod, change) {
            writeln!(err, "note: {note}")?;
        }
        if let Some(why) = set.not_stored {
            writeln!(err, "warning: {why}; this holds until the daemon ends")?;
        }
    }
    Ok(out.flush()?)
}

fn told(change: &ConditionChange, set: &ConditionSet) -> String {
    let type_ = &change.type_;
    match (change.status, set.changed) {
        (Some(status), true) => format!("{type_} is {}", status.as_str()),
        (Some(status), false) => format!("{type_} was {} already", status.as_str()),
        (None, true) => format!("{type_} removed"),
        (None, false) => format!("{type_} was not set"),
    }
}

/// Returns a note if no readiness gate names the condition. If the user misspells the type, the gate stays closed,
/// and without this note the user would not notice the mistake.
fn without_gate(pod: &PodView, change: &ConditionChange) -> Option<String> {
    let gates = columns::readiness_gates(pod);
    if change.status.is_none() || gates.contains(&change.type_.as_str()) {
        return None;
    }
    let likely = did_you_mean(&change.type_, gates, "");
    Some(format!(
        "no readiness gate of {} names {}{likely}",
        columns::name(pod),
        change.type_
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    fn parse_line(line: &str) -> Result<Condition, String> {
        testing::parse(&VERB, parse, line)
    }

    #[track_caller]
    fn check(line: &str, pod: &str, expected: &[(&str, Option<ConditionStatus>)]) {
        let got = parse_line(line).unwrap();
        let changes = got.changes.iter().map(|c| (c.type_.as_str(), c.status));
        assert_eq!(
            (got.pod.as_str(), changes.collect::<Vec<_>>()),
            (pod, expected.to_vec())
        );
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        assert_eq!(parse_line(line), Err(expected.into()), "{line}");
    }

    #[test]
    fn conditions_are_set_and_removed() {
        use ConditionStatus::{False, True, Unknown};
        check("condition web a/b=True", "web", &[("a/b", Some(True))]);
        check("condition pod/web b=false", "web", &[("b", Some(False))]);
        check(
            "condition web a=Unknown b- c-d=True",
            "web",
            &[("a", Some(Unknown)), ("b", None), ("c-d", Some(True))],
        );
        let args = parse_line("condition web a=True -n x --reason R --message m").unwrap();
        assert_eq!(args.namespace.as_deref(), Some("x"));
        let change = &args.changes[0];
        assert_eq!((&*change.reason, &*change.message), ("R", "m"));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        let needs =
            "'condition' needs a pod and a condition: podprobe condition POD TYPE=True|False";
        check_error("condition", needs);
        check_error("condition web", needs);
        check_error(
            "condition web up",
            "'up' needs a status: up=True, up=False or up=Unknown; up- removes the condition",
        );
        check_error(
            "condition web up=Treu",
            "'up=Treu' has no status that a condition can have, did you mean 'True'?; there are True, False and Unknown",
        );
        check_error(
            "condition web up=",
            "'up=' has no status that a condition can have; there are True, False and Unknown",
        );
        check_error(
            "condition web Ready=True",
            "condition Ready is set by podprobe alone; set those that the pod's readinessGates name",
        );
        check_error(
            "condition web Ready-",
            "condition Ready is set by podprobe alone; set those that the pod's readinessGates name",
        );
        check_error(
            "condition web up- --reason R",
            "'up-' removes a condition, and what is gone has no --reason and no --message",
        );
        let text = parse_line("condition web a_/b=True").unwrap_err();
        assert!(
            text.starts_with("'a_/b' is no type of a condition: prefix part "),
            "{text}"
        );
    }
}
