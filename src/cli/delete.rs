//! `delete`: a person ends a pod until its file changes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::client::Client;
use super::error::CliError;
use super::kinds;
use super::{columns, names};
use crate::server::protocol::DeleteTarget;

/// `delete`.
pub const VERB: args::Verb = args::Verb {
    name: "delete",
    summary: &[("delete POD", "end a pod until its file changes")],
    help: "\
usage: podprobe delete [pod] POD [--grace-period SECONDS | --now] [-n NAMESPACE] [--root DIR]

Ends a pod and keeps it so until the content of its file changes, also through restarts of the daemon and the node.
'get pods' shows it as Deleted. Its volumes that live with the pod are emptied, as when a pod is removed. It starts
again when its file says something else, or is moved away and back once the pod is gone from 'get pods'. To be rid
of a pod for good, remove its file.

  --grace-period SECONDS   instead of the pod's terminationGracePeriodSeconds; 0 kills at once
  --now                    the same as --grace-period 1

It returns at once; 'podprobe get pods' shows how far the pod is.
",
    options: &[
        ROOT,
        NAMESPACE,
        Opt::value("grace-period", None),
        Opt::flag("now", None),
    ],
    run: |raw, out, _| {
        let args = parse(raw).map_err(CliError::Usage)?;
        run(&args, out).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `delete`.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// Where the daemon is.
    pub root: PathBuf,
    /// With or without the node's name at its end.
    pub pod: String,
    /// None means every namespace.
    pub namespace: Option<String>,
    /// In seconds; None is the pod's own.
    pub grace: Option<i64>,
}

fn parse(raw: &Raw) -> Result<Delete, String> {
    let words = raw.text_words()?;
    let pod = match words.as_slice() {
        [kind, pod] if kinds::is_pod_word(kind) => pod,
        [word] => match word.split_once('/') {
            Some((kind, pod)) if kinds::is_pod_word(kind) => return with(raw, pod),
            _ => word,
        },
        _ => return Err("'delete' needs a pod: podprobe delete POD".into()),
    };
    with(raw, pod)
}

fn with(raw: &Raw, pod: &str) -> Result<Delete, String> {
    if pod.is_empty() || pod.contains('/') {
        return Err("'delete' needs a pod: podprobe delete POD".into());
    }
    let grace = match (raw.text("grace-period")?, raw.has("now")) {
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
    };
    Ok(Delete {
        root: raw.root()?,
        pod: pod.into(),
        namespace: raw.namespace()?,
        grace,
    })
}

/// Says on `out` until when the pod is deleted.
///
/// # Errors
/// The daemon cannot be asked, or there is no such pod.
pub fn run(args: &Delete, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&args.root)?;
    let snapshot = client.snapshot()?;
    let pod = names::resolve(&snapshot, args.namespace.as_deref(), &args.pod);
    let pod = pod.map_err(|e| CliError::Failed(e.to_string()))?;
    let deleted = client.delete(DeleteTarget {
        uid: pod.uid().into(),
        grace_period_seconds: args.grace,
    })?;
    let (name, file) = (columns::name(pod), deleted.file);
    writeln!(out, "pod \"{name}\" deleted until its file changes: {file}")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check(line: &str, expected: Result<(&str, Option<i64>), &str>) {
        let expected = expected.map(|(pod, grace)| Delete {
            root: "/".into(),
            pod: pod.into(),
            namespace: None,
            grace,
        });
        let parsed = testing::parse(&VERB, parse, line);
        assert_eq!(parsed, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn a_pod_and_its_grace_period() {
        check("delete web", Ok(("web", None)));
        check("delete pod web", Ok(("web", None)));
        check("delete pod/web --now", Ok(("web", Some(1))));
        check("delete web --grace-period 0", Ok(("web", Some(0))));
        check("delete web --grace-period=90", Ok(("web", Some(90))));
        let needs = "'delete' needs a pod: podprobe delete POD";
        for line in [
            "delete",
            "delete service web",
            "delete web/main",
            "delete pod/",
        ] {
            check(line, Err(needs));
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
}
