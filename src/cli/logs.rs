//! `logs`: prints a container's log and follows it until the container ends.
//!
//! Invariants: the files are read directly ([`crate::runtime::logs`]); the daemon is only asked where they are and
//! whether the container still runs.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::client::Client;
use super::columns;
use super::error::CliError;
use super::suggest::did_you_mean;
use super::{kinds, names};
use crate::api::ContainerStatus;
use crate::runtime::logs::{LogError, LogOptions, LogReader};
use crate::views::{PodView, Snapshot};

/// Time between two looks at a log that is followed.
const POLL: Duration = Duration::from_millis(100);

/// At every fifth look the daemon is asked whether the container still runs.
const ASK_EVERY: u32 = 5;

/// `logs`.
pub const VERB: args::Verb = args::Verb {
    name: "logs",
    summary: &[("logs POD", "print the output of a container")],
    help: "\
usage: podprobe logs POD [-c CONTAINER] [-f] [-p] [-n NAMESPACE] [--root DIR]

Prints what a container wrote, stdout and stderr together, byte for byte as kubectl does: control characters reach the
terminal.

  -c, --container NAME     needed when the pod has several containers
  -f, --follow             keep printing until the container ends
  -p, --previous           what the container wrote before its last restart
",
    options: &[
        ROOT,
        NAMESPACE,
        Opt::value("container", Some('c')),
        Opt::flag("follow", Some('f')),
        Opt::flag("previous", Some('p')),
    ],
    run: |raw, _, _| {
        let args = parse(raw).map_err(CliError::Usage)?;
        // Written directly, without escaping control characters: the output is the container's,
        // byte for byte.
        let mut out = BufWriter::new(io::stdout());
        run(&args, &mut out).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `logs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Logs {
    /// Where the daemon is.
    pub root: PathBuf,
    /// The pod.
    pub pod: String,
    /// None means all.
    pub namespace: Option<String>,
    /// May be left out when the pod has one.
    pub container: Option<String>,
    /// Keep printing until the container ends.
    pub follow: bool,
    /// The instance before the last restart.
    pub previous: bool,
}

fn parse(raw: &Raw) -> Result<Logs, String> {
    let words = raw.text_words()?;
    let (pod, container) = match words.as_slice() {
        [pod] => (pod, raw.text("container")?),
        // kubectl takes the container as a second word too.
        [pod, container] if !raw.has("container") => (pod, Some(container.clone())),
        _ => {
            return Err("'logs' needs one pod: podprobe logs POD [-c CONTAINER] [-f] [-p]".into());
        }
    };
    Ok(Logs {
        root: raw.root()?,
        pod: kinds::pod_name(pod)?,
        namespace: raw.namespace()?,
        container,
        follow: raw.has("follow"),
        previous: raw.has("previous"),
    })
}

/// Which log: the directory of the container's logs and the number of the instance.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    uid: String,
    container: String,
    attempt: u32,
    file: PathBuf,
}

/// Prints the log on `out`.
pub fn run(logs: &Logs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&logs.root)?;
    let snapshot = client.snapshot()?;
    let pod = names::resolve(&snapshot, logs.namespace.as_deref(), &logs.pod)?;
    let target = target(pod, logs).map_err(CliError::Failed)?;
    let mut log = LogReader::open(&target.file, &LogOptions::default()).map_err(|e| cannot_read(&target, &e))?;
    copy(&mut log, &target, out)?;
    if logs.follow {
        follow(&mut client, &target, &mut log, out)?;
    }
    log.finish(out)?;
    Ok(out.flush()?)
}

fn cannot_read(target: &Target, e: &io::Error) -> CliError {
    CliError::Failed(format!(
        "cannot read the log {}: {e}",
        target.file.display()
    ))
}

fn copy(log: &mut LogReader, target: &Target, out: &mut dyn Write) -> Result<(), CliError> {
    log.copy(out).map_err(|e| match e {
        LogError::Read(e) => cannot_read(target, &e),
        LogError::Write(e) => e.into(),
    })?;
    Ok(out.flush()?)
}

/// Copies, as kubectl does, until the container or the daemon ends.
fn follow(
    client: &mut Client,
    target: &Target,
    log: &mut LogReader,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    for look in 0_u32.. {
        // The daemon is asked before the last read, so that everything the container wrote is in the file by then.
        let runs = look % ASK_EVERY != 0 || still_runs(&*client.snapshot()?, target);
        copy(log, target, out)?;
        if !runs {
            break;
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn still_runs(snapshot: &Snapshot, target: &Target) -> bool {
    let pod = snapshot.pods.iter().find(|p| uid(p) == target.uid);
    let status = pod.and_then(|p| p.status.container(&target.container));
    status.is_some_and(|s| s.state.running.is_some() && s.restart_count == target.attempt)
}

fn uid(pod: &PodView) -> &str {
    pod.object["metadata"]["uid"].as_str().unwrap_or_default()
}

fn target(pod: &PodView, logs: &Logs) -> Result<Target, String> {
    let container = container(pod, logs.container.as_deref())?;
    let attempt =
        attempt(pod.status.container(container), logs.previous).map_err(|why| {
            match (rejection(pod), why) {
                (Some(reason), _) => {
                    format!("pod \"{}\" was rejected: {reason}", columns::name(pod))
                }
                (None, NoLog::NoPrevious) => format!(
                    "previous terminated container \"{container}\" in pod \"{}\" not found",
                    columns::name(pod)
                ),
                (None, NoLog::Waiting(reason)) => format!(
                    "container \"{container}\" in pod \"{}\" is waiting to start: {reason}",
                    columns::name(pod)
                ),
            }
        })?;
    let file = Path::new(&pod.log_dir)
        .join(container)
        .join(format!("{attempt}.log"));
    Ok(Target {
        uid: uid(pod).into(),
        container: container.into(),
        attempt,
        file,
    })
}

/// `OutOfcpu: Node didn't have enough resource: cpu`: why admission refused the pod.
fn rejection(pod: &PodView) -> Option<String> {
    let why = pod.status.message.strip_prefix("Pod was rejected: ")?;
    Some(format!("{}: {why}", pod.status.reason))
}

fn container<'a>(pod: &'a PodView, wanted: Option<&'a str>) -> Result<&'a str, String> {
    let regular = columns::containers(pod);
    let all = [columns::init_containers(pod), regular.clone()].concat();
    let name = columns::name(pod);
    match (wanted, regular.as_slice()) {
        (Some(wanted), _) if all.contains(&wanted) => Ok(wanted),
        (Some(wanted), _) => {
            let likely = did_you_mean(wanted, all.iter().copied(), "");
            Err(format!(
                "container {wanted} is not valid for pod {name}: its containers are [{}]{likely}",
                all.join(" ")
            ))
        }
        (None, [one]) => Ok(one),
        (None, _) => Err(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        )),
    }
}

/// Why there is no log to show.
#[derive(Debug, PartialEq, Eq)]
enum NoLog {
    NoPrevious,
    Waiting(String),
}

/// The instance whose log is requested. A container that waits for its restart has only the ended
/// instance, which is its previous one as well.
fn attempt(status: Option<&ContainerStatus>, previous: bool) -> Result<u32, NoLog> {
    let creating = || NoLog::Waiting("ContainerCreating".into());
    let s = status.ok_or_else(|| {
        if previous {
            NoLog::NoPrevious
        } else {
            creating()
        }
    })?;
    let started = s.state.running.is_some() || s.state.terminated.is_some();
    let ended_before = s.last_state.terminated.is_some();
    match (started, previous) {
        (true, false) => Ok(s.restart_count),
        (true, true) => s.restart_count.checked_sub(1).ok_or(NoLog::NoPrevious),
        (false, _) if ended_before => Ok(s.restart_count),
        (false, true) => Err(NoLog::NoPrevious),
        (false, false) => {
            let reason = s
                .state
                .waiting
                .as_ref()
                .map(|w| w.reason.clone())
                .filter(|r| !r.is_empty());
            Err(reason.map_or_else(creating, NoLog::Waiting))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check_attempt(status: serde_json::Value, previous: bool, expected: Result<u32, NoLog>) {
        let status: Option<ContainerStatus> = serde_json::from_value(status).unwrap();
        assert_eq!(attempt(status.as_ref(), previous), expected);
    }

    #[test]
    fn the_instance_follows_from_the_state() {
        let running = |restarts: u32| json!({"restartCount": restarts, "state": {"running": {"startedAt": null}}});
        let backing_off = json!({"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}});
        check_attempt(running(0), false, Ok(0));
        check_attempt(running(3), false, Ok(3));
        check_attempt(running(3), true, Ok(2));
        check_attempt(running(0), true, Err(NoLog::NoPrevious));
        check_attempt(
            json!({"restartCount": 1, "state": {"terminated": {"exitCode": 0}}}),
            false,
            Ok(1),
        );
        check_attempt(backing_off.clone(), false, Ok(2));
        check_attempt(backing_off, true, Ok(2));
        check_attempt(
            json!({"state": {"waiting": {"reason": "ErrImageNeverPull"}}}),
            false,
            Err(NoLog::Waiting("ErrImageNeverPull".into())),
        );
        check_attempt(
            json!({"state": {"waiting": {"reason": ""}}}),
            false,
            Err(NoLog::Waiting("ContainerCreating".into())),
        );
        check_attempt(
            json!({"state": {"waiting": {"reason": "ErrImageNeverPull"}}}),
            true,
            Err(NoLog::NoPrevious),
        );
        check_attempt(
            json!(null),
            false,
            Err(NoLog::Waiting("ContainerCreating".into())),
        );
    }

    #[track_caller]
    fn check(line: &str, expected: Logs) {
        assert_eq!(testing::parse(&VERB, parse, line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let got = testing::parse(&VERB, parse, line);
        assert_eq!(got, Err(expected.into()), "{line}");
    }

    #[test]
    fn logs_takes_one_pod() {
        let logs = Logs {
            root: "/".into(),
            pod: "a".into(),
            namespace: None,
            container: None,
            follow: false,
            previous: false,
        };
        check("logs a", logs.clone());
        check("logs pod/a", logs.clone());
        check(
            "logs a -c b -f -p",
            Logs {
                container: Some("b".into()),
                follow: true,
                previous: true,
                ..logs.clone()
            },
        );
        check(
            "logs a -fp b",
            Logs {
                container: Some("b".into()),
                follow: true,
                previous: true,
                ..logs
            },
        );
        check_error(
            "logs",
            "'logs' needs one pod: podprobe logs POD [-c CONTAINER] [-f] [-p]",
        );
        check_error(
            "logs a b c",
            "'logs' needs one pod: podprobe logs POD [-c CONTAINER] [-f] [-p]",
        );
    }
}
