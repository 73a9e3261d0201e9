//! The verb `wait`: waits until pods and workloads have reached a state, in kubectl's words.
//!
//! Invariants: [`Waiting`] decides and is pure. [`run`] asks the daemon and prints. Pods are waited for first, and then
//! workloads, within the same time.

pub(super) mod workloads;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw, SELECTOR};
use super::client::Client;
use super::columns;
use super::error::CliError;
use super::follow;
use super::jsonpath::{JsonPathError, Path, text};
use super::names::{self, NameError};
use super::problems::problem_lines;
use super::targets::Targets;
use super::workload_names::Named;
use super::workload_pods::Target;
use crate::base::clock::Moment;
use crate::base::clock::parse_go_duration;
use crate::face::views::{PodView, Snapshot, workloads as words};
use crate::pods::admission::Rejection;
use crate::pods::status::DELETED;
use crate::workloads::view::WorkloadView;

/// The time limit if there is no `--timeout`.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The greatest value of `--timeout`, a week. As with kubectl, a negative value means a week.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The verb `wait`.
pub const VERB: args::Verb = args::Verb {
    name: "wait",
    summary: &[("wait POD --for=condition=Ready", "wait until a pod is ready, gone, …")],
    help: "\
usage: podprobe wait POD… --for=condition=TYPE[=True|False|Unknown] [--timeout=TIME] [-n NAMESPACE] [--root DIR]
       podprobe wait POD… --for=delete [--timeout=TIME] [-n NAMESPACE] [--root DIR]
       podprobe wait POD… --for=jsonpath='{PATH}'[=VALUE] [--timeout=TIME] [-n NAMESPACE] [--root DIR]
       podprobe wait [KIND[,KIND]…] -l SELECTOR --for=…

Waits until every POD is as asked, and says so of each. POD may be a workload: KIND/NAME or KIND NAME…, as in 'wait
job/backup --for=condition=Complete' or 'wait deploy/web --for=condition=Available'. What is not there yet is waited
for, because its file may just have been written; what has a file that is refused is not, nor a pod that this node
rejects for good, nor the end of a Job that has ended otherwise. Exit code 1: the time is over.

  --for=condition=Ready    the condition is True, or has the status after a second '='
  --for=delete             it is gone, or another one has its name
  --for=jsonpath=PATH      the path finds something, or that value: --for=jsonpath='{.status.phase}'=Running
  --timeout=TIME           default 30s; 0 looks once
  -l, --selector LABELS    the pods, or what there is of KIND, that have these labels now
",
    options: &[
        ROOT,
        NAMESPACE,
        SELECTOR,
        Opt::value("for", None),
        Opt::value("timeout", None),
    ],
    run: |raw, out, err| {
        let mut args = parse(raw).map_err(CliError::Usage)?;
        args.choose()?;
        run(&args, out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `wait`.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// Names of the pods to wait for.
    pub pods: Vec<String>,
    /// The workloads to wait for. Without labels, there is at least one pod or workload.
    pub workloads: Vec<Named>,
    /// The labels of further pods and workloads to wait for.
    labels: Option<Targets>,
    /// Namespace of the pods and workloads; None means all namespaces.
    pub namespace: Option<String>,
    /// The state to wait for.
    pub goal: Goal,
    /// The longest time to wait.
    pub timeout: Duration,
}

/// The state that a pod must reach.
#[derive(Clone, Debug, PartialEq)]
pub enum Goal {
    /// The pod has a condition of this type with this status. Upper and lower case are equal.
    Condition(String, String),
    /// The pod is gone.
    Delete,
    /// The path finds this value. If the value is None, any value that the path finds is enough.
    JsonPath(Path, Option<String>),
}

fn parse(raw: &Raw) -> Result<Wait, String> {
    let words = raw.text_words()?;
    let usage = "podprobe wait POD… --for=condition=Ready";
    let targets = Targets::parse(raw, &words)?;
    if targets == Targets::Named(Vec::new()) {
        return Err(format!("'wait' needs a pod: {usage}"));
    }
    let goal = raw
        .text("for")?
        .ok_or(format!("'wait' needs what to wait for: {usage}"))?;
    let (mut pods, mut workloads, mut labels) = (Vec::new(), Vec::new(), None);
    match targets {
        Targets::Named(all) => {
            for target in all {
                match target {
                    Target::Pod(name) => pods.push(name),
                    Target::Workload(named) => workloads.push(named),
                }
            }
        }
        of_labels => labels = Some(of_labels),
    }
    Ok(Wait {
        root: raw.root()?,
        pods,
        workloads,
        labels,
        namespace: raw.namespace()?,
        goal: self::goal(&goal)?,
        timeout: raw.text("timeout")?.map_or(Ok(TIMEOUT), |t| timeout(&t))?,
    })
}

impl Wait {
    /// Puts the names of the pods and workloads that have the labels now in place of the labels.
    ///
    /// # Errors
    /// Returns a [`CliError`] if there are none, unless they should be gone, or if the daemon cannot be asked.
    fn choose(&mut self) -> Result<(), CliError> {
        let Some(labels) = self.labels.take() else {
            return Ok(());
        };
        let mut client = Client::connect(&self.root)?;
        let (snapshot, list) = (client.snapshot()?, client.workloads(None)?);
        let found = labels.find(&snapshot, &list, self.namespace.as_deref());
        let pods = found.pods.iter().map(|pod| columns::name(pod).to_owned());
        self.pods.extend(pods);
        let named = |view: &&WorkloadView| {
            let name = words::name(view).to_owned();
            words::kind(view).map(|kind| Named { kind, name })
        };
        self.workloads
            .extend(found.workloads.iter().filter_map(named));
        match self.pods.is_empty() && self.workloads.is_empty() && self.goal != Goal::Delete {
            true => Err(CliError::Failed(
                "error: no matching resources found".into(),
            )),
            false => Ok(()),
        }
    }
}

fn goal(text: &str) -> Result<Goal, String> {
    let takes = "--for takes condition=TYPE[=STATUS], delete, or jsonpath='{PATH}'[=VALUE]";
    match text.split_once('=') {
        Some(("condition", condition)) => {
            let (type_, status) = condition.split_once('=').unwrap_or((condition, "True"));
            match type_.is_empty() || status.is_empty() {
                true => Err(format!("{takes}, not '{text}'")),
                false => Ok(Goal::Condition(type_.into(), status.into())),
            }
        }
        Some(("jsonpath", path)) => json_path(path).map_err(|e| format!("--for: {e}")),
        None if text == "delete" => Ok(Goal::Delete),
        _ => Err(format!("{takes}, not '{text}'")),
    }
}

/// Parses the path and the optional value of a goal. After a path in braces, `=` and the value follow the closing
/// brace. After a path without braces, the value follows the first `=`. A path in braces may contain `=`.
fn json_path(text: &str) -> Result<Goal, JsonPathError> {
    let (path, value) = match text.rfind("}=") {
        Some(at) => (&text[..=at], Some(text[at + 2..].to_owned())),
        None if text.starts_with('{') => (text, None),
        None => match text.split_once('=') {
            Some((path, value)) => (path, Some(value.to_owned())),
            None => (text, None),
        },
    };
    Path::parse(path).map(|path| Goal::JsonPath(path, value))
}

/// Parses the value of `--timeout`.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Ok(MAX_TIMEOUT);
    }
    let time = parse_go_duration(text).map_err(|e| format!("cannot use --timeout: {e}"))?;
    match time <= MAX_TIMEOUT {
        true => Ok(time),
        false => Err(format!("--timeout takes 0s to 168h, not '{text}'")),
    }
}

