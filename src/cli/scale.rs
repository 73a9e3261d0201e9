//! The verb `scale`: sets the number of pods of workloads, until their files change theirs.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw, SELECTOR};
use super::change;
use super::client::Client;
use super::error::CliError;
use super::workload_names::Asked;
use crate::api::workload::WorkloadKind;
use crate::face::views::workloads;
use crate::workloads::view::{Change, WorkloadView};

/// The verb `scale`.
pub const VERB: args::Verb = args::Verb {
    name: "scale",
    summary: &[("scale WORKLOAD --replicas=N", "set the number of pods")],
    help: "\
usage: podprobe scale WORKLOAD… --replicas=N [--current-replicas=N] [-l SELECTOR] [-n NAMESPACE] [--root DIR]

Sets the number of pods of a Deployment, StatefulSet, ReplicaSet or ReplicationController. It holds until the file says
another number, also through restarts of the daemon; 'podprobe get' and 'podprobe describe' show it. WORKLOAD is
KIND/NAME, such as deployment/web; also KIND NAME…, and with -l a KIND alone.

      --replicas=N         the number of pods
      --current-replicas=N only if that is the number now
  -l, --selector LABELS    the workloads of KIND that have these labels
  -n, --namespace NS       of one namespace; default all
",
    options: &[
        ROOT,
        NAMESPACE,
        SELECTOR,
        Opt::value("replicas", None),
        Opt::value("current-replicas", None),
    ],
    run: |raw, out, err| {
        let scale = parse(raw).map_err(CliError::Usage)?;
        run(&scale, out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `scale`.
#[derive(Clone, Debug, PartialEq)]
struct Scale {
    root: PathBuf,
    namespace: Option<String>,
    asked: Asked,
    replicas: i32,
    current: Option<i32>,
}

fn parse(raw: &Raw) -> Result<Scale, String> {
    let needs = "'scale' needs the number of pods: podprobe scale deployment/NAME --replicas=N";
    let replicas = number(raw, "replicas")?.ok_or(needs)?;
    Ok(Scale {
        root: raw.root()?,
        namespace: raw.namespace()?,
        asked: Asked::parse(raw, &raw.text_words()?)?.chosen(raw)?,
        replicas,
        current: match raw.text("current-replicas")?.as_deref() {
            // As with kubectl, -1 means any number.
            Some("-1") => None,
            _ => number(raw, "current-replicas")?,
        },
    })
}

fn number(raw: &Raw, name: &str) -> Result<Option<i32>, String> {
    let Some(text) = raw.text(name)? else {
        return Ok(None);
    };
    let number = text.parse::<i32>().ok().filter(|n| *n >= 0);
    let wrong = || format!("--{name} takes a number of pods, 0 or more, not '{text}'");
    number.map(Some).ok_or_else(wrong)
}

fn run(scale: &Scale, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&scale.root)?;
    let list = client.workloads(None)?;
    let (views, lacking) = scale.asked.find(&list.items, scale.namespace.as_deref());
    let change = Change::Scale {
        replicas: scale.replicas,
        current_replicas: scale.current,
    };
    change::all(
        &mut client,
        (&views, &lacking),
        &change,
        has_a_number,
        (out, err),
    )
}

/// Refuses kinds that have no number of pods.
fn has_a_number(view: &WorkloadView) -> Result<(), String> {
    let why = match workloads::kind(view) {
        Some(WorkloadKind::DaemonSet) => "it has one pod on the node",
        Some(WorkloadKind::Job) => "change parallelism in its file",
        Some(WorkloadKind::CronJob) => "change its template in its file",
        _ => return Ok(()),
    };
    let plural = workloads::kind(view).map_or("", workloads::plural);
    let name = workloads::name(view);
    Err(format!("{plural} \"{name}\" cannot be scaled: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check(line: &str, expected: Result<(i32, Option<i32>), &str>) {
        let got = testing::parse(&VERB, parse, line).map(|s| (s.replicas, s.current));
        assert_eq!(got, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn the_numbers_are_kubectls() {
        check("scale deploy/web --replicas=3", Ok((3, None)));
        check(
            "scale rs web db --replicas 0 --current-replicas 2",
            Ok((0, Some(2))),
        );
        check(
            "scale sts -l a=b --replicas=1 --current-replicas=-1",
            Ok((1, None)),
        );
        let needs = "'scale' needs the number of pods: podprobe scale deployment/NAME --replicas=N";
        check("scale deploy/web", Err(needs));
        check(
            "scale deploy/web --replicas=-1",
            Err("--replicas takes a number of pods, 0 or more, not '-1'"),
        );
        check(
            "scale deploy/web --replicas=1 --current-replicas=-2",
            Err("--current-replicas takes a number of pods, 0 or more, not '-2'"),
        );
        check(
            "scale deploy --replicas=1",
            Err("'scale' needs a workload: podprobe help scale"),
        );
    }
}
