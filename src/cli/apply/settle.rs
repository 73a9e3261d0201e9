//! The waits of `apply`: until the daemon has read the files, and with `--wait` until pods and workloads are ready.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::plan::{Plan, Verdict};
use super::progress::Progress;
use super::workloads::{self, Written};
use crate::api::objects::{ObjectKey, ObjectKind};
use crate::api::source::{SEEN_ANNOTATION, SOURCE_ANNOTATION};
use crate::api::status::PodPhase;
use crate::api::{PodOrigin, PodStatus, decode};
use crate::base::clock::{Moment, Time};
use crate::cli::client::Client;
use crate::cli::columns;
use crate::cli::error::CliError;
use crate::cli::follow;
use crate::cli::pod_files::Watched;
use crate::face::views::findings::of_pod;
use crate::face::views::{PodView, Snapshot};
use crate::pods::admission::Rejection;
use crate::pods::sources::FileProblem;
use crate::pods::status::{DELETED, is_of_ended};
use crate::workloads::view::WorkloadList;

/// The longest time that the daemon may take to read a file. The daemon usually reads a file at once, because the
/// kernel reports the change.
const READ: Duration = Duration::from_secs(2);
/// The time between two looks at the daemon's objects. The daemon does not announce changes of objects.
const STEP: Duration = Duration::from_millis(20);

/// The files, pods and objects that the daemon must show after the files are written.
#[derive(Default)]
pub(super) struct Expected {
    /// The files of the plans, written or unchanged.
    files: Vec<PathBuf>,
    /// The pods, with the content that the files define.
    pods: Vec<Value>,
    /// The workloads.
    workloads: Vec<Written>,
    /// The objects in files with at least one new object.
    objects: Vec<ObjectKey>,
}

impl Expected {
    /// Reads the present content of the files in the plans.
    pub(super) fn new<'a>(plans: impl Iterator<Item = &'a Plan>, node_name: &str) -> Self {
        let mut expected = Self::default();
        for plan in plans {
            let path = &plan.file;
            let bytes = fs::read(path).unwrap_or_default();
            // A file that cannot be decoded was refused before.
            let Ok(found) = decode::objects(&bytes, &PodOrigin::File { node_name, path }) else {
                continue;
            };
            expected.files.push(path.clone());
            let pods = found.pods.iter();
            expected.pods.extend(pods.map(|d| bare(d.pod.raw.value())));
            let workloads = found.workloads.iter().map(|d| Written::new(&d.workload));
            expected.workloads.extend(workloads);
            let is_new = |(_, verdict): &(String, Verdict)| *verdict == Verdict::Created;
            if plan.verdicts.iter().any(is_new) {
                let keys = found.objects.into_iter().map(|o| o.key);
                expected.objects.extend(keys.filter(is_listed));
            }
        }
        expected
    }

    fn is_shown(&self, snapshot: &Snapshot) -> bool {
        self.pods.iter().all(|pod| find(pod, snapshot).is_some())
    }

    fn has_workloads_shown(&self, client: &mut Client) -> Result<bool, CliError> {
        let is_shown = |list: &WorkloadList| self.workloads.iter().all(|w| w.find(list).is_some());
        Ok(self.workloads.is_empty() || is_shown(&client.workloads(None)?))
    }

    /// Returns the daemon's reason for refusing one of the files, if there is one. The daemon may refuse a file
    /// that `validate` accepts. Problems that are already in `before` are ignored.
    fn refused(&self, now: &Snapshot, before: Option<&Snapshot>) -> Option<String> {
        let is_ours = |file: &str| self.files.iter().any(|f| f == Path::new(file));
        let mut problems = now.problems.iter().filter(|p| !p.is_in_use);
        let told = |p: &&FileProblem| {
            let is_old = before.is_some_and(|before| before.problems.contains(p));
            is_ours(&p.file) && !is_old
        };
        problems.find(told).map(FileProblem::line)
    }
}

fn is_listed(key: &ObjectKey) -> bool {
    !matches!(key.kind, ObjectKind::EndpointSlice | ObjectKind::Endpoints)
}

/// Returns the pod without the annotations that say when and from which source the pod was read.
fn bare(mut pod: Value) -> Value {
    let annotations = pod.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.retain(|key, _| key != SEEN_ANNOTATION && key != SOURCE_ANNOTATION);
    }
    pod
}

