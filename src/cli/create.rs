//! The verb `create job`: makes a Job from the template of a CronJob, outside of its schedule.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::change::{self, error};
use super::client::Client;
use super::error::CliError;
use super::workload_names::Named;
use crate::api::workload::WorkloadKind;
use crate::workloads::view::Change;

/// The verb `create`.
pub const VERB: args::Verb = args::Verb {
    name: "create",
    summary: &[("create job NAME --from=cronjob/NAME", "run a CronJob now")],
    help: "\
usage: podprobe create job NAME --from=cronjob/CRONJOB [-n NAMESPACE] [--root DIR]

Makes a Job of this name from the template of a CronJob, now and outside of its schedule. The Job belongs to the CronJob
and is cleared away with the Jobs of its history. Everything else is made by files: podprobe apply -f FILE.

      --from=cronjob/NAME  the CronJob
  -n, --namespace NS       of one namespace; default all
",
    options: &[ROOT, NAMESPACE, Opt::value("from", None)],
    run: |raw, out, _| {
        let create = parse(raw).map_err(CliError::Usage)?;
        run(&create, out).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `create job`.
#[derive(Clone, Debug, PartialEq)]
struct Create {
    root: PathBuf,
    namespace: Option<String>,
    name: String,
    from: Named,
}

fn parse(raw: &Raw) -> Result<Create, String> {
    const USAGE: &str = "podprobe create job NAME --from=cronjob/CRONJOB";
    let words = raw.text_words()?;
    let name = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["job", name] if !name.is_empty() => name.to_owned(),
        [] | ["job"] => return Err(format!("'create' needs a name: {USAGE}")),
        ["job", ..] => {
            return Err(format!(
                "'create job' takes one name and no command, which the CronJob has: {USAGE}"
            ));
        }
        [other, ..] => {
            return Err(format!(
                "'create' makes jobs of CronJobs alone, no '{other}': write it into a file, and 'podprobe apply -f FILE'"
            ));
        }
    };
    let from = raw.text("from")?;
    let from = from.ok_or_else(|| format!("'create job' needs a CronJob: {USAGE}"))?;
    let named = Named::of_kind(&from).filter(|named| named.kind == WorkloadKind::CronJob);
    Ok(Create {
        root: raw.root()?,
        namespace: raw.namespace()?,
        name,
        from: named.ok_or_else(|| format!("--from takes cronjob/NAME, not '{from}'"))?,
    })
}

fn run(create: &Create, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&create.root)?;
    let list = client.workloads(None)?;
    let view = create.from.find(&list.items, create.namespace.as_deref());
    let view = view.map_err(CliError::Failed)?;
    let name = create.name.clone();
    match change::ask(&mut client, view, Change::CreateJob { name }) {
        Ok(done) => {
            writeln!(out, "job.batch/{} {done}", create.name)?;
            Ok(out.flush()?)
        }
        Err(CliError::Failed(why)) => {
            let why = why.strip_prefix("error: ").unwrap_or(&why);
            Err(CliError::Failed(error(&format!(
                "failed to create job: {why}"
            ))))
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check(line: &str, expected: Result<(&str, &str), &str>) {
        let got = testing::parse(&VERB, parse, line).map(|c| (c.name, c.from.name));
        let expected = expected.map(|(name, from)| (name.to_owned(), from.to_owned()));
        assert_eq!(got, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn a_job_is_made_of_a_cron_job() {
        check(
            "create job now --from=cronjob/backup",
            Ok(("now", "backup")),
        );
        check("create job now --from cj/backup", Ok(("now", "backup")));
        check(
            "create job now --from cronjobs.batch/backup",
            Ok(("now", "backup")),
        );
        let usage = "podprobe create job NAME --from=cronjob/CRONJOB";
        check("create", Err(&format!("'create' needs a name: {usage}")));
        check(
            "create job",
            Err(&format!("'create' needs a name: {usage}")),
        );
        check(
            "create job a",
            Err(&format!("'create job' needs a CronJob: {usage}")),
        );
        check(
            "create job a --from=job/b",
            Err("--from takes cronjob/NAME, not 'job/b'"),
        );
        check(
            "create job a --from=cj/b -- date",
            Err(&format!(
                "'create job' takes one name and no command, which the CronJob has: {usage}"
            )),
        );
        check(
            "create deployment web",
            Err(
                "'create' makes jobs of CronJobs alone, no 'deployment': write it into a file, and 'podprobe apply -f FILE'",
            ),
        );
    }
}
