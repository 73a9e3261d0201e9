//! The verb `logs`: prints the logs of containers, and can follow them until the containers end.
//!
//! Invariants: the files are read directly ([`crate::engine::runtime::logs`]). The daemon only tells where the
//! files are and whether a container is still running. Without a daemon, the directory of logs shows where the
//! files are, and the records of shims tell whether a container is still running.

pub mod choose;
mod copy;
mod offline;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use self::choose::Choice;
use self::copy::{Form, Witness};
use super::args::{self, NAMESPACE, Opt, ROOT, Raw, SELECTOR};
use super::client::{Client, ClientError};
use super::error::CliError;
use super::selector::Selector;
use super::workload_names::Named;
use super::workload_pods::{self, Choice as PodChoice, RUNNING_TIMEOUT, Target, running_timeout};
use super::{columns, names};
use crate::base::clock::Time;
use crate::base::clock::parse_go_duration;
use crate::base::paths::Layout;
use crate::engine::runtime::logs::LogOptions;
use crate::face::views::PodView;

/// The longest wait for a pod of a workload if there is no `--pod-running-timeout`.
const RUNNING: Duration = Duration::from_secs(20);

/// The verb `logs`.
pub const VERB: args::Verb = args::Verb {
    name: "logs",
    summary: &[("logs POD", "print the output of containers")],
    help: "\
usage: podprobe logs POD [-c CONTAINER | --all-containers] [-f] [-p] [--tail N] [--since TIME | --since-time DATE]
                     [--timestamps] [--prefix] [--limit-bytes N] [-n NAMESPACE] [--root DIR]
       podprobe logs KIND/NAME [--all-pods] …
       podprobe logs -l SELECTOR …

Prints what a container wrote, stdout and stderr together, byte for byte as kubectl does: control characters reach the
terminal. Without a daemon the log files are read all the same. KIND/NAME is a workload, such as deployment/web or
job/backup: then it is a pod of it that is ready, and stderr says which one.

  -c, --container NAME     default: the container that the annotation kubectl.kubernetes.io/default-container names, or
                           the first one
      --all-containers     each container, init containers first
      --all-pods           each pod of the workload, with --prefix
  -l, --selector LABELS    of every pod that has these labels, as with 'get'; the last 10 lines of each unless --tail
                           says more
  -f, --follow             keep printing until the container ends
  -p, --previous           what the container wrote before its last restart
      --tail N             only the last N lines of each container; -1 is all of them, the default without -l
      --since TIME         only what is not older than 90s, 5m, 2h, …
      --since-time DATE    only what was written since, such as 2026-11-21T08:00:00Z
      --timestamps         begin each line with its time
      --prefix             begin each line with pod and container
      --limit-bytes N      print at most N bytes of each container
      --pod-running-timeout TIME
                           the longest wait for a pod of a workload to start; default 20s
",
    options: &[
        ROOT,
        NAMESPACE,
        Opt::value("container", Some('c')),
        Opt::flag("all-containers", None),
        Opt::flag("all-pods", None),
        SELECTOR,
        Opt::flag("follow", Some('f')),
        Opt::flag("previous", Some('p')),
        Opt::value("tail", None),
        Opt::value("since", None),
        Opt::value("since-time", None),
        Opt::flag("timestamps", None),
        Opt::flag("prefix", None),
        Opt::value("limit-bytes", None),
        RUNNING_TIMEOUT,
    ],
    run: |raw, _, err| {
        let args = parse(raw, SystemTime::now()).map_err(CliError::Usage)?;
        // The container's output is written directly, byte for byte, so control characters are not escaped.
        let mut out = BufWriter::new(io::stdout());
        run(&args, &mut out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `logs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Logs {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// The pods to show logs of.
    pub pods: Pods,
    /// Namespace of the pods; None means all namespaces.
    pub namespace: Option<String>,
    /// The containers of these pods to show logs of.
    pub containers: Wanted,
    /// True if the logs are followed until the containers end.
    pub follow: bool,
    /// True for the instance before the last restart.
    pub previous: bool,
    /// True if each line begins with pod and container.
    pub prefix: bool,
    /// The part of each log that is printed.
    pub options: LogOptions,
    /// The longest wait for a pod of a workload.
    pub running_timeout: Duration,
}

/// The pods to show logs of.
#[derive(Clone, Debug, PartialEq)]
pub enum Pods {
    /// The pod of this name.
    Named(String),
    /// The pods with these labels.
    Labels(Selector),
    /// A pod of this workload, or all of its pods.
    Of {
        /// The workload.
        workload: Named,
        /// True if the logs of all pods are shown.
        all: bool,
    },
}

/// The containers to show logs of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The default container, chosen as kubectl does.
    Default,
    /// The container of this name.
    Named(String),
    /// All containers, including init containers.
    All,
}

fn parse(raw: &Raw, now: SystemTime) -> Result<Logs, String> {
    let words = raw.text_words()?;
    let selector = raw.selector()?;
    let has_labels = selector.is_some();
    let (pods, container) = match (words.as_slice(), selector) {
        ([], Some(selector)) => (Pods::Labels(selector), raw.text("container")?),
        (_, Some(_)) => return Err("-l and the name of a pod exclude each other".into()),
        ([pod], None) => (pods(raw, pod)?, raw.text("container")?),
        // kubectl also accepts the container as a second word.
        ([pod, container], None) if !raw.has("container") => {
            (pods(raw, pod)?, Some(container.clone()))
        }
        _ => {
            return Err("'logs' needs one pod: podprobe logs POD [-c CONTAINER] [-f] [-p]".into());
        }
    };
    let containers = match (container, raw.has("all-containers")) {
        (Some(_), true) => return Err("-c and --all-containers exclude each other".into()),
        (Some(name), false) => Wanted::Named(name),
        (None, true) => Wanted::All,
        (None, false) => Wanted::Default,
    };
    let all_pods = raw.has("all-pods");
    if all_pods && !matches!(pods, Pods::Of { .. }) {
        return Err("--all-pods goes with a workload, such as deployment/NAME".into());
    }
    Ok(Logs {
        root: raw.root()?,
        pods,
        namespace: raw.namespace()?,
        containers,
        follow: raw.has("follow"),
        previous: raw.has("previous"),
        prefix: raw.has("prefix") || all_pods,
        options: LogOptions {
            tail_lines: match raw.has("tail") {
                true => tail(raw)?,
                false => has_labels.then_some(LINES_OF_MANY),
            },
            since: since(raw, now)?,
            timestamps: raw.has("timestamps"),
            limit_bytes: limit_bytes(raw)?,
            ..LogOptions::default()
        },
        running_timeout: running_timeout(raw, RUNNING)?,
    })
}

fn pods(raw: &Raw, word: &str) -> Result<Pods, String> {
    Ok(match Target::parse(word)? {
        Target::Pod(name) => Pods::Named(name),
        Target::Workload(workload) => Pods::Of {
            workload,
            all: raw.has("all-pods"),
        },
    })
}

/// The number of lines of each log if `-l` selects the pods, as with kubectl.
const LINES_OF_MANY: u64 = 10;

/// Parses `--tail`. Returns None for all lines, which kubectl writes as -1.
fn tail(raw: &Raw) -> Result<Option<u64>, String> {
    match raw.text("tail")?.as_deref() {
        None | Some("-1") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            format!(
                "--tail takes a number of lines, 0 or more, or -1 for all of them, not '{text}'"
            )
        }),
    }
}

fn limit_bytes(raw: &Raw) -> Result<Option<u64>, String> {
    let Some(text) = raw.text("limit-bytes")? else {
        return Ok(None);
    };
    let bytes = text.parse().ok().filter(|n| *n > 0);
    let wrong = || format!("--limit-bytes takes a number of bytes, 1 or more, not '{text}'");
    bytes.map(Some).ok_or_else(wrong)
}

fn since(raw: &Raw, now: SystemTime) -> Result<Option<SystemTime>, String> {
    match (raw.text("since")?, raw.text("since-time")?) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("--since and --since-time exclude each other".into()),
        (Some(text), None) => {
            let age = parse_go_duration(&text).map_err(|e| format!("cannot use --since: {e}"))?;
            Ok(now.checked_sub(age))
        }
        (None, Some(text)) => Time::instant(&text).map(Some).ok_or_else(|| {
            format!("--since-time takes a time such as 2026-11-21T08:00:00Z, not '{text}'")
        }),
    }
}

/// Prints the logs on `out`. Notes about the selected logs go to `err`.
pub fn run(logs: &Logs, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let (choice, mut witness) = match Client::connect(&logs.root) {
        Ok(client) => of_daemon(logs, client)?,
        Err(ClientError::NotRunning { socket, .. }) => {
            let layout = Layout::new(&logs.root);
            let dir = layout.logs_dir();
            let (socket, dir) = (socket.display(), dir.display());
            writeln!(
                err,
                "no daemon runs at {socket}; reading the files in {dir}"
            )?;
            of_files(logs, layout)?
        }
        Err(e) => return Err(e.into()),
    };
    for note in &choice.notes {
        writeln!(err, "{note}")?;
    }
    err.flush()?;
    let form = Form {
        options: &logs.options,
        prefix: logs.prefix,
    };
    match logs.follow {
        true => copy::follow(&choice.targets, &form, &mut witness, out),
        false => copy::copy(&choice.targets, &form, out),
    }
}

/// The selected logs, and the source that tells whether their containers are still running.
type Chosen = (Choice, Witness);

fn of_daemon(logs: &Logs, mut client: Client) -> Result<Chosen, CliError> {
    let snapshot = client.snapshot()?;
    let namespace = logs.namespace.as_deref();
    let choice = match &logs.pods {
        Pods::Named(name) => {
            let pod = names::resolve(&snapshot, namespace, name)?;
            choose::choose(pod, &logs.containers, logs.previous).map_err(CliError::Failed)?
        }
        Pods::Labels(selector) => {
            let has = |pod: &&PodView| {
                selector.matches(&columns::string_map(&pod.object["metadata"]["labels"]))
            };
            of_many(logs, names::in_namespace(&snapshot, namespace).filter(has))
        }
        Pods::Of { workload, all } => {
            let target = Target::Workload(workload.clone());
            let place = (logs.root.as_path(), namespace);
            let snapshot = workload_pods::begun(&target, logs.running_timeout, &mut client, place)?;
            let list = client.workloads(None)?;
            let view = workload.find(&list.items, namespace);
            let view = view.map_err(CliError::Failed)?;
            let pods = workload_pods::of(view, &snapshot, PodChoice::Logs);
            let pods = pods.map_err(CliError::Failed)?;
            match all {
                true => of_many(logs, pods.into_iter()),
                false => of_first(logs, &pods)?,
            }
        }
    };
    Ok((choice, Witness::Daemon(Box::new(client))))
}

/// Selects the logs of the first pod, and notes which of several pods this is.
fn of_first(logs: &Logs, pods: &[&PodView]) -> Result<Choice, CliError> {
    let note = (pods.len() > 1).then(|| workload_pods::found(pods));
    match choose::choose(pods[0], &logs.containers, logs.previous) {
        Ok(mut choice) => {
            choice.notes.splice(0..0, note);
            Ok(choice)
        }
        Err(why) => {
            let lines: Vec<String> = note.into_iter().chain([why]).collect();
            Err(CliError::Failed(lines.join("\n")))
        }
    }
}

/// Selects the logs of several pods. For a pod without a requested log, adds a note and continues with the next
/// pod.
fn of_many<'a>(logs: &Logs, pods: impl Iterator<Item = &'a PodView>) -> Choice {
    let mut all = Choice::default();
    let mut is_none = true;
    for pod in pods {
        is_none = false;
        match choose::choose(pod, &logs.containers, logs.previous) {
            Ok(choice) => {
                all.targets.extend(choice.targets);
                all.notes.extend(choice.notes);
            }
            Err(why) => all.notes.push(why),
        }
    }
    if is_none {
        all.notes.push("No resources found".into());
    }
    all
}

fn of_files(logs: &Logs, layout: Layout) -> Result<Chosen, CliError> {
    let choice = offline::find(logs, &layout).map_err(CliError::Failed)?;
    Ok((choice, Witness::Shims(layout)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::args::testing;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn parsed(line: &str) -> Result<Logs, String> {
        let now = SystemTime::UNIX_EPOCH + NOW;
        testing::parse(&VERB, |raw| parse(raw, now), line)
    }

    #[track_caller]
    fn check(line: &str, expected: Logs) {
        assert_eq!(parsed(line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_options(line: &str, expected: LogOptions) {
        assert_eq!(parsed(line).map(|l| l.options), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        assert_eq!(parsed(line), Err(expected.into()), "{line}");
    }

    #[test]
    fn logs_takes_one_pod() {
        let logs = Logs {
            root: "/".into(),
            pods: Pods::Named("a".into()),
            namespace: None,
            containers: Wanted::Default,
            follow: false,
            previous: false,
            prefix: false,
            options: LogOptions::default(),
            running_timeout: RUNNING,
        };
        check("logs a", logs.clone());
        check("logs pod/a", logs.clone());
        let named = Logs {
            containers: Wanted::Named("b".into()),
            follow: true,
            previous: true,
            ..logs.clone()
        };
        check("logs a -c b -f -p", named.clone());
        check("logs a -fp b", named);
        check(
            "logs a --all-containers --prefix",
            Logs {
                containers: Wanted::All,
                prefix: true,
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
        check_error(
            "logs a b --all-containers",
            "-c and --all-containers exclude each other",
        );
    }

    #[test]
    fn labels_stand_in_place_of_a_pod() {
        let labels = parsed("logs -l app=web -f").unwrap();
        let selector = Selector::parse("app=web").unwrap();
        assert_eq!(labels.pods, Pods::Labels(selector));
        assert_eq!(labels.options.tail_lines, Some(10));
        let all = parsed("logs -l app=web --tail=-1").unwrap();
        assert_eq!(all.options.tail_lines, None);
        check_error(
            "logs a -l app=web",
            "-l and the name of a pod exclude each other",
        );
    }

    #[test]
    fn a_workload_stands_in_place_of_a_pod() {
        let of = |all| Pods::Of {
            workload: Named::of_kind("deployment/web").unwrap(),
            all,
        };
        let one = parsed("logs deploy/web").unwrap();
        assert_eq!((one.pods, one.prefix), (of(false), false));
        let all = parsed("logs deploy/web --all-pods").unwrap();
        assert_eq!((all.pods, all.prefix), (of(true), true));
        let needs = "--all-pods goes with a workload, such as deployment/NAME";
        check_error("logs web --all-pods", needs);
        check_error("logs -l a=b --all-pods", needs);
    }

    #[test]
    fn the_options_of_the_log_are_kubectls() {
        let none = LogOptions::default();
        check_options("logs a --tail -1", none.clone());
        check_options(
            "logs a --tail=0 --timestamps --limit-bytes 7",
            LogOptions {
                tail_lines: Some(0),
                timestamps: true,
                limit_bytes: Some(7),
                ..none.clone()
            },
        );
        let since = |time: Duration| LogOptions {
            since: Some(SystemTime::UNIX_EPOCH + time),
            ..none.clone()
        };
        check_options("logs a --since 1m30s", since(NOW - Duration::from_secs(90)));
        let date = "logs a --since-time 1970-01-01T01:00:00.5+01:00";
        check_options(date, since(Duration::from_millis(500)));
    }

    #[test]
    fn a_wrong_option_of_the_log_says_what_is_right() {
        for (line, expected) in [
            (
                "--tail x",
                "--tail takes a number of lines, 0 or more, or -1 for all of them, not 'x'",
            ),
            (
                "--tail -2",
                "--tail takes a number of lines, 0 or more, or -1 for all of them, not '-2'",
            ),
            (
                "--limit-bytes 0",
                "--limit-bytes takes a number of bytes, 1 or more, not '0'",
            ),
            (
                "--since 5",
                "cannot use --since: \"5\" is not a duration such as \"20s\", \"1m30s\" or \"100ms\"",
            ),
            (
                "--since-time now",
                "--since-time takes a time such as 2026-11-21T08:00:00Z, not 'now'",
            ),
            (
                "--since 1s --since-time 2026-11-21T08:00:00Z",
                "--since and --since-time exclude each other",
            ),
        ] {
            check_error(&format!("logs a {line}"), expected);
        }
    }
}
