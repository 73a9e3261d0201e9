//! The verb `wait`: waits until pods and workloads have reached a state, in kubectl's words.
//!
//! Invariants: [`Waiting`] decides and is pure. [`run`] asks the daemon and prints. Pods are waited for first, and then
//! workloads, within the same time.

mod workloads;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::client::Client;
use super::error::CliError;
use super::jsonpath::{JsonPathError, Path, text};
use super::names::{self, NameError};
use super::problems::problem_lines;
use super::workload_names::{Named, kind_of};
use super::workload_pods::Target;
use super::{columns, kinds};
use crate::base::clock::Moment;
use crate::base::clock::parse_go_duration;
use crate::face::views::{PodView, Snapshot};
use crate::pods::admission::Rejection;
use crate::pods::status::DELETED;

/// The time limit if there is no `--timeout`.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The greatest value of `--timeout`, a week. As with kubectl, a negative value means a week.
const MAX_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The verb `wait`.
pub const VERB: args::Verb = args::Verb {
    name: "wait",
    summary: &[("wait POD --for=condition=Ready", "wait until a pod is ready, gone, …")],
    help: "\
usage: podprobe wait POD… --for=condition=TYPE[=True|False|Unknown] [--timeout=TIME] [-n NAMESPACE] [--root DIR]
       podprobe wait POD… --for=delete [--timeout=TIME] [-n NAMESPACE] [--root DIR]
       podprobe wait POD… --for=jsonpath='{PATH}'[=VALUE] [--timeout=TIME] [-n NAMESPACE] [--root DIR]

Waits until every POD is as asked, and says so of each. POD may be a workload: KIND/NAME or KIND NAME…, as in 'wait
job/backup --for=condition=Complete' or 'wait deploy/web --for=condition=Available'. What is not there yet is waited
for, because its file may just have been written; what has a file that is refused is not, nor a pod that this node
rejects for good, nor the end of a Job that has ended otherwise. Exit code 1: the time is over.

  --for=condition=Ready    the condition is True, or has the status after a second '='
  --for=delete             it is gone, or another one has its name
  --for=jsonpath=PATH      the path finds something, or that value: --for=jsonpath='{.status.phase}'=Running
  --timeout=TIME           default 30s; 0 looks once
",
    options: &[ROOT, NAMESPACE, Opt::value("for", None), Opt::value("timeout", None)],
    run: |raw, out, err| {
        let args = parse(raw).map_err(CliError::Usage)?;
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
    /// The workloads to wait for. There is at least one pod or workload.
    pub workloads: Vec<Named>,
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
    let targets = targets(&words)?;
    if targets.is_empty() {
        return Err(format!("'wait' needs a pod: {usage}"));
    }
    let goal = raw
        .text("for")?
        .ok_or(format!("'wait' needs what to wait for: {usage}"))?;
    let (mut pods, mut workloads) = (Vec::new(), Vec::new());
    for target in targets {
        match target {
            Target::Pod(name) => pods.push(name),
            Target::Workload(named) => workloads.push(named),
        }
    }
    Ok(Wait {
        root: raw.root()?,
        pods,
        workloads,
        namespace: raw.namespace()?,
        goal: self::goal(&goal)?,
        timeout: raw.text("timeout")?.map_or(Ok(TIMEOUT), |t| timeout(&t))?,
    })
}

/// Parses `pod NAME…`, `KIND NAME…` with a kind of workload, or names of pods and `KIND/NAME` in any order.
fn targets(words: &[String]) -> Result<Vec<Target>, String> {
    let kind = words.first().and_then(|word| kind_of(word));
    let (words, kind) = match (words, kind) {
        ([_, names @ ..], Some(kind)) if !names.is_empty() => (names, Some(kind)),
        ([first, names @ ..], None) if kinds::is_pod_word(first) && !names.is_empty() => {
            (names, None)
        }
        _ => (words, None),
    };
    let one = |word: &String| match kind {
        Some(kind) if !word.contains('/') => Ok(Target::Workload(Named {
            kind,
            name: word.clone(),
        })),
        _ => Target::parse(word),
    };
    words.iter().map(one).collect()
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
fn was_deleted(pod: &PodView) -> bool {
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
    (!why.is_for_room()).then(|| rejected(pod, &why))
}

fn rejected(pod: &PodView, why: &Rejection) -> String {
    let what = match pod.status.phase.is_terminal() {
        true => "was rejected",
        false => "waits until other pods have ended",
    };
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
    let mut client = Client::connect(&wait.root)?;
    let mut waiting = Waiting::new(wait);
    let mut snapshot = Snapshot::clone(&*client.snapshot()?);
    loop {
        for name in waiting.step(&snapshot)? {
            writeln!(out, "pod/{name} condition met")?;
        }
        out.flush()?;
        if waiting.left.is_empty() {
            return Ok(true);
        }
        let left = end.since(Moment::now());
        let update = match left.is_zero() {
            true => None,
            false => client.watch_for(snapshot.version, left)?,
        };
        let Some(update) = update else {
            waiting
                .gave_up(&snapshot)
                .iter()
                .try_for_each(|line| writeln!(err, "{line}"))?;
            return Ok(false);
        };
        snapshot = snapshot.updated(update);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::args::testing;

    fn wait(line: &str) -> Wait {
        testing::parse(&VERB, parse, line).unwrap()
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        assert_eq!(
            testing::parse(&VERB, parse, line),
            Err(expected.into()),
            "{line}"
        );
    }

    #[test]
    fn the_command_line_is_kubectls() {
        let ready = Wait {
            root: "/".into(),
            pods: vec!["web".into()],
            workloads: Vec::new(),
            namespace: None,
            goal: Goal::Condition("Ready".into(), "True".into()),
            timeout: TIMEOUT,
        };
        for line in [
            "wait web --for=condition=Ready",
            "wait pod/web --for condition=Ready",
            "wait pod web --for=condition=Ready",
        ] {
            assert_eq!(wait(line), ready, "{line}");
        }
        let waits = wait("wait a b -n x --for=condition=ready=false --timeout=1m30s");
        assert_eq!((waits.pods.len(), waits.timeout.as_secs()), (2, 90));
        assert_eq!(waits.goal, Goal::Condition("ready".into(), "false".into()));
        assert_eq!(
            wait("wait a --for=delete --timeout=-1s").timeout,
            MAX_TIMEOUT
        );
        assert_eq!(
            wait("wait a --for=delete --timeout=0").timeout,
            Duration::ZERO
        );
        let web = || Named::of_kind("deploy/web").unwrap();
        for line in [
            "wait deploy web --for=delete",
            "wait deployment.apps/web --for=delete",
            "wait deploy deploy/web --for=delete",
        ] {
            let waits = wait(line);
            assert_eq!(
                (waits.pods, waits.workloads),
                (vec![], vec![web()]),
                "{line}"
            );
        }
        let mixed = wait("wait a deploy/web pod/b job/c --for=delete");
        assert_eq!(mixed.pods, ["a", "b"]);
        assert_eq!(mixed.workloads, [web(), Named::of_kind("job/c").unwrap()]);
        let path = Path::parse("{.a[?(@.b==1)].c}").unwrap();
        assert_eq!(
            wait("wait a --for=jsonpath={.a[?(@.b==1)].c}=x=y").goal,
            Goal::JsonPath(path.clone(), Some("x=y".into()))
        );
        assert_eq!(
            wait("wait a --for=jsonpath={.a[?(@.b==1)].c}").goal,
            Goal::JsonPath(path, None)
        );
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let usage = "podprobe wait POD… --for=condition=Ready";
        check_error("wait", &format!("'wait' needs a pod: {usage}"));
        check_error(
            "wait web",
            &format!("'wait' needs what to wait for: {usage}"),
        );
        let takes = "--for takes condition=TYPE[=STATUS], delete, or jsonpath='{PATH}'[=VALUE]";
        for goal in ["ready", "condition=", "condition=Ready=", "delete=x"] {
            check_error(
                &format!("wait web --for={goal}"),
                &format!("{takes}, not '{goal}'"),
            );
        }
        check_error(
            "wait web --for=jsonpath={.a",
            "--for: jsonpath, character 4: '}' is missing at the end",
        );
        check_error(
            "wait web --for=delete --timeout=169h",
            "--timeout takes 0s to 168h, not '169h'",
        );
        let error = testing::parse(&VERB, parse, "wait web --for=delete --timeout=5").unwrap_err();
        assert!(error.starts_with("cannot use --timeout: "), "{error}");
    }

    fn pod(name: &str, uid: &str, ready: &str) -> Value {
        let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": null, "message": "containers with unready status: [c]"}]);
        json!({"object": {"metadata": {"name": format!("{name}-edge"), "namespace": "default", "uid": uid}}, "status": {"phase": "Running", "conditions": conditions},
            "file": format!("/p/{name}.yaml"), "warnings": [], "terminating": false, "logDir": "", "events": []})
    }

    fn snapshot(pods: &[Value], refused: &[&str]) -> Snapshot {
        let problems: Vec<Value> = refused
            .iter()
            .map(|file| json!({"file": file, "error": "no"}))
            .collect();
        serde_json::from_value(
            json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": problems}),
        )
        .unwrap()
    }

    /// Checks the output of a command line after each snapshot in turn. Then checks the output if the time is over
    /// after the last snapshot.
    #[track_caller]
    fn check(line: &str, snapshots: &[Snapshot], expected: &[&str]) {
        let wait = wait(line);
        let mut waiting = Waiting::new(&wait);
        let mut said = Vec::new();
        for snapshot in snapshots {
            match waiting.step(snapshot) {
                Ok(met) => said.push(met.join(" ")),
                Err(e) => said.push(format!("{e}")),
            }
        }
        if let Some(last) = snapshots.last() {
            said.extend(waiting.gave_up(last));
        }
        assert_eq!(said, expected, "{line}");
    }

    /// A pod that was deleted counts as gone when its containers have ended, although it stays in the list until
    /// its file changes.
    #[test]
    fn a_pod_that_was_deleted_is_gone_when_its_containers_have_ended() {
        let deleted = |state: Value| {
            let mut pod = pod("a", "1", "False");
            pod["status"]["reason"] = DELETED.into();
            pod["status"]["containerStatuses"] = json!([{"name": "c", "state": state}]);
            snapshot(&[pod], &[])
        };
        let steps = [
            deleted(json!({"running": {"startedAt": null}})),
            deleted(json!({"terminated": {"exitCode": 137}})),
        ];
        check("wait a --for=delete", &steps, &["", "a-edge"]);
    }

    #[test]
    fn each_pod_is_named_once_when_it_is_as_asked() {
        let (no, yes) = (pod("a", "1", "False"), pod("a", "1", "True"));
        let (b, b_ready) = (pod("b", "2", "False"), pod("b", "2", "True"));
        let steps = [
            snapshot(&[no.clone(), b.clone()], &[]),
            snapshot(&[yes.clone(), b.clone()], &[]),
            snapshot(&[no.clone(), b_ready], &[]),
        ];
        check(
            "wait a b --for=condition=Ready",
            &steps,
            &["", "a-edge", "b-edge"],
        );
        check(
            "wait a --for=condition=ready=false",
            &steps[1..],
            &["", "a-edge"],
        );
        check(
            "wait a --for=jsonpath={.status.phase}=Running",
            &steps[..1],
            &["a-edge"],
        );
        check(
            "wait a --for=jsonpath=.status.phase=Running",
            &steps[..1],
            &["a-edge"],
        );
        check(
            "wait a --for=jsonpath={.status.conditions[0].status}=True",
            &steps,
            &["", "a-edge", ""],
        );
        check(
            "wait a --for=jsonpath={.metadata.uid}",
            &steps[..1],
            &["a-edge"],
        );
    }

    #[test]
    fn a_pod_is_gone_also_when_another_has_its_name() {
        let (old, new) = (
            snapshot(&[pod("a", "1", "True")], &[]),
            snapshot(&[pod("a", "2", "True")], &[]),
        );
        let none = snapshot(&[], &["/p/a.yaml"]);
        check(
            "wait a --for=delete",
            &[old.clone(), none.clone()],
            &["", "a-edge"],
        );
        check("wait a --for=delete", &[old.clone(), new], &["", "a-edge"]);
        check("wait a --for=delete", &[none], &["a"]);
        check(
            "wait a --for=delete",
            &[old],
            &[
                "",
                "error: timed out waiting for the condition on pods/a-edge",
            ],
        );
    }

    /// A change of a pod's file replaces the pod. The old and the new pod share the name until the old pod
    /// has ended.
    #[test]
    fn while_a_pod_is_replaced_the_new_one_is_waited_for() {
        let mut old = pod("a", "1", "True");
        old["terminating"] = true.into();
        let new = |ready| pod("a", "2", ready);
        let steps = [
            snapshot(&[old.clone(), new("False")], &[]),
            snapshot(&[new("True")], &[]),
        ];
        check("wait a --for=condition=Ready", &steps, &["", "a-edge"]);
        check("wait a --for=delete", &steps, &["", "a-edge"]);
    }

    #[test]
    fn a_rejected_pod_is_waited_for_while_room_would_mend_it_and_the_reason_is_told() {
        let rejected = |phase: &str, reason: &str, start: &str| {
            let mut pod = pod("a", "1", "False");
            let message = format!("{start}: no more");
            pod["status"] = json!({"phase": phase, "reason": reason, "message": message});
            snapshot(&[pod], &[])
        };
        let refused = "Pod was rejected";
        let no_room = rejected("Failed", "OutOfmemory", refused);
        let ready = snapshot(&[pod("a", "1", "True")], &[]);
        let line = "wait a --for=condition=Ready";
        check(line, &[no_room.clone(), ready], &["", "a-edge"]);
        let timed_out = "error: timed out waiting for the condition on pods/a-edge";
        let why = "a-edge was rejected: OutOfmemory: no more";
        check(line, std::slice::from_ref(&no_room), &["", timed_out, why]);
        let path = "wait a --for=jsonpath={.status.podIP}";
        check(path, std::slice::from_ref(&no_room), &["", timed_out, why]);
        let ending = "Pod waits until other pods have ended";
        let soon = "a-edge waits until other pods have ended: OutOfmemory: no more";
        check(
            line,
            &[rejected("Pending", "OutOfmemory", ending)],
            &["", timed_out, soon],
        );

        let for_good = rejected("Failed", "NodeAffinity", refused);
        let mut waiting = wait(line);
        let step = |wait: &Wait| {
            Waiting::new(wait)
                .step(&for_good)
                .map_err(|e| e.to_string())
        };
        let why = "a-edge was rejected: NodeAffinity: no more";
        assert_eq!(step(&waiting), Err(why.to_owned()));
        waiting.goal = Goal::Delete;
        assert_eq!(step(&waiting), Ok(vec![]));
        let path = wait("wait a --for=jsonpath={.status.phase}=Failed");
        assert_eq!(step(&path), Ok(vec!["a-edge".to_owned()]));
    }

    #[test]
    fn a_pod_that_is_not_there_is_waited_for_unless_its_file_is_refused() {
        let there = snapshot(&[pod("a", "1", "True")], &["/p/other.yaml"]);
        let none = snapshot(&[pod("b", "2", "True")], &["/p/other.yaml"]);
        check(
            "wait a --for=condition=Ready",
            &[none.clone(), there],
            &["", "a-edge"],
        );
        let gave_up = [
            "",
            "error: timed out waiting for the condition on pods/x",
            "pods \"x\" not found",
        ];
        check("wait x --for=condition=Ready", &[none], &gave_up);
        let refused = snapshot(&[], &["/p/a.yaml"]);
        let said = wait("wait a --for=condition=Ready");
        let error = Waiting::new(&said).step(&refused).unwrap_err();
        assert_eq!(error.to_string(), "/p/a.yaml: not in use: no");
    }

    #[test]
    fn when_the_time_is_over_the_condition_says_why() {
        let no = snapshot(&[pod("a", "1", "False")], &[]);
        let timed_out = "error: timed out waiting for the condition on pods/a-edge";
        let why = "a-edge is Running, Ready is False: containers with unready status: [c]";
        check(
            "wait a --for=condition=ready",
            std::slice::from_ref(&no),
            &["", timed_out, why],
        );
        check(
            "wait a --for=condition=lb",
            &[no],
            &["", timed_out, "a-edge has no condition lb"],
        );
    }
}
