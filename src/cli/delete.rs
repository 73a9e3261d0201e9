//! The verb `delete`: ends pods until their files change, or removes files that `apply` has put into the
//! daemon's directory.

mod taken_back;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::client::Client;
use super::error::CliError;
use super::pod_files::{self, Source};
use super::{columns, kinds, names};
use crate::face::server::protocol::DeleteTarget;
use crate::face::views::{PodView, Snapshot};

/// The verb `delete`.
pub const VERB: args::Verb = args::Verb {
    name: "delete",
    summary: &[
        ("delete POD", "end pods until their files change"),
        ("delete -f FILE", "take back what 'apply -f' has put there"),
    ],
    help: "\
usage: podprobe delete [pod] POD… [--grace-period SECONDS | --now] [--ignore-not-found] [-n NAMESPACE] [--root DIR]
       podprobe delete -f FILE|DIR|- [-f …] [--grace-period SECONDS | --now] [--ignore-not-found] [--root DIR]

Ends pods and keeps them so until the content of their files changes, also through restarts of the daemon and the node.
'get pods' shows them as Terminating, then as Deleted. The volumes that live with a pod are emptied, as when it is
removed. It starts again when its file says something else, or is moved away and back once the pod is gone from 'get
pods'. To be rid of a pod for good, remove its file.

With -f it is rid of for good: the files in the daemon's directory (staticPodPath) that have the objects of FILE are
removed, whatever they say of them by now. A file that has other objects too stays, and nothing is removed then. FILE
itself is never removed: where it lies in that directory, its pods are ended as above.

  -f, --filename FILE      what 'apply' was given; may be repeated
  --grace-period SECONDS   instead of the pod's terminationGracePeriodSeconds; 0 kills at once
  --now                    the same as --grace-period 1
  --ignore-not-found       what is not there is well

It returns at once; 'podprobe get pods' shows how far the pods are, and 'podprobe wait POD --for=delete' waits.
",
    options: &[
        ROOT,
        NAMESPACE,
        Opt::value("filename", Some('f')),
        Opt::value("grace-period", None),
        Opt::flag("now", None),
        Opt::flag("ignore-not-found", None),
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
    /// Names of pods. The node's name at the end of a name may be left out. Empty if files are given.
    pub pods: Vec<String>,
    /// The sources given with `-f`. The objects in these sources are to be removed.
    files: Vec<Source>,
    /// Namespace of the pods; None means all namespaces.
    pub namespace: Option<String>,
    /// Grace period in seconds; None means the pod's own grace period.
    pub grace: Option<i64>,
    /// True if a missing pod or object is no error.
    pub ignore_not_found: bool,
}

fn parse(raw: &Raw) -> Result<Delete, String> {
    let (pods, files) = (pods(raw)?, pod_files::sources(raw)?);
    match (pods.is_empty(), files.is_empty()) {
        (true, true) => return Err(NEEDS.into()),
        (false, false) => return Err("names of pods and -f exclude each other".into()),
        _ => {}
    }
    if !files.is_empty() && raw.has(NAMESPACE.name) {
        return Err("-n and -f exclude each other: a file says where its objects are".into());
    }
    Ok(Delete {
        root: raw.root()?,
        pods,
        files,
        namespace: raw.namespace()?,
        grace: grace(raw)?,
        ignore_not_found: raw.has("ignore-not-found"),
    })
}

const NEEDS: &str = "'delete' needs a pod or a file: podprobe delete POD, podprobe delete -f FILE";

/// Parses the names of pods, written `pod a b`, `a b` or `pod/a pod/b`.
fn pods(raw: &Raw) -> Result<Vec<String>, String> {
    let words = raw.text_words()?;
    let names = match words.split_first() {
        Some((kind, names)) if kinds::is_pod_word(kind) => names,
        // The first word is another kind, as in `delete service web`. Without this check, pods with these
        // names would be deleted.
        Some((kind, [_, ..])) if kinds::is_other_word(kind) => return Err(NEEDS.into()),
        _ => &words[..],
    };
    if names.is_empty() && !words.is_empty() {
        return Err(NEEDS.into());
    }
    let name = |word: &String| match word.split_once('/') {
        Some((kind, name)) if kinds::is_pod_word(kind) && !name.is_empty() => Ok(name.to_owned()),
        Some(_) => Err(NEEDS.to_owned()),
        None if word.is_empty() => Err(NEEDS.to_owned()),
        None => Ok(word.clone()),
    };
    names.iter().map(name).collect()
}

fn grace(raw: &Raw) -> Result<Option<i64>, String> {
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

/// Deletes the pods. Prints a line for each deleted pod on `out`, and a line for each missing pod on `err`.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked or refuses the request, or if there is no such pod.
pub fn run(args: &Delete, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    if !args.files.is_empty() {
        return taken_back::run(args, out, err);
    }
    let mut client = Client::connect(&args.root)?;
    let snapshot = client.snapshot()?;
    let mut failed = false;
    for name in &args.pods {
        match find(args, &snapshot, name) {
            Ok(Some(pod)) => failed |= !one(args, pod, &mut client, out, err)?,
            Ok(None) => {}
            Err(e) => {
                failed = true;
                writeln!(err, "{e}")?;
            }
        }
    }
    out.flush()?;
    match failed {
        true => Err(CliError::Reported),
        false => Ok(()),
    }
}

fn find<'s>(
    args: &Delete,
    snapshot: &'s Snapshot,
    name: &str,
) -> Result<Option<&'s PodView>, names::NameError> {
    match names::resolve(snapshot, args.namespace.as_deref(), name) {
        Err(names::NameError::NotFound { .. }) if args.ignore_not_found => Ok(None),
        found => found.map(Some),
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
            writeln!(out, "pod \"{name}\" deleted until its file changes: {file}")?;
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

    #[track_caller]
    fn check(line: &str, expected: Result<(&[&str], Option<i64>), &str>) {
        let expected = expected.map(|(pods, grace)| Delete {
            root: "/".into(),
            pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
            files: Vec::new(),
            namespace: None,
            grace,
            ignore_not_found: false,
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
    fn files_stand_in_place_of_names() {
        let files = |line: &str| testing::parse(&VERB, parse, line).map(|d| d.files.len());
        assert_eq!(files("delete -f a -f b"), Ok(2));
        assert_eq!(files("delete -f -"), Ok(1));
        assert!(files("delete -f a web").is_err());
        assert!(files("delete -f a -n shop").is_err());
    }
}
