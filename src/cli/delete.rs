//! The verb `delete`: ends pods until their files change, or removes the files of workloads and those that `apply` has
//! put into the daemon's directory.

mod gone;
mod taken_back;
mod workloads;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw, SELECTOR};
use super::client::Client;
use super::error::CliError;
use super::pod_files::{self, Source};
use super::targets::{Lacking, Targets};
use super::wait::{self, MAX_TIMEOUT};
use super::workload_names::kind_of;
use super::{columns, kinds};
use crate::face::server::protocol::DeleteTarget;
use crate::face::views::PodView;
use crate::face::views::workloads::controller;
use crate::workloads::view::WorkloadList;

/// The verb `delete`.
pub const VERB: args::Verb = args::Verb {
    name: "delete",
    summary: &[
        ("delete POD", "end pods until their files change"),
        ("delete WORKLOAD", "remove the file of a Deployment, Job, … and end its pods"),
        ("delete -f FILE", "take back what 'apply -f' has put there"),
    ],
    help: "\
usage: podprobe delete [pod] POD… [--grace-period SECONDS | --now] [--ignore-not-found] [-n NAMESPACE] [--root DIR]
       podprobe delete KIND/NAME… [--wait=false] [--timeout=TIME] …
       podprobe delete [KIND[,KIND]…] -l SELECTOR …
       podprobe delete -f FILE|DIR|- [-f …] [--wait] [--grace-period SECONDS | --now] [--ignore-not-found] [--root DIR]

Ends pods and keeps them so until the content of their files changes, also through restarts of the daemon and the node.
'get pods' shows them as Terminating, then as Deleted. The volumes that live with a pod are emptied, as when it is
removed. It starts again when its file says something else, or is moved away and back once the pod is gone from 'get
pods'. To be rid of a pod for good, remove its file. A pod of a workload is replaced at once.

Of a workload, such as deployment/web or 'job a b', it removes the file, and waits until its pods are gone. A file that
has other objects too stays, and nothing is removed then. What a Deployment or a CronJob has made is deleted with it;
the Jobs of a CronJob alone, too.

With -f it is rid of for good: the files in the daemon's directory (staticPodPath) that have the objects of FILE are
removed, whatever they say of them by now. A file that has other objects too stays, and nothing is removed then. FILE
itself is never removed: where it lies in that directory, its pods are ended as above.

  -f, --filename FILE      what 'apply' was given; may be repeated
  -l, --selector LABELS    the pods, or what there is of KIND, that have these labels
  --grace-period SECONDS   instead of the pod's terminationGracePeriodSeconds; 0 kills at once
  --now                    the same as --grace-period 1
  --ignore-not-found       what is not there is well
  --wait                   wait until pods are gone; the default for those of workloads, unless --wait=false
  --timeout=TIME           the longest wait; default a week
  --cascade=background     also foreground; pods never stay without their workload, so orphan is refused

Pods are not waited for without --wait: 'podprobe get pods' shows how far they are.
",
    options: &[
        ROOT,
        NAMESPACE,
        SELECTOR,
        Opt::value("filename", Some('f')),
        Opt::value("grace-period", None),
        Opt::flag("now", None),
        Opt::flag("ignore-not-found", None),
        Opt::flag("wait", None),
        Opt::value("timeout", None),
        Opt::value("cascade", None),
    ],
    run: |raw, out, err| {
        let args = parse(raw).map_err(CliError::Usage)?;
        run(&args, out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `delete`.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// The pods and workloads. Empty if files are given.
    targets: Targets,
    /// The sources given with `-f`. The objects in these sources are to be removed.
    files: Vec<Source>,
    /// Namespace of the pods and workloads; None means all namespaces.
    pub namespace: Option<String>,
    /// Grace period in seconds; None means the pod's own grace period.
    pub grace: Option<i64>,
    /// True if a missing pod or object is no error.
    pub ignore_not_found: bool,
    /// `--wait`. None means to wait for the pods of workloads, and not for other pods.
    wait: Option<bool>,
    /// The longest time to wait.
    timeout: Duration,
}

fn parse(raw: &Raw) -> Result<Delete, String> {
    let (targets, files) = (targets(raw)?, pod_files::sources(raw)?);
    match (targets == Targets::Named(Vec::new()), files.is_empty()) {
        (true, true) => return Err(NEEDS.into()),
        (false, false) => return Err("names or labels and -f exclude each other".into()),
        _ => {}
    }
    if !files.is_empty() && raw.has(NAMESPACE.name) {
        return Err("-n and -f exclude each other: a file says where its objects are".into());
    }
    refuse_orphans(raw)?;
    let timeout = raw
        .text("timeout")?
        .map_or(Ok(MAX_TIMEOUT), |t| wait::timeout(&t))?;
    Ok(Delete {
        root: raw.root()?,
        targets,
        files,
        namespace: raw.namespace()?,
        grace: grace(raw)?,
        ignore_not_found: raw.has("ignore-not-found"),
        wait: match raw.is_denied("wait") {
            true => Some(false),
            false => raw.has("wait").then_some(true),
        },
        // As with kubectl, 0 stands for the default.
        timeout: match timeout.is_zero() {
            true => MAX_TIMEOUT,
            false => timeout,
        },
    })
}

const NEEDS: &str = "'delete' needs a pod, a workload or a file: podprobe delete POD, podprobe delete deployment/NAME, podprobe delete -f FILE";

/// Parses the words. A word of another kind, as in `delete service web`, is refused: else pods of these names would be
/// deleted.
fn targets(raw: &Raw) -> Result<Targets, String> {
    let words = raw.text_words()?;
    let is_kind = |word: &str| kinds::is_pod_word(word) || kind_of(word).is_some();
    let is_alone = matches!(&words[..], [kind] if is_kind(kind)) && !raw.has(SELECTOR.name);
    let is_other = |kind: &String| kinds::is_other_word(kind) && kind_of(kind).is_none();
    let has_other = words.len() > 1 && words.first().is_some_and(is_other);
    if is_alone
        || has_other
        || words
            .iter()
            .any(|word| word.is_empty() || word.ends_with('/'))
    {
        return Err(NEEDS.into());
    }
    let is_known = |word: &String| word.split_once('/').is_none_or(|(kind, _)| is_kind(kind));
    match words.iter().all(is_known) {
        true => Targets::parse(raw, &words),
        false => Err(NEEDS.into()),
    }
}

fn refuse_orphans(raw: &Raw) -> Result<(), String> {
    match raw.text("cascade")?.as_deref() {
        None | Some("background" | "foreground") => Ok(()),
        Some("orphan") => {
            Err("--cascade=orphan is not possible: pods end with their workload".into())
        }
        Some(other) => Err(format!(
            "--cascade takes background or foreground, not '{other}'"
        )),
    }
}

pub(super) fn grace(raw: &Raw) -> Result<Option<i64>, String> {
    Ok(match (raw.text("grace-period")?, raw.has("now")) {
        (Some(_), true) => return Err("--grace-period and --now exclude each other".into()),
        (None, true) => Some(1),
        (None, false) => None,
        (Some(text), false) => {
            let seconds = text.parse::<u32>().ok().filter(|s| *s <= i32::MAX as u32);
            let wrong = || {
                format!(
                    "--grace-period takes 0 to {} seconds, not '{text}'",
                    i32::MAX
                )
            };
            Some(seconds.ok_or_else(wrong)?.into())
        }
    })
}

/// Deletes pods and workloads. Prints a line for each of them on `out`, and a line for each that is missing on `err`.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked or refuses the request, or if something is missing.
pub fn run(args: &Delete, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    if !args.files.is_empty() {
        return taken_back::run(args, out, err);
    }
    let mut client = Client::connect(&args.root)?;
    let snapshot = client.snapshot()?;
    let list = match args.targets.has_workloads() {
        true => client.workloads(None)?,
        false => WorkloadList::default(),
    };
    let found = args
        .targets
        .find(&snapshot, &list, args.namespace.as_deref());
    let mut failed = false;
    for pod in &found.pods {
        failed |= !one(args, pod, &mut client, out, err)?;
    }
    out.flush()?;
    let is_wrong = |it: &&Lacking| !(it.is_missing && args.ignore_not_found);
    for lacking in found.lacking.iter().filter(is_wrong) {
        failed = true;
        writeln!(err, "{}", lacking.why)?;
    }
    if found.pods.is_empty() && found.workloads.is_empty() && found.lacking.is_empty() {
        writeln!(err, "No resources found")?;
    }
    let views = (&found.workloads[..], &list);
    failed |= !workloads::run(args, &mut client, views, (out, err))?;
    if args.wait == Some(true) {
        let is_it = |p: &&Arc<PodView>| found.pods.iter().any(|pod| pod.uid() == p.uid());
        let going = snapshot.pods.iter().filter(is_it).map(gone::of_pod);
        failed |= !gone::wait(args, going.collect(), err)?;
    }
    match failed {
        true => Err(CliError::Reported),
        false => Ok(()),
    }
}

/// Returns kubectl's line about an object that was deleted. `key` is for example `deployment.apps/web in shop`.
fn deleted(key: &str) -> String {
    let (kind, name) = key.split_once('/').unwrap_or(("", key));
    match name.split_once(" in ") {
        Some((name, namespace)) => format!("{kind} \"{name}\" deleted from {namespace} namespace"),
        None => format!("{kind} \"{name}\" deleted"),
    }
}

/// Deletes one pod. Returns false if the daemon refuses the request.
fn one(
    args: &Delete,
    pod: &PodView,
    client: &mut Client,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<bool, CliError> {
    let deleted = client.delete(DeleteTarget {
        uid: pod.uid().into(),
        grace_period_seconds: args.grace,
    });
    match deleted {
        Ok(deleted) => {
            let (name, file) = (columns::name(pod), deleted.file);
            match controller(&pod.object) {
                Some(_) => writeln!(out, "pod \"{name}\" deleted")?,
                None => writeln!(out, "pod \"{name}\" deleted until its file changes: {file}")?,
            }
            Ok(true)
        }
        Err(e) => {
            writeln!(err, "{e}")?;
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;
    use crate::cli::workload_pods::Target;

    #[track_caller]
    fn check(line: &str, expected: Result<(&[&str], Option<i64>), &str>) {
        let target = |word: &&str| Target::parse(word).unwrap();
        let expected = expected.map(|(words, grace)| Delete {
            root: "/".into(),
            targets: Targets::Named(words.iter().map(target).collect()),
            files: Vec::new(),
            namespace: None,
            grace,
            ignore_not_found: false,
            wait: None,
            timeout: MAX_TIMEOUT,
        });
        let parsed = testing::parse(&VERB, parse, line);
        assert_eq!(parsed, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn pods_and_their_grace_period() {
        check("delete web", Ok((&["web"], None)));
        check("delete pod web", Ok((&["web"], None)));
        check("delete pod/web --now", Ok((&["web"], Some(1))));
        check("delete web db", Ok((&["web", "db"], None)));
        check("delete pods web pod/db", Ok((&["web", "db"], None)));
        check("delete web --grace-period 0", Ok((&["web"], Some(0))));
        check("delete web --grace-period=90", Ok((&["web"], Some(90))));
        for line in [
            "delete",
            "delete pod",
            "delete service web",
            "delete web/main",
            "delete pod/",
            "delete svc/web",
            "delete deploy",
            "delete deploy/",
        ] {
            check(line, Err(NEEDS));
        }
        check(
            "delete web --now --grace-period 3",
            Err("--grace-period and --now exclude each other"),
        );
        for text in ["-1", "2147483648", "soon", "1s"] {
            let wrong = format!("--grace-period takes 0 to 2147483647 seconds, not '{text}'");
            check(&format!("delete web --grace-period={text}"), Err(&wrong));
        }
    }

    #[test]
    fn workloads_stand_beside_pods() {
        check("delete deploy/web db", Ok((&["deploy/web", "db"], None)));
        check("delete job a b", Ok((&["job/a", "job/b"], None)));
        let parsed = |line: &str| testing::parse(&VERB, parse, line);
        let wait = |line: &str| parsed(line).map(|d| (d.wait, d.timeout.as_secs()));
        let week = MAX_TIMEOUT.as_secs();
        assert_eq!(wait("delete a --wait --timeout=0"), Ok((Some(true), week)));
        assert_eq!(wait("delete a --wait=false"), Ok((Some(false), week)));
        assert_eq!(wait("delete a --timeout=5s"), Ok((None, 5)));
        let orphan = "--cascade=orphan is not possible: pods end with their workload";
        check("delete deploy/a --cascade=orphan", Err(orphan));
        assert!(parsed("delete deploy/a --cascade=foreground").is_ok());
        for (line, pods, kinds) in [
            ("delete -l a=b", true, false),
            ("delete deploy,pods -l a=b", true, true),
            ("delete ds -l a=b", false, true),
        ] {
            let labels = parsed(line).unwrap().targets;
            let Targets::Labels { pods: has_pods, .. } = &labels else {
                panic!("{line}")
            };
            assert_eq!((*has_pods, labels.has_workloads()), (pods, kinds), "{line}");
        }
        check(
            "delete deploy web -l a=b",
            Err("-l and names exclude each other"),
        );
        check(
            "delete svc -l a=b",
            Err("'-l' takes pods and kinds of workloads, not 'svc'"),
        );
    }

    #[test]
    fn files_stand_in_place_of_names() {
        let files = |line: &str| testing::parse(&VERB, parse, line).map(|d| d.files.len());
        assert_eq!(files("delete -f a -f b"), Ok(2));
        assert_eq!(files("delete -f -"), Ok(1));
        assert!(files("delete -f a web").is_err());
        assert!(files("delete -f a -n shop").is_err());
    }
}
