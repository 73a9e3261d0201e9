//! `logs`: reads a container's CRI log files, the rotated ones first, and follows the last one until the container ends.
//!
//! Invariants: the files are read directly, the daemon is only asked where they are and whether the container still
//! runs; a line is shown once, also when the file is rotated meanwhile.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::args::Logs;
use super::client::Client;
use super::columns;
use super::cri_lines::Lines;
use super::error::CliError;
use super::log_files::Follower;
use super::names;
use crate::api::ContainerStatus;
use crate::views::{PodView, Snapshot};

/// Time between two looks at a log that is followed.
const POLL: Duration = Duration::from_millis(100);

/// Every so many looks the daemon is asked whether the container still runs.
const ASK_EVERY: u32 = 5;

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
    let mut follower = Follower::open(&target.file).map_err(|e| {
        CliError::Failed(format!(
            "cannot read the log {}: {e}",
            target.file.display()
        ))
    })?;
    let mut lines = Lines::default();
    copy(&mut follower, &mut lines, out)?;
    if logs.follow {
        follow(&mut client, &target, &mut follower, &mut lines, out)?;
    }
    lines.finish(out)?;
    Ok(out.flush()?)
}

fn copy(follower: &mut Follower, lines: &mut Lines, out: &mut dyn Write) -> Result<(), CliError> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match follower
            .read(&mut bytes)
            .map_err(|e| CliError::Failed(format!("cannot read the log: {e}")))?
        {
            0 => return Ok(out.flush()?),
            n => lines.push(&bytes[..n], out)?,
        }
    }
}

/// As kubectl: until the container ends, or the daemon does.
fn follow(
    client: &mut Client,
    target: &Target,
    follower: &mut Follower,
    lines: &mut Lines,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    for look in 0_u32.. {
        // Asked before the last read: what a container wrote before its end is in the file by then.
        let runs = look % ASK_EVERY != 0 || still_runs(&*client.snapshot()?, target);
        copy(follower, lines, out)?;
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
    let attempt = attempt(pod.status.container(container), logs.previous).map_err(|why| match why {
        NoLog::NoPrevious => format!(
            "Error from server (BadRequest): previous terminated container \"{container}\" in pod \"{}\" not found",
            columns::name(pod)
        ),
        NoLog::Waiting(reason) => format!(
            "Error from server (BadRequest): container \"{container}\" in pod \"{}\" is waiting to start: {reason}",
            columns::name(pod)
        ),
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

fn container<'a>(pod: &'a PodView, wanted: Option<&'a str>) -> Result<&'a str, String> {
    let regular = columns::containers(pod);
    let all = [columns::init_containers(pod), regular.clone()].concat();
    let name = columns::name(pod);
    match (wanted, regular.as_slice()) {
        (Some(wanted), _) if all.contains(&wanted) => Ok(wanted),
        (Some(wanted), _) => {
            let likely = names::nearest(wanted, all.iter().copied())
                .map(|l| format!(", did you mean {l}?"))
                .unwrap_or_default();
            Err(format!(
                "error: container {wanted} is not valid for pod {name}: its containers are [{}]{likely}",
                all.join(" ")
            ))
        }
        (None, [one]) => Ok(one),
        (None, _) => Err(format!(
            "error: a container name must be specified for pod {name}, choose one of: [{}]",
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

/// The instance whose log is meant. A container that waits for its restart still shows the instance that ended, which
/// is its previous one as well.
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

    #[track_caller]
    fn check(status: serde_json::Value, previous: bool, expected: Result<u32, NoLog>) {
        let status: Option<ContainerStatus> = serde_json::from_value(status).unwrap();
        assert_eq!(attempt(status.as_ref(), previous), expected);
    }

    #[test]
    fn the_instance_follows_from_the_state() {
        let running = |restarts: u32| json!({"restartCount": restarts, "state": {"running": {"startedAt": null}}});
        let backing_off = json!({"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}});
        check(running(0), false, Ok(0));
        check(running(3), false, Ok(3));
        check(running(3), true, Ok(2));
        check(running(0), true, Err(NoLog::NoPrevious));
        check(
            json!({"restartCount": 1, "state": {"terminated": {"exitCode": 0}}}),
            false,
            Ok(1),
        );
        check(backing_off.clone(), false, Ok(2));
        check(backing_off, true, Ok(2));
        check(
            json!({"state": {"waiting": {"reason": "ErrImageNeverPull"}}}),
            false,
            Err(NoLog::Waiting("ErrImageNeverPull".into())),
        );
        check(
            json!({"state": {"waiting": {"reason": ""}}}),
            false,
            Err(NoLog::Waiting("ContainerCreating".into())),
        );
        check(
            json!({"state": {"waiting": {"reason": "ErrImageNeverPull"}}}),
            true,
            Err(NoLog::NoPrevious),
        );
        check(
            json!(null),
            false,
            Err(NoLog::Waiting("ContainerCreating".into())),
        );
    }
}