impl Goal {
    fn is_met(&self, pod: Option<&PodView>) -> Result<bool, JsonPathError> {
        match (self, pod) {
            (Self::Delete, pod) => Ok(pod.is_none_or(was_deleted)),
            (_, None) => Ok(false),
            (Self::Condition(type_, status), Some(pod)) => {
                let mut conditions = pod.status.conditions.iter();
                Ok(conditions.any(|c| {
                    c.type_.eq_ignore_ascii_case(type_) && c.status.eq_ignore_ascii_case(status)
                }))
            }
            (Self::JsonPath(path, value), Some(pod)) => {
                let object = pod.v1();
                let found = path.find(&object)?;
                Ok(match value {
                    None => !found.is_empty(),
                    Some(value) => found.iter().any(|v| text(v) == *value),
                })
            }
        }
    }
}

/// Tells whether the verb `delete` has ended the pod. A deleted pod stays in the list until its file changes.
pub(super) fn was_deleted(pod: &PodView) -> bool {
    let mut containers = pod.status.container_statuses.iter();
    pod.status.reason == DELETED && containers.all(|c| c.state.running.is_none())
}

/// A pod to wait for.
#[derive(Clone, Debug, PartialEq)]
struct AwaitedPod {
    /// Name of the pod. Until the daemon has shown the pod, this name is the name that the user typed.
    name: String,
    /// UID of the pod for the goal `delete`. If only a pod with the same name and another UID is left, the pod is
    /// gone.
    uid: Option<String>,
}

