//! The verb `rollout`: shows how far a rollout is and which revisions there are, and pauses, resumes, restarts and
//! undoes rollouts, in kubectl's words.

mod history;
mod status;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw, SELECTOR};
use super::change;
use super::client::Client;
use super::error::CliError;
use super::suggest::did_you_mean;
use super::workload_names::Asked;
use crate::api::workload::WorkloadKind;
use crate::base::clock::parse_go_duration;
use crate::face::views::workloads;
use crate::workloads::view::{Change, WorkloadView};

/// The verb `rollout`.
pub const VERB: args::Verb = args::Verb {
    name: "rollout",
    summary: &[
        ("rollout status|history WORKLOAD", "follow a rollout; list its revisions"),
        (
            "rollout undo|restart|pause|resume|retry WORKLOAD",
            "go back to an earlier revision; replace all pods; hold up and go on",
        ),
    ],
    help: "\
usage: podprobe rollout status  WORKLOAD… [--watch=false] [--timeout=TIME] [--revision=N]
       podprobe rollout history WORKLOAD… [--revision=N]
       podprobe rollout undo    WORKLOAD… [--to-revision=N]
       podprobe rollout restart|pause|resume|retry WORKLOAD…

WORKLOAD is KIND/NAME, such as deployment/web, sts/db or ds/agent; also KIND NAME…, and with -l a KIND alone.

status follows a rollout and prints what it waits for, until all new pods are available; exit code 1 when its progress
deadline is exceeded, which stops nothing. history lists the revisions that are kept, or with --revision one template.
undo brings back the template of the revision before the current one, or of --to-revision; it holds until the file says
something else, and 'podprobe describe' shows it. restart replaces all pods, one after the other as a rollout does.
pause holds a Deployment's rollout up until resume. retry tries a template again that was rolled back by itself.

  -w, --watch=false        say once how far it is
      --timeout=TIME       give up after 90s, 5m, …; default never
      --revision=N         status: only if N is the current revision; history: show the template of N
      --to-revision=N      default the revision before the current one
  -l, --selector LABELS    the workloads of KIND that have these labels
  -n, --namespace NS       of one namespace; default all
",
    options: &[
        ROOT,
        NAMESPACE,
        SELECTOR,
        Opt::flag("watch", Some('w')),
        Opt::value("timeout", None),
        Opt::value("revision", None),
        Opt::value("to-revision", None),
    ],
    run: |raw, out, err| {
        let rollout = parse(raw).map_err(CliError::Usage)?;
        run(&rollout, out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `rollout`.
#[derive(Clone, Debug, PartialEq)]
struct Rollout {
    root: PathBuf,
    namespace: Option<String>,
    asked: Asked,
    action: Action,
}

/// An action of `rollout`.
#[derive(Clone, Debug, PartialEq)]
enum Action {
    Status(Follow),
    /// The revision of which the template is shown; None lists all revisions.
    History(Option<i64>),
    Change(Change),
}

/// The way in which `rollout status` follows a rollout.
#[derive(Clone, Debug, PartialEq)]
struct Follow {
    /// True if the rollout is followed to its end.
    watch: bool,
    /// The longest time to wait; None means forever.
    timeout: Option<Duration>,
    /// The revision that must be the current one.
    revision: Option<i64>,
}

const ACTIONS: [&str; 7] = [
    "status", "history", "undo", "restart", "pause", "resume", "retry",
];

fn parse(raw: &Raw) -> Result<Rollout, String> {
    let words = raw.text_words()?;
    let Some((word, workloads)) = words.split_first() else {
        return Err(format!("'rollout' needs one of {}", ACTIONS.join(", ")));
    };
    let action = action(raw, word)?;
    refuse_useless(raw, word)?;
    Ok(Rollout {
        root: raw.root()?,
        namespace: raw.namespace()?,
        asked: Asked::parse(raw, workloads)?.chosen(raw)?,
        action,
    })
}

fn action(raw: &Raw, word: &str) -> Result<Action, String> {
    Ok(match word {
        "status" => Action::Status(Follow {
            watch: !raw.is_denied("watch"),
            timeout: timeout(raw)?,
            revision: revision(raw, "revision")?,
        }),
        "history" => Action::History(revision(raw, "revision")?),
        "undo" => Action::Change(Change::Undo {
            to_revision: revision(raw, "to-revision")?,
        }),
        "restart" => Action::Change(Change::Restart),
        "pause" => Action::Change(Change::Pause),
        "resume" => Action::Change(Change::Resume),
        "retry" => Action::Change(Change::Retry),
        other => {
            let likely = did_you_mean(other, ACTIONS, "");
            return Err(format!(
                "'rollout' has no '{other}'{likely}; it has {}",
                ACTIONS.join(", ")
            ));
        }
    })
}

/// Refuses options that would have no effect.
fn refuse_useless(raw: &Raw, word: &str) -> Result<(), String> {
    let useful: &[&str] = match word {
        "status" => &["watch", "timeout", "revision"],
        "history" => &["revision"],
        "undo" => &["to-revision"],
        _ => &[],
    };
    let options = ["watch", "timeout", "revision", "to-revision"];
    let mut given = options.into_iter().filter(|name| raw.has(name));
    match given.find(|name| !useful.contains(name)) {
        Some(name) => Err(format!("'rollout {word}' has no option '--{name}'")),
        None => Ok(()),
    }
}

/// Parses a number of a revision. As with kubectl, 0 means that none is given.
fn revision(raw: &Raw, name: &str) -> Result<Option<i64>, String> {
    let Some(text) = raw.text(name)? else {
        return Ok(None);
    };
    match text.parse::<i64>() {
        Ok(number) if number >= 0 => Ok(Some(number).filter(|n| *n > 0)),
        _ => Err(format!("--{name} takes a positive number, not '{text}'")),
    }
}

/// Parses `--timeout`. As with kubectl, 0 means never.
fn timeout(raw: &Raw) -> Result<Option<Duration>, String> {
    let Some(text) = raw.text("timeout")? else {
        return Ok(None);
    };
    let time = parse_go_duration(&text).map_err(|e| format!("cannot use --timeout: {e}"))?;
    Ok(Some(time).filter(|t| !t.is_zero()))
}

fn run(rollout: &Rollout, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&rollout.root)?;
    let list = client.workloads(None)?;
    let (views, lacking) = rollout
        .asked
        .find(&list.items, rollout.namespace.as_deref());
    match &rollout.action {
        Action::Status(follow) => {
            status::all(follow, &mut client, (&list, &views, &lacking), (out, err))
        }
        Action::History(revision) => history::all(*revision, (&views, &lacking), (out, err)),
        Action::Change(change) => {
            let check = |view: &WorkloadView| is_possible(change, view);
            change::all(&mut client, (&views, &lacking), change, check, (out, err))
        }
    }
}

/// Refuses what the kind of the workload does not allow, in kubectl's words.
fn is_possible(change: &Change, view: &WorkloadView) -> Result<(), String> {
    let Some(kind) = workloads::kind(view) else {
        return Ok(());
    };
    let has_revisions = has_revisions(kind);
    let is_deployment = kind == WorkloadKind::Deployment;
    let named = |what: &str| {
        let plural = workloads::plural(kind);
        Err(format!("{plural} \"{}\" {what}", workloads::name(view)))
    };
    match change {
        Change::Undo { .. } if !has_revisions => Err(format!(
            "no rollbacker has been implemented for \"{}\"",
            group_kind(kind)
        )),
        Change::Restart if !has_revisions => named("restarting is not supported"),
        Change::Pause if !is_deployment => named("pausing is not supported"),
        Change::Resume if !is_deployment => named("resuming is not supported"),
        Change::Retry if !is_deployment => named("is never rolled back by itself"),
        _ => Ok(()),
    }
}

/// Tells whether workloads of this kind have revisions.
fn has_revisions(kind: WorkloadKind) -> bool {
    matches!(
        kind,
        WorkloadKind::Deployment | WorkloadKind::DaemonSet | WorkloadKind::StatefulSet
    )
}

/// Returns kind and group in the form of kubectl's errors, for example `Job.batch`.
fn group_kind(kind: WorkloadKind) -> String {
    match kind.group() {
        "" => kind.to_string(),
        group => format!("{kind}.{group}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    fn parsed(line: &str) -> Result<Action, String> {
        testing::parse(&VERB, parse, line).map(|rollout| rollout.action)
    }

    #[track_caller]
    fn check(line: &str, expected: Action) {
        assert_eq!(parsed(line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        assert_eq!(parsed(line), Err(expected.into()), "{line}");
    }

    #[test]
    fn the_actions_are_kubectls() {
        let follow = Follow {
            watch: true,
            timeout: None,
            revision: None,
        };
        check("rollout status deploy/web", Action::Status(follow.clone()));
        check(
            "rollout status deploy/web -w",
            Action::Status(follow.clone()),
        );
        check(
            "rollout status deploy/web --timeout 0s --revision 0",
            Action::Status(follow),
        );
        let once = Follow {
            watch: false,
            timeout: Some(Duration::from_secs(90)),
            revision: Some(3),
        };
        let line = "rollout status deploy/web --watch=false --timeout=90s --revision=3";
        check(line, Action::Status(once));
        check("rollout history ds agent", Action::History(None));
        check(
            "rollout history ds agent --revision 2",
            Action::History(Some(2)),
        );
        let undo = |to_revision| Action::Change(Change::Undo { to_revision });
        check("rollout undo deploy/web", undo(None));
        check("rollout undo deploy/web --to-revision=0", undo(None));
        check("rollout undo deploy/web --to-revision=7", undo(Some(7)));
        check(
            "rollout restart deploy -l a=b",
            Action::Change(Change::Restart),
        );
        check("rollout pause deploy/web", Action::Change(Change::Pause));
        check("rollout resume deploy/web", Action::Change(Change::Resume));
        check("rollout retry deploy/web", Action::Change(Change::Retry));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let actions = "status, history, undo, restart, pause, resume, retry";
        check_error("rollout", &format!("'rollout' needs one of {actions}"));
        check_error(
            "rollout stats deploy/web",
            &format!("'rollout' has no 'stats', did you mean 'status'?; it has {actions}"),
        );
        let needs = "'rollout' needs a workload: podprobe help rollout";
        check_error("rollout restart", needs);
        check_error("rollout restart deploy", needs);
        check_error(
            "rollout undo deploy/web --revision 3",
            "'rollout undo' has no option '--revision'",
        );
        check_error(
            "rollout undo deploy/web --to-revision=-1",
            "--to-revision takes a positive number, not '-1'",
        );
        check_error(
            "rollout pause deploy/web --timeout 1s",
            "'rollout pause' has no option '--timeout'",
        );
    }
}