/// Returns the daemon's view of the pod with the same UID and content.
fn find<'s>(pod: &Value, snapshot: &'s Snapshot) -> Option<&'s PodView> {
    let mut all = snapshot.pods.iter();
    let is_it = |p: &&std::sync::Arc<PodView>| {
        pod["metadata"]["uid"] == p.uid() && bare(Value::clone(&p.object)) == *pod
    };
    all.find(is_it).map(AsRef::as_ref)
}

/// Waits until the daemon shows the written objects, so the verbs `get` and `wait` do not see the old objects.
///
/// # Errors
/// Returns a [`CliError`] if the daemon refuses a file or has ended.
pub(super) fn until_read(
    expected: &Expected,
    client: &mut Client,
    before: &Snapshot,
    watched: &Watched,
    err: &mut dyn Write,
) -> Result<(), CliError> {
    let end = Moment::now() + READ;
    loop {
        let now = client.snapshot()?;
        if expected.is_shown(&now)
            && expected.has_workloads_shown(client)?
            && all_listed(&expected.objects, client)?
        {
            return Ok(());
        }
        let is_over = Moment::now() >= end;
        // A problem that the daemon reported before this call belongs to the old content of the file, so it is
        // ignored. When the time is over, an old problem counts, too.
        if let Some(why) = expected.refused(&now, (!is_over).then_some(before)) {
            return Err(CliError::Failed(why));
        }
        if is_over {
            writeln!(
                err,
                "podprobe has not read it yet; it looks into {} every {}",
                watched.path.display(),
                watched.looks_every
            )?;
            return Ok(());
        }
        std::thread::sleep(STEP);
    }
}