/// The pods that have not reached the state yet.
struct Waiting<'a> {
    wait: &'a Wait,
    left: Vec<AwaitedPod>,
}

impl<'a> Waiting<'a> {
    fn new(wait: &'a Wait) -> Self {
        let target = |name: &String| AwaitedPod {
            name: name.clone(),
            uid: None,
        };
        Self {
            wait,
            left: wait.pods.iter().map(target).collect(),
        }
    }

    /// Checks the pods, and returns the names of the pods that have now reached the state.
    ///
    /// # Errors
    /// Returns a [`CliError`] if a name stands for several pods, if the file of a pod is refused, if a pod is
    /// rejected for good, or if the path does not fit a pod.
    fn step(&mut self, snapshot: &Snapshot) -> Result<Vec<String>, CliError> {
        let mut met = Vec::new();
        let mut left = Vec::new();
        for mut target in std::mem::take(&mut self.left) {
            let pod = self.find(&mut target, snapshot)?;
            match self
                .wait
                .goal
                .is_met(pod)
                .map_err(|e| CliError::Failed(e.to_string()))?
            {
                true => met.push(target.name),
                false => match pod
                    .filter(|_| self.wait.goal != Goal::Delete)
                    .and_then(for_good)
                {
                    Some(why) => return Err(CliError::Failed(why)),
                    None => left.push(target),
                },
            }
        }
        self.left = left;
        Ok(met)
    }

    fn find<'s>(
        &self,
        target: &mut AwaitedPod,
        snapshot: &'s Snapshot,
    ) -> Result<Option<&'s PodView>, CliError> {
        match names::resolve_all(snapshot, self.wait.namespace.as_deref(), &target.name) {
            Ok(pods) => {
                target.name = columns::name(pods[0]).to_owned();
                Ok(match self.wait.goal {
                    Goal::Delete => going(target, &pods),
                    _ => Some(pods[0]),
                })
            }
            Err(NameError::NotFound { .. }) => match refused(snapshot, &target.name) {
                Some(why) if self.wait.goal != Goal::Delete => Err(CliError::Failed(why)),
                _ => Ok(None),
            },
            Err(e) => Err(e.into()),
        }
    }

    /// Returns the lines to print when the time is over: kubectl's line for each pod, and why the pod has not
    /// reached the state.
    fn gave_up(&self, snapshot: &Snapshot) -> Vec<String> {
        let of_one = |target: &AwaitedPod| {
            let namespace = self.wait.namespace.as_deref();
            let (name, why) = match names::resolve(snapshot, namespace, &target.name) {
                Ok(pod) => (columns::name(pod), self.why(pod)),
                Err(e) => (target.name.as_str(), Some(e.to_string())),
            };
            let line = format!("error: timed out waiting for the condition on pods/{name}");
            [Some(line), why].into_iter().flatten()
        };
        self.left.iter().flat_map(of_one).collect()
    }

    fn why(&self, pod: &PodView) -> Option<String> {
        if let Some(why) = Rejection::of(&pod.status) {
            return Some(rejected(pod, &why));
        }
        let Goal::Condition(type_, _) = &self.wait.goal else {
            return None;
        };
        let mut conditions = pod.status.conditions.iter();
        let c = conditions.find(|c| c.type_.eq_ignore_ascii_case(type_));
        let Some(c) = c else {
            return Some(format!("{} has no condition {type_}", columns::name(pod)));
        };
        let message = match c.message.as_str() {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let status = columns::status_word(pod);
        Some(format!(
            "{} is {status}, {} is {}{message}",
            columns::name(pod),
            c.type_,
            c.status
        ))
    }
}

