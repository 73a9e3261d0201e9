//! The verb `rerun`: runs Jobs again that have ended, which kubectl cannot.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::args::{self, NAMESPACE, ROOT, Raw};
use super::change;
use super::client::Client;
use super::error::CliError;
use super::workload_names::{Asked, Named, kind_of};
use crate::api::workload::WorkloadKind;
use crate::workloads::view::Change;

/// The verb `rerun`.
pub const VERB: args::Verb = args::Verb {
    name: "rerun",
    summary: &[("rerun JOB", "run a Job again that has ended")],
    help: "\
usage: podprobe rerun JOB… [-n NAMESPACE] [--root DIR]

Runs a Job of a file again from its beginning. A Job whose file is unchanged runs once, also through restarts of the
daemon; so does one whose state is lost, until this verb says that it may run. JOB is NAME or job/NAME. The Jobs of a
CronJob run again with 'podprobe create job NAME --from=cronjob/CRONJOB'.

  -n, --namespace NS       of one namespace; default all
",
    options: &[ROOT, NAMESPACE],
    run: |raw, out, err| {
        let rerun = parse(raw).map_err(CliError::Usage)?;
        run(&rerun, out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `rerun`.
#[derive(Clone, Debug, PartialEq)]
struct Rerun {
    root: PathBuf,
    namespace: Option<String>,
    jobs: Asked,
}

fn parse(raw: &Raw) -> Result<Rerun, String> {
    let words = raw.text_words()?;
    let names = match words.split_first() {
        Some((kind, names)) if kind_of(kind) == Some(WorkloadKind::Job) => names,
        _ => &words[..],
    };
    if names.is_empty() {
        return Err("'rerun' needs a Job: podprobe rerun JOB".into());
    }
    let job = |word: &String| {
        let named = match word.contains('/') {
            true => Named::of_kind(word),
            false => Some(Named {
                kind: WorkloadKind::Job,
                name: word.clone(),
            }),
        };
        let wrong = || format!("'rerun' takes names of Jobs, not '{word}'");
        named
            .filter(|named| named.kind == WorkloadKind::Job && !named.name.is_empty())
            .ok_or_else(wrong)
    };
    Ok(Rerun {
        root: raw.root()?,
        namespace: raw.namespace()?,
        jobs: Asked::Named(names.iter().map(job).collect::<Result<_, _>>()?),
    })
}

fn run(rerun: &Rerun, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&rerun.root)?;
    let list = client.workloads(None)?;
    let (views, lacking) = rerun.jobs.find(&list.items, rerun.namespace.as_deref());
    let change = Change::Rerun;
    change::all(
        &mut client,
        (&views, &lacking),
        &change,
        |_| Ok(()),
        (out, err),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check(line: &str, expected: Result<&[&str], &str>) {
        let job = |name: &&str| Named {
            kind: WorkloadKind::Job,
            name: (*name).to_owned(),
        };
        let expected = expected.map(|names| Asked::Named(names.iter().map(job).collect()));
        let got = testing::parse(&VERB, parse, line).map(|rerun| rerun.jobs);
        assert_eq!(got, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn jobs_are_named_with_and_without_their_kind() {
        check("rerun job/a b", Ok(&["a", "b"]));
        check("rerun job a b", Ok(&["a", "b"]));
        check("rerun a", Ok(&["a"]));
        let needs = "'rerun' needs a Job: podprobe rerun JOB";
        check("rerun", Err(needs));
        check("rerun job", Err(needs));
        check("rerun cj/a", Err("'rerun' takes names of Jobs, not 'cj/a'"));
        check("rerun job/", Err("'rerun' takes names of Jobs, not 'job/'"));
    }
}