fn all_listed(keys: &[ObjectKey], client: &mut Client) -> Result<bool, CliError> {
    for key in keys {
        let is_it = |namespace: &str, name: &str| namespace == key.namespace && name == key.name;
        let is_there = match key.kind {
            ObjectKind::Service => {
                let services = client.services()?;
                services.iter().any(|s| is_it(&s.namespace, &s.name))
            }
            kind => client.objects(kind)?.iter().any(|o| {
                let text = |field: &str| o["metadata"][field].as_str().unwrap_or_default();
                is_it(text("namespace"), text("name"))
            }),
        };
        if !is_there {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tells whether the pod starts only when the node takes pods again.
fn waits_for_the_node(status: &PodStatus) -> bool {
    Rejection::of(status).is_some_and(|why| why.is_of_closed_node()) || is_of_ended(status)
}

fn state(pod: &PodView) -> Progress {
    let status = &pod.status;
    match status.phase {
        _ if status.reason == DELETED => {
            Progress::Never("it was deleted, and stays so until its file changes".into())
        }
        PodPhase::Pending if waits_for_the_node(status) => Progress::Never(status.message.clone()),
        PodPhase::Succeeded => Progress::Done("has completed"),
        // The pod starts when the node has room again.
        PodPhase::Failed if Rejection::of(status).is_some_and(|why| why.is_temporary()) => {
            Progress::NotYet
        }
        PodPhase::Failed => Progress::Never(format!("{} {}", status.reason, status.message)),
        _ if status.is_ready() => Progress::Done("is ready"),
        _ => Progress::NotYet,
    }
}

/// Waits until every pod and workload is ready or has completed, and prints a line for each.
///
/// # Errors
/// Returns a [`CliError`] if one of them has failed, the time is over, or the daemon has ended.
pub(super) fn until_ready(
    expected: &Expected,
    root: &Path,
    time: Duration,
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> Result<(), CliError> {
    let end = Moment::now() + time;
    let pods = until_pods_ready(expected, (root, end), out, err)?;
    let workloads = workloads::until_ready(&expected.workloads, (root, end), out, err)?;
    match pods && workloads {
        true => Ok(()),
        false => Err(CliError::Reported),
    }
}

/// Waits for the pods. Returns false if one has failed or the time is over.
fn until_pods_ready(
    expected: &Expected,
    (root, end): (&Path, Moment),
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<bool, CliError> {
    let mut left: Vec<&Value> = expected.pods.iter().collect();
    let mut failed = false;
    let last = follow::pods(root, end, &mut |snapshot| {
        let mut not_yet = Vec::new();
        for pod in &left {
            let view = find(pod, snapshot);
            match view.map_or(Progress::NotYet, state) {
                Progress::NotYet => not_yet.push(*pod),
                Progress::Done(how) => writeln!(out, "pod/{} {how}", name(pod))?,
                Progress::Never(why) => {
                    failed = true;
                    writeln!(err, "pod/{}: {}", name(pod), why.trim())?;
                }
            }
        }
        out.flush()?;
        left = not_yet;
        Ok(left.is_empty())
    })?;
    if let Some(last) = &last {
        gave_up(&left, last, &mut Client::connect(root)?, err)?;
    }
    Ok(!failed && last.is_none())
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

/// Prints for each remaining pod kubectl's line about the timeout, and why the pod is not ready.
fn gave_up(
    left: &[&Value],
    snapshot: &Snapshot,
    client: &mut Client,
    err: &mut dyn Write,
) -> Result<(), CliError> {
    for pod in left {
        let name = name(pod);
        writeln!(
            err,
            "error: timed out waiting for the condition on pods/{name}"
        )?;
        let Some(view) = find(pod, snapshot) else {
            writeln!(err, "{name} is not there")?;
            continue;
        };
        let history = client.history(view.uid().into())?;
        match of_pod(view, &history, Time::now()) {
            Some(why) => writeln!(err, "{name}: {}\n    {}", why.message, why.way_out)?,
            None => writeln!(err, "{name} is {}", columns::status_word(view))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(uid: &str, image: &str, status: Value) -> Value {
        let annotations = json!({SEEN_ANNOTATION: "x", SOURCE_ANNOTATION: "file", "mine": "1"});
        let metadata = json!({"name": "web", "uid": uid, "annotations": annotations});
        json!({"object": {"metadata": metadata, "spec": {"image": image}}, "status": status,
            "file": "/p/web", "warnings": [], "terminating": false, "logDir": "", "events": []})
    }

    fn snapshot(pods: &[Value], problems: &[Value]) -> Snapshot {
        let value = json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": problems});
        serde_json::from_value(value).unwrap()
    }

    fn expected() -> Expected {
        let metadata = json!({"name": "web", "uid": "2", "annotations": {"mine": "1"}});
        Expected {
            files: vec!["/p/web".into()],
            pods: vec![json!({"metadata": metadata, "spec": {"image": "new"}})],
            ..Expected::default()
        }
    }

    #[test]
    fn the_pod_of_before_is_not_the_one_that_was_written() {
        let shows = |uid: &str, image: &str| {
            expected().is_shown(&snapshot(&[view(uid, image, json!({}))], &[]))
        };
        assert!(shows("2", "new"));
        assert!(!shows("1", "new"), "another UID");
        assert!(!shows("2", "old"), "the same UID, which a file may give");
    }

    #[test]
    fn a_problem_of_the_content_before_is_not_one_of_the_new() {
        let problem =
            |file: &str, in_use: bool| json!({"file": file, "error": "no", "isInUse": in_use});
        let with = |problem: Value| snapshot(&[], &[problem]);
        let ours = with(problem("/p/web", false));
        assert_eq!(
            expected().refused(&ours, None).as_deref(),
            Some("/p/web: not in use: no")
        );
        assert_eq!(expected().refused(&ours, Some(&ours)), None);
        let others = [problem("/p/db", false), problem("/p/web", true)];
        for other in others {
            assert_eq!(expected().refused(&with(other), None), None);
        }
    }

    #[test]
    fn a_pod_that_cannot_become_ready_is_not_waited_for() {
        let of = |status: Value| {
            let snapshot = snapshot(&[view("2", "new", status)], &[]);
            state(&snapshot.pods[0])
        };
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": null}]);
        let running = json!({"phase": "Running", "conditions": ready});
        assert_eq!(of(running), Progress::Done("is ready"));
        assert_eq!(of(json!({"phase": "Running"})), Progress::NotYet);
        assert_eq!(
            of(json!({"phase": "Succeeded"})),
            Progress::Done("has completed")
        );
        let rejected = |reason: &str| json!({"phase": "Failed", "reason": reason, "message": "Pod was rejected: why"});
        let never = Progress::Never("NodeAffinity Pod was rejected: why".into());
        assert_eq!(of(rejected("NodeAffinity")), never);
        assert_eq!(of(rejected("OutOfcpu")), Progress::NotYet);
        let deleted = json!({"phase": "Running", "reason": DELETED});
        assert!(matches!(of(deleted), Progress::Never(_)));
    }
}