/// Returns the reason why the pod was rejected, if the pod would not start even when room becomes free.
fn for_good(pod: &PodView) -> Option<String> {
    let why = Rejection::of(&pod.status)?;
    (!why.is_temporary()).then(|| rejected(pod, &why))
}

fn rejected(pod: &PodView, why: &Rejection) -> String {
    let what = why.consequence(pod.status.phase);
    let Rejection { reason, message } = why;
    format!("{} {what}: {reason}: {message}", columns::name(pod))
}

/// Returns the pod to wait for with the goal `delete`: the pod that the first snapshot with this name showed. If
/// that snapshot showed two pods with the name, returns the older pod.
fn going<'s>(target: &mut AwaitedPod, pods: &[&'s PodView]) -> Option<&'s PodView> {
    let uid = target.uid.get_or_insert_with(|| {
        let oldest = pods.last().map(|pod| pod.uid());
        oldest.unwrap_or_default().to_owned()
    });
    pods.iter().copied().find(|pod| pod.uid() == uid)
}

/// Returns the problem of the file that has the pod's name.
fn refused(snapshot: &Snapshot, name: &str) -> Option<String> {
    let is_named = |file: &str| {
        std::path::Path::new(file)
            .file_stem()
            .is_some_and(|stem| stem == name)
    };
    let lines = problem_lines(snapshot, is_named);
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Waits for the pods and workloads, and prints the name of each when it has reached the state.
///
/// # Errors
/// Returns a [`CliError`] if the time is over, if a pod or workload cannot reach the state, or if the daemon has ended.
pub fn run(wait: &Wait, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let end = Moment::now() + wait.timeout;
    let pods = match wait.pods.is_empty() {
        true => true,
        false => run_for_pods(wait, end, out, err)?,
    };
    let workloads = match wait.workloads.is_empty() {
        true => true,
        false => workloads::run(wait, end, out, err)?,
    };
    match pods && workloads {
        true => Ok(()),
        false => Err(CliError::Reported),
    }
}

/// Waits for the pods. Returns false if the time is over.
fn run_for_pods(
    wait: &Wait,
    end: Moment,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<bool, CliError> {
    let mut waiting = Waiting::new(wait);
    let last = follow::pods(&wait.root, end, &mut |snapshot| {
        for name in waiting.step(snapshot)? {
            writeln!(out, "pod/{name} condition met")?;
        }
        out.flush()?;
        Ok(waiting.left.is_empty())
    })?;
    write_end(last.map(|last| waiting.gave_up(&last)), err)
}

/// Writes the lines about what has not reached the state, and returns false, if the time is over.
fn write_end(gave_up: Option<Vec<String>>, err: &mut dyn Write) -> Result<bool, CliError> {
    let mut lines = gave_up.iter().flatten();
    lines.try_for_each(|line| writeln!(err, "{line}"))?;
    Ok(gave_up.is_none())
}

#[cfg(test)]
mod tests;
